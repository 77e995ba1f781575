"""Workloads of a dump (their pods, VPAs and deleted pods), and the feed of their recorded usage into the recommender.

Usage is fed in order of time; samples that belong to no workload are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from kscale._native import _histogram
from kscale.effects import ZERO_TIME
from kscale.errors import InputError
from kscale.imports import lazy_pattern
from kscale.objects.api.core import Container, Pod, PodTemplateSpec
from kscale.objects.api.meta import CustomWorkload, ObjectMeta
from kscale.objects.api.vpa import (
    PodUpdatePolicy,
    RecommenderSelector,
    TargetReference,
    VerticalPodAutoscaler,
    VerticalPodAutoscalerSpec,
)
from kscale.objects.decode import from_dict
from kscale.objects.kinds import group_of
from kscale.objects.selectors import Selector
from kscale.series.columns import SeriesKey
from kscale.series.usage_reader import UsageBatch
from kscale.vpa.controllers import WELL_KNOWN_KINDS, ControllerKey, Controllers, DumpScales, TargetError
from kscale.vpa.model.saved_state import CPU_SAMPLE, MEMORY_SAMPLE, RecommenderState, find_slot
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.recommender.cluster_feeder import is_managed_vpa
from kscale.vpa.strategies import ContainerUsage, Strategy
from kscale.vpa.target import find_topmost_controller, find_topmost_owner, is_stronger_vpa, resolve_target_selector

__all__ = ["UsageFeed", "Workload", "WorkloadKey", "Workloads", "feed_history"]

WorkloadKey = tuple[str, str, str]
"""(namespace, kind, name)."""

_REPLICA_SET_POD_PATTERN = lazy_pattern(r"(?P<deployment>.+)-[bcdf-hj-np-tv-xz0-9]{1,10}-[bcdf-hj-np-tv-xz0-9]{5}")
_STATEFUL_SET_POD_PATTERN = lazy_pattern(r"(?P<name>.+)-\d+")
_SUFFIXED_NAME_PATTERN = lazy_pattern(r"(?P<name>.+)-[bcdf-hj-np-tv-xz0-9]{5}")
_INDEXED_JOB_POD_PATTERN = lazy_pattern(r"(?P<name>.+)-\d+-[bcdf-hj-np-tv-xz0-9]{5}")
_REVISION_LABELS = frozenset(
    {
        "pod-template-hash",
        "rollouts-pod-template-hash",
        "controller-revision-hash",
        "apps.kruise.io/cloneset-instance-id",
    }
)
"""Labels that tell the revisions, or the pods, of one workload apart."""
_NO_WORKLOAD_TEXT = "VPAs whose target is no workload of the dump"
_LABEL_NAME_SEPARATORS = lazy_pattern(r"[^a-zA-Z0-9_]")
_FINISHED_PHASES = frozenset({"Succeeded", "Failed"})


@dataclass(slots=True)
class Workload:
    """A topmost controller, its live pods, and its VPA (``implied``: not in the cluster, mode Off)."""

    key: ControllerKey
    labels: dict[str, str]
    """Labels of the pod template."""
    selector: Selector
    vpa: VerticalPodAutoscaler
    implied: bool
    containers: dict[str, Container] = field(default_factory=dict)
    init_containers: frozenset[str] = frozenset()
    pods: list[Pod] = field(default_factory=list)
    """Pods that run."""
    finished: list[Pod] = field(default_factory=list)
    """Pods that succeeded or failed and are still in the dump."""

    @property
    def name(self) -> str:
        """Return kind and name, such as ``Deployment/web``."""
        return f"{self.key.kind}/{self.key.name}"

    @property
    def identity(self) -> WorkloadKey:
        """Return (namespace, kind, name)."""
        return self.key.namespace, self.key.kind, self.key.name


class Workloads:
    """All workloads of a dump that have a topmost controller with a selector.

    ``pods``: all pods of the dump; ``custom``: its workloads of custom kinds. If several VPAs that this recommender
    manages (``options``) target a workload, the strongest (as upstream, the oldest) is its VPA. ``skipped`` counts the
    VPAs that are not used, and the pods without a workload.
    """

    def __init__(
        self,
        controllers: Controllers,
        pods: Iterable[Pod],
        vpas: Iterable[VerticalPodAutoscaler],
        options: RecommenderOptions | None = None,
        custom: Iterable[CustomWorkload] = (),
    ) -> None:
        self.controllers = controllers
        self.options = options or RecommenderOptions()
        self.items: dict[WorkloadKey, Workload] = {}
        self._refused: set[WorkloadKey] = set()
        self._by_namespace: dict[str, list[Workload]] | None = None
        self.skipped: Counter[tuple[str, str]] = Counter()
        """(namespace, text) -> number of objects."""
        self.unresolved: list[tuple[str, str]] = []
        """(namespace, text) for each object whose owner or selector cannot be resolved."""
        self.pod_owner: dict[tuple[str, str], Workload] = {}
        vpas = list(vpas)
        self._taken = {(vpa.namespace, vpa.name) for vpa in vpas}
        own = self._group_vpas_by_target(vpas)
        self._own = own
        self._custom = {(item.namespace, item.kind, item.name): item for item in custom}
        for key, template in controllers.templates():
            try:
                top = find_topmost_controller(key, controllers)
            except TargetError as error:
                self.unresolved.append((key.namespace, f"{key}: {error}"))
                continue
            if top == key:
                self._add(key, template, own.pop((key.namespace, key.kind, key.name), None))
            elif top is not None and top.kind not in WELL_KNOWN_KINDS:
                self._add_custom(top, template)
        for pod in pods:
            self._add_pod(pod)
        for (namespace, kind, name), vpa in own.items():
            self.skipped[namespace, _NO_WORKLOAD_TEXT] += 1
            text = f"VerticalPodAutoscaler {vpa.key}: its target {kind}/{name} is no workload of the input"
            self.unresolved.append((namespace, text))

    def notes(self) -> list[tuple[str, str]]:
        """Return (namespace, text) of each owner or selector that could not be resolved, and of each assumed scale."""
        scales = self.controllers.scales
        return [*self.unresolved, *(scales.assumed if isinstance(scales, DumpScales) else ())]

    def _group_vpas_by_target(self, vpas: Iterable[VerticalPodAutoscaler]) -> dict[WorkloadKey, VerticalPodAutoscaler]:
        """Return the strongest VPA of each target by its (namespace, kind, name); others are counted in ``skipped``.

        VPAs without a target, and those that this recommender does not manage, are left out and counted, too. Raises
        InputError if several VPAs have one target and the creation time of one is malformed.
        """
        by_target: dict[WorkloadKey, VerticalPodAutoscaler] = {}
        for vpa in vpas:
            if not is_managed_vpa(vpa, self.options):
                self.skipped[
                    vpa.namespace, "VPAs of another recommender, not taken: their workloads get implied ones"
                ] += 1
                continue
            target = vpa.spec.target_ref
            if target is None:
                self.skipped[vpa.namespace, _NO_WORKLOAD_TEXT] += 1
                continue
            identity = (vpa.namespace, target.kind, target.name)
            other = by_target.setdefault(identity, vpa)
            if other is not vpa:
                self.skipped[vpa.namespace, "VPAs on a workload that an older VPA is for, not taken"] += 1
                if is_stronger_vpa(vpa, other):
                    by_target[identity] = vpa
        return by_target

    def _add(self, key: ControllerKey, template: PodTemplateSpec, own: VerticalPodAutoscaler | None) -> None:
        """Add a workload to ``items``; if its selector cannot be resolved, add a text to ``unresolved`` instead.

        ``own``: the workload's VPA; None: an implied one is built.
        """
        vpa = own if own is not None else self._build_implied_vpa(key)
        try:
            selector = resolve_target_selector(vpa, self.controllers)
        except TargetError as error:
            self.unresolved.append((key.namespace, f"{key}: {error}"))
            return
        self.items[key.namespace, key.kind, key.name] = Workload(
            key,
            dict(template.metadata.labels or {}),
            selector,
            vpa,
            own is None,
            {container.name: container for container in template.spec.containers},
            frozenset(container.name for container in template.spec.init_containers),
        )

    def _add_custom(self, key: ControllerKey, template: PodTemplateSpec) -> None:
        """Add the workload ``key`` of a custom kind, unless it was added already, or has no scale.

        ``template``: pod template of a controller that it owns, or a template made of one of its pods.
        """
        identity = key.namespace, key.kind, key.name
        if identity in self.items or identity in self._refused:
            return
        item = self._custom.get(identity)
        template = _read_pod_template(item) or template
        scales, labels = self.controllers.scales, template.metadata.labels or {}
        if item is None and isinstance(scales, DumpScales):
            # The object is not in the dump, so its selector is unknown: its pods' labels without those of revisions.
            selector = ",".join(
                f"{name}={value}" for name, value in sorted(labels.items()) if name not in _REVISION_LABELS
            )
            scales.assume_selector(group_of(key.api_version), key.kind, key.namespace, key.name, selector)
        self._add(key, template, self._own.pop(identity, None))
        if identity not in self.items:
            self._refused.add(identity)

    def _build_implied_vpa(self, key: ControllerKey) -> VerticalPodAutoscaler:
        """Build a VPA in mode Off for the workload ``key``, with a name that no VPA of the namespace has."""
        name = base = f"{key.kind.lower()}-{key.name}"
        number = 1
        while (key.namespace, name) in self._taken:
            number += 1
            name = f"{base}-{number}"
        self._taken.add((key.namespace, name))
        recommender = self.options.recommender_name
        return VerticalPodAutoscaler(
            api_version="autoscaling.k8s.io/v1",
            kind="VerticalPodAutoscaler",
            metadata=ObjectMeta(name=name, namespace=key.namespace),
            spec=VerticalPodAutoscalerSpec(
                target_ref=TargetReference(api_version=key.api_version, kind=key.kind, name=key.name),
                update_policy=PodUpdatePolicy(update_mode="Off"),
                recommenders=[] if recommender == "default" else [RecommenderSelector(name=recommender)],
            ),
        )

    def _add_pod(self, pod: Pod) -> None:
        """Add a running or finished pod to its workload; a pending pod is only mapped to its workload.

        The first pod of a workload of a custom kind also adds the workload. A running pod also adds containers that its
        workload lacks. A running pod without a workload is counted in ``skipped``; if its owner cannot be resolved, a
        text is added to ``unresolved``.
        """
        live = pod.status.phase not in _FINISHED_PHASES and pod.status.phase != "Pending"
        try:
            parent = find_topmost_owner(pod, self.controllers)
        except TargetError as error:
            if live:
                self.unresolved.append((pod.namespace, f"Pod {pod.key}: {error}"))
            return
        if parent is not None and parent.kind not in WELL_KNOWN_KINDS:
            metadata = ObjectMeta(labels=pod.metadata.labels)
            self._add_custom(parent, PodTemplateSpec(metadata=metadata, spec=pod.spec))
        workload = self.items.get((parent.namespace, parent.kind, parent.name)) if parent is not None else None
        if workload is None:
            if live:
                self.skipped[pod.namespace, "pods without a workload"] += 1
            return
        self.pod_owner[pod.namespace, pod.name] = workload
        if live:
            workload.pods.append(pod)
            for container in pod.spec.containers:
                workload.containers.setdefault(container.name, container)
        elif pod.status.phase in _FINISHED_PHASES:
            workload.finished.append(pod)

    def find_owner_of_deleted_pod(self, namespace: str, pod: str, named: str = "") -> Workload | None:
        """Return the workload of a deleted pod; None if it is unknown.

        ``named``: the workload or controller that the usage names, as ``Kind/name`` or name. Without it, or if the dump
        lacks it, the part of the pod's name before the suffix is looked up among the dump's controllers, whose owners
        are followed. A deleted ReplicaSet, or Job of a CronJob, is recognized by its name.
        """
        if named:
            kind, _, name = named.rpartition("/")
            for each in [kind] if kind else sorted(WELL_KNOWN_KINDS):
                workload = self._find_topmost_workload(namespace, each, name)
                if workload is not None:
                    return workload
        custom = sorted({kind for _, kind, _ in self.items} - WELL_KNOWN_KINDS)
        for pattern, candidates in (
            (_SUFFIXED_NAME_PATTERN, ("ReplicaSet", "Job")),
            (_REPLICA_SET_POD_PATTERN, ("Deployment", *custom)),
            (_INDEXED_JOB_POD_PATTERN, ("CronJob", "Job")),
            (_STATEFUL_SET_POD_PATTERN, ("StatefulSet", *custom)),
            (_SUFFIXED_NAME_PATTERN, ("DaemonSet", "ReplicationController", *custom)),
        ):
            match = pattern.fullmatch(pod)
            for kind in candidates if match is not None else ():
                assert match is not None
                workload = self._find_topmost_workload(namespace, kind, match[1])
                if workload is not None:
                    return workload
        return None

    def find_owner_by_labels(self, namespace: str, labels: Mapping[str, str]) -> Workload | None:
        """Return the workload whose selector matches a pod's labels from Prometheus; None unless exactly one does.

        Label names in Prometheus have underscores in place of other characters. So the names in pod templates and
        selectors are compared in that form.
        """
        matches = []
        if self._by_namespace is None:
            self._by_namespace = {}
            for (place, _, _), item in self.items.items():
                self._by_namespace.setdefault(place, []).append(item)
        for item in self._by_namespace.get(namespace, ()):
            keys = item.labels.keys() | {each.key for each in item.selector.requirements}
            own = {key: labels[name] for key in keys if (name := _LABEL_NAME_SEPARATORS.sub("_", key)) in labels}
            if own and item.selector.matches(own):
                matches.append(item)
        return matches[0] if len(matches) == 1 else None

    def _find_topmost_workload(self, namespace: str, kind: str, name: str) -> Workload | None:
        """Return the workload that a controller of the dump is or belongs to; None if there is none."""
        workload = self.items.get((namespace, kind, name))
        if workload is not None or self.controllers.get(kind, namespace, name) is None:
            return workload
        try:
            top = find_topmost_controller(ControllerKey(namespace, kind, name), self.controllers)
        except TargetError:
            return None
        return self.items.get((top.namespace, top.kind, top.name)) if top is not None else None


def _read_pod_template(item: CustomWorkload | None) -> PodTemplateSpec | None:
    """Read the pod template of a custom workload; None if there is none, or if it is invalid."""
    template = (item.spec or {}).get("template") if item is not None else None
    if not isinstance(template, dict):
        return None
    try:
        return from_dict(template, PodTemplateSpec)
    except InputError:
        return None


_NOT_REQUESTED: Final = ""
_Floats = npt.NDArray[np.float64]
_MAX_TIME: Final = (1 << 63) - 1


@dataclass(slots=True)
class _SeriesDestination:
    """Container to which the samples of a series belong. ``reason``: why they belong to none (empty: not selected)."""

    owner: Workload | None = None
    reason: str | None = None
    container: str = ""
    slot: int = _histogram.UNPLACED


_NO_DESTINATION: Final = _SeriesDestination(reason=_NOT_REQUESTED, slot=_histogram.UNASKED)


@dataclass(slots=True)
class UsageFeed:
    """Consumer of usage batches.

    ``chosen``: the selected workloads. ``namespaces``: the only ones whose usage is added; empty for all. ``now``: if
    set, samples later than this time (nanoseconds) are counted; they are also added, as upstream does.
    """

    state: RecommenderState
    workloads: Workloads
    strategy: Strategy
    chosen: Collection[WorkloadKey]
    namespaces: Collection[str] = ()
    now: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    newest: int = ZERO_TIME
    usage: dict[tuple[str, str, str, str], ContainerUsage] = field(default_factory=dict)
    memory_points: Counter[tuple[WorkloadKey, str]] = field(default_factory=Counter)
    """Number of memory samples. The recommender's state counts the CPU samples."""
    behind: int = 0
    """Number of samples that are older than an earlier one. Repeated samples are not counted."""
    places: dict[tuple[SeriesKey, str], _SeriesDestination] = field(default_factory=dict)
    first_seen: dict[tuple[str, str], Workload | None] = field(default_factory=dict)
    _times: list[npt.NDArray[np.int64]] = field(default_factory=list)
    """Times of some samples of each batch."""
    # Caches for the series of the last batches:
    _keys: Sequence[SeriesKey] = ()
    _places: list[_SeriesDestination] = field(default_factory=list)
    _slots: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    _finite: dict[int, npt.NDArray[np.int64]] = field(
        default_factory=lambda: {kind: np.zeros(0, np.int64) for kind in (CPU_SAMPLE, MEMORY_SAMPLE)}
    )
    """Number of finite values of each series, by kind of sample."""

    def resolve(
        self, namespace: str, pod: str, named: str = "", labels: Mapping[str, str] | None = None
    ) -> Workload | None:
        """Find the workload of a pod: by the dump's objects, then by labels (unless ``named``), then by name.

        None if it is unknown. The first result for a pod is cached, and counted unless it is a workload that was not
        selected. See :meth:`Workloads.find_owner_of_deleted_pod` for ``named``.
        """
        known = self.workloads.pod_owner.get((namespace, pod))
        if known is not None:
            return known
        if (namespace, pod) not in self.first_seen:
            workload = self.workloads.find_owner_by_labels(namespace, labels) if labels and not named else None
            workload = workload or self.workloads.find_owner_of_deleted_pod(namespace, pod, named)
            self.first_seen[namespace, pod] = workload
            if workload is None:
                self.counts["pods of no known workload"] += 1
            elif workload.identity in self.chosen:
                self.counts["deleted pods, mapped to their workload"] += 1
        return self.first_seen[namespace, pod]

    def place(self, key: SeriesKey, named: str = "", labels: Mapping[str, str] | None = None) -> _SeriesDestination:
        """Return the destination of the series ``key``. ``named`` and ``labels``: see :meth:`resolve`.

        If the recommender's state lacks the pod of a selected workload, the pod is added to the state. So is the
        container, if the workload has it.
        """
        if self.namespaces and key.namespace not in self.namespaces:
            return _NO_DESTINATION
        owner = self.resolve(key.namespace, key.pod, named, labels)
        if owner is None:
            return _SeriesDestination(reason="samples of no known workload")
        if owner.identity not in self.chosen:
            return _NO_DESTINATION
        if key.container in ("", "POD"):
            return _SeriesDestination(reason="samples of whole pods or their pause containers, left out")
        pod = self.state.pods.get((key.namespace, key.pod))
        if pod is None:
            pod = self.state.add_pod(key.namespace, key.pod, owner.labels, "Unknown", 0)
            pod.init_containers = owner.init_containers
        if key.container in pod.init_containers:
            return _SeriesDestination(reason="samples of init containers, left out")
        if key.container not in owner.containers:
            return _SeriesDestination(reason="samples of containers that their workload does not have")
        if key.container not in pod.containers:
            self.state.add_container(pod, key.container, 0)
        name = (key.namespace, key.pod, key.container)
        return _SeriesDestination(owner, container=key.container, slot=find_slot(self.state, name, 0))

    def _resolve_destinations(self, batch: UsageBatch) -> None:
        """Find the destination of each series of a batch. Without labels, destinations found before are reused."""
        if batch.labels or batch.keys is not self._keys:
            self.count_samples()
            self._keys, self._places = batch.keys, []
        done = len(self._places)
        for i in range(done, len(batch.keys)):
            key, named = batch.keys[i], batch.workloads[i]
            if batch.labels:
                self._places.append(self.place(key, named, batch.labels[i]))
                continue
            place = self.places.get((key, named))
            if place is None:
                place = self.places[key, named] = self.place(key, named)
            self._places.append(place)
        if len(self._places) > done:
            slots = [place.slot for place in self._places[done:]]
            self._slots = np.concatenate([self._slots[:done], np.array(slots, np.int32)])
            more = np.zeros(len(slots), np.int64)
            self._finite = {kind: np.concatenate([counts[:done], more]) for kind, counts in self._finite.items()}

    def add(self, batch: UsageBatch) -> None:
        """Add a batch of usage samples to the workloads of its containers, and count the rejected and unusual ones.

        A batch that is not in order is sorted by time first. Warnings of the source are counted, too.
        """
        self.counts.update(f"warnings of the source: {text}" for text in batch.warnings)
        if not len(batch):
            return
        self._resolve_destinations(batch)
        self._times.append(batch.time[:: max(1, len(batch) // 1000)].copy())
        series, time, cpu, memory = batch.series, batch.time, batch.cpu, batch.memory
        if not _histogram.in_order(series, time, len(batch.keys)):
            order = np.argsort(time, kind="stable")
            series, time = series[order], time[order]
            cpu, memory = (None if values is None else values[order] for values in (cpu, memory))
        cpu, memory = (None if values is None else np.ascontiguousarray(values) for values in (cpu, memory))
        if self.strategy.needs_samples:
            self._store_samples(batch.keys, series, cpu, memory)
        store, threads = self.state.store, self.state.threads
        arranged = store.group_rows(series, time, cpu, memory, self._slots, threads)
        if arranged is not None:
            series, time, cpu, memory = arranged
        for values, kind in ((cpu, CPU_SAMPLE), (memory, MEMORY_SAMPLE)):
            if values is not None:
                self._add_kind(kind, series, time, values)

    def _add_kind(self, kind: int, series: npt.NDArray[np.int32], time: npt.NDArray[np.int64], values: _Floats) -> None:
        """Add the CPU or the memory values of a batch to the store, and count the rejected and the unusual ones.

        ``kind``: CPU_SAMPLE or MEMORY_SAMPLE.
        """
        latest = _MAX_TIME if self.now is None else self.now
        is_cpu, finite, threads = kind == CPU_SAMPLE, self._finite[kind], self.state.threads
        fed = self.state.store.add_history(is_cpu, series, time, values, self._slots, finite, latest, threads)
        self.newest = max(self.newest, fed["newest"])
        self.behind += fed["behind"]
        self.counts["samples"] -= fed["refused"]
        self.counts["samples that are doubled or out of order, discarded"] += fed["refused"]
        self.counts["samples later than the time of the recommendation, used as they are"] += fed["late"]
        self.counts["negative samples, taken as 0"] += fed["negative"]
        self.counts["infinite values, left out"] += fed["infinite"]
        self.counts["missing values"] += fed["missing"]

    def find_future_samples(self, far: int) -> tuple[int, list[str]] | None:
        """Return the usual end of samples (epoch nanoseconds), and the containers with samples that are much later.

        The usual end is that of most samples and of most containers. Samples are much later if they are more than
        ``far`` nanoseconds after it. Returns None if there are no such samples, or fewer than two times in all.
        Containers are ``namespace/pod/name``.
        """
        store = self.state.store
        last = np.maximum(store.last_cpu, store.last_memory)
        last[store.free_slots] = ZERO_TIME
        ends = np.sort(last[last != ZERO_TIME])
        times = np.sort(np.concatenate(self._times)) if self._times else ends
        if len(times) < 2:
            return None
        usual = int(times[len(times) - 1 - max(1, len(times) // 1000)])
        if len(ends):
            usual = min(usual, int(ends[(len(ends) - 1) // 2]))
        if self.newest - usual <= far:
            return None
        late = set(np.flatnonzero(last > usual + far).tolist())
        return usual, [
            f"{pod.namespace}/{pod.name}/{name}"
            for pod in (self.state.pods.values() if late else ())
            for name, container in pod.containers.items()
            if container.slot in late
        ]

    def count_samples(self) -> None:
        """Add the numbers of samples since the last call to ``counts`` and ``memory_points``.

        Samples of selected workloads are counted as ``samples``, others under the reason why they are left out. Call
        this before a batch with other series, and after the last batch.
        """
        for kind, finite in self._finite.items():
            for place, count in zip(self._places, finite.tolist(), strict=True):
                if place.owner is not None:
                    self.counts["samples"] += count
                    if kind == MEMORY_SAMPLE:
                        self.memory_points[place.owner.identity, place.container] += count
                elif place.reason:
                    self.counts[place.reason] += count
            finite[:] = 0

    def _store_samples(
        self, keys: Sequence[SeriesKey], series: npt.NDArray[np.int32], cpu: _Floats | None, memory: _Floats | None
    ) -> None:
        """Append the finite samples of selected workloads to ``usage``, negative ones as 0."""
        by_series = np.argsort(series, kind="stable")
        bounds = np.searchsorted(series[by_series], np.arange(len(keys) + 1))
        for i in np.flatnonzero(np.diff(bounds)).tolist():
            key, place = keys[i], self._places[i]
            if place.owner is None:
                continue
            rows = by_series[bounds[i] : bounds[i + 1]]
            usage = self.usage.setdefault((*place.owner.identity, key.container), ContainerUsage())
            for values, pods in ((cpu, usage.cpu), (memory, usage.memory)):
                if values is not None:
                    own = values[rows]
                    own = np.maximum(own[np.isfinite(own)], 0.0)
                    pods[key.pod] = np.concatenate([pods[key.pod], own]) if key.pod in pods else own


_MAX_SORTED_ROWS: Final = 10_000_000
"""Maximum number of rows of a history that are sorted in memory: 0.4 GB."""
_BATCH_ROWS: Final = 1 << 20
"""Sorted rows that are fed together."""


def feed_history(
    history: Iterable[UsageBatch], prepare: Callable[[], UsageFeed], progress: Callable[[int], None] | None = None
) -> UsageFeed:
    """Read a history batch by batch, in its order, into the feed that ``prepare`` creates. Returns the feed.

    A container rejects samples older than its last one, as in upstream. If batches go back in time, a history that can
    be read again and has at most 10 million rows is therefore fed again, sorted, into a second feed of ``prepare``.
    ``progress`` is called with the number of rows read so far, at the first reading.
    """
    feed, rows = prepare(), 0
    for batch in history:
        feed.add(batch)
        rows += len(batch)
        if progress is not None:
            progress(rows)
    feed.count_samples()
    if not feed.behind or rows > _MAX_SORTED_ROWS or iter(history) is history:
        return feed
    feed = prepare()
    for batch in _sort_by_time(history, rows):
        feed.add(batch)
    feed.count_samples()
    return feed


def _sort_by_time(history: Iterable[UsageBatch], rows: int) -> Iterator[UsageBatch]:
    """Yield the history sorted by time, first its CPU and then its memory; equal times stay in their order.

    ``rows``: its number of rows. The history is read once for each resource, so that only one is in memory.
    """
    for memory in (False, True):
        yield from _sort_resource_by_time(history, rows, memory)


def _sort_resource_by_time(history: Iterable[UsageBatch], rows: int, memory: bool) -> Iterator[UsageBatch]:
    """Yield the samples of CPU, or of ``memory``, sorted by time, in batches; equal times stay in their order.

    Batches that lack the resource are skipped. ``rows``: number of rows of the history.
    """
    numbers: dict[tuple[object, ...], int] = {}
    keys: list[SeriesKey] = []
    workloads: list[str] = []
    labels: list[Mapping[str, str]] = []
    series, time, values = np.empty(rows, np.int32), np.empty(rows, np.int64), np.empty(rows)
    count = 0
    for batch in history:
        amounts_of_batch = batch.memory if memory else batch.cpu
        if amounts_of_batch is None:
            continue
        own = np.empty(len(batch.keys), np.int32)
        for i, key in enumerate(batch.keys):
            series_labels = batch.labels[i] if batch.labels else {}
            number = own[i] = numbers.setdefault(
                (key, batch.workloads[i], tuple(sorted(series_labels.items()))), len(numbers)
            )
            if number == len(keys):
                keys.append(key)
                workloads.append(batch.workloads[i])
                labels.append(series_labels)
        here = slice(count, count + len(batch))
        series[here], time[here], values[here] = own[batch.series], batch.time, amounts_of_batch
        count += len(batch)
    order = np.argsort(time[:count], kind="stable")
    shown = labels if any(labels) else ()
    for at in range(0, count, _BATCH_ROWS):
        part = order[at : at + _BATCH_ROWS]
        amounts = values[part]
        yield UsageBatch(
            keys,
            workloads,
            series[part],
            time[part],
            None if memory else amounts,
            amounts if memory else None,
            shown,
        )
