"""Marking all nodes that are about to be deleted, or none (``actuation/actuator.go``, taintNodesSync)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec

from kscale.ca.errors import API_CALL_ERROR, AutoscalerError
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.actuation.actions import ApiError, Progress, Steps
from kscale.ca.scale_down.actuation.tainting import clean_to_be_deleted, mark_to_be_deleted
from kscale.ca.scale_down.actuation.update_latency import PastLatencies, UpdateLatencyTracker
from kscale.objects.core import Node

__all__ = ["Marked", "mark_nodes"]

MAX_CONCURRENT_NODES_TAINTING: Final = 5


class Marked(msgspec.Struct, kw_only=True, frozen=True):
    """How long to wait until the taints are known everywhere; ``error``: a node could not be tainted, and none is."""

    delay: timedelta
    error: AutoscalerError | None = None


def mark_nodes(p: Progress, nodes: Sequence[Node], options: AutoscalingOptions, past: PastLatencies) -> Steps[Marked]:
    """Taints nodes, five at a time. If one cannot be, the others lose the taint again (and any cordon)."""
    if not options.dynamic_node_delete_delay_after_taint_enabled:
        error = yield from _mark_all(p, nodes, options, None)
        return Marked(delay=options.node_delete_delay_after_taint, error=error)
    tracker = UpdateLatencyTracker()
    error, latency = yield from p.together([partial(_marking, nodes, options, tracker), tracker.follow])
    if latency is None:
        return Marked(delay=options.node_delete_delay_after_taint, error=error)
    return Marked(delay=past.delay_after(latency, p.now), error=error)


def _marking(
    nodes: Sequence[Node], options: AutoscalingOptions, tracker: UpdateLatencyTracker, now: datetime
) -> Steps[AutoscalerError | None]:
    tracker.started.update((node.metadata.name, now) for node in nodes)
    error = yield from _mark_all(Progress(now), nodes, options, tracker)
    if error is None:
        tracker.wait_for_all()
    return error


def _mark_all(
    p: Progress, nodes: Sequence[Node], options: AutoscalingOptions, tracker: UpdateLatencyTracker | None
) -> Steps[AutoscalerError | None]:
    found: list[ApiError | None] = yield from p.together(
        [partial(_mark, node, options) for node in nodes], at_most=MAX_CONCURRENT_NODES_TAINTING
    )
    failed = [(node, error) for node, error in zip(nodes, found, strict=True) if error is not None]
    if not failed:
        return None
    if tracker is not None:
        tracker.stop()
    # The second event of each failure: upstream tells of it where it happens and where it is counted.
    for node, error in failed:
        yield from _say_failed(p, node, error)
    for node, result in zip(nodes, found, strict=True):
        if result is None:
            yield from clean_to_be_deleted(p, node, uncordon=options.cordon_node_before_terminating)
    return AutoscalerError(API_CALL_ERROR, f"couldn't taint {len(failed)} nodes with ToBeDeleted")


def _mark(node: Node, options: AutoscalingOptions, now: datetime) -> Steps[ApiError | None]:
    p = Progress(now)
    error = yield from mark_to_be_deleted(p, node, cordon=options.cordon_node_before_terminating)
    if error is not None:
        yield from _say_failed(p, node, error)
    else:
        text = "marked the node as toBeDeleted/unschedulable"
        yield from p.emit("Normal", f"Node/{node.metadata.name}", "ScaleDown", text)
    return error


def _say_failed(p: Progress, node: Node, error: ApiError) -> Steps[None]:
    text = f"failed to mark the node as toBeDeleted/unschedulable: {error.message}"
    yield from p.emit("Warning", f"Node/{node.metadata.name}", "ScaleDownFailed", text)
