"""An admission webhook over HTTP: reviews in, answers out (extra ``[kube]``)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kscale.libraries import library
from kscale.world.serve.app import Handler

__all__ = ["ANY_PATH", "admission_webhook"]

ANY_PATH: Final = "/{path:.*}"
_TOO_LATE: Final = "the body did not arrive in time\n"
_TOO_LARGE: Final = "request payload too large\n"


def admission_webhook(
    review: Callable[[bytes, float], Awaitable[bytes]],
    *,
    refused: Callable[[str, float], None] = lambda _why, _took: None,
    read_timeout: float = 10.0,
) -> Handler:
    """Return the handler of a webhook: it answers with ``review(body, seconds that reading took)``.

    A body that is longer than the server takes is answered with 413, one that does not arrive within ``read_timeout``
    seconds with 408, and one that is no ``application/json`` with nothing. ``refused`` is called with the reason and
    the seconds that it took.
    """
    web = library("aiohttp.web", "serving a webhook")

    async def answer(request: Any) -> Any:
        begun = time.perf_counter()
        try:
            async with asyncio.timeout(read_timeout):
                body = await request.read()
        except TimeoutError:
            refused("the body did not arrive in time", time.perf_counter() - begun)
            return web.Response(status=408, text=_TOO_LATE)
        except web.HTTPRequestEntityTooLarge:
            refused(_TOO_LARGE.strip(), time.perf_counter() - begun)
            return web.Response(status=413, text=_TOO_LARGE)
        read = time.perf_counter() - begun
        content_type = request.headers.get("Content-Type", "")
        if content_type != "application/json":
            refused(f"contentType={content_type}, expect application/json", read)
            return web.Response()
        return web.Response(body=await review(body, read), content_type="application/json")

    return answer
