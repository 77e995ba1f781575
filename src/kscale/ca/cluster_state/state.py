"""State of the cluster as the autoscaler tracks it: registered and upcoming nodes, requests, failures and back-off
(upstream: ``clusterstate/clusterstate.go``, ``utils/backoff``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from kscale.effects import Moment, later
from kscale.effects.moments import Count, Nanoseconds

__all__ = [
    "AcceptableRange",
    "Backoff",
    "BackoffInfo",
    "ClusterAutoscalerStatus",
    "ClusterHealth",
    "ClusterScaleUp",
    "ClusterStateRegistry",
    "ClusterWideStatus",
    "GroupHealth",
    "GroupReadiness",
    "GroupScaleUp",
    "IncorrectSize",
    "NodeCounts",
    "NodeGroupStatus",
    "RegisteredCount",
    "ScaleDownCandidates",
    "ScaleDownRequest",
    "ScaleUpError",
    "ScaleUpFailure",
    "ScaleUpRequest",
    "StatusCondition",
    "UnreadyCount",
    "UnregisteredNode",
    "build_initializing_status",
    "get_active_backoff",
    "record_failure",
    "remove_stale_backoffs",
]


class ScaleUpError(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Reason of a failed scale-up. ``class_``: OutOfResource or Other; ``code``: the cloud's code, or an error type."""

    class_: str = msgspec.field(name="class")
    code: str
    message: str


class Backoff(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Until when a group is left alone (that instant included), for how long this time (nanoseconds), and why."""

    duration: Nanoseconds
    until: Moment
    last_failed: Moment
    error: ScaleUpError


def record_failure(
    backoffs: Mapping[str, Backoff], group: str, error: ScaleUpError, now: Moment, *, initial: int, maximum: int
) -> dict[str, Backoff]:
    """Return the back-offs after one more failure of a group.

    A failure after the end of the last period doubles the period, up to ``maximum``. A failure within the period
    restarts it. Success never ends a back-off. ``initial`` and ``maximum`` are in nanoseconds.
    """
    last = backoffs.get(group)
    if last is None:
        duration = initial
    elif last.until < now:
        duration = min(2 * last.duration, maximum)
    else:
        duration = last.duration
    entry = Backoff(duration=duration, until=later(now, duration), last_failed=now, error=error)
    return {**backoffs, group: entry}


def get_active_backoff(backoffs: Mapping[str, Backoff], group: str, now: Moment) -> Backoff | None:
    """Return the active back-off of a group, or None."""
    entry = backoffs.get(group)
    return None if entry is None or entry.until < now else entry


def remove_stale_backoffs(backoffs: Mapping[str, Backoff], now: Moment, reset: int) -> dict[str, Backoff]:
    """Return the back-offs of the groups whose last failure is at most ``reset`` nanoseconds ago."""
    return {group: entry for group, entry in backoffs.items() if not now - entry.last_failed > reset}


AUTOSCALER_RUNNING: Final = "Running"
AUTOSCALER_INITIALIZING: Final = "Initializing"


class _StatusStruct(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Base of status structs, with upstream's member names. UNSET is left out; an unknown time is null."""


class UnreadyCount(_StatusStruct, kw_only=True, frozen=True):
    """Nodes that are not ready, and those that only lack devices."""

    total: int = 0
    resource_unready: int = 0


class RegisteredCount(_StatusStruct, kw_only=True, frozen=True):
    """Nodes that have an object."""

    total: int = 0
    ready: int = 0
    not_started: int = 0
    suspended: int = 0
    being_deleted: int | UnsetType = UNSET
    unready: UnreadyCount = UnreadyCount()


class NodeCounts(_StatusStruct, kw_only=True, frozen=True):
    """All machines."""

    registered: RegisteredCount = RegisteredCount()
    long_unregistered: int = 0
    unregistered: int = 0


class StatusCondition(_StatusStruct, kw_only=True, frozen=True):
    """Fields of all conditions. Probe time and transition time are in RFC 3339."""

    status: str | UnsetType = UNSET
    last_probe_time: str | None = None
    last_transition_time: str | None = None


class ClusterHealth(StatusCondition, kw_only=True, frozen=True):
    """Health of the cluster: ``Healthy`` or ``Unhealthy``."""

    node_counts: NodeCounts = NodeCounts()


class GroupHealth(StatusCondition, kw_only=True, frozen=True):
    """Health of a group: ``Healthy`` or ``Unhealthy``, and the group's sizes."""

    node_counts: NodeCounts = NodeCounts()
    cloud_provider_target: int = 0
    min_size: int = 0
    max_size: int = 0


class ClusterScaleUp(StatusCondition, kw_only=True, frozen=True):
    """Scale-up status of the cluster: ``InProgress`` or ``NoActivity``."""


class BackoffInfo(_StatusStruct, kw_only=True, frozen=True):
    """Reason of a group's back-off."""

    error_code: str | UnsetType = UNSET
    error_message: str | UnsetType = UNSET


class GroupScaleUp(StatusCondition, kw_only=True, frozen=True):
    """Scale-up status of a group: ``InProgress``, ``Unhealthy``, ``Backoff`` or ``NoActivity``."""

    backoff_info: BackoffInfo = BackoffInfo()


class ScaleDownCandidates(StatusCondition, kw_only=True, frozen=True):
    """Scale-down status: ``CandidatesPresent`` or ``NoCandidates``."""

    candidates: int | UnsetType = UNSET


class ClusterWideStatus(_StatusStruct, kw_only=True, frozen=True):
    """Status of the whole cluster."""

    health: ClusterHealth = ClusterHealth()
    scale_up: ClusterScaleUp = ClusterScaleUp()
    scale_down: ScaleDownCandidates = ScaleDownCandidates()


class NodeGroupStatus(_StatusStruct, kw_only=True, frozen=True):
    """Status of one group."""

    name: str | UnsetType = UNSET
    health: GroupHealth = GroupHealth()
    scale_up: GroupScaleUp = GroupScaleUp()
    scale_down: ScaleDownCandidates = ScaleDownCandidates()


class ClusterAutoscalerStatus(_StatusStruct, kw_only=True, frozen=True):
    """The complete status document, except for ``time``, which is added when it is written."""

    autoscaler_status: str = AUTOSCALER_RUNNING
    message: str | UnsetType = UNSET
    cluster_wide: ClusterWideStatus = ClusterWideStatus()
    node_groups: list[NodeGroupStatus] | UnsetType = UNSET


def build_initializing_status(message: str = "") -> ClusterAutoscalerStatus:
    """Build the status that is shown before the first complete loop."""
    return ClusterAutoscalerStatus(autoscaler_status=AUTOSCALER_INITIALIZING, message=message or UNSET)


class ScaleUpRequest(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Requested nodes that have not all registered yet."""

    increase: Count
    time: Moment
    expected_add_time: Moment


class ScaleDownRequest(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A node that is being deleted."""

    group: str
    node: str
    time: Moment
    expected_delete_time: Moment


class ScaleUpFailure(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A scale-up that failed in this loop."""

    time: Moment
    delta: Count
    error: ScaleUpError


class UnregisteredNode(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """An instance without a node object, and since when it has been seen."""

    group: str
    since: Moment


class GroupReadiness(msgspec.Struct, kw_only=True, rename="camel"):
    """Names of nodes by what they are. ``registered`` has every node; the others share them out."""

    registered: list[str] = []
    ready: list[str] = []
    unready: list[str] = []
    not_started: list[str] = []
    suspended: list[str] = []
    deleted: list[str] = []
    unregistered: list[str] = []
    long_unregistered: list[str] = []
    resource_unready: list[str] = []
    long_not_started: list[str] = []
    """Unready nodes that take too long to start. Only release 1.3 reports them separately."""


class AcceptableRange(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Node counts of a group that are acceptable, and its current target."""

    min_nodes: Count = 0
    max_nodes: Count = 0
    current_target: Count = 0


class IncorrectSize(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A difference between a group's node count and its target, and when it was first observed."""

    current: Count
    expected: Count
    first_observed: Moment


class ClusterStateRegistry(msgspec.Struct, kw_only=True, rename="camel"):
    """State of the node groups between loops, by group id. Functions of this package return new states."""

    scale_up_requests: dict[str, ScaleUpRequest] = {}
    scale_down_requests: list[ScaleDownRequest] = []
    backoffs: dict[str, Backoff] = {}
    failures: dict[str, list[ScaleUpFailure]] = {}
    """In this loop: :func:`~kscale.ca.cluster_state.clear_scale_up_failures` begins another."""
    unregistered: dict[str, UnregisteredNode] = {}
    create_errors: dict[str, list[str]] = {}
    """Instances that were seen failing, by group."""
    readiness: dict[str, GroupReadiness] = {}
    total: GroupReadiness = msgspec.field(default_factory=GroupReadiness)
    node_count: Count = 0
    """Number of nodes of the last update."""
    last_update: Moment | None = None
    ranges: dict[str, AcceptableRange] = {}
    incorrect_sizes: dict[str, IncorrectSize] = {}
    candidates: dict[str, list[str]] = {}
    """Unneeded nodes by group, and when they were last looked for."""
    last_scale_down_update: Moment | None = None
    last_status: ClusterAutoscalerStatus | None = None
    """Status of the last loop."""
