"""Credentials of requests: tokens, exec plug-ins and impersonation (upstream: ``client-go/transport``).

Error messages never contain a secret.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

import msgspec

from kscale.effects import SECOND, Moment, from_text
from kscale.errors import InputError, KscaleError, Problem
from kscale.files import read_file
from kscale.objects.api.meta import ApiStruct
from kscale.world.kubernetes.kubeconfig import Access, ExecConfig, Impersonation, Secret
from kscale.world.protocols import Clock
from kscale.world.server_data import UnreadableError, read_json

__all__ = [
    "CredentialError",
    "Credentials",
    "ExecPlugin",
    "Identity",
    "RunProgram",
    "TokenFile",
    "impersonation_headers",
]

_log = logging.getLogger(__name__)
_PERIOD: Final = 60 * SECOND
_EXPIRY_MARGIN: Final = 10 * SECOND
_INFO: Final = "KUBERNETES_EXEC_INFO"

RunProgram = Callable[[tuple[str, ...], Mapping[str, str], bool], Awaitable[bytes]]
"""Runs a command (arguments, environment, whether it may prompt on the terminal) and returns its output."""


class CredentialError(KscaleError, OSError):
    """There are no credentials for a request."""


class Identity(msgspec.Struct, frozen=True):
    """Headers of a request, and the certificate and key that an exec plug-in returned, if any."""

    headers: tuple[tuple[str, str], ...]
    certificate: tuple[bytes, bytes] | None = None

    def __repr__(self) -> str:
        return f"Identity({', '.join(name for name, _ in self.headers)})"


class TokenFile:
    """Bearer token in a file that is rotated; the file is read once a minute.

    If the file cannot be read, the previous token stays in use. Times are monotonic, in nanoseconds.
    """

    __slots__ = ("_expires", "_path", "_read_at", "_token")

    def __init__(self, path: str, fallback: Secret) -> None:
        self._path = path
        self._token = fallback
        self._expires: int | None = None
        self._read_at: int | None = None

    def token(self, now: int) -> Secret:
        """Return the token. The file is read again after 50 seconds.

        ``now``: monotonic nanoseconds. If the file is empty or cannot be read, logs a warning and returns the last
        token; raises :class:`CredentialError` if no token is known yet.
        """
        if self._expires is not None and self._expires - _EXPIRY_MARGIN > now:
            return self._token
        try:
            text = read_file(self._path).decode().strip()
            if not text:
                raise CredentialError(f"read empty token from file {self._path}")
        except (OSError, UnicodeDecodeError) as error:
            if not self._token:
                why = error.strerror if isinstance(error, OSError) and error.strerror else "read empty token"
                raise CredentialError(f"failed to read token file {self._path}: {why}") from None
            _log.warning("Unable to rotate token: %s cannot be read", self._path)
            return self._token
        self._token, self._read_at, self._expires = Secret(text), now, now + _PERIOD
        return self._token

    def handle_rejection(self, sent: int) -> None:
        """Expire the token after a request that was sent at ``sent`` was rejected, unless the file was read since.

        ``sent``: monotonic nanoseconds.
        """
        if self._read_at is not None and self._read_at < sent:
            self._expires = None


class _ExecCredentials(msgspec.Struct, frozen=True):
    """Credentials that an exec plug-in returned. ``expires`` is None if they never expire."""

    token: Secret
    certificate: tuple[bytes, bytes] | None
    expires: Moment | None


class ExecPlugin:
    """Credentials from an exec plug-in, which runs again when they expire or the server rejects them."""

    __slots__ = ("_access", "_clock", "_config", "_given", "_lock", "_run")

    def __init__(self, config: ExecConfig, access: Access, clock: Clock, run: RunProgram | None = None) -> None:
        self._config = config
        self._access = access
        self._clock = clock
        self._run = run or _run
        self._given: _ExecCredentials | None = None
        self._lock = asyncio.Lock()

    async def get_credentials(self) -> _ExecCredentials:
        """Return the current credentials; run the plug-in if there are none yet or they have expired.

        Raises :class:`CredentialError`, or InputError if the CA file cannot be read.
        """
        async with self._lock:  # one run at a time: the plug-in may prompt the user
            credentials = self._given
            if credentials is None or (credentials.expires is not None and self._clock.now() > credentials.expires):
                credentials = self._given = await self._request_credentials()
            return credentials

    async def handle_rejection(self, rejected: _ExecCredentials) -> None:
        """Refresh credentials that the server rejected, unless they have been replaced already.

        Raises :class:`CredentialError`, or InputError if the CA file cannot be read.
        """
        async with self._lock:
            if rejected is self._given:
                self._given = await self._request_credentials()

    async def _request_credentials(self) -> _ExecCredentials:
        """Run the plug-in and return its credentials.

        Raises CredentialError, or InputError if the CA file cannot be read.
        """
        config = self._config
        interactive = self._is_interactive()
        spec: dict[str, Any] = {"interactive": interactive}
        if config.provide_cluster_info:
            spec["cluster"] = self._cluster()
        info = {"kind": "ExecCredential", "apiVersion": config.api_version, "spec": spec}
        env = {
            **os.environ,
            **{name: value.reveal() for name, value in config.env},
            _INFO: json.dumps(info, separators=(",", ":")),
        }
        printed = await self._run_program(env, interactive)
        return self._read(printed)

    async def _run_program(self, env: Mapping[str, str], interactive: bool) -> bytes:
        """Run the plug-in with these environment variables and return its output.

        An ``interactive`` plug-in reads the program's standard input and has no time limit.
        Raises CredentialError if it fails.
        """
        command = self._config.command
        try:
            return await self._run((command, *self._config.args), env, interactive)
        except FileNotFoundError:
            hint = f"\n\n{self._config.install_hint}" if self._config.install_hint else ""
            raise CredentialError(f"exec: executable {command} not found{_printable(hint)}") from None
        except OSError as error:
            if isinstance(error, CredentialError):
                raise
            raise CredentialError(f"exec: {command}: {error.strerror}") from None
        except ValueError as error:  # a NUL, or a variable whose name has a "="; the text has no value
            raise CredentialError(f"exec: {_printable(command)}: {error}") from None

    def _is_interactive(self) -> bool:
        """Return whether the plug-in may use the terminal.

        Raises CredentialError if it needs a terminal and there is none.
        """
        mode = self._config.interactive_mode
        terminal = sys.stdin is not None and sys.stdin.isatty()
        if mode == "Always" and not terminal:
            text = "exec plugin cannot support interactive mode: standard input is not a terminal"
            raise CredentialError(text)
        return mode != "Never" and terminal

    def _cluster(self) -> dict[str, Any]:
        """Build ``spec.cluster`` of the ExecCredential. Raises InputError if the file of authorities cannot be read."""
        access = self._access
        try:
            ca = access.ca.read() if access.ca else b""
        except OSError as error:
            raise InputError(Problem(error.strerror or str(error), access.ca.path)) from None
        fields = {
            "server": access.server,
            "tls-server-name": access.server_name,
            "insecure-skip-tls-verify": access.insecure,
            "certificate-authority-data": base64.b64encode(ca).decode(),
            "proxy-url": access.proxy,
            "disable-compression": not access.compress,
            "config": self._config.config,
        }
        return {key: value for key, value in fields.items() if value or key == "config"}

    def _read(self, printed: bytes) -> _ExecCredentials:
        """Parse the output of the plug-in. Raises CredentialError if it contains no usable credentials."""
        expected_version = self._config.api_version
        try:
            credential = read_json(printed, _ExecCredential)
        except UnreadableError:
            raise CredentialError("exec: decoding stdout: it is no ExecCredential") from None
        if credential.kind != "ExecCredential" or credential.api_version != expected_version:
            text = f"exec plugin is configured to use API version {expected_version}, plugin returned version"
            raise CredentialError(f"{text} {_printable(credential.api_version)}")
        status = credential.status
        if status is None:
            raise CredentialError("exec plugin didn't return a status field")
        certificate, key = status.client_certificate_data, status.client_key_data
        if not status.token and not certificate and not key:
            raise CredentialError("exec plugin didn't return a token or cert/key pair")
        if bool(certificate) != bool(key):
            raise CredentialError("exec plugin returned only certificate or key, not both")
        try:
            expires = from_text(status.expiration_timestamp) if status.expiration_timestamp else None
        except ValueError:
            raise CredentialError("exec plugin returned an expirationTimestamp that is no time") from None
        pair = (certificate.encode(), key.encode()) if certificate else None
        return _ExecCredentials(Secret(status.token), pair, expires)


class _ExecStatus(ApiStruct):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str | None = None


class _ExecCredential(ApiStruct):
    kind: str = ""
    api_version: str = ""
    status: _ExecStatus | None = None


class Credentials:
    """Identity of requests for one :class:`Access`. ``run`` runs its exec plug-in."""

    __slots__ = ("_basic", "_clock", "_exec", "_file", "_given", "_headers", "_token")

    def __init__(self, access: Access, clock: Clock, *, run: RunProgram | None = None) -> None:
        self._clock = clock
        self._headers = impersonation_headers(access.impersonate)
        self._token = access.token
        self._file = TokenFile(access.token_file, access.token) if access.token_file else None
        self._basic = ""
        if access.username or access.password:
            pair = f"{access.username}:{access.password.reveal()}".encode()
            self._basic = f"Basic {base64.b64encode(pair).decode()}"
        # A token, a password or a certificate takes precedence over the plug-in.
        has_credentials = access.token or self._file or self._basic or access.certificate
        self._exec = ExecPlugin(access.exec, access, clock, run) if access.exec and not has_credentials else None
        self._given: _ExecCredentials | None = None

    async def identity(self) -> Identity:
        """Return the headers and client certificate for the next request; run the exec plug-in if needed.

        Raises :class:`CredentialError`, or InputError if the CA file for the plug-in cannot be read.
        """
        if self._exec is not None:
            credentials = self._given = await self._exec.get_credentials()
            return Identity(self._headers + _bearer(credentials.token), credentials.certificate)
        identity = self.known_identity()
        assert identity is not None  # there is no exec plug-in
        return identity

    def known_identity(self) -> Identity | None:
        """Return what :meth:`identity` returns; None if an exec plug-in provides it, so that it may take time.

        Raises :class:`CredentialError` if the token file cannot be used.
        """
        if self._exec is not None:
            return None
        if self._basic:
            return Identity((*self._headers, ("Authorization", self._basic)))
        token = self._file.token(self._clock.monotonic()) if self._file is not None else self._token
        return Identity(self._headers + _bearer(token))

    async def handle_rejection(self, sent: int) -> None:
        """Handle status 401 for a request that was sent at monotonic time ``sent``: refresh the credentials.

        A token file is read again at the next request, unless it was read after ``sent``. An exec plug-in runs now,
        unless its last credentials have been replaced already; its failure is logged.
        """
        if self._file is not None:
            self._file.handle_rejection(sent)
        if self._exec is not None and self._given is not None:
            try:
                await self._exec.handle_rejection(self._given)
            except (CredentialError, InputError) as error:
                _log.warning("refreshing credentials: %s", error)


def _bearer(token: Secret) -> tuple[tuple[str, str], ...]:
    """Return the Authorization header as (name, value); empty without a token."""
    return (("Authorization", f"Bearer {token.reveal()}"),) if token else ()


def impersonation_headers(as_: Impersonation | None) -> tuple[tuple[str, str], ...]:
    """Return the impersonation headers (name, value); empty without impersonation."""
    if as_ is None:
        return ()
    headers = [("Impersonate-User", as_.user)]
    if as_.uid:
        headers.append(("Impersonate-Uid", as_.uid))
    headers += [("Impersonate-Group", group) for group in as_.groups]
    for key, values in as_.extra.items():
        name = f"Impersonate-Extra-{quote(key, safe=_HEADER_SAFE)}"
        headers += [(name, value) for value in values]
    return tuple(headers)


_HEADER_SAFE: Final = "!#$&'*+-.^_`|~"


def _printable(text: str) -> str:
    """Replace characters that could control a terminal by ``U+XXXX``; newlines and tabs stay."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else f"U+{ord(character):04X}" for character in text
    )


PLUGIN_BYTES: Final = 1 << 20
"""Limit on the output of an exec plug-in: a token or a certificate."""
PLUGIN_SECONDS: Final = 60.0
"""Time for an exec plug-in that does not use the terminal, where it may wait for its user."""


async def _run(words: tuple[str, ...], env: Mapping[str, str], interactive: bool) -> bytes:
    """Run a program (``words``: path and arguments) and return its standard output.

    Raises OSError if it cannot be started, CredentialError if it fails or prints too much, or (unless ``interactive``)
    takes longer than PLUGIN_SECONDS.
    """
    start = asyncio.get_running_loop().subprocess_exec(
        _PluginProtocol,
        *words,
        env=dict(env),
        stdin=None if interactive else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=None,
        start_new_session=not interactive,  # so that its own children end with it
    )
    started = asyncio.ensure_future(start)
    try:
        # If a start is cancelled, event loops kill the program alone, and may then wait for its children.
        _, program = await asyncio.shield(started)
        async with asyncio.timeout(None if interactive else PLUGIN_SECONDS):
            await program.finished
        if len(program.output) > PLUGIN_BYTES:
            raise CredentialError(f"exec: {words[0]}: its output is larger than {PLUGIN_BYTES:,} bytes")
    except TimeoutError:
        raise CredentialError(f"exec: {words[0]}: it has not ended in {PLUGIN_SECONDS:g} s") from None
    finally:
        transport, program = await started
        if not program.closed.done():
            _kill(transport, group=not interactive)
        # A child in a session of its own may hold the output open: do not wait for its end.
        transport.close()
        await program.closed
    if transport.get_returncode():
        raise CredentialError(f"exec: executable {words[0]} failed with exit code {transport.get_returncode()}")
    return bytes(program.output)


class _PluginProtocol(asyncio.SubprocessProtocol):
    """Collect the output of a plug-in, up to one read beyond ``PLUGIN_BYTES``."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.output = bytearray()
        self.finished: asyncio.Future[None] = loop.create_future()
        """Set when the output is too long, or when the process and its output have ended."""
        self.closed: asyncio.Future[None] = loop.create_future()
        """Set when the process has ended and its output is closed."""

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:  # noqa: ARG002  # asyncio passes it; only stdout is a pipe
        """Collect the output; stop collecting once it exceeds ``PLUGIN_BYTES``."""
        assert isinstance(data, bytes)
        if len(self.output) <= PLUGIN_BYTES:
            self.output += data
        if len(self.output) > PLUGIN_BYTES and not self.finished.done():
            self.finished.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio passes it; the exit code says more
        """Complete the futures that wait for the process and its pipes."""
        for future in (self.finished, self.closed):
            if not future.done():
                future.set_result(None)


def _kill(transport: asyncio.SubprocessTransport, *, group: bool) -> None:
    """Kill a process if it still runs (SIGKILL).

    ``group``: kill its process group, too, because a child may keep the output open.
    """
    with suppress(ProcessLookupError):
        if group:
            os.killpg(transport.get_pid(), signal.SIGKILL)
        else:
            transport.kill()
