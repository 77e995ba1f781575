"""Objects that limit or order pods: disruption budgets, priority and runtime classes, resource quotas."""

from __future__ import annotations

import msgspec

from kscale.objects.api.core import Toleration
from kscale.objects.api.meta import ApiStruct, Condition, Int32, Int64, KubeObject, LabelSelector, ResourceList

__all__ = [
    "PodDisruptionBudget",
    "PodDisruptionBudgetSpec",
    "PodDisruptionBudgetStatus",
    "PriorityClass",
    "ResourceQuota",
    "ResourceQuotaSpec",
    "ResourceQuotaStatus",
    "RuntimeClass",
    "RuntimeClassOverhead",
    "RuntimeClassScheduling",
    "ScopeSelector",
    "ScopeSelectorRequirement",
]


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


class PriorityClass(KubeObject):
    """A named priority; one class may be what pods without a class get."""

    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str | None = None
    description: str = ""


class RuntimeClassOverhead(ApiStruct):
    """What the runtime itself takes for each pod."""

    pod_fixed: ResourceList | None = None


class RuntimeClassScheduling(ApiStruct):
    """On which nodes the runtime is."""

    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] = []


class RuntimeClass(KubeObject):
    """A container runtime."""

    handler: str = ""
    overhead: RuntimeClassOverhead | None = None
    scheduling: RuntimeClassScheduling = msgspec.field(default_factory=RuntimeClassScheduling)


class ScopeSelectorRequirement(ApiStruct):
    """Pods of a scope: ``operator`` is that of a label selector, with values for the scope ``PriorityClass``."""

    scope_name: str = ""
    operator: str = ""
    values: list[str] = []


class ScopeSelector(ApiStruct):
    """Pods for which all of these hold."""

    match_expressions: list[ScopeSelectorRequirement] = []


class ResourceQuotaSpec(ApiStruct):
    """What is limited, and of which pods: those of all ``scopes`` for which the selector holds."""

    hard: ResourceList | None = None
    scopes: list[str] = []
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(ApiStruct):
    """The limits that hold, and what is used of them."""

    hard: ResourceList | None = None
    used: ResourceList | None = None


class ResourceQuota(KubeObject):
    """A resource quota."""

    spec: ResourceQuotaSpec = msgspec.field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = msgspec.field(default_factory=ResourceQuotaStatus)
