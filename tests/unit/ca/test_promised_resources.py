"""Nodes that wait for devices or volume drivers."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

import kscale
from builders import N0, node
from kscale.ca import AutoscalingOptions, LoopState
from kscale.ca.loop_state import RememberedTemplate
from kscale.ca.nodes import RESOURCE_NOT_READY_REASON, build_node_lists
from kscale.ca.template_devices import build_missing_devices_check, count_complete_pools
from kscale.objects.api.core import Node
from kscale.objects.api.resource import ResourceSlice
from kscale.objects.api.storage import CSINode
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.nodegroup import Groups, NodeGroup, NodeTemplate
from kscale.snapshot.cluster import Cluster


def _machine(name: str) -> Node:
    return replace(node(name, 1000, 1000, ready=True), api_version="v1", kind="Node")


def _slice(
    pool: str, on: str = "", *, driver: str = "gpu", generation: int = 1, of: int = 1, number: int = 0
) -> ResourceSlice:
    spec: dict[str, Any] = {
        "driver": driver,
        "nodeName": on,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": of},
        "devices": [{"name": f"d{number}"}],
    }
    created = from_dict({"metadata": {"name": f"{pool}-{on}-{generation}-{number}"}, "spec": spec}, ResourceSlice)
    return replace(created, api_version="resource.k8s.io/v1", kind="ResourceSlice")


def _drivers(name: str, *drivers: str) -> CSINode:
    spec = {"drivers": [{"name": driver, "nodeID": name} for driver in drivers]}
    created = from_dict({"metadata": {"name": name}, "spec": spec}, CSINode)
    return replace(created, api_version="storage.k8s.io/v1", kind="CSINode")


def _group(**template: Any) -> NodeGroup:
    return NodeGroup(id="g", max_size=10, nodes=["n"], template=NodeTemplate(node=_machine("template"), **template))


@pytest.mark.parametrize(
    ("slices", "pools"),
    [
        ([], {}),
        ([_slice("a")], {"gpu": 1}),
        ([_slice("a"), _slice("b"), _slice("c", driver="nic")], {"gpu": 2, "nic": 1}),
        ([_slice("a", of=2)], {}),
        ([_slice("a", of=2), _slice("a", of=2, number=1)], {"gpu": 1}),
        ([_slice("a"), _slice("a", number=1)], {}),
        ([_slice("a"), _slice("a", generation=2, of=2)], {}),
        ([_slice("a", generation=2), _slice("a", of=2)], {"gpu": 1}),
    ],
)
def test_pools_that_are_complete(slices: list[ResourceSlice], pools: dict[str, int]) -> None:
    assert count_complete_pools(slices) == pools


@pytest.mark.parametrize(
    ("promised", "published", "lacks"),
    [
        ([], [], False),
        ([_slice("p")], [], True),
        ([_slice("p")], [_slice("p", "other")], True),
        ([_slice("p")], [_slice("q", "n")], False),
        ([_slice("p")], [_slice("p", "n", of=2)], True),
        ([_slice("p")], [_slice("p", "n", driver="nic")], True),
        ([_slice("p"), _slice("q")], [_slice("p", "n")], True),
        ([_slice("p", of=2)], [], False),
    ],
)
def test_a_node_waits_for_its_devices(
    promised: list[ResourceSlice], published: list[ResourceSlice], lacks: bool
) -> None:
    cluster = Cluster([_machine("n"), _machine("stranger"), *published])
    plan = kscale.scale_up(cluster, [_group(resource_slices=promised)], now=N0)
    assert plan.state.cluster.total.resource_unready == (["n"] if lacks else [])
    assert plan.state.cluster.total.ready == (["stranger"] if lacks else ["n", "stranger"])


def test_the_template_of_the_loop_before_goes_first() -> None:
    cluster = Cluster([_machine("n")])
    bare = RememberedTemplate(template=to_dict(NodeTemplate(node=_machine("g"))), added=N0)
    rich = RememberedTemplate(template=to_dict(_group(resource_slices=[_slice("p")]).template), added=N0)
    for group, known, unready in (
        (_group(resource_slices=[_slice("p")]), bare, []),
        (_group(), rich, ["n"]),
    ):
        plan = kscale.scale_up(cluster, [group], now=N0, state=LoopState(templates={"g": known}))
        assert plan.state.cluster.total.resource_unready == unready


@pytest.mark.parametrize(
    ("csi_node", "enabled", "lacks"),
    [
        (_drivers("n"), True, True),
        (_drivers("n", "disk"), True, True),
        (_drivers("n", "disk", "files", "more"), True, False),
        (_drivers("other"), True, False),
        (_drivers("n"), False, False),
    ],
)
def test_a_node_waits_for_its_drivers(csi_node: CSINode, enabled: bool, lacks: bool) -> None:
    cluster = Cluster([_machine("n"), _machine("other"), csi_node])
    options = AutoscalingOptions(enable_csi_node_aware_scheduling=enabled)
    snapshot = cluster.snapshot(csi=True)
    group = _group(csi_node=_drivers("template", "disk", "files"))
    result = build_missing_devices_check(_groups(group, snapshot.columns.objects), snapshot.informers, options)
    assert (result is not None) is enabled
    lists = build_node_lists(snapshot.columns.objects, lacks=result)
    assert lists.unready == ({"n": RESOURCE_NOT_READY_REASON} if lacks else {})


def _groups(group: NodeGroup, nodes: list[Node]) -> Groups:
    return Groups.of([group], nodes)


def test_unknown_devices_do_not_delay_a_node() -> None:
    nodes = [_machine("n")]
    cluster = Cluster(nodes).snapshot()
    all_groups = _groups(_group(resource_slices=[_slice("p")]), nodes)
    options = AutoscalingOptions()
    lacks = build_missing_devices_check(all_groups, cluster.informers, options)
    assert lacks is not None
    assert [lacks(nodes[0]), lacks(_machine("stranger"))] == [True, False]
    failing = Groups(all_groups, {"n": "no answer"})
    lacks = build_missing_devices_check(failing, cluster.informers, options)
    assert lacks is not None
    assert not lacks(nodes[0])
    without = _groups(replace(_group(), template=None), nodes)
    assert build_missing_devices_check(without, cluster.informers, options) is None
