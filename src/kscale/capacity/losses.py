"""Effect of losing nodes together: named losses, every pair of nodes, and repairs.

kscale's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _removals
from kscale.ca.scale_down.moving_pods import get_moving_pods
from kscale.capacity.groups import members_of
from kscale.capacity.mix import MixOptions, mix, offers_of
from kscale.errors import InputError, Problem
from kscale.objects.api.core import Pod, PodStatus
from kscale.objects.api.meta import Condition
from kscale.objects.argument_types import typed
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.pod_owners import is_daemonset_pod, is_mirror_pod
from kscale.scheduling.session import Session
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "ZONE",
    "Loss",
    "PairLosses",
    "Repair",
    "check_zone_label",
    "losses",
    "named_losses",
    "pair_losses",
    "repaired",
]


def waiting(pod: Pod) -> Pod:
    """The pod without a node: the scheduler has looked at it and found none."""
    unschedulable = Condition(type="PodScheduled", status="False", reason="Unschedulable")
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(pod.spec, node_name=""),
        status=PodStatus(phase="Pending", conditions=[unschedulable]),
    )


def goes_with_its_node(pod: Pod) -> bool:
    """Nobody makes it anew elsewhere: pods of DaemonSets and of the kubelet, and those that have ended."""
    return is_daemonset_pod(pod) or is_mirror_pod(pod) or pod.status.phase in ("Succeeded", "Failed")


def smaller(group: NodeGroup, count: int, gone: Collection[str]) -> NodeGroup:
    """The group without ``count`` nodes, among those that are ``gone``: the cloud does not make them by itself."""
    if not count:
        return group
    target = group.target_size
    return msgspec.structs.replace(
        group,
        target_size=None if target is None else max(0, target - count),
        nodes=[name for name in group.nodes if name not in gone],
        from_node=None if group.from_node in gone else group.from_node,
    )


ZONE = "topology.kubernetes.io/zone"
WORST = 10
"""So many pairs are told by name."""
_FIRST = 3  # homeless pods of a loss that are named


class Repair(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """The cheapest new nodes found that give the homeless pods of a loss a place: ``offers`` counts them by group,
    ``cost`` is $/h. ``nowhere`` pods fit on none of the groups either; zones that are lost offer no nodes.
    ``limits_reached``: groups that are at their maximum size. Without nodes and without ``nowhere``
    pods all fit on the nodes that are left, in another order than the one in which they were homeless."""

    cost: float
    nodes: int
    offers: dict[str, int]
    nowhere: int
    limits_reached: list[str] = []


class Loss(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """What losing ``name`` (a node or a zone, or all of several) would do: ``pods`` look for a place, ``homeless`` find
    none.

    ``first`` names some of the homeless ones. ``repair``: when asked for, and somebody is homeless.
    """

    name: str
    pods: int
    homeless: int
    first: list[str] = []
    repair: Repair | None = None


class PairLosses(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Every pair of nodes of which each alone may be lost: ``pairs`` there are, ``homeless`` of them leave pods without
    a place, ``worst`` are those that leave most. ``alone``: nodes that leave pods homeless by themselves, in the order
    of the snapshot, whose pairs are not looked at. ``simulated`` pairs had to be played through; in the others the pods
    of the two nodes do not meet."""

    pairs: int
    homeless: int
    worst: list[Loss]
    alone: list[Loss]
    simulated: int


@dataclass(slots=True)
class _Pods:
    """Placed pods for the engine of ``session``: class, priority and node of each, and which go with their node."""

    names: Sequence[str]
    session: Session
    of: NDArray[np.int32]
    priority: NDArray[np.int64]
    node: NDArray[np.int32]
    stays: NDArray[np.uint8]

    @classmethod
    def in_snapshot(cls, snapshot: Snapshot) -> _Pods:
        pods = get_moving_pods(snapshot)
        classes = pods.classes()
        session = Session(snapshot, classes, moving=True)
        number = np.zeros(len(snapshot.interner.classes), dtype=np.int32)
        number[[of.index for of in classes]] = session.classes_of(classes)
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
        """As the kernel says them: pods that move, homeless ones, the first of these."""
        found: tuple[NDArray[Any], NDArray[Any], NDArray[Any]] = _removals.losses(
            self.session.engine,
            self.of,
            self.priority,
            self.node,
            self.stays,
            np.cumsum([0, *(len(nodes) for nodes in parts)]).astype(np.int32),
            np.array([n for nodes in parts for n in nodes], dtype=np.int32),
        )
        return found

    def told(self, name: str, pods: int, homeless: int, first: Iterable[int]) -> Loss:
        """The loss as it is said."""
        named = [self.names[i] for i in first if i >= 0] if homeless else []
        return Loss(name=name, pods=pods, homeless=homeless, first=named)


@typed
def losses(snapshot: Snapshot, parts: Iterable[tuple[str, Sequence[int]]]) -> list[Loss]:
    """What each loss of nodes would do, each on its own; DaemonSet and mirror pods go with their node. ``parts``: the
    name of each loss, and the numbers of its nodes in ``snapshot.nodes``.

    The pods look for a place by priority, then in order of appearance, each on the first node that takes it, from
    behind the one that took the last. Where none is homeless there is room for all; where some are, another order might
    have found it. Nothing is evicted for them, and what is pending stays so.
    """
    named = [(name, list(nodes)) for name, nodes in parts]
    pods = _Pods.in_snapshot(snapshot)
    moving, homeless, first = pods.losses([nodes for _, nodes in named])
    rows = zip(named, moving.tolist(), homeless.tolist(), first.tolist(), strict=True)
    return [pods.told(name, count, without, some) for (name, _), count, without, some in rows]


@typed
def check_zone_label(snapshot: Snapshot, zone_label: str) -> None:
    """Raises InputError for a ``zone_label`` that was chosen and that no node has; without zones the usual one
    (:data:`ZONE`) is on none."""
    objects = snapshot.columns.objects
    if zone_label != ZONE and objects and not any(zone_label in (node.metadata.labels or {}) for node in objects):
        raise InputError(Problem(f'no node has the label "{zone_label}"', field="zone_label"))


@typed
def named_losses(
    snapshot: Snapshot, texts: Iterable[str], groups: Iterable[NodeGroup] = (), *, zone_label: str = ZONE
) -> list[tuple[str, list[int]]]:
    """The ``texts`` ``node=a,b``, ``zone=a``, ``pool=x`` as names and numbers of nodes that are lost together.

    ``zone_label``: the label that tells the zone of a node. Raises InputError for what is not there.
    """
    objects = snapshot.columns.objects
    groups = list(groups)
    found = []
    for text in texts:
        kind, _, value = text.partition("=")
        names = [name for name in value.split(",") if name]
        nodes: dict[int, None] = {}
        for name in names:
            if kind == "node":
                mine = [snapshot.columns.index[name]] if name in snapshot.columns.index else []
            elif kind == "zone":
                mine = [n for n, node in enumerate(objects) if (node.metadata.labels or {}).get(zone_label) == name]
            elif kind == "pool":
                members = [each for group in groups if group.id == name for each in members_of(group, objects)]
                mine = [snapshot.columns.index[node.metadata.name] for node in members]
            else:
                raise InputError(f'"{text}": what is lost is node=NAME, zone=NAME, pool=NAME or pairs')
            if not mine:
                raise InputError(f'"{text}": there is no {kind} "{name}"' + (" with nodes" if kind != "node" else ""))
            nodes.update(dict.fromkeys(mine))
        if not names:
            raise InputError(f'"{text}": what is lost is node=NAME, zone=NAME, pool=NAME or pairs')
        found.append((text, list(nodes)))
    return found


@typed
def pair_losses(snapshot: Snapshot) -> PairLosses:
    """Every pair of nodes. Pods look for a place as :func:`losses` says, those of a node from behind it on.

    Two nodes whose pods, each node's by themselves, go to different nodes and not to each other's, can be lost
    together: what a pod without rules over other nodes may do depends on its own node only. The other pairs are
    played through.
    """
    pods = _Pods.in_snapshot(snapshot)
    landing, alone, bound = _landings(pods, snapshot.nodes)
    good = np.array([n for n, name in enumerate(snapshot.nodes) if name not in alone], dtype=np.intp)
    met = landing[good].astype(np.float32)
    meets = (met @ met.T) > 0  # a node that takes pods of both
    meets |= landing[np.ix_(good, good)] | landing[np.ix_(good, good)].T
    meets |= bound[good][:, None] | bound[good][None, :]
    first, second = np.nonzero(np.triu(meets, 1))
    parts = np.stack([good[first], good[second]], axis=1)
    moving, homeless, some = pods.losses(parts.tolist()) if len(parts) else (np.zeros(0, np.int32),) * 3
    bad = np.flatnonzero(homeless)
    order = bad[np.lexsort((bad, -homeless[bad]))]
    worst = [
        pods.told(
            " and ".join(snapshot.nodes[n] for n in parts[i].tolist()),
            int(moving[i]),
            int(homeless[i]),
            some[i].tolist(),
        )
        for i in order[:WORST].tolist()
    ]
    return PairLosses(
        pairs=len(good) * (len(good) - 1) // 2,
        homeless=len(bad),
        worst=worst,
        alone=list(alone.values()),
        simulated=len(parts),
    )


def _landings(pods: _Pods, nodes: Sequence[str]) -> tuple[NDArray[np.bool_], dict[str, Loss], NDArray[np.bool_]]:
    """(bool[nodes, nodes]: where pods of a lost node go; the losses of nodes some of whose pods find no place;
    bool[nodes]: some have rules over other nodes)."""
    engine, count = pods.session.engine, len(nodes)
    landing = np.zeros((count, count), dtype=bool)
    alone: dict[str, Loss] = {}
    bound = np.zeros(count, dtype=bool)
    local = np.array([engine.is_local(c) for c in range(int(pods.of.max(initial=-1)) + 1)], dtype=bool)
    order = np.lexsort((np.arange(len(pods.of)), -pods.priority, pods.node))
    starts = np.searchsorted(pods.node[order], np.arange(count + 1))
    cursor = engine.cursor
    for n in range(count):
        mine = order[starts[n] : starts[n + 1]]
        going = mine[pods.stays[mine] == 0]
        moving = pods.of[going].tolist()
        homeless = []
        engine.fork()
        engine.vacate(n, np.ascontiguousarray(pods.of[mine]))
        engine.remove_ghost(n)
        engine.cursor = n
        for i, c in zip(going.tolist(), moving, strict=True):
            at = engine.any_node(c)
            if at < 0:
                homeless.append(i)
                continue
            engine.place(c, at)
            landing[n, at] = True
        if homeless:
            alone[nodes[n]] = pods.told(nodes[n], len(moving), len(homeless), homeless[:_FIRST])
        bound[n] = not local[moving].all()
        engine.revert()
    engine.cursor = cursor
    return landing, alone, bound


@typed
def repaired(
    cluster: Cluster,
    loss: Loss,
    nodes: Sequence[int],
    groups: Sequence[NodeGroup],
    *,
    options: MixOptions | None = None,
    stop: Callable[[], bool] | None = None,
    zone_label: str = ZONE,
) -> Loss:
    """The loss with the cheapest new nodes of ``groups`` (with templates and prices) that would make it hold; as it is
    where nobody is homeless. Zones (``zone_label``) of which every node is lost offer none.

    ``nodes``: numbers of those that are lost, in ``snapshot.nodes``. ``stop``: asked now and then; true: time is up.
    """
    if not loss.homeless:
        return loss
    objects = cluster.snapshot(dra=True).columns.objects
    gone = {objects[n].metadata.name for n in nodes}
    left = {(node.metadata.labels or {}).get(zone_label) for node in objects if node.metadata.name not in gone}
    lost = {(objects[n].metadata.labels or {}).get(zone_label) for n in nodes} - left - {None}
    left_of = [
        smaller(group, sum(node.metadata.name in gone for node in members_of(group, objects)), gone) for group in groups
    ]
    offers = [offer for offer in offers_of(left_of) if offer.zone not in lost]
    world = cluster.copy()
    for node in objects:
        if node.metadata.name in gone:
            world.remove(node)
    wanting = []
    for pod in cluster.pods_on(gone):
        world.remove(pod)
        if not goes_with_its_node(pod):
            world.apply(waiting(pod))
            wanting.append(pod.key)
    if not offers:
        return msgspec.structs.replace(loss, repair=Repair(cost=0.0, nodes=0, offers={}, nowhere=loss.homeless))
    plan = mix(world.snapshot(dra=True), offers, pods=wanting, options=options, stop=(stop, stop))
    full = [offer.name for offer in offers if offer.most == 0]
    repair = Repair(
        cost=plan.cost,
        nodes=plan.nodes,
        offers=plan.offers,
        nowhere=plan.nowhere,
        limits_reached=[*plan.limits_reached, *full] if plan.nowhere else [],
    )
    return msgspec.structs.replace(loss, repair=repair)
