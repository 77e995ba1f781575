"""A hostile cloud behind gRPC, and its scenarios: they are for the cluster autoscaler alone."""

from __future__ import annotations

import asyncio
import json
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, Final, Self

import grpc

from hostile.http_server import Api
from hostile.programs import free_port
from kscale.objects.protobuf.conversion import encode
from kscale.world.nodegroups.external import LOOP_BYTES, METHODS, SERVICE, message_of

__all__ = ["ROOM", "SCENARIOS", "HostileProvider", "ProviderFault", "ProviderScenario"]

ROOM: Final = 192 << 20
"""Bytes that a program may hold beyond what it held before the first fault."""
TIMEOUT: Final = 1.0
"""Seconds that the program waits for an answer of the cloud."""
_MIB: Final = 1 << 20
_GROUP: Final = "pool"
_SCHEME: Final = "hostile://"

Answer = Callable[[bytes, Any], Awaitable[bytes]]
"""Return the bytes of a response to the bytes of a request; the second argument is the context of the call."""
Answers = dict[str, "bytes | Answer"]
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class ProviderFault:
    """What goes wrong while it is on.

    ``answers``: bytes of responses by method, or functions that return them. ``endless``: methods that respond with one
    message after the other. ``raw``: serves the port in place of the cloud. ``away``: nobody serves it.
    """

    answers: Answers = field(default_factory=dict)
    endless: tuple[str, ...] = ()
    raw: Handler | None = None
    away: bool = False


@dataclass(frozen=True)
class ProviderScenario:
    """``fault``: what goes wrong. ``start``: the program starts while it goes wrong. ``smoke``: in the short run.

    ``room``: bytes that the program may hold beyond what it held before. ``loops``: how many loops it must begin
    meanwhile.
    """

    name: str
    fault: Callable[[], ProviderFault]
    start: bool = False
    smoke: bool = False
    room: int = ROOM
    loops: int = 3


class HostileProvider(grpc.GenericRpcHandler):
    """A cloud with one group, whose instances are the nodes of the API server with the group's label.

    ``hits``: requests that met the fault, by method.
    """

    def __init__(self, api: Api, directory: Path, build_node: Callable[[str, dict[str, str]], dict[str, Any]]) -> None:
        self._api, self._build_node = api, build_node
        self._port = free_port()
        self._fault = ProviderFault()
        self._number = 0
        self._server: Any = None
        self._raw: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.hits: Counter[str] = Counter()
        self.config = directory / "cloud.json"
        self.config.write_text(json.dumps({"address": f"127.0.0.1:{self._port}", "grpc_timeout": f"{TIMEOUT:g}s"}))

    async def __aenter__(self) -> Self:
        await self._serve()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._leave()

    async def begin(self, fault: ProviderFault) -> None:
        """Let something go wrong."""
        self.hits.clear()
        self._fault = fault
        if fault.away or fault.raw is not None:
            await self._leave()
        if fault.raw is not None:
            self._raw = await asyncio.start_server(self._handle(fault.raw), "127.0.0.1", self._port)

    async def end(self) -> None:
        """Behave again."""
        self._fault = ProviderFault()
        if self._server is None:
            await self._leave()
            await self._serve()

    async def _serve(self) -> None:
        limits = [(f"grpc.max_{way}_message_length", -1) for way in ("send", "receive")]
        self._server = grpc.aio.server(handlers=[self], options=[*limits, ("grpc.so_reuseport", 0)])
        self._server.add_insecure_port(f"127.0.0.1:{self._port}")
        await self._server.start()

    async def _leave(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None
        if self._raw is not None:
            self._raw.close()
            self._raw = None
            for writer in self._writers:
                writer.transport.abort()

    def _handle(self, raw: Handler) -> Handler:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.hits["connection"] += 1
            self._writers.add(writer)
            try:
                with suppress(ConnectionError, asyncio.IncompleteReadError):
                    await raw(reader, writer)
            finally:
                self._writers.discard(writer)
                writer.close()

        return handle

    def service(self, call: Any) -> Any:
        """Return the handler of a call."""
        method = call.method.removeprefix(f"/{SERVICE}/")
        if method in self._fault.endless:
            self.hits[method] += 1
            return grpc.unary_stream_rpc_method_handler(self._send_endlessly)

        async def respond(request: bytes, context: Any) -> bytes:
            answer = self._fault.answers.get(method)
            if answer is None:
                return await self._ordinary(method, request, context)
            self.hits[method] += 1
            return answer if isinstance(answer, bytes) else await answer(request, context)

        return grpc.unary_unary_rpc_method_handler(respond)

    async def _send_endlessly(self, _request: bytes, context: Any) -> None:
        while True:
            await context.write(sent("NodeGroups", nodeGroups=[{"id": "a" * 1000}]))

    # -- the cloud as it is --------------------------------------------------------------------------------------

    async def _ordinary(self, method: str, data: bytes, context: Any) -> bytes:
        request = message_of(f"{method}Request").FromString(data)
        nodes = self._nodes()
        match method:
            case "NodeGroups":
                return groups_sent(GROUP)
            case "NodeGroupForNode":
                runs = request.node.providerID in {node["spec"]["providerID"] for node in nodes}
                return sent(method, nodeGroup={"id": _GROUP if runs else ""})
            case "NodeGroupTargetSize":
                return sent(method, targetSize=len(nodes))
            case "NodeGroupNodes":
                ids = [node["spec"]["providerID"] for node in nodes]
                return sent(method, instances=[{"id": id_, "status": {"instanceState": 1}} for id_ in ids])
            case "NodeGroupTemplateNodeInfo":
                return sent(method, nodeBytes=self.template())
            case "NodeGroupIncreaseSize":
                for _ in range(min(request.delta, 10)):
                    self._number += 1
                    name = f"hostile-{self._number}"
                    node = self._build_node(name, {"pool": _GROUP})
                    self._api.put("nodes", {**node, "spec": {"providerID": f"{_SCHEME}{name}"}})
            case "NodeGroupDeleteNodes":
                for sent_node in request.nodes:
                    if sent_node.providerID in {node["spec"]["providerID"] for node in nodes}:
                        self._api.drop("nodes", sent_node.providerID.removeprefix(_SCHEME))
            case "NodeGroupGetOptions":
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no options")
        return b""

    def template(self) -> bytes:
        """Return the template of the group, encoded."""
        return encode("Node", self._build_node("template", {"pool": _GROUP})).data

    def _nodes(self) -> list[dict[str, Any]]:
        nodes = self._api.kinds.get("nodes", {}).values()
        return [node for node in nodes if node.get("spec", {}).get("providerID", "").startswith(_SCHEME)]


def sent(message: str, **fields: Any) -> bytes:
    """Return an encoded response."""
    data: bytes = message_of(f"{message}Response")(**fields).SerializeToString()
    return data


def groups_sent(*groups: dict[str, Any]) -> bytes:
    return sent("NodeGroups", nodeGroups=groups)


GROUP: Final = {"id": _GROUP, "minSize": 0, "maxSize": 10}
_BAD_TEXT: Final = b"\x0a\x04\x0a\x02\xff\xfe"
"""A message in field 1 whose field 1 is not UTF-8."""
_INT32: Final = 2**31 - 1


def _texts_everywhere(text: str) -> Answers:
    error = {"errorCode": text, "errorMessage": text, "instanceErrorClass": 1}
    return {
        "NodeGroups": groups_sent({**GROUP, "debug": text}, {**GROUP, "id": text}),
        "NodeGroupNodes": sent("NodeGroupNodes", instances=[
            {"id": text, "status": {"instanceState": 1}},
            {"id": f"{text}2", "status": {"instanceState": 2, "errorInfo": error}},
        ]),
        "GPULabel": sent("GPULabel", label=text),
    }  # fmt: skip


async def _never(_request: bytes, _context: Any) -> bytes:
    await asyncio.sleep(3600)
    return b""


def _late(provided: bytes) -> Answer:
    """Respond shortly before the program would give up."""

    async def answer(_request: bytes, _context: Any) -> bytes:
        await asyncio.sleep(TIMEOUT * 0.7)
        return provided

    return answer


def _codes() -> Answer:
    """Respond with one status after the other, each with a text that is long or odd."""
    codes = cycle(code for code in grpc.StatusCode if code is not grpc.StatusCode.OK)
    texts = cycle(["", "x" * 4000, "\x1b[2J\r\n\t\x00", "日本\U0001f4a3", "%s %d {} {0}"])

    async def answer(_request: bytes, context: Any) -> bytes:
        await context.abort(next(codes), next(texts))
        return b""

    return answer


def _other_ids() -> Answer:
    """Respond with groups that nobody has heard of before."""
    numbers = iter(range(10**9))

    async def answer(_request: bytes, _context: Any) -> bytes:
        return groups_sent(*({"id": f"{next(numbers):0200}", "maxSize": 5} for _ in range(20)))

    return answer


def _all(answer: bytes | Answer) -> Answers:
    return dict.fromkeys(METHODS, answer)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


_SETTINGS: Final = _frame(4, 0, 0, b"")


def _writes(*pieces: bytes, flood: bytes = b"", abort: bool = False) -> Handler:
    """Write to each connection, and the last piece again and again; then wait for the program, or ``abort``."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
        await writer.drain()
        written = 0
        while flood and written < 64 * _MIB:
            writer.write(flood)
            await writer.drain()
            written += len(flood)
        if abort:
            writer.transport.abort()
            return
        while await reader.read(65536):
            pass

    return handle


async def _reset_streams(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reset each stream that the program opens."""
    writer.write(_SETTINGS)
    await reader.readexactly(24)  # the preface
    while True:
        head = await reader.readexactly(9)
        size, kind, stream = int.from_bytes(head[:3]), head[3], int.from_bytes(head[5:])
        payload = await reader.readexactly(size)
        if kind == 4 and not head[4]:
            writer.write(_frame(4, 1, 0, b""))
        elif kind == 6 and not head[4]:
            writer.write(_frame(6, 1, 0, payload))
        elif kind == 1:
            writer.write(_frame(3, 0, stream, b"\0\0\0\x07"))
        await writer.drain()


def _provider(name: str, answers: Answers | Callable[[], Answers] | None = None, **more: Any) -> ProviderScenario:
    """``answers``: a function of them if they are large."""
    options = {key: more.pop(key) for key in ("endless", "raw", "away") if key in more}

    def fault() -> ProviderFault:
        return ProviderFault(answers=answers() if callable(answers) else answers or {}, **options)

    return ProviderScenario(f"provider: {name}", fault, **more)


def _template(data: bytes) -> Answers:
    return {"NodeGroupTemplateNodeInfo": sent("NodeGroupTemplateNodeInfo", nodeBytes=data)}


def _odd_node(**status: Any) -> bytes:
    metadata = {"name": "template", "labels": {"pool": _GROUP}}
    return encode("Node", {"metadata": metadata, "status": status}).data


def _node_with_labels(count: int) -> bytes:
    labels = {f"example.com/{i}": "" for i in range(count)}
    return encode("Node", {"metadata": {"name": "template", "labels": labels}}).data


def _scenarios() -> Iterator[ProviderScenario]:
    yield _provider("a message beyond the limit", lambda: {"NodeGroups": b"\x0a" + bytes(20 * _MIB)}, smoke=True)
    yield _provider("a message of empty groups only", lambda: {"NodeGroups": b"\x0a\x00" * (20 * _MIB)})
    yield _provider("a message of empty instances only", lambda: {"NodeGroupNodes": b"\x0a\x00" * (20 * _MIB)})
    large = [{**GROUP, "id": f"g{i}"} for i in range(40)]
    yield _provider("many groups, each with many instances", lambda: {
        "NodeGroups": groups_sent(*large),
        "NodeGroupNodes": sent("NodeGroupNodes", instances=[{"id": f"{i:09}"} for i in range(99_000)]),
    })  # fmt: skip
    yield _provider("many groups, each with a large template", lambda: {
        "NodeGroups": groups_sent(*large),
        **_template(_node_with_labels(100_000)),
    }, room=15 * LOOP_BYTES, loops=1)  # fmt: skip
    yield _provider("messages without end", endless=METHODS)
    yield _provider("every answer late", {
        **_all(_late(b"")), "NodeGroups": _late(groups_sent(GROUP)),
        "NodeGroupForNode": _late(sent("NodeGroupForNode", nodeGroup={"id": _GROUP})),
    })  # fmt: skip
    for method in ("Refresh", "NodeGroups", "NodeGroupForNode", "NodeGroupNodes", "NodeGroupIncreaseSize"):
        yield _provider(f"no answer to {method}", {method: _never}, smoke=method == "Refresh")
    yield _provider("every status, for each method", _all(_codes()), smoke=True)
    for method in ("NodeGroups", "NodeGroupForNode", "NodeGroupTargetSize", "NodeGroupNodes", "NodeGroupIncreaseSize"):
        yield _provider(f"every status for {method}", {method: _codes()})
    yield _provider("text that is not UTF-8", _all(_BAD_TEXT))
    yield _provider("noise", _all(bytes(range(256))))
    yield _provider("odd characters", _texts_everywhere("\x1b[2J\x00\r\n\u202e%s {}"))
    yield _provider("long texts", _texts_everywhere("a" * 1_000_000))
    yield _provider("groups and instances twice", {
        "NodeGroups": groups_sent(GROUP, GROUP, {**GROUP, "maxSize": 5}),
        "NodeGroupNodes": sent("NodeGroupNodes", instances=[{"id": "i", "status": {"instanceState": 1}}] * 1000),
    })  # fmt: skip
    yield _provider("negative sizes", {
        "NodeGroups": groups_sent({**GROUP, "minSize": -(2**31), "maxSize": -1}),
        "NodeGroupTargetSize": sent("NodeGroupTargetSize", targetSize=-(2**31)),
    })  # fmt: skip
    yield _provider("a negative target", {"NodeGroupTargetSize": sent("NodeGroupTargetSize", targetSize=-5)})
    yield _provider("the largest sizes", {
        "NodeGroups": groups_sent({**GROUP, "maxSize": _INT32}),
        "NodeGroupTargetSize": sent("NodeGroupTargetSize", targetSize=_INT32),
    }, smoke=True)  # fmt: skip
    yield _provider(
        "a minimum of 2 billion", {"NodeGroups": groups_sent({**GROUP, "minSize": _INT32, "maxSize": _INT32})}
    )
    yield _provider("a target that grows without nodes", {
        "NodeGroups": groups_sent({**GROUP, "maxSize": _INT32}),
        "NodeGroupTargetSize": sent("NodeGroupTargetSize", targetSize=20_000),
    })  # fmt: skip
    yield _provider("a template of noise", _template(b"k8s\0" + b"\xff" * 1000))
    yield _provider("a template that is empty", _template(b""))
    yield _provider("a template with numbers beyond all", _template(
        _odd_node(allocatable={"cpu": "9" * 300, "memory": "9e99", "pods": "-5"}, capacity={"cpu": "1"})
    ))  # fmt: skip
    yield _provider("a template without room", _template(_odd_node(allocatable={"cpu": "0", "pods": "0"})))
    yield _provider("options of another world", {"NodeGroupGetOptions": sent(
        "NodeGroupGetOptions", nodeGroupAutoscalingOptions={
            "scaleDownUtilizationThreshold": float("nan"), "scaleDownGpuUtilizationThreshold": float("-inf"),
            "scaleDownUnneededDuration": {"seconds": 2**63 - 1, "nanos": _INT32}, "zeroOrMaxNodeScaling": True,
            "MaxNodeProvisionDuration": {"seconds": -(2**63), "nanos": -(2**31)},
        },
    )})  # fmt: skip
    yield _provider("a size that is increased without effect", {"NodeGroupIncreaseSize": b""})
    yield _provider("nodes of a group that is not there", {
        "NodeGroupForNode": sent("NodeGroupForNode", nodeGroup={"id": "other", "minSize": 5, "maxSize": -5}),
    }, smoke=True)  # fmt: skip
    yield _provider("every node in the group", {"NodeGroupForNode": sent("NodeGroupForNode", nodeGroup={"id": _GROUP})})
    yield _provider("other groups each time", {"NodeGroups": _other_ids()})
    yield _provider("goes away and comes back", away=True, smoke=True)
    yield _provider("is away at the start", away=True, start=True)
    yield _provider("noise at the start", _all(bytes(range(256))), start=True)
    yield _provider("connections that are reset", raw=_writes(abort=True))
    yield _provider("connections without an answer", raw=_writes())
    yield _provider("no HTTP/2", raw=_writes(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"))
    yield _provider("settings without end", raw=_writes(_SETTINGS, flood=_SETTINGS * 1000))
    yield _provider("frames of noise", raw=_writes(_SETTINGS, bytes(range(256)) * 64))
    yield _provider("goodbye at once", raw=_writes(_SETTINGS, _frame(7, 0, 0, bytes(8))))
    yield _provider("streams that are reset", raw=_reset_streams)


SCENARIOS: Final[list[ProviderScenario]] = [*_scenarios()]
