"""How deletions and evictions ended (``core/scaledown/status``)."""

from __future__ import annotations

from typing import Final

import msgspec

from kscale.ca.errors import ErrorRecord
from kscale.ca.scale_down.utilization import Utilization

__all__ = [
    "NODE_DELETE_ERROR_FAILED_TO_DELETE",
    "NODE_DELETE_ERROR_FAILED_TO_EVICT_PODS",
    "NODE_DELETE_ERROR_INTERNAL",
    "NODE_DELETE_OK",
    "NodeDeleteResult",
    "PodEvictionResult",
    "ScaleDownNode",
    "StartedDeletion",
]

NODE_DELETE_OK: Final = "NodeDeleteOk"
NODE_DELETE_ERROR_FAILED_TO_EVICT_PODS: Final = "NodeDeleteErrorFailedToEvictPods"
NODE_DELETE_ERROR_FAILED_TO_DELETE: Final = "NodeDeleteErrorFailedToDelete"
NODE_DELETE_ERROR_INTERNAL: Final = "NodeDeleteErrorInternal"


class PodEvictionResult(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """What became of one pod (``namespace/name``)."""

    pod: str
    timed_out: bool = False
    error: str | None = None

    @property
    def successful(self) -> bool:
        return self.error is None and not self.timed_out


class NodeDeleteResult(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """How the deletion of one node ended. ``evictions``: by name of the pod, where draining failed."""

    result: str
    error: ErrorRecord | None = None
    evictions: dict[str, PodEvictionResult] = {}


class ScaleDownNode(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A node whose deletion has begun. ``evicted_pods`` (``namespace/name``): none of DaemonSets or of empty nodes."""

    node: str
    group: str
    utilization: Utilization
    evicted_pods: list[str] = []


class StartedDeletion(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """What came of starting a deletion: ``ScaleDownNodeDeleteStarted``, ``ScaleDownNoNodeDeleted`` or
    ``ScaleDownError``; with an error there may be nodes all the same."""

    result: str
    nodes: list[ScaleDownNode] = []
    error: ErrorRecord | None = None
