"""Right-sizing: what every workload of a cluster should request, from recorded usage.

Upstream's recommender is one of the strategies. ``recommend`` is the door; ``workloads`` finds out what belongs to
what, ``history`` and ``feed`` take usage in, ``findings`` makes advice of it, ``records`` is the answer, ``manifests``
are objects made of it.
"""

from __future__ import annotations

from kscale.vpa.advice.records import ContainerAdvice, RecommendationReport, ResourceAdvice, with_quality
from kscale.vpa.advice.report import recommend

__all__ = ["ContainerAdvice", "RecommendationReport", "ResourceAdvice", "recommend", "with_quality"]
