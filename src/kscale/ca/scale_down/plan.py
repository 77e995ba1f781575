"""The result of one loop of scale-down, and the choice of nodes to delete (upstream: ``core/scaledown/planner``:
NodesToDelete).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from kscale.ca import unremovable_reasons
from kscale.ca.errors import AutoscalerError
from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.loop_state import LoopState
from kscale.ca.options import AutoscalingOptions, ResourceLimiter
from kscale.ca.quota import Quota, QuotaTracker, build_cluster_minimum_quota
from kscale.ca.scale_down.actuation.tainting import SoftTaints
from kscale.ca.scale_down.budgets import CroppedNodes
from kscale.ca.scale_down.candidates import filter_atomic_groups
from kscale.ca.scale_down.eligibility import Eligibility
from kscale.ca.scale_down.pdb import RemainingPdbTracker
from kscale.ca.scale_down.removal import RemovableNode, UnremovableCandidate
from kscale.ca.scale_down.unneeded import UnneededNode, UnremovableNode, find_removable_nodes
from kscale.effects import Moment
from kscale.errors import InputError
from kscale.objects.api.core import Node
from kscale.objects.argument_types import typed_methods
from kscale.objects.nodegroup import Groups
from kscale.records import Result, Rows

__all__ = ["AloneVerdicts", "NodesToDelete", "ScaleDownPlan", "build_not_tried_plan", "choose_nodes_to_delete"]


class NodesToDelete(msgspec.Struct, kw_only=True):
    """Names of empty nodes to delete and of nodes to drain, and the reasons of other unneeded nodes, in the order of
    evaluation.

    ``error``: why nothing can be deleted in this loop.
    """

    empty: list[str] = []
    drain: list[str] = []
    unremovable: dict[str, str] = {}
    error: str | None = None


def choose_nodes_to_delete(
    unneeded: Iterable[UnneededNode],
    *,
    groups: Groups,
    snapshot_nodes: Sequence[Node],
    options: AutoscalingOptions,
    now: Moment,
    limits: ResourceLimiter | None = None,
    deletions_in_progress: Mapping[str, int] | None = None,
    gpu_label: str = DEFAULT_GPU_LABEL,
    left: Callable[[Quota], QuotaTracker] | None = None,
) -> NodesToDelete:
    """Choose nodes that were unneeded long enough and that break no minimum; atomic groups only as a whole.

    ``snapshot_nodes`` are all nodes of the snapshot, including upcoming ones. ``limits`` (default: the options') are
    the cluster-wide minima, ``left`` returns what they leave (a tracker for this call), if that is cached. If usage
    cannot be computed nothing is deleted. Size and resources that a node used up stay used up even if a later step
    drops it.
    """
    quota = build_cluster_minimum_quota(options.resource_limiter if limits is None else limits)
    try:
        if left is None:
            minimum = QuotaTracker.minimum([quota], snapshot_nodes, groups, gpu_label=gpu_label)
        else:
            minimum = left(quota)
    except AutoscalerError as error:
        return NodesToDelete(error=error.message)
    removable = find_removable_nodes(
        unneeded, groups=groups, now=now, deletions_in_progress=deletions_in_progress, minimum=minimum
    )
    # Nodes whose pods can all go at once come first.
    ordered = [*removable.empty, *sorted(removable.drain, key=lambda item: item.risky)]
    by_name = {item.name: item for item in ordered}
    retained = filter_atomic_groups(list(by_name), groups=groups, options=options, snapshot_nodes=snapshot_nodes)
    result = NodesToDelete(unremovable={**removable.unremovable, **retained.unremovable})
    for name in retained.kept:
        item = by_name[name]
        if item.on_completion:
            result.unremovable[name] = unremovable_reasons.BLOCKED_BY_ON_COMPLETION_POD
        else:
            (result.drain if item.drain else result.empty).append(name)
    return result


AloneVerdicts = dict[str, RemovableNode | UnremovableCandidate]


@typed_methods()
class ScaleDownPlan(Result, msgspec.Struct, kw_only=True, dict=True):
    """Result of one loop of scale-down: its observations and the nodes to delete.

    - ``result``: ``ScaleDownInCooldown``, ``ScaleDownNoCandidates``, ``ScaleDownNoNodeDeleted`` or
      ``ScaleDownNodeDeleteStarted``, as upstream reports it after executing the plan; ``ScaleDownNotTried`` if
      the loop may not scale down (:func:`kscale.ca.can_scale_down`): then nothing was evaluated.
    - ``candidates``: nodes that were evaluated, in order; ``skipped``: those that the limit on unneeded nodes left out;
      ``under_rollout``: those that were not evaluated because their machines are being replaced.
    - ``unneeded``, ``removable``: the unneeded nodes in the order found, with times, and with pods and destinations.
    - ``eligibility``: by candidate, with utilization; ``unremovable``: why nodes stay; ``unremovable_after_update``:
      the same before the choice of nodes to delete now; ``failures``: why simulated removals failed.
    - ``chosen``: before the budgets (None: no choice was made); ``delete``: what to delete now, per group.
    - ``soft_taints``: all soft taints to change (one loop changes some of them); ``pdbs``: the remaining budgets.
    - ``remember``: computes ``state`` and is then released; ``judge_alone``: only of ``exhaustive``: computes
      ``alone``.

    The legacy profile also has ``ScaleDownNoUnneeded``, ``ScaleDownNodeDeleted`` (empty nodes, whose deletion is
    awaited) and ``ScaleDownInProgress``.
    """

    result: str
    candidates: list[str]
    skipped: list[str]
    unneeded: list[UnneededNode]
    removable: dict[str, RemovableNode]
    eligibility: dict[str, Eligibility]
    unremovable_after_update: dict[str, UnremovableNode]
    unremovable: dict[str, UnremovableNode]
    failures: dict[str, UnremovableCandidate]
    chosen: NodesToDelete | None
    delete: CroppedNodes
    soft_taints: SoftTaints
    pdbs: RemainingPdbTracker
    remember: Callable[[], LoopState]
    judge_alone: Callable[[], AloneVerdicts] | None = None
    under_rollout: list[str] = []

    def __repr__(self) -> str:
        parts = [f"{len(self.unneeded)} of {len(self.candidates)} candidates unneeded"]
        parts += [f"deletes {name}" for name in self.delete_empty]
        parts += [f"drains {name}" for bucket in self.delete.drain for name in bucket.nodes]
        return f"<ScaleDownPlan: {self.result}, {', '.join(parts)}>"

    def table_rows(self) -> Rows:
        """Return one row per node: what becomes of it (deleted, drained, stays), the number of its pods, and why."""
        rows = [
            *((name, "deleted", 0, None) for name in self.delete_empty),
            *((name, "drained", len(pods), None) for name, pods in self.drain.items()),
            *((name, "stays", None, _format_unremovable(node)) for name, node in self.unremovable.items()),
        ]
        return Rows({"node": str, "decision": str, "movedPods": int, "reason": str}, rows)

    @cached_property
    def state(self) -> LoopState:
        """Return the state for the next loop, encoded on first access: it has the targets of all moved pods."""
        state = self.remember()
        self.remember = lambda: state  # release the simulated cluster
        return state

    @cached_property
    def alone(self) -> AloneVerdicts:
        """Return what would happen to each eligible node if no other was removed (only with ``exhaustive``)."""
        return {} if self.judge_alone is None else self.judge_alone()

    @property
    def delete_empty(self) -> list[str]:
        """List the empty nodes to delete now."""
        return [name for bucket in self.delete.empty for name in bucket.nodes]

    @property
    def drain(self) -> dict[str, dict[str, str]]:
        """Map the nodes to drain now to the pods to move and their destinations."""
        return {name: self.removable[name].placement for bucket in self.delete.drain for name in bucket.nodes}

    @property
    def nodes(self) -> list[str]:
        """List the nodes to delete now: empty ones, then those to drain."""
        return [*self.delete_empty, *self.drain]

    @property
    def placed(self) -> dict[str, str]:
        """Map the pods of the nodes to drain now to the nodes where the simulation placed them."""
        return {pod: node for pods in self.drain.values() for pod, node in pods.items()}

    def explain(self, node: str) -> str:
        """Return what becomes of a node, or why it stays, in one line. Raises InputError for an unknown ``node``."""
        if node in self.delete_empty:
            return "is empty and is deleted now"
        if node in self.drain:
            return f"is drained and deleted now; {len(self.drain[node])} pods move"
        if node in self.unremovable:
            return f"stays: {_format_unremovable(self.unremovable[node])}"
        if node in self.unneeded_by_name:
            return "is unneeded, but not deleted by this loop"
        if node in self.skipped_names or node in self.under_rollout or node in self.candidates:
            return f"stays: not evaluated by this loop ({self.result})"
        raise InputError(f"no node {node!r} is among the candidates of this plan")

    @cached_property
    def unneeded_by_name(self) -> dict[str, UnneededNode]:
        """Map names to the unneeded nodes."""
        return {item.name: item for item in self.unneeded}

    @cached_property
    def skipped_names(self) -> frozenset[str]:
        """Return the names of the skipped nodes."""
        return frozenset(self.skipped)

    @property
    def unneeded_since(self) -> dict[str, Moment]:
        """Map each unneeded node to the time since when it is unneeded."""
        return {item.name: item.since for item in self.unneeded}

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name != "remember"}
        return _restore_plan, (fields, self.state)


def _restore_plan(fields: dict[str, Any], state: LoopState) -> ScaleDownPlan:
    return ScaleDownPlan(**fields, remember=lambda: state)


def _format_unremovable(node: UnremovableNode) -> str:
    blocking = node.blocking_pod
    return node.reason if blocking is None else f"{node.reason}: {blocking.pod} ({blocking.reason})"


def build_not_tried_plan(state: LoopState) -> ScaleDownPlan:
    """Build the plan of a loop that may not scale down: the state is unchanged."""
    return ScaleDownPlan(
        result="ScaleDownNotTried",
        candidates=[],
        skipped=[],
        unneeded=[],
        removable={},
        eligibility={},
        unremovable_after_update={},
        unremovable={},
        failures={},
        chosen=None,
        delete=CroppedNodes(empty=[], drain=[]),
        soft_taints=SoftTaints(),
        pdbs=RemainingPdbTracker(),
        remember=lambda: state,
    )
