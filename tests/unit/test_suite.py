"""The suite's own promises: what was not run is said, however it is run."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rows import each_row

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "golden" / "vectors"


def test_mutants_that_mean_the_same_are_of_lines_that_are_there() -> None:
    table = tomllib.loads((ROOT / ".ci" / "mutants.toml").read_text())
    for module, same in table.items():
        lines = [line.strip() for line in (ROOT / "src/kscale" / module).read_text().splitlines()]
        assert [was for was, _ in same if lines.count(was) != 1] == []


def test_every_kernel_is_held_against_something() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (ROOT / "tests/reference/README.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    kernels = {path.stem for path in (ROOT / "src/kscale/_native").glob("*.p[yx][xi]")} - {"_build", "_hpa"}
    assert {kernel.strip("`") for kernel, _, _ in rows} == kernels
    for kernel, slow, compared in rows:
        texts = [(ROOT / "tests" / name.strip("`")).read_text() for name in compared.split(", ")]
        assert any("@given(" in text for text in texts), kernel
        named = re.findall(r"`(reference/[^`]+)`", slow)
        assert all((ROOT / "tests" / name).exists() for name in named), kernel


@pytest.mark.parametrize("workers", ["0", "1"])
def test_golden_cases_that_are_not_run_are_counted(tmp_path: Path, workers: str) -> None:
    """Begun at the folder of all tests, as the README's command does it: the workers of xdist collect, not we."""
    with gzip.open(VECTORS / "quantity.jsonl.gz", "rt") as lines:
        case = json.loads(next(lines))
    for kind in ("quantity", "wishes"):
        with gzip.open(tmp_path / f"{kind}.jsonl.gz", "wt") as file:
            file.write(json.dumps({**case, "kind": kind}) + "\n")
    others = [path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "golden"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", workers, "tests", "--golden-dir", str(tmp_path)]
        + [f"--ignore=tests/{name}" for name in others],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "golden cases not run: 1 wishes without adapter" in done.stdout, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_each_row_is_run_and_all_that_fail_are_named() -> None:
    ran = []

    @each_row(["a", "b", "c"])
    def only_b(row: str) -> None:
        ran.append(row)
        assert row == "b"

    with pytest.raises(pytest.fail.Exception, match=r"(?s)^2 of 3 rows:\n'a'\n.*\n'c'\n"):
        only_b()
    assert ran == ["a", "b", "c"]
