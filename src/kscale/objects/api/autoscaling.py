"""HorizontalPodAutoscaler (autoscaling/v2 and v1) and Scale (upstream: ``k8s.io/api/autoscaling``).

Upstream: ``k8s.io/api/autoscaling``. Decisions work on v2; ``kscale.hpa.api.v1_conversion`` maps v1 to it and back.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kscale.objects.api.meta import ApiStruct, Int32, Int64, KubeObject, LabelSelector, ObjectMeta
from kscale.objects.quantity import Quantity

__all__ = [
    "STATUS_ANNOTATIONS_V1",
    "ContainerResourceMetricSource",
    "ContainerResourceMetricStatus",
    "CrossVersionObjectReference",
    "ExternalMetricSource",
    "ExternalMetricStatus",
    "HPAScalingPolicy",
    "HPAScalingRules",
    "HorizontalPodAutoscaler",
    "HorizontalPodAutoscalerBehavior",
    "HorizontalPodAutoscalerCondition",
    "HorizontalPodAutoscalerMeta",
    "HorizontalPodAutoscalerSpec",
    "HorizontalPodAutoscalerSpecV1",
    "HorizontalPodAutoscalerStatus",
    "HorizontalPodAutoscalerStatusV1",
    "HorizontalPodAutoscalerV1",
    "ManagedFields",
    "MetricIdentifier",
    "MetricSpec",
    "MetricStatus",
    "MetricTarget",
    "MetricValueStatus",
    "ObjectMetricSource",
    "ObjectMetricStatus",
    "PodsMetricSource",
    "PodsMetricStatus",
    "ResourceMetricSource",
    "ResourceMetricStatus",
    "Scale",
    "ScaleSpec",
    "ScaleStatus",
]


class CrossVersionObjectReference(ApiStruct):
    """What is scaled, or what an Object metric describes."""

    kind: str = ""
    name: str = ""
    api_version: str = ""


class MetricIdentifier(ApiStruct):
    """A custom or external metric: its name, and which of its series."""

    name: str = ""
    selector: LabelSelector | None = None


class MetricTarget(ApiStruct):
    """``type`` is Utilization, Value or AverageValue; which of the fields counts is said by the metric source."""

    type: str = ""
    value: Quantity | None = None
    average_value: Quantity | None = None
    average_utilization: Int32 | None = None


class ResourceMetricSource(ApiStruct):
    """A resource of all containers of the pods, of their requests or as an average."""

    name: str = ""
    target: MetricTarget = msgspec.field(default_factory=MetricTarget)


class ContainerResourceMetricSource(ApiStruct):
    """The same of one container."""

    name: str = ""
    container: str = ""
    target: MetricTarget = msgspec.field(default_factory=MetricTarget)


class PodsMetricSource(ApiStruct):
    """A metric that every pod has, averaged over the pods."""

    metric: MetricIdentifier = msgspec.field(default_factory=MetricIdentifier)
    target: MetricTarget = msgspec.field(default_factory=MetricTarget)


class ObjectMetricSource(ApiStruct):
    """A metric of one other object."""

    described_object: CrossVersionObjectReference = msgspec.field(default_factory=CrossVersionObjectReference)
    target: MetricTarget = msgspec.field(default_factory=MetricTarget)
    metric: MetricIdentifier = msgspec.field(default_factory=MetricIdentifier)


class ExternalMetricSource(ApiStruct):
    """A metric of no object of the cluster."""

    metric: MetricIdentifier = msgspec.field(default_factory=MetricIdentifier)
    target: MetricTarget = msgspec.field(default_factory=MetricTarget)


class MetricSpec(ApiStruct):
    """One metric to scale by: ``type`` names the source that is filled in."""

    type: str = ""
    object: ObjectMetricSource | None = None
    pods: PodsMetricSource | None = None
    resource: ResourceMetricSource | None = None
    container_resource: ContainerResourceMetricSource | None = None
    external: ExternalMetricSource | None = None


class HPAScalingPolicy(ApiStruct):
    """At most ``value`` pods or percent within ``period_seconds``."""

    type: str = ""
    value: Int32 = 0
    period_seconds: Int32 = 0


class HPAScalingRules(ApiStruct):
    """How fast one direction may go."""

    stabilization_window_seconds: Int32 | None = None
    select_policy: str | None = None
    policies: list[HPAScalingPolicy] | None = None
    tolerance: Quantity | None = None


class HorizontalPodAutoscalerBehavior(ApiStruct):
    """How fast each direction may go; absent: the legacy rules."""

    scale_up: HPAScalingRules | None = None
    scale_down: HPAScalingRules | None = None


class HorizontalPodAutoscalerSpec(ApiStruct):
    """What is scaled, between which sizes, by which metrics."""

    scale_target_ref: CrossVersionObjectReference = msgspec.field(default_factory=CrossVersionObjectReference)
    min_replicas: Int32 | None = None
    max_replicas: Int32 = 0
    metrics: list[MetricSpec] | None = None
    behavior: HorizontalPodAutoscalerBehavior | None = None


class MetricValueStatus(ApiStruct, gc=False):
    """The value read."""

    value: Quantity | None = None
    average_value: Quantity | None = None
    average_utilization: Int32 | None = None


class ResourceMetricStatus(ApiStruct, gc=False):
    """Last value of a resource."""

    name: str = ""
    current: MetricValueStatus = msgspec.field(default_factory=MetricValueStatus)


class ContainerResourceMetricStatus(ApiStruct):
    """Last value of a resource of one container."""

    name: str = ""
    current: MetricValueStatus = msgspec.field(default_factory=MetricValueStatus)
    container: str = ""


class PodsMetricStatus(ApiStruct):
    """Last value of a metric of the pods."""

    metric: MetricIdentifier = msgspec.field(default_factory=MetricIdentifier)
    current: MetricValueStatus = msgspec.field(default_factory=MetricValueStatus)


class ObjectMetricStatus(ApiStruct):
    """Last value of a metric of an object."""

    metric: MetricIdentifier = msgspec.field(default_factory=MetricIdentifier)
    current: MetricValueStatus = msgspec.field(default_factory=MetricValueStatus)
    described_object: CrossVersionObjectReference = msgspec.field(default_factory=CrossVersionObjectReference)


class ExternalMetricStatus(ApiStruct):
    """Last value of an external metric."""

    metric: MetricIdentifier = msgspec.field(default_factory=MetricIdentifier)
    current: MetricValueStatus = msgspec.field(default_factory=MetricValueStatus)


class MetricStatus(ApiStruct, gc=False):
    """What was last read of one metric; a blank one (type ``""``, which is written too) stands for a metric that
    failed."""

    type: str = msgspec.field(default_factory=str)
    object: ObjectMetricStatus | None = None
    pods: PodsMetricStatus | None = None
    resource: ResourceMetricStatus | None = None
    container_resource: ContainerResourceMetricStatus | None = None
    external: ExternalMetricStatus | None = None


class HorizontalPodAutoscalerCondition(ApiStruct, gc=False):
    """AbleToScale, ScalingActive, ScalingLimited or ScaledToZero; ``observed_generation``: of the object, when it was
    set."""

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""
    observed_generation: Int64 | None = None


class HorizontalPodAutoscalerStatus(ApiStruct):
    """What the controller last saw and wrote."""

    observed_generation: Int64 | None = None
    last_scale_time: str | None = None
    current_replicas: Int32 = 0
    desired_replicas: Int32 = 0
    current_metrics: list[MetricStatus] | None = None
    conditions: list[HorizontalPodAutoscalerCondition] | None = None


class ManagedFields(ApiStruct):
    """Who wrote last, and when (``managedFields``, without the fields)."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    time: str | None = None


class HorizontalPodAutoscalerMeta(ObjectMeta):
    """Besides, who wrote it: two controllers of one HPA fight."""

    managed_fields: list[ManagedFields] = []


class HorizontalPodAutoscaler(KubeObject):
    """autoscaling/v2."""

    metadata: HorizontalPodAutoscalerMeta = msgspec.field(default_factory=HorizontalPodAutoscalerMeta)
    api_version: str = "autoscaling/v2"
    kind: str = "HorizontalPodAutoscaler"
    spec: HorizontalPodAutoscalerSpec = msgspec.field(default_factory=HorizontalPodAutoscalerSpec)
    status: HorizontalPodAutoscalerStatus = msgspec.field(default_factory=HorizontalPodAutoscalerStatus)


class HorizontalPodAutoscalerSpecV1(ApiStruct):
    """As v2, with cpu utilisation as the only metric in a field."""

    scale_target_ref: CrossVersionObjectReference = msgspec.field(default_factory=CrossVersionObjectReference)
    min_replicas: Int32 | None = None
    max_replicas: Int32 = 0
    target_cpu_utilization_percentage: Int32 | None = msgspec.field(default=None, name="targetCPUUtilizationPercentage")


class HorizontalPodAutoscalerStatusV1(ApiStruct):
    """As v2, with cpu utilisation as the only value in a field."""

    observed_generation: Int64 | None = None
    last_scale_time: str | None = None
    current_replicas: Int32 = 0
    desired_replicas: Int32 = 0
    current_cpu_utilization_percentage: Int32 | None = msgspec.field(
        default=None, name="currentCPUUtilizationPercentage"
    )


STATUS_ANNOTATIONS_V1: Final = (
    "autoscaling.alpha.kubernetes.io/current-metrics",
    "autoscaling.alpha.kubernetes.io/conditions",
)
"""Annotations of a v1 object that its status has no field for; the API server keeps them as the status."""


class HorizontalPodAutoscalerV1(KubeObject):
    """autoscaling/v1: cpu utilisation in fields, everything else in annotations."""

    api_version: str = "autoscaling/v1"
    kind: str = "HorizontalPodAutoscaler"
    metadata: HorizontalPodAutoscalerMeta = msgspec.field(default_factory=HorizontalPodAutoscalerMeta)
    spec: HorizontalPodAutoscalerSpecV1 = msgspec.field(default_factory=HorizontalPodAutoscalerSpecV1)
    status: HorizontalPodAutoscalerStatusV1 = msgspec.field(default_factory=HorizontalPodAutoscalerStatusV1)


class ScaleSpec(ApiStruct):
    """The size asked for."""

    replicas: Int32 = 0


class ScaleStatus(ApiStruct):
    """The size there is, and which pods are counted."""

    replicas: Int32 = 0
    selector: str = ""


class Scale(KubeObject):
    """autoscaling/v1: the only thing the HPA reads of a target and writes to it."""

    api_version: str = "autoscaling/v1"
    kind: str = "Scale"
    spec: ScaleSpec = msgspec.field(default_factory=ScaleSpec)
    status: ScaleStatus = msgspec.field(default_factory=ScaleStatus)
