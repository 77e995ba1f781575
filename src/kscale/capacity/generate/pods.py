"""Pods of a generated cluster, as the API server returns them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kscale.capacity.generate.nodes import CREATED
from kscale.capacity.generate.workloads import PRIORITIES, Container, Workload
from kscale.imports import lazy_pattern

__all__ = ["VARIABLES", "pod_labels", "pod_manifest", "pod_template", "template_of"]

VARIABLES = ("name", "uid", "node", "host_ip", "pod_ip", "ordinal")
"""Values that differ between the pods of one workload in one state."""

_TOKEN = lazy_pattern(r"@@(\w+)@@")
_STARTED = "2026-03-08T21:40:12Z"
_DEFAULT_TOLERATIONS = [
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
]
_OWNER_KIND = {"Deployment": ("apps/v1", "ReplicaSet"), "Job": ("batch/v1", "Job")}


def template_of(manifest: dict[str, Any]) -> Callable[[dict[str, str]], str]:
    """Compile a manifest with ``@@variable@@`` placeholders to a function that returns the manifest as JSON text.

    The function takes the values by variable, and inserts them without escaping.
    """
    text = msgspec.json.encode(manifest).decode()
    order = _TOKEN.findall(text)
    pattern = _TOKEN.sub("%s", text.replace("%", "%%"))

    def fill(values: dict[str, str]) -> str:
        """Return the JSON text with the values of the variables."""
        return pattern % tuple([values[name] for name in order])

    return fill


def pod_labels(workload: Workload) -> dict[str, str]:
    """Return the labels that every pod of a workload has and that its selectors use."""
    return {"app.kubernetes.io/name": workload.name, "app.kubernetes.io/part-of": workload.namespace}


def _tolerations(workload: Workload) -> list[dict[str, Any]]:
    """Build the tolerations of the workload's pods, with those that admission adds.

    Admission adds none to a pod that tolerates every taint.
    """
    if "*" in workload.tolerates:
        return [{"operator": "Exists"}]
    declared = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in workload.tolerates]
    return declared + _DEFAULT_TOLERATIONS


def _affinity(workload: Workload) -> dict[str, Any]:
    """Build the affinity of the workload's pods; empty if they have none.

    Each pod of a DaemonSet has a node affinity with a placeholder for the name of its node.
    """
    affinity: dict[str, Any] = {}
    if workload.kind == "DaemonSet":
        fields = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["@@node@@"]}]}
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [fields]}}
    elif len(workload.classes) > 1:
        expression: dict[str, Any] = {
            "key": "workload-class",
            "operator": "In",
            "values": list(workload.classes),
        }
        affinity["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [expression]}]
            }
        }
    elif workload.tolerates == ("spot",) and not workload.classes:
        expression = {"key": "eks.amazonaws.com/capacityType", "operator": "In", "values": ["SPOT"]}
        affinity["nodeAffinity"] = {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 50, "preference": {"matchExpressions": [expression]}}
            ]
        }
    if workload.anti_affinity:
        term: dict[str, Any] = {
            "labelSelector": {"matchLabels": pod_labels(workload)},
            "topologyKey": "kubernetes.io/hostname",
        }
        affinity["podAntiAffinity"] = (
            {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            if workload.anti_affinity == "required"
            else {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
        )
    return affinity


def _node_selector(workload: Workload) -> dict[str, str]:
    """Build the node selector: the node class if the workload has exactly one, and its first zone if it has zones."""
    selector = {"workload-class": workload.classes[0]} if len(workload.classes) == 1 else {}
    if workload.zones:
        selector["topology.kubernetes.io/zone"] = workload.zones[0]
    return selector


def _container(workload: Workload, container: Container, first: bool, lean: bool) -> dict[str, Any]:
    """Build a container. The ``first`` one has the GPUs, the host port and the volume.

    ``lean`` omits what no autoscaler reads.
    """
    requests = {"cpu": f"{container.cpu}m", "memory": f"{container.memory_mib}Mi"}
    limits = {"memory": requests["memory"]}
    if first and workload.gpu:
        requests["nvidia.com/gpu"] = limits["nvidia.com/gpu"] = str(workload.gpu)
    body: dict[str, Any] = {
        "name": container.name,
        "image": container.image,
        "resources": {"limits": limits, "requests": requests},
    }
    if first and workload.host_port:
        body["ports"] = [
            {"name": "host", "containerPort": 8443, "hostPort": workload.host_port, "protocol": "TCP"},
        ]
    mounts: list[dict[str, Any]] = (
        [{"name": "data", "mountPath": "/var/lib/data"}] if first and workload.storage_gib else []
    )
    if not lean:
        env: list[dict[str, Any]] = [
            {"name": "SERVICE_NAME", "value": workload.name},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        ]
        body["env"] = env
        for probe, delay in (("livenessProbe", 30), ("readinessProbe", 5)):
            body[probe] = {
                "httpGet": {"path": f"/{probe[:4]}z", "port": 8080, "scheme": "HTTP"},
                "initialDelaySeconds": delay,
                "timeoutSeconds": 1,
                "periodSeconds": 10,
                "successThreshold": 1,
                "failureThreshold": 3,
            }
        token = "/var/run/secrets/kubernetes.io/serviceaccount"
        mounts = [*mounts, {"name": "kube-api-access", "readOnly": True, "mountPath": token}]
        body["terminationMessagePath"] = "/dev/termination-log"
        body["terminationMessagePolicy"] = "File"
        body["imagePullPolicy"] = "IfNotPresent"
        body["securityContext"] = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
    if mounts:
        body["volumeMounts"] = mounts
    return body


def _volumes(workload: Workload, lean: bool) -> list[dict[str, Any]]:
    """Build the volumes: the pod's claim, and the service account's token unless ``lean``."""
    volumes: list[dict[str, Any]] = []
    if workload.storage_gib:
        volumes.append({"name": "data", "persistentVolumeClaim": {"claimName": "data-@@name@@"}})
    if not lean:
        sources = [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        ]
        volumes.append({"name": "kube-api-access", "projected": {"sources": sources, "defaultMode": 420}})
    return volumes


def pod_spec(workload: Workload, *, lean: bool) -> dict[str, Any]:
    """Build the pod spec without the fields that the scheduler sets; ``lean`` omits what no autoscaler reads."""
    spec: dict[str, Any] = {
        "containers": [
            _container(workload, container, i == 0, lean) for i, container in enumerate(workload.containers)
        ],
        "restartPolicy": "OnFailure" if workload.kind == "Job" else "Always",
        "schedulerName": "default-scheduler",
        "tolerations": _tolerations(workload),
        "priority": PRIORITIES.get(workload.priority_class, 0),
        "preemptionPolicy": "PreemptLowerPriority",
    }
    optional: dict[str, Any] = {
        "priorityClassName": workload.priority_class,
        "nodeSelector": _node_selector(workload),
        "affinity": _affinity(workload),
        "volumes": _volumes(workload, lean),
    }
    if workload.spread:
        optional["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": workload.spread,
                "labelSelector": {"matchLabels": pod_labels(workload)},
            }
        ]
    if not lean:
        optional |= {
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": workload.name,
            "serviceAccount": workload.name,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        }
        spec["enableServiceLinks"] = True
    return spec | {key: value for key, value in optional.items() if value}


def pod_template(workload: Workload) -> dict[str, Any]:
    """Build the pod template of the workload's controller, without what is set per pod and what no autoscaler reads."""
    spec = pod_spec(workload, lean=True)
    for key in ("priority", "preemptionPolicy"):
        del spec[key]
    if workload.kind == "DaemonSet":
        del spec["affinity"]
    if "*" not in workload.tolerates:
        spec["tolerations"] = spec["tolerations"][: -len(_DEFAULT_TOLERATIONS)]
    spec["volumes"] = [volume for volume in spec.get("volumes", []) if "persistentVolumeClaim" not in volume]
    spec = {key: value for key, value in spec.items() if value != []}
    return {"metadata": {"labels": pod_labels(workload)}, "spec": spec}


def _status(workload: Workload, running: bool, lean: bool) -> dict[str, Any]:
    """Build the status of a running or of an unschedulable pod. ``lean`` omits what no autoscaler reads."""
    if not running:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": _STARTED,
            "reason": "Unschedulable",
            "message": workload.message or "0/0 nodes are available.",
        }
        return {"phase": "Pending", "conditions": [condition], "qosClass": "Burstable"}
    types = ["PodScheduled"]
    if not lean:
        types = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
    status: dict[str, Any] = {
        "phase": "Running",
        "conditions": [
            {"type": name, "status": "True", "lastProbeTime": None, "lastTransitionTime": _STARTED} for name in types
        ],
        "hostIP": "@@host_ip@@",
        "podIP": "@@pod_ip@@",
        "startTime": _STARTED,
        "qosClass": "Burstable",
    }
    if not lean:
        status["podIPs"] = [{"ip": "@@pod_ip@@"}]
        status["containerStatuses"] = [
            {
                "name": container.name,
                "state": {"running": {"startedAt": _STARTED}},
                "lastState": {},
                "ready": True,
                "restartCount": 0,
                "image": container.image,
                "imageID": f"{container.image.rsplit(':', 1)[0]}@sha256:{workload.owner_uid.replace('-', '') * 2}",
                "containerID": "containerd://" + workload.uid.replace("-", "") * 2,
                "started": True,
            }
            for container in workload.containers
        ]
    return status


def _build_field_set(value: Any) -> dict[str, Any]:
    """Return the names of a dict's fields, nested like the dict, in the form of ``managedFields[].fieldsV1``."""
    out: dict[str, Any] = {}
    for key, child in value.items():
        if key in ("containerStatuses", "tolerations"):  # atomic lists
            out["f:" + key] = {}
        elif isinstance(child, dict):
            out["f:" + key] = _build_field_set(child)
        elif isinstance(child, list) and child and all(isinstance(item, dict) and "name" in item for item in child):
            out["f:" + key] = {
                "k:" + msgspec.json.encode({"name": item["name"]}).decode(): {".": {}, **_build_field_set(item)}
                for item in child
            }
        elif isinstance(child, list) and child and all(isinstance(item, dict) and "type" in item for item in child):
            out["f:" + key] = {
                "k:" + msgspec.json.encode({"type": item["type"]}).decode(): {".": {}, **_build_field_set(item)}
                for item in child
            }
        else:
            out["f:" + key] = {}
    return out


def _entry(manager: str, subresource: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Build an entry of ``managedFields``; an empty subresource is left out."""
    entry: dict[str, Any] = {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": CREATED}
    entry |= {"fieldsType": "FieldsV1", "fieldsV1": fields}
    return entry | ({"subresource": subresource} if subresource else {})


def pod_manifest(workload: Workload, *, running: bool, lean: bool) -> dict[str, Any]:
    """Build a pod of the workload, with ``@@variable@@`` placeholders for values in which its pods differ.

    :data:`VARIABLES` are the variables; a pod that is not running has no placeholders for its node and addresses.
    ``lean`` omits what no autoscaler reads.
    """
    version, kind = _OWNER_KIND.get(workload.kind, ("apps/v1", workload.kind))
    owner = f"{workload.name}-{workload.template_hash}" if workload.kind == "Deployment" else workload.name
    labels = pod_labels(workload)
    if workload.kind == "Deployment":
        labels["pod-template-hash"] = workload.template_hash
    elif workload.kind == "Job":
        labels |= {"batch.kubernetes.io/job-name": owner, "batch.kubernetes.io/controller-uid": workload.uid}
    else:
        labels["controller-revision-hash"] = f"{owner}-{workload.template_hash}"
    if workload.kind == "StatefulSet":
        labels |= {"statefulset.kubernetes.io/pod-name": "@@name@@", "apps.kubernetes.io/pod-index": "@@ordinal@@"}
    metadata: dict[str, Any] = {
        "name": "@@name@@",
        "generateName": f"{owner}-",
        "namespace": workload.namespace,
        "uid": "@@uid@@",
        "creationTimestamp": _STARTED,
        "labels": labels,
        "ownerReferences": [
            {
                "apiVersion": version,
                "kind": kind,
                "name": owner,
                "uid": workload.owner_uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    spec, status = pod_spec(workload, lean=lean), _status(workload, running, lean)
    if not lean:
        metadata["resourceVersion"] = str(1_000_000 + int(workload.uid[:6], 16))
        metadata["annotations"] = {"prometheus.io/scrape": "true", "prometheus.io/port": "9090"}
        controller = {
            "f:metadata": _build_field_set({"labels": labels, "generateName": ""}),
            "f:spec": _build_field_set(spec),
        }
        writer = "kubelet" if running else "kube-scheduler"
        metadata["managedFields"] = [
            _entry("kube-controller-manager", "", controller),
            _entry(writer, "status", {"f:status": _build_field_set(status)}),
        ]
    if running:
        spec = {"nodeName": "@@node@@", **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
