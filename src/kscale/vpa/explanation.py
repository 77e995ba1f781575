"""Texts that explain the targets of a container: percentile and margin, the minimum of a pod, policy and bounds.

Not in upstream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kscale.vpa.options import RecommenderOptions
from kscale.vpa.resources import CPU, MEMORY

__all__ = ["ResourceTargets", "describe_percentiles", "explain_target"]

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


def describe_percentiles(options: RecommenderOptions) -> dict[str, str]:
    """Return a text per resource on how the recommender computes target and bounds, before policies."""
    margin = f"plus {options.recommendation_margin_fraction:.0%}"
    percentiles = {
        CPU: (
            "usage",
            options.target_cpu_percentile,
            options.recommendation_lower_bound_cpu_percentile,
            options.recommendation_upper_bound_cpu_percentile,
        ),
        MEMORY: (
            "peaks",
            options.target_memory_percentile,
            options.recommendation_lower_bound_memory_percentile,
            options.recommendation_upper_bound_memory_percentile,
        ),
    }
    return {
        resource: f"percentile {100 * target:g} of {samples} {margin} (bounds: percentiles {100 * lower:g} and "
        f"{100 * upper:g})"
        for resource, (samples, target, lower, upper) in percentiles.items()
    }


def explain_target(resource: str, amounts: ResourceTargets, method: Mapping[str, str]) -> str:
    """Return the target of a resource and how it was computed, in one line.

    ``method``: how the target is computed, by resource; without an entry for the resource the line does not say it.
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
    """Format millicores as ``1,500m``, and bytes in Mi or Gi."""
    if resource == CPU:
        return f"{amount:,}m"
    return f"{amount / _GIB:,.4g}Gi" if amount >= _GIB else f"{amount / _MIB:,.4g}Mi"
