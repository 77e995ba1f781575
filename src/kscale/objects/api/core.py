"""Pods, containers, nodes, namespaces and events of the core group (upstream: ``k8s.io/api/core/v1``)."""

from functools import lru_cache
from typing import Any

import msgspec

from kscale.objects.api.meta import (
    ApiStruct,
    Condition,
    Int32,
    Int64,
    KubeObject,
    LabelSelector,
    ObjectMeta,
    ResourceList,
)
from kscale.objects.api.volumes import Volume

__all__ = [
    "Affinity",
    "ConfigMap",
    "Container",
    "ContainerImage",
    "ContainerPort",
    "ContainerResizePolicy",
    "ContainerRestartRule",
    "ContainerState",
    "ContainerStateTerminated",
    "ContainerStatus",
    "EnvVar",
    "Event",
    "EventSource",
    "LimitRange",
    "LimitRangeItem",
    "LimitRangeSpec",
    "Namespace",
    "Node",
    "NodeAffinity",
    "NodeSelector",
    "NodeSelectorRequirement",
    "NodeSelectorTerm",
    "NodeSpec",
    "NodeStatus",
    "ObjectReference",
    "Pod",
    "PodAffinity",
    "PodAffinityTerm",
    "PodResourceClaim",
    "PodResourceClaimStatus",
    "PodSchedulingGate",
    "PodSpec",
    "PodStatus",
    "PodTemplate",
    "PodTemplateSpec",
    "PreferredSchedulingTerm",
    "ReplicationController",
    "ReplicationControllerSpec",
    "ReplicationControllerStatus",
    "ResourceClaimRef",
    "ResourceRequirements",
    "Service",
    "ServiceSpec",
    "Taint",
    "Toleration",
    "TopologySpreadConstraint",
    "VolumeMount",
    "WeightedPodAffinityTerm",
]


# No future annotations: msgspec builds decoders from annotations, and would have to compile texts first.


class NodeSelectorRequirement(ApiStruct):
    """One expression on a node's labels or fields; operators In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str = ""
    operator: str = ""
    values: list[str] = []


class NodeSelectorTerm(ApiStruct):
    """A term of a node selector. All expressions must hold; an empty term matches nothing."""

    match_expressions: list[NodeSelectorRequirement] = []
    match_fields: list[NodeSelectorRequirement] = []


class NodeSelector(ApiStruct):
    """A node selector. One of the terms must hold."""

    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredSchedulingTerm(ApiStruct):
    """A preference for nodes (scoring only)."""

    weight: Int32 = 0
    preference: NodeSelectorTerm = msgspec.field(default_factory=NodeSelectorTerm)


class NodeAffinity(ApiStruct):
    """Required and preferred nodes of a pod."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredSchedulingTerm] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(ApiStruct):
    """Pods (by labels and namespaces) that a pod must be near to, or apart from, in a topology domain."""

    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(ApiStruct):
    """A preference about other pods (scoring only)."""

    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = msgspec.field(default_factory=PodAffinityTerm)


class PodAffinity(ApiStruct):
    """Affinity or anti-affinity towards other pods."""

    required: list[PodAffinityTerm] = msgspec.field(
        default_factory=list, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodAffinityTerm] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(ApiStruct):
    """All affinities of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Taint(ApiStruct):
    """A taint of a node; effects NoSchedule, PreferNoSchedule, NoExecute."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Toleration(ApiStruct):
    """A taint that a pod tolerates; operators Equal (also when empty), Exists, Lt, Gt."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class TopologySpreadConstraint(ApiStruct):
    """Maximum skew of matching pods over the values of a node label."""

    max_skew: Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] = []


# No future annotations: msgspec builds decoders from annotations, and would have to compile texts first.


class ResourceClaimRef(ApiStruct):
    """A container's use of one of the pod's resource claims."""

    name: str = ""
    request: str = ""


class ResourceRequirements(ApiStruct):
    """Requests and limits; an absent map and an empty one differ in statuses."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None
    claims: list[ResourceClaimRef] = []


class ContainerPort(ApiStruct):
    """A port of a container. ``host_port`` 0 means none."""

    name: str = ""
    container_port: Int32 = 0
    host_port: Int32 = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""


class VolumeMount(ApiStruct):
    """A mount of a volume in a container."""

    name: str = ""
    mount_path: str = ""
    read_only: bool = False
    sub_path: str = ""
    bind_mount_options: list[str] = []


class ContainerResizePolicy(ApiStruct):
    """Effect of an in-place resize of one resource on the container."""

    resource_name: str = ""
    restart_policy: str = ""


class ContainerRestartRule(ApiStruct):
    """Action when the container exits in a certain way."""

    action: str = ""
    exit_codes: dict[str, Any] | None = None


class EnvVar(ApiStruct):
    """An environment variable. Values may be secrets: never print them."""

    name: str = ""
    value: str = ""
    value_from: dict[str, Any] | None = None


class Container(ApiStruct):
    """A container; an init container with restart policy ``Always`` is a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)
    ports: list[ContainerPort] = []
    env: list[EnvVar] = []
    volume_mounts: list[VolumeMount] = []
    resize_policy: list[ContainerResizePolicy] = []
    restart_policy: str | None = None
    restart_policy_rules: list[ContainerRestartRule] = []


class ContainerStateTerminated(ApiStruct):
    """How a container terminated."""

    exit_code: Int32 = 0
    signal: Int32 = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(ApiStruct):
    """The state of a container, one of three."""

    waiting: dict[str, Any] | None = None
    running: dict[str, Any] | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(ApiStruct):
    """Status of a container. ``resources`` and ``allocated_resources`` are for in-place resize."""

    name: str = ""
    image: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: Int32 = 0
    state: ContainerState = msgspec.field(default_factory=ContainerState)
    last_state: ContainerState = msgspec.field(default_factory=ContainerState)
    allocated_resources: ResourceList | None = None
    resources: ResourceRequirements | None = None


# No future annotations: msgspec builds decoders from annotations, and would have to compile texts first.


class PodSchedulingGate(ApiStruct):
    """A gate that some controller must remove before the pod is scheduled."""

    name: str = ""


class PodResourceClaim(ApiStruct):
    """A resource claim (or a template for one) that the pod uses."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodResourceClaimStatus(ApiStruct):
    """The claim that was created from a template for this pod."""

    name: str = ""
    resource_claim_name: str | None = None


class PodSpec(ApiStruct):
    """Spec of a pod."""

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
    """Status of a pod."""

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

    @property
    def is_finished(self) -> bool:
        """Whether the pod has ended: its phase is Succeeded or Failed."""
        return self.status.phase in ("Succeeded", "Failed")


class PodTemplateSpec(ApiStruct):
    """Template of a controller's pods."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class PodTemplate(KubeObject):
    """A pod template that other objects refer to by name."""

    template: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)


# No future annotations: msgspec builds decoders from annotations, and would have to compile texts first.


class NodeSpec(ApiStruct):
    """Spec of a node."""

    provider_id: str = msgspec.field(default="", name="providerID")
    unschedulable: bool = False
    taints: list[Taint] = []
    pod_cidr: str = msgspec.field(default="", name="podCIDR")
    pod_cidrs: list[str] = msgspec.field(default_factory=list, name="podCIDRs")
    external_id: str = msgspec.field(default="", name="externalID")
    config_source: dict[str, Any] | None = None
    pod_preemption_policy: dict[str, Any] | None = None


class ContainerImage(ApiStruct):
    """An image on a node, with its names."""

    names: list[str] = []
    size_bytes: Int64 = 0


@lru_cache(maxsize=1 << 14)
def _share_image(names: tuple[str, ...], size_bytes: int) -> ContainerImage:
    """Return an image; equal arguments give the same shared object, because many nodes list the same images."""
    return ContainerImage(names=[*names], size_bytes=size_bytes)


class NodeStatus(ApiStruct):
    """Status of a node."""

    capacity: ResourceList | None = None
    allocatable: ResourceList | None = None
    conditions: list[Condition] = []
    declared_features: list[str] = []
    phase: str = ""
    node_info: dict[str, Any] | None = None
    addresses: list[dict[str, Any]] = []
    daemon_endpoints: dict[str, Any] | None = None
    images: list[ContainerImage] = []
    volumes_in_use: list[str] = []
    volumes_attached: list[dict[str, Any]] = []
    config: dict[str, Any] | None = None
    runtime_handlers: list[dict[str, Any]] = []
    features: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.images:
            self.images = [_share_image(tuple(each.names), each.size_bytes) for each in self.images]


class Node(KubeObject):
    """A node."""

    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


# No future annotations: msgspec builds decoders from annotations, and would have to compile texts first.


class Namespace(KubeObject):
    """A namespace, whose labels namespace selectors match."""

    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class ServiceSpec(ApiStruct):
    """Spec of a service, with the selector of its pods."""

    selector: dict[str, str] | None = None
    type: str = ""
    cluster_ip: str = msgspec.field(default="", name="clusterIP")


class Service(KubeObject):
    """A service."""

    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)


class ReplicationControllerSpec(ApiStruct):
    """Spec of a ReplicationController. ``replicas`` defaults to 1."""

    replicas: Int32 | None = None
    min_ready_seconds: Int32 = 0
    selector: dict[str, str] | None = None
    template: PodTemplateSpec | None = None


class ReplicationControllerStatus(ApiStruct):
    """Status of a ReplicationController."""

    replicas: Int32 = 0
    ready_replicas: Int32 = 0
    available_replicas: Int32 = 0
    observed_generation: Int64 = 0


class ReplicationController(KubeObject):
    """A ReplicationController."""

    spec: ReplicationControllerSpec = msgspec.field(default_factory=ReplicationControllerSpec)
    status: ReplicationControllerStatus = msgspec.field(default_factory=ReplicationControllerStatus)


class LimitRangeItem(ApiStruct):
    """Limits and defaults for one type: Pod, Container or PersistentVolumeClaim."""

    type: str = ""
    max: ResourceList | None = None
    min: ResourceList | None = None
    default: ResourceList | None = None
    default_request: ResourceList | None = None
    max_limit_request_ratio: ResourceList | None = None


class LimitRangeSpec(ApiStruct):
    """Spec of a limit range."""

    limits: list[LimitRangeItem] = []


class LimitRange(KubeObject):
    """Limits on requests and limits of a namespace's pods."""

    spec: LimitRangeSpec = msgspec.field(default_factory=LimitRangeSpec)


class ConfigMap(KubeObject):
    """A ConfigMap (the priority expander reads its priorities from one)."""

    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


# No future annotations: msgspec builds decoders from annotations, and would have to compile texts first.


class ObjectReference(ApiStruct, gc=False):  # has only texts, and is as frequent as events
    """A reference to any object."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    field_path: str = ""


class EventSource(ApiStruct):
    """The program, and its host, that reported an event."""

    component: str = ""
    host: str = ""


class Event(KubeObject):
    """An event about an object."""

    involved_object: ObjectReference = msgspec.field(default_factory=ObjectReference)
    source: EventSource = msgspec.field(default_factory=EventSource)
    reporting_component: str = ""
    reporting_instance: str = ""
    type: str = ""
    reason: str = ""
    message: str = ""
    count: Int32 = 0
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
