"""HorizontalPodAutoscaler (autoscaling/v2 and v1) and Scale.

Upstream: ``k8s.io/api/autoscaling``. Decisions work on v2; ``kscale.hpa.api.v1_conversion`` maps v1 to it and back.
"""

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
    """The object to scale, or the object that an Object metric describes."""

    kind: str = ""
    name: str = ""
    api_version: str = ""


class MetricIdentifier(ApiStruct):
    """A custom or external metric: its name, and a selector of its series."""

    name: str = ""
    selector: LabelSelector | None = None


class MetricTarget(ApiStruct):
    """A target value. ``type`` is Utilization, Value or AverageValue; the metric source says which fields count."""

    type: str = ""
    value: Quantity | None = None
    average_value: Quantity | None = None
    average_utilization: Int32 | None = None


class ResourceMetricSource(ApiStruct):
    """A resource of all containers of the pods, as a percentage of requests or an average."""

    name: str = ""
    target: MetricTarget = msgspec.field(default_factory=MetricTarget)


class ContainerResourceMetricSource(ApiStruct):
    """A resource of one container of the pods, as a percentage of requests or an average."""

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
    """A metric that belongs to no object of the cluster."""

    metric: MetricIdentifier = msgspec.field(default_factory=MetricIdentifier)
    target: MetricTarget = msgspec.field(default_factory=MetricTarget)


class MetricSpec(ApiStruct):
    """A metric to scale on. ``type`` names the source that is set."""

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
    """Limits on the speed of scaling in one direction."""

    stabilization_window_seconds: Int32 | None = None
    select_policy: str | None = None
    policies: list[HPAScalingPolicy] | None = None
    tolerance: Quantity | None = None


class HorizontalPodAutoscalerBehavior(ApiStruct):
    """Limits on the speed of scaling in both directions. Absent: the legacy rules."""

    scale_up: HPAScalingRules | None = None
    scale_down: HPAScalingRules | None = None


class HorizontalPodAutoscalerSpec(ApiStruct):
    """The target, its minimum and maximum size, and the metrics."""

    scale_target_ref: CrossVersionObjectReference = msgspec.field(default_factory=CrossVersionObjectReference)
    min_replicas: Int32 | None = None
    max_replicas: Int32 = 0
    metrics: list[MetricSpec] | None = None
    behavior: HorizontalPodAutoscalerBehavior | None = None


class MetricValueStatus(ApiStruct, gc=False):
    """The current value of a metric."""

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
    """The last value of one metric. A failed metric has an empty ``type``, which is written too."""

    type: str = msgspec.field(default_factory=str)
    object: ObjectMetricStatus | None = None
    pods: PodsMetricStatus | None = None
    resource: ResourceMetricStatus | None = None
    container_resource: ContainerResourceMetricStatus | None = None
    external: ExternalMetricStatus | None = None


class HorizontalPodAutoscalerCondition(ApiStruct, gc=False):
    """AbleToScale, ScalingActive, ScalingLimited or ScaledToZero.

    ``observed_generation`` is the object's generation when the condition was set.
    """

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""
    observed_generation: Int64 | None = None


class HorizontalPodAutoscalerStatus(ApiStruct):
    """State that the controller observed last."""

    observed_generation: Int64 | None = None
    last_scale_time: str | None = None
    current_replicas: Int32 = 0
    desired_replicas: Int32 = 0
    current_metrics: list[MetricStatus] | None = None
    conditions: list[HorizontalPodAutoscalerCondition] | None = None


class ManagedFields(ApiStruct):
    """The last writer and its time (``managedFields`` without the fields)."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    time: str | None = None


class HorizontalPodAutoscalerMeta(ObjectMeta):
    """Metadata with the writers of the object, to detect another controller of the same HPA."""

    managed_fields: list[ManagedFields] = []


class HorizontalPodAutoscaler(KubeObject):
    """A HorizontalPodAutoscaler of autoscaling/v2."""

    metadata: HorizontalPodAutoscalerMeta = msgspec.field(default_factory=HorizontalPodAutoscalerMeta)
    api_version: str = "autoscaling/v2"
    kind: str = "HorizontalPodAutoscaler"
    spec: HorizontalPodAutoscalerSpec = msgspec.field(default_factory=HorizontalPodAutoscalerSpec)
    status: HorizontalPodAutoscalerStatus = msgspec.field(default_factory=HorizontalPodAutoscalerStatus)


class HorizontalPodAutoscalerSpecV1(ApiStruct):
    """A spec of autoscaling/v1, whose only metric in a field is CPU utilization."""

    scale_target_ref: CrossVersionObjectReference = msgspec.field(default_factory=CrossVersionObjectReference)
    min_replicas: Int32 | None = None
    max_replicas: Int32 = 0
    target_cpu_utilization_percentage: Int32 | None = msgspec.field(default=None, name="targetCPUUtilizationPercentage")


class HorizontalPodAutoscalerStatusV1(ApiStruct):
    """A status of autoscaling/v1, whose only value in a field is CPU utilization."""

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
    """A HorizontalPodAutoscaler of autoscaling/v1, with all but CPU utilization in annotations."""

    api_version: str = "autoscaling/v1"
    kind: str = "HorizontalPodAutoscaler"
    metadata: HorizontalPodAutoscalerMeta = msgspec.field(default_factory=HorizontalPodAutoscalerMeta)
    spec: HorizontalPodAutoscalerSpecV1 = msgspec.field(default_factory=HorizontalPodAutoscalerSpecV1)
    status: HorizontalPodAutoscalerStatusV1 = msgspec.field(default_factory=HorizontalPodAutoscalerStatusV1)


class ScaleSpec(ApiStruct):
    """The requested size."""

    replicas: Int32 = 0


class ScaleStatus(ApiStruct):
    """The current size, and the selector of the pods that count."""

    replicas: Int32 = 0
    selector: str = ""


class Scale(KubeObject):
    """The ``/scale`` subresource (autoscaling/v1), through which the HPA reads and writes a target."""

    api_version: str = "autoscaling/v1"
    kind: str = "Scale"
    spec: ScaleSpec = msgspec.field(default_factory=ScaleSpec)
    status: ScaleStatus = msgspec.field(default_factory=ScaleStatus)
