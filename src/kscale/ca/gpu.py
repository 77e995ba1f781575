"""GPUs and other devices of nodes: labels, vendor resources, and the labels of metrics.

Upstream: ``utils/gpu`` and ``processors/customresources/gpu_processor.go``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from kscale.ca.errors import INTERNAL_ERROR, AutoscalerError
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.resource import ResourceSlice
from kscale.objects.pod_resources import occupancy
from kscale.objects.quantity import Quantity

__all__ = [
    "CLOUD_GPU_LABELS",
    "DEFAULT_GPU_LABEL",
    "GPU_VENDOR_RESOURCES",
    "GpuConfig",
    "find_cloud_gpu_labels",
    "get_dra_drivers_label",
    "get_gpu_config",
    "get_gpu_metric_labels",
    "get_target_gpus",
    "node_has_gpu",
    "pod_requests_gpu",
]


DEFAULT_GPU_LABEL = "example.com/accelerator"
"""GPU label if the cloud provider does not define one."""

CLOUD_GPU_LABELS = (
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "kubernetes.azure.com/accelerator",
    "cluster-api/accelerator",
)
"""GPU labels of the providers of GKE, AWS, Azure and Cluster API (``CloudProvider.GPULabel``)."""

GPU_VENDOR_RESOURCES = (
    "nvidia.com/gpu",
    "habana.ai/gaudi",
    "gpu.intel.com/xe",
    "amd.com/gpu",
    "microsoft.com/directx",
)
"""The resources that count as GPUs, in look-up order."""


class GpuConfig(msgspec.Struct, kw_only=True, frozen=True):
    """The GPU of a node: its type (value of the label), its resource, and its DRA driver if it is exposed that way."""

    label: str
    type: str
    resource_name: str
    dra_driver: str = ""


_VENDOR_RESOURCES = frozenset(GPU_VENDOR_RESOURCES)


def _find_vendor_resource(resources: dict[str, Quantity] | None, *, nonzero: bool) -> tuple[str, Quantity] | None:
    """Return name and amount of the first resource in ``GPU_VENDOR_RESOURCES`` that there is; None if there is none.

    ``nonzero``: skip resources whose amount is 0.
    """
    if not resources or _VENDOR_RESOURCES.isdisjoint(resources):
        return None
    for name in GPU_VENDOR_RESOURCES:
        quantity = resources.get(name)
        if quantity is not None and not (nonzero and quantity.is_zero):
            return name, quantity
    return None


def node_has_gpu(label: str, node: Node) -> bool:
    """Return whether the node has the provider's GPU label or a nonzero allocatable amount of a vendor resource."""
    return (
        label in (node.metadata.labels or {})
        or _find_vendor_resource(node.status.allocatable, nonzero=True) is not None
    )


def find_cloud_gpu_labels(labels: Iterable[Mapping[str, str]]) -> list[str]:
    """Return the :data:`CLOUD_GPU_LABELS` that occur among these node labels."""
    there = {key for each in labels for key in CLOUD_GPU_LABELS if key in each}
    return [key for key in CLOUD_GPU_LABELS if key in there]


def pod_requests_gpu(pod: Pod) -> bool:
    """Check whether the pod requests a resource of :data:`GPU_VENDOR_RESOURCES`. A request of 0 counts, too."""
    requests = occupancy(pod)
    return any(name in requests for name in GPU_VENDOR_RESOURCES)


def get_gpu_config(label: str, node: Node) -> GpuConfig | None:
    """Return the default GPU configuration of a node; None unless :func:`node_has_gpu`.

    A labelled node that offers no devices gets the first vendor resource. Cloud providers may define another one.
    """
    if not node_has_gpu(label, node):
        return None
    resource = _find_vendor_resource(node.status.allocatable, nonzero=True)
    return GpuConfig(
        label=label,
        type=(node.metadata.labels or {}).get(label, ""),
        resource_name=resource[0] if resource else GPU_VENDOR_RESOURCES[0],
    )


def get_target_gpus(
    label: str, node: Node, *, group: str | None, template: Node | None, template_error: str | None = None
) -> tuple[str, int] | None:
    """Return (GPU type, number of devices) that a node adds, for quotas; None without GPU label or without any devices.

    A labelled node that offers no devices counts those of its group's template. Raises :class:`AutoscalerError` if such
    a node has no group, or if the group has no template (``template_error``: why).
    """
    kind = (node.metadata.labels or {}).get(label)
    if kind is None:
        return None
    resource = _find_vendor_resource(node.status.allocatable, nonzero=True)
    if resource:
        return kind, resource[1].value()
    if group is None:
        text = "node without with gpu label, without capacity not belonging to autoscaled node group"
        raise AutoscalerError(INTERNAL_ERROR, text)
    if template is None:
        raise AutoscalerError("", template_error or "Not implemented")
    resource = _find_vendor_resource(template.status.capacity, nonzero=False)
    return (kind, resource[1].value()) if resource else None


_GENERIC_GPU: Final = "generic"
_NOT_LISTED_GPU: Final = "not-listed"
_UNEXPECTED_GPU_LABEL: Final = "unexpected-label"

_KNOWN_DRIVERS: Final = frozenset({"compute-domain.nvidia.com", "dra.net", "gpu.nvidia.com", "tpu.google.com"})
_OTHER_DRIVER: Final = "custom.driver"


def get_gpu_metric_labels(gpu_label: str, node: Node, types: Collection[str] = ()) -> dict[str, str]:
    """Return the metric labels ``gpu_resource_name`` and ``gpu_name`` of a node or template; empty texts without GPU.

    ``gpu_name`` is the type of the GPU, ``generic`` without type, ``not-listed`` if ``types`` (the GPU types that the
    cloud provider lists) lacks it, or ``unexpected-label`` if the node's capacity lacks the resource.
    """
    config = get_gpu_config(gpu_label, node)
    if config is None:
        return {"gpu_resource_name": "", "gpu_name": ""}
    resource = f"dra_{config.dra_driver}" if config.dra_driver else config.resource_name
    capacity = (node.status.capacity or {}).get(config.resource_name)
    if capacity is None and not config.dra_driver:
        name = _UNEXPECTED_GPU_LABEL
    elif not config.type:
        name = _GENERIC_GPU
    else:
        name = config.type if config.type in types else _NOT_LISTED_GPU
    return {"gpu_resource_name": resource, "gpu_name": name}


def get_dra_drivers_label(slices: Iterable[ResourceSlice]) -> str:
    """Return the ``dra_drivers`` label: sorted names of the slices' drivers, separated by commas; empty without slices.

    Drivers that upstream does not know by name share one name.
    """
    names = {each.spec.driver if each.spec.driver in _KNOWN_DRIVERS else _OTHER_DRIVER for each in slices}
    return ",".join(sorted(names))
