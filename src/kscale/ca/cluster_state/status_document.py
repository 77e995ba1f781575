"""The status document of upstream (``clusterstate/api/types.go``), as data."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

__all__ = [
    "BackoffInfo",
    "ClusterAutoscalerStatus",
    "ClusterHealth",
    "ClusterScaleUp",
    "ClusterWideStatus",
    "Condition",
    "GroupHealth",
    "GroupScaleUp",
    "NodeCounts",
    "NodeGroupStatus",
    "RegisteredCount",
    "ScaleDownCandidates",
    "UnreadyCount",
    "initializing_status",
]

RUNNING: Final = "Running"
INITIALIZING: Final = "Initializing"


class _Document(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Members as upstream names them. What is UNSET is left out; a time that is not known is null."""


class UnreadyCount(_Document, kw_only=True, frozen=True):
    """Nodes that are not ready, and those that only lack devices."""

    total: int = 0
    resource_unready: int = 0


class RegisteredCount(_Document, kw_only=True, frozen=True):
    """Nodes that have an object."""

    total: int = 0
    ready: int = 0
    not_started: int = 0
    suspended: int = 0
    being_deleted: int | UnsetType = UNSET
    unready: UnreadyCount = UnreadyCount()


class NodeCounts(_Document, kw_only=True, frozen=True):
    """All machines."""

    registered: RegisteredCount = RegisteredCount()
    long_unregistered: int = 0
    unregistered: int = 0


class Condition(_Document, kw_only=True, frozen=True):
    """What all conditions have: when it was looked at, and since when the status is what it is (RFC 3339)."""

    status: str | UnsetType = UNSET
    last_probe_time: str | None = None
    last_transition_time: str | None = None


class ClusterHealth(Condition, kw_only=True, frozen=True):
    """``Healthy`` or ``Unhealthy``."""

    node_counts: NodeCounts = NodeCounts()


class GroupHealth(Condition, kw_only=True, frozen=True):
    """``Healthy`` or ``Unhealthy``, and the group's sizes."""

    node_counts: NodeCounts = NodeCounts()
    cloud_provider_target: int = 0
    min_size: int = 0
    max_size: int = 0


class ClusterScaleUp(Condition, kw_only=True, frozen=True):
    """``InProgress`` or ``NoActivity``."""


class BackoffInfo(_Document, kw_only=True, frozen=True):
    """Why a group is left alone."""

    error_code: str | UnsetType = UNSET
    error_message: str | UnsetType = UNSET


class GroupScaleUp(Condition, kw_only=True, frozen=True):
    """``InProgress``, ``Unhealthy``, ``Backoff`` or ``NoActivity``."""

    backoff_info: BackoffInfo = BackoffInfo()


class ScaleDownCandidates(Condition, kw_only=True, frozen=True):
    """``CandidatesPresent`` or ``NoCandidates``."""

    candidates: int | UnsetType = UNSET


class ClusterWideStatus(_Document, kw_only=True, frozen=True):
    """Of the whole cluster."""

    health: ClusterHealth = ClusterHealth()
    scale_up: ClusterScaleUp = ClusterScaleUp()
    scale_down: ScaleDownCandidates = ScaleDownCandidates()


class NodeGroupStatus(_Document, kw_only=True, frozen=True):
    """Of one group."""

    name: str | UnsetType = UNSET
    health: GroupHealth = GroupHealth()
    scale_up: GroupScaleUp = GroupScaleUp()
    scale_down: ScaleDownCandidates = ScaleDownCandidates()


class ClusterAutoscalerStatus(_Document, kw_only=True, frozen=True):
    """The whole document, but for ``time``, which is said where it is written."""

    autoscaler_status: str = RUNNING
    message: str | UnsetType = UNSET
    cluster_wide: ClusterWideStatus = ClusterWideStatus()
    node_groups: list[NodeGroupStatus] | UnsetType = UNSET


def initializing_status(message: str = "") -> ClusterAutoscalerStatus:
    """What is shown before a loop could look at anything."""
    return ClusterAutoscalerStatus(autoscaler_status=INITIALIZING, message=message or UNSET)
