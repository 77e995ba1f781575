"""The controller of buffers at work on one namespace (``capacitybuffer/controller/controller.go``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kscale.ca.capacity_buffers.conditions import ACTIVE_STRATEGY
from kscale.ca.capacity_buffers.fake_pods import resolve_pod
from kscale.ca.capacity_buffers.managed_template import Ensuring, ensure_managed_template, template_of_pod
from kscale.ca.capacity_buffers.resource_quotas import allocate_quotas
from kscale.ca.capacity_buffers.scalable_objects import Resolving, resolve_workload
from kscale.ca.capacity_buffers.translation import translate
from kscale.effects import GetWhole, Moment, Progress, StepsOf, WriteStatus, from_text
from kscale.objects.capacity_buffers import CapacityBuffer
from kscale.objects.core import PodTemplate
from kscale.objects.resource_quotas import ResourceQuota

__all__ = ["Reconciling", "is_reconciled", "reconcile_steps"]

Reconciling = Resolving | Ensuring | WriteStatus
"""What the controller asks for."""

_STRATEGIES: Final = (ACTIVE_STRATEGY, "", None)


def is_reconciled(buffer: CapacityBuffer) -> bool:
    """Whether this controller looks after the buffer."""
    return buffer.spec.provisioning_strategy in _STRATEGIES


def reconcile_steps(
    buffers: Iterable[CapacityBuffer], quotas: Sequence[ResourceQuota], *, now: Moment, dry_run: bool = True
) -> StepsOf[Reconciling, tuple[list[CapacityBuffer], list[str]]]:
    """Brings the buffers of one namespace up to date: their templates, then their statuses, cut by its quotas. Gives
    those whose status is as it should be, and what went wrong, so that it is tried again.

    ``dry_run``: the API server is asked what pods of a template would be like.
    """
    p = Progress(now)
    ordered = sorted(
        filter(is_reconciled, buffers),
        key=lambda buffer: (from_text(buffer.metadata.creation_timestamp), buffer.name),
    )
    errors: list[str] = []
    templates: dict[str, PodTemplate] = {}
    translated = []
    for buffer in ordered:
        scale = None
        if buffer.spec.scalable_ref is not None:
            template, scale, problem = yield from _of_workload(p, buffer, dry_run)
        elif buffer.spec.pod_template_ref is not None:
            template, problem = yield from _of_template(p, buffer, dry_run)
        else:
            translated.append(buffer)
            continue
        if problem:
            errors.append(problem)
        if template is not None:
            templates[template.key] = template
        translated.append(translate(buffer, template, scale=scale, problem=problem, now=p.now))
    allocated = allocate_quotas(translated, templates, quotas, p.now)
    errors += allocated.errors
    reconciled = []
    for buffer, found in zip(ordered, allocated.buffers, strict=True):
        if found.status != buffer.status:
            refusal = (yield from p.act(WriteStatus(found))).error
            if refusal is not None:
                errors.append(refusal.message)
                continue
        reconciled.append(found)
    return reconciled, errors


def _of_template(
    p: Progress, buffer: CapacityBuffer, dry_run: bool
) -> StepsOf[Reconciling, tuple[PodTemplate | None, str]]:
    assert buffer.spec.pod_template_ref is not None
    source = yield from p.act(
        GetWhole(
            kind="PodTemplate", api_version="v1", namespace=buffer.namespace, name=buffer.spec.pod_template_ref.name
        )
    )
    if source.error is not None:
        return None, f"capacity buffer client can't get pod template: {source.error.message}"
    pod, problem = yield from resolve_pod(p, buffer.namespace, source.value.get("template") or {}, dry_run=dry_run)
    if problem:
        return None, f"failed to create fake pod: {problem}"
    template, problem = yield from ensure_managed_template(p, buffer, template_of_pod(pod))
    return template, f"failed to create or update managed pod template: {problem}" if problem else ""


def _of_workload(
    p: Progress, buffer: CapacityBuffer, dry_run: bool
) -> StepsOf[Reconciling, tuple[PodTemplate | None, int | None, str]]:
    spec, scale, problem = yield from resolve_workload(p, buffer, dry_run=dry_run)
    if spec is None:
        return None, None, problem
    template, problem = yield from ensure_managed_template(p, buffer, spec)
    return template, scale, problem
