"""Actions on a live cluster. Writes are patches, except that a Scale is put as a whole."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
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
    GetUnstructured,
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
    Refresh,
    Resize,
    WriteStatus,
)
from kscale.errors import InputError
from kscale.objects.api.autoscaling import STATUS_ANNOTATIONS_V1, HorizontalPodAutoscalerV1
from kscale.objects.api.core import Node, ObjectReference
from kscale.objects.api.meta import ApiStruct, KubeObject
from kscale.objects.decode import enc_hook, to_dict
from kscale.objects.kinds import AUTOSCALING_V1, ServedResource, find_kind, kind_of
from kscale.objects.nodegroup import ProviderError
from kscale.objects.scale import ScaleError, read_scale, written_scale
from kscale.objects.selectors import parse_selector
from kscale.world.kubernetes.client import Client, RequestFailedError
from kscale.world.kubernetes.informer import UNREADABLE, Unreadable
from kscale.world.kubernetes.resources import Resources
from kscale.world.kubernetes.transport import Call
from kscale.world.protocols import (
    Clock,
    History,
    LiveStores,
    LocalGroups,
    Metrics,
    NodeGroups,
    Ranker,
    ask_cloud,
    nodes_named,
    without_impossible_targets,
)
from kscale.world.server_data import UnreadableObjectError, read_object

__all__ = ["ApiAction", "KnownIdentities", "Performer", "call_of", "list_call"]


_MOST: Final = 1024


class KnownIdentities:
    """Bounded cache of the UIDs of the objects read most recently. Has a single owner."""

    def __init__(self) -> None:
        self._uids: OrderedDict[tuple[str, str, str], str] = OrderedDict()

    def note(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Remember the UID of an object; an empty UID means that the object is deleted."""
        key = kind, namespace, name
        self._uids.pop(key, None)
        if uid:
            self._uids[key] = uid
            if len(self._uids) > _MOST:
                self._uids.popitem(last=False)

    def uid_of(self, about: ObjectReference) -> str:
        """Return the UID of a referenced object; empty if unknown."""
        return self._uids.get((about.kind, about.namespace, about.name), "")


ApiAction = (
    Get | GetUnstructured | Create | Preview | Patch | Delete | Evict | Resize | GetScale | PutScale | WriteStatus
)

_JSON: Final = "application/json"
_ENCODER: Final = msgspec.json.Encoder(enc_hook=enc_hook)
_PATCHES: Final = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


def call_of(action: ApiAction, resource: ServedResource) -> Call:
    """Return the HTTP request for an action.

    ``resource`` is where the action's kind is served; for evictions and resizes it is the resource of pods.
    Raises :class:`~kscale.objects.scale.ScaleError` if the served version of Scale cannot represent the scale, and
    TypeError if a status is written to an object without a status.
    """
    match action:
        case Get() | GetUnstructured():
            return _call("GET", resource, action.namespace, action.name)
        case Create(object=new_object):
            return _call(
                "POST",
                resource,
                new_object.namespace,
                "",
                body=_encode_new_object(new_object, resource),
                about=new_object.name,
            )
        case Preview(content=content):
            named = {**content, "apiVersion": resource.api_version, "kind": resource.kind}
            return _call("POST", resource, action.namespace, "", body=named, query=(("dryRun", "All"),))
        case Patch():
            content = _build_patch_body(action)
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
            return _call(
                "PATCH",
                resource,
                action.namespace,
                action.name,
                "resize",
                body=action.patch,
                content_type=_PATCHES["json"],
            )
        case GetScale():
            return _call("GET", resource, action.namespace, action.name, "scale")
        case PutScale():
            scale = written_scale(action.scale, action.replicas, resource.scale or AUTOSCALING_V1)
            return _call("PUT", resource, action.namespace, action.scale.name, "scale", body=scale)
        case WriteStatus(object=changed_object):
            return _call(
                "PATCH",
                resource,
                changed_object.namespace,
                changed_object.name,
                "status",
                body=_build_status_patch(changed_object),
                content_type=_PATCHES["merge"],
            )


def list_call(
    resource: ServedResource,
    namespace: str,
    *,
    selector: str = "",
    fields: str = "",
    limit: int = 0,
    continue_token: str = "",
) -> Call:
    """Return the HTTP request for one page of a list.

    ``selector`` and ``fields`` are label and field selectors, ``limit`` is the page size (0: no limit), and
    ``continue_token`` comes from the previous page. An empty ``namespace`` lists all namespaces.
    """
    query = (
        ("labelSelector", selector),
        ("fieldSelector", fields),
        ("limit", str(limit or "")),
        ("continue", continue_token),
    )
    return Call(
        method="GET",
        path=resource.path(_quote_name(namespace)),
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
    """Build a request for an object, or for all objects of a resource if ``name`` is empty.

    ``body`` is encoded as JSON, and sent as ``content_type``; None: no body. ``about``: name of the object in messages
    if ``name`` is empty.
    """
    return Call(
        method=method,
        path=resource.path(_quote_name(namespace), _quote_name(name), subresource),
        query=query,
        body=None if body is None else _ENCODER.encode(body),
        content_type="" if body is None else content_type,
        resource=resource.group_resource,
        name=name or about,
    )


@lru_cache(maxsize=1 << 12)
def _quote_name(text: str) -> str:
    """Return a name quoted for a path; cached, as names repeat."""
    return quote(text, safe="")


def _encode_new_object(new_object: KubeObject, resource: ServedResource) -> dict[str, Any]:
    """Return a new object as JSON data, with apiVersion and kind."""
    return {**to_dict(new_object), "apiVersion": resource.api_version, "kind": resource.kind}


def _build_patch_body(action: Patch) -> Any:
    """Build the body of a PATCH request: a dict (merge, strategic) or a list of operations (JSON patch).

    If the action has a resource version, the body contains it, so that the server rejects a patch of any other version.
    """
    version = action.resource_version
    if isinstance(action.patch, Mapping):
        if not version:
            return action.patch
        metadata = {**(action.patch.get("metadata") or {}), "resourceVersion": version}
        return {**action.patch, "metadata": metadata}
    precondition = [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}] if version else []
    return [*precondition, *action.patch]


def _delete_options(action: Delete) -> dict[str, Any]:
    """Build the body of a DELETE request."""
    options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if action.grace_period_seconds is not None:
        options["gracePeriodSeconds"] = action.grace_period_seconds
    if action.uid:
        options["preconditions"] = {"uid": action.uid}
    return options


def _eviction(action: Evict) -> dict[str, Any]:
    """Build the body of an eviction request."""
    eviction: dict[str, Any] = {
        "kind": "Eviction",
        "apiVersion": "policy/v1",
        "metadata": {"name": action.name, "namespace": action.namespace},
    }
    if action.grace_period_seconds is not None:
        eviction["deleteOptions"] = {"gracePeriodSeconds": action.grace_period_seconds}
    return eviction


def _build_status_patch(item: KubeObject) -> dict[str, Any]:
    """Build a merge patch of the status only.

    Status fields that kscale models are replaced, or removed if absent; other fields stay. Raises TypeError if the
    object has no status.
    """
    status = getattr(item, "status", None)
    if not isinstance(status, msgspec.Struct):
        raise TypeError(f"a {type(item).__name__} has no status")
    metadata: dict[str, Any] = {"resourceVersion": item.metadata.resource_version}
    if isinstance(item, HorizontalPodAutoscalerV1):  # v1 keeps part of the status in annotations
        metadata["annotations"] = {key: (item.metadata.annotations or {}).get(key) for key in STATUS_ANNOTATIONS_V1}
    return {"metadata": metadata, "status": _encode_status_fields(status)}


def _encode_status_fields(status: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a status by JSON name; None for a field that is absent. Values are not encoded."""
    fields: dict[str, Any] = {}
    for field, name, default, factory in _fields(type(status)):
        value = getattr(status, field)
        absent = value is default or value is UNSET or (type(value) is factory and not value)
        fields[name] = None if absent else value
    return fields


@cache
def _fields(type_: type[msgspec.Struct]) -> tuple[tuple[str, str, Any, Any], ...]:
    """Return (attribute, JSON name, default, default factory) of each field.

    A field with its default value is absent (:class:`~kscale.objects.api.meta.ApiStruct`).
    """
    return tuple(
        (field.name, field.encode_name, field.default, field.default_factory) for field in msgspec.structs.fields(type_)
    )


_PAGE: Final = 500
_T = TypeVar("_T")


class _WrittenMeta(ApiStruct):
    resource_version: str = ""
    uid: str = ""


class _Written(ApiStruct):
    metadata: _WrittenMeta = msgspec.field(default_factory=_WrittenMeta)


class Performer:
    """Performs actions on a live cluster (:data:`kscale.world.protocols.PerformLive`).

    Runs on the event loop that owns the stores.

    - ``stores``: objects of the watches. ``groups``: the cloud. ``metrics``, ``prometheus``, ``ranker``: backends of
      the actions of these kinds. An action without its backend is a TypeError.
    - Scales are read and written with a separate rate limit, as with upstream's scale client.
    - ``threads``: executor for blocking calls (None: asyncio's default).
    - ``turn``: lock held while more than one object is read from the stores.
    - ``emit`` and ``observe``: called immediately with events and observations.
    - ``identities``: receives the UIDs of objects that are read or created by name.
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
        self._client, self._scale_client = client, client.with_own_rate_limit()
        self._clock = clock
        self._resources = resources or Resources(client)
        self._stores = stores
        self._groups = groups
        self._local_groups = groups if isinstance(groups, LocalGroups) else None
        self._metrics = metrics
        self._prometheus = prometheus
        self._ranker = ranker
        self._emit = emit
        self._observe = observe
        self._threads = threads
        self._turn = turn or asyncio.Lock()
        self._unreadable: dict[str, Unreadable] = {}

    async def __call__(self, action: Action) -> Outcome:
        """Perform an action and return its outcome. A rejected action is an outcome with an error.

        Raises TypeError for an action whose backend is missing.
        """
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
        """Perform an action and return the value of its outcome, or an ApiError.

        Raises the errors that ``__call__`` converts.
        """
        match action:
            case Emit(events=events):
                return self._emit(events)
            case Observe(observations=observations):
                return self._observe(observations)
            case Get(watched=True) | List(watched=True) | ReadStores():
                return await self._read_stores(action)
            case Get() | GetUnstructured() | Preview():
                return await self._get(action)
            case List():
                return await self._list(action)
            case Discover():
                return await self._resources.mapper()
            case Create(object=new_object):
                kind = kind_of(type(new_object)) or ("", "")
                return await self._write(action, new_object.kind or kind[1], new_object.api_version)
            case Patch() | Delete():
                return await self._write(action, action.kind, action.api_version)
            case WriteStatus(object=changed_object):
                kind = kind_of(type(changed_object)) or ("", "")
                return await self._write(action, changed_object.kind or kind[1], changed_object.api_version)
            case Evict() | Resize():
                return await self._write(action, "Pod", "v1")
            case GetScale(resource=name) | PutScale(resource=name):
                call = call_of(action, await self._resources.find_name(name))
                return read_scale(self._scale_client.decode(await self._scale_client.call(call), dict[str, Any], call))
            case GetMetric() | QueryPrometheus():
                return await self._metric(action)
            case RankOptions():
                return await self._block(self._require(self._ranker, action), action)
            case _:
                return await self._ask_cloud(action)

    async def _metric(self, action: GetMetric | QueryPrometheus) -> Any:
        """Return the response of the metrics API or of Prometheus, or the error.

        Raises TypeError if there is no such backend.
        """
        if isinstance(action, GetMetric):
            return await self._require(self._metrics, action).get(action)
        return await self._require(self._prometheus, action).query(action)

    # -- the API server ----------------------------------------------------------------------------------------------

    async def _get(self, action: Get | GetUnstructured | Preview) -> KubeObject | dict[str, Any]:
        """Read an object as a struct (Get) or as plain data, or return the server's version of a previewed object.

        The UID of an object that was read as a struct is remembered. Raises RequestFailedError, or InputError if the
        object cannot be decoded.
        """
        resource = await self._resources.find_kind(action.kind, action.api_version)
        call = call_of(action, resource)
        answer = await self._client.call(call)
        if not isinstance(action, Get):
            return self._client.decode(answer, dict[str, Any], call)
        result = _object(answer.body, resource)
        self._identities.note(resource.kind, action.namespace, action.name, result.metadata.uid)
        return result

    async def _list(self, action: List) -> list[KubeObject]:
        """List objects from the server. If the action names nodes, list the unfinished pods of each node instead.

        Objects that cannot be decoded are left out. Raises RequestFailedError.
        """
        resource = await self._resources.find_kind(action.kind, action.api_version)
        if action.nodes is None:
            return await self._pages(resource, action, "")
        objects: list[KubeObject] = []
        for node in action.nodes:
            fields = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
            objects += await self._pages(resource, action, fields)
        return objects

    async def _pages(self, resource: ServedResource, action: List, fields: str) -> list[KubeObject]:
        """Return the readable objects of all pages of a list. ``fields``: field selector.

        If the continue token has expired, all objects are listed again in one piece. Raises RequestFailedError.
        """
        objects: list[KubeObject] = []
        next_page, limit, number = "", _PAGE, 0
        while True:
            call = list_call(
                resource,
                action.namespace,
                selector=action.selector,
                fields=fields,
                limit=limit,
                continue_token=next_page,
            )
            try:
                answer = await self._client.call(call)
            except RequestFailedError as error:
                if error.error.code != 410 or not next_page or not limit:
                    raise
                objects, next_page, limit, number = [], "", 0, 0  # the continue token has expired: list all at once
                continue
            number += 1
            page = self._client.decode_list(answer, call, next_page, number=number)
            objects += self._decode_all(page.items, resource, action)
            next_page = page.continue_
            if not next_page:
                return objects

    def _decode_all(self, items: Sequence[msgspec.Raw], resource: ServedResource, action: List) -> Iterator[KubeObject]:
        """Yield the decoded objects; log and count those that cannot be decoded."""
        for raw in items:
            try:
                yield _object(raw, resource, action.read_as)
            except UnreadableObjectError as error:
                self._unreadable.setdefault(resource.kind, Unreadable(resource.kind)).report(error.head.label, error)
                self._observe([Observation(name=UNREADABLE, labels={"kind": resource.kind})])

    async def _write(self, action: ApiAction, kind: str, api_version: str) -> str | None:
        """Send a write request and return the new resource version.

        Remembers the UID of a created object. Returns None for deletions, evictions and resizes, and if the response
        has no version. Raises RequestFailedError if the server does not have the kind or the request fails.
        """
        resource = await self._resources.find_kind(kind, api_version)
        call = call_of(action, resource)
        answer = await self._client.call(call)
        if isinstance(action, Delete | Evict | Resize):
            return None
        written = self._client.decode(answer, _Written, call).metadata
        if isinstance(action, Create):
            metadata = action.object.metadata
            self._identities.note(resource.kind, metadata.namespace, metadata.name, written.uid)
        return written.resource_version or None

    def prepare_patch(self, about: Get) -> Callable[[bytes], Awaitable[str | ApiError]]:
        """Return a function that sends a merge patch (JSON) of one object, and returns its new version or an error.

        The version is empty if the response has none.

        Faster than the action :class:`~kscale.effects.Patch` for many patches of the same object.
        """
        prepared: list[Call] = []

        async def send(patch: bytes) -> str | ApiError:
            try:
                if not prepared:
                    resource = await self._resources.find_kind(about.kind, about.api_version)
                    action = Patch(
                        kind=about.kind,
                        api_version=about.api_version,
                        namespace=about.namespace,
                        name=about.name,
                        patch={},
                    )
                    prepared.append(call_of(action, resource))
                call = msgspec.structs.replace(prepared[0], body=patch)
                answer = await self._client.call(call)
                return self._client.decode(answer, _Written, call).metadata.resource_version
            except RequestFailedError as error:
                return error.error

        return send

    # -- objects of the watches --------------------------------------------------------------------------------------

    async def _caught_up(self, action: Action) -> LiveStores:
        """Return the stores with buffered events applied. Raises TypeError if there are no stores."""
        stores = self._require(self._stores, action)
        await stores.caught_up()
        return stores

    async def _read_stores(self, action: Get | List | ReadStores) -> Any:
        """Return the result of an action that reads the watched objects.

        ReadStores returns None while the stores are not settled.
        """
        stores = await self._caught_up(action)
        if isinstance(action, Get):
            return self._get_watched(action, stores)
        async with self._turn:
            if isinstance(action, List):
                return self._all_watched(action, stores)
            return action.read(stores) if stores.settled else None

    def _get_watched(self, action: Get, stores: LiveStores) -> KubeObject | ApiError:
        """Return a watched object, or the NotFound error."""
        cached = stores.get(action.kind, action.namespace, action.name)
        if cached is not None:
            return cached
        return ApiError(f'{action.kind.lower()} "{action.name}" not found', code=404, reason="NotFound")

    def _all_watched(self, action: List, stores: LiveStores) -> list[KubeObject]:
        """Return the watched objects that a List selects. If it names nodes, these are active pods of the nodes."""
        if action.nodes is not None:
            candidates: Sequence[KubeObject] = stores.pods_of(action.nodes)
        else:
            candidates = stores.objects(action.kind)
        selector = parse_selector(action.selector)
        return [
            candidate
            for candidate in candidates
            if (not action.namespace or candidate.namespace == action.namespace)
            and (not action.selector or selector.matches(candidate.metadata.labels or {}))
        ]

    # -- the cloud and other blocking calls --------------------------------------------------------------------------

    async def _block(self, call: Callable[[Any], _T], action: Action) -> _T:
        """Run a blocking call in the executor and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, action)

    async def _ask_cloud(self, action: Action) -> Any:
        """Perform an action on the cloud, and return its result.

        It runs in the executor, unless a local provider can refresh or look up instances without blocking. Raises
        ProviderError, or TypeError for an action of another kind.
        """
        groups = self._require(self._groups, action)
        local = self._local_groups
        if isinstance(action, Refresh) and local is not None and (refreshed := local.refresh_locally()) is not None:
            return without_impossible_targets(list(refreshed))
        nodes: Sequence[Node] = ()
        if isinstance(action, HasInstances | DeleteNodes):  # look up the nodes here: the stores belong to this thread
            nodes_by_name: dict[str, KubeObject] = {}
            if self._stores is not None:
                await self._stores.caught_up()
                async with self._turn:
                    nodes_by_name = {node.name: node for node in self._stores.objects("Node")}
            nodes = nodes_named(action, nodes_by_name)
            if isinstance(action, HasInstances) and local is not None:
                return ask_cloud(groups, action, nodes=nodes)
        return await self._block(partial(ask_cloud, groups, nodes=nodes), action)

    def _require(self, part: _T | None, action: Action) -> _T:
        """Return the backend ``part``. Raises TypeError, which names the action, if it is None."""
        if part is None:
            raise TypeError(f"this world cannot carry out {type(action).__name__}")
        return part


def _object(raw: bytes | msgspec.Raw, resource: ServedResource, read_as: str = "") -> KubeObject:
    """Decode an object and set its kind and version. ``read_as``: version whose struct is used (empty: the served one).

    Raises UnreadableObjectError.
    """
    result = read_object(raw, find_kind(read_as or resource.api_version, resource.kind) or KubeObject)
    result.kind, result.api_version = resource.kind, resource.api_version
    return result
