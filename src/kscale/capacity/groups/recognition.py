"""Node groups recognised in a dump by what clouds and provisioners write on their nodes. kscale's own.

A dump does not say how large a group may become: ``min_size`` and ``max_size`` of a recognised group are the defaults
of :class:`~kscale.objects.nodegroup.NodeGroup`, and ``limits_known`` is False.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from kscale.effects import SECOND, ZERO_TIME, Moment, moment
from kscale.objects.argument_types import typed
from kscale.objects.conditions import changed_at
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup

__all__ = ["Recognised", "RecognisedGroup", "example_node", "is_good_example", "recognise_groups"]

_READY_FOR = 60 * SECOND
_TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
_UNREADY_TAINTS = frozenset(
    f"node.kubernetes.io/{what}" for what in ("not-ready", "disk-pressure", "network-unavailable")
)
_INSTANCE_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_MACHINE_SUFFIX = re.compile(r"-[a-z0-9]{5}$")


class RecognisedGroup(msgspec.Struct, frozen=True):
    """A node group, who runs it (``provider``) and what it was recognised by (``key``: a label or an annotation)."""

    group: NodeGroup
    provider: str
    key: str
    limits_known: bool = False


class Recognised(msgspec.Struct, frozen=True):
    """The groups in the order of their first node, and the names of the nodes that carry no known sign."""

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
    """Which nodes form node groups.

    Each group names its members (``nodes``), their number (``target_size``) and the node that new ones are modelled on
    (``from_node``): the first good one (ready for a minute at ``now``, schedulable, not about to be deleted), else the
    first. ``now``: None = every ready node has been so long enough; InputError for what is no moment.
    Upstream: ``MixedTemplateNodeInfoProvider`` in ``processors/nodeinfosprovider``.
    """
    time = None if now is None else moment(now)
    members: dict[tuple[str, str], list[Node]] = {}
    signs: dict[tuple[str, str], _Rule] = {}
    others: list[str] = []
    for node in nodes:
        sign = _sign(node)
        if sign is None:
            others.append(node.metadata.name)
            continue
        rule, group_id = sign
        members.setdefault((rule.provider, group_id), []).append(node)
        signs.setdefault((rule.provider, group_id), rule)
    ids = [group_id for _, group_id in members]
    groups = []
    for (provider, group_id), found in members.items():
        example = example_node(found, time) or found[0]
        group = NodeGroup(
            # Two provisioners may use one name.
            id=group_id if ids.count(group_id) == 1 else f"{provider}/{group_id}",
            nodes=[member.metadata.name for member in found],
            target_size=len(found),
            from_node=example.metadata.name,
        )
        groups.append(RecognisedGroup(group, provider, signs[provider, group_id].key))
    return Recognised(groups, others)


def _first(labels: dict[str, str], keys: Iterable[str]) -> str:
    return next((labels[key] for key in keys if labels.get(key)), "")


def _by_type(node: Node, pool: str) -> str:
    """A Karpenter pool makes nodes of many types; a group must be of one."""
    kind = _first(node.metadata.labels or {}, _INSTANCE_TYPES)
    return f"{pool}/{kind}" if kind else pool


def _by_zone(node: Node, pool: str) -> str:
    """A GKE pool has one managed instance group in each zone; that is what grows."""
    zone = _first(node.metadata.labels or {}, _ZONES)
    return f"{pool}/{zone}" if zone else pool


def _by_owner(node: Node, owner: str) -> str | None:
    """The identity of a Cluster API owner as the autoscaler's provider writes it."""
    annotations = node.metadata.annotations or {}
    kind = annotations.get("cluster.x-k8s.io/owner-kind", "MachineSet")
    if kind not in ("MachineSet", "MachineDeployment", "MachinePool"):
        return None  # a control plane does not scale
    return "/".join((kind, annotations.get("cluster.x-k8s.io/cluster-namespace", "default"), owner))


def _by_machine(_node: Node, machine: str) -> str:
    """``namespace/machine``: a machine is named after its set and five more characters."""
    namespace, _, name = machine.rpartition("/")
    return "/".join(part for part in ("MachineSet", namespace, _MACHINE_SUFFIX.sub("", name)) if part)


# The first rule that applies holds: a managed group before the tool that made it.
_RULES = (
    _Rule("EKS", "eks.amazonaws.com/nodegroup"),
    _Rule("eksctl", "alpha.eksctl.io/nodegroup-name"),
    _Rule("GKE", "cloud.google.com/gke-nodepool", refine=_by_zone),
    _Rule("AKS", "kubernetes.azure.com/agentpool"),
    _Rule("AKS", "agentpool"),
    _Rule("Karpenter", "karpenter.sh/nodepool", refine=_by_type),
    _Rule("Karpenter", "karpenter.sh/provisioner-name", refine=_by_type),
    _Rule("kOps", "kops.k8s.io/instancegroup"),
    _Rule("Cluster API", "cluster.x-k8s.io/deployment-name"),
    _Rule("Cluster API", "cluster.x-k8s.io/owner-name", annotation=True, refine=_by_owner),
    _Rule("OpenShift", "machine.openshift.io/cluster-api-machineset"),
    _Rule("OpenShift", "machine.openshift.io/machine", annotation=True, refine=_by_machine),
)


def _sign(node: Node) -> tuple[_Rule, str] | None:
    for rule in _RULES:
        signs = node.metadata.annotations if rule.annotation else node.metadata.labels
        value = (signs or {}).get(rule.key)
        group_id = rule.refine(node, value) if value else None
        if group_id:
            return rule, group_id
    return None


@typed
def example_node(nodes: Sequence[Node], now: datetime | Moment | None = None) -> Node | None:
    """The node that new ones are modelled on: the first good one, else the first; None without nodes. ``now``: as
    :func:`recognise_groups` has it."""
    time = None if now is None else moment(now)
    return next((node for node in nodes if is_good_example(node, time)), nodes[0] if nodes else None)


def is_good_example(node: Node, now: datetime | Moment | None = None) -> bool:
    """Whether a node may stand for its group: ready, schedulable, staying (``isNodeGoodTemplateCandidate``). ``now``:
    as :func:`recognise_groups` has it."""
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
