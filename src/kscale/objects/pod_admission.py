"""Fields that the API server sets or refuses when a pod is created: defaults and admission plugins.

Upstream: ``pkg/apis/core/v1/defaults.go``, the pod strategy's label keys, and the admission plugins LimitRanger
(``plugin/pkg/admission/limitranger/admission.go``: ``mergePodResourceRequirements``, ``PodValidateLimitFunc``),
Priority, RuntimeClass and DefaultTolerationSeconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from kscale.objects.api.core import (
    Affinity,
    Container,
    ContainerPort,
    LimitRange,
    LimitRangeItem,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    ResourceRequirements,
    Toleration,
    WeightedPodAffinityTerm,
)
from kscale.objects.api.meta import KubeObject, LabelSelector, LabelSelectorRequirement, ObjectMeta, ResourceList
from kscale.objects.api.policy import PriorityClass, RuntimeClass
from kscale.objects.api.resource import ResourceClaimTemplate
from kscale.objects.pod_resources import CPU, MEMORY, container_requests, is_hugepages, is_pod_level_resource
from kscale.objects.quantity import Quantity

__all__ = [
    "BUILT_IN_CLASSES",
    "COMPLETING_KINDS",
    "PodClasses",
    "refusal",
    "with_defaults",
    "with_limit_range_defaults",
]


def with_limit_range_defaults(spec: PodSpec, ranges: Iterable[LimitRange]) -> PodSpec:
    """Return the spec with the container defaults of the limit ranges, applied in order.

    Containers and init containers get the requests and limits that they lack. ``spec`` is not changed.
    """
    for each in ranges:
        requests, limits = _get_defaults(each)
        if requests or limits:
            spec = replace(
                spec,
                containers=[_merge_resources(item, requests, limits) for item in spec.containers],
                init_containers=[_merge_resources(item, requests, limits) for item in spec.init_containers],
            )
    return spec


def refusal(spec: PodSpec, ranges: Iterable[LimitRange]) -> str:
    """Return LimitRanger's message for the first range (by name) that the pod violates; empty without violation.

    ``spec`` must have the defaults of the ranges. Several errors of one range are joined in brackets, as in Go. Where
    upstream follows the random order of a map, they are ordered by kind of bound and resource name.
    """
    for each in sorted(ranges, key=lambda item: item.name):
        errors: dict[str, None] = {}
        for item in each.spec.limits:
            errors |= dict.fromkeys(_find_pod_errors(item, spec))
        if errors:
            return next(iter(errors)) if len(errors) == 1 else f"[{', '.join(errors)}]"
    return ""


def _find_pod_errors(item: LimitRangeItem, spec: PodSpec) -> Iterator[str]:
    """Yield the errors of a pod against one item of a limit range: of each container, or of the pod as a whole."""
    if item.type == "Container":
        for container in (*spec.containers, *spec.init_containers):
            yield from _find_errors(item, container.resources.requests or {}, container.resources.limits or {})
    elif item.type == "Pod":
        own = spec.resources or ResourceRequirements()
        requests = container_requests(spec) | _get_pod_resources(own.requests)
        limits = container_requests(spec, lambda container: container.resources.limits) | _get_pod_resources(own.limits)
        yield from _find_errors(item, requests, limits)


def _get_pod_resources(resources: ResourceList | None) -> ResourceList:
    """Return the CPU and memory that are set for the pod as a whole instead of its containers."""
    return {name: amount for name, amount in (resources or {}).items() if name in (CPU, MEMORY)}


def _find_errors(item: LimitRangeItem, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    """Yield an error for each bound that requests and limits violate, by kind of bound and resource name."""
    for check, enforced in (
        (_check_minimum, item.min),
        (_check_maximum, item.max),
        (_check_ratio, item.max_limit_request_ratio),
    ):
        for name, bound in sorted((enforced or {}).items()):
            error = check(f"{name} {{}} per {item.type} is {bound}", bound, requests.get(name), limits.get(name))
            if error:
                yield error


def _check_minimum(text: str, bound: Quantity, request: Quantity | None, limit: Quantity | None) -> str:
    """Return the error if the request is missing, or request or limit is below the bound; empty if allowed.

    ``text``: beginning of the error, with ``{}`` in place of the kind of bound.
    """
    text = f"minimum {text.format('usage')}"
    if request is None:
        return f"{text}.  No request is specified"
    if request < bound:
        return f"{text}, but request is {request}"
    return f"{text}, but limit is {limit}" if limit is not None and limit < bound else ""


def _check_maximum(text: str, bound: Quantity, request: Quantity | None, limit: Quantity | None) -> str:
    """Return the error if the limit is missing, or request or limit is above the bound; empty if allowed.

    ``text``: beginning of the error, with ``{}`` in place of the kind of bound.
    """
    text = f"maximum {text.format('usage')}"
    if limit is None:
        return f"{text}.  No limit is specified"
    if bound < limit:
        return f"{text}, but limit is {limit}"
    return f"{text}, but request is {request}" if request is not None and bound < request else ""


def _check_ratio(text: str, bound: Quantity, request: Quantity | None, limit: Quantity | None) -> str:
    """Return the error if the limit is too many times the request, or one is missing or 0; empty if allowed.

    ``text``: beginning of the error, with ``{}`` in place of the kind of bound.
    """
    text = text.format("max limit to request ratio")
    if request is None or request.is_zero:
        return f"{text}, but no request is specified or request is 0"
    if limit is None or limit.is_zero:
        return f"{text}, but no limit is specified or limit is 0"
    ratio = limit.as_fraction() / request.as_fraction()
    return f"{text}, but provided ratio is {float(ratio):f}" if ratio > bound.as_fraction() else ""


def _get_defaults(limit_range: LimitRange) -> tuple[ResourceList, ResourceList]:
    """Return the default requests and limits of containers in a limit range. Later items of the range win."""
    requests: ResourceList = {}
    limits: ResourceList = {}
    for item in limit_range.spec.limits:
        if item.type == "Container":
            requests |= item.default_request or {}
            limits |= item.default or {}
    return requests, limits


def _merge_resources(container: Container, requests: ResourceList, limits: ResourceList) -> Container:
    """Return the container with default requests and limits where it has none of its own."""
    own = container.resources
    return replace(
        container,
        resources=replace(
            own,
            requests={**requests, **(own.requests or {})} or own.requests,
            limits={**limits, **(own.limits or {})} or own.limits,
        ),
    )


COMPLETING_KINDS: Final = ("PriorityClass", "RuntimeClass", "LimitRange", "ResourceClaimTemplate")
"""The kinds that :meth:`PodClasses.of` reads."""


class PodClasses(msgspec.Struct, frozen=True):
    """A cluster's objects that complete its pods.

    These are priority and runtime classes by name, limit ranges by namespace, and templates of resource claims by
    (namespace, name). The two priority classes of the system always exist.
    """

    priorities: Mapping[str, PriorityClass] = msgspec.field(default_factory=dict)
    runtimes: Mapping[str, RuntimeClass] = msgspec.field(default_factory=dict)
    limits: Mapping[str, Sequence[LimitRange]] = msgspec.field(default_factory=dict)
    claim_templates: Mapping[tuple[str, str], ResourceClaimTemplate] = msgspec.field(default_factory=dict)

    @staticmethod
    def of(objects: Iterable[KubeObject]) -> PodClasses:
        """Collect the classes, limit ranges and claim templates among the objects of a cluster.

        Of several objects with one name, the last is used.
        """
        listed = list(objects)
        limits: dict[str, list[LimitRange]] = {}
        for item in listed:
            if isinstance(item, LimitRange):
                limits.setdefault(item.namespace, []).append(item)
        return PodClasses(
            {item.name: item for item in listed if isinstance(item, PriorityClass)},
            {item.name: item for item in listed if isinstance(item, RuntimeClass)},
            limits,
            {(item.namespace, item.name): item for item in listed if isinstance(item, ResourceClaimTemplate)},
        )

    def refusal(self, spec: PodSpec, namespace: str = "default") -> tuple[str, str]:
        """Return (admission plugin, message) if an API server would refuse a pod; ("", "") otherwise.

        A pod is refused if its priority or runtime class does not exist, or if it violates a limit range of the
        namespace. ``spec`` is the pod's spec as written, without defaults. The priority class is not checked if the
        input has no priority class at all, because the input is then probably incomplete; likewise the runtime class.
        """
        name = spec.priority_class_name
        if name and self.priorities and self.priority(name) is None:
            return "Priority", f"no PriorityClass with name {name} was found"
        runtime = spec.runtime_class_name
        if runtime and self.runtimes and runtime not in self.runtimes:
            return "RuntimeClass", f'pod rejected: RuntimeClass "{runtime}" not found'
        ranges = self.limits.get(namespace, ())
        message = refusal(with_defaults(spec, None, self, namespace), ranges) if ranges else ""
        return ("LimitRanger", message) if message else ("", "")

    def unknown(self, spec: PodSpec) -> list[str]:
        """Return a text for each class of a pod (priority, runtime) that cannot be checked; empty if there is none.

        A class cannot be checked if the input has no class of its kind at all. System priority classes are known.
        """
        descriptions = []
        if spec.priority_class_name and not self.priorities and self.priority(spec.priority_class_name) is None:
            descriptions.append(f"PriorityClass {spec.priority_class_name} (not in the input)")
        if spec.runtime_class_name and not self.runtimes:
            descriptions.append(f"RuntimeClass {spec.runtime_class_name} (not in the input)")
        return descriptions

    def priority(self, name: str) -> PriorityClass | None:
        """Return the priority class of a name; None if there is none.

        Without a name, returns the lowest of the classes that are the global default.
        """
        if name:
            return self.priorities.get(name) or _SYSTEM_CLASSES.get(name)
        defaults = [item for item in self.priorities.values() if item.global_default]
        return min(defaults, key=lambda item: item.value, default=None)


_SYSTEM_CLASSES: Final = {
    name: PriorityClass(metadata=ObjectMeta(name=name), value=value)
    for name, value in (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000))
}
BUILT_IN_CLASSES: Final = PodClasses()
"""Only what every cluster has."""
_EVICTING: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_GRACE: Final = 300

_replace = msgspec.structs.replace


def with_defaults(
    spec: PodSpec,
    labels: Mapping[str, str] | None,
    classes: PodClasses = BUILT_IN_CLASSES,
    namespace: str = "default",
) -> PodSpec:
    """Return a copy of the spec as the API server would store it.

    Parameters
    ----------
    spec : PodSpec
    labels : mapping or None
        The pod's labels.
    classes : PodClasses
        Priority and runtime classes and limit ranges. A missing priority class counts as priority 0, and a missing
        runtime class as one without overhead; an API server would refuse these pods.
    namespace : str
        Namespace of the limit ranges.
    """
    spec = _replace(
        spec,
        containers=[_complete_container(item, spec.host_network) for item in spec.containers],
        init_containers=[_complete_container(item, spec.host_network) for item in spec.init_containers],
        restart_policy=spec.restart_policy or "Always",
        scheduler_name=spec.scheduler_name or "default-scheduler",
        tolerations=_complete_tolerations(spec.tolerations),
        affinity=_complete_affinity(spec.affinity, labels or {}),
    )
    spec = with_limit_range_defaults(spec, classes.limits.get(namespace, ()))
    if spec.termination_grace_period_seconds is None:
        spec.termination_grace_period_seconds = 30
    _set_priority(spec, classes.priority(spec.priority_class_name))
    runtime = classes.runtimes.get(spec.runtime_class_name or "")
    if runtime is not None:
        _set_runtime(spec, runtime)
    if spec.resources is not None:
        spec.resources = _complete_pod_resources(spec, spec.resources)
    return spec


def _set_priority(spec: PodSpec, priority_class: PriorityClass | None) -> None:
    """Set the priority, preemption policy and class name that ``spec`` lacks to those of the class.

    Without a class the priority is 0 and the policy ``PreemptLowerPriority``.
    """
    if priority_class is not None and not spec.priority_class_name:
        spec.priority_class_name = priority_class.name
    if spec.priority is None:
        spec.priority = 0 if priority_class is None else priority_class.value
    if spec.preemption_policy is None:
        policy = None if priority_class is None else priority_class.preemption_policy
        spec.preemption_policy = policy or "PreemptLowerPriority"


def _set_runtime(spec: PodSpec, runtime: RuntimeClass) -> None:
    """Add a runtime class's overhead, node selector and tolerations to ``spec``.

    An overhead of ``spec`` and its own entries of the node selector stay.
    """
    if spec.overhead is None and runtime.overhead is not None:
        spec.overhead = runtime.overhead.pod_fixed
    if runtime.scheduling.node_selector:
        spec.node_selector = {**runtime.scheduling.node_selector, **(spec.node_selector or {})}
    spec.tolerations = [
        *spec.tolerations, *(item for item in runtime.scheduling.tolerations if item not in spec.tolerations)
    ]  # fmt: skip


def _complete_container(container: Container, host_network: bool) -> Container:
    """Return a copy of the container with requests that default to its limits, and with complete ports.

    Ports get the protocol TCP by default and, on the host network, host ports.
    """
    resources = container.resources
    if resources.limits:
        requests = {**resources.limits, **(resources.requests or {})}
        resources = _replace(resources, requests=requests)
    return _replace(
        container, resources=resources, ports=[_complete_port(port, host_network) for port in container.ports]
    )


def _complete_port(port: ContainerPort, host_network: bool) -> ContainerPort:
    """Return the port with protocol TCP by default and, on the host network, the container's port as host port."""
    host_port = port.container_port if host_network and not port.host_port else port.host_port
    return _replace(port, protocol=port.protocol or "TCP", host_port=host_port)


def _get_limits(container: Container) -> ResourceList | None:
    """Return the limits of a container; None if absent."""
    return container.resources.limits


def _complete_pod_resources(spec: PodSpec, resources: ResourceRequirements) -> ResourceRequirements:
    """Return the pod-level resources with the API server's defaults; ``resources`` itself if they have no limits.

    Limits of huge pages default to the containers' limits. Then requests of CPU and memory default to the containers'
    requests, and requests that are still missing default to the limits.
    """
    requests: ResourceList = dict(resources.requests or {})
    limits: ResourceList = dict(resources.limits or {})
    if requests or limits:
        for name, quantity in container_requests(spec, _get_limits).items():
            if is_hugepages(name) and name not in requests:
                limits.setdefault(name, quantity)
    if not limits:
        return resources
    for name, quantity in container_requests(spec).items():
        if name in (CPU, MEMORY):
            requests.setdefault(name, quantity)
    for name, quantity in limits.items():
        if is_pod_level_resource(name):
            requests.setdefault(name, quantity)
    return _replace(resources, requests=requests or resources.requests, limits=limits)


def _complete_tolerations(tolerations: Sequence[Toleration]) -> list[Toleration]:
    """Return the tolerations with those that the admission plugin DefaultTolerationSeconds adds.

    The plugin makes a pod tolerate a node that is not ready or unreachable for five minutes. It adds nothing for a
    taint that the pod already tolerates.
    """
    added = [
        Toleration(key=key, operator="Exists", effect="NoExecute", toleration_seconds=_GRACE)
        for key in _EVICTING
        if not any(item.key in ("", key) and item.effect in ("", "NoExecute") for item in tolerations)
    ]
    return [*tolerations, *added]


def _complete_affinity(affinity: Affinity | None, labels: Mapping[str, str]) -> Affinity | None:
    """Return the affinity with label keys merged into the selectors of all terms about pods. None stays None."""
    if affinity is None:
        return None
    return _replace(
        affinity,
        pod_affinity=_complete_pod_affinity(affinity.pod_affinity, labels),
        pod_anti_affinity=_complete_pod_affinity(affinity.pod_anti_affinity, labels),
    )


def _complete_pod_affinity(affinity: PodAffinity | None, labels: Mapping[str, str]) -> PodAffinity | None:
    """Return the affinity with label keys merged into the selectors of all its terms. None stays None."""
    if affinity is None:
        return None
    preferred: list[WeightedPodAffinityTerm] = [
        _replace(item, pod_affinity_term=_complete_term(item.pod_affinity_term, labels)) for item in affinity.preferred
    ]
    return _replace(
        affinity, required=[_complete_term(term, labels) for term in affinity.required], preferred=preferred
    )


def _complete_term(term: PodAffinityTerm, labels: Mapping[str, str]) -> PodAffinityTerm:
    """Merge ``matchLabelKeys`` and ``mismatchLabelKeys`` into the term's selector. Keys not in ``labels`` are ignored.

    Returns the term itself without keys or without a selector.
    """
    if term.label_selector is None or not (term.match_label_keys or term.mismatch_label_keys):
        return term
    added = [
        LabelSelectorRequirement(key=key, operator=operator, values=[labels[key]])
        for operator, keys in (("In", term.match_label_keys), ("NotIn", term.mismatch_label_keys))
        for key in keys
        if key in labels
    ]
    selector: LabelSelector = _replace(
        term.label_selector, match_expressions=[*term.label_selector.match_expressions, *added]
    )
    return _replace(term, label_selector=selector)
