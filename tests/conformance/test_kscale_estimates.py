"""Estimator, limiter, pending-pod and legacy tables on kscale's public functions, against the tables' own numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conformance import estimate_tables, kscale_engine, legacy_tables, pending_tables
from conformance.engines import REFERENCE

KSCALE = replace(
    REFERENCE,
    name="kscale",
    estimate=kscale_engine.estimate,
    groups=kscale_engine.groups,
    filter_schedulable=kscale_engine.filter_schedulable,
    fast_path_choice=kscale_engine.fast_path_choice,
    try_schedule=kscale_engine.try_schedule,
    legacy=kscale_engine.legacy,
)
# kscale has no clock: a table's thresholds in seconds do not apply to it.
TIMELESS = [
    row for row in estimate_tables.LIMITS if not any(callable(each) or each[1] for each in row.thresholds)
]  # fmt: skip


@pytest.mark.parametrize("row", estimate_tables.ESTIMATES, ids=lambda row: row.id)
def test_estimate(row: estimate_tables.Estimated) -> None:
    estimate_tables.check(KSCALE, row)


@pytest.mark.parametrize("row", estimate_tables.CHOICES, ids=lambda row: row.id)
def test_fast_path_choice(row: estimate_tables.Choice) -> None:
    estimate_tables.choose(KSCALE, row)


@pytest.mark.parametrize("row", TIMELESS, ids=lambda row: row.id)
def test_limiter(row: estimate_tables.Limited) -> None:
    words: list[str] = []
    answers = iter(row.want)
    for step, _ in row.steps:
        if step == "start":
            words.append("")
        else:
            words[-1] += next(answers)
    for word in words:
        assert kscale_engine.permissions([nodes for nodes, _ in row.thresholds], len(word)) == word.count("A")


@pytest.mark.parametrize("row", estimate_tables.ROOMS, ids=lambda row: row.id)
def test_threshold(row: estimate_tables.Room) -> None:
    estimate_tables.leave(KSCALE, row)


@pytest.mark.parametrize("names", estimate_tables.ORDERS, ids="".join)
def test_order(names: list[str]) -> None:
    estimate_tables.order(KSCALE, names)


@pytest.mark.parametrize("row", legacy_tables.ROWS, ids=lambda row: row.id)
def test_legacy_estimator(row: legacy_tables.Legacy) -> None:
    legacy_tables.check(KSCALE, row)


@pytest.mark.parametrize("row", pending_tables.GROUPS, ids=lambda row: row.id)
def test_groups(row: pending_tables.Grouped) -> None:
    pending_tables.group(KSCALE, row)


@pytest.mark.parametrize("row", pending_tables.SIMILARS, ids=lambda row: row.id)
def test_overflowing_controllers(row: pending_tables.Similar) -> None:
    """The cache of failed shapes changes no placement; what shows is how many controllers are beyond it."""
    assert kscale_engine.overflowing([each for step, each in row.steps if step == "add"]) == row.overflowing


@pytest.mark.parametrize("row", pending_tables.HINTED, ids=lambda row: row.id)
def test_hinting_simulator(row: pending_tables.Hinted) -> None:
    pending_tables.hint(KSCALE, row)


@pytest.mark.parametrize("row", pending_tables.FILTERED, ids=lambda row: row.id)
def test_filter_out_schedulable(row: pending_tables.Filtered) -> None:
    pending_tables.filtered(KSCALE, row)
