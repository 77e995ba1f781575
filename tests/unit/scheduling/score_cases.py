"""Nodes and pods for tests of Score plug-ins."""

from __future__ import annotations

from typing import Any

import kscale

Json = dict[str, Any]
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def node(name: str, cpu: str = "4", memory: str = "10000", *, labels: Json | None = None, **spec: Any) -> Json:
    metadata = {"name": name, "labels": {HOSTNAME: name} | (labels or {})}
    allocatable = {"cpu": cpu, "memory": memory, "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": spec,
        "status": {"allocatable": allocatable},
    }


def pod(name: str = "p", *requests: Json, on: str = "", labels: Json | None = None, **spec: Any) -> Json:
    containers = [{"name": f"c{i}", "resources": {"requests": each}} for i, each in enumerate(requests or ({},))]
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels or {}}
    spec = {"containers": containers, **({"nodeName": on} if on else {}), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}}


def asks(cpu: int, memory: int) -> Json:
    return {"cpu": f"{cpu}m", "memory": str(memory)}


def scores(plugin: str, incoming: Json, objects: list[Json], **options: Any) -> list[int]:
    score_options = kscale.ScoreOptions(weights={plugin: 1}, **options)
    result = kscale.node_scores(kscale.Cluster(objects).snapshot(), incoming, scores=score_options)
    assert result.total == result.by_plugin[plugin]
    return result.total


def wish(weight: int, **labels: str) -> Json:
    terms = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    return {"weight": weight, "preference": {"matchExpressions": terms}}


def wishing(*wishes: Json) -> Json:
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": list(wishes)}}}


def many(count: int) -> list[Json]:
    return [node(f"n{i:03}", "4", str(8 << 30)) for i in range(count)]


def spreads(key: str, max_skew: int = 1) -> Json:
    selector = {"matchLabels": {"app": "a"}}
    result = {"maxSkew": max_skew, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}
    return {"topologySpreadConstraints": [result]}
