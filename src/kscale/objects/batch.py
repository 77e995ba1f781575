"""Jobs (upstream: ``k8s.io/api/batch/v1``)."""

from __future__ import annotations

import msgspec

from kscale.objects.base import ApiStruct
from kscale.objects.core import PodTemplateSpec
from kscale.objects.meta import Condition, KubeObject, LabelSelector, ObjectMeta

__all__ = ["CronJob", "CronJobSpec", "Job", "JobSpec", "JobStatus", "JobTemplateSpec"]


class JobSpec(ApiStruct):
    """``parallelism`` absent = 1; ``completions`` absent = any single success will do."""

    parallelism: int | None = None
    completions: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
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
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    ready: int | None = None


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
