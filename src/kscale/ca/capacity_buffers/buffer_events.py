"""What a scale-up says of the pods of buffers (``processors/capacitybuffer/scale_up_status_processor.go``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kscale.ca.scale_up.status import (
    ERROR,
    LIMITED_BY_MAX_NODES_TOTAL,
    MAX_NODES_REACHED,
    SUCCESSFUL,
    ScaleUpStatus,
    not_triggered_parts,
)
from kscale.effects import Event
from kscale.objects.capacity_buffers import CapacityBuffer
from kscale.objects.core import ObjectReference

__all__ = ["buffer_events"]


def buffer_events(status: ScaleUpStatus, buffers: Mapping[str, CapacityBuffer]) -> list[Event]:
    """The events about the buffers, in the order of their first pods.

    ``buffers``: the buffer of each pod that was injected, by the pod's ``namespace/name``.
    """
    events: list[Event] = []
    if not buffers:
        return events
    by_key = {buffer.key: buffer for buffer in buffers.values()}
    if status.result not in (SUCCESSFUL, ERROR):
        existing = {group.id for group in status.considered_groups if group.exists}
        reasons: dict[str, list[str]] = {}
        for pod in status.pods_remain_unschedulable:
            if pod.pod not in buffers:
                continue
            limited = status.result == LIMITED_BY_MAX_NODES_TOTAL
            why = MAX_NODES_REACHED if limited else ", ".join(not_triggered_parts(pod, existing))
            reasons.setdefault(buffers[pod.pod].key, []).append(why)
        for key, found in reasons.items():
            text = f"capacity buffer {len(found)} fake pods didn't trigger scale-up: {','.join(found)}"
            events.append(_event(by_key[key], "NotTriggerScaleUp", text))
    if status.scale_ups:
        plan = " ".join(map(str, status.scale_ups))
        triggered = Counter(buffers[name].key for name in status.pods_triggered if name in buffers)
        for key, count in triggered.items():
            text = f"capacity buffer {count} fake pods triggered scale-up: [{plan}]"
            events.append(_event(by_key[key], "TriggeredScaleUp", text))
    return events


def _event(buffer: CapacityBuffer, reason: str, message: str) -> Event:
    about = ObjectReference(
        api_version=buffer.api_version,
        kind="CapacityBuffer",
        namespace=buffer.namespace,
        name=buffer.name,
        uid=buffer.metadata.uid,
    )
    return Event(regarding=about, type="Normal", reason=reason, message=message)
