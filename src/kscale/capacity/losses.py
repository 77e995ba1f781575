"""Effects of losing nodes at the same time: named losses, every pair of nodes, and the cheapest repairs.

Not in upstream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _engine
from kscale.ca.scale_down.moving_pods import get_moving_pods
from kscale.capacity.groups import members_of
from kscale.capacity.mix import MixOptions, mix, offers_of
from kscale.errors import InputError, Problem, show_value
from kscale.objects.api.core import Pod, PodStatus
from kscale.objects.api.meta import Condition
from kscale.objects.argument_types import typed
from kscale.objects.node_selectors import ZONE
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.pod_owners import is_daemonset_pod, is_lost_with_node, is_mirror_pod
from kscale.scheduling.session import Session
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "Loss",
    "PairLosses",
    "Repair",
    "add_repair",
    "check_zone_label",
    "losses",
    "named_losses",
    "pair_losses",
]


def make_pending(pod: Pod) -> Pod:
    """Return a copy of the pod that is pending and unschedulable, without a node.

    Nothing else of its status is kept.
    """
    unschedulable = Condition(type="PodScheduled", status="False", reason="Unschedulable")
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(pod.spec, node_name=""),
        status=PodStatus(phase="Pending", conditions=[unschedulable]),
    )


def smaller(group: NodeGroup, count: int, removed: Collection[str]) -> NodeGroup:
    """Return the group without ``count`` lost nodes; the nodes ``removed`` are no longer its members or its model.

    The group's target size, if it has one, decreases by ``count``, as if the cloud did not replace the nodes. The group
    is unchanged if ``count`` is 0.
    """
    if not count:
        return group
    target = group.target_size
    return msgspec.structs.replace(
        group,
        target_size=None if target is None else max(0, target - count),
        nodes=[name for name in group.nodes if name not in removed],
        from_node=None if group.from_node in removed else group.from_node,
    )


WORST = 10
"""Maximum of pairs that are listed by name."""
_FIRST = 3  # number of homeless pods that a loss names


class Repair(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """The cheapest new nodes found for the homeless pods of a loss. Zones that are lost offer no nodes.

    A repair without nodes and without unschedulable pods means that all pods fit on the remaining nodes in another
    order.

    Attributes
    ----------
    cost : float
        Price of the new nodes per hour.
    nodes : int
        Number of new nodes.
    offers : dict of str to int
        Number of new nodes by node group.
    unschedulable_count : int
        Number of homeless pods that fit on none of the groups either.
    limits_reached : list of str
        Groups that reach their maximum size.
    """

    cost: float
    nodes: int
    offers: dict[str, int]
    unschedulable_count: int
    limits_reached: list[str] = []


class Loss(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """The effect of losing a node or a zone, or several of them at once.

    Attributes
    ----------
    name : str
        What is lost.
    pods : int
        Number of pods that need another node.
    homeless : int
        Number of these pods that fit on no remaining node.
    first : list of str
        Some of the homeless pods, as ``namespace/name``.
    repair : Repair or None
        The cheapest new nodes for the homeless pods. None: not requested, or there are no homeless pods.
    """

    name: str
    pods: int
    homeless: int
    first: list[str] = []
    repair: Repair | None = None


class PairLosses(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Losses of pairs of nodes. Nodes that leave pods without a node by themselves are not paired.

    Attributes
    ----------
    pairs : int
        Number of pairs.
    homeless : int
        Number of pairs whose loss leaves pods without a node.
    worst : list of Loss
        The pairs whose loss leaves most pods without a node.
    alone : list of Loss
        Nodes that leave pods without a node by themselves, in the order of the snapshot. Their pairs are not examined.
    simulated : int
        Number of pairs that had to be simulated. In the others, the pods of the two nodes do not interact.
    """

    pairs: int
    homeless: int
    worst: list[Loss]
    alone: list[Loss]
    simulated: int


@dataclass(slots=True)
class _Pods:
    """Placed pods as arrays for ``session``'s engine: class, priority, node, and which pods go with their node."""

    names: Sequence[str]
    session: Session
    of: NDArray[np.int32]
    priority: NDArray[np.int64]
    node: NDArray[np.int32]
    stays: NDArray[np.uint8]

    @classmethod
    def in_snapshot(cls, snapshot: Snapshot) -> _Pods:
        """Prepare the placed pods of a snapshot. Pods of DaemonSets and mirror pods end with their node."""
        pods = get_moving_pods(snapshot)
        classes = pods.classes()
        session = Session(snapshot, classes, moving=True)
        number = np.zeros(len(snapshot.interner.classes), dtype=np.int32)
        number[[pod_class.index for pod_class in classes]] = session.classes_of(classes)
        stays = np.array([is_daemonset_pod(pod) or is_mirror_pod(pod) for pod in pods.exemplars], dtype=np.uint8)
        return cls(
            pods.names,
            session,
            number[pods.class_of],
            np.ascontiguousarray(pods.priority),
            pods.node,
            stays[pods.kind_of],
        )

    def losses(self, parts: Sequence[Sequence[int]]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Simulate each loss of ``parts`` (indices of its nodes) by itself, with native code.

        Returns three arrays with one row per loss: number of pods that must move, number of homeless pods, and
        positions of the first three homeless ones (-1: there are fewer).
        """
        result: tuple[NDArray[Any], NDArray[Any], NDArray[Any]] = _engine.losses(
            self.session.engine,
            self.of,
            self.priority,
            self.node,
            self.stays,
            np.cumsum([0, *(len(nodes) for nodes in parts)]).astype(np.int32),
            np.array([n for nodes in parts for n in nodes], dtype=np.int32),
        )
        return result

    def build_loss(self, name: str, pods: int, homeless: int, first: Iterable[int]) -> Loss:
        """Build the record of a loss. ``pods``, ``homeless``: numbers of pods.

        ``first``: positions of the homeless pods that the record names; -1 is skipped.
        """
        named = [self.names[i] for i in first if i >= 0] if homeless else []
        return Loss(name=name, pods=pods, homeless=homeless, first=named)


@typed
def losses(snapshot: Snapshot, parts: Iterable[tuple[str, Sequence[int]]]) -> list[Loss]:
    """Simulate losses of nodes, each one separately.

    Parameters
    ----------
    snapshot : Snapshot
        State of the cluster.
    parts : iterable of (str, sequence of int)
        Name of each loss, and the indices of its nodes in ``snapshot.nodes``.

    Returns
    -------
    list of Loss
        One record per loss, with the names of up to three homeless pods.

    Raises
    ------
    InputError
        If an item of ``parts`` is not a pair.

    Notes
    -----
    DaemonSet and mirror pods go with their node. The other pods are scheduled by priority, then in order of appearance,
    each on the first node that takes it, starting after the node that took the last pod. No homeless pods means that
    there is room for all; with homeless pods, another order might still have found room. Nothing is evicted, and
    pending pods stay pending.
    """
    named = []
    for part in parts:
        try:
            name, nodes = part
        except (TypeError, ValueError):
            raise InputError(f"parts has {show_value(part)}, not a pair of a name and nodes") from None
        named.append((name, list(nodes)))
    pods = _Pods.in_snapshot(snapshot)
    moving, homeless, first = pods.losses([nodes for _, nodes in named])
    rows = zip(named, moving.tolist(), homeless.tolist(), first.tolist(), strict=True)
    return [pods.build_loss(name, count, without, first_pods) for (name, _), count, without, first_pods in rows]


@typed
def check_zone_label(snapshot: Snapshot, zone_label: str) -> None:
    """Raise InputError if no node has the label ``zone_label``.

    The default label (:data:`ZONE`) is always accepted, as a cluster may have no zones; so is any label if there are no
    nodes.
    """
    objects = snapshot.columns.objects
    if zone_label != ZONE and objects and not any(zone_label in (node.metadata.labels or {}) for node in objects):
        raise InputError(Problem(f'no node has the label "{zone_label}"', field="zone_label"))


@typed
def named_losses(
    snapshot: Snapshot, texts: Iterable[str], groups: Iterable[NodeGroup] = (), *, zone_label: str = ZONE
) -> list[tuple[str, list[int]]]:
    """Parse losses such as ``node=a,b``, ``zone=a`` and ``pool=x``.

    Parameters
    ----------
    snapshot : Snapshot
        State of the cluster.
    texts : iterable of str
        The losses.
    groups : iterable of NodeGroup
        Node groups, for ``pool``.
    zone_label : str
        The label with the zone of a node.

    Returns
    -------
    list of (str, list of int)
        Each text, and the distinct indices of nodes that are lost together.

    Raises
    ------
    InputError
        For another form of text, and for nodes, zones and pools that do not exist or have no nodes.
    """
    objects = snapshot.columns.objects
    groups = list(groups)
    result = []
    for text in texts:
        kind, _, value = text.partition("=")
        names = [name for name in value.split(",") if name]
        nodes: dict[int, None] = {}
        for name in names:
            if kind == "node":
                indices = [snapshot.columns.index[name]] if name in snapshot.columns.index else []
            elif kind == "zone":
                indices = [n for n, node in enumerate(objects) if (node.metadata.labels or {}).get(zone_label) == name]
            elif kind == "pool":
                members = [member for group in groups if group.id == name for member in members_of(group, objects)]
                indices = [snapshot.columns.index[node.metadata.name] for node in members]
            else:
                raise InputError(f'"{text}": what is lost is node=NAME, zone=NAME, pool=NAME or pairs')
            if not indices:
                raise InputError(f'"{text}": there is no {kind} "{name}"' + (" with nodes" if kind != "node" else ""))
            nodes.update(dict.fromkeys(indices))
        if not names:
            raise InputError(f'"{text}": what is lost is node=NAME, zone=NAME, pool=NAME or pairs')
        result.append((text, list(nodes)))
    return result


@typed
def pair_losses(snapshot: Snapshot) -> PairLosses:
    """Simulate the loss of every pair of nodes that can each be lost alone without homeless pods.

    Pods are scheduled as in :func:`losses`, starting after their own node.

    Two nodes can be lost together if their pods, each node's alone, go to different nodes and not to each other's: the
    choice for a pod without rules about other nodes depends on its own node only. The other pairs are simulated.
    """
    pods = _Pods.in_snapshot(snapshot)
    landing, alone, bound = _simulate_losses(pods, snapshot.nodes)
    survivable = np.array([n for n, name in enumerate(snapshot.nodes) if name not in alone], dtype=np.intp)
    targets = landing[survivable].astype(np.float32)
    interact = (targets @ targets.T) > 0  # some node takes pods of both
    interact |= landing[np.ix_(survivable, survivable)] | landing[np.ix_(survivable, survivable)].T
    interact |= bound[survivable][:, None] | bound[survivable][None, :]
    first, second = np.nonzero(np.triu(interact, 1))
    parts = np.stack([survivable[first], survivable[second]], axis=1)
    moving, homeless, first_homeless = pods.losses(parts.tolist()) if len(parts) else (np.zeros(0, np.int32),) * 3
    harmful = np.flatnonzero(homeless)
    order = harmful[np.lexsort((harmful, -homeless[harmful]))]
    worst = [
        pods.build_loss(
            " and ".join(snapshot.nodes[n] for n in parts[i].tolist()),
            int(moving[i]),
            int(homeless[i]),
            first_homeless[i].tolist(),
        )
        for i in order[:WORST].tolist()
    ]
    return PairLosses(
        pairs=len(survivable) * (len(survivable) - 1) // 2,
        homeless=len(harmful),
        worst=worst,
        alone=list(alone.values()),
        simulated=len(parts),
    )


def _simulate_losses(pods: _Pods, nodes: Sequence[str]) -> tuple[NDArray[np.bool_], dict[str, Loss], NDArray[np.bool_]]:
    """Simulate the loss of each single node.

    Returns three values: bool[nodes, nodes], whether the second node receives pods of the lost first one; the losses
    that leave pods homeless, by node name; bool[nodes], whether a node has pods whose affinity or spread rules concern
    other nodes. The engine is restored.
    """
    engine, count = pods.session.engine, len(nodes)
    landing = np.zeros((count, count), dtype=bool)
    alone: dict[str, Loss] = {}
    bound = np.zeros(count, dtype=bool)
    local = np.array([engine.is_local(c) for c in range(int(pods.of.max(initial=-1)) + 1)], dtype=bool)
    order = np.lexsort((np.arange(len(pods.of)), -pods.priority, pods.node))
    starts = np.searchsorted(pods.node[order], np.arange(count + 1))
    cursor = engine.cursor
    for n in range(count):
        own = order[starts[n] : starts[n + 1]]
        movers = own[pods.stays[own] == 0]
        moving = pods.of[movers].tolist()
        homeless = []
        engine.fork()
        engine.vacate(n, np.ascontiguousarray(pods.of[own]))
        engine.remove_ghost(n)
        engine.cursor = n
        for i, c in zip(movers.tolist(), moving, strict=True):
            target = engine.any_node(c)
            if target < 0:
                homeless.append(i)
                continue
            engine.place(c, target)
            landing[n, target] = True
        if homeless:
            alone[nodes[n]] = pods.build_loss(nodes[n], len(moving), len(homeless), homeless[:_FIRST])
        bound[n] = not local[moving].all()
        engine.revert()
    engine.cursor = cursor
    return landing, alone, bound


@typed
def add_repair(
    cluster: Cluster,
    loss: Loss,
    nodes: Sequence[int],
    groups: Sequence[NodeGroup],
    *,
    options: MixOptions | None = None,
    stop: Callable[[], bool] | None = None,
    zone_label: str = ZONE,
) -> Loss:
    """Return the loss with the cheapest repair that :func:`mix` finds: new nodes on which its homeless pods fit.

    Parameters
    ----------
    cluster : Cluster
        The cluster before the loss.
    loss : Loss
        The loss; returned unchanged if no pod is homeless.
    nodes : sequence of int
        Indices of the lost nodes in ``snapshot.nodes``.
    groups : sequence of NodeGroup
        Groups with templates and prices. Groups in zones of which every node is lost offer no nodes.
    options : MixOptions, optional
        Options of the search.
    stop : callable, optional
        Polled during the search, which ends when it returns True.
    zone_label : str
        The label with the zone of a node.

    Returns
    -------
    Loss
        A copy with ``repair``: cost and number of the nodes, and the number of pods that fit no group (all homeless
        ones if no group can be bought).

    Raises
    ------
    InputError
        If a group has no template or no price, or if groups or ``options`` are invalid otherwise.
    """
    if not loss.homeless:
        return loss
    objects = cluster.snapshot(dra=True).columns.objects
    lost_nodes = {objects[n].metadata.name for n in nodes}
    zones = {(node.metadata.labels or {}).get(zone_label) for node in objects if node.metadata.name not in lost_nodes}
    lost_zones = {(objects[n].metadata.labels or {}).get(zone_label) for n in nodes} - zones - {None}
    smaller_groups = [
        smaller(group, sum(node.metadata.name in lost_nodes for node in members_of(group, objects)), lost_nodes)
        for group in groups
    ]
    offers = [offer for offer in offers_of(smaller_groups) if offer.zone not in lost_zones]
    world = cluster.copy()
    for node in objects:
        if node.metadata.name in lost_nodes:
            world.remove(node)
    displaced = []
    for pod in cluster.pods_on(lost_nodes):
        world.remove(pod)
        if not is_lost_with_node(pod):
            world.apply(make_pending(pod))
            displaced.append(pod.key)
    if not offers:
        return msgspec.structs.replace(
            loss, repair=Repair(cost=0.0, nodes=0, offers={}, unschedulable_count=loss.homeless)
        )
    plan = mix(world.snapshot(dra=True), offers, pods=displaced, options=options, stop=(stop, stop))
    full = [offer.name for offer in offers if offer.most == 0]
    repair = Repair(
        cost=plan.cost,
        nodes=plan.node_count,
        offers=plan.offers,
        unschedulable_count=plan.unschedulable_count,
        limits_reached=[*plan.limits_reached, *full] if plan.unschedulable_count else [],
    )
    return msgspec.structs.replace(loss, repair=repair)
