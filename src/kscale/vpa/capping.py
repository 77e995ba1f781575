"""Fit a recommendation to one pod: limit ranges of its namespace, the VPA's policy, the pod's limits and the ratio of
limit to request.

Upstream: ``pkg/utils/vpa/capping.go``, ``limit_and_request_scaling.go``, ``pkg/utils/limitrange``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from kscale.errors import KscaleError
from kscale.objects.api.core import LimitRange, LimitRangeItem, Pod
from kscale.objects.api.meta import ResourceList
from kscale.objects.api.vpa import (
    ContainerPolicies,
    ContainerResourcePolicy,
    RecommendedContainerResources,
    RecommendedPodResources,
    VerticalPodAutoscaler,
)
from kscale.objects.quantity import Quantity
from kscale.vpa.resources import CPU, MEMORY, CurrentResources, order_resources

__all__ = [
    "CONTAINER_LIMIT",
    "DIVISION_BY_ZERO",
    "POD_LIMIT",
    "SCALE_CAPPED",
    "SCALE_SUCCESS",
    "CappedRecommendation",
    "CappingError",
    "LimitRangeError",
    "LimitRangeLookup",
    "LimitRanges",
    "apply_pod_limit_range",
    "cap_recommendation",
    "get_boundary_request",
    "get_proportional_limit",
    "get_proportional_limits",
    "scale_quantity",
]


CONTAINER_LIMIT: Final = "Container"
POD_LIMIT: Final = "Pod"


class LimitRangeError(Exception):
    """The limit ranges could not be read; the text is the lister's."""


class LimitRangeLookup(Protocol):
    """Source of effective limit ranges."""

    def effective(self, namespace: str, type_: str) -> LimitRangeItem | None:
        """Return the merged limits of a namespace for a ``type_``, Container or Pod; None if it has none.

        Raises :class:`LimitRangeError` if the limit ranges cannot be read.
        """


class LimitRanges:
    """Limit ranges of a cluster; a namespace's are in insertion order. Not safe for concurrent use.

    ``items``: the initial ones. :meth:`apply` and :meth:`remove` change them.
    """

    __slots__ = ("_by_namespace", "_effective")

    def __init__(self, items: Iterable[LimitRange] = ()) -> None:
        self._by_namespace: dict[str, dict[str, LimitRange]] = {}
        self._effective: dict[tuple[str, str], LimitRangeItem | None] = {}
        for item in items:
            self.apply(item)

    def __repr__(self) -> str:
        return f"<LimitRanges: {sum(map(len, self._by_namespace.values()))} in {len(self._by_namespace)} namespaces>"

    def __iter__(self) -> Iterator[LimitRange]:
        return (item for known in self._by_namespace.values() for item in known.values())

    def apply(self, item: LimitRange) -> None:
        """Add the limit range ``item``, or replace the one of the same namespace and name."""
        self._by_namespace.setdefault(item.namespace, {})[item.name] = item
        self._drop_cached(item.namespace)

    def remove(self, namespace: str, name: str) -> None:
        """Remove a limit range if it exists."""
        known = self._by_namespace.get(namespace, {})
        known.pop(name, None)
        if not known:
            self._by_namespace.pop(namespace, None)
        self._drop_cached(namespace)

    def _drop_cached(self, namespace: str) -> None:
        """Drop the cached merged limits of a namespace."""
        for type_ in (CONTAINER_LIMIT, POD_LIMIT):
            self._effective.pop((namespace, type_), None)

    def effective(self, namespace: str, type_: str) -> LimitRangeItem | None:
        """Return the merged limits of a namespace for a type; None if there are none.

        ``type_``: Container or Pod. For cpu and memory the lowest maximum and the highest minimum count. Other
        resources have the maximum (minimum) of the first item that sets any maximum (minimum). The last list of
        defaults that is set replaces earlier ones.
        """
        if namespace not in self._by_namespace:
            return None
        key = (namespace, type_)
        if key not in self._effective:
            self._effective[key] = self._merge(namespace, type_)
        return self._effective[key]

    def _merge(self, namespace: str, type_: str) -> LimitRangeItem | None:
        """Merge the limits of a type in a known namespace; None if there are none."""
        merged: LimitRangeItem | None = None
        for limit_range in self._by_namespace[namespace].values():
            for item in limit_range.spec.limits:
                if item.type == type_ and not (item.max is None and item.default is None and item.min is None):
                    merged = _merge_limit_items(merged, item, type_)
        return merged


def _merge_limit_items(so_far: LimitRangeItem | None, item: LimitRangeItem, type_: str) -> LimitRangeItem:
    """Return ``so_far`` (None: nothing yet) with the limits of another item merged in."""
    if so_far is None:
        so_far = LimitRangeItem(type=type_)
    return msgspec.structs.replace(
        so_far,
        default=item.default if item.default is not None else so_far.default,
        max=_merge_quantities(so_far.max, item.max, lambda new, old: new < old),
        min=_merge_quantities(so_far.min, item.min, lambda new, old: old < new),
    )


def _merge_quantities(
    old: ResourceList | None, new: ResourceList | None, better: Callable[[Quantity, Quantity], bool]
) -> ResourceList | None:
    """Return a copy of ``old`` with each cpu or memory quantity of ``new`` that is missing in ``old`` or better.

    If one of the two is None, returns the other one. ``better(new, old)``: whether the new quantity wins.
    """
    if new is None:
        return old
    if old is None:
        return dict(new)
    result = dict(old)
    for name in (CPU, MEMORY):
        if name in new and (name not in result or better(new[name], result[name])):
            result[name] = new[name]
    return result


SCALE_SUCCESS: Final = "success"
SCALE_CAPPED: Final = "capped"
DIVISION_BY_ZERO: Final = "division by zero"
_INT64_MAX: Final = 2**63 - 1
_ZERO_QUANTITY: Final = Quantity.zero()


def scale_quantity(
    resource: str, quantity: Quantity, base: Quantity, result: Quantity, mode: str = "none"
) -> tuple[Quantity, str]:
    """Return ``quantity * result / base`` and how it was computed.

    The three are first rounded up to millicores, or to whole units of other resources.

    - :data:`SCALE_SUCCESS`: CPU in millicores, other resources in whole units, truncated towards zero. Mode ``up``
      rounds CPU up. Mode ``down`` subtracts 1 from a result of at most 0 that is not CPU, as upstream does.
    - :data:`SCALE_CAPPED`: the value does not fit in int64, and the maximum of int64 is returned.
    - :data:`DIVISION_BY_ZERO`: ``base`` is 0, and ``quantity`` is returned unchanged.
    """
    is_cpu = resource == CPU
    amount, divisor, factor = (value.milli_value() if is_cpu else value.value() for value in (quantity, base, result))
    scale = -3 if is_cpu else 0
    if divisor == 0:
        return quantity, DIVISION_BY_ZERO
    scaled, remainder = _divide_truncated(amount * factor, divisor)
    if not -_INT64_MAX - 1 <= scaled <= _INT64_MAX:
        return Quantity.from_int(_INT64_MAX, quantity.format, scale), SCALE_CAPPED
    if is_cpu and mode == "up" and remainder != 0:
        scaled += 1
    if not is_cpu and mode == "down" and scaled <= 0:
        scaled -= 1  # upstream takes 0.999 off and rounds away from zero
    return Quantity.from_int(scaled, quantity.format, scale), SCALE_SUCCESS


def _divide_truncated(numerator: int, denominator: int) -> tuple[int, int]:
    """Return quotient and remainder, truncated towards zero."""
    quotient = abs(numerator) // abs(denominator)
    if (numerator < 0) != (denominator < 0):
        quotient = -quotient
    return quotient, numerator - quotient * denominator


def get_proportional_limit(
    resource: str, limit: Quantity, request: Quantity, recommended: Quantity, default: Quantity
) -> tuple[Quantity | None, str]:
    """Return the limit for a ``recommended`` request, and a note (empty for none).

    The ratio of ``limit`` (``default`` if it is zero) to ``request`` is kept; without a request the limit is
    ``recommended``. The result is None if both ``limit`` and ``default`` are zero, or if ``recommended`` is zero.
    """
    if limit.is_zero and not default.is_zero:
        limit = default
    if limit.is_zero:
        return None, f"{resource}: limit NOT set since originalLimit is nil or 0"
    if recommended.is_zero:
        return None, f"{resource}: limit NOT set since recommendedRequest is nil or 0"
    if request.is_zero or request.milli_value() == limit.milli_value():
        return recommended, ""
    scaled, outcome = scale_quantity(resource, limit, request, recommended)
    if outcome == SCALE_CAPPED:
        return scaled, f"{resource}: failed to keep limit to request ratio; capping limit to int64"
    return scaled, ""


def get_proportional_limits(
    limits: ResourceList | None,
    requests: ResourceList | None,
    recommended: ResourceList | None,
    defaults: ResourceList | None,
) -> tuple[ResourceList | None, list[str]]:
    """Return the limits of a container for ``recommended`` requests, and notes on them.

    The limits of cpu and memory keep the ratio of the current ``limits`` to the current ``requests``. ``defaults``:
    limits for resources without one. ``(None, [])`` if neither resource gets a limit.
    """
    new_limits: ResourceList = {}
    notes = []
    for name in (CPU, MEMORY):
        amounts = [(values or {}).get(name, _ZERO_QUANTITY) for values in (limits, requests, recommended, defaults)]
        limit, note = get_proportional_limit(name, *amounts)
        if limit is not None:
            new_limits[name] = limit
        if note:
            notes.append(note)
    return (new_limits, notes) if new_limits else (None, [])


def get_boundary_request(
    resource: str, request: Quantity, limit: Quantity, boundary: Quantity, default: Quantity
) -> Quantity:
    """Return the request at which the proportional limit reaches ``boundary``; zero if there is no limit.

    ``default``: the limit of a container whose ``limit`` is zero. Without a ``request`` the limit equals the request,
    so that ``boundary`` is returned.
    """
    if limit.is_zero:
        limit = default
    if limit.is_zero:
        return _ZERO_QUANTITY
    if request.is_zero:
        return boundary
    return scale_quantity(resource, request, limit, boundary)[0]


_NO_BOUND: Final = Quantity.zero()
_BOUND_FIELDS: Final = ("upper_bound", "target", "lower_bound")


class CappingError(KscaleError, ValueError):
    """A recommendation that could not be fitted, with upstream's text."""


class CappedRecommendation(NamedTuple):
    """The fitted recommendation, notes per container, and what upstream would have crashed on."""

    recommendation: RecommendedPodResources | None
    notes: dict[str, list[str]]
    diagnostics: list[str]


def cap_recommendation(
    vpa: VerticalPodAutoscaler | None, pod: Pod | None, limit_ranges: LimitRangeLookup | None = None
) -> CappedRecommendation:
    """Fit a VPA's recommendation to a pod (``cappingRecommendationProcessor.Apply``).

    The fitted recommendation is None if the VPA has neither a recommendation nor a resource policy. Entries of
    containers that the pod does not have are left out. With a limit range for pods, containers that have requests but
    no recommendation appear in the result with their own requests. Where upstream would write into a missing list of
    bounds, the container's field is unchanged and a diagnostic reports it; an unreadable limit range for containers is
    a diagnostic, too. Raises :class:`CappingError` with upstream's text if ``vpa`` or ``pod`` is None, or the limit
    range for pods cannot be read.
    """
    if vpa is None:
        raise CappingError("cannot process nil vpa")
    if pod is None:
        raise CappingError("cannot process nil pod")
    lookup = limit_ranges or LimitRanges()
    recommendation, policy = vpa.status.recommendation, vpa.spec.resource_policy
    if recommendation is None and policy is None:
        return CappedRecommendation(None, {}, [])
    recommended = recommendation.container_recommendations if recommendation is not None else ()
    # A VPA may have thousands of entries and each pod has its own review, so only the pod's entries are copied.
    names = {container.name for container in pod.spec.containers}
    items = [_copy_recommendation(item) for item in recommended if item.container_name in names]
    diagnostics: list[str] = []
    try:
        pod_item = lookup.effective(pod.namespace, POD_LIMIT)
    except LimitRangeError as error:
        raise CappingError(f"error obtaining limit range: {error}") from None
    if pod_item is not None:
        items += _build_unrecommended_entries(pod, items)
        for field in _BOUND_FIELDS:
            for resource in (CPU, MEMORY):
                diagnostics += apply_pod_limit_range(items, pod, pod_item, resource, field)
    notes: dict[str, list[str]] = {}
    current, policies = CurrentResources(pod), ContainerPolicies(policy)
    for item in items:
        try:
            container_item = lookup.effective(pod.namespace, CONTAINER_LIMIT)
        except LimitRangeError as error:
            diagnostics.append(f"failed to fetch LimitRange for {pod.namespace} namespace: {error}")
            container_item = None
        notes[item.container_name] = _cap_container(item, current.get(item.container_name), policies, container_item)
    return CappedRecommendation(RecommendedPodResources(container_recommendations=items), notes, diagnostics)


def _copy_recommendation(item: RecommendedContainerResources) -> RecommendedContainerResources:
    """Return a copy with its own resource lists."""

    def copied(resources: ResourceList | None) -> ResourceList | None:
        return None if resources is None else dict(resources)

    return RecommendedContainerResources(
        container_name=item.container_name,
        target=copied(item.target),
        lower_bound=copied(item.lower_bound),
        upper_bound=copied(item.upper_bound),
        uncapped_target=copied(item.uncapped_target),
    )


# -- the limit range of the whole pod --------------------------------------------------------------------------


def _build_unrecommended_entries(
    pod: Pod, items: Sequence[RecommendedContainerResources]
) -> list[RecommendedContainerResources]:
    """Build an entry for each container that has requests but is not in ``items``: its requests are the target."""
    known, current = {item.container_name for item in items}, CurrentResources(pod)
    entries = []
    for container in pod.spec.containers:
        requests = current.requests(container.name)
        if container.name not in known and requests:
            entries.append(RecommendedContainerResources(container_name=container.name, target=dict(requests)))
    return entries


def apply_pod_limit_range(
    items: Sequence[RecommendedContainerResources], pod: Pod, limits: LimitRangeItem, resource: str, field: str
) -> list[str]:
    """Scale one resource of one field (``target``, ``lower_bound``, ``upper_bound``) of all containers, in place.

    ``limits``: the namespace's limit range for pods. The sum of the containers' limits is brought between its minimum
    and maximum, the sum of their requests to at least its minimum; nothing changes if no container has a limit. If the
    requests are below the minimum, only they are raised, and the maximum is not looked at. Returns diagnostics about
    containers that cannot be scaled because they have no recommendation or no such field.
    """
    low = (limits.min or {}).get(resource, _NO_BOUND)
    high = (limits.max or {}).get(resource, _NO_BOUND)
    default = (limits.default or {}).get(resource, _NO_BOUND)
    by_name: dict[str, RecommendedContainerResources] = {}
    for item in items:
        by_name.setdefault(item.container_name, item)
    sum_limit = sum_recommended = _NO_BOUND
    current = CurrentResources(pod)
    for container in pod.spec.containers:
        requests, container_limits = current.get(container.name)
        request = (requests or {}).get(resource, _NO_BOUND)
        item_of_container = by_name.get(container.name)
        recommended = (
            request if item_of_container is None else (getattr(item_of_container, field) or {}).get(resource, _NO_BOUND)
        )
        own = (container_limits or {}).get(resource, _NO_BOUND)
        limit, _ = get_proportional_limit(resource, own, request, recommended, default)
        if limit is not None:
            sum_limit = sum_limit + limit
        sum_recommended = sum_recommended + recommended
    enough = not sum_limit < low and not sum_recommended < low
    if enough and (high.is_zero or not high < sum_limit):
        return []
    if sum_recommended < low and not sum_limit.is_zero:
        return _scale_containers(by_name, pod, resource, field, sum_recommended, low, "up")
    if sum_limit.is_zero:
        return []
    wanted = low if sum_limit < low else _NO_BOUND
    if not high.is_zero and high < sum_limit:
        wanted = high
    return _scale_containers(by_name, pod, resource, field, sum_limit, wanted, "down")


def _scale_containers(
    by_name: dict[str, RecommendedContainerResources],
    pod: Pod,
    resource: str,
    field: str,
    base: Quantity,
    wanted: Quantity,
    mode: str,
) -> list[str]:
    """Multiply one resource of one field of all containers by ``wanted / base``, in place.

    ``by_name``: the recommendation by container. ``mode``: see :func:`scale_quantity`. Returns diagnostics about
    containers without a recommendation or without the field.
    """
    diagnostics = []
    for container in pod.spec.containers:
        item = by_name.get(container.name)
        values: ResourceList | None = None if item is None else getattr(item, field)
        if values is None:
            reason = "no recommendation" if item is None else f"no {field}"
            diagnostics.append(
                f"container {container.name} has {reason} to fit into the limit range of the pod ({resource}); left out"
            )
            continue
        values[resource] = scale_quantity(resource, values.get(resource, _NO_BOUND), base, wanted, mode)[0]
    return diagnostics


# -- one container ---------------------------------------------------------------------------------------------


def _cap_container(
    item: RecommendedContainerResources,
    current: tuple[ResourceList | None, ResourceList | None],
    policies: ContainerPolicies,
    limits: LimitRangeItem | None,
) -> list[str]:
    """Fit target and bounds of one container to limit range and policy, in place.

    With RequestsOnly also to its limits. ``current``: the container's (requests, limits). ``limits``: the namespace's
    limit range for containers. Returns the notes about the target; empty if there is none or nothing changed.
    """
    own_policy = policies.get(item.container_name)
    requests_only = policies.controlled_values(item.container_name) == "RequestsOnly"
    bounds = _get_container_bounds(current, limits)
    notes: list[str] = []
    for values in (item.target, item.lower_bound, item.upper_bound):
        if values is None:
            continue
        value_notes = _clamp(values, bounds, "fit Min in container LimitRange", "fit Max in container LimitRange")
        value_notes += _cap_to_policy(values, own_policy)
        if requests_only:
            value_notes += _cap_to_container_limit(values, current[1])
        if values is item.target:
            notes = value_notes
    return notes


def _get_container_bounds(
    current: tuple[ResourceList | None, ResourceList | None], limits: LimitRangeItem | None
) -> dict[str, tuple[Quantity, Quantity]]:
    """Return, by resource, the minimum and maximum request that the limit range allows (zero for no bound).

    ``current``: the container's (requests, limits).
    """
    if limits is None:
        return {}
    bounds = {}
    for name in (CPU, MEMORY):
        request, limit = ((values or {}).get(name, _NO_BOUND) for values in current)
        default = (limits.default or {}).get(name, _NO_BOUND)

        def boundary(
            bounds: ResourceList | None,
            name: str = name,
            request: Quantity = request,
            limit: Quantity = limit,
            default: Quantity = default,
        ) -> Quantity:
            if bounds is None:
                return _NO_BOUND
            return get_boundary_request(name, request, limit, bounds.get(name, _NO_BOUND), default)

        minimum, maximum = boundary(limits.min), boundary(limits.max)
        plain = (limits.min or {}).get(name, _NO_BOUND)
        bounds[name] = (max(minimum, plain), maximum)
    return bounds


def _clamp(values: ResourceList, bounds: Mapping[str, tuple[Quantity, Quantity]], low: str, high: str) -> list[str]:
    """Bring values between their minimum and maximum (zero for none), in place.

    Returns a note per change with the name of the bound, ``low`` or ``high``.
    """
    notes = []
    for name in order_resources(values):
        minimum, maximum = bounds.get(name, (_NO_BOUND, _NO_BOUND))
        if not minimum.is_zero and values[name] < minimum:
            values[name] = minimum
            notes.append(f"{name} capped to {low}")
        if not maximum.is_zero and maximum < values[name]:
            values[name] = maximum
            notes.append(f"{name} capped to {high}")
    return notes


def _cap_to_policy(values: ResourceList, policy: ContainerResourcePolicy | None) -> list[str]:
    """Bring values within ``minAllowed`` and ``maxAllowed``, in place. Returns a note per change."""
    if policy is None:
        return []
    low, high = policy.min_allowed or {}, policy.max_allowed or {}
    bounds = {name: (low.get(name, _NO_BOUND), high.get(name, _NO_BOUND)) for name in values}
    return _clamp(values, bounds, "minAllowed", "maxAllowed")


def _cap_to_container_limit(values: ResourceList, limits: ResourceList | None) -> list[str]:
    """Lower values that exceed the container's limits, in place. Returns a note per change."""
    notes = []
    for name in order_resources(limits or {}):
        limit = (limits or {})[name]
        if name in values and values[name].milli_value() > limit.milli_value():
            values[name] = limit
            notes.append(f"{name} capped to container limit")
    return notes
