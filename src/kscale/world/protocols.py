"""Protocols between drivers and a world, live or simulated, and the actions that every cloud performs.

A driver never sees more than this. It *observes* :class:`Stores`, hands what it saw to a step machine, and whoever runs
it carries the machine's actions out: a live world with ``await perform(action)``, a simulated one with
``perform(action, now)`` in virtual time (:class:`kscale.effects.VirtualTime`).

The cloud, the metrics APIs and an outside ranker are protocols of their own, because a live world takes them from
somewhere else than the API server, and because a Python program can be one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

import msgspec

from kscale.effects import (
    Action,
    ApiError,
    CreatedGroups,
    CreateGroup,
    DecreaseTargetSize,
    DeleteGroup,
    DeleteNodes,
    GetMetric,
    GetPrices,
    HasInstances,
    IncreaseSize,
    Moment,
    Outcome,
    Prices,
    QueryPrometheus,
    Ranking,
    RankOptions,
    Refresh,
)
from kscale.objects.api.core import Node, NodeSpec, Pod
from kscale.objects.api.meta import KubeObject, ObjectMeta
from kscale.objects.api.metrics import ExternalMetricValueList, MetricValue, MetricValueList, PodMetricsList
from kscale.objects.nodegroup import NodeGroup, ProviderError
from kscale.objects.nodegroups import Groups
from kscale.objects.pod_metrics import PodUsage
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "Change",
    "Clock",
    "GoesBy",
    "History",
    "LiveStores",
    "Metrics",
    "MetricsAnswer",
    "NodeGroups",
    "PerformLive",
    "Ranker",
    "Stores",
    "TellingStores",
    "Watch",
]


PerformLive = Callable[[Action], Awaitable[Outcome]]
"""How a live world carries an action out. It never raises for a refusal: that is an :class:`Outcome` with an error."""

MetricsAnswer = PodMetricsList | PodUsage | MetricValueList | MetricValue | ExternalMetricValueList


class Clock(Protocol):
    """The world's time."""

    def now(self) -> Moment:
        """Nanoseconds since 1970, as other programs see it; it may be set back."""
        ...

    def monotonic(self) -> int:
        """Nanoseconds since some moment; never set back. What waiting goes by."""
        ...


class GoesBy(msgspec.Struct, frozen=True, kw_only=True):
    """What the rounds of a driver go by beside the kinds that it watches. ``judged``: kinds among those of whose
    changes it says itself whether they make a difference, as it is told of them."""

    cloud: bool = False
    metrics: bool = False
    judged: frozenset[str] = frozenset()


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of objects that a driver must see: those of ``namespace`` (empty: of all), cut down by
    ``field_selector`` and ``label_selector``; ``api_version`` goes with ``kind``. ``typed``: as objects, one by one;
    else only as part of the snapshot."""

    kind: str
    api_version: str
    namespace: str = ""
    field_selector: str = ""
    label_selector: str = ""
    typed: bool = False


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an object of a typed kind, seen by ``watch``.

    ``old`` None: it is new; ``new`` None: it is gone. ``missed``: nobody saw how it went, and ``old`` is the last that
    was seen of it (client-go's ``DeletedFinalStateUnknown``).
    """

    watch: Watch
    old: KubeObject | None = None
    new: KubeObject | None = None
    missed: bool = False


class Stores(Protocol):
    """What the watches have brought so far. Asked for only by its one owner; what it hands out does not change."""

    @property
    def synced(self) -> bool:
        """Every kind that was asked for has been listed once."""
        ...

    @property
    def settled(self) -> bool:
        """Besides, no kind is being listed anew: what is there is a state that once was. Only then may be observed."""
        ...

    def snapshot(self, now: Moment | None = None) -> Snapshot:
        """The cluster at this moment; ``now``: by when devices that wait for conditions have to be ready."""
        ...

    def objects(self, kind: str) -> Sequence[KubeObject]:
        """The objects of a kind, in the order in which they came."""
        ...

    def get(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        """One object, as far as the watch has brought it."""
        ...

    def pods_of(self, nodes: Sequence[str]) -> Sequence[Pod]:
        """The pods that are assigned to nodes and have not ended, node by node."""
        ...

    def resource_version(self, kind: str) -> str:
        """The newest version seen of a kind."""
        ...


class TellingStores(Stores, Protocol):
    """Stores that tell of what happens to them."""

    def subscribe(self, call: Callable[[Change | None], None]) -> Callable[[], None]:
        """Does ``call`` after each change of a typed kind, and with None whenever ``settled`` may have become true.
        Gives what ends that."""
        ...


class LiveStores(TellingStores, Protocol):
    """Stores that change while machines do their steps elsewhere."""

    async def caught_up(self) -> None:
        """Waits until what has come so far is taken up: it may have had to wait for a step that looked at it."""
        ...


@runtime_checkable
class NodeGroups(Protocol):
    """The cloud: upstream's ``CloudProvider`` and ``NodeGroup`` in data.

    Methods may block and are called from several threads. A refusal is a
    :class:`~kscale.objects.nodegroup.ProviderError`; what a cloud cannot do it refuses with the text ``Not
    implemented``, as upstream's do.
    """

    @property
    def name(self) -> str:
        """The provider's name."""
        ...

    @property
    def gpu_label(self) -> str:
        """The label of nodes that names their type of GPU; empty: the cloud has none of its own."""
        ...

    @property
    def gpu_types(self) -> Collection[str]:
        """The types of GPU that the cloud has, for the labels of metrics (``GetAvailableGPUTypes``)."""
        ...

    def refresh(self) -> Groups | Sequence[NodeGroup]:
        """Looks at the cloud anew (``Refresh``), and tells its groups as they are now; settled ones
        (:class:`~kscale.objects.nodegroups.Groups`) may name nodes whose group it fails to tell."""
        ...

    def has_instance(self, node: Node) -> bool:
        """Whether the machine of a node still runs (``HasInstance``)."""
        ...

    def prices(self, question: GetPrices) -> Prices:
        """What nodes and pods cost in the time of a ``question`` (``Pricing``)."""
        ...

    def increase_size(self, group: str, delta: int, *, atomic: bool = False) -> None:
        """Raises the target size of a group by ``delta``, ``atomic``: by all of it or nothing (``IncreaseSize``,
        ``AtomicIncreaseSize``)."""
        ...

    def decrease_target_size(self, group: str, delta: int) -> None:
        """Lowers the target size of a group by ``delta`` (negative) without deleting nodes (``DecreaseTargetSize``)."""
        ...

    def delete_nodes(self, group: str, nodes: Sequence[Node], *, force: bool = False) -> None:
        """Deletes nodes of a group and lowers its target size with them, ``force``: without regard to the
        minimum size and the like (``DeleteNodes``, ``ForceDeleteNodes``).

        Of an instance that never registered the node holds its id, as name and as provider id.
        """
        ...

    def create_group(self, group: str, *, asynchronous: bool = False) -> Sequence[NodeGroup]:
        """Makes a ``group`` (``Create``; ``asynchronous``: without waiting for it): that group first, then others that
        were made along with it."""
        ...

    def delete_group(self, group: str) -> None:
        """Removes a group that node auto-provisioning made (``Delete``)."""
        ...

    def close(self) -> None:
        """Lets go of connections (``Cleanup``)."""
        ...


class Metrics(Protocol):
    """What answers :class:`~kscale.effects.GetMetric`."""

    async def get(self, question: GetMetric) -> MetricsAnswer | ApiError:
        """The answer of the API that the question names."""
        ...


class History(Protocol):
    """What answers :class:`~kscale.effects.QueryPrometheus`."""

    async def query(self, question: QueryPrometheus) -> bytes | ApiError:
        """The answer to a ``question`` as it is."""
        ...


class Ranker(Protocol):
    """What answers :class:`~kscale.effects.RankOptions`. May block."""

    def __call__(self, question: RankOptions, /) -> Ranking | ApiError: ...


def ask_cloud(groups: NodeGroups, action: Action, nodes: Sequence[Node] = ()) -> Any:
    """The value of the action's outcome. ``nodes``: those that it names, where it names any (:func:`nodes_named`).

    Raises :class:`~kscale.objects.nodegroup.ProviderError` for what the cloud refuses, and TypeError for an action that
    asks nothing of a cloud.
    """
    match action:
        case Refresh():
            told = groups.refresh()
            return told if isinstance(told, Groups) else list(told)
        case HasInstances():
            found = {}
            for node in nodes:
                with suppress(ProviderError):  # where the cloud fails to tell it says nothing
                    found[node.name] = groups.has_instance(node)
            return found
        case GetPrices():
            return groups.prices(action)
        case IncreaseSize(group=group, delta=delta, atomic=atomic):
            return groups.increase_size(group, delta, atomic=atomic)
        case DecreaseTargetSize(group=group, delta=delta):
            return groups.decrease_target_size(group, delta)
        case DeleteNodes(group=group, force=force):
            return groups.delete_nodes(group, nodes, force=force)
        case CreateGroup(group=group, asynchronous=asynchronous):
            main, *extra = groups.create_group(group, asynchronous=asynchronous)
            return CreatedGroups(main=main, extra=tuple(extra))
        case DeleteGroup(group=group):
            return groups.delete_group(group)
    raise TypeError(f"this world cannot carry out {type(action).__name__}")


def nodes_named(action: HasInstances | DeleteNodes, known: Mapping[str, KubeObject]) -> list[Node]:
    """The nodes that an action names: as it holds them, else as they are ``known`` now; of an instance that is none,
    what is known: its id."""
    held = {node.name: node for node in action.objects} if isinstance(action, DeleteNodes) else {}
    found = []
    for name in action.nodes:
        node = held.get(name) or known.get(name)
        if not isinstance(node, Node):
            node = Node(metadata=ObjectMeta(name=name), spec=NodeSpec(provider_id=name))
        found.append(node)
    return found
