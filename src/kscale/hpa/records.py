"""What a reconcile decided, and why."""

from __future__ import annotations

from dataclasses import dataclass

from kscale.hpa.behavior import Normalized
from kscale.hpa.conditions import Event
from kscale.hpa.metric_sources import MetricError, MetricProposal
from kscale.hpa.state import HPAState
from kscale.objects.autoscaling import HorizontalPodAutoscalerStatus

__all__ = ["MetricObservation", "Reconciliation"]


@dataclass(frozen=True, slots=True)
class MetricObservation:
    """One observation of ``metric_computation_total``: type, action (scale_up, scale_down, none), error class."""

    type: str
    action: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """One reconcile.

    ``current_replicas`` is the target's size before (None: it could not be read), ``desired_replicas`` the size
    decided on (None: none was), ``scale_written`` what was written. ``proposal`` is the largest of the ``metrics``,
    ``normalized`` what stabilisation and limits made of it. ``status`` is the object's new status, ``state`` the next
    state. ``action``, ``error_class``, ``observations`` and ``desired_replicas_gauge`` are what upstream counts.
    """

    namespace: str
    name: str
    current_replicas: int | None
    desired_replicas: int | None
    scale_written: int | None
    reason: str
    action: str
    error: str | None
    error_class: str
    stale: bool
    events: tuple[Event, ...]
    status: HorizontalPodAutoscalerStatus
    status_written: bool
    metrics: tuple[MetricProposal | MetricError, ...]
    proposal: int | None
    normalized: Normalized | None
    observations: tuple[MetricObservation, ...]
    desired_replicas_gauge: int | None
    state: HPAState
