"""Cost of a cluster per hour by namespace, workload and node group, and the prices of nodes.

Not in upstream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.ca.expander.price import GIB_PER_CORE
from kscale.capacity.catalogue import InstanceType
from kscale.capacity.groups import members_of
from kscale.capacity.machine_types import instance_type_of
from kscale.capacity.mix import ALL, MixOptions, mix
from kscale.capacity.records import Part, round_money
from kscale.errors import InputError
from kscale.objects.api.core import Node
from kscale.objects.argument_types import typed
from kscale.objects.node_selectors import REGIONS
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.pod_resources import CPU, MEMORY
from kscale.records import Record
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot
from kscale.vpa.controllers import TargetError, read_controllers
from kscale.vpa.target import find_topmost_owner

__all__ = [
    "AllocatedCost",
    "CostAllocation",
    "CostReport",
    "CostShare",
    "IdealMix",
    "PoolCost",
    "cost",
    "ideal_mix",
    "name_workloads",
]


def price_of(
    node: Node, groups: Iterable[NodeGroup] = (), catalogue: Mapping[str, InstanceType] | None = None
) -> float | None:
    """Return the price of a node per hour, or None if it is unknown.

    Parameters
    ----------
    node : Node
        The node.
    groups : iterable of NodeGroup
        Node groups. The price of the first priced group that has the node takes precedence over the catalogue.
    catalogue : mapping of str to InstanceType, optional
        Prices by instance type. For a region without price, the type's first region is used.
    """
    labels = node.metadata.labels or {}
    for group in groups:
        if group.price is not None and _is_in_group(group, node, labels):
            return group.price
    name = instance_type_of(node)
    if catalogue is None or name not in catalogue:
        return None
    kind = catalogue[name]
    region = next((labels[key] for key in REGIONS if key in labels), "")
    price = kind.price(region)
    return kind.price() if price is None else price


def prices_of(
    nodes: Iterable[Node], groups: Sequence[NodeGroup] = (), catalogue: Mapping[str, InstanceType] | None = None
) -> list[float | None]:
    """Return the price of each node per hour (:func:`price_of`), None where it is unknown.

    Raises InputError if there are nodes and none of the prices is known.
    """
    prices = [price_of(node, groups, catalogue) for node in nodes]
    if prices and all(price is None for price in prices):
        raise InputError("no node has a known price: name groups with prices (-g), or a catalogue that knows the types")
    return prices


def _is_in_group(group: NodeGroup, node: Node, labels: Mapping[str, str]) -> bool:
    """Return whether a node belongs to a group, like :func:`~kscale.capacity.groups.members_of`.

    ``labels``: of the node. A group that names its ``nodes``, or has no selector, consists of these and of the node
    that it is modelled on. Any other group consists of the nodes with all labels of its selector.
    """
    if group.nodes or not group.node_selector:
        return node.metadata.name in group.nodes or node.metadata.name == group.from_node
    return all(labels.get(key) == value for key, value in group.node_selector.items())


def set_prices(
    groups: Iterable[NodeGroup], catalogue: Mapping[str, InstanceType] | None, nodes: Sequence[Node] = ()
) -> list[NodeGroup]:
    """Return the groups, with the catalogue's price of their instance type for copies of those without a price.

    The type is that of the group's template, else of the node that the group is modelled on, else of the group's first
    member among ``nodes``. The price stays None if it is unknown. Without a ``catalogue``, no price is set.
    """
    result = []
    for group in groups:
        if group.price is None and catalogue is not None:
            model = _model(group, nodes)
            group = msgspec.structs.replace(group, price=None if model is None else price_of(model, (), catalogue))
        result.append(group)
    return result


def _model(group: NodeGroup, nodes: Sequence[Node]) -> Node | None:
    """Return the node of the group's template, else the node that the group is modelled on, else its first member.

    None if ``nodes`` has neither.
    """
    if group.template is not None:
        return group.template.node
    named = [node for node in nodes if node.metadata.name == group.from_node]
    return next(iter(named or members_of(group, nodes)), None)


CORES_PER_GPU = 30
"""So many cores cost as much as one GPU: 0.95 and 0.031611 $/h in the default prices of OpenCost."""
GPUS = ("nvidia.com/gpu", "amd.com/gpu")
_NO_OWNER = "Pod"


class CostShare(Part, frozen=True):
    """Cost per hour of the requests of some pods.

    Attributes
    ----------
    name : str
        The namespace, or the workload as ``namespace/Kind/name``.
    pods : int
        Number of pods.
    cost : float
        Their part of the cost of the nodes, per hour.
    share : float
        ``cost`` divided by the cost of all nodes, from 0 to 1.
    cpu : int
        Their CPU requests, in milli-cores.
    memory : int
        Their memory requests, in bytes.
    biggest : str
        Of a namespace: its most expensive workload, as ``Kind/name``. Empty for a workload.
    by_resource : dict of str to float
        ``cost`` divided by requested resource.
    by_pool : dict of str to float
        ``cost`` divided by node group. The empty name stands for nodes without a group.
    """

    name: str
    pods: int
    cost: float
    share: float
    cpu: int
    memory: int
    biggest: str = ""
    by_resource: dict[str, float] = msgspec.field(default_factory=dict)
    by_pool: dict[str, float] = msgspec.field(default_factory=dict)


class PoolCost(Part, frozen=True):
    """Cost of the nodes of a node group.

    Attributes
    ----------
    name : str
        Id of the node group. Empty: nodes without a group.
    nodes : int
        Number of nodes.
    cost : float
        Cost of these nodes per hour.
    idle : float
        Part of ``cost`` for capacity that no pod requested, per hour.
    """

    name: str
    nodes: int
    cost: float
    idle: float


class IdealMix(Part, frozen=True):
    """The cheapest set of nodes found for the pods of the report, as if there were no nodes, and a lower bound of the
    cost.

    Attributes
    ----------
    cost : float
        Cost of the set of nodes per hour.
    bound : float or None
        Lower bound: no nodes for these pods cost less per hour. None: the bound does not cover the same pods.
    node_count : int
        Number of nodes in the set.
    unschedulable_count : int
        Number of pods that fit on no node of the set.
    """

    cost: float
    bound: float | None
    node_count: int
    unschedulable_count: int


class AllocatedCost(Part, frozen=True):
    """Cost of one team. Amounts are for all hours of the window together; ``cost`` = ``requested`` + ``idle`` +
    ``storage``.

    Attributes
    ----------
    name : str
        Name of the team: a namespace, a workload, or the value of a label or annotation. ``(none)``, ``(idle)`` and
        ``(unbound volumes)`` are lines for what belongs to no team.
    pods : int
        Number of its pods.
    requested : float
        Cost of what its pods request.
    idle : float
        Its part of the cost of capacity that no pod requested.
    storage : float
        Cost of its volumes in all hours of the window.
    cost : float
        Total cost in all hours of the window.
    share : float
        ``cost`` divided by the cost of all teams, from 0 to 1.
    by_usage : float or None
        Total cost of the team in all hours if usage divided the nodes instead of requests. None: no history of usage.
    """

    name: str
    pods: int
    requested: float
    idle: float
    storage: float
    cost: float
    share: float
    by_usage: float | None = None


class CostAllocation(Record, frozen=True):
    """The cost of a cluster divided among teams. Amounts are for all hours together; ``cost`` = ``requested`` +
    ``idle`` + ``storage``. The amounts of the lines add up to these.

    Attributes
    ----------
    by : str
        What names the team of a pod: ``namespace``, ``workload``, ``controller``, ``label:KEY`` or ``annotation:KEY``.
    idle_rule : str
        Who pays for capacity that no pod requested: ``proportional`` (all teams, in proportion to their cost),
        ``separate`` (a line of its own) or ``none`` (left out).
    hours : float
        Length of the window, in hours.
    decimals : int
        Number of decimals of the amounts.
    cost : float
        Total cost in all hours of the window.
    requested : float
        Cost of what pods request.
    idle : float
        Cost of capacity that no pod requested; 0 with the rule ``none``.
    storage : float
        Cost of volumes.
    lines : list of AllocatedCost
        Cost of each team.
    volumes : int
        Number of volumes with a price.
    unpriced_volumes : int
        Number of volumes whose storage class has no price. They cost nothing here.
    unmeasured_pods : int or None
        Number of counted pods without a sample of usage, which pay nothing by usage. None: no history of usage.
    """

    KIND: ClassVar[str] = "CostAllocation"
    ROWS: ClassVar[str] = "lines"

    by: str
    idle_rule: str
    hours: float
    decimals: int
    cost: float
    requested: float
    idle: float
    storage: float
    lines: list[AllocatedCost]
    volumes: int = 0
    unpriced_volumes: int = 0
    unmeasured_pods: int | None = None

    def summary(self) -> str:
        """Return a line of text: the cost of the time window, the number of lines, and what names them (``by``)."""
        hours = "1 hour" if self.hours == 1 else f"{self.hours:,.4g} hours"
        return f"{self.cost:,.{self.decimals}f} for {hours}, {len(self.lines):,} lines by {self.by}"

    def explain(self, name: str) -> str:
        """Return a sentence on what the cost of line ``name`` consists of.

        Raises InputError if there is no such line.
        """
        for line in self.lines:
            if line.name == name:
                return _explain_allocated(line, self)
        raise InputError(f"no line {name!r} in this allocation by {self.by}")


class CostReport(Record, frozen=True):
    """Cost of the nodes of a cluster per hour: ``cost`` = ``requested`` + ``idle``.

    The price of a node is divided among its resources, with a GiB of memory as 1/7.5 of a core and a GPU as 30 cores.
    Each part is divided among the pods by their requests relative to what the node offers.

    Attributes
    ----------
    node_count : int
        Number of nodes.
    unpriced : int
        Number of nodes without a known price. They are not part of the cost, and pods on them are not part of
        ``namespaces`` and ``workloads``.
    pods : int
        Number of pods on nodes with a known price.
    cost : float
        Cost of the nodes per hour.
    requested : float
        Part of ``cost`` for what pods request, per hour.
    idle : float
        Part of ``cost`` for capacity that no pod requested, per hour.
    namespaces : list of CostShare
        Cost of each namespace, most expensive first.
    workloads : list of CostShare
        Cost of each workload, most expensive first.
    pools : list of PoolCost
        Cost of each node group.
    ideal : IdealMix or None
        The cheapest set of nodes for the same pods. None: not requested.
    allocation : CostAllocation or None
        The cost by team. None: not requested.
    """

    KIND: ClassVar[str] = "CostReport"
    ROWS: ClassVar[str] = "workloads"

    node_count: int
    unpriced: int
    pods: int
    cost: float
    requested: float
    idle: float
    namespaces: list[CostShare]
    workloads: list[CostShare]
    pools: list[PoolCost]
    ideal: IdealMix | None = None
    allocation: CostAllocation | None = None

    def summary(self) -> str:
        """Return a line with the cost per hour, how much of it is idle, and how many nodes have no price."""
        unpriced = f", {self.unpriced:,} of them without a price" if self.unpriced else ""
        return f"{self.cost:,.2f} per hour, {self.idle:,.2f} idle, {self.node_count:,} nodes{unpriced}"

    def explain(self, name: str) -> str:
        """Return what the cost of a line of this report consists of, in one line.

        ``name``: of a namespace, a workload (``namespace/Kind/name``), a node group, or a team of ``allocation``. A
        name that several of them have is explained as the first of these. Raises InputError if the report has no such
        line.
        """
        for share in (*self.namespaces, *self.workloads):
            if share.name == name:
                return _explain_share(share, self)
        for pool in self.pools:
            if pool.name == name:
                return _explain_pool(pool)
        if self.allocation is not None:
            for line in self.allocation.lines:
                if line.name == name:
                    return _explain_allocated(line, self.allocation)
        raise InputError(f"no namespace, workload, node group or team {name!r} in this report")


def _explain_share(share: CostShare, report: CostReport) -> str:
    """Return a line that says what the cost of a namespace or workload consists of."""
    parts = [f"{amount:,.4g} {resource}" for resource, amount in share.by_resource.items() if amount]
    pools = [f"{amount:,.4g} on {name or 'nodes of no group'}" for name, amount in share.by_pool.items() if amount]
    pods = "1 pod" if share.pods == 1 else f"{share.pods:,} pods"
    requests = f"{share.cpu / 1000:,.4g} cores and {share.memory / 2**30:,.4g} GiB"
    return "; ".join(
        [
            f"{share.cost:,.4g} per hour, {share.share:.1%} of the {report.cost:,.4g} of all nodes",
            f"{pods} {'requests' if share.pods == 1 else 'request'} {requests}: {' + '.join(parts) or 'nothing'}",
            *([f"by the prices of their nodes: {' + '.join(pools)}"] if pools else []),
            f"without a share of the {report.idle:,.4g} of capacity that nobody requested",
        ]
    )


def _explain_pool(pool: PoolCost) -> str:
    """Return a line that says what the cost of a node group consists of."""
    nodes = "1 node" if pool.nodes == 1 else f"{pool.nodes:,} nodes"
    requested = pool.cost - pool.idle
    share = f" ({requested / pool.cost:.1%})" if pool.cost else ""
    return (
        f"{pool.cost:,.4g} per hour for {nodes}, {pool.cost / pool.nodes:,.4g} a node on average; pods request "
        f"{requested:,.4g} of it{share}, {pool.idle:,.4g} is idle"
    )


_IDLE_RULES: Final = {
    "proportional": "idle capacity is divided in proportion to the requests",
    "separate": "idle capacity is a line of its own",
    "none": "idle capacity is left out",
}


def _explain_allocated(line: AllocatedCost, allocation: CostAllocation) -> str:
    """Return a line that says what the cost of a team consists of."""
    digits = allocation.decimals
    amounts = (("requested", line.requested), ("idle", line.idle), ("storage", line.storage))
    usage = [] if line.by_usage is None else [f"by usage it would pay {line.by_usage:,.{digits}f}"]
    total = f"{line.share:.1%} of {allocation.cost:,.{digits}f}"
    return "; ".join(
        [
            f"{line.cost:,.{digits}f} for {allocation.hours:,.4g} hours, {total}",
            " + ".join(f"{amount:,.{digits}f} {name}" for name, amount in amounts),
            _IDLE_RULES[allocation.idle_rule],
            *usage,
        ]
    )


@typed
def cost(
    cluster: Cluster, groups: Iterable[NodeGroup] = (), catalogue: Mapping[str, InstanceType] | None = None
) -> CostReport:
    """Compute the cost of the nodes per hour, and divide it among the placed pods by their requests.

    Parameters
    ----------
    cluster : Cluster
        The cluster.
    groups : iterable of NodeGroup
        Node groups with prices.
    catalogue : mapping of str to InstanceType, optional
        Prices by instance type, see :func:`~kscale.capacity.cost.price_of`.

    Returns
    -------
    CostReport
        Cost by namespace, workload and node group. Nodes without a known price, and the pods on them, have no share of
        it. ``ideal`` and ``allocation`` are None.

    Raises
    ------
    InputError
        If there are nodes and none has a known price.
    """
    snapshot = cluster.snapshot(dra=True)
    groups = list(groups)
    prices = prices_of(snapshot.columns.objects, groups, catalogue)
    unpriced = sum(price is None for price in prices)
    price = np.array([share or 0.0 for share in prices])
    is_priced = np.array([share is not None for share in prices], dtype=bool)
    amounts, rates = _amounts(snapshot), _rates(snapshot, price)
    node = snapshot.placed_node
    counts = is_priced[node]
    resource_cost = amounts[snapshot.placed_class] * rates[node] * counts[:, None]
    pod_cost = resource_cost.sum(axis=1)
    requested: NDArray[np.float64] = np.bincount(node, weights=pod_cost, minlength=len(prices)).astype(np.float64)
    names = np.array(snapshot.pods, dtype=object)[counts]
    spaces = [name.partition("/")[0] for name in names]
    owners = name_workloads(cluster, names.tolist())
    total = float(price.sum())
    members = _list_members(snapshot, groups)
    pool_of_node = np.zeros(len(prices), dtype=np.int64)
    for number, rows in enumerate(members.values()):
        pool_of_node[rows] = number
    parts = _CostParts(_resources(snapshot), resource_cost[counts], list(members), pool_of_node[node[counts]])
    shares = pod_cost[counts], amounts[snapshot.placed_class][counts], total, parts
    workloads = _divide_cost(owners, *shares)
    biggest: dict[str, str] = {}
    for share in workloads:
        biggest.setdefault(share.name.partition("/")[0], share.name.partition("/")[2])
    return CostReport(
        node_count=len(prices),
        unpriced=unpriced,
        pods=int(counts.sum()),
        cost=round_money(total),
        requested=round_money(float(requested.sum())),
        idle=round_money(total - float(requested.sum())),
        namespaces=[
            msgspec.structs.replace(share, biggest=biggest[share.name]) for share in _divide_cost(spaces, *shares)
        ],
        workloads=workloads,
        pools=_pools(members, price, requested),
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
    """Find the cheapest nodes for the pods that :func:`cost` counts, as if there were no nodes (:func:`kscale.mix`).

    Parameters
    ----------
    cluster : Cluster
        The cluster.
    offers : sequence of NodeGroup
        Groups with templates and prices that may be bought.
    groups : iterable of NodeGroup, optional
        Groups with the prices of existing nodes: the pods on nodes with a known price count. Default: ``offers``.
    catalogue : mapping of str to InstanceType, optional
        Prices of existing nodes by instance type.
    options, stop
        As for :func:`kscale.mix`.

    Returns
    -------
    IdealMix
        Cost per hour and number of the nodes, a lower bound of the cost (None if it does not cover the same pods), and
        the number of pods that fit none of the offers.

    Raises
    ------
    InputError
        If offers cannot be used (:func:`~kscale.capacity.mix.offers_of`), or for invalid options.
    """
    groups = list(offers if groups is None else groups)
    priced = {node.metadata.name for node in cluster.nodes() if price_of(node, groups, catalogue) is not None}
    running = cluster.copy()
    for pod in cluster.pods():
        if pod.spec.node_name not in priced:
            running.remove(pod)
    plan = mix(running, offers, pods=ALL, options=options, stop=stop)
    return IdealMix(
        cost=plan.cost, bound=plan.bound.cost, node_count=plan.node_count, unschedulable_count=plan.unschedulable_count
    )


def _resources(snapshot: Snapshot) -> list[str]:
    """Return the resources that share a node's price: cpu, memory, and those of :data:`GPUS` that nodes have."""
    return [CPU, MEMORY, *(name for name in GPUS if name in snapshot.columns.allocatable)]


def _amounts(snapshot: Snapshot) -> NDArray[np.float64]:
    """Return float64[pod classes, resources]: the requests of a placed pod of each class, in the scheduler's units.

    These are milli-cores, bytes and GPUs.
    """
    names = _resources(snapshot)
    amounts = [[pod.occupancy.get(name, 0) for name in names] for pod in snapshot.interner.classes]
    return np.array(amounts, dtype=np.float64).reshape(-1, len(names))


def _rates(snapshot: Snapshot, price: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return float64[nodes, resources]: $/h per unit of each resource, so that a fully requested node costs its price.

    ``price``: $/h of each node. A resource of which a node offers nothing has the rate 0.
    """
    names = _resources(snapshot)
    weight = {CPU: 1 / 1000, MEMORY: 1 / (GIB_PER_CORE * 2**30)}
    room = np.stack([snapshot.columns.allocatable[name].astype(np.float64) for name in names], axis=1)
    worth = room * np.array([weight.get(name, float(CORES_PER_GPU)) for name in names])
    total = worth.sum(axis=1, keepdims=True)
    part = np.divide(worth, total, out=np.zeros_like(worth), where=total > 0) * price[:, None]
    rates: NDArray[np.float64] = np.divide(part, room, out=np.zeros_like(part), where=room > 0)
    return rates


@typed
def name_workloads(cluster: Cluster, names: Sequence[str]) -> list[str]:
    """Return ``namespace/Kind/name`` of each pod's topmost controller.

    For a pod without a controller, or whose controller cannot be looked up, the kind is ``Pod`` and the name its own.

    Parameters
    ----------
    cluster : Cluster
        Cluster with the pods and their controllers.
    names : sequence of str
        Names of the pods, as ``namespace/name``.

    Returns
    -------
    list of str
        One name per pod, in the order of ``names``.

    Raises
    ------
    KeyError
        If the cluster has no pod of a name.
    """
    controllers = read_controllers(cluster)
    result = []
    for name in names:
        try:
            parent = find_topmost_owner(cluster.pod(name), controllers)
        except TargetError:
            parent = None
        namespace, _, pod_name = name.partition("/")
        result.append(f"{namespace}/{parent.kind}/{parent.name}" if parent else f"{namespace}/{_NO_OWNER}/{pod_name}")
    return result


class _CostParts(NamedTuple):
    """Cost of each pod by resource (float64[pods, resources]), and the number of its node group among ``pools``."""

    resources: Sequence[str]
    by_resource: NDArray[np.float64]
    pools: Sequence[str]
    pool: NDArray[np.int64]

    def divide(self, index: NDArray[np.int64], count: int) -> list[tuple[dict[str, float], dict[str, float]]]:
        """Return (cost by resource, cost by node group) in $/h for each of ``count`` lines.

        ``index``: the line of each pod. Amounts of 0 are left out.
        """
        resources = np.zeros((count, len(self.resources)))
        np.add.at(resources, index, self.by_resource)
        pools = np.zeros((count, len(self.pools)))
        np.add.at(pools, (index, self.pool), self.by_resource.sum(axis=1))
        return [
            (
                {name: round_money(amount) for name, amount in zip(self.resources, by_resource, strict=True) if amount},
                {name: round_money(amount) for name, amount in zip(self.pools, by_pool, strict=True) if amount},
            )
            for by_resource, by_pool in zip(resources.tolist(), pools.tolist(), strict=True)
        ]


def _divide_cost(
    names: Sequence[str],
    costs: NDArray[np.float64],
    amounts: NDArray[np.float64],
    total: float,
    parts: _CostParts,
) -> list[CostShare]:
    """Add up the cost of the pods with the same name: one row per name, the most expensive first.

    ``names`` (of a namespace or workload), ``costs`` ($/h) and ``amounts`` (requested milli-cores and bytes) are those
    of each pod. ``total``: $/h of all nodes. ``share`` of a row is a part of ``total``, 0 if ``total`` is 0.
    """
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    index = np.array([number[name] for name in names], dtype=np.int64)
    pods = Counter(names)
    sums = [
        np.bincount(index, weights=column, minlength=len(number)) for column in (costs, amounts[:, 0], amounts[:, 1])
    ]
    divided = parts.divide(index, len(number))
    lines = [
        CostShare(
            name=name,
            pods=pods[name],
            cost=round_money(float(sums[0][i])),
            share=round(float(sums[0][i]) / total, 6) if total else 0.0,
            cpu=int(sums[1][i]),
            memory=int(sums[2][i]),
            by_resource=divided[i][0],
            by_pool=divided[i][1],
        )
        for name, i in number.items()
    ]
    return sorted(lines, key=lambda line: (-line.cost, line.name))


def _list_members(snapshot: Snapshot, groups: Sequence[NodeGroup]) -> dict[str, list[int]]:
    """Return the indices of the nodes by group id; a node counts for the first group that has it.

    The nodes of no group come last, under the empty name.
    """
    index = snapshot.columns.index
    rest = dict.fromkeys(range(len(snapshot.nodes)))
    members: dict[str, list[int]] = {}
    for group in groups:
        indices = [index[node.metadata.name] for node in members_of(group, snapshot.columns.objects)]
        members[group.id] = [n for n in indices if n in rest]
        for n in members[group.id]:
            del rest[n]
    members[""] = list(rest)
    return members


def _pools(
    members: Mapping[str, Sequence[int]], price: NDArray[np.float64], requested: NDArray[np.float64]
) -> list[PoolCost]:
    """Return the cost of each group that has nodes, the most expensive first.

    ``members``: indices of the nodes by group. ``price``: $/h of each node. ``requested``: the part of each price that
    pods request.
    """
    lines = []
    for name, rows in members.items():
        if rows:
            total, used = float(price[rows].sum()), float(requested[rows].sum())
            lines.append(PoolCost(name=name, nodes=len(rows), cost=round_money(total), idle=round_money(total - used)))
    return sorted(lines, key=lambda line: (-line.cost, line.name))
