"""Inputs and report of a whole loop, and the errors that end it early."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kscale.ca.cluster_state import ClusterAutoscalerStatus
from kscale.ca.errors import TRANSIENT_ERROR, AutoscalerError, ErrorRecord
from kscale.ca.repair import Repair
from kscale.ca.scale_down.actuation.deletion_tracker import NodeDeleteResult, StartedDeletion
from kscale.ca.scale_down.plan import ScaleDownPlan
from kscale.ca.scale_up.plan import ScaleUpPlan
from kscale.ca.state.loop_state import LoopState
from kscale.effects import Action, Event, Observation
from kscale.errors import InputError
from kscale.objects.argument_types import typed_methods
from kscale.objects.nodegroups import Groups
from kscale.records import Result, Rows
from kscale.snapshot.snapshot import Snapshot

__all__ = ["LoopEndedError", "LoopReport"]


class LoopEndedError(Exception):
    """The loop ends here: without an error (``reason``), or with the error that it returns."""

    def __init__(self, reason: str = "", error: ErrorRecord | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error

    @classmethod
    def of(cls, error: AutoscalerError, default_type: str = "") -> LoopEndedError:
        """Build the end of a loop with an error; ``default_type`` is for an error without type."""
        return cls(error=ErrorRecord(type=error.type or default_type, message=error.message))


@typed_methods()
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
        return f"<LoopReport: {', '.join(part for part in parts if part)}>"

    @property
    def pending(self) -> list[str]:
        """List the pods in question, see :attr:`kscale.ScaleUpPlan.pending`; empty if the loop ended before."""
        return [] if self.scale_up is None else self.scale_up.pending

    @property
    def placed(self) -> dict[str, str]:
        """Map pods that fit without new nodes to their nodes."""
        return {} if self.scale_up is None else self.scale_up.placed

    @property
    def unschedulable(self) -> list[str]:
        """List the pods that stay without a node."""
        return [] if self.scale_up is None else self.scale_up.unschedulable

    @property
    def nodes(self) -> list[str]:
        """List the nodes whose deletion this loop starts."""
        return [item.node for item in self.started.nodes] if self.started is not None else []

    @property
    def cost(self) -> float | None:
        """Return the price of the new nodes per hour; None if a price is not known."""
        return 0.0 if self.scale_up is None else self.scale_up.cost

    def explain(self, name: str) -> str:
        """Return what the loop does for a pod (``namespace/name``) or about a node, in one line.

        ``name``: of the pod or node. Raises InputError if the loop did not consider it.
        """
        part = self.scale_up if "/" in name else self.scale_down
        if part is None:
            raise InputError(f"this loop did not consider {name}: {self.ended or 'it ended before'}")
        return part.explain(name)

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
        return notebook.listing(repr(self), (), (), notebook.origin()) + "".join(parts)

    @property
    def scale_down_result(self) -> str:
        """Return upstream's name of the scale-down result."""
        if self.started is not None:
            return self.started.result
        return self.scale_down.result if self.scale_down is not None else "ScaleDownNotTried"
