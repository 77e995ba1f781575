"""In-place updates: when a pod is resized, when it is evicted instead because its resize failed or is stuck,
and the patches of a resize (upstream: ``pkg/updater/inplace``, ``pkg/updater/restriction``).
"""

from __future__ import annotations

from typing import Final

from kscale.effects import ApiError, PatchOperation
from kscale.errors import KscaleError
from kscale.objects import conditions
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import Condition
from kscale.objects.api.vpa import VerticalPodAutoscaler, update_mode
from kscale.vpa.admission.pod_handler import build_value_patches
from kscale.vpa.capping import CappingError, LimitRangeLookup
from kscale.vpa.container_resources import (
    IN_PLACE_UPDATED_ANNOTATION,
    STARTUP_BOOST_ANNOTATION,
    BoostError,
    ContainerResources,
    ProviderError,
    add_annotation,
    ensure_annotations,
    find_boosted_containers,
    find_expired_boosts,
    parse_original_resources,
    recommend_container_resources,
    remove_annotation,
)

__all__ = [
    "IN_PLACE_APPROVED",
    "IN_PLACE_DEFERRED",
    "IN_PLACE_EVICT",
    "IN_PLACE_INFEASIBLE",
    "IN_PLACE_INFEASIBLE_CACHED",
    "RESIZE_NONE",
    "InPlaceError",
    "build_in_place_patches",
    "decide_in_place",
    "get_resize_status",
    "is_infeasible",
    "is_resize_stuck",
    "is_resizing",
    "restarts_containers",
]

IN_PLACE_APPROVED: Final = "InPlaceApproved"
IN_PLACE_DEFERRED: Final = "InPlaceDeferred"
IN_PLACE_EVICT: Final = "InPlaceEvict"
IN_PLACE_INFEASIBLE: Final = "InPlaceInfeasible"
IN_PLACE_INFEASIBLE_CACHED: Final = "InPlaceInfeasibleCached"

RESIZE_NONE: Final = "ResizeNone"
RESIZE_DEFERRED: Final = "ResizeDeferred"
RESIZE_INFEASIBLE: Final = "ResizeInfeasible"
RESIZE_IN_PROGRESS: Final = "ResizeInProgress"
RESIZE_ERROR: Final = "ResizeError"
RESIZE_UNKNOWN: Final = "ResizeUnknown"

RESIZE_PENDING_CONDITION: Final = "PodResizePending"
RESIZE_IN_PROGRESS_CONDITION: Final = "PodResizeInProgress"


_NODE_CAPACITY: Final = "NodeCapacity"


class InPlaceError(KscaleError, ValueError):
    """A pod that cannot be patched, with upstream's text."""


def is_infeasible(error: ApiError) -> bool:
    """Check whether the API server reports that the node will never have room for the resize
    (``isInfeasibleError``).
    """
    return error.reason == "Forbidden" and _NODE_CAPACITY in error.causes


def is_resizing(pod: Pod) -> bool:
    """Check whether the first PodResizePending or PodResizeInProgress condition of a pod has the status True.

    False if the pod has neither.
    """
    for condition in pod.status.conditions:
        if condition.type in (RESIZE_PENDING_CONDITION, RESIZE_IN_PROGRESS_CONDITION):
            return condition.status == "True"
    return False


def get_resize_condition(pod: Pod) -> Condition | None:
    """Return the condition that shows the progress of a resize; pending takes precedence. None without a resize."""
    pending = conditions.find(pod.status.conditions, RESIZE_PENDING_CONDITION)
    return pending if pending is not None else conditions.find(pod.status.conditions, RESIZE_IN_PROGRESS_CONDITION)


def get_resize_status(pod: Pod) -> str:
    """Return the resize status of a pod, one of the ``RESIZE_*`` constants (``GetResizeStatus``)."""
    condition = get_resize_condition(pod)
    if not is_resizing(pod) or condition is None:
        return RESIZE_NONE
    if condition.type == RESIZE_PENDING_CONDITION:
        return {"Deferred": RESIZE_DEFERRED, "Infeasible": RESIZE_INFEASIBLE}.get(condition.reason, RESIZE_UNKNOWN)
    if not condition.reason and not condition.message:
        return RESIZE_IN_PROGRESS
    return RESIZE_ERROR if condition.reason == "Error" else RESIZE_UNKNOWN


def restarts_containers(pod: Pod) -> bool:
    """Check whether a resize restarts any container (regular containers only)."""
    return any(
        policy.restart_policy == "RestartContainer"
        for container in pod.spec.containers
        for policy in container.resize_policy
    )


def build_in_place_patches(
    pod: Pod, vpa: VerticalPodAutoscaler, limit_ranges: LimitRangeLookup | None, now: int
) -> tuple[list[PatchOperation], list[PatchOperation]]:
    """Build the patches of the ``resize`` sub-resource, and those of the pod's annotations.

    Containers whose startup boost has expired at ``now`` (nanoseconds) lose the boost and its annotation. Raises
    :class:`InPlaceError` if the resources cannot be computed, or if there is nothing to set.
    """
    try:
        resize = _build_resize_patches(pod, vpa, limit_ranges, now)
    except (BoostError, CappingError, ProviderError) as error:
        text = f"failed to calculate resource patch for pod {pod.namespace}/{pod.name}: {error}"
        raise InPlaceError(text) from None
    if not resize:
        raise InPlaceError("no resource patches were calculated to apply")
    annotations = [*ensure_annotations(pod), add_annotation(IN_PLACE_UPDATED_ANNOTATION, "true")]
    annotations += [
        remove_annotation(f"{STARTUP_BOOST_ANNOTATION}/{name}") for name in find_expired_boosts(pod, vpa, now)
    ]
    return resize, annotations


def _build_resize_patches(
    pod: Pod, vpa: VerticalPodAutoscaler, limit_ranges: LimitRangeLookup | None, now: int
) -> list[PatchOperation]:
    """Build the patches that set the containers' resources to the recommendation, including unchanged amounts.

    A container whose boost has expired at ``now`` gets the recommended resources, or its original ones without a
    recommendation. A container whose boost has not expired gets no patches. In mode Off, containers without a boost get
    none either. Any other one without requests and limits gets a patch that adds empty resources, even without a
    recommendation. Raises BoostError, CappingError or ProviderError if resources cannot be computed.
    """
    off = update_mode(vpa) == "Off"
    recommended = (
        [ContainerResources()] * len(pod.spec.containers)
        if off
        else recommend_container_resources(pod, vpa, limit_ranges).containers
    )
    boosted, expired = set(find_boosted_containers(pod)), set(find_expired_boosts(pod, vpa, now))
    patches: list[PatchOperation] = []
    for i, (container, wanted) in enumerate(zip(pod.spec.containers, recommended, strict=True)):
        if container.name in expired:
            if not wanted.requests and not wanted.limits:
                wanted = parse_original_resources(pod, container.name)
        elif off or container.name in boosted:
            continue
        path = f"/spec/containers/{i}/resources"
        requests, limits = container.resources.requests, container.resources.limits
        if requests is None and limits is None:
            patches.append(PatchOperation("add", path, {}))
        patches += build_value_patches(f"{path}/requests", requests, wanted.requests)
        patches += build_value_patches(f"{path}/limits", limits, wanted.limits)
    return patches


_DEFERRED_TIMEOUT: Final = 5 * 60 * 10**9
_IN_PROGRESS_TIMEOUT: Final = 3600 * 10**9


def is_resize_stuck(pod: Pod, waited: int) -> bool:
    """Check whether the resize of a pod has failed, or is stuck ``waited`` nanoseconds after its first attempt.

    False for a pod that is not being resized.
    """
    condition = get_resize_condition(pod)
    if not is_resizing(pod) or condition is None:
        return False
    if condition.type == RESIZE_PENDING_CONDITION:
        return waited > _DEFERRED_TIMEOUT if condition.reason == "Deferred" else True
    if not condition.reason and not condition.message:
        return waited > _IN_PROGRESS_TIMEOUT
    return True


def decide_in_place(pod: Pod, *, in_place_only: bool, may_disrupt: bool, waited: int, skip_budget: bool) -> str:
    """Decide whether to resize a pod, to wait, or to evict it instead.

    Parameters
    ----------
    pod : Pod
        The pod.
    in_place_only : bool
        Whether the update mode is InPlace, in which no pod is evicted.
    may_disrupt : bool
        Whether the pod's group tolerates one disruption more.
    waited : int
        Nanoseconds since the first attempt to resize the pod.
    skip_budget : bool
        Whether a resize that restarts no container needs no disruption budget.

    Returns
    -------
    str
        One of the ``IN_PLACE_*`` constants: approved (resize the pod now), deferred (leave it for now), evict (its
        resize failed or is stuck) or, in mode InPlace, infeasible (its node has no room for the current resize).
    """
    status = get_resize_status(pod)
    if status != RESIZE_NONE:
        if in_place_only:
            return IN_PLACE_INFEASIBLE if status == RESIZE_INFEASIBLE else IN_PLACE_DEFERRED
        return IN_PLACE_EVICT if may_disrupt and is_resize_stuck(pod, waited) else IN_PLACE_DEFERRED
    if skip_budget and not restarts_containers(pod):
        return IN_PLACE_APPROVED
    return IN_PLACE_APPROVED if may_disrupt else IN_PLACE_DEFERRED
