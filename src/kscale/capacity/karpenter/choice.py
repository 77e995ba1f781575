"""Place pods as Karpenter does: first-fit decreasing onto nodes and node claims, then the cheapest type.

:func:`place_pods` is the only implementation of this rule. Plans (:func:`choose_nodes`), what-if scenarios and the
simulated Karpenter all call it.

Upstream: ``sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling`` (``scheduler.go``, ``nodeclaim.go``,
``queue.go``, ``preferences.go``) and ``pkg/cloudprovider/types.go``.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.catalogue import InstanceType
from kscale.capacity.group_templates import with_templates
from kscale.capacity.karpenter.node_pools import NodePool, NodePools
from kscale.capacity.karpenter.offerings import (
    PoolGroups,
    PoolOffering,
    groups_of_pools,
    labels_of_type,
    offering_requirements,
    requirements_of_type,
)
from kscale.capacity.karpenter.requirements import WELL_KNOWN, Operator, Requirement, Requirements, requirement
from kscale.capacity.mix.offers import ON_DEMAND, RESERVED, SPOT
from kscale.capacity.mix.start import StartPlan
from kscale.capacity.records import KarpenterChoice, KarpenterLine, round_money
from kscale.objects.api.core import NodeSelectorTerm, Pod, TopologySpreadConstraint
from kscale.objects.argument_types import typed
from kscale.objects.node_selectors import HOSTNAME, ZONE, tolerates_all
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.pod_owners import is_daemonset_pod
from kscale.objects.pod_resources import CPU, MEMORY, PODS, occupancy, to_integers
from kscale.objects.selectors import Selector, compile_selector
from kscale.scheduling.coercion import pods_of
from kscale.scheduling.fork import Fork, fork
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "OfferedPools",
    "Placement",
    "PlannedClaim",
    "choose_nodes",
    "karpenter_choice",
    "place_pods",
    "plan_nodes",
    "summarize",
]

_ALL_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
_POD_OPERATORS = (
    Operator.IN,
    Operator.NOT_IN,
    Operator.EXISTS,
    Operator.DOES_NOT_EXIST,
    Operator.GT,
    Operator.LT,
)
_NEVER = requirement("metadata.name", Operator.IN, [""])
"""A label that no NodePool has."""
_PREFERENCE: Sequence[str] = (RESERVED, SPOT, ON_DEMAND)
"""Capacity types in the order in which Karpenter launches them."""


@dataclass(frozen=True, slots=True)
class _Option:
    """An instance type of a pool: what it offers to pods, and where."""

    name: str
    requirements: Requirements
    room: NDArray[np.int64]
    capacity: Mapping[str, int]
    offerings: Sequence[tuple[PoolOffering, Requirements]]


@dataclass(frozen=True, slots=True)
class _OfferedType:
    """An instance type of a pool: what new nodes have, what the pods of DaemonSets take of it, and its offerings."""

    name: str
    requirements: Requirements
    allocatable: Mapping[str, int]
    daemons: Sequence[Mapping[str, int]]
    capacity: Mapping[str, int]
    offerings: Sequence[tuple[PoolOffering, Requirements]]


class OfferedPools:
    """NodePools that were converted to groups, prepared once for any number of placements.

    Parameters
    ----------
    pools : NodePools
        The NodePools.
    converted : PoolGroups
        Their offerings (:func:`~kscale.capacity.karpenter.groups_of_pools`).
    groups : iterable of NodeGroup
        The groups of ``converted`` with their templates, which have the pods of DaemonSets.
    """

    def __init__(self, pools: NodePools, converted: PoolGroups, groups: Iterable[NodeGroup]) -> None:
        self.pools, self.offerings = pools.pools, converted.offerings
        self.remaining = {pool.name: converted.remaining(pool.name) for pool in pools.pools}
        self.undefined = WELL_KNOWN | {key for offering in self.offerings for key in labels_of_type(offering.kind)}
        templates = {group.id: group for group in groups}
        self.types = {pool.name: list(self._types_of(pool.name, templates)) for pool in pools.pools}

    def _types_of(self, pool: str, templates: Mapping[str, NodeGroup]) -> Iterator[_OfferedType]:
        by_type: dict[str, list[PoolOffering]] = defaultdict(list)
        for offering in self.offerings:
            if offering.pool == pool:
                by_type[offering.kind.name].append(offering)
        for name, offerings in by_type.items():
            template = templates[offerings[0].group].node_template
            allocatable = template.node.status.allocatable or {}
            slots = {PODS: allocatable[PODS].value()} if PODS in allocatable else {}
            zones = list(dict.fromkeys(offering.zone for offering in offerings))
            yield _OfferedType(
                name,
                requirements_of_type(offerings[0].kind, zones, ""),
                {**to_integers(allocatable), **slots},
                [{**to_integers(occupancy(pod)), PODS: 1} for pod in template.pods],
                {"nodes": 1, **to_integers(offerings[0].kind.capacity)},
                [(each, offering_requirements(each.zone, each.capacity_type)) for each in offerings],
            )


@dataclass(frozen=True, slots=True)
class PlannedClaim:
    """A node to launch.

    Attributes
    ----------
    pool : str
        Its NodePool.
    pods : list of str
        Names of the pods that it is for.
    offerings : list of PoolOffering
        What it may become, in the order in which Karpenter launches: one capacity type (reserved, else spot, else
        on-demand), the cheapest first.
    types : frozenset of str
        The instance types that suit its pods.
    min_values : mapping
        How many different values the types must have, and the values of each type, by label (``minValues``).
    """

    pool: str
    pods: list[str]
    offerings: list[PoolOffering]
    types: frozenset[str]
    min_values: Mapping[str, tuple[int, Mapping[str, frozenset[str]]]] = field(default_factory=dict)

    def has_minimum_values(self) -> bool:
        """Check whether the types have as many different values of each label as ``minValues`` demands."""
        return all(
            len({value for name in self.types for value in values[name]}) >= minimum
            for minimum, values in self.min_values.values()
        )

    @property
    def zone(self) -> str:
        """Return the zone of the cheapest offering; empty if another zone has the same price."""
        best = self.offerings[0]
        zones = {one.zone for one in self.offerings if one.kind is best.kind and one.price == best.price}
        return best.zone if len(zones) == 1 else ""


@dataclass(frozen=True, slots=True)
class Placement:
    """Nodes that pods would go to.

    Attributes
    ----------
    pods : list of str
        The pods that were asked about, without those of DaemonSets.
    existing : dict
        Node of the snapshot by pod.
    claims : list of PlannedClaim
        New nodes.
    unschedulable : list of str
        Pods that nothing takes.
    unmodelled : list of str
        Constraints of pods that the placement ignores, with their number of pods.
    reasons : list of str
        Why no NodePool takes each of ``unschedulable``.
    """

    pods: list[str]
    existing: dict[str, str]
    claims: list[PlannedClaim]
    unschedulable: list[str]
    unmodelled: list[str]
    reasons: list[str]


@dataclass(slots=True)
class _Pool:
    """A NodePool, its options, and what its limits leave."""

    pool: NodePool
    requirements: Requirements
    options: list[_Option]
    rooms: NDArray[np.int64]
    remaining: dict[str, int]
    capacities: dict[str, NDArray[np.int64]] = field(default_factory=dict)

    def capacity_of(self, name: str) -> NDArray[np.int64]:
        """Return int64[options]: the capacity of a resource."""
        if name not in self.capacities:
            amounts = [option.capacity.get(name, 0) for option in self.options]
            self.capacities[name] = np.array(amounts, dtype=np.int64)
        return self.capacities[name]


@dataclass(frozen=True, slots=True)
class _Alternative:
    """What a pod asks for after some of its preferences were dropped."""

    requirements: Requirements
    spread: tuple[TopologySpreadConstraint, ...]
    effects: tuple[str, ...]
    """Effects of taints that it must tolerate."""


@dataclass(slots=True)
class _Shape:
    """Pods of one class."""

    number: int
    pod: PodClass
    labels: Mapping[str, str]
    request: NDArray[np.int64]
    alternatives: list[_Alternative]
    apart: list[Selector]
    """Selectors of required anti-affinity on a node."""
    heaps: list[list[tuple[int, int]]] = field(default_factory=list)
    """For each alternative: (number of pods, index) of the claims that may still take such a pod."""
    seen: list[int] = field(default_factory=list)
    """For each alternative: how many claims were put on its heap."""
    starts: list[int] = field(default_factory=list)
    """For each alternative: how many existing nodes take no such pod any more."""
    allowed: dict[int, list[bool]] = field(default_factory=dict)
    """For each alternative: which existing nodes meet its preferences, as far as that was needed."""
    is_hopeless: bool = False
    """Whether nothing can take such a pod any more."""


@dataclass(slots=True)
class _Claim:
    """A node to launch: what is known about it, and the options that still suit all of its pods."""

    pool: _Pool
    requirements: Requirements
    options: NDArray[np.bool_]
    request: NDArray[np.int64]
    shapes: Counter[int] = field(default_factory=Counter)
    members: list[int] = field(default_factory=list)

    @property
    def pods(self) -> int:
        """Return the number of pods."""
        return len(self.members)


@typed
def karpenter_choice(
    cluster: Cluster,
    pools: NodePools,
    kinds: Sequence[InstanceType],
    *,
    pods: Sequence[str] | None = None,
    zones: Sequence[str] = (),
    region: str = "",
) -> KarpenterChoice:
    """Compute the nodes that Karpenter would launch for pending pods.

    Parameters
    ----------
    cluster : Cluster
        The existing nodes and pods.
    pools : NodePools
        The NodePools.
    kinds : sequence of InstanceType
        The instance types of the cloud, with their prices.
    pods : sequence of str, optional
        Names of pending pods. Default: all pending pods. Those of DaemonSets are left out.
    zones, region
        As for :func:`~kscale.capacity.karpenter.groups_of_pools`.

    Returns
    -------
    KarpenterChoice
        New nodes by type, and the pods that stay pending.

    Raises
    ------
    InputError
        If a pool allows none of the types.

    Notes
    -----
    Upstream: ``pkg/controllers/provisioning/scheduling/scheduler.go``. Pods are sorted by cpu, then memory, the largest
    first. Each goes to the first existing node that takes it, else to the new node with the fewest pods that takes it,
    else to a new node of the first NodePool that does. A new node keeps all instance types that suit its pods; in the
    end it becomes the cheapest of them.
    """
    snapshot = cluster.snapshot(dra=True)
    converted = groups_of_pools(pools, kinds, zones=zones, region=region, nodes=snapshot.columns.objects)
    groups = with_templates(cluster, snapshot, converted.groups)
    return choose_nodes(snapshot, snapshot.pending if pods is None else pods, pools, converted, groups)


def choose_nodes(
    snapshot: Snapshot,
    pods: Sequence[str],
    pools: NodePools,
    converted: PoolGroups,
    groups: Iterable[NodeGroup],
) -> KarpenterChoice:
    """Compute :func:`karpenter_choice` for NodePools that were converted already.

    ``groups`` are those of ``converted`` with their templates, which have the pods of DaemonSets.
    """
    return plan_nodes(snapshot, pods, pools, converted, groups)[0]


def plan_nodes(
    snapshot: Snapshot,
    pods: Sequence[str],
    pools: NodePools,
    converted: PoolGroups,
    groups: Iterable[NodeGroup],
) -> tuple[KarpenterChoice, StartPlan]:
    """Compute :func:`choose_nodes`, and the nodes with their pods as a plan that a mix is compared with."""
    placement = place_pods(snapshot, pods, OfferedPools(pools, converted, groups))
    nodes = [(claim.offerings[0].group, claim.pods) for claim in placement.claims]
    return summarize(placement), StartPlan(nodes, placement.existing)


def place_pods(
    snapshot: Snapshot,
    pods: Sequence[str | Pod],
    offered: OfferedPools,
    *,
    remaining: Mapping[str, Mapping[str, int]] | None = None,
    last: Collection[str] = (),
    unavailable: Collection[str] = (),
) -> Placement:
    """Place pods as Karpenter's scheduler does.

    Parameters
    ----------
    snapshot : Snapshot
        The nodes that pods may go to, with their pods.
    pods : sequence of str or Pod
        Pods without a node: names of the snapshot's pending pods, or pods that are not in the snapshot. Those of
        DaemonSets are left out.
    offered : OfferedPools
        What new nodes may be.
    remaining : mapping, optional
        What the limits of each NodePool leave, by pool and resource. Default: what they leave beside the nodes for
        which the pools were converted.
    last : collection of str
        Nodes that are tried after all others, as they are not initialized yet.
    unavailable : collection of str
        Groups of offerings that the cloud cannot launch now.

    Returns
    -------
    Placement
        The node or node claim of each pod.

    Notes
    -----
    Upstream: ``pkg/controllers/provisioning/scheduling/scheduler.go`` (``Solve``, ``trySchedule``, ``add``). The
    scheduler's own predicates decide whether an existing node takes a pod. They do not see pods on new nodes, which
    upstream counts for spread.
    """
    records = pods_of(snapshot, pods)
    movable = [pod for pod, record in zip(pods, records, strict=True) if not is_daemonset_pod(record.pod)]
    if len(movable) < len(records):
        records = pods_of(snapshot, movable)
    limits = offered.remaining if remaining is None else remaining
    return _Scheduler(snapshot, records, offered, limits, frozenset(last), frozenset(unavailable)).solve()


def summarize(placement: Placement) -> KarpenterChoice:
    """Return the record of a placement: its new nodes by type, the most expensive first."""
    claims = placement.claims
    by_key: dict[tuple[str, str, str, str], list[PlannedClaim]] = defaultdict(list)
    for claim in claims:
        best = claim.offerings[0]
        by_key[claim.pool, best.kind.name, best.capacity_type, claim.zone].append(claim)
    lines = [
        KarpenterLine(
            node_pool=key[0],
            type=key[1],
            capacity_type=key[2],
            zone=key[3],
            nodes=len(equal),
            pods=sum(len(claim.pods) for claim in equal),
            price=price,
            cost=None if price is None else round_money(price * len(equal)),
        )
        for key, equal in by_key.items()
        for price in (equal[0].offerings[0].price,)
    ]
    lines.sort(key=lambda line: (-(line.cost or 0.0), line.node_pool, line.type, line.zone))
    costs = [line.cost for line in lines]
    return KarpenterChoice(
        pods=len(placement.pods),
        on_existing=len(placement.existing),
        on_new=sum(line.pods for line in lines),
        nodes=len(claims),
        cost=None if None in costs else round_money(sum(cost for cost in costs if cost is not None)),
        lines=lines,
        unschedulable=placement.unschedulable,
        unmodelled=placement.unmodelled,
    )


class _Scheduler:
    def __init__(
        self,
        snapshot: Snapshot,
        records: Sequence[PodRecord],
        offered: OfferedPools,
        remaining: Mapping[str, Mapping[str, int]],
        last: frozenset[str],
        unavailable: frozenset[str],
    ) -> None:
        self._snapshot, self._records, self._offered = snapshot, records, offered
        self._names = [record.key for record in records]
        self._last, self._unavailable = last, unavailable
        self._classes, numbers = snapshot.distinct_classes(self._records)
        self._class_of = numbers.tolist()
        resources = {PODS: 0}
        for pod in self._classes:
            for name in pod.occupancy:
                resources.setdefault(name, len(resources))
        self._resources = resources
        self._undefined = offered.undefined
        self._remaining = {name: dict(amounts) for name, amounts in remaining.items()}
        self._unmodelled: Counter[str] = Counter()
        first = {number: i for i, number in reversed(list(enumerate(self._class_of)))}
        self._shapes = [
            self._make_shape(number, pod, self._records[first[number]].pod) for number, pod in enumerate(self._classes)
        ]
        for number in self._class_of:
            for text in _unmodelled(self._classes[number]):
                self._unmodelled[text] += 1
        self._existing: dict[str, str] = {}
        self._claims: list[_Claim] = []
        self._masks: dict[tuple[int, frozenset[Requirement]], NDArray[np.bool_]] = {}
        zones = {offering.zone for offering in offered.offerings}
        labels = [node.metadata.labels or {} for node in snapshot.columns.objects]
        self._zone_of_node = [each.get(ZONE, "") for each in labels]
        self._zones = sorted((zones | set(self._zone_of_node)) - {""})
        self._counts: dict[tuple[str, str], Counter[str]] = {}
        self._selectors: dict[tuple[str, str], Selector] = {}
        self._placed_in: Counter[tuple[str, int]] = Counter()
        self._placed_on: dict[int, list[int]] = defaultdict(list)
        self._node_labels: dict[int, Requirements] = {}

    # -- input -------------------------------------------------------------------------------------------------------

    def _vector(self, amounts: Mapping[str, int]) -> NDArray[np.int64]:
        vector = np.zeros(len(self._resources), dtype=np.int64)
        for name, position in self._resources.items():
            vector[position] = amounts.get(name, 0)
        return vector

    @cached_property
    def _pools(self) -> list[_Pool]:
        return [self._make_pool(pool) for pool in self._offered.pools]

    def _make_pool(self, pool: NodePool) -> _Pool:
        options = []
        for offered in self._offered.types[pool.name]:
            offerings = [each for each in offered.offerings if each[0].group not in self._unavailable]
            if not offerings:
                continue
            room = self._vector(offered.allocatable)
            for daemon in offered.daemons:
                room -= self._vector(daemon)
            options.append(_Option(offered.name, offered.requirements, room, offered.capacity, offerings))
        rooms = np.array([option.room for option in options], dtype=np.int64).reshape(-1, len(self._resources))
        return _Pool(pool, pool.requirements(), options, rooms, self._remaining.get(pool.name, {}))

    def _make_shape(self, number: int, pod: PodClass, example: Pod) -> _Shape:
        request = self._vector({**pod.occupancy, PODS: 1})
        apart = [compile_selector(term.label_selector) for term in pod.anti_affinity if term.topology_key == HOSTNAME]
        alternatives = list(_alternatives(pod, example))
        return _Shape(
            number,
            pod,
            pod.labels or {},
            request,
            alternatives,
            apart,
            [[] for _ in alternatives],
            [0] * len(alternatives),
            [0] * len(alternatives),
        )

    # -- decisions ---------------------------------------------------------------------------------------------------

    def solve(self) -> Placement:
        """Place all pods."""
        left = sorted(range(len(self._names)), key=self._sort_key)
        while True:  # a pod whose spread refused it may fit once others were placed
            refused = [i for i in left if not self._add(i)]
            if len(refused) == len(left) or not refused:
                break
            left = refused
        refused.sort()
        reasons = {number: self._explain(self._shapes[number]) for number in {self._class_of[i] for i in refused}}
        return Placement(
            pods=self._names,
            existing=self._existing,
            claims=[self._plan(claim) for claim in self._claims],
            unschedulable=[self._names[i] for i in refused],
            unmodelled=[f"{text}: {count:,} pods" for text, count in self._unmodelled.items()],
            reasons=[reasons[self._class_of[i]] for i in refused],
        )

    def _sort_key(self, i: int) -> tuple[int, int, str, str]:
        amounts, metadata = self._classes[self._class_of[i]].occupancy, self._records[i].pod.metadata
        created = str(metadata.creation_timestamp or "")
        return -amounts.get(CPU, 0), -amounts.get(MEMORY, 0), created, metadata.uid

    def _add(self, i: int) -> bool:
        """Place a pod on an existing node, a claim or a new claim; False if nothing takes it.

        Its preferences are requirements at first, and are dropped one at a time.
        """
        shape = self._shapes[self._class_of[i]]
        if shape.is_hopeless:
            return False
        for which, alternative in enumerate(shape.alternatives):
            if self._add_to_existing(i, shape, which):
                return True
            claim = self._add_to_claim(shape, which) or self._add_to_new_claim(shape, alternative)
            if claim is not None:
                claim.members.append(i)
                return True
        # Nodes get fuller, claims narrower and limits smaller, but other pods may make room for a spread or affinity.
        shape.is_hopeless = not shape.pod.spread and not shape.pod.affinity
        return False

    @cached_property
    def _nodes(self) -> list[int]:
        """Return the existing nodes in the order in which they are tried."""
        names, last = self._snapshot.nodes, self._last
        return sorted(range(len(names)), key=lambda n: (names[n] in last, names[n]))

    @cached_property
    def _world(self) -> tuple[Fork, list[int]]:
        """Return a copy of the snapshot on which pods are placed, and the number there of each pod's class."""
        world = fork(self._snapshot, self._records)
        return world, world.session.classes_of(self._snapshot.classify(self._records)).tolist()

    def _add_to_existing(self, i: int, shape: _Shape, which: int) -> bool:
        """Place a pod on the first existing node that takes it."""
        nodes = self._nodes
        if not nodes:
            return False
        world, numbers = self._world
        allowed, alternative = self._find_allowed_nodes(shape, which), shape.alternatives[which]
        soft = [each for each in alternative.spread if each.when_unsatisfiable == "ScheduleAnyway"]
        # Without affinity and spread a node that refused a pod refuses all later ones of its class.
        position = 0 if shape.pod.affinity or shape.pod.spread else shape.starts[which]
        while position < len(nodes):
            node = nodes[position]
            suits = (allowed is None or allowed[position]) and all(self._is_even(shape, each, node) for each in soft)
            if suits and world.schedule(numbers[i], node):
                break
            position += 1
        shape.starts[which] = position
        if position == len(nodes):
            return False
        self._existing[self._names[i]] = self._snapshot.nodes[nodes[position]]
        self._placed_on[nodes[position]].append(shape.number)
        self._count(shape, self._zone_of_node[nodes[position]])
        return True

    def _find_allowed_nodes(self, shape: _Shape, which: int) -> list[bool] | None:
        """Return which nodes meet what a pod still prefers; None if the scheduler's own predicates say everything."""
        alternative = shape.alternatives[which]
        if alternative.requirements == shape.alternatives[-1].requirements and (
            "PreferNoSchedule" not in alternative.effects or not self._has_soft_taints
        ):
            return None
        if which not in shape.allowed:
            objects = self._snapshot.columns.objects
            shape.allowed[which] = [
                tolerates_all(shape.pod.tolerations, objects[node].spec.taints, effects=alternative.effects)
                and self._labels_of(node).is_compatible(alternative.requirements)
                for node in self._nodes
            ]
        return shape.allowed[which]

    @cached_property
    def _has_soft_taints(self) -> bool:
        taints = (taint for node in self._snapshot.columns.objects for taint in node.spec.taints)
        return any(taint.effect == "PreferNoSchedule" for taint in taints)

    def _labels_of(self, node: int) -> Requirements:
        """Return the labels of an existing node as requirements."""
        if node not in self._node_labels:
            labels = self._snapshot.columns.objects[node].metadata.labels or {}
            self._node_labels[node] = Requirements(requirement(key, Operator.IN, [labels[key]]) for key in labels)
        return self._node_labels[node]

    def _is_even(self, shape: _Shape, constraint: TopologySpreadConstraint, node: int) -> bool:
        """Check a preferred spread, which counts as a required one at first, for a pod on an existing node."""
        selector = compile_selector(constraint.label_selector)
        own = selector.matches(shape.labels)
        if constraint.topology_key == HOSTNAME:
            return self._count_on(node, shape.pod.namespace, selector) + own <= constraint.max_skew
        zone = self._zone_of_node[node]
        if constraint.topology_key != ZONE or not zone:
            return constraint.topology_key != ZONE
        counts = self._counts_of(shape, constraint)
        minimum = min((counts[each] for each in self._zones), default=0)
        return counts[zone] + own - minimum <= constraint.max_skew

    def _count_on(self, node: int, namespace: str, selector: Selector) -> int:
        """Return the number of pods on an existing node that a selector matches."""
        classes = self._snapshot.interner.classes
        running = [
            classes[number] for number in self._snapshot.placed_class[self._snapshot.placed_node == node].tolist()
        ]
        running += [self._shapes[number].pod for number in self._placed_on[node]]
        return sum(
            pod.namespace == namespace and not pod.terminating and selector.matches(pod.labels or {}) for pod in running
        )

    def _add_to_claim(self, shape: _Shape, which: int) -> _Claim | None:
        """Add the pod to the claim with the fewest pods that takes it.

        A claim that refused such a pod for another reason than zones refuses it for ever, as claims only get narrower.
        """
        heap, alternative = shape.heaps[which], shape.alternatives[which]
        for index in range(shape.seen[which], len(self._claims)):
            heapq.heappush(heap, (self._claims[index].pods, index))
        shape.seen[which] = len(self._claims)
        refused_now: list[tuple[int, int]] = []
        taken = None
        while heap and taken is None:
            pods, index = heapq.heappop(heap)
            claim = self._claims[index]
            if claim.pods != pods:
                heapq.heappush(heap, (claim.pods, index))
                continue
            if self._try(claim, shape, alternative):
                taken = claim
                heapq.heappush(heap, (claim.pods + 1, index))
            elif any(each.topology_key == ZONE for each in alternative.spread):
                refused_now.append((pods, index))
        for entry in refused_now:
            heapq.heappush(heap, entry)
        return taken

    def _add_to_new_claim(self, shape: _Shape, alternative: _Alternative) -> _Claim | None:
        """Open a claim of the first NodePool that takes the pod."""
        for pool in self._pools:
            allowed = np.ones(len(pool.options), dtype=bool)
            for name, amount in pool.remaining.items():
                allowed &= pool.capacity_of(name) <= amount
            claim = _Claim(pool, pool.requirements, allowed, np.zeros(len(self._resources), dtype=np.int64))
            if self._try(claim, shape, alternative):
                self._claims.append(claim)
                # The largest type that is still possible counts towards the limits, as any of them may be launched.
                for name in pool.remaining:
                    pool.remaining[name] -= int(pool.capacity_of(name)[claim.options].max())
                return claim
        return None

    def _try(self, claim: _Claim, shape: _Shape, alternative: _Alternative) -> bool:
        """Add a pod to a claim if the claim takes it."""
        taints = claim.pool.pool.spec.template.spec.taints
        if not tolerates_all(shape.pod.tolerations, taints, effects=alternative.effects):
            return False
        if not claim.requirements.is_compatible(alternative.requirements, undefined=self._undefined):
            return False
        if self._conflicts_on_node(claim, shape, alternative):
            return False
        requirements = claim.requirements.with_(alternative.requirements.values())
        request = claim.request + shape.request
        fits: NDArray[np.bool_] = claim.options & (claim.pool.rooms >= request).all(axis=1)
        zones = self._choose_zones(requirements, shape, alternative)
        for zone in zones:
            narrowed = requirements if zone is None else requirements.with_([requirement(ZONE, Operator.IN, [zone])])
            options = fits & self._mask(claim.pool, narrowed)
            if options.any() and self._has_minimum_values(claim.pool, narrowed, options):
                claim.requirements, claim.options, claim.request = narrowed, options, request
                claim.shapes[shape.number] += 1
                only = narrowed.of(ZONE)
                if only.operator is Operator.IN and len(only.values) == 1:
                    self._count(shape, next(iter(only.values)))
                return True
        return False

    def _mask(self, pool: _Pool, requirements: Requirements) -> NDArray[np.bool_]:
        """Return bool[options]: those that have an offering which meets the requirements."""
        key = id(pool), frozenset(requirements.values())
        mask = self._masks.get(key)
        if mask is None:
            mask = np.array([self._suits(option, requirements) for option in pool.options], dtype=bool)
            self._masks[key] = mask
        return mask

    def _suits(self, option: _Option, requirements: Requirements) -> bool:
        if option.requirements.find_conflict(requirements) is not None:
            return False
        return any(requirements.is_compatible(needs, undefined=self._undefined) for _, needs in option.offerings)

    def _has_minimum_values(self, pool: _Pool, requirements: Requirements, options: NDArray[np.bool_]) -> bool:
        """Check whether the options have as many different values of each label as ``minValues`` demands."""
        chosen = [pool.options[i] for i in np.flatnonzero(options).tolist()]
        for key, each in requirements.items():
            if each.min_values is not None:
                values = {value for option in chosen for value in option.requirements.of(key).values}
                if len(values) < each.min_values:
                    return False
        return True

    def _explain(self, shape: _Shape) -> str:
        """Return why each NodePool refuses a pod without its preferences."""
        alternative = shape.alternatives[-1]
        return "; ".join(f"{pool.pool.name}: {self._find_reason(pool, shape, alternative)}" for pool in self._pools)

    def _find_reason(self, pool: _Pool, shape: _Shape, alternative: _Alternative) -> str:
        for taint in pool.pool.spec.template.spec.taints:
            if not tolerates_all(shape.pod.tolerations, [taint], effects=alternative.effects):
                value = f"={taint.value}" if taint.value else ""
                return f"does not tolerate {taint.key}{value}:{taint.effect}"
        wanted = alternative.requirements
        for key, each in wanted.items():
            if not pool.requirements.is_compatible(Requirements([each]), undefined=self._undefined):
                return f"conflict on {key}"
        within = np.ones(len(pool.options), dtype=bool)
        for name, amount in pool.remaining.items():
            within &= pool.capacity_of(name) <= amount
        if not within.any():
            return "its limits leave no node"
        suits = self._mask(pool, pool.requirements.with_(wanted.values()))
        if not suits.any():
            return "no type meets the pod's requirements"
        fits = (pool.rooms >= shape.request).all(axis=1)
        if not (suits & fits).any():
            return "no type is large enough"
        if not (suits & fits & within).any():
            return "its limits leave no node that is large enough"
        return "spread or minValues cannot be met"

    # -- topology ----------------------------------------------------------------------------------------------------

    def _conflicts_on_node(self, claim: _Claim, shape: _Shape, alternative: _Alternative) -> bool:
        """Check host ports, anti-affinity and spread on the node itself."""
        for number, count in claim.shapes.items():
            other = self._shapes[number]
            if shape.pod.ports and other.pod.ports and _share_ports(shape.pod, other.pod):
                return True
            same_namespace = shape.pod.namespace == other.pod.namespace
            if same_namespace and any(selector.matches(other.labels) for selector in shape.apart):
                return True
            if same_namespace and count and any(selector.matches(shape.labels) for selector in other.apart):
                return True
        for constraint in alternative.spread:
            if constraint.topology_key == HOSTNAME:
                selector = compile_selector(constraint.label_selector)
                count = sum(
                    count
                    for number, count in claim.shapes.items()
                    if self._shapes[number].pod.namespace == shape.pod.namespace
                    and selector.matches(self._shapes[number].labels)
                )
                if count + selector.matches(shape.labels) > constraint.max_skew:
                    return True
        return False

    def _choose_zones(
        self, requirements: Requirements, shape: _Shape, alternative: _Alternative
    ) -> Iterable[str | None]:
        """Return the zones to try for a pod: the emptiest that its spread allows, or None if it has no such spread."""
        constraints = [each for each in alternative.spread if each.topology_key == ZONE]
        if not constraints or not self._zones:
            return [None]
        own = alternative.requirements.of(ZONE)
        eligible = [zone for zone in self._zones if own.allows(zone)]
        allowed = [zone for zone in eligible if requirements.of(ZONE).allows(zone)]
        for constraint in constraints:
            counts = self._counts_of(shape, constraint)
            least = min((counts[zone] for zone in eligible), default=0)
            if constraint.min_domains is not None and len(eligible) < constraint.min_domains:
                least = 0
            own_match = compile_selector(constraint.label_selector).matches(shape.labels)
            allowed = [zone for zone in allowed if counts[zone] + own_match - least <= constraint.max_skew]
        counts = self._counts_of(shape, constraints[0])
        return sorted(allowed, key=lambda zone: (counts[zone], zone))

    def _counts_of(self, shape: _Shape, constraint: TopologySpreadConstraint) -> Counter[str]:
        """Return the number of matching pods by zone: those that run, and those that were placed."""
        key = shape.pod.namespace, repr(constraint.label_selector)
        if key not in self._counts:
            selector = compile_selector(constraint.label_selector)
            counts: Counter[str] = Counter()
            classes = self._snapshot.interner.classes
            placed = zip(self._snapshot.placed_node.tolist(), self._snapshot.placed_class.tolist(), strict=True)
            for node, number in placed:
                pod = classes[number]
                if pod.namespace == shape.pod.namespace and not pod.terminating and selector.matches(pod.labels or {}):
                    counts[self._zone_of_node[node]] += 1
            for zone, number, count in self._placed():
                other = self._shapes[number]
                if other.pod.namespace == shape.pod.namespace and selector.matches(other.labels):
                    counts[zone] += count
            self._counts[key] = counts
            self._selectors[key] = selector
        return self._counts[key]

    def _placed(self) -> Iterator[tuple[str, int, int]]:
        """Yield (zone, shape, number of pods) that were placed so far."""
        for (zone, number), count in self._placed_in.items():
            yield zone, number, count

    def _count(self, shape: _Shape, zone: str) -> None:
        """Count a pod that was placed in a zone."""
        self._placed_in[zone, shape.number] += 1
        for (namespace, text), counts in self._counts.items():
            if namespace == shape.pod.namespace and self._selectors[namespace, text].matches(shape.labels):
                counts[zone] += 1

    # -- output ------------------------------------------------------------------------------------------------------

    def _plan(self, claim: _Claim) -> PlannedClaim:
        """Return what a claim may become, in the order in which Karpenter launches."""
        offerings = [
            offering
            for i in np.flatnonzero(claim.options).tolist()
            for offering, needs in claim.pool.options[i].offerings
            if claim.requirements.is_compatible(needs, undefined=self._undefined)
        ]
        capacity_type = next(each for each in _PREFERENCE if any(one.capacity_type == each for one in offerings))
        offerings = [each for each in offerings if each.capacity_type == capacity_type]
        offerings.sort(key=lambda each: (each.price is None, each.price or 0.0, each.kind.name, each.zone))
        options = [claim.pool.options[i] for i in np.flatnonzero(claim.options).tolist()]
        return PlannedClaim(
            pool=claim.pool.pool.name,
            pods=[self._names[i] for i in claim.members],
            offerings=offerings,
            types=frozenset(option.name for option in options),
            min_values={
                key: (each.min_values, {option.name: option.requirements.of(key).values for option in options})
                for key, each in claim.requirements.items()
                if each.min_values is not None
            },
        )


def _alternatives(pod: PodClass, example: Pod) -> Iterator[_Alternative]:
    """Yield what a pod asks for: all preferences first, then with one less each time, as Karpenter drops them."""
    base = [requirement(key, Operator.IN, [value]) for key, value in (pod.node_selector or {}).items()]
    affinity = example.spec.affinity.node_affinity if example.spec.affinity is not None else None
    required = list(pod.node_affinity.node_selector_terms) if pod.node_affinity is not None else []
    preferred = sorted(affinity.preferred, key=lambda each: -each.weight) if affinity is not None else []
    spread = [each for each in pod.spread or () if each.when_unsatisfiable != "ScheduleAnyway"]
    soft = [each for each in pod.spread or () if each.when_unsatisfiable == "ScheduleAnyway"]
    effects: tuple[str, ...] = _ALL_EFFECTS
    while True:
        requirements = [*base]
        if preferred:
            requirements += _expressions(preferred[0].preference)
        if required:
            requirements += _expressions(required[0])
        yield _Alternative(Requirements(requirements), (*spread, *soft), effects)
        if len(required) > 1:
            del required[0]
        elif preferred:
            del preferred[0]
        elif soft:
            del soft[0]
        elif effects == _ALL_EFFECTS:
            effects = ("NoSchedule", "NoExecute")
        else:
            return


def _expressions(term: NodeSelectorTerm) -> list[Requirement]:
    """Return a term's requirements. Malformed ones, and those on the names of nodes, are met by no new node."""
    result = []
    for each in term.match_expressions:
        is_bound = each.operator in (Operator.GT, Operator.LT)
        is_valid = each.operator in _POD_OPERATORS and not (is_bound and not _is_one_integer(each.values))
        result.append(requirement(each.key, each.operator, each.values) if is_valid else _NEVER)
    return result + ([_NEVER] if term.match_fields else [])


def _is_one_integer(values: Sequence[str]) -> bool:
    return len(values) == 1 and values[0].lstrip("+-").isdecimal() and values[0].isascii()


def _share_ports(first: PodClass, second: PodClass) -> bool:
    """Check whether two pods use the same host port; an unspecified address means all addresses."""
    anywhere = ("", "0.0.0.0", "::")
    return any(
        (protocol, port) == (other_protocol, other_port)
        and (address == other_address or address in anywhere or other_address in anywhere)
        for address, protocol, port in first.ports
        for other_address, other_protocol, other_port in second.ports
    )


def _unmodelled(pod: PodClass) -> Iterator[str]:
    """Yield the constraints of a pod that the choice ignores."""
    if pod.affinity:
        yield "affinity to pods"
    if any(term.topology_key != HOSTNAME for term in pod.anti_affinity):
        yield "anti-affinity over zones and other domains"
    if any(
        term.topology_key == HOSTNAME and (term.namespaces or term.namespace_selector is not None)
        for term in pod.anti_affinity
    ):
        yield "anti-affinity to pods of other namespaces"
    if any(each.topology_key not in (HOSTNAME, ZONE) for each in pod.spread or ()):
        yield "spread over other domains than nodes and zones"
    if pod.has_claims:
        yield "volumes (zones, limits of nodes)"
    if pod.claims:
        yield "devices (dynamic resource allocation)"
