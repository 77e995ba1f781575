"""Quotas: upstream's tables."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import node, template
from kscale import ca
from kscale.ca.quota import (
    VALID_CONDITION,
    CountedNodes,
    ExceededQuota,
    NodeResources,
    Quota,
    QuotaTracker,
    build_cluster_maximum_quota,
    build_cluster_minimum_quota,
    read_capacity_quotas,
)
from kscale.objects.api.cluster_autoscaler import CapacityQuota, CapacityQuotaStatus
from kscale.objects.api.core import Node
from kscale.objects.api.meta import Condition, ObjectMeta
from kscale.objects.nodegroup import Groups, NodeGroup
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import from_label_map
from kscale.snapshot.cluster import Cluster

_LABEL = "gpu-label"


def _tracker(*limits: dict[str, int], selector: dict[str, str] | None = None) -> QuotaTracker:
    quotas = [
        Quota(id=f"Q{i}", limits=limit, selector=from_label_map(selector)) for i, limit in enumerate(limits, start=1)
    ]
    return QuotaTracker.maximum(quotas, [], Groups(), gpu_label=_LABEL)


def _cores(cores: int, memory: int) -> Node:
    return node("template", cores * 1000, memory)


def _gpu_node() -> Node:
    created = node("gpu", 1000, 200, labels={_LABEL: "gpu"})
    assert created.status.allocatable is not None
    created.status.allocatable["nvidia.com/gpu"] = Quantity("1")
    return created


@pytest.mark.parametrize(
    ("limits", "allowed", "exceeded"),
    [
        ([{"cpu": 10, "memory": 1000, "nodes": 5}], 2, {}),
        ([{"cpu": 1, "memory": 1000, "nodes": 5}], 1, {"Q1": ["cpu"]}),
        ([{"cpu": 1, "memory": 300, "nodes": 5}], 1, {"Q1": ["cpu", "memory"]}),
        (
            [{"cpu": 1, "memory": 2000, "nodes": 5}, {"cpu": 10, "memory": 300, "nodes": 5}],
            1,
            {"Q1": ["cpu"], "Q2": ["memory"]},
        ),
        ([{"gpu": 1}], 2, {}),
    ],
)
def test_check(limits: list[dict[str, int]], allowed: int, exceeded: dict[str, list[str]]) -> None:
    result = _tracker(*limits).check(None, _cores(1, 200), 2)
    assert result.allowed == allowed
    assert {item.id: item.resources for item in result.exceeded} == exceeded


def test_quota_of_other_nodes_and_of_other_resources() -> None:
    assert _tracker({"cpu": 1}, selector={"team": "a"}).check(None, _cores(1, 200), 2).allowed == 2
    assert _tracker({"cpu": 9}).check(None, _gpu_node(), 2).allowed == 2
    message = _tracker({"gpu": 1}).check(None, _gpu_node(), 2).exceeded[0].message
    assert message == 'exceeded quota: "Q1", resources: gpu'


def test_negative_delta() -> None:
    with pytest.raises(ca.AutoscalerError, match="negative nodeDelta received"):
        _tracker({"cpu": 1}).check(None, _cores(1, 200), -1)


@pytest.mark.parametrize(
    ("limits", "cores", "delta", "allowed", "limits_left"),
    [
        ({"cpu": 10, "memory": 1000, "nodes": 5}, 1, 2, 2, {"cpu": 8, "memory": 600, "nodes": 3}),
        ({"cpu": 3, "memory": 1000, "nodes": 5}, 2, 2, 1, {"cpu": 3, "memory": 1000, "nodes": 5}),
        ({"cpu": 1, "memory": 100, "nodes": 5}, 2, 1, 0, {"cpu": 1, "memory": 100, "nodes": 5}),
        ({"cpu": 2, "memory": 500, "nodes": 10}, 1, 2, 2, {"cpu": 0, "memory": 100, "nodes": 8}),
    ],
)
def test_consume(limits: dict[str, int], cores: int, delta: int, allowed: int, limits_left: dict[str, int]) -> None:
    tracker = _tracker(limits)
    fork = tracker.fork()
    assert tracker.consume(None, _cores(cores, 200), delta).allowed == allowed
    assert tracker.limits_left == {"Q1": limits_left}
    assert fork.limits_left == {"Q1": limits}


@pytest.mark.parametrize(
    ("limits", "allowed", "exceeded"),
    [
        ({"cpu": 12, "memory": 32}, 2, []),
        ({"cpu": 6, "memory": 16}, 0, [["cpu", "memory"]]),
        ({"cpu": 7, "memory": 16}, 0, [["cpu", "memory"]]),
    ],
)
def test_usage_of_the_cluster(limits: dict[str, int], allowed: int, exceeded: list[list[str]]) -> None:
    nodes = [node("n1", 1000, 2), node("n2", 2000, 4), node("n3", 3000, 8)]
    quota = build_cluster_maximum_quota(ca.ResourceLimiter(max=limits))
    result = QuotaTracker.maximum([quota], nodes, Groups()).check(None, _cores(2, 4), 2)
    assert result.allowed == allowed
    assert [item.resources for item in result.exceeded] == exceeded


def test_virtual_kubelets_do_not_count() -> None:
    nodes = [node("n1", 1000, 2), node("n2", 2000, 4), node("vk", 3000, 8, labels={"type": "virtual-kubelet"})]
    quota = build_cluster_maximum_quota(ca.ResourceLimiter(max={"cpu": 4, "memory": 8}))
    tracker = QuotaTracker.maximum([quota], nodes, Groups())
    assert tracker.check(None, _cores(1, 2), 1).allowed == 1
    assert tracker.check(None, _cores(2, 4), 1).allowed == 0


@pytest.mark.parametrize("kinds", [["", ""], ["", "virtual-kubelet", ""], ["virtual-kubelet"], []])
def test_which_nodes_of_a_snapshot_count(kinds: list[str]) -> None:
    nodes = [node(f"n{i}", 1000, 2, labels={"type": kind} if kind else None) for i, kind in enumerate(kinds)]
    result, expected = CountedNodes.of(Cluster(nodes).snapshot()), CountedNodes.among(nodes)
    assert ([*result.nodes], [*result.names]) == expected
    assert len(expected.names) == kinds.count("")


def test_a_node_that_shows_no_device_counts_for_none() -> None:
    """Neither its own nor its group's template: the label alone is not a resource."""
    bare = node("bare", 1000, 200, labels={_LABEL: "gpu"})
    without_device = node("shown", 1000, 200, labels={_LABEL: "gpu"})
    without_device.status.capacity = {**(without_device.status.capacity or {}), "nvidia.com/gpu": Quantity("0")}
    for own in (bare, without_device):
        group = NodeGroup(id="g", template=template(own))
        assert NodeResources(_LABEL).get(bare, group) == {"cpu": 1, "memory": 200, "nodes": 1}


@pytest.mark.parametrize(
    ("conditions", "counts"),
    [
        ([(VALID_CONDITION, "True")], True),
        ([("a", "True"), ("z", "False"), (VALID_CONDITION, "True")], True),
        ([], False),
        ([(VALID_CONDITION, "False")], False),
        ([(VALID_CONDITION, "Unknown")], False),
        ([("a", "True"), (VALID_CONDITION, "False")], False),
        ([("z", "True"), (VALID_CONDITION, "False")], False),
    ],
)
def test_a_quota_counts_by_its_own_condition(conditions: list[tuple[str, str]], counts: bool) -> None:
    given_ = CapacityQuota(
        metadata=ObjectMeta(name="q"),
        status=CapacityQuotaStatus(conditions=[Condition(type=kind, status=status) for kind, status in conditions]),
    )
    quotas, left_out = read_capacity_quotas([given_])
    assert [each.id for each in quotas] == (["CapacityQuota/q"] if counts else [])
    assert left_out == ({} if counts else {"q": f"condition {VALID_CONDITION} is not True"})


def test_cores_are_rounded_up_for_each_node() -> None:
    quota = Quota(id="q", limits={"cpu": 10})
    nodes = [node(f"n{i}", 2500, 1) for i in range(3)]
    assert QuotaTracker.maximum([quota], nodes, Groups()).limits_left == {"q": {"cpu": 1}}


def test_the_first_node_of_a_group_speaks_for_all() -> None:
    groups = Groups([NodeGroup(id="g", nodes=["n1", "n2"])])
    quota = Quota(id="q", limits={"cpu": 10})
    tracker = QuotaTracker.maximum([quota], [node("n1", 1000, 1), node("n2", 8000, 1)], groups)
    assert tracker.limits_left == {"q": {"cpu": 8}}
    assert tracker.check(groups["g"], node("template", 64_000, 1), 8).allowed == 8


def test_minimum_side() -> None:
    limiter = ca.ResourceLimiter(min={"cpu": 2}, max={"cpu": 10, "memory": 99})
    tracker = QuotaTracker.minimum(
        [build_cluster_minimum_quota(limiter)], [node("n1", 2000, 4), node("n2", 2000, 4)], Groups()
    )
    assert tracker.limits_left == {"cluster-wide": {"cpu": 2, "memory": 8}}
    assert tracker.consume(None, _cores(2, 4), 1).allowed == 1
    assert tracker.consume(None, _cores(2, 4), 1).exceeded[0].resources == ["cpu"]


def test_an_absurd_delta_wraps_as_upstream_does() -> None:
    assert _tracker({"cpu": 1}).check(None, _cores(4, 0), 1 << 62).allowed == 1 << 62


def test_devices_that_are_used_up() -> None:
    used = _gpu_node()
    tracker = QuotaTracker.maximum([Quota(id="test", limits={"gpu": 1})], [used], Groups(), gpu_label=_LABEL)
    check = tracker.check(None, _gpu_node(), 2)
    assert check.allowed == 0
    assert [item.message for item in check.exceeded] == ['exceeded quota: "test", resources: gpu']


def test_one_message_for_each_quota() -> None:
    check = _tracker({"cpu": 1, "memory": 200}, {"nodes": 1}).check(None, _cores(2, 400), 2)
    assert [item.message for item in check.exceeded] == [
        'exceeded quota: "Q1", resources: cpu, memory',
        'exceeded quota: "Q2", resources: nodes',
    ]


def test_the_name_of_a_quota_is_quoted_as_go_does() -> None:
    exceeded = ExceededQuota(id='CapacityQuota/a"\t', resources=["cpu", "memory"])
    assert exceeded.message == 'exceeded quota: "CapacityQuota/a\\"\\t", resources: cpu, memory'


@given(
    limits=st.lists(st.dictionaries(st.sampled_from(["cpu", "memory", "nodes"]), st.integers(0, 40)), max_size=2),
    of_nodes=st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 4), st.integers(0, 4)), max_size=8),
    order=st.randoms(use_true_random=False),
)
def test_consuming_together_equals_consuming_one_by_one(
    limits: list[dict[str, int]], of_nodes: list[tuple[str, int, int]], order: random.Random
) -> None:
    groups = {name: NodeGroup(id=name, max_size=9) for name in ("a", "b")}
    nodes = [(groups[group], node("n", cores * 1000, memory)) for group, cores, memory in of_nodes]
    together, alone = _tracker(*limits), _tracker(*limits)
    by_group: dict[str, list[Node]] = {}
    for group, each in nodes:
        by_group.setdefault(group.id, []).append(each)
    firsts = [(groups[name], members[0]) for name, members in by_group.items()]
    for group, each in firsts:  # all nodes of a group count for what the first of them was seen to have
        alone.check(group, each, 0)
    all_consumed = together.consume_together((groups[name], members) for name, members in by_group.items())
    order.shuffle(nodes)
    allowed = [not alone.consume(group, each, 1).exceeded for group, each in nodes]
    assert all_consumed == all(allowed)
    assert together.left == (alone.left if all_consumed else _tracker(*limits).left)


def test_quotas_of_some_nodes_are_not_taken_together() -> None:
    tracker = _tracker({"nodes": 5}, selector={"team": "a"})
    assert not tracker.consume_together([(NodeGroup(id="g", max_size=9), [_cores(1, 200)])])
    assert tracker.left == [{"nodes": 5}]
