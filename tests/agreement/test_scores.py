"""Scores of nodes, and pods on the nodes with the greatest, against the reference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kscale
from examples import examples
from kscale._native import _engine
from reference import scores as reference
from reference.cluster import Cluster
from reference.labels import SelectorError
from strategies import scores as strategies

Json = dict[str, Any]
fewer = settings(max_examples=examples(1 / 2))

OPTIONS: list[Json] = [
    {},
    {"fit_strategy": "MostAllocated", "fit_resources": {"cpu": 3, "memory": 1, "example.com/gpu": 5}},
    {
        "fit_strategy": "RequestedToCapacityRatio",
        "fit_shape": ((0, 10), (40, 2), (90, 7)),
        "fit_resources": {"cpu": 2, "memory": 3, "ephemeral-storage": 1},
        "balanced_resources": ("cpu", "memory", "ephemeral-storage", "example.com/gpu"),
        "hard_pod_affinity_weight": 0,
        "volume_shape": ((5, 3), (60, 9)),
    },
]


def expected(pod: Json, nodes: list[str], cluster: Cluster, options: kscale.ScoreOptions) -> dict[str, list[int]]:
    states = [state for name in nodes if (state := cluster.find(name)) is not None]
    return reference.all_scores(
        pod,
        states,
        cluster,
        strategy=options.fit_strategy,
        fit=dict(options.fit_resources),
        shape=list(options.fit_shape),
        balanced=list(options.balanced_resources),
        hard_weight=options.hard_pod_affinity_weight,
        volume_shape=list(options.volume_shape),
    )


@pytest.mark.parametrize("given_options", OPTIONS, ids=["least", "most", "ratio"])
@fewer
@given(data=st.data())
def test_every_plugin(data: st.DataObject, given_options: Json) -> None:
    objects, pods = data.draw(strategies.worlds())
    options = kscale.ScoreOptions(**given_options)
    snapshot, cluster = kscale.Cluster(objects).snapshot(), Cluster(objects)
    for pod in pods:
        result = kscale.node_scores(snapshot, pod, scores=options)
        try:
            reference.soft_constraints(pod, cluster)
        except SelectorError:
            assert (result.by_plugin, result.total) == ({}, [])
            continue
        if not result.nodes:  # a PreFilter may have failed for what cannot be read
            continue
        assert result.by_plugin == expected(pod, result.nodes, cluster, options)
        weighted = [
            sum(options.weights[name] * scores[i] for name, scores in result.by_plugin.items())
            for i in range(len(result.nodes))
        ]
        assert result.total == weighted
        best = max(weighted, default=0)
        assert result.chosen == (result.nodes[weighted.index(best)] if weighted else None)


@pytest.mark.parametrize("given_options", OPTIONS, ids=["least", "most", "ratio"])
@fewer
@given(data=st.data())
def test_one_after_the_other(data: st.DataObject, given_options: Json) -> None:
    """What placing keeps is what a snapshot after each pod would show."""
    objects, pods = data.draw(strategies.worlds())
    options = kscale.ScoreOptions(**given_options)
    snapshot = kscale.Cluster(objects).snapshot()
    together = kscale.place(snapshot, pods, scores=options)
    for pod in pods:
        chosen = kscale.node_scores(snapshot, pod, scores=options).chosen
        assert together.placed.get(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}") == chosen
        alone = kscale.place(snapshot, [pod], scores=options)
        assert list(alone.placed.values()) == ([] if chosen is None else [chosen])
        snapshot = alone.snapshot_after


@given(nodes=st.integers(0, 20_000), percentage=st.integers(0, 100))
def test_enough_nodes(nodes: int, percentage: int) -> None:
    share = percentage or max(50 - nodes // 125, 5)
    assert _engine.enough_nodes(nodes, percentage) == (nodes if nodes < 100 else max(nodes * share // 100, 100))
