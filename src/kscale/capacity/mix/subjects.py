"""Which pods a mix is for, and in which world."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kscale.capacity.mix.options import MixOptions
from kscale.errors import InputError
from kscale.objects.core import Node, Pod
from kscale.objects.owners import is_daemonset_pod, is_mirror_pod
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["ALL", "subjects"]

ALL = "all"


def subjects(
    cluster: Cluster | Snapshot, pods: Sequence[str] | str | None, options: MixOptions
) -> tuple[Snapshot, list[str] | None, MixOptions]:
    """(the world, pods by name, options): DaemonSet pods are those of new nodes, and no subject."""
    if isinstance(pods, str):
        if pods != ALL:
            raise InputError(f'pods is "{pods}": give a list of names, "{ALL}" or None')
        if not isinstance(cluster, Cluster):
            raise InputError('pods="all" needs a Cluster: a snapshot knows no way to leave out its nodes')
        return _anew(cluster), None, msgspec.structs.replace(options, existing=False)
    snapshot = cluster.snapshot(dra=True) if isinstance(cluster, Cluster) else cluster
    names = list(snapshot.pending if pods is None else pods)
    records = snapshot.records(names)
    kept = [name for name, record in zip(names, records, strict=True) if not is_daemonset_pod(record.pod)]
    return snapshot, kept, options


def _anew(cluster: Cluster) -> Snapshot:
    """The cluster without nodes, all its pods pending: those that run or wait, but for pods of DaemonSets."""
    made = Cluster(item for item in cluster if not isinstance(item, (Node, Pod)))
    for pod in cluster.pods():
        if pod.status.phase in ("Succeeded", "Failed") or is_daemonset_pod(pod) or is_mirror_pod(pod):
            continue
        if pod.metadata.deletion_timestamp is not None or pod.spec.scheduling_gates:
            continue
        made.apply(
            msgspec.structs.replace(
                pod,
                spec=msgspec.structs.replace(pod.spec, node_name=""),
                status=msgspec.structs.replace(pod.status, phase="Pending", container_statuses=[]),
            )
        )
    return made.snapshot(dra=True)
