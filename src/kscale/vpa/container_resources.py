"""Requests and limits that the containers of a pod get, the startup boost, and the JSON patches and annotations that
set them (upstream: ``resource/pod/recommendation``, ``pkg/utils/vpa``).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from kscale.effects import PatchOperation
from kscale.errors import KscaleError
from kscale.objects import conditions
from kscale.objects.api.core import Container, LimitRangeItem, Pod
from kscale.objects.api.meta import ResourceList
from kscale.objects.api.vpa import (
    ContainerPolicies,
    PodResourcePolicy,
    RecommendedPodResources,
    StartupBoost,
    StartupBoostCpu,
    VerticalPodAutoscaler,
    update_mode,
)
from kscale.objects.decode import from_json
from kscale.objects.names import dns_label_errors
from kscale.objects.quantity import DECIMAL_SI, Quantity
from kscale.vpa.capping import (
    CONTAINER_LIMIT,
    LimitRangeError,
    LimitRangeLookup,
    LimitRanges,
    cap_recommendation,
    get_proportional_limits,
)
from kscale.vpa.resources import CPU, MEMORY, CurrentResources, float_to_int64

__all__ = [
    "IN_PLACE_UPDATED_ANNOTATION",
    "OBSERVED_CONTAINERS_ANNOTATION",
    "STARTUP_BOOST_ANNOTATION",
    "VPA_UPDATES_ANNOTATION",
    "AnnotationError",
    "BoostError",
    "ContainerResources",
    "PodContainerResources",
    "ProviderError",
    "add_annotation",
    "apply_boost",
    "build_container_resources",
    "ensure_annotations",
    "escape_json_pointer",
    "find_boosted_containers",
    "find_expired_boosts",
    "format_observed_containers",
    "get_annotation_pointer",
    "has_boost_in_progress",
    "has_startup_boost",
    "parse_observed_containers",
    "parse_original_resources",
    "recommend_container_resources",
    "remove_annotation",
]


VPA_UPDATES_ANNOTATION: Final = "vpaUpdates"
OBSERVED_CONTAINERS_ANNOTATION: Final = "vpaObservedContainers"
IN_PLACE_UPDATED_ANNOTATION: Final = "vpaInPlaceUpdated"
STARTUP_BOOST_ANNOTATION: Final = "vpaCpuStartupBoost"
_SEPARATOR: Final = ", "


class AnnotationError(ValueError):
    """An annotation that cannot be read, with upstream's text."""


def escape_json_pointer(token: str) -> str:
    """Return a key escaped for use in a JSON pointer."""
    return token.replace("~", "~0").replace("/", "~1")


def get_annotation_pointer(name: str) -> str:
    """Return the JSON pointer of an annotation in an object's metadata."""
    return f"/metadata/annotations/{escape_json_pointer(name)}"


def add_annotation(name: str, value: str) -> PatchOperation:
    """Build the patch that sets an annotation."""
    return PatchOperation("add", get_annotation_pointer(name), value)


def remove_annotation(name: str) -> PatchOperation:
    """Build the patch that removes an annotation. Upstream's patch has a null value."""
    return PatchOperation("remove", get_annotation_pointer(name), None)


def ensure_annotations(pod: Pod) -> list[PatchOperation]:
    """Return the patch that creates the map of annotations; empty if the pod has annotations."""
    return [PatchOperation("add", "/metadata/annotations", {})] if pod.metadata.annotations is None else []


def format_observed_containers(pod: Pod) -> str:
    """Return the value of the annotation that lists a pod's containers: their names, separated by ``", "``."""
    return _SEPARATOR.join(container.name for container in pod.spec.containers)


def parse_observed_containers(text: str) -> list[str]:
    """Parse the annotation that lists a pod's containers into their names; empty for an empty text.

    Raises :class:`AnnotationError` if a name cannot be a container's.
    """
    if not text:
        return []
    names = text.split(_SEPARATOR)
    for name in names:
        wrong = dns_label_errors(name)
        if wrong:
            raise AnnotationError(f"incorrect format: {name} is not a valid container name: [{' '.join(wrong)}]")
    return names


class ProviderError(KscaleError, ValueError):
    """Resources could not be computed, with upstream's text."""


class ContainerResources(NamedTuple):
    """Resources that one container gets; None where nothing is set."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None


class PodContainerResources(NamedTuple):
    """One entry for each container of the pod in its order, notes per container, and diagnostics."""

    containers: list[ContainerResources]
    notes: dict[str, list[str]]
    diagnostics: list[str]


def recommend_container_resources(
    pod: Pod, vpa: VerticalPodAutoscaler, limit_ranges: LimitRangeLookup | None = None
) -> PodContainerResources:
    """Return the recommendation fitted to the pod, with proportional limits (``GetContainersResourcesForPod``).

    In update mode Off the limits are computed as if no policy said RequestsOnly. Raises
    :class:`kscale.vpa.capping.CappingError` if the recommendation cannot be fitted, and :class:`ProviderError` if the
    limit ranges cannot be read.
    """
    lookup = limit_ranges or LimitRanges()
    recommendation: RecommendedPodResources | None = RecommendedPodResources()
    notes: dict[str, list[str]] = {}
    diagnostics: list[str] = []
    if vpa.status.recommendation is not None:
        recommendation, notes, diagnostics = cap_recommendation(vpa, pod, lookup)
    try:
        item = lookup.effective(pod.namespace, CONTAINER_LIMIT)
    except LimitRangeError as error:
        raise ProviderError(f"error getting containerLimitRange: {error}") from None
    policy = None if update_mode(vpa) == "Off" else vpa.spec.resource_policy
    containers = build_container_resources(pod, policy, recommendation or RecommendedPodResources(), item, notes)
    return PodContainerResources(containers, notes, diagnostics)


def build_container_resources(
    pod: Pod,
    policy: PodResourcePolicy | None,
    recommendation: RecommendedPodResources,
    limits: LimitRangeItem | None,
    notes: dict[str, list[str]],
    *,
    add_all: bool = False,
) -> list[ContainerResources]:
    """Build requests and limits of each container, in the pod's order, without capping (``GetContainersResources``).

    ``limits``: the namespace's limit range for containers, whose defaults are the limits of containers without any.
    ``notes``: by container; notes on limits are added in place. A container whose policy is RequestsOnly gets no
    limits. A container without a recommendation gets no requests and no limits. With ``add_all``, such a container
    keeps its requests, and CPU and memory that requests or limits lack are taken from the container.
    """
    targets: dict[str, ResourceList | None] = {}
    for item in recommendation.container_recommendations:
        targets.setdefault(item.container_name, item.target)
    current, policies = CurrentResources(pod), ContainerPolicies(policy)
    result = []
    for container in pod.spec.containers:
        if container.name not in targets and not add_all:
            result.append(ContainerResources())
            continue
        current_requests, current_limits = current.get(container.name)
        target = targets.get(container.name, current_requests)
        requests = None if target is None else {name: amount for name, amount in target.items() if name}
        own_limits: ResourceList | None = None
        if policies.controlled_values(container.name) == "RequestsAndLimits":
            defaults = limits.default if limits is not None else None
            own_limits, limit_notes = get_proportional_limits(current_limits, current_requests, requests, defaults)
            if own_limits is not None and limit_notes:
                notes.setdefault(container.name, []).extend(limit_notes)
        if add_all:
            requests = _fill_missing(requests, current_requests)
            own_limits = _fill_missing(own_limits, current_limits)
        result.append(ContainerResources(requests, own_limits))
    return result


def _fill_missing(values: ResourceList | None, current: ResourceList | None) -> ResourceList | None:
    """Return the recommended ``values``, completed with CPU and memory of ``current``.

    None if ``values`` is None and ``current`` has no CPU and no memory.
    """
    missing: ResourceList = {name: (current or {})[name] for name in (CPU, MEMORY) if name in (current or {})}
    if not missing:
        return values
    return {**missing, **(values or {})}


_BOOST_ANNOTATION_PREFIX = STARTUP_BOOST_ANNOTATION + "/"


class BoostError(KscaleError, ValueError):
    """A boost that cannot be computed, with upstream's text."""


class _OriginalResources(msgspec.Struct):
    requests: dict[str, str] | None = None
    limits: dict[str, str] | None = None


def has_startup_boost(vpa: VerticalPodAutoscaler) -> bool:
    """Check whether a VPA has a startup boost, even an empty one, for the pod or a container (``HasStartupBoost``)."""
    policies = vpa.spec.resource_policy.container_policies if vpa.spec.resource_policy is not None else []
    return vpa.spec.startup_boost is not None or any(item.startup_boost is not None for item in policies)


def _get_boost(container: str, vpa: VerticalPodAutoscaler, policies: ContainerPolicies) -> StartupBoost | None:
    """Return the startup boost of a container: its policy's, else the VPA's; None if there is none."""
    policy = policies.get(container)
    if policy is not None and policy.startup_boost is not None:
        return policy.startup_boost
    return vpa.spec.startup_boost


def has_empty_boost(container: str, vpa: VerticalPodAutoscaler, policies: ContainerPolicies) -> bool:
    """Check whether the ``startupBoost`` that applies to a container has no ``cpu``, on which upstream crashes."""
    boost = _get_boost(container, vpa, policies)
    return boost is not None and boost.cpu is None


# -- at admission ----------------------------------------------------------------------------------------------


def _compute_boosted_cpu(base: Quantity, boost: StartupBoostCpu) -> Quantity:
    """Return the CPU request during the boost. ``base``: the one without it.

    Raises BoostError for a missing or invalid field.
    """
    if boost.type in ("", "Factor"):
        if boost.factor is None:
            raise BoostError("startupBoost.CPU.Factor is required when Type is Factor or not specified")
        if boost.factor < 1:
            raise BoostError("boost factor must be >= 1")
        milli = float_to_int64(float(base.milli_value()) * float(boost.factor))
        return Quantity.from_int(milli, DECIMAL_SI, -3)
    if boost.type == "Quantity":
        if boost.quantity is None:
            raise BoostError("startupBoost.CPU.Quantity is required when Type is Quantity")
        return Quantity.from_int(base.milli_value() + boost.quantity.milli_value(), DECIMAL_SI, -3)
    raise BoostError(f"unsupported startup boost type: {boost.type}")


def apply_boost(
    container: Container,
    vpa: VerticalPodAutoscaler,
    policies: ContainerPolicies,
    resources: ContainerResources,
    max_cpu: Quantity,
) -> tuple[ContainerResources, list[PatchOperation]]:
    """Return a container's resources while it starts, and the patch of the annotation that stores its original ones.

    Without a boost these are ``resources`` and an empty list. ``policies``: the policies of ``vpa``. ``resources``:
    what the container gets without the boost. ``max_cpu``: the maximum CPU request of a boosted container (zero for no
    maximum). Raises :class:`BoostError` for a boost with a missing or invalid field. Upstream crashes on a
    ``startupBoost`` without ``cpu``; here it boosts nothing.
    """
    boost = _get_boost(container.name, vpa, policies)
    if boost is None or boost.cpu is None:
        return resources, []
    own_requests, own_limits = container.resources.requests or {}, container.resources.limits or {}
    zero = Quantity.zero()
    base = (resources.requests or {}).get(CPU, zero)
    if base.is_zero:
        base = own_requests.get(CPU, zero)
    boosted = _compute_boosted_cpu(base, boost.cpu)
    if not max_cpu.is_zero and max_cpu < boosted:
        boosted = max_cpu
    requests = {**(resources.requests or {}), CPU: boosted}
    limits = resources.limits
    if policies.controlled_values(container.name) == "RequestsOnly":
        limit = own_limits.get(CPU)
        if limit is not None and boosted.milli_value() > limit.milli_value():
            one = Quantity("1m")
            requests[CPU] = limit - one if one < limit else limit  # keeps the pod Burstable
    else:
        new_limits, _ = get_proportional_limits(own_limits, own_requests, {CPU: boosted}, {})
        if new_limits is not None and CPU in new_limits:
            limits = {**(limits or {}), CPU: new_limits[CPU]}
    patch = add_annotation(_BOOST_ANNOTATION_PREFIX + container.name, format_original_resources(container))
    return ContainerResources(requests, limits), [patch]


def format_original_resources(container: Container) -> str:
    """Return the JSON of the boost annotation: the cpu and memory of the container's own requests and limits.

    Amounts that are not set are left out.
    """

    def format_resources(resources: ResourceList | None) -> dict[str, str]:
        return {name: str((resources or {})[name]) for name in (CPU, MEMORY) if name in (resources or {})}

    content = {
        "requests": format_resources(container.resources.requests),
        "limits": format_resources(container.resources.limits),
    }
    return msgspec.json.encode(content).decode()


# -- after admission ---------------------------------------------------------------------------------------------


def find_boosted_containers(pod: Pod) -> list[str]:
    """Return the names of the containers with a boost annotation, sorted."""
    return sorted(
        key.removeprefix(_BOOST_ANNOTATION_PREFIX)
        for key in pod.metadata.annotations or {}
        if key.startswith(_BOOST_ANNOTATION_PREFIX)
    )


def has_boost_in_progress(pod: Pod) -> bool:
    """Check whether any container has a boost annotation."""
    return bool(find_boosted_containers(pod))


def _get_boost_duration(container: str, vpa: VerticalPodAutoscaler, policies: ContainerPolicies) -> int:
    """Return the boost's duration in seconds; 0 if neither policy nor VPA sets it."""
    policy = policies.get(container)
    for boost in (policy.startup_boost if policy is not None else None, vpa.spec.startup_boost):
        if boost is not None and boost.cpu is not None and boost.cpu.duration_seconds is not None:
            return boost.cpu.duration_seconds
    return 0


def find_expired_boosts(pod: Pod, vpa: VerticalPodAutoscaler, now: int) -> list[str]:
    """Return the sorted names of the boosted containers whose boost ends by ``now`` (nanoseconds).

    Empty unless the pod is Ready. A boost ends when the pod has been Ready for longer than the boost's duration, or at
    once if no duration is set.
    """
    ready = conditions.find(pod.status.conditions, "Ready")
    if ready is None or ready.status != "True":
        return []
    since = conditions.changed_at(pod, ready)
    expired = []
    policies = ContainerPolicies(vpa.spec.resource_policy)
    for name in find_boosted_containers(pod):
        seconds = _get_boost_duration(name, vpa, policies)
        if seconds == 0 or now - since > seconds * 10**9:
            expired.append(name)
    return expired


def parse_original_resources(pod: Pod, container: str) -> ContainerResources:
    """Parse the resources that the boost annotation of a container stores.

    Raises :class:`BoostError` if the annotation is missing or invalid.
    """
    text = (pod.metadata.annotations or {}).get(_BOOST_ANNOTATION_PREFIX + container, "")
    try:
        original = from_json(text, _OriginalResources)
        requests = {name: Quantity(value) for name, value in (original.requests or {}).items()}
        limits = {name: Quantity(value) for name, value in (original.limits or {}).items()}
    except ValueError as error:
        raise BoostError(f"failed to read the startup boost annotation of container {container}: {error}") from None
    return ContainerResources(requests, limits)
