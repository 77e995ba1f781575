"""What every ``kscale run`` program has: flags as Go takes them, logs, exit statuses, and no secret in any line."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import signal
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
import typer
import uvloop
from typer.core import TyperOption

from kscale.cli.command import callback
from kscale.cli.failures import run_guarded
from kscale.cli.go_flags import KLOG_IDLE, GoCommand, Idle, given_flags, read_int
from kscale.cli.process import FAILED, _create_event_loop, run_program, set_up_logs
from kscale.cli.process_flags import LeaseFlags, ProcessFlags
from kscale.cli.terminal import Terminal
from kscale.drivers.leader_election import LostLeadershipError
from kscale.drivers.process import Program, ProgramContext
from kscale.errors import InputError
from unit.cli.support import kscale

OBSERVED: list[Any] = []
SECRET = "s3cr3t-t0ken"


@dataclass
class Own(LeaseFlags):
    leader_elect_resource_name: Annotated[str, typer.Option("--leader-elect-resource-name")] = "tally"
    prometheus_bearer_token: Annotated[str, typer.Option("--prometheus-bearer-token")] = ""


class Tally(GoCommand):
    refused: ClassVar[dict[str, str]] = {"aws-use-static-instance-list": "there is no AWS here", "regions": "no"}
    off = frozenset({"aws-use-static-instance-list"})
    idle: ClassVar[dict[str, Idle]] = {"least": Idle("it is counted anyhow", read_int), **KLOG_IDLE}


def command(*, process: ProcessFlags, lease: Own) -> None:
    """Counts."""
    OBSERVED.append((process, lease, given_flags()))
    run_program("tally", process, build, election=lease.election(identity="me"))


def build(around: ProgramContext) -> Program:
    raise LostLeadershipError("lost master")


@pytest.fixture(autouse=True)
def clear_observed() -> None:
    OBSERVED.clear()


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"token": SECRET}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    return str(path)


def run(*arguments: str) -> tuple[int, str]:
    app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    app.command("tally", cls=Tally)(callback(command))
    stderr = io.StringIO()
    created = typer.main.get_command(app)
    code = run_guarded(lambda: created.main(list(arguments), "tally", standalone_mode=False), Terminal(stderr=stderr))
    return code, stderr.getvalue()


def test_startup_log_names_the_program_and_hides_secrets(kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = run("--kubeconfig", kubeconfig, f"--prometheus-bearer-token={SECRET}", "--address=", "--log-format=json")
    assert code == FAILED
    text = capsys.readouterr().err
    assert SECRET not in text
    first, flags, server, last = map(json.loads, text.splitlines())
    assert first["msg"].startswith("kscale tally ")
    assert flags["--prometheus-bearer-token"] == "<hidden>"
    assert flags["--leader-elect-lease-duration"] == "15s"
    assert flags["--leader-elect"] == "true"
    assert server["msg"] == "API server http://127.0.0.1:9"
    assert (last["level"], last["msg"]) == ("critical", "lost master")


@pytest.mark.parametrize(
    ("argument", "leads"),
    [
        ("--leader-elect=false", False),
        ("--leader-elect=T", True),
        ("--no-leader-elect", False),
        ("--leader-elect", True),
    ],
)
def test_switches_as_go_has_them(argument: str, leads: bool, kubeconfig: str) -> None:
    assert run("--kubeconfig", kubeconfig, argument, "--address=")[0] == FAILED
    ((_, lease, flags),) = OBSERVED
    assert lease.leader_elect is leads
    assert dict(flags)["--leader-elect"] == str(leads).lower()


@pytest.mark.parametrize("argument", ["-v=4", "-v4", "--v=4"])
def test_levels_as_go_has_them(argument: str, kubeconfig: str) -> None:
    assert run("--kubeconfig", kubeconfig, argument, "--address=")[0] == FAILED
    assert OBSERVED[0][0].verbosity == 4


PROGRAMS = ["cluster-autoscaler", "horizontal", "vpa-recommender", "vpa-updater", "vpa-admission"]
OF_KLOG = {
    "log-file-max-size": "1800", "vmodule": "static_autoscaler=5,scale_down*=4", "log-flush-frequency": "5s",
}  # fmt: skip
"""Values of flags that take no word."""


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_takes_the_flags_of_klog(program: str) -> None:
    for name, flag in KLOG_IDLE.items():
        value = "true" if flag.switch else OF_KLOG.get(name, "x")
        for written in (f"--{name}={value}", f"--{name.replace('-', '_')}={value}"):
            result = kscale("run", program, written, "--nothing-like-it")
            assert "No such option: --nothing-like-it" in result.stderr, written


def test_flags_of_klog_are_taken_with_one_warning_each(kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--alsologtostderr", "--skip_headers=false", "--vmodule=loop=5", "--vmodule", "loop=6", "--log_file=/x"]
    code, _ = run("--kubeconfig", kubeconfig, *flags, "--no-leader-elect", "--address=", "--log-format=json")
    assert code == FAILED
    lines = [json.loads(text) for text in capsys.readouterr().err.splitlines()]
    ignored = [each["msg"].partition(" ")[0] for each in lines if "is not heeded" in each["msg"]]
    assert ignored == ["--alsologtostderr", "--vmodule", "--log-file"]
    ((_, lease, _),) = OBSERVED
    assert not lease.leader_elect  # what comes after a switch is no value of it


@pytest.mark.parametrize("argument", ["--vmodule=loop", "--alsologtostderr=perhaps", "--log-file-max-size=-1"])
def test_a_flag_of_klog_with_a_value_that_klog_refuses(argument: str, kubeconfig: str) -> None:
    code, output = run("--kubeconfig", kubeconfig, argument)
    assert code == 2
    assert "invalid argument" in output
    assert not OBSERVED


@pytest.mark.parametrize("written", [("--least=3",), ("--least", "3"), ("--least=1", "--least=3")])
def test_upstream_flag_without_effect_is_accepted_with_a_warning(
    written: tuple[str, ...], kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--kubeconfig", kubeconfig, *written, "--no-leader-elect", "--address=", "--log-format=json")
    assert run(*words)[0] == FAILED
    lines = [json.loads(text) for text in capsys.readouterr().err.splitlines()]
    warnings = [(each["level"], each["msg"]) for each in lines if "least" in each["msg"]]
    assert warnings == [("warning", "--least is not heeded: it is counted anyhow")]
    ((_, lease, flags),) = OBSERVED
    assert not lease.leader_elect
    assert "--least" not in dict(flags)
    assert run("--kubeconfig", kubeconfig, "--address=")[0] == FAILED
    assert "not heeded" not in capsys.readouterr().err


@pytest.mark.parametrize("written", [("--least=x",), ("--least",), ("--least", "--no-leader-elect")])
def test_such_a_flag_with_a_value_that_upstream_refuses(written: tuple[str, ...], kubeconfig: str) -> None:
    code, output = run("--kubeconfig", kubeconfig, *written)
    assert code == 2
    assert "for --least: a whole number is expected" in output
    assert not OBSERVED


def test_a_refused_switch_may_be_off(kubeconfig: str) -> None:
    for value in ("false", "F", "0"):
        code, _ = run("--kubeconfig", kubeconfig, f"--aws_use_static_instance_list={value}", "--address=")
        assert code == FAILED
    code, output = run("--kubeconfig", kubeconfig, "--regions=0")
    assert code == 2
    assert "--regions is not taken: no" in output


def test_flags_that_are_refused_by_name(kubeconfig: str) -> None:
    code, output = run("--kubeconfig", kubeconfig, "--aws-use-static-instance-list=true")
    assert code == 2
    assert "--aws-use-static-instance-list is not taken: there is no AWS here" in output
    code, output = run("--leader-elect=perhaps")
    assert code == 2
    assert 'invalid argument "perhaps" for --leader-elect' in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--log-format", "xml"], "'xml' is neither text nor json"),
        (["--logtostderr=false"], "--logtostderr: logs go to stderr: there is no log file"),
        (["--stderrthreshold=LOUD"], "--stderrthreshold: unknown severity name LOUD"),
        (["--stderrthreshold=4"], "--stderrthreshold: unknown severity name 4"),
        (["--leader_elect_lease_duration", "later"], "--leader-elect-lease-duration"),
        (["--address", "nowhere"], "'nowhere' is no address to listen on"),
        (["--tls-cert-file", "x"], "--tls-cert-file and --tls-private-key-file go together"),
        (["--kubeconfig", "/does/not/exist"], "/does/not/exist"),
        (["--leader-elect-lease-duration", "soon"], "--leader-elect-lease-duration"),
        (
            ["--leader-elect-resource-lock", "endpoints"],
            "Invalid lock-type endpoints: leases is the only one; older releases",
        ),
    ],
)
def test_invalid_startup_arguments_are_refused(arguments: list[str], message: str, kubeconfig: str) -> None:
    code, text = run("--kubeconfig", kubeconfig, *arguments)
    assert code == 2
    assert message in text


@pytest.mark.parametrize(("text", "value"), [("0x10", 16), ("010", 8), ("1_0", 10)])
def test_integers_of_flags_are_read_as_pflag_reads_them(text: str, value: int) -> None:
    command = GoCommand("x", callback=lambda size: print(size), params=[TyperOption(param_decls=["--size"], type=int)])
    with redirect_stdout(io.StringIO()) as shown:
        command.main([f"--size={text}"], standalone_mode=False)
    assert shown.getvalue() == f"{value}\n"


def test_the_lease_as_options() -> None:
    result = Own(leader_elect_renew_deadline="4s").election(identity="me", namespace="here")
    assert result is not None
    assert (result.resource_name, result.resource_namespace, result.identity) == ("tally", "here", "me")
    assert (result.lease_duration, result.renew_deadline) == (timedelta(seconds=15), timedelta(seconds=4))
    assert Own(leader_elect=False).election() is None
    one, other = (Own().election() for _ in range(2))
    assert one is not None
    assert other is not None
    assert one.identity != other.identity
    with pytest.raises(InputError):
        Own(leader_elect_retry_period="never").election()


@pytest.mark.parametrize(
    ("threshold", "shown_levels"),
    [("info", "DIWE"), ("0", "DIWE"), ("Warning", "WE"), ("1", "WE"), ("ERROR", "E"), ("3", "")],
)
def test_less_important_lines_are_left_out(threshold: str, shown_levels: str) -> None:
    stream = io.StringIO()
    set_up_logs(4, "text", min_level=ProcessFlags(stderrthreshold=threshold).get_log_level(), stream=stream)
    log = logging.getLogger("kscale.somewhere")
    for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        log.log(number, "a line")
    assert "".join(line[0] for line in stream.getvalue().splitlines()) == shown_levels


@pytest.mark.parametrize("format_", ["text", "json"])
def test_a_line_is_one_line(format_: str) -> None:
    stream = io.StringIO()
    set_up_logs(0, format_, stream=stream)
    log = logging.getLogger("kscale.somewhere")
    log.info("a pod named %s", "x\ny\x1b[2J", extra={"more": "z\n"})
    log.debug("not said")
    set_up_logs(4, format_, stream=stream)
    log.debug("said")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert "\x1b" not in stream.getvalue()
    if format_ == "json":
        assert json.loads(lines[0])["more"] == "z\n"
        assert json.loads(lines[1])["level"] == "debug"
    else:
        assert lines[0].startswith("I ")
        assert "more=" in lines[0]


def test_programs_run_on_uvloop_if_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = _create_event_loop()
    loop.close()
    assert isinstance(loop, uvloop.Loop)
    monkeypatch.setitem(sys.modules, "uvloop", None)  # its import fails
    loop = _create_event_loop()
    loop.close()
    assert type(loop) is asyncio.SelectorEventLoop


@pytest.mark.parametrize("installed", [True, False], ids=["uvloop", "asyncio"])
def test_program_restores_the_signal_handlers_when_it_ends(
    installed: bool, kubeconfig: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handle(*_: object) -> None:
        """Do nothing: the test only compares handlers."""

    if not installed:
        monkeypatch.setitem(sys.modules, "uvloop", None)  # its import fails
    expected = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: handle, signal.SIGQUIT: signal.SIG_IGN}
    previous = {number: signal.signal(number, handler) for number, handler in expected.items()}
    try:
        assert run("--kubeconfig", kubeconfig, "--address=")[0] == FAILED
        restored = {number: signal.getsignal(number) for number in expected}
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    assert restored == expected
