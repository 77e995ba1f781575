"""Why a pod fits nowhere: every plug-in that says no, node by node, what is nearest, and which group would help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from kscale.capacity import answers
from kscale.capacity.records import Explanation, GroupAnswer, Nearest, NodeVerdict, Shortage
from kscale.objects.core import Node, Pod
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.quantity import Quantity
from kscale.scheduling.fit import fit as fit_pods
from kscale.scheduling.fit_error import fit_error
from kscale.scheduling.place import place
from kscale.snapshot.snapshot import Snapshot

__all__ = ["distance", "explain", "nearest"]

_NAMED = 5


def explain(snapshot: Snapshot, pod: str | Pod, groups: Iterable[NodeGroup] = ()) -> Explanation:
    """The explanation of one pod: ``namespace/name``, or an object that need not be in the snapshot.

    ``groups`` carry their template. Of a pod that waits for scheduling gates it says what would be without them.
    Raises ``InputError`` for a name that is not in the snapshot.
    """
    if isinstance(pod, str):
        pod = answers.find_pod(snapshot, pod)
    name = pod.key
    nodes: Sequence[Node] = snapshot.columns.objects
    placed = pod.spec.node_name or pod.status.nominated_node_name
    if placed:
        return _explanation(name, nodes, node=placed)
    fit = fit_pods(snapshot, pods=[pod])
    failure = answers.prefilter_failure(fit, name, nodes)
    fits_on: list[str] = []
    verdicts: list[NodeVerdict] = []
    for node in () if failure else nodes:
        found = answers.verdicts(fit, pod, name, node)
        if found:
            verdicts.append(NodeVerdict(node=node.name, first=found[0], also=found[1:]))
        else:
            fits_on.append(node.name)
    taken_by = _taken_by(snapshot, name, fits_on) if fits_on else []
    return _explanation(
        name,
        nodes,
        taken_by=taken_by,
        fits_on=fits_on,
        verdicts=verdicts,
        event="" if fits_on else fit_error(_counted(verdicts), len(nodes), failure),
        nearest=None if fits_on or failure else nearest(verdicts),
        groups=[] if fits_on and not taken_by else _group_answers(snapshot, pod, list(groups)),
        gates=[gate.name for gate in pod.spec.scheduling_gates],
        unmodelled=list(fit.unmodelled),
    )


def _counted(verdicts: Sequence[NodeVerdict]) -> Counter[str]:
    return Counter(reason for verdict in verdicts for reason in verdict.first.reasons)


def _taken_by(snapshot: Snapshot, name: str, fits_on: Sequence[str]) -> list[str]:
    """Where all pending pods are placed, the highest priority first, and this one finds nothing left: some of those
    that are on the nodes where it fits by itself."""
    if name not in snapshot.pending or len(snapshot.pending) == 1:
        return []
    placed = place(snapshot)
    if name in placed.placement:
        return []
    fitting = set(fits_on)
    return list(islice((pod for pod, node in placed.placement.items() if node in fitting), _NAMED))


def _explanation(name: str, nodes: Sequence[Any], **parts: Any) -> Explanation:
    blank: dict[str, Any] = {
        "node": None, "fits_on": [], "verdicts": [], "event": "", "nearest": None, "groups": [], "unmodelled": [],
        "gates": [], "taken_by": [],
    }  # fmt: skip
    parts = blank | parts
    return Explanation(pod=name, nodes=len(nodes), fits=bool(parts["node"] or parts["fits_on"]), **parts)


def distance(verdict: NodeVerdict) -> tuple[int, float]:
    """How far a node is from taking the pod: obstacles that are no shortage, then the largest relative shortage."""
    noes = [verdict.first, *verdict.also]
    short = [_ratio(shortage) for no in noes for shortage in no.shortages]
    return sum(not no.shortages for no in noes), max(short, default=0.0)


def nearest(verdicts: Sequence[NodeVerdict]) -> Nearest | None:
    """The node with the least :func:`distance`, the first of several in node order."""
    if not verdicts:
        return None
    best = min(verdicts, key=distance)
    noes = [best.first, *best.also]
    return Nearest(
        node=best.node,
        shortages=[shortage for no in noes for shortage in no.shortages],
        others=[no for no in noes if not no.shortages],
    )


def _ratio(shortage: Shortage) -> float:
    asked = Quantity(shortage.asked).approximate_float()
    return Quantity(shortage.short).approximate_float() / asked if asked > 0 else 0.0


def _group_answers(snapshot: Snapshot, pod: Pod, groups: Sequence[NodeGroup]) -> list[GroupAnswer]:
    results = answers.estimates(snapshot, [pod], groups)
    return [_group_answer(pod.key, group, result) for group, result in zip(groups, results, strict=True)]


def _group_answer(name: str, group: NodeGroup, result: answers.Estimated) -> GroupAnswer:
    allocatable = answers.template(group).node.status.allocatable or {}
    no = result.unscheduled.get(name)
    return GroupAnswer(
        group=group.id,
        fits=no is None,
        allocatable={resource: str(quantity) for resource, quantity in allocatable.items()},
        plugin=no.plugin if no else "",
        reasons=list(no.reasons) if no else [],
    )
