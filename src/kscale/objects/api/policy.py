"""Objects that limit or order pods: disruption budgets, priority and runtime classes, resource quotas."""

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
    """Minimum of available or maximum of unavailable pods, as numbers or percentages."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(ApiStruct):
    """Status of a budget, written by the disruption controller."""

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
    """A named priority. One class may be the default of pods without a class."""

    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str | None = None
    description: str = ""


class RuntimeClassOverhead(ApiStruct):
    """Resources that the runtime itself uses per pod."""

    pod_fixed: ResourceList | None = None


class RuntimeClassScheduling(ApiStruct):
    """Nodes that have the runtime."""

    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] = []


class RuntimeClass(KubeObject):
    """A container runtime."""

    handler: str = ""
    overhead: RuntimeClassOverhead | None = None
    scheduling: RuntimeClassScheduling = msgspec.field(default_factory=RuntimeClassScheduling)


class ScopeSelectorRequirement(ApiStruct):
    """A scope, with an operator of label selectors and values for the scope ``PriorityClass``."""

    scope_name: str = ""
    operator: str = ""
    values: list[str] = []


class ScopeSelector(ApiStruct):
    """A selector of pods for which all requirements hold."""

    match_expressions: list[ScopeSelectorRequirement] = []


class ResourceQuotaSpec(ApiStruct):
    """Limits, and the ``scopes`` and selector of the pods that count."""

    hard: ResourceList | None = None
    scopes: list[str] = []
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(ApiStruct):
    """The current limits and their usage."""

    hard: ResourceList | None = None
    used: ResourceList | None = None


class ResourceQuota(KubeObject):
    """A resource quota."""

    spec: ResourceQuotaSpec = msgspec.field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = msgspec.field(default_factory=ResourceQuotaStatus)
