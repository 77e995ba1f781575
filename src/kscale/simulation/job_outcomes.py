"""What became of jobs: their ends, how long they took, and the work that was lost on the way."""

from __future__ import annotations

from dataclasses import dataclass, field

from kscale.effects import SECOND, Moment, VirtualTime
from kscale.objects.batch import Job, JobStatus
from kscale.objects.conditions import is_true
from kscale.objects.core import Pod
from kscale.objects.owners import controller_of, is_daemonset_pod, is_mirror_pod
from kscale.simulation.records import JobUse
from kscale.world.simulated.api_objects import ApiObjects, Changes, one_by_one
from kscale.world.simulated.pods import finished

__all__ = ["JobOutcomes"]


@dataclass(slots=True)
class _Job:
    """A job since the run began, or since it came. Times are nanoseconds; ``open``: failed pods without another one in
    their place yet."""

    key: str
    since: Moment
    status: JobStatus
    end: Moment | None = None
    is_deleted: bool = False
    restarts: int = 0
    open: int = 0
    done: int = 0
    lost: int = 0
    running: dict[str, Moment] = field(default_factory=dict)
    """By UID of a pod that runs: since when."""


class JobOutcomes:
    """Listens to jobs and pods of a world. ``interrupted`` counts pods that were lost with their node before their end,
    those of DaemonSets apart."""

    def __init__(self, api: ApiObjects, time: VirtualTime) -> None:
        self._api, self._time = api, time
        self._jobs: dict[str, _Job] = {}
        self.interrupted = 0
        for job in api.of("Job").values():
            if _outcome(job.status) not in ("complete", "failed"):
                self._jobs[job.metadata.uid] = _Job(job.key, time.now, job.status)
        self._pods(api.present("Pod"))
        api.listen("Job", one_by_one(self._job))
        api.listen("Pod", self._pods)

    def uses(self) -> list[JobUse]:
        """Return what became of each job by name, those that ended before the beginning apart."""
        return [self._use(job) for job in sorted(self._jobs.values(), key=lambda job: job.key)]

    def _use(self, job: _Job) -> JobUse:
        return JobUse(
            job=job.key,
            outcome="deleted" if job.is_deleted else _outcome(job.status),
            completed=job.status.succeeded,
            failed=job.status.failed,
            restarts=job.restarts,
            makespan=None if job.end is None else (job.end - job.since) / SECOND,
            work=job.done / SECOND,
            lost_work=job.lost / SECOND,
        )

    def _job(self, old: Job | None, new: Job | None) -> None:
        if new is None:
            if old is not None and (job := self._jobs.get(old.metadata.uid)) is not None:
                job.is_deleted = job.end is None
            return
        job = self._jobs.get(new.metadata.uid)
        if job is None:
            if old is not None:  # it had ended before the beginning
                return
            job = self._jobs[new.metadata.uid] = _Job(new.key, self._time.now, new.status)
        job.status = new.status
        if job.end is None and _outcome(new.status) in ("complete", "failed"):
            job.end = self._time.now

    def _pods(self, changes: Changes[Pod]) -> None:
        for _, old, new in changes:
            if new is None:
                assert old is not None
                self._note_interruption(old)
            if not self._jobs:
                continue
            pod = old if new is None else new
            assert pod is not None
            owner = controller_of(pod.metadata)
            if owner is None or owner.kind != "Job":
                continue
            job = self._jobs.get(owner.uid)
            if job is not None:
                self._follow(job, old, new, pod.metadata.uid)

    def _follow(self, job: _Job, old: Pod | None, new: Pod | None, uid: str) -> None:
        is_active = new is not None and _is_active(new)
        if old is None and is_active and job.open:
            job.open -= 1
            job.restarts += 1
        if is_active and new is not None and new.status.phase == "Running":
            job.running.setdefault(uid, self._time.now)
            return
        if is_active or (old is not None and not _is_active(old)):
            return
        since = job.running.pop(uid, None)
        took = 0 if since is None else self._time.now - since
        if new is not None and new.status.phase == "Succeeded":
            job.done += took
        else:
            job.lost += took
            job.open += 1

    def _note_interruption(self, pod: Pod) -> None:
        """Count a pod that is gone because its node is."""
        node = pod.spec.node_name
        if node and _is_active(pod) and self._api.find("Node", node) is None:
            self.interrupted += not (is_daemonset_pod(pod) or is_mirror_pod(pod))


def _is_active(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and not finished(pod)


def _outcome(status: JobStatus) -> str:
    for condition, outcome in (("Complete", "complete"), ("Failed", "failed"), ("Suspended", "suspended")):
        if is_true(status.conditions, condition):
            return outcome
    return "running"
