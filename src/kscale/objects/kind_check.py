"""Check that an object is of the kind that its reader expects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kscale.errors import InputError, Problem
from kscale.objects.kinds import find_kind, item_kind, kind_of
from kscale.objects.meta import KubeObject, object_key

__all__ = ["check_kind"]

_TEMPLATES = frozenset({"template", "jobTemplate"})  # what workloads have in their spec, and pods do not


def check_kind(value: KubeObject | Mapping[str, Any], type_: type[KubeObject], field: str = "") -> None:
    """Check that an object which a caller passes as a ``type_`` does not say that it is of another kind.

    Parameters
    ----------
    value : KubeObject or mapping
        A struct, or API data. Data without ``kind`` passes.
    type_ : type of KubeObject
        The struct that the caller is about to read, for example ``Pod``.
    field : str
        Where the object stands, for the error.

    Raises
    ------
    InputError
        If the object is of another kind. The message names the kind, and says what to pass instead.
    """
    _, expected = kind_of(type_) or ("", type_.__name__)
    kind: Any
    version: Any
    if isinstance(value, KubeObject):
        _, own = kind_of(type(value)) or ("", type(value).__name__)
        kind, version = value.kind or own, value.api_version
        key = value.key
    else:
        kind, version = value.get("kind") or expected, value.get("apiVersion") or ""
        key = _key_of(value.get("metadata"))
        spec = value.get("spec")
        if (
            not value.get("kind")
            and expected == "Pod"
            and isinstance(spec, Mapping)
            and not _TEMPLATES.isdisjoint(spec)
        ):
            text = f"an object without kind, {key} with a pod template, is not a Pod{_advice('Deployment', expected)}"
            raise InputError(Problem(text, field=field))
    if not (isinstance(kind, str) and isinstance(version, str)):
        return  # whoever decodes it says so
    if kind == expected and (not version or find_kind(version, kind) is type_):
        return
    label = kind if kind != expected else f"{version} {kind}"
    message = f"{label} {key}".rstrip() + f" is not a {expected}{_advice(kind, expected)}"
    raise InputError(Problem(message, field=field))


def _has_template(spec: Any) -> bool:
    return isinstance(spec, Mapping) and not _TEMPLATES.isdisjoint(spec)


def _key_of(metadata: Any) -> str:
    if not isinstance(metadata, Mapping):
        return ""
    namespace, name = metadata.get("namespace"), metadata.get("name")
    return object_key(str(namespace or ""), str(name or ""))


def _advice(kind: str, expected: str) -> str:
    """Say what to pass instead of an object of another kind."""
    if item_kind(kind) or kind == "List":
        return ": pass the objects of the list one by one"
    if expected != "Pod" or kind == expected:
        return ""
    from kscale.objects.workloads import WORKLOADS

    if kind not in WORKLOADS:
        return ": pass pods, or the names of pods in the snapshot"
    return (
        ": pass the pods that it would create, as kscale.objects.workloads.pods_of(workload) returns them; "
        "kscale.capacity.fit.fit_workloads and `kscale fit --pod FILE` answer for workloads"
    )
