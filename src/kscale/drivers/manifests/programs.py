"""Manifests of any program: a service account with the rights it needs, and a Deployment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["ApiObject", "ProgramManifest", "account_manifests", "made", "program_manifests", "rule"]

ApiObject = dict[str, Any]
_RBAC: Final = "rbac.authorization.k8s.io"
_USER: Final = 65532


def rule(group: str, resources: Iterable[str], verbs: Iterable[str], names: Sequence[str] = ()) -> ApiObject:
    """A rule of a role; ``names``: only for objects of these names."""
    found: ApiObject = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return {**found, "resourceNames": list(names)} if names else found


def made(version: str, kind: str, metadata: Mapping[str, Any], **more: Any) -> ApiObject:
    """An object."""
    return {"apiVersion": version, "kind": kind, "metadata": dict(metadata), **more}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramManifest:
    """How a program runs.

    ``name``: of its objects; ``arguments`` of ``kscale``; ``port``: of metrics and probes, ``ports``: others by name;
    ``callers``: the networks (CIDR) from which those others may be reached, empty: any;
    ``wide``, ``own``: rules for the whole cluster, and in its namespace; ``files``: by name, where a
    Secret is mounted, and its name; ``environment``: variables that name the namespace; ``memory``: what it requests.
    """

    name: str
    arguments: Sequence[str]
    port: int
    wide: Sequence[ApiObject]
    own: Sequence[ApiObject]
    replicas: int
    ports: Mapping[str, int]
    files: Mapping[str, tuple[str, str]]
    callers: Sequence[str] = ()
    environment: Sequence[str] = ("POD_NAMESPACE",)
    memory: str = "300Mi"

    @property
    def labels(self) -> dict[str, str]:
        """Of all its objects."""
        return {**self.chosen, "app.kubernetes.io/managed-by": "kscale"}

    @property
    def chosen(self) -> dict[str, str]:
        """What its pods are chosen by."""
        return {"app.kubernetes.io/name": self.name}


def account_manifests(
    name: str, rules: Iterable[ApiObject], *, namespace: str, labels: Mapping[str, str]
) -> list[ApiObject]:
    """An account with rights in the whole cluster."""
    wide: ApiObject = {"name": name, "labels": dict(labels)}
    return [
        made("v1", "ServiceAccount", {**wide, "namespace": namespace}),
        made(f"{_RBAC}/v1", "ClusterRole", wide, rules=list(rules)),
        _bound("ClusterRole", wide, name, namespace),
    ]


def _bound(kind: str, metadata: ApiObject, name: str, namespace: str) -> ApiObject:
    """The binding of a role to the account of the same name."""
    account = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    reference = {"apiGroup": _RBAC, "kind": kind, "name": name}
    return made(f"{_RBAC}/v1", f"{kind}Binding", metadata, roleRef=reference, subjects=[account])


def program_manifests(program: ProgramManifest, *, image: str, namespace: str) -> list[ApiObject]:
    """The objects, in the order in which they are to be applied."""
    here: ApiObject = {"name": program.name, "labels": program.labels, "namespace": namespace}
    selector = {"matchLabels": program.chosen}
    template = {"metadata": {"labels": program.labels}, "spec": _pod(program, image)}
    deployment = {"replicas": program.replicas, "selector": selector, "template": template}
    policy = {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": _ingress(program)}
    return [
        *account_manifests(program.name, program.wide, namespace=namespace, labels=program.labels),
        made(f"{_RBAC}/v1", "Role", here, rules=list(program.own)),
        _bound("Role", here, program.name, namespace),
        made("apps/v1", "Deployment", here, spec=deployment),
        made("policy/v1", "PodDisruptionBudget", here, spec={"maxUnavailable": 1, "selector": selector}),
        made("networking.k8s.io/v1", "NetworkPolicy", here, spec=policy),
    ]


def _ingress(program: ProgramManifest) -> list[ApiObject]:
    """Return who may connect: pods of the cluster to the metrics (probes of a kubelet are always let in), and the
    callers to the other ports."""
    rules: list[ApiObject] = [
        {"from": [{"namespaceSelector": {}}], "ports": [{"protocol": "TCP", "port": "metrics"}]},
    ]
    if program.ports:
        rule: ApiObject = {"ports": [{"protocol": "TCP", "port": name} for name in program.ports]}
        callers = [{"ipBlock": {"cidr": cidr}} for cidr in program.callers]
        rules.append({"from": callers, **rule} if callers else rule)
    return rules


def _pod(program: ProgramManifest, image: str) -> ApiObject:
    space = {"fieldRef": {"fieldPath": "metadata.namespace"}}
    ports = {"metrics": program.port, **program.ports}
    container = {
        "name": program.name,
        "image": image,
        "args": list(program.arguments),
        "env": [{"name": name, "valueFrom": space} for name in program.environment],
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
        "livenessProbe": {"httpGet": {"path": "/health-check", "port": "metrics"}, "periodSeconds": 30},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "metrics"}, "periodSeconds": 10},
        "resources": {"requests": {"cpu": "100m", "memory": program.memory}, "limits": {"memory": "2Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": name, "mountPath": path, "readOnly": True} for name, (path, _) in program.files.items()
        ],
    }
    return {
        "serviceAccountName": program.name,
        "priorityClassName": "system-cluster-critical",
        "securityContext": {
            "runAsNonRoot": True, "runAsUser": _USER, "runAsGroup": _USER, "seccompProfile": {"type": "RuntimeDefault"}
        },
        "containers": [container],
        "volumes": [{"name": name, "secret": {"secretName": secret}} for name, (_, secret) in program.files.items()],
    }  # fmt: skip
