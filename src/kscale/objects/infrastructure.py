"""What the template of an infrastructure's provider says that a machine will be (upstream:
``cloudprovider/clusterapi/clusterapi_unstructured.go``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kscale.objects.quantity import Quantity, QuantityError

__all__ = ["Infrastructure", "read_infrastructure"]


class Infrastructure(msgspec.Struct, frozen=True, kw_only=True):
    """Resources by name, and the system; empty: it does not say."""

    capacity: dict[str, Quantity] = {}
    architecture: str = ""
    operating_system: str = ""


def read_infrastructure(content: Mapping[str, Any]) -> Infrastructure:
    """``status.capacity`` and ``status.nodeInfo`` of an object as plain data. An amount that cannot be read is left
    out, and a map with a value that is no text counts as none, as upstream takes them."""
    status = content.get("status")
    told = status if isinstance(status, Mapping) else {}
    capacity = {}
    for name, text in _texts(told.get("capacity")).items():
        try:
            capacity[name] = Quantity(text)
        except QuantityError:
            continue
    system = _texts(told.get("nodeInfo"))
    return Infrastructure(
        capacity=capacity,
        architecture=system.get("architecture", ""),
        operating_system=system.get("operatingSystem", ""),
    )


def _texts(found: object) -> dict[str, str]:
    if not isinstance(found, Mapping) or not all(isinstance(value, str) for value in found.values()):
        return {}
    return dict(found)
