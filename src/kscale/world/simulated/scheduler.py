"""Scheduler and volume binder of a simulated cluster.

Node choice is :func:`kscale.scheduling.place.place`: the node with the best kube-scheduler score, or without scores
the first in list order. Preemption is :func:`kscale.scheduling.preemption.preempt`.

Upstream: ``pkg/controller/volume/persistentvolume`` (``FindMatchingVolume``: the smallest volume that is large
enough), the external provisioner, ``pkg/controller/volume/ephemeral``, and the admission plugin
``DefaultStorageClass``.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kscale.effects import VirtualTime
from kscale.objects.api.core import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod
from kscale.objects.api.meta import KubeObject, ObjectMeta, object_key
from kscale.objects.api.storage import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    StorageClass,
    VolumeNodeAffinity,
    default_storage_class,
)
from kscale.objects.api.volumes import Volume
from kscale.objects.node_selectors import ZONE
from kscale.objects.pod_owners import controller_of
from kscale.objects.workloads import AVAILABLE, bind, ephemeral_claims, find_volume, is_bound
from kscale.scheduling.fork import fork
from kscale.scheduling.place import PlaceResult, PlaceState, place
from kscale.scheduling.preemption import Candidates, preempt
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.scores.options import ScoreOptions
from kscale.snapshot.snapshot import Snapshot
from kscale.world.simulated.api_server import ApiObjects, Changes, one_by_one
from kscale.world.simulated.controllers import CONTROLLERS, SCHEDULER, ScheduledCall
from kscale.world.simulated.pods import SharedParts, bound, delete_pod, disrupt_pod, is_finished, unschedulable
from kscale.world.simulated.stores import ClusterView

__all__ = ["Scheduler", "VolumeBinder"]


_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_WAITS: Final = "WaitForFirstConsumer"


class VolumeBinder:
    """Binds claims at once, or with WaitForFirstConsumer when a pod that uses the claim is assigned to a node.

    Existing volumes are preferred over new ones. A volume provisioned for a node is restricted to the node's zone.
    Volumes stay when their claims are deleted.
    """

    def __init__(self, api: ApiObjects, time: VirtualTime) -> None:
        self._api = api
        self._unbound: dict[str, str] = {}
        """Claim key -> node of its pod; empty while the pod has no node."""
        self._new_volumes: dict[str, None] = {}
        self._begun: dict[str, Pod] = {}
        self._ended: dict[str, Pod] = {}
        self._turn = ScheduledCall(time, self._bind_waiting, CONTROLLERS)
        for kind, call in (
            ("PersistentVolumeClaim", self._claim),
            ("Pod", self._pod),
            ("PersistentVolume", self._volume),
            ("StorageClass", self._handle_other_change),
        ):
            listener = one_by_one(call)
            listener(api.present(kind))
            api.listen(kind, listener)

    @property
    def default_class(self) -> str | None:
        """Return the name of the storage class for claims that name none; None if there is no default class."""
        return default_storage_class(self._api.get_all("StorageClass").values())

    # -- events ------------------------------------------------------------------------------------------------------

    def _claim(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """Register an unbound claim, or remove a claim that is bound or deleted."""
        if isinstance(new, PersistentVolumeClaim) and not is_bound(new):
            self._unbound.setdefault(new.key, "")
            self._turn.schedule()
        else:
            self._unbound.pop((new or old).key, None)  # type: ignore[union-attr]  # one of the two is not None

    def _pod(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """Record pods with ephemeral volumes for their claims, and the node of a pod for the claims that it uses."""
        pod = old if new is None else new
        assert isinstance(pod, Pod)
        if not pod.spec.volumes:
            return
        if any(volume.ephemeral for volume in pod.spec.volumes) and (old is None or new is None):
            (self._ended if new is None else self._begun)[pod.key] = pod
            self._turn.schedule()
        if isinstance(new, Pod) and new.spec.node_name:
            for volume in new.spec.volumes:
                key = _claim_key(new, volume)
                if self._unbound.get(key) == "":
                    self._unbound[key] = new.spec.node_name
                    self._turn.schedule()

    def _volume(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """Record a volume without a phase, to become available, and retry unbound claims."""
        if isinstance(new, PersistentVolume) and not new.status.phase:
            self._new_volumes[new.key] = None
            self._turn.schedule()
        self._handle_other_change(old, new)

    def _handle_other_change(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """Schedule a round of binding if claims are unbound, as the change may allow to bind them."""
        del old, new
        if self._unbound:
            self._turn.schedule()

    # -- binding of claims -------------------------------------------------------------------------------------------

    def _bind_waiting(self) -> None:
        """Make new volumes available, create and delete claims of ephemeral volumes, and bind unbound claims."""
        new_volumes, self._new_volumes = self._new_volumes, {}
        for key in new_volumes:
            volume = self._api.find("PersistentVolume", key)
            if volume is not None and not volume.status.phase:
                self._api.put(replace(volume, status=replace(volume.status, phase=AVAILABLE)))
        begun, self._begun = self._begun, {}
        ended, self._ended = self._ended, {}
        for pod in ended.values():
            for claim in ephemeral_claims(pod):
                existing = self._api.find("PersistentVolumeClaim", claim.key)
                if existing is not None and controller_of(existing.metadata) == controller_of(claim.metadata):
                    self._api.remove(existing)
        for pod in begun.values():
            for claim in ephemeral_claims(pod):
                if self._api.find("PersistentVolumeClaim", claim.key) is None:
                    self._api.create(claim)
        for key, node in list(self._unbound.items()):
            self._bind(self._api.find("PersistentVolumeClaim", key), node)

    def _bind(self, claim: PersistentVolumeClaim, node_name: str) -> None:
        """Bind a claim to an existing or a provisioned volume, if possible now.

        A claim without a storage class gets the default class. ``node_name``: node of its pod (empty: none).
        """
        if claim.spec.storage_class_name is None and (default := self.default_class) is not None:
            claim = self._api.put(replace(claim, spec=replace(claim.spec, storage_class_name=default)))
        of_class: StorageClass | None = self._api.find("StorageClass", claim.spec.storage_class_name or "")
        waits = of_class is not None and of_class.volume_binding_mode == _WAITS
        node: Node | None = self._api.find("Node", node_name) if node_name else None
        if waits and node is None and not claim.spec.volume_name:
            return
        volume = find_volume(claim, self._api.get_all("PersistentVolume").values(), node if waits else None)
        if volume is None and claim.spec.volume_name:
            return  # the claim waits for that volume
        if volume is None and of_class is not None and of_class.provisioner != _NO_PROVISIONER:
            volume = self._api.create(_provision_volume(claim, node if waits else None))
        if volume is not None:
            self._bind_volume(claim, volume)

    def _bind_volume(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        """Write the claim and the volume as bound to each other."""
        bound_claim, bound_volume = bind(claim, volume)
        self._api.put(bound_volume)
        self._api.put(bound_claim)


def _claim_key(pod: Pod, volume: Volume) -> str:
    """Return the key of the claim behind a volume; empty if there is none."""
    if volume.persistent_volume_claim is not None:
        return object_key(pod.namespace, volume.persistent_volume_claim.claim_name)
    return object_key(pod.namespace, f"{pod.name}-{volume.name}") if volume.ephemeral is not None else ""


def _provision_volume(claim: PersistentVolumeClaim, node: Node | None) -> PersistentVolume:
    """Build a new volume for a claim. If the node has a zone, the volume is restricted to it."""
    zone = (node.metadata.labels or {}).get(ZONE) if node is not None else None
    near = None
    if zone is not None:
        term = NodeSelectorTerm(match_expressions=[NodeSelectorRequirement(key=ZONE, operator="In", values=[zone])])
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


_STORAGE: Final = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass")


class Scheduler:
    """Schedules all pods that wait at one moment together, by priority and then in order of arrival.

    An unschedulable pod is retried after a change that could make room: a node, a pod that was removed or requests
    less, a claim or a volume, and for a pod with affinity or spread constraints also a new pod.
    With ``preemption`` a pod may evict others. The pod is nominated to their node until they
    are deleted or the pod fits on some node.
    """

    def __init__(
        self,
        api: ApiObjects,
        view: ClusterView,
        time: VirtualTime,
        scores: ScoreOptions | None = None,
        *,
        profile: SchedulerProfile | None = None,
        preemption: Candidates | None = None,
    ) -> None:
        self._api, self._view, self._scores = api, view, scores
        self._profile, self._preemption = profile, preemption
        self._victims: dict[str, list[Pod]] = {}
        self._shared = SharedParts()
        self._state = PlaceState()
        self._waiting: dict[str, None] = {}
        self._refused: dict[str, None] = {}
        self._turn = ScheduledCall(time, self._schedule, SCHEDULER)
        self._pods(api.present("Pod"))
        api.listen("Pod", self._pods)
        api.listen("Node", one_by_one(self._node))
        for kind in _STORAGE:
            api.listen(kind, lambda _: self._retry_refused())

    def _pods(self, changes: Changes[Pod]) -> None:
        """Record pods that wait for a node, and retry unschedulable ones after changes that could make room."""
        for key, before, after in changes:
            if not self._refused and before is not None and before.spec.node_name and (
                after is not None and after.spec.node_name):  # fmt: skip
                continue  # the pod has a node, and no pod waits for its resources
            if after is None or is_finished(after):
                if before is not None:
                    self._waiting.pop(key, None)
                    self._refused.pop(key, None)
                    if before.spec.node_name and not is_finished(before):
                        self._retry_refused()
            elif after.spec.node_name or after.metadata.deletion_timestamp is not None:
                self._waiting.pop(key, None)
                self._refused.pop(key, None)
                if (
                    self._refused
                    and before is not None
                    and before.spec.node_name
                    and _pod_update_may_unblock(before, after)
                ):
                    self._retry_refused()
            elif not after.spec.scheduling_gates and key not in self._refused and key not in self._waiting:
                self._waiting[key] = None
                self._turn.schedule()

    def _node(self, old: Node | None, new: Node | None) -> None:
        """Retry unschedulable pods if a node is new or may take more pods."""
        if new is not None and (old is None or _node_update_may_unblock(old, new)):
            self._retry_refused()

    def _retry_refused(self) -> None:
        """Let all unschedulable pods wait for a node again."""
        if self._refused:
            self._waiting = {**self._refused, **self._waiting}
            self._refused = {}
            self._turn.schedule()

    def _choose(self, snapshot: Snapshot, pods: list[str]) -> PlaceResult:
        """Return the placement of pods, given by key; the highest priority is placed first.

        With scores, the search for nodes continues where the last call stopped.
        """
        if self._scores is None:
            return place(snapshot, pods, profile=self._profile)
        placed = place(snapshot, pods, profile=self._profile, scores=self._scores, state=self._state)
        self._state = placed.state
        return placed

    def _schedule(self) -> None:
        """Bind the waiting pods that fit. The others are unschedulable, and may preempt pods.

        An unschedulable pod without conditions gets one. Nominated pods wait until their nomination ends.
        """
        self._end_nominations()
        self._end_nominations_of_fitting([key for key in self._waiting if key in self._victims])
        waiting = [key for key in self._waiting if key not in self._victims]
        self._refused.update(dict.fromkeys(key for key in self._waiting if key in self._victims))
        self._waiting = {}
        if not waiting:
            return
        snapshot = self._view.snapshot()
        placed = self._choose(snapshot, waiting)
        placement, now_text = placed.placed, self._api.now_text
        message = f"0/{len(snapshot.nodes)} nodes are available."
        find = self._api.find
        self._api.put_pods(
            (key, bound(find("Pod", key), node, now_text, self._shared)) for key, node in placement.items()
        )
        for key in waiting:
            if key in placement:
                continue
            self._refused[key] = None
            pod = self._api.find("Pod", key)
            if not pod.status.conditions:
                self._api.put(unschedulable(pod, message, now_text))
        if self._preemption is not None:
            self._preempt(placed, self._preemption)
        if placement and any(_depends_on_other_pods(self._api.find("Pod", key)) for key in self._refused):
            self._retry_refused()  # a pod that they need to be with may have been placed now

    # -- preemption --------------------------------------------------------------------------------------------------

    def _end_nominations(self) -> None:
        """End the nomination of pods whose victims no longer exist. Forget pods that are deleted or bound."""
        for key, victims in list(self._victims.items()):
            pod: Pod | None = self._api.find("Pod", key)
            if pod is None or pod.spec.node_name:
                del self._victims[key]
            elif all(self._api.get_current(victim) is None for victim in victims):
                self._end_nomination(pod)

    def _end_nominations_of_fitting(self, nominated: list[str]) -> None:
        """End the nomination of pods, given by key, that fit on a node now.

        Pods are tried by descending priority, and each sees the placement of the pods before it.
        """
        if not nominated:
            return
        trial = fork(self._view.snapshot(), nominated, profile=self._profile)
        pods: list[Pod] = [self._api.find("Pod", key) for key in nominated]
        for pod in sorted(pods, key=lambda each: -(each.spec.priority or 0)):
            reserved = trial.where(pod.key)
            if reserved is not None:
                trial.unplace(pod.key, reserved)
            if trial.schedule_anywhere(pod.key) is not None:
                self._end_nomination(pod)
            elif reserved is not None:
                trial.place(pod.key, reserved)

    def _end_nomination(self, pod: Pod) -> None:
        """Remove a pod's nomination from its status, and forget its victims. The pod has a nomination."""
        del self._victims[pod.key]
        self._api.put(_nominate(pod, ""))

    def _preempt(self, placed: PlaceResult, candidates: Candidates) -> None:
        """Evict pods to make room for the unschedulable ones, and nominate the latter to the freed nodes.

        ``placed``: the result of placing the pods; ``candidates``: how many nodes are considered. Pods for which no
        eviction makes room are skipped. A victim that was itself only nominated loses its nomination instead.
        """
        snapshot = placed.snapshot_after
        for key in placed.unschedulable:
            preemption = preempt(snapshot, key, profile=self._profile, **candidates._asdict())
            if preemption is None:
                continue
            record = snapshot.record(key)
            snapshot = snapshot.with_placed([record], [snapshot.columns.index[preemption.node]])
            victims: list[Pod] = [self._api.find("Pod", name) for name in preemption.victims]
            for victim in victims:
                if victim.key in self._victims:  # the victim is itself nominated and may look for another node
                    self._end_nomination(victim)
                    self._retry_refused()
                elif victim.metadata.deletion_timestamp is None:
                    delete_pod(self._api, self._api.put(disrupt_pod(victim, self._api.now_text)))
            self._victims[key] = victims
            self._api.put(_nominate(self._api.find("Pod", key), preemption.node))


def _nominate(pod: Pod, node: str) -> Pod:
    """Return the pod nominated to a node (empty: to none)."""
    return replace(pod, status=replace(pod.status, nominated_node_name=node))


def _depends_on_other_pods(pod: Pod) -> bool:
    """Check whether a pod has affinity or spread constraints."""
    return pod.spec.affinity is not None or bool(pod.spec.topology_spread_constraints)


def _pod_update_may_unblock(old: Pod, new: Pod) -> bool:
    """Check whether an update of a placed pod may make another pod schedulable."""
    return (
        old.spec.containers != new.spec.containers
        or old.metadata.labels != new.metadata.labels
        or [status.allocated_resources for status in old.status.container_statuses]
        != [status.allocated_resources for status in new.status.container_statuses]
    )


def _node_update_may_unblock(old: Node, new: Node) -> bool:
    """Check whether an update of a node may make another pod schedulable on it."""
    return (
        old.spec.unschedulable != new.spec.unschedulable
        or old.spec.taints != new.spec.taints
        or old.metadata.labels != new.metadata.labels
        or old.status.allocatable != new.status.allocatable
    )
