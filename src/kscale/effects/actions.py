"""Actions that a step machine yields (requests to the API server, the cloud, metrics APIs and rankers, and reports),
and their outcomes.

``kind`` is a kind as in a manifest (``Node``); ``api_version`` is only needed for kinds without a struct in kscale.

Waiting and concurrency are actions too. Upstream's goroutines are separate machines, so some actions contain machines.

Upstream: ``expander/grpcplugin``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from kscale.effects.moments import SECOND, Moment
from kscale.objects.api.autoscaling import Scale
from kscale.objects.api.core import Node, ObjectReference, Pod
from kscale.objects.api.meta import KubeObject
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.times import virtual_moment

__all__ = [
    "ALREADY_EXISTS",
    "CANCELED",
    "CONFLICT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "TOO_MANY_REQUESTS",
    "Action",
    "ApiError",
    "Create",
    "CreateGroup",
    "CreatedGroups",
    "DecreaseTargetSize",
    "Deferred",
    "Delete",
    "DeleteGroup",
    "DeleteNodes",
    "Discover",
    "Emit",
    "Event",
    "Evict",
    "Exchange",
    "Get",
    "GetMetric",
    "GetPrices",
    "GetScale",
    "GetUnstructured",
    "HasInstances",
    "InBackground",
    "IncreaseSize",
    "List",
    "Machine",
    "Metric",
    "MetricsApi",
    "Observation",
    "Observe",
    "Outcome",
    "Patch",
    "PatchOperation",
    "PatchType",
    "Preview",
    "Prices",
    "PutScale",
    "QueryPrometheus",
    "RankOption",
    "RankOptions",
    "Ranking",
    "ReadStores",
    "Refresh",
    "Resize",
    "SamePods",
    "Steps",
    "StepsOf",
    "Together",
    "Wait",
    "Within",
    "WriteStatus",
]

CONFLICT: Final = "Conflict"
NOT_FOUND: Final = "NotFound"
ALREADY_EXISTS: Final = "AlreadyExists"
TOO_MANY_REQUESTS: Final = "TooManyRequests"


class ApiError(msgspec.Struct, frozen=True, omit_defaults=True):
    """Error of the API server or of a cloud.

    - ``message``: text for a person.
    - ``code``: the HTTP status, 0 if there is none (a cloud, a broken connection).
    - ``reason``: reason of the API's status (``Conflict``, ``NotFound``, ``TooManyRequests``, ...); of a cloud the type
      of its error.
    - ``causes``: the types of the status's causes, in order.
    - ``retry_after``: nanoseconds after which the server asks for a retry, or None.
    """

    message: str
    code: int = 0
    reason: str = ""
    causes: tuple[str, ...] = ()
    retry_after: int | None = None

    @property
    def is_conflict(self) -> bool:
        """Return whether the object was changed in the meantime (reason ``Conflict``)."""
        return self.reason == CONFLICT

    @property
    def is_not_found(self) -> bool:
        """Return whether the object does not exist (reason ``NotFound``)."""
        return self.reason == NOT_FOUND

    @property
    def is_already_exists(self) -> bool:
        """Return whether an object of this name exists already (reason ``AlreadyExists``)."""
        return self.reason == ALREADY_EXISTS

    @property
    def retry_after_seconds(self) -> int | None:
        """Return ``retry_after`` in seconds, rounded down, as in the ``Retry-After`` header; None if it is not set."""
        return None if self.retry_after is None else self.retry_after // SECOND


DEADLINE_EXCEEDED: Final = ApiError("context deadline exceeded")
"""Error of an action that exceeds its timeout (:class:`~kscale.effects.Within`)."""
CANCELED: Final = ApiError("context canceled")
"""Error of an action that was interrupted because its runner stops."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Outcome of an action: the time at which it ended (``at``), and its ``value`` or ``error``.

    :data:`kscale.effects.LEGAL_OUTCOMES` lists the legal values of each action.
    """

    at: Moment
    value: Any = None
    error: ApiError | None = None


PatchType = Literal["merge", "json", "strategic"]
MERGE: Final[PatchType] = "merge"


class Get(msgspec.Struct, frozen=True, kw_only=True):
    """Read one object.

    ``watched``: from the watch's store, else from the API server. A missing object is an error with reason
    ``NotFound``.
    """

    kind: str
    name: str
    namespace: str = ""
    api_version: str = ""
    watched: bool = False


class GetUnstructured(msgspec.Struct, frozen=True, kw_only=True):
    """Read one object from the API server as plain data, including fields that kscale does not model."""

    kind: str
    name: str
    namespace: str = ""
    api_version: str = ""


class List(msgspec.Struct, frozen=True, kw_only=True):
    """List the objects of a kind, in the lister's order.

    - ``namespace``: empty for all namespaces. ``selector``: label selector as text, empty for all objects.
    - ``nodes``: only active pods that are assigned to these nodes.
    - ``watched``: from the watch's store, else from the API server.
    - ``read_as``: for a list from the API server, the API group whose kinds the objects have, if they are served under
      another one.
    """

    kind: str
    namespace: str = ""
    selector: str = ""
    nodes: tuple[str, ...] | None = None
    api_version: str = ""
    watched: bool = True
    read_as: str = ""


class Discover(msgspec.Struct, frozen=True):
    """Request which kinds are served, as which resources and in which versions."""


class Create(msgspec.Struct, frozen=True):
    """Create an object. If it exists already, the error has reason ``AlreadyExists``."""

    object: KubeObject


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """Request what the API server would store for a new object after defaulting and admission (a dry run).

    ``content`` is the object as plain data. Nothing is created.
    """

    kind: str
    content: dict[str, Any]
    namespace: str = ""
    api_version: str = ""


class PatchOperation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Operation (``op``) of a JSON patch (RFC 6902): ``add``, ``replace`` or ``test`` with a value, or ``remove``.

    ``value`` is plain data, or a struct of :mod:`kscale.objects`, which is encoded as in the API.
    """

    op: str
    path: str
    value: Any = msgspec.UNSET


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """Change parts of an object.

    ``type`` is ``merge``, ``strategic`` or ``json``. ``patch`` is plain data for the first two and a tuple of
    :class:`PatchOperation` for ``json``. ``subresource``: the subresource to change (empty: the object itself). With a
    ``resource_version``, the error has reason ``Conflict`` if the object has changed since.
    """

    kind: str
    name: str
    patch: dict[str, Any] | tuple[PatchOperation, ...]
    namespace: str = ""
    type: PatchType = MERGE
    subresource: str = ""
    resource_version: str = ""
    api_version: str = ""


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Delete an object, with a ``uid`` only if it is that one. Disruption budgets do not apply.

    ``grace_period_seconds`` None: the object's own.
    """

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    grace_period_seconds: int | None = None
    api_version: str = ""


class Evict(msgspec.Struct, frozen=True, kw_only=True):
    """Create an eviction of a pod (policy/v1).

    If a disruption budget forbids it, the error has reason ``TooManyRequests``. ``grace_period_seconds`` None: the
    pod's own.
    """

    namespace: str
    name: str
    grace_period_seconds: int | None = None


class Resize(msgspec.Struct, frozen=True, kw_only=True):
    """Patch the ``resize`` subresource of a pod (JSON patch)."""

    namespace: str
    name: str
    patch: tuple[PatchOperation, ...]


class GetScale(msgspec.Struct, frozen=True, kw_only=True):
    """Read the scale of an object. ``resource`` is a group-resource such as ``deployments.apps``.

    ``fresh``: a cached scale must not be used, as when it is read again after a failed write.
    """

    namespace: str
    resource: str
    name: str
    fresh: bool = False


class PutScale(msgspec.Struct, frozen=True, kw_only=True):
    """Write the number of replicas to a scale at the resource version it was read at; otherwise ``Conflict``."""

    namespace: str
    resource: str
    scale: Scale
    replicas: int


class WriteStatus(msgspec.Struct, frozen=True):
    """Write the status of an object at the object's resource version. Nothing else is written."""

    object: KubeObject


class Refresh(msgspec.Struct, frozen=True):
    """Refresh the cloud's state before a loop (``Refresh``).

    The outcome has the current groups, or None if they are unchanged.
    """


class HasInstances(msgspec.Struct, frozen=True):
    """Request whether the machines of nodes still exist (``HasInstance``).

    The outcome maps node names to answers; a node that the cloud cannot tell about is left out.
    """

    nodes: tuple[str, ...]


class GetPrices(msgspec.Struct, frozen=True, kw_only=True):
    """Request what nodes and pods cost from ``start`` to ``end`` (``Pricing``: ``NodePrice`` and ``PodPrice``).

    The currency may be any. ``pods``: their complete API data. ``start`` and ``end`` may also be aware datetimes.
    """

    nodes: tuple[Node, ...] = ()
    pods: tuple[dict[str, Any], ...] = ()
    start: Moment
    end: Moment

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            msgspec.structs.force_setattr(self, name, virtual_moment(getattr(self, name), name))


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of ``nodes`` and ``pods`` in the order of the request.

    An :class:`~kscale.effects.ApiError` stands for a price that the cloud does not provide.
    """

    nodes: tuple[float | ApiError, ...] = ()
    pods: tuple[float | ApiError, ...] = ()


class IncreaseSize(msgspec.Struct, frozen=True, kw_only=True):
    """Increase a group's target size by ``delta``. ``atomic``: all or nothing (``AtomicIncreaseSize``).

    A provider without atomic increase responds with the error ``Not implemented``.
    """

    group: str
    delta: int
    atomic: bool = False


class DecreaseTargetSize(msgspec.Struct, frozen=True, kw_only=True):
    """Reduce a group's target size without deleting nodes; ``delta`` is negative."""

    group: str
    delta: int


class DeleteNodes(msgspec.Struct, frozen=True, kw_only=True):
    """Delete nodes of a group in one call, and reduce its target size accordingly.

    - ``nodes``: names of nodes, or provider IDs of instances that never registered.
    - ``objects``: these nodes at the beginning of their deletion. They are sent to the cloud even if a node has been
      deleted or replaced meanwhile.
    - ``force``: ignore limits such as the minimum size (``ForceDeleteNodes``).
    """

    group: str
    nodes: tuple[str, ...]
    objects: tuple[Node, ...] = ()
    force: bool = False


class CreateGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Create a group that does not exist yet.

    ``asynchronous``: only start the creation; the outcome has groups that are still being created.
    """

    group: str
    asynchronous: bool = False


class CreatedGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The created group (``main``), and others that were created with it (``extra``), in their current state."""

    main: NodeGroup
    extra: tuple[NodeGroup, ...] = ()


class DeleteGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Delete an unneeded group that node auto-provisioning created (``Delete``)."""

    group: str


MetricsApi = Literal["resource", "custom", "external"]


class GetMetric(msgspec.Struct, frozen=True, kw_only=True):
    """Query a metrics API, selected by ``api``.

    - ``kind``: kind of the objects of a custom metric (``Pod``, ``Ingress.networking.k8s.io``; empty for external
      metrics).
    - ``name``: one object; empty for all that match ``selector``. ``metric_selector``: selects series of a custom
      metric. An empty selector is not sent.
    - ``namespace``: empty for a cluster-scoped object and, for resource metrics, for the pods of all namespaces.
    - ``columns``: return resource metrics of many pods as columns
      (:class:`~kscale.objects.pod_metrics.PodUsage`).
    """

    api: MetricsApi
    namespace: str
    kind: str = ""
    name: str = ""
    metric: str = ""
    selector: str = ""
    metric_selector: str = ""
    columns: bool = False


class QueryPrometheus(msgspec.Struct, frozen=True, kw_only=True):
    """Send a ``query`` (PromQL) to Prometheus; the outcome has the raw JSON response.

    The query covers ``start`` to ``end`` every ``step`` nanoseconds (``query_range``), or without ``start`` the moment
    ``end``. A response of more than ``most_bytes`` is an error (None: no limit).
    """

    query: str
    end: Moment
    start: Moment | None = None
    step: int = 0
    most_bytes: int | None = None


class SamePods(Protocol):
    """Consecutive pods that are equal in everything that a ranker reads.

    ``count`` is their number, ``pod`` one of them, and ``data`` its complete API data.
    """

    @property
    def pod(self) -> Pod:
        """Return one of the equal pods."""
        ...

    @property
    def count(self) -> int:
        """Return the number of equal pods."""

    @property
    def data(self) -> dict[str, Any]:
        """Return the complete API data of ``pod``."""
        ...


class RankOption(msgspec.Struct, frozen=True, kw_only=True):
    """Option to scale up: ``node_count`` new nodes of ``group`` for ``pods``. ``debug`` is a text for logs."""

    group: str
    node_count: int
    debug: str
    pods: Sequence[SamePods]


class RankOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Request which options are best. ``nodes``: the template node of each group.

    ``bare``: keys of pods whose environment is not sent (upstream has cleared it at this point).
    """

    options: Sequence[RankOption]
    nodes: Mapping[str, Node]
    bare: frozenset[str] = frozenset()


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a ranker: group IDs in its order (None stands for a nil entry).

    ``warnings``: options that were not sent or not ranked.
    """

    groups: tuple[str | None, ...] = ()
    warnings: tuple[str, ...] = ()


_Item = TypeVar("_Item")


class Deferred(Sequence[_Item]):
    """Sequence that is computed by ``make()`` on first use.

    It is equal to a list of the same items, and pickled as a list.
    """

    __slots__ = ("_items", "_make")

    def __init__(self, make: Callable[[], Iterable[_Item]]) -> None:
        self._make = make
        self._items: list[_Item] | None = None

    def _list(self) -> list[_Item]:
        """Return the items, which are computed on the first call."""
        if self._items is None:
            self._items = list(self._make())
        return self._items

    def __len__(self) -> int:
        return len(self._list())

    def __iter__(self) -> Iterator[_Item]:
        return iter(self._list())

    def __getitem__(self, i: int) -> _Item:  # type: ignore[override]  # slices are not supported
        return self._list()[i]

    def __eq__(self, other: object) -> bool:
        return self._list() == list(other) if isinstance(other, list | Deferred) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # unhashable, as a list is

    def __repr__(self) -> str:
        return repr(self._list())

    def __reduce__(self) -> tuple[type[list[_Item]], tuple[list[_Item]]]:
        return list, (self._list(),)


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):  # events are never part of a reference cycle
    """An event about a Kubernetes object. The recorder adds reporter, time and count.

    Attributes
    ----------
    regarding : ObjectReference
        The object: kind, namespace, name and uid as far as known.
    type : str
        ``Normal`` or ``Warning``.
    reason : str
        Reason of the event, one word in camel case.
    message : str
        Text of the event.
    """

    regarding: ObjectReference
    type: str
    reason: str
    message: str

    @property
    def about(self) -> str:
        """Return the object as ``Kind/namespace/name``, or ``Kind/name`` for a cluster-scoped object."""
        reference = self.regarding
        return "/".join(part for part in (reference.kind, reference.namespace, reference.name) if part)


class Metric(NamedTuple):
    """Description of a metric: kind, labels in order, and the upper bounds of a histogram.

    Kinds are ``counter``, ``gauge``, ``histogram`` and ``summary``. ``of``: name of the histogram whose observations a
    summary summarizes. ``help``: the HELP text, upstream's where upstream has the metric.
    """

    name: str
    kind: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    of: str = ""
    help: str = ""


class Observation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Observation of a metric: ``value`` is added to a counter, set on a gauge, or observed in a histogram.

    ``buckets``: number of observations per bucket, for many values at once (one more than the metric has bounds);
    ``value`` is then their sum. ``reset``: the series of these labels is removed (``DeleteLabelValues``), and without
    ``labels`` every series of the metric (``GaugeVec.Reset``); nothing else is recorded.
    """

    name: str
    value: float = 1.0
    labels: dict[str, str] = {}
    buckets: tuple[int, ...] | None = None
    reset: bool = False


class Emit(msgspec.Struct, frozen=True):
    """Record events in this order. They may be computed when they are read (:class:`~kscale.effects.Deferred`)."""

    events: Sequence[Event]


class Observe(msgspec.Struct, frozen=True, gc=False):
    """Record observations in this order; they may be computed when they are read.

    The world adds labels that only a cloud knows (GPU models).
    """

    observations: Sequence[Observation]


class Wait(msgspec.Struct, frozen=True):
    """Wait ``duration`` nanoseconds; with ``jitter`` up to that fraction longer, drawn by the world."""

    duration: int
    jitter: float = 0.0


class Together(msgspec.Struct, frozen=True, kw_only=True):
    """Run machines concurrently, at most ``at_most`` at a time (None: all), started in order.

    The outcome is the list of their results, when the last has ended. ``brief``: each of their steps takes well under
    a millisecond, so that other tasks need not be scheduled between them. This does not cover machines that they run.
    """

    machines: tuple[Machine, ...]
    at_most: int | None = None
    brief: bool = False


class Within(msgspec.Struct, frozen=True):
    """Run a machine with a timeout of ``duration`` nanoseconds (Go's ``context.WithTimeout``).

    The outcome is the machine's result. At the timeout, the current action ends with
    :data:`~kscale.effects.DEADLINE_EXCEEDED`, although it may have taken effect, and all later actions fail with the
    same error at once; reports are still recorded. Machines that it runs together share the timeout; those that it
    starts in the background do not.
    """

    duration: int
    machine: Machine


class ReadStores(msgspec.Struct, frozen=True):
    """Read the current content of the watches' stores, as after waiting for slow responses.

    The outcome is what ``read(stores)`` returns, or None while a kind is being listed again. ``read`` is called in the
    stores' thread, and nothing changes them meanwhile.
    """

    read: Callable[[Any], Any]


class InBackground(msgspec.Struct, frozen=True):
    """Start a machine without waiting for it. Its result is ignored; it reports to the object it was created for."""

    machine: Machine


Action = (
    Refresh
    | HasInstances
    | GetPrices
    | IncreaseSize
    | DecreaseTargetSize
    | DeleteNodes
    | CreateGroup
    | DeleteGroup
    | Get
    | GetUnstructured
    | List
    | Discover
    | Create
    | Preview
    | Patch
    | Delete
    | Evict
    | Resize
    | GetScale
    | PutScale
    | WriteStatus
    | GetMetric
    | QueryPrometheus
    | RankOptions
    | Wait
    | Together
    | Within
    | InBackground
    | ReadStores
    | Emit
    | Observe
)

_T = TypeVar("_T")
_A = TypeVar("_A")
_O = TypeVar("_O")

Exchange = Generator[_A, _O, _T]
"""Generator type of a step machine: types of yielded actions, sent outcomes and return value. Most machines are
:data:`Steps`; a few have their own actions and outcomes within one part of a program."""

Steps = Exchange[Action, Outcome, _T]
"""A step machine: yields actions, is sent their outcomes, and returns its result."""

StepsOf = Exchange[_A, Outcome, _T]
"""A step machine that yields only some actions: ``StepsOf[Evict | Wait, int]`` is also a ``Steps[int]``."""

Machine = Callable[[Moment], Steps[Any]]
"""Function that starts a step machine at a time."""
