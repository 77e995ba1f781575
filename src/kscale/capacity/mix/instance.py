"""Converts pods, existing nodes and offers to the arrays of a mix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kscale.capacity.mix.constraints import (
    FREE,
    Cells,
    Limits,
    Shapes,
    assign_to_cells,
    cells_of,
    conflicts_of,
    rank_of,
    rules_of,
    shapes_of,
    topology_keys,
)
from kscale.capacity.mix.offers import SPOT, MixOptions, Offer, SharedLimit
from kscale.errors import InputError
from kscale.objects.api.core import Node
from kscale.objects.pod_resources import CPU, MEMORY, PODS, to_integers
from kscale.scheduling.bounds.instance import UNLIMITED, BinKinds
from kscale.scheduling.coercion import pods_of
from kscale.scheduling.compile.resources import UNLIMITED_DEVICES
from kscale.scheduling.fork import Fork, fork
from kscale.scheduling.profile import Context, SchedulerProfile
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.pods.rows import PodRows
from kscale.snapshot.snapshot import Snapshot

__all__ = ["MONEY", "Cell", "Instance", "Source", "select_records"]

MONEY = 10**9
"""Costs are whole billionths of the currency, rounded down: so a bound stays one."""

_LATER = frozenset({"PodTopologySpread", "InterPodAffinity"})  # plug-ins that depend on where other pods will be
_SHARES = 10**6  # largest denominator of a share of spot
_ROOM = 1 << 59  # capacity for resources that another plug-in counts


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a kind's bins in one cell: offers, or existing nodes, by index.

    ``minimum``: the bins are the offers' minimum nodes, which exist whether they are used or not.
    """

    offers: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    minimum: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A part of an instance that is packed separately.

    ``kinds`` that the cell has and how many of each are ``available``; ``count`` int64[S] of its items; ``high``
    float64[Q]: its share of the rows' limits.
    """

    kinds: NDArray[np.intp]
    available: NDArray[np.int64]
    count: NDArray[np.int64]
    high: NDArray[np.float64]

    def restrict(self, kinds: BinKinds) -> BinKinds:
        """Return the instance ``kinds`` restricted to the cell: its kinds of bins, items and limits."""
        return replace(kinds.only(self.kinds), available=self.available, count=self.count, high=self.high)


class Instance:
    """The arrays of a mix.

    - ``records``: the pods that some node holds, in the order of placing; ``class_of`` and ``cell_of``: int64[n]
    - ``nowhere``: pods that no offer and no existing node holds, as indices into ``asked``
    - ``plan``, ``bound``: instances of the plan and of the bound (one object if they do not differ)
    - ``conflicts``: pairs of sets of shapes, as arrays; no node holds shapes of both sets
    - ``sources[kind][cell]``: where the bins of a kind come from; bins of one kind differ in their cell at most
    """

    def __init__(
        self, snapshot: Snapshot, pods: Sequence[str | PodRecord] | None, offers: Sequence[Offer], options: MixOptions
    ) -> None:
        """Build the arrays for ``pods`` (None: the pending pods of the snapshot).

        Raises InputError for a pod that the snapshot does not have or that is not pending, and if minima and existing
        nodes exceed a limit, or the minima the share of spot.
        """
        self.snapshot, self.offers, self.options = snapshot, offers, options
        self.asked = pods_of(snapshot, pods, waiting=True)
        judge = fork(
            snapshot,
            self.asked,
            templates=[offer.template for offer in offers],
            profile=SchedulerProfile(disabled_filters=_LATER),
        )
        self._judge = judge
        session = judge.session
        self.ctx = Context(snapshot, SchedulerProfile())
        classes = list(session.pods[: session.checked_count])
        self.classes: list[PodClass] = classes
        numbers = session.classes_of(snapshot.classify(self.asked)).astype(np.int64)
        counts = np.bincount(numbers, minlength=len(classes))
        self._allowed = self._verdicts(judge, len(classes))
        somewhere: NDArray[np.bool_] = np.any(self._allowed, axis=1)
        self.nowhere = np.flatnonzero(~somewhere[numbers]) if len(numbers) else np.zeros(0, dtype=np.int64)
        counts[~somewhere] = 0
        self._lay_out(numbers, counts, somewhere)
        self._make_kinds(counts)

    # -- pods --------------------------------------------------------------------------------------------------------

    def _verdicts(self, judge: Fork, classes: int) -> NDArray[np.bool_]:
        """Return bool[C, existing nodes + offers]: whether a node may take pods of a class.

        Reasons that depend on the other pods to place do not count. ``judge``: copy of the snapshot, to which a node of
        each offer is added. ``classes``: number of classes.
        """
        for number in range(len(self.offers)):
            judge.add(number)
        if not classes:
            return np.zeros((0, judge.engine.nodes), dtype=bool)
        codes = judge.engine.verdicts(np.arange(classes, dtype=np.int32))
        failed = np.array([judge.session.fails_prefilter(c) for c in range(classes)])
        allowed: NDArray[np.bool_] = (codes == 0) & ~failed[:, None]
        if not self.options.existing:
            allowed[:, : len(self.snapshot.nodes)] = False
        return allowed

    def _lay_out(self, numbers: NDArray[np.int64], counts: NDArray[np.int64], somewhere: NDArray[np.bool_]) -> None:
        """Set the cells, and the pods in the order of placing: ``records``, ``positions``, ``class_of``, ``cell_of``.

        ``numbers``: class of each pod. ``counts``: pods of each class. ``somewhere``: whether some node takes the
        class.
        """
        existing = len(self.snapshot.nodes)
        keys = topology_keys([pod for c, pod in enumerate(self.classes) if counts[c]], self.ctx)
        self.cells: Cells = cells_of(
            keys,
            [offer.template.node.metadata.labels or {} for offer in self.offers],
            [node.metadata.labels or {} for node in self.snapshot.columns.objects],
        )
        cell_of_node = np.concatenate([self.cells.of_node, self.cells.of_offer])
        may = np.zeros((len(self.classes), max(1, len(self.cells))), dtype=bool)
        for cell in range(len(self.cells)):
            may[:, cell] = self._allowed[:, cell_of_node == cell].any(axis=1)
        self._cell_of_node = cell_of_node[:existing]
        rank = np.array([rank_of(pod, self.ctx) for pod in self.classes], dtype=np.int64)
        shares = self._shares_of_all(counts)
        size = shares[:, :2].sum(axis=1)
        group = np.array([self._get_affinity_number(c) for c in range(len(self.classes))], dtype=np.int64)
        weight = np.bincount(group, weights=counts * size) if len(group) else np.zeros(0)
        chosen = np.flatnonzero(somewhere[numbers]) if len(numbers) else np.zeros(0, dtype=np.int64)
        pod_classes = numbers[chosen]
        # Large affinity groups first; pods with spread in their input order, so that all kinds alternate.
        group_rank = (
            np.where(rank[pod_classes] == 2, -weight[group[pod_classes]], 0.0) if len(pod_classes) else np.zeros(0)
        )
        affinity_group = np.where(rank[pod_classes] == 2, group[pod_classes], 0)
        large = np.where(rank[pod_classes] == 4, -size[pod_classes], 0.0)
        order = np.lexsort((np.arange(len(pod_classes)), large, affinity_group, group_rank, rank[pod_classes]))
        self.positions = chosen[order]
        self.class_of = pod_classes[order]
        self.records = select_records(self.asked, self.positions)
        if len(self.cells) <= 1:
            self.cell_of = np.zeros(len(order), dtype=np.int64)
            return
        first = {int(c): i for i, c in reversed(list(enumerate(numbers.tolist())))}
        present = np.flatnonzero(counts)
        place = np.full(len(self.classes), -1)
        place[present] = np.arange(len(present))
        self.cell_of = assign_to_cells(
            self.snapshot,
            [self.classes[c] for c in present.tolist()],
            [self.asked[first[c]].pod for c in present.tolist()],
            place[self.class_of],
            self.cells,
            may[present],
            shares[present],
        )
        # Pods that only nodes outside all cells hold are not planned; the exact check may still place them.
        self.cell_of = np.where(self.cell_of == FREE, 0, self.cell_of)

    def _shares_of_all(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return float64[C, 3]: the share of one pod in all pods' total cpu, total memory and total number."""
        amounts = np.array(
            [[*(pod.occupancy.get(name, 0) for name in ("cpu", "memory")), 1] for pod in self.classes], dtype=np.float64
        ).reshape(-1, 3)
        total = np.maximum(amounts.T @ counts, 1.0) if len(counts) else np.ones(3)
        shares: NDArray[np.float64] = amounts / total
        return shares

    def _get_affinity_number(self, c: int) -> int:
        """Return a number for class ``c`` that classes with the same affinity terms in the same namespace share."""
        if not hasattr(self, "_affine"):
            self._affine: dict[object, int] = {}
        pod = self.classes[c]
        key = repr(pod.affinity) if pod.affinity else None
        return self._affine.setdefault((pod.namespace, key), len(self._affine))

    # -- kinds -------------------------------------------------------------------------------------------------------

    def _make_kinds(self, counts: NDArray[np.int64]) -> None:
        """Set the kinds of bins and their sources, shapes of pods, conflicts, and the instances of plan and bound.

        Offers and nodes are of one kind if they do not differ in anything that counts. ``counts``: pods of each class.
        """
        resources, demand, room = self._amounts(counts)
        self.resources = resources
        existing, total = len(self.snapshot.nodes), len(self.snapshot.nodes) + len(self.offers)
        price = [math.floor(offer.price * MONEY) for offer in self.offers]
        self.minimum_cost = sum(cost * offer.least for cost, offer in zip(price, self.offers, strict=True))
        cell = np.concatenate([self._cell_of_node, self.cells.of_offer])
        useful = [n for n in range(existing) if self._allowed[:, n].any()] if self.options.existing else []
        numbers: dict[object, int] = {}
        first: list[int] = []
        cost: list[int] = []
        members: list[dict[int, Source]] = []
        minima = [existing + i for i, offer in enumerate(self.offers) if offer.least]
        for n, minimum in [*((n, False) for n in [*useful, *range(existing, total)]), *((n, True) for n in minima)]:
            key: tuple[object, ...] = room[n].tobytes(), self._allowed[:, n].tobytes(), minimum
            source = Source(nodes=(n,)) if n < existing else Source(offers=(n - existing,), minimum=minimum)
            if source.offers and not minimum:
                offer = self.offers[n - existing]
                key += offer.price, offer.type, offer.capacity_type, offer.most is None
                key += tuple(_size(offer, name) for name in (CPU, *self.options.limits))
                key += tuple(_shared_weight(offer, shared) for shared in self.options.shared_limits)
            i = numbers.setdefault(key, len(members))
            if i == len(members):
                members.append({})
                first.append(n)
                cost.append(price[n - existing] if source.offers and not minimum else 0)
            cell_number = max(0, int(cell[n]))
            current = members[i].get(cell_number, Source(minimum=minimum))
            members[i][cell_number] = Source(current.offers + source.offers, current.nodes + source.nodes, minimum)
        self.sources = members
        rules = rules_of(self.classes, counts.tolist(), self.ctx)
        conflicts = conflicts_of(self.classes, counts.tolist(), self.ctx)
        self.shapes: Shapes = shapes_of(demand, counts, self._allowed[:, first], rules, conflicts)
        of_class = self.shapes.of_class
        self.conflicts = [
            (np.unique(of_class[sorted(conflict.first)]), np.unique(of_class[sorted(conflict.second)]))
            for conflict in conflicts
        ]
        limits = self._limits()
        costs = np.array(cost, dtype=np.int64)
        self.plan: BinKinds = self.shapes.kinds(room[first], costs, limits, strict=True)
        differs = self.shapes.differs
        self.bound = self.shapes.kinds(room[first], costs, limits, strict=False) if differs else self.plan

    def cell(self, number: int) -> Cell:
        """Return the kinds, items and limits of the cell at index ``number``."""
        kinds = np.array([i for i, source in enumerate(self.sources) if number in source], dtype=np.intp)
        available = [self.available(self.sources[i][number]) for i in kinds.tolist()]
        shapes = self.shapes.of_class[self.class_of[self.cell_of == number]]
        count = np.bincount(shapes, minlength=len(self.shapes.count)).astype(np.int64)
        return Cell(
            kinds,
            np.array(available, dtype=np.int64),
            count,
            np.where(
                self.plan.high >= 0,
                self._part_of_limits(number + 1) - self._part_of_limits(number),
                np.where(self._find_compensating_cells() == number, self.plan.high, 0.0),
            ),
        )

    def _find_compensating_cells(self) -> NDArray[np.int64]:
        """Return int64[Q]: for each row of the limits, the cell that makes up for a sum that is already too high.

        Only nodes of offers with a negative weight lower the row's sum. Of the cells with such offers, the one with the
        most pods is chosen; cell 0 if there are none.
        """
        pods = np.bincount(self.cell_of, minlength=max(1, len(self.cells)))
        chosen = np.zeros(len(self.plan.rows), dtype=np.int64)
        for q, row in enumerate(self.plan.rows):
            able = {cell for kind in np.flatnonzero(row < 0).tolist() for cell in self.sources[kind]}
            chosen[q] = max(sorted(able), key=lambda cell: int(pods[cell]), default=0)
        return chosen

    def _part_of_limits(self, cells: int) -> NDArray[np.float64]:
        """Return float64[Q]: the part of each row's limit for the first ``cells`` cells, by their share of pods.

        The part is rounded down. Without pods, the first cell gets all of the limit.
        """
        pods = len(self.cell_of)
        share = float((self.cell_of < cells).sum() / pods) if pods else float(cells > 0)
        return np.floor(self.plan.high * share + 1e-9)

    def _amounts(self, counts: NDArray[np.int64]) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
        """Return (names of resources, demand int64[C, R], free amounts int64[existing nodes + offers, R]).

        Milli-cores, bytes, units; the number of pods is the first resource. Resources that no pod requests are left
        out, and negative amounts count as 0. Raises InputError if both a node and all pods together have more of a
        resource than :data:`_ROOM`.
        """
        judge, session = self._judge, self._judge.session
        columns = [r for r, name in enumerate(session.resources) if not name.startswith("\0")]
        names = [session.resources[r] for r in columns]
        room = []
        for n in range(len(self.snapshot.nodes)):
            free, slots = judge.free(n)
            room.append([slots, *(free[name] for name in names)])
        for number in range(len(self.offers)):
            slots, amount = session.template_room(number)
            room.append([slots, *(min(amount[r], UNLIMITED_DEVICES) for r in columns)])
        amounts = np.maximum(np.array(room, dtype=np.int64).reshape(len(room), len(names) + 1), 0)
        demand = np.array(
            [
                [1, *(max(pod.occupancy.get(name, 0), pod.demand.get(name, 0)) for name in names)]
                for pod in self.classes
            ],
            dtype=np.int64,
        ).reshape(len(self.classes), len(names) + 1)
        for r, name in enumerate(names, start=1):
            total = sum(n * max(amount, 0) for n, amount in zip(counts.tolist(), demand[:, r].tolist(), strict=True))
            if total > _ROOM < amounts[:, r].max(initial=0):
                raise InputError(f"{name}: amounts of more than {_ROOM:,} are not supported")
        amounts = np.minimum(amounts, _ROOM)
        used: NDArray[np.bool_] = np.any(demand, axis=0)
        used[0] = True
        resources = [name for name, is_used in zip(["pods", *names], used.tolist(), strict=True) if is_used]
        return resources, np.ascontiguousarray(np.maximum(demand[:, used], 0)), np.ascontiguousarray(amounts[:, used])

    def available(self, source: Source) -> int:
        """Return how many bins a source can supply; :data:`UNLIMITED` if there is no limit."""
        if source.nodes:
            return len(source.nodes)
        offers = [self.offers[n] for n in source.offers]
        if source.minimum:
            return sum(offer.least for offer in offers)
        limits = [None if offer.most is None else offer.most - offer.least for offer in offers]
        return UNLIMITED if None in limits else sum(n for n in limits if n is not None)

    def _limits(self) -> Limits:
        """Return the limits of the instance: available bins of each kind, and one row for each limit of the options.

        The rows limit nodes beyond the minimum nodes of the offers, which exist in any case. Also sets ``offer_rows``,
        ``high`` and ``offer_of_kind``. Raises InputError if minima and existing nodes exceed a limit, or if the minima
        exceed the share of spot.
        """
        there = [[self.available(entry) for entry in source.values()] for source in self.sources]
        available = [UNLIMITED if UNLIMITED in entry else sum(entry) for entry in there]
        bought = [() if (entry := next(iter(source.values()))).minimum else entry.offers for source in self.sources]
        self.offer_of_kind = [self.offers[entry[0]] if entry else None for entry in bought]
        minima = np.array([offer.least for offer in self.offers], dtype=np.int64)
        rows: list[list[int]] = []
        high: list[int] = []
        share = self.options.spot_share
        if share is not None and share < 1.0:
            rows.append([_spot_weight(offer, Fraction(share).limit_denominator(_SHARES)) for offer in self.offers])
            high.append(0)
            self._check_spot(rows[-1])
        for name, limit in self.options.limits.items():
            installed = sum(_capacity(node, name) for node in self.snapshot.columns.objects)
            rows.append([_size(offer, name) for offer in self.offers])
            high.append(limit - installed)
            total = installed + sum(size * n for size, n in zip(rows[-1], minima.tolist(), strict=True))
            if limit < total:
                amounts = [f"{n / 1000:,g}" if name == CPU else f"{n:,}" for n in (limit, total)]
                text = f"{amounts[0]} is less than the {amounts[1]} that the nodes that exist and minima already have"
                raise InputError(f"limit of {name}: {text}")
        for shared in self.options.shared_limits:
            rows.append([_shared_weight(offer, shared) for offer in self.offers])
            high.append(shared.most)
            total = sum(size * n for size, n in zip(rows[-1], minima.tolist(), strict=True))
            if shared.most < total:
                text = f"{shared.name}: the minima of its offers need more {shared.resource} than its limit"
                raise InputError(text)
        units = [math.gcd(*row) or 1 for row in rows]
        self.offer_rows: NDArray[np.int64] = np.array(
            [[weight // unit for weight in row] for row, unit in zip(rows, units, strict=True)], dtype=np.int64
        ).reshape(len(rows), len(self.offers))
        self.high = np.array([limit // unit for limit, unit in zip(high, units, strict=True)], dtype=np.float64)
        of_kinds = np.zeros((len(rows), len(self.sources)), dtype=np.int64)
        for kind, offers in enumerate(bought):
            if offers:
                of_kinds[:, kind] = self.offer_rows[:, offers[0]]
        return Limits(
            available=np.array(available, dtype=np.int64), rows=of_kinds, high=self.high - self.offer_rows @ minima
        )

    def _check_spot(self, weights: Sequence[int]) -> None:
        """Raise InputError if the minima exceed the share of spot and no further nodes can compensate.

        ``weights``: weight of each offer in the row that limits the share.
        """
        balance = sum(weight * offer.least for weight, offer in zip(weights, self.offers, strict=True))
        more = [
            (weight, None if offer.most is None else offer.most - offer.least)
            for weight, offer in zip(weights, self.offers, strict=True)
            if weight < 0
        ]
        if balance <= 0 or any(limit is None for _, limit in more):
            return
        if balance + sum(weight * (limit or 0) for weight, limit in more) > 0:
            names = ", ".join(sorted(o.name for o in self.offers if o.least and o.capacity_type == SPOT))
            share = self.options.spot_share
            raise InputError(f"spot_share: the minimum of {names} is more than a share of {share:g} allows")

    def free_of_offer(self, number: int) -> NDArray[np.float64]:
        """Return float64[(cpu, memory, pods)] that is free for pods on a new node (milli-cores, bytes, number).

        ``number``: index of the offer.
        """
        session = self._judge.session
        slots, amounts = session.template_room(number)
        return _build_resource_vector(dict(zip(session.resources, amounts, strict=True)), slots)

    def allocatable_of_offer(self, number: int) -> NDArray[np.float64]:
        """Return float64[(cpu, memory, pods)] allocatable of a new node, for all pods including DaemonSets.

        Milli-cores, bytes, number. ``number``: index of the offer.
        """
        amounts = self.offers[number].template.node.status.allocatable or {}
        pods = amounts[PODS].value() if PODS in amounts else 0
        return _build_resource_vector(to_integers(amounts), pods)


def select_records(records: Sequence[PodRecord], positions: NDArray[np.int64]) -> Sequence[PodRecord]:
    """Return the records at the given positions. Rows of a table stay rows, so that no pods are created."""
    return records.take(positions) if isinstance(records, PodRows) else [records[i] for i in positions.tolist()]


def _spot_weight(offer: Offer, share: Fraction) -> int:
    """Return a node's weight in the row that limits the ``share`` of spot in the cpu of new nodes.

    The limit holds while the sum of all weights is at most 0.
    """
    cpu = _size(offer, CPU)
    if offer.capacity_type == SPOT:
        return cpu * (share.denominator - share.numerator)
    return -cpu * share.numerator


def _size(offer: Offer, resource: str) -> int:
    """Return the capacity of one node of the offer: milli-units of cpu, else units; 1 for ``nodes``."""
    return _capacity(offer.template.node, resource)


def _shared_weight(offer: Offer, shared: SharedLimit) -> int:
    """Return what a node of the offer counts towards a shared limit; 0 if the limit is not about the offer."""
    return _size(offer, shared.resource) if offer.name in shared.offers else 0


def _build_resource_vector(amounts: Mapping[str, int], pods: int) -> NDArray[np.float64]:
    """Return float64[(cpu, memory, pods)] of amounts by resource; ``pods``: number of pods."""
    return np.array([amounts.get(CPU, 0), amounts.get(MEMORY, 0), pods], dtype=np.float64)


def _capacity(node: Node, resource: str) -> int:
    """Return a node's capacity of a resource, else its allocatable amount; 0 if it has neither, 1 for ``nodes``.

    Milli-units of cpu, otherwise units.
    """
    if resource == "nodes":
        return 1
    amounts = {**(node.status.allocatable or {}), **(node.status.capacity or {})}
    return to_integers(amounts).get(resource, 0)
