"""The binpacking estimator: first-fit decreasing onto copies of a template (``estimator/binpacking_estimator.go``).

What is decided per group of like pods is decided here; the packing itself is the engine's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscale.ca.estimator.fast_path import best_fast_path
from kscale.ca.estimator.limiter import node_limit
from kscale.ca.estimator.options import EstimateOptions
from kscale.ca.estimator.result import EstimateResult
from kscale.errors import InputError
from kscale.objects.core import Node
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.quantity import Quantity
from kscale.objects.requests import CPU, MEMORY
from kscale.scheduling.pods import PodsLike, equivalence_groups, pods_of, shapes_of
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.session import Session
from kscale.snapshot.interner import PodClass
from kscale.snapshot.record import PodRecord, pod_record
from kscale.snapshot.snapshot import Snapshot

__all__ = ["GroupedPods", "decreasing", "estimate", "estimate_groups", "estimate_many", "group_pods", "template_of"]

TemplateLike = Node | NodeTemplate | NodeGroup | dict[str, Any]

_COPY = re.compile(r"(.*)-e-(0|[1-9][0-9]{0,8})", re.DOTALL)


def template_of(template: TemplateLike) -> NodeTemplate:
    """A template from a node, a template, a group with a template, or API data of a node. Raises InputError."""
    if isinstance(template, NodeTemplate):
        return template
    if isinstance(template, NodeGroup):
        if template.template is None:
            raise InputError(f"node group {template.id!r} has no template")
        return template.template
    if isinstance(template, dict):
        if "node" in template:
            return from_dict(template, NodeTemplate)
        template = from_dict(template, Node)
    return NodeTemplate(node=template)


_LONG_GROUPS = 200  # pods of a group from which on copying group by group is faster


class GroupedPods:
    """Pods of an estimate, grouped: what does not depend on the template."""

    def __init__(self, snapshot: Snapshot, records: Sequence[PodRecord], groups: Sequence[int] | None) -> None:
        self.records = records
        self.classes: list[PodClass] = snapshot.classify(records)
        if groups is None:
            self.members, self.starts = equivalence_groups(*shapes_of(records))
        else:
            self.members = np.arange(len(records), dtype=np.int32)
            self.starts = np.array(groups, dtype=np.int32)
        self.unique: dict[int, PodClass] = {pod.index: pod for pod in self.classes}
        numbers = {index: i for i, index in enumerate(self.unique)}
        of_pod = np.fromiter((numbers[pod.index] for pod in self.classes), np.int32, len(records))
        self.class_of = of_pod[self.members]
        """int32[n]: position in ``unique``, group after group."""
        self.asked = np.zeros((len(self.starts) - 1, 2))
        """float64[groups, 2]: cpu and memory of a group's first pod; an empty group asks for nothing."""
        taken = [(pod.occupancy.get(CPU, 0), pod.occupancy.get(MEMORY, 0)) for pod in self.unique.values()]
        some = np.flatnonzero(np.diff(self.starts) > 0)
        if len(some):
            self.asked[some] = np.array(taken, dtype=np.float64)[self.class_of[self.starts[some]]]

    def restricted(self, groups: Sequence[int]) -> GroupedPods:
        """The same pods, some of the groups, in the order given."""
        if list(groups) == list(range(len(self.starts) - 1)):
            return self
        part = copy(self)
        spans = [slice(self.starts[g], self.starts[g + 1]) for g in groups]
        empty = np.zeros(0, np.int32)
        part.members = np.concatenate([empty, *(self.members[span] for span in spans)])
        part.class_of = np.concatenate([empty, *(self.class_of[span] for span in spans)])
        part.asked = self.asked[list(groups)]
        part.starts = np.cumsum([0, *(span.stop - span.start for span in spans)]).astype(np.int32)
        return part

    def exemplar(self, group: int) -> PodClass | None:
        """The class of a group's first pod; None for an empty group."""
        start = self.starts[group]
        return None if start == self.starts[group + 1] else self.classes[self.members[start]]


def group_pods(snapshot: Snapshot, pods: PodsLike) -> GroupedPods:
    """The pods of a call in equivalence groups; the pending ones are grouped once for a snapshot."""
    if pods is not None:
        return GroupedPods(snapshot, pods_of(snapshot, pods), None)
    found: GroupedPods | None = snapshot.cache.get("pending groups")
    if found is None:
        found = snapshot.cache["pending groups"] = GroupedPods(snapshot, snapshot.pending_records, None)
    return found


def decreasing(asked: NDArray[np.float64], template: NodeTemplate) -> list[int]:
    """Groups by falling score; equal ones keep their order. ``asked``: float64[groups, 2], cpu and memory.

    The score is upstream's: requests relative to allocatable; other resources do not count. Upstream takes the requests
    with the pod's status here, and as they read: a huge one wraps to a negative number.
    """
    allocatable = template.node.status.allocatable or {}
    zero = Quantity("0")
    amounts = allocatable.get(CPU, zero).milli_value(), allocatable.get(MEMORY, zero).value()
    score = np.zeros(len(asked))
    for column, amount in enumerate(amounts):
        if amount > 0:
            score += asked[:, column] / float(amount)
    order: list[int] = np.argsort(-score, kind="stable").tolist()
    return order


def _clash(snapshot: Snapshot, template: NodeTemplate) -> int:
    """The first copy whose name some node has already, or -1."""
    taken = snapshot.cache.get("copies")
    if taken is None:
        taken = {}
        for name in snapshot.nodes:
            match = _COPY.fullmatch(name)
            if match:
                number = int(match[2])
                taken[match[1]] = min(number, taken.get(match[1], number))
        snapshot.cache["copies"] = taken
    found: int = taken.get(template.node.metadata.name, -1)
    return found


def estimate(
    snapshot: Snapshot,
    pods: PodsLike = None,
    *,
    template: TemplateLike,
    options: EstimateOptions | None = None,
    cursor: int = 0,
    profile: SchedulerProfile | None = None,
    groups: Sequence[Sequence[Any]] | None = None,
) -> EstimateResult:
    """How many copies of ``template`` make the pods fit, and where each would go.

    ``pods``: None = the pending pods of the snapshot; names; or objects. ``groups``: lists of pods taken as the
    equivalence groups as they are, instead of ``pods``. ``cursor``: where the scan over nodes stands; upstream never
    resets it. Nodes that exist are only used by the retry for hostname spread constraints, as upstream does: place the
    pods that fit them first (:func:`kscale.place`).
    """
    return estimate_many(
        snapshot, pods, templates=[template], options=[options], cursor=cursor, profile=profile, groups=groups
    )[0]


def estimate_many(
    snapshot: Snapshot,
    pods: PodsLike = None,
    *,
    templates: Sequence[TemplateLike],
    options: Sequence[EstimateOptions | None] | None = None,
    cursor: int = 0,
    profile: SchedulerProfile | None = None,
    groups: Sequence[Sequence[Any]] | None = None,
    fresh_cursor: bool = False,
) -> list[EstimateResult]:
    """:func:`estimate` for one template after the other, on the same snapshot; the cursor goes from one to the next
    (``fresh_cursor``: every template starts from ``cursor``)."""
    prepared = [template_of(template) for template in templates]
    if groups is not None:
        members = [[pod_record(pod) for pod in group] for group in groups]
        starts = np.cumsum([0, *map(len, members)]).tolist()
        grouped = GroupedPods(snapshot, [pod for group in members for pod in group], starts)
    else:
        grouped = group_pods(snapshot, pods)
    session = Session(snapshot, grouped.unique.values(), prepared, profile)
    session.engine.cursor = cursor
    results = []
    for i, template in enumerate(prepared):
        if fresh_cursor:
            session.engine.cursor = cursor
        chosen = (options[i] if options is not None else None) or EstimateOptions()
        results.append(estimate_groups(snapshot, grouped, template, i, chosen, session))
    return results


def estimate_groups(
    snapshot: Snapshot,
    pods: GroupedPods,
    template: NodeTemplate,
    number: int,
    options: EstimateOptions,
    session: Session,
) -> EstimateResult:
    """One estimate on a session that holds the pods' classes; ``number``: the template's there."""
    limit = node_limit(options)
    order = decreasing(pods.asked, template)
    packed = list(order)
    fast = -1
    if options.fast_path:
        sizes = np.diff(pods.starts)
        fast = best_fast_path([(pods.exemplar(g), int(sizes[g])) for g in order], template)
        if fast >= 0:
            packed.append(packed.pop(fast))
    class_of, pod_of, starts = _reorder(pods, packed)
    placement, placed, added, with_pods, status, stopped = session.engine.estimate(
        class_of,
        starts,
        session.templates[number],
        max_nodes=limit,
        fast_last=fast >= 0,
        clash=_clash(snapshot, template),
    )
    return EstimateResult(
        snapshot=snapshot,
        session=session,
        template=template,
        number=number,
        options=options,
        records=pods.records,
        pod_of=pod_of,
        class_of=class_of,
        placement=placement,
        order=placed,
        group_members=pods.members,
        group_starts=pods.starts,
        group_order=np.array(order, dtype=np.int32),
        node_count=with_pods,
        nodes_added=added,
        cursor=session.engine.cursor,
        failed=status == 1,
        stopped=stopped >= 0,
    )


def _reorder(pods: GroupedPods, order: list[int]) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """(class and number of each pod, group starts) of the groups in another order."""
    if order == list(range(len(order))):
        return pods.class_of, pods.members, pods.starts
    sizes = np.diff(pods.starts)[order]
    starts = np.append(0, np.cumsum(sizes)).astype(np.int32)
    if _LONG_GROUPS * len(order) < len(pods.members):
        spans = [slice(*pods.starts[group : group + 2].tolist()) for group in order]
        return (
            np.concatenate([pods.class_of[span] for span in spans]),
            np.concatenate([pods.members[span] for span in spans]),
            starts,
        )
    begins = pods.starts[:-1][order]
    positions = np.repeat(begins - starts[:-1], sizes) + np.arange(len(pods.members), dtype=np.int32)
    return pods.class_of[positions], pods.members[positions], starts
