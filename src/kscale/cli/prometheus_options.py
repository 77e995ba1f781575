"""Options for the Prometheus server to query and for limits on the queries."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from kscale.cli.options import OptionGroup, fields, option_errors
from kscale.cli.terminal import plural
from kscale.effects import Moment, QueryPrometheus, moment
from kscale.errors import InputError, Problem
from kscale.files import read_file
from kscale.imports import lazy_pattern

if TYPE_CHECKING:
    from kscale.cli.terminal import Terminal
    from kscale.series import Series
    from kscale.series.usage_reader import UsageBatch
    from kscale.world.prometheus import Prometheus, RangeQueries

__all__ = ["PrometheusFlags", "UsageFlags"]

_T = TypeVar("_T")
_LABEL: Final = lazy_pattern(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass
class PrometheusFlags(OptionGroup):
    """Options for a server with Prometheus' HTTP API.

    Thanos, Mimir (whose URL ends in ``/prometheus``) and VictoriaMetrics have this API as well.

    Attributes
    ----------
    prometheus_url : URL
        URL of Prometheus, or of Thanos, Mimir (.../prometheus) or VictoriaMetrics, to read the history from.
    prometheus_header : NAME:VALUE
        HTTP header of each query, such as X-Scope-OrgID:team. Repeatable.
    prometheus_bearer_token_file : FILE
        File that contains the bearer token for Prometheus; it is read for each query.
    prometheus_insecure
        Do not verify Prometheus's TLS certificate.
    history_length
        Length of the history to load (default 8d).
    history_resolution
        Time between two samples of the history (default 5m).
    prometheus_concurrency
        Number of queries in flight at a time (default 4).
    prometheus_budget : BYTES
        Maximum size of all responses together (default 4Gi).
    prometheus_max_response_bytes : BYTES
        Maximum size of a response, decompressed (default 512 MiB).
    prometheus_query_timeout : TIME
        Timeout of one Prometheus query (default 5m).
    """

    title = "Prometheus"
    common = ("prometheus_url",)

    prometheus_url: str = ""
    prometheus_header: list[str] | None = None
    prometheus_bearer_token_file: Path | None = None
    prometheus_insecure: bool = False
    history_length: str | None = None
    history_resolution: str | None = None
    prometheus_concurrency: Annotated[int | None, typer.Option(min=1)] = None
    prometheus_budget: str | None = None
    prometheus_max_response_bytes: Annotated[int | None, typer.Option(min=1 << 16)] = None
    prometheus_query_timeout: str | None = None

    def check(self) -> None:
        """Raise BadParameter for options that have no effect."""
        if self.prometheus_url:
            return
        for name in fields(type(self)):
            if name != "prometheus_url" and getattr(self, name) not in (None, False, []):
                raise typer.BadParameter("needs --prometheus-url", param_hint="--" + name.replace("_", "-"))

    def series(self, expressions: Sequence[str], now: Moment | None, terminal: Terminal) -> list[Series]:
        """Run the queries one after the other and return the series of each, up to ``now`` (None: the clock's time).

        Logs the number of queries and bytes, and warns with the server's warnings. Raises InputError if a query fails,
        and typer.BadParameter for a malformed option.
        """
        from kscale.world.prometheus import series_of

        start, end, step = self._range(now)
        queries, server = self._queries()

        async def one_by_one() -> list[Series]:
            """Run the queries one after the other."""
            requests = [QueryPrometheus(query=query, start=start, end=end, step=step) for query in expressions]
            return [await series_of(queries, request) for request in requests]

        series = asyncio.run(one_by_one())
        _note(queries, server, terminal)
        return series

    def _range(self, now: Moment | None) -> tuple[Moment, Moment, int]:
        """Return (start, end, step) in nanoseconds, with start and end at whole steps since 1970.

        ``now``: the end (None: the clock's time). Raises typer.BadParameter for a malformed option.
        """
        step = _duration("5m" if self.history_resolution is None else self.history_resolution, "--history-resolution")
        length = _duration("8d" if self.history_length is None else self.history_length, "--history-length")
        end = (moment(datetime.now(UTC)) if now is None else now) // step * step
        return end - length, end, step

    def _queries(self) -> tuple[RangeQueries, str]:
        """Return (runner of range queries, name of the server). Raises typer.BadParameter for a malformed option."""
        from kscale.world.prometheus import RangeLimits, RangeQueries

        limits = RangeLimits()
        if self.prometheus_concurrency is not None:
            limits = replace(limits, concurrency=self.prometheus_concurrency)
        if self.prometheus_budget is not None:
            limits = replace(limits, total_bytes=_bytes(self.prometheus_budget, "--prometheus-budget"))
        client = self._client()
        return RangeQueries(client.query, limits, source=client.url), client.server

    def _client(self) -> Prometheus:
        """Create the client of the Prometheus server. Raises typer.BadParameter for a malformed option."""
        from kscale.series.prometheus import authorization
        from kscale.world.prometheus import RESPONSE_BYTES, Prometheus

        timeout = "5m" if self.prometheus_query_timeout is None else self.prometheus_query_timeout
        file = self.prometheus_bearer_token_file

        def token() -> str:
            """Return the Authorization header from the token file; empty without a file.

            Raises InputError if the file cannot be read.
            """
            if file is None:
                return ""
            try:
                return authorization(bearer_token=read_file(file).decode().strip())
            except (OSError, UnicodeDecodeError) as error:
                text = getattr(error, "strerror", None) or str(error)
                raise InputError(Problem(text, str(file), field="--prometheus-bearer-token-file")) from None

        headers = dict(_header(text) for text in self.prometheus_header or ())
        return Prometheus(
            self.prometheus_url,
            authorization=token,
            headers=headers,
            insecure=self.prometheus_insecure,
            timeout=_duration(timeout, "--prometheus-query-timeout") / 10**9,
            response_bytes=self.prometheus_max_response_bytes or RESPONSE_BYTES,
        )


@dataclass
class UsageFlags(PrometheusFlags):
    """As :class:`PrometheusFlags`, for the usage of containers.

    Attributes
    ----------
    prometheus_label : NAME=VALUE
        Only series with this label, such as cluster=prod. Repeatable.
    """

    prometheus_label: list[str] | None = None

    def batches(self, namespaces: Sequence[str], now: Moment | None, terminal: Terminal) -> Iterator[UsageBatch]:
        """Yield the usage of containers up to ``now`` (None: the clock's time).

        ``namespaces``: those to read; empty for all. Logs the number of queries and bytes at the end. Raises InputError
        if a query fails, and typer.BadParameter for a malformed option.
        """
        from kscale.world.prometheus import ContainerUsage

        start, end, step = self._range(now)
        labels = [_label(text) for text in self.prometheus_label or ()]
        usage = ContainerUsage(start=start, end=end, step=step, namespaces=namespaces, labels=labels)
        queries, server = self._queries()
        yield from _run(usage.batches(queries))
        _note(queries, server, terminal)


def _note(queries: RangeQueries, server: str, terminal: Terminal) -> None:
    """Log the number of queries and received bytes, and the server's warnings."""
    traffic = queries.traffic
    for text in traffic.warnings:
        terminal.warn(f"{server}: {text}")
    terminal.note(
        f"{traffic.queries:,} {plural('query', traffic.queries)} of {server}: {traffic.received / 1e6:,.1f} MB"
    )


def _bytes(text: str, option: str) -> int:
    """Parse a quantity of bytes. Raises typer.BadParameter if it is malformed or below 1."""
    from kscale.objects.quantity import Quantity, QuantityError

    try:
        size = Quantity(text).value()
    except QuantityError:
        raise typer.BadParameter(f"{text!r} is not a quantity", param_hint=option) from None
    if size < 1:
        raise typer.BadParameter(f"{text} is less than a byte", param_hint=option)
    return size


def _duration(text: str, option: str) -> int:
    """Parse a Prometheus duration as nanoseconds. Raises typer.BadParameter if it is malformed or below a second."""
    from kscale.series.prometheus import parse_prometheus_duration

    with option_errors(option):
        nanoseconds = parse_prometheus_duration(text)
    if nanoseconds < 10**9:
        raise typer.BadParameter(f"{text} is less than a second", param_hint=option)
    return nanoseconds


def _header(text: str) -> tuple[str, str]:
    """Split ``NAME:VALUE`` into (name, value). Raises typer.BadParameter if one of them is not valid in HTTP."""
    name, colon, value = text.partition(":")
    if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or not value.strip().isprintable():
        raise typer.BadParameter(f"{name!r}...: NAME:VALUE is expected", param_hint="--prometheus-header")
    return name, value.strip()


def _label(text: str) -> tuple[str, str]:
    """Split ``NAME=VALUE`` into (name, value). Raises typer.BadParameter if the name is not a label's."""
    name, equals, value = text.partition("=")
    if not equals or not _LABEL.fullmatch(name):
        raise typer.BadParameter(f"{text!r}: NAME=VALUE is expected", param_hint="--prometheus-label")
    return name, value


def _run(items: AsyncIterator[_T]) -> Iterator[_T]:
    """Yield the items of an asynchronous iterator, none of which may be None: None would end the iteration.

    The iterator's tasks go on only while the next item is awaited.
    """

    async def next_item() -> Any:
        """Return the next item; None after the last."""
        return await anext(items, None)

    with asyncio.Runner() as runner:
        while (item := runner.run(next_item())) is not None:
            yield item
