"""Inputs of a batch: read HPAs, scales, states and pods, find the HPAs that need metrics, and build the columns that
the kernels take.
"""

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
from kscale.hpa.api.admission import coerce_hpa
from kscale.hpa.batch.columns import (
    KernelState,
    LazyStates,
    MetricRows,
    StateColumns,
    StateStore,
    TargetColumns,
    UnchangedRows,
)
from kscale.hpa.batch.hpas import (
    BatchSelectors,
    ScaleColumns,
    ScaleSource,
    SpecColumns,
    TargetReferences,
    read_condition_columns,
    read_scales,
    read_specs,
    read_target_references,
)
from kscale.hpa.batch.metric_rows import (
    MetricTargets,
    build_calculator_inputs,
    find_rows_of_requests,
    find_rows_without_response,
    list_metric_requests,
)
from kscale.hpa.batch.pods import BatchPods, JoinedUsage, SelectedPods, find_usage_source
from kscale.hpa.batch.requests import MetricLists
from kscale.hpa.controller.behavior import ScalingRuleColumns
from kscale.hpa.controller.replica_calculator import PodColumns, SampleColumns
from kscale.hpa.controller.scale_target import SelectorStore
from kscale.hpa.controller.state import ControllerState, HPAState
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, Scale
from kscale.objects.api.core import Pod
from kscale.objects.rest_mapping import RESTMapper

__all__ = ["BatchColumns", "BatchObjects", "PreparedBatch", "get_hpa_keys", "prepare_batch"]

_METRICS_BRANCH: Final = 4


@dataclass(frozen=True, slots=True)
class BatchObjects:
    """What is decided from: see :func:`kscale.hpa.batch.decisions.decide`.

    ``given``: HPAs as they came, ``hpas``: read, ``keys``: ``namespace/name`` of each; ``kept``: which rows they were
    in the round before, if there was one.
    """

    given: list[Any]
    hpas: Sequence[HorizontalPodAutoscaler]
    keys: Sequence[str]
    scales: ScaleSource
    pods: BatchPods
    metrics: Callable[[GetMetric], Any]
    selectors: SelectorStore | None
    mapper: RESTMapper
    kept: UnchangedRows | None = None

    @classmethod
    def of(
        cls,
        hpas: Sequence[Any],
        scales: ScaleSource,
        pods: BatchPods,
        metrics: Callable[[GetMetric], Any],
        selectors: SelectorStore | None,
        mapper: RESTMapper,
        before: BatchObjects | None = None,
    ) -> BatchObjects:
        """HPAs of any shape; one that is the very same object as in the round ``before`` is not read again.

        Raises :class:`~kscale.errors.InputError` for one that cannot be read or comes twice.
        """
        given = list(hpas)
        if before is None:
            known: Sequence[HorizontalPodAutoscaler] = list(map(_coerce_hpa, given))
            return cls(given, known, get_hpa_keys(known), scales, pods, metrics, selectors, mapper)
        kept = UnchangedRows.of(given, before.given)
        fresh = [_coerce_hpa(given[row]) for row in kept.fresh.tolist()]
        known = kept.list(before.hpas, fresh)
        keys = before.keys
        named = list(map("/".join, map(_get_namespace_and_name, fresh)))
        if not kept.in_place or named != [keys[row] for row in kept.fresh.tolist()]:
            now = get_hpa_keys(known)
            keys = keys if now == keys else now
        return cls(given, known, keys, scales, pods, metrics, selectors, mapper, kept)


@dataclass(frozen=True, slots=True)
class BatchColumns:
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
    up: ScalingRuleColumns
    down: ScalingRuleColumns
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
        source = find_usage_source(asked)
        joined = None if source is None else self.joined.get(source)
        if joined is None or self.selected is None:
            return metrics(asked)
        return joined.answer(self.selected, int(self.group[row]), asked)


def get_hpa_keys(hpas: Sequence[HorizontalPodAutoscaler], before: BatchObjects | None = None) -> Sequence[str]:
    """``namespace/name`` of each; ``before``: of those that are the very same objects they are known. Raises
    :class:`~kscale.errors.InputError` for one that comes twice."""
    if before is not None and len(before.given) == len(hpas):
        others = _names.other_objects([*hpas], before.given).tolist()
        if all(before.keys[row] == "/".join(_get_namespace_and_name(hpas[row])) for row in others):
            return before.keys
    keys = list(map("/".join, map(_get_namespace_and_name, hpas)))
    if len(set(keys)) != len(keys):
        again = [key for key, count in Counter(keys).items() if count > 1]
        raise InputError(f"HorizontalPodAutoscaler {again[0]} comes more than once")
    return keys


def _coerce_hpa(given: Any) -> HorizontalPodAutoscaler:
    return given if type(given) is HorizontalPodAutoscaler else coerce_hpa(given)


_get_namespace_and_name = attrgetter("metadata.namespace", "metadata.name")
_get_spec = attrgetter("spec")
_get_conditions = attrgetter("status.conditions")


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """All but the metrics: whose are needed is known now.

    ``rest``: what is not kept as columns of the states before; ``at``: those whose metrics are looked at.
    """

    observed: BatchObjects
    options: HPAOptions
    specs: SpecColumns
    references: TargetReferences
    scales: ScaleColumns
    targets: TargetColumns
    memory: KernelState
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
        """What the metrics APIs have to be asked; see :func:`~kscale.hpa.batch.metric_rows.list_metric_requests`."""
        at, metrics, known = self.at, self.specs.metrics[self.at.row], self.selectors.asked
        if (
            known is None
            or known[0] is not self.specs.metric_lists
            or not np.array_equal(known[1], at.group)
            or not np.array_equal(known[2], metrics)
        ):
            asked = list_metric_requests(at, self.specs, self.selectors.wanted)
            known = self.selectors.asked = self.specs.metric_lists, at.group, metrics, asked
        return known[3]

    def rows_that_ask(self, some: Collection[GetMetric]) -> Iterator[int]:
        """The rows of HPAs that need the answer to one of some questions."""
        return find_rows_of_requests(self.at, self.specs, self.selectors.wanted, some)

    def rows_without_answer(self, answered: Collection[GetMetric]) -> Iterator[int]:
        """Return the rows of HPAs that need the answer to a question that was not asked."""
        return find_rows_without_response(self.at, self.specs, self.selectors.wanted, answered)

    def encoded(
        self, metrics: Callable[[GetMetric], Any], before: BatchColumns | None = None, left_out: Collection[int] = ()
    ) -> BatchColumns:
        """The columns, with what ``metrics`` answers; ``before``: those of the last round; ``left_out``: rows that are
        not decided, of which nothing changes."""
        chosen, rows, at = self.selectors, self.at.row, self.at
        pods, joined = self.observed.pods, {} if before is None else before.joined
        asked = build_calculator_inputs(
            at, self.specs, chosen.wanted, pods, self.selected, metrics, self.options, joined
        )
        begin, end = np.zeros(len(self.rest), np.int64), np.zeros(len(self.rest), np.int64)
        begin[rows], end[rows] = asked.begin, asked.end
        problems = {**self.scales.problems, **asked.problems}
        scale_error = self.targets.scale_error.copy()
        undecided = {*problems, *left_out}
        for row in undecided:
            scale_error[row] = 2  # it is not decided, and nothing of it changes
        behavior = self.specs.behavior
        return BatchColumns(
            targets=replace(self.targets, scale_error=scale_error, metrics_begin=begin, metrics_end=end),
            rows=asked.rows,
            pods=self.selected.columns,
            samples=asked.samples,
            requests=asked.requests,
            values=asked.values,
            up=_take_rule_rows(self.specs.up, behavior),
            down=_take_rule_rows(self.specs.down, behavior),
            scales=self.scales.scales,
            wanted=chosen.wanted,
            group=chosen.group,
            selected=self.selected,
            registered=chosen.registered,
            problems=problems,
            rest=chosen.next_states(self.observed.hpas, self.rest, undecided),
            joined=asked.joined,
        )


def prepare_batch(
    observed: BatchObjects, state: ControllerState, options: HPAOptions, before: PreparedBatch | None = None
) -> PreparedBatch:
    """Reads specs, scales and states, and finds whose metrics are needed, of which pods. ``before``: the last round, of
    the same options and mapper, of which whatever still holds is taken."""
    hpas, kept, n = observed.hpas, observed.kept, len(observed.hpas)
    if before is None or kept is None:
        specs = read_specs(hpas, options)
        references = read_target_references(hpas, observed.mapper)
        scales = read_scales(observed.scales, hpas, observed.keys, references)
        conditions = read_condition_columns(hpas)
    else:
        last = before.observed.hpas
        kept_specs, kept_conditions = (
            _find_unchanged_parts(kept, part, hpas, last) for part in (_get_spec, _get_conditions)
        )
        specs = read_specs(hpas, options, before.specs, kept_specs)
        references = read_target_references(hpas, observed.mapper, before.references, kept_specs)
        scales = read_scales(observed.scales, hpas, observed.keys, references, before.scales)
        conditions = read_condition_columns(hpas, before.memory.conditions, kept_conditions)
    histories, rest = _read_states(observed.keys, state)
    memory = KernelState(histories, conditions)
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
    return PreparedBatch(observed, options, specs, references, scales, targets, memory, rest, selected, at, chosen)


def _find_unchanged_parts(
    kept: UnchangedRows,
    part: Callable[[HorizontalPodAutoscaler], Any],
    now: Sequence[HorizontalPodAutoscaler],
    before: Sequence[HorizontalPodAutoscaler],
) -> UnchangedRows:
    """Which rows have the very same object as a part: of an HPA with a new status the spec mostly is the old one."""
    return kept if kept.all else UnchangedRows.of(list(map(part, now)), list(map(part, before)))


def _take_rule_rows(rules: ScalingRuleColumns, which: NDArray[np.int32]) -> ScalingRuleColumns:
    return replace(
        rules,
        select=rules.select[which],
        window=rules.window[which],
        begin=rules.begin[which],
        end=rules.end[which],
    )


def _read_states(keys: Sequence[str], state: ControllerState) -> tuple[StateColumns, Sequence[HPAState]]:
    """(histories, the rest of the states) of HPAs in their order."""
    if isinstance(state.hpas, LazyStates | StateStore):
        found = state.hpas.of(keys)
        if found is not None:
            return found
    fresh = HPAState()
    if not state.hpas:
        return StateColumns.of([fresh]).take(np.zeros(len(keys), np.int64)), [fresh] * len(keys)
    states = [state.hpas.get(key) or fresh for key in keys]
    return StateColumns.of(states), states
