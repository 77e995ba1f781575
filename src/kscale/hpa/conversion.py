"""autoscaling/v1 to v2 and back: what v1 has no field for rides in annotations, as JSON.

Upstream: ``pkg/apis/autoscaling/v1/conversion.go`` and ``pkg/apis/autoscaling/annotations.go``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kscale.hpa.defaults import cpu_metric
from kscale.objects.autoscaling import (
    ContainerResourceMetricSource,
    ContainerResourceMetricStatus,
    CrossVersionObjectReference,
    ExternalMetricSource,
    ExternalMetricStatus,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerBehavior,
    HorizontalPodAutoscalerCondition,
    HorizontalPodAutoscalerSpec,
    HorizontalPodAutoscalerSpecV1,
    HorizontalPodAutoscalerStatus,
    HorizontalPodAutoscalerStatusV1,
    HorizontalPodAutoscalerV1,
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
from kscale.objects.meta import LabelSelector, ObjectMeta
from kscale.objects.quantity import Quantity

__all__ = ["ANNOTATIONS", "from_v1", "strip_annotations", "to_v1"]

_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
METRICS: Final = f"{_PREFIX}metrics"
CURRENT_METRICS: Final = f"{_PREFIX}current-metrics"
CONDITIONS: Final = f"{_PREFIX}conditions"
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


# -- v1 to v2 --------------------------------------------------------------------------------------------------


def from_v1(old: HorizontalPodAutoscalerV1) -> HorizontalPodAutoscaler:
    """The v2 object. Annotations that cannot be read are dropped without an error, as upstream does."""
    annotations = old.metadata.annotations or {}
    metrics = [_spec(each) for each in _read(annotations.get(METRICS), list[_Metric]) or []]
    if old.spec.target_cpu_utilization_percentage is not None:
        metrics.append(cpu_metric(old.spec.target_cpu_utilization_percentage))
    behavior = _read(annotations.get(BEHAVIOR), HorizontalPodAutoscalerBehavior)
    if behavior == HorizontalPodAutoscalerBehavior():
        behavior = None
    statuses = [_status(each) for each in _read(annotations.get(CURRENT_METRICS), list[_Metric]) or []]
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
            behavior=behavior,
        ),
        status=HorizontalPodAutoscalerStatus(
            observed_generation=old.status.observed_generation,
            last_scale_time=old.status.last_scale_time,
            current_replicas=old.status.current_replicas,
            desired_replicas=old.status.desired_replicas,
            current_metrics=statuses or None,
            conditions=_read(annotations.get(CONDITIONS), list[HorizontalPodAutoscalerCondition]) or None,
        ),
    )


def strip_annotations(metadata: ObjectMeta) -> ObjectMeta:
    """Without the annotations that only v1 objects carry."""
    if metadata.annotations is None:
        return metadata
    kept = {key: value for key, value in metadata.annotations.items() if key not in ANNOTATIONS}
    return replace(metadata, annotations=kept or None)


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
        identifier = MetricIdentifier(name=of.metric_name, selector=of.selector)
        out.object = ObjectMetricSource(described_object=of.target, target=target, metric=identifier)
    if metric.pods is not None:
        target = MetricTarget(type="AverageValue", average_value=metric.pods.target_average_value)
        identifier = MetricIdentifier(name=metric.pods.metric_name, selector=metric.pods.selector)
        out.pods = PodsMetricSource(metric=identifier, target=target)
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
        identifier = MetricIdentifier(name=of.metric_name, selector=of.selector)
        out.object = ObjectMetricStatus(described_object=of.target, current=current, metric=identifier)
    if metric.pods is not None:
        current = MetricValueStatus(average_value=metric.pods.current_average_value)
        identifier = MetricIdentifier(name=metric.pods.metric_name, selector=metric.pods.selector)
        out.pods = PodsMetricStatus(metric=identifier, current=current)
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


# -- v2 to v1 --------------------------------------------------------------------------------------------------


def to_v1(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscalerV1:
    """The same object as v1. Of several cpu utilisation metrics only the first survives, as upstream has it."""
    annotations = dict(strip_annotations(hpa.metadata).annotations or {})
    cpu = None
    for spec in hpa.spec.metrics or ():
        if _is_cpu_utilization(spec) and spec.resource is not None:
            cpu = spec.resource.target.average_utilization
            break
    others = [_spec_v1(spec) for spec in hpa.spec.metrics or () if not _is_cpu_utilization(spec)]
    if others:
        annotations[METRICS] = _json(others)
    current = None
    for status in hpa.status.current_metrics or ():
        if status.type == "Resource" and status.resource is not None and status.resource.name == "cpu":
            current = status.resource.current.average_utilization
    if hpa.status.current_metrics:
        annotations[CURRENT_METRICS] = _json([_status_v1(each) for each in hpa.status.current_metrics])
    if hpa.status.conditions:
        annotations[CONDITIONS] = _json([_condition_v1(each) for each in hpa.status.conditions])
    if hpa.spec.behavior is not None:
        annotations[BEHAVIOR] = _json(_behavior_v1(hpa.spec.behavior))
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


def _json(value: Any) -> str:
    """As Go's encoder writes it: no blanks, and what HTML minds is escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _some(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is absent (``omitempty``)."""
    return {key: value for key, value in fields.items() if value is not None}


def _text(quantity: Quantity | None) -> str | None:
    return None if quantity is None else str(quantity)


def _zero(quantity: Quantity | None) -> str:
    return "0" if quantity is None else str(quantity)


def _reference(reference: CrossVersionObjectReference) -> dict[str, Any]:
    return {
        "kind": reference.kind,
        "name": reference.name,
        **({"apiVersion": reference.api_version} if reference.api_version else {}),
    }


def _selector(selector: LabelSelector | None) -> dict[str, Any] | None:
    if selector is None:
        return None
    labels = dict(sorted((selector.match_labels or {}).items()))
    expressions = [
        {"key": each.key, "operator": each.operator, **({"values": each.values} if each.values else {})}
        for each in selector.match_expressions
    ]
    return _some({"matchLabels": labels or None, "matchExpressions": expressions or None})


def _spec_v1(spec: MetricSpec) -> dict[str, Any]:
    out: dict[str, Any] = {"type": spec.type}
    if spec.object is not None:
        of = spec.object
        out["object"] = {
            "target": _reference(of.described_object),
            "metricName": of.metric.name,
            "targetValue": _zero(of.target.value),
            **_some({"selector": _selector(of.metric.selector), "averageValue": _text(of.target.average_value)}),
        }
    if spec.pods is not None:
        out["pods"] = {
            "metricName": spec.pods.metric.name,
            "targetAverageValue": _zero(spec.pods.target.average_value),
            **_some({"selector": _selector(spec.pods.metric.selector)}),
        }
    if spec.resource is not None:
        out["resource"] = {"name": spec.resource.name, **_resource_v1("target", spec.resource.target)}
    if spec.container_resource is not None:
        source = spec.container_resource
        out["containerResource"] = {
            "name": source.name,
            **_resource_v1("target", source.target),
            "container": source.container,
        }
    if spec.external is not None:
        ext = spec.external
        out["external"] = {
            "metricName": ext.metric.name,
            **_some(
                {
                    "metricSelector": _selector(ext.metric.selector),
                    "targetValue": _text(ext.target.value),
                    "targetAverageValue": _text(ext.target.average_value),
                }
            ),
        }
    return out


def _resource_v1(prefix: str, values: MetricTarget | MetricValueStatus) -> dict[str, Any]:
    return _some(
        {
            f"{prefix}AverageUtilization": values.average_utilization,
            f"{prefix}AverageValue": _text(values.average_value),
        }
    )


def _status_v1(status: MetricStatus) -> dict[str, Any]:
    out: dict[str, Any] = {"type": status.type}
    if status.object is not None:
        of = status.object
        out["object"] = {
            "target": _reference(of.described_object),
            "metricName": of.metric.name,
            "currentValue": _zero(of.current.value),
            **_some({"selector": _selector(of.metric.selector), "averageValue": _text(of.current.average_value)}),
        }
    if status.pods is not None:
        out["pods"] = {
            "metricName": status.pods.metric.name,
            "currentAverageValue": _zero(status.pods.current.average_value),
            **_some({"selector": _selector(status.pods.metric.selector)}),
        }
    if status.resource is not None:
        out["resource"] = {"name": status.resource.name, **_resource_status_v1(status.resource.current)}
    if status.container_resource is not None:
        source = status.container_resource
        out["containerResource"] = {
            "name": source.name,
            **_resource_status_v1(source.current),
            "container": source.container,
        }
    if status.external is not None:
        ext = status.external
        out["external"] = {
            "metricName": ext.metric.name,
            **_some({"metricSelector": _selector(ext.metric.selector)}),
            "currentValue": _zero(ext.current.value),
            **_some({"currentAverageValue": _text(ext.current.average_value)}),
        }
    return out


def _resource_status_v1(current: MetricValueStatus) -> dict[str, Any]:
    return {
        **_some({"currentAverageUtilization": current.average_utilization}),
        "currentAverageValue": _zero(current.average_value),
    }


def _condition_v1(condition: HorizontalPodAutoscalerCondition) -> dict[str, Any]:
    return {
        "type": condition.type,
        "status": condition.status,
        "lastTransitionTime": condition.last_transition_time,
        **({"reason": condition.reason} if condition.reason else {}),
        **({"message": condition.message} if condition.message else {}),
    }


def _behavior_v1(behavior: HorizontalPodAutoscalerBehavior) -> dict[str, Any]:
    """With the field names of Go's internal type, and every field."""
    return {"ScaleUp": _rules_v1(behavior.scale_up), "ScaleDown": _rules_v1(behavior.scale_down)}


def _rules_v1(rules: HPAScalingRules | None) -> dict[str, Any] | None:
    if rules is None:
        return None
    policies = rules.policies
    return {
        "StabilizationWindowSeconds": rules.stabilization_window_seconds,
        "SelectPolicy": rules.select_policy,
        "Policies": None
        if policies is None
        else [{"Type": each.type, "Value": each.value, "PeriodSeconds": each.period_seconds} for each in policies],
        "Tolerance": _text(rules.tolerance),
    }
