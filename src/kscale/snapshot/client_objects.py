"""Objects of Kubernetes client libraries as plain API data, without importing any of them.

Known shapes: the official client and its asyncio twin (models with ``attribute_map``), lightkube and kr8s
(``to_dict()``), anything else with ``to_dict()`` or ``raw``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from kscale.objects.kinds import KINDS, item_kind

__all__ = ["is_client_object", "to_plain"]

_MODEL_NAME = re.compile(r"^(?:[A-Z][a-z]+)?(V[0-9]+(?:(?:alpha|beta)[0-9]+)?)([A-Z].*)$")


def is_client_object(value: Any) -> bool:
    """Whether :func:`to_plain` knows what to do with the value."""
    if isinstance(value, (type, Mapping, str, bytes)):
        return False
    if hasattr(value, "attribute_map") or callable(getattr(value, "to_dict", None)):
        return True
    return isinstance(getattr(value, "raw", None), Mapping)


def to_plain(value: Any) -> dict[str, Any]:
    """The object in the form of the API: camelCase keys, RFC 3339 times; ``kind`` from the class if it has none."""
    if hasattr(value, "attribute_map") and hasattr(value, "openapi_types"):
        data: dict[str, Any] = _model(value)
        match = _MODEL_NAME.match(type(value).__name__)
        version, kind = (match[1].lower(), match[2]) if match else ("", type(value).__name__)
        # The items of a list do not say what they are; the class name has all but the group.
        if version and "apiVersion" not in data and (api_version := _api_version(version, kind)):
            data["apiVersion"] = api_version
    else:
        data = _plain(value.to_dict() if callable(getattr(value, "to_dict", None)) else value.raw)
        kind = type(value).__name__
    data.setdefault("kind", kind)
    return data


def _api_version(version: str, kind: str) -> str:
    """``apps/v1`` for v1 and Deployment (or DeploymentList); empty for a kind that is not read."""
    groups = [group for group, name in KINDS if name in (kind, item_kind(kind)) and "/" not in group]
    return "/".join(part for part in (groups[0], version) if part) if groups else ""


def _model(value: Any) -> Any:
    """A model of the official client: its attributes under their JSON names, absent ones left out."""
    fields = ((json_name, getattr(value, name)) for name, json_name in value.attribute_map.items())
    return {json_name: _plain(item) for json_name, item in fields if item is not None}


def _plain(value: Any) -> Any:
    if hasattr(value, "attribute_map") and hasattr(value, "openapi_types"):
        return _model(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        if value.tzinfo is None:
            value = value.replace(tzinfo=UTC)
        text = value.astimezone(UTC).isoformat(timespec="microseconds" if value.microsecond else "seconds")
        return text.replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value
