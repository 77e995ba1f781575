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
    """A request of ``by`` for ``action`` at a time (RFC 3339), with ``arguments``; ``error`` if it was refused."""

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
    """Usage and cost of a node group. ``cost`` is absent if the group has no price.

    ``added``: machines created during the run, for an autoscaler or as replacement of a lost one (not those that were
    out of stock); ``removed``: machines that an autoscaler deleted; ``lost``: machines that ended by themselves (their
    ``lifetime``).
    """

    group: str
    instance_type: str
    node_hours: float
    cost: float | None
    added: int
    removed: int
    lost: int = 0


class QueueLength(_Part, frozen=True):
    """Number of pods that waited for a node, over time: mean, quantiles and maximum, each moment weighted by its
    length. ``p90``: for 90 % of the time no more pods waited.
    """

    mean: float
    p50: int
    p90: int
    p99: int
    max: int


class PendingPods(_Part, frozen=True):
    """Pods without a node.

    ``pod_seconds``: waiting time of all pods together. ``p50`` to ``max``: how long a pod waited until it was bound or
    given up, or has waited so far, in seconds. ``at_end``: number of pods that still wait. ``length``: how many pods
    waited at once.
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
    """Cores over time: capacity of nodes, requests of pods on them, unrequested capacity, and requests of pods without
    a node.
    """

    provisioned: float
    requested: float
    over_provisioned: float
    under_provisioned: float


class QueueUse(_Part, frozen=True):
    """Work of a queue: what arrived, the share that waited for too long, and what is left."""

    workload: str
    arrived: float
    late: float
    left: float


class JobUse(_Part, frozen=True):
    """Result of a job (namespace and name); jobs that had ended before the beginning are not reported.

    ``outcome`` is ``complete``, ``failed``, ``suspended``, ``deleted`` (before its end) or ``running``. ``completed``,
    ``failed``: pods, as its status counts them; ``restarts``: pods that replaced a failed one. ``makespan``: seconds
    from the creation of the job until it was complete or failed; absent while it runs. ``work``, ``lostWork``: seconds
    of pods that succeeded, and of pods that were evicted, lost with their node or given up.
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
    """Seconds from the creation of a job until it was complete, of all jobs that completed."""

    p50: float
    p90: float
    p99: float
    max: float


class JobTotals(_Part, frozen=True):
    """Results of all jobs of a run.

    ``complete``, ``failed``, ``suspended``, ``deleted``, ``running``: jobs by their outcome. ``restarts``: pods that
    replaced a failed one. ``work``, ``lost_work``: seconds as in :class:`JobUse`. ``makespan``: absent if no job
    completed. ``cost_per_completed_job``: the cost of all machines of the run, also of idle ones and of other
    workloads, divided by the completed jobs; absent without a cost or a completed job.
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
    """An outage of a zone. ``at``: when it began (RFC 3339, UTC); ``machines``, ``pods``: lost at that moment, nodes of
    no group included, pods of DaemonSets excluded.
    """

    zone: str
    at: str
    seconds: float
    machines: int
    pods: int


class Recommended(_Part, frozen=True):
    """A VPA's (``vpa``: namespace and name) recommendation for a container: quantities by resource."""

    vpa: str
    container: str
    target: dict[str, str]
    lower_bound: dict[str, str]
    upper_bound: dict[str, str]


class ControllerUse(_Part, frozen=True):
    """Rounds of a controller, and how many of them were skipped because they could not change anything."""

    name: str
    rounds: int
    skipped: int


class IdealMix(_Part, frozen=True):
    """What was ``paid`` for machines of groups with a price, and for what: ``paid`` is the sum of the other amounts.

    ``ideal``: the cheapest mix found of the groups' nodes, for as many pods as the load needed at that moment; no mix
    costs less than ``bound``. ``hpa``: additional cost of the pods that HPAs had beyond that; ``packing``: additional
    cost of the nodes that pods were on; ``ca``: ready nodes without pods (except those of DaemonSets); ``boot``:
    machines that were not ready nodes yet. Sampled at ``moments`` evenly spaced moments; each stands for the time
    around it. ``methods``: how the bounds were proven (see :class:`~kscale.capacity.mix.records.Bound`). ``unplaced``:
    maximum, over the moments, of the pods on nodes that the mix did not place; their nodes are part of ``ideal``, as
    paid.
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

    ``begin``: when the simulated time begins (RFC 3339, UTC, whole seconds); ``seed``: that of the scenario.
    ``seconds``: duration of the simulated time; less than ``horizon_seconds`` if it was ``interrupted``. ``cost`` is
    absent if a group that had machines has no price; it does not include nodes of no group (``ungrouped_node_hours``),
    nor does ``node_hours``. ``most_nodes``: the maximum number of nodes at once, of groups or not, ready or not.
    ``pending_pods``: how long pods were without a node; ``cores``: core-hours of the run; ``queues``: of each workload
    with a queue. ``late``: the share of the work that arrived at all queues that waited for too long; absent if none
    arrived.

    ``actions``: how often autoscalers made each request that was not refused; ``refusals``: those that were. Of
    ``actions``: ``rescales`` (``PutScale``, by HPAs), ``evictions`` (``Evict``, by the Cluster Autoscaler and the VPA's
    updater) and ``resizes`` of pods in place (``Resize``, by the VPA's updater). ``pod_events``: how often pods were
    created, changed or deleted. ``recommendations``: of VPAs, at the end. ``interruptions``: machines that were lost,
    of all groups; ``interrupted_pods``: pods that were lost with their node before they finished (except those of
    DaemonSets). ``outages``: of zones that began during the run. ``jobs``: the result of each job; ``job_totals``:
    their sums and quantiles, absent without jobs. ``ideal``: if requested. ``warnings``: what of the scenario was not
    simulated, and why.
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
