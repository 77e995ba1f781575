"""Inputs of a loop of scale-down, whichever planner decides."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.group_inputs import resolve_groups
from kscale.ca.loop_state import LoopState
from kscale.ca.options import AutoscalingOptions, ResourceLimiter
from kscale.ca.pod_lists import drop_uncounted_pods
from kscale.ca.scale_down.candidates import NodeInGroup
from kscale.ca.scale_down.drainability import Listers
from kscale.ca.scale_down.pdb import get_cached_pdb_tracker
from kscale.effects import Moment, duration
from kscale.objects.api.core import Node, Pod
from kscale.objects.nodegroup import GroupsLike
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.caches import cached_by_identity
from kscale.snapshot.snapshot import Snapshot

__all__ = ["ScaleDownContext", "ScaleDownInputs"]


class ScaleDownInputs(msgspec.Struct, kw_only=True, frozen=True):
    """Further inputs of a loop of scale-down; all are optional.

    - ``limits``: the cluster-wide minima (None: from the options).
    - ``deleting`` and ``draining``: nodes whose deletion is in progress. ``upcoming``: nodes of the snapshot that do
      not exist yet (besides those annotated so): they take no pods. ``recent_evictions``: recently evicted pods, which
      are placed first. ``disabled``: nodes are evaluated, none is chosen.
    - ``max_simulations`` replaces upstream's timer on simulations (``--scale-down-simulation-timeout``), which a pure
      function cannot have: candidates beyond this number are skipped. None: no limit.
    - ``threads``: how many threads evaluate nodes (None: one per CPU), without effect on the result.
    - ``pods_placed``: the snapshot already contains the pods that a loop places before its scale-down. Otherwise
      ``capacity_buffer_pod_injection_enabled`` places unschedulable pods and those of capacity buffers first.
    - ``gpu_label``: the node label that names the type of GPU.
    """

    limits: ResourceLimiter | None = None
    deleting: Sequence[NodeInGroup] = ()
    draining: Sequence[NodeInGroup] = ()
    upcoming: Collection[str] = ()
    recent_evictions: Sequence[Pod] = ()
    disabled: bool = False
    max_simulations: int | None = None
    threads: int | None = None
    pods_placed: bool = False
    gpu_label: str = DEFAULT_GPU_LABEL
    profile: SchedulerProfile | None = None


class ScaleDownContext:
    """One loop of scale-down: the cluster at one moment, its groups, the state of earlier loops, and further inputs.

    ``observed``: the snapshot; ``snapshot``: the same without uncounted pods. ``pdbs`` are charged during the loop.
    """

    def __init__(
        self,
        observed: Snapshot,
        groups: GroupsLike,
        now: Moment,
        options: AutoscalingOptions,
        state: LoopState,
        inputs: ScaleDownInputs,
    ) -> None:
        """Initialize the context. Raises InputError for a disruption budget with an invalid selector."""
        self.now, self.options, self.state, self.inputs = now, options, state, inputs
        self.observed, self.snapshot = observed, drop_uncounted_pods(observed, options)
        self.nodes: list[Node] = observed.columns.objects
        self.groups = resolve_groups(observed, groups)
        self.listers: Listers = cached_by_identity(
            observed.interner.memo, ("listers",), [observed.informers.workloads], Listers
        )[0]
        self.pdbs = get_cached_pdb_tracker(observed).fork()

    def restart(self) -> ScaleDownContext:
        """Return a new context with the same inputs, in which no disruption budget is charged yet."""
        return ScaleDownContext(self.observed, self.groups, self.now, self.options, self.state, self.inputs)

    @property
    def is_in_cooldown(self) -> bool:
        """Return whether the delay after the last scale-up, scale-down or failed scale-down is not over."""
        memory, options = self.state.scale_down, self.options
        changes = (
            (memory.last_scale_up, options.scale_down_delay_after_add),
            (memory.last_failure, options.scale_down_delay_after_failure),
            (memory.last_scale_down, options.scale_down_delay_after_delete),
        )
        return any(time is not None and self.now - time < duration(delay) for time, delay in changes)
