"""Which nodes Karpenter would remove or replace: emptiness, and consolidation of several nodes or of one.

Upstream: ``pkg/controllers/disruption`` (``emptiness.go``, ``consolidation.go``, ``multinodeconsolidation.go``,
``singlenodeconsolidation.go``, ``validation.go``, ``helpers.go``) and ``pkg/utils/disruption``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import zip_longest

from kscale.capacity.consolidation.budgets import EMPTY, UNDERUTILIZED, allowed_nodes
from kscale.capacity.karpenter.cluster_view import ClusterView
from kscale.capacity.karpenter.node_claim import PlannedClaim
from kscale.capacity.karpenter.node_pools import CAPACITY_TYPE, NodePool
from kscale.capacity.karpenter.scheduler import Placement
from kscale.capacity.mix.offers import SPOT
from kscale.objects.api.core import Node, Pod
from kscale.objects.conditions import is_true
from kscale.objects.go_numbers import parse_int64
from kscale.objects.pod_owners import DO_NOT_DISRUPT

__all__ = ["METHODS", "Candidate", "Command", "Method", "find_candidates", "find_command", "revalidate"]

_TYPE = "node.kubernetes.io/instance-type"
_NEVER = "Never"
_MOST_TOGETHER = 100
"""Nodes that are considered together at most."""
_PRIORITY_UNIT, _COST_UNIT = 2.0**25, 2.0**27
_COSTS = ("karpenter.sh/disruption-cost", "controller.kubernetes.io/pod-deletion-cost")
"""Annotations of pods with the cost of their eviction; the first one that a pod has counts."""
_BASE_COST = 1.0
"""Cost of disrupting a node without pods."""


class Method(StrEnum):
    """Kinds of disruption, in the order in which Karpenter tries them."""

    EMPTINESS = "Emptiness"
    MULTI = "MultiNodeConsolidation"
    SINGLE = "SingleNodeConsolidation"

    @property
    def reason(self) -> str:
        """Return the reason (``Empty``, ``Underutilized``) by which disruption budgets select this method."""
        return EMPTY if self is Method.EMPTINESS else UNDERUTILIZED


METHODS: Sequence[Method] = tuple(Method)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that may be disrupted.

    Attributes
    ----------
    name, pool, kind, capacity_type : str
        Its name, NodePool, instance type and capacity type.
    price : float
        $/h; 0 if it is unknown.
    cost : float
        Cost of its disruption: 1, and about 1 for each pod that needs another node.
    pods : list of Pod
        Pods that need another node.
    """

    name: str
    pool: str
    kind: str
    capacity_type: str
    price: float
    cost: float
    pods: list[Pod]

    @property
    def is_empty(self) -> bool:
        """Check whether no pod adds to the node's cost of disruption."""
        return self.cost <= _BASE_COST


@dataclass(frozen=True, slots=True)
class Command:
    """Nodes to remove (``candidates``), and the node to launch before (None: they are removed at once).

    ``targets``: existing nodes to which their pods would go.
    """

    method: Method
    candidates: list[Candidate]
    replacement: PlannedClaim | None = None
    targets: frozenset[str] = frozenset()


def find_candidates(view: ClusterView, method: Method) -> list[Candidate]:
    """Return the nodes that a method may disrupt now, sorted by name: empty ones for emptiness, else the others.

    They are initialized, consolidatable nodes that are not being deleted, of NodePools whose rules allow the method. No
    pending pod was placed on them a short time ago, their pods may all be evicted, and they are not annotated
    ``karpenter.sh/do-not-disrupt=true``.
    """
    managed = view.managed
    result = []
    for node in view.snapshot.columns.objects:
        pool = view.pool_of(node)
        if pool is None or node.name not in managed.consolidatable or node.name not in managed.initialized:
            continue
        if node.name in managed.deleting or node.name in managed.nominated or not _allows(pool, method):
            continue
        if (node.metadata.annotations or {}).get(DO_NOT_DISRUPT) == "true" or view.has_blocking_pod(node.name):
            continue
        candidate = _make_candidate(view, node, pool)
        if candidate.is_empty == (method is Method.EMPTINESS):
            result.append(candidate)
    return sorted(result, key=lambda each: each.name)


def _allows(pool: NodePool, method: Method) -> bool:
    """Check whether a NodePool's disruption rules allow a method."""
    disruption = pool.spec.disruption
    if disruption.consolidate_after == _NEVER:
        return False
    return method is Method.EMPTINESS or disruption.consolidation_policy != "WhenEmpty"


def _make_candidate(view: ClusterView, node: Node, pool: NodePool) -> Candidate:
    """Build the candidate of a node. An unknown price counts as 0."""
    labels = node.metadata.labels or {}
    pods = view.reschedulable(node.name)
    group = view.groups.get(view.managed.group_of[node.name])
    return Candidate(
        name=node.name,
        pool=pool.name,
        kind=labels.get(_TYPE, ""),
        capacity_type=labels.get(CAPACITY_TYPE, ""),
        price=(None if group is None else group.price) or 0.0,
        cost=_BASE_COST + sum(max(0.0, eviction_cost(pod)) for pod in pods),
        pods=pods,
    )


def eviction_cost(pod: Pod) -> float:
    """Return what evicting a pod costs: 1, more or less by its annotations and priority, from -10 to 10.

    An annotation that is not an integer of 32 bits counts as 0.
    """
    annotations = pod.metadata.annotations or {}
    text = next((annotations[name] for name in _COSTS if name in annotations), "0")
    number = parse_int64(text)
    if number is None or not -(2**31) <= number < 2**31:
        number = 0
    cost = 1.0 + number / _COST_UNIT + (pod.spec.priority or 0) / _PRIORITY_UNIT
    return min(10.0, max(-10.0, cost))


def count_allowed(view: ClusterView, reason: str) -> dict[str, int]:
    """Return how many more nodes of each NodePool may be disrupted now for a reason.

    Nodes that are being deleted, and nodes that are not ready, use the budgets up. Nodes that are not initialized do
    not count. Without an active budget, all nodes may be disrupted.
    """
    total: Counter[str] = Counter()
    disrupting: Counter[str] = Counter()
    managed = view.managed
    for node in view.snapshot.columns.objects:
        pool = view.pool_of(node)
        if pool is None or node.name not in managed.initialized:
            continue
        total[pool.name] += 1
        disrupting[pool.name] += node.name in managed.deleting or not is_true(node.status.conditions, "Ready")
    result = {}
    for name, pool in view.pool_by_name.items():
        allowed = allowed_nodes(pool.disruption().budgets, view.now, total[name], reason)
        result[name] = max(0, (total[name] if allowed is None else allowed) - disrupting[name])
    return result


# -- methods -----------------------------------------------------------------------------------------------------------


def find_command(view: ClusterView, method: Method) -> Command | None:
    """Return the nodes that a method would disrupt now, with their replacement; None if it would disrupt nothing.

    Candidates are tried as far as budgets allow, those with the highest price per cost of disruption first. Emptiness
    disrupts all of them. The other methods disrupt the first ones whose removal or replacement saves; for single nodes,
    the NodePools take turns.
    """
    candidates = find_candidates(view, method)
    if not candidates:
        return None
    allowed = count_allowed(view, method.reason)
    candidates = sorted(candidates, key=lambda each: -each.price / each.cost)
    if method is Method.SINGLE:
        candidates = [each for each in _interleave(candidates) if allowed[each.pool]]
        commands = (consolidate(view, method, [candidate]) for candidate in candidates)
        return next((command for command in commands if command is not None), None)
    within_budgets = []
    for candidate in candidates:
        if allowed[candidate.pool]:
            allowed[candidate.pool] -= 1
            within_budgets.append(candidate)
    if method is Method.EMPTINESS:
        return Command(method, within_budgets) if within_budgets else None
    return _find_most_together(view, within_budgets)


def _interleave(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the first candidate of each NodePool, then the second ones, and so on."""
    by_pool: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_pool[candidate.pool].append(candidate)
    return [candidate for row in zip_longest(*by_pool.values()) for candidate in row if candidate is not None]


def _find_most_together(view: ClusterView, candidates: Sequence[Candidate]) -> Command | None:
    """Return the command that removes as many of the first candidates as upstream's binary search finds.

    The command removes at least two nodes, and at most 101. None if the search finds no command.
    """
    low, high = 1, min(len(candidates), _MOST_TOGETHER + 1) - 1
    best = None
    while low <= high:
        middle = (low + high) // 2
        command = consolidate(view, Method.MULTI, candidates[: middle + 1])
        if command is not None and command.replacement is not None:
            command = _drop_types_that_do_not_pay(command, command.replacement)
        if command is None:
            high = middle - 1
        else:
            best, low = command, middle + 1
    return best


def _drop_types_that_do_not_pay(command: Command, replacement: PlannedClaim) -> Command | None:
    """Return the command with only those types of its ``replacement`` that pay; None if no type is left.

    A type pays if it costs less than every removed node of a type that the replacement may have, too. Otherwise that
    node could stay as the replacement of the others, which would move fewer pods.
    """
    prices: dict[str, float] = {}
    for candidate in command.candidates:
        prices[candidate.kind] = min(candidate.price, prices.get(candidate.kind, candidate.price))
    types = {offering.kind.name for offering in replacement.offerings}
    limit = min((price for kind, price in prices.items() if kind in types), default=None)
    claim = replacement if limit is None else _cheaper(replacement, limit)
    return None if claim is None else replace(command, replacement=claim)


def consolidate(view: ClusterView, method: Method, candidates: Sequence[Candidate]) -> Command | None:
    """Return the command that removes all ``candidates``, with one cheaper node in their place if their pods need it.

    None if their pods and the pending pods need more than one new node, or one that is not cheaper than the candidates.
    None also if one of their pods fits nowhere, or would go to a node that is not initialized.

    Notes
    -----
    Upstream: ``consolidation.go`` (``computeConsolidation``). A spot node is not replaced by another spot node, as in
    Karpenter without the feature ``SpotToSpotConsolidation``.
    """
    placement = _simulate(view, candidates)
    if placement is None or len(placement.claims) > 1:
        return None
    command = Command(method, list(candidates), targets=frozenset(placement.existing.values()))
    if not placement.claims:
        return command
    (claim,) = placement.claims
    all_spot = all(candidate.capacity_type == SPOT for candidate in candidates)
    if all_spot and claim.offerings[0].capacity_type == SPOT:
        return None
    cheaper = _cheaper(claim, sum(candidate.price for candidate in candidates))
    return None if cheaper is None else replace(command, replacement=cheaper)


def _simulate(view: ClusterView, candidates: Sequence[Candidate]) -> Placement | None:
    """Return where the pods of the candidates, and pending ones, would go if the candidates were removed.

    None if a pod of the candidates would be unschedulable, or would go to a node that is not initialized.
    """
    moving = [pod for each in candidates for pod in view.currently_reschedulable(each.name)]
    placement = view.place(moving, without={each.name for each in candidates})
    moved = {pod.key for pod in moving}
    if not moved.isdisjoint(placement.unschedulable):
        return None
    if any(not view.is_initialized(node) for pod, node in placement.existing.items() if pod in moved):
        return None
    return placement


def _cheaper(claim: PlannedClaim, price: float) -> PlannedClaim | None:
    """Return the claim with only the types whose most expensive offering costs less than ``price``; None if none does.

    None also if these types are too few for ``minValues``.
    """
    worst: dict[str, float] = {}
    for offering in claim.offerings:
        cost = float("inf") if offering.price is None else offering.price
        worst[offering.kind.name] = max(cost, worst.get(offering.kind.name, cost))
    offerings = [each for each in claim.offerings if worst[each.kind.name] < price]
    cheaper = replace(claim, offerings=offerings, types=frozenset(each.kind.name for each in offerings))
    return cheaper if offerings and cheaper.has_minimum_values() else None


# -- validation --------------------------------------------------------------------------------------------------------


def revalidate(view: ClusterView, command: Command) -> Command | None:
    """Check a command again some time after it was found, and return it with the candidates that are still valid.

    Returns None if the command is no longer valid. Each empty node is checked by itself. A consolidation must still be
    possible as a whole: all its nodes are still candidates, and budgets allow all of them. If it has a replacement,
    their pods must still need one new node, for which all types of the replacement are suitable; else no new node.
    """
    current = {each.name: each for each in find_candidates(view, command.method)}
    allowed: Mapping[str, int] = count_allowed(view, command.method.reason)
    used: Counter[str] = Counter()
    candidates = []
    for name in (each.name for each in command.candidates):
        candidate = current.get(name)
        if candidate is not None and used[candidate.pool] < allowed[candidate.pool]:
            used[candidate.pool] += 1
            candidates.append(candidate)
    if command.method is Method.EMPTINESS:
        return replace(command, candidates=candidates) if candidates else None
    if len(candidates) < len(command.candidates):
        return None
    placement = _simulate(view, candidates)
    if placement is None or len(placement.claims) != (0 if command.replacement is None else 1):
        return None
    if command.replacement is not None and not command.replacement.types <= placement.claims[0].types:
        return None
    return replace(command, candidates=candidates)
