"""Actions that a step machine yields: requests to the API server, the cloud, metrics APIs and rankers, and reports.

``kind`` is a kind as in a manifest (``Node``); ``api_version`` is only needed for kinds that kscale has no struct of.

Time and company stand here too: upstream's goroutines are machines of their own, so these actions hold machines.

Upstream: ``expander/grpcplugin``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from kscale.effects.moments import Moment
from kscale.effects.outcomes import ApiError, Outcome
from kscale.objects.api.autoscaling import Scale
from kscale.objects.api.core import Node, ObjectReference, Pod
from kscale.objects.api.meta import KubeObject
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.times import virtual_moment

__all__ = [
    "Action",
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
    "GetWhole",
    "HasInstances",
    "InBackground",
    "IncreaseSize",
    "List",
    "Machine",
    "Metric",
    "MetricsApi",
    "Observation",
    "Observe",
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


PatchType = Literal["merge", "json", "strategic"]
MERGE: Final[PatchType] = "merge"


class Get(msgspec.Struct, frozen=True, kw_only=True):
    """Read one object. ``watched``: what the watch has brought so far, else from the API server.

    One that is not there is refused with the reason ``NotFound``.
    """

    kind: str
    name: str
    namespace: str = ""
    api_version: str = ""
    watched: bool = False


class GetWhole(msgspec.Struct, frozen=True, kw_only=True):
    """Read one object as plain data, with what kscale has no fields for, from the API server."""

    kind: str
    name: str
    namespace: str = ""
    api_version: str = ""


class List(msgspec.Struct, frozen=True, kw_only=True):
    """Read the objects of a kind, in the lister's order.

    ``namespace`` empty: of all; ``selector``: of labels, as text, empty: all; ``nodes``: only pods that are assigned to
    these nodes and have not ended. ``watched``: what the watch has brought so far, else from the API server.
    ``read_as``, of what is not watched: the API group whose kinds the objects are, where they are served under another.
    """

    kind: str
    namespace: str = ""
    selector: str = ""
    nodes: tuple[str, ...] | None = None
    api_version: str = ""
    watched: bool = True
    read_as: str = ""


class Discover(msgspec.Struct, frozen=True):
    """Ask which kinds are served, as which resources and in which versions."""


class Create(msgspec.Struct, frozen=True):
    """Create an object. One that is there already is refused with the reason ``AlreadyExists``."""

    object: KubeObject


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """Ask what the API server would make of a new object, with defaults and admission (a dry run). ``content``: the
    object as plain data. Nothing is created."""

    kind: str
    content: dict[str, Any]
    namespace: str = ""
    api_version: str = ""


class PatchOperation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation (``op``) of a JSON patch (RFC 6902): ``add``, ``replace`` or ``test`` with a value, or
    ``remove``. ``value``: plain data, or a struct of :mod:`kscale.objects`, which stands for what the API prints of
    it."""

    op: str
    path: str
    value: Any = msgspec.UNSET


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """Change parts of an object.

    ``patch`` is plain data for ``merge`` and ``strategic``, :class:`PatchOperation` for ``json``. With a
    ``resource_version`` an object that has changed since is refused with the reason ``Conflict``. ``type``: which of
    the three; ``subresource``: that of the object which is changed (empty: the object itself).
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
    """Delete an object; with a ``uid`` only that very one. Disruption budgets are not asked. ``grace_period_seconds``
    None: as the object has it."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    grace_period_seconds: int | None = None
    api_version: str = ""


class Evict(msgspec.Struct, frozen=True, kw_only=True):
    """Create an eviction of a pod (policy/v1). A disruption budget refuses with the reason ``TooManyRequests``.
    ``grace_period_seconds`` None: as the pod has it."""

    namespace: str
    name: str
    grace_period_seconds: int | None = None


class Resize(msgspec.Struct, frozen=True, kw_only=True):
    """Patch the ``resize`` sub-resource of a pod (JSON patch)."""

    namespace: str
    name: str
    patch: tuple[PatchOperation, ...]


class GetScale(msgspec.Struct, frozen=True, kw_only=True):
    """Read the scale of an object. ``resource`` is a group-resource such as ``deployments.apps``.

    ``fresh``: it is read again after a failed write, so what is remembered does not do.
    """

    namespace: str
    resource: str
    name: str
    fresh: bool = False


class PutScale(msgspec.Struct, frozen=True, kw_only=True):
    """Write the number of replicas into a scale at the resource version it was read at, else it is a ``Conflict``."""

    namespace: str
    resource: str
    scale: Scale
    replicas: int


class WriteStatus(msgspec.Struct, frozen=True):
    """Write the status of an object at the resource version it carries. Only the status is written."""

    object: KubeObject


class Refresh(msgspec.Struct, frozen=True):
    """Look at the cloud anew before a loop (``Refresh``). Gives the groups as they are now; None: as they were."""


class HasInstances(msgspec.Struct, frozen=True):
    """Ask of nodes whether their machines still run (``HasInstance``). Gives answers by name; of a node without one the
    cloud cannot tell."""

    nodes: tuple[str, ...]


class GetPrices(msgspec.Struct, frozen=True, kw_only=True):
    """Ask what nodes and pods cost from ``start`` to ``end`` (``Pricing``: ``NodePrice`` and ``PodPrice``), in any
    currency. ``pods``: their API data, whole. ``start`` and ``end`` may be given as aware datetimes, too."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[dict[str, Any], ...] = ()
    start: Moment
    end: Moment

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            msgspec.structs.force_setattr(self, name, virtual_moment(getattr(self, name), name))


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """What ``nodes`` and ``pods`` cost, in the order of the question; an :class:`~kscale.effects.ApiError` in place of
    a price that the cloud does not tell."""

    nodes: tuple[float | ApiError, ...] = ()
    pods: tuple[float | ApiError, ...] = ()


class IncreaseSize(msgspec.Struct, frozen=True, kw_only=True):
    """Raise a group's target size by ``delta``; ``atomic``: all of it or nothing (``AtomicIncreaseSize``).

    A provider that cannot do it atomically refuses with ``Not implemented``.
    """

    group: str
    delta: int
    atomic: bool = False


class DecreaseTargetSize(msgspec.Struct, frozen=True, kw_only=True):
    """Lower a group's target size without deleting nodes; ``delta`` is negative."""

    group: str
    delta: int


class DeleteNodes(msgspec.Struct, frozen=True, kw_only=True):
    """Delete nodes of a group in one call, and lower its target size with them.

    ``nodes`` are names of nodes or, of instances that never registered, their provider ids. ``objects``: these nodes as
    they were when their deletion began; the cloud is asked by them, whatever has become of them since (one may be gone,
    or another have taken its name). ``force``: without regard to the minimum size and the like (``ForceDeleteNodes``).
    """

    group: str
    nodes: tuple[str, ...]
    objects: tuple[Node, ...] = ()
    force: bool = False


class CreateGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Make a group that does not exist yet; ``asynchronous``: begin to, and answer groups that are still being made."""

    group: str
    asynchronous: bool = False


class CreatedGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The group that was made (``main``), and others made along with it (``extra``), as the cloud describes them
    now."""

    main: NodeGroup
    extra: tuple[NodeGroup, ...] = ()


class DeleteGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Remove a group that was made by node auto-provisioning and is not needed any more (``Delete``)."""

    group: str


MetricsApi = Literal["resource", "custom", "external"]


class GetMetric(msgspec.Struct, frozen=True, kw_only=True):
    """Ask a metrics API: ``api`` says which.

    ``kind`` is what a custom metric is of (``Pod``, ``Ingress.networking.k8s.io``; empty for external metrics);
    ``name`` names one object, empty asks for all that match ``selector``; ``metric_selector``: of the series
    of a custom metric. An empty selector is not sent.
    ``namespace`` is empty for an object at the root and, of the resource metrics, for the pods of all namespaces.
    ``columns``: resource metrics of many pods are answered as columns (:class:`~kscale.objects.pod_metrics.PodUsage`).
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
    """Ask Prometheus a ``query`` (PromQL); its answer comes as it is, in JSON.

    From ``start`` to ``end`` every ``step`` nanoseconds (``query_range``); without a ``start`` at the moment ``end``.
    An answer of more than ``most_bytes`` is an error (None: of any length).
    """

    query: str
    end: Moment
    start: Moment | None = None
    step: int = 0
    most_bytes: int | None = None


class SamePods(Protocol):
    """``count`` pods alike in everything that a ranker reads, one after the other; ``pod`` is one of them, and ``data``
    its API data, whole."""

    @property
    def pod(self) -> Pod: ...

    @property
    def count(self) -> int: ...

    @property
    def data(self) -> dict[str, Any]: ...


class RankOption(msgspec.Struct, frozen=True, kw_only=True):
    """One way to scale up: ``node_count`` new nodes of ``group`` would take ``pods``. ``debug``: a text for logs."""

    group: str
    node_count: int
    debug: str
    pods: Sequence[SamePods]


class RankOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Ask which options are best. ``nodes``: the template of each group.

    ``bare``: keys of pods whose environment is not to be sent (upstream has emptied it by then).
    """

    options: Sequence[RankOption]
    nodes: Mapping[str, Node]
    bare: frozenset[str] = frozenset()


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: group ids in the ranker's order (None stands for a nil entry). ``warnings``: what was not
    sent, or not ranked."""

    groups: tuple[str | None, ...] = ()
    warnings: tuple[str, ...] = ()


_Item = TypeVar("_Item")


class Deferred(Sequence[_Item]):
    """What ``make()`` gives, once it is asked for. Equal to a list of the same items, and pickled as one."""

    __slots__ = ("_items", "_make")

    def __init__(self, make: Callable[[], Iterable[_Item]]) -> None:
        self._make = make
        self._items: list[_Item] | None = None

    def _list(self) -> list[_Item]:
        if self._items is None:
            self._items = list(self._make())
        return self._items

    def __len__(self) -> int:
        return len(self._list())

    def __iter__(self) -> Iterator[_Item]:
        return iter(self._list())

    def __getitem__(self, i: int) -> _Item:  # type: ignore[override]  # by number only
        return self._list()[i]

    def __eq__(self, other: object) -> bool:
        return self._list() == list(other) if isinstance(other, list | Deferred) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return repr(self._list())

    def __reduce__(self) -> tuple[type[list[_Item]], tuple[list[_Item]]]:
        return list, (self._list(),)


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):  # events are never part of a reference cycle
    """What upstream would tell the API server about an object.

    ``regarding`` has kind, namespace, name and uid as far as they are known; ``type`` is ``Normal`` or ``Warning``,
    ``reason`` one word in camel case, ``message`` a sentence. Who
    reports it, when, and how often is for whoever sends it.
    """

    regarding: ObjectReference
    type: str
    reason: str
    message: str

    @property
    def about(self) -> str:
        """Return the object as ``Kind/namespace/name``, or ``Kind/name`` for a cluster-scoped object."""
        of = self.regarding
        return "/".join(part for part in (of.kind, of.namespace, of.name) if part)


class Metric(NamedTuple):
    """A metric of upstream's: its kind (``counter``, ``gauge``, ``histogram``, ``summary``), its labels in order, and
    the upper bounds of a histogram. ``of``: a summary of what another metric, a histogram, observes. ``help``: the text
    of its HELP line, upstream's where upstream has the metric."""

    name: str
    kind: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    of: str = ""
    help: str = ""


class Observation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What upstream would count: ``value`` is added to a counter, set on a gauge, observed in a histogram.

    ``buckets``: of many values observed at once, how many fell in each bucket (one more than the metric has bounds);
    ``value`` is then their sum. ``reset``: all that the metric holds, whatever its labels, is forgotten, and nothing
    else is said (``GaugeVec.Reset``).
    """

    name: str
    value: float = 1.0
    labels: dict[str, str] = {}
    buckets: tuple[int, ...] | None = None
    reset: bool = False


class Emit(msgspec.Struct, frozen=True):
    """Record events, in this order. They may be made when somebody looks (:class:`~kscale.effects.Deferred`)."""

    events: Sequence[Event]


class Observe(msgspec.Struct, frozen=True, gc=False):
    """Count observations, in this order; they may be made when somebody looks, too. What only a cloud knows (models of
    GPUs) is for the world to add."""

    observations: Sequence[Observation]


class Wait(msgspec.Struct, frozen=True):
    """Let ``duration`` nanoseconds pass; with ``jitter`` up to that fraction more, as the world draws it."""

    duration: int
    jitter: float = 0.0


class Together(msgspec.Struct, frozen=True, kw_only=True):
    """Run machines side by side, ``at_most`` so many at a time (None: all), begun in their order.

    Gives the list of what they return, when the last has ended. ``brief``: each of their steps takes well under a
    millisecond, so that nobody needs to be spared waiting for one; not those of machines that they run in turn.
    """

    machines: tuple[Machine, ...]
    at_most: int | None = None
    brief: bool = False


class Within(msgspec.Struct, frozen=True):
    """Run a machine that has ``duration`` nanoseconds (Go's ``context.WithTimeout``). Gives what it returns.

    When they are over, what it does just then ends with :data:`~kscale.effects.DEADLINE_EXCEEDED` although it may have
    happened, and so does at once everything that it asks for afterwards; reports are still taken. Machines that it runs
    together share its time; those that it starts in the background have their own.
    """

    duration: int
    machine: Machine


class ReadStores(msgspec.Struct, frozen=True):
    """Read what the watches have brought by now: a machine that waited for slow answers works with current objects.

    Gives what ``read(stores)`` returns, which is called where the stores live and while nothing changes them, or None
    while some kind is being listed anew.
    """

    read: Callable[[Any], Any]


class InBackground(msgspec.Struct, frozen=True):
    """Start a machine and go on. What it returns is of no interest; what it finds out it tells whom it was made for."""

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
    | GetWhole
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
"""What goes back and forth with any step machine: it yields the first, is sent the second, returns the third. All but
the few that speak to one part of a program only, in words of their own, are :data:`Steps`."""

Steps = Exchange[Action, Outcome, _T]
"""A step machine: yields actions, is sent their outcomes, returns what it decided."""

StepsOf = Exchange[_A, Outcome, _T]
"""A step machine that yields only some actions: ``StepsOf[Evict | Wait, int]`` is a ``Steps[int]`` too."""

Machine = Callable[[Moment], Steps[Any]]
"""What begins a step machine at a moment."""
