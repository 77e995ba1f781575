"""What is kept about node groups from loop to loop, as plain data."""

from __future__ import annotations

import msgspec

from kscale.ca.backoff import Backoff, ScaleUpError
from kscale.ca.cluster_state.status_document import ClusterAutoscalerStatus
from kscale.effects import Moment
from kscale.effects.moments import Count

__all__ = [
    "AcceptableRange",
    "ClusterStateRegistry",
    "GroupReadiness",
    "IncorrectSize",
    "ScaleDownRequest",
    "ScaleUpFailure",
    "ScaleUpRequest",
    "UnregisteredNode",
]


class ScaleUpRequest(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Nodes that were asked for and have not all come."""

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
    """How many nodes a group may have without anything being wrong."""

    min_nodes: Count = 0
    max_nodes: Count = 0
    current_target: Count = 0


class IncorrectSize(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A group that has another number of nodes than its target says, and since when."""

    current: Count
    expected: Count
    first_observed: Moment


class ClusterStateRegistry(msgspec.Struct, kw_only=True, rename="camel"):
    """Everything that is kept from loop to loop, by group id. Functions of this package return new states."""

    scale_up_requests: dict[str, ScaleUpRequest] = {}
    scale_down_requests: list[ScaleDownRequest] = []
    backoffs: dict[str, Backoff] = {}
    failures: dict[str, list[ScaleUpFailure]] = {}
    """In this loop: :func:`~kscale.ca.cluster_state.forget_failures` begins another."""
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
