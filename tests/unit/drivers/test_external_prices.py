"""Prices of an external provider, over loopback: whole loops with the price expander."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from builders import N0, node, pod
from kscale import ca
from kscale.ca.expander.types import ExpanderInput
from kscale.effects import SECOND, ApiError, GetPrices, Prices
from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import NodeGroup, NodeTemplate, ProviderError
from kscale.snapshot.cluster import Cluster
from kscale.world.nodegroups.external import ExternalGroups
from kscale.world.nodegroups.external_server import ExternalServer
from kscale.world.nodegroups.provider import Provider

pytest.importorskip("grpc", reason="the extra [grpc] is not installed")


class Priced(Provider):
    """Two groups; a node of each at its price, a pod at what it requests."""

    name = "priced"

    def __init__(self) -> None:
        self.costs = {"small": 4.0, "large": 1.0}
        self.requests: list[GetPrices] = []

    def refresh(self) -> Sequence[NodeGroup]:
        cores = {"small": 2, "large": 8}
        return [
            NodeGroup(
                id=name,
                max_size=20,
                target_size=0,
                template=NodeTemplate(
                    node=node(name, cores[name] * 1000, 64 << 30, labels={"group": name}, ready=True)
                ),
            )
            for name in self.costs
        ]

    def prices(self, question: GetPrices) -> Prices:
        self.requests.append(question)
        hours = (question.end - question.start) / (3600 * SECOND)
        return Prices(
            nodes=tuple(self._node((each.metadata.labels or {})["group"], hours) for each in question.nodes),
            pods=tuple(self._pod(from_dict(each, Pod)) * hours for each in question.pods),
        )

    def _node(self, group: str, hours: float) -> float | ApiError:
        return self.costs[group] * hours if group in self.costs else ApiError("who?")

    def _pod(self, pod: Pod) -> float:
        (container,) = pod.spec.containers
        return float((container.resources.requests or {})["cpu"].milli_value()) / 1000


@pytest.fixture
def cloud() -> Priced:
    return Priced()


@pytest.fixture
def client(cloud: Priced) -> Iterator[ExternalGroups]:
    with ExternalServer(cloud, "127.0.0.1:0") as server:
        result = ExternalGroups({"address": server.url}, list)
        yield result
        result.close()


def chosen(client: ExternalGroups) -> tuple[str | None, dict[str, Any]]:
    waiting = [pod(f"p{i}", 900, 1 << 20) for i in range(8)]
    report = ca.run_once(
        Cluster([node("here", 100, 1 << 30, ready=True), *waiting]),
        client.refresh(),
        now=N0,
        options=ca.AutoscalingOptions(expander="price", bypassed_scheduler_names=["default-scheduler"]),
        inputs=ca.LoopInputs(expander_input=ExpanderInput(ask_prices=True)),
        prices=client.prices,
    )
    plan = report.scale_up
    assert plan is not None
    return plan.chosen, {option.group: option.scores[0].parts for option in plan.options if option.scores}


def test_the_cheaper_group_grows(client: ExternalGroups, cloud: Priced) -> None:
    group, parts = chosen(client)
    assert group == "large"
    assert {name: (prices["all_nodes_price"], prices["pods_price"]) for name, prices in parts.items()} == {
        "small": (16.0, pytest.approx(7.2)),
        "large": (1.0, pytest.approx(7.2)),
    }
    assert {(each.start, each.end) for each in cloud.requests} == {(N0, N0 + 3600 * SECOND)}
    cloud.costs["large"] = 300.0
    assert chosen(client)[0] == "small"


def test_a_group_without_a_price_does_not_grow(client: ExternalGroups, cloud: Priced) -> None:
    groups = list(client.refresh())
    del cloud.costs["large"]
    (small,) = client.refresh()
    assert groups[0].id == small.id == "small"
    question = GetPrices(nodes=tuple(each.node_template.node for each in groups), start=0, end=1800 * SECOND)
    error = ApiError("rpc error: code = Unknown desc = who?", reason="cloudProviderError")
    assert client.prices(question) == Prices(nodes=(2.0, error))


def test_provider_without_prices_is_reported(client: ExternalGroups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Priced, "prices")
    question = GetPrices(pods=({"metadata": {"name": "p"}},), start=0, end=SECOND)
    with pytest.raises(ProviderError, match="Not implemented"):
        Priced().prices(question)
    error = ApiError("Not implemented", reason="cloudProviderError")
    assert client.prices(question) == Prices(pods=(error,))
    assert chosen(client)[0] is None


@pytest.mark.parametrize(
    "answer",
    [Prices(), Prices(nodes=(1.0, 2.0)), Prices(pods=(1.0,)), Prices(nodes=("dear",))],
)
def test_a_provider_that_answers_something_else_is_named(
    client: ExternalGroups, cloud: Priced, monkeypatch: pytest.MonkeyPatch, answer: Prices
) -> None:
    (group, _) = client.refresh()
    monkeypatch.setattr(cloud, "prices", lambda _: answer)
    (result,) = client.prices(GetPrices(nodes=(group.node_template.node,), start=0, end=SECOND)).nodes
    assert isinstance(result, ApiError)
    assert "priced: Prices: nodes: the provider returned Prices(" in result.message


def test_a_pod_that_cannot_be_sent_has_no_price_and_the_others_have(client: ExternalGroups) -> None:
    good: dict[str, Any] = {"spec": {"containers": [{"resources": {"requests": {"cpu": "2"}}}]}}
    bad: dict[str, Any] = {"spec": {"priority": "high"}}
    result = client.prices(GetPrices(pods=(good, bad, good), start=0, end=3600 * SECOND)).pods
    assert (result[0], result[2]) == (2.0, 2.0)
    assert isinstance(result[1], ApiError)
    assert "spec.priority" in result[1].message
