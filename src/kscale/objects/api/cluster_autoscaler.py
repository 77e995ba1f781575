"""Custom resources of the Cluster Autoscaler: capacity buffers, provisioning requests and capacity quotas (upstream:
``autoscaling.x-k8s.io``).
"""

import msgspec

from kscale.objects.api.meta import ApiStruct, Condition, Int32, Int64, KubeObject, LabelSelector, ResourceList

__all__ = [
    "CapacityBuffer",
    "CapacityBufferSpec",
    "CapacityBufferStatus",
    "CapacityQuota",
    "CapacityQuotaLimits",
    "CapacityQuotaSpec",
    "CapacityQuotaStatus",
    "CapacityQuotaUsage",
    "LocalObjectRef",
    "PodSet",
    "PodTemplateRef",
    "ProvisioningRequest",
    "ProvisioningRequestSpec",
    "ProvisioningRequestStatus",
    "ScalableRef",
]


class LocalObjectRef(ApiStruct):
    """An object of the same namespace."""

    name: str = ""


class ScalableRef(ApiStruct):
    """An object of the same namespace that has a scale. ``api_group``: upstream calls the core group ``core`` here."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class CapacityBufferSpec(ApiStruct):
    """Spec of a capacity buffer, a number of pods from a template or like those of a workload.

    ``percentage`` is relative to the workload's replicas. The API server sets an absent ``provisioning_strategy`` to
    ``buffer.x-k8s.io/active-capacity``.
    """

    provisioning_strategy: str | None = None
    pod_template_ref: LocalObjectRef | None = None
    scalable_ref: ScalableRef | None = None
    replicas: Int32 | None = None
    percentage: Int32 | None = None
    limits: ResourceList | None = None


class CapacityBufferStatus(ApiStruct):
    """Status of a capacity buffer: ``replicas`` pods of the template at the recorded generation are wanted."""

    pod_template_ref: LocalObjectRef | None = None
    replicas: Int32 | None = None
    pod_template_generation: Int64 | None = None
    conditions: list[Condition] = []
    provisioning_strategy: str | None = None


class CapacityBuffer(KubeObject):
    """A capacity buffer."""

    spec: CapacityBufferSpec = msgspec.field(default_factory=CapacityBufferSpec)
    status: CapacityBufferStatus = msgspec.field(default_factory=CapacityBufferStatus)


class PodTemplateRef(ApiStruct):
    """A pod template of the same namespace."""

    name: str = ""


class PodSet(ApiStruct):
    """A number of pods of one template."""

    pod_template_ref: PodTemplateRef = msgspec.field(default_factory=PodTemplateRef)
    count: Int32 = 0


class ProvisioningRequestSpec(ApiStruct):
    """Spec of a provisioning request, with its pods and how their capacity is found."""

    pod_sets: list[PodSet] = []
    provisioning_class_name: str = ""
    parameters: dict[str, str] | None = None


class ProvisioningRequestStatus(ApiStruct):
    """Status of a provisioning request."""

    conditions: list[Condition] = []
    provisioning_class_details: dict[str, str] | None = None


class ProvisioningRequest(KubeObject):
    """A provisioning request."""

    spec: ProvisioningRequestSpec = msgspec.field(default_factory=ProvisioningRequestSpec)
    status: ProvisioningRequestStatus = msgspec.field(default_factory=ProvisioningRequestStatus)

    @property
    def pod_count(self) -> int:
        """Return the total number of pods of the request's pod sets."""
        return sum(pod_set.count for pod_set in self.spec.pod_sets)


class CapacityQuotaLimits(ApiStruct):
    """Maximum total resources of the selected nodes."""

    resources: ResourceList | None = None


class CapacityQuotaSpec(ApiStruct):
    """Spec of a capacity quota. Without a selector it selects all nodes."""

    selector: LabelSelector | None = None
    limits: CapacityQuotaLimits = msgspec.field(default_factory=CapacityQuotaLimits)


class CapacityQuotaUsage(ApiStruct):
    """Total of the limited resources of the selected nodes."""

    resources: ResourceList = {}


class CapacityQuotaStatus(ApiStruct):
    """Status of a capacity quota, written by the quota controller."""

    conditions: list[Condition] = []
    used: CapacityQuotaUsage | None = None
    observed_generation: Int64 | None = None


class CapacityQuota(KubeObject):
    """A limit on the total size of the nodes that it selects."""

    spec: CapacityQuotaSpec = msgspec.field(default_factory=CapacityQuotaSpec)
    status: CapacityQuotaStatus = msgspec.field(default_factory=CapacityQuotaStatus)
