"""What a cluster costs: shares of nodes, groups, workloads; and what has no price."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import kscale
from kscale import InputError
from kscale.capacity.catalogue import read_catalogue
from kscale.capacity.cost import cost, ideal_mix
from kscale.capacity.group_templates import with_templates
from kscale.capacity.groups import groups_from

GIB = 2**30


def node(name: str, pool: str, cpu: str, memory: str, **more: str) -> dict[str, Any]:
    room = {"cpu": cpu, "memory": memory, "pods": "110", **more}
    labels = {"pool": pool, "node.kubernetes.io/instance-type": f"type-{pool}"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "status": {"capacity": room, "allocatable": room}}  # fmt: skip


def pod(name: str, on: str, cpu: str, memory: str, owner: str = "", **more: str) -> dict[str, Any]:
    namespace, _, own = name.partition("/")
    metadata: dict[str, Any] = {"name": own, "namespace": namespace, "uid": name}
    if owner:
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
        metadata["ownerReferences"] = [reference]
    requests = {"cpu": cpu, "memory": memory, **more}
    status = {"phase": "Running" if on else "Pending"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status,
            "spec": {"nodeName": on, "containers": [{"name": "c", "resources": {"requests": requests}}]}}  # fmt: skip


def replica_set(namespace: str, name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "uid": name}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata,
            "spec": {"selector": {"matchLabels": {"app": name}}}}  # fmt: skip


CLUSTER = [
    node("n1", "plain", "4", "30Gi"),
    node("n2", "plain", "4", "30Gi"),
    node("g1", "gpu", "8", "60Gi", **{"nvidia.com/gpu": "2"}),
    replica_set("shop", "web"),
    pod("shop/web-1", "n1", "2", "3Gi", "web"),
    pod("shop/web-2", "n1", "1", "3Gi", "web"),
    pod("ml/train", "g1", "1", "1Gi", **{"nvidia.com/gpu": "1"}),
    pod("shop/waits", "", "3", "1Gi"),
]
GROUPS = [
    {"id": "plain", "nodeSelector": {"pool": "plain"}, "price": 0.8},
    {"id": "gpu", "nodeSelector": {"pool": "gpu"}, "price": 7.6},
]


def test_shares() -> None:
    report = cost(kscale.load(CLUSTER), groups_from(GROUPS))
    assert (report.node_count, report.unpriced, report.pods, report.cost) == (3, 0, 3, pytest.approx(9.2))
    # n1: 4 cores and 30 GiB, which count as 4 cores: 0.1 a core and 0.1 for 7.5 GiB
    web = 0.3 + 6 / 7.5 * 0.1
    # g1: 8 cores, 60 GiB as 8, 2 GPUs as 60: 0.1 for each of 76
    train = 0.1 + 0.1 / 7.5 + 3.0
    assert [(line.name, line.pods) for line in report.workloads] == [("ml/Pod/train", 1), ("shop/ReplicaSet/web", 2)]
    assert [line.cost for line in report.workloads] == [pytest.approx(train), pytest.approx(web)]
    assert (report.requested, report.idle) == (pytest.approx(web + train), pytest.approx(9.2 - web - train))
    shop = report.namespaces[1]
    assert (shop.name, shop.cpu, shop.memory, shop.biggest) == ("shop", 3_000, 6 * GIB, "ReplicaSet/web")
    assert shop.share == pytest.approx(web / 9.2, abs=1e-6)
    assert [(pool.name, pool.nodes) for pool in report.pools] == [("gpu", 1), ("plain", 2)]
    assert report.pools[1].idle == pytest.approx(1.6 - web)


def test_prices_of_a_catalogue_and_nodes_without_one() -> None:
    types = read_catalogue(
        b"instance_type,arch,vcpu,memory_mib,gpu,ondemand_usd_per_hour_here\ntype-plain,amd64,4,30720,0,0.5\n"
    )
    report = cost(kscale.load(CLUSTER), (), types)
    assert (report.cost, report.unpriced, report.pods) == (1.0, 1, 2)
    assert [line.name for line in report.namespaces] == ["shop"]
    with pytest.raises(InputError, match="no node has a known price"):
        cost(kscale.load(CLUSTER))


def test_the_cheapest_mix_is_for_the_pods_that_run() -> None:
    cluster = kscale.load(CLUSTER)
    groups = with_templates(cluster, cluster.snapshot(), groups_from(GROUPS))
    ideal = ideal_mix(cluster, groups)
    assert (ideal.cost, ideal.node_count, ideal.unschedulable_count) == (pytest.approx(7.6), 1, 0), (
        "the GPU node alone holds them"
    )
    limited = [msgspec.structs.replace(group, max_size=0) for group in groups]
    assert ideal_mix(cluster, limited).unschedulable_count == 3
    unpriced = ideal_mix(cluster, groups, groups=groups[:1])
    assert (unpriced.cost, unpriced.node_count) == (pytest.approx(0.8), 1), "what runs on the GPU node is not counted"
    assert cluster.snapshot().pending == ("shop/waits",)


def test_an_empty_cluster() -> None:
    report = cost(kscale.load([]))
    assert (report.node_count, report.cost, report.namespaces, report.pools) == (0, 0.0, [], [])
