"""The predicate tables on the reference."""

from __future__ import annotations

import pytest

from conformance import fit_tables, framework_tables, inter_pod_tables, node_tables, spread_tables, volume_tables
from conformance.engines import REFERENCE
from conformance.rows import Row, check
from rows import each_row

ROWS = [*node_tables.ROWS, *fit_tables.ROWS, *spread_tables.ROWS, *inter_pod_tables.ROWS, *volume_tables.ROWS]


@each_row(ROWS, lambda row: row.id)
def test_row(row: Row) -> None:
    check(REFERENCE, row)


@pytest.mark.parametrize("row", framework_tables.CHECKS, ids=lambda row: row.id)
def test_check_predicates(row: framework_tables.Check) -> None:
    framework_tables.check(REFERENCE, row)


@pytest.mark.parametrize("row", framework_tables.SEARCHES, ids=lambda row: row.id)
def test_search(row: framework_tables.Search) -> None:
    framework_tables.search(REFERENCE, row)
