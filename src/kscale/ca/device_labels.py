"""The labels by which metrics tell apart nodes with devices (``utils/gpu``, ``GetGpuInfoForMetrics``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from kscale.ca.gpu import gpu_config
from kscale.objects.core import Node
from kscale.objects.resource import ResourceSlice

__all__ = ["dra_drivers_label", "gpu_labels"]

_GENERIC: Final = "generic"
_NOT_LISTED: Final = "not-listed"
_UNEXPECTED: Final = "unexpected-label"

_KNOWN_DRIVERS: Final = frozenset({"compute-domain.nvidia.com", "dra.net", "gpu.nvidia.com", "tpu.google.com"})
_OTHER_DRIVER: Final = "custom.driver"


def gpu_labels(gpu_label: str, node: Node, types: Collection[str] = ()) -> dict[str, str]:
    """``gpu_resource_name`` and ``gpu_name`` of a node or a template; ``types``: those that the cloud lists."""
    config = gpu_config(gpu_label, node)
    if config is None:
        return {"gpu_resource_name": "", "gpu_name": ""}
    resource = f"dra_{config.dra_driver}" if config.dra_driver else config.resource_name
    capacity = (node.status.capacity or {}).get(config.resource_name)
    if capacity is None and not config.dra_driver:
        name = _UNEXPECTED
    elif not config.type:
        name = _GENERIC
    else:
        name = config.type if config.type in types else _NOT_LISTED
    return {"gpu_resource_name": resource, "gpu_name": name}


def dra_drivers_label(slices: Iterable[ResourceSlice]) -> str:
    """``dra_drivers``: those that upstream knows by name, and whether there are others."""
    names = {each.spec.driver if each.spec.driver in _KNOWN_DRIVERS else _OTHER_DRIVER for each in slices}
    return ",".join(sorted(names))
