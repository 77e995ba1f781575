"""Controller of Jobs.

Upstream: ``pkg/controller/job``. Simulated containers do not fail. Pods that are evicted or lose their node before
they finish count as failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from msgspec.structs import replace

from kscale.effects import SECOND, Moment, VirtualTime, from_text
from kscale.objects.api.apps import Job, JobStatus
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import Condition, object_key
from kscale.objects.conditions import find, is_true, pod_ready, with_condition
from kscale.objects.pod_owners import controller_of
from kscale.world.simulated.api_server import ApiObjects, Changes, one_by_one
from kscale.world.simulated.controllers import CONTROLLERS, Controller, OwnedPods, PodMaker
from kscale.world.simulated.pods import delete_pod, is_finished

__all__ = ["Jobs"]

_RANK: Final = 1
_LIMIT: Final = 6
"""Default of ``backoffLimit``: number of failures that a job tolerates."""
_FIRST_DELAY: Final = 10 * SECOND
_LONGEST_DELAY: Final = 600 * SECOND


@dataclass(slots=True)
class _Failures:
    """Failures of a job.

    ``new``: failures not yet in its status. ``row``: failures since the last success. ``last``: time of the last
    failure.
    """

    new: int = 0
    row: int = 0
    last: Moment = 0

    def delay(self) -> int:
        """Return the nanoseconds before a failed pod is replaced; they double with each failure in a row.

        Returns 0 if no pod has failed since the last success.
        """
        return min(_FIRST_DELAY << min(self.row - 1, 10), _LONGEST_DELAY) if self.row else 0


class Jobs(Controller):
    """Controller that runs pods until a job has enough successes, too many failures, or reaches its deadline."""

    kind: ClassVar[str] = "Job"

    def __init__(self, api: ApiObjects, time: VirtualTime, owned: OwnedPods, maker: PodMaker) -> None:
        super().__init__(api, time, owned, rank=_RANK)
        self._maker = maker
        self._failures: dict[str, _Failures] = {}
        self._dismissed: set[str] = set()
        """UIDs of pods that the controller deletes itself; they do not count as failed."""
        self._deadlines: dict[str, Moment] = {}
        """Job UID -> time of the sync that is scheduled for its deadline."""
        api.listen("Pod", self._pods)
        api.listen(self.kind, one_by_one(self._forget_deleted))

    def _pods(self, changes: Changes[Pod]) -> None:
        """Count pods that were evicted or lost as failed."""
        if not self._dismissed and not self._api.get_all(self.kind):
            return
        for _, old, new in changes:
            if old is None or (new is not None and new.metadata.deletion_timestamp is None):
                continue  # the pod is new or still running
            uid = old.metadata.uid
            if old.metadata.deletion_timestamp is None and not is_finished(old) and uid not in self._dismissed:
                self._fail(old)
            if new is None:
                self._dismissed.discard(uid)

    def _fail(self, pod: Pod) -> None:
        """Count a failure of a pod's job."""
        owner = controller_of(pod.metadata)
        if owner is None or owner.kind != self.kind:
            return
        job = self._api.find(self.kind, object_key(pod.metadata.namespace, owner.name))
        if job is not None and job.metadata.uid == owner.uid:
            failures = self._failures.setdefault(owner.uid, _Failures())
            failures.new, failures.row, failures.last = failures.new + 1, failures.row + 1, self._time.now

    def _forget_deleted(self, old: Job | None, new: Job | None) -> None:
        """Drop the state of a deleted job."""
        if old is not None and new is None:
            self._failures.pop(old.metadata.uid, None)
            self._deadlines.pop(old.metadata.uid, None)

    def sync(self, job: Job) -> None:
        """Create missing pods, count successes and failures, and set the Complete or Failed condition."""
        status = job.status
        if is_true(status.conditions, "Complete") or is_true(status.conditions, "Failed"):
            return
        failures = self._failures.get(job.metadata.uid, _Failures())
        pods = list(self._owned.get_pods(job.metadata.uid).values())
        succeeded = status.succeeded
        for pod in pods:
            if pod.status.phase == "Succeeded":  # counted once: the pod is removed after it is counted
                succeeded += 1
                failures.row = 0
                self._api.remove(pod)
        active = [pod for pod in pods if not is_finished(pod) and pod.metadata.deletion_timestamp is None]
        failed, failures.new = status.failed + failures.new, 0
        started = status.start_time or (None if job.spec.suspend else self._api.now_text)
        status = replace(status, succeeded=succeeded, failed=failed, start_time=started)
        end = self._build_end_condition(job, status, active)
        if end is None:
            status = self._with_suspension(job, status)
            self._await_deadline(job, status)
        elif end.type == "Failed":  # all unfinished pods count as failed
            status = replace(status, failed=failed + len(active))
        desired = 0 if end is not None or job.spec.suspend else self._count_wanted(job, succeeded, active)
        for pod in active[desired:]:
            self._dismissed.add(pod.metadata.uid)
            delete_pod(self._api, pod)
        if desired > len(active):
            wait = failures.last + failures.delay() - self._time.now
            if wait > 0:
                self._schedule_sync(job.key, wait)
                desired = len(active)
            else:
                pattern = self._maker.pattern(job)
                self._maker.make_more(pattern, desired - len(active), generate_name=f"{job.name}-")
        if end is not None:
            now = self._api.now_text
            completed = now if end.type == "Complete" else None
            status = replace(status, conditions=[*status.conditions, end], completion_time=completed)
        new = replace(status, active=desired, ready=sum(map(pod_ready, active[:desired])))
        if new != job.status:
            self._api.put(replace(job, status=new))

    def _with_suspension(self, job: Job, status: JobStatus) -> JobStatus:
        """Return the status with the Suspended condition. A resumed job's start time is reset."""
        now_text = self._api.now_text
        if job.spec.suspend:
            text, reason, message = "True", "JobSuspended", "Job suspended"
        elif find(status.conditions, "Suspended") is not None:
            text, reason, message = "False", "JobResumed", "Job resumed"
        else:
            return status
        new = Condition(type="Suspended", status=text, reason=reason, message=message, last_transition_time=now_text)
        conditions = with_condition(status.conditions, new)
        goes_on = not job.spec.suspend and conditions is not status.conditions
        return replace(status, conditions=conditions, start_time=now_text if goes_on else status.start_time)

    def _await_deadline(self, job: Job, status: JobStatus) -> None:
        """Schedule a sync for the job's deadline."""
        limit, uid = job.spec.active_deadline_seconds, job.metadata.uid
        if limit is None or job.spec.suspend or status.start_time is None:
            return
        due = from_text(status.start_time) + limit * SECOND
        if self._deadlines.get(uid) != due:
            self._deadlines[uid] = due
            self._schedule_sync(job.key, due - self._time.now)

    def _schedule_sync(self, key: str, after: int) -> None:
        """Schedule a sync of a job in ``after`` nanoseconds."""
        self._time.at(self._time.now + after, lambda: self.changed(key), rank=CONTROLLERS + _RANK)

    def _build_end_condition(self, job: Job, status: JobStatus, active: list[Pod]) -> Condition | None:
        """Return the Complete or Failed condition if the job ends now, else None."""
        spec, succeeded = job.spec, status.succeeded
        # Without completions, no pod is created after the first success, and running pods finish.
        enough = succeeded >= spec.completions if spec.completions is not None else succeeded > 0 and not active
        if status.failed > (_LIMIT if spec.backoff_limit is None else spec.backoff_limit):
            return self._build_failed_condition("BackoffLimitExceeded", "Job has reached the specified backoff limit")
        limit = spec.active_deadline_seconds
        since = None if limit is None or spec.suspend else status.start_time
        if limit is not None and since is not None and self._time.now - from_text(since) >= limit * SECOND:
            return self._build_failed_condition("DeadlineExceeded", "Job was active longer than specified deadline")
        now_text = self._api.now_text
        return Condition(type="Complete", status="True", last_transition_time=now_text) if enough else None

    def _build_failed_condition(self, reason: str, message: str) -> Condition:
        """Build the Failed condition with the current time."""
        now_text = self._api.now_text
        return Condition(type="Failed", status="True", reason=reason, message=message, last_transition_time=now_text)

    def _count_wanted(self, job: Job, succeeded: int, active: list[Pod]) -> int:
        """Return how many pods the job should have."""
        desired = 1 if job.spec.parallelism is None else job.spec.parallelism
        if job.spec.completions is not None:
            return min(desired, job.spec.completions - succeeded)
        return len(active) if succeeded else desired
