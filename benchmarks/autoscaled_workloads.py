"""Workloads with pods, an HPA or a VPA of each, and what their pods use: what programs are measured on."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from kscale.effects import SECOND, to_text
from kscale.world.clock import SystemClock

__all__ = ["MEMORY", "NAMESPACES", "OF_VPA", "USED", "Usage", "autoscalers", "objects", "place"]

NAMESPACES: Final = 200
OF_VPA: Final = "autoscaling.k8s.io"
USED: Final = {False: ("250m",), True: ("245m", "250m", "255m", "260m")}
"""What each pod uses, of the 500m that it requests; whether it is another each time that it is asked. (Several: who
is asked for again within a sync shall not find what was written last, and have nothing to write.)"""
MEMORY: Final = "200Mi"
HOUR: Final = 3600 * SECOND
NOW: Final = "<now>"


def place(i: int, name: str = "") -> str:
    return f"ns{i % NAMESPACES}/w{i}{name}"


def objects(workloads: int, pods: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Workloads, and pods that have been running and ready for an hour."""
    since = to_text(SystemClock().now() - HOUR)
    for i in range(workloads):
        labels = {"app": f"w{i}"}
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        spec = {"replicas": pods, "selector": {"matchLabels": labels}, "template": template}
        counts = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas", "updatedReplicas"), pods)
        yield (
            f"deployments/{place(i)}",
            make_object("apps/v1", "Deployment", i, spec, {"observedGeneration": 1, **counts}),
        )
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"w{i}-x", "uid": "u", "controller": True}
        ready = [{"type": "Ready", "status": "True", "lastTransitionTime": since}]
        status = {"phase": "Running", "startTime": since, "conditions": ready}
        for k in range(pods):
            pod = make_object("v1", "Pod", i, {"containers": [container]}, status, f"-{k}")
            pod["metadata"] |= {"labels": labels, "ownerReferences": [owner]}
            yield f"pods/{place(i, f'-{k}')}", pod


def autoscalers(program: str, workloads: int, pods: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """One of each workload, as if nobody had looked at it yet."""
    for i in range(workloads):
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"w{i}"}
        if program == "horizontal":
            cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
            metrics = [{"type": "Resource", "resource": cpu}]
            spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 2 * pods, "metrics": metrics}
            counts = {"currentReplicas": 0, "desiredReplicas": 0}
            hpa = make_object("autoscaling/v2", "HorizontalPodAutoscaler", i, spec, counts)
            yield f"horizontalpodautoscalers/{place(i)}", hpa
        else:
            spec = {"targetRef": target, "updatePolicy": {"updateMode": "Off"}}
            vpa = make_object(f"{OF_VPA}/v1", "VerticalPodAutoscaler", i, spec, {})
            yield f"{OF_VPA}/verticalpodautoscalers/{place(i)}", vpa


def make_object(
    api_version: str, kind: str, i: int, spec: Mapping[str, Any], status: Mapping[str, Any], name: str = ""
) -> dict[str, Any]:
    """An object as etcd holds it."""
    namespace, _, name = place(i, name).partition("/")
    uid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{kind}/{name}"))
    created = to_text(SystemClock().now() - HOUR)
    metadata = {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": created, "generation": 1}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec, "status": status}


class Usage:
    """Lists of pod metrics, written before. ``cpus``: what each pod uses, of the 500m that it requests; one after the
    other, if there are several."""

    def __init__(self, workloads: int, pods: int, *cpus: str) -> None:
        self._by_namespace: list[dict[str, dict[str, bytes]]] = []
        for cpu in cpus:
            usage = [{"name": "c", "usage": {"cpu": cpu, "memory": MEMORY}}]
            result: dict[str, dict[str, bytes]] = {}
            for i in range(workloads):
                namespace, _, name = place(i).partition("/")
                items = (
                    {
                        "metadata": {"name": f"{name}-{k}", "namespace": namespace, "labels": {"app": name}},
                        "timestamp": NOW, "window": "30s", "containers": usage,
                    }
                    for k in range(pods)
                )  # fmt: skip
                result.setdefault(namespace, {})[name] = b",".join(map(msgspec.json.encode, items))
            self._by_namespace.append(result)

    def listed(self, path: str, selector: str, now: str, turn: int = 0) -> bytes:
        """The answer to a list below ``path`` (``/pods``, ``/namespaces/NAME/pods``) of what is used ``now``."""
        namespace = path.removesuffix("/pods").removeprefix("/namespaces/")
        all_there = self._by_namespace[turn % len(self._by_namespace)]
        there = [all_there.get(namespace, {})] if namespace else list(all_there.values())
        app = selector.removeprefix("app=")
        result = (
            there[0].get(app, b"")
            if app and namespace
            else b",".join(items for each in there for name, items in each.items() if app in ("", name))
        )
        items = result.replace(NOW.encode(), now.encode())
        return b'{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[%s]}' % items
