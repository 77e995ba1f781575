"""InterPodAffinity (6.12)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from reference.cluster import (
    SKIPPED,
    Cluster,
    Json,
    NodeState,
    PreFiltered,
    Status,
    labels_of,
    namespace_of,
    unresolvable,
    unschedulable,
)
from reference.labels import Selector, SelectorError, label_selector, matches

NAME = "InterPodAffinity"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass
class Term:
    """A required term: which pods it means (labels, namespaces) and within which topology."""

    selector: Selector
    namespaces: set[str]
    namespace_selector: Selector
    key: str

    def means(self, pod: Json, namespace_labels: Json) -> bool:
        """Whether the pod is meant, its namespace having these labels."""
        inside = namespace_of(pod) in self.namespaces or matches(self.namespace_selector, namespace_labels)
        return inside and matches(self.selector, labels_of(pod))


def terms(pod: Json, raw_terms: list[Json] | None) -> list[Term]:
    result = []
    for raw in raw_terms or []:
        selector = label_selector(raw.get("labelSelector"))
        namespace_selector = label_selector(raw.get("namespaceSelector"))
        namespaces = set(raw.get("namespaces") or [])
        if not namespaces and raw.get("namespaceSelector") is None:
            namespaces = {namespace_of(pod)}
        result.append(Term(selector, namespaces, namespace_selector, raw.get("topologyKey") or ""))
    return result


def affinity(pod: Json, kind: str, strength: str) -> list[Json]:
    raw = (pod["spec"].get("affinity") or {}).get(kind) or {}
    if strength == PREFERRED:
        return [weighted.get("podAffinityTerm") or {} for weighted in raw.get(PREFERRED) or []]
    return raw.get(REQUIRED) or []


LISTS = (
    ("requiredAffinityTerms", "podAffinity", REQUIRED),
    ("requiredAntiAffinityTerms", "podAntiAffinity", REQUIRED),
    ("preferredAffinityTerms", "podAffinity", PREFERRED),
    ("preferredAntiAffinityTerms", "podAntiAffinity", PREFERRED),
)


def parsing_problem(pod: Json) -> str | None:
    problems = []
    for title, kind, strength in LISTS:
        try:
            terms(pod, affinity(pod, kind, strength))
        except SelectorError as problem:
            problems.append(f"{title}: {problem}")
    if not problems:
        return None
    return "parsing pod: " + (problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")


def anti_terms_of_placed(placed: Json) -> list[Term]:
    try:
        return terms(placed, affinity(placed, "podAntiAffinity", REQUIRED))
    except SelectorError:
        return []


def resolved(term: Term, cluster: Cluster) -> Term:
    """An incoming pod's term: the selected namespaces are listed once, then only names count.

    `{}` stays what it is: it also means namespaces that have no object.
    """
    if not term.namespace_selector:
        return term
    selected = {
        entry["metadata"]["name"]
        for entry in cluster.all("Namespace")
        if matches(term.namespace_selector, labels_of(entry))
    }
    return Term(term.selector, term.namespaces | selected, None, term.key)


@dataclass
class Counts:
    affinity_terms: list[Term]
    anti_terms: list[Term]
    existing_anti: Counter[tuple[str, str]]
    affinity: Counter[tuple[str, str]]
    anti: Counter[tuple[str, str]]


def pre_filter(pod: Json, cluster: Cluster) -> PreFiltered:
    problem = parsing_problem(pod)
    if problem:
        return PreFiltered(unresolvable(problem))
    own = [resolved(term, cluster) for term in terms(pod, affinity(pod, "podAffinity", REQUIRED))]
    own_anti = [resolved(term, cluster) for term in terms(pod, affinity(pod, "podAntiAffinity", REQUIRED))]
    namespace = cluster.get("Namespace", namespace_of(pod))
    namespace_labels = labels_of(namespace) if namespace else {}
    counts = Counts(own, own_anti, Counter(), Counter(), Counter())
    for node in cluster.nodes:
        for placed in node.pods:
            for term in anti_terms_of_placed(placed):
                if term.key in node.labels and term.means(pod, namespace_labels):
                    counts.existing_anti[term.key, node.labels[term.key]] += 1
            if own and all(term.means(placed, {}) for term in own):
                for term in own:
                    if term.key in node.labels:
                        counts.affinity[term.key, node.labels[term.key]] += 1
            for term in own_anti:
                if term.key in node.labels and term.means(placed, {}):
                    counts.anti[term.key, node.labels[term.key]] += 1
    if not counts.existing_anti and not own and not own_anti:
        return PreFiltered(SKIPPED)
    return PreFiltered(state=counts)


def check(state: Counts, pod: Json, node: NodeState, cluster: Cluster) -> Status | None:
    if not affinity_holds(state, pod, node):
        return unresolvable("node(s) didn't match pod affinity rules")
    for term in state.anti_terms:
        if term.key in node.labels and state.anti[term.key, node.labels[term.key]] > 0:
            return unschedulable("node(s) didn't match pod anti-affinity rules")
    for key, value in node.labels.items():
        if state.existing_anti[key, value] > 0:
            return unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")
    return None


def affinity_holds(state: Counts, pod: Json, node: NodeState) -> bool:
    if not all(term.key in node.labels for term in state.affinity_terms):
        return False
    if all(state.affinity[term.key, node.labels[term.key]] > 0 for term in state.affinity_terms):
        return True
    # The first pod of its kind: no fully matching pod anywhere (that a key can see), and it would match itself.
    return not +state.affinity and all(term.means(pod, {}) for term in state.affinity_terms)
