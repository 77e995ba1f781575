"""Why a pod keeps its node from being drained (``BlockingPodReason``, ``utils/drain/drain.go``).

Its ``UnexpectedError`` is that of a lister that fails; those here are parts of a snapshot and do not.
Why a node stays is another list of upstream's, :mod:`kscale.ca.scale_down.reasons`.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "CONTROLLER_NOT_FOUND",
    "LOCAL_STORAGE_REQUESTED",
    "MIN_REPLICAS_REACHED",
    "NOT_ENOUGH_PDB",
    "NOT_REPLICATED",
    "NOT_SAFE_TO_EVICT_ANNOTATION",
    "NO_REASON",
    "UNMOVABLE_KUBE_SYSTEM_POD",
]

NO_REASON: Final = "NoReason"
CONTROLLER_NOT_FOUND: Final = "ControllerNotFound"
MIN_REPLICAS_REACHED: Final = "MinReplicasReached"
NOT_REPLICATED: Final = "NotReplicated"
LOCAL_STORAGE_REQUESTED: Final = "LocalStorageRequested"
NOT_SAFE_TO_EVICT_ANNOTATION: Final = "NotSafeToEvictAnnotation"
UNMOVABLE_KUBE_SYSTEM_POD: Final = "UnmovableKubeSystemPod"
NOT_ENOUGH_PDB: Final = "NotEnoughPdb"
