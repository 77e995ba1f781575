"""The table of legal answers: every action has its line, and what is no answer has a name."""

from typing import Any, get_args

import pytest

from kscale.effects import (
    LEGAL_OUTCOMES,
    Action,
    ApiError,
    CreatedGroups,
    CreateGroup,
    Emit,
    Get,
    GetMetric,
    GetPrices,
    GetScale,
    HasInstances,
    IllegalOutcomeError,
    InBackground,
    IncreaseSize,
    List,
    Outcome,
    Patch,
    Prices,
    Progress,
    PutScale,
    QueryPrometheus,
    Ranking,
    RankOptions,
    ReadStores,
    Refresh,
    Together,
    Wait,
    check_outcome,
)
from kscale.objects.api.apps import ReplicaSet
from kscale.objects.api.autoscaling import Scale
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.meta import KubeObject
from kscale.objects.api.metrics import ExternalMetricValueList, MetricValue, MetricValueList, PodMetricsList
from kscale.objects.machine_groups import Machine
from kscale.objects.nodegroup import NodeGroup


def test_every_action_has_a_line_and_no_line_is_left_over() -> None:
    assert set(LEGAL_OUTCOMES) == set(get_args(Action))


COST = GetPrices(nodes=(Node(),), pods=({},), start=0, end=1)
CPU = GetMetric(api="resource", namespace="shop")
MACHINES = List(kind="Machine", api_version="machines.example.com/v1", watched=False, read_as="cluster.x-k8s.io")
LEGAL: list[tuple[Any, Any]] = [
    (Refresh(), None),
    (Refresh(), [NodeGroup(id="a")]),
    (HasInstances(("a", "b")), {"a": True}),
    (COST, Prices(nodes=(0.5,), pods=(ApiError("no"),))),
    (IncreaseSize(group="a", delta=1), None),
    (CreateGroup(group="a"), None),
    (CreateGroup(group="a"), CreatedGroups(main=NodeGroup(id="a"))),
    (Get(kind="Node", name="n"), Node()),
    (Get(kind="ReplicaSet", name="n"), ReplicaSet()),
    (Get(kind="Widget", name="n"), KubeObject()),
    (List(kind="Pod"), []),
    (List(kind="Pod"), [Pod()]),
    (List(kind="Pod"), (Pod(),)),
    (MACHINES, [Machine()]),
    (Patch(kind="Node", name="n", patch={}), None),
    (Patch(kind="Node", name="n", patch={}), "17"),
    (GetScale(namespace="shop", resource="deployments.apps", name="web"), Scale()),
    (PutScale(namespace="shop", resource="deployments.apps", scale=Scale(), replicas=2), None),
    (CPU, PodMetricsList()),
    (GetMetric(api="custom", namespace="shop", kind="Pod"), MetricValueList()),
    (GetMetric(api="custom", namespace="shop", kind="Service", name="web"), MetricValue()),
    (GetMetric(api="custom", namespace="shop", kind="Service", name="web"), MetricValueList()),
    (GetMetric(api="external", namespace="shop"), ExternalMetricValueList()),
    (QueryPrometheus(query="up", end=0), b"{}"),
    (ReadStores(len), 3),
    (ReadStores(len), None),
    (RankOptions(options=(), nodes={}), Ranking()),
    (Wait(5), None),
    (Together(machines=()), []),
    (Emit(()), None),
]


@pytest.mark.parametrize(("action", "value"), LEGAL)
def test_legal_answers_pass(action: Action, value: Any) -> None:
    outcome = Outcome(at=7, value=value)
    assert check_outcome(action, outcome) is outcome


@pytest.mark.parametrize(
    ("action", "value"),
    [
        (Refresh(), NodeGroup(id="a")),
        (HasInstances(("a",)), {"a": 1}),
        (HasInstances(("a",)), {"b": True}),
        (COST, Prices(nodes=(0.5,))),
        (COST, Prices(nodes=("0.5",), pods=(1.0,))),
        (COST, None),
        (IncreaseSize(group="a", delta=1), "refused"),
        (CreateGroup(group="a"), NodeGroup(id="a")),
        (Get(kind="Node", name="n"), Pod()),
        (Get(kind="Node", name="n"), None),
        (Get(kind="Node", name="n"), {"metadata": {"name": "n"}}),
        (List(kind="Pod"), [Pod(), Node()]),
        (List(kind="Pod"), None),
        (MACHINES, [Node()]),
        (Patch(kind="Node", name="n", patch={}), 17),
        (GetScale(namespace="shop", resource="deployments.apps", name="web"), None),
        (CPU, MetricValueList()),
        (GetMetric(api="custom", namespace="shop", kind="Service"), MetricValue()),
        (RankOptions(options=(), nodes={}), None),
        (Wait(5), 5),
        (Together(machines=()), None),
        (Together(machines=()), [1]),
        (Emit(()), "said"),
    ],
)
def test_illegal_outcome_names_the_action(action: Action, value: Any) -> None:
    with pytest.raises(IllegalOutcomeError, match=f"^{type(action).__name__}: .* is due, not ") as caught:
        check_outcome(action, Outcome(at=7, value=value))
    assert caught.value.action is action


@pytest.mark.parametrize(
    ("action", "outcome", "message"),
    [
        (Wait(5), None, "an Outcome is due, not NoneType"),
        (Wait(5), Outcome(at=1.5), "not float"),
        (Wait(5), Outcome(at=1, error="no"), "an ApiError, not str"),
        (Get(kind="Pod", name="p"), Outcome(at=1, value=Pod(), error=ApiError("no")), "without a value"),
        (Emit(()), Outcome(at=1, error=ApiError("no")), "cannot be refused"),
        (InBackground(lambda _: iter(())), Outcome(at=1, error=ApiError("no")), "cannot be refused"),
        ("refresh", Outcome(at=1), "no such action"),
    ],
)
def test_outcomes_that_cannot_be_are_named(action: Any, outcome: Any, message: str) -> None:
    with pytest.raises(IllegalOutcomeError, match=message):
        check_outcome(action, outcome)


def test_an_error_may_stand_for_the_answer_of_a_question() -> None:
    not_found = Outcome(at=1, error=ApiError("gone", code=404, reason="NotFound"))
    assert check_outcome(Get(kind="Pod", name="p"), not_found).error == not_found.error


def test_a_machine_holds_answers_against_the_table_whoever_runs_it() -> None:
    steps = Progress(0).act(Get(kind="Node", name="n"))
    next(steps)
    with pytest.raises(IllegalOutcomeError, match="Get: an object of the kind is due, not Pod"):
        steps.send(Outcome(at=0, value=Pod()))
