"""From what the metrics APIs answer to the values that the calculator takes.

Upstream: ``pkg/controller/podautoscaler/metrics/client.go`` and the metrics REST clients.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final, TypeVar

from kscale.hpa.actions import Action, Failure, GetMetric, Outcome
from kscale.hpa.moments import SECOND, from_text
from kscale.hpa.pod_groups import Sample
from kscale.hpa.replica_calculator import MetricsError, PodValues, wrap
from kscale.objects.autoscaling import CrossVersionObjectReference
from kscale.objects.durations import parse_duration
from kscale.objects.metrics import (
    ExternalMetricValueList,
    MetricValue,
    MetricValueList,
    PodMetrics,
    PodMetricsList,
)

__all__ = ["RESTMetricsClient"]

_ListT = TypeVar("_ListT", PodMetricsList, MetricValueList, ExternalMetricValueList)

_DEFAULT_WINDOW: Final = 60 * SECOND


class RESTMetricsClient:
    """Asks the three metrics APIs, one :class:`~kscale.hpa.actions.GetMetric` a query."""

    def get_resource_metric(
        self, resource: str, namespace: str, selector: str, container: str
    ) -> Generator[Action, Outcome, PodValues]:
        """Usage by pod. A pod that lacks the resource, or one container of it, is left out."""
        answer = yield GetMetric(api="resource", namespace=namespace, kind="Pod", selector=selector)
        items = _fetched("resource", answer, PodMetricsList).items
        samples = {}
        for item in items:
            value = _usage(item, resource, container)
            if value is not None:
                samples[item.metadata.name] = Sample(value, from_text(item.timestamp), parse_duration(item.window))
        return PodValues(samples, from_text(items[0].timestamp))

    def get_raw_metric(
        self, metric: str, namespace: str, selector: str, metric_selector: str
    ) -> Generator[Action, Outcome, PodValues]:
        """A custom metric by the pod that it describes; of a name that comes twice the last value counts."""
        answer = yield GetMetric(
            api="custom",
            namespace=namespace,
            kind="Pod",
            metric=metric,
            selector=selector,
            metric_selector=metric_selector,
        )
        items = _fetched("custom", answer, MetricValueList).items
        samples = {}
        for item in items:
            window = _DEFAULT_WINDOW if item.seconds is None else item.seconds * SECOND
            samples[item.described_object.name] = Sample(item.value.milli_value(), from_text(item.timestamp), window)
        return PodValues(samples, from_text(items[0].timestamp))

    def get_object_metric(
        self, metric: str, namespace: str, described: CrossVersionObjectReference, metric_selector: str
    ) -> Generator[Action, Outcome, tuple[int, int]]:
        """A custom metric of one object. That of a Namespace is asked at the root, under the HPA's own namespace."""
        group = described.api_version.rpartition("/")[0]
        root = described.kind == "Namespace" and not group
        answer = yield GetMetric(
            api="custom",
            namespace="" if root else namespace,
            kind=f"{described.kind}.{group}" if group else described.kind,
            name=namespace if root else described.name,
            metric=metric,
            metric_selector=metric_selector,
        )
        if isinstance(answer, MetricValueList):
            if len(answer.items) != 1:
                answer = Failure(
                    f"the custom metrics API server returned {len(answer.items)} results when we asked for exactly one"
                )
            else:
                answer = answer.items[0]
        if isinstance(answer, Failure):
            raise MetricsError(f"unable to fetch metrics from custom metrics API: {answer.message}")
        if not isinstance(answer, MetricValue):
            raise TypeError(f"an object metric is answered with a MetricValue, not {type(answer).__name__}")
        return answer.value.milli_value(), from_text(answer.timestamp)

    def get_external_metric(
        self, metric: str, namespace: str, metric_selector: str
    ) -> Generator[Action, Outcome, tuple[Sequence[int], int]]:
        """All values of an external metric, in the API's order."""
        answer = yield GetMetric(api="external", namespace=namespace, metric=metric, metric_selector=metric_selector)
        items = _fetched("external", answer, ExternalMetricValueList).items
        return [item.value.milli_value() for item in items], from_text(items[0].timestamp)


def _fetched(api: str, answer: Outcome, kind: type[_ListT]) -> _ListT:
    """The list that an API answered; a failure and an empty list raise :class:`MetricsError`."""
    if isinstance(answer, Failure):
        raise MetricsError(f"unable to fetch metrics from {api} metrics API: {answer.message}")
    if not isinstance(answer, kind):
        raise TypeError(f"the {api} metrics API is answered with a {kind.__name__}, not {type(answer).__name__}")
    if not answer.items:
        raise MetricsError(f"no metrics returned from {api} metrics API")
    return answer


def _usage(item: PodMetrics, resource: str, container: str) -> int | None:
    """Of one container, or of all; None where a container that counts does not have the resource."""
    containers = item.containers or []
    if container:
        for each in containers:
            if each.name == container:
                usage = each.usage.get(resource)
                return None if usage is None else usage.milli_value()
        return None
    total = 0
    for each in containers:
        usage = each.usage.get(resource)
        if usage is None:
            return None
        total += usage.milli_value()
    return wrap(total) if containers else None
