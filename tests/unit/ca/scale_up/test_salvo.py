"""Several scale-ups in one loop."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from builders import N0, node, pod, span, template
from kscale import ca
from kscale.ca.cluster_state import ClusterStateRegistry, update_nodes
from kscale.ca.nodes import is_upcoming_node
from kscale.effects import Outcome, run_virtually
from kscale.objects.nodegroup import Groups, NodeGroup
from kscale.snapshot.cluster import Cluster


def _salvo(*, took: int = 0, **flags: Any) -> Any:
    """``took``: how long every action takes, in nanoseconds."""
    groups = Groups([NodeGroup(id="small", max_size=9), NodeGroup(id="large", max_size=9)])
    machines = {
        "small": template(node("s", 1000, 1000, labels={"pool": "small"})),
        "large": template(node("l", 4000, 1000)),
    }
    for group in groups:
        group.template = machines[group.id]
    ground = ca.ScaleUpContext(
        groups=groups,
        nodes=[],
        templates=machines,
        state=update_nodes(ClusterStateRegistry(), [], groups, now=N0).state,
        options=ca.AutoscalingOptions(**flags),
    )
    pods = [pod("a", 900, 10, spec={"node_selector": {"pool": "small"}}), pod("b", 3000, 10)]
    steps = ca.scale_up_salvo_steps(Cluster().snapshot(), pods, ground, now=N0)
    return run_virtually(lambda now: steps, lambda action, now: Outcome(at=now + took), now=N0)


def test_each_round_sees_the_nodes_of_the_rounds_before() -> None:
    result = _salvo()
    plans = [{info.group: info.new for info in item.done.status.scale_ups} for item in result.rounds]
    assert plans == [{"small": 1}, {"large": 1}]
    assert [item.node_count for item in result.rounds] == [0, 1]
    after = result.snapshot_after
    assert after.nodes == ("s-0-salvo-0",)
    assert after.pods == ("default/a",)
    assert [is_upcoming_node(each) for each in after.columns.objects] == [True]


def test_the_budget_ends_it() -> None:
    assert len(_salvo(salvo_scale_up_budget=timedelta(0)).rounds) == 1
    assert len(_salvo(took=span(minutes=1)).rounds) == 1
