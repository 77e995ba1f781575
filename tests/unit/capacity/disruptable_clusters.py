"""Small clusters for tests of evictions: nodes, pods of one Deployment's ReplicaSet, and disruption budgets."""

from __future__ import annotations

from typing import Any

import kscale

NOW = "2026-07-01T12:00:00Z"


def node(name: str, cpu: str = "4", memory: str = "16Gi", **more: Any) -> dict[str, Any]:
    """A ready node; ``labels``, ``annotations`` and ``taints`` are added to it."""
    amounts = {"cpu": cpu, "memory": memory, "pods": "20"}
    labels = {"kubernetes.io/hostname": name, **more.get("labels", {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": more.get("annotations", {})},
        "spec": {"taints": more.get("taints", [])},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, on: str = "", cpu: str = "1", **more: Any) -> dict[str, Any]:
    """A pod of namespace ``shop``, with 1Gi of memory.

    ``app``: its label and ReplicaSet (default ``web``; "" = no controller); ``owner``: another kind of controller;
    ``annotations``, ``labels``, ``spec``: added to it; ``limits``: of its container.
    """
    app = more.get("app", "web")
    kind = more.get("owner", "ReplicaSet")
    api = "batch/v1" if kind == "Job" else "apps/v1"
    owner = {"apiVersion": api, "kind": kind, "name": app, "uid": app, "controller": True}
    resources = {"requests": {"cpu": cpu, "memory": more.get("memory", "1Gi")}, "limits": more.get("limits", {})}
    created = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": more.get("namespace", "shop"),
            "uid": name,
            "labels": {"app": app, **more.get("labels", {})},
            "annotations": more.get("annotations", {}),
            "ownerReferences": [owner] if app else [],
        },
        "spec": {"containers": [{"name": "c", "resources": resources}], **more.get("spec", {})},
        "status": {"phase": "Running", "startTime": more.get("started", "2026-07-01T00:00:00Z")},
    }
    if on:
        created["spec"]["nodeName"] = on
    else:
        created["status"] = {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        }
    return created


def controller(app: str = "web", kind: str = "ReplicaSet", namespace: str = "shop", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": app, "namespace": namespace, "uid": app},
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
    }


def budget(name: str, allowed: int, app: str = "web", namespace: str = "shop") -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3},
    }


def cluster(*items: dict[str, Any]) -> kscale.Cluster:
    """The objects, and a ReplicaSet ``web``."""
    return kscale.load([*items, controller()])
