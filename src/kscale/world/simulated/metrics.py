"""Simulated metrics pipeline: values are scraped at intervals and become available after a lag."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.effects import SECOND, ZERO_TIME, ApiError, GetMetric, Moment, VirtualTime, to_text
from kscale.effects.actions import NOT_FOUND
from kscale.objects.api.core import ObjectReference, Pod
from kscale.objects.api.meta import ObjectMeta, object_key
from kscale.objects.api.metrics import (
    ContainerMetrics,
    ExternalMetricValue,
    ExternalMetricValueList,
    MetricIdentifier,
    MetricValue,
    MetricValueList,
    PodMetrics,
    PodMetricsList,
)
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import parse_selector
from kscale.objects.times import format_duration
from kscale.world.protocols import MetricsAnswer
from kscale.world.simulated.controllers import HAPPENINGS, Key, WorkloadCounts
from kscale.world.simulated.load import Load, Signal, serving_since

__all__ = ["ExternalMetric", "Pipeline", "SimulatedMetrics"]

_RESOURCES: Final = ("cpu", "memory")
_QUESTIONS: Final = 64
"""Number of queries, those used last, whose results are cached."""


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """Timing of metrics in nanoseconds.

    ``scrape``: interval between scrapes. ``window``: time over which a value is averaged. ``lag``: minimum age of a
    value when it becomes available.
    """

    scrape: int = 15 * SECOND
    window: int = 15 * SECOND
    lag: int = 0


class ExternalMetric(msgspec.Struct, frozen=True, kw_only=True):
    """External metric: a signal, or a value of a queue (``rate``: arrivals per second; ``waiting``).

    ``labels`` distinguish metrics of the same name.
    """

    signal: Signal | None = None
    queue: Key | None = None
    tells: str = "rate"
    labels: Mapping[str, str] = {}


class _Scrape(msgspec.Struct, frozen=True):
    """Values of one scrape. ``changes`` equals that of the previous scrape if only the time differs.

    ``names``: of the used resources and metrics by workload; the same object as in the previous scrape if it is equal,
    in the same order.
    """

    at: Moment
    changes: int
    used: dict[Key, dict[str, int]]
    names: dict[Key, tuple[str, ...]]
    external: dict[tuple[str, str], list[int]]


@dataclass(slots=True)
class _Rows:
    """Pods with equal labels and containers. ``serves``: they are ready and have a share of the load."""

    labels: dict[str, str] | None
    containers: tuple[str, ...]
    serves: bool
    keys: list[str] = field(default_factory=list)
    usage: dict[tuple[str, ...], PodUsage] = field(default_factory=dict)
    """Usage columns of these pods by resources, without times and amounts."""


def _list_reported_resources(used: Collection[str]) -> tuple[str, ...]:
    """Return the resources among the used resources and metrics of a workload that metrics-server reports."""
    return tuple([name for name in _RESOURCES if name in used])


class _CachedRows(NamedTuple):
    """Running pods of a workload at a change count. ``complete``: the list does not depend on the time."""

    changes: int
    at: Moment
    complete: bool
    rows: Sequence[_Rows]


class _Parts(NamedTuple):
    """Groups of running pods with their resources, by workload, at a scrape and change count.

    ``workloads``: the workloads of the scrape. ``changes``: change counts of their pods. ``is_complete``: by workload,
    whether its groups are the same for later scrapes while its pods are unchanged.
    ``parts``: the groups of each workload.
    """

    scrape: _Scrape
    pods: int
    workloads: WorkloadCounts
    changes: list[int]
    is_complete: list[bool]
    parts: list[list[tuple[_Rows, Sequence[str]]]]


class _Joined(NamedTuple):
    """Cached result of a query by columns.

    ``parts``: groups of pods with their resources, and ``workloads``: the workload of each. ``pods``: the change count
    of pods at which the parts are the same; None if they depend on the time. ``used``, ``names``: of the scrape.
    ``usage``: usage of all parts ``at`` the time of a scrape, and ``joined``: the same without times and amounts.
    ``first``: rows of the first containers of serving pods (None: all rows). ``served``: their number by part.
    """

    parts: Sequence[tuple[_Rows, Sequence[str]]]
    joined: PodUsage
    usage: PodUsage
    at: Moment
    first: NDArray[np.int64] | None
    served: NDArray[np.int64]
    workloads: Sequence[Key] = ()
    pods: int | None = None
    used: Mapping[Key, Mapping[str, int]] = {}
    names: Mapping[Key, Sequence[str]] | None = None

    @classmethod
    def of(cls, parts: Sequence[tuple[_Rows, Sequence[str]]], usage: PodUsage) -> _Joined:
        """Build the cached result of a query. ``usage``: the concatenated usage of all parts."""
        serves, sizes = [rows.serves for rows, _ in parts], np.array([len(rows.keys) for rows, _ in parts], np.int64)
        first = None  # all rows
        if not all(serves) or len(usage.container) != len(usage):
            first = np.append(0, usage.ends)[:-1][np.repeat(serves, sizes)]
        return cls(parts, usage, usage, ZERO_TIME, first, np.where(serves, sizes, 0))

    def is_of(self, parts: Sequence[tuple[_Rows, Sequence[str]]]) -> bool:
        """Check whether the result consists of exactly these groups of pods, each with equal names of resources."""
        return len(parts) == len(self.parts) and all(
            mine is theirs or (mine[0] is theirs[0] and mine[1] == theirs[1])
            for mine, theirs in zip(self.parts, parts, strict=True)
        )

    def later(self, time: Moment, used: Mapping[Key, Mapping[str, int]]) -> PodUsage:
        """Return the usage for another time. ``used``: usage of each serving pod in milli, by workload and resource.

        Resources other than CPU are rounded down to whole units (bytes of memory), as metrics-server reports them.
        """
        of_parts, amounts = [used[key] for key in self.workloads], []
        for name in self.usage.resources:
            values = np.array([used_by_pod.get(name, 0) for used_by_pod in of_parts], np.int64)
            if name != "cpu":
                values = values // 1000 * 1000
            amount = np.repeat(values, self.served)
            if self.first is not None:
                serving, amount = amount, np.zeros(len(self.usage.container), np.int64)
                amount[self.first] = serving
            amounts.append(amount)
        return self.usage.later(time, amounts)


class SimulatedMetrics:
    """Metrics APIs that answer :class:`~kscale.effects.GetMetric` at once, from the last scrape older than the lag.

    A pod's usage is reported as that of its first container; a running pod that is not ready uses nothing.
    ``external``: external metrics by namespace and name.
    """

    def __init__(self, load: Load, time: VirtualTime, pipeline: Pipeline) -> None:
        self._load, self._time, self.pipeline = load, time, pipeline
        self.external: dict[tuple[str, str], list[ExternalMetric]] = {}
        self._rows: dict[Key, _CachedRows] = {}
        self._parts: _Parts | None = None
        self._joined: dict[GetMetric, _Joined] = {}
        self._pods_then = 0
        self._steady_until: Moment = ZERO_TIME
        self._ends_before = min(max(pipeline.window, 0), 1)  # an empty window has the value at its end
        self._scrapes: deque[_Scrape] = deque(maxlen=2 + pipeline.lag // pipeline.scrape)

    def begin(self) -> None:
        """Scrape now, and schedule the next scrape; each scrape schedules its successor."""
        now, pods = self._time.now, self._load.pods.count
        last = self._scrapes[-1] if self._scrapes else None
        if last is not None and pods == self._pods_then and now < self._steady_until + self._ends_before:
            scrape = _Scrape(now, last.changes, last.used, last.names, last.external)
        else:
            used, external = self._load.used_by_all(now - self.pipeline.window, now), self._external(now)
            same = last is not None and pods == self._pods_then and used == last.used and external == last.external
            if last is not None and same:
                used = last.used  # so that amounts computed from it are recognized
            names = dict(zip(used, map(tuple, used.values()), strict=True))
            if last is not None and last.names == names and [*last.names] == [*names]:
                names = last.names
            scrape = _Scrape(now, 0 if last is None else last.changes + (not same), used, names, external)
            self._steady_until = self._find_steady_end(now - self.pipeline.window)
        self._pods_then = pods
        self._scrapes.append(scrape)
        self._time.at(now + self.pipeline.scrape, self.begin, rank=HAPPENINGS + 1)

    def _find_steady_end(self, begin: Moment) -> Moment:
        """Return the moment until which the values of a scrape stay the same, if its window begins at ``begin``.

        This assumes that pods do not change.
        """
        until = self._load.steady_until(begin)
        for metric in (item for metrics in self.external.values() for item in metrics):
            until = begin if metric.signal is None else min(until, metric.signal.flat_until(begin))
        return until

    def _external(self, now: Moment) -> dict[tuple[str, str], list[int]]:
        """Return the values of all external metrics, in milli, by (namespace, name)."""
        return {key: [self._value(metric, now) for metric in metrics] for key, metrics in self.external.items()}

    def _value(self, metric: ExternalMetric, now: Moment) -> int:
        """Return the value of an external metric in milli.

        This is the mean of its signal or of a queue's arrivals over the window up to now, or the queue's unfinished
        work.
        """
        begin = now - self.pipeline.window
        if metric.signal is not None:
            return metric.signal.mean(begin, now)
        assert metric.queue is not None
        queue = self._load.queues[metric.queue]
        return queue.arrivals.mean(begin, now) if metric.tells == "rate" else queue.waiting

    def _last(self) -> _Scrape | None:
        """Return the newest scrape that is at least as old as the lag, or None."""
        return next(
            (scrape for scrape in reversed(self._scrapes) if scrape.at <= self._time.now - self.pipeline.lag), None
        )

    @property
    def changes(self) -> int:
        """Return a number that differs whenever responses differ in more than their times.

        The number is -1 while there is no scrape.
        """
        last = self._last()
        if last is None:
            return -1
        return last.changes + self._load.pods.count  # responses contain the current pods; neither count decreases

    # -- responses ---------------------------------------------------------------------------------------------------

    def get(self, question: GetMetric) -> MetricsAnswer | ApiError:
        """Return the response of the metrics API that the request names, or its error.

        The response of the resource metrics API is a PodUsage if ``question.columns`` is set, otherwise a list. It is
        empty before the first scrape that is old enough. Custom and external metrics are NotFound until then, and so
        are unknown external metrics and custom metrics of other objects than pods.
        """
        last = self._last()
        match question.api:
            case "external":
                return self._answer_external(question, last)
            case "custom":
                return self._answer_custom(question, last)
        if question.columns and last is not None:
            return self._columns(question, last)
        items = [] if last is None else self._pods(question, last, self._pod_metrics)
        return PodUsage.of(items) if question.columns else PodMetricsList(items=items)

    def _columns(self, asked: GetMetric, last: _Scrape) -> PodUsage:
        """Return the usage of all matching pods in columns, computed by workload instead of by pod."""
        known = self._joined.get(asked)
        if known is not None and known.pods == self._load.pods.count and known.names is last.names:
            return self._store(asked, known, last)
        listed = self._list_parts(last)
        namespace, selector = asked.namespace, parse_selector(asked.selector) if asked.selector else None
        chosen = [
            (key, of_key)
            for key, of_key in zip(listed.workloads.keys, listed.parts, strict=True)
            if of_key and (not namespace or key[1] == namespace)
        ]
        if selector is not None:
            chosen = [
                (key, [part for part in of_key if selector.matches(part[0].labels or {})]) for key, of_key in chosen
            ]
        parts = [part for _, of_key in chosen for part in of_key]
        workloads = [key for key, of_key in chosen for _ in of_key]
        if not parts:
            return PodUsage.of([])
        cached = previous = self._joined.pop(asked, None)
        if cached is None or not cached.is_of(parts):  # another query may have selected the same pods
            cached = next((other for other in reversed(self._joined.values()) if other.is_of(parts)), None)
        if cached is None:
            usages = [self._part(key[1], *part) for key, part in zip(workloads, parts, strict=True)]
            cached = _Joined.of(parts, PodUsage.concatenate(usages, None if previous is None else previous.joined))
        pods = self._load.pods.count if all(listed.is_complete) else None
        return self._store(asked, cached._replace(workloads=workloads, pods=pods), last)

    def _list_parts(self, last: _Scrape) -> _Parts:
        """Return the running pods of all workloads with reported usage; unchanged ones are those of the last call."""
        count, listed = self._load.pods.count, self._parts
        if listed is not None and listed.scrape is last and listed.pods == count:
            return listed
        names = last.names
        if listed is None or listed.scrape.names is not names:
            workloads = self._load.pods.find_workloads(names)
            changes, is_complete, which = workloads.list_changes(), [False] * len(names), [*range(len(names))]
            parts: list[list[tuple[_Rows, Sequence[str]]]] = [[] for _ in names]
        else:
            workloads, is_complete, parts = listed.workloads, listed.is_complete.copy(), listed.parts.copy()
            changes, before = workloads.list_changes(), listed.changes
            which = [
                i
                for i, (now, then, same) in enumerate(zip(changes, before, is_complete, strict=True))
                if not same or now != then
            ]
        for i in which:
            key = workloads.keys[i]
            reported = _list_reported_resources(names[key])
            if reported:
                of_key = self._rows_of(key, last.at)
                is_complete[i] = of_key.complete
                parts[i] = [(rows, reported) for rows in of_key.rows if rows.containers]
        self._parts = _Parts(last, count, workloads, changes, is_complete, parts)
        return self._parts

    def _store(self, asked: GetMetric, joined: _Joined, last: _Scrape) -> PodUsage:
        """Return the usage of a scrape, and cache it for the query.

        The cache is limited: the query that was used least recently is dropped.
        """
        same = (
            each.usage for each in self._joined.values() if each.joined is joined.joined and (
                each.at == last.at and each.used is last.used)
        )  # fmt: skip
        usage = next(same, None) or joined.later(last.at // SECOND * SECOND, last.used)
        self._joined.pop(asked, None)
        # Keep the queries ordered by last use.
        self._joined[asked] = joined._replace(usage=usage, at=last.at, used=last.used, names=last.names)
        if len(self._joined) > _QUESTIONS:
            del self._joined[next(iter(self._joined))]
        return usage

    def _rows_of(self, key: Key, at: Moment) -> _CachedRows:
        """Return the pods of a workload that were running at a moment, grouped by labels, containers and readiness.

        The result is cached until the pods change. If it depends on the time, it is cached for the same moment only.
        """
        pods = self._load.pods
        cached = self._rows.get(key)
        if cached is not None and cached.changes == pods.changes(key) and (cached.complete or cached.at == at):
            return cached
        by, complete = to_text(at) or "", True
        groups: dict[tuple[int, tuple[str, ...], bool], _Rows] = {}
        group_of: dict[tuple[int, int, int, str | None], _Rows | None] = {}  # by parts that pods share
        for pod in pods.list_workload_pods(key):
            metadata, status, listed = pod.metadata, pod.status, pod.spec.containers
            shared = id(status), id(listed), id(metadata.labels), metadata.deletion_timestamp
            rows = group_of.get(shared)
            if rows is None:
                if shared in group_of:
                    continue
                started = status.start_time
                if status.phase != "Running" or started is None or started > by:
                    complete = complete and status.phase != "Running"
                    group_of[shared] = None
                    continue
                containers = tuple([container.name for container in listed])
                since = serving_since(pod)
                serves = since is not None and since <= by
                complete = complete and (serves or since is None)
                group = id(metadata.labels), containers, serves
                rows = groups.get(group)
                if rows is None:
                    rows = groups[group] = _Rows(metadata.labels, containers, serves)
                group_of[shared] = rows
            rows.keys.append(object_key(metadata.namespace, metadata.name))
        result = self._rows[key] = _CachedRows(pods.changes(key), at, complete, list(groups.values()))
        return result

    def _part(self, namespace: str, rows: _Rows, names: Sequence[str]) -> PodUsage:
        """Return the usage columns of a group of pods, without times and amounts."""
        resources = tuple(names)
        if resources not in rows.usage:
            rows.usage[resources] = self._build_part(namespace, rows, resources)
        return rows.usage[resources]

    def _build_part(self, namespace: str, rows: _Rows, names: Sequence[str]) -> PodUsage:
        """Build the usage columns of a group of pods, with zeros in place of times and amounts."""
        pods, containers_per_pod = len(rows.keys), len(rows.containers)
        return PodUsage(
            rows.keys,
            np.zeros(pods, np.int32),
            [namespace],
            np.full(pods, -1 if rows.labels is None else 0, np.int32),
            [] if rows.labels is None else [rows.labels],
            np.zeros(pods, np.int64),
            np.full(pods, self.pipeline.window, np.int64),
            np.arange(1, pods + 1, dtype=np.int64) * containers_per_pod,
            np.tile(np.arange(containers_per_pod, dtype=np.int32), pods),
            list(rows.containers),
            list(names),
            [np.zeros(pods * containers_per_pod, np.int64) for _ in names],
            [np.ones(pods * containers_per_pod, np.uint8) for _ in names],
        )

    def _pods(
        self, asked: GetMetric, last: _Scrape, build: Callable[[Pod, Mapping[str, int], Moment], Any]
    ) -> list[Any]:
        """Return the result of ``build`` for each matching pod that was running at the scrape. None is left out.

        ``build`` gets the pod, its usage in milli by resource, and the time. The usage of a pod that did not serve is
        0.
        """
        selector = parse_selector(asked.selector) if asked.selector else None
        by = to_text(last.at) or ""
        items = []
        for key, used in last.used.items():
            if asked.namespace and key[1] != asked.namespace:
                continue
            for pod in self._load.pods.list_workload_pods(key):
                started = pod.status.start_time
                if pod.status.phase != "Running" or started is None or started > by:
                    continue
                if selector is None or selector.matches(pod.metadata.labels or {}):
                    since = serving_since(pod)
                    serves = since is not None and since <= by
                    item = build(pod, used if serves else dict.fromkeys(used, 0), last.at)
                    if item is not None:
                        items.append(item)
        return items

    def _pod_metrics(self, pod: Pod, used: Mapping[str, int], at: Moment) -> PodMetrics | None:
        """Return the metrics of a pod, with its usage in the first container; None without usage or containers."""
        usage = {name: _quantity(name, used[name]) for name in _RESOURCES if name in used}
        if not usage or not pod.spec.containers:
            return None
        first, *others = pod.spec.containers
        nothing = {name: _quantity(name, 0) for name in usage}
        return PodMetrics(
            metadata=ObjectMeta(name=pod.name, namespace=pod.namespace, labels=pod.metadata.labels),
            timestamp=to_text(at),
            window=format_duration(self.pipeline.window),
            containers=[
                ContainerMetrics(name=first.name, usage=usage),
                *(ContainerMetrics(name=container.name, usage=nothing) for container in others),
            ],
        )

    def _answer_external(self, asked: GetMetric, last: _Scrape | None) -> ExternalMetricValueList | ApiError:
        """Return the values of an external metric whose labels match.

        Returns the NotFound error if there is no such metric or no scrape that is old enough.
        """
        key = asked.namespace, asked.metric
        if last is None or key not in last.external:
            return ApiError(f"no metric {asked.metric} in namespace {asked.namespace}", 404, NOT_FOUND)
        selector = parse_selector(asked.metric_selector) if asked.metric_selector else None
        items = [
            ExternalMetricValue(
                metric_name=asked.metric,
                metric_labels=dict(metric.labels),
                timestamp=to_text(last.at),
                value=_milli(value),
            )
            for metric, value in zip(self.external[key], last.external[key], strict=True)
            if selector is None or selector.matches(metric.labels)
        ]
        return ExternalMetricValueList(items=items)

    def _answer_custom(self, asked: GetMetric, last: _Scrape | None) -> MetricValueList | ApiError:
        """Return the values of a custom metric of matching pods; empty if no pod has the metric.

        Also empty for a metric selector that requires labels, as these metrics have none. Metrics of other kinds of
        objects, and all metrics before the first scrape that is old enough, are NotFound.
        """
        if asked.kind != "Pod" or last is None:
            return ApiError(f"the simulated world has no {asked.metric} of {asked.kind}", 404, NOT_FOUND)
        if asked.metric_selector and not parse_selector(asked.metric_selector).matches({}):
            return MetricValueList()  # metrics of pods have no labels of their own

        def build(pod: Pod, used: Mapping[str, int], at: Moment) -> MetricValue | None:
            if asked.metric not in used or (asked.name and pod.name != asked.name):
                return None
            return MetricValue(
                described_object=ObjectReference(kind="Pod", namespace=pod.namespace, name=pod.name, api_version="v1"),
                metric=MetricIdentifier(name=asked.metric),
                timestamp=to_text(at),
                window_seconds=self.pipeline.window // SECOND,
                value=_milli(used[asked.metric]),
            )

        return MetricValueList(items=self._pods(asked, last, build))


def _milli(value: int) -> Quantity:
    """Return an amount in milli as a quantity."""
    return Quantity(f"{value}m")


def _quantity(name: str, value: int) -> Quantity:
    """Return an amount in milli as a quantity. Memory is rounded down to whole bytes, as from metrics-server."""
    return _milli(value) if name == "cpu" else Quantity(str(value // 1000))
