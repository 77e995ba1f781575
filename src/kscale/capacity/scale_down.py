"""``kscale scale-down``: what scale-down would do, node by node, and drawings of packed nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import ClassVar

import msgspec
import numpy as np

from kscale.ca import unremovable_reasons
from kscale.ca.capacity_buffers import place_buffer_pods
from kscale.ca.entry_points import scale_down
from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.group_inputs import restore_targets
from kscale.ca.loop_state import LoopState
from kscale.ca.options import AutoscalingOptions, default_options
from kscale.ca.scale_down import drainability
from kscale.ca.scale_down.candidates import NodeInGroup, assign_groups
from kscale.ca.scale_down.drainability import DrainContext, Listers
from kscale.ca.scale_down.inputs import ScaleDownInputs
from kscale.ca.scale_down.moving_pods import get_moving_pods
from kscale.ca.scale_down.plan import ScaleDownPlan, explain_no_place, explain_unremovable
from kscale.ca.scale_down.removal import RemovableNode
from kscale.effects import Moment, moment, to_text
from kscale.errors import InputError
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import ResourceList
from kscale.objects.nodegroup import Groups, NodeGroup, NodeTemplate
from kscale.objects.pod_owners import controller_of
from kscale.objects.pod_resources import CPU, MEMORY, demand, is_extended, occupancy
from kscale.objects.quantity import Quantity
from kscale.records import Record
from kscale.snapshot.snapshot import Snapshot
from kscale.views import DrawnNode, DrawnPod, Packing, Tone

__all__ = ["Mark", "NewNode", "ScaleDownNode", "ScaleDownReport", "draw_new_nodes", "draw_nodes", "report_scale_down"]


_MOST = 120
"""So many pictures are drawn; nodes that are alike share one."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Text and appearance of a drawn node."""

    note: str = ""
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class NewNode:
    """A node to be created: its template, and the names of pods that it would hold besides the template's."""

    name: str
    note: str
    template: NodeTemplate
    pods: Sequence[str]


def draw_nodes(title: str, snapshot: Snapshot, marks: Mapping[str, Mark] | None = None) -> Packing:
    """Return a picture of nodes of a snapshot with the pods placed on them.

    ``marks``: the nodes to draw, in this order, each with its note and colour; None: all nodes, without marks.
    Equivalent nodes are drawn once. After 120 pictures, further nodes are only counted.
    """
    marks = dict.fromkeys(snapshot.nodes, Mark()) if marks is None else marks
    order = np.argsort(snapshot.placed_node, kind="stable")
    ends = np.searchsorted(snapshot.placed_node[order], np.arange(len(snapshot.nodes) + 1))
    equivalent: dict[Hashable, list[str]] = {}
    rows: dict[str, list[int]] = {}
    for name, mark in marks.items():
        n = snapshot.columns.index[name]
        rows[name] = order[ends[n] : ends[n + 1]].tolist()
        room = _room(snapshot.columns.objects[n].status.allocatable or {})
        classes = np.sort(snapshot.placed_class[rows[name]]).tobytes()
        equivalent.setdefault((mark, tuple(room.items()), classes), []).append(name)
    drawn = []
    for names in list(equivalent.values())[:_MOST]:
        n = snapshot.columns.index[names[0]]
        pods = [snapshot.pod(snapshot.pods[row]) for row in rows[names[0]]]
        allocatable = snapshot.columns.objects[n].status.allocatable or {}
        drawn.append(_drawn(names, marks[names[0]], allocatable, [(pod, occupancy(pod)) for pod in pods]))
    return Packing(title, drawn, sum(map(len, list(equivalent.values())[_MOST:])))


def draw_new_nodes(title: str, snapshot: Snapshot, nodes: Iterable[NewNode]) -> Packing:
    """Return a picture of nodes that would be created, with the pods on them.

    ``snapshot`` has the pending pods that ``nodes`` name. Equivalent nodes are drawn once. After 120 pictures, further
    nodes are only counted.
    """
    equivalent: dict[Hashable, list[NewNode]] = {}
    for node in nodes:
        classes = sorted(pod_class.index for pod_class in snapshot.classify(snapshot.records(node.pods)))
        equivalent.setdefault((node.note, id(node.template), tuple(classes)), []).append(node)
    drawn = []
    for group in list(equivalent.values())[:_MOST]:
        first = group[0]
        pods = [*first.template.pods, *(record.pod for record in snapshot.records(first.pods))]
        allocatable = first.template.node.status.allocatable or {}
        names = [node.name for node in group]
        drawn.append(_drawn(names, Mark(first.note), allocatable, [(pod, demand(pod)) for pod in pods]))
    return Packing(title, drawn, sum(map(len, list(equivalent.values())[_MOST:])))


def _drawn(
    names: Sequence[str], mark: Mark, allocatable: ResourceList, pods: Iterable[tuple[Pod, ResourceList]]
) -> DrawnNode:
    """Build the picture of equivalent nodes. ``names``: of these nodes.

    ``pods``: (pod, its requests) on each of them.
    """
    room = _room(allocatable)
    return DrawnNode(
        names=names,
        note=mark.note,
        room=room,
        shown={name: _format_amount(name, allocatable[name]) for name in room},
        pods=[
            DrawnPod(pod.key, _kind(pod), {name: _amount(name, amounts[name]) for name in room if name in amounts})
            for pod, amounts in pods
        ],
        tone=mark.tone,
    )


def _room(allocatable: ResourceList) -> dict[str, float]:
    """Return the allocatable amounts to draw: cpu (cores), memory (bytes) and extended resources, if more than 0."""
    drawn = [CPU, MEMORY, *(name for name in allocatable if is_extended(name))]
    return {name: amount for name in drawn if name in allocatable and (amount := _amount(name, allocatable[name])) > 0}


def _amount(name: str, quantity: Quantity) -> float:
    """Return an amount of resource ``name`` as a number: cores of cpu, bytes of memory, else units."""
    return quantity.milli_value() / 1000 if name == CPU else float(quantity.value())


def _format_amount(name: str, quantity: Quantity) -> str:
    """Format an amount for the drawing: memory in GiB with one decimal, cpu in cores, else units."""
    amount = _amount(name, quantity)
    return f"{amount / 2**30:.1f} GiB" if name == MEMORY else f"{amount:g}"


def _kind(pod: Pod) -> str:
    """Return ``namespace/Kind/name`` of the pod's controller; without one, ``namespace/name`` of the pod."""
    owner = controller_of(pod.metadata)
    return pod.key if owner is None else f"{pod.metadata.namespace}/{owner.kind}/{owner.name}"


class ScaleDownNode(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Decision of scale-down on one node.

    Attributes
    ----------
    node : str
        Name of the node.
    group : str or None
        Id of its node group. None: none.
    decision : str
        ``delete empty``, ``drain``, ``unneeded`` (may be removed later) or ``stays``.
    utilization : float or None
        Requests of its pods divided by allocatable, for ``resource``. None: the node was not checked that far, or the
        value is not a number.
    resource : str or None
        The resource that decides ``utilization``. None: the node was not checked that far.
    reason : str or None
        Upstream's reason why the node stays. None: it does not, or is only waiting.
    blocking_pod : str or None
        The pod that keeps the node, as ``namespace/name``. None: none.
    why : str
        Explanation of the decision. Empty: the node is deleted or drained now.
    unneeded_since : str or None
        Since when the node is unneeded (RFC 3339). None: it is not.
    alone : bool or None
        Whether the node could be removed if no other was. None: not an exhaustive report, or not simulated.
    pods : dict of str to str
        Target node of each pod to move, by the pod as ``namespace/name``.
    """

    node: str
    group: str | None
    decision: str
    utilization: float | None = None
    resource: str | None = None
    reason: str | None = None
    blocking_pod: str | None = None
    why: str = ""
    unneeded_since: str | None = None
    alone: bool | None = None
    pods: dict[str, str] = {}


class ScaleDownReport(Record, frozen=True):
    """Nodes that one loop of scale-down would remove, the targets of their pods, and why the other nodes stay.

    Attributes
    ----------
    result : str
        Upstream's result of the loop.
    exhaustive : bool
        Whether every node was also simulated alone.
    empty : int
        Number of empty nodes to delete now.
    drained : int
        Number of nodes to drain and delete now.
    moved_pods : int
        Number of pods of drained nodes that move to another node.
    removable : int
        Number of nodes that the simulation found unneeded.
    saves : dict of str to int
        Number of nodes to delete now, by node group.
    nodes : list of ScaleDownNode
        Decision on each node.
    orphans : int
        Number of pods on nodes whose controller is not in the input. They prevent the removal of their nodes.
    """

    KIND: ClassVar[str] = "ScaleDownReport"
    ROWS: ClassVar[str] = "nodes"

    result: str
    exhaustive: bool
    empty: int
    drained: int
    moved_pods: int
    removable: int
    saves: dict[str, int]
    nodes: list[ScaleDownNode]
    orphans: int = 0

    def summary(self) -> str:
        """Return a line: the result, the numbers of empty and of drained nodes to delete now, and of unneeded nodes."""
        return (
            f"{self.result}, {self.empty:,} empty and {self.drained:,} drained of {len(self.nodes):,} nodes, "
            f"{self.removable:,} unneeded"
        )


def report_scale_down(
    snapshot: Snapshot,
    node_groups: Iterable[NodeGroup],
    *,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    state: LoopState | None = None,
    exhaustive: bool = False,
    deleting: Iterable[str] = (),
    draining: Iterable[str] = (),
    max_simulations: int | None = None,
    threads: int | None = None,
    gpu_label: str = DEFAULT_GPU_LABEL,
) -> tuple[ScaleDownReport, LoopState]:
    """Simulate one loop of scale-down and report every node; return (report, state for the next loop).

    ``deleting``, ``draining``: names of nodes that are already being deleted, without or with pods. Other parameters
    and errors are those of :func:`kscale.scale_down`; also raises InputError for a name that is not a node, or that is
    in both.
    """
    options = options or default_options()
    observed = snapshot
    if options.capacity_buffer_pod_injection_enabled and not options.legacy:
        snapshot = place_buffer_pods(snapshot, now=moment(now), options=options)
    groups = Groups.of(restore_targets(node_groups, snapshot, state, moment(now)), snapshot.columns.objects)
    deleting, draining = list(deleting), list(draining)
    for name in draining:
        if name in deleting:
            raise InputError(f"node {name} is in both deleting and draining")
    plan = scale_down(
        snapshot,
        groups,
        now=now,
        options=options,
        state=state,
        exhaustive=exhaustive,
        inputs=ScaleDownInputs(
            deleting=_in_groups(deleting, groups, snapshot),
            draining=_in_groups(draining, groups, snapshot),
            max_simulations=max_simulations,
            threads=threads,
            gpu_label=gpu_label,
            pods_placed=not options.legacy,
        ),
    )
    drained = _final_moves(plan.drain, snapshot)
    deleted_now = {*drained, *plan.delete_empty}
    nodes = [_node(name, plan, deleted_now, drained, groups, options, snapshot) for name in snapshot.nodes]
    nodes = _add_refusal_reasons(nodes, plan, snapshot, options)
    going = [item for item in nodes if item.decision in ("delete empty", "drain")]
    report = ScaleDownReport(
        result=plan.result,
        exhaustive=exhaustive,
        empty=len(plan.delete_empty),
        drained=len(drained),
        moved_pods=sum(map(len, drained.values())),
        removable=len(plan.removable),
        saves=dict(Counter(item.group or "" for item in going)),
        nodes=nodes,
        orphans=_count_pods_without_controller(observed, now, options),
    )
    return report, plan.state


_REFUSALS = 20
"""Maximum number of nodes with the reasons of every other node: each one is compared with all nodes."""


def _add_refusal_reasons(
    nodes: list[ScaleDownNode], plan: ScaleDownPlan, snapshot: Snapshot, options: AutoscalingOptions
) -> list[ScaleDownNode]:
    """Return the nodes, where ``why`` of a node whose pods fit nowhere also says why each other node refuses the pods.

    Only the first :data:`_REFUSALS` such nodes get this text. With ``options.legacy`` no node does.
    """
    if options.legacy:
        return nodes
    remaining, result = _REFUSALS, []
    for item in nodes:
        failure = plan.failures.get(item.node)
        if (
            item.reason == unremovable_reasons.NO_PLACE_TO_MOVE_PODS
            and failure is not None
            and failure.homeless
            and remaining
        ):
            remaining -= 1
            explanation = explain_no_place(item.node, failure.homeless, snapshot, options)
            item = msgspec.structs.replace(item, why=f"{item.why}: {explanation}")
        result.append(item)
    return result


def _count_pods_without_controller(snapshot: Snapshot, now: datetime | Moment, options: AutoscalingOptions) -> int:
    """Return how many placed pods have a controller that is not in the input; 0 if the options ignore controllers."""
    if not options.skip_nodes_with_custom_controller_pods:
        return 0
    pods = get_moving_pods(snapshot)
    context = DrainContext(moment(now), options, Listers(snapshot.informers.workloads))
    verdicts = (drainability.check_replica_count(pod, context) for pod in pods.exemplars)
    lost = [
        kind
        for kind, status in enumerate(verdicts)
        if status.blocking_reason == unremovable_reasons.CONTROLLER_NOT_FOUND
    ]
    return int(np.isin(pods.kind_of, lost).sum())


def _final_moves(drained: dict[str, dict[str, str]], snapshot: Snapshot) -> dict[str, dict[str, str]]:
    """Return, for each drained node, the pods that it had in ``snapshot`` and their final target nodes.

    ``drained``: target node of each moved pod, by drained node, in order. A pod that is moved to a node which is
    drained later moves on with it.
    """
    moves_by_node: dict[str, dict[str, str]] = {}
    for node, placement in drained.items():
        node_index = snapshot.columns.index[node]
        moves = moves_by_node[node] = {}
        for (pod, target), current_index in zip(placement.items(), snapshot.nodes_of(list(placement)), strict=True):
            seen = {node}
            while pod in drained.get(target, ()) and target not in seen:
                seen.add(target)
                target = drained[target][pod]
            if current_index == node_index:
                moves[pod] = target
    return moves_by_node


def _in_groups(names: Iterable[str], groups: Groups, snapshot: Snapshot) -> list[NodeInGroup]:
    """Return the nodes ``names`` with the ids of their groups; the id is empty for a node without a known group.

    Raises InputError for a name that is no node of the snapshot.
    """
    names = list(names)
    for name in names:
        if name not in snapshot.columns.index:
            raise InputError(f"there is no node {name}")
    return assign_groups(names, groups)


def _node(
    name: str,
    plan: ScaleDownPlan,
    deleted_now: set[str],
    drained: dict[str, dict[str, str]],
    groups: Groups,
    options: AutoscalingOptions,
    snapshot: Snapshot,
) -> ScaleDownNode:
    """Build the report's row of one node.

    ``deleted_now``: nodes to delete now. ``drained``: new node of each pod, by drained node.
    """
    group = None if name in groups.node_errors else groups.find_group_of_node(name)
    judged = plan.eligibility.get(name)
    used = judged.utilization if judged else None
    removable = plan.removable.get(name)
    unremovable = plan.unremovable.get(name)
    since = plan.state.scale_down.unneeded_since.get(name)
    going = name in deleted_now
    if going:
        decision = "drain" if name in drained else "delete empty"
    else:
        decision = "stays" if removable is None else "unneeded"
    return ScaleDownNode(
        node=name,
        group=None if group is None else group.id,
        decision=decision,
        utilization=used.utilization if used is not None and isfinite(used.utilization) else None,
        resource=None if used is None else used.resource_name,
        reason=None if going or unremovable is None else unremovable.reason,
        blocking_pod=unremovable.blocking_pod.pod if unremovable and unremovable.blocking_pod else None,
        why="" if going else explain_unremovable(name, plan, groups, options, snapshot),
        unneeded_since=None if since is None else to_text(since),
        alone=isinstance(plan.alone[name], RemovableNode) if name in plan.alone else None,
        pods=drained.get(name, {} if removable is None else removable.placement),
    )
