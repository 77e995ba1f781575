"""Convert autoscaling/v1 to v2 and back. Fields that v1 lacks are stored as JSON in annotations.

Upstream: ``pkg/apis/autoscaling/v1/conversion.go``, ``pkg/apis/autoscaling/annotations.go`` and the v1 types in
``k8s.io/api/autoscaling/v1``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kscale.hpa.api.validation import build_cpu_metric
from kscale.objects.api.autoscaling import (
    STATUS_ANNOTATIONS_V1,
    ContainerResourceMetricSource,
    ContainerResourceMetricStatus,
    CrossVersionObjectReference,
    ExternalMetricSource,
    ExternalMetricStatus,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerBehavior,
    HorizontalPodAutoscalerCondition,
    HorizontalPodAutoscalerMeta,
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
from kscale.objects.api.meta import ApiStruct, LabelSelector
from kscale.objects.argument_types import typed
from kscale.objects.decode import dec_hook
from kscale.objects.quantity import Quantity

__all__ = [
    "BEHAVIOR_ANNOTATION",
    "CONDITIONS_ANNOTATION",
    "CURRENT_METRICS_ANNOTATION",
    "METRICS_ANNOTATION",
    "V1_ANNOTATIONS",
    "from_v1",
    "read_behavior",
    "read_conditions",
    "read_current_metrics",
    "read_metrics",
    "strip_v1_annotations",
    "to_v1",
    "write_annotations",
]


_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
METRICS_ANNOTATION: Final = f"{_PREFIX}metrics"
CURRENT_METRICS_ANNOTATION, CONDITIONS_ANNOTATION = STATUS_ANNOTATIONS_V1
BEHAVIOR_ANNOTATION: Final = f"{_PREFIX}behavior"
V1_ANNOTATIONS: Final = (
    METRICS_ANNOTATION,
    CURRENT_METRICS_ANNOTATION,
    CONDITIONS_ANNOTATION,
    BEHAVIOR_ANNOTATION,
    f"{_PREFIX}scale-down-tolerance",
    f"{_PREFIX}scale-up-tolerance",
)
"""All annotations that conversion writes or strips."""


# -- the shapes inside the annotations (fields in upstream's order) --------------------------------------------


class _ObjectMetricV1(ApiStruct):
    target: CrossVersionObjectReference = msgspec.field(default_factory=CrossVersionObjectReference)
    metric_name: str = ""
    target_value: Quantity = msgspec.field(default_factory=Quantity.zero)
    current_value: Quantity = msgspec.field(default_factory=Quantity.zero)
    selector: LabelSelector | None = None
    average_value: Quantity | None = None


class _PodsMetricV1(ApiStruct):
    metric_name: str = ""
    target_average_value: Quantity = msgspec.field(default_factory=Quantity.zero)
    current_average_value: Quantity = msgspec.field(default_factory=Quantity.zero)
    selector: LabelSelector | None = None


class _ResourceMetricV1(ApiStruct):
    name: str = ""
    target_average_utilization: int | None = None
    target_average_value: Quantity | None = None
    current_average_utilization: int | None = None
    current_average_value: Quantity | None = None
    container: str = ""


class _ExternalMetricV1(ApiStruct):
    metric_name: str = ""
    metric_selector: LabelSelector | None = None
    target_value: Quantity | None = None
    target_average_value: Quantity | None = None
    current_value: Quantity | None = None
    current_average_value: Quantity | None = None


class _MetricV1(ApiStruct):
    type: str = ""
    object: _ObjectMetricV1 | None = None
    pods: _PodsMetricV1 | None = None
    resource: _ResourceMetricV1 | None = None
    container_resource: _ResourceMetricV1 | None = None
    external: _ExternalMetricV1 | None = None


_Type = type[Any]
_CASE_SENSITIVE_KEYS: Final = frozenset({"matchlabels"})  # maps whose keys are not field names


def _read_annotation(text: str | None, type_: _Type) -> Any:
    """Decode the JSON of an annotation as Go does, with keys in any case; None if it is absent or invalid."""
    if text is None:
        return None
    try:
        return msgspec.convert(_normalize_keys(json.loads(text)), type_, dec_hook=dec_hook)
    except (ValueError, RecursionError):  # msgspec's ValidationError is a ValueError
        return None


def _normalize_keys(data: Any) -> Any:
    """Return nested data with the keys spelled as in the structs' JSON, whatever their case, and without nulls."""
    names = _field_names()
    if isinstance(data, list):
        return [_normalize_keys(each) for each in data if each is not None]
    if isinstance(data, dict):
        out = {}
        for key, value in data.items():
            lower = key.lower()
            if value is not None:
                out[names.get(lower, key)] = value if lower in _CASE_SENSITIVE_KEYS else _normalize_keys(value)
        return out
    return data


_FIELD_NAMES: dict[str, str] = {}


def _field_names() -> dict[str, str]:
    """Return the JSON names of all fields by their names in lower case."""
    if not _FIELD_NAMES:
        known: tuple[type[msgspec.Struct], ...] = (
            _MetricV1,
            _ObjectMetricV1,
            _PodsMetricV1,
            _ResourceMetricV1,
            _ExternalMetricV1,
            CrossVersionObjectReference,
            LabelSelector,
            HorizontalPodAutoscalerCondition,
            HorizontalPodAutoscalerBehavior,
            HPAScalingRules,
            HPAScalingPolicy,
        )
        for struct in known:
            for field in msgspec.structs.fields(struct):
                _FIELD_NAMES[field.encode_name.lower()] = field.encode_name
        _FIELD_NAMES.update({name: name for name in ("key", "operator", "values")})
    return _FIELD_NAMES


# -- reading -------------------------------------------------------------------------------------------------------


def read_metrics(annotations: Mapping[str, str]) -> list[MetricSpec]:
    """Read metric specs from annotations; empty if they are absent or invalid."""
    return [
        _build_metric_spec(each)
        for each in _read_annotation(annotations.get(METRICS_ANNOTATION), list[_MetricV1]) or []
    ]


def read_current_metrics(annotations: Mapping[str, str]) -> list[MetricStatus]:
    """Read metric statuses from annotations; empty if they are absent or invalid."""
    return [
        _build_metric_status(each)
        for each in _read_annotation(annotations.get(CURRENT_METRICS_ANNOTATION), list[_MetricV1]) or []
    ]


def read_conditions(annotations: Mapping[str, str]) -> list[HorizontalPodAutoscalerCondition]:
    """Read conditions from annotations; empty if they are absent or invalid."""
    return _read_annotation(annotations.get(CONDITIONS_ANNOTATION), list[HorizontalPodAutoscalerCondition]) or []


def read_behavior(annotations: Mapping[str, str]) -> HorizontalPodAutoscalerBehavior | None:
    """Read the behavior from annotations; None if it is absent, empty or invalid."""
    behavior: HorizontalPodAutoscalerBehavior | None = _read_annotation(
        annotations.get(BEHAVIOR_ANNOTATION), HorizontalPodAutoscalerBehavior
    )
    return None if behavior == HorizontalPodAutoscalerBehavior() else behavior


def _build_identifier(source: _ObjectMetricV1 | _PodsMetricV1) -> MetricIdentifier:
    """Return the v2 identifier (name and selector) of a v1 metric."""
    return MetricIdentifier(name=source.metric_name, selector=source.selector)


def _build_resource_target(source: _ResourceMetricV1) -> MetricTarget:
    """Convert the target of a v1 resource metric to v2: the utilization if it is set, else the average value."""
    kind = "AverageValue" if source.target_average_utilization is None else "Utilization"
    return MetricTarget(
        type=kind,
        average_utilization=source.target_average_utilization,
        average_value=source.target_average_value,
    )


def _build_metric_spec(metric: _MetricV1) -> MetricSpec:
    """Convert the spec of a v1 metric to v2."""
    out = MetricSpec(type=metric.type)
    if metric.object is not None:
        object_source = metric.object
        if object_source.average_value is not None:
            value = None if object_source.target_value.is_zero else object_source.target_value
            target = MetricTarget(type="AverageValue", value=value, average_value=object_source.average_value)
        else:
            target = MetricTarget(type="Value", value=object_source.target_value)
        out.object = ObjectMetricSource(
            described_object=object_source.target, target=target, metric=_build_identifier(object_source)
        )
    if metric.pods is not None:
        target = MetricTarget(type="AverageValue", average_value=metric.pods.target_average_value)
        out.pods = PodsMetricSource(metric=_build_identifier(metric.pods), target=target)
    if metric.resource is not None:
        out.resource = ResourceMetricSource(name=metric.resource.name, target=_build_resource_target(metric.resource))
    if metric.container_resource is not None:
        source = metric.container_resource
        out.container_resource = ContainerResourceMetricSource(
            name=source.name, container=source.container, target=_build_resource_target(source)
        )
    if metric.external is not None:
        ext = metric.external
        kind = "AverageValue" if ext.target_value is None else "Value"
        target = MetricTarget(type=kind, value=ext.target_value, average_value=ext.target_average_value)
        identifier = MetricIdentifier(name=ext.metric_name, selector=ext.metric_selector)
        out.external = ExternalMetricSource(metric=identifier, target=target)
    return out


def _build_metric_status(metric: _MetricV1) -> MetricStatus:
    """Convert the status of a v1 metric to v2."""
    out = MetricStatus(type=metric.type)
    if metric.object is not None:
        object_source = metric.object
        current = MetricValueStatus(value=object_source.current_value, average_value=object_source.average_value)
        out.object = ObjectMetricStatus(
            described_object=object_source.target, current=current, metric=_build_identifier(object_source)
        )
    if metric.pods is not None:
        current = MetricValueStatus(average_value=metric.pods.current_average_value)
        out.pods = PodsMetricStatus(metric=_build_identifier(metric.pods), current=current)
    if metric.resource is not None:
        out.resource = ResourceMetricStatus(name=metric.resource.name, current=_build_resource_value(metric.resource))
    if metric.container_resource is not None:
        source = metric.container_resource
        out.container_resource = ContainerResourceMetricStatus(
            name=source.name, container=source.container, current=_build_resource_value(source)
        )
    if metric.external is not None:
        ext = metric.external
        current = MetricValueStatus(value=ext.current_value or Quantity.zero(), average_value=ext.current_average_value)
        identifier = MetricIdentifier(name=ext.metric_name, selector=ext.metric_selector)
        out.external = ExternalMetricStatus(metric=identifier, current=current)
    return out


def _build_resource_value(source: _ResourceMetricV1) -> MetricValueStatus:
    """Convert the current value of a v1 resource metric to v2; an absent average value becomes 0."""
    return MetricValueStatus(
        average_utilization=source.current_average_utilization,
        average_value=source.current_average_value or Quantity.zero(),
    )


def write_annotations(
    metrics: Sequence[MetricSpec],
    behavior: HorizontalPodAutoscalerBehavior | None,
    status: HorizontalPodAutoscalerStatus,
) -> dict[str, str]:
    """Build the annotations in which a v1 object stores metrics, current metrics, conditions and behavior.

    ``metrics``: the specs that v1 has no field for. Annotations are in upstream's order; an empty part has none.
    """
    out = {}
    if metrics:
        out[METRICS_ANNOTATION] = _encode_go_json([_encode_metric(each) for each in metrics])
    if status.current_metrics:
        out[CURRENT_METRICS_ANNOTATION] = _encode_go_json([_encode_metric(each) for each in status.current_metrics])
    if status.conditions:
        out[CONDITIONS_ANNOTATION] = _encode_go_json([_encode_condition(each) for each in status.conditions])
    if behavior is not None:
        out[BEHAVIOR_ANNOTATION] = _encode_go_json(_encode_behavior(behavior))
    return out


def _encode_go_json(value: Any) -> str:
    """Encode JSON as Go does, without blanks and with HTML characters escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _omit_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields without those that are None (``omitempty``)."""
    return {key: value for key, value in fields.items() if value is not None}


def _format_quantity(quantity: Quantity | None) -> str | None:
    """Format a quantity; None stays None."""
    return None if quantity is None else str(quantity)


def _format_quantity_or_zero(quantity: Quantity | None) -> str:
    """Return the quantity as a text; ``0`` for None."""
    return "0" if quantity is None else str(quantity)


def _encode_reference(reference: CrossVersionObjectReference) -> dict[str, Any]:
    """Encode a reference as plain data, without an empty ``apiVersion``."""
    return {
        "kind": reference.kind,
        "name": reference.name,
        **({"apiVersion": reference.api_version} if reference.api_version else {}),
    }


def _encode_selector(selector: LabelSelector | None) -> dict[str, Any] | None:
    """Return the selector as plain data; None stays None."""
    if selector is None:
        return None
    labels = dict(sorted((selector.match_labels or {}).items()))
    expressions = [
        {"key": each.key, "operator": each.operator, **({"values": each.values} if each.values else {})}
        for each in selector.match_expressions
    ]
    return _omit_empty({"matchLabels": labels or None, "matchExpressions": expressions or None})


def _encode_metric(metric: MetricSpec | MetricStatus) -> dict[str, Any]:
    """Encode a metric's spec or status as plain data of autoscaling/v1.

    Names of value fields begin with ``target`` in a spec and with ``current`` in a status, except for ``averageValue``
    of an object metric.
    """
    out: dict[str, Any] = {"type": metric.type}
    prefix = "target" if isinstance(metric, MetricSpec) else "current"
    values: MetricTarget | MetricValueStatus
    if metric.object is not None:
        of, values = metric.object, getattr(metric.object, prefix)
        out["object"] = {
            "target": _encode_reference(of.described_object),
            "metricName": of.metric.name,
            f"{prefix}Value": _format_quantity_or_zero(values.value),
            **_omit_empty(
                {
                    "selector": _encode_selector(of.metric.selector),
                    "averageValue": _format_quantity(values.average_value),
                }
            ),
        }
    if metric.pods is not None:
        values = getattr(metric.pods, prefix)
        out["pods"] = {
            "metricName": metric.pods.metric.name,
            f"{prefix}AverageValue": _format_quantity_or_zero(values.average_value),
            **_omit_empty({"selector": _encode_selector(metric.pods.metric.selector)}),
        }
    if metric.resource is not None:
        values = getattr(metric.resource, prefix)
        out["resource"] = {"name": metric.resource.name, **_encode_resource(prefix, values)}
    if metric.container_resource is not None:
        source, values = metric.container_resource, getattr(metric.container_resource, prefix)
        fields = _encode_resource(prefix, values)
        out["containerResource"] = {"name": source.name, **fields, "container": source.container}
    if metric.external is not None:
        values = getattr(metric.external, prefix)
        # The value of a status is always written, that of a spec where it is set.
        value = _format_quantity_or_zero(values.value) if prefix == "current" else _format_quantity(values.value)
        out["external"] = {
            "metricName": metric.external.metric.name,
            **_omit_empty(
                {
                    "metricSelector": _encode_selector(metric.external.metric.selector),
                    f"{prefix}Value": value,
                    f"{prefix}AverageValue": _format_quantity(values.average_value),
                }
            ),
        }
    return out


def _encode_resource(prefix: str, values: MetricTarget | MetricValueStatus) -> dict[str, Any]:
    """Encode utilization and average value of a resource metric, with the field names of autoscaling/v1.

    ``prefix``: beginning of the field names, ``target`` or ``current``.
    """
    value = (
        _format_quantity_or_zero(values.average_value)
        if prefix == "current"
        else _format_quantity(values.average_value)
    )
    return _omit_empty({f"{prefix}AverageUtilization": values.average_utilization, f"{prefix}AverageValue": value})


def _encode_condition(condition: HorizontalPodAutoscalerCondition) -> dict[str, Any]:
    """Encode a condition as plain data, without an absent reason, message or generation."""
    return {
        "type": condition.type,
        "status": condition.status,
        "lastTransitionTime": condition.last_transition_time,
        **({"reason": condition.reason} if condition.reason else {}),
        **({"message": condition.message} if condition.message else {}),
        **_omit_empty({"observedGeneration": condition.observed_generation}),
    }


def _encode_behavior(behavior: HorizontalPodAutoscalerBehavior) -> dict[str, Any]:
    """Encode a behavior with the field names of Go's internal type, including empty fields."""
    return {"ScaleUp": _encode_rules(behavior.scale_up), "ScaleDown": _encode_rules(behavior.scale_down)}


def _encode_rules(rules: HPAScalingRules | None) -> dict[str, Any] | None:
    """Return the scaling rules as plain data; None stays None."""
    if rules is None:
        return None
    policies = rules.policies
    return {
        "StabilizationWindowSeconds": rules.stabilization_window_seconds,
        "SelectPolicy": rules.select_policy,
        "Policies": None
        if policies is None
        else [{"Type": each.type, "Value": each.value, "PeriodSeconds": each.period_seconds} for each in policies],
        "Tolerance": _format_quantity(rules.tolerance),
    }


@typed
def from_v1(old: HorizontalPodAutoscalerV1) -> HorizontalPodAutoscaler:
    """Convert the v1 object ``old`` to v2.

    Without a minimum it is 1; without metrics there is one of cpu at 80 %. Invalid annotations are dropped without an
    error, as upstream does.
    """
    annotations = old.metadata.annotations or {}
    metrics = read_metrics(annotations)
    if old.spec.target_cpu_utilization_percentage is not None:
        metrics.append(build_cpu_metric(old.spec.target_cpu_utilization_percentage))
    statuses = read_current_metrics(annotations)
    if not statuses and old.status.current_cpu_utilization_percentage is not None:
        current = MetricValueStatus(average_utilization=old.status.current_cpu_utilization_percentage)
        statuses = [MetricStatus(type="Resource", resource=ResourceMetricStatus(name="cpu", current=current))]
    return HorizontalPodAutoscaler(
        metadata=strip_v1_annotations(old.metadata),
        spec=HorizontalPodAutoscalerSpec(
            scale_target_ref=old.spec.scale_target_ref,
            min_replicas=1 if old.spec.min_replicas is None else old.spec.min_replicas,
            max_replicas=old.spec.max_replicas,
            metrics=metrics or [build_cpu_metric()],
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


def strip_v1_annotations(metadata: HorizontalPodAutoscalerMeta) -> HorizontalPodAutoscalerMeta:
    """Return the metadata without the annotations that only v1 objects have."""
    if metadata.annotations is None:
        return metadata
    remaining = {key: value for key, value in metadata.annotations.items() if key not in V1_ANNOTATIONS}
    return replace(metadata, annotations=remaining or None)


@typed
def to_v1(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscalerV1:
    """Convert a v2 object to v1.

    Other metrics, the behavior, the current metrics and the conditions are stored in annotations. Of several cpu
    utilization metrics only the first survives, as in upstream.
    """
    annotations = dict(strip_v1_annotations(hpa.metadata).annotations or {})
    cpu = None
    for spec in hpa.spec.metrics or ():
        if _is_cpu_utilization(spec) and spec.resource is not None:
            cpu = spec.resource.target.average_utilization
            break
    current = None
    for status in hpa.status.current_metrics or ():
        if status.type == "Resource" and status.resource is not None and status.resource.name == "cpu":
            current = status.resource.current.average_utilization
    annotations |= write_annotations(
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
    """Check whether a metric is the one that v1 has a field for: cpu with a utilization target."""
    source = spec.resource
    return (
        spec.type == "Resource"
        and source is not None
        and source.name == "cpu"
        and source.target.average_utilization is not None
    )
