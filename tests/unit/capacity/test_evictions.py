"""Which pods may be evicted, in how many waves, and where they go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kscale.ca.options import AutoscalingOptions
from kscale.capacity.evictions import Evictions, PodHold, node_hold, relocate
from kscale.effects import moment
from kscale.objects.api.core import Node
from kscale.objects.decode import from_dict
from kscale.objects.times import nanoseconds
from kscale.scheduling.scores.options import ScoreOptions
from unit.capacity.disruptable_clusters import NOW, budget, cluster, node, pod

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"


def evictions_of(*items: dict[str, Any], **options: Any) -> Evictions:
    snapshot = cluster(node("n1"), *items).snapshot()
    return Evictions(snapshot, moment(nanoseconds(NOW)), AutoscalingOptions(**options))


def hold_of(*items: dict[str, Any], **options: Any) -> PodHold | None:
    """Return what holds the first pod, by both ways to ask."""
    evictions = evictions_of(*items, **options)
    hold = evictions.holds(0)
    assert bool(evictions.holding()[0]) == (hold is not None)
    return hold


def test_a_replicated_pod_may_be_evicted() -> None:
    assert hold_of(pod("a", "n1")) is None


@pytest.mark.parametrize(
    ("value", "protected"),
    [("true", True), ("false", False), ("24h", True), ("12h1s", True), ("12h", False), ("-1h", False), ("soon", False)],
)
def test_do_not_disrupt_is_true_or_a_time_since_the_start_of_the_pod(value: str, protected: bool) -> None:
    # The pod started 12 hours before.
    hold = hold_of(pod("a", "n1", annotations={DO_NOT_DISRUPT: value}))
    assert (hold is not None) == protected
    if hold is not None:
        assert (hold.rule, hold.reason) == ("DoNotDisrupt", "DoNotDisruptAnnotation")
        assert hold.why == f"shop/a is annotated {DO_NOT_DISRUPT}={value}"


def test_a_pod_without_start_time_is_protected_for_any_duration() -> None:
    item = pod("a", "n1", annotations={DO_NOT_DISRUPT: "1s"})
    del item["status"]["startTime"]
    assert hold_of(item) is not None


def test_do_not_disrupt_protects_a_daemonset_pod_but_not_a_terminating_one() -> None:
    protected = {DO_NOT_DISRUPT: "true"}
    assert hold_of(pod("a", "n1", owner="DaemonSet", app="ds", annotations=protected)) is not None
    leaving = pod("a", "n1", annotations=protected)
    leaving["metadata"]["deletionTimestamp"] = NOW
    assert not evictions_of(leaving).holding().any()


@pytest.mark.parametrize(
    ("changes", "rule", "reason"),
    [
        ({"annotations": {SAFE_TO_EVICT: "false"}}, "NotSafeToEvict", "NotSafeToEvictAnnotation"),
        ({"annotations": {SAFE_TO_EVICT: "on-completion"}}, "OnCompletion", "WaitsForCompletion"),
        ({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}, "LocalStorage", "LocalStorageRequested"),
        ({"app": ""}, "Replicated", "NotReplicated"),
        ({"app": "unknown"}, "ReplicaCount", "ControllerNotFound"),
    ],
)
def test_drain_rules_hold_a_pod(changes: dict[str, Any], rule: str, reason: str) -> None:
    hold = hold_of(pod("a", "n1", **changes))
    assert hold is not None
    assert (hold.pod, hold.rule, hold.reason) == ("shop/a", rule, reason)
    assert "shop/a" in hold.why


def test_local_storage_moves_if_the_option_says_so() -> None:
    item = pod("a", "n1", spec={"volumes": [{"name": "v", "emptyDir": {}}]})
    assert hold_of(item, skip_nodes_with_local_storage=False) is None


def test_an_exhausted_budget_holds_even_a_pod_that_is_safe_to_evict() -> None:
    hold = hold_of(pod("a", "n1", annotations={SAFE_TO_EVICT: "true"}), budget("b", 0))
    assert hold is not None
    assert (hold.reason, hold.budget) == ("NotEnoughPdb", "shop/b")
    assert hold_of(pod("a", "n1"), budget("b", 1)) is None
    assert hold_of(pod("a", "n1"), budget("b", 0, namespace="other")) is None


def test_the_eviction_api_refuses_pods_of_two_budgets() -> None:
    hold = hold_of(pod("a", "n1"), budget("b", 5), budget("c", 5))
    assert hold is not None
    assert hold.reason == "SeveralPodDisruptionBudgets"
    assert "shop/b and shop/c" in hold.why


def test_a_budget_allows_its_disruptions_once_a_wave() -> None:
    pods = [pod(f"p{i}", "n1", cpu="100m") for i in range(5)] + [pod("free", "n1", labels={"app": "other"})]
    evictions = evictions_of(*pods, budget("b", 2))
    assert evictions.split_into_waves(range(6)) == [[0, 1, 5], [2, 3], [4]]
    assert evictions.split_into_waves([5]) == [[5]]
    assert evictions.split_into_waves([]) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"annotations": {DO_NOT_DISRUPT: "true"}}, "DoNotDisruptAnnotation"),
        ({"annotations": {DO_NOT_DISRUPT: "false"}}, None),
        (
            {"annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}},
            "ScaleDownDisabledAnnotation",
        ),
        (
            {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}]},
            "CurrentlyBeingDeleted",
        ),
    ],
)
def test_annotations_and_taints_hold_a_node(changes: dict[str, Any], reason: str | None) -> None:
    hold = node_hold(from_dict(node("n", **changes), Node))
    assert (None if hold is None else hold[0]) == reason


def test_evicted_pods_go_to_other_nodes_and_are_tried_again_in_later_waves() -> None:
    # "b" needs to be with "c", which arrives on n2 one wave later.
    affinity = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"role": "c"}}}
            ]
        }
    }
    items = [
        node("n2"),
        pod("b", "n1", spec={"affinity": affinity}),
        pod("c", "n1", labels={"role": "c"}),
        pod("big", "n1", cpu="3500m"),
    ]
    snapshot = cluster(node("n1", "8"), *items).snapshot()
    moved = relocate(snapshot, ["n1"], [[0], [1], [2]], ScoreOptions())
    assert moved.targets == {0: "n2", 1: "n2"}
    assert list(moved.pending) == [2]
    assert "Insufficient cpu" in moved.pending[2]
    assert np.flatnonzero(moved.snapshot.placed_node == 0).size == 0
