"""Volumes that unbound claims of a pod would get on a node (upstream: ``volumebinding/binder.go``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from kscale.objects.api.core import NodeSelector
from kscale.objects.api.storage import CSIStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageClass
from kscale.objects.node_selectors import compile_node_selector
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import SelectorError, compile_selector
from kscale.scheduling.profile import NAME, NodeFacts, selector_columns
from kscale.scheduling.volumes.lookup import SELECTED_NODE, Volumes, affinity_of, class_name
from kscale.snapshot.classes.interner import PodClass

__all__ = ["PodVolumes", "WaitingClaims", "is_bound", "reaches", "room_of", "size_of"]

_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_ZERO: Final = Quantity("0")

_NO_VOLUME: Final = "node(s) didn't find available persistent volumes to bind"
_NO_ROOM: Final = "node(s) did not have enough free storage"


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Check whether a claim is bound completely to its volume."""
    return bool(claim.spec.volume_name) and _BIND_COMPLETED in (claim.metadata.annotations or {})


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

        A volume that refers to the claim has precedence. Otherwise it is the smallest free one that is large enough and
        reachable.
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
        return self._capacity(storage_class, size_of(claim).value(), node) or _NO_ROOM

    def _capacity(self, storage_class: StorageClass, size: int, node: NodeFacts) -> CSIStorageCapacity | None:
        """Return the first capacity that is large enough and reachable from the node; None if there is none."""
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
    if not storage_class.allowed_topologies:
        return True
    return any(
        term.match_label_expressions
        and all(node.labels.get(each.key) in each.values for each in term.match_label_expressions)
        for term in storage_class.allowed_topologies
    )
