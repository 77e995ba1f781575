"""Whether a loop tries to scale up at all (``shouldScaleUp`` in ``core/static_autoscaler.go``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from kscale.ca.event_subjects import status_event
from kscale.ca.gpu import pod_requests_gpu
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists.degradation import is_reserved_for_scale_down
from kscale.ca.scale_up.status import IN_COOLDOWN, LIMITED_BY_MAX_NODES_TOTAL, NOT_NEEDED
from kscale.effects import SECOND, Event, Moment, from_text
from kscale.effects.moments import ComparedDuration
from kscale.objects.core import Pod

__all__ = ["Gate", "all_new", "should_scale_up"]

NEW_FOR: Final[ComparedDuration] = 2 * SECOND
GPU_NEW_FOR: Final[ComparedDuration] = 30 * SECOND


class Gate(msgspec.Struct, kw_only=True, frozen=True):
    """``result`` is empty if the loop goes on, else what it ends with.

    ``scale_down_disabled``: more pods may be on their way, so this loop removes no node either.
    """

    result: str = ""
    events: tuple[Event, ...] = ()
    scale_down_disabled: bool = False


def all_new(pods: Iterable[Pod], now: Moment) -> bool:
    """Whether more pods may be on their way: the oldest is not yet two seconds old, or the oldest that asks for a GPU
    not yet thirty."""
    ages = [(from_text(pod.metadata.creation_timestamp), pod) for pod in pods]
    if not ages:
        return False
    if min(made for made, _ in ages) + NEW_FOR > now:
        return True
    gpu = [made for made, pod in ages if pod_requests_gpu(pod)]
    return bool(gpu) and min(gpu) + GPU_NEW_FOR > now


def should_scale_up(
    pods: Sequence[Pod],
    *,
    ready_nodes: int,
    now: Moment,
    options: AutoscalingOptions,
    degraded_loops: int = 0,
    enforced: bool = False,
) -> Gate:
    """The first rule that stops the loop.

    ``enforced``: an enforcer wants the scale-up whatever the other rules say. A degraded loop that is reserved for
    scale-down says so whatever else holds: ``degraded_loops`` counts loops that ran out of time, in a row, this one
    included.
    """
    gate = _gate(pods, ready_nodes, now, options)
    if is_reserved_for_scale_down(degraded_loops, options):
        return replace(gate, result=IN_COOLDOWN)
    return replace(gate, result="") if enforced else gate


def _gate(pods: Sequence[Pod], ready_nodes: int, now: Moment, options: AutoscalingOptions) -> Gate:
    if not pods:
        return Gate(result=NOT_NEEDED)
    if 0 < options.max_nodes_total <= ready_nodes:
        text = f"Max total nodes in cluster reached: {options.max_nodes_total}"
        event = status_event(options, "Warning", "MaxNodesTotalReached", text)
        return Gate(result=LIMITED_BY_MAX_NODES_TOTAL, events=(event,))
    if not options.bypassed_scheduler_names and all_new(pods, now):
        return Gate(result=IN_COOLDOWN, scale_down_disabled=True)
    return Gate()
