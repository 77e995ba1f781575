"""A cluster as it is at this moment: all that scheduling and autoscaling look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kscale.effects import List
from kscale.effects.outcomes import NOT_FOUND
from kscale.errors import KscaleError
from kscale.objects.meta import KubeObject
from kscale.world.kubernetes.client import Client
from kscale.world.kubernetes.performer import Performer
from kscale.world.protocols import Clock

__all__ = ["KINDS", "ClusterUnreadableError", "read_cluster"]

KINDS: Final = (
    ("v1", "Node"),
    ("v1", "Namespace"),
    ("v1", "PersistentVolume"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "LimitRange"),
    ("v1", "ReplicationController"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "Job"),
    ("policy/v1", "PodDisruptionBudget"),
    ("scheduling.k8s.io/v1", "PriorityClass"),
    ("storage.k8s.io/v1", "StorageClass"),
    ("storage.k8s.io/v1", "CSINode"),
    ("storage.k8s.io/v1", "CSIDriver"),
    ("storage.k8s.io/v1", "CSIStorageCapacity"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("autoscaling.k8s.io/v1", "VerticalPodAutoscaler"),
    ("v1", "Pod"),
)
"""(API version, kind) of what is read. What a server does not serve is passed over."""


class ClusterUnreadableError(KscaleError):
    """A cluster cannot be read."""


async def read_cluster(client: Client, clock: Clock, kinds: Sequence[tuple[str, str]] = KINDS) -> list[KubeObject]:
    """The objects of some kinds, one kind after the other. Raises :class:`ClusterUnreadableError` where a list is
    refused for any other reason than that nothing of the kind is served."""
    performer = Performer(client, clock)
    found: list[Any] = []
    for version, kind in kinds:
        outcome = await performer(List(kind=kind, api_version=version, watched=False))
        if outcome.error is None:
            found += outcome.value
        elif outcome.error.reason != NOT_FOUND:
            raise ClusterUnreadableError(f"{kind}: {outcome.error.message}")
    return found
