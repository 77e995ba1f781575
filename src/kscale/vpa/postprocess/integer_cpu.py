"""Whole cores for containers that ask for it by annotation (``cpu_integer_post_processor.go``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kscale.objects.base import ResourceList
from kscale.objects.vpa import RecommendedPodResources
from kscale.vpa.resources import CPU, round_up

__all__ = ["integer_cpu", "integer_cpu_containers"]

PREFIX: Final = "vpa-post-processor.kubernetes.io/"
SUFFIX: Final = "_integerCPU"


def container_name(key: str, prefix: str = PREFIX, suffix: str = SUFFIX) -> str:
    """The text between prefix and suffix; empty when either is missing."""
    if not key.startswith(prefix) or not key.endswith(suffix):
        return ""
    return key.removeprefix(prefix).removesuffix(suffix)


def integer_cpu_containers(annotations: Mapping[str, str] | None) -> set[str]:
    """The containers whose annotation says exactly ``true``."""
    names = {container_name(key) for key, value in (annotations or {}).items() if value == "true"}
    return names - {""}


def integer_cpu(
    recommendation: RecommendedPodResources, annotations: Mapping[str, str] | None
) -> RecommendedPodResources:
    """CPU in target, bounds and uncapped target rounded up to whole cores."""
    chosen = integer_cpu_containers(annotations)
    if not chosen:
        return recommendation

    def rounded(resources: ResourceList | None) -> ResourceList | None:
        if resources is None or CPU not in resources:
            return resources
        return {**resources, CPU: round_up(resources[CPU])}

    return RecommendedPodResources(
        container_recommendations=[
            msgspec.structs.replace(
                item,
                target=rounded(item.target),
                lower_bound=rounded(item.lower_bound),
                upper_bound=rounded(item.upper_bound),
                uncapped_target=rounded(item.uncapped_target),
            )
            if item.container_name in chosen
            else item
            for item in recommendation.container_recommendations
        ]
    )
