"""What no API server would hold, found by name and path (for files; decisions themselves never validate)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kscale.objects.core import Affinity, Container, PodSpec
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
    found: list[Finding] = []
    if not obj.metadata.name:
        found.append(Finding("metadata.name", "is empty", True))
    special = _CHECKS.get(type(obj).__name__)
    if special is not None:
        special(obj, found)
    return found


def _unknown(found: list[Finding], field: str, value: str | None, known: frozenset[Any]) -> None:
    if value not in known:
        allowed = ", ".join(sorted(name for name in known if name))
        found.append(Finding(field, f'"{value or ""}" is not one of {allowed}', False))


def _negative(found: list[Finding], field: str, resources: Mapping[str, Quantity] | None) -> None:
    if resources:
        for name, quantity in resources.items():
            if quantity.sign < 0:
                found.append(Finding(_entry(field, name), f"{quantity} is negative", True))


def _entry(field: str, name: str) -> str:
    return f"{field}[{name}]" if "." in name or "/" in name else f"{field}.{name}"


def _containers(found: list[Finding], field: str, containers: Sequence[Container]) -> None:
    for index, container in enumerate(containers):
        requests, limits = container.resources.requests, container.resources.limits
        if requests and any(quantity.sign < 0 for quantity in requests.values()):
            _negative(found, f"{field}[{index}].resources.requests", requests)
        if not limits:
            continue
        if any(quantity.sign < 0 for quantity in limits.values()):
            _negative(found, f"{field}[{index}].resources.limits", limits)
        for name, request in (requests or {}).items():
            limit = limits.get(name)
            if limit is not None and limit is not request and request > limit:
                path = _entry(f"{field}[{index}].resources.requests", name)
                found.append(Finding(path, f"{request} is above the limit {limit}", False))


def _pod(pod: Any, found: list[Finding]) -> None:
    spec: PodSpec = pod.spec
    if not pod.metadata.namespace:
        found.append(Finding("metadata.namespace", "is empty", False))
    _containers(found, "spec.containers", spec.containers)
    _containers(found, "spec.initContainers", spec.init_containers)
    if spec.resources is not None:
        _negative(found, "spec.resources.requests", spec.resources.requests)
    _negative(found, "spec.overhead", spec.overhead)
    if spec.restart_policy not in _RESTART_POLICIES:
        _unknown(found, "spec.restartPolicy", spec.restart_policy, _RESTART_POLICIES)
    if spec.preemption_policy not in _PREEMPTION_POLICIES:
        _unknown(found, "spec.preemptionPolicy", spec.preemption_policy, _PREEMPTION_POLICIES)
    for index, toleration in enumerate(spec.tolerations):
        if toleration.operator not in _TOLERATION_OPERATORS:
            _unknown(found, f"spec.tolerations[{index}].operator", toleration.operator, _TOLERATION_OPERATORS)
        if toleration.effect and toleration.effect not in _TAINT_EFFECTS:
            _unknown(found, f"spec.tolerations[{index}].effect", toleration.effect, _TAINT_EFFECTS)
    for index, constraint in enumerate(spec.topology_spread_constraints or ()):
        path = f"spec.topologySpreadConstraints[{index}]"
        _unknown(found, f"{path}.whenUnsatisfiable", constraint.when_unsatisfiable, _UNSATISFIABLE)
        _unknown(found, f"{path}.nodeAffinityPolicy", constraint.node_affinity_policy, _SPREAD_POLICIES)
        _unknown(found, f"{path}.nodeTaintsPolicy", constraint.node_taints_policy, _SPREAD_POLICIES)
        if constraint.max_skew <= 0:
            found.append(Finding(f"{path}.maxSkew", f"{constraint.max_skew} is not above zero", False))
    if spec.affinity is not None:
        _node_affinity(spec.affinity, found)
    if pod.status.phase not in _PHASES:
        _unknown(found, "status.phase", pod.status.phase, _PHASES)


def _node_affinity(affinity: Affinity, found: list[Finding]) -> None:
    if affinity.node_affinity is None or affinity.node_affinity.required is None:
        return
    path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    for index, term in enumerate(affinity.node_affinity.required.node_selector_terms):
        for position, expression in enumerate(term.match_expressions):
            _unknown(
                found, f"{path}[{index}].matchExpressions[{position}].operator", expression.operator, _NODE_OPERATORS
            )


def _node(node: Any, found: list[Finding]) -> None:
    for index, taint in enumerate(node.spec.taints):
        _unknown(found, f"spec.taints[{index}].effect", taint.effect, _TAINT_EFFECTS)
    _negative(found, "status.capacity", node.status.capacity)
    _negative(found, "status.allocatable", node.status.allocatable)


def _limit_range(obj: Any, found: list[Finding]) -> None:
    for index, item in enumerate(obj.spec.limits):
        path = f"spec.limits[{index}]"
        for name, least in (item.min or {}).items():
            most = (item.max or {}).get(name)
            if most is not None and least > most:
                found.append(Finding(_entry(f"{path}.min", name), f"{least} is above the maximum {most}", True))


def _counts(*fields: str) -> Callable[[Any, list[Finding]], None]:
    """A check that these whole numbers of the spec are not negative."""

    def check_counts(obj: Any, found: list[Finding]) -> None:
        for name in fields:
            number = getattr(obj.spec, name)
            if number is not None and number < 0:
                found.append(Finding(f"spec.{name}", f"{number} is negative", True))

    return check_counts


def _claim(obj: Any, found: list[Finding]) -> None:
    _negative(found, "spec.resources.requests", obj.spec.resources.requests)


def _volume(obj: Any, found: list[Finding]) -> None:
    _negative(found, "spec.capacity", obj.spec.capacity)


def _autoscaler(obj: Any, found: list[Finding]) -> None:
    least, most = obj.spec.min_replicas, obj.spec.max_replicas
    if least is not None and least > most:
        found.append(Finding("spec.minReplicas", f"{least} is above maxReplicas {most}", True))


# By name, so that checking a pod does not import every group.
_CHECKS: Final[dict[str, Callable[[Any, list[Finding]], None]]] = {
    "Pod": _pod,
    "Node": _node,
    "LimitRange": _limit_range,
    "PersistentVolumeClaim": _claim,
    "PersistentVolume": _volume,
    "Deployment": _counts("replicas"),
    "ReplicaSet": _counts("replicas"),
    "ReplicationController": _counts("replicas"),
    "StatefulSet": _counts("replicas"),
    "Job": _counts("parallelism", "completions"),
    "HorizontalPodAutoscaler": _autoscaler,
    "HorizontalPodAutoscalerV1": _autoscaler,
}
