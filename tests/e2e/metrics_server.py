"""A metrics server: ``metrics.k8s.io`` behind the API server's aggregation, on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Callable
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from e2e.control_plane import ControlPlane, Refused
from kscale.effects import Moment, to_text

__all__ = ["FakeMetrics"]

GROUP = "metrics.k8s.io"
VERSION = f"{GROUP}/v1beta1"


class FakeMetrics:
    """``usage(pod, container)`` says what a container of a running pod (plain data) uses, as resource -> quantity;
    None: there is no sample. ``now`` says of which moment the samples are that are asked for, ``window`` what time they
    stand for. ``listed``: how often samples were asked for.

    An async context manager; entering it registers the API.
    """

    def __init__(self, plane: ControlPlane, usage: Callable[[dict[str, Any], str], dict[str, str] | None]) -> None:
        self._plane = plane
        self.usage = usage
        self.now: Callable[[], str] = lambda: "2026-01-01T00:00:00Z"
        self.window = "30s"
        self.listed = 0
        self._writers: set[asyncio.StreamWriter] = set()

    def sampled(self, at: Moment, *, window: int) -> None:
        """From now on samples are those of one moment, whenever somebody asks, and stand for ``window`` seconds."""
        moment = to_text(at) or ""
        self.now, self.window = lambda: moment, f"{window}s"

    async def __aenter__(self) -> Self:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._plane.directory / "server.crt", self._plane.directory / "server.key")
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", 0, ssl=context)
        port = self._server.sockets[0].getsockname()[1]
        await asyncio.to_thread(self._register, port)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._unregister)
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()
        while self._writers:
            await asyncio.sleep(0.01)  # what is aborted ends in the loop's next turns

    def _register(self, port: int) -> None:
        self._unregister()
        # A service without endpoints: the API server goes to the name itself.
        spec: dict[str, Any] = {"type": "ExternalName", "externalName": "localhost"}
        service = {"metadata": {"name": "metrics-server", "namespace": "kube-system"}, "spec": spec}
        with contextlib.suppress(Refused):
            self._plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "kube-system"}})
        self._plane.ask("POST", "/api/v1/namespaces/kube-system/services", service)
        api = {
            "metadata": {"name": f"v1beta1.{GROUP}"},
            "spec": {
                "service": {"name": "metrics-server", "namespace": "kube-system", "port": port},
                "group": GROUP, "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                "insecureSkipTLSVerify": True,
            },
        }  # fmt: skip
        self._plane.ask("POST", "/apis/apiregistration.k8s.io/v1/apiservices", api)

    def _unregister(self) -> None:
        for path in (
            f"/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.{GROUP}",
            "/api/v1/namespaces/kube-system/services/metrics-server",
        ):
            with contextlib.suppress(Refused):
                self._plane.ask("DELETE", path)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        # The API server asks no more, or is away itself and cannot be asked for pods.
        with contextlib.suppress(asyncio.IncompleteReadError, OSError, Refused, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                code, data = await self.answer(head.split()[1])
                lines = [
                    f"HTTP/1.1 {code} OK",
                    "Content-Type: application/json",
                    f"Content-Length: {len(data)}",
                    "",
                    "",
                ]
                writer.write("\r\n".join(lines).encode() + data)
                await writer.drain()
        writer.close()
        self._writers.discard(writer)

    async def answer(self, target: str) -> tuple[int, bytes]:
        """The status and body of an answer to a GET of ``target``."""
        parts = urlsplit(target)
        if parts.path == f"/apis/{VERSION}":
            resource = {"name": "pods", "kind": "PodMetrics", "namespaced": True, "verbs": ["get", "list"]}
            return 200, _encoded({"kind": "APIResourceList", "groupVersion": VERSION, "resources": [resource]})
        path = parts.path.removeprefix(f"/apis/{VERSION}")
        if path == parts.path or not path.endswith("/pods"):
            return 404, _encoded({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404})
        selector = parse_qs(parts.query).get("labelSelector", [""])[0]
        return 200, await self._list(path, selector)

    async def _list(self, path: str, selector: str) -> bytes:
        """The samples of pods below ``path`` (of the API of pods) that a selector of labels takes."""
        query = f"?labelSelector={selector}" if selector else ""
        pods = (await asyncio.to_thread(self._plane.ask, "GET", f"/api/v1{path}{query}".replace(" ", "%20")))["items"]
        return _encoded({"kind": "PodMetricsList", "apiVersion": VERSION, "metadata": {}, "items": self._items(pods)})

    def _items(self, pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.listed += 1
        result = []
        for pod in pods:
            if pod.get("status", {}).get("phase") != "Running":
                continue
            usages = {each["name"]: self.usage(pod, each["name"]) for each in pod["spec"]["containers"]}
            containers = [{"name": name, "usage": usage} for name, usage in usages.items() if usage is not None]
            if not containers:
                continue
            metadata = {key: pod["metadata"].get(key) for key in ("name", "namespace", "labels")}
            result.append(
                {"metadata": metadata, "timestamp": self.now(), "window": self.window, "containers": containers}
            )
        return result


def _encoded(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode()
