"""Effect of a round of the VPA's programs on nodes: running pods packed before and after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from kscale.capacity.right_sizing import asking, packed, waiting
from kscale.effects import Action, ApiError, Event, Evict, Moment, PatchOperation, Resize, from_text, to_text
from kscale.objects.api.core import Container, ObjectReference, Pod, PodStatus
from kscale.objects.api.meta import ResourceList
from kscale.objects.api.policy import PodDisruptionBudget
from kscale.objects.api.vpa import VerticalPodAutoscaler, update_mode
from kscale.objects.pod_owners import is_daemonset_pod, is_mirror_pod
from kscale.objects.selectors import Selector, SelectorError, compile_selector
from kscale.records import Record
from kscale.scheduling.place import place
from kscale.snapshot.cluster import Cluster
from kscale.vpa.admission import VpaIndex, admit_pod
from kscale.vpa.advice.records import Effect
from kscale.vpa.capping import CappingError, LimitRangeLookup, LimitRanges
from kscale.vpa.container_resources import ProviderError, recommend_container_resources
from kscale.vpa.controllers import DumpScales, read_controllers
from kscale.vpa.options import AdmissionOptions, UpdaterOptions
from kscale.vpa.target import ControlledPods, get_pod_owner
from kscale.vpa.updater import UnchangedPod, UpdaterResult, UpdaterRound, UpdaterState, run_updater

__all__ = [
    "AdmittedContainer",
    "PlannedVPA",
    "PutAnew",
    "VPARoundPlan",
    "newest_time",
    "plan_of_dump",
    "recommendation_plan",
    "update_plan",
]

_ENDED = frozenset({"Succeeded", "Failed"})


class AdmittedContainer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the admission webhook gives a container of a new pod, resources as texts by name; empty: it stays.

    ``requests`` and ``limits`` are what a pod has that runs now.
    """

    container: str
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    new_requests: dict[str, str] = {}
    new_limits: dict[str, str] = {}


class PlannedVPA(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The part of one VPA: how many ``pods`` would ask for something else, and which of them are to be evicted or
    resized in place.

    Of a dump also: ``mode`` and ``target`` (``Kind/name``); the pods that stay ``unchanged``, each with the reason; and
    what the ``admission`` webhook gives the containers of a new pod.
    """

    namespace: str
    name: str
    pods: int
    evict: Sequence[str] = ()
    resize: Sequence[str] = ()
    mode: str = ""
    target: str = ""
    unchanged: Sequence[UnchangedPod] = ()
    admission: Sequence[AdmittedContainer] = ()


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
    running pods before and after onto empty nodes. ``notes``: what upstream logs, and what a dump leaves open.
    """

    KIND = "VPARoundPlan"
    now: str | None
    program: str
    vpas: Sequence[PlannedVPA]
    effect: Effect
    anew: PutAnew = PutAnew()
    notes: Sequence[str] = ()

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


def plan_of_dump(
    cluster: Cluster,
    *,
    now: Moment,
    options: UpdaterOptions | None = None,
    admission: AdmissionOptions | None = None,
) -> VPARoundPlan:
    """What a loop of the updater would do on a dump, and what the admission webhook gives new pods; all VPAs are told.

    Evictions that a PodDisruptionBudget of the dump forbids are refused, as the API server refuses them.
    """
    controllers, limit_ranges = read_controllers(cluster), LimitRanges(cluster.all("LimitRange"))
    vpas = list(cluster.all("VerticalPodAutoscaler"))
    pods = [pod for pod in cluster.pods() if pod.spec.node_name and pod.status.phase not in _ENDED]
    given = UpdaterRound(vpas=vpas, pods=pods, controllers=controllers, limit_ranges=limit_ranges)
    result = run_updater(UpdaterState(), given, now=now, options=options, refuse=_Budgets(cluster, pods).refuse)
    plan = update_plan(cluster, given, result, _done(result), now=now)
    done = {(each.namespace, each.name): each for each in plan.vpas}
    index = VpaIndex(vpas)
    admitted: dict[tuple[str, str], list[AdmittedContainer]] = {}
    diagnostics: dict[str, None] = dict.fromkeys(result.diagnostics)
    asked: set[object] = set()
    for pod in pods:
        owner = pod.namespace, get_pod_owner(pod)
        if owner[1] is None or owner in asked:  # the next pod of a controller gets the same
            continue
        asked.add(owner)
        answer = admit_pod(
            _as_new(pod),
            index,
            namespace=pod.namespace,
            controllers=controllers,
            limit_ranges=limit_ranges,
            options=admission,
        )
        diagnostics |= dict.fromkeys([*map(str, answer.errors), *answer.diagnostics])
        if answer.vpa is not None:
            admitted.setdefault((answer.vpa.namespace, answer.vpa.name), _admitted(pod, answer.patches))
    unchanged: dict[tuple[str, str], list[UnchangedPod]] = {}
    for each in result.unchanged:
        unchanged.setdefault((each.namespace, each.vpa), []).append(each)
    planned = []
    for vpa in vpas:
        key = vpa.namespace, vpa.name
        found = done.get(key) or PlannedVPA(namespace=vpa.namespace, name=vpa.name, pods=0)
        target = vpa.spec.target_ref
        planned.append(
            msgspec.structs.replace(
                found,
                mode=update_mode(vpa),
                target="" if target is None else f"{target.kind}/{target.name}",
                unchanged=unchanged.get(key, ()),
                admission=admitted.get(key, ()),
            )
        )
    scales = controllers.scales
    assumed = [text for _, text in scales.assumed] if isinstance(scales, DumpScales) else []
    return msgspec.structs.replace(plan, vpas=planned, notes=[*diagnostics, *assumed])


def _done(result: UpdaterResult) -> list[Action]:
    """The actions of a loop without the evictions and resizes that were refused."""
    refused = {(each.namespace, each.pod) for each in result.unchanged if each.reason == "Refused"}
    return [
        action
        for action in result.actions
        if not isinstance(action, Evict | Resize) or (action.namespace, action.name) not in refused
    ]


def _as_new(pod: Pod) -> Pod:
    """The pod as its controller makes it again: without a node and a status."""
    spec = msgspec.structs.replace(pod.spec, node_name="")
    return msgspec.structs.replace(pod, spec=spec, status=PodStatus())


def _admitted(pod: Pod, patches: Sequence[PatchOperation]) -> list[AdmittedContainer]:
    """The containers of a pod with what patches set of their resources."""
    new: dict[tuple[int, str], dict[str, str]] = {}
    for patch in patches:
        parts = patch.path.split("/")
        if parts[1:3] == ["spec", "containers"] and len(parts) == 7 and parts[4] == "resources":
            name = parts[6].replace("~1", "/").replace("~0", "~")
            new.setdefault((int(parts[3]), parts[5]), {})[name] = str(patch.value)

    def texts(amounts: ResourceList | None) -> dict[str, str]:
        return {name: str(amount) for name, amount in (amounts or {}).items()}

    return [
        AdmittedContainer(
            container=container.name,
            requests=texts(container.resources.requests),
            limits=texts(container.resources.limits),
            new_requests=new.get((i, "requests"), {}),
            new_limits=new.get((i, "limits"), {}),
        )
        for i, container in enumerate(pod.spec.containers)
    ]


class _Budgets:
    """Answers evictions by the disruptions that the status of each PodDisruptionBudget still allows."""

    def __init__(self, cluster: Cluster, pods: Iterable[Pod]) -> None:
        self._pods = {(pod.namespace, pod.name): pod for pod in pods}
        self._budgets: list[tuple[PodDisruptionBudget, Selector]] = []
        self._left: dict[str, int] = {}
        for budget in cluster.all("PodDisruptionBudget"):
            try:
                self._budgets.append((budget, compile_selector(budget.spec.selector)))
            except SelectorError:
                continue  # the API server matches nothing by a selector that cannot be read
            self._left[budget.key] = budget.status.disruptions_allowed

    def refuse(self, action: Action) -> ApiError | None:
        """Return the API server's refusal of an eviction; None if it is allowed."""
        pod = self._pods.get((action.namespace, action.name)) if isinstance(action, Evict) else None
        if pod is None or pod.status.phase == "Pending":  # pending pods are not protected
            return None
        budgets = [
            budget.key
            for budget, selector in self._budgets
            if budget.namespace == pod.namespace and selector.matches(pod.metadata.labels)
        ]
        if any(self._left[key] <= 0 for key in budgets):
            text = f"Cannot evict pod as it would violate the pod's disruption budget ({', '.join(budgets)})."
            return ApiError(text, 429, "TooManyRequests")
        for key in budgets:
            self._left[key] -= 1
        return None


def newest_time(cluster: Cluster) -> Moment | None:
    """Return the newest time that pods and VPAs of a dump tell; None if there is none."""
    texts: list[str | None] = []
    for pod in cluster.pods():
        texts += [pod.status.start_time, *(each.last_transition_time for each in pod.status.conditions)]
        texts += [
            each.last_state.terminated.finished_at
            for each in pod.status.container_statuses
            if each.last_state.terminated is not None
        ]
    for vpa in cluster.all("VerticalPodAutoscaler"):
        texts += [vpa.metadata.creation_timestamp, *(each.last_transition_time for each in vpa.status.conditions)]
    times = [from_text(text) for text in texts if text]
    return max(times, default=None)


def recommendation_plan(cluster: Cluster, controlled: Iterable[ControlledPods], *, now: Moment) -> VPARoundPlan:
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
        wanted = recommend_container_resources(pod, vpa, limit_ranges).containers
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
