"""What a program needs in a cluster, as plain data: an account that may do what it does and no more, and a Deployment
that restarts it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

__all__ = ["CLUSTER_AUTOSCALER_RULES", "cluster_autoscaler_manifests", "cluster_autoscaler_roles"]

_Object = dict[str, Any]
_NAME: Final = "cluster-autoscaler"
_RBAC: Final = "rbac.authorization.k8s.io"
_SEE: Final = ("list", "watch")
_USER: Final = 65532


def _rule(group: str, resources: Iterable[str], verbs: Iterable[str], names: Sequence[str] = ()) -> _Object:
    found: _Object = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return {**found, "resourceNames": list(names)} if names else found


CLUSTER_AUTOSCALER_RULES: Final[Sequence[_Object]] = (
    _rule("", ["nodes"], ["get", "list", "watch", "patch"]),
    _rule("", ["pods"], ["get", "list", "watch"]),
    _rule("", ["pods/eviction"], ["create"]),
    _rule("", ["events"], ["create", "patch"]),
    _rule(
        "", ["namespaces", "services", "replicationcontrollers", "persistentvolumes", "persistentvolumeclaims"], _SEE
    ),
    _rule("apps", ["replicasets", "statefulsets", "daemonsets"], _SEE),
    _rule("batch", ["jobs"], _SEE),
    _rule("policy", ["poddisruptionbudgets"], _SEE),
    _rule(
        "storage.k8s.io",
        ["storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"],
        _SEE,
    ),
    _rule("resource.k8s.io", ["resourceclaims", "resourceslices", "deviceclasses"], _SEE),
    _rule("autoscaling.x-k8s.io", ["capacityquotas"], _SEE),
)
"""What the Cluster Autoscaler does anywhere in the cluster."""

_KWOK: Final = (_rule("", ["nodes"], ["create", "delete"]),)
_MACHINES: Final = (
    _rule("cluster.x-k8s.io", ["machinedeployments", "machinesets", "machinepools"], ["list"]),
    _rule("cluster.x-k8s.io", ["machines"], ["list", "patch"]),
    _rule(
        "cluster.x-k8s.io",
        ["machinedeployments/scale", "machinesets/scale", "machinepools/scale"],
        ["get", "update"],
    ),
)


def cluster_autoscaler_roles(
    *, cloud: str = "externalgrpc", status: str = "cluster-autoscaler-status", lease: str = _NAME
) -> tuple[list[_Object], list[_Object]]:
    """The rules for the whole cluster, and those in the namespace of the lease, the status and the priorities."""
    wide = [*CLUSTER_AUTOSCALER_RULES, *{"kwok": _KWOK, "clusterapi": _MACHINES}.get(cloud, ())]
    own = [
        _rule("", ["configmaps"], ["create"]),
        _rule("", ["configmaps"], ["get", "patch", "delete"], [status]),
        _rule("", ["configmaps"], ["get", "list", "watch"], [f"{_NAME}-priority-expander"]),
        _rule("coordination.k8s.io", ["leases"], ["create"]),
        _rule("coordination.k8s.io", ["leases"], ["get", "patch"], [lease]),
    ]
    if cloud == "kwok":
        own.append(_rule("", ["configmaps"], ["get"]))
    return wide, own


def cluster_autoscaler_manifests(
    *,
    image: str,
    namespace: str = "kube-system",
    cloud: str = "externalgrpc",
    config: str = "",
    flags: Sequence[str] = (),
    replicas: int = 2,
) -> list[_Object]:
    """The objects, in the order in which they are to be applied.

    ``config``: the name of a Secret whose key ``config`` is the file of ``--cloud-config``; empty: none. ``flags``:
    further flags of ``kscale run cluster-autoscaler``.
    """
    wide, own = cluster_autoscaler_roles(cloud=cloud)
    arguments = ["run", _NAME, f"--cloud-provider={cloud}", f"--namespace={namespace}", "--log-format=json", *flags]
    mounts: list[_Object] = []
    volumes: list[_Object] = []
    if config:
        arguments.append("--cloud-config=/etc/kscale/config")
        mounts = [{"name": "config", "mountPath": "/etc/kscale", "readOnly": True}]
        volumes = [{"name": "config", "secret": {"secretName": config}}]
    labels = {"app.kubernetes.io/name": _NAME, "app.kubernetes.io/managed-by": "kscale"}
    chosen = {"matchLabels": {"app.kubernetes.io/name": _NAME}}

    def meta(**more: Any) -> _Object:
        return {"name": _NAME, "labels": labels, **more}

    here = meta(namespace=namespace)
    account = {"kind": "ServiceAccount", "name": _NAME, "namespace": namespace}

    def bound(kind: str, metadata: _Object, role: str) -> _Object:
        reference = {"apiGroup": _RBAC, "kind": role, "name": _NAME}
        return _made(f"{_RBAC}/v1", kind, metadata, roleRef=reference, subjects=[account])

    container = {
        "name": _NAME,
        "image": image,
        "args": arguments,
        "env": [{"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "ports": [{"name": "metrics", "containerPort": 8085}],
        "livenessProbe": {"httpGet": {"path": "/health-check", "port": "metrics"}, "periodSeconds": 30},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "metrics"}, "periodSeconds": 10},
        "resources": {"requests": {"cpu": "100m", "memory": "300Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    pod = {
        "serviceAccountName": _NAME,
        "priorityClassName": "system-cluster-critical",
        "securityContext": {
            "runAsNonRoot": True, "runAsUser": _USER, "runAsGroup": _USER, "seccompProfile": {"type": "RuntimeDefault"}
        },
        "containers": [container],
        "volumes": volumes,
    }  # fmt: skip
    template = {"metadata": {"labels": labels}, "spec": pod}
    return [
        _made("v1", "ServiceAccount", here),
        _made(f"{_RBAC}/v1", "ClusterRole", meta(), rules=wide),
        bound("ClusterRoleBinding", meta(), "ClusterRole"),
        _made(f"{_RBAC}/v1", "Role", here, rules=own),
        bound("RoleBinding", here, "Role"),
        _made("apps/v1", "Deployment", here, spec={"replicas": replicas, "selector": chosen, "template": template}),
        _made("policy/v1", "PodDisruptionBudget", here, spec={"maxUnavailable": 1, "selector": chosen}),
        _made(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            here,
            spec={
                "podSelector": chosen,
                "policyTypes": ["Ingress"],
                "ingress": [{"ports": [{"protocol": "TCP", "port": "metrics"}]}],
            },
        ),
    ]


def _made(version: str, kind: str, metadata: _Object, **more: Any) -> _Object:
    return {"apiVersion": version, "kind": kind, "metadata": dict(metadata), **more}
