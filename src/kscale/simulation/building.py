"""Builds a simulated cluster (the world of a run) and its autoscalers from a scenario.

Upstream: ``pkg/apis/policy/validation`` (``ValidatePodDisruptionBudgetSpec``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace as with_fields

from kscale.capacity.group_templates import with_templates
from kscale.capacity.groups.groups_file import groups_from, read_groups, read_plain_file
from kscale.drivers.driver import Driver
from kscale.effects import LAST_TIME, SECOND, Moment, from_text, to_text
from kscale.errors import InputError, Problem
from kscale.hpa.api.admission import admit
from kscale.imports import lazy_pattern
from kscale.objects.api.apps import CronJob
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, HorizontalPodAutoscalerV1
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.meta import CustomWorkload, KubeObject
from kscale.objects.api.policy import PodDisruptionBudget
from kscale.objects.argument_types import typed
from kscale.objects.custom_workloads import CustomObject, CustomResource, custom_resources
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.kinds import BUILT_IN, custom_kind_key, find_kind, group_of
from kscale.objects.nodegroup import Groups, NodeGroup
from kscale.objects.scale import ScaleError, scale_of, scale_path_problems
from kscale.objects.selectors import SelectorError, compile_selector
from kscale.objects.validation import is_share
from kscale.scheduling.configuration import preemption_candidates, scheduler_profile, score_options
from kscale.scheduling.preemption import Candidates
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.scores.options import ScoreOptions
from kscale.simulation.autoscalers import Autoscalers, SimulatedPools, provisioner_of, read_pools
from kscale.simulation.outages import ZoneOutage, schedule_outages, with_outages, zone_of_group, zone_of_node
from kscale.simulation.recorded_cluster import RESTARTED, TimesByOwner, complete_objects
from kscale.simulation.records import OutageUse
from kscale.simulation.scenario import (
    KARPENTER,
    MachineEntry,
    OutageEntry,
    OutOfStock,
    PodEntry,
    Scenario,
    Values,
    WorldEntry,
)
from kscale.simulation.traces import Arrivals, SimkubeObjects, openb_arrivals, simkube_objects
from kscale.snapshot.caches import collector_paused
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.loading import LoadReport, load_objects
from kscale.snapshot.text.sources import RawObject, Source, read
from kscale.world.simulated.cloud import GroupTimes
from kscale.world.simulated.controllers import Key
from kscale.world.simulated.kubelet import PodTimes
from kscale.world.simulated.load import MILLION, Queue, Usage
from kscale.world.simulated.metrics import ExternalMetric, Pipeline
from kscale.world.simulated.workloads import pod_template_problem
from kscale.world.simulated.world import SimulatedWorld, WorldOptions

__all__ = [
    "BUNDLED",
    "BUNDLED_VPA",
    "CustomObjects",
    "Scheduling",
    "Setup",
    "budget_problems",
    "build",
    "custom_objects",
    "read_scenario",
    "scheduling_of",
]


_POLICIES: Final = ("AlwaysAllow", "IfHealthyBudget")


def budget_problems(item: PodDisruptionBudget, source: str) -> list[Problem]:
    """Return the validation errors of a PodDisruptionBudget. ``source``: name of the file, for the errors."""
    spec, label = item.spec, f"PodDisruptionBudget {item.key}"
    problems = [
        Problem(text, source, label, f"spec.{name}")
        for name, value in (("minAvailable", spec.min_available), ("maxUnavailable", spec.max_unavailable))
        if (text := _describe_wrong_share(value))
    ]
    if spec.min_available is not None and spec.max_unavailable is not None:
        problems.append(Problem("minAvailable and maxUnavailable cannot be both set", source, label, "spec"))
    policy = spec.unhealthy_pod_eviction_policy
    if policy and policy not in _POLICIES:
        text = f"{policy!r} is neither {' nor '.join(_POLICIES)}"
        problems.append(Problem(text, source, label, "spec.unhealthyPodEvictionPolicy"))
    try:
        compile_selector(spec.selector)
    except SelectorError as error:
        problems.append(Problem(str(error), source, label, "spec.selector"))
    return problems


def _describe_wrong_share(value: int | str | None) -> str:
    """Return why a value is not a valid number or percentage of pods; empty if it is valid or None."""
    if value is None or is_share(value):
        return f"{value} is more than 100%" if isinstance(value, str) and int(value[:-1]) > 100 else ""
    return f"{value} is negative" if isinstance(value, int) else f"{value!r} is no number and no percentage"


_FIELD = "world.schedulerConfiguration"
_WHAT = "KubeSchedulerConfiguration"


class Scheduling(NamedTuple):
    """Scheduler options of a simulated cluster; the fields have the names of :class:`WorldOptions`."""

    scores: ScoreOptions | None = None
    profile: SchedulerProfile | None = None
    candidates: Candidates = Candidates()


def scheduling_of(world: WorldEntry, values: Values) -> Scheduling:
    """Return the scheduler options of a scenario.

    ``world``: the section ``world`` of the scenario. ``values``: collects errors in ``values.problems`` instead of
    raising them. After an error, the result is that of the scheduler ``first-fit``.
    """
    config = world.scheduler_configuration
    if config is None:
        return Scheduling(ScoreOptions() if world.scheduler == "scores" else None)
    if world.scheduler != "scores":
        values.wrong(_FIELD, "has an effect only with scheduler: scores")
        return Scheduling()
    try:
        data = config if isinstance(config, Mapping) else read_plain_file(values.folder / config, _WHAT, "one")
        return Scheduling(score_options(data), scheduler_profile(data), preemption_candidates(data))
    except InputError as error:
        values.problems += [
            each if each.source else replace(each, source=values.source, field=_FIELD) for each in error.problems
        ]
        return Scheduling()


_DEFINITION = ("apiextensions.k8s.io", "CustomResourceDefinition")


class CustomObjects(msgspec.Struct, kw_only=True):
    """Custom resources that HPAs of a scenario scale.

    ``resources``: their kinds. ``objects``: the objects of these kinds. ``warnings``: messages about HPAs whose target
    cannot be simulated or scaled. ``unscaled``: why objects of a custom kind create no pods, by kind.
    """

    resources: list[CustomResource] = []
    objects: list[CustomObject] = []
    warnings: list[str] = []
    unscaled: dict[str, str] = {}


def custom_objects(objects: Sequence[KubeObject], sources: Iterable[Source]) -> CustomObjects:
    """Return the custom resources, and their objects, that the HPAs among ``objects`` scale.

    Objects of kinds without a scale are left out; ``unscaled`` of the result has the reason for each kind.

    ``sources``: files or data that ``objects`` were read from. They are read again only if an HPA names a kind that is
    not built in. Raises InputError with all problems: mistakes in CustomResourceDefinitions, and custom objects that
    cannot be read.
    """
    wanted = {
        (group_of(reference.api_version), reference.kind)
        for item in objects
        for reference in [_get_scale_target(item)]
        if reference is not None
    } - {(resource.group, resource.kind) for resource in BUILT_IN}
    if not wanted:
        return CustomObjects()
    custom = CustomObjects()
    problems: list[Problem] = []
    for record in read(*sources):
        if not isinstance(record, RawObject) or not isinstance(record.data, (msgspec.Raw, dict)):
            continue
        kind = group_of(record.api_version), record.kind
        if kind != _DEFINITION and (kind not in wanted or find_kind(record.api_version, record.kind) is not None):
            continue
        try:
            data = _read_plain_data(record)
            if kind == _DEFINITION:
                scaled = [resource for resource in custom_resources(data) if (resource.group, resource.kind) in wanted]
                wrong = scale_path_problems(data) if scaled else []
                if wrong:
                    raise InputError(wrong)
                custom.resources += scaled
            else:
                custom.objects.append(_read_custom_object(data))
        except InputError as error:
            problems += [
                Problem(resource.message, record.source, f"{record.kind} {record.where}".strip(), resource.field)
                for resource in error.problems
            ]
    if problems:
        raise InputError(problems)
    custom.unscaled = _list_unscaled_kinds(custom)
    _check_scale_targets(objects, custom)
    return custom


def _get_scale_target(item: KubeObject) -> Any:
    """Return the reference to an HPA's scale target; None for objects that are not HPAs."""
    if isinstance(item, HorizontalPodAutoscaler | HorizontalPodAutoscalerV1):
        return item.spec.scale_target_ref
    return None


def _read_plain_data(record: RawObject) -> dict[str, Any]:
    """Return the decoded JSON data of a record."""
    if isinstance(record.data, msgspec.Raw):
        data: dict[str, Any] = msgspec.json.decode(record.data, type=dict[str, Any])
        return data
    assert isinstance(record.data, dict)
    return record.data


def _read_custom_object(data: dict[str, Any]) -> CustomObject:
    """Decode a custom object. If it names no namespace, its namespace is ``default``."""
    named = from_dict(data, CustomObject)
    if named.metadata.namespace:
        return named
    return from_dict({**data, "metadata": {**data.get("metadata", {}), "namespace": "default"}}, CustomObject)


def _list_unscaled_kinds(found: CustomObjects) -> dict[str, str]:
    """Return the custom kinds without a scale, each with the reason why its objects create no pods."""
    scaled = {(item.group, item.kind) for item in found.resources}
    return {
        item.kind: f"there is no CustomResourceDefinition of {item.kind} with a scale"
        for item in found.objects
        if (group_of(item.api_version), item.kind) not in scaled
    }


def _scale_problem(target: CustomObject, resource: CustomResource) -> str:
    """Return why the object cannot be scaled through its ``/scale`` subresource; empty if it can."""
    try:
        scale = scale_of(to_dict(target), resource.paths)
    except ScaleError as error:
        return f"cannot be scaled: {error}"
    if scale.spec.replicas < 0:
        return f"has a negative size: {resource.paths.spec_replicas} is {scale.spec.replicas}"
    if not resource.paths.label_selector:
        return "cannot be scaled: its CustomResourceDefinition has no labelSelectorPath, by which an HPA finds the pods"
    return ""


def _check_scale_targets(objects: Sequence[KubeObject], found: CustomObjects) -> None:
    """Drop objects of kinds without a scale, and add a warning for each HPA whose target cannot be simulated.

    Changes ``found`` in place.
    """
    scaled = {(entry.group, entry.kind): entry for entry in reversed(found.resources)}
    found.objects = [entry for entry in found.objects if (group_of(entry.api_version), entry.kind) in scaled]
    built_in = {(entry.group, entry.kind) for entry in BUILT_IN}
    objects_by_name = {(entry.kind, entry.key): entry for entry in found.objects}
    for item in objects:
        reference = _get_scale_target(item)
        if reference is None or (group_of(reference.api_version), reference.kind) in built_in:
            continue
        key = group_of(reference.api_version), reference.kind
        target = objects_by_name.get((reference.kind, f"{item.namespace or 'default'}/{reference.name}"))
        if key not in scaled:
            problem = f"is not simulated: there is no CustomResourceDefinition of {reference.kind} with a scale"
        elif target is None:
            problem = "is not simulated: it is not there"
        elif template_problem := pod_template_problem(target):
            problem = f"is not simulated: {template_problem}"
        else:
            problem = _scale_problem(target, scaled[key])
        if problem:
            named = f"HorizontalPodAutoscaler {item.namespace or 'default'}/{item.name}"
            found.warnings.append(f"{named}: its target {reference.kind} {reference.name} {problem}")


BUNDLED: Final = Path(__file__).parent / "shop.yaml"
"""A scenario that comes with kscale: a shop whose load changes, with HPA and Cluster Autoscaler."""
BUNDLED_VPA: Final = Path(__file__).parent / "requests.yaml"
"""A scenario that comes with kscale: pods whose CPU and memory requests are wrong, with VPA and Cluster Autoscaler."""

_WORKLOADS: Final = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "DaemonSet", "Job")
_MILLISECOND: Final = 1_000_000
_NAMED: Final = 3
_DEFINITION_KIND: Final = "CustomResourceDefinition.apiextensions.k8s.io"


def _list_workload_keys(objects: Sequence[KubeObject]) -> set[Key]:
    """Return (kind, namespace, name) of each object."""
    return {(item.kind or type(item).__name__, item.namespace or "default", item.name) for item in objects}


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Everything that a run needs.

    ``drivers`` in the order of their ranks. ``horizon``: duration of the run, ``sample``: interval of the timelines,
    both in nanoseconds. ``prices``: $/h by group; ``warnings``: what of the scenario is not simulated, and why.
    ``outages``: outages of zones that have begun so far. ``many_groups``: whether reports leave groups without machines
    out, as most offerings of NodePools have none.
    """

    scenario: Scenario
    world: SimulatedWorld
    drivers: Sequence[Driver[Any]]
    horizon: int
    sample: int
    prices: Mapping[str, float | None]
    warnings: Sequence[str] = ()
    outages: Sequence[OutageUse] = ()
    many_groups: bool = False


@typed
def read_scenario(path: str | os.PathLike[str]) -> Scenario:
    """Read a scenario file, YAML or JSON.

    Raises
    ------
    InputError
        If the file cannot be read or has mistakes, with the file and the field.
    """
    try:
        return from_dict(read_plain_file(path, "scenario"), Scenario, source=str(path))
    except InputError as error:
        raise InputError([_with_flags(problem) for problem in error.problems]) from None


_UNKNOWN_FIELD: Final = lazy_pattern(r"unknown field `([^`]+)`")


def _with_flags(problem: Problem) -> Problem:
    """Return the problem; for an unknown field of a controller, with the hint that flags belong below ``flags``."""
    unknown = _UNKNOWN_FIELD.search(problem.message)
    parents = problem.field.split(".")
    if unknown is None or len(parents) != 2 or parents[0] != "controllers":
        return problem
    return replace(problem, message=f"{problem.message}; is flags.{unknown[1]} meant?")


@collector_paused()
@typed
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
    """Build the world of a scenario at its beginning.

    Parameters
    ----------
    scenario : Scenario
        The scenario.
    source : str
        Name of the scenario in problems.
    folder : path
        Folder that relative file names of the scenario refer to.
    cluster : iterable of str or KubeObject
        Additional objects, or paths of files with objects (not relative to ``folder``). A :class:`~kscale.Cluster` can
        be passed, too.
    groups : sequence of NodeGroup
        Additional node groups; a missing template or size is derived from the cluster. Not used if the groups are those
        of NodePools.
    options : mapping, optional
        Options of controllers (``cluster_autoscaler``, ``horizontal``, ...) that replace the scenario's.
    frequent_loops : bool
        Whether a Cluster Autoscaler whose options enable frequent loops may use them.

    Returns
    -------
    Setup
        The world and its autoscalers, for one run.

    Raises
    ------
    InputError
        If the scenario has errors; contains all errors up to the first that prevents reading on.
    """
    try:
        begin = from_text(scenario.begin)
    except ValueError as error:
        raise InputError(Problem(str(error), source, field="begin")) from None
    if begin < 0:
        raise InputError(Problem(f"{scenario.begin} is before 1970", source, field="begin"))
    values = Values(source, Path(folder), begin)
    return _Builder(scenario, values, begin, groups).build(
        cluster, partial(Autoscalers, overrides=options or {}, frequent_loops=frequent_loops)
    )


class _Builder:
    def __init__(self, scenario: Scenario, values: Values, begin: Moment, groups: Sequence[NodeGroup]) -> None:
        self.scenario, self.values, self.begin = scenario, values, begin
        self._more_groups = groups
        self._workloads: set[str] = {*_WORKLOADS}
        self._unscaled: Mapping[str, str] = {}
        self._report = LoadReport()  # report of reading the scenario's own objects

    def build(self, more: Iterable[str | KubeObject], autoscalers: Callable[..., Autoscalers]) -> Setup:
        """Build the world and its autoscalers.

        ``more``: objects, or paths of files with objects; ``autoscalers``: builds the autoscalers. Raises InputError
        for mistakes in the scenario, with all that were found up to the first that prevents reading on.
        """
        scenario, values, more = self.scenario, self.values, list(more)
        horizon = values.duration(scenario.horizon, "horizon", least=1)
        if horizon > LAST_TIME - self.begin:
            values.wrong("horizon", f"{scenario.horizon} is too long: it ends after {to_text(LAST_TIME)}")
            self._check()
        arrivals = openb_arrivals(scenario.openb, values, self.begin, self.begin + horizon)
        traced = simkube_objects(scenario.simkube, values, self.begin, self.begin + horizon)
        self._check()
        objects = [*self._objects(more, traced, arrivals.places), *arrivals.nodes]
        traced = traced.admit(self._admit)
        custom = self._custom(objects, more)
        all_objects = [*objects, *custom.objects, *traced.applied]
        self._check_pod_names(arrivals, all_objects)
        provisioner = provisioner_of(scenario, values)
        pools = self._pools(objects, provisioner)
        groups = self._groups(objects, pools)
        outages = self._outages(groups, objects)
        machines = self._machines(groups, pools, provisioner)
        for group in groups:
            machines[group.id] = with_outages(machines[group.id], zone_of_group(group), outages)
        times = arrivals.times(self._times(all_objects))
        options = WorldOptions(
            seed=scenario.seed,
            latency=values.duration(scenario.world.latency, "world.latency", least=1),
            watch_lag=values.duration(scenario.world.watch_lag, "world.watchLag"),
            pipeline=self._pipeline(),
            preemption=scenario.world.preemption,
            **scheduling_of(scenario.world, values)._asdict(),
        )
        sample = values.duration(scenario.sample, "sample", least=1000 * _MILLISECOND)
        load = self._load(all_objects)
        external = self._external(load)
        self._check()
        world = SimulatedWorld(
            now=self.begin, objects=[*objects, *custom.objects], options=options, times=times, custom=custom.resources
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
        karpenter = pools.state(groups) if pools is not None and provisioner == KARPENTER else None
        running = autoscalers(
            controllers=scenario.controllers, values=values, world=world, provisioner=provisioner, karpenter=karpenter
        )
        drivers = running.drivers()
        self._check()
        return Setup(
            scenario=scenario,
            world=world,
            drivers=drivers,
            horizon=horizon,
            sample=sample,
            prices={group.id: group.price for group in groups},
            warnings=[
                *custom.warnings,
                *self._list_ignored_objects(objects, custom),
                *(pools.warnings if pools is not None else ()),
                *self.values.warnings,
            ],
            many_groups=pools is not None,
            outages=schedule_outages(world, outages),
        )

    def _check(self) -> None:
        """Raise InputError with all problems recorded so far, if there are any."""
        if self.values.problems:
            raise InputError(self.values.problems)

    # -- objects ------------------------------------------------------------------------------------------------------

    def _objects(
        self,
        more: Iterable[str | KubeObject],
        traced: SimkubeObjects,
        places: Mapping[tuple[str, str], tuple[str, str, str]],
    ) -> list[KubeObject]:
        """Return the objects at the beginning of the run, except custom resources.

        Included are objects that the SimKube trace (``traced``) has at its beginning, and objects that its later ones
        need (:func:`~kscale.simulation.recorded_cluster.complete_objects`). ``more``: further objects, or paths of
        files; ``places``: file, row and column of each object of the openb trace, by kind and key. Raises InputError
        for objects that cannot be read, invalid disruption budgets, duplicates, and objects that the openb trace has,
        too.
        """
        sources = [*(str(self.values.folder / name) for name in self.scenario.cluster), *more, *traced.first]
        initial = [loaded.obj for loaded in load_objects(*sources)] if sources else []
        for i, data in enumerate(self.scenario.objects):
            try:
                initial += [loaded.obj for loaded in load_objects(data, validate=True, report=self._report)]
            except InputError as error:
                self.values.problems += [
                    replace(problem, source=self.values.source, object=f"objects[{i}]") for problem in error.problems
                ]
        initial = [item for item in initial if not self._is_custom(item)]
        seen: set[tuple[str, str]] = set()
        for item in initial:
            kind = item.kind or type(item).__name__
            if (kind, item.key) in seen:
                self.values.problems.append(Problem("is there twice", self.values.source, f"{kind} {item.key}"))
            seen.add((kind, item.key))
        later = traced.applied_later
        for kind, key in dict.fromkeys((item.kind or type(item).__name__, item.key) for item in [*initial, *later]):
            if (kind, key) in places:
                text = f"the scenario has a {kind} {key} of its own"
                self.values.problems.append(Problem(text, *places[kind, key]))
        for kind, key in dict.fromkeys((item.kind or type(item).__name__, item.key) for item in traced.deleted_later):
            if (kind, key) in places:
                self.values.problems.append(Problem(f"the trace of SimKube deletes a {kind} {key}", *places[kind, key]))
        for item in [*initial, *later]:
            if isinstance(item, PodDisruptionBudget):
                self.values.problems += budget_problems(item, self.values.source)
        self._check()
        return [self._admit(item) for item in complete_objects(initial, later)]

    def _is_custom(self, item: KubeObject) -> bool:
        """Check whether an object is a custom workload, which :meth:`_custom` reads later.

        If so, the report counts it among the skipped objects of its kind.
        """
        if not isinstance(item, CustomWorkload):
            return False
        self._report.skipped[custom_kind_key(group_of(item.api_version), item.kind)] += 1
        return True

    def _custom(self, objects: Sequence[KubeObject], more: Sequence[str | KubeObject]) -> CustomObjects:
        """Return the custom resources that HPAs scale, and record their kinds as workloads.

        Files and the scenario's own objects are searched for custom resources. Of ``more``, only the entries that are
        paths of files are searched.

        Raises InputError if a CustomResourceDefinition or a custom object cannot be read.
        """
        files = [str(self.values.folder / name) for name in self.scenario.cluster]
        named = [entry for entry in more if isinstance(entry, str)]
        try:
            custom = custom_objects(objects, [*files, *named, *self.scenario.objects])
        except InputError as error:
            raise InputError(
                [replace(problem, source=problem.source or self.values.source) for problem in error.problems]
            ) from None
        self._workloads = {*_WORKLOADS, *(entry.kind for entry in custom.resources)}
        self._unscaled = custom.unscaled
        return custom

    def _list_ignored_objects(self, objects: Sequence[KubeObject], custom: CustomObjects) -> list[str]:
        """Return one text for each kind whose objects have no effect in the simulation, with the reason."""
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
        kinds = [kind for kind in self._report.skipped if kind not in known and kind != _DEFINITION_KIND]
        texts += [f"{kind}: its objects make no pods here, since no HPA scales one" for kind in kinds if "." in kind]
        return texts

    def _check_pod_names(self, arrivals: Arrivals, objects: Iterable[KubeObject]) -> None:
        """Record a problem for each workload that may create a pod with the name of a trace's pod."""
        for item in {(item.kind, item.key): item for item in objects}.values():
            taken = arrivals.find_pod_key(item)
            if taken is not None:
                text = f"{item.kind} {item.key} may have a pod of this name"
                self.values.problems.append(Problem(text, *arrivals.places["Pod", taken]))

    def _admit(self, item: KubeObject) -> KubeObject:
        """Return the object as the API server would store it: an HPA with its defaults, other objects unchanged.

        Errors of an HPA are recorded as problems, and the HPA is returned unchanged.
        """
        if isinstance(item, HorizontalPodAutoscaler | HorizontalPodAutoscalerV1):
            admission = admit(item)
            if admission.hpa is None or admission.errors:
                name = f"HorizontalPodAutoscaler {item.key}"
                self.values.problems += [Problem(str(error), self.values.source, name) for error in admission.errors]
            else:
                return admission.hpa
        return item

    def _pools(self, objects: Sequence[KubeObject], provisioner: str) -> SimulatedPools | None:
        """Read the scenario's NodePools. None if it has none or does not use them.

        NodePools are used if Karpenter adds the nodes, or if there are no other node groups. Raises InputError for
        mistakes in the NodePools.
        """
        entry = self.scenario.controllers.karpenter
        if entry is None or not (provisioner == KARPENTER or (not self.scenario.groups and not self._more_groups)):
            return None
        nodes = [item for item in objects if isinstance(item, Node)]
        pools = read_pools(entry, self.values, nodes, unlimited=provisioner == KARPENTER)
        self._check()
        return pools

    def _groups(self, objects: Sequence[KubeObject], pools: SimulatedPools | None) -> list[NodeGroup]:
        """Read the node groups, and add missing templates and target sizes. Raises InputError if a group has errors.

        With ``pools``, the groups are only those of the NodePools' offerings.
        """
        nodes = [item for item in objects if isinstance(item, Node)]
        names = {node.name for node in nodes}
        entries, folder = self.scenario.groups, self.values.folder
        groups = list(self._more_groups)
        if pools is not None:
            groups, entries = list(pools.converted.groups), []
        if isinstance(entries, str):
            groups += read_groups(folder / entries, node_names=names) if entries else []
        elif entries:
            groups += groups_from(entries, source=self.values.source, folder=folder, node_names=names)
        if not groups:
            return []
        cluster = Cluster(item for item in objects if item.kind not in ("ConfigMap", "Event"))
        targets = {group.id: group.target_size for group in groups}
        resolved = Groups.of(with_templates(cluster, cluster.snapshot(), groups), nodes)
        return [
            group if targets[group.id] is None else with_fields(group, target_size=targets[group.id])
            for group in resolved
        ]

    # -- machines, pods and metrics ------------------------------------------------------------------------------------

    def _machines(
        self, groups: Sequence[NodeGroup], pools: SimulatedPools | None, provisioner: str
    ) -> dict[str, GroupTimes]:
        """Return the times of the machines of each group, by group id: its entry's, its NodePool's, or the usual ones.

        Mistakes are added to ``values``.
        """
        group_ids = {group.id for group in groups}
        pool_of = {each.group: each.pool for each in pools.converted.offerings} if pools is not None else {}
        times_by_group: dict[str, GroupTimes] = {}
        for i, entry in enumerate(self.scenario.machines):
            field = f"machines[{i}]"
            if entry.group and entry.group not in group_ids and entry.group not in pool_of.values():
                self.values.wrong(f"{field}.group", f"there is no node group {entry.group!r}")
            if entry.group in times_by_group:
                self.values.wrong(f"{field}.group", "has an entry already")
            times_by_group[entry.group] = self._group_times(entry, field)
        usual = times_by_group.get("", GroupTimes())
        result = {}
        for group in group_ids:
            pool = pool_of.get(group, "")
            times = times_by_group.get(group) or times_by_group.get(pool, usual)
            if pools is not None:
                startup = pools.startup_taints(pool)
                times = with_fields(times, startup_taints=startup, replaced=provisioner != KARPENTER)
            result[group] = times
        return result

    def _group_times(self, entry: MachineEntry, field: str) -> GroupTimes:
        """Read the times of a group's machines. ``field``: path of the entry, for errors, which are recorded."""
        values = self.values
        is_share = 0 <= entry.failures <= 1  # False for NaN, too
        if not is_share:
            values.wrong(f"{field}.failures", "a share is between 0 and 1")
        if entry.stock is not None and entry.stock < 0:
            values.wrong(f"{field}.stock", "is negative")
        return GroupTimes(
            boot=values.spread(entry.boot, f"{field}.boot"),
            apart=values.duration(entry.apart, f"{field}.apart"),
            ready=values.spread(entry.ready, f"{field}.ready"),
            startup=values.spread(entry.startup, f"{field}.startup"),
            deletion=values.spread(entry.deletion, f"{field}.deletion"),
            lifetime=None
            if entry.lifetime is None
            else values.spread(entry.lifetime, f"{field}.lifetime", least=SECOND),
            failures=round(entry.failures * MILLION) if is_share else 0,
            stock=entry.stock,
            out_of_stock=tuple(
                self._period(period, f"{field}.outOfStock[{j}]") for j, period in enumerate(entry.out_of_stock)
            ),
            creation=values.duration(entry.creation, f"{field}.creation"),
        )

    def _outages(self, groups: Sequence[NodeGroup], objects: Sequence[KubeObject]) -> list[ZoneOutage]:
        """Read the outages. Records a problem for a zone without nodes and node groups."""
        zones = {zone_of_group(group) for group in groups}
        zones |= {zone_of_node(item) for item in objects if isinstance(item, Node)}
        outages = []
        for i, entry in enumerate(self.scenario.outages):
            if entry.zone not in zones - {""}:
                self.values.wrong(f"outages[{i}].zone", f"no node and no node group is in a zone {entry.zone!r}")
            begin, end = self._period(entry, f"outages[{i}]")
            outages.append(ZoneOutage(zone=entry.zone, begin=begin, end=end))
        return outages

    def _period(self, entry: OutOfStock | OutageEntry, field: str) -> tuple[Moment, Moment]:
        """Return (begin, end) of a period in nanoseconds since 1970.

        Records a problem if ``end`` is not after ``begin``. ``field``: path of the entry, for errors.
        """
        begin, end = (
            self.values.duration(entry.begin, f"{field}.begin"),
            self.values.duration(entry.end, f"{field}.end"),
        )
        if end <= begin:
            self.values.wrong(f"{field}.end", f"{entry.end} is not after {entry.begin}")
        return self.begin + begin, self.begin + end

    def _times(self, objects: Sequence[KubeObject]) -> Callable[[Pod], PodTimes]:
        """Return a function that returns the times of a pod, by its workload. Errors are recorded as problems."""
        workload_keys = _list_workload_keys(objects)
        times_by_workload: dict[str, PodTimes] = {}
        for i, entry in enumerate(self.scenario.pods):
            field = f"pods[{i}]"
            if entry.workload in times_by_workload:
                self.values.wrong(f"{field}.workload", "has an entry already")
            if entry.workload:
                key = self._key(entry.workload, f"{field}.workload")
                if all(key) and key not in workload_keys:
                    self.values.wrong(f"{field}.workload", f"there is no {entry.workload}")
                if entry.work is not None and key[0] in RESTARTED:
                    self.values.wrong(f"{field}.work", f"pods of a {key[0]} run until they are deleted")
            times_by_workload[entry.workload] = self._pod_times(entry, field)
        usual = times_by_workload.pop("", PodTimes())
        if not times_by_workload and usual.work is None:
            return lambda _: usual
        return TimesByOwner(times_by_workload, usual)

    def _pod_times(self, entry: PodEntry, field: str) -> PodTimes:
        """Read the times of a workload's pods. ``field``: path of the entry, for errors, which are recorded."""
        values = self.values
        return PodTimes(
            pull=values.spread(entry.pull, f"{field}.pull"),
            start=values.spread(entry.start, f"{field}.start"),
            readiness=values.spread(entry.readiness, f"{field}.readiness"),
            termination=values.spread(entry.termination, f"{field}.termination"),
            work=None if entry.work is None else values.spread(entry.work, f"{field}.work"),
        )

    def _pipeline(self) -> Pipeline:
        """Read the times of the metrics pipeline. Errors are recorded."""
        values, metrics = self.values, self.scenario.metrics
        return Pipeline(
            scrape=values.duration(metrics.scrape, "metrics.scrape", least=1000 * _MILLISECOND),
            window=values.duration(metrics.window, "metrics.window"),
            lag=values.duration(metrics.lag, "metrics.lag"),
        )

    # -- load ---------------------------------------------------------------------------------------------------------

    def _key(self, text: str, field: str) -> Key:
        """Parse ``Kind/namespace/name`` of a workload. After an error, which is recorded, all three are empty."""
        parts = text.split("/")
        if len(parts) == 3 and parts[0] not in self._workloads and (reason := self._explain_no_pods(parts[0])):
            self.values.wrong(field, f"{text} makes no pods: {reason}")
            return "", "", ""
        if len(parts) != 3 or parts[0] not in self._workloads:
            self.values.wrong(field, f"{text!r} is no workload: Deployment/NAMESPACE/NAME is meant")
            return "", "", ""
        return parts[0], parts[1], parts[2]

    def _explain_no_pods(self, kind: str) -> str:
        """Return why objects of a custom kind create no pods; empty for built-in kinds, and if there are no objects."""
        if kind in self._unscaled:
            return self._unscaled[kind]
        custom = any(skipped_kind.startswith(f"{kind}.") for skipped_kind in self._report.skipped)
        return "no HPA scales it, or it has no CustomResourceDefinition with a scale" if custom else ""

    def _load(self, objects: Sequence[KubeObject]) -> dict[Key, tuple[dict[str, Usage], Queue | None]]:
        """Read the load of each workload: (usage by resource, its queue or None).

        Mistakes are added to ``values``.
        """
        values = self.values
        workload_keys = _list_workload_keys(objects)
        result: dict[Key, tuple[dict[str, Usage], Queue | None]] = {}
        for i, entry in enumerate(self.scenario.load):
            field = f"load[{i}]"
            key = self._key(entry.workload, f"{field}.workload")
            if all(key) and key not in workload_keys:
                values.wrong(f"{field}.workload", f"there is no {entry.workload}")
            if key in result:
                values.wrong(f"{field}.workload", "has an entry already")
            if not entry.total and not entry.per_pod and entry.queue is None:
                values.wrong(field, "total, perPod or a queue is needed")
            for name in entry.total.keys() & entry.per_pod.keys():
                values.wrong(f"{field}.perPod.{name}", "is given in total already")
            for name in (entry.total.keys() | entry.per_pod.keys()) & (entry.queue.used if entry.queue else {}).keys():
                values.wrong(f"{field}.queue.used.{name}", "is given as usage already")
            usage = {
                name: Usage(signal=values.signal(signal, f"{field}.{way}.{name}"), per_pod=way == "perPod")
                for way, signals_by_resource in (("total", entry.total), ("perPod", entry.per_pod))
                for name, signal in signals_by_resource.items()
            }
            queue = None
            if entry.queue is not None:
                given_queue, place = entry.queue, f"{field}.queue"
                queue = Queue(
                    arrivals=values.signal(given_queue.arrivals, f"{place}.arrivals"),
                    capacity=values.milli(given_queue.capacity, f"{place}.capacity"),
                    used={
                        name: values.milli(amount, f"{place}.used.{name}") for name, amount in given_queue.used.items()
                    },
                    patience=values.duration(given_queue.patience, f"{place}.patience"),
                )
            result[key] = usage, queue
        return result

    def _external(
        self, load: Mapping[Key, tuple[dict[str, Usage], Queue | None]]
    ) -> dict[tuple[str, str], list[ExternalMetric]]:
        """Read the external metrics by (namespace, name). ``load``: result of :meth:`_load`, for queues.

        Mistakes are added to ``values``; a metric with both a signal and a workload, or with neither, is left out.
        """
        metrics_by_name: dict[tuple[str, str], list[ExternalMetric]] = {}
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
            named = metrics_by_name.setdefault((entry.namespace, entry.name), [])
            if any(other.labels == entry.labels for other in named):
                self.values.wrong(field, f"there is a {entry.name} with these labels already")
            named.append(metric)
        return metrics_by_name
