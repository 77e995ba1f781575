"""The pods of buffers among those that need nodes (``processors/capacitybuffer/pod_list_processor.go``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from kscale.ca.capacity_buffers.conditions import ACTIVE_STRATEGY, PROVISIONING, READY, marked, missing_template
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists.expendable import without_expendable
from kscale.ca.pod_lists.split import split
from kscale.ca.pod_lists.waiting import WaitingPods
from kscale.ca.simulated import without_uncounted_pods
from kscale.effects import Moment, Progress, StepsOf, WriteStatus, as_if_done, moment
from kscale.objects.capacity_buffers import CapacityBuffer
from kscale.objects.conditions import find, is_true
from kscale.objects.core import Pod, PodStatus, PodTemplate, PodTemplateSpec
from kscale.objects.meta import ObjectMeta, OwnerReference
from kscale.scheduling.place import place
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.snapshot import Snapshot

__all__ = ["BufferPods", "buffer_pods_steps", "place_buffer_pods"]

_API_VERSION: Final = "autoscaling.x-k8s.io/v1beta1"


class BufferPods(msgspec.Struct, kw_only=True):
    """Pods to put behind those that need nodes, before the rules for lists of pods are asked.

    ``buffers``: the buffer of each pod by the pod's uid; ``warnings``: what upstream only logs.
    """

    pods: list[Pod] = []
    buffers: dict[str, CapacityBuffer] = {}
    warnings: list[str] = []


def buffer_pods_steps(
    buffers: Iterable[CapacityBuffer],
    templates: Mapping[str, PodTemplate],
    *,
    now: Moment,
    strategies: Collection[str] = (ACTIVE_STRATEGY,),
    safe_to_evict: bool = True,
) -> StepsOf[WriteStatus, BufferPods]:
    """The pods of every buffer that may be provided, and what is said of it in its status.

    ``templates`` by ``namespace/name``. A buffer counts if its strategy is among ``strategies``, if it is ready or
    provided already, and if its template has not changed since; a status that could not be written stops nothing.
    """
    p, found = Progress(moment(now)), BufferPods()
    for buffer in buffers:
        status = buffer.status
        if status.provisioning_strategy not in strategies or not _wanted(buffer) or _changed(buffer, templates):
            continue
        template = None
        if status.pod_template_ref is not None:
            template = templates.get(f"{buffer.namespace}/{status.pod_template_ref.name}")
        problem = _problem(buffer, template)
        if problem is not None:
            written = marked(buffer, PROVISIONING, False, problem[0], p.now, problem[1])
            if written is not buffer:
                yield from _write(p, written, found)
            continue
        assert template is not None
        assert status.replicas is not None
        for pod in _pods(buffer, template.template, status.replicas, safe_to_evict):
            found.pods.append(pod)
            found.buffers[pod.metadata.uid] = buffer
        yield from _write(p, marked(buffer, PROVISIONING, True, "FakePodsInjected", p.now), found)
    return found


def place_buffer_pods(
    snapshot: Snapshot, *, now: Moment, options: AutoscalingOptions, profile: SchedulerProfile | None = None
) -> Snapshot:
    """Return the snapshot with the pods of capacity buffers on the nodes where they fit.

    A loop does so before its scale-down: unschedulable pods find a place first, then those of buffers, by priority.
    What fits nowhere is left out.
    """
    informers = snapshot.informers
    found = as_if_done(buffer_pods_steps(informers.capacity_buffers, informers.pod_templates, now=now), now=now).value
    counted = without_uncounted_pods(snapshot, options)
    waiting = WaitingPods.of(counted.pending_records)
    lists = split(waiting.in_play, bypassed=options.bypassed_scheduler_names, allowed=options.allowed_scheduler_names)
    unschedulable = waiting.take(np.flatnonzero(waiting.among([*lists.unschedulable, *lists.unprocessed])))
    needed = unschedulable.followed_by(found.pods)
    needed = needed.kept_by(lambda pods: without_expendable(pods, options.expendable_pods_priority_cutoff))
    return place(counted, needed.records, profile=profile).snapshot_after


def _wanted(buffer: CapacityBuffer) -> bool:
    return any(is_true(buffer.status.conditions, type_) for type_ in (READY, PROVISIONING))


def _changed(buffer: CapacityBuffer, templates: Mapping[str, PodTemplate]) -> bool:
    reference, generation = buffer.status.pod_template_ref, buffer.status.pod_template_generation
    if reference is None or generation is None:
        return False
    template = templates.get(f"{buffer.namespace}/{reference.name}")
    return template is not None and (template.metadata.generation or 0) != generation


def _problem(buffer: CapacityBuffer, template: PodTemplate | None) -> tuple[str, str] | None:
    """Why it cannot be provided: reason and message."""
    status = buffer.status
    ready = find(status.conditions, READY)
    if status.pod_template_ref is None or status.replicas is None or (ready is not None and ready.status == "False"):
        return "NotReadyForProvisioning", "CapacityBuffer is not ready for provisioning"
    if status.replicas == 0:
        return "BufferIsEmpty", "CapacityBuffer has zero replicas"
    if template is None:
        missing = missing_template(status.pod_template_ref)
        return "FailedToGetPodTemplate", f"failed to get pod template with error: {missing}"
    return None


def _write(p: Progress, buffer: CapacityBuffer, found: BufferPods) -> StepsOf[WriteStatus, None]:
    error = (yield from p.act(WriteStatus(buffer))).error
    if error is not None:
        found.warnings.append(f"Failed to update buffer status for buffer {buffer.name}, error: {error.message}")


def _pods(buffer: CapacityBuffer, template: PodTemplateSpec, count: int, safe_to_evict: bool) -> Iterable[Pod]:
    annotations = {**(template.metadata.annotations or {}), "podType": "capacityBufferFakePod"}
    if safe_to_evict:
        annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] = "true"
    owner = OwnerReference(
        api_version=buffer.api_version or _API_VERSION,
        kind="CapacityBuffer",
        name=buffer.name,
        uid=buffer.metadata.uid,
        controller=True,
    )
    spec = replace(template.spec, node_name="")
    for number in range(1, count + 1):
        metadata = ObjectMeta(
            name=f"capacity-buffer-{buffer.name}-{number}",
            namespace=buffer.namespace,
            uid=f"{buffer.metadata.uid}-{number}",
            labels=template.metadata.labels,
            annotations=annotations,
            owner_references=[owner],
            finalizers=template.metadata.finalizers,
        )
        yield Pod(api_version="v1", kind="Pod", metadata=metadata, spec=spec, status=PodStatus())
