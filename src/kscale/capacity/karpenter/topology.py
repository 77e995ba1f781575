"""Topology of a scheduling round: pods by domain for spread constraints and for affinity and anti-affinity to pods.

Upstream: ``sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling`` (``topology.go``, ``topologygroup.go``,
``topologydomaingroup.go``, ``topologynodefilter.go``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kscale.capacity.karpenter.requirements import Operator, Requirement, Requirements, requirement
from kscale.objects.api.core import PodAffinityTerm, Taint, Toleration, TopologySpreadConstraint
from kscale.objects.api.meta import LabelSelector, LabelSelectorRequirement
from kscale.objects.node_selectors import HOSTNAME
from kscale.objects.selectors import EVERYTHING, NOTHING, Selector, SelectorError, compile_selector
from kscale.objects.taints import tolerates_all

__all__ = ["ALL_EFFECTS", "DomainChoice", "PlacedPod", "PodTopology", "Topology", "TopologyNode", "choose_first"]

ALL_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
DomainGroup = Mapping[str, Sequence[Sequence[Taint]]]
"""Domains of a label that NodePools can provide, with the taints of the NodePools that do."""
DomainChoice = Callable[[int, str, Sequence[str]], str]
"""Chooses one of several equally good domains, for the number of a pod and a label."""


def choose_first(_pod: int, _key: str, domains: Sequence[str]) -> str:
    """Return the domain that comes first in alphabetical order."""
    return min(domains)


class TopologyType(StrEnum):
    """Kinds of constraints that a topology group counts pods for."""

    SPREAD = "topology spread"
    AFFINITY = "pod affinity"
    ANTI_AFFINITY = "pod anti-affinity"


@dataclass(frozen=True, slots=True)
class PodTopology:
    """Topology constraints of a pod after some of its preferences were dropped.

    Attributes
    ----------
    namespace, labels
        Those of the pod.
    tolerations : sequence of Toleration
        Those of the pod.
    effects : sequence of str
        Effects of taints that the pod must tolerate.
    node_selector : mapping
        The pod's node selector.
    terms : sequence of Requirements
        Terms of the required node affinity that are left; None without node affinity.
    spread : sequence of TopologySpreadConstraint
        Spread constraints that are left.
    affinity, anti_affinity : sequence of PodAffinityTerm
        Required terms, and preferred ones that are left.
    required_anti_affinity : sequence of PodAffinityTerm
        Required terms alone.
    """

    namespace: str
    labels: Mapping[str, str]
    tolerations: Sequence[Toleration]
    effects: Sequence[str]
    node_selector: Mapping[str, str]
    terms: Sequence[Requirements] | None
    spread: Sequence[TopologySpreadConstraint]
    affinity: Sequence[PodAffinityTerm]
    anti_affinity: Sequence[PodAffinityTerm]
    required_anti_affinity: Sequence[PodAffinityTerm]

    @property
    def only_tightens(self) -> bool:
        """Check whether placing other pods never makes room: a node that refuses such a pod also refuses it later."""
        return not self.affinity and all(each.topology_key == HOSTNAME for each in self.spread)


@dataclass(frozen=True, slots=True)
class TopologyNode:
    """A node that exists: its name, labels, the labels as requirements, and taints."""

    name: str
    labels: Mapping[str, str]
    requirements: Requirements
    taints: Sequence[Taint]


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod on a node that exists. ``node``: position of the node."""

    node: int
    namespace: str
    labels: Mapping[str, str]
    is_terminating: bool
    tolerations: Sequence[Toleration]
    anti_affinity: Sequence[PodAffinityTerm]


@dataclass(frozen=True, slots=True)
class _NodeFilter:
    """Which nodes count for a spread constraint. The default lets every node count."""

    requirements: Sequence[Requirements] = ()
    honors_affinity: bool = False
    honors_taints: bool = False
    tolerations: Sequence[Toleration] = ()
    effects: Sequence[str] = ALL_EFFECTS

    def matches(self, taints: Sequence[Taint], requirements: Requirements) -> bool:
        """Check whether a node with these taints and requirements counts for the spread constraint."""
        if (
            self.honors_affinity
            and self.requirements
            and not any(requirements.is_compatible(each) for each in self.requirements)
        ):
            return False
        return not self.honors_taints or tolerates_all(
            self.tolerations, taints, effects=self.effects, comparison_operators=True
        )


@dataclass(slots=True, eq=False)
class _TopologyGroup:
    """Pods that a selector matches, by domain."""

    type: TopologyType
    key: str
    namespaces: frozenset[str]
    selector: Selector
    listed: Selector
    """Selects the running pods that count; unlike ``selector`` it selects all pods if the constraint has none."""
    max_skew: int
    min_domains: int | None
    node_filter: _NodeFilter
    domains: dict[str, int]
    empty: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.empty = set(self.domains)

    def record(self, domains: Iterable[str]) -> None:
        """Count one more pod in each of the domains."""
        for domain in domains:
            self.domains[domain] = self.domains.get(domain, 0) + 1
            self.empty.discard(domain)

    def register(self, domain: str) -> None:
        """Add a domain without pods. Does nothing if it exists."""
        if domain not in self.domains:
            self.domains[domain] = 0
            self.empty.add(domain)

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Check whether the group counts a pod with this namespace and these labels."""
        return namespace in self.namespaces and self.selector.matches(labels)

    def next_domains(
        self, pod: int, is_selected: bool, pod_domains: Requirement, node_domains: Requirement, choose: DomainChoice
    ) -> Requirement:
        """Return the requirement that selects the domains to which the pod may go; without values if there are none.

        ``pod``: number of the pod. ``is_selected``: whether the group counts the pod. ``pod_domains``,
        ``node_domains``: domains that the pod and the node allow. ``choose``: called with (number of the pod, label,
        equally good domains), returns one of them.
        """
        match self.type:
            case TopologyType.SPREAD:
                domain = self._next_spread(pod, is_selected, pod_domains, node_domains, choose)
                domains: Iterable[str] = () if domain is None else (domain,)
            case TopologyType.AFFINITY:
                domains = self._next_affinity(pod, is_selected, pod_domains, node_domains, choose)
            case TopologyType.ANTI_AFFINITY:
                domains = self._next_anti_affinity(pod_domains, node_domains)
        return Requirement(self.key, frozenset(domains))

    def _next_spread(
        self, pod: int, is_selected: bool, pod_domains: Requirement, node_domains: Requirement, choose: DomainChoice
    ) -> str | None:
        """Return the domain of the node with the fewest pods in which the pod keeps the maximum skew; None if none.

        Parameters as for :meth:`next_domains`.
        """
        if self.key == HOSTNAME and len(node_domains.values) == 1:
            # Another node can always be created, so that the smallest count is zero.
            (host,) = node_domains.values
            return host if self.domains.get(host, 0) + is_selected <= self.max_skew else None
        minimum = self._minimum(pod_domains)
        if node_domains.operator is Operator.IN:
            allowed: Iterable[str] = [domain for domain in node_domains.values if domain in self.domains]
        else:
            allowed = [domain for domain in self.domains if node_domains.allows(domain)]
        counts = {domain: self.domains[domain] for domain in allowed}
        valid = [domain for domain in counts if counts[domain] + is_selected - minimum <= self.max_skew]
        if not valid:
            return None
        fewest = min(counts[domain] for domain in valid)
        return choose(pod, self.key, [domain for domain in valid if counts[domain] == fewest])

    def _minimum(self, domains: Requirement) -> int:
        """Return the number of pods from which the skew is counted: the lowest in any domain that ``domains`` allows.

        0 for host names, and if fewer domains than ``minDomains`` are allowed. 2**31 - 1 if none is.
        """
        if self.key == HOSTNAME:
            return 0
        counts = [count for domain, count in self.domains.items() if domains.allows(domain)]
        if self.min_domains is not None and len(counts) < self.min_domains:
            return 0
        return min(counts, default=2**31 - 1)

    def _next_affinity(
        self, pod: int, is_selected: bool, pod_domains: Requirement, node_domains: Requirement, choose: DomainChoice
    ) -> Collection[str]:
        """Return the domains with pods of the group that both the pod and the node allow; empty if there are none.

        If no domain that the pod allows has such pods, and the group counts this pod, the result is one domain: one
        that both allow, else one that the pod allows. Parameters as for :meth:`next_domains`.
        """
        if self.key == HOSTNAME and len(node_domains.values) == 1:
            (host,) = node_domains.values
            if not pod_domains.allows(host):
                return ()
            if self.domains.get(host, 0) > 0 or (is_selected and self._is_first(pod_domains)):
                return (host,)
            return ()
        if node_domains.operator is Operator.IN:
            candidates: Iterable[str] = node_domains.values
        else:
            candidates = [domain for domain in self.domains if node_domains.allows(domain)]
        occupied = [each for each in candidates if pod_domains.allows(each) and self.domains.get(each, 0) > 0]
        if occupied or not (is_selected and self._is_first(pod_domains)):
            return occupied
        # The first pod of the group may go anywhere: to a domain of the node, if there is one.
        both = pod_domains.intersection(node_domains)
        here = [domain for domain in self.domains if both.allows(domain)]
        if here:
            return (choose(pod, self.key, here),)
        anywhere = [domain for domain in self.domains if pod_domains.allows(domain)]
        return (choose(pod, self.key, anywhere),) if anywhere else ()

    def _is_first(self, pod_domains: Requirement) -> bool:
        """Check whether no pod of the group is in a domain to which the pod may go."""
        return len(self.domains) == len(self.empty) or not any(
            count > 0 and pod_domains.allows(domain) for domain, count in self.domains.items()
        )

    def _next_anti_affinity(self, pod_domains: Requirement, node_domains: Requirement) -> Collection[str]:
        """Return the domains without pods of the group that both the pod and the node allow; may be empty."""
        if self.key == HOSTNAME and len(node_domains.values) == 1:
            (host,) = node_domains.values
            return () if self.domains.get(host, 0) else (host,)
        return [domain for domain in self.empty if node_domains.allows(domain) and pod_domains.allows(domain)]


class Topology:
    """The topology groups of a scheduling round, and where their pods are.

    Parameters
    ----------
    domains : callable
        Returns the domains of a label that NodePools can provide, with the taints of those NodePools.
    nodes : sequence of TopologyNode
        The nodes that exist.
    placed : sequence of PlacedPod
        The pods on them.
    namespaces : mapping
        Labels of each namespace that exists.
    choose : callable
        Chooses one of several equally good domains; upstream takes any of them.
    """

    def __init__(
        self,
        domains: Callable[[str], DomainGroup],
        nodes: Sequence[TopologyNode],
        placed: Sequence[PlacedPod],
        namespaces: Mapping[str, Mapping[str, str] | None],
        choose: DomainChoice = choose_first,
    ) -> None:
        self._domains, self._nodes, self._placed, self._namespaces = domains, nodes, placed, namespaces
        self._choose = choose
        self._groups: dict[Any, _TopologyGroup] = {}
        self._inverse: dict[Any, _TopologyGroup] = {}
        self._owned: dict[int, list[tuple[_TopologyGroup, bool]]] = {}
        self._inverse_owned: dict[int, list[_TopologyGroup]] = {}
        self._selecting: dict[tuple[bool, int], tuple[int, list[_TopologyGroup]]] = {}
        for pod in placed:
            if pod.anti_affinity:
                view = PodTopology(
                    pod.namespace, pod.labels, pod.tolerations, ALL_EFFECTS, {}, None, (), (), (), pod.anti_affinity
                )
                labels = nodes[pod.node].labels
                for group in self._inverse_groups(view):
                    if group.key in labels:
                        group.record([labels[group.key]])

    # -- groups ------------------------------------------------------------------------------------------------------

    def update(self, pod: PodTopology) -> list[tuple[_TopologyGroup, bool]]:
        """Return (group, whether it counts such pods) for each group of a pod with these constraints.

        Groups that do not exist are created. ``pod`` must live as long as the topology.
        """
        owned = self._owned.get(id(pod))
        if owned is None:
            self._inverse_owned[id(pod)] = self._inverse_groups(pod)
            groups: dict[int, _TopologyGroup] = {}
            for key, make in self._keys(pod):
                group = self._groups.get(key)
                if group is None:
                    group = self._groups[key] = make()
                    self._count(group)
                groups[id(group)] = group
            owned = [(group, group.selects(pod.namespace, pod.labels)) for group in groups.values()]
            self._owned[id(pod)] = owned
        return owned

    def _keys(self, pod: PodTopology) -> Iterator[tuple[Any, Callable[[], _TopologyGroup]]]:
        """Yield (key of the group, function that creates the group) for each spread constraint and term of a pod.

        Pods with equal keys share a group.
        """
        for constraint in pod.spread:
            selector = _with_label_keys(constraint, pod.labels)
            node_filter = _NodeFilter(
                _filter_requirements(pod),
                constraint.node_affinity_policy != "Ignore",
                constraint.node_taints_policy == "Honor",
                pod.tolerations,
                pod.effects,
            )
            namespaces = frozenset({pod.namespace})
            # Upstream's hash of requirements reads their labels and minValues, but not their values.
            key = (
                TopologyType.SPREAD,
                constraint.topology_key,
                namespaces,
                constraint.max_skew,
                _odd(frozenset(each) for each in node_filter.requirements),
                node_filter.honors_affinity,
                node_filter.honors_taints,
                _tolerations_key(pod),
                _selector_key(selector),
            )

            def make(
                constraint: TopologySpreadConstraint = constraint,
                namespaces: frozenset[str] = namespaces,
                selector: LabelSelector | None = selector,
                node_filter: _NodeFilter = node_filter,
            ) -> _TopologyGroup:
                """Create the group of the spread constraint."""
                skew, minimum = constraint.max_skew, constraint.min_domains
                return self._make(
                    TopologyType.SPREAD, constraint.topology_key, pod, namespaces, selector, skew, minimum, node_filter
                )

            yield key, make
        for kind, terms in ((TopologyType.AFFINITY, pod.affinity), (TopologyType.ANTI_AFFINITY, pod.anti_affinity)):
            for term in terms:
                yield self._get_term_group(kind, term, pod)

    def _get_term_group(
        self, kind: TopologyType, term: PodAffinityTerm, pod: PodTopology
    ) -> tuple[Any, Callable[[], _TopologyGroup]]:
        """Return (key, function that creates the group) of an affinity or anti-affinity term."""
        namespaces = self._namespaces_of(term, pod.namespace)

        def make() -> _TopologyGroup:
            """Create the group of the term."""
            skew = 2**31 - 1
            return self._make(kind, term.topology_key, pod, namespaces, term.label_selector, skew, None, _NodeFilter())

        return (kind, term.topology_key, namespaces, _selector_key(term.label_selector)), make

    def _namespaces_of(self, term: PodAffinityTerm, own: str) -> frozenset[str]:
        """Return the namespaces of a term.

        ``own``: the pod's namespace, which counts if the term names and selects none.
        """
        if term.namespace_selector is None:
            return frozenset(term.namespaces or (own,))
        selector = compile_selector(term.namespace_selector)
        selected = {name for name, labels in self._namespaces.items() if selector.matches(labels or {})}
        return frozenset(selected | set(term.namespaces))

    def _make(
        self,
        kind: TopologyType,
        key: str,
        pod: PodTopology,
        namespaces: frozenset[str],
        selector: LabelSelector | None,
        max_skew: int,
        min_domains: int | None,
        node_filter: _NodeFilter,
    ) -> _TopologyGroup:
        """Create a group without pods, with the domains of the label ``key`` that the NodePools offer to a pod.

        A group with an invalid selector counts no pod.
        """
        try:
            compiled = compile_selector(selector)
        except SelectorError:
            compiled = NOTHING
        # Only spread constraints ignore the taints of NodePools, unless their policy honors them.
        ignores_taints = kind is TopologyType.SPREAD and not node_filter.honors_taints
        domains = [
            domain
            for domain, alternatives in self._domains(key).items()
            if ignores_taints
            or any(
                tolerates_all(pod.tolerations, taints, effects=pod.effects, comparison_operators=True)
                for taints in alternatives
            )
        ]
        listed = EVERYTHING if selector is None else compiled
        return _TopologyGroup(
            kind, key, namespaces, compiled, listed, max_skew, min_domains, node_filter, dict.fromkeys(domains, 0)
        )

    def _inverse_groups(self, pod: PodTopology) -> list[_TopologyGroup]:
        """Return the groups of a pod's required anti-affinity terms, which keep pods that a term selects away.

        Groups that do not exist are created.
        """
        groups: dict[int, _TopologyGroup] = {}
        for term in pod.required_anti_affinity:
            key, make = self._get_term_group(TopologyType.ANTI_AFFINITY, term, pod)
            group = self._inverse.get(key)
            if group is None:
                group = self._inverse[key] = make()
            groups[id(group)] = group
        return list(groups.values())

    def _count(self, group: _TopologyGroup) -> None:
        """Add the domains of the existing nodes to a new group, and count the pods on them.

        Pods that are being deleted do not count.
        """
        matches = [group.node_filter.matches(node.taints, node.requirements) for node in self._nodes]
        for node, counts in zip(self._nodes, matches, strict=True):
            if counts and group.key in node.labels:
                group.register(node.labels[group.key])
        for pod in self._placed:
            if pod.is_terminating or pod.namespace not in group.namespaces or not group.listed.matches(pod.labels):
                continue
            node = self._nodes[pod.node]
            domain = node.labels.get(group.key, node.name if group.key == HOSTNAME else None)
            if domain is not None and matches[pod.node]:
                group.record([domain])

    # -- a pod -------------------------------------------------------------------------------------------------------

    def requirements_for(
        self, number: int, pod: PodTopology, strict: Requirements, node: Requirements
    ) -> list[Requirement] | None:
        """Return what the topology requires of a node for a pod; None if no domain is left.

        Parameters
        ----------
        number : int
            Number of the pod.
        pod : PodTopology
            Topology constraints of the pod.
        strict : Requirements
            The pod's requirements without preferences.
        node : Requirements
            Those of the node, together with the pod's.

        Returns
        -------
        list of Requirement or None
            One for each group: the domains to which the pod may go. Empty if no group concerns the pod.
        """
        result = []
        inverse = ((group, True) for group in self._selected(True, pod))
        for group, is_selected in (*self.update(pod), *inverse):
            domains = group.next_domains(
                number, is_selected, strict.requirement_for(group.key), node.requirement_for(group.key), self._choose
            )
            if not domains.values:
                return None
            result.append(domains)
        return result

    def _selected(self, inverse: bool, pod: PodTopology) -> list[_TopologyGroup]:
        """Return the groups (with ``inverse``: those of other pods' anti-affinity) that count a pod."""
        groups = self._inverse if inverse else self._groups
        key = inverse, id(pod)
        cached = self._selecting.get(key)
        if cached is None or cached[0] != len(groups):
            selecting = [group for group in groups.values() if group.selects(pod.namespace, pod.labels)]
            cached = self._selecting[key] = len(groups), selecting
        return cached[1]

    def record(self, pod: PodTopology, taints: Sequence[Taint], node: Requirements) -> None:
        """Count a pod that was placed on a node with these taints and requirements, in every group that concerns it.

        Spread and affinity groups count the pod only if the node's domain is already certain.
        """
        for group in self._selected(False, pod):
            if not group.node_filter.matches(taints, node):
                continue
            domains = node.requirement_for(group.key)
            if group.type is TopologyType.ANTI_AFFINITY or (not domains.complement and len(domains.values) == 1):
                group.record(domains.values)
        for group in self._inverse_owned.get(id(pod), ()):
            group.record(node.requirement_for(group.key).values)

    def register(self, key: str, domain: str) -> None:
        """Add a domain (a value of the label ``key``) to the groups of that label."""
        for group in (*self._groups.values(), *self._inverse.values()):
            if group.key == key:
                group.register(domain)


def _with_label_keys(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> LabelSelector | None:
    """Return the selector of a constraint (None if it has none), narrowed by the pod's values of ``matchLabelKeys``."""
    selector = constraint.label_selector
    more = [
        LabelSelectorRequirement(key=key, operator="In", values=[labels[key]])
        for key in constraint.match_label_keys
        if key in labels
    ]
    if not more:
        return selector
    if selector is None:
        return LabelSelector(match_expressions=more)
    return LabelSelector(match_labels=selector.match_labels, match_expressions=[*selector.match_expressions, *more])


def _filter_requirements(pod: PodTopology) -> list[Requirements]:
    """Return the alternatives of which a node must meet one: the node selector with each term of the node affinity."""
    base = [requirement(key, Operator.IN, [value]) for key, value in pod.node_selector.items()]
    if pod.terms is None:
        return [Requirements(base)]
    return [Requirements([*base, *term.values()]) for term in pod.terms]


def _selector_key(selector: LabelSelector | None) -> Any:
    """Return a hashable key that is equal for selectors that upstream's hash does not distinguish."""
    if selector is None:
        return None
    expressions = frozenset((each.key, each.operator, _odd(each.values)) for each in selector.match_expressions)
    return frozenset((selector.match_labels or {}).items()), expressions


def _tolerations_key(pod: PodTopology) -> Any:
    """Return a hashable key that is equal for pods whose tolerations upstream's hash does not distinguish."""
    fields = ((each.key, each.operator, each.value, each.effect, each.toleration_seconds) for each in pod.tolerations)
    return _odd(fields), tuple(pod.effects)


def _odd(items: Iterable[Any]) -> frozenset[Any]:
    """Return the items that occur an odd number of times: upstream's hash of a list as a set cancels equal pairs."""
    return frozenset(item for item, count in Counter(items).items() if count % 2)
