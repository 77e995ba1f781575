"""Random worlds that refuse, delay, fail and restart the autoscaler: what must hold in all of them.

Each example is 3 to 48 minutes with faults and 30 without; the ``thorough`` profile runs 200 of them, the default 3.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections import deque
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from examples import is_nightly
from kscale.ca.options import AutoscalingOptions
from kscale.drivers.cluster_autoscaler import AutoscalerProcess, ClusterAutoscaler, CurrentNodes, NotStartedError
from kscale.drivers.driver import VirtualDrive
from kscale.drivers.process import HealthCheck, HealthCheckOptions
from kscale.effects import (
    SECOND,
    Action,
    ApiError,
    DeleteNodes,
    Emit,
    Moment,
    Observe,
    Outcome,
    timedelta_of,
)
from kscale.objects.api.apps import Deployment, ReplicaSet, StatefulSet
from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict
from kscale.objects.pod_resources import demand
from kscale.snapshot.cluster import Cluster
from kscale.world.simulated.cloud import GroupTimes
from kscale.world.simulated.kubelet import PodTimes
from kscale.world.simulated.load import DurationDistribution, Queue, Signal
from kscale.world.simulated.pods import delete_pod
from kscale.world.simulated.world import SimulatedWorld, WorldOptions
from unit.world.simulated_cases import T0, pod_template, pool, workload

MINUTE = 60 * SECOND
OPTIONS = AutoscalingOptions(
    scale_down_unneeded_time=timedelta_of(3 * MINUTE),
    scale_down_delay_after_add=timedelta_of(MINUTE),
    scale_down_delay_after_failure=timedelta_of(MINUTE),
    max_node_provision_time=timedelta_of(5 * MINUTE),
    initial_node_group_backoff_duration=timedelta_of(MINUTE),
    max_node_group_backoff_duration=timedelta_of(3 * MINUTE),
)
REFUSALS = (
    ApiError("the server is busy", 503, "ServiceUnavailable"),
    ApiError("try again", 429, "TooManyRequests", retry_after=SECOND),
    ApiError("internal error", 500, "InternalError"),
)
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
KINDS = {"Deployment": Deployment, "ReplicaSet": ReplicaSet, "StatefulSet": StatefulSet}
TAINT = "ToBeDeletedByClusterAutoscaler"


class Trial:
    """One world, its faults, and what is held while it runs."""

    def __init__(
        self, seed: int, refused: int, delayed: int, *, watch_lag: int, failures: int, skips: bool = True
    ) -> None:
        self.skips = skips
        spread = DurationDistribution(((0, 20 * SECOND), (500_000, MINUTE), (1_000_000, 4 * MINUTE)))
        times = GroupTimes(boot=spread, ready=DurationDistribution.fixed(5 * SECOND), failures=failures, stock=7)
        options = WorldOptions(
            seed=seed, watch_lag=watch_lag, pods=PodTimes(start=DurationDistribution.fixed(2 * SECOND))
        )
        self.world = world = SimulatedWorld(now=T0, options=options)
        self.refused, self.delayed, self.faults = refused, delayed, True
        self.fault_draws = 0
        world.perform.fault = self.fault
        for name, cpu in (("small", "4"), ("large", "16")):
            world.cloud.add(pool(name, least=int(name == "small"), most=8, size=2, cpu=cpu), times)
        for i in range(4):
            stays = {SAFE: "false"} if i == 3 else {}
            template = pod_template(f"app{i}", cpu=f"{1 + i}")
            template["metadata"]["annotations"] = stays
            world.add(from_dict(workload("Deployment", f"app{i}", 1 + i, spec={"template": template}), Deployment))
        world.api.listen("Node", lambda _: self.check_sizes())
        self.drive = self.start()

    def start(self) -> VirtualDrive:
        world = self.world
        health = HealthCheck(HealthCheckOptions(), world.time.now)
        process = AutoscalerProcess(dra=False)
        driver = ClusterAutoscaler(OPTIONS, process, world.clock, health, CurrentNodes(), repeats=True)
        stores = world.stores(driver.watches)
        inputs = partial(world.inputs, stores, driver.input_sources) if self.skips else None
        return VirtualDrive(driver, stores, world.time, self.perform, rank=40, inputs=inputs)

    def fault(self, action: Action, now: Moment) -> ApiError | int | None:
        del now
        if not self.faults:
            return None
        self.fault_draws += 1
        draws, name = self.world.draws, type(action).__name__
        if draws.happens(self.refused, "refusal", name, self.fault_draws):
            return REFUSALS[draws.below(len(REFUSALS), "which", name, self.fault_draws)]
        return draws.below(20 * SECOND, "delay", name, self.fault_draws) if draws.happens(
            self.delayed, "late", name, self.fault_draws
        ) else None  # fmt: skip

    def perform(self, action: Action, now: Moment) -> Outcome:
        if isinstance(action, DeleteNodes):
            for name in action.nodes:
                unmovable = [pod.key for pod in self.world.view.pods_of([name]) if is_unmovable(pod)]
                assert not unmovable, f"{name} goes with {unmovable} on it"
        outcome = self.world.perform(action, now)
        if not isinstance(action, Emit | Observe):
            self.check_sizes()
        return outcome

    def check_sizes(self) -> None:
        for each in self.world.cloud.pools.values():
            assert each.group.min_size <= each.target <= each.group.max_size, each.group.id

    def scale(self, app: int, replicas: int) -> None:
        deployment = self.world.api.get("Deployment", "shop", f"app{app}")
        self.world.api.put(replace(deployment, spec=replace(deployment.spec, replicas=replicas)))

    def run(self, minutes: int) -> None:
        end = self.world.time.now + minutes * MINUTE
        while self.world.time.now < end:
            try:
                self.world.time.run(end)
            except NotStartedError:  # the process ends, and is started anew
                self.restart()

    def restart(self) -> None:
        self.drive.stop()
        self.world.time.run(self.world.time.now + 5 * SECOND)
        self.drive = self.start()

    def check_end(self) -> None:
        """Nothing is left over, and nobody waits who could have a node."""
        world = self.world
        for node in world.api.get_all("Node").values():
            since = [int(each.value) * SECOND for each in node.spec.taints if each.key == TAINT]
            assert all(world.time.now - each < 5 * MINUTE for each in since), f"{node.name} is tainted for long"
        for pod in world.api.get_all("Pod").values():
            if pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
                continue
            cores = demand(pod)["cpu"].milli_value()
            for each in world.cloud.pools.values():
                room = each.group.node_template.node.status.allocatable or {}
                full = each.target >= min(each.group.max_size, each.times.stock or 10**6)
                assert full or cores > room["cpu"].milli_value(), f"{pod.key} waits, and {each.group.id} could grow"


def is_unmovable(pod: Pod) -> bool:
    return (pod.metadata.annotations or {}).get(SAFE) == "false"


CHURN = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(1, 8), st.booleans()), min_size=3, max_size=6
)


@settings(max_examples=settings().max_examples // 5 if is_nightly() else 2)
@given(
    seed=st.integers(0, 2**32),
    refused=st.sampled_from([0, 20_000, 200_000]),
    delayed=st.sampled_from([0, 50_000]),
    watch_lag=st.sampled_from([0, SECOND // 2]),
    failures=st.sampled_from([0, 300_000]),
    churn=CHURN,
)
def test_invariants_hold_in_random_worlds(
    seed: int, refused: int, delayed: int, watch_lag: int, failures: int, churn: list[tuple[int, int, int, bool]]
) -> None:
    trial = Trial(seed, refused, delayed, watch_lag=watch_lag, failures=failures)
    for app, replicas, minutes, restart in churn:
        trial.scale(app, replicas)
        trial.run(minutes)
        if restart:
            trial.restart()
    trial.faults = False
    for each in trial.world.cloud.pools.values():
        each.times = replace(each.times, failures=0)
    trial.run(2)
    trial.restart()  # a taint whose removal was refused stays until the next process begins, as upstream's does
    trial.run(28)
    trial.check_end()


def entries(root: Any) -> int:
    """Entries of all containers that can be reached: one that is left behind shows. Clusters in columns give back what
    they hold in their own time, and have tests of their own; so do drivers."""
    visited: set[int] = set()
    todo: list[Any] = [root]
    count = 0
    while todo:
        item = todo.pop()
        if id(item) in visited or isinstance(item, type | ModuleType | Cluster | VirtualDrive | ClusterAutoscaler):
            continue
        visited.add(id(item))
        if isinstance(item, FunctionType):
            todo += item.__closure__ or ()
            continue
        if isinstance(item, dict | list | set | deque):
            count += len(item)
        todo += gc.get_referents(item)
    return count


class _Allocated(ctypes.Structure):
    """glibc's ``struct mallinfo2``."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"
        )
    )  # fmt: skip


def allocated() -> int:
    """Bytes that are held outside of Python's own arenas: containers of the kernels, arrays, texts; 0 where the C
    library does not tell."""
    tell = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if tell is None:
        return 0
    tell.restype = _Allocated
    usage = tell()
    return int(usage.uordblks + usage.hblkhd)


def test_memory_is_bounded_by_existing_objects() -> None:
    """Workloads that come and go, with their pods, leave nothing behind. (``thorough``: a day.)"""
    trial = Trial(1, 0, 0, watch_lag=0, failures=0)
    world = trial.world
    queue = Queue(arrivals=Signal.constant(1000), capacity=1000, used={"cpu": 100})
    world.load.queues["Deployment", "shop", "app0"] = queue
    world.begin()
    sizes = []
    for i in range(360 if is_nightly() else 8):
        for kind in ("Deployment", "ReplicaSet", "StatefulSet"):
            world.add(from_dict(workload(kind, f"{kind.lower()}{i}", 3), KINDS[kind]))
        trial.run(2)
        for kind in ("StatefulSet", "Deployment", "ReplicaSet"):
            for obj in [each for each in world.api.get_all(kind).values() if not each.name.startswith("app")]:
                world.api.remove(obj)
        for pod in [each for each in world.api.get_all("Pod").values() if not each.name.startswith("app")]:
            delete_pod(world.api, pod)
        trial.run(2)
        sizes.append(entries(world))
    assert max(sizes[-2:]) <= max(sizes[2:4]), sizes


def test_a_day_of_churn_leaves_nothing_behind() -> None:
    """Two hours (at night 24) with a loop every ten seconds, none left out. Texts that were written before are
    remembered, a bounded number of them: that alone may still grow in the second half, by a little."""
    minutes = 90 if is_nightly() else 8
    trial = Trial(1, 0, 0, watch_lag=0, failures=0, skips=False)
    trial.world.begin()
    entry_counts, blocks, native = [], [], []
    for number in range(8):
        trial.scale(number % 3, 4 + number % 5)
        trial.run(minutes)
        trial.scale(number % 3, 1)
        trial.run(minutes)
        gc.collect()
        entry_counts.append(entries(trial.world))
        blocks.append(sys.getallocatedblocks())
        native.append(allocated())
    assert trial.drive.rounds > 16 * minutes * 6 * 0.99
    assert trial.drive.skipped == 0
    assert max(entry_counts[4:]) <= max(entry_counts[:4])
    assert blocks[-1] <= 1.05 * blocks[3]
    assert native[-1] <= 1.02 * native[3], native
    trial.check_end()
