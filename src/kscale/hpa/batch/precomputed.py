"""Finish a reconcile whose size was decided over columns: the status, its write and the observations. Skips HPAs
whose inputs and decision are unchanged since the last batch.

kscale's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kscale.effects import (
    Emit,
    Event,
    GetMetric,
    GetScale,
    List,
    Moment,
    Observation,
    Observe,
    Outcome,
    Progress,
    PutScale,
    StepsOf,
    Wait,
    WriteStatus,
)
from kscale.errors import InputError
from kscale.hpa.controller.behavior import NormalizedReplicas
from kscale.hpa.controller.metric_proposals import build_proposals
from kscale.hpa.controller.reconcile import (
    PrecomputedDecision,
    ReconcileMachine,
    ReconcileResult,
    build_reconcile_observations,
    format_status_error,
)
from kscale.hpa.controller.scale_target import TargetScale
from kscale.hpa.controller.state import HPAState
from kscale.hpa.controller.status import ReconcileContext
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus

__all__ = [
    "UNCHANGED_OBSERVATIONS",
    "CachedDecision",
    "MetricsOnlyUpdate",
    "PrecomputedReconcile",
    "ReconcileAction",
    "ReconcileRun",
    "UnchangedDecision",
    "is_unchanged_since_write",
]


UNCHANGED_OBSERVATIONS: Final = build_reconcile_observations("none", "none", 0, 0)
"""What the end of a reconcile counts that changed no size, wrote nothing, and so waited for nothing."""


class UnchangedDecision(NamedTuple):
    """What was said of an HPA whose size stays: the proposal, why a size would change, and what was counted."""

    proposal: int | None
    reason: str
    observations: Sequence[Observation]


class PrecomputedReconcile:
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
        known: PrecomputedDecision,
        target: TargetScale,
        *,
        now: Moment,
        options: HPAOptions,
    ) -> None:
        under_way = ReconcileContext(hpa, state, hpa.status, now, options, Progress(now))
        self._reconcile = of = ReconcileMachine(under_way, None, known)
        self._target = target
        self._desired, self.observations = of.decide_known(target.scale, known)
        self._rescales = self._desired != target.scale.spec.replicas
        if not self._rescales:
            self.observations.append(of.settle(target.scale.spec.replicas, self._desired))
        self.writes = self._rescales or of.now.has_news()

    def rest(self) -> StepsOf[PutScale | GetScale | Wait | WriteStatus | Emit | Observe, ReconcileResult]:
        """What follows: the size and the status are written where they change."""
        of = self._reconcile
        if self._rescales:
            return of.resize(self._target, self._desired)
        return of.write() if self.writes else of.end()

    def write(self) -> StepsOf[WriteStatus | Emit, ReconcileResult]:
        """:meth:`rest` where only the status is written; what it counts at its end is added to ``observations``."""
        of = self._reconcile
        pending = yield from of.write_news()
        self.observations += of.counted()
        return of.ended(pending)

    @property
    def concluded(self) -> UnchangedDecision:
        """What is said of one whose size stays."""
        of = self._reconcile
        return UnchangedDecision(of.proposal, of.reason, tuple(self.observations))

    def ended(self) -> ReconcileResult:
        """What :meth:`rest` returns where nothing is written: it waits for nothing then, and counts
        :data:`UNCHANGED_OBSERVATIONS`."""
        return self._reconcile.ended()


class MetricsOnlyUpdate:
    """:class:`PrecomputedReconcile` of an HPA of which the same is ``concluded`` as before: its status says that
    already, and only what was measured may be another."""

    __slots__ = ("_concluded", "_known", "_metrics", "_now", "observations", "writes")

    def __init__(
        self,
        hpa: HorizontalPodAutoscaler,
        state: HPAState,
        known: PrecomputedDecision,
        concluded: UnchangedDecision,
        *,
        now: Moment,
        options: HPAOptions,
    ) -> None:
        self._concluded, self._known = concluded, known
        self._metrics = build_proposals(hpa, known.replicas, options)
        status = replace(hpa.status, current_metrics=[each.status for each in self._metrics] or None)
        self._now = ReconcileContext(hpa, _build_next_state(hpa, state, known), status, now, options, Progress(now))
        self.observations = list(concluded.observations)
        self.writes = self._now.has_news()

    def write(self) -> StepsOf[WriteStatus | Emit, ReconcileResult]:
        """What follows where the status says something new; what it counts at its end is added to ``observations``."""
        now = self._now
        error = yield from now.write_news()
        self.observations += build_reconcile_observations(
            "none", "internal" if error else "none", now.now, now.progress.now
        )
        return self._record(format_status_error(now.hpa, error) if error else None)

    def ended(self) -> ReconcileResult:
        """What comes of it where nothing is written."""
        return self._record(None)

    def _record(self, error: str | None) -> ReconcileResult:
        now, size = self._now, self._known.scale.spec.replicas
        return ReconcileResult(
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


def _build_next_state(hpa: HorizontalPodAutoscaler, state: HPAState, known: PrecomputedDecision) -> HPAState:
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


class CachedDecision(msgspec.Struct, frozen=True, gc=False):
    """What one HPA whose size stays was decided from, and what came of it.

    ``hpa``, ``target``; ``replicas``: what the calculator says of each metric (size, utilization, usage);
    ``normalized``: what became of the proposal; ``written``: the status that was written, None: none had to be;
    ``observations``: what is counted where nothing is written; ``concluded``: what else was said of it.
    """

    hpa: HorizontalPodAutoscaler
    target: TargetScale
    replicas: Sequence[tuple[int, int, int]]
    normalized: NormalizedReplicas
    written: HorizontalPodAutoscalerStatus | None
    observations: Sequence[Observation]
    concluded: UnchangedDecision

    def concludes(
        self,
        hpa: HorizontalPodAutoscaler,
        target: TargetScale,
        replicas: Sequence[tuple[int, int, int]],
        normalized: NormalizedReplicas,
    ) -> bool:
        """Whether the same is concluded as before, however much was measured: nothing is said of it that the status
        does not say already, but for that.

        What is concluded follows from these four. Of a status that already says it no condition changes; what is
        counted goes by the size that the status said before (``_labels`` of metrics)."""
        if hpa.spec is not self.hpa.spec:
            return False
        if target.scale is not self.target.scale or target.resource != self.target.resource:
            return False
        if normalized != self.normalized:
            return False
        for mine, theirs in zip(self.replicas, replicas, strict=True):
            if mine[0] != theirs[0]:
                return False
        if self.written is None:
            return hpa is self.hpa
        return hpa.status.current_replicas == self.hpa.status.current_replicas and is_unchanged_since_write(
            hpa, self.hpa, self.written
        )

    def again(self, hpa: HorizontalPodAutoscaler) -> CachedDecision:
        """What comes of an HPA of which the same is concluded, and was measured: nothing has to be written."""
        return self if self.written is None else msgspec.structs.replace(self, hpa=hpa, written=None)


def is_unchanged_since_write(
    hpa: HorizontalPodAutoscaler, before: HorizontalPodAutoscaler, written: HorizontalPodAutoscalerStatus
) -> bool:
    """Whether an HPA is what it was before, but for the status that was written of it."""
    if hpa.spec is not before.spec or (hpa.status is not written and hpa.status != written):
        return False
    metadata = msgspec.structs.replace(before.metadata, resource_version=hpa.metadata.resource_version)
    return metadata == hpa.metadata


ReconcileAction = GetScale | List | GetMetric | PutScale | WriteStatus | Wait | Emit | Observe
"""What a reconcile may do."""


@dataclass(slots=True)
class ReconcileRun:
    """One HPA's reconcile under way, and what it has said so far. ``works_it_out``: no columns say what comes of it."""

    row: int
    steps: StepsOf[ReconcileAction, ReconcileResult]
    at: Moment
    events: list[Event] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    action: ReconcileAction | None = None
    record: ReconcileResult | None = None
    problem: Exception | None = None
    begun: bool = False
    by_columns: bool = False
    works_it_out: bool = False

    def go_on(self, outcome: Outcome | None, answer: Callable[[ReconcileRun, ReconcileAction], Outcome | None]) -> None:
        """Until it ends, or does what ``answer`` has no outcome for."""
        try:
            if outcome is None:
                self.begun = True
                action = next(self.steps)
            else:
                self.at = outcome.at
                action = self.steps.send(outcome)
            while True:
                if type(action) is Observe:
                    self.observations += action.observations
                elif type(action) is Emit:
                    self.events += action.events
                found = answer(self, action)
                if found is None:
                    self.action = action
                    return
                action = self.steps.send(found)
        except StopIteration as stop:
            self.record = stop.value
        except InputError as error:
            self.problem = error
        self.action = None
