"""What stands beside upstream's benchmarks (``benchmarks/versus``) is there, and what Go prints is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from versus.__main__ import WORKLOADS, digest_of, format_time, main, overlay, table, upstream_seconds

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_our_side_exists(name: str) -> None:
    file, _, test = WORKLOADS[name].ours.partition("::")
    assert f"def {test.partition('[')[0]}(" in (BENCHMARKS / file).read_text()


def checkout(folder: Path, package: str) -> None:
    (folder / "pkg" / package).mkdir(parents=True)
    (folder / "go.mod").write_text("module example.org/autoscaler\n")


def test_go_benchmark_output_is_parsed(tmp_path: Path) -> None:
    workload = WORKLOADS["estimate"]
    checkout(tmp_path, workload.package)
    program = tmp_path / f"{workload.package}-{digest_of(tmp_path, workload)}"
    program.write_text("#!/bin/sh\nprintf 'BenchmarkX-2\\t3\\t 345678901 ns/op\\nBenchmarkX-2\\t3\\t 12.5 ns/op\\n'\n")
    program.chmod(0o755)
    assert upstream_seconds(tmp_path, tmp_path, workload) == 12.5e-9


def test_go_benchmark_failure_is_shown(tmp_path: Path) -> None:
    workload = WORKLOADS["estimate"]
    checkout(tmp_path, workload.package)
    program = tmp_path / f"{workload.package}-{digest_of(tmp_path, workload)}"
    program.write_text("#!/bin/sh\necho FAIL; echo out of memory >&2; exit 1\n")
    program.chmod(0o755)
    with pytest.raises(SystemExit, match=r"ended with 1:\nFAIL\nout of memory"):
        upstream_seconds(tmp_path, tmp_path, workload)


def git(folder: Path, *arguments: str) -> None:
    who = {f"GIT_{role}_{what}": "x" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, env=who | alone)


def test_changed_checkout_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is kept is of the commit that it was built of: Go is in a stand-in that counts."""
    tools = tmp_path / "tools"
    tools.mkdir()
    go = tools / "go"
    go.write_text(
        '#!/bin/sh\necho built >> "$BUILDS"\n'
        'printf \'#!/bin/sh\\nprintf "BenchmarkX\\\\t3\\\\t 12.5 ns/op\\\\n"\\n\' > "$5"\nchmod +x "$5"\n'
    )
    go.chmod(0o755)
    builds = tmp_path / "builds"
    monkeypatch.setenv("BUILDS", str(builds))
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    workload = WORKLOADS["estimate"]
    one, other, built = tmp_path / "one", tmp_path / "other", tmp_path / "built"
    built.mkdir()
    for folder in (one, other):
        checkout(folder, workload.package)

    def built_after(upstream: Path) -> int:
        assert upstream_seconds(upstream, built, workload) == 12.5e-9
        return len(builds.read_text().splitlines())

    assert [built_after(each) for each in (one, one, other, one, other)] == [1, 1, 2, 2, 2]
    git(one, "init", "-q")
    git(one, "add", ".")
    git(one, "commit", "-qm", "a")
    assert [built_after(one), built_after(one)] == [3, 3]
    git(one, "commit", "-qm", "b", "--allow-empty")
    assert [built_after(one), built_after(one)] == [4, 4]


def test_edited_sources_are_built_without_changing_the_checkout(tmp_path: Path) -> None:
    """An edit of a text that is not there is refused: another commit's benchmark measures something else."""
    workload = WORKLOADS["fork"]
    texts = {name: "" for name, _, _ in workload.edits}
    for name, old, _ in workload.edits:
        texts[name] += f"before {old} after\n"
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    room = tmp_path / "room"
    room.mkdir()
    (argument,) = overlay(tmp_path, workload, room)
    replaced = json.loads(Path(argument.removeprefix("-overlay=")).read_text())["Replace"]
    assert {Path(path).name for path in replaced} == set(texts)
    built = "".join(Path(path).read_text() for path in replaced.values())
    assert all(f"before {new} after" in built and old not in built for _, old, new in workload.edits)
    assert {name: (tmp_path / name).read_text() for name in texts} == texts
    assert overlay(tmp_path, WORKLOADS["estimate"], room) == []
    (tmp_path / workload.edits[0][0]).write_text("")
    with pytest.raises(SystemExit, match="the benchmark is another one"):
        overlay(tmp_path, workload, room)


def test_build_directory_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "new" / "programs"
    monkeypatch.setattr(
        sys, "argv", ["versus", "--upstream", str(tmp_path), "--rounds", "0", "--built", str(directory)]
    )
    with pytest.raises(ValueError, match="empty"):  # no round, no figure
        main()
    assert directory.is_dir()


def test_the_table() -> None:
    assert [format_time(0.3457), format_time(2.0), format_time(12e-6), format_time(3e-7)] == [
        "346 ms",
        "2.0 s",
        "12 us",
        "0.3 us",
    ]
    workload = WORKLOADS["estimate"]
    line = table([(workload, 0.2, 0.01)]).splitlines()[-1]
    assert line == f"| {workload.what} | 200 ms | 10 ms | 20 | {workload.clocks} |"
