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
"""Called with the pods that need nodes. True forces a scale-up, whatever else would prevent it."""

CONSUME_ANNOTATIONS: Final = (CONSUME_PROVISIONING_REQUEST, DEPRECATED_CONSUME_PROVISIONING_REQUEST)


@typed
def has_provisioning_request_consumer(pods: Iterable[Pod]) -> bool:
    """Check whether any pod consumes a ProvisioningRequest, by its current or its old annotation.

    This is the enforcer of provisioning requests: such a pod enforces a scale-up.
    """
    return any(pod_annotation(pod, key) is not None for pod in pods for key in CONSUME_ANNOTATIONS)


_STARTED_TEXT: Final = (
    "Autoscaler is unable to handle the large amount of unschedulable pods. Consider reducing the rate of adding new "
    "pods, so autoscaler could auto recover."
)
_STOPPED_TEXT: Final = "Autoscaler exited from GracefulDegradationMode and works normally."
_SCALE_DOWN_LOOP_PERIOD: Final = 4
"""Of so many degraded loops one belongs to scale-down."""


def get_max_looks(options: AutoscalingOptions, max_looks: int | None) -> int | None:
    """Return how many pods may be checked in the available time; None without limit.

    The limit is ``max_looks`` with graceful degradation, and 0 if the timeout is zero or negative.
    """
    if not options.enable_graceful_degradation:
        return None
    return 0 if options.pending_pods_batching_timeout <= timedelta() else max_looks


def update_degradation_counter(counter: int, unprocessed: int, options: AutoscalingOptions) -> tuple[int, list[Event]]:
    """Return the new number of consecutive loops that ran out of time, and the events to emit.

    There is an event for the first such loop, and for the first loop that finishes in time. ``unprocessed`` is the
    number of pods that were not checked. Call it only with graceful degradation enabled.
    """
    if unprocessed > 0:
        status_events = build_status_events(options, "Warning", "GracefulDegradationStarted", _STARTED_TEXT)
        return counter + 1, status_events if counter == 0 else []
    status_events = build_status_events(options, "Normal", "GracefulDegradationStopped", _STOPPED_TEXT)
    return 0, status_events if counter > 0 else []


def is_reserved_for_scale_down(counter: int, options: AutoscalingOptions) -> bool:
    """Check whether a degraded loop is reserved for scale-down, so that it skips scale-up."""
    return options.enable_graceful_degradation and counter > 0 and counter % _SCALE_DOWN_LOOP_PERIOD == 0


@typed
def can_scale_down(counter: int, options: AutoscalingOptions) -> bool:
    """Check whether a loop may scale down. It always may, except that degraded loops may only every fourth time.

    ``counter`` is the value after the loop's pods were checked: ``plan.state.scale_up.degraded_loops``.
    """
    if not options.scale_down_enabled:
        return False
    return not (options.enable_graceful_degradation and counter > 0 and counter % _SCALE_DOWN_LOOP_PERIOD != 0)


UNSCHEDULABLE_POD_TIME_BUFFER: Final[ComparedDuration] = 2 * SECOND
UNSCHEDULABLE_POD_WITH_GPU_TIME_BUFFER: Final[ComparedDuration] = 30 * SECOND


class ScaleUpGate(msgspec.Struct, kw_only=True, frozen=True):
    """Decision whether a loop scales up. ``result`` is empty if it does, else the result of the loop.

    ``scale_down_disabled``: more pods may follow soon, so this loop removes no node either.
    """

    result: str = ""
    events: tuple[Event, ...] = ()
    scale_down_disabled: bool = False


def are_all_pods_new(pods: Iterable[Pod], now: Moment) -> bool:
    """Check whether more pods may follow soon: all pods are younger than 2 seconds, or all GPU pods younger than 30."""
    ages = [(from_text(pod.metadata.creation_timestamp), pod) for pod in pods]
    if not ages:
        return False
    if min(created for created, _ in ages) + UNSCHEDULABLE_POD_TIME_BUFFER > now:
        return True
    gpu = [created for created, pod in ages if pod_requests_gpu(pod)]
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
    """Return the first rule that prevents a scale-up in this loop; ``result`` is empty if none does.

    ``enforced``: an enforcer overrides the other rules. A loop reserved for scale-down is in cooldown in any case;
    ``degraded_loops`` is the number of consecutive loops that ran out of time, including this one.
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
