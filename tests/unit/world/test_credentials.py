"""Who asks: client-go's tables of token files and exec plug-ins, with a fake clock and a program that is asked."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kscale.effects import SECOND, to_text
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.credentials import CredentialError, Credentials, Identity, TokenFile, impersonation_headers
from kscale.world.kubernetes.kubeconfig import Access, ClientCertificate, ExecConfig, Impersonation, Pem, Secret

pytestmark = pytest.mark.usefixtures("loop_type")

T0 = 1_800_000_000 * SECOND
MINUTE = 60 * SECOND
V1 = "client.authentication.k8s.io/v1"
BETA = "client.authentication.k8s.io/v1beta1"
SECRET = "s3cr3t"


class FakeClock:
    def __init__(self) -> None:
        self.passed = 0

    def now(self) -> int:
        return T0 + self.passed

    def monotonic(self) -> int:
        return self.passed


# TestCachingTokenSource, with the period and leeway of NewCachedFileTokenSource
def test_token_file_is_reread_periodically(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(" a\n")
    source = TokenFile(str(path), Secret())
    assert source.token(0).reveal() == "a"
    path.write_text("b")
    assert source.token(50 * SECOND - 1).reveal() == "a"
    assert source.token(50 * SECOND).reveal() == "b"
    path.unlink()
    assert source.token(5 * MINUTE).reveal() == "b"  # not being able to rotate is no loss
    path.write_text("")
    assert source.token(6 * MINUTE).reveal() == "b"


def test_a_token_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CredentialError, match="failed to read token file"):
        TokenFile(str(tmp_path / "missing"), Secret()).token(0)
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(CredentialError, match="read empty token"):
        TokenFile(str(tmp_path / "empty"), Secret()).token(0)
    assert TokenFile(str(tmp_path / "missing"), Secret("given")).token(0).reveal() == "given"


# TestTokenSourceTransportRoundTrip
def test_a_token_that_is_not_accepted_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("a")
    source = TokenFile(str(path), Secret())
    assert source.token(10).reveal() == "a"
    path.write_text("b")
    source.handle_rejection(10)  # it was sent when the token had just been read
    assert source.token(11).reveal() == "a"
    source.handle_rejection(12)
    assert source.token(13).reveal() == "b"


# TestImpersonationRoundTripper
@pytest.mark.parametrize(
    ("as_", "headers"),
    [
        (None, []),
        (
            Impersonation("user", "uid-a", ("one", "two"), {"first": ("A", "a"), "second": ("B", "b")}),
            [
                ("Impersonate-User", "user"), ("Impersonate-Uid", "uid-a"), ("Impersonate-Group", "one"),
                ("Impersonate-Group", "two"), ("Impersonate-Extra-first", "A"), ("Impersonate-Extra-first", "a"),
                ("Impersonate-Extra-second", "B"), ("Impersonate-Extra-second", "b"),
            ],
        ),
        (
            Impersonation("user", extra={"test.example.com/thing.thing%20another": ("A",)}),
            [("Impersonate-User", "user"), ("Impersonate-Extra-test.example.com%2Fthing.thing%2520another", "A")],
        ),
    ],
)  # fmt: skip
def test_impersonation_headers(as_: Impersonation | None, headers: list[tuple[str, str]]) -> None:
    assert list(impersonation_headers(as_)) == headers


def identity(access: Access) -> Identity:
    return asyncio.run(Credentials(access, FakeClock()).identity())


def test_kinds_of_identity(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file")
    assert identity(Access(server="s")).headers == ()
    assert identity(Access(server="s", token=Secret(SECRET))).headers == (("Authorization", f"Bearer {SECRET}"),)
    both = Access(server="s", token=Secret("given"), token_file=str(tmp_path / "token"))
    assert identity(both).headers == (("Authorization", "Bearer from-file"),)
    basic = Access(server="s", username="Aladdin", password=Secret("open sesame"), impersonate=Impersonation("jo"))
    assert identity(basic).headers == (
        ("Impersonate-User", "jo"),
        ("Authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
    )
    assert SECRET not in repr(identity(Access(server="s", token=Secret(SECRET))))


class Program:
    """Prints what it is told to, and remembers how it was asked."""

    def __init__(self, *status: dict[str, Any] | None, version: str = V1) -> None:
        self.status, self.version = list(status), version
        self.runs: list[tuple[tuple[str, ...], dict[str, Any], bool]] = []
        self.env: list[Mapping[str, str]] = []

    async def __call__(self, words: tuple[str, ...], env: Mapping[str, str], interactive: bool) -> bytes:
        self.runs.append((words, json.loads(env["KUBERNETES_EXEC_INFO"]), interactive))
        self.env.append(env)
        await asyncio.sleep(0)
        credential: dict[str, Any] = {"kind": "ExecCredential", "apiVersion": self.version}
        status = self.status.pop(0)
        return json.dumps(credential if status is None else {**credential, "status": status}).encode()


def plugin(
    program: Any, clock: FakeClock | None = None, access: dict[str, Any] | None = None, **config: Any
) -> Credentials:
    exec_ = ExecConfig(**{"command": "plugin", **config})
    created = Access(server="https://h", exec=exec_, **(access or {}))
    return Credentials(created, clock or FakeClock(), run=program)


# TestRefreshCreds
@pytest.mark.parametrize("version", [V1, BETA])
@pytest.mark.parametrize(
    ("mode", "terminal", "interactive"),
    [
        ("Never", True, False), ("IfAvailable", False, False), ("IfAvailable", True, True), ("Always", True, True),
    ],
)  # fmt: skip
def test_plugin_receives_the_exec_info(
    version: str, mode: str, terminal: bool, interactive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: terminal, raising=False)
    program = Program({"token": "foo-bar"}, version=version)
    credentials = plugin(
        program, api_version=version, interactive_mode=mode, args=("a", "b"), env=(("KEY", Secret("value")),)
    )
    assert asyncio.run(credentials.identity()).headers == (("Authorization", "Bearer foo-bar"),)
    info = {"kind": "ExecCredential", "apiVersion": version, "spec": {"interactive": interactive}}
    assert program.runs == [(("plugin", "a", "b"), info, interactive)]
    assert program.env[0]["KEY"] == "value"
    assert "PATH" in program.env[0]


def test_plugin_that_requires_a_terminal_fails_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    with pytest.raises(CredentialError, match="cannot support interactive mode: standard input is not a terminal"):
        asyncio.run(plugin(Program(), interactive_mode="Always").identity())


def test_plugin_receives_the_cluster_if_requested() -> None:
    access = {"ca": Pem(b"ca"), "server_name": "name", "proxy": "http://p", "compress": False}
    program = Program({"token": "t"}, {"token": "t"})
    asyncio.run(plugin(program, access=access, provide_cluster_info=True, config={"a": 1}).identity())
    assert program.runs[0][1]["spec"]["cluster"] == {
        "server": "https://h",
        "tls-server-name": "name",
        "certificate-authority-data": "Y2E=",
        "proxy-url": "http://p",
        "disable-compression": True,
        "config": {"a": 1},
    }


@pytest.mark.parametrize(
    ("status", "version", "message"),
    [
        (None, V1, "didn't return a status field"),
        ({}, V1, "didn't return a token or cert/key pair"),
        ({"clientCertificateData": SECRET}, V1, "only certificate or key, not both"),
        ({"token": SECRET}, BETA, f"configured to use API version {V1}, plugin returned version {BETA}"),
        ({"token": SECRET}, "", "plugin returned version"),
        ({"token": 5}, V1, "decoding stdout"),
        ({"token": SECRET, "expirationTimestamp": "soon"}, V1, "that is no time"),
    ],
)
def test_invalid_plugin_output_is_a_credential_error(status: dict[str, Any] | None, version: str, message: str) -> None:
    with pytest.raises(CredentialError, match=message) as error:
        asyncio.run(plugin(Program(status, version=version)).identity())
    assert SECRET not in str(error.value)


def test_a_certificate_from_a_plug_in() -> None:
    program = Program({"clientCertificateData": "CERT", "clientKeyData": SECRET})
    result = asyncio.run(plugin(program).identity())
    assert (result.headers, result.certificate) == ((), (b"CERT", SECRET.encode()))
    assert SECRET not in repr(result)


# TestRoundTripper
def test_tokens_are_cached_until_they_expire_or_are_rejected() -> None:
    clock = FakeClock()
    program = Program(
        {"token": "1"},
        {"token": "2"},
        {"token": "3", "expirationTimestamp": to_text(T0 + 60 * MINUTE)},
        {"token": "4", "expirationTimestamp": to_text(T0 + 999 * MINUTE)},
    )
    credentials = plugin(program, clock)

    async def main() -> list[str]:
        tokens = []

        async def ask() -> None:
            tokens.append((await credentials.identity()).headers[0][1][-1])

        await ask()
        await ask()
        await credentials.handle_rejection(0)
        await ask()
        await credentials.handle_rejection(0)
        clock.passed = 60 * MINUTE
        await ask()
        clock.passed += 1
        await ask()
        return tokens

    assert asyncio.run(main()) == ["1", "1", "2", "3", "4"]


def test_concurrent_requests_run_the_plugin_once() -> None:
    program = Program({"token": "1"}, {"token": "2"})

    async def main() -> set[tuple[tuple[str, str], ...]]:
        credentials = plugin(program)
        result = await asyncio.gather(*(credentials.identity() for _ in range(5)))
        await asyncio.gather(*(credentials.handle_rejection(0) for _ in range(5)))
        return {each.headers for each in result}

    assert asyncio.run(main()) == {(("Authorization", "Bearer 1"),)}
    assert len(program.runs) == 2


def test_unavailable_new_credentials_raise_a_named_error() -> None:
    program = Program({"token": "1"}, {})

    async def main() -> Identity:
        credentials = plugin(program)
        await credentials.identity()
        await credentials.handle_rejection(0)
        return await credentials.identity()

    assert asyncio.run(main()).headers == (("Authorization", "Bearer 1"),)


def test_the_old_credentials_stay_in_use_while_the_ca_file_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_text("PEM")
    program = Program({"token": "1"}, {"token": "2"})

    async def main() -> Identity:
        credentials = plugin(program, access={"ca": Pem(path=str(ca))}, provide_cluster_info=True)
        await credentials.identity()
        ca.unlink()
        await credentials.handle_rejection(0)
        return await credentials.identity()

    assert asyncio.run(main()).headers == (("Authorization", "Bearer 1"),)
    assert "refreshing credentials" in caplog.text
    assert len(program.runs) == 1


# TestAuthorizationHeaderPresentCancelsExecAction
@pytest.mark.parametrize(
    "known",
    [
        {"token": Secret("t")},
        {"username": "u", "password": Secret("p")},
        {"certificate": ClientCertificate(Pem(b"c"), Pem(b"k"))},
    ],
)
def test_static_credentials_do_not_run_the_plugin(known: dict[str, Any]) -> None:
    program = Program()
    asyncio.run(plugin(program, access=known).identity())
    assert program.runs == []


SCRIPT = """
import json, os, sys
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert sys.stdin.read() == ""
if sys.argv[1] == "fail":
    print("s3cr3t")
    sys.exit(73)
print(json.dumps({**info, "spec": {}, "status": {"token": sys.argv[1] + os.environ["SUFFIX"]}}))
"""


def real(*args: str, command: str = sys.executable, hint: str = "") -> Credentials:
    exec_ = ExecConfig(
        command=command,
        args=("-c", SCRIPT, *args),
        env=(("SUFFIX", Secret("!")),),
        interactive_mode="Never",
        install_hint=hint,
    )
    return Credentials(Access(server="https://h", exec=exec_), SystemClock())


def test_a_program_is_run() -> None:
    assert asyncio.run(real("hello").identity()).headers == (("Authorization", "Bearer hello!"),)


def test_a_program_that_fails() -> None:
    with pytest.raises(CredentialError, match=r"failed with exit code 73$") as error:
        asyncio.run(real("fail").identity())
    assert SECRET not in str(error.value)
    with pytest.raises(CredentialError, match=r"executable no-such-program not found\n\nsome install hint U\+001B"):
        asyncio.run(real("x", command="no-such-program", hint="some install hint \x1b").identity())


HOSTILE = {
    "endless": ("import os\nwhile True: os.write(1, b'a' * 65536)", "its output is larger than 1,048,576 bytes"),
    "hangs": ("import time; time.sleep(3600)", "it has not ended in 0.5 s"),
    "closes its output and hangs": ("import os, time; os.close(1); time.sleep(3600)", "it has not ended in 0.5 s"),
    "leaves its output to a child": (
        "import subprocess; subprocess.Popen(['sleep', '3600.0625'])", "it has not ended in 0.5 s",
    ),
    "leaves its output to a session of its own": (
        "import subprocess; subprocess.Popen(['sleep', '2.0625'], start_new_session=True)", "it has not ended in 0.5 s",
    ),
    "noise": ("import os; os.write(1, bytes(range(256)))", "decoding stdout"),
    "deep": ("print('[' * 100000)", "decoding stdout"),
    "HTML": ("print('<html>')", "decoding stdout"),
    "nothing": ("", "decoding stdout"),
    "killed": ("import os; os.kill(os.getpid(), 9)", "failed with exit code -9"),
}  # fmt: skip


@pytest.mark.parametrize(("script", "message"), HOSTILE.values(), ids=HOSTILE)
def test_misbehaving_plugin_is_a_credential_error(script: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request fails, the program does not outlive it, and its output is closed."""
    exec_ = ExecConfig(command=sys.executable, args=("-c", script), interactive_mode="Never")
    credentials = Credentials(Access(server="https://h", exec=exec_), SystemClock())

    async def open_files_before_and_after() -> tuple[set[str], set[str]]:
        await real("hello").identity()  # uvloop keeps /dev/null open after its first program
        if "has not ended" in message:  # otherwise a slow machine could not run it in time
            monkeypatch.setattr("kscale.world.kubernetes.credentials.PLUGIN_SECONDS", 0.5)
        before = open_files()
        with pytest.raises(CredentialError, match=message):
            await credentials.identity()
        return before, open_files()

    before, after = asyncio.run(open_files_before_and_after())
    assert after <= before
    # Other tests run beside this one: only the processes of this script count.
    marks = [mark for mark in (script, "3600.0625") if mark and mark in script]
    deadline = time.monotonic() + 30  # a killed process is listed until the kernel has ended it
    while lines := [line for line in command_lines() if any(mark in line for mark in marks)]:
        assert time.monotonic() < deadline, lines


@pytest.mark.parametrize("steps", range(1, 6))
def test_cancelling_the_start_of_a_plugin_ends_its_children(steps: int) -> None:
    """Otherwise asyncio would wait for a child that holds the output, and uvloop would leave the child behind."""
    mark = f"3600.{steps}0625"
    exec_ = ExecConfig(command="/bin/sh", args=("-c", f"sleep {mark} & sleep {mark}"), interactive_mode="Never")
    credentials = Credentials(Access(server="https://h", exec=exec_), SystemClock())

    async def cancel() -> None:
        task = asyncio.create_task(credentials.identity())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 20)

    asyncio.run(cancel())
    deadline = time.monotonic() + 30
    while lines := [line for line in command_lines() if mark in line]:
        assert time.monotonic() < deadline, lines


def open_files() -> set[str]:
    """Return the open pipes, sockets and files of this process."""
    targets = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of the listing itself
            targets.add(f"{each.name} {each.readlink()}")
    return targets


def command_lines() -> list[str]:
    """Return the command lines of all processes."""
    lines = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(each.read_text(errors="replace"))
    return lines


@pytest.mark.parametrize(
    "odd",
    [{"command": "a\0b"}, {"args": ("a\0",)}, {"env": (("A=B", Secret("c")),)}, {"env": (("A", Secret("s3cr3t\0")),)}],
)
def test_a_program_that_cannot_be_run(odd: dict[str, Any]) -> None:
    exec_ = ExecConfig(**{"command": sys.executable, "interactive_mode": "Never", **odd})
    credentials = Credentials(Access(server="https://h", exec=exec_), SystemClock())
    with pytest.raises(CredentialError, match=r"^exec: ") as error:
        asyncio.run(credentials.identity())
    assert SECRET not in str(error.value)


def test_cached_token_is_not_in_the_repr() -> None:
    result = asyncio.run(plugin(Program({"token": SECRET}))._exec.get_credentials())
    assert SECRET not in repr(result)
    assert msgspec.structs.asdict(result)["token"].reveal() == SECRET
