"""Pods per topology domain, for the scores of PodTopologySpread and InterPodAffinity."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from kscale._native import _selecting
from kscale.objects.core import PodAffinityTerm, WeightedPodAffinityTerm
from kscale.objects.selectors import SelectorError
from kscale.scheduling.compile.node_classes import NodeClasses
from kscale.scheduling.context import Context
from kscale.scheduling.facts import HOSTNAME, NodeFacts
from kscale.scheduling.plugins.inter_pod_affinity import Term, TermIndex, incoming_terms, terms_of
from kscale.scheduling.plugins.pod_topology_spread import Constraint, SpreadRow, eligibility, soft_constraints
from kscale.scheduling.rows import Eligibility, Row, Rows
from kscale.scheduling.scores.options import ScoreOptions
from kscale.snapshot.interner import PodClass

__all__ = ["Counters"]


class Counters:
    """Counter rows of all classes that are scored, and of what pods that are there wish for."""

    def __init__(self, ctx: Context, options: ScoreOptions) -> None:
        self._ctx = ctx
        self.broken: set[int] = set()
        """Classes, by index, with a soft constraint that cannot be read."""
        self._spreads = options.weights.get("PodTopologySpread", 0) > 0
        self._near = options.weights.get("InterPodAffinity", 0) > 0
        self._hard_weight = options.hard_pod_affinity_weight
        self._ignores = options.ignore_preferred_terms_of_existing_pods
        self._rows = Rows()
        self._spread: dict[SpreadRow, int] = {}
        self._meant: dict[Term, int] = {}
        self._carried: dict[Term, int] = {}
        self._known = TermIndex()
        self._soft: dict[int, tuple[tuple[Constraint, ...], bool]] = {}
        self._wishes: dict[int, list[tuple[int, int]]] = {}

    # -- asking ------------------------------------------------------------------------------------------------------

    def ask(self, pods: Iterable[PodClass]) -> None:
        """All classes that will be scored and placed."""
        asked = list(pods)
        for pod in (*self._ctx.snapshot.placed_classes, *asked) if self._near else ():
            for term in self._carries(pod):
                self._known.add(term)
        for pod in asked:
            self._ask_spread(pod)
            self._ask_near(pod)

    def _ask_spread(self, pod: PodClass) -> None:
        if not self._spreads:
            return
        try:
            soft, whole = soft_constraints(pod, self._ctx)
        except SelectorError:
            self.broken.add(pod.index)
            return
        if soft:
            self._soft[pod.index] = soft, whole
        for constraint in soft:
            row = constraint.row
            if row not in self._spread:
                eligible = None if row.key == HOSTNAME else eligibility(row.inclusion, pod)
                self._spread[row] = self._rows.add(Row(row.key, row.counts, row.selector, eligibility=eligible))

    def _ask_near(self, pod: PodClass) -> None:
        if not self._near:
            return
        wishes: list[tuple[int, int]] = []
        for terms, sign in ((pod.preferred_affinity, 1), (pod.preferred_anti_affinity, -1)):
            for term, weight in self._incoming(pod, terms):
                if term not in self._meant:
                    self._meant[term] = self._rows.add(Row(term.key, _means(term), term.selector))
                wishes.append((self._meant[term], sign * weight))
        if wishes or not self._ignores:
            for term in self._known.meaning(pod, self._ctx):
                if term not in self._carried:
                    self._carried[term] = self._rows.add(Row(term.key, None))
                wishes.append((self._carried[term], 1))
        if wishes:
            self._wishes[pod.index] = wishes

    def _incoming(self, pod: PodClass, terms: tuple[WeightedPodAffinityTerm, ...]) -> list[tuple[Term, int]]:
        try:
            found = incoming_terms(pod, [wish.pod_affinity_term for wish in terms], self._ctx)
        except SelectorError:  # its PreFilter fails
            return []
        return [(term, wish.weight) for term, wish in zip(found, terms, strict=True)]

    def _carries(self, pod: PodClass) -> dict[Term, int]:
        """The terms that a placed pod holds towards others, and what they weigh."""
        found: dict[Term, int] = {}
        parts = [(pod.preferred_affinity, 1), (pod.preferred_anti_affinity, -1)]
        for terms, sign in parts:
            weights = [sign * wish.weight for wish in terms]
            for term, weight in zip(_parsed(pod, (w.pod_affinity_term for w in terms)), weights, strict=False):
                found[term] = found.get(term, 0) + weight
        if self._hard_weight:
            for term in _parsed(pod, pod.affinity):
                found[term] = found.get(term, 0) + self._hard_weight
        return found

    # -- what was asked ----------------------------------------------------------------------------------------------

    @property
    def columns(self) -> frozenset[str]:
        """Node columns that decide which nodes count."""
        return self._rows.columns()

    def spread(self, pod: PodClass) -> tuple[list[tuple[int, int, bool]], bool]:
        """([(row, max skew, whether hosts are compared)], whether nodes need all keys) of a class."""
        soft, whole = self._soft.get(pod.index, ((), False))
        return [(self._spread[c.row], c.max_skew, c.row.key == HOSTNAME) for c in soft], whole

    def terms(self, pod: PodClass) -> list[tuple[int, int]]:
        """[(row, weight)]: what draws a class to domains, or keeps it off."""
        return self._wishes.get(pod.index, [])

    def touched(self, pod: PodClass) -> list[tuple[int, int]]:
        """[(row, by how much)]: where a pod of the class counts once it is placed."""
        found = [(row, 1) for part in self._rows.counted(pod) for row in part]
        if self._carried:
            found += [(self._carried[term], w) for term, w in self._carries(pod).items() if term in self._carried]
        return found

    def fill(self, scorer: _selecting.Scorer, nodes: NodeClasses) -> None:
        """The rows, with the pods that are there."""
        snapshot, size = self._ctx.snapshot, nodes.existing
        domains: list[NDArray[np.int32]] = []
        counts: list[NDArray[np.int64]] = []
        hosts = set(self._spread.values())
        for number, row in enumerate(self._rows.rows):
            label = snapshot.columns.label(row.key)
            if row.key == HOSTNAME and number in hosts:  # every node by itself
                domain = np.where(label.ids >= 0, np.arange(size, dtype=np.int32), np.int32(-1)).astype(np.int32)
                counts.append(np.zeros(size, dtype=np.int64))
            else:
                domain = np.ascontiguousarray(label.ids, dtype=np.int32)
                counts.append(np.zeros(len(label.values), dtype=np.int64))
            domains.append(domain)
        masks = [None if row.eligibility is None else _mask(row.eligibility, nodes) for row in self._rows.rows]
        if counts:
            for which, pod in enumerate(snapshot.placed_classes):
                touched = self.touched(pod)
                if not touched:
                    continue
                where = snapshot.nodes_of_class(which)
                for row_number, weight in touched:
                    mask = masks[row_number]
                    domain = domains[row_number][where if mask is None else where[mask[where] != 0]]
                    np.add.at(counts[row_number], domain[domain >= 0], weight)
        for domain, count, mask in zip(domains, counts, masks, strict=True):
            scorer.add_row(domain, count, mask)


def _mask(eligible: Eligibility, nodes: NodeClasses) -> NDArray[np.uint8]:
    def counts(node: NodeFacts) -> int:
        return int(eligible.counts(node))

    return nodes.values(eligible.columns, counts).astype(np.uint8)


def _means(term: Term) -> Callable[[PodClass], bool]:
    return lambda pod: term.means(pod, None)


def _parsed(pod: PodClass, terms: Iterable[PodAffinityTerm]) -> tuple[Term, ...]:
    """Terms of a placed pod; a list that does not parse counts as empty."""
    try:
        return terms_of(pod, terms)
    except SelectorError:
        return ()
