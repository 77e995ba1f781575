"""Perform actions on a live cluster. Writes are patches.

The one exception is a Scale, which is nothing but what is written.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import cache, lru_cache, partial
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from kscale.effects import (
    Action,
    ApiError,
    Create,
    Delete,
    DeleteNodes,
    Discover,
    Emit,
    Event,
    Evict,
    Get,
    GetMetric,
    GetScale,
    GetWhole,
    HasInstances,
    List,
    Observation,
    Observe,
    Outcome,
    Patch,
    Preview,
    PutScale,
    QueryPrometheus,
    RankOptions,
    ReadStores,
    Resize,
    WriteStatus,
)
from kscale.errors import InputError
from kscale.objects.api.autoscaling import STATUS_ANNOTATIONS_V1, HorizontalPodAutoscalerV1
from kscale.objects.api.core import Node, ObjectReference
from kscale.objects.api.meta import ApiStruct, KubeObject, enc_hook
from kscale.objects.decode import to_dict
from kscale.objects.kinds import find_kind, kind_of
from kscale.objects.nodegroup import ProviderError
from kscale.objects.rest_mapping import AUTOSCALING_V1, ServedResource
from kscale.objects.scale import ScaleError, read_scale, written_scale
from kscale.objects.selectors import parse_selector
from kscale.world.kubernetes.client import Client, RequestFailedError, decoded, listed
from kscale.world.kubernetes.informer import UNREADABLE, Unreadable
from kscale.world.kubernetes.resources import Resources
from kscale.world.kubernetes.transport import Call
from kscale.world.protocols import Clock, History, LiveStores, Metrics, NodeGroups, Ranker, ask_cloud, nodes_named
from kscale.world.server_data import UnreadableObjectError, read_object

__all__ = ["ApiAction", "KnownIdentities", "Performer", "call_of", "list_call"]


_MOST: Final = 1024


class KnownIdentities:
    """The last that was seen of some objects; of very many the least recent ones are forgotten. Single owner."""

    def __init__(self) -> None:
        self._uids: OrderedDict[tuple[str, str, str], str] = OrderedDict()

    def note(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Remember the UID of an object; empty: it is gone."""
        key = kind, namespace, name
        self._uids.pop(key, None)
        if uid:
            self._uids[key] = uid
            if len(self._uids) > _MOST:
                self._uids.popitem(last=False)

    def uid_of(self, about: ObjectReference) -> str:
        """Return the UID of the object of a reference; empty if it is not known."""
        return self._uids.get((about.kind, about.namespace, about.name), "")


ApiAction = Get | GetWhole | Create | Preview | Patch | Delete | Evict | Resize | GetScale | PutScale | WriteStatus

_JSON: Final = "application/json"
_ENCODER: Final = msgspec.json.Encoder(enc_hook=enc_hook)
_PATCHES: Final = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


def call_of(action: ApiAction, resource: ServedResource) -> Call:
    """The request of an action. ``resource``: where its kind is served; of an eviction and a resize that of pods.

    Raises :class:`~kscale.objects.scale.ScaleError` for a Scale that the server's kind cannot hold.
    """
    match action:
        case Get() | GetWhole():
            return _call("GET", resource, action.namespace, action.name)
        case Create(object=made):
            return _call("POST", resource, made.namespace, "", body=_whole(made, resource), about=made.name)
        case Preview(content=content):
            named = {**content, "apiVersion": resource.api_version, "kind": resource.kind}
            return _call("POST", resource, action.namespace, "", body=named, query=(("dryRun", "All"),))
        case Patch():
            content = _patch(action)
            return _call(
                "PATCH",
                resource,
                action.namespace,
                action.name,
                action.subresource,
                body=content,
                content_type=_PATCHES[action.type],
            )
        case Delete():
            return _call("DELETE", resource, action.namespace, action.name, body=_delete_options(action))
        case Evict():
            return _call("POST", resource, action.namespace, action.name, "eviction", body=_eviction(action))
        case Resize():
            operations = [to_dict(each) for each in action.patch]
            content_type = _PATCHES["json"]
            return _call(
                "PATCH", resource, action.namespace, action.name, "resize", body=operations, content_type=content_type
            )
        case GetScale():
            return _call("GET", resource, action.namespace, action.name, "scale")
        case PutScale():
            scale = written_scale(action.scale, action.replicas, resource.scale or AUTOSCALING_V1)
            return _call("PUT", resource, action.namespace, action.scale.name, "scale", body=scale)
        case WriteStatus(object=held):
            return _call(
                "PATCH",
                resource,
                held.namespace,
                held.name,
                "status",
                body=_status(held),
                content_type=_PATCHES["merge"],
            )


def list_call(
    resource: ServedResource, namespace: str, *, selector: str = "", fields: str = "", limit: int = 0, more: str = ""
) -> Call:
    """The request of a page of a list; ``more``: what to go on with."""
    query = (("labelSelector", selector), ("fieldSelector", fields), ("limit", str(limit or "")), ("continue", more))
    return Call(
        method="GET",
        path=resource.path(_quoted(namespace)),
        query=tuple((name, value) for name, value in query if value),
        resource=resource.group_resource,
    )


def _call(
    method: str,
    resource: ServedResource,
    namespace: str,
    name: str,
    subresource: str = "",
    *,
    body: Any = None,
    content_type: str = _JSON,
    about: str = "",
    query: tuple[tuple[str, str], ...] = (),
) -> Call:
    return Call(
        method=method,
        path=resource.path(_quoted(namespace), _quoted(name), subresource),
        query=query,
        body=None if body is None else _ENCODER.encode(body),
        content_type="" if body is None else content_type,
        resource=resource.group_resource,
        name=name or about,
    )


@lru_cache(maxsize=1 << 14)
def _quoted(text: str) -> str:
    """A name in a path. The same ones come again and again."""
    return quote(text, safe="")


def _whole(made: KubeObject, resource: ServedResource) -> dict[str, Any]:
    """A new object, with its kind."""
    return {**to_dict(made), "apiVersion": resource.api_version, "kind": resource.kind}


def _patch(action: Patch) -> Any:
    """The patch; with a version it is refused where the object has another by then."""
    version = action.resource_version
    if isinstance(action.patch, Mapping):
        if not version:
            return action.patch
        metadata = {**(action.patch.get("metadata") or {}), "resourceVersion": version}
        return {**action.patch, "metadata": metadata}
    operations = [to_dict(each) for each in action.patch]
    held = [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}] if version else []
    return [*held, *operations]


def _delete_options(action: Delete) -> dict[str, Any]:
    options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if action.grace_period_seconds is not None:
        options["gracePeriodSeconds"] = action.grace_period_seconds
    if action.uid:
        options["preconditions"] = {"uid": action.uid}
    return options


def _eviction(action: Evict) -> dict[str, Any]:
    eviction: dict[str, Any] = {
        "kind": "Eviction",
        "apiVersion": "policy/v1",
        "metadata": {"name": action.name, "namespace": action.namespace},
    }
    if action.grace_period_seconds is not None:
        eviction["deleteOptions"] = {"gracePeriodSeconds": action.grace_period_seconds}
    return eviction


def _status(held: KubeObject) -> dict[str, Any]:
    """The status alone: what kscale knows of it becomes as it is here, also what is absent; the rest stays."""
    status = getattr(held, "status", None)
    if not isinstance(status, msgspec.Struct):
        raise TypeError(f"a {type(held).__name__} has no status")
    metadata: dict[str, Any] = {"resourceVersion": held.metadata.resource_version}
    if isinstance(held, HorizontalPodAutoscalerV1):  # the other half of its status
        metadata["annotations"] = {key: (held.metadata.annotations or {}).get(key) for key in STATUS_ANNOTATIONS_V1}
    return {"metadata": metadata, "status": _known(status)}


def _known(status: msgspec.Struct) -> dict[str, Any]:
    """Every field of a status by its name in JSON, None where it is absent; what is in them is encoded later."""
    found: dict[str, Any] = {}
    for field, name, default, factory in _fields(type(status)):
        value = getattr(status, field)
        absent = value is default or value is UNSET or (type(value) is factory and not value)
        found[name] = None if absent else value
    return found


@cache
def _fields(type_: type[msgspec.Struct]) -> tuple[tuple[str, str, Any, Any], ...]:
    """(attribute, name in JSON, default, what makes it) of each field. What is as it is by default is absent
    (:class:`~kscale.objects.api.meta.ApiStruct`)."""
    return tuple(
        (each.name, each.encode_name, each.default, each.default_factory) for each in msgspec.structs.fields(type_)
    )


_PAGE: Final = 500
_T = TypeVar("_T")


class _WrittenMeta(ApiStruct):
    resource_version: str = ""
    uid: str = ""


class _Written(ApiStruct):
    metadata: _WrittenMeta = msgspec.field(default_factory=_WrittenMeta)


class Performer:
    """Carries actions out (:data:`kscale.world.protocols.PerformLive`), on the loop that owns the stores.

    ``stores`` answer what is asked of the watches; ``groups`` is the cloud, ``metrics``, ``prometheus`` and ``ranker``
    what answers those questions: an action of what there is none of is a TypeError. Scales are read and written with a
    rate limit of their own, as upstream's scale client has. What blocks runs in ``threads``
    (None: asyncio's own). ``turn`` is held while the stores are asked for more than one object. ``emit`` and
    ``observe`` take reports, at once; ``identities`` is told the UIDs of objects that are read or made by name.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        resources: Resources | None = None,
        stores: LiveStores | None = None,
        groups: NodeGroups | None = None,
        metrics: Metrics | None = None,
        prometheus: History | None = None,
        ranker: Ranker | None = None,
        emit: Callable[[Sequence[Event]], None] = lambda _: None,
        observe: Callable[[Sequence[Observation]], None] = lambda _: None,
        threads: Executor | None = None,
        turn: asyncio.Lock | None = None,
        identities: KnownIdentities | None = None,
    ) -> None:
        self._identities = identities or KnownIdentities()
        self._client, self._scale_client = client, client.apart()
        self._clock = clock
        self._resources = resources or Resources(client)
        self._stores = stores
        self._groups = groups
        self._metrics = metrics
        self._prometheus = prometheus
        self._ranker = ranker
        self._emit = emit
        self._observe = observe
        self._threads = threads
        self._turn = turn or asyncio.Lock()
        self._unreadable: dict[str, Unreadable] = {}

    async def __call__(self, action: Action) -> Outcome:
        """Carries an action out. What is refused is an outcome with an error."""
        try:
            value = await self._do(action)
        except RequestFailedError as error:
            value = error.error
        except ProviderError as error:
            value = ApiError(error.message, reason=error.type)
        except (InputError, ScaleError) as error:
            value = ApiError(str(error), reason="InternalError")
        if isinstance(value, ApiError):
            return Outcome(at=self._clock.now(), error=value)
        return Outcome(at=self._clock.now(), value=value)

    async def _do(self, action: Action) -> Any:
        match action:
            case Emit(events=events):
                return self._emit(events)
            case Observe(observations=observations):
                return self._observe(observations)
            case Get(watched=True) | List(watched=True) | ReadStores():
                return await self._read_stores(action)
            case Get() | GetWhole() | Preview():
                return await self._get(action)
            case List():
                return await self._list(action)
            case Discover():
                return await self._resources.mapper()
            case Create(object=made):
                kind = kind_of(type(made)) or ("", "")
                return await self._write(action, made.kind or kind[1], made.api_version)
            case Patch() | Delete():
                return await self._write(action, action.kind, action.api_version)
            case WriteStatus(object=held):
                kind = kind_of(type(held)) or ("", "")
                return await self._write(action, held.kind or kind[1], held.api_version)
            case Evict() | Resize():
                return await self._write(action, "Pod", "v1")
            case GetScale(resource=name) | PutScale(resource=name):
                call = call_of(action, await self._resources.of_name(name))
                return read_scale(decoded(await self._scale_client.call(call), dict[str, Any], call))
            case GetMetric() | QueryPrometheus():
                return await self._metric(action)
            case RankOptions():
                return await self._block(self._need(self._ranker, action), action)
            case _:
                return await self._ask_cloud(action)

    async def _metric(self, action: GetMetric | QueryPrometheus) -> Any:
        if isinstance(action, GetMetric):
            return await self._need(self._metrics, action).get(action)
        return await self._need(self._prometheus, action).query(action)

    # -- the API server ----------------------------------------------------------------------------------------------

    async def _get(self, action: Get | GetWhole | Preview) -> KubeObject | dict[str, Any]:
        resource = await self._resources.of_kind(action.kind, action.api_version)
        call = call_of(action, resource)
        answer = await self._client.call(call)
        if not isinstance(action, Get):
            return decoded(answer, dict[str, Any], call)
        found = _object(answer.body, resource)
        self._identities.note(resource.kind, action.namespace, action.name, found.metadata.uid)
        return found

    async def _list(self, action: List) -> list[KubeObject]:
        resource = await self._resources.of_kind(action.kind, action.api_version)
        if action.nodes is None:
            return await self._pages(resource, action, "")
        found: list[KubeObject] = []
        for node in action.nodes:
            fields = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
            found += await self._pages(resource, action, fields)
        return found

    async def _pages(self, resource: ServedResource, action: List, fields: str) -> list[KubeObject]:
        found: list[KubeObject] = []
        more, limit, number = "", _PAGE, 0
        while True:
            call = list_call(
                resource, action.namespace, selector=action.selector, fields=fields, limit=limit, more=more
            )
            try:
                answer = await self._client.call(call)
            except RequestFailedError as error:
                if error.error.code != 410 or not more or not limit:
                    raise
                found, more, limit, number = [], "", 0, 0  # it took too long: all at once
                continue
            number += 1
            page = listed(answer, call, more, number=number, limits=self._client.limits)
            found += self._readable(page.items, resource, action)
            more = page.continue_
            if not more:
                return found

    def _readable(self, items: Sequence[msgspec.Raw], resource: ServedResource, action: List) -> Iterator[KubeObject]:
        """The items that can be read; the others are counted."""
        for raw in items:
            try:
                yield _object(raw, resource, action.read_as)
            except UnreadableObjectError as error:
                self._unreadable.setdefault(resource.kind, Unreadable(resource.kind)).report(error.head.label, error)
                self._observe([Observation(name=UNREADABLE, labels={"kind": resource.kind})])

    async def _write(self, action: ApiAction, kind: str, api_version: str) -> str | None:
        resource = await self._resources.of_kind(kind, api_version)
        call = call_of(action, resource)
        answer = await self._client.call(call)
        if isinstance(action, Delete | Evict | Resize):
            return None
        written = decoded(answer, _Written, call).metadata
        if isinstance(action, Create):
            of = action.object.metadata
            self._identities.note(resource.kind, of.namespace, of.name, written.uid)
        return written.resource_version or None

    # -- what the watches have brought -------------------------------------------------------------------------------

    async def _caught_up(self, action: Action) -> LiveStores:
        """The stores, with what has come so far: an answer is not older than the watches."""
        stores = self._need(self._stores, action)
        await stores.caught_up()
        return stores

    async def _read_stores(self, action: Get | List | ReadStores) -> Any:
        stores = await self._caught_up(action)
        if isinstance(action, Get):
            return self._watched(action, stores)
        async with self._turn:
            if isinstance(action, List):
                return self._all_watched(action, stores)
            return action.read(stores) if stores.settled else None

    def _watched(self, action: Get, stores: LiveStores) -> KubeObject | ApiError:
        found = stores.get(action.kind, action.namespace, action.name)
        if found is not None:
            return found
        return ApiError(f'{action.kind.lower()} "{action.name}" not found', code=404, reason="NotFound")

    def _all_watched(self, action: List, stores: LiveStores) -> list[KubeObject]:
        if action.nodes is not None:
            found: Sequence[KubeObject] = stores.pods_of(action.nodes)
        else:
            found = stores.objects(action.kind)
        selector = parse_selector(action.selector)
        return [
            each
            for each in found
            if (not action.namespace or each.namespace == action.namespace)
            and (not action.selector or selector.matches(each.metadata.labels or {}))
        ]

    # -- the cloud, and what blocks ----------------------------------------------------------------------------------

    async def _block(self, call: Callable[[Any], _T], action: Action) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, action)

    async def _ask_cloud(self, action: Action) -> Any:
        groups = self._need(self._groups, action)
        nodes: Sequence[Node] = ()
        if isinstance(action, HasInstances | DeleteNodes):  # looked up here: the stores belong to this thread
            known: dict[str, KubeObject] = {}
            if self._stores is not None:
                await self._stores.caught_up()
                async with self._turn:
                    known = {node.name: node for node in self._stores.objects("Node")}
            nodes = nodes_named(action, known)
        return await self._block(partial(ask_cloud, groups, nodes=nodes), action)

    def _need(self, part: _T | None, action: Action) -> _T:
        if part is None:
            raise TypeError(f"this world cannot carry out {type(action).__name__}")
        return part


def _object(raw: bytes | msgspec.Raw, resource: ServedResource, read_as: str = "") -> KubeObject:
    found = read_object(raw, find_kind(read_as or resource.api_version, resource.kind) or KubeObject)
    found.kind, found.api_version = resource.kind, resource.api_version
    return found
