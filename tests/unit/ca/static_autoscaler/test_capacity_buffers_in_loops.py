"""Capacity buffers in whole loops: their pods hold nodes, or ask for them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import kscale
from builders import N0, container, node, owner, pod, span, template
from ca_loops import Cloud, Life
from kscale import ca
from kscale.ca.scale_up_status import (
    SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL,
    SCALE_UP_NO_OPTIONS_AVAILABLE,
    SCALE_UP_SUCCESSFUL,
)
from kscale.capacity.scale_down import report_scale_down
from kscale.effects import Action, ApiError, Moment, WriteStatus
from kscale.objects.api.cluster_autoscaler import CapacityBuffer, CapacityBufferStatus, LocalObjectRef
from kscale.objects.api.core import Node, Pod, PodSpec, PodTemplate, PodTemplateSpec
from kscale.objects.api.meta import Condition, ObjectMeta
from kscale.objects.nodegroup import NodeGroup

MINUTE = span(minutes=1)
TEMPLATE = PodTemplate(
    metadata=ObjectMeta(name="web", namespace="shop", generation=1),
    template=PodTemplateSpec(spec=PodSpec(containers=[container(600, 100)])),
)


def machine(name: str) -> Node:
    return node(name, 1000, 1000, ready=True)


def running(name: str, on: str) -> Pod:
    created = pod(name, 600, 100, owner_references=owner("ReplicaSet", "rs", "apps/v1"))
    created.spec.node_name = on
    return created


def buffer(replicas: int, name: str = "spare") -> CapacityBuffer:
    return CapacityBuffer(
        api_version="autoscaling.x-k8s.io/v1beta1",
        kind="CapacityBuffer",
        metadata=ObjectMeta(name=name, namespace="shop", uid=f"uid-{name}"),
        status=CapacityBufferStatus(
            pod_template_ref=LocalObjectRef(name="web"),
            replicas=replicas,
            pod_template_generation=1,
            provisioning_strategy="buffer.x-k8s.io/active-capacity",
            conditions=[Condition(type="ReadyForProvisioning", status="True")],
        ),
    )


def life(*buffers: CapacityBuffer, nodes: str = "n1", most: int = 5, **flags: Any) -> Life:
    """A group of machines for one pod each, with one that is taken."""
    names = nodes.split()
    group = NodeGroup(id="g", min_size=0, max_size=most, nodes=names, template=template(machine("like")))
    cloud = Cloud([group], [machine(name) for name in names], [running("p", "n1")])
    options = {
        "capacity_buffer_pod_injection_enabled": True,
        "scale_down_unneeded_time": timedelta(minutes=1),
        "skip_nodes_with_custom_controller_pods": False,
    }
    case = Life(cloud, N0, **(options | flags))
    case.others = [TEMPLATE]
    cloud.objects = {each.key: each for each in buffers}
    return case


def take_events(case: Life) -> list[tuple[str, str, str]]:
    """What was said of buffers and pods since this was last asked."""
    result, case.cloud.events = case.cloud.events, []
    return [
        (event.regarding.name, event.reason, event.message)
        for event in result
        if event.regarding.kind in ("CapacityBuffer", "Pod")
    ]


@pytest.mark.parametrize("honoured", [True, False])
def test_scale_down_alone_leaves_the_nodes_of_buffers(honoured: bool) -> None:
    cluster = kscale.Cluster([machine("n1"), machine("n2"), machine("n3"), running("p", "n1"), TEMPLATE, buffer(1)])
    groups = [NodeGroup(id="g", nodes=["n1", "n2", "n3"], template=template(machine("like")))]
    options = ca.AutoscalingOptions(
        capacity_buffer_pod_injection_enabled=honoured,
        scale_down_unneeded_time=timedelta(0),
        skip_nodes_with_custom_controller_pods=False,
    )
    free = ["n3"] if honoured else ["n2", "n3"]
    assert [item.name for item in kscale.scale_down(cluster, groups, now=N0, options=options).unneeded] == free
    report, _ = report_scale_down(cluster.snapshot(), groups, now=N0, options=options)
    assert [item.node for item in report.nodes if item.decision != "stays"] == free


def test_release_1_3_knew_no_buffers() -> None:
    options = ca.AutoscalingOptions.for_profile("legacy", capacity_buffer_pod_injection_enabled=True)
    with pytest.raises(kscale.InputError, match="capacity_buffer_pod_injection_enabled"):
        kscale.scale_down(kscale.Cluster([machine("n1")]), [], now=N0, options=options)


def test_a_buffer_asks_for_nodes() -> None:
    case = life(buffer(2))
    report = case.loop(N0)
    assert case.called() == [("up", "g", 2)]
    assert report.scale_up is not None
    assert (report.scale_up.result, report.scale_up.triggered, report.scale_up.remain_unschedulable) == (
        SCALE_UP_SUCCESSFUL,
        [],
        [],
    )
    assert take_events(case) == [
        ("spare", "TriggeredScaleUp", "capacity buffer 2 fake pods triggered scale-up: [{g 1->3 (max: 5)}]")
    ]
    (buffer_,) = case.cloud.objects.values()
    assert isinstance(buffer_, CapacityBuffer)
    assert [(each.type, each.reason) for each in buffer_.status.conditions[1:]] == [
        ("Provisioning", "FakePodsInjected")
    ]


def test_a_buffer_without_the_flag_is_nothing() -> None:
    case = life(buffer(2), capacity_buffer_pod_injection_enabled=False)
    case.loop(N0)
    assert (case.called(), take_events(case)) == ([], [])


def test_a_buffer_that_fits_keeps_its_node() -> None:
    case = life(buffer(1), nodes="n1 n2")
    for minute in range(4):
        report = case.loop(N0 + minute * MINUTE)
    assert case.called() == []
    assert report.scale_up is not None
    assert report.scale_up.placed == {}, "nobody has made the pod"
    assert "shop/capacity-buffer-spare-1" in report.snapshot_after.pods
    assert take_events(case) == []


def test_the_buffers_of_a_loop_are_forgotten() -> None:
    """Row "Buffer registry": entries of a loop before say nothing in the next."""
    case = life(buffer(1), nodes="n1 n2")
    case.loop(N0)
    case.cloud.objects.clear()
    report = case.loop(N0 + MINUTE)
    assert "shop/capacity-buffer-spare-1" not in report.snapshot_after.pods
    for minute in (2, 3, 4):
        case.loop(N0 + minute * MINUTE)
    assert case.called() == [("down", "g", "n2")]


@pytest.mark.parametrize("limit", [0, 1])
def test_unschedulable_buffer_gets_an_event(limit: int) -> None:
    case = life(buffer(7, "big"), most=1, max_nodes_total=limit)
    report = case.loop(N0)
    assert report.scale_up is not None
    assert report.scale_up.result == (SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL if limit else SCALE_UP_NO_OPTIONS_AVAILABLE)
    assert report.scale_up.remain_unschedulable == []
    why = "max total nodes in cluster reached" if limit else "1 max node group size reached"
    text = f"capacity buffer 7 fake pods didn't trigger scale-up: {','.join([why] * 7)}"
    assert take_events(case) == [("big", "NotTriggerScaleUp", text)]


def test_salvo_emits_events_for_buffers() -> None:
    case = life(buffer(1), salvo_scale_up=True)
    case.loop(N0)
    assert [(name, reason) for name, reason, _ in take_events(case)] == [("spare", "TriggeredScaleUp")]


def test_a_status_that_cannot_be_written_stops_nothing() -> None:
    def fate(action: Action, now: Moment) -> tuple[ApiError | None, int, bool]:
        refused = isinstance(action, WriteStatus)
        return (ApiError("conflict"), 0, False) if refused else (None, 0, True)

    case = life(buffer(1))
    case.cloud.fate = fate
    report = case.loop(N0)
    assert case.called() == [("up", "g", 1)]
    assert report.warnings == ["Failed to update buffer status for buffer spare, error: conflict"]


def test_a_scale_up_alone_counts_buffers() -> None:
    like = NodeGroup(id="g", min_size=0, max_size=5, nodes=["n1"], template=template(machine("like")))
    cluster = kscale.Cluster([machine("n1"), running("p", "n1"), TEMPLATE, buffer(2)])
    options = ca.AutoscalingOptions(capacity_buffer_pod_injection_enabled=True)
    plan = kscale.scale_up(cluster, [like], now=N0, options=options)
    assert plan.new_node_count == 2
    assert plan.events[-1].reason == "TriggeredScaleUp"
