"""Pods that compete for devices, on kscale and on the reference."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings

from agreement.test_scheduling import agree
from examples import examples
from reference_golden import recorded
from strategies import devices

Json = dict[str, Any]
fewer = settings(max_examples=examples(1 / 3))


@fewer
@given(devices.filter_problems())
def test_place(problem: Json) -> None:
    agree("filter-schedulable", problem, recorded.filter_rounds)


@fewer
@given(devices.estimate_problems())
def test_estimate(problem: Json) -> None:
    agree("estimate", problem, recorded.estimates)


@given(devices.filter_problems(countable=False))
def test_place_where_counting_is_not_enough(problem: Json) -> None:
    agree("filter-schedulable", problem, recorded.filter_rounds)


@given(devices.estimate_problems(countable=False))
def test_estimate_where_counting_is_not_enough(problem: Json) -> None:
    agree("estimate", problem, recorded.estimates)
