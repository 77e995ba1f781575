"""What a server may do to its clients: each scenario with its fault."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from hostile.http_server import Connection, Fault, Request, chunk, head, response
from hostile.programs import REQUEST_TIMEOUT

__all__ = ["SCENARIOS", "Scenario"]

_MIB: Final = 1 << 20
_ACCEPTED: Final = {"list: metadata null", "list: metadata.selfLink of another type", "list: kind is another"}
"""What is no fault for a client: a null is nothing, and a field that is not read may be anything."""


@dataclass(frozen=True)
class Scenario:
    """``fault``: what goes wrong. ``harmless``: the programs do their work meanwhile. ``start``: they are started while
    it goes wrong. ``smoke``: part of the short run. ``seconds``: how long it goes wrong at least.
    """

    name: str
    fault: Callable[[], Fault]
    harmless: bool = False
    start: bool = False
    smoke: bool = False
    seconds: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether every program that meets it counts a failure or a skipped object."""
        return self.name.startswith(("list:", "any:")) and not self.harmless and self.name not in _ACCEPTED


def deep(levels: int = 1100) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def _lists(request: Request) -> bool:
    return request.is_list and not request.is_metrics


def _watches(request: Request) -> bool:
    return request.is_watch


def _any(request: Request) -> bool:
    return True


def _writes(request: Request) -> bool:
    return request.call.method != "GET"


def _metrics(request: Request) -> bool:
    return request.is_metrics


def _scales(request: Request) -> bool:
    return request.call.path.endswith("/scale")


def _discovery(request: Request) -> bool:
    return request.is_discovery


def sent(*pieces: bytes, then: str = "close") -> Callable[[Connection, Request], Any]:
    """Send these bytes; ``then`` close, abort, hang (until the fault is over), or flood with the last piece."""

    async def answer(connection: Connection, request: Request) -> None:
        for piece in pieces:
            await connection.send(piece)
        if then == "abort":
            connection.abort()
        elif then == "hang":
            await connection.until_over()
        elif then == "flood":
            await connection.flood(pieces[-1])

    return answer


def changed(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    """The body of an answer with a change in its document: what the change returns, unless that is None."""

    def rewrite(body: bytes) -> bytes:
        document = json.loads(body)
        other = change(document)
        return json.dumps(document if other is None else other).encode()

    return rewrite


def text(find: str, put: str) -> Callable[[bytes], bytes]:
    return lambda body: body.replace(find.encode(), put.encode(), 1)


def _member(name: str, value: Any) -> Callable[[bytes], bytes]:
    return changed(lambda page: page.__setitem__(name, value))


def _list_meta(name: str, value: str) -> Callable[[bytes], bytes]:
    """``value``: JSON text, which json may not be able to write."""

    def rewrite(body: bytes) -> bytes:
        page = json.loads(body)
        page["metadata"] = {**(page.get("metadata") or {}), name: "@@"}
        return json.dumps(page).encode().replace(b'"@@"', value.encode())

    return rewrite


def _odd_copy(odd: Callable[[dict[str, Any]], str]) -> Callable[[bytes], bytes]:
    """A page with one more item, which is a copy of its first one as ``odd`` writes it."""

    def rewrite(body: bytes) -> bytes:
        page = json.loads(body)
        items = page.get("items") or []
        if not items:
            return body
        copy = json.loads(json.dumps(items[0]))
        copy["metadata"] |= {"name": "odd", "uid": "odd", "resourceVersion": "50"}
        texts = [*map(json.dumps, items), odd(copy)]
        page["items"] = "@@"
        return json.dumps(page).replace('"@@"', f"[{','.join(texts)}]").encode()

    return rewrite


META_FIELDS: Final[dict[str, str]] = {
    "name": "5", "generateName": "[]", "namespace": "{}", "uid": "7", "resourceVersion": "8", "generation": '"x"',
    "creationTimestamp": '"noon"', "deletionTimestamp": "5", "deletionGracePeriodSeconds": '"soon"', "labels": "[]",
    "annotations": '{"a":5}', "ownerReferences": '[{"uid":5}]', "finalizers": "{}",
}  # fmt: skip
"""Fields of ObjectMeta, each with what is no value of it."""

IDENTITY: Final = {"name", "namespace"}
"""Of an object without one of these it is unknown which one it is: the list or the watch fails."""

LIST_FIELDS: Final[dict[str, str]] = {
    "resourceVersion": "5", "continue": "5", "remainingItemCount": '"many"', "selfLink": "5",
}  # fmt: skip


def _with_meta(field: str, value: str) -> Callable[[dict[str, Any]], str]:
    def odd(item: dict[str, Any]) -> str:
        item["metadata"][field] = "@@"
        return json.dumps(item).replace('"@@"', value)

    return odd


def _with_deep(item: dict[str, Any]) -> str:
    item["odd"] = "@@"
    return json.dumps(item).replace('"@@"', deep())


def _list(name: str, rewrite: Callable[[bytes], bytes], **more: Any) -> Scenario:
    return Scenario(f"list: {name}", lambda: Fault(applies=_lists, rewrite=rewrite, relists=True), **more)


def _list_sent(name: str, *pieces: bytes, then: str = "close", **more: Any) -> Scenario:
    fault = lambda: Fault(applies=_lists, answer=sent(*pieces, then=then), relists=True)  # noqa: E731  # shorter than a function
    return Scenario(f"list: {name}", fault, **more)


def _lists_of() -> Iterator[Scenario]:
    yield _list("cut in the middle", lambda body: body[: len(body) // 2], smoke=True)
    for name, body in {
        "empty": b"", "HTML": b"<html>log in</html>", "null": b"null", "an array": b"[]", "a number": b"5",
        "not UTF-8": b'{"kind":"\xff\xfe"}', "zeros": bytes(100), "a Status": b'{"kind":"Status","status":"Failure"}',
        "brackets without end": b"[" * 100_000, "deep": deep(50_000).encode(),
    }.items():  # fmt: skip
        yield _list(name, lambda _, body=body: body)
    yield _list("kind is a number", _member("kind", 5))
    yield _list("kind is another", _member("kind", "SecretList"))
    yield _list("items are a map", _member("items", {}))
    yield _list("items are no objects", _member("items", [None, 5, "x", []]))
    yield _list("metadata null", _member("metadata", None))
    yield _list("metadata an array", _member("metadata", []), smoke=True)
    for field, value in LIST_FIELDS.items():
        yield _list(f"metadata.{field} of another type", _list_meta(field, value))
    yield _list("resourceVersion no version", _list_meta("resourceVersion", '"abc"'))
    yield _list("resourceVersion of 400 digits", _list_meta("resourceVersion", '"' + "9" * 400 + '"'))
    yield _list("resourceVersion goes backwards", _list_meta("resourceVersion", '"1"'), harmless=True)
    yield _list("remainingItemCount of 400 digits", _list_meta("remainingItemCount", "9" * 400))
    yield _list("the same page again and again", _list_meta("continue", '"again"'))
    yield _list("metadata deep", _list_meta("annotations", deep(2000)))
    for field, value in META_FIELDS.items():
        rewrite = _odd_copy(_with_meta(field, value))
        harmless = field not in IDENTITY
        yield _list(f"an item's {field} of another type", rewrite, harmless=harmless, smoke=field == "labels")
    yield _list("an item nested over 1,000 deep", _odd_copy(_with_deep), harmless=True, smoke=True)
    yield _list("an item that is a number", _odd_copy(lambda _: "5"))
    chunked = head("200 OK", "Content-Type: application/json", "Transfer-Encoding: chunked")
    yield _list_sent("a body without end", chunked, chunk(b" " * 65536), then="flood", smoke=True)
    bomb = gzip.compress(bytes(64 * _MIB), 1)
    yield _list_sent("a gzip bomb", response(bomb, "200 OK", "Content-Encoding: gzip"), smoke=True)
    yield _list_sent("gzip that is none", response(b"nonsense", "200 OK", "Content-Encoding: gzip"))
    yield _list_sent("gzip cut off", response(gzip.compress(b"{}" * 1000)[:-12], "200 OK", "Content-Encoding: gzip"))
    yield _list_sent("an unknown encoding", response(b"{}", "200 OK", "Content-Encoding: zstd"))
    yield _list_sent("shorter than it says", head("200 OK", "Content-Length: 1000") + b"{}")
    yield _list_sent("a slow body", head("200 OK", "Content-Length: 1000") + b"{", then="hang", smoke=True)
    yield _list_sent("an odd chunk size", chunked + b"zz\r\n{}\r\n")
    yield _list_sent("an endless chunk size", chunked + b"FFFFFFFFFFFFFFFFFFFF\r\n{}\r\n")


def _watch(name: str, line: str | bytes, **more: Any) -> Scenario:
    data = (line.encode() if isinstance(line, str) else line) + b"\n"
    return Scenario(f"watch: {name}", lambda: Fault(applies=_watches, lines=data), **more)


def _watch_sent(name: str, *pieces: bytes, then: str = "close", **more: Any) -> Scenario:
    """In place of every watch that is opened; those that are open are cut."""
    fault = lambda: Fault(applies=_watches, answer=sent(*pieces, then=then), relists=True)  # noqa: E731  # as above
    return Scenario(f"watch: {name}", fault, **more)


def _event(object_: str, type_: str = '"ADDED"') -> str:
    return f'{{"type":{type_},"object":{object_}}}'


def _object(metadata: str) -> str:
    return f'{{"kind":"Odd","apiVersion":"v1","metadata":{metadata}}}'


def _watches_of() -> Iterator[Scenario]:
    yield _watch("a line of nonsense", "nonsense", smoke=True)
    yield _watch("a line not UTF-8", b'{"type":"\xff"}')
    yield _watch("zeros", bytes(100))
    yield _watch("empty lines", "\n" * 1000, harmless=True)
    for name, line in {
        "type a number": _event("{}", "5"), "type null": _event("{}", "null"), "no type": '{"object":{}}',
        "an unknown type": _event(_object('{"name":"a"}'), '"MOVED"'), "no object": '{"type":"ADDED"}',
        "object null": _event("null"), "object a number": _event("5"), "object an array": _event("[]"),
        "metadata null": _event(_object("null")), "metadata an array": _event(_object("[]")),
        "DELETED without metadata": _event("{}", '"DELETED"'),
    }.items():  # fmt: skip
        yield _watch(name, line)
    for field, value in META_FIELDS.items():
        metadata = f'{{"name":"odd","namespace":"default","resourceVersion":"90","{field}":{value}}}'
        line = _event(_object(metadata))
        yield _watch(f"an object's {field} of another type", line, harmless=field not in IDENTITY)
    for name, metadata in {
        "metadata null": "null", "resourceVersion a number": '{"resourceVersion":5}', "deep": deep(2000),
        "annotations an array": '{"resourceVersion":"5","annotations":[]}', "metadata a text": '"x"',
    }.items():  # fmt: skip
        yield _watch(f"BOOKMARK: {name}", _event(_object(metadata), '"BOOKMARK"'), smoke=name == "metadata null")
    yield _watch("BOOKMARK: goes backwards", _event(_object('{"resourceVersion":"1"}'), '"BOOKMARK"'))
    yield _watch("BOOKMARK: no version", _event(_object('{"resourceVersion":"abc"}'), '"BOOKMARK"'), smoke=True)
    yield _watch("BOOKMARK: far ahead", _event(_object('{"resourceVersion":"999999999"}'), '"BOOKMARK"'))
    for name, status in {
        "null": "null", "a number": "5", "code a text": '{"kind":"Status","code":"x"}', "deep": deep(2000),
        "410": '{"kind":"Status","status":"Failure","reason":"Expired","code":410}',
        "429": '{"kind":"Status","status":"Failure","reason":"TooManyRequests","code":429}',
    }.items():  # fmt: skip
        yield _watch(f"ERROR: {name}", _event(status, '"ERROR"'), smoke=name == "410")
    claim = '"kind":"ResourceClaim","apiVersion":"resource.k8s.io/v1","metadata":{"name":"d","namespace":"x"}'
    odd = f'{{{claim},"spec":{deep()}}}'
    yield _watch("an object nested over 1,000 deep", _event(odd), harmless=True, smoke=True)
    yield _watch("an object nested 100,000 deep", _event(_object(deep(100_000))))
    chunked = head("200 OK", "Content-Type: application/json", "Transfer-Encoding: chunked")
    start = chunk(b'{"type":"ADDED","object":{"metadata":{"name":"')
    yield _watch_sent("a line without end", chunked, start, chunk(b"a" * 65536), then="flood", smoke=True)
    yield _watch_sent("ends at once", response(b""))
    yield _watch_sent("cut in a line", chunked, chunk(b'{"type":"ADDED"'), then="abort")
    yield _watch_sent("HTML", response(b"<html>log in</html>\n"))
    yield _watch_sent("nothing comes", then="hang")


def _everything(name: str, *pieces: bytes, then: str = "close", **more: Any) -> Scenario:
    return Scenario(f"any: {name}", lambda: Fault(answer=sent(*pieces, then=then), relists=True), **more)


def _anything() -> Iterator[Scenario]:
    for after in ("--1", "9" * 400, "9" * 5000, "+-5", "-5", "1e3", "99999999", "Wed, 21 Oct 2026 07:28:00 GMT", ""):
        name = after if len(after) < 40 else f"{len(after)} digits"
        answer = response(b"{}", "429 Too Many Requests", f"Retry-After: {after}")
        yield _everything(f"429, Retry-After {name}", answer, smoke=after == "--1")
    status = '{"kind":"Status","status":"Failure","details":{"retryAfterSeconds":' + "9" * 400 + "}}"
    yield _everything("503, retryAfterSeconds of 400 digits", response(status.encode(), "503 X", "Retry-After: 1"))
    yield _everything(
        "503, HTML", response(b"<html>no</html>", "503 Service Unavailable", "Content-Type: text/html"), smoke=True
    )
    for code in (301, 302, 307, 308):
        yield _everything(f"a redirect, {code}", response(b"", f"{code} Moved", "Location: /"))
    yield _everything("401", response(b"{}", "401 Unauthorized"))
    yield _everything("200, HTML", response(b"<html>log in</html>", "200 OK"), start=True)
    yield _everything("status 999", response(b"{}", "999 What"))
    yield _everything("a status line of nonsense", b"nonsense\r\n\r\n")
    yield _everything("no HTTP", bytes(range(256)))
    # Interim responses are legal: a client ignores them, and sends the request again if the connection ends after them.
    # What fails, and is counted, is the request that gets no other response within its timeout.
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    yield _everything("100 Continue again and again", interim, then="flood", seconds=REQUEST_TIMEOUT + 3)
    yield _everything("a long header", head("200 OK", "X-Long: " + "a" * 100_000))
    yield _everything("a header without end", b"HTTP/1.1 200 OK\r\nX-Long: ", b"a" * 65536, then="flood")
    yield _everything("headers without end", b"HTTP/1.1 200 OK\r\n", b"X-Many: a\r\n" * 4096, then="flood")
    # A request on a kept connection is sent once more at once, and fails only if that meets the fault, too.
    yield _everything("closed at once", smoke=True, seconds=2)
    yield _everything("reset at once", then="abort", seconds=2)
    yield _everything("no answer", then="hang", start=True)
    yield _everything("a body of noise", response(bytes(range(256)) * 100, "200 OK"))


def _bodies(what: str, applies: Callable[[Request], bool], bodies: dict[str, bytes], **more: Any) -> Iterator[Scenario]:
    for name, body in bodies.items():
        fault = lambda body=body: Fault(applies=applies, answer=sent(response(body)))  # noqa: E731  # as above
        yield Scenario(f"{what}: {name}", fault, **more)


def _usage(time: str, cpu: str) -> bytes:
    """A PodMetricsList with one pod of the HPA's."""
    containers = [{"name": "c", "usage": {"cpu": cpu, "memory": -1}}]
    item = {"metadata": {"name": "web-0", "namespace": "hpa"}, "timestamp": time, "containers": containers}
    return json.dumps({"kind": "PodMetricsList", "items": [item]}).encode()


def _scale(rest: str) -> bytes:
    return f'{{"kind":"Scale","apiVersion":"autoscaling/v1",{rest}}}'.encode()


def _others() -> Iterator[Scenario]:
    shapes = {
        "an array": b"[]", "null": b"null", "a number": b"5", "HTML": b"<html/>", "empty": b"",
        "deep": deep(2000).encode(),
        "groups a number": b'{"kind":"APIGroupList","groups":5}', "a group a number": b'{"groups":[5]}',
        "versions of another type": b'{"groups":[{"name":"a","versions":[{"groupVersion":5}]}]}',
        "an odd version": b'{"groups":[{"name":"a","versions":[{"groupVersion":"a/b/c"}]}],"groupVersion":"a/b/c"}',
        "resources of another type": b'{"kind":"APIResourceList","groupVersion":"v1","resources":{"a":1}}',
        "all at once, odd": b'{"kind":"APIGroupDiscoveryList","items":[{"metadata":5}]}',
    }  # fmt: skip
    yield from _bodies("discovery", _discovery, shapes, start=True)
    yield from _bodies("metrics", _metrics, {
        "an array": b"[]", "items a number": b'{"kind":"PodMetricsList","items":5}', "HTML": b"<html/>",
        "deep": deep(2000).encode(), "an item a number": b'{"kind":"PodMetricsList","items":[5]}',
        "a time that is none": _usage("noon", "100m"),
        "a quantity that is none": _usage("2026-01-01T00:00:00Z", "much"),
        "a quantity beyond all": _usage("2026-01-01T00:00:00Z", "9" * 400),
    })  # fmt: skip
    yield from _bodies("scale", _scales, {
        "an array": b"[]", "spec null": _scale('"spec":null'), "another kind": b'{"kind":"Pod","apiVersion":"v1"}',
        "replicas beyond int32": _scale('"spec":{"replicas":99999999999999999999}'), "deep": deep(2000).encode(),
        "an odd selector": _scale('"spec":{"replicas":2},"status":{"selector":"a in (("}'),
    })  # fmt: skip
    yield from _bodies("write", _writes, {
        "answered with nothing": b"", "answered with HTML": b"<html/>", "answered with an array": b"[]",
        "answered with an odd version": b'{"metadata":{"resourceVersion":5}}', "answered deep": deep(2000).encode(),
    })  # fmt: skip


SCENARIOS: Final[list[Scenario]] = [*_lists_of(), *_watches_of(), *_anything(), *_others()]
