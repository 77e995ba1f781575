"""Responses of the metrics APIs: metrics.k8s.io, custom.metrics.k8s.io and external.metrics.k8s.io."""

from typing import Final

import msgspec

from kscale.objects.api.core import ObjectReference
from kscale.objects.api.meta import ApiStruct, Int64, KubeObject, LabelSelector, ResourceList
from kscale.objects.quantity import Quantity

__all__ = [
    "ContainerMetrics",
    "ExternalMetricValue",
    "ExternalMetricValueList",
    "MetricIdentifier",
    "MetricValue",
    "MetricValueList",
    "NodeMetrics",
    "PodMetrics",
    "PodMetricsList",
]

_DEFAULT_WINDOW: Final = 60 * 10**9  # upstream: metricServerDefaultMetricWindow


class ContainerMetrics(ApiStruct):
    """Usage of one container."""

    name: str = ""
    usage: ResourceList = {}


class PodMetrics(KubeObject):
    """Usage of the containers of a pod over ``window`` (a Go duration) before ``timestamp``."""

    timestamp: str | None = None
    window: str = "0s"
    containers: list[ContainerMetrics] | None = None


class PodMetricsList(ApiStruct):
    """Response of metrics.k8s.io for pods."""

    items: list[PodMetrics] = []


class NodeMetrics(KubeObject):
    """Usage of a node."""

    timestamp: str | None = None
    window: str = "0s"
    usage: ResourceList = {}


class MetricIdentifier(ApiStruct):
    """The name of a custom metric, and a selector of its series."""

    name: str = ""
    selector: LabelSelector | None = None


class MetricValue(ApiStruct):
    """One value of custom.metrics.k8s.io.

    v1beta2 has ``metric`` and ``windowSeconds``; v1beta1 has ``metricName``, ``window`` and ``selector``.
    """

    described_object: ObjectReference = msgspec.field(default_factory=ObjectReference)
    metric: MetricIdentifier | None = None
    metric_name: str = ""
    selector: LabelSelector | None = None
    timestamp: str | None = None
    window_seconds: Int64 | None = None
    window: Int64 | None = None
    value: Quantity = msgspec.field(default_factory=Quantity.zero)

    @property
    def name(self) -> str:
        """Return the metric's name: from ``metric`` (v1beta2) if set, else ``metric_name`` (v1beta1)."""
        return self.metric.name if self.metric is not None else self.metric_name

    @property
    def window_ns(self) -> int:
        """Return the window in nanoseconds, wrapped to int64; one minute if it is not set.

        The window is ``window_seconds`` (v1beta2) or, if that is None, ``window`` (v1beta1).
        """
        seconds = self.window_seconds if self.window_seconds is not None else self.window
        return _DEFAULT_WINDOW if seconds is None else (seconds * 10**9 + 2**63) % 2**64 - 2**63


class MetricValueList(ApiStruct):
    """Response of custom.metrics.k8s.io."""

    items: list[MetricValue] = []


class ExternalMetricValue(ApiStruct):
    """One value of external.metrics.k8s.io."""

    metric_name: str = ""
    metric_labels: dict[str, str] | None = None
    timestamp: str | None = None
    window: Int64 | None = None
    value: Quantity = msgspec.field(default_factory=Quantity.zero)


class ExternalMetricValueList(ApiStruct):
    """Response of external.metrics.k8s.io."""

    items: list[ExternalMetricValue] = []
