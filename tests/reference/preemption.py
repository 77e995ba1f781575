"""DefaultPreemption, slow and obvious: every question is asked of a cluster that is put together for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import kscale
from kscale.snapshot.cluster import Cluster

__all__ = ["preempted"]

Json = dict[str, Any]


def preempted(nodes: Sequence[Json], pods: Sequence[Json], preemptor: Json) -> tuple[str, list[str]] | None:
    """(node, victims by name), of pods with a label ``budget: none`` that may not be disrupted, and others that may."""

    def fits(node: str, running: Sequence[Json]) -> bool:
        cluster = Cluster([*nodes, *running, preemptor])
        return kscale.fit(cluster.snapshot(), [key(preemptor)]).verdict(key(preemptor), node).ok

    result = []
    for number, node in enumerate(nodes):
        name = node["metadata"]["name"]
        lower = [pod for pod in pods if pod["spec"]["nodeName"] == name and priority(pod) < priority(preemptor)]
        lower.sort(key=lambda pod: (-priority(pod), started(pod)))
        remaining = [pod for pod in pods if pod not in lower]
        if not lower or not fits(name, remaining):
            continue
        victims, violations = [], 0
        for protected in (True, False):
            for pod in (each for each in lower if (each["metadata"]["labels"].get("budget") == "none") is protected):
                if fits(name, [*remaining, pod]):
                    remaining.append(pod)
                else:
                    victims.append(pod)
                    violations += protected
        highest = max(map(priority, victims))
        rank = (
            violations,
            highest,
            sum(priority(pod) + 2**31 for pod in victims),
            len(victims),
            [-ord(letter) for letter in min(started(pod) for pod in victims if priority(pod) == highest)],
            violations > 0,
            number,
        )
        result.append((rank, name, sorted(pod["metadata"]["name"] for pod in victims)))
    return None if not result else min(result)[1:]


def key(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def priority(pod: Json) -> int:
    return int(pod["spec"].get("priority", 0))


def started(pod: Json) -> str:
    return str(pod["status"]["startTime"])
