"""Reconciles of HPAs that were decided over columns, as far as they get without the world. kscale's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from kscale.effects import (
    Emit,
    GetScale,
    Moment,
    Observation,
    Observe,
    Progress,
    PutScale,
    StepsOf,
    Wait,
    WriteStatus,
)
from kscale.hpa.metric_proposals import measured
from kscale.hpa.options import HPAOptions
from kscale.hpa.reconcile import ReconcileUnderWay, counted, not_updated
from kscale.hpa.reconcile_pass import Pass
from kscale.hpa.records import Known, Reconciliation
from kscale.hpa.scale_target import TargetScale
from kscale.hpa.state import HPAState
from kscale.objects.autoscaling import HorizontalPodAutoscaler

__all__ = ["UNCHANGED", "Concluded", "Decided", "Remeasured"]

UNCHANGED: Final = counted("none", "none", 0, 0)
"""What the end of a reconcile counts that changed no size, wrote nothing, and so waited for nothing."""


class Concluded(NamedTuple):
    """What was said of an HPA whose size stays: the proposal, why a size would change, and what was counted."""

    proposal: int | None
    reason: str
    observations: Sequence[Observation]


class Decided:
    """The reconcile of an HPA.

    ``hpa``, ``state``, ``now``, ``options``: as :func:`~kscale.hpa.reconcile` has them; ``target``: the scale that
    ``known`` was decided by. Its selector is where others look for it. ``observations``: what it has counted;
    ``writes``: whether a size or a status is to be written.
    """

    __slots__ = ("_desired", "_reconcile", "_rescales", "_target", "observations", "writes")

    def __init__(
        self,
        hpa: HorizontalPodAutoscaler,
        state: HPAState,
        known: Known,
        target: TargetScale,
        *,
        now: Moment,
        options: HPAOptions,
    ) -> None:
        under_way = Pass(hpa, state, hpa.status, now, options, Progress(now))
        self._reconcile = of = ReconcileUnderWay(under_way, None, known)
        self._target = target
        self._desired, self.observations = of.decide_known(target.scale, known)
        self._rescales = self._desired != target.scale.spec.replicas
        if not self._rescales:
            self.observations.append(of.settle(target.scale.spec.replicas, self._desired))
        self.writes = self._rescales or of.now.has_news()

    def rest(self) -> StepsOf[PutScale | GetScale | Wait | WriteStatus | Emit | Observe, Reconciliation]:
        """What follows: the size and the status are written where they change."""
        of = self._reconcile
        if self._rescales:
            return of.resize(self._target, self._desired)
        return of.write() if self.writes else of.end()

    def write(self) -> StepsOf[WriteStatus | Emit, Reconciliation]:
        """:meth:`rest` where only the status is written; what it counts at its end is added to ``observations``."""
        of = self._reconcile
        pending = yield from of.write_news()
        self.observations += of.counted()
        return of.ended(pending)

    @property
    def concluded(self) -> Concluded:
        """What is said of one whose size stays."""
        of = self._reconcile
        return Concluded(of.proposal, of.reason, tuple(self.observations))

    def ended(self) -> Reconciliation:
        """What :meth:`rest` returns where nothing is written: it waits for nothing then, and counts
        :data:`UNCHANGED`."""
        return self._reconcile.ended()


class Remeasured:
    """:class:`Decided` of an HPA of which the same is ``concluded`` as before: its status says that already, and only
    what was measured may be another."""

    __slots__ = ("_concluded", "_known", "_metrics", "_now", "observations", "writes")

    def __init__(
        self,
        hpa: HorizontalPodAutoscaler,
        state: HPAState,
        known: Known,
        concluded: Concluded,
        *,
        now: Moment,
        options: HPAOptions,
    ) -> None:
        self._concluded, self._known = concluded, known
        self._metrics = measured(hpa, known.replicas, options)
        status = replace(hpa.status, current_metrics=[each.status for each in self._metrics] or None)
        self._now = Pass(hpa, _read(hpa, state, known), status, now, options, Progress(now))
        self.observations = list(concluded.observations)
        self.writes = self._now.has_news()

    def write(self) -> StepsOf[WriteStatus | Emit, Reconciliation]:
        """What follows where the status says something new; what it counts at its end is added to ``observations``."""
        now = self._now
        error = yield from now.write_news()
        self.observations += counted("none", "internal" if error else "none", now.now, now.progress.now)
        return self._record(not_updated(now.hpa, error) if error else None)

    def ended(self) -> Reconciliation:
        """What comes of it where nothing is written."""
        return self._record(None)

    def _record(self, error: str | None) -> Reconciliation:
        now, size = self._now, self._known.scale.spec.replicas
        return Reconciliation(
            namespace=now.hpa.metadata.namespace,
            name=now.hpa.metadata.name,
            current_replicas=size,
            desired_replicas=size,
            scale_written=None,
            reason=self._concluded.reason,
            action="none",
            error=error,
            error_class="none" if error is None else "internal",
            stale=False,
            status=now.status,
            status_written=now.status_written,
            metrics=self._metrics,
            proposal=self._concluded.proposal,
            normalized=self._known.normalized,
            state=now.state,
        )


def _read(hpa: HorizontalPodAutoscaler, state: HPAState, known: Known) -> HPAState:
    """The next state, once the object and the scale were read and the proposal was stabilised."""
    written = state.written
    return HPAState(
        recommendations=known.normalized.recommendations,
        scale_up_events=state.scale_up_events,
        scale_down_events=state.scale_down_events,
        selector=known.scale.status.selector,
        registered=state.registered,
        written=None if written is not None and written.uid == hpa.metadata.uid else written,
    )
