"""Deployments, ReplicaSets, StatefulSets and DaemonSets, Jobs and CronJobs (upstream: ``k8s.io/api/apps/v1``,
``batch/v1``).
"""

import msgspec

from kscale.objects.api.core import PodTemplateSpec
from kscale.objects.api.meta import ApiStruct, Condition, Int32, Int64, KubeObject, LabelSelector, ObjectMeta
from kscale.objects.api.volumes import PersistentVolumeClaimSpec

__all__ = [
    "CronJob",
    "CronJobSpec",
    "DaemonSet",
    "DaemonSetSpec",
    "DaemonSetStatus",
    "Deployment",
    "DeploymentSpec",
    "DeploymentStatus",
    "DeploymentStrategy",
    "Job",
    "JobSpec",
    "JobStatus",
    "JobTemplateSpec",
    "ReplicaSet",
    "ReplicaSetSpec",
    "ReplicaSetStatus",
    "RollingUpdateDeployment",
    "RollingUpdateStatefulSet",
    "StatefulSet",
    "StatefulSetOrdinals",
    "StatefulSetSpec",
    "StatefulSetStatus",
    "StatefulSetUpdateStrategy",
    "VolumeClaimTemplate",
]


class RollingUpdateDeployment(ApiStruct):
    """Maximum number of unavailable and of additional pods during an update. Default: a quarter."""

    max_unavailable: int | str | None = None
    max_surge: int | str | None = None


class DeploymentStrategy(ApiStruct):
    """Update strategy. ``type`` is ``RollingUpdate`` (also if empty) or ``Recreate``."""

    type: str = ""
    rolling_update: RollingUpdateDeployment | None = None


class DeploymentSpec(ApiStruct):
    """Spec of a Deployment. ``replicas`` defaults to 1."""

    replicas: Int32 | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)
    strategy: DeploymentStrategy = msgspec.field(default_factory=DeploymentStrategy)
    min_ready_seconds: Int32 = 0
    revision_history_limit: Int32 | None = None
    paused: bool = False


class DeploymentStatus(ApiStruct):
    """Status of a Deployment."""

    observed_generation: Int64 = 0
    replicas: Int32 = 0
    updated_replicas: Int32 = 0
    ready_replicas: Int32 = 0
    available_replicas: Int32 = 0
    unavailable_replicas: Int32 = 0
    conditions: list[Condition] = []


class Deployment(KubeObject):
    """A Deployment, whose pods belong to its current ReplicaSet."""

    spec: DeploymentSpec = msgspec.field(default_factory=DeploymentSpec)
    status: DeploymentStatus = msgspec.field(default_factory=DeploymentStatus)


class ReplicaSetSpec(ApiStruct):
    """Spec of a ReplicaSet. ``replicas`` defaults to 1."""

    replicas: Int32 | None = None
    min_ready_seconds: Int32 = 0
    selector: LabelSelector | None = None
    template: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)


class ReplicaSetStatus(ApiStruct):
    """Status of a ReplicaSet."""

    replicas: Int32 = 0
    fully_labeled_replicas: Int32 = 0
    ready_replicas: Int32 = 0
    available_replicas: Int32 = 0
    observed_generation: Int64 = 0


class ReplicaSet(KubeObject):
    """A ReplicaSet."""

    spec: ReplicaSetSpec = msgspec.field(default_factory=ReplicaSetSpec)
    status: ReplicaSetStatus = msgspec.field(default_factory=ReplicaSetStatus)


class StatefulSetOrdinals(ApiStruct):
    """The number of the first pod."""

    start: Int32 = 0


class VolumeClaimTemplate(ApiStruct):
    """A template of the claims of a StatefulSet's pods."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PersistentVolumeClaimSpec = msgspec.field(default_factory=PersistentVolumeClaimSpec)


class RollingUpdateStatefulSet(ApiStruct):
    """Rolling update of a StatefulSet. Pods with a number below ``partition`` keep their template."""

    partition: Int32 | None = None


class StatefulSetUpdateStrategy(ApiStruct):
    """Update strategy. ``type`` is ``RollingUpdate`` (also if empty) or ``OnDelete``."""

    type: str = ""
    rolling_update: RollingUpdateStatefulSet | None = None


class StatefulSetSpec(ApiStruct):
    """Spec of a StatefulSet. ``replicas`` defaults to 1."""

    replicas: Int32 | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)
    volume_claim_templates: list[VolumeClaimTemplate] = []
    service_name: str = ""
    pod_management_policy: str = ""
    update_strategy: StatefulSetUpdateStrategy = msgspec.field(default_factory=StatefulSetUpdateStrategy)
    min_ready_seconds: Int32 = 0
    ordinals: StatefulSetOrdinals | None = None


class StatefulSetStatus(ApiStruct):
    """Status of a StatefulSet."""

    observed_generation: Int64 = 0
    replicas: Int32 = 0
    ready_replicas: Int32 = 0
    current_replicas: Int32 = 0
    updated_replicas: Int32 = 0
    available_replicas: Int32 = 0


class StatefulSet(KubeObject):
    """A StatefulSet."""

    spec: StatefulSetSpec = msgspec.field(default_factory=StatefulSetSpec)
    status: StatefulSetStatus = msgspec.field(default_factory=StatefulSetStatus)


class DaemonSetSpec(ApiStruct):
    """Spec of a DaemonSet, which has one pod on each suitable node."""

    selector: LabelSelector | None = None
    template: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)
    min_ready_seconds: Int32 = 0


class DaemonSetStatus(ApiStruct):
    """Status of a DaemonSet."""

    current_number_scheduled: Int32 = 0
    desired_number_scheduled: Int32 = 0
    number_available: Int32 = 0
    number_misscheduled: Int32 = 0
    number_ready: Int32 = 0
    number_unavailable: Int32 = 0
    updated_number_scheduled: Int32 = 0
    observed_generation: Int64 = 0


class DaemonSet(KubeObject):
    """A DaemonSet."""

    spec: DaemonSetSpec = msgspec.field(default_factory=DaemonSetSpec)
    status: DaemonSetStatus = msgspec.field(default_factory=DaemonSetStatus)


class JobSpec(ApiStruct):
    """Spec of a Job. ``parallelism`` defaults to 1; without ``completions``, a single success completes the Job."""

    parallelism: Int32 | None = None
    completions: Int32 | None = None
    active_deadline_seconds: Int64 | None = None
    backoff_limit: Int32 | None = None
    selector: LabelSelector | None = None
    manual_selector: bool | None = None
    template: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)
    completion_mode: str | None = None
    suspend: bool | None = None


class JobStatus(ApiStruct):
    """Status of a Job."""

    conditions: list[Condition] = []
    start_time: str | None = None
    completion_time: str | None = None
    active: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0
    ready: Int32 | None = None


class Job(KubeObject):
    """A Job."""

    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)


class JobTemplateSpec(ApiStruct):
    """Template of the jobs of a CronJob."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: JobSpec = msgspec.field(default_factory=JobSpec)


class CronJobSpec(ApiStruct):
    """Spec of a CronJob, with its schedule and the jobs' template."""

    schedule: str = ""
    time_zone: str | None = None
    concurrency_policy: str = ""
    suspend: bool | None = None
    job_template: JobTemplateSpec = msgspec.field(default_factory=JobTemplateSpec)


class CronJob(KubeObject):
    """A CronJob."""

    spec: CronJobSpec = msgspec.field(default_factory=CronJobSpec)
