"""Adds templates and sizes to node groups, as decisions and loops need them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import NamedTuple

import msgspec
import numpy as np

from kscale.ca.options import AutoscalingOptions, default_options
from kscale.ca.pod_lists import drop_uncounted_pods
from kscale.ca.templates import TaintConfig
from kscale.capacity.groups import group_template, members_of, recognise_groups
from kscale.effects import Moment, duration, moment
from kscale.errors import InputError, Problem
from kscale.objects.api.core import Node, Pod
from kscale.objects.nodegroup import Groups, NodeGroup, NodeTemplate, ProviderError
from kscale.objects.times import created_at
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["StartingNodes", "loop_groups", "starting_nodes", "with_members", "with_templates"]


def with_templates(
    cluster: Cluster,
    snapshot: Snapshot,
    groups: Iterable[NodeGroup],
    *,
    options: AutoscalingOptions | None = None,
    now: datetime | Moment | None = None,
) -> list[NodeGroup]:
    """Return the groups, each with its ``template`` and ``target_size``.

    Parameters
    ----------
    cluster : Cluster
        The cluster, with its DaemonSets.
    snapshot : Snapshot
        Snapshot of the cluster.
    groups : iterable of NodeGroup
        Node groups.
    options : AutoscalingOptions, optional
        Decide which taints are removed, which DaemonSets are forced, and which pods of an existing node count
        (:func:`~kscale.ca.pod_lists.drop_uncounted_pods`).
    now : datetime or Moment, optional
        Current time: a node that became ready less than a minute before is not copied. None: its age does not matter.

    Returns
    -------
    list of NodeGroup
        Copies in the same order. A group without a ``target_size`` gets the number of its nodes.

    Raises
    ------
    InputError
        Names every group for which no template can be built, for example without a node to model new ones on. Also
        raised if ``now`` is not a time.

    Notes
    -----
    See :func:`~kscale.capacity.groups.group_template`.
    """
    time = None if now is None else moment(now)
    nodes = snapshot.columns.objects
    daemonsets = list(cluster.all("DaemonSet"))
    options = options or default_options()
    snapshot = drop_uncounted_pods(snapshot, options)
    taints = TaintConfig.from_options(options)

    def pods_on(name: str) -> list[Pod]:
        """Return the counted pods on the node ``name``."""
        number = snapshot.columns.index[name]
        return [snapshot.placed[row].pod for row in np.flatnonzero(snapshot.placed_node == number).tolist()]

    problems: list[Problem] = []
    result: list[NodeGroup] = []
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
        result.append(msgspec.structs.replace(group, template=template, target_size=size))
    if problems:
        raise InputError(problems)
    return result


class StartingNodes(NamedTuple):
    """Nodes of a group that may still be starting.

    ``missing``: number of nodes that have not registered; ``taints``: keys of taints on young nodes that repel pods and
    are not startup taints.
    """

    young: list[str]
    missing: int
    taints: list[str]


def loop_groups(
    cluster: Cluster,
    snapshot: Snapshot,
    groups: Iterable[NodeGroup],
    *,
    options: AutoscalingOptions | None = None,
    now: datetime | Moment | None = None,
    known: Collection[str] = (),
) -> tuple[list[NodeGroup], dict[str, NodeTemplate]]:
    """Return (all groups with a ``target_size``, fixed templates by group id) for a loop.

    A group without a ``target_size`` gets the number of its nodes. The loop uses a fixed template as it is. For other
    groups it prefers a copy of a good node of the group to the group's ``template``, which stands for the cloud
    provider's. A group has a fixed template in these cases:

    - it has a ``from_node``
    - it does not exist yet
    - it has no ``template``, but nodes to which its description adds labels, taints or capacity

    ``known``: ids of groups whose template an earlier loop cached. ``options`` and ``now`` are those of
    :func:`~kscale.capacity.group_templates.with_templates`.

    Raises InputError if ``now`` is not a time, or if groups have neither a template nor a node to model new ones on.
    The error names every such group; groups in ``known`` need neither.
    """
    time = None if now is None else moment(now)
    nodes = snapshot.columns.objects
    sized: list[NodeGroup] = []
    fixed: list[NodeGroup] = []
    problems: list[Problem] = []
    for group in groups:
        members = members_of(group, nodes)
        size = len(members) if group.target_size is None else group.target_size
        sized.append(msgspec.structs.replace(group, target_size=size))
        has_additions = group.template is None and members and (group.labels or group.taints or group.capacity)
        if group.from_node is not None or has_additions or not group.exists:
            fixed.append(group)
        elif group.template is None and not members and group.id not in known:
            text = "no template, and no node of the group to model one on"
            problems.append(Problem(text, object=f"node group {group.id}"))
    try:
        described = with_templates(cluster, snapshot, fixed, options=options, now=time)
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(problems)
    return sized, {group.id: group.template for group in described if group.template is not None}


def starting_nodes(
    groups: Iterable[NodeGroup], nodes: Iterable[Node], *, now: datetime | Moment, options: AutoscalingOptions
) -> dict[str, StartingNodes]:
    """Return the nodes that may still be starting, by group id: young nodes, and how many have not registered.

    For a loop without the state of an earlier loop, which would know the requested nodes. A node is young until
    ``max_node_startup_time`` has passed. Groups without such nodes, and groups whose options the provider cannot
    return, are left out. Raises InputError for a node without a readable creation time.
    """
    time, taints = moment(now), TaintConfig.from_options(options)
    known_groups = Groups.of(groups, nodes := list(nodes))
    result: dict[str, StartingNodes] = {}
    for group in known_groups:
        try:
            limit = duration(group.options_or(options.node_group_defaults).max_node_startup_time)
        except ProviderError:
            continue
        members = [node for node in nodes if known_groups.find_group_of_node(node.metadata.name) is group]
        young = [node for node in members if time - created_at(node) < limit]
        keys = dict.fromkeys(
            taint.key
            for node in young
            for taint in node.spec.taints
            if taint.effect != "PreferNoSchedule" and not taints.drops(taint)
        )
        missing = max(0, group.size - len(members))
        if young or missing:
            names = [node.metadata.name for node in young]
            result[group.id] = StartingNodes(young=names, missing=missing, taints=list(keys))
    return result


def with_members(groups: Iterable[NodeGroup], nodes: Iterable[Node]) -> list[NodeGroup]:
    """Return the groups, where each group that is modelled on a node (``from_node``) has the node's pool as ``nodes``.

    Node pools are recognised by labels. Groups with ``nodes`` or a selector are unchanged. (A group without members
    would seem to miss all nodes of its target size.)
    """
    members_by_node = {
        name: match.group.nodes for match in recognise_groups(nodes).groups for name in match.group.nodes
    }
    return [
        msgspec.structs.replace(group, nodes=members_by_node[group.from_node])
        if group.from_node in members_by_node and not group.nodes and not group.node_selector
        else group
        for group in groups
    ]
