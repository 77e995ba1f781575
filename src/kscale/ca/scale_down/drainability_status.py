"""Result of the drainability rules for a pod, and why a pod blocks a drain (upstream:
``simulator/drainability/status.go``, ``utils/drain``).

Upstream's ``UnexpectedError`` is the error of a lister. Listers here are parts of a snapshot and cannot fail. Why a
node stays is another list: :mod:`kscale.ca.unremovable_reasons`.
"""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = [
    "BLOCK_DRAIN",
    "CONTROLLER_NOT_FOUND",
    "DRAIN_OK",
    "LOCAL_STORAGE_REQUESTED",
    "MIN_REPLICAS_REACHED",
    "NOT_ENOUGH_PDB",
    "NOT_REPLICATED",
    "NOT_SAFE_TO_EVICT_ANNOTATION",
    "NO_BLOCKING_REASON",
    "SKIP_DRAIN",
    "UNDEFINED_OUTCOME",
    "UNMOVABLE_KUBE_SYSTEM_POD",
    "WAIT_FOR_COMPLETION",
    "BlockingPod",
    "DrainStatus",
    "build_blocked_status",
]


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
    """Build the status of a pod that must not be moved."""
    return DrainStatus(outcome=BLOCK_DRAIN, blocking_reason=reason, error=error)
