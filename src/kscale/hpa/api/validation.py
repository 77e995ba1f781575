"""Defaults and validation of HorizontalPodAutoscalers as the API server does them, in its order and with its texts.

Upstream: ``pkg/apis/autoscaling/validation`` and the declarative rules, whose errors come last. Decisions never
validate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from kscale.hpa.options import DEFAULT_OPTIONS, HPAOptions
from kscale.objects.api.autoscaling import (
    ContainerResourceMetricSource,
    CrossVersionObjectReference,
    ExternalMetricSource,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerBehavior,
    HPAScalingPolicy,
    HPAScalingRules,
    MetricIdentifier,
    MetricSpec,
    MetricTarget,
    ObjectMetricSource,
    PodsMetricSource,
    ResourceMetricSource,
)
from kscale.objects.api.meta import ObjectMeta
from kscale.objects.argument_types import typed
from kscale.objects.kinds import RESTMappingError, parse_group_version
from kscale.objects.names import (
    FieldError,
    build_required_error,
    dns_label_errors,
    dns_subdomain_errors,
    forbidden,
    invalid,
    label_value_errors,
    not_supported,
    qualified_name_errors,
)
from kscale.objects.pod_resources import is_extended, is_hugepages, is_prefixed_native

__all__ = ["DEFAULT_CPU_UTILIZATION", "apply_defaults", "build_cpu_metric", "validate", "validate_status"]


DEFAULT_CPU_UTILIZATION: Final = 80


def build_cpu_metric(utilization: int = DEFAULT_CPU_UTILIZATION) -> MetricSpec:
    """Build a Resource metric of cpu with a utilization target in percent."""
    target = MetricTarget(type="Utilization", average_utilization=utilization)
    return MetricSpec(type="Resource", resource=ResourceMetricSource(name="cpu", target=target))


@typed
def apply_defaults(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Return a copy of the object with defaults.

    The minimum is 1, and the metric is cpu at 80 % if there is none. Each missing field of a behavior is filled in,
    except the window for scaling down and the tolerances.
    """
    spec = hpa.spec
    if spec.min_replicas is not None and spec.metrics and spec.behavior is None:
        return hpa  # nothing is missing
    return replace(
        hpa,
        spec=replace(
            spec,
            min_replicas=1 if spec.min_replicas is None else spec.min_replicas,
            metrics=spec.metrics or [build_cpu_metric()],
            behavior=None if spec.behavior is None else _default_behavior(spec.behavior),
        ),
    )


def _default_behavior(behavior: HorizontalPodAutoscalerBehavior) -> HorizontalPodAutoscalerBehavior:
    """Return the behavior with defaults. The window for scaling down stays unset, so that the flag applies."""
    percent = HPAScalingPolicy(type="Percent", value=100, period_seconds=15)
    pods = HPAScalingPolicy(type="Pods", value=4, period_seconds=15)
    up = HPAScalingRules(stabilization_window_seconds=0, select_policy="Max", policies=[pods, percent])
    down = HPAScalingRules(select_policy="Max", policies=[percent])  # no window, so the flag's applies
    return HorizontalPodAutoscalerBehavior(
        scale_up=_default_rules(behavior.scale_up, up), scale_down=_default_rules(behavior.scale_down, down)
    )


def _default_rules(rules: HPAScalingRules | None, default: HPAScalingRules) -> HPAScalingRules:
    """Return the rules with missing fields taken from ``default``; a missing tolerance stays unset."""
    if rules is None:
        return default
    window, policy, policies = rules.stabilization_window_seconds, rules.select_policy, rules.policies
    return HPAScalingRules(
        stabilization_window_seconds=default.stabilization_window_seconds if window is None else window,
        select_policy=default.select_policy if policy is None else policy,
        policies=default.policies if policies is None else policies,
        tolerance=rules.tolerance,
    )


_SOURCE_FIELDS: Final = {
    "Object": "object",
    "External": "external",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
"""Metric types and their fields, in the order in which the API server looks at the fields."""

_TARGET_TYPES: Final = ("Utilization", "Value", "AverageValue")
_CONTAINER_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_STANDARD_RESOURCES: Final = _CONTAINER_RESOURCES | {
    *(f"{prefix}.{name}" for prefix in ("requests", "limits") for name in _CONTAINER_RESOURCES),
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
}


@typed
def validate(
    hpa: HorizontalPodAutoscaler, old: HorizontalPodAutoscaler | None = None, *, options: HPAOptions | None = None
) -> list[FieldError]:
    """Validate a defaulted object that is about to be created, or updated from ``old``.

    Returns the errors in the API server's order; empty if the object is valid.
    """
    options = options or DEFAULT_OPTIONS
    spec = hpa.spec
    errors = _validate_metadata(hpa.metadata) if old is None else _validate_metadata_update(hpa.metadata, old.metadata)
    to_zero = options.gates["HPAScaleToZero"] or (old is not None and old.spec.min_replicas == 0)
    bound = 0 if to_zero else 1
    minimum, maximum = spec.min_replicas, spec.max_replicas
    declared: list[FieldError] = []
    if minimum is not None and minimum < bound:
        error = invalid("spec.minReplicas", minimum, f"must be greater than or equal to {bound}")
        (errors if old is not None and old.spec.min_replicas == minimum else declared).append(error)
    if maximum < 1:
        unchanged = old is not None and old.spec.max_replicas == maximum
        if maximum == 0:
            error = build_required_error("spec.maxReplicas", "must be set and greater than 0" if unchanged else "")
        else:
            error = invalid("spec.maxReplicas", maximum, "must be greater than or equal to 1")
        (errors if unchanged else declared).append(error)
    if minimum is not None and maximum < minimum:
        errors.append(invalid("spec.maxReplicas", maximum, "must be greater than or equal to `minReplicas`"))
    errors += _validate_scale_target(spec.scale_target_ref, None if old is None else old.spec.scale_target_ref)
    lenient = old is not None and _has_bad_described_object(old)
    for i, metric in enumerate(spec.metrics or ()):
        errors += _validate_metric(metric, f"spec.metrics[{i}]", lenient)
    if minimum == 0 and not any(metric.type in ("Object", "External") for metric in spec.metrics or ()):
        text = "must specify at least one Object or External metric to support scaling to zero replicas"
        errors.append(forbidden("spec.metrics", text))
    if spec.behavior is not None:
        errors += _validate_scaling_rules(spec.behavior.scale_up, "spec.behavior.scaleUp")
        errors += _validate_scaling_rules(spec.behavior.scale_down, "spec.behavior.scaleDown")
    return list(dict.fromkeys([*errors, *declared])) if errors or declared else []


@typed
def validate_status(hpa: HorizontalPodAutoscaler, old: HorizontalPodAutoscaler) -> list[FieldError]:
    """Validate an update of the status of ``old``. Returns the errors; empty if it is valid."""
    errors = _validate_metadata_update(hpa.metadata, old.metadata)
    for i, each in enumerate(hpa.status.conditions or ()):
        generation = each.observed_generation
        if generation is not None and generation < 0:
            field = f"status.conditions[{i}].observedGeneration"
            errors.append(invalid(field, generation, "must be greater than or equal to 0"))
    for name, value in (
        ("currentReplicas", hpa.status.current_replicas),
        ("desiredReplicas", hpa.status.desired_replicas),
    ):
        if value < 0:
            errors.append(invalid(f"status.{name}", value, "must be greater than or equal to 0"))
    return errors


# -- metadata --------------------------------------------------------------------------------------------------


def _validate_metadata(metadata: ObjectMeta) -> list[FieldError]:
    """Return the errors in the metadata of an HPA: name, namespace, generation, labels and annotations."""
    errors = []
    if metadata.generate_name:
        prefix = metadata.generate_name.removesuffix("-")  # the generated name is a prefix
        errors += [
            invalid("metadata.generateName", metadata.generate_name, text) for text in dns_subdomain_errors(prefix)
        ]
    if metadata.name:
        errors += [invalid("metadata.name", metadata.name, text) for text in dns_subdomain_errors(metadata.name)]
    elif not metadata.generate_name:
        errors.append(build_required_error("metadata.name", "name or generateName is required"))
    if metadata.namespace:
        errors += [
            invalid("metadata.namespace", metadata.namespace, text) for text in dns_label_errors(metadata.namespace)
        ]
    else:
        errors.append(build_required_error("metadata.namespace"))
    if metadata.generation is not None and metadata.generation < 0:
        errors.append(invalid("metadata.generation", metadata.generation, "must be greater than or equal to 0"))
    return errors + _validate_labels(metadata.labels) + _validate_annotations(metadata.annotations)


def _validate_metadata_update(metadata: ObjectMeta, old: ObjectMeta) -> list[FieldError]:
    """Return an error if name, namespace or UID differ from ``old``, and the errors of labels and annotations."""
    errors = [
        invalid(f"metadata.{name}", getattr(metadata, name), "field is immutable")
        for name in ("name", "namespace", "uid")
        if getattr(metadata, name) != getattr(old, name)
    ]
    return errors + _validate_labels(metadata.labels) + _validate_annotations(metadata.annotations)


def _validate_labels(labels: Mapping[str, str] | None) -> list[FieldError]:
    """Return an error for each label key that is not a qualified name, and for each invalid label value."""
    if not labels:
        return []
    errors = []
    for key, value in sorted(labels.items()):
        errors += [invalid("metadata.labels", key, text) for text in qualified_name_errors(key)]
        errors += [invalid("metadata.labels", value, text) for text in label_value_errors(value)]
    return errors


def _validate_annotations(annotations: Mapping[str, str] | None) -> list[FieldError]:
    """Return an error for each annotation key that, in lower case, is not a qualified name. Values are not checked."""
    if not annotations:
        return []
    return [
        invalid("metadata.annotations", key, text)
        for key in sorted(annotations)
        for text in qualified_name_errors(key.lower())
    ]


# -- references ------------------------------------------------------------------------------------------------


def _path_segment_errors(text: str) -> list[str]:
    """Return why a text cannot be a segment of a URL path; an empty list if it can."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{char}'" for char in "/%" if char in text]


def _validate_name(field: str, text: str, missing: str = "") -> list[FieldError]:
    """Return the errors of a name, which must be a valid segment of a URL path.

    ``field``: path of the field for errors; ``missing``: message if the name is empty.
    """
    if not text:
        return [build_required_error(field, missing)]
    return [invalid(field, text, error) for error in _path_segment_errors(text)]


def _validate_scale_target(
    reference: CrossVersionObjectReference, old: CrossVersionObjectReference | None
) -> list[FieldError]:
    """Return the errors of ``spec.scaleTargetRef``.

    Its ``apiVersion`` is not checked if it and the kind equal those of ``old``.
    """
    errors = _validate_name("spec.scaleTargetRef.kind", reference.kind) + _validate_name(
        "spec.scaleTargetRef.name", reference.name
    )
    if old is not None and (old.kind, old.api_version) == (reference.kind, reference.api_version):
        return errors
    field, version = "spec.scaleTargetRef.apiVersion", reference.api_version
    try:
        group, _ = parse_group_version(version)
    except RESTMappingError as error:
        return [*errors, invalid(field, version, str(error))]
    if not group and reference.kind != "ReplicationController":
        errors.append(invalid(field, version, "apiVersion must specify API group"))
    return errors


def _api_version_error(version: str) -> str:
    """Return why an ``apiVersion`` cannot be parsed; an empty text if it can."""
    try:
        parse_group_version(version)
    except RESTMappingError as error:
        return str(error)
    return ""


def _has_bad_described_object(hpa: HorizontalPodAutoscaler) -> bool:
    """Check whether a stored HPA has an Object metric whose ``describedObject.apiVersion`` is invalid."""
    return any(
        metric.object is not None and bool(_api_version_error(metric.object.described_object.api_version))
        for metric in hpa.spec.metrics or ()
    )


# -- metrics ---------------------------------------------------------------------------------------------------


def _validate_metric(metric: MetricSpec, path: str, lenient: bool) -> list[FieldError]:
    """Return the errors of a metric. Of several sources only the first is checked in depth.

    ``lenient``: accept an invalid ``apiVersion`` of a described object.
    """
    errors = []
    if not metric.type:
        errors.append(build_required_error(f"{path}.type", "must specify a metric source type"))
    if metric.type not in _SOURCE_FIELDS:
        errors.append(not_supported(f"{path}.type", metric.type, tuple(_SOURCE_FIELDS)))
    present = {
        "object": metric.object,
        "external": metric.external,
        "pods": metric.pods,
        "resource": metric.resource,
        "containerResource": metric.container_resource,
    }
    populated = [name for name, source in present.items() if source is not None]
    for name in populated[:1]:  # only the first is validated in depth
        errors += _validate_source(present[name], f"{path}.{name}", lenient)
    own = _SOURCE_FIELDS.get(metric.type, "")
    if own and present[own] is None:
        errors.append(build_required_error(f"{path}.{own}", "must populate information for the given metric source"))
    if len(populated) > 1:
        text = "must populate the given metric source only"
        errors += [forbidden(f"{path}.{name}", text) for name in sorted(populated) if name != own]
    return errors


_Source = (
    ObjectMetricSource
    | ExternalMetricSource
    | PodsMetricSource
    | ResourceMetricSource
    | ContainerResourceMetricSource
    | None
)


def _validate_source(source: _Source, path: str, lenient: bool) -> list[FieldError]:
    """Return the errors of a metric source, whatever its type; none for None. ``lenient``: see _validate_metric."""
    if isinstance(source, ObjectMetricSource):
        return _validate_object_source(source, path, lenient)
    if isinstance(source, ExternalMetricSource):
        return _validate_external_source(source, path)
    if isinstance(source, PodsMetricSource):
        return _validate_pods_source(source, path)
    if isinstance(source, ContainerResourceMetricSource):
        return _validate_container_resource_source(source, path)
    if isinstance(source, ResourceMetricSource):
        missing = [] if source.name else [build_required_error(f"{path}.name", "must specify a resource name")]
        return missing + _validate_resource_target(source.target, f"{path}.target")
    return []


def _validate_identifier(metric: MetricIdentifier, path: str) -> list[FieldError]:
    """Return the errors of a metric's name; ``path`` is the field's path."""
    return _validate_name(f"{path}.name", metric.name, "must specify a metric name")


def _validate_target(target: MetricTarget, path: str) -> list[FieldError]:
    """Return the errors of a metric's target type and values."""
    errors = []
    if not target.type:
        errors.append(build_required_error(f"{path}.type", "must specify a metric target type"))
    if target.type not in _TARGET_TYPES:
        errors.append(invalid(f"{path}.type", target.type, "must be either Utilization, Value, or AverageValue"))
    if target.value is not None and target.value.sign != 1:
        errors.append(invalid(f"{path}.value", target.value, "must be positive"))
    if target.average_value is not None and target.average_value.sign != 1:
        errors.append(invalid(f"{path}.averageValue", target.average_value, "must be positive"))
    if target.average_utilization is not None and target.average_utilization < 1:
        errors.append(invalid(f"{path}.averageUtilization", target.average_utilization, "must be greater than 0"))
    return errors


def _validate_object_source(source: ObjectMetricSource, path: str, lenient: bool) -> list[FieldError]:
    """Return the errors of an Object metric. ``lenient``: do not check the object's ``apiVersion``."""
    reference, target = source.described_object, source.target
    errors = _validate_name(f"{path}.describedObject.kind", reference.kind)
    errors += _validate_name(f"{path}.describedObject.name", reference.name)
    if not lenient and (text := _api_version_error(reference.api_version)):
        errors.append(invalid(f"{path}.describedObject.apiVersion", reference.api_version, text))
    errors += _validate_identifier(source.metric, f"{path}.metric") + _validate_target(target, f"{path}.target")
    if target.value is None and target.average_value is None:
        errors.append(
            build_required_error(f"{path}.target.averageValue", "must set either a target value or averageValue")
        )
    return errors


def _validate_external_source(source: ExternalMetricSource, path: str) -> list[FieldError]:
    """Return the errors of an External metric."""
    target = source.target
    errors = _validate_identifier(source.metric, f"{path}.metric") + _validate_target(target, f"{path}.target")
    if target.value is None and target.average_value is None:
        text = "must set either a target value for metric or a per-pod target"
        errors.append(build_required_error(f"{path}.target.averageValue", text))
    if target.value is not None and target.average_value is not None:
        text = "may not set both a target value for metric and a per-pod target"
        errors.append(forbidden(f"{path}.target.value", text))
    return errors


def _validate_pods_source(source: PodsMetricSource, path: str) -> list[FieldError]:
    """Return the errors of a Pods metric."""
    errors = _validate_identifier(source.metric, f"{path}.metric") + _validate_target(source.target, f"{path}.target")
    if source.target.average_value is None:
        errors.append(
            build_required_error(f"{path}.target.averageValue", "must specify a positive target averageValue")
        )
    return errors


def _validate_container_resource_source(source: ContainerResourceMetricSource, path: str) -> list[FieldError]:
    """Return the errors of a ContainerResource metric."""
    if source.name:
        errors = _validate_container_resource_name(source.name, f"{path}.name")
    else:
        errors = [build_required_error(f"{path}.name", "must specify a resource name")]
    if source.container:
        field = f"{path}.container"
        errors += [invalid(field, source.container, text) for text in dns_label_errors(source.container)]
    else:
        errors.append(build_required_error(f"{path}.container", "must specify a container"))
    return errors + _validate_resource_target(source.target, f"{path}.target")


def _validate_resource_target(target: MetricTarget, path: str) -> list[FieldError]:
    """Return the errors of a resource's target.

    Besides the errors of any target: exactly one of utilization and average value must be set.
    """
    errors = _validate_target(target, path)
    if target.average_utilization is None and target.average_value is None:
        text = "must set either a target raw value or a target utilization"
        errors.append(build_required_error(f"{path}.averageUtilization", text))
    if target.average_utilization is not None and target.average_value is not None:
        text = "may not set both a target raw value and a target utilization"
        errors.append(forbidden(f"{path}.averageValue", text))
    return errors


def _validate_container_resource_name(name: str, field: str) -> list[FieldError]:
    """Return the errors of the name of a resource that containers request."""
    errors = [invalid(field, name, text) for text in qualified_name_errors(name)]
    if "/" not in name:
        if not errors and name not in _STANDARD_RESOURCES and not is_hugepages(name):
            errors.append(invalid(field, name, "must be a standard resource type or fully qualified"))
        if name not in _CONTAINER_RESOURCES and not is_hugepages(name):
            errors.append(invalid(field, name, "must be a standard resource for containers"))
    elif not is_prefixed_native(name) and not is_extended(name):
        errors.append(invalid(field, name, "doesn't follow extended resource name standard"))
    return errors


# -- behavior --------------------------------------------------------------------------------------------------


def _validate_scaling_rules(rules: HPAScalingRules | None, path: str) -> list[FieldError]:
    """Return the errors of one direction's scaling rules; none without rules."""
    if rules is None:
        return []
    errors = []
    window = rules.stabilization_window_seconds
    if window is not None and window < 0:
        errors.append(invalid(f"{path}.stabilizationWindowSeconds", window, "must be greater than or equal to zero"))
    if window is not None and window > 3600:
        errors.append(invalid(f"{path}.stabilizationWindowSeconds", window, "must be less than or equal to 3600"))
    if rules.select_policy is not None and rules.select_policy not in ("Max", "Min", "Disabled"):
        errors.append(not_supported(f"{path}.selectPolicy", rules.select_policy, ("Max", "Min", "Disabled")))
    if not rules.policies:
        errors.append(build_required_error(f"{path}.policies", "must specify at least one Policy"))
    for i, policy in enumerate(rules.policies or ()):
        here = f"{path}.policies[{i}]"
        if policy.type not in ("Pods", "Percent"):
            errors.append(not_supported(f"{here}.type", policy.type, ("Pods", "Percent")))
        if policy.value <= 0:
            errors.append(invalid(f"{here}.value", policy.value, "must be greater than zero"))
        if policy.period_seconds <= 0:
            errors.append(invalid(f"{here}.periodSeconds", policy.period_seconds, "must be greater than zero"))
        if policy.period_seconds > 1800:
            errors.append(invalid(f"{here}.periodSeconds", policy.period_seconds, "must be less than or equal to 1800"))
    if rules.tolerance is not None and rules.tolerance.sign < 0:
        errors.append(invalid(f"{path}.tolerance", rules.tolerance, "must be greater than or equal to 0"))
    return errors
