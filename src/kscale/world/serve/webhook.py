"""An admission webhook over HTTP: reviews in, answers out (extra ``[kube]``)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kscale.libraries import library
from kscale.world.serve.app import Handler

__all__ = ["ANY_PATH", "admission_webhook"]

ANY_PATH: Final = "/{path:.*}"
_TOO_LARGE: Final = "request payload too large\n"


def admission_webhook(
    review: Callable[[bytes, float], Awaitable[bytes]],
    *,
    refused: Callable[[str, float], None] = lambda _why, _took: None,
) -> Handler:
    """What answers requests: with the answer of ``review(body, seconds that reading took)``.

    A body that is longer than the server takes is answered with 413, one that is no ``application/json`` with nothing;
    ``refused`` is told why, and how many seconds it took.
    """
    web = library("aiohttp.web", "serving a webhook")

    async def answer(request: Any) -> Any:
        begun = time.perf_counter()
        try:
            body = await request.read()
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
