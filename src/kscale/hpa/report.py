"""What the HPAs of a dump would do, as a document. kscale's own, of decisions that are upstream's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from kscale.effects import DryRun, Moment, moment, to_text
from kscale.hpa.calculation import Replicas, Tolerances
from kscale.hpa.dump import Dump
from kscale.hpa.keda import Pause
from kscale.hpa.metric_sources import MetricError, source_of, status_quantity, tolerances_of, value_target
from kscale.hpa.options import HPAOptions
from kscale.hpa.pod_owners import PodOwners, counts_pods
from kscale.hpa.records import Reconciliation
from kscale.hpa.state import ControllerState
from kscale.objects.autoscaling import (
    ExternalMetricSource,
    HorizontalPodAutoscaler,
    MetricSpec,
    MetricTarget,
    ObjectMetricSource,
    Scale,
)
from kscale.objects.selectors import SelectorError
from kscale.records import Record
from kscale.snapshot.collector import collector_paused

__all__ = ["HPADecision", "HPAReport", "MetricDetail", "PausedScaledObject", "hpa_report"]

_OWNERS_SHOWN: Final = 5
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_NO_PODS: Final = "the target has 0 replicas, so there is no value a pod"
_OVERFLOW: Final = "the value does not fit 64 bits"
_LIMITS: Final = {"TooFewReplicas": "minReplicas", "TooManyReplicas": "maxReplicas"}


class EventText(msgspec.Struct, frozen=True, rename="camel"):
    """An event that the controller would emit."""

    type: str
    reason: str
    message: str


class ConditionText(msgspec.Struct, frozen=True, rename="camel"):
    """A condition of the new status."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str | None = None


class MetricDetail(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One metric and how its proposal came: pods by group (at most 1,000 names each), ratios, branches, or its error.

    ``current`` and ``target`` are texts; ``ratio`` is usage over target, ``second_ratio`` after missing and unready
    pods were filled in (0: they were not). ``tolerated``: near enough to the target to leave the size as it is;
    ``direction_held``: left as it is because filling pods in turned the direction.
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
    """What explains a proposal or a value that ``current`` and ``target`` alone do not."""

    @property
    def filled_in(self) -> bool:
        """Whether it was decided with missing or unready pods filled in."""
        return "second_pass" in self.path

    @property
    def overflows(self) -> bool:
        """Whether the value in the status is no number of the metric, but what is left of one that does not fit."""
        return self.note.startswith((_NO_PODS, _OVERFLOW))


class HPADecision(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What one HPA would do. ``desired_replicas`` is absent where it would do nothing because of ``error``.

    ``limited`` is the reason of ScalingLimited where that held the size back, ``stabilized`` that of AbleToScale.
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
    """What a reader must know about the inputs of the decision, in words."""
    pod_owners: dict[str, int] = {}
    """How many of the counted pods belong to whom (``Kind/name``; empty: nobody); only if some belong to others."""


class PausedScaledObject(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A ScaledObject that is paused, so that KEDA deletes its HPA ``hpa``.

    ``target`` (``Kind/name``) keeps its size, or KEDA sets it to ``replicas``; ``error``: why KEDA does neither.
    """

    namespace: str
    name: str
    hpa: str
    target: str
    replicas: int | None = None
    error: str = ""


class HPAReport(Record, frozen=True):
    """What the HPAs of a dump would do at ``now``.

    ``state_mode`` says what was taken for the past: ``settled`` (nothing of it holds a size back), ``fresh`` (the
    controller has just started) or ``given``. ``now`` is absent where the input holds no time. ``state`` is the next
    state, to pass on: of every HPA of the dump, shown or not, and of those of the given state that are not in the dump.
    ``without_state``: HPAs that are not in the given state, taken as if the controller had just seen them.

    ``missing``: what is not in the input and matters, in words. ``unmodelled``: what of an object is not taken into
    account, by its kind and ``namespace/name``, of the HPAs that are shown (of all of them: of every ScaledObject too).
    ``duplicates``: objects of the input that came more than once (kind and ``namespace/name``), shown or not: the last
    one counts. ``paused``: ScaledObjects that are paused: no HPA of theirs decides anything. ``assumed``: what is
    assumed of a target's scale because its CustomResourceDefinition is not in the input, by the HPA's
    ``namespace/name``. Each is empty where there is nothing to tell.
    """

    KIND = "HPAReport"
    now: str | None
    state_mode: str
    hpas: Sequence[HPADecision]
    missing: Sequence[str]
    unmodelled: dict[str, list[str]]
    duplicates: Sequence[str]
    state: ControllerState
    without_state: Sequence[str] = ()
    paused: Sequence[PausedScaledObject] = ()
    assumed: dict[str, str] = msgspec.field(default_factory=dict)


@collector_paused()
def hpa_report(
    dump: Dump,
    hpas: Sequence[HorizontalPodAutoscaler] | None = None,
    *,
    state: ControllerState | None = None,
    fresh: bool = False,
    now: datetime | Moment | None = None,
    options: HPAOptions | None = None,
    threads: int = 1,
) -> HPAReport:
    """Decide for all HPAs of a dump and tell everything about ``hpas`` of it (None: all).

    ``state`` None: settled, or with ``fresh`` that of a controller that has just started.
    """
    every = list(dump.hpas.values())
    chosen = every if hpas is None else list(hpas)
    mode = "given" if state is not None else "fresh" if fresh else "settled"
    if fresh and state is None:
        state = ControllerState()
    decisions = dump.decide(state=state, now=now, options=options, threads=threads)
    number = {key: row for row, key in enumerate(dump.hpas)}
    shown = [(hpa, number[f"{hpa.metadata.namespace}/{hpa.metadata.name}"]) for hpa in chosen]
    # What is malformed is raised, shown or not.
    wanted = sorted({row for _, row in shown}.union(decisions.problems))
    rows = dict(zip(wanted, decisions.told(wanted), strict=True))
    owners = PodOwners(dump.pods.cluster.pod_index(), dump.targets)
    keys = [f"{hpa.metadata.namespace}/{hpa.metadata.name}" for hpa in chosen]
    told = {each for key in keys for each in (dump.generated.get(key, ""), f"HorizontalPodAutoscaler {key}")}
    if hpas is None or len(chosen) == len(every):
        told |= {f"ScaledObject {key}" for key in dump.scaled_objects}  # those without an HPA too
        paused = dump.paused
    else:
        namespaces = {hpa.metadata.namespace for hpa in chosen}
        paused = {key: pause for key, pause in dump.paused.items() if key.partition("/")[0] in namespaces}
    return HPAReport(
        now=to_text(dump.newest if now is None else moment(now), fraction=True),
        state_mode=mode,
        hpas=[
            _decision(dump, owners, hpa, rows[row], int(decisions.best[row]), options or HPAOptions())
            for hpa, row in shown
        ],
        missing=dump.missing(),
        unmodelled={each: texts for each, texts in dump.unmodelled.items() if each in told},
        duplicates=dump.duplicates,
        state=ControllerState(hpas=dict(decisions.state.hpas)),
        without_state=[key for key in dump.hpas if key not in state.hpas] if state is not None and not fresh else [],
        paused=[_paused(key, pause) for key, pause in paused.items()],
        assumed={key: text for key, hpa in zip(keys, chosen, strict=True) if (text := dump.assumed_scale(hpa))},
    )


def _paused(key: str, pause: Pause) -> PausedScaledObject:
    namespace, _, name = key.partition("/")
    return PausedScaledObject(namespace=namespace, name=name, **pause._asdict())


def _decision(
    dump: Dump,
    owners: PodOwners,
    hpa: HorizontalPodAutoscaler,
    run: DryRun[Reconciliation],
    best: int,
    options: HPAOptions,
) -> HPADecision:
    row = run.value
    reference, tolerances = hpa.spec.scale_target_ref, tolerances_of(hpa, options)
    scale = dump.scales().get(f"{hpa.metadata.namespace}/{hpa.metadata.name}")
    details = [
        _detail(spec, each, tolerances, scale if isinstance(scale, Scale) else Scale())
        for spec, each in zip(hpa.spec.metrics or (), row.metrics, strict=False)
    ]
    decisive = details[best] if 0 <= best < len(details) else None
    limited = next((each.reason for each in row.status.conditions or () if _limits(row, each.type)), "")
    shared = _shared_pods(dump, owners, hpa)
    return HPADecision(
        namespace=hpa.metadata.namespace,
        name=hpa.metadata.name,
        target=f"{reference.kind}/{reference.name}",
        current_replicas=row.current_replicas,
        desired_replicas=row.desired_replicas,
        rescales=row.scale_written is not None,
        reason=row.reason,
        decided_by=_decided_by(row, decisive),
        held_back_by=_held_back_by(hpa, row, limited, decisive),
        proposal=row.proposal,
        stabilized=None if row.normalized is None else row.normalized.stabilized,
        limited=limited,
        error=row.error,
        metrics=details,
        conditions=[
            ConditionText(each.type, each.status, each.reason, each.message, each.last_transition_time)
            for each in row.status.conditions or ()
        ],
        events=[EventText(each.type, each.reason, each.message) for each in run.events],
        warnings=_overlap(hpa, shared),
        pod_owners=shared,
    )


def _shared_pods(dump: Dump, owners: PodOwners, hpa: HorizontalPodAutoscaler) -> dict[str, int]:
    """The counted pods by owner, if some are known to belong to another owner than the target."""
    scale = dump.scales().get(f"{hpa.metadata.namespace}/{hpa.metadata.name}")
    if not isinstance(scale, Scale) or not scale.status.selector or not counts_pods(hpa):
        return {}
    try:
        counts = owners.count(hpa, scale.status.selector)
    except SelectorError:
        return {}  # the decision has the error
    reference = hpa.spec.scale_target_ref
    # Without any owner reference the input does not say whose the pods are.
    return counts if set(counts) - {""} and set(counts) != {f"{reference.kind}/{reference.name}"} else {}


def _overlap(hpa: HorizontalPodAutoscaler, shared: Mapping[str, int]) -> list[str]:
    if not shared:
        return []
    reference = hpa.spec.scale_target_ref
    target = f"{reference.kind}/{reference.name}"
    others = {owner: count for owner, count in shared.items() if owner != target}
    names = [f"{count:,} of {owner}" if owner else f"{count:,} of no owner" for owner, count in others.items()]
    if len(names) > _OWNERS_SHOWN:
        names[_OWNERS_SHOWN:] = [f"{len(names) - _OWNERS_SHOWN:,} more owners"]
    total, foreign = sum(shared.values()), sum(others.values())
    return [f"{foreign:,} of the {total:,} pods that the selector counts do not belong to {target}: {', '.join(names)}"]


def _limits(row: Reconciliation, type_: str) -> bool:
    return type_ == "ScalingLimited" and row.normalized is not None and row.normalized.limited


def _decided_by(row: Reconciliation, best: MetricDetail | None) -> str:
    if row.desired_replicas is None:
        return row.error or ""
    if row.proposal is None:
        return row.reason or "target is at 0 replicas"
    if best is None:
        return row.reason
    held = "within tolerance" if best.tolerated and not best.filled_in else ""
    texts = "; ".join(filter(None, (held, best.note)))
    value = "?" if best.overflows else best.current
    return f"{best.name} {value} of {best.target}{f' ({texts})' if texts else ''}"


def _held_back_by(
    hpa: HorizontalPodAutoscaler, row: Reconciliation, limited: str, decisive: MetricDetail | None
) -> str:
    if row.normalized is None or row.proposal is None:
        return ""
    parts = []
    if decisive is not None and decisive.tolerated and decisive.filled_in:
        parts.append(f"pods not ready or not measured: with them {decisive.name} is within tolerance")
    if decisive is not None and decisive.direction_held:
        parts.append(f"pods not ready or not measured: with them {decisive.name} asks for the other direction")
    if row.normalized.stabilized != row.proposal:
        up = row.normalized.held == 1
        parts.append(f"{'scaleUp' if up else 'scaleDown'} stabilization (wanted {row.proposal})")
    if limited:
        wanted = row.normalized.stabilized
        if limited in _LIMITS:
            bound = hpa.spec.max_replicas if limited == "TooManyReplicas" else hpa.spec.min_replicas
            parts.append(f"{_LIMITS[limited]} {bound} (wanted {wanted})")
        else:
            parts.append(f"{_policy(hpa, limited)} (wanted {wanted})")
    return "; ".join(parts)


def _policy(hpa: HorizontalPodAutoscaler, limited: str) -> str:
    """The rules of the direction that was too fast, in words."""
    behavior, up = hpa.spec.behavior, limited == "ScaleUpLimit"
    if behavior is None:
        return "at most twice the size, or 4, at once"
    rules = behavior.scale_up if up else behavior.scale_down
    side = "scaleUp" if up else "scaleDown"
    if rules is None or rules.select_policy == "Disabled":
        return f"{side} disabled"
    texts = [f"{each.value}{_unit(each.type, each.value)} per {each.period_seconds} s" for each in rules.policies or ()]
    return f"{side} policy: {(' or ' if rules.select_policy != 'Min' else ' and ').join(texts)}"


def _detail(spec: MetricSpec, found: object, tolerances: Tolerances, scale: Scale) -> MetricDetail:
    name, target, resource = _names(spec)
    replicas: Replicas | None = getattr(found, "replicas", None)
    error = found.error if isinstance(found, MetricError) else None
    wanted = _target(target)
    if replicas is None:
        return MetricDetail(name=name, type=spec.type, target=wanted, error=error)
    current = (
        f"{replicas.utilization}%"
        if replicas.utilization is not None
        else str(status_quantity(replicas.usage, resource))
    )
    return MetricDetail(
        name=name,
        type=spec.type,
        current="" if error else current,
        target=wanted,
        proposal=None if error else replicas.replicas,
        ratio=_finite(replicas.ratio),
        second_ratio=_finite(replicas.second_ratio),
        tolerated=not error and _tolerated(spec, replicas, tolerances),
        direction_held=not error and _direction_held(replicas, tolerances),
        path=replicas.path,
        groups={group: names[:1000] for group, names in replicas.groups.items()},
        group_counts={group: len(names) for group, names in replicas.groups.items()},
        error=error,
        note="" if error else _note(spec, replicas, tolerances, scale),
    )


def _note(spec: MetricSpec, replicas: Replicas, tolerances: Tolerances, scale: Scale) -> str:
    """Explain a value that is no value, and a proposal that does not follow from value and target at first sight."""
    source = source_of(spec)
    value_of_api = isinstance(source, (ObjectMetricSource, ExternalMetricSource))
    per_pod = isinstance(source, (ObjectMetricSource, ExternalMetricSource)) and _is_per_pod(source)
    current, status = scale.spec.replicas, scale.status.replicas
    if per_pod and status == 0:
        return f"{_NO_PODS}; the status shows {status_quantity(replicas.usage)}"
    if replicas.usage in (_INT64_MIN, _INT64_MAX):
        return f"{_OVERFLOW}; the status shows {status_quantity(replicas.usage)}"
    is_tolerated = _tolerated(spec, replicas, tolerances)
    if per_pod and is_tolerated and status != current:
        return f"a value a pod keeps the {status} replicas of the target's status, its spec has {current}"
    if is_tolerated or replicas.replicas != current or _direction_held(replicas, tolerances):
        return ""
    ratio = replicas.second_ratio if "second_pass" in replicas.path else replicas.ratio
    if ratio == 1 or _finite(ratio) is None:
        return ""
    groups = {group: len(names) for group, names in replicas.groups.items()}
    pods = status if per_pod else groups.get("ready", 0)
    if value_of_api and not per_pod:
        return f"ratio {ratio:.4g}, rounded up to {current}"
    if "second_pass" in replicas.path:
        return f"ratio {ratio:.4g} with pods not ready or not measured, rounded up to {current}"
    return f"{pods} pods x {ratio:.4g} = {pods * ratio:.4g}, rounded up to {current}"


def _is_per_pod(source: ObjectMetricSource | ExternalMetricSource) -> bool:
    return value_target(source)[0].endswith("per_pod")


def _tolerated(spec: MetricSpec, replicas: Replicas, tolerances: Tolerances) -> bool:
    if "hold_first_pass" in replicas.path:
        return True
    if "hold_second_pass" in replicas.path:
        return tolerances.hold(replicas.second_ratio)
    source = source_of(spec)
    if not isinstance(source, (ObjectMetricSource, ExternalMetricSource)):
        return False
    # A value per pod has no passes: the ratio alone tells.
    return _is_per_pod(source) and tolerances.hold(replicas.ratio)


def _direction_held(replicas: Replicas, tolerances: Tolerances) -> bool:
    """Whether filling in missing and unready pods turned the direction, which holds the size."""
    if "hold_second_pass" in replicas.path:
        return not tolerances.hold(replicas.second_ratio)
    return "hold_count_direction" in replicas.path


def _finite(value: float) -> float | None:
    return value if value - value == 0 else None


def _names(spec: MetricSpec) -> tuple[str, MetricTarget | None, str]:
    """(short name, target, resource) of a metric."""
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


def _target(target: MetricTarget | None) -> str:
    if target is None:
        return ""
    for value, text in (
        (target.average_utilization, f"{target.average_utilization}%"),
        (target.average_value, f"{target.average_value} a pod"),
        (target.value, f"{target.value}"),
    ):
        if value is not None:
            return text
    return ""


def _unit(type_: str, value: int) -> str:
    if type_ == "Percent":
        return "%"
    return " pod" if value == 1 else " pods"
