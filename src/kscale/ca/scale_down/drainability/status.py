"""What a drainability rule says of a pod (``simulator/drainability/status.go``, ``utils/drain``)."""

from __future__ import annotations

import msgspec

from kscale.ca.scale_down.drainability import blocking_pod_reason

__all__ = [
    "BLOCK_DRAIN",
    "DRAIN_OK",
    "SKIP_DRAIN",
    "UNDEFINED",
    "WAIT_FOR_COMPLETION",
    "BlockingPod",
    "DrainStatus",
    "blocked",
]

UNDEFINED = "UndefinedOutcome"
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

    outcome: str = UNDEFINED
    blocking_reason: str = blocking_pod_reason.NO_REASON
    error: str | None = None
    rule: str = ""
    overrides: tuple[str, ...] = ()


def blocked(reason: str, error: str) -> DrainStatus:
    """A pod that may not be moved."""
    return DrainStatus(outcome=BLOCK_DRAIN, blocking_reason=reason, error=error)
