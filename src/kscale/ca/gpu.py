"""GPUs as the autoscaler sees them: labels, vendor resources, and how many of which type a node has.

Upstream: ``utils/gpu`` and ``processors/customresources/gpu_processor.go``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from kscale.ca.errors import INTERNAL_ERROR, AutoscalerError
from kscale.objects.core import Node, Pod
from kscale.objects.quantity import Quantity
from kscale.objects.requests import occupancy

__all__ = [
    "CLOUD_GPU_LABELS",
    "DEFAULT_GPU_LABEL",
    "GPU_VENDOR_RESOURCES",
    "GpuConfig",
    "gpu_config",
    "gpu_target",
    "node_has_gpu",
    "pod_requests_gpu",
    "recognised_gpu_labels",
]

DEFAULT_GPU_LABEL = "example.com/accelerator"
"""The label where no cloud provider says which it is."""

CLOUD_GPU_LABELS = (
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "kubernetes.azure.com/accelerator",
    "cluster-api/accelerator",
)
"""What the providers of GKE, AWS, Azure and Cluster API go by (``CloudProvider.GPULabel``)."""

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


def _vendor_resource(resources: dict[str, Quantity] | None, *, nonzero: bool) -> tuple[str, Quantity] | None:
    if not resources or _VENDOR_RESOURCES.isdisjoint(resources):
        return None
    for name in GPU_VENDOR_RESOURCES:
        quantity = resources.get(name)
        if quantity is not None and not (nonzero and quantity.is_zero):
            return name, quantity
    return None


def node_has_gpu(label: str, node: Node) -> bool:
    """Whether the node carries the provider's GPU label or offers any vendor resource."""
    return label in (node.metadata.labels or {}) or _vendor_resource(node.status.allocatable, nonzero=True) is not None


def recognised_gpu_labels(labels: Iterable[Mapping[str, str]]) -> list[str]:
    """Those of :data:`CLOUD_GPU_LABELS` that are among these labels of nodes."""
    there = {key for each in labels for key in CLOUD_GPU_LABELS if key in each}
    return [key for key in CLOUD_GPU_LABELS if key in there]


def pod_requests_gpu(pod: Pod) -> bool:
    """Whether the pod names a vendor resource in its requests, even with the value 0."""
    requests = occupancy(pod)
    return any(name in requests for name in GPU_VENDOR_RESOURCES)


def gpu_config(label: str, node: Node) -> GpuConfig | None:
    """The default GPU configuration: present iff :func:`node_has_gpu`. Providers may say otherwise."""
    if not node_has_gpu(label, node):
        return None
    found = _vendor_resource(node.status.allocatable, nonzero=True)
    return GpuConfig(
        label=label,
        type=(node.metadata.labels or {}).get(label, ""),
        resource_name=found[0] if found else GPU_VENDOR_RESOURCES[0],
    )


def gpu_target(
    label: str, node: Node, *, group: str | None, template: Node | None, template_error: str | None = None
) -> tuple[str, int] | None:
    """(GPU type, devices) that a node brings, for quotas; None if it has no GPU label or there is nothing to count.

    A labelled node that does not show its devices yet counts those of its group's template. Raises
    :class:`AutoscalerError` if it has no group, or if the group's template cannot be had.
    """
    kind = (node.metadata.labels or {}).get(label)
    if kind is None:
        return None
    found = _vendor_resource(node.status.allocatable, nonzero=True)
    if found:
        return kind, found[1].value()
    if group is None:
        text = "node without with gpu label, without capacity not belonging to autoscaled node group"
        raise AutoscalerError(INTERNAL_ERROR, text)
    if template is None:
        raise AutoscalerError("", template_error or "Not implemented")
    found = _vendor_resource(template.status.capacity, nonzero=False)
    return (kind, found[1].value()) if found else None
