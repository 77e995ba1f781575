"""A small cluster that does what step machines of scale-down ask for, and remembers it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from kscale.ca.events import Event
from kscale.ca.nodes import DELETION_CANDIDATE_TAINT, TO_BE_DELETED_TAINT, has_taint
from kscale.ca.scale_down.actuation import actions as do
from kscale.objects.core import Node, Pod
from kscale.objects.meta import KubeObject
from kscale.objects.policy import PodDisruptionBudget

NOT_FOUND = do.ApiError("not found", "NotFound")
Refusal = Callable[[datetime], str | None]


class World:
    """Nodes, pods and a cloud. What is to go wrong is set on it; what happened is read off it.

    ``marks``: node -> ``+T``, ``-T`` (to be deleted), ``+S``, ``-S`` (soft) in the order written; ``evicted``,
    ``force_deleted``: pods by name in the order they went; ``deleted``: calls to the cloud as (group, nodes).
    """

    def __init__(self, nodes: Iterable[Node], pods: Iterable[Pod] = ()) -> None:
        self.nodes = {node.metadata.name: node for node in nodes}
        self.pods = {pod.key: pod for pod in pods}
        self.controllers: list[KubeObject] = []
        self.budgets: list[PodDisruptionBudget] = []
        # What goes wrong
        self.no_taint: set[str] = set()
        self.no_eviction: dict[str, Refusal] = {}
        self.no_delete: set[str] = set()
        self.no_get: set[str] = set()
        self.no_lister: set[str] = set()
        self.cloud_refuses: set[str] = set()
        self.force_refuses: set[str] = set()
        self.listing_fails: str | None = None
        self.budgets_fail: str | None = None
        self.controllers_fail: str | None = None
        # How long things take
        self.lag: Callable[[str], timedelta | None] = lambda node: timedelta()
        self.takes: dict[type, timedelta] = {}
        self.lingers: dict[str, timedelta] = {}
        # What happened
        self.marks: dict[str, list[str]] = {}
        self.written: dict[str, datetime] = {}
        self.cordons: dict[str, bool | None] = {}
        self.evicted: list[str] = []
        self.graces: dict[str, int] = {}
        self.tries: dict[str, list[datetime]] = {}
        self.force_deleted: list[str] = []
        self.gone_at: dict[str, datetime] = {}
        self.deleted: list[tuple[str, list[str]]] = []
        self.force_deleted_nodes: list[str] = []
        self.events: list[Event] = []
        self.metrics: list[tuple[str, float, dict[str, str]]] = []
        self.registered: list[do.Action] = []

    def perform(self, action: do.Action, now: datetime) -> do.Outcome:
        value, error = self._do(action, now)
        error = do.ApiError(error) if isinstance(error, str) else error
        return do.Outcome(at=now + self.takes.get(type(action), timedelta()), value=value, error=error)

    def _do(self, action: do.Action, now: datetime) -> tuple[Any, do.ApiError | str | None]:
        match action:
            case do.GetNode(name=name):
                found = self.nodes.get(name)
                return found, None if found is not None else NOT_FOUND
            case do.ListedNode(name=name):
                return self._listed(name, now)
            case do.UpdateTaints():
                return None, self._update(action, now)
            case do.ListPods(nodes=nodes):
                alive = [pod for key, pod in self.pods.items() if not self._is_gone(key, now)]
                return [pod for pod in alive if pod.spec.node_name in nodes], self.listing_fails
            case do.ListPodDisruptionBudgets():
                return self.budgets, self.budgets_fail
            case do.ListControllers():
                return None if self.controllers_fail else self.controllers, self.controllers_fail
            case do.EvictPod(namespace=namespace, name=name, grace_period_seconds=grace):
                return None, self._evict(f"{namespace}/{name}", name, grace, now)
            case do.DeletePod(namespace=namespace, name=name):
                if name in self.no_delete:
                    return None, "no delete"
                self.force_deleted.append(name)
                self.gone_at[f"{namespace}/{name}"] = now
                return None, None
            case do.GetPod(namespace=namespace, name=name):
                if name in self.no_get:
                    return None, "no get"
                key = f"{namespace}/{name}"
                if key not in self.pods or self._is_gone(key, now):
                    return None, NOT_FOUND
                return self.pods[key], None
            case do.DeleteNodes(group=group, nodes=nodes):
                if self.cloud_refuses.intersection(nodes):
                    return None, "cloud says no"
                self.deleted.append((group, list(nodes)))
                return None, None
            case do.ForceDeleteNodes(nodes=nodes):
                if self.force_refuses.intersection(nodes):
                    return None, "cloud says never"
                self.force_deleted_nodes += nodes
                return None, None
            case do.Emit(event=event):
                self.events.append(event)
            case do.Observe(metric=metric, value=number, labels=labels):
                self.metrics.append((metric, number, labels))
            case do.RegisterScaleDown() | do.RegisterFailedScaleDown():
                self.registered.append(action)
            case _:
                raise AssertionError(action)
        return None, None

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _listed(self, name: str, now: datetime) -> tuple[Node | None, do.ApiError | str | None]:
        if name in self.no_lister:
            return None, "no lister"
        node = self.nodes[name]
        lag = self.lag(name)
        if name in self.written and (lag is None or now < self.written[name] + lag):
            kept = [taint for taint in node.spec.taints if taint.key != TO_BE_DELETED_TAINT]
            node = replace(node, spec=replace(node.spec, taints=kept))
        return node, None

    def _update(self, action: do.UpdateTaints, now: datetime) -> do.ApiError | str | None:
        name = action.node
        if name in self.no_taint:
            return "no taint"
        node = self.nodes[name]
        if action.resource_version != node.metadata.resource_version:
            return do.ApiError("object has been modified", "Conflict")
        before = node
        metadata = replace(node.metadata, resource_version=str(int(node.metadata.resource_version or 0) + 1))
        node = replace(node, metadata=metadata, spec=replace(node.spec, taints=action.taints))
        if action.unschedulable is not None:
            node = replace(node, spec=replace(node.spec, unschedulable=action.unschedulable))
        self.nodes[name] = node
        self.cordons[name] = action.unschedulable
        for key, letter in ((TO_BE_DELETED_TAINT, "T"), (DELETION_CANDIDATE_TAINT, "S")):
            if has_taint(node, key) != has_taint(before, key):
                self.marks.setdefault(name, []).append(("+" if has_taint(node, key) else "-") + letter)
        self.written[name] = now
        return None

    # -- pods --------------------------------------------------------------------------------------------------------

    def _is_gone(self, key: str, now: datetime) -> bool:
        return key in self.gone_at and now >= self.gone_at[key]

    def _evict(self, key: str, name: str, grace: int, now: datetime) -> str | do.ApiError | None:
        self.tries.setdefault(name, []).append(now)
        self.graces[name] = grace
        refuses = self.no_eviction.get(name)
        refusal = None if refuses is None else refuses(now)
        if refusal is None:
            self.evicted.append(name)
            self.gone_at[key] = now + self.lingers.get(name, timedelta())
        return refusal


def never(now: datetime) -> str:
    """A refusal for good."""
    return "no eviction"
