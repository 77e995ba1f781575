"""The inputs of a scenario: its cluster, shared with other scenarios, node groups, prices and options."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.ca.options import AutoscalingOptions
from kscale.capacity.catalogue import Catalogue
from kscale.capacity.cost import price_of
from kscale.capacity.groups import members_of
from kscale.capacity.karpenter.plan import PoolOffers
from kscale.capacity.losses import make_pending
from kscale.effects import Moment
from kscale.errors import InputError
from kscale.objects.api.core import Node, Pod
from kscale.objects.node_selectors import ZONE
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.pod_owners import controller_of, is_lost_with_node
from kscale.scheduling.compile.pod_classes import SharedPodClasses
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.columns import PENDING, REMOVED
from kscale.snapshot.pods.store import DescribedPods
from kscale.snapshot.pods.table import COLUMN, PodTable
from kscale.snapshot.snapshot import Snapshot, without_lost_nodes

__all__ = ["Nodes", "SharedCluster", "World", "zones_of"]


_MAX_CACHED_PODS: Final = 1 << 15
_MAX_CACHED_RECORDS: Final = 1 << 12


class _SpareRows(NamedTuple):
    """A table of pods with rows for the pods that losses of nodes will leave pending.

    ``rows``: those of each node; ``states``: the pods' states, for all rows of the table.
    """

    table: PodTable
    rows: Mapping[str, NDArray[np.int64]]
    states: NDArray[np.int8]


class _NodeLoss(NamedTuple):
    """Pods of one lost node in the table of a snapshot: the rows of all, and the pods that become pending.

    ``recreated_rows``: the rows of those that become pending, in the order of ``pods``.
    """

    rows: NDArray[np.int64]
    pods: DescribedPods
    recreated_rows: NDArray[np.int64]


class SharedCluster:
    """A cluster and its snapshot, shared by all scenarios with the same nodes and pods.

    After a loss of nodes the snapshot is selected from that before, and the cluster is only copied if it is read.
    """

    def __init__(
        self,
        cluster: Cluster | Callable[[], Cluster],
        lost: frozenset[str] = frozenset(),
        pod_classes: SharedPodClasses | None = None,
        origin: Cluster | None = None,
    ) -> None:
        """Share a cluster, or the result of a function that creates one on first use.

        ``lost``: names of the pods whose nodes an edit removed; ``pod_classes``: those compiled for other scenarios;
        ``origin``: the cluster whose interner numbers the pods, if ``cluster`` is a function.
        """
        self.lost = lost
        self.pod_classes = pod_classes or SharedPodClasses()
        self._cluster = cluster
        self._origin = origin or self.cluster
        self._losses: dict[str, _NodeLoss] = {}
        self._spare: _SpareRows | None = None
        self._models: dict[str, Pod] = {}  # by controller
        self._cached_pods = 0

    @cached_property
    def cluster(self) -> Cluster:
        """Return the cluster."""
        return self._cluster if isinstance(self._cluster, Cluster) else self._cluster()

    @cached_property
    def snapshot(self) -> Snapshot:
        """Return the cluster's snapshot with dynamic resource allocation, as the autoscaler of 1.37 takes it."""
        return self.cluster.snapshot(dra=True)

    def for_loop(self, options: AutoscalingOptions) -> Cluster | Snapshot:
        """Return what a loop with these options reads: the snapshot, or the cluster if they need another one."""
        is_plain = options.enable_dynamic_resource_allocation and not options.enable_csi_node_aware_scheduling
        return self.snapshot if is_plain and not self.snapshot.informers.binding else self.cluster

    def without_nodes(self, names: Collection[str]) -> SharedCluster:
        """Return a copy without the nodes ``names``. Pods that do not end with their node become pending.

        Raises InputError if pods of these nodes are invalid.
        """
        losses = [self._lose(name) for name in names]
        removed = np.sort(np.concatenate([loss.rows for loss in losses]))
        snapshot, spare = self.snapshot, self._get_spare_rows(dict(zip(names, losses, strict=True)))

        def copy_cluster() -> Cluster:
            """Return a copy of the cluster without the nodes, in which the pods to recreate are pending."""
            cluster = self.cluster.copy()
            pods = _concatenate(losses)
            cluster.apply_described(pods, removed=[snapshot.table.keys[row] for row in removed.tolist()])
            cluster.tidy()
            for name in names:
                cluster.remove("Node", name)
            return cluster

        lost = self.lost.union([record.key for loss in losses for record in loss.pods.records])
        result = SharedCluster(copy_cluster, lost, self.pod_classes, self._origin)
        if spare is not None:
            created = np.sort(np.concatenate([spare.rows[name] for name in names]))
            table = spare.table.exchanging(removed, created, spare.states.take(created))
            vars(result)["snapshot"] = without_lost_nodes(snapshot, names, table)
        return result

    def _get_spare_rows(self, losses: Mapping[str, _NodeLoss]) -> _SpareRows | None:
        """Return the pod table with additional rows for the pods that these losses leave pending.

        Rows for earlier losses stay while they are cached. None if the pods' class numbers no longer belong to this
        snapshot.
        """
        spare = self._spare
        if spare is None or not losses.keys() <= spare.rows.keys():
            known = [*self._losses.items()]  # a list, as other threads may add some
            losses = {**{name: loss for name, loss in known if spare and name in spare.rows}, **losses}
            pods = _concatenate(losses.values())
            if pods.interner is not self.snapshot.interner or pods.memo is not self.snapshot.table.memo:
                return None
            before = self._table
            places = len(before) + np.argsort(_order([*losses.values()]))
            ends = np.cumsum([len(loss.recreated_rows) for loss in losses.values()])
            rows = dict(zip(losses, np.split(places, ends[:-1]), strict=True))
            table = before.with_spare_rows(pods.records, pods.values)
            states = np.append(before.columns["state"], pods.values[COLUMN["state"]]).astype(np.int8)
            spare = self._spare = _SpareRows(table, rows, states)
        return spare

    def expect_losses(self, nodes: Iterable[str]) -> None:
        """Compile the classes of the pods that losses of these nodes will leave, all in one step, which is faster.

        The recreated pods are cached until the cache is half full. A node whose pods are invalid is skipped: the edit
        that loses it reports the error.
        """
        classes: dict[PodClass, None] = {}
        losses: dict[str, _NodeLoss] = {}
        for node in nodes:
            if self._cached_pods > _MAX_CACHED_PODS // 2:
                break
            try:
                losses[node] = loss = self._lose(node)
            except (InputError, KeyError):  # reported by the edit that loses the node
                continue
            classes.update((record.pod_class, None) for record in loss.pods.records if record.pod_class is not None)
        if losses:
            self._get_spare_rows(losses)
        self.pod_classes.expect(classes, self.snapshot.placed_classes)

    @cached_property
    def _table(self) -> PodTable:
        """Return the pods of the snapshot; texts of pending ones (the first few thousand) are decoded only once."""
        table = self.snapshot.table
        return table.with_records(np.flatnonzero(table.columns["state"] == PENDING)[:_MAX_CACHED_RECORDS])

    @cached_property
    def _rows_by_node(self) -> dict[str, NDArray[np.int64]]:
        """Return the rows of the pods that are bound, not only nominated, to each node that some pod names."""
        columns, names = self.snapshot.table.columns, self.snapshot.table.nodes
        if not names:
            return {}
        rows = np.flatnonzero((columns["state"] != REMOVED) & (columns["bound"] != 0) & (columns["at"] >= 0))
        at = columns["at"][rows]
        rows = rows[np.argsort(at, kind="stable")]
        ends = np.cumsum(np.bincount(at, minlength=len(names)))
        return dict(zip(names, np.split(rows, ends[:-1]), strict=True))

    def _lose(self, node: str) -> _NodeLoss:
        """Return the pods that the loss of a node removes and leaves pending. Cached by node.

        Raises InputError for invalid pods.
        """
        cached = self._losses.get(node)
        if cached is None:
            rows, table = self._rows_by_node.get(node, np.zeros(0, dtype=np.int64)), self.snapshot.table
            pods_by_row = {row: table.record(row).pod for row in rows.tolist()}
            pods = {row: make_pending(pod) for row, pod in pods_by_row.items() if not is_lost_with_node(pod)}
            self._cached_pods += len(pods)
            if self._cached_pods > _MAX_CACHED_PODS:
                self._losses.clear()
                self._models.clear()
                self._spare = None
                self._cached_pods = len(pods)
            described = self._origin.describe_pods(map(self._share_parts, pods.values()))
            cached = self._losses[node] = _NodeLoss(rows, described, np.array([*pods], dtype=np.int64))
        return cached

    def _share_parts(self, pod: Pod) -> Pod:
        """Return an equal pod that shares equal metadata, spec and status with an earlier pod of its controller.

        This saves memory and comparisons. A pod without a controller is returned unchanged.
        """
        controller = controller_of(pod.metadata)
        if controller is None:
            return pod
        model = self._models.setdefault(controller.uid, pod)
        metadata, other = pod.metadata, model.metadata
        metadata = _struct_replace(
            metadata,
            labels=_share(metadata.labels, other.labels),
            annotations=_share(metadata.annotations, other.annotations),
            owner_references=_share(metadata.owner_references, other.owner_references),
        )
        spec, status = _share(pod.spec, model.spec), _share(pod.status, model.status)
        return _struct_replace(pod, metadata=metadata, spec=spec, status=status)


def _order(losses: Sequence[_NodeLoss]) -> NDArray[np.int64]:
    """Return the order of the pods that losses leave pending, by the rows that they had before: int64[pods]."""
    return np.argsort(np.concatenate([loss.recreated_rows for loss in losses]), kind="stable")


def _concatenate(losses: Iterable[_NodeLoss]) -> DescribedPods:
    """Return the pods that several losses leave pending, in the order of the rows that they had before."""
    losses = [*losses]
    return DescribedPods.concatenate([loss.pods for loss in losses], _order(losses))


_T = TypeVar("_T")
_struct_replace = msgspec.structs.replace


def _share(part: _T, other: _T) -> _T:
    """Return ``other`` if it is equal to ``part``, else ``part``."""
    return other if part == other else part


@dataclass(frozen=True)
class World:
    """The inputs of a decision: an edited cluster, its node groups, options and prices.

    - ``digest``: texts of the edits that decisions depend on, without those of prices and of the choice among options
    - ``groups``: node groups as described, without those in ``retired``
    - ``templates``: known templates of new nodes, by group id
    - ``retired``: groups that were removed or lost; their remaining nodes stay in the cluster
    - ``lost_groups``: ids of groups that were lost
    - ``lost_zones``: zones in which no new node may be created
    - ``standing``: $/h of each node that a group already has, by group id, if a new node costs something else
    - ``notes``: texts for the reader about what an edit does not change
    - ``offers``: NodePools, if Karpenter's rule decides scale-ups; ``groups`` are then those of their offerings
    """

    place: SharedCluster
    groups: tuple[NodeGroup, ...]
    options: AutoscalingOptions
    templates: Mapping[str, NodeTemplate]
    now: datetime | Moment
    digest: tuple[str, ...] = ()
    profile: SchedulerProfile | None = None
    catalogue: Catalogue | None = None
    retired: tuple[NodeGroup, ...] = ()
    standing: Mapping[str, float | None] = field(default_factory=dict)
    lost_zones: frozenset[str] = frozenset()
    lost_groups: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    offers: PoolOffers | None = None

    @cached_property
    def existing(self) -> Nodes:
        """Return the existing nodes by group."""
        return Nodes.of(self)

    def with_digest(self, digest: tuple[str, ...]) -> World:
        """Return the same world with another digest. The cached nodes by group are kept."""
        result = replace(self, digest=digest)
        if "existing" in vars(self):  # the digest says nothing about nodes
            vars(result)["existing"] = self.existing
        return result

    @property
    def prices(self) -> dict[str, float | None]:
        """Return the price of one new node in $/h by group id, retired groups included; None if unknown."""
        return {group.id: group.price for group in (*self.retired, *self.groups)}


def zones_of(group: NodeGroup, world: World, members: Iterable[Node]) -> frozenset[str]:
    """Return the zones in which new nodes of a group are created, as far as they are known.

    The zone comes from the template, or from the labels that the description adds or selects by, otherwise from the
    labels of ``members``, the group's nodes. Empty if it is unknown.
    """
    template = world.templates.get(group.id) or group.template
    described = (None if template is None else template.node.metadata.labels, group.labels, group.node_selector)
    zone = next((labels[ZONE] for labels in described if labels and labels.get(ZONE)), "")
    if zone:
        return frozenset({zone})
    return frozenset(filter(None, ((node.metadata.labels or {}).get(ZONE) for node in members)))


@dataclass(frozen=True)
class Nodes:
    """Existing nodes by node group.

    ``members`` counts the nodes of each group, ``group_of`` maps node names to group ids. ``others`` maps the names of
    nodes without group to their catalogue price in $/h, or None if it is unknown.
    """

    members: Mapping[str, int]
    group_of: Mapping[str, str]
    others: Mapping[str, float | None]

    @classmethod
    def of(cls, world: World) -> Nodes:
        """Assign the world's nodes to groups; a node that several groups match belongs to the first of them."""
        group_of: dict[str, str] = {}
        nodes = world.place.snapshot.columns.objects
        members: dict[str, int] = {}
        for group in (*world.groups, *world.retired):
            names = [node.metadata.name for node in members_of(group, nodes) if node.metadata.name not in group_of]
            group_of.update(dict.fromkeys(names, group.id))
            members[group.id] = members.get(group.id, 0) + len(names)
        ungrouped = (node for node in nodes if node.metadata.name not in group_of)
        return cls(members, group_of, {node.metadata.name: price_of(node, (), world.catalogue) for node in ungrouped})

    def without(self, names: Collection[str]) -> Nodes:
        """Return a copy without the nodes ``names``."""
        group_of, members, others = dict(self.group_of), dict(self.members), dict(self.others)
        for name in names:
            others.pop(name, None)
            if (group := group_of.pop(name, None)) is not None:
                members[group] -= 1
        return Nodes(members, group_of, others)

    def beside(self, world: World) -> float | None:
        """Return the $/h of the nodes that belong to no current group: of retired groups, and without group.

        None if one of their prices is unknown.
        """
        retired = {group.id for group in world.retired} - {group.id for group in world.groups}
        prices = [
            *(price for name in retired for price in [world.standing.get(name)] * self.members[name]),
            *self.others.values(),
        ]
        return None if None in prices else sum(price for price in prices if price is not None)

    def cost(self, world: World, change: Mapping[str, int], removed: Iterable[str] = ()) -> float | None:
        """Return the $/h of all nodes after a decision, or None if a needed price is unknown.

        ``change`` is the number of nodes added (or, negative, removed) by group; ``removed``: names of removed nodes
        without group.
        """
        total, prices = 0.0, world.prices
        for name in {**self.members, **change}:
            more = change.get(name, 0)
            old = self.members.get(name, 0) + min(0, more)
            for number, price in ((old, world.standing.get(name, prices[name])), (max(0, more), prices[name])):
                if number and price is None:
                    return None
                total += number * (price or 0.0)
        missing = set(removed)
        for name, price in self.others.items():
            if name not in missing:
                if price is None:
                    return None
                total += price
        return round(total, 9)
