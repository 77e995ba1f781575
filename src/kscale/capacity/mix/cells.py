"""Zones and their like: which pods go where, so that spread, affinity and anti-affinity over them hold.

Nodes that agree in every topology label that some constraint counts by are one *cell*. Each cell gets one node without
limits in a simulated cluster; the exact predicates then say where each pod may go, and of these cells it takes the one
with fewest of its like, then the one with least load. Inside a cell only nodes tell pods apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.objects.core import Node, NodeStatus, Pod, PodAffinity
from kscale.objects.meta import ObjectMeta
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import SelectorError
from kscale.scheduling.context import Context
from kscale.scheduling.facts import HOSTNAME
from kscale.scheduling.fork import fork
from kscale.scheduling.plugins import PROFILE
from kscale.scheduling.plugins.pod_topology_spread import hard_constraints
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.interner import PodClass
from kscale.snapshot.snapshot import Snapshot

__all__ = ["FREE", "Cells", "assign", "cells_of", "rank_of", "topology_keys"]

FREE = -1
_MOST_CELLS = 16
_JUDGED = ("PodTopologySpread", "InterPodAffinity")
_ROOM = {"cpu": "1T", "memory": "1Ei", "ephemeral-storage": "1Ei", "pods": "1G"}


def topology_keys(classes: Sequence[PodClass], ctx: Context) -> list[str]:
    """The labels by which some required term or hard constraint of a pending class counts, but for the host name."""
    keys: dict[str, None] = {}
    for pod in classes:
        keys.update(dict.fromkeys(term.topology_key for term in (*pod.affinity, *pod.anti_affinity)))
        try:
            keys.update(dict.fromkeys(each.row.key for each in hard_constraints(pod, ctx)))
        except SelectorError:
            continue
    keys.pop(HOSTNAME, None)
    return list(keys)


@dataclass(frozen=True, slots=True)
class Cells:
    """``keys`` that make cells, ``labels`` of each cell; ``of_offer`` int64[T], ``of_node`` int64[N] of nodes that
    exist (:data:`FREE` = in none). ``left_out``: keys with so many values that cells by them would be no help."""

    keys: tuple[str, ...]
    labels: list[dict[str, str]]
    of_offer: NDArray[np.int64]
    of_node: NDArray[np.int64]
    left_out: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)


def cells_of(keys: Sequence[str], offers: Sequence[dict[str, str]], nodes: Sequence[dict[str, str]]) -> Cells:
    """Cells by labels of offers and nodes; one for everything where no key tells offers apart."""
    used, left_out = [], []
    for key in keys:
        values = {labels.get(key) for labels in offers}
        if 1 < len(values) <= _MOST_CELLS:
            used.append(key)
        elif len(values) > _MOST_CELLS:
            left_out.append(key)
    while True:
        seen = dict.fromkeys(tuple(labels.get(key) for key in used) for labels in offers)
        if len(seen) <= _MOST_CELLS:
            break
        left_out.append(used.pop())
    number = {values: i for i, values in enumerate(seen)}

    def of(labels: dict[str, str]) -> int:
        return number.get(tuple(labels.get(key) for key in used), FREE)

    return Cells(
        tuple(used),
        [{key: value for key, value in zip(used, values, strict=True) if value is not None} for values in number],
        np.array([of(labels) for labels in offers], dtype=np.int64),
        np.array([of(labels) for labels in nodes], dtype=np.int64),
        tuple(left_out),
    )


def rank_of(pod: PodClass, ctx: Context) -> int:
    """When a pod of the class is placed: those with constraints over host names first, then over other keys, then those
    with affinity, with anti-affinity, and the others last."""
    try:
        keys = {each.row.key for each in hard_constraints(pod, ctx)}
    except SelectorError:
        keys = set()
    if keys:
        return 0 if HOSTNAME in keys else 1
    if pod.affinity:
        return 2
    return 3 if pod.anti_affinity else 4


def assign(
    snapshot: Snapshot,
    classes: Sequence[PodClass],
    exemplars: Sequence[Pod],
    class_of: NDArray[np.int64],
    cells: Cells,
    may: NDArray[np.bool_],
    load: NDArray[np.float64],
) -> NDArray[np.int64]:
    """int64[n]: the cell of each pod, in the order given; :data:`FREE` where no offer holds it at all.

    ``class_of`` int64[n]; ``may`` bool[C, cells]: where some offer holds a pod of the class; ``load`` float64[C, R]:
    what a pod is of all that is asked of each resource.

    A pod goes where its rules let it and there is least of what it asks for, so that all cells come to have the same
    mixture: pods that ask for different things fill nodes best. One that its rules let go nowhere goes by that alone:
    whether it is so is for the exact check to say.
    """
    giants = [NodeTemplate(node=_giant(i, labels)) for i, labels in enumerate(cells.labels)]
    disabled = frozenset(plugin.name for plugin in PROFILE) - set(_JUDGED)
    stand_ins = [_only(pod, cells.keys, c) for c, pod in enumerate(exemplars)]
    world = fork(snapshot, stand_ins, templates=giants, profile=SchedulerProfile(disabled_filters=disabled))
    nodes = [world.add(i) for i in range(len(giants))]
    number = [world.pod(pod.key) for pod in stand_ins]
    labels = [(pod.namespace, tuple(sorted((pod.labels or {}).items()))) for pod in classes]
    apart = np.array([bool(pod.anti_affinity or pod.spread) for pod in classes])
    alike: dict[object, NDArray[np.int64]] = {}
    total = np.zeros((len(cells), load.shape[1]))
    found = np.full(len(class_of), FREE, dtype=np.int64)
    for i, c in enumerate(class_of.tolist()):
        like = alike.setdefault(labels[c], np.zeros(len(cells), dtype=np.int64))
        most = total @ load[c]
        order = np.lexsort((most, like)) if apart[c] else np.argsort(most, kind="stable")
        for cell in order.tolist():
            if may[c, cell] and world.schedule(number[c], nodes[cell]):
                found[i] = cell
                total[cell] += load[c]
                if apart[c]:
                    like[cell] += 1
                break
        else:
            there = np.flatnonzero(may[c])
            if there.size:
                found[i] = there[np.argmin(most[there])]
                total[found[i]] += load[c]
    return found


def _giant(number: int, labels: dict[str, str]) -> Node:
    name = f"kscale-cell-{number}"
    room = {resource: Quantity(amount) for resource, amount in _ROOM.items()}
    return Node(
        metadata=ObjectMeta(name=name, labels={**labels, HOSTNAME: name}),
        status=NodeStatus(capacity=room, allocatable=room),
    )


def _only(pod: Pod, keys: Sequence[str], number: int) -> Pod:
    """The pod with only those rules that count by some of the keys, under a name of its own."""
    replace = msgspec.structs.replace
    spec = pod.spec
    spread = spec.topology_spread_constraints
    if spread is not None:
        spread = [each for each in spread if each.topology_key in keys]
    affinity = spec.affinity
    if affinity is not None:
        affinity = replace(
            affinity,
            pod_affinity=_terms(affinity.pod_affinity, keys),
            pod_anti_affinity=_terms(affinity.pod_anti_affinity, keys),
        )
    return replace(
        pod,
        metadata=replace(pod.metadata, name=f"kscale-{number}-{pod.metadata.name}", uid=f"kscale-{number}"),
        spec=replace(spec, node_name="", affinity=affinity, topology_spread_constraints=spread),
    )


def _terms(affinity: PodAffinity | None, keys: Sequence[str]) -> PodAffinity | None:
    if affinity is None:
        return None
    kept = [term for term in affinity.required if term.topology_key in keys]
    return msgspec.structs.replace(affinity, required=kept, preferred=[])
