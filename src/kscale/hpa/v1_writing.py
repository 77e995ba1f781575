"""Writing what autoscaling/v1 has no field for as JSON into annotations, byte for byte as upstream does.

Upstream: ``pkg/apis/autoscaling/annotations.go`` and the v1 shapes in ``k8s.io/api/autoscaling/v1``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kscale.hpa.v1_reading import BEHAVIOR, CONDITIONS, CURRENT_METRICS, METRICS
from kscale.objects.autoscaling import (
    ContainerResourceMetricSource,
    ContainerResourceMetricStatus,
    CrossVersionObjectReference,
    ExternalMetricSource,
    ExternalMetricStatus,
    HorizontalPodAutoscalerBehavior,
    HorizontalPodAutoscalerCondition,
    HorizontalPodAutoscalerStatus,
    HPAScalingRules,
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
from kscale.objects.meta import LabelSelector
from kscale.objects.quantity import Quantity

__all__ = ["write"]


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
        **_some({"observedGeneration": condition.observed_generation}),
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
