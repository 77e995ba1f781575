"""Controllers of replica sets and replication controllers.

Upstream: ``pkg/controller/replicaset``, ``controller_utils.go`` (which pods go first).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import ClassVar

from msgspec.structs import replace

from kscale.effects import Moment, VirtualTime, from_text
from kscale.objects.apps import ReplicaSet, ReplicaSetStatus
from kscale.objects.conditions import find
from kscale.objects.core import Pod, ReplicationController, ReplicationControllerStatus
from kscale.objects.workloads import pod_count
from kscale.world.simulated.api_objects import ApiObjects
from kscale.world.simulated.controllers import Controller, PodMaker
from kscale.world.simulated.owned_pods import OwnedPods
from kscale.world.simulated.pods import delete_pods, finished

__all__ = ["ReplicaSets", "ReplicationControllers", "in_order_of_deletion"]

_COST = "controller.kubernetes.io/pod-deletion-cost"
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,9})")
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def in_order_of_deletion(pods: Iterable[Pod], now: Moment) -> list[Pod]:
    """The pods that go first when there are too many, first (``ActivePodsWithRanks``): without a node, pending, not
    ready, cheap, on a node with others of theirs, ready for a short time, young."""
    pods = list(pods)
    on_node = Counter(pod.spec.node_name for pod in pods)

    def rank(pod: Pod) -> tuple[object, ...]:
        ready = find(pod.status.conditions, "Ready")
        is_ready = ready is not None and ready.status == "True"
        since = from_text(ready.last_transition_time) if ready is not None and is_ready else now
        return (
            bool(pod.spec.node_name),
            _PHASES.get(pod.status.phase, 2),
            is_ready,
            _cost(pod),
            -on_node[pod.spec.node_name] if pod.spec.node_name else 0,
            _magnitude(now - since),
            -sum(each.restart_count for each in pod.status.container_statuses),
            _magnitude(now - from_text(pod.metadata.creation_timestamp)),
            pod.metadata.uid,
        )

    return sorted(pods, key=rank)


def _cost(pod: Pod) -> int:
    """What deleting a pod costs; 0 for a text that is no such number (``GetDeletionCostFromPodAnnotations``)."""
    text = (pod.metadata.annotations or {}).get(_COST, "0")
    cost = int(text) if _NUMBER.fullmatch(text) else 0
    return cost if -(2**31) <= cost < 2**31 else 0


def _magnitude(duration: int) -> int:
    """Durations are compared by their logarithm alone (``LogarithmicScaleDown``)."""
    return max(duration, 0).bit_length()


class ReplicaSets(Controller):
    """Keeps as many pods as a replica set says."""

    kind: ClassVar[str] = "ReplicaSet"

    def __init__(self, api: ApiObjects, time: VirtualTime, owned: OwnedPods, maker: PodMaker) -> None:
        super().__init__(api, time, owned, rank=1)
        self._maker = maker

    def sync(self, held: ReplicaSet | ReplicationController) -> None:
        """Makes or deletes what is missing or too many, and says what there is."""
        active, _ = self._owned.counts(held.metadata.uid)
        wanted = pod_count(held)
        if held.metadata.deletion_timestamp is None and wanted > active and held.spec.template is not None:
            self._maker.make_more(self._maker.pattern(held), wanted - active, generate_name=f"{held.name}-")
        elif wanted < active:
            pods = self._owned.of(held.metadata.uid).values()
            those = [pod for pod in pods if pod.metadata.deletion_timestamp is None and not finished(pod)]
            delete_pods(self._api, in_order_of_deletion(those, self._api.now)[: active - wanted])
        self._tell(held)

    def _tell(self, held: ReplicaSet | ReplicationController) -> None:
        active, ready = self._owned.counts(held.metadata.uid)
        status: ReplicaSetStatus | ReplicationControllerStatus
        if isinstance(held, ReplicaSet):
            status = ReplicaSetStatus(
                replicas=active,
                fully_labeled_replicas=active,
                ready_replicas=ready,
                available_replicas=ready,
                observed_generation=held.metadata.generation or 0,
            )
        else:
            status = ReplicationControllerStatus(
                replicas=active,
                ready_replicas=ready,
                available_replicas=ready,
                observed_generation=held.metadata.generation or 0,
            )
        if status != held.status:
            self._api.put(replace(held, status=status))


class ReplicationControllers(ReplicaSets):
    """The same of the older kind."""

    kind = "ReplicationController"
