"""What ``kscale whatif`` answers with."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from kscale.records import Record

__all__ = ["BASELINE", "ScenarioRow", "WhatIfReport"]

BASELINE = "baseline"


class ScenarioRow(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """One scenario. ``nodes`` there are after the decision, and what an hour of them costs (null: some price is not
    known); ``bound``: no decision on these groups that places the same pods costs less (null: not looked for, or not
    known). Of the question simulate they are those at the end, and an hour on average; ``pending_seconds`` is how long
    pods waited in it, all together (null: another question).

    ``pending`` pods stay without a place; ``homeless`` are those of them that ran on a node that was lost. Of the
    question headroom ``homeless`` are the pods that the worst loss of one more node, or of one more zone, would leave
    without a place.
    ``groups``: node groups that grow, and by how many nodes (negative: they shrink). Of the question simulate that is
    the change until the end, of the question rebuild that from the nodes that run; the question headroom changes none.
    ``notes``: what the edits leave as it is although a reader may expect otherwise.
    ``differs``: the first decision that is not that of the baseline (empty: none); ``crossed``: conditions
    (``--fail-on``) that hold.
    """

    name: str
    question: str
    nodes: int
    cost: float | None
    """Of all nodes for one hour; null: some price is not known."""
    bound: float | None
    pending: int
    homeless: int
    pending_seconds: float | None = None
    groups: dict[str, int] = {}
    notes: list[str] = []
    differs: str = ""
    crossed: list[str] = []


class WhatIfReport(Record, frozen=True):
    """The baseline, and a row for each scenario in their order. A baseline of another question than a scenario's is
    made for that: ``baselines`` has one of each question. ``shared``: decisions that were taken over from another
    scenario because nothing they depend on is different."""

    KIND: ClassVar[str] = "WhatIfReport"
    baselines: list[ScenarioRow]
    scenarios: list[ScenarioRow]
    """In the order in which they were asked."""
    shared: int
