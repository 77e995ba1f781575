"""Reconcile one HorizontalPodAutoscaler as a step machine without I/O, in upstream's order.

Upstream: ``reconcileKey`` and ``reconcileAutoscaler`` in ``horizontal.go``. The steps are:

1. The queue hands over a key (:mod:`kscale.drivers.work_queue`). Objects older than the last write are skipped
   (``_check_version``).
2. Find and get the target's scale (:mod:`~kscale.hpa.controller.scale_target`), and check whether metrics are needed
   (``_decide``).
3. Check the selector, and whether other HPAs select the same pods (:mod:`~kscale.hpa.controller.scale_target`).
4. Compute a proposal for every metric (:mod:`~kscale.hpa.controller.metric_proposals`) with the calculator
   (:mod:`~kscale.hpa.controller.replica_calculator`).
5. Normalize the largest proposal (``_normalize``, :mod:`~kscale.hpa.controller.behavior`).
6. Update the scale (``_rescale``) and the status (:mod:`~kscale.hpa.controller.status`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from kscale.effects import (
    Emit,
    GetMetric,
    GetScale,
    List,
    Moment,
    Observation,
    Observe,
    Progress,
    PutScale,
    StepsOf,
    Wait,
    WriteStatus,
    moment,
)
from kscale.hpa.api.v1_conversion import from_v1
from kscale.hpa.api.validation import apply_defaults
from kscale.hpa.controller.behavior import NormalizedReplicas, normalize, store_scale_event
from kscale.hpa.controller.metric_proposals import (
    CombinedProposal,
    MetricError,
    MetricProposal,
    build_computation_observations,
    build_proposals,
    combine_calculated_replicas,
    compute_replicas_for_metrics,
)
from kscale.hpa.controller.monitor import (
    DESIRED_REPLICAS,
    RECONCILIATION_DURATION,
    RECONCILIATIONS,
    STALE_SYNC_SKIPS,
    observe_duration,
)
from kscale.hpa.controller.replica_calculator import CalculatedReplicas
from kscale.hpa.controller.scale_target import (
    NoScale,
    SelectorStore,
    TargetScale,
    check_selector,
    find_scale,
    put_scale,
)
from kscale.hpa.controller.state import HPAState, Recommendation
from kscale.hpa.controller.status import (
    CONDITION_MESSAGES,
    SCALING_LIMITED_CONDITIONS,
    STABILIZED_CONDITIONS,
    ReconcileContext,
    find_condition,
)
from kscale.hpa.options import DEFAULT_OPTIONS, HPAOptions
from kscale.objects.api.autoscaling import (
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerStatus,
    HorizontalPodAutoscalerV1,
    MetricStatus,
    Scale,
)
from kscale.objects.api.meta import is_older_version
from kscale.objects.argument_types import typed
from kscale.objects.kinds import RESTMapper

__all__ = [
    "RESCALE_EVENT",
    "PrecomputedDecision",
    "ReconcileMachine",
    "ReconcileResult",
    "ReconcileSteps",
    "build_reconcile_observations",
    "explain_change",
    "format_rescale",
    "reconcile",
]


class ReconcileResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Result of one reconcile. Its events and observations were yielded.

    - ``current_replicas``: the target's replicas before; None: they could not be read.
    - ``desired_replicas``: the decided replicas; None: none were decided. ``scale_written``: the written replicas.
    - ``reason``: of the change of replicas; ``error``: what upstream's sync would return.
    - ``action`` (``scale_up``, ``scale_down``, ``none``) and ``error_class`` (``none``, ``spec``, ``internal``): the
      labels of its metrics.
    - ``stale``: the object is older than this controller's last write, so nothing was done.
    - ``metrics``: the proposal or error of each metric of the spec; ``proposal``: the largest of them,
      ``normalized``: the proposal after stabilization and limits.
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
    normalized: NormalizedReplicas | None
    state: HPAState

    def __repr__(self) -> str:
        sizes = " -> ".join(
            "?" if size is None else str(size) for size in (self.current_replicas, self.desired_replicas)
        )
        why = self.error or self.reason
        return f"<Reconciliation {self.namespace}/{self.name}: {sizes}{f', {why}' if why else ''}>"


class PrecomputedDecision(msgspec.Struct, frozen=True, gc=False):
    """Decision computed over columns, for an HPA without metric errors whose pods no other HPA selects.

    ``scale``: the scale that the decision used. ``replicas``: the calculator's result for each metric. ``normalized``:
    the normalized proposal.
    """

    scale: Scale
    replicas: Sequence[CalculatedReplicas]
    normalized: NormalizedReplicas

    def applies_to(self, scale: Scale) -> bool:
        """Return True if ``scale`` would lead to the same decision as the scale that the decision used."""
        mine = self.scale
        return mine is scale or (
            mine.spec.replicas == scale.spec.replicas
            and mine.status.replicas == scale.status.replicas
            and mine.status.selector == scale.status.selector
        )


ReconcileSteps = StepsOf[
    GetScale | List | GetMetric | PutScale | WriteStatus | Wait | Emit | Observe,
    ReconcileResult,
]
"""Steps of a reconcile: its actions and its result."""


_RESOURCE_LABELS = {"group": "autoscaling", "resource": "horizontalpodautoscalers"}


@typed
def reconcile(
    hpa: HorizontalPodAutoscaler | HorizontalPodAutoscalerV1,
    state: HPAState,
    *,
    now: datetime | Moment,
    options: HPAOptions | None = None,
    selectors: SelectorStore | None = None,
    mapper: RESTMapper | None = None,
    seen_version: str | None = None,
    known: PrecomputedDecision | None = None,
) -> ReconcileSteps:
    """Reconcile one HPA as a step machine; :func:`kscale.effects.run_dry` runs it as a plain call.

    Pods are listed as the watch has delivered them.

    Parameters
    ----------
    hpa : HorizontalPodAutoscaler or HorizontalPodAutoscalerV1
        A defaulted object (:func:`~kscale.hpa.apply_defaults`); it is not validated. v1 objects are converted. The
        legacy profile always writes the status as v1.
    state : HPAState
        State of earlier reconciles (:class:`~kscale.hpa.HPAState`); the next one is in the result.
    now : datetime or Moment
        Time of the decision, an aware datetime or nanoseconds since 1970.
    options : HPAOptions, optional
        Options of the controller.
    selectors : SelectorStore, optional
        Selectors of other HPAs; this HPA's is stored in it if it is registered there. Nothing else that is passed is
        changed. None: other HPAs are not checked.
    mapper : RESTMapper, optional
        Mapper of kinds to resources. Default: the built-in kinds.
    seen_version : str, optional
        The newest resource version of HPAs that the watch has delivered. None: up to date.
    known : PrecomputedDecision, optional
        Decision over columns, which is used while its scale is unchanged.

    Returns
    -------
    Steps of ReconcileResult
        The step machine. It raises :class:`~kscale.errors.InputError` for a metric over whose fields upstream would
        crash.

    Raises
    ------
    InputError
        For a ``now`` that is no time.
    """
    at = moment(now)
    if isinstance(hpa, HorizontalPodAutoscalerV1):
        hpa = apply_defaults(from_v1(hpa))
    context = ReconcileContext(hpa, state, hpa.status, at, options or DEFAULT_OPTIONS, Progress(at))
    return ReconcileMachine(context, selectors, known).run(mapper or RESTMapper(), seen_version)


def build_reconcile_observations(
    action: str, error: str, begun: Moment, ended: Moment
) -> tuple[Observation, Observation]:
    """Return the count and the duration of a reconcile, labelled with its ``action`` and error class (``error``)."""
    labels = {"action": action, "error": error}
    return Observation(name=RECONCILIATIONS, labels=labels), observe_duration(
        RECONCILIATION_DURATION, begun, ended, labels
    )


RESCALE_EVENT: Final = "SuccessfulRescale"


def explain_change(current: int, proposal: int, name: str) -> str:
    """Return why metrics change the replicas; empty if they do not.

    ``proposal``: the largest proposal; ``name``: the name of the metric that made it.
    """
    if proposal > current:
        return f"{name} above target"
    return "All metrics below target" if proposal < current else ""


def format_rescale(desired: int, reason: str) -> str:
    """Return the text of an event about a change of the replicas to ``desired``."""
    return f"New size: {desired}; reason: {reason}"


@dataclass(slots=True)
class ReconcileMachine:
    """Step machine of one reconcile, with its results so far.

    With ``selectors`` None, the check for other HPAs that select the same pods is skipped. ``calculated``: the
    calculator's result for each metric; None: metrics and pods are requested. ``alone``: it is already known that no
    other HPA selects the same pods.
    """

    context: ReconcileContext
    selectors: SelectorStore | None
    known: PrecomputedDecision | None = None
    metrics: tuple[MetricProposal | MetricError, ...] = ()
    statuses: tuple[MetricStatus, ...] = ()
    normalized: NormalizedReplicas | None = None
    proposal: int | None = None
    action: str = "none"
    error_class: str = "none"
    desired: int | None = None
    current: int | None = None
    scale_written: int | None = None
    reason: str = ""
    calculated: Sequence[CalculatedReplicas] | None = None
    alone: bool = False

    def run(self, mapper: RESTMapper, seen_version: str | None) -> ReconcileSteps:
        """Reconcile an HPA that exists (upstream's ``reconcileKey``).

        Nothing is done for an object that is older than this controller's last write; the result is then stale.
        """
        if error := self._check_version(seen_version):
            yield from self.context.progress.observe(Observation(name=STALE_SYNC_SKIPS, labels=_RESOURCE_LABELS))
            return self.build_result(error, stale=True)
        target = yield from find_scale(self.context, mapper)
        if isinstance(target, NoScale):
            self.error_class = target.error_class
            return (yield from self.finish_steps(target.error))
        self._record_scale_read(target.scale)
        desired, error = yield from self._decide(target.scale)
        if desired is None:
            return (yield from self.finish_steps(error))
        current = target.scale.spec.replicas
        if desired != current if self.proposal is not None else current != 0:
            return (yield from self.resize(target, desired, error))
        yield from self.context.progress.observe(self.settle(current, desired))
        return (yield from self.finish(error))

    def finish_steps(self, error: str = "") -> StepsOf[Observe, ReconcileResult]:
        """Observe the metrics of the reconcile and return the result. ``error``: what upstream's sync returns."""
        yield from self.context.progress.observe(*self.build_observations())
        return self.build_result(error)

    def build_observations(self) -> tuple[Observation, Observation]:
        """Return the observations at the end of the reconcile: the reconciliation's count and duration."""
        return build_reconcile_observations(self.action, self.error_class, self.context.now, self.context.progress.now)

    def _check_version(self, seen_version: str | None) -> str:
        """Return an error if ``seen_version`` is older than this controller's last write, else an empty string.

        None counts as up to date. Without an error, the record of a write of this object is cleared.
        """
        written = self.context.state.written
        if written is None or written.uid != self.context.hpa.metadata.uid:
            return ""
        if seen_version is not None and is_older_version(seen_version, written.resource_version):
            return (
                f"read version: {seen_version} is not as new as written version: {written.resource_version} "
                "for group resource horizontalpodautoscalers.autoscaling"
            )
        self.context.remember(written=None)
        return ""

    def _record_scale_read(self, scale: Scale) -> None:
        """Set the condition that the target's scale could be read, and record its replicas."""
        context = self.context
        text = "the HPA controller was able to get the target's current scale"
        context.set("AbleToScale", True, "SucceededGetScale", text)
        self._record_current_replicas(scale)

    def _record_current_replicas(self, scale: Scale) -> None:
        """Store the target's replicas; in the first reconcile, also as the first recommendation."""
        context, self.current = self.context, scale.spec.replicas
        if context.state.recommendations is None:
            context.remember(recommendations=(Recommendation(scale.spec.replicas, context.now),))

    def _decide(self, scale: Scale) -> StepsOf[List | GetMetric | WriteStatus | Emit | Observe, tuple[int | None, str]]:
        """Return the desired replicas (0 if scaling is disabled) and an error (empty for none).

        Stores the reason, the metrics and the new conditions. With replicas None, the error ends the reconcile: the
        status is written and a warning emitted already. With replicas, the reconcile continues and reports the error at
        its end.
        """
        context, current, spec = self.context, scale.spec.replicas, self.context.hpa.spec
        minimum, legacy = self._get_minimum(), context.options.legacy
        if current == 0 and not (
            minimum == 0 if legacy else self._leaves_zero() and (minimum != 0 or self._has_object_metric())
        ):
            text = "scaling is disabled since the replica count of the target is zero"
            context.set("ScalingActive", False, "ScalingDisabled", text)
            if not legacy and not context.options.gates["HPAScaleToZero"]:
                context.drop("ScaledToZero")
            return 0, ""
        if current != 0 and current > spec.max_replicas:
            self.reason = "Current number of replicas above Spec.MaxReplicas"
            return spec.max_replicas, ""
        if current != 0 and current < minimum:
            self.reason = "Current number of replicas below Spec.MinReplicas"
            return minimum, ""
        precomputed = self.known = self.known if self.known is not None and self.known.applies_to(scale) else None
        alone = self.alone or precomputed is not None
        error = yield from check_selector(context, scale.status.selector, self.selectors, alone=alone)
        if error:
            self.error_class = "internal"
            return None, (yield from self._fail(current, error))
        if precomputed is None:
            combined = yield from compute_replicas_for_metrics(context, scale, self.calculated)
        else:
            combined = combine_calculated_replicas(context, scale, precomputed.replicas)
            for observation in build_computation_observations(context, combined.each):
                yield from context.progress.observe(observation)
        self.metrics, self.statuses, self.error_class = combined.each, combined.statuses, combined.error_class
        if combined.refused:
            return None, (yield from self._fail(current, combined.error))
        return self._normalize_largest(current, combined), combined.error

    def decide_known(self, scale: Scale, known: PrecomputedDecision) -> int:
        """Return the desired replicas for a precomputed decision, without a request."""
        context = self.context
        self._check_version(None)
        if find_condition(context.status.conditions, "AbleToScale") is None:
            self._record_scale_read(scale)
        else:
            self._record_current_replicas(
                scale
            )  # _normalize replaces this condition; its transition time does not change
        if not context.options.legacy and context.state.selector != scale.status.selector:
            context.remember(selector=scale.status.selector)
        combined = combine_calculated_replicas(context, scale, known.replicas)
        self.metrics, self.statuses = combined.each, combined.statuses
        return self._normalize_largest(scale.spec.replicas, combined)

    def repeat_known(self, known: PrecomputedDecision, proposal: int | None, reason: str) -> None:
        """Take over the result of an earlier reconcile whose conditions and replicas the status already states.

        Only the current values of metrics are updated in the new status. ``proposal``, ``reason``: of the earlier
        result.
        """
        context, scale = self.context, known.scale
        self._check_version(None)
        context.remember(recommendations=known.normalized.recommendations, selector=scale.status.selector)
        self.current = self.desired = scale.spec.replicas
        self.proposal, self.reason, self.normalized = proposal, reason, known.normalized
        self.metrics = proposals = build_proposals(context.hpa, known.replicas, context.options)
        metrics = [each.status for each in proposals]
        context.status = msgspec.structs.replace(context.hpa.status, current_metrics=metrics or None)

    def resize(
        self, target: TargetScale, desired: int, pending: str = ""
    ) -> StepsOf[GetScale | PutScale | WriteStatus | Wait | Emit | Observe, ReconcileResult]:
        """Write the scale, then the status, and return the result.

        ``pending``: an earlier error that does not prevent the write.
        """
        context, current = self.context, target.scale.spec.replicas
        error = yield from self._rescale(target, desired)
        if error:
            context.set_sizes(current, context.status.desired_replicas, self.statuses)
            yield from context.write_status()
            self.error_class = "internal"
            return (yield from self.finish_steps(f"failed to rescale {self._format_target()}: {error}"))
        yield from context.progress.observe(self.settle(current, desired, rescaled=True))
        return (yield from self.finish(pending))

    def settle(self, current: int, desired: int, *, rescaled: bool = False) -> Observation:
        """Record the final replica count in the new status; return the observation of the desired-replicas gauge.

        ``rescaled``: the scale was written now.
        """
        self.context.set_sizes(current, desired, self.statuses, rescaled=rescaled)
        self.desired = desired
        metadata = self.context.hpa.metadata
        labels = {"namespace": metadata.namespace, "hpa_name": metadata.name}
        return Observation(name=DESIRED_REPLICAS, value=float(desired), labels=labels)

    def finish(self, pending: str = "") -> StepsOf[WriteStatus | Emit | Observe, ReconcileResult]:
        """Write the status if it changed, and return the result.

        ``pending``: an earlier error, which the result has if the write succeeds.
        """
        return (yield from self.finish_steps((yield from self.write_status()) or pending))

    def write_status(self) -> StepsOf[WriteStatus | Emit, str]:
        """Write the status if it changed. Returns the formatted error, or an empty string."""
        error = yield from self.context.write_status()
        if not error:
            return ""
        self.error_class = "internal"
        return f"failed to update status for {self.context.hpa.metadata.name}: {error}"

    def _get_minimum(self) -> int:
        """Return the minimum replicas of the spec, by default 1."""
        minimum = self.context.hpa.spec.min_replicas
        return 1 if minimum is None else minimum

    def _format_target(self) -> str:
        """Return the target as ``Kind/namespace/name``."""
        target = self.context.hpa.spec.scale_target_ref
        return f"{target.kind}/{self.context.hpa.metadata.namespace}/{target.name}"

    def _fail(self, current: int, error: str) -> StepsOf[WriteStatus | Emit, str]:
        """Write the status without a decision, emit a warning, and return the error that upstream's sync returns.

        ``current``: replicas of the scale.
        """
        self.context.set_sizes(current, self.context.status.desired_replicas, self.statuses)
        yield from self.context.write_status()
        yield from self.context.warn("FailedComputeMetricsReplicas", error)
        return (
            f"failed to compute desired number of replicas based on listed metrics for {self._format_target()}: {error}"
        )

    def _normalize_largest(self, current: int, combined: CombinedProposal) -> int:
        """Normalize the largest proposal and return the desired replicas.

        A target that leaves zero gets at least the minimum.
        """
        minimum, leaves_zero = self._get_minimum(), current == 0 and self._leaves_zero()
        desired = self._normalize(current, max(combined.replicas, 0), combined.name, minimum)
        if minimum != 0 and leaves_zero and desired < minimum:
            desired = minimum
            self.reason = self.reason or "Current number of replicas below Spec.MinReplicas"
        return desired

    def _normalize(self, current: int, proposal: int, name: str, minimum: int) -> int:
        """Normalize a proposal, store its reason, conditions and recommendations, and return the desired replicas.

        ``name``: the metric that made the proposal; ``minimum``: lowest number of replicas.
        """
        context = self.context
        self.proposal = proposal
        self.reason = explain_change(current, proposal, name)
        spec = context.hpa.spec
        if self.known is not None:
            out = self.known.normalized
        else:
            out = normalize(
                current,
                proposal,
                minimum,
                spec.max_replicas,
                spec.behavior,
                context.state,
                options=context.options,
                now=context.now,
            )
        if context.state.recommendations is not out.recommendations:
            context.remember(recommendations=out.recommendations)
        self.normalized = out
        context.set("AbleToScale", True, *STABILIZED_CONDITIONS[out.stabilized_by])
        context.set("ScalingLimited", out.limited, *SCALING_LIMITED_CONDITIONS[out.limit])
        return out.desired

    def _leaves_zero(self) -> bool:
        """Check whether the controller itself scaled to zero, so that it may scale up again."""
        options, condition = self.context.options, find_condition(self.context.status.conditions, "ScaledToZero")
        is_tracked = options.gates["HPAScaleToZero"] and not options.legacy
        return is_tracked and condition is not None and condition.status == "True"

    def _has_object_metric(self) -> bool:
        """Check whether the spec has an Object or External metric: these can be computed without pods."""
        return any(spec.type in ("Object", "External") for spec in self.context.hpa.spec.metrics or ())

    def _rescale(self, target: TargetScale, desired: int) -> StepsOf[PutScale | GetScale | Wait | Emit, str]:
        """Write the scale, with conditions, event and the stored scale event.

        Returns the error of a permanent failure, else an empty string.
        """
        context, current = self.context, target.scale.spec.replicas
        error = yield from put_scale(context, target, desired)
        if error is not None:
            text = f"{format_rescale(desired, self.reason)}; error: {error.message}"
            yield from context.warn("FailedRescale", text)
            text = f"the HPA controller was unable to update the target scale: {error.message}"
            context.set("AbleToScale", False, "FailedUpdateScale", text)
            return error.message
        self.scale_written = desired
        text = CONDITION_MESSAGES["SucceededRescale"].format(desired=desired)
        context.set("AbleToScale", True, "SucceededRescale", text)
        yield from context.emit_event(RESCALE_EVENT, format_rescale(desired, self.reason))
        behavior = context.hpa.spec.behavior
        up, down = store_scale_event(
            context.state, behavior, current, desired, options=context.options, now=context.now
        )
        context.remember(scale_up_events=up, scale_down_events=down)
        self._set_scaled_to_zero(current, desired)
        self.action = "scale_up" if desired > current else "scale_down"
        return ""

    def _set_scaled_to_zero(self, current: int, desired: int) -> None:
        """Set or remove the condition ScaledToZero after the scale was written."""
        context = self.context
        if context.options.legacy:
            return  # no such condition
        if not context.options.gates["HPAScaleToZero"]:
            context.drop("ScaledToZero")
        elif current > 0 and desired == 0 and context.hpa.spec.min_replicas == 0 and self._has_object_metric():
            context.set("ScaledToZero", True, "ScaledToZero", CONDITION_MESSAGES["ScaledToZero"])
        else:
            context.set("ScaledToZero", False, "NotScaledToZero", CONDITION_MESSAGES["NotScaledToZero"])

    def build_result(self, error: str = "", *, stale: bool = False) -> ReconcileResult:
        """Return the result of the reconcile so far.

        ``error``: message of the error that upstream's sync returns, empty without one. ``stale``: whether nothing was
        done, because the object is older than this controller's last write; only copied into the result.
        """
        context = self.context
        return ReconcileResult(
            namespace=context.hpa.metadata.namespace,
            name=context.hpa.metadata.name,
            current_replicas=self.current,
            desired_replicas=self.desired,
            scale_written=self.scale_written,
            reason=self.reason,
            action=self.action,
            error=error or None,
            error_class=self.error_class,
            stale=stale,
            status=context.status,
            status_written=context.status_written,
            metrics=self.metrics,
            proposal=self.proposal,
            normalized=self.normalized,
            state=context.state,
        )
