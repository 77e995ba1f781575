"""Disruption budgets (upstream: ``k8s.io/api/policy/v1``)."""

from __future__ import annotations

import msgspec

from kscale.objects.base import ApiStruct, Int32, Int64
from kscale.objects.meta import Condition, KubeObject, LabelSelector

__all__ = ["PodDisruptionBudget", "PodDisruptionBudgetSpec", "PodDisruptionBudgetStatus"]


class PodDisruptionBudgetSpec(ApiStruct):
    """How many matching pods must stay; numbers or percentages."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(ApiStruct):
    """What the disruption controller worked out."""

    observed_generation: Int64 = 0
    disrupted_pods: dict[str, str | None] | None = None
    disruptions_allowed: Int32 = 0
    current_healthy: Int32 = 0
    desired_healthy: Int32 = 0
    expected_pods: Int32 = 0
    conditions: list[Condition] = []


class PodDisruptionBudget(KubeObject):
    """A limit on how many matching pods may be evicted."""

    spec: PodDisruptionBudgetSpec = msgspec.field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = msgspec.field(default_factory=PodDisruptionBudgetStatus)
