"""Since when nodes are unneeded, which may go, and which are not tried again: upstream's tables."""

from __future__ import annotations

from datetime import timedelta

import pytest

from builders import N0, group_options, node
from kscale import ca
from kscale.ca.quota import QuotaTracker, build_cluster_minimum_quota
from kscale.ca.scale_down.candidates import AtomicFilterResult, filter_atomic_groups
from kscale.ca.scale_down.unneeded import (
    NodeToRemove,
    UnneededNode,
    UnremovableNodes,
    find_removable_nodes,
    load_times_from_taints,
    update_unneeded,
)
from kscale.effects import SECOND
from kscale.objects.api.core import Node, Taint
from kscale.objects.nodegroup import Groups, NodeGroup

MINUTE = 60 * SECOND
_OPTIONS = ca.AutoscalingOptions(
    scale_down_unneeded_time=timedelta(minutes=10), scale_down_unready_time=timedelta(minutes=5)
)


def _node(name: str, *, ready: bool | None = None, version: str = "v1") -> Node:
    return node(name, 1000, 10, ready=ready, labels={"version": version})


def _update(first: list[Node], second: list[Node]) -> list[UnneededNode]:
    names = [n.metadata.name for n in (*first, *second)]
    groups = Groups([NodeGroup(id="g", nodes=names)])
    before = update_unneeded({}, map(NodeToRemove, first), groups=groups, options=_OPTIONS, now=N0)
    since = {item.name: item.since for item in before}
    return update_unneeded(since, map(NodeToRemove, second), groups=groups, options=_OPTIONS, now=N0 + MINUTE)


def test_time_counts_from_when_a_node_was_first_found() -> None:
    three = [_node("1"), _node("2"), _node("3")]
    assert _update(three, []) == []
    assert {item.since for item in _update([], three)} == {N0 + MINUTE}
    (unneeded,) = _update(three, [_node("2", version="v2")])
    assert unneeded.since == N0
    assert unneeded.node.metadata.labels == {"version": "v2"}
    assert [item.since for item in _update([_node("2")], three)] == [N0 + MINUTE, N0, N0 + MINUTE]


def test_thresholds_follow_readiness() -> None:
    (result,) = _update([_node("1", ready=True)], [_node("1", ready=False)])
    assert (result.since, result.threshold) == (N0, 5 * MINUTE)
    both = _update([_node("1", ready=True)], [_node("1", ready=True), _node("2", ready=False)])
    assert [item.threshold for item in both] == [10 * MINUTE, 5 * MINUTE]
    assert _update([], [_node("1")])[0].threshold == 5 * MINUTE


def test_nodes_without_a_threshold_may_be_removed_immediately() -> None:
    """Where it cannot tell, the reason is kept, which holds them."""
    nodes = [_node(f"{group}{ready}", ready=ready) for group in ("loose", "g") for ready in (True, False)]
    groups = Groups([NodeGroup(id="g", nodes=["gTrue", "gFalse"], options_error="down")])
    result = update_unneeded({}, map(NodeToRemove, nodes), groups=groups, options=_OPTIONS, now=N0)
    assert [(item.threshold, item.threshold_error) for item in result] == [(0, None)] * 2 + [(0, "down")] * 2


def test_simulation_results_are_recorded() -> None:
    plain, drained = NodeToRemove(_node("1")), NodeToRemove(_node("2"), drain=True)
    simulated = [plain, drained, NodeToRemove(_node("3"), risky=True), NodeToRemove(_node("4"), on_completion=True)]
    result = update_unneeded({}, simulated, groups=Groups(), options=_OPTIONS, now=N0)
    assert [(item.name, item.drain, item.risky, item.on_completion) for item in result] == [
        ("1", False, False, False),
        ("2", True, False, False),
        ("3", False, True, False),
        ("4", False, False, True),
    ]


def _unneeded(
    name: str, *, drain: bool = False, ready: bool = True, threshold: float = 5, error: str | None = None
) -> UnneededNode:
    return UnneededNode(
        node=_node(name, ready=ready),
        drain=drain,
        since=N0 - 10 * MINUTE,
        threshold=threshold * MINUTE,
        threshold_error=error,
    )


@pytest.mark.parametrize(
    ("bounds", "counts", "expected"),
    [((1, 10, 2), (3, 2), (3, 2)), ((1, 10, 2), (3, 5), (3, 4)), ((1, 5, 2), (3, 5), (2, 0))],
)
def test_groups_keep_their_minimum(
    bounds: tuple[int, int, int], counts: tuple[int, int], expected: tuple[int, int]
) -> None:
    low, target, in_progress = bounds
    drains = [_unneeded(f"d{i}", drain=True) for i in range(counts[1])]
    empties = [_unneeded(f"e{i}") for i in range(counts[0])]
    names = [item.name for item in (*drains, *empties)]
    groups = Groups([NodeGroup(id="g", min_size=low, max_size=100, target_size=target, nodes=names)])
    result = find_removable_nodes([*drains, *empties], groups=groups, now=N0, deletions_in_progress={"g": in_progress})
    assert (len(result.empty), len(result.drain)) == expected
    assert set(result.unremovable.values()) <= {"NodeGroupMinSizeReached"}


def _reason(item: UnneededNode, group: NodeGroup | None = None, minimum: QuotaTracker | None = None) -> str | None:
    group = group or NodeGroup(id="g", min_size=0, max_size=9, target_size=5, nodes=["n"])
    result = find_removable_nodes([item], groups=Groups([group]), now=N0, minimum=minimum)
    assert bool(result.empty) is ("n" not in result.unremovable)
    return result.unremovable.get("n")


def test_reasons() -> None:
    plain = _unneeded("n")
    assert _reason(plain) is None
    assert _reason(_unneeded("n", error="down")) == "UnexpectedError"
    assert _reason(_unneeded("n", threshold=15)) == "NotUnneededLongEnough"
    assert _reason(_unneeded("n", threshold=15, ready=False)) == "NotUnreadyLongEnough"
    assert _reason(_unneeded("n", threshold=10)) == "NotUnneededLongEnough"
    assert _reason(_unneeded("n", threshold=0)) is None
    assert _reason(plain, NodeGroup(id="g")) == "NotAutoscaled"
    assert _reason(plain, NodeGroup(id="g", min_size=1, target_size=1, nodes=["n"])) == "NodeGroupMinSizeReached"
    assert _reason(plain, NodeGroup(id="g", target_size_error="down", nodes=["n"])) == "UnexpectedError"
    unneeded_node = _unneeded("n")
    unneeded_node.node.metadata.annotations = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    assert _reason(unneeded_node) == "ScaleDownDisabledAnnotation"
    quota = build_cluster_minimum_quota(ca.ResourceLimiter(min={"nodes": 1}))
    tracker = QuotaTracker.minimum([quota], [plain.node], Groups())
    assert _reason(plain, minimum=tracker) == "MinimalResourceLimitExceeded"


def test_where_minima_hold_some_nodes_back_the_first_ones_go() -> None:
    unneeded = [_unneeded(name) for name in ("a", "b", "c")]
    groups = Groups([NodeGroup(id="g", max_size=9, target_size=3, nodes=["a", "b", "c"])])
    quota = build_cluster_minimum_quota(ca.ResourceLimiter(min={"nodes": 1}))
    tracker = QuotaTracker.minimum([quota], [item.node for item in unneeded], groups)
    result = find_removable_nodes(unneeded, groups=groups, now=N0, minimum=tracker)
    assert [item.name for item in (*result.empty, *result.drain)] == ["a", "b"]
    assert result.unremovable == {"c": "MinimalResourceLimitExceeded"}
    assert tracker.left == [{"nodes": 0}]


def test_times_from_soft_taints() -> None:
    def tainted(name: str, value: str | None) -> Node:
        created = _node(name)
        if value is not None:
            created.spec.taints = [Taint(key="DeletionCandidateOfClusterAutoscaler", value=value)]
        return created

    now = N0 // SECOND
    nodes = [tainted("2m", str(now - 120)), tainted("20m", str(now - 1200)), tainted("no", None), tainted("x", "soon")]
    assert load_times_from_taints(nodes, ttl=5 * MINUTE, now=N0) == {"2m": N0 - 2 * MINUTE}
    for ttl in range(1, 130):
        ages = [tainted(str(age), str(now - age)) for age in (0, ttl - 1, ttl, ttl + 1)]
        assert {*load_times_from_taints(ages, ttl=ttl * SECOND, now=N0)} == {"0", str(ttl - 1), str(ttl)}


def test_unremovable_nodes_are_tried_again_later() -> None:
    state = UnremovableNodes()
    state.add("over", "NoPlaceToMovePods", until=N0)
    state.add("gone", "NoPlaceToMovePods", until=N0 + MINUTE)
    state.add("kept", "NoPlaceToMovePods", until=N0 + MINUTE)
    state.add("ineligible", "NotUnderutilized")
    assert list(state.nodes) == ["over", "gone", "kept", "ineligible"]
    result = state.update(["over", "kept", "ineligible"], N0)
    assert list(result.until) == ["kept"]
    assert not any(result.contains(name) for name in state.nodes)
    result.add("a", "One")
    result.add("b", "Two")
    result.add("a", "Three")
    assert [(name, item.reason) for name, item in result.nodes.items()] == [("a", "Three"), ("b", "Two")]


@pytest.mark.parametrize(
    ("target", "considered", "registered", "atomic", "removed"),
    [
        (3, 3, 3, True, True),
        (4, 2, 3, True, False),
        (4, 3, 3, False, True),
        (10, 3, 3, True, True),
        (10, 3, 4, True, False),
    ],
)
def test_atomic_groups(target: int, considered: int, registered: int, atomic: bool, removed: bool) -> None:
    nodes = [_node(f"n{i}") for i in range(registered)]
    names = [n.metadata.name for n in nodes]
    own = group_options(zero_or_max_node_scaling=atomic)
    group = NodeGroup(id="g", target_size=target, nodes=names, instances=names, options=own)
    plain = NodeGroup(id="plain", nodes=["p"])
    result = filter_atomic_groups(
        [nodes[0].metadata.name, "p", *names[1:considered], "loose"],
        groups=Groups([group, plain]),
        options=_OPTIONS,
        snapshot_nodes=nodes,
    )
    considered_names = names[:considered]
    if not removed:
        assert result == AtomicFilterResult(
            remaining=["p"],
            unremovable={"loose": "NotAutoscaled", **dict.fromkeys(considered_names, "AtomicScaleDownFailed")},
        )
    elif atomic:
        assert result == AtomicFilterResult(remaining=["p", *considered_names], unremovable={"loose": "NotAutoscaled"})
    else:
        assert result == AtomicFilterResult(
            remaining=[considered_names[0], "p", *considered_names[1:]], unremovable={"loose": "NotAutoscaled"}
        )
