"""VolumeBinding and VolumeZone: bound volumes are reachable, also from the node's zone and region, and unbound claims
can be bound or provisioned (``plugins/volumebinding``, ``plugins/volumezone``).

Cluster Autoscaler does not assume bindings, so the verdict is constant within a simulation.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec

from kscale.objects.api.core import NodeSelector
from kscale.objects.api.storage import PersistentVolume, PersistentVolumeClaim
from kscale.objects.decode import enc_hook
from kscale.objects.workloads import is_bound
from kscale.scheduling.plugins.base import NOTHING, ExplainContext, NodeFilter, Numbers, Plugin, PreFilter
from kscale.scheduling.profile import CSI, Context, NodeFacts, selector_columns
from kscale.scheduling.status import Status, error, unresolvable
from kscale.scheduling.volumes import (
    TranslationError,
    Volumes,
    WaitingClaims,
    affinity_of,
    claim_names,
    class_name,
    get_migrated_plugins,
    in_tree_index,
    not_found,
    not_owned,
    reachable_from,
    reaches,
)
from kscale.snapshot.classes.interner import PodClass

__all__ = ["VolumeBinding", "VolumeZone"]

_NO_MATCH = "node(s) didn't match PersistentVolume's node affinity"
_NO_SUCH_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"

_encode = msgspec.json.Encoder(enc_hook=enc_hook, order="sorted").encode


class _BoundVolume(msgspec.Struct, frozen=True, eq=False):
    """A volume that a claim is bound to. ``required``: its node affinity. On nodes whose CSINode says that the in-tree
    ``plugin`` was migrated, ``translated`` replaces it, or the error ``instead``.
    """

    required: NodeSelector | None
    plugin: int = -1
    translated: NodeSelector | None = None
    instead: Status | None = None

    @classmethod
    def of(cls, volume: PersistentVolume) -> _BoundVolume:
        """Build the record of a volume; ``instead`` is the error if it cannot be translated to CSI."""
        plugin = in_tree_index(volume.spec)
        if plugin < 0:
            return cls(affinity_of(volume))
        try:
            return cls(affinity_of(volume), plugin, reachable_from(volume))
        except TranslationError as problem:
            return cls(affinity_of(volume), plugin, instead=error(f"could not translate pv: {problem}"))

    @property
    def columns(self) -> frozenset[str]:
        """Return the node columns that ``check`` reads."""
        own = frozenset({CSI}) if self.plugin >= 0 else frozenset()
        return own | selector_columns(self.required) | selector_columns(self.translated)

    @property
    def key(self) -> Hashable:
        """Return a key; volumes with equal keys are reachable from the same nodes."""
        return _encode(self.required), self.plugin, _encode(self.translated), self.instead

    def check(self, node: NodeFacts) -> Status | str | None:
        """Return None if the volume is reachable from the node, otherwise the reason or a translation error."""
        if self.plugin >= 0 and get_migrated_plugins(node.csi_node) >> self.plugin & 1:
            if self.instead is not None:
                return self.instead
            return None if reaches(self.translated, node) else _NO_MATCH
        return None if reaches(self.required, node) else _NO_MATCH


class VolumeBinding(Plugin):
    """All claims of the pod are usable from the node."""

    name = "VolumeBinding"

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        """Return a failure if a claim is missing or unusable, or is unbound and binds without waiting for a pod.

        An unbound claim waits only if its storage class has the binding mode ``WaitForFirstConsumer`` and the claim
        names no volume. A storage class without binding mode is a failure, too.
        """
        if not pod.has_claims:
            return NOTHING
        volumes = Volumes.of(ctx)
        immediate = False
        for name, ephemeral in claim_names(pod):
            problem = _explain_unusable(pod, name, volumes.claim(pod.namespace, name), ephemeral)
            if problem:
                return PreFilter(failure=unresolvable(problem))
        for claim in volumes.claims_of(pod):
            if is_bound(claim):
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
        """Return whether the pod has no claims."""
        return not pod.has_claims

    def get_dependencies(self, pod: PodClass, ctx: Context) -> tuple[Any, ...]:
        """Return the pod's claims, volumes and storage classes, and the index of all volumes if a claim is not bound.

        Empty without claims.
        """
        if not pod.has_claims:
            return ()
        volumes = Volumes.of(ctx)
        objects = volumes.get_dependencies(pod)
        # What an unbound claim can get depends on all volumes, classes and capacities.
        return objects if all(map(is_bound, volumes.claims_of(pod))) else (*objects, volumes)

    def get_shared_dependencies(self, ctx: Context) -> tuple[Any, ...]:
        """Return the index of all claims, volumes and storage classes."""
        return (Volumes.of(ctx),)

    def get_node_filter(self, pod: PodClass, ctx: Context) -> NodeFilter | None:
        """Return the check that bound volumes are reachable and other claims can be bound; None without claims."""
        if not pod.has_claims:
            return None
        volumes = Volumes.of(ctx)
        claims = volumes.claims_of(pod)
        bound = [volumes.volume(claim.spec.volume_name) for claim in claims if is_bound(claim)]
        bound_volumes = [None if volume is None else _BoundVolume.of(volume) for volume in bound]
        waiting = WaitingClaims.of(pod, volumes)
        columns: set[str] = set()
        key: list[Hashable] = []
        for volume in bound_volumes:
            if volume is not None:
                columns |= volume.columns
            key.append(None if volume is None else volume.key)
        if waiting:
            columns |= waiting.columns
            key += [pod.index, volumes]  # what claims can get depends on too much for a key

        def check(node: NodeFacts) -> Status | None:
            reasons = []
            bound = _check_bound(bound_volumes, node)
            if isinstance(bound, Status):
                return bound
            if bound == _NO_MATCH:
                reasons.append(bound)
            provided = waiting.on(node)
            if isinstance(provided, str):
                reasons.append(provided)
            if bound == _NO_SUCH_VOLUME:
                reasons.append(bound)
            return unresolvable(*reasons) if reasons else None

        return NodeFilter(tuple(key), frozenset(columns), check)

    def explain(
        self, pod: PodClass, class_number: int, node: int, context: ExplainContext
    ) -> tuple[Status | None, Numbers]:
        """Return (status, values about the first unusable bound claim); (None, ()) if the pod fits."""
        status, _ = super().explain(pod, class_number, node, context)
        return status, _get_unusable_claim(pod, context.facts(node), context.ctx) if status is not None else ()


class _ReachingNodes(dict[str, int]):
    """Volume -> number of nodes of the snapshot that reach it; cached with a context."""


def _get_unusable_claim(pod: PodClass, node: NodeFacts, ctx: Context) -> Numbers:
    """Return the first bound claim that the node cannot use: ``claim`` and ``volume``.

    If the volume exists, also ``wanted`` (its node affinity as text) and ``reachedFrom`` (the number of existing nodes
    that it selects). Returns () if there is no such claim.
    """
    volumes = Volumes.of(ctx)
    for claim in volumes.claims_of(pod):
        if not is_bound(claim):
            continue
        name = claim.spec.volume_name
        volume = volumes.volume(name)
        numbers = {"claim": f"{claim.namespace}/{claim.name}", "volume": name}
        if volume is None:
            return (numbers,)
        bound_volume = _BoundVolume.of(volume)
        if bound_volume.check(node) == _NO_MATCH:
            reached = ctx.memo.get(_ReachingNodes, _ReachingNodes)
            if name not in reached:
                nodes = map(ctx.node, range(len(ctx.snapshot.nodes)))
                reached[name] = sum(bound_volume.check(each) is None for each in nodes)
            return (numbers | {"wanted": selector_text(bound_volume.required), "reachedFrom": reached[name]},)
    return ()


def selector_text(selector: NodeSelector | None) -> str:
    """Format a node selector as text: ``zone in [a, b] and arch in [amd64]``, terms joined by ``or``."""
    terms = []
    for term in selector.node_selector_terms if selector is not None else ():
        parts = []
        for each in (*term.match_expressions, *term.match_fields):
            values = f" [{', '.join(each.values)}]" if each.values else ""
            parts.append(f"{each.key} {_OPERATORS.get(each.operator, each.operator)}{values}")
        terms.append(" and ".join(parts))
    return " or ".join(terms)


_OPERATORS = {"In": "in", "NotIn": "not in", "Exists": "exists", "DoesNotExist": "does not exist"}


def _explain_unusable(pod: PodClass, name: str, claim: PersistentVolumeClaim | None, ephemeral: bool) -> str | None:
    """Return why the claim ``name`` (None: missing) cannot be used; None if it can.

    ``ephemeral``: whether it is the claim of a generic ephemeral volume.
    """
    if claim is None:
        if ephemeral:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        return not_found("persistentvolumeclaim", name)
    if claim.status.phase == "Lost":
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if claim.metadata.deletion_timestamp:
        return f'persistentvolumeclaim "{name}" is being deleted'
    return not_owned(pod, claim) if ephemeral else None


def _check_bound(bound_volumes: list[_BoundVolume | None], node: NodeFacts) -> Status | str | None:
    """Return the reason or status of the first bound volume that the node cannot use; None if it can use all.

    None in ``bound_volumes``: the volume does not exist.
    """
    for volume in bound_volumes:
        problem = _NO_SUCH_VOLUME if volume is None else volume.check(node)
        if problem is not None:
            return problem
    return None


_BETA = "failure-domain.beta.kubernetes.io/"
_STABLE = "topology.kubernetes.io/"
_KEYS = (_BETA + "zone", _BETA + "region", _STABLE + "zone", _STABLE + "region")

_ZoneRequirements = tuple[tuple[str, frozenset[str]], ...]


class VolumeZone(Plugin):
    """The node's zone and region labels match the volume's. A stable key of the node may match a beta key of the
    volume, but not the reverse. A node without any such label passes.
    """

    name = "VolumeZone"

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        """Return a failure if a claim is missing, if its volume is, or if it is unbound and does not wait for a pod.

        An unbound claim waits if it has a storage class with the binding mode ``WaitForFirstConsumer``. Claims of
        generic ephemeral volumes are not considered.
        """
        requirements = _get_zone_requirements(pod, ctx)
        return PreFilter(failure=requirements) if isinstance(requirements, Status) else NOTHING

    def skips(self, pod: PodClass, ctx: Context) -> bool:
        """Return whether no bound volume of the pod has zone or region labels; False if the PreFilter fails."""
        return not _get_zone_requirements(pod, ctx)

    def get_dependencies(self, pod: PodClass, ctx: Context) -> tuple[Any, ...]:
        """Return the pod's claims, volumes and storage classes; empty without claims."""
        return Volumes.of(ctx).get_dependencies(pod) if pod.has_claims else ()

    def get_shared_dependencies(self, ctx: Context) -> tuple[Any, ...]:
        """Return the index of all claims, volumes and storage classes."""
        return (Volumes.of(ctx),)

    def get_node_filter(self, pod: PodClass, ctx: Context) -> NodeFilter | None:
        """Return the check that the node is in the zones and regions of the pod's volumes.

        None if the volumes have none, or if the PreFilter fails.
        """
        requirements = _get_zone_requirements(pod, ctx)
        if isinstance(requirements, Status) or not requirements:
            return None

        def check(node: NodeFacts) -> Status | None:
            if not any(key in node.labels for key in _KEYS):
                return None
            for key, values in requirements:
                have = node.labels.get(key)
                if have is None and key.startswith(_BETA):
                    have = node.labels.get(_STABLE + key.removeprefix(_BETA))
                if have not in values:
                    return unresolvable("node(s) had no available volume zone")
            return None

        return NodeFilter(requirements, frozenset(_KEYS), check)


def _get_zone_requirements(pod: PodClass, ctx: Context) -> _ZoneRequirements | Status:
    """Return (label, allowed values) of the pod's volumes, or the status if the PreFilter fails.

    Claims of generic ephemeral volumes are not considered, nor are labels whose value has an empty part.
    """
    requirements: list[tuple[str, frozenset[str]]] = []
    if not pod.has_claims:
        return ()
    volumes = Volumes.of(ctx)
    for name, ephemeral in claim_names(pod):
        if ephemeral:
            continue
        if not name:
            return unresolvable("PersistentVolumeClaim had no name")
        claim = volumes.claim(pod.namespace, name)
        if claim is None:
            return unresolvable(not_found("persistentvolumeclaim", name))
        if not claim.spec.volume_name:
            problem = _explain_unbound(claim, volumes)
            if problem:
                return unresolvable(problem)
            continue
        volume = volumes.volume(claim.spec.volume_name)
        if volume is None:
            return unresolvable(not_found("persistentvolume", claim.spec.volume_name))
        labels = volume.metadata.labels or {}
        for key in _KEYS:
            values = labels[key].split("__") if key in labels else [""]
            if all(values):  # a value with an empty element is invalid: upstream ignores the key
                requirements.append((key, frozenset(values)))
    return tuple(requirements)


def _explain_unbound(claim: PersistentVolumeClaim, volumes: Volumes) -> str | None:
    """Return why an unbound claim fails the PreFilter of VolumeZone; None if it passes."""
    name = class_name(claim)
    if not name:
        return "PersistentVolumeClaim had no pv name and storageClass name"
    storage_class = volumes.storage_class(name)
    if storage_class is None:
        return not_found("storageclass.storage.k8s.io", name)
    if not storage_class.volume_binding_mode:
        return f'VolumeBindingMode not set for StorageClass "{name}"'
    return None if storage_class.volume_binding_mode == "WaitForFirstConsumer" else "PersistentVolume had no name"
