"""Pod classes: pods that no predicate can tell apart share one, and all columns speak of classes.

What predicates read of a pod is taken once per class, as plain values; the facets that many classes share (tolerations,
node selection, identity) have numbers of their own, so that verdicts are computed per pair of facets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from threading import Lock
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.objects.base import enc_hook
from kscale.objects.core import (
    Affinity,
    Container,
    NodeSelector,
    Pod,
    PodAffinityTerm,
    Toleration,
    TopologySpreadConstraint,
)
from kscale.objects.owners import controller_of
from kscale.objects.quantity import Quantity, QuantityError
from kscale.objects.requests import CPU, MEMORY, to_integers
from kscale.objects.requests import demand as demand_of
from kscale.objects.requests import occupancy as occupancy_of
from kscale.objects.volumes import Volume
from kscale.snapshot.columns import Growing
from kscale.snapshot.memo import Memo
from kscale.snapshot.pod_shapes import Shape, shape_key

__all__ = [
    "READ_SOURCES",
    "AffinityFacet",
    "HostPort",
    "Interner",
    "LabelsFacet",
    "PodClass",
    "VolumesFacet",
    "affinity_facet",
    "labels_facet",
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


class PodClass(msgspec.Struct, frozen=True, eq=False, kw_only=True, gc=False):
    """What predicates read of a pod. Amounts are int64: milli-units of cpu, bytes, counts. ``requested``: the exact cpu
    and memory behind ``occupancy``, in billionths of a core and of a byte."""

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
    requested: tuple[int, int]
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
        self._prototypes: dict[Any, tuple[int, PodClass]] = {}
        self._identities: dict[Any, int] = {}
        self._facets: dict[Any, int] = {}
        self.shapes: list[Shape | None] = [None]  # by number, from 1
        self._shape_of: dict[Any, int] = {}
        self.controllers: list[str] = []  # UIDs by number
        self._controller_of: dict[str, int] = {}
        self._identity_of = Growing(np.int32)  # by number of the class
        self.memo = Memo()
        self._lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {name: copy(value) for name, value in vars(self).items() if name not in ("_lock", "_identity_of")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=Lock(), _identity_of=Growing(np.int32))

    def _facet(self, key: Any) -> int:
        return self._facets.setdefault(key, len(self._facets))

    def shape(self, key: Any, make: Callable[[], Shape]) -> int:
        """The number (from 1) of a shape of pods, see :mod:`kscale.snapshot.pod_shapes`; ``make`` makes a new one."""
        number = self._shape_of.get(key)
        if number is None:
            with self._lock:
                number = self._shape_of.setdefault(key, len(self.shapes))
                if number == len(self.shapes):
                    self.shapes.append(make())
        return number

    def shape_of(self, pod: Pod, class_of: int) -> int:
        """The number of a pod's shape; ``class_of``: the number of its class."""
        return self.shape(shape_key(pod, class_of), lambda: Shape(pod))

    def controller(self, uid: str | None) -> int:
        """The number of a controller, -1 = none."""
        if uid is None:
            return -1
        number = self._controller_of.get(uid)
        if number is None:
            with self._lock:
                number = self._controller_of.setdefault(uid, len(self.controllers))
                if number == len(self.controllers):
                    self.controllers.append(uid)
        return number

    def identity_of(self, classes: NDArray[np.int32]) -> NDArray[np.int32]:
        """Identities by number, of classes by number: int32[n]."""
        with self._lock:
            known = self._identity_of.size
            if known < len(self.classes):
                self._identity_of.extend_to(len(self.classes))
                self._identity_of.array[known:] = [each.identity_id for each in self.classes[known:]]
            found: NDArray[np.int32] = self._identity_of.array[classes]
        return found

    def classify(self, pod: Pod, *, placed: bool, moves: bool = False) -> PodClass:
        """The class of a pod. A placed pod's own node name says where it is, not where it wants to be; and so does the
        node affinity of a DaemonSet's pod, which names its node, unless it ``moves``: such a pod is never placed
        elsewhere, and with it no two of them would be alike."""
        number, prototype = self.prototype(pod, placed=placed)
        controller = controller_of(pod.metadata)
        owner = (controller.api_version, controller.kind, controller.name) if controller else None
        affinity = affinity_facet(pod.spec.affinity)
        return self.variant(
            number,
            prototype,
            labels_facet(pod.metadata.labels),
            settled(affinity) if placed and not moves and stays(owner) else affinity,
            volumes_facet(pod.spec.volumes),
            owner,
        )

    def prototype(self, pod: Pod, *, placed: bool) -> tuple[int, PodClass]:
        """(number, what it looks like) of a class but for what :meth:`variant` adds."""
        key, values = _facets(pod, placed)
        with self._lock:
            return self._prototypes.get(key) or self._add_prototype(key, values)

    def _add_prototype(self, key: Any, values: dict[str, Any]) -> tuple[int, PodClass]:
        prototype = PodClass(
            index=-1,
            labels=None,
            volumes=(),
            owner=None,
            identity_id=-1,
            selection_id=-1,
            tolerations_id=self._facet(("tolerations", key[3])),
            **_NO_AFFINITY,
            **values,
        )
        found = self._prototypes[key] = len(self._prototypes), prototype
        return found

    def variant(
        self,
        number: int,
        prototype: PodClass,
        labels: LabelsFacet,
        affinity: AffinityFacet,
        volumes: VolumesFacet,
        owner: tuple[str, str, str] | None,
    ) -> PodClass:
        """The class of a prototype with these labels, affinity, volumes and controller."""
        key = number, labels[0], affinity[0], volumes[0], owner
        index = self._by_key.get(key)
        if index is not None:
            return self.classes[index]
        with self._lock:  # snapshots of one cluster may be used from several threads
            index = self._by_key.get(key)
            if index is not None:
                return self.classes[index]
            made = self._add(prototype, labels, affinity, volumes, owner)
            self._by_key[key] = made.index
            return made

    def _add(
        self,
        prototype: PodClass,
        labels: LabelsFacet,
        affinity: AffinityFacet,
        volumes: VolumesFacet,
        owner: tuple[str, str, str] | None,
    ) -> PodClass:
        identity = prototype.namespace, labels[0], prototype.terminating
        identity_id = self._identities.get(identity)
        fresh = identity_id is None
        if identity_id is None:
            identity_id = self._identities[identity] = len(self.identities)
        selector = prototype.node_selector
        selected = None if selector is None else tuple(sorted(selector.items()))
        index = len(self.classes)
        pod_class = msgspec.structs.replace(
            prototype,
            index=index,
            labels=labels[1],
            volumes=volumes[1],
            owner=owner,
            identity_id=identity_id,
            selection_id=self._facet(("selection", selected, affinity[0][0])),
            **affinity[1],
        )
        self.classes.append(pod_class)
        if fresh:
            self.identities.append(pod_class)
        return pod_class


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
        "preferred_affinity": tuple(w.pod_affinity_term for w in near.preferred) if near else (),
        "preferred_anti_affinity": tuple(w.pod_affinity_term for w in apart.preferred) if apart else (),
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


def _facets(pod: Pod, placed: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    spec, meta = pod.spec, pod.metadata
    named = any(v.ephemeral is not None for v in spec.volumes) or bool(spec.resource_claims)
    taken = occupancy_of(pod)
    demand, occupancy = to_integers(demand_of(pod), floor=True), to_integers(taken)
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
