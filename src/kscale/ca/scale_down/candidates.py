"""Scale-down candidates: their order, atomic groups, which are removed as a whole or not at all, and deletion budgets,
which limit how many of the chosen nodes may be deleted now.

Upstream: ``processors/scaledowncandidates``, ``processors/nodes``, ``core/scaledown/budgets``, and the
``ScaleDownNodeUpgradeProcessor`` of ``cloudprovider/clusterapi`` (nodes of groups under rollout).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kscale.ca import unremovable_reasons
from kscale.ca.loop_state import GroupChanges
from kscale.ca.nodes import is_upcoming_node
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.moving_pods import CODE_BLOCKS, CODE_MOVES, CODE_MOVES_UNLESS_PDB, CODE_WAITS, MovingPods
from kscale.effects import Moment, duration
from kscale.objects.api.core import Node
from kscale.objects.argument_types import typed
from kscale.objects.nodegroup import Groups, NodeGroup, ProviderError, instance_id_of, is_not_implemented

__all__ = [
    "EMPTY_TIER",
    "NOT_EMPTY_TIER",
    "ON_COMPLETION_TIER",
    "AtomicFilterResult",
    "BudgetGroup",
    "CroppedNodes",
    "DeletionsInProgress",
    "GroupNodes",
    "NodeInGroup",
    "assign_groups",
    "build_budget_groups",
    "compute_emptiness_tiers",
    "count_registered_nodes",
    "crop_nodes",
    "filter_atomic_groups",
    "filter_out_delayed",
    "filter_out_rolling_out",
    "filter_registered_nodes",
    "prefilter_nodes",
    "sort_by_scores",
    "sort_by_tier",
]


class AtomicFilterResult(msgspec.Struct, kw_only=True):
    """Result of :func:`filter_atomic_groups`.

    ``remaining``: names of the candidates that remain, nodes of atomic groups last. ``unremovable``: why each other
    candidate cannot be removed, by node name.
    """

    remaining: list[str]
    unremovable: dict[str, str]


@typed
def filter_registered_nodes(nodes: Iterable[Node], instances: Collection[str]) -> list[Node]:
    """Return the registered nodes of a group: nodes that are among its instances and are not upcoming nodes.

    ``instances``: ids of the group's instances, as :func:`~kscale.objects.nodegroup.instance_id_of` returns them for
    nodes (provider ID, or the node's name if it has none).
    """
    wanted = set(instances)
    return [node for node in nodes if instance_id_of(node) in wanted and not is_upcoming_node(node)]


def count_registered_nodes(nodes: Iterable[Node], group: NodeGroup) -> int:
    """Count the registered nodes of a group (:func:`filter_registered_nodes`); 0 if its instances are unknown."""
    return 0 if group.instances_error is not None else len(filter_registered_nodes(nodes, group.instance_ids))


def filter_atomic_groups(
    candidates: Sequence[str], *, groups: Groups, options: AutoscalingOptions, snapshot_nodes: Iterable[Node]
) -> AtomicFilterResult:
    """Remove the candidates of atomic groups (zero-or-max scaling) unless all nodes of the group are candidates.

    A group counts as complete if it has as many candidates as its target size, or as it has registered nodes.

    Candidates without a group, or whose group or options are unknown, are removed as well. The remaining candidates
    keep their order, except that those of atomic groups are moved to the end, group by group. The result has a reason
    for each removed candidate.
    """
    result = AtomicFilterResult(remaining=[], unremovable={})
    atomic: dict[str, list[str]] = {}
    for name in candidates:
        try:
            group = groups.find_group_of_node(name)
            own = None if group is None else group.options_or(options.node_group_defaults)
        except ProviderError:
            result.unremovable[name] = unremovable_reasons.UNEXPECTED_ERROR
            continue
        if group is None or own is None:
            result.unremovable[name] = unremovable_reasons.NOT_AUTOSCALED
        elif own.zero_or_max_node_scaling:
            atomic.setdefault(group.id, []).append(name)
        else:
            result.remaining.append(name)
    nodes = list(snapshot_nodes) if atomic else []
    for group_id, names in atomic.items():
        reason = _find_refusal_reason(groups[group_id], len(names), nodes)
        if reason is None:
            result.remaining += names
        else:
            result.unremovable.update(dict.fromkeys(names, reason))
    return result


def _find_refusal_reason(group: NodeGroup, considered: int, nodes: Iterable[Node]) -> str | None:
    """Return why an atomic group cannot be removed; None if all its nodes are candidates.

    ``considered``: number of the group's candidates. A group whose target size is unknown cannot be removed.
    """
    if group.target_size_error is not None:
        return unremovable_reasons.UNEXPECTED_ERROR
    if considered in (group.size, count_registered_nodes(nodes, group)):
        return None
    return unremovable_reasons.ATOMIC_SCALE_DOWN_FAILED


EMPTY_TIER, ON_COMPLETION_TIER, NOT_EMPTY_TIER = range(3)
"""Tiers of nodes: no pod to move; only pods whose completion is waited for; pods to move, or a blocking pod."""


def _find_group(name: str, groups: Groups) -> NodeGroup | None:
    """Return the group of a node; None if there is none or if the provider cannot determine it."""
    try:
        return groups.find_group_of_node(name)
    except ProviderError:
        return None


def prefilter_nodes(names: Sequence[str], groups: Groups) -> list[str]:
    """Return the nodes whose group is known and larger than its minimum, in order."""
    large = {group.id for group in groups if group.target_size_error is None and group.size > group.min_size}
    ids = groups.ids_of_nodes(names)
    if large.issuperset(ids):
        return [*names]
    return [name for name, group in zip(names, ids, strict=True) if group in large]


def compute_emptiness_tiers(pods: MovingPods, codes: NDArray[np.uint8], nodes: int) -> NDArray[np.int64]:
    """Return the emptiness tier of each node (``..._TIER``, int64[nodes]) from the drain codes of its pods.

    For the codes see :class:`~kscale.ca.scale_down.moving_pods.DrainCodes`. The result is cached while the codes are
    unchanged.
    """
    cached = pods.memo.get(_CachedTiers, _CachedTiers)
    if cached.last is not None and np.array_equal(cached.last[0], codes):
        return cached.last[1]
    tiers = np.full(nodes, EMPTY_TIER)
    for tier, of_pods in (
        (ON_COMPLETION_TIER, (CODE_WAITS,)),
        (NOT_EMPTY_TIER, (CODE_BLOCKS, CODE_MOVES, CODE_MOVES_UNLESS_PDB)),
    ):
        holds = np.zeros(256, dtype=np.bool_)
        holds[[*of_pods]] = True
        of_tier = pods.node[holds.take(codes)]
        tiers[of_tier[of_tier >= 0]] = tier
    cached.last = codes, tiers
    return tiers


class _CachedTiers(msgspec.Struct, eq=False):
    """The last emptiness tiers, cached with the pods."""

    last: tuple[NDArray[np.uint8], NDArray[np.int64]] | None = None


def sort_by_tier(names: Sequence[str], tiers: ArrayLike, previous: Collection[str]) -> list[str]:
    """Sort the candidates by tier, the emptiest first.

    ``tiers``: int[names], such as :data:`EMPTY_TIER`. Within each tier, names in ``previous`` come first. Equal nodes
    keep their order (upstream's sort is unstable beyond twelve nodes; this is the stable choice).
    """
    before = np.fromiter(map({*previous}.__contains__, names), dtype=np.int64, count=len(names))
    return sort_by_scores(names, [before - 2 * np.asarray(tiers, dtype=np.int64)])


def sort_by_scores(names: Sequence[str], scores: Sequence[ArrayLike]) -> list[str]:
    """Return the names by decreasing score. Later scores break ties of earlier ones; equal nodes keep their order.

    ``scores``: int64[names] each.
    """
    last = np.arange(len(names))
    order = np.lexsort([last, *(-np.asarray(score, dtype=np.int64) for score in reversed(scores))])
    return [names[i] for i in order.tolist()]


def filter_out_delayed(
    names: Sequence[str], groups: Groups, changes: GroupChanges, *, options: AutoscalingOptions, now: Moment
) -> list[str]:
    """Return the nodes whose group is not in the delay after its last scale-up, scale-down or failed scale-down.

    ``changes``: the times of these three events by group. Nodes whose group is unknown are left out. Used with
    ``--scale-down-delay-type-local``.
    """
    delays = (
        (changes.scale_up, duration(options.scale_down_delay_after_add)),
        (changes.scale_down, duration(options.scale_down_delay_after_delete)),
        (changes.scale_down_failure, duration(options.scale_down_delay_after_failure)),
    )
    candidates = []
    for name in names:
        group = _find_group(name, groups)
        if group is None:
            continue
        if not any(group.id in times and now - times[group.id] < delay for times, delay in delays):
            candidates.append(name)
    return candidates


def filter_out_rolling_out(names: Sequence[str], groups: Groups) -> tuple[list[str], list[str]]:
    """Return (nodes of groups without a rollout, nodes of groups under rollout).

    A group is under rollout while its machines are being replaced
    (:attr:`~kscale.objects.nodegroup.NodeGroup.rolling_out`). Nodes of a group for which this is unknown are in neither
    list.
    """
    rolling = {group.id for group in groups if group.rolling_out}
    unknown = {group.id for group in groups if group.rolling_out_error is not None}
    if not rolling and not unknown:
        return [*names], []
    group_by_node = [*zip(names, groups.ids_of_nodes(names), strict=True)]
    left = [name for name, group in group_by_node if group not in rolling and group not in unknown]
    return left, [name for name, group in group_by_node if group in rolling and group not in unknown]


class NodeInGroup(msgspec.Struct, kw_only=True, frozen=True):
    """A node chosen for deletion and the id of its group ("" = it belongs to none)."""

    node: str
    group: str


class BudgetGroup(msgspec.Struct, kw_only=True, frozen=True):
    """Inputs of :func:`crop_nodes` about the group with this ``id``.

    - ``atomic``: the group is scaled to zero or to its maximum only.
    - ``target``: target size; ``registered``: number of its nodes in the snapshot
      (:func:`kscale.ca.scale_down.candidates.filter_registered_nodes`). Only atomic groups need both.
    - ``target_error``: why the target size is unknown; an atomic group is then skipped.
    - ``options_error``: why the options are unknown. The group's nodes are then dropped; with ``not implemented``, the
      group is an ordinary one.
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
    """Selects nodes to delete within two budgets.

    ``nodes``: number of nodes that may still be deleted. ``drains``: number of these that may be drained. ``out``: the
    nodes selected so far. ``may_overflow``: whether an atomic group may still exceed the budgets.
    """

    def __init__(self, groups: Mapping[str, BudgetGroup], nodes: int, drains: int) -> None:
        self.groups = groups
        self.nodes = nodes
        self.drains = drains
        self.may_overflow = True
        self.out = CroppedNodes(empty=[], drain=[])

    def select_complete_group(self, group_id: str, empty: list[str], drain: list[str]) -> None:
        """Select an atomic group and charge the budgets, which may become negative: the caller has checked them.

        ``empty``, ``drain``: all nodes of the group that were chosen for deletion, without and with pods to move. Does
        nothing if they are not all nodes of the group, or if the group's target size is unknown. Otherwise sets
        ``may_overflow`` to False.
        """
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

    def select_empty_groups(self, empty: _NodesByGroup, drain: _NodesByGroup) -> None:
        """Select atomic groups that have empty nodes, with their nodes to drain, until one exceeds the budgets.

        The first group selected may exceed them, unless a budget that it needs is exactly 0. Groups that were not
        chosen completely are passed over. ``empty``, ``drain``: the chosen nodes of atomic groups by group id, without
        and with pods to move.
        """
        for group_id, nodes in empty.items():
            drained = drain.get(group_id, [])
            if self.nodes < len(nodes) + len(drained) or self.drains < len(drained):
                # The budgets may be negative after an overflow; only an exact zero stops the next atomic group.
                exhausted = self.nodes == 0 or (bool(drained) and self.drains == 0)
                if exhausted or not self.may_overflow:
                    return
            self.select_complete_group(group_id, nodes, drained)

    def select_drain_groups(self, empty: _NodesByGroup, drain: _NodesByGroup) -> None:
        """Select atomic groups that have no empty nodes, until one exceeds the budget of drains.

        The budget of drains is lowered to that of nodes first. The first atomic group selected may exceed the budget,
        unless that is exactly 0. ``empty``, ``drain``: the chosen nodes of atomic groups by group id, without and with
        pods to move.
        """
        self.drains = min(self.nodes, self.drains)
        for group_id, nodes in drain.items():
            if group_id in empty:
                continue
            if self.drains < len(nodes) and (self.drains == 0 or not self.may_overflow):
                return
            self.select_complete_group(group_id, [], nodes)

    def select_individual_nodes(self, empty: _NodesByGroup, drain: _NodesByGroup) -> None:
        """Select single nodes of groups that are not atomic, empty nodes first, as far as the budgets allow.

        ``empty``, ``drain``: the chosen nodes of these groups by group id, without and with pods to move.
        """
        taken = _take_nodes(empty, self.nodes, self.out.empty)
        self.nodes -= taken
        _take_nodes(drain, min(self.nodes, self.drains), self.out.drain)


def _take_nodes(buckets: _NodesByGroup, budget: int, out: list[GroupNodes]) -> int:
    """Append at most ``budget`` nodes, group after group, to ``out``. Returns the number of appended nodes."""
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
    """Return each node with the id of its group; the id is empty if the node has no group or its group is unknown."""
    names = [*names]
    group_of = groups.ids_of_nodes(names)
    return [NodeInGroup(node=name, group=group or "") for name, group in zip(names, group_of, strict=True)]


def build_budget_groups(
    groups: Groups, options: AutoscalingOptions, snapshot_nodes: Iterable[Node]
) -> list[BudgetGroup]:
    """Return the size, atomicity and errors of every group, for the argument ``groups`` of :func:`crop_nodes`."""
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
    the budget is exactly 0; the first that does not fit ends the selection of groups of its kind (with empty nodes, or
    without). From other groups as many nodes as fit are taken, empty nodes before nodes to drain.

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
    budget.select_empty_groups(empty_atomic, drain_atomic)
    budget.select_drain_groups(empty_atomic, drain_atomic)
    budget.select_individual_nodes(empty_individual, drain_individual)
    return budget.out
