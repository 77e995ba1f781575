"""gRPC calls with the behaviour of Go's clients, and certificates for TLS contexts (extra ``[grpc]``)."""

from __future__ import annotations

import ipaddress
import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

from kscale.errors import InputError, Problem
from kscale.files import read_file
from kscale.imports import library

__all__ = [
    "MOST_BYTES",
    "RpcServer",
    "channel",
    "create_client_context",
    "error_text",
    "grpc_library",
    "is_unimplemented",
    "load_authorities",
    "load_pair",
    "read_certificates",
]


def create_client_context() -> ssl.SSLContext:
    """Create a TLS context for clients that trusts the system's certificate authorities.

    Do not use aiohttp's default context: kscale's programs import aiohttp without them, to start faster
    (:func:`~kscale.imports.import_aiohttp_without_authorities`).
    """
    return ssl.create_default_context()


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate (with its chain) and its key, both PEM, into a context.

    Raises :class:`ssl.SSLError` if they are invalid or do not match. Do not use the context after an error.
    """
    with _file(certificate) as chain, _file(key) as secret:
        # An encrypted key must fail here; OpenSSL would prompt for its password on the terminal.
        context.load_cert_chain(chain, secret, password=_refuse_password)


def load_authorities(context: ssl.SSLContext, data: bytes, source: str) -> None:
    """Make a context trust the authorities whose certificates (PEM) are in ``data``.

    Raises InputError, which names ``source``, if the data contains no certificate. As in Go, any text may surround the
    certificates.
    """
    text = data.decode("ascii", "replace").replace("\ufffd", "?")  # OpenSSL's binding takes ASCII only
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):  # ValueError: there is no data
        raise InputError(Problem("there is no certificate in it (PEM is expected)", source)) from None


def _refuse_password() -> str:
    """Raise :class:`ssl.SSLError` instead of returning a password."""
    raise ssl.SSLError("the key is encrypted")


@contextmanager
def _file(data: bytes) -> Iterator[str]:
    """Yield a path from which the data can be read, in memory if the system supports it. Removed afterwards."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("pem", os.MFD_CLOEXEC)
        try:
            os.write(number, data)
            yield f"/proc/self/fd/{number}"
        finally:
            os.close(number)
        return
    with tempfile.NamedTemporaryFile() as file:  # created with mode 0600
        file.write(data)
        file.flush()
        yield file.name


MOST_BYTES: Final = 128 << 20
_GO_NAMES: Final = {"CANCELLED": "Canceled", "OK": "OK"}  # Go's spelling


def grpc_library(what: str) -> Any:
    """Return the module ``grpc``.

    Raises :class:`~kscale.errors.MissingExtraError` if it is not installed. ``what`` is the purpose that the message
    names.
    """
    # Programs that kscale starts do not use its gRPC. The handlers of forks would stop gRPC's threads for each of them,
    # and write to stderr.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    return library("grpc", what)


class RpcServer:
    """Context manager that runs a gRPC server. Subclasses create ``grpc.Server`` and add its handlers."""

    _server: Any

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(None).wait()

    def wait(self) -> None:
        """Wait until the server is stopped."""
        self._server.wait_for_termination()

    def stop(self) -> None:
        """Stop the server; calls in progress fail."""
        self._server.stop(None)


def channel(url: str, credentials: Any, *, what: str, message_bytes: int = MOST_BYTES) -> Any:
    """Create a gRPC channel to ``url``, which connects on first use. ``credentials`` None means no TLS.

    A call fails if its response is larger than ``message_bytes``. ``what``: purpose of the channel, for error messages.

    Raises :class:`~kscale.errors.MissingExtraError` if grpcio is not installed.
    """
    grpc = grpc_library(what)
    options = [
        ("grpc.max_receive_message_length", message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.enable_http_proxy", int(not _is_loopback(url))),
    ]
    if credentials is None:
        return grpc.insecure_channel(url, options=options)
    return grpc.secure_channel(url, credentials, options=options)


def error_text(error: Any) -> str:
    """Format an error of a call as Go's client does."""
    code = error.code().name
    name = _GO_NAMES.get(code) or "".join(part.capitalize() for part in code.split("_"))
    return f"rpc error: code = {name} desc = {error.details()}"


def is_unimplemented(error: Any) -> bool:
    """Check whether a call failed with this error because the server does not implement the method."""
    return bool(error.code().name == "UNIMPLEMENTED")


def read_certificates(path: str | os.PathLike[str]) -> bytes:
    """Read a PEM file. Raises InputError if it contains no certificate, OSError if it cannot be read."""
    data = read_file(path)
    load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), data, os.fspath(path))
    return data


def _is_loopback(url: str) -> bool:
    """Check whether the server is on this machine. Go's client then uses no proxy, but grpcio would."""
    host = url.rpartition("/")[2].rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
