"""VolumeBinding: bound volumes reachable, unbound ones bindable or provisionable (``plugins/volumebinding``).

Cluster Autoscaler does not assume bindings, so the verdict is constant within a simulation.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import msgspec

from kscale.objects.base import enc_hook
from kscale.objects.core import NodeSelector
from kscale.objects.node_selectors import compile_node_selector
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import SelectorError, compile_selector
from kscale.objects.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from kscale.scheduling.context import Context
from kscale.scheduling.facts import CSI, NAME, NodeFacts
from kscale.scheduling.in_tree_volumes import TranslationError, is_in_tree, migrated, reachable_from
from kscale.scheduling.plugins.base import NOTHING, Judge, Plugin, PreFilter
from kscale.scheduling.plugins.node_affinity import selector_columns
from kscale.scheduling.status import Status, error, unresolvable
from kscale.scheduling.volumes import SELECTED_NODE, Volumes, claim_names, class_name, not_found, not_owned
from kscale.snapshot.interner import PodClass

__all__ = ["VolumeBinding"]

_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_ZERO = Quantity("0")

_NO_MATCH = "node(s) didn't match PersistentVolume's node affinity"
_NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
_NO_ROOM = "node(s) did not have enough free storage"
_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"

_encode = msgspec.json.Encoder(enc_hook=enc_hook, order="sorted").encode


def _bound(claim: PersistentVolumeClaim) -> bool:
    return bool(claim.spec.volume_name) and _BIND_COMPLETED in (claim.metadata.annotations or {})


def _request(claim: PersistentVolumeClaim) -> Quantity:
    return (claim.spec.resources.requests or {}).get("storage", _ZERO)


def _capacity(volume: PersistentVolume) -> Quantity:
    return (volume.spec.capacity or {}).get("storage", _ZERO)


def _affinity(volume: PersistentVolume) -> NodeSelector | None:
    return volume.spec.node_affinity.required if volume.spec.node_affinity else None


def _reaches(required: NodeSelector | None, node: NodeFacts) -> bool:
    # Upstream asks a node made of nothing but these labels: its name is empty.
    return required is None or compile_node_selector(required).matches(node.labels, "")


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """A volume that a claim is bound to. ``required``: its node affinity; on nodes whose CSINode says that the in-tree
    ``plugin`` was migrated ``translated``, or the error that there is ``instead``."""

    required: NodeSelector | None
    plugin: int = -1
    translated: NodeSelector | None = None
    instead: Status | None = None

    @classmethod
    def of(cls, volume: PersistentVolume) -> _Held:
        plugin = is_in_tree(volume.spec)
        if plugin < 0:
            return cls(_affinity(volume))
        try:
            return cls(_affinity(volume), plugin, reachable_from(volume))
        except TranslationError as problem:
            return cls(_affinity(volume), plugin, instead=error(f"could not translate pv: {problem}"))

    @property
    def columns(self) -> frozenset[str]:
        own = frozenset({CSI}) if self.plugin >= 0 else frozenset()
        return own | selector_columns(self.required) | selector_columns(self.translated)

    @property
    def key(self) -> Hashable:
        return _encode(self.required), self.plugin, _encode(self.translated), self.instead

    def check(self, node: NodeFacts) -> Status | str | None:
        if self.plugin >= 0 and migrated(node.csi_node) >> self.plugin & 1:
            if self.instead is not None:
                return self.instead
            return None if _reaches(self.translated, node) else _NO_MATCH
        return None if _reaches(self.required, node) else _NO_MATCH


class VolumeBinding(Plugin):
    """All claims of the pod are usable from the node."""

    name = "VolumeBinding"

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        if not pod.has_claims:
            return NOTHING
        volumes = Volumes.of(ctx)
        immediate = False
        for name, ephemeral in claim_names(pod):
            problem = _unusable(pod, name, volumes.claim(pod.namespace, name), ephemeral)
            if problem:
                return PreFilter(failure=unresolvable(problem))
        for claim in volumes.claims_of(pod):
            if _bound(claim):
                continue
            storage_class = volumes.storage_class(class_name(claim))
            if storage_class is not None and not storage_class.volume_binding_mode:
                return PreFilter(failure=error(f'VolumeBindingMode not set for StorageClass "{class_name(claim)}"'))
            waits = storage_class is not None and storage_class.volume_binding_mode == "WaitForFirstConsumer"
            immediate = immediate or not waits or bool(claim.spec.volume_name)
        if immediate:
            return PreFilter(failure=unresolvable("pod has unbound immediate PersistentVolumeClaims"))
        return NOTHING

    def skips(self, pod: PodClass, ctx: Context) -> bool:
        return not pod.has_claims

    def grounds(self, pod: PodClass, ctx: Context) -> tuple[Any, ...]:
        if not pod.has_claims:
            return ()
        volumes = Volumes.of(ctx)
        found = volumes.grounds(pod)
        # What a claim that waits may find depends on all the volumes, classes and capacities there are.
        return found if all(map(_bound, volumes.claims_of(pod))) else (*found, volumes)

    def backdrop(self, ctx: Context) -> tuple[Any, ...]:
        return (Volumes.of(ctx),)

    def judge(self, pod: PodClass, ctx: Context) -> Judge | None:
        if not pod.has_claims:
            return None
        volumes = Volumes.of(ctx)
        claims = volumes.claims_of(pod)
        bound = [volumes.volume(claim.spec.volume_name) for claim in claims if _bound(claim)]
        held = [None if volume is None else _Held.of(volume) for volume in bound]
        waiting = [claim for claim in claims if not _bound(claim)]
        columns: set[str] = set()
        key: list[Hashable] = []
        for volume in held:
            if volume is not None:
                columns |= volume.columns
            key.append(None if volume is None else volume.key)
        if waiting:
            columns |= _columns_of_waiting(waiting, volumes)
            key += [pod.index, volumes]  # what claims may find depends on too much to be spelled out

        def check(node: NodeFacts) -> Status | None:
            reasons = []
            bound = _check_bound(held, node)
            if isinstance(bound, Status):
                return bound
            if bound == _NO_MATCH:
                reasons.append(bound)
            provided = _check_waiting(waiting, node, volumes) if waiting else None
            if provided:
                reasons.append(provided)
            if bound == _GONE:
                reasons.append(bound)
            return unresolvable(*reasons) if reasons else None

        return Judge(tuple(key), frozenset(columns), check)


def _unusable(pod: PodClass, name: str, claim: PersistentVolumeClaim | None, ephemeral: bool) -> str | None:
    if claim is None:
        if ephemeral:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        return not_found("persistentvolumeclaim", name)
    if claim.status.phase == "Lost":
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if claim.metadata.deletion_timestamp:
        return f'persistentvolumeclaim "{name}" is being deleted'
    return not_owned(pod, claim) if ephemeral else None


def _columns_of_waiting(claims: list[PersistentVolumeClaim], volumes: Volumes) -> set[str]:
    columns: set[str] = set()
    for claim in claims:
        if SELECTED_NODE in (claim.metadata.annotations or {}):
            columns.add(NAME)
        for volume in volumes.candidates(claim):
            if volume.spec.node_affinity:
                columns |= selector_columns(volume.spec.node_affinity.required)
        storage_class = volumes.storage_class(class_name(claim))
        for term in storage_class.allowed_topologies if storage_class else ():
            columns.update(requirement.key for requirement in term.match_label_expressions)
        columns |= volumes.capacity_columns
    return columns


def _check_bound(held: list[_Held | None], node: NodeFacts) -> Status | str | None:
    for volume in held:
        problem = _GONE if volume is None else volume.check(node)
        if problem is not None:
            return problem
    return None


def _check_waiting(claims: list[PersistentVolumeClaim], node: NodeFacts, volumes: Volumes) -> str | None:
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
        volume = _best_volume(claim, node, volumes, chosen)
        if volume is None:
            provision.append(claim)
        else:
            chosen.add(volume.name)
    for claim in provision:
        storage_class = volumes.storage_class(class_name(claim))
        if storage_class is None or storage_class.provisioner in ("", _NO_PROVISIONER):
            return _NO_VOLUME
        if not _allowed(storage_class, node):
            return _NO_VOLUME
        if not _has_capacity(claim, storage_class, node, volumes):
            return _NO_ROOM
    return None


def _best_volume(
    claim: PersistentVolumeClaim, node: NodeFacts, volumes: Volumes, chosen: set[str]
) -> PersistentVolume | None:
    """A volume that names the claim, else the smallest that is free, large enough and reachable."""
    try:
        selector = compile_selector(claim.spec.selector) if claim.spec.selector is not None else None
    except SelectorError:
        return None
    best: PersistentVolume | None = None
    for volume in volumes.candidates(claim):
        spec = volume.spec
        if volume.name in chosen or _capacity(volume) < _request(claim) or volume.metadata.deletion_timestamp:
            continue
        if (spec.volume_mode or "Filesystem") != (claim.spec.volume_mode or "Filesystem"):
            continue
        if (spec.volume_attributes_class_name or "") != (claim.spec.volume_attributes_class_name or ""):
            continue
        if spec.claim_ref is not None:
            if spec.claim_ref.uid in ("", claim.metadata.uid):
                return volume if _reaches(_affinity(volume), node) else None
            continue
        if not _reaches(_affinity(volume), node):
            continue
        if selector is not None and not selector.matches(volume.metadata.labels):
            continue
        if not set(claim.spec.access_modes) <= set(spec.access_modes):
            continue
        if best is None or _capacity(volume) < _capacity(best):
            best = volume
    return best


def _allowed(storage_class: StorageClass, node: NodeFacts) -> bool:
    if not storage_class.allowed_topologies:
        return True
    return any(
        term.match_label_expressions
        and all(node.labels.get(each.key) in each.values for each in term.match_label_expressions)
        for term in storage_class.allowed_topologies
    )


def _has_capacity(claim: PersistentVolumeClaim, storage_class: StorageClass, node: NodeFacts, volumes: Volumes) -> bool:
    driver = volumes.driver(storage_class.provisioner)
    if driver is None or not driver.spec.storage_capacity:
        return True
    size = (claim.spec.resources.requests or {}).get("storage")
    if size is None:
        return True
    for entry in volumes.capacities:
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
