"""The cluster as Karpenter's controllers see it: managed nodes, machines that have no node yet, and pods to reschedule.

Upstream: ``pkg/controllers/state/statenode.go``, ``pkg/utils/pod/scheduling.go``, ``pkg/utils/pdb/pdb.go`` and
``pkg/controllers/provisioning/provisioner.go``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from msgspec.structs import replace

from kscale.capacity.evictions import is_protected
from kscale.capacity.karpenter.node_claim import OfferedPools
from kscale.capacity.karpenter.node_pools import NODE_POOL, NodePool, NodePools
from kscale.capacity.karpenter.offerings import remaining_of_pools
from kscale.capacity.karpenter.scheduler import Placement, place_pods
from kscale.capacity.losses import make_pending
from kscale.effects import Moment
from kscale.objects.api.core import Node, Pod, Taint, Toleration
from kscale.objects.api.policy import PodDisruptionBudget
from kscale.objects.conditions import is_true, pod_ready
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.pod_owners import controller_of, is_daemonset_pod, is_lost_with_node, is_mirror_pod
from kscale.objects.selectors import compile_selector
from kscale.objects.taints import tolerates_all
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "DISRUPTED",
    "ClusterView",
    "ManagedNodes",
    "is_drained",
    "is_evictable",
    "is_initialized",
    "is_provisionable",
]

DISRUPTED = Taint(key="karpenter.sh/disrupted", effect="NoSchedule")
"""Taint of nodes that are being disrupted."""
_HOSTNAME = "kubernetes.io/hostname"
_EPHEMERAL = (
    ("node.kubernetes.io/not-ready", "", "NoSchedule"),
    ("node.kubernetes.io/not-ready", "", "NoExecute"),
    ("node.kubernetes.io/unreachable", "", "NoSchedule"),
    ("node.cloudprovider.kubernetes.io/uninitialized", "true", "NoSchedule"),
    ("karpenter.sh/unregistered", "", "NoExecute"),
)
"""Taints (key, value, effect) that a node has until it is initialized."""
_EPHEMERAL_PREFIX = "readiness.k8s.io/"


def _is_ephemeral(taint: Taint, startup: Sequence[Taint]) -> bool:
    """Check whether a node loses a taint when it starts: a well-known one, or one of the ``startup`` taints."""
    if (taint.key, taint.value, taint.effect) in _EPHEMERAL or taint.key.startswith(_EPHEMERAL_PREFIX):
        return True
    return any((taint.key, taint.effect) == (other.key, other.effect) for other in startup)


def is_initialized(node: Node, pool: NodePool) -> bool:
    """Check whether a node of a NodePool is ready and has lost its ephemeral and startup taints."""
    startup = pool.spec.template.spec.startup_taints
    return is_true(node.status.conditions, "Ready") and not any(
        _is_ephemeral(each, startup) for each in node.spec.taints
    )


def is_provisionable(pod: Pod) -> bool:
    """Check whether Karpenter provisions capacity for a pod.

    The scheduler must have refused the pod. False for pods with a node or a nominated node, and for DaemonSet and
    mirror pods.
    """
    refused = any(each.type == "PodScheduled" and each.reason == "Unschedulable" for each in pod.status.conditions)
    return (
        refused
        and not pod.spec.node_name
        and not pod.status.nominated_node_name
        and not is_daemonset_pod(pod)
        and not is_mirror_pod(pod)
    )


@dataclass(frozen=True, kw_only=True)
class ManagedNodes:
    """State of Karpenter's machines that is not in the objects of the cluster.

    Attributes
    ----------
    group_of : mapping
        The group of each node, and of each requested machine.
    requested : sequence of str
        Machines that have no node yet.
    initialized : collection of str
        Nodes that have been initialized.
    deleting : collection of str
        Nodes that are marked for deletion.
    nominated : collection of str
        Nodes on which a pending pod was placed a short time ago.
    consolidatable : collection of str
        Nodes without pod events for ``consolidateAfter``.
    unavailable : collection of str
        Groups of offerings that the cloud cannot launch now.
    """

    group_of: Mapping[str, str] = field(default_factory=dict)
    requested: Sequence[str] = ()
    initialized: Collection[str] = ()
    deleting: Collection[str] = ()
    nominated: Collection[str] = ()
    consolidatable: Collection[str] = ()
    unavailable: Collection[str] = ()


@dataclass(frozen=True)
class ClusterView:
    """A cluster at a moment, with its NodePools.

    Attributes
    ----------
    snapshot : Snapshot
        Nodes and pods.
    pools : NodePools
        The NodePools.
    offered : OfferedPools
        The same, prepared for placements.
    groups : mapping
        The group of each offering, with its template, by name.
    managed : ManagedNodes
        What Karpenter knows about its machines.
    budgets : sequence of PodDisruptionBudget
        Budgets of pods.
    now : Moment
        The time.
    """

    snapshot: Snapshot
    pools: NodePools
    offered: OfferedPools
    groups: Mapping[str, NodeGroup]
    managed: ManagedNodes
    budgets: Sequence[PodDisruptionBudget]
    now: Moment

    @cached_property
    def pool_by_name(self) -> dict[str, NodePool]:
        """Return the NodePools by name."""
        return {pool.name: pool for pool in self.pools.pools}

    @cached_property
    def pods_by_node(self) -> dict[str, list[Pod]]:
        """Return the pods of each node that has some, by the node's name."""
        names = self.snapshot.nodes
        result: dict[str, list[Pod]] = {}
        for number, record in zip(self.snapshot.placed_node.tolist(), self.snapshot.placed, strict=True):
            result.setdefault(names[number], []).append(record.pod)
        return result

    def pool_of(self, node: Node) -> NodePool | None:
        """Return the NodePool of a node; None if Karpenter does not manage the node, or has no pool of that name."""
        pool = self.pool_by_name.get((node.metadata.labels or {}).get(NODE_POOL, ""))
        return pool if node.name in self.managed.group_of else None

    def is_initialized(self, name: str) -> bool:
        """Check whether pods can be bound to the node ``name``: it is initialized, or Karpenter does not manage it."""
        return name not in self.managed.group_of or name in self.managed.initialized

    @cached_property
    def provisionable(self) -> list[str]:
        """Return the names of the pending pods for which Karpenter provisions capacity (:func:`is_provisionable`)."""
        return [record.key for record in self.snapshot.pending_records if is_provisionable(record.pod)]

    # -- pods of a node ----------------------------------------------------------------------------------------------

    def reschedulable(self, node: str) -> list[Pod]:
        """Return the pods of a node that will need another node, whether they may be evicted now or not."""
        return [pod for pod in self.pods_by_node.get(node, ()) if _is_replaced(pod)]

    def currently_reschedulable(self, node: str) -> list[Pod]:
        """Return the pods of a node that will need another node and may be evicted at some time.

        Pods that ``karpenter.sh/do-not-disrupt`` protects now, or that a budget always protects, are left out.
        """
        return [
            pod
            for pod in self.reschedulable(node)
            if not is_protected(pod, self.now) and not any(map(_blocks_always, self._covering(pod)))
        ]

    def has_blocking_pod(self, node: str) -> bool:
        """Check whether some pod of a node may not be evicted now: by its annotation, or by disruption budgets."""
        pods = self.pods_by_node.get(node, ())
        return any(is_protected(pod, self.now) for pod in pods) or any(map(self._is_held, pods))

    def _is_held(self, pod: Pod) -> bool:
        """Check whether disruption budgets forbid the eviction of a pod now.

        Several budgets that cover one pod always do. False for a pod that a drain does not evict. A budget with the
        policy ``AlwaysAllow`` does not hold a pod that is not ready.
        """
        if not is_evictable(pod, self.now):
            return False
        budgets = self._covering(pod)
        if len(budgets) > 1:
            return True
        return any(
            budget.status.disruptions_allowed <= 0
            and not (budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow" and not pod_ready(pod))
            for budget in budgets
        )

    def _covering(self, pod: Pod) -> list[PodDisruptionBudget]:
        """Return the disruption budgets that cover a pod."""
        return [
            budget
            for budget in self.budgets
            if budget.metadata.namespace == pod.metadata.namespace
            and compile_selector(budget.spec.selector).matches(pod.metadata.labels or {})
        ]

    # -- placement ---------------------------------------------------------------------------------------------------

    def place(self, moving: Sequence[Pod] = (), *, without: Collection[str] = ()) -> Placement:
        """Place the pods that need capacity on nodes and new machines.

        Such pods are those of :attr:`provisionable`, those on nodes that are being deleted, and ``moving``.
        Nodes that are being deleted take no pods, nor do those of ``without``. Nodes that are not initialized are tried
        last, without the taints that they will lose. The limits of NodePools count all other nodes, and machines that
        were requested.
        """
        managed = self.managed
        index = self.snapshot.columns.index
        removed = [name for name in index if name in managed.deleting or name in without]
        leaving = [pod for name in removed if name in managed.deleting for pod in self.currently_reschedulable(name)]
        fresh = [self._template(name) for name in managed.requested if name not in index]
        replaced = [self._without_ephemeral_taints(name) for name in index if not self.is_initialized(name)]
        snapshot = self.snapshot
        if fresh or removed or replaced:
            replaced = [node for node in replaced if node.name not in removed]
            snapshot = snapshot.with_nodes(fresh, without=removed, replaced=replaced)
        last = {name for name in snapshot.nodes if not self.is_initialized(name)}
        pods: list[str | Pod] = [*self.provisionable, *map(make_pending, leaving), *map(make_pending, moving)]
        return place_pods(
            snapshot,
            pods,
            self.offered,
            remaining=remaining_of_pools(self.pools, snapshot.columns.objects),
            last=last,
            unavailable=managed.unavailable,
        )

    def _template(self, name: str) -> NodeTemplate:
        """Return the node that the requested machine ``name`` will be, with the pods of DaemonSets on it."""
        template = self.groups[self.managed.group_of[name]].node_template
        metadata = template.node.metadata
        labels = {**(metadata.labels or {}), _HOSTNAME: name}
        node = replace(template.node, metadata=replace(metadata, name=name, labels=labels))
        pods = [
            replace(
                pod,
                metadata=replace(pod.metadata, name=f"{pod.metadata.name}-{name}"),
                spec=replace(pod.spec, node_name=name),
            )
            for pod in template.pods
        ]
        return replace(template, node=node, pods=pods)

    def _without_ephemeral_taints(self, name: str) -> Node:
        """Return a copy of the node ``name`` without the taints that it will lose when it is initialized."""
        node = self.snapshot.columns.objects[self.snapshot.columns.index[name]]
        pool = self.pool_of(node)
        startup = [] if pool is None else pool.spec.template.spec.startup_taints
        taints = [taint for taint in node.spec.taints if not _is_ephemeral(taint, startup)]
        return replace(node, spec=replace(node.spec, taints=taints))


def is_evictable(pod: Pod, now: Moment) -> bool:
    """Check whether a drain of the pod's node evicts the pod.

    False for a pod that has ended or is being deleted, tolerates the disruption, is a mirror pod, or is protected by
    ``karpenter.sh/do-not-disrupt`` at ``now``.
    """
    return _is_active(pod) and not tolerates_disruption(pod) and not is_mirror_pod(pod) and not is_protected(pod, now)


def is_drained(pod: Pod) -> bool:
    """Check whether the drain of a pod's node waits until the pod has left.

    It does not wait for pods of DaemonSets, mirror pods, pods that have ended, or pods that tolerate the disruption.
    """
    return not is_lost_with_node(pod) and not tolerates_disruption(pod)


def tolerates_disruption(pod: Pod) -> bool:
    """Check whether a pod tolerates the taint of disrupted nodes, so that it stays until the machine is deleted."""
    tolerations: Sequence[Toleration] = pod.spec.tolerations
    return tolerates_all(tolerations, [DISRUPTED], effects=("NoSchedule",))


def _is_active(pod: Pod) -> bool:
    """Check whether a pod neither ended nor is being deleted."""
    return not pod.is_finished and pod.metadata.deletion_timestamp is None


def _is_replaced(pod: Pod) -> bool:
    """Check whether a pod will need another node if it loses its own.

    Only pods that are created again when their node is lost do: the active ones, and terminating ones of a StatefulSet.
    """
    owner = controller_of(pod.metadata)
    return not is_lost_with_node(pod) and (_is_active(pod) or (owner is not None and owner.kind == "StatefulSet"))


def _blocks_always(budget: PodDisruptionBudget) -> bool:
    """Check whether a budget never allows a disruption: at most 0 pods unavailable, or 100 % available."""
    spec = budget.spec
    return spec.max_unavailable in (0, "0%") or spec.min_available == "100%"
