"""Capacity buffers within the resource quotas of their namespace (``controller/resourcequotas_test.go``)."""

from __future__ import annotations

from typing import Any

import pytest

from builders import N0, at, container
from kscale.ca.capacity_buffers import AllocatedQuotas, allocate_quotas
from kscale.objects.api.cluster_autoscaler import CapacityBuffer, CapacityBufferStatus, LocalObjectRef
from kscale.objects.api.core import (
    Affinity,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodTemplate,
    PodTemplateSpec,
    WeightedPodAffinityTerm,
)
from kscale.objects.api.meta import Condition, ObjectMeta
from kscale.objects.api.policy import (
    ResourceQuota,
    ResourceQuotaSpec,
    ResourceQuotaStatus,
    ScopeSelector,
    ScopeSelectorRequirement,
)
from kscale.objects.quantity import Quantity

MIB = 1 << 20


def buffer(name: str, replicas: int | None = 10, template: str = "web") -> CapacityBuffer:
    return CapacityBuffer(
        metadata=ObjectMeta(name=name, namespace="shop", uid=name, generation=2),
        status=CapacityBufferStatus(
            pod_template_ref=LocalObjectRef(name=template), pod_template_generation=1, replicas=replicas
        ),
    )


def quota(name: str, hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> ResourceQuota:
    def amounts(limits: dict[str, str]) -> dict[str, Quantity]:
        return {key: Quantity(text) for key, text in limits.items()}

    return ResourceQuota(
        metadata=ObjectMeta(name=name, namespace="shop", uid=name),
        spec=ResourceQuotaSpec(**spec),
        status=ResourceQuotaStatus(hard=amounts(hard), used=amounts(used or {})),
    )


def allocate(buffers: list[CapacityBuffer], *quotas: ResourceQuota, **spec: Any) -> AllocatedQuotas:
    """With a template of half a core and 100 MiB, unless said otherwise."""
    of_pods = PodSpec(**{"containers": [container(500, 100 * MIB)], **spec})
    web = PodTemplate(metadata=ObjectMeta(name="web", namespace="shop"), template=PodTemplateSpec(spec=of_pods))
    return allocate_quotas(buffers, {"shop/web": web}, quotas, N0)


def replicas(allocated: AllocatedQuotas) -> list[int | None]:
    return [each.status.replicas for each in allocated.buffers]


@pytest.mark.parametrize(
    ("quotas", "want"),
    [
        ([], [10, 10]),
        ([quota("q", {"cpu": "20"})], [10, 10]),
        ([quota("q", {"requests.cpu": "7500m"})], [10, 5]),
        ([quota("q", {"cpu": "4", "memory": "300Mi"})], [3, 0]),
        ([quota("q", {"cpu": "4"}, {"cpu": "1100m"})], [5, 0]),
        ([quota("q", {"cpu": "1"}, {"cpu": "2"})], [0, 0]),
        ([quota("q", {"pods": "1", "limits.cpu": "1", "count/pods": "1"})], [10, 10]),
        ([quota("a", {"cpu": "6"}), quota("b", {"memory": "1500Mi"})], [10, 2]),
        ([quota("q", {"cpu": "100m"}, {"cpu": "600m"})], [0, 0]),
    ],
)
def test_buffers_share_the_remaining_quota(quotas: list[ResourceQuota], want: list[int]) -> None:
    assert replicas(allocate([buffer("first"), buffer("second")], *quotas)) == want


def test_limited_buffer_has_a_condition() -> None:
    (allocated,) = allocate(
        [buffer("b")], quota("x", {"cpu": "2"}), quota("y", {"cpu": "3"}), quota("z", {"cpu": "9"})
    ).buffers
    assert allocated.status.conditions == [
        Condition(
            type="LimitedByQuotas",
            status="True",
            reason="ResourceQuotasAllocated",
            message="Buffer replicas limited from 10 to 4 due to quotas: x, y",
            last_transition_time=at(),
            observed_generation=2,
        )
    ]
    (free,) = allocate([buffer("b")]).buffers
    assert [(each.status, each.message) for each in free.status.conditions] == [("False", "")]


def test_buffers_that_are_not_ready_pass() -> None:
    buffers_ = [buffer("b", replicas=None), buffer("c", template="gone")]
    assert allocate(buffers_, quota("q", {"cpu": "0"})).buffers == buffers_
    plain = buffer("d")
    assert allocate([plain], quota("q", {"cpu": "0"}), containers=[container()]).buffers == [plain]


def scoped(operator: str, *values: str) -> ScopeSelector:
    return ScopeSelector(
        match_expressions=[ScopeSelectorRequirement(scope_name="PriorityClass", operator=operator, values=list(values))]
    )


EXCLUSION_REASONS = PodAffinityTerm(namespaces=["other"])


@pytest.mark.parametrize(
    ("scope", "pod", "counts"),
    [
        ({"scopes": ["NotTerminating"]}, {}, True),
        ({"scopes": ["Terminating"]}, {}, False),
        ({"scopes": ["NotBestEffort"]}, {}, True),
        ({"scopes": ["BestEffort"]}, {}, False),
        ({"scopes": ["NotBestEffort", "Terminating"]}, {}, False),
        ({"scopes": ["VolumeAttributesClass"]}, {}, False),
        ({"scopes": ["PriorityClass"]}, {}, False),
        ({"scopes": ["PriorityClass"]}, {"priority_class_name": "high"}, True),
        ({"scope_selector": scoped("In", "high", "low")}, {"priority_class_name": "high"}, True),
        ({"scope_selector": scoped("In", "low")}, {"priority_class_name": "high"}, False),
        ({"scope_selector": scoped("NotIn", "low")}, {}, True),
        ({"scope_selector": scoped("DoesNotExist")}, {}, True),
        ({"scopes": ["CrossNamespacePodAffinity"]}, {}, False),
        (
            {"scopes": ["CrossNamespacePodAffinity"]},
            {"affinity": Affinity(pod_anti_affinity=PodAffinity(required=[EXCLUSION_REASONS]))},
            True,
        ),
        (
            {"scopes": ["CrossNamespacePodAffinity"]},
            {
                "affinity": Affinity(
                    pod_affinity=PodAffinity(preferred=[WeightedPodAffinityTerm(pod_affinity_term=EXCLUSION_REASONS)])
                )
            },
            True,
        ),
    ],
)
def test_scopes(scope: dict[str, Any], pod: dict[str, Any], counts: bool) -> None:
    result = allocate([buffer("b")], quota("q", {"cpu": "1"}, **scope), **pod)
    assert replicas(result) == [2 if counts else 10]


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        (scoped("Near"), '"Near" is not a valid scope selector operator'),
        (scoped("In"), "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"),
    ],
)
def test_unreadable_quota_is_skipped(selector: ScopeSelector, why: str) -> None:
    result = allocate([buffer("b")], quota("odd", {"cpu": "1"}, scope_selector=selector), quota("q", {"cpu": "2"}))
    assert replicas(result) == [4]
    before = 'resourceQuotaAllocator: failed to check if pod matches quota "odd", error: '
    assert result.errors == [f"{before}failed to parse and convert selector: {why}"]


def test_quotas_of_files_without_uid_are_told_apart() -> None:
    """Two quotas that both count the CPU do not count each other's reservations."""
    quotas = [quota("a", {"cpu": "10"}), quota("b", {"cpu": "10"})]
    for each in quotas:
        each.metadata.uid = ""
    assert replicas(allocate([buffer("one"), buffer("two")], *quotas)) == [10, 10]
