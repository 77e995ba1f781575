"""The cloud of the simulated world: machines that boot, fail and go, and what chance has to do with it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kscale.effects import (
    SECOND,
    DecreaseTargetSize,
    DeleteNodes,
    IncreaseSize,
    Progress,
    Refresh,
    Steps,
)
from kscale.objects.api.apps import StatefulSet
from kscale.objects.decode import from_dict
from kscale.world.protocols import NodeGroups
from kscale.world.simulated.cloud import GroupTimes
from kscale.world.simulated.kubelet import PodTimes
from kscale.world.simulated.load import DurationDistribution, RandomDraws
from kscale.world.simulated.pods import delete_pod
from kscale.world.simulated.world import WorldOptions
from unit.world.simulated_cases import (
    QUICK,
    deployment,
    done,
    pod_template,
    pods,
    pool,
    refused,
    run,
    workload,
    world_of,
)


def test_machines_boot_become_ready_and_go_with_their_pods() -> None:
    times = GroupTimes(boot=DurationDistribution.fixed(40 * SECOND), ready=DurationDistribution.fixed(20 * SECOND))
    world = world_of(deployment(replicas=4), size=0, times=times, options=QUICK)
    assert isinstance(world.cloud, NodeGroups)
    done(world, IncreaseSize(group="pool", delta=1))
    run(world, 30)
    group = done(world, Refresh())[0]
    assert (group.target_size, group.nodes, group.instances) == (1, [], ["sim:///pool-0"])
    assert group.instance_status["sim:///pool-0"].state == "creating"
    run(world, 15)
    assert [taint.key for taint in world.api.find("Node", "pool-0").spec.taints] == ["node.kubernetes.io/not-ready"]
    assert {node for _, node, _ in pods(world)} == {""}
    run(world, 20)
    assert pods(world) == [("web", "pool-0", "Running")] * 4
    done(world, DeleteNodes(group="pool", nodes=("pool-0",)))
    run(world, 31)
    assert (list(world.api.get_all("Node")), {node for _, node, _ in pods(world)}) == ([], {""})
    assert world.cloud.paid(world.time.now) == {"pool": (30 + 15 + 20 + 30) * SECOND}


def test_the_cloud_begins_once_a_request_has_reached_it() -> None:
    def machine(now: int) -> Steps[None]:
        yield from Progress(now).act(IncreaseSize(group="pool", delta=1))

    world = world_of(options=WorldOptions(latency=20 * SECOND))
    world.time.start(machine)
    run(world, 19)
    assert world.cloud.refresh()[0].target_size == 1
    run(world, 2)
    assert world.cloud.refresh()[0].target_size == 2
    run(world, 58)
    assert list(world.api.get_all("Node")) == ["pool-0"]
    run(world, 2)
    assert list(world.api.get_all("Node")) == ["pool-0", "pool-1"]


def test_reads_take_no_virtual_time() -> None:
    waits: list[int] = []

    def machine(now: int) -> Steps[None]:
        progress = Progress(now)
        yield from progress.act(Refresh())
        waits.append(progress.now - now)

    world = world_of(options=WorldOptions(latency=20 * SECOND))
    world.time.start(machine)
    run(world, 1)
    assert waits == [0]


def test_limits_stock_failures_and_losses_are_simulated() -> None:
    times = GroupTimes(stock=2, failures=0)
    world = world_of(times=times, options=QUICK)
    assert "max: 10" in refused(world, IncreaseSize(group="pool", delta=10)).message
    assert refused(world, IncreaseSize(group="pool", delta=2, atomic=True)).message.startswith("2 machines")
    done(world, IncreaseSize(group="pool", delta=2))
    errors = [each.error for each in done(world, Refresh())[0].instance_status.values() if each.error is not None]
    assert [error.class_ for error in errors] == ["OutOfResource"]
    run(world, 70)
    assert list(world.api.get_all("Node")) == ["pool-0", "pool-1"]
    world.cloud.lose("pool-0")
    run(world, 70)
    assert list(world.api.get_all("Node")) == ["pool-1", "pool-3"]  # what could not be had is no machine
    done(world, DeleteNodes(group="pool", nodes=("sim:///pool-2", "pool-3")))
    run(world, 31)
    done(world, IncreaseSize(group="pool", delta=1))
    run(world, 61)
    assert list(world.api.get_all("Node")) == ["pool-1", "pool-4"]
    assert refused(world, DecreaseTargetSize(group="pool", delta=-1)).message == "attempt to delete existing nodes"
    failing = world_of(times=GroupTimes(failures=1_000_000), options=QUICK)
    failing.cloud.increase_size("pool", 1)
    run(failing, 3600)
    assert list(failing.api.get_all("Node")) == ["pool-0"]


def test_machines_that_live_for_a_while_are_replaced() -> None:
    world = world_of(size=3, times=GroupTimes(lifetime=DurationDistribution.fixed(600 * SECOND)))
    run(world, 599)
    assert list(world.api.get_all("Node")) == ["pool-0", "pool-1", "pool-2"]
    run(world, 62)
    assert list(world.api.get_all("Node")) == ["pool-3", "pool-4", "pool-5"]


def test_groups_are_made_and_deleted() -> None:
    world = world_of(options=QUICK)
    world.cloud.add(replace(pool("other"), exists=False), GroupTimes(creation=30 * SECOND))
    created = world.cloud.create_group("other", asynchronous=True)
    assert (created[0].exists, created[0].upcoming) == (True, True)
    run(world, 31)
    assert not world.cloud.refresh()[1].upcoming
    world.cloud.delete_group("other")
    assert not world.cloud.refresh()[1].exists


def test_draws_depend_on_the_entity_alone() -> None:
    spread = DurationDistribution(((0, 10), (500_000, 20), (1_000_000, 120)))
    first, again, other = RandomDraws(1), RandomDraws(1), RandomDraws(2)
    drawn = [first.duration(spread, "boot", f"m{i}") for i in range(400)]
    assert drawn[::-1] == [again.duration(spread, "boot", f"m{i}") for i in reversed(range(400))]
    assert drawn != [other.duration(spread, "boot", f"m{i}") for i in range(400)]
    assert 140 < sum(each < 20 for each in drawn) < 260
    assert min(drawn) >= 10
    assert max(drawn) < 120
    assert spread.get_quantile(0) == 10
    assert spread.get_quantile(2**63) == 20
    assert spread.get_quantile(2**64 - 1) == 119
    with pytest.raises(ValueError, match="from 0 to 1"):
        DurationDistribution(((0, 1),))


def test_the_same_seed_is_the_same_world() -> None:
    def story(seed: int) -> list[Any]:
        times = GroupTimes(boot=DurationDistribution(((0, 10 * SECOND), (1_000_000, 90 * SECOND))), failures=200_000)
        options = WorldOptions(seed=seed, pods=PodTimes(start=DurationDistribution(((0, 0), (1_000_000, 20 * SECOND)))))
        world = world_of(deployment(replicas=30), times=times, options=options)
        trace: list[Any] = []
        world.api.listen_all(lambda kind, changes: trace.extend((world.time.now, kind, key) for key, _, _ in changes))
        world.cloud.increase_size("pool", 8)
        run(world, 200)
        return trace

    assert story(1) == story(1)
    assert story(1) != story(2)


def test_pods_of_one_name_draw_one_after_the_other() -> None:
    """And the second of them the same as ever, whoever else is there."""

    def starts(*others: Any) -> list[int]:
        spread = DurationDistribution(((0, 0), (1_000_000, 60 * SECOND)))
        spec = {"template": pod_template("db", cpu="100m")}
        stateful_set = from_dict(workload("StatefulSet", "db", 1, spec=spec), StatefulSet)
        world = world_of(*others, stateful_set, options=WorldOptions(seed=3, pods=PodTimes(start=spread)))
        took: list[int] = []
        for _ in range(4):
            run(world, 0)
            begin = world.time.now
            while world.api.get("Pod", "shop", "db-0").status.phase != "Running":
                world.time.step()
            took.append((world.time.now - begin) // SECOND)
            delete_pod(world.api, world.api.get("Pod", "shop", "db-0"), 0)
        return took

    alone = starts()
    assert len(set(alone)) == 4
    assert starts(deployment(replicas=5, cpu="10m")) == alone
