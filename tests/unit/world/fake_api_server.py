"""An API server in memory, behind the transport: objects, versions, lists in pages, watches, refusals, and faults.

It does what kube-apiserver does as far as informers and writers can tell; tests that run against it run against the
real one, too. ``minor``: what servers from 1.32 on do differently.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

from kscale.objects.kinds import ServedResource
from kscale.world.kubernetes.transport import Answer, Call, ConnectionFailedError, Stream
from kscale.world.protocols import Clock
from kscale.world.simulated.api_server import merge
from unit.world.fake_api_objects import FakeObjects, FakeWatch, Object, RefusalError, only, status

__all__ = ["BROKEN", "REFUSED", "FakeApiServer", "Late", "RefusalError", "status"]

BROKEN = ConnectionFailedError("connection reset by peer", "reset")
REFUSED = ConnectionFailedError("connect: connection refused", "refused")


class _Body:
    def __init__(
        self, code: int, watch: FakeWatch | None, body: bytes, headers: dict[str, str], cut: random.Random | None
    ) -> None:
        self.status, self.headers, self._watch, self._body, self._cut = code, headers, watch, body, cut
        self._left = b""
        self._flows = asyncio.Event()
        self._flows.set()

    async def read_some(self) -> bytes:
        await self._flows.wait()
        if self._watch is None:
            result, self._body = self._body, b""
            return result
        if not self._left:
            found_or_error = await self._watch.queue.get()
            if isinstance(found_or_error, ConnectionFailedError):
                raise found_or_error
            parts = [found_or_error]
            while parts[-1] and not self._watch.queue.empty():
                following = self._watch.queue.get_nowait()
                if not isinstance(following, bytes) or not following:
                    self._watch.queue.put_nowait(following)
                    break
                parts.append(following)
            self._left = b"".join(parts)
        at = len(self._left) if self._cut is None or not self._left else self._cut.randrange(1, len(self._left) + 1)
        result, self._left = self._left[:at], self._left[at:]
        self._watch.reads += 1
        return result

    def read_received(self) -> bytes:
        parts = [self._left]
        self._left = b""
        while self._watch is not None and not self._watch.queue.empty():
            following = self._watch.queue.get_nowait()
            if not isinstance(following, bytes) or not following:
                self._watch.queue.put_nowait(following)
                break
            parts.append(following)
        return b"".join(parts)

    def on_end(self, call: Callable[[], None]) -> None:
        if self._watch is not None:
            self._watch.on_end = call
            if self._watch.is_over:
                call()

    def pause_reading(self) -> None:
        self._flows.clear()

    def resume_reading(self) -> None:
        self._flows.set()

    async def read(self) -> bytes:
        return self._body


class FakeApiServer(FakeObjects):
    """``fault(call)`` may answer a call instead of the server (an Answer or an error), or let it happen and lose the
    answer (``late`` in its name tells so: :class:`Late`). ``cut``: a seed to cut what watches send at any byte."""

    def __init__(
        self,
        clock: Clock,
        *,
        minor: int = 37,
        resources: Iterable[ServedResource] = (),
        cut: int | None = None,
        delay: float = 0.0,
    ) -> None:
        super().__init__(clock, resources)
        self.minor = minor
        self.delay = delay
        self.compacted = 0
        self.calls: list[Call] = []
        self.fault: Callable[[Call], Answer | ConnectionFailedError | Late | None] = lambda call: None
        self.pages: dict[str, tuple[int, list[Object]]] = {}
        self._cut = None if cut is None else random.Random(cut)

    # -- for tests ---------------------------------------------------------------------------------------------------

    def compact(self) -> None:
        """Forgets how the present state came about."""
        self.compacted = self.version
        self.log.clear()
        self.pages.clear()

    def cut_watches(self, error: ConnectionFailedError | None = BROKEN) -> None:
        """Breaks what is open; None: ends it in peace."""
        for watch in self.watches:
            watch.end(error)
        self.watches.clear()

    def fail_watches(self, code: int, reason: str) -> None:
        """Ends what is open with an ERROR event."""
        for watch in self.watches:
            watch.send("ERROR", status(code, reason))
            watch.end()
        self.watches.clear()

    def bookmark(self) -> None:
        for watch in self.watches:
            watch.send("BOOKMARK", self._bookmark(watch.resource))

    def requested_paths(self, method: str = "", *, watch: bool | None = None) -> list[str]:
        """Paths with queries, in short."""
        result = []
        for call in self.calls:
            query = dict(call.query)
            if (method and call.method != method) or (watch is not None and ("watch" in query) is not watch):
                continue
            result.append(call.path + "".join(f" {k}={v}" for k, v in sorted(query.items()) if k != "timeoutSeconds"))
        return result

    # -- the transport -----------------------------------------------------------------------------------------------

    async def call(self, call: Call) -> Answer:
        self.calls.append(call)
        await asyncio.sleep(self.delay)
        fault = self.fault(call)
        if isinstance(fault, Answer):
            return fault
        if isinstance(fault, ConnectionFailedError):
            raise fault
        answer = self._answer(call)
        if isinstance(fault, Late):
            raise fault.error
        return answer

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream]:
        self.calls.append(call)
        await asyncio.sleep(self.delay)
        fault = self.fault(call)
        if isinstance(fault, ConnectionFailedError):
            raise fault
        watch = None
        try:
            if isinstance(fault, Answer):
                yield _Body(fault.status, None, fault.body, dict(fault.headers), None)
                return
            try:
                watch = self._watch(call)
                yield _Body(200, watch, b"", {}, self._cut)
            except RefusalError as refusal:
                yield _Body(refusal.code, None, json.dumps(refusal.body).encode(), _headers(refusal), None)
        finally:
            if watch in self.watches:
                self.watches.remove(watch)

    async def close(self) -> None:
        self.cut_watches()

    # -- requests ----------------------------------------------------------------------------------------------------

    def _answer(self, call: Call) -> Answer:
        try:
            code, body = self._route(call)
        except RefusalError as refusal:
            return Answer(refusal.code, _headers(refusal), json.dumps(refusal.body).encode())
        return Answer(code, {"content-type": "application/json"}, json.dumps(body).encode())

    def _route(self, call: Call) -> tuple[int, Object]:
        parts = [unquote(part) for part in call.path.strip("/").split("/")]
        discovery = self._discovery(parts)
        if discovery is not None:
            return 200, discovery
        resource, namespace, name, sub = self._locate(parts)
        body = json.loads(call.body) if call.body else None
        if ("dryRun", "All") in call.query:
            defaulted = {"metadata": {"name": f"{body['metadata'].get('generateName', '')}abcde", "uid": "dry"}}
            return 201, merge(body, defaulted)
        if not name:
            return (
                (201, self._create(resource, namespace, body))
                if call.method == "POST"
                else (200, self._list(resource, namespace, call))
            )
        key = (namespace, name)
        known = self.kinds.get(resource.group_resource, {})
        if key not in known:
            raise RefusalError(404, "NotFound", f'{resource.group_resource} "{name}" not found', name=name)
        obj = known[key]
        match call.method, sub:
            case "GET", "":
                return 200, obj
            case "GET", "scale":
                return 200, self._scale(obj)
            case "DELETE", "":
                return self._delete(resource, key, obj, body or {})
            case "POST", "eviction":
                return self._evict(resource, key, obj, body)
            case "POST", "binding":
                self._store(resource, key, merge(obj, {"spec": {"nodeName": body["target"]["name"]}}))
                return 201, {"kind": "Status", "apiVersion": "v1", "status": "Success"}
            case "PUT", "scale":
                return 200, self._put_scale(resource, key, obj, body)
            case "PUT", "" | "status":
                self._check_version(resource, obj, body)
                return 200, self._store(resource, key, only(obj, body, sub))
            case "PATCH", "" | "status" | "resize" if sub != "resize" or self.minor >= 33:
                return 200, self._patch(resource, key, obj, call, body, sub)
        raise RefusalError(404, "NotFound", "the server could not find the requested resource")

    def _discovery(self, parts: list[str]) -> Object | None:
        if parts == ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        if parts == ["apis"]:
            groups: dict[str, list[str]] = {}
            for each in self.served.values():
                if each.group:
                    groups.setdefault(each.group, []).append(each.api_version)
            listed = [
                {
                    "name": group,
                    "versions": [{"groupVersion": v, "version": v.split("/")[1]} for v in dict.fromkeys(versions)],
                    "preferredVersion": {"groupVersion": versions[0], "version": versions[0].split("/")[1]},
                }
                for group, versions in groups.items()
            ]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        version = "/".join(parts[1:])
        if parts[0] not in ("api", "apis") or len(parts) > 3 - (parts[0] == "api"):
            return None
        result = [each for each in self.served.values() if each.api_version == version]
        if not result:
            raise RefusalError(404, "NotFound", "the server could not find the requested resource")
        resources: list[Object] = []
        for each in result:
            resources.append({"name": each.name, "kind": each.kind, "namespaced": each.namespaced})
            if each.scale:
                group, _, v = each.scale.rpartition("/")
                scale = {"name": f"{each.name}/scale", "kind": "Scale", "group": group, "version": v}
                resources.append({**scale, "namespaced": True})
        return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}

    def _locate(self, parts: list[str]) -> tuple[ServedResource, str, str, str]:
        group_parts = 2 if parts[0] == "api" else 3
        group = "" if parts[0] == "api" else parts[1]
        rest = parts[group_parts:]
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        plural = f"{rest[0]}.{group}" if group else rest[0]
        resource = self.served.get(plural)
        if resource is None:
            raise RefusalError(404, "NotFound", "the server could not find the requested resource")
        return resource, namespace, rest[1] if len(rest) > 1 else "", rest[2] if len(rest) > 2 else ""

    # -- reading -----------------------------------------------------------------------------------------------------

    def _matches(self, resource: ServedResource, namespace: str, call: Call) -> Callable[[Object], bool]:
        query = dict(call.query)
        fields = [part for part in query.get("fieldSelector", "").split(",") if part]
        labels = [part for part in query.get("labelSelector", "").split(",") if part]

        def wants(obj: Object) -> bool:
            if namespace and obj["metadata"].get("namespace") != namespace:
                return False
            for part in fields:
                path, equal, value = part.partition("!=") if "!=" in part else part.partition("=")
                result: Any = obj
                for step in path.split("."):
                    result = (result or {}).get(step)
                if ((result or "") == value) is (equal == "!="):
                    return False
            obj_labels = obj["metadata"].get("labels") or {}
            return all(obj_labels.get(part.partition("=")[0]) == part.partition("=")[2] for part in labels)

        return wants

    def _list(self, resource: ServedResource, namespace: str, call: Call) -> Object:
        query = dict(call.query)
        version, limit, token = (
            query.get("resourceVersion", ""),
            int(query.get("limit", "0")),
            query.get("continue", ""),
        )
        if version and int(version) > self.version:
            raise RefusalError(
                504, "Timeout", f"Too large resource version: {version}, current: {self.version}",
                retry_after=1, causes=[{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            )  # fmt: skip
        if token:
            if token not in self.pages:
                raise RefusalError(410, "Expired", "The provided continue parameter is too old")
            at, items = self.pages.pop(token)
        else:
            wants = self._matches(resource, namespace, call)
            at, items = self.version, [each for each in self.all(resource.group_resource) if wants(each)]
        metadata: Object = {"resourceVersion": str(at)}
        if limit and version != "0" and len(items) > limit:
            items, rest = items[:limit], items[limit:]
            name = f"{resource.name}-{at}-{len(rest)}"
            self.pages[name] = (at, rest)
            metadata |= {"continue": name, "remainingItemCount": len(rest)}
        items = [{key: value for key, value in each.items() if key not in ("kind", "apiVersion")} for each in items]
        return {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": metadata,
            "items": items,
        }

    def _watch(self, call: Call) -> FakeWatch:
        query = dict(call.query)
        assert query.get("watch") == "true"
        assert query.get("allowWatchBookmarks") == "true"
        assert 300 <= int(query["timeoutSeconds"]) < 600
        resource, namespace, _, _ = self._locate([unquote(part) for part in call.path.strip("/").split("/")])
        wants = self._matches(resource, namespace, call)
        version = query.get("resourceVersion", "")
        watch = FakeWatch(resource, wants, namespace)
        if query.get("sendInitialEvents") == "true":
            assert query.get("resourceVersionMatch") == "NotOlderThan"
            if self.minor == 33:
                text = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
                raise RefusalError(422, "Invalid", text)
            for each in self.all(resource.group_resource):
                if wants(each):
                    watch.send("ADDED", each)
            annotations = {"k8s.io/initial-events-end": "true"}
            watch.send("BOOKMARK", merge(self._bookmark(resource), {"metadata": {"annotations": annotations}}))
        elif version in ("", "0"):
            for each in self.all(resource.group_resource):
                if wants(each):
                    watch.send("ADDED", each)
        elif int(version) < self.compacted:
            watch.send("ERROR", status(410, "Expired", f"too old resource version: {version} ({self.compacted})"))
            watch.end()
            return watch
        else:
            for at, type_, plural, new, old in self.log:
                if at > int(version) and plural == resource.group_resource:
                    self._tell(watch, type_, new, old)
        self.watches.append(watch)
        return watch

    def _bookmark(self, resource: ServedResource) -> Object:
        metadata = {"resourceVersion": str(self.version), "creationTimestamp": None}
        return {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}


class Late:
    """It has happened, and nobody hears of it."""

    def __init__(self, error: ConnectionFailedError = BROKEN) -> None:
        self.error = error


def _headers(refusal: RefusalError) -> dict[str, str]:
    after = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
    return {"content-type": "application/json", **after}
