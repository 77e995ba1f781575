"""VolumeZone: bound volumes are in the node's zone and region (``plugins/volumezone``)."""

from __future__ import annotations

from typing import Any

from kscale.objects.api.storage import PersistentVolumeClaim
from kscale.scheduling.plugins.base import NOTHING, Judge, Plugin, PreFilter
from kscale.scheduling.profile import Context, NodeFacts
from kscale.scheduling.status import Status, unresolvable
from kscale.scheduling.volumes.lookup import Volumes, claim_names, class_name, not_found
from kscale.snapshot.classes.interner import PodClass

__all__ = ["VolumeZone"]

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
        requirements = _get_zone_requirements(pod, ctx)
        return PreFilter(failure=requirements) if isinstance(requirements, Status) else NOTHING

    def skips(self, pod: PodClass, ctx: Context) -> bool:
        return not _get_zone_requirements(pod, ctx)

    def get_dependencies(self, pod: PodClass, ctx: Context) -> tuple[Any, ...]:
        return Volumes.of(ctx).get_dependencies(pod) if pod.has_claims else ()

    def get_shared_dependencies(self, ctx: Context) -> tuple[Any, ...]:
        return (Volumes.of(ctx),)

    def judge(self, pod: PodClass, ctx: Context) -> Judge | None:
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

        return Judge(requirements, frozenset(_KEYS), check)


def _get_zone_requirements(pod: PodClass, ctx: Context) -> _ZoneRequirements | Status:
    """Return (label, allowed values) of the pod's volumes, or the status if the PreFilter fails."""
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
    """Return why an unbound claim fails the PreFilter, or None."""
    name = class_name(claim)
    if not name:
        return "PersistentVolumeClaim had no pv name and storageClass name"
    storage_class = volumes.storage_class(name)
    if storage_class is None:
        return not_found("storageclass.storage.k8s.io", name)
    if not storage_class.volume_binding_mode:
        return f'VolumeBindingMode not set for StorageClass "{name}"'
    return None if storage_class.volume_binding_mode == "WaitForFirstConsumer" else "PersistentVolume had no name"
