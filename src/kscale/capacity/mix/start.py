"""Plans that cost little to compute, which every mix is compared with: one type for all pods, and Karpenter's rule.

A search that ends early, at the latest by a budget of 0, therefore returns no plan that costs more than these.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kscale.ca.estimator import EstimateOptions, EstimateResult, estimate_many
from kscale.capacity.mix.check import PlannedPlacement
from kscale.capacity.mix.instance import Instance
from kscale.capacity.mix.packing import Packed, Packing, assign_pods_to_nodes
from kscale.capacity.mix.solve import find_undominated
from kscale.objects.pod_resources import CPU, MEMORY
from kscale.objects.selectors import SelectorError
from kscale.objects.well_known_labels import HOSTNAME
from kscale.scheduling.bounds.instance import BinKinds
from kscale.scheduling.place import place
from kscale.scheduling.plugins.pod_topology_spread import hard_constraints

__all__ = ["StartPlan", "build_placement", "plan_by_claims", "plan_single_type"]

_TEMPLATES = 8  # templates that are estimated together


@dataclass(frozen=True, slots=True)
class StartPlan:
    """Nodes that another rule would create: ``nodes`` as (name of the offer, pods), and pods on ``existing`` nodes."""

    nodes: Sequence[tuple[str, Sequence[str]]]
    existing: Mapping[str, str]


def build_placement(instance: Instance, plan: StartPlan) -> PlannedPlacement | None:
    """Return the plan in the numbers of an instance, with the minima of all offers; None if it exceeds a limit.

    Pods of the plan that the instance does not contain are left out.
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


def plan_single_type(instance: Instance) -> PlannedPlacement | None:
    """Return the cheapest plan with new nodes of one offer, as upstream's estimator packs them; None without one.

    Pods go to existing nodes first, as ``kscale estimate`` places them. Offers are estimated in the order of a lower
    bound of their cost, until no other can be cheaper. An offer that does not hold every remaining pod is left out.
    None if pods must be spread: the predicates count only nodes that exist, and would accept one node in one zone.
    """
    if _has_hard_spread(instance):
        return None
    names = [record.key for record in instance.records]
    snapshot, existing, cursor = instance.snapshot, {}, 0
    if instance.options.existing and len(snapshot.nodes) and names:
        placed = place(snapshot, pods=names)
        existing, cursor, snapshot = placed.placed, placed.state.cursor, placed.snapshot_after
        names = [*placed.unschedulable, *placed.not_tried]
    if not names:
        return build_placement(instance, StartPlan([], existing))
    rest = set(names)
    waiting = np.array([record.key in rest for record in instance.records], dtype=bool)
    candidates = _rank_offers(instance, waiting)
    best: tuple[float, int, EstimateResult] | None = None
    for begin in range(0, len(candidates), _TEMPLATES):
        batch = [each for each in candidates[begin : begin + _TEMPLATES] if best is None or each[0] < best[0]]
        if not batch:
            break
        results = estimate_many(
            snapshot,
            names,
            templates=[instance.offers[offer].template for _, offer in batch],
            options=[EstimateOptions(max_nodes=0)] * len(batch),
            cursor=cursor,
            fresh_cursor=True,
        )
        for (_, offer), result in zip(batch, results, strict=True):
            most, cost = instance.offers[offer].most, instance.offers[offer].price * result.node_count
            is_complete = len(result.order_numbers) == len(names) and (most is None or result.node_count <= most)
            if is_complete and (best is None or cost < best[0]) and _fits_limits(instance, offer, result.node_count):
                best = cost, offer, result
    if best is None:
        return None
    _, offer, result = best
    new: dict[str, list[str]] = {}
    existing = dict(existing)
    for pod, node in result.placed.items():
        if node in snapshot.columns.index:  # the estimator's retry for spread constraints over host names
            existing[pod] = node
        else:
            new.setdefault(node, []).append(pod)
    name = instance.offers[offer].name
    return build_placement(instance, StartPlan([(name, pods) for pods in new.values()], existing))


def _has_hard_spread(instance: Instance) -> bool:
    """Check whether pods must be spread over nodes, or by a label in which the offers differ."""
    keys = {HOSTNAME, *instance.cells.keys}
    for c in np.unique(instance.class_of).tolist():
        try:
            constraints = hard_constraints(instance.classes[c], instance.ctx)
        except SelectorError:
            continue
        if any(constraint.row.key in keys for constraint in constraints):
            return True
    return False


def _fits_limits(instance: Instance, offer: int, count: int) -> bool:
    """Check whether limits allow a number of nodes of one offer beside the minima of the others."""
    counts = np.array([each.least for each in instance.offers], dtype=np.int64)
    counts[offer] = max(counts[offer], count)
    return bool((instance.offer_rows @ counts <= instance.high).all())


def _rank_offers(instance: Instance, waiting: NDArray[np.bool_]) -> list[tuple[float, int]]:
    """Return (lower bound of the cost, offer) of the offers that hold every waiting pod (bool[n]), cheapest first.

    Of equal offers in one cell only that with the highest maximum is returned.
    """
    kinds = instance.bound
    count = np.bincount(instance.shapes.of_class[instance.class_of[waiting]], minlength=kinds.classes)
    used = np.flatnonzero(count)
    total = count @ kinds.demand
    result = []
    for kind, source in enumerate(instance.sources):
        if not (kinds.most[kind, used] > 0).all():
            continue
        room = np.maximum(kinds.capacity[kind], 1)
        nodes = int((-(-total // room)).max(initial=1))
        for part in source.values():
            if part.offers and not part.minimum:
                offer = max(part.offers, key=lambda i: (_most_nodes(instance, i), -i))
                result.append((instance.offers[offer].price * nodes, offer))
    return sorted(result)


def _most_nodes(instance: Instance, offer: int) -> float:
    most = instance.offers[offer].most
    return float("inf") if most is None else float(most)


def plan_by_claims(instance: Instance) -> PlannedPlacement:
    """Return a plan by Karpenter's rule, for offers as the types of one NodePool.

    Pods go, the largest first, to the open node with the fewest pods that takes them. An open node keeps all types
    that hold its pods, and becomes the cheapest of them. Zones get the pods that the instance assigned to them.
    """
    amounts = [(-pod.occupancy.get(CPU, 0), -pod.occupancy.get(MEMORY, 0)) for pod in instance.classes]
    ranks = {key: i for i, key in enumerate(sorted(set(amounts)))}
    rank_of_class = np.array([ranks[key] for key in amounts], dtype=np.int64)
    order = _order_pods(instance, rank_of_class[instance.class_of])
    packed = []
    for number in range(max(1, len(instance.cells))):
        cell = instance.cell(number)
        pods = order[instance.cell_of[order] == number]
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


def _order_pods(instance: Instance, rank: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of the pods by rank, then by creation time and UID where pods of one rank differ."""
    shapes = instance.shapes.of_class[instance.class_of]
    order = np.lexsort((shapes, rank))
    mixed = {
        int(r) for r in np.unique(rank).tolist() if len(np.unique(shapes[rank == r])) > 1
    }  # only the order among different shapes matters
    if not mixed:
        return order
    records = instance.records
    keys = {}
    for i in order.tolist():
        if int(rank[i]) in mixed:
            metadata = records[i].pod.metadata
            keys[i] = str(metadata.creation_timestamp or ""), metadata.uid
    return np.array(sorted(order.tolist(), key=lambda i: (rank[i], keys.get(i, ("", "")))), dtype=np.int64)


def _count_fixed(instance: Instance, kind: int, cell: int) -> int:
    """Return how many bins of a kind exist in a cell whether they are used or not."""
    source = instance.sources[kind][cell]
    return instance.available(source) if source.nodes or source.minimum else 0


class _Claims:
    """Open bins: ``options`` bool[T] that still hold the ``pattern``, and the requests of the pods in it."""

    def __init__(self, kinds: BinKinds, is_open: NDArray[np.bool_]) -> None:
        self._kinds, self._is_open = kinds, is_open
        self.patterns: list[NDArray[np.int64]] = []
        self._requests: list[NDArray[np.int64]] = []
        self._options: list[NDArray[np.bool_]] = []
        self._pods: list[int] = []
        self._heaps: list[list[tuple[int, int]]] = [[] for _ in range(kinds.classes)]
        self._seen = [0] * kinds.classes

    def add(self, shape: int) -> bool:
        """Add a pod to the open bin with the fewest pods that takes it, else to a new one."""
        heap = self._heaps[shape]
        for claim in range(self._seen[shape], len(self.patterns)):
            heapq.heappush(heap, (self._pods[claim], claim))
        self._seen[shape] = len(self.patterns)
        while heap:
            pods, claim = heap[0]
            if self._pods[claim] != pods:
                heapq.heapreplace(heap, (self._pods[claim], claim))
            elif self._try(claim, shape):
                heapq.heapreplace(heap, (self._pods[claim], claim))
                return True
            else:
                heapq.heappop(heap)  # an open bin that refused a pod refuses all later ones of its shape
        options = self._is_open & (self._kinds.most[:, shape] > 0)
        if not options.any():
            return False
        pattern = np.zeros(self._kinds.classes, dtype=np.int64)
        pattern[shape] = 1
        self.patterns.append(pattern)
        self._requests.append(self._kinds.demand[shape].copy())
        self._options.append(options)
        self._pods.append(1)
        return True

    def _try(self, claim: int, shape: int) -> bool:
        kinds, pattern = self._kinds, self.patterns[claim]
        request = self._requests[claim] + kinds.demand[shape]
        options = self._options[claim] & (kinds.capacity >= request).all(axis=1)
        options &= kinds.most[:, shape] > pattern[shape]
        if not options.any():
            return False
        self._requests[claim], self._options[claim] = request, options
        pattern[shape] += 1
        self._pods[claim] += 1
        return True


def _pack_claims(kinds: BinKinds, shapes: Iterable[int], fixed: Sequence[int]) -> Packed:
    """Pack items (``shapes``, in order) into ``fixed`` bins of some kinds, first fit, then into open bins."""
    packing = Packing(kinds)
    needed = find_undominated(kinds)
    is_fixed = np.isin(needed, np.array(fixed, dtype=np.int64))
    claims = _Claims(kinds.only(needed), (kinds.available[needed] != 0) & ~is_fixed)
    free = kinds.capacity[np.array(fixed, dtype=np.int64)]
    patterns = np.zeros((len(fixed), kinds.classes), dtype=np.int64)
    first = [0] * kinds.classes
    for shape in shapes:
        position = first[shape]
        while position < len(fixed) and not (
            kinds.most[fixed[position], shape] > patterns[position, shape]
            and (free[position] >= kinds.demand[shape]).all()
        ):
            position += 1
        first[shape] = position  # a bin that refused an item refuses all later ones of its shape
        if position < len(fixed):
            free[position] -= kinds.demand[shape]
            patterns[position, shape] += 1
        else:
            claims.add(shape)
    for kind, pattern in zip(fixed, patterns, strict=True):
        if pattern.any():
            packing.add_bins(kind, pattern, 1)
    for pattern in claims.patterns:
        kind = packing.cheapest(pattern)
        if kind >= 0:
            packing.add_bins(kind, pattern, 1)
    return packing.merge_equal_bins()
