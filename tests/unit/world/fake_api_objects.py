"""The objects of an API server in memory: versions, what becomes of each, and what a write does or is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kscale.effects import to_text
from kscale.objects.kinds import ServedResource
from kscale.world.kubernetes.resources import EVERYWHERE
from kscale.world.kubernetes.transport import Call, ConnectionFailedError
from kscale.world.protocols import Clock
from kscale.world.simulated.api_server import PatchError, json_patch, merge, strategic

Object = dict[str, Any]
Key = tuple[str, str]


def copied(obj: Object | None) -> Any:
    """Return an independent copy of what JSON can hold: a fifth of the time of `copy.deepcopy`."""
    return msgspec.json.decode(msgspec.json.encode(obj))


def status(code: int, reason: str, message: str = "", **details: Any) -> Object:
    body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return {**body, "reason": reason, "code": code, **({"details": details} if details else {})}


class RefusalError(Exception):
    def __init__(
        self, code: int, reason: str, message: str = "", *, retry_after: int | None = None, **details: Any
    ) -> None:
        super().__init__(message)
        self.code, self.retry_after = code, retry_after
        self.body = status(code, reason, message or reason, **details)


class FakeWatch:
    """One open watch: what it is of, and what has not been read yet."""

    def __init__(self, resource: ServedResource, wants: Callable[[Object], bool], namespace: str) -> None:
        self.resource, self.wants, self.namespace = resource, wants, namespace
        self.queue: asyncio.Queue[bytes | ConnectionFailedError] = asyncio.Queue()
        self.reads = 0
        self.on_end: Callable[[], None] = lambda: None
        self.is_over = False

    def end(self, error: ConnectionFailedError | None = None) -> None:
        """End the watch, or break its connection with an error."""
        self.queue.put_nowait(error or b"")
        self.is_over = True
        self.on_end()

    def send(self, type_: str, obj: Object) -> None:
        self.queue.put_nowait(json.dumps({"type": type_, "object": obj}).encode() + b"\n")


class FakeObjects:
    """Objects by resource. ``log``: what has become of them, for watches that begin in the past; ``watches``: who is
    told. ``may_evict`` says what stands against the eviction of a pod."""

    def __init__(self, clock: Clock, resources: Iterable[ServedResource] = ()) -> None:
        self.clock = clock
        self.version = 100
        self.served = {each.group_resource: each for each in (*EVERYWHERE, *resources)}
        self.kinds: dict[str, dict[Key, Object]] = {}
        self.log: list[tuple[int, str, str, Object, Object | None]] = []
        self.watches: list[FakeWatch] = []
        self.may_evict: Callable[[Object], RefusalError | None] = lambda pod: None
        self.scale_version = "autoscaling/v1"
        self._uid = 0

    # -- for tests ---------------------------------------------------------------------------------------------------

    def put(self, plural: str, obj: Object) -> Object:
        """Creates or replaces an object, whatever its version."""
        resource = self.served[plural]
        key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        return self._store(resource, key, copied(obj))

    def get(self, plural: str, name: str, namespace: str = "") -> Object:
        return copied(self.kinds.get(plural, {})[namespace, name])

    def all(self, plural: str) -> list[Object]:
        return [copied(each) for _, each in sorted(self.kinds.get(plural, {}).items())]

    def drop(self, plural: str, name: str, namespace: str = "") -> None:
        self._remove(self.served[plural], (namespace, name))

    def _tell(self, watch: FakeWatch, type_: str, new: Object, old: Object | None) -> None:
        """An event as a watch with selectors sees it."""
        before = old is not None and watch.wants(old)
        now = type_ != "DELETED" and watch.wants(new)
        if now:
            watch.send("MODIFIED" if before else "ADDED", new)
        elif before:
            watch.send("DELETED", new)

    # -- writing -----------------------------------------------------------------------------------------------------

    def _event(self, resource: ServedResource, type_: str, new: Object, old: Object | None) -> None:
        event = (self.version, type_, resource.group_resource, copied(new), copied(old))
        self.log.append(event)
        for watch in self.watches:
            if watch.resource == resource:
                self._tell(watch, type_, new, old)

    def _store(self, resource: ServedResource, key: Key, obj: Object) -> Object:
        known = self.kinds.setdefault(resource.group_resource, {})
        old = known.get(key)
        self.version += 1
        metadata = obj["metadata"]
        if old is None:
            self._uid += 1
            metadata.setdefault("uid", f"uid-{self._uid}")
            metadata["creationTimestamp"] = to_text(self.clock.now())
        metadata["resourceVersion"] = str(self.version)
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, **obj}
        known[key] = obj
        self._event(resource, "ADDED" if old is None else "MODIFIED", obj, old)
        return obj

    def _remove(self, resource: ServedResource, key: Key) -> Object:
        obj = self.kinds[resource.group_resource].pop(key)
        self.version += 1
        last = copied(obj)
        last["metadata"]["resourceVersion"] = str(self.version)
        self._event(resource, "DELETED", last, obj)
        return last

    def _create(self, resource: ServedResource, namespace: str, body: Object) -> Object:
        metadata = body["metadata"]
        if resource.namespaced and metadata.setdefault("namespace", namespace) != namespace:
            raise RefusalError(400, "BadRequest", "the namespace of the provided object does not match the request")
        key = (namespace, metadata["name"])
        if key in self.kinds.get(resource.group_resource, {}):
            text = f'{resource.group_resource} "{key[1]}" already exists'
            raise RefusalError(409, "AlreadyExists", text, name=key[1])
        return self._store(resource, key, body)

    def _check_version(self, resource: ServedResource, obj: Object, body: Object) -> None:
        expected_version = (body.get("metadata") or {}).get("resourceVersion")
        if expected_version and expected_version != obj["metadata"]["resourceVersion"]:
            name = obj["metadata"]["name"]
            text = f'Operation cannot be fulfilled on {resource.group_resource} "{name}": the object has been modified'
            raise RefusalError(409, "Conflict", text, name=name)

    def _patch(self, resource: ServedResource, key: Key, obj: Object, call: Call, body: Any, sub: str) -> Object:
        try:
            match call.content_type:
                case "application/merge-patch+json":
                    new = merge(obj, body)
                case "application/strategic-merge-patch+json":
                    new = strategic(obj, body)
                case "application/json-patch+json":
                    new = json_patch(obj, body)
                case other:
                    raise RefusalError(
                        415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {other}"
                    )
        except PatchError as error:
            raise RefusalError(422, "Invalid", str(error)) from None
        self._check_version(resource, obj, new)
        new["metadata"]["resourceVersion"] = obj["metadata"]["resourceVersion"]
        if new == obj:
            return obj
        writes_whole_object = resource.kind == "VerticalPodAutoscalerCheckpoint"  # it has no status apart
        return self._store(resource, key, new if writes_whole_object else only(obj, new, sub))

    def _delete(self, resource: ServedResource, key: Key, obj: Object, body: Object) -> tuple[int, Object]:
        expected_uid = (body.get("preconditions") or {}).get("uid")
        if expected_uid and expected_uid != obj["metadata"]["uid"]:
            actual = obj["metadata"]["uid"]
            text = f"Precondition failed: UID in precondition: {expected_uid}, UID in object meta: {actual}"
            raise RefusalError(409, "Conflict", text)
        return 200, self._remove(resource, key)

    def _evict(self, resource: ServedResource, key: Key, obj: Object, body: Object) -> tuple[int, Object]:
        assert body["kind"] == "Eviction"
        assert body["apiVersion"] == "policy/v1"
        refusal = self.may_evict(obj)
        if refusal is not None:
            raise refusal
        self._remove(resource, key)
        return 201, {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _scale(self, obj: Object) -> Object:
        spec, status = obj.get("spec", {}), obj.get("status", {})
        metadata = {key: obj["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}
        selector = spec.get("selector", {}).get("matchLabels", {})
        text = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
        selector_value: Any = text if self.scale_version == "autoscaling/v1" else selector
        return {
            "kind": "Scale", "apiVersion": self.scale_version, "metadata": metadata,
            "spec": {"replicas": spec.get("replicas", 1)},
            "status": {"replicas": status.get("replicas", 0), "selector": selector_value},
        }  # fmt: skip

    def _put_scale(self, resource: ServedResource, key: Key, obj: Object, body: Object) -> Object:
        assert (body["kind"], body["apiVersion"]) == ("Scale", self.scale_version)
        self._check_version(resource, obj, body)
        stored = self._store(resource, key, merge(obj, {"spec": {"replicas": body["spec"].get("replicas", 0)}}))
        return self._scale(stored)


def only(old: Object, new: Object, sub: str) -> Object:
    """What a sub-resource may change."""
    if sub == "status":
        return {**copied(old), "status": new.get("status", {})}
    if sub == "":
        return {**copied(new), **({"status": old["status"]} if "status" in old else {})}
    return copied(new)
