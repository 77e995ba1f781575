"""From constraints and terms to the engine's counter rows, with the counts of the pods that are already placed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kscale.objects.core import Taint
from kscale.objects.selectors import SelectorError
from kscale.objects.taints import first_untolerated
from kscale.scheduling.context import HOSTNAME, Context
from kscale.scheduling.node_classes import NodeClasses
from kscale.scheduling.placed_identities import PlacedIdentities
from kscale.scheduling.plugins.inter_pod_affinity import Term, carried_terms, incoming_terms
from kscale.scheduling.plugins.pod_topology_spread import HardConstraint, PodTopologySpread, SpreadRow, hard_constraints
from kscale.snapshot.interner import PodClass

if TYPE_CHECKING:
    from kscale._native import _engine

__all__ = ["Counters", "hostname_spread"]

_SPREAD = PodTopologySpread()


def hostname_spread(pod: PodClass) -> bool:
    """Whether any constraint, soft ones included, has the hostname key: the estimator's retry looks at that."""
    return any(constraint.topology_key == HOSTNAME for constraint in pod.spread or ())


def _constraints(pod: PodClass, ctx: Context) -> tuple[HardConstraint, ...]:
    try:
        return hard_constraints(pod, ctx)
    except SelectorError:  # its PreFilter fails; no counter is asked
        return ()


def _own_terms(pod: PodClass, ctx: Context) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    try:
        return incoming_terms(pod, pod.affinity, ctx), incoming_terms(pod, pod.anti_affinity, ctx)
    except SelectorError:
        return (), ()


class Counters:
    """All rows that a set of pod classes needs.

    ``checked``: the classes whose verdicts are asked for; ``present``: all that may be placed, checked ones included.
    """

    def __init__(self, ctx: Context, checked: Sequence[PodClass], present: Sequence[PodClass]) -> None:
        self.ctx = ctx
        self.present = present
        self.constraints = {pod.index: _constraints(pod, ctx) for pod in checked if pod.spread or _defaults(ctx)}
        self.terms = {pod.index: _own_terms(pod, ctx) for pod in checked if pod.affinity or pod.anti_affinity}
        self.spread_rows: dict[SpreadRow, tuple[int, PodClass]] = {}
        for pod in checked:
            for constraint in self.constraints.get(pod.index, ()):
                self.spread_rows.setdefault(constraint.row, (len(self.spread_rows), pod))
        carried = dict.fromkeys(ctx.carried)
        for pod in present:
            if pod.anti_affinity:
                carried.update(dict.fromkeys(carried_terms(pod)))
        self.blockers: dict[int, list[Term]] = {}  # terms that placed pods may hold against a class
        wanted: dict[Term, None] = {}
        if carried:
            index = _TermIndex(carried)
            for pod in checked:
                labels = ctx.namespace_labels(pod.namespace)
                found = [term for term in index.candidates(pod) if term.means(pod, labels)]
                if found:
                    self.blockers[pod.index] = found
                    wanted.update(dict.fromkeys(found))
        self.carried_rows = {term: i for i, term in enumerate(wanted)}
        self.anti_rows: dict[Term, int] = {}
        self.groups: dict[tuple[Term, ...], int] = {}
        for near, apart in self.terms.values():
            for term in apart:
                self.anti_rows.setdefault(term, len(self.anti_rows))
            if near:
                self.groups.setdefault(near, len(self.groups))

    @property
    def keys(self) -> tuple[str, ...]:
        """Topology keys that some row counts by, in order of first use."""
        keys: dict[str, None] = {}
        for row in self.spread_rows:
            keys[row.key] = None
        for term in (*self.carried_rows, *self.anti_rows):
            keys[term.key] = None
        for group in self.groups:
            keys.update(dict.fromkeys(term.key for term in group))
        return tuple(keys)

    def columns(self) -> frozenset[str]:
        """Node columns that decide which nodes the spread rows count."""
        columns: set[str] = set()
        for row, (_, pod) in self.spread_rows.items():
            columns |= _SPREAD.eligibility_columns(pod, row)
        return frozenset(columns)

    def register(
        self, engine: _engine.Engine, classes: NodeClasses, keys: dict[str, tuple[int, NDArray[np.int32], int]]
    ) -> None:
        """Add eligibility and rows. ``keys``: topology key -> (engine key, domain of every node, number of domains)."""
        eligible = np.zeros((len(self.spread_rows), len(classes)), dtype=np.uint8)
        for row, (i, pod) in self.spread_rows.items():
            columns = _SPREAD.eligibility_columns(pod, row)
            eligible[i] = classes.evaluate(columns, partial(_SPREAD.eligible, pod, row))
        engine.set_eligibility(eligible)
        node_class = classes.of[: classes.existing]
        self._row_of: dict[Any, int] = {}
        self._touched_by: dict[int, tuple[list[int], list[int]]] = {}
        self._engine, self._keys = engine, keys
        if not (self.spread_rows or self.anti_rows or self.carried_rows or self.groups):
            return
        placed = PlacedIdentities.of(self.ctx.snapshot)
        for row, (i, _) in self.spread_rows.items():
            key, domain, size = keys[row.key]
            nodes = placed.nodes(placed.counted(row))
            counts = _count(nodes[eligible[i][node_class[nodes]] != 0], domain, size)
            self._row_of[row] = engine.add_row(key, counts, eligibility=i)
        for term in self.anti_rows:
            key, domain, size = keys[term.key]
            counts = _count(placed.nodes(placed.meant((term,))), domain, size)
            self._row_of["anti", term] = engine.add_row(key, counts)
        for term in self.carried_rows:
            key, domain, size = keys[term.key]
            carriers = [self.ctx.snapshot.nodes_of_class(which) for which in self.ctx.carried.get(term, ())]
            counts = _count(np.concatenate([np.zeros(0, np.int32), *carriers]), domain, size)
            self._row_of["carried", term] = engine.add_row(key, counts)
        for group in self.groups:
            number = engine.add_group()
            self._row_of["number", group] = number
            nodes = placed.nodes(placed.meant(group))
            for topology_key in dict.fromkeys(term.key for term in group):
                key, domain, size = keys[topology_key]
                counts = _count(nodes, domain, size)
                self._row_of["group", group, topology_key] = engine.add_row(key, counts, group=number)

    def leaving(self, taint: Taint, rows: int) -> NDArray[np.uint8]:
        """uint8[rows]: which engine rows stop counting a node once it carries the taint."""
        found = np.zeros(rows, dtype=np.uint8)
        for row, (_, pod) in self.spread_rows.items():
            if row.tolerations is not None and first_untolerated(pod.tolerations, (taint,)) is not None:
                found[self._row_of[row]] = 1
        return found

    def row(self, row: SpreadRow) -> tuple[tuple[NDArray[np.int64], NDArray[np.int32], int, int], int]:
        """((counts, registered nodes, domains, minimum) of a spread row now, its key's number in the engine)."""
        return self._engine.row(self._row_of[row]), self._keys[row.key][0]

    def extra(self, pod: PodClass) -> dict[str, Any]:
        """What the engine has to know of a class: its checks and which rows count it once it is placed."""
        extra: dict[str, Any] = {}
        constraints = self.constraints.get(pod.index)
        if constraints:
            extra["spread"] = [(self._row_of[c.row], c.max_skew, c.min_domains, int(c.self_match)) for c in constraints]
        counted, meant = self._touched(pod)
        if counted:
            extra["spread_touch"] = counted
        near, apart = self.terms.get(pod.index, ((), ()))
        if near:
            extra["affinity_group"] = self._row_of["number", near]
            extra["self_affine"] = all(term.means(pod, None) for term in near)
            extra["affinity"] = [self._row_of["group", near, key] for key in dict.fromkeys(t.key for t in near)]
        if apart:
            extra["own_anti"] = [self._row_of["anti", term] for term in apart]
        if pod.index in self.blockers:
            extra["blocked_by"] = [self._row_of["carried", term] for term in self.blockers[pod.index]]
        touch = meant.copy()
        if pod.anti_affinity:
            touch += [
                self._row_of["carried", term] for term in dict.fromkeys(carried_terms(pod)) if term in self.carried_rows
            ]
        if touch:
            extra["touch"] = touch
        return extra

    def _touched(self, pod: PodClass) -> tuple[list[int], list[int]]:
        """The spread rows and the rows of terms that count a pod of this class, whatever else it asks for."""
        found = self._touched_by.get(pod.identity_id)
        if found is None:
            rows = [self._row_of["anti", term] for term in self.anti_rows if term.means(pod, None)]
            for group in self.groups:
                if all(term.means(pod, None) for term in group):
                    rows += [self._row_of["group", group, key] for key in dict.fromkeys(t.key for t in group)]
            spread = [self._row_of[row] for row in self.spread_rows if row.counts(pod)]
            found = self._touched_by[pod.identity_id] = spread, rows
        return found


def _count(nodes: NDArray[np.int32], domain: NDArray[np.int32], size: int) -> NDArray[np.int64]:
    """Pods per domain, from the node of each."""
    domains = domain[nodes]
    return np.bincount(domains[domains >= 0], minlength=size).astype(np.int64)


def _defaults(ctx: Context) -> bool:
    return bool(ctx.profile.default_constraints)


class _TermIndex:
    """Terms by one label that a pod must have to be meant, so that a pod is compared with few of them."""

    def __init__(self, terms: dict[Term, None]) -> None:
        self._by_label: dict[tuple[str, str], list[Term]] = {}
        self._rest: list[Term] = []
        self._order = {term: i for i, term in enumerate(terms)}
        for term in terms:
            if term.selector.nothing:
                continue
            pinned = next((r for r in term.selector.requirements if r.operator in ("in", "=", "==")), None)
            if pinned is None:
                self._rest.append(term)
            else:
                for value in dict.fromkeys(pinned.values):
                    self._by_label.setdefault((pinned.key, value), []).append(term)

    def candidates(self, pod: PodClass) -> list[Term]:
        found = list(self._rest)
        for item in (pod.labels or {}).items():
            found += self._by_label.get(item, ())
        return sorted(found, key=self._order.__getitem__)
