"""Scenarios one after the other, beside their baseline. kscale's own, around decisions that are upstream's."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from kscale.ca.errors import AutoscalerError
from kscale.ca.options import AutoscalingOptions
from kscale.capacity.catalogue import Catalogue
from kscale.capacity.groups import members_of
from kscale.capacity.loop_groups import loop_groups, with_members
from kscale.capacity.mix import MixOptions
from kscale.capacity.prices import priced
from kscale.capacity.templates import with_templates
from kscale.capacity.whatif.conditions import Condition
from kscale.capacity.whatif.edits import edited
from kscale.capacity.whatif.grammar import Question, Scenario
from kscale.capacity.whatif.questions import Answers, Decided
from kscale.capacity.whatif.records import BASELINE, ScenarioRow, WhatIfReport
from kscale.capacity.whatif.sharing import Ahead, beginnings, question_of
from kscale.capacity.whatif.simulated import Simulate
from kscale.capacity.whatif.world import Place, World
from kscale.effects import Moment, moment
from kscale.errors import InputError, Problem
from kscale.objects.meta import KubeObject
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["Base", "whatif"]

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
