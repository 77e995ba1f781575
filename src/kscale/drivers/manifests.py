"""What the Cluster Autoscaler needs in a cluster, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from kscale.ca.options import AutoscalingOptions
from kscale.drivers.program_manifests import ApiObject, ProgramManifest, program_manifests
from kscale.drivers.program_manifests import rule as _rule

__all__ = ["CLUSTER_AUTOSCALER_RULES", "cluster_autoscaler_manifests", "cluster_autoscaler_roles"]

_NAME: Final = "cluster-autoscaler"
_SEE: Final = ("list", "watch")

CLUSTER_AUTOSCALER_RULES: Final[Sequence[ApiObject]] = (
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
    _rule("autoscaling.x-k8s.io", ["capacityquotas/status"], ["patch"]),
)
"""What the Cluster Autoscaler does anywhere in the cluster."""

_BUFFERS: Final = (
    _rule("autoscaling.x-k8s.io", ["capacitybuffers"], _SEE),
    _rule("autoscaling.x-k8s.io", ["capacitybuffers/status"], ["patch"]),
    _rule("", ["podtemplates"], _SEE),
)
_BY_FLAG: Final = {
    "capacity_buffer_pod_injection_enabled": _BUFFERS,
    "capacity_buffer_controller_enabled": (
        *_BUFFERS,
        _rule("", ["podtemplates"], ["get", "create", "patch"]),
        _rule("", ["pods"], ["create"]),  # asked for as a dry run
        _rule("", ["resourcequotas"], _SEE),
        _rule("apps", ["deployments", "replicasets", "statefulsets"], ["get", *_SEE]),
        _rule("", ["replicationcontrollers"], ["get", *_SEE]),
        _rule("batch", ["jobs"], ["get", *_SEE]),
        _rule("apps", ["deployments/scale", "replicasets/scale", "statefulsets/scale"], ["get"]),
        _rule("", ["replicationcontrollers/scale"], ["get"]),
    ),
    "enable_provisioning_requests": (
        _rule("autoscaling.x-k8s.io", ["provisioningrequests"], [*_SEE, "delete"]),
        _rule("autoscaling.x-k8s.io", ["provisioningrequests/status"], ["patch"]),
        _rule("", ["podtemplates"], _SEE),
    ),
}
"""What it does besides with an option that is on."""

_DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "cloud_provider": "externalgrpc",
        "expander": AutoscalingOptions().expander,
        "status_config_map_name": AutoscalingOptions().status_config_map_name,
        "leader_elect_resource_name": _NAME,
    }
)
_KWOK: Final = (_rule("", ["nodes"], ["create", "delete"]),)
_MACHINES: Final = (
    _rule("cluster.x-k8s.io", ["machinedeployments", "machinesets", "machinepools"], ["list"]),
    _rule("cluster.x-k8s.io", ["machines"], ["list", "patch"]),
    _rule("infrastructure.cluster.x-k8s.io", ["*"], ["get"]),
    _rule(
        "cluster.x-k8s.io",
        ["machinedeployments/scale", "machinesets/scale", "machinepools/scale"],
        ["get", "update"],
    ),
)


def cluster_autoscaler_roles(options: Mapping[str, Any] = _DEFAULTS) -> tuple[list[ApiObject], list[ApiObject]]:
    """The rules for the whole cluster, and those in the namespace of the lease, the status and the priorities.

    ``options`` of ``kscale run cluster-autoscaler`` as it reads them, by their names
    (``capacity_buffer_controller_enabled``); those that are left out are as without a flag.
    """
    given = {**_DEFAULTS, **options}
    cloud = given["cloud_provider"]
    wide = [*CLUSTER_AUTOSCALER_RULES, *{"kwok": _KWOK, "clusterapi": _MACHINES}.get(cloud, ())]
    for name, rules in _BY_FLAG.items():
        if given.get(name):
            wide += [each for each in rules if each not in wide]
    own = [
        _rule("", ["configmaps"], ["create"]),
        _rule("", ["configmaps"], ["get", "patch", "delete"], [given["status_config_map_name"]]),
        _rule("coordination.k8s.io", ["leases"], ["create"]),
        _rule("coordination.k8s.io", ["leases"], ["get", "patch"], [given["leader_elect_resource_name"]]),
    ]
    if "priority" in given["expander"].split(","):
        own.append(_rule("", ["configmaps"], ["get", "list", "watch"], [f"{_NAME}-priority-expander"]))
    if cloud == "kwok":
        own.append(_rule("", ["configmaps"], ["get"]))
    return wide, own


def cluster_autoscaler_manifests(
    *,
    image: str,
    namespace: str = "kube-system",
    config: str = "",
    flags: Sequence[str] = (),
    options: Mapping[str, Any] = _DEFAULTS,
    replicas: int = 2,
) -> list[ApiObject]:
    """The objects, in the order in which they are to be applied.

    ``config``: the name of a Secret whose key ``config`` is the file of ``--cloud-config``; empty: none. ``flags``:
    further flags of ``kscale run cluster-autoscaler``; ``options``: as it reads them, the cloud among them; those
    that are left out are as without a flag (:func:`cluster_autoscaler_roles`).
    """
    given = {**_DEFAULTS, **options}
    wide, own = cluster_autoscaler_roles(given)
    arguments = [
        "run",
        _NAME,
        f"--cloud-provider={given['cloud_provider']}",
        f"--namespace={namespace}",
        "--log-format=json",
        *flags,
    ]
    files = {}
    if config:
        arguments.append("--cloud-config=/etc/kscale/config")
        files = {"config": ("/etc/kscale", config)}
    program = ProgramManifest(
        name=_NAME, arguments=arguments, port=8085, wide=wide, own=own, replicas=replicas, ports={}, files=files
    )
    return program_manifests(program, image=image, namespace=namespace)
