"""What no API server would hold, found by name and path (for files; decisions themselves never validate)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kscale.objects.core import Affinity, Container, ContainerPort, PodSpec
from kscale.objects.meta import KubeObject
from kscale.objects.names import dns_subdomain_errors
from kscale.objects.numbers_or_percent import is_share
from kscale.objects.quantity import Quantity
from kscale.objects.times import nanoseconds

__all__ = ["Finding", "check", "is_unusual"]

_TAINT_EFFECTS: Final = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})
_TOLERATION_OPERATORS: Final = frozenset({"", "Equal", "Exists", "Lt", "Gt"})
_RESTART_POLICIES: Final = frozenset({"", "Always", "OnFailure", "Never"})
_UNSATISFIABLE: Final = frozenset({"DoNotSchedule", "ScheduleAnyway"})
_SPREAD_POLICIES: Final = frozenset({None, "Honor", "Ignore"})
_PREEMPTION_POLICIES: Final = frozenset({None, "PreemptLowerPriority", "Never"})
_PHASES: Final = frozenset({"", "Pending", "Running", "Succeeded", "Failed", "Unknown"})
_PROTOCOLS: Final = frozenset({"", "TCP", "UDP", "SCTP"})
_LAST_PORT: Final = 65535
_LARGEST: Final = float(2**63)
_LARGEST_MILLI: Final = _LARGEST / 1000
_NODE_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})


class Finding(NamedTuple):
    """One thing that is wrong; ``fatal`` ones make the object unusable, the others are warnings."""

    field: str
    message: str
    fatal: bool


def check(obj: KubeObject) -> list[Finding]:
    """Everything that is wrong with an object, in the order of its fields."""
    found: list[Finding] = []
    metadata = obj.metadata
    if not metadata.name:
        found.append(Finding("metadata.name", "is empty", True))
    elif errors := dns_subdomain_errors(metadata.name):
        found += [Finding("metadata.name", error, False) for error in errors]
    if metadata.creation_timestamp is not None:
        _time(found, "metadata.creationTimestamp", metadata.creation_timestamp)
    if metadata.deletion_timestamp is not None:
        _time(found, "metadata.deletionTimestamp", metadata.deletion_timestamp)
    special = _CHECKS.get(type(obj).__name__)
    if special is not None:
        special(obj, found)
    return found


def _unknown(found: list[Finding], field: str, value: str | None, known: frozenset[Any]) -> None:
    if value not in known:
        allowed = ", ".join(sorted(name for name in known if name))
        found.append(Finding(field, f'"{value or ""}" is not one of {allowed}', False))


def _entry(field: str, name: str) -> str:
    return f"{field}[{name}]" if "." in name or "/" in name else f"{field}.{name}"


def _resources(found: list[Finding], field: str, resources: Mapping[str, Quantity] | None) -> None:
    """Amounts below zero, and those that decisions take for something else, as upstream's do."""
    if not resources:
        return
    for name, quantity in resources.items():
        counts_whole = name == "pods" or "/" in name
        if not counts_whole and 0 <= quantity.approximate_float() < _LARGEST_MILLI:
            continue  # nearly all of very many
        if quantity.sign < 0:
            found.append(Finding(_entry(field, name), f"{quantity} is negative", True))
        elif quantity.approximate_float() >= (_LARGEST_MILLI if name == "cpu" else _LARGEST):
            unit = " in thousandths" if name == "cpu" else ""
            text = f"{quantity} is too large for 64 bits{unit}: it is cut or wraps around"
            found.append(Finding(_entry(field, name), text, False))
        elif counts_whole and not quantity.is_whole():
            found.append(Finding(_entry(field, name), f"{quantity} is not a whole number", False))


def _containers(found: list[Finding], field: str, containers: Sequence[Container]) -> None:
    for index, container in enumerate(containers):
        requests, limits = container.resources.requests, container.resources.limits
        if requests:
            _resources(found, f"{field}[{index}].resources.requests", requests)
        if container.ports:
            _ports(found, f"{field}[{index}].ports", container.ports)
        if not limits:
            continue
        _resources(found, f"{field}[{index}].resources.limits", limits)
        for name, request in (requests or {}).items():
            limit = limits.get(name)
            if limit is not None and limit is not request and request > limit:
                path = _entry(f"{field}[{index}].resources.requests", name)
                found.append(Finding(path, f"{request} is above the limit {limit}", False))


def _ports(found: list[Finding], field: str, ports: Sequence[ContainerPort]) -> None:
    for index, port in enumerate(ports):
        if not 0 <= port.host_port <= _LAST_PORT:  # 0: none
            text = f"{port.host_port} is not between 1 and {_LAST_PORT}"
            found.append(Finding(f"{field}[{index}].hostPort", text, False))
        if port.protocol not in _PROTOCOLS:
            _unknown(found, f"{field}[{index}].protocol", port.protocol, _PROTOCOLS)


def _time(found: list[Finding], field: str, text: str | None) -> None:
    if text is not None:
        try:
            nanoseconds(text)
        except ValueError as error:
            found.append(Finding(field, str(error), True))


def _pod(pod: Any, found: list[Finding]) -> None:
    if not pod.metadata.namespace:
        found.append(Finding("metadata.namespace", "is empty", False))
    _pod_spec(pod.spec, "spec", found)
    _time(found, "status.startTime", pod.status.start_time)
    if pod.status.phase not in _PHASES:
        _unknown(found, "status.phase", pod.status.phase, _PHASES)


def _pod_spec(spec: PodSpec, at: str, found: list[Finding]) -> None:
    """The spec of a pod, or of the pods that a workload makes; ``at`` is where it is."""
    if not spec.containers:
        found.append(Finding(f"{at}.containers", "is empty", False))
    _containers(found, f"{at}.containers", spec.containers)
    _containers(found, f"{at}.initContainers", spec.init_containers)
    if spec.resources is not None:
        _resources(found, f"{at}.resources.requests", spec.resources.requests)
    _resources(found, f"{at}.overhead", spec.overhead)
    if spec.restart_policy not in _RESTART_POLICIES:
        _unknown(found, f"{at}.restartPolicy", spec.restart_policy, _RESTART_POLICIES)
    if spec.preemption_policy not in _PREEMPTION_POLICIES:
        _unknown(found, f"{at}.preemptionPolicy", spec.preemption_policy, _PREEMPTION_POLICIES)
    for index, toleration in enumerate(spec.tolerations):
        if toleration.operator not in _TOLERATION_OPERATORS:
            _unknown(found, f"{at}.tolerations[{index}].operator", toleration.operator, _TOLERATION_OPERATORS)
        if toleration.effect and toleration.effect not in _TAINT_EFFECTS:
            _unknown(found, f"{at}.tolerations[{index}].effect", toleration.effect, _TAINT_EFFECTS)
    for index, constraint in enumerate(spec.topology_spread_constraints or ()):
        path = f"{at}.topologySpreadConstraints[{index}]"
        _unknown(found, f"{path}.whenUnsatisfiable", constraint.when_unsatisfiable, _UNSATISFIABLE)
        _unknown(found, f"{path}.nodeAffinityPolicy", constraint.node_affinity_policy, _SPREAD_POLICIES)
        _unknown(found, f"{path}.nodeTaintsPolicy", constraint.node_taints_policy, _SPREAD_POLICIES)
        if constraint.max_skew <= 0:
            found.append(Finding(f"{path}.maxSkew", f"{constraint.max_skew} is not above zero", False))
    if spec.affinity is not None:
        _node_affinity(spec.affinity, at, found)


def is_unusual(affinity: Affinity) -> bool:
    """Whether :func:`check` has something to say about a pod with this affinity."""
    found: list[Finding] = []
    _node_affinity(affinity, "", found)
    return bool(found)


def _node_affinity(affinity: Affinity, at: str, found: list[Finding]) -> None:
    if affinity.node_affinity is None or affinity.node_affinity.required is None:
        return
    path = f"{at}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    for index, term in enumerate(affinity.node_affinity.required.node_selector_terms):
        for position, expression in enumerate(term.match_expressions):
            _unknown(
                found, f"{path}[{index}].matchExpressions[{position}].operator", expression.operator, _NODE_OPERATORS
            )


def _node(node: Any, found: list[Finding]) -> None:
    for index, taint in enumerate(node.spec.taints):
        _unknown(found, f"spec.taints[{index}].effect", taint.effect, _TAINT_EFFECTS)
        _time(found, f"spec.taints[{index}].timeAdded", taint.time_added)
    _resources(found, "status.capacity", node.status.capacity)
    _resources(found, "status.allocatable", node.status.allocatable)
    for index, condition in enumerate(node.status.conditions):
        _time(found, f"status.conditions[{index}].lastTransitionTime", condition.last_transition_time)


def _limit_range(obj: Any, found: list[Finding]) -> None:
    for index, item in enumerate(obj.spec.limits):
        path = f"spec.limits[{index}]"
        for name, least in (item.min or {}).items():
            most = (item.max or {}).get(name)
            if most is not None and least > most:
                found.append(Finding(_entry(f"{path}.min", name), f"{least} is above the maximum {most}", True))


def _workload(*fields: str) -> Callable[[Any, list[Finding]], None]:
    """A check of the pods that a controller makes, and that these whole numbers of its spec are not negative."""

    def check_workload(obj: Any, found: list[Finding]) -> None:
        for name in fields:
            number = getattr(obj.spec, name)
            if number is not None and number < 0:
                found.append(Finding(f"spec.{name}", f"{number} is negative", True))
        if obj.spec.template is not None:
            _pod_spec(obj.spec.template.spec, "spec.template.spec", found)

    return check_workload


def _deployment(obj: Any, found: list[Finding]) -> None:
    _workload("replicas")(obj, found)
    path, strategy = "spec.strategy", obj.spec.strategy
    if strategy.type not in ("", "RollingUpdate", "Recreate"):
        found.append(Finding(f"{path}.type", f"{strategy.type!r} is neither RollingUpdate nor Recreate", True))
    if strategy.rolling_update is None:
        return
    for name, value in (
        ("maxUnavailable", strategy.rolling_update.max_unavailable),
        ("maxSurge", strategy.rolling_update.max_surge),
    ):
        if value is not None and not is_share(value):
            found.append(Finding(f"{path}.rollingUpdate.{name}", f"{value!r} is no number and no percentage", True))


def _cron_job(obj: Any, found: list[Finding]) -> None:
    _pod_spec(obj.spec.job_template.spec.template.spec, "spec.jobTemplate.spec.template.spec", found)


def _claim(obj: Any, found: list[Finding]) -> None:
    _resources(found, "spec.resources.requests", obj.spec.resources.requests)


def _volume(obj: Any, found: list[Finding]) -> None:
    _resources(found, "spec.capacity", obj.spec.capacity)


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
    "Deployment": _deployment,
    "ReplicaSet": _workload("replicas"),
    "ReplicationController": _workload("replicas"),
    "StatefulSet": _workload("replicas"),
    "DaemonSet": _workload(),
    "Job": _workload("parallelism", "completions"),
    "CronJob": _cron_job,
    "HorizontalPodAutoscaler": _autoscaler,
    "HorizontalPodAutoscalerV1": _autoscaler,
}
