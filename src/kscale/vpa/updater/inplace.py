"""Resizing in place: decisions, what a pod's conditions say, patches (``pkg/updater/restriction``, ``inplace``)."""

from __future__ import annotations

from typing import Final

from kscale.effects import ApiError, PatchOperation
from kscale.errors import KscaleError
from kscale.objects import conditions
from kscale.objects.core import Pod
from kscale.objects.meta import Condition
from kscale.objects.vpa import VerticalPodAutoscaler, update_mode
from kscale.vpa.admission.pod_handler import value_patches
from kscale.vpa.capping import CappingError
from kscale.vpa.container_resources import ContainerResources, ProviderError, containers_resources
from kscale.vpa.limit_range import LimitRangeLookup
from kscale.vpa.patches import (
    IN_PLACE_UPDATED,
    STARTUP_BOOST,
    annotate,
    ensure_annotations,
    remove_annotation,
)
from kscale.vpa.startup_boost import BoostError, boost_annotations, expired_boosts, original_resources

__all__ = [
    "APPROVED",
    "DEFERRED",
    "EVICT",
    "INFEASIBLE",
    "INFEASIBLE_CACHED",
    "InPlaceError",
    "is_infeasible",
    "is_resizing",
    "patches_for",
    "resize_status",
    "restarts_containers",
]

APPROVED: Final = "InPlaceApproved"
DEFERRED: Final = "InPlaceDeferred"
EVICT: Final = "InPlaceEvict"
INFEASIBLE: Final = "InPlaceInfeasible"
INFEASIBLE_CACHED: Final = "InPlaceInfeasibleCached"

RESIZE_NONE: Final = "ResizeNone"
RESIZE_DEFERRED: Final = "ResizeDeferred"
RESIZE_INFEASIBLE: Final = "ResizeInfeasible"
RESIZE_IN_PROGRESS: Final = "ResizeInProgress"
RESIZE_ERROR: Final = "ResizeError"
RESIZE_UNKNOWN: Final = "ResizeUnknown"

RESIZE_PENDING: Final = "PodResizePending"
RESIZE_RUNNING: Final = "PodResizeInProgress"


_NO_ROOM: Final = "NodeCapacity"


class InPlaceError(KscaleError, ValueError):
    """A pod that cannot be patched, with upstream's text."""


def is_infeasible(error: ApiError) -> bool:
    """Whether the API server says that the node is too small for the resize, for good (``isInfeasibleError``)."""
    return error.reason == "Forbidden" and _NO_ROOM in error.causes


def is_resizing(pod: Pod) -> bool:
    """Whether the first of a pod's resize conditions is True."""
    for condition in pod.status.conditions:
        if condition.type in (RESIZE_PENDING, RESIZE_RUNNING):
            return condition.status == "True"
    return False


def resize_condition(pod: Pod) -> Condition | None:
    """The condition that says how a resize goes: pending goes before in progress."""
    pending = conditions.find(pod.status.conditions, RESIZE_PENDING)
    return pending if pending is not None else conditions.find(pod.status.conditions, RESIZE_RUNNING)


def resize_status(pod: Pod) -> str:
    """``GetResizeStatus``."""
    condition = resize_condition(pod)
    if not is_resizing(pod) or condition is None:
        return RESIZE_NONE
    if condition.type == RESIZE_PENDING:
        return {"Deferred": RESIZE_DEFERRED, "Infeasible": RESIZE_INFEASIBLE}.get(condition.reason, RESIZE_UNKNOWN)
    if not condition.reason and not condition.message:
        return RESIZE_IN_PROGRESS
    return RESIZE_ERROR if condition.reason == "Error" else RESIZE_UNKNOWN


def restarts_containers(pod: Pod) -> bool:
    """Whether a resize restarts some container (regular ones only)."""
    return any(
        policy.restart_policy == "RestartContainer"
        for container in pod.spec.containers
        for policy in container.resize_policy
    )


def patches_for(
    pod: Pod, vpa: VerticalPodAutoscaler, limit_ranges: LimitRangeLookup | None, now: int
) -> tuple[list[PatchOperation], list[PatchOperation]]:
    """(for the ``resize`` sub-resource, for the pod's annotations); raises :class:`InPlaceError`."""
    try:
        resize = _resource_patches(pod, vpa, limit_ranges, now)
    except (BoostError, CappingError, ProviderError) as error:
        text = f"failed to calculate resource patch for pod {pod.namespace}/{pod.name}: {error}"
        raise InPlaceError(text) from None
    if not resize:
        raise InPlaceError("no resource patches were calculated to apply")
    annotations = [*ensure_annotations(pod), annotate(IN_PLACE_UPDATED, "true")]
    annotations += [remove_annotation(f"{STARTUP_BOOST}/{name}") for name in expired_boosts(pod, vpa, now)]
    return resize, annotations


def _resource_patches(
    pod: Pod, vpa: VerticalPodAutoscaler, limit_ranges: LimitRangeLookup | None, now: int
) -> list[PatchOperation]:
    off = update_mode(vpa) == "Off"
    recommended = (
        [ContainerResources()] * len(pod.spec.containers)
        if off
        else containers_resources(pod, vpa, limit_ranges).containers
    )
    boosted, expired = set(boost_annotations(pod)), set(expired_boosts(pod, vpa, now))
    patches: list[PatchOperation] = []
    for i, (container, wanted) in enumerate(zip(pod.spec.containers, recommended, strict=True)):
        if container.name in expired:
            if not wanted.requests and not wanted.limits:
                wanted = original_resources(pod, container.name)
        elif off or container.name in boosted:
            continue
        path = f"/spec/containers/{i}/resources"
        requests, limits = container.resources.requests, container.resources.limits
        if requests is None and limits is None:
            patches.append(PatchOperation("add", path, {}))
        patches += value_patches(f"{path}/requests", requests, wanted.requests)
        patches += value_patches(f"{path}/limits", limits, wanted.limits)
    return patches
