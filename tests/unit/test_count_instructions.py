"""The guard by instruction counts (``nox -s instructions``): what it names is there, what is above its limit fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from count_instructions import MEASURE, judged

ROOT = Path(__file__).parents[2]


def test_what_is_counted_exists(capsys: pytest.CaptureFixture[str]) -> None:
    """As pytest names it, ids in brackets included."""
    kept = json.loads(MEASURE.read_text())
    assert len(kept["benchmarks"]) >= 12
    files = sorted({str(ROOT / name.partition("::")[0]) for name in kept["benchmarks"]})
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={ROOT}"]
    assert pytest.main([*options, *files]) == pytest.ExitCode.OK
    assert sorted(set(kept["benchmarks"]) - set(capsys.readouterr().out.splitlines())) == []
    assert all(sorted(counts) == kept["benchmarks"] for counts in kept["counts"].values())


def test_above_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    measure = {"slower": 1000, "same": 1000, "faster": 1000}
    found = {"slower": 1051, "same": 1049, "faster": 10, "new": 7}
    assert judged(found, measure, 1.05) == ["slower"]
    assert capsys.readouterr().out.splitlines()[-1].split() == ["1,051", "1.051", "slower"]
