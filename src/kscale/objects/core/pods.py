"""Pods, and what controllers make them from."""

# Annotations are values here: msgspec makes decoders of them, and a text would have to be compiled first.

import msgspec

from kscale.objects.base import ApiStruct, Int32, Int64, ResourceList
from kscale.objects.core.containers import Container, ContainerStatus, ResourceRequirements
from kscale.objects.core.placement import Affinity, Toleration, TopologySpreadConstraint
from kscale.objects.meta import Condition, KubeObject, ObjectMeta
from kscale.objects.volumes import Volume

__all__ = [
    "Pod",
    "PodResourceClaim",
    "PodResourceClaimStatus",
    "PodSchedulingGate",
    "PodSpec",
    "PodStatus",
    "PodTemplate",
    "PodTemplateSpec",
]


class PodSchedulingGate(ApiStruct):
    """A reason to wait that somebody else has to remove."""

    name: str = ""


class PodResourceClaim(ApiStruct):
    """A resource claim (or a template for one) that the pod uses."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodResourceClaimStatus(ApiStruct):
    """The claim that was made from a template for this pod."""

    name: str = ""
    resource_claim_name: str | None = None


class PodSpec(ApiStruct):
    """What a pod is to be."""

    containers: list[Container] = []
    init_containers: list[Container] = []
    ephemeral_containers: list[Container] = []
    volumes: list[Volume] = []
    restart_policy: str = ""
    termination_grace_period_seconds: Int64 | None = None
    active_deadline_seconds: Int64 | None = None
    node_selector: dict[str, str] | None = None
    service_account_name: str = ""
    node_name: str = ""
    host_network: bool = False
    host_users: bool | None = None
    hostname: str = ""
    subdomain: str = ""
    affinity: Affinity | None = None
    scheduler_name: str = ""
    tolerations: list[Toleration] = []
    priority_class_name: str = ""
    priority: Int32 | None = None
    preemption_policy: str | None = None
    runtime_class_name: str | None = None
    overhead: ResourceList | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    scheduling_gates: list[PodSchedulingGate] = []
    resource_claims: list[PodResourceClaim] = []
    resources: ResourceRequirements | None = None


class PodStatus(ApiStruct):
    """What became of a pod."""

    phase: str = ""
    conditions: list[Condition] = []
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    start_time: str | None = None
    host_ip: str = msgspec.field(default="", name="hostIP")
    pod_ip: str = msgspec.field(default="", name="podIP")
    qos_class: str = ""
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    ephemeral_container_statuses: list[ContainerStatus] = []
    resource_claim_statuses: list[PodResourceClaimStatus] = []
    resize: str = ""
    allocated_resources: ResourceList | None = None
    resources: ResourceRequirements | None = None


class Pod(KubeObject):
    """A pod."""

    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class PodTemplateSpec(ApiStruct):
    """What a controller makes its pods from."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class PodTemplate(KubeObject):
    """A pattern of pods that other objects refer to by name."""

    template: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)
