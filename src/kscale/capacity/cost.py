"""Cost of a cluster per hour by namespace, workload and node group, and the prices of nodes.

kscale's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.ca.expander.price import GIB_PER_CORE
from kscale.capacity.catalogue import InstanceType
from kscale.capacity.groups import members_of
from kscale.capacity.mix import ALL, MixOptions, mix
from kscale.errors import InputError
from kscale.objects.api.core import Node
from kscale.objects.argument_types import typed
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.pod_resources import CPU, MEMORY
from kscale.records import Record
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot
from kscale.vpa.controllers import TargetError, read_controllers
from kscale.vpa.target import find_topmost_owner

__all__ = ["CostReport", "CostShare", "IdealMix", "PoolCost", "cost", "ideal_mix"]


_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_REGIONS = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")


def price_of(
    node: Node, groups: Iterable[NodeGroup] = (), catalogue: Mapping[str, InstanceType] | None = None
) -> float | None:
    """Of one hour; None = not known. A group's price comes first: it is the user's own.

    A region that the catalogue has no column for counts as the first one that it has.
    """
    labels = node.metadata.labels or {}
    for group in groups:
        if group.price is not None and _has(group, node, labels):
            return group.price
    name = next((labels[key] for key in _TYPES if key in labels), "")
    if catalogue is None or name not in set(catalogue):
        return None
    kind = catalogue[name]
    region = next((labels[key] for key in _REGIONS if key in labels), "")
    price = kind.price(region)
    return kind.price() if price is None else price


def _has(group: NodeGroup, node: Node, labels: Mapping[str, str]) -> bool:
    """As :func:`~kscale.capacity.groups.members_of`; a group that says neither has the node that it is modelled on."""
    if group.nodes or not group.node_selector:
        return node.metadata.name in group.nodes or node.metadata.name == group.from_node
    return all(labels.get(key) == value for key, value in group.node_selector.items())


def priced(
    groups: Iterable[NodeGroup], catalogue: Mapping[str, InstanceType] | None, nodes: Sequence[Node] = ()
) -> list[NodeGroup]:
    """The groups, with the catalogue's price of what their template is where they have none of their own; without a
    template, of what the node that they are modelled on is, or the first of their ``nodes``."""
    found = []
    for group in groups:
        if group.price is None and catalogue is not None:
            model = _model(group, nodes)
            group = msgspec.structs.replace(group, price=None if model is None else price_of(model, (), catalogue))
        found.append(group)
    return found


def _model(group: NodeGroup, nodes: Sequence[Node]) -> Node | None:
    if group.template is not None:
        return group.template.node
    named = [node for node in nodes if node.metadata.name == group.from_node]
    return next(iter(named or members_of(group, nodes)), None)


CORES_PER_GPU = 30
"""So many cores cost as much as one GPU: 0.95 and 0.031611 $/h in the default prices of OpenCost."""
_GPUS = ("nvidia.com/gpu", "amd.com/gpu")
_NO_OWNER = "Pod"


class Part(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """Base of what the record consists of."""


class CostShare(Part, frozen=True):
    """What the pods of ``name`` ask for costs an hour, and its ``share`` of the cost of all nodes.
    ``cpu``: milli-cores, ``memory``: bytes that they ask for; ``biggest`` (of a namespace): its dearest workload."""

    name: str
    pods: int
    cost: float
    share: float
    cpu: int
    memory: int
    biggest: str = ""


class PoolCost(Part, frozen=True):
    """The nodes of a group (empty: of none); ``idle`` is the part of their cost that nobody asked for."""

    name: str
    nodes: int
    cost: float
    """Of all its nodes for one hour."""
    idle: float


class IdealMix(Part, frozen=True):
    """The cheapest set of nodes found for the pods that the report counts, as if there were none, and what any costs at
    least. Null bound: not for the same pods, ``nowhere`` of which find no place."""

    cost: float
    """Of all nodes for one hour."""
    bound: float | None
    nodes: int
    nowhere: int


class CostReport(Record, frozen=True):
    """What the nodes cost an hour: ``cost`` = ``requested`` + ``idle``. ``unpriced`` nodes have no known price and
    count nothing; pods on them are no part of ``namespaces`` and ``workloads``, which are sorted by cost.

    The price of a node is divided among its resources, a GiB of memory as 1/7.5 of a core and a GPU as 30 cores, and
    each part among the pods by what they ask of what the node offers. ``ideal``: when asked for.
    """

    KIND: ClassVar[str] = "CostReport"

    nodes: int
    unpriced: int
    pods: int
    cost: float
    requested: float
    idle: float
    namespaces: list[CostShare]
    workloads: list[CostShare]
    pools: list[PoolCost]
    """By group."""
    ideal: IdealMix | None = None


@typed
def cost(
    cluster: Cluster,
    groups: Iterable[NodeGroup] = (),
    catalogue: Mapping[str, InstanceType] | None = None,
) -> CostReport:
    """The report on the placed pods. Prices are those of ``groups`` and ``catalogue``
    (:func:`~kscale.capacity.cost.price_of`).

    Raises InputError where no node has a known price.
    """
    snapshot = cluster.snapshot(dra=True)
    groups = list(groups)
    prices = [price_of(node, groups, catalogue) for node in snapshot.columns.objects]
    unpriced = sum(price is None for price in prices)
    if prices and unpriced == len(prices):
        raise InputError("no node has a known price: name groups with prices (-g), or a catalogue that knows the types")
    price = np.array([each or 0.0 for each in prices])
    known = np.array([each is not None for each in prices], dtype=bool)
    amounts, rates = _amounts(snapshot), _rates(snapshot, price)
    at = snapshot.placed_node
    counts = known[at]
    of_pod = (amounts[snapshot.placed_class] * rates[at]).sum(axis=1) * counts
    asked: NDArray[np.float64] = np.bincount(at, weights=of_pod, minlength=len(prices)).astype(np.float64)
    names = np.array(snapshot.pods, dtype=object)[counts]
    spaces = [name.partition("/")[0] for name in names]
    owners = _workloads(cluster, names.tolist())
    total = float(price.sum())
    shares = of_pod[counts], amounts[snapshot.placed_class][counts], total
    workloads = _shares(owners, *shares)
    biggest: dict[str, str] = {}
    for each in workloads:
        biggest.setdefault(each.name.partition("/")[0], each.name.partition("/")[2])
    return CostReport(
        nodes=len(prices),
        unpriced=unpriced,
        pods=int(counts.sum()),
        cost=_money(total),
        requested=_money(float(asked.sum())),
        idle=_money(total - float(asked.sum())),
        namespaces=[msgspec.structs.replace(each, biggest=biggest[each.name]) for each in _shares(spaces, *shares)],
        workloads=workloads,
        pools=_pools(snapshot, groups, price, asked),
    )


@typed
def ideal_mix(
    cluster: Cluster,
    offers: Sequence[NodeGroup],
    *,
    groups: Iterable[NodeGroup] | None = None,
    catalogue: Mapping[str, InstanceType] | None = None,
    options: MixOptions | None = None,
    stop: Sequence[Callable[[], bool] | None] = (None, None),
) -> IdealMix:
    """The cheapest nodes for the pods that :func:`cost` counts, as if there were no nodes (:func:`kscale.mix`): those
    on nodes that ``groups`` (None: the offers) and ``catalogue`` have a price for."""
    groups = list(offers if groups is None else groups)
    priced = {node.metadata.name for node in cluster.nodes() if price_of(node, groups, catalogue) is not None}
    running = cluster.copy()
    for pod in cluster.pods():
        if pod.spec.node_name not in priced:
            running.remove(pod)
    plan = mix(running, offers, pods=ALL, options=options, stop=stop)
    return IdealMix(cost=plan.cost, bound=plan.bound.cost, nodes=plan.nodes, nowhere=plan.nowhere)


def _resources(snapshot: Snapshot) -> list[str]:
    return [CPU, MEMORY, *(name for name in _GPUS if name in snapshot.columns.allocatable)]


def _amounts(snapshot: Snapshot) -> NDArray[np.float64]:
    """float64[classes, resources]: what a placed pod of each class asks for."""
    names = _resources(snapshot)
    amounts = [[pod.occupancy.get(name, 0) for name in names] for pod in snapshot.interner.classes]
    return np.array(amounts, dtype=np.float64).reshape(-1, len(names))


def _rates(snapshot: Snapshot, price: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[nodes, resources]: $/h of a unit of each resource; all that a node offers costs its price."""
    names = _resources(snapshot)
    weight = {CPU: 1 / 1000, MEMORY: 1 / (GIB_PER_CORE * 2**30)}
    room = np.stack([snapshot.columns.allocatable[name].astype(np.float64) for name in names], axis=1)
    worth = room * np.array([weight.get(name, float(CORES_PER_GPU)) for name in names])
    total = worth.sum(axis=1, keepdims=True)
    part = np.divide(worth, total, out=np.zeros_like(worth), where=total > 0) * price[:, None]
    rates: NDArray[np.float64] = np.divide(part, room, out=np.zeros_like(part), where=room > 0)
    return rates


def _workloads(cluster: Cluster, names: Sequence[str]) -> list[str]:
    """``namespace/Kind/name`` of each pod: its topmost controller, or the pod itself."""
    controllers = read_controllers(cluster)
    found = []
    for name in names:
        try:
            parent = find_topmost_owner(cluster.pod(name), controllers)
        except TargetError:
            parent = None
        namespace, _, own = name.partition("/")
        found.append(f"{namespace}/{parent.kind}/{parent.name}" if parent else f"{namespace}/{_NO_OWNER}/{own}")
    return found


def _shares(
    names: Sequence[str], costs: NDArray[np.float64], amounts: NDArray[np.float64], total: float
) -> list[CostShare]:
    """A line for each name, the dearest first."""
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    of = np.array([number[name] for name in names], dtype=np.int64)
    pods = Counter(names)
    sums = [np.bincount(of, weights=column, minlength=len(number)) for column in (costs, amounts[:, 0], amounts[:, 1])]
    lines = [
        CostShare(
            name=name,
            pods=pods[name],
            cost=_money(float(sums[0][i])),
            share=round(float(sums[0][i]) / total, 6) if total else 0.0,
            cpu=int(sums[1][i]),
            memory=int(sums[2][i]),
        )
        for name, i in number.items()
    ]
    return sorted(lines, key=lambda line: (-line.cost, line.name))


def _pools(
    snapshot: Snapshot, groups: Sequence[NodeGroup], price: NDArray[np.float64], asked: NDArray[np.float64]
) -> list[PoolCost]:
    index = snapshot.columns.index
    rest = dict.fromkeys(range(len(price)))
    members: dict[str, list[int]] = {}
    for group in groups:
        found = [index[node.metadata.name] for node in members_of(group, snapshot.columns.objects)]
        members[group.id] = [n for n in found if n in rest]
        for n in members[group.id]:
            del rest[n]
    lines = []
    for name, mine in (*members.items(), ("", list(rest))):
        if mine:
            whole = float(price[mine].sum())
            lines.append(
                PoolCost(name=name, nodes=len(mine), cost=_money(whole), idle=_money(whole - float(asked[mine].sum())))
            )
    return sorted(lines, key=lambda line: (-line.cost, line.name))


def _money(amount: float) -> float:
    """Without the noise of adding up."""
    return round(amount, 9) + 0.0
