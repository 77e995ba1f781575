"""Controllers of StatefulSets, DaemonSets, Jobs and custom resources with a scale (also their ``/scale`` endpoint).

Upstream: ``pkg/controller/statefulset``, ``pkg/controller/daemon``, ``pkg/controller/job``. Simulated containers do not
fail. Pods of a job that are evicted or lose their node before they finish count as failed.

The real behaviour of a custom controller is unknown. This one does what most kinds with replicas do (rollouts, clone
sets): a ReplicaSet keeps as many pods of ``spec.template`` as the object's scale requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from msgspec.structs import replace

from kscale.effects import SECOND, Moment, VirtualTime
from kscale.errors import InputError, Problem
from kscale.objects.api.apps import (
    DaemonSet,
    DaemonSetStatus,
    Job,
    JobStatus,
    ReplicaSet,
    StatefulSet,
    StatefulSetOrdinals,
    StatefulSetStatus,
)
from kscale.objects.api.autoscaling import Scale
from kscale.objects.api.core import (
    Affinity,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodTemplateSpec,
)
from kscale.objects.api.meta import Condition, KubeObject, LabelSelector, OwnerReference, object_key
from kscale.objects.conditions import find, is_true, pod_ready, with_condition
from kscale.objects.custom_workloads import CustomObject, CustomResource
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.kinds import BUILT_IN, BUILT_IN_MAPPER, RESTMapper
from kscale.objects.pod_owners import controller_of
from kscale.objects.scale import ScaleError, ScalePaths, scale_of, with_replicas
from kscale.objects.selectors import SelectorError, compile_selector
from kscale.objects.times import moment_in
from kscale.objects.workloads import claims_of, daemonset_pod, pod_count, pods_of, revision_of, should_run
from kscale.world.simulated.api_server import ApiObjects, Changes, RefusedError, one_by_one
from kscale.world.simulated.controllers import CONTROLLERS, Controller, OwnedPods, PodMaker
from kscale.world.simulated.pods import delete_pod, is_finished

__all__ = ["CustomScales", "DaemonSets", "Jobs", "StatefulSets", "controllers_of", "pod_template_problem"]

_REVISION: Final = "controller-revision-hash"


class _Revision(NamedTuple):
    """Revision of a StatefulSet's ``template``.

    Pods of this revision have the label value ``name`` or one of ``aliases`` (the labels present when the set was first
    seen). ``before`` is the previous template until all pods have this one (``currentRevision``).
    """

    template: PodTemplateSpec
    name: str
    aliases: frozenset[str]
    before: PodTemplateSpec | None = None

    def has(self, pod: Pod) -> bool:
        """Return whether a pod belongs to this revision."""
        label = (pod.metadata.labels or {}).get(_REVISION, "")
        return label == self.name or label in self.aliases


class StatefulSets(Controller):
    """Controller that keeps one pod per ordinal, with claims that outlive the pod.

    With ``OrderedReady`` the next pod is created when the previous one is ready, and the highest ordinal is deleted
    first. Pods of an old template are replaced one after another, highest ordinal first.
    """

    kind: ClassVar[str] = "StatefulSet"

    def __init__(self, api: ApiObjects, time: VirtualTime, owned: OwnedPods, maker: PodMaker) -> None:
        super().__init__(api, time, owned, rank=1)
        self._maker = maker
        self._revisions: dict[str, _Revision] = {}
        self._first: dict[str, tuple[str, frozenset[str]]] = {}
        """UID of a set -> first revision, and revision labels of the pods present before."""
        self._taken: dict[str, str] = {}
        """Key of another owner's pod whose name a set needs -> key of the set."""
        api.listen(self.kind, one_by_one(self._forget_deleted))
        api.listen("Pod", self._pods)

    def _pods(self, changes: Changes[Pod]) -> None:
        """Schedule a sync of the sets that waited for the name of a deleted pod."""
        if not self._taken:
            return
        for key, _, new in changes:
            if new is None and key in self._taken:
                self.changed(self._taken.pop(key))

    def _forget_deleted(self, old: StatefulSet | None, new: StatefulSet | None) -> None:
        """Drop the state of a deleted set."""
        if old is not None and new is None:
            self._revisions.pop(old.metadata.uid, None)
            self._first.pop(old.metadata.uid, None)

    def sync(self, stateful_set: StatefulSet) -> None:
        """Create the first missing pod, delete the last surplus pod, or replace one of an old template.

        Finished pods are deleted, too. With the policy ``Parallel``, all missing pods are created and all surplus pods
        deleted.
        """
        pods = {
            pod.name: pod
            for pod in self._owned.get_pods(stateful_set.metadata.uid).values()
            if _ordinal(pod, stateful_set) >= 0
        }
        revision = self._revision(stateful_set, pods.values())
        begin = stateful_set.spec.ordinals.start if stateful_set.spec.ordinals else 0
        replicas = pod_count(stateful_set)
        parallel = stateful_set.spec.pod_management_policy == "Parallel"
        names = {f"{stateful_set.name}-{ordinal}": ordinal - begin for ordinal in range(begin, begin + replicas)}
        blocked = False
        for name, number in names.items():
            pod = pods.get(name)
            if pod is None:
                if self._api.find("Pod", key := object_key(stateful_set.metadata.namespace, name)) is not None:
                    self._taken[key] = stateful_set.key
                else:
                    self._create_pod(
                        stateful_set, begin + number, revision.before if number < _partition(stateful_set) else None
                    )
                blocked = True
            elif is_finished(pod):
                delete_pod(self._api, pod)
                blocked = True
            elif pod.metadata.deletion_timestamp is not None or not pod_ready(pod):
                blocked = True
            if blocked and not parallel:
                break
        if parallel or not blocked:
            others = [pod for name, pod in pods.items() if name not in names]
            surplus = sorted(others, key=lambda pod: _ordinal(pod, stateful_set), reverse=True)
            for pod in surplus if parallel else surplus[:1]:
                if pod.metadata.deletion_timestamp is None:
                    delete_pod(self._api, pod)
            if parallel or not surplus:
                self._update(stateful_set, [pods.get(name) for name in names], revision)
        self._write_status(stateful_set, revision)

    def _revision(self, stateful_set: StatefulSet, pods: Iterable[Pod]) -> _Revision:
        """Return the revision of the current template.

        A changed template begins a new revision, which keeps the previous template until the rollout is complete. Pods
        present at first count as up to date.
        """
        uid, template = stateful_set.metadata.uid, stateful_set.spec.template
        revision = self._revisions.get(uid)
        if revision is None:
            labels_before = frozenset((pod.metadata.labels or {}).get(_REVISION, "") for pod in pods)
            revision = self._revisions[uid] = _Revision(template, revision_of(stateful_set), labels_before)
            self._first[uid] = revision.name, labels_before
        elif revision.template is not template:
            name, (first, labels_before) = revision_of(stateful_set), self._first[uid]
            before = revision.before or (None if name == revision.name else revision.template)
            revision = _Revision(template, name, labels_before if name == first else frozenset(), before)
            self._revisions[uid] = revision
        return revision

    def _update(self, stateful_set: StatefulSet, pods: Sequence[Pod | None], revision: _Revision) -> None:
        """Delete the last pod of an old template, once all pods with a higher ordinal are ready.

        No effect with the strategy OnDelete and on pods below the partition.

        ``pods``: the pods by ordinal (None: missing).
        """
        if stateful_set.spec.update_strategy.type == "OnDelete":
            return
        for pod in reversed(pods[_partition(stateful_set) :]):
            if pod is None or pod.metadata.deletion_timestamp is not None:
                return
            if not revision.has(pod):
                delete_pod(self._api, pod)
                return
            if not pod_ready(pod):
                return

    def _create_pod(self, stateful_set: StatefulSet, ordinal: int, template: PodTemplateSpec | None) -> None:
        """Create the pod of an ordinal, and its missing claims. ``template`` (if any) replaces the set's template."""
        spec = replace(stateful_set.spec, ordinals=StatefulSetOrdinals(start=ordinal), replicas=1)
        only = replace(stateful_set, spec=spec if template is None else replace(spec, template=template))
        for claim in claims_of(only):
            if self._api.find(claim.kind, claim.key) is None:
                self._api.create(claim)
        (pattern,) = pods_of(only, classes=self._maker.classes)
        self._maker.make(pattern, name=pattern.name)

    def _write_status(self, stateful_set: StatefulSet, revision: _Revision) -> None:
        """Write the status from the set's pods, if it differs. A complete rollout ends the previous revision."""
        pods = [pod for pod in self._owned.get_pods(stateful_set.metadata.uid).values() if not is_finished(pod)]
        ready = sum(pod.metadata.deletion_timestamp is None and pod_ready(pod) for pod in pods)
        status = StatefulSetStatus(
            observed_generation=stateful_set.metadata.generation or 0,
            replicas=len(pods),
            ready_replicas=ready,
            current_replicas=len(pods),
            updated_replicas=sum(map(revision.has, pods)),
            available_replicas=ready,
        )
        replicas = pod_count(stateful_set)
        is_complete = (
            stateful_set.spec.update_strategy.type != "OnDelete" and status.updated_replicas == replicas == ready
        )
        if revision.before is not None and is_complete:
            self._revisions[stateful_set.metadata.uid] = revision._replace(before=None)
        if status != stateful_set.status:
            self._api.put(replace(stateful_set, status=status))


def _ordinal(pod: Pod, stateful_set: StatefulSet) -> int:
    """Return the ordinal of a pod, or -1 if its name has none (``getOrdinal``)."""
    name, _, number = pod.name.rpartition("-")
    return int(number) if name == stateful_set.name and number.isascii() and number.isdigit() else -1


def _partition(stateful_set: StatefulSet) -> int:
    """Return the ordinal offset below which pods keep the old template (``rollingUpdate.partition``)."""
    rolling = stateful_set.spec.update_strategy.rolling_update
    return (rolling.partition or 0) if rolling is not None else 0


class DaemonSets(Controller):
    """Controller that keeps one pod on each node that a DaemonSet selects."""

    kind: ClassVar[str] = "DaemonSet"

    def __init__(self, api: ApiObjects, time: VirtualTime, owned: OwnedPods, maker: PodMaker) -> None:
        super().__init__(api, time, owned, rank=1)
        self._maker = maker
        api.listen("Node", one_by_one(self._node))

    def _node(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """Schedule a sync of all DaemonSets if a node is added, removed, or has another spec or other labels."""
        before, after = ((node.spec, node.metadata.labels) if isinstance(node, Node) else None for node in (old, new))
        if before != after:
            for key in self._api.get_all(self.kind):
                self.changed(key)

    def sync(self, daemon_set: DaemonSet) -> None:
        """Create missing pods, delete finished pods and pods of removed or unselected nodes, and update the status."""
        pods = list(self._owned.get_pods(daemon_set.metadata.uid).values())
        pods_by_node: dict[str, Pod] = {}
        selected = {node.name for node in self._api.get_all("Node").values() if should_run(daemon_set, node)}
        for pod in pods:
            node = pod.spec.node_name or _target(pod)
            if node not in selected or is_finished(pod):
                if pod.metadata.deletion_timestamp is None:
                    delete_pod(self._api, pod)
            else:
                pods_by_node[node] = pod
        missing = [node for node in self._api.get_all("Node") if node in selected and node not in pods_by_node]
        if missing:
            pattern = daemonset_pod(daemon_set, classes=self._maker.classes)
            for node in missing:
                self._maker.make(_pin_to_node(pattern, node), generate_name=f"{daemon_set.name}-")
        self._write_status(daemon_set, selected)

    def _write_status(self, daemon_set: DaemonSet, wanted: set[str]) -> None:
        """Write the status, if it differs. ``wanted``: names of the selected nodes."""
        pods = list(self._owned.get_pods(daemon_set.metadata.uid).values())
        ready = sum(map(pod_ready, pods))
        status = DaemonSetStatus(
            current_number_scheduled=len(pods),
            desired_number_scheduled=len(wanted),
            number_available=ready,
            number_ready=ready,
            number_unavailable=max(len(wanted) - ready, 0),
            updated_number_scheduled=len(pods),
            observed_generation=daemon_set.metadata.generation or 0,
        )
        if status != daemon_set.status:
            self._api.put(replace(daemon_set, status=status))


def _pin_to_node(pod: Pod, node: str) -> Pod:
    """Return the pod with a node affinity to one node (``ReplaceDaemonSetPodNodeNameNodeAffinity``)."""
    term = NodeSelectorTerm(match_fields=[NodeSelectorRequirement(key="metadata.name", operator="In", values=[node])])
    affinity = pod.spec.affinity or Affinity()
    of_nodes = replace(affinity.node_affinity or NodeAffinity(), required=NodeSelector(node_selector_terms=[term]))
    return replace(pod, spec=replace(pod.spec, affinity=replace(affinity, node_affinity=of_nodes)))


def _target(pod: Pod) -> str:
    """Return the node that a DaemonSet pod is pinned to; empty if there is none."""
    affinity: Any = pod.spec.affinity and pod.spec.affinity.node_affinity
    for term in affinity.required.node_selector_terms if affinity and affinity.required else ():
        for expression in term.match_fields:
            if expression.key == "metadata.name" and expression.values:
                return str(expression.values[0])
    return ""


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
        """Count unfinished pods that somebody other than this controller deletes, or that disappear, as failed."""
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
        """Create missing pods, delete surplus ones, count successes and failures, and write the status.

        Succeeded pods are removed when they are counted. Sets the Complete or Failed condition when the job ends;
        nothing happens to a job that has one.
        """
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
        """Return the status with the Suspended condition. A resumed job's start time is set to now.

        The status of a job that was never suspended is returned as it is.
        """
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
        """Schedule a sync for the job's deadline. No effect without a deadline, or while the job is suspended."""
        limit, uid = job.spec.active_deadline_seconds, job.metadata.uid
        if limit is None or job.spec.suspend or status.start_time is None:
            return
        due = moment_in(job, status.start_time, "status.startTime") + limit * SECOND
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
        started = None if since is None else moment_in(job, since, "status.startTime")
        if limit is not None and started is not None and self._time.now - started >= limit * SECOND:
            return self._build_failed_condition("DeadlineExceeded", "Job was active longer than specified deadline")
        now_text = self._api.now_text
        return Condition(type="Complete", status="True", last_transition_time=now_text) if enough else None

    def _build_failed_condition(self, reason: str, message: str) -> Condition:
        """Build the Failed condition with the current time."""
        now_text = self._api.now_text
        return Condition(type="Failed", status="True", reason=reason, message=message, last_transition_time=now_text)

    def _count_wanted(self, job: Job, succeeded: int, active: list[Pod]) -> int:
        """Return how many active pods the job should have, after ``succeeded`` pods have succeeded.

        Without ``completions``, the job keeps its ``active`` pods after the first success, and gets no new ones.
        """
        desired = 1 if job.spec.parallelism is None else job.spec.parallelism
        if job.spec.completions is not None:
            return min(desired, job.spec.completions - succeeded)
        return len(active) if succeeded else desired


class CustomScales:
    """Scales of custom kinds, as an API server serves them."""

    def __init__(self, api: ApiObjects, resources: Sequence[CustomResource]) -> None:
        self._api = api
        self._of = {custom.resource.group_resource: custom for custom in reversed(resources)}
        served = (custom.resource for custom in resources)
        self.mapper = RESTMapper([*BUILT_IN, *served]) if resources else BUILT_IN_MAPPER

    def has_scale(self, resource: str) -> bool:
        """Return whether a group-resource (``crontabs.stable.example.com``) is custom and has a scale."""
        return resource in self._of

    def get(self, namespace: str, resource: str, name: str) -> Scale:
        """Return the scale of an object. ``resource`` must be custom (:meth:`has_scale`).

        Raises RefusedError if there is no such object, ScaleError if its scale cannot be read.
        """
        custom = self._of[resource]
        return scale_of(to_dict(self._api.get(custom.kind, namespace, name)), custom.paths)

    def put(self, namespace: str, resource: str, scale: Scale, replicas: int) -> Scale:
        """Write the replicas of an object through its scale, and return the new scale.

        ``resource`` must be custom (:meth:`has_scale`).

        Raises RefusedError if there is no such object or it was changed since ``scale`` was read, ScaleError if its
        scale cannot be written.
        """
        custom = self._of[resource]
        stored = self._api.get(custom.kind, namespace, scale.metadata.name)
        try:
            written = with_replicas(to_dict(stored), scale, replicas, custom.paths)
        except ScaleError as error:
            if error.conflict:
                raise RefusedError(str(error), 409, "Conflict") from None
            raise
        put = self._api.put(from_dict(written, CustomObject))
        return scale_of(to_dict(put), custom.paths)


def pod_template_problem(owner: CustomObject) -> str:
    """Return why no pods can be created for an object; empty if they can."""
    template = owner.spec.get("template")
    if not isinstance(template, dict):
        return "it has no spec.template that says what its pods are"
    try:
        _replica_set(owner, 0)
    except InputError as error:
        return str(error)
    return ""


def controllers_of(
    resources: Iterable[CustomResource], api: ApiObjects, time: VirtualTime, owned: OwnedPods
) -> list[Controller]:
    """Return a controller for each custom kind, which manages the pods of its objects.

    If several resources have the same kind, the first one counts.
    """
    first_of_kind: dict[str, CustomResource] = {}
    for custom in resources:
        first_of_kind.setdefault(custom.kind, custom)
    return [
        type(f"{kind}Controller", (_CustomController,), {"kind": kind})(api, time, owned, custom.paths)
        for kind, custom in first_of_kind.items()
    ]


class _CustomController(Controller):
    kind: ClassVar[str] = ""

    def __init__(self, api: ApiObjects, time: VirtualTime, owned: OwnedPods, paths: ScalePaths) -> None:
        self._paths = paths
        super().__init__(api, time, owned, rank=0)
        api.listen("ReplicaSet", one_by_one(self._replica_set_changed))

    def _replica_set_changed(self, old: Any, new: Any) -> None:
        """Note that the custom object that owns a changed ReplicaSet has to be synchronized."""
        metadata = (old if new is None else new).metadata
        owner = controller_of(metadata)
        if owner is not None and owner.kind == self.kind:
            self.changed(f"{metadata.namespace}/{owner.name}")

    def sync(self, custom_object: CustomObject) -> None:
        """Create or resize the object's ReplicaSet, and copy the ReplicaSet's counts to the object's status.

        No effect if the object has no valid pod template, or its replicas cannot be read.
        """
        if pod_template_problem(custom_object):
            return
        try:
            replicas = scale_of(to_dict(custom_object), self._paths).spec.replicas
        except ScaleError:  # the object has no replicas, as on a real API server
            return
        desired = _replica_set(custom_object, replicas)
        replica_set: ReplicaSet | None = self._api.find("ReplicaSet", desired.key)
        if replica_set is None:
            replica_set = self._api.create(desired)
        elif replica_set.spec.replicas != replicas or to_dict(replica_set.spec.template) != to_dict(
            desired.spec.template
        ):
            replica_set = self._api.put(
                replace(replica_set, spec=replace(replica_set.spec, replicas=replicas, template=desired.spec.template))
            )
        assert replica_set.spec.selector is not None
        status = _set_status_value(custom_object.status, self._paths.status_replicas, replica_set.status.replicas)
        if self._paths.label_selector:
            status = _set_status_value(
                status, self._paths.label_selector, str(compile_selector(replica_set.spec.selector))
            )
        if status != custom_object.status:
            self._api.put_status(custom_object, status)


def _set_status_value(status: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of a status with a value set at a path below ``.status``.

    For any other path, the status is returned.
    """
    first, *parts = path.strip(".").split(".")
    if first != "status" or not parts:
        return status
    out = here = dict(status)
    for part in parts[:-1]:
        below = here.get(part)
        here[part] = here = dict(below) if isinstance(below, dict) else {}
    here[parts[-1]] = value
    return out


def _replica_set(custom_object: CustomObject, replicas: int) -> ReplicaSet:
    """Return the ReplicaSet for an object's pods. Raises InputError for an invalid template or selector."""
    metadata = custom_object.metadata
    template = custom_object.spec["template"]
    own_metadata = template.get("metadata")
    labels = (own_metadata.get("labels") or {}) if isinstance(own_metadata, dict) else {}
    selector = custom_object.spec.get("selector")
    if not isinstance(selector, dict):
        selector = {"matchLabels": labels}
    elif not selector.keys() <= {"matchLabels", "matchExpressions"}:
        selector = {"matchLabels": selector}  # a plain map of labels
    replica_set = from_dict(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": metadata.name, "namespace": metadata.namespace, "labels": labels},
            "spec": {"replicas": replicas, "template": template, "selector": selector},
        },
        ReplicaSet,
    )
    owner = OwnerReference(
        api_version=custom_object.api_version,
        kind=custom_object.kind,
        name=metadata.name,
        uid=metadata.uid,
        controller=True,
    )
    try:
        compile_selector(from_dict(selector, LabelSelector))
    except SelectorError as error:
        raise InputError(Problem(str(error), field="spec.selector")) from None
    return replace(replica_set, metadata=replace(replica_set.metadata, owner_references=[owner]))
