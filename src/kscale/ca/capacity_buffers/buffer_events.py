"""What a scale-up says of the pods of buffers (``processors/capacitybuffer/scale_up_status_processor.go``)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

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

__all__ = ["ToldBuffers", "tell_buffers"]


class ToldBuffers(msgspec.Struct, kw_only=True, frozen=True):
    """The status without pods of buffers, and the events about the buffers, in the order of their first pods."""

    status: ScaleUpStatus
    events: list[Event]


def tell_buffers(status: ScaleUpStatus, buffers: Mapping[str, CapacityBuffer]) -> ToldBuffers:
    """``buffers``: the buffer of each pod that was injected, by the pod's ``namespace/name``."""
    events: list[Event] = []
    remaining = [pod for pod in status.pods_remain_unschedulable if pod.pod in buffers]
    if status.result not in (SUCCESSFUL, ERROR):
        existing = {group.id for group in status.considered_groups if group.exists}
        reasons: dict[str, list[str]] = {}
        for pod in remaining:
            limited = status.result == LIMITED_BY_MAX_NODES_TOTAL
            why = MAX_NODES_REACHED if limited else ", ".join(not_triggered_parts(pod, existing))
            reasons.setdefault(buffers[pod.pod].key, []).append(why)
        by_key = {buffer.key: buffer for buffer in buffers.values()}
        for key, found in reasons.items():
            text = f"capacity buffer {len(found)} fake pods didn't trigger scale-up: {','.join(found)}"
            events.append(_event(by_key[key], "NotTriggerScaleUp", text))
    triggered = [buffers[name] for name in status.pods_triggered if name in buffers]
    if status.scale_ups:
        plan = " ".join(map(str, status.scale_ups))
        for key in dict.fromkeys(buffer.key for buffer in triggered):
            of_key = [buffer for buffer in triggered if buffer.key == key]
            text = f"capacity buffer {len(of_key)} fake pods triggered scale-up: [{plan}]"
            events.append(_event(of_key[0], "TriggeredScaleUp", text))
    kept = replace(
        status,
        pods_triggered=[name for name in status.pods_triggered if name not in buffers],
        pods_await_evaluation=[name for name in status.pods_await_evaluation if name not in buffers],
        pods_remain_unschedulable=[pod for pod in status.pods_remain_unschedulable if pod.pod not in buffers],
    )
    return ToldBuffers(status=kept, events=events)


def _event(buffer: CapacityBuffer, reason: str, message: str) -> Event:
    about = ObjectReference(
        api_version=buffer.api_version,
        kind="CapacityBuffer",
        namespace=buffer.namespace,
        name=buffer.name,
        uid=buffer.metadata.uid,
    )
    return Event(regarding=about, type="Normal", reason=reason, message=message)
