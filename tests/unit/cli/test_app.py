"""The application itself: versions, help, usage errors, statuses, and that nothing is imported before it is needed."""

from __future__ import annotations

import gc
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import typer

import kscale
from kscale.cli import registry
from kscale.cli.failures import DumpError, run_guarded
from kscale.cli.terminal import Terminal, printable
from kscale.errors import InputError, MissingExtraError, Problem
from unit.cli.support import Run
from unit.cli.support import kscale as run

BIN = Path(sys.executable).parent


def test_version() -> None:
    assert run("--version") == Run(0, f"kscale {kscale.__version__}\n", "")


def test_help_lists_every_command_without_importing_one() -> None:
    code = (
        "import sys\nfrom kscale.cli.app import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        "print(*[m for m in sys.modules if m.startswith(('rich', 'yaml', 'numpy', 'msgspec', 'kscale.cli.commands.'))])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    *text, modules = out.splitlines()
    assert modules == ""
    for entry in registry.COMMANDS:
        assert any(line.split()[:1] == entry.name.split()[:1] for line in text)


def test_command_imports_only_needed_modules(tmp_path: Path) -> None:
    """What costs much and serves a terminal, another format or another reader is not loaded for an answer in a pipe."""
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": {"containers": []}}
    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}}
    (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [pod, node]}))
    (tmp_path / "groups.json").write_text(json.dumps([{"id": "g", "fromNode": "n"}]))
    code = (
        "import sys\nfrom kscale.cli.app import app\n"
        "for groups in (['--node', 'n'], ['-g', sys.argv[2]]):\n"
        "    try: app(['estimate', '-q', '-f', sys.argv[1], *groups])\n    except SystemExit: pass\n"
        "slow = {'pydantic', 'email', 'unittest', 'hashlib', 'json', 'fractions'}\n"
        "slow &= {m.split('.')[0] for m in sys.modules}\n"
        "others = {m.split('.')[0] for m in sys.modules} - sys.stdlib_module_names\n"
        "rare = ('kscale.capacity.catalogue', 'kscale.scheduling.bounds.mixed_bins',"
        " 'kscale.scheduling.devices.cel', 'kscale.capacity.karpenter')\n"
        "slow |= {room for room in rare if room in sys.modules}\n"
        "print(*sorted(slow | {m for m in others if '_' != m[0]}))"
    )
    files = [str(tmp_path / name) for name in ("dump.json", "groups.json")]
    done = subprocess.run([sys.executable, "-c", code, *files], capture_output=True, text=True, check=True)
    assert "pending" in done.stdout
    allowed = {
        "annotated_doc",
        "cython_runtime",
        "kscale",
        "msgspec",
        "numpy",
        "typer",
        "click",
        "shellingham",
        "typing_extensions",
    }
    assert set(done.stdout.splitlines()[-1].split()) <= allowed


def test_garbage_collection_starts_with_the_command_and_skips_imports() -> None:
    code = (
        "import gc, kscale.cli\nfrom unittest.mock import MagicMock\nfrom kscale.cli.command import callback\n"
        "def command() -> None:\n"
        "    print(gc.isenabled(), gc.get_freeze_count() > 1000)\n"
        "import kscale.cli.app as app\n"
        "app.run = lambda: (print(gc.isenabled()), callback(command)(MagicMock()))\n"
        "kscale.cli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["False", "True True"]


def test_a_small_answer_needs_no_thread_besides_its_own(tmp_path: Path) -> None:
    """A pool of NumPy's library for products of matrices spins on every processor while the command begins."""
    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}}
    (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [node]}))
    code = (
        "import os, sys, kscale.cli\n"
        "sys.argv[1:] = ['estimate', '-q', '--node', 'n', '-f', sys.argv[1]]\n"
        "try: kscale.cli.main()\nexcept SystemExit as end: assert not end.code\n"
        "assert 'numpy' in sys.modules\n"
        "print(len(os.listdir('/proc/self/task')))\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "dump.json")], capture_output=True, text=True,
                          env=environment, check=False)  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["1"]), done.stderr


def test_a_program_that_embeds_the_application_keeps_its_collector(tmp_path: Path) -> None:
    (tmp_path / "dump.json").write_text('{"kind": "List", "apiVersion": "v1", "items": []}')
    with mock.patch("gc.get_freeze_count", return_value=5), mock.patch("gc.freeze") as freeze:
        gc.disable()
        try:
            assert run("headroom", "-f", str(tmp_path / "dump.json")).code == 0
            assert not gc.isenabled()
        finally:
            gc.enable()
    freeze.assert_not_called()


@pytest.mark.parametrize("entry", registry.COMMANDS, ids=lambda entry: entry.name)
def test_every_command_has_help(entry: registry.Entry) -> None:
    result = run(*entry.name.split(), "--help")
    assert result.code == 0
    assert result.stdout.startswith("Usage: ")
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-command"], "no command 'no-such-command'."),
        (["schem"], "no command 'schem'. Did you mean schema?"),
        (["--no-such-option"], "No such option: --no-such-option"),
        (["schema", "-o", "toml"], "'toml' is not one of"),
        (["schema", "Nope"], "'Nope' is not one of"),
        (["generate", "--pods", "1_0"], "'1_0' is not a valid int range"),
        (["generate", "--pods", " 10"], "' 10' is not a valid int range"),
        (["generate", "--pods", "١٠"], "'١٠' is not a valid int range"),
        (["mix", "--budget", "1 "], "'1 ' is not a valid float"),
        (["schema", "groups", "--directory", "."], "every schema is written: leave out KIND"),
    ],
)
def test_bad_usage_is_status_two_and_points_at_the_help(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert "--help shows how it is used." in result.stderr


def test_no_arguments_is_the_help_and_status_two() -> None:
    result = run()
    assert (result.code, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: kscale")


def guard(error: BaseException) -> tuple[int, str]:
    stderr = io.StringIO()

    def fail() -> None:
        raise error

    code = run_guarded(fail, Terminal(stdout=io.StringIO(), stderr=stderr, environ={}))
    return code, stderr.getvalue()


@pytest.mark.parametrize(
    "error",
    [
        InputError(Problem("bad", "groups.yaml", "groups[0] (a)"), total=3),
        DumpError([Problem("bad", "a.json", "items[0]"), Problem("No such file", "b.json")], total=3),
    ],
)
def test_unskippable_errors_get_no_skip_hint(error: InputError) -> None:
    code, text = guard(error)
    assert code == 2
    assert text.startswith("error: ")
    assert "--skip-invalid" not in text


def test_input_errors_are_listed_with_their_place_and_a_hint() -> None:
    problem = Problem(
        '"1O0m" is not a quantity',
        source="broken.json",
        object="items[17] (Pod team-a/web-3)",
        field="spec.containers[0].resources.requests.cpu",
    )
    code, text = guard(DumpError(problem, total=412))
    assert code == 2
    assert text == (
        "error: broken.json: items[17] (Pod team-a/web-3): spec.containers[0].resources.requests.cpu: "
        '"1O0m" is not a quantity\n'
        "  1 of 412 objects could not be read. Fix it, or run with --skip-invalid to go on without it.\n"
    )


def test_damaged_objects_are_counted_instead_of_their_problems() -> None:
    """Two things are wrong with one, another file has an object of that name, and one is damaged beside it."""
    problems = [
        Problem("bad", source="a.json", object="Pod a/web", field="spec"),
        Problem("bad", source="a.json", object="Pod a/web", field="status"),
        Problem("bad", source="b.json", object="Pod a/web", field="spec"),
        Problem("bad", source="a.json", object="Pod a/db", field="spec"),
    ]
    _, text = guard(DumpError(problems, total=12))
    assert text.count("error: ") == 4
    assert "  3 of 12 objects could not be read. Fix them, or run with --skip-invalid" in text
    _, text = guard(DumpError(problems[:2], total=12))
    assert "  1 of 12 objects could not be read. Fix it, or run with --skip-invalid to go on without it." in text


def test_many_input_errors_are_cut_and_counted() -> None:
    code, text = guard(DumpError([Problem("bad", object=f"items[{n}]") for n in range(30)], total=50))
    assert code == 2
    assert text.count("error: ") == 20
    assert "... and 10 more; -v shows all." in text
    assert "30 of 50 objects could not be read. Fix them, or run with --skip-invalid to go on without them." in text


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (FileNotFoundError(2, "No such file or directory", "nope.json"), 2, "error: nope.json: No such file"),
        (MissingExtraError("Parquet", "data"), 2, "pip install 'kscale-core[data]'"),
        (MemoryError(), 2, "error: out of memory"),
        (KeyboardInterrupt(), 130, "error: interrupted"),
        (BrokenPipeError(), 141, ""),
        (ZeroDivisionError("oops"), 2, "internal error: ZeroDivisionError: oops"),
        (typer.Abort(), 130, "interrupted"),
    ],
)
def test_failures_are_one_line(error: BaseException, code: int, text: str) -> None:
    got, message = guard(error)
    assert got == code
    assert text in message
    assert "Traceback" not in message


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSCALE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        guard(ZeroDivisionError())


def test_names_cannot_move_the_cursor() -> None:
    assert printable("a\x1b[31mb\x9b\u202e\n") == "a\\x1b[31mb\\x9b\\x202e\n"
    _, text = guard(InputError(Problem("bad", object="Pod \x1b]0;owned\x07")))
    assert "\x1b" not in text


def test_a_missing_extra_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    from kscale.cli import main

    without_typer = mock.patch("kscale.cli.find_spec", lambda name: None if name == "typer" else object())
    with without_typer, pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err == ("error: the command line needs the extra [cli] (missing: typer): pip install 'kscale-core[cli]'\n")


@pytest.mark.parametrize(("script", "name"), [("kscale", "kscale"), ("kubectl-kscale", "kubectl kscale")])
def test_entry_points(script: str, name: str) -> None:
    result = subprocess.run([BIN / script, "schema", "--help"], capture_output=True, text=True, check=True)
    assert result.stdout.startswith(f"Usage: {name} schema")


def test_a_reader_that_goes_away_is_not_an_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = subprocess.run(
            [BIN / "kscale", "schema", "-o", "json"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(writer)
    assert (result.returncode, result.stderr) == (141, "")


def test_flags_before_the_command_count() -> None:
    assert run("-q", "schema", "-o", "name").stdout == run("schema", "-q", "-o", "name").stdout


MAPPED_BUFFERS = """
import ctypes
from kscale.cli import inputs
fields = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
Usage = type("Usage", (ctypes.Structure,), {"_fields_": [(name, ctypes.c_size_t) for name in fields.split()]})
mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
if mallinfo is None:
    print("no glibc")
else:
    mallinfo.restype = Usage
    inputs.start()
    inputs.return_large_buffers()
    large = bytearray(8 << 20)
    del large
    before = mallinfo().hblks
    smaller = bytearray(4 << 20)
    print(mallinfo().hblks - before)
"""


def test_large_buffers_of_a_program_are_returned_to_the_system() -> None:
    """A buffer that is smaller than one that was freed still gets a mapping of its own, which goes when it is freed."""
    run = subprocess.run([sys.executable, "-c", MAPPED_BUFFERS], capture_output=True, text=True, check=True)
    assert run.stdout.strip() in ("1", "no glibc")


PROGRAM = """
import atexit, sys
import kscale.cli

class Released:
    def __del__(self):
        print("released")

def main():
    print("answer")
    if "meanwhile" in sys.argv:
        atexit.register(print, "meanwhile")
    sys.exit(int(sys.argv[1]))

released = Released()
if "before" in sys.argv:
    atexit.register(print, "before")
kscale.cli.main = main
kscale.cli.run_as_program()
"""


@pytest.mark.parametrize("status", [0, 2])
@pytest.mark.parametrize(
    ("callbacks", "printed"),
    [
        ([], []),
        (["meanwhile"], ["meanwhile"]),
        (["before"], ["before", "released"]),  # else the callback would be left out
        (["before", "meanwhile"], ["meanwhile", "before", "released"]),
    ],
)
def test_a_program_ends_without_releasing_objects_but_runs_all_callbacks(
    callbacks: list[str], printed: list[str], status: int
) -> None:
    command = [sys.executable, "-c", PROGRAM, str(status), *callbacks]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.splitlines(), ended.stderr) == (status, ["answer", *printed], "")
