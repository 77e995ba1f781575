"""Manifests of the horizontal pod autoscaler, of the three VPA programs with their CRDs, and of a read-only account.

Upstream: ``vertical-pod-autoscaler/deploy/vpa-v1-crd-gen.yaml``. The CRDs are as strict as upstream's: required fields,
enumerations, minimum values, the format of quantities, rules. Fields that no struct has are pruned.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec.inspect import (
    AnyType,
    CustomType,
    DictType,
    FloatType,
    IntType,
    ListType,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    type_info,
)

from kscale.drivers.manifests.programs import (
    ApiObject,
    ProgramManifest,
    account_manifests,
    build_object,
    program_manifests,
    rule,
)
from kscale.drivers.vpa_registration import RegistrationOptions
from kscale.errors import InputError
from kscale.objects.api.vpa import VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint
from kscale.world.kubernetes.listing import READ
from kscale.world.kubernetes.resources import EVERYWHERE
from kscale.world.serve.tls import SelfSigned

__all__ = [
    "CERTIFICATES",
    "METRICS_RULES",
    "NAME",
    "PROGRAMS",
    "admission_manifests",
    "autoscaler_manifests",
    "autoscaler_roles",
    "reader_manifests",
    "reader_rules",
    "secret_of",
    "vpa_definitions",
    "webhook_service",
]


_GROUP: Final = "autoscaling.k8s.io"
_APPROVED: Final = "https://github.com/kubernetes/kubernetes/pull/63797"
_PRESERVE_UNKNOWN_FIELDS: Final = "x-kubernetes-preserve-unknown-fields"
_ENUMS: Final[Mapping[str, list[str]]] = {
    "updateMode": ["Off", "Initial", "Recreate", "InPlaceOrRecreate", "InPlace", "Auto"],
    "mode": ["Auto", "Off"],
    "controlledValues": ["RequestsAndLimits", "RequestsOnly"],
    "changeRequirement": ["TargetHigherThanRequests", "TargetLowerThanRequests"],
}
_REQUIRED: Final[Mapping[str, list[str]]] = {
    "VerticalPodAutoscaler": ["spec"],
    "VerticalPodAutoscalerSpec": ["targetRef"],
    "TargetReference": ["kind", "name"],
    "RecommenderSelector": ["name"],
    "EvictionRequirement": ["changeRequirement", "resources"],
    "StartupBoostCpu": ["type"],
    "RecommendedContainerResources": ["target"],
    "VerticalPodAutoscalerCondition": ["status", "type"],
}
"""By struct."""
_STRUCT_SCHEMAS: Final[Mapping[str, ApiObject]] = {
    "TargetReference": {"x-kubernetes-map-type": "atomic"},
    "StartupBoostCpu": {
        "x-kubernetes-validations": [
            {
                "rule": f"(self.type == '{kind}') == has(self.{field})",
                "message": f"{field} is required when type is {kind} and forbidden otherwise",
            }
            for kind, field in (("Factor", "factor"), ("Quantity", "quantity"))
        ]
    },
}
_FIELD_SCHEMAS: Final[Mapping[tuple[str, str], ApiObject]] = {
    ("StartupBoostCpu", "type"): {"enum": ["Factor", "Quantity"]},
    ("PodUpdatePolicy", "evictAfterOOMSeconds"): {"minimum": 1},
    ("ContainerResourcePolicy", "memoryAggregationIntervalSeconds"): {"minimum": 1, "format": "int32"},
    ("ContainerResourcePolicy", "memoryAggregationIntervalCount"): {"minimum": 1},
    ("VerticalPodAutoscalerStatus", "observedGeneration"): {"minimum": 0},
}
"""By struct and field."""
_QUANTITY: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_TIMES: Final[Mapping[str, ApiObject]] = {
    "lastTransitionTime": {},
    "lastUpdateTime": {"nullable": True},
    "firstSampleStart": {"nullable": True},
    "lastSampleStart": {"nullable": True},
    "referenceTimestamp": {"nullable": True},
}
_COLUMNS: Final = (
    ("Mode", "string", ".spec.updatePolicy.updateMode"),
    ("CPU", "string", ".status.recommendation.containerRecommendations[0].target.cpu"),
    ("Mem", "string", ".status.recommendation.containerRecommendations[0].target.memory"),
    ("Provided", "string", ".status.conditions[?(@.type=='RecommendationProvided')].status"),
    ("Age", "date", ".metadata.creationTimestamp"),
)
_WIDE_COLUMNS: Final = (
    ("MinReplicas", "integer", ".spec.updatePolicy.minReplicas"),
    ("OOMSeconds", "integer", ".spec.updatePolicy.evictAfterOOMSeconds"),
)
_INT32: Final = (1 << 31) - 1


_OLD_VERSION: Final[ApiObject] = {
    "name": "v1beta2",
    "served": False,
    "storage": False,
    "schema": {"openAPIV3Schema": {"type": "object", _PRESERVE_UNKNOWN_FIELDS: True}},
}
"""Version that is not served, as upstream. If a cluster has stored objects in it, the definition must contain it."""


def vpa_definitions() -> list[ApiObject]:
    """Build the CustomResourceDefinitions of VerticalPodAutoscaler and VerticalPodAutoscalerCheckpoint.

    They serve version v1, and contain v1beta2 without serving it.
    """
    columns: list[ApiObject] = [{"name": name, "type": kind, "jsonPath": path} for name, kind, path in _COLUMNS]
    columns += [{"name": name, "type": kind, "jsonPath": path, "priority": 1} for name, kind, path in _WIDE_COLUMNS]
    return [
        _definition(
            VerticalPodAutoscaler,
            "verticalpodautoscalers",
            "vpa",
            subresources={"status": {}},
            additionalPrinterColumns=columns,
        ),
        _definition(VerticalPodAutoscalerCheckpoint, "verticalpodautoscalercheckpoints", "vpacheckpoint"),
    ]


def _definition(struct: type[msgspec.Struct], plural: str, short: str, **more: Any) -> ApiObject:
    """Build the CustomResourceDefinition of the kind of a struct, with schemas of its spec and status.

    ``plural``, ``short``: names of the resource; ``more``: further fields of version v1.
    """
    kind = struct.__name__
    names = {
        "plural": plural,
        "singular": plural[:-1],
        "kind": kind,
        "listKind": f"{kind}List",
        "shortNames": [short],
    }
    text = {"type": "string"}
    info = type_info(struct)
    assert isinstance(info, StructType)
    parts = {each.encode_name: _schema(each.type) for each in info.fields if each.encode_name in ("spec", "status")}
    properties = {"apiVersion": text, "kind": text, "metadata": {"type": "object"}, **parts}
    schema = {"type": "object", **_get_required_fields(struct), "properties": properties}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **more}
    return build_object(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        {"name": f"{plural}.{_GROUP}", "annotations": {"api-approved.kubernetes.io": _APPROVED}},
        spec={"group": _GROUP, "scope": "Namespaced", "names": names, "versions": [version, dict(_OLD_VERSION)]},
    )


def _get_required_fields(struct: type) -> ApiObject:
    """Return the keyword ``required`` of a struct's schema; empty if no field is required."""
    names = _REQUIRED.get(struct.__name__)
    return {} if names is None else {"required": names}


def _schema(of: Type, name: str = "") -> ApiObject:
    """Build the OpenAPI schema of a type.

    ``name``: JSON name of the field that has it, which decides formats and enums.
    """
    if isinstance(of, UnionType):
        (inner,) = [each for each in of.types if not isinstance(each, NoneType)]
        return _schema(inner, name)
    if isinstance(of, StructType):
        struct = of.cls.__name__
        properties = {
            each.encode_name: {
                **_schema(each.type, each.encode_name),
                **_FIELD_SCHEMAS.get((struct, each.encode_name), {}),
            }
            for each in of.fields
        }
        return {
            "type": "object",
            **_get_required_fields(of.cls),
            "properties": properties,
            **_STRUCT_SCHEMAS.get(struct, {}),
        }
    if isinstance(of, ListType):
        return {"type": "array", "items": _schema(of.item_type)}
    if isinstance(of, DictType):
        if isinstance(of.value_type, AnyType):  # bucket weights, without a schema
            return {"type": "object", _PRESERVE_UNKNOWN_FIELDS: True}
        return {"type": "object", "additionalProperties": _schema(of.value_type)}
    if isinstance(of, CustomType):  # a quantity
        kinds = [{"type": "integer"}, {"type": "string"}]
        return {"anyOf": kinds, "pattern": _QUANTITY, "x-kubernetes-int-or-string": True}
    if isinstance(of, IntType):
        return {"type": "integer", "format": "int32" if of.le == _INT32 else "int64"}
    if isinstance(of, FloatType):
        return {"type": "number"}
    assert isinstance(of, StrType), of
    if name in _TIMES:
        return {"type": "string", "format": "date-time", **_TIMES[name]}
    return {"type": "string", "enum": _ENUMS[name]} if name in _ENUMS else {"type": "string"}


_LIST_AND_WATCH: Final = ("list", "watch")
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
"""Program of ``kscale run`` -> (name of its objects, port of its metrics, name of its lease). The lease is that of the
leader; the admission controller renews its own as a sign of life."""

CERTIFICATES: Final[Mapping[str, Mapping[str, str]]] = {
    "upstream": {"tls-cert-file": "serverCert.pem", "tls-private-key": "serverKey.pem", "client-ca-file": "caCert.pem"},
    "cert-manager": {"tls-cert-file": "tls.crt", "tls-private-key": "tls.key", "client-ca-file": "ca.crt"},
}
"""Keys of the webhook's Secret by the flag that names the file, for a Secret that upstream's script or cert-manager
creates."""

METRICS_RULES: Final = (
    rule("metrics.k8s.io", ["pods"], ["list"]),
    rule("custom.metrics.k8s.io", ["*"], ["get"]),
    rule("external.metrics.k8s.io", ["*"], ["list"]),
)
"""Rules to read the metrics of HPAs."""
_CONTROLLERS: Final = (
    rule("apps", ["daemonsets", "deployments", "replicasets", "statefulsets"], _LIST_AND_WATCH),
    rule("batch", ["jobs", "cronjobs"], _LIST_AND_WATCH),
    rule(_GROUP, ["verticalpodautoscalers"], _LIST_AND_WATCH),
    rule("*", ["*/scale"], ["get"]),
)
_RULES: Final[Mapping[str, Sequence[ApiObject]]] = {
    "horizontal": (
        rule("autoscaling", ["horizontalpodautoscalers"], _LIST_AND_WATCH),
        rule("autoscaling", ["horizontalpodautoscalers/status"], ["patch"]),
        rule("", ["pods"], _LIST_AND_WATCH),
        rule("apps", ["deployments", "statefulsets"], _LIST_AND_WATCH),
        rule("*", ["*/scale"], ["get", "update"]),
        *METRICS_RULES,
        rule("", ["events"], ["create", "patch"]),
    ),
    "vpa-recommender": (
        *_CONTROLLERS,
        rule("", ["pods", "events", "replicationcontrollers"], _LIST_AND_WATCH),
        rule("", ["namespaces"], ["list"]),
        rule("metrics.k8s.io", ["pods"], ["list"]),
        rule("external.metrics.k8s.io", ["*"], ["list"]),
        rule(_GROUP, ["verticalpodautoscalers"], ["get"]),
        rule(_GROUP, ["verticalpodautoscalers/status"], ["patch"]),
        rule(_GROUP, ["verticalpodautoscalercheckpoints"], ["list", "create", "patch", "delete"]),
    ),
    "vpa-updater": (
        *_CONTROLLERS,
        rule("", ["pods", "limitranges", "replicationcontrollers"], _LIST_AND_WATCH),
        rule("", ["pods/eviction"], ["create"]),
        rule("", ["pods", "pods/resize"], ["patch"]),
        rule("", ["events"], ["create", "patch"]),
    ),
    "vpa-admission": (
        *_CONTROLLERS,
        rule("", ["limitranges", "replicationcontrollers"], _LIST_AND_WATCH),
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
    rule("", ["nodes", "persistentvolumes", "persistentvolumeclaims"], _LIST_AND_WATCH),
    rule("storage.k8s.io", ["storageclasses"], _LIST_AND_WATCH),
    rule("", ["events"], ["create", "patch"]),
)
_NO_OPTIONS: Final[Mapping[str, Any]] = MappingProxyType({})


def autoscaler_roles(program: str, options: Mapping[str, Any] = _NO_OPTIONS) -> tuple[list[ApiObject], list[ApiObject]]:
    """Return the cluster-wide rules of a program (of :data:`PROGRAMS`), and the rules in the namespace of its lease.

    ``options`` are the parsed options of ``kscale run PROGRAM`` by name (``leader_elect_resource_name``, ``plan``);
    missing ones have their defaults.
    """
    named = "status_lease_name" if program == "vpa-admission" else "leader_elect_resource_name"
    lease = options.get(named, PROGRAMS[program][2])
    own = [rule(_LEASES, ["leases"], ["create"]), rule(_LEASES, ["leases"], ["get", "patch"], [lease])]
    if program == "vpa-updater":
        admission_lease = options.get("admission_controller_status_lease_name", _ADMISSION)
        own.append(rule(_LEASES, ["leases"], ["get"], [admission_lease]))
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
    """Build the objects of a program with leader election, in the order in which to apply them.

    ``flags``: further flags of ``kscale run PROGRAM``; ``options``: the parsed options (:func:`autoscaler_roles`).
    """
    led = ["--leader-elect", f"--leader-elect-resource-namespace={namespace}"]
    objects = _program(program, [*led, *flags], options, replicas, {}, {})
    return program_manifests(objects, image=image, namespace=namespace)


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
    """Build the objects of the admission controller, in the order in which to apply them.

    ``callers``: the networks (CIDR) of the API servers that may reach the webhook; empty: all. ``secret``: name of the
    Secret with the certificate. ``keys``: names of the Secret's keys, a key of :data:`CERTIFICATES`; with
    ``cert-manager`` the result includes an issuer and a certificate that fill the Secret. ``flags`` and ``options`` are
    as in :func:`autoscaler_manifests`: the Service is named ``webhook_service``, and forwards to ``port``. Raises
    InputError for other ``keys``.
    """
    if keys not in CERTIFICATES:
        raise InputError(f"keys is {keys!r}, not one of {', '.join(CERTIFICATES)}")
    name = webhook_service(options)
    files = [f"--{flag}={_FILES}/{key}" for flag, key in CERTIFICATES[keys].items()]
    more = ["--reload-cert", f"--webhook-service={name}", *files, *flags]
    ports = {"webhook": int(options.get("port", _WEBHOOK_PORT))}
    objects = replace(
        _program("vpa-admission", more, options, replicas, ports, {"tls-certs": (_FILES, secret)}), callers=callers
    )
    here = {"namespace": namespace, "labels": objects.labels}
    spec = {"selector": objects.chosen, "ports": [{"name": "webhook", "port": 443, "targetPort": "webhook"}]}
    before: list[ApiObject] = []
    if keys == "cert-manager":
        host = f"{name}.{namespace}.svc"
        wanted = {
            "secretName": secret,
            "dnsNames": [host, f"{host}.cluster.local"],
            "issuerRef": {"kind": "Issuer", "name": objects.name},
        }
        before = [
            build_object("cert-manager.io/v1", "Issuer", {"name": objects.name, **here}, spec={"selfSigned": {}}),
            build_object("cert-manager.io/v1", "Certificate", {"name": objects.name, **here}, spec=wanted),
        ]
    service = build_object("v1", "Service", {"name": name, **here}, spec=spec)
    return [*before, service, *program_manifests(objects, image=image, namespace=namespace)]


def webhook_service(options: Mapping[str, Any] = _NO_OPTIONS) -> str:
    """Return the name of the Service that the API server calls, by ``options`` as in :func:`autoscaler_manifests`."""
    return str(options.get("webhook_service", _SERVICE))


def secret_of(pair: SelfSigned, name: str, namespace: str) -> ApiObject:
    """Build the Secret of a self-signed certificate, with upstream's keys."""
    content = {"caCert.pem": pair.authority, "serverCert.pem": pair.certificate, "serverKey.pem": pair.key}
    data = {key: b64encode(value).decode() for key, value in content.items()}
    return build_object("v1", "Secret", {"name": name, "namespace": namespace}, type="Opaque", data=data)


def _program(
    program: str,
    flags: Sequence[str],
    options: Mapping[str, Any],
    replicas: int,
    ports: Mapping[str, int],
    files: Mapping[str, tuple[str, str]],
) -> ProgramManifest:
    """Build the manifest of a program of :data:`PROGRAMS`.

    ``flags``: further arguments; ``ports``, ``files``: as in the result.
    """
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


NAME: Final = "kscale-reader"


def reader_rules() -> list[ApiObject]:
    """Return the cluster-wide rules of a read-only account: kinds are listed, scales and metrics are read one by one.

    Discovery (``/api``, ``/apis``) is open to every account.
    """
    served = {each.kind: each for each in reversed(EVERYWHERE)}
    groups: dict[str, list[str]] = {}
    for kind in READ:
        groups.setdefault(served[kind].group, []).append(served[kind].name)
    lists = [rule(group, names, ["list"]) for group, names in groups.items()]
    return [*lists, rule("*", ["*/scale"], ["get"]), *METRICS_RULES]


def reader_manifests(namespace: str = "kube-system") -> list[ApiObject]:
    """Build the account in ``namespace``, its ClusterRole and the binding, in the order in which to apply them."""
    return account_manifests(NAME, reader_rules(), namespace=namespace, labels={"app.kubernetes.io/name": NAME})
