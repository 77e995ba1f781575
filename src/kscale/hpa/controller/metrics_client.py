"""Request the metrics APIs and convert their responses to the values that the replica calculator takes.

Upstream: "``pkg/controller/podautoscaler/metrics/client.go`` and the metrics REST clients."
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kscale.effects import GetMetric, Moment, Outcome, Progress, StepsOf, from_text
from kscale.hpa.controller.replica_calculator import MetricsError, PodSamples, Sample, wrap_int64
from kscale.objects.api.autoscaling import CrossVersionObjectReference
from kscale.objects.api.metrics import ExternalMetricValueList, MetricValue, MetricValueList, PodMetrics, PodMetricsList
from kscale.objects.times import parse_duration

__all__ = ["RESTMetricsClient", "build_object_request", "get_pod_usage"]


class RESTMetricsClient:
    """Client of the three metrics APIs, with one :class:`~kscale.effects.GetMetric` per query."""

    __slots__ = ("_progress",)

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def get_resource_metric(
        self, resource: str, namespace: str, selector: str, container: str
    ) -> StepsOf[GetMetric, PodSamples]:
        """Request the usage of a resource by pod, in thousandths of its unit.

        Pods without a value of the resource, in any container that counts, are left out. Raises :class:`MetricsError`.
        """
        query = GetMetric(api="resource", namespace=namespace, kind="Pod", selector=selector)
        response: PodMetricsList = _read_response("resource", (yield from self._progress.act(query)))
        samples = {}
        for item in response.items:
            value = get_pod_usage(item, resource, container)
            if value is not None:
                samples[item.metadata.name] = Sample(value, from_text(item.timestamp), parse_duration(item.window))
        return PodSamples(samples, from_text(response.items[0].timestamp))

    def get_raw_metric(
        self, metric: str, namespace: str, selector: str, metric_selector: str
    ) -> StepsOf[GetMetric, PodSamples]:
        """Request a custom metric by the pod that it describes; for a repeated pod name the last value counts.

        Raises :class:`MetricsError`.
        """
        query = GetMetric(
            api="custom",
            namespace=namespace,
            kind="Pod",
            metric=metric,
            selector=selector,
            metric_selector=metric_selector,
        )
        response: MetricValueList = _read_response("custom", (yield from self._progress.act(query)))
        samples = {}
        for item in response.items:
            value = item.value.milli_value()
            samples[item.described_object.name] = Sample(value, from_text(item.timestamp), item.window_ns)
        return PodSamples(samples, from_text(response.items[0].timestamp))

    def get_object_metric(
        self, metric: str, namespace: str, described: CrossVersionObjectReference, metric_selector: str
    ) -> StepsOf[GetMetric, tuple[int, Moment]]:
        """Request a custom metric of one object. Raises :class:`MetricsError` unless there is one value."""
        query = build_object_request(metric, namespace, described, metric_selector)
        outcome = yield from self._progress.act(query)
        if outcome.error is not None:
            raise MetricsError(f"unable to fetch metrics from custom metrics API: {outcome.error.message}")
        response: MetricValue | MetricValueList = outcome.value
        if isinstance(response, MetricValueList):
            count = len(response.items)
            if count != 1:
                text = f"the custom metrics API server returned {count} results when we asked for exactly one"
                raise MetricsError(f"unable to fetch metrics from custom metrics API: {text}")
            response = response.items[0]
        return response.value.milli_value(), from_text(response.timestamp)

    def get_external_metric(
        self, metric: str, namespace: str, metric_selector: str
    ) -> StepsOf[GetMetric, tuple[Sequence[int], Moment]]:
        """Request all values of an external metric, in the API's order.

        Returns the values in thousandths and the timestamp of the first. Raises :class:`MetricsError`.
        """
        query = GetMetric(api="external", namespace=namespace, metric=metric, metric_selector=metric_selector)
        response: ExternalMetricValueList = _read_response("external", (yield from self._progress.act(query)))
        return [item.value.milli_value() for item in response.items], from_text(response.items[0].timestamp)


def build_object_request(
    metric: str, namespace: str, described: CrossVersionObjectReference, metric_selector: str
) -> GetMetric:
    """Build the request for a custom metric of one object.

    For a Namespace it is a request at the root for the HPA's own namespace.
    """
    group = described.api_version.rpartition("/")[0]
    root = described.kind == "Namespace" and not group
    return GetMetric(
        api="custom",
        namespace="" if root else namespace,
        kind=f"{described.kind}.{group}" if group else described.kind,
        name=namespace if root else described.name,
        metric=metric,
        metric_selector=metric_selector,
    )


def _read_response(api: str, outcome: Outcome) -> Any:
    """Return the list of a response. Raises :class:`MetricsError` for an error and for an empty list."""
    if outcome.error is not None:
        raise MetricsError(f"unable to fetch metrics from {api} metrics API: {outcome.error.message}")
    if not outcome.value.items:
        raise MetricsError(f"no metrics returned from {api} metrics API")
    return outcome.value


def get_pod_usage(item: PodMetrics, resource: str, container: str) -> int | None:
    """Return the usage of one container, or of all (``container`` empty), in thousandths.

    None without the container, without containers, or if a container that counts lacks the resource.
    """
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
    return wrap_int64(total) if containers else None
