"""Claims get their volumes: the volume controller, and provisioners.

Upstream: ``pkg/controller/volume/persistentvolume`` (``FindMatchingVolume``: the smallest that is large enough), the
external provisioner, ``pkg/controller/volume/ephemeral``, and the admission plugin ``DefaultStorageClass``.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kscale.effects import VirtualTime
from kscale.objects.base import ResourceList
from kscale.objects.core import (
    Node,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectReference,
    Pod,
)
from kscale.objects.meta import KubeObject, ObjectMeta, OwnerReference, object_key
from kscale.objects.node_selectors import compile_node_selector
from kscale.objects.owners import controller_of
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import compile_selector
from kscale.objects.storage import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    StorageClass,
    VolumeNodeAffinity,
    default_storage_class,
)
from kscale.objects.volumes import Volume
from kscale.world.simulated.api_objects import ApiObjects, one_by_one
from kscale.world.simulated.turns import CONTROLLERS, Turn

__all__ = ["VolumeBinder"]

_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_AVAILABLE: Final = "Available"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_WAITS: Final = "WaitForFirstConsumer"
_ZONE: Final = "topology.kubernetes.io/zone"
_FILESYSTEM: Final = "Filesystem"
_NONE: Final = Quantity("0")


class VolumeBinder:
    """Binds a claim at once, or, where its class waits for the first consumer, when a pod that has it is on a node.

    A volume that is there is taken before one is made. One that is made for a node can be reached from the zone of the
    node only. Volumes stay when their claims go.
    """

    def __init__(self, api: ApiObjects, time: VirtualTime) -> None:
        self._api = api
        self._unbound: dict[str, str] = {}
        """By claim: the node of its pod; empty: it has none yet."""
        self._new_volumes: dict[str, None] = {}
        self._begun: dict[str, Pod] = {}
        self._ended: dict[str, Pod] = {}
        self._turn = Turn(time, self._take, CONTROLLERS)
        for kind, call in (
            ("PersistentVolumeClaim", self._claim),
            ("Pod", self._pod),
            ("PersistentVolume", self._volume),
            ("StorageClass", self._other),
        ):
            listener = one_by_one(call)
            listener(api.present(kind))
            api.listen(kind, listener)

    @property
    def default_class(self) -> str | None:
        """The class of claims that name none."""
        return default_storage_class(self._api.of("StorageClass").values())

    # -- what happens ------------------------------------------------------------------------------------------------

    def _claim(self, old: KubeObject | None, new: KubeObject | None) -> None:
        if isinstance(new, PersistentVolumeClaim) and not _is_bound(new):
            self._unbound.setdefault(new.key, "")
            self._turn.ask()
        else:
            self._unbound.pop((new or old).key, None)  # type: ignore[union-attr]  # one of the two is there

    def _pod(self, old: KubeObject | None, new: KubeObject | None) -> None:
        pod = old if new is None else new
        assert isinstance(pod, Pod)
        if not pod.spec.volumes:
            return
        if any(each.ephemeral for each in pod.spec.volumes) and (old is None or new is None):
            (self._ended if new is None else self._begun)[pod.key] = pod
            self._turn.ask()
        if isinstance(new, Pod) and new.spec.node_name:
            for volume in new.spec.volumes:
                key = _claim_key(new, volume)
                if self._unbound.get(key) == "":
                    self._unbound[key] = new.spec.node_name
                    self._turn.ask()

    def _volume(self, old: KubeObject | None, new: KubeObject | None) -> None:
        if isinstance(new, PersistentVolume) and not new.status.phase:
            self._new_volumes[new.key] = None
            self._turn.ask()
        self._other(old, new)

    def _other(self, old: KubeObject | None, new: KubeObject | None) -> None:
        del old, new
        if self._unbound:
            self._turn.ask()

    # -- what follows ------------------------------------------------------------------------------------------------

    def _take(self) -> None:
        new_volumes, self._new_volumes = self._new_volumes, {}
        for key in new_volumes:
            volume = self._api.find("PersistentVolume", key)
            if volume is not None and not volume.status.phase:
                self._api.put(replace(volume, status=replace(volume.status, phase=_AVAILABLE)))
        begun, self._begun = self._begun, {}
        ended, self._ended = self._ended, {}
        for pod in ended.values():
            for claim in _ephemeral_claims(pod):
                held = self._api.find("PersistentVolumeClaim", claim.key)
                if held is not None and controller_of(held.metadata) == controller_of(claim.metadata):
                    self._api.remove(held)
        for pod in begun.values():
            for claim in _ephemeral_claims(pod):
                if self._api.find("PersistentVolumeClaim", claim.key) is None:
                    self._api.create(claim)
        for key, node in list(self._unbound.items()):
            self._bind(self._api.find("PersistentVolumeClaim", key), node)

    def _bind(self, claim: PersistentVolumeClaim, node_name: str) -> None:
        if claim.spec.storage_class_name is None and (default := self.default_class) is not None:
            claim = self._api.put(replace(claim, spec=replace(claim.spec, storage_class_name=default)))
        of_class: StorageClass | None = self._api.find("StorageClass", claim.spec.storage_class_name or "")
        waits = of_class is not None and of_class.volume_binding_mode == _WAITS
        node: Node | None = self._api.find("Node", node_name) if node_name else None
        if waits and node is None and not claim.spec.volume_name:
            return
        volume = self._match(claim, node if waits else None)
        if volume is None and claim.spec.volume_name:
            return  # it waits for that one
        if volume is None and of_class is not None and of_class.provisioner != _NO_PROVISIONER:
            volume = self._api.create(_provisioned(claim, node if waits else None))
        if volume is not None:
            self._put_together(claim, volume)

    def _match(self, claim: PersistentVolumeClaim, node: Node | None) -> PersistentVolume | None:
        """The smallest volume that will do, the first of equals."""
        found = [each for each in self._api.of("PersistentVolume").values() if _will_do(each, claim, node)]
        return min(found, key=lambda each: _storage(each.spec.capacity), default=None)

    def _put_together(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        of = claim.metadata
        holder = ObjectReference(kind=claim.kind, namespace=of.namespace, name=of.name, uid=of.uid, api_version="v1")
        held = replace(volume.spec, claim_ref=holder)
        self._api.put(replace(volume, spec=held, status=replace(volume.status, phase="Bound")))
        annotations = {**(of.annotations or {}), _COMPLETED: "yes"}
        status = PersistentVolumeClaimStatus(
            phase="Bound", access_modes=volume.spec.access_modes, capacity=volume.spec.capacity
        )
        spec = replace(claim.spec, volume_name=volume.name)
        self._api.put(replace(claim, metadata=replace(of, annotations=annotations), spec=spec, status=status))


def _is_bound(claim: PersistentVolumeClaim) -> bool:
    return bool(claim.spec.volume_name) and _COMPLETED in (claim.metadata.annotations or {})


def _claim_key(pod: Pod, volume: Volume) -> str:
    """The claim behind a volume; empty: none."""
    if volume.persistent_volume_claim is not None:
        return object_key(pod.namespace, volume.persistent_volume_claim.claim_name)
    return object_key(pod.namespace, f"{pod.name}-{volume.name}") if volume.ephemeral is not None else ""


def _ephemeral_claims(pod: Pod) -> list[PersistentVolumeClaim]:
    """The claims that a pod has for as long as it is there."""
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.metadata.uid, controller=True)
    return [
        PersistentVolumeClaim(
            api_version="v1",
            kind="PersistentVolumeClaim",
            metadata=ObjectMeta(name=f"{pod.name}-{each.name}", namespace=pod.namespace, owner_references=[owner]),
            spec=each.ephemeral.volume_claim_template.spec,
            status=PersistentVolumeClaimStatus(phase="Pending"),
        )
        for each in pod.spec.volumes
        if each.ephemeral is not None and each.ephemeral.volume_claim_template is not None
    ]


def _storage(amounts: ResourceList | None) -> Quantity:
    return (amounts or {}).get("storage", _NONE)


def _will_do(volume: PersistentVolume, claim: PersistentVolumeClaim, node: Node | None) -> bool:
    """Whether a claim may have a volume (of a pod on ``node``)."""
    holder, wanted, offered = volume.spec.claim_ref, claim.spec, volume.spec
    if wanted.volume_name and wanted.volume_name != volume.name:
        return False
    if holder is not None:
        return (holder.namespace, holder.name) == (claim.namespace, claim.name) and holder.uid in (
            "",
            claim.metadata.uid,
        )
    reach = offered.node_affinity.required if offered.node_affinity else None
    return (
        volume.status.phase == _AVAILABLE
        and offered.storage_class_name == (wanted.storage_class_name or "")
        and (offered.volume_mode or _FILESYSTEM) == (wanted.volume_mode or _FILESYSTEM)
        and set(wanted.access_modes) <= set(offered.access_modes)
        and (wanted.selector is None or compile_selector(wanted.selector).matches(volume.metadata.labels))
        and _storage(offered.capacity) >= _storage(wanted.resources.requests)
        and (node is None or reach is None or compile_node_selector(reach).matches(node.metadata.labels or {}, ""))
    )


def _provisioned(claim: PersistentVolumeClaim, node: Node | None) -> PersistentVolume:
    """A volume for a claim, near the node of its pod."""
    zone = (node.metadata.labels or {}).get(_ZONE) if node is not None else None
    near = None
    if zone is not None:
        term = NodeSelectorTerm(match_expressions=[NodeSelectorRequirement(key=_ZONE, operator="In", values=[zone])])
        near = VolumeNodeAffinity(required=NodeSelector(node_selector_terms=[term]))
    return PersistentVolume(
        api_version="v1",
        kind="PersistentVolume",
        metadata=ObjectMeta(name=f"pvc-{claim.metadata.uid}"),
        spec=PersistentVolumeSpec(
            capacity=claim.spec.resources.requests,
            access_modes=claim.spec.access_modes,
            storage_class_name=claim.spec.storage_class_name or "",
            volume_mode=claim.spec.volume_mode,
            node_affinity=near,
        ),
        status=PersistentVolumeStatus(phase=_AVAILABLE),
    )
