"""Pod classes: pods that no predicate can tell apart share one, and all columns speak of classes.

What predicates read of a pod is taken once per class, as plain values; the facets that many classes share (tolerations,
node selection, identity) have numbers of their own, so that verdicts are computed per pair of facets.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

import msgspec

from kscale.objects.base import enc_hook
from kscale.objects.core import Container, NodeSelector, Pod, PodAffinityTerm, Toleration, TopologySpreadConstraint
from kscale.objects.owners import controller_of
from kscale.objects.quantity import Quantity
from kscale.objects.requests import demand as demand_of
from kscale.objects.requests import occupancy as occupancy_of
from kscale.objects.requests import to_integers
from kscale.objects.volumes import Volume

__all__ = ["HostPort", "Interner", "PodClass"]

HostPort = tuple[str, str, int]
"""(ip, protocol, port), upstream's defaults filled in."""

_ZERO = Quantity("0")
_encode = msgspec.json.Encoder(enc_hook=enc_hook, order="sorted").encode

# Volume sources that some predicate looks into.
_READ_SOURCES = (
    "persistent_volume_claim", "ephemeral", "gce_persistent_disk", "aws_elastic_block_store", "rbd", "iscsi",
    "azure_disk", "azure_file", "cinder", "portworx_volume", "vsphere_volume",
)  # fmt: skip


class PodClass(msgspec.Struct, frozen=True, eq=False, kw_only=True, gc=False):
    """What predicates read of a pod. Amounts are int64: milli-units of cpu, bytes, counts."""

    index: int
    namespace: str
    labels: dict[str, str] | None
    terminating: bool
    node_name: str
    tolerations: tuple[Toleration, ...]
    node_selector: dict[str, str] | None
    node_affinity: NodeSelector | None
    ports: tuple[HostPort, ...]
    demand: dict[str, int]
    occupancy: dict[str, int]
    affinity: tuple[PodAffinityTerm, ...]
    anti_affinity: tuple[PodAffinityTerm, ...]
    preferred_affinity: tuple[PodAffinityTerm, ...]
    preferred_anti_affinity: tuple[PodAffinityTerm, ...]
    spread: tuple[TopologySpreadConstraint, ...] | None
    volumes: tuple[Volume, ...]
    pod_name: str
    pod_uid: str
    claims: tuple[tuple[str, str | None, str | None], ...]
    claim_statuses: tuple[tuple[str, str | None], ...]
    features: frozenset[str]
    owner: tuple[str, str, str] | None
    first_request: tuple[float, float] | None
    tolerations_id: int
    selection_id: int
    identity_id: int

    @property
    def has_claims(self) -> bool:
        """Whether some volume is a claim, named or generic ephemeral."""
        return any(v.persistent_volume_claim is not None or v.ephemeral is not None for v in self.volumes)


class Interner:
    """Gives pods their class. Append-only: clusters and the snapshots taken of them share it."""

    def __init__(self) -> None:
        self.classes: list[PodClass] = []
        self.identities: list[PodClass] = []  # one class of each (namespace, labels, terminating)
        self._by_key: dict[Any, int] = {}
        self._facets: dict[Any, int] = {}
        self._lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {name: value.copy() for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=Lock())

    def _facet(self, key: Any) -> int:
        return self._facets.setdefault(key, len(self._facets))

    def classify(self, pod: Pod, *, placed: bool) -> PodClass:
        """The class of a pod. A placed pod's own node name says where it is, not where it wants to be."""
        key, values = _facets(pod, placed)
        index = self._by_key.get(key)
        if index is not None:
            return self.classes[index]
        with self._lock:  # snapshots of one cluster may be used from several threads
            index = self._by_key.get(key)
            return self.classes[index] if index is not None else self._add(key, values)

    def _add(self, key: Any, values: dict[str, Any]) -> PodClass:
        identity_key = ("identity", *key[:3])
        fresh = identity_key not in self._facets
        index = len(self.classes)
        pod_class = PodClass(
            index=index,
            tolerations_id=self._facet(("tolerations", key[4])),
            selection_id=self._facet(("selection", key[5], key[6])),
            identity_id=self._identities_of(identity_key),
            **values,
        )
        self.classes.append(pod_class)
        if fresh:
            self.identities.append(pod_class)
        self._by_key[key] = index
        return pod_class

    def _identities_of(self, key: Any) -> int:
        return self._facets.setdefault(key, len(self.identities))


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


def _facets(pod: Pod, placed: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    spec, meta = pod.spec, pod.metadata
    affinity = spec.affinity
    node_affinity = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    near = affinity.pod_affinity if affinity else None
    apart = affinity.pod_anti_affinity if affinity else None
    volumes = tuple(v for v in spec.volumes if any(getattr(v, source) is not None for source in _READ_SOURCES))
    named = any(v.ephemeral is not None for v in volumes) or bool(spec.resource_claims)
    owner = controller_of(meta)
    demand, occupancy = to_integers(demand_of(pod), floor=True), to_integers(occupancy_of(pod))
    labels = meta.labels
    values: dict[str, Any] = {
        "namespace": meta.namespace,
        "labels": labels,
        "terminating": meta.deletion_timestamp is not None,
        "node_name": "" if placed else spec.node_name,
        "tolerations": tuple(spec.tolerations),
        "node_selector": spec.node_selector,
        "node_affinity": node_affinity,
        "ports": host_ports(pod),
        "demand": demand,
        "occupancy": occupancy,
        "affinity": tuple(near.required) if near else (),
        "anti_affinity": tuple(apart.required) if apart else (),
        "preferred_affinity": tuple(w.pod_affinity_term for w in near.preferred) if near else (),
        "preferred_anti_affinity": tuple(w.pod_affinity_term for w in apart.preferred) if apart else (),
        "spread": None if spec.topology_spread_constraints is None else tuple(spec.topology_spread_constraints),
        "volumes": volumes,
        "pod_name": meta.name if named else "",
        "pod_uid": meta.uid if named else "",
        "claims": tuple((c.name, c.resource_claim_name, c.resource_claim_template_name) for c in spec.resource_claims),
        "claim_statuses": tuple((c.name, c.resource_claim_name) for c in pod.status.resource_claim_statuses),
        "features": inferred_features(pod),
        "owner": (owner.api_version, owner.kind, owner.name) if owner else None,
        "first_request": _first_request(pod),
    }
    key = (
        meta.namespace,
        None if labels is None else tuple(sorted(labels.items())),
        values["terminating"],
        values["node_name"],
        _encode(spec.tolerations) if spec.tolerations else b"",
        None if spec.node_selector is None else tuple(sorted(spec.node_selector.items())),
        None if node_affinity is None else _encode(node_affinity),
        values["ports"],
        tuple(sorted(demand.items())),
        tuple(sorted(occupancy.items())) if occupancy != demand else None,
        None if affinity is None or (near is None and apart is None) else _encode((near, apart)),
        None if values["spread"] is None else _encode(spec.topology_spread_constraints),
        _encode(volumes) if volumes else b"",
        values["pod_name"],
        values["pod_uid"],
        values["claims"],
        values["claim_statuses"],
        values["features"],
        values["owner"],
        values["first_request"],
    )
    return key, values
