"""All nodes and the ready ones."""

from __future__ import annotations

import pytest

from builders import GPU, GPU_LABEL, T0, at, node
from kscale.ca.cluster_state import ClusterStateRegistry, update_nodes
from kscale.ca.gpu import GpuConfig
from kscale.ca.nodes import RESOURCE_NOT_READY_REASON, STARTUP_TAINT_REASON, build_node_lists, get_readiness
from kscale.ca.templates import TaintConfig
from kscale.objects.api.core import Node, Taint
from kscale.objects.api.meta import Condition
from kscale.objects.nodegroup import Groups
from kscale.objects.quantity import Quantity


def _gpu(name: str, amount: str | None) -> Node:
    created = node(name, 1000, 1, ready=True, labels={GPU_LABEL: "k80"}, creation_timestamp=at(hours=-1))
    assert created.status.allocatable is not None
    if amount is not None:
        created.status.allocatable[GPU] = Quantity(amount)
    return created


def _tainted(name: str, key: str) -> Node:
    created = node(name, 1000, 1, ready=True)
    created.spec.taints = [Taint(key=key, effect="NoSchedule")]
    return created


def test_nodes_that_are_ready_in_name_only() -> None:
    cordoned = node("cordoned", 1, 1, ready=True)
    cordoned.spec.unschedulable = True
    nodes = [
        node("plain", 1, 1, ready=True),
        _gpu("shown", "1"),
        _gpu("none", None),
        _gpu("zero", "0"),
        _tainted("starting", "startup-taint.cluster-autoscaler.kubernetes.io/x"),
        _tainted("status", "status-taint.cluster-autoscaler.kubernetes.io/x"),
        _tainted("mine", "mine"),
        node("broken", 1, 1, ready=False),
        cordoned,
    ]
    taints = TaintConfig(startup_taints=frozenset(("mine",)))
    result = build_node_lists(nodes, gpu_label=GPU_LABEL, taints=taints)
    assert [n.metadata.name for n in result.all] == [n.metadata.name for n in nodes]
    assert [n.metadata.name for n in result.ready] == ["plain", "shown", "status"]
    assert result.unready == {
        "none": RESOURCE_NOT_READY_REASON,
        "zero": RESOURCE_NOT_READY_REASON,
        "starting": STARTUP_TAINT_REASON,
        "mine": STARTUP_TAINT_REASON,
    }
    copies = {n.metadata.name: get_readiness(n) for n in result.all}
    assert [copies["none"].ready, copies["none"].reason] == [False, RESOURCE_NOT_READY_REASON]
    assert get_readiness(nodes[2]).ready
    state = update_nodes(ClusterStateRegistry(), result.all, Groups(), now=T0).state
    assert state.total.resource_unready == ["none", "zero"]


def test_gpus_exposed_through_dra_are_not_waited_for() -> None:
    config = GpuConfig(label=GPU_LABEL, type="k80", resource_name="", dra_driver="gpu.example.com")
    assert build_node_lists([_gpu("n", None)], gpu_label=GPU_LABEL, gpu_of=lambda n: config).unready == {}


@pytest.mark.parametrize(
    ("conditions", "taint", "ready", "known"),
    [
        ({"Ready": "True"}, None, True, True),
        ({"Ready": "False"}, None, False, True),
        ({"Ready": "Unknown"}, None, False, True),
        ({}, None, False, False),
        ({"Ready": "True", "DiskPressure": "True"}, None, False, True),
        ({"Ready": "True", "DiskPressure": "Unknown"}, None, True, True),
        ({"Ready": "True", "NetworkUnavailable": "True"}, None, False, True),
        ({"Ready": "True", "MemoryPressure": "True"}, None, True, True),
        ({"Ready": "True"}, "node.kubernetes.io/not-ready", False, True),
        ({"Ready": "True"}, "node.kubernetes.io/unschedulable", True, True),
    ],
)
def test_readiness(conditions: dict[str, str], taint: str | None, ready: bool, known: bool) -> None:
    created = node("n", 1, 1)
    created.status.conditions = [Condition(type=kind, status=status) for kind, status in conditions.items()]
    if taint is not None:
        created.spec.taints = [Taint(key=taint, effect="NoSchedule")]
    result = get_readiness(created)
    assert (result.ready, result.known) == (ready, known)
    assert bool(build_node_lists([created]).ready) is ready
