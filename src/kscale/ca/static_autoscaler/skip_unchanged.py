"""Skip loops whose inputs are unchanged and that no time threshold can change.

A loop is a function of the cluster, the groups, the state and the time. It can be skipped if the previous loop
returned the state that it was given, apart from the times of loops (:func:`repeat_state`), and until a moment that
loops compare with now is as long ago as one of the durations that they compare with (:func:`find_next_difference`).
Moments are found by the type of their field, durations by the type of the option or of the constant
(:data:`COMPARED_CONSTANTS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
from kscale.ca.scale_down.moving_pods import get_moving_pods
from kscale.effects import LAST_TIME, SECOND, ZERO_TIME, Moment, duration, from_text
from kscale.effects.moments import MOMENT_MARK
from kscale.objects.api.core import Node, Pod
from kscale.objects.conditions import changed_at
from kscale.objects.go_numbers import parse_int64
from kscale.objects.nodegroup import DURATION_OPTIONS, Groups
from kscale.objects.pod_owners import is_daemonset_pod, is_mirror_pod
from kscale.objects.times import moment_in
from kscale.snapshot.columns import REMOVED
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "COMPARED_CONSTANTS",
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
    """Check whether a loop that turned the state ``before`` into ``after`` changed only times.

    That is, whether ``after`` is what :func:`repeat_state` makes of ``before``, except for the status's probe times.
    """
    now = after.cluster.last_update
    expected = None if now is None else repeat_state(before, now)
    if expected is None or _strip_probe_times(before.cluster.last_status) != _strip_probe_times(
        after.cluster.last_status
    ):
        return False
    return _drop_status(expected) == _drop_status(after)


def is_stable_snapshot(snapshot: Snapshot) -> bool:
    """Check whether no pod is pending and none is about to end.

    Of other pods only the ages of some kube-system pods make a difference (:func:`get_young_system_pod_times`).
    """
    table = snapshot.table
    ending = table.columns["deleted"][table.columns["state"] != REMOVED] != ZERO_TIME
    return not snapshot.counts["pending"] and not ending.any()


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
            moment_in(node, node.metadata.creation_timestamp, "metadata.creationTimestamp")
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

    ``items`` returns the items of a container.
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
