"""Compute how urgently a pod needs an update, and whether its VPA allows the direction.

Upstream: ``pkg/updater/priority``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from kscale.effects import SECOND, ZERO_TIME, duration, from_text
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import ResourceList
from kscale.objects.api.vpa import (
    ContainerPolicies,
    EvictionRequirement,
    RecommendedContainerResources,
    RecommendedPodResources,
    VerticalPodAutoscaler,
    update_mode,
)
from kscale.objects.go_sort import sort_as_go
from kscale.objects.quantity import Quantity
from kscale.objects.times import format_duration
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
]


PodKey = tuple[str, str]
_TARGET_HIGHER = "TargetHigherThanRequests"
_TARGET_LOWER = "TargetLowerThanRequests"


class EvictionAdmission(Protocol):
    """Filter of pods about to be updated."""

    def loop_init(self, pods: Iterable[Pod], controlled: Iterable[tuple[VerticalPodAutoscaler, list[Pod]]]) -> None:
        """Look at the pods of a loop."""

    def admit(self, pod: Pod, recommendation: RecommendedPodResources | None) -> bool:
        """Return True if a pod may be updated."""

    def clean_up(self) -> None:
        """Forget everything: there is no VPA."""


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
        """Return True if a pod's requirements hold.

        Unknown pods, and pods with a container that lacks a cpu or memory request, are admitted.
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
        """Forget all requirements."""
        self.requirements = {}


def _is_requirement_met(
    requirement: EvictionRequirement, target: ResourceList, requests: Mapping[str, Quantity]
) -> bool:
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
        """Initialize every filter."""
        all_pods, members = list(pods), list(controlled)
        for part in self.parts:
            part.loop_init(all_pods, members)

    def admit(self, pod: Pod, recommendation: RecommendedPodResources | None) -> bool:
        """Return True if every filter admits the pod."""
        return all(part.admit(pod, recommendation) for part in self.parts)

    def clean_up(self) -> None:
        """Clean up every filter."""
        for part in self.parts:
            part.clean_up()


_OOM_KILLED = "OOMKilled"


class PodPriority(msgspec.Struct, kw_only=True):
    """Priority of a pod's update, and whether the pod is selected."""

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
        """Compute the priority of a pod for a recommendation that is fitted to it."""
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
    """Return the containers that the webhook observed, or None if unknown, so that all count."""
    text = (pod.metadata.annotations or {}).get(OBSERVED_CONTAINERS_ANNOTATION)
    if text is None:
        return None
    try:
        return set(parse_observed_containers(text))
    except AnnotationError:
        return None


def _index_by_container(recommendation: RecommendedPodResources | None) -> dict[str, RecommendedContainerResources]:
    items = recommendation.container_recommendations if recommendation is not None else []
    return {item.container_name: item for item in reversed(items)}


def compute_priority(pod: Pod, recommendation: RecommendedPodResources | None) -> tuple[bool, bool, float]:
    """Compute (outside the recommended range, scale up, relative difference) of a pod and its fitted recommendation."""
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
    """Return whether some container was killed for memory soon after it started, and not long ago.

    With the profile ``1.8.0`` it counts however long ago it was.
    """
    policy = vpa.spec.update_policy
    threshold = duration(options.evict_after_oom_threshold)
    own_threshold = policy.evict_after_oom_seconds if policy is not None else None
    if own_threshold is not None and is_gate_enabled(options.feature_gates, PER_VPA_CONFIG_GATE):
        threshold = own_threshold * SECOND
    observed, policies = _get_observed_containers(pod), ContainerPolicies(vpa.spec.resource_policy)
    for status in pod.status.container_statuses:
        if observed is not None and status.name not in observed:
            continue
        own = policies.get(status.name)
        if own is not None and own.mode == "Off":
            continue
        ended = status.last_state.terminated
        if ended is None or ended.reason != _OOM_KILLED:
            continue
        if get_lifetime(ended.started_at, ended.finished_at) < threshold and (
            options.profile == BEFORE_1_8_1 or _age(ended.finished_at, now) < threshold
        ):
            return True
    return False


def _age(time: str | None, now: int) -> int:
    """Return the nanoseconds since an API time, saturated as Go's are."""
    moment = from_text(time)
    return 2**63 - 1 if moment == ZERO_TIME else now - moment


def get_lifetime(started: str | None, finished: str | None) -> int:
    """Return the nanoseconds between two API times, saturated as in Go."""
    begin, end = from_text(started), from_text(finished)
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
    """Return the priority of a pod, ``accepted`` if it is a candidate for an update (``AddPod``).

    A pod without a recommendation is never accepted (upstream crashes on it if the thresholds let it in).
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
    if priority.quick_oom:
        return priority.resource_diff != 0
    if priority.outside_recommended_range:
        return True
    if pod.status.start_time is None:
        return False
    lifetime = duration(options.in_recommendation_bounds_eviction_lifetime_threshold)
    if now < from_text(pod.status.start_time) + lifetime:
        return False
    return priority.resource_diff >= options.pod_update_threshold


def explain_not_due(
    priority: PodPriority, vpa: VerticalPodAutoscaler, *, now: int, options: UpdaterOptions | None = None
) -> tuple[str, str]:
    """Return (reason, message) for a pod that :func:`assess_pod` does not accept."""
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
    if started is None or now < from_text(started) + lifetime:
        text = f"requests are within the recommended range, and the pod is younger than {format_duration(lifetime)}"
        return "Lifetime", text
    text = "requests are within the recommended range, and the target differs by "
    return "InRange", f"{text}{priority.resource_diff:.1%}, less than {options.pod_update_threshold:.1%}"


def order_by_priority(priorities: Iterable[PodPriority]) -> list[PodPriority]:
    """Return accepted pods by descending priority, equal ones in the order of Go's sort."""
    return sort_as_go((item for item in priorities if item.accepted), lambda a, b: b.less(a))


def order_updates(priorities: Iterable[PodPriority], admission: EvictionAdmission | None = None) -> list[PodPriority]:
    """Return accepted pods that the eviction admission admits, by descending priority."""
    ordered = order_by_priority(priorities)
    if admission is None:
        return ordered
    return [item for item in ordered if admission.admit(item.pod, item.recommendation)]


def describe_targets(recommendation: RecommendedPodResources | None, pod: Pod) -> str:
    """Format what upstream logs about an accepted pod.

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
