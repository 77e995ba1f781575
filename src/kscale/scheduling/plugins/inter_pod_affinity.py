"""InterPodAffinity: required affinity and anti-affinity between pods, in both directions
(``plugins/interpodaffinity``).

Decided in C++: ``engine/inter_pod_affinity.hpp``, by counters per topology domain: pods that match all of a pod's
affinity terms, pods that match one of its anti-affinity terms, and pods that carry an anti-affinity term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

import msgspec
import numpy as np

from kscale._native import _engine
from kscale.objects.api.core import PodAffinityTerm, PodSpec
from kscale.objects.api.meta import KubeObject
from kscale.objects.selectors import Selector, SelectorError, compile_selector
from kscale.objects.workloads import pod_count, spec_of
from kscale.scheduling.plugins.base import (
    MAX_PODS,
    NOTHING,
    ExplainContext,
    Numbers,
    Part,
    Plugin,
    PreFilter,
    Row,
    Rows,
)
from kscale.scheduling.profile import Context, NodeFacts
from kscale.scheduling.status import unresolvable, unschedulable
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.columns import FINISHED, REMOVED
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "InterPodAffinity",
    "Term",
    "TermIndex",
    "carried_terms",
    "count_pods_selecting_namespaces",
    "format_namespace_warning",
    "incoming_terms",
    "selects_namespaces_by_labels",
    "terms_of",
]


class Term(msgspec.Struct, frozen=True):
    """Which pods a required term selects: labels, and namespaces by name or by their labels."""

    key: str
    selector: Selector
    namespaces: frozenset[str]
    namespace_selector: Selector

    def matches(self, pod: PodClass, namespace_labels: dict[str, str] | None) -> bool:
        """Check whether the term selects a pod whose namespace has these labels."""
        inside = pod.namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)
        return inside and self.selector.matches(pod.labels)


_Terms = tuple[Term, ...]


def terms_of(pod: PodClass, terms: Iterable[PodAffinityTerm]) -> _Terms:
    """Compile affinity or anti-affinity ``terms`` of a pod, in order. Raises SelectorError for an invalid selector.

    A term without namespaces and namespace selector gets the pod's namespace.
    """
    compiled = []
    for term in terms:
        selector = compile_selector(term.label_selector)
        namespace_selector = compile_selector(term.namespace_selector)
        namespaces = frozenset(term.namespaces)
        if not namespaces and term.namespace_selector is None:
            namespaces = frozenset({pod.namespace})
        compiled.append(Term(term.topology_key, selector, namespaces, namespace_selector))
    return tuple(compiled)


def carried_terms(pod: PodClass) -> _Terms:
    """Return the required anti-affinity terms of a placed pod, each once; empty if one has an invalid selector."""
    try:
        return tuple(dict.fromkeys(terms_of(pod, pod.anti_affinity)))
    except SelectorError:
        return ()


def incoming_terms(pod: PodClass, terms: Iterable[PodAffinityTerm], ctx: Context) -> _Terms:
    """Compile ``terms`` of a pending pod, with namespace selectors replaced by the namespaces that they select now.

    The selector ``{}`` stays, as it also selects namespaces that have no Namespace object. Raises SelectorError for an
    invalid selector.
    """
    result = []
    for term in terms_of(pod, terms):
        selector = term.namespace_selector
        if selector.nothing or selector.empty:
            result.append(term)
            continue
        selected = {name for name, labels in ctx.informers.namespaces.items() if selector.matches(labels)}
        result.append(Term(term.key, term.selector, term.namespaces | selected, compile_selector(None)))
    return tuple(result)


def _build_matcher(terms: Iterable[Term]) -> Callable[[PodClass], bool]:
    """Return a function that checks whether all terms select a pod. Labels of the pod's namespace are ignored."""
    all_terms = tuple(terms)
    return lambda pod: all(term.matches(pod, None) for term in all_terms)


def _has_anti_affinity_term(term: Term, pod_class: PodClass) -> bool:
    """Check whether placed pods of a class have this required anti-affinity term."""
    return term in carried_terms(pod_class)


class TermIndex:
    """Index of terms by a label that a selected pod must have, so that a pod is compared with few terms."""

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str], list[Term]] = {}
        self._rest: list[Term] = []
        self._order: dict[Term, int] = {}

    def __len__(self) -> int:
        return len(self._order)

    def add(self, term: Term) -> bool:
        """Add a term; return whether it is new."""
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

    def find_matching_terms(self, pod: PodClass, ctx: Context) -> list[Term]:
        """Return the terms that select a pod, in the order they were added."""
        candidates = list(self._rest)
        if self._by_label and pod.labels:
            for item in pod.labels.items():
                candidates += self._by_label.get(item, ())
        if not candidates:
            return []
        labels = ctx.namespace_labels(pod.namespace)
        return [term for term in sorted(set(candidates), key=self._order.__getitem__) if term.matches(pod, labels)]


class _CarriedTerms(TermIndex):
    """Anti-affinity terms of placed pods. ``carriers``: positions in ``placed_classes`` of those that carry one. Cached
    with a snapshot.
    """

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
        """Return the cached instance of the snapshot, built on first use."""
        return snapshot.memo.get(cls, lambda: cls(snapshot))


class TermNumbers(Part):
    """Counter rows of the terms that classes have, or that placed pods have against them. ``terms``: (affinity,
    anti-affinity) of a class, ``blockers``: the terms that placed pods may have against it, by its index.
    """

    def __init__(self, rows: Rows) -> None:
        self.terms: dict[int, tuple[_Terms, _Terms]] = {}
        self.blockers: dict[int, list[Term]] = {}
        self._rows = rows
        self._anti: dict[Term, int] = {}
        self._groups: dict[_Terms, tuple[int, dict[str, int]]] = {}
        self._carried: dict[Term, int] = {}
        self._known = TermIndex()

    def add_class(self, pod: PodClass, counters: Any) -> None:
        """Add counter rows for the required terms of the class."""
        affinity, anti_affinity = self.terms[pod.index] = counters
        for term in anti_affinity:
            if term not in self._anti:
                self._anti[term] = self._rows.add(Row(term.key, _build_matcher([term]), term.selector))
        if affinity and affinity not in self._groups:
            group, counts_pod = self._rows.add_group(), _build_matcher(affinity)
            self._groups[affinity] = (
                group,
                {
                    key: self._rows.add(Row(key, counts_pod, affinity[0].selector, group))
                    for key in dict.fromkeys(term.key for term in affinity)
                },
            )

    def add_carriers(self, pods: Iterable[PodClass]) -> None:
        """Add the anti-affinity terms of classes that are placed or may be placed."""
        for pod in pods:
            for term in carried_terms(pod):
                self._known.add(term)

    def finish_classes(self, pods: Sequence[PodClass], ctx: Context, copies: list[NodeFacts]) -> None:
        """Store in ``blockers``, for each class, the anti-affinity terms of :meth:`add_carriers` that match it.

        Terms that match a class for the first time get a counter row.
        """
        for pod in pods:
            blockers = self._known.find_matching_terms(pod, ctx)
            if blockers:
                self.blockers[pod.index] = blockers
                for term in blockers:
                    if term not in self._carried:
                        self._carried[term] = self._rows.add(Row(term.key, None))

    def is_used(self) -> bool:
        """Return whether some class matches an anti-affinity term of pods that are placed or may be placed."""
        return bool(self._carried)

    def may_count(self, pod: PodClass) -> bool:
        """Return whether the class has required terms, or matches anti-affinity terms of other pods."""
        return bool(pod.anti_affinity) or pod.index in self.terms or pod.index in self.blockers

    def entry(self, pod: PodClass, ctx: Context, *, checked: bool) -> dict[str, Any]:
        """Return the numbers of the counter rows that concern the class, by field of the engine's entry.

        ``touch``: rows of its anti-affinity terms that match any class. If the class may be ``checked``, also the rows
        of its own required terms, and (``blocked_by``) of other pods' anti-affinity terms that match the class.
        """
        entry: dict[str, Any] = {}
        affinity, anti_affinity = self.terms.get(pod.index, ((), ())) if checked else ((), ())
        if affinity:
            group, rows = self._groups[affinity]
            entry["affinity_group"] = group
            entry["self_affine"] = all(term.matches(pod, None) for term in affinity)
            entry["affinity"] = list(rows.values())
        if anti_affinity:
            entry["own_anti"] = [self._anti[term] for term in anti_affinity]
        if checked and pod.index in self.blockers:
            entry["blocked_by"] = [self._carried[term] for term in self.blockers[pod.index]]
        if pod.anti_affinity and self._carried:
            carried = [self._carried[term] for term in carried_terms(pod) if term in self._carried]
            if carried:
                entry["touch"] = carried
        return entry


def _find_blocker(terms: Sequence[Term], which: int, node: int, context: ExplainContext) -> tuple[Term, int | None]:
    """Return (anti-affinity term to report, its index among the terms of the placed pod that has it).

    ``terms``: all terms of placed pods that match the incoming pod. ``which``: index of the term that the engine
    reports, which depends on the session's history. The result is therefore the term of the first placed pod in the
    domain of ``node``, or ``(terms[which], None)`` if all pods with such a term were placed after the snapshot.
    """
    seen = []
    for term in terms:
        first = context.first_in_domain(term.key, node, partial(_has_anti_affinity_term, term))
        if first is not None:
            row, carrier = first
            seen.append((row, carried_terms(carrier).index(term), term))
    if not seen:
        return terms[which], None
    _, index, term = min(seen, key=lambda entry: entry[:2])
    return term, index


class InterPodAffinity(Plugin):
    """The node's domains have the pods that are required, and none that are excluded."""

    name = "InterPodAffinity"
    statuses: ClassVar = {
        _engine.AFFINITY: unresolvable("node(s) didn't match pod affinity rules"),
        _engine.OWN_ANTI_AFFINITY: unschedulable("node(s) didn't match pod anti-affinity rules"),
        _engine.EXISTING_ANTI_AFFINITY: unschedulable("node(s) didn't satisfy existing pods anti-affinity rules"),
    }

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        """Return a failure if a selector of the pod's affinity terms, required or preferred, is invalid."""
        if not (pod.affinity or pod.anti_affinity or pod.preferred_affinity or pod.preferred_anti_affinity):
            return NOTHING
        problems = []
        for title, terms in (
            ("requiredAffinityTerms", pod.affinity),
            ("requiredAntiAffinityTerms", pod.anti_affinity),
            ("preferredAffinityTerms", [preferred.pod_affinity_term for preferred in pod.preferred_affinity]),
            ("preferredAntiAffinityTerms", [preferred.pod_affinity_term for preferred in pod.preferred_anti_affinity]),
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
        """Return whether the pod has no required terms, and no placed pod has a required anti-affinity term against it.

        Placed pods on nodes without the term's topology key do not count.
        """
        if pod.affinity or pod.anti_affinity:
            return False
        snapshot = ctx.snapshot
        carried = _CarriedTerms.of(snapshot)
        for term in carried.find_matching_terms(pod, ctx):  # some placed pod, on a node that has the term's key?
            ids = snapshot.columns.label(term.key).ids
            if any((ids[snapshot.nodes_of_class(which)] >= 0).any() for which in carried.carriers[term]):
                return False
        return True

    def part(self, rows: Rows) -> Part:
        """Return a new part that counts pods by the terms that match them."""
        return TermNumbers(rows)

    def get_counters(self, pod: PodClass, ctx: Context) -> tuple[_Terms, _Terms] | None:
        """Return the required terms as (affinity, anti-affinity); None without terms, or if one is invalid."""
        if not pod.affinity and not pod.anti_affinity:
            return None
        try:
            return incoming_terms(pod, pod.affinity, ctx), incoming_terms(pod, pod.anti_affinity, ctx)
        except SelectorError:  # its PreFilter fails; no counter is read
            return None

    def get_dependencies(self, pod: PodClass, ctx: Context) -> tuple[Any, ...]:
        """Return the namespaces if a term selects namespaces by labels, otherwise nothing."""
        by_labels = any(term.namespace_selector is not None for term in (*pod.affinity, *pod.anti_affinity))
        return (ctx.informers.namespaces,) if by_labels else ()

    def get_shared_dependencies(self, ctx: Context) -> tuple[Any, ...]:
        """Return the namespaces."""
        return (ctx.informers.namespaces,)

    def get_part_dependencies(self, storage: Sequence[PodClass], ctx: Context) -> Iterable[Any]:
        """Return the namespaces, because anti-affinity terms of placed pods may select them by labels."""
        return (ctx.informers.namespaces,)

    def explain_failure(
        self, code: int, failed_index: int, pod: PodClass, node: int, context: ExplainContext
    ) -> Numbers:
        """Return one dict with the values of the term that failed.

        ``rule``: ``affinity``, ``anti-affinity`` or ``anti-affinity of placed pods``. ``term``: index in the list of
        the pod that has the term, None if unknown. ``topologyKey``; ``domain``: the node's domain, None without the
        label; ``matching``: number of matching pods there; ``pods``: keys of the first of them.
        """
        part = context.part(TermNumbers)
        affinity, anti_affinity = part.terms.get(pod.index, ((), ()))
        index: int | None
        matches: Callable[[PodClass], bool]
        if code == _engine.AFFINITY:
            keys = list(dict.fromkeys(term.key for term in affinity))
            rule, key = "affinity", keys[failed_index]
            index = [term.key for term in affinity].index(key)
            matches = _build_matcher(affinity)  # a pod counts if it matches all terms of the list
        elif code == _engine.OWN_ANTI_AFFINITY:
            rule, index, key = "anti-affinity", failed_index, anti_affinity[failed_index].key
            matches = _build_matcher([anti_affinity[failed_index]])
        else:
            blocker, index = _find_blocker(part.blockers[pod.index], failed_index, node, context)
            rule, key = "anti-affinity of placed pods", blocker.key
            matches = partial(_has_anti_affinity_term, blocker)
        pods = context.pods_in_domain(key, node, matches)
        return (
            {
                "rule": rule,
                "term": index,
                "topologyKey": key,
                "domain": context.facts(node).labels.get(key),
                "matching": len(pods),
                "pods": pods[:MAX_PODS],
            },
        )


def selects_namespaces_by_labels(spec: PodSpec) -> bool:
    """Check whether a required term of a pod's (anti-)affinity selects namespaces by labels."""
    affinity = spec.affinity
    if affinity is None:
        return False
    return _select_namespaces_by_labels(
        term
        for pod_affinity in (affinity.pod_affinity, affinity.pod_anti_affinity)
        if pod_affinity
        for term in pod_affinity.required
    )


def _select_namespaces_by_labels(terms: Iterable[PodAffinityTerm]) -> bool:
    """Check whether any term has a namespace selector; empty ones match every namespace and do not count."""
    selectors = (term.namespace_selector for term in terms)
    return any(item is not None and bool(item.match_labels or item.match_expressions) for item in selectors)


def count_pods_selecting_namespaces(snapshot: Snapshot, workloads: Iterable[KubeObject] = ()) -> int:
    """Count the pods, of the snapshot and of workloads, that select namespaces by labels.

    Returns 0 if the snapshot has Namespace objects.
    """
    if snapshot.informers.namespaces:
        return 0
    more = sum(pod_count(item) for item in workloads if selects_namespaces_by_labels(spec_of(item)))
    affected_classes = [
        pod.index
        for pod in snapshot.interner.classes
        if _select_namespaces_by_labels((*pod.affinity, *pod.anti_affinity))
    ]
    if not affected_classes:
        return more
    table = snapshot.table
    is_present = ~np.isin(table.columns["state"], (FINISHED, REMOVED))
    return more + int(np.isin(table.columns["class_of"][is_present], affected_classes).sum())


def format_namespace_warning(pods: int) -> str:
    """Return the warning that ``pods`` pods select namespaces by labels, but the input has no Namespace object."""
    choose = "1 pod chooses" if pods == 1 else f"{pods:,} pods choose"
    return f"{choose} namespaces by their labels (namespaceSelector), which are not known: no Namespace in the input"
