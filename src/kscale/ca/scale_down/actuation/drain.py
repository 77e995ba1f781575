"""Evict the pods of a node and wait until they are deleted (upstream: "``actuation/drain.go``,"
``actuation/priority.go``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from kscale.ca.errors import API_CALL_ERROR, TRANSIENT_ERROR, AutoscalerError
from kscale.ca.events import build_pod_event
from kscale.ca.metrics import build_observation
from kscale.ca.options import AutoscalingOptions, DrainPriority, parse_drain_priority_config
from kscale.ca.scale_down.actuation.deletion_tracker import PodEvictionResult
from kscale.effects import (
    SECOND,
    ApiError,
    Delete,
    Emit,
    Evict,
    Get,
    Moment,
    Observe,
    Progress,
    StepsOf,
    Together,
    Wait,
    duration,
)
from kscale.effects.moments import OtherDuration
from kscale.objects.api.core import Pod
from kscale.objects.pod_owners import (
    CAPACITY_BUFFER_FAKE_POD,
    ENABLE_DS_EVICTION,
    FAKE_POD,
    is_daemonset_pod,
    is_mirror_pod,
    pod_annotation,
)

__all__ = [
    "DrainAction",
    "DrainResult",
    "Evictor",
    "PodEvictionGroup",
    "get_drain_config",
    "get_pods_to_evict",
    "group_by_priority",
    "is_fake_pod",
]


_FAKE_POD_ANNOTATIONS: Final = ((FAKE_POD, "fakepod"), (CAPACITY_BUFFER_FAKE_POD, "capacityBufferFakePod"))


def is_fake_pod(pod: Pod) -> bool:
    """Return whether the autoscaler injected the pod, for proactive scale-up or for a capacity buffer."""
    return any(pod_annotation(pod, key) == value for key, value in _FAKE_POD_ANNOTATIONS)


def get_pods_to_evict(pods: Iterable[Pod], *, evict_daemon_sets: bool) -> tuple[list[Pod], list[Pod]]:
    """Return (DaemonSet pods, other pods) in node order, without mirror pods and fake pods.

    DaemonSet pods that are not to be evicted are left out: a pod's annotation decides, else ``evict_daemon_sets``.
    """
    daemon_set, others = [], []
    for pod in pods:
        if is_mirror_pod(pod) or is_fake_pod(pod):
            continue
        if not is_daemonset_pod(pod):
            others.append(pod)
        elif _is_daemon_set_evicted(pod, evict_daemon_sets):
            daemon_set.append(pod)
    return daemon_set, others


def _is_daemon_set_evicted(pod: Pod, default: bool) -> bool:
    """Check whether a DaemonSet pod is evicted: its annotation decides, ``default`` without one."""
    annotation = pod_annotation(pod, ENABLE_DS_EVICTION)
    return default if annotation is None else annotation == "true"


_MAX_INT32: Final = 2**31 - 1


class PodEvictionGroup(msgspec.Struct, kw_only=True):
    """Pods that are evicted at the same time. A drained node has none of the ``full`` pods; ``best_effort`` pods may
    stay.
    """

    seconds: int
    full: list[Pod] = []
    best_effort: list[Pod] = []


def get_drain_config(options: AutoscalingOptions) -> tuple[list[DrainPriority], bool]:
    """Return (the drain priorities, lowest first; whether DaemonSet pods must leave the node, too).

    Without ``--drain-priority-config`` all pods are evicted at once, and DaemonSet pods may stay.
    """
    configured = parse_drain_priority_config(options.drain_priority_config) if options.drain_priority_config else []
    if configured:
        return sorted(configured, key=lambda item: item.priority), True
    return [DrainPriority(_MAX_INT32, options.max_graceful_termination_sec)], False


def group_by_priority(
    config: Sequence[DrainPriority], full: Iterable[Pod], best_effort: Iterable[Pod]
) -> list[PodEvictionGroup]:
    """Group the pods by the priorities of ``config``, lowest first; groups may be empty.

    ``full``: pods that must leave the node; ``best_effort``: pods that may stay. A pod belongs to the last group whose
    priority is not above the pod's. If there is none, it belongs to the first group.
    """
    groups = [PodEvictionGroup(seconds=item.shutdown_grace_period_seconds, full=[], best_effort=[]) for item in config]
    priorities = [item.priority for item in config]
    for pod in full:
        groups[_find_priority_group(pod, priorities)].full.append(pod)
    for pod in best_effort:
        groups[_find_priority_group(pod, priorities)].best_effort.append(pod)
    return groups


def _find_priority_group(pod: Pod, priorities: Sequence[int]) -> int:
    """Return the position of the pod's group in the ascending ``priorities``."""
    own = pod.spec.priority or 0
    index = bisect_left(priorities, own)
    if index == len(priorities):
        return index - 1
    return index - 1 if index and priorities[index] > own else index


DrainAction = Evict | Delete | Get | Wait | Together | Emit | Observe
"""Actions that drain a node."""

EVICTION_RETRY_TIME: Final[OtherDuration] = 10 * SECOND
POD_EVICTION_HEADROOM: Final[OtherDuration] = 30 * SECOND
POD_REMOVAL_POLL_INTERVAL: Final[OtherDuration] = 5 * SECOND
DEFAULT_GRACE_PERIOD_SECONDS: Final = 30


class DrainResult(msgspec.Struct, kw_only=True):
    """Result of a drain, by pod name (pods of two namespaces may share one, as upstream), and the error."""

    results: dict[str, PodEvictionResult] = {}
    error: AutoscalerError | None = None


class Evictor:
    """Evicts the pods of nodes. ``registered`` is called with every evicted pod and the time."""

    __slots__ = ("_config", "_full_daemon_sets", "_headroom", "_options", "_registered", "_retry")

    def __init__(
        self,
        options: AutoscalingOptions,
        registered: Callable[[Pod, Moment], None],
        *,
        config: Sequence[DrainPriority] | None = None,
        retry: int = EVICTION_RETRY_TIME,
        headroom: int = POD_EVICTION_HEADROOM,
    ) -> None:
        """Initialize the evictor. ``registered`` is called with every evicted pod and the time.

        ``config``: drain priorities with their seconds, lowest first (default: from the options). ``retry`` and
        ``headroom`` are in nanoseconds.
        """
        default_config, self._full_daemon_sets = get_drain_config(options)
        self._config = default_config if config is None else config
        self._options = options
        self._registered = registered
        self._retry = retry
        self._headroom = headroom

    def drain(
        self, p: Progress, node: str, pods: Iterable[Pod], *, force: bool = False
    ) -> StepsOf[DrainAction, DrainResult]:
        """Evict the pods of a node. DaemonSet pods may stay, unless the drain priorities are configured.

        ``force``: a pod that must leave and cannot be evicted is deleted. Mirror pods and fake pods are ignored. The
        result is that of :meth:`evict`.
        """
        daemon_set, others = get_pods_to_evict(
            pods, evict_daemon_sets=self._options.daemonset_eviction_for_occupied_nodes
        )
        if self._full_daemon_sets:
            return self.evict(p, node, [*others, *daemon_set], [], force=force)
        return self.evict(p, node, others, daemon_set, force=force)

    def evict_daemon_sets(self, p: Progress, node: str, pods: Iterable[Pod]) -> StepsOf[DrainAction, DrainResult]:
        """Evict the DaemonSet pods of an empty node, all of which may stay. The result has no pod and no error."""
        daemon_set, _ = get_pods_to_evict(pods, evict_daemon_sets=self._options.daemonset_eviction_for_empty_nodes)
        return self.evict(p, node, [], daemon_set)

    def evict(
        self, p: Progress, node: str, full: Sequence[Pod], best_effort: Sequence[Pod], *, force: bool = False
    ) -> StepsOf[DrainAction, DrainResult]:
        """Evict pods group by group, lowest priority first. The first group that fails ends the eviction.

        ``full``: pods that must leave the node; ``best_effort``: pods that may stay. ``force``: a ``full`` pod that
        cannot be evicted is deleted. The result has the outcome of each ``full`` pod by its name (also of the pods of
        later groups, whose eviction then counts as failed), and the error of the group that failed, if there is one.
        """
        groups = group_by_priority(self._config, full, best_effort)
        drain = DrainResult(results={})
        for group in groups:
            for pod in group.full:
                name = pod.metadata.name
                text = f"Eviction did not attempted for the pod {name} because some of the previous evictions failed"
                drain.results[name] = PodEvictionResult(pod=pod.key, error=text)
        for group in groups:
            if group.full or group.best_effort:
                drain.error = yield from self._evict_group(p, node, group, drain.results, force)
                if drain.error is None:
                    drain.error = yield from self._wait_until_deleted(p, node, group, drain.results)
                if drain.error is not None:
                    break
        return drain

    # -- one group ---------------------------------------------------------------------------------------------------

    def _evict_group(
        self, p: Progress, node: str, group: PodEvictionGroup, results: dict[str, PodEvictionResult], force: bool
    ) -> StepsOf[DrainAction, AutoscalerError | None]:
        """Evict the pods of one group at the same time, and write the results of its ``full`` pods to ``results``.

        ``force``: a ``full`` pod that cannot be evicted is deleted. Returns the error if the eviction of one of these
        failed, otherwise None.
        """
        until = p.now + duration(self._options.max_pod_eviction_time)
        evictions = yield from p.together(
            [
                *(partial(self._evict_pod, pod, until, group.seconds, full=True, force=force) for pod in group.full),
                *(
                    partial(self._evict_pod, pod, until, group.seconds, full=False, force=False)
                    for pod in group.best_effort
                ),
            ]
        )
        failed = []
        for pod, result in zip(group.full, evictions, strict=False):
            results[pod.metadata.name] = result
            outcome = "succeeded" if result.successful else "failed"
            yield from p.observe(build_observation("evicted_pods_total", eviction_result=outcome))
        for pod in group.full:
            result = results[pod.metadata.name]
            if not result.successful:
                failed.append(result.error or "<nil>")
        if not failed:
            return None
        text = f"Failed to drain node /{node}, due to following errors: [{' '.join(failed)}]"
        return AutoscalerError(API_CALL_ERROR, text)

    def _evict_pod(
        self, pod: Pod, until: Moment, seconds: int, now: Moment, *, full: bool, force: bool
    ) -> StepsOf[DrainAction, PodEvictionResult]:
        """Evict a pod with retries until ``until``; with ``force``, delete the pod if it was not evicted by then.

        A pod that does not exist counts as evicted.

        ``seconds``: longest grace period (0: no limit). ``full``: emit an event if the pod could not be evicted in
        time.
        """
        p = Progress(now)
        yield from p.emit(build_pod_event(pod, "Normal", "ScaleDown", "deleting pod for node scale down"))
        grace = pod.spec.termination_grace_period_seconds
        grace = DEFAULT_GRACE_PERIOD_SECONDS if grace is None else grace
        if seconds > 0:
            grace = min(grace, seconds)
        namespace, name = pod.metadata.namespace, pod.metadata.name
        eviction = Evict(namespace=namespace, name=name, grace_period_seconds=grace)
        while True:
            refusal = (yield from p.act(eviction)).error
            if refusal is None or refusal.is_not_found:
                self._registered(pod, p.now)
                return PodEvictionResult(pod=pod.key)
            yield from p.wait(self._retry)
            if p.now >= until:
                break
        if force:
            refusal = (yield from p.act(Delete(kind="Pod", namespace=namespace, name=name))).error
            if refusal is None:
                self._registered(pod, p.now)
                return PodEvictionResult(pod=pod.key)
            event_text = "failed to forcefully delete pod for ScaleDown"
            yield from p.emit(build_pod_event(pod, "Warning", "ScaleDownFailed", event_text))
            text = f"failed to forcefully delete unevicted pod {pod.key} (last error: {refusal.message})"
            return PodEvictionResult(pod=pod.key, error=text)
        if full:
            yield from p.emit(build_pod_event(pod, "Warning", "ScaleDownFailed", "failed to delete pod for ScaleDown"))
        text = f"failed to evict pod {pod.key} within allowed timeout (last error: {refusal.message})"
        return PodEvictionResult(pod=pod.key, timed_out=True, error=text)

    # -- waiting for deletion ----------------------------------------------------------------------------------------

    def _wait_until_deleted(
        self, p: Progress, node: str, group: PodEvictionGroup, results: dict[str, PodEvictionResult]
    ) -> StepsOf[DrainAction, AutoscalerError | None]:
        """Wait until the ``full`` pods of a group have left the node.

        Returns None then, otherwise the error after the timeout, with the state of each pod in ``results``.
        """
        until = p.now + group.seconds * SECOND + self._headroom
        while p.now < until:
            for pod in group.full:
                stays, error = yield from _check_pod_on_node(p, pod, node)
                if stays or error is not None:
                    break
            else:
                return None
            yield from p.wait(POD_REMOVAL_POLL_INTERVAL)
        for pod in group.full:
            stays, error = yield from _check_pod_on_node(p, pod, node)
            text = None if error is None else error.message
            timed_out = stays or error is not None
            results[pod.metadata.name] = PodEvictionResult(pod=pod.key, timed_out=timed_out, error=text)
        text = f"Failed to drain node /{node}: pods remaining after timeout"
        return AutoscalerError(TRANSIENT_ERROR, text)


def _check_pod_on_node(p: Progress, pod: Pod, node: str) -> StepsOf[Get, tuple[bool, ApiError | None]]:
    """Check whether the pod is still on the node: (True or False, None), or (False, error) if that is unknown.

    A pod of the same name on another node is a new pod.
    """
    outcome = yield from p.act(Get(kind="Pod", namespace=pod.metadata.namespace, name=pod.metadata.name))
    if outcome.error is not None:
        return False, None if outcome.error.is_not_found else outcome.error
    return outcome.value.spec.node_name == node, None
