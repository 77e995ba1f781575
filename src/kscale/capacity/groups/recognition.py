"""Recognises node groups by the labels that clouds and provisioners set on nodes, and builds their templates.

A dump does not say how large a group may become: ``min_size`` and ``max_size`` of a recognised group are the defaults
of :class:`~kscale.objects.nodegroup.NodeGroup`, and ``limits_known`` is False. Not in upstream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from kscale.ca.templates import TaintConfig, build_template_from_group, build_template_from_node
from kscale.capacity.machine_types import instance_type_of
from kscale.effects import SECOND, ZERO_TIME, Moment, moment
from kscale.errors import InputError, Problem
from kscale.imports import lazy_pattern
from kscale.objects.api.apps import DaemonSet
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.resource import ResourceSlice
from kscale.objects.api.storage import CSINode
from kscale.objects.argument_types import typed
from kscale.objects.conditions import changed_at
from kscale.objects.node_selectors import ZONES
from kscale.objects.nodegroup import NodeGroup, NodeTemplate

__all__ = [
    "Recognised",
    "RecognisedGroup",
    "example_node",
    "group_template",
    "has_members",
    "is_good_example",
    "members_of",
    "recognise_groups",
]


_READY_FOR = 60 * SECOND
_TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
_UNREADY_TAINTS = frozenset(
    f"node.kubernetes.io/{suffix}" for suffix in ("not-ready", "disk-pressure", "network-unavailable")
)
_MACHINE_SUFFIX = lazy_pattern(r"-[a-z0-9]{5}$")


class RecognisedGroup(msgspec.Struct, frozen=True):
    """A node group, its ``provider``, and the label or annotation (``key``) by which it was recognised."""

    group: NodeGroup
    provider: str
    key: str
    limits_known: bool = False


class Recognised(msgspec.Struct, frozen=True):
    """Groups in the order of their first node, and the names of nodes without a known label or annotation."""

    groups: list[RecognisedGroup] = msgspec.field(default_factory=list)
    others: list[str] = msgspec.field(default_factory=list)
    """Names of the nodes without a sign."""


class _Rule(NamedTuple):
    provider: str
    key: str
    annotation: bool = False
    refine: Callable[[Node, str], str | None] = lambda _node, value: value


@typed
def recognise_groups(nodes: Iterable[Node], *, now: datetime | Moment | None = None) -> Recognised:
    """Group nodes by the labels and annotations of clouds and provisioners.

    Parameters
    ----------
    nodes : iterable of Node
        Nodes of the cluster.
    now : datetime or Moment, optional
        Current time. None: every ready node has been ready long enough.

    Returns
    -------
    Recognised
        Groups, and the names of nodes that belong to none. Each group names its members (``nodes``), their number
        (``target_size``) and the node that new nodes are modelled on (``from_node``): the first good one (ready for a
        minute at ``now``, schedulable, not about to be deleted), else the first.

    Raises
    ------
    InputError
        If ``now`` is not a time, or if it is given and the time of a node's condition is malformed.

    Notes
    -----
    Upstream: ``MixedTemplateNodeInfoProvider`` in ``processors/nodeinfosprovider``.
    """
    time = None if now is None else moment(now)
    members: dict[tuple[str, str], list[Node]] = {}
    signs: dict[tuple[str, str], _Rule] = {}
    others: list[str] = []
    for node in nodes:
        match = _match_rule(node)
        if match is None:
            others.append(node.metadata.name)
            continue
        rule, group_id = match
        members.setdefault((rule.provider, group_id), []).append(node)
        signs.setdefault((rule.provider, group_id), rule)
    ids = [group_id for _, group_id in members]
    groups = []
    for (provider, group_id), group_nodes in members.items():
        example = example_node(group_nodes, time) or group_nodes[0]
        group = NodeGroup(
            # Two provisioners may use one name.
            id=group_id if ids.count(group_id) == 1 else f"{provider}/{group_id}",
            nodes=[member.metadata.name for member in group_nodes],
            target_size=len(group_nodes),
            from_node=example.metadata.name,
        )
        groups.append(RecognisedGroup(group, provider, signs[provider, group_id].key))
    return Recognised(groups, others)


def _name_by_type(node: Node, pool: str) -> str:
    """Return ``pool/instance type``, as a Karpenter pool creates nodes of many types and a group has only one.

    Only the pool's name if the node does not name its type.
    """
    kind = instance_type_of(node)
    return f"{pool}/{kind}" if kind else pool


def _name_by_zone(node: Node, pool: str) -> str:
    """Return ``pool/zone``, as a GKE pool has one managed instance group per zone, which is what scales.

    Only the pool's name if the node does not name its zone.
    """
    labels = node.metadata.labels or {}
    zone = next((labels[key] for key in ZONES if labels.get(key)), "")
    return f"{pool}/{zone}" if zone else pool


def _name_by_owner(node: Node, owner: str) -> str | None:
    """Return ``kind/namespace/name`` of the node's Cluster API owner, as the autoscaler's provider writes it.

    None if the autoscaler cannot scale the owner. ``owner``: its name.
    """
    annotations = node.metadata.annotations or {}
    kind = annotations.get("cluster.x-k8s.io/owner-kind", "MachineSet")
    if kind not in ("MachineSet", "MachineDeployment", "MachinePool"):
        return None  # a control plane does not scale
    return "/".join((kind, annotations.get("cluster.x-k8s.io/cluster-namespace", "default"), owner))


def _name_by_machine(_node: Node, machine: str) -> str:
    """Return ``MachineSet/namespace/name`` of the set of an OpenShift machine (``namespace/name``).

    A machine is named after its set, with five more characters.
    """
    namespace, _, name = machine.rpartition("/")
    return "/".join(part for part in ("MachineSet", namespace, _MACHINE_SUFFIX.sub("", name)) if part)


# The first matching rule applies: managed groups come before the tool that created them.
_RULES = (
    _Rule("EKS", "eks.amazonaws.com/nodegroup"),
    _Rule("eksctl", "alpha.eksctl.io/nodegroup-name"),
    _Rule("GKE", "cloud.google.com/gke-nodepool", refine=_name_by_zone),
    _Rule("AKS", "kubernetes.azure.com/agentpool"),
    _Rule("AKS", "agentpool"),
    _Rule("Karpenter", "karpenter.sh/nodepool", refine=_name_by_type),
    _Rule("Karpenter", "karpenter.sh/provisioner-name", refine=_name_by_type),
    _Rule("kOps", "kops.k8s.io/instancegroup"),
    _Rule("Cluster API", "cluster.x-k8s.io/deployment-name"),
    _Rule("Cluster API", "cluster.x-k8s.io/owner-name", annotation=True, refine=_name_by_owner),
    _Rule("OpenShift", "machine.openshift.io/cluster-api-machineset"),
    _Rule("OpenShift", "machine.openshift.io/machine", annotation=True, refine=_name_by_machine),
)


def _match_rule(node: Node) -> tuple[_Rule, str] | None:
    """Return (rule, id of the group) of the first rule that recognises the node's group; None if no rule does."""
    for rule in _RULES:
        signs = node.metadata.annotations if rule.annotation else node.metadata.labels
        value = (signs or {}).get(rule.key)
        group_id = rule.refine(node, value) if value else None
        if group_id:
            return rule, group_id
    return None


@typed
def example_node(nodes: Sequence[Node], now: datetime | Moment | None = None) -> Node | None:
    """Return the node that new nodes are modelled on: the first good one, else the first; None without nodes.

    ``now`` and the errors raised: as for :func:`recognise_groups`.
    """
    time = None if now is None else moment(now)
    return next((node for node in nodes if is_good_example(node, time)), nodes[0] if nodes else None)


def is_good_example(node: Node, now: datetime | Moment | None = None) -> bool:
    """Check whether a node may represent its group: ready, schedulable, not about to be deleted.

    False also for a node that has disk pressure or no network, by its conditions or taints, and for a node whose state
    changed less than a minute before ``now``. None: the time does not matter. Raises InputError if ``now`` is not a
    time, or if it is given and the time of a condition is malformed. Upstream: ``isNodeGoodTemplateCandidate``.
    """
    time = None if now is None else moment(now)
    taints = node.spec.taints
    if node.spec.unschedulable or any(taint.key == _TO_BE_DELETED for taint in taints):
        return False
    ready, since = False, ZERO_TIME
    for condition in node.status.conditions:
        if condition.type == "Ready":
            ready = condition.status not in ("False", "Unknown")
        elif condition.type not in ("DiskPressure", "NetworkUnavailable"):
            continue
        elif condition.status == "True":
            return False
        if time is not None and condition.last_transition_time:
            since = max(since, changed_at(node, condition))
    if not ready or any(taint.key in _UNREADY_TAINTS for taint in taints):
        return False
    return time is None or since + _READY_FOR < time


@typed
def members_of(group: NodeGroup, nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that belong to the group: those it names, or else those with all labels of its selector.

    Empty if the group has neither names nor a selector.
    """
    return list(_iterate_members(group, nodes))


def has_members(group: NodeGroup, nodes: Iterable[Node]) -> bool:
    """Check whether any of the nodes belongs to the group (:func:`members_of`)."""
    return next(_iterate_members(group, nodes), None) is not None


def _iterate_members(group: NodeGroup, nodes: Iterable[Node]) -> Iterator[Node]:
    """Return an iterator over the nodes that belong to the group (:func:`members_of`)."""
    if group.nodes:
        names = set(group.nodes)
        return (node for node in nodes if node.metadata.name in names)
    if not group.node_selector:
        return iter(())
    wanted = group.node_selector.items()
    return (node for node in nodes if wanted <= (node.metadata.labels or {}).items())


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
    """Build the template of a group's new nodes.

    Parameters
    ----------
    group : NodeGroup
        The group. The template is its own, if it has one. Otherwise it is a copy of the node ``from_node``, else of the
        group's first node that is ready, schedulable and not about to be deleted, else of its first node.
        The group's ``labels``, ``taints`` and ``capacity`` are applied before DaemonSets are placed.
    nodes : iterable of Node
        Nodes of the cluster.
    pods_on : callable
        Returns the pods on a node, by the node's name.
    daemonsets : iterable of DaemonSet
        All DaemonSets of the cluster.
    csi_nodes : mapping, optional
        CSINodes by node name.
    resource_slices : iterable of ResourceSlice
        All ResourceSlices of the cluster.
    now : datetime or Moment, optional
        Current time, as in :func:`~kscale.capacity.groups.recognise_groups`.
    suffix : str
        Replaces the random number in upstream's generated names.
    force_daemonsets, taints
        As in :func:`~kscale.ca.templates.build_template_from_node`.

    Returns
    -------
    NodeTemplate
        The node with its DaemonSet pods and devices.

    Raises
    ------
    InputError
        If there is no node to model new ones on, if ``now`` is not a time, or if it is given and the time of a node's
        condition is malformed.
    """
    time = None if now is None else moment(now)
    config = TaintConfig() if taints is None else taints
    if group.template is not None:
        template = msgspec.structs.replace(group.template, node=_with_additions(group.template.node, group))
        return build_template_from_group(template, daemonsets, group.id, suffix=suffix, taints=config)
    example = _example(group, nodes, time)
    return build_template_from_node(
        _with_additions(example, group),
        pods_on(example.metadata.name),
        daemonsets,
        group.id,
        suffix=suffix,
        csi_node=(csi_nodes or {}).get(example.metadata.name),
        resource_slices=[item for item in resource_slices if item.spec.node_name == example.metadata.name],
        force_daemonsets=force_daemonsets,
        taints=config,
    )


def _example(group: NodeGroup, nodes: Iterable[Node], now: Moment | None) -> Node:
    """Return the node that new nodes of the group are modelled on. Raises InputError if there is none."""
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
    """Return the node with the group's labels, taints and capacity; the amounts of ``capacity`` are also allocatable.

    A taint replaces the node's taint with the same key and effect.
    """
    replace = msgspec.structs.replace
    if group.labels:
        labels = {**(node.metadata.labels or {}), **group.labels}
        node = replace(node, metadata=replace(node.metadata, labels=labels))
    if group.taints:
        replaced = {(taint.key, taint.effect) for taint in group.taints}
        other_taints = [taint for taint in node.spec.taints if (taint.key, taint.effect) not in replaced]
        node = replace(node, spec=replace(node.spec, taints=[*other_taints, *group.taints]))
    if group.capacity:
        capacity = {**(node.status.capacity or {}), **group.capacity}
        allocatable = {**(node.status.allocatable or {}), **group.capacity}
        node = replace(node, status=replace(node.status, capacity=capacity, allocatable=allocatable))
    return node
