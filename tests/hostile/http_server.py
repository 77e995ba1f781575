"""The API server in memory over HTTP on loopback, with faults: bytes go out as a fault wants them."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self
from urllib.parse import parse_qsl, urlsplit

from kscale.effects import to_text
from kscale.world.kubernetes.transport import Call, ConnectionFailedError, Stream
from unit.world.fake_api_objects import FakeWatch, Object, RefusalError
from unit.world.fake_api_server import FakeApiServer

__all__ = ["COMMAND", "Api", "Fault", "HostileServer", "Request", "chunk", "head", "response"]

COMMAND: Final = "/command-"
"""What a path of a command begins with."""
_LOG: Final = 4000
_NUMBER = re.compile(r"\d{1,18}")


class Api(FakeApiServer):
    """The fake API server, which refuses versions as a real one does, and whose metrics are never old."""

    def _list(self, resource: Any, namespace: str, call: Call) -> Object:
        self._check_known(call)
        if resource.group == "metrics.k8s.io":
            for each in self.kinds.get(resource.group_resource, {}).values():
                each["timestamp"] = to_text(self.clock.now())
        return super()._list(resource, namespace, call)

    def _watch(self, call: Call) -> FakeWatch:
        self._check_known(call)
        if len(self.log) > _LOG:
            self.compact()
        version = dict(call.query).get("resourceVersion") or "0"
        if int(version) > self.version:
            text = f"Too large resource version: {version}, current: {self.version}"
            raise RefusalError(504, "Timeout", text, causes=[{"reason": "ResourceVersionTooLarge", "message": text}])
        return super()._watch(call)

    def _check_known(self, call: Call) -> None:
        version = dict(call.query).get("resourceVersion", "")
        if version and not _NUMBER.fullmatch(version):
            raise RefusalError(400, "BadRequest", f"invalid resource version: {version!r}")


class Request(NamedTuple):
    """One request. ``program`` is who asks: a program by its user agent, a command by the path of its server."""

    call: Call
    program: str

    @property
    def is_watch(self) -> bool:
        return dict(self.call.query).get("watch") in ("true", "True", "1")  # as Go's ParseBool reads it

    @property
    def is_list(self) -> bool:
        return self.call.method == "GET" and not self.is_watch and not self.is_discovery and not self._is_one

    @property
    def is_discovery(self) -> bool:
        parts = self.call.path.strip("/").split("/")
        return (parts[0] == "api" and len(parts) <= 2) or (parts[0] == "apis" and len(parts) <= 3)

    @property
    def is_metrics(self) -> bool:
        return self.call.path.startswith("/apis/metrics.k8s.io/") and not self.is_discovery

    @property
    def _is_one(self) -> bool:
        parts = self.call.path.strip("/").split("/")
        rest = parts[2 if parts[0] == "api" else 3 :]
        if len(rest) > 2 and rest[0] == "namespaces":
            rest = rest[2:]
        return len(rest) > 1


class Fault:
    """What goes wrong while it is on.

    ``applies``: to which requests. ``answer`` writes what is sent in place of the answer (None: the answer as it is);
    ``rewrite`` changes the body of an answer; ``lines`` are sent in every watch. ``relists``: watches are expired, and
    streaming lists refused, so that everything is listed.
    """

    def __init__(
        self,
        *,
        applies: Callable[[Request], bool] = lambda _: True,
        answer: Callable[[Connection, Request], Any] | None = None,
        rewrite: Callable[[bytes], bytes] | None = None,
        lines: bytes = b"",
        relists: bool = False,
    ) -> None:
        self.applies, self.answer, self.rewrite = applies, answer, rewrite
        self.lines, self.relists = lines, relists


def head(status: str = "200 OK", *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode()


def response(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    return head(status, "Content-Type: application/json", f"Content-Length: {len(body)}", *headers) + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Connection:
    """One connection of a program."""

    def __init__(self, server: HostileServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server, self.reader, self.writer = server, reader, writer
        self.watch = ""

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until_over(self) -> None:
        """Wait until the fault is off, or the program has hung up."""
        over = asyncio.ensure_future(self.server.off.wait())
        hung_up = asyncio.ensure_future(self.reader.read())
        try:
            await asyncio.wait([over, hung_up], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (over, hung_up):
                task.cancel()

    async def flood(self, piece: bytes, most: int = 256 << 20) -> None:
        """Send the same bytes again and again while the fault is on."""
        sent = 0
        while not self.server.off.is_set() and sent < most:
            await self.send(piece)
            sent += len(piece)
            await asyncio.sleep(0)

    def abort(self) -> None:
        self.writer.transport.abort()

    async def serve(self) -> None:
        while (request := await self._read()) is not None:
            await self.server.admitted(request.program)
            fault = self.server.fault
            applies = fault is not None and fault.applies(request)
            if applies:
                self.server.hits[request.program] += 1
            if applies and fault is not None and fault.answer is not None:
                await fault.answer(self, request)
                return
            if request.is_watch:
                await self._watch(request, applies)
                return
            answer = await self.server.api.call(request.call)
            body = answer.body
            if applies and fault is not None and fault.rewrite is not None:
                body = fault.rewrite(body)
            headers = [f"{name}: {value}" for name, value in answer.headers.items() if name != "content-type"]
            await self.send(response(body, f"{answer.status} X", *headers))

    async def _read(self) -> Request | None:
        try:
            text = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = text.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = int(headers.get("content-length", "0"))
        body = await self.reader.readexactly(size) if size else None
        parts = urlsplit(target)
        path, command = parts.path, ""
        if path.startswith(COMMAND):
            command, _, path = path.removeprefix(COMMAND).partition("/")
            path = f"/{path}"
        call = Call(
            method=method,
            path=path,
            query=tuple(parse_qsl(parts.query, keep_blank_values=True)),
            body=body,
            content_type=headers.get("content-type", ""),
        )
        agent = headers.get("user-agent", "").partition("/")[0].partition(" ")[0]
        return Request(call, command or agent)

    async def _watch(self, request: Request, applies: bool) -> None:
        fault = self.server.fault
        refused = fault is not None and fault.relists and "sendInitialEvents" in dict(request.call.query)
        if refused:
            body = json.dumps(RefusalError(422, "Invalid", "sendInitialEvents is forbidden").body).encode()
            await self.send(response(body, "422 X"))
            return
        async with self.server.api.stream(request.call) as stream:
            if stream.status != 200:
                await self.send(response(await stream.read(), f"{stream.status} X"))
                return
            await self.send(head("200 OK", "Content-Type: application/json", "Transfer-Encoding: chunked"))
            self.watch = request.program
            self.server.watches.add(self)
            try:
                if applies and fault is not None and fault.lines:
                    await self.send(chunk(fault.lines))
                await self._pass_on(stream)
            finally:
                self.server.watches.discard(self)

    async def _pass_on(self, stream: Stream) -> None:
        hung_up = asyncio.ensure_future(self.reader.read())
        try:
            while not hung_up.done():
                some = asyncio.ensure_future(stream.read_some())
                await asyncio.wait([some, hung_up], return_when=asyncio.FIRST_COMPLETED)
                if not some.done():
                    some.cancel()
                    return
                try:
                    data = some.result()
                except ConnectionFailedError:
                    self.abort()
                    return
                if not data:
                    await self.send(b"0\r\n\r\n")
                    return
                await self.send(chunk(data))
        finally:
            hung_up.cancel()


class HostileServer:
    """``hits``: how many requests a fault was for, by program or command. A command waits until it is admitted."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.fault: Fault | None = None
        self.off = asyncio.Event()
        self.off.set()
        self.hits: Counter[str] = Counter()
        self.watches: set[Connection] = set()
        self._gates: dict[str, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await self.listen()
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def listen(self, tls: ssl.SSLContext | None = None) -> asyncio.Server:
        """Serve on one more port."""
        return await asyncio.start_server(self._handle, "127.0.0.1", 0, limit=1 << 24, ssl=tls)

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.off.set()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def hold(self, command: str) -> None:
        """Let a command wait with its first request."""
        self._gates[command] = asyncio.Event()

    def admit(self, command: str) -> None:
        """Let a command go on."""
        self._gates[command].set()

    async def admitted(self, program: str) -> None:
        """Wait until a program or command may go on."""
        if (gate := self._gates.get(program)) is not None:
            await gate.wait()

    async def begin(self, fault: Fault) -> None:
        """Let something go wrong."""
        self.hits.clear()
        self.off.clear()
        self.fault = fault
        if fault.relists:
            self.api.fail_watches(410, "Expired")
        if fault.lines:
            for each in list(self.watches):
                self.hits[each.watch] += 1
                with suppress(ConnectionError):
                    await each.send(chunk(fault.lines))

    def end(self) -> None:
        """Behave again: what a fault holds open is closed."""
        self.fault = None
        self.off.set()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection = Connection(self, reader, writer)
        try:
            with suppress(ConnectionError, asyncio.CancelledError, asyncio.LimitOverrunError, ssl.SSLError):
                await connection.serve()
        finally:
            self._tasks.discard(task)
            writer.close()
