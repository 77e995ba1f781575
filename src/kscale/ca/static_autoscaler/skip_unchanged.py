"""Skip loops whose inputs are unchanged and that no time threshold can change.

A loop is a function of the cluster, the groups, the state and the time. It can be skipped if the previous loop
returned the state that it was given, apart from the times of loops (:func:`repeat_state`), and until a moment that
loops compare with now is as long ago as one of the durations that they compare with (:func:`find_next_difference`).
Moments are found by the type of their field, durations by the type of the option or of the constant
(:data:`COMPARED_CONSTANTS`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kscale.ca import loop_context, node_infos, nodes, pod_lists
from kscale.ca import nodes as pods
from kscale.ca.cluster_state import ClusterAutoscalerStatus, state, update
from kscale.ca.loop_state import LoopState
from kscale.ca.options import AutoscalingOptions
from kscale.ca.provisioning_requests import processors
from kscale.ca.scale_down.eligibility import Eligibility
from kscale.ca.scale_down.moving_pods import get_moving_pods
from kscale.ca.scale_down.plan import ScaleDownPlan
from kscale.ca.unremovable_reasons import NOT_UNDERUTILIZED
from kscale.effects import LAST_TIME, SECOND, ZERO_TIME, Moment, duration, from_text
from kscale.effects.moments import MOMENT_MARK
from kscale.objects.api.apps import ReplicaSet
from kscale.objects.api.core import Node, Pod, PodStatus
from kscale.objects.conditions import changed_at
from kscale.objects.go_numbers import parse_int64
from kscale.objects.nodegroup import DURATION_OPTIONS, Groups
from kscale.objects.pod_owners import is_daemonset_pod, is_mirror_pod, is_static_pod
from kscale.objects.pod_resources import occupancy, resize_infeasible
from kscale.objects.times import created_at, moment_in
from kscale.snapshot.columns import REMOVED, NodeColumns
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "COMPARED_CONSTANTS",
    "PodChanges",
    "collect_node_moments",
    "collect_state_moments",
    "find_next_difference",
    "get_young_system_pod_times",
    "is_repeated_loop",
    "is_stable_snapshot",
    "repeat_state",
]

_NO_SYSTEM_PODS: Final = np.empty(0, dtype=np.int64)

COMPARED_CONSTANTS: Final = (
    loop_context.NODES_NOT_READY_AFTER_START_TIMEOUT,
    pod_lists.UNSCHEDULABLE_POD_WITH_GPU_TIME_BUFFER,
    pod_lists.UNSCHEDULABLE_POD_TIME_BUFFER,
    node_infos.STABILIZATION_DELAY,
    nodes.MAX_NODE_DELETION_TIME,
    pods.DEFAULT_TERMINATION_GRACE_PERIOD,
    pods.POD_LONG_TERMINATING_EXTRA_THRESHOLD,
    state.LEGACY_STATUS_SETTING_DELAY,
    state.LEGACY_NODE_STARTUP_TIME,
    update.SCALE_DOWN_TIMEOUT,
    processors.DEFAULT_RESERVATION_TIME,
    processors.DEFAULT_EXPIRATION_TIME,
)
"""The constants that rules compare the age of something with: every one that is annotated as a
:data:`~kscale.effects.moments.ComparedDuration`. A test checks that none is missing here."""


def repeat_state(state: LoopState, now: Moment) -> LoopState | None:
    """Return the state after a loop at ``now`` that repeats the previous loop, which returned ``state``.

    Returns None if the previous loop did not plan a scale-down, or if this loop follows it after less than the shortest
    interval between loops so far, because the state then changes in other ways.
    """
    cluster, down = state.cluster, state.scale_down
    last = cluster.last_update
    if last is None or down.last_update != last or down.update_interval is None or now - last < down.update_interval:
        return None
    updated = now if cluster.last_scale_down_update == last else cluster.last_scale_down_update
    return replace(
        state,
        cluster=replace(cluster, last_update=now, last_scale_down_update=updated),
        scale_down=replace(down, last_update=now),
        templates={
            name: replace(item, added=now) if item.added == last else item for name, item in state.templates.items()
        },
    )


def is_repeated_loop(before: LoopState, after: LoopState) -> bool:
    """Check whether a loop that turned the state ``before`` into ``after`` repeated the previous loop.

    That is, whether ``after`` equals the result of :func:`repeat_state` for ``before``, except for the probe times of
    the status.
    """
    now = after.cluster.last_update
    expected = None if now is None else repeat_state(before, now)
    if expected is None or _strip_probe_times(before.cluster.last_status) != _strip_probe_times(
        after.cluster.last_status
    ):
        return False
    return _drop_status(expected) == _drop_status(after)


def is_stable_snapshot(snapshot: Snapshot) -> bool:
    """Check whether no pod is pending and none is terminating.

    In such a snapshot, decisions depend on the age of some kube-system pods only (:func:`get_young_system_pod_times`),
    not on the age of other pods.
    """
    table = snapshot.table
    ending = table.columns["deleted"][table.columns["state"] != REMOVED] != ZERO_TIME
    return not snapshot.counts["pending"] and not ending.any()


_UNFINISHED: Final = frozenset({"", "Pending", "Running"})
_ROUNDING: Final = 1e-9
"""Bound on the rounding errors of differences of utilizations."""


class PodChanges:
    """Changes of pods and ReplicaSets since a loop observed the cluster, and whether the next loop can depend on them.

    A loop reads no readiness, start time or container status of a placed pod. If a loop found no pending pod and no
    node that may be removed, the next one is the same as long as no pod is pending and each node remains utilized above
    its threshold with the pods that came since then, and without those that ended or began to terminate.
    """

    def __init__(self, options: AutoscalingOptions) -> None:
        self._options = options
        self._is_supported = not (
            options.allowed_scheduler_names
            or options.capacity_buffer_pod_injection_enabled
            or options.enable_proactive_scaleup
            or options.enable_provisioning_requests
            or options.ignore_mirror_pods_utilization
        )
        self._plan: tuple[ScaleDownPlan | None, bool] = None, False
        self.clear()

    def clear(self) -> None:
        """Forget all changes and stop recording, until :meth:`begin`. Call it when a loop observes the cluster."""
        self._is_recording = False
        self._moved = False  # whether pods came or went, or ReplicaSets changed
        self._pending: set[str] = set()
        self._removed: dict[str, Counter[str]] = {}  # by node, requests that went less those that came, in thousandths
        self._unchecked: set[str] = set()

    def begin(self) -> None:
        """Start to record changes. Call it when a loop has ended that repeated the previous loop."""
        self._is_recording = True

    def note(self, changes: Iterable[tuple[str, Any, Any]]) -> bool:
        """Record simultaneous changes of objects of one kind, as (key, old, new); None stands for a missing object.

        Returns False if the next loop may depend on one of these changes in a way that :meth:`can_matter` does not
        check. Always False before :meth:`begin`.
        """
        if not self._is_recording:
            return False
        verdicts: dict[tuple[int, ...], bool] = {}  # by identity of the parts that pods share
        for key, old, new in changes:
            if isinstance(new or old, Pod):
                if not self._note_pod(key, old, new, verdicts):
                    return False
            elif not (isinstance(old, ReplicaSet) and isinstance(new, ReplicaSet)):
                return False
            elif (old.spec, old.status.replicas) != (new.spec, new.status.replicas):
                self._moved = True
        return True

    def _note_pod(self, key: str, old: Pod | None, new: Pod | None, verdicts: dict[tuple[int, ...], bool]) -> bool:
        """Record a change of a pod; return False if loops may depend on it. ``verdicts``: cache of the batch."""
        if old is not None and new is not None and old.spec.node_name:
            spec, status = new.spec, new.status
            if spec is not old.spec and spec != old.spec:
                return False
            parts = old.status, status, spec.containers, spec.init_containers, spec.overhead, spec.resources
            shared = tuple(map(id, parts))
            verdict = verdicts.get(shared)
            if verdict is None:
                verdict = verdicts[shared] = _is_only_progress(old, new)
            if not verdict:
                return False
            if replace(old.metadata, resource_version=new.metadata.resource_version) == new.metadata:
                return True
        pod = new or old
        assert pod is not None
        self._moved = True
        if not self._is_supported or not all(_is_ordinary(each, self._options) for each in (old, new) if each):
            return False
        if old is not None and not old.spec.node_name and old.status.nominated_node_name:
            return False  # the pod counted for the node to which it was nominated
        if not pod.spec.node_name:
            (self._pending.discard if new is None else self._pending.add)(key)
            return pod.metadata.deletion_timestamp is None
        self._pending.discard(key)
        was_there = old is not None and bool(old.spec.node_name) and old.metadata.deletion_timestamp is None
        is_there = new is not None and new.metadata.deletion_timestamp is None
        if was_there != is_there:
            requests = self._removed.setdefault(pod.spec.node_name, Counter())
            for name, amount in occupancy(pod).items():  # rounded up for pods that go, down for pods that come
                requests[name] += amount.milli_value() if was_there else 1 - amount.milli_value()
            self._unchecked.add(pod.spec.node_name)
        return True

    def can_matter(self, plan: ScaleDownPlan | None, columns: NodeColumns, groups: Groups) -> bool:
        """Return whether the next loop can depend on the recorded changes.

        ``plan``: the scale-down of the last loop, None without one. ``columns``, ``groups``: the loop's nodes and
        groups, which have not changed since then.
        """
        if not self._moved:
            return False
        if self._plan[0] is not plan:
            self._plan = plan, plan is not None and self._has_no_removable_node(plan, groups)
        if self._pending or plan is None or not self._plan[1]:
            return True
        while self._unchecked:
            name = self._unchecked.pop()
            if not _is_still_utilized(plan.eligibility.get(name), columns, name, self._removed[name]):
                return True
        return False

    def _has_no_removable_node(self, plan: ScaleDownPlan, groups: Groups) -> bool:
        """Check whether no node of a plan may be removed, and DaemonSet pods count as usage in all groups."""
        defaults = self._options.node_group_defaults
        return all(verdict.reason is not None for verdict in plan.eligibility.values()) and not any(
            group.options_error or group.options_or(defaults).ignore_daemonsets_utilization for group in groups
        )


_PROGRESS: Final[dict[str, Any]] = {
    name: getattr(PodStatus(), name)
    for name in ("phase", "conditions", "start_time", "container_statuses", "init_container_statuses")
}


def _is_only_progress(old: Pod, new: Pod) -> bool:
    """Return whether two versions of a placed pod with equal specs occupy the same resources and are not finished.

    Their statuses may differ only in conditions, start time, the statuses of containers, and whether the pod runs.
    """
    return (
        {old.status.phase, new.status.phase} <= _UNFINISHED
        and replace(old.status, **_PROGRESS) == replace(new.status, **_PROGRESS)
        and occupancy(old) == occupancy(new)
        and resize_infeasible(old) == resize_infeasible(new)
    )


def _is_ordinary(pod: Pod, options: AutoscalingOptions) -> bool:
    """Return whether a loop that cannot remove the pod's node reads nothing of the pod but its requests.

    False for finished pods, pods that templates of nodes may contain, pods of kube-system, pods with claims to devices,
    and pods that do not count because of their priority.
    """
    return pod.status.phase in _UNFINISHED and not (
        pod.spec.resource_claims
        or pod.metadata.namespace == "kube-system"
        or (pod.spec.priority is not None and pod.spec.priority < options.expendable_pods_priority_cutoff)
        or is_daemonset_pod(pod)
        or (pod.metadata.annotations and (is_mirror_pod(pod) or is_static_pod(pod)))
    )


def _is_still_utilized(
    verdict: Eligibility | None, columns: NodeColumns, name: str, removed: Mapping[str, int]
) -> bool:
    """Check whether a node that the last loop kept must also stay after some of its pods have ended.

    ``verdict``: the node's eligibility in the last loop, None if it was no candidate. ``removed``: requests of the
    ended pods by resource, in thousandths, minus those of new pods. A node that was kept for any other reason than its
    utilization, or was no candidate, stays.
    """
    if verdict is None or verdict.reason != NOT_UNDERUTILIZED:
        return verdict is None or verdict.reason is not None
    used = verdict.utilization
    if used is None or verdict.threshold is None or name not in columns.index:
        return False
    available = (columns.objects[columns.index[name]].status.allocatable or {}).get(used.resource_name)
    if available is None or available.milli_value() <= 0:
        return False
    left = used.utilization - removed.get(used.resource_name, 0) / available.milli_value()
    return bool(left > verdict.threshold + _ROUNDING)


def _drop_status(state: LoopState) -> LoopState:
    """Return the state without the last status."""
    return replace(state, cluster=replace(state.cluster, last_status=None))


def _strip_probe_times(status: ClusterAutoscalerStatus | None) -> Any:
    """Return the status as plain data without the probe times; None without a status."""
    return _without_times(msgspec.to_builtins(status))


def _without_times(value: Any) -> Any:
    """Return plain data without the probe times."""
    if isinstance(value, dict):
        return {key: _without_times(each) for key, each in value.items() if key not in ("lastProbeTime", "time")}
    return [_without_times(each) for each in value] if isinstance(value, list) else value


def get_young_system_pod_times(snapshot: Snapshot) -> NDArray[np.int64]:
    """Return the creation times of placed kube-system pods that may hold their node while they are young: int64[n].

    Such a pod no longer holds its node once it is older than ``blocking_system_pod_distruption_timeout``. The times
    ascend, and each comes once.
    """
    pods = get_moving_pods(snapshot)
    of_system = np.array(pods.compute_per_kind(_SYSTEM_PODS_KEY, _is_system_pod), np.bool_)
    if not of_system.any():
        return np.empty(0, np.int64)
    rows = snapshot.placed.rows
    return np.unique(snapshot.table.columns["created"][rows[of_system.take(pods.kind_of[: len(rows)])]])


_SYSTEM_PODS_KEY: Final = ("pods of the system that no DaemonSet runs",)


def _is_system_pod(pod: Pod) -> bool:
    """Check whether the pod is a kube-system pod that is neither a DaemonSet pod nor a mirror pod."""
    return pod.namespace == "kube-system" and not (is_daemonset_pod(pod) or is_mirror_pod(pod))


def collect_node_moments(nodes: Sequence[Node]) -> set[Moment]:
    """Return the times in nodes that a loop may compare with the current time.

    Raises InputError, which names the node and the field, if one is malformed. Values of taints count if they are
    numbers of seconds since 1970 within the range of times.
    """
    texts: set[str | None] = set()
    moments: set[Moment] = set()
    for node in nodes:
        texts.add(node.metadata.creation_timestamp)
        texts.update([each.last_transition_time for each in node.status.conditions])
        for taint in node.spec.taints:
            texts.add(taint.time_added)
            seconds = parse_int64(taint.value)
            if seconds is not None and 0 <= seconds <= LAST_TIME // SECOND:  # some numbers are not times
                moments.add(seconds * SECOND)
    try:
        moments.update(from_text(text) for text in texts if text)
    except ValueError:
        for node in nodes:
            created_at(node)
            for each in node.status.conditions:
                changed_at(node, each)
            for number, taint in enumerate(node.spec.taints):
                moment_in(node, taint.time_added, f"spec.taints[{number}].timeAdded")
        raise
    return moments


def find_next_difference(
    state: LoopState,
    nodes: Iterable[Moment],
    groups: Groups,
    options: AutoscalingOptions,
    *,
    begun: Moment,
    now: Moment,
    system_pods: NDArray[np.int64] = _NO_SYSTEM_PODS,
) -> Moment:
    """Return the first moment after ``now`` at which a loop may decide differently with unchanged inputs.

    The inputs are cluster, groups and state. The result is the largest int64 if there is no such moment. ``nodes``:
    moments of the nodes from :func:`collect_node_moments`; ``begun``: start of the process; ``system_pods``: from
    :func:`get_young_system_pod_times`.
    """
    last = state.cluster.last_update
    moments = {each for each in collect_state_moments(state) if each != last}.union(nodes, (begun,))
    durations = {0, *COMPARED_CONSTANTS, *_iterate_durations(options)}
    for group in groups:
        if group.options is not None:
            values = [getattr(group.options, name) for name in DURATION_OPTIONS]
            durations |= {round(each * SECOND) for each in values if each is not None}
    instants = np.array(sorted(moments - {ZERO_TIME}), np.int64)
    sums = (instants[:, None] + np.array(sorted(durations), np.int64)[None, :]).ravel()
    old = system_pods + duration(options.blocking_system_pod_distruption_timeout)
    ahead = [each.min() for each in (sums[sums > now], old[old >= now] + 1) if len(each)]  # older than that, not as old
    return int(min(ahead)) if ahead else int(np.iinfo(np.int64).max)


def collect_state_moments(state: LoopState) -> set[Moment]:
    """Return all moments in a state: the values of fields that are annotated as a :data:`~kscale.effects.Moment`."""
    moments: set[Moment] = set()
    _get_state_collector()(state, moments)
    return moments


_Collector = Callable[[Any, set[Moment]], None]
_COLLECTORS: dict[type, _Collector | None] = {}


@cache
def _get_state_collector() -> _Collector:
    """Return the function that collects the moments in a state; built once, as reading annotations takes long."""
    collect = _build_collector(msgspec.inspect.type_info(LoopState))
    assert collect is not None
    return collect


def _build_collector(type_: msgspec.inspect.Type) -> _Collector | None:
    """Return a function (value, set) that adds the moments in a value of this type to the set; None if it has none."""
    match type_:
        case msgspec.inspect.Metadata():
            if type_.extra == MOMENT_MARK:
                return _add_moment
            return _build_collector(type_.type)
        case msgspec.inspect.StructType():
            if type_.cls is ClusterAutoscalerStatus:
                return None  # a status only repeats other parts of the state
            if type_.cls not in _COLLECTORS:
                _COLLECTORS[type_.cls] = _build_struct_collector(type_)
            return _COLLECTORS[type_.cls]
        case msgspec.inspect.UnionType():
            inner = [each for each in map(_build_collector, type_.types) if each is not None]
            return _build_optional_collector(inner[0]) if inner else None
        case msgspec.inspect.DictType():
            return _build_items_collector(_build_collector(type_.value_type), dict.values)
        case msgspec.inspect.CollectionType():
            return _build_items_collector(_build_collector(type_.item_type), iter)
    return None


def _add_moment(value: Any, moments: set[Moment]) -> None:
    """Add the moment ``value`` to ``moments``."""
    moments.add(value)


def _build_struct_collector(type_: msgspec.inspect.StructType) -> _Collector | None:
    """Return a function that collects the moments in the fields of a struct; None if no field has any."""
    fields = [(field.name, inner) for field in type_.fields if (inner := _build_collector(field.type)) is not None]

    def collect(value: Any, moments: set[Moment]) -> None:
        for name, inner in fields:
            inner(getattr(value, name), moments)

    return collect if fields else None


def _build_optional_collector(inner: _Collector) -> _Collector:
    """Return a function that collects the moments in a value that may be None; ``inner`` is for other values."""

    def collect(value: Any, moments: set[Moment]) -> None:
        if value is not None:
            inner(value, moments)

    return collect


def _build_items_collector(inner: _Collector | None, items: Callable[[Any], Iterable[Any]]) -> _Collector | None:
    """Return a function that collects the moments in the items of a container; None if items have none.

    ``inner`` collects the moments in one item (None: items have none). ``items`` returns the items of a container.
    """
    if inner is None:
        return None
    if inner is _add_moment:
        return lambda value, moments: moments.update(items(value))

    def collect(value: Any, moments: set[Moment]) -> None:
        for item in items(value):
            inner(item, moments)

    return collect


def _iterate_durations(options: AutoscalingOptions) -> Iterator[int]:
    """Yield the durations in the options, in nanoseconds."""
    for field in options.__struct_fields__:
        value = getattr(options, field)
        if isinstance(value, timedelta):
            yield duration(value)
