"""Claims get their volumes: the volume controller, and provisioners.

Upstream: ``pkg/controller/volume/persistentvolume`` (``FindMatchingVolume``: the smallest that is large enough), the
external provisioner, ``pkg/controller/volume/ephemeral``, and the admission plugin ``DefaultStorageClass``.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kscale.effects import VirtualTime
from kscale.objects.core import (
    Node,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
)
from kscale.objects.meta import KubeObject, ObjectMeta, object_key
from kscale.objects.owners import controller_of
from kscale.objects.pod_claims import ephemeral_claims
from kscale.objects.storage import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    StorageClass,
    VolumeNodeAffinity,
    default_storage_class,
)
from kscale.objects.volume_binding import AVAILABLE, bind, find_volume, is_bound
from kscale.objects.volumes import Volume
from kscale.world.simulated.api_objects import ApiObjects, one_by_one
from kscale.world.simulated.turns import CONTROLLERS, Turn

__all__ = ["VolumeBinder"]

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_WAITS: Final = "WaitForFirstConsumer"
_ZONE: Final = "topology.kubernetes.io/zone"


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
        if isinstance(new, PersistentVolumeClaim) and not is_bound(new):
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
                self._api.put(replace(volume, status=replace(volume.status, phase=AVAILABLE)))
        begun, self._begun = self._begun, {}
        ended, self._ended = self._ended, {}
        for pod in ended.values():
            for claim in ephemeral_claims(pod):
                held = self._api.find("PersistentVolumeClaim", claim.key)
                if held is not None and controller_of(held.metadata) == controller_of(claim.metadata):
                    self._api.remove(held)
        for pod in begun.values():
            for claim in ephemeral_claims(pod):
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
        volume = find_volume(claim, self._api.of("PersistentVolume").values(), node if waits else None)
        if volume is None and claim.spec.volume_name:
            return  # it waits for that one
        if volume is None and of_class is not None and of_class.provisioner != _NO_PROVISIONER:
            volume = self._api.create(_provisioned(claim, node if waits else None))
        if volume is not None:
            self._put_together(claim, volume)

    def _put_together(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        bound_claim, bound_volume = bind(claim, volume)
        self._api.put(bound_volume)
        self._api.put(bound_claim)


def _claim_key(pod: Pod, volume: Volume) -> str:
    """The claim behind a volume; empty: none."""
    if volume.persistent_volume_claim is not None:
        return object_key(pod.namespace, volume.persistent_volume_claim.claim_name)
    return object_key(pod.namespace, f"{pod.name}-{volume.name}") if volume.ephemeral is not None else ""


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
        status=PersistentVolumeStatus(phase=AVAILABLE),
    )
