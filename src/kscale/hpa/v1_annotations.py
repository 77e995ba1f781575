"""What autoscaling/v1 has no field for, as JSON in annotations: metrics, their statuses, conditions, behavior.

Upstream: ``pkg/apis/autoscaling/annotations.go`` and the v1 shapes in ``k8s.io/api/autoscaling/v1``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kscale.objects.autoscaling import (
    ContainerResourceMetricSource,
    ContainerResourceMetricStatus,
    CrossVersionObjectReference,
    ExternalMetricSource,
    ExternalMetricStatus,
    HorizontalPodAutoscalerBehavior,
    HorizontalPodAutoscalerCondition,
    HorizontalPodAutoscalerStatus,
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

__all__ = ["ANNOTATIONS", "read_behavior", "read_conditions", "read_current_metrics", "read_metrics", "write"]

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


# -- writing -------------------------------------------------------------------------------------------------------


def write(
    metrics: Sequence[MetricSpec],
    behavior: HorizontalPodAutoscalerBehavior | None,
    status: HorizontalPodAutoscalerStatus,
) -> dict[str, str]:
    """The annotations, in upstream's order; what is absent has none."""
    out = {}
    if metrics:
        out[METRICS] = _json([_metric_v1(each) for each in metrics])
    if status.current_metrics:
        out[CURRENT_METRICS] = _json([_metric_v1(each) for each in status.current_metrics])
    if status.conditions:
        out[CONDITIONS] = _json([_condition_v1(each) for each in status.conditions])
    if behavior is not None:
        out[BEHAVIOR] = _json(_behavior_v1(behavior))
    return out


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


_Sources = (
    ObjectMetricSource
    | ObjectMetricStatus
    | PodsMetricSource
    | PodsMetricStatus
    | ResourceMetricSource
    | ResourceMetricStatus
    | ContainerResourceMetricSource
    | ContainerResourceMetricStatus
    | ExternalMetricSource
    | ExternalMetricStatus
)


def _values(source: _Sources) -> tuple[str, MetricTarget | MetricValueStatus]:
    """What the fields of a spec or of a status begin with, and their values."""
    if isinstance(
        source,
        (
            ObjectMetricSource,
            PodsMetricSource,
            ResourceMetricSource,
            ContainerResourceMetricSource,
            ExternalMetricSource,
        ),
    ):
        return "target", source.target
    return "current", source.current


def _metric_v1(metric: MetricSpec | MetricStatus) -> dict[str, Any]:
    """A metric's spec or status: flat, and alike but for ``target`` and ``current`` in the names."""
    out: dict[str, Any] = {"type": metric.type}
    if metric.object is not None:
        of, (prefix, values) = metric.object, _values(metric.object)
        out["object"] = {
            "target": _reference(of.described_object),
            "metricName": of.metric.name,
            f"{prefix}Value": _zero(values.value),
            **_some({"selector": _selector(of.metric.selector), "averageValue": _text(values.average_value)}),
        }
    if metric.pods is not None:
        prefix, values = _values(metric.pods)
        out["pods"] = {
            "metricName": metric.pods.metric.name,
            f"{prefix}AverageValue": _zero(values.average_value),
            **_some({"selector": _selector(metric.pods.metric.selector)}),
        }
    if metric.resource is not None:
        out["resource"] = {"name": metric.resource.name, **_resource_v1(metric.resource)}
    if metric.container_resource is not None:
        source = metric.container_resource
        out["containerResource"] = {"name": source.name, **_resource_v1(source), "container": source.container}
    if metric.external is not None:
        prefix, values = _values(metric.external)
        # The value of a status is always written, that of a spec where it is set.
        value = _zero(values.value) if prefix == "current" else _text(values.value)
        out["external"] = {
            "metricName": metric.external.metric.name,
            **_some(
                {
                    "metricSelector": _selector(metric.external.metric.selector),
                    f"{prefix}Value": value,
                    f"{prefix}AverageValue": _text(values.average_value),
                }
            ),
        }
    return out


def _resource_v1(
    source: ResourceMetricSource | ResourceMetricStatus | ContainerResourceMetricSource | ContainerResourceMetricStatus,
) -> dict[str, Any]:
    prefix, values = _values(source)
    value = _zero(values.average_value) if prefix == "current" else _text(values.average_value)
    return _some({f"{prefix}AverageUtilization": values.average_utilization, f"{prefix}AverageValue": value})


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
