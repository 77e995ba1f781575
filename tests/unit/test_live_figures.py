"""The runs that take the figures of the live programs again."""

from __future__ import annotations

import re
import shlex
import sys
from itertools import pairwise
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import live_figures
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("run", live_figures.RUNS)
def test_a_run_is_one_that_its_script_takes(run: str) -> None:
    script, *options = shlex.split(run)
    text = (BENCHMARKS / script).read_text()
    known = set(re.findall(r'add_argument\("(--[a-z-]+)"', text))
    assert {each for each in options if each.startswith("--")} | {"--upstream"} <= known
    for name in (after for option, after in pairwise(options) if option == "--program"):
        assert f'"{name}": (' in text


def test_upstream_is_beside_where_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    monkeypatch.setattr(sys, "argv", ["live", "--upstream", "up", "--only", "live_scale"])
    monkeypatch.setattr(
        live_figures.subprocess, "run", lambda command, **_: ran.append(command[1:]) or CompletedProcess(command, 0)
    )
    live_figures.main()
    commands: list[list[Any]] = [[Path(script).name, *options] for script, *options in ran]
    assert commands[0] == ["live_scale.py", "--nodes", "5000", "--pods", "60000", "--upstream", "up"]
    assert all("--upstream" not in options for options in commands[1:])
    assert len(commands) == 3


def test_unknown_run_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["live", "--only", "nothing"])
    with pytest.raises(SystemExit):
        live_figures.main()
    assert "no run has 'nothing'; there are: webhook_load.py" in capsys.readouterr().err
