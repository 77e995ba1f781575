"""Metrics of a batch as rows for the replica calculator, and the requests that these metrics need.

Shared parts are looked up once: the metrics of equal specs, and usage by resource and container for all pods. Values of
objects and external metrics are requested one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.effects import Action, GetMetric, Progress, StepsOf, run_dry
from kscale.errors import InputError
from kscale.hpa.batch.columns import MetricRows
from kscale.hpa.batch.hpas import SpecColumns, SpecMetric
from kscale.hpa.batch.pods import BatchPods, JoinedUsage, SelectedPods, concatenate_ranges, join_usage
from kscale.hpa.batch.requests import MetricLists
from kscale.hpa.controller.metric_proposals import RESTMetricsClient, build_object_request
from kscale.hpa.controller.replica_calculator import (
    CALCULATION_MODES,
    EMPTY_SAMPLES,
    MetricsError,
    PodSamples,
    SampleColumns,
    wrap_int64,
)
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import ObjectMetricSource, PodsMetricSource
from kscale.objects.pod_metrics import PodUsage

__all__ = [
    "CalculatorInputs",
    "CalculatorInputsBuilder",
    "MetricTargets",
    "find_rows_of_requests",
    "find_rows_without_response",
    "list_metric_requests",
]


_T = TypeVar("_T")

_UTILIZATION: Final = CALCULATION_MODES.index("utilization")
_IS_PER_POD: Final = np.array([mode.endswith("per_pod") for mode in CALCULATION_MODES], np.bool_)
_NO_ROWS: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class MetricTargets:
    """HPAs whose metrics are needed, one row each.

    ``row`` int64: among all HPAs; ``group`` int64: their selection; ``spec_replicas``, ``status_replicas`` int32.
    """

    row: NDArray[np.int64]
    group: NDArray[np.int64]
    spec_replicas: NDArray[np.int32]
    status_replicas: NDArray[np.int32]

    def equals(self, other: MetricTargets) -> bool:
        """Check whether all columns are equal."""
        return (
            np.array_equal(self.row, other.row)
            and np.array_equal(self.group, other.group)
            and np.array_equal(self.spec_replicas, other.spec_replicas)
            and np.array_equal(self.status_replicas, other.status_replicas)
        )


@dataclass(frozen=True, slots=True)
class CalculatorInputs:
    """Inputs of the replica calculator. Target ``i`` has the metric rows ``begin[i]`` to ``end[i]`` (int64, exclusive).

    ``problems``: errors of metrics that upstream would crash on, by the HPA's row among all HPAs. ``joined``: usage by
    source (:meth:`CalculatorInputsBuilder._join_usage`), for the next batch. ``targets``, ``specs``: of which HPAs, and
    ``sampled``: the only ``usage_key`` of all metrics and the selections with samples; None if there are other metrics.
    """

    rows: MetricRows
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    samples: SampleColumns
    requests: NDArray[np.int64]
    values: NDArray[np.int64]
    problems: dict[int, Exception]
    joined: dict[tuple[object, ...], JoinedUsage]
    targets: MetricTargets
    specs: SpecColumns
    sampled: tuple[tuple[str, str, str], NDArray[np.int64]] | None

    def update(
        self, targets: MetricTargets, specs: SpecColumns, selected: SelectedPods, metrics: Callable[[GetMetric], Any]
    ) -> CalculatorInputs | None:
        """Return the inputs with new amounts of usage. The arguments are those of :class:`CalculatorInputsBuilder`.

        Returns None if inputs other than the amounts have changed or may have changed; then build them again.
        """
        if self.sampled is None or specs is not self.specs or not isinstance(metrics, MetricLists):
            return None
        (source, resource, container), groups = self.sampled
        joined = self.joined[source,]
        if not metrics.resource or joined.others or not targets.equals(self.targets):
            return None
        updated = joined.update(metrics.usage(), selected)
        if updated is None:
            return None
        samples = updated.get_samples(selected, groups, resource, container).samples
        return replace(self, samples=samples, joined={(source,): updated})


@dataclass
class CalculatorInputsBuilder:
    """Builds the calculator's inputs for all metrics of all targets.

    ``before``: ``CalculatorInputs.joined`` of the last batch.
    """

    targets: MetricTargets
    specs: SpecColumns
    selections: Sequence[tuple[str, str]]
    pods: BatchPods
    selected: SelectedPods
    metrics: Callable[[GetMetric], Any]
    options: HPAOptions
    before: Mapping[tuple[object, ...], JoinedUsage]

    def __post_init__(self) -> None:
        lists, targets = self.specs.metric_lists, self.targets
        counts = np.array([len(each) for each in lists], np.int64)
        last = np.cumsum(counts)
        facet = self.specs.metrics[targets.row]
        self.templates: list[SpecMetric] = [metric for each in lists for metric in each]
        self.end = np.cumsum(counts[facet])
        self.begin = self.end - counts[facet]
        self.of = np.repeat(np.arange(len(targets.row)), counts[facet])  # target of each row
        self.template = concatenate_ranges(last[facet] - counts[facet], last[facet])
        self.group = targets.group[self.of]
        n = len(self.of)
        self.failure, self.invalid = np.zeros(n, np.uint8), np.zeros(n, np.uint8)
        self.bad_request = np.full(n, -1, np.int32)
        self.sample_at, self.request_at = np.zeros((2, n), np.int64)
        self.extra_count, self.extra_sum = np.zeros((2, n), np.int64)
        self.values_begin, self.values_end = np.zeros((2, n), np.int64)
        self.samples: list[SampleColumns] = [EMPTY_SAMPLES]
        self.sample_count = 0
        self.requests: list[NDArray[np.int64]] = [_NO_ROWS]
        self.request_count = 0
        self.values: list[int] = []
        self.problems: dict[int, Exception] = {}
        self._responses: dict[tuple[Any, ...], Any] = {}
        self._names: dict[int, list[str]] = {}
        self._sampled: list[tuple[tuple[str, str, str], NDArray[np.int64]]] = []

    def build(self) -> CalculatorInputs:
        """Build the inputs. Usage is read for all pods at once if possible, otherwise with one request per HPA."""
        by_usage: dict[tuple[str, str, str], list[int]] = {}
        used = np.unique(self.template).tolist()
        for number in used:
            key = self.templates[number].usage_key
            if key is not None:
                by_usage.setdefault(key, []).append(number)
        joined: dict[tuple[object, ...], JoinedUsage | None] = {}
        one_by_one = set(used)
        for key, numbers in by_usage.items():
            source = key[:1] if key[0] == "resource" else key
            if source not in joined:
                joined[source] = self._join_usage(source)
            usage = joined[source]
            if usage is not None:
                one_by_one -= set(numbers)
                self._add_usage_rows(usage, key, np.array(numbers))
        for number in sorted(one_by_one):
            self._request_metric(number)
        return CalculatorInputs(
            self._build_rows(),
            self.begin,
            self.end,
            _concatenate_samples(self.samples),
            np.concatenate(self.requests),
            np.array(self.values, np.int64),
            self.problems,
            {source: usage for source, usage in joined.items() if usage is not None},
            self.targets,
            self.specs,
            self._sampled[0] if len(self._sampled) == len(by_usage) == 1 and not one_by_one else None,
        )

    def _build_rows(self) -> MetricRows:
        """Build the rows for the calculator from the parts collected so far."""
        templates, template, targets = self.templates, self.template, self.targets
        mode = np.array([each.mode for each in templates], np.uint8)[template]
        tolerances, behavior = self.specs.tolerances, self.specs.behavior[targets.row[self.of]]
        ends = self.selected.ends
        return MetricRows(
            mode=mode,
            cpu=np.array([each.resource == "cpu" for each in templates], np.uint8)[template],
            failure=self.failure,
            invalid=self.invalid,
            current=np.where(_IS_PER_POD[mode], targets.status_replicas[self.of], targets.spec_replicas[self.of]),
            target=np.array([each.target or 0 for each in templates], np.int64)[template],
            down=np.array([each.scale_down for each in tolerances], np.float64)[behavior],
            up=np.array([each.scale_up for each in tolerances], np.float64)[behavior],
            pods_begin=ends[self.group],
            pods_end=ends[self.group + 1],
            samples=self.sample_at,
            requests=self.request_at,
            bad_request=self.bad_request,
            extra_count=self.extra_count,
            extra_sum=self.extra_sum,
            values_begin=self.values_begin,
            values_end=self.values_end,
        )

    # -- pod metrics, all at once ------------------------------------------------------------------------------------

    def _join_usage(self, source: tuple[object, ...]) -> JoinedUsage | None:
        """Find the usage of every selected pod in one list of all pods' usage, instead of by one request per HPA.

        ``source``: ``("resource",)`` or ``("custom", metric name, metric selector)``. None if that is not possible:
        metrics are not given as lists (:class:`MetricLists`), the API has no list, or a custom value has an invalid
        time. Each HPA then requests its metric, and reports its own error.
        """
        lists = self.metrics
        if not isinstance(lists, MetricLists) or not getattr(lists, str(source[0])):
            return None
        usage: PodUsage
        if source[0] == "resource":
            usage = lists.usage()
        else:
            try:
                usage = lists.usage_of_custom(str(source[1]), str(source[2]))
            except InputError:
                return None  # each HPA reports its own error
        before = self.before.get(source)
        updated = None if before is None else before.update(usage, self.selected)
        return updated or join_usage(usage, self.pods, self.selected, self.selections, before)

    def _add_usage_rows(self, joined: JoinedUsage, key: tuple[str, str, str], numbers: NDArray[np.int64]) -> None:
        """Set the samples, and for utilization targets the requests, of all rows of some metrics.

        ``numbers``: indices of the metrics in ``templates``; ``key``: their common ``SpecMetric.usage_key``. A row
        fails if the API returns no item at all for its selection.
        """
        _, resource, container = key if key[0] == "resource" else (*key[:2], "")
        chosen = np.isin(self.template, numbers)
        self.failure[chosen & ~joined.answered[self.group]] = 1
        rows = np.flatnonzero(chosen & joined.answered[self.group])
        if not len(rows):
            return
        groups, which = _unique_groups(self.group[rows])
        if key[0] == "resource":
            self._sampled.append((key, groups))
        samples = joined.get_samples(self.selected, groups, resource, container)
        self.sample_at[rows] = self._append_samples(samples.samples) + samples.offset[which]
        self.extra_count[rows], self.extra_sum[rows] = samples.extra_count[which], samples.extra_sum[which]
        modes = np.array([each.mode for each in self.templates], np.uint8)
        rows = rows[modes[self.template[rows]] == _UTILIZATION]
        if len(rows):
            self._add_requests(rows, container, resource)

    def _add_requests(self, rows: NDArray[np.int64], container: str, resource: str) -> None:
        """Store the pods' requests of a resource for metric ``rows``, and the index of the first pod without one.

        An empty ``container`` stands for all containers.
        """
        groups, which = _unique_groups(self.group[rows])
        begin, end = self.selected.ends[groups], self.selected.ends[groups + 1]
        amounts, bad = self.selected.requests_of(groups, self.pods, container, resource, self.options)
        offset = np.cumsum(end - begin) - (end - begin)
        self.request_at[rows] = self.request_count + offset[which]
        self.requests.append(amounts)
        self.request_count += len(amounts)
        at = np.flatnonzero(bad)
        if len(at):
            first = np.full(len(groups), -1, np.int32)
            group = np.searchsorted(offset + (end - begin), at, side="right")
            of, where = np.unique(group, return_index=True)
            first[of] = at[where] - offset[of]
            self.bad_request[rows] = first[which]

    def _append_samples(self, samples: SampleColumns) -> int:
        """Append samples and return the index of the first one."""
        at = self.sample_count
        self.samples.append(samples)
        self.sample_count += len(samples.present)
        return at

    # -- one by one --------------------------------------------------------------------------------------------------

    def _request_metric(self, number: int) -> None:
        """Request and store the values of all rows of the metric ``templates[number]``, one by one.

        Rows are marked as failed if the metric is malformed or a response is an error or cannot be read.
        A malformed metric and a response that cannot be read are also recorded in ``problems``.
        """
        metric, rows = self.templates[number], np.flatnonzero(self.template == number)
        if metric.source is None or metric.target is None or metric.selector is None:
            self.failure[rows] = 1
            self.invalid[rows] = metric.source is None
            if metric.problem is not None:
                for row in self.targets.row[self.of[rows]].tolist():
                    self.problems.setdefault(row, metric.problem)
            return
        for row in rows.tolist():
            try:
                if metric.is_usage_metric or isinstance(metric.source, PodsMetricSource):
                    self._request_pod_samples(row, metric)
                else:
                    self._request_values(row, metric)
            except MetricsError:
                self.failure[row] = 1
            except (InputError, ValueError) as error:  # the response cannot be read
                self.failure[row] = 1
                self.problems.setdefault(int(self.targets.row[self.of[row]]), error)

    def _request_pod_samples(self, row: int, metric: SpecMetric) -> None:
        """Request and store the pod samples of one row. Raises MetricsError, InputError or ValueError."""
        group = int(self.group[row])
        client = RESTMetricsClient(Progress(0))
        if metric.is_usage_metric:
            query = client.get_resource_metric(metric.resource, *self.selections[group], metric.container)
        else:
            query = client.get_raw_metric(metric.source.metric.name, *self.selections[group], metric.selector or "")
        key = (
            metric.resource,
            metric.container,
            "" if metric.is_usage_metric else metric.source.metric.name,
            metric.selector,
        )
        sampled = self._get_cached_response((group, *key), lambda: self._add_samples(group, self._run(query)))
        self.sample_at[row], self.extra_count[row], self.extra_sum[row] = sampled
        if metric.mode == _UTILIZATION:
            self._add_requests(np.array([row], np.int64), metric.container, metric.resource)

    def _add_samples(self, group: int, values: PodSamples) -> tuple[int, int, int]:
        """Append the samples of a selection's pods, in the order of the pods.

        Returns the index of the first sample, the number of values of pods that are not listed, and their sum.
        """
        names = self._names.get(group)
        if names is None:
            keys, ends = self.pods.keys, self.selected.ends
            rows = self.selected.rows[ends[group] : ends[group + 1]].tolist()
            names = self._names[group] = [keys[row].partition("/")[2] for row in rows]
        columns = SampleColumns.from_samples(names, values.samples)
        at = self._append_samples(columns)
        if int(columns.present.sum()) == len(values.samples):
            return at, 0, 0
        known = set(names)
        extra = [sample.value for name, sample in values.samples.items() if name not in known]
        return at, len(extra), wrap_int64(sum(extra))

    def _request_values(self, row: int, metric: SpecMetric) -> None:
        """Request and store the values of an object or external metric.

        Raises MetricsError, InputError or ValueError.
        """
        client, source = RESTMetricsClient(Progress(0)), metric.source
        namespace = self.selections[int(self.group[row])][0]
        name, selector = source.metric.name, metric.selector or ""
        values: Sequence[int]
        if isinstance(source, ObjectMetricSource):
            key = (namespace, id(source), selector)
            query = client.get_object_metric(name, namespace, source.described_object, selector)
            values = self._get_cached_response(key, lambda: [self._run(query)[0]])
        else:
            requested = client.get_external_metric(name, namespace, selector)
            values = self._get_cached_response((namespace, name, selector), lambda: self._run(requested)[0])
        self.values_begin[row] = len(self.values)
        self.values.extend(values)
        self.values_end[row] = len(self.values)

    def _get_cached_response(self, key: tuple[Any, ...], request: Callable[[], Any]) -> Any:
        """Return the result of ``request``, or raise its error. The call is made once per ``key``; both are cached."""
        result = self._responses.get(key)
        if result is None:
            try:
                result = request()
            except (MetricsError, InputError, ValueError) as error:
                result = error
            self._responses[key] = result
        if isinstance(result, Exception):
            raise result
        return result

    def _run(self, query: StepsOf[GetMetric, _T]) -> _T:
        """Run a query against the metrics of the batch, and return its result."""
        return run_dry(query, now=0, respond=self._respond).value

    def _respond(self, action: Action) -> Any:
        """Answer a metrics request with the values that the batch received."""
        assert isinstance(action, GetMetric)
        return self.metrics(action)


def _unique_groups(groups: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct groups in ascending order, and the index of each input among them."""
    if bool((groups[1:] > groups[:-1]).all()):
        return groups, np.arange(len(groups))
    different, which = np.unique(groups, return_inverse=True)
    return different, which


def _concatenate_samples(samples: Sequence[SampleColumns]) -> SampleColumns:
    """Return all samples in one set of columns."""
    samples = [each for each in samples if len(each.present)] or samples[:1]
    if len(samples) == 1:
        return samples[0]
    return SampleColumns(
        np.concatenate([each.present for each in samples]),
        np.concatenate([each.value for each in samples]),
        np.concatenate([each.time for each in samples]),
        np.concatenate([each.window for each in samples]),
    )


def list_metric_requests(
    targets: MetricTargets, specs: SpecColumns, selections: Sequence[tuple[str, str]]
) -> list[GetMetric]:
    """List the requests for the metrics of all targets, without duplicates.

    The resource metrics of a namespace are requested together if more than one selection needs them.
    """
    requested: dict[GetMetric, None] = {}
    of_usage: dict[str, set[str]] = {}
    pairs = dict.fromkeys(zip(targets.group.tolist(), specs.metrics[targets.row].tolist(), strict=True))
    for group, facet in pairs:
        namespace, selector = selections[group]
        for metric in specs.metric_lists[facet]:
            request = _build_metric_request(metric, namespace, selector)
            if request is None:
                continue
            if metric.is_usage_metric:
                of_usage.setdefault(namespace, set()).add(selector)
            else:
                requested[request] = None
    usage = [
        GetMetric(
            api="resource",
            namespace=namespace,
            kind="Pod",
            selector=next(iter(selectors)) if len(selectors) == 1 else "",
            columns=True,
        )
        for namespace, selectors in of_usage.items()
    ]
    return [*usage, *requested]


def find_rows_of_requests(
    targets: MetricTargets, specs: SpecColumns, selections: Sequence[tuple[str, str]], requests: Collection[GetMetric]
) -> Iterator[int]:
    """Yield the rows, among all HPAs, of the targets that need the response to one of ``requests``.

    ``requests``: some of the requests that :func:`list_metric_requests` returns.
    """
    requested, namespaces = set(requests), {each.namespace for each in requests if each.api == "resource"}
    pairs = zip(targets.row.tolist(), targets.group.tolist(), specs.metrics[targets.row].tolist(), strict=True)
    for row, group, facet in pairs:
        namespace, selector = selections[group]
        for metric in specs.metric_lists[facet]:
            request = _build_metric_request(metric, namespace, selector)
            if request is not None and (request in requested or (metric.is_usage_metric and namespace in namespaces)):
                yield row
                break


def find_rows_without_response(
    targets: MetricTargets, specs: SpecColumns, selections: Sequence[tuple[str, str]], answered: Collection[GetMetric]
) -> Iterator[int]:
    """Yield the rows, among all HPAs, of targets that need a request which is not among ``answered``.

    A request for all pods of a namespace covers each selector.
    """
    pairs = zip(targets.row.tolist(), targets.group.tolist(), specs.metrics[targets.row].tolist(), strict=True)
    cached: dict[tuple[int, int], bool] = {}
    for row, group, facet in pairs:
        has_all = cached.get((group, facet))
        if has_all is None:
            requested = (_build_metric_request(metric, *selections[group]) for metric in specs.metric_lists[facet])
            has_all = cached[group, facet] = all(each is None or _has_response(each, answered) for each in requested)
        if not has_all:
            yield row


def _has_response(request: GetMetric, answered: Collection[GetMetric]) -> bool:
    """Check whether the request, or one for all pods of its namespace, is among ``answered``."""
    if request in answered:
        return True
    return request.api == "resource" and msgspec.structs.replace(request, selector="") in answered


def _build_metric_request(metric: SpecMetric, namespace: str, selector: str) -> GetMetric | None:
    """Build the request of one metric; None if the metric is malformed or its selector invalid."""
    source = metric.source
    if source is None or metric.target is None or metric.selector is None:
        return None
    if metric.is_usage_metric:
        return GetMetric(api="resource", namespace=namespace, kind="Pod", selector=selector, columns=True)
    name = source.metric.name
    if isinstance(source, PodsMetricSource):
        return GetMetric(
            api="custom",
            namespace=namespace,
            kind="Pod",
            metric=name,
            selector=selector,
            metric_selector=metric.selector,
        )
    if isinstance(source, ObjectMetricSource):
        return build_object_request(name, namespace, source.described_object, metric.selector)
    return GetMetric(api="external", namespace=namespace, metric=name, metric_selector=metric.selector)
