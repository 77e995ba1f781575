"""Whether a pod may be updated in the direction that its VPA allows (``pkg/updater/priority/scaling_direction_*``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from kscale.objects.base import ResourceList
from kscale.objects.core import Pod
from kscale.objects.quantity import Quantity
from kscale.objects.vpa import EvictionRequirement, RecommendedPodResources, VerticalPodAutoscaler
from kscale.vpa.resources import CPU, MEMORY, CurrentResources

__all__ = ["EvictionAdmission", "ScalingDirection", "Sequential"]

PodKey = tuple[str, str]
_HIGHER = "TargetHigherThanRequests"
_LOWER = "TargetLowerThanRequests"


class EvictionAdmission(Protocol):
    """A filter over pods about to be updated."""

    def loop_init(self, pods: Iterable[Pod], controlled: Iterable[tuple[VerticalPodAutoscaler, list[Pod]]]) -> None:
        """Look at the pods of a loop."""

    def admit(self, pod: Pod, recommendation: RecommendedPodResources | None) -> bool:
        """Whether a pod may be updated."""

    def clean_up(self) -> None:
        """Forget everything: there is no VPA."""


class ScalingDirection:
    """``evictionRequirements``: all of them must hold for one container at least."""

    def __init__(self) -> None:
        self.requirements: dict[PodKey, list[EvictionRequirement]] = {}

    def loop_init(self, pods: Iterable[Pod], controlled: Iterable[tuple[VerticalPodAutoscaler, list[Pod]]]) -> None:
        """Remember the requirements of each pod whose VPA has an update policy."""
        del pods
        self.requirements = {
            (pod.namespace, pod.name): vpa.spec.update_policy.eviction_requirements
            for vpa, members in controlled
            if vpa.spec.update_policy is not None
            for pod in members
        }

    def admit(self, pod: Pod, recommendation: RecommendedPodResources | None) -> bool:
        """Unknown pods are admitted; so is a pod with a container that lacks a request of cpu or memory."""
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
            if all(_holds(item, targets[container.name], requests) for item in requirements):
                return True
        return False

    def clean_up(self) -> None:
        """Forget all requirements."""
        self.requirements = {}


def _holds(requirement: EvictionRequirement, target: ResourceList, requests: Mapping[str, Quantity]) -> bool:
    zero = Quantity.zero()
    for name in requirement.resources:
        wanted, current = target.get(name, zero).milli_value(), requests.get(name, zero).milli_value()
        if requirement.change_requirement == _HIGHER and wanted > current:
            return True
        if requirement.change_requirement == _LOWER and wanted < current:
            return True
    return False


class Sequential:
    """All of several filters must admit a pod."""

    def __init__(self, parts: Iterable[EvictionAdmission]) -> None:
        self.parts = list(parts)

    def loop_init(self, pods: Iterable[Pod], controlled: Iterable[tuple[VerticalPodAutoscaler, list[Pod]]]) -> None:
        """Of each part."""
        all_pods, members = list(pods), list(controlled)
        for part in self.parts:
            part.loop_init(all_pods, members)

    def admit(self, pod: Pod, recommendation: RecommendedPodResources | None) -> bool:
        """Whether every part does."""
        return all(part.admit(pod, recommendation) for part in self.parts)

    def clean_up(self) -> None:
        """Of each part."""
        for part in self.parts:
            part.clean_up()
