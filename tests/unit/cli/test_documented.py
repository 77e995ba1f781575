"""What the README and some pages of the docs show was run: every ``$ kscale ...`` in a console block prints what stands
below it.

After a change of the output or of the example, ``PYTHONPATH=tests python tests/unit/cli/test_documented.py`` writes the
blocks anew; read the difference before you commit it.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shlex
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from unit.cli.support import kscale

ROOT = Path(__file__).parents[3]
SHOWING = (
    "aws",
    "catalogues",
    "cli",
    "consolidate",
    "cost",
    "gallery",
    "karpenter",
    "mix",
    "node-maintenance",
    "programs-of-2018-2020",
    "simulate",
    "sweep",
    "troubleshooting",
    "tutorial",
    "tutorial-simulation",
    "whatif",
)
WRITING = ("vpa",)
"""Pages whose commands write files for the next ones: they run in order, in a folder of their own."""
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in SHOWING))
BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)


def commands(block: str) -> list[tuple[str, str]]:
    """(command line, output) of a block."""
    result = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        result.append((line, output))
    return result


def run(line: str) -> str:
    program, *arguments = shlex.split(line)
    assert program == "kscale"
    return kscale(*arguments).stdout


COMMAND_OUTPUTS = dict.fromkeys(
    each for page in PAGES for block in BLOCK.findall(page.read_text(encoding="utf-8")) for each in commands(block)
)
"""Every command with its output, once: some pages show the same."""


@pytest.mark.parametrize(("line", "output"), COMMAND_OUTPUTS, ids=[line for line, _ in COMMAND_OUTPUTS])
def test_documented_output_is_current(line: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert run(line).rstrip("\n").splitlines() == output.rstrip("\n").splitlines()


def run_in_order(text: str) -> list[tuple[str, str, str]]:
    """(command line, output on the page, output when it is run) of all commands of a page, in the current folder."""
    return [(line, output, run(line)) for block in BLOCK.findall(text) for line, output in commands(block)]


@pytest.mark.parametrize("page", WRITING)
def test_documented_commands_run_in_order(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line, output, printed in run_in_order((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")):
        assert (line, printed.rstrip("\n").splitlines()) == (line, output.rstrip("\n").splitlines())


FRONT_PAGE = re.findall(r"^\| .*\? \| `(kscale .*?)` \|", (ROOT / "docs" / "index.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("line", FRONT_PAGE)
def test_commands_of_the_front_page_answer(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the bundled example; it has no history of usage, which is generated."""
    monkeypatch.chdir(tmp_path)
    if "--history" in line:
        run("kscale generate --nodes 6 --pods 60 --lean --usage-hours 24 --to cluster.json --usage usage.parquet")
    else:
        Path("examples").symlink_to(ROOT / "examples")
    result = kscale(*shlex.split(line)[1:])
    assert (result.code in (0, 1), len(result.stdout.splitlines()) > 1) == (True, True), result.stderr


def documented_output(page: str, line: str) -> list[str]:
    """What stands below a command line whose words go to stderr."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (block,) = re.findall(rf"^( *)\$ {re.escape(line)}\n((?:\1(?!\$ |```).+\n)+)", text, re.MULTILINE)
    return [each.removeprefix(block[0]) for each in block[1].splitlines()]


def test_an_error_is_shown_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    nodes = [{"kind": "Node", "metadata": {"name": f"n{i}"}, "status": {"allocatable": amounts}} for i in range(17)]
    pods = [
        {
            "kind": "Pod",
            "metadata": {"name": f"web-{i}", "namespace": "team-a"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1O0m" if i == 3 else "100m"}}}]},
        }
        for i in range(3, 398)
    ]
    items = [{"apiVersion": "v1", **each} for each in (*nodes, *pods)]
    Path("broken.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    line = "kscale estimate -f broken.json"
    result = kscale(*shlex.split(line)[1:])
    assert result.code == 2
    assert result.stderr.splitlines() == documented_output("cli.md", line)


def test_example_equals_the_generated_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = "kscale generate --nodes 40 --pods 600 --seed 0 --lean --to cluster.json.gz --groups groups.yaml"
    result = kscale(*shlex.split(line)[1:])
    assert result.code == 0
    assert result.stderr.splitlines() == documented_output("generate.md", line)
    with gzip.open("cluster.json.gz") as created, gzip.open(ROOT / "examples" / "cluster.json.gz") as bundled:
        assert created.read() == bundled.read()
    assert Path("groups.yaml").read_text() == (ROOT / "examples" / "groups.yaml").read_text()


PROMPT = re.compile(r"^ *\$ kscale", re.MULTILINE)


def test_every_page_with_output_is_tested() -> None:
    pages = {page.stem for page in (ROOT / "docs").glob("*.md") if PROMPT.search(page.read_text())}
    assert pages == {*SHOWING, *WRITING, "generate"}


def test_demo_installs_the_extras_of_the_readme() -> None:
    """Bounds are weaker without the solver: `nox -s demo` would print others than the README says."""
    demo = (ROOT / "noxfile.py").read_text().partition("def demo(")[2].partition("\n@nox")[0]
    (extras,) = re.findall(r"session\.install\(.*\[([a-z,]+)\]", demo)
    assert {"cli", "solver"} <= set(extras.split(","))


if __name__ == "__main__":
    os.chdir(ROOT)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(
            BLOCK.sub(
                lambda match: "\n".join(f"$ {line}\n{run(line)}" for line, _ in commands(match[0])) or match[0], text
            ),
            encoding="utf-8",
        )
    for name in WRITING:
        page = ROOT / "docs" / f"{name}.md"
        text = page.read_text(encoding="utf-8")
        with TemporaryDirectory() as folder, contextlib.chdir(folder):
            for line, output, printed in run_in_order(text):
                text = text.replace(f"$ {line}\n{output}", f"$ {line}\n{printed}")
        page.write_text(text, encoding="utf-8")
