"""NodePorts (6.5)."""

from __future__ import annotations

from typing import Any

from reference.cluster import SKIPPED, Cluster, Json, NodeState, PreFiltered, Status, unschedulable

NAME = "NodePorts"
ANY = "0.0.0.0"


def host_ports(pod: Json) -> list[tuple[str, str, int]]:
    """(ip, protocol, port) of restartable init containers and of regular containers."""
    sidecars = [c for c in pod["spec"].get("initContainers") or [] if c.get("restartPolicy") == "Always"]
    return [
        (port.get("hostIP") or ANY, port.get("protocol") or "TCP", port["hostPort"])
        for container in sidecars + (pod["spec"].get("containers") or [])
        for port in container.get("ports") or []
        if (port.get("hostPort") or 0) > 0
    ]


def pre_filter(pod: Json, cluster: Cluster) -> PreFiltered:
    return PreFiltered() if host_ports(pod) else PreFiltered(SKIPPED)


def check(state: Any, pod: Json, node: NodeState, cluster: Cluster) -> Status | None:
    used = {entry for placed in node.pods for entry in host_ports(placed)}
    for ip, protocol, port in host_ports(pod):
        for used_ip, used_protocol, used_port in used:
            if (used_protocol, used_port) == (protocol, port) and (ANY in (ip, used_ip) or ip == used_ip):
                return unschedulable("node(s) didn't have free ports for the requested pod ports")
    return None
