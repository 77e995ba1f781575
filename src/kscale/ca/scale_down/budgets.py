"""Deletion budgets: how many of the chosen nodes may be deleted now (upstream: ``core/scaledown/budgets``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.candidates import count_registered_nodes
from kscale.objects.api.core import Node
from kscale.objects.argument_types import typed
from kscale.objects.nodegroup import Groups, ProviderError, is_not_implemented

__all__ = [
    "BudgetGroup",
    "CroppedNodes",
    "DeletionsInProgress",
    "GroupNodes",
    "NodeInGroup",
    "assign_groups",
    "build_budget_groups",
    "crop_nodes",
]


class NodeInGroup(msgspec.Struct, kw_only=True, frozen=True):
    """A node chosen for deletion and the id of its group ("" = it belongs to none)."""

    node: str
    group: str


class BudgetGroup(msgspec.Struct, kw_only=True, frozen=True):
    """Inputs of the budgets for a group with this ``id``.

    ``registered`` is the number of its nodes in the snapshot
    (:func:`kscale.ca.scale_down.candidates.filter_registered_nodes`); only atomic groups need it and ``target``. An
    error text in ``options_error`` drops the group's nodes (``not implemented`` makes it an ordinary group), one in
    ``target_error`` skips an atomic group.
    """

    id: str
    atomic: bool = False
    target: int = 0
    registered: int = 0
    target_error: str | None = None
    options_error: str | None = None


class DeletionsInProgress(msgspec.Struct, kw_only=True, frozen=True):
    """Numbers of nodes whose deletion is in progress.

    ``empty``: those without pods to move; ``drained``: those that are drained. Both reduce the number of deletions,
    ``drained`` also the number of drains.
    """

    empty: int = 0
    drained: int = 0


class GroupNodes(msgspec.Struct, kw_only=True, rename="camel"):
    """Nodes of one group to delete; ``batch_size``: number of nodes to delete together; 0 means all of them."""

    group: str
    nodes: list[str]
    batch_size: int = 0


class CroppedNodes(msgspec.Struct, kw_only=True, frozen=True):
    """Nodes that may be deleted now, per group, atomic groups first: ``empty`` nodes without pods to move, and nodes to
    ``drain``.
    """

    empty: list[GroupNodes]
    drain: list[GroupNodes]


_NodesByGroup = dict[str, list[str]]


class _BudgetCropper:
    """The two remaining budgets and what they let through."""

    def __init__(self, groups: Mapping[str, BudgetGroup], nodes: int, drains: int) -> None:
        self.groups = groups
        self.nodes = nodes
        self.drains = drains
        self.may_overflow = True
        self.out = CroppedNodes(empty=[], drain=[])

    def take_atomic(self, group_id: str, empty: list[str], drain: list[str]) -> None:
        """Take all nodes of an atomic group, or none if only some of them were chosen."""
        group = self.groups[group_id]
        if group.target_error is not None:
            return
        chosen = len(empty) + len(drain)
        if chosen not in (group.target, group.registered):
            return
        batch = group.target
        # Upstream looks at the first bucket alone here: a group that is partly empty keeps the target as its batch
        # even when fewer nodes than that are registered.
        if len(empty or drain) == group.registered:
            batch = group.registered
        if empty:
            self.out.empty.append(GroupNodes(group=group_id, nodes=empty, batch_size=batch))
        if drain:
            self.out.drain.append(GroupNodes(group=group_id, nodes=drain, batch_size=batch))
        self.nodes -= chosen
        self.drains -= len(drain)
        self.may_overflow = False

    def take_empty_atomic(self, empty: _NodesByGroup, drain: _NodesByGroup) -> None:
        for group_id, nodes in empty.items():
            drained = drain.get(group_id, [])
            if self.nodes < len(nodes) + len(drained) or self.drains < len(drained):
                # The budgets may be negative after an overflow; only an exact zero stops the next atomic group.
                exhausted = self.nodes == 0 or (bool(drained) and self.drains == 0)
                if exhausted or not self.may_overflow:
                    return
            self.take_atomic(group_id, nodes, drained)

    def take_drain_atomic(self, empty: _NodesByGroup, drain: _NodesByGroup) -> None:
        self.drains = min(self.nodes, self.drains)
        for group_id, nodes in drain.items():
            if group_id in empty:
                continue
            if self.drains < len(nodes) and (self.drains == 0 or not self.may_overflow):
                return
            self.take_atomic(group_id, [], nodes)

    def take_individual(self, empty: _NodesByGroup, drain: _NodesByGroup) -> None:
        taken = _take_nodes(empty, self.nodes, self.out.empty)
        self.nodes -= taken
        _take_nodes(drain, min(self.nodes, self.drains), self.out.drain)


def _take_nodes(buckets: _NodesByGroup, budget: int, out: list[GroupNodes]) -> int:
    left = budget
    for group_id, nodes in buckets.items():
        if left < 1:
            break
        out.append(GroupNodes(group=group_id, nodes=nodes[:left]))
        left -= len(out[-1].nodes)
    return budget - left


def _split_by_atomicity(
    nodes: Sequence[NodeInGroup], groups: Mapping[str, BudgetGroup]
) -> tuple[_NodesByGroup, _NodesByGroup]:
    """Split the nodes by group into atomic and individual ones, in order of first appearance.

    Nodes without group, or of a group whose options cannot be read, are dropped.
    """
    atomic: _NodesByGroup = {}
    individual: _NodesByGroup = {}
    for item in nodes:
        group = groups.get(item.group)
        if group is None or not (group.options_error is None or is_not_implemented(group.options_error)):
            continue
        is_atomic = group.atomic and group.options_error is None
        (atomic if is_atomic else individual).setdefault(item.group, []).append(item.node)
    return atomic, individual


def assign_groups(names: Iterable[str], groups: Groups) -> list[NodeInGroup]:
    """Return the nodes with the ids of their groups; empty without group or if the group is unknown."""
    names = [*names]
    group_of = groups.ids_of_nodes(names)
    return [NodeInGroup(node=name, group=group or "") for name, group in zip(names, group_of, strict=True)]


def build_budget_groups(
    groups: Groups, options: AutoscalingOptions, snapshot_nodes: Iterable[Node]
) -> list[BudgetGroup]:
    """Build the inputs of :func:`crop_nodes` for every group."""
    nodes = list(snapshot_nodes)
    budget_groups = []
    for group in groups:
        error = None
        atomic = False
        try:
            atomic = group.options_or(options.node_group_defaults).zero_or_max_node_scaling
        except ProviderError as failure:
            error = failure.message
        budget_groups.append(
            BudgetGroup(
                id=group.id,
                atomic=atomic,
                target=group.size,
                registered=count_registered_nodes(nodes, group) if atomic else 0,
                target_error=group.target_size_error,
                options_error=error,
            )
        )
    return budget_groups


@typed
def crop_nodes(
    empty: Sequence[NodeInGroup],
    drain: Sequence[NodeInGroup],
    groups: Sequence[BudgetGroup],
    *,
    in_progress: DeletionsInProgress | None = None,
    max_scale_down_parallelism: int = 10,
    max_drain_parallelism: int = 1,
) -> CroppedNodes:
    """Select as many of the nodes chosen for deletion as the budgets allow.

    Atomic groups come first and are deleted completely or not at all. The first of them may exceed the budget, unless
    the budget is exactly 0. From other groups as many nodes as fit are taken, empty nodes before nodes to drain.

    Parameters
    ----------
    empty : sequence of NodeInGroup
        Empty nodes chosen for deletion.
    drain : sequence of NodeInGroup
        Nodes with pods chosen for deletion.
    groups : sequence of BudgetGroup
        Their groups (:func:`build_budget_groups`).
    in_progress : DeletionsInProgress, optional
        Deletions in progress, which reduce both budgets.
    max_scale_down_parallelism : int
        Maximum number of nodes deleted at a time.
    max_drain_parallelism : int
        Maximum number of these nodes that are drained at a time.

    Returns
    -------
    CroppedNodes
        The nodes to delete now.
    """
    in_progress = in_progress or DeletionsInProgress()
    by_id = {group.id: group for group in groups}
    empty_atomic, empty_individual = _split_by_atomicity(empty, by_id)
    drain_atomic, drain_individual = _split_by_atomicity(drain, by_id)
    budget = _BudgetCropper(
        by_id,
        nodes=max_scale_down_parallelism - in_progress.empty - in_progress.drained,
        drains=max_drain_parallelism - in_progress.drained,
    )
    budget.take_empty_atomic(empty_atomic, drain_atomic)
    budget.take_drain_atomic(empty_atomic, drain_atomic)
    budget.take_individual(empty_individual, drain_individual)
    return budget.out
