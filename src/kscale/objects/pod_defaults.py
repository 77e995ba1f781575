"""What the API server fills in when a pod is created, as far as a decision can see it.

Upstream: ``pkg/apis/core/v1/defaults.go``, the pod strategy's label keys, and the admission plugins that are on by
default. Not modelled: the overhead of a RuntimeClass, LimitRanges, and PriorityClasses other than the two built-in ones
(pass their values).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kscale.objects.base import ResourceList
from kscale.objects.core import (
    Affinity,
    Container,
    ContainerPort,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    ResourceRequirements,
    Toleration,
    WeightedPodAffinityTerm,
)
from kscale.objects.meta import LabelSelector, LabelSelectorRequirement
from kscale.objects.requests import container_requests, is_pod_level_resource

__all__ = ["SYSTEM_PRIORITIES", "with_defaults"]

SYSTEM_PRIORITIES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
_EVICTING: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_GRACE: Final = 300

_replace = msgspec.structs.replace


def with_defaults(
    spec: PodSpec, labels: Mapping[str, str] | None, priorities: Mapping[str, int] = SYSTEM_PRIORITIES
) -> PodSpec:
    """The spec as the API server would store it (a new one; the given one is not changed)."""
    spec = _replace(
        spec,
        containers=[_container(item, spec.host_network) for item in spec.containers],
        init_containers=[_container(item, spec.host_network) for item in spec.init_containers],
        restart_policy=spec.restart_policy or "Always",
        scheduler_name=spec.scheduler_name or "default-scheduler",
        tolerations=_tolerations(spec.tolerations),
        affinity=_affinity(spec.affinity, labels or {}),
    )
    if spec.termination_grace_period_seconds is None:
        spec.termination_grace_period_seconds = 30
    if spec.priority is None:
        spec.priority = priorities.get(spec.priority_class_name, 0)
    if spec.preemption_policy is None:
        spec.preemption_policy = "PreemptLowerPriority"
    if spec.resources is not None:
        spec.resources = _pod_resources(spec, spec.resources)
    return spec


def _container(container: Container, host_network: bool) -> Container:
    """Limits become requests where there are none; ports of the host network are ports of the host."""
    resources = container.resources
    if resources.limits:
        requests = {**resources.limits, **(resources.requests or {})}
        resources = _replace(resources, requests=requests)
    return _replace(container, resources=resources, ports=[_port(port, host_network) for port in container.ports])


def _port(port: ContainerPort, host_network: bool) -> ContainerPort:
    host_port = port.container_port if host_network and not port.host_port else port.host_port
    return _replace(port, protocol=port.protocol or "TCP", host_port=host_port)


def _pod_resources(spec: PodSpec, resources: ResourceRequirements) -> ResourceRequirements:
    """Requests of the pod as a whole: what its containers ask for, else its limits."""
    requests: ResourceList = dict(resources.requests or {})
    for name, quantity in container_requests(spec).items():
        if is_pod_level_resource(name):
            requests.setdefault(name, quantity)
    for name, quantity in (resources.limits or {}).items():
        if is_pod_level_resource(name):
            requests.setdefault(name, quantity)
    return _replace(resources, requests=requests or resources.requests)


def _tolerations(tolerations: Sequence[Toleration]) -> list[Toleration]:
    """Admission plugin DefaultTolerationSeconds: five minutes on a node that is not ready or cannot be reached."""
    added = [
        Toleration(key=key, operator="Exists", effect="NoExecute", toleration_seconds=_GRACE)
        for key in _EVICTING
        if not any(item.key in ("", key) and item.effect in ("", "NoExecute") for item in tolerations)
    ]
    return [*tolerations, *added]


def _affinity(affinity: Affinity | None, labels: Mapping[str, str]) -> Affinity | None:
    if affinity is None:
        return None
    return _replace(
        affinity,
        pod_affinity=_pod_affinity(affinity.pod_affinity, labels),
        pod_anti_affinity=_pod_affinity(affinity.pod_anti_affinity, labels),
    )


def _pod_affinity(affinity: PodAffinity | None, labels: Mapping[str, str]) -> PodAffinity | None:
    if affinity is None:
        return None
    preferred: list[WeightedPodAffinityTerm] = [
        _replace(item, pod_affinity_term=_term(item.pod_affinity_term, labels)) for item in affinity.preferred
    ]
    return _replace(affinity, required=[_term(term, labels) for term in affinity.required], preferred=preferred)


def _term(term: PodAffinityTerm, labels: Mapping[str, str]) -> PodAffinityTerm:
    """``matchLabelKeys`` and ``mismatchLabelKeys`` folded into the selector; without a selector they mean nothing."""
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
