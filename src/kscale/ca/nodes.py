"""What a node's conditions and taints mean to the autoscaler (``utils/kubernetes/ready.go``, ``utils/taints``)."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from kscale.effects import SECOND, ZERO_TIME
from kscale.effects.moments import ComparedDuration
from kscale.objects.conditions import changed_at
from kscale.objects.core import Node
from kscale.objects.times import moment_in

__all__ = [
    "DELETION_CANDIDATE_TAINT",
    "SCALE_DOWN_DISABLED_ANNOTATION",
    "TO_BE_DELETED_TAINT",
    "Readiness",
    "deletion_candidate_since",
    "has_taint",
    "is_being_deleted",
    "is_ready",
    "is_simply_ready",
    "is_suspended",
    "life_of",
    "readiness",
    "to_be_deleted_since",
]

TO_BE_DELETED_TAINT: Final = "ToBeDeletedByClusterAutoscaler"
DELETION_CANDIDATE_TAINT: Final = "DeletionCandidateOfClusterAutoscaler"
SCALE_DOWN_DISABLED_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

_NOT_READY_TAINTS: Final = frozenset(
    ("node.kubernetes.io/not-ready", "node.kubernetes.io/disk-pressure", "node.kubernetes.io/network-unavailable")
)
_NOT_TRUE: Final = ("False", "Unknown")
_TROUBLES: Final = ("DiskPressure", "NetworkUnavailable")
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
MAX_DELETION: Final[ComparedDuration] = 300 * SECOND


class Readiness(msgspec.Struct, frozen=True):
    """Whether a node is ready, since when (:data:`~kscale.effects.ZERO_TIME` if unknown), and the condition's reason.

    ``known`` is False for a node without Ready condition, which counts as not ready.
    """

    ready: bool
    last_transition: int = ZERO_TIME
    reason: str = ""
    known: bool = True


def readiness(node: Node) -> Readiness:
    """Ready unless the Ready condition is missing, False or Unknown, or the disk or network says otherwise. Raises
    InputError for what is no time."""
    conditions = node.status.conditions
    if not any(condition.type == "Ready" for condition in conditions):
        return Readiness(ready=False, known=False)
    ready, reason, last = True, "", ZERO_TIME
    for condition in conditions:
        if condition.type not in ("Ready", *_TROUBLES):
            continue
        last = max(last, changed_at(node, condition))
        bad = _NOT_TRUE if condition.type == "Ready" else ("True",)
        if condition.status in bad:
            ready = False
            if condition.type == "Ready":
                reason = condition.reason
    for number, taint in enumerate(node.spec.taints):
        if taint.key in _NOT_READY_TAINTS:
            ready = False
            if taint.time_added is not None:
                last = max(last, moment_in(node, taint.time_added, f"spec.taints[{number}].timeAdded"))
    return Readiness(ready=ready, last_transition=last, reason=reason)


def is_ready(node: Node) -> bool:
    """The same verdict without the times."""
    return life_of(node)[0]


def life_of(node: Node) -> tuple[bool, bool]:
    """(ready, suspended) in one look at the conditions."""
    known, ready, suspended = False, True, None
    for condition in node.status.conditions:
        kind = condition.type
        if kind == "Ready":
            known = True
            ready = ready and condition.status not in _NOT_TRUE
        elif kind in _TROUBLES:
            ready = ready and condition.status != "True"
        elif kind == "Suspended" and suspended is None:
            suspended = condition.status == "True"
    ready = known and ready
    if ready and node.spec.taints:
        ready = not any(taint.key in _NOT_READY_TAINTS for taint in node.spec.taints)
    return ready, bool(suspended)


def is_simply_ready(node: Node) -> bool:
    """Ready, awake and not marked for deletion, as most nodes are."""
    ready, suspended = life_of(node)
    return ready and not suspended and not has_taint(node, TO_BE_DELETED_TAINT)


def has_taint(node: Node, key: str) -> bool:
    """Whether the node carries a taint, whatever its value and effect."""
    taints = node.spec.taints
    return bool(taints) and any(taint.key == key for taint in taints)


def _taint_seconds(node: Node, key: str) -> int | None:
    for taint in node.spec.taints:
        if taint.key == key:
            number = int(taint.value) if _INTEGER.match(taint.value) else None
            return number if number is not None and -(2**63) <= number < 2**63 else None
    return None


def to_be_deleted_since(node: Node) -> int | None:
    """When the node was marked for deletion (nanoseconds since 1970); None without a readable mark."""
    seconds = _taint_seconds(node, TO_BE_DELETED_TAINT)
    return None if seconds is None else seconds * SECOND


def deletion_candidate_since(node: Node) -> int | None:
    """When the node became a candidate for deletion, by its soft taint; None without a readable one."""
    seconds = _taint_seconds(node, DELETION_CANDIDATE_TAINT)
    return None if seconds is None else seconds * SECOND


def is_being_deleted(node: Node, now_ns: int) -> bool:
    """Marked for deletion less than five minutes ago (or in the future)."""
    since = to_be_deleted_since(node)
    return since is not None and now_ns - since < MAX_DELETION


def is_suspended(node: Node) -> bool:
    """Whether the cloud has put the machine to sleep."""
    return life_of(node)[1]
