"""The parts of a pod that predicates and the scheduler's queue read, as plain values.

Together these facets make up the pod's class.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, Final

import msgspec

from kscale.objects.api.core import Affinity, Container, Pod
from kscale.objects.api.volumes import Volume
from kscale.objects.conditions import find
from kscale.objects.decode import enc_hook
from kscale.objects.pod_owners import DAEMONSET_POD, SCALE_UP_DELAY, controller_of, pod_annotation
from kscale.objects.pod_resources import is_sidecar, pod_amounts

__all__ = [
    "NO_AFFINITY",
    "NO_LABELS",
    "NO_VOLUMES",
    "READ_SOURCES",
    "AffinityFacet",
    "AffinityKey",
    "AmountsFacet",
    "FrameKey",
    "HostPort",
    "LabelsFacet",
    "Queueing",
    "QueueingNumbers",
    "VolumesFacet",
    "affinity_facet",
    "amounts_facet",
    "drop_node_affinity",
    "frame_fields",
    "frame_key",
    "labels_facet",
    "pod_facets",
    "stays",
    "volumes_facet",
]


HostPort = tuple[str, str, int]
"""(ip, protocol, port), upstream's defaults filled in."""

_NAMELESS = "", ""
_NO_FEATURES: frozenset[str] = frozenset()
_encode = msgspec.json.Encoder(enc_hook=enc_hook, order="sorted").encode

READ_SOURCES = (
    "persistent_volume_claim", "ephemeral", "gce_persistent_disk", "aws_elastic_block_store", "rbd", "iscsi",
    "azure_disk", "azure_file", "cinder", "portworx_volume", "vsphere_volume",
)  # fmt: skip
"""Volume sources that some predicate reads."""

LabelsFacet = tuple[tuple[tuple[str, str], ...] | None, dict[str, str] | None]
"""(equality key of the labels, the labels)."""

AffinityKey = tuple[bytes | None, bytes | None]
"""(equality key of node affinities, equality key of pod affinities)."""

AffinityFacet = tuple[AffinityKey, dict[str, Any]]
"""(equality key, the fields of a class)."""

VolumesFacet = tuple[bytes, tuple[Volume, ...]]
"""(equality key of the volumes, the volumes that some predicate reads)."""

AmountsFacet = tuple[tuple[Any, ...], dict[str, Any]]
"""(equality key of the amounts, the fields of a class)."""

FrameKey = tuple[Any, ...]
"""Namespace, whether it terminates, the node's name, tolerations, node selector, host ports, spread constraints, name
and UID, claims, their statuses, features."""

NO_AFFINITY: AffinityFacet = (
    (None, None),
    {
        "node_affinity": None,
        "affinity": (),
        "anti_affinity": (),
        "preferred_affinity": (),
        "preferred_anti_affinity": (),
    },
)
"""That of a pod without any."""


NO_LABELS: LabelsFacet = None, None
NO_VOLUMES: VolumesFacet = b"", ()


def labels_facet(labels: dict[str, str] | None) -> LabelsFacet:
    """Return (key, labels). The key is equal for equal labels in any order."""
    if labels is None:
        return NO_LABELS
    return tuple(sorted(labels.items()) if len(labels) > 1 else labels.items()), labels


def affinity_facet(affinity: Affinity | None) -> AffinityFacet:
    """Return (key, fields of :class:`PodClass`) for an affinity. Preferred node affinity does not count."""
    if affinity is None:
        return NO_AFFINITY
    required = affinity.node_affinity.required if affinity.node_affinity else None
    affinity_between, anti_affinity = affinity.pod_affinity, affinity.pod_anti_affinity
    key = (
        None if required is None else _encode(required),
        None if affinity_between is None and anti_affinity is None else _encode((affinity_between, anti_affinity)),
    )
    return key, {
        "node_affinity": required,
        "affinity": tuple(affinity_between.required) if affinity_between else (),
        "anti_affinity": tuple(anti_affinity.required) if anti_affinity else (),
        "preferred_affinity": tuple(affinity_between.preferred) if affinity_between else (),
        "preferred_anti_affinity": tuple(anti_affinity.preferred) if anti_affinity else (),
    }


def stays(owner: tuple[str, str, str] | None) -> bool:
    """Return whether the controller (apiVersion, kind, name) is a DaemonSet, whose pods stay on their nodes.

    False for None (no controller).
    """
    return owner is not None and owner[1] == "DaemonSet"


def drop_node_affinity(affinity: AffinityFacet) -> AffinityFacet:
    """Return an affinity facet without its node affinity, for a DaemonSet's pod that already has its node."""
    (_, between_pods), fields = affinity
    return (None, between_pods), {**fields, "node_affinity": None}


def volumes_facet(volumes: list[Volume]) -> VolumesFacet:
    """Return (key, volumes), with only the volumes that predicates read."""
    if not volumes:
        return NO_VOLUMES
    read = tuple(v for v in volumes if any(getattr(v, source) is not None for source in READ_SOURCES))
    return _encode(read) if read else b"", read


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Return the host ports of regular containers and sidecars (plug-in NodePorts).

    Ordinary init containers do not count.
    """
    ports: list[HostPort] = []
    for container in pod.spec.init_containers:
        if container.ports and is_sidecar(container):
            ports += _host_ports(container)
    for container in pod.spec.containers:
        if container.ports:
            ports += _host_ports(container)
    return tuple(ports)


def _host_ports(container: Container) -> list[HostPort]:
    """Return (IP, protocol, port) of each host port of a container; 0.0.0.0 and TCP by default."""
    return [
        (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)
        for port in container.ports
        if port.host_port > 0
    ]


def inferred_features(pod: Pod) -> frozenset[str]:
    """Return the node features that the pod's spec implies (NodeDeclaredFeatures of Kubernetes 1.37)."""
    spec = pod.spec
    lasting = spec.containers if not spec.init_containers else [*spec.containers, *spec.init_containers]
    features = set()
    for each in lasting:
        rules = each.restart_policy_rules
        if rules and any(rule.action == "RestartAllContainers" for rule in rules):
            features.add("RestartAllContainersOnContainerExits")
        if each.volume_mounts and any(mount.bind_mount_options for mount in each.volume_mounts):
            features.add("VolumeBindMountOptions")
    if spec.host_network and spec.host_users is False:
        features.add("UserNamespacesHostNetworkSupport")
    for each in spec.ephemeral_containers:
        if each.volume_mounts and any(mount.bind_mount_options for mount in each.volume_mounts):
            features.add("VolumeBindMountOptions")
    return frozenset(features) if features else _NO_FEATURES


def amounts_facet(pod: Pod) -> AmountsFacet:
    """Return (key, fields of :class:`PodClass`) for the pod's requests and the resources it occupies on its node."""
    amounts = pod_amounts(pod)
    demand, occupancy = amounts.demand, amounts.occupancy
    key = (
        tuple(sorted(demand.items())),
        tuple(sorted(occupancy.items())) if occupancy is not demand and occupancy != demand else None,
        amounts.first_request,
        amounts.requested,
        amounts.extended,
    )
    return key, msgspec.structs.asdict(amounts)


def pod_facets(
    pod: Pod, *, placed: bool, moves: bool, named: bool
) -> tuple[FrameKey, AmountsFacet, LabelsFacet, AffinityFacet, VolumesFacet, tuple[str, str, str] | None]:
    """Return (frame key, amounts, labels, affinity, volumes, owner), which together determine a pod's class.

    ``owner``: (apiVersion, kind, name) of its controller, or None. ``placed``, ``moves``, ``named``: as in
    ``Interner.classify``.
    """
    controller = controller_of(pod.metadata)
    owner = (controller.api_version, controller.kind, controller.name) if controller else None
    affinity = affinity_facet(pod.spec.affinity)
    return (
        frame_key(pod, placed, named),
        amounts_facet(pod),
        labels_facet(pod.metadata.labels),
        drop_node_affinity(affinity) if placed and not moves and stays(owner) else affinity,
        volumes_facet(pod.spec.volumes),
        owner,
    )


def frame_key(pod: Pod, placed: bool, named: bool) -> FrameKey:
    """Return a key of all class fields except amounts, labels, affinity, volumes and owner.

    ``placed`` leaves out the node's name; ``named`` includes the pod's name and UID. Pods with resource claims or
    generic ephemeral volumes always have name and UID in the key.
    """
    spec, meta = pod.spec, pod.metadata
    if not named and (spec.resource_claims or spec.volumes):
        named = bool(spec.resource_claims) or any(v.ephemeral is not None for v in spec.volumes)
    claims, statuses = spec.resource_claims, pod.status.resource_claim_statuses
    return (
        meta.namespace,
        meta.deletion_timestamp is not None,
        "" if placed else spec.node_name,
        _encode(spec.tolerations) if spec.tolerations else b"",
        None if spec.node_selector is None else tuple(sorted(spec.node_selector.items())),
        host_ports(pod),
        None if spec.topology_spread_constraints is None else _encode(spec.topology_spread_constraints),
        (meta.name, meta.uid) if named else _NAMELESS,
        tuple([(c.name, c.resource_claim_name, c.resource_claim_template_name) for c in claims]) if claims else (),
        tuple([(c.name, c.resource_claim_name) for c in statuses]) if statuses else (),
        inferred_features(pod),
    )


def frame_fields(pod: Pod, key: FrameKey) -> dict[str, Any]:
    """Return the fields of a class that ``key``, the pod's :func:`frame_key`, stands for."""
    namespace, terminating, node_name, _, _, ports, _, (name, uid), claims, statuses, features = key
    spread = pod.spec.topology_spread_constraints
    return {
        "namespace": namespace,
        "terminating": terminating,
        "node_name": node_name,
        "tolerations": tuple(pod.spec.tolerations),
        "node_selector": pod.spec.node_selector,
        "ports": ports,
        "spread": None if spread is None else tuple(spread),
        "pod_name": name,
        "pod_uid": uid,
        "claims": claims,
        "claim_statuses": statuses,
        "features": features,
    }


_MAX_QUEUEINGS: Final = 1 << 12


class Queueing(msgspec.Struct, frozen=True):
    """Fields of a pending pod that the scheduler's queue and the autoscaler's pod lists read.

    ``scheduled`` is status and reason of the condition PodScheduled; ``daemonset``: whether an annotation declares the
    pod a DaemonSet's; ``delay``: the annotation with the scale-up delay.
    """

    scheduler: str
    scheduled: tuple[str, str] | None
    priority: int | None
    daemonset: bool
    delay: str | None

    @classmethod
    def of(cls, pod: Pod) -> Queueing:
        """Read the fields of this class from a pod."""
        condition = find(pod.status.conditions, "PodScheduled") if pod.status.conditions else None
        annotated = pod.metadata.annotations is not None
        return cls(
            pod.spec.scheduler_name,
            None if condition is None else (condition.status, condition.reason),
            pod.spec.priority,
            annotated and pod_annotation(pod, DAEMONSET_POD) == "true",
            pod_annotation(pod, SCALE_UP_DELAY) if annotated else None,
        )


class QueueingNumbers:
    """Numbers for the distinct :class:`Queueing` values, from 1; 0 means none.

    The number is negative if the pod has a delay annotation, as messages about it name the pod. Equal numbers mean
    equal values. When the table is full it is cleared, and values get new numbers.
    """

    __slots__ = ("_last", "_lock", "_numbers")

    def __init__(self) -> None:
        self._lock = Lock()
        self._last = 0
        self._numbers: dict[Queueing, int] = {}

    def __getstate__(self) -> tuple[int, dict[Queueing, int]]:
        with self._lock:
            return self._last, self._numbers.copy()

    def __setstate__(self, state: Any) -> None:
        self._lock = Lock()
        self._last, self._numbers = state

    def get(self, pod: Pod) -> int:
        """Return the number of a pod's :class:`Queueing`; a new value gets a new number. Thread-safe."""
        queueing = Queueing.of(pod)
        number = self._numbers.get(queueing)
        if number is not None:
            return number
        with self._lock:  # several threads may use snapshots of one cluster
            number = self._numbers.get(queueing)
            if number is None:
                if len(self._numbers) == _MAX_QUEUEINGS:
                    self._numbers.clear()
                self._last += 1
                number = self._numbers[queueing] = self._last if queueing.delay is None else -self._last
            return number
