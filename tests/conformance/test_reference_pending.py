"""The tables about pending pods on the reference."""

from __future__ import annotations

import pytest

from conformance import pending_tables as tables
from conformance.engines import REFERENCE


@pytest.mark.parametrize("row", tables.GROUPS, ids=lambda row: row.id)
def test_groups(row: tables.Grouped) -> None:
    tables.group(REFERENCE, row)


@pytest.mark.parametrize("row", tables.SIMILARS, ids=lambda row: row.id)
def test_similar_pods(row: tables.Similar) -> None:
    tables.similar(REFERENCE, row)


@pytest.mark.parametrize("row", tables.HINTED, ids=lambda row: row.id)
def test_hinting_simulator(row: tables.Hinted) -> None:
    tables.hint(REFERENCE, row)


@pytest.mark.parametrize("row", tables.FILTERED, ids=lambda row: row.id)
def test_filter_out_schedulable(row: tables.Filtered) -> None:
    tables.filtered(REFERENCE, row)
