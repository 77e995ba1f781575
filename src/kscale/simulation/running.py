"""``kscale.simulate``: runs a scenario and reports its result. Replays a decision log: compares what autoscalers decide
now with what they decided then.

Not in upstream.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kscale.ca.options import AutoscalingOptions
from kscale.capacity.whatif.questions import Simulated
from kscale.drivers.driver import Driver, Repeating, VirtualDrive
from kscale.effects import SECOND, Action, Moment, Outcome, Perform, WriteStatus, from_text, moment, to_text
from kscale.errors import InputError, Problem
from kscale.files import read_file, replace_file, replacing
from kscale.hpa.api.v1_conversion import from_v1
from kscale.imports import library
from kscale.objects.api.autoscaling import HorizontalPodAutoscalerV1
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import ResourceList
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.argument_types import typed
from kscale.objects.node_selectors import INSTANCE_TYPE
from kscale.objects.nodegroup import NodeGroup
from kscale.records import Record
from kscale.simulation.accounting import IdealMixes, JobOutcomes, Ledger, quantile, sum_jobs
from kscale.simulation.building import Setup, build, read_scenario
from kscale.simulation.records import (
    ControllerUse,
    CoreHours,
    Decision,
    DecisionLog,
    GroupUse,
    PendingPods,
    QueueUse,
    Recommended,
    SimulationReport,
)
from kscale.simulation.scenario import KARPENTER, ControllerFlags, Scenario
from kscale.snapshot.caches import collector_relaxed
from kscale.snapshot.cluster import Cluster
from kscale.world.simulated.api_server import Changes
from kscale.world.simulated.controllers import DRIVERS, HAPPENINGS

__all__ = [
    "AutoscalerReplay",
    "DecisionReplay",
    "Simulation",
    "Simulator",
    "Timeline",
    "read_decisions",
    "replay_decisions",
    "simulate",
    "storing_current_versions",
]


def storing_current_versions(perform: Perform) -> Perform:
    """Return a ``perform`` that first converts objects to the version that the world stores.

    The HPA controller of older releases writes its status as autoscaling/v1; the world has HPAs as autoscaling/v2.
    """

    def performing(action: Action, now: Moment) -> Outcome:
        """Perform an action, with an HPA of autoscaling/v1 converted."""
        if type(action) is WriteStatus and type(action.object) is HorizontalPodAutoscalerV1:
            action = replace(action, object=from_v1(action.object))
        return perform(action, now)

    return performing


_CORES = "_cores"
Column = NDArray[np.int64] | NDArray[np.float64] | list[str]


def _build_column(name: str, values: list[Any]) -> Column:
    """Convert the values of a column: float64 if the name ends with ``_cores``, otherwise int64.

    Texts stay as they are, in the same list.
    """
    if values and isinstance(values[0], str):
        return values
    return np.array(values, np.float64) if name.endswith(_CORES) else np.array(values, np.int64)


class Timeline:
    """Rows by time, with named columns: counts (int64), cores (float64) or texts.

    Times are nanoseconds since 1970. Columns whose name ends with ``_cores`` are in cores.
    """

    def __init__(self, *names: str) -> None:
        self._rows: dict[str, list[Any]] = {name: [] for name in ("time", *names)}

    def __len__(self) -> int:
        return len(self._rows["time"])

    def add(self, time: datetime | Moment, *values: Any) -> None:
        """Append a row: its ``time``, and ``values`` in the order of the columns.

        Raises ValueError for another number of values, InputError for an invalid time.
        """
        for column, value in zip(self._rows.values(), (moment(time, "time"), *values), strict=True):
            column.append(value)

    def add_all(self, time: datetime | Moment, *columns: Sequence[Any]) -> None:
        """Append rows of one ``time``. ``columns``: their values, in the order of the columns."""
        times = [moment(time, "time")] * len(columns[0] if columns else ())
        for column, values in zip(self._rows.values(), (times, *columns), strict=True):
            column += values

    def columns(self) -> dict[str, Column]:
        """Return all columns by name, ``time`` (nanoseconds since 1970) first.

        A column of texts is a list, all others are arrays; without rows, all are arrays.
        """
        return {name: _build_column(name, values) for name, values in self._rows.items()}

    def write(self, path: Path) -> None:
        """Write a Parquet file; times are timestamps in UTC.

        Raises :class:`~kscale.errors.MissingExtraError` without the extra ``[data]``.
        """
        pa, pq = library("pyarrow", "Parquet"), library("pyarrow.parquet", "Parquet")
        columns = {name: pa.array(values) for name, values in self.columns().items()}
        columns["time"] = columns["time"].cast(pa.timestamp("ns", tz="UTC"))
        with replacing(path) as file:
            pq.write_table(pa.table(columns), file)


_HOUR: Final = 3600 * SECOND
_STEPS: Final = 256
_STANDSTILL: Final = 512
"""So many times ``_STEPS`` at one moment are more than any cluster has to do then."""
_SAMPLED: Final = ("Deployment", "StatefulSet", "ReplicationController")
"""Kinds of workloads with rows in the timeline of workloads."""


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """The result of a run.

    - ``report``: totals.
    - ``timeline``: the cluster at the beginning and after every ``sample`` of the scenario: ``nodes``; paid
      ``machines``; ``pods`` on nodes and ``pending`` ones; ``allocatable_cores`` of all nodes, ``requested_cores`` of
      pods on nodes and ``pending_cores`` of pending pods, in cores (float64, exact to a thousandth).
    - ``workloads``: each Deployment, StatefulSet, ReplicationController and Job (``workload``: kind, namespace and
      name) at the same moments: ``replicas`` of its spec (of a Job: the number it currently wants), and how many of
      them are ``ready``. For a Job also the numbers of ``active``, ``succeeded`` and ``failed`` pods; 0 for others.
    - ``decisions``: requests of autoscalers that change the cluster or the cloud, in order, including refused ones.
    """

    report: SimulationReport
    timeline: Timeline
    workloads: Timeline
    decisions: DecisionLog

    def __repr__(self) -> str:
        report = self.report
        cost = "" if report.cost is None else f", cost {report.cost:,.2f}"
        return f"<Simulation: {report.seconds / 3600:,.1f} h, {report.node_hours:,.1f} node-hours{cost}>"

    def write(self, folder: Path) -> list[Path]:
        """Write ``report.json``, ``decisions.jsonl`` and the timelines (Parquet); return the files.

        Existing files are replaced. Raises InputError if the folder cannot be created or written to, MissingExtraError
        without the extra ``[data]`` (after the report and the decisions were written).
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            report, decisions = folder / "report.json", folder / "decisions.jsonl"
            replace_file(report, self.report.to_json(indent=2) + b"\n")
            replace_file(decisions, self.decisions.to_bytes())
            written = [report, decisions]
            for name, timeline in (("timeline", self.timeline), ("workloads", self.workloads)):
                path = folder / f"{name}.parquet"
                timeline.write(path)
                written.append(path)
        except OSError as error:
            raise InputError(f"{error.filename or folder}: {error.strerror or error}") from None
        return written


@typed
def simulate(
    setup: Setup,
    *,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] | None = None,
    skip: bool = True,
    ideal: int = 0,
) -> Simulation:
    """Run a scenario from its beginning to its horizon, or until ``stop`` returns True.

    Parameters
    ----------
    setup : Setup
        The world and its autoscalers. A setup can be run once.
    stop : callable
        Polled before the first and after every 256th event; after True, the result covers the time simulated so far.
    progress : callable, optional
        Called as often, with (nanoseconds done, nanoseconds in total).
    skip : bool
        Whether to skip rounds that cannot have another result than the one before. Affects the speed only.
    ideal : int
        Number of moments at which the cheapest mix of nodes is computed and compared with what was paid.

    Returns
    -------
    Simulation
        The report, timelines and decisions.

    Raises
    ------
    InputError
        If ``ideal`` is negative, or if time does not advance in the world.
    """
    if ideal < 0:
        raise InputError(Problem(f"{ideal} is negative", field="ideal"))
    return _Run(setup, skip=skip, ideal=ideal).run(stop, progress)


class _Run:
    def __init__(self, setup: Setup, *, skip: bool, ideal: int) -> None:
        self.setup, self.world = setup, setup.world
        self.mixes, self.looks = IdealMixes(setup.world), ideal
        self.log = DecisionLog()
        self.ledger = Ledger(self.world.api, self.world.time, self.world.cloud.has_instance)
        self.jobs = JobOutcomes(self.world.api, self.world.time)
        self.begin: Moment = self.world.time.now
        self.pod_events = 0
        self.most: dict[str, int] = {}
        self.removed: dict[str, int] = {}
        self.timeline = Timeline(
            "nodes", "machines", "pods", "pending", "allocatable_cores", "requested_cores", "pending_cores"
        )
        self.workloads = Timeline("workload", "replicas", "ready", "active", "succeeded", "failed")
        self.world.api.listen("Pod", self._pods)
        self.drives = [self._drive(driver, DRIVERS + i, skip=skip) for i, driver in enumerate(setup.drivers)]

    def _drive(self, driver: Driver[Any], rank: int, *, skip: bool) -> VirtualDrive:
        """Return the drive that runs a driver in the world, and logs its actions.

        ``rank``: order among drivers at one time. ``skip``: skip rounds whose inputs are unchanged.
        """
        world = self.world
        sources = driver.input_sources if skip and isinstance(driver, Repeating) else None
        stores = world.stores(driver.watches, sources)
        perform = self.log.listening(driver.name, storing_current_versions(world.perform))
        inputs = None if sources is None else partial(world.inputs, stores, sources)
        return VirtualDrive(driver, stores, world.time, perform, rank=rank, inputs=inputs)

    def run(self, stop: Callable[[], bool], progress: Callable[[int, int], None] | None) -> Simulation:
        """Run the world to its horizon, or until ``stop``, which is polled, returns True.

        ``progress`` is called with (nanoseconds done, nanoseconds in total).
        """
        world, end = self.world, self.begin + self.setup.horizon
        world.begin()
        world.time.at(world.time.now, self._record_sample, rank=HAPPENINGS)
        for number in range(self.looks):
            moment = self.begin + self.setup.horizon * (2 * number + 1) // (2 * self.looks)
            world.time.at(moment, self.mixes.observe, rank=HAPPENINGS)
        with collector_relaxed():
            interrupted = self._run_until(end, stop, progress)
        for drive in self.drives:
            drive.stop()
        return Simulation(
            report=self._report(interrupted), timeline=self.timeline, workloads=self.workloads, decisions=self.log
        )

    def _run_until(self, end: Moment, stop: Callable[[], bool], progress: Callable[[int, int], None] | None) -> bool:
        """Run the world up to a moment; return whether ``stop``, which is polled, interrupted the run.

        ``progress`` is called with (nanoseconds done, nanoseconds in total). Raises InputError if the simulated time
        does not advance.
        """
        world, stands = self.world, 0
        while (due := world.time.next_due) is not None and due <= end:
            if stop():
                return True
            before = world.time.now
            world.time.steps(_STEPS, end)
            stands = stands + 1 if world.time.now == before else 0
            if stands > _STANDSTILL:
                now = to_text(before, fraction=True)
                text = f"time does not advance beyond {now}: each event causes another one at the same time"
                raise InputError(Problem(text))
            if progress is not None:
                progress(world.time.now - self.begin, self.setup.horizon)
        world.time.run(end)
        return False

    def _pods(self, changes: Changes[Pod]) -> None:
        """Count changes of pods (creations and deletions, too), for the report."""
        self.pod_events += len(changes)

    def _record_sample(self) -> None:
        """Add the current state to the timelines of cluster and workloads, and schedule the next sample."""
        world, ledger = self.world, self.ledger
        machines = sum(pool.billed_count for pool in world.cloud.pools.values())
        self.timeline.add(
            world.time.now, ledger.nodes, machines, ledger.pods, ledger.pending,
            *(milli / 1000 for milli in (ledger.allocatable, ledger.requested, ledger.wanted))
        )  # fmt: skip
        for kind in _SAMPLED:
            items = world.api.get_all(kind)
            zeros = [0] * len(items)
            self.workloads.add_all(
                world.time.now,
                [f"{kind}/{key}" if "/" in key else f"{kind}//{key}" for key in items],
                [item.spec.replicas or 0 for item in items.values()],
                [item.status.ready_replicas for item in items.values()],
                zeros, zeros, zeros,
            )  # fmt: skip
        for job in world.api.get_all("Job").values():
            status, name = job.status, f"Job/{job.namespace}/{job.name}"
            counts = status.active, status.succeeded, status.failed
            self.workloads.add(world.time.now, name, status.active, status.ready or 0, *counts)
        world.time.at(world.time.now + self.setup.sample, self._record_sample, rank=HAPPENINGS)

    # -- report -------------------------------------------------------------------------------------------------------

    def _report(self, interrupted: bool) -> SimulationReport:
        """Build the report of the run up to the current time. ``interrupted``: the run did not reach its end."""
        world, ledger, log = self.world, self.ledger, self.log
        now = world.time.now
        ledger.settle()
        groups = self._groups(now)
        costs = [item.cost for item in groups if item.node_hours]
        queues = [
            QueueUse(
                workload="/".join(key),
                arrived=queue.arrived / 1000,
                late=queue.late / queue.arrived if queue.arrived else 0.0,
                left=queue.waiting / 1000,
            )
            for key, queue in world.load.queues.items()
        ]
        cost = None if None in costs else sum(item for item in costs if item is not None)
        jobs = self.jobs.uses()
        arrived = sum(queue.arrived for queue in world.load.queues.values())
        late = sum(queue.late for queue in world.load.queues.values())
        return SimulationReport(
            warnings=list(self.setup.warnings),
            name=self.setup.scenario.name,
            begin=to_text(self.begin) or "",
            horizon_seconds=self.setup.horizon / SECOND,
            seconds=(now - self.begin) / SECOND,
            interrupted=interrupted,
            seed=self.setup.scenario.seed,
            cost=cost,
            node_hours=sum(item.node_hours for item in groups),
            ungrouped_node_hours=_hours(ledger.ungrouped_time),
            most_nodes=ledger.most_nodes,
            groups=groups,
            pending_pods=self._pending(),
            cores=CoreHours(
                provisioned=_hours(ledger.allocatable_time) / 1000,
                requested=_hours(ledger.requested_time) / 1000,
                over_provisioned=_hours(ledger.over_time) / 1000,
                under_provisioned=_hours(ledger.wanted_time) / 1000,
            ),
            queues=queues,
            late=late / arrived if arrived else None,
            rescales=log.done["PutScale"],
            evictions=log.done["Evict"],
            resizes=log.done["Resize"],
            actions=dict(sorted(log.done.items())),
            refusals=dict(sorted(log.refused.items())),
            controllers=[
                ControllerUse(name=drive.driver.name, rounds=drive.rounds, skipped=drive.skipped)
                for drive in self.drives
            ],
            pod_events=self.pod_events,
            recommendations=[
                item
                for vpa in world.api.get_all("VerticalPodAutoscaler").values()
                for item in _list_recommendations(vpa)
            ],
            interruptions=sum(item.lost for item in groups),
            interrupted_pods=self.jobs.interrupted,
            outages=list(self.setup.outages),
            jobs=jobs,
            job_totals=sum_jobs(jobs, cost),
            ideal=self.mixes.summarize(_hours(now - self.begin)),
        )

    def _groups(self, now: Moment) -> list[GroupUse]:
        """Return the usage and cost of each group up to ``now``.

        If the groups stand for NodePools, groups that never had a machine are left out.
        """
        cloud = self.world.cloud
        paid = cloud.paid(now)
        result = []
        for name, pool in cloud.pools.items():
            if self.setup.many_groups and not (pool.created or pool.machines or paid[name]):
                continue
            hours, price = _hours(paid[name]), self.setup.prices[name]
            labels = pool.group.node_template.node.metadata.labels or {}
            result.append(
                GroupUse(
                    group=name,
                    instance_type=labels.get(INSTANCE_TYPE, ""),
                    node_hours=hours,
                    cost=None if price is None else hours * price,
                    added=pool.added,
                    removed=pool.removed,
                    lost=pool.lost,
                )
            )
        return result

    def _pending(self) -> PendingPods:
        """Return how long pods waited and how many, up to the current time."""
        ledger = self.ledger
        waits = [*ledger.waits, *ledger.waiting()]
        return PendingPods(
            pods=len(waits),
            pod_seconds=ledger.pending_time / SECOND,
            p50=quantile(waits, 50, 100) / SECOND,
            p90=quantile(waits, 90, 100) / SECOND,
            p95=quantile(waits, 95, 100) / SECOND,
            p99=quantile(waits, 99, 100) / SECOND,
            max=max(waits, default=0) / SECOND,
            at_end=ledger.pending,
            length=ledger.queue_length(),
        )


def _list_recommendations(vpa: VerticalPodAutoscaler) -> list[Recommended]:
    """Return the recommendation of a VPA for each container; empty without a recommendation."""
    recommendation = vpa.status.recommendation
    return [
        Recommended(
            vpa=vpa.key,
            container=entry.container_name,
            target=_texts(entry.target),
            lower_bound=_texts(entry.lower_bound),
            upper_bound=_texts(entry.upper_bound),
        )
        for entry in (recommendation.container_recommendations if recommendation is not None else ())
    ]


def _texts(amounts: ResourceList | None) -> dict[str, str]:
    """Format the amounts as quantities."""
    return {name: str(amount) for name, amount in (amounts or {}).items()}


def _hours(nanoseconds: int) -> float:
    """Convert nanoseconds to hours."""
    return nanoseconds / _HOUR


_HOUR_OF_SIMULATOR = "1h"
_LONGEST = 120  # maximum of characters for a decision's arguments


def _create_default_scenario() -> Scenario:
    """Return an empty scenario of one hour."""
    return Scenario(api_version="kscale.dev/v1alpha1", kind="Simulation", horizon=_HOUR_OF_SIMULATOR)


@dataclass(frozen=True)
class Simulator:
    """Simulates the cluster of a what-if scenario (``kscale.whatif``'s ``Base.simulate``).

    ``scenario`` sets the duration, the load, the behaviour of machines and pods, and further autoscalers; the cluster,
    its groups and the options of the Cluster Autoscaler are those of the what-if scenario. By default, only the Cluster
    Autoscaler changes anything, for an hour. ``source``, ``folder``: those of the scenario.
    """

    scenario: Scenario = field(default_factory=_create_default_scenario)
    source: str = ""
    folder: str | os.PathLike[str] = "."

    def __post_init__(self) -> None:
        scenario, autoscaler = self.scenario, self.scenario.controllers.cluster_autoscaler
        taken = [name for name in ("cluster", "objects", "groups") if getattr(scenario, name)]
        problems = [Problem("it is that of the what-if scenario", self.source, field=name) for name in taken]
        if autoscaler is not None and autoscaler.flags:
            field = "controllers.clusterAutoscaler.flags"
            problems.append(Problem("flags are edits of the what-if scenario", self.source, field=field))
        if scenario.controllers.karpenter is not None or scenario.provisioner == KARPENTER:
            text = "the question simulate runs the Cluster Autoscaler"
            problems.append(Problem(text, self.source, field="controllers.karpenter"))
        if problems:
            raise InputError(problems)

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Simulator:
        """Create a simulator from a scenario file.

        Raises InputError if the file cannot be read, or sets cluster, objects, groups or flags of the Cluster
        Autoscaler, which the what-if scenario sets, or uses Karpenter.
        """
        return cls(read_scenario(path), str(path), Path(path).parent)

    def __call__(
        self, cluster: Cluster, groups: Sequence[NodeGroup], options: AutoscalingOptions, now: Moment
    ) -> Simulated:
        """Run the scenario from ``now`` to its horizon, and return its totals.

        Raises InputError if it cannot be built.
        """
        controllers = replace(self.scenario.controllers, cluster_autoscaler=ControllerFlags())
        scenario = replace(self.scenario, begin=to_text(now) or "", controllers=controllers)
        setup = build(
            scenario,
            source=self.source,
            folder=self.folder,
            cluster=cluster,
            groups=groups,
            options={"cluster_autoscaler": options},
        )
        run = simulate(setup)
        pods = setup.world.api.get_all("Pod").values()
        pending = {pod.key for pod in pods if not pod.spec.node_name and pod.status.phase in ("", "Pending")}
        return Simulated(
            hours=run.report.seconds / 3600,
            node_hours={group.group: group.node_hours for group in run.report.groups},
            nodes=len(setup.world.api.get_all("Node")),
            waiting=frozenset(pending),
            pending_seconds=run.report.pending_pods.pod_seconds,
            decisions=[_format_decision(entry, now) for entry in run.decisions.entries],
            change={group.group: group.added - group.removed - group.lost for group in run.report.groups},
        )


def _format_decision(entry: Decision, begin: Moment) -> str:
    """Format a decision: ``330 s: cluster-autoscaler IncreaseSize group=general delta=2``.

    Arguments that are False are left out; the others are cut to 120 characters in all. The error of a refused decision
    follows.
    """
    seconds = (from_text(entry.at) - begin) / 1e9
    about = " ".join(f"{name}={value}" for name, value in entry.arguments.items() if value is not False)
    if len(about) > _LONGEST:
        about = f"{about[:_LONGEST]}..."
    return f"{seconds:.0f} s: {entry.by} {entry.action} {about}" + (f", refused: {entry.error}" if entry.error else "")


class AutoscalerReplay(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Recorded and replayed decisions of one autoscaler.

    Attributes
    ----------
    name : str
        Name of the autoscaler.
    recorded : int
        Number of decisions in the log.
    replayed : int
        Number of decisions of the new run.
    same : int
        Number of equal decisions before the first difference.
    recorded_first : Decision or None
        Decision in the log at the first difference. None: there is no difference, or the log has no more decisions.
    replayed_first : Decision or None
        Decision of the new run at the first difference. None: there is no difference, or the run has no more decisions.
    """

    name: str
    recorded: int
    replayed: int
    same: int
    recorded_first: Decision | None = None
    replayed_first: Decision | None = None


class DecisionReplay(Record, frozen=True):
    """Comparison of a log of decisions with a new run of its scenario.

    Attributes
    ----------
    name : str
        Name of the scenario.
    recorded : int
        Number of decisions in the log.
    replayed : int
        Number of decisions of the new run.
    same : int
        Number of equal decisions before the first difference, summed over the autoscalers.
    differs : bool
        Whether any request, its time (to the nanosecond) or its result differs.
    autoscalers : list of AutoscalerReplay
        Comparison for each autoscaler.
    """

    KIND = "DecisionReplay"
    ROWS = "autoscalers"

    name: str
    recorded: int
    replayed: int
    same: int
    differs: bool
    autoscalers: list[AutoscalerReplay]


@typed
def read_decisions(path: str | os.PathLike[str]) -> list[Decision]:
    """Read a log of decisions (``decisions.jsonl``).

    Raises InputError if the file cannot be read, or for a line that is not a decision, with its number.
    """
    source = os.fspath(path)
    try:
        lines = read_file(path).splitlines()
    except OSError as error:
        raise InputError(Problem(error.strerror or str(error), source=source)) from None
    decisions: list[Decision] = []
    for number, line in enumerate(lines, 1):
        try:
            decisions.append(msgspec.json.decode(line, type=Decision))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(Problem(f"no decision: {error}", source=source, object=f"line {number}")) from None
    return decisions


@typed
def replay_decisions(recorded: Sequence[Decision], setup: Setup, **more: Any) -> DecisionReplay:
    """Run a scenario and compare its decisions with a log.

    Parameters
    ----------
    recorded : sequence of Decision
        The log.
    setup : Setup
        The world of the same scenario.
    **more
        Further parameters of :func:`~kscale.simulation.simulate`.

    Returns
    -------
    DecisionReplay
        Numbers of equal decisions and the first difference of each autoscaler.

    Raises
    ------
    InputError
        As :func:`~kscale.simulation.simulate` does.
    """
    entries = simulate(setup, **more).decisions.entries
    replayed = [msgspec.convert(msgspec.json.decode(msgspec.json.encode(item)), Decision) for item in entries]
    old, new = _group_by_autoscaler(recorded), _group_by_autoscaler(replayed)
    replays = [_replay(name, old.get(name, ()), new.get(name, ())) for name in dict.fromkeys((*old, *new))]
    return DecisionReplay(
        name=setup.scenario.name,
        recorded=len(recorded),
        replayed=len(replayed),
        same=sum(item.same for item in replays),
        differs=any(item.recorded_first or item.replayed_first for item in replays),
        autoscalers=replays,
    )


def _group_by_autoscaler(decisions: Iterable[Decision]) -> Mapping[str, Sequence[Decision]]:
    """Return the decisions by autoscaler, in order."""
    result: dict[str, list[Decision]] = {}
    for decision in decisions:
        result.setdefault(decision.by, []).append(decision)
    return result


def _replay(name: str, old: Sequence[Decision], new: Sequence[Decision]) -> AutoscalerReplay:
    """Compare the recorded (``old``) and replayed decisions of one autoscaler up to the first difference."""
    shorter = min(len(old), len(new))
    same = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    return AutoscalerReplay(
        name=name,
        recorded=len(old),
        replayed=len(new),
        same=same,
        recorded_first=old[same] if same < len(old) else None,
        replayed_first=new[same] if same < len(new) else None,
    )
