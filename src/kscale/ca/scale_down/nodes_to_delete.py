"""Which unneeded nodes are deleted in this loop, before the budgets (``core/scaledown/planner``, NodesToDelete)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from kscale.ca.errors import AutoscalerError
from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.options import AutoscalingOptions, ResourceLimiter
from kscale.ca.quota import Quota, QuotaTracker, cluster_minimum
from kscale.ca.scale_down import reasons
from kscale.ca.scale_down.atomic import filter_atomic
from kscale.ca.scale_down.unneeded import UnneededNode, removable_at
from kscale.effects import Moment
from kscale.objects.core import Node
from kscale.objects.nodegroups import Groups

__all__ = ["NodesToDelete", "nodes_to_delete"]


class NodesToDelete(msgspec.Struct, kw_only=True):
    """Names to delete, empty and to drain, and why other unneeded nodes stay (in the order found).

    ``error`` says why nothing can be deleted in this loop at all.
    """

    empty: list[str] = []
    drain: list[str] = []
    unremovable: dict[str, str] = {}
    error: str | None = None


def nodes_to_delete(
    unneeded: Iterable[UnneededNode],
    *,
    groups: Groups,
    snapshot_nodes: Sequence[Node],
    options: AutoscalingOptions,
    now: Moment,
    limits: ResourceLimiter | None = None,
    deletions_in_progress: Mapping[str, int] | None = None,
    gpu_label: str = DEFAULT_GPU_LABEL,
    left: Callable[[Quota], QuotaTracker] | None = None,
) -> NodesToDelete:
    """Nodes that have been unneeded long enough and whose going breaks no minimum; atomic groups only as a whole.

    ``snapshot_nodes`` are all nodes of the snapshot, upcoming ones included. ``limits`` (default: what the options
    say) give the cluster-wide minima, ``left`` what they leave (a tracker of its own for this call), where something is
    kept of that. If usage cannot be worked out nothing is deleted. Size and resources that a node has used up stay used
    up even if a later step drops it.
    """
    quota = cluster_minimum(options.resource_limiter if limits is None else limits)
    try:
        if left is None:
            minimum = QuotaTracker.minimum([quota], snapshot_nodes, groups, gpu_label=gpu_label)
        else:
            minimum = left(quota)
    except AutoscalerError as error:
        return NodesToDelete(error=error.message)
    found = removable_at(unneeded, groups=groups, now=now, deletions_in_progress=deletions_in_progress, minimum=minimum)
    # Nodes whose pods can all go at once come first.
    ordered = [*found.empty, *sorted(found.drain, key=lambda item: item.risky)]
    by_name = {item.name: item for item in ordered}
    kept = filter_atomic(list(by_name), groups=groups, options=options, snapshot_nodes=snapshot_nodes)
    result = NodesToDelete(unremovable={**found.unremovable, **kept.unremovable})
    for name in kept.kept:
        item = by_name[name]
        if item.on_completion:
            result.unremovable[name] = reasons.BLOCKED_BY_ON_COMPLETION_POD
        else:
            (result.drain if item.drain else result.empty).append(name)
    return result
