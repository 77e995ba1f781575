"""From a node group to the template of its new nodes, as the autoscaler makes it. kscale's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

import msgspec

from kscale.ca.templates import TaintConfig, template_from_group, template_from_node
from kscale.capacity.groups.recognition import example_node
from kscale.effects import Moment, moment
from kscale.errors import InputError, Problem
from kscale.objects.apps import DaemonSet
from kscale.objects.argument_types import typed
from kscale.objects.core import Node, Pod
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.resource import ResourceSlice
from kscale.objects.storage import CSINode

__all__ = ["group_template", "members_of"]


@typed
def members_of(group: NodeGroup, nodes: Iterable[Node]) -> list[Node]:
    """The nodes of the cluster that belong to the group: those it names, or those with all labels of its selector."""
    if group.nodes:
        names = set(group.nodes)
        return [node for node in nodes if node.metadata.name in names]
    if not group.node_selector:
        return []
    wanted = group.node_selector.items()
    return [node for node in nodes if wanted <= (node.metadata.labels or {}).items()]


@typed
def group_template(
    group: NodeGroup,
    *,
    nodes: Iterable[Node] = (),
    pods_on: Callable[[str], Iterable[Pod]] = lambda _node_name: (),
    daemonsets: Iterable[DaemonSet] = (),
    csi_nodes: Mapping[str, CSINode] | None = None,
    resource_slices: Iterable[ResourceSlice] = (),
    now: datetime | Moment | None = None,
    suffix: str = "0",
    force_daemonsets: bool = False,
    taints: TaintConfig | None = None,
) -> NodeTemplate:
    """What a new node of the group is: its own template, else a copy of ``from_node``, else of its first good node.

    ``labels``, ``taints`` and ``capacity`` of the group are put on top before it is decided which DaemonSets run there.
    ``daemonsets``: those of the cluster; ``csi_nodes``, ``resource_slices``: by node, and all that there are.
    ``pods_on`` gives the pods of a node by its name. ``suffix`` stands for the random number in the names that upstream
    makes; ``now``, ``force_daemonsets`` and ``taints`` as in
    :func:`~kscale.ca.templates.template_from_node` and :func:`~kscale.capacity.groups.recognise_groups`.

    Raises InputError if there is nothing to model a node on, and for a ``now`` that is no moment.
    """
    time = None if now is None else moment(now)
    config = TaintConfig() if taints is None else taints
    if group.template is not None:
        template = msgspec.structs.replace(group.template, node=_with_additions(group.template.node, group))
        return template_from_group(template, daemonsets, group.id, suffix=suffix, taints=config)
    example = _example(group, nodes, time)
    return template_from_node(
        _with_additions(example, group),
        pods_on(example.metadata.name),
        daemonsets,
        group.id,
        suffix=suffix,
        csi_node=(csi_nodes or {}).get(example.metadata.name),
        resource_slices=[each for each in resource_slices if each.spec.node_name == example.metadata.name],
        force_daemonsets=force_daemonsets,
        taints=config,
    )


def _example(group: NodeGroup, nodes: Iterable[Node], now: Moment | None) -> Node:
    place = f"node group {group.id}"
    if group.from_node is not None:
        for node in nodes:
            if node.metadata.name == group.from_node:
                return node
        raise InputError(Problem(f'there is no node "{group.from_node}"', object=place, field="fromNode"))
    example = example_node(members_of(group, nodes), now)
    if example is None:
        raise InputError(Problem("no template, and no node of the group to model one on", object=place))
    return example


def _with_additions(node: Node, group: NodeGroup) -> Node:
    """The node with the group's labels, taints and capacity; a taint replaces one of the same key and effect."""
    replace = msgspec.structs.replace
    if group.labels:
        labels = {**(node.metadata.labels or {}), **group.labels}
        node = replace(node, metadata=replace(node.metadata, labels=labels))
    if group.taints:
        own = {(taint.key, taint.effect) for taint in group.taints}
        kept = [taint for taint in node.spec.taints if (taint.key, taint.effect) not in own]
        node = replace(node, spec=replace(node.spec, taints=[*kept, *group.taints]))
    if group.capacity:
        capacity = {**(node.status.capacity or {}), **group.capacity}
        allocatable = {**(node.status.allocatable or {}), **group.capacity}
        node = replace(node, status=replace(node.status, capacity=capacity, allocatable=allocatable))
    return node
