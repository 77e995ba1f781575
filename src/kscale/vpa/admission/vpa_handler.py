"""Validate and default VPA objects (upstream: ``admission-controller/resource/vpa/handler.go``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kscale.effects import PatchOperation
from kscale.errors import InputError
from kscale.objects.api.meta import ResourceList
from kscale.objects.api.vpa import ContainerResourcePolicy, StartupBoost, VerticalPodAutoscaler
from kscale.objects.argument_types import typed
from kscale.objects.decode import from_dict
from kscale.objects.kinds import check_kind
from kscale.objects.names import (
    FieldError,
    build_required_error,
    forbidden,
    go_quote,
    internal,
    invalid,
    not_supported,
    too_many,
)
from kscale.objects.quantity import Quantity
from kscale.vpa.options import (
    CPU_STARTUP_BOOST_GATE,
    IN_PLACE_GATE,
    PER_VPA_CONFIG_GATE,
    AdmissionOptions,
    is_gate_enabled,
)
from kscale.vpa.resources import CPU, MEMORY, order_resources

__all__ = ["VpaAdmission", "admit_vpa", "validate_vpa"]

_ROOT_PATH: Final = "."
_GROUP: Final = "autoscaling.k8s.io"
_UPDATE_MODES: Final = ("InPlace", "InPlaceOrRecreate", "Initial", "Off", "Recreate")
_SCALING_MODES: Final = ("Auto", "Off")
_RESOURCES: Final = (CPU, MEMORY)
_AUTO_WARNING: Final = (
    'spec.updatePolicy: "Auto" mode is deprecated and will be removed in a future API version. Use explicit update '
    f"modes like: [{' '.join(_UPDATE_MODES)}]. See https://github.com/kubernetes/autoscaler/issues/8424 for more "
    "details."
)
_PER_VPA_DISABLED_TEXT: Final = f"not supported when feature flag {PER_VPA_CONFIG_GATE} is disabled"


def _format_disabled_gate(field: str, gate: str) -> str:
    """Return upstream's error message for the use of a field whose feature gate is disabled."""
    return f"in order to use {field}, you must enable feature gate {gate} in the admission-controller args"


class VpaAdmission(msgspec.Struct, kw_only=True):
    """Result of the admission of a VPA object. ``name`` is that of the request, else of the object.

    - ``errors``: what is invalid, in upstream's order and words; empty: the object is admitted.
    - ``warnings``: warnings for the author (deprecated mode, unsupported resources), whether it is admitted or not, in
      upstream's order and words.
    - ``patches``: the JSON patch with upstream's defaults: an ``updatePolicy`` with mode ``Recreate`` if there is none.
      Empty if nothing is missing, and if there are errors.
    """

    name: str = ""
    kind: str = "VerticalPodAutoscaler"
    errors: list[FieldError] = []
    warnings: list[str] = []
    patches: list[PatchOperation] = []

    @property
    def allowed(self) -> bool:
        """Return whether there are no errors."""
        return not self.errors

    @property
    def message(self) -> str:
        """Return the text of the rejection; empty without errors."""
        if not self.errors:
            return ""
        texts = list(dict.fromkeys(map(str, self.errors)))
        shown = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        return f'{self.kind}.{_GROUP} "{self.name}" is invalid: {shown}'

    @property
    def status(self) -> dict[str, Any] | None:
        """Return the rejection as ``metav1.Status`` in JSON (``apierrors.NewInvalid``); None without errors."""
        if not self.errors:
            return None
        causes = [{"reason": error.type, "message": error.body, "field": error.field} for error in self.errors]
        return {
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": "Invalid",
            "details": {"name": self.name, "group": _GROUP, "kind": self.kind, "causes": causes},
            "code": 422,
        }

    def __repr__(self) -> str:
        return f"<VpaAdmission {self.name}: {self.message if self.errors else 'allowed'}>"


@typed
def admit_vpa(
    vpa: VerticalPodAutoscaler | Mapping[str, Any],
    old: VerticalPodAutoscaler | Mapping[str, Any] | None = None,
    *,
    operation: str = "",
    name: str = "",
    kind: str = "VerticalPodAutoscaler",
    options: AdmissionOptions | None = None,
) -> VpaAdmission:
    """Compute what the webhook does with a VPA that is about to be written.

    A new VPA without ``targetRef`` is an error here. Upstream's webhook never sees one, as the CRD's schema requires
    it.

    Parameters
    ----------
    vpa : VerticalPodAutoscaler or mapping
        The new object.
    old : VerticalPodAutoscaler or mapping, optional
        The object before. Upstream reads it only on ``UPDATE``.
    operation : str
        ``CREATE``, ``UPDATE``, ...; empty: ``UPDATE`` if there is ``old``.
    name, kind : str
        Name and kind of the request, for the text of a rejection. Without a name the object's own is used.
    options : AdmissionOptions, optional
        Options of the admission controller.

    Returns
    -------
    VpaAdmission
        Errors, warnings, and the patch that sets update mode Recreate in a valid VPA without an update policy. An
        object that cannot be read is an error of the result.
    """
    options = options or AdmissionOptions()
    updates = operation == "UPDATE" if operation else old is not None
    try:
        new = _decode_vpa(vpa)
        before = _decode_vpa(old if old is not None else {}) if updates else VerticalPodAutoscaler()
    except InputError as error:
        shown = name or _get_name(vpa)
        return VpaAdmission(name=shown, kind=kind, errors=[internal(_ROOT_PATH, error.problems[0].message)])
    errors, warnings = validate_vpa(new, before, options=options)
    patches = []
    if not errors and new.spec.update_policy is None:
        patches.append(PatchOperation("add", "/spec/updatePolicy", {"updateMode": "Recreate"}))
    return VpaAdmission(name=name or new.name, kind=kind, errors=errors, warnings=warnings, patches=patches)


def _decode_vpa(vpa: VerticalPodAutoscaler | Mapping[str, Any]) -> VerticalPodAutoscaler:
    """Return a struct as it is; decode plain data. Raises InputError if it is no readable VPA."""
    if isinstance(vpa, VerticalPodAutoscaler):
        return vpa
    check_kind(vpa, VerticalPodAutoscaler)
    return from_dict(vpa, VerticalPodAutoscaler)


def _get_name(vpa: VerticalPodAutoscaler | Mapping[str, Any]) -> str:
    """Return the name in plain data; empty for a struct or without a name."""
    metadata = vpa.get("metadata") if isinstance(vpa, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) else ""


class _AllowedFeatures(msgspec.Struct, frozen=True):
    """Alpha features that may be used: their gate is on, or the old object uses them already."""

    in_place: bool
    per_vpa: bool
    boost: bool
    resources: frozenset[str]


def _find_allowed_features(old: VerticalPodAutoscaler | None, options: AdmissionOptions) -> _AllowedFeatures:
    """Find the alpha features that a VPA may use: their gate is on, or ``old``, its earlier version, uses them.

    The result also has the controlled resources that ``old`` lists. ``old``: None for a new VPA.
    """
    gates = options.feature_gates
    old = old or VerticalPodAutoscaler()
    policy = old.spec.update_policy
    containers = old.spec.resource_policy.container_policies if old.spec.resource_policy is not None else []
    uses_per_vpa = (policy is not None and policy.evict_after_oom_seconds is not None) or any(
        value is not None for item in containers for value in _get_per_vpa_fields(item).values()
    )
    return _AllowedFeatures(
        in_place=is_gate_enabled(gates, IN_PLACE_GATE) or (policy is not None and policy.update_mode == "InPlace"),
        per_vpa=is_gate_enabled(gates, PER_VPA_CONFIG_GATE) or uses_per_vpa,
        boost=is_gate_enabled(gates, CPU_STARTUP_BOOST_GATE) or _uses_boost(old),
        resources=frozenset(name for item in containers for name in item.controlled_resources or ()),
    )


def _uses_boost(vpa: VerticalPodAutoscaler) -> bool:
    """Check whether a VPA uses a startup boost (``allowCPUBoost``).

    The VPA's own boost counts only if it has ``cpu``; the boost of a container policy always counts.
    """
    policies = vpa.spec.resource_policy.container_policies if vpa.spec.resource_policy is not None else []
    own = vpa.spec.startup_boost
    return (own is not None and own.cpu is not None) or any(item.startup_boost is not None for item in policies)


def _get_per_vpa_fields(policy: ContainerResourcePolicy) -> dict[str, Quantity | int | None]:
    """Return the fields that need the gate PerVPAConfig, by their JSON names; None for those that are not set."""
    return {
        "oomBumpUpRatio": policy.oom_bump_up_ratio,
        "oomMinBumpUp": policy.oom_min_bump_up,
        "memoryAggregationIntervalSeconds": policy.memory_aggregation_interval_seconds,
        "memoryAggregationIntervalCount": policy.memory_aggregation_interval_count,
    }


def validate_vpa(
    vpa: VerticalPodAutoscaler, old: VerticalPodAutoscaler | None, *, options: AdmissionOptions | None = None
) -> tuple[list[FieldError], list[str]]:
    """Validate a VPA (``ValidateVPA``). ``old`` is None for a new object.

    Returns the field errors and the warnings, in upstream's order.
    """
    options = options or AdmissionOptions()
    allowed = _find_allowed_features(old, options)
    errors: list[FieldError] = []
    warnings: list[str] = []
    if vpa.spec.target_ref is None and old is None:
        text = "If you're using v1beta1 version of the API, please migrate to v1"
        errors.append(build_required_error("spec.targetRef", text))
    _validate_update_policy(vpa, allowed, errors, warnings)
    if vpa.spec.resource_policy is not None:
        for i, policy in enumerate(vpa.spec.resource_policy.container_policies):
            path = f"spec.resourcePolicy.containerPolicies[{i}]"
            _validate_container_policy(policy, path, allowed, errors, warnings)
    errors += _validate_startup_boost(vpa.spec.startup_boost, "spec.startupBoost", allowed)
    if len(vpa.spec.recommenders) > 1:
        errors.append(too_many("spec.recommenders", len(vpa.spec.recommenders), 1))
    return errors, warnings


def _validate_update_policy(
    vpa: VerticalPodAutoscaler, allowed: _AllowedFeatures, errors: list[FieldError], warnings: list[str]
) -> None:
    """Add the errors and warnings of the update policy to ``errors`` and ``warnings``."""
    policy = vpa.spec.update_policy
    if policy is None:
        return
    path = "spec.updatePolicy"
    mode = policy.update_mode
    if mode is None:
        errors.append(build_required_error(f"{path}.updateMode", "updateMode is required if UpdatePolicy is used"))
    elif mode == "Auto":
        warnings.append(_AUTO_WARNING)
    elif mode not in _UPDATE_MODES:
        errors.append(not_supported(f"{path}.updateMode", mode, _UPDATE_MODES))
    elif mode == "InPlace" and not allowed.in_place:
        text = (
            "in order to use UpdateMode InPlace, you must enable feature gate InPlace in the admission-controller args"
        )
        errors.append(forbidden(f"{path}.updateMode", text))
    if policy.min_replicas is not None and policy.min_replicas <= 0:
        errors.append(invalid(f"{path}.minReplicas", policy.min_replicas, "minReplicas has to be positive"))
    if policy.evict_after_oom_seconds is not None:
        where = f"{path}.evictAfterOOMSeconds"
        errors += _validate_positive(where, policy.evict_after_oom_seconds, allowed)


def _validate_positive(path: str, value: int, allowed: _AllowedFeatures) -> list[FieldError]:
    """Return the errors of the field at ``path``, which needs the gate PerVPAConfig and must be at least 1."""
    if not allowed.per_vpa:
        return [forbidden(path, _PER_VPA_DISABLED_TEXT)]
    return [invalid(path, value, "must be greater than or equal to 1")] if value < 1 else []


def _validate_container_policy(
    policy: ContainerResourcePolicy, path: str, allowed: _AllowedFeatures, errors: list[FieldError], warnings: list[str]
) -> None:
    """Add the errors and warnings of the container policy at ``path`` to ``errors`` and ``warnings``."""
    if not policy.container_name:
        errors.append(build_required_error(f"{path}.containerName"))
    if policy.mode is not None and policy.mode not in _SCALING_MODES:
        errors.append(not_supported(f"{path}.mode", policy.mode, _SCALING_MODES))
    errors += _validate_bounds(policy.min_allowed or {}, policy.max_allowed or {}, path)
    if policy.mode == "Off" and policy.controlled_values == "RequestsAndLimits":
        text = "controlledValues shouldn't be specified if container scaling mode is off"
        errors.append(forbidden(f"{path}.controlledValues", text))
    for i, name in enumerate(policy.controlled_resources or ()):
        if name in _RESOURCES:
            continue
        where = f"{path}.controlledResources[{i}]"
        if name in allowed.resources:
            reason = "is allowed only because it is present in the existing VPA object"
            supported = ", ".join(map(go_quote, _RESOURCES))
            warnings.append(f"{where}: unsupported value {go_quote(name)} {reason}; supported values: {supported}")
        else:
            errors.append(not_supported(where, name, _RESOURCES))
    errors += _validate_per_vpa_fields(policy, path, allowed)
    errors += _validate_startup_boost(policy.startup_boost, f"{path}.startupBoost", allowed)


def _validate_bounds(low: ResourceList, high: ResourceList, path: str) -> list[FieldError]:
    """Return the errors of minAllowed (``low``) and maxAllowed (``high``): too fine amounts, maximum below minimum."""
    errors = []
    for name in order_resources(low):
        errors += _validate_resolution(name, low[name], f"{path}.minAllowed[{name}]")
        if name in high and high[name] < low[name]:
            text = f"max resource for {name} is lower than min of {go_quote(str(low[name]))}"
            errors.append(invalid(f"{path}.maxAllowed[{name}]", high[name], text))
    for name in order_resources(high):
        errors += _validate_resolution(name, high[name], f"{path}.maxAllowed[{name}]")
    return errors


def _validate_resolution(name: str, quantity: Quantity, path: str) -> list[FieldError]:
    """Return an error if CPU is no whole number of millicores, or memory no whole number of bytes."""
    if name == CPU and (quantity.as_fraction() * 1000).denominator != 1:
        return [invalid(path, quantity, "must be a whole number of milli CPUs")]
    if name == MEMORY and quantity.as_fraction().denominator != 1:
        return [invalid(path, quantity, "must be a whole number of bytes")]
    return []


def _validate_per_vpa_fields(policy: ContainerResourcePolicy, path: str, allowed: _AllowedFeatures) -> list[FieldError]:
    """Return the errors of a policy's fields that need the feature gate ``PerVPAConfig``."""
    errors = []
    for name, value in _get_per_vpa_fields(policy).items():
        where = f"{path}.{name}"
        if value is None:
            continue
        if isinstance(value, int):
            errors += _validate_positive(where, value, allowed)
        elif not allowed.per_vpa:
            errors.append(forbidden(where, _PER_VPA_DISABLED_TEXT))
        elif name == "oomBumpUpRatio":
            ratio = float(value.milli_value()) / 1000.0
            if ratio < 1.0:
                errors.append(invalid(where, ratio, "must be greater than or equal to 1.0"))
        elif value.value() < 0:
            errors.append(invalid(where, value.value(), "must be greater than or equal to 0"))
    return errors


def _validate_startup_boost(boost: StartupBoost | None, path: str, allowed: _AllowedFeatures) -> list[FieldError]:
    """Return the errors of a startup boost (None: no errors). Any boost is an error if the feature is not allowed."""
    if boost is None:
        return []
    if not allowed.boost:
        return [forbidden(path, _format_disabled_gate("startupBoost", CPU_STARTUP_BOOST_GATE))]
    cpu = boost.cpu
    if cpu is None:
        return []
    match cpu.type:
        case "":
            return [build_required_error(f"{path}.cpu.type", "must be either Factor or Quantity")]
        case "Factor":
            where = f"{path}.cpu.factor"
            if cpu.factor is None:
                return [build_required_error(where, "required when type is Factor")]
            return [invalid(where, cpu.factor, "must be >= 1 for type Factor")] if cpu.factor < 1 else []
        case "Quantity":
            where = f"{path}.cpu.quantity"
            if cpu.quantity is None:
                return [build_required_error(where, "required when type is Quantity")]
            return _validate_resolution(CPU, cpu.quantity, where)
    return [not_supported(f"{path}.cpu.type", cpu.type, ("Factor", "Quantity"))]
