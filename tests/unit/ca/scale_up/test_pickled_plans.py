"""A plan that was pickled says what it said before."""

from __future__ import annotations

import pickle

import kscale
from builders import node, pod
from kscale.objects.api.meta import Condition
from kscale.objects.nodegroup import NodeGroup

NOW = 1_800_000_000 * 10**9


def test_a_plan_is_pickled() -> None:
    wait = [Condition(type="PodScheduled", status="False", reason="Unschedulable")]
    pods = [pod(f"p{i}", 700, 10) for i in range(3)] + [pod("big", 9000, 10), pod("small", 100, 10)]
    for each in pods:
        each.status.conditions = wait
    created = kscale.Cluster([node("n1", 1000, 1000), *pods])
    plan = kscale.scale_up(created, [NodeGroup(id="g", max_size=10, nodes=["n1"])], now=NOW)
    # Before anybody asked for anything, and after.
    for again in (pickle.loads(pickle.dumps(plan)), (plan.record(), pickle.loads(pickle.dumps(plan)))[1]):
        assert repr(again) == repr(plan)
        assert again.record() == plan.record()
        assert again.state == plan.state
        assert again.snapshot_after.pods == plan.snapshot_after.pods
    assert plan.triggered
    assert plan.remain_unschedulable[0].rejected["g"].reasons
