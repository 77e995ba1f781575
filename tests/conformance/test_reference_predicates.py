"""The predicate tables on the reference."""

from __future__ import annotations

import pytest

from conformance import fit_tables, inter_pod_tables, node_tables, spread_tables
from conformance.engines import REFERENCE
from conformance.rows import Row, check

ROWS = [*node_tables.ROWS, *fit_tables.ROWS, *spread_tables.ROWS, *inter_pod_tables.ROWS]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_row(row: Row) -> None:
    check(REFERENCE, row)
