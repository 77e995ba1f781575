"""Plans that cost little to compute, which every mix is compared with: one type for all pods, and Karpenter's rule.

A search that ends early, at the latest by a budget of 0, therefore returns no plan that costs more than these.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kscale.ca.estimator import EstimateOptions, EstimateResult, estimate_many
from kscale.capacity.mix.check import PlannedPlacement
from kscale.capacity.mix.instance import Instance, select_records
from kscale.capacity.mix.packing import Packed, Packing, assign_pods_to_nodes
from kscale.capacity.mix.solve import find_undominated
from kscale.objects.node_selectors import HOSTNAME
from kscale.objects.pod_resources import CPU, MEMORY
from kscale.objects.selectors import SelectorError
from kscale.scheduling.bounds.instance import BinKinds
from kscale.scheduling.place import place
from kscale.scheduling.plugins.pod_topology_spread import hard_constraints
from kscale.snapshot.pods.rows import PodRows
from kscale.snapshot.snapshot import Snapshot

__all__ = ["SingleTypes", "StartPlan", "build_placement", "plan_by_claims"]

_TYPES = 8  # types that are estimated together


@dataclass(frozen=True, slots=True)
class StartPlan:
    """Nodes that another rule would create: ``nodes`` as (name of the offer, pods), and pods on ``existing`` nodes."""

    nodes: Sequence[tuple[str, Sequence[str]]]
    existing: Mapping[str, str]


def build_placement(instance: Instance, plan: StartPlan) -> PlannedPlacement | None:
    """Convert a plan, which has names, to a placement, which has numbers, and add the minimum nodes of all offers.

    None if the placement exceeds a limit, or if the plan has a node of an unknown offer. Pods of the plan that the
    instance does not contain are left out.
    """
    offer_numbers = {offer.name: i for i, offer in enumerate(instance.offers)}
    if any(name not in offer_numbers for name, _ in plan.nodes):
        return None
    index = instance.snapshot.columns.index
    node_of = {pod: index[node] for pod, node in plan.existing.items()} if instance.options.existing else {}
    offers = [offer_numbers[name] for name, _ in plan.nodes]
    for number, (_, pods) in enumerate(plan.nodes, len(instance.snapshot.nodes)):
        node_of.update(dict.fromkeys(pods, number))
    counts = np.bincount(np.array(offers, dtype=np.int64), minlength=len(instance.offers))
    for i, offer in enumerate(instance.offers):
        missing = max(0, offer.least - int(counts[i]))
        offers += [i] * missing
        counts[i] += missing
        if offer.most is not None and counts[i] > offer.most:
            return None
    if (instance.offer_rows @ counts > instance.high).any():
        return None
    node = np.array([node_of.get(record.key, -1) for record in instance.records], dtype=np.int64)
    return PlannedPlacement(np.array(offers, dtype=np.int64), node)


class SingleTypes:
    """Plans with new nodes of one type, as upstream's estimator packs them.

    Pods go to existing nodes first, as ``kscale estimate`` places them. Types are estimated only when they may be the
    cheapest. A type that does not hold every remaining pod is left out. There is no plan if pods must be spread: the
    predicates count only nodes that exist, and would accept one node in one zone.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._possible = not _has_hard_spread(instance)
        self._packed: list[_Packed | None] = []  # of the types that were estimated, in the order of ``_candidates``
        self._plans: dict[int, PlannedPlacement | None] = {}  # by first offer

    @cached_property
    def _remaining(self) -> tuple[Snapshot, PodRows | list[str], dict[str, str], int]:
        """Place pods on existing nodes.

        Returns (snapshot after it, remaining pods, node name by placed pod, index of the node after which the next scan
        starts).
        """
        instance = self._instance
        snapshot = instance.snapshot
        records = select_records(instance.asked, np.sort(instance.positions))  # the order decides ties
        names = [record.key for record in records] if not isinstance(records, PodRows) else None
        if not instance.options.existing or not len(snapshot.nodes) or not len(records):
            return snapshot, records if isinstance(records, PodRows) else names or [], {}, 0
        placed = place(snapshot, pods=records if names is None else names)
        return (
            placed.snapshot_after,
            [*placed.unschedulable, *placed.not_tried],
            dict(placed.placed),
            placed.state.cursor,
        )

    @cached_property
    def _candidates(self) -> list[tuple[float, list[int]]]:
        """Return (lower bound of the cost, indices of its offers) of each type that holds every remaining pod.

        The type with the lowest bound comes first.
        """
        instance = self._instance
        existing = self._remaining[2]
        waiting = np.ones(len(instance.records), dtype=bool)
        if existing:
            waiting = np.array([record.key not in existing for record in instance.records], dtype=bool)
        return _rank_types(instance, waiting)

    def cheapest(self, below: float = math.inf) -> PlannedPlacement | None:
        """Return the cheapest plan; None if pods must be spread, or no type holds every pod below the price ``below``.

        ``below``: $/h of all new nodes. Types are estimated in the order of a lower bound of their cost, until no other
        can be cheaper. If existing nodes hold all pods, the plan has minimum nodes only. None also if limits forbid the
        plan.
        """
        if not self._possible:
            return None
        snapshot, pods, existing, _ = self._remaining
        if not len(pods):
            return build_placement(self._instance, StartPlan([], existing))
        best: _Packed | None = None
        for i, (bound, _) in enumerate(self._candidates):
            if bound >= (below if best is None else best.cost):
                break
            if i == len(self._packed):
                self._estimate_types([offers for _, offers in self._candidates[i : i + _TYPES]])
            packed = self._packed[i]
            if packed is not None and packed.cost < (below if best is None else best.cost):
                best = packed
        if best is None:
            return None
        key = best.parts[0][0]
        if key not in self._plans:
            self._plans[key] = build_placement(self._instance, self._join(best.parts, existing, snapshot))
        return self._plans[key]

    def _estimate_types(self, types: Sequence[Sequence[int]]) -> None:
        """Estimate types, each given by its offers, and append the results to ``_packed``.

        None stands for a type that does not hold all pods or exceeds a limit. A type's next offer gets the pods that
        the ones before it leave.
        """
        snapshot, pods, _, cursor = self._remaining
        instance = self._instance
        firsts = _estimate(instance, snapshot, pods, [offers[0] for offers in types], cursor)
        for offers, first in zip(types, firsts, strict=True):
            parts = [(offers[0], first)]
            pending = _unplaced(first)
            for offer in offers[1:] if len(pending) else ():
                (part,) = _estimate(instance, snapshot, pending, [offer], cursor)
                parts.append((offer, part))
                pending = _unplaced(part)
                if not len(pending):
                    break
            cost = sum(instance.offers[offer].price * part.node_count for offer, part in parts)
            is_plan = not len(pending) and _keeps_limits(instance, parts)
            self._packed.append(_Packed(cost, parts) if is_plan else None)

    def _join(
        self, parts: Sequence[tuple[int, EstimateResult]], existing: Mapping[str, str], snapshot: Snapshot
    ) -> StartPlan:
        """Return the nodes of several estimates, with pods on ``existing`` nodes, as one plan.

        ``parts``: (index of the offer, estimate). ``existing``: node of each pod that is on an existing node.
        """
        nodes: list[tuple[str, Sequence[str]]] = []
        on_existing = dict(existing)
        for offer, part in parts:
            pods_on: dict[str, list[str]] = {}
            for pod, node in part.placed.items():
                if node in snapshot.columns.index:  # the estimator's retry for spread constraints over host names
                    on_existing[pod] = node
                else:
                    pods_on.setdefault(node, []).append(pod)
            nodes += [(self._instance.offers[offer].name, pods) for pods in pods_on.values()]
        return StartPlan(nodes, on_existing)


class _Packed(NamedTuple):
    """Estimates of the offers of one type that place every pod, and their cost."""

    cost: float
    parts: Sequence[tuple[int, EstimateResult]]


def _estimate(
    instance: Instance, snapshot: Snapshot, pods: PodRows | list[str], offers: Sequence[int], cursor: int
) -> list[EstimateResult]:
    """Estimate how many nodes of each offer alone the pods need, within the offer's maximum; one result per offer.

    ``cursor``: index of the node after which scans start.
    """
    return estimate_many(
        snapshot,
        pods,
        templates=[instance.offers[offer].template for offer in offers],
        options=[EstimateOptions(max_nodes=instance.offers[offer].most or 0) for offer in offers],
        cursor=cursor,
        fresh_cursor=True,
        threads=min(instance.options.threads, len(offers)),
    )


def _unplaced(result: EstimateResult) -> PodRows | list[str]:
    """Return the pods that an estimate did not place, in the order in which it tried them."""
    if isinstance(result.records, PodRows):
        return result.records.take(result.pod_of[result.placement_numbers < 0].astype(np.int64))
    return result.unschedulable


def _keeps_limits(instance: Instance, parts: Sequence[tuple[int, EstimateResult]]) -> bool:
    """Check whether limits allow the nodes of ``parts`` (offer, estimate) beside the minima of the other offers."""
    counts = np.array([each.least for each in instance.offers], dtype=np.int64)
    for offer, part in parts:
        counts[offer] = max(counts[offer], part.node_count)
    return bool((instance.offer_rows @ counts <= instance.high).all())


def _rank_types(instance: Instance, waiting: NDArray[np.bool_]) -> list[tuple[float, list[int]]]:
    """Return (lower bound of the cost, indices of its offers) of each type that holds every waiting pod.

    ``waiting``: bool[n]. The type with the lowest bound comes first. Of equal offers in one cell only that with the
    highest maximum is in the list.
    """
    kinds = instance.bound
    count = np.bincount(instance.shapes.of_class[instance.class_of[waiting]], minlength=kinds.classes)
    used = np.flatnonzero(count)
    total = count @ kinds.demand
    kinds_of_type: dict[str, list[int]] = {}
    for kind, offer in enumerate(instance.offer_of_kind):
        if offer is not None and kinds.most[kind, used].any():
            kinds_of_type.setdefault(offer.type, []).append(kind)
    result = []
    for members in kinds_of_type.values():
        if not (kinds.most[np.ix_(np.array(members), used)] > 0).any(axis=0).all():
            continue
        room = np.maximum(kinds.capacity[members].max(axis=0), 1)
        nodes = int((-(-total // room)).max(initial=1))
        offers = [
            max(part.offers, key=lambda i: (_most_nodes(instance, i), -i))
            for kind in members
            for part in instance.sources[kind].values()
        ]
        offers = [i for i in offers if _most_nodes(instance, i) > 0]
        if offers:
            offers.sort(key=lambda i: (instance.offers[i].price, i))
            result.append((instance.offers[offers[0]].price * nodes, offers))
    return sorted(result)


def _has_hard_spread(instance: Instance) -> bool:
    """Check whether pods must be spread over nodes, or by a label in which the offers differ.

    Pods with a malformed constraint are not considered.
    """
    keys = {HOSTNAME, *instance.cells.keys}
    for c in np.unique(instance.class_of).tolist():
        try:
            constraints = hard_constraints(instance.classes[c], instance.ctx)
        except SelectorError:
            continue
        if any(constraint.row.key in keys for constraint in constraints):
            return True
    return False


def _most_nodes(instance: Instance, offer: int) -> float:
    """Return the maximum number of nodes of an offer; infinity without a maximum."""
    most = instance.offers[offer].most
    return float("inf") if most is None else float(most)


def plan_by_claims(instance: Instance) -> PlannedPlacement:
    """Return a plan by Karpenter's rule, for offers as the types of one NodePool.

    Pods go, the largest first, to the first existing or minimum node that takes them, else to the open node with the
    fewest pods that does. An open node keeps all types that hold its pods, and becomes the cheapest of them. Zones get
    the pods that the instance assigned to them.
    """
    amounts = [(-pod.occupancy.get(CPU, 0), -pod.occupancy.get(MEMORY, 0)) for pod in instance.classes]
    ranks = {key: i for i, key in enumerate(sorted(set(amounts)))}
    rank_of_class = np.array([ranks[key] for key in amounts], dtype=np.int64)
    packed = []
    for number in range(max(1, len(instance.cells))):
        cell = instance.cell(number)
        pods = _order_pods(instance, rank_of_class, np.flatnonzero(instance.cell_of == number))
        shapes = instance.shapes.of_class[instance.class_of[pods]].tolist()
        part = cell.restrict(instance.plan)
        fixed = [
            position
            for position, kind in enumerate(cell.kinds.tolist())
            for _ in range(_count_fixed(instance, kind, number))
        ]
        result = _pack_claims(part, shapes, fixed)
        packed.append(replace(result, kind=cell.kinds[result.kind].astype(np.int64)))
    return assign_pods_to_nodes(instance, packed)


def _order_pods(instance: Instance, rank_of_class: NDArray[np.int64], pods: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return ``pods`` (positions) sorted by the rank of their class, those of one rank by creation time and UID.

    Time and UID are read only where the order matters: if the pods of a rank have different shapes.
    """
    rank = rank_of_class[instance.class_of[pods]]
    shapes = instance.shapes.of_class[instance.class_of[pods]]
    pairs = np.unique(np.stack([rank, shapes]), axis=1)
    ranks, times = np.unique(pairs[0], return_counts=True)
    is_mixed = np.isin(rank, ranks[times > 1])  # only the order among different shapes matters
    order = np.lexsort((shapes, rank))
    if not is_mixed.any():
        return pods[order]
    records = instance.records
    keys = {}
    for i in np.flatnonzero(is_mixed).tolist():
        metadata = records[int(pods[i])].pod.metadata
        keys[i] = str(metadata.creation_timestamp or ""), metadata.uid
    order = np.array(sorted(order.tolist(), key=lambda i: (rank[i], keys.get(i, ("", "")))), dtype=np.intp)
    return pods[order]


def _count_fixed(instance: Instance, kind: int, cell: int) -> int:
    """Return how many bins of a kind a cell has whether they are used or not: existing nodes and minimum nodes."""
    source = instance.sources[kind][cell]
    return instance.available(source) if source.nodes or source.minimum else 0


@dataclass(slots=True)
class _Claim:
    """An open bin: ``options`` bool[T] that hold its ``pattern``, before items of the last ``shape`` were added.

    ``added``: items of that shape that ``pattern`` does not count yet; ``more``: how many more of them fit; ``room``:
    upper bound of what is free of each resource; ``pods``: number of all items.
    """

    options: NDArray[np.bool_]
    pattern: NDArray[np.int64]
    shape: int
    room: Sequence[int]
    more: int = 0
    added: int = 0
    pods: int = 0

    def finish(self) -> None:
        """Count the items of the last shape in the pattern."""
        if self.added:
            self.pattern[self.shape] += self.added
            self.added = 0


class _Claims:
    """Open bins, in the order in which they were opened."""

    def __init__(self, kinds: BinKinds, is_open: NDArray[np.bool_]) -> None:
        self._kinds, self._is_open = kinds, is_open
        self._demand: list[list[int]] = kinds.demand.tolist()
        self._capacity: list[int] = kinds.capacity.max(axis=0, initial=0).tolist()
        self.claims: list[_Claim] = []
        self._heaps: list[list[tuple[int, int]]] = [[] for _ in range(kinds.classes)]
        self._seen = [0] * kinds.classes

    def add(self, shape: int, count: int) -> None:
        """Add ``count`` pods of a shape, each to the open bin with the fewest pods that takes it, else to a new one.

        Pods that no new bin takes are left out.
        """
        heap = self._heaps[shape]
        for number in range(self._seen[shape], len(self.claims)):
            heapq.heappush(heap, (self.claims[number].pods, number))
        while count:
            if not heap:
                claim = _Claim(self._is_open, np.zeros(self._kinds.classes, dtype=np.int64), -1, self._capacity)
                if not self._can_hold(claim, shape):
                    break
                self.claims.append(claim)
                heap.append((0, len(self.claims) - 1))
            pods, number = heap[0]
            claim = self.claims[number]
            if claim.pods != pods:
                heapq.heapreplace(heap, (claim.pods, number))
            elif claim.more > 0 if claim.shape == shape else self._can_hold(claim, shape):
                claim.more -= 1
                claim.added += 1
                claim.pods = pods + 1
                heapq.heapreplace(heap, (pods + 1, number))
                count -= 1
            else:
                heapq.heappop(heap)  # an open bin that refused a pod refuses all later ones of its shape
        self._seen[shape] = len(self.claims)

    def _can_hold(self, claim: _Claim, shape: int) -> bool:
        """Check whether the bin ``claim`` takes an item of ``shape``, which is not the shape of its last item.

        The bin is prepared for the new shape (:meth:`_turn_to`), unless it obviously has too little of a resource.
        """
        if any(size > free for size, free in zip(self._demand[shape], claim.room, strict=True)):
            return False
        self._turn_to(claim, shape)
        return claim.more > 0

    def _turn_to(self, claim: _Claim, shape: int) -> None:
        """Prepare a bin for items of another shape: its options, and how many of these items it holds."""
        kinds, last = self._kinds, claim.shape
        claim.finish()
        free = kinds.capacity - claim.pattern @ kinds.demand
        claim.options = claim.options & (free >= 0).all(axis=1)
        if last >= 0:
            claim.options &= kinds.most[:, last] >= claim.pattern[last]
        more = kinds.most[:, shape] - claim.pattern[shape]
        used = np.flatnonzero(kinds.demand[shape])
        more = np.minimum(more, (free[:, used] // kinds.demand[shape, used]).min(axis=1)) if used.size else more
        claim.shape, claim.more = shape, int(more[claim.options].max(initial=0))
        claim.room = free[claim.options].max(axis=0, initial=0).tolist()


def _pack_claims(kinds: BinKinds, shapes: Iterable[int], fixed: Sequence[int]) -> Packed:
    """Pack items into ``fixed`` bins of the given kinds, first fit, then into open bins as Karpenter's rule does.

    ``shapes``: the shape of each item, in the order of packing.
    """
    packing = Packing(kinds)
    needed = find_undominated(kinds)
    is_fixed = np.isin(needed, np.array(fixed, dtype=np.int64))
    claims = _Claims(kinds.only(needed), (kinds.available[needed] != 0) & ~is_fixed)
    free = kinds.capacity[np.array(fixed, dtype=np.int64)]
    patterns = np.zeros((len(fixed), kinds.classes), dtype=np.int64)
    first = [0] * kinds.classes
    for shape, run in groupby(shapes):
        remaining = sum(1 for _ in run)
        while remaining and first[shape] < len(fixed):
            position = first[shape]
            fits = kinds.most[fixed[position], shape] > patterns[position, shape]
            if fits and (free[position] >= kinds.demand[shape]).all():
                free[position] -= kinds.demand[shape]
                patterns[position, shape] += 1
                remaining -= 1
            else:
                first[shape] += 1  # a bin that refused an item refuses all later ones of its shape
        claims.add(shape, remaining)
    for kind, pattern in zip(fixed, patterns, strict=True):
        if pattern.any():
            packing.add_bins(kind, pattern, 1)
    for claim in claims.claims:
        claim.finish()
        kind = packing.cheapest(claim.pattern)
        if kind >= 0:
            packing.add_bins(kind, claim.pattern, 1)
    return packing.merge_equal_bins()
