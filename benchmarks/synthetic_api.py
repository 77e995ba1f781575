"""API servers for clusters larger than a real one on this machine can hold: one of pages that were written before.

Lists of pods are pages of 500, compressed as an API server does it; all other kinds are those of the tests' fake
server, which has no lists by a watch (as that of Kubernetes 1.33). ``python benchmarks/synthetic_api.py DIRECTORY``
serves what :class:`SyntheticPlane` has written there, over TLS, on the port that it said.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import secrets
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import trustme
from aiohttp import web

from e2e.control_plane import free_ports
from kscale.capacity.generate import generate
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.kubeconfig import Access, Pem, Secret
from kscale.world.kubernetes.transport import Call
from unit.world.fake_api_server import FakeApiServer

PODS = "/api/v1/pods"
CHANGES = "/changes"
PAGE = 500
VERSION = 2000
POD = '{"apiVersion":"v1","kind":"Pod",'
LIKE_1_33 = 33


class SyntheticServer:
    """A server as a child, in the place of a control plane: it is run as ``python SCRIPT DIRECTORY``, answers on the
    port that stands there, and may be asked by everybody. A context manager."""

    script = __file__

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "log").mkdir()
        (self._port,) = free_ports(1)
        self.token = secrets.token_hex(16)
        self.authority = trustme.CA()
        (directory / "ca.crt").write_bytes(self.authority.cert_pem.bytes())
        issued = self.authority.issue_cert("127.0.0.1")
        issued.private_key_and_cert_chain_pem.write_to_path(str(directory / "server.pem"))
        (directory / "port").write_text(str(self._port))

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        with (self.directory / "log" / "api.log").open("wb") as log:
            words = [sys.executable, self.script, str(self.directory)]
            self._process = subprocess.Popen(words, stdout=log, stderr=log)
        end = time.monotonic() + 120
        while time.monotonic() < end and self._process.poll() is None:
            with suppress(OSError):
                self._ask("/api")
                return self
            time.sleep(0.2)
        raise RuntimeError((self.directory / "log" / "api.log").read_text())

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def account(self, name: str, rules: Sequence[Mapping[str, Any]], namespace: str = "kube-system") -> Access:
        """Everybody may do everything here."""
        ca = Pem((self.directory / "ca.crt").read_bytes())
        return Access(server=self.url, ca=ca, token=Secret(self.token), namespace=namespace)

    def install(self, objects: Sequence[Mapping[str, Any]], name: str = "") -> Access:
        """So nobody needs an account."""
        return self.account(name, [])

    def config(self, cluster: Mapping[str, Any] | None = None, user: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A kubeconfig as plain data."""
        server = {"server": self.url, "certificate-authority": str(self.directory / "ca.crt"), **(cluster or {})}
        return {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": server}],
            "users": [{"name": "c", "user": dict(user or {})}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        }  # fmt: skip

    def _ask(self, path: str, method: str = "GET") -> bytes:
        context = ssl.create_default_context(cafile=str(self.directory / "ca.crt"))
        request = urllib.request.Request(self.url + path, method=method)
        with urllib.request.urlopen(request, timeout=600, context=context) as answer:
            result: bytes = answer.read()
            return result


class SyntheticPlane(SyntheticServer):
    """Generated nodes and pods, and one pod that waits."""

    def __init__(self, directory: Path, nodes: int, pods: int, waiting: Mapping[str, Any]) -> None:
        super().__init__(directory)
        self.nodes: list[dict[str, Any]] = []
        """Their machines are those of the tests' cloud."""
        others: list[dict[str, Any]] = []
        pages = _pages(_written(nodes, pods, others), json.dumps(waiting))
        for number, page in enumerate(pages):
            (directory / f"page-{number}").write_bytes(gzip.compress(page, 1))
        for each in others:
            if each["kind"] == "Node":
                each["spec"]["providerID"] = f"fake:///{each['metadata']['name']}"
                self.nodes.append(each)
        (directory / "others").write_text(json.dumps(others))
        (directory / "waiting").write_text(json.dumps(waiting))

    def change_pods(self, count: int, seconds: float) -> None:
        """Change ``count`` pods, spread evenly over ``seconds``."""
        self._ask(f"{CHANGES}?count={count}&seconds={seconds}", method="POST")


def _written(nodes: int, pods: int, others: list[dict[str, Any]]) -> Iterator[str]:
    """Texts of pods, with versions; ``others`` gets what is none."""
    version = itertools.count(VERSION - pods)
    for text in generate(nodes, pods, seed=1).texts():
        if not text.startswith(POD):
            others.append(json.loads(text))
            continue
        head, separator, rest = text.partition('"resourceVersion":"')
        yield f"{head}{separator}{max(next(version), 1)}{rest[rest.index(chr(34)) :]}" if separator else text


def _pages(texts: Iterator[str], last: str) -> Iterator[bytes]:
    """Answers to a list of pods, of which one more is the last."""
    number, part = 0, list(itertools.islice(texts, PAGE))
    while part:
        following = list(itertools.islice(texts, PAGE))
        number += 1
        more = f',"continue":"{number}"' if following else ""
        head = f'{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{VERSION}"{more}}},"items":['
        yield (head + ",".join(part if following else [*part, last]) + "]}").encode()
        part = following


async def forwarded(fake: FakeApiServer, request: web.Request) -> web.StreamResponse:
    """What the tests' server answers to a request."""
    call = Call(
        method=request.method, path=request.path, query=tuple(request.query.items()),
        body=await request.read() or None, content_type=request.content_type,
    )  # fmt: skip
    if "watch" not in request.query:
        result = await fake.call(call)
        return web.Response(status=result.status, body=result.body, content_type="application/json")
    async with fake.stream(call) as stream:
        response = web.StreamResponse(status=stream.status, headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while some := await stream.read_some():
            await response.write(some)
            if stream.status != web.HTTPOk.status_code:
                break
    return response


class _Server:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fake = FakeApiServer(SystemClock(), minor=LIKE_1_33)
        plurals = {each.kind: plural for plural, each in self._fake.served.items()}
        for each in json.loads((directory / "others").read_text()):
            self._fake.put(plurals[each["kind"]], each)
        self._fake.put("pods", json.loads((directory / "waiting").read_text()))
        self._watches: list[web.StreamResponse] = []
        page = json.loads(gzip.decompress((directory / "page-0").read_bytes()))
        self._pods, self._version = page["items"], itertools.count(10 * VERSION)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == CHANGES:
            return await self._change(int(request.query["count"]), float(request.query["seconds"]))
        if request.path == PODS and request.method == "GET" and "fieldSelector" not in request.query:
            return await (self._watch(request) if "watch" in request.query else self._page(request))
        return await forwarded(self._fake, request)

    async def _page(self, request: web.Request) -> web.Response:
        body = (self._directory / f"page-{request.query.get('continue') or 0}").read_bytes()
        return web.Response(body=body, headers={"Content-Type": "application/json", "Content-Encoding": "gzip"})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        if "sendInitialEvents" in request.query:
            return web.json_response({"kind": "Status", "code": 422, "reason": "Invalid"}, status=422)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self._watches.append(response)
        await asyncio.Event().wait()
        return response

    async def _change(self, count: int, seconds: float) -> web.Response:
        begun = time.monotonic()
        for number in range(count):
            pod = self._pods[number % len(self._pods)]
            pod["metadata"]["annotations"] = {"changed": str(number)}
            pod["metadata"]["resourceVersion"] = str(next(self._version))
            line = json.dumps({"type": "MODIFIED", "object": pod}, separators=(",", ":")).encode() + b"\n"
            for watch in list(self._watches):
                try:
                    await watch.write(line)
                except OSError:
                    self._watches.remove(watch)  # who watched is gone
            await asyncio.sleep(max(begun + number * seconds / count - time.monotonic(), 0))
        return web.Response()


def serve(directory: Path, answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> None:
    """Answers over TLS on the port of a :class:`SyntheticServer`, until it is told to stop."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "server.pem")
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", answer)
    port = int((directory / "port").read_text())
    web.run_app(app, host="127.0.0.1", port=port, ssl_context=context, print=None, access_log=None)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), _Server(Path(sys.argv[1])).answer)
