"""Karpenter's API objects: NodePools, NodeClaims and references to node classes, with the checks of the API server.

Upstream: ``sigs.k8s.io/karpenter/pkg/apis/v1`` (``nodepool.go``, ``nodeclaim.go``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec

from kscale.capacity.consolidation.budgets import DisruptionBudget, PoolDisruption
from kscale.capacity.karpenter.requirements import Operator, Requirement, Requirements, requirement
from kscale.errors import InputError, Problem
from kscale.files import read_input
from kscale.imports import lazy_pattern
from kscale.objects.api.core import Taint
from kscale.objects.api.meta import ApiStruct, KubeObject, ObjectMeta, ResourceList
from kscale.objects.argument_types import typed
from kscale.objects.decode import from_dict
from kscale.objects.go_numbers import parse_int64
from kscale.objects.times import parse_duration
from kscale.snapshot.text.documents import placed_documents
from kscale.snapshot.text.files import decompress

__all__ = [
    "Budget",
    "Disruption",
    "NodeClaim",
    "NodeClassReference",
    "NodePool",
    "NodePoolRequirement",
    "NodePools",
    "node_pools_from",
    "read_node_pools",
]

GROUP = "karpenter.sh"
NODE_POOL, CAPACITY_TYPE = f"{GROUP}/nodepool", f"{GROUP}/capacity-type"
NODE_CLASSES = ("EC2NodeClass", "AKSNodeClass", "GCENodeClass")
_BUDGET = lazy_pattern(r"(100|[0-9]{1,2})%|[0-9]+")
_DURATION = lazy_pattern(r"([0-9]+(s|m|h))+|Never")
_POLICIES = ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")
_INTEGER_OPERATORS = (Operator.GT, Operator.LT, Operator.GTE, Operator.LTE)


class NodePoolRequirement(ApiStruct):
    """A requirement on a label of new nodes. ``minValues``: how many values must stay possible."""

    key: str = ""
    operator: str = ""
    values: list[str] = msgspec.field(default_factory=list)
    min_values: int | None = None


class NodeClassReference(ApiStruct):
    """The provider's settings of new nodes, such as an EC2NodeClass."""

    group: str = ""
    kind: str = ""
    name: str = ""


class NodeClaimSpec(ApiStruct):
    """Requirements, taints and node class of new nodes. Pods need not tolerate ``startupTaints``."""

    taints: list[Taint] = msgspec.field(default_factory=list)
    startup_taints: list[Taint] = msgspec.field(default_factory=list)
    requirements: list[NodePoolRequirement] = msgspec.field(default_factory=list)
    node_class_ref: NodeClassReference = msgspec.field(default_factory=NodeClassReference)
    expire_after: str = ""
    termination_grace_period: str = ""


class NodeClaimTemplate(ApiStruct):
    """Labels and spec of a NodePool's node claims."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: NodeClaimSpec = msgspec.field(default_factory=NodeClaimSpec)


class Budget(ApiStruct):
    """Maximum of nodes (a number or a percentage) that are disrupted at a time, with its times and reasons."""

    nodes: str = "10%"
    reasons: list[str] | None = None
    schedule: str | None = None
    duration: str | None = None


class Disruption(ApiStruct):
    """Rules for replacing and removing nodes."""

    consolidate_after: str = "0s"
    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    budgets: list[Budget] = msgspec.field(default_factory=lambda: [Budget()])


class NodePoolSpec(ApiStruct):
    """Template, limits, priority (``weight``) and disruption rules of a NodePool."""

    template: NodeClaimTemplate = msgspec.field(default_factory=NodeClaimTemplate)
    disruption: Disruption = msgspec.field(default_factory=Disruption)
    limits: ResourceList | None = None
    weight: int | None = None
    replicas: int | None = None


class NodePool(KubeObject):
    """A NodePool of Karpenter (``karpenter.sh/v1``)."""

    spec: NodePoolSpec = msgspec.field(default_factory=NodePoolSpec)

    def requirements(self) -> Requirements:
        """Return the requirements on the labels of the pool's nodes: its requirements, labels, name and node class."""
        labels = {NODE_POOL: self.name}
        reference = self.spec.template.spec.node_class_ref
        if reference.kind:
            labels[f"{reference.group}/{reference.kind.lower()}"] = reference.name
        return self.template_requirements().with_(_label(*item) for item in labels.items())

    def template_requirements(self) -> Requirements:
        """Return the requirements and labels in the pool's template, without the pool's name and node class."""
        labels = self.spec.template.metadata.labels or {}
        requirements = self.spec.template.spec.requirements
        return Requirements([*map(_requirement, requirements), *(_label(*item) for item in labels.items())])

    def disruption(self) -> PoolDisruption:
        """Return the rules by which a path of :func:`kscale.consolidate` removes nodes of the pool.

        The policy ``Balanced`` counts as ``WhenEmptyOrUnderutilized``.
        """
        rules = self.spec.disruption
        after = None
        if rules.consolidate_after != "Never":
            after = timedelta(microseconds=parse_duration(rules.consolidate_after) // 1000)
        return PoolDisruption(
            name=self.name,
            budgets=[_convert_budget(budget) for budget in rules.budgets],
            only_empty=rules.consolidation_policy == "WhenEmpty",
            consolidate_after=after,
        )


class NodeClaimStatus(ApiStruct):
    """Status of a node claim."""

    node_name: str = ""
    provider_id: str = msgspec.field(default="", name="providerID")
    capacity: ResourceList | None = None
    allocatable: ResourceList | None = None


class NodeClaim(KubeObject):
    """A machine that Karpenter requested."""

    spec: NodeClaimSpec = msgspec.field(default_factory=NodeClaimSpec)
    status: NodeClaimStatus = msgspec.field(default_factory=NodeClaimStatus)


def _requirement(item: NodePoolRequirement) -> Requirement:
    """Convert a requirement of a NodePool."""
    return requirement(item.key, item.operator, item.values, item.min_values)


def _label(key: str, value: str) -> Requirement:
    """Return the requirement that the label ``key`` has this value."""
    return requirement(key, Operator.IN, [value])


@dataclass(frozen=True, slots=True)
class NodePools:
    """The objects of a file.

    Attributes
    ----------
    pools : list of NodePool
        In the order in which Karpenter tries them: by weight, then the name later in the alphabet.
    claims : list of NodeClaim
        Node claims; those without a node count towards their pool's limits.
    classes : list of str
        ``Kind/name`` of the node classes.
    """

    pools: list[NodePool]
    claims: list[NodeClaim] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)


@typed
def read_node_pools(path: str | os.PathLike[str]) -> NodePools:
    """Read NodePools, and node claims and classes beside them, from a YAML or JSON file.

    Raises
    ------
    InputError
        If the file cannot be read or has mistakes; the error lists every mistake.
    """
    text = decompress(read_input(path), str(path))
    if isinstance(text, Problem):
        raise InputError(text)
    documents = placed_documents(bytes(text), str(path))
    if problems := [document for _, document in documents if isinstance(document, Problem)]:
        raise InputError(problems)
    return node_pools_from([document for _, document in documents], source=str(path))


@typed
def node_pools_from(data: Sequence[Any], *, source: str = "") -> NodePools:
    """Decode NodePools, node claims and node classes from plain data.

    Parameters
    ----------
    data : sequence of dict
        The objects; a List stands for its items.
    source : str
        Name of the data in problems.

    Returns
    -------
    NodePools
        Pools in the order in which Karpenter tries them.

    Raises
    ------
    InputError
        With every mistake: unknown operators, values that an operator cannot have, names of NodePools that come twice,
        node classes that are missing although others of their kind are there, bad limits, taints, budgets and weights,
        other kinds, no NodePool.
    """
    result = NodePools([])
    problems: list[Problem] = []
    for item in _items(data):
        kind = item.get("kind") if isinstance(item, dict) else None
        metadata = item.get("metadata") if isinstance(item, dict) else None
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        place = f"{kind} {name}"
        if kind in NODE_CLASSES:
            result.classes.append(f"{kind}/{name}")
            continue
        if kind not in ("NodePool", "NodeClaim"):
            text = f"kind {kind}: NodePool, NodeClaim and {', '.join(NODE_CLASSES)} are known beside each other"
            problems.append(Problem(text, source))
            continue
        try:
            if kind == "NodePool":
                pool = from_dict(item, NodePool, source=source, object_path=place)
                mistakes = [Problem(text, source, place, field) for field, text in _find_errors(pool)]
                if any(pool.name == other.name for other in result.pools):
                    mistakes.append(Problem("the name comes twice", source, place, "metadata.name"))
                problems += mistakes
                result.pools.append(pool)
            else:
                result.claims.append(from_dict(item, NodeClaim, source=source, object_path=place))
        except InputError as error:
            problems += error.problems
    if not result.pools and not problems:
        problems.append(Problem("no NodePool in it", source))
    known = {each.partition("/")[0] for each in result.classes}
    for pool in result.pools:
        reference = pool.spec.template.spec.node_class_ref
        if reference.kind in known and f"{reference.kind}/{reference.name}" not in result.classes:
            text = f"there is no {reference.kind} {reference.name} in the file"
            problems.append(Problem(text, source, f"NodePool {pool.name}", "spec.template.spec.nodeClassRef.name"))
    if problems:
        raise InputError(problems)
    result.pools.sort(key=lambda pool: pool.name, reverse=True)
    result.pools.sort(key=lambda pool: -(pool.spec.weight or 0))
    return result


def _items(data: Sequence[Any]) -> Iterator[Any]:
    """Yield the objects in documents: the items of a List and of a list, otherwise the document itself."""
    for document in data:
        if isinstance(document, dict) and str(document.get("kind", "")).endswith("List"):
            yield from document.get("items") or ()
        elif isinstance(document, list):
            yield from document
        else:
            yield document


def _find_errors(pool: NodePool) -> Iterator[tuple[str, str]]:
    """Yield (field, message) for each value that the API server would reject or kscale does not support."""
    if not pool.name:
        yield "metadata.name", "is empty"
    spec = pool.spec
    if spec.weight is not None and not 1 <= spec.weight <= 100:
        yield "spec.weight", f"{spec.weight} is not between 1 and 100"
    if spec.replicas is not None:
        yield "spec.replicas", "a NodePool with a fixed number of nodes is not supported"
    for name, amount in (spec.limits or {}).items():
        if amount.sign < 0:
            yield f"spec.limits[{name}]", f"{amount} is negative"
    for number, item in enumerate(spec.template.spec.requirements):
        for message in _find_requirement_errors(item):
            yield f"spec.template.spec.requirements[{number}]", message
    for taints in ("taints", "startup_taints"):
        for number, taint in enumerate(getattr(spec.template.spec, taints)):
            if not taint.key or taint.effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
                yield f"spec.template.spec.{taints}[{number}]", f'"{taint.key}:{taint.effect}" is no taint'
    yield from _find_disruption_errors(spec.disruption)


def _find_disruption_errors(disruption: Disruption) -> Iterator[tuple[str, str]]:
    """Yield (field, message) for each mistake in the disruption rules."""
    if _DURATION.fullmatch(disruption.consolidate_after) is None:
        yield "spec.disruption.consolidateAfter", f'"{disruption.consolidate_after}" is neither a duration nor Never'
    if disruption.consolidation_policy not in _POLICIES:
        policies = ", ".join(_POLICIES)
        yield "spec.disruption.consolidationPolicy", f'"{disruption.consolidation_policy}" is not one of {policies}'
    for number, budget in enumerate(disruption.budgets):
        if _BUDGET.fullmatch(budget.nodes) is None:
            yield f"spec.disruption.budgets[{number}].nodes", f'"{budget.nodes}" is neither a number nor a percentage'
        elif (budget.schedule is None) != (budget.duration is None):
            yield f"spec.disruption.budgets[{number}]", "schedule and duration need each other"
        else:
            for problem in _convert_budget(budget).problems(""):
                yield f"spec.disruption.budgets[{number}]", problem.message


def _convert_budget(budget: Budget) -> DisruptionBudget:
    """Convert a NodePool's budget to the budget of a consolidation path."""
    return DisruptionBudget(
        nodes=budget.nodes, schedule=budget.schedule, duration=budget.duration, reasons=budget.reasons
    )


def _find_requirement_errors(item: NodePoolRequirement) -> Iterator[str]:
    """Yield a message for each mistake of a requirement."""
    if not item.key:
        yield "key is empty"
    if item.operator not in tuple(Operator):
        yield f'operator "{item.operator}" is not one of {", ".join(Operator)}'
        return
    operator = Operator(item.operator)
    if item.key in ("kubernetes.io/hostname", NODE_POOL):
        yield f"{item.key} cannot be required of nodes that do not exist yet"
    if operator in _INTEGER_OPERATORS:
        number = parse_int64(item.values[0]) if len(item.values) == 1 else None
        if number is None or number < 0:
            yield f"{operator} needs one value, an integer from 0 on"
    elif operator is Operator.IN and not item.values:
        yield "In needs at least one value"
    elif operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST) and item.values:
        yield f"{operator} has no values"
    if item.min_values is not None:
        if not 1 <= item.min_values <= 50:
            yield f"minValues {item.min_values} is not between 1 and 50"
        elif operator is Operator.IN and len(set(item.values)) < item.min_values:
            yield f"minValues {item.min_values}: there are only {len(set(item.values))} values"
