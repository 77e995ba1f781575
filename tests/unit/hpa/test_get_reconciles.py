"""Results of many decisions at once equal the result of each."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from examples import examples
from kscale.effects import Action
from kscale.effects.progress import LEGAL_OUTCOMES
from kscale.errors import InputError
from kscale.hpa.batch.decisions import Decisions, decide
from kscale.objects.api.autoscaling import Scale, ScaleSpec, ScaleStatus
from unit.hpa.test_decisions import NOW, World, worlds
from unit.hpa.test_decisions_repeated import calm_worlds


def _decided(world: World) -> Decisions:
    return decide(
        world.hpas, world.scales, world.pods, world.metrics, options=world.options, state=world.state, now=NOW
    )


def _done(actions: list[Action]) -> list[Action]:
    """What changes something: what was asked for the decisions is not told."""
    return [each for each in actions if not LEGAL_OUTCOMES[type(each)].reads]


def _agree(found: Decisions) -> None:
    rows = [row for row in range(len(found)) if row not in found.problems][::-1]
    for row, told in zip(rows, found.get_reconciles(rows), strict=True):
        whole = found[row]
        assert repr(told.value) == repr(whole.value)  # a ratio may be NaN, which equals nothing
        assert list(told.events) == list(whole.events)
        assert _done(told.actions) == _done(whole.actions)
    for row in found.problems:
        with pytest.raises(type(found.problems[row])):
            found.get_reconciles([row])


@settings(max_examples=examples(1 / 3), deadline=None)
@given(worlds())
def test_told_is_what_each_tells(world: World) -> None:
    _agree(_decided(world))


@settings(max_examples=examples(1 / 3), deadline=None)
@given(calm_worlds())
def test_told_is_what_each_tells_where_columns_say_all(world: World) -> None:
    found = _decided(world)
    _agree(found)
    again = decide(
        world.hpas, world.scales, world.pods, world.metrics, options=world.options, now=NOW + 15 * 10**9, previous=found
    )
    _agree(again)


def test_only_those_asked_for_are_told() -> None:
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
    found = decide(hpas, {"ns/a": scale, "ns/b": {"spec": {"replicas": "x"}}}, [], lambda _: None, now=NOW)
    assert found.get_reconciles([]) == []
    (one,) = found.get_reconciles([0])
    assert (one.value.desired_replicas, [event.reason for event in one.events]) == (3, ["SuccessfulRescale"])
    with pytest.raises(InputError):
        found.get_reconciles([0, 1])
