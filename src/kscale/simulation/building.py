"""From a scenario, kscale's own, to a world and its autoscalers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace as with_fields

from kscale.capacity.groups.reading import groups_from, read_groups
from kscale.capacity.plain_files import read_plain_file
from kscale.capacity.templates import with_templates
from kscale.drivers.driver import Driver
from kscale.effects import LAST_TIME, SECOND, Moment, from_text, to_text
from kscale.errors import InputError, Problem
from kscale.hpa.admission import admit
from kscale.objects.autoscaling import HorizontalPodAutoscaler, HorizontalPodAutoscalerV1
from kscale.objects.batch import CronJob
from kscale.objects.core import Node, Pod
from kscale.objects.decode import from_dict
from kscale.objects.kinds import group_of
from kscale.objects.meta import KubeObject
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.nodegroups import Groups
from kscale.objects.policy import PodDisruptionBudget
from kscale.simulation.arrivals import Arrivals, openb_arrivals
from kscale.simulation.autoscalers import Autoscalers
from kscale.simulation.budgets import budget_problems
from kscale.simulation.custom_objects import CustomObjects, custom_objects
from kscale.simulation.recorded import completed
from kscale.simulation.scenario import MachineEntry, OutOfStock, PodEntry, Scenario
from kscale.simulation.scheduling import scheduling_of
from kscale.simulation.simkube import SimkubeObjects, simkube_objects
from kscale.simulation.times_by_owner import RESTARTED, TimesByOwner
from kscale.simulation.values import Values
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.loading import LoadReport, load_objects
from kscale.world.simulated.draws import MILLION
from kscale.world.simulated.kubelet import PodTimes
from kscale.world.simulated.load import Queue, Usage
from kscale.world.simulated.machines import GroupTimes
from kscale.world.simulated.metrics import ExternalMetric, Pipeline
from kscale.world.simulated.owned_pods import Key
from kscale.world.simulated.world import SimulatedWorld, WorldOptions

__all__ = ["BUNDLED", "BUNDLED_VPA", "Setup", "build", "read_scenario"]

BUNDLED: Final = Path(__file__).parent / "shop.yaml"
"""A scenario that comes with kscale: a shop whose load changes, with HPA and Cluster Autoscaler."""
BUNDLED_VPA: Final = Path(__file__).parent / "requests.yaml"
"""Another: pods that ask for too much of one and too little of the other, with VPA and Cluster Autoscaler."""

_WORKLOADS: Final = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "DaemonSet", "Job")
_MILLISECOND: Final = 1_000_000
_NAMED: Final = 3
_DEFINITION: Final = "CustomResourceDefinition.apiextensions.k8s.io"


def _workloads(objects: Sequence[KubeObject]) -> set[Key]:
    return {(item.kind or type(item).__name__, item.namespace or "default", item.name) for item in objects}


@dataclass(frozen=True, kw_only=True)
class Setup:
    """All that a run needs. ``drivers`` in the order of their ranks. ``horizon``: how long it is, ``sample``: how often
    timelines are sampled, both in nanoseconds. ``prices``: of each group an hour;
    ``warnings``: what of the scenario is not simulated, and why."""

    scenario: Scenario
    world: SimulatedWorld
    drivers: Sequence[Driver[Any]]
    horizon: int
    sample: int
    prices: Mapping[str, float | None]
    warnings: Sequence[str] = ()


def read_scenario(path: str | os.PathLike[str]) -> Scenario:
    """A scenario file, YAML or JSON. Raises :class:`~kscale.InputError`, with the file and the field."""
    return from_dict(read_plain_file(path, "scenario"), Scenario, source=str(path))


def build(
    scenario: Scenario,
    *,
    source: str = "",
    folder: str | os.PathLike[str] = ".",
    cluster: Iterable[str | KubeObject] = (),
    groups: Sequence[NodeGroup] = (),
    options: Mapping[str, Any] | None = None,
    frequent_loops: bool = True,
) -> Setup:
    """The world of a scenario at its beginning. ``folder``: where the files that it names are; ``cluster``: more dumps,
    by names that are not relative to it, and objects (a :class:`~kscale.Cluster` is its objects); ``groups``: more of
    them, as they are; ``options``: of controllers (``cluster_autoscaler``, ``horizontal``, ...) that run with these and
    not as the scenario says; ``frequent_loops``: whether a Cluster Autoscaler with options from here has them. Raises
    :class:`~kscale.InputError` with every mistake."""
    try:
        begin = from_text(scenario.begin)
    except ValueError as error:
        raise InputError(Problem(str(error), source, field="begin")) from None
    if begin < 0:
        raise InputError(Problem(f"{scenario.begin} is before 1970", source, field="begin"))
    values = Values(source, Path(folder), begin)
    return _Builder(scenario, values, begin, groups).build(
        cluster, partial(Autoscalers, given=options or {}, frequent_loops=frequent_loops)
    )


class _Builder:
    def __init__(self, scenario: Scenario, values: Values, begin: Moment, groups: Sequence[NodeGroup]) -> None:
        self.scenario, self.values, self.begin = scenario, values, begin
        self._more_groups = groups
        self._workloads: set[str] = {*_WORKLOADS}
        self._report = LoadReport()  # of the scenario's own objects

    def build(self, more: Iterable[str | KubeObject], autoscalers: Callable[..., Autoscalers]) -> Setup:
        scenario, values, more = self.scenario, self.values, list(more)
        horizon = values.duration(scenario.horizon, "horizon", least=1)
        if horizon > LAST_TIME - self.begin:
            values.wrong("horizon", f"{scenario.horizon} is too long: it ends after {to_text(LAST_TIME)}")
            self._check()
        arrivals = openb_arrivals(scenario.openb, values, self.begin, self.begin + horizon)
        traced = simkube_objects(scenario.simkube, values, self.begin, self.begin + horizon)
        self._check()
        objects = [*self._objects(more, traced, arrivals.places), *arrivals.nodes]
        traced = traced.admitted(self._admitted)
        custom = self._custom(objects, more)
        there = [*objects, *custom.objects, *traced.applied]
        self._no_others(arrivals, there)
        groups = self._groups(objects)
        machines = self._machines(groups)
        times = arrivals.times(self._times(there))
        options = WorldOptions(
            seed=scenario.seed,
            latency=values.duration(scenario.world.latency, "world.latency", least=1),
            watch_lag=values.duration(scenario.world.watch_lag, "world.watchLag"),
            pipeline=self._pipeline(),
            preemption=scenario.world.preemption,
            **scheduling_of(scenario.world, values)._asdict(),
        )
        sample = values.duration(scenario.sample, "sample", least=1000 * _MILLISECOND)
        load = self._load(there)
        external = self._external(load)
        self._check()
        world = SimulatedWorld(
            now=self.begin,
            objects=[*objects, *custom.objects],
            options=options,
            times=times,
            custom=custom.resources,
        )
        for group in groups:
            world.cloud.add(group, machines[group.id])
        for key, (usage, queue) in load.items():
            if usage:
                world.load.usage[key] = usage
            if queue is not None:
                world.load.queues[key] = queue
        world.metrics.external = external
        arrivals.enter(world)
        traced.enter(world)
        drivers = autoscalers(controllers=scenario.controllers, values=values, world=world).drivers()
        self._check()
        return Setup(
            scenario=scenario,
            world=world,
            drivers=drivers,
            horizon=horizon,
            sample=sample,
            prices={group.id: group.price for group in groups},
            warnings=[*custom.warnings, *self._left_out(objects, custom)],
        )

    def _check(self) -> None:
        if self.values.problems:
            raise InputError(self.values.problems)

    # -- what there is -----------------------------------------------------------------------------------------------

    def _objects(
        self,
        more: Iterable[str | KubeObject],
        traced: SimkubeObjects,
        places: Mapping[tuple[str, str], tuple[str, str, str]],
    ) -> list[KubeObject]:
        """What is there at the beginning, with what ``traced`` objects need that come later; ``places``: what comes
        besides, or later, under names of its own."""
        given = [*(str(self.values.folder / name) for name in self.scenario.cluster), *more, *traced.first]
        found = [loaded.obj for loaded in load_objects(*given)] if given else []
        for i, data in enumerate(self.scenario.objects):
            try:
                found += [loaded.obj for loaded in load_objects(data, validate=True, report=self._report)]
            except InputError as error:
                self.values.problems += [
                    replace(problem, source=self.values.source, object=f"objects[{i}]") for problem in error.problems
                ]
        seen: set[tuple[str, str]] = set()
        for item in found:
            kind = item.kind or type(item).__name__
            if (kind, item.key) in seen:
                self.values.problems.append(Problem("is there twice", self.values.source, f"{kind} {item.key}"))
            seen.add((kind, item.key))
        later = traced.applied_later
        for kind, key in dict.fromkeys((item.kind or type(item).__name__, item.key) for item in [*found, *later]):
            if (kind, key) in places:
                text = f"the scenario has a {kind} {key} of its own"
                self.values.problems.append(Problem(text, *places[kind, key]))
        for kind, key in dict.fromkeys((item.kind or type(item).__name__, item.key) for item in traced.deleted_later):
            if (kind, key) in places:
                self.values.problems.append(Problem(f"the trace of SimKube deletes a {kind} {key}", *places[kind, key]))
        for item in [*found, *later]:
            if isinstance(item, PodDisruptionBudget):
                self.values.problems += budget_problems(item, self.values.source)
        self._check()
        return [self._admitted(item) for item in completed(found, later)]

    def _custom(self, objects: Sequence[KubeObject], more: Sequence[str | KubeObject]) -> CustomObjects:
        """The custom resources that HPAs scale, which make pods as workloads do."""
        files = [str(self.values.folder / name) for name in self.scenario.cluster]
        named = [each for each in more if isinstance(each, str)]
        try:
            custom = custom_objects(objects, [*files, *named, *self.scenario.objects])
        except InputError as error:
            raise InputError(
                [replace(problem, source=problem.source or self.values.source) for problem in error.problems]
            ) from None
        self._workloads = {*_WORKLOADS, *(each.kind for each in custom.resources)}
        return custom

    def _left_out(self, objects: Sequence[KubeObject], custom: CustomObjects) -> list[str]:
        """Return which objects do nothing in the simulation, and why."""
        scheduled = [item.key for item in objects if isinstance(item, CronJob) and not item.spec.suspend]
        texts = []
        if scheduled:
            more = ", ..." if len(scheduled) > _NAMED else ""
            texts.append(f"CronJob {', '.join(scheduled[:_NAMED])}{more}: no Jobs are made on a schedule")
        known = {f"{each.kind}.{group_of(each.api_version)}" for each in custom.objects}
        for item in objects:
            if isinstance(item, HorizontalPodAutoscaler | HorizontalPodAutoscalerV1):
                target = item.spec.scale_target_ref
                known.add(f"{target.kind}.{group_of(target.api_version)}")
        kinds = [kind for kind in self._report.skipped if kind not in known and kind != _DEFINITION]
        texts += [f"{kind}: its objects make no pods here, since no HPA scales one" for kind in kinds if "." in kind]
        return texts

    def _no_others(self, arrivals: Arrivals, objects: Iterable[KubeObject]) -> None:
        """No workload makes pods whose names a trace has."""
        for item in {(item.kind, item.key): item for item in objects}.values():
            taken = arrivals.made_by(item)
            if taken is not None:
                text = f"{item.kind} {item.key} may have a pod of this name"
                self.values.problems.append(Problem(text, *arrivals.places["Pod", taken]))

    def _admitted(self, item: KubeObject) -> KubeObject:
        """As the API server stores it."""
        if isinstance(item, HorizontalPodAutoscaler | HorizontalPodAutoscalerV1):
            found = admit(item)
            if found.hpa is None or found.errors:
                name = f"HorizontalPodAutoscaler {item.key}"
                self.values.problems += [Problem(str(each), self.values.source, name) for each in found.errors]
            else:
                return found.hpa
        return item

    def _groups(self, objects: Sequence[KubeObject]) -> list[NodeGroup]:
        nodes = [item for item in objects if isinstance(item, Node)]
        names = {node.name for node in nodes}
        given, folder = self.scenario.groups, self.values.folder
        groups = list(self._more_groups)
        if isinstance(given, str):
            groups += read_groups(folder / given, node_names=names) if given else []
        elif given:
            groups += groups_from(given, source=self.values.source, folder=folder, node_names=names)
        if not groups:
            return []
        cluster = Cluster(item for item in objects if item.kind not in ("ConfigMap", "Event"))
        targets = {group.id: group.target_size for group in groups}
        settled = Groups.of(with_templates(cluster, cluster.snapshot(), groups), nodes)
        return [
            group if targets[group.id] is None else with_fields(group, target_size=targets[group.id])
            for group in settled
        ]

    # -- how it behaves ----------------------------------------------------------------------------------------------

    def _machines(self, groups: Sequence[NodeGroup]) -> dict[str, GroupTimes]:
        known = {group.id for group in groups}
        found: dict[str, GroupTimes] = {}
        for i, entry in enumerate(self.scenario.machines):
            field = f"machines[{i}]"
            if entry.group and entry.group not in known:
                self.values.wrong(f"{field}.group", f"there is no node group {entry.group!r}")
            if entry.group in found:
                self.values.wrong(f"{field}.group", "has an entry already")
            found[entry.group] = self._group_times(entry, field)
        usual = found.get("", GroupTimes())
        return {group: found.get(group, usual) for group in known}

    def _group_times(self, entry: MachineEntry, field: str) -> GroupTimes:
        values = self.values
        if not 0 <= entry.failures <= 1:
            values.wrong(f"{field}.failures", "a share is between 0 and 1")
        if entry.stock is not None and entry.stock < 0:
            values.wrong(f"{field}.stock", "is negative")
        return GroupTimes(
            boot=values.spread(entry.boot, f"{field}.boot"),
            apart=values.duration(entry.apart, f"{field}.apart"),
            ready=values.spread(entry.ready, f"{field}.ready"),
            deletion=values.spread(entry.deletion, f"{field}.deletion"),
            lifetime=None
            if entry.lifetime is None
            else values.spread(entry.lifetime, f"{field}.lifetime", least=SECOND),
            failures=round(entry.failures * MILLION),
            stock=entry.stock,
            out_of_stock=tuple(
                self._out_of_stock(each, f"{field}.outOfStock[{j}]") for j, each in enumerate(entry.out_of_stock)
            ),
            creation=values.duration(entry.creation, f"{field}.creation"),
        )

    def _out_of_stock(self, given: OutOfStock, field: str) -> tuple[Moment, Moment]:
        begin, end = (
            self.values.duration(given.begin, f"{field}.begin"),
            self.values.duration(given.end, f"{field}.end"),
        )
        if end <= begin:
            self.values.wrong(f"{field}.end", f"{given.end} is not after {given.begin}")
        return self.begin + begin, self.begin + end

    def _times(self, objects: Sequence[KubeObject]) -> Callable[[Pod], PodTimes]:
        there = _workloads(objects)
        found: dict[str, PodTimes] = {}
        for i, entry in enumerate(self.scenario.pods):
            field = f"pods[{i}]"
            if entry.workload in found:
                self.values.wrong(f"{field}.workload", "has an entry already")
            if entry.workload:
                key = self._key(entry.workload, f"{field}.workload")
                if all(key) and key not in there:
                    self.values.wrong(f"{field}.workload", f"there is no {entry.workload}")
                if entry.work is not None and key[0] in RESTARTED:
                    self.values.wrong(f"{field}.work", f"pods of a {key[0]} run until they are deleted")
            found[entry.workload] = self._pod_times(entry, field)
        usual = found.pop("", PodTimes())
        if not found and usual.work is None:
            return lambda _: usual
        return TimesByOwner(found, usual)

    def _pod_times(self, entry: PodEntry, field: str) -> PodTimes:
        values = self.values
        return PodTimes(
            pull=values.spread(entry.pull, f"{field}.pull"),
            start=values.spread(entry.start, f"{field}.start"),
            readiness=values.spread(entry.readiness, f"{field}.readiness"),
            termination=values.spread(entry.termination, f"{field}.termination"),
            work=None if entry.work is None else values.spread(entry.work, f"{field}.work"),
        )

    def _pipeline(self) -> Pipeline:
        values, given = self.values, self.scenario.metrics
        return Pipeline(
            scrape=values.duration(given.scrape, "metrics.scrape", least=1000 * _MILLISECOND),
            window=values.duration(given.window, "metrics.window"),
            lag=values.duration(given.lag, "metrics.lag"),
        )

    # -- what it has to do -------------------------------------------------------------------------------------------

    def _key(self, text: str, field: str) -> Key:
        parts = text.split("/")
        if len(parts) != 3 or parts[0] not in self._workloads:
            self.values.wrong(field, f"{text!r} is no workload: Deployment/NAMESPACE/NAME is meant")
            return "", "", ""
        return parts[0], parts[1], parts[2]

    def _load(self, objects: Sequence[KubeObject]) -> dict[Key, tuple[dict[str, Usage], Queue | None]]:
        values = self.values
        there = _workloads(objects)
        found: dict[Key, tuple[dict[str, Usage], Queue | None]] = {}
        for i, entry in enumerate(self.scenario.load):
            field = f"load[{i}]"
            key = self._key(entry.workload, f"{field}.workload")
            if all(key) and key not in there:
                values.wrong(f"{field}.workload", f"there is no {entry.workload}")
            if key in found:
                values.wrong(f"{field}.workload", "has an entry already")
            if not entry.total and not entry.per_pod and entry.queue is None:
                values.wrong(field, "total, perPod or a queue is needed")
            for name in entry.total.keys() & entry.per_pod.keys():
                values.wrong(f"{field}.perPod.{name}", "is given in total already")
            for name in (entry.total.keys() | entry.per_pod.keys()) & (entry.queue.used if entry.queue else {}).keys():
                values.wrong(f"{field}.queue.used.{name}", "is given as usage already")
            usage = {
                name: Usage(signal=values.signal(signal, f"{field}.{way}.{name}"), per_pod=way == "perPod")
                for way, given in (("total", entry.total), ("perPod", entry.per_pod))
                for name, signal in given.items()
            }
            queue = None
            if entry.queue is not None:
                given_queue, where = entry.queue, f"{field}.queue"
                queue = Queue(
                    arrivals=values.signal(given_queue.arrivals, f"{where}.arrivals"),
                    capacity=values.milli(given_queue.capacity, f"{where}.capacity"),
                    used={
                        name: values.milli(amount, f"{where}.used.{name}") for name, amount in given_queue.used.items()
                    },
                    patience=values.duration(given_queue.patience, f"{where}.patience"),
                )
            found[key] = usage, queue
        return found

    def _external(
        self, load: Mapping[Key, tuple[dict[str, Usage], Queue | None]]
    ) -> dict[tuple[str, str], list[ExternalMetric]]:
        found: dict[tuple[str, str], list[ExternalMetric]] = {}
        for i, entry in enumerate(self.scenario.metrics.external):
            field = f"metrics.external[{i}]"
            if (entry.signal is None) == (entry.workload is None):
                self.values.wrong(field, "either a signal or the workload of a queue is needed")
                continue
            if entry.signal is not None:
                signal = self.values.signal(entry.signal, f"{field}.signal")
                metric = ExternalMetric(signal=signal, labels=entry.labels)
            else:
                key = self._key(str(entry.workload), f"{field}.workload")
                if all(key) and (key not in load or load[key][1] is None):
                    self.values.wrong(f"{field}.workload", f"{entry.workload} has no queue")
                metric = ExternalMetric(queue=key, tells=entry.tells, labels=entry.labels)
            named = found.setdefault((entry.namespace, entry.name), [])
            if any(each.labels == entry.labels for each in named):
                self.values.wrong(field, f"there is a {entry.name} with these labels already")
            named.append(metric)
        return found
