"""Actions on the API server as requests. Writes are patches: an object is never put back whole.

The one exception is a Scale, which is nothing but what is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from kscale.effects import Create, Delete, Evict, Get, GetScale, GetWhole, Patch, Preview, PutScale, Resize, WriteStatus
from kscale.objects.autoscaling import STATUS_ANNOTATIONS_V1, HorizontalPodAutoscalerV1
from kscale.objects.base import enc_hook
from kscale.objects.decode import to_dict
from kscale.objects.meta import KubeObject
from kscale.objects.rest_mapping import AUTOSCALING_V1, ServedResource
from kscale.objects.scale_versions import written_scale
from kscale.world.kubernetes.transport import Call

__all__ = ["ApiAction", "call_of", "list_call"]

ApiAction = Get | GetWhole | Create | Preview | Patch | Delete | Evict | Resize | GetScale | PutScale | WriteStatus

_JSON: Final = "application/json"
_ENCODER: Final = msgspec.json.Encoder(enc_hook=enc_hook)
_PATCHES: Final = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


def call_of(action: ApiAction, resource: ServedResource) -> Call:
    """The request of an action. ``resource``: where its kind is served; of an eviction and a resize that of pods.

    Raises :class:`~kscale.objects.scale.ScaleError` for a Scale that the server's kind cannot hold.
    """
    match action:
        case Get() | GetWhole():
            return _call("GET", resource, action.namespace, action.name)
        case Create(object=made):
            return _call("POST", resource, made.namespace, "", body=_whole(made, resource), about=made.name)
        case Preview(content=content):
            named = {**content, "apiVersion": resource.api_version, "kind": resource.kind}
            return _call("POST", resource, action.namespace, "", body=named, query=(("dryRun", "All"),))
        case Patch():
            content = _patch(action)
            return _call(
                "PATCH",
                resource,
                action.namespace,
                action.name,
                action.subresource,
                body=content,
                content_type=_PATCHES[action.type],
            )
        case Delete():
            return _call("DELETE", resource, action.namespace, action.name, body=_delete_options(action))
        case Evict():
            return _call("POST", resource, action.namespace, action.name, "eviction", body=_eviction(action))
        case Resize():
            operations = [to_dict(each) for each in action.patch]
            content_type = _PATCHES["json"]
            return _call(
                "PATCH", resource, action.namespace, action.name, "resize", body=operations, content_type=content_type
            )
        case GetScale():
            return _call("GET", resource, action.namespace, action.name, "scale")
        case PutScale():
            scale = written_scale(action.scale, action.replicas, resource.scale or AUTOSCALING_V1)
            return _call("PUT", resource, action.namespace, action.scale.name, "scale", body=scale)
        case WriteStatus(object=held):
            return _call(
                "PATCH",
                resource,
                held.namespace,
                held.name,
                "status",
                body=_status(held),
                content_type=_PATCHES["merge"],
            )


def list_call(
    resource: ServedResource, namespace: str, *, selector: str = "", fields: str = "", limit: int = 0, more: str = ""
) -> Call:
    """The request of a page of a list; ``more``: what to go on with."""
    query = (("labelSelector", selector), ("fieldSelector", fields), ("limit", str(limit or "")), ("continue", more))
    return Call(
        method="GET",
        path=resource.path(_quoted(namespace)),
        query=tuple((name, value) for name, value in query if value),
        resource=resource.group_resource,
    )


def _call(
    method: str,
    resource: ServedResource,
    namespace: str,
    name: str,
    subresource: str = "",
    *,
    body: Any = None,
    content_type: str = _JSON,
    about: str = "",
    query: tuple[tuple[str, str], ...] = (),
) -> Call:
    return Call(
        method=method,
        path=resource.path(_quoted(namespace), _quoted(name), subresource),
        query=query,
        body=None if body is None else _ENCODER.encode(body),
        content_type="" if body is None else content_type,
        resource=resource.group_resource,
        name=name or about,
    )


@lru_cache(maxsize=1 << 14)
def _quoted(text: str) -> str:
    """A name in a path. The same ones come again and again."""
    return quote(text, safe="")


def _whole(made: KubeObject, resource: ServedResource) -> dict[str, Any]:
    """A new object, with its kind."""
    return {**to_dict(made), "apiVersion": resource.api_version, "kind": resource.kind}


def _patch(action: Patch) -> Any:
    """The patch; with a version it is refused where the object has another by then."""
    version = action.resource_version
    if isinstance(action.patch, Mapping):
        if not version:
            return action.patch
        metadata = {**(action.patch.get("metadata") or {}), "resourceVersion": version}
        return {**action.patch, "metadata": metadata}
    operations = [to_dict(each) for each in action.patch]
    held = [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}] if version else []
    return [*held, *operations]


def _delete_options(action: Delete) -> dict[str, Any]:
    options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if action.grace_period_seconds is not None:
        options["gracePeriodSeconds"] = action.grace_period_seconds
    if action.uid:
        options["preconditions"] = {"uid": action.uid}
    return options


def _eviction(action: Evict) -> dict[str, Any]:
    eviction: dict[str, Any] = {
        "kind": "Eviction",
        "apiVersion": "policy/v1",
        "metadata": {"name": action.name, "namespace": action.namespace},
    }
    if action.grace_period_seconds is not None:
        eviction["deleteOptions"] = {"gracePeriodSeconds": action.grace_period_seconds}
    return eviction


def _status(held: KubeObject) -> dict[str, Any]:
    """The status alone: what kscale knows of it becomes as it is here, also what is absent; the rest stays."""
    status = getattr(held, "status", None)
    if not isinstance(status, msgspec.Struct):
        raise TypeError(f"a {type(held).__name__} has no status")
    metadata: dict[str, Any] = {"resourceVersion": held.metadata.resource_version}
    if isinstance(held, HorizontalPodAutoscalerV1):  # the other half of its status
        metadata["annotations"] = {key: (held.metadata.annotations or {}).get(key) for key in STATUS_ANNOTATIONS_V1}
    return {"metadata": metadata, "status": _known(status)}


def _known(status: msgspec.Struct) -> dict[str, Any]:
    """Every field of a status by its name in JSON, None where it is absent; what is in them is encoded later."""
    found: dict[str, Any] = {}
    for field, name, default, factory in _fields(type(status)):
        value = getattr(status, field)
        absent = value is default or value is UNSET or (type(value) is factory and not value)
        found[name] = None if absent else value
    return found


@cache
def _fields(type_: type[msgspec.Struct]) -> tuple[tuple[str, str, Any, Any], ...]:
    """(attribute, name in JSON, default, what makes it) of each field. What is as it is by default is absent
    (:class:`~kscale.objects.base.ApiStruct`)."""
    return tuple(
        (each.name, each.encode_name, each.default, each.default_factory) for each in msgspec.structs.fields(type_)
    )
