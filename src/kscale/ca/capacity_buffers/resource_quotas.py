"""Buffers within the resource quotas of their namespace (``capacitybuffer/controller/resourcequotas.go``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Final

import msgspec
from msgspec.structs import replace

from kscale.ca.capacity_buffers.conditions import LIMITED_BY_QUOTAS, marked
from kscale.effects import Moment, moment
from kscale.objects.capacity_buffers import CapacityBuffer
from kscale.objects.core import Pod, PodAffinityTerm, PodTemplate
from kscale.objects.meta import LabelSelector, LabelSelectorRequirement
from kscale.objects.names import go_quote
from kscale.objects.requests import demand
from kscale.objects.resource_quotas import ResourceQuota, ScopeSelectorRequirement
from kscale.objects.selectors import SelectorError, compile_selector

__all__ = ["AllocatedQuotas", "allocate_quotas"]

_MOST: Final = (1 << 31) - 1
_PRIORITY_CLASS: Final = "PriorityClass"
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")

Amounts = dict[str, Fraction]


class AllocatedQuotas(msgspec.Struct, kw_only=True):
    """The buffers as the quotas leave them, in their order; ``errors``: quotas whose pods cannot be told."""

    buffers: list[CapacityBuffer] = []
    errors: list[str] = []


def allocate_quotas(
    buffers: Iterable[CapacityBuffer],
    templates: Mapping[str, PodTemplate],
    quotas: Sequence[ResourceQuota],
    now: datetime | Moment,
) -> AllocatedQuotas:
    """Cuts the replicas of the buffers of one namespace, which share what its quotas leave, the first ones first.

    ``templates`` by ``namespace/name``. A quota counts the requests of the pods that are in its scope, by their plain
    names and as ``requests.NAME``, never the number of pods. A buffer that is not ready passes as it is.
    """
    now = moment(now)
    found = AllocatedQuotas()
    reserved: dict[str, Amounts] = {}
    for buffer in buffers:
        status = buffer.status
        template = None
        if status.pod_template_ref is not None and status.pod_template_generation is not None:
            template = templates.get(f"{buffer.namespace}/{status.pod_template_ref.name}")
        if template is None or status.replicas is None:
            found.buffers.append(buffer)
            continue
        pod = Pod(spec=template.template.spec)
        asked = {
            key: amount.as_fraction() for name, amount in demand(pod).items() for key in (name, f"requests.{name}")
        }
        if not asked:
            found.buffers.append(buffer)
            continue
        matching = list(_matching(pod, quotas, found.errors))
        rooms = [_room(quota, asked, reserved.get(quota.metadata.uid, {})) for quota in matching]
        allowed = min([status.replicas, *rooms])
        blocking = [quota.name for quota, room in zip(matching, rooms, strict=True) if room < status.replicas]
        found.buffers.append(_limited(buffer, status.replicas, allowed, blocking, now))
        if allowed > 0:
            for quota in matching:
                _reserve(reserved.setdefault(quota.metadata.uid, {}), quota, asked, allowed)
    return found


def _limited(buffer: CapacityBuffer, wanted: int, allowed: int, blocking: Sequence[str], now: Moment) -> CapacityBuffer:
    """The buffer with what is said of quotas, and with no more replicas than allowed."""
    text = ""
    if allowed < wanted:
        text = f"Buffer replicas limited from {wanted} to {allowed} due to quotas: {', '.join(blocking)}"
        buffer = replace(buffer, status=replace(buffer.status, replicas=allowed))
    generation = buffer.metadata.generation or None
    return marked(buffer, LIMITED_BY_QUOTAS, bool(text), "ResourceQuotasAllocated", now, text, generation)


def _room(quota: ResourceQuota, asked: Amounts, reserved: Amounts) -> int:
    """How many such pods the quota leaves room for."""
    most = _MOST
    used = quota.status.used or {}
    for name, hard in (quota.status.hard or {}).items():
        each = asked.get(name)
        if not each:
            continue
        free = hard.as_fraction() - reserved.get(name, 0)
        if name in used:
            free -= used[name].as_fraction()
        if free < 0:
            return 0
        most = min(most, int(free / each))
    return most


def _reserve(reserved: Amounts, quota: ResourceQuota, asked: Amounts, replicas: int) -> None:
    for name in (quota.status.hard or {}).keys() & asked.keys():
        reserved[name] = reserved.get(name, Fraction()) + asked[name] * replicas


def _matching(pod: Pod, quotas: Iterable[ResourceQuota], errors: list[str]) -> Iterator[ResourceQuota]:
    """The quotas that count the pod."""
    for quota in quotas:
        try:
            # All are asked: one that cannot be told is told although another has said no.
            answers = [_is_in_scope(pod, each) for each in _scopes(quota)]
        except SelectorError as error:
            errors.append(
                f"resourceQuotaAllocator: failed to check if pod matches quota {go_quote(quota.name)}, error: {error}"
            )
            continue
        if all(answers):
            yield quota


def _scopes(quota: ResourceQuota) -> list[ScopeSelectorRequirement]:
    found = [ScopeSelectorRequirement(scope_name=scope, operator="Exists") for scope in quota.spec.scopes]
    if quota.spec.scope_selector is not None:
        found += quota.spec.scope_selector.match_expressions
    return found


def _is_in_scope(pod: Pod, scope: ScopeSelectorRequirement) -> bool:
    """Whether a pod of a buffer, which is there for good, is in a scope. Raises SelectorError."""
    match scope.scope_name:
        case "NotTerminating":
            return True
        case "BestEffort":
            return not _asks_for_cpu_or_memory(pod)
        case "NotBestEffort":
            return _asks_for_cpu_or_memory(pod)
        case "PriorityClass":
            return _is_of_priority_class(pod.spec.priority_class_name, scope)
        case "CrossNamespacePodAffinity":
            return any(term.namespaces or term.namespace_selector is not None for term in _terms(pod))
    return False


def _asks_for_cpu_or_memory(pod: Pod) -> bool:
    return not demand(pod).keys().isdisjoint(("cpu", "memory"))


def _is_of_priority_class(name: str, scope: ScopeSelectorRequirement) -> bool:
    if scope.operator == "Exists":
        return bool(name)
    prefix = "failed to parse and convert selector: "
    if scope.operator not in _OPERATORS:
        raise SelectorError(f"{prefix}{go_quote(scope.operator)} is not a valid scope selector operator")
    wanted = LabelSelectorRequirement(key=_PRIORITY_CLASS, operator=scope.operator, values=scope.values)
    try:
        selector = compile_selector(LabelSelector(match_expressions=[wanted]))
    except SelectorError as error:
        raise SelectorError(f"{prefix}{error}") from None
    return selector.matches({_PRIORITY_CLASS: name} if name else None)


def _terms(pod: Pod) -> Iterator[PodAffinityTerm]:
    """Its terms about other pods, wishes included."""
    affinity = pod.spec.affinity
    if affinity is None:
        return
    for side in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if side is not None:
            yield from side.required
            yield from (wish.pod_affinity_term for wish in side.preferred)
