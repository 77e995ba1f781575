"""Recommendations for VPAs (upstream: ``pkg/recommender/logic/recommender.go``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kscale.objects.base import ResourceList
from kscale.objects.vpa import RecommendedContainerResources, RecommendedPodResources, container_policy
from kscale.vpa.logic.estimators import LOWER, TARGET, UPPER, estimate
from kscale.vpa.logic.formatting import format_resources
from kscale.vpa.model import RecommenderState, Vpa
from kscale.vpa.model.aggregates import SCALING_OFF, scaling_of
from kscale.vpa.model.merged import merge_containers
from kscale.vpa.model.vpa import Shown
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.resources import CPU, MEMORY

__all__ = ["recommended_amounts"]

_Amounts = tuple[str, tuple[str, ...], list[list[int]]]
"""Of a container: its name, its controlled resources, amounts by resource."""


def recommended_amounts(state: RecommenderState, vpas: Sequence[Vpa]) -> list[RecommendedPodResources]:
    """The recommendation of each VPA before post-processing: its containers by name, uncapped target = target.

    Containers whose policy says Off are left out; the minimum of a pod is shared among the others.
    """
    merged = merge_containers(state, vpas)
    kept: list[int] = []
    resources: list[tuple[str, ...]] = []
    count: dict[int, int] = {}
    for row, (vpa, name) in enumerate(merged.names):
        mode, controlled = scaling_of(container_policy(name, vpa.resource_policy))
        if mode == SCALING_OFF:
            continue
        kept.append(row)
        resources.append(controlled)
        count[id(vpa)] = count.get(id(vpa), 0) + 1
    numbers = np.ones(len(merged.names), np.int64)
    numbers[kept] = [count[id(merged.names[row][0])] for row in kept]
    amounts = estimate(merged.store, numbers, state.options, threads=state.threads)
    told = amounts[kept]
    for place, resource in enumerate((CPU, MEMORY)):  # what is not told may change
        told[[resource not in controlled for controlled in resources], place] = 0
    lists: dict[int, list[_Amounts]] = {}
    for row, controlled, own in zip(kept, resources, told.tolist(), strict=True):
        vpa, name = merged.names[row]
        lists.setdefault(id(vpa), []).append((name, controlled, own))
    return [_shown(vpa, lists.get(id(vpa), []), state.options) for vpa in vpas]


def _shown(vpa: Vpa, amounts: list[_Amounts], options: RecommenderOptions) -> RecommendedPodResources:
    """What amounts are shown as: the same as before, where they are."""
    known = vpa.shown
    if known is None or known.options is not options or known.amounts != amounts:
        containers = [_container(name, own, controlled, options) for name, controlled, own in amounts]
        containers.sort(key=lambda item: item.container_name)
        made = RecommendedPodResources(container_recommendations=containers)
        known = vpa.shown = Shown(amounts, options, made)
    return known.recommendation


def _container(
    name: str, amounts: list[list[int]], controlled: tuple[str, ...], options: RecommenderOptions
) -> RecommendedContainerResources:
    def resources(which: int) -> ResourceList:
        return format_resources(amounts[0][which], amounts[1][which], controlled, options)

    target = resources(TARGET)
    return RecommendedContainerResources(
        container_name=name,
        target=target,
        lower_bound=resources(LOWER),
        upper_bound=resources(UPPER),
        uncapped_target=dict(target),
    )
