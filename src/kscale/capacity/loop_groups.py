"""Described node groups as a loop of the autoscaler takes them: what it finds out by itself is left to it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

import msgspec

from kscale.ca.options import AutoscalingOptions
from kscale.capacity.groups import members_of, recognise_groups
from kscale.capacity.templates import with_templates
from kscale.effects import Moment, moment
from kscale.errors import InputError, Problem
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["loop_groups", "with_members"]


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
    remembers; ``options`` and ``now`` as in :func:`~kscale.capacity.templates.with_templates`.

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
