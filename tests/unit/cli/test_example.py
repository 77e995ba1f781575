"""``kscale example``: what the package brings is what the project's folder has, and nothing is written over."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.cli.support import kscale

EXAMPLES = Path(__file__).parents[3] / "examples"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_the_files_of_the_project_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = kscale("example")
    assert run.code == 0
    assert contents(tmp_path / "examples") == contents(EXAMPLES)
    files = len(contents(EXAMPLES))
    summary, next_one = run.stderr.rstrip().split(" Next: ")
    assert summary == f"examples: {files} files."
    answer = kscale(*next_one.removeprefix("kscale ").split(), "-q")
    assert answer.code == 1  # some pods fit nowhere
    assert "60 pods pending: 7 fit on nodes that exist, 38 need new nodes, 15 fit nowhere." in answer.stdout


def test_an_empty_directory_is_filled_without_a_word(tmp_path: Path) -> None:
    folder = tmp_path / "of" / "mine"
    folder.mkdir(parents=True)
    run = kscale("example", folder, "-q")
    assert (run.code, run.stdout, run.stderr) == (0, "", "")
    assert contents(folder) == contents(EXAMPLES)


def test_nothing_is_written_over(tmp_path: Path) -> None:
    mine = tmp_path / "groups.yaml"
    mine.write_text("mine")
    for existing in (tmp_path, mine):
        run = kscale("example", existing)
        assert run.code == 2
        assert f"{existing}: exists already, and no file is overwritten" in run.stderr
    assert contents(tmp_path) == {"groups.yaml": b"mine"}


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    run = kscale("example", tmp_path / "file" / "below")
    assert run.code == 2
    assert "file/below" in run.stderr
