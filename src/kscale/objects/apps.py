"""Controllers of the apps group (upstream: ``k8s.io/api/apps/v1``; the older versions have the same shape)."""

from __future__ import annotations

import msgspec

from kscale.objects.base import ApiStruct
from kscale.objects.core import PodTemplateSpec
from kscale.objects.meta import Condition, KubeObject, LabelSelector, ObjectMeta
from kscale.objects.volumes import PersistentVolumeClaimSpec

__all__ = [
    "DaemonSet",
    "DaemonSetSpec",
    "DaemonSetStatus",
    "Deployment",
    "DeploymentSpec",
    "DeploymentStatus",
    "ReplicaSet",
    "ReplicaSetSpec",
    "ReplicaSetStatus",
    "StatefulSet",
    "StatefulSetOrdinals",
    "StatefulSetSpec",
    "StatefulSetStatus",
    "VolumeClaimTemplate",
]


class DeploymentSpec(ApiStruct):
    """``replicas`` absent = 1."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)
    min_ready_seconds: int = 0
    paused: bool = False


class DeploymentStatus(ApiStruct):
    """What a deployment has."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    conditions: list[Condition] = []


class Deployment(KubeObject):
    """A deployment; its pods belong to a replica set of its own."""

    spec: DeploymentSpec = msgspec.field(default_factory=DeploymentSpec)
    status: DeploymentStatus = msgspec.field(default_factory=DeploymentStatus)


class ReplicaSetSpec(ApiStruct):
    """``replicas`` absent = 1."""

    replicas: int | None = None
    min_ready_seconds: int = 0
    selector: LabelSelector | None = None
    template: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)


class ReplicaSetStatus(ApiStruct):
    """What a replica set has."""

    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    observed_generation: int = 0


class ReplicaSet(KubeObject):
    """A replica set."""

    spec: ReplicaSetSpec = msgspec.field(default_factory=ReplicaSetSpec)
    status: ReplicaSetStatus = msgspec.field(default_factory=ReplicaSetStatus)


class StatefulSetOrdinals(ApiStruct):
    """The number of the first pod."""

    start: int = 0


class VolumeClaimTemplate(ApiStruct):
    """A claim that every pod of a stateful set gets."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PersistentVolumeClaimSpec = msgspec.field(default_factory=PersistentVolumeClaimSpec)


class StatefulSetSpec(ApiStruct):
    """``replicas`` absent = 1."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)
    volume_claim_templates: list[VolumeClaimTemplate] = []
    service_name: str = ""
    pod_management_policy: str = ""
    min_ready_seconds: int = 0
    ordinals: StatefulSetOrdinals | None = None


class StatefulSetStatus(ApiStruct):
    """What a stateful set has."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    current_replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0


class StatefulSet(KubeObject):
    """A stateful set."""

    spec: StatefulSetSpec = msgspec.field(default_factory=StatefulSetSpec)
    status: StatefulSetStatus = msgspec.field(default_factory=StatefulSetStatus)


class DaemonSetSpec(ApiStruct):
    """One pod for each suitable node."""

    selector: LabelSelector | None = None
    template: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)
    min_ready_seconds: int = 0


class DaemonSetStatus(ApiStruct):
    """What a daemon set has."""

    current_number_scheduled: int = 0
    desired_number_scheduled: int = 0
    number_available: int = 0
    number_misscheduled: int = 0
    number_ready: int = 0
    number_unavailable: int = 0
    updated_number_scheduled: int = 0
    observed_generation: int = 0


class DaemonSet(KubeObject):
    """A daemon set."""

    spec: DaemonSetSpec = msgspec.field(default_factory=DaemonSetSpec)
    status: DaemonSetStatus = msgspec.field(default_factory=DaemonSetStatus)
