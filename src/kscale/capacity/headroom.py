"""How many more of a pod fit, and whether everything would still fit without one node or one zone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar

import msgspec
import numpy as np
from msgspec.structs import replace

from kscale._native import _removals
from kscale.ca.scale_down.moving_pods import moving_pods
from kscale.capacity.fit import rejected
from kscale.objects.core import Pod, PodStatus
from kscale.objects.owners import is_daemonset_pod, is_mirror_pod
from kscale.records import Record
from kscale.scheduling.place import place
from kscale.scheduling.session import Session
from kscale.snapshot.pod_rows import copies_of
from kscale.snapshot.snapshot import Snapshot

__all__ = ["ZONE", "HeadroomReport", "Loss", "headroom", "losses", "more_of"]

ZONE = "topology.kubernetes.io/zone"
_MOST = 1_000_000
_TOLD = 100_000
"""Up to so many it is told where they land."""


class Loss(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """What losing ``name`` (a node or a zone) would do: ``pods`` look for a place, ``homeless`` find none.

    ``first`` names some of the homeless ones.
    """

    name: str
    pods: int
    homeless: int
    first: list[str] = []


class HeadroomReport(Record, frozen=True):
    """``more``: how many more of the pod fit now (null: no pod was asked about); ``nodes``, ``zones``: every loss.

    ``placement``: node -> how many of them land there; ``nextEvent``: kube-scheduler's text for the one after. Both are
    left out where more than 100,000 fit.
    """

    KIND: ClassVar[str] = "HeadroomReport"

    pod: str | None
    more: int | None
    nodes: list[Loss]
    zones: list[Loss]
    placement: dict[str, int] | None = None
    next_event: str = ""


def headroom(snapshot: Snapshot, pod: Pod | None = None, *, zone_label: str = ZONE) -> HeadroomReport:
    """All of it in one call: :func:`more_of`, and :func:`losses` of every node and of every zone."""
    zone_of = snapshot.columns.label(zone_label)
    zones: dict[str, list[int]] = {}
    for n, value in enumerate(zone_of.ids.tolist()):
        if value >= 0:
            zones.setdefault(zone_of.values[value], []).append(n)
    more = None if pod is None else more_of(snapshot, pod)
    placement, event = (None, "") if pod is None or more is None or more > _TOLD else _landing(snapshot, pod, more)
    return HeadroomReport(
        pod=None if pod is None else pod.key,
        more=more,
        placement=placement,
        next_event=event,
        nodes=losses(snapshot, [(name, [n]) for n, name in enumerate(snapshot.nodes)]),
        zones=losses(snapshot, zones.items()),
    )


def _landing(snapshot: Snapshot, pod: Pod, more: int) -> tuple[dict[str, int], str]:
    """Node -> how many of so many land there, and what kube-scheduler says of the next one."""
    loose = replace(pod, spec=replace(pod.spec, node_name=""), status=PodStatus())
    placed = place(snapshot, pods=copies_of(loose, more + 1, f"{pod.key}-more", snapshot.interner))
    return dict(Counter(placed.placement.values())), rejected(placed.snapshot_after, placed.unschedulable_records)[1]


def more_of(snapshot: Snapshot, pod: Pod) -> int:
    """How many more pods like this one fit on nodes that exist, placed one after the other (a million at most)."""
    # Where a pod that runs already is says nothing of where others like it may go.
    session = Session(snapshot, [snapshot.interner.classify(pod, placed=True)], alike=True)
    engine = session.engine
    if session.hopeless(0):
        return 0
    if engine.is_local(0):
        return _removals.more_of(engine, 0, _MOST)
    count = 0
    while count < _MOST and (node := engine.any_node(0)) >= 0:
        engine.place(0, node)
        count += 1
    return count


def losses(snapshot: Snapshot, parts: Iterable[tuple[str, Sequence[int]]]) -> list[Loss]:
    """What each loss of nodes (by number) would do, each on its own; DaemonSet and mirror pods go with their node.

    The pods look for a place by priority, then in order of appearance, each on the first node that takes it, from
    behind the one that took the last. Where none is homeless there is room for all; where some are, another order might
    have found it. Nothing is evicted for them, and what is pending stays so.
    """
    pods = moving_pods(snapshot)
    classes = pods.classes()
    session = Session(snapshot, classes, moving=True)
    number = np.zeros(len(snapshot.interner.classes), dtype=np.int32)
    number[[of.index for of in classes]] = session.classes_of(classes)
    stays = np.array([is_daemonset_pod(pod) or is_mirror_pod(pod) for pod in pods.exemplars], dtype=np.uint8)
    named = [(name, list(nodes)) for name, nodes in parts]
    lost = [n for _, nodes in named for n in nodes]
    moving, homeless, first = _removals.losses(
        session.engine,
        number[pods.class_of],
        np.ascontiguousarray(pods.priority),
        pods.node,
        stays[pods.kind_of],
        np.cumsum([0, *(len(nodes) for _, nodes in named)]).astype(np.int32),
        np.array(lost, dtype=np.int32),
    )
    return [
        Loss(name=name, pods=pods_of, homeless=count, first=[pods.names[i] for i in first[loss].tolist() if i >= 0])
        if count
        else Loss(name=name, pods=pods_of, homeless=0)
        for loss, ((name, _), pods_of, count) in enumerate(zip(named, moving.tolist(), homeless.tolist(), strict=True))
    ]
