"""Recommended amounts from merged histograms: percentile, safety margin, confidence, minimum, rounding (upstream:
``pkg/recommender/logic``).

The kernel ``recommend`` in ``_native/src/estimators.cpp`` applies margin and confidence; percentiles are in
``_native/include/kscale/histogram.hpp``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kscale._native import _histogram
from kscale.effects import duration
from kscale.objects.api.meta import ResourceList
from kscale.objects.api.vpa import (
    PodResourcePolicy,
    RecommendedContainerResources,
    RecommendedPodResources,
    container_policy,
)
from kscale.objects.quantity import Quantity
from kscale.vpa.model.aggregates import SCALING_OFF, AggregateStore, get_scaling_policy
from kscale.vpa.model.cluster_state import merge_containers
from kscale.vpa.model.saved_state import RecommenderState, Vpa
from kscale.vpa.model.vpa import CachedPodRecommendation
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.resources import (
    CPU,
    MEMORY,
    cores_to_millicores,
    get_amount,
    scale_amount,
    to_cpu_quantity,
    to_memory_quantity,
    to_resource_amount,
)

__all__ = [
    "LOWER",
    "TARGET",
    "UPPER",
    "RecommendedAmounts",
    "estimate_resources",
    "format_human_bytes",
    "format_resources",
    "get_minimum_amounts",
    "get_minimum_resources",
    "recommend_pod_resources",
    "round_up_to_scale",
]


def round_up_to_scale(value: int, scale: int) -> int:
    """Round up to a multiple of ``scale``. Raises ValueError with upstream's text if ``scale`` is not positive."""
    if scale <= 0:
        raise ValueError("scale must be greater than zero")
    return math.ceil(float(value) / float(scale)) * scale


def format_human_bytes(size: int) -> str:
    """Format bytes with two decimals in the largest binary unit that fits: ``4.65Gi``; below 1 KiB as an integer."""
    for power, unit in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if size >= 1024**power:
            return f"{float(size) / float(1024**power):.2f}{unit}"
    return str(size)


def format_resources(cpu: int, memory: int, controlled: tuple[str, ...], options: RecommenderOptions) -> ResourceList:
    """Convert CPU (millicores) and memory (bytes) to quantities, rounded up as the options say.

    Only ``controlled`` resources are returned. With ``humanize_memory`` memory has two decimals.
    """
    result: ResourceList = {}
    if CPU in controlled:
        result[CPU] = to_cpu_quantity(_round_amount(cpu, options.round_cpu_millicores))
    if MEMORY in controlled:
        memory = _round_amount(memory, options.round_memory_bytes)
        humanized = options.humanize_memory and memory != 0
        result[MEMORY] = Quantity(format_human_bytes(memory)) if humanized else to_memory_quantity(memory)
    return result


def _round_amount(value: int, scale: int) -> int:
    """Round up to a multiple of ``scale``; a scale that is not positive changes nothing."""
    if scale == 1 or value == 0 or scale <= 0:  # a scale that is not positive changes nothing, as upstream
        return value
    return round_up_to_scale(value, scale)


RecommendedAmounts = npt.NDArray[np.int64]
"""int64[containers, 2, 3]: CPU in millicores and memory in bytes; target, lower bound, upper bound."""
TARGET: Final = 0
LOWER: Final = 1
UPPER: Final = 2


def get_minimum_resources(containers: npt.NDArray[np.int64], options: RecommenderOptions) -> npt.NDArray[np.int64]:
    """Return the minimum CPU and memory of a container of a pod with ``containers[i]`` containers, int64[n, 2].

    A pod's minimum is divided evenly and truncated: 250 MiB over three containers is 87381333 bytes each.
    """
    cpu = cores_to_millicores(options.pod_recommendation_min_cpu_millicores * 0.001)
    memory = to_resource_amount(options.pod_recommendation_min_memory_mb * 1024.0 * 1024.0)
    if len(containers) and (containers == containers[0]).all():
        sizes, which = containers[:1], np.zeros(len(containers), np.int64)
    else:
        sizes, which = np.unique(containers, return_inverse=True)
    table = [(scale_amount(cpu, 1.0 / n), scale_amount(memory, 1.0 / n)) for n in sizes.tolist()]
    shares: npt.NDArray[np.int64] = np.array(table, np.int64).reshape(-1, 2)[which]
    return shares


def get_minimum_amounts(containers: int, options: RecommenderOptions) -> dict[str, int | None]:
    """Return the minimum of CPU (millicores) and memory (bytes) of a container by resource, rounded as targets are.

    Both are always set, possibly to 0.
    ``containers``: number of containers of its pod, which share the pod's minimum.
    """
    ((cpu, memory),) = get_minimum_resources(np.array([containers], np.int64), options).tolist()
    amounts = format_resources(cpu, memory, (CPU, MEMORY), options)
    return {resource: get_amount(amounts, resource) for resource in (CPU, MEMORY)}


def estimate_resources(
    store: AggregateStore,
    containers: npt.NDArray[np.int64],
    options: RecommenderOptions,
    *,
    threads: int = 1,
) -> RecommendedAmounts:
    """Estimate target, lower and upper bound of the first ``len(containers)`` rows of a store.

    ``containers[i]`` is the number of containers that share the pod minimum of row *i*. Confidence comes from CPU
    samples only, also for memory. With a confidence of 0 the lower bound is the row's share of the pod minimum, and the
    upper bound is 1e14 (millicores, bytes); the target does not depend on the confidence. Returns int64[n, 2, 3]: CPU
    in millicores and memory in bytes; target, lower bound, upper bound.
    """
    n = len(containers)
    percentiles = np.array(
        [
            [
                options.target_cpu_percentile,
                options.recommendation_lower_bound_cpu_percentile,
                options.recommendation_upper_bound_cpu_percentile,
            ],
            [
                options.target_memory_percentile,
                options.recommendation_lower_bound_memory_percentile,
                options.recommendation_upper_bound_memory_percentile,
            ],
        ]
    )
    intervals = np.array(
        [duration(options.confidence_interval_cpu), duration(options.confidence_interval_memory)], np.int64
    )
    out = np.empty((n, 2, 3), np.int64)
    _histogram.recommend(
        store.cpu.native,
        store.memory.native,
        store.first[:n],
        store.last[:n],
        store.samples[:n],
        get_minimum_resources(containers, options),
        percentiles,
        intervals,
        options.recommendation_margin_fraction,
        out,
        threads,
    )
    return out


_ContainerAmounts = tuple[str, tuple[str, ...], list[list[int]]]
"""Of a container: its name, its controlled resources, amounts by resource."""


def recommend_pod_resources(state: RecommenderState, vpas: Sequence[Vpa]) -> list[RecommendedPodResources]:
    """Return the recommendation of each VPA before post-processing, by container, with uncapped target = target.

    Containers whose policy is Off are left out. The minimum of a pod is shared among the others. A recommendation that
    has not changed since the last call is the same object.
    """
    merged = merge_containers(state, vpas)
    cached: _CachedRecommendations | None = state.cached_recommendations
    policies = [vpa.resource_policy for vpa in vpas]
    if cached is None or cached.names is not merged.names or cached.policies != policies:
        cached = _CachedRecommendations.create(merged.names, policies)
    amounts = estimate_resources(merged.store, cached.numbers, state.options, threads=state.threads)[cached.rows]
    for place, uncontrolled in enumerate(cached.uncontrolled):  # these amounts are not compared
        amounts[uncontrolled, place] = 0
    if cached.options is not state.options or not np.array_equal(cached.amounts, amounts):
        lists: dict[int, list[_ContainerAmounts]] = {}
        for row, controlled, own in zip(cached.rows.tolist(), cached.resources, amounts.tolist(), strict=True):
            vpa, name = merged.names[row]
            lists.setdefault(id(vpa), []).append((name, controlled, own))
        recommendations = [_build_pod_recommendation(vpa, lists.get(id(vpa), []), state.options) for vpa in vpas]
        cached = cached._replace(options=state.options, amounts=amounts, recommendations=recommendations)
    state.cached_recommendations = cached
    return cached.recommendations


class _CachedRecommendations(NamedTuple):
    """Last recommendations of containers (``names``) under ``policies``.

    - ``rows`` int64: rows of containers whose policy is not Off, with the controlled ``resources`` of each.
    - ``uncontrolled``: for CPU and for memory, a mask of the ``rows`` that do not control the resource.
    - ``numbers`` int64[n]: number of containers that share the minimum of a pod.
    - ``amounts``: amounts of ``rows``, formatted under ``options`` in ``recommendations``, VPA by VPA.
    """

    names: Sequence[tuple[Vpa, str]]
    policies: list[PodResourcePolicy | None]
    rows: npt.NDArray[np.int64]
    resources: list[tuple[str, ...]]
    uncontrolled: list[npt.NDArray[np.bool_]]
    numbers: npt.NDArray[np.int64]
    options: RecommenderOptions | None
    amounts: npt.NDArray[np.int64]
    recommendations: list[RecommendedPodResources]

    @classmethod
    def create(
        cls, names: Sequence[tuple[Vpa, str]], policies: list[PodResourcePolicy | None]
    ) -> _CachedRecommendations:
        """Create a cache for the containers ``names`` (VPA, container name) and policies, without amounts."""
        rows: list[int] = []
        resources: list[tuple[str, ...]] = []
        count: dict[int, int] = {}
        for row, (vpa, name) in enumerate(names):
            mode, controlled = get_scaling_policy(container_policy(name, vpa.resource_policy))
            if mode == SCALING_OFF:
                continue
            rows.append(row)
            resources.append(controlled)
            count[id(vpa)] = count.get(id(vpa), 0) + 1
        numbers = np.ones(len(names), np.int64)
        numbers[rows] = [count[id(names[row][0])] for row in rows]
        uncontrolled = [np.array([name not in controlled for controlled in resources], bool) for name in (CPU, MEMORY)]
        nothing = np.empty(0, np.int64)
        return cls(names, policies, np.array(rows, np.int64), resources, uncontrolled, numbers, None, nothing, [])


def _build_pod_recommendation(
    vpa: Vpa, amounts: list[_ContainerAmounts], options: RecommenderOptions
) -> RecommendedPodResources:
    """Build a VPA's recommendation from amounts. The object of the last round is returned if nothing has changed."""
    cached = vpa.shown
    if cached is None or cached.options is not options or cached.amounts != amounts:
        containers = [
            _build_container_recommendation(name, own, controlled, options) for name, controlled, own in amounts
        ]
        containers.sort(key=lambda item: item.container_name)
        recommendation = RecommendedPodResources(container_recommendations=containers)
        cached = vpa.shown = CachedPodRecommendation(amounts, options, recommendation)
    return cached.recommendation


def _build_container_recommendation(
    name: str, amounts: list[list[int]], controlled: tuple[str, ...], options: RecommenderOptions
) -> RecommendedContainerResources:
    """Build the recommendation of a container. ``amounts``: for CPU and memory, by TARGET, LOWER, UPPER."""

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
