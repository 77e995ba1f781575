"""Node groups of a cluster with their templates and sizes, as decisions and loops take them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import NamedTuple

import msgspec
import numpy as np

from kscale.ca.loop_context import drop_uncounted_pods
from kscale.ca.options import AutoscalingOptions
from kscale.ca.templates import TaintConfig
from kscale.capacity.groups import group_template, members_of, recognise_groups
from kscale.effects import Moment, duration, moment
from kscale.errors import InputError, Problem
from kscale.objects.api.core import Node, Pod
from kscale.objects.nodegroup import NodeGroup, NodeTemplate, ProviderError
from kscale.objects.nodegroups import Groups
from kscale.objects.times import moment_in
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
    """The groups, each with its ``template`` (:func:`~kscale.capacity.groups.group_template`) and ``target_size``.

    ``options``: the autoscaler's. They decide which taints are left out, which DaemonSets are forced, and which pods of
    an existing node count (:func:`~kscale.ca.loop_context.drop_uncounted_pods`). ``now``: a node that became ready less
    than a minute before is no good example (None: it is one).

    Raises InputError that names every group for which there is nothing to model a node on, and for a ``now`` that is no
    moment.
    """
    time = None if now is None else moment(now)
    nodes = snapshot.columns.objects
    daemonsets = list(cluster.all("DaemonSet"))
    options = options or AutoscalingOptions()
    snapshot = drop_uncounted_pods(snapshot, options)
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


class StartingNodes(NamedTuple):
    """Nodes of a group that may still be starting. ``missing``: how many have not registered; ``taints``: keys of
    taints on young nodes that keep pods off and do not count as startup taints."""

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
    """The groups with their sizes, and the templates that the description settles, by id.

    A ``template`` is what the cloud provider would say: the loop prefers good nodes of the group to it. Settled is what
    a new node is where the description gives a ``from_node``, puts labels, taints or capacity on top of the nodes that
    the group has, or is of a group that is still to be made. ``known``: groups whose template an earlier loop
    remembers; ``options`` and ``now`` as in :func:`~kscale.capacity.group_templates.with_templates`.

    Raises InputError that names every group for which there is nothing to model a node on, and for a ``now`` that is no
    moment.
    """
    time = None if now is None else moment(now)
    nodes = snapshot.columns.objects
    found: list[NodeGroup] = []
    settled: list[NodeGroup] = []
    problems: list[Problem] = []
    for group in groups:
        members = members_of(group, nodes)
        size = len(members) if group.target_size is None else group.target_size
        found.append(msgspec.structs.replace(group, target_size=size))
        on_top = group.template is None and members and (group.labels or group.taints or group.capacity)
        if group.from_node is not None or on_top or not group.exists:
            settled.append(group)
        elif group.template is None and not members and group.id not in known:
            text = "no template, and no node of the group to model one on"
            problems.append(Problem(text, object=f"node group {group.id}"))
    try:
        made = with_templates(cluster, snapshot, settled, options=options, now=time)
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(problems)
    return found, {group.id: group.template for group in made if group.template is not None}


def starting_nodes(
    groups: Iterable[NodeGroup], nodes: Iterable[Node], *, now: datetime | Moment, options: AutoscalingOptions
) -> dict[str, StartingNodes]:
    """Return, by group, the nodes that may still be starting: those that are young, and how many have not registered.

    A loop that remembers an earlier one knows which nodes were asked for and counts them as upcoming. Young is a node
    until ``max_node_startup_time`` has passed.
    """
    at, taints = moment(now), TaintConfig.from_options(options)
    settled = Groups.of(groups, nodes := list(nodes))
    found: dict[str, StartingNodes] = {}
    for group in settled:
        try:
            limit = duration(group.options_or(options.node_group_defaults).max_node_startup_time)
        except ProviderError:
            continue
        members = [node for node in nodes if settled.of_node(node.metadata.name) is group]
        young = [
            node
            for node in members
            if at - moment_in(node, node.metadata.creation_timestamp, "metadata.creationTimestamp") < limit
        ]
        keys = dict.fromkeys(
            taint.key
            for node in young
            for taint in node.spec.taints
            if taint.effect != "PreferNoSchedule" and not taints.drops(taint)
        )
        missing = max(0, group.size - len(members))
        if young or missing:
            names = [node.metadata.name for node in young]
            found[group.id] = StartingNodes(young=names, missing=missing, taints=list(keys))
    return found


def with_members(groups: Iterable[NodeGroup], nodes: Iterable[Node]) -> list[NodeGroup]:
    """A group that names no nodes has those that the labels put together with the node it is modelled on: without any,
    all that its target size promises would count as missing."""
    alike = {name: found.group.nodes for found in recognise_groups(nodes).groups for name in found.group.nodes}
    return [
        msgspec.structs.replace(group, nodes=alike[group.from_node])
        if group.from_node in alike and not group.nodes and not group.node_selector
        else group
        for group in groups
    ]
