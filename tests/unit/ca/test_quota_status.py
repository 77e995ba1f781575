"""The status of a CapacityQuota: whether it counts, and what is used."""

from __future__ import annotations

from typing import Any

import pytest

from builders import node
from kscale.ca.quota import build_quota_status, build_quota_status_patch, read_capacity_quotas
from kscale.objects.api.cluster_autoscaler import CapacityQuota
from kscale.objects.decode import from_dict, to_dict

NOW = 1_800_000_000 * 10**9
NODES = [
    node("a", 4000, "8Gi", labels={"pool": "x"}),
    node("b", 1500, "8Gi", labels={"pool": "x"}),
    node("c", 64000, 1 << 40, labels={"pool": "y"}),
    node("v", 64000, 1 << 40, labels={"pool": "x", "type": "virtual-kubelet"}),
]


def quota(selector: Any = None, status: Any = None, **limits: str) -> CapacityQuota:
    spec = {"limits": {"resources": limits}, **({"selector": selector} if selector is not None else {})}
    metadata = {"name": "q", "generation": 3, "resourceVersion": "7"}
    data = {"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityQuota", "metadata": metadata, "spec": spec}
    return from_dict({**data, "status": status or {}}, CapacityQuota)


def conditions(capacity_quota: CapacityQuota) -> dict[str, tuple[str, str, str]]:
    result = build_quota_status(capacity_quota, NODES, NOW)
    return {each.type: (each.status, each.reason, each.message) for each in result.conditions}


def used(capacity_quota: CapacityQuota) -> dict[str, str]:
    result = build_quota_status(capacity_quota, NODES, NOW).used
    assert result is not None
    return {name: str(amount) for name, amount in result.resources.items()}


def test_a_valid_quota() -> None:
    capacity_quota = quota(
        {"matchLabels": {"pool": "x"}}, cpu="10", memory="64Gi", nodes="5", **{"example.com/gpu": "2"}
    )
    assert conditions(capacity_quota) == {
        "cluster-autoscaler.kubernetes.io/valid": ("True", "ValidationSucceeded", "CapacityQuota is valid"),
        "Reconciled": ("True", "ReconciliationSucceeded", "CapacityQuota successfully reconciled"),
    }
    assert used(capacity_quota) == {"cpu": "5500m", "memory": "16Gi", "nodes": "2", "example.com/gpu": "0"}
    assert used(quota(nodes="5")) == {"nodes": "3"}
    assert used(quota({}, nodes="5")) == {"nodes": "3"}


def test_a_selector_that_cannot_be_read() -> None:
    broken = {"matchExpressions": [{"key": "pool", "operator": "Near", "values": ["x"]}]}
    valid, reconciled = conditions(quota(broken, nodes="5")).values()
    selector_text = '{"matchExpressions":[{"key":"pool","operator":"Near","values":["x"]}]}'
    text = f'spec.selector: Invalid value: {selector_text}: "Near" is not a valid label selector operator'
    assert valid == ("False", "ValidationFailed", text)
    assert reconciled == ("False", "ReconciliationFailed", "Validation failed")


def test_written_status_is_used_and_not_written_again() -> None:
    capacity_quota = quota(nodes="5")
    assert read_capacity_quotas([capacity_quota])[0] == []
    status = build_quota_status(capacity_quota, NODES, NOW)
    written = quota(None, to_dict(status), nodes="5")
    assert [each.limits for each in read_capacity_quotas([written])[0]] == [{"nodes": 5}]
    assert build_quota_status(written, NODES, NOW + 60 * 10**9) is written.status
    assert build_quota_status(written, NODES[:1], NOW) is not written.status


def test_the_patch() -> None:
    before = quota(None, {"used": {"resources": {"cpu": "3", "nodes": "1"}}}, nodes="5")
    patch = build_quota_status_patch(before, build_quota_status(before, NODES, NOW))
    assert (patch.kind, patch.name, patch.subresource, patch.resource_version) == ("CapacityQuota", "q", "status", "7")
    assert isinstance(patch.patch, dict)
    assert patch.patch["status"]["used"] == {"resources": {"cpu": None, "nodes": "3"}}
    assert patch.patch["status"]["observedGeneration"] == 3


@pytest.mark.parametrize("generation", [3, 4])
def test_the_generation_that_was_looked_at(generation: int) -> None:
    capacity_quota = quota(nodes="5")
    capacity_quota.metadata.generation = generation
    result = build_quota_status(capacity_quota, NODES, NOW)
    assert result.observed_generation == generation
    assert {each.observed_generation for each in result.conditions} == {generation}
