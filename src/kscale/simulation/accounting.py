"""Amounts of a run over time: cost, usage, job results, and the least that its nodes could have cost."""

from __future__ import annotations

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
from kscale.simulation.records import IdealMix, JobUse
from kscale.snapshot.cluster import Cluster
from kscale.world.simulated.api_server import ApiObjects, Changes, one_by_one
from kscale.world.simulated.cloud import Pool
from kscale.world.simulated.controllers import Key
from kscale.world.simulated.pods import ENDED, finished
from kscale.world.simulated.stores import NOT_IN_COLUMNS
from kscale.world.simulated.world import SimulatedWorld

__all__ = ["IdealMixes", "JobOutcomes", "Ledger", "quantile"]


class Ledger:
    """Listens to the objects of a world.

    Of pods that wait for a node (and may be bound to one): ``waits`` holds nanoseconds of those that were bound or
    given up; those that wait still are told by :meth:`waiting`. Cores are counted in thousandths; integrals over time
    are ``milli`` times nanoseconds. ``of_group`` tells whether a node has a machine of a group: of others nobody knows
    what they cost, and how long they were there is ``ungrouped_time``.
    """

    def __init__(self, api: ApiObjects, time: VirtualTime, of_group: Callable[[Node], bool]) -> None:
        self._time, self._of_group = time, of_group
        self._ungrouped: set[str] = set()
        self.ungrouped_time = 0
        self._since: Moment = time.now
        self._pending: dict[str, tuple[Moment, int]] = {}
        self._cores: dict[str, int] = {}
        self.waits: list[int] = []
        self.nodes = self.most_nodes = 0
        self.pods = 0
        self.allocatable = self.requested = self.wanted = 0
        """Thousandths of cores: of all nodes, of pods on them, of pods that wait."""
        self.allocatable_time = self.requested_time = self.over_time = self.wanted_time = self.pending_time = 0
        for kind, listener in (("Node", one_by_one(self._node)), ("Pod", self._pods)):
            listener(api.present(kind))
            api.listen(kind, listener)

    def settle(self) -> None:
        """Adds up until now."""
        by, self._since = self._time.now - self._since, self._time.now
        if by:
            self.allocatable_time += self.allocatable * by
            self.requested_time += self.requested * by
            self.over_time += max(self.allocatable - self.requested, 0) * by
            self.wanted_time += self.wanted * by
            self.pending_time += len(self._pending) * by
            self.ungrouped_time += len(self._ungrouped) * by

    def waiting(self) -> list[int]:
        """How long those have waited that wait still."""
        return [self._time.now - since for since, _ in self._pending.values()]

    @property
    def pending(self) -> int:
        """How many pods wait."""
        return len(self._pending)

    def _node(self, old: Node | None, new: Node | None) -> None:
        before, after = (0 if each is None else _cores(each) for each in (old, new))
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
        known: dict[tuple[int, ...], int] = {}
        for _, old, new in changes:
            if old is not None and new is not None and old.spec is new.spec and (
                old.status.phase not in ENDED and new.status.phase not in ENDED) and (
                old.metadata.deletion_timestamp is new.metadata.deletion_timestamp):  # fmt: skip
                continue  # what is looked at is as it was
            pod = old if new is None else new
            assert pod is not None
            uid = pod.metadata.uid
            there = new is not None and not finished(new)
            bound = there and bool(pod.spec.node_name)
            waits = there and not bound and pod.metadata.deletion_timestamp is None and not pod.spec.scheduling_gates
            if bound != (uid in self._cores) or waits != (uid in self._pending) or (bound and old is not None and (
                old.spec.containers is not pod.spec.containers)):  # fmt: skip
                self.settle()
                self._count(uid, _demand(pod, known) if bound or waits else 0, bound=bound, waits=waits)

    def _count(self, key: str, cores: int, *, bound: bool, waits: bool) -> None:
        held = self._cores.pop(key, None)
        if held is not None:
            self.requested -= held
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
            self.wanted += cores


def _cores(node: Node) -> int:
    found = (node.status.allocatable or {}).get(CPU)
    return 0 if found is None else found.milli_value()


def _demand(pod: Pod, known: dict[tuple[int, ...], int]) -> int:
    """``known``: that of others, by the identities of what it goes by."""
    spec = pod.spec
    alike = id(spec.containers), id(spec.init_containers), id(spec.resources), id(spec.overhead)
    cores = known.get(alike)
    if cores is None:
        found = demand(pod).get(CPU)
        cores = known[alike] = 0 if found is None else found.milli_value()
    return cores


def quantile(values: list[int], share: int, of: int) -> int:
    """The smallest value that at least ``share / of`` of all do not exceed; 0 of none."""
    if not values:
        return 0
    ordered = sorted(values)
    return ordered[max(-(-len(ordered) * share // of) - 1, 0)]


@dataclass(slots=True)
class _Job:
    """A job since the run began, or since it came. Times are nanoseconds; ``open``: failed pods without another one in
    their place yet."""

    key: str
    since: Moment
    status: JobStatus
    end: Moment | None = None
    is_deleted: bool = False
    restarts: int = 0
    open: int = 0
    done: int = 0
    lost: int = 0
    running: dict[str, Moment] = field(default_factory=dict)
    """By UID of a pod that runs: since when."""


class JobOutcomes:
    """Listens to jobs and pods of a world. ``interrupted`` counts pods that were lost with their node before their end,
    those of DaemonSets apart."""

    def __init__(self, api: ApiObjects, time: VirtualTime) -> None:
        self._api, self._time = api, time
        self._jobs: dict[str, _Job] = {}
        self.interrupted = 0
        for job in api.of("Job").values():
            if _outcome(job.status) not in ("complete", "failed"):
                self._jobs[job.metadata.uid] = _Job(job.key, time.now, job.status)
        self._pods(api.present("Pod"))
        api.listen("Job", one_by_one(self._job))
        api.listen("Pod", self._pods)

    def uses(self) -> list[JobUse]:
        """Return what became of each job by name, those that ended before the beginning apart."""
        return [self._use(job) for job in sorted(self._jobs.values(), key=lambda job: job.key)]

    def _use(self, job: _Job) -> JobUse:
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
        if new is None:
            if old is not None and (job := self._jobs.get(old.metadata.uid)) is not None:
                job.is_deleted = job.end is None
            return
        job = self._jobs.get(new.metadata.uid)
        if job is None:
            if old is not None:  # it had ended before the beginning
                return
            job = self._jobs[new.metadata.uid] = _Job(new.key, self._time.now, new.status)
        job.status = new.status
        if job.end is None and _outcome(new.status) in ("complete", "failed"):
            job.end = self._time.now

    def _pods(self, changes: Changes[Pod]) -> None:
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
            job.open += 1

    def _note_interruption(self, pod: Pod) -> None:
        """Count a pod that is gone because its node is."""
        node = pod.spec.node_name
        if node and _is_active(pod) and self._api.find("Node", node) is None:
            self.interrupted += not (is_daemonset_pod(pod) or is_mirror_pod(pod))


def _is_active(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and not finished(pod)


def _outcome(status: JobStatus) -> str:
    for condition, outcome in (("Complete", "complete"), ("Failed", "failed"), ("Suspended", "suspended")):
        if is_true(status.conditions, condition):
            return outcome
    return "running"


_EFFORT: Final = 200_000
"""Of each search: about a fifth of a second."""


class IdealMixes:
    """Looks at a world now and then (:meth:`look`), and splits what its machines cost at that moment.

    Of the machines that are paid for, some are no ready nodes yet (boot), some have no pods but those of DaemonSets
    (CA); the pods of the others would fit on the cheapest mix of nodes of the same groups (packing), and if each HPA
    had only as many pods as its load needs just then, on a cheaper one still (HPA). Nodes of no group have no price:
    they and their pods are left out, as are groups without one. What was paid is a mix, too: where the search finds a
    dearer one, that is the cheapest. Minimum nodes without pods are part of CA, so no minimum counts for the mix.
    """

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._moments = self._unplaced = 0
        self._methods: set[str] = set()
        self._sums = dict.fromkeys(("paid", "ideal", "bound", "hpa", "packing", "ca", "boot"), 0.0)

    def look(self) -> None:
        """Takes the present moment in."""
        pools = [pool for pool in self._world.cloud.pools.values() if pool.group.price is not None]
        nodes = self._world.api.of("Node")
        on: dict[str, list[Pod]] = {}
        for pod in self._world.api.of("Pod").values():
            if pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed") and not is_daemonset_pod(pod):
                on.setdefault(pod.spec.node_name, []).append(pod)
        paid = boot = idle = 0.0
        prices: dict[str, float] = {}  # of nodes with pods
        pods: list[Pod] = []
        for pool in pools:
            price = pool.group.price or 0.0
            for machine in pool.machines.values():
                if machine.error is not None:
                    continue
                paid += price
                node, mine = nodes.get(machine.name), on.get(machine.name, ())
                if node is not None and mine:
                    prices[node.name] = price
                    pods += mine
                elif node is not None and _is_ready(node):
                    idle += price
                else:
                    boot += price
        offers, used = [_offer_of(pool) for pool in pools], sum(prices.values())
        found, bound = self._cheapest(offers, pods, prices)
        ideal = packed = min(found, used)
        surplus = set(self._surplus())
        needed = [pod for pod in pods if pod.key not in surplus]
        if len(needed) < len(pods):
            found, bound = self._cheapest(offers, needed, prices)
            ideal = min(found, packed)
        self._moments += 1
        # What was paid may break the rules that the bound relies on: nodes unlike their group's template.
        parts = (paid, ideal, min(bound, ideal), packed - ideal, used - packed, idle, boot)
        for name, value in zip(self._sums, parts, strict=True):
            self._sums[name] += value

    def _cheapest(
        self, offers: Sequence[Offer], pods: Sequence[Pod], prices: Mapping[str, float]
    ) -> tuple[float, float]:
        """What an hour costs of the cheapest nodes found for some pods, and at least. Pods without a place there stay
        on the nodes that they are on, at their ``prices``."""
        if not pods or not offers:
            return 0.0, 0.0
        others = (item for item in self._world.api if item.kind not in NOT_IN_COLUMNS | {"Node", "Pod"})
        plan = mix(
            Cluster([*others, *pods]),
            offers,
            pods=ALL,
            options=MixOptions(bound_effort=_EFFORT, plan_effort=_EFFORT),
        )
        self._methods.add(plan.bound.method)
        self._unplaced = max(self._unplaced, plan.nowhere)
        lost = set(plan.nowhere_pods)
        stay = {pod.spec.node_name for pod in pods if pod.key in lost}
        return plan.cost + sum(prices[name] for name in stay), plan.bound.cost or 0.0

    # -- how many pods the load needs --------------------------------------------------------------------------------

    def _surplus(self) -> Iterator[str]:
        """The pods that HPAs have beyond what the load needs, by key, on any node: those that end or came last."""
        for hpa in self._world.api.of("HorizontalPodAutoscaler").values():
            target = hpa.spec.scale_target_ref
            key = target.kind, hpa.namespace, target.name
            mine = sorted(self._world.load.pods.of_workload(key), key=_ends)
            needed = self._needed(hpa, key, mine)
            if needed is not None:
                yield from (pod.key for pod in mine[needed:])

    def _needed(self, hpa: HorizontalPodAutoscaler, key: Key, pods: Sequence[Pod]) -> int | None:
        """How many pods would bring usage to the targets of an HPA; None: it goes by something else, too."""
        found = [self._needed_for(spec, key, pods) for spec in hpa.spec.metrics or ()]
        needed = [each for each in found if each is not None]
        if not pods or not needed or len(needed) < len(found):
            return None
        least = 1 if hpa.spec.min_replicas is None else hpa.spec.min_replicas
        return min(max(*needed, least), hpa.spec.max_replicas)

    def _needed_for(self, spec: MetricSpec, key: Key, pods: Sequence[Pod]) -> int | None:
        source, now = spec.resource, self._world.time.now
        if source is None or not pods:
            return None
        used = self._world.load.used(key, source.name, now - SECOND, now)
        if source.target.average_utilization is not None:
            requests = [each.resources.requests or {} for each in pods[0].spec.containers]
            whole = sum(each[source.name].milli_value() for each in requests if source.name in each)
            target = whole * source.target.average_utilization
        elif source.target.average_value is not None:
            target = source.target.average_value.milli_value() * 100
        else:
            return None
        if used is None or target <= 0:
            return None
        return -(-used * self._world.load.pods.ready(key) * 100 // target)

    def told(self, hours: float) -> IdealMix | None:
        """What it comes to over a run of so many hours; None: nobody has looked."""
        if not self._moments:
            return None
        each = {name: value * hours / self._moments for name, value in self._sums.items()}
        return IdealMix(moments=self._moments, methods=sorted(self._methods), unplaced=self._unplaced, **each)


def _offer_of(pool: Pool) -> Offer:
    """Return what the mix may have of a pool: up to its maximum, or as many nodes as it has if that is more."""
    (offer,) = offers_of([pool.group], anew=True)
    most = None if offer.most is None else max(offer.most, len(pool.machines))
    return msgspec.structs.replace(offer, least=0, most=most)


def _ends(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None or finished(pod)


def _is_ready(node: Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
