"""What API server, VPA webhook and KEDA's webhook refuse of the autoscalers in a dump.

The rules are those of :mod:`kscale.hpa.admission`, :mod:`kscale.vpa.admission` and :mod:`kscale.objects.keda`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from kscale.errors import InputError
from kscale.hpa.admission import DecodeError, check_stored, decode
from kscale.hpa.keda import hpa_of
from kscale.objects.autoscaling import HorizontalPodAutoscaler, HorizontalPodAutoscalerV1
from kscale.objects.decode import to_dict
from kscale.objects.field_errors import FieldError, not_supported, required
from kscale.objects.keda import ScaledObject, replica_errors, trigger_errors
from kscale.objects.meta import KubeObject
from kscale.objects.unknown_fields import unknown_fields
from kscale.objects.vpa import API_VERSION as VPA_VERSION
from kscale.objects.vpa import VerticalPodAutoscaler
from kscale.vpa.admission import admit_vpa

__all__ = ["Refusal", "refusals_of", "unserved_version"]

_REMOVED = {"autoscaling/v2beta1": "1.25", "autoscaling/v2beta2": "1.26"}
_CONTROLLED_VALUES = ("RequestsAndLimits", "RequestsOnly")
_CHANGES = ("TargetHigherThanRequests", "TargetLowerThanRequests")


class Refusal(NamedTuple):
    """What is wrong with an object: ``field`` may be empty; a warning does not stop the object."""

    field: str
    message: str
    is_warning: bool = False


def refusals_of(obj: KubeObject, raw: msgspec.Raw | Mapping[str, Any] | None) -> list[Refusal]:
    """Return what is wrong with an autoscaler about to be written; nothing for other kinds.

    ``raw``: what ``obj`` was decoded from. An object with a resource version is stored already: it may break rules for
    new ones, and its unknown fields are warnings.
    """
    match obj:
        case HorizontalPodAutoscaler() | HorizontalPodAutoscalerV1():
            return _of_hpa(_plain(obj, raw), type(obj))
        case VerticalPodAutoscaler():
            return _of_vpa(obj, _plain(obj, raw))
        case ScaledObject():
            return _of_scaled_object(obj, _plain(obj, raw))
    return []


def unserved_version(version: str) -> str:
    """Return the message for an HPA of a version that was removed."""
    return f"{version} is not served since Kubernetes {_REMOVED[version]}: use autoscaling/v2"


def _plain(obj: KubeObject, raw: msgspec.Raw | Mapping[str, Any] | None) -> dict[str, Any]:
    """Plain data with the namespace and the version that the object is read with."""
    data: Mapping[str, Any] = msgspec.json.decode(raw) if isinstance(raw, msgspec.Raw) else raw or to_dict(obj)
    metadata = {**(data.get("metadata") or {}), "namespace": obj.namespace}
    return {**data, "apiVersion": obj.api_version, "kind": obj.kind, "metadata": metadata}


def _is_stored(data: Mapping[str, Any]) -> bool:
    return bool(data["metadata"].get("resourceVersion"))


def _of_hpa(data: dict[str, Any], type_: type[KubeObject]) -> list[Refusal]:
    version = data["apiVersion"]
    if version in _REMOVED:
        return [Refusal("apiVersion", unserved_version(version))]
    unknown = _unknown(data, type_)
    try:
        hpa = decode(data)
    except DecodeError as error:
        return [*unknown, Refusal("", str(error))]
    return [*unknown, *map(_refusal, check_stored(hpa, is_stored=_is_stored(data)).errors)]


def _of_vpa(obj: VerticalPodAutoscaler, data: dict[str, Any]) -> list[Refusal]:
    if data["apiVersion"] != VPA_VERSION:
        return [Refusal("apiVersion", f"{data['apiVersion']} is not served: use {VPA_VERSION}")]
    admitted = admit_vpa(obj, obj if _is_stored(data) else None)
    errors = [*admitted.errors, *_schema_errors(obj)]
    refusals = [*_unknown(data, VerticalPodAutoscaler), *map(_refusal, errors)]
    return [*refusals, *(Refusal("", text, is_warning=True) for text in admitted.warnings)]


def _schema_errors(vpa: VerticalPodAutoscaler) -> list[FieldError]:
    """Return what the schema of the CustomResourceDefinition refuses, and the webhook does not look at."""
    spec, errors = vpa.spec, []
    if spec.target_ref is None:
        errors.append(required("spec.targetRef"))
    else:
        fields = (("kind", spec.target_ref.kind), ("name", spec.target_ref.name))
        errors += [required(f"spec.targetRef.{name}") for name, value in fields if not value]
    for i, change in enumerate(spec.update_policy.eviction_requirements if spec.update_policy is not None else ()):
        path = f"spec.updatePolicy.evictionRequirements[{i}].changeRequirement"
        if change.change_requirement not in _CHANGES:
            errors.append(not_supported(path, change.change_requirement, _CHANGES))
    policies = spec.resource_policy.container_policies if spec.resource_policy is not None else ()
    for i, policy in enumerate(policies):
        path = f"spec.resourcePolicy.containerPolicies[{i}].controlledValues"
        if policy.controlled_values is not None and policy.controlled_values not in _CONTROLLED_VALUES:
            errors.append(not_supported(path, policy.controlled_values, _CONTROLLED_VALUES))
    return errors


def _of_scaled_object(obj: ScaledObject, data: dict[str, Any]) -> list[Refusal]:
    unknown = _unknown(data, ScaledObject)
    refused = [Refusal("spec", text) for text in replica_errors(obj)]
    refused += [Refusal("spec.triggers", text) for text in trigger_errors(obj)]
    if refused:
        return [*unknown, *refused]
    generated = hpa_of(data)
    if not generated["spec"]["metrics"]:
        return unknown  # without a metric whose target is known there is no HPA to check
    try:
        errors = check_stored(decode(generated), is_stored=False).errors
    except (DecodeError, InputError) as error:
        return [*unknown, Refusal("", f"the HPA that KEDA generates: {error}")]
    return [*unknown, *(Refusal("", f"the HPA that KEDA generates: {error}") for error in errors)]


def _unknown(data: Mapping[str, Any], type_: type[KubeObject]) -> list[Refusal]:
    """Fields below ``spec`` that the type does not have."""
    stored = _is_stored(data)
    fields = unknown_fields({"spec": data.get("spec")}, type_)
    how = "the server drops it" if stored else "strict decoding refuses it"
    return [Refusal(field, f"unknown field: {how}", is_warning=stored) for field in fields]


def _refusal(error: FieldError) -> Refusal:
    return Refusal(error.field, str(error).partition(": ")[2])
