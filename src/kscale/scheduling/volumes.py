"""Storage objects that the volume plug-ins read: claims, volumes, storage classes and CSI drivers, in-tree volumes and
the drivers that serve them, and the volumes that unbound claims of a pod would get on a node.

Upstream: ``csi-translation-lib``, ``volumebinding/binder.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Final, Generic, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from kscale.imports import lazy_pattern
from kscale.objects.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kscale.objects.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kscale.objects.api.volumes import Volume
from kscale.objects.node_selectors import REGIONS, ZONES, compile_node_selector
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import EVERYTHING, Selector, SelectorError, SelectorIndex, compile_selector
from kscale.objects.workloads import is_bound
from kscale.scheduling.profile import NAME, Context, NodeFacts, selector_columns
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.object_store import Informers
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "SELECTED_NODE",
    "ClaimUsers",
    "InTree",
    "PodVolumes",
    "Reachable",
    "TranslationError",
    "Volumes",
    "WaitingClaims",
    "affinity_of",
    "cached_per_snapshot",
    "claim_names",
    "class_name",
    "get_counted_plugins",
    "get_migrated_plugins",
    "in_tree_index",
    "inline",
    "not_found",
    "not_owned",
    "provisioned_by",
    "reachable_from",
    "reaches",
    "room_of",
    "size_of",
    "translate_volume",
]

_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"

IN_TREE: Final = (
    ("aws_elastic_block_store", "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone"),
    ("gce_persistent_disk", "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "topology.gke.io/zone"),
    ("azure_disk", "kubernetes.io/azure-disk", "disk.csi.azure.com", ""),
    ("cinder", "kubernetes.io/cinder", "cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone"),
    ("portworx_volume", "kubernetes.io/portworx-volume", "pxd.portworx.com", ""),
    ("azure_file", "kubernetes.io/azure-file", "file.csi.azure.com", ""),
    ("vsphere_volume", "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", ""),
)
"""Field of a volume source, its plug-in, the CSI driver that serves it, and the driver's zone label."""

_SERVED: Final = 5  # number of plug-ins, from the first, that the scheduler considers served by their CSI drivers

_SEVERAL: Final = "__"  # separator of the zones in a label
_UNSPECIFIED: Final = "UNSPECIFIED"
_EBS_VOLUME: Final = lazy_pattern(r"vol-[^/]*")

InTree = tuple[str, str, int]
"""(driver, handle, index in ``IN_TREE``)."""


class TranslationError(ValueError):
    """A volume that its CSI driver cannot serve; the text is upstream's."""


def get_counted_plugins(csi_node: CSINode | None) -> int:
    """Return the in-tree plug-ins whose volumes count against the limits of CSI drivers on a node, as a bit mask.

    It is 0 for a node without CSINode.
    """
    return 0 if csi_node is None else (1 << _SERVED) - 1


def get_migrated_plugins(csi_node: CSINode | None) -> int:
    """Return the in-tree plug-ins whose bound volumes are treated as CSI volumes on a node, as a bit mask.

    These are the ones that the annotation of the CSINode lists; 0 for a node without CSINode.
    """
    if csi_node is None:
        return 0
    moved = (csi_node.metadata.annotations or {}).get(_MIGRATED, "").split(",")
    return sum(1 << i for i, (_, plugin, _, _) in enumerate(IN_TREE[:_SERVED]) if plugin in moved)


def in_tree_index(source: Any) -> int:
    """Return the index in ``IN_TREE`` of a volume's source; -1 if the source is no in-tree plug-in."""
    for i, (field, _, _, _) in enumerate(IN_TREE):
        if getattr(source, field, None) is not None:
            return i
    return -1


def inline(volume: Volume) -> InTree | None:
    """Return the CSI equivalent of an inline volume of a pod; None if no CSI driver serves the volume.

    Raises TranslationError if the volume has no valid identity.
    """
    place = in_tree_index(volume)
    if not 0 <= place < _SERVED:
        return None
    return IN_TREE[place][2], _handle(volume, place, ()), place


def translate_volume(volume: PersistentVolume) -> InTree | None:
    """Return the CSI equivalent of a persistent volume; None if no CSI driver serves the volume.

    Raises TranslationError if the volume has no valid identity.
    """
    place = in_tree_index(volume.spec)
    if not 0 <= place < _SERVED:
        return None
    labels = volume.metadata.labels or {}
    zones = (labels.get(ZONES[1]) or labels.get(ZONES[0]) or "").split(_SEVERAL)
    return IN_TREE[place][2], _handle(volume.spec, place, zones), place


def _handle(source: Any, place: int, zones: Any) -> str:
    """Return the CSI volume handle of an in-tree source. ``place``: its index in ``IN_TREE``.

    ``zones``: zones of a GCE disk. Raises TranslationError if there is no valid handle.
    """
    match IN_TREE[place][0]:
        case "aws_elastic_block_store":
            return _ebs_volume(source.aws_elastic_block_store.volume_id)
        case "gce_persistent_disk":
            return f"projects/{_UNSPECIFIED}/{_gce_place(zones)}/disks/{source.gce_persistent_disk.pd_name}"
        case "azure_disk":
            disk = source.azure_disk
            if disk.kind is not None and disk.kind.lower() != "managed":
                raise TranslationError(f"kind({disk.kind}) is not supported in csi migration")
            return str(disk.disk_uri)
        case field:
            return str(getattr(source, field).volume_id)


def _ebs_volume(name: str) -> str:
    """Return the volume ID in ``aws://zone/vol-1`` (``vol-1``); a name without ``aws://`` as it is.

    Raises TranslationError if the URL has no valid volume ID.
    """
    if not name.startswith("aws://"):
        return name
    volume_id = unquote(urlsplit(name).path).strip("/")
    if _EBS_VOLUME.fullmatch(volume_id) is None:
        raise TranslationError(
            f"failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({name})"
        )
    return volume_id


def _gce_place(zones: Any) -> str:
    """Return ``zones/ZONE`` for at most one zone, ``regions/REGION`` for several.

    Raises TranslationError if these are not zones of one region.
    """
    if len(zones) <= 1:
        return f"zones/{zones[0] if zones and zones[0] else _UNSPECIFIED}"
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            raise TranslationError(
                "failed to get region from zones: zone in unexpected format, expected: {locale}-{region}-{zone}, got: "
                + zone
            )
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        region_map = " ".join(f"{region}:{{}}" for region in sorted(regions))
        raise TranslationError(
            f"failed to get region from zones: multiple or no regions gotten from zones, got: map[{region_map}]"
        )
    return f"regions/{regions.pop()}"


def reachable_from(volume: PersistentVolume) -> NodeSelector | None:
    """Return the node affinity that a volume has for its CSI driver; None if every node reaches the volume.

    The volume is one of an in-tree plug-in. Raises TranslationError if it cannot be translated.
    """
    translate_volume(volume)
    required = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    zone_key = IN_TREE[in_tree_index(volume.spec)][3]
    if not zone_key:
        return required
    labels = volume.metadata.labels or {}
    terms = required.node_selector_terms if required is not None else []
    used = {each.key for term in terms for each in term.match_expressions}
    which = next((i for i in (0, 1) if ZONES[i] in used), None)
    if which is None:
        which = next((i for i in (0, 1) if ZONES[i] in labels), 0)
    if any(each.values for term in terms for each in term.match_expressions if each.key == ZONES[which]):
        terms = _rename_key(terms, ZONES[which], zone_key)
    else:
        zones = sorted({zone.strip() for zone in labels.get(ZONES[which], "").split(_SEVERAL)} - {""})
        if zones:
            inside = NodeSelectorRequirement(key=zone_key, operator="In", values=zones)
            terms = [
                msgspec.structs.replace(term, match_expressions=[*term.match_expressions, inside])
                for term in terms or [NodeSelectorTerm()]
            ]
    if which == 1 and any(each.values for term in terms for each in term.match_expressions if each.key == REGIONS[1]):
        terms = _rename_key(terms, REGIONS[1], REGIONS[0])
    if required is None and not terms:
        return None
    return NodeSelector(node_selector_terms=list(terms))


def _rename_key(terms: list[NodeSelectorTerm], old: str, new: str) -> list[NodeSelectorTerm]:
    """Return copies of terms in which label expressions have the key ``new`` in place of ``old``."""
    return [
        msgspec.structs.replace(
            term,
            match_expressions=[
                msgspec.structs.replace(each, key=new) if each.key == old else each for each in term.match_expressions
            ],
        )
        for term in terms
    ]


def provisioned_by(provisioner: str) -> tuple[str, int] | None:
    """Return (CSI driver of a provisioner's volumes, index of its in-tree plug-in in ``IN_TREE`` or -1).

    None if no CSI driver serves the volumes.
    """
    for i, (_, plugin, driver, _) in enumerate(IN_TREE):
        if provisioner == plugin:
            return (driver, i) if i < _SERVED else None
    return provisioner, -1


T = TypeVar("T")


class _LatestValues(dict[type[Any], Any]):
    """The newest value of each type; cached with the interner that snapshots of a cluster share."""


def cached_per_snapshot(snapshot: Snapshot, kind: type[T], renew: Callable[[T | None], T]) -> T:
    """Return a snapshot's value of a type, created by ``renew`` on the first call.

    ``renew`` gets the last value that was created for a snapshot of the same cluster (None: there is none). It may
    return that value, but must not change it. The value is kept alive until the next one is created, so it must not
    refer to the snapshot itself.
    """

    def make() -> T:
        last = snapshot.interner.memo.get(_LatestValues, _LatestValues)
        value = last[kind] = renew(last.get(kind))
        return value

    return snapshot.memo.get(kind, make)


class Reachable(Generic[T]):
    """Entries of storage classes, with the nodes from which each can be reached."""

    def __init__(self) -> None:
        self._entries: list[T] = []
        self._index: SelectorIndex[tuple[int, int]] = SelectorIndex()  # (number of the entry, of the selector)
        self._columns: dict[str, set[str]] = {}

    def add(self, storage_class: str, entry: T, nodes: Iterable[Selector]) -> None:
        """Add an entry after the others, reachable from the nodes that any of the selectors selects."""
        columns = self._columns.setdefault(storage_class, set())
        for i, selector in enumerate(nodes):
            self._index.add(storage_class, selector, (len(self._entries), i))
            columns.update(requirement.key for requirement in selector.requirements)
        self._entries.append(entry)

    def columns(self, storage_class: str) -> frozenset[str]:
        """Return the node labels that the selectors of a storage class read."""
        return frozenset(self._columns.get(storage_class, ()))

    def among(self, storage_class: str, labels: Mapping[str, str]) -> list[T]:
        """Return a storage class's entries that a node with these labels can reach, in the order they were added."""
        numbers = {number for number, _ in self._index.matching(storage_class, labels)}
        return [self._entries[number] for number in sorted(numbers)]


SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation with the name of the node for which a claim is provisioned."""

_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"


def claim_names(pod: PodClass) -> Iterator[tuple[str, bool]]:
    """Yield (claim name, whether it belongs to a generic ephemeral volume) in volume order."""
    for volume in pod.volumes:
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name, False
        elif volume.ephemeral is not None:
            yield f"{pod.pod_name}-{volume.name}", True


def class_name(entry: PersistentVolume | PersistentVolumeClaim) -> str:
    """Return the storage class of a claim or a volume; the beta annotation has precedence over the field."""
    annotations = entry.metadata.annotations or {}
    return annotations.get(_BETA_CLASS, entry.spec.storage_class_name or "")


def affinity_of(volume: PersistentVolume) -> NodeSelector | None:
    """Return the node affinity that selects the nodes from which a volume can be reached; None: all nodes."""
    return volume.spec.node_affinity.required if volume.spec.node_affinity else None


def not_found(resource: str, name: str) -> str:
    """Return the error text of upstream's listers."""
    return f'{resource} "{name}" not found'


def not_owned(pod: PodClass, claim: PersistentVolumeClaim) -> str | None:
    """Return upstream's error if the claim of a generic ephemeral volume belongs to another pod, else None."""
    if any(owner.controller and owner.uid == pod.pod_uid for owner in claim.metadata.owner_references):
        return None
    return (
        f"PVC {claim.namespace}/{claim.name} was not created for pod {pod.namespace}/{pod.pod_name} (pod is not owner)"
    )


class Volumes:
    """The informers' storage objects, and what is derived from them. Shared by all snapshots until one of the objects
    changes.
    """

    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        self._inputs_by_class: dict[int, tuple[PodClass, tuple[Any, ...]]] = {}
        self._last_listed: tuple[Sequence[PodClass], tuple[Any, ...]] = (), ()

    @classmethod
    def of(cls, ctx: Context) -> Volumes:
        """Return the storage objects of a context's snapshot, shared with the last snapshot if none has changed."""
        informers = ctx.snapshot.informers

        def renew(last: Volumes | None) -> Volumes:
            return last if last is not None and last.is_of(informers) else cls(informers)

        return cached_per_snapshot(ctx.snapshot, cls, renew)

    def is_of(self, informers: Informers) -> bool:
        """Check whether the collections of storage objects are the same objects as in ``informers``."""
        current = self._informers
        return (
            current.claims is informers.claims
            and current.volumes is informers.volumes
            and current.storage_classes is informers.storage_classes
            and current.csi_drivers is informers.csi_drivers
            and current.capacities is informers.capacities
        )

    def get_dependencies(self, pod: PodClass) -> tuple[Any, ...]:
        """Return the objects on which a pod's volumes depend, cached: claims, bound volumes, and all storage classes.

        The collection of all storage classes is one object. None stands for an object that does not exist.
        """
        cached = self._inputs_by_class.get(pod.index)
        if cached is not None and cached[0] is pod:
            return cached[1]
        objects: list[Any] = [self._informers.storage_classes]
        for name, _ in claim_names(pod):
            claim = self.claim(pod.namespace, name)
            objects.append(claim)
            if claim is not None and claim.spec.volume_name:
                objects.append(self.volume(claim.spec.volume_name))
        self._inputs_by_class[pod.index] = pod, tuple(objects)
        return self._inputs_by_class[pod.index][1]

    def list_dependencies(self, pods: Sequence[PodClass]) -> tuple[Any, ...]:
        """Return :meth:`get_dependencies` of all pods in order; cached while ``pods`` is the same (unmodified) list."""
        if pods is not self._last_listed[0]:
            self._last_listed = pods, tuple(chain.from_iterable(map(self.get_dependencies, pods)))
        return self._last_listed[1]

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """Return a claim; None if the claim does not exist."""
        return self._informers.claims.get((namespace, name))

    def volume(self, name: str) -> PersistentVolume | None:
        """Return a volume; None if it does not exist."""
        return self._informers.volumes.get(name)

    def storage_class(self, name: str) -> StorageClass | None:
        """Return a storage class; None if it does not exist."""
        return self._informers.storage_classes.get(name)

    def driver(self, name: str) -> CSIDriver | None:
        """Return a CSI driver; None if it does not exist."""
        return self._informers.csi_drivers.get(name)

    def claims_of(self, pod: PodClass) -> list[PersistentVolumeClaim]:
        """Return the claims of a pod that exist, in volume order."""
        claims = (self.claim(pod.namespace, name) for name, _ in claim_names(pod))
        return [claim for claim in claims if claim is not None]

    def list_claimed_volumes(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        """Return the volumes of the claim's class that refer to the claim, in the informer's order."""
        return self._index_claimed_volumes.get((class_name(claim), claim.namespace, claim.name), [])

    @cached_property
    def _index_claimed_volumes(self) -> dict[tuple[str, str, str], list[PersistentVolume]]:
        """Index volumes by (storage class, namespace, name) of the claim that they refer to."""
        by_claim: dict[tuple[str, str, str], list[PersistentVolume]] = {}
        for volume in self._informers.volumes.values():
            holder = volume.spec.claim_ref
            if holder is not None:
                by_claim.setdefault((class_name(volume), holder.namespace, holder.name), []).append(volume)
        return by_claim

    @cached_property
    def free(self) -> Reachable[PersistentVolume]:
        """Return the volumes that are available and refer to no claim, in the informer's order."""
        volumes: Reachable[PersistentVolume] = Reachable()
        for volume in self._informers.volumes.values():
            if volume.spec.claim_ref is None and volume.status.phase == "Available":
                volumes.add(class_name(volume), volume, _selectors(affinity_of(volume)))
        return volumes

    @cached_property
    def capacities(self) -> Reachable[CSIStorageCapacity]:
        """Return the capacities that drivers publish, without entries whose selector is invalid or selects no nodes."""
        capacities: Reachable[CSIStorageCapacity] = Reachable()
        for entry in self._informers.capacities:
            try:
                nodes = compile_selector(entry.node_topology)
            except SelectorError:  # skipped, as upstream does
                continue
            if not nodes.nothing:
                capacities.add(entry.storage_class_name, entry, [nodes])
        return capacities

    @cached_property
    def selected_names(self) -> frozenset[str]:
        """Return label values and node names that occur in volumes, claims, classes and capacities."""
        informers = self._informers
        values: set[str] = set()
        for volume in informers.volumes.values():
            required = affinity_of(volume)
            for term in required.node_selector_terms if required else ():
                for requirement in (*term.match_expressions, *term.match_fields):
                    values.update(requirement.values)
        for claim in informers.claims.values():
            values.add((claim.metadata.annotations or {}).get(SELECTED_NODE, ""))
        for storage_class in informers.storage_classes.values():
            for topology in storage_class.allowed_topologies:
                for label in topology.match_label_expressions:
                    values.update(label.values)
        for entry in informers.capacities:
            if entry.node_topology is not None:
                values.update((entry.node_topology.match_labels or {}).values())
                for expression in entry.node_topology.match_expressions:
                    values.update(expression.values)
        return frozenset(values)


def _selectors(required: NodeSelector | None) -> list[Selector]:
    """Return the label selectors of a volume's affinity.

    Node names are ignored, because upstream checks without the name. Malformed terms are left out.
    """
    if required is None:
        return [EVERYTHING]
    terms = compile_node_selector(required).terms
    return [Selector(term.labels) for term in terms if not term.error and (term.labels or term.fields)]


class ClaimUsers(dict[tuple[str, str], int]):
    """Number of placed pods that name each claim, without generic ephemeral volumes (``updatePVCRefCounts``). Cached
    with a snapshot.
    """

    @classmethod
    def of(cls, snapshot: Snapshot) -> ClaimUsers:
        """Return the number of placed pods by claim for a snapshot, cached in it."""

        def make() -> ClaimUsers:
            users = cls()
            for which, pod in enumerate(snapshot.placed_classes):
                if pod.has_claims:
                    pods = len(snapshot.nodes_of_class(which))
                    for name in dict.fromkeys(name for name, ephemeral in claim_names(pod) if not ephemeral):
                        users[pod.namespace, name] = users.get((pod.namespace, name), 0) + pods
            return users

        return snapshot.memo.get(cls, make)


_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_ZERO: Final = Quantity("0")

_NO_VOLUME: Final = "node(s) didn't find available persistent volumes to bind"
_NO_ROOM: Final = "node(s) did not have enough free storage"


def size_of(claim: PersistentVolumeClaim) -> Quantity:
    """Return the storage that a claim requests; zero if absent."""
    return (claim.spec.resources.requests or {}).get("storage", _ZERO)


def room_of(volume: PersistentVolume) -> Quantity:
    """Return the storage capacity of a volume; zero if absent."""
    return (volume.spec.capacity or {}).get("storage", _ZERO)


def reaches(required: NodeSelector | None, node: NodeFacts) -> bool:
    """Check whether a volume's node affinity selects a node; True without affinity."""
    # Upstream checks a node that has only these labels and an empty name.
    return required is None or compile_node_selector(required).matches(node.labels, "")


class PodVolumes(msgspec.Struct, eq=False):
    """``bindings``: claims with existing volumes for them; ``provisions``: claims whose volumes would be provisioned,
    with the published capacity that was used, if the driver publishes any.
    """

    bindings: list[tuple[PersistentVolumeClaim, PersistentVolume]] = msgspec.field(default_factory=list)
    provisions: list[tuple[PersistentVolumeClaim, CSIStorageCapacity | None]] = msgspec.field(default_factory=list)


class WaitingClaims:
    """The claims of a pod that are not bound yet."""

    def __init__(self, claims: Sequence[PersistentVolumeClaim], volumes: Volumes) -> None:
        self._claims, self._volumes = claims, volumes

    @classmethod
    def of(cls, pod: PodClass, volumes: Volumes) -> WaitingClaims:
        """Collect the unbound claims of a pod."""
        return cls([claim for claim in volumes.claims_of(pod) if not is_bound(claim)], volumes)

    def __bool__(self) -> bool:
        return bool(self._claims)

    @property
    def columns(self) -> frozenset[str]:
        """Return the node columns that the result for a node depends on."""
        columns: set[str] = set()
        for claim in self._claims:
            if SELECTED_NODE in (claim.metadata.annotations or {}):
                columns.add(NAME)
            columns |= self._volumes.free.columns(class_name(claim))
            for volume in self._volumes.list_claimed_volumes(claim):
                columns |= selector_columns(affinity_of(volume))
            storage_class = self._volumes.storage_class(class_name(claim))
            for term in storage_class.allowed_topologies if storage_class else ():
                columns.update(requirement.key for requirement in term.match_label_expressions)
            columns |= self._volumes.capacities.columns(class_name(claim))
        return frozenset(columns)

    def on(self, node: NodeFacts) -> PodVolumes | str:
        """Return the volumes that the claims get on a node, or the reason if a claim gets none (``FindPodVolumes``)."""
        volumes = PodVolumes()
        without: list[PersistentVolumeClaim] = []
        match: list[PersistentVolumeClaim] = []
        for claim in self._claims:
            selected = (claim.metadata.annotations or {}).get(SELECTED_NODE)
            if selected is None:
                match.append(claim)
            elif selected != node.name:
                return _NO_VOLUME
            else:
                without.append(claim)
        chosen: set[str] = set()
        for claim in sorted(match, key=size_of):
            volume = self._best_volume(claim, node, chosen)
            if volume is None:
                without.append(claim)
            else:
                chosen.add(volume.name)
                volumes.bindings.append((claim, volume))
        for claim in without:
            provision = self._provision(claim, node)
            if isinstance(provision, str):
                return provision
            volumes.provisions.append((claim, provision))
        return volumes

    def _best_volume(self, claim: PersistentVolumeClaim, node: NodeFacts, chosen: set[str]) -> PersistentVolume | None:
        """Return the best existing volume for a claim; None if there is none.

        A volume that refers to the claim has precedence; if the node cannot reach it, the result is None. Otherwise the
        best is the smallest free volume that is large enough and reachable. ``chosen``: volumes that other claims of
        the pod get.
        """
        try:
            selector = compile_selector(claim.spec.selector) if claim.spec.selector is not None else None
        except SelectorError:
            return None
        for volume in self._volumes.list_claimed_volumes(claim):
            is_for_claim = volume.spec.claim_ref is not None and volume.spec.claim_ref.uid in ("", claim.metadata.uid)
            if is_for_claim and volume.name not in chosen and _suits(volume, claim):
                return volume if reaches(affinity_of(volume), node) else None
        best: PersistentVolume | None = None
        for volume in self._volumes.free.among(class_name(claim), node.labels):
            if volume.name in chosen or not _suits(volume, claim):
                continue
            if selector is not None and not selector.matches(volume.metadata.labels):
                continue
            if not set(claim.spec.access_modes) <= set(volume.spec.access_modes):
                continue
            if best is None or room_of(volume) < room_of(best):
                best = volume
        return best

    def _provision(self, claim: PersistentVolumeClaim, node: NodeFacts) -> CSIStorageCapacity | str | None:
        """Return the capacity for a new volume, None if its driver publishes none, or the reason if impossible.

        Upstream: ``checkVolumeProvisions``.
        """
        storage_class = self._volumes.storage_class(class_name(claim))
        if storage_class is None or storage_class.provisioner in ("", _NO_PROVISIONER):
            return _NO_VOLUME
        if not _is_topology_allowed(storage_class, node):
            return _NO_VOLUME
        driver = self._volumes.driver(storage_class.provisioner)
        if driver is None or not driver.spec.storage_capacity or "storage" not in (claim.spec.resources.requests or {}):
            return None
        return self._find_capacity(storage_class, size_of(claim).value(), node) or _NO_ROOM

    def _find_capacity(self, storage_class: StorageClass, size: int, node: NodeFacts) -> CSIStorageCapacity | None:
        """Return the first CSIStorageCapacity that is large enough and covers the node; None if there is none."""
        for entry in self._volumes.capacities.among(storage_class.name, node.labels):
            room = entry.maximum_volume_size if entry.maximum_volume_size is not None else entry.capacity
            if room is not None and room.value() >= size:
                return entry
        return None


def _suits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Check whether a volume is large enough, of the claim's mode and attributes class, and not being deleted."""
    offered, requested = volume.spec, claim.spec
    return (
        room_of(volume) >= size_of(claim)
        and not volume.metadata.deletion_timestamp
        and (offered.volume_mode or "Filesystem") == (requested.volume_mode or "Filesystem")
        and (offered.volume_attributes_class_name or "") == (requested.volume_attributes_class_name or "")
    )


def _is_topology_allowed(storage_class: StorageClass, node: NodeFacts) -> bool:
    """Check whether the node is in a topology that the storage class allows; True if the class allows all."""
    if not storage_class.allowed_topologies:
        return True
    return any(
        term.match_label_expressions
        and all(node.labels.get(each.key) in each.values for each in term.match_label_expressions)
        for term in storage_class.allowed_topologies
    )
