"""The Cluster Autoscaler of release 1.3 as a whole process, in virtual time."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from kscale.ca.options import AutoscalingOptions
from kscale.world.kubernetes.transport import Answer, Call
from unit.drivers.autoscaled import Autoscaler, Cluster, autoscaled
from unit.world.fake_api_objects import status
from unit.world.informer_cases import until

LEGACY = AutoscalingOptions.for_profile(
    "legacy",
    scale_down_unneeded_time=timedelta(minutes=1),
    scale_down_delay_after_add=timedelta(seconds=30),
    scale_down_delay_after_failure=timedelta(seconds=30),
)
PREFIX = "cluster_autoscaler_"


def exposed(running: Autoscaler) -> list[str]:
    """The exposition of the process's own metrics, line by line."""
    text, _ = running.around[0].metrics.exposition()
    return [line for line in text.decode().splitlines() if PREFIX in line]


def value(running: Autoscaler, name: str, **labels: str) -> float | None:
    return running.around[0].metrics.value(PREFIX + name, **labels)


def messages(cluster: Cluster, reason: str) -> list[str]:
    return [each["message"] for each in cluster.server.all("events") if each["reason"] == reason]


@pytest.mark.parametrize("estimator", ["binpacking", "basic"])
def test_both_estimators_scale_up_and_an_empty_node_goes(estimator: str, caplog: pytest.LogCaptureFixture) -> None:
    async def case(cluster: Cluster) -> None:
        cloud = cluster.cloud
        cloud.start()
        cluster.pod("a", node="pool-1")
        running = cluster.run(replace(LEGACY, estimator=estimator))
        await asyncio.sleep(5)
        assert cluster.status().endswith(":\nInitializing") or cluster.status() == ""
        await until(lambda: "Cluster-wide:" in cluster.status(), 30)
        assert cluster.status().startswith("Cluster-autoscaler status at ")
        cluster.pod("b")
        cluster.pod("c")
        await until(lambda: bool(cloud.calls), 22)
        assert cloud.calls == [("IncreaseSize", 2)]
        await until(lambda: len(cluster.nodes()) == 3, 60)
        cluster.bind("b", "pool-2")
        cluster.bind("c", "pool-3")
        await until(lambda: "ready=3 unready=0" in cluster.status(), 30)
        assert messages(cluster, "ScaledUpGroup") == ["Scale-up: group pool size set to 3"]
        cluster.server.drop("pods", "c", "default")
        await until(lambda: cluster.nodes() == ["pool-1", "pool-2"], 150)
        assert cloud.calls[1:] == [("DeleteNodes", "pool-3")]
        assert cluster.taints("pool-2") == []
        assert messages(cluster, "ScaleDownEmpty") == ["Scale-down: removing empty node pool-3"]
        assert value(running, "scaled_up_nodes_total") == 2
        assert value(running, "scaled_down_nodes_total", reason="empty") == 1
        await running.end()
        assert cluster.status() == ""

    with caplog.at_level("DEBUG", "kscale"):
        autoscaled(case)
    logged = [record.getMessage() for record in caplog.records]
    assert "Final scale-up plan: [{pool 1->3 (max: 5)}]" in logged
    assert "Estimated 2 nodes needed in pool" in logged
    assert any(text.startswith("Needed nodes according to:") for text in logged) is (estimator == "basic")
    assert any(text.startswith("Scale down status: unneededOnly=true lastScaleUpTime=") for text in logged)
    assert any(text.startswith("pool-3 was unneeded for ") for text in logged)


def test_the_metrics_are_those_of_release_1_3() -> None:
    async def case(cluster: Cluster) -> None:
        cluster.cloud.start()
        cluster.pod("a", node="pool-1")
        running = cluster.run(replace(LEGACY, node_autoprovisioning_enabled=True))
        cluster.pod("b")
        await until(lambda: bool(cluster.cloud.calls), 30)
        await asyncio.sleep(60)
        lines = exposed(running)
        text = "Whether or not Node Autoprovisioning is enabled. 1 if it is, 0 otherwise."
        assert f"# HELP cluster_autoscaler_nap_enabled {text}" in lines
        assert "cluster_autoscaler_nap_enabled 1.0" in lines
        assert "cluster_autoscaler_scaled_up_nodes_total 1.0" in lines
        assert "cluster_autoscaler_evicted_pods_total 0.0" in lines
        assert any(line.startswith("cluster_autoscaler_unschedulable_pods_count ") for line in lines)
        timed = {line.partition('function="')[2].partition('"')[0] for line in lines if "function=" in line}
        assert {"main", "updateClusterState", "filterOutSchedulable", "scaleUp", "findUnneeded"} <= timed
        families = {line.split()[2] for line in lines if line.startswith("# TYPE")}
        assert not families & {PREFIX + name for name in ("cpu_limits_cores", "max_nodes_count", "node_taints_count")}
        await running.end()

    autoscaled(case)


def test_a_node_is_drained_in_the_background_while_loops_go_on() -> None:
    async def case(cluster: Cluster) -> None:
        cluster.cloud.start(3)
        cluster.pod("a", node="pool-1", cpu="1000m")
        cluster.pod("b", node="pool-2", cpu="900m")
        cluster.pod("c", node="pool-3", cpu="1100m")
        refusing = [True]

        def fault(call: Call) -> Answer | None:
            refused = refusing[0] and call.path.endswith("/eviction")
            return Answer(429, {}, json.dumps(status(429, "TooManyRequests", "no")).encode()) if refused else None

        cluster.server.fault = fault
        running = cluster.run(LEGACY)
        await until(lambda: "ToBeDeletedByClusterAutoscaler" in cluster.taints("pool-2"), 150)
        results = set[str]()

        def is_waiting() -> bool:
            report = running.driver.report
            results.add("" if report is None else report.scale_down_result)
            return "ScaleDownInProgress" in results

        await until(is_waiting, 30)
        assert cluster.cloud.calls == []
        refusing[0] = False
        await until(lambda: cluster.nodes() == ["pool-1", "pool-3"], 60)
        assert cluster.cloud.calls == [("DeleteNodes", "pool-2")]
        message = "Scale-down: removing node pool-2, utilization: 0.45, pods to reschedule: default/b"
        assert message in messages(cluster, "ScaleDown")
        assert value(running, "scaled_down_nodes_total", reason="underutilized") == 1
        assert value(running, "evicted_pods_total") == 1
        await running.end()

    autoscaled(case)


def test_a_machine_that_never_registers_is_removed_and_ends_the_loop() -> None:
    async def case(cluster: Cluster) -> None:
        cloud = cluster.cloud
        cloud.start()
        cluster.pod("a", node="pool-1")
        running = cluster.run(LEGACY)
        cloud.boot = None
        cluster.pod("b")
        await until(lambda: bool(cloud.calls), 30)
        await asyncio.sleep(14 * 60)
        assert cloud.calls == [("IncreaseSize", 1)]
        ends = set[str]()

        def removed() -> bool:
            report = running.driver.report
            ends.add("" if report is None else report.ended)
            return ("DeleteNodes", "pool-2") in cloud.calls

        await until(removed, 180)
        await asyncio.sleep(1)
        removed()
        assert "Some unregistered nodes were removed, skipping iteration" in ends
        assert messages(cluster, "DeleteUnregistered") == ["Removing unregistered node fake:///pool-2"]
        assert value(running, "failed_scale_ups_total", reason="timeout") == 1
        await running.end()

    autoscaled(case)


def test_an_unhealthy_cluster_is_left_alone() -> None:
    """Machines that should long have registered count against it, as they no longer do."""

    async def case(cluster: Cluster) -> None:
        cloud = cluster.cloud
        cloud.start()
        cluster.pod("a", node="pool-1")
        cloud.least = 5
        for _ in range(4):
            cloud._new()  # machines that never become nodes
        running = cluster.run(LEGACY)
        await asyncio.sleep(16 * 60)
        driver = running.driver
        assert driver.report is not None
        assert driver.report.ended == "Cluster is unhealthy"
        assert (
            "Health:      Unhealthy (ready=1 unready=0 notStarted=0 longNotStarted=0 registered=1 longUnregistered=4)"
            in (cluster.status())
        )
        assert value(running, "cluster_safe_to_autoscale") == 0
        assert ("ClusterUnhealthy", "cluster-autoscaler-status") in cluster.events()
        cluster.pod("b")
        await asyncio.sleep(60)
        assert cloud.calls == []
        await running.end()

    autoscaled(case)


def test_pods_that_fit_a_node_forbid_scale_down() -> None:
    async def case(cluster: Cluster) -> None:
        cluster.cloud.start(2)
        cluster.pod("a", node="pool-1")
        running = cluster.run(LEGACY)
        cluster.pod("b", cpu="100m")  # the scheduler has not come to it
        await asyncio.sleep(300)
        assert cluster.cloud.calls == []
        plan = running.driver.report and running.driver.report.scale_up
        assert plan is not None
        assert plan.scale_down_disabled
        cluster.server.drop("pods", "b", "default")
        await until(lambda: cluster.nodes() == ["pool-1"], 150)
        await running.end()

    autoscaled(case)


@pytest.mark.parametrize("fails", [False, True])
def test_a_scale_up_ends_the_loop_also_when_it_fails(fails: bool) -> None:
    async def case(cluster: Cluster) -> None:
        cloud = cluster.cloud
        cloud.start()
        cluster.pod("a", node="pool-1")
        cloud.refuses = lambda call: "no" if fails and call[0] == "IncreaseSize" else ""
        running = cluster.run(LEGACY)
        cluster.pod("b")
        await until(lambda: bool(cloud.calls), 30)
        await asyncio.sleep(1)
        report: Any = running.driver.report
        assert report.scale_down is None
        if fails:
            assert report.error.message == "failed to increase node group size: no"
            assert value(running, "errors_total", type="cloudProviderError") == 1
            assert value(running, "failed_scale_ups_total", reason="apiCallError") == 1
        else:
            assert report.ended == "No scale down in this iteration"
        await running.end()

    autoscaled(case)


def test_loops_and_cooldowns_count_from_the_start() -> None:
    """The first loop comes one interval after it leads, and no pod makes another come sooner."""

    async def case(cluster: Cluster) -> None:
        cluster.cloud.start(2)
        cluster.pod("a", node="pool-1")
        options = replace(LEGACY, scale_down_delay_after_add=timedelta(minutes=5), scan_interval=timedelta(seconds=20))
        running = cluster.run(options)
        cluster.pod("b", cpu="1500m")
        await asyncio.sleep(19)
        assert running.driver.report is None
        await until(lambda: running.driver.report is not None, 5)
        cluster.server.drop("pods", "b", "default")
        await asyncio.sleep(230)
        assert cluster.cloud.calls == []
        await until(lambda: cluster.nodes() == ["pool-1"], 150)
        await running.end()

    autoscaled(case)


def test_without_a_status_it_runs_on() -> None:
    """Release 1.3 only logged that its first status could not be written."""

    async def case(cluster: Cluster) -> None:
        cluster.cloud.start()
        cluster.pod("a", node="pool-1")
        running = cluster.run(replace(LEGACY, write_status_configmap=False))
        cluster.pod("b")
        await until(lambda: bool(cluster.cloud.calls), 30)
        assert cluster.status() == ""
        await running.end()
        assert "ConfigMap" not in {each["involvedObject"]["kind"] for each in cluster.server.all("events")}

    autoscaled(case)
