"""Score plug-ins that look at taints, labels and neighbours: tables of upstream's tests, retyped."""

from __future__ import annotations

import pytest

import kscale
from unit.scheduling.score_cases import HOSTNAME, ZONE, Json, node, pod, scores, spreads, wish, wishing

# -- TaintToleration (taint_toleration_test) ---------------------------------------------------------------------------


def soft(key: str, value: str = "") -> Json:
    return {"key": key, "value": value, "effect": "PreferNoSchedule"}


@pytest.mark.parametrize(
    ("tolerations", "taints", "expected"),
    [
        ([{**soft("foo", "bar"), "operator": "Equal"}], [[soft("foo", "bar")], [soft("foo", "blah")]], [100, 0]),
        (
            [{"key": "cpu-type", "value": "arm64", "operator": "Equal", "effect": "NoSchedule"}],
            [[], [{"key": "cpu-type", "value": "arm64", "effect": "NoSchedule"}]],
            [100, 100],
        ),
        ([{**soft("foo", "bar")}], [[], [soft("cpu", "x")], [soft("cpu", "x"), soft("disk", "ssd")]], [100, 50, 0]),
        ([], [[], [soft("cpu", "x")]], [100, 0]),
    ],
)
def test_taints(tolerations: list[Json], taints: list[list[Json]], expected: list[int]) -> None:
    objects = [node(f"n{i}", taints=each) for i, each in enumerate(taints)]
    assert scores("TaintToleration", pod("p", tolerations=tolerations), objects) == expected


# -- NodeAffinity (node_affinity_test) ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ([], [0, 0, 0]),
        ([wish(4, foo="nowhere")], [0, 0, 0]),
        ([wish(4, foo="bar")], [100, 0, 100]),
        ([wish(2, foo="bar"), wish(4, key="value"), wish(5, foo="bar", key="value")], [18, 36, 100]),
        ([{"weight": 10, "preference": {}}], [0, 0, 0]),
    ],
)
def test_node_affinity(wishes: list[Json], expected: list[int]) -> None:
    labels = [{"foo": "bar"}, {"key": "value"}, {"foo": "bar", "key": "value"}]
    objects = [node(f"n{i}", labels=each) for i, each in enumerate(labels)]
    assert scores("NodeAffinity", pod("p", **wishing(*wishes)), objects) == expected


def test_preferences_of_the_profile() -> None:
    objects = [node("n0", labels={"foo": "bar"}), node("n1")]
    added = kscale.Cluster([pod("x", **wishing(wish(3, foo="bar")))]).snapshot().pod("default/x").spec.affinity
    assert added is not None
    assert added.node_affinity is not None
    options = {"added_preferences": tuple(added.node_affinity.preferred)}
    assert scores("NodeAffinity", pod("p"), objects, **options) == [100, 0]


# -- PodTopologySpread (scoring_test) ----------------------------------------------------------------------------------


def web(counts: dict[str, int]) -> list[Json]:
    return [pod(f"{n}-{i}", on=n, labels={"app": "a"}) for n, count in counts.items() for i in range(count)]


@pytest.mark.parametrize(
    ("key", "max_skew", "counts", "expected"),
    [
        (HOSTNAME, 1, {}, [100, 100, 100, 100]),
        (HOSTNAME, 1, {"a": 2, "b": 1, "c": 0, "d": 3}, [20, 60, 100, 0]),
        (HOSTNAME, 2, {"a": 2, "b": 1, "c": 0, "d": 3}, [33, 66, 100, 16]),
        (ZONE, 1, {"a": 2, "b": 1, "c": 0, "d": 3}, [100, 100, 100, 100]),
        (ZONE, 1, {"a": 2, "b": 1, "c": 0, "d": 0}, [0, 0, 100, 100]),
    ],
)
def test_spread(key: str, max_skew: int, counts: dict[str, int], expected: list[int]) -> None:
    objects = [node(name, labels={ZONE: zone}) for name, zone in zip("abcd", ("z1", "z1", "z2", "z2"), strict=True)]
    incoming = pod("p", labels={"app": "a"}, **spreads(key, max_skew))
    result = scores("PodTopologySpread", incoming, [*objects, *web(counts)])
    assert result == expected


def test_nodes_without_the_key_get_nothing() -> None:
    objects = [node("a", labels={ZONE: "z1"}), node("b"), node("c", labels={ZONE: "z2"})]
    incoming = pod("p", labels={"app": "a"}, **spreads(ZONE))
    assert scores("PodTopologySpread", incoming, [*objects, *web({"a": 1, "b": 4})]) == [0, 0, 100]


def test_the_system_spreads_pods_of_services() -> None:
    """Over hosts and zones, and nodes without a zone are compared all the same."""
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "default"}}
    service["spec"] = {"selector": {"app": "a"}}
    objects = [node("a", labels={ZONE: "z1"}), node("b"), node("c", labels={ZONE: "z2"}), *web({"a": 2})]
    incoming = pod("p", labels={"app": "a"})
    assert scores("PodTopologySpread", incoming, objects) == [0, 0, 0]
    first, *rest = scores("PodTopologySpread", incoming, [*objects, service])
    assert first < min(rest)
    none = kscale.SchedulerProfile(default_constraints=())
    snapshot = kscale.Cluster([*objects, service]).snapshot()
    result = kscale.node_scores(snapshot, incoming, profile=none)
    assert result.by_plugin["PodTopologySpread"] == [0, 0, 0]


# -- InterPodAffinity (scoring_test) -----------------------------------------------------------------------------------


def towards(kind: str, weight: int, app: str = "a", key: str = ZONE) -> Json:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    preferred = [{"weight": weight, "podAffinityTerm": term}]
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def needing(app: str, key: str = ZONE) -> Json:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


ZONES = [node(name, labels={ZONE: zone}) for name, zone in zip("abc", ("z1", "z2", "z2"), strict=True)]


@pytest.mark.parametrize(
    ("incoming", "placed", "options", "expected"),
    [
        (pod("p"), [pod("x", on="a", labels={"app": "a"})], {}, [0, 0, 0]),
        (pod("p", **towards("podAffinity", 5)), [pod("x", on="a", labels={"app": "a"})], {}, [100, 0, 0]),
        (pod("p", **towards("podAntiAffinity", 5)), [pod("x", on="a", labels={"app": "a"})], {}, [0, 100, 100]),
        (pod("p", labels={"app": "a"}), [pod("x", on="b", **towards("podAffinity", 8))], {}, [0, 100, 100]),
        (pod("p", labels={"app": "a"}), [pod("x", on="b", **towards("podAntiAffinity", 8))], {}, [100, 0, 0]),
        (pod("p", labels={"app": "a"}), [pod("x", on="b", **needing("a"))], {}, [0, 100, 100]),
        (pod("p", labels={"app": "a"}), [pod("x", on="b", **needing("a"))], {"hard_pod_affinity_weight": 0}, [0, 0, 0]),
        (
            pod("p", labels={"app": "a"}),
            [pod("x", on="b", **towards("podAffinity", 8))],
            {"ignore_preferred_terms_of_existing_pods": True},
            [0, 0, 0],
        ),
        (
            pod("p", **towards("podAffinity", 2)),
            [*web({"a": 1}), pod("b1", on="b", labels={"app": "a"}), pod("b2", on="c", labels={"app": "a"})],
            {},
            [0, 100, 100],
        ),
    ],
)
def test_affinity_between_pods(incoming: Json, placed: list[Json], options: Json, expected: list[int]) -> None:
    assert scores("InterPodAffinity", incoming, [*ZONES, *placed], **options) == expected
