"""Amounts and resource lists (upstream: ``pkg/recommender/model/types.go``, ``pkg/utils/resources``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from kscale._native import _histogram
from kscale.objects.api.core import Container, ContainerStatus, Pod
from kscale.objects.api.meta import ResourceList
from kscale.objects.api.vpa import RecommendedPodResources
from kscale.objects.quantity import BINARY_SI, DECIMAL_SI, Quantity

__all__ = [
    "CPU",
    "MAX_AMOUNT",
    "MEMORY",
    "CurrentResources",
    "ResourceTargets",
    "cores_to_millicores",
    "explain_target",
    "float_to_int64",
    "get_amount",
    "get_current_resources",
    "get_resources_sources",
    "has_lower_resource",
    "order_resources",
    "round_up_quantity",
    "scale_amount",
    "to_cpu_quantity",
    "to_memory_quantity",
    "to_resource_amount",
]

CPU: Final = "cpu"
MEMORY: Final = "memory"
MAX_AMOUNT: Final = 10**14
"""The largest amount of either resource: millicores, bytes."""
_CACHE_SIZE: Final = 2**12
"""Number of amounts whose quantities are cached. Most amounts are the upper edges of a few hundred buckets in every
round.
"""


def to_resource_amount(x: float) -> int:
    """Convert millicores or bytes to an integer: truncated, and clamped to 0 ... 1e14 (``ResourceAmountFromFloat``).

    NaN becomes -2^63, as on amd64.
    """
    if x > 1e14:
        return MAX_AMOUNT
    if x < 0:
        return 0
    return _histogram.go_int64(x)


def float_to_int64(x: float) -> int:
    """Convert a float as Go's ``int64(x)`` does on amd64 (-2^63 for NaN and values out of range)."""
    return _histogram.go_int64(x)


def scale_amount(a: int, factor: float) -> int:
    """Multiply an amount by a factor; convert the product as :func:`to_resource_amount` does (``ScaleResource``)."""
    return to_resource_amount(float(a) * factor)


def cores_to_millicores(cores: float) -> int:
    """Convert cores to millicores, as :func:`to_resource_amount` does (truncated, 0 ... 1e14): 0.0172071 gives 17."""
    return to_resource_amount(cores * 1000.0)


@lru_cache(maxsize=_CACHE_SIZE)
def to_cpu_quantity(millicores: int) -> Quantity:
    """Convert millicores to a quantity."""
    return Quantity.from_int(millicores, DECIMAL_SI, -3)


@lru_cache(maxsize=_CACHE_SIZE)
def to_memory_quantity(size: int) -> Quantity:
    """Convert bytes to a quantity that prints with the largest binary unit (Ki, Mi, ...) of which it is a multiple."""
    return Quantity.from_int(size, BINARY_SI)


def round_up_quantity(quantity: Quantity) -> Quantity:
    """Round a quantity to an integer (whole cores or bytes), away from zero (``RoundUp(0)``)."""
    return Quantity.from_int(quantity.value(), quantity.format)


def order_resources(names: Iterable[str]) -> list[str]:
    """Sort resource names as cpu, memory, then the others by name (upstream's order is random)."""
    present = set(names)
    return [name for name in (CPU, MEMORY) if name in present] + sorted(present - {CPU, MEMORY})


class CurrentResources:
    """The requests and limits of a pod's containers, indexed by container name.

    The status of a container wins over its spec, even if the status reports empty resources. Build one per pod, not
    one per container: a pod may have thousands of containers.
    """

    __slots__ = ("_by_name",)

    def __init__(self, pod: Pod) -> None:
        by_name: dict[str, tuple[ResourceList | None, ResourceList | None]] = {}
        for status in pod.status.container_statuses:
            if status.resources is not None:
                by_name.setdefault(status.name, (status.resources.requests, status.resources.limits))
        for container in pod.spec.containers:
            by_name.setdefault(container.name, (container.resources.requests, container.resources.limits))
        self._by_name = by_name

    def get(self, container: str) -> tuple[ResourceList | None, ResourceList | None]:
        """Return a container's (requests, limits), from its status if that reports resources, else from its spec.

        Each is None if it is not set. ``(None, None)`` if the pod has no container of that name; init containers do not
        count.
        """
        return self._by_name.get(container, (None, None))

    def requests(self, container: str) -> ResourceList:
        """Return the container's requests, from where :meth:`get` takes them: empty if there are none."""
        return self.get(container)[0] or {}


def get_amount(amounts: ResourceList | None, resource: str) -> int | None:
    """Return an amount in millicores (CPU) or whole units (bytes), rounded away from zero; None if there is none."""
    quantity = (amounts or {}).get(resource)
    return None if quantity is None else quantity.milli_value() if resource == CPU else quantity.value()


def get_current_resources(pod: Pod, container: str) -> tuple[ResourceList | None, ResourceList | None]:
    """Return one container's (requests, limits), as :meth:`CurrentResources.get` does.

    For many containers build :class:`CurrentResources` once.
    """
    return CurrentResources(pod).get(container)


def get_resources_sources(pod: Pod) -> tuple[str, ...]:
    """Return where upstream reads the resources of each container, then of each init container.

    The texts are values of the metric label ``source``: ``Pod.Spec.Containers``, ``Pod.Status.ContainerStatuses``, and
    the same with ``InitContainer``.
    """
    spec, status = pod.spec, pod.status
    sources = _get_sources("Container", spec.containers, status.container_statuses)
    if not spec.init_containers:
        return sources
    return sources + _get_sources("InitContainer", spec.init_containers, status.init_container_statuses)


def _get_sources(field: str, containers: Sequence[Container], statuses: Sequence[ContainerStatus]) -> tuple[str, ...]:
    """Return the source of each container's resources. ``field``: ``Container`` or ``InitContainer``."""
    if not statuses:
        return (f"Pod.Spec.{field}s",) * len(containers)
    first = {status.name: status for status in reversed(statuses)}
    with_resources = {name for name, status in first.items() if status.resources is not None}
    return tuple(
        f"Pod.Status.{field}Statuses" if container.name in with_resources else f"Pod.Spec.{field}s"
        for container in containers
    )


def has_lower_resource(a: RecommendedPodResources | None, b: RecommendedPodResources | None) -> bool:
    """Check whether any target of ``b`` is lower than that of ``a`` for the same container and resource.

    False if ``a`` or ``b`` is None.
    """
    if a is None or b is None:
        return False
    targets = {item.container_name: item.target or {} for item in b.container_recommendations}
    return any(
        name in targets.get(item.container_name, {}) and targets[item.container_name][name] < quantity
        for item in a.container_recommendations
        for name, quantity in (item.target or {}).items()
    )


_GIB: Final = 2**30
_MIB: Final = 2**20


class ResourceTargets(NamedTuple):
    """Targets of one resource of a container, in millicores or bytes; None if there is none.

    ``uncapped``: the target before policies. ``minimum``: the container's share of the minimum of a pod.
    """

    target: int | None
    uncapped: int | None = None
    lower: int | None = None
    upper: int | None = None
    minimum: int | None = None


def explain_target(resource: str, amounts: ResourceTargets, method: Mapping[str, str]) -> str:
    """Return the target of a resource and how it was computed, in one line; ``<resource>: no target`` without a target.

    ``method``: how the target is computed, by resource; without an entry for the resource the line says "the strategy's
    advice".
    """
    if amounts.target is None:
        return f"{resource}: no target"
    uncapped = amounts.target if amounts.uncapped is None else amounts.uncapped
    text = f"{resource} {_format_amount(resource, amounts.target)}: "
    if amounts.minimum is not None and uncapped == amounts.minimum:
        text += f"the minimum of a pod ({_format_amount(resource, uncapped)}), as no usage is above it"
    else:
        text += method.get(resource, "the strategy's advice")
    if uncapped < amounts.target:
        text += f", raised from {_format_amount(resource, uncapped)} by minAllowed"
    elif uncapped > amounts.target:
        text += f", lowered from {_format_amount(resource, uncapped)} by maxAllowed"
    if amounts.lower is not None and amounts.upper is not None:
        text += f", bounds {_format_amount(resource, amounts.lower)} to {_format_amount(resource, amounts.upper)}"
    return text


def _format_amount(resource: str, amount: int) -> str:
    """Format millicores as ``1,500m``, and bytes as Gi (from 1 Gi on) or Mi with four significant digits."""
    if resource == CPU:
        return f"{amount:,}m"
    return f"{amount / _GIB:,.4g}Gi" if amount >= _GIB else f"{amount / _MIB:,.4g}Mi"
