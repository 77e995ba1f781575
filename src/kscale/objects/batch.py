"""Jobs (upstream: ``k8s.io/api/batch/v1``)."""

from __future__ import annotations

import msgspec

from kscale.objects.base import ApiStruct, Int32, Int64
from kscale.objects.core import PodTemplateSpec
from kscale.objects.meta import Condition, KubeObject, LabelSelector, ObjectMeta

__all__ = ["CronJob", "CronJobSpec", "Job", "JobSpec", "JobStatus", "JobTemplateSpec"]


class JobSpec(ApiStruct):
    """``parallelism`` absent = 1; ``completions`` absent = any single success will do."""

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
    """How far a job is."""

    conditions: list[Condition] = []
    start_time: str | None = None
    completion_time: str | None = None
    active: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0
    ready: Int32 | None = None


class Job(KubeObject):
    """A job."""

    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)


class JobTemplateSpec(ApiStruct):
    """What a cron job makes its jobs from."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: JobSpec = msgspec.field(default_factory=JobSpec)


class CronJobSpec(ApiStruct):
    """When, and what."""

    schedule: str = ""
    time_zone: str | None = None
    concurrency_policy: str = ""
    suspend: bool | None = None
    job_template: JobTemplateSpec = msgspec.field(default_factory=JobTemplateSpec)


class CronJob(KubeObject):
    """A cron job."""

    spec: CronJobSpec = msgspec.field(default_factory=CronJobSpec)
