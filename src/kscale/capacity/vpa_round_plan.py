"""Effect of one loop of the VPA updater or recommender on nodes: packs running pods before and after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from kscale.capacity.losses import make_pending
from kscale.capacity.right_sizing import compare_packing, replace_requests
from kscale.effects import Action, ApiError, Event, Evict, Moment, PatchOperation, Resize, to_text
from kscale.errors import InputError
from kscale.objects.api.core import Container, ObjectReference, Pod, PodStatus
from kscale.objects.api.meta import KubeObject, ResourceList
from kscale.objects.api.policy import PodDisruptionBudget
from kscale.objects.api.vpa import VerticalPodAutoscaler, update_mode
from kscale.objects.pod_owners import is_daemonset_pod, is_mirror_pod
from kscale.objects.selectors import Selector, SelectorError, compile_selector
from kscale.objects.times import moment_in
from kscale.records import Record
from kscale.scheduling.place import place
from kscale.snapshot.cluster import Cluster
from kscale.vpa.admission import VpaIndex, admit_pod
from kscale.vpa.advice.records import Effect
from kscale.vpa.capping import CappingError, LimitRangeLookup, LimitRanges
from kscale.vpa.container_resources import ProviderError, recommend_container_resources
from kscale.vpa.controllers import DumpScales, read_controllers
from kscale.vpa.options import UpdaterOptions
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


class AdmittedContainer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Resources that the admission webhook sets on a container of a new pod. Amounts are quantities by resource.

    Attributes
    ----------
    container : str
        Name of the container.
    requests : dict of str to str
        Requests of a running pod.
    limits : dict of str to str
        Limits of a running pod.
    new_requests : dict of str to str
        Requests of a new pod. Empty: unchanged.
    new_limits : dict of str to str
        Limits of a new pod. Empty: unchanged.
    """

    container: str
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    new_requests: dict[str, str] = {}
    new_limits: dict[str, str] = {}


class PlannedVPA(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The plan for one VPA.

    Attributes
    ----------
    namespace : str
        Namespace of the VPA.
    name : str
        Name of the VPA.
    pods : int
        Number of pods that would get other requests.
    evict : list of str
        Pods that would be evicted, as ``namespace/name``.
    resize : list of str
        Pods that would be resized in place, as ``namespace/name``.
    mode : str
        Update mode of the VPA. Only for a dump, otherwise empty.
    target : str
        Target as ``Kind/name``. Only for a dump, otherwise empty.
    unchanged : list of UnchangedPod
        Pods that stay as they are, and why. Only for a dump.
    admission : list of AdmittedContainer
        What the admission webhook sets on the containers of a new pod. Only for a dump.
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
    """Result of scheduling the changed pods again with their new requests, one after the other, beside all other pods.

    Pods of DaemonSets and static pods stay on their nodes with their new size.

    Attributes
    ----------
    placed : int
        Number of changed pods that fit on the existing nodes.
    waiting : list of str
        Changed pods that do not fit, as ``namespace/name``, sorted.
    """

    placed: int = 0
    waiting: Sequence[str] = ()


class VPARoundPlan(Record, frozen=True):
    """Effect of one loop of a program of the VPA on the nodes.

    Updater: the pods that this loop evicts or resizes get the recommended requests. Recommender: all pods of all VPAs
    do, regardless of their update mode.

    Attributes
    ----------
    now : str or None
        Time of the loop (RFC 3339). None: unknown.
    program : str
        ``vpa-updater`` or ``vpa-recommender``.
    vpas : list of PlannedVPA
        The plan for each VPA.
    effect : Effect
        Number of nodes that all running pods need when packed onto empty nodes, before and after.
    anew : PutAnew
        Result of scheduling the changed pods again on the existing nodes.
    notes : list of str
        What upstream logs, and what a dump does not contain.
    """

    KIND = "VPARoundPlan"
    ROWS = "vpas"
    now: str | None
    program: str
    vpas: Sequence[PlannedVPA]
    effect: Effect
    anew: PutAnew = PutAnew()
    notes: Sequence[str] = ()

    def explain(self, vpa: str) -> str:
        """Return what the loop does for a VPA and why, in one line: evictions, resizes, unchanged pods, new requests.

        ``vpa``: ``namespace/name``. Raises InputError if the plan has no such VPA.
        """
        for item in self.vpas:
            if vpa == f"{item.namespace}/{item.name}":
                return _explain_planned(item)
        raise InputError(f"no VPA {vpa!r} in this plan")

    @property
    def event(self) -> Event | None:
        """Return the plan as a Kubernetes event about the node onto whose copies pods were packed.

        None if no pod changes, or if there is no node.
        """
        effect, count = self.effect, sum(vpa.pods for vpa in self.vpas)
        if not count or not effect.node:
            return None
        verb = "updates" if self.program == "vpa-updater" else "recommends other requests for"
        text = (
            f"This round {verb} {count} pods of {len(self.vpas)} VPAs: packed onto nodes like this one, {effect.pods} "
            f"running pods need {effect.nodes_after} nodes, {effect.nodes_before} before"
        )
        if effect.no_longer_fit:
            text += f"; {len(effect.no_longer_fit)} fit on no such node any more"
        if self.anew.waiting:
            text += f"; {len(self.anew.waiting)} of the changed find no place on the nodes that are there"
        regarding = ObjectReference(api_version="v1", kind="Node", name=effect.node)
        return Event(regarding=regarding, type="Normal", reason="NodesPlanned", message=text)


_PODS_SHOWN = 5


def _explain_planned(vpa: PlannedVPA) -> str:
    """Return a line that says what the loop does for a VPA and why."""
    parts = [f"mode {vpa.mode}, target {vpa.target}"] if vpa.mode else []
    for verb, pods in (("evicts", vpa.evict), ("resizes", vpa.resize)):
        if pods:
            more = f" and {len(pods) - _PODS_SHOWN:,} more" if len(pods) > _PODS_SHOWN else ""
            parts.append(f"{verb} {', '.join(pods[:_PODS_SHOWN])}{more}")
    if not vpa.evict and not vpa.resize:
        parts.append(f"{vpa.pods:,} pods would get other requests" if vpa.pods else "changes no pod")
    unchanged: dict[tuple[str, str], list[str]] = {}
    for pod in vpa.unchanged:
        unchanged.setdefault((pod.reason, pod.message), []).append(pod.pod)
    for (reason, message), pods in unchanged.items():
        more = f" and {len(pods) - 1:,} more" if len(pods) > 1 else ""
        parts.append(f"{pods[0]}{more} unchanged, {reason}: {message}")
    for container in vpa.admission:
        changes = [
            f"{kind} {name} {before.get(name, 'none')} -> {amount}"
            for kind, before, after in (
                ("request", container.requests, container.new_requests),
                ("limit", container.limits, container.new_limits),
            )
            for name, amount in after.items()
            if before.get(name) != amount
        ]
        if changes:
            parts.append(f"new pods get in container {container.container}: {', '.join(changes)}")
    return "; ".join(parts)


def update_plan(
    cluster: Cluster, inputs: UpdaterRound, result: UpdaterResult, actions: Iterable[Action], *, now: Moment
) -> VPARoundPlan:
    """Plan a loop of the updater from its inputs, its result, and the actions that it would take.

    ``cluster`` holds the nodes, the pods on them, and the other objects that decide where pods fit. Only evictions and
    resizes of pods that the updater chose (``result.chosen``) are planned; other ``actions`` are ignored. The plan
    lists the VPAs with such an eviction or resize.
    """
    vpas = {vpa.key: vpa for vpa in inputs.vpas}
    pods = {(pod.namespace, pod.name): pod for pod in inputs.pods}
    chosen = {(item.namespace, item.pod): vpas[f"{item.namespace}/{item.vpa}"] for item in result.chosen}
    actions_by_vpa: dict[str, tuple[list[str], list[str]]] = {}
    changed: dict[str, Pod] = {}
    for action in actions:
        if not isinstance(action, Evict | Resize) or (action.namespace, action.name) not in chosen:
            continue
        key = action.namespace, action.name
        vpa = chosen[key]
        actions_by_vpa.setdefault(vpa.key, ([], []))[isinstance(action, Resize)].append(action.name)
        changed[pods[key].key] = apply_recommendation(pods[key], vpa, inputs.limit_ranges)
    planned = [
        PlannedVPA(
            namespace=vpas[key].namespace,
            name=vpas[key].name,
            pods=len({*evicted, *resized}),
            evict=evicted,
            resize=resized,
        )
        for key, (evicted, resized) in sorted(actions_by_vpa.items())
    ]
    return _plan("vpa-updater", cluster, planned, changed, now)


def plan_of_dump(cluster: Cluster, *, now: Moment, options: UpdaterOptions | None = None) -> VPARoundPlan:
    """Plan a loop of the updater on a dump, with what the admission webhook sets on new pods; covers all VPAs.

    Evictions that a PodDisruptionBudget of the dump forbids are refused, as by the API server.
    """
    controllers, limit_ranges = read_controllers(cluster), LimitRanges(cluster.all("LimitRange"))
    vpas = list(cluster.all("VerticalPodAutoscaler"))
    pods = [pod for pod in cluster.pods() if pod.spec.node_name and not pod.is_finished]
    inputs = UpdaterRound(vpas=vpas, pods=pods, controllers=controllers, limit_ranges=limit_ranges)
    result = run_updater(UpdaterState(), inputs, now=now, options=options, refuse=_Budgets(cluster, pods).refuse)
    plan = update_plan(cluster, inputs, result, _list_performed_actions(result), now=now)
    planned_by_key = {(each.namespace, each.name): each for each in plan.vpas}
    index = VpaIndex(vpas)
    admitted: dict[tuple[str, str], list[AdmittedContainer]] = {}
    diagnostics: dict[str, None] = dict.fromkeys(result.diagnostics)
    seen_owners: set[object] = set()
    for pod in pods:
        owner = pod.namespace, get_pod_owner(pod)
        if owner[1] is None or owner in seen_owners:  # all pods of a controller get the same resources
            continue
        seen_owners.add(owner)
        answer = admit_pod(
            _reset_for_recreation(pod),
            index,
            namespace=pod.namespace,
            controllers=controllers,
            limit_ranges=limit_ranges,
        )
        diagnostics |= dict.fromkeys([*map(str, answer.errors), *answer.diagnostics])
        if answer.vpa is not None:
            admitted.setdefault((answer.vpa.namespace, answer.vpa.name), _list_admitted_containers(pod, answer.patches))
    unchanged: dict[tuple[str, str], list[UnchangedPod]] = {}
    for each in result.unchanged:
        unchanged.setdefault((each.namespace, each.vpa), []).append(each)
    planned = []
    for vpa in vpas:
        key = vpa.namespace, vpa.name
        planned_vpa = planned_by_key.get(key) or PlannedVPA(namespace=vpa.namespace, name=vpa.name, pods=0)
        target = vpa.spec.target_ref
        planned.append(
            msgspec.structs.replace(
                planned_vpa,
                mode=update_mode(vpa),
                target="" if target is None else f"{target.kind}/{target.name}",
                unchanged=unchanged.get(key, ()),
                admission=admitted.get(key, ()),
            )
        )
    scales = controllers.scales
    assumed = [text for _, text in scales.assumed] if isinstance(scales, DumpScales) else []
    return msgspec.structs.replace(plan, vpas=planned, notes=[*diagnostics, *assumed])


def _list_performed_actions(result: UpdaterResult) -> list[Action]:
    """Return the actions of a loop without refused evictions and resizes."""
    refused = {(pod.namespace, pod.pod) for pod in result.unchanged if pod.reason == "Refused"}
    return [
        action
        for action in result.actions
        if not isinstance(action, Evict | Resize) or (action.namespace, action.name) not in refused
    ]


def _reset_for_recreation(pod: Pod) -> Pod:
    """Return the pod as its controller recreates it: without node and status."""
    spec = msgspec.structs.replace(pod.spec, node_name="")
    return msgspec.structs.replace(pod, spec=spec, status=PodStatus())


def _list_admitted_containers(pod: Pod, patches: Sequence[PatchOperation]) -> list[AdmittedContainer]:
    """Return the resources of each of the pod's containers, now and as the patches set them."""
    new: dict[tuple[int, str], dict[str, str]] = {}
    for patch in patches:
        parts = patch.path.split("/")
        if parts[1:3] == ["spec", "containers"] and len(parts) == 7 and parts[4] == "resources":
            name = parts[6].replace("~1", "/").replace("~0", "~")
            new.setdefault((int(parts[3]), parts[5]), {})[name] = str(patch.value)

    def texts(amounts: ResourceList | None) -> dict[str, str]:
        """Return the amounts as texts, by resource."""
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
    """Refuses evictions by the disruptions that the status of each PodDisruptionBudget still allows."""

    def __init__(self, cluster: Cluster, pods: Iterable[Pod]) -> None:
        self._pods = {(pod.namespace, pod.name): pod for pod in pods}
        self._budgets: list[tuple[PodDisruptionBudget, Selector]] = []
        self._left: dict[str, int] = {}
        for budget in cluster.all("PodDisruptionBudget"):
            try:
                self._budgets.append((budget, compile_selector(budget.spec.selector)))
            except SelectorError:
                continue  # the API server matches nothing by an invalid selector
            self._left[budget.key] = budget.status.disruptions_allowed

    def refuse(self, action: Action) -> ApiError | None:
        """Return the API server's error for an eviction that a budget forbids; None if it is allowed.

        An allowed eviction uses up a disruption of each budget that covers the pod, unless the pod is pending. Actions
        other than evictions, and evictions of pods that the object was not created with, are always allowed.
        """
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
    """Return the newest time in a dump; None if it has none.

    Read are the pods' start times, transitions of conditions and ends of terminated containers, and the VPAs' creation
    times and transitions of conditions. Raises InputError, which names the object and the field, for a malformed time.
    """
    times: list[Moment] = []

    def add(obj: KubeObject, text: str | None, field: str) -> None:
        if text:
            times.append(moment_in(obj, text, field))

    for pod in cluster.pods():
        add(pod, pod.status.start_time, "status.startTime")
        for number, condition in enumerate(pod.status.conditions):
            add(pod, condition.last_transition_time, f"status.conditions[{number}].lastTransitionTime")
        for number, status in enumerate(pod.status.container_statuses):
            if status.last_state.terminated is not None:
                field = f"status.containerStatuses[{number}].lastState.terminated.finishedAt"
                add(pod, status.last_state.terminated.finished_at, field)
    for vpa in cluster.all("VerticalPodAutoscaler"):
        add(vpa, vpa.metadata.creation_timestamp, "metadata.creationTimestamp")
        for number, condition in enumerate(vpa.status.conditions):
            add(vpa, condition.last_transition_time, f"status.conditions[{number}].lastTransitionTime")
    return max(times, default=None)


def recommendation_plan(cluster: Cluster, controlled: Iterable[ControlledPods], *, now: Moment) -> VPARoundPlan:
    """Plan a loop of the recommender: the pods of each VPA that would get other requests, and the effect on nodes.

    ``controlled``: (VPA with its new recommendation, pods that it controls). VPAs without such pods are left out.
    """
    planned: list[PlannedVPA] = []
    changed: dict[str, Pod] = {}
    for vpa, pods in controlled:
        others = [(pod, apply_recommendation(pod, vpa)) for pod in pods]
        changed_pods = {pod.key: other for pod, other in others if _requests(pod) != _requests(other)}
        if changed_pods:
            planned.append(PlannedVPA(namespace=vpa.namespace, name=vpa.name, pods=len(changed_pods)))
        changed |= changed_pods
    return _plan("vpa-recommender", cluster, planned, changed, now)


def apply_recommendation(pod: Pod, vpa: VerticalPodAutoscaler, limit_ranges: LimitRangeLookup | None = None) -> Pod:
    """Return the pod with the requests that its VPA recommends; the pod itself if they cannot be computed."""
    try:
        wanted = recommend_container_resources(pod, vpa, limit_ranges).containers
    except (CappingError, ProviderError):
        return pod
    by_name = {
        container.name: resources.requests for container, resources in zip(pod.spec.containers, wanted, strict=True)
    }

    def requests(container: Container) -> ResourceList | None:
        """Return the container's requests, with the recommended ones in place of its own."""
        new = by_name.get(container.name)
        return container.resources.requests if new is None else {**(container.resources.requests or {}), **new}

    return replace_requests(pod, requests)


def _requests(pod: Pod) -> list[ResourceList]:
    """Return the requests of each container of a pod; empty for a container without requests."""
    return [container.resources.requests or {} for container in pod.spec.containers]


def _plan(
    program: str, cluster: Cluster, vpas: Sequence[PlannedVPA], changed: dict[str, Pod], now: Moment
) -> VPARoundPlan:
    """Build the plan of ``program``, with the effect of the ``changed`` pods (by ``namespace/name``) on nodes."""
    effect = compare_packing(cluster, lambda pod: changed.get(pod.key, pod))
    anew = _put_anew(cluster, changed)
    return VPARoundPlan(now=to_text(now, fraction=True), program=program, vpas=vpas, effect=effect, anew=anew)


def _put_anew(cluster: Cluster, changed: dict[str, Pod]) -> PutAnew:
    """Schedule the ``changed`` pods (by ``namespace/name``) again, one after the other, and report which do not fit.

    Pods of DaemonSets and mirror pods stay on their nodes.
    """
    after = cluster.copy()
    pending: list[str] = []
    for pod in changed.values():
        if is_daemonset_pod(pod) or is_mirror_pod(pod):
            after.apply(pod)
        else:
            after.apply(make_pending(pod))
            pending.append(pod.key)
    if not pending:
        return PutAnew()
    result = place(after.snapshot(), pending)
    return PutAnew(placed=result.placed_count, waiting=sorted(result.unschedulable))
