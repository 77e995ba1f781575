"""The target of an HPA: finding and reading its scale, and writing it.

Upstream: ``scaleForResourceMappings`` and the end of ``reconcileAutoscaler`` in ``horizontal.go``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kscale.effects import (
    DEADLINE_EXCEEDED,
    SECOND,
    ApiError,
    Emit,
    GetScale,
    Progress,
    PutScale,
    StepsOf,
    Wait,
    WriteStatus,
)
from kscale.hpa.reconcile_pass import Pass
from kscale.objects.autoscaling import Scale
from kscale.objects.rest_mapping import RESTMapper, RESTMappingError, parse_group_version

__all__ = ["NoScale", "TargetScale", "ask_scale", "find_scale", "put_scale"]

_ATTEMPTS: Final = 5
_RETRY_DELAY: Final = SECOND // 100
_JITTER: Final = 0.1


class TargetScale(msgspec.Struct, frozen=True, gc=False):
    """The scale that was read, and the group-resource it was read of."""

    scale: Scale
    resource: str


@dataclass(frozen=True, slots=True)
class NoScale:
    """There is none: what upstream's sync returns, and whether the HPA's own spec is at fault."""

    error: str
    error_class: str


def find_scale(now: Pass, mapper: RESTMapper) -> StepsOf[GetScale | WriteStatus | Emit, TargetScale | NoScale]:
    """Tries every resource that the target's kind is served as; the first error counts if none has it."""
    reference, namespace = now.hpa.spec.scale_target_ref, now.hpa.metadata.namespace
    try:
        group, _ = parse_group_version(reference.api_version)
    except RESTMappingError as error:
        yield from _fail(now, str(error))
        return NoScale(f"invalid API version in scale target reference: {error}", "spec")
    try:
        resources = mapper.resources(group, reference.kind)
    except RESTMappingError as error:
        yield from _fail(now, str(error))
        return NoScale(f"unable to determine resource for scale target reference: {error}", "internal")
    found = yield from ask_scale(now.progress, namespace, reference.name, resources)
    if isinstance(found, TargetScale):
        return found
    text = "unrecognized resource" if found is None else found.message
    yield from _fail(now, text)
    whole = f"{reference.kind}/{namespace}/{reference.name}"
    return NoScale(f"failed to query scale subresource for {whole}: {text}", "internal")


def ask_scale(
    progress: Progress, namespace: str, name: str, resources: Sequence[str]
) -> StepsOf[GetScale, TargetScale | ApiError | None]:
    """The scale of the first resource that has one, or the first error; None: there is no resource."""
    first: ApiError | None = None
    for resource in resources:
        outcome = yield from progress.act(GetScale(namespace=namespace, resource=resource, name=name))
        if outcome.error is None:
            return TargetScale(outcome.value, resource)
        if outcome.error == DEADLINE_EXCEEDED:
            return outcome.error  # there was no time to ask whom it is worth asking
        first = first or outcome.error
    return first


def _fail(now: Pass, error: str) -> StepsOf[WriteStatus | Emit, None]:
    yield from now.warn("FailedGetScale", error)
    text = f"the HPA controller was unable to get the target's current scale: {error}"
    now.set("AbleToScale", False, "FailedGetScale", text)
    yield from now.write_status()


def put_scale(now: Pass, target: TargetScale, replicas: int) -> StepsOf[PutScale | GetScale | Wait, ApiError | None]:
    """Writes a size; what stands against it if that fails for good.

    After any failure the scale is read anew; after a conflict the same size is written again, five times at most. The
    legacy profile writes once.
    """
    namespace, name = now.hpa.metadata.namespace, now.hpa.spec.scale_target_ref.name
    scale, resource = target.scale, target.resource
    for attempt in range(1, _ATTEMPTS + 1):
        written = PutScale(namespace=namespace, resource=resource, scale=scale, replicas=replicas)
        error: ApiError | None = (yield from now.progress.act(written)).error
        if error is None or now.options.legacy:
            return error  # legacy: what met a conflict waits for the next period
        asked = GetScale(namespace=namespace, resource=resource, name=name, fresh=True)
        again = yield from now.progress.act(asked)
        if again.error is None:
            scale = again.value
        if not error.is_conflict or attempt == _ATTEMPTS:
            break
        if (yield from now.progress.wait(_RETRY_DELAY, jitter=_JITTER)).error is not None:
            break  # the process ends: what the last attempt said is what there is to say
    return error
