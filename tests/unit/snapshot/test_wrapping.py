"""Amounts that leave int64 wrap, as upstream's do, wherever they are added up."""

from __future__ import annotations

from typing import Any

import pytest

import kscale

HUGE = "9223372036854775807"


def pod(name: str, node: str = "", resource: str = "memory") -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": {resource: HUGE}}}]}
    metadata = {"name": name, "namespace": "d"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec | ({"nodeName": node} if node else {}),
    }


NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"memory": HUGE, "pods": "9"}},
}


@pytest.mark.parametrize("resource", ["memory", "example.com/gpu"])
@pytest.mark.filterwarnings("error")
def test_used_amounts_wrap_on_add_and_remove(resource: str) -> None:
    cluster = kscale.Cluster([NODE, *(pod(f"p{i}", "n", resource) for i in range(3))])
    assert cluster.snapshot().used[resource].tolist() == [2**63 - 3]  # 3 * (2^63 - 1) modulo 2^64
    cluster.remove(cluster.pod("d/p2"))
    assert cluster.snapshot().used[resource].tolist() == [-2]


def test_simulated_placements_wrap_too() -> None:
    snapshot = kscale.Cluster([NODE, pod("p0", "n")]).snapshot()
    more = [kscale.Cluster([pod(f"q{i}")]).snapshot().pending_records[0] for i in range(2)]
    assert snapshot.with_placed(more, [0, 0]).used["memory"].tolist() == [2**63 - 3]
