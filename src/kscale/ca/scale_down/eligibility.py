"""Which nodes are worth simulating (``core/scaledown/eligibility``): the checks that need no other node."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from kscale.ca.errors import AutoscalerError
from kscale.ca.gpu import GpuConfig
from kscale.ca.nodes import SCALE_DOWN_DISABLED_ANNOTATION, is_being_deleted, is_ready
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down import reasons
from kscale.ca.scale_down.utilization import Usage, Utilization, utilization, utilization_of
from kscale.objects.core import Node, Pod
from kscale.objects.nodegroup import NodeGroupAutoscalingOptions, ProviderError
from kscale.objects.nodegroups import Groups
from kscale.objects.resource import ResourceClaim, ResourceSlice

__all__ = ["Eligibility", "eligibility"]


class Eligibility(msgspec.Struct, kw_only=True, frozen=True):
    """The verdict on one node: no ``reason`` = eligible.

    ``utilization`` is there for nodes that got as far as comparing it; ``error`` says what lies behind
    ``UnexpectedError``.
    """

    reason: str | None = None
    utilization: Utilization | None = None
    threshold: float | None = None
    error: str | None = None

    @property
    def eligible(self) -> bool:
        return self.reason is None


def eligibility(
    node: Node | None,
    pods: Iterable[Pod],
    *,
    groups: Groups,
    options: AutoscalingOptions,
    now_ns: int,
    gpu: GpuConfig | None = None,
    recently_unremovable: bool = False,
    dra_slices: Iterable[ResourceSlice] = (),
    dra_claims: Iterable[ResourceClaim] = (),
    sums: Callable[[NodeGroupAutoscalingOptions], Usage | None] | None = None,
) -> Eligibility:
    """Judges one node; the first check that fails is the answer.

    ``node`` None: the candidate is not in the snapshot. ``gpu`` is the provider's GPU configuration of the node
    (:func:`kscale.ca.gpu.gpu_config`). ``sums``: what its pods request, where that is summed up already, by the group's
    options. The rest as in :func:`kscale.ca.scale_down.utilization.utilization`.
    """
    if node is None:
        return Eligibility(reason=reasons.UNEXPECTED_ERROR, error="node not found")
    if recently_unremovable:
        return Eligibility(reason=reasons.RECENTLY_UNREMOVABLE)
    if is_being_deleted(node, now_ns):
        return Eligibility(reason=reasons.CURRENTLY_BEING_DELETED)
    if (node.metadata.annotations or {}).get(SCALE_DOWN_DISABLED_ANNOTATION) == "true":
        return Eligibility(reason=reasons.SCALE_DOWN_DISABLED_ANNOTATION)
    try:
        group = groups.of_node(node.metadata.name)
        if group is None:
            return Eligibility(reason=reasons.NOT_AUTOSCALED)
        group_options = group.options_or(options.node_group_defaults)
        slices = list(dra_slices) if options.enable_dynamic_resource_allocation else []
        known = None if sums is None else sums(group_options)
        if known is not None:
            used = utilization_of(node, known, gpu=gpu, dra_slices=slices, dra_claims=dra_claims)
        else:
            used = utilization(
                node,
                pods,
                now_ns=now_ns,
                skip_daemon_set_pods=group_options.ignore_daemonsets_utilization,
                skip_mirror_pods=options.ignore_mirror_pods_utilization,
                gpu=gpu,
                dra_slices=slices,
                dra_claims=dra_claims,
            )
    except (AutoscalerError, ProviderError) as error:
        return Eligibility(reason=reasons.UNEXPECTED_ERROR, error=error.message)
    if not options.scale_down_unready_enabled and not is_ready(node):
        return Eligibility(reason=reasons.SCALE_DOWN_UNREADY_DISABLED)
    if gpu is not None:
        threshold = group_options.scale_down_gpu_utilization_threshold
    else:
        threshold = group_options.scale_down_utilization_threshold
    # Not a number is not above any threshold.
    reason = reasons.NOT_UNDERUTILIZED if used.utilization > threshold else None
    return Eligibility(reason=reason, utilization=used, threshold=threshold)
