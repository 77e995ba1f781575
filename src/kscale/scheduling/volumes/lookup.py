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


class _Last(dict[type[Any], Any]):
    """The newest value of each type; kept with the interner that snapshots of a cluster share."""


def cached_per_snapshot(snapshot: Snapshot, kind: type[T], renew: Callable[[T | None], T]) -> T:
    """The value of a type that a snapshot has. ``renew`` makes it from the last one that was made for a snapshot of the
    same cluster (None: there was none), which it may give back as it is, and does not change.

    A value keeps alive what it refers to until the next is made: never the snapshot itself.
    """

    def make() -> T:
        last = snapshot.interner.memo.of(_Last, _Last)
        found = last[kind] = renew(last.get(kind))
        return found

    return snapshot.memo.of(kind, make)


class Reachable(Generic[T]):
    """Entries of storage classes with the nodes that each can be reached from."""

    def __init__(self) -> None:
        self._entries: list[T] = []
        self._index: SelectorIndex[tuple[int, int]] = SelectorIndex()  # (number of the entry, of the selector)
        self._columns: dict[str, set[str]] = {}

    def add(self, storage_class: str, entry: T, nodes: Iterable[Selector]) -> None:
        """Adds an entry after the others, reached from the nodes that any of the selectors selects."""
        columns = self._columns.setdefault(storage_class, set())
        for i, selector in enumerate(nodes):
            self._index.add(storage_class, selector, (len(self._entries), i))
            columns.update(requirement.key for requirement in selector.requirements)
        self._entries.append(entry)

    def columns(self, storage_class: str) -> frozenset[str]:
        """The node labels that the selectors of a storage class read."""
        return frozenset(self._columns.get(storage_class, ()))

    def among(self, storage_class: str, labels: Mapping[str, str]) -> list[T]:
        """What a node with these labels reaches of a storage class, in the order in which it was added."""
        found = {number for number, _ in self._index.matching(storage_class, labels)}
        return [self._entries[number] for number in sorted(found)]


SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""The annotation that names the node a claim is to be provisioned for."""

_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"


def claim_names(pod: PodClass) -> Iterator[tuple[str, bool]]:
    """(claim name, is it a generic ephemeral volume's) in volume order."""
    for volume in pod.volumes:
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name, False
        elif volume.ephemeral is not None:
            yield f"{pod.pod_name}-{volume.name}", True


def class_name(entry: PersistentVolume | PersistentVolumeClaim) -> str:
    """Storage class of a claim or a volume: the old annotation, else the field."""
    annotations = entry.metadata.annotations or {}
    return annotations.get(_BETA_CLASS, entry.spec.storage_class_name or "")


def affinity_of(volume: PersistentVolume) -> NodeSelector | None:
    """Where a volume can be reached from; None: everywhere."""
    return volume.spec.node_affinity.required if volume.spec.node_affinity else None


def not_found(resource: str, name: str) -> str:
    """The text of upstream's listers."""
    return f'{resource} "{name}" not found'


def not_owned(pod: PodClass, claim: PersistentVolumeClaim) -> str | None:
    """Upstream's text when the claim of a generic ephemeral volume does not belong to this very pod."""
    if any(owner.controller and owner.uid == pod.pod_uid for owner in claim.metadata.owner_references):
        return None
    return (
        f"PVC {claim.namespace}/{claim.name} was not created for pod {pod.namespace}/{pod.pod_name} (pod is not owner)"
    )


class Volumes:
    """The informers' objects about storage, and what is derived of them. The same for all snapshots until one of these
    objects changes."""

    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        self._grounds: dict[int, tuple[PodClass, tuple[Any, ...]]] = {}

    @classmethod
    def of(cls, ctx: Context) -> Volumes:
        """Those of a snapshot."""
        informers = ctx.snapshot.informers

        def renew(last: Volumes | None) -> Volumes:
            return last if last is not None and last.is_of(informers) else cls(informers)

        return cached_per_snapshot(ctx.snapshot, cls, renew)

    def is_of(self, informers: Informers) -> bool:
        """Whether nothing changed."""
        mine = self._informers
        return (
            mine.claims is informers.claims
            and mine.volumes is informers.volumes
            and mine.storage_classes is informers.storage_classes
            and mine.csi_drivers is informers.csi_drivers
            and mine.capacities is informers.capacities
        )

    def grounds(self, pod: PodClass) -> tuple[Any, ...]:
        """The objects that a pod's claims lead to; all storage classes are one."""
        known = self._grounds.get(pod.index)
        if known is not None and known[0] is pod:
            return known[1]
        found: list[Any] = [self._informers.storage_classes]
        for name, _ in claim_names(pod):
            claim = self.claim(pod.namespace, name)
            found.append(claim)
            if claim is not None and claim.spec.volume_name:
                found.append(self.volume(claim.spec.volume_name))
        self._grounds[pod.index] = pod, tuple(found)
        return self._grounds[pod.index][1]

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """A claim."""
        return self._informers.claims.get((namespace, name))

    def volume(self, name: str) -> PersistentVolume | None:
        """A volume."""
        return self._informers.volumes.get(name)

    def storage_class(self, name: str) -> StorageClass | None:
        """A storage class."""
        return self._informers.storage_classes.get(name)

    def driver(self, name: str) -> CSIDriver | None:
        """A CSI driver."""
        return self._informers.csi_drivers.get(name)

    def claims_of(self, pod: PodClass) -> list[PersistentVolumeClaim]:
        """The claims of a pod that exist, in volume order."""
        found = (self.claim(pod.namespace, name) for name, _ in claim_names(pod))
        return [claim for claim in found if claim is not None]

    def held_for(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        """Volumes of the claim's class that name it; in the informer's order."""
        return self._held.get((class_name(claim), claim.namespace, claim.name), [])

    @cached_property
    def _held(self) -> dict[tuple[str, str, str], list[PersistentVolume]]:
        held: dict[tuple[str, str, str], list[PersistentVolume]] = {}
        for volume in self._informers.volumes.values():
            holder = volume.spec.claim_ref
            if holder is not None:
                held.setdefault((class_name(volume), holder.namespace, holder.name), []).append(volume)
        return held

    @cached_property
    def free(self) -> Reachable[PersistentVolume]:
        """Volumes that are available and held for no claim; in the informer's order."""
        found: Reachable[PersistentVolume] = Reachable()
        for volume in self._informers.volumes.values():
            if volume.spec.claim_ref is None and volume.status.phase == "Available":
                found.add(class_name(volume), volume, _selectors(affinity_of(volume)))
        return found

    @cached_property
    def capacities(self) -> Reachable[CSIStorageCapacity]:
        """What drivers publish of their room, of entries that say where it is."""
        found: Reachable[CSIStorageCapacity] = Reachable()
        for entry in self._informers.capacities:
            try:
                nodes = compile_selector(entry.node_topology)
            except SelectorError:  # passed over, as upstream does
                continue
            if not nodes.nothing:
                found.add(entry.storage_class_name, entry, [nodes])
        return found

    @cached_property
    def spelled(self) -> frozenset[str]:
        """Label values and node names that volumes, claims, classes and capacities spell out."""
        informers = self._informers
        found: set[str] = set()
        for volume in informers.volumes.values():
            required = affinity_of(volume)
            for term in required.node_selector_terms if required else ():
                for requirement in (*term.match_expressions, *term.match_fields):
                    found.update(requirement.values)
        for claim in informers.claims.values():
            found.add((claim.metadata.annotations or {}).get(SELECTED_NODE, ""))
        for storage_class in informers.storage_classes.values():
            for topology in storage_class.allowed_topologies:
                for wanted in topology.match_label_expressions:
                    found.update(wanted.values)
        for entry in informers.capacities:
            if entry.node_topology is not None:
                found.update((entry.node_topology.match_labels or {}).values())
                for expression in entry.node_topology.match_expressions:
                    found.update(expression.values)
        return frozenset(found)


def _selectors(required: NodeSelector | None) -> list[Selector]:
    """The nodes that a volume's affinity names, by labels only: upstream asks without the name of the node."""
    if required is None:
        return [EVERYTHING]
    terms = compile_node_selector(required).terms
    return [Selector(term.labels) for term in terms if not term.error and (term.labels or term.fields)]


class ClaimUsers(dict[tuple[str, str], int]):
    """How many placed pods name each claim; generic ephemeral volumes do not count (``updatePVCRefCounts``). Kept
    with a snapshot."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> ClaimUsers:
        """Those of a snapshot."""

        def make() -> ClaimUsers:
            users = cls()
            for which, pod in enumerate(snapshot.placed_classes):
                if pod.has_claims:
                    pods = len(snapshot.nodes_of_class(which))
                    for name in dict.fromkeys(name for name, ephemeral in claim_names(pod) if not ephemeral):
                        users[pod.namespace, name] = users.get((pod.namespace, name), 0) + pods
            return users

        return snapshot.memo.of(cls, make)
