"""Report of the decisions for the HPAs of a dump: metrics, conditions, limits, and pods that belong to other
workloads.

Upstream counts every pod that the selector matches, whoever owns it, and names none of them; the replicas stay
upstream's. Not in upstream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import numpy as np

from kscale.effects import ZERO_TIME, DryRun, Moment, moment, to_text
from kscale.errors import InputError
from kscale.hpa.api.keda import PausedTarget
from kscale.hpa.controller.metric_proposals import (
    MetricError,
    get_metric_source,
    get_tolerances,
    get_value_target,
    to_status_quantity,
)
from kscale.hpa.controller.reconcile import ReconcileResult
from kscale.hpa.controller.replica_calculator import CalculatedReplicas, Tolerances
from kscale.hpa.controller.state import ControllerState
from kscale.hpa.dump.dump import Dump
from kscale.hpa.options import DEFAULT_OPTIONS, HPAOptions
from kscale.objects.api.autoscaling import (
    ExternalMetricSource,
    HorizontalPodAutoscaler,
    MetricSpec,
    MetricTarget,
    ObjectMetricSource,
    Scale,
)
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import ObjectMeta, OwnerReference
from kscale.objects.argument_types import typed
from kscale.objects.decode import from_dict
from kscale.objects.kinds import group_of
from kscale.objects.pod_owners import controller_of
from kscale.objects.selectors import SelectorError
from kscale.records import Record
from kscale.snapshot.caches import collector_paused
from kscale.snapshot.pod_states import PHASES
from kscale.snapshot.pods.index import PodIndex

__all__ = [
    "HPADecision",
    "HPAReport",
    "MetricDetail",
    "PausedScaledObject",
    "PodOwners",
    "depends_on_pods",
    "hpa_report",
]


_TEMPLATE_HASH_LABELS: Final = {"pod-template-hash": "Deployment", "rollouts-pod-template-hash": "Rollout"}
"""Pod labels whose value ends the name of the ReplicaSet, and the kind that owns the ReplicaSet."""
_INTERMEDIATE_KINDS: Final = frozenset({"ReplicaSet", "Job"})
_MAX_OWNER_CHAIN: Final = 10
"""Maximum number of owners to follow; chains have two or three."""

_Owner = tuple[str, str, str]
"""(group, kind, name)."""


def depends_on_pods(hpa: HorizontalPodAutoscaler) -> bool:
    """Check whether a metric of an HPA depends on the pods that the selector matches.

    All metrics do, except object and external metrics with a value per pod.
    """
    return any(not _has_per_pod_target(spec.object or spec.external) for spec in hpa.spec.metrics or ())


def _has_per_pod_target(source: ObjectMetricSource | ExternalMetricSource | None) -> bool:
    return source is not None and get_value_target(source)[0].endswith("per_pod")


class PodOwners:
    """Counts pods by the workload that they belong to.

    ``objects``: plain data of workloads by (group, kind, namespace, name), as far as they are known.
    """

    def __init__(self, pods: PodIndex, objects: Mapping[tuple[str, str, str, str], Mapping[str, Any]]) -> None:
        self._pods = pods
        self._objects = objects

    def count(self, selected: Sequence[tuple[HorizontalPodAutoscaler, str]]) -> list[dict[str, int]]:
        """Count the pods that the selector of each HPA matches by owner (``Kind/name``; empty: none), the HPA's target
        first.

        Pods that are being deleted or have failed are left out, as upstream leaves them out. Raises SelectorError.
        """
        counts: list[dict[str, int]] = []
        for begin in range(0, len(selected), _SELECTED_TOGETHER):
            counts += self._count_some(selected[begin : begin + _SELECTED_TOGETHER])
        return counts

    def _count_some(self, selected: Sequence[tuple[HorizontalPodAutoscaler, str]]) -> list[dict[str, int]]:
        selections = self._pods.select_many([(hpa.metadata.namespace, selector) for hpa, selector in selected])
        pods = selections.pods
        is_counted = (pods.deleted == ZERO_TIME) & (pods.phase != PHASES.index("Failed"))
        shapes = pods.shapes[is_counted].astype(np.int64)
        rows = np.repeat(np.arange(len(selected)), np.diff(selections.ends))[is_counted]
        width = int(shapes.max(initial=0)) + 1
        pairs, counts = np.unique(rows * width + shapes, return_counts=True)
        owners = [Counter[str]() for _ in selected]
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            row, shape = divmod(pair, width)
            hpa, _ = selected[row]
            reference = hpa.spec.scale_target_ref
            target = group_of(reference.api_version), reference.kind, reference.name
            owners[row][self._owner(pods.exemplar(shape), hpa.metadata.namespace, target)] += count
        return [
            dict(sorted(each.items(), key=lambda item: (item[0] != _describe_target(hpa), -item[1], item[0])))
            for (hpa, _), each in zip(selected, owners, strict=True)
        ]

    def _owner(self, pod: Pod, namespace: str, target: _Owner) -> str:
        reference = controller_of(pod.metadata)
        shown: _Owner | None = None
        for _ in range(_MAX_OWNER_CHAIN):
            if reference is None:
                break
            owner = group_of(reference.api_version), reference.kind, reference.name
            if owner == target:
                return f"{owner[1]}/{owner[2]}"
            if shown is None or shown[1] in _INTERMEDIATE_KINDS:
                shown = owner
            data = self._objects.get((owner[0], owner[1], namespace, owner[2]))
            reference = _guess_replica_set_owner(pod, owner, target) if data is None else _read_controller(data)
        return "" if shown is None else f"{shown[1]}/{shown[2]}"


_SELECTED_TOGETHER: Final = 64
"""HPAs whose pods are counted together: each of them may select all pods of a namespace."""


def _describe_target(hpa: HorizontalPodAutoscaler) -> str:
    reference = hpa.spec.scale_target_ref
    return f"{reference.kind}/{reference.name}"


def _read_controller(data: Mapping[str, Any]) -> OwnerReference | None:
    references = (data.get("metadata") or {}).get("ownerReferences") or []
    try:
        return controller_of(from_dict({"ownerReferences": references}, ObjectMeta))
    except InputError:  # an object that is only shown by name is not rejected
        return None


def _guess_replica_set_owner(pod: Pod, owner: _Owner, target: _Owner) -> OwnerReference | None:
    """Return the owner of a ReplicaSet that is not in the input, from its name ``NAME-HASH``; None if unknown."""
    if owner[1] != "ReplicaSet":
        return None
    for label, kind in _TEMPLATE_HASH_LABELS.items():
        name = owner[2].removesuffix(f"-{(pod.metadata.labels or {}).get(label, '')}")
        if label in (pod.metadata.labels or {}) and name != owner[2]:
            version = "argoproj.io/v1alpha1" if kind == "Rollout" else "apps/v1"
            return OwnerReference(api_version=version, kind=kind, name=name, controller=True)
    name, _, _ = owner[2].rpartition("-")
    if name == target[2] and target[1] in _TEMPLATE_HASH_LABELS.values():
        return OwnerReference(api_version=f"{target[0]}/v1", kind=target[1], name=name, controller=True)
    return None


_OWNERS_SHOWN: Final = 5
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_NO_PODS_NOTE: Final = "the target has 0 replicas, so there is no value a pod"
_OVERFLOW_NOTE: Final = "the value does not fit 64 bits"
_LIMIT_FIELDS: Final = {"TooFewReplicas": "minReplicas", "TooManyReplicas": "maxReplicas"}


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
    """One metric and how its proposal was computed: pods by group (at most 1,000 names each), ratios, branches, or the
    error.

    ``current`` and ``target`` are texts; ``ratio`` is usage over target, ``second_ratio`` the ratio after missing and
    unready pods were filled in (0: they were not). ``tolerated``: close enough to the target to keep the replicas;
    ``direction_held``: the replicas are kept because filling in pods reversed the direction.
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
    """Explanation where ``proposal`` does not follow from ``current`` and ``target``."""

    @property
    def filled_in(self) -> bool:
        """Return whether the decision was made with missing or unready pods filled in."""
        return "second_pass" in self.path

    @property
    def overflows(self) -> bool:
        """Return whether the value in the status is the remainder of an overflow instead of the metric's value."""
        return self.note.startswith((_NO_PODS_NOTE, _OVERFLOW_NOTE))


class HPADecision(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Decision for one HPA. ``desired_replicas`` is absent if nothing is decided because of ``error``.

    ``limited`` is the reason of ScalingLimited if it limited the replicas, ``stabilized`` that of AbleToScale.
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
    """Texts on doubtful inputs of the decision."""
    pod_owners: dict[str, int] = {}
    """Counted pods by owner (``Kind/name``; empty: no owner), if some do not belong to the target."""


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
    """Decisions for the HPAs of a dump at ``now``.

    - ``state_mode``: the assumed past: ``settled`` (no past restrains a change), ``fresh`` (the controller has just
      started) or ``given``. ``now`` is absent if the input contains no time.
    - ``state``: the next state: of every HPA of the dump, shown or not, and of those of the given state that are not in
      the dump. ``without_state``: HPAs that are not in the given state, treated as if the controller had just seen
      them.
    - ``missing``: missing inputs that matter, as texts. ``unmodelled``: features of an object that are not considered,
      by its kind and ``namespace/name``, for the shown HPAs (if all are shown, for every ScaledObject too).
    - ``duplicates``: objects that appeared more than once (kind and ``namespace/name``), shown or not; the last one
      counts.
    - ``paused``: paused ScaledObjects, which have no active HPA. ``assumed``: assumptions about a target's scale whose
      CustomResourceDefinition is not in the input, by the HPA's ``namespace/name``.
    """

    KIND = "HPAReport"
    ROWS = "hpas"
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

    def summary(self) -> str:
        """Return how many HPAs rescale, and the new size of the first ones."""
        changes = [
            f"{item.name}: {item.current_replicas} -> {item.desired_replicas}" for item in self.hpas if item.rescales
        ]
        return ", ".join([f"{len(changes):,} of {len(self.hpas):,} HPAs rescale", *changes[:3]])


@collector_paused()
@typed
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
    """Build the report of the decisions for the HPAs of a dump. All HPAs are decided together.

    Parameters
    ----------
    dump : Dump
        The dump.
    hpas : sequence of HorizontalPodAutoscaler, optional
        HPAs of the dump to report (None: all).
    state : ControllerState, optional
        State of the controller. Default: stable, or with ``fresh`` that of a controller that has just started.
    fresh : bool
        Use the state of a controller that has just started.
    now : datetime or Moment, optional
        Time of the decisions. Default: the newest time in the dump.
    options : HPAOptions, optional
        Options of the controller.
    threads : int
        Number of threads, without effect on the result.

    Returns
    -------
    HPAReport
        The decisions, their explanations and the next state.
    """
    every = list(dump.hpas.values())
    chosen = every if hpas is None else list(hpas)
    mode = "given" if state is not None else "fresh" if fresh else "settled"
    if fresh and state is None:
        state = ControllerState()
    decisions = dump.decide(state=state, now=now, options=options, threads=threads)
    number = {key: row for row, key in enumerate(dump.hpas)}
    shown = [(hpa, number[f"{hpa.metadata.namespace}/{hpa.metadata.name}"]) for hpa in chosen]
    # A malformed HPA raises an error even if it is not shown.
    wanted = sorted({row for _, row in shown}.union(decisions.problems))
    rows = dict(zip(wanted, decisions.get_reconciles(wanted), strict=True))
    owners = PodOwners(dump.pods.cluster.pod_index(), dump.targets)
    keys = [f"{hpa.metadata.namespace}/{hpa.metadata.name}" for hpa in chosen]
    reported = {each for key in keys for each in (dump.generated.get(key, ""), f"HorizontalPodAutoscaler {key}")}
    if hpas is None or len(chosen) == len(every):
        reported |= {f"ScaledObject {key}" for key in dump.scaled_objects}  # also those without an HPA
        paused = dump.paused
    else:
        namespaces = {hpa.metadata.namespace for hpa in chosen}
        paused = {key: pause for key, pause in dump.paused.items() if key.partition("/")[0] in namespaces}
    return HPAReport(
        now=to_text(dump.newest if now is None else moment(now), fraction=True),
        state_mode=mode,
        hpas=[
            _build_decision(dump, hpa, rows[row], int(decisions.best[row]), options or DEFAULT_OPTIONS, counts)
            for (hpa, row), counts in zip(shown, _count_shared_pods(dump, owners, chosen), strict=True)
        ],
        missing=dump.missing(),
        unmodelled={each: texts for each, texts in dump.unmodelled.items() if each in reported},
        duplicates=dump.duplicates,
        state=ControllerState(hpas=dict(decisions.state.hpas)),
        without_state=[key for key in dump.hpas if key not in state.hpas] if state is not None and not fresh else [],
        paused=[_build_paused(key, pause) for key, pause in paused.items()],
        assumed={key: text for key, hpa in zip(keys, chosen, strict=True) if (text := dump.assumed_scale(hpa))},
    )


def _build_paused(key: str, pause: PausedTarget) -> PausedScaledObject:
    namespace, _, name = key.partition("/")
    return PausedScaledObject(namespace=namespace, name=name, **pause._asdict())


def _build_decision(
    dump: Dump,
    hpa: HorizontalPodAutoscaler,
    run: DryRun[ReconcileResult],
    best: int,
    options: HPAOptions,
    shared: dict[str, int],
) -> HPADecision:
    row = run.value
    tolerances = get_tolerances(hpa, options)
    scale = dump.scales().get(f"{hpa.metadata.namespace}/{hpa.metadata.name}")
    details = [
        _build_metric_detail(spec, each, tolerances, scale if isinstance(scale, Scale) else Scale())
        for spec, each in zip(hpa.spec.metrics or (), row.metrics, strict=False)
    ]
    decisive = details[best] if 0 <= best < len(details) else None
    limited = next((each.reason for each in row.status.conditions or () if _is_limiting_condition(row, each.type)), "")
    return HPADecision(
        namespace=hpa.metadata.namespace,
        name=hpa.metadata.name,
        target=_describe_target(hpa),
        current_replicas=row.current_replicas,
        desired_replicas=row.desired_replicas,
        rescales=row.scale_written is not None,
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
            for each in row.status.conditions or ()
        ],
        events=[EventText(each.type, each.reason, each.message) for each in run.events],
        warnings=[
            *dump.keda_refusals.get(f"{hpa.metadata.namespace}/{hpa.metadata.name}", ()),
            *_describe_overlap(hpa, shared),
        ],
        pod_owners=shared,
    )


def _count_shared_pods(dump: Dump, owners: PodOwners, hpas: Sequence[HorizontalPodAutoscaler]) -> list[dict[str, int]]:
    """Count the pods of each HPA by owner, if some are known to belong to another owner than the target; else empty."""
    shared: list[dict[str, int]] = [{} for _ in hpas]
    scales = dump.scales()
    selected = []
    for row, hpa in enumerate(hpas):
        scale = scales.get(f"{hpa.metadata.namespace}/{hpa.metadata.name}")
        if isinstance(scale, Scale) and scale.status.selector and depends_on_pods(hpa):
            selected.append((row, hpa, scale.status.selector))
    for row, counts in zip((row for row, _, _ in selected), _count_pods(owners, selected), strict=True):
        # Without any owner reference the owners of the pods are unknown.
        if set(counts) - {""} and set(counts) != {_describe_target(hpas[row])}:
            shared[row] = counts
    return shared


def _count_pods(
    owners: PodOwners, selected: Sequence[tuple[int, HorizontalPodAutoscaler, str]]
) -> list[dict[str, int]]:
    """Count the pods of each HPA by owner; none for a selector that is refused, whose decision has the error."""
    try:
        return owners.count([(hpa, selector) for _, hpa, selector in selected])
    except SelectorError:
        if len(selected) == 1:
            return [{}]
        return [counts for each in selected for counts in _count_pods(owners, [each])]


def _describe_overlap(hpa: HorizontalPodAutoscaler, shared: Mapping[str, int]) -> list[str]:
    if not shared:
        return []
    target = _describe_target(hpa)
    others = {owner: count for owner, count in shared.items() if owner != target}
    names = [f"{count:,} of {owner}" if owner else f"{count:,} of no owner" for owner, count in others.items()]
    if len(names) > _OWNERS_SHOWN:
        names[_OWNERS_SHOWN:] = [f"{len(names) - _OWNERS_SHOWN:,} more owners"]
    total, foreign = sum(shared.values()), sum(others.values())
    return [f"{foreign:,} of the {total:,} pods that the selector counts do not belong to {target}: {', '.join(names)}"]


def _is_limiting_condition(row: ReconcileResult, type_: str) -> bool:
    return type_ == "ScalingLimited" and row.normalized is not None and row.normalized.limited


def _explain_decided_by(row: ReconcileResult, best: MetricDetail | None) -> str:
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
    hpa: HorizontalPodAutoscaler, row: ReconcileResult, limited: str, decisive: MetricDetail | None
) -> str:
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
    """Describe the scaling rules that limited the change."""
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


def _build_metric_detail(spec: MetricSpec, metric: object, tolerances: Tolerances, scale: Scale) -> MetricDetail:
    name, target, resource = _get_metric_names(spec)
    replicas: CalculatedReplicas | None = getattr(metric, "replicas", None)
    error = metric.error if isinstance(metric, MetricError) else None
    wanted = _format_target(target)
    if replicas is None:
        return MetricDetail(name=name, type=spec.type, target=wanted, error=error)
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
        tolerated=not error and _is_tolerated(spec, replicas, tolerances),
        direction_held=not error and _is_direction_held(replicas, tolerances),
        path=replicas.path,
        groups={group: names[:1000] for group, names in replicas.groups.items()},
        group_counts={group: len(names) for group, names in replicas.groups.items()},
        error=error,
        note="" if error else _explain_metric(spec, replicas, tolerances, scale),
    )


def _explain_metric(spec: MetricSpec, replicas: CalculatedReplicas, tolerances: Tolerances, scale: Scale) -> str:
    """Explain values that overflow, and proposals that do not follow from value and target."""
    source = get_metric_source(spec)
    value_of_api = isinstance(source, (ObjectMetricSource, ExternalMetricSource))
    per_pod = isinstance(source, (ObjectMetricSource, ExternalMetricSource)) and _is_per_pod(source)
    current, status = scale.spec.replicas, scale.status.replicas
    if per_pod and status == 0:
        return f"{_NO_PODS_NOTE}; the status shows {to_status_quantity(replicas.usage)}"
    if replicas.usage in (_INT64_MIN, _INT64_MAX):
        return f"{_OVERFLOW_NOTE}; the status shows {to_status_quantity(replicas.usage)}"
    is_tolerated = _is_tolerated(spec, replicas, tolerances)
    if per_pod and is_tolerated and status != current:
        return f"a value a pod keeps the {status} replicas of the target's status, its spec has {current}"
    if is_tolerated or replicas.replicas != current or _is_direction_held(replicas, tolerances):
        return ""
    ratio = replicas.second_ratio if "second_pass" in replicas.path else replicas.ratio
    if ratio == 1 or _finite_or_none(ratio) is None:
        return ""
    groups = {group: len(names) for group, names in replicas.groups.items()}
    pods = status if per_pod else groups.get("ready", 0)
    if value_of_api and not per_pod:
        return f"ratio {ratio:.4g}, rounded up to {current}"
    if "second_pass" in replicas.path:
        return f"ratio {ratio:.4g} with pods not ready or not measured, rounded up to {current}"
    return f"{pods} pods x {ratio:.4g} = {pods * ratio:.4g}, rounded up to {current}"


def _is_per_pod(source: ObjectMetricSource | ExternalMetricSource) -> bool:
    return get_value_target(source)[0].endswith("per_pod")


def _is_tolerated(spec: MetricSpec, replicas: CalculatedReplicas, tolerances: Tolerances) -> bool:
    if "hold_first_pass" in replicas.path:
        return True
    if "hold_second_pass" in replicas.path:
        return tolerances.contains(replicas.second_ratio)
    source = get_metric_source(spec)
    if not isinstance(source, (ObjectMetricSource, ExternalMetricSource)):
        return False
    # A value per pod has no passes: the ratio alone tells.
    return _is_per_pod(source) and tolerances.contains(replicas.ratio)


def _is_direction_held(replicas: CalculatedReplicas, tolerances: Tolerances) -> bool:
    """Check whether the replicas are kept because filling in pods reversed the direction."""
    if "hold_second_pass" in replicas.path:
        return not tolerances.contains(replicas.second_ratio)
    return "hold_count_direction" in replicas.path


def _finite_or_none(value: float) -> float | None:
    return value if value - value == 0 else None


def _get_metric_names(spec: MetricSpec) -> tuple[str, MetricTarget | None, str]:
    """Return the short name, the target and the resource of a metric."""
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


def _format_unit(type_: str, value: int) -> str:
    if type_ == "Percent":
        return "%"
    return " pod" if value == 1 else " pods"
