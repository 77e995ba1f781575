"""``kscale.whatif``: decides scenarios and compares each with its baseline, also for sweeps in worker processes.

Not in upstream.
"""

from __future__ import annotations

import operator
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from kscale.ca.errors import AutoscalerError
from kscale.ca.options import AutoscalingOptions
from kscale.capacity.catalogue import Catalogue
from kscale.capacity.cost import set_prices
from kscale.capacity.group_templates import loop_groups, with_members, with_templates
from kscale.capacity.groups import read_groups, recognise_groups
from kscale.capacity.groups.recognition import has_members
from kscale.capacity.karpenter.plan import PoolOffers
from kscale.capacity.mix import MixOptions
from kscale.capacity.records import UNLIMITED
from kscale.capacity.whatif.edits import apply_edit, get_digest_text, text_of
from kscale.capacity.whatif.questions import Decision, DecisionCache, Simulate
from kscale.capacity.whatif.scenarios import (
    BASELINE,
    CLUSTER_AUTOSCALER,
    KARPENTER,
    Condition,
    Edit,
    Question,
    Scenario,
    ScenarioRow,
    WhatIfReport,
    explain_change,
)
from kscale.capacity.whatif.world import SharedCluster, World
from kscale.effects import Moment, moment
from kscale.errors import InputError, Problem
from kscale.objects.api.meta import KubeObject
from kscale.objects.argument_types import typed
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.records import Record
from kscale.snapshot.caches import collector_relaxed
from kscale.snapshot.cluster import Cluster, load
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "Base",
    "Fleet",
    "LaterScenarios",
    "SweepReport",
    "SweepRow",
    "beginnings",
    "question_of",
    "rows_of_base",
    "rows_of_fleet",
    "whatif",
]


def question_of(scenario: Scenario) -> Question:
    """Return the scenario's question (default: scale-up)."""
    return scenario.question or Question.SCALE_UP


def beginnings(scenario: Scenario) -> Iterator[tuple[str, ...]]:
    """Yield, for each edit of a scenario, the texts of the edits up to and including it.

    Scenarios with the same first edits yield equal tuples, so they can share worlds.
    """
    texts: tuple[str, ...] = ()
    for edit in scenario.edits:
        texts = (*texts, text_of(edit.kind, getattr(edit, edit.kind)))
        yield texts


class LaterScenarios:
    """Counters of later scenarios that will have a digest, or that begin with the same edits.

    The base, without edits, is decided once per question, before the first scenario with that question.
    """

    def __init__(self, scenarios: Iterable[Scenario]) -> None:
        self._digests: Counter[tuple[str, ...]] = Counter()
        self._beginnings: Counter[tuple[str, ...]] = Counter()
        seen: set[Question] = set()
        for scenario in scenarios:
            question = question_of(scenario)
            if question not in seen:
                seen.add(question)
                self._digests[()] += 1
            self._beginnings.update(beginnings(scenario))
            try:
                digest = tuple(filter(None, (get_digest_text(edit, question) for edit in scenario.edits)))
            except InputError:  # invalid flags: reported when this scenario is decided
                continue
            self._digests[digest] += 1

    def has_later_prefix(self, beginning: tuple[str, ...]) -> bool:
        """Record that a scenario has applied these first edits; return whether a later scenario begins with them."""
        return _decrement(self._beginnings, beginning)

    def has_later_world(self, digest: tuple[str, ...]) -> bool:
        """Record that a world of this digest was decided; return whether a later world has the same digest."""
        return _decrement(self._digests, digest)


def _decrement(ahead: Counter[tuple[str, ...]], key: tuple[str, ...]) -> bool:
    """Subtract one from the count of ``key``, and remove it at 0; return whether it is still more than 0."""
    ahead[key] -= 1
    if ahead[key] > 0:
        return True
    del ahead[key]
    return False


_NOTHING = ("", "")


@dataclass(frozen=True)
class Base:
    """The cluster, groups and options that scenarios edit.

    Parameters
    ----------
    groups : list of NodeGroup
        Node groups, with or without templates, and with or without prices if ``catalogue`` has them.
    folder : str
        Folder at which relative file names in edits start.
    bound : bool
        Whether to compute a lower bound of the cost, too.
    mix_options : MixOptions
        Options of the questions ``mix`` and ``rebuild``.
    simulate : callable
        Simulator of the question ``simulate`` (:class:`kscale.simulation.Simulator`).
    source : str
        File of the scenarios, which errors name.
    offers : PoolOffers, optional
        NodePools of which ``groups`` are the offerings: the question ``scale-up`` is decided by Karpenter's rule.

    Notes
    -----
    Decisions of the base itself are made once, also for several calls of :func:`whatif`, until the cluster or the
    groups change.
    """

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
    offers: PoolOffers | None = None
    cache: list[_Baseline] = field(default_factory=list, init=False, repr=False, compare=False)
    """The last one, or empty."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "now", moment(self.now))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "cache": []}  # the cache is per process

    def world(self) -> World:
        """Return the base as a world without edits.

        Raises InputError for invalid options, and for a group without a node to model new ones on.
        """
        if problems := self.options.problems():
            raise InputError(problems)
        snapshot = self.cluster.snapshot(dra=True)
        nodes = snapshot.columns.objects
        groups, templates = loop_groups(self.cluster, snapshot, self.groups, options=self.options, now=self.now)
        groups = set_prices(with_members(groups, nodes), self.catalogue, nodes)
        return World(
            SharedCluster(self.cluster),
            tuple(groups),
            self.options,
            templates,
            self.now,
            catalogue=self.catalogue,
            offers=self.offers,
        )


@dataclass
class _Baseline:
    """The base at one state of its cluster and groups, with the decisions made for it.

    ``rows`` by question; ``answers``: cached results of the unedited base; ``models``: templates by group, built when a
    scenario removes a group's last node.
    """

    snapshot: Snapshot
    objects: list[KubeObject]
    groups: list[NodeGroup]
    world: World
    rows: dict[Question, tuple[ScenarioRow, Decision]] = field(default_factory=dict)
    answers: dict[Any, Any] = field(default_factory=dict)
    models: list[dict[str, NodeTemplate]] = field(default_factory=list)

    def is_of(self, snapshot: Snapshot, objects: list[KubeObject], groups: list[NodeGroup]) -> bool:
        """Check whether the baseline was computed from the same snapshot and objects, and equal groups."""
        return (
            snapshot is self.snapshot
            and groups == self.groups
            and len(objects) == len(self.objects)
            and all(map(operator.is_, objects, self.objects))
        )


def _baseline_of(base: Base) -> _Baseline:
    """Return the baseline for the current cluster and groups of ``base``.

    It is cached in ``base`` until the cluster or the groups change. Raises InputError as :meth:`Base.world` does.
    """
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
    on_row: Callable[[ScenarioRow], None] | None = None,
) -> WhatIfReport:
    """Decide scenarios and compare each with its baseline.

    Parameters
    ----------
    base : Base
        The cluster, groups and options that the scenarios edit.
    scenarios : iterable of Scenario
        Scenarios, decided in order.
    conditions : sequence of Condition
        Conditions to check; those that hold are listed in the row's ``crossed``.
    on_row : callable, optional
        Called with every row as soon as it is complete.

    Returns
    -------
    WhatIfReport
        One baseline per question, and one row per scenario.

    Raises
    ------
    InputError
        If an edit names something that does not exist, if a decision fails, or if a condition's value is not known. The
        problem names the scenario and the edit.
    AutoscalerError
        If the base itself cannot be decided, for example because a node has no CSINode.

    Notes
    -----
    A scenario's world and result are cached only while a later scenario may share them.
    """
    scenarios = list(scenarios)
    rows = []
    with collector_relaxed():  # hardly anything that a scenario leaves is part of a cycle
        decider = _Decider(base, scenarios, conditions)
        for scenario in scenarios:
            result_row = decider.decide(scenario)[0]  # the decision is released before the next scenario
            rows.append(result_row)
            if on_row is not None:
                on_row(result_row)
    report = WhatIfReport(
        baselines=list(decider.baselines.values()),
        scenarios=rows,
        shared=decider.answers.shared,
        provisioner=CLUSTER_AUTOSCALER if base.offers is None else KARPENTER,
    )
    own_base = replace(base)  # its cache is empty: the report keeps no decisions alive
    return report.with_explanations(partial(_explain_edits, own_base, {item.name: item for item in scenarios}))


class _Decider:
    """Decides the scenarios of one call, in order. ``baselines``: those of the questions that were asked."""

    def __init__(self, base: Base, scenarios: Sequence[Scenario], conditions: Sequence[Condition] = ()) -> None:
        self._base = base
        self._conditions = conditions
        shared = _baseline_of(base)
        self._world, self._rows_by_question, self._models = shared.world, shared.rows, shared.models
        self.answers = DecisionCache(
            bound=base.bound,
            mix_options=base.mix_options,
            simulate=base.simulate,
            cached={shared.world.digest: shared.answers},
        )
        self.baselines: dict[Question, ScenarioRow] = {}
        self._worlds: dict[tuple[str, ...], World] = {}
        self._ahead = LaterScenarios(scenarios)
        lost = dict.fromkeys(
            name
            for scenario in scenarios
            if question_of(scenario) is Question.SCALE_UP
            for edit in scenario.edits[:1]
            if edit.lose is not None
            for name in edit.lose.node
        )
        if len(lost) > 1:
            self._world.place.expect_losses(lost)

    def decide(self, scenario: Scenario) -> tuple[ScenarioRow, Decision]:
        """Decide a scenario and compare it with its baseline; return (row of the report, decision).

        Raises InputError for an invalid edit or one without effect, for a world that cannot be decided, and for a
        condition on an unknown value; AutoscalerError if the baseline cannot be decided.
        """
        question = question_of(scenario)
        if question not in self._rows_by_question:
            self._rows_by_question[question] = self._decide_world(BASELINE, self._world, question)
        baseline, before = self._rows_by_question[question]
        self.baselines.setdefault(question, baseline)
        edited = self._apply_edits(scenario, question)
        source, name = self._base.source, f"scenario {scenario.name}"
        try:
            row, decided = self._decide_world(scenario.name, edited, question)
        except (InputError, AutoscalerError) as error:
            raise InputError(Problem(str(error), source, name)) from None
        unknown = [condition.text for condition in self._conditions if not condition.is_known(row, baseline)]
        if unknown:
            raise InputError(Problem(f"{unknown[0]} cannot be checked: its value is not known", source, name))
        crossed = [condition.text for condition in self._conditions if condition.is_met(row, baseline)]
        return msgspec.structs.replace(row, differs=_first_difference(before, decided), crossed=crossed), decided

    def _decide_world(self, name: str, world: World, question: Question) -> tuple[ScenarioRow, Decision]:
        """Decide a question for a world; return (row of the report, decision). ``name``: of the scenario.

        Drops cached results that no later scenario needs.
        """
        decided, cost, bound = self.answers.decide(world, question)
        if not self._ahead.has_later_world(world.digest):
            self.answers.forget(world.digest)
        row = ScenarioRow(
            name=name,
            question=str(question),
            nodes=decided.nodes,
            cost=cost,
            bound=bound,
            pending=decided.pending,
            homeless=decided.homeless,
            groups={name: count for name, count in decided.change.items() if count},
            notes=[] if question is Question.REBUILD else list(world.notes),
            pending_seconds=None if decided.simulated is None else decided.simulated.pending_seconds,
        )
        return row, decided

    def _apply_edits(self, scenario: Scenario, question: Question) -> World:
        """Return the world after all edits; worlds after edits of nodes and pods are shared by scenarios.

        Raises InputError, which names the scenario and the edit.
        """
        base, current = self._base, self._world
        for number, (edit, beginning) in enumerate(zip(scenario.edits, beginnings(scenario), strict=True)):
            is_shared = self._ahead.has_later_prefix(beginning)
            if beginning in self._worlds:
                current = self._worlds[beginning] if is_shared else self._worlds.pop(beginning)
            else:
                try:
                    changed = apply_edit(current, edit, Path(base.folder), question)
                except InputError as error:
                    place = f"edits[{number}].{edit.kind}"
                    raise InputError(Problem(str(error), base.source, f"scenario {scenario.name}", place)) from None
                if edit.lose is not None:
                    changed = _add_model_templates(changed, self._world, self._models)
                if is_shared and edit.kind in ("pods", "lose", "requests"):
                    self._worlds[beginning] = changed
                current = changed
        return current


_SHOWN = 4
"""Texts on what a decision leaves as it is."""


def _explain_edits(base: Base, scenarios: Mapping[str, Scenario], name: str, question: str) -> list[str]:
    """Return a text on each edit of a scenario and what it changes, and on pods or nodes that stay as they are.

    Edits are applied one after the other. A further text names the first difference from the baseline, if there is one.
    Of the texts on what stays, at most four are shown, and the others counted.
    ``name``: of the scenario, or of the baseline.
    """
    scenario = scenarios.get(name, Scenario(name=name, question=Question(question)))  # the baseline has no edits
    parts = [
        Scenario(name=name, edits=scenario.edits[:count], question=scenario.question)
        for count in range(len(scenario.edits) + 1)
    ]
    decider = _Decider(base, parts)
    row, decided = decider.decide(parts[0])
    texts = []
    for edit, part in zip(scenario.edits, parts[1:], strict=True):
        label = f"{edit.kind} {_format_edit(edit)}"
        try:
            following, decided = decider.decide(part)
        except InputError as error:  # only the edits together can be decided
            texts.append(f"{label}: cannot be decided without the next edit ({error.problems[0].message})")
            continue
        change = explain_change(row, following)
        is_only_edit = len(scenario.edits) == 1  # the result says what it changes
        texts.append(label if change and is_only_edit else f"{label}: {change or 'changes nothing'}")
        row = following
    if row.differs:
        texts.append(f"first difference: {row.differs}")
    remaining = list(decided.remaining())
    hidden = len(remaining) - _SHOWN
    return [
        *texts,
        *remaining[:_SHOWN],
        *([f"and for {hidden:,} more {'reason' if hidden == 1 else 'reasons'}"] if hidden > 0 else []),
    ]


_EDIT_LENGTH = 100


def _format_edit(edit: Edit) -> str:
    """Format the changed values of an edit as JSON, without fields that are not set, and cut after 100 characters."""
    values = msgspec.to_builtins(getattr(edit, edit.kind))
    if isinstance(values, dict) and edit.flags is None:  # each flag is a change, whatever its value
        values = {name: value for name, value in values.items() if value not in (None, [], {}, False)}
    text = msgspec.json.encode(values).decode()
    return text if len(text) <= _EDIT_LENGTH else f"{text[:_EDIT_LENGTH]}..."


def _add_model_templates(made: World, world: World, models: list[dict[str, NodeTemplate]]) -> World:
    """Return the world ``made`` with a template for each group that lost its last node, modelled on nodes of ``world``.

    ``models``: cache of the templates by group, which is filled if it is empty.
    """
    nodes, members = made.place.snapshot.columns.objects, made.existing.members
    without_nodes = [
        group.id
        for group in made.groups
        if not members.get(group.id)
        and group.id not in made.templates
        and group.template is None
        and group.from_node is None
        and not has_members(group, nodes)
    ]
    if not without_nodes:
        return made
    if not models:
        place = world.place
        described = with_templates(place.cluster, place.snapshot, world.groups, options=world.options)
        models.append({group.id: group.template for group in described if group.template is not None})
    templates = {name: models[0][name] for name in without_nodes if name in models[0]}
    return replace(made, templates={**made.templates, **templates})


def _first_difference(baseline: Decision, now: Decision) -> str:
    """Return a text on the first fact in ``now`` that differs from the baseline's; empty if none differs."""
    for subject in chain(now.facts, baseline.facts):
        (value, text), (old, before_text) = now.facts.get(subject, _NOTHING), baseline.facts.get(subject, _NOTHING)
        if value != old:
            return f"{text or f'nothing of {subject}'} (baseline: {before_text or 'nothing'})"
    return ""


class SweepRow(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A scenario of a cluster.

    Attributes
    ----------
    cluster : str
        Name of the cluster.
    scenario : str
        Name of the scenario.
    row : ScenarioRow or None
        Result of the scenario. None: there is an ``error``.
    baseline : ScenarioRow or None
        Result without the scenario's edits, for the same question. None: there is an ``error``.
    error : str
        Why there is no result. Empty: there is one.
    """

    cluster: str
    scenario: str
    row: ScenarioRow | None = None
    baseline: ScenarioRow | None = None
    error: str = ""


class SweepReport(Record, frozen=True):
    """Results of the same scenarios for several clusters.

    Attributes
    ----------
    rows : list of SweepRow
        Results in the order of the clusters, then of the scenarios.
    unfinished : int
        Number of scenarios that were not decided before the sweep stopped.
    """

    KIND: ClassVar[str] = "SweepReport"
    ROWS: ClassVar[str] = "rows"
    rows: list[SweepRow]
    unfinished: int

    def summary(self) -> str:
        """Return a line: how many scenarios of how many clusters were decided, failed, or were not reached."""
        failed = sum(bool(row.error) for row in self.rows)
        clusters = len({row.cluster for row in self.rows})
        return (
            f"{len(self.rows) - failed:,} scenarios of {clusters:,} clusters decided, {failed:,} failed, "
            f"{self.unfinished:,} not decided"
        )


@dataclass(frozen=True)
class Fleet:
    """Options for reading clusters from dumps, and the inputs for each of them.

    ``groups_file`` and ``catalogue`` are the command line's ``-g`` and ``--catalogue``; without a groups file, groups
    are recognised by the labels of nodes. ``simulate`` is that of a :class:`~kscale.capacity.whatif.running.Base`.
    """

    groups_file: str | None
    catalogue: Catalogue | None
    now: datetime | Moment
    options: AutoscalingOptions
    simulate: Simulate | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "now", moment(self.now))

    def base(self, dump: str) -> Base:
        """Read the dump at the path ``dump`` as the base of scenarios. Recognised groups have no maximum size.

        Raises InputError if the dump or the groups file cannot be read.
        """
        cluster: Cluster = load(dump)
        nodes = cluster.snapshot(dra=True).columns
        if self.groups_file is not None:
            groups = read_groups(self.groups_file, node_names=nodes.index, catalogue=self.catalogue)
        else:
            recognised = recognise_groups(nodes.objects).groups
            groups = [msgspec.structs.replace(item.group, max_size=UNLIMITED, from_node=None) for item in recognised]
        return Base(cluster, groups, self.now, self.options, self.catalogue, simulate=self.simulate)


def rows_of_base(base: Base, part: list[Scenario]) -> Iterator[SweepRow]:
    """Decide the scenarios of one cluster (``part``), and yield a row for each. The rows' ``cluster`` is empty.

    Raises InputError and AutoscalerError as :func:`whatif` does.
    """
    report = whatif(base, part)
    baselines = {row.question: row for row in report.baselines}
    for row in report.scenarios:
        yield SweepRow(cluster="", scenario=row.name, row=row, baseline=baselines[row.question])


def rows_of_fleet(fleet: Fleet, part: list[tuple[str, list[Scenario]]]) -> Iterator[list[SweepRow]]:
    """Decide scenarios of several clusters; yield, for each (path of the dump, its scenarios), the list of their rows.

    Raises InputError if a dump cannot be read or a scenario cannot be decided, AutoscalerError if a dump itself cannot
    be decided.
    """
    for dump, scenarios in part:
        yield [msgspec.structs.replace(row, cluster=dump) for row in rows_of_base(fleet.base(dump), scenarios)]
