"""VolumeZone: bound volumes are in the node's zone and region (``plugins/volumezone``)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from kscale.scheduling.plugins.base import Plugin, PreFilter, Status, unresolvable
from kscale.scheduling.volumes import claim_names, claim_of, class_name, not_found

if TYPE_CHECKING:
    from kscale.objects.storage import PersistentVolumeClaim
    from kscale.scheduling.context import Context, NodeFacts
    from kscale.snapshot.interner import PodClass

__all__ = ["VolumeZone"]

_BETA = "failure-domain.beta.kubernetes.io/"
_STABLE = "topology.kubernetes.io/"
_KEYS = (_BETA + "zone", _BETA + "region", _STABLE + "zone", _STABLE + "region")

_Wanted = tuple[tuple[str, frozenset[str]], ...]


class VolumeZone(Plugin):
    """Labels of the volume against labels of the node; a beta key may be met by the stable one, not the reverse."""

    name = "VolumeZone"
    ordinal = 10

    def _wanted(self, pod: PodClass, ctx: Context) -> _Wanted | Status:
        wanted = []
        for name, ephemeral in claim_names(pod):
            if ephemeral:
                continue
            if not name:
                return unresolvable("PersistentVolumeClaim had no name")
            claim = claim_of(pod, name, ctx)
            if claim is None:
                return unresolvable(not_found("persistentvolumeclaim", name))
            if not claim.spec.volume_name:
                problem = self._unbound(claim, ctx)
                if problem:
                    return unresolvable(problem)
                continue
            volume = ctx.informers.volumes.get(claim.spec.volume_name)
            if volume is None:
                return unresolvable(not_found("persistentvolume", claim.spec.volume_name))
            labels = volume.metadata.labels or {}
            for key in _KEYS:
                values = labels[key].split("__") if key in labels else [""]
                if all(values):  # a value with an empty element does not parse: upstream ignores the key
                    wanted.append((key, frozenset(values)))
        return tuple(wanted)

    def _unbound(self, claim: PersistentVolumeClaim, ctx: Context) -> str | None:
        name = class_name(claim)
        if not name:
            return "PersistentVolumeClaim had no pv name and storageClass name"
        storage_class = ctx.informers.storage_classes.get(name)
        if storage_class is None:
            return not_found("storageclass.storage.k8s.io", name)
        if not storage_class.volume_binding_mode:
            return f'VolumeBindingMode not set for StorageClass "{name}"'
        return None if storage_class.volume_binding_mode == "WaitForFirstConsumer" else "PersistentVolume had no name"

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        wanted = self._wanted(pod, ctx)
        if isinstance(wanted, Status):
            return PreFilter(failure=wanted)
        return PreFilter(skip=not wanted)

    def pod_key(self, pod: PodClass, ctx: Context) -> Hashable | None:
        wanted = self._wanted(pod, ctx) if pod.has_claims else ()
        return wanted if wanted and not isinstance(wanted, Status) else None

    def columns(self, pod: PodClass, ctx: Context) -> frozenset[str]:
        return frozenset(_KEYS)

    def check(self, pod: PodClass, node: NodeFacts, ctx: Context) -> Status | None:
        wanted = self._wanted(pod, ctx)
        if isinstance(wanted, Status) or not any(key in node.labels for key in _KEYS):
            return None
        for key, values in wanted:
            have = node.labels.get(key)
            if have is None and key.startswith(_BETA):
                have = node.labels.get(_STABLE + key.removeprefix(_BETA))
            if have not in values:
                return unresolvable("node(s) had no available volume zone")
        return None
