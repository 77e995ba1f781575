"""Workloads in manifests as input of fit, place and estimate."""

from __future__ import annotations

from typing import Any

import pytest

import kscale

AMOUNTS = {"cpu": "4", "memory": "8Gi", "pods": "110"}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "status": {"allocatable": AMOUNTS}}


def workload(kind: str, name: str, replicas: int = 3, cpu: str = "1500m", **spec: Any) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": cpu}}}]},
    }
    selector = {"matchLabels": {"app": name}}
    body = {"replicas": replicas, "selector": selector, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "shop"}, "spec": body}


def test_the_pods_of_a_deployment_are_pending_and_the_cluster_is_a_copy() -> None:
    cluster = kscale.load(NODE)
    applied = kscale.apply_manifests(cluster, workload("Deployment", "web"))
    assert len(applied.pods) == 3
    assert kscale.place(applied.cluster, applied.pods).placed_count == 2
    assert kscale.estimate(applied.cluster, applied.pods, template=NODE).node_count == 2
    assert list(cluster.pods()) == []


def test_a_rendered_list_brings_its_objects_along() -> None:
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7}
    deployment = workload("Deployment", "web", replicas=1)
    deployment["spec"]["template"]["spec"]["priorityClassName"] = "high"
    rendered = {"apiVersion": "v1", "kind": "List", "items": [priority, deployment]}
    applied = kscale.apply_manifests(kscale.load(NODE), rendered)
    (pod,) = applied.cluster.pods()
    assert pod.spec.priority == 7


def test_a_stateful_set_gets_its_claims() -> None:
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none"}}
    database = workload("StatefulSet", "db", replicas=2, volumeClaimTemplates=[claim])
    applied = kscale.apply_manifests(kscale.load(NODE), database)
    assert applied.cluster.keys("PersistentVolumeClaim") == ["shop/data-db-0", "shop/data-db-1"]


def test_fit_says_how_many_replicas_fit_and_why_not_more() -> None:
    report = kscale.fit_manifests(kscale.load(NODE), workload("Deployment", "web"), placements=True)
    (line,) = report.workloads
    assert (line.replicas, line.fit, line.placement) == (3, 2, {"node-1": 2})
    assert line.event == "0/1 nodes are available: 1 Insufficient cpu."
    assert line.exists is False


def test_an_existing_workload_is_reported() -> None:
    web = workload("Deployment", "web")
    (line,) = kscale.fit_manifests(kscale.load(NODE, web), web).workloads
    assert line.exists is True


def test_manifests_without_a_workload_are_refused() -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    with pytest.raises(kscale.InputError, match="holds none of Pod, Deployment"):
        kscale.apply_manifests(kscale.load(NODE), namespace)
