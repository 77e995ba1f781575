"""What the horizontal pod autoscaler and the three programs of the vertical one need in a cluster, as plain data."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from kscale.drivers.program_manifests import ApiObject, ProgramManifest, made, program_manifests, rule
from kscale.drivers.vpa_registration import RegistrationOptions
from kscale.world.serve.self_signed import SelfSigned

__all__ = [
    "CERTIFICATES",
    "METRICS_RULES",
    "PROGRAMS",
    "admission_manifests",
    "autoscaler_manifests",
    "autoscaler_roles",
    "secret_of",
    "webhook_service",
]

_SEE: Final = ("list", "watch")
_GROUP: Final = "autoscaling.k8s.io"
_LEASES: Final = "coordination.k8s.io"
_ADMISSION: Final = "vpa-admission-controller"
_SERVICE: Final = RegistrationOptions().webhook_service
_WEBHOOK_PORT: Final = 8000
_FILES: Final = "/etc/tls-certs"

PROGRAMS: Final[Mapping[str, tuple[str, int, str]]] = {
    "horizontal": ("horizontal-pod-autoscaler", 8085, "kscale-horizontal-pod-autoscaler"),
    "vpa-recommender": ("vpa-recommender", 8942, "vpa-recommender-lease"),
    "vpa-updater": ("vpa-updater", 8943, "vpa-updater"),
    "vpa-admission": (_ADMISSION, 8944, _ADMISSION),
}
"""By what ``kscale run`` calls them: the name of their objects, the port of their metrics, and their lease: that of the
leader, or the one by which the admission controller says that it lives."""

CERTIFICATES: Final[Mapping[str, Mapping[str, str]]] = {
    "upstream": {"tls-cert-file": "serverCert.pem", "tls-private-key": "serverKey.pem", "client-ca-file": "caCert.pem"},
    "cert-manager": {"tls-cert-file": "tls.crt", "tls-private-key": "tls.key", "client-ca-file": "ca.crt"},
}
"""The keys of the webhook's Secret, by the flag that names the file: those that upstream's script makes, and those that
cert-manager does."""

METRICS_RULES: Final = (
    rule("metrics.k8s.io", ["pods"], ["list"]),
    rule("custom.metrics.k8s.io", ["*"], ["get"]),
    rule("external.metrics.k8s.io", ["*"], ["list"]),
)
"""For what HPAs are decided from."""
_CONTROLLERS: Final = (
    rule("apps", ["daemonsets", "deployments", "replicasets", "statefulsets"], _SEE),
    rule("batch", ["jobs", "cronjobs"], _SEE),
    rule(_GROUP, ["verticalpodautoscalers"], _SEE),
    rule("*", ["*/scale"], ["get"]),
)
_RULES: Final[Mapping[str, Sequence[ApiObject]]] = {
    "horizontal": (
        rule("autoscaling", ["horizontalpodautoscalers"], _SEE),
        rule("autoscaling", ["horizontalpodautoscalers/status"], ["patch"]),
        rule("", ["pods"], _SEE),
        rule("apps", ["deployments", "statefulsets"], _SEE),
        rule("*", ["*/scale"], ["get", "update"]),
        *METRICS_RULES,
        rule("", ["events"], ["create", "patch"]),
    ),
    "vpa-recommender": (
        *_CONTROLLERS,
        rule("", ["pods", "events", "replicationcontrollers"], _SEE),
        rule("", ["namespaces"], ["list"]),
        rule("metrics.k8s.io", ["pods"], ["list"]),
        rule("external.metrics.k8s.io", ["*"], ["list"]),
        rule(_GROUP, ["verticalpodautoscalers"], ["get"]),
        rule(_GROUP, ["verticalpodautoscalers/status"], ["patch"]),
        rule(_GROUP, ["verticalpodautoscalercheckpoints"], ["list", "create", "patch", "delete"]),
    ),
    "vpa-updater": (
        *_CONTROLLERS,
        rule("", ["pods", "limitranges", "replicationcontrollers"], _SEE),
        rule("", ["pods/eviction"], ["create"]),
        rule("", ["pods", "pods/resize"], ["patch"]),
        rule("", ["events"], ["create", "patch"]),
    ),
    "vpa-admission": (
        *_CONTROLLERS,
        rule("", ["limitranges", "replicationcontrollers"], _SEE),
        rule("admissionregistration.k8s.io", ["mutatingwebhookconfigurations"], ["create"]),
        rule(
            "admissionregistration.k8s.io",
            ["mutatingwebhookconfigurations"],
            ["get", "delete", "patch"],
            ["vpa-webhook-config"],
        ),
    ),
}


_PLANS: Final = (
    rule("", ["nodes", "persistentvolumes", "persistentvolumeclaims"], _SEE),
    rule("storage.k8s.io", ["storageclasses"], _SEE),
    rule("", ["events"], ["create", "patch"]),
)
_NO_OPTIONS: Final[Mapping[str, Any]] = MappingProxyType({})


def autoscaler_roles(program: str, options: Mapping[str, Any] = _NO_OPTIONS) -> tuple[list[ApiObject], list[ApiObject]]:
    """The rules of a program (of :data:`PROGRAMS`) for the whole cluster, and those where its lease is.

    ``options`` of ``kscale run PROGRAM`` as it reads them, by their names (``leader_elect_resource_name``, ``plan``);
    those that are left out are as without a flag.
    """
    named = "status_lease_name" if program == "vpa-admission" else "leader_elect_resource_name"
    lease = options.get(named, PROGRAMS[program][2])
    own = [rule(_LEASES, ["leases"], ["create"]), rule(_LEASES, ["leases"], ["get", "patch"], [lease])]
    if program == "vpa-updater":
        looked_at = options.get("admission_controller_status_lease_name", _ADMISSION)
        own.append(rule(_LEASES, ["leases"], ["get"], [looked_at]))
    plans = options.get("plan") or options.get("explain")
    return [*_RULES[program], *(_PLANS if plans else ())], own


def autoscaler_manifests(
    program: str,
    *,
    image: str,
    namespace: str = "kube-system",
    flags: Sequence[str] = (),
    options: Mapping[str, Any] = _NO_OPTIONS,
    replicas: int = 2,
) -> list[ApiObject]:
    """The objects of a program of which one leads, in the order in which they are to be applied.

    ``flags``: further flags of ``kscale run PROGRAM``; ``options``: as it reads them (:func:`autoscaler_roles`).
    """
    led = ["--leader-elect", f"--leader-elect-resource-namespace={namespace}"]
    found = _program(program, [*led, *flags], options, replicas, {}, {})
    return program_manifests(found, image=image, namespace=namespace)


def admission_manifests(
    *,
    image: str,
    namespace: str = "kube-system",
    flags: Sequence[str] = (),
    options: Mapping[str, Any] = _NO_OPTIONS,
    replicas: int = 1,
    secret: str = "vpa-tls-certs",
    keys: str = "upstream",
    callers: Sequence[str] = (),
) -> list[ApiObject]:
    """The objects of the admission controller. ``callers``: the networks (CIDR) of the API servers, from which alone
    the webhook may be reached; empty: from anywhere. ``secret``: with its certificate, under the names of
    :data:`CERTIFICATES`; ``keys`` ``cert-manager``: an issuer and a certificate that fill it are among the objects.
    ``flags`` and ``options`` as in :func:`autoscaler_manifests`: the Service has the name of ``webhook_service``, and
    leads to ``port``."""
    name = webhook_service(options)
    files = [f"--{flag}={_FILES}/{key}" for flag, key in CERTIFICATES[keys].items()]
    more = ["--reload-cert", f"--webhook-service={name}", *files, *flags]
    ports = {"webhook": int(options.get("port", _WEBHOOK_PORT))}
    found = replace(
        _program("vpa-admission", more, options, replicas, ports, {"tls-certs": (_FILES, secret)}), callers=callers
    )
    here = {"namespace": namespace, "labels": found.labels}
    spec = {"selector": found.chosen, "ports": [{"name": "webhook", "port": 443, "targetPort": "webhook"}]}
    before: list[ApiObject] = []
    if keys == "cert-manager":
        host = f"{name}.{namespace}.svc"
        wanted = {
            "secretName": secret,
            "dnsNames": [host, f"{host}.cluster.local"],
            "issuerRef": {"kind": "Issuer", "name": found.name},
        }
        before = [
            made("cert-manager.io/v1", "Issuer", {"name": found.name, **here}, spec={"selfSigned": {}}),
            made("cert-manager.io/v1", "Certificate", {"name": found.name, **here}, spec=wanted),
        ]
    service = made("v1", "Service", {"name": name, **here}, spec=spec)
    return [*before, service, *program_manifests(found, image=image, namespace=namespace)]


def webhook_service(options: Mapping[str, Any] = _NO_OPTIONS) -> str:
    """The name of the Service that the API server asks, by ``options`` as in :func:`autoscaler_manifests`."""
    return str(options.get("webhook_service", _SERVICE))


def secret_of(pair: SelfSigned, name: str, namespace: str) -> ApiObject:
    """The Secret that holds a certificate of one's own, under upstream's names."""
    content = {"caCert.pem": pair.authority, "serverCert.pem": pair.certificate, "serverKey.pem": pair.key}
    data = {key: b64encode(value).decode() for key, value in content.items()}
    return made("v1", "Secret", {"name": name, "namespace": namespace}, type="Opaque", data=data)


def _program(
    program: str,
    flags: Sequence[str],
    options: Mapping[str, Any],
    replicas: int,
    ports: Mapping[str, int],
    files: Mapping[str, tuple[str, str]],
) -> ProgramManifest:
    name, port, _ = PROGRAMS[program]
    wide, own = autoscaler_roles(program, options)
    return ProgramManifest(
        name=name,
        arguments=["run", program, "--log-format=json", *flags],
        port=port,
        wide=wide,
        own=own,
        replicas=replicas,
        ports=ports,
        files=files,
        environment=("NAMESPACE",),
    )
