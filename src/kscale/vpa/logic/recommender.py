"""Recommendations for VPAs (upstream: ``pkg/recommender/logic/recommender.go``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kscale.objects.base import ResourceList
from kscale.objects.vpa import (
    PodResourcePolicy,
    RecommendedContainerResources,
    RecommendedPodResources,
    container_policy,
)
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
    known: _Told | None = state.told
    policies = [vpa.resource_policy for vpa in vpas]
    if known is None or known.names is not merged.names or known.policies != policies:
        known = _Told.of(merged.names, policies)
    amounts = estimate(merged.store, known.numbers, state.options, threads=state.threads)[known.kept]
    for place, unasked in enumerate(known.unasked):  # what is not told may change
        amounts[unasked, place] = 0
    if known.options is not state.options or not np.array_equal(known.amounts, amounts):
        lists: dict[int, list[_Amounts]] = {}
        for row, controlled, own in zip(known.kept.tolist(), known.resources, amounts.tolist(), strict=True):
            vpa, name = merged.names[row]
            lists.setdefault(id(vpa), []).append((name, controlled, own))
        found = [_shown(vpa, lists.get(id(vpa), []), state.options) for vpa in vpas]
        known = known._replace(options=state.options, amounts=amounts, found=found)
    state.told = known
    return known.found


class _Told(NamedTuple):
    """What was recommended last for containers (``names``) under ``policies``.

    ``kept`` int64: the rows of those whose policy is not Off, and the ``resources`` of each that are told; ``unasked``:
    for CPU and for memory which of them are told nothing; ``numbers`` int64[n]: how many containers share the minimum
    of a pod. ``amounts`` of those that are kept, as ``options`` have them shown in ``found``, VPA by VPA.
    """

    names: Sequence[tuple[Vpa, str]]
    policies: list[PodResourcePolicy | None]
    kept: npt.NDArray[np.int64]
    resources: list[tuple[str, ...]]
    unasked: list[npt.NDArray[np.bool_]]
    numbers: npt.NDArray[np.int64]
    options: RecommenderOptions | None
    amounts: npt.NDArray[np.int64]
    found: list[RecommendedPodResources]

    @classmethod
    def of(cls, names: Sequence[tuple[Vpa, str]], policies: list[PodResourcePolicy | None]) -> _Told:
        """Of these, nothing yet."""
        kept: list[int] = []
        resources: list[tuple[str, ...]] = []
        count: dict[int, int] = {}
        for row, (vpa, name) in enumerate(names):
            mode, controlled = scaling_of(container_policy(name, vpa.resource_policy))
            if mode == SCALING_OFF:
                continue
            kept.append(row)
            resources.append(controlled)
            count[id(vpa)] = count.get(id(vpa), 0) + 1
        numbers = np.ones(len(names), np.int64)
        numbers[kept] = [count[id(names[row][0])] for row in kept]
        unasked = [np.array([name not in controlled for controlled in resources], bool) for name in (CPU, MEMORY)]
        nothing = np.empty(0, np.int64)
        return cls(names, policies, np.array(kept, np.int64), resources, unasked, numbers, None, nothing, [])


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
