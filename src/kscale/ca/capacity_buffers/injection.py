"""Inject the fake pods of buffers into a loop, and emit events for their buffers (upstream:
``processors/capacitybuffer``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from kscale.ca.capacity_buffers.controller import (
    ACTIVE_PROVISIONING_STRATEGY,
    PROVISIONING_CONDITION,
    READY_FOR_PROVISIONING_CONDITION,
    format_missing_template,
    set_buffer_condition,
)
from kscale.ca.events import PodUidLookup
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists import PendingPodList, drop_uncounted_pods, filter_out_expendable_pods, split_pods
from kscale.ca.scale_up_status import (
    MAX_NODES_TOTAL_REASON,
    SCALE_UP_ERROR,
    SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL,
    SCALE_UP_SUCCESSFUL,
    ScaleUpStatus,
    build_scale_up_events,
    format_not_triggered_reasons,
)
from kscale.effects import Deferred, Event, Moment, Progress, StepsOf, WriteStatus, moment, run_dry
from kscale.objects.api.cluster_autoscaler import CapacityBuffer
from kscale.objects.api.core import ObjectReference, Pod, PodStatus, PodTemplate, PodTemplateSpec
from kscale.objects.api.meta import ObjectMeta, OwnerReference
from kscale.objects.conditions import find, is_true
from kscale.scheduling.place import place
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "InjectedBufferPods",
    "InjectedFakePods",
    "build_buffer_events",
    "inject_buffer_pods_steps",
    "place_buffer_pods",
]


def build_buffer_events(status: ScaleUpStatus, buffers: Mapping[str, CapacityBuffer]) -> list[Event]:
    """Build the events about buffers after a scale-up: whether their fake pods triggered the scale-up.

    ``buffers`` maps each injected pod (``namespace/name``) to its buffer; if it is empty, there are no events. Buffers
    whose pods remain unschedulable get an event only if the scale-up neither succeeded nor failed. These events come
    first. Buffers are in the order of their first pods.
    """
    events: list[Event] = []
    if not buffers:
        return events
    by_key = {buffer.key: buffer for buffer in buffers.values()}
    if status.result not in (SCALE_UP_SUCCESSFUL, SCALE_UP_ERROR):
        existing = {group.id for group in status.considered_groups if group.exists}
        reasons: dict[str, list[str]] = {}
        for pod in status.pods_remain_unschedulable:
            if pod.pod not in buffers:
                continue
            limited = status.result == SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL
            why = MAX_NODES_TOTAL_REASON if limited else ", ".join(format_not_triggered_reasons(pod, existing))
            reasons.setdefault(buffers[pod.pod].key, []).append(why)
        for key, pod_reasons in reasons.items():
            text = f"capacity buffer {len(pod_reasons)} fake pods didn't trigger scale-up: {','.join(pod_reasons)}"
            events.append(_build_buffer_event(by_key[key], "NotTriggerScaleUp", text))
    if status.scale_ups:
        plan = " ".join(map(str, status.scale_ups))
        triggered = Counter(buffers[name].key for name in status.pods_triggered if name in buffers)
        for key, count in triggered.items():
            text = f"capacity buffer {count} fake pods triggered scale-up: [{plan}]"
            events.append(_build_buffer_event(by_key[key], "TriggeredScaleUp", text))
    return events


def _build_buffer_event(buffer: CapacityBuffer, reason: str, message: str) -> Event:
    """Build an event about a buffer."""
    about = ObjectReference(
        api_version=buffer.api_version,
        kind="CapacityBuffer",
        namespace=buffer.namespace,
        name=buffer.name,
        uid=buffer.metadata.uid,
    )
    return Event(regarding=about, type="Normal", reason=reason, message=message)


class InjectedFakePods(msgspec.Struct, kw_only=True, frozen=True):
    """Keys (``namespace/name``) of simulated pods in a loop, which do not exist in the cluster.

    ``missing``: pods that controllers have not created yet; ``buffers``: pods of capacity buffers, with their buffers.
    """

    missing: frozenset[str] = frozenset()
    buffers: Mapping[str, CapacityBuffer] = {}

    def __contains__(self, pod: str) -> bool:
        return pod in self.missing or pod in self.buffers

    def __bool__(self) -> bool:
        return bool(self.missing or self.buffers)

    def without(self, status: ScaleUpStatus) -> ScaleUpStatus:
        """Return a copy of the status without fake pods; ``status`` itself if no fake pods were injected."""
        if not self:
            return status
        return replace(
            status,
            pods_triggered=Deferred(lambda: [pod for pod in status.pods_triggered if pod not in self]),
            pods_await_evaluation=Deferred(lambda: [pod for pod in status.pods_await_evaluation if pod not in self]),
            pods_remain_unschedulable=Deferred(
                lambda: [pod for pod in status.pods_remain_unschedulable if pod.pod not in self]
            ),
        )

    def events(self, status: ScaleUpStatus, uid_of: PodUidLookup) -> list[Event]:
        """Build the events of a scale-up: first about the buffers of fake pods, then about the real pods.

        ``uid_of`` returns the UID of a pod by its key (``namespace/name``).
        """
        return [*build_buffer_events(status, self.buffers), *build_scale_up_events(self.without(status), uid_of=uid_of)]


_BUFFER_API_VERSION: Final = "autoscaling.x-k8s.io/v1beta1"


class InjectedBufferPods(msgspec.Struct, kw_only=True):
    """Fake pods to append to the pending pods before the pod list processors run.

    ``buffers``: the buffer of each pod by the pod's uid; ``warnings``: what upstream only logs.
    """

    pods: list[Pod] = []
    buffers: dict[str, CapacityBuffer] = {}
    warnings: list[str] = []


def inject_buffer_pods_steps(
    buffers: Iterable[CapacityBuffer],
    templates: Mapping[str, PodTemplate],
    *,
    now: Moment,
) -> StepsOf[WriteStatus, InjectedBufferPods]:
    """Build the fake pods of every provisionable buffer, and write the Provisioning condition of buffers.

    A buffer counts if its strategy is active provisioning, if it is ready or already provisioned, and if its template
    (``templates``: by ``namespace/name``) still has the generation that the buffer's status names; other buffers are
    left alone. For a buffer whose pods can be built, the condition is written as True in every loop. Otherwise there
    are no pods, and the condition is written as False, unless the status says so already. The pods are annotated so
    that they do not block a scale-down. The result has the pods and their buffers, and a warning for each failed status
    write.
    """
    p, injected = Progress(moment(now)), InjectedBufferPods()
    for buffer in buffers:
        status = buffer.status
        if (
            status.provisioning_strategy != ACTIVE_PROVISIONING_STRATEGY
            or not _is_provisionable(buffer)
            or _has_template_changed(buffer, templates)
        ):
            continue
        template = None
        if status.pod_template_ref is not None:
            template = templates.get(f"{buffer.namespace}/{status.pod_template_ref.name}")
        problem = _find_provisioning_problem(buffer, template)
        if problem is not None:
            written = set_buffer_condition(buffer, PROVISIONING_CONDITION, False, problem[0], p.now, problem[1])
            if written is not buffer:
                yield from _write_buffer_status(p, written, injected)
            continue
        assert template is not None
        assert status.replicas is not None
        for pod in _build_buffer_pods(buffer, template.template, status.replicas):
            injected.pods.append(pod)
            injected.buffers[pod.metadata.uid] = buffer
        yield from _write_buffer_status(
            p, set_buffer_condition(buffer, PROVISIONING_CONDITION, True, "FakePodsInjected", p.now), injected
        )
    return injected


def place_buffer_pods(
    snapshot: Snapshot, *, now: Moment, options: AutoscalingOptions, profile: SchedulerProfile | None = None
) -> Snapshot:
    """Return the snapshot with unschedulable pods and pods of capacity buffers on the nodes where they fit.

    A loop simulates its scale-down on this snapshot. Unschedulable pods are placed first, then pods of buffers, by
    priority. Three kinds of pods are left out: expendable pods, pods that fit nowhere, and pods that
    :func:`drop_uncounted_pods` removes.
    """
    informers = snapshot.informers
    injected = run_dry(
        inject_buffer_pods_steps(informers.capacity_buffers, informers.pod_templates, now=now), now=now
    ).value
    counted = drop_uncounted_pods(snapshot, options)
    waiting = PendingPodList.of(counted.pending_records)
    lists = split_pods(
        waiting.present_examples, bypassed=options.bypassed_scheduler_names, allowed=options.allowed_scheduler_names
    )
    unschedulable = waiting.take(np.flatnonzero(waiting.among([*lists.unschedulable, *lists.unprocessed])))
    needed = unschedulable.followed_by(injected.pods)
    needed = needed.filter_by(lambda pods: filter_out_expendable_pods(pods, options.expendable_pods_priority_cutoff))
    return place(counted, needed.records, profile=profile).snapshot_after


def _is_provisionable(buffer: CapacityBuffer) -> bool:
    """Check whether the buffer has a true condition ``ReadyForProvisioning`` or ``Provisioning``."""
    return any(
        is_true(buffer.status.conditions, type_) for type_ in (READY_FOR_PROVISIONING_CONDITION, PROVISIONING_CONDITION)
    )


def _has_template_changed(buffer: CapacityBuffer, templates: Mapping[str, PodTemplate]) -> bool:
    """Check whether the template's generation differs from the one in the buffer's status.

    False if the template or the generation in the status is missing.
    """
    reference, generation = buffer.status.pod_template_ref, buffer.status.pod_template_generation
    if reference is None or generation is None:
        return False
    template = templates.get(f"{buffer.namespace}/{reference.name}")
    return template is not None and (template.metadata.generation or 0) != generation


def _find_provisioning_problem(buffer: CapacityBuffer, template: PodTemplate | None) -> tuple[str, str] | None:
    """Return reason and message why a buffer cannot be provisioned; None if it can."""
    status = buffer.status
    ready = find(status.conditions, READY_FOR_PROVISIONING_CONDITION)
    if status.pod_template_ref is None or status.replicas is None or (ready is not None and ready.status == "False"):
        return "NotReadyForProvisioning", "CapacityBuffer is not ready for provisioning"
    if status.replicas == 0:
        return "BufferIsEmpty", "CapacityBuffer has zero replicas"
    if template is None:
        missing = format_missing_template(status.pod_template_ref)
        return "FailedToGetPodTemplate", f"failed to get pod template with error: {missing}"
    return None


def _write_buffer_status(
    p: Progress, buffer: CapacityBuffer, injected: InjectedBufferPods
) -> StepsOf[WriteStatus, None]:
    """Write the buffer's status. A failure adds a warning to ``injected``."""
    error = (yield from p.act(WriteStatus(buffer))).error
    if error is not None:
        injected.warnings.append(f"Failed to update buffer status for buffer {buffer.name}, error: {error.message}")


def _build_buffer_pods(buffer: CapacityBuffer, template: PodTemplateSpec, count: int) -> Iterable[Pod]:
    """Yield ``count`` fake pods of the template whose owner is the buffer. They do not block a scale-down."""
    annotations = {
        **(template.metadata.annotations or {}),
        "podType": "capacityBufferFakePod",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
    }
    owner = OwnerReference(
        api_version=buffer.api_version or _BUFFER_API_VERSION,
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
