"""VerticalPodAutoscaler and its checkpoints (upstream: ``vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1``)."""

from typing import Any, Final

import msgspec

from kscale.objects.api.meta import ApiStruct, Int32, Int64, KubeObject, ResourceList
from kscale.objects.quantity import Quantity

__all__ = [
    "ContainerPolicies",
    "ContainerResourcePolicy",
    "EvictionRequirement",
    "HistogramCheckpoint",
    "PodResourcePolicy",
    "PodUpdatePolicy",
    "RecommendedContainerResources",
    "RecommendedPodResources",
    "RecommenderSelector",
    "StartupBoost",
    "StartupBoostCpu",
    "TargetReference",
    "VerticalPodAutoscaler",
    "VerticalPodAutoscalerCheckpoint",
    "VerticalPodAutoscalerCheckpointSpec",
    "VerticalPodAutoscalerCheckpointStatus",
    "VerticalPodAutoscalerCondition",
    "VerticalPodAutoscalerSpec",
    "VerticalPodAutoscalerStatus",
    "container_policy",
    "update_mode",
]

API_VERSION: Final = "autoscaling.k8s.io/v1"
DEFAULT_CONTAINER_POLICY: Final = "*"


def _declare_time_field() -> Any:
    """Return a struct field for Go's ``metav1.Time``: None by default, and encoded as null in that case."""
    return msgspec.field(default_factory=lambda: None)


class TargetReference(ApiStruct):
    """The controller of the VPA's pods."""

    api_version: str = ""
    kind: str = ""
    name: str = ""


class EvictionRequirement(ApiStruct):
    """``changeRequirement`` (``TargetHigherThanRequests``, ``TargetLowerThanRequests``) for one of ``resources``."""

    resources: list[str] = []
    change_requirement: str = ""


class PodUpdatePolicy(ApiStruct):
    """How pods get their new resources. A missing or empty mode means ``Recreate``."""

    update_mode: str | None = None
    min_replicas: Int32 | None = None
    eviction_requirements: list[EvictionRequirement] = []
    evict_after_oom_seconds: Int32 | None = msgspec.field(default=None, name="evictAfterOOMSeconds")


class StartupBoostCpu(ApiStruct):
    """More CPU while a container starts: ``type`` ``Factor`` or ``Quantity``, for ``durationSeconds`` after Ready."""

    type: str = ""
    factor: Int32 | None = None
    quantity: Quantity | None = None
    duration_seconds: Int32 | None = None


class StartupBoost(ApiStruct):
    """The boost of each resource; there is only one for CPU."""

    cpu: StartupBoostCpu | None = None


class ContainerResourcePolicy(ApiStruct):
    """Limits of one container's recommendations (``*``: containers without a policy of their own)."""

    container_name: str = ""
    mode: str | None = None
    min_allowed: ResourceList | None = None
    max_allowed: ResourceList | None = None
    controlled_resources: list[str] | None = None
    controlled_values: str | None = None
    oom_bump_up_ratio: Quantity | None = None
    oom_min_bump_up: Quantity | None = None
    memory_aggregation_interval_seconds: Int64 | None = None
    memory_aggregation_interval_count: Int64 | None = None
    startup_boost: StartupBoost | None = None


class PodResourcePolicy(ApiStruct):
    """The policies of a pod's containers."""

    container_policies: list[ContainerResourcePolicy] = []


class RecommenderSelector(ApiStruct):
    """The recommender that handles the VPA."""

    name: str = ""


class VerticalPodAutoscalerSpec(ApiStruct):
    """Spec of a VPA, with its target and policies."""

    target_ref: TargetReference | None = None
    update_policy: PodUpdatePolicy | None = None
    resource_policy: PodResourcePolicy | None = None
    recommenders: list[RecommenderSelector] = []
    startup_boost: StartupBoost | None = None


class RecommendedContainerResources(ApiStruct):
    """The recommendation for one container. Absent bounds are None."""

    container_name: str = ""
    target: ResourceList | None = None
    lower_bound: ResourceList | None = None
    upper_bound: ResourceList | None = None
    uncapped_target: ResourceList | None = None


class RecommendedPodResources(ApiStruct):
    """The recommendations for a pod's containers."""

    container_recommendations: list[RecommendedContainerResources] = []


class VerticalPodAutoscalerCondition(ApiStruct):
    """One observation; ``status`` is ``True``, ``False`` or ``Unknown``."""

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class VerticalPodAutoscalerStatus(ApiStruct):
    """Status of a VPA, written by the recommender."""

    recommendation: RecommendedPodResources | None = None
    conditions: list[VerticalPodAutoscalerCondition] = []
    observed_generation: Int64 | None = None


class VerticalPodAutoscaler(KubeObject):
    """A Vertical Pod Autoscaler."""

    spec: VerticalPodAutoscalerSpec = msgspec.field(default_factory=VerticalPodAutoscalerSpec)
    status: VerticalPodAutoscalerStatus = msgspec.field(default_factory=VerticalPodAutoscalerStatus)


class HistogramCheckpoint(ApiStruct):
    """A histogram in lossy form, bucket index (as text) -> weight, where the largest weight is 10000.

    The API server does not validate weights; readers do (:mod:`kscale.vpa.recommender.checkpoints`).
    """

    reference_timestamp: str | None = _declare_time_field()
    bucket_weights: dict[str, Any] | None = None
    total_weight: float = 0.0


class VerticalPodAutoscalerCheckpointSpec(ApiStruct):
    """The VPA and container of a checkpoint."""

    vpa_object_name: str = msgspec.field(default="", name="vpaObjectName")
    container_name: str = ""


class VerticalPodAutoscalerCheckpointStatus(ApiStruct):
    """The history of one container name of a VPA."""

    last_update_time: str | None = _declare_time_field()
    version: str = ""
    cpu_histogram: HistogramCheckpoint = msgspec.field(default_factory=HistogramCheckpoint)
    memory_histogram: HistogramCheckpoint = msgspec.field(default_factory=HistogramCheckpoint)
    first_sample_start: str | None = _declare_time_field()
    last_sample_start: str | None = _declare_time_field()
    total_samples_count: Int64 = 0


class VerticalPodAutoscalerCheckpoint(KubeObject):
    """State that the recommender stores for a restart."""

    spec: VerticalPodAutoscalerCheckpointSpec = msgspec.field(default_factory=VerticalPodAutoscalerCheckpointSpec)
    status: VerticalPodAutoscalerCheckpointStatus = msgspec.field(default_factory=VerticalPodAutoscalerCheckpointStatus)


def update_mode(vpa: VerticalPodAutoscaler) -> str:
    """Return the VPA's update mode. A missing or empty mode means ``Recreate``."""
    policy = vpa.spec.update_policy
    return (policy.update_mode if policy is not None else None) or "Recreate"


def container_policy(container: str, policy: PodResourcePolicy | None) -> ContainerResourcePolicy | None:
    """Return the policy that applies to a container: the first of its name, else the last of ``*``, else None.

    For many containers build :class:`ContainerPolicies` once.
    """
    return ContainerPolicies(policy).get(container)


class ContainerPolicies:
    """The container policies of a VPA, indexed by container name.

    Build one per VPA, not one per container: a pod and a VPA may each have thousands of entries.
    """

    __slots__ = ("_by_name", "_default")

    def __init__(self, policy: PodResourcePolicy | None) -> None:
        items = policy.container_policies if policy is not None else []
        self._by_name = {item.container_name: item for item in reversed(items)}
        self._default = next(
            (item for item in reversed(items) if item.container_name == DEFAULT_CONTAINER_POLICY), None
        )

    def get(self, container: str) -> ContainerResourcePolicy | None:
        """Return the container's policy: the first one of its name, else the last one of ``*``, else None."""
        return self._by_name.get(container, self._default)

    def controlled_values(self, container: str) -> str:
        """Return ``controlledValues`` of the container's policy, by default ``RequestsAndLimits``."""
        policy = self.get(container)
        return (policy.controlled_values if policy is not None else None) or "RequestsAndLimits"
