"""Summaries of many reconciles at once equal the summary of each."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from examples import examples
from kscale.errors import InputError
from kscale.hpa.batch.decisions import Decisions, decide
from kscale.hpa.controller.decision import ReconcileSummary, build_decision
from kscale.objects.api.autoscaling import Scale, ScaleSpec, ScaleStatus
from unit.hpa.test_decisions import NOW, World, comparable, worlds
from unit.hpa.test_decisions_repeated import calm_worlds


def _decided(world: World) -> Decisions:
    return decide(
        world.hpas, world.scales, world.pods, world.metrics, options=world.options, state=world.state, now=NOW
    )


def _agree(decisions: Decisions) -> None:
    rows = [row for row in range(len(decisions)) if row not in decisions.problems][::-1]
    assert decisions.origin is not None
    for row, summary in zip(rows, decisions.summarize(rows), strict=True):
        want = ReconcileSummary.of_run(decisions[row])
        assert comparable(summary) == comparable(want)
        hpa, best, scale = (
            decisions.origin.objects.hpas[row],
            int(decisions.best[row]),
            decisions.origin.inputs.scales[row],
        )
        decision, expected = (
            build_decision(hpa, each, best, scale=scale, options=decisions.origin.options) for each in (summary, want)
        )
        assert msgspec.json.encode(decision) == msgspec.json.encode(expected)
    for row in decisions.problems:
        with pytest.raises(type(decisions.problems[row])):
            decisions.summarize([row])


@settings(max_examples=examples(1 / 3), deadline=None)
@given(worlds())
def test_a_summary_is_that_of_the_step_machine(world: World) -> None:
    _agree(_decided(world))


@settings(max_examples=examples(1 / 3), deadline=None)
@given(calm_worlds())
def test_a_summary_is_that_of_the_step_machine_where_columns_have_all(world: World) -> None:
    result = _decided(world)
    _agree(result)
    again = decide(
        world.hpas,
        world.scales,
        world.pods,
        world.metrics,
        options=world.options,
        now=NOW + 15 * 10**9,
        previous=result,
    )
    _agree(again)


def test_only_requested_rows_are_summarized() -> None:
    hpas = [
        {
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {
                "maxReplicas": 3,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            },
        }
        for name in ("a", "b")
    ]
    scale = Scale(spec=ScaleSpec(replicas=9), status=ScaleStatus(replicas=9, selector="app=a"))
    result = decide(hpas, {"ns/a": scale, "ns/b": {"spec": {"replicas": "x"}}}, [], lambda _: None, now=NOW)
    assert result.summarize([]) == []
    (one,) = result.summarize([0])
    assert (one.desired_replicas, [event.reason for event in one.events]) == (3, ["SuccessfulRescale"])
    with pytest.raises(InputError):
        result.summarize([0, 1])
