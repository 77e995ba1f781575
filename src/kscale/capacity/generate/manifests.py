"""The objects around the pods: controllers, budgets, volumes, priority classes, namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kscale.capacity.generate.fleet import CREATED, Node
from kscale.capacity.generate.pods import pod_labels, pod_template
from kscale.capacity.generate.rng import child_uid
from kscale.capacity.generate.workloads import PRIORITIES, Workload

__all__ = ["claims_of", "controllers_of", "preamble"]

_DRIVER = "ebs.csi.aws.com"
_CLAIMS = 1 << 40  # where the numbers of claims begin; those of pods begin at 0


def _meta(name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name, "creationTimestamp": CREATED}
    if namespace:
        meta["namespace"] = namespace
    return meta | more


def preamble(namespaces: list[str], nodes: list[Node], volumes_per_node: int) -> Iterator[dict[str, Any]]:
    """Cluster-wide objects but the nodes: namespaces, priority classes, storage class, its driver on every node."""
    for namespace in namespaces:
        labels = {"kubernetes.io/metadata.name": namespace}
        yield {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": _meta(namespace, labels=labels),
            "status": {"phase": "Active"},
        }
    for name, value in PRIORITIES.items():
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": _meta(name),
            "value": value,
            "preemptionPolicy": "PreemptLowerPriority",
        }
    yield {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": _meta("gp3", annotations={"storageclass.kubernetes.io/is-default-class": "true"}),
        "provisioner": _DRIVER,
        "parameters": {"type": "gp3"},
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    yield {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": _meta(_DRIVER),
        "spec": {"attachRequired": True, "podInfoOnMount": False, "storageCapacity": False},
    }
    for node in nodes:
        driver = {
            "name": _DRIVER,
            "nodeID": node.instance_id,
            "topologyKeys": ["kubernetes.io/os", "topology.ebs.csi.aws.com/zone", "topology.kubernetes.io/zone"],
            "allocatable": {"count": volumes_per_node},
        }
        yield {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": _meta(node.name),
            "spec": {"drivers": [driver]},
        }


def controllers_of(workload: Workload) -> Iterator[dict[str, Any]]:
    """The workload's controller, a Deployment's ReplicaSet, and the budget."""
    selector = {"matchLabels": pod_labels(workload)}
    template = pod_template(workload)
    ready = len(workload.running)
    meta = _meta(workload.name, workload.namespace, uid=workload.uid, generation=1, labels=pod_labels(workload))
    counts = {"replicas": workload.replicas, "readyReplicas": ready, "availableReplicas": ready}
    if workload.kind == "DaemonSet":
        status = {"desiredNumberScheduled": ready, "currentNumberScheduled": ready, "numberReady": ready}
        status["numberMisscheduled"] = 0  # the API server lets none be without
        spec: dict[str, Any] = {"selector": selector, "template": template}
        yield {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": spec, "status": status}
    elif workload.kind == "Job":
        spec = {"parallelism": workload.replicas, "completions": workload.replicas, "template": template}
        status = {"active": workload.replicas, "ready": ready}
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec, "status": status}
    elif workload.kind == "StatefulSet":
        claim = {"metadata": {"name": "data"}, "spec": _claim_spec(workload)}
        spec = {
            "replicas": workload.replicas,
            "serviceName": workload.name,
            "selector": selector,
            "template": template,
            "volumeClaimTemplates": [claim],
        }
        yield {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": spec, "status": counts}
    else:
        spec = {"replicas": workload.replicas, "selector": selector, "template": template}
        yield {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec, "status": counts}
        yield _replica_set(workload, template, counts)
    if workload.disrupts:
        yield {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": _meta(workload.name, workload.namespace),
            "spec": {"maxUnavailable": workload.disrupts, "selector": selector},
            "status": {
                "currentHealthy": ready,
                "desiredHealthy": max(0, workload.replicas - workload.disrupts),
                "disruptionsAllowed": max(0, ready - max(0, workload.replicas - workload.disrupts)),
                "expectedPods": workload.replicas,
            },
        }


def _replica_set(workload: Workload, template: dict[str, Any], counts: dict[str, int]) -> dict[str, Any]:
    labels = {**pod_labels(workload), "pod-template-hash": workload.template_hash}
    owner = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": workload.name,
        "uid": workload.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    name = f"{workload.name}-{workload.template_hash}"
    spec = {
        "replicas": workload.replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
    }
    meta = _meta(name, workload.namespace, uid=workload.owner_uid, labels=labels, ownerReferences=[owner])
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": spec, "status": counts}


def _claim_spec(workload: Workload) -> dict[str, Any]:
    return {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "gp3",
        "volumeMode": "Filesystem",
        "resources": {"requests": {"storage": f"{workload.storage_gib}Gi"}},
    }


_BOUND = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
"""What the volume controller writes on a claim once it is bound: without it the scheduler waits for the claim."""


def claims_of(workload: Workload, nodes: list[Node]) -> Iterator[dict[str, Any]]:
    """The claim and the bound volume of each running pod of a StatefulSet; the volume stays in the zone of its node."""
    for ordinal, at in enumerate(workload.running.tolist()):
        claim = f"data-{workload.name}-{ordinal}"
        uid = child_uid(workload.uid, _CLAIMS + ordinal)
        size, zone = f"{workload.storage_gib}Gi", nodes[at].zone
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": _meta(
                claim, workload.namespace, uid=uid, labels=pod_labels(workload), annotations=dict(_BOUND)
            ),
            "spec": {**_claim_spec(workload), "volumeName": f"pvc-{uid}"},
            "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}},
        }
        term = {
            "matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}],
        }
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": _meta(f"pvc-{uid}", annotations={"pv.kubernetes.io/provisioned-by": _DRIVER}),
            "spec": {
                "capacity": {"storage": size},
                "csi": {"driver": _DRIVER, "volumeHandle": f"vol-0{uid.replace('-', '')[-16:]}", "fsType": "ext4"},
                "accessModes": ["ReadWriteOnce"],
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": workload.namespace,
                    "name": claim,
                    "uid": uid,
                },
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": "gp3",
                "volumeMode": "Filesystem",
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            },
            "status": {"phase": "Bound"},
        }
