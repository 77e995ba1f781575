"""``kscale.whatif``: decide scenarios one after the other, beside their baseline, or in the workers of a sweep.

kscale's own.
"""

from __future__ import annotations

import operator
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from kscale.ca.errors import AutoscalerError
from kscale.ca.options import AutoscalingOptions
from kscale.capacity.catalogue import Catalogue
from kscale.capacity.cost import priced
from kscale.capacity.group_templates import loop_groups, with_members, with_templates
from kscale.capacity.groups import members_of, read_groups, recognise_groups
from kscale.capacity.mix import MixOptions
from kscale.capacity.records import UNLIMITED
from kscale.capacity.whatif.edits import Place, World, edited, ground_of, text_of
from kscale.capacity.whatif.questions import Answers, Decided, Simulate
from kscale.capacity.whatif.scenarios import BASELINE, Condition, Question, Scenario, ScenarioRow, WhatIfReport
from kscale.effects import Moment, moment
from kscale.errors import InputError, Problem
from kscale.objects.api.meta import KubeObject
from kscale.objects.argument_types import typed
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.records import Record
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.load import load
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "Ahead",
    "Base",
    "Fleet",
    "SweepReport",
    "SweepRow",
    "beginnings",
    "question_of",
    "rows_of_base",
    "rows_of_fleet",
    "whatif",
]


def question_of(scenario: Scenario) -> Question:
    """What it asks."""
    return scenario.question or Question.SCALE_UP


def beginnings(scenario: Scenario) -> Iterator[tuple[str, ...]]:
    """For each edit: it and those before it, as text. Scenarios that begin alike agree in them."""
    done: tuple[str, ...] = ()
    for edit in scenario.edits:
        done = (*done, text_of(edit.kind, getattr(edit, edit.kind)))
        yield done


class Ahead:
    """How often scenarios that are still to come will have a digest, or begin with the same edits. The base, without
    edits, is asked for each question once, before the first scenario that asks it."""

    def __init__(self, scenarios: Iterable[Scenario]) -> None:
        self._digests: Counter[tuple[str, ...]] = Counter()
        self._beginnings: Counter[tuple[str, ...]] = Counter()
        asked: set[Question] = set()
        for scenario in scenarios:
            question = question_of(scenario)
            if question not in asked:
                asked.add(question)
                self._digests[()] += 1
            self._beginnings.update(beginnings(scenario))
            try:
                digest = tuple(filter(None, (ground_of(edit, question) for edit in scenario.edits)))
            except InputError:  # of flags: said when it is this scenario's turn, and no digest comes of it
                continue
            self._digests[digest] += 1

    def begun(self, beginning: tuple[str, ...]) -> bool:
        """One scenario has come as far as that: whether a later one will."""
        return _one_less(self._beginnings, beginning)

    def decided(self, digest: tuple[str, ...]) -> bool:
        """One world of that digest has its answer: whether a later one will have the digest."""
        return _one_less(self._digests, digest)


def _one_less(ahead: Counter[tuple[str, ...]], key: tuple[str, ...]) -> bool:
    ahead[key] -= 1
    if ahead[key] > 0:
        return True
    del ahead[key]
    return False


_NOTHING = ("", "")


@dataclass(frozen=True)
class Base:
    """What scenarios edit. ``groups`` as described, with or without templates, and with or without prices where a
    ``catalogue`` has them; ``folder``: where files that edits name
    are; ``bound``: a bound in money is looked for, too, and ``mix_options`` are those of the question ``mix``;
    ``simulate`` answers the question ``simulate`` (:class:`kscale.simulation.Simulator`). ``source``: the file that the
    scenarios are from, which errors name.

    The decisions of the base itself are taken once, also for several calls of :func:`whatif`, until the cluster or the
    groups change."""

    cluster: Cluster
    groups: Sequence[NodeGroup]
    now: datetime | Moment
    options: AutoscalingOptions = field(default_factory=AutoscalingOptions)
    catalogue: Catalogue | None = None
    folder: str | os.PathLike[str] = "."
    bound: bool = False
    mix_options: MixOptions | None = None
    simulate: Simulate | None = None
    source: str = ""
    cache: list[_Baseline] = field(default_factory=list, init=False, repr=False, compare=False)
    """The last one, or empty."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "now", moment(self.now))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "cache": []}  # each process makes its own

    def world(self) -> World:
        """The base without edits."""
        if problems := self.options.problems():
            raise InputError(problems)
        snapshot = self.cluster.snapshot(dra=True)
        nodes = snapshot.columns.objects
        groups, settled = loop_groups(self.cluster, snapshot, self.groups, options=self.options, now=self.now)
        groups = priced(with_members(groups, nodes), self.catalogue, nodes)
        return World(Place(self.cluster), tuple(groups), self.options, settled, self.now, catalogue=self.catalogue)


@dataclass
class _Baseline:
    """The base at one state of its cluster and groups, and what was decided of it: ``rows`` by question; ``answers``:
    what decisions of the unedited base found out; ``models``: of groups, made when a scenario takes a group's last
    node."""

    snapshot: Snapshot
    objects: list[KubeObject]
    groups: list[NodeGroup]
    world: World
    rows: dict[Question, tuple[ScenarioRow, Decided]] = field(default_factory=dict)
    answers: dict[Any, Any] = field(default_factory=dict)
    models: list[dict[str, NodeTemplate]] = field(default_factory=list)

    def is_of(self, snapshot: Snapshot, objects: list[KubeObject], groups: list[NodeGroup]) -> bool:
        return (
            snapshot is self.snapshot
            and groups == self.groups
            and len(objects) == len(self.objects)
            and all(map(operator.is_, objects, self.objects))
        )


def _baseline_of(base: Base) -> _Baseline:
    """Return what is known of the base as it is now."""
    snapshot, groups = base.cluster.snapshot(dra=True), list(base.groups)
    objects = [item for items in base.cluster.objects.values() for item in items.values()]
    for cached in base.cache:
        if cached.is_of(snapshot, objects, groups):
            return cached
    baseline = _Baseline(snapshot, objects, groups, base.world())
    base.cache[:] = [baseline]
    return baseline


@typed
def whatif(
    base: Base,
    scenarios: Iterable[Scenario],
    *,
    conditions: Sequence[Condition] = (),
    told: Callable[[ScenarioRow], None] | None = None,
) -> WhatIfReport:
    """A row for each of ``scenarios``, edits of ``base``. ``conditions``: which of them hold is said in the row;
    ``told`` hears of every row. A scenario's world and its answer are kept only while a later one may share them.

    Raises InputError, by scenario and edit, for an edit of what is not there, and for what a decision refuses.
    """
    shared = _baseline_of(base)
    world, known = shared.world, shared.rows
    answers = Answers(
        bound=base.bound, mix_options=base.mix_options, simulate=base.simulate, cached={world.digest: shared.answers}
    )
    models = shared.models
    baselines: dict[Question, ScenarioRow] = {}
    after: dict[tuple[str, ...], World] = {}
    scenarios = list(scenarios)
    ahead = Ahead(scenarios)

    def row(name: str, of: World, question: Question) -> tuple[ScenarioRow, Decided]:
        decided, cost, bound = answers.of(of, question)
        if not ahead.decided(of.digest):
            answers.forget(of.digest)
        found = ScenarioRow(
            name=name,
            question=str(question),
            nodes=decided.nodes,
            cost=cost,
            bound=bound,
            pending=decided.pending,
            homeless=decided.homeless,
            groups={name: count for name, count in decided.change.items() if count},
            notes=[] if question is Question.REBUILD else list(of.notes),
            pending_seconds=None if decided.simulated is None else decided.simulated.pending_seconds,
        )
        return found, decided

    def steps(scenario: Scenario, question: Question) -> World:
        """The world after all edits; after edits of nodes and pods it is shared by scenarios that begin alike."""
        now = world
        for number, (edit, done) in enumerate(zip(scenario.edits, beginnings(scenario), strict=True)):
            again = ahead.begun(done)
            if done in after:
                now = after[done] if again else after.pop(done)
            else:
                try:
                    made = edited(now, edit, Path(base.folder), question)
                except InputError as error:
                    place = f"edits[{number}].{edit.kind}"
                    raise InputError(Problem(str(error), base.source, f"scenario {scenario.name}", place)) from None
                if edit.lose is not None:
                    made = _modelled(made, world, models)
                if again and edit.kind in ("pods", "lose", "requests"):
                    after[done] = made
                now = made
        return now

    def answered(scenario: Scenario) -> ScenarioRow:
        question = question_of(scenario)
        if question not in known:
            known[question] = row(BASELINE, world, question)
        first, before = known[question]
        baselines.setdefault(question, first)
        there = steps(scenario, question)
        try:
            found, decided = row(scenario.name, there, question)
        except (InputError, AutoscalerError) as error:
            raise InputError(Problem(str(error), base.source, f"scenario {scenario.name}")) from None
        unknown = [condition.text for condition in conditions if not condition.known(found, first)]
        if unknown:
            text = f"{unknown[0]} cannot be told: its value is not known"
            raise InputError(Problem(text, base.source, f"scenario {scenario.name}"))
        crossed = [condition.text for condition in conditions if condition.holds(found, first)]
        return msgspec.structs.replace(found, differs=_first_difference(before, decided), crossed=crossed)

    rows = []
    for scenario in scenarios:
        found = answered(scenario)
        rows.append(found)
        if told is not None:
            told(found)
    return WhatIfReport(baselines=list(baselines.values()), scenarios=rows, shared=answers.shared)


def _modelled(made: World, world: World, models: list[dict[str, NodeTemplate]]) -> World:
    """A group that has lost its last node is modelled on those that the base has."""
    nodes = made.place.snapshot.columns.objects
    bare = [
        group.id
        for group in made.groups
        if group.id not in made.templates
        and group.template is None
        and group.from_node is None
        and not members_of(group, nodes)
    ]
    if not bare:
        return made
    if not models:
        place = world.place
        found = with_templates(place.cluster, place.snapshot, world.groups, options=world.options)
        models.append({group.id: group.template for group in found if group.template is not None})
    more = {name: models[0][name] for name in bare if name in models[0]}
    return replace(made, templates={**made.templates, **more})


def _first_difference(before: Decided, now: Decided) -> str:
    """The first decision that is another one, in words."""
    for subject in dict.fromkeys((*now.facts, *before.facts)):
        (mine, said), (old, before_said) = now.facts.get(subject, _NOTHING), before.facts.get(subject, _NOTHING)
        if mine != old:
            return f"{said or f'nothing of {subject}'} (baseline: {before_said or 'nothing'})"
    return ""


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
