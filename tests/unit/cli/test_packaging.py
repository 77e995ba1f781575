"""The files by which other programs run kscale: the pre-commit hook and the GitHub Action."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kscale import __version__ as version
from unit.cli.support import kscale

ROOT = Path(__file__).parents[3]
TOOLS = ROOT / "docs" / "tools.md"


def test_the_hook_reads_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    program, *arguments = shlex.split(hook["entry"])
    assert program == "kscale"
    monkeypatch.chdir(tmp_path)
    good = tmp_path / "pod.yaml"
    good.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: b}\nspec: {containers: [{name: c}]}\n")
    assert kscale(*arguments, *hook["args"]).code == 0
    good.write_text(good.read_text().replace("name: c", "name: c, resources: {requests: {cpu: many}}"))
    result = kscale(*arguments, *hook["args"])
    assert result.code == 2
    assert "many" in result.stdout + result.stderr


@pytest.mark.parametrize(("limit", "status"), [("nodes>+100", 0), ("nodes>+1", 1)])
def test_the_action_gates(limit: str, status: int, tmp_path: Path) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (step,) = action["runs"]["steps"]
    inputs = {name: default.get("default", "") for name, default in action["inputs"].items()}
    inputs |= {"dump": "examples/cluster.json.gz", "groups": "examples/groups.yaml", "fail-on": limit}
    inputs["scenarios"] = "examples/scenarios.yaml"
    variables = {
        name: inputs[text.removeprefix("${{ inputs.").removesuffix(" }}")] for name, text in step["env"].items()
    }
    program = tmp_path / "kscale" / "bin" / "kscale"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kscale "$@"\n')
    program.chmod(0o755)
    _venv, _install, *rest = step["run"].splitlines()
    summary = tmp_path / "summary.md"
    environment = {**os.environ, **variables, "RUNNER_TEMP": str(tmp_path), "GITHUB_STEP_SUMMARY": str(summary)}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]  # as GitHub runs `shell: bash`
    done = subprocess.run([*shell, "\n".join(rest)], cwd=ROOT, env=environment, check=False, stdout=subprocess.PIPE)
    assert done.returncode == status
    assert done.stdout.decode() == summary.read_text()  # the log shows the crossed limit, too
    assert summary.read_text().count("\n| ") > 5


YAML_BLOCKS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TOOLS.read_text(), re.DOTALL)]


def test_the_documented_hook_is_the_one_there_is() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    (repository,) = YAML_BLOCKS[0]["repos"]
    (documented,) = repository["hooks"]
    assert documented["id"] == hook["id"]
    assert documented["args"][0] == hook["args"][0]
    assert repository["rev"] == f"v{version}"


def test_the_documented_action_has_the_inputs_that_there_are() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    documented = YAML_BLOCKS[1]["jobs"]["capacity"]["steps"][1]["with"]
    assert documented.keys() == action["inputs"].keys()
