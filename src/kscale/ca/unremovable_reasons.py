"""Reasons why a node is not removed, and why a pod blocks the drain of its node.

Upstream: ``simulator/cluster.go``, ``simulator/drainability/status.go``, ``utils/drain``. Upstream has another reason,
``UnexpectedError``, for an error of a lister. Listers here are parts of a snapshot and cannot fail.
"""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = [
    "ATOMIC_SCALE_DOWN_FAILED",
    "BLOCKED_BY_ON_COMPLETION_POD",
    "BLOCKED_BY_POD",
    "BLOCK_DRAIN",
    "CONTROLLER_NOT_FOUND",
    "CURRENTLY_BEING_DELETED",
    "DRAIN_OK",
    "LOCAL_STORAGE_REQUESTED",
    "MINIMAL_RESOURCE_LIMIT_EXCEEDED",
    "MIN_REPLICAS_REACHED",
    "NODE_GROUP_MIN_SIZE_REACHED",
    "NOT_AUTOSCALED",
    "NOT_ENOUGH_PDB",
    "NOT_REPLICATED",
    "NOT_SAFE_TO_EVICT_ANNOTATION",
    "NOT_UNDERUTILIZED",
    "NOT_UNNEEDED_LONG_ENOUGH",
    "NOT_UNREADY_LONG_ENOUGH",
    "NO_BLOCKING_REASON",
    "NO_NODE_INFO",
    "NO_PLACE_TO_MOVE_PODS",
    "NO_REASON",
    "RECENTLY_UNREMOVABLE",
    "SCALE_DOWN_DISABLED_ANNOTATION",
    "SCALE_DOWN_UNREADY_DISABLED",
    "SKIP_DRAIN",
    "UNDEFINED_OUTCOME",
    "UNEXPECTED_ERROR",
    "UNMOVABLE_KUBE_SYSTEM_POD",
    "WAIT_FOR_COMPLETION",
    "BlockingPod",
    "DrainStatus",
    "build_blocked_status",
]


NO_REASON: Final = "NoReason"
SCALE_DOWN_DISABLED_ANNOTATION: Final = "ScaleDownDisabledAnnotation"
SCALE_DOWN_UNREADY_DISABLED: Final = "ScaleDownUnreadyDisabled"
NOT_AUTOSCALED: Final = "NotAutoscaled"
NOT_UNNEEDED_LONG_ENOUGH: Final = "NotUnneededLongEnough"
NOT_UNREADY_LONG_ENOUGH: Final = "NotUnreadyLongEnough"
NODE_GROUP_MIN_SIZE_REACHED: Final = "NodeGroupMinSizeReached"
ATOMIC_SCALE_DOWN_FAILED: Final = "AtomicScaleDownFailed"
MINIMAL_RESOURCE_LIMIT_EXCEEDED: Final = "MinimalResourceLimitExceeded"
CURRENTLY_BEING_DELETED: Final = "CurrentlyBeingDeleted"
NOT_UNDERUTILIZED: Final = "NotUnderutilized"
RECENTLY_UNREMOVABLE: Final = "RecentlyUnremovable"
NO_PLACE_TO_MOVE_PODS: Final = "NoPlaceToMovePods"
BLOCKED_BY_POD: Final = "BlockedByPod"
UNEXPECTED_ERROR: Final = "UnexpectedError"
NO_NODE_INFO: Final = "NoNodeInfo"
BLOCKED_BY_ON_COMPLETION_POD: Final = "BlockedByOnCompletionPod"


NO_BLOCKING_REASON: Final = "NoReason"
CONTROLLER_NOT_FOUND: Final = "ControllerNotFound"
MIN_REPLICAS_REACHED: Final = "MinReplicasReached"
NOT_REPLICATED: Final = "NotReplicated"
LOCAL_STORAGE_REQUESTED: Final = "LocalStorageRequested"
NOT_SAFE_TO_EVICT_ANNOTATION: Final = "NotSafeToEvictAnnotation"
UNMOVABLE_KUBE_SYSTEM_POD: Final = "UnmovableKubeSystemPod"
NOT_ENOUGH_PDB: Final = "NotEnoughPdb"


UNDEFINED_OUTCOME = "UndefinedOutcome"
DRAIN_OK = "DrainOk"
BLOCK_DRAIN = "BlockDrain"
SKIP_DRAIN = "SkipDrain"
WAIT_FOR_COMPLETION = "WaitForCompletion"


class BlockingPod(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """The pod (``namespace/name``) that keeps a node from being drained, and upstream's reason."""

    pod: str
    reason: str


class DrainStatus(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """The verdict on one pod. ``rule`` is the rule that decided ("" = none did).

    ``outcome``: whether the pod blocks the drain, goes, or is left out of it; ``blocking_reason``, ``error``: why it
    blocks, as upstream names and words it. ``overrides`` are outcomes of later rules that this status stands above.
    """

    outcome: str = UNDEFINED_OUTCOME
    blocking_reason: str = NO_BLOCKING_REASON
    error: str | None = None
    rule: str = ""
    overrides: tuple[str, ...] = ()


def build_blocked_status(reason: str, error: str) -> DrainStatus:
    """Build the status of a pod that must not be moved: the ``reason``, and upstream's ``error`` text."""
    return DrainStatus(outcome=BLOCK_DRAIN, blocking_reason=reason, error=error)
