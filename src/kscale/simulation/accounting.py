"""Amounts of a run over time: cost, usage, job results, and the lowest possible cost of its nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from kscale.capacity.mix import ALL, MixOptions, Offer, mix, offers_of
from kscale.effects import SECOND, Moment, VirtualTime
from kscale.objects.api.apps import Job, JobStatus
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, MetricSpec
from kscale.objects.api.core import Node, Pod
from kscale.objects.conditions import is_true
from kscale.objects.pod_owners import controller_of, is_daemonset_pod, is_mirror_pod
from kscale.objects.pod_resources import CPU, demand
from kscale.simulation.records import IdealMix, JobTotals, JobUse, Makespans, QueueLength
from kscale.snapshot.cluster import Cluster
from kscale.world.simulated.api_server import ApiObjects, Changes, one_by_one
from kscale.world.simulated.cloud import Pool
from kscale.world.simulated.controllers import Key
from kscale.world.simulated.pods import ENDED, is_finished
from kscale.world.simulated.stores import NOT_IN_COLUMNS
from kscale.world.simulated.world import SimulatedWorld

__all__ = ["IdealMixes", "JobOutcomes", "Ledger", "quantile", "sum_jobs"]


class Ledger:
    """Integrates amounts over time by listening to the objects of a world.

    ``waits`` holds, in nanoseconds, how long pods waited for a node until they were bound or given up; :meth:`waiting`
    returns those of pods that still wait. Cores are counted in thousandths; integrals over time are ``milli`` times
    nanoseconds. ``of_group`` returns whether a node has a machine of a group; other nodes have no known cost, and
    ``ungrouped_time`` is how long they existed.
    """

    def __init__(self, api: ApiObjects, time: VirtualTime, of_group: Callable[[Node], bool]) -> None:
        self._time, self._of_group = time, of_group
        self._ungrouped: set[str] = set()
        self.ungrouped_time = 0
        self._since: Moment = time.now
        self._pending: dict[str, tuple[Moment, int]] = {}
        self._cores: dict[str, int] = {}
        self._lengths: Counter[int] = Counter()
        self.waits: list[int] = []
        self.nodes = self.most_nodes = self._most_pending = 0
        self.pods = 0
        self.allocatable = self.requested = self.wanted = 0
        """Thousandths of cores: of all nodes, of pods on them, of pods that wait."""
        self.allocatable_time = self.requested_time = self.over_time = self.wanted_time = self.pending_time = 0
        for kind, listener in (("Node", one_by_one(self._node)), ("Pod", self._pods)):
            listener(api.present(kind))
            api.listen(kind, listener)

    def settle(self) -> None:
        """Add each amount, times the nanoseconds since the last call, to its integral over time.

        Call this before an amount changes: the current amounts count since the last call.
        """
        by, self._since = self._time.now - self._since, self._time.now
        if by:
            self.allocatable_time += self.allocatable * by
            self.requested_time += self.requested * by
            self.over_time += max(self.allocatable - self.requested, 0) * by
            self.wanted_time += self.wanted * by
            self.pending_time += len(self._pending) * by
            self._lengths[len(self._pending)] += by
            self.ungrouped_time += len(self._ungrouped) * by

    def waiting(self) -> list[int]:
        """Return how long each pod that still waits has waited, in nanoseconds."""
        return [self._time.now - since for since, _ in self._pending.values()]

    def queue_length(self) -> QueueLength:
        """Return how many pods waited at once, from the beginning to the last :meth:`settle`, weighted by time.

        Before any time has passed, all values except ``max`` are 0.
        """
        total = self._lengths.total()
        ordered = sorted(self._lengths.items())

        def at(percent: int) -> int:
            """Return the number of waiting pods that was not exceeded for ``percent`` of the time."""
            passed = 0
            for length, time in ordered:
                passed += time
                if passed * 100 >= total * percent:
                    return length
            return 0

        return QueueLength(
            mean=self.pending_time / total if total else 0.0,
            p50=at(50),
            p90=at(90),
            p99=at(99),
            max=self._most_pending,
        )

    @property
    def pending(self) -> int:
        """Return the number of pods that wait for a node."""
        return len(self._pending)

    def _node(self, old: Node | None, new: Node | None) -> None:
        """Update the sums after a change of a node. ``old`` None: a new node; ``new`` None: a deleted node."""
        before, after = (0 if node is None else _cores(node) for node in (old, new))
        if before != after or (old is None) != (new is None):
            self.settle()
            self.allocatable += after - before
            self.nodes += (old is None) - (new is None)
            self.most_nodes = max(self.most_nodes, self.nodes)
        if old is None and new is not None and not self._of_group(new):
            self._ungrouped.add(new.name)
        elif old is not None and new is None:
            self._ungrouped.discard(old.name)

    def _pods(self, changes: Changes[Pod]) -> None:
        """Update the sums after changes of pods: what runs on nodes, and what waits for a node."""
        cache: dict[tuple[int, ...], int] = {}
        for _, old, new in changes:
            if old is not None and new is not None and old.spec is new.spec and (
                old.status.phase not in ENDED and new.status.phase not in ENDED) and (
                old.metadata.deletion_timestamp is new.metadata.deletion_timestamp):  # fmt: skip
                continue  # no relevant field changed
            pod = old if new is None else new
            assert pod is not None
            uid = pod.metadata.uid
            exists = new is not None and not is_finished(new)
            bound = exists and bool(pod.spec.node_name)
            waits = exists and not bound and pod.metadata.deletion_timestamp is None and not pod.spec.scheduling_gates
            if bound != (uid in self._cores) or waits != (uid in self._pending) or (bound and old is not None and (
                old.spec.containers is not pod.spec.containers)):  # fmt: skip
                self.settle()
                self._count(uid, _demand(pod, cache) if bound or waits else 0, bound=bound, waits=waits)

    def _count(self, key: str, cores: int, *, bound: bool, waits: bool) -> None:
        """Replace what a pod (``key``: its UID) adds to the sums of bound and of waiting pods.

        ``cores``: its request in thousandths of a core; ``bound``: it is on a node; ``waits``: it waits for a node.
        """
        previous = self._cores.pop(key, None)
        if previous is not None:
            self.requested -= previous
            self.pods -= 1
        if bound:
            self._cores[key] = cores
            self.requested += cores
            self.pods += 1
        since = self._pending.pop(key, None)
        if since is not None:
            self.wanted -= since[1]
            if not waits:
                self.waits.append(self._time.now - since[0])
        if waits:
            self._pending[key] = (self._time.now if since is None else since[0]), cores
            self._most_pending = max(self._most_pending, len(self._pending))
            self.wanted += cores


def _cores(node: Node) -> int:
    """Return the allocatable cpu of a node in thousandths of a core."""
    quantity = (node.status.allocatable or {}).get(CPU)
    return 0 if quantity is None else quantity.milli_value()


def _demand(pod: Pod, known: dict[tuple[int, ...], int]) -> int:
    """Return the pod's cpu request in thousandths of a core.

    ``known`` caches results of pods that share the same spec parts, by their ids.
    """
    spec = pod.spec
    key = id(spec.containers), id(spec.init_containers), id(spec.resources), id(spec.overhead)
    cores = known.get(key)
    if cores is None:
        quantity = demand(pod).get(CPU)
        cores = known[key] = 0 if quantity is None else quantity.milli_value()
    return cores


def quantile(values: list[int], share: int, of: int) -> int:
    """Return the smallest of the values that at least ``share / of`` of all values do not exceed; 0 without values."""
    if not values:
        return 0
    ordered = sorted(values)
    return ordered[max(-(-len(ordered) * share // of) - 1, 0)]


def sum_jobs(jobs: Sequence[JobUse], cost: float | None) -> JobTotals | None:
    """Return the totals of jobs in a run that cost ``cost`` ($; None: unknown). None if there are no jobs.

    Makespans and the cost per job count completed jobs only; both are None if no job is completed.
    """
    if not jobs:
        return None
    outcomes = Counter(job.outcome for job in jobs)
    complete = outcomes["complete"]
    times = [round((job.makespan or 0.0) * SECOND) for job in jobs if job.outcome == "complete"]
    makespan = Makespans(
        p50=quantile(times, 50, 100) / SECOND,
        p90=quantile(times, 90, 100) / SECOND,
        p99=quantile(times, 99, 100) / SECOND,
        max=max(times, default=0) / SECOND,
    )
    return JobTotals(
        jobs=len(jobs),
        complete=complete,
        failed=outcomes["failed"],
        suspended=outcomes["suspended"],
        deleted=outcomes["deleted"],
        running=outcomes["running"],
        restarts=sum(job.restarts for job in jobs),
        work=sum(job.work for job in jobs),
        lost_work=sum(job.lost_work for job in jobs),
        makespan=makespan if complete else None,
        cost_per_completed_job=cost / complete if complete and cost is not None else None,
    )


@dataclass(slots=True)
class _Job:
    """A job since the run began, or since its creation.

    Times are nanoseconds. ``open``: failed and evicted pods that have not been replaced yet, without those that were
    deleted because the job was suspended.
    """

    key: str
    since: Moment
    status: JobStatus
    end: Moment | None = None
    is_deleted: bool = False
    is_suspended: bool = False
    restarts: int = 0
    open: int = 0
    done: int = 0
    lost: int = 0
    running: dict[str, Moment] = field(default_factory=dict)
    """By UID of a pod that runs: since when."""


class JobOutcomes:
    """Tracks jobs by listening to the jobs and pods of a world.

    ``interrupted`` counts pods that were lost with their node before they finished, except mirror pods and those of
    DaemonSets.
    """

    def __init__(self, api: ApiObjects, time: VirtualTime) -> None:
        self._api, self._time = api, time
        self._jobs: dict[str, _Job] = {}
        self.interrupted = 0
        for job in api.get_all("Job").values():
            if _outcome(job.status) not in ("complete", "failed"):
                self._jobs[job.metadata.uid] = _Job(job.key, time.now, job.status, is_suspended=bool(job.spec.suspend))
        self._pods(api.present("Pod"))
        api.listen("Job", one_by_one(self._job))
        api.listen("Pod", self._pods)

    def uses(self) -> list[JobUse]:
        """Return the result of each job, sorted by name.

        Jobs that had ended before the beginning are left out.
        """
        return [self._build_job_use(job) for job in sorted(self._jobs.values(), key=lambda job: job.key)]

    def _build_job_use(self, job: _Job) -> JobUse:
        """Build the record of a job: times in seconds; ``makespan`` is None while the job has not ended."""
        return JobUse(
            job=job.key,
            outcome="deleted" if job.is_deleted else _outcome(job.status),
            completed=job.status.succeeded,
            failed=job.status.failed,
            restarts=job.restarts,
            makespan=None if job.end is None else (job.end - job.since) / SECOND,
            work=job.done / SECOND,
            lost_work=job.lost / SECOND,
        )

    def _job(self, old: Job | None, new: Job | None) -> None:
        """Track a job after a change. ``old`` None: a new job; ``new`` None: a deleted job."""
        if new is None:
            if old is not None and (job := self._jobs.get(old.metadata.uid)) is not None:
                job.is_deleted = job.end is None
            return
        job = self._jobs.get(new.metadata.uid)
        if job is None:
            if old is not None:  # the job ended before the beginning
                return
            job = self._jobs[new.metadata.uid] = _Job(new.key, self._time.now, new.status)
        job.status, job.is_suspended = new.status, bool(new.spec.suspend)
        if job.end is None and _outcome(new.status) in ("complete", "failed"):
            job.end = self._time.now

    def _pods(self, changes: Changes[Pod]) -> None:
        """Count the pods that were deleted with their node, and update jobs after changes of their pods."""
        for _, old, new in changes:
            if new is None:
                assert old is not None
                self._note_interruption(old)
            if not self._jobs:
                continue
            pod = old if new is None else new
            assert pod is not None
            owner = controller_of(pod.metadata)
            if owner is None or owner.kind != "Job":
                continue
            job = self._jobs.get(owner.uid)
            if job is not None:
                self._follow(job, old, new, pod.metadata.uid)

    def _follow(self, job: _Job, old: Pod | None, new: Pod | None, uid: str) -> None:
        """Update a job after a change of one of its pods: restarts, and time of completed and of lost work.

        ``old``, ``new``: the pod before and after (None: it did not exist); ``uid``: the pod's UID.

        The time of a pod that failed, was deleted or began to terminate is lost; the next new pod then counts as its
        restart, unless the job was suspended when it began to terminate.
        """
        is_active = new is not None and _is_active(new)
        if old is None and is_active and job.open:
            job.open -= 1
            job.restarts += 1
        if is_active and new is not None and new.status.phase == "Running":
            job.running.setdefault(uid, self._time.now)
            return
        if is_active or (old is not None and not _is_active(old)):
            return
        since = job.running.pop(uid, None)
        took = 0 if since is None else self._time.now - since
        if new is not None and new.status.phase == "Succeeded":
            job.done += took
        else:
            job.lost += took
            job.open += not job.is_suspended or (new is not None and new.status.phase == "Failed")

    def _note_interruption(self, pod: Pod) -> None:
        """Count a deleted pod in ``interrupted`` if its node no longer exists.

        Pods that had finished or were terminating, mirror pods and pods of DaemonSets do not count.
        """
        node = pod.spec.node_name
        if node and _is_active(pod) and self._api.find("Node", node) is None:
            self.interrupted += not (is_daemonset_pod(pod) or is_mirror_pod(pod))


def _is_active(pod: Pod) -> bool:
    """Check whether a pod is neither finished nor being deleted."""
    return pod.metadata.deletion_timestamp is None and not is_finished(pod)


def _outcome(status: JobStatus) -> str:
    """Return ``complete``, ``failed``, ``suspended`` or ``running``, by the conditions of a job."""
    for condition, outcome in (("Complete", "complete"), ("Failed", "failed"), ("Suspended", "suspended")):
        if is_true(status.conditions, condition):
            return outcome
    return "running"


_EFFORT: Final = 200_000
"""Of each search: about a fifth of a second."""


class IdealMixes:
    """Splits what a world's machines cost at sampled moments (:meth:`observe`).

    Paid machines are: not yet ready nodes (boot); nodes without pods except those of DaemonSets (CA); nodes with pods,
    which would fit on the cheapest mix of nodes of the same groups (packing), and on an even cheaper one if each HPA
    had only as many pods as its load needs at that moment (HPA). Nodes of no group have no price: they and their pods
    are left out, as are groups without a price. What was paid is a mix, too: if the search finds a more expensive one,
    the paid one is the cheapest. Minimum nodes without pods are part of CA, so the mix has no minima.
    """

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._moments = self._unplaced = 0
        self._methods: set[str] = set()
        self._sums = dict.fromkeys(("paid", "ideal", "bound", "hpa", "packing", "ca", "boot"), 0.0)

    def observe(self) -> None:
        """Sample the current moment: add what is paid, what is idle and the cheapest mix ($/h) to the sums.

        Machines with an error, groups without a price, finished pods and pods of DaemonSets are left out.
        """
        pools = [pool for pool in self._world.cloud.pools.values() if pool.group.price is not None]
        nodes = self._world.api.get_all("Node")
        pods_by_node: dict[str, list[Pod]] = {}
        for pod in self._world.api.get_all("Pod").values():
            if pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed") and not is_daemonset_pod(pod):
                pods_by_node.setdefault(pod.spec.node_name, []).append(pod)
        paid = boot = idle = 0.0
        prices: dict[str, float] = {}  # prices of nodes with pods
        pods: list[Pod] = []
        for pool in pools:
            price = pool.group.price or 0.0
            for machine in pool.machines.values():
                if machine.error is not None:
                    continue
                paid += price
                node, own_pods = nodes.get(machine.name), pods_by_node.get(machine.name, ())
                if node is not None and own_pods:
                    prices[node.name] = price
                    pods += own_pods
                elif node is not None and _is_ready(node):
                    idle += price
                else:
                    boot += price
        offers, used = [_offer_of(pool) for pool in pools], sum(prices.values())
        cost, bound = self._cheapest(offers, pods, prices)
        ideal = packed = min(cost, used)
        surplus = set(self._surplus())
        needed = [pod for pod in pods if pod.key not in surplus]
        if len(needed) < len(pods):
            cost, bound = self._cheapest(offers, needed, prices)
            ideal = min(cost, packed)
        self._moments += 1
        # The paid nodes may violate the bound's assumptions: nodes that differ from their group's template.
        parts = (paid, ideal, min(bound, ideal), packed - ideal, used - packed, idle, boot)
        for name, value in zip(self._sums, parts, strict=True):
            self._sums[name] += value

    def _cheapest(
        self, offers: Sequence[Offer], pods: Sequence[Pod], prices: Mapping[str, float]
    ) -> tuple[float, float]:
        """Return ($/h of the cheapest nodes found for the pods, lower bound of the $/h; 0 if no bound is known).

        The nodes of pods that the mix does not place are paid as well, at their ``prices`` ($/h by node name). Both
        results are 0 without pods or offers. Also records how the bound was proven, and how many pods were not placed.
        """
        if not pods or not offers:
            return 0.0, 0.0
        others = (item for item in self._world.api if item.kind not in NOT_IN_COLUMNS | {"Node", "Pod"})
        plan = mix(
            Cluster([*others, *pods]), offers, pods=ALL, options=MixOptions(bound_effort=_EFFORT, plan_effort=_EFFORT)
        )
        self._methods.add(plan.bound.method)
        self._unplaced = max(self._unplaced, plan.unschedulable_count)
        lost = set(plan.unschedulable)
        stay = {pod.spec.node_name for pod in pods if pod.key in lost}
        return plan.cost + sum(prices[name] for name in stay), plan.bound.cost or 0.0

    # -- pods needed by the load --------------------------------------------------------------------------------------

    def _surplus(self) -> Iterator[str]:
        """Yield the keys of pods beyond what the load of their HPA needs.

        Finished and terminating pods count as surplus first; otherwise the first pods of the workload's list are
        needed. An HPA for which the needed number is unknown has no surplus.
        """
        for hpa in self._world.api.get_all("HorizontalPodAutoscaler").values():
            target = hpa.spec.scale_target_ref
            key = target.kind, hpa.namespace, target.name
            pods = sorted(self._world.load.pods.list_workload_pods(key), key=_ends)
            needed = self._count_needed_pods(hpa, key, pods)
            if needed is not None:
                yield from (pod.key for pod in pods[needed:])

    def _count_needed_pods(self, hpa: HorizontalPodAutoscaler, key: Key, pods: Sequence[Pod]) -> int | None:
        """Return how many pods would bring usage to an HPA's targets, within its limits.

        ``key``: of the workload that the HPA scales. None if there are no pods or no metrics, or if
        :meth:`_count_replicas_for` returns None for one of the metrics.
        """
        counts = [self._count_replicas_for(spec, key, pods) for spec in hpa.spec.metrics or ()]
        needed = [count for count in counts if count is not None]
        if not pods or not needed or len(needed) < len(counts):
            return None
        minimum = 1 if hpa.spec.min_replicas is None else hpa.spec.min_replicas
        return min(max(*needed, minimum), hpa.spec.max_replicas)

    def _count_replicas_for(self, spec: MetricSpec, key: Key, pods: Sequence[Pod]) -> int | None:
        """Return how many pods would bring the usage of one resource metric to its target, rounded up.

        ``key``: of the workload. None for other types of metrics and targets, without pods, if the usage is unknown, or
        if the target is 0 (as without a request).
        """
        source, now = spec.resource, self._world.time.now
        if source is None or not pods:
            return None
        used = self._world.load.get_usage(key, source.name, now - SECOND, now)
        if source.target.average_utilization is not None:
            requests = [each.resources.requests or {} for each in pods[0].spec.containers]
            requested = sum(each[source.name].milli_value() for each in requests if source.name in each)
            target = requested * source.target.average_utilization
        elif source.target.average_value is not None:
            target = source.target.average_value.milli_value() * 100
        else:
            return None
        if used is None or target <= 0:
            return None
        return -(-used * self._world.load.pods.count_ready(key) * 100 // target)

    def summarize(self, hours: float) -> IdealMix | None:
        """Return the totals for a run of ``hours``; None if no moment was sampled.

        Each amount is the mean of the samples times ``hours``.
        """
        if not self._moments:
            return None
        totals = {name: value * hours / self._moments for name, value in self._sums.items()}
        return IdealMix(moments=self._moments, methods=sorted(self._methods), unplaced=self._unplaced, **totals)


def _offer_of(pool: Pool) -> Offer:
    """Return an offer (for ``mix``) of a pool's nodes: up to its maximum size, or its current size if larger."""
    (offer,) = offers_of([pool.group], anew=True)
    limit = None if offer.most is None else max(offer.most, len(pool.machines))
    return msgspec.structs.replace(offer, least=0, most=limit)


def _ends(pod: Pod) -> bool:
    """Check whether a pod is finished or being deleted."""
    return pod.metadata.deletion_timestamp is not None or is_finished(pod)


def _is_ready(node: Node) -> bool:
    """Check whether a node has the condition Ready with status True."""
    return any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)
