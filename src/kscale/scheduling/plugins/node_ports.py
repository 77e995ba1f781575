"""NodePorts: host ports, one user each (upstream: ``plugins/nodeports``). Decided in C++: ``engine/node_ports.hpp``."""

from __future__ import annotations

from typing import Any, ClassVar

from kscale.scheduling.plugins.base import MAX_PODS, ExplainContext, Numbers, Part, Plugin, Rows
from kscale.scheduling.profile import Context
from kscale.scheduling.status import unschedulable
from kscale.snapshot.classes.facets import HostPort
from kscale.snapshot.classes.interner import PodClass

__all__ = ["NodePorts", "PortNumbers"]

_ANY = "0.0.0.0"


class PortNumbers(Part):
    """Numbers of the ports that some class requests: (protocol, port) pairs, and those with a specific address."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, int], int] = {}
        self._specific: dict[HostPort, int] = {}

    def add_class(self, pod: PodClass, counters: Any) -> None:
        """Assign a number to each (protocol, port) that the class requests."""
        for _, protocol, port in counters:
            self._keys.setdefault((protocol, port), len(self._keys))

    def is_used(self) -> bool:
        """Return whether any added class requests a host port."""
        return bool(self._keys)

    def may_count(self, pod: PodClass) -> bool:
        """Return whether pods of the class use host ports."""
        return bool(pod.ports)

    def entry(self, pod: PodClass, ctx: Context, *, checked: bool) -> dict[str, Any]:
        """Return ``ports`` of the class: (number of protocol and port, number of the address) of each host port.

        The number of the address is -1 for every address. Ports are left out if no added class requests the same
        protocol and port.
        """
        ports = [self._number(port) for port in pod.ports if port[1:] in self._keys]
        return {"ports": ports} if ports else {}

    def _number(self, port: HostPort) -> tuple[int, int]:
        """Return (number of the protocol and port, number of the port with its address; -1 = every address)."""
        key = self._keys[port[1:]]
        return key, -1 if port[0] == _ANY else self._specific.setdefault(port, len(self._specific))

    def engine_arguments(self) -> dict[str, int]:
        """Return how many (protocol, port) pairs there are, and how many ports with a specific address."""
        return {"n_port_keys": len(self._keys), "n_ports": len(self._specific)}


class NodePorts(Plugin):
    """No host port of the pod is in use: 0.0.0.0 conflicts with every address, other addresses are compared as text."""

    name = "NodePorts"
    statuses: ClassVar = {0: unschedulable("node(s) didn't have free ports for the requested pod ports")}

    def skips(self, pod: PodClass, ctx: Context) -> bool:
        """Return whether the pod uses no host ports."""
        return not pod.ports

    def part(self, rows: Rows) -> Part:
        """Return a new part that counts the host ports in use."""
        return PortNumbers()

    def get_counters(self, pod: PodClass, ctx: Context) -> tuple[HostPort, ...] | None:
        """Return the host ports of the pod; None if it has none."""
        return pod.ports or None

    def explain_failure(
        self, code: int, failed_index: int, pod: PodClass, node: int, context: ExplainContext
    ) -> Numbers:
        """Return one dict per host port of the pod that is in use on the node.

        ``port``: protocol and address, such as ``TCP 0.0.0.0:80``; ``pods``: keys of the first pods that use the port.
        """
        holders: dict[tuple[str, int], list[tuple[str, str]]] = {}
        for key, other in context.classes_on(node):
            for ip, protocol, port in other.ports:
                holders.setdefault((protocol, port), []).append((ip, key))
        clashes = []
        for ip, protocol, port in pod.ports:
            taken = holders.get((protocol, port), ())
            pods = list(dict.fromkeys(key for other, key in taken if ip == other or _ANY in (ip, other)))
            if pods:
                clashes.append({"port": f"{protocol} {ip}:{port}", "pods": pods[:MAX_PODS]})
        return tuple(clashes)
