"""User-written predicates and scorers: compiled, run inside the packing loop, and never silent when they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kscale
from kscale import plugin
from kscale.errors import InputError, NativeError


def node(name: str, cpu: str, gpus: str = "0") -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "10", "example.com/gpu": gpus}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": amounts}}


def pod(name: str, cpu: str) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "d"},
        "spec": {"containers": [container]},
    }


@pytest.fixture
def registry() -> Iterator[None]:
    """What a test registers is gone after it."""
    before = dict(plugin._REGISTRY)
    yield
    plugin._REGISTRY.clear()
    plugin._REGISTRY.update(before)


@pytest.fixture
def snapshot() -> kscale.Snapshot:
    nodes = [node("small", "2"), node("large", "4", gpus="2"), node("larger", "6")]
    return kscale.Cluster([*nodes, *(pod(f"p{i}", "1") for i in range(9))]).snapshot()


def leaves_a_core(request, free, slots):
    return free[0] - request[0] >= 1000


@pytest.mark.usefixtures("registry")
def test_predicate_is_used_by_fit_place_and_estimate(snapshot: kscale.Snapshot) -> None:
    reserve = plugin.predicate(reason="node(s) would be full")(leaves_a_core)
    profile = kscale.SchedulerProfile(predicates=(reserve,))
    fit = kscale.fit(snapshot, [pod("q", "2")], profile=profile)
    assert fit.ok.tolist() == [[False, True, True]]
    verdict = fit.verdict("d/q", "small")
    assert (verdict.plugin, verdict.code, verdict.reasons) == (
        "leaves_a_core",
        "Unschedulable",
        ("node(s) would be full",),
    )
    placed = kscale.place(snapshot, profile=profile)
    per_node = {name: len(pods) for name, pods in placed.placed_in_order.items()}
    assert per_node == {"small": 1, "large": 3, "larger": 5}
    template = {"node": node("t", "4")}
    assert kscale.estimate(snapshot, template=template, profile=profile).node_count == 3  # three pods a node
    assert kscale.estimate(snapshot, template=template).node_count == 3  # four a node: 4 + 4 + 1
    assert len(kscale.estimate(snapshot, template=template, profile=profile).order_numbers) == 9


@pytest.mark.usefixtures("registry")
def test_predicate_reason_is_in_the_estimate(snapshot: kscale.Snapshot) -> None:
    reserve = plugin.predicate(reason="node(s) would be full")(leaves_a_core)
    profile = kscale.SchedulerProfile(predicates=(reserve,))
    result = kscale.estimate(snapshot, [pod("q", "4")], template={"node": node("t", "4")}, profile=profile)
    assert result.reasons == {"d/q": "leaves_a_core: node(s) would be full"}
    assert result.verdicts["d/q"].plugin == "leaves_a_core"


@pytest.mark.usefixtures("registry")
def test_further_resources_come_behind_the_fixed_three(snapshot: kscale.Snapshot) -> None:
    @plugin.predicate(name="no-gpu-nodes", resources=["example.com/gpu"])
    def spares_gpus(request, free, slots):
        return request[3] > 0 or free[3] == 0

    fit = kscale.fit(snapshot, [pod("q", "1")], profile=kscale.SchedulerProfile(predicates=(spares_gpus,)))
    assert fit.ok.tolist() == [[True, False, True]]
    assert fit.verdict("d/q", "large").reasons == ("node(s) rejected by plug-in no-gpu-nodes",)


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    "use",
    [
        lambda s, p: kscale.fit(s, profile=p).ok,
        lambda s, p: kscale.place(s, profile=p),
        lambda s, p: kscale.estimate(s, template={"node": node("t", "4")}, profile=p),
    ],
)
def test_a_predicate_that_raises_stops_the_call(snapshot: kscale.Snapshot, use: Callable[..., Any]) -> None:
    @plugin.predicate
    def picky(request, free, slots):
        if free[0] >= 4000:
            raise ValueError("too large")
        return True

    with pytest.raises(NativeError, match="plug-in 'picky' failed"):
        use(snapshot, kscale.SchedulerProfile(predicates=(picky,)))


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_a_scorer_scores_every_pair(snapshot: kscale.Snapshot, threads: int) -> None:
    @plugin.scorer
    def most_free(request, free):
        return float(free[0] - request[0]) / 1000.0

    scores = plugin.scores(snapshot, scorer="most_free", threads=threads)
    assert scores.tolist() == [[1.0, 3.0, 5.0]] * 9
    assert plugin.scores(snapshot, [pod("q", "2")], scorer=most_free, threads=threads).tolist() == [[0.0, 2.0, 4.0]]


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("threads", [1, 3])
def test_a_scorer_that_raises_stops_the_call(snapshot: kscale.Snapshot, threads: int) -> None:
    @plugin.scorer
    def divides(request, free):
        return 1 // (free[0] - 2000)

    with pytest.raises(NativeError, match="plug-in 'divides' failed on pod 0"):
        plugin.scores(snapshot, scorer=divides, threads=threads)


@pytest.mark.usefixtures("registry")
def test_a_name_stands_for_the_plugin_registered_last() -> None:
    first = plugin.predicate(name="once", reason="no")(leaves_a_core)
    assert plugin.registered("once") is first
    second = plugin.predicate(name="once", reason="not now")(leaves_a_core)
    assert plugin.registered("once") is second
    with pytest.raises(InputError, match=r"no plug-in 'twice'; known: .*once"):
        plugin.registered("twice")


def test_no_pods_score_nothing() -> None:
    empty = kscale.Cluster([node("n", "4")]).snapshot()
    assert np.array(empty.pending).size == 0


@pytest.mark.usefixtures("registry")
def test_an_index_outside_fails_the_call(snapshot: kscale.Snapshot) -> None:
    @plugin.predicate(name="beyond")
    def beyond(request, free, slots):
        return free[5_000_000] >= request[0]

    @plugin.scorer(name="behind")
    def behind(request, free):
        return free[3] - request[0]

    with pytest.raises(NativeError, match="beyond"):
        kscale.place(snapshot, profile=kscale.SchedulerProfile(predicates=(beyond,)))
    with pytest.raises(NativeError, match="behind"):
        plugin.scores(snapshot, scorer=behind)


@pytest.mark.usefixtures("registry")
def test_columns_cannot_be_written_to() -> None:
    with pytest.raises(Exception, match="readonly"):

        @plugin.scorer(name="writes")
        def writes(request, free):
            request[0] += 1000
            return 0.0
