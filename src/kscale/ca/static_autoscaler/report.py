"""Inputs and report of a whole loop, and the errors that end it early."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

import msgspec

from kscale.ca.cluster_state import ClusterAutoscalerStatus
from kscale.ca.errors import INTERNAL_ERROR, TRANSIENT_ERROR, AutoscalerError, ErrorRecord
from kscale.ca.expander.types import ExpanderInput, Rng
from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.node_group_set import Comparator
from kscale.ca.options import ResourceLimiter
from kscale.ca.pod_lists.should_scale_up import ScaleUpEnforcer
from kscale.ca.quota import Quota
from kscale.ca.repair import Repair
from kscale.ca.scale_down.actuation.actuator import Actuator
from kscale.ca.scale_down.actuation.deletion_tracker import NodeDeleteResult, StartedDeletion
from kscale.ca.scale_down.plan import ScaleDownPlan
from kscale.ca.scale_up.plan import ScaleUpPlan
from kscale.ca.state.loop_state import LoopState
from kscale.effects import Action, Event, Observation
from kscale.errors import UnreadableObjectError
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.nodegroups import Groups
from kscale.records import Result, Rows
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.snapshot import Snapshot

__all__ = ["LoopEndedError", "LoopInputs", "LoopReport", "build_unreadable_error"]


class LoopInputs(msgspec.Struct, kw_only=True, frozen=True):
    """Further inputs of a loop; all are optional.

    - ``actuator``: continues deletions from loop to loop; a process has one. Without one the loop creates its own, for
      which the deletions of the state are in progress as long as their nodes exist.
    - ``templates`` replace the computed templates of groups; ``gpu_label``: the node label that names the type of
      GPU (a cloud provider's), ``gpu_types``: the types that the cloud lists (for metrics).
    - ``add_provider_resources``: templates from nodes get the resources that only the provider's template has, as on
      AWS.
    - ``expander_input``, ``quotas``, ``comparator``, ``rng``, ``enforcer``, ``max_looks``, ``process_age``, ``profile``
      as in :class:`kscale.ca.ScaleUpInputs`; ``limits``, ``max_simulations``, ``threads`` as in
      :class:`kscale.ca.ScaleDownInputs`.
    """

    actuator: Actuator | None = None
    templates: Mapping[str, NodeTemplate] = {}
    gpu_label: str = DEFAULT_GPU_LABEL
    gpu_types: Collection[str] = ()
    add_provider_resources: bool = False
    profile: SchedulerProfile | None = None
    process_age: timedelta | None = None
    # scale-up
    expander_input: ExpanderInput | None = None
    quotas: Sequence[Quota] | AutoscalerError | None = None
    comparator: Comparator | None = None
    rng: Rng | None = None
    enforcer: ScaleUpEnforcer | None = None
    max_looks: int | None = None
    # scale-down
    limits: ResourceLimiter | None = None
    max_simulations: int | None = None
    threads: int | None = None


class LoopEndedError(Exception):
    """The loop ends here. ``why``: without an error; ``error``: what it returns."""

    def __init__(self, why: str = "", error: AutoscalerError | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.error = error


def build_unreadable_error(error: UnreadableObjectError) -> AutoscalerError:
    """Build the error of a loop that needs an object which cannot be read.

    Such an object is detected only when the loop needs it in full, if the fields that decisions read are valid.
    """
    return AutoscalerError(INTERNAL_ERROR, f"failed to read an object of the cluster: {error}")


class LoopReport(Result, msgspec.Struct, kw_only=True, dict=True):
    """Result of one loop: decisions, actions and the state for the next loop.

    - ``state``: for the next loop; ``groups``: the current groups, with the targets that were requested.
    - ``error``: what upstream returns from its loop; ``ended``: why the loop ended early without an error (else empty).
    - ``repair``: what was repaired (None: not reached); ``scale_up``, ``scale_down``: the decisions (None: not reached,
      or scale-down is disabled); ``started``: deletions that began; ``removed_groups``: groups of auto-provisioning
      that were not needed anymore.
    - ``deletion_results``: how deletions ended since the previous loop, by node. Each is reported once.
    - ``status``: the status of the cluster; ``warnings``: what upstream only logs.
    - ``deletions_under_way``: whether nodes were being deleted when the loop looked.
    - ``snapshot_after``: the simulated cluster in which scale-down searched for places.
    - ``actions``, ``events``, ``observations``: of a loop that was run as if everything succeeded. Whoever runs the
      steps gets them as actions instead.
    """

    state: LoopState
    groups: Groups
    snapshot_after: Snapshot
    error: ErrorRecord | None = None
    ended: str = ""
    repair: Repair | None = None
    scale_up: ScaleUpPlan | None = None
    scale_down: ScaleDownPlan | None = None
    started: StartedDeletion | None = None
    removed_groups: list[str] = []
    deletion_results: dict[str, NodeDeleteResult] = {}
    status: ClusterAutoscalerStatus | None = None
    warnings: list[str] = []
    deletions_under_way: bool = False
    actions: Sequence[Action] = ()
    events: Sequence[Event] = ()
    observations: Sequence[Observation] = ()

    @property
    def successful(self) -> bool:
        """Return whether the loop counts as healthy; a transient error does not count."""
        return self.error is None or self.error.type == TRANSIENT_ERROR

    def __repr__(self) -> str:
        up = self.scale_up
        grown = [str(info) for info in (*up.scale_ups, *up.min_sizes)] if up is not None else []
        parts = [
            f"error={self.error.message!r}" if self.error is not None else "",
            f"ended={self.ended!r}" if self.ended else "",
            f"scale_up={up.result}{' ' + ' '.join(grown) if grown else ''}" if up is not None else "",
            f"scale_down={self.scale_down_result}" if self.scale_down is not None else "",
            f"deleting={[item.node for item in self.started.nodes]}" if self.started and self.started.nodes else "",
        ]
        return f"LoopReport({', '.join(part for part in parts if part)})"

    def table_rows(self) -> Rows:
        """Return one row per node group that grows and per node whose deletion starts."""
        up = self.scale_up
        grown = [] if up is None else [*up.scale_ups, *up.min_sizes]
        rows = [
            *(("group", info.group, f"{info.current} -> {info.new}") for info in grown),
            *(("node", item.node, "deleted") for item in (self.started.nodes if self.started is not None else ())),
        ]
        return Rows({"kind": str, "name": str, "change": str}, rows)

    def _repr_html_(self) -> str:
        """Return an HTML representation for notebooks."""
        from kscale.html import notebook

        parts = [plan._repr_html_() for plan in (self.scale_up, self.scale_down) if plan is not None]
        return notebook.listing(repr(self), (), ()) + "".join(parts)

    @property
    def scale_down_result(self) -> str:
        """Return upstream's name of the scale-down result."""
        if self.started is not None:
            return self.started.result
        return self.scale_down.result if self.scale_down is not None else "ScaleDownNotTried"
