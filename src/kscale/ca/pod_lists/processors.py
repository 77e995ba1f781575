"""Pod list processors of a scale-up: filter-out-schedulable, DaemonSet pods, new pods, pods of drained nodes,
proactive scale-up (upstream: ``core/podlistprocessor``, ``processors/podinjection``).

Upstream looks up the back-off of controllers whose fake pods stay unschedulable under another key than it stores it,
so it never has an effect; it is omitted here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kscale.effects import Moment, from_text
from kscale.objects.api.apps import Job, ReplicaSet, StatefulSet
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import KubeObject
from kscale.objects.conditions import find
from kscale.objects.names import go_quote
from kscale.objects.pod_owners import (
    SCALE_UP_DELAY,
    controller_of,
    is_daemonset_pod,
    is_mirror_pod,
    is_static_pod,
    pod_annotation,
)
from kscale.objects.times import format_duration, parse_duration
from kscale.scheduling.place import place as filter_out_schedulable

__all__ = [
    "DrainedPodsResult",
    "PodAgeResult",
    "add_drained_pods",
    "build_missing_pods",
    "enforce_injection_limit",
    "filter_out_daemon_set_pods",
    "filter_out_schedulable",
    "filter_out_young_pods",
    "get_desired_pod_count",
    "is_recreatable",
    "is_scheduling_gated",
]


def filter_out_daemon_set_pods(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods that no DaemonSet owns, in order."""
    return [pod for pod in pods if not is_daemonset_pod(pod)]


class PodAgeResult(msgspec.Struct, kw_only=True):
    """Pods that are old enough, those that are not, and what was logged about annotations."""

    pods: list[Pod] = []
    young: list[Pod] = []
    warnings: list[str] = []


def filter_out_young_pods(pods: Iterable[Pod], now: Moment, delay: int = 0) -> PodAgeResult:
    """Separate pods whose delay since creation has passed from younger ones.

    ``delay`` is in nanoseconds. A pod's annotation may lengthen it; a shorter or invalid one is ignored. With delay 0,
    a pod created exactly at ``now`` is still young.
    """
    result = PodAgeResult()
    for pod in pods:
        own = _get_scale_up_delay(pod, delay, result.warnings)
        old = now - from_text(pod.metadata.creation_timestamp) > own
        (result.pods if old else result.young).append(pod)
    return result


def _get_scale_up_delay(pod: Pod, common: int, warnings: list[str]) -> int:
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
    """Check whether the pod would be created again elsewhere. Pods without controller count as recreatable."""
    return not (is_static_pod(pod) or is_mirror_pod(pod) or is_daemonset_pod(pod))


def add_drained_pods(
    pods: Sequence[Pod], draining: Iterable[str], pods_on: Callable[[str], Iterable[Pod] | None]
) -> DrainedPodsResult:
    """Return the pods, followed by copies without node of the pods on nodes being drained.

    Pods being deleted are left out. ``pods_on`` returns the pods of a node, or None if the node does not exist, which
    becomes a warning.
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
    counts once the scheduler has reported it as gated.
    """
    owned: dict[str, _ControllerPods] = {}
    for controller in controllers:
        desired = get_desired_pod_count(controller)
        if desired is not None:
            owned[controller.metadata.uid] = _ControllerPods(desired)
    for pod in pods:
        owner = controller_of(pod.metadata)
        group = None if owner is None else owned.get(owner.uid)
        if group is None or (pod.spec.scheduling_gates and not is_scheduling_gated(pod)):
            continue
        group.count += 1
        if group.sample is None or _parse_creation_time(pod) > _parse_creation_time(group.sample):
            group.sample = pod
    return [
        _copy_sample_pod(group.sample, uid, number)
        for uid, group in owned.items()
        if group.sample is not None
        for number in range(1, group.desired - group.count + 1)
    ]


def _parse_creation_time(pod: Pod) -> int:
    return from_text(pod.metadata.creation_timestamp)


def _copy_sample_pod(sample: Pod, owner: str, number: int) -> Pod:
    metadata = replace(
        sample.metadata,
        name=f"{sample.metadata.name}-copy-{number}",
        uid=f"{owner}-{number}",
        annotations={**(sample.metadata.annotations or {}), "podtype": "fakepod"},
    )
    return replace(sample, metadata=metadata, spec=replace(sample.spec, node_name=""))


def enforce_injection_limit(pods: Sequence[str], fake_pods: Collection[str], limit: int) -> NDArray[np.int64]:
    """Return the positions of the pods to keep under ``limit`` (``--pod-injection-limit``), int64[n].

    As many as exceed the limit are dropped, starting with the first fake pods (``fake_pods``). Other pods are kept.
    """
    excess = len(pods) - limit
    positions = []
    for at, pod in enumerate(pods):
        if excess > 0 and pod in fake_pods:
            excess -= 1
        else:
            positions.append(at)
    return np.array(positions, dtype=np.int64)
