"""The client of the grpc expander (``expander/grpcplugin/grpc_client.go``): asks a server which options are best."""

from __future__ import annotations

import ipaddress
import os
import ssl
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kscale.drivers.expander_protocol import METHOD, Request, answered_groups
from kscale.effects import ApiError, Ranking, RankOptions
from kscale.errors import InputError, MissingExtraError, Problem

__all__ = ["GrpcExpander"]

TIMEOUT: Final = 5.0
MOST_BYTES: Final = 128 << 20
_SPELLED = {"CANCELLED": "Canceled", "OK": "OK"}  # as Go does


class GrpcExpander:
    """Answers :class:`~kscale.effects.RankOptions` by asking the server at ``url`` (``host:port``) over TLS (extra
    ``[grpc]``): what ``rank`` of :func:`kscale.scale_up` and :func:`kscale.ca.expand` may be.

    ``cert`` is the file with the certificates, PEM, that the server's must be signed by; there is no connection
    without. A call takes ``timeout`` seconds at most, an answer 128 MiB. What fails is an answer too: an
    :class:`~kscale.effects.ApiError`. Connects when first asked; safe for several threads.

    Raises InputError without ``url`` or ``cert`` or for a file without certificates, OSError for one that cannot be
    read, :class:`~kscale.errors.MissingExtraError` without grpcio.
    """

    def __init__(self, url: str, cert: str | os.PathLike[str], *, timeout: float = TIMEOUT) -> None:
        if not os.fspath(cert):
            raise InputError("GRPC Expander Cert not specified, insecure connections not allowed")
        if not url:
            raise InputError("the grpc expander needs the url of its server")
        try:
            import grpc
        except ImportError:
            raise MissingExtraError("the grpc expander", "grpc") from None
        self._errors: Any = grpc.RpcError
        self._timeout = timeout
        self._channel = grpc.secure_channel(
            url,
            grpc.ssl_channel_credentials(root_certificates=_certificates(Path(cert))),
            options=[
                ("grpc.max_receive_message_length", MOST_BYTES),
                ("grpc.max_send_message_length", -1),
                ("grpc.enable_http_proxy", int(not _is_loopback(url))),
            ],
        )
        self._ask = self._channel.unary_unary(METHOD)

    def __call__(self, question: RankOptions) -> Ranking | ApiError:
        try:
            request = Request(question)
        except UnicodeEncodeError:
            return ApiError("rpc error: code = Internal desc = grpc: error while marshaling: invalid UTF-8")
        try:
            return Ranking(groups=tuple(answered_groups(self._asked(request.data))), warnings=request.warnings)
        except ValueError as error:
            text = f"rpc error: code = Internal desc = grpc: failed to unmarshal the received message: {error}"
            return ApiError(text)
        except self._errors as error:
            return ApiError(_text(error))

    def _asked(self, request: bytes) -> bytes:
        response: bytes = self._ask(request, timeout=self._timeout)
        return response

    def close(self) -> None:
        """Ends the connection; calls under way fail."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_loopback(url: str) -> bool:
    """Whether the server is on this machine: Go's client does not ask a proxy for it, grpcio's would."""
    host = url.rpartition("/")[2].rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _certificates(path: Path) -> bytes:
    """The file, if there is a certificate in it."""
    data = path.read_bytes()
    try:
        ssl.create_default_context(cadata=data.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise InputError(Problem("there is no certificate in it (PEM is expected)", os.fspath(path))) from None
    return data


def _text(error: Any) -> str:
    """An error of a call as Go's client words it."""
    code = error.code().name
    spelled = _SPELLED.get(code) or "".join(part.capitalize() for part in code.split("_"))
    return f"rpc error: code = {spelled} desc = {error.details()}"
