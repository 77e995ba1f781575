"""The controller of deployments: a replica set for each template, and how the newest takes the place of the others.

Upstream: ``pkg/controller/deployment``. A pod is available once it is ready (``minReadySeconds`` is not waited for).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple

from msgspec.structs import replace

from kscale.effects import VirtualTime
from kscale.objects.apps import Deployment, DeploymentStatus, ReplicaSet
from kscale.objects.core import Pod, PodSpec, PodTemplateSpec
from kscale.objects.owners import controller_of
from kscale.objects.workloads import pod_count, replica_set_of
from kscale.world.simulated.api_objects import ApiObjects, Changes, one_by_one
from kscale.world.simulated.controllers import Controller
from kscale.world.simulated.owned_pods import OwnedPods
from kscale.world.simulated.pods import finished
from kscale.world.simulated.rollouts import (
    RECREATE,
    Sizes,
    age_of,
    first_size,
    most_of,
    next_sizes,
    shared_sizes,
    size_alone,
)

__all__ = ["Deployments"]

_HASH: Final = "pod-template-hash"
_KEPT: Final = 10
"""Sets of earlier templates, where a deployment does not say how many (``revisionHistoryLimit``)."""


class _Known(NamedTuple):
    """What was found when a deployment was looked at last: its ``size``, how many pods there might be at ``most``, and
    the ``key`` of the set of its ``template`` (empty: there was none)."""

    size: int
    most: int
    template: PodTemplateSpec
    key: str


class Deployments(Controller):
    """Keeps a replica set for the template of a deployment, as large as it says; others before it make room as the
    strategy says."""

    kind: ClassVar[str] = "Deployment"

    def __init__(self, api: ApiObjects, time: VirtualTime, owned: OwnedPods) -> None:
        self._sets: dict[str, dict[str, ReplicaSet]] = {}
        self._known: dict[str, _Known] = {}
        self._waited_for: dict[str, str] = {}
        """UIDs of sets whose pods have to be gone first, and the deployment that waits."""
        super().__init__(api, time, owned, rank=0)
        sets = one_by_one(self._set)
        sets(api.present("ReplicaSet"))
        api.listen("ReplicaSet", sets)
        api.listen("Pod", self._pods)
        api.listen(self.kind, one_by_one(self._gone))

    def _set(self, old: object, new: object) -> None:
        held = old if new is None else new
        assert isinstance(held, ReplicaSet)
        owner = controller_of(held.metadata)
        if owner is None or owner.kind != self.kind:
            return
        if isinstance(new, ReplicaSet):
            self._sets.setdefault(owner.uid, {})[new.key] = new
        else:
            sets = self._sets[owner.uid]
            sets.pop(held.key, None)
            if not sets:
                del self._sets[owner.uid]
            self._waited_for.pop(held.metadata.uid, None)
        self.changed(f"{held.metadata.namespace}/{owner.name}")

    def _pods(self, changes: Changes[Pod]) -> None:
        if not self._waited_for:
            return
        for _, old, new in changes:
            owner = controller_of(old.metadata) if old is not None and new is None else None
            if owner is not None and owner.uid in self._waited_for:
                self.changed(self._waited_for[owner.uid])

    def _gone(self, old: Deployment | None, new: Deployment | None) -> None:
        if old is not None and new is None:
            self._known.pop(old.metadata.uid, None)

    def sync(self, held: Deployment) -> None:
        """Makes or resizes its replica sets, and says what they have."""
        uid, wanted = held.metadata.uid, pod_count(held)
        sets = self._sets.get(uid, {})
        current, known = self._current(held, sets), self._known.get(uid)
        old = [each for each in sets.values() if each is not current]
        sizes: Sizes = {}
        if held.spec.paused and sum(map(bool, map(pod_count, sets.values()))) < 2:
            sizes = size_alone(held, current, old)
        elif known is not None and known.size != wanted and any(map(pod_count, sets.values())):
            sizes = shared_sizes(held, sets.values(), known.most)
            if not sizes:
                self.changed(held.key)  # it goes on
        elif not held.spec.paused:
            sizes = self._before_another(held, old)
            if not sizes and not self._waits_for(held, old):
                if current is None:
                    current = self._make(held, old)
                else:
                    sizes = next_sizes(held, current, old)
        self._known[uid] = _Known(wanted, most_of(held), held.spec.template, "" if current is None else current.key)
        for key, size in sizes.items():
            each = self._api.find("ReplicaSet", key)
            self._api.put(replace(each, spec=replace(each.spec, replicas=size)))
        now = self._sets.get(uid, {})
        self._tell(held, [*now.values()], None if current is None else now.get(current.key))
        if len(now) > 1 and current is not None:
            self._forget(held, [each for each in now.values() if each.key != current.key])

    def _before_another(self, held: Deployment, old: Sequence[ReplicaSet]) -> Sizes:
        """What other sets get before that of the template has pods."""
        return {each.key: 0 for each in old if pod_count(each)} if held.spec.strategy.type == RECREATE else {}

    def _waits_for(self, held: Deployment, old: Sequence[ReplicaSet]) -> bool:
        """Whether pods of other sets have to be gone before that of the template has any."""
        for each in old:
            self._waited_for.pop(each.metadata.uid, None)
            pods = self._owned.of(each.metadata.uid).values()
            if held.spec.strategy.type == RECREATE and not all(map(finished, pods)):
                self._waited_for[each.metadata.uid] = held.key
        return any(each.metadata.uid in self._waited_for for each in old)

    def _make(self, held: Deployment, old: Sequence[ReplicaSet]) -> ReplicaSet:
        """The set of its template, under a name that nobody has: one that was deleted may still have its sets."""
        made, collisions = replica_set_of(held), 0
        while self._api.find("ReplicaSet", made.key) is not None:
            collisions += 1
            made = replica_set_of(held, collisions=collisions)
        spec = replace(made.spec, replicas=first_size(held, old))
        return self._api.create(replace(made, spec=spec, metadata=replace(made.metadata, uid="")))

    def _forget(self, held: Deployment, old: Sequence[ReplicaSet]) -> None:
        """Of sets that have no pods any more a few are kept, once all pods are those of the template."""
        wanted = pod_count(held)
        status: DeploymentStatus = self._api.find(self.kind, held.key).status
        limit = held.spec.revision_history_limit
        many = len(old) - (_KEPT if limit is None else limit)
        if many <= 0 or not wanted == status.replicas == status.updated_replicas == status.available_replicas:
            return
        for each in sorted(old, key=age_of)[:many]:
            if not pod_count(each) and not each.status.replicas:
                self._api.remove(each)

    def _current(self, held: Deployment, sets: dict[str, ReplicaSet]) -> ReplicaSet | None:
        """The replica set of its template."""
        known = self._known.get(held.metadata.uid)
        if known is not None and known.template is held.spec.template and known.key in sets:
            return sets[known.key]
        if known is None and len(sets) == 1 and (held.metadata.generation or 0) == held.status.observed_generation:
            return next(iter(sets.values()))
        wanted = _without_hash(held.spec.template)
        return next((each for each in sets.values() if _without_hash(each.spec.template) == wanted), None)

    def _tell(self, held: Deployment, sets: Sequence[ReplicaSet], current: ReplicaSet | None) -> None:
        ready = sum(each.status.ready_replicas for each in sets)
        status = DeploymentStatus(
            observed_generation=held.metadata.generation or 0,
            replicas=sum(each.status.replicas for each in sets),
            updated_replicas=0 if current is None else current.status.replicas,
            ready_replicas=ready,
            available_replicas=ready,
            unavailable_replicas=max(sum(map(pod_count, sets)) - ready, 0),
            conditions=held.status.conditions,
        )
        if status != held.status:
            self._api.put(replace(held, status=status))


def _without_hash(template: PodTemplateSpec) -> tuple[dict[str, str], dict[str, str], PodSpec]:
    """What tells templates apart (``EqualIgnoreHash``): the hash that another program has put there counts as ours."""
    labels = {key: value for key, value in (template.metadata.labels or {}).items() if key != _HASH}
    return labels, template.metadata.annotations or {}, template.spec
