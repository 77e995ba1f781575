"""The cluster that a decision simulates in."""

from __future__ import annotations

import numpy as np

from kscale.ca.errors import INTERNAL_ERROR, AutoscalerError
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists.expendable import expendable_placed
from kscale.ca.pod_lists.split import excluded_placed
from kscale.ca.scale_down.atomic import is_upcoming
from kscale.effects import Moment
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["check_csi_nodes", "snapshot_of", "without_uncounted_pods"]


def snapshot_of(cluster: Cluster | Snapshot, options: AutoscalingOptions, now: Moment) -> Snapshot:
    """A snapshot as it was given, or that of a cluster now, with devices and CSI nodes as the options have it."""
    if isinstance(cluster, Snapshot):
        return cluster
    dra, csi = options.enable_dynamic_resource_allocation, options.enable_csi_node_aware_scheduling
    return cluster.snapshot(dra=dra, csi=csi, now=now)


def check_csi_nodes(snapshot: Snapshot) -> None:
    """Check that every node of a CSI-node-aware snapshot has a CSINode.

    Upstream's loop ends otherwise (``predicate_snapshot.go``: SetClusterState). Upcoming nodes need none.

    Raises
    ------
    AutoscalerError
        For the first node without CSINode.
    """
    if not snapshot.csi:
        return
    known = snapshot.informers.csi_nodes
    for name, node in zip(snapshot.nodes, snapshot.columns.objects, strict=True):
        if name not in known and not is_upcoming(node):
            text = f"failed to initialize ClusterSnapshot: couldn't obtain csi node: csi nodes {name} not found"
            raise AutoscalerError(INTERNAL_ERROR, text)


def without_uncounted_pods(snapshot: Snapshot, options: AutoscalingOptions) -> Snapshot:
    """Return the snapshot without the placed pods that take no room in upstream's simulation.

    These are expendable pods (a priority below ``expendable_pods_priority_cutoff``) and, if schedulers are allowed by
    name, pods of all other schedulers. Upstream leaves them out of its snapshot before it makes node templates
    (``core/static_autoscaler.go``: RunOnce), so a template from a node has none of them either.
    """
    uncounted = expendable_placed(snapshot, options.expendable_pods_priority_cutoff)
    if options.allowed_scheduler_names:
        uncounted = np.union1d(uncounted, excluded_placed(snapshot, options.allowed_scheduler_names))
    return snapshot.without_placed(uncounted)
