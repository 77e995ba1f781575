"""``kscale validate``: reads all objects and reports those that would be refused.

The rules are those of :mod:`kscale.hpa.api.admission`, :mod:`kscale.vpa.admission` and
:mod:`kscale.hpa.api.keda`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from kscale.errors import InputError, Problem
from kscale.hpa.api.admission import DecodeError, decode_hpa, validate_stored
from kscale.hpa.api.keda import KEDAWebhook, check_scaled_object_alone, generate_hpa
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, HorizontalPodAutoscalerV1
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.meta import KubeObject
from kscale.objects.api.vpa import API_VERSION as VPA_VERSION
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.custom_workloads import ScaledObject, irrelevant_settings
from kscale.objects.decode import to_dict
from kscale.objects.kinds import find_misspelled_kind
from kscale.objects.names import FieldError, build_required_error, not_supported
from kscale.objects.pod_resources import ignored_resources
from kscale.objects.validation import find_unknown_fields, missing_amounts
from kscale.records import Record
from kscale.scheduling.plugins.inter_pod_affinity import format_namespace_warning, selects_namespaces_by_labels
from kscale.snapshot.loading import LoadReport, load_objects
from kscale.vpa.admission import admit_vpa

__all__ = [
    "KindCount",
    "Refusal",
    "Validation",
    "refusals_of",
    "unserved_version",
    "validate",
]


_REMOVED = {"autoscaling/v2beta1": "1.25", "autoscaling/v2beta2": "1.26"}
_CONTROLLED_VALUES = ("RequestsAndLimits", "RequestsOnly")
_MAX_UNKNOWN = 100
_CHANGES = ("TargetHigherThanRequests", "TargetLowerThanRequests")


class Refusal(NamedTuple):
    """A mistake of an object: ``field`` may be empty; a warning does not prevent storing the object."""

    field: str
    message: str
    is_warning: bool = False


def refusals_of(obj: KubeObject, raw: msgspec.Raw | Mapping[str, Any] | None) -> list[Refusal]:
    """Return the mistakes and warnings of an autoscaler object about to be written; empty for other kinds.

    ``raw``: the data from which ``obj`` was decoded (None: ``obj`` itself). An object with a resource version is stored
    already: it may break rules for new ones, and its unknown fields are warnings.
    """
    match obj:
        case HorizontalPodAutoscaler() | HorizontalPodAutoscalerV1():
            return _validate_hpa(_read_plain_data(obj, raw), type(obj))
        case VerticalPodAutoscaler():
            return _validate_vpa(obj, _read_plain_data(obj, raw))
        case ScaledObject():
            return _validate_scaled_object(obj, _read_plain_data(obj, raw))
    return []


def unserved_version(version: str) -> str:
    """Return the message for an HPA of an API version that Kubernetes has removed."""
    return f"{version} is not served since Kubernetes {_REMOVED[version]}: use autoscaling/v2"


def _read_plain_data(obj: KubeObject, raw: msgspec.Raw | Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the object as a dict, with its namespace and the API version with which it was read.

    ``raw``: the data from which it was decoded; None: the object is encoded.
    """
    data: Mapping[str, Any] = msgspec.json.decode(raw) if isinstance(raw, msgspec.Raw) else raw or to_dict(obj)
    metadata = {**(data.get("metadata") or {}), "namespace": obj.namespace}
    return {**data, "apiVersion": obj.api_version, "kind": obj.kind, "metadata": metadata}


def _is_stored(data: Mapping[str, Any]) -> bool:
    """Return whether the object has a resource version: the API server has stored it already."""
    return bool(data["metadata"].get("resourceVersion"))


def _validate_hpa(data: dict[str, Any], type_: type[KubeObject]) -> list[Refusal]:
    """Return the mistakes of an HPA, unknown fields included. ``type_``: the struct with which its fields are compared.

    If Kubernetes has removed the API version, the result has only this mistake.
    """
    version = data["apiVersion"]
    if version in _REMOVED:
        return [Refusal("apiVersion", unserved_version(version))]
    unknown = _unknown(data, type_)
    try:
        hpa = decode_hpa(data)
    except DecodeError as error:
        return [*unknown, Refusal("", str(error))]
    return [*unknown, *map(_refusal, validate_stored(hpa, is_stored=_is_stored(data)).errors)]


def _validate_vpa(obj: VerticalPodAutoscaler, data: dict[str, Any]) -> list[Refusal]:
    """Return a VPA's unknown fields, its mistakes by the admission webhook and the schema, and the webhook's warnings.

    If the API version is not served, the result has only this mistake.
    """
    if data["apiVersion"] != VPA_VERSION:
        return [Refusal("apiVersion", f"{data['apiVersion']} is not served: use {VPA_VERSION}")]
    admitted = admit_vpa(obj, obj if _is_stored(data) else None)
    errors = [*admitted.errors, *_schema_errors(obj)]
    refusals = [*_unknown(data, VerticalPodAutoscaler), *map(_refusal, errors)]
    return [*refusals, *(Refusal("", text, is_warning=True) for text in admitted.warnings)]


def _schema_errors(vpa: VerticalPodAutoscaler) -> list[FieldError]:
    """Return the violations of the CustomResourceDefinition's schema that the webhook does not check."""
    spec, errors = vpa.spec, []
    if spec.target_ref is None:
        errors.append(build_required_error("spec.targetRef"))
    else:
        fields = (("kind", spec.target_ref.kind), ("name", spec.target_ref.name))
        errors += [build_required_error(f"spec.targetRef.{name}") for name, value in fields if not value]
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


def _validate_scaled_object(obj: ScaledObject, data: dict[str, Any]) -> list[Refusal]:
    """Return the mistakes of a ScaledObject; if it has none, those of the HPA that KEDA generates for it.

    The result includes unknown fields, and settings without effect (as warnings).
    """
    unknown = _unknown(data, ScaledObject)
    unknown += [Refusal("spec", text, is_warning=True) for text in irrelevant_settings(obj)]
    refused = [Refusal(field, text) for field, text in check_scaled_object_alone(obj)]
    if refused:
        return [*unknown, *refused]
    generated = generate_hpa(data)
    if not generated["spec"]["metrics"]:
        return unknown  # without a metric with a known target there is no HPA to check
    try:
        errors = validate_stored(decode_hpa(generated), is_stored=False).errors
    except (DecodeError, InputError) as error:
        return [*unknown, Refusal("", f"the HPA that KEDA generates: {error}")]
    return [*unknown, *(Refusal("", f"the HPA that KEDA generates: {error}") for error in errors)]


def _unknown(data: Mapping[str, Any], type_: type[KubeObject]) -> list[Refusal]:
    """Return a refusal for each field below ``spec`` that the type does not have, the first 100.

    The refusal is a warning for stored objects.
    """
    stored = _is_stored(data)
    fields = islice(find_unknown_fields({"spec": data.get("spec")}, type_), _MAX_UNKNOWN)
    how = "the server drops it" if stored else "strict decoding refuses it"
    return [Refusal(field, f"unknown field: {how}", is_warning=stored) for field, _ in fields]


def _refusal(error: FieldError) -> Refusal:
    """Convert an error to a refusal, whose message does not repeat the field."""
    return Refusal(error.field, str(error).partition(": ")[2])


class KindCount(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """Number of objects of a kind.

    Attributes
    ----------
    kind : str
        The kind.
    objects : int
        Number of objects that were read.
    modelled : bool
        Whether a result of kscale can depend on objects of this kind.
    """

    kind: str
    objects: int
    modelled: bool = True


class Validation(Record, frozen=True):
    """Objects that were read from the sources, and their mistakes.

    Attributes
    ----------
    valid : bool
        Whether there are no ``problems``.
    sources : list of str
        Names of the sources.
    objects : int
        Number of objects of modelled kinds. A source that cannot be read at all counts as one.
    damaged : int
        Number of these objects that cannot be read.
    unreadable : int
        Number of sources that cannot be read at all.
    kinds : list of KindCount
        Number of objects of each kind. Kinds that are not modelled are not part of ``objects``.
    problems : list of str
        Mistakes of objects that cannot be used, with file, object and field.
    damaged_objects : list of str
        The objects that cannot be read, and those that are refused.
    warnings : list of str
        Mistakes of objects that are used although no API server would store them.
    warning_count : int
        Number of all warnings, also of those that ``warnings`` omits.
    refused : int
        Number of HPAs, VPAs and ScaledObjects that can be read, but that the API server or a webhook would not store.
    """

    KIND = "Validation"
    ROWS = "kinds"
    valid: bool
    sources: list[str]
    objects: int
    damaged: int
    unreadable: int
    kinds: list[KindCount]
    problems: list[str]
    damaged_objects: list[str]
    warnings: list[str]
    warning_count: int
    refused: int = 0


def validate(sources: Sequence[str]) -> Validation:
    """Read all sources (paths, ``-``: standard input) despite mistakes; return counts of objects and all mistakes."""
    report = LoadReport()
    nodes: set[str] = set()
    placed: Counter[str] = Counter()
    in_doubt = 0
    refused: list[Problem] = []
    lacking: list[str] = []
    webhook = KEDAWebhook()
    scaled_objects: list[tuple[ScaledObject, Problem]] = []
    with suppress(InputError):  # raised at the end for sources that cannot be read; the report contains them
        for loaded in load_objects(*sources, strict=False, report=report):
            for refusal in refusals_of(loaded.obj, loaded.raw):
                problem = replace(report.place(), message=refusal.message, field=refusal.field)
                if refusal.is_warning:
                    lacking.append(str(problem))
                else:
                    refused.append(problem)
            if isinstance(loaded.obj, ScaledObject):
                scaled_objects.append((loaded.obj, report.place()))
            else:
                webhook.add(loaded.obj)
            if isinstance(loaded.obj, Node):
                nodes.add(loaded.obj.name)
                if missing := missing_amounts(loaded.obj):
                    text = f"has no {', '.join(missing)}; a missing amount counts as 0"
                    lacking.append(str(replace(report.place(), message=text, field="status.allocatable")))
            elif isinstance(loaded.obj, Pod):
                in_doubt += not loaded.obj.is_finished and selects_namespaces_by_labels(loaded.obj.spec)
                lacking += [
                    str(replace(report.place(), message=f'the scheduler ignores the resource "{name}"', field=field))
                    for field, name in ignored_resources(loaded.obj.spec)
                ]
                if loaded.obj.spec.node_name:
                    placed[loaded.obj.spec.node_name] += 1
    for scaled, place in scaled_objects:
        refused += [replace(place, message=text, field=field) for field, text in webhook.check(scaled)]
        if webhook.is_target_missing(scaled):
            text = "its target is not in the input: whether its containers have requests is not checked"
            lacking.append(str(replace(place, message=text, field="spec.scaleTargetRef")))
        webhook.add(scaled)  # the one that comes later is refused
    if unserved := report.skipped["HorizontalPodAutoscaler.autoscaling"]:
        name = f"{unserved:,} HorizontalPodAutoscaler{'s' if unserved > 1 else ''}"
        refused.append(Problem(unserved_version("autoscaling/v2beta1"), object=name, field="apiVersion"))
    lacking += [
        str(Problem(f"not modelled; did you mean {name}?", object=f"{count:,} of kind {kind}"))
        for kind, count in report.skipped.items()
        if (name := find_misspelled_kind(kind))
    ]
    on_unknown_nodes = {name: count for name, count in placed.items() if name not in nodes}
    lacking += [
        str(Problem(f"not in the input; pods on it: {count:,}", object=f"Node {name}"))
        for name, count in on_unknown_nodes.items()
    ]
    if in_doubt and not report.read["Namespace"]:
        lacking.append(format_namespace_warning(in_doubt))
    kinds = [KindCount(kind=kind, objects=count) for kind, count in sorted(report.read.items())]
    kinds += [KindCount(kind=kind, objects=count, modelled=False) for kind, count in sorted(report.skipped.items())]
    return Validation(
        valid=not (report.problems or refused),
        sources=list(sources),
        objects=report.total,
        unreadable=len({problem.source for problem in report.problems if problem.of_source}),
        damaged=report.total - report.read.total(),
        kinds=kinds,
        refused=len({(problem.source, problem.object) for problem in refused}),
        problems=[str(problem) for problem in (*report.problems, *refused)],
        damaged_objects=list(
            dict.fromkeys(
                ": ".join(filter(None, (problem.source, problem.object))) for problem in (*report.problems, *refused)
            )
        ),
        warnings=[*map(str, report.warnings), *lacking],
        warning_count=report.warning_count + len(lacking),
    )
