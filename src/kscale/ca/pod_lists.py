"""Lists of placed, pending and excluded pods, their processing before a scale-up, and whether a loop scales up at all.

Upstream: ``utils/kubernetes/listers.go``, ``core/utils/expendable.go``, ``utils/tpu``, ``core/podlistprocessor``,
``processors/podinjection``, and ``shouldScaleUp`` in ``core/static_autoscaler.go``.

With ``--enable-graceful-degradation`` a loop considers pending pods only for ``--pending-pods-batching-timeout``.
Loops in a row that ran out of time are counted in :class:`~kscale.ca.loop_state.ScaleUpState`. Meanwhile one loop
of four is reserved for scale-down. :func:`kscale.ca.filter_out_schedulable` finds the pods that fit on existing nodes.

Upstream looks up the back-off of controllers whose fake pods stay unschedulable under another key than it stores it,
so it never has an effect; it is omitted here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from datetime import timedelta
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kscale._native import _names
from kscale.ca.gpu import pod_requests_gpu
from kscale.ca.options import AutoscalingOptions
from kscale.effects import SECOND, Event, Moment
from kscale.effects.moments import ComparedDuration
from kscale.objects.api.apps import Job, ReplicaSet, StatefulSet
from kscale.objects.api.core import Container, Pod
from kscale.objects.api.meta import KubeObject
from kscale.objects.argument_types import typed
from kscale.objects.conditions import find
from kscale.objects.names import go_quote
from kscale.objects.pod_owners import (
    CONSUME_PROVISIONING_REQUEST,
    DEPRECATED_CONSUME_PROVISIONING_REQUEST,
    SCALE_UP_DELAY,
    controller_of,
    is_daemonset_pod,
    is_mirror_pod,
    is_static_pod,
    pod_annotation,
)
from kscale.objects.times import created_at, format_duration, parse_duration
from kscale.objects.workloads import derived_uid
from kscale.scheduling.coercion import priorities_of
from kscale.scheduling.place import place as filter_out_schedulable
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.pods.rows import PodRows, take_records
from kscale.snapshot.snapshot import Snapshot, without_placed_by

__all__ = [
    "CONSUME_ANNOTATIONS",
    "TPU_RESOURCE_PREFIX",
    "DrainedPodsResult",
    "PendingPodList",
    "PodAgeResult",
    "PodLists",
    "ScaleUpEnforcer",
    "ScaleUpGate",
    "add_drained_pods",
    "are_all_pods_new",
    "build_missing_pods",
    "can_scale_down",
    "clear_tpu_requests",
    "drop_expendable_pods",
    "drop_uncounted_pods",
    "enforce_injection_limit",
    "filter_out_daemon_set_pods",
    "filter_out_expendable_pods",
    "filter_out_schedulable",
    "filter_out_young_pods",
    "find_daemon_set_pods",
    "find_excluded_placed_pods",
    "find_expendable_placed_pods",
    "find_old_pods",
    "find_unscheduled_pods",
    "get_desired_pod_count",
    "get_max_looks",
    "has_provisioning_request_consumer",
    "has_tpu_requests",
    "is_expendable",
    "is_recreatable",
    "is_reserved_for_scale_down",
    "is_scheduling_gated",
    "should_scale_up",
    "split_pods",
    "update_degradation_counter",
]

TPU_RESOURCE_PREFIX: Final = "cloud-tpus.google.com/"


def clear_tpu_requests(pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods; those whose containers request TPUs are replaced by copies without these requests.

    Limits and init containers stay unchanged.
    """
    return [_clear_pod(pod) if any(map(_requests_tpu, pod.spec.containers)) else pod for pod in pods]


def has_tpu_requests(pods: PendingPodList) -> bool:
    """Check whether a container of any of the pods requests TPUs (:func:`clear_tpu_requests`)."""
    return bool(
        pods.evaluate_kinds("pods that request TPUs", lambda pod: any(map(_requests_tpu, pod.spec.containers))).any()
    )


def _requests_tpu(container: Container) -> bool:
    """Check whether a container requests TPUs."""
    return any(name.startswith(TPU_RESOURCE_PREFIX) for name in container.resources.requests or ())


def _clear_pod(pod: Pod) -> Pod:
    """Return a copy of the pod whose containers request no TPUs."""
    containers = [
        _clear_container(container) if _requests_tpu(container) else container for container in pod.spec.containers
    ]
    return replace(pod, spec=replace(pod.spec, containers=containers))


def _clear_container(container: Container) -> Container:
    """Return a copy of the container that requests no TPUs."""
    requests = container.resources.requests or {}
    retained = {name: amount for name, amount in requests.items() if not name.startswith(TPU_RESOURCE_PREFIX)}
    return replace(container, resources=replace(container.resources, requests=retained))


_PENDING_POD_KINDS_KEY: Final = "kinds of waiting pods"
_MAX_UNUSED_KINDS: Final = 1 << 10  # kinds without pods


_KIND_ANSWERS_KEY: Final = "facts about kinds of waiting pods"


class PendingPodList(msgspec.Struct, eq=False):
    """Pods in order, with one example per kind.

    ``kind``: int32[n], indices into ``examples``. Pods of one kind are equal in all that the pod list rules read,
    including requests and creation time. An example may be of an earlier loop.

    ``cached``: numbers of the kinds, int64[examples], and what was computed of these kinds before: by name, int32 by
    number, -1 = not computed. None for pods that are in no snapshot.
    """

    records: Sequence[PodRecord]
    kind: NDArray[np.int32]
    examples: Sequence[Pod]
    cached: tuple[NDArray[np.int64], dict[str, NDArray[np.int32]]] | None = None

    def __len__(self) -> int:
        return len(self.records)

    @classmethod
    def of(cls, records: Sequence[PodRecord]) -> PendingPodList:
        """Build the list. Kinds of a snapshot's pending pods are cached; other pods are each of their own kind."""
        if not isinstance(records, PodRows) or not records.pending:
            return cls(records, np.arange(len(records), dtype=np.int32), [record.pod for record in records])
        memo = records.table.memo
        with memo.lock:
            stamps, numbers, known = (
                records.stamps,
                memo.get_numbers(_PENDING_POD_KINDS_KEY),
                memo.values(_PENDING_POD_KINDS_KEY),
            )
            missing = np.flatnonzero(numbers[stamps] == 0)
            if len(missing):
                numbers[stamps[missing]] = _number_kinds(records.take(missing), known)
            kind, first = _names.number_values(numbers[stamps])
            present = numbers[stamps[first]].astype(np.int64)
            entries = list(known.items())
            used_kinds = [entries[number - 1] for number in present.tolist()]
            if len(missing) and len(known) > 2 * len(used_kinds) + _MAX_UNUSED_KINDS:
                known.clear()
                known.update((key, (number, pod)) for number, (key, (_, pod)) in enumerate(used_kinds, 1))
                memo.values(_KIND_ANSWERS_KEY).clear()  # lists of earlier loops keep theirs
                numbers[:] = 0
                numbers[stamps] = kind + 1
                present = np.arange(1, len(used_kinds) + 1)
            cached = present, memo.values(_KIND_ANSWERS_KEY).setdefault("by name", {})
        return cls(records, kind, [pod for _, (_, pod) in used_kinds], cached)

    def take(self, positions: NDArray[np.int64]) -> PendingPodList:
        """Return the pods at the given positions."""
        return PendingPodList(take_records(self.records, positions), self.kind[positions], self.examples, self.cached)

    @property
    def present_examples(self) -> list[Pod]:
        """Return the example pods of the kinds that occur in this list, by ascending index in ``examples``."""
        return [self.examples[number] for number in self._present.tolist()]

    @property
    def _present(self) -> NDArray[np.int64]:
        """Return the indices in ``examples`` of the kinds that occur in this list, ascending: int64[kinds]."""
        return np.flatnonzero(np.bincount(self.kind, minlength=len(self.examples)))

    def among(self, chosen: Iterable[Pod]) -> NDArray[np.bool_]:
        """Return for each pod whether its example is one of the objects in ``chosen``: bool[n]."""
        wanted = {id(pod) for pod in chosen}
        selected = np.zeros(len(self.examples), dtype=np.bool_)
        for number in self._present.tolist():
            selected[number] = id(self.examples[number]) in wanted
        return selected[self.kind]

    def followed_by(self, pods: Sequence[Pod]) -> PendingPodList:
        """Return the list with ``pods`` appended, which are in no snapshot; the same list if there are none."""
        return PendingPodList.of([*self.records, *map(PodRecord, pods)]) if pods else self

    def filter_by(self, rule: Callable[[list[Pod]], Iterable[Pod]]) -> PendingPodList:
        """Return the pods whose examples ``rule`` selects.

        ``rule`` is called once, with the example of each kind, and must return some of these objects.
        """
        pods = self.present_examples
        selected = [*rule(pods)]
        return self if len(selected) == len(pods) else self.take(np.flatnonzero(self.among(selected)))

    def evaluate_kinds(self, key: str, function: Callable[[Pod], int]) -> NDArray[np.int32]:
        """Evaluate ``function`` on the example of each kind, and return the value of each pod's kind: int32[n].

        ``function`` returns a number of at least 0 that is equal for all pods of a kind. For pods of a snapshot, the
        values are cached with the kinds under ``key``, so that each kind is evaluated once.
        """
        if self.cached is None:
            return np.array([function(pod) for pod in self.examples], dtype=np.int32)[self.kind]
        numbers, cached = self.cached
        values, size = cached.get(key), int(numbers.max(initial=0)) + 1
        if values is None or len(values) < size:
            before = np.zeros(0, dtype=np.int32) if values is None else values
            cached[key] = values = np.append(before, np.full(2 * size - len(before), -1, dtype=np.int32))
        of_example = values[numbers]
        for i in np.flatnonzero(of_example < 0).tolist():
            of_example[i] = values[numbers[i]] = int(function(self.examples[i]))
        return of_example[self.kind]

    def without(self, unwanted: NDArray[np.bool_]) -> PendingPodList:
        """Return the list without the pods for which ``unwanted`` (bool[n]) is true; itself if there are none."""
        return self.take(np.flatnonzero(~unwanted)) if unwanted.any() else self

    @property
    def keys(self) -> list[str]:
        """Return ``namespace/name`` of the pods, in order."""
        return get_record_keys(self.records)


def _number_kinds(unknown: PodRows, known: dict[Hashable, tuple[int, Pod]]) -> NDArray[np.int64]:
    """Return the kind number of each of the pods ``unknown``: int64[n]. New kinds are added to ``known``.

    ``known`` maps the key of a kind (:meth:`PodRows.kind_keys`) to its number, counted from 1, and an example pod.
    """
    firsts, which = unknown.kinds
    numbers = []
    for row, key in zip(firsts.tolist(), unknown.kind_keys(firsts), strict=True):
        if key not in known:
            known[key] = len(known) + 1, unknown[row].pod
        numbers.append(known[key][0])
    return np.array(numbers, dtype=np.int64)[which]


def get_record_keys(records: Sequence[PodRecord]) -> list[str]:
    """Return ``namespace/name`` of pods, in order."""
    if isinstance(records, PodRows):
        return records.keys_at(np.arange(len(records)))
    return [record.key for record in records]


DEFAULT_SCHEDULER_NAME = "default-scheduler"


class PodLists(msgspec.Struct, kw_only=True):
    """Pods by state, each list in input order. Finished pods are in no list.

    - ``scheduled``: bound to a node; ``nominated``: about to be bound, after a preemption.
    - ``unschedulable``: reported as such by the scheduler; ``unprocessed``: of a bypassed scheduler that has not
      processed them yet.
    - ``ignored``: being deleted, gated, or not yet processed by the scheduler; ``excluded``: of a scheduler that is not
      allowed.
    """

    scheduled: list[Pod] = []
    nominated: list[Pod] = []
    unschedulable: list[Pod] = []
    unprocessed: list[Pod] = []
    ignored: list[Pod] = []
    excluded: list[Pod] = []


def split_pods(pods: Iterable[Pod], *, bypassed: Collection[str] = (), allowed: Collection[str] = ()) -> PodLists:
    """Sort unfinished pods into the lists of :class:`PodLists`, each pod into one. Finished pods are in no list.

    ``bypassed``: schedulers that are not waited for. ``allowed``: if not empty, pods of all other schedulers are
    excluded. Naming the default scheduler covers pods that name none.
    """
    bypassed, allowed = _include_empty_name(bypassed), _include_empty_name(allowed)
    lists: list[list[Pod]] = [[] for _ in _LISTS]
    for pod in pods:
        if not pod.is_finished:
            lists[_choose_list(pod, bypassed, allowed)].append(pod)
    return PodLists(**dict(zip(_LISTS, lists, strict=True)))


def find_unscheduled_pods(
    pods: PendingPodList, *, bypassed: Collection[str] = (), allowed: Collection[str] = ()
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of the unschedulable pods and of the unprocessed ones, as in :func:`split_pods`: int64[n].

    The pods must be unfinished.
    """
    bypassed, allowed = _include_empty_name(bypassed), _include_empty_name(allowed)
    what = f"lists of pods: {sorted(bypassed)}, {sorted(allowed)}"
    number = pods.evaluate_kinds(what, lambda pod: _choose_list(pod, bypassed, allowed))
    return np.flatnonzero(number == _UNSCHEDULABLE), np.flatnonzero(number == _UNPROCESSED)


def find_excluded_placed_pods(snapshot: Snapshot, allowed: Collection[str]) -> NDArray[np.int64]:
    """Return the positions of the placed pods whose scheduler is not allowed: int64[n], into ``snapshot.pods``.

    ``allowed`` as in :func:`split_pods`; empty = every scheduler is allowed.
    """
    names = _include_empty_name(allowed)
    if not names:
        return np.empty(0, dtype=np.int64)
    return snapshot.placed.where(
        f"pods of other schedulers than {sorted(names)}",
        lambda pod: (pod.spec.scheduler_name or "") not in names,
        np.arange(len(snapshot.placed_node), dtype=np.int64),
    )


def _include_empty_name(names: Collection[str]) -> frozenset[str]:
    """Return the scheduler names, and "" if the default scheduler is among them.

    Pods that name no scheduler have the name "" and belong to the default scheduler.
    """
    return frozenset((*names, "") if DEFAULT_SCHEDULER_NAME in names else names)


_LISTS: Final = PodLists.__struct_fields__
_SCHEDULED, _NOMINATED, _UNSCHEDULABLE, _UNPROCESSED, _IGNORED, _EXCLUDED = range(len(_LISTS))


def _choose_list(pod: Pod, bypassed: frozenset[str], allowed: frozenset[str]) -> int:
    """Return the position in ``_LISTS`` of the list in which an unfinished pod belongs."""
    scheduler = pod.spec.scheduler_name or ""
    if allowed and scheduler not in allowed:
        return _EXCLUDED
    if pod.spec.node_name:
        return _SCHEDULED
    if pod.metadata.deletion_timestamp is not None:
        return _IGNORED
    if pod.status.nominated_node_name:
        return _NOMINATED
    condition = find(pod.status.conditions, "PodScheduled")
    if condition is not None and condition.status == "False" and condition.reason == "Unschedulable":
        return _UNSCHEDULABLE
    undecided = condition is None or (condition.status == "False" and not condition.reason)
    return _UNPROCESSED if scheduler in bypassed and undecided else _IGNORED


_HAS_PRIORITY_KEY = "pods that name a priority"


def is_expendable(pod: Pod, cutoff: int) -> bool:
    """Return whether the pod's priority is below the cutoff; False for a pod without priority."""
    return pod.spec.priority is not None and pod.spec.priority < cutoff


def filter_out_expendable_pods(pods: Iterable[Pod], cutoff: int) -> list[Pod]:
    """Return the pods that are not expendable, in order. A pod of a priority below ``cutoff`` is expendable."""
    return [pod for pod in pods if not is_expendable(pod, cutoff)]


def find_expendable_pods(pods: PendingPodList, cutoff: int) -> NDArray[np.bool_]:
    """Return which pods are expendable, that is, of a priority below ``cutoff``: bool[n]."""
    low = priorities_of(pods.records) < cutoff  # a pod without priority has 0 here
    if cutoff <= 0 or not low.any():
        return low
    return low & (pods.evaluate_kinds(_HAS_PRIORITY_KEY, lambda pod: pod.spec.priority is not None) > 0)


def find_expendable_placed_pods(snapshot: Snapshot, cutoff: int) -> NDArray[np.int64]:
    """Return the positions in ``snapshot.pods`` of placed pods of a priority below ``cutoff``: int64[n]."""
    low = np.flatnonzero(snapshot.placed.priorities < cutoff)
    if cutoff <= 0 or not len(low):
        return low
    # A pod without priority has 0 in the column.
    return snapshot.placed.where(_HAS_PRIORITY_KEY, lambda pod: pod.spec.priority is not None, low)


def drop_expendable_pods(snapshot: Snapshot, cutoff: int) -> Snapshot:
    """Return the snapshot without its placed pods of a priority below ``cutoff``, which upstream's snapshot lacks."""
    return snapshot.without_placed(find_expendable_placed_pods(snapshot, cutoff))


def drop_uncounted_pods(snapshot: Snapshot, options: AutoscalingOptions) -> Snapshot:
    """Return the snapshot without the placed pods that upstream's simulation ignores.

    These are expendable pods (a priority below ``expendable_pods_priority_cutoff``) and, if schedulers are allowed by
    name, pods of all other schedulers. Upstream leaves them out of its snapshot before it makes node templates
    (``core/static_autoscaler.go``: RunOnce), so a template from a node has none of them either.
    """
    cutoff, allowed = options.expendable_pods_priority_cutoff, options.allowed_scheduler_names

    def find_uncounted(snapshot: Snapshot) -> NDArray[np.int64]:
        uncounted = find_expendable_placed_pods(snapshot, cutoff)
        return np.union1d(uncounted, find_excluded_placed_pods(snapshot, allowed)) if allowed else uncounted

    return without_placed_by(snapshot, ("uncounted pods", cutoff, *sorted(allowed)), find_uncounted)


def filter_out_daemon_set_pods(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods that no DaemonSet owns, in order."""
    return [pod for pod in pods if not is_daemonset_pod(pod)]


def find_daemon_set_pods(pods: PendingPodList) -> NDArray[np.bool_]:
    """Return which of the pods belong to a DaemonSet: bool[n]."""
    return pods.evaluate_kinds("pods of DaemonSets", is_daemonset_pod) > 0


class PodAgeResult(msgspec.Struct, kw_only=True):
    """Pods that are old enough, those that are not, and what was logged about annotations."""

    pods: list[Pod] = []
    young: list[Pod] = []
    warnings: list[str] = []


def filter_out_young_pods(pods: Iterable[Pod], now: Moment, delay: int = 0) -> PodAgeResult:
    """Separate the pods that are older than their delay from the younger ones.

    ``delay`` is in nanoseconds. A pod's annotation may set a longer delay; an annotation with a shorter or invalid
    delay is ignored, with a warning in the result. With delay 0, a pod created exactly at ``now`` is still young.
    Raises InputError if a creation time is malformed.
    """
    result = PodAgeResult()
    for pod in pods:
        own = _get_scale_up_delay(pod, delay, result.warnings)
        old = now - created_at(pod) > own
        (result.pods if old else result.young).append(pod)
    return result


def find_old_pods(pods: PendingPodList, now: Moment, delay: int) -> tuple[NDArray[np.bool_], list[str]]:
    """Return which pods are old enough (bool[n]), and warnings, both as :func:`filter_out_young_pods` decides."""
    records = pods.records
    if isinstance(records, PodRows) and not pods.evaluate_kinds("pods with a delay", _has_scale_up_delay).any():
        return records.created < now - delay, []
    aged = filter_out_young_pods(pods.present_examples, now, delay)
    return pods.among(aged.pods), aged.warnings


def _has_scale_up_delay(pod: Pod) -> bool:
    """Check whether an annotation of the pod sets its delay."""
    return pod_annotation(pod, SCALE_UP_DELAY) is not None


def _get_scale_up_delay(pod: Pod, common: int, warnings: list[str]) -> int:
    """Return the delay that the pod's annotation sets, in nanoseconds; ``common`` without annotation.

    An annotation that is invalid or sets a shorter delay than ``common`` is ignored, with a warning.
    """
    text = pod_annotation(pod, SCALE_UP_DELAY)
    if text is None:
        return common
    name = go_quote(pod.metadata.name or "")
    try:
        own = parse_duration(text)
    except ValueError as error:
        warnings.append(f"Failed to parse pod {name} annotation {SCALE_UP_DELAY}: {error}")
        return common
    if own < common:
        warnings.append(
            f"Failed to set pod scale up delay for {name} through annotation {SCALE_UP_DELAY}: {text} is less than "
            f"{format_duration(common)}"
        )
        return common
    return own


class DrainedPodsResult(msgspec.Struct, kw_only=True):
    """The pods, and log messages about missing nodes."""

    pods: list[Pod]
    warnings: list[str] = []


def is_recreatable(pod: Pod) -> bool:
    """Check whether the pod would be created again on another node: all but static, mirror and DaemonSet pods."""
    return not (is_static_pod(pod) or is_mirror_pod(pod) or is_daemonset_pod(pod))


def add_drained_pods(
    pods: Sequence[Pod], draining: Iterable[str], pods_on: Callable[[str], Iterable[Pod] | None]
) -> DrainedPodsResult:
    """Return the pods, followed by copies without node of the pods on nodes being drained.

    ``draining``: names of these nodes. ``pods_on`` returns the pods of a node, or None if the node does not exist,
    which becomes a warning. Pods being deleted, and pods that would not be created again elsewhere, are left out.
    """
    result = DrainedPodsResult(pods=list(pods))
    for name in draining:
        on_node = pods_on(name)
        if on_node is None:
            result.warnings.append(f"Couldn't get node {name} info, assuming the node got deleted already")
            continue
        result.pods += [
            replace(pod, spec=replace(pod.spec, node_name=""))
            for pod in on_node
            if pod.metadata.deletion_timestamp is None and is_recreatable(pod)
        ]
    return result


class _ControllerPods(msgspec.Struct):
    """How many pods a controller wants and has, and its newest pod."""

    desired: int
    count: int = 0
    sample: Pod | None = None


def get_desired_pod_count(controller: KubeObject) -> int | None:
    """Return how many pods a controller wants to run at a time.

    None for kinds without such a number, and for StatefulSets without parallel pod management.
    """
    if isinstance(controller, Job):
        return _get_desired_job_pod_count(controller)
    if not isinstance(controller, ReplicaSet | StatefulSet):
        return None
    if isinstance(controller, StatefulSet) and controller.spec.pod_management_policy != "Parallel":
        return None
    return 1 if controller.spec.replicas is None else controller.spec.replicas


def _get_desired_job_pod_count(job: Job) -> int:
    """Return how many pods the Job wants to run at a time: its parallelism, limited by the missing completions.

    Without completions it is the parallelism until a pod has succeeded, then 0. Parallelism is 1 by default.
    """
    parallelism, completions, succeeded = job.spec.parallelism, job.spec.completions, job.status.succeeded
    if completions is None and parallelism is not None and parallelism >= 0 and succeeded == 0:
        return parallelism
    left = (1 if completions is None else completions) - succeeded
    return max(0, min(left, 1 if parallelism is None else parallelism))


def is_scheduling_gated(pod: Pod) -> bool:
    """Check whether the scheduler has reported the pod as gated."""
    condition = find(pod.status.conditions, "PodScheduled")
    return condition is not None and condition.status == "False" and condition.reason == "SchedulingGated"


def build_missing_pods(controllers: Iterable[KubeObject], pods: Iterable[Pod]) -> list[Pod]:
    """Build the pods that controllers have not created yet, as copies of their newest pod, in the controllers' order.

    Controllers without any pod get none. ``pods``: placed, unschedulable and gated pods. A pod with scheduling gates
    counts once the scheduler has reported it as gated. Owner references name their controller by UID; without a UID,
    kind, namespace and name decide.
    """
    owned: dict[str, _ControllerPods] = {}
    for controller in controllers:
        desired = get_desired_pod_count(controller)
        if desired is not None:
            uid = controller.metadata.uid or derived_uid(
                controller.kind or type(controller).__name__, controller.namespace, controller.name
            )
            owned[uid] = _ControllerPods(desired)
    for pod in pods:
        owner = controller_of(pod.metadata)
        uid = "" if owner is None else owner.uid or derived_uid(owner.kind, pod.namespace, owner.name)
        group = owned.get(uid)
        if group is None or (pod.spec.scheduling_gates and not is_scheduling_gated(pod)):
            continue
        group.count += 1
        if group.sample is None or created_at(pod) > created_at(group.sample):
            group.sample = pod
    return [
        _copy_sample_pod(group.sample, uid, number)
        for uid, group in owned.items()
        if group.sample is not None
        for number in range(1, group.desired - group.count + 1)
    ]


def _copy_sample_pod(sample: Pod, owner: str, number: int) -> Pod:
    """Return a fake pod without a node: a copy of ``sample`` with the number in its name.

    ``owner``: UID of the controller.
    """
    metadata = replace(
        sample.metadata,
        name=f"{sample.metadata.name}-copy-{number}",
        uid=f"{owner}-{number}",
        annotations={**(sample.metadata.annotations or {}), "podtype": "fakepod"},
    )
    return replace(sample, metadata=metadata, spec=replace(sample.spec, node_name=""))


def enforce_injection_limit(pods: Sequence[str], fake_pods: Collection[str], limit: int) -> NDArray[np.int64]:
    """Return the positions of the pods to keep, ascending, so that at most ``limit`` pods remain: int64[n].

    Only fake pods (keys in ``fake_pods``) are dropped, the first ones first, so real pods alone may exceed the limit
    (``--pod-injection-limit``).
    """
    excess = len(pods) - limit
    positions = []
    for at, pod in enumerate(pods):
        if excess > 0 and pod in fake_pods:
            excess -= 1
        else:
            positions.append(at)
    return np.array(positions, dtype=np.int64)


ScaleUpEnforcer = Callable[[Sequence[Pod]], bool]
"""Called with the pods that need nodes. True forces a scale-up, whatever else would prevent it."""

CONSUME_ANNOTATIONS: Final = (CONSUME_PROVISIONING_REQUEST, DEPRECATED_CONSUME_PROVISIONING_REQUEST)


@typed
def has_provisioning_request_consumer(pods: Iterable[Pod]) -> bool:
    """Check whether any pod consumes a ProvisioningRequest, by its current or its old annotation.

    This is the enforcer of provisioning requests: such a pod enforces a scale-up.
    """
    return any(pod_annotation(pod, key) is not None for pod in pods for key in CONSUME_ANNOTATIONS)


_STARTED_TEXT: Final = (
    "Autoscaler is unable to handle the large amount of unschedulable pods. Consider reducing the rate of adding new "
    "pods, so autoscaler could auto recover."
)
_STOPPED_TEXT: Final = "Autoscaler exited from GracefulDegradationMode and works normally."
_SCALE_DOWN_LOOP_PERIOD: Final = 4
"""Number of degraded loops of which one belongs to scale-down."""


def get_max_looks(options: AutoscalingOptions, max_looks: int | None) -> int | None:
    """Return how many pods this loop may check for a place on existing nodes; None without limit.

    Only graceful degradation has a limit: ``max_looks``, or 0 if ``pending_pods_batching_timeout`` is not positive.
    """
    if not options.enable_graceful_degradation:
        return None
    return 0 if options.pending_pods_batching_timeout <= timedelta() else max_looks


def update_degradation_counter(counter: int, unprocessed: int, options: AutoscalingOptions) -> tuple[int, list[Event]]:
    """Return the new number of consecutive loops that ran out of time, and the events to emit.

    ``counter``: the number before this loop; ``unprocessed``: number of pods that were not checked (0: the loop
    finished in time). There is an event for the first loop that runs out of time, and for the first that finishes in
    time again. Call it only with graceful degradation enabled.
    """
    from kscale.ca.events import build_status_events  # imported here because estimates have no events

    if unprocessed > 0:
        status_events = build_status_events(options, "Warning", "GracefulDegradationStarted", _STARTED_TEXT)
        return counter + 1, status_events if counter == 0 else []
    status_events = build_status_events(options, "Normal", "GracefulDegradationStopped", _STOPPED_TEXT)
    return 0, status_events if counter > 0 else []


def is_reserved_for_scale_down(counter: int, options: AutoscalingOptions) -> bool:
    """Check whether a loop skips scale-up and is reserved for scale-down: every fourth one that runs out of time.

    ``counter``: number of consecutive loops that ran out of time.
    """
    return options.enable_graceful_degradation and counter > 0 and counter % _SCALE_DOWN_LOOP_PERIOD == 0


@typed
def can_scale_down(counter: int, options: AutoscalingOptions) -> bool:
    """Check whether a loop may scale down: always, but while loops run out of time only every fourth one.

    ``counter`` is the value after the loop's pods were checked: ``plan.state.scale_up.degraded_loops``. False if the
    options disable scale-down.
    """
    if not options.scale_down_enabled:
        return False
    return not (options.enable_graceful_degradation and counter > 0 and counter % _SCALE_DOWN_LOOP_PERIOD != 0)


UNSCHEDULABLE_POD_TIME_BUFFER: Final[ComparedDuration] = 2 * SECOND
UNSCHEDULABLE_POD_WITH_GPU_TIME_BUFFER: Final[ComparedDuration] = 30 * SECOND


class ScaleUpGate(msgspec.Struct, kw_only=True, frozen=True):
    """Decision whether a loop scales up. ``result`` is empty if it does, else the result of the loop.

    ``scale_down_disabled``: more pods may follow soon, so this loop removes no node either.
    """

    result: str = ""
    events: tuple[Event, ...] = ()
    scale_down_disabled: bool = False


def are_all_pods_new(pods: Iterable[Pod], now: Moment) -> bool:
    """Check whether all pods are so new that more pods may follow soon; False without pods.

    Pods are new if all are younger than 2 seconds. They are also new if some request GPUs, and all of those that
    request GPUs are younger than 30 seconds. Raises InputError if a creation time is malformed.
    """
    pods = [*pods]
    first_pods: dict[str | None, Pod] = {}
    for pod in pods:
        first_pods.setdefault(pod.metadata.creation_timestamp, pod)
    if not pods:
        return False
    created = {text: created_at(pod) for text, pod in first_pods.items()}
    if min(created.values()) + UNSCHEDULABLE_POD_TIME_BUFFER > now:
        return True
    if max(created.values()) + UNSCHEDULABLE_POD_WITH_GPU_TIME_BUFFER <= now:
        return False  # whichever pods request GPUs
    gpu = [created[pod.metadata.creation_timestamp] for pod in pods if pod_requests_gpu(pod)]
    return bool(gpu) and min(gpu) + UNSCHEDULABLE_POD_WITH_GPU_TIME_BUFFER > now


def should_scale_up(
    pods: Sequence[Pod],
    *,
    ready_nodes: int,
    now: Moment,
    options: AutoscalingOptions,
    degraded_loops: int = 0,
    enforced: bool = False,
) -> ScaleUpGate:
    """Decide whether this loop scales up. ``result`` names the first rule that prevents it, and is empty if none does.

    ``pods``: the pods that need nodes; ``ready_nodes``: number of nodes; ``degraded_loops``: number of consecutive
    loops that ran out of time, including this one. ``enforced``: no rule prevents the scale-up, except that a loop
    reserved for scale-down (:func:`is_reserved_for_scale_down`) does not scale up.
    """
    from kscale.ca.scale_up_status import SCALE_UP_IN_COOLDOWN  # imported here because estimates have no status

    gate = _check_gate(pods, ready_nodes, now, options)
    if is_reserved_for_scale_down(degraded_loops, options):
        return replace(gate, result=SCALE_UP_IN_COOLDOWN)
    return replace(gate, result="") if enforced else gate


def _check_gate(pods: Sequence[Pod], ready_nodes: int, now: Moment, options: AutoscalingOptions) -> ScaleUpGate:
    """Apply the rules of :func:`should_scale_up` that an enforcer overrides."""
    from kscale.ca.events import build_status_events
    from kscale.ca.scale_up_status import (
        SCALE_UP_IN_COOLDOWN,
        SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL,
        SCALE_UP_NOT_NEEDED,
    )

    if not pods:
        return ScaleUpGate(result=SCALE_UP_NOT_NEEDED)
    if 0 < options.max_nodes_total <= ready_nodes:
        text = f"Max total nodes in cluster reached: {options.max_nodes_total}"
        status_events = build_status_events(options, "Warning", "MaxNodesTotalReached", text)
        return ScaleUpGate(result=SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL, events=tuple(status_events))
    if not options.bypassed_scheduler_names and are_all_pods_new(pods, now):
        return ScaleUpGate(result=SCALE_UP_IN_COOLDOWN, scale_down_disabled=True)
    return ScaleUpGate()
