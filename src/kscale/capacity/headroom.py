"""How many more of a pod fit, and whether everything would still fit without one node or one zone. kscale's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from kscale._native import _removals
from kscale.capacity.fit import rejected
from kscale.capacity.losses import ZONE, Loss, PairLosses, check_zone_label, losses, named_losses, pair_losses, repaired
from kscale.objects.core import Pod, PodStatus
from kscale.objects.nodegroup import NodeGroup
from kscale.records import Record
from kscale.scheduling.place import place
from kscale.scheduling.session import Session
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.pod_rows import copies_of
from kscale.snapshot.snapshot import Snapshot

__all__ = ["HeadroomReport", "headroom", "lost", "more_of"]

_MOST = 1_000_000
_TOLD = 100_000
"""Up to so many it is told where they land."""


class HeadroomReport(Record, frozen=True):
    """``more``: how many more of the pod fit now (null: no pod was asked about); ``nodes``, ``zones``: every loss.

    ``placement``: node -> how many of them land there; ``nextEvent``: kube-scheduler's text for the one after. Both are
    left out where more than 100,000 fit. ``lost``, ``pairs``: the losses that were asked about by name, and those of
    every pair of nodes, when asked for.
    """

    KIND: ClassVar[str] = "HeadroomReport"

    pod: str | None
    more: int | None
    nodes: list[Loss]
    zones: list[Loss]
    placement: dict[str, int] | None = None
    next_event: str = ""
    """Of kube-scheduler, why one more finds no place."""
    lost: list[Loss] = msgspec.field(default_factory=list)
    pairs: PairLosses | None = None


def headroom(snapshot: Snapshot, pod: Pod | None = None, *, zone_label: str = ZONE) -> HeadroomReport:
    """All of it in one call: :func:`more_of`, and :func:`losses` of every node and of every zone.

    Raises InputError for another ``zone_label`` than the usual one that no node has.
    """
    check_zone_label(snapshot, zone_label)
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


def lost(
    cluster: Cluster,
    texts: Sequence[str],
    groups: Sequence[NodeGroup] = (),
    *,
    repair: bool = False,
    zone_label: str = ZONE,
) -> HeadroomReport:
    """The losses of ``texts`` only: ``node=A,B`` (together), ``zone=A``, ``pool=GROUP``, and ``pairs`` (every pair of
    nodes).

    ``zone_label``: the label that tells the zone of a node. ``repair``: the cheapest new nodes of ``groups``, which
    have templates and prices, that would make each hold. Raises InputError for what is not there.
    """
    snapshot = cluster.snapshot(dra=True)
    check_zone_label(snapshot, zone_label)
    named = named_losses(snapshot, [text for text in texts if text != "pairs"], groups, zone_label=zone_label)
    found = losses(snapshot, named)
    pairs = pair_losses(snapshot) if "pairs" in texts else None
    if repair:
        found = [
            repaired(cluster, loss, nodes, groups, zone_label=zone_label)
            for loss, (_, nodes) in zip(found, named, strict=True)
        ]
        if pairs is not None:
            index = snapshot.columns.index
            worst = [
                repaired(
                    cluster, loss, [index[name] for name in loss.name.split(" and ")], groups, zone_label=zone_label
                )
                for loss in pairs.worst
            ]
            pairs = msgspec.structs.replace(pairs, worst=worst)
    return HeadroomReport(pod=None, more=None, nodes=[], zones=[], lost=found, pairs=pairs)


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
