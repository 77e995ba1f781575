"""Files that commands write: a full disk or a signal leaves the old or the new one, and none beside it."""

from __future__ import annotations

import ast
import json
import re
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from typer.models import TyperPath

import kscale
from kscale.cli import registry
from kscale.cli.app import command_of
from unit.cli.test_hostile import GROUPS, NODE, POD, USAGE, listed
from unit.cli.test_mix import CATALOGUE
from unit.cli.test_replay_hpa import HPA
from unit.cli.writing import FULL, Fault, run

SOURCE = Path(kscale.__file__).parent
EXAMPLES = SOURCE / "examples"
READ = {
    "--aws-instance-types", "--catalogue", "--client-ca-file", "--cloud-config", "--filename", "--groups",
    "--grpc-expander-cert", "--history", "--kubeconfig", "--metrics", "--pod", "--price-list", "--priority-config",
    "--prometheus-bearer-token-file", "--replicas", "--scenario", "--scheduler-config-file", "--simulation", "--state",
    "--tls-cert-file", "--tls-private-key", "--tls-private-key-file", "catalogue", "decisions", "file", "--prices",
    "scenario", "scenarios",
}  # fmt: skip
"""Options and arguments with files that a command reads."""


@dataclass(frozen=True)
class Writing:
    """A command with one of its options (or arguments) that name what it writes: ``old`` is there before."""

    words: str
    option: str
    old: tuple[str, ...] = ("out",)


MIX = "mix -q -f dump.json --catalogue types.csv --ignore-existing --instance-type m5*"
KUSTOMIZE = ("out/kscale.yaml", "out/kustomization.yaml")
IMAGE = " --image kscale"
GENERATE = "generate -q --nodes 4 --pods 20 --usage-hours 1"
WRITING: tuple[Writing, ...] = (
    Writing("scale-up -q -f dump.json -g groups.json --save-state out", "--save-state"),
    Writing("scale-down -q -f dump.json -g groups.json --save-state out", "--save-state"),
    Writing(f"{GENERATE} --to out", "--to"),
    Writing(f"{GENERATE} --to out.gz", "--to", ("out.gz",)),
    Writing(f"{GENERATE} --to - --groups out", "--groups"),
    Writing(f"{GENERATE} --to - --usage out.csv", "--usage", ("out.csv",)),
    Writing(f"{GENERATE} --to - --usage out.parquet", "--usage", ("out.parquet",)),
    Writing("recommend -q -f dump.json --history usage.csv -o json --output-file out", "--output-file"),
    Writing("recommend -q -f dump.json --history usage.csv -o csv --output-file out", "--output-file"),
    Writing(f"{MIX} --to-groups out", "--to-groups"),
    Writing(f"{MIX} --to-nodepool out", "--to-nodepool"),
    Writing("replay hpa load.csv -f fast.yaml --request 500m --plot out.svg", "--plot", ("out.svg",)),
    Writing("replay hpa load.csv -f fast.yaml --request 500m --plot out.png", "--plot", ("out.png",)),
    Writing(
        f"simulate {EXAMPLES}/three-minutes.yaml -q --to out", "--to",
        ("out/report.json", "out/decisions.jsonl", "out/timeline.parquet", "out/workloads.parquet"),
    ),
    Writing("example -q out", "directory", ()),
    Writing("schema -q --directory out", "--directory", ("out/EstimateReport.json",)),
    Writing("catalogue import types.csv --name own", "--name", ("kscale/catalogues/own.csv",)),
    *(
        Writing(
            f"manifests {program} -q --directory out{more}", "--directory", KUSTOMIZE
        )
        for program, more in {
            "cluster-autoscaler": f"{IMAGE} --cloud-provider kwok", "horizontal": IMAGE, "vpa-recommender": IMAGE,
            "vpa-updater": IMAGE, "vpa-admission": IMAGE, "vpa-crds": "", "reader": "",
        }.items()
    ),
)  # fmt: skip
BASE = b"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- kscale.yaml\n"
"""Objects are only written beside the kustomization that the command writes."""
SIZES = ("run cluster-autoscaler", "--static-sizes")
"""Written by a program that runs: ``test_sizes_of_static_groups_on_a_full_disk`` of the node groups tests it."""
FAULTS = {
    "full disk": Fault(FULL),
    "SIGINT in the middle": Fault(signal.SIGINT),
    "SIGTERM before the rename": Fault(signal.SIGTERM, half=False),
    "SIGKILL in the middle": Fault(signal.SIGKILL),
}
MORE_FAULTS = {
    "SIGTERM in the middle": Fault(signal.SIGTERM),
    "SIGHUP in the middle": Fault(signal.SIGHUP),
    "SIGINT before the rename": Fault(signal.SIGINT, half=False),
    "SIGKILL before the rename": Fault(signal.SIGKILL, half=False),
}
"""For one command: the functions of kscale.files are the same for all."""
CASES = {
    **{f"{writing.words}: {name}": (writing, fault) for writing in WRITING for name, fault in FAULTS.items()},
    **{f"{WRITING[0].words}: {name}": (WRITING[0], fault) for name, fault in MORE_FAULTS.items()},
}
STATUS = {FULL: 2, signal.SIGINT: 130}
"""By fault; a signal that is not here ends the process, which shells show as 128 + its number."""


def command(writing: Writing) -> str:
    """Return the words of the command."""
    words = writing.words.split()
    two = " ".join(words[:2])
    return two if registry.find(two) is not None else words[0]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    pods = [{**POD, "metadata": {"name": f"p{i}", "namespace": "shop"}} for i in range(3)]
    (folder / "dump.json").write_text(listed(*pods, NODE))
    (folder / "groups.json").write_text(json.dumps(GROUPS))
    (folder / "usage.csv").write_text(USAGE)
    (folder / "types.csv").write_text(CATALOGUE)
    (folder / "fast.yaml").write_text(HPA.replace("NAME", "fast"))
    (folder / "load.csv").write_text("time,value\n" + "\n".join(f"{i * 30},{1 + i % 5}" for i in range(20)))
    return folder


def prepared(inputs: Path, folder: Path, writing: Writing) -> Path:
    """Return a new folder with the inputs and with old files where the command writes."""
    shutil.copytree(inputs, folder)
    for name in writing.old:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(BASE if name.endswith("kustomization.yaml") else b"old")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def complete(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Complete:
    return Complete(inputs, tmp_path_factory.mktemp("complete"))


class Complete:
    """Runs of commands without a fault: what each writes, and which functions do."""

    def __init__(self, inputs: Path, folder: Path) -> None:
        self._inputs, self._folder = inputs, folder
        self._runs: dict[Writing, tuple[dict[str, bytes], tuple[str, ...]]] = {}

    def __getitem__(self, writing: Writing) -> tuple[dict[str, bytes], tuple[str, ...]]:
        if writing not in self._runs:
            folder = prepared(self._inputs, self._folder / str(len(self._runs)), writing)
            ended = run(tuple(writing.words.split()), folder)
            assert ended.status in (0, 1), ended.stderr
            self._runs[writing] = (contents(folder), ended.writers)
        return self._runs[writing]


@pytest.mark.parametrize(("writing", "fault"), CASES.values(), ids=CASES)
def test_old_or_new_and_never_half(
    inputs: Path, complete: Complete, tmp_path: Path, writing: Writing, fault: Fault
) -> None:
    """In the last file that the command writes."""
    new, writers = complete[writing]
    nth = len(writers) - 1
    folder = prepared(inputs, tmp_path / "folder", writing)
    old = contents(folder)
    ended = run(tuple(writing.words.split()), folder, replace(fault, nth=nth))
    assert ended.status == STATUS.get(fault.signal, -fault.signal), ended.stderr
    assert "Traceback" not in ended.stderr
    assert "bug in kscale" not in ended.stderr
    now = contents(folder)
    temporary = [name for name in now if name.endswith(".tmp")]
    assert len(temporary) == (fault.signal == signal.SIGKILL)
    for name in temporary:
        del now[name]
    assert {name for name, content in now.items() if content not in (old.get(name), new[name])} == set()
    assert old.keys() <= now.keys()
    written = {name for name, content in now.items() if content != old.get(name)}
    assert len(written) <= nth
    if fault.signal == FULL:
        assert "File too large" in ended.stderr
        assert [name for name in new.keys() - old.keys() | set(writing.old) if f"{name}: " in ended.stderr] != []


def files_of(name: str) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a command that name files."""
    entry = registry.find(name)
    for each in command_of(entry).params:
        names_a_file = re.search(r"FILE|DIR", str(each.metavar)) is not None
        if isinstance(each.type, TyperPath) or names_a_file:
            yield name, max(each.opts, key=len)


def test_every_option_that_names_a_file_is_here() -> None:
    """A new one is added to READ, or to WRITING with a command line."""
    written = {(command(each), each.option) for each in WRITING} | {SIZES}
    options = {each for entry in registry.COMMANDS for each in files_of(entry.name)}
    assert {each for each in options - written if each[1] not in READ} == set()
    assert {name for name in READ if name not in {option for _, option in options}} == set()


def writers_in(path: Path) -> Iterator[str]:
    """Yield the functions of a module that write files."""
    text = path.read_text(encoding="utf-8")
    if re.search(r"\b(replacing|replace_file)\(", text) is None:
        return
    tree = ast.parse(text)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("replacing", "replace_file")
        ):
            inner: ast.AST = node
            while not isinstance(inner, ast.FunctionDef):
                inner = parents[inner]
            yield f"{path.relative_to(SOURCE.parent)}:{inner.name}"


def test_every_function_that_writes_is_here(complete: Complete) -> None:
    """The command lines above run each of them."""
    functions = {each for path in SOURCE.rglob("*.py") if path.name != "files.py" for each in writers_in(path)}
    run_here = {each for writing in WRITING for each in complete[writing][1]}
    assert functions - run_here == {"kscale/world/nodegroups/static.py:_write"}  # of SIZES
    assert run_here - functions == set()


OTHERS = Counter({
    ("kscale/files.py", "open"): 2, ("kscale/files.py", "replace"): 1,  # what is tested here
    ("kscale/hpa/replay.py", "savefig"): 1,  # into a stream of kscale.files
    ("kscale/cli/app.py", "open"): 1,  # the null device
    ("kscale/cli/help.py", "write_text"): 1,  # into the text of a help
    ("kscale/world/rpc.py", "NamedTemporaryFile"): 1,  # without memfd_create
    ("kscale/capacity/sweep.py", "mkstemp"): 1, ("kscale/capacity/sweep.py", "fdopen"): 1,  # shared memory
})  # fmt: skip


NAMES = re.compile(
    r"\b(write_text|write_bytes|mkstemp|NamedTemporaryFile|savefig|open|fdopen|os\s*\.\s*(replace|rename))\s*\("
)
"""Calls that :func:`writes` looks at."""


def test_nothing_writes_files_in_another_way() -> None:
    """Calls that can create or change a file, but by kscale.files."""
    calls: Counter[tuple[str, str]] = Counter()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text if NAMES.search(text) else "")
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (name := writes(node)):
                calls[str(path.relative_to(SOURCE.parent)), name] += 1
    assert calls == OTHERS


def writes(call: ast.Call) -> str:
    """Return the name of the function if the call may write a file."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in ("write_text", "write_bytes", "mkstemp", "NamedTemporaryFile", "savefig"):
        return str(name)
    of_os = (
        isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id == "os"
    )
    if of_os and name in ("replace", "rename"):
        return str(name)
    modes = [
        each.value for each in (*call.args, *(word.value for word in call.keywords)) if isinstance(each, ast.Constant)
    ]
    if name in ("open", "fdopen") and any(
        isinstance(mode, str) and set(mode) & set("wax+") and len(mode) < 4 for mode in modes
    ):
        return str(name)
    return ""
