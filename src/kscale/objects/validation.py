"""Check objects from files for values that no API server stores: names, times, repeated keys, unknown values."""

from __future__ import annotations

import builtins
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, get_args, get_origin

import msgspec
from msgspec import inspect

from kscale._native import _projection
from kscale.errors import InputError, Problem
from kscale.imports import lazy_pattern
from kscale.objects.api.core import Affinity, Container, ContainerPort, Node, NodeStatus, PodSpec
from kscale.objects.api.meta import ApiStruct, Int32, Int64, KubeObject, ObjectMeta
from kscale.objects.decode import find_deepest_path
from kscale.objects.names import dns_subdomain_errors
from kscale.objects.quantity import Quantity
from kscale.objects.times import nanoseconds

__all__ = [
    "Finding",
    "check",
    "check_times",
    "find_unknown_fields",
    "is_share",
    "is_unusual",
    "missing_amounts",
    "plain_rule",
    "refuse_repeated_keys",
    "share_of",
]


_NAMES: Final = frozenset({
    "acquireTime", "allocationTimestamp", "completionTime", "creationTimestamp", "deletionTimestamp", "eventTime",
    "firstSampleStart", "firstTimestamp", "lastHeartbeatTime", "lastProbeTime", "lastSampleStart", "lastScaleTime",
    "lastTimestamp", "lastTransitionTime", "lastUpdateTime", "referenceTimestamp", "renewTime", "startTime", "time",
    "timeAdded", "timestamp",
})  # fmt: skip
"""Fields of the API that hold a time, wherever they are."""

_TimeFinder = Callable[[Any], Iterator[tuple[str, str]]]


def check_times(obj: msgspec.Struct) -> None:
    """Raise InputError, with the field, if a time of an object is not RFC 3339. Go's decoder refuses it as well."""
    find_times = _get_time_finder(type(obj))
    if find_times is None:
        return
    for field, text in find_times(obj):
        try:
            nanoseconds(text)
        except ValueError as error:
            raise InputError(Problem(str(error), field=field)) from None


@cache
def _get_time_finder(struct: type[msgspec.Struct]) -> _TimeFinder | None:
    """Return a function that yields (field, text) of each time in a struct, or None if the struct has no times."""
    described = inspect.type_info(struct)
    assert isinstance(described, inspect.StructType)
    return _build_struct_finder(described, ())


def _build_struct_finder(described: inspect.StructType, outer: tuple[type, ...]) -> _TimeFinder | None:
    """Return the function of :func:`_get_time_finder` for a struct; None if it has no times.

    ``outer``: structs that contain it.
    """
    if described.cls in outer:  # a recursive type: none of these has times
        return None
    times: list[tuple[str, str]] = []
    parts: list[tuple[str, str, _TimeFinder]] = []
    for field in described.fields:
        if field.encode_name in _NAMES and any(isinstance(each, inspect.StrType) for each in _list_choices(field.type)):
            times.append((field.name, field.encode_name))
        elif (finder := _build_type_finder(field.type, (*outer, described.cls))) is not None:
            parts.append((field.name, field.encode_name, finder))
    if not times and not parts:
        return None

    def checked(obj: Any) -> Iterator[tuple[str, str]]:
        for name, written in times:
            if isinstance(text := getattr(obj, name), str):
                yield written, text
        for name, written, finder in parts:
            if value := getattr(obj, name):
                for field, text in finder(value):
                    yield f"{written}{'' if field.startswith('[') else '.'}{field}", text

    return checked


def _list_choices(type_: inspect.Type) -> tuple[inspect.Type, ...]:
    """Return the alternatives of a union; (type,) if the type is no union."""
    return type_.types if isinstance(type_, inspect.UnionType) else (type_,)


def _build_type_finder(type_: inspect.Type, outer: tuple[type, ...]) -> _TimeFinder | None:
    """Return the function that finds the times in values of a type; None if the type has no times.

    ``outer``: structs that contain the values.
    """
    for each in _list_choices(type_):
        if isinstance(each, inspect.StructType):
            return _build_struct_finder(each, outer)
        if isinstance(each, inspect.ListType) and (inner := _build_type_finder(each.item_type, outer)) is not None:
            return _build_list_finder(inner)
    return None


def _build_list_finder(inner: _TimeFinder) -> _TimeFinder:
    """Return a function that finds the times in a list. ``inner`` finds those in one element."""

    def checked(items: Any) -> Iterator[tuple[str, str]]:
        for index, item in enumerate(items):
            for field, text in inner(item):
                yield f"[{index}].{field}", text

    return checked


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object as written, with repeated keys."""


def refuse_repeated_keys(text: bytes | memoryview | Any) -> None:
    """Raise InputError, with the field path, for a JSON text that repeats a key."""
    if not _projection.repeats_a_key(text):
        return
    import json

    readable = bytes(text).decode("utf-8", "replace")  # parts that are never decoded may not be UTF-8
    try:
        written = json.loads(readable, object_pairs_hook=_Pairs, parse_int=str, parse_float=str, parse_constant=str)
        path, key = next(_find_repeated_keys(written, ""))
    except RecursionError:
        raise InputError(Problem("a key comes twice", field=find_deepest_path(memoryview(text)))) from None
    raise InputError(Problem(f"the key {key} comes twice", field=path))


def _find_repeated_keys(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield (path, key) of each repeated key, in the order of the text."""
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, item in value:
            key_path = f"{path}[{key}]" if "." in key or "/" in key else f"{path}.{key}".removeprefix(".")
            if key in seen:
                yield key_path, key
            seen.add(key)
            yield from _find_repeated_keys(item, key_path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _find_repeated_keys(item, f"{path}[{index}]")


_type_info = cache(msgspec.inspect.type_info)
_NOT_MODELLED: Final[dict[type, frozenset[str]]] = {ObjectMeta: frozenset({"managedFields", "selfLink"})}
"""Fields of the API that nothing here reads."""


def find_unknown_fields(
    data: Mapping[str, Any], type_: type[msgspec.Struct], path: str = ""
) -> Iterator[tuple[str, Collection[str]]]:
    """Yield (path, names of the known fields beside it) for each field of plain ``data`` that a struct does not have.

    ``path``: the path of ``data`` itself, with which the yielded paths begin.
    """
    return _find_unknown_fields(data, _type_info(type_), path)


def _find_unknown_fields(value: Any, type_: msgspec.inspect.Type, path: str) -> Iterator[tuple[str, Collection[str]]]:
    """Yield (path, names of the known fields beside it) for each field of plain data that a type does not have."""
    match type_:
        case msgspec.inspect.UnionType():
            for member in type_.types:
                yield from _find_unknown_fields(value, member, path)
        case msgspec.inspect.ListType() if isinstance(value, list):
            for i, each in enumerate(value):
                yield from _find_unknown_fields(each, type_.item_type, f"{path}[{i}]")
        case msgspec.inspect.DictType() if isinstance(value, Mapping):
            for name, each in value.items():
                yield from _find_unknown_fields(each, type_.value_type, f"{path}[{name}]")
        case msgspec.inspect.StructType() if isinstance(value, Mapping):
            fields = _get_fields(type_.cls)
            for name, each in value.items():
                place = f"{path}.{name}" if path else str(name)
                if name in fields:
                    yield from _find_unknown_fields(each, fields[name], place)
                elif name not in _NOT_MODELLED.get(type_.cls, ()):
                    yield place, fields


@cache
def _get_fields(struct: type) -> dict[str, msgspec.inspect.Type]:
    """Return the type of each field of a struct by its JSON name."""
    shape = msgspec.inspect.type_info(struct)
    assert isinstance(shape, msgspec.inspect.StructType)
    return {field.encode_name: field.type for field in shape.fields}


_PERCENT: Final = lazy_pattern(r"[0-9]{1,18}%")  # more digits do not fit 64 bits


def is_share(value: int | str) -> bool:
    """Return whether a value is an integer that is not negative, or a text such as ``25%``."""
    return value >= 0 if isinstance(value, int) else _PERCENT.fullmatch(value) is not None


def share_of(value: int | str, of: int, *, up: bool) -> int:
    """Return a number unchanged, or a percentage of ``of`` rounded ``up`` or down.

    Raises ValueError for a text that is no percentage.

    Upstream: ``GetScaledValueFromIntOrPercent``.
    """
    if isinstance(value, int):
        return value
    hundredfold = int(value.removesuffix("%")) * of
    return -(-hundredfold // 100) if up else hundredfold // 100


_TAINT_EFFECTS: Final = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})
_TOLERATION_OPERATORS: Final = frozenset({"", "Equal", "Exists", "Lt", "Gt"})
_RESTART_POLICIES: Final = frozenset({"", "Always", "OnFailure", "Never"})
_UNSATISFIABLE: Final = frozenset({"DoNotSchedule", "ScheduleAnyway"})
_SPREAD_POLICIES: Final = frozenset({None, "Honor", "Ignore"})
_PREEMPTION_POLICIES: Final = frozenset({None, "PreemptLowerPriority", "Never"})
_PHASES: Final = frozenset({"", "Pending", "Running", "Succeeded", "Failed", "Unknown"})
_PROTOCOLS: Final = frozenset({"", "TCP", "UDP", "SCTP"})
_STRATEGIES: Final = frozenset({"", "RollingUpdate", "Recreate"})
_LAST_PORT: Final = 65535
_LARGEST: Final = float(2**63)
_LARGEST_MILLI: Final = _LARGEST / 1000
_NODE_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})


class Finding(msgspec.Struct, frozen=True):
    """A problem of an object. A ``fatal`` one makes the object unusable; others are warnings."""

    field: str
    message: str
    fatal: bool


def check(obj: KubeObject) -> list[Finding]:
    """Return all findings about an object: those about its metadata first; empty if there are none."""
    findings: list[Finding] = []
    metadata = obj.metadata
    if not metadata.name:
        findings.append(Finding("metadata.name", "is empty", True))
    elif errors := dns_subdomain_errors(metadata.name):
        findings += [Finding("metadata.name", error, False) for error in errors]
    if metadata.creation_timestamp is not None:
        _check_time(findings, "metadata.creationTimestamp", metadata.creation_timestamp)
    if metadata.deletion_timestamp is not None:
        _check_time(findings, "metadata.deletionTimestamp", metadata.deletion_timestamp)
    special = _CHECKS.get(type(obj).__name__)
    if special is not None:
        special(obj, findings)
    return findings


def _check_known(findings: list[Finding], field: str, value: str | None, known: frozenset[Any]) -> None:
    """Add a warning if the value (None: absent) is not in ``known``."""
    if value not in known:
        allowed = ", ".join(sorted(name for name in known if name))
        findings.append(Finding(field, f'"{value or ""}" is not one of {allowed}', False))


def _join(field: str, name: str) -> str:
    """Return the path of the entry ``name`` of the map ``field``."""
    return f"{field}[{name}]" if "." in name or "/" in name else f"{field}.{name}"


_MOST_AMOUNTS: Final = 1 << 12
_usual_amounts: Final[dict[int, tuple[Quantity, bool]]] = {}
"""Quantities in range, and whether they are whole, by ``id``: objects that were decoded share them."""


def _check_resources(findings: list[Finding], field: str, resources: Mapping[str, Quantity] | None) -> None:
    """Add findings for negative amounts, and for amounts that decisions round, truncate or wrap as upstream does."""
    if not resources:
        return
    for name, quantity in resources.items():
        usual = _usual_amounts.get(id(quantity))
        if usual is not None and (usual[1] or not (name == "pods" or "/" in name)):
            continue  # fast path: nearly all quantities
        counts_whole = name == "pods" or "/" in name
        if 0 <= quantity.approximate_float() < _LARGEST_MILLI and (not counts_whole or quantity.is_whole()):
            if len(_usual_amounts) < _MOST_AMOUNTS:
                _usual_amounts[id(quantity)] = quantity, quantity.is_whole()
            continue
        if quantity.sign < 0:
            findings.append(Finding(_join(field, name), f"{quantity} is negative", True))
        elif quantity.approximate_float() >= (_LARGEST_MILLI if name == "cpu" else _LARGEST):
            unit = " in thousandths" if name == "cpu" else ""
            text = f"{quantity} is too large for 64 bits{unit}: it is cut or wraps around"
            findings.append(Finding(_join(field, name), text, False))
        elif counts_whole and not quantity.is_whole():
            findings.append(Finding(_join(field, name), f"{quantity} is not a whole number", False))


def _check_containers(findings: list[Finding], field: str, containers: Sequence[Container]) -> None:
    """Add findings about the resources and ports of containers, and requests above their limits."""
    for index, container in enumerate(containers):
        requests, limits = container.resources.requests, container.resources.limits
        if requests:
            _check_resources(findings, f"{field}[{index}].resources.requests", requests)
        if container.ports:
            _check_ports(findings, f"{field}[{index}].ports", container.ports)
        if not limits:
            continue
        _check_resources(findings, f"{field}[{index}].resources.limits", limits)
        for name, request in (requests or {}).items():
            limit = limits.get(name)
            if limit is not None and limit is not request and request > limit:
                path = _join(f"{field}[{index}].resources.requests", name)
                findings.append(Finding(path, f"{request} is above the limit {limit}", False))


def _check_ports(findings: list[Finding], field: str, ports: Sequence[ContainerPort]) -> None:
    """Add findings for host ports out of range and unknown protocols."""
    for index, port in enumerate(ports):
        if not 0 <= port.host_port <= _LAST_PORT:  # 0: none
            text = f"{port.host_port} is not between 1 and {_LAST_PORT}"
            findings.append(Finding(f"{field}[{index}].hostPort", text, False))
        if port.protocol not in _PROTOCOLS:
            _check_known(findings, f"{field}[{index}].protocol", port.protocol, _PROTOCOLS)


def _check_time(findings: list[Finding], field: str, text: str | None, index: int = 0) -> None:
    """Add a finding for a text that is not an RFC 3339 time. ``index`` replaces ``{}`` in ``field``."""
    if text is not None:
        try:
            nanoseconds(text)
        except ValueError as error:
            findings.append(Finding(field.format(index), str(error), True))


def _check_pod(pod: Any, findings: list[Finding]) -> None:
    """Add findings about a pod: its namespace, spec, start time and phase."""
    if not pod.metadata.namespace:
        findings.append(Finding("metadata.namespace", "is empty", False))
    _check_pod_spec(pod.spec, "spec", findings)
    _check_time(findings, "status.startTime", pod.status.start_time)
    if pod.status.phase not in _PHASES:
        _check_known(findings, "status.phase", pod.status.phase, _PHASES)


def _check_pod_spec(spec: PodSpec, at: str, findings: list[Finding]) -> None:
    """Add findings about the spec of a pod, or of a workload's pod template; ``at`` is its path."""
    if not spec.containers:
        findings.append(Finding(f"{at}.containers", "is empty", False))
    _check_containers(findings, f"{at}.containers", spec.containers)
    _check_containers(findings, f"{at}.initContainers", spec.init_containers)
    if spec.resources is not None:
        _check_resources(findings, f"{at}.resources.requests", spec.resources.requests)
    _check_resources(findings, f"{at}.overhead", spec.overhead)
    if spec.restart_policy not in _RESTART_POLICIES:
        _check_known(findings, f"{at}.restartPolicy", spec.restart_policy, _RESTART_POLICIES)
    if spec.preemption_policy not in _PREEMPTION_POLICIES:
        _check_known(findings, f"{at}.preemptionPolicy", spec.preemption_policy, _PREEMPTION_POLICIES)
    for index, toleration in enumerate(spec.tolerations):
        if toleration.operator not in _TOLERATION_OPERATORS:
            _check_known(findings, f"{at}.tolerations[{index}].operator", toleration.operator, _TOLERATION_OPERATORS)
        if toleration.effect and toleration.effect not in _TAINT_EFFECTS:
            _check_known(findings, f"{at}.tolerations[{index}].effect", toleration.effect, _TAINT_EFFECTS)
    for index, constraint in enumerate(spec.topology_spread_constraints or ()):
        path = f"{at}.topologySpreadConstraints[{index}]"
        _check_known(findings, f"{path}.whenUnsatisfiable", constraint.when_unsatisfiable, _UNSATISFIABLE)
        _check_known(findings, f"{path}.nodeAffinityPolicy", constraint.node_affinity_policy, _SPREAD_POLICIES)
        _check_known(findings, f"{path}.nodeTaintsPolicy", constraint.node_taints_policy, _SPREAD_POLICIES)
        if constraint.max_skew <= 0:
            findings.append(Finding(f"{path}.maxSkew", f"{constraint.max_skew} is not above zero", False))
    if spec.affinity is not None:
        _check_node_affinity(spec.affinity, at, findings)


def is_unusual(affinity: Affinity) -> bool:
    """Check whether :func:`check` reports anything about a pod's required node affinity."""
    findings: list[Finding] = []
    _check_node_affinity(affinity, "", findings)
    return bool(findings)


def _check_node_affinity(affinity: Affinity, at: str, findings: list[Finding]) -> None:
    """Add findings for unknown operators in the required node affinity. ``at``: path of the pod's spec."""
    if affinity.node_affinity is None or affinity.node_affinity.required is None:
        return
    path = f"{at}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    for index, term in enumerate(affinity.node_affinity.required.node_selector_terms):
        for position, expression in enumerate(term.match_expressions):
            _check_known(
                findings, f"{path}[{index}].matchExpressions[{position}].operator", expression.operator, _NODE_OPERATORS
            )


def _check_node(node: Any, findings: list[Finding]) -> None:
    """Add findings about a node."""
    for index, taint in enumerate(node.spec.taints):
        if taint.effect not in _TAINT_EFFECTS:
            _check_known(findings, f"spec.taints[{index}].effect", taint.effect, _TAINT_EFFECTS)
        _check_time(findings, "spec.taints[{}].timeAdded", taint.time_added, index)
    _check_resources(findings, "status.capacity", node.status.capacity)
    _check_resources(findings, "status.allocatable", node.status.allocatable)
    for index, condition in enumerate(node.status.conditions):
        _check_time(findings, "status.conditions[{}].lastTransitionTime", condition.last_transition_time, index)


def missing_amounts(node: Node) -> list[str]:
    """Return those of cpu, memory and pods that the node's allocatable lacks. Decisions count a missing amount as 0."""
    allocatable = node.status.allocatable or {}
    return [name for name in ("cpu", "memory", "pods") if name not in allocatable]


def _check_limit_range(obj: Any, findings: list[Finding]) -> None:
    """Add findings for minimums above their maximums."""
    for index, item in enumerate(obj.spec.limits):
        path = f"spec.limits[{index}]"
        for name, minimum in (item.min or {}).items():
            maximum = (item.max or {}).get(name)
            if maximum is not None and minimum > maximum:
                findings.append(Finding(_join(f"{path}.min", name), f"{minimum} is above the maximum {maximum}", True))


def _build_workload_check(*fields: str) -> Callable[[Any, list[Finding]], None]:
    """Return a check of a controller's pod template, and of negative numbers in these ``fields`` of its spec."""

    def check_workload(obj: Any, findings: list[Finding]) -> None:
        for name in fields:
            number = getattr(obj.spec, name)
            if number is not None and number < 0:
                findings.append(Finding(f"spec.{name}", f"{number} is negative", True))
        if obj.spec.template is not None:
            _check_pod_spec(obj.spec.template.spec, "spec.template.spec", findings)

    return check_workload


def _check_deployment(obj: Any, findings: list[Finding]) -> None:
    """Add findings about a Deployment: its pod template, replicas, type of strategy, and shares of a rolling update."""
    _build_workload_check("replicas")(obj, findings)
    path, strategy = "spec.strategy", obj.spec.strategy
    if strategy.type not in _STRATEGIES:
        findings.append(Finding(f"{path}.type", f"{strategy.type!r} is neither RollingUpdate nor Recreate", True))
    if strategy.rolling_update is None:
        return
    for name, value in (
        ("maxUnavailable", strategy.rolling_update.max_unavailable),
        ("maxSurge", strategy.rolling_update.max_surge),
    ):
        if value is not None and not is_share(value):
            findings.append(Finding(f"{path}.rollingUpdate.{name}", f"{value!r} is no number and no percentage", True))


def _check_cron_job(obj: Any, findings: list[Finding]) -> None:
    """Add findings about the pod template of a CronJob."""
    _check_pod_spec(obj.spec.job_template.spec.template.spec, "spec.jobTemplate.spec.template.spec", findings)


def _check_claim(obj: Any, findings: list[Finding]) -> None:
    """Add findings about the requests of a claim."""
    _check_resources(findings, "spec.resources.requests", obj.spec.resources.requests)


def _check_volume(obj: Any, findings: list[Finding]) -> None:
    """Add findings about the capacity of a volume."""
    _check_resources(findings, "spec.capacity", obj.spec.capacity)


def _check_autoscaler(obj: Any, findings: list[Finding]) -> None:
    """Add a finding if an autoscaler's minimum is above its maximum."""
    minimum, maximum = obj.spec.min_replicas, obj.spec.max_replicas
    if minimum is not None and minimum > maximum:
        findings.append(Finding("spec.minReplicas", f"{minimum} is above maxReplicas {maximum}", True))


# By name, so that checking a pod does not import every group.
_CHECKS: Final[dict[str, Callable[[Any, list[Finding]], None]]] = {
    "Pod": _check_pod,
    "Node": _check_node,
    "LimitRange": _check_limit_range,
    "PersistentVolumeClaim": _check_claim,
    "PersistentVolume": _check_volume,
    "Deployment": _check_deployment,
    "ReplicaSet": _build_workload_check("replicas"),
    "ReplicationController": _build_workload_check("replicas"),
    "StatefulSet": _build_workload_check("replicas"),
    "DaemonSet": _build_workload_check(),
    "Job": _build_workload_check("parallelism", "completions"),
    "CronJob": _check_cron_job,
    "HorizontalPodAutoscaler": _check_autoscaler,
    "HorizontalPodAutoscalerV1": _check_autoscaler,
}


# -- plain objects ---------------------------------------------------------------------------------------------

_ONE_OF: Final[dict[tuple[str, str], Iterable[str | None]]] = {
    ("PodSpec", "restart_policy"): _RESTART_POLICIES,
    ("PodSpec", "preemption_policy"): _PREEMPTION_POLICIES,
    ("Toleration", "operator"): _TOLERATION_OPERATORS,
    ("Toleration", "effect"): {"", *_TAINT_EFFECTS},
    ("TopologySpreadConstraint", "when_unsatisfiable"): _UNSATISFIABLE,
    ("TopologySpreadConstraint", "node_affinity_policy"): _SPREAD_POLICIES,
    ("TopologySpreadConstraint", "node_taints_policy"): _SPREAD_POLICIES,
    ("ContainerPort", "protocol"): _PROTOCOLS,
    ("NodeSelectorRequirement", "operator"): _NODE_OPERATORS,
    ("Taint", "effect"): _TAINT_EFFECTS,
    ("DeploymentStrategy", "type"): _STRATEGIES,
}
"""Values, by struct and field, that :func:`check` finds nothing wrong with."""

_BETWEEN: Final = {
    ("TopologySpreadConstraint", "max_skew"): (1, (1 << 31) - 1),
    ("ContainerPort", "host_port"): (0, _LAST_PORT),
}
"""Likewise the least and the largest number; for other fields 0 and what the type allows."""

_NEEDED: Final = {
    "PodSpec": {"containers"},
    "PodTemplateSpec": {"spec"},
    "TopologySpreadConstraint": {"when_unsatisfiable", "max_skew"},
    "NodeSelectorRequirement": {"operator"},
    "Taint": {"effect"},
}
"""Fields, by struct, without which :func:`check` may find something."""

_UNCHECKED: Final = ("LimitRange", "CronJob", "HorizontalPodAutoscaler", "HorizontalPodAutoscalerV1", "Pod")
"""Structs whose checks rules for plain objects do not describe."""

_LARGEST_WHOLE: Final = 10**18 - 1


def plain_rule(type_: type[KubeObject], name: Any, namespace: Any) -> Any:
    """Return the rule for plain objects of a kind, for ``Projector.add_plain`` of :mod:`kscale._native._projection`.

    An object whose text follows the rule and repeats no key is decoded without an error, and :func:`check` finds
    nothing. An object that does not follow the rule may still be valid.

    Parameters
    ----------
    type_ : type of KubeObject
        The kind's struct. Raises ValueError for one whose checks rules cannot describe.
    name, namespace : rule
        Rules for ``metadata.name`` and ``metadata.namespace``.
    """
    if type_.__name__ in _UNCHECKED:
        raise ValueError(f"no rule for {type_.__name__}")
    _, members, need, limited = _build_plain_struct(type_)
    _, of_metadata, *_ = _build_plain_struct(ObjectMeta)
    metadata = "object", {**of_metadata, "name": name, "namespace": namespace}, ("name",), False
    return "object", {**members, "metadata": metadata}, (*need, "metadata"), limited


@cache
def _build_plain_struct(struct: type[msgspec.Struct]) -> Any:
    """Return the rule of a struct: ``"object"``, rules of members, required members, whether limits bound requests."""
    name, fields = struct.__name__, msgspec.structs.fields(struct)
    always = _NEEDED.get(name, ())
    needed = tuple(
        field.encode_name for field in fields if field.required or field.name in always or _has_unusual_default(field)
    )
    members = {field.encode_name: _build_plain_field(name, field) for field in fields}
    return "object", members, needed, name == "ResourceRequirements"


def _has_unusual_default(field: msgspec.structs.FieldInfo) -> bool:
    """Return whether the field's default is a struct that lacks members which the rule of the struct requires."""
    default = field.default_factory
    if not (isinstance(default, type) and issubclass(default, msgspec.Struct)):
        return False
    return bool(_build_plain_struct(default)[2])


def _build_plain_field(struct: str, field: msgspec.structs.FieldInfo) -> Any:
    """Return the rule of a field of the struct with this name."""
    place = struct, field.name
    rule = _build_plain_type(field.type)
    if place in _ONE_OF:
        special: Any = "one of", [value for value in _ONE_OF[place] if value is not None]
    elif place in _BETWEEN:
        special = "whole", *_BETWEEN[place]
    elif place == ("PodSpec", "containers"):
        return *rule[:2], 1
    elif field.encode_name in _NAMES and rule in ("text", ("or null", "text")):
        special = "time"
    else:
        return rule
    return ("or null", special) if rule[0] == "or null" else special


def _build_plain_type(type_: Any) -> Any:
    """Return the rule for values of a type; ``never``, which no value follows, if rules cannot describe the type."""
    if rule := _PLAIN_TYPES.get(type_):
        return rule
    kinds = get_args(type_)
    match get_origin(type_):
        case types.UnionType | typing.Union:
            rest = [each for each in kinds if each is not types.NoneType]
            rule = _build_plain_type(rest[0]) if len(rest) == 1 else "share" if set(rest) == {int, str} else "never"
            return ("or null", rule) if len(rest) < len(kinds) else rule
        case builtins.list:
            return "list", _build_plain_type(kinds[0]), 0
        case builtins.dict if kinds[0] is str:
            return "amounts" if kinds[1] is Quantity else ("map", _build_plain_type(kinds[1]))
    if isinstance(type_, type) and issubclass(type_, ApiStruct):
        return "never" if hasattr(type_, "__post_init__") and type_ is not NodeStatus else _build_plain_struct(type_)
    return "never"


_PLAIN_TYPES: Final[dict[Any, Any]] = {
    Any: "any",
    str: "text",
    bool: "bool",
    Int32: ("whole", 0, (1 << 31) - 1),
    Int64: ("whole", 0, _LARGEST_WHOLE),
}
