"""What callers may give as an object: a struct, plain data, or an object of a Kubernetes client library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from kscale.errors import InputError
from kscale.hpa.defaults import apply_defaults
from kscale.hpa.v1_conversion import from_v1
from kscale.objects.autoscaling import HorizontalPodAutoscaler, HorizontalPodAutoscalerV1, Scale
from kscale.objects.core import Pod
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.kind_check import check_kind
from kscale.objects.kinds import kind_of
from kscale.objects.meta import KubeObject
from kscale.objects.namespaces import DEFAULT_NAMESPACE
from kscale.objects.scale import ScaleError
from kscale.objects.scale_versions import read_scale
from kscale.snapshot.client_objects import is_client_object, to_plain

__all__ = ["given_hpa", "given_pod", "given_scale", "plain"]

K = TypeVar("K", bound=KubeObject)


def plain(value: object, what: str = "object") -> Mapping[str, Any]:
    """Plain data of an object. Raises :class:`~kscale.errors.InputError` for what is none."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, KubeObject):
        _, kind = kind_of(type(value)) or ("", "")
        return {"apiVersion": value.api_version, "kind": value.kind or kind, **to_dict(value)}
    if is_client_object(value):
        return to_plain(value)
    raise InputError(f"a {what} is a struct, a mapping or a client's object, not {type(value).__name__}")


def given_hpa(value: object) -> HorizontalPodAutoscaler:
    """An HPA as v2: a v2 struct as it is, anything else converted and defaulted as the API server does.

    Raises :class:`~kscale.errors.InputError` for what cannot be read.
    """
    if isinstance(value, HorizontalPodAutoscaler):
        return value
    if isinstance(value, HorizontalPodAutoscalerV1):
        return apply_defaults(from_v1(value))
    data = plain(value, "HorizontalPodAutoscaler")
    version = str(data.get("apiVersion") or "autoscaling/v2")
    if version == "autoscaling/v1":
        return apply_defaults(from_v1(_read(data, HorizontalPodAutoscalerV1)))
    if version != "autoscaling/v2":
        raise InputError(f"autoscaling/v1 and v2 are read, not {version}")
    return apply_defaults(_read(data, HorizontalPodAutoscaler))


def given_scale(value: object) -> Scale:
    """A scale of any of the four kinds; what does not say is of autoscaling/v1.

    Raises :class:`~kscale.errors.InputError` for what is none.
    """
    if isinstance(value, Scale):
        return value
    data = {"apiVersion": "autoscaling/v1", "kind": "Scale", **plain(value, "Scale")}
    try:
        return read_scale(data)
    except ScaleError as error:
        raise InputError(f"no Scale: {error}") from None


def given_pod(value: object) -> Pod:
    """A pod. Raises :class:`~kscale.errors.InputError` for what is none."""
    return value if isinstance(value, Pod) else _read(plain(value, "Pod"), Pod)


def _read(data: Mapping[str, Any], type_: type[K]) -> K:
    """:func:`~kscale.objects.decode.from_dict`; an error says which object it is of, as far as that has a name."""
    try:
        check_kind(data, type_)
        return from_dict(data, type_)
    except InputError as error:
        metadata = data.get("metadata")
        if not isinstance(metadata, Mapping) or not metadata.get("name"):
            raise
        kind = data.get("kind") or type_.__name__
        where = f"{kind} {metadata.get('namespace') or DEFAULT_NAMESPACE}/{metadata['name']}"
        raise InputError([replace(each, object=where) for each in error.problems]) from None
