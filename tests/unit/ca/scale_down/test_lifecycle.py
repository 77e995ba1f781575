"""Loop after loop: plans that are carried out in a small world, by one process and by one that restarts every time."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

import kscale
from builders import N0, node, owner, pod
from ca_world import World
from kscale import ca
from kscale.ca.scale_down.actuation.actuator import Actuator, record_deletion_start, record_deletions
from kscale.ca.scale_down.actuation.deletion_tracker import StartedDeletion
from kscale.effects import SECOND, VirtualTime
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.policy import PodDisruptionBudget
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import Groups, NodeGroup
from kscale.snapshot.cluster import Cluster

MINUTE = 60 * SECOND
OPTIONS = ca.AutoscalingOptions(
    skip_nodes_with_custom_controller_pods=False,
    max_scale_down_parallelism=3,
    max_drain_parallelism=2,
    scale_down_delay_after_delete=timedelta(minutes=2),
    unremovable_node_recheck_timeout=timedelta(minutes=7),
)
BUDGET = from_dict(
    {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 2},
    },
    PodDisruptionBudget,
)


class Life:
    """A cluster of small nodes that pods come to and leave, and an autoscaler that only takes nodes away."""

    def __init__(self, seed: int, *, restarts: bool) -> None:
        random = Random(seed)
        self.restarts = restarts
        self.nodes: dict[str, Node] = {f"n{i}": node(f"n{i}", 1000, 1000, ready=True) for i in range(12)}
        self.pods: dict[str, Pod] = {}
        for i in range(16):
            created = pod(
                f"p{i}", random.choice((50, 100, 300, 400)), 1,
                labels={"app": random.choice(("web", "db"))}, owner_references=owner("ReplicaSet", "rs", "apps/v1"),
            )  # fmt: skip
            created.spec.node_name = f"n{random.randrange(12)}"
            self.pods[created.key] = created
        self.state = ca.LoopState()
        self.actuator = Actuator(OPTIONS)
        self.random = random

    def loop(self, k: int) -> tuple[Any, ...]:
        now = N0 + k * 4 * MINUTE
        if self.random.random() < 0.3 and self.pods:  # somebody else's doing
            del self.pods[self.random.choice(sorted(self.pods))]
        if self.restarts:
            self.state = ca.LoopState.from_json(self.state.to_json())
            self.actuator = Actuator(OPTIONS)
        names = list(self.nodes)
        groups = Groups(
            [NodeGroup(id="g", min_size=2, max_size=99, target_size=len(names), nodes=names, instances=names)]
        )
        snapshot = Cluster([*self.nodes.values(), *self.pods.values(), BUDGET]).snapshot()
        under_way = self.actuator.tracker.status(now)
        plan = kscale.scale_down(
            snapshot, groups, now=now, options=OPTIONS, state=self.state,
            inputs=ca.ScaleDownInputs(deleting=under_way.deleting, draining=under_way.draining),
        )  # fmt: skip
        self.state = plan.state
        deleted: list[str] = []
        if plan.chosen is not None:
            deleted = self.act(plan, snapshot, groups, now)
        return plan.result, plan.unneeded_since, plan.unremovable, plan.delete_empty, plan.drain, deleted

    def act(self, plan: kscale.ScaleDownPlan, snapshot: kscale.Snapshot, groups: Groups, now: Any) -> list[str]:
        assert plan.chosen is not None
        world = World(self.nodes.values(), self.pods.values())
        world.budgets = [BUDGET]
        result: list[StartedDeletion] = []
        simulation = VirtualTime(world.perform, now=now)
        machine = self.actuator.start_deletion(plan.chosen.empty, plan.chosen.drain, snapshot, groups)
        simulation.start(machine, lambda value, _: result.append(value))
        simulation.run()
        (started,) = result
        assert started.result == plan.result
        assert [item.node for item in started.nodes] == [*plan.delete_empty, *plan.drain]
        deleted = [name for _, names in world.deleted for name in names]
        assert sorted(deleted) == sorted([*plan.delete_empty, *plan.drain])
        assert sorted(world.evicted) == sorted(key.partition("/")[2] for to in plan.drain.values() for key in to)
        for placement in plan.drain.values():
            for key, target in placement.items():
                old = self.pods[key]
                self.pods[key] = replace(old, spec=replace(old.spec, node_name=target))
        for name in deleted:
            del self.nodes[name]
        self.state = record_deletion_start(self.state, started, now)
        self.state = record_deletions(self.state, self.actuator.tracker.take_registered())
        return deleted


@pytest.mark.parametrize("seed", range(8))
def test_a_process_that_restarts_decides_the_same(seed: int) -> None:
    """What plans say is what happens; no pod is lost; nodes go down to those that are needed."""
    one, other = Life(seed, restarts=False), Life(seed, restarts=True)
    for k in range(14):
        assert one.loop(k) == other.loop(k)
        assert one.state == other.state
        assert {item.spec.node_name for item in one.pods.values()} <= one.nodes.keys()
    assert 2 <= len(one.nodes) < 12
