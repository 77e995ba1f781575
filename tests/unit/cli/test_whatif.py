"""``kscale whatif``: the table, and when it ends with 1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unit.cli.support import kscale

EXAMPLES = Path(__file__).parents[3] / "examples"
QUESTION = (
    "whatif", EXAMPLES / "scenarios.yaml", "-q", "-f", EXAMPLES / "cluster.json.gz", "-g", EXAMPLES / "groups.yaml",
    "--now", "2026-07-01T00:00:00Z",
)  # fmt: skip


def test_rows_and_conditions() -> None:
    got = kscale(*QUESTION, "--fail-on", "nodes>+3", "--fail-on", "homeless>0", "-o", "csv")
    assert got.code == 1
    lines = [line.split(",") for line in got.stdout.splitlines()]
    assert [line[0] for line in lines[1:]] == [
        "baseline", "baseline", "by-price", "cheap-memory", "no-compute", "zone-a-lost", "smaller-requests",
    ]  # fmt: skip
    table = kscale(*QUESTION, "--fail-on", "nodes>+3", "--fail-on", "homeless>0")
    assert "nodes>+3: no-compute" in table.stdout
    assert "homeless>0: zone-a-lost" in table.stdout


def test_nothing_crossed_and_bad_usage() -> None:
    assert kscale(*QUESTION, "--fail-on", "nodes>1000").code == 0
    bad = kscale(*QUESTION, "--fail-on", "nodes")
    assert (bad.code, bad.stdout, "is no condition" in bad.stderr) == (2, "", True)


@pytest.mark.parametrize(
    ("scheduler", "text"),
    [
        ("", "scheduler.yaml: no KubeSchedulerConfiguration in it: one is expected"),
        ("[1]", "scheduler.yaml: couldn't decode scheduler config"),
    ],
)
def test_an_edit_that_fails_is_found(tmp_path: Path, scheduler: str, text: str) -> None:
    (tmp_path / "scheduler.yaml").write_text(scheduler)
    scenarios = tmp_path / "scenarios.json"
    scenarios.write_text(json.dumps([{"name": "other", "edits": [{"scheduler": "scheduler.yaml"}]}]))
    got = kscale("whatif", scenarios, *QUESTION[2:])
    assert (got.code, got.stdout) == (2, "")
    assert f"{scenarios}: scenario other: edits[0].scheduler: {tmp_path}" in got.stderr
    assert text in got.stderr


def test_a_simulation_that_nothing_reads() -> None:
    for command in (("whatif", EXAMPLES / "scenarios.yaml"), ("sweep", "--vary", "flags.expander=price")):
        dump = ("-f", EXAMPLES / "cluster.json.gz", "--simulation", EXAMPLES / "three-minutes.yaml")
        got = kscale(*command, *dump)
        assert (got.code, "no scenario has the question simulate" in got.stderr) == (2, True), got.stderr
