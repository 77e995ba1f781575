"""Whether a loop tries to scale up at all: enforcers, graceful degradation, new pods (upstream: ``shouldScaleUp`` in
``core/static_autoscaler.go``).

With ``--enable-graceful-degradation`` a loop considers pending pods only for ``--pending-pods-batching-timeout``.
Loops in a row that ran out of time are counted in :class:`~kscale.ca.state.loop_state.ScaleUpState`. Meanwhile one loop
of four is reserved for scale-down. :func:`kscale.ca.filter_out_schedulable` finds the pods that fit on existing nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from kscale.ca.events import build_status_events
from kscale.ca.gpu import pod_requests_gpu
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_up_status import SCALE_UP_IN_COOLDOWN, SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL, SCALE_UP_NOT_NEEDED
from kscale.effects import SECOND, Event, Moment, from_text
from kscale.effects.moments import ComparedDuration
from kscale.objects.api.core import Pod
from kscale.objects.argument_types import typed
from kscale.objects.pod_owners import (
    CONSUME_PROVISIONING_REQUEST,
    DEPRECATED_CONSUME_PROVISIONING_REQUEST,
    pod_annotation,
)

__all__ = [
    "CONSUME_ANNOTATIONS",
    "ScaleUpEnforcer",
    "ScaleUpGate",
    "are_all_pods_new",
    "can_scale_down",
    "get_max_looks",
    "has_provisioning_request_consumer",
    "is_reserved_for_scale_down",
    "should_scale_up",
    "update_degradation_counter",
]


ScaleUpEnforcer = Callable[[Sequence[Pod]], bool]
"""Asked about the pods that need nodes; True: scale up whatever else stands against it."""

CONSUME_ANNOTATIONS: Final = (CONSUME_PROVISIONING_REQUEST, DEPRECATED_CONSUME_PROVISIONING_REQUEST)


@typed
def has_provisioning_request_consumer(pods: Iterable[Pod]) -> bool:
    """The enforcer of provisioning requests: some pod says, in the new form or the old one, that it consumes one."""
    return any(pod_annotation(pod, key) is not None for pod in pods for key in CONSUME_ANNOTATIONS)


_STARTED_TEXT: Final = (
    "Autoscaler is unable to handle the large amount of unschedulable pods. Consider reducing the rate of adding new "
    "pods, so autoscaler could auto recover."
)
_STOPPED_TEXT: Final = "Autoscaler exited from GracefulDegradationMode and works normally."
_SCALE_DOWN_LOOP_PERIOD: Final = 4
"""Of so many degraded loops one belongs to scale-down."""


def get_max_looks(options: AutoscalingOptions, max_looks: int | None) -> int | None:
    """How many looks at pods there is time for (None: for all); none if the time-out is over before it begins.

    ``max_looks`` is what the caller says there is time for: it counts where there is a time-out.
    """
    if not options.enable_graceful_degradation:
        return None
    return 0 if options.pending_pods_batching_timeout <= timedelta() else max_looks


def update_degradation_counter(counter: int, unprocessed: int, options: AutoscalingOptions) -> tuple[int, list[Event]]:
    """The counter of loops that ran out of time, and the event of the first such loop and of the first good one.

    Only asked where graceful degradation is enabled; ``unprocessed`` is how many pods were not looked at.
    """
    if unprocessed > 0:
        status_events = build_status_events(options, "Warning", "GracefulDegradationStarted", _STARTED_TEXT)
        return counter + 1, status_events if counter == 0 else []
    status_events = build_status_events(options, "Normal", "GracefulDegradationStopped", _STOPPED_TEXT)
    return 0, status_events if counter > 0 else []


def is_reserved_for_scale_down(counter: int, options: AutoscalingOptions) -> bool:
    """Whether a loop that may be degraded leaves scale-up out."""
    return options.enable_graceful_degradation and counter > 0 and counter % _SCALE_DOWN_LOOP_PERIOD == 0


@typed
def can_scale_down(counter: int, options: AutoscalingOptions) -> bool:
    """Whether a loop may scale down: always, but while loops are degraded only in one of four.

    ``counter`` is the one *after* the pods of the loop were looked at: ``plan.state.scale_up.degraded_loops``.
    """
    if not options.scale_down_enabled:
        return False
    return not (options.enable_graceful_degradation and counter > 0 and counter % _SCALE_DOWN_LOOP_PERIOD != 0)


UNSCHEDULABLE_POD_TIME_BUFFER: Final[ComparedDuration] = 2 * SECOND
UNSCHEDULABLE_POD_WITH_GPU_TIME_BUFFER: Final[ComparedDuration] = 30 * SECOND


class ScaleUpGate(msgspec.Struct, kw_only=True, frozen=True):
    """``result`` is empty if the loop goes on, else what it ends with.

    ``scale_down_disabled``: more pods may be on their way, so this loop removes no node either.
    """

    result: str = ""
    events: tuple[Event, ...] = ()
    scale_down_disabled: bool = False


def are_all_pods_new(pods: Iterable[Pod], now: Moment) -> bool:
    """Whether more pods may be on their way: the oldest is not yet two seconds old, or the oldest that asks for a GPU
    not yet thirty."""
    ages = [(from_text(pod.metadata.creation_timestamp), pod) for pod in pods]
    if not ages:
        return False
    if min(made for made, _ in ages) + UNSCHEDULABLE_POD_TIME_BUFFER > now:
        return True
    gpu = [made for made, pod in ages if pod_requests_gpu(pod)]
    return bool(gpu) and min(gpu) + UNSCHEDULABLE_POD_WITH_GPU_TIME_BUFFER > now


def should_scale_up(
    pods: Sequence[Pod],
    *,
    ready_nodes: int,
    now: Moment,
    options: AutoscalingOptions,
    degraded_loops: int = 0,
    enforced: bool = False,
) -> ScaleUpGate:
    """The first rule that stops the loop.

    ``enforced``: an enforcer wants the scale-up whatever the other rules say. A degraded loop that is reserved for
    scale-down says so whatever else holds: ``degraded_loops`` counts loops that ran out of time, in a row, this one
    included.
    """
    gate = _check_gate(pods, ready_nodes, now, options)
    if is_reserved_for_scale_down(degraded_loops, options):
        return replace(gate, result=SCALE_UP_IN_COOLDOWN)
    return replace(gate, result="") if enforced else gate


def _check_gate(pods: Sequence[Pod], ready_nodes: int, now: Moment, options: AutoscalingOptions) -> ScaleUpGate:
    if not pods:
        return ScaleUpGate(result=SCALE_UP_NOT_NEEDED)
    if 0 < options.max_nodes_total <= ready_nodes:
        text = f"Max total nodes in cluster reached: {options.max_nodes_total}"
        status_events = build_status_events(options, "Warning", "MaxNodesTotalReached", text)
        return ScaleUpGate(result=SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL, events=tuple(status_events))
    if not options.bypassed_scheduler_names and are_all_pods_new(pods, now):
        return ScaleUpGate(result=SCALE_UP_IN_COOLDOWN, scale_down_disabled=True)
    return ScaleUpGate()
