"""State of the recommender: linked pods, VPAs and aggregates, aggregates merged per container name, and garbage
collection.

Upstream: ``pkg/recommender/model/cluster.go``.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kscale.effects import SECOND, ZERO_TIME, GetScale, Moment, Progress, StepsOf
from kscale.objects.api.meta import KubeObject
from kscale.objects.api.vpa import ContainerPolicies, TargetReference, VerticalPodAutoscaler, container_policy
from kscale.objects.pod_metrics import JoinedLists, runs_of
from kscale.objects.selectors import LabelIndex, Selector, SelectorIndex
from kscale.objects.times import virtual_moment
from kscale.vpa.controllers import ControllerKey, Controllers, TargetError
from kscale.vpa.model.aggregates import Aggregate, AggregateKey, AggregateStore, update_from_policy
from kscale.vpa.model.usage import ContainerName
from kscale.vpa.model.vpa import ContainerState, LabelSet, PodKey, PodState, Vpa, format_labels, update_from_object
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.target import find_topmost_controller_steps

__all__ = [
    "GC_INTERVAL",
    "ContainerSlotCache",
    "MergedContainers",
    "RecommenderState",
    "VpaContainerSlots",
    "VpaKey",
    "collect_garbage_steps",
    "merge_containers",
]


_NUMBER_BITS: Final = 32
_MIN_FORGOTTEN: Final = 1024
_Names = Sequence[ContainerName]
_PackedSlots = npt.NDArray[np.int64]
_EMPTY: Final = np.empty(0, np.int64)


class ContainerSlotCache:
    """Cache of container slots by name, until they may have moved.

    ``aggregates``: aggregates that a cached container feeds or fed, by number. The last joined lists are cached, so
    that only containers that moved are looked up again.
    """

    __slots__ = ("_known", "_last", "_moved", "_numbers", "aggregates")

    def __init__(self) -> None:
        self._known: dict[ContainerName, int] = {}  # the slot in the upper half, the number in the lower
        self._last: tuple[JoinedLists[ContainerName], _PackedSlots] = (
            JoinedLists([]),
            _EMPTY,
        )  # the joined lists, and the last result
        self._moved: list[int] = []  # slots of containers removed since then
        self._numbers: dict[int, int] = {}
        self.aggregates: list[Aggregate] = []

    def look_up(self, names: _Names) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Return the slot of each container and the index of its aggregate (int32), -1 if unknown."""
        packed = self._look_up_joined(names) if isinstance(names, JoinedLists) else self._look_up(names)
        return (packed >> _NUMBER_BITS).astype(np.int32), packed.astype(np.int32)

    def _look_up(self, names: _Names) -> _PackedSlots:
        """Return slot and aggregate number of each container, packed in one number; -1 if unknown."""
        return np.fromiter(map(self._known.get, names, repeat(-1)), np.int64, len(names))

    def _look_up_joined(self, names: JoinedLists[ContainerName]) -> _PackedSlots:
        """Look up joined lists like ``_look_up``. Results of lists that the last call looked up, too, are reused."""
        before, previous = self._last
        pieces = [_EMPTY]
        for run in runs_of(names.parts, before.parts):
            if run.before < 0:
                pieces += map(self._look_up, names.parts[run.first : run.end])
            else:
                last = run.before + run.end - run.first - 1
                pieces.append(previous[before.ends[run.before] - len(before.parts[run.before]) : before.ends[last]])
        packed = np.concatenate(pieces)
        is_stale = packed < 0
        if self._moved:
            is_stale |= np.isin(packed >> _NUMBER_BITS, self._moved)
        for i in np.flatnonzero(is_stale).tolist():
            packed[i] = self._known.get(names[i], -1)
        self._last, self._moved = (names, packed), []
        return packed

    def insert(self, name: ContainerName, slot: int, aggregate: Aggregate) -> int:
        """Store a container's slot. Returns the index of its aggregate in ``aggregates``."""
        number = self._numbers.setdefault(id(aggregate), len(self.aggregates))
        if number == len(self.aggregates):
            self.aggregates.append(aggregate)
        self._known[name] = slot << _NUMBER_BITS | number
        return number

    def forget(self, names: Iterable[ContainerName]) -> None:
        """Drop the cached slots of containers that were removed or may have moved."""
        for name in names:
            slot = self._known.pop(name, None)
            if slot is not None and len(self._last[1]):
                self._moved.append(slot >> _NUMBER_BITS)
        if len(self._moved) > _MIN_FORGOTTEN + len(self._known):  # too many removals, so drop the cache
            self._last, self._moved = (JoinedLists([]), _EMPTY), []

    def forget_all(self) -> None:
        """Drop all cached slots, as any container may now feed another aggregate."""
        self._known, self._numbers, self.aggregates = {}, {}, []
        self._last, self._moved = (JoinedLists([]), _EMPTY), []


MISSING_RECOMMENDATION_TIMEOUT: Final = 30 * 60 * SECOND
VpaKey = tuple[str, str]
"""(namespace, name)."""


class VpaContainerSlots(NamedTuple):
    """Container slots of VPAs. ``slot`` int64[n]; ``name`` int64[n]: index of the container's name in ``names``."""

    slot: npt.NDArray[np.int64]
    name: npt.NDArray[np.int64]
    names: list[str]


class RecommenderState:
    """Pods, VPAs and aggregates, changed in place. Not safe for concurrent use.

    - ``options``: options of the recommender; ``threads``: threads of the kernels, without effect on results.
    - ``pods``, ``vpas``, ``aggregates``: by (namespace, name) and by key; ``observed``: the VPAs of the last list that
      this recommender manages, in list order; ``store``: the columns behind aggregates and containers.
    - ``unselected_pods``: with ``memory_saver``, pods that no VPA selects, with the sources of their resources;
      ``pods_loaded``: whether pods have been loaded at least once.
    - ``last_gc``, ``last_checkpoint_gc``: when aggregates and checkpoints were last collected.

    :func:`~kscale.vpa.save_state` and :func:`~kscale.vpa.load_state` preserve it exactly, and
    :func:`~kscale.vpa.fork_state` makes an independent copy.
    """

    def __init__(self, options: RecommenderOptions | None = None, *, threads: int = 1) -> None:
        self.options = options or RecommenderOptions()
        self.threads = threads
        self.store = AggregateStore(self.options)
        self.pods: dict[PodKey, PodState] = {}
        self.vpas: dict[VpaKey, Vpa] = {}
        self.aggregates: dict[AggregateKey, Aggregate] = {}
        self.observed: list[VpaKey] = []
        self.without_recommendation: dict[VpaKey, Moment] = {}
        self.unselected_pods: dict[PodKey, tuple[str, ...]] = {}
        self.pods_loaded = False
        self.last_gc: Moment = 0
        self.last_checkpoint_gc: Moment = ZERO_TIME
        self.placement_version = 0
        """Number that changes whenever a container may feed another aggregate."""
        self.link_version = 0
        """Number that changes whenever an aggregate is linked to a VPA, or removed."""
        self.resolved_containers: Any = None
        """Containers of the last usage, resolved by :func:`~kscale.vpa.model.add_samples.add_usage`."""
        self.merge_plans: list[Any] = []
        """Plans of the last merges of lists of VPAs."""
        self.cached_recommendations: Any = None
        """The last recommendations, cached by the estimators."""
        self.container_slots = ContainerSlotCache()
        self.controllers_version: tuple[object, ...] | None = None
        """:attr:`kscale.vpa.controllers.Controllers.version` when VPAs were last loaded; None if it is unknown."""
        self.targets: dict[VpaKey, tuple[TargetReference, KubeObject, Selector]] = {}
        """Targets of VPAs with the target object and its selector."""
        self._slots: dict[Vpa, VpaContainerSlots] = {}  # until a container of the VPA changes
        self._sources: Counter[tuple[str, ...]] = Counter()
        self._same: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._label_sets: dict[tuple[str, str], LabelSet] = {}
        self._set_index: LabelIndex[LabelSet] = LabelIndex()
        self._vpa_index: SelectorIndex[Vpa] = SelectorIndex()

    def __repr__(self) -> str:
        counts = f"{len(self.pods)} pods, {len(self.vpas)} VPAs, {len(self.aggregates)} aggregates"
        return f"<RecommenderState: {counts}>"

    # -- label sets ---------------------------------------------------------------------------------------------

    def label_set(self, namespace: str, labels: Mapping[str, str]) -> LabelSet:
        """Return the label set of a namespace with these labels.

        A new one is created if needed, and linked to the VPAs that select it.
        """
        key = format_labels(labels)
        label_set = self._label_sets.get((namespace, key))
        if label_set is None:
            label_set = self._label_sets[namespace, key] = LabelSet(namespace, dict(labels), key)
            self._set_index.add(namespace, label_set.labels, label_set)
            for vpa in self._vpa_index.matching(namespace, label_set.labels):
                self._link_label_set(vpa, label_set)
        return label_set

    def _link_label_set(self, vpa: Vpa, label_set: LabelSet) -> None:
        """Link a label set to a VPA that selects it."""
        insort(label_set.vpas, vpa.name)
        vpa.label_sets[label_set.key] = label_set
        self._slots.pop(vpa, None)

    def _delete_if_unused(self, label_set: LabelSet) -> None:
        """Delete a label set if it has neither pods nor aggregates."""
        if label_set.pods or label_set.aggregates:
            return
        del self._label_sets[label_set.namespace, label_set.key]
        self._set_index.remove(label_set.namespace, label_set.labels, label_set)
        for vpa in self.vpas_of(label_set):
            del vpa.label_sets[label_set.key]

    def vpas_of(self, label_set: LabelSet) -> list[Vpa]:
        """Return the VPAs that select ``label_set``, by name."""
        return [self.vpas[label_set.namespace, name] for name in label_set.vpas]

    def selecting(self, namespace: str, pod: str, labels: Mapping[str, str] | None) -> list[Vpa]:
        """Return the VPAs that select a pod, by name.

        A pod that the state does not contain is matched by ``labels`` (None: no VPA selects it).
        """
        pod_state = self.pods.get((namespace, pod))
        if pod_state is not None:
            return self.vpas_of(pod_state.label_set)
        if labels is None:
            return []
        return sorted(self._vpa_index.matching(namespace, labels), key=attrgetter("name"))

    def is_selected(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Check whether any VPA selects pods with these labels."""
        return next(self._vpa_index.matching(namespace, labels), None) is not None

    # -- pods ---------------------------------------------------------------------------------------------------

    def matching_pods(self, vpa: Vpa) -> list[PodState]:
        """Return the pods that a VPA selects, by name."""
        pods = chain.from_iterable(label_set.pods.values() for label_set in vpa.label_sets.values())
        return sorted(pods, key=attrgetter("name"))

    def slots_of(self, vpa: Vpa) -> VpaContainerSlots:
        """Return the store's slots of the containers that feed a VPA's aggregates, sorted by pod name."""
        cached = self._slots.get(vpa)
        if cached is None:
            slots: list[int] = []
            number: list[int] = []
            names: dict[str, int] = {}
            for pod in self.matching_pods(vpa):
                aggregates, containers = pod.label_set.aggregates, pod.containers
                for name in containers:
                    if name in aggregates:
                        slots.append(containers[name].slot)
                        number.append(names.setdefault(name, len(names)))
            cached = VpaContainerSlots(np.array(slots, np.int64), np.array(number, np.int64), list(names))
            self._slots[vpa] = cached
        return cached

    def _mark_changed(self, label_set: LabelSet) -> None:
        """Mark a label set as changed: its containers may feed other aggregates than before."""
        self.placement_version += 1
        if self._slots:
            for name in label_set.vpas:
                self._slots.pop(self.vpas[label_set.namespace, name], None)

    def _mark_containers_changed(self, pod: PodState) -> None:
        """Mark a pod's containers as changed: they may have other slots or aggregates than before."""
        self._mark_changed(pod.label_set)
        self.container_slots.forget((pod.namespace, pod.name, container) for container in pod.containers)

    def clock_set(self, by: int) -> None:
        """Shift the stored times by ``by`` nanoseconds after the clock was set, so that remaining waits stay equal.

        These are the times of the last garbage collections, and since when VPAs have no recommendation. Times of
        samples do not change.
        """
        self.without_recommendation = {key: at + by for key, at in self.without_recommendation.items()}
        self.last_gc += by
        if self.last_checkpoint_gc != ZERO_TIME:
            self.last_checkpoint_gc += by

    def add_pod(
        self, namespace: str, name: str, labels: Mapping[str, str], phase: str, now: datetime | Moment
    ) -> PodState:
        """Add or update a pod with its labels and phase, and return its state (upstream's ``AddOrUpdatePod``).

        If the labels of a known pod have changed, its containers are linked to the aggregates of the new labels.
        ``now``: creation time of aggregates that are new.
        """
        time = virtual_moment(now)
        pod = self.pods.get((namespace, name))
        if pod is None:
            label_set = self.label_set(namespace, labels)
            pod = self.pods[namespace, name] = PodState(name, label_set)
            self._mark_changed(label_set)
            self._update_membership(pod, 1)
        elif pod.labels != labels:
            old, label_set = pod.label_set, self.label_set(namespace, labels)
            self._mark_containers_changed(pod)
            self._update_membership(pod, -1)
            pod.label_set = label_set
            self._mark_changed(label_set)
            self._update_membership(pod, 1)
            for container, state in pod.containers.items():
                self._unbind(state)
                # Upstream binds the container to the aggregate itself here, no longer through its key.
                state.bound = self.find_or_create(pod, container, time)
                state.bound.bound += 1
            self._delete_if_unused(old)
        pod.phase = phase
        return pod

    def _update_membership(self, pod: PodState, by: int) -> None:
        """Add a pod to its label set (``by`` 1) or remove it (-1), and update the VPAs' numbers of pods."""
        if by > 0:
            pod.label_set.pods[pod.name] = pod
        else:
            del pod.label_set.pods[pod.name]
        for vpa in self.vpas_of(pod.label_set):
            vpa.pod_count += by

    def add_container(self, pod: PodState, name: str, now: datetime | Moment) -> None:
        """Add a container to a pod, unless the pod has it (upstream's ``AddOrUpdateContainer``).

        ``now``: creation time of its aggregate, if this is new.
        """
        time = virtual_moment(now)
        if name not in pod.containers:
            self._mark_changed(pod.label_set)
            self.find_or_create(pod, name, time)
            pod.containers[name] = ContainerState(self.store.take_slot())

    def set_init_containers(self, pod: PodState, names: frozenset[str]) -> None:
        """Set the names of a pod's init containers, whose usage is ignored."""
        if names != pod.init_containers:
            self._mark_containers_changed(pod)
            pod.init_containers = names

    def delete_pod(self, key: PodKey) -> None:
        """Delete a pod if it exists (upstream's ``DeletePod``). The aggregates of its labels stay."""
        pod = self.pods.pop(key, None)
        if pod is None:
            return
        self._mark_containers_changed(pod)
        self.set_sources(pod, ())
        self._update_membership(pod, -1)
        for state in pod.containers.values():
            self._unbind(state)
            self.store.give_slot(state.slot)
        self._delete_if_unused(pod.label_set)

    def _unbind(self, state: ContainerState) -> None:
        """Remove a container's direct link to an aggregate. The last link of a removed aggregate releases its row."""
        old = state.bound
        if old is None:
            return
        state.bound = None
        old.bound -= 1
        if not old.alive and old.bound == 0:
            self.store.give_row(old.row)

    def find_or_create(self, pod: PodState, container: str, now: datetime | Moment) -> Aggregate:
        """Return the aggregate of a pod's container.

        If there is none, one is created at the time ``now`` and linked to the VPAs that select it.
        """
        time = virtual_moment(now)
        label_set = pod.label_set
        aggregate = label_set.aggregates.get(container)
        if aggregate is None:
            key = AggregateKey(label_set.namespace, container, label_set.key)
            aggregate = Aggregate(key, self.store.take_row(), time, label_set.labels)
            self.adopt(aggregate, label_set)
            for vpa in self.vpas_of(label_set):
                self._link(vpa, aggregate)
        return aggregate

    def adopt(self, aggregate: Aggregate, label_set: LabelSet) -> None:
        """Add an aggregate to the state, as one of ``label_set``."""
        self._mark_changed(label_set)
        self.aggregates[aggregate.key] = aggregate
        label_set.aggregates[aggregate.key.container] = aggregate

    # -- resource sources ---------------------------------------------------------------------------------------

    def set_sources(self, pod: PodState, sources: tuple[str, ...]) -> None:
        """Store where upstream reads the resources of a pod: ``sources``, one text for each container."""
        if sources == pod.sources:
            return
        if pod.sources:
            self._sources[pod.sources] -= 1
            if not self._sources[pod.sources]:
                del self._sources[pod.sources], self._same[pod.sources]
        pod.sources = self._same.setdefault(sources, sources) if sources else ()
        if sources:
            self._sources[sources] += 1

    def sources(self) -> Counter[str]:
        """Return how often each source of resources is read in a loop: once per container of each listed pod."""
        counts: Counter[str] = Counter()
        for sources, pods in self._sources.items():
            for source in sources:
                counts[source] += pods
        for sources in self.unselected_pods.values():
            counts.update(sources)
        return counts

    # -- VPAs ---------------------------------------------------------------------------------------------------

    def _link(self, vpa: Vpa, aggregate: Aggregate) -> None:
        """Link an aggregate to a VPA, unless it is linked (upstream's ``UseAggregationIfMatching``)."""
        if aggregate.key in vpa.aggregates:
            return
        self.link_version += 1
        vpa.aggregates[aggregate.key] = aggregate
        aggregate.is_under_vpa = True
        aggregate.update_mode = vpa.update_mode
        update_from_policy(self.store, aggregate, container_policy(aggregate.key.container, vpa.resource_policy))

    def add_vpa(self, item: VerticalPodAutoscaler, selector: Selector) -> Vpa:
        """Add or update the VPA ``item``, and return its state (upstream's ``AddOrUpdateVpa``).

        A VPA whose selector changed is deleted first, with its loaded checkpoints.
        """
        key = (item.metadata.namespace, item.metadata.name)
        vpa = self.vpas.get(key)
        if vpa is not None and vpa.selector is not selector and vpa.selector_text != str(selector):
            self.delete_vpa(key)
            vpa = None
        if vpa is None:
            vpa = Vpa(*key, selector)
            self.enter(vpa)
            for label_set in vpa.label_sets.values():
                vpa.pod_count += len(label_set.pods)
                for aggregate in label_set.aggregates.values():
                    self._link(vpa, aggregate)
        update_from_object(vpa, item)
        update = item.spec.update_policy
        is_new_policy, mode = update is None or update is not vpa.update_policy, None
        if is_new_policy:
            mode, vpa.update_policy = vpa.update_mode, update
        if is_new_policy and (update is None or mode is not None or update.update_mode is not None):
            for aggregate in vpa.aggregates.values():
                aggregate.update_mode = vpa.update_mode
        policy = item.spec.resource_policy
        if policy is not vpa.resource_policy:
            vpa.resource_policy = policy
            policies = ContainerPolicies(policy)
            for aggregate in vpa.aggregates.values():
                update_from_policy(self.store, aggregate, policies.get(aggregate.key.container))
        return vpa

    def enter(self, vpa: Vpa) -> None:
        """Register a VPA, and link it to the label sets that it selects."""
        self.vpas[vpa.key] = vpa
        self.merge_plans = []
        self._vpa_index.add(vpa.namespace, vpa.selector, vpa)
        for label_set in self._set_index.matching(vpa.namespace, vpa.selector):
            self._link_label_set(vpa, label_set)

    def delete_vpa(self, key: VpaKey) -> None:
        """Delete the VPA ``key``, which must exist, with its loaded checkpoints (upstream's ``DeleteVpa``).

        Its aggregates stay and are no longer under a VPA.
        """
        vpa = self.vpas.pop(key)
        self.merge_plans, self.cached_recommendations = [], None
        self.targets.pop(key, None)
        self._vpa_index.remove(vpa.namespace, vpa.selector, vpa)
        for label_set in vpa.label_sets.values():
            label_set.vpas.remove(vpa.name)
        for aggregate in vpa.aggregates.values():
            aggregate.mark_not_autoscaled()
        for state in vpa.initial_states.values():
            self.store.give_row(state.row)
        self.without_recommendation.pop(key, None)
        self._slots.pop(vpa, None)

    def observed_vpas(self) -> Iterator[Vpa]:
        """Return the VPAs of the last list that still exist, in its order."""
        return (self.vpas[key] for key in self.observed if key in self.vpas)

    def record_recommendation(self, vpa: Vpa, now: datetime | Moment) -> str:
        """Record whether a VPA has a recommendation (upstream's ``RecordRecommendation``).

        Returns a message if it has had none for more than half an hour since the first record or the last message, else
        an empty string.
        """
        time = virtual_moment(now)
        if vpa.has_recommendation:
            self.without_recommendation.pop(vpa.key, None)
            return ""
        last = self.without_recommendation.get(vpa.key)
        if last is None:
            self.without_recommendation[vpa.key] = time
        elif last + MISSING_RECOMMENDATION_TIMEOUT < time:
            self.without_recommendation[vpa.key] = time
            return f"VPA {vpa.namespace}/{vpa.name} is missing recommendation for more than 30m0s"
        return ""

    # -- garbage ------------------------------------------------------------------------------------------------

    def remove_aggregate(self, aggregate: Aggregate) -> None:
        """Remove an aggregate from the state and from all VPAs.

        Containers that are linked to it directly still feed it.
        """
        key = aggregate.key
        del self.aggregates[key]
        label_set = self._label_sets[key.namespace, key.labels]
        self._mark_changed(label_set)
        self.link_version += 1
        self.container_slots.forget_all()
        del label_set.aggregates[key.container]
        for vpa in self.vpas_of(label_set):
            if vpa.aggregates.pop(key, None) is not None:
                aggregate.mark_not_autoscaled()
        aggregate.alive = False
        if aggregate.bound == 0:
            self.store.give_row(aggregate.row)
        self._delete_if_unused(label_set)


_MAX_CACHED_PLANS: Final = 8
"""Number of lists of VPAs whose merge is cached."""


class MergedContainers(NamedTuple):
    """Merged aggregates of containers. Row *i* of ``store`` belongs to ``names[i]``: a VPA and one of its container
    names. ``names`` is the identical list object while the same containers of the same VPAs are merged.
    """

    names: Sequence[tuple[Vpa, str]]
    store: AggregateStore


class _MergePlan(NamedTuple):
    """How to merge the aggregates of ``vpas`` by container name: row ``rows[i]`` of the store into row ``into[i]``.

    Merged row *i* belongs to ``names[i]``: a VPA and one of its container names. The plan is valid while no aggregate
    is linked to a VPA or removed (``link_version``).
    """

    vpas: list[Vpa]
    link_version: int
    names: list[tuple[Vpa, str]]
    into: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]


def merge_containers(state: RecommenderState, vpas: Iterable[Vpa]) -> MergedContainers:
    """Merge the aggregates of VPAs by container name (upstream's ``AggregateStateByContainerName``).

    Aggregates are merged in the order of their keys, then the initial states from checkpoints. As upstream, a merge may
    shift the reference times of the aggregates in ``state``.
    """
    names, into, rows = _get_merge_plan(state, list(vpas))[2:]
    store = AggregateStore(state.options, len(names))
    store.merge(into, state.store, rows)
    return MergedContainers(names, store)


def _get_merge_plan(state: RecommenderState, vpas: list[Vpa]) -> _MergePlan:
    """Return the plan to merge the aggregates of ``vpas``, from the cache if possible.

    A cached plan is valid until an aggregate is linked to a VPA or removed. Plans of VPAs with initial states (from
    checkpoints) are not cached.
    """
    known: list[_MergePlan] = [plan for plan in state.merge_plans if plan.link_version == state.link_version]
    for plan in known:
        if plan.vpas == vpas:
            return plan
    plan = _build_merge_plan(state, vpas)
    for other in state.merge_plans:
        if other.vpas == vpas and other.names == plan.names:
            plan = plan._replace(names=other.names)  # callers recognize the list
    if not any(vpa.initial_states for vpa in vpas):  # initial states may be replaced
        known = [plan, *known[: _MAX_CACHED_PLANS - 1]]
    state.merge_plans = known
    return plan


def _build_merge_plan(state: RecommenderState, vpas: list[Vpa]) -> _MergePlan:
    """Build the plan to merge the aggregates of each VPA by container name.

    Merges are ordered: first the aggregates, sorted by key, then the initial states (from checkpoints), sorted by
    container name.
    """
    names: list[tuple[Vpa, str]] = []
    into: list[int] = []
    rows: list[int] = []
    for vpa in vpas:
        local: dict[str, int] = {}
        own = vpa.aggregates.items() if len(vpa.aggregates) < 2 else sorted(vpa.aggregates.items(), key=_get_key)
        parts = [(key.container, aggregate.row) for key, aggregate in own]
        if vpa.initial_states:
            parts += [(name, vpa.initial_states[name].row) for name in sorted(vpa.initial_states)]
        for name, row in parts:
            if name not in local:
                local[name] = len(names)
                names.append((vpa, name))
            into.append(local[name])
            rows.append(row)
    return _MergePlan(vpas, state.link_version, names, np.array(into, np.int64), np.array(rows, np.int64))


def _get_key(item: tuple[tuple[str, str, str], object]) -> tuple[str, str, str]:
    """Return the key of an item of ``Vpa.aggregates``, by which merges are ordered."""
    return item[0]


GC_INTERVAL: Final = 3600 * SECOND


def collect_garbage_steps(
    state: RecommenderState, controllers: Controllers, progress: Progress
) -> StepsOf[GetScale, list[AggregateKey]]:
    """Remove unused aggregates at most once an hour, and return their keys in order; empty if it is not yet due.

    Unused are expired aggregates, and those without CPU samples that can get none any more. Upstream:
    ``RateLimitedGarbageCollectAggregateCollectionStates``.
    """
    now = progress.now
    if now - state.last_gc < GC_INTERVAL:
        return []
    state.last_gc = now
    contributive = yield from _find_contributive_steps(state, controllers, progress)
    return _remove_aggregates(state, contributive, now)


def _remove_aggregates(state: RecommenderState, contributive: set[AggregateKey], now: Moment) -> list[AggregateKey]:
    """Remove expired aggregates, and those without CPU samples that are not in ``contributive``.

    Returns the removed keys, sorted.
    """
    removed = []
    for key in sorted(state.aggregates):
        aggregate = state.aggregates[key]
        useless = key not in contributive and aggregate.is_empty(state.store)
        if useless or aggregate.is_expired(state.store, now):
            removed.append(key)
            state.remove_aggregate(aggregate)
    return removed


def _find_contributive_steps(
    state: RecommenderState, controllers: Controllers, progress: Progress
) -> StepsOf[GetScale, set[AggregateKey]]:
    """Return the keys of aggregates that can still get samples.

    These are the aggregates of an active pod, and of a pod whose VPA's target exists.
    """
    alive: dict[VpaKey, bool] = {}
    keys: set[AggregateKey] = set()
    seen: dict[LabelSet, set[str]] = {}  # equivalent pods are checked once
    for pod in state.pods.values():
        if not pod.active and not (yield from _has_controller_steps(state, pod, controllers, progress, alive)):
            continue
        seen_containers = seen.get(pod.label_set)
        if seen_containers is None:
            seen_containers = seen[pod.label_set] = set()
        elif pod.containers.keys() <= seen_containers:
            continue
        seen_containers.update(pod.containers)
        keys.update(AggregateKey(pod.namespace, container, pod.label_key) for container in pod.containers)
    return keys


def _has_controller_steps(
    state: RecommenderState, pod: PodState, controllers: Controllers, progress: Progress, known: dict[VpaKey, bool]
) -> StepsOf[GetScale, bool]:
    """Check whether the target of the first VPA that selects a pod has a topmost controller.

    False without such a VPA, and if an owner cannot be resolved. ``known``: cache by VPA, which is read and filled.
    """
    vpas = state.vpas_of(pod.label_set)
    if not vpas or vpas[0].target is None:
        return False
    vpa, target = vpas[0], vpas[0].target
    if vpa.key not in known:
        key = ControllerKey(vpa.namespace, target.kind, target.name, target.api_version)
        try:
            known[vpa.key] = (yield from find_topmost_controller_steps(key, controllers, progress)) is not None
        except TargetError:
            known[vpa.key] = False
    return known[vpa.key]
