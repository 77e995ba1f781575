"""Marking all nodes that are about to be deleted, or none (``actuation/actuator.go``, taintNodesSync)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from kscale.ca.errors import API_CALL_ERROR, AutoscalerError
from kscale.ca.event_subjects import node_event
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.actuation.tainting import (
    Writing,
    clean_to_be_deleted,
    mark_to_be_deleted,
    release_warning,
)
from kscale.ca.scale_down.actuation.update_latency import PastLatencies, UpdateLatencyTracker
from kscale.effects import ApiError, Emit, Moment, Progress, StepsOf, Together, duration
from kscale.objects.core import Node

__all__ = ["Marked", "Marking", "mark_nodes"]

Marking = Writing | Together | Emit
"""What marking nodes asks for."""

MAX_CONCURRENT_NODES_TAINTING: Final = 5


class Marked(msgspec.Struct, kw_only=True, frozen=True):
    """How many nanoseconds it takes until the taints are known everywhere; ``error``: one could not be set, and none
    is, but for what ``warnings`` say."""

    delay: int
    error: AutoscalerError | None = None
    warnings: list[str] = []


def mark_nodes(
    p: Progress, nodes: Sequence[Node], options: AutoscalingOptions, past: PastLatencies
) -> StepsOf[Marking, Marked]:
    """Taints nodes, five at a time. If one cannot be, the others lose the taint again (and any cordon)."""
    delay = duration(options.node_delete_delay_after_taint)
    if not options.dynamic_node_delete_delay_after_taint_enabled:
        error, warnings = yield from _mark_all(p, nodes, options, None)
        return Marked(delay=delay, error=error, warnings=warnings)
    tracker = UpdateLatencyTracker()
    (error, warnings), latency = yield from p.together([partial(_marking, nodes, options, tracker), tracker.follow])
    if latency is None:
        return Marked(delay=delay, error=error, warnings=warnings)
    return Marked(delay=past.delay_after(latency, p.now), error=error, warnings=warnings)


_Failure = tuple[AutoscalerError | None, list[str]]
"""Why nodes could not be marked, and what is logged of those that keep their taint."""


def _marking(
    nodes: Sequence[Node], options: AutoscalingOptions, tracker: UpdateLatencyTracker, now: Moment
) -> StepsOf[Marking, _Failure]:
    tracker.started.update((node.metadata.name, now) for node in nodes)
    error, warnings = yield from _mark_all(Progress(now), nodes, options, tracker)
    if error is None:
        tracker.wait_for_all()
    return error, warnings


def _mark_all(
    p: Progress, nodes: Sequence[Node], options: AutoscalingOptions, tracker: UpdateLatencyTracker | None
) -> StepsOf[Marking, _Failure]:
    found: list[ApiError | None] = yield from p.together(
        [partial(_mark, node, options) for node in nodes], at_most=MAX_CONCURRENT_NODES_TAINTING
    )
    failed = [(node, error) for node, error in zip(nodes, found, strict=True) if error is not None]
    if not failed:
        return None, []
    if tracker is not None:
        tracker.stop()
    # The second event of each failure: upstream tells of it where it happens and where it is counted.
    for node, error in failed:
        yield from _say_failed(p, node, error)
    warnings = []
    for node, result in zip(nodes, found, strict=True):
        if result is None:
            kept, _ = yield from clean_to_be_deleted(p, node, uncordon=options.cordon_node_before_terminating)
            if kept is not None:
                warnings.append(release_warning(node, kept))
    return AutoscalerError(API_CALL_ERROR, f"couldn't taint {len(failed)} nodes with ToBeDeleted"), warnings


def _mark(node: Node, options: AutoscalingOptions, now: Moment) -> StepsOf[Writing | Emit, ApiError | None]:
    p = Progress(now)
    error = yield from mark_to_be_deleted(p, node, cordon=options.cordon_node_before_terminating)
    if error is not None:
        yield from _say_failed(p, node, error)
    else:
        text = "marked the node as toBeDeleted/unschedulable"
        yield from p.emit(node_event(node, "Normal", "ScaleDown", text))
    return error


def _say_failed(p: Progress, node: Node, error: ApiError) -> StepsOf[Emit, None]:
    text = f"failed to mark the node as toBeDeleted/unschedulable: {error.message}"
    yield from p.emit(node_event(node, "Warning", "ScaleDownFailed", text))
