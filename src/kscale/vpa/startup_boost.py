"""More CPU while a container starts (gate CPUStartupBoost; upstream: ``pkg/utils/vpa``, AEP-7862)."""

from __future__ import annotations

import msgspec

from kscale.effects import PatchOperation
from kscale.errors import KscaleError
from kscale.objects import conditions
from kscale.objects.base import ResourceList
from kscale.objects.core import Container, Pod
from kscale.objects.decode import from_json
from kscale.objects.quantity import DECIMAL_SI, Quantity
from kscale.objects.vpa import ContainerPolicies, StartupBoost, StartupBoostCpu, VerticalPodAutoscaler
from kscale.vpa.container_resources import ContainerResources
from kscale.vpa.patches import STARTUP_BOOST, annotate
from kscale.vpa.proportional import proportional_limits
from kscale.vpa.resources import CPU, MEMORY, amount_to_int64

__all__ = [
    "BoostError",
    "apply_boost",
    "boost_annotations",
    "expired_boosts",
    "has_startup_boost",
    "in_progress",
    "original_resources",
]

_PREFIX = STARTUP_BOOST + "/"


class BoostError(KscaleError, ValueError):
    """A boost that cannot be computed, with upstream's text."""


class _Original(msgspec.Struct):
    requests: dict[str, str] | None = None
    limits: dict[str, str] | None = None


def has_startup_boost(vpa: VerticalPodAutoscaler) -> bool:
    """Whether a VPA has a startup boost, be it empty, for the pod or for some container (``HasStartupBoost``)."""
    policies = vpa.spec.resource_policy.container_policies if vpa.spec.resource_policy is not None else []
    return vpa.spec.startup_boost is not None or any(item.startup_boost is not None for item in policies)


def _boost_of(container: str, vpa: VerticalPodAutoscaler, policies: ContainerPolicies) -> StartupBoost | None:
    policy = policies.get(container)
    if policy is not None and policy.startup_boost is not None:
        return policy.startup_boost
    return vpa.spec.startup_boost


def boosts_nothing(container: str, vpa: VerticalPodAutoscaler, policies: ContainerPolicies) -> bool:
    """Whether there is a ``startupBoost`` without ``cpu``, over which upstream crashes."""
    boost = _boost_of(container, vpa, policies)
    return boost is not None and boost.cpu is None


# -- at admission ----------------------------------------------------------------------------------------------


def _boosted(base: Quantity, boost: StartupBoostCpu) -> Quantity:
    if boost.type in ("", "Factor"):
        if boost.factor is None:
            raise BoostError("startupBoost.CPU.Factor is required when Type is Factor or not specified")
        if boost.factor < 1:
            raise BoostError("boost factor must be >= 1")
        milli = amount_to_int64(float(base.milli_value()) * float(boost.factor))
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
    most: Quantity,
) -> tuple[ContainerResources, list[PatchOperation]]:
    """Return what a container gets while it starts, and the annotation that remembers what it had.

    ``policies``: those of ``vpa``. ``most``: the flag that bounds a boost (zero: none). Raises :class:`BoostError`.
    Upstream crashes on a ``startupBoost`` without ``cpu``; here it boosts nothing.
    """
    boost = _boost_of(container.name, vpa, policies)
    if boost is None or boost.cpu is None:
        return resources, []
    own_requests, own_limits = container.resources.requests or {}, container.resources.limits or {}
    zero = Quantity.zero()
    base = (resources.requests or {}).get(CPU, zero)
    if base.is_zero:
        base = own_requests.get(CPU, zero)
    boosted = _boosted(base, boost.cpu)
    if not most.is_zero and most < boosted:
        boosted = most
    requests = {**(resources.requests or {}), CPU: boosted}
    limits = resources.limits
    if policies.controlled_values(container.name) == "RequestsOnly":
        limit = own_limits.get(CPU)
        if limit is not None and boosted.milli_value() > limit.milli_value():
            one = Quantity("1m")
            requests[CPU] = limit - one if one < limit else limit  # stays Burstable
    else:
        found, _ = proportional_limits(own_limits, own_requests, {CPU: boosted}, {})
        if found is not None and CPU in found:
            limits = {**(limits or {}), CPU: found[CPU]}
    patch = annotate(_PREFIX + container.name, original_text(container))
    return ContainerResources(requests, limits), [patch]


def original_text(container: Container) -> str:
    """The container's own cpu and memory, as the annotation keeps them."""

    def kept(resources: ResourceList | None) -> dict[str, str]:
        return {name: str((resources or {})[name]) for name in (CPU, MEMORY) if name in (resources or {})}

    content = {"requests": kept(container.resources.requests), "limits": kept(container.resources.limits)}
    return msgspec.json.encode(content).decode()


# -- afterwards ------------------------------------------------------------------------------------------------


def boost_annotations(pod: Pod) -> list[str]:
    """The containers that an annotation calls boosted, by name."""
    return sorted(key.removeprefix(_PREFIX) for key in pod.metadata.annotations or {} if key.startswith(_PREFIX))


def in_progress(pod: Pod) -> bool:
    """Whether some container is boosted."""
    return bool(boost_annotations(pod))


def _duration(container: str, vpa: VerticalPodAutoscaler, policies: ContainerPolicies) -> int:
    policy = policies.get(container)
    for boost in (policy.startup_boost if policy is not None else None, vpa.spec.startup_boost):
        if boost is not None and boost.cpu is not None and boost.cpu.duration_seconds is not None:
            return boost.cpu.duration_seconds
    return 0


def expired_boosts(pod: Pod, vpa: VerticalPodAutoscaler, now: int) -> list[str]:
    """The boosted containers whose time is over: the pod is Ready and has been for their duration."""
    ready = conditions.find(pod.status.conditions, "Ready")
    if ready is None or ready.status != "True":
        return []
    since = conditions.changed_at(pod, ready)
    expired = []
    policies = ContainerPolicies(vpa.spec.resource_policy)
    for name in boost_annotations(pod):
        seconds = _duration(name, vpa, policies)
        if seconds == 0 or now - since > seconds * 10**9:
            expired.append(name)
    return expired


def original_resources(pod: Pod, container: str) -> ContainerResources:
    """What the annotation remembers; raises :class:`BoostError` if it cannot be read."""
    text = (pod.metadata.annotations or {}).get(_PREFIX + container, "")
    try:
        kept = from_json(text, _Original)
        requests = {name: Quantity(value) for name, value in (kept.requests or {}).items()}
        limits = {name: Quantity(value) for name, value in (kept.limits or {}).items()}
    except ValueError as error:
        raise BoostError(f"failed to read the startup boost annotation of container {container}: {error}") from None
    return ContainerResources(requests, limits)
