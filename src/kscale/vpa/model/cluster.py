"""The recommender's model of a cluster (upstream: ``pkg/recommender/model/cluster.go``)."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kscale._native import _histogram
from kscale.objects.selectors import Selector
from kscale.objects.vpa import VerticalPodAutoscaler, container_policy
from kscale.vpa.controllers import ControllerKey, Controllers, TargetError
from kscale.vpa.model import intake
from kscale.vpa.model.aggregates import Aggregate, AggregateKey, Store
from kscale.vpa.model.intake import UsageError
from kscale.vpa.model.label_index import LabelIndex, SelectorIndex
from kscale.vpa.model.usage import ContainerName, Usage
from kscale.vpa.model.vpa import Vpa, observe
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.quality import Quality
from kscale.vpa.target import topmost

__all__ = ["ClusterState", "ContainerState", "PodState", "label_string"]

GC_INTERVAL: Final = 3600 * 10**9
MISSING_RECOMMENDATION_PERIOD: Final = 30 * 60 * 10**9
_INACTIVE: Final = frozenset({"Succeeded", "Failed"})
PodKey = tuple[str, str]


def label_string(labels: Mapping[str, str]) -> str:
    """Labels in the form that identifies an aggregate."""
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


@dataclass(slots=True)
class ContainerState:
    """A container: its slot in the store, its request (millicores, bytes), and the aggregate it is bound to.

    None stands for "whatever its key leads to", looked up anew for each sample.
    """

    slot: int
    request: tuple[int, int] = (0, 0)
    bound: Aggregate | None = None


@dataclass(slots=True)
class PodState:
    """A pod."""

    namespace: str
    name: str
    labels: dict[str, str]
    label_key: str
    phase: str = ""
    containers: dict[str, ContainerState] = field(default_factory=dict)
    init_containers: frozenset[str] = frozenset()


class ClusterState:
    """Pods, VPAs and aggregates. Changed in place; :meth:`fork` makes an independent copy."""

    def __init__(self, options: RecommenderOptions | None = None, *, threads: int = 1) -> None:
        self.options = options or RecommenderOptions()
        self.threads = threads
        self.store = Store(self.options)
        self.pods: dict[PodKey, PodState] = {}
        self.vpas: dict[tuple[str, str], Vpa] = {}
        self.aggregates: dict[AggregateKey, Aggregate] = {}
        self.without_recommendation: dict[tuple[str, str], int] = {}
        self.last_gc = 0
        self._pod_index: LabelIndex[PodState] = LabelIndex()
        self._aggregate_index: LabelIndex[Aggregate] = LabelIndex()
        self._vpa_index: SelectorIndex[Vpa] = SelectorIndex()

    def save(self) -> bytes:
        """The state as bytes, exact; :meth:`load` reads them."""
        from kscale.vpa.model.saved import save_state

        return save_state(self)

    @staticmethod
    def load(data: bytes, *, threads: int = 1) -> ClusterState:
        """A saved state; raises :class:`kscale.errors.StateError`."""
        from kscale.vpa.model.saved import load_state

        return load_state(data, threads=threads)

    def fork(self) -> ClusterState:
        """An independent copy, for what-if."""
        other = ClusterState(self.options, threads=self.threads)
        memo: dict[int, object] = {}
        other.store = Store.__new__(Store)
        for name, value in vars(self.store).items():
            copied = None if name == "_native" else value if name == "options" else copy.deepcopy(value, memo)
            setattr(other.store, name, copied)
        other.aggregates = copy.deepcopy(self.aggregates, memo)
        other.pods = copy.deepcopy(self.pods, memo)
        other.vpas = copy.deepcopy(self.vpas, memo)
        other.without_recommendation = dict(self.without_recommendation)
        other.last_gc = self.last_gc
        other.reindex()
        return other

    def reindex(self) -> None:
        """Build the look-up tables from what is there."""
        self._pod_index, self._aggregate_index, self._vpa_index = LabelIndex(), LabelIndex(), SelectorIndex()
        for pod in self.pods.values():
            self._pod_index.add(pod.namespace, pod.labels, pod)
        for aggregate in self.aggregates.values():
            self._aggregate_index.add(aggregate.key.namespace, aggregate.labels, aggregate)
        for vpa in self.vpas.values():
            self._vpa_index.add(vpa.namespace, vpa.selector, vpa)

    # -- pods ---------------------------------------------------------------------------------------------------

    def matching_vpas(self, namespace: str, labels: Mapping[str, str]) -> list[Vpa]:
        """The VPAs whose selector matches, by name. Upstream walks a map; this order is the canonical one."""
        return sorted(self._vpa_index.matching(namespace, labels), key=lambda vpa: vpa.name)

    def matching_pods(self, vpa: Vpa) -> list[PodState]:
        """The pods that a VPA selects, by name."""
        return sorted(self._pod_index.matching(vpa.namespace, vpa.selector), key=lambda pod: pod.name)

    def add_pod(self, namespace: str, name: str, labels: Mapping[str, str], phase: str, now: int) -> PodState:
        """``AddOrUpdatePod``."""
        pod = self.pods.get((namespace, name))
        key = label_string(labels)
        if pod is None:
            pod = self.pods[namespace, name] = PodState(namespace, name, dict(labels), key)
        elif pod.label_key != key:
            self._count_pod(pod, -1)
            self._pod_index.remove(namespace, pod.labels, pod)
            pod.labels, pod.label_key = dict(labels), key
            for container, state in pod.containers.items():
                self._unbind(state)
                # Upstream binds the container to the aggregate itself here, no longer through its key.
                state.bound = self.find_or_create(pod, container, now)
                state.bound.bound += 1
        else:
            pod.phase = phase
            return pod
        self._pod_index.add(namespace, pod.labels, pod)
        self._count_pod(pod, 1)
        pod.phase = phase
        return pod

    def _count_pod(self, pod: PodState, by: int) -> None:
        for vpa in self._vpa_index.matching(pod.namespace, pod.labels):
            vpa.pod_count += by

    def add_container(self, pod: PodState, name: str, request: tuple[int, int], now: int) -> None:
        """``AddOrUpdateContainer``."""
        state = pod.containers.get(name)
        if state is None:
            self.find_or_create(pod, name, now)
            pod.containers[name] = ContainerState(self.store.take_slot(), request)
        else:
            state.request = request

    def delete_pod(self, key: PodKey) -> None:
        """``DeletePod``."""
        pod = self.pods.pop(key)
        self._pod_index.remove(pod.namespace, pod.labels, pod)
        self._count_pod(pod, -1)
        for state in pod.containers.values():
            self._unbind(state)
            self.store.give_slot(state.slot)

    def _unbind(self, state: ContainerState) -> None:
        old = state.bound
        if old is None:
            return
        state.bound = None
        old.bound -= 1
        if not old.alive and old.bound == 0:
            self.store.give_row(old.row)

    def find_or_create(self, pod: PodState, container: str, now: int) -> Aggregate:
        """The aggregate of a pod's container; a new one is offered to all VPAs."""
        key = AggregateKey(pod.namespace, container, pod.label_key)
        found = self.aggregates.get(key)
        if found is None:
            found = Aggregate(key, self.store.take_row(), now, pod.labels)
            self.aggregates[key] = found
            self._aggregate_index.add(key.namespace, found.labels, found)
            for vpa in self.matching_vpas(key.namespace, found.labels):
                self._link(vpa, found)
        return found

    # -- VPAs ---------------------------------------------------------------------------------------------------

    def _link(self, vpa: Vpa, aggregate: Aggregate) -> None:
        """``UseAggregationIfMatching`` for a match."""
        if aggregate.key in vpa.aggregates:
            return
        vpa.aggregates[aggregate.key] = aggregate
        aggregate.is_under_vpa = True
        aggregate.update_mode = vpa.update_mode
        self.store.apply_policy(aggregate, container_policy(aggregate.key.container, vpa.resource_policy))

    def add_vpa(self, item: VerticalPodAutoscaler, selector: Selector) -> Vpa:
        """``AddOrUpdateVpa``. A VPA whose selector changed is forgotten first, its loaded checkpoints included."""
        key = (item.namespace, item.name)
        vpa = self.vpas.get(key)
        if vpa is not None and str(vpa.selector) != str(selector):
            self.delete_vpa(key)
            vpa = None
        if vpa is None:
            vpa = self.vpas[key] = Vpa(item.namespace, item.name, selector)
            self._vpa_index.add(vpa.namespace, selector, vpa)
            for aggregate in self._aggregate_index.matching(vpa.namespace, selector):
                self._link(vpa, aggregate)
            vpa.pod_count = sum(1 for _ in self._pod_index.matching(vpa.namespace, selector))
        observe(vpa, item)
        policy = item.spec.resource_policy
        if policy is not vpa.resource_policy:
            vpa.resource_policy = policy
            for aggregate in vpa.aggregates.values():
                self.store.apply_policy(aggregate, container_policy(aggregate.key.container, policy))
        mode = item.spec.update_policy.update_mode if item.spec.update_policy is not None else None
        if mode != vpa.update_mode:
            vpa.update_mode = mode
            for aggregate in vpa.aggregates.values():
                aggregate.update_mode = mode
        return vpa

    def delete_vpa(self, key: tuple[str, str]) -> None:
        """``DeleteVpa``: its aggregates are no longer under a VPA."""
        vpa = self.vpas.pop(key)
        self._vpa_index.remove(vpa.namespace, vpa.selector, vpa)
        for aggregate in vpa.aggregates.values():
            aggregate.mark_not_autoscaled()
        for state in vpa.initial_states.values():
            self.store.give_row(state.row)
        self.without_recommendation.pop(key, None)

    def record_recommendation(self, vpa: Vpa, now: int) -> str:
        """``RecordRecommendation``: a text when a VPA has gone without one for more than half an hour."""
        if vpa.has_recommendation:
            self.without_recommendation.pop(vpa.key, None)
            return ""
        last = self.without_recommendation.get(vpa.key)
        if last is None:
            self.without_recommendation[vpa.key] = now
        elif last + MISSING_RECOMMENDATION_PERIOD < now:
            self.without_recommendation[vpa.key] = now
            return f"VPA {vpa.namespace}/{vpa.name} is missing recommendation for more than 30m0s"
        return ""

    # -- usage --------------------------------------------------------------------------------------------------

    def add_usage(self, usage: Usage, now: int, quality: Quality | None = None) -> list[UsageError]:
        """Take in samples and OOMs in order; what is refused comes back, in order.

        Samples of init containers are dropped silently, as upstream does. ``quality`` is told how what was used
        compares with what was recommended.
        """
        return intake.add_usage(self, usage, now, quality)

    def slot_of(self, name: ContainerName, now: int) -> int:
        """Where the store keeps a container that takes samples, its aggregate in place; -1 if there is none."""
        return intake.slot_of(self, name, now)

    def feed(
        self,
        cpu: bool,
        series: npt.NDArray[np.int32],
        time: npt.NDArray[np.int64],
        values: npt.NDArray[np.float64],
        slots: npt.NDArray[np.int32],
        finite: npt.NDArray[np.int64],
        now: int,
    ) -> _histogram.Fed:
        """Rows of recorded usage, in cores or bytes, in order: :meth:`add_usage` without a record of each refusal.

        ``slots[s]``: of :meth:`slot_of`; -1 = of no container, counted in ``finite`` only; -2 = passed over.
        ``finite[s]`` gains the number of values that are numbers. Samples later than ``now`` are counted.
        """
        bank = self.store.cpu.native if cpu else self.store.memory.native
        return self.store.native.feed(bank, cpu, series, time, values, slots, finite, now, self.threads)

    def arranged(
        self,
        series: npt.NDArray[np.int32],
        time: npt.NDArray[np.int64],
        cpu: npt.NDArray[np.float64] | None,
        memory: npt.NDArray[np.float64] | None,
        slots: npt.NDArray[np.int32],
    ) -> (
        tuple[
            npt.NDArray[np.int32],
            npt.NDArray[np.int64],
            npt.NDArray[np.float64] | None,
            npt.NDArray[np.float64] | None,
        ]
        | None
    ):
        """Rows for :meth:`feed` by aggregates, those of each in their order; None where that is not worth it.

        The answer is the same, and histograms are fetched from memory once a batch, not once a row.
        """
        return self.store.native.arranged(series, time, cpu, memory, slots, self.threads)

    # -- garbage ------------------------------------------------------------------------------------------------

    def collect_garbage(self, now: int, controllers: Controllers) -> list[AggregateKey]:
        """``RateLimitedGarbageCollectAggregateCollectionStates``: at most hourly; what was removed comes back."""
        if now - self.last_gc < GC_INTERVAL:
            return []
        self.last_gc = now
        contributive = self._contributive(controllers)
        removed = []
        for key in sorted(self.aggregates):
            aggregate = self.aggregates[key]
            useless = key not in contributive and self.store.is_empty(aggregate)
            if useless or self.store.is_expired(aggregate, now):
                removed.append(key)
                self._remove(aggregate)
        return removed

    def _remove(self, aggregate: Aggregate) -> None:
        del self.aggregates[aggregate.key]
        self._aggregate_index.remove(aggregate.key.namespace, aggregate.labels, aggregate)
        for vpa in self.matching_vpas(aggregate.key.namespace, aggregate.labels):
            if vpa.aggregates.pop(aggregate.key, None) is not None:
                aggregate.mark_not_autoscaled()
        aggregate.alive = False
        if aggregate.bound == 0:
            self.store.give_row(aggregate.row)

    def _contributive(self, controllers: Controllers) -> set[AggregateKey]:
        """Aggregates that an active pod, or a pod whose VPA's target still exists, may feed."""
        alive: dict[tuple[str, str], bool] = {}
        keys: set[AggregateKey] = set()
        for pod in self.pods.values():
            if pod.phase in _INACTIVE and not self._controller_exists(pod, controllers, alive):
                continue
            keys.update(AggregateKey(pod.namespace, container, pod.label_key) for container in pod.containers)
        return keys

    def _controller_exists(self, pod: PodState, controllers: Controllers, known: dict[tuple[str, str], bool]) -> bool:
        vpas = self.matching_vpas(pod.namespace, pod.labels)
        if not vpas or vpas[0].target is None:
            return False
        vpa = vpas[0]
        target = vpa.target
        assert target is not None
        if vpa.key not in known:
            key = ControllerKey(vpa.namespace, target.kind, target.name, target.api_version)
            try:
                known[vpa.key] = topmost(key, controllers) is not None
            except TargetError:
                known[vpa.key] = False
        return known[vpa.key]

    # -- merged views -------------------------------------------------------------------------------------------

    def containers_of(self, vpas: Iterable[Vpa]) -> Merged:
        """What the VPAs know per container name: linked aggregates and loaded checkpoints, merged.

        Order of merging: aggregates by key, then the checkpoint. As upstream, a merge may shift the references of the
        aggregates that it reads.
        """
        names: list[tuple[Vpa, str]] = []
        into: list[int] = []
        rows: list[int] = []
        for vpa in vpas:
            local: dict[str, int] = {}
            parts = [(key.container, aggregate.row) for key, aggregate in sorted(vpa.aggregates.items())]
            parts += [(name, vpa.initial_states[name].row) for name in sorted(vpa.initial_states)]
            for name, row in parts:
                if name not in local:
                    local[name] = len(names)
                    names.append((vpa, name))
                into.append(local[name])
                rows.append(row)
        store = Store(self.options)
        store.reserve(len(names), 0)
        for _ in names:
            store.take_row()
        store.merge(np.array(into, np.int64), self.store, np.array(rows, np.int64))
        return Merged(names, store)


class Merged(NamedTuple):
    """Row *i* of ``store`` is what is known of ``names[i]``: a VPA and one of its container names."""

    names: list[tuple[Vpa, str]]
    store: Store
