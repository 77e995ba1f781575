"""Every node group with its template: from the group itself, or from a node of the cluster, as the autoscaler would."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from kscale.ca.templates import template_from_group, template_from_node
from kscale.capacity.groups.recognition import is_good_example
from kscale.errors import InputError, Problem
from kscale.objects.apps import DaemonSet
from kscale.objects.core import Node, Pod
from kscale.objects.nodegroup import NodeGroup, NodeTemplate

__all__ = ["with_templates"]

SUFFIX = "0"  # upstream draws a random number; a template's name decides nothing


def with_templates(cluster: Any, snapshot: Any, groups: Iterable[NodeGroup]) -> list[NodeGroup]:
    """The groups, each with ``template`` set and ``target_size`` known.

    A group's own template comes first, then ``from_node``, then the first good node among its members, else its first.
    Labels, taints and capacity of the group are put on top, then the node is made anonymous and gets the DaemonSet pods
    that it would have. Raises InputError that names every group without any of these.
    """
    daemonsets = list(cluster.all("DaemonSet"))
    problems: list[Problem] = []
    made: list[NodeGroup] = []
    for group in groups:
        members = _members(group, snapshot)
        template = _template(group, members, snapshot, daemonsets)
        if template is None:
            problems.append(Problem(_why_not(group), object=f"node group {group.id}"))
            continue
        size = len(members) if group.target_size is None else group.target_size
        made.append(msgspec.structs.replace(group, template=template, target_size=size))
    if problems:
        raise InputError(problems)
    return made


def _why_not(group: NodeGroup) -> str:
    if group.from_node is not None:
        return f"node {group.from_node} is not in the input"
    return "has no template, and none of its nodes is in the input"


def _members(group: NodeGroup, snapshot: Any) -> list[Node]:
    nodes: Sequence[Node] = snapshot.columns.objects
    if group.nodes:
        index = snapshot.columns.index
        return [nodes[index[name]] for name in group.nodes if name in index]
    if group.node_selector:
        wanted = group.node_selector.items()
        return [node for node in nodes if wanted <= (node.metadata.labels or {}).items()]
    return []


def _template(
    group: NodeGroup, members: Sequence[Node], snapshot: Any, daemonsets: Sequence[DaemonSet]
) -> NodeTemplate | None:
    if group.template is not None:
        own = msgspec.structs.replace(group.template, node=_with_additions(group.template.node, group))
        return template_from_group(own, daemonsets, group.id, suffix=SUFFIX)
    if group.from_node is not None:
        index = snapshot.columns.index.get(group.from_node)
        example = None if index is None else snapshot.columns.objects[index]
    else:
        example = next((node for node in members if is_good_example(node)), members[0] if members else None)
    if example is None:
        return None
    return template_from_node(
        _with_additions(example, group),
        _pods_on(example, snapshot),
        daemonsets,
        group.id,
        suffix=SUFFIX,
        csi_node=snapshot.informers.csi_nodes.get(example.name),
    )


def _with_additions(node: Node, group: NodeGroup) -> Node:
    """The group's labels, taints and capacity on top of the node's own."""
    if group.labels:
        labels = {**(node.metadata.labels or {}), **group.labels}
        node = msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels=labels))
    if group.taints:
        ours = {(taint.key, taint.effect) for taint in group.taints}
        kept = [taint for taint in node.spec.taints if (taint.key, taint.effect) not in ours]
        node = msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=[*kept, *group.taints]))
    if group.capacity:
        status = msgspec.structs.replace(
            node.status,
            capacity={**(node.status.capacity or {}), **group.capacity},
            allocatable={**(node.status.allocatable or {}), **group.capacity},
        )
        node = msgspec.structs.replace(node, status=status)
    return node


def _pods_on(node: Node, snapshot: Any) -> list[Pod]:
    number = snapshot.columns.index[node.name]
    return [snapshot.pod(snapshot.pods[row]) for row in np.flatnonzero(snapshot.placed_node == number)]
