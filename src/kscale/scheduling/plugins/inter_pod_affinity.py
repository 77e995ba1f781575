"""InterPodAffinity: required affinity and anti-affinity between pods, both ways (``plugins/interpodaffinity``).

Decided in C++: ``engine/inter_pod_affinity.hpp``, by counters per topology domain: pods that match all of a pod's
affinity terms, pods that match one of its anti-affinity terms, and pods that carry an anti-affinity term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

import msgspec

from kscale._native import _engine
from kscale.objects.api.core import PodAffinityTerm
from kscale.objects.selectors import Selector, SelectorError, compile_selector
from kscale.scheduling.plugins.base import MOST_PODS, NOTHING, Numbers, Part, Plugin, PreFilter, Witness
from kscale.scheduling.profile import Context, NodeFacts
from kscale.scheduling.status import unresolvable, unschedulable
from kscale.scheduling.topology_counters import Row, Rows
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.snapshot import Snapshot

__all__ = ["InterPodAffinity", "Term", "TermIndex", "carried_terms", "incoming_terms", "terms_of"]


class Term(msgspec.Struct, frozen=True):
    """Which pods a required term means: labels, and namespaces by name or by their labels."""

    key: str
    selector: Selector
    namespaces: frozenset[str]
    namespace_selector: Selector

    def means(self, pod: PodClass, namespace_labels: dict[str, str] | None) -> bool:
        """Whether the pod is meant, its namespace having these labels."""
        inside = pod.namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)
        return inside and self.selector.matches(pod.labels)


_Terms = tuple[Term, ...]


def terms_of(pod: PodClass, terms: Iterable[PodAffinityTerm]) -> _Terms:
    """Terms of a pod as what they mean, in order. Raises SelectorError."""
    found = []
    for term in terms:
        selector = compile_selector(term.label_selector)
        namespace_selector = compile_selector(term.namespace_selector)
        namespaces = frozenset(term.namespaces)
        if not namespaces and term.namespace_selector is None:
            namespaces = frozenset({pod.namespace})
        found.append(Term(term.topology_key, selector, namespaces, namespace_selector))
    return tuple(found)


def carried_terms(pod: PodClass) -> _Terms:
    """The anti-affinity terms that a placed pod holds against others, each once; a list that does not parse counts as
    empty."""
    try:
        return tuple(dict.fromkeys(terms_of(pod, pod.anti_affinity)))
    except SelectorError:
        return ()


def incoming_terms(pod: PodClass, terms: Iterable[PodAffinityTerm], ctx: Context) -> _Terms:
    """A pending pod's own terms: selected namespaces are listed once, then only names count.

    ``{}`` stays what it is: it also means namespaces that have no object.
    """
    found = []
    for term in terms_of(pod, terms):
        selector = term.namespace_selector
        if selector.nothing or selector.empty:
            found.append(term)
            continue
        selected = {name for name, labels in ctx.informers.namespaces.items() if selector.matches(labels)}
        found.append(Term(term.key, term.selector, term.namespaces | selected, compile_selector(None)))
    return tuple(found)


def _means_all(terms: Iterable[Term]) -> Callable[[PodClass], bool]:
    """Whether every one of some terms means a pod, whatever labels its namespace has."""
    wanted = tuple(terms)
    return lambda pod: all(term.means(pod, None) for term in wanted)


def _carries(term: Term, other: PodClass) -> bool:
    return term in carried_terms(other)


class TermIndex:
    """Terms by one label that a pod must have to be meant, so that a pod is compared with few of them."""

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str], list[Term]] = {}
        self._rest: list[Term] = []
        self._order: dict[Term, int] = {}

    def __len__(self) -> int:
        return len(self._order)

    def add(self, term: Term) -> bool:
        """Whether it is new."""
        if term in self._order:
            return False
        self._order[term] = len(self._order)
        if term.selector.nothing:
            return True
        pinned = next((r for r in term.selector.requirements if r.operator in ("in", "=", "==")), None)
        if pinned is None:
            self._rest.append(term)
        else:
            for value in dict.fromkeys(pinned.values):
                self._by_label.setdefault((pinned.key, value), []).append(term)
        return True

    def meaning(self, pod: PodClass, ctx: Context) -> list[Term]:
        """The terms that mean a pod, in the order they were added."""
        found = list(self._rest)
        if self._by_label and pod.labels:
            for item in pod.labels.items():
                found += self._by_label.get(item, ())
        if not found:
            return []
        labels = ctx.namespace_labels(pod.namespace)
        return [term for term in sorted(set(found), key=self._order.__getitem__) if term.means(pod, labels)]


class _CarriedTerms(TermIndex):
    """Anti-affinity terms of placed pods. ``carriers``: positions in ``placed_classes`` of those that carry one. Kept
    with a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.carriers: dict[Term, list[int]] = {}
        for which, pod in enumerate(snapshot.placed_classes):
            if pod.anti_affinity:
                for term in carried_terms(pod):
                    self.add(term)
                    self.carriers.setdefault(term, []).append(which)

    @classmethod
    def of(cls, snapshot: Snapshot) -> _CarriedTerms:
        return snapshot.memo.of(cls, lambda: cls(snapshot))


class TermNumbers(Part):
    """Counter rows of the terms that classes have, or that are held against them. ``terms``: (affinity, anti-affinity)
    of a class, ``blockers``: the terms that placed pods may hold against it, by its index."""

    def __init__(self, rows: Rows) -> None:
        self.terms: dict[int, tuple[_Terms, _Terms]] = {}
        self.blockers: dict[int, list[Term]] = {}
        self._rows = rows
        self._anti: dict[Term, int] = {}
        self._groups: dict[_Terms, tuple[int, dict[str, int]]] = {}
        self._carried: dict[Term, int] = {}
        self._known = TermIndex()

    def ask(self, pod: PodClass, looks: Any) -> None:
        near, apart = self.terms[pod.index] = looks
        for term in apart:
            if term not in self._anti:
                self._anti[term] = self._rows.add(Row(term.key, _means_all([term]), term.selector))
        if near and near not in self._groups:
            group, meant = self._rows.add_group(), _means_all(near)
            self._groups[near] = (
                group,
                {
                    key: self._rows.add(Row(key, meant, near[0].selector, group))
                    for key in dict.fromkeys(term.key for term in near)
                },
            )

    def present(self, pods: Iterable[PodClass]) -> None:
        for pod in pods:
            if pod.anti_affinity:
                for term in carried_terms(pod):
                    self._known.add(term)

    def asked(self, pods: Sequence[PodClass], ctx: Context, copies: list[NodeFacts]) -> None:
        for pod in pods:
            found = self._known.meaning(pod, ctx)
            if found:
                self.blockers[pod.index] = found
                for term in found:
                    if term not in self._carried:
                        self._carried[term] = self._rows.add(Row(term.key, None))

    def awake(self) -> bool:
        return bool(self._carried)

    def concerns(self, pod: PodClass) -> bool:
        return bool(pod.anti_affinity) or pod.index in self.terms or pod.index in self.blockers

    def entry(self, pod: PodClass, ctx: Context, *, asked: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        near, apart = self.terms.get(pod.index, ((), ())) if asked else ((), ())
        if near:
            group, rows = self._groups[near]
            found["affinity_group"] = group
            found["self_affine"] = all(term.means(pod, None) for term in near)
            found["affinity"] = list(rows.values())
        if apart:
            found["own_anti"] = [self._anti[term] for term in apart]
        if asked and pod.index in self.blockers:
            found["blocked_by"] = [self._carried[term] for term in self.blockers[pod.index]]
        if pod.anti_affinity and self._carried:
            carried = [self._carried[term] for term in carried_terms(pod) if term in self._carried]
            if carried:
                found["touch"] = carried
        return found


def _blocker(held: Sequence[Term], which: int, node: int, witness: Witness) -> tuple[Term, int | None]:
    """Of the terms held against a pod the one to name, and its place in the list of the pod that carries it: the pod
    that appears first. (The engine's ``which`` depends on what its session met before.) A carrier that was placed
    since the snapshot has no place to tell."""
    seen = []
    for term in held:
        first = witness.first_in_domain(term.key, node, partial(_carries, term))
        if first is not None:
            row, carrier = first
            seen.append((row, carried_terms(carrier).index(term), term))
    if not seen:
        return held[which], None
    _, at, term = min(seen, key=lambda found: found[:2])
    return term, at


class InterPodAffinity(Plugin):
    """The node's domains hold the pods that are wanted and none that are not."""

    name = "InterPodAffinity"
    statuses: ClassVar = {
        _engine.AFFINITY: unresolvable("node(s) didn't match pod affinity rules"),
        _engine.OWN_ANTI_AFFINITY: unschedulable("node(s) didn't match pod anti-affinity rules"),
        _engine.EXISTING_ANTI_AFFINITY: unschedulable("node(s) didn't satisfy existing pods anti-affinity rules"),
    }

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        if not (pod.affinity or pod.anti_affinity or pod.preferred_affinity or pod.preferred_anti_affinity):
            return NOTHING
        problems = []
        for title, terms in (
            ("requiredAffinityTerms", pod.affinity),
            ("requiredAntiAffinityTerms", pod.anti_affinity),
            ("preferredAffinityTerms", [wish.pod_affinity_term for wish in pod.preferred_affinity]),
            ("preferredAntiAffinityTerms", [wish.pod_affinity_term for wish in pod.preferred_anti_affinity]),
        ):
            try:
                terms_of(pod, terms)
            except SelectorError as problem:
                problems.append(f"{title}: {problem}")
        if problems:
            text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
            return PreFilter(failure=unresolvable(f"parsing pod: {text}"))
        return NOTHING

    def skips(self, pod: PodClass, ctx: Context) -> bool:
        if pod.affinity or pod.anti_affinity:
            return False
        snapshot = ctx.snapshot
        carried = _CarriedTerms.of(snapshot)
        for term in carried.meaning(pod, ctx):  # some placed pod, on a node that has the term's key?
            ids = snapshot.columns.label(term.key).ids
            if any((ids[snapshot.nodes_of_class(which)] >= 0).any() for which in carried.carriers[term]):
                return False
        return True

    def part(self, rows: Rows) -> Part:
        return TermNumbers(rows)

    def looks(self, pod: PodClass, ctx: Context) -> tuple[_Terms, _Terms] | None:
        if not pod.affinity and not pod.anti_affinity:
            return None
        try:
            return incoming_terms(pod, pod.affinity, ctx), incoming_terms(pod, pod.anti_affinity, ctx)
        except SelectorError:  # its PreFilter fails; no counter is asked
            return None

    def grounds(self, pod: PodClass, ctx: Context) -> tuple[Any, ...]:
        by_labels = any(term.namespace_selector is not None for term in (*pod.affinity, *pod.anti_affinity))
        return (ctx.informers.namespaces,) if by_labels else ()

    def backdrop(self, ctx: Context) -> tuple[Any, ...]:
        return (ctx.informers.namespaces,)

    def surroundings(self, storage: Sequence[PodClass], ctx: Context) -> Iterable[Any]:
        return (ctx.informers.namespaces,)

    def blame(self, detail: int, which: int, pod: PodClass, node: int, witness: Witness) -> Numbers:
        """``rule``, ``term`` (its place in the list of the pod that has it), ``topologyKey``, ``domain``, ``matching``
        pods there, ``pods`` (the first few)."""
        part = witness.part(TermNumbers)
        near, apart = part.terms.get(pod.index, ((), ()))
        at: int | None
        means: Callable[[PodClass], bool]
        if detail == _engine.AFFINITY:
            keys = list(dict.fromkeys(term.key for term in near))
            rule, key = "affinity", keys[which]
            at = [term.key for term in near].index(key)
            means = _means_all(near)  # a pod counts if it matches all terms of the list
        elif detail == _engine.OWN_ANTI_AFFINITY:
            rule, at, key = "anti-affinity", which, apart[which].key
            means = _means_all([apart[which]])
        else:
            blocker, at = _blocker(part.blockers[pod.index], which, node, witness)
            rule, key = "anti-affinity of placed pods", blocker.key
            means = partial(_carries, blocker)
        pods = witness.pods_in_domain(key, node, means)
        return (
            {
                "rule": rule,
                "term": at,
                "topologyKey": key,
                "domain": witness.facts(node).labels.get(key),
                "matching": len(pods),
                "pods": pods[:MOST_PODS],
            },
        )
