"""The cluster that a decision simulates in."""

from __future__ import annotations

from kscale.ca.options import AutoscalingOptions
from kscale.effects import Moment
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["snapshot_of"]


def snapshot_of(cluster: Cluster | Snapshot, options: AutoscalingOptions, now: Moment) -> Snapshot:
    """A snapshot as it was given, or that of a cluster now, with devices and CSI nodes as the options have it."""
    if isinstance(cluster, Snapshot):
        return cluster
    dra, csi = options.enable_dynamic_resource_allocation, options.enable_csi_node_aware_scheduling
    return cluster.snapshot(dra=dra, csi=csi, now=now)
