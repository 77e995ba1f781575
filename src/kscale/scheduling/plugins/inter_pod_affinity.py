"""InterPodAffinity: required affinity and anti-affinity between pods, both ways (``plugins/interpodaffinity``).

The engine keeps counters per topology domain: pods that match all of a pod's affinity terms, pods that match one of its
anti-affinity terms, and pods that carry an anti-affinity term.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kscale.objects.core import PodAffinityTerm
from kscale.objects.selectors import Selector, SelectorError, compile_selector
from kscale.scheduling.plugins.base import NOTHING, Plugin, PreFilter, Status, unresolvable, unschedulable

if TYPE_CHECKING:
    from kscale.scheduling.context import Context
    from kscale.snapshot.interner import PodClass

__all__ = [
    "AFFINITY",
    "EXISTING_ANTI_AFFINITY",
    "OWN_ANTI_AFFINITY",
    "InterPodAffinity",
    "Term",
    "carried_terms",
    "incoming_terms",
]

AFFINITY: Status = unresolvable("node(s) didn't match pod affinity rules")
OWN_ANTI_AFFINITY: Status = unschedulable("node(s) didn't match pod anti-affinity rules")
EXISTING_ANTI_AFFINITY: Status = unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")


@dataclass(frozen=True, slots=True)
class Term:
    """Which pods a required term means: labels, and namespaces by name or by their labels."""

    key: str
    selector: Selector
    namespaces: frozenset[str]
    namespace_selector: Selector

    def means(self, pod: PodClass, namespace_labels: dict[str, str] | None) -> bool:
        """Whether the pod is meant, its namespace having these labels."""
        inside = pod.namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)
        return inside and self.selector.matches(pod.labels)


def _terms(pod: PodClass, terms: tuple[PodAffinityTerm, ...]) -> tuple[Term, ...]:
    found = []
    for term in terms:
        selector = compile_selector(term.label_selector)
        namespace_selector = compile_selector(term.namespace_selector)
        namespaces = frozenset(term.namespaces)
        if not namespaces and term.namespace_selector is None:
            namespaces = frozenset({pod.namespace})
        found.append(Term(term.topology_key, selector, namespaces, namespace_selector))
    return tuple(found)


def carried_terms(pod: PodClass) -> tuple[Term, ...]:
    """The anti-affinity terms that a placed pod holds against others; a list that does not parse counts as empty."""
    try:
        return _terms(pod, pod.anti_affinity)
    except SelectorError:
        return ()


def incoming_terms(pod: PodClass, terms: tuple[PodAffinityTerm, ...], ctx: Context) -> tuple[Term, ...]:
    """A pending pod's own terms: selected namespaces are listed once, then only names count.

    ``{}`` stays what it is: it also means namespaces that have no object.
    """
    found = []
    for term in _terms(pod, terms):
        selector = term.namespace_selector
        if selector.nothing or selector.empty:
            found.append(term)
            continue
        selected = {name for name, labels in ctx.informers.namespaces.items() if selector.matches(labels)}
        found.append(Term(term.key, term.selector, term.namespaces | selected, compile_selector(None)))
    return tuple(found)


class InterPodAffinity(Plugin):
    """The node's domains hold the pods that are wanted and none that are not."""

    name = "InterPodAffinity"
    ordinal = 12

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        problems = []
        for title, terms in (
            ("requiredAffinityTerms", pod.affinity),
            ("requiredAntiAffinityTerms", pod.anti_affinity),
            ("preferredAffinityTerms", pod.preferred_affinity),
            ("preferredAntiAffinityTerms", pod.preferred_anti_affinity),
        ):
            try:
                _terms(pod, terms)
            except SelectorError as problem:
                problems.append(f"{title}: {problem}")
        if problems:
            text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
            return PreFilter(failure=unresolvable(f"parsing pod: {text}"))
        if pod.affinity or pod.anti_affinity:
            return NOTHING
        return PreFilter(skip=not ctx.blocked_by_placed(pod))
