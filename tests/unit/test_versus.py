"""What stands beside upstream's benchmarks (``benchmarks/versus``) is there, and what Go prints is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from versus.__main__ import WORKLOADS, table, told, upstream_seconds

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_our_side_exists(name: str) -> None:
    file, _, test = WORKLOADS[name].ours.partition("::")
    assert f"def {test.partition('[')[0]}(" in (BENCHMARKS / file).read_text()


def test_what_go_says_is_read(tmp_path: Path) -> None:
    workload = WORKLOADS["estimate"]
    (tmp_path / "pkg" / workload.package).mkdir(parents=True)
    program = tmp_path / workload.package
    program.write_text("#!/bin/sh\nprintf 'BenchmarkX-2\\t3\\t 345678901 ns/op\\nBenchmarkX-2\\t3\\t 12.5 ns/op\\n'\n")
    program.chmod(0o755)
    assert upstream_seconds(tmp_path, tmp_path, workload) == 12.5e-9


def test_what_go_says_of_its_end_is_shown(tmp_path: Path) -> None:
    workload = WORKLOADS["estimate"]
    (tmp_path / "pkg" / workload.package).mkdir(parents=True)
    program = tmp_path / workload.package
    program.write_text("#!/bin/sh\necho FAIL; echo out of memory >&2; exit 1\n")
    program.chmod(0o755)
    with pytest.raises(SystemExit, match=r"ended with 1:\nFAIL\nout of memory"):
        upstream_seconds(tmp_path, tmp_path, workload)


def test_the_table() -> None:
    assert [told(0.3457), told(2.0), told(12e-6), told(3e-7)] == ["346 ms", "2.0 s", "12 us", "0.3 us"]
    workload = WORKLOADS["estimate"]
    line = table([(workload, 0.2, 0.01)]).splitlines()[-1]
    assert line == f"| {workload.what} | 200 ms | 10 ms | 20 | {workload.clocks} |"
