"""The estimator tables on the reference; rows marked heavy would take it hours and are for other engines."""

from __future__ import annotations

import pytest

from conformance import estimate_tables as tables
from conformance import legacy_tables
from conformance.engines import REFERENCE
from reference.estimator import tighter


@pytest.mark.parametrize("row", [row for row in tables.ESTIMATES if not row.heavy], ids=lambda row: row.id)
def test_estimate(row: tables.Estimated) -> None:
    tables.check(REFERENCE, row)


@pytest.mark.parametrize("row", tables.CHOICES, ids=lambda row: row.id)
def test_fast_path_choice(row: tables.Choice) -> None:
    tables.choose(REFERENCE, row)


@pytest.mark.parametrize("row", tables.LIMITS, ids=lambda row: row.id)
def test_limiter(row: tables.Limited) -> None:
    tables.limit(REFERENCE, row)


@pytest.mark.parametrize("row", tables.ROOMS, ids=lambda row: row.id)
def test_threshold(row: tables.Room) -> None:
    tables.leave(REFERENCE, row)


@pytest.mark.parametrize("names", tables.ORDERS, ids="".join)
def test_order(names: list[str]) -> None:
    tables.order(REFERENCE, names)


@pytest.mark.parametrize(
    ("base", "target", "want"),
    [(-10, 10, -1), (-10, 0, -1), (-10, -10, -1), (0, 0, 0), (0, 10, 10), (5, 10, 5)],
)
def test_the_tighter_of_two_limits(base: float, target: float, want: float) -> None:
    assert tighter(base, target) == want


@pytest.mark.parametrize("row", legacy_tables.ROWS, ids=lambda row: row.id)
def test_legacy_estimator(row: legacy_tables.Legacy) -> None:
    legacy_tables.check(REFERENCE, row)
