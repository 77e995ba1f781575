"""Nodes with what is packed on them, as pictures (:class:`kscale.views.Packing`)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kscale.objects.base import ResourceList
from kscale.objects.core import Pod
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.owners import controller_of
from kscale.objects.quantity import Quantity
from kscale.objects.requests import CPU, MEMORY, demand, is_extended, occupancy
from kscale.snapshot.snapshot import Snapshot
from kscale.views import DrawnNode, DrawnPod, Packing, Tone

__all__ = ["Mark", "NewNode", "draw_new_nodes", "draw_nodes"]

_MOST = 120
"""So many pictures are drawn; nodes that are alike share one."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What is said of a node, and how it looks."""

    note: str = ""
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class NewNode:
    """A node that there is not yet: what it is, and the names of pods that it would hold beside its own."""

    name: str
    note: str
    template: NodeTemplate
    pods: Sequence[str]


def draw_nodes(title: str, snapshot: Snapshot, marks: Mapping[str, Mark] | None = None) -> Packing:
    """The nodes of a snapshot that have a mark (None: all, without one), in the order of the marks, with the pods that
    are placed on them."""
    marks = dict.fromkeys(snapshot.nodes, Mark()) if marks is None else marks
    order = np.argsort(snapshot.placed_node, kind="stable")
    ends = np.searchsorted(snapshot.placed_node[order], np.arange(len(snapshot.nodes) + 1))
    alike: dict[Hashable, list[str]] = {}
    rows: dict[str, list[int]] = {}
    for name, mark in marks.items():
        n = snapshot.columns.index[name]
        rows[name] = order[ends[n] : ends[n + 1]].tolist()
        room = _room(snapshot.columns.objects[n].status.allocatable or {})
        classes = np.sort(snapshot.placed_class[rows[name]]).tobytes()
        alike.setdefault((mark, tuple(room.items()), classes), []).append(name)
    drawn = []
    for names in list(alike.values())[:_MOST]:
        n = snapshot.columns.index[names[0]]
        pods = [snapshot.pod(snapshot.pods[row]) for row in rows[names[0]]]
        allocatable = snapshot.columns.objects[n].status.allocatable or {}
        drawn.append(_drawn(names, marks[names[0]], allocatable, [(pod, occupancy(pod)) for pod in pods]))
    return Packing(title, drawn, sum(map(len, list(alike.values())[_MOST:])))


def draw_new_nodes(title: str, snapshot: Snapshot, nodes: Iterable[NewNode]) -> Packing:
    """Nodes that would be made, with pending pods of a snapshot."""
    alike: dict[Hashable, list[NewNode]] = {}
    for node in nodes:
        classes = sorted(each.index for each in snapshot.classify(snapshot.records(node.pods)))
        alike.setdefault((node.note, id(node.template), tuple(classes)), []).append(node)
    drawn = []
    for same in list(alike.values())[:_MOST]:
        first = same[0]
        pods = [*first.template.pods, *(record.pod for record in snapshot.records(first.pods))]
        allocatable = first.template.node.status.allocatable or {}
        names = [node.name for node in same]
        drawn.append(_drawn(names, Mark(first.note), allocatable, [(pod, demand(pod)) for pod in pods]))
    return Packing(title, drawn, sum(map(len, list(alike.values())[_MOST:])))


def _drawn(
    names: Sequence[str], mark: Mark, allocatable: ResourceList, pods: Iterable[tuple[Pod, ResourceList]]
) -> DrawnNode:
    room = _room(allocatable)
    return DrawnNode(
        names=names,
        note=mark.note,
        room=room,
        shown={name: _written(name, allocatable[name]) for name in room},
        pods=[
            DrawnPod(pod.key, _kind(pod), {name: _amount(name, amounts[name]) for name in room if name in amounts})
            for pod, amounts in pods
        ],
        tone=mark.tone,
    )


def _room(allocatable: ResourceList) -> dict[str, float]:
    drawn = [CPU, MEMORY, *(name for name in allocatable if is_extended(name))]
    return {name: amount for name in drawn if name in allocatable and (amount := _amount(name, allocatable[name])) > 0}


def _amount(name: str, quantity: Quantity) -> float:
    return quantity.milli_value() / 1000 if name == CPU else float(quantity.value())


def _written(name: str, quantity: Quantity) -> str:
    amount = _amount(name, quantity)
    return f"{amount / 2**30:.1f} GiB" if name == MEMORY else f"{amount:g}"


def _kind(pod: Pod) -> str:
    owner = controller_of(pod.metadata)
    return pod.key if owner is None else f"{pod.metadata.namespace}/{owner.kind}/{owner.name}"
