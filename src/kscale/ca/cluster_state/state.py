"""State of node groups carried from loop to loop, and the status document (upstream:
``clusterstate/clusterstate.go``, ``clusterstate/api/types.go``).
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from kscale.ca.backoff import Backoff, ScaleUpError
from kscale.effects import Moment
from kscale.effects.moments import Count

__all__ = [
    "AcceptableRange",
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
    "ScaleUpFailure",
    "ScaleUpRequest",
    "StatusCondition",
    "UnreadyCount",
    "UnregisteredNode",
    "build_initializing_status",
]


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
    """Those of the unready that take too long to start; only release 1.3 tells them apart."""


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
    """How many nodes the last update was given."""
    last_update: Moment | None = None
    ranges: dict[str, AcceptableRange] = {}
    incorrect_sizes: dict[str, IncorrectSize] = {}
    candidates: dict[str, list[str]] = {}
    """Unneeded nodes by group, and when they were last looked for."""
    last_scale_down_update: Moment | None = None
    last_status: ClusterAutoscalerStatus | None = None
    """What the last loop showed."""
