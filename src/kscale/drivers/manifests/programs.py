"""Manifests of any program: a service account with the rights it needs, and a Deployment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["ApiObject", "ProgramManifest", "account_manifests", "build_object", "program_manifests", "rule"]

ApiObject = dict[str, Any]
_RBAC: Final = "rbac.authorization.k8s.io"
_USER: Final = 65532


def rule(group: str, resources: Iterable[str], verbs: Iterable[str], names: Sequence[str] = ()) -> ApiObject:
    """Build a rule of an RBAC role that allows ``verbs`` on ``resources`` of an API group.

    With ``names``, the rule applies only to objects with these names.
    """
    result: ApiObject = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return {**result, "resourceNames": list(names)} if names else result


def build_object(version: str, kind: str, metadata: Mapping[str, Any], **more: Any) -> ApiObject:
    """Build an API object from its version, kind, metadata and further fields."""
    return {"apiVersion": version, "kind": kind, "metadata": dict(metadata), **more}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramManifest:
    """How a program runs in a cluster.

    - ``name``: name of its objects; ``arguments``: arguments of ``kscale``; ``memory``: memory request.
    - ``port``: port of metrics and probes; ``ports``: other ports by name; ``callers``: networks (CIDR) that may reach
      those other ports (empty: any).
    - ``wide``, ``own``: RBAC rules for the whole cluster, and in the program's namespace.
    - ``files``: (mount path, name of the Secret) of each volume by name.
    - ``environment``: names of environment variables that contain the namespace.
    - ``account_annotations``: annotations of the service account, by which a cloud gives it rights.
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
    account_annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of all objects of the program."""
        return {**self.chosen, "app.kubernetes.io/managed-by": "kscale"}

    @property
    def chosen(self) -> dict[str, str]:
        """Return the labels that select the program's pods."""
        return {"app.kubernetes.io/name": self.name}


def account_manifests(
    name: str,
    rules: Iterable[ApiObject],
    *,
    namespace: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
) -> list[ApiObject]:
    """Build a service account with rights in the whole cluster, its ClusterRole and its binding.

    ``annotations``: of the service account only.
    """
    wide: ApiObject = {"name": name, "labels": dict(labels)}
    account = {**wide, "namespace": namespace}
    if annotations:
        account["annotations"] = dict(annotations)
    return [
        build_object("v1", "ServiceAccount", account),
        build_object(f"{_RBAC}/v1", "ClusterRole", wide, rules=list(rules)),
        _bound("ClusterRole", wide, name, namespace),
    ]


def _bound(kind: str, metadata: ApiObject, name: str, namespace: str) -> ApiObject:
    """Build the binding of a role (``kind``: Role or ClusterRole) to the service account, both named ``name``."""
    account = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    reference = {"apiGroup": _RBAC, "kind": kind, "name": name}
    return build_object(f"{_RBAC}/v1", f"{kind}Binding", metadata, roleRef=reference, subjects=[account])


def program_manifests(program: ProgramManifest, *, image: str, namespace: str) -> list[ApiObject]:
    """Build the objects of a program, in the order in which they must be applied.

    These are its account with roles and bindings, its Deployment, its PodDisruptionBudget and its NetworkPolicy.
    """
    here: ApiObject = {"name": program.name, "labels": program.labels, "namespace": namespace}
    selector = {"matchLabels": program.chosen}
    template = {"metadata": {"labels": program.labels}, "spec": _pod(program, image)}
    deployment = {"replicas": program.replicas, "selector": selector, "template": template}
    policy = {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": _ingress(program)}
    return [
        *account_manifests(
            program.name,
            program.wide,
            namespace=namespace,
            labels=program.labels,
            annotations=program.account_annotations,
        ),
        build_object(f"{_RBAC}/v1", "Role", here, rules=list(program.own)),
        _bound("Role", here, program.name, namespace),
        build_object("apps/v1", "Deployment", here, spec=deployment),
        build_object("policy/v1", "PodDisruptionBudget", here, spec={"maxUnavailable": 1, "selector": selector}),
        build_object("networking.k8s.io/v1", "NetworkPolicy", here, spec=policy),
    ]


def _ingress(program: ProgramManifest) -> list[ApiObject]:
    """Return the ingress rules: pods of the cluster may reach the metrics, the callers the other ports.

    A kubelet's probes are always allowed.
    """
    rules: list[ApiObject] = [
        {"from": [{"namespaceSelector": {}}], "ports": [{"protocol": "TCP", "port": "metrics"}]},
    ]
    if program.ports:
        rule: ApiObject = {"ports": [{"protocol": "TCP", "port": name} for name in program.ports]}
        callers = [{"ipBlock": {"cidr": cidr}} for cidr in program.callers]
        rules.append({"from": callers, **rule} if callers else rule)
    return rules


def _pod(program: ProgramManifest, image: str) -> ApiObject:
    """Build the spec of the program's pods."""
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
