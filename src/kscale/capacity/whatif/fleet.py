"""Scenarios over clusters: what a worker of a sweep does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

import msgspec

from kscale.ca.options import AutoscalingOptions
from kscale.capacity.catalogue import Catalogue
from kscale.capacity.groups import read_groups, recognise_groups
from kscale.capacity.records import UNLIMITED
from kscale.capacity.whatif.grammar import Scenario
from kscale.capacity.whatif.records import ScenarioRow
from kscale.capacity.whatif.running import Base, whatif
from kscale.capacity.whatif.simulated import Simulate
from kscale.effects import Moment, moment
from kscale.records import Record
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.reading import load

__all__ = ["Fleet", "SweepReport", "SweepRow", "rows_of_base", "rows_of_fleet"]


class SweepRow(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A scenario of a cluster: its ``row`` beside the ``baseline``, or the ``error`` that it ended with."""

    cluster: str
    scenario: str
    row: ScenarioRow | None = None
    baseline: ScenarioRow | None = None
    error: str = ""


class SweepReport(Record, frozen=True):
    """Rows in the order of clusters, then of scenarios; ``unfinished`` scenarios were not decided when the sweep was
    ended."""

    KIND: ClassVar[str] = "SweepReport"
    rows: list[SweepRow]
    unfinished: int


@dataclass(frozen=True)
class Fleet:
    """How clusters in dumps are read, and what is asked of each: ``groups_file`` and ``catalogue`` as ``-g`` and
    ``--catalogue`` of the command line name them; without, groups are those recognised in the labels. ``simulate`` is
    that of a :class:`~kscale.capacity.whatif.running.Base`."""

    groups_file: str | None
    catalogue: Catalogue | None
    now: datetime | Moment
    options: AutoscalingOptions
    simulate: Simulate | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "now", moment(self.now))

    def base(self, dump: str) -> Base:
        """The cluster of a dump as a base of scenarios. Raises InputError."""
        cluster: Cluster = load(dump)
        nodes = cluster.snapshot(dra=True).columns
        if self.groups_file is not None:
            groups = read_groups(self.groups_file, node_names=nodes.index, catalogue=self.catalogue)
        else:
            found = recognise_groups(nodes.objects).groups
            groups = [msgspec.structs.replace(each.group, max_size=UNLIMITED, from_node=None) for each in found]
        return Base(cluster, groups, self.now, self.options, self.catalogue, simulate=self.simulate)


def rows_of_base(base: Base, part: list[Scenario]) -> Iterator[SweepRow]:
    """Of scenarios of one cluster."""
    report = whatif(base, part)
    baselines = {row.question: row for row in report.baselines}
    for row in report.scenarios:
        yield SweepRow(cluster="", scenario=row.name, row=row, baseline=baselines[row.question])


def rows_of_fleet(fleet: Fleet, part: list[tuple[str, list[Scenario]]]) -> Iterator[list[SweepRow]]:
    """Of several clusters: of each dump the rows of its scenarios."""
    for dump, scenarios in part:
        yield [msgspec.structs.replace(row, cluster=dump) for row in rows_of_base(fleet.base(dump), scenarios)]
