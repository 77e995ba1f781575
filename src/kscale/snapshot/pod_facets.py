"""What predicates read of a pod, as plain values: the facets that make up its class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kscale.objects.base import enc_hook
from kscale.objects.core import Affinity, Container, Pod
from kscale.objects.quantity import Quantity, QuantityError
from kscale.objects.requests import CPU, MEMORY, takes_what_it_asks, to_integers
from kscale.objects.requests import demand as demand_of
from kscale.objects.requests import occupancy as occupancy_of
from kscale.objects.volumes import Volume

__all__ = [
    "READ_SOURCES",
    "AffinityFacet",
    "HostPort",
    "LabelsFacet",
    "VolumesFacet",
    "affinity_facet",
    "facets_of",
    "labels_facet",
    "settled",
    "stays",
    "volumes_facet",
]

HostPort = tuple[str, str, int]
"""(ip, protocol, port), upstream's defaults filled in."""

_ZERO = Quantity("0")
_encode = msgspec.json.Encoder(enc_hook=enc_hook, order="sorted").encode

READ_SOURCES = (
    "persistent_volume_claim", "ephemeral", "gce_persistent_disk", "aws_elastic_block_store", "rbd", "iscsi",
    "azure_disk", "azure_file", "cinder", "portworx_volume", "vsphere_volume",
)  # fmt: skip
"""Volume sources that some predicate looks into."""

LabelsFacet = tuple[tuple[tuple[str, str], ...] | None, dict[str, str] | None]
"""(what makes labels equal, the labels)."""

AffinityFacet = tuple[tuple[bytes | None, bytes | None], dict[str, Any]]
"""((what makes node affinities equal, what makes pod affinities equal), the fields of a class)."""

VolumesFacet = tuple[bytes, tuple[Volume, ...]]
"""(what makes volumes equal, those that some predicate looks into)."""

_NO_AFFINITY: dict[str, Any] = {
    "node_affinity": None,
    "affinity": (),
    "anti_affinity": (),
    "preferred_affinity": (),
    "preferred_anti_affinity": (),
}


def labels_facet(labels: dict[str, str] | None) -> LabelsFacet:
    """Labels as a facet."""
    return None if labels is None else tuple(sorted(labels.items())), labels


def affinity_facet(affinity: Affinity | None) -> AffinityFacet:
    """Affinities as a facet; node preferences do not count."""
    if affinity is None:
        return (None, None), _NO_AFFINITY
    required = affinity.node_affinity.required if affinity.node_affinity else None
    near, apart = affinity.pod_affinity, affinity.pod_anti_affinity
    key = (
        None if required is None else _encode(required),
        None if near is None and apart is None else _encode((near, apart)),
    )
    return key, {
        "node_affinity": required,
        "affinity": tuple(near.required) if near else (),
        "anti_affinity": tuple(apart.required) if apart else (),
        "preferred_affinity": tuple(near.preferred) if near else (),
        "preferred_anti_affinity": tuple(apart.preferred) if apart else (),
    }


def stays(owner: tuple[str, str, str] | None) -> bool:
    """Whether a pod of this controller never leaves its node for another."""
    return owner is not None and owner[1] == "DaemonSet"


def settled(affinity: AffinityFacet) -> AffinityFacet:
    """What counts of an affinity once the pod has its node for good."""
    (_, between_pods), fields = affinity
    return (None, between_pods), {**fields, "node_affinity": None}


def volumes_facet(volumes: list[Volume]) -> VolumesFacet:
    """Volumes as a facet."""
    read = tuple(v for v in volumes if any(getattr(v, source) is not None for source in READ_SOURCES))
    return _encode(read) if read else b"", read


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Host ports of regular containers and sidecars (spec: NodePorts); ordinary init containers do not count."""
    sidecars = [c for c in pod.spec.init_containers if c.restart_policy == "Always"]
    return tuple(
        (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)
        for container in (*sidecars, *pod.spec.containers)
        for port in container.ports
        if port.host_port > 0
    )


def inferred_features(pod: Pod) -> frozenset[str]:
    """Node features that the pod's spec implies (NodeDeclaredFeatures of Kubernetes 1.37)."""
    spec = pod.spec
    found = set()
    lasting: list[Container] = [*spec.containers, *spec.init_containers]
    if any(rule.action == "RestartAllContainers" for c in lasting for rule in c.restart_policy_rules):
        found.add("RestartAllContainersOnContainerExits")
    if spec.host_network and spec.host_users is False:
        found.add("UserNamespacesHostNetworkSupport")
    if any(m.bind_mount_options for c in (*lasting, *spec.ephemeral_containers) for m in c.volume_mounts):
        found.add("VolumeBindMountOptions")
    return frozenset(found)


def _first_request(pod: Pod) -> tuple[float, float] | None:
    """cpu and memory of the first container's requests as upstream's doubles; None = no container or no requests."""
    if not pod.spec.containers or pod.spec.containers[0].resources.requests is None:
        return None
    requests = pod.spec.containers[0].resources.requests
    cpu, memory = requests.get("cpu", _ZERO), requests.get("memory", _ZERO)
    return cpu.approximate_float(), memory.approximate_float()


def _requested(exact: Mapping[str, Quantity], rounded: Mapping[str, int]) -> tuple[int, int]:
    """The exact cpu and memory, in billionths; of amounts that are too large to be written out, the rounded ones."""
    try:
        return exact.get(CPU, _ZERO).billionths(), exact.get(MEMORY, _ZERO).billionths()
    except QuantityError:
        return rounded.get(CPU, 0) * 10**6, rounded.get(MEMORY, 0) * 10**9


def facets_of(pod: Pod, placed: bool, named: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(what makes pods equal but for labels, affinity, volumes and owner; those fields of a class). ``placed``: its
    node's name does not count; ``named``: its own does."""
    spec, meta = pod.spec, pod.metadata
    named = named or any(v.ephemeral is not None for v in spec.volumes) or bool(spec.resource_claims)
    asked = demand_of(pod)
    taken = asked if takes_what_it_asks(pod) else occupancy_of(pod)
    demand, occupancy = to_integers(asked, floor=True), to_integers(taken)
    values: dict[str, Any] = {
        "namespace": meta.namespace,
        "terminating": meta.deletion_timestamp is not None,
        "node_name": "" if placed else spec.node_name,
        "tolerations": tuple(spec.tolerations),
        "node_selector": spec.node_selector,
        "ports": host_ports(pod),
        "demand": demand,
        "occupancy": occupancy,
        "spread": None if spec.topology_spread_constraints is None else tuple(spec.topology_spread_constraints),
        "pod_name": meta.name if named else "",
        "pod_uid": meta.uid if named else "",
        "claims": tuple((c.name, c.resource_claim_name, c.resource_claim_template_name) for c in spec.resource_claims),
        "claim_statuses": tuple((c.name, c.resource_claim_name) for c in pod.status.resource_claim_statuses),
        "features": inferred_features(pod),
        "first_request": _first_request(pod),
        "requested": _requested(taken, occupancy),
    }
    key = (
        meta.namespace,
        values["terminating"],
        values["node_name"],
        _encode(spec.tolerations) if spec.tolerations else b"",
        None if spec.node_selector is None else tuple(sorted(spec.node_selector.items())),
        values["ports"],
        tuple(sorted(demand.items())),
        tuple(sorted(occupancy.items())) if occupancy != demand else None,
        None if values["spread"] is None else _encode(spec.topology_spread_constraints),
        values["pod_name"],
        values["pod_uid"],
        values["claims"],
        values["claim_statuses"],
        values["features"],
        values["first_request"],
        values["requested"],
    )
    return key, values
