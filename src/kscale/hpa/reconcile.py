"""One reconcile of one HorizontalPodAutoscaler, as a step machine without I/O.

Reads in upstream's order (``reconcileKey``, ``reconcileAutoscaler`` in ``horizontal.go``):

1. the queue hands over a key (:mod:`kscale.drivers.horizontal`); is the object fresh (``stale``)?
2. find and get the target's scale (``_get_scale``); are metrics needed at all (``run``)?
3. the selector, and who else selects these pods (``_check_selector``, :mod:`~kscale.hpa.selector_store`);
4. every metric (``_compute``, :mod:`~kscale.hpa.metric_sources`, :mod:`~kscale.hpa.metrics_client`);
5. the calculator (:mod:`~kscale.hpa.replica_calculator`, :mod:`~kscale.hpa.pod_groups`);
6. normalisation (``_decide``, :mod:`~kscale.hpa.behavior`);
7. the scale update (``_rescale``), and the status (``_set_status``, ``_write_status``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from kscale.hpa.actions import Action, Failure, GetScale, ListPods, Outcome, PutScale, WriteStatus
from kscale.hpa.behavior import Normalized, normalize, store_event
from kscale.hpa.conditions import LIMITS, STABILIZED, Event, find, remove, set_condition
from kscale.hpa.metric_sources import MetricError, MetricProposal, Target, compute, tolerances_of
from kscale.hpa.metrics_client import RESTMetricsClient
from kscale.hpa.moments import Moment, moment, to_text
from kscale.hpa.options import HPAOptions
from kscale.hpa.records import MetricObservation, Reconciliation
from kscale.hpa.replica_calculator import MetricsClient, ReplicaCalculator
from kscale.hpa.selector_store import SelectorStore
from kscale.hpa.state import HPAState, Recommendation, Written, is_older
from kscale.objects.autoscaling import (
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerStatus,
    MetricStatus,
    Scale,
)
from kscale.objects.core import Pod
from kscale.objects.rest_mapping import RESTMapper, RESTMappingError, parse_group_version
from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import SelectorError

__all__ = ["Reconciling", "reconcile", "run"]

Reconciling = Generator[Action, Outcome, Reconciliation]

_ATTEMPTS: Final = 5
_RETRY_DELAY: Final = 0.01
_UNABLE: Final = "the HPA was unable to compute the replica count: "


def reconcile(
    hpa: HorizontalPodAutoscaler,
    state: HPAState,
    *,
    now: Moment,
    options: HPAOptions | None = None,
    selectors: SelectorStore | None = None,
    mapper: RESTMapper | None = None,
    seen_version: str | None = None,
    metrics: MetricsClient | None = None,
) -> Reconciling:
    """Reconcile a v2 object (defaulted, not validated) from ``state`` at ``now``.

    ``selectors`` is where other HPAs' selectors are looked up; this one's is stored in it if it is registered there.
    ``seen_version`` is the newest resource version that the HPA informer has seen (None: up to date). Nothing that is
    passed in is changed, but for ``selectors``.
    """
    pass_ = _Pass(
        hpa=hpa,
        state=state,
        now=moment(now),
        options=options or HPAOptions(),
        selectors=selectors,
        mapper=mapper or RESTMapper(),
        metrics=metrics or RESTMetricsClient(),
        status=hpa.status,
    )
    if error := pass_.stale(seen_version):
        return pass_.result(error, stale=True)
    return (yield from pass_.run())


def run(machine: Reconciling, answer: Callable[[Action], Outcome]) -> Reconciliation:
    """Drive a reconcile: every action is answered by a function."""
    try:
        action = next(machine)
        while True:
            action = machine.send(answer(action))
    except StopIteration as stop:
        result: Reconciliation = stop.value
        return result


@dataclass(slots=True)
class _Pass:
    """What one reconcile knows so far."""

    hpa: HorizontalPodAutoscaler
    state: HPAState
    now: int
    options: HPAOptions
    selectors: SelectorStore | None
    mapper: RESTMapper
    metrics: MetricsClient
    status: HorizontalPodAutoscalerStatus
    events: list[Event] = field(default_factory=list)
    observations: list[MetricObservation] = field(default_factory=list)
    proposals: list[MetricProposal | MetricError] = field(default_factory=list)
    normalized: Normalized | None = None
    proposal: int | None = None
    action: str = "none"
    error_class: str = "none"
    desired: int | None = None
    current: int | None = None
    scale_written: int | None = None
    reason: str = ""
    status_written: bool = False
    gauge: int | None = None

    # -- the order of things ---------------------------------------------------------------------------------------

    def run(self) -> Reconciling:
        ref = self.hpa.spec.scale_target_ref
        reference = f"{ref.kind}/{self.hpa.metadata.namespace}/{ref.name}"
        scale, resource, error = yield from self._get_scale(reference)
        if scale is None:
            return self.result(error)
        self._set(
            "AbleToScale", True, "SucceededGetScale", "the HPA controller was able to get the target's current scale"
        )
        current = self.current = scale.spec.replicas
        if self.state.recommendations is None:
            self._remember(recommendations=(Recommendation(current, self.now),))

        minimum = 1 if self.hpa.spec.min_replicas is None else self.hpa.spec.min_replicas
        maximum = self.hpa.spec.max_replicas
        desired, rescale, pending = current, True, ""
        statuses: list[MetricStatus] = []
        to_zero = self._may_leave_zero()
        if current == 0 and not ((minimum != 0 and to_zero) or (to_zero and self._has_object_metric())):
            desired, rescale = 0, False
            text = "scaling is disabled since the replica count of the target is zero"
            self._set("ScalingActive", False, "ScalingDisabled", text)
            if not self.options.enabled("HPAScaleToZero"):
                self._drop("ScaledToZero")
        elif current != 0 and current > maximum:
            desired, self.reason = maximum, "Current number of replicas above Spec.MaxReplicas"
        elif current != 0 and current < minimum:
            desired, self.reason = minimum, "Current number of replicas below Spec.MinReplicas"
        else:
            proposal, name, statuses, pending = yield from self._compute(scale)
            if pending and proposal == -1:
                return (yield from self._fail_metrics(reference, current, statuses, pending))
            desired = self._decide(current, max(proposal, 0), name, minimum, maximum)
            if current == 0 and minimum != 0 and to_zero and desired < minimum:
                desired = minimum
                self.reason = self.reason or "Current number of replicas below Spec.MinReplicas"
            rescale = desired != current

        if rescale:
            error = yield from self._rescale(scale, resource, current, desired, minimum)
            if error:
                self._set_status(current, self.status.desired_replicas, statuses)
                yield from self._write_status()
                self.error_class = "internal"
                return self.result(f"failed to rescale {reference}: {error}")
        else:
            desired = current
        self._set_status(current, desired, statuses, rescaled=rescale)
        self.desired = self.gauge = desired
        error = yield from self._write_status()
        if error:
            self.error_class = "internal"
            return self.result(f"failed to update status for {self.hpa.metadata.name}: {error}")
        return self.result(pending)

    def result(self, error: str, *, stale: bool = False) -> Reconciliation:
        """The record of this pass."""
        return Reconciliation(
            namespace=self.hpa.metadata.namespace,
            name=self.hpa.metadata.name,
            current_replicas=self.current,
            desired_replicas=self.desired,
            scale_written=self.scale_written,
            reason=self.reason,
            action=self.action,
            error=error or None,
            error_class=self.error_class,
            stale=stale,
            events=tuple(self.events),
            status=self.status,
            status_written=self.status_written,
            metrics=tuple(self.proposals),
            proposal=self.proposal,
            normalized=self.normalized,
            observations=tuple(self.observations),
            desired_replicas_gauge=self.gauge,
            state=self.state,
        )

    # -- the object and its target ---------------------------------------------------------------------------------

    def stale(self, seen_version: str | None) -> str:
        """The error of an object older than what this controller wrote; a fresh one clears the record."""
        written = self.state.written
        if written is None or written.uid != self.hpa.metadata.uid:
            return ""
        if seen_version is not None and is_older(seen_version, written.resource_version):
            return (
                f"read version: {seen_version} is not as new as written version: {written.resource_version} "
                "for group resource horizontalpodautoscalers.autoscaling"
            )
        self._remember(written=None)
        return ""

    def _get_scale(self, reference: str) -> Generator[Action, Outcome, tuple[Scale | None, str, str]]:
        """(scale, its group-resource, error)."""
        ref = self.hpa.spec.scale_target_ref
        try:
            group, _ = parse_group_version(ref.api_version)
        except RESTMappingError as error:
            self.error_class = "spec"
            yield from self._fail_get_scale(str(error))
            return None, "", f"invalid API version in scale target reference: {error}"
        self.error_class = "internal"  # until a scale is found
        try:
            resources = self.mapper.resources(group, ref.kind)
        except RESTMappingError as error:
            yield from self._fail_get_scale(str(error))
            return None, "", f"unable to determine resource for scale target reference: {error}"
        first = "unrecognized resource"
        for i, resource in enumerate(resources):
            answer = yield GetScale(namespace=self.hpa.metadata.namespace, resource=resource, name=ref.name)
            if isinstance(answer, Scale):
                self.error_class = "none"
                return answer, resource, ""
            if i == 0:
                first = _message(answer)
        yield from self._fail_get_scale(first)
        return None, "", f"failed to query scale subresource for {reference}: {first}"

    def _fail_get_scale(self, error: str) -> Generator[Action, Outcome, None]:
        self._tell("Warning", "FailedGetScale", error)
        text = f"the HPA controller was unable to get the target's current scale: {error}"
        self._set("AbleToScale", False, "FailedGetScale", text)
        yield from self._write_status()

    # -- metrics ---------------------------------------------------------------------------------------------------

    def _check_selector(self, text: str) -> Generator[Action, Outcome, str]:
        """An error where the pods cannot be told, or are not this HPA's alone."""
        if not text:
            self._tell("Warning", "SelectorRequired", "selector is required")
            self._set("ScalingActive", False, "InvalidSelector", "the HPA target's scale is missing a selector")
            return "selector is required"
        namespace, name = self.hpa.metadata.namespace, self.hpa.metadata.name
        try:
            selector = parse_selector(text)
        except SelectorError as error:
            message = f"couldn't convert selector into a corresponding internal selector object: {error}"
            self._tell("Warning", "InvalidSelector", message)
            self._set("ScalingActive", False, "InvalidSelector", message)
            return message
        stored = self.state.registered
        if stored and self.selectors is not None:
            stored = self.selectors.put_if_present(namespace, name, text)
        if not stored:
            return f"HPA {namespace}/{name} was deleted during reconciliation"
        self._remember(selector=text)
        pods = yield ListPods(namespace=namespace, selector=text)
        if isinstance(pods, Failure):
            return pods.message
        if self.selectors is None:
            return ""
        limit = 2 if self.options.enabled("HPAOptimizedSelectorStore") else 0
        names = self.selectors.matching(namespace, [pod.metadata.labels for pod in _pods(pods)], limit)
        if len(names) < 2:
            return ""
        rivals = " ".join(f"{namespace}/{each}" for each in names)
        message = f"pods by selector {selector} are controlled by more than one HPA (e.g. [{rivals}])"
        self._tell("Warning", "AmbiguousSelector", message)
        self._set("ScalingActive", False, "AmbiguousSelector", message)
        return message

    def _compute(self, scale: Scale) -> Generator[Action, Outcome, tuple[int, str, list[MetricStatus], str]]:
        """(largest proposal or -1, the name of its metric, statuses, error) of all metrics."""
        error = yield from self._check_selector(scale.status.selector)
        if error:
            self.error_class = "internal"
            return -1, "", [], error
        specs = self.hpa.spec.metrics or []
        target = Target(self.hpa.metadata.namespace, scale.status.selector, scale.spec.replicas, scale.status.replicas)
        calculator = ReplicaCalculator(self.metrics, self.now, self.options)
        tolerances = tolerances_of(self.hpa, self.options)
        best, best_name, failed = 0, "", []
        statuses = [MetricStatus() for _ in specs]
        for i, spec in enumerate(specs):
            proposal = yield from compute(spec, target, calculator, tolerances)
            self.proposals.append(proposal)
            self._observe(spec.type, proposal)
            if isinstance(proposal, MetricError):
                self._tell("Warning", proposal.reason, proposal.message)
                failed.append(proposal)
                continue
            statuses[i] = proposal.status
            replicas = proposal.replicas.replicas
            if best == 0 or replicas > best:
                best, best_name = replicas, proposal.name
        error = ""
        if failed:
            self.error_class = "spec" if failed[0].invalid else "internal"
            error = f"invalid metrics ({len(failed)} invalid out of {len(specs)}), first error is: {failed[0].error}"
        if len(failed) >= len(specs) or (failed and best < scale.spec.replicas):
            if failed:
                self._set("ScalingActive", False, failed[0].reason, f"{_UNABLE}{failed[0].message}")
            return -1, "", statuses, error or "invalid metrics (0 invalid out of 0), first error is: %!w(<nil>)"
        text = f"the HPA was able to successfully calculate a replica count from {best_name}"
        self._set("ScalingActive", True, "ValidMetricFound", text)
        return best, best_name, statuses, error

    def _fail_metrics(self, reference: str, current: int, statuses: Sequence[MetricStatus], error: str) -> Reconciling:
        self._set_status(current, self.status.desired_replicas, statuses)
        yield from self._write_status()
        self._tell("Warning", "FailedComputeMetricsReplicas", error)
        return self.result(
            f"failed to compute desired number of replicas based on listed metrics for {reference}: {error}"
        )

    def _observe(self, type_: str, proposal: MetricProposal | MetricError) -> None:
        if isinstance(proposal, MetricError):
            self.observations.append(MetricObservation(type_, "none", "spec" if proposal.invalid else "internal"))
            return
        # Against the size of the last status, not of the scale.
        before, wanted = self.hpa.status.current_replicas, proposal.replicas.replicas
        action = "scale_up" if wanted > before else "scale_down" if wanted < before else "none"
        self.observations.append(MetricObservation(type_, action, "none"))

    # -- the size --------------------------------------------------------------------------------------------------

    def _decide(self, current: int, proposal: int, name: str, minimum: int, maximum: int) -> int:
        self.proposal = proposal
        if proposal > current:
            self.reason = f"{name} above target"
        elif proposal < current:
            self.reason = "All metrics below target"
        self.normalized = out = normalize(
            current, proposal, minimum, maximum, self.hpa.spec.behavior, self.state, options=self.options, now=self.now
        )
        self._remember(recommendations=out.recommendations)
        self._set("AbleToScale", True, *STABILIZED[out.held])
        self._set("ScalingLimited", out.limited, *LIMITS[out.limit])
        return out.desired

    def _may_leave_zero(self) -> bool:
        condition = find(self.status.conditions, "ScaledToZero")
        return self.options.enabled("HPAScaleToZero") and condition is not None and condition.status == "True"

    def _has_object_metric(self) -> bool:
        return any(spec.type in ("Object", "External") for spec in self.hpa.spec.metrics or ())

    def _rescale(
        self, scale: Scale, resource: str, current: int, desired: int, minimum: int
    ) -> Generator[Action, Outcome, str]:
        """Write the scale; the error if that fails for good."""
        namespace, name = self.hpa.metadata.namespace, self.hpa.spec.scale_target_ref.name
        error: Failure | None = None
        for attempt in range(1, _ATTEMPTS + 1):
            delay = 0.0 if attempt == 1 else _RETRY_DELAY
            answer = yield PutScale(
                namespace=namespace, resource=resource, scale=scale, replicas=desired, attempt=attempt, delay=delay
            )
            if not isinstance(answer, Failure):
                error = None
                break
            error = answer
            again = yield GetScale(namespace=namespace, resource=resource, name=name, retry=True)
            if isinstance(again, Scale):
                scale = again
            if error.reason != "Conflict":
                break
        if error is not None:
            text = f"New size: {desired}; reason: {self.reason}; error: {error.message}"
            self._tell("Warning", "FailedRescale", text)
            text = f"the HPA controller was unable to update the target scale: {error.message}"
            self._set("AbleToScale", False, "FailedUpdateScale", text)
            return error.message
        self.scale_written = desired
        text = f"the HPA controller was able to update the target scale to {desired}"
        self._set("AbleToScale", True, "SucceededRescale", text)
        self._tell("Normal", "SuccessfulRescale", f"New size: {desired}; reason: {self.reason}")
        up, down = store_event(self.state, self.hpa.spec.behavior, current, desired, options=self.options, now=self.now)
        self._remember(scale_up_events=up, scale_down_events=down)
        self._mark_zero(current, desired, minimum)
        self.action = "scale_up" if desired > current else "scale_down"
        return ""

    def _mark_zero(self, current: int, desired: int, minimum: int) -> None:
        if not self.options.enabled("HPAScaleToZero"):
            self._drop("ScaledToZero")
        elif current > 0 and desired == 0 and minimum == 0 and self._has_object_metric():
            self._set("ScaledToZero", True, "ScaledToZero", "the HPA controller scaled the workload to zero")
        else:
            self._set("ScaledToZero", False, "NotScaledToZero", "the HPA controller did not scale the workload to zero")

    # -- status ----------------------------------------------------------------------------------------------------

    def _set_status(
        self, current: int, desired: int, statuses: Sequence[MetricStatus], *, rescaled: bool = False
    ) -> None:
        generation = self.hpa.metadata.generation or 0
        self.status = HorizontalPodAutoscalerStatus(
            observed_generation=generation if self.options.enabled("HPAGeneration") else None,
            last_scale_time=to_text(self.now) if rescaled else self.status.last_scale_time,
            current_replicas=current,
            desired_replicas=desired,
            current_metrics=list(statuses) or None,
            conditions=self.status.conditions,
        )

    def _write_status(self) -> Generator[Action, Outcome, str]:
        """Write the status if it says anything new; the error's text if that fails."""
        if _normal(self.status) == _normal(self.hpa.status):
            return ""
        answer = yield WriteStatus(hpa=msgspec.structs.replace(self.hpa, status=self.status))
        if isinstance(answer, Failure):
            self._tell("Warning", "FailedUpdateStatus", answer.message)
            return answer.message
        self.status_written = True
        if isinstance(answer, str) and self.options.enabled("StaleControllerConsistencyHPA"):
            self._record_write(answer)
        return ""

    def _record_write(self, version: str) -> None:
        uid, old = self.hpa.metadata.uid, self.state.written
        if old is None or old.uid != uid or is_older(old.resource_version, version):
            self._remember(written=Written(uid, version))

    def _set(self, type_: str, status: bool, reason: str, message: str) -> None:
        conditions = set_condition(self.status.conditions or (), type_, status, reason, message, self.now)
        self.status = msgspec.structs.replace(self.status, conditions=conditions)

    def _drop(self, type_: str) -> None:
        self.status = msgspec.structs.replace(self.status, conditions=remove(self.status.conditions or (), type_))

    def _tell(self, type_: str, reason: str, message: str) -> None:
        self.events.append(Event(type_, reason, message))

    def _remember(self, **changes: object) -> None:
        self.state = msgspec.structs.replace(self.state, **changes)


def _normal(status: HorizontalPodAutoscalerStatus) -> HorizontalPodAutoscalerStatus:
    """Absent and empty lists are the same to upstream's comparison."""
    return msgspec.structs.replace(
        status, current_metrics=status.current_metrics or None, conditions=status.conditions or None
    )


def _message(answer: Outcome) -> str:
    if not isinstance(answer, Failure):
        raise TypeError(f"a scale is answered with a Scale or a Failure, not {type(answer).__name__}")
    return answer.message


def _pods(answer: Outcome) -> Sequence[Pod]:
    return answer  # type: ignore[return-value]  # what ListPods is answered with
