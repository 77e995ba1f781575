"""From objects to the columns that a batch of reconciles takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kscale._native import _names, _reconcile
from kscale.effects import ApiError, GetMetric
from kscale.errors import InputError
from kscale.hpa.batch_metrics import MetricTargets, ask_metrics
from kscale.hpa.batch_pods import BatchPods, SelectedPods
from kscale.hpa.batch_questions import questions, rows_that_ask, rows_without_answer
from kscale.hpa.batch_samples import JoinedUsage, source_of_query
from kscale.hpa.batch_scales import ScaleRows, Scales, read_scales
from kscale.hpa.batch_selectors import BatchSelectors
from kscale.hpa.batch_specs import SpecColumns, TargetReferences, conditions_of, read_specs, target_references
from kscale.hpa.behavior import Rules
from kscale.hpa.columns import MetricRows, TargetColumns
from kscale.hpa.given import given_hpa
from kscale.hpa.kept_rows import KeptRows
from kscale.hpa.memory import Histories, KeptStates, Memory, StatesOf
from kscale.hpa.options import HPAOptions
from kscale.hpa.pod_groups import PodColumns, SampleColumns
from kscale.hpa.queries import MetricLists
from kscale.hpa.selector_store import SelectorStore
from kscale.hpa.state import ControllerState, HPAState
from kscale.objects.autoscaling import HorizontalPodAutoscaler, Scale
from kscale.objects.core import Pod
from kscale.objects.rest_mapping import RESTMapper

__all__ = ["Chosen", "Encoded", "Observed", "choose", "keys_of"]

_METRICS_BRANCH: Final = 4


@dataclass(frozen=True, slots=True)
class Observed:
    """What is decided from: see :func:`kscale.hpa.decide.decide`.

    ``given``: HPAs as they came, ``hpas``: read, ``keys``: ``namespace/name`` of each; ``kept``: which rows they were
    in the round before, if there was one.
    """

    given: list[Any]
    hpas: Sequence[HorizontalPodAutoscaler]
    keys: Sequence[str]
    scales: Scales
    pods: BatchPods
    metrics: Callable[[GetMetric], Any]
    selectors: SelectorStore | None
    mapper: RESTMapper
    kept: KeptRows | None = None

    @classmethod
    def of(
        cls,
        hpas: Sequence[Any],
        scales: Scales,
        pods: BatchPods,
        metrics: Callable[[GetMetric], Any],
        selectors: SelectorStore | None,
        mapper: RESTMapper,
        before: Observed | None = None,
    ) -> Observed:
        """HPAs of any shape; one that is the very same object as in the round ``before`` is not read again.

        Raises :class:`~kscale.errors.InputError` for one that cannot be read or comes twice.
        """
        given = list(hpas)
        if before is None:
            known: Sequence[HorizontalPodAutoscaler] = list(map(_read_hpa, given))
            return cls(given, known, keys_of(known), scales, pods, metrics, selectors, mapper)
        kept = KeptRows.of(given, before.given)
        fresh = [_read_hpa(given[row]) for row in kept.fresh.tolist()]
        known = kept.list(before.hpas, fresh)
        keys = before.keys
        named = list(map("/".join, map(_name, fresh)))
        if not kept.in_place or named != [keys[row] for row in kept.fresh.tolist()]:
            now = keys_of(known)
            keys = keys if now == keys else now
        return cls(given, known, keys, scales, pods, metrics, selectors, mapper, kept)


@dataclass(frozen=True, slots=True)
class Encoded:
    """Columns of one moment. Those who ask for texts find the rest here.

    - ``scales``: the scale of every target, or why there is none;
    - ``wanted``: (namespace, selector) of every selection, ``group`` int64[n]: which one is an HPA's, -1: none;
    - ``registered``: the selector of every HPA that has one, by (namespace, name), this batch's included;
    - ``problems``: what of an HPA is malformed so that it cannot be decided, by its row;
    - ``rest``: what is not kept as columns of the states afterwards; ``joined``: usage by pod, by what was asked.
    """

    targets: TargetColumns
    rows: MetricRows
    pods: PodColumns
    samples: SampleColumns
    requests: NDArray[np.int64]
    values: NDArray[np.int64]
    up: Rules
    down: Rules
    scales: Sequence[Scale | ApiError] = ()
    wanted: Sequence[tuple[str, str]] = ()
    group: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    selected: SelectedPods | None = None
    registered: Mapping[tuple[str, str], str | None] = field(default_factory=dict)
    problems: Mapping[int, Exception] = field(default_factory=dict)
    rest: Sequence[HPAState] = ()
    joined: Mapping[tuple[object, ...], JoinedUsage] = field(default_factory=dict)
    made: list[SelectorStore] = field(default_factory=list)

    def store(self) -> SelectorStore:
        """All selectors, for step machines: each puts there what is there already."""
        if not self.made:
            out = SelectorStore()
            for (namespace, name), selector in self.registered.items():
                out.put_if_absent(namespace, name, selector)
            self.made.append(out)
        return self.made[0]

    def pods_of(self, row: int, pods: BatchPods) -> Sequence[Pod]:
        """The pods of an HPA's selection."""
        group = int(self.group[row])
        if group < 0 or self.selected is None:
            return ()
        ends = self.selected.ends
        return [pods.pod(number) for number in self.selected.rows[ends[group] : ends[group + 1]].tolist()]

    def answer(self, row: int, asked: GetMetric, metrics: Callable[[GetMetric], Any]) -> Any:
        """What a query of an HPA was answered."""
        if isinstance(metrics, MetricLists) and (refused := metrics.refusal(asked)) is not None:
            return refused
        source = source_of_query(asked)
        joined = None if source is None else self.joined.get(source)
        if joined is None or self.selected is None:
            return metrics(asked)
        return joined.answer(self.selected, int(self.group[row]), asked)


def keys_of(hpas: Sequence[HorizontalPodAutoscaler], before: Observed | None = None) -> Sequence[str]:
    """``namespace/name`` of each; ``before``: of those that are the very same objects they are known. Raises
    :class:`~kscale.errors.InputError` for one that comes twice."""
    if before is not None and len(before.given) == len(hpas):
        others = _names.other_objects([*hpas], before.given).tolist()
        if all(before.keys[row] == "/".join(_name(hpas[row])) for row in others):
            return before.keys
    keys = list(map("/".join, map(_name, hpas)))
    if len(set(keys)) != len(keys):
        again = [key for key, count in Counter(keys).items() if count > 1]
        raise InputError(f"HorizontalPodAutoscaler {again[0]} comes more than once")
    return keys


def _read_hpa(given: Any) -> HorizontalPodAutoscaler:
    return given if type(given) is HorizontalPodAutoscaler else given_hpa(given)


_name = attrgetter("metadata.namespace", "metadata.name")
_spec = attrgetter("spec")
_conditions = attrgetter("status.conditions")


@dataclass(frozen=True, slots=True)
class Chosen:
    """All but the metrics: whose are needed is known now.

    ``rest``: what is not kept as columns of the states before; ``at``: those whose metrics are looked at.
    """

    observed: Observed
    options: HPAOptions
    specs: SpecColumns
    references: TargetReferences
    scales: ScaleRows
    targets: TargetColumns
    memory: Memory
    rest: Sequence[HPAState]
    selected: SelectedPods
    at: MetricTargets
    selectors: BatchSelectors

    @property
    def group(self) -> NDArray[np.int64]:
        """Which selection is an HPA's; -1: none."""
        return self.selectors.group

    def selector(self, row: int) -> str:
        """The selector of an HPA that has a selection."""
        return self.selectors.texts[row]

    def questions(self) -> list[GetMetric]:
        """What the metrics APIs have to be asked; see :func:`~kscale.hpa.batch_questions.questions`."""
        at, metrics, known = self.at, self.specs.metrics[self.at.row], self.selectors.asked
        if (
            known is None
            or known[0] is not self.specs.metric_lists
            or not np.array_equal(known[1], at.group)
            or not np.array_equal(known[2], metrics)
        ):
            asked = questions(at, self.specs, self.selectors.wanted)
            known = self.selectors.asked = self.specs.metric_lists, at.group, metrics, asked
        return known[3]

    def rows_that_ask(self, some: Collection[GetMetric]) -> Iterator[int]:
        """The rows of HPAs that need the answer to one of some questions."""
        return rows_that_ask(self.at, self.specs, self.selectors.wanted, some)

    def rows_without_answer(self, answered: Collection[GetMetric]) -> Iterator[int]:
        """Return the rows of HPAs that need the answer to a question that was not asked."""
        return rows_without_answer(self.at, self.specs, self.selectors.wanted, answered)

    def encoded(
        self, metrics: Callable[[GetMetric], Any], before: Encoded | None = None, left_out: Collection[int] = ()
    ) -> Encoded:
        """The columns, with what ``metrics`` answers; ``before``: those of the last round; ``left_out``: rows that are
        not decided, of which nothing changes."""
        chosen, rows, at = self.selectors, self.at.row, self.at
        pods, joined = self.observed.pods, {} if before is None else before.joined
        asked = ask_metrics(at, self.specs, chosen.wanted, pods, self.selected, metrics, self.options, joined)
        begin, end = np.zeros(len(self.rest), np.int64), np.zeros(len(self.rest), np.int64)
        begin[rows], end[rows] = asked.begin, asked.end
        problems = {**self.scales.problems, **asked.problems}
        scale_error = self.targets.scale_error.copy()
        undecided = {*problems, *left_out}
        for row in undecided:
            scale_error[row] = 2  # it is not decided, and nothing of it changes
        behavior = self.specs.behavior
        return Encoded(
            targets=replace(self.targets, scale_error=scale_error, metrics_begin=begin, metrics_end=end),
            rows=asked.rows,
            pods=self.selected.columns,
            samples=asked.samples,
            requests=asked.requests,
            values=asked.values,
            up=_rules_of(self.specs.up, behavior),
            down=_rules_of(self.specs.down, behavior),
            scales=self.scales.scales,
            wanted=chosen.wanted,
            group=chosen.group,
            selected=self.selected,
            registered=chosen.registered,
            problems=problems,
            rest=chosen.next_states(self.observed.hpas, self.rest, undecided),
            joined=asked.joined,
        )


def choose(observed: Observed, state: ControllerState, options: HPAOptions, before: Chosen | None = None) -> Chosen:
    """Reads specs, scales and states, and finds whose metrics are needed, of which pods. ``before``: the last round, of
    the same options and mapper, of which whatever still holds is taken."""
    hpas, kept, n = observed.hpas, observed.kept, len(observed.hpas)
    if before is None or kept is None:
        specs = read_specs(hpas, options)
        references = target_references(hpas, observed.mapper)
        scales = read_scales(observed.scales, hpas, observed.keys, references)
        conditions = conditions_of(hpas)
    else:
        last = before.observed.hpas
        kept_specs, kept_conditions = (_parts_kept(kept, part, hpas, last) for part in (_spec, _conditions))
        specs = read_specs(hpas, options, before.specs, kept_specs)
        references = target_references(hpas, observed.mapper, before.references, kept_specs)
        scales = read_scales(observed.scales, hpas, observed.keys, references, before.scales)
        conditions = conditions_of(hpas, before.memory.conditions, kept_conditions)
    histories, rest = _remembered(observed.keys, state)
    memory = Memory(histories, conditions)
    nothing = np.zeros(n, np.int64)
    error = references.error
    targets = TargetColumns(
        scale_error=np.where(error != 0, error, ~scales.there).astype(np.uint8),
        current=scales.current,
        minimum=specs.minimum,
        maximum=specs.maximum,
        object_metric=specs.object_metric[specs.metrics],
        behavior=specs.has_behavior[specs.behavior],
        selector_error=np.zeros(n, np.uint8),
        refused=np.zeros(n, np.uint8),
        fresh=histories.fresh,
        metrics_begin=nothing,
        metrics_end=nothing,
    )
    branches = _reconcile.branches(targets, memory.conditions.status, options.enabled("HPAScaleToZero"), options.legacy)
    metrics = np.flatnonzero(branches == _METRICS_BRANCH)
    chosen = None if before is None else before.selectors
    if chosen is None or not chosen.still(observed.keys, observed.selectors, rest, scales.texts, metrics):
        chosen = BatchSelectors(hpas, observed.keys, observed.selectors, rest, scales.texts, metrics, options)
    selected = observed.pods.select(chosen.wanted, None if before is None else before.selected)
    targets = replace(targets, selector_error=chosen.errors(selected))
    rows = metrics[targets.selector_error[metrics] == 0]
    at = MetricTargets(rows, chosen.group[rows], scales.current[rows], scales.status[rows])
    return Chosen(observed, options, specs, references, scales, targets, memory, rest, selected, at, chosen)


def _parts_kept(
    kept: KeptRows,
    part: Callable[[HorizontalPodAutoscaler], Any],
    now: Sequence[HorizontalPodAutoscaler],
    before: Sequence[HorizontalPodAutoscaler],
) -> KeptRows:
    """Which rows have the very same object as a part: of an HPA with a new status the spec mostly is the old one."""
    return kept if kept.all else KeptRows.of(list(map(part, now)), list(map(part, before)))


def _rules_of(rules: Rules, which: NDArray[np.int32]) -> Rules:
    return replace(
        rules,
        select=rules.select[which],
        window=rules.window[which],
        begin=rules.begin[which],
        end=rules.end[which],
    )


def _remembered(keys: Sequence[str], state: ControllerState) -> tuple[Histories, Sequence[HPAState]]:
    """(histories, the rest of the states) of HPAs in their order."""
    if isinstance(state.hpas, StatesOf | KeptStates):
        found = state.hpas.of(keys)
        if found is not None:
            return found
    fresh = HPAState()
    if not state.hpas:
        return Histories.of([fresh]).take(np.zeros(len(keys), np.int64)), [fresh] * len(keys)
    states = [state.hpas.get(key) or fresh for key in keys]
    return Histories.of(states), states
