"""Reading what autoscaling/v1 has no field for from JSON in annotations: metrics, their statuses, conditions, behavior.

Upstream: ``pkg/apis/autoscaling/annotations.go`` and the v1 shapes in ``k8s.io/api/autoscaling/v1``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kscale.objects.autoscaling import (
    STATUS_ANNOTATIONS_V1,
    ContainerResourceMetricSource,
    ContainerResourceMetricStatus,
    CrossVersionObjectReference,
    ExternalMetricSource,
    ExternalMetricStatus,
    HorizontalPodAutoscalerBehavior,
    HorizontalPodAutoscalerCondition,
    HPAScalingPolicy,
    HPAScalingRules,
    MetricIdentifier,
    MetricSpec,
    MetricStatus,
    MetricTarget,
    MetricValueStatus,
    ObjectMetricSource,
    ObjectMetricStatus,
    PodsMetricSource,
    PodsMetricStatus,
    ResourceMetricSource,
    ResourceMetricStatus,
)
from kscale.objects.base import ApiStruct, dec_hook
from kscale.objects.meta import LabelSelector
from kscale.objects.quantity import Quantity

__all__ = [
    "ANNOTATIONS",
    "BEHAVIOR",
    "CONDITIONS",
    "CURRENT_METRICS",
    "METRICS",
    "read_behavior",
    "read_conditions",
    "read_current_metrics",
    "read_metrics",
]

_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
METRICS: Final = f"{_PREFIX}metrics"
CURRENT_METRICS, CONDITIONS = STATUS_ANNOTATIONS_V1
BEHAVIOR: Final = f"{_PREFIX}behavior"
ANNOTATIONS: Final = (
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    f"{_PREFIX}scale-down-tolerance",
    f"{_PREFIX}scale-up-tolerance",
)
"""All annotations that conversion writes or strips."""


# -- the shapes inside the annotations (fields in upstream's order) --------------------------------------------


class _Object(ApiStruct):
    target: CrossVersionObjectReference = msgspec.field(default_factory=CrossVersionObjectReference)
    metric_name: str = ""
    target_value: Quantity = msgspec.field(default_factory=Quantity.zero)
    current_value: Quantity = msgspec.field(default_factory=Quantity.zero)
    selector: LabelSelector | None = None
    average_value: Quantity | None = None


class _Pods(ApiStruct):
    metric_name: str = ""
    target_average_value: Quantity = msgspec.field(default_factory=Quantity.zero)
    current_average_value: Quantity = msgspec.field(default_factory=Quantity.zero)
    selector: LabelSelector | None = None


class _Resource(ApiStruct):
    name: str = ""
    target_average_utilization: int | None = None
    target_average_value: Quantity | None = None
    current_average_utilization: int | None = None
    current_average_value: Quantity | None = None
    container: str = ""


class _External(ApiStruct):
    metric_name: str = ""
    metric_selector: LabelSelector | None = None
    target_value: Quantity | None = None
    target_average_value: Quantity | None = None
    current_value: Quantity | None = None
    current_average_value: Quantity | None = None


class _Metric(ApiStruct):
    type: str = ""
    object: _Object | None = None
    pods: _Pods | None = None
    resource: _Resource | None = None
    container_resource: _Resource | None = None
    external: _External | None = None


_Type = type[Any]
_CASED: Final = frozenset({"matchlabels"})  # maps whose keys are not field names


def _read(text: str | None, type_: _Type) -> Any:
    """An annotation as Go reads it, keys in any case; None where it does not parse."""
    if text is None:
        return None
    try:
        return msgspec.convert(_spelled(json.loads(text)), type_, dec_hook=dec_hook)
    except (ValueError, RecursionError):  # msgspec's ValidationError is a ValueError
        return None


def _spelled(data: Any) -> Any:
    """Keys as the structs spell them, nulls left out."""
    names = _field_names()
    if isinstance(data, list):
        return [_spelled(each) for each in data if each is not None]
    if isinstance(data, dict):
        out = {}
        for key, value in data.items():
            lower = key.lower()
            if value is not None:
                out[names.get(lower, key)] = value if lower in _CASED else _spelled(value)
        return out
    return data


_NAMES: dict[str, str] = {}


def _field_names() -> dict[str, str]:
    if not _NAMES:
        known: tuple[type[msgspec.Struct], ...] = (
            _Metric,
            _Object,
            _Pods,
            _Resource,
            _External,
            CrossVersionObjectReference,
            LabelSelector,
            HorizontalPodAutoscalerCondition,
            HorizontalPodAutoscalerBehavior,
            HPAScalingRules,
            HPAScalingPolicy,
        )
        for struct in known:
            for field in msgspec.structs.fields(struct):
                _NAMES[field.encode_name.lower()] = field.encode_name
        _NAMES.update({name: name for name in ("key", "operator", "values")})
    return _NAMES


# -- reading -------------------------------------------------------------------------------------------------------


def read_metrics(annotations: Mapping[str, str]) -> list[MetricSpec]:
    """Metric specs; none where they cannot be read."""
    return [_spec(each) for each in _read(annotations.get(METRICS), list[_Metric]) or []]


def read_current_metrics(annotations: Mapping[str, str]) -> list[MetricStatus]:
    """Metric statuses; none where they cannot be read."""
    return [_status(each) for each in _read(annotations.get(CURRENT_METRICS), list[_Metric]) or []]


def read_conditions(annotations: Mapping[str, str]) -> list[HorizontalPodAutoscalerCondition]:
    """Conditions; none where they cannot be read."""
    return _read(annotations.get(CONDITIONS), list[HorizontalPodAutoscalerCondition]) or []


def read_behavior(annotations: Mapping[str, str]) -> HorizontalPodAutoscalerBehavior | None:
    """The behavior; an empty one is none."""
    behavior: HorizontalPodAutoscalerBehavior | None = _read(annotations.get(BEHAVIOR), HorizontalPodAutoscalerBehavior)
    return None if behavior == HorizontalPodAutoscalerBehavior() else behavior


def _identifier(source: _Object | _Pods) -> MetricIdentifier:
    return MetricIdentifier(name=source.metric_name, selector=source.selector)


def _resource_target(source: _Resource) -> MetricTarget:
    kind = "AverageValue" if source.target_average_utilization is None else "Utilization"
    return MetricTarget(
        type=kind,
        average_utilization=source.target_average_utilization,
        average_value=source.target_average_value,
    )


def _spec(metric: _Metric) -> MetricSpec:
    out = MetricSpec(type=metric.type)
    if metric.object is not None:
        of = metric.object
        if of.average_value is not None:
            value = None if of.target_value.is_zero else of.target_value
            target = MetricTarget(type="AverageValue", value=value, average_value=of.average_value)
        else:
            target = MetricTarget(type="Value", value=of.target_value)
        out.object = ObjectMetricSource(described_object=of.target, target=target, metric=_identifier(of))
    if metric.pods is not None:
        target = MetricTarget(type="AverageValue", average_value=metric.pods.target_average_value)
        out.pods = PodsMetricSource(metric=_identifier(metric.pods), target=target)
    if metric.resource is not None:
        out.resource = ResourceMetricSource(name=metric.resource.name, target=_resource_target(metric.resource))
    if metric.container_resource is not None:
        source = metric.container_resource
        out.container_resource = ContainerResourceMetricSource(
            name=source.name, container=source.container, target=_resource_target(source)
        )
    if metric.external is not None:
        ext = metric.external
        kind = "AverageValue" if ext.target_value is None else "Value"
        target = MetricTarget(type=kind, value=ext.target_value, average_value=ext.target_average_value)
        identifier = MetricIdentifier(name=ext.metric_name, selector=ext.metric_selector)
        out.external = ExternalMetricSource(metric=identifier, target=target)
    return out


def _status(metric: _Metric) -> MetricStatus:
    out = MetricStatus(type=metric.type)
    if metric.object is not None:
        of = metric.object
        current = MetricValueStatus(value=of.current_value, average_value=of.average_value)
        out.object = ObjectMetricStatus(described_object=of.target, current=current, metric=_identifier(of))
    if metric.pods is not None:
        current = MetricValueStatus(average_value=metric.pods.current_average_value)
        out.pods = PodsMetricStatus(metric=_identifier(metric.pods), current=current)
    if metric.resource is not None:
        out.resource = ResourceMetricStatus(name=metric.resource.name, current=_resource_value(metric.resource))
    if metric.container_resource is not None:
        source = metric.container_resource
        out.container_resource = ContainerResourceMetricStatus(
            name=source.name, container=source.container, current=_resource_value(source)
        )
    if metric.external is not None:
        ext = metric.external
        current = MetricValueStatus(value=ext.current_value or Quantity.zero(), average_value=ext.current_average_value)
        identifier = MetricIdentifier(name=ext.metric_name, selector=ext.metric_selector)
        out.external = ExternalMetricStatus(metric=identifier, current=current)
    return out


def _resource_value(source: _Resource) -> MetricValueStatus:
    return MetricValueStatus(
        average_utilization=source.current_average_utilization,
        average_value=source.current_average_value or Quantity.zero(),
    )
