"""Add and remove the taints of nodes to be deleted and the soft taints of candidates, and measure the latency of
taints (upstream: ``utils/taints``, ``actuation/softtaint.go``, ``update_latency_tracker.go``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from kscale.ca.errors import API_CALL_ERROR, AutoscalerError
from kscale.ca.events import build_node_event
from kscale.ca.nodes import DELETION_CANDIDATE_TAINT, TO_BE_DELETED_TAINT, get_deletion_candidate_time, has_taint
from kscale.ca.options import AutoscalingOptions
from kscale.effects import SECOND, ApiError, Emit, Get, Moment, Patch, Progress, StepsOf, Together, Wait, duration
from kscale.effects.moments import OtherDuration
from kscale.objects.api.core import Node, Taint
from kscale.objects.decode import to_dict
from kscale.objects.nodegroup import Groups, ProviderError

__all__ = [
    "SoftTaints",
    "SoftTaintsResult",
    "TaintAction",
    "TaintLatencyHistory",
    "TaintNodesAction",
    "TaintNodesResult",
    "UpdateLatencyTracker",
    "clean_deletion_candidate",
    "clean_to_be_deleted",
    "clean_up_taints",
    "format_release_warning",
    "mark_deletion_candidate",
    "mark_to_be_deleted",
    "plan_soft_taints",
    "taint_nodes_sync",
    "update_soft_taints",
]


TAINT_RETRY_DEADLINE: Final[OtherDuration] = 5 * SECOND
TAINT_CONFLICT_RETRY_INTERVAL: Final[OtherDuration] = 3 * SECOND // 4

TaintAction = Get | Patch | Wait
"""Actions that change the taints of a node."""

_TaintChange = Callable[[Node], list[Taint] | None]
"""The taints that a node is to have; None: those that it has."""


def mark_to_be_deleted(p: Progress, node: Node, *, cordon: bool) -> StepsOf[TaintAction, ApiError | None]:
    """Add the deletion taint and, with ``cordon``, cordon the node. Returns the error, or None.

    A node that already has the taint is unchanged, and is not cordoned.
    """
    taint = Taint(key=TO_BE_DELETED_TAINT, value=_format_seconds(p.now), effect="NoSchedule")
    error, _ = yield from _change_taints(p, node, _build_add_change(taint), True if cordon else None)
    return error


def clean_to_be_deleted(
    p: Progress, node: Node, *, uncordon: bool
) -> StepsOf[TaintAction, tuple[ApiError | None, bool]]:
    """Remove the deletion taint, and with ``uncordon`` any cordon, whoever set it.

    A node without the taint is unchanged. Returns (error or None, whether the node changed).
    """
    return (
        yield from _change_taints(p, node, _build_remove_change((TO_BE_DELETED_TAINT,)), False if uncordon else None)
    )


def format_release_warning(node: Node, error: ApiError) -> str:
    """Format upstream's log line about a node whose taint could not be removed (``CleanTaints``)."""
    name = node.metadata.name
    unread = _format_read_error(name)
    if error.message.startswith(unread):
        return f"Error while removing {TO_BE_DELETED_TAINT} taints from node {name}: {error.message[len(unread) :]}"
    return f"Error while releasing {TO_BE_DELETED_TAINT} taints on node {name}: {error.message}"


def _format_read_error(name: str) -> str:
    """Format the beginning of the error message for a node that cannot be read."""
    return f"failed to get node {name}: "


def mark_deletion_candidate(p: Progress, node: Node) -> StepsOf[TaintAction, ApiError | None]:
    """Add the soft taint to an unneeded node. Returns the error, or None."""
    taint = Taint(key=DELETION_CANDIDATE_TAINT, value=_format_seconds(p.now), effect="PreferNoSchedule")
    error, _ = yield from _change_taints(p, node, _build_add_change(taint), None)
    return error


def clean_deletion_candidate(p: Progress, node: Node) -> StepsOf[TaintAction, tuple[ApiError | None, bool]]:
    """Remove the soft taint of a candidate. Returns (error or None, whether the node changed)."""
    return (yield from _change_taints(p, node, _build_remove_change((DELETION_CANDIDATE_TAINT,)), None))


def _format_seconds(now: Moment) -> str:
    """Format a moment as whole Unix seconds, the value of taints."""
    return str(now // SECOND)


def _build_add_change(taint: Taint) -> _TaintChange:
    """Return a function of a node that returns its taints with ``taint`` added.

    The function returns None if the node has a taint with this key.
    """
    return lambda node: None if has_taint(node, taint.key) else [*node.spec.taints, taint]


def _build_remove_change(keys: Collection[str]) -> _TaintChange:
    """Return a function of a node that returns its taints without these keys; None if it has none of them."""

    def change(node: Node) -> list[Taint] | None:
        remaining = [taint for taint in node.spec.taints if taint.key not in keys]
        return remaining if len(remaining) < len(node.spec.taints) else None

    return change


def _change_taints(
    p: Progress, node: Node, change: _TaintChange, unschedulable: bool | None
) -> StepsOf[TaintAction, tuple[ApiError | None, bool]]:
    """Patch the node with the taints that ``change`` returns. Retries after conflicts with a newly read node.

    If ``change`` returns None for ``node`` (no change needed), the node is read again and ``change`` is called for the
    new object. ``unschedulable``: the cordon to set as well (None: unchanged). Returns (error or None, whether the node
    changed).
    """
    until = p.now + TAINT_RETRY_DEADLINE
    known, fresh = node, False
    while True:
        taints = change(known)
        if taints is None and fresh:
            return None, False
        if taints is not None:
            outcome = yield from p.act(
                Patch(
                    kind="Node",
                    name=node.metadata.name,
                    patch=_build_spec_patch(taints, unschedulable),
                    resource_version=known.metadata.resource_version,
                )
            )
            if outcome.error is None or not outcome.error.is_conflict or p.now >= until:
                return outcome.error, outcome.error is None
            yield from p.wait(TAINT_CONFLICT_RETRY_INTERVAL)
        fresh = True
        outcome = yield from p.act(Get(kind="Node", name=node.metadata.name))
        if outcome.error is not None:
            text = f"{_format_read_error(node.metadata.name)}{outcome.error.message}"
            return ApiError(text, reason=outcome.error.reason), False
        known = outcome.value


def _build_spec_patch(taints: list[Taint], unschedulable: bool | None) -> dict[str, Any]:
    """Build a merge patch of all taints and, unless ``unschedulable`` is None, of the cordon."""
    spec: dict[str, Any] = {"taints": to_dict(taints)}
    if unschedulable is not None:
        spec["unschedulable"] = unschedulable
    return {"spec": spec}


TAINT_POLL_INTERVAL: Final[OtherDuration] = SECOND // 20
TAINT_LATENCY_TIMEOUT: Final[OtherDuration] = 30 * SECOND
TAINT_LATENCY_RETENTION: Final[OtherDuration] = 3600 * SECOND


class UpdateLatencyTracker(msgspec.Struct, eq=False):
    """Measures how long taints take to become visible on nodes. :meth:`follow` runs beside the machines that taint.

    ``started``: node -> start of the tainting of all nodes, so waiting for a turn is included. After the last taint,
    :meth:`wait_for_all` lets :meth:`follow` continue until every taint is visible; :meth:`stop` ends it.
    """

    started: dict[str, Moment] = {}
    _seen: dict[str, Moment] = {}
    _waits: bool = False
    _stopped: bool = False

    def wait_for_all(self) -> None:
        """Mark all taints as written, so that :meth:`follow` waits only until they are visible."""
        self._waits = True

    def stop(self) -> None:
        """Stop the measurement, because some taints could not be written."""
        self._stopped = True

    def follow(self, now: Moment) -> StepsOf[Get | Wait, int | None]:
        """Read the nodes until all taints are visible, and return the longest latency in nanoseconds.

        Returns None after :meth:`stop`, or if a taint does not become visible in time.
        """
        p = Progress(now)
        while not self._waits:
            if self._stopped:
                return None
            yield from self._check_nodes(p)
            yield from p.wait(TAINT_POLL_INTERVAL)
        until = p.now + TAINT_LATENCY_TIMEOUT
        while len(self._seen) < len(self.started):
            if p.now > until:
                return None
            yield from p.wait(TAINT_POLL_INTERVAL)
            yield from self._check_nodes(p)
        return max((self._seen[name] - began for name, began in self.started.items()), default=0)

    def _check_nodes(self, p: Progress) -> StepsOf[Get, None]:
        """Read each node whose taint has not been visible yet, and record the time if it is visible now."""
        for name in [name for name in self.started if name not in self._seen]:
            outcome = yield from p.act(Get(kind="Node", name=name, watched=True))
            if outcome.error is None and has_taint(outcome.value, TO_BE_DELETED_TAINT):
                self._seen[name] = p.now


class TaintLatencyHistory(msgspec.Struct, eq=False):
    """Latencies of the last hour."""

    _found: list[tuple[Moment, int]] = []

    def delay_after(self, latency: int, now: Moment) -> int:
        """Store a latency, and return the delay before deletion: twice the largest recent latency.

        Both are in nanoseconds.
        """
        self._found.append((now, latency))
        self._found = [(time, value) for time, value in self._found if time > now - TAINT_LATENCY_RETENTION]
        return 2 * max((value for _, value in self._found), default=0)


TaintNodesAction = TaintAction | Together | Emit
"""Actions that taint nodes."""

MAX_CONCURRENT_NODES_TAINTING: Final = 5


class TaintNodesResult(msgspec.Struct, kw_only=True, frozen=True):
    """Result of tainting nodes: nanoseconds until the taints are visible everywhere.

    ``error``: a taint could not be added. Then the others were removed, except those that ``warnings`` name.
    """

    delay: int
    error: AutoscalerError | None = None
    warnings: list[str] = []


def taint_nodes_sync(
    p: Progress, nodes: Sequence[Node], options: AutoscalingOptions, past: TaintLatencyHistory
) -> StepsOf[TaintNodesAction, TaintNodesResult]:
    """Add the deletion taint to nodes, five at a time. If a node cannot be tainted, the others lose the taint again.

    With ``cordon_node_before_terminating`` the nodes are cordoned, too, and uncordoned after a failure. The result has
    the delay before deletion in nanoseconds, and the error if there is one.
    """
    delay = duration(options.node_delete_delay_after_taint)
    if not options.dynamic_node_delete_delay_after_taint_enabled:
        error, warnings = yield from _taint_all_nodes(p, nodes, options, None)
        return TaintNodesResult(delay=delay, error=error, warnings=warnings)
    tracker = UpdateLatencyTracker()
    (error, warnings), latency = yield from p.together(
        [partial(_taint_with_latency, nodes, options, tracker), tracker.follow]
    )
    if latency is None:
        return TaintNodesResult(delay=delay, error=error, warnings=warnings)
    return TaintNodesResult(delay=past.delay_after(latency, p.now), error=error, warnings=warnings)


_TaintFailure = tuple[AutoscalerError | None, list[str]]
"""Errors of nodes that could not be tainted, and log messages about nodes that keep their taint."""


def _taint_with_latency(
    nodes: Sequence[Node], options: AutoscalingOptions, tracker: UpdateLatencyTracker, now: Moment
) -> StepsOf[TaintNodesAction, _TaintFailure]:
    """Taint the nodes as :func:`_taint_all_nodes`, while ``tracker`` measures the latency from now on."""
    tracker.started.update((node.metadata.name, now) for node in nodes)
    error, warnings = yield from _taint_all_nodes(Progress(now), nodes, options, tracker)
    if error is None:
        tracker.wait_for_all()
    return error, warnings


def _taint_all_nodes(
    p: Progress, nodes: Sequence[Node], options: AutoscalingOptions, tracker: UpdateLatencyTracker | None
) -> StepsOf[TaintNodesAction, _TaintFailure]:
    """Taint the nodes; if a node cannot be tainted, untaint the others and stop ``tracker``.

    Returns (error or None, warnings).
    """
    errors: list[ApiError | None] = yield from p.together(
        [partial(_taint_node, node, options) for node in nodes], at_most=MAX_CONCURRENT_NODES_TAINTING
    )
    failed = [(node, error) for node, error in zip(nodes, errors, strict=True) if error is not None]
    if not failed:
        return None, []
    if tracker is not None:
        tracker.stop()
    # The second event of each failure: upstream emits one where it happens and one where it is counted.
    for node, error in failed:
        yield from _emit_taint_failure(p, node, error)
    warnings = []
    for node, result in zip(nodes, errors, strict=True):
        if result is None:
            untaint_error, _ = yield from clean_to_be_deleted(p, node, uncordon=options.cordon_node_before_terminating)
            if untaint_error is not None:
                warnings.append(format_release_warning(node, untaint_error))
    return AutoscalerError(API_CALL_ERROR, f"couldn't taint {len(failed)} nodes with ToBeDeleted"), warnings


def _taint_node(node: Node, options: AutoscalingOptions, now: Moment) -> StepsOf[TaintAction | Emit, ApiError | None]:
    """Add the deletion taint to a node, and emit an event about success or failure. Returns the error, or None."""
    p = Progress(now)
    error = yield from mark_to_be_deleted(p, node, cordon=options.cordon_node_before_terminating)
    if error is not None:
        yield from _emit_taint_failure(p, node, error)
    else:
        text = "marked the node as toBeDeleted/unschedulable"
        yield from p.emit(build_node_event(node, "Normal", "ScaleDown", text))
    return error


def _emit_taint_failure(p: Progress, node: Node, error: ApiError) -> StepsOf[Emit, None]:
    """Emit the warning event that the node could not be tainted for deletion."""
    text = f"failed to mark the node as toBeDeleted/unschedulable: {error.message}"
    yield from p.emit(build_node_event(node, "Warning", "ScaleDownFailed", text))


class SoftTaints(msgspec.Struct, kw_only=True, frozen=True):
    """Nodes to take the taint from, and then nodes to give it to."""

    remove: list[str] = []
    add: list[str] = []


def plan_soft_taints(nodes: Iterable[Node], unneeded: Collection[str], groups: Groups) -> SoftTaints:
    """Plan the changes of soft taints, in the order of the nodes: unneeded nodes get one, and other nodes lose theirs.

    Nodes without a group, and nodes with a deletion taint, are not changed. The number of changes is not limited.
    """
    names = set(unneeded)
    remove, add = [], []
    affected = [node for node in nodes if node.spec.taints or node.metadata.name in names]
    group_of = groups.ids_of_nodes([node.metadata.name for node in affected])
    for node, group in zip(affected, group_of, strict=True):
        name = node.metadata.name
        if group is None or has_taint(node, TO_BE_DELETED_TAINT):
            continue
        tainted = has_taint(node, DELETION_CANDIDATE_TAINT)
        if tainted and name not in names:
            remove.append(name)
        elif name in names and not tainted:
            add.append(name)
    return SoftTaints(remove=remove, add=add)


class SoftTaintsResult(msgspec.Struct, kw_only=True):
    """Number of attempted nodes, number of nodes left for a later loop, and errors."""

    tried: int = 0
    skipped: int = 0
    errors: list[ApiError] = []


def update_soft_taints(
    wanted: SoftTaints, nodes: Mapping[str, Node], options: AutoscalingOptions, now: Moment
) -> StepsOf[TaintAction, SoftTaintsResult]:
    """Remove soft taints from nodes, then add them to others. ``nodes``: the objects by name.

    Stops after ``--max-bulk-soft-taint-count`` attempts or ``--max-bulk-soft-taint-time``; the other nodes are counted
    as skipped. A failed attempt counts as well; its error is in the result.
    """
    p = Progress(now)
    until = now + duration(options.max_bulk_soft_taint_time)
    done = SoftTaintsResult(errors=[])

    def each(names: Iterable[str], add: bool) -> StepsOf[TaintAction, None]:
        """Add or remove the soft taint of the nodes until the limits are reached.

        Count the nodes after that as skipped.
        """
        for name in names:
            if done.tried >= options.max_bulk_soft_taint_count or p.now >= until:
                done.skipped += 1
                continue
            done.tried += 1
            if add:
                error = yield from mark_deletion_candidate(p, nodes[name])
            else:
                error, _ = yield from clean_deletion_candidate(p, nodes[name])
            if error is not None:
                done.errors.append(error)

    yield from each(wanted.remove, add=False)
    yield from each(wanted.add, add=True)
    return done


def clean_up_taints(
    nodes: Iterable[Node], groups: Groups, options: AutoscalingOptions, now: Moment
) -> StepsOf[TaintAction | Emit, list[str]]:
    """Remove taints that an earlier process left on nodes; return the names of nodes that lost a taint.

    Deletion taints are removed from the nodes that belong to a group; with ``cordon_node_before_terminating`` these
    nodes are uncordoned, too. Soft taints are removed if ``max_bulk_soft_taint_count`` is 0, also from nodes without
    a group. If ``node_deletion_candidate_ttl`` is above 0, soft taints younger than that stay; one without readable
    time counts as old.
    """
    p = Progress(now)
    cleaned: list[str] = []
    nodes = list(nodes)
    for node in nodes:
        if _is_in_group(node, groups) and has_taint(node, TO_BE_DELETED_TAINT):
            cleanup_result = yield from clean_to_be_deleted(p, node, uncordon=options.cordon_node_before_terminating)
            yield from _emit_cleanup_event(p, node, TO_BE_DELETED_TAINT, cleanup_result, cleaned)
    if options.max_bulk_soft_taint_count == 0:
        ttl = duration(options.node_deletion_candidate_ttl)
        for node in nodes:
            if has_taint(node, DELETION_CANDIDATE_TAINT) and _is_old_candidate(node, ttl, p.now):
                cleanup_result = yield from clean_deletion_candidate(p, node)
                yield from _emit_cleanup_event(p, node, DELETION_CANDIDATE_TAINT, cleanup_result, cleaned)
    return cleaned


def _is_in_group(node: Node, groups: Groups) -> bool:
    """Check whether the node belongs to a group; False if the provider cannot determine it."""
    try:
        return groups.find_group_of_node(node.metadata.name) is not None
    except ProviderError:
        return False


def _is_old_candidate(node: Node, ttl: int, now: Moment) -> bool:
    """Check whether the soft taint is at least ``ttl`` nanoseconds old.

    True if ``ttl`` is 0 or the time is unreadable.
    """
    since = get_deletion_candidate_time(node)
    return not ttl or since is None or now - since >= ttl


def _emit_cleanup_event(
    p: Progress, node: Node, taint: str, outcome: tuple[ApiError | None, bool], cleaned: list[str]
) -> StepsOf[Emit, None]:
    """Emit an event about the removal of a taint, and add the name of a changed node to ``cleaned``.

    ``outcome``: the error, if any, and whether the node changed.
    """
    error, changed = outcome
    name = node.metadata.name
    if error is not None:
        text = f"failed to clean {taint} on node {name}: {error.message}"
        yield from p.emit(build_node_event(node, "Warning", "ClusterAutoscalerCleanup", text))
    else:
        if changed and name not in cleaned:
            cleaned.append(name)
        # The event is emitted even if another client removed the taint first.
        text = f"removed {taint} taint from node {name}"
        yield from p.emit(build_node_event(node, "Normal", "ClusterAutoscalerCleanup", text))
