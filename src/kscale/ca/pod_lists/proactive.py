"""Pods that controllers have not made yet, with ``--enable-proactive-scaleup`` (``processors/podinjection``).

Upstream also keeps a back-off of controllers whose pods stayed without a place, but looks for it under another key than
it writes it: it never has an effect, and is not here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kscale.effects import from_text
from kscale.objects.apps import ReplicaSet, StatefulSet
from kscale.objects.batch import Job
from kscale.objects.conditions import find
from kscale.objects.core import Pod
from kscale.objects.meta import KubeObject
from kscale.objects.owners import controller_of

__all__ = ["desired_pods", "is_gated", "missing_pods", "within_limit"]


class _Owned(msgspec.Struct):
    desired: int
    count: int = 0
    sample: Pod | None = None


def desired_pods(controller: KubeObject) -> int | None:
    """How many pods a controller wants to have at a time; None for one that makes them in another way."""
    if isinstance(controller, Job):
        return _desired_of_job(controller)
    if not isinstance(controller, ReplicaSet | StatefulSet):
        return None
    if isinstance(controller, StatefulSet) and controller.spec.pod_management_policy != "Parallel":
        return None
    return 1 if controller.spec.replicas is None else controller.spec.replicas


def _desired_of_job(job: Job) -> int:
    parallelism, completions, succeeded = job.spec.parallelism, job.spec.completions, job.status.succeeded
    if completions is None and parallelism is not None and parallelism >= 0 and succeeded == 0:
        return parallelism
    left = (1 if completions is None else completions) - succeeded
    return max(0, min(left, 1 if parallelism is None else parallelism))


def is_gated(pod: Pod) -> bool:
    """Whether the scheduler says that gates hold it."""
    condition = find(pod.status.conditions, "PodScheduled")
    return condition is not None and condition.status == "False" and condition.reason == "SchedulingGated"


def missing_pods(controllers: Iterable[KubeObject], pods: Iterable[Pod]) -> list[Pod]:
    """What controllers with at least one pod lack, as copies of their newest pod, in the order of the controllers.

    ``pods``: on nodes, unschedulable, and gated ones; one that has gates counts when the scheduler has said so.
    """
    owned: dict[str, _Owned] = {}
    for controller in controllers:
        desired = desired_pods(controller)
        if desired is not None:
            owned[controller.metadata.uid] = _Owned(desired)
    for pod in pods:
        owner = controller_of(pod.metadata)
        group = None if owner is None else owned.get(owner.uid)
        if group is None or (pod.spec.scheduling_gates and not is_gated(pod)):
            continue
        group.count += 1
        if group.sample is None or _made(pod) > _made(group.sample):
            group.sample = pod
    return [
        _copy(group.sample, uid, number)
        for uid, group in owned.items()
        if group.sample is not None
        for number in range(1, group.desired - group.count + 1)
    ]


def _made(pod: Pod) -> int:
    return from_text(pod.metadata.creation_timestamp)


def _copy(sample: Pod, owner: str, number: int) -> Pod:
    metadata = replace(
        sample.metadata,
        name=f"{sample.metadata.name}-copy-{number}",
        uid=f"{owner}-{number}",
        annotations={**(sample.metadata.annotations or {}), "podtype": "fakepod"},
    )
    return replace(sample, metadata=metadata, spec=replace(sample.spec, node_name=""))


def within_limit(pods: Sequence[str], made_up: Collection[str], limit: int) -> NDArray[np.int64]:
    """Which pods stay (positions): beyond ``limit`` (``--pod-injection-limit``) the first of those made up go."""
    gone = len(pods) - limit
    kept = []
    for at, pod in enumerate(pods):
        if gone > 0 and pod in made_up:
            gone -= 1
        else:
            kept.append(at)
    return np.array(kept, dtype=np.int64)
