"""The tables on kscale: through the adapters of the recorded answers, with the reference's answer as the wanted one.

The reference's own modules hold that answer to the tables, so this holds kscale to them, and to all it says besides.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance import (
    estimate_tables,
    fit_tables,
    framework_tables,
    inter_pod_tables,
    node_tables,
    spread_tables,
    volume_tables,
)
from golden_support import adapter
from reference_golden import recorded
from rows import each_row

Json = dict[str, Any]
ROWS = [
    *node_tables.ROWS,
    *fit_tables.ROWS,
    *spread_tables.ROWS,
    *inter_pod_tables.ROWS,
    *volume_tables.ROWS,
    *framework_tables.CHECKS,
]


def check(kind: str, problem: Json, want: Json) -> None:
    module = adapter(kind)
    assert module is not None
    case = {"name": "table", "kind": kind, "tags": [], "input": problem, "want": want}
    module.check(case)


@each_row(ROWS, lambda row: row.id)
def test_predicates(row: Any) -> None:
    check("fit", row.problem, recorded.fit(row.problem))


@pytest.mark.parametrize("row", framework_tables.SEARCHES, ids=lambda row: row.id)
def test_search(row: framework_tables.Search) -> None:
    problem = {"objects": row.nodes, "pod": row.pod, "options": {"cursor": row.cursor}}
    check("fit", problem, recorded.fit(problem))


@pytest.mark.parametrize("row", [row for row in estimate_tables.ESTIMATES if not row.heavy], ids=lambda row: row.id)
@pytest.mark.parametrize("fast_path", [False, True])
def test_estimate(row: estimate_tables.Estimated, fast_path: bool) -> None:
    problem = row.problem(fast_path=fast_path)
    check("estimate", problem, recorded.estimates(problem))
