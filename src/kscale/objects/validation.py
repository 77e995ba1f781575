"""What no API server would hold, found by name and path (for files; decisions themselves never validate)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kscale.objects.core import Container, LimitRange, Node, Pod
from kscale.objects.meta import KubeObject
from kscale.objects.quantity import Quantity

__all__ = ["Finding", "check"]

_TAINT_EFFECTS: Final = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})
_TOLERATION_OPERATORS: Final = frozenset({"", "Equal", "Exists", "Lt", "Gt"})
_RESTART_POLICIES: Final = frozenset({"", "Always", "OnFailure", "Never"})
_UNSATISFIABLE: Final = frozenset({"DoNotSchedule", "ScheduleAnyway"})
_SPREAD_POLICIES: Final = frozenset({None, "Honor", "Ignore"})
_PREEMPTION_POLICIES: Final = frozenset({None, "PreemptLowerPriority", "Never"})
_PHASES: Final = frozenset({"", "Pending", "Running", "Succeeded", "Failed", "Unknown"})
_NODE_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})


class Finding(NamedTuple):
    """One thing that is wrong; ``fatal`` ones make the object unusable, the others are warnings."""

    field: str
    message: str
    fatal: bool


def check(obj: KubeObject) -> list[Finding]:
    """Everything that is wrong with an object, in the order of its fields."""
    found = list(_metadata(obj))
    special = _CHECKS.get(type(obj))
    if special is not None:
        found.extend(special(obj))
    return found


def _metadata(obj: KubeObject) -> Iterator[Finding]:
    if not obj.metadata.name:
        yield Finding("metadata.name", "is empty", True)


def _unknown(field: str, value: str | None, known: frozenset[Any]) -> Iterator[Finding]:
    if value not in known:
        allowed = ", ".join(sorted(name for name in known if name))
        yield Finding(field, f'"{value or ""}" is not one of {allowed}', False)


def _negative(field: str, resources: Mapping[str, Quantity] | None) -> Iterator[Finding]:
    for name, quantity in (resources or {}).items():
        if quantity.sign < 0:
            yield Finding(_entry(field, name), f"{quantity} is negative", True)


def _entry(field: str, name: str) -> str:
    return f"{field}[{name}]" if "." in name or "/" in name else f"{field}.{name}"


def _containers(field: str, containers: Sequence[Container]) -> Iterator[Finding]:
    for index, container in enumerate(containers):
        resources = container.resources
        if not (resources.requests or resources.limits):
            continue
        path = f"{field}[{index}].resources"
        yield from _negative(f"{path}.requests", resources.requests)
        yield from _negative(f"{path}.limits", resources.limits)
        for name, request in (resources.requests or {}).items():
            limit = (resources.limits or {}).get(name)
            if limit is not None and request > limit:
                yield Finding(_entry(f"{path}.requests", name), f"{request} is above the limit {limit}", False)


def _pod(pod: KubeObject) -> Iterator[Finding]:
    assert isinstance(pod, Pod)
    spec = pod.spec
    if not pod.metadata.namespace:
        yield Finding("metadata.namespace", "is empty", False)
    yield from _containers("spec.containers", spec.containers)
    yield from _containers("spec.initContainers", spec.init_containers)
    if spec.resources is not None:
        yield from _negative("spec.resources.requests", spec.resources.requests)
    yield from _negative("spec.overhead", spec.overhead)
    yield from _unknown("spec.restartPolicy", spec.restart_policy, _RESTART_POLICIES)
    yield from _unknown("spec.preemptionPolicy", spec.preemption_policy, _PREEMPTION_POLICIES)
    for index, toleration in enumerate(spec.tolerations):
        path = f"spec.tolerations[{index}]"
        yield from _unknown(f"{path}.operator", toleration.operator, _TOLERATION_OPERATORS)
        yield from _unknown(f"{path}.effect", toleration.effect, _TAINT_EFFECTS | {""})
    for index, constraint in enumerate(spec.topology_spread_constraints):
        path = f"spec.topologySpreadConstraints[{index}]"
        yield from _unknown(f"{path}.whenUnsatisfiable", constraint.when_unsatisfiable, _UNSATISFIABLE)
        yield from _unknown(f"{path}.nodeAffinityPolicy", constraint.node_affinity_policy, _SPREAD_POLICIES)
        yield from _unknown(f"{path}.nodeTaintsPolicy", constraint.node_taints_policy, _SPREAD_POLICIES)
        if constraint.max_skew <= 0:
            yield Finding(f"{path}.maxSkew", f"{constraint.max_skew} is not above zero", False)
    yield from _node_affinity(pod)
    yield from _unknown("status.phase", pod.status.phase, _PHASES)


def _node_affinity(pod: Pod) -> Iterator[Finding]:
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return
    path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    for index, term in enumerate(affinity.node_affinity.required.node_selector_terms):
        for position, expression in enumerate(term.match_expressions):
            yield from _unknown(
                f"{path}[{index}].matchExpressions[{position}].operator", expression.operator, _NODE_OPERATORS
            )


def _node(node: KubeObject) -> Iterator[Finding]:
    assert isinstance(node, Node)
    for index, taint in enumerate(node.spec.taints):
        yield from _unknown(f"spec.taints[{index}].effect", taint.effect, _TAINT_EFFECTS)
    yield from _negative("status.capacity", node.status.capacity)
    yield from _negative("status.allocatable", node.status.allocatable)


def _limit_range(obj: KubeObject) -> Iterator[Finding]:
    assert isinstance(obj, LimitRange)
    for index, item in enumerate(obj.spec.limits):
        path = f"spec.limits[{index}]"
        for name, least in (item.min or {}).items():
            most = (item.max or {}).get(name)
            if most is not None and least > most:
                yield Finding(_entry(f"{path}.min", name), f"{least} is above the maximum {most}", True)


_CHECKS: Final[dict[type, Callable[[KubeObject], Iterator[Finding]]]] = {
    Pod: _pod,
    Node: _node,
    LimitRange: _limit_range,
}
