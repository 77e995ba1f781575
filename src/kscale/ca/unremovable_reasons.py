"""Reasons why a node is not removed (upstream: ``simulator/cluster.go``: UnremovableReason).

Why a pod blocks the drain of its node is another list: :mod:`kscale.ca.scale_down.drainability_status`.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ATOMIC_SCALE_DOWN_FAILED",
    "BLOCKED_BY_ON_COMPLETION_POD",
    "BLOCKED_BY_POD",
    "CURRENTLY_BEING_DELETED",
    "MINIMAL_RESOURCE_LIMIT_EXCEEDED",
    "NODE_GROUP_MAX_DELETION_COUNT_REACHED",
    "NODE_GROUP_MIN_SIZE_REACHED",
    "NOT_AUTOSCALED",
    "NOT_UNDERUTILIZED",
    "NOT_UNNEEDED_LONG_ENOUGH",
    "NOT_UNNEEDED_OTHER_REASON",
    "NOT_UNREADY_LONG_ENOUGH",
    "NO_NODE_INFO",
    "NO_PLACE_TO_MOVE_PODS",
    "NO_REASON",
    "RECENTLY_UNREMOVABLE",
    "SCALE_DOWN_DISABLED_ANNOTATION",
    "SCALE_DOWN_UNREADY_DISABLED",
    "UNEXPECTED_ERROR",
    "UNREMOVABLE_REASONS",
]

NO_REASON: Final = "NoReason"
SCALE_DOWN_DISABLED_ANNOTATION: Final = "ScaleDownDisabledAnnotation"
SCALE_DOWN_UNREADY_DISABLED: Final = "ScaleDownUnreadyDisabled"
NOT_AUTOSCALED: Final = "NotAutoscaled"
NOT_UNNEEDED_LONG_ENOUGH: Final = "NotUnneededLongEnough"
NOT_UNREADY_LONG_ENOUGH: Final = "NotUnreadyLongEnough"
NODE_GROUP_MIN_SIZE_REACHED: Final = "NodeGroupMinSizeReached"
NODE_GROUP_MAX_DELETION_COUNT_REACHED: Final = "NodeGroupMaxDeletionCountReached"
ATOMIC_SCALE_DOWN_FAILED: Final = "AtomicScaleDownFailed"
MINIMAL_RESOURCE_LIMIT_EXCEEDED: Final = "MinimalResourceLimitExceeded"
CURRENTLY_BEING_DELETED: Final = "CurrentlyBeingDeleted"
NOT_UNDERUTILIZED: Final = "NotUnderutilized"
NOT_UNNEEDED_OTHER_REASON: Final = "NotUnneededOtherReason"
RECENTLY_UNREMOVABLE: Final = "RecentlyUnremovable"
NO_PLACE_TO_MOVE_PODS: Final = "NoPlaceToMovePods"
BLOCKED_BY_POD: Final = "BlockedByPod"
UNEXPECTED_ERROR: Final = "UnexpectedError"
NO_NODE_INFO: Final = "NoNodeInfo"
BLOCKED_BY_ON_COMPLETION_POD: Final = "BlockedByOnCompletionPod"

UNREMOVABLE_REASONS: Final = (
    NO_REASON,
    SCALE_DOWN_DISABLED_ANNOTATION,
    SCALE_DOWN_UNREADY_DISABLED,
    NOT_AUTOSCALED,
    NOT_UNNEEDED_LONG_ENOUGH,
    NOT_UNREADY_LONG_ENOUGH,
    NODE_GROUP_MIN_SIZE_REACHED,
    NODE_GROUP_MAX_DELETION_COUNT_REACHED,
    ATOMIC_SCALE_DOWN_FAILED,
    MINIMAL_RESOURCE_LIMIT_EXCEEDED,
    CURRENTLY_BEING_DELETED,
    NOT_UNDERUTILIZED,
    NOT_UNNEEDED_OTHER_REASON,
    RECENTLY_UNREMOVABLE,
    NO_PLACE_TO_MOVE_PODS,
    BLOCKED_BY_POD,
    UNEXPECTED_ERROR,
    NO_NODE_INFO,
    BLOCKED_BY_ON_COMPLETION_POD,
)
"""In upstream's order; the position is the enum value."""
