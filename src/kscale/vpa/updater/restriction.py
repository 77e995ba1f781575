"""Limits the number of pods of a controller that are disrupted at once (upstream: ``pkg/updater/restriction``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kscale.errors import KscaleError
from kscale.objects.api.apps import DaemonSet, ReplicaSet, StatefulSet
from kscale.objects.api.core import Pod, ReplicationController
from kscale.objects.api.vpa import RecommendedPodResources, VerticalPodAutoscaler, update_mode
from kscale.objects.pod_owners import controller_of
from kscale.vpa.container_resources import (
    find_expired_boosts,
    has_boost_in_progress,
)
from kscale.vpa.controllers import Controllers
from kscale.vpa.options import CPU_STARTUP_BOOST_GATE, IN_PLACE_GATE, UpdaterOptions, is_gate_enabled
from kscale.vpa.resources import float_to_int64, has_lower_resource
from kscale.vpa.updater.in_place import (
    IN_PLACE_DEFERRED,
    IN_PLACE_INFEASIBLE_CACHED,
    decide_in_place,
    is_resize_stuck,
    is_resizing,
)

__all__ = [
    "PodGroup",
    "PodGroupKey",
    "PodGroupStats",
    "PodsRestriction",
]

PENDING_PHASE: Final = "Pending"
_KIND_NAMES: Final = {
    "ReplicationController": "replication controller",
    "ReplicaSet": "replica set",
    "StatefulSet": "stateful set",
    "DaemonSet": "daemon set",
}


class ReplicaCountError(KscaleError):
    """The number of replicas of a controller is unknown. The message is upstream's."""


class PodGroupKey(NamedTuple):
    """Controller of a group of pods. All fields but the namespace are empty for pods without one, as in upstream."""

    namespace: str
    kind: str
    name: str


@dataclass(slots=True)
class PodGroupStats:
    """Numbers of the pods of one controller: configured, pending, running, and disrupted in this loop.

    ``tolerance``: how many of the configured pods may be disrupted at a time.
    """

    configured: int
    tolerance: int
    pending: int
    running: int
    in_place_ongoing: int = 0
    below_min_replicas: bool = False
    evicted: int = 0
    in_place_initiated: int = 0

    @property
    def disruptable(self) -> bool:
        """Return whether another pod may be disrupted now.

        With a tolerance of 0, one pod may be disrupted if all replicas are running.
        """
        disrupted = self.evicted + self.in_place_initiated
        if self.running - disrupted > self.configured - self.tolerance:
            return True
        return self.configured == self.running and self.tolerance == 0 and disrupted == 0


@dataclass(slots=True)
class PodGroup:
    """Pods of one controller, with their statistics."""

    key: PodGroupKey
    stats: PodGroupStats
    pods: list[Pod] = field(default_factory=list)


def _get_creator(pod: Pod) -> PodGroupKey:
    """Return the controller of a pod; kind and name are empty if there is none."""
    owner = controller_of(pod.metadata)
    return (
        PodGroupKey(pod.namespace, owner.kind, owner.name) if owner is not None else PodGroupKey(pod.namespace, "", "")
    )


def get_replica_count(key: PodGroupKey, controllers: Controllers) -> int:
    """Return the desired number of replicas of a controller; for a DaemonSet, the number of its ready pods.

    0 for other kinds than ReplicationController, ReplicaSet, StatefulSet and DaemonSet. Raises
    :class:`ReplicaCountError` if the controller does not exist or its number is 0.
    """
    if key.kind not in _KIND_NAMES:
        return 0
    words = f"{_KIND_NAMES[key.kind]} {key.namespace}/{key.name}"
    match controllers.get(key.kind, key.namespace, key.name):
        case None:
            raise ReplicaCountError(f"{words} does not exist")
        case DaemonSet() as found:
            if found.status.number_ready == 0:
                raise ReplicaCountError(f"{words} has no number ready pods")
            return found.status.number_ready
        case (ReplicationController() | ReplicaSet() | StatefulSet()) as found:
            if not found.spec.replicas:
                raise ReplicaCountError(f"{words} has no replicas config")
            return found.spec.replicas
    return 0


class PodsRestriction:
    """Decides which pods of one VPA may be evicted or resized in place.

    Call :meth:`register_eviction` and :meth:`register_resize` after each disruption, and :meth:`note_attempt` for a
    resizing pod that is checked; other methods change nothing. ``last_attempts``: time of the first attempt to resize
    each pod (nanoseconds), by ``namespace/name``. It is shared by all restrictions of an updater and is never cleared.
    """

    def __init__(
        self,
        vpa: VerticalPodAutoscaler,
        pods: Iterable[Pod],
        controllers: Controllers,
        options: UpdaterOptions,
        last_attempts: dict[str, int],
        *,
        replica_kinds: frozenset[str] = frozenset(_KIND_NAMES),
    ) -> None:
        self.vpa = vpa
        self._replica_kinds = replica_kinds
        self.options = options
        self.last_attempts = last_attempts
        self.groups: dict[PodGroupKey, PodGroup] = {}
        self.diagnostics: list[str] = []
        self.too_few: dict[PodGroupKey, int] = {}
        """Number of live pods of each group that has fewer than required."""
        self._group_of: dict[str, PodGroup] = {}
        self._refused: dict[PodGroupKey, tuple[str, str]] = {}
        members: dict[PodGroupKey, list[Pod]] = {}
        for pod in pods:
            members.setdefault(_get_creator(pod), []).append(pod)
        for key, live in members.items():
            self._add_group(key, live, controllers)

    @property
    def mode(self) -> str:
        """Return the VPA's update mode."""
        return update_mode(self.vpa)

    @property
    def ignores_budget(self) -> bool:
        """Return whether in-place updates of this VPA may exceed the disruption tolerance of a group.

        Requires the option ``in_place_skip_disruption_budget`` and the update mode InPlaceOrRecreate or InPlace.
        """
        return self.options.in_place_skip_disruption_budget and self.mode in ("InPlaceOrRecreate", "InPlace")

    def _add_group(self, key: PodGroupKey, live: list[Pod], controllers: Controllers) -> None:
        """Add a group of pods, or record in ``_refused`` why its pods may not be updated.

        A group with too few live pods is also recorded in ``too_few``. It is added nevertheless if a boost is in
        progress or resizes ignore the budget. If the number of replicas is unknown, a diagnostic is added.
        """
        policy = self.vpa.spec.update_policy
        own = policy.min_replicas if policy is not None else None
        required = own if own is not None else self.options.min_replicas
        below = False
        if len(live) < required:
            if not self.ignores_budget and not any(has_boost_in_progress(pod) for pod in live):
                self.too_few[key] = len(live)
                owner = f"{key.kind}/{key.name}" if key.kind else "no controller"
                text = f"{len(live)} live pods of {owner}, at least {required} are needed (minReplicas)"
                self._refused[key] = "TooFewReplicas", text
                return
            below = self.ignores_budget
        try:
            configured = len(live) if key.kind == "Job" else 0
            if key.kind in self._replica_kinds:
                configured = get_replica_count(key, controllers)
        except ReplicaCountError as error:
            self.diagnostics.append(str(error))
            self._refused[key] = "Controller", str(error)
            return
        pending = sum(1 for pod in live if pod.status.phase == PENDING_PHASE)
        stats = PodGroupStats(
            configured=configured,
            tolerance=float_to_int64(float(configured) * self.options.eviction_tolerance),
            pending=pending,
            running=len(live) - pending,
            in_place_ongoing=sum(1 for pod in live if is_resizing(pod)),
            below_min_replicas=below,
        )
        group = self.groups[key] = PodGroup(key, stats, live)
        for pod in live:
            self._group_of[pod.key] = group

    def stats(self, pod: Pod) -> PodGroupStats | None:
        """Return the statistics of the pod's group; None if the pod is in no group that may be updated."""
        group = self._group_of.get(pod.key)
        return group.stats if group is not None else None

    @property
    def has_recommendation(self) -> bool:
        """Return whether the VPA's status has a recommendation."""
        return self.vpa.status.recommendation is not None

    def has_pod(self, pod: Pod) -> bool:
        """Check whether the pod belongs to a group that may be updated."""
        return pod.key in self._group_of

    # -- queries -----------------------------------------------------------------------------------------------------

    def can_evict(self, pod: Pod, now: int) -> bool:
        """Check whether the pod may be evicted at ``now``, in nanoseconds (``CanEvict``).

        False for a pod in no group. A pending pod in a group may always be evicted. Any other pod may be if its group
        has enough replicas and tolerates a disruption; a resizing pod moreover only if its resize has failed or is
        stuck.
        """
        stats = self.stats(pod)
        if stats is None:
            return False
        if pod.status.phase == PENDING_PHASE:
            return True
        if stats.below_min_replicas:
            return False
        return self._can_evict_resizing(pod, stats, now) if is_resizing(pod) else stats.disruptable

    def _can_evict_resizing(self, pod: Pod, stats: PodGroupStats, now: int) -> bool:
        """Check whether a resizing pod may be evicted: its resize is stuck, and its group tolerates a disruption."""
        return stats.disruptable and is_resize_stuck(pod, now - self.last_attempts.get(pod.key, now))

    def can_update_in_place(
        self, pod: Pod, now: int, infeasible_attempts: Mapping[str, RecommendedPodResources]
    ) -> str:
        """Decide on an in-place update of the pod at ``now``, in nanoseconds (``CanInPlaceUpdate``).

        ``infeasible_attempts``: by pod UID, the recommendation that the pod's node had no room for. Returns one of the
        ``IN_PLACE_*`` constants of :mod:`kscale.vpa.updater.in_place`.
        """
        stats = self.stats(pod)
        in_place_only = self.mode == "InPlace"
        if in_place_only and not is_gate_enabled(self.options.feature_gates, IN_PLACE_GATE):
            return IN_PLACE_DEFERRED
        if stats is None or pod.status.phase == PENDING_PHASE or not self.has_recommendation:
            return IN_PLACE_DEFERRED
        attempt = infeasible_attempts.get(pod.metadata.uid)
        if in_place_only and attempt is not None and not has_lower_resource(attempt, self.vpa.status.recommendation):
            return IN_PLACE_INFEASIBLE_CACHED
        return decide_in_place(
            pod,
            in_place_only=in_place_only,
            may_disrupt=stats.disruptable,
            waited=now - self.last_attempts.get(pod.key, now),
            skip_budget=self.options.in_place_skip_disruption_budget,
        )

    def can_unboost(self, pod: Pod, now: int) -> bool:
        """Check whether a startup boost of the pod has expired and the pod may be resized (``CanUnboost``).

        False without the gate CPUStartupBoost, for a pending or resizing pod, and if its group tolerates no disruption.
        """
        stats = self.stats(pod)
        if not is_gate_enabled(self.options.feature_gates, CPU_STARTUP_BOOST_GATE) or pod.status.phase == PENDING_PHASE:
            return False
        if not find_expired_boosts(pod, self.vpa, now) or stats is None:
            return False
        return not is_resizing(pod) and stats.disruptable

    def explain_block(self, pod: Pod) -> tuple[str, str]:
        """Return (reason, message) why a pod that may not be updated now stays as it is."""
        stats = self.stats(pod)
        if stats is None:
            return self._refused.get(_get_creator(pod), ("Controller", "its controller is not known"))
        if pod.status.phase == PENDING_PHASE:
            return "Pending", "the pod is pending, so it is not resized"
        if not self.has_recommendation:
            return "NoRecommendation", "the VPA has no recommendation"
        if is_resizing(pod):
            return "Resizing", "the pod is being resized already"
        if stats.below_min_replicas:
            return "TooFewReplicas", f"{len(self._group_of[pod.key].pods)} live pods, fewer than minReplicas"
        disrupted = stats.evicted + stats.in_place_initiated
        text = f"{stats.running - disrupted} of {stats.configured} replicas run, and {stats.tolerance} may be missing"
        return "Budget", text

    # -- updates -----------------------------------------------------------------------------------------------------

    def note_attempt(self, pod: Pod, now: int) -> None:
        """Set the time of a resizing pod's first attempt, unless it is set already.

        Upstream does this when it checks a resizing pod: the first check counts as the attempt.
        """
        stats = self.stats(pod)
        if stats is not None and is_resizing(pod):
            self.last_attempts.setdefault(pod.key, now)

    def register_eviction(self, pod: Pod) -> None:
        """Count the eviction of a pod. Pending pods do not count."""
        stats = self.stats(pod)
        if stats is not None and pod.status.phase != PENDING_PHASE:
            stats.evicted += 1

    def register_resize(self, pod: Pod) -> None:
        """Count the in-place resize of a pod."""
        stats = self.stats(pod)
        if stats is not None:
            stats.in_place_initiated += 1
