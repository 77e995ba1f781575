"""The guard by instruction counts (``nox -s instructions``): what it names is there, what is above its limit fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from count_instructions import MEASURE, company, judged, select_counts

ROOT = Path(__file__).parents[2]


def test_counted_benchmarks_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """As pytest names it, ids in brackets included."""
    stored = json.loads(MEASURE.read_text())
    assert len(stored["benchmarks"]) >= 12
    files = sorted({str(ROOT / name.partition("::")[0]) for name in stored["benchmarks"]})
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={ROOT}"]
    assert pytest.main([*options, *files]) == pytest.ExitCode.OK
    assert sorted(set(stored["benchmarks"]) - set(capsys.readouterr().out.splitlines())) == []
    assert all(sorted(counts) == stored["benchmarks"] for counts in stored["counts"].values())


def test_above_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    measure = {"slower": 1000, "same": 1000, "faster": 1000}
    result = {"slower": 1051, "same": 1049, "faster": 10, "new": 7}
    assert judged(result, measure, 1.05) == ["slower"]
    assert capsys.readouterr().out.splitlines()[-1].split() == ["1,051", "1.051", "slower"]


def test_one_is_counted_beside_all() -> None:
    """A count by itself is of colder code: it is above what the same code counts after the others."""
    names = ["a.py::one", "b.py::two[x]", "b.py::two[y]"]
    assert company(names, ["b.py::two[y]"]) == names
    assert company(names, ["b.py::other"]) == ["a.py::one", "b.py::other", "b.py::two[x]", "b.py::two[y]"]


def test_only_named_counts_are_selected() -> None:
    every = {"a.py::one": 1, "a.py::one_more": 2, "b.py::two[x]": 3, "b.py::two[y]": 4}
    assert select_counts(every, ["a.py::one"]) == {"a.py::one": 1}
    assert select_counts(every, ["b.py::two"]) == {"b.py::two[x]": 3, "b.py::two[y]": 4}
    assert select_counts(every, ["b.py"]) == {"b.py::two[x]": 3, "b.py::two[y]": 4}
