"""The CapacityBuffer controller: replicas, conditions, resource quotas, and one reconcile of a namespace.

Upstream: ``capacitybuffer/controller``, ``translators``, ``replicas.go``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Final

import msgspec
from msgspec.structs import replace

from kscale.ca.capacity_buffers.pod_templates import (
    ManagedTemplateAction,
    ResolveWorkloadAction,
    build_pod_template,
    ensure_managed_template,
    resolve_fake_pod,
    resolve_workload,
)
from kscale.ca.metrics import build_observation
from kscale.effects import (
    SECOND,
    GetUnstructured,
    Moment,
    Observation,
    Progress,
    StepsOf,
    WriteStatus,
    moment,
    to_text,
)
from kscale.objects.api.cluster_autoscaler import CapacityBuffer, CapacityBufferSpec, LocalObjectRef
from kscale.objects.api.core import Pod, PodAffinityTerm, PodTemplate, PodTemplateSpec
from kscale.objects.api.meta import Condition, LabelSelector, LabelSelectorRequirement
from kscale.objects.api.policy import ResourceQuota, ScopeSelectorRequirement
from kscale.objects.conditions import with_condition
from kscale.objects.go_numbers import divide_truncated, wrap_int32
from kscale.objects.names import go_quote
from kscale.objects.pod_resources import demand
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import SelectorError, compile_selector
from kscale.objects.times import created_at

__all__ = [
    "ACTIVE_PROVISIONING_STRATEGY",
    "LIMITED_BY_QUOTAS_CONDITION",
    "PROVISIONING_CONDITION",
    "READY_FOR_PROVISIONING_CONDITION",
    "AllocatedQuotas",
    "BufferControllerAction",
    "CapacityBufferError",
    "ReconciliationTimes",
    "allocate_quotas",
    "compute_buffer_replicas",
    "format_missing_template",
    "is_managed_buffer",
    "reconcile_buffers_steps",
    "set_buffer_condition",
    "translate_buffer",
]


ACTIVE_PROVISIONING_STRATEGY: Final = "buffer.x-k8s.io/active-capacity"
READY_FOR_PROVISIONING_CONDITION: Final = "ReadyForProvisioning"
PROVISIONING_CONDITION: Final = "Provisioning"
LIMITED_BY_QUOTAS_CONDITION: Final = "LimitedByQuotas"


def set_buffer_condition(
    buffer: CapacityBuffer,
    type_: str,
    holds: bool,
    reason: str,
    now: Moment,
    message: str = "",
    generation: int | None = None,
) -> CapacityBuffer:
    """Return the buffer with the condition ``type_``, whose status is True if ``holds``, otherwise False.

    ``generation``: the observed generation, left out if None. Returns the very same object if the condition is
    unchanged.
    """
    condition = Condition(
        type=type_,
        status=str(holds),
        reason=reason,
        message=message,
        last_transition_time=to_text(now),
        observed_generation=generation,
    )
    conditions = with_condition(buffer.status.conditions, condition)
    if conditions is buffer.status.conditions:
        return buffer
    return replace(buffer, status=replace(buffer.status, conditions=conditions))


def format_missing_template(reference: LocalObjectRef | None) -> str:
    """Format the error message for a missing template; ``reference`` None: the buffer names no template."""
    name = go_quote("" if reference is None else reference.name)
    return f"capacity buffer client can't get pod template: podtemplates {name} not found"


_MAX_REPLICAS = (1 << 31) - 1


class CapacityBufferError(ValueError):
    """A buffer cannot be provided. The message is upstream's."""


def compute_buffer_replicas(spec: CapacityBufferSpec, template: PodTemplateSpec, scale: int | None = None) -> int:
    """Compute the number of pods that a buffer requests.

    The number is the larger of the spec's replicas and its percentage of ``scale`` (rounded up), at most as many pods
    as its limits allow. If the spec has limits only, the number is as many pods as they allow.

    ``template`` is the pod template with its requests filled in. ``scale`` is the number of replicas of the workload
    that the buffer refers to, None without such a workload. Integers are int32 as in upstream. Raises
    :class:`CapacityBufferError` if replicas, limits and percentage (which needs ``scale``) are all missing, or if the
    pods request no resource that the limits name.
    """
    replicas = -1
    if spec.replicas is not None:
        replicas = max(0, spec.replicas)
    if spec.percentage is not None and scale is not None:
        replicas = max(replicas, _compute_percentage(spec.percentage, scale))
    if spec.limits is not None:
        limit = _count_within_limits(spec.limits, demand(Pod(spec=template.spec)))
        return limit if replicas < 0 else min(replicas, limit)
    if replicas < 0:
        raise CapacityBufferError("replicas, percentage and limits are not defined")
    return replicas


def _compute_percentage(percentage: int, scale: int) -> int:
    """Return ``percentage`` percent of ``scale`` replicas, rounded up, in int32; 0 if one of them is not positive."""
    if percentage <= 0 or scale <= 0:
        return 0
    return divide_truncated(wrap_int32(percentage * scale + 99), 100)


def _count_within_limits(limits: Mapping[str, Quantity], requests: Mapping[str, Quantity]) -> int:
    """Return how many pods with these requests the limits allow, at most ``_MAX_REPLICAS``.

    Raises CapacityBufferError if no limit names a requested resource. A negative limit is ignored.
    """
    counts = []
    for name, quantity in requests.items():
        request = quantity.milli_value()
        limit = limits.get(name)
        if request > 0 and limit is not None:
            count = wrap_int32(divide_truncated(limit.milli_value(), request))
            if count >= 0:
                counts.append(count)
    if not counts:
        raise CapacityBufferError("resources in configured limits not found in the pod template")
    return min(_MAX_REPLICAS, *counts)


def translate_buffer(
    buffer: CapacityBuffer,
    template: PodTemplate | None,
    *,
    scale: int | None = None,
    problem: str = "",
    now: datetime | Moment,
) -> CapacityBuffer:
    """Return the buffer with the status that follows from its spec: replicas, template, and whether it is ready.

    ``template`` is the template of the buffer's pods with requests filled in: the referenced one, or the managed one of
    its workload. If it is None, the buffer is not ready, and ``problem`` is the message (empty: the template is
    missing). ``scale`` is the number of replicas of the workload. If the number of the buffer's replicas cannot be
    computed, the buffer is not ready, and its status has no replicas. Returns the very same object if nothing changes.
    Raises InputError if ``now`` is not a time.
    """
    now = moment(now)
    replicas, failure = None, ""
    if template is None:
        failure = problem or format_missing_template(buffer.spec.pod_template_ref)
    else:
        try:
            replicas = compute_buffer_replicas(buffer.spec, template.template, scale)
        except CapacityBufferError as error:
            failure = f"couldn't get number of replicas for buffer: {error}"
    strategy = buffer.spec.provisioning_strategy
    status = replace(
        buffer.status,
        pod_template_ref=None if template is None else LocalObjectRef(name=template.name),
        pod_template_generation=None if template is None else template.metadata.generation or 0,
        replicas=replicas,
        provisioning_strategy=ACTIVE_PROVISIONING_STRATEGY if strategy == "" else strategy,
    )
    if status != buffer.status:
        buffer = replace(buffer, status=status)
    if failure:
        return set_buffer_condition(
            buffer,
            READY_FOR_PROVISIONING_CONDITION,
            False,
            "error",
            now,
            f"Buffer not ready for provisioning: {failure}",
        )
    return set_buffer_condition(
        buffer, READY_FOR_PROVISIONING_CONDITION, True, "AttributesSetSuccessfully", now, "ready"
    )


_MAX_INT32: Final = (1 << 31) - 1
_PRIORITY_CLASS_KEY: Final = "PriorityClass"
_SCOPE_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")

ResourceAmounts = dict[str, Fraction]


class AllocatedQuotas(msgspec.Struct, kw_only=True):
    """Buffers in order, their replicas limited by resource quotas. ``errors``: about quotas with invalid scopes."""

    buffers: list[CapacityBuffer] = []
    errors: list[str] = []


def allocate_quotas(
    buffers: Iterable[CapacityBuffer],
    templates: Mapping[str, PodTemplate],
    quotas: Sequence[ResourceQuota],
    now: datetime | Moment,
) -> AllocatedQuotas:
    """Limit the replicas of the buffers of one namespace, so that the namespace's quotas allow all their pods.

    Earlier buffers take from the quotas first. A quota limits the requests of the pods in its scope, as ``NAME`` and as
    ``requests.NAME``, never the number of pods. A buffer without a known template, number of replicas or requests is
    returned unchanged; the others get the condition ``LimitedByQuotas``.

    Parameters
    ----------
    buffers : iterable of CapacityBuffer
    templates : mapping of str to PodTemplate
        By ``namespace/name``.
    quotas : sequence of ResourceQuota
    now : datetime or int
        Time of changed conditions.

    Returns
    -------
    AllocatedQuotas
        ``buffers``: all buffers in order, with the allowed replicas. ``errors``: a message for each quota with an
        invalid scope, repeated for each buffer that was compared with the quota.
    """
    now = moment(now)
    allocated = AllocatedQuotas()
    reserved: dict[str, ResourceAmounts] = {}
    for buffer in buffers:
        status = buffer.status
        template = None
        if status.pod_template_ref is not None and status.pod_template_generation is not None:
            template = templates.get(f"{buffer.namespace}/{status.pod_template_ref.name}")
        if template is None or status.replicas is None:
            allocated.buffers.append(buffer)
            continue
        pod = Pod(spec=template.template.spec)
        asked = {
            key: amount.as_fraction() for name, amount in demand(pod).items() for key in (name, f"requests.{name}")
        }
        if not asked:
            allocated.buffers.append(buffer)
            continue
        matching = list(_iterate_matching_quotas(pod, quotas, allocated.errors))
        rooms = [_count_quota_room(quota, asked, reserved.get(quota.name, {})) for quota in matching]
        allowed = min([status.replicas, *rooms])
        blocking = [quota.name for quota, room in zip(matching, rooms, strict=True) if room < status.replicas]
        allocated.buffers.append(_limit_buffer(buffer, status.replicas, allowed, blocking, now))
        if allowed > 0:
            for quota in matching:
                _reserve_quota(reserved.setdefault(quota.name, {}), quota, asked, allowed)
    return allocated


def _limit_buffer(
    buffer: CapacityBuffer, wanted: int, allowed: int, blocking: Sequence[str], now: Moment
) -> CapacityBuffer:
    """Return the buffer with the condition that says whether quotas limit it.

    If fewer replicas are ``allowed`` than ``wanted``, the condition is true, its message names the quotas ``blocking``,
    and the status has ``allowed`` replicas.
    """
    text = ""
    if allowed < wanted:
        text = f"Buffer replicas limited from {wanted} to {allowed} due to quotas: {', '.join(blocking)}"
        buffer = replace(buffer, status=replace(buffer.status, replicas=allowed))
    generation = buffer.metadata.generation or None
    return set_buffer_condition(
        buffer, LIMITED_BY_QUOTAS_CONDITION, bool(text), "ResourceQuotasAllocated", now, text, generation
    )


def _count_quota_room(quota: ResourceQuota, asked: ResourceAmounts, reserved: ResourceAmounts) -> int:
    """Return how many pods with the requests ``asked`` the quota still allows.

    0 if the quota is exceeded; 2**31 - 1 if it limits none of the requests. ``reserved``: requests of earlier buffers
    that the quota counts.
    """
    room = _MAX_INT32
    used = quota.status.used or {}
    for name, hard in (quota.status.hard or {}).items():
        request = asked.get(name)
        if not request:
            continue
        free = hard.as_fraction() - reserved.get(name, 0)
        if name in used:
            free -= used[name].as_fraction()
        if free < 0:
            return 0
        room = min(room, int(free / request))
    return room


def _reserve_quota(reserved: ResourceAmounts, quota: ResourceQuota, asked: ResourceAmounts, replicas: int) -> None:
    """Add the requests of ``replicas`` pods to ``reserved``, for the resources that the quota limits.

    ``asked``: requests of one pod.
    """
    for name in (quota.status.hard or {}).keys() & asked.keys():
        reserved[name] = reserved.get(name, Fraction()) + asked[name] * replicas


def _iterate_matching_quotas(pod: Pod, quotas: Iterable[ResourceQuota], errors: list[str]) -> Iterator[ResourceQuota]:
    """Yield the quotas whose scopes include the pod.

    Append a message to ``errors`` for each quota with an invalid scope.
    """
    for quota in quotas:
        try:
            # Evaluate all scopes, so that a malformed scope is reported even if another scope does not match.
            matches = [_is_in_scope(pod, scope) for scope in _get_scopes(quota)]
        except SelectorError as error:
            errors.append(
                f"resourceQuotaAllocator: failed to check if pod matches quota {go_quote(quota.name)}, error: {error}"
            )
            continue
        if all(matches):
            yield quota


def _get_scopes(quota: ResourceQuota) -> list[ScopeSelectorRequirement]:
    """Return the quota's scopes and the terms of its scope selector as one list."""
    scopes = [ScopeSelectorRequirement(scope_name=scope, operator="Exists") for scope in quota.spec.scopes]
    if quota.spec.scope_selector is not None:
        scopes += quota.spec.scope_selector.match_expressions
    return scopes


def _is_in_scope(pod: Pod, scope: ScopeSelectorRequirement) -> bool:
    """Check whether a buffer's pod, which never terminates, is in the scope. False for an unknown scope.

    Raises SelectorError for an invalid selector.
    """
    match scope.scope_name:
        case "NotTerminating":
            return True
        case "BestEffort":
            return not _requests_cpu_or_memory(pod)
        case "NotBestEffort":
            return _requests_cpu_or_memory(pod)
        case "PriorityClass":
            return _has_priority_class(pod.spec.priority_class_name, scope)
        case "CrossNamespacePodAffinity":
            return any(term.namespaces or term.namespace_selector is not None for term in _iterate_affinity_terms(pod))
    return False


def _requests_cpu_or_memory(pod: Pod) -> bool:
    """Check whether the pod requests CPU or memory."""
    return not demand(pod).keys().isdisjoint(("cpu", "memory"))


def _has_priority_class(name: str, scope: ScopeSelectorRequirement) -> bool:
    """Check whether the name of a PriorityClass (empty: none) matches the scope.

    Raises SelectorError if the scope has an invalid operator or invalid values.
    """
    if scope.operator == "Exists":
        return bool(name)
    prefix = "failed to parse and convert selector: "
    if scope.operator not in _SCOPE_OPERATORS:
        raise SelectorError(f"{prefix}{go_quote(scope.operator)} is not a valid scope selector operator")
    wanted = LabelSelectorRequirement(key=_PRIORITY_CLASS_KEY, operator=scope.operator, values=scope.values)
    try:
        selector = compile_selector(LabelSelector(match_expressions=[wanted]))
    except SelectorError as error:
        raise SelectorError(f"{prefix}{error}") from None
    return selector.matches({_PRIORITY_CLASS_KEY: name} if name else None)


def _iterate_affinity_terms(pod: Pod) -> Iterator[PodAffinityTerm]:
    """Yield the pod's affinity and anti-affinity terms, preferred ones included."""
    affinity = pod.spec.affinity
    if affinity is None:
        return
    for side in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if side is not None:
            yield from side.required
            yield from (preference.pod_affinity_term for preference in side.preferred)


BufferControllerAction = ResolveWorkloadAction | ManagedTemplateAction | WriteStatus
"""Actions of the controller of capacity buffers."""

_MANAGED_STRATEGIES: Final = (ACTIVE_PROVISIONING_STRATEGY, "", None)


def is_managed_buffer(buffer: CapacityBuffer) -> bool:
    """Check whether this controller manages the buffer: its provisioning strategy is the active one or is not set."""
    return buffer.spec.provisioning_strategy in _MANAGED_STRATEGIES


def reconcile_buffers_steps(
    buffers: Iterable[CapacityBuffer], quotas: Sequence[ResourceQuota], *, now: Moment, dry_run: bool = True
) -> StepsOf[BufferControllerAction, tuple[list[CapacityBuffer], list[str]]]:
    """Reconcile the buffers of one namespace: write their managed pod templates, then statuses that changed.

    Buffers are handled from the oldest to the newest. Buffers of other provisioning strategies are left out
    (:func:`is_managed_buffer`).

    Parameters
    ----------
    buffers : iterable of CapacityBuffer
    quotas : sequence of ResourceQuota
        Quotas of the namespace; they limit the replicas of the buffers.
    now : int
        Start time, nanoseconds since 1970.
    dry_run : bool
        How the defaults of a template's pod are found. True: the API server creates the pod with a dry-run request.
        False: kscale computes only the default requests itself. Templates and statuses are written in both cases.

    Returns
    -------
    steps
        Generator of actions. It returns (buffers whose status is now up to date, error messages); the caller should
        retry the other buffers.
    """
    p = Progress(now)
    ordered = sorted(
        filter(is_managed_buffer, buffers),
        key=lambda buffer: (created_at(buffer), buffer.name),
    )
    errors: list[str] = []
    templates: dict[str, PodTemplate] = {}
    translated = []
    for buffer in ordered:
        scale = None
        if buffer.spec.scalable_ref is not None:
            template, scale, problem = yield from _reconcile_workload(p, buffer, dry_run)
        elif buffer.spec.pod_template_ref is not None:
            template, problem = yield from _reconcile_template(p, buffer, dry_run)
        else:
            translated.append(buffer)
            continue
        if problem:
            errors.append(problem)
        if template is not None:
            templates[template.key] = template
        translated.append(translate_buffer(buffer, template, scale=scale, problem=problem, now=p.now))
    allocated = allocate_quotas(translated, templates, quotas, p.now)
    errors += allocated.errors
    reconciled = []
    for buffer, updated in zip(ordered, allocated.buffers, strict=True):
        if updated.status != buffer.status:
            error = (yield from p.act(WriteStatus(updated))).error
            if error is not None:
                errors.append(error.message)
                continue
        reconciled.append(updated)
    return reconciled, errors


def _reconcile_template(
    p: Progress, buffer: CapacityBuffer, dry_run: bool
) -> StepsOf[BufferControllerAction, tuple[PodTemplate | None, str]]:
    """Create or update the managed template from the buffer's PodTemplate. ``dry_run``: as in :func:`resolve_fake_pod`.

    Returns (managed template, ""), or (None, error message).
    """
    assert buffer.spec.pod_template_ref is not None
    source = yield from p.act(
        GetUnstructured(
            kind="PodTemplate", api_version="v1", namespace=buffer.namespace, name=buffer.spec.pod_template_ref.name
        )
    )
    if source.error is not None:
        return None, f"capacity buffer client can't get pod template: {source.error.message}"
    pod, problem = yield from resolve_fake_pod(p, buffer.namespace, source.value.get("template") or {}, dry_run=dry_run)
    if problem:
        return None, f"failed to create fake pod: {problem}"
    template, problem = yield from ensure_managed_template(p, buffer, build_pod_template(pod))
    return template, f"failed to create or update managed pod template: {problem}" if problem else ""


def _reconcile_workload(
    p: Progress, buffer: CapacityBuffer, dry_run: bool
) -> StepsOf[BufferControllerAction, tuple[PodTemplate | None, int | None, str]]:
    """Create or update the managed template from the buffer's workload.

    ``dry_run``: as in :func:`resolve_fake_pod`. Returns (managed template, replicas of the workload, ""), or (None,
    replicas or None, error message).
    """
    spec, scale, problem = yield from resolve_workload(p, buffer, dry_run=dry_run)
    if spec is None:
        return None, None, problem
    template, problem = yield from ensure_managed_template(p, buffer, spec)
    return template, scale, problem


class ReconciliationTimes(msgspec.Struct, eq=False):
    """Times when the status of each buffer was last written or was already up to date."""

    _by_uid: dict[str, Moment] = {}

    def update(self, buffers: Iterable[CapacityBuffer], at: Moment) -> None:
        """Set the reconciliation time of these buffers to ``at``."""
        self._by_uid.update(dict.fromkeys((buffer.metadata.uid for buffer in buffers), at))

    def prune(self, buffers: Iterable[CapacityBuffer]) -> None:
        """Remove the times of all buffers except these."""
        there = {buffer.metadata.uid for buffer in buffers}
        self._by_uid = {uid: at for uid, at in self._by_uid.items() if uid in there}

    def build_observations(self, buffers: Iterable[CapacityBuffer], now: Moment) -> list[Observation]:
        """Return two observations: the oldest reconciliation time, and the oldest creation time of new buffers.

        A buffer is new if it has no conditions and was not reconciled yet. Both times are in integer Unix seconds, and
        ``now`` if there is no such buffer. A buffer that has conditions but was not reconciled since this process
        started counts in neither.
        """
        oldest = {"true": now, "false": now}
        for buffer in buffers:
            time = self._by_uid.get(buffer.metadata.uid)
            if time is not None:
                oldest["false"] = min(oldest["false"], time)
            elif not buffer.status.conditions:
                oldest["true"] = min(oldest["true"], created_at(buffer))
        name = "capacity_buffer_oldest_reconciliation_timestamp_seconds"
        return [build_observation(name, time // SECOND, new_buffer=is_new) for is_new, time in oldest.items()]
