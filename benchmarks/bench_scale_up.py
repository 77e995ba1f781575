"""Scale-up: from a snapshot to a plan. Every benchmark asserts its answer.

Conditions: one process, one thread; the snapshot exists before the clock starts. ``warm`` decides on one snapshot again
and again, ``first`` each time on a new one of a cluster whose pending pods an earlier decision has looked at (what was
read of them stays with the cluster), ``cold`` once on pods that nobody has looked at. The targets are those of a loop,
``first``. The garbage of the set-up is collected before. Texts and names are asked for where the
name says so only. A figure is pytest-benchmark's minimum and median.
"""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rounds import WHEN, timed

import kscale
from kscale import ca
from kscale.ca import LoopReport
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_up.plan import ScaleUpPlan
from kscale.effects import Event
from kscale.objects.api.core import Node, Pod
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import NodeGroup, NodeTemplate

NOW = datetime(2026, 8, 21, 12, tzinfo=UTC)
CREATED = "2026-08-21T11:00:00Z"
READY = [{"type": "Ready", "status": "True", "lastTransitionTime": CREATED}]
UNSCHEDULABLE = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]


def _pod(name: str, cpu: int, memory: int, *, owner: str = "", node: str = "", pending: bool = True) -> Pod:
    metadata: dict[str, Any] = {"name": name, "namespace": "shop", "uid": name, "creationTimestamp": CREATED}
    metadata["labels"] = {"app": owner or "alone"}
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
        ]
    requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    if node:
        spec["nodeName"] = node
    status = {"phase": "Pending", "conditions": UNSCHEDULABLE} if pending else {"phase": "Running"}
    return from_dict(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status},
        Pod,
    )


def _node(name: str, cpu: int, memory: int, pods: int, **labels: str) -> Node:
    amounts = {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": str(pods)}
    return from_dict(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, **labels},
                "creationTimestamp": CREATED,
            },
            "spec": {"providerID": f"test://{name}"},
            "status": {"allocatable": amounts, "capacity": amounts, "conditions": READY},
        },
        Node,
    )


def _group(name: str, node: Node, **more: Any) -> NodeGroup:
    return NodeGroup(id=name, min_size=0, max_size=2000, template=NodeTemplate(node=node), **more)


@WHEN
def test_50000_pods_without_controller(benchmark: Any, when: str) -> None:
    """Upstream's benchmark of a loop: 50,000 pods that stand alone, 1,000 nodes of one group. Target: <= 50 ms."""
    cluster = kscale.Cluster([_pod(f"pod-{i}", 100, 100) for i in range(50_000)])
    groups = [_group("ng", _node("template", 10, 100, 50))]
    options = AutoscalingOptions(max_nodes_per_scaleup=1000)

    def decide(snapshot: kscale.Snapshot) -> ScaleUpPlan:
        return kscale.scale_up(snapshot, groups, now=NOW, options=options)

    plan = timed(benchmark, decide, when=when, cluster=cluster)
    assert [(info.group, info.current, info.new) for info in plan.scale_ups] == [("ng", 0, 1000)]
    assert plan.unschedulable_count == 0


@WHEN
def test_50000_pods_with_names_and_events(benchmark: Any, when: str) -> None:
    """The same with all that upstream says: 50,000 names and as many events. Target: <= 60 ms, cold."""
    cluster = kscale.Cluster([_pod(f"pod-{i}", 100, 100) for i in range(50_000)])
    groups = [_group("ng", _node("template", 10, 100, 50))]
    options = AutoscalingOptions(max_nodes_per_scaleup=1000)

    def decide(snapshot: kscale.Snapshot) -> tuple[list[str], list[Event]]:
        plan = kscale.scale_up(snapshot, groups, now=NOW, options=options)
        return list(plan.triggered), list(plan.events)

    names, events = timed(benchmark, decide, when=when, cluster=cluster)
    assert len(names) == 50_000
    assert sum(event.reason == "TriggeredScaleUp" for event in events) == 50_000


def test_50000_pods_in_a_whole_loop(benchmark: Any) -> None:
    """The same as upstream's clock has it: the snapshot and the whole of ``ca.run_once``, of pods that are read and
    that nobody has looked at."""
    groups = [_group("ng", _node("template", 10, 100, 50), target_size=0)]
    options = AutoscalingOptions(max_nodes_per_scaleup=1000)
    text = pickle.dumps(kscale.Cluster([_pod(f"pod-{i}", 100, 100) for i in range(50_000)]))

    def loop(cluster: kscale.Cluster) -> LoopReport:
        return ca.run_once(cluster, groups, now=NOW, options=options)

    def unseen() -> tuple[tuple[kscale.Cluster], dict[str, Any]]:
        return (pickle.loads(text),), {}

    report = benchmark.pedantic(loop, setup=unseen, rounds=3, warmup_rounds=1)
    assert report.error is None
    assert [(info.group, info.new) for info in report.scale_up.scale_ups] == [("ng", 1000)]


@pytest.fixture(scope="module")
def large() -> kscale.Cluster:
    """5,000 nodes in 100 groups, 150,000 pods of 500 controllers on them, all but full; 10,000 pending pods of 300."""
    objects: list[Any] = []
    for g in range(100):
        labels = {"pool": f"pool-{g}", "zone": f"z{g % 3}"}
        objects += [_node(f"g{g}-n{i}", *_shape(g), **labels) for i in range(50)]
    number = 0
    for node in list(objects):
        g = int(node.metadata.name[1:].split("-")[0])
        cpu, memory, _ = _shape(g)
        for k in range(30):
            size = (cpu * 1000 // 30, memory * 1024 // 30)
            kind = (g * 5 + k) % 500
            name = f"run-{number}"
            objects.append(_pod(name, *size, owner=f"rs-{kind}", node=node.metadata.name, pending=False))
            number += 1
    for i in range(10_000):
        kind = i % 300
        objects.append(_pod(f"new-{i}", 300 + 7 * (kind % 40), 200 + 31 * (kind % 29), owner=f"new-rs-{kind}"))
    return kscale.Cluster(objects)


def _shape(g: int) -> tuple[int, int, int]:
    """Cores, GiB and pods of the nodes of a group."""
    cpu = (4, 8, 16, 32)[g % 4]
    return cpu, cpu * (2, 4, 8)[g // 4 % 3], 110


@WHEN
def test_10000_pods_in_300_groups_by_100_node_groups(benchmark: Any, large: kscale.Cluster, when: str) -> None:
    """10,000 pending pods on 5,000 nodes with 150,000 pods. Target: <= 100 ms."""
    groups = [
        _group(f"g{g}", _node(f"template-{g}", *_shape(g), pool=f"pool-{g}"), node_selector={"pool": f"pool-{g}"})
        for g in range(100)
    ]

    def decide(snapshot: kscale.Snapshot) -> ScaleUpPlan:
        return kscale.scale_up(snapshot, groups, now=NOW + timedelta(hours=1))

    plan = timed(benchmark, decide, when=when, cluster=large)
    assert plan.result == "ScaleUpSuccessful"
    assert [(info.group, info.current, info.new) for info in plan.scale_ups] == [("g3", 50, 187)]
    assert plan.unschedulable_count == 0
    assert len(plan.triggered) == 10_000
