"""Controllers of Deployments and ReplicaSets, with rollouts.

Upstream: ``pkg/controller/deployment`` (``rolling.go``, ``recreate.go``, ``sync.go``), ``util/deployment_util.go``,
``pkg/controller/replicaset``, ``controller_utils.go`` (order of deletion). A pod counts as available as soon as it is
ready; ``minReadySeconds`` is ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple

from msgspec.structs import replace

from kscale.effects import Moment, VirtualTime
from kscale.imports import lazy_pattern
from kscale.objects.api.apps import Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet, ReplicaSetStatus
from kscale.objects.api.core import Pod, PodSpec, PodTemplateSpec, ReplicationController, ReplicationControllerStatus
from kscale.objects.conditions import changed_at, find
from kscale.objects.pod_owners import controller_of
from kscale.objects.times import moment_in
from kscale.objects.validation import share_of
from kscale.objects.workloads import pod_count, replica_set_of
from kscale.world.simulated.api_server import ApiObjects, Changes, one_by_one
from kscale.world.simulated.controllers import Controller, OwnedPods, PodMaker
from kscale.world.simulated.pods import delete_pods, is_finished

__all__ = [
    "RECREATE",
    "Deployments",
    "ReplicaSets",
    "ReplicationControllers",
    "Sizes",
    "creation_order",
    "first_size",
    "get_max_pods",
    "in_order_of_deletion",
    "next_sizes",
    "shared_sizes",
    "size_alone",
]


RECREATE: Final = "Recreate"
_QUARTER: Final = "25%"

Sizes = Mapping[str, int]
"""New numbers of replicas by ReplicaSet key, of ReplicaSets that change."""


def _bounds(spec: DeploymentSpec, wanted: int) -> tuple[int, int]:
    """Return (maximum surge, maximum unavailable) in pods (``ResolveFenceposts``).

    Shares are rounded up for the surge, down for unavailable pods. One of them is at least 1, unless the strategy is
    Recreate: then both are 0.
    """
    if spec.strategy.type == RECREATE:
        return 0, 0
    rolling = spec.strategy.rolling_update
    surge = _QUARTER if rolling is None or rolling.max_surge is None else rolling.max_surge
    unavailable = _QUARTER if rolling is None or rolling.max_unavailable is None else rolling.max_unavailable
    extra, missing = share_of(surge, wanted, up=True), share_of(unavailable, wanted, up=False)
    return extra, 1 if not extra and not missing else missing


def first_size(deployment: Deployment, old: Iterable[ReplicaSet]) -> int:
    """Return the initial number of replicas of the ReplicaSet for a new template (``NewRSNewReplicas``)."""
    return _compute_next_size(deployment, 0, sum(map(pod_count, old)))


def _compute_next_size(deployment: Deployment, new: int, old: int) -> int:
    """Return the next number of replicas of the current ReplicaSet, which has ``new`` while the others have ``old``."""
    replicas = pod_count(deployment)
    if deployment.spec.strategy.type == RECREATE or new > replicas:
        return replicas
    room = replicas + _bounds(deployment.spec, replicas)[0] - new - old
    return new + max(min(room, replicas - new), 0)


def next_sizes(deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]) -> Sizes:
    """Return the ReplicaSets to resize in the next step of a rollout, with their new sizes; empty if there is none.

    The new ReplicaSet grows. If it cannot, old ones shrink, unavailable pods first.
    """
    old = [replica_set for replica_set in old if pod_count(replica_set)]
    has = pod_count(new)
    size = _compute_next_size(deployment, has, sum(map(pod_count, old)))
    if size != has:
        return {new.key: size}
    if not old:
        return {}
    replicas = pod_count(deployment)
    stay = replicas - min(_bounds(deployment.spec, replicas)[1], replicas)
    left = {replica_set.key: pod_count(replica_set) for replica_set in old}
    missing = has - new.status.available_replicas
    removable = has + sum(left.values()) - stay - missing
    if removable <= 0:
        return {}
    old.sort(key=creation_order)
    for replica_set in old:  # remove unavailable pods first
        left[replica_set.key] -= max(min(removable, left[replica_set.key] - replica_set.status.available_replicas), 0)
        removable -= pod_count(replica_set) - left[replica_set.key]
    spare = new.status.available_replicas + sum(replica_set.status.available_replicas for replica_set in old) - stay
    for replica_set in old:
        if spare > 0:
            gives = min(left[replica_set.key], spare)
            left[replica_set.key] -= gives
            spare -= gives
    return {
        replica_set.key: left[replica_set.key] for replica_set in old if left[replica_set.key] != pod_count(replica_set)
    }


def creation_order(replica_set: ReplicaSet) -> tuple[str, str]:
    """Return (creation time, name), by which ReplicaSets sort from oldest to newest."""
    return replica_set.metadata.creation_timestamp or "", replica_set.name


def get_max_pods(deployment: Deployment) -> int:
    """Return the maximum number of pods during a rollout."""
    replicas = pod_count(deployment)
    return replicas + _bounds(deployment.spec, replicas)[0]


def size_alone(deployment: Deployment, current: ReplicaSet | None, old: Iterable[ReplicaSet]) -> Sizes:
    """Return the new size of the only ReplicaSet with pods, for a paused deployment; empty if it has the right size.

    If no ReplicaSet has pods, the one of the current template is used, else the newest (``FindActiveOrLatest``).
    """
    others = sorted(old, key=creation_order, reverse=True)
    candidates = others if current is None else [current, *others]
    target = next(
        (candidate for candidate in candidates if pod_count(candidate)), candidates[0] if candidates else None
    )
    replicas = pod_count(deployment)
    return {} if target is None or pod_count(target) == replicas else {target.key: replicas}


def shared_sizes(deployment: Deployment, sets: Iterable[ReplicaSet], most_before: int) -> Sizes:
    """Return new sizes of ReplicaSets after a deployment was resized during a rollout (``scale``).

    Each ReplicaSet with replicas gets its proportional share of the change; the only one gets all. Unchanged
    ReplicaSets are left out; with the strategy Recreate several ReplicaSets stay as they are. ``most_before`` is the
    maximum number of pods before the resize.
    """
    replicas = pod_count(deployment)
    active = sorted((replica_set for replica_set in sets if pod_count(replica_set)), key=creation_order)
    if len(active) == 1:
        return {} if pod_count(active[0]) == replicas else {active[0].key: replicas}
    limit = get_max_pods(deployment) if replicas else 0
    change = limit - sum(map(pod_count, active))
    if not active or not change or deployment.spec.strategy.type == RECREATE:
        return {}
    if change > 0:
        active.reverse()  # among equal sizes, grow the newest first and shrink the oldest first
    active.sort(key=lambda replica_set: -pod_count(replica_set))
    sizes: dict[str, int] = {}
    distributed = 0
    for replica_set in active:
        part = _part(pod_count(replica_set), limit, most_before)
        part = min(part, change - distributed) if change > 0 else max(part, change - distributed)
        sizes[replica_set.key] = pod_count(replica_set) + part
        distributed += part
    first = active[0].key
    sizes[first] = max(sizes[first] + change - distributed, 0)
    return {
        replica_set.key: sizes[replica_set.key]
        for replica_set in active
        if sizes[replica_set.key] != pod_count(replica_set)
    }


def _part(size: int, most: int, before: int) -> int:
    """Return a ReplicaSet's proportional share of a resize, rounded to the nearest integer (``getReplicaSetFraction``).

    ``most`` and ``before`` are the maximum numbers of pods after and before the resize. The share may be negative; it
    is all of ``size`` if either is 0.
    """
    return (2 * size * most + before) // (2 * before) - size if most and before else -size


_COST = "controller.kubernetes.io/pod-deletion-cost"
_NUMBER = lazy_pattern(r"-?(0|[1-9][0-9]{0,9})")
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def in_order_of_deletion(pods: Iterable[Pod], now: Moment) -> list[Pod]:
    """Return pods in the order in which a ReplicaSet deletes them (``ActivePodsWithRanks``).

    These criteria apply in order; each decides among pods that are equal by the ones before it. First come pods without
    a node, pending pods, pods that are not ready, and those with a low deletion cost. Then those on a node with more of
    these pods, ready for a shorter time, with more restarts, younger, and with the lower UID. Durations are compared by
    their number of bits.
    """
    pods = list(pods)
    on_node = Counter(pod.spec.node_name for pod in pods)

    ages: dict[str | None, int] = {}  # by creation time
    by_status: dict[int, tuple[bool, int, int]] = {}  # by identity of the status, which many pods share

    def rank(pod: Pod) -> tuple[object, ...]:
        metadata, status, node = pod.metadata, pod.status, pod.spec.node_name
        parts = by_status.get(id(status))
        if parts is None:
            ready = find(status.conditions, "Ready")
            is_ready = ready is not None and ready.status == "True"
            since = changed_at(pod, ready) if ready is not None and is_ready else now
            restarts = sum(container.restart_count for container in status.container_statuses)
            parts = by_status[id(status)] = is_ready, _magnitude(now - since), -restarts
        age = ages.get(created := metadata.creation_timestamp)
        if age is None:
            age = ages[created] = _magnitude(now - moment_in(pod, created, "metadata.creationTimestamp"))
        return (
            bool(node),
            _PHASES.get(status.phase, 2),
            parts[0],
            _cost(pod) if metadata.annotations else 0,
            -on_node[node] if node else 0,
            *parts[1:],
            age,
            metadata.uid,
        )

    return sorted(pods, key=rank)


def _cost(pod: Pod) -> int:
    """Return the deletion cost of a pod (``GetDeletionCostFromPodAnnotations``).

    The cost is 0 if the annotation is not an int32.
    """
    text = (pod.metadata.annotations or {}).get(_COST, "0")
    cost = int(text) if _NUMBER.fullmatch(text) else 0
    return cost if -(2**31) <= cost < 2**31 else 0


def _magnitude(duration: int) -> int:
    """Return the number of bits of a duration, by which durations are compared (``LogarithmicScaleDown``).

    Returns 0 for a negative duration.
    """
    return max(duration, 0).bit_length()


class ReplicaSets(Controller):
    """Controller that keeps the number of pods that a ReplicaSet or ReplicationController specifies."""

    kind: ClassVar[str] = "ReplicaSet"

    def __init__(self, api: ApiObjects, time: VirtualTime, owned: OwnedPods, maker: PodMaker) -> None:
        super().__init__(api, time, owned, rank=1)
        self._maker = maker

    def sync(self, owner: ReplicaSet | ReplicationController) -> None:
        """Create missing pods or delete surplus ones, and update the status.

        An owner that is being deleted or has no template gets no pods.
        """
        active, _ = self._owned.counts(owner.metadata.uid)
        replicas = pod_count(owner)
        if owner.metadata.deletion_timestamp is None and replicas > active and owner.spec.template is not None:
            self._maker.make_more(self._maker.pattern(owner), replicas - active, generate_name=f"{owner.name}-")
        elif replicas < active:
            pods = self._owned.get_pods(owner.metadata.uid).values()
            candidates = [pod for pod in pods if pod.metadata.deletion_timestamp is None and not is_finished(pod)]
            delete_pods(self._api, in_order_of_deletion(candidates, self._api.now)[: active - replicas])
        self._write_status(owner)

    def _write_status(self, owner: ReplicaSet | ReplicationController) -> None:
        """Write the status from the counts of pods, if it differs."""
        active, ready = self._owned.counts(owner.metadata.uid)
        status: ReplicaSetStatus | ReplicationControllerStatus
        if isinstance(owner, ReplicaSet):
            status = ReplicaSetStatus(
                replicas=active,
                fully_labeled_replicas=active,
                ready_replicas=ready,
                available_replicas=ready,
                observed_generation=owner.metadata.generation or 0,
            )
        else:
            status = ReplicationControllerStatus(
                replicas=active,
                ready_replicas=ready,
                available_replicas=ready,
                observed_generation=owner.metadata.generation or 0,
            )
        if status != owner.status:
            self._api.put(replace(owner, status=status))


class ReplicationControllers(ReplicaSets):
    """Controller of ReplicationControllers, the older kind."""

    kind = "ReplicationController"


_HASH: Final = "pod-template-hash"
_REVISION_HISTORY_LIMIT: Final = 10
"""Default of ``revisionHistoryLimit``: number of ReplicaSets of earlier templates."""


class _LastSync(NamedTuple):
    """State of a deployment at its last sync.

    ``size``: its replicas. ``most``: the maximum number of pods. ``template``: its pod template. ``key``: key of the
    template's ReplicaSet (empty: there was none).
    """

    size: int
    most: int
    template: PodTemplateSpec
    key: str


class Deployments(Controller):
    """Controller that keeps a ReplicaSet for a deployment's template at the specified size.

    ReplicaSets of earlier templates shrink as the strategy of the deployment requires.
    """

    kind: ClassVar[str] = "Deployment"

    def __init__(self, api: ApiObjects, time: VirtualTime, owned: OwnedPods) -> None:
        self._sets: dict[str, dict[str, ReplicaSet]] = {}
        self._known: dict[str, _LastSync] = {}
        self._waited_for: dict[str, str] = {}
        """UID of a ReplicaSet whose pods must be deleted first -> key of the waiting deployment."""
        super().__init__(api, time, owned, rank=0)
        sets = one_by_one(self._set)
        sets(api.present("ReplicaSet"))
        api.listen("ReplicaSet", sets)
        api.listen("Pod", self._pods)
        api.listen(self.kind, one_by_one(self._forget_deleted))

    def _set(self, old: object, new: object) -> None:
        """Register a changed ReplicaSet under its deployment, and schedule a sync of the deployment.

        A deleted one is removed; those that no deployment controls are ignored.
        """
        replica_set = old if new is None else new
        assert isinstance(replica_set, ReplicaSet)
        owner = controller_of(replica_set.metadata)
        if owner is None or owner.kind != self.kind:
            return
        if isinstance(new, ReplicaSet):
            self._sets.setdefault(owner.uid, {})[new.key] = new
        else:
            sets = self._sets[owner.uid]
            sets.pop(replica_set.key, None)
            if not sets:
                del self._sets[owner.uid]
            self._waited_for.pop(replica_set.metadata.uid, None)
        self.changed(f"{replica_set.metadata.namespace}/{owner.name}")

    def _pods(self, changes: Changes[Pod]) -> None:
        """Schedule a sync of deployments that waited for pods that are deleted now."""
        if not self._waited_for:
            return
        for _, old, new in changes:
            owner = controller_of(old.metadata) if old is not None and new is None else None
            if owner is not None and owner.uid in self._waited_for:
                self.changed(self._waited_for[owner.uid])

    def _forget_deleted(self, old: Deployment | None, new: Deployment | None) -> None:
        """Drop the state of a deleted deployment."""
        if old is not None and new is None:
            self._known.pop(old.metadata.uid, None)

    def sync(self, deployment: Deployment) -> None:
        """Create or resize a deployment's ReplicaSets, and write its status.

        Once the rollout is complete, empty old ReplicaSets beyond the history limit are deleted.
        """
        uid, replicas = deployment.metadata.uid, pod_count(deployment)
        sets = self._sets.get(uid, {})
        current, last = self._current(deployment, sets), self._known.get(uid)
        old = [replica_set for replica_set in sets.values() if replica_set is not current]
        sizes: Sizes = {}
        if deployment.spec.paused and sum(map(bool, map(pod_count, sets.values()))) < 2:
            sizes = size_alone(deployment, current, old)
        elif last is not None and last.size != replicas and any(map(pod_count, sets.values())):
            sizes = shared_sizes(deployment, sets.values(), last.most)
            if not sizes:
                self.changed(deployment.key)  # continue with the rollout
        elif not deployment.spec.paused:
            sizes = self._plan_before_growth(deployment, old)
            if not sizes and not self._must_wait_for_old_pods(deployment, old):
                if current is None:
                    current = self._create_replica_set(deployment, old)
                else:
                    sizes = next_sizes(deployment, current, old)
        self._known[uid] = _LastSync(
            replicas, get_max_pods(deployment), deployment.spec.template, "" if current is None else current.key
        )
        for key, size in sizes.items():
            replica_set = self._api.find("ReplicaSet", key)
            self._api.put(replace(replica_set, spec=replace(replica_set.spec, replicas=size)))
        now = self._sets.get(uid, {})
        self._write_status(deployment, [*now.values()], None if current is None else now.get(current.key))
        if len(now) > 1 and current is not None:
            self._forget(deployment, [replica_set for replica_set in now.values() if replica_set.key != current.key])

    def _plan_before_growth(self, deployment: Deployment, old: Sequence[ReplicaSet]) -> Sizes:
        """Return the sizes that old ReplicaSets must get before the current one gets pods.

        Empty unless the strategy is Recreate.
        """
        return (
            {replica_set.key: 0 for replica_set in old if pod_count(replica_set)}
            if deployment.spec.strategy.type == RECREATE
            else {}
        )

    def _must_wait_for_old_pods(self, deployment: Deployment, old: Sequence[ReplicaSet]) -> bool:
        """Return whether pods of old ReplicaSets must be deleted or finished before the current one gets pods.

        That is only so with the strategy Recreate. Records these ReplicaSets: deletions of their pods schedule a sync.
        """
        for replica_set in old:
            self._waited_for.pop(replica_set.metadata.uid, None)
            pods = self._owned.get_pods(replica_set.metadata.uid).values()
            if deployment.spec.strategy.type == RECREATE and not all(map(is_finished, pods)):
                self._waited_for[replica_set.metadata.uid] = deployment.key
        return any(replica_set.metadata.uid in self._waited_for for replica_set in old)

    def _create_replica_set(self, deployment: Deployment, old: Sequence[ReplicaSet]) -> ReplicaSet:
        """Create the ReplicaSet of the current template under a free name, and return it.

        A deleted deployment of the same name may have left its ReplicaSets.
        """
        replica_set, collisions = replica_set_of(deployment), 0
        while self._api.find("ReplicaSet", replica_set.key) is not None:
            collisions += 1
            replica_set = replica_set_of(deployment, collisions=collisions)
        spec = replace(replica_set.spec, replicas=first_size(deployment, old))
        return self._api.create(replace(replica_set, spec=spec, metadata=replace(replica_set.metadata, uid="")))

    def _forget(self, deployment: Deployment, old: Sequence[ReplicaSet]) -> None:
        """Delete empty old ReplicaSets beyond the history limit, once the rollout is complete."""
        replicas = pod_count(deployment)
        status: DeploymentStatus = self._api.find(self.kind, deployment.key).status
        limit = deployment.spec.revision_history_limit
        excess = len(old) - (_REVISION_HISTORY_LIMIT if limit is None else limit)
        if excess <= 0 or not replicas == status.replicas == status.updated_replicas == status.available_replicas:
            return
        for replica_set in sorted(old, key=creation_order)[:excess]:
            if not pod_count(replica_set) and not replica_set.status.replicas:
                self._api.remove(replica_set)

    def _current(self, deployment: Deployment, sets: dict[str, ReplicaSet]) -> ReplicaSet | None:
        """Return the ReplicaSet of the current template, or None.

        At the first sync, the only ReplicaSet of a deployment whose generation has been observed counts as current.
        """
        last = self._known.get(deployment.metadata.uid)
        if last is not None and last.template is deployment.spec.template and last.key in sets:
            return sets[last.key]
        if (
            last is None
            and len(sets) == 1
            and (deployment.metadata.generation or 0) == deployment.status.observed_generation
        ):
            return next(iter(sets.values()))
        template = _without_hash(deployment.spec.template)
        return next(
            (replica_set for replica_set in sets.values() if _without_hash(replica_set.spec.template) == template), None
        )

    def _write_status(self, deployment: Deployment, sets: Sequence[ReplicaSet], current: ReplicaSet | None) -> None:
        """Write the status from the ReplicaSets, if it differs.

        ``current``: the ReplicaSet of the current template, if any.
        """
        ready = sum(replica_set.status.ready_replicas for replica_set in sets)
        status = DeploymentStatus(
            observed_generation=deployment.metadata.generation or 0,
            replicas=sum(replica_set.status.replicas for replica_set in sets),
            updated_replicas=0 if current is None else current.status.replicas,
            ready_replicas=ready,
            available_replicas=ready,
            unavailable_replicas=max(sum(map(pod_count, sets)) - ready, 0),
            conditions=deployment.status.conditions,
        )
        if status != deployment.status:
            self._api.put(replace(deployment, status=status))


def _without_hash(template: PodTemplateSpec) -> tuple[dict[str, str], dict[str, str], PodSpec]:
    """Return the labels without the hash, the annotations and the spec of a template, to compare templates.

    Upstream: ``EqualIgnoreHash``. The hash label is left out, since another program may have set it.
    """
    labels = {key: value for key, value in (template.metadata.labels or {}).items() if key != _HASH}
    return labels, template.metadata.annotations or {}, template.spec
