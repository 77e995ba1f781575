"""The suite's own promises: what was not run is said, however it is run."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "golden" / "vectors"


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
