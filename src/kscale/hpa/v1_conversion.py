"""autoscaling/v1 to v2 and back: what v1 has no field for rides in annotations (:mod:`~kscale.hpa.v1_reading`,
:mod:`~kscale.hpa.v1_writing`).

Upstream: ``pkg/apis/autoscaling/v1/conversion.go``.
"""

from __future__ import annotations

from msgspec.structs import replace

from kscale.hpa.defaults import cpu_metric
from kscale.hpa.v1_reading import (
    ANNOTATIONS,
    read_behavior,
    read_conditions,
    read_current_metrics,
    read_metrics,
)
from kscale.hpa.v1_writing import write
from kscale.objects.argument_types import typed
from kscale.objects.autoscaling import (
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerMeta,
    HorizontalPodAutoscalerSpec,
    HorizontalPodAutoscalerSpecV1,
    HorizontalPodAutoscalerStatus,
    HorizontalPodAutoscalerStatusV1,
    HorizontalPodAutoscalerV1,
    MetricSpec,
    MetricStatus,
    MetricValueStatus,
    ResourceMetricStatus,
)

__all__ = ["from_v1", "strip_annotations", "to_v1"]


@typed
def from_v1(old: HorizontalPodAutoscalerV1) -> HorizontalPodAutoscaler:
    """The v2 object of a v1 one, ``old``. Annotations that cannot be read are dropped without an error, as upstream
    does."""
    annotations = old.metadata.annotations or {}
    metrics = read_metrics(annotations)
    if old.spec.target_cpu_utilization_percentage is not None:
        metrics.append(cpu_metric(old.spec.target_cpu_utilization_percentage))
    statuses = read_current_metrics(annotations)
    if not statuses and old.status.current_cpu_utilization_percentage is not None:
        current = MetricValueStatus(average_utilization=old.status.current_cpu_utilization_percentage)
        statuses = [MetricStatus(type="Resource", resource=ResourceMetricStatus(name="cpu", current=current))]
    return HorizontalPodAutoscaler(
        metadata=strip_annotations(old.metadata),
        spec=HorizontalPodAutoscalerSpec(
            scale_target_ref=old.spec.scale_target_ref,
            min_replicas=1 if old.spec.min_replicas is None else old.spec.min_replicas,
            max_replicas=old.spec.max_replicas,
            metrics=metrics or [cpu_metric()],
            behavior=read_behavior(annotations),
        ),
        status=HorizontalPodAutoscalerStatus(
            observed_generation=old.status.observed_generation,
            last_scale_time=old.status.last_scale_time,
            current_replicas=old.status.current_replicas,
            desired_replicas=old.status.desired_replicas,
            current_metrics=statuses or None,
            conditions=read_conditions(annotations) or None,
        ),
    )


def strip_annotations(metadata: HorizontalPodAutoscalerMeta) -> HorizontalPodAutoscalerMeta:
    """Without the annotations that only v1 objects carry."""
    if metadata.annotations is None:
        return metadata
    kept = {key: value for key, value in metadata.annotations.items() if key not in ANNOTATIONS}
    return replace(metadata, annotations=kept or None)


@typed
def to_v1(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscalerV1:
    """The same object as v1. Of several cpu utilisation metrics only the first survives, as upstream has it."""
    annotations = dict(strip_annotations(hpa.metadata).annotations or {})
    cpu = None
    for spec in hpa.spec.metrics or ():
        if _is_cpu_utilization(spec) and spec.resource is not None:
            cpu = spec.resource.target.average_utilization
            break
    current = None
    for status in hpa.status.current_metrics or ():
        if status.type == "Resource" and status.resource is not None and status.resource.name == "cpu":
            current = status.resource.current.average_utilization
    annotations |= write(
        [spec for spec in hpa.spec.metrics or () if not _is_cpu_utilization(spec)], hpa.spec.behavior, hpa.status
    )
    return HorizontalPodAutoscalerV1(
        metadata=replace(hpa.metadata, annotations=annotations or None),
        spec=HorizontalPodAutoscalerSpecV1(
            scale_target_ref=hpa.spec.scale_target_ref,
            min_replicas=hpa.spec.min_replicas,
            max_replicas=hpa.spec.max_replicas,
            target_cpu_utilization_percentage=cpu,
        ),
        status=HorizontalPodAutoscalerStatusV1(
            observed_generation=hpa.status.observed_generation,
            last_scale_time=hpa.status.last_scale_time,
            current_replicas=hpa.status.current_replicas,
            desired_replicas=hpa.status.desired_replicas,
            current_cpu_utilization_percentage=current,
        ),
    )


def _is_cpu_utilization(spec: MetricSpec) -> bool:
    source = spec.resource
    return (
        spec.type == "Resource"
        and source is not None
        and source.name == "cpu"
        and source.target.average_utilization is not None
    )
