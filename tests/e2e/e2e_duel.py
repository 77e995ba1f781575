"""The duel: each case once with kscale, held against what was recorded of upstream's binary (``docs/duel.md``)."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.duel.case import CASES, read_case
from e2e.duel.compare import compared
from e2e.duel.facts import read_logs
from e2e.duel.run import run_case

RECORDED = Path(__file__).with_name("duel") / "recorded"


@pytest.mark.parametrize("path", sorted(CASES.iterdir()), ids=lambda path: path.stem)
def test_the_same_as_upstream(path: Path, tmp_path: Path) -> None:
    case = read_case(path)
    result = compared(case, run_case(case, tmp_path), read_logs(RECORDED / f"{path.stem}.jsonl.gz"))
    assert result.differences == [], "\n".join(result.lines())
    assert result.same
