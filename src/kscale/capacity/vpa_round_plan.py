"""What a round of the VPA's programs does to nodes: the running pods packed before and after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from kscale.capacity.other_requests import asking
from kscale.capacity.right_sizing import packed, waiting
from kscale.effects import Action, Event, Evict, Moment, Resize, to_text
from kscale.objects.base import ResourceList
from kscale.objects.core import Container, ObjectReference, Pod
from kscale.objects.owners import is_daemonset_pod, is_mirror_pod
from kscale.objects.vpa import VerticalPodAutoscaler
from kscale.records import Record
from kscale.scheduling.place import place
from kscale.snapshot.cluster import Cluster
from kscale.vpa.advice.records import Effect
from kscale.vpa.capping import CappingError
from kscale.vpa.container_resources import ProviderError, containers_resources
from kscale.vpa.limit_range import LimitRangeLookup
from kscale.vpa.updater import UpdaterResult, UpdaterRound
from kscale.vpa.updater.controlled import Controlled

__all__ = ["PlannedVPA", "PutAnew", "VPARoundPlan", "recommendation_plan", "update_plan"]


class PlannedVPA(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The part of one VPA: how many ``pods`` would ask for something else, and which of them are to be evicted or
    resized in place."""

    namespace: str
    name: str
    pods: int
    evict: Sequence[str] = ()
    resize: Sequence[str] = ()


class PutAnew(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Pods that change, taken off their nodes and put back with their new requests, one after the other, beside all
    that stay: ``placed`` so many find a place on the nodes that are there, those of ``waiting`` (``namespace/name``,
    sorted) do not. Those of DaemonSets, and static ones, are left where they are, as large as they become."""

    placed: int = 0
    waiting: Sequence[str] = ()


class VPARoundPlan(Record, frozen=True):
    """What a round of ``program`` (``vpa-updater``, ``vpa-recommender``) would do to nodes, at ``now``.

    Of the updater: the pods that this round evicts or resizes get what is recommended. Of the recommender: all pods of
    all VPAs do, whatever their update mode. ``anew`` puts these pods onto the nodes as they are, ``effect`` packs all
    running pods before and after onto empty nodes.
    """

    KIND = "VPARoundPlan"
    now: str | None
    program: str
    vpas: Sequence[PlannedVPA]
    effect: Effect
    anew: PutAnew = PutAnew()

    @property
    def event(self) -> Event | None:
        """The plan in a sentence, about the node that it packs onto; None: no pod changes, or there is no node."""
        found, count = self.effect, sum(each.pods for each in self.vpas)
        if not count or not found.node:
            return None
        does = "updates" if self.program == "vpa-updater" else "recommends other requests for"
        text = (
            f"This round {does} {count} pods of {len(self.vpas)} VPAs: packed onto nodes like this one, {found.pods} "
            f"running pods need {found.nodes_after} nodes, {found.nodes_before} before"
        )
        if found.no_longer_fit:
            text += f"; {len(found.no_longer_fit)} fit on no such node any more"
        if self.anew.waiting:
            text += f"; {len(self.anew.waiting)} of the changed find no place on the nodes that are there"
        regarding = ObjectReference(api_version="v1", kind="Node", name=found.node)
        return Event(regarding=regarding, type="Normal", reason="NodesPlanned", message=text)


def update_plan(
    cluster: Cluster, given: UpdaterRound, result: UpdaterResult, actions: Iterable[Action], *, now: Moment
) -> VPARoundPlan:
    """Of a loop of the updater: what it was given, what it found, and the actions that it would take. ``cluster`` holds
    the nodes, the pods that are on them, and what else decides where pods fit."""
    vpas = {vpa.key: vpa for vpa in given.vpas}
    pods = {(pod.namespace, pod.name): pod for pod in given.pods}
    chosen = {(each.namespace, each.pod): vpas[f"{each.namespace}/{each.vpa}"] for each in result.chosen}
    done: dict[str, tuple[list[str], list[str]]] = {}
    changed: dict[str, Pod] = {}
    for action in actions:
        if not isinstance(action, Evict | Resize) or (action.namespace, action.name) not in chosen:
            continue
        key = action.namespace, action.name
        vpa = chosen[key]
        done.setdefault(vpa.key, ([], []))[isinstance(action, Resize)].append(action.name)
        changed[pods[key].key] = recommended(pods[key], vpa, given.limit_ranges)
    found = [
        PlannedVPA(
            namespace=vpas[key].namespace,
            name=vpas[key].name,
            pods=len({*evicted, *resized}),
            evict=evicted,
            resize=resized,
        )
        for key, (evicted, resized) in sorted(done.items())
    ]
    return _plan("vpa-updater", cluster, found, changed, now)


def recommendation_plan(cluster: Cluster, controlled: Iterable[Controlled], *, now: Moment) -> VPARoundPlan:
    """Of a round of the recommender: VPAs with the recommendations of the round, and the pods that each controls."""
    found: list[PlannedVPA] = []
    changed: dict[str, Pod] = {}
    for vpa, pods in controlled:
        others = [(pod, recommended(pod, vpa)) for pod in pods]
        own = {pod.key: other for pod, other in others if _requests(pod) != _requests(other)}
        if own:
            found.append(PlannedVPA(namespace=vpa.namespace, name=vpa.name, pods=len(own)))
        changed |= own
    return _plan("vpa-recommender", cluster, found, changed, now)


def recommended(pod: Pod, vpa: VerticalPodAutoscaler, limit_ranges: LimitRangeLookup | None = None) -> Pod:
    """The pod with the requests that its VPA recommends for it; itself where that cannot be told."""
    try:
        wanted = containers_resources(pod, vpa, limit_ranges).containers
    except (CappingError, ProviderError):
        return pod
    by_name = {
        container.name: resources.requests for container, resources in zip(pod.spec.containers, wanted, strict=True)
    }

    def requests(container: Container) -> ResourceList | None:
        new = by_name.get(container.name)
        return container.resources.requests if new is None else {**(container.resources.requests or {}), **new}

    return asking(pod, requests)


def _requests(pod: Pod) -> list[ResourceList]:
    return [container.resources.requests or {} for container in pod.spec.containers]


def _plan(
    program: str, cluster: Cluster, vpas: Sequence[PlannedVPA], changed: dict[str, Pod], now: Moment
) -> VPARoundPlan:
    effect = packed(cluster, lambda pod: changed.get(pod.key, pod))
    anew = _put_anew(cluster, changed)
    return VPARoundPlan(now=to_text(now, fraction=True), program=program, vpas=vpas, effect=effect, anew=anew)


def _put_anew(cluster: Cluster, changed: dict[str, Pod]) -> PutAnew:
    after = cluster.copy()
    put: list[str] = []
    for pod in changed.values():
        if is_daemonset_pod(pod) or is_mirror_pod(pod):
            after.apply(pod)
        else:
            after.apply(waiting(pod))
            put.append(pod.key)
    if not put:
        return PutAnew()
    found = place(after.snapshot(), put)
    return PutAnew(placed=found.placed_count, waiting=sorted(found.unschedulable))
