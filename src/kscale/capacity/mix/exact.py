"""The cheapest nodes for few pods: enumerates fillings and solves one integer program (extra ``[solver]``).

Other searches first distribute pods over zones and generate fillings one by one. With few pods, one small program
covers everything: bins with their contents, the zone of each pod, spread over zones, limits and the number of types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.mix.check import PlannedPlacement
from kscale.capacity.mix.constraints import topology_keys
from kscale.capacity.mix.instance import Instance, Source
from kscale.capacity.mix.packing import Packed, assign_pods_to_nodes
from kscale.imports import library
from kscale.objects.api.core import Node
from kscale.objects.selectors import SelectorError
from kscale.scheduling.bounds.effort import Effort
from kscale.scheduling.bounds.instance import UNLIMITED, BinKinds
from kscale.scheduling.bounds.master import have_solver, silent_solver
from kscale.scheduling.plugins.inter_pod_affinity import Term, carried_terms
from kscale.scheduling.plugins.node_fields import selects
from kscale.scheduling.plugins.pod_topology_spread import Constraint, hard_constraints
from kscale.scheduling.profile import HOSTNAME, NodeFacts
from kscale.snapshot.columns import median

__all__ = ["SmallMix"]

Conflict = tuple[NDArray[np.int64], NDArray[np.int64]]

_PODS = 200
_FILLINGS = 20_000  # fillings of one kind, non-maximal ones included
_COLUMNS = 8_000
_NODES = 3_000  # nodes of the search
_GAP = 1e-6


class SmallMix:
    """The integer program of a small instance. ``is_small``: whether the instance is small enough."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._zones = _Zones.of(instance)
        self._fillings: list[NDArray[np.int64]] = []
        self.is_small = have_solver() and 0 < len(instance.class_of) <= _PODS and self._enumerate()

    def _enumerate(self) -> bool:
        """Compute the fillings of every kind and the rules over zones.

        Returns False if pods have affinity or an invalid selector, or if there are too many fillings.
        """
        instance = self._instance
        if any(pod.affinity for pod in self._pods()):
            return False
        try:
            self._spread = _spread_of(instance, self._zones)
        except SelectorError:
            return False
        self._apart = _list_zone_anti_affinity(instance, self._zones)
        columns = 0
        for kind in range(instance.plan.size):
            fillings = _fillings(instance.plan, kind, instance.conflicts)
            columns += 0 if fillings is None else (len(fillings) + 1) * len(self._zones.sources[kind])
            if fillings is None or columns > _COLUMNS:
                return False
            self._fillings.append(fillings)
        return True

    def _pods(self) -> Iterable[Any]:
        """Return the distinct classes of the pods to place."""
        return (self._instance.classes[c] for c in np.unique(self._instance.class_of).tolist())

    def plan(self, effort: Effort, max_types: int | None = None) -> PlannedPlacement | None:
        """Return the cheapest plan found that leaves the fewest pods out, with at most ``max_types`` types.

        The search is limited, so that there may be a cheaper one. None if the instance is not small, or if no plan is
        found before the effort is spent.
        """
        if not self.is_small or effort.is_exhausted:
            return None
        best = self._solve(effort, max_types, every_zone=True)
        if self._spread and (best is None or best[1]):
            # Leaving zones without nodes may place more pods: such a zone does not count for spread.
            relaxed_result = self._solve(effort, max_types, every_zone=False)
            if relaxed_result is not None and (best is None or relaxed_result[1] < best[1]):
                best = relaxed_result
        return None if best is None else best[0]

    def _solve(self, effort: Effort, max_types: int | None, *, every_zone: bool) -> tuple[PlannedPlacement, int] | None:
        """Return (plan, number of pods left out), or None if no plan was found.

        ``every_zone``: pods are spread over all zones that admit them, not only over those with nodes.
        """
        program = _Program(self._instance, self._zones, self._fillings)
        program.add_limits(max_types)
        for constraint in self._spread:
            program.add_spread(constraint, every_zone=every_zone)
        for weights, maximum in self._apart:
            program.add_rule(weights, maximum)
        values = program.solve(effort)
        if values is None:
            return None
        missing = int(values[list(program.missing.values())].sum())
        return program.build_plan(values, self._spread), missing


@dataclass(frozen=True)
class _Zones:
    """Offers and existing nodes, grouped by the values of the topology keys that rules of pods use, except the host
    name.

    Those with equal values are in one zone: ``labels`` of each zone, ``sources`` of each kind by zone number. Unlike
    :class:`~kscale.capacity.mix.constraints.Cells`, they include zones that have only existing nodes.
    """

    keys: tuple[str, ...]
    labels: list[dict[str, str]]
    sources: list[dict[int, Source]]

    @classmethod
    def of(cls, instance: Instance) -> _Zones:
        """Group the offers and existing nodes of an instance into zones."""
        present = [instance.classes[c] for c in np.unique(instance.class_of).tolist()]
        keys = tuple(topology_keys(present, instance.ctx))
        numbers: dict[tuple[str | None, ...], int] = {}

        def zone_of(node: Node) -> int:
            """Return the index of a node's zone; a new zone gets the next index."""
            labels = node.metadata.labels or {}
            return numbers.setdefault(tuple(labels.get(key) for key in keys), len(numbers))

        nodes = instance.snapshot.columns.objects
        sources: list[dict[int, Source]] = []
        for source in instance.sources:
            by_zone: dict[int, Source] = {}
            for part in source.values():
                for i in part.offers:
                    zone = zone_of(instance.offers[i].template.node)
                    current = by_zone.get(zone, Source(minimum=part.minimum))
                    by_zone[zone] = Source((*current.offers, i), minimum=part.minimum)
                for n in part.nodes:
                    zone = zone_of(nodes[n])
                    by_zone[zone] = Source(nodes=(*by_zone.get(zone, Source()).nodes, n))
            sources.append(by_zone)
        labels = [{k: v for k, v in zip(keys, values, strict=True) if v is not None} for values in numbers]
        return cls(keys, labels, sources)


@dataclass(frozen=True)
class _Spread:
    """A constraint over zones: the classes that have it and that count for it, and the counts on existing nodes.

    ``exists``: zones with nodes that count; ``admits``: zones with offers that hold a pod of the first class;
    ``bought``: (kind, cell) of bins that create a node that counts, by zone.
    """

    constraint: Constraint
    carriers: frozenset[int]
    members: frozenset[int]
    placed: Mapping[str, int]
    exists: frozenset[str]
    admits: frozenset[str]
    bought: Mapping[str, frozenset[tuple[int, int]]]


def _fillings(kinds: BinKinds, kind: int, conflicts: Sequence[Conflict] = ()) -> NDArray[np.int64] | None:
    """Return int64[N, K]: how many items of each class the maximal contents of a bin have; None if there are too many.

    The empty content is left out. ``kind``: number of the kind of bins. ``conflicts``: pairs of sets of classes that no
    bin holds together.
    """
    limits = np.minimum(kinds.most[kind], kinds.count).astype(np.int64)
    used = np.flatnonzero(limits)
    pairs = [(np.isin(used, first), np.isin(used, second)) for first, second in conflicts]
    rows = np.zeros((1, len(used)), dtype=np.int64)
    free = kinds.capacity[kind][None]
    for i, k in enumerate(used.tolist()):
        times = np.arange(limits[k] + 1)
        remaining = free[:, None, :] - times[None, :, None] * kinds.demand[k]
        row, n = np.nonzero((remaining >= 0).all(axis=2))
        if len(row) > _FILLINGS:
            return None
        rows, free = rows[row], remaining[row, n]
        rows[:, i] = n
        holds = np.ones(len(rows), dtype=bool)
        for first, second in pairs:
            holds &= ~(rows[:, first].any(axis=1) & rows[:, second].any(axis=1))
        rows, free = rows[holds], free[holds]
    extensible = np.zeros(len(rows), dtype=bool)
    for i, k in enumerate(used.tolist()):
        more = (rows[:, i] < limits[k]) & (free >= kinds.demand[k]).all(axis=1)
        for sides in pairs:
            for own, other in (sides, sides[::-1]):
                if own[i]:
                    more &= ~rows[:, other].any(axis=1)
        extensible |= more
    rows = rows[~extensible]
    fillings = np.zeros((len(rows), kinds.classes), dtype=np.int64)
    fillings[:, used] = rows
    return fillings[fillings.any(axis=1)]


def _spread_of(instance: Instance, zones: _Zones) -> list[_Spread]:
    """Return the hard spread constraints over zones of the pods to place.

    Each has the classes, placed pods, zones and bins that it concerns. Raises SelectorError for an invalid selector.
    """
    snapshot = instance.snapshot
    present = np.unique(instance.class_of).tolist()
    carriers: dict[Constraint, set[int]] = {}
    for c in present:
        for constraint in hard_constraints(instance.classes[c], instance.ctx):
            if constraint.row.key in zones.keys:
                carriers.setdefault(constraint, set()).add(c)
    result = []
    placed_classes = snapshot.interner.classes
    for constraint, carrier_classes in carriers.items():
        key, pod = constraint.row.key, instance.classes[min(carrier_classes)]
        exists = {
            node.metadata.labels[key]
            for node in snapshot.columns.objects
            if node.metadata.labels and key in node.metadata.labels and _selects(pod, node)
        }
        admits: set[str] = set()
        shape = int(instance.shapes.of_class[min(carrier_classes)])
        bought: dict[str, set[tuple[int, int]]] = {}
        for kind, source in enumerate(zones.sources):
            for cell, bins in source.items():
                value = zones.labels[cell].get(key)
                if not bins.offers or value is None or not _selects(pod, instance.offers[bins.offers[0]].template.node):
                    continue
                if bins.minimum:
                    exists.add(value)
                if instance.plan.most[kind, shape] and instance.available(bins):
                    admits.add(value)
                bought.setdefault(value, set()).add((kind, cell))
        placed: dict[str, int] = {}
        if exists:
            counted = [c for c in np.unique(snapshot.placed_class).tolist() if constraint.row.counts(placed_classes[c])]
            for node in snapshot.placed_node[np.isin(snapshot.placed_class, counted)].tolist():
                value = (snapshot.columns.objects[node].metadata.labels or {}).get(key)
                if value is not None:
                    placed[value] = placed.get(value, 0) + 1
        members = {c for c in present if constraint.row.counts(instance.classes[c])}
        result.append(
            _Spread(
                constraint,
                frozenset(carrier_classes),
                frozenset(members),
                placed,
                frozenset(exists),
                frozenset(admits),
                {value: frozenset(bins) for value, bins in bought.items()},
            )
        )
    return result


def _selects(pod: Any, node: Node) -> bool:
    """Check whether a pod's node selector and affinity match a node."""
    return selects(pod, NodeFacts.of(node, None, dra=False))


def _list_zone_anti_affinity(instance: Instance, zones: _Zones) -> list[tuple[dict[tuple[int, int], int], int]]:
    """Return the rules of anti-affinity over zones, as arguments of :meth:`_Program.add_rule`.

    Each rule is (weight of a pod by (class, zone), maximum of the weighted number of pods). Terms that match none of
    the pods which have them are left out.
    """
    present = np.unique(instance.class_of).tolist()
    carriers: dict[Term, list[int]] = {}
    for c in present:
        for term in carried_terms(instance.classes[c]):
            if term.key != HOSTNAME and term.key in zones.keys:
                carriers.setdefault(term, []).append(c)
    rows = []
    for term, carrier_classes in carriers.items():
        pods = {c: instance.classes[c] for c in present}
        matched = {c for c, pod in pods.items() if term.matches(pod, instance.ctx.namespace_labels(pod.namespace))}
        matched_carriers, others = [c for c in carrier_classes if c in matched], matched.difference(carrier_classes)
        total = len(instance.class_of) if others else 1
        cells: dict[str, list[int]] = {}
        for cell, labels in enumerate(zones.labels):
            if term.key in labels:
                cells.setdefault(labels[term.key], []).append(cell)
        for of_value in cells.values():
            weights = {(c, cell): total for c in matched_carriers for cell in of_value}
            weights |= {(c, cell): 1 for c in others for cell in of_value}
            if matched_carriers:
                rows.append((weights, total))
    return rows


class _Program:
    """The program. Columns: bins (kind, zone, content), pods of each class in each zone, unplaced pods, and choices."""

    def __init__(self, instance: Instance, zones: _Zones, fillings: list[NDArray[np.int64]]) -> None:
        """Create the columns, and rows by which pods are in zones, bins cover them, and numbers of bins are limited.

        ``fillings``: contents of each kind of bins, int64[N, shapes]. Raises MissingExtraError without the solver.
        """
        self._instance, self._zones, self._kinds = instance, zones, instance.plan
        highspy = library("highspy", "linear programming")
        self._infinity = highspy.kHighsInf
        self._integer = highspy.HighsVarType.kInteger
        self._status = highspy.HighsModelStatus
        self._highs = highs = silent_solver()()
        highs.setOptionValue("mip_rel_gap", _GAP)
        highs.setOptionValue("mip_max_nodes", _NODES)
        self._cost: list[float] = []
        cells = len(zones.labels)
        positive = self._kinds.cost[self._kinds.cost > 0]
        self._scale = 1.0 / median(positive.astype(np.float64)) if len(positive) else 1.0
        self._count = np.bincount(instance.class_of, minlength=len(instance.classes))
        self._present = np.flatnonzero(self._count).tolist()
        self.missing = {c: self._variable(int(self._count[c])) for c in self._present}
        self.there = {(c, z): self._variable(int(self._count[c])) for c in self._present for z in range(cells)}
        for c in self._present:
            terms = {self.there[c, z]: 1.0 for z in range(cells)}
            self._row(float(self._count[c]), float(self._count[c]), {**terms, self.missing[c]: 1.0})
        self.bins: dict[tuple[int, int], list[int]] = {}
        self.filling: dict[int, NDArray[np.int64]] = {}
        cover: dict[tuple[int, int], dict[int, float]] = {}
        nothing = np.zeros(self._kinds.classes, dtype=np.int64)
        for kind, source in enumerate(zones.sources):
            for cell, bins in source.items():
                columns = self.bins[kind, cell] = []
                may_be_empty = (self._kinds.rows[:, kind] < 0).any()
                for filling in [*fillings[kind], *([nothing] if may_be_empty else [])]:
                    column = self._variable(self._infinity, float(self._kinds.cost[kind]) * self._scale)
                    columns.append(column)
                    self.filling[column] = filling
                    for s in np.flatnonzero(filling).tolist():
                        cover.setdefault((s, cell), {})[column] = float(filling[s])
                limit = instance.available(bins)
                if limit != UNLIMITED:
                    self._row(-self._infinity, float(limit), dict.fromkeys(columns, 1.0))
        for s in range(self._kinds.classes):
            members = [c for c in self._present if instance.shapes.of_class[c] == s]
            for z in range(cells):
                wanted = {self.there[c, z]: -1.0 for c in members}
                if wanted:
                    self._row(0.0, self._infinity, {**cover.get((s, z), {}), **wanted})

    def _variable(self, most: float, cost: float = 0.0) -> int:
        """Add an integer column from 0 to ``most``; return its index."""
        self._highs.addVar(0.0, float(most))
        self._cost.append(cost)
        self._highs.changeColIntegrality(len(self._cost) - 1, self._integer)
        return len(self._cost) - 1

    def _row(self, low: float, high: float, terms: Mapping[int, float]) -> None:
        """Add a row: the weighted sum of columns (``terms``: column -> weight) is from ``low`` to ``high``.

        Without columns, no row is added.
        """
        if terms:
            columns, values = np.fromiter(terms, np.int32, len(terms)), np.fromiter(terms.values(), float, len(terms))
            self._highs.addRow(low, high, len(terms), columns, values)

    @property
    def _big_number(self) -> float:
        """Return a number larger than the number of bins of any kind in a plan."""
        return float(len(self._instance.class_of) + 1)

    def add_limits(self, max_types: int | None) -> None:
        """Add the rows of the instance's limits, and of at most ``max_types`` types (None: any number)."""
        instance, kinds = self._instance, self._kinds
        of_kind: dict[int, list[int]] = {}
        for (kind, _), columns in self.bins.items():
            of_kind.setdefault(kind, []).extend(columns)
        for weights, high in zip(kinds.rows.tolist(), kinds.high.tolist(), strict=True):
            size = float(max(map(abs, weights), default=1) or 1)
            terms = {j: w / size for t, w in enumerate(weights) if w for j in of_kind.get(t, ())}
            self._row(-self._infinity, high / size, terms)
        if max_types is None:
            return
        must = {offer.type for offer in instance.offers if offer.least}
        of_type: dict[str, list[int]] = {}
        for kind, offer in enumerate(instance.offer_of_kind):
            if offer is not None and offer.type not in must:
                of_type.setdefault(offer.type, []).extend(of_kind.get(kind, ()))
        chosen = {name: self._variable(1) for name in of_type}
        self._row(-self._infinity, float(max_types - len(must)), dict.fromkeys(chosen.values(), 1.0))
        for name, columns in of_type.items():
            for column in columns:
                self._row(-self._infinity, 0.0, {column: 1.0, chosen[name]: -self._big_number})

    def add_spread(self, spread: _Spread, *, every_zone: bool) -> None:
        """Add the rows of a spread constraint: no zone's count exceeds that of another zone by more than the skew.

        Zones that count are those with nodes or, with ``every_zone``, those with offers that admit the pods.
        """
        key, cells = spread.constraint.row.key, self._zones.labels
        values = sorted({*spread.exists, *spread.bought})
        inside = {value: [z for z, labels in enumerate(cells) if labels.get(key) == value] for value in values}
        total = float(len(self._instance.class_of) + sum(spread.placed.values()))
        counts = {value: {self.there[c, z]: 1.0 for c in spread.members for z in inside[value]} for value in values}
        domain: dict[str, int] = {}
        certain = spread.exists | spread.admits if every_zone else spread.exists
        for value in values:
            if value not in certain:
                domain[value] = self._variable(1)
                for bins in spread.bought[value]:
                    for column in self.bins[bins]:
                        self._row(-self._infinity, 0.0, {column: 1.0, domain[value]: -self._big_number})
        for value in values:
            has_carriers = self._variable(1)  # 1 if the zone has pods with the constraint
            carrying = {self.there[c, z]: 1.0 for c in spread.carriers for z in inside[value]}
            self._row(-self._infinity, 0.0, {**carrying, has_carriers: -total})
            for other in values:
                if other == value:
                    continue
                negative = dict.fromkeys(counts[other], -1.0)
                high = spread.constraint.max_skew + spread.placed.get(other, 0) - spread.placed.get(value, 0) + total
                terms = {**counts[value], **negative, has_carriers: total}
                if other in domain:
                    terms[domain[other]], high = total, high + total
                self._row(-self._infinity, float(high), terms)

    def add_rule(self, weights: Mapping[tuple[int, int], int], most: int) -> None:
        """Add a row that limits the weighted number of pods: the sum over (class, zone) is at most ``most``."""
        self._row(-self._infinity, float(most), {self.there[key]: float(w) for key, w in weights.items()})

    def solve(self, effort: Effort) -> NDArray[np.int64] | None:
        """Return the values of all columns: with the fewest unplaced pods, then the least cost.

        The number of search nodes is limited, so the result is the best that was found. None if none was found, or if
        the time is over.
        """
        highs = self._highs

        def interrupt(event: Any) -> None:
            """Interrupt the solver when the time is over."""
            event.interrupt(effort.out_of_time())

        highs.cbMipInterrupt.subscribe(interrupt)
        try:
            return self._fewest_then_cheapest(effort)
        finally:
            highs.disableCallbacks()

    def _fewest_then_cheapest(self, effort: Effort) -> NDArray[np.int64] | None:
        """Solve with all pods placed; if that is infeasible, minimize unplaced pods first, then the cost.

        Returns the values of all columns; None if no solution was found, or if the time is over.
        """
        highs = self._highs
        without = np.array(list(self.missing.values()), dtype=np.int32)
        none = np.zeros(len(without))
        highs.changeColsBounds(len(without), without, none, none)
        self._set_costs(self._cost)
        values = self._run(effort)
        if values is not None or highs.getModelStatus() != self._status.kInfeasible:
            return values
        counts = np.array([self._count[c] for c in self.missing], dtype=np.float64)
        highs.changeColsBounds(len(without), without, none, counts)
        self._set_costs(np.isin(np.arange(len(self._cost)), without).astype(np.float64))
        values = self._run(effort)
        if values is None:
            return None
        self._row(0.0, float(values[without].sum()), dict.fromkeys(without.tolist(), 1.0))
        self._set_costs(self._cost)
        return self._run(effort)

    def _set_costs(self, cost: Sequence[float] | NDArray[np.float64]) -> None:
        """Set the objective: the cost of one unit of each column."""
        self._highs.changeColsCost(len(cost), np.arange(len(cost), dtype=np.int32), np.array(cost, dtype=np.float64))

    def _run(self, effort: Effort) -> NDArray[np.int64] | None:
        """Run the solver, and return the values of all columns.

        None if it found no solution, or if the time is over.
        """
        self._highs.run()
        nodes = max(0, int(self._highs.getInfo().mip_node_count))
        effort.spend(2_000 + (1 + nodes) * len(self._cost))
        solution = self._highs.getSolution()
        infeasible = self._highs.getModelStatus() == self._status.kInfeasible
        if effort.out_of_time() or infeasible or not solution.value_valid:
            return None
        values: NDArray[np.int64] = np.rint(np.asarray(solution.col_value)).astype(np.int64)
        return values

    def build_plan(self, values: NDArray[np.int64], spread: list[_Spread]) -> PlannedPlacement:
        """Return the plan of a solution (``values`` of all columns).

        Pods are assigned to zones (:meth:`_assign_zones`), and then to the bins of their zone.
        """
        instance, kinds = self._instance, self._kinds
        cell_of = self._assign_zones(values, spread)
        packed = []
        for z in range(len(self._zones.labels)):
            shape = instance.shapes.of_class[instance.class_of[cell_of == z]]
            rest = np.bincount(shape, minlength=kinds.classes)
            kind_of, contents = [], []
            for (kind, cell), columns in self.bins.items():
                for column in columns if cell == z else ():
                    for _ in range(int(values[column])):
                        content = np.minimum(self.filling[column], rest)
                        rest = rest - content
                        kind_of.append(kind)
                        contents.append(content)
            n = len(kind_of)
            pattern = np.array(contents, dtype=np.int64).reshape(n, kinds.classes)
            packed.append(Packed(np.array(kind_of, dtype=np.int64), pattern, np.ones(n, dtype=np.int64), rest))
        return assign_pods_to_nodes(instance, packed, cell_of, self._zones.sources)

    def _assign_zones(self, values: NDArray[np.int64], spread: list[_Spread]) -> NDArray[np.int64]:
        """Assign each pod a zone and return int64[n]: the zone's index, -1 = not placed.

        Each zone gets as many pods of each class as in the solution (``values``). Pods are assigned in order, each to
        the zone in which the fewest pods count for its spread constraints.
        """
        instance, labels = self._instance, self._zones.labels
        remaining = {key: int(values[column]) for key, column in self.there.items()}
        rules: dict[int, list[int]] = {}
        for i, rule in enumerate(spread):
            for c in rule.members:
                rules.setdefault(c, []).append(i)
        counts = [dict(rule.placed) for rule in spread]
        zones = np.full(len(instance.class_of), -1, dtype=np.int64)
        for pod, c in enumerate(instance.class_of.tolist()):
            own_rules = rules.get(c, ())
            open_ones = [z for z in range(len(labels)) if remaining[c, z]]
            if not open_ones:
                continue
            value_of = {z: [labels[z].get(spread[i].constraint.row.key, "") for i in own_rules] for z in open_ones}
            best = min(
                open_ones,
                key=lambda z: (sum(counts[i].get(v, 0) for i, v in zip(own_rules, value_of[z], strict=True)), z),
            )
            remaining[c, best] -= 1
            zones[pod] = best
            for i, value in zip(own_rules, value_of[best], strict=True):
                counts[i][value] = counts[i].get(value, 0) + 1
        return zones
