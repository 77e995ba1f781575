"""Every node group of a cluster with its template and size."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec
import numpy as np

from kscale.ca.options import AutoscalingOptions
from kscale.ca.simulated import without_uncounted_pods
from kscale.ca.templates import TaintConfig
from kscale.capacity.groups import group_template, members_of
from kscale.effects import Moment, moment
from kscale.errors import InputError, Problem
from kscale.objects.core import Pod
from kscale.objects.nodegroup import NodeGroup
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["with_templates"]


def with_templates(
    cluster: Cluster,
    snapshot: Snapshot,
    groups: Iterable[NodeGroup],
    *,
    options: AutoscalingOptions | None = None,
    now: datetime | Moment | None = None,
) -> list[NodeGroup]:
    """The groups, each with its ``template`` (:func:`~kscale.capacity.groups.group_template`) and ``target_size``.

    ``options``: the autoscaler's. They decide which taints are left out, which DaemonSets are forced, and which pods of
    an existing node count (:func:`~kscale.ca.simulated.without_uncounted_pods`). ``now``: a node that became ready less
    than a minute before is no good example (None: it is one).

    Raises InputError that names every group for which there is nothing to model a node on, and for a ``now`` that is no
    moment.
    """
    time = None if now is None else moment(now)
    nodes = snapshot.columns.objects
    daemonsets = list(cluster.all("DaemonSet"))
    options = options or AutoscalingOptions()
    snapshot = without_uncounted_pods(snapshot, options)
    taints = TaintConfig.from_options(options)

    def pods_on(name: str) -> list[Pod]:
        number = snapshot.columns.index[name]
        return [snapshot.placed[at].pod for at in np.flatnonzero(snapshot.placed_node == number).tolist()]

    problems: list[Problem] = []
    made: list[NodeGroup] = []
    for group in groups:
        try:
            template = group_template(
                group,
                nodes=nodes,
                pods_on=pods_on,
                daemonsets=daemonsets,
                csi_nodes=snapshot.informers.csi_nodes,
                resource_slices=snapshot.informers.resource_slices,
                now=time,
                force_daemonsets=options.force_ds,
                taints=taints,
            )
        except InputError as error:
            problems += error.problems
            continue
        size = len(members_of(group, nodes)) if group.target_size is None else group.target_size
        made.append(msgspec.structs.replace(group, template=template, target_size=size))
    if problems:
        raise InputError(problems)
    return made
