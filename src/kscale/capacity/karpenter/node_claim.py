"""Node claims that a scheduling round plans: the instance types that NodePools offer, claims with their pods, and the
requirements of pods after some of their preferences were dropped.

Upstream: ``sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling`` (``nodeclaimtemplate.go``, ``nodeclaim.go``,
``preferences.go``), ``pkg/scheduling/requirements.go`` and ``pkg/cloudprovider/types.go``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.karpenter.node_pools import NodePool, NodePools
from kscale.capacity.karpenter.offerings import (
    PoolGroups,
    PoolOffering,
    labels_of_type,
    offering_requirements,
    requirements_of_type,
)
from kscale.capacity.karpenter.requirements import WELL_KNOWN, Operator, Requirement, Requirements, requirement
from kscale.capacity.karpenter.topology import ALL_EFFECTS, DomainGroup, PodTopology
from kscale.capacity.mix.offers import ON_DEMAND, RESERVED, SPOT
from kscale.objects.api.core import NodeAffinity, NodeSelectorTerm, Pod, PodAffinity, Taint
from kscale.objects.go_numbers import parse_int64
from kscale.objects.node_selectors import HOSTNAME
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.pod_resources import PODS, occupancy, to_integers
from kscale.objects.taints import tolerates_all
from kscale.snapshot.classes.facets import host_ports

__all__ = [
    "REQUIRED_EFFECTS",
    "Alternative",
    "Daemon",
    "NodeClaim",
    "NodeClaimTemplate",
    "OfferedPools",
    "PlannedClaim",
    "alternatives_of",
    "share_ports",
    "strict_requirements",
]


_PREFERENCE: Sequence[str] = (RESERVED, SPOT, ON_DEMAND)
"""Capacity types in the order in which Karpenter launches them."""
_SIMULATED = ("karpenter.sh/registered", "karpenter.sh/initialized")
"""Labels that every node has in the end, so that pods of DaemonSets may require them."""

HostPorts = Sequence[tuple[str, str, int]]


def share_ports(first: HostPorts, second: HostPorts) -> bool:
    """Check whether two pods use the same port and protocol of a host; an unspecified address means all addresses."""
    anywhere = ("", "0.0.0.0", "::")
    return any(
        (protocol, port) == (other_protocol, other_port)
        and (address == other_address or address in anywhere or other_address in anywhere)
        for address, protocol, port in first
        for other_address, other_protocol, other_port in second
    )


@dataclass(frozen=True, slots=True)
class Daemon:
    """The pod that a DaemonSet starts on each node that suits it."""

    pod: Pod
    terms: Sequence[Requirements]
    request: Mapping[str, int]
    ports: HostPorts

    @classmethod
    def of(cls, pod: Pod) -> Daemon:
        """Build the record of a DaemonSet's pod: its required terms, requests and host ports."""
        return cls(pod, strict_requirements(pod), {**to_integers(occupancy(pod)), PODS: 1}, host_ports(pod))

    def runs_on_type(
        self, template: Requirements, taints: Sequence[Taint], of_type: Requirements, undefined: frozenset[str]
    ) -> bool:
        """Check whether the pod runs on new nodes of an instance type that a NodePool launches.

        ``template``, ``taints``: of the NodePool. ``of_type``: labels of the type. ``undefined``: labels that the
        NodePool need not mention.
        """
        if not tolerates_all(self.pod.spec.tolerations, taints, comparison_operators=True):
            return False
        return any(
            template.is_compatible(term, undefined=undefined) and of_type.find_conflict(term) is None
            for term in self.terms
        )

    def runs_on_node(self, labels: Requirements, taints: Sequence[Taint], effects: Sequence[str]) -> bool:
        """Check whether the pod runs on an existing node with these labels and taints.

        ``effects``: only taints with one of these effects must be tolerated.
        """
        return tolerates_all(self.pod.spec.tolerations, taints, effects=effects, comparison_operators=True) and any(
            labels.is_compatible(term) for term in self.terms
        )


@dataclass(frozen=True, slots=True)
class _OfferedType:
    """An instance type of a pool: what new nodes have, and its offerings."""

    name: str
    requirements: Requirements
    allocatable: Mapping[str, int]
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
        The groups of ``converted`` with their templates.
    """

    def __init__(self, pools: NodePools, converted: PoolGroups, groups: Iterable[NodeGroup]) -> None:
        self.pools, self.offerings = pools.pools, converted.offerings
        self.remaining = {pool.name: dict(converted.left_by_limits(pool.name)) for pool in pools.pools}
        self.undefined = WELL_KNOWN | {key for offering in self.offerings for key in labels_of_type(offering.kind)}
        templates = {group.id: group for group in groups}
        self.types = {pool.name: list(self._types_of(pool.name, converted, templates)) for pool in pools.pools}
        self._universe = {
            pool.name: list(converted.types.get(pool.name, {}).values())
            or [offered.requirements for offered in self.types[pool.name]]
            for pool in pools.pools
        }
        self._domains: dict[str, DomainGroup] = {}

    def _types_of(self, pool: str, converted: PoolGroups, templates: Mapping[str, NodeGroup]) -> Iterator[_OfferedType]:
        """Yield the instance types of the NodePool ``pool``, each with its offerings.

        ``templates``: the groups by id.
        """
        by_type: dict[str, list[PoolOffering]] = defaultdict(list)
        for offering in self.offerings:
            if offering.pool == pool:
                by_type[offering.kind.name].append(offering)
        for name, offerings in by_type.items():
            allocatable = templates[offerings[0].group].node_template.node.status.allocatable or {}
            slots = {PODS: allocatable[PODS].value()} if PODS in allocatable else {}
            requirements = converted.types.get(pool, {}).get(name)
            if requirements is None:
                zones = list(dict.fromkeys(offering.zone for offering in offerings))
                capacity_types = dict.fromkeys(offering.capacity_type for offering in offerings)
                requirements = requirements_of_type(offerings[0].kind, zones, "", capacity_types)
            yield _OfferedType(
                name,
                requirements,
                {**to_integers(allocatable), **slots},
                {"nodes": 1, **to_integers(offerings[0].kind.capacity)},
                [(each, offering_requirements(each.zone, each.capacity_type)) for each in offerings],
            )

    def domains_of(self, key: str) -> DomainGroup:
        """Return the values of the label ``key`` that new nodes can have, with the taints of each NodePool offering it.

        The result is cached; do not modify it.
        """
        if key not in self._domains:
            result: dict[str, list[Sequence[Taint]]] = {}
            for pool in self.pools:
                taints = pool.spec.template.spec.taints
                own = pool.template_requirements().get(key)
                of_types = (requirements.get(key) for requirements in self._universe[pool.name])
                both = [
                    each if own is None or each is None else each.intersection(own)
                    for each in of_types
                    if each is not None or own is not None
                ]
                each_own = [own] if own is not None and own.operator is Operator.IN else []
                for value in dict.fromkeys(
                    value for one in (*both, *each_own) if one is not None for value in one.values
                ):
                    result.setdefault(value, []).append(taints)
            self._domains[key] = result
        return self._domains[key]


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
    requirements : Requirements
        Those of the NodePool and of the pods together.
    """

    pool: str
    pods: list[str]
    offerings: list[PoolOffering]
    types: frozenset[str]
    min_values: Mapping[str, tuple[int, Mapping[str, frozenset[str]]]] = field(default_factory=dict)
    requirements: Requirements = field(default_factory=Requirements)

    def has_minimum_values(self) -> bool:
        """Check whether the types have as many different values of each label as ``minValues`` demands."""
        return all(
            len({value for name in self.types for value in values[name]}) >= minimum
            for minimum, values in self.min_values.values()
        )

    @property
    def zone(self) -> str:
        """Return the zone of the cheapest offering; empty if its type has the same price in another zone."""
        best = self.offerings[0]
        zones = {one.zone for one in self.offerings if one.kind is best.kind and one.price == best.price}
        return best.zone if len(zones) == 1 else ""


class NodeClaimTemplate:
    """A NodePool in a scheduling round: its instance types, and what its limits leave.

    Parameters
    ----------
    pool : NodePool
        The NodePool.
    offered : OfferedPools
        What the NodePools offer.
    daemons : sequence of Daemon
        The pods of DaemonSets.
    resources : mapping
        Position of each resource in vectors of amounts.
    remaining : mapping
        What the limits of the NodePool leave, by resource.
    unavailable : collection of str
        Groups of offerings that the cloud cannot launch now.
    """

    def __init__(
        self,
        pool: NodePool,
        offered: OfferedPools,
        daemons: Sequence[Daemon],
        resources: Mapping[str, int],
        remaining: Mapping[str, int],
        unavailable: Collection[str],
    ) -> None:
        self.name = pool.name
        self.taints = pool.spec.template.spec.taints
        self.undefined = offered.undefined
        simulated = (requirement(key, Operator.IN, ["true"]) for key in _SIMULATED)
        self.requirements = pool.requirements().with_(simulated)
        self.remaining = dict(remaining)
        self.types: list[_OfferedType] = []
        self.offerings: list[list[tuple[PoolOffering, Requirements]]] = []
        for offered_type in offered.types[pool.name]:
            offerings = [each for each in offered_type.offerings if each[0].group not in unavailable]
            if offerings:
                self.types.append(offered_type)
                self.offerings.append(offerings)
        rooms = np.zeros((len(self.types), len(resources)), dtype=np.int64)
        self._daemon_ports: list[tuple[HostPorts, ...]] = []
        for i, each in enumerate(self.types):
            running = [
                daemon
                for daemon in daemons
                if daemon.runs_on_type(self.requirements, self.taints, each.requirements, self.undefined)
            ]
            for name, position in resources.items():
                reserved = sum(daemon.request.get(name, 0) for daemon in running)
                rooms[i, position] = each.allocatable.get(name, 0) - reserved
            self._daemon_ports.append(tuple(daemon.ports for daemon in running if daemon.ports))
        self.rooms = rooms
        self._capacities: dict[str, NDArray[np.int64]] = {}
        self._masks: dict[frozenset[Requirement], NDArray[np.bool_]] = {}
        everything = np.ones(len(self.types), dtype=bool)
        self.can_meet_minimum_values = self.has_minimum_values(self.requirements, everything)

    def _capacity_of(self, name: str) -> NDArray[np.int64]:
        """Return int64[types]: the capacity of the resource ``name`` (milli-cores, bytes or units)."""
        if name not in self._capacities:
            amounts = [each.capacity.get(name, 0) for each in self.types]
            self._capacities[name] = np.array(amounts, dtype=np.int64)
        return self._capacities[name]

    def within_limits(self) -> NDArray[np.bool_]:
        """Return bool[types]: whether the NodePool's limits allow another node of the type."""
        allowed = np.ones(len(self.types), dtype=bool)
        for name, amount in self.remaining.items():
            allowed &= self._capacity_of(name) <= amount
        return allowed

    def take(self, types: NDArray[np.bool_]) -> None:
        """Subtract a new node from what the limits leave.

        The largest capacity among ``types`` (bool[types]) is subtracted, as any of these types may be launched.
        """
        for name in self.remaining:
            self.remaining[name] -= int(self._capacity_of(name)[types].max())

    def suitable(self, requirements: Requirements) -> NDArray[np.bool_]:
        """Return bool[types]: whether a type and one of its offerings meet the requirements, the host name aside.

        Do not modify the result, which is cached.
        """
        key = frozenset(each for each in requirements.values() if each.key != HOSTNAME)
        mask = self._masks.get(key)
        if mask is None:
            mask = np.array([self._suits(i, requirements) for i in range(len(self.types))], dtype=bool)
            self._masks[key] = mask
        return mask

    def _suits(self, number: int, requirements: Requirements) -> bool:
        """Check whether the type at index ``number`` and one of its offerings meet the requirements."""
        if self.types[number].requirements.find_conflict(requirements) is not None:
            return False
        return any(requirements.is_compatible(needs, undefined=self.undefined) for _, needs in self.offerings[number])

    def free_of_ports(self, ports: HostPorts) -> NDArray[np.bool_]:
        """Return bool[types]: whether no pod of a DaemonSet uses one of the host ports on nodes of the type."""
        return np.array(
            [not any(share_ports(ports, other) for other in taken) for taken in self._daemon_ports], dtype=bool
        )

    def has_minimum_values(self, requirements: Requirements, types: NDArray[np.bool_]) -> bool:
        """Check whether the selected types have as many different values of each label as ``minValues`` demands.

        ``types``: bool[types].
        """
        chosen = [self.types[i] for i in np.flatnonzero(types).tolist()]
        for key, each in requirements.items():
            if each.min_values is not None:
                values = {value for one in chosen for value in one.requirements.requirement_for(key).values}
                if len(values) < each.min_values:
                    return False
        return True


@dataclass(slots=True, eq=False)
class NodeClaim:
    """A node to launch: what is known about it, and the types that still suit all of its pods."""

    template: NodeClaimTemplate
    requirements: Requirements
    types: NDArray[np.bool_]
    request: NDArray[np.int64]
    number: int
    ports: list[HostPorts] = field(default_factory=list)
    members: list[int] = field(default_factory=list)

    @property
    def hostname(self) -> str:
        """Return a placeholder for the node's host name, which is not known yet."""
        return f"hostname-placeholder-{self.number:04}"

    def has_room(self, request: NDArray[np.int64]) -> bool:
        """Check whether one of the claim's types has room for a further pod.

        ``request``: int64[resources] of the pod.
        """
        fits = (self.template.rooms >= self.request + request).all(axis=1)
        return bool((self.types & fits).any())

    def plan(self, names: Sequence[str]) -> PlannedClaim:
        """Return the node to launch: its pods, suitable types, and offerings in the order in which Karpenter launches.

        The offerings are those of one capacity type, the first in Karpenter's order of preference that is available.
        ``names``: the names of all pods of the scheduling round.
        """
        template, undefined = self.template, self.template.undefined
        chosen = np.flatnonzero(self.types).tolist()
        offerings = [
            offering
            for i in chosen
            for offering, needs in template.offerings[i]
            if self.requirements.is_compatible(needs, undefined=undefined)
        ]
        capacity_type = next(each for each in _PREFERENCE if any(one.capacity_type == each for one in offerings))
        offerings = [each for each in offerings if each.capacity_type == capacity_type]
        offerings.sort(key=lambda each: (each.price is None, each.price or 0.0, each.kind.name, each.zone))
        types = [template.types[i] for i in chosen]
        hidden = (HOSTNAME, *_SIMULATED)
        return PlannedClaim(
            pool=template.name,
            pods=[names[i] for i in self.members],
            offerings=offerings,
            types=frozenset(each.name for each in types),
            min_values={
                key: (each.min_values, {one.name: one.requirements.requirement_for(key).values for one in types})
                for key, each in self.requirements.items()
                if each.min_values is not None
            },
            requirements=Requirements(each for key, each in self.requirements.items() if key not in hidden),
        )


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
REQUIRED_EFFECTS = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Alternative:
    """Requirements of a pod after some of its preferences were dropped.

    Attributes
    ----------
    requirements : Requirements
        Those of the pod, with the heaviest preference that is left as if it were required.
    strict : Requirements
        The same without preferences.
    topology : PodTopology
        What the pod demands of the topology.
    """

    requirements: Requirements
    strict: Requirements
    topology: PodTopology

    @property
    def effects(self) -> Sequence[str]:
        """Return the effects of taints that the pod must tolerate; taints with other effects are ignored."""
        return self.topology.effects


def alternatives_of(pod: Pod, *, tolerates_preferences: bool) -> Iterator[Alternative]:
    """Yield the requirements of a pod: first the strictest, then with one demand less each time, in Karpenter's order.

    Dropped are: all but the last term of the required node affinity, preferred pod affinity, preferred pod
    anti-affinity, preferred node affinity (the heaviest first), then spread constraints with ``ScheduleAnyway``.
    ``tolerates_preferences``: whether taints with the effect PreferNoSchedule are tolerated in the end, which Karpenter
    does if a NodePool has such a taint.
    """
    spec = pod.spec
    node, near, apart = NodeAffinity(), PodAffinity(), PodAffinity()
    if spec.affinity is not None:
        node = spec.affinity.node_affinity or node
        near, apart = spec.affinity.pod_affinity or near, spec.affinity.pod_anti_affinity or apart
    selector = spec.node_selector or {}
    base = [requirement(key, Operator.IN, [value]) for key, value in selector.items()]
    required = None if node.required is None else list(node.required.node_selector_terms)
    preferred = sorted(node.preferred, key=lambda each: -each.weight)
    preferred_near = [each.pod_affinity_term for each in sorted(near.preferred, key=lambda each: -each.weight)]
    preferred_apart = [each.pod_affinity_term for each in sorted(apart.preferred, key=lambda each: -each.weight)]
    spread = list(spec.topology_spread_constraints or ())
    tolerates_all = any(
        (each.key, each.operator, each.value, each.effect) == ("", "Exists", "", "PreferNoSchedule")
        for each in spec.tolerations
    )
    effects: Sequence[str] = ALL_EFFECTS
    while True:
        strict = Requirements([*base, *(_expressions(required[0]) if required else ())])
        wanted = strict
        if preferred:
            wanted = Requirements([*base, *_expressions(preferred[0].preference), *strict.values()])
        yield Alternative(
            wanted,
            strict,
            PodTopology(
                namespace=pod.metadata.namespace or "default",
                labels=pod.metadata.labels or {},
                tolerations=spec.tolerations,
                effects=effects,
                node_selector=selector,
                terms=None if required is None else [Requirements(_expressions(term)) for term in required],
                spread=tuple(spread),
                affinity=(*near.required, *preferred_near),
                anti_affinity=(*apart.required, *preferred_apart),
                required_anti_affinity=tuple(apart.required),
            ),
        )
        soft = [i for i, each in enumerate(spread) if each.when_unsatisfiable == "ScheduleAnyway"]
        if required is not None and len(required) > 1:
            del required[0]
        elif preferred_near:
            del preferred_near[0]
        elif preferred_apart:
            del preferred_apart[0]
        elif preferred:
            del preferred[0]
        elif soft:  # the last constraint takes the place of the one that is dropped
            spread[soft[0]] = spread[-1]
            del spread[-1]
        elif tolerates_preferences and effects is ALL_EFFECTS and not tolerates_all:
            effects = REQUIRED_EFFECTS
        else:
            return


def strict_requirements(pod: Pod) -> list[Requirements]:
    """Return the label requirements of a pod as alternatives, of which a node must meet one.

    Each is the node selector together with one term of the required node affinity. Without terms, the only alternative
    is the node selector.
    """
    base = [requirement(key, Operator.IN, [value]) for key, value in (pod.spec.node_selector or {}).items()]
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    if required is None or not required.node_selector_terms:
        return [Requirements(base)]
    return [Requirements([*base, *_expressions(term)]) for term in required.node_selector_terms]


def _expressions(term: NodeSelectorTerm) -> list[Requirement]:
    """Return the requirements on labels in a term of a node selector.

    A malformed requirement, or one on the names of nodes, becomes one that no new node meets.
    """
    result = []
    for each in term.match_expressions:
        is_bound = each.operator in (Operator.GT, Operator.LT)
        is_valid = each.operator in _POD_OPERATORS and not (is_bound and not _is_one_integer(each.values))
        result.append(requirement(each.key, each.operator, each.values) if is_valid else _NEVER)
    return result + ([_NEVER] if term.match_fields else [])


def _is_one_integer(values: Sequence[str]) -> bool:
    """Check whether there is exactly one value, and it is an integer."""
    return len(values) == 1 and parse_int64(values[0]) is not None
