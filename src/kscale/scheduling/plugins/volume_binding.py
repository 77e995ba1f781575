"""VolumeBinding: bound volumes reachable, unbound ones bindable or provisionable (``plugins/volumebinding``).

Cluster Autoscaler does not assume bindings, so the verdict is constant within a simulation.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from kscale.objects.node_selectors import compile_node_selector
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import SelectorError, compile_selector
from kscale.scheduling.plugins.base import (
    NAME,
    NOTHING,
    SKIP,
    Plugin,
    PreFilter,
    Status,
    error,
    unresolvable,
)
from kscale.scheduling.plugins.node_affinity import selector_columns
from kscale.scheduling.volumes import SELECTED_NODE, claim_names, claim_of, class_name, not_found, not_owned

if TYPE_CHECKING:
    from kscale.objects.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
    from kscale.scheduling.context import Context, NodeFacts
    from kscale.snapshot.interner import PodClass

__all__ = ["VolumeBinding"]

_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_ZERO = Quantity("0")

_NO_MATCH = "node(s) didn't match PersistentVolume's node affinity"
_NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
_NO_ROOM = "node(s) did not have enough free storage"
_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


def _bound(claim: PersistentVolumeClaim) -> bool:
    return bool(claim.spec.volume_name) and _BIND_COMPLETED in (claim.metadata.annotations or {})


def _request(claim: PersistentVolumeClaim) -> Quantity:
    return (claim.spec.resources.requests or {}).get("storage", _ZERO)


def _capacity(volume: PersistentVolume) -> Quantity:
    return (volume.spec.capacity or {}).get("storage", _ZERO)


def _reaches(volume: PersistentVolume, node: NodeFacts) -> bool:
    required = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    # Upstream asks a node made of nothing but these labels: its name is empty.
    return required is None or compile_node_selector(required).matches(node.labels, "")


class VolumeBinding(Plugin):
    """All claims of the pod are usable from the node."""

    name = "VolumeBinding"
    ordinal = 9

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        names = list(claim_names(pod))
        if not names:
            return SKIP
        immediate = False
        for name, ephemeral in names:
            claim = claim_of(pod, name, ctx)
            problem = self._unusable(pod, name, claim, ephemeral)
            if problem:
                return PreFilter(failure=unresolvable(problem))
        for name, _ in names:
            claim = claim_of(pod, name, ctx)
            if claim is None or _bound(claim):
                continue
            storage_class = ctx.informers.storage_classes.get(class_name(claim))
            if storage_class is not None and not storage_class.volume_binding_mode:
                return PreFilter(failure=error(f'VolumeBindingMode not set for StorageClass "{class_name(claim)}"'))
            waits = storage_class is not None and storage_class.volume_binding_mode == "WaitForFirstConsumer"
            immediate = immediate or not waits or bool(claim.spec.volume_name)
        if immediate:
            return PreFilter(failure=unresolvable("pod has unbound immediate PersistentVolumeClaims"))
        return NOTHING

    def _unusable(self, pod: PodClass, name: str, claim: PersistentVolumeClaim | None, ephemeral: bool) -> str | None:
        if claim is None:
            if ephemeral:
                return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            return not_found("persistentvolumeclaim", name)
        if claim.status.phase == "Lost":
            return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
        if claim.metadata.deletion_timestamp:
            return f'persistentvolumeclaim "{name}" is being deleted'
        return not_owned(pod, claim) if ephemeral else None

    def pod_key(self, pod: PodClass, ctx: Context) -> Hashable | None:
        return pod.index if pod.has_claims else None

    def columns(self, pod: PodClass, ctx: Context) -> frozenset[str]:
        columns: set[str] = set()
        for name, _ in claim_names(pod):
            claim = claim_of(pod, name, ctx)
            if claim is None:
                continue
            if _bound(claim):
                volume = ctx.informers.volumes.get(claim.spec.volume_name)
                if volume is not None and volume.spec.node_affinity:
                    columns |= selector_columns(volume.spec.node_affinity.required)
                continue
            if SELECTED_NODE in (claim.metadata.annotations or {}):
                columns.add(NAME)
            for volume in ctx.volumes_of_class(class_name(claim)):
                if volume.spec.node_affinity:
                    columns |= selector_columns(volume.spec.node_affinity.required)
            storage_class = ctx.informers.storage_classes.get(class_name(claim))
            for term in storage_class.allowed_topologies if storage_class else ():
                columns.update(requirement.key for requirement in term.match_label_expressions)
            columns |= ctx.capacity_columns
        return frozenset(columns)

    def check(self, pod: PodClass, node: NodeFacts, ctx: Context) -> Status | None:
        claims = [claim for name, _ in claim_names(pod) if (claim := claim_of(pod, name, ctx)) is not None]
        reasons = []
        bound = self._check_bound([claim for claim in claims if _bound(claim)], node, ctx)
        if bound == _NO_MATCH:
            reasons.append(bound)
        waiting = self._check_waiting([claim for claim in claims if not _bound(claim)], node, ctx)
        if waiting:
            reasons.append(waiting)
        if bound == _GONE:
            reasons.append(bound)
        return unresolvable(*reasons) if reasons else None

    def _check_bound(self, claims: list[PersistentVolumeClaim], node: NodeFacts, ctx: Context) -> str | None:
        for claim in claims:
            volume = ctx.informers.volumes.get(claim.spec.volume_name)
            if volume is None:
                return _GONE
            if not _reaches(volume, node):
                return _NO_MATCH
        return None

    def _check_waiting(self, claims: list[PersistentVolumeClaim], node: NodeFacts, ctx: Context) -> str | None:
        provision, match = [], []
        for claim in claims:
            selected = (claim.metadata.annotations or {}).get(SELECTED_NODE)
            if selected is None:
                match.append(claim)
            elif selected != node.name:
                return _NO_VOLUME
            else:
                provision.append(claim)
        chosen: set[str] = set()
        for claim in sorted(match, key=_request):
            volume = self._best_volume(claim, node, ctx, chosen)
            if volume is None:
                provision.append(claim)
            else:
                chosen.add(volume.name)
        for claim in provision:
            storage_class = ctx.informers.storage_classes.get(class_name(claim))
            if storage_class is None or storage_class.provisioner in ("", _NO_PROVISIONER):
                return _NO_VOLUME
            if not self._allowed(storage_class, node):
                return _NO_VOLUME
            if not self._has_capacity(claim, storage_class, node, ctx):
                return _NO_ROOM
        return None

    def _best_volume(
        self, claim: PersistentVolumeClaim, node: NodeFacts, ctx: Context, chosen: set[str]
    ) -> PersistentVolume | None:
        """A volume that names the claim, else the smallest that is free, large enough and reachable."""
        try:
            selector = compile_selector(claim.spec.selector) if claim.spec.selector is not None else None
        except SelectorError:
            return None
        best: PersistentVolume | None = None
        for volume in ctx.volumes_of_class(class_name(claim)):
            spec = volume.spec
            if volume.name in chosen or _capacity(volume) < _request(claim) or volume.metadata.deletion_timestamp:
                continue
            if (spec.volume_mode or "Filesystem") != (claim.spec.volume_mode or "Filesystem"):
                continue
            if (spec.volume_attributes_class_name or "") != (claim.spec.volume_attributes_class_name or ""):
                continue
            holder = spec.claim_ref
            if holder is not None:
                same = (holder.namespace, holder.name) == (claim.namespace, claim.name)
                if same and holder.uid in ("", claim.metadata.uid):
                    return volume if _reaches(volume, node) else None
                continue
            if volume.status.phase != "Available" or not _reaches(volume, node):
                continue
            if selector is not None and not selector.matches(volume.metadata.labels):
                continue
            if not set(claim.spec.access_modes) <= set(spec.access_modes):
                continue
            if best is None or _capacity(volume) < _capacity(best):
                best = volume
        return best

    def _allowed(self, storage_class: StorageClass, node: NodeFacts) -> bool:
        if not storage_class.allowed_topologies:
            return True
        return any(
            term.match_label_expressions
            and all(node.labels.get(each.key) in each.values for each in term.match_label_expressions)
            for term in storage_class.allowed_topologies
        )

    def _has_capacity(
        self, claim: PersistentVolumeClaim, storage_class: StorageClass, node: NodeFacts, ctx: Context
    ) -> bool:
        driver = ctx.informers.csi_drivers.get(storage_class.provisioner)
        if driver is None or not driver.spec.storage_capacity:
            return True
        size = (claim.spec.resources.requests or {}).get("storage")
        if size is None:
            return True
        for entry in ctx.informers.capacities:
            room = entry.maximum_volume_size if entry.maximum_volume_size is not None else entry.capacity
            if entry.storage_class_name != storage_class.name or room is None or entry.node_topology is None:
                continue
            try:
                reachable = compile_selector(entry.node_topology).matches(node.labels)
            except SelectorError:
                continue
            if reachable and room.value() >= size.value():
                return True
        return False
