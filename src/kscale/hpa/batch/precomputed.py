"""Finish a reconcile whose replicas were decided over columns: the status, its write and the observations.

HPAs whose inputs and decision are unchanged since the last batch are skipped. Not in upstream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

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
from kscale.hpa.controller.metric_proposals import build_computation_observations
from kscale.hpa.controller.reconcile import (
    PrecomputedDecision,
    ReconcileMachine,
    ReconcileResult,
    build_reconcile_observations,
)
from kscale.hpa.controller.scale_target import TargetScale
from kscale.hpa.controller.state import HPAState
from kscale.hpa.controller.status import ReconcileContext
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus

__all__ = [
    "UNCHANGED_OBSERVATIONS",
    "CachedDecision",
    "FindOutcome",
    "PrecomputedReconcile",
    "ReconcileAction",
    "ReconcileRun",
    "is_unchanged_since_write",
]


UNCHANGED_OBSERVATIONS: Final = build_reconcile_observations("none", "none", 0, 0)
"""Observations at the end of a reconcile that changes no replicas and writes nothing."""


class PrecomputedReconcile:
    """The reconcile of one HPA with a known decision that keeps the replicas.

    ``hpa``, ``state``, ``options``: as in :func:`~kscale.hpa.reconcile`; ``progress``: at the time of the decision;
    ``target``: the scale from which ``known`` was decided; other HPAs are checked against its selector. ``cached``: an
    earlier reconcile with the same conclusion, so that only metric values may differ. ``observations``: its
    observations so far; ``writes``: whether a status must be written.
    """

    __slots__ = ("_cached", "_reconcile", "_target", "observations", "writes")

    def __init__(
        self,
        hpa: HorizontalPodAutoscaler,
        state: HPAState,
        known: PrecomputedDecision,
        target: TargetScale,
        *,
        progress: Progress,
        options: HPAOptions,
        cached: CachedDecision | None = None,
    ) -> None:
        context = ReconcileContext(hpa, state, hpa.status, progress.now, options, progress)
        self._reconcile = reconcile = ReconcileMachine(context, None, known)
        self._target, self._cached = target, cached
        if cached is None:
            desired = reconcile.decide_known(target.scale, known)
            self.observations = build_computation_observations(context, reconcile.metrics)
            self.observations.append(reconcile.settle(target.scale.spec.replicas, desired))
        else:
            self.observations = list(cached.observations[: -len(UNCHANGED_OBSERVATIONS)])
            reconcile.repeat_known(known, cached.proposal, cached.reason)
        self.writes = context.has_news()

    def write(self) -> StepsOf[WriteStatus | Emit, ReconcileResult]:
        """Yield the write of the status if one is needed, and return the result with the error of a failed write.

        The count and the duration of the reconcile are appended to ``observations``.
        """
        reconcile = self._reconcile
        pending = yield from reconcile.write_status()
        self.observations += reconcile.build_observations()
        return reconcile.build_result(pending)

    def finish_without_writes(self) -> ReconcileResult:
        """Return the result of a reconcile that writes nothing.

        Such a reconcile waits for nothing, and observes :data:`UNCHANGED_OBSERVATIONS`.
        """
        return self._reconcile.build_result()

    def to_cached(self, replicas: Sequence[tuple[int, int, int]]) -> CachedDecision:
        """Return the decision to keep for the next batch. Call this before anything is written.

        ``replicas``: the calculator's result for each metric (replicas, utilization, usage).
        """
        reconcile, cached = self._reconcile, self._cached
        return CachedDecision(
            hpa=reconcile.context.hpa,
            target=self._target,
            replicas=replicas,
            written=None,
            observations=(*self.observations, *UNCHANGED_OBSERVATIONS) if cached is None else cached.observations,
            proposal=reconcile.proposal,
            reason=reconcile.reason,
        )


class CachedDecision(msgspec.Struct, frozen=True, gc=False):
    """Inputs and decision of one HPA whose replicas stay.

    ``hpa``, ``target``; ``replicas``: the calculator's result for each metric (replicas, utilization, usage);
    ``written``: the status that was written (None: no write was needed); ``observations``: what is observed if nothing
    is written; ``proposal``, ``reason``: as in the result.
    """

    hpa: HorizontalPodAutoscaler
    target: TargetScale
    replicas: Sequence[tuple[int, int, int]]
    written: HorizontalPodAutoscalerStatus | None
    observations: Sequence[Observation]
    proposal: int | None
    reason: str

    def is_stated_by(self, hpa: HorizontalPodAutoscaler) -> bool:
        """Check whether ``hpa`` is the HPA of this decision, with the status that was written.

        If nothing was written, it must be the identical object.
        An equal decision then changes no condition. Observations depend on the previous replicas in the status
        (``_computation_labels`` of ``metric_proposals``), so these must be the same.
        """
        if self.written is None:
            return hpa is self.hpa
        before = self.hpa
        return hpa.status.current_replicas == before.status.current_replicas and is_unchanged_since_write(
            hpa, before, self.written
        )

    def with_new_metrics(self, hpa: HorizontalPodAutoscaler) -> CachedDecision:
        """Return this decision for ``hpa``, whose status is the written one: ``written`` becomes None."""
        return self if self.written is None else msgspec.structs.replace(self, hpa=hpa, written=None)


def is_unchanged_since_write(
    hpa: HorizontalPodAutoscaler, before: HorizontalPodAutoscaler, written: HorizontalPodAutoscalerStatus
) -> bool:
    """Check whether ``hpa`` is ``before`` with the status ``written``; its resource version may differ.

    The spec must be the identical object.
    """
    if hpa.spec is not before.spec or (hpa.status is not written and hpa.status != written):
        return False
    metadata = msgspec.structs.replace(before.metadata, resource_version=hpa.metadata.resource_version)
    return metadata == hpa.metadata


ReconcileAction = GetScale | List | GetMetric | PutScale | WriteStatus | Wait | Emit | Observe
"""Actions of a reconcile."""


@dataclass(slots=True)
class ReconcileRun:
    """One HPA's reconcile in progress, with its observations and events so far.

    ``in_full``: the step machine makes the decision itself; it is not precomputed over columns.
    """

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
    in_full: bool = False

    def advance(self, outcome: Outcome | None, answer: FindOutcome) -> None:
        """Run the steps until they end or need an action to be performed, which is then stored in ``action``.

        ``outcome``: of the last action (None: start). ``answer`` is called with this run and each action, and returns
        the action's outcome, or None if the action must be performed. Observations and events are collected; at the
        end, ``record`` has the result, or ``problem`` the InputError.
        """
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
                response = answer(self, action)
                if response is None:
                    self.action = action
                    return
                action = self.steps.send(response)
        except StopIteration as stop:
            self.record = stop.value
        except InputError as error:
            self.problem = error
        self.action = None


FindOutcome = Callable[[ReconcileRun, ReconcileAction], Outcome | None]
"""Returns the outcome of an action of a reconcile that is known already; None if the action must be performed."""
