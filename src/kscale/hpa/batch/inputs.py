"""Inputs of a batch.

Reads HPAs, scales, states and pods, finds the HPAs that need metrics, and builds the columns that the kernels take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kscale._native import _hpa, _names
from kscale.effects import ApiError, GetMetric
from kscale.errors import InputError
from kscale.hpa.api.admission import coerce_hpa
from kscale.hpa.batch.columns import (
    KernelState,
    LazyStates,
    MetricRows,
    StateStore,
    TargetColumns,
    UnchangedRows,
)
from kscale.hpa.batch.hpas import (
    BatchSelectors,
    HPAColumns,
    ScaleSource,
)
from kscale.hpa.batch.metric_rows import (
    CalculatorInputs,
    CalculatorInputsBuilder,
    MetricTargets,
    find_rows_of_requests,
    find_rows_without_response,
    list_metric_requests,
)
from kscale.hpa.batch.pods import BatchPods, JoinedUsage, SelectedPods, find_usage_source
from kscale.hpa.batch.requests import MetricLists
from kscale.hpa.controller.behavior import ScalingRuleColumns, StateColumns
from kscale.hpa.controller.replica_calculator import PodColumns, SampleColumns
from kscale.hpa.controller.scale_target import SelectorStore
from kscale.hpa.controller.state import ControllerState, HPAState
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, Scale
from kscale.objects.api.core import Pod
from kscale.objects.kinds import RESTMapper

__all__ = ["BatchColumns", "BatchObjects", "PreparedBatch", "get_hpa_keys", "prepare_batch"]

_METRICS_BRANCH: Final = 4


@dataclass(frozen=True, slots=True)
class BatchObjects:
    """Inputs of the decisions; see :func:`kscale.hpa.batch.decisions.decide`.

    ``passed``: HPAs as passed. ``hpas``: HPAs as structs. ``keys``: ``namespace/name`` of each. ``unchanged``: rows
    that are unchanged since the last batch, if there was one.
    """

    passed: list[Any]
    hpas: Sequence[HorizontalPodAutoscaler]
    keys: Sequence[str]
    scales: ScaleSource
    pods: BatchPods
    metrics: Callable[[GetMetric], Any]
    selectors: SelectorStore | None
    mapper: RESTMapper
    unchanged: UnchangedRows | None = None

    @classmethod
    def read(
        cls,
        hpas: Sequence[Any],
        scales: ScaleSource,
        pods: BatchPods,
        metrics: Callable[[GetMetric], Any],
        selectors: SelectorStore | None,
        mapper: RESTMapper,
        before: BatchObjects | None = None,
        keys: Sequence[str] | None = None,
    ) -> BatchObjects:
        """Read HPAs of any type, reusing those that are identical objects in ``before``.

        ``keys``: of the HPAs, if they are known. The other arguments are kept as they are. Raises
        :class:`~kscale.errors.InputError` for an HPA that cannot be read or appears twice.
        """
        inputs = list(hpas)
        if before is None:
            structs: Sequence[HorizontalPodAutoscaler] = list(map(_coerce_hpa, inputs))
            keys = get_hpa_keys(structs) if keys is None else keys
            return cls(inputs, structs, keys, scales, pods, metrics, selectors, mapper)
        unchanged = UnchangedRows.compare(inputs, before.passed)
        fresh = [_coerce_hpa(inputs[row]) for row in unchanged.fresh.tolist()]
        structs = unchanged.list(before.hpas, fresh)
        keys = get_hpa_keys(structs, before) if keys is None else keys
        return cls(inputs, structs, keys, scales, pods, metrics, selectors, mapper, unchanged)


@dataclass(frozen=True, slots=True)
class BatchColumns:
    """Columns at one moment, with the objects that explanations need.

    - ``scales``: the scale of every target, or its error;
    - ``selections``: (namespace, selector) of every selection, ``group`` int64[n]: the HPA's selection, -1 for none;
    - ``registered``: the selector of every HPA that has one, by (namespace, name), including this batch;
    - ``problems``: by row, why an HPA is malformed and cannot be decided;
    - ``plain_states``: states after the decisions, without their columns; ``calculator``: inputs of the calculator.
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
    selections: Sequence[tuple[str, str]] = ()
    group: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    selected: SelectedPods | None = None
    registered: Mapping[tuple[str, str], str | None] = field(default_factory=dict)
    problems: Mapping[int, Exception] = field(default_factory=dict)
    plain_states: Sequence[HPAState] = ()
    calculator: CalculatorInputs | None = None
    store_cache: list[SelectorStore] = field(default_factory=list)

    @property
    def joined(self) -> Mapping[tuple[object, ...], JoinedUsage]:
        """Return the joined pod usage by source (``CalculatorInputs.joined``); empty for columns without objects."""
        return {} if self.calculator is None else self.calculator.joined

    def store(self) -> SelectorStore:
        """Return a store with the selectors of all registered HPAs, for step machines.

        All calls return the same store, built on first use.
        """
        if not self.store_cache:
            out = SelectorStore()
            for (namespace, name), selector in self.registered.items():
                out.put_if_absent(namespace, name, selector)
            self.store_cache.append(out)
        return self.store_cache[0]

    def pods_of(self, row: int, pods: BatchPods) -> Sequence[Pod]:
        """Return the pods of an HPA's selection; empty if the HPA has no selection."""
        group = int(self.group[row])
        if group < 0 or self.selected is None:
            return ()
        ends = self.selected.ends
        return [pods.pod(number) for number in self.selected.rows[ends[group] : ends[group + 1]].tolist()]

    def answer(self, row: int, query: GetMetric, metrics: Callable[[GetMetric], Any]) -> Any:
        """Return the response to a metric query of an HPA: from the joined usage, or else from ``metrics``.

        An error that ``metrics`` has for a request of pod usage (:meth:`MetricLists.refusal`) comes first.
        """
        if isinstance(metrics, MetricLists) and (refused := metrics.refusal(query)) is not None:
            return refused
        source = find_usage_source(query)
        joined = None if source is None else self.joined.get(source)
        if joined is None or self.selected is None:
            return metrics(query)
        return joined.answer(self.selected, int(self.group[row]), query)


def get_hpa_keys(hpas: Sequence[HorizontalPodAutoscaler], before: BatchObjects | None = None) -> Sequence[str]:
    """Return ``namespace/name`` of each HPA, reusing the keys of ``before`` if they are unchanged.

    Raises :class:`~kscale.errors.InputError` for an HPA that appears twice.
    """
    if before is not None and len(before.hpas) == len(hpas):
        others = _names.other_objects([*hpas], [*before.hpas]).tolist()
        if all(_has_same_key(hpas[row], before.hpas[row]) for row in others):
            return before.keys
    keys = list(map("/".join, map(_get_namespace_and_name, hpas)))
    if len(set(keys)) != len(keys):
        duplicates = [key for key, count in Counter(keys).items() if count > 1]
        raise InputError(f"HorizontalPodAutoscaler {duplicates[0]} comes more than once")
    return keys


def _coerce_hpa(value: Any) -> HorizontalPodAutoscaler:
    """Return a v2 struct as it is; convert and default anything else."""
    return value if type(value) is HorizontalPodAutoscaler else coerce_hpa(value)


_get_namespace_and_name = attrgetter("metadata.namespace", "metadata.name")


def _has_same_key(one: HorizontalPodAutoscaler, other: HorizontalPodAutoscaler) -> bool:
    """Check whether two HPAs have the same namespace and name."""
    mine, theirs = one.metadata, other.metadata
    return mine.name == theirs.name and mine.namespace == theirs.namespace


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """Inputs of a batch without the metrics, once it is known which metrics are needed.

    ``plain_states``: earlier states without their columns. ``at``: HPAs whose metrics are needed.
    """

    objects: BatchObjects
    options: HPAOptions
    hpas: HPAColumns
    targets: TargetColumns
    memory: KernelState
    plain_states: Sequence[HPAState]
    selected: SelectedPods
    at: MetricTargets
    selectors: BatchSelectors

    @property
    def group(self) -> NDArray[np.int64]:
        """Return the index of each HPA's selection, -1 for none."""
        return self.selectors.group

    def selector(self, row: int) -> str:
        """Return the selector text of an HPA that has a selection."""
        return self.selectors.texts[row]

    def list_requests(self) -> list[GetMetric]:
        """Return the metric requests of the batch; see :func:`~kscale.hpa.batch.metric_rows.list_metric_requests`."""
        at, metrics, cached = self.at, self.hpas.specs.metrics[self.at.row], self.selectors.cached_requests
        if (
            cached is None
            or cached[0] is not self.hpas.specs.metric_lists
            or not np.array_equal(cached[1], at.group)
            or not np.array_equal(cached[2], metrics)
        ):
            requests = list_metric_requests(at, self.hpas.specs, self.selectors.selections)
            cached = self.selectors.cached_requests = self.hpas.specs.metric_lists, at.group, metrics, requests
        return cached[3]

    def find_rows_of_requests(self, some: Collection[GetMetric]) -> Iterator[int]:
        """Yield the rows of HPAs that need the response to any of the requests ``some``."""
        return find_rows_of_requests(self.at, self.hpas.specs, self.selectors.selections, some)

    def find_rows_without_response(self, answered: Collection[GetMetric]) -> Iterator[int]:
        """Yield the rows of HPAs that need a response which is not among the requests ``answered``."""
        return find_rows_without_response(self.at, self.hpas.specs, self.selectors.selections, answered)

    def encode(
        self, metrics: Callable[[GetMetric], Any], before: BatchColumns | None = None, left_out: Collection[int] = ()
    ) -> BatchColumns:
        """Build the columns with the responses of ``metrics``, which is called with requests.

        ``before``: columns of the last batch; whatever is unchanged is reused. ``left_out``: rows that are not decided
        and do not change.
        """
        selectors, rows, at = self.selectors, self.at.row, self.at
        specs, last = self.hpas.specs, None if before is None else before.calculator
        calculator_inputs = None if last is None else last.update(at, specs, self.selected, metrics)
        if calculator_inputs is None:
            joined = {} if last is None else last.joined
            calculator_inputs = CalculatorInputsBuilder(
                at, specs, selectors.selections, self.objects.pods, self.selected, metrics, self.options, joined
            ).build()
        begin, end = np.zeros(len(self.plain_states), np.int64), np.zeros(len(self.plain_states), np.int64)
        begin[rows], end[rows] = calculator_inputs.begin, calculator_inputs.end
        problems = {**self.hpas.scales.problems, **calculator_inputs.problems}
        scale_error = self.targets.scale_error.copy()
        undecided = {*problems, *left_out}
        for row in undecided:
            scale_error[row] = 2  # the HPA is not decided and does not change
        is_same = last is not None and last.specs is specs
        return BatchColumns(
            targets=replace(self.targets, scale_error=scale_error, metrics_begin=begin, metrics_end=end),
            rows=calculator_inputs.rows,
            pods=self.selected.columns,
            samples=calculator_inputs.samples,
            requests=calculator_inputs.requests,
            values=calculator_inputs.values,
            up=before.up if before is not None and is_same else _take_rule_rows(specs.up, specs.behavior),
            down=before.down if before is not None and is_same else _take_rule_rows(specs.down, specs.behavior),
            scales=self.hpas.scales.scales,
            selections=selectors.selections,
            group=selectors.group,
            selected=self.selected,
            registered=selectors.registered,
            problems=problems,
            plain_states=selectors.next_states(self.objects.hpas, self.plain_states, undecided),
            calculator=calculator_inputs,
        )


def prepare_batch(
    objects: BatchObjects, state: ControllerState, options: HPAOptions, before: PreparedBatch | None = None
) -> PreparedBatch:
    """Read specs, scales and states, and find which HPAs need metrics of which pods.

    ``before``: the last batch with the same options and mapper; whatever is unchanged is reused.
    """
    hpas, n = objects.hpas, len(objects.hpas)
    columns = HPAColumns.read(
        hpas,
        objects.keys,
        objects.scales,
        objects.mapper,
        options,
        objects.unchanged,
        None if before is None else before.hpas,
    )
    specs, scales = columns.specs, columns.scales
    histories, plain_states = _read_states(objects.keys, state)
    memory = KernelState(histories, columns.conditions)
    zeros, error = np.zeros(n, np.int64), columns.references.error
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
        metrics_begin=zeros,
        metrics_end=zeros,
    )
    branches = _hpa.branches(targets, memory.conditions.status, options.gates["HPAScaleToZero"], options.legacy)
    metrics = np.flatnonzero(branches == _METRICS_BRANCH)
    selectors = None if before is None else before.selectors
    if selectors is None or not selectors.is_unchanged(
        objects.keys, objects.selectors, plain_states, scales.texts, metrics
    ):
        selectors = BatchSelectors(hpas, objects.keys, objects.selectors, plain_states, scales.texts, metrics, options)
    selected = objects.pods.select(selectors.selections, None if before is None else before.selected)
    targets = replace(targets, selector_error=selectors.errors(selected))
    rows = metrics[targets.selector_error[metrics] == 0]
    at = MetricTargets(rows, selectors.group[rows], scales.current[rows], scales.status[rows])
    return PreparedBatch(objects, options, columns, targets, memory, plain_states, selected, at, selectors)


def _take_rule_rows(rules: ScalingRuleColumns, which: NDArray[np.int32]) -> ScalingRuleColumns:
    """Return the rules with the row numbers ``which``, in their order; the columns of policies are shared."""
    return replace(
        rules,
        select=rules.select[which],
        window=rules.window[which],
        begin=rules.begin[which],
        end=rules.end[which],
    )


def _read_states(keys: Sequence[str], state: ControllerState) -> tuple[StateColumns, Sequence[HPAState]]:
    """Return the histories of HPAs and their states apart from the histories, in the order of ``keys``.

    An unknown HPA has the state of one that was never reconciled. Histories in the states are to be ignored.
    """
    if isinstance(state.hpas, LazyStates | StateStore):
        columns_and_rest = state.hpas.get_columns(keys)
        if columns_and_rest is not None:
            return columns_and_rest
    fresh = HPAState()
    if not state.hpas:
        return StateColumns.from_states([fresh]).take(np.zeros(len(keys), np.int64)), [fresh] * len(keys)
    states = [state.hpas.get(key) or fresh for key in keys]
    return StateColumns.from_states(states), states
