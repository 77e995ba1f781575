"""The lists of pods before a scale-up: upstream's own tables, and the rules that they leave out."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from builders import GPU, N0, at, container, node, owner, pod, span
from kscale import ca
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists import (
    add_drained_pods,
    clear_tpu_requests,
    drop_expendable_pods,
    filter_out_daemon_set_pods,
    filter_out_expendable_pods,
    filter_out_young_pods,
    find_expendable_placed_pods,
    should_scale_up,
    split_pods,
    update_degradation_counter,
)
from kscale.objects.api.core import Pod, PodStatus
from kscale.objects.api.meta import Condition
from kscale.objects.pod_owners import SCALE_UP_DELAY
from kscale.objects.quantity import Quantity
from kscale.snapshot.cluster import Cluster


def names(pods: list[Pod]) -> list[str]:
    return [item.name for item in pods]


def with_status(name: str, *, reason: str | None = None, spec: dict[str, Any] | None = None, **status: Any) -> Pod:
    conditions = [] if reason is None else [Condition(type="PodScheduled", status="False", reason=reason)]
    return replace(pod(name, spec=spec), status=PodStatus(conditions=conditions, **status))


def test_split() -> None:
    pods = [
        with_status("running", spec={"node_name": "n"}),
        with_status("ended", spec={"node_name": "n"}, phase="Succeeded"),
        replace(
            with_status("leaving", reason="Unschedulable"), metadata=pod("leaving", deletion_timestamp=at()).metadata
        ),
        with_status("nominated", reason="Unschedulable", nominated_node_name="n"),
        with_status("waiting", reason="Unschedulable"),
        with_status("silent"),
        with_status("gated", reason="SchedulingGated"),
        with_status("silent-bypassed", spec={"scheduler_name": "own"}),
        with_status("gated-bypassed", spec={"scheduler_name": "own"}, reason="SchedulingGated"),
    ]
    result = split_pods(pods, bypassed=["own"])
    assert names(result.scheduled) == ["running"]
    assert names(result.nominated) == ["nominated"]
    assert names(result.unschedulable) == ["waiting"]
    assert names(result.unprocessed) == ["silent-bypassed"]
    assert names(result.ignored) == ["leaving", "silent", "gated", "gated-bypassed"]
    assert names(split_pods(pods, bypassed=["default-scheduler"]).unprocessed) == ["silent"]
    allowed = split_pods(pods, allowed=["own"])
    assert (allowed.scheduled, names(allowed.ignored)) == ([], ["silent-bypassed", "gated-bypassed"])
    assert len(allowed.excluded) == 6


@pytest.mark.parametrize(
    ("existing", "pending", "unplaced"),
    [
        ([], [], []),
        ([], [(500, None)], []),
        ([], [(200, None), (500, None), (800, None)], []),
        ([], [(3000, None)], ["p1"]),
        ([], [(200, None), (500, None), (1800, None)], ["p3"]),
        ([], [(200, None), (500, 10), (1800, 20)], ["p2"]),
        ([500], [(1000, None), (300, None), (300, None)], ["p3"]),
        ([500, 1000], [(1000, None), (300, None), (300, None)], ["p1", "p3"]),
    ],
)
def test_filter_out_schedulable(
    existing: list[int], pending: list[tuple[int, int | None]], unplaced: list[str]
) -> None:
    running = [pod(f"e{i}", cpu, 10, spec={"node_name": "n"}) for i, cpu in enumerate(existing)]
    waiting = [pod(f"p{i}", cpu, 10, spec={"priority": rank}) for i, (cpu, rank) in enumerate(pending, 1)]
    snapshot = Cluster([node("n", 2000, 100, ready=True), *running]).snapshot()
    assert ca.filter_out_schedulable(snapshot, waiting).unschedulable == [f"default/{name}" for name in unplaced]
    nowhere = ca.filter_out_schedulable(snapshot, waiting, unacceptable_nodes=["n"])
    assert sorted(nowhere.unschedulable) == sorted(one.key for one in waiting)


@pytest.mark.parametrize(
    ("counter", "unprocessed", "after", "reasons"),
    [
        (0, 3, 1, ["GracefulDegradationStarted"]),
        (1, 3, 2, []),
        (5, 0, 0, ["GracefulDegradationStopped"]),
        (0, 0, 0, []),
    ],
)
def test_graceful_degradation(counter: int, unprocessed: int, after: int, reasons: list[str]) -> None:
    got, events = update_degradation_counter(counter, unprocessed, AutoscalingOptions())
    assert (got, [event.reason for event in events]) == (after, reasons)


@pytest.mark.parametrize(("priority", "cutoff", "count"), [(2, 2, 1), (3, 2, 1), (2, 3, 0), (None, 3, 1)])
def test_expendable(priority: int | None, cutoff: int, count: int) -> None:
    assert len(filter_out_expendable_pods([pod("p", spec={"priority": priority})], cutoff)) == count


def test_daemonset_pods() -> None:
    pods = [
        pod(name, owner_references=owner("DaemonSet") if name.startswith("ds") else [])
        for name in ("p1", "ds2", "ds3", "p4", "p5", "ds6")
    ]
    assert names(filter_out_daemon_set_pods(pods)) == ["p1", "p4", "p5"]


def test_drained_nodes() -> None:
    def kinds(prefix: str) -> list[Pod]:
        bound = {"node_name": "draining"}
        return [
            pod(f"{prefix}1", spec=bound),
            pod(f"{prefix}2", spec=bound, owner_references=owner("ReplicaSet")),
            pod(f"{prefix}-daemon", spec=bound, owner_references=owner("DaemonSet")),
            pod(f"{prefix}-mirror", spec=bound, annotations={"kubernetes.io/config.mirror": "x"}),
            pod(f"{prefix}-static", spec=bound, annotations={"kubernetes.io/config.source": "file"}),
        ]

    input_pods = kinds("given")
    leaving = pod("leaving", spec={"node_name": "draining"}, deletion_timestamp=at())
    on_nodes = {"draining": [*kinds("p"), leaving]}
    result = add_drained_pods(input_pods, ["draining", "gone"], on_nodes.get)
    assert names(result.pods) == [*names(input_pods), "p1", "p2"]
    assert [item.spec.node_name for item in result.pods[-2:]] == ["", ""]
    assert on_nodes["draining"][0].spec.node_name == "draining"
    assert len(result.warnings) == 1
    assert "gone" in result.warnings[0]


def test_tpu_requests() -> None:
    def asking(*resources: str) -> Any:
        one = container(100, 10)
        more = {name: Quantity("8") for name in resources}
        return replace(one, resources=replace(one.resources, requests={**(one.resources.requests or {}), **more}))

    tpu = "cloud-tpus.google.com/v2"
    spec = {
        "containers": [asking(tpu), asking("cloud-tpus.google.com/preemptible-v2", GPU)],
        "init_containers": [asking(tpu)],
    }
    pods = [pod("plain", 100, 10), pod("tpu", spec=spec)]
    plain, cleared = clear_tpu_requests(pods)
    assert plain is pods[0]
    assert [list(item.resources.requests or {}) for item in cleared.spec.containers] == [
        ["cpu", "memory"],
        ["cpu", "memory", GPU],
    ]
    assert tpu in (cleared.spec.init_containers[0].resources.requests or {})
    assert tpu in (pods[1].spec.containers[0].resources.requests or {})


@pytest.mark.parametrize(
    ("age", "delay", "own", "remains", "warned"),
    [
        (0, 0, None, False, False),
        (1, 0, None, True, False),
        (10, 10, None, False, False),
        (11, 10, None, True, False),
        (11, 10, "20s", False, False),
        (11, 10, "5s", True, True),
        (9, 10, "5s", False, True),
        (11, 10, "soon", True, True),
        (11, 10, "11s", False, False),
        (-5, 0, None, False, False),
    ],
)
def test_young(age: int, delay: int, own: str | None, remains: bool, warned: bool) -> None:
    annotations = None if own is None else {SCALE_UP_DELAY: own}
    one = pod("p", creation_timestamp=at(seconds=-age), annotations=annotations)
    result = filter_out_young_pods([one], N0, span(seconds=delay))
    assert (bool(result.pods), bool(result.young), bool(result.warnings)) == (remains, not remains, warned)


def test_without_a_delay_a_moment_is_enough() -> None:
    one = pod("p", creation_timestamp=at())
    assert filter_out_young_pods([one], N0).young == [one]
    assert filter_out_young_pods([one], N0 + 1).pods == [one]


@pytest.mark.parametrize(
    ("own", "warning"),
    [
        ("5s", 'Failed to set pod scale up delay for "p" through annotation {}: 5s is less than 10s'),
        ("soon", 'Failed to parse pod "p" annotation {}: time: invalid duration "soon"'),
    ],
)
def test_warnings_about_delays_name_the_pod(own: str, warning: str) -> None:
    one = pod("p", creation_timestamp=at(), annotations={SCALE_UP_DELAY: own})
    assert filter_out_young_pods([one], N0, span(seconds=10)).warnings == [warning.format(SCALE_UP_DELAY)]


def gpu_pod(age: int) -> Pod:
    one = container(100, 10)
    one = replace(one, resources=replace(one.resources, requests={GPU: Quantity("1")}))
    return pod("gpu", spec={"containers": [one]}, creation_timestamp=at(seconds=-age))


@pytest.mark.parametrize(
    ("pods", "ready", "options", "degraded", "result"),
    [
        ([], 9, {"max_nodes_total": 1}, 0, "ScaleUpNotNeeded"),
        ([60], 3, {"max_nodes_total": 3}, 0, "ScaleUpLimitedByMaxNodesTotal"),
        ([60], 5, {"max_nodes_total": 3}, 0, "ScaleUpLimitedByMaxNodesTotal"),
        ([60], 2, {"max_nodes_total": 3}, 0, ""),
        ([1], 2, {}, 0, "ScaleUpInCooldown"),
        ([1, 2], 2, {}, 0, ""),
        ([1], 2, {"bypassed_scheduler_names": ["x"]}, 0, ""),
        ([60, gpu_pod(29)], 2, {}, 0, "ScaleUpInCooldown"),
        ([60, gpu_pod(30)], 2, {}, 0, ""),
        ([60], 2, {"enable_graceful_degradation": True}, 4, "ScaleUpInCooldown"),
        ([], 2, {"enable_graceful_degradation": True}, 4, "ScaleUpInCooldown"),
        ([], 2, {"enable_graceful_degradation": True}, 3, "ScaleUpNotNeeded"),
        ([60], 2, {"enable_graceful_degradation": True}, 5, ""),
        ([60], 2, {}, 4, ""),
    ],
)
def test_gate(pods: list[Any], ready: int, options: dict[str, Any], degraded: int, result: str) -> None:
    input_pods = [
        item if isinstance(item, Pod) else pod(f"p{i}", creation_timestamp=at(seconds=-item))
        for i, item in enumerate(pods)
    ]
    gate = should_scale_up(
        input_pods, ready_nodes=ready, now=N0, options=AutoscalingOptions(**options), degraded_loops=degraded
    )
    assert gate.result == result
    assert [event.message for event in gate.events] == (
        ["Max total nodes in cluster reached: 3"] if "Limited" in result else []
    )


@pytest.mark.parametrize(("cutoff", "dropped"), [(-10, {"low"}), (0, {"low", "minus"}), (1, {"low", "minus", "zero"})])
def test_expendable_pods_of_a_snapshot(cutoff: int, dropped: set[str]) -> None:
    ranks = {"low": -11, "minus": -10, "zero": 0, "none": None, "high": 5}
    placed = [pod(name, 1, 1, spec={"node_name": "n", "priority": rank}) for name, rank in ranks.items()]
    snapshot = Cluster([node("n", 1000, 100, ready=True), *placed]).snapshot()
    assert {snapshot.placed.key(at) for at in find_expendable_placed_pods(snapshot, cutoff)} == {
        f"default/{n}" for n in dropped
    }
    remaining = drop_expendable_pods(snapshot, cutoff)
    assert set(remaining.pods) == {f"default/{name}" for name in ranks} - {f"default/{name}" for name in dropped}
    assert drop_expendable_pods(remaining, cutoff) is remaining
