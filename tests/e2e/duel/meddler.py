"""Somebody who is quicker: an admission webhook that changes an object while another write of it is looked at."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Self

import msgspec

from e2e.control_plane import ControlPlane
from e2e.duel.case import Meddling
from kscale.world.serve.app import ANY_PATH, Server, admission_webhook
from kscale.world.serve.tls import ReloadingContext

__all__ = ["Meddler"]

_GROUP = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_MERGE = "application/merge-patch+json"


class Meddler(AbstractAsyncContextManager["Meddler"]):
    """As long as it is entered, writes are looked at; it agrees to all of them."""

    def __init__(self, plane: ControlPlane, meddling: Meddling) -> None:
        self._plane, self._asked = plane, meddling
        self._done = 0
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        at = self._plane.directory
        tls = ReloadingContext(str(at / "server.crt"), str(at / "server.key"))
        handlers = {ANY_PATH: admission_webhook(self._review)}
        server = await self._stack.enter_async_context(Server(handlers, "127.0.0.1:0", tls=tls, most=1 << 20))
        await asyncio.to_thread(self._plane.ask, "POST", _GROUP, self._configuration(server.port))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _review(self, body: bytes, _reading: float) -> bytes:
        if self._done < self._asked.times:
            self._done += 1
            patch = json.loads(json.dumps(self._asked.patch).replace("{n}", str(self._done)))
            await asyncio.to_thread(self._plane.ask, "PATCH", self._asked.path, patch, content_type=_MERGE)
        review = msgspec.json.decode(body)
        answer = {"uid": review["request"]["uid"], "allowed": True}
        return msgspec.json.encode({**{key: review[key] for key in ("apiVersion", "kind")}, "response": answer})

    def _configuration(self, port: int) -> dict[str, Any]:
        bundle = base64.b64encode(self._plane.authority.cert_pem.bytes()).decode()
        rule = {
            "operations": ["UPDATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [self._asked.resource]
        }  # fmt: skip
        webhook = {
            "name": "meddler.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "NoneOnDryRun",
            "failurePolicy": "Fail", "rules": [rule],
            "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": bundle},
        }  # fmt: skip
        return {"metadata": {"name": "meddler"}, "webhooks": [webhook]}
