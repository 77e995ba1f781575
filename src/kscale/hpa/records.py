"""What a reconcile decided, and why."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kscale.hpa.behavior import Normalized
from kscale.hpa.calculation import Replicas
from kscale.hpa.metric_sources import MetricError, MetricProposal
from kscale.hpa.state import HPAState
from kscale.objects.autoscaling import HorizontalPodAutoscalerStatus, Scale

__all__ = ["Known", "Reconciliation"]


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One reconcile. What it said (events, observations) is what it yielded.

    - ``current_replicas``: the target's size before; None: it could not be read.
    - ``desired_replicas``: the size decided on; None: none was. ``scale_written``: what was written.
    - ``reason``: of the change of size; ``error``: what upstream's sync would return.
    - ``action`` (``scale_up``, ``scale_down``, ``none``) and ``error_class`` (``none``, ``spec``, ``internal``): the
      labels it is counted with.
    - ``stale``: the object is older than what this controller wrote, so nothing was done.
    - ``metrics``: of each metric of the spec its proposal or its error; ``proposal``: the largest of them,
      ``normalized``: what stabilisation and limits made of it.
    - ``status``: the object's new status, ``status_written``: whether it was written; ``state``: the next state.
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
    status: HorizontalPodAutoscalerStatus
    status_written: bool
    metrics: tuple[MetricProposal | MetricError, ...]
    proposal: int | None
    normalized: Normalized | None
    state: HPAState

    def __repr__(self) -> str:
        sizes = " -> ".join(
            "?" if size is None else str(size) for size in (self.current_replicas, self.desired_replicas)
        )
        why = self.error or self.reason
        return f"<Reconciliation {self.namespace}/{self.name}: {sizes}{f', {why}' if why else ''}>"


class Known(msgspec.Struct, frozen=True, gc=False):
    """What was decided over columns of an HPA whose metrics could all be computed and whose pods are its own.

    ``scale``: what it was decided by; ``replicas``: what the calculator says of each metric; ``normalized``: what
    became of the proposal.
    """

    scale: Scale
    replicas: Sequence[Replicas]
    normalized: Normalized

    def holds(self, scale: Scale) -> bool:
        """Whether the same would be decided by another scale."""
        mine = self.scale
        return mine is scale or (
            mine.spec.replicas == scale.spec.replicas
            and mine.status.replicas == scale.status.replicas
            and mine.status.selector == scale.status.selector
        )
