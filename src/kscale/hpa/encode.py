"""From objects to the columns that a batch of reconciles takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kscale._native import _reconcile
from kscale.effects import ApiError, GetMetric, GetScale, Outcome, Progress, from_text
from kscale.effects.outcomes import NOT_FOUND
from kscale.hpa.behavior import History, Rules
from kscale.hpa.calculation import MODES, MetricsError, PodValues, wrap
from kscale.hpa.columns import MetricRows, TargetColumns
from kscale.hpa.memory import CONDITION_REASONS, CONDITION_TYPES, ConditionColumns, Memory
from kscale.hpa.metric_sources import resource_target, source_of, tolerances_of, value_target
from kscale.hpa.metrics_client import RESTMetricsClient
from kscale.hpa.options import HPAOptions
from kscale.hpa.pod_groups import PodColumns, SampleColumns, pod_requests
from kscale.hpa.replica_calculator import selector_text
from kscale.hpa.selector_store import SelectorStore
from kscale.hpa.state import ControllerState
from kscale.objects.autoscaling import (
    ContainerResourceMetricSource,
    ExternalMetricSource,
    HorizontalPodAutoscaler,
    MetricSpec,
    ObjectMetricSource,
    PodsMetricSource,
    ResourceMetricSource,
    Scale,
)
from kscale.objects.core import Pod
from kscale.objects.rest_mapping import RESTMapper, RESTMappingError, parse_group_version
from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import SelectorError

__all__ = ["Encoded", "Observed", "encode"]

_REASON_CODES: Final = {reason: code for code, reason in enumerate(CONDITION_REASONS)}
_METRIC_FAILED: Final = _REASON_CODES["MetricFailed"]
_STATUS: Final = {"True": 1, "False": 2}
_METRICS_BRANCH: Final = 4
_REQUIRED, _INVALID, _DELETED, _AMBIGUOUS = 1, 2, 3, 5


@dataclass(frozen=True, slots=True)
class Observed:
    """What is decided from: see :func:`kscale.hpa.decide.decide`."""

    hpas: Sequence[HorizontalPodAutoscaler]
    scales: Mapping[str, Scale | ApiError]
    pods: Sequence[Pod]
    metrics: Callable[[GetMetric], Any]
    selectors: SelectorStore | None
    mapper: RESTMapper

    @staticmethod
    def no_scale(query: GetScale) -> ApiError:
        """The API server's answer for a target that does not exist."""
        return ApiError(f'{query.resource} "{query.name}" not found', code=404, reason=NOT_FOUND)


@dataclass(frozen=True, slots=True)
class Encoded:
    """Columns of one moment. ``selectors`` holds the selectors of all HPAs, this batch's included."""

    targets: TargetColumns
    rows: MetricRows
    pods: PodColumns
    samples: SampleColumns
    requests: NDArray[np.int64]
    values: NDArray[np.int64]
    up: Rules
    down: Rules
    selectors: SelectorStore = field(default_factory=SelectorStore)
    groups: Mapping[tuple[str, str], Sequence[Pod]] = field(default_factory=dict)

    def pods_of(self, namespace: str, selector: str) -> Sequence[Pod]:
        """The pods that a target's selector matches."""
        return self.groups.get((namespace, selector), ())


def encode(observed: Observed, state: ControllerState, options: HPAOptions) -> tuple[Encoded, Memory]:
    """The columns of a batch, and what is remembered of each HPA."""
    hpas = observed.hpas
    keys = [f"{hpa.metadata.namespace}/{hpa.metadata.name}" for hpa in hpas]
    memory = _memory(hpas, [state.get(key) for key in keys])
    targets = _targets(observed, keys, memory)
    branches = _reconcile.branches(targets, memory.conditions.status, options.enabled("HPAScaleToZero"), options.legacy)
    metrics = [i for i in range(len(hpas)) if branches[i] == _METRICS_BRANCH]
    selectors, groups = _select(observed, state, keys, metrics, targets, legacy=options.legacy)
    batch = _Batch(observed, options, groups)
    begin, end = np.zeros(len(hpas), np.int64), np.zeros(len(hpas), np.int64)
    for i in metrics:
        begin[i] = end[i] = len(batch.mode)
        if targets.selector_error[i] == 0:
            scale = observed.scales[keys[i]]
            assert isinstance(scale, Scale)  # else the branch were another
            batch.add(hpas[i], scale)
            end[i] = len(batch.mode)
    window = options.downscale_stabilization_seconds
    behaviors = [hpa.spec.behavior for hpa in hpas]
    up = Rules.of([None if each is None else each.scale_up for each in behaviors], 0)
    down = Rules.of([None if each is None else each.scale_down for each in behaviors], window)
    targets = replace(targets, metrics_begin=begin, metrics_end=end)
    return batch.encoded(targets, up, down, selectors), memory


def _memory(hpas: Sequence[HorizontalPodAutoscaler], states: Sequence[Any]) -> Memory:
    n = len(hpas)
    status, reason = np.zeros((n, 4), np.uint8), np.zeros((n, 4), np.uint8)
    time = np.zeros((n, 4), np.int64)
    for i, hpa in enumerate(hpas):
        for condition in hpa.status.conditions or ():
            if condition.type in CONDITION_TYPES:
                j = CONDITION_TYPES.index(condition.type)
                status[i, j] = _STATUS.get(condition.status, 3)
                code = _REASON_CODES.get(condition.reason, 0)
                failed = condition.type == "ScalingActive" and not code
                reason[i, j] = _METRIC_FAILED if failed else code
                time[i, j] = from_text(condition.last_transition_time)
    return Memory(
        np.array([each.recommendations is None for each in states], np.uint8),
        History.recommendations([each.recommendations or () for each in states]),
        History.events([each.scale_up_events for each in states]),
        History.events([each.scale_down_events for each in states]),
        ConditionColumns(status, reason, time),
    )


def _targets(observed: Observed, keys: Sequence[str], memory: Memory) -> TargetColumns:
    n = len(keys)
    flags = np.zeros((4, n), np.uint8)  # scale error, object metric, behavior, selector error
    sizes = np.zeros((3, n), np.int32)  # current, minimum, maximum
    for i, (hpa, key) in enumerate(zip(observed.hpas, keys, strict=True)):
        spec = hpa.spec
        flags[0, i] = _scale_error(hpa, observed.scales.get(key), observed.mapper)
        flags[1, i] = any(metric.type in ("Object", "External") for metric in spec.metrics or ())
        flags[2, i] = spec.behavior is not None
        scale = observed.scales.get(key)
        sizes[0, i] = scale.spec.replicas if isinstance(scale, Scale) else 0
        sizes[1, i] = 1 if spec.min_replicas is None else spec.min_replicas
        sizes[2, i] = spec.max_replicas
    nothing = np.zeros(n, np.int64)
    return TargetColumns(
        scale_error=flags[0],
        current=sizes[0],
        minimum=sizes[1],
        maximum=sizes[2],
        object_metric=flags[1],
        behavior=flags[2],
        selector_error=flags[3],
        fresh=memory.fresh,
        metrics_begin=nothing,
        metrics_end=nothing,
    )


def _scale_error(hpa: HorizontalPodAutoscaler, scale: Scale | ApiError | None, mapper: RESTMapper) -> int:
    reference = hpa.spec.scale_target_ref
    try:
        group, _ = parse_group_version(reference.api_version)
    except RESTMappingError:
        return 2
    try:
        resources = mapper.resources(group, reference.kind)
    except RESTMappingError:
        return 1
    return 0 if resources and isinstance(scale, Scale) else 1


def _select(
    observed: Observed,
    state: ControllerState,
    keys: Sequence[str],
    metrics: Sequence[int],
    targets: TargetColumns,
    *,
    legacy: bool,
) -> tuple[SelectorStore, dict[tuple[str, str], list[Pod]]]:
    """Register every selector, list the pods of each, and mark the HPAs whose selector is of no use."""
    store = SelectorStore() if observed.selectors is None else observed.selectors.copy()
    for hpa, key in zip(observed.hpas, keys, strict=True):
        before = state.get(key)
        if before.registered:
            store.put_if_absent(hpa.metadata.namespace, hpa.metadata.name, before.selector)
    chosen: dict[int, tuple[str, str]] = {}
    for i in metrics:
        hpa, scale = observed.hpas[i], observed.scales[keys[i]]
        assert isinstance(scale, Scale)  # else the branch were another
        namespace, text = hpa.metadata.namespace, scale.status.selector
        if not text:
            targets.selector_error[i] = _REQUIRED
            continue
        try:
            parse_selector(text)
        except SelectorError:
            targets.selector_error[i] = _INVALID
            continue
        if not legacy and not (
            state.get(keys[i]).registered and store.put_if_present(namespace, hpa.metadata.name, text)
        ):
            targets.selector_error[i] = _DELETED
            continue
        chosen[i] = (namespace, text)
    groups = _group(observed.pods, set(chosen.values()))
    for i, where in () if legacy else chosen.items():
        labels = [pod.metadata.labels for pod in groups[where]]
        if len(store.matching(where[0], labels, 2)) > 1:
            targets.selector_error[i] = _AMBIGUOUS
    return store, groups


def _group(pods: Sequence[Pod], wanted: set[tuple[str, str]]) -> dict[tuple[str, str], list[Pod]]:
    """The pods of each (namespace, selector), in their order."""
    by_namespace: dict[str, list[Pod]] = defaultdict(list)
    by_label: dict[tuple[str, str, str], list[Pod]] = defaultdict(list)
    for pod in pods:
        by_namespace[pod.metadata.namespace].append(pod)
        for key, value in (pod.metadata.labels or {}).items():
            by_label[pod.metadata.namespace, key, value].append(pod)
    out = {}
    for namespace, text in wanted:
        selector = parse_selector(text)
        candidates = by_namespace[namespace]
        if (label := selector.exact_label()) is not None:
            candidates = by_label[(namespace, *label)]
        out[namespace, text] = [pod for pod in candidates if selector.matches(pod.metadata.labels)]
    return out


class _Batch:
    """Collects the rows of metrics, and the pods, samples and requests that they point to."""

    def __init__(
        self, observed: Observed, options: HPAOptions, groups: Mapping[tuple[str, str], Sequence[Pod]]
    ) -> None:
        self.observed, self.options, self.groups = observed, options, groups
        self.client = RESTMetricsClient(Progress(0))
        self.mode: list[int] = []
        self.columns: dict[str, list[Any]] = defaultdict(list)
        self.pods: list[Pod] = []
        self.range: dict[tuple[str, str], tuple[int, int]] = {}
        self.samples: list[SampleColumns] = []
        self.sample_count = 0
        self.request_parts: list[NDArray[np.int64]] = []
        self.request_count = 0
        self.values: list[int] = []
        self.fetched: dict[tuple[Any, ...], PodValues | MetricsError] = {}

    def add(self, hpa: HorizontalPodAutoscaler, scale: Scale) -> None:
        """The rows of one HPA."""
        where = (hpa.metadata.namespace, scale.status.selector)
        if where not in self.range:
            begin = len(self.pods)
            self.pods.extend(self.groups[where])
            self.range[where] = (begin, len(self.pods))
        tolerances = tolerances_of(hpa, self.options)
        for spec in hpa.spec.metrics or ():
            row = {
                "cpu": 0, "given": 0, "invalid": 0, "current": scale.spec.replicas, "target": 0,
                "down": tolerances.scale_down, "up": tolerances.scale_up,
                "pods_begin": self.range[where][0], "pods_end": self.range[where][1],
                "samples": 0, "requests": 0, "bad_request": -1, "extra_count": 0, "extra_sum": 0,
                "values_begin": len(self.values), "values_end": len(self.values),
            }  # fmt: skip
            mode = self._fill(row, spec, where, scale.status.replicas)
            self.mode.append(MODES.index(mode))
            for name, value in row.items():
                self.columns[name].append(value)

    def _fill(self, row: dict[str, Any], spec: MetricSpec, where: tuple[str, str], status_replicas: int) -> str:
        source = source_of(spec, self.options)
        if isinstance(source, (ResourceMetricSource, ContainerResourceMetricSource)):
            return self._resource(row, source, where)
        if isinstance(source, PodsMetricSource):
            return self._pods(row, source, where)
        if isinstance(source, (ObjectMetricSource, ExternalMetricSource)):
            return self._value(row, source, where[0], status_replicas)
        row["invalid"] = row["given"] = 1
        return "usage"

    def _resource(
        self, row: dict[str, Any], source: ResourceMetricSource | ContainerResourceMetricSource, where: tuple[str, str]
    ) -> str:
        container = source.container if isinstance(source, ContainerResourceMetricSource) else ""
        mode, target = resource_target(source.target)
        if target is None:
            row["given"] = 1
            return mode
        row["target"], row["cpu"] = target, source.name == "cpu"
        key = ("resource", source.name, *where, container)
        values = self._fetch(key, lambda: self.client.get_resource_metric(source.name, *where, container))
        self._samples(row, values, where)
        if mode == "utilization" and not row["given"]:
            pods = self.groups[where]
            requests, bad, _ = pod_requests(pods, container, source.name, options=self.options)
            row["requests"], row["bad_request"] = self.request_count, bad
            self.request_parts.append(requests)
            self.request_count += len(requests)
        return mode

    def _pods(self, row: dict[str, Any], source: PodsMetricSource, where: tuple[str, str]) -> str:
        try:
            selector = selector_text(source.metric.selector)
        except ValueError:
            row["given"] = 1
            return "usage"
        assert source.target.average_value is not None  # source_of has looked
        row["target"] = source.target.average_value.milli_value()
        key = ("pods", source.metric.name, *where, selector)
        self._samples(
            row, self._fetch(key, lambda: self.client.get_raw_metric(source.metric.name, *where, selector)), where
        )
        return "usage"

    def _value(
        self, row: dict[str, Any], source: ObjectMetricSource | ExternalMetricSource, namespace: str, status: int
    ) -> str:
        mode, target = value_target(source)
        if mode.endswith("per_pod"):
            row["current"] = status
        try:
            selector = selector_text(source.metric.selector)
            if target is None:
                raise MetricsError("no target")
            values: Sequence[int]
            if isinstance(source, ObjectMetricSource):
                one, _ = self._run(
                    self.client.get_object_metric(source.metric.name, namespace, source.described_object, selector)
                )
                values = [one]
            else:
                values, _ = self._run(self.client.get_external_metric(source.metric.name, namespace, selector))
        except (ValueError, MetricsError):
            row["given"] = 1
            return mode
        row["target"] = target
        self.values.extend(values)
        row["values_end"] = len(self.values)
        return mode

    def _run(self, query: Generator[Any, Outcome, Any]) -> Any:
        try:
            action = next(query)
            while True:
                found = self.observed.metrics(action)
                refused = isinstance(found, ApiError)
                action = query.send(Outcome(at=0, error=found) if refused else Outcome(at=0, value=found))
        except StopIteration as stop:
            return stop.value

    def _fetch(
        self, key: tuple[Any, ...], query: Callable[[], Generator[Any, Outcome, PodValues]]
    ) -> PodValues | MetricsError:
        if key not in self.fetched:
            try:
                self.fetched[key] = self._run(query())
            except MetricsError as error:
                self.fetched[key] = error
        return self.fetched[key]

    def _samples(self, row: dict[str, Any], values: PodValues | MetricsError, where: tuple[str, str]) -> None:
        if isinstance(values, MetricsError):
            row["given"] = 1
            return
        names = [pod.metadata.name for pod in self.groups[where]]
        columns = SampleColumns.of(names, values.samples)
        row["samples"] = self.sample_count
        self.samples.append(columns)
        self.sample_count += len(names)
        if int(columns.present.sum()) != len(values.samples):
            known = set(names)
            extra = [sample.value for name, sample in values.samples.items() if name not in known]
            row["extra_count"], row["extra_sum"] = len(extra), wrap(sum(extra))

    def encoded(self, targets: TargetColumns, up: Rules, down: Rules, selectors: SelectorStore) -> Encoded:
        """All columns."""
        kinds = {"cpu": np.uint8, "given": np.uint8, "invalid": np.uint8, "current": np.int32, "bad_request": np.int32,
                 "down": np.float64, "up": np.float64}  # fmt: skip
        names = [each for each in MetricRows.__dataclass_fields__ if each != "mode"]
        rows = {name: np.array(self.columns[name], kinds.get(name, np.int64)) for name in names}
        nothing = np.empty(0, np.int64)
        samples = [SampleColumns.of((), {}), *self.samples]
        return Encoded(
            targets=targets,
            rows=MetricRows(mode=np.array(self.mode, np.uint8), **rows),
            pods=PodColumns.of(self.pods),
            samples=SampleColumns(
                np.concatenate([each.present for each in samples]),
                np.concatenate([each.value for each in samples]),
                np.concatenate([each.time for each in samples]),
                np.concatenate([each.window for each in samples]),
            ),
            requests=np.concatenate(self.request_parts) if self.request_parts else nothing,
            values=np.array(self.values, np.int64),
            up=up,
            down=down,
            selectors=selectors,
            groups=self.groups,
        )
