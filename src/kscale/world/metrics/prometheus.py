"""Prometheus over HTTP (extra ``[kube]``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from kscale.effects import ApiError, Moment, QueryPrometheus
from kscale.errors import InputError
from kscale.libraries import library
from kscale.objects.base import ApiStruct, shortened
from kscale.world.server_data import UnreadableError, read_json

__all__ = ["RESPONSE_BYTES", "Prometheus"]

_NANO: Final = 10**9
_LONGEST_TEXT: Final = 2048
RESPONSE_BYTES: Final = 512 << 20


class _Refusal(ApiStruct):
    error_type: str = ""
    error: str = ""


class Prometheus:
    """Answers :class:`~kscale.effects.QueryPrometheus` (:class:`kscale.world.protocols.History`).

    ``address``: its URL, of http or https (another raises InputError, which does not tell it: there may be a password
    in it); ``authorization``: the header of that name, asked for each time (empty: none); ``insecure``:
    its certificate is not looked at; ``headers``: others of each question; ``timeout``: seconds that a question may
    take (None: who asks says when it has been enough); ``response_bytes``: what is taken of a response, decompressed,
    unless the question says how much.

    Thanos, Mimir (at ``/prometheus``; the tenant is a header, ``X-Scope-OrgID``) and VictoriaMetrics answer alike.
    """

    __slots__ = ("_address", "_authorization", "_headers", "_http", "_insecure", "_response_bytes", "_timeout")

    def __init__(
        self,
        address: str,
        *,
        authorization: Callable[[], str] = lambda: "",
        headers: Mapping[str, str] | None = None,
        insecure: bool = False,
        timeout: float | None = 300.0,
        response_bytes: int = RESPONSE_BYTES,
    ) -> None:
        aiohttp = library("aiohttp", "asking Prometheus")
        if not _is_http(address):
            raise InputError("the address of Prometheus is not a URL that begins with http:// or https://")
        self._http: Any = aiohttp
        self._address = address.rstrip("/")
        self._authorization = authorization
        self._headers = dict(headers or {})
        self._insecure = insecure
        self._response_bytes = response_bytes
        self._timeout = aiohttp.ClientTimeout(total=timeout)

    @property
    def server(self) -> str:
        """Whom it asks: host and port, without what the URL may say of who asks."""
        return urlsplit(self._address).netloc.rpartition("@")[2]

    async def query(self, question: QueryPrometheus) -> bytes | ApiError:
        """The answer as it is."""
        given, path = {"query": question.query}, "query"
        if question.start is None:
            given["time"] = _seconds(question.end)
        else:
            path = "query_range"
            given |= {"start": _seconds(question.start), "end": _seconds(question.end), "step": _seconds(question.step)}
        try:
            header = self._authorization()
            headers = {**self._headers, **({"Authorization": header} if header else {})}
            async with self._http.ClientSession(headers=headers, timeout=self._timeout) as session:
                url = f"{self._address}/api/v1/{path}"
                async with session.post(url, data=given, ssl=not self._insecure) as answer:
                    limit = self._response_bytes if question.most_bytes is None else question.most_bytes
                    body = await _read(answer.content, limit)
                    if body is None:
                        return ApiError(f"it answers more than the {limit:,} bytes allowed")
                    return body if answer.status // 100 == 2 else _refusal(answer.status, body)
        except self._http.InvalidURL:  # whose text is the URL, with the password in it
            return ApiError("its address is not a URL that can be asked")
        except (self._http.ClientError, OSError, TimeoutError) as error:
            return ApiError(str(error) or type(error).__name__)


async def _read(content: Any, most: int) -> bytes | None:
    """The whole; None: it is longer."""
    body = bytearray()
    async for part in content.iter_any():
        body += part
        if len(body) > most:
            return None
    return bytes(body)


def _is_http(address: str) -> bool:
    try:
        return urlsplit(address).scheme in ("http", "https")
    except ValueError:  # a bracket too many, or characters that no host has
        return False


def _refusal(code: int, body: bytes) -> ApiError:
    try:
        refusal = read_json(body, _Refusal)
    except UnreadableError:
        refusal = _Refusal()
    text = f"{refusal.error_type}: {refusal.error}" if refusal.error else f"server answered {code}"
    return ApiError(shortened(text, _LONGEST_TEXT), code)


def _seconds(time: Moment) -> str:
    whole, rest = divmod(time, _NANO)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".") if rest else str(whole)
