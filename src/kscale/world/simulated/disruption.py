"""Evictions within disruption budgets, and the garbage collector.

Upstream: ``pkg/controller/disruption``, ``pkg/registry/core/pod/rest/eviction.go``, and
``pkg/controller/garbagecollector`` with its default of background deletion.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from kscale.effects import VirtualTime
from kscale.effects.actions import TOO_MANY_REQUESTS
from kscale.objects.api.apps import ReplicaSet
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import KubeObject, ObjectMeta, OwnerReference, object_key
from kscale.objects.api.policy import PodDisruptionBudget, PodDisruptionBudgetStatus
from kscale.objects.conditions import pod_ready
from kscale.objects.pod_owners import controller_of
from kscale.objects.selectors import SelectorError, compile_selector
from kscale.objects.validation import share_of
from kscale.world.simulated.api_server import ApiObjects, Changes, RefusedError, one_by_one
from kscale.world.simulated.controllers import CONTROLLERS, DISRUPTION, ScheduledCall
from kscale.world.simulated.pods import delete_pod, is_finished

__all__ = ["Disruption", "GarbageCollector"]


_LAST = 9  # rank after the other controllers


class GarbageCollector:
    """Deletes the dependents of a deleted owner, unless another of their owners still exists.

    Only owners that are deleted during the simulation count. An object whose owner was never present stays, as after
    loading a dump without its owners.
    """

    def __init__(self, api: ApiObjects, time: VirtualTime) -> None:
        self._api = api
        self._of: dict[str, dict[tuple[str, str], None]] = {}
        self._deleted: dict[str, None] = {}
        self._turn = ScheduledCall(time, self._collect, CONTROLLERS + _LAST)
        for item in api:
            self._handle_changes(item.kind, [(item.key, None, item)])
        api.listen_all(self._handle_changes, statuses=False)

    def _handle_changes(self, kind: str, changes: Changes[KubeObject]) -> None:
        """Record owners of changed objects, and schedule a collection if an owner is deleted."""
        for key, old, new in changes:
            if old is not None and new is not None and old.metadata.owner_references is new.metadata.owner_references:
                continue
            for item, is_there in ((old, False), (new, True)):
                for owner in item.metadata.owner_references if item is not None else ():
                    self._note(owner.uid, (kind, key), is_there=is_there)
            if old is not None and new is None:
                uid = old.metadata.uid
                if uid in self._of:
                    self._deleted[uid] = None
                    self._turn.schedule()

    def _note(self, uid: str, dependent: tuple[str, str], *, is_there: bool) -> None:
        """Record a dependent, given as (kind, key), of the owner with this UID, or remove it if not ``is_there``."""
        dependents = self._of.setdefault(uid, {})
        if is_there:
            dependents[dependent] = None
            return
        dependents.pop(dependent, None)
        if not dependents:
            del self._of[uid]

    def _collect(self) -> None:
        """Delete the dependents of deleted owners that have no other owner."""
        deleted, self._deleted = self._deleted, {}
        for uid in deleted:
            for item in [self._api.find(kind, key) for kind, key in self._of.get(uid, {})]:
                if item is not None and not self._has_owner(item.metadata):
                    self._delete(item)

    def _delete(self, item: KubeObject) -> None:
        """Delete an object; a pod is terminated like by a user."""
        if isinstance(item, Pod):
            delete_pod(self._api, item)
        else:
            self._api.remove(item)

    def _has_owner(self, metadata: ObjectMeta) -> bool:
        """Check whether an owner of an object exists. ``metadata``: that of the object."""
        return any(self._owner_exists(owner, metadata.namespace) for owner in metadata.owner_references)

    def _owner_exists(self, owner: OwnerReference, namespace: str) -> bool:
        """Check whether the owner exists, namespaced or cluster-wide, with the same UID."""
        for key in (object_key(namespace, owner.name), object_key("", owner.name)):
            candidate = self._api.find(owner.kind, key)
            if candidate is not None and candidate.metadata.uid == owner.uid:
                return True
        return False


_KIND: Final = "PodDisruptionBudget"


class Disruption:
    """Disruption controller and the eviction subresource."""

    def __init__(self, api: ApiObjects, time: VirtualTime) -> None:
        self._api = api
        self._changed: dict[str, None] = {}
        self._budgets: dict[str, int] = {}
        self._turn = ScheduledCall(time, self._count, DISRUPTION)
        for budget in api.get_all(_KIND).values():
            self._budget(None, budget)
        api.listen("Pod", self._pods)
        api.listen(_KIND, one_by_one(self._budget))

    def _pods(self, changes: Changes[Pod]) -> None:
        """Schedule a recount of the budgets in the namespaces of changed pods."""
        if not self._budgets:
            return
        for _, old, new in changes:
            namespace = (new or old).metadata.namespace  # type: ignore[union-attr]  # one of the two is not None
            if namespace in self._budgets:
                self._changed[namespace] = None
                self._turn.schedule()

    def _budget(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """Count the budgets of a namespace, and schedule a recount if one is new or has another spec."""
        namespace = (new or old).metadata.namespace  # type: ignore[union-attr]  # one of the two is not None
        self._budgets[namespace] = self._budgets.get(namespace, 0) + (old is None) - (new is None)
        if not self._budgets[namespace]:
            del self._budgets[namespace]
        elif old is None or (
            isinstance(old, PodDisruptionBudget) and isinstance(new, PodDisruptionBudget) and old.spec != new.spec
        ):
            self._changed[namespace] = None
            self._turn.schedule()

    def _list_budgets(self, namespace: str) -> list[PodDisruptionBudget]:
        """List the disruption budgets of a namespace."""
        return [budget for budget in self._api.get_all(_KIND).values() if budget.metadata.namespace == namespace]

    # -- the controller ----------------------------------------------------------------------------------------------

    def _count(self) -> None:
        """Recount the budgets of all namespaces with changes, and write each status that differs."""
        changed, self._changed = self._changed, {}
        for namespace in changed:
            budgets = self._list_budgets(namespace)
            pods = [pod for pod in self._api.get_all("Pod").values() if pod.metadata.namespace == namespace]
            for budget in budgets:
                status = self._status(budget, pods)
                if status != budget.status:
                    self._api.put(replace(budget, status=status))

    def _status(self, budget: PodDisruptionBudget, pods: list[Pod]) -> PodDisruptionBudgetStatus:
        """Compute the status of a budget. ``pods``: all pods of its namespace."""
        matching = [pod for pod in pods if _covers(budget, pod) and not is_finished(pod)]
        expected, desired = self._count_expected(budget, matching)
        disrupted = {
            name: since
            for name, since in (budget.status.disrupted_pods or {}).items()
            if any(pod.name == name and pod.metadata.deletion_timestamp is None for pod in matching)
        }
        healthy = sum(
            pod.metadata.deletion_timestamp is None and pod.name not in disrupted and pod_ready(pod) for pod in matching
        )
        return PodDisruptionBudgetStatus(
            observed_generation=budget.metadata.generation or 0,
            disrupted_pods=disrupted or None,
            disruptions_allowed=max(healthy - desired, 0) if expected > 0 else 0,
            current_healthy=healthy,
            desired_healthy=desired,
            expected_pods=expected,
            conditions=budget.status.conditions,
        )

    def _count_expected(self, budget: PodDisruptionBudget, matching: list[Pod]) -> tuple[int, int]:
        """Return (expected pods, how many of them must stay healthy). Percentages are rounded up."""
        spec = budget.spec
        if spec.max_unavailable is not None:
            expected = self._get_expected_scale(matching)
            return expected, max(expected - share_of(spec.max_unavailable, expected, up=True), 0)
        if spec.min_available is None:
            return len(matching), 0
        if isinstance(spec.min_available, int):
            return len(matching), spec.min_available
        expected = self._get_expected_scale(matching)
        return expected, share_of(spec.min_available, expected, up=True)

    def _get_expected_scale(self, pods: list[Pod]) -> int:
        """Return the sum of ``spec.replicas`` (default 1) of the pods' controllers, each counted once.

        A ReplicaSet is represented by its Deployment. Pods without a controller that has replicas do not count.
        """
        owners: dict[str, int] = {}
        for pod in pods:
            owner = controller_of(pod.metadata)
            if owner is None:
                continue
            controller: Any = self._api.find(owner.kind, object_key(pod.metadata.namespace, owner.name))
            above = controller_of(controller.metadata) if isinstance(controller, ReplicaSet) else None
            if above is not None and above.kind == "Deployment":  # its ReplicaSets share its replicas
                owner, controller = above, self._api.find(above.kind, object_key(pod.metadata.namespace, above.name))
            spec: Any = getattr(controller, "spec", None)
            if spec is not None and hasattr(spec, "replicas"):
                owners[owner.uid] = 1 if spec.replicas is None else spec.replicas
        return sum(owners.values())

    # -- evictions ---------------------------------------------------------------------------------------------------

    def evict(self, namespace: str, name: str, grace: int | None) -> None:
        """Delete a pod if its disruption budget allows it. ``grace``: grace period in seconds (None: the pod's own).

        Budgets do not protect pending, finished and terminating pods. Raises :class:`RefusedError` if there is no such
        pod, the budget does not allow the eviction, or several budgets cover the pod.
        """
        pod: Pod = self._api.get("Pod", namespace, name)
        if not is_finished(pod) and pod.status.phase != "Pending" and pod.metadata.deletion_timestamp is None:
            budgets = [budget for budget in self._list_budgets(namespace) if _covers(budget, pod)]
            if len(budgets) > 1:
                text = (
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
                )
                raise RefusedError(text, 500, "InternalError")
            for budget in budgets:
                self._charge(budget, pod)
        delete_pod(self._api, pod, grace)

    def _charge(self, budget: PodDisruptionBudget, pod: Pod) -> None:
        """Use up one disruption of a budget, unless its policy lets the unready pod be evicted anyway.

        Raises RefusedError if the budget allows no disruption.
        """
        status = budget.status
        if not pod_ready(pod):
            policy = budget.spec.unhealthy_pod_eviction_policy
            enough = status.current_healthy >= status.desired_healthy > 0
            if policy == "AlwaysAllow" or (policy in (None, "", "IfHealthyBudget") and enough):
                return
        if status.disruptions_allowed <= 0:
            text = "Cannot evict pod as it would violate the pod's disruption budget."
            raise RefusedError(text, 429, TOO_MANY_REQUESTS, ("DisruptionBudget",))
        disrupted = {**(status.disrupted_pods or {}), pod.name: self._api.now_text}
        left = replace(status, disruptions_allowed=status.disruptions_allowed - 1, disrupted_pods=disrupted)
        self._api.put(replace(budget, status=left))


def _covers(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Check whether a budget's selector matches a pod. An invalid selector matches none."""
    try:
        return compile_selector(budget.spec.selector).matches(pod.metadata.labels or {})
    except SelectorError:
        return False
