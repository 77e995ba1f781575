"""What commands print: a full disk, a reader that has gone and Ctrl-C in the middle end each command with its status.

``test_written_files`` does the same for the files that commands write.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kscale
from kscale.cli import output, registry
from kscale.cli.app import run
from kscale.views import View, as_cell
from unit.cli.test_hostile import GROUPS, NODE, POD, USAGE, closed_pipe, closed_terminal, listed
from unit.cli.test_mix import CATALOGUE
from unit.cli.test_replay_hpa import HPA
from unit.cli.test_vpa import objects

EXAMPLES = Path(kscale.__file__).parent / "examples"
DUMP = "-f dump.json"
NOW = "--now 2026-01-05T12:00:00Z"
WORDS: dict[str, str] = {
    "hpa": f"{DUMP} {NOW}",
    "explain hpa": f"shop/web {DUMP} {NOW}",
    "replay hpa": "load.csv -f hpa.yaml --request 500m",
    "replay decisions": "short.yaml decisions.jsonl",
    "recommend": f"{DUMP} {NOW} --history usage.csv",
    "vpa": f"{DUMP} {NOW}",
    "simulate": "short.yaml",
    "compare": "short.yaml",
    "estimate": f"{DUMP} -g groups.json",
    "mix": f"{DUMP} --catalogue types.csv --ignore-existing --instance-type m5*",
    "whatif": f"scenarios.yaml {DUMP} -g groups.json",
    "sweep": f"scenarios.yaml {DUMP} -g groups.json --jobs 1",
    "cost": f"{DUMP} -g groups.json",
    "explain": f"shop/web {DUMP}",
    "fit": f"{DUMP} --pod web.yaml",
    "scale-up": f"{DUMP} -g groups.json",
    "scale-down": f"{DUMP} -g groups.json",
    "headroom": DUMP,
    "nodes": f"{DUMP} {NOW}",
    "top": f"--once {DUMP} {NOW}",
    "diff": "dump.json dump.json",
    "consolidate": f"{DUMP} -g groups.json {NOW}",
    "drain": f"n {DUMP} {NOW}",
    "preempt": f"shop/web {DUMP}",
    "manifests cluster-autoscaler": "--image kscale --cloud-provider kwok",
    "manifests horizontal": "--image kscale",
    "manifests vpa-crds": "",
    "manifests vpa-recommender": "--image kscale",
    "manifests vpa-updater": "--image kscale",
    "manifests vpa-admission": "--image kscale",
    "manifests reader": "",
    "catalogue import": "types.csv --name own",
    "catalogue list": "",
    "catalogue show": "types.csv",
    "validate": "-f dump.json",
    "generate": "--nodes 2 --pods 2 --to -",
    "schema": "",
    **{
        f"run {program}": "--world simulated --scenario short.yaml"
        for program in ("cluster-autoscaler", "horizontal", "vpa-recommender", "vpa-updater", "vpa-admission")
    },
}
"""The arguments of every command that prints an answer; programs print one about a simulated cluster."""
OTHERS = {
    "example": "writes files only",
    "serve expander": "runs until it is stopped, and prints nothing on stdout",
}
"""Commands that print no answer, and why."""


def test_every_command_is_here() -> None:
    """A new one is added to WORDS, or to OTHERS with a reason."""
    assert {entry.name for entry in registry.COMMANDS} == WORDS.keys() | OTHERS.keys()
    assert WORDS.keys() & OTHERS.keys() == set()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("printed")
    deployment = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": POD["spec"],
        }},
    }  # fmt: skip
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    hpa = {
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1, "maxReplicas": 5, "metrics": [metric],
        },
    }  # fmt: skip
    (folder / "dump.json").write_text(listed(NODE, POD, deployment, hpa, *objects()))
    (folder / "web.yaml").write_text(json.dumps(POD))
    (folder / "groups.json").write_text(json.dumps([{**GROUPS[0], "price": 0.5, "nodes": ["n"]}]))
    (folder / "scenarios.yaml").write_text("scenarios:\n- name: none\n  edits: []\n")
    (folder / "usage.csv").write_text(USAGE)
    (folder / "types.csv").write_text(CATALOGUE)
    (folder / "hpa.yaml").write_text(HPA.replace("NAME", "web"))
    (folder / "load.csv").write_text("time,value\n" + "\n".join(f"{i * 30},{1 + i % 5}" for i in range(20)))
    text = (EXAMPLES / "compare-then-and-now.yaml").read_text()
    (folder / "short.yaml").write_text(text.replace("horizon: 40m", "horizon: 1m"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert kscale_with(patch, "simulate short.yaml --to simulated", os.open(os.devnull, os.O_WRONLY))[0] == 0
    (folder / "simulated" / "decisions.jsonl").rename(folder / "decisions.jsonl")
    return folder


class Interrupted(io.FileIO):
    """A stream in which Ctrl-C comes when half of the first piece is written.

    ``half``: the bytes that were written until then, by the newest stream.
    """

    half = 0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        Interrupted.half = 0

    def write(self, data: Any) -> int:
        if Interrupted.half:
            return super().write(data)
        Interrupted.half = super().write(bytes(data)[: len(data) // 2])
        signal.raise_signal(signal.SIGINT)
        return len(data)


def kscale_with(
    patch: pytest.MonkeyPatch, words: str, descriptor: int, stream: type[io.FileIO] = io.FileIO
) -> tuple[int, str]:
    """Run the command line with stdout at a file descriptor; return its status and what it says on stderr."""
    stderr = io.StringIO()
    with stream(descriptor, "w") as raw:
        patch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8"))
        patch.setattr(sys, "stderr", stderr)
        patch.setattr(sys, "argv", ["kscale", "-q", *words.split()])
        with pytest.raises(SystemExit) as ended:
            run()
        sys.stdout.flush()  # what the interpreter does at its end
    assert isinstance(ended.value.code, int)
    return ended.value.code, stderr.getvalue()


def full_disk() -> int:
    """Return a file of a disk without space: a write is ENOSPC."""
    return os.open("/dev/full", os.O_WRONLY)


def file() -> int:
    return os.open("stdout", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)


FAULTS: dict[str, tuple[Callable[[], int], type[io.FileIO], int, str]] = {
    "full disk": (full_disk, io.FileIO, 2, "error: stdout: No space left on device\n"),
    "gone reader": (closed_pipe, io.FileIO, 141, ""),
    "gone terminal": (closed_terminal, io.FileIO, 2, "error: stdout: Input/output error\n"),
    "SIGINT": (file, Interrupted, 130, "error: interrupted\n"),
}
"""Each: what stdout is, how it is written, the exit status, and what stderr says."""


WITH_UNITS = {"CURRENT", "TARGET"}
"""Columns of amounts of different units: ``50%``, ``200m a pod``."""


TABULAR = [name for name in WORDS if name != "catalogue show" and not name.startswith(("manifests ", "run "))]
"""Commands whose CSV has numbers. ``catalogue show`` prints Kubernetes' quantities, to be read again."""


@pytest.mark.parametrize("name", TABULAR)
def test_right_aligned_columns_are_bare_numbers_in_csv(
    inputs: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Texts such as ``37,335`` or ``4..48`` cannot be read as numbers by a spreadsheet."""
    monkeypatch.chdir(inputs)
    monkeypatch.setenv("XDG_DATA_HOME", str(inputs))
    views: list[View] = []
    monkeypatch.setattr(output, "_csv", lambda view: views.append(view) or "")
    kscale_with(monkeypatch, f"{name} {WORDS[name]} -o csv", os.open(os.devnull, os.O_WRONLY))
    texts = [
        (column.title, value)
        for view in views
        for table in view.tables[:1]
        for row in table.rows
        for column, cell in zip(table.columns, row, strict=True)
        if column.align == "right" and column.title not in WITH_UNITS
        for value in output._values(as_cell(cell))
        if value != "" and not isinstance(value, int | float)
    ]
    assert not texts


@pytest.mark.parametrize("name", WORDS)
def test_stdout_that_takes_no_answer(inputs: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Every fault, one after the other, as each import of a command takes longer than its answer."""
    monkeypatch.chdir(inputs)
    monkeypatch.setenv("XDG_DATA_HOME", str(inputs))
    ended = {
        fault: kscale_with(monkeypatch, f"{name} {WORDS[name]}", descriptor(), stream)
        for fault, (descriptor, stream, _, _) in FAULTS.items()
    }
    assert ended == {fault: (status, message) for fault, (_, _, status, message) in FAULTS.items()}
    # The rest is discarded: a reader that has stopped would not take it.
    assert (inputs / "stdout").stat().st_size == Interrupted.half > 0
