"""Options that bound what an API server can send, of programs and of commands that read a live cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kscale.cli.options import OptionGroup
from kscale.errors import InputError, Problem

if TYPE_CHECKING:
    from kscale.world.kubernetes.transport import ServerLimits

__all__ = ["ServerLimitFlags"]

_LIMITS: Final = "Limits of what an API server sends"


@dataclass
class ServerLimitFlags(OptionGroup):
    """How much is taken from an API server."""

    kube_api_max_response_bytes: Annotated[
        int,
        typer.Option(
            "--kube-api-max-response-bytes",
            metavar="BYTES",
            min=1 << 16,
            help="Largest response of an API server, decompressed; also the events of a watch that wait.",
            rich_help_panel=_LIMITS,
        ),
    ] = 256 << 20
    kube_api_max_buffered_bytes: Annotated[
        int,
        typer.Option(
            "--kube-api-max-buffered-bytes",
            metavar="BYTES",
            min=1 << 16,
            help="Size of all responses of an API server that are being read at once; further ones wait.",
            rich_help_panel=_LIMITS,
        ),
    ] = 256 << 20
    kube_api_max_list_pages: Annotated[
        int,
        typer.Option(
            "--kube-api-max-list-pages",
            metavar="N",
            min=1,
            help="Largest number of pages of a list; a page has up to 500 objects.",
            rich_help_panel=_LIMITS,
        ),
    ] = 2000
    kube_api_max_line_bytes: Annotated[
        int,
        typer.Option(
            "--kube-api-max-line-bytes",
            metavar="BYTES",
            min=1 << 12,
            help="Longest line of a watch.",
            rich_help_panel=_LIMITS,
        ),
    ] = 16 << 20
    kube_api_max_header_bytes: Annotated[
        int,
        typer.Option(
            "--kube-api-max-header-bytes",
            metavar="BYTES",
            min=1 << 8,
            help="Longest header of a response.",
            rich_help_panel=_LIMITS,
        ),
    ] = 16 << 10
    kube_api_request_timeout: Annotated[
        str,
        typer.Option(
            "--kube-api-request-timeout",
            metavar="DURATION",
            help="Time for a whole response, or for the headers of a watch.",
            rich_help_panel=_LIMITS,
        ),
    ] = "1m0s"
    kube_api_max_retry_after: Annotated[
        str,
        typer.Option(
            "--kube-api-max-retry-after",
            metavar="DURATION",
            help="Longest Retry-After that is waited for; a longer one counts as this.",
            rich_help_panel=_LIMITS,
        ),
    ] = "30s"

    def limits(self) -> ServerLimits:
        """How much is taken from an API server. Raises InputError."""
        from kscale.cli.process_flags import go_duration
        from kscale.world.kubernetes.transport import ServerLimits

        request = go_duration(self.kube_api_request_timeout, "--kube-api-request-timeout").total_seconds()
        if request <= 0:
            raise InputError(Problem("must be more than 0", field="--kube-api-request-timeout"))
        retry = go_duration(self.kube_api_max_retry_after, "--kube-api-max-retry-after").total_seconds()
        return ServerLimits(
            response_bytes=self.kube_api_max_response_bytes,
            buffered_bytes=self.kube_api_max_buffered_bytes,
            list_pages=self.kube_api_max_list_pages,
            line_bytes=self.kube_api_max_line_bytes,
            header_bytes=self.kube_api_max_header_bytes,
            request_seconds=request,
            retry_seconds=retry,
        )
