"""A small cluster that does what the Cluster Autoscaler's step machines ask for, and remembers it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from kscale.ca.nodes import DELETION_CANDIDATE_TAINT, TO_BE_DELETED_TAINT, has_taint
from kscale.effects import (
    Action,
    ApiError,
    Delete,
    DeleteNodes,
    Emit,
    Event,
    Evict,
    Get,
    List,
    Moment,
    Observe,
    Outcome,
    Patch,
)
from kscale.objects.api.core import Node, Pod, Taint
from kscale.objects.api.meta import KubeObject
from kscale.objects.api.policy import PodDisruptionBudget
from kscale.objects.decode import from_dict

NOT_FOUND = ApiError("not found", reason="NotFound")
Refusal = Callable[[Moment], str | None]


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
        self.lag: Callable[[str], int | None] = lambda node: 0
        self.takes: dict[type, int] = {}
        self.lingers: dict[str, int] = {}
        # What happened
        self.marks: dict[str, list[str]] = {}
        self.written: dict[str, Moment] = {}
        self.cordons: dict[str, bool | None] = {}
        self.evicted: list[str] = []
        self.graces: dict[str, int] = {}
        self.tries: dict[str, list[Moment]] = {}
        self.force_deleted: list[str] = []
        self.gone_at: dict[str, Moment] = {}
        self.deleted: list[tuple[str, list[str]]] = []
        self.force_deleted_nodes: list[str] = []
        self.events: list[Event] = []
        self.metrics: list[tuple[str, float, dict[str, str]]] = []

    def perform(self, action: Action, now: Moment) -> Outcome:
        value, error = self._do(action, now)
        error = ApiError(error) if isinstance(error, str) else error
        return Outcome(at=now + self.takes.get(type(action), 0), value=value, error=error)

    def _do(self, action: Action, now: Moment) -> tuple[Any, ApiError | str | None]:
        match action:
            case Get(kind="Node", name=name, watched=True):
                return self._listed(name, now)
            case Get(kind="Node", name=name):
                result = self.nodes.get(name)
                return result, None if result is not None else NOT_FOUND
            case Patch(kind="Node"):
                return None, self._update(action, now)
            case List(kind="Pod", nodes=nodes):
                alive = [pod for key, pod in self.pods.items() if not self._is_gone(key, now)]
                on = [pod for pod in alive if nodes is None or pod.spec.node_name in nodes]
                return (None, self.listing_fails) if self.listing_fails else (on, None)
            case List(kind="PodDisruptionBudget"):
                return (None, self.budgets_fail) if self.budgets_fail else (self.budgets, None)
            case List(kind=kind):
                result = [each for each in self.controllers if type(each).__name__ == kind]
                return (None, self.controllers_fail) if self.controllers_fail else (result, None)
            case Evict(namespace=namespace, name=name, grace_period_seconds=grace):
                return None, self._evict(f"{namespace}/{name}", name, grace or 0, now)
            case Delete(kind="Pod", namespace=namespace, name=name):
                if name in self.no_delete:
                    return None, "no delete"
                self.force_deleted.append(name)
                self.gone_at[f"{namespace}/{name}"] = now
                return None, None
            case Get(kind="Pod", namespace=namespace, name=name):
                if name in self.no_get:
                    return None, "no get"
                key = f"{namespace}/{name}"
                if key not in self.pods or self._is_gone(key, now):
                    return None, NOT_FOUND
                return self.pods[key], None
            case DeleteNodes(nodes=nodes, force=True):
                if self.force_refuses.intersection(nodes):
                    return None, "cloud says never"
                self.force_deleted_nodes += nodes
                return None, None
            case DeleteNodes(group=group, nodes=nodes):
                if self.cloud_refuses.intersection(nodes):
                    return None, "cloud says no"
                self.deleted.append((group, list(nodes)))
                return None, None
            case Emit(events=events):
                self.events += events
            case Observe(observations=observations):
                self.metrics += [(each.name, each.value, each.labels) for each in observations]
            case _:
                raise AssertionError(action)
        return None, None

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _listed(self, name: str, now: Moment) -> tuple[Node | None, ApiError | str | None]:
        if name in self.no_lister:
            return None, "no lister"
        node = self.nodes[name]
        lag = self.lag(name)
        if name in self.written and (lag is None or now < self.written[name] + lag):
            remaining = [taint for taint in node.spec.taints if taint.key != TO_BE_DELETED_TAINT]
            node = replace(node, spec=replace(node.spec, taints=remaining))
        return node, None

    def _update(self, action: Patch, now: Moment) -> ApiError | str | None:
        name = action.name
        if name in self.no_taint:
            return "no taint"
        node = self.nodes[name]
        if action.resource_version != node.metadata.resource_version:
            return ApiError("object has been modified", reason="Conflict")
        assert isinstance(action.patch, dict)
        spec = action.patch["spec"]
        before = node
        metadata = replace(node.metadata, resource_version=str(int(node.metadata.resource_version or 0) + 1))
        taints = [from_dict(taint, Taint) for taint in spec["taints"]]
        node = replace(node, metadata=metadata, spec=replace(node.spec, taints=taints))
        cordon = spec.get("unschedulable")
        if cordon is not None:
            node = replace(node, spec=replace(node.spec, unschedulable=cordon))
        self.nodes[name] = node
        self.cordons[name] = cordon
        for key, letter in ((TO_BE_DELETED_TAINT, "T"), (DELETION_CANDIDATE_TAINT, "S")):
            if has_taint(node, key) != has_taint(before, key):
                self.marks.setdefault(name, []).append(("+" if has_taint(node, key) else "-") + letter)
        self.written[name] = now
        return None

    # -- pods --------------------------------------------------------------------------------------------------------

    def _is_gone(self, key: str, now: Moment) -> bool:
        return key in self.gone_at and now >= self.gone_at[key]

    def _evict(self, key: str, name: str, grace: int, now: Moment) -> str | ApiError | None:
        self.tries.setdefault(name, []).append(now)
        self.graces[name] = grace
        refuses = self.no_eviction.get(name)
        refusal = None if refuses is None else refuses(now)
        if refusal is None:
            self.evicted.append(name)
            self.gone_at[key] = now + self.lingers.get(name, 0)
        return refusal


def never(now: Moment) -> str:
    """A refusal for good."""
    return "no eviction"
