"""Result records of a simulation, and the log of what autoscalers requested."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from kscale.drivers.driver import changes_something
from kscale.effects import Action, DeleteNodes, Moment, Outcome, Perform, PutScale, to_text
from kscale.objects.decode import enc_hook
from kscale.records import Record

__all__ = [
    "ControllerUse",
    "CoreHours",
    "Decision",
    "DecisionLog",
    "GroupUse",
    "IdealMix",
    "JobTotals",
    "JobUse",
    "Makespans",
    "OutageUse",
    "PendingPods",
    "QueueLength",
    "QueueUse",
    "Recommended",
    "SimulationReport",
]


class Decision(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A request of an autoscaler.

    Attributes
    ----------
    at : str
        Time of the request (RFC 3339).
    by : str
        Name of the autoscaler.
    action : str
        Kind of the request, such as ``IncreaseSize`` or ``Evict``.
    arguments : dict of str to Any
        Arguments of the request by name, without empty ones.
    error : str or None
        Why the request was refused. None: it was carried out.
    """

    at: str
    by: str
    action: str
    arguments: dict[str, Any]
    error: str | None = None


class DecisionLog:
    """Log of requests that change the cluster or the cloud; queries, reports, statuses and leases are left out.

    ``done`` and ``refused`` count by the names of actions.
    """

    def __init__(self) -> None:
        self.entries: list[Decision] = []
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def listening(self, by: str, perform: Perform) -> Perform:
        """Wrap the ``perform`` of one autoscaler (``by``): actions that change something are also logged."""

        def performing(action: Action, now: Moment) -> Outcome:
            """Perform an action, and log it if it changes something."""
            outcome = perform(action, now)
            if changes_something(action):
                self._note(by, action, now, outcome)
            return outcome

        return performing

    def _note(self, by: str, action: Action, now: Moment, outcome: Outcome) -> None:
        """Add an entry, and count the action in ``done``, or in ``refused`` if its outcome is an error.

        Of nodes to be deleted and of a scale, the entry has the names only. Empty arguments are left out.
        """
        name = type(action).__name__
        (self.done if outcome.error is None else self.refused)[name] += 1
        if isinstance(action, DeleteNodes):  # record the names only
            action = msgspec.structs.replace(action, objects=())
        arguments: dict[str, Any] = msgspec.to_builtins(action, enc_hook=enc_hook)
        if isinstance(action, PutScale):  # record the name of the scale's object only
            arguments |= {"scale": None, "name": action.scale.metadata.name}
        self.entries.append(
            Decision(
                at=to_text(now, fraction=True) or "",
                by=by,
                action=name,
                arguments={key: value for key, value in arguments.items() if value not in (None, "", [], {})},
                error=None if outcome.error is None else outcome.error.message,
            )
        )

    def to_bytes(self) -> bytes:
        """Encode the log as JSON lines."""
        return b"".join(msgspec.json.encode(entry) + b"\n" for entry in self.entries)


class _Part(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    pass


class GroupUse(_Part, frozen=True):
    """Usage and cost of a node group in a simulation.

    Attributes
    ----------
    group : str
        Id of the node group.
    instance_type : str
        Instance type of its machines. Empty: unknown.
    node_hours : float
        Hours of all its machines together.
    cost : float or None
        Price of these hours. None: the group has no price.
    added : int
        Number of machines created during the run, for an autoscaler or to replace a lost one. Machines that were out of
        stock do not count.
    removed : int
        Number of machines that an autoscaler deleted.
    lost : int
        Number of machines that ended by themselves (their ``lifetime``).
    """

    group: str
    instance_type: str
    node_hours: float
    cost: float | None
    added: int
    removed: int
    lost: int = 0


class QueueLength(_Part, frozen=True):
    """Number of pods that waited for a node at the same time. Each moment counts for as long as it lasted.

    Attributes
    ----------
    mean : float
        Mean over time.
    p50 : int
        Median: for 50 % of the time no more pods waited.
    p90 : int
        For 90 % of the time no more pods waited.
    p99 : int
        For 99 % of the time no more pods waited.
    max : int
        Maximum.
    """

    mean: float
    p50: int
    p90: int
    p99: int
    max: int


class PendingPods(_Part, frozen=True):
    """Pods without a node. Waiting times are in seconds, until a pod was bound or given up, or until the end of the
    run.

    Attributes
    ----------
    pods : int
        Number of pods that looked for a node.
    pod_seconds : float
        Waiting time of all pods together.
    p50, p90, p95, p99 : float
        Quantile of the waiting times, such as 0.5 for ``p50``.
    max : float
        Longest waiting time.
    at_end : int
        Number of pods that still waited at the end.
    length : QueueLength
        Number of pods that waited at the same time.
    """

    pods: int
    pod_seconds: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float
    at_end: int
    length: QueueLength


class CoreHours(_Part, frozen=True):
    """CPU over the time of the run, in core-hours.

    Attributes
    ----------
    provisioned : float
        Capacity of the nodes.
    requested : float
        Requests of the pods on nodes.
    over_provisioned : float
        Capacity that no pod requested.
    under_provisioned : float
        Requests of pods without a node.
    """

    provisioned: float
    requested: float
    over_provisioned: float
    under_provisioned: float


class QueueUse(_Part, frozen=True):
    """Work of the queue of a workload, in its units of work.

    Attributes
    ----------
    workload : str
        The workload as ``Kind/namespace/name``.
    arrived : float
        Work that arrived.
    late : float
        Share of the work that waited for too long, from 0 to 1.
    left : float
        Work that was not processed by the end.
    """

    workload: str
    arrived: float
    late: float
    left: float


class JobUse(_Part, frozen=True):
    """Result of a Job. Jobs that had ended before the beginning are not reported. Times are in seconds.

    Attributes
    ----------
    job : str
        The Job as ``namespace/name``.
    outcome : str
        ``complete``, ``failed``, ``suspended``, ``deleted`` (before its end) or ``running``.
    completed : int
        Number of pods that succeeded, according to its status.
    failed : int
        Number of pods that failed, according to its status.
    restarts : int
        Number of pods that replaced a failed one.
    makespan : float or None
        Time from the creation of the Job until it was complete or failed. None: it has not ended.
    work : float
        Running time of the pods that succeeded.
    lost_work : float
        Running time of the pods that were evicted, lost with their node or given up.
    """

    job: str
    outcome: str
    completed: int
    failed: int
    restarts: int
    makespan: float | None
    work: float
    lost_work: float


class Makespans(_Part, frozen=True):
    """Time from the creation of a Job until it was complete, in seconds, over all completed Jobs.

    Attributes
    ----------
    p50, p90, p99 : float
        Quantile of the times, such as 0.5 for ``p50``.
    max : float
        Longest time.
    """

    p50: float
    p90: float
    p99: float
    max: float


class JobTotals(_Part, frozen=True):
    """Results of all Jobs of a run.

    Attributes
    ----------
    jobs : int
        Number of Jobs.
    complete, failed, suspended, deleted, running : int
        Number of Jobs with this outcome.
    restarts : int
        Number of pods that replaced a failed one.
    work : float
        Running time of the pods that succeeded, in seconds.
    lost_work : float
        Running time of the pods that were evicted, lost with their node or given up, in seconds.
    makespan : Makespans or None
        Times until Jobs were complete. None: no Job was.
    cost_per_completed_job : float or None
        Cost of all machines of the run, idle ones and those of other workloads included, divided by the number of
        completed Jobs. None: no cost, or no completed Job.
    """

    jobs: int
    complete: int
    failed: int
    suspended: int
    deleted: int
    running: int
    restarts: int
    work: float
    lost_work: float
    makespan: Makespans | None
    cost_per_completed_job: float | None


class OutageUse(_Part, frozen=True):
    """An outage of a zone during the run.

    Attributes
    ----------
    zone : str
        Name of the zone.
    at : str
        Start of the outage (RFC 3339, UTC).
    seconds : float
        Length of the outage in seconds.
    machines : int
        Number of machines lost at the start, nodes without a group included.
    pods : int
        Number of pods lost at the start, without those of DaemonSets.
    """

    zone: str
    at: str
    seconds: float
    machines: int
    pods: int


class Recommended(_Part, frozen=True):
    """The recommendation of a VPA for a container at the end of the run.

    Attributes
    ----------
    vpa : str
        The VPA as ``namespace/name``.
    container : str
        Name of the container.
    target : dict of str to str
        Recommended requests by resource, as quantities.
    lower_bound : dict of str to str
        Lower bound by resource, as quantities.
    upper_bound : dict of str to str
        Upper bound by resource, as quantities.
    """

    vpa: str
    container: str
    target: dict[str, str]
    lower_bound: dict[str, str]
    upper_bound: dict[str, str]


class ControllerUse(_Part, frozen=True):
    """Rounds of a controller.

    Attributes
    ----------
    name : str
        Name of the controller.
    rounds : int
        Number of rounds.
    skipped : int
        Number of these rounds that were skipped because they could not change anything.
    """

    name: str
    rounds: int
    skipped: int


class IdealMix(_Part, frozen=True):
    """Cost of the machines of groups with a price, divided into parts: ``paid`` = ``ideal`` + ``hpa`` + ``packing`` +
    ``ca`` + ``boot``.

    The costs are those of the run, estimated from evenly spaced moments. Each moment stands for the time around it.

    Attributes
    ----------
    moments : int
        Number of moments.
    unplaced : int
        Maximum, over the moments, of the pods on nodes that the cheapest mix did not place. Their nodes are part of
        ``ideal``, as paid.
    methods : list of str
        How the bounds were proven: ``column_generation`` or ``volume``.
    paid : float
        Price of the machines.
    ideal : float
        Price of the cheapest mix found of the groups' nodes, for as many pods as the load needed.
    bound : float
        Lower bound of ``ideal``: no mix costs less.
    hpa : float
        Additional price because there were more pods than the load needed.
    packing : float
        Additional price because the nodes were not the cheapest ones for their pods.
    ca : float
        Price of ready nodes without pods, except those of DaemonSets.
    boot : float
        Price of machines that were not ready nodes yet.
    """

    moments: int
    unplaced: int
    methods: list[str]
    paid: float
    ideal: float
    bound: float
    hpa: float
    packing: float
    ca: float
    boot: float


class SimulationReport(Record, frozen=True):
    """A run of a scenario.

    Attributes
    ----------
    name : str
        Name of the scenario.
    begin : str
        Start of the simulated time (RFC 3339, UTC, whole seconds).
    horizon_seconds : float
        Length of the simulated time according to the scenario, in seconds.
    seconds : float
        Simulated time, in seconds. Less than ``horizon_seconds`` if the run was interrupted.
    interrupted : bool
        Whether the run was interrupted.
    seed : int
        Random seed of the scenario.
    cost : float or None
        Price of the machines of all groups. None: a group that had machines has no price.
    node_hours : float
        Hours of the nodes of all groups together.
    ungrouped_node_hours : float
        Hours of the nodes without a group together. They have no price.
    most_nodes : int
        Maximum number of nodes at the same time, with and without a group, ready or not.
    groups : list of GroupUse
        Usage and cost of each node group.
    pending_pods : PendingPods
        How long pods were without a node.
    cores : CoreHours
        CPU over the time of the run.
    queues : list of QueueUse
        Work of each workload with a queue.
    late : float or None
        Share of the work of all queues that waited for too long, from 0 to 1. None: no work arrived.
    rescales : int
        Number of ``PutScale`` in ``actions``, by the HPA controller.
    evictions : int
        Number of ``Evict`` in ``actions``, by the Cluster Autoscaler and the VPA's updater.
    resizes : int
        Number of ``Resize`` (of pods in place) in ``actions``, by the VPA's updater.
    actions : dict of str to int
        Number of requests by autoscalers that were not refused, by kind of request.
    refusals : dict of str to int
        Number of requests by autoscalers that were refused, by kind of request.
    controllers : list of ControllerUse
        Rounds of each controller.
    pod_events : int
        How often pods were created, changed or deleted.
    ideal : IdealMix or None
        Comparison of the cost with the cheapest possible machines. None: not requested.
    recommendations : list of Recommended
        Recommendations of VPAs at the end.
    interruptions : int
        Number of machines of all groups that were lost.
    interrupted_pods : int
        Number of pods that were lost with their node before they finished, without those of DaemonSets and mirror pods.
    jobs : list of JobUse
        Result of each Job.
    warnings : list of str
        Parts of the scenario that were not simulated, and why.
    outages : list of OutageUse
        Outages of zones that began during the run.
    job_totals : JobTotals or None
        Results of all Jobs together. None: no Jobs.
    """

    KIND = "SimulationReport"
    ROWS = "groups"

    name: str
    begin: str
    horizon_seconds: float
    seconds: float
    interrupted: bool
    seed: int
    cost: float | None
    node_hours: float
    ungrouped_node_hours: float
    most_nodes: int
    groups: list[GroupUse]
    pending_pods: PendingPods
    cores: CoreHours
    queues: list[QueueUse]
    late: float | None
    rescales: int
    evictions: int
    resizes: int
    actions: dict[str, int]
    refusals: dict[str, int]
    controllers: list[ControllerUse]
    pod_events: int
    ideal: IdealMix | None = None
    recommendations: list[Recommended] = msgspec.field(default_factory=list)
    interruptions: int = 0
    interrupted_pods: int = 0
    jobs: list[JobUse] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)
    outages: list[OutageUse] = msgspec.field(default_factory=list)
    job_totals: JobTotals | None = None
