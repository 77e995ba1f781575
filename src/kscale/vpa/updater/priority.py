"""Compute how urgently a pod needs an update, and whether its VPA allows the direction.

Upstream: ``pkg/updater/priority``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from kscale.effects import SECOND, ZERO_TIME, duration
from kscale.objects.api.core import ContainerStateTerminated, Pod
from kscale.objects.api.meta import ResourceList
from kscale.objects.api.vpa import (
    ContainerPolicies,
    EvictionRequirement,
    RecommendedContainerResources,
    RecommendedPodResources,
    VerticalPodAutoscaler,
    update_mode,
)
from kscale.objects.quantity import Quantity
from kscale.objects.times import format_duration, moment_in
from kscale.vpa.capping import CappingError, LimitRangeLookup, cap_recommendation
from kscale.vpa.container_resources import OBSERVED_CONTAINERS_ANNOTATION, AnnotationError, parse_observed_containers
from kscale.vpa.options import BEFORE_1_8_1, PER_VPA_CONFIG_GATE, UpdaterOptions, is_gate_enabled
from kscale.vpa.resources import CPU, MEMORY, CurrentResources, has_lower_resource, order_resources

__all__ = [
    "EvictionAdmission",
    "PodPriority",
    "ScalingDirectionAdmission",
    "SequentialAdmission",
    "assess_pod",
    "compute_priority",
    "describe_targets",
    "explain_not_due",
    "order_updates",
    "sort_as_go",
]

T = TypeVar("T")

_SHORT: Final = 12
"""Maximum number of elements that are sorted by insertion, and therefore in a stable way."""
_MEDIAN_FROM: Final = 8
"""Minimum number of elements for which the pivot is a median of three."""
_NINTHER_FROM: Final = 50
"""Minimum number of elements for which the pivot is a median of three medians, and a repair is tried."""
_ALL_SWAPPED: Final = 12
"""Swaps of a ninther when every comparison was the wrong way round: the range probably descends."""
_REPAIRS: Final = 5
_WORD: Final = (1 << 64) - 1


def sort_as_go(items: Iterable[T], less: Callable[[T, T], bool]) -> list[T]:
    """Return the items in ascending order, equal ones in the order of Go's unstable sort.

    ``less(a, b)``: whether ``a`` comes strictly before ``b``.
    """
    result = list(items)
    _Sorting(result, less).sort(0, len(result), len(result).bit_length())
    return result


class _Sorting(Generic[T]):
    """State of sorting a list; ranges are [begin, end)."""

    def __init__(self, items: list[T], less: Callable[[T, T], bool]) -> None:
        self.items = items
        self._less = less

    def less(self, i: int, j: int) -> bool:
        """Return whether item ``i`` sorts before item ``j``."""
        return self._less(self.items[i], self.items[j])

    def swap(self, i: int, j: int) -> None:
        """Swap two items."""
        self.items[i], self.items[j] = self.items[j], self.items[i]

    def sort(self, begin: int, end: int, bad_allowed: int) -> None:
        """Sort a range; after ``bad_allowed`` unbalanced partitions, use a heap for the rest."""
        balanced = partitioned = True
        while end - begin > _SHORT:
            if bad_allowed == 0:
                self.sort_by_heap(begin, end)
                return
            if not balanced:
                self.shuffle(begin, end)
                bad_allowed -= 1
            pivot, swaps = self.pivot_of(begin, end)
            ascends = swaps == 0
            if swaps == _ALL_SWAPPED:
                self.items[begin:end] = self.items[begin:end][::-1]
                pivot = begin + end - 1 - pivot
                balanced = partitioned = ascends = True
            if balanced and partitioned and ascends and self.try_repair(begin, end):
                return
            if begin > 0 and not self.less(begin - 1, pivot):  # nothing here is smaller than the pivot
                begin = self.partition_equal(begin, end, pivot)
                continue
            middle, partitioned = self.partition(begin, end, pivot)
            left, right = middle - begin, end - middle
            balanced = min(left, right) >= (end - begin) // 8
            if left < right:
                self.sort(begin, middle, bad_allowed)
                begin = middle + 1
            else:
                self.sort(middle + 1, end, bad_allowed)
                end = middle
        self.sort_by_insertion(begin, end)

    def sink(self, i: int, least: int) -> None:
        """Move element ``i`` towards the index ``least`` while it is less than its predecessor."""
        while i > least and self.less(i, i - 1):
            self.swap(i, i - 1)
            i -= 1

    def sort_by_insertion(self, begin: int, end: int) -> None:
        """Sort the range by insertion."""
        for i in range(begin + 1, end):
            self.sink(i, begin)

    def sort_by_heap(self, begin: int, end: int) -> None:
        """Sort the range by a heap."""
        size = end - begin
        for root in range((size - 1) // 2, -1, -1):
            self.sift(begin, root, size)
        for last in range(size - 1, -1, -1):
            self.swap(begin, begin + last)
            self.sift(begin, 0, last)

    def sift(self, begin: int, root: int, size: int) -> None:
        """Restore the heap below ``root``. ``root`` and ``size`` are relative to ``begin``."""
        while (child := 2 * root + 1) < size:
            if child + 1 < size and self.less(begin + child, begin + child + 1):
                child += 1
            if not self.less(begin + root, begin + child):
                return
            self.swap(begin + root, begin + child)
            root = child

    def shuffle(self, begin: int, end: int) -> None:
        """Swap three elements around the middle with others, to break patterns that cause bad pivots."""
        size = end - begin
        state, mask = size, (1 << size.bit_length()) - 1
        middle = begin + size // 4 * 2
        for i in range(middle - 1, middle + 2):
            for shift in (13, -7, 17):
                state ^= (state << shift if shift > 0 else state >> -shift) & _WORD
            other = state & mask
            self.swap(i, begin + (other - size if other >= size else other))

    def pivot_of(self, begin: int, end: int) -> tuple[int, int]:
        """Return the pivot's index, and how many compared pairs were in the wrong order."""
        size = end - begin
        swaps = 0

        def median(i: int, j: int, k: int) -> int:
            """Return the index of the median of three elements; each pair in the wrong order adds to ``swaps``."""
            nonlocal swaps
            if self.less(j, i):
                i, j, swaps = j, i, swaps + 1
            if self.less(k, j):
                j, swaps = k, swaps + 1
            if self.less(j, i):
                j, swaps = i, swaps + 1
            return j

        places = [begin + size // 4 * part for part in (1, 2, 3)]
        if size >= _NINTHER_FROM:
            places = [median(i - 1, i, i + 1) for i in places]
        if size >= _MEDIAN_FROM:
            places[1] = median(*places)
        return places[1], swaps

    def try_repair(self, begin: int, end: int) -> bool:
        """Try to sort the range by a few swaps; return whether it is sorted now."""
        i = begin + 1
        for _ in range(_REPAIRS):
            while i < end and not self.less(i, i - 1):
                i += 1
            if i == end:
                return True
            if end - begin < _NINTHER_FROM:
                return False
            self.swap(i, i - 1)
            if i - begin >= 2:
                self.sink(i - 1, 0)
            if end - i >= 2:
                for j in range(i + 1, end):
                    if not self.less(j, j - 1):
                        break
                    self.swap(j, j - 1)
        return False

    def partition_equal(self, begin: int, end: int, pivot: int) -> int:
        """Move elements equal to the pivot to the front; return the index at which the greater ones begin."""
        self.swap(begin, pivot)
        i, j = begin + 1, end - 1
        while True:
            while i <= j and not self.less(begin, i):
                i += 1
            while i <= j and self.less(begin, j):
                j -= 1
            if i > j:
                return i
            self.swap(i, j)
            i, j = i + 1, j - 1

    def partition(self, begin: int, end: int, pivot: int) -> tuple[int, bool]:
        """Move elements less than the pivot before it; return its new index, and whether the range was partitioned
        already.
        """
        self.swap(begin, pivot)
        i, j = begin + 1, end - 1
        already = True
        while True:
            while i <= j and self.less(i, begin):
                i += 1
            while i <= j and not self.less(j, begin):
                j -= 1
            if i > j:
                self.swap(j, begin)
                return j, already
            self.swap(i, j)
            i, j, already = i + 1, j - 1, False


PodKey = tuple[str, str]
_TARGET_HIGHER = "TargetHigherThanRequests"
_TARGET_LOWER = "TargetLowerThanRequests"


class EvictionAdmission(Protocol):
    """Filter of pods about to be updated."""

    def loop_init(self, pods: Iterable[Pod], controlled: Iterable[tuple[VerticalPodAutoscaler, list[Pod]]]) -> None:
        """Prepare for a loop. ``pods``: all live pods; ``controlled``: the pods of each VPA."""

    def admit(self, pod: Pod, recommendation: RecommendedPodResources | None) -> bool:
        """Return True if a pod may be updated. ``recommendation``: the VPA's, fitted to the pod."""

    def clean_up(self) -> None:
        """Drop all state. The updater calls this in a loop without VPAs."""


class ScalingDirectionAdmission:
    """Filter by ``evictionRequirements``: all must hold for at least one container."""

    def __init__(self) -> None:
        self.requirements: dict[PodKey, list[EvictionRequirement]] = {}

    def loop_init(self, pods: Iterable[Pod], controlled: Iterable[tuple[VerticalPodAutoscaler, list[Pod]]]) -> None:
        """Store the requirements of each pod whose VPA has an update policy."""
        del pods
        self.requirements = {
            (pod.namespace, pod.name): vpa.spec.update_policy.eviction_requirements
            for vpa, members in controlled
            if vpa.spec.update_policy is not None
            for pod in members
        }

    def admit(self, pod: Pod, recommendation: RecommendedPodResources | None) -> bool:
        """Return True if all requirements of a pod hold for at least one container with a recommendation.

        Also True if the pod's VPA has no update policy, or if a container with a recommendation has no cpu request or
        no memory request. False if no container has a recommendation.
        """
        requirements = self.requirements.get((pod.namespace, pod.name))
        if requirements is None:
            return True
        items = recommendation.container_recommendations if recommendation is not None else []
        targets = {item.container_name: item.target or {} for item in reversed(items)}
        current = CurrentResources(pod)
        for container in pod.spec.containers:
            if container.name not in targets:
                continue
            requests = current.requests(container.name)
            if CPU not in requests or MEMORY not in requests:
                return True
            if all(_is_requirement_met(item, targets[container.name], requests) for item in requirements):
                return True
        return False

    def clean_up(self) -> None:
        """Drop all requirements."""
        self.requirements = {}


def _is_requirement_met(
    requirement: EvictionRequirement, target: ResourceList, requests: Mapping[str, Quantity]
) -> bool:
    """Check whether the target of any of the requirement's resources is higher (or lower) than the request.

    A missing amount counts as 0. False for an unknown direction.
    """
    zero = Quantity.zero()
    for name in requirement.resources:
        wanted, current = target.get(name, zero).milli_value(), requests.get(name, zero).milli_value()
        if requirement.change_requirement == _TARGET_HIGHER and wanted > current:
            return True
        if requirement.change_requirement == _TARGET_LOWER and wanted < current:
            return True
    return False


class SequentialAdmission:
    """Combination of filters, all of which must admit a pod."""

    def __init__(self, parts: Iterable[EvictionAdmission]) -> None:
        self.parts = list(parts)

    def loop_init(self, pods: Iterable[Pod], controlled: Iterable[tuple[VerticalPodAutoscaler, list[Pod]]]) -> None:
        """Call ``loop_init`` of every combined filter, at the start of a loop."""
        all_pods, members = list(pods), list(controlled)
        for part in self.parts:
            part.loop_init(all_pods, members)

    def admit(self, pod: Pod, recommendation: RecommendedPodResources | None) -> bool:
        """Return True if every filter admits the pod."""
        return all(part.admit(pod, recommendation) for part in self.parts)

    def clean_up(self) -> None:
        """Call ``clean_up`` of every combined filter."""
        for part in self.parts:
            part.clean_up()


_OOM_KILLED = "OOMKilled"


class PodPriority(msgspec.Struct, kw_only=True):
    """Priority of a pod's update. ``accepted``: whether the pod needs an update now (:func:`assess_pod`)."""

    pod: Pod
    recommendation: RecommendedPodResources | None = None
    """Recommendation after capping to the pod; None without a recommendation."""
    outside_recommended_range: bool = False
    scale_up: bool = False
    resource_diff: float = 0.0
    """Sum over resources of the change relative to the pod's requests."""
    quick_oom: bool = False
    accepted: bool = False
    error: str = ""
    diagnostics: list[str] = []

    @classmethod
    def compute(
        cls,
        pod: Pod,
        recommendation: RecommendedPodResources | None,
        *,
        quick_oom: bool,
        diagnostics: Sequence[str] = (),
    ) -> PodPriority:
        """Compute the priority of a pod for a recommendation that is fitted to it.

        ``quick_oom``: a container was killed for memory soon after its start. ``diagnostics`` are copied to the result.
        """
        outside, scale_up, difference = compute_priority(pod, recommendation)
        return cls(
            pod=pod,
            recommendation=recommendation,
            outside_recommended_range=outside,
            scale_up=scale_up,
            resource_diff=difference,
            quick_oom=quick_oom,
            diagnostics=list(diagnostics),
        )

    def less(self, other: PodPriority) -> bool:
        """Return True if ``other`` has a higher priority."""
        if self.scale_up != other.scale_up:
            return other.scale_up
        return self.resource_diff < other.resource_diff


def _get_observed_containers(pod: Pod) -> set[str] | None:
    """Return the containers that the webhook observed; None if that is unknown, so that all containers count."""
    text = (pod.metadata.annotations or {}).get(OBSERVED_CONTAINERS_ANNOTATION)
    if text is None:
        return None
    try:
        return set(parse_observed_containers(text))
    except AnnotationError:
        return None


def _index_by_container(recommendation: RecommendedPodResources | None) -> dict[str, RecommendedContainerResources]:
    """Return the recommendations by container; of equal names the first counts."""
    items = recommendation.container_recommendations if recommendation is not None else []
    return {item.container_name: item for item in reversed(items)}


def compute_priority(pod: Pod, recommendation: RecommendedPodResources | None) -> tuple[bool, bool, float]:
    """Return (outside the recommended range, scale up, relative difference) of a pod and its fitted recommendation.

    Outside: a request is not between the bounds. Scale up: a target is above its request. A missing request counts as
    both. The difference is the sum over resources of the absolute change of the pod's request relative to this request:
    0.1 is 10 %; a request of 0 counts as 0.001. Containers without a recommendation, or that the webhook did not
    observe, are left out.
    """
    observed = _get_observed_containers(pod)
    items = _index_by_container(recommendation)
    outside = scale_up = False
    requested: dict[str, int] = {}
    recommended: dict[str, int] = {}
    current = CurrentResources(pod)
    for container in pod.spec.containers:
        item = items.get(container.name)
        if item is None or (observed is not None and container.name not in observed):
            continue
        requests = current.requests(container.name)
        for name, target in (item.target or {}).items():
            recommended[name] = recommended.get(name, 0) + target.milli_value()
            request = requests.get(name)
            if request is None:
                outside = scale_up = True
                continue
            requested[name] = requested.get(name, 0) + request.milli_value()
            scale_up |= target.milli_value() > request.milli_value()
            low, high = (item.lower_bound or {}).get(name), (item.upper_bound or {}).get(name)
            outside |= (low is not None and request < low) or (high is not None and request > high)
    difference = 0.0
    for name in order_resources(recommended):
        total = max(float(requested.get(name, 0)), 1.0)
        difference += abs(total - float(recommended[name])) / total
    return outside, scale_up, difference


def _is_quick_oom(pod: Pod, vpa: VerticalPodAutoscaler, now: int, options: UpdaterOptions) -> bool:
    """Return whether a container was killed for memory soon after its start, and not long before ``now``.

    The container's lifetime and the time since its end must be shorter than the VPA's or the flag's threshold. With the
    profile ``1.8.0`` a kill counts however long ago it was. Containers that the webhook did not observe, or whose
    policy is Off, are skipped. ``now``: nanoseconds. Raises InputError for a malformed time of a kill.
    """
    policy = vpa.spec.update_policy
    threshold = duration(options.evict_after_oom_threshold)
    own_threshold = policy.evict_after_oom_seconds if policy is not None else None
    if own_threshold is not None and is_gate_enabled(options.feature_gates, PER_VPA_CONFIG_GATE):
        threshold = own_threshold * SECOND
    observed, policies = _get_observed_containers(pod), ContainerPolicies(vpa.spec.resource_policy)
    for number, status in enumerate(pod.status.container_statuses):
        if observed is not None and status.name not in observed:
            continue
        own = policies.get(status.name)
        if own is not None and own.mode == "Off":
            continue
        ended = status.last_state.terminated
        if ended is None or ended.reason != _OOM_KILLED:
            continue
        started, finished = parse_termination(pod, number, ended)
        if get_lifetime(started, finished) < threshold and (
            options.profile == BEFORE_1_8_1 or _get_age_ns(finished, now) < threshold
        ):
            return True
    return False


def parse_termination(pod: Pod, number: int, ended: ContainerStateTerminated) -> tuple[int, int]:
    """Return when the container of the status with index ``number`` started and finished, in nanoseconds.

    The zero time stands for a missing time. Raises InputError, which names the pod and the field, for a malformed one.
    """
    field = f"status.containerStatuses[{number}].lastState.terminated"
    begin = moment_in(pod, ended.started_at, f"{field}.startedAt")
    return begin, moment_in(pod, ended.finished_at, f"{field}.finishedAt")


def _get_age_ns(time: int, now: int) -> int:
    """Return the nanoseconds from ``time`` to ``now``; 2^63 - 1 for the zero time."""
    return 2**63 - 1 if time == ZERO_TIME else now - time


def get_lifetime(begin: int, end: int) -> int:
    """Return the nanoseconds between two moments: 2^63 - 1 without a start, -2^63 without an end, as in Go.

    0 if both are missing, that is, the zero time.
    """
    if begin == end:
        return 0
    if begin == ZERO_TIME:
        return 2**63 - 1
    return -(2**63) if end == ZERO_TIME else end - begin


def assess_pod(
    pod: Pod,
    vpa: VerticalPodAutoscaler,
    *,
    now: int,
    limit_ranges: LimitRangeLookup | None = None,
    options: UpdaterOptions | None = None,
    infeasible_attempts: Mapping[str, RecommendedPodResources] | None = None,
) -> PodPriority:
    """Return the priority of a pod, and whether the pod needs an update now (``PodPriority.accepted``).

    Upstream: ``AddPod``. A pod without a recommendation is never accepted; upstream crashes if it exceeds a threshold.
    ``now``: nanoseconds. ``infeasible_attempts``: by pod UID, the recommendation that the pod's node had no room for;
    in mode InPlace, a recommendation that is not lower is not accepted. If the recommendation cannot be fitted to the
    pod, ``error`` is set. Raises InputError for a malformed time in the pod's status.
    """
    options = options or UpdaterOptions()
    try:
        fitted, _, diagnostics = cap_recommendation(vpa, pod, limit_ranges)
    except CappingError as error:
        return PodPriority(pod=pod, error=str(error))
    result = PodPriority.compute(pod, fitted, quick_oom=_is_quick_oom(pod, vpa, now, options), diagnostics=diagnostics)
    attempt = (infeasible_attempts or {}).get(pod.metadata.uid)
    if update_mode(vpa) == "InPlace" and attempt is not None and not has_lower_resource(attempt, fitted):
        return result
    due = _is_due(pod, result, now, options)
    result.accepted = due and fitted is not None
    if due and fitted is None:
        result.diagnostics = [*diagnostics, f"pod {pod.key}: nothing is recommended, so it is not updated"]
    return result


def _is_due(pod: Pod, priority: PodPriority, now: int, options: UpdaterOptions) -> bool:
    """Check whether a pod with this priority needs an update at ``now`` (nanoseconds).

    After a quick OOM kill: if any request would change. Outside of the recommended range: yes. Otherwise: if the pod is
    old enough, and the difference reaches the threshold. Raises InputError for a malformed start time.
    """
    if priority.quick_oom:
        return priority.resource_diff != 0
    if priority.outside_recommended_range:
        return True
    if pod.status.start_time is None:
        return False
    lifetime = duration(options.in_recommendation_bounds_eviction_lifetime_threshold)
    if now < moment_in(pod, pod.status.start_time, "status.startTime") + lifetime:
        return False
    return priority.resource_diff >= options.pod_update_threshold


def explain_not_due(
    priority: PodPriority, vpa: VerticalPodAutoscaler, *, now: int, options: UpdaterOptions | None = None
) -> tuple[str, str]:
    """Return (reason, message) why :func:`assess_pod` has not accepted a pod."""
    options = options or UpdaterOptions()
    if priority.error:
        return "Capping", priority.error
    if priority.recommendation is None or vpa.status.recommendation is None:
        return "NoRecommendation", "the VPA has no recommendation"
    if priority.quick_oom:
        return "InRange", "requests are as recommended"
    if priority.outside_recommended_range:
        return "Infeasible", "its node had no room for the recommendation, and the new one is not lower"
    started = priority.pod.status.start_time
    lifetime = duration(options.in_recommendation_bounds_eviction_lifetime_threshold)
    if started is None or now < moment_in(priority.pod, started, "status.startTime") + lifetime:
        text = f"requests are within the recommended range, and the pod is younger than {format_duration(lifetime)}"
        return "Lifetime", text
    text = "requests are within the recommended range, and the target differs by "
    return "InRange", f"{text}{priority.resource_diff:.1%}, less than {options.pod_update_threshold:.1%}"


def order_updates(priorities: Iterable[PodPriority], admission: EvictionAdmission | None = None) -> list[PodPriority]:
    """Return the pods that need an update (``accepted``) and that ``admission`` admits, by descending priority.

    ``admission`` None: all are admitted.
    """
    ordered = sort_as_go((item for item in priorities if item.accepted), lambda a, b: b.less(a))
    if admission is None:
        return ordered
    return [item for item in ordered if admission.admit(item.pod, item.recommendation)]


def describe_targets(recommendation: RecommendedPodResources | None, pod: Pod) -> str:
    """Return the text that upstream logs about an accepted pod: the targets of the containers with a recommendation.

    Upstream prints the target under ``uncappedTarget`` too.
    """
    items = _index_by_container(recommendation)
    parts = []
    for container in sorted(pod.spec.containers, key=lambda c: c.name):
        item = items.get(container.name)
        if item is None:
            continue
        memory, cpu = (item.target or {}).get("memory"), (item.target or {}).get("cpu")
        shown = f"{memory.scaled_value(3)}k " if memory else ""
        shown += f"{cpu.milli_value()}m; " if cpu else ""
        text = f"{container.name}: target: {shown}"
        if item.uncapped_target is not None:
            text += f"uncappedTarget: {shown.rstrip(' ') if cpu else shown}"
        parts.append(text)
    return "".join(parts)
