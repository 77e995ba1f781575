"""Right-sizing: the requests that every workload of a cluster should have, from recorded usage.

Upstream's recommender is one of the strategies. Entry point: ``recommend`` in ``report``. ``workloads`` matches pods,
VPAs and workloads, and feeds usage to the recommender. ``records`` contains the report and the objects built from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.imports import import_on_use

if TYPE_CHECKING:
    from kscale.vpa.advice.records import ContainerAdvice, RecommendationReport, ResourceAdvice, with_quality
    from kscale.vpa.advice.report import recommend

__all__ = ["ContainerAdvice", "RecommendationReport", "ResourceAdvice", "recommend", "with_quality"]


import_on_use(
    __name__,
    {
        "records": ("ContainerAdvice", "RecommendationReport", "ResourceAdvice", "with_quality"),
        "report": ("recommend",),
    },
)
