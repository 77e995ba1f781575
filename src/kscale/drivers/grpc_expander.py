"""The client of the grpc expander (``expander/grpcplugin/grpc_client.go``): asks a server which options are best."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Final, Self

from kscale.drivers.expander_protocol import METHOD, Request, answered_groups
from kscale.effects import ApiError, Ranking, RankOptions
from kscale.errors import InputError
from kscale.world.rpc import channel, error_text, grpc_library, read_certificates

__all__ = ["GrpcExpander"]

TIMEOUT: Final = 5.0


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
            return Ranking(groups=tuple(answered_groups(self._asked(request.data))), warnings=request.warnings)
        except ValueError as error:
            text = f"rpc error: code = Internal desc = grpc: failed to unmarshal the received message: {error}"
            return ApiError(text)
        except self._errors as error:
            return ApiError(error_text(error))

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
