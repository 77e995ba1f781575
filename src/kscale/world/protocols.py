"""Protocols between drivers and a world, live or simulated, and the actions that every cloud performs.

A driver sees only these protocols. It reads :class:`Stores`, passes the state to a step machine, and performs the
machine's actions: in a live world with ``await perform(action)``, in a simulated one with ``perform(action, now)`` in
virtual time (:class:`kscale.effects.VirtualTime`).

The cloud, the metrics APIs and an external ranker are separate protocols, because a live world gets them from other
servers than the API server, and because a Python program can implement them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, runtime_checkable

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
from kscale.objects.api.meta import KubeObject, ObjectMeta, shorten
from kscale.objects.api.metrics import ExternalMetricValueList, MetricValue, MetricValueList, PodMetricsList
from kscale.objects.nodegroup import Groups, NodeGroup, ProviderError
from kscale.objects.pod_metrics import PodUsage
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "MOST_NODES",
    "Change",
    "Clock",
    "History",
    "InputSources",
    "LiveStores",
    "LocalGroups",
    "Metrics",
    "MetricsAnswer",
    "NodeGroups",
    "NotifyingStores",
    "PerformLive",
    "Ranker",
    "Stores",
    "Watch",
    "without_impossible_targets",
]


PerformLive = Callable[[Action], Awaitable[Outcome]]
"""Performs an action in a live world. A rejected action does not raise: it is an :class:`Outcome` with an error."""

MetricsAnswer = PodMetricsList | PodUsage | MetricValueList | MetricValue | ExternalMetricValueList


class Clock(Protocol):
    """Time of a world."""

    def now(self) -> Moment:
        """Return nanoseconds since 1970, as other programs see the time; it may go back."""
        ...

    def monotonic(self) -> int:
        """Return monotonic nanoseconds, for waiting and durations."""
        ...


class InputSources(msgspec.Struct, frozen=True, kw_only=True):
    """Sources, besides the kinds that a driver watches, that can change the result of its rounds.

    ``cloud``, ``metrics``: whether the result depends on them. ``judged``: watched kinds for which the driver itself
    decides whether a change matters, when it is notified of the change. ``is_unread``: called with (key, old, new) of
    simultaneous changes of one kind that is not ``typed``; returns whether the driver will itself decide, in
    :meth:`~kscale.drivers.driver.Repeating.repeat`, if they matter (None: every change matters).
    """

    cloud: bool = False
    metrics: bool = False
    judged: frozenset[str] = frozenset()
    is_unread: Callable[[Sequence[tuple[str, Any, Any]]], bool] | None = None


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """Kind of objects that a driver needs.

    Selects objects of ``namespace`` (empty: all namespaces) by ``field_selector`` and ``label_selector``.
    ``api_version`` belongs to ``kind``. ``typed``: as single objects; otherwise only as part of the snapshot.
    ``lazy``: a driver need not notice changes before its next round.
    """

    kind: str
    api_version: str
    namespace: str = ""
    field_selector: str = ""
    label_selector: str = ""
    typed: bool = False
    lazy: bool = False


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Change of an object of a typed kind, seen by ``watch``.

    ``old`` is None for a new object, ``new`` is None for a deleted one. ``missed``: the deletion was not observed, and
    ``old`` is the last known version (client-go's ``DeletedFinalStateUnknown``).
    """

    watch: Watch
    old: KubeObject | None = None
    new: KubeObject | None = None
    missed: bool = False


class Stores(Protocol):
    """Objects that the watches have delivered so far. Has a single owner; returned objects do not change."""

    @property
    def synced(self) -> bool:
        """Return whether every requested kind has been listed once."""
        ...

    @property
    def settled(self) -> bool:
        """Return whether every kind is listed and none is being listed again.

        Only then the content is a consistent state and may be used for decisions.
        """
        ...

    def snapshot(self, now: Moment | None = None) -> Snapshot:
        """Return a snapshot of the current cluster.

        ``now`` is the time for devices that wait for binding conditions.
        """
        ...

    def objects(self, kind: str) -> Sequence[KubeObject]:
        """Return the objects of a kind in the order of arrival."""
        ...

    def get(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        """Return one object as last seen by the watch, or None."""
        ...

    def pods_of(self, nodes: Sequence[str]) -> Sequence[Pod]:
        """Return the active pods assigned to the named nodes, node by node."""
        ...

    def resource_version(self, kind: str) -> str:
        """Return the newest resource version seen of a kind; empty if there is none."""
        ...


class NotifyingStores(Stores, Protocol):
    """Stores that notify subscribers of changes."""

    def subscribe(self, call: Callable[[Change | None], None]) -> Callable[[], None]:
        """Call ``call`` after each change of a typed kind, and return a function that ends this.

        ``call`` is also called with None after the last of the changes that become visible together, and whenever
        ``settled`` may have become true. In virtual time, drivers schedule their rounds only at these calls.
        """
        ...


class LiveStores(NotifyingStores, Protocol):
    """Stores that change while step machines run elsewhere."""

    async def caught_up(self) -> None:
        """Wait until the events received so far have been applied. A decision that reads the stores may delay this."""
        ...


@runtime_checkable
class NodeGroups(Protocol):
    """The cloud: upstream's ``CloudProvider`` and ``NodeGroup`` as data.

    Methods may block and are called from several threads. Errors are
    :class:`~kscale.objects.nodegroup.ProviderError`; an operation that a cloud does not support raises it with the text
    ``Not implemented``, as upstream's providers do.
    """

    @property
    def name(self) -> str:
        """Return the provider's name."""
        ...

    @property
    def gpu_label(self) -> str:
        """Return the node label that names the GPU type; empty if the cloud has none."""
        ...

    @property
    def gpu_types(self) -> Collection[str]:
        """Return the cloud's GPU types, used as metric labels (``GetAvailableGPUTypes``)."""
        ...

    def refresh(self) -> Groups | Sequence[NodeGroup]:
        """Refresh the state of the cloud and return the current groups (``Refresh``).

        A :class:`~kscale.objects.nodegroup.Groups` result may name nodes whose group could not be determined. Raises
        ProviderError.
        """
        ...

    def has_instance(self, node: Node) -> bool:
        """Check whether the machine of a node still exists (``HasInstance``).

        Raises ProviderError if that is unknown.
        """
        ...

    def prices(self, question: GetPrices) -> Prices:
        """Return the prices of nodes and pods for the time range of ``question`` (``Pricing``).

        Raises ProviderError.
        """
        ...

    def increase_size(self, group: str, delta: int, *, atomic: bool = False) -> None:
        """Increase the target size of a group by ``delta`` (``IncreaseSize``).

        With ``atomic``, all nodes or none are created (``AtomicIncreaseSize``). Raises ProviderError.
        """
        ...

    def decrease_target_size(self, group: str, delta: int) -> None:
        """Reduce the target size of a group by ``delta`` (negative) without deleting nodes (``DecreaseTargetSize``).

        Raises ProviderError.
        """
        ...

    def delete_nodes(self, group: str, nodes: Sequence[Node], *, force: bool = False) -> None:
        """Delete nodes of a group and reduce its target size accordingly (``DeleteNodes``).

        With ``force``, limits such as the minimum size are ignored (``ForceDeleteNodes``). For an instance that never
        registered, the node has its ID as name and as provider ID. Raises ProviderError.
        """
        ...

    def create_group(self, group: str, *, asynchronous: bool = False) -> Sequence[NodeGroup]:
        """Create a ``group`` (``Create``) and return the created groups, with the requested group first.

        With ``asynchronous``, the method does not wait for the creation. Raises ProviderError.
        """
        ...

    def delete_group(self, group: str) -> None:
        """Delete a group that node auto-provisioning created (``Delete``). Raises ProviderError."""
        ...

    def close(self) -> None:
        """Close connections (``Cleanup``)."""
        ...


class Metrics(Protocol):
    """Metrics APIs that answer :class:`~kscale.effects.GetMetric`."""

    async def get(self, question: GetMetric) -> MetricsAnswer | ApiError:
        """Return the response of the metrics API that ``question`` names, or its error."""
        ...


class History(Protocol):
    """Backend of :class:`~kscale.effects.QueryPrometheus`."""

    async def query(self, question: QueryPrometheus) -> bytes | ApiError:
        """Return the raw response to the query of ``question``, or the error."""
        ...


class Ranker(Protocol):
    """Backend of :class:`~kscale.effects.RankOptions`. May block."""

    def __call__(self, question: RankOptions, /) -> Ranking | ApiError: ...


MOST_NODES: Final = 100_000
"""Limit on the instances of all groups of a cloud together, and on their target sizes. No cluster has as many nodes."""
_log = logging.getLogger(__name__)


@runtime_checkable
class LocalGroups(NodeGroups, Protocol):
    """A cloud that answers some questions without a request and at once: then on the event loop, without a thread.

    Its ``has_instance`` is such a question.
    """

    def refresh_locally(self) -> Sequence[NodeGroup] | None:
        """Return the current groups; None if that needs a request (``refresh``)."""
        ...


def without_impossible_targets(groups: Groups | list[NodeGroup]) -> Groups | list[NodeGroup]:
    """Return the groups without those that make all target sizes together more than ``MOST_NODES``.

    Leaves out the groups with the largest target sizes first, and logs each. Returns ``groups`` itself if none is left
    out. A loop simulates each node that a group's target size promises; upstream's loop does not end for an impossible
    size. Not in upstream.
    """
    targets = {group.id: max(0, group.target_size or 0) for group in groups}
    total = sum(targets.values())
    dropped = set()
    for id_ in sorted(targets, key=targets.__getitem__, reverse=True):
        if total <= MOST_NODES:
            break
        total -= targets[id_]
        dropped.add(id_)
        text = "node group %s is left out: its target size is %d, and all groups together may have %d nodes"
        _log.error(text, shorten(id_), targets[id_], MOST_NODES)
    if not dropped:
        return groups
    possible = [group for group in groups if group.id not in dropped]
    return Groups(possible, groups.node_errors) if isinstance(groups, Groups) else possible


def ask_cloud(groups: NodeGroups, action: Action, nodes: Sequence[Node] = ()) -> Any:
    """Perform an action on the cloud and return the value of its outcome.

    Parameters
    ----------
    groups : NodeGroups
        The cloud.
    action : Action
        An action on the cloud, such as ``Refresh`` or ``IncreaseSize``.
    nodes : sequence of Node
        The nodes that the action names (:func:`nodes_named`).

    Returns
    -------
    object
        The groups for ``Refresh``, without impossible target sizes. For ``HasInstances`` a dict of node name -> whether
        the instance exists, without nodes whose instance is unknown. :class:`~kscale.effects.Prices` for ``GetPrices``,
        ``CreatedGroups`` for ``CreateGroup``, None for other actions.

    Raises
    ------
    ProviderError
        If the cloud rejects the action.
    TypeError
        If the action does not concern a cloud.
    """
    match action:
        case Refresh():
            refreshed = groups.refresh()
            return without_impossible_targets(refreshed if isinstance(refreshed, Groups) else list(refreshed))
        case HasInstances():
            running = {}
            for node in nodes:
                with suppress(ProviderError):  # a node whose instance is unknown is left out
                    running[node.name] = groups.has_instance(node)
            return running
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
    """Return the nodes that an action names.

    ``known``: nodes by name; objects in the action win over these. An instance without a node becomes a node with the
    instance's ID as name and provider ID.
    """
    objects = {node.name: node for node in action.objects} if isinstance(action, DeleteNodes) else {}
    nodes = []
    for name in action.nodes:
        node = objects.get(name) or known.get(name)
        if not isinstance(node, Node):
            node = Node(metadata=ObjectMeta(name=name), spec=NodeSpec(provider_id=name))
        nodes.append(node)
    return nodes
