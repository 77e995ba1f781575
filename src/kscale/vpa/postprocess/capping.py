"""Keeping a recommendation within the VPA's policy (``ApplyVPAPolicy``)."""

from __future__ import annotations

import msgspec

from kscale.objects.base import ResourceList
from kscale.objects.vpa import ContainerPolicies, PodResourcePolicy, RecommendedPodResources

__all__ = ["apply_policy"]


def apply_policy(
    recommendation: RecommendedPodResources | None,
    policy: PodResourcePolicy | None,
    global_max: ResourceList | None = None,
) -> RecommendedPodResources | None:
    """Target and bounds between ``minAllowed`` and ``maxAllowed`` (the uncapped target stays).

    ``global_max`` stands in for what ``maxAllowed`` does not name. Zero bounds count as none; the maximum wins.
    """
    if recommendation is None:
        return None
    capped = []
    policies = ContainerPolicies(policy)
    for item in recommendation.container_recommendations:
        own = policies.get(item.container_name)
        low = (own.min_allowed if own is not None else None) or {}
        high = {**(global_max or {}), **((own.max_allowed if own is not None else None) or {})}
        capped.append(
            msgspec.structs.replace(
                item,
                target=_within(item.target, low, high),
                lower_bound=_within(item.lower_bound, low, high),
                upper_bound=_within(item.upper_bound, low, high),
            )
        )
    return RecommendedPodResources(container_recommendations=capped)


def _within(resources: ResourceList | None, low: ResourceList, high: ResourceList) -> ResourceList | None:
    if resources is None:
        return None
    result = dict(resources)
    if not low and not high:
        return result
    for name, quantity in resources.items():
        least, most = low.get(name), high.get(name)
        if least is not None and not least.is_zero and quantity < least:
            quantity = least
        if most is not None and not most.is_zero and most < quantity:
            quantity = most
        result[name] = quantity
    return result
