"""Client and server of the gRPC expander (upstream: ``expander/grpcplugin``)."""

from __future__ import annotations

import logging
import os
import ssl
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Self

from kscale.drivers.expander_protocol import METHOD, Question, Request, answer_of, answered_groups
from kscale.effects import ApiError, Ranking, RankOptions
from kscale.errors import InputError, Problem
from kscale.files import read_file
from kscale.world.protocols import Ranker
from kscale.world.rpc import MOST_BYTES, RpcServer, channel, error_text, grpc_library, load_pair, read_certificates

__all__ = ["ExpanderServer", "GrpcExpander"]


TIMEOUT: Final = 5.0


class GrpcExpander:
    """Client of a gRPC expander server; it can be ``rank`` of :func:`kscale.scale_up` and :func:`kscale.ca.expand`.

    It answers :class:`~kscale.effects.RankOptions` by a request to the server at ``url`` (``host:port``) over TLS
    (extra ``[grpc]``). ``cert`` is the file with the CA certificates, PEM, for the server's certificate; there is no
    connection without TLS. A call takes at most ``timeout`` seconds, a response at most 128 MiB. A failure is returned
    as an :class:`~kscale.effects.ApiError`. It connects on first use and is thread-safe.

    Raises InputError without ``url`` or ``cert`` or for a file without certificates, OSError for one that cannot be
    read, :class:`~kscale.errors.MissingExtraError` without grpcio.
    """

    def __init__(self, url: str, cert: str | os.PathLike[str], *, timeout: float = TIMEOUT) -> None:
        if not os.fspath(cert):
            raise InputError("GRPC Expander Cert not specified, insecure connections not allowed")
        if not url:
            raise InputError("the grpc expander needs the url of its server")
        grpc = grpc_library("the grpc expander")
        self._errors: Any = grpc.RpcError
        self._timeout = timeout
        credentials = grpc.ssl_channel_credentials(root_certificates=read_certificates(cert))
        self._channel = channel(url, credentials, what="the grpc expander")
        self._ask = self._channel.unary_unary(METHOD)

    def __call__(self, question: RankOptions) -> Ranking | ApiError:
        try:
            request = Request(question)
        except UnicodeEncodeError:
            return ApiError("rpc error: code = Internal desc = grpc: error while marshaling: invalid UTF-8")
        try:
            return Ranking(groups=tuple(answered_groups(self._request(request.data))), warnings=request.warnings)
        except ValueError as error:
            text = f"rpc error: code = Internal desc = grpc: failed to unmarshal the received message: {error}"
            return ApiError(text)
        except self._errors as error:
            return ApiError(error_text(error))

    def _request(self, request: bytes) -> bytes:
        """Send a request and return the response, both as bytes. Raises grpc.RpcError if the call fails."""
        response: bytes = self._ask(request, timeout=self._timeout)
        return response

    def close(self) -> None:
        """Close the connection; calls in progress fail."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_log = logging.getLogger(__name__)
_CALLS: Final = 4


class ExpanderServer(RpcServer):
    """gRPC server of the ranker ``rank``, over TLS, while it is entered as a context manager.

    ``address``: ``host:port`` (port 0: any free port); ``url``: the actual address. ``cert``, ``key``: files in PEM.
    ``client_ca``: clients must present a certificate that this file's CA has signed (upstream's presents none). An
    :class:`~kscale.effects.ApiError` or exception of the ranker becomes an error of the call: the autoscaler then keeps
    all options.

    Raises InputError for files that cannot be used and an address that is taken, MissingExtraError without grpcio.
    """

    def __init__(self, rank: Ranker, address: str, *, cert: str, key: str, client_ca: str = "") -> None:
        grpc = grpc_library("serving an expander")
        self._codes: Any = grpc.StatusCode
        self._rank = rank
        limits = [("grpc.max_receive_message_length", MOST_BYTES), ("grpc.so_reuseport", 0)]
        self._server = grpc.server(ThreadPoolExecutor(_CALLS), options=limits)
        service, _, method = METHOD.removeprefix("/").rpartition("/")
        handler = grpc.unary_unary_rpc_method_handler(self._best_options)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        credentials = grpc.ssl_server_credentials(
            [_pair(cert, key)],
            root_certificates=_read(client_ca) if client_ca else None,
            require_client_auth=bool(client_ca),
        )
        try:
            port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise InputError(Problem(f"nothing can be served at {address}: {error}")) from None
        self.url = f"{address.rpartition(':')[0]}:{port}"

    def _best_options(self, data: bytes, context: Any) -> bytes:
        """Handle a call: decode the request, rank its options, and return the encoded response."""
        try:
            question = Question(data)
            for warning in question.warnings:
                _log.warning("%s", warning)
            ranking = self._rank(question.asked)
        except InputError as error:
            ranking = ApiError(str(error))
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            _log.exception("the ranker failed")
            ranking = ApiError(f"{type(error).__name__}: {error}")
        if isinstance(ranking, ApiError):
            _log.error("no answer: %s", ranking.message)
            context.abort(self._codes.UNKNOWN, ranking.message)
        assert not isinstance(ranking, ApiError)  # abort raises
        for warning in ranking.warnings:
            _log.warning("%s", warning)
        _log.info("of %d options: %s", len(question.asked.options), ", ".join(map(str, ranking.groups)) or "none")
        return answer_of(ranking)


def _pair(cert: str, key: str) -> tuple[bytes, bytes]:
    """Read a key and its certificate, and return (key, certificate). Raises InputError if they do not match.

    gRPC itself only reports that the address cannot be bound.
    """
    chain, secret = _read(cert), _read(key)
    try:
        load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), chain, secret)
    except ssl.SSLError as error:
        raise InputError(Problem(f"no certificate and key that belong together: {error}", f"{cert}, {key}")) from None
    return secret, chain


def _read(path: str) -> bytes:
    """Return the content of a file. Raises InputError if it cannot be read."""
    try:
        return read_file(path)
    except OSError as error:
        raise InputError(Problem(error.strerror or str(error), path)) from None
