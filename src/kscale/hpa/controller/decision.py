"""The decision for one HPA as data and text: metrics, the rule that held it back, conditions, events.

Not in upstream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from kscale.effects import DryRun
from kscale.hpa.controller.behavior import NormalizedReplicas
from kscale.hpa.controller.metric_proposals import (
    MetricError,
    get_metric_source,
    get_tolerances,
    get_value_target,
    to_status_quantity,
)
from kscale.hpa.controller.reconcile import ReconcileResult
from kscale.hpa.controller.replica_calculator import CalculatedReplicas, Tolerances
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import (
    ExternalMetricSource,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerCondition,
    MetricSpec,
    MetricTarget,
    ObjectMetricSource,
    Scale,
)

__all__ = [
    "ConditionText",
    "EventText",
    "HPADecision",
    "MetricDetail",
    "ReconcileSummary",
    "build_decision",
    "describe_target",
    "explain_decision",
]

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_NO_PODS_NOTE: Final = "the target has 0 replicas, so there is no value a pod"
_OVERFLOW_NOTE: Final = "the value does not fit 64 bits"
_LIMIT_FIELDS: Final = {"TooFewReplicas": "minReplicas", "TooManyReplicas": "maxReplicas"}


class EventText(msgspec.Struct, frozen=True, rename="camel"):
    """An event that the controller would emit.

    Attributes
    ----------
    type : str
        ``Normal`` or ``Warning``.
    reason : str
        Reason of the event.
    message : str
        Text of the event.
    """

    type: str
    reason: str
    message: str


class ConditionText(msgspec.Struct, frozen=True, rename="camel"):
    """A condition of the new status of an HPA.

    Attributes
    ----------
    type : str
        ``AbleToScale``, ``ScalingActive`` or ``ScalingLimited``.
    status : str
        ``True``, ``False`` or ``Unknown``.
    reason : str
        Reason of the condition.
    message : str
        Text of the condition.
    last_transition_time : str or None
        Time of the last change of ``status`` (RFC 3339). None: unknown.
    """

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str | None = None


class MetricDetail(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One metric of an HPA, and how its proposal was computed.

    Attributes
    ----------
    name : str
        Name of the metric.
    type : str
        Type of the metric source, such as ``Resource``.
    current : str
        Current value, as a quantity or in percent. Empty: it could not be computed.
    target : str
        Target value, as a quantity or in percent.
    proposal : int or None
        Replicas that the metric proposes. None: there is an ``error``.
    ratio : float or None
        Usage divided by target. None: it was not computed, or is not finite.
    second_ratio : float or None
        The ratio after missing and unready pods were filled in. 0: they were not. None: not finite.
    tolerated : bool
        Whether the ratio is close enough to 1 to keep the replicas.
    direction_held : bool
        Whether the replicas are kept because filling in pods reversed the direction of the change.
    path : list of str
        Branches of the computation, in order.
    groups : dict of str to list of str
        Names of the pods by group, such as ``ready``, ``unready``, ``missing`` and ``ignored``; at most 1,000 each.
    group_counts : dict of str to int
        Number of pods by group.
    error : str or None
        Why there is no proposal. None: there is one.
    note : str
        Explanation if ``proposal`` does not follow from ``current`` and ``target``. Empty: it does.
    """

    name: str
    type: str
    current: str = ""
    target: str = ""
    proposal: int | None = None
    ratio: float | None = None
    second_ratio: float | None = None
    tolerated: bool = False
    direction_held: bool = False
    path: Sequence[str] = ()
    groups: dict[str, Sequence[str]] = {}
    group_counts: dict[str, int] = {}
    error: str | None = None
    note: str = ""

    @property
    def filled_in(self) -> bool:
        """Return whether the proposal counts assumed values of pods that are not ready or have no metrics."""
        return "second_pass" in self.path

    @property
    def overflows(self) -> bool:
        """Return whether the value in the status is not the metric's value but the remainder of an int64 overflow."""
        return self.note.startswith((_NO_PODS_NOTE, _OVERFLOW_NOTE))


class HPADecision(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Decision for one HPA.

    Attributes
    ----------
    namespace : str
        Namespace of the HPA.
    name : str
        Name of the HPA.
    target : str
        Scale target as ``Kind/name``.
    current_replicas : int or None
        Current replicas of the target. None: the scale could not be read.
    desired_replicas : int or None
        Replicas that the HPA wants. None: the reconcile ended with ``error``.
    rescales : bool
        Whether the replicas change.
    reason : str
        Upstream's reason for the new size. Empty: none.
    decided_by : str
        What determined the replicas: a metric with its value and target, a reason, or the error.
    held_back_by : str
        Why the replicas differ from ``proposal``. Empty: they do not.
    proposal : int or None
        Replicas that the metrics propose. None: the metrics decide nothing.
    stabilized : int or None
        Replicas after stabilization. None: the metrics decide nothing.
    limited : str
        Reason of the condition ScalingLimited if it limited the replicas. Empty: it did not.
    error : str or None
        Error that ended the reconcile. None: no error.
    metrics : list of MetricDetail
        The metrics in the order of the spec.
    conditions : list of ConditionText
        Conditions of the new status.
    events : list of EventText
        Events that the controller would emit.
    warnings : list of str
        Texts on doubtful inputs of the decision.
    pod_owners : dict of str to int
        Number of counted pods by owner (``Kind/name``; empty: no owner). Empty unless some of them do not belong to the
        target.
    """

    namespace: str
    name: str
    target: str
    current_replicas: int | None
    desired_replicas: int | None
    rescales: bool
    reason: str
    decided_by: str
    held_back_by: str
    proposal: int | None
    stabilized: int | None
    limited: str
    error: str | None
    metrics: Sequence[MetricDetail]
    conditions: Sequence[ConditionText]
    events: Sequence[EventText]
    warnings: Sequence[str] = ()
    pod_owners: dict[str, int] = {}


def describe_target(hpa: HorizontalPodAutoscaler) -> str:
    """Return the HPA's target as ``Kind/name``."""
    reference = hpa.spec.scale_target_ref
    return f"{reference.kind}/{reference.name}"


class ReconcileSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a reconcile that a decision reports. Built from a step machine's result or from a batch's columns.

    ``metrics``: result of the replica calculator for each metric, or its error. Other fields: see
    :class:`~kscale.hpa.controller.reconcile.ReconcileResult`.
    """

    current_replicas: int | None
    desired_replicas: int | None
    rescales: bool
    reason: str
    proposal: int | None
    normalized: NormalizedReplicas | None
    metrics: Sequence[CalculatedReplicas | MetricError]
    conditions: Sequence[HorizontalPodAutoscalerCondition]
    events: Sequence[EventText]
    error: str | None = None

    @classmethod
    def of_run(cls, run: DryRun[ReconcileResult]) -> ReconcileSummary:
        """Summarize the reconcile of a step machine."""
        result = run.value
        return cls(
            current_replicas=result.current_replicas,
            desired_replicas=result.desired_replicas,
            rescales=result.scale_written is not None,
            reason=result.reason,
            proposal=result.proposal,
            normalized=result.normalized,
            metrics=[each if isinstance(each, MetricError) else each.replicas for each in result.metrics],
            conditions=result.status.conditions or (),
            events=[EventText(each.type, each.reason, each.message) for each in run.events],
            error=result.error,
        )


def build_decision(
    hpa: HorizontalPodAutoscaler,
    row: ReconcileSummary,
    best: int,
    *,
    scale: object,
    options: HPAOptions,
    warnings: Sequence[str] = (),
    pod_owners: dict[str, int] | None = None,
) -> HPADecision:
    """Build the decision of one HPA from the summary ``row`` of its reconcile.

    ``best``: index of the metric with the highest proposal, or -1. ``scale``: the target's scale; any other object if
    the scale could not be read. ``warnings`` and ``pod_owners`` (number of selected pods by owner) are only copied.
    """
    tolerances = get_tolerances(hpa, options)
    details = [
        _build_metric_detail(spec, each, tolerances, scale if isinstance(scale, Scale) else Scale())
        for spec, each in zip(hpa.spec.metrics or (), row.metrics, strict=False)
    ]
    decisive = details[best] if 0 <= best < len(details) else None
    limited = ""
    if row.normalized is not None and row.normalized.limited:
        limited = next((each.reason for each in row.conditions if each.type == "ScalingLimited"), "")
    return HPADecision(
        namespace=hpa.metadata.namespace,
        name=hpa.metadata.name,
        target=describe_target(hpa),
        current_replicas=row.current_replicas,
        desired_replicas=row.desired_replicas,
        rescales=row.rescales,
        reason=row.reason,
        decided_by=_explain_decided_by(row, decisive),
        held_back_by=_explain_held_back_by(hpa, row, limited, decisive),
        proposal=row.proposal,
        stabilized=None if row.normalized is None else row.normalized.stabilized,
        limited=limited,
        error=row.error,
        metrics=details,
        conditions=[
            ConditionText(each.type, each.status, each.reason, each.message, each.last_transition_time)
            for each in row.conditions
        ],
        events=row.events,
        warnings=warnings,
        pod_owners=pod_owners or {},
    )


_GROUPS_NOT_READY: Final = ("unready", "missing", "ignored")
_USUAL_STATUS: Final = {"AbleToScale": "True", "ScalingActive": "True", "ScalingLimited": "False"}
"""Status of each condition of an HPA that nothing limits or prevents from scaling."""


def explain_decision(decision: HPADecision) -> str:
    """Explain a decision in one line: replicas, decisive metric, proposals, limits, unusual conditions and warnings."""
    current = "?" if decision.current_replicas is None else f"{decision.current_replicas:,}"
    if decision.desired_replicas is None:
        parts = [f"stays at {current}, not decided: {decision.error or decision.decided_by}"]
    else:
        size = f"{current} -> {decision.desired_replicas:,}" if decision.rescales else f"stays at {current}"
        parts = [f"{size}: {decision.decided_by}"]
    for metric in decision.metrics:
        if text := _explain_proposal(metric, decision):
            parts.append(f"{metric.name}: {text}" if len(decision.metrics) > 1 else text)
    if decision.held_back_by:
        parts.append(f"held back by {decision.held_back_by}")
    for each in decision.conditions:
        if each.status != _USUAL_STATUS.get(each.type, each.status):
            parts.append(f"{each.type} is {each.status} ({each.reason})")
    return "; ".join([*parts, *decision.warnings])


def _explain_proposal(metric: MetricDetail, decision: HPADecision) -> str:
    """Return how the proposal of a metric was computed, or the metric's error.

    Empty if the metric has neither, or if the decision's error contains the metric's error.
    """
    if metric.error is not None:
        return "" if metric.error in (decision.error or "") else metric.error
    if metric.proposal is None:
        return ""
    parts = []
    if metric.ratio is not None:
        parts.append(f"ratio {metric.ratio:.4g}")
    if "ready" in metric.group_counts:
        count = metric.group_counts["ready"]
        parts.append(f"{count:,} ready {'pod' if count == 1 else 'pods'}")
        parts += [f"{count:,} {group}" for group in _GROUPS_NOT_READY if (count := metric.group_counts.get(group, 0))]
    if metric.filled_in and metric.second_ratio is not None:
        parts.append(f"ratio {metric.second_ratio:.4g} with pods not ready or not measured")
    # The line of a deciding metric mentions the tolerance already.
    if metric.tolerated and not decision.decided_by.startswith(f"{metric.name} "):
        parts.append("within tolerance")
    return f"{', '.join(parts)}: proposes {metric.proposal:,}" if parts else f"proposes {metric.proposal:,}"


def _explain_decided_by(row: ReconcileSummary, best: MetricDetail | None) -> str:
    """Return what determined the replicas: the metric ``best`` with its value and target, a reason, or the error."""
    if row.desired_replicas is None:
        return row.error or ""
    if row.proposal is None:
        return row.reason or "target is at 0 replicas"
    if best is None:
        return row.reason
    tolerance = "within tolerance" if best.tolerated and not best.filled_in else ""
    texts = "; ".join(filter(None, (tolerance, best.note)))
    value = "?" if best.overflows else best.current
    return f"{best.name} {value} of {best.target}{f' ({texts})' if texts else ''}"


def _explain_held_back_by(
    hpa: HorizontalPodAutoscaler, row: ReconcileSummary, limited: str, decisive: MetricDetail | None
) -> str:
    """Return why the replicas differ from what the metrics propose; empty if they do not, or without a proposal.

    Pods not ready or without metrics that changed the decisive metric's result count as a reason. ``limited``: reason
    of the condition ScalingLimited, or empty. ``decisive``: metric with the highest proposal.
    """
    if row.normalized is None or row.proposal is None:
        return ""
    parts = []
    if decisive is not None and decisive.tolerated and decisive.filled_in:
        parts.append(f"pods not ready or not measured: with them {decisive.name} is within tolerance")
    if decisive is not None and decisive.direction_held:
        parts.append(f"pods not ready or not measured: with them {decisive.name} asks for the other direction")
    if row.normalized.stabilized != row.proposal:
        up = row.normalized.stabilized_by == 1
        parts.append(f"{'scaleUp' if up else 'scaleDown'} stabilization (wanted {row.proposal})")
    if limited:
        wanted = row.normalized.stabilized
        if limited in _LIMIT_FIELDS:
            bound = hpa.spec.max_replicas if limited == "TooManyReplicas" else hpa.spec.min_replicas
            parts.append(f"{_LIMIT_FIELDS[limited]} {bound} (wanted {wanted})")
        else:
            parts.append(f"{_describe_policy(hpa, limited)} (wanted {wanted})")
    return "; ".join(parts)


def _describe_policy(hpa: HorizontalPodAutoscaler, limited: str) -> str:
    """Return a text about the rules of ``spec.behavior`` that limited the speed of a change.

    ``limited`` is the reason of the condition ScalingLimited: ``ScaleUpLimit`` selects the rules for scale-up, any
    other reason those for scale-down. The caller handles ``minReplicas`` and ``maxReplicas``.

    Examples: ``scaleUp policy: 4 pods per 60 s or 100% per 60 s`` (``and`` if the policy with the least change is
    selected), ``scaleDown disabled``, and, without ``spec.behavior``, ``at most twice the size, or 4, at once``.
    """
    behavior, up = hpa.spec.behavior, limited == "ScaleUpLimit"
    if behavior is None:
        return "at most twice the size, or 4, at once"
    rules = behavior.scale_up if up else behavior.scale_down
    side = "scaleUp" if up else "scaleDown"
    if rules is None or rules.select_policy == "Disabled":
        return f"{side} disabled"
    texts = [
        f"{each.value}{_format_unit(each.type, each.value)} per {each.period_seconds} s"
        for each in rules.policies or ()
    ]
    return f"{side} policy: {(' or ' if rules.select_policy != 'Min' else ' and ').join(texts)}"


def _build_metric_detail(
    spec: MetricSpec, metric: CalculatedReplicas | MetricError, tolerances: Tolerances, scale: Scale
) -> MetricDetail:
    """Build the explanation of one metric, with at most 1,000 names of pods per group.

    ``metric``: the calculator's result or an error.
    """
    name, target, resource = _get_metric_names(spec)
    replicas, error = (metric.replicas, metric.error) if isinstance(metric, MetricError) else (metric, None)
    wanted = _format_target(target)
    if replicas is None:
        return MetricDetail(name=name, type=spec.type, target=wanted, error=error)
    source = None if error else get_metric_source(spec)
    per_pod = total = False
    if isinstance(source, (ObjectMetricSource, ExternalMetricSource)):
        per_pod = get_value_target(source)[0].endswith("per_pod")
        total = not per_pod
    tolerated = not error and _is_tolerated(replicas, tolerances, per_pod=per_pod)
    current = (
        f"{replicas.utilization}%"
        if replicas.utilization is not None
        else str(to_status_quantity(replicas.usage, resource))
    )
    return MetricDetail(
        name=name,
        type=spec.type,
        current="" if error else current,
        target=wanted,
        proposal=None if error else replicas.replicas,
        ratio=_finite_or_none(replicas.ratio),
        second_ratio=_finite_or_none(replicas.second_ratio),
        tolerated=tolerated,
        direction_held=not error and _is_direction_held(replicas, tolerances),
        path=replicas.path,
        groups={group: names[:1000] for group, names in replicas.groups.items()},
        group_counts={group: len(names) for group, names in replicas.groups.items()},
        error=error,
        note=""
        if error
        else _explain_metric(replicas, tolerances, scale, per_pod=per_pod, total=total, tolerated=tolerated),
    )


def _explain_metric(
    replicas: CalculatedReplicas, tolerances: Tolerances, scale: Scale, *, per_pod: bool, total: bool, tolerated: bool
) -> str:
    """Return a note if the value overflows, or if value and target do not explain the proposal; otherwise empty.

    ``per_pod``, ``total``: whether the metric is an Object or External metric that is compared per pod, or as a total.
    ``tolerated``: result of :func:`_is_tolerated`.
    """
    current, status = scale.spec.replicas, scale.status.replicas
    if per_pod and status == 0:
        return f"{_NO_PODS_NOTE}; the status shows {to_status_quantity(replicas.usage)}"
    if replicas.usage in (_INT64_MIN, _INT64_MAX):
        return f"{_OVERFLOW_NOTE}; the status shows {to_status_quantity(replicas.usage)}"
    if per_pod and tolerated and status != current:
        return f"a value a pod keeps the {status} replicas of the target's status, its spec has {current}"
    if tolerated or replicas.replicas != current or _is_direction_held(replicas, tolerances):
        return ""
    ratio = replicas.second_ratio if "second_pass" in replicas.path else replicas.ratio
    if ratio == 1 or _finite_or_none(ratio) is None:
        return ""
    pods = status if per_pod else len(replicas.groups.get("ready", ()))
    if total:
        return f"ratio {ratio:.4g}, rounded up to {current}"
    if "second_pass" in replicas.path:
        return f"ratio {ratio:.4g} with pods not ready or not measured, rounded up to {current}"
    return f"{pods} pods x {ratio:.4g} = {pods * ratio:.4g}, rounded up to {current}"


def _is_tolerated(replicas: CalculatedReplicas, tolerances: Tolerances, *, per_pod: bool) -> bool:
    """Check whether the metric proposes to keep the replicas because the ratio is within the tolerance.

    ``per_pod``: as in :func:`_explain_metric`.
    """
    if "hold_first_pass" in replicas.path:
        return True
    if "hold_second_pass" in replicas.path:
        return tolerances.contains(replicas.second_ratio)
    # A metric with a value per pod has a single ratio and no second pass.
    return per_pod and tolerances.contains(replicas.ratio)


def _is_direction_held(replicas: CalculatedReplicas, tolerances: Tolerances) -> bool:
    """Check whether the replicas are kept because filling in pods reversed the direction."""
    if "hold_second_pass" in replicas.path:
        return not tolerances.contains(replicas.second_ratio)
    return "hold_count_direction" in replicas.path


def _finite_or_none(value: float) -> float | None:
    """Return the number; None for an infinite one or NaN."""
    return value if value - value == 0 else None


def _get_metric_names(spec: MetricSpec) -> tuple[str, MetricTarget | None, str]:
    """Return a metric's short name for texts, its target, and its resource.

    The target is None if the metric has no source. The resource is empty unless the metric is of a resource.
    """
    if spec.resource is not None:
        return spec.resource.name, spec.resource.target, spec.resource.name
    if spec.container_resource is not None:
        source = spec.container_resource
        return f"{source.container}/{source.name}", source.target, source.name
    if spec.pods is not None:
        return spec.pods.metric.name, spec.pods.target, ""
    if spec.object is not None:
        described = spec.object.described_object
        return f"{spec.object.metric.name} of {described.kind}/{described.name}", spec.object.target, ""
    if spec.external is not None:
        return spec.external.metric.name, spec.external.target, ""
    return spec.type, None, ""


def _format_target(target: MetricTarget | None) -> str:
    """Format the field of a target that is set, such as ``80%`` or ``500m a pod``; empty if none is set."""
    if target is None:
        return ""
    if target.average_utilization is not None:
        return f"{target.average_utilization}%"
    if target.average_value is not None:
        return f"{target.average_value} a pod"
    return "" if target.value is None else str(target.value)


def _format_unit(type_: str, value: int) -> str:
    """Return the unit of a scaling policy's value, with a leading space for pods."""
    if type_ == "Percent":
        return "%"
    return " pod" if value == 1 else " pods"
