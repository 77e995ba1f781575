"""Requirements of a pod after some of its preferences were dropped.

Upstream: ``sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling/preferences.go`` and the requirements of pods
in ``pkg/scheduling/requirements.go``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kscale.capacity.karpenter.requirements import Operator, Requirement, Requirements, requirement
from kscale.capacity.karpenter.topology import ALL_EFFECTS, PodTopology
from kscale.objects.api.core import NodeAffinity, NodeSelectorTerm, Pod, PodAffinity

__all__ = ["REQUIRED_EFFECTS", "Alternative", "alternatives_of", "strict_requirements"]

_POD_OPERATORS = (
    Operator.IN,
    Operator.NOT_IN,
    Operator.EXISTS,
    Operator.DOES_NOT_EXIST,
    Operator.GT,
    Operator.LT,
)
_NEVER = requirement("metadata.name", Operator.IN, [""])
"""A label that no NodePool has."""
REQUIRED_EFFECTS = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Alternative:
    """Requirements of a pod after some of its preferences were dropped.

    Attributes
    ----------
    requirements : Requirements
        Those of the pod, with the heaviest preference that is left as if it were required.
    strict : Requirements
        The same without preferences.
    topology : PodTopology
        What the pod demands of the topology.
    """

    requirements: Requirements
    strict: Requirements
    topology: PodTopology

    @property
    def effects(self) -> Sequence[str]:
        """Return the effects of taints that the pod must tolerate."""
        return self.topology.effects


def alternatives_of(pod: Pod, *, tolerates_preferences: bool) -> Iterator[Alternative]:
    """Yield what a pod asks for: all preferences first, then with one less each time, as Karpenter drops them.

    ``tolerates_preferences``: whether taints with the effect PreferNoSchedule are tolerated in the end, which Karpenter
    does if a NodePool has such a taint.
    """
    spec = pod.spec
    node, near, apart = NodeAffinity(), PodAffinity(), PodAffinity()
    if spec.affinity is not None:
        node = spec.affinity.node_affinity or node
        near, apart = spec.affinity.pod_affinity or near, spec.affinity.pod_anti_affinity or apart
    selector = spec.node_selector or {}
    base = [requirement(key, Operator.IN, [value]) for key, value in selector.items()]
    required = None if node.required is None else list(node.required.node_selector_terms)
    preferred = sorted(node.preferred, key=lambda each: -each.weight)
    preferred_near = [each.pod_affinity_term for each in sorted(near.preferred, key=lambda each: -each.weight)]
    preferred_apart = [each.pod_affinity_term for each in sorted(apart.preferred, key=lambda each: -each.weight)]
    spread = list(spec.topology_spread_constraints or ())
    tolerates_all = any(
        (each.key, each.operator, each.value, each.effect) == ("", "Exists", "", "PreferNoSchedule")
        for each in spec.tolerations
    )
    effects: Sequence[str] = ALL_EFFECTS
    while True:
        strict = Requirements([*base, *(_expressions(required[0]) if required else ())])
        wanted = strict
        if preferred:
            wanted = Requirements([*base, *_expressions(preferred[0].preference), *strict.values()])
        yield Alternative(
            wanted,
            strict,
            PodTopology(
                namespace=pod.metadata.namespace or "default",
                labels=pod.metadata.labels or {},
                tolerations=spec.tolerations,
                effects=effects,
                node_selector=selector,
                terms=None if required is None else [Requirements(_expressions(term)) for term in required],
                spread=tuple(spread),
                affinity=(*near.required, *preferred_near),
                anti_affinity=(*apart.required, *preferred_apart),
                required_anti_affinity=tuple(apart.required),
            ),
        )
        soft = [i for i, each in enumerate(spread) if each.when_unsatisfiable == "ScheduleAnyway"]
        if required is not None and len(required) > 1:
            del required[0]
        elif preferred_near:
            del preferred_near[0]
        elif preferred_apart:
            del preferred_apart[0]
        elif preferred:
            del preferred[0]
        elif soft:  # the last constraint takes the place of the one that is dropped
            spread[soft[0]] = spread[-1]
            del spread[-1]
        elif tolerates_preferences and effects is ALL_EFFECTS and not tolerates_all:
            effects = REQUIRED_EFFECTS
        else:
            return


def strict_requirements(pod: Pod) -> list[Requirements]:
    """Return the required requirements of a pod: one for each term of its node affinity."""
    base = [requirement(key, Operator.IN, [value]) for key, value in (pod.spec.node_selector or {}).items()]
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    if required is None or not required.node_selector_terms:
        return [Requirements(base)]
    return [Requirements([*base, *_expressions(term)]) for term in required.node_selector_terms]


def _expressions(term: NodeSelectorTerm) -> list[Requirement]:
    """Return a term's requirements on labels.

    A malformed requirement, or one on the names of nodes, becomes one that no new node meets.
    """
    result = []
    for each in term.match_expressions:
        is_bound = each.operator in (Operator.GT, Operator.LT)
        is_valid = each.operator in _POD_OPERATORS and not (is_bound and not _is_one_integer(each.values))
        result.append(requirement(each.key, each.operator, each.values) if is_valid else _NEVER)
    return result + ([_NEVER] if term.match_fields else [])


def _is_one_integer(values: Sequence[str]) -> bool:
    """Check whether there is exactly one value, and it is an integer."""
    return len(values) == 1 and values[0].lstrip("+-").isdecimal() and values[0].isascii()
