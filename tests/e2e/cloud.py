"""A cloud in memory whose machines become Node objects of a real API server after a while."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from e2e.control_plane import ControlPlane, Refused
from kscale.effects import GetPrices, Prices
from kscale.objects.api.core import Node
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import NodeGroup, NodeTemplate, ProviderError

__all__ = ["FakeCloud", "Machines"]


@dataclass
class Machines:
    """One group: what a node of it offers, its limits, and how many seconds a machine takes to register: those of one
    increase come ``apart`` seconds from each other."""

    name: str
    cpu: str = "4"
    memory: str = "8Gi"
    least: int = 0
    most: int = 10
    boot: float = 0.5
    apart: float = 0.0
    labels: dict[str, str] = field(default_factory=dict)
    registers: bool = True
    running: list[str] = field(default_factory=list)
    created: int = 0


class FakeCloud:
    """:class:`kscale.world.protocols.NodeGroups`. ``calls``: what was asked that changes something, in order.

    ``refuse(call)`` may give the text of a refusal.
    """

    name = "fake"
    gpu_label = ""
    gpu_types = ()

    def __init__(self, plane: ControlPlane, *groups: Machines) -> None:
        self._plane = plane
        self._groups = {group.name: group for group in groups}
        self._lock = threading.Lock()
        self._timers: list[threading.Timer] = []
        self.calls: list[tuple[Any, ...]] = []
        self.refuse: Callable[[tuple[Any, ...]], str] = lambda call: ""

    def refresh(self) -> Sequence[NodeGroup]:
        with self._lock:
            return [self._described(group) for group in self._groups.values()]

    def has_instance(self, node: Node) -> bool:
        return any(node.name in group.running for group in self._groups.values())

    def prices(self, question: GetPrices) -> Prices:
        raise ProviderError("Not implemented")

    def increase_size(self, group: str, delta: int, *, atomic: bool = False) -> None:
        self._record("IncreaseSize", group, delta)
        with self._lock:
            machines = self._groups[group]
            if len(machines.running) + delta > machines.most:
                target = len(machines.running) + delta
                raise ProviderError(f"size increase too large, desired: {target} max: {machines.most}")
            for i, name in enumerate(self._create_names(machines, delta)):
                if machines.registers:
                    after = machines.boot + i * machines.apart
                    self._later(after, lambda name=name: self._register(group, name))

    def decrease_target_size(self, group: str, delta: int) -> None:
        self._record("DecreaseTargetSize", group, delta)
        with self._lock:
            machines = self._groups[group]
            registered = {each["metadata"]["name"] for each in self._plane.ask("GET", "/api/v1/nodes")["items"]}
            waiting = [name for name in machines.running if name not in registered]
            if len(waiting) < -delta:
                raise ProviderError("attempt to delete existing nodes")
            for name in waiting[delta:]:
                machines.running.remove(name)

    def delete_nodes(self, group: str, nodes: Sequence[Node], *, force: bool = False) -> None:
        names = [node.name.removeprefix("fake:///") for node in nodes]
        self._record("DeleteNodes", group, *names)
        with self._lock:
            machines = self._groups[group]
            if not force and len(machines.running) - len(names) < machines.least:
                raise ProviderError("min size reached, nodes will not be deleted")
            for name in names:
                if name in machines.running:
                    machines.running.remove(name)
                    self._later(0.0, lambda name=name: self._unregister(name))

    def create_group(self, group: str, *, asynchronous: bool = False) -> Sequence[NodeGroup]:
        raise ProviderError("Not implemented")

    def delete_group(self, group: str) -> None:
        raise ProviderError("Not implemented")

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()
            timer.join()

    def start(self, group: str, count: int) -> None:
        """So many machines are there, registered, before anything begins."""
        for node in self.create_machines(group, count):
            self._register(group, node["metadata"]["name"])

    def slow_down(self, group: str, boot: float) -> None:
        """From here on its machines take so many seconds to register."""
        self._groups[group].boot = boot

    def create_machines(self, group: str, count: int) -> list[dict[str, Any]]:
        """Create machines and return the Node objects that they would register."""
        machines = self._groups[group]
        return [self._node(machines, name) for name in self._create_names(machines, count)]

    def _create_names(self, machines: Machines, count: int) -> list[str]:
        names = [f"{machines.name}-{machines.created + i}" for i in range(count)]
        machines.created += count
        machines.running += names
        return names

    def _record(self, *call: Any) -> None:
        self.calls.append(call)
        refusal = self.refuse(call)
        if refusal:
            raise ProviderError(refusal, "cloudProviderError")

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, call)
        self._timers.append(timer)
        timer.start()

    def _node(self, group: Machines, name: str) -> dict[str, Any]:
        offered = {"cpu": group.cpu, "memory": group.memory, "pods": "110"}
        return {
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "group": group.name, **group.labels}},
            "spec": {"providerID": f"fake:///{name}"},
            "status": {
                "capacity": offered,
                "allocatable": offered,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        }

    def _register(self, group: str, name: str) -> None:
        machines = self._groups[group]
        if name in machines.running:
            with contextlib.suppress(Refused):
                self._plane.ask("POST", "/api/v1/nodes", self._node(machines, name))

    def _unregister(self, name: str) -> None:
        with contextlib.suppress(Refused):
            self._plane.ask("DELETE", f"/api/v1/nodes/{name}")

    def _described(self, group: Machines) -> NodeGroup:
        template = NodeTemplate(node=from_dict(self._node(group, f"{group.name}-template"), Node))
        return NodeGroup(
            id=group.name,
            min_size=group.least,
            max_size=group.most,
            target_size=len(group.running),
            node_selector={"group": group.name},
            instances=[f"fake:///{name}" for name in group.running],
            template=template,
        )
