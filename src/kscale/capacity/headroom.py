"""How many more of a pod fit, and whether everything would still fit without one node or one zone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import msgspec
import numpy as np

from kscale._native import _engine
from kscale.objects.core import Pod
from kscale.objects.owners import is_daemonset_pod, is_mirror_pod
from kscale.records import Record
from kscale.scheduling.session import Session
from kscale.snapshot.interner import PodClass
from kscale.snapshot.snapshot import Snapshot

__all__ = ["ZONE", "HeadroomReport", "Loss", "headroom", "losses", "more_of"]

ZONE = "topology.kubernetes.io/zone"
_MOST = 1_000_000


class Loss(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """What losing ``name`` (a node or a zone) would do: ``pods`` look for a place, ``homeless`` find none.

    ``first`` names some of the homeless ones.
    """

    name: str
    pods: int
    homeless: int
    first: list[str] = []


class HeadroomReport(Record, frozen=True):
    """``more``: how many more of the pod fit now (null: no pod was asked about); ``nodes``, ``zones``: every loss."""

    KIND: ClassVar[str] = "HeadroomReport"

    pod: str | None
    more: int | None
    nodes: list[Loss]
    zones: list[Loss]


def headroom(snapshot: Snapshot, pod: Pod | None = None, *, zone_label: str = ZONE) -> HeadroomReport:
    """All of it in one call: :func:`more_of`, and :func:`losses` of every node and of every zone."""
    zone_of = snapshot.columns.label(zone_label)
    zones: dict[str, list[int]] = {}
    for n, value in enumerate(zone_of.ids.tolist()):
        if value >= 0:
            zones.setdefault(zone_of.values[value], []).append(n)
    return HeadroomReport(
        pod=None if pod is None else pod.key,
        more=None if pod is None else more_of(snapshot, pod),
        nodes=losses(snapshot, [(name, [n]) for n, name in enumerate(snapshot.nodes)]),
        zones=losses(snapshot, zones.items()),
    )


def more_of(snapshot: Snapshot, pod: Pod) -> int:
    """How many more pods like this one fit on nodes that exist, placed one after the other (a million at most)."""
    # Where a pod that runs already is says nothing of where others like it may go.
    session = Session(snapshot, [snapshot.interner.classify(pod, placed=True)])
    engine = session.engine
    if session.outcomes[0].failure is not None:
        return 0
    if engine.is_local(0):
        fits = engine.verdicts(np.zeros(1, dtype=np.int32))[0] == _engine.FITS
        open_nodes = np.flatnonzero(fits & (snapshot.columns.unschedulable == 0)).tolist()
        return min(_MOST, sum(engine.capacity(0, n) for n in open_nodes))
    count = 0
    while count < _MOST and (node := engine.any_node(0)) >= 0:
        engine.place(0, node)
        count += 1
    return count


def losses(snapshot: Snapshot, parts: Iterable[tuple[str, Sequence[int]]]) -> list[Loss]:
    """What each loss of nodes (by number) would do, each on its own; DaemonSet and mirror pods go with their node.

    The pods look for a place by priority, then in order of appearance, each on the first node that takes it. Nothing is
    evicted for them, and what is pending stays so.
    """
    classes = [snapshot.interner.classes[i] for i in snapshot.placed_class.tolist()]
    session = Session(snapshot, dict.fromkeys(classes), moving=True)
    engine = session.engine
    class_of = session.classes_of(classes)
    records = snapshot.placed_records
    stays = np.array([_stays(record.pod, of) for record, of in zip(records, classes, strict=True)], dtype=np.bool_)
    priority = np.array([record.priority for record in records], dtype=np.int64)
    by_node = np.argsort(snapshot.placed_node, kind="stable")
    starts = np.searchsorted(snapshot.placed_node[by_node], np.arange(len(snapshot.nodes) + 1))
    found = []
    for name, nodes in parts:
        engine.fork()
        pods = np.sort(np.concatenate([by_node[starts[n] : starts[n + 1]] for n in nodes]))
        for n in nodes:
            engine.vacate(n, class_of[by_node[starts[n] : starts[n + 1]]])
            engine.remove_ghost(n)
        pods = pods[~stays[pods]]
        if len(pods):
            pods = pods[np.argsort(-priority[pods], kind="stable")]
            breaks = np.flatnonzero(np.diff(priority[pods])) + 1
            alone = np.full(len(pods), -1, dtype=np.int32)
            groups = np.concatenate([[0], breaks, [len(pods)]]).astype(np.int32)
            node, _, _ = engine.try_schedule(class_of[pods], alone, alone, alone, groups)
            homeless = pods[node < 0]
        else:
            homeless = pods
        engine.revert()
        first = [records[i].key for i in homeless[:3].tolist()]
        found.append(Loss(name=name, pods=len(pods), homeless=len(homeless), first=first))
    return found


def _stays(pod: Pod, of: PodClass) -> bool:
    if not pod.metadata.annotations:  # the owner alone decides
        return of.owner is not None and of.owner[1] == "DaemonSet"
    return is_daemonset_pod(pod) or is_mirror_pod(pod)
