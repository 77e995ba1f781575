"""What placing by scores promises."""

from __future__ import annotations

from typing import Any

import pytest

import kscale
from kscale.errors import NativeError
from kscale.scheduling.place import PlaceState
from unit.scheduling.score_cases import ZONE, asks, many, node, pod, spreads, wishing


def test_pods_go_where_there_is_most_room_and_are_counted_there() -> None:
    snapshot = kscale.Cluster([node("small", "2", str(4 << 30)), node("large", "8", str(16 << 30))]).snapshot()
    pods = [pod(f"p{i}", {"cpu": "1", "memory": "2Gi"}) for i in range(5)]
    result = kscale.place(snapshot, pods, scores=kscale.ScoreOptions())
    assert [result.placed[f"default/p{i}"] for i in range(5)] == ["large", "large", "large", "small", "large"]
    assert result.snapshot_after.pod_count.tolist() == [1, 4]


def test_the_search_goes_on_where_it_ended() -> None:
    """Of 200 nodes 100 are enough: half of 48 percent is less."""
    snapshot = kscale.Cluster(many(200)).snapshot()
    state = PlaceState()
    nodes = []
    for i in range(3):
        result = kscale.place(snapshot, [pod(f"p{i}", asks(100, 1))], state=state, scores=kscale.ScoreOptions())
        nodes += result.placed.values()
        state = result.state
        snapshot = result.snapshot_after
    assert nodes == ["n000", "n100", "n001"]
    assert state.cursor == 100
    every = kscale.ScoreOptions(percentage_of_nodes_to_score=100)
    assert kscale.place(snapshot, [pod("q", asks(100, 1))], scores=every).state.cursor == 0


def test_nodes_that_a_prefilter_names_and_nodes_that_are_refused() -> None:
    snapshot = kscale.Cluster(many(3)).snapshot()
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in ("n001", "n002", "gone")]
    named = {"nodeSelectorTerms": [{"matchFields": [field]} for field in fields]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": named}}
    options = kscale.ScoreOptions()
    result = kscale.place(snapshot, [pod("p", affinity=affinity)], scores=options)
    assert result.placed == {"default/p": "n001"}
    result = kscale.place(snapshot, [pod("p", affinity=affinity)], scores=options, unacceptable_nodes=["n001"])
    assert result.placed == {"default/p": "n002"}
    result = kscale.place(snapshot, [pod("p")], scores=options, unacceptable_nodes=["n000", "n001", "n002"])
    assert result.unschedulable == ["default/p"]


def test_cordoned_node_accepts_tolerating_pods() -> None:
    snapshot = kscale.Cluster([node("n", unschedulable=True)]).snapshot()
    tolerant = pod("t", tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    result = kscale.place(snapshot, [pod("p"), tolerant], scores=kscale.ScoreOptions())
    assert (result.placed, result.unschedulable) == ({"default/t": "n"}, ["default/p"])


def test_without_plugins_the_first_node_is_the_one() -> None:
    snapshot = kscale.Cluster([node("a", "1"), node("b", "64")]).snapshot()
    result = kscale.place(snapshot, [pod("p", asks(100, 1))], scores=kscale.ScoreOptions(weights={}))
    assert result.placed == {"default/p": "a"}
    assert result.state.cursor == 1


def test_a_wish_that_cannot_be_read_is_an_error_where_nodes_are_compared() -> None:
    broken = pod("p", labels={"app": "a"}, **spreads(ZONE))
    broken["spec"]["topologySpreadConstraints"][0]["labelSelector"] = {
        "matchExpressions": [{"key": "app", "operator": "Near", "values": ["a"]}]
    }
    operator = {"key": "foo", "operator": "Near", "values": ["a"]}
    unreadable = pod("q", **wishing({"weight": 1, "preference": {"matchExpressions": [operator]}}))
    for one in (broken, unreadable):
        key = f"default/{one['metadata']['name']}"
        two = kscale.Cluster(many(2)).snapshot()
        assert kscale.place(two, [one], scores=kscale.ScoreOptions()).unschedulable == [key]
        assert kscale.node_scores(two, one).total == []
        alone = kscale.Cluster(many(1)).snapshot()
        assert kscale.place(alone, [one], scores=kscale.ScoreOptions()).placed == {key: "n000"}


def test_autoscaler_options_are_refused_with_scores() -> None:
    snapshot = kscale.Cluster(many(1)).snapshot()
    for options in ({"state": PlaceState(hints={"u": "n000"})}, {"break_on_failure": True}, {"max_looks": 1}):
        with pytest.raises(kscale.InputError, match="kube-scheduler has no hints"):
            kscale.place(snapshot, [pod("p")], scores=kscale.ScoreOptions(), **options)


def test_scorers_of_the_users() -> None:
    pytest.importorskip("numba", reason="the extra [plugins] is not installed")

    @kscale.plugin.scorer(name="likes-little-room", resources=("example.com/gpu",))
    def likes_little_room(request: Any, free: Any) -> float:
        return 100.0 if free[0] - request[0] < 2000 else free[3] * 1.0

    @kscale.plugin.scorer(name="too-much")
    def too_much(request: Any, free: Any) -> float:
        return 100.5

    small, large = node("small", "2"), node("large", "8")
    large["status"]["allocatable"]["example.com/gpu"] = "7"
    snapshot = kscale.Cluster([large, small]).snapshot()
    options = kscale.ScoreOptions(weights={}, scorers=((likes_little_room, 3),))
    result = kscale.node_scores(snapshot, pod("p", asks(500, 1)), scores=options)
    assert (result.by_plugin, result.total) == ({"likes-little-room": [7, 100]}, [21, 300])
    pods = [pod(f"p{i}", asks(500, 1)) for i in range(5)]
    placed = kscale.place(snapshot, pods, scores=options)
    assert list(placed.placed.values()) == ["small"] * 4 + ["large"]
    for scoring in (
        kscale.node_scores,
        lambda *arguments, scores: kscale.place(arguments[0], [arguments[1]], scores=scores),
    ):
        with pytest.raises(NativeError, match="'too-much' failed, or gave no score from 0 to 100"):
            scoring(snapshot, pod("p"), scores=kscale.ScoreOptions(scorers=((too_much, 1),)))
