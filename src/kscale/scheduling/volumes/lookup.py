"""Claims, volumes, storage classes and CSI drivers that the volume plug-ins look up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Generic, TypeVar

from kscale.objects.api.core import NodeSelector
from kscale.objects.api.storage import (
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kscale.objects.node_selectors import compile_node_selector
from kscale.objects.selectors import EVERYTHING, Selector, SelectorError, SelectorIndex, compile_selector
from kscale.scheduling.profile import Context
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.object_store import Informers
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "SELECTED_NODE",
    "ClaimUsers",
    "Reachable",
    "Volumes",
    "affinity_of",
    "cached_per_snapshot",
    "claim_names",
    "class_name",
    "not_found",
    "not_owned",
]


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
    """Return the nodes from which a volume can be reached; None means all."""
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
        self._grounds: dict[int, tuple[PodClass, tuple[Any, ...]]] = {}

    @classmethod
    def of(cls, ctx: Context) -> Volumes:
        """Return the storage objects of a context's snapshot, cached."""
        informers = ctx.snapshot.informers

        def renew(last: Volumes | None) -> Volumes:
            return last if last is not None and last.is_of(informers) else cls(informers)

        return cached_per_snapshot(ctx.snapshot, cls, renew)

    def is_of(self, informers: Informers) -> bool:
        """Check whether all storage objects are the same as in ``informers``."""
        current = self._informers
        return (
            current.claims is informers.claims
            and current.volumes is informers.volumes
            and current.storage_classes is informers.storage_classes
            and current.csi_drivers is informers.csi_drivers
            and current.capacities is informers.capacities
        )

    def get_dependencies(self, pod: PodClass) -> tuple[Any, ...]:
        """Return the objects that a pod's claims refer to; all storage classes are one object."""
        cached = self._grounds.get(pod.index)
        if cached is not None and cached[0] is pod:
            return cached[1]
        objects: list[Any] = [self._informers.storage_classes]
        for name, _ in claim_names(pod):
            claim = self.claim(pod.namespace, name)
            objects.append(claim)
            if claim is not None and claim.spec.volume_name:
                objects.append(self.volume(claim.spec.volume_name))
        self._grounds[pod.index] = pod, tuple(objects)
        return self._grounds[pod.index][1]

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """Return a claim; None if it does not exist."""
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
        """Return the capacities that drivers publish; entries that select no nodes are left out."""
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

    Node names are ignored, because upstream checks without the name.
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
        """Return the claim users of a snapshot, cached in it."""

        def make() -> ClaimUsers:
            users = cls()
            for which, pod in enumerate(snapshot.placed_classes):
                if pod.has_claims:
                    pods = len(snapshot.nodes_of_class(which))
                    for name in dict.fromkeys(name for name, ephemeral in claim_names(pod) if not ephemeral):
                        users[pod.namespace, name] = users.get((pod.namespace, name), 0) + pods
            return users

        return snapshot.memo.get(cls, make)
