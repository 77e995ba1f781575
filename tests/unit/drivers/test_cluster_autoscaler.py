"""The Cluster Autoscaler as a whole process, in virtual time."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from kscale.ca.metrics import METRICS
from kscale.effects import SECOND, to_text
from kscale.objects.kinds import ServedResource
from kscale.scheduling.profile import SchedulerProfile
from unit.drivers.autoscaled import OPTIONS, Cluster, Machines, autoscaled
from unit.drivers.set_clock import SetClock
from unit.world.informer_cases import until


def test_node_is_added_for_a_pod_and_removed_after_it() -> None:
    async def case(cluster: Cluster) -> None:
        cloud = cluster.cloud
        cloud.start()
        cluster.pod("a", node="pool-1")
        running = cluster.run()
        await until(lambda: "autoscalerStatus: Running" in cluster.status(), 30)
        cluster.pod("b")
        await until(lambda: bool(cloud.calls), 12)
        assert cloud.calls == [("IncreaseSize", 1)]
        await until(lambda: cluster.nodes() == ["pool-1", "pool-2"], 60)
        cluster.bind("b", "pool-2")
        await asyncio.sleep(120)
        assert cloud.calls == [("IncreaseSize", 1)]
        cluster.server.drop("pods", "b", "default")
        await until(lambda: "DeletionCandidateOfClusterAutoscaler" in cluster.taints("pool-2"), 30)
        await until(lambda: "ToBeDeletedByClusterAutoscaler" in cluster.taints("pool-2"), 90)
        await until(lambda: cluster.nodes() == ["pool-1"], 30)
        assert cloud.calls == [("IncreaseSize", 1), ("DeleteNodes", "pool-2")]
        assert {
            ("ScaledUpGroup", "cluster-autoscaler-status"),
            ("TriggeredScaleUp", "b"),
            ("ScaleDownEmpty", "cluster-autoscaler-status"),
            ("ScaleDown", "pool-2"),
        } <= cluster.events()
        metrics = running.around[0].metrics
        await until(lambda: metrics.value("cluster_autoscaler_nodes_count", state="ready") == 1, 60)
        await running.end()
        assert cluster.status() == ""

    autoscaled(case)


def test_unknown_node_group_stops_scale_down_but_not_loops() -> None:
    """Upstream cannot count what is in use then (``failed to get node group for node``), so that nothing is resized;
    it is no error of the loop."""

    async def case(cluster: Cluster) -> None:
        cluster.cloud.start(3)
        cluster.pod("a", node="pool-1")
        cluster.cloud.node_errors = {"pool-2": "no such machine"}
        running = cluster.run()
        await until(lambda: "autoscalerStatus: Running" in cluster.status(), 30)
        await asyncio.sleep(120)
        assert cluster.cloud.calls == []
        metrics = running.around[0].metrics
        assert metrics.value("cluster_autoscaler_errors_total", type="cloudProviderError") == 0
        assert metrics.value("cluster_autoscaler_nodes_count", state="ready") == 3
        cluster.cloud.node_errors = {}
        await until(lambda: cluster.nodes() == ["pool-1"], 150)
        await running.end()

    autoscaled(case)


def test_nothing_goes_while_the_machines_of_a_group_are_being_replaced(caplog: pytest.LogCaptureFixture) -> None:
    async def case(cluster: Cluster) -> None:
        cluster.cloud.start(2)
        cluster.pod("a", node="pool-1")
        cluster.cloud.rolling_out = True
        running = cluster.run()
        await asyncio.sleep(180)
        assert cluster.cloud.calls == []
        assert cluster.taints("pool-2") == []
        cluster.cloud.rolling_out = False
        await until(lambda: cluster.nodes() == ["pool-1"], 150)
        await running.end()

    with caplog.at_level("DEBUG", "kscale"):
        autoscaled(case)
    skipped = {record.getMessage() for record in caplog.records if "rollout" in record.getMessage()}
    assert skipped == {f"Node pool-{number} will be skipped as it is currently under rollout" for number in (1, 2)}


@pytest.mark.parametrize("dry_run", [False, True])
def test_price_expander_uses_provider_prices(dry_run: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def case(cluster: Cluster) -> None:
        cloud = cluster.cloud
        cloud.start()
        cluster.pod("a", node="pool-1")
        running = cluster.run(replace(OPTIONS, expander="price"), dry_run=dry_run, prices=cloud.prices)
        cluster.pod("b")

        def grown() -> bool:
            if dry_run:
                return any(text.startswith("dry run: IncreaseSize") for text in caplog.messages)
            return ("IncreaseSize", 1) in cloud.calls

        await asyncio.sleep(60)
        assert cloud.priced
        assert not grown()  # of an option without a price nothing comes
        cloud.price = 0.5
        await until(grown, 60)
        assert [each.name for each in cloud.priced[-1].nodes] != []
        assert [each["metadata"]["name"] for each in cloud.priced[-1].pods] == ["stabilize", "b"]
        assert not any("GetPrices" in text for text in caplog.messages)
        await running.end()

    with caplog.at_level("INFO", "kscale"):
        autoscaled(case)


def test_dry_run_logs_the_same_each_loop_and_writes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def case(cluster: Cluster) -> None:
        cluster.cloud.start(2)
        cluster.pod("a", node="pool-1")
        running = cluster.run(dry_run=True)
        await asyncio.sleep(30)
        cluster.pod("b", cpu="1900m")
        cluster.pod("c", cpu="1900m")
        await asyncio.sleep(150)
        assert cluster.cloud.calls == []
        assert all(cluster.server.requested_paths(method) == [] for method in ("POST", "PATCH", "PUT", "DELETE"))
        await running.end()

    with caplog.at_level("INFO", "kscale"):
        autoscaled(case)
    messages = [record.getMessage() for record in caplog.records]
    grown = [text for text in messages if text.startswith("dry run: IncreaseSize")]
    assert len(grown) > 10
    assert set(grown) == {'dry run: IncreaseSize {"group":"pool","delta":1}'}


@pytest.mark.parametrize("ends_cleanly", [False, True], ids=["killed", "told to end"])
def test_taints_of_a_process_that_ended_stay_and_are_removed_by_the_next(ends_cleanly: bool) -> None:
    async def case(cluster: Cluster) -> None:
        cluster.cloud.start(2)
        cluster.pod("a", node="pool-1")
        first = cluster.run()
        await until(lambda: "ToBeDeletedByClusterAutoscaler" in cluster.taints("pool-2"), 120)
        await (first.end() if ends_cleanly else first.kill())
        assert (cluster.nodes(), bool(cluster.status())) == (["pool-1", "pool-2"], not ends_cleanly)
        assert "ToBeDeletedByClusterAutoscaler" in cluster.taints("pool-2")
        assert cluster.server.get("nodes", "pool-2")["spec"]["unschedulable"]
        await asyncio.sleep(60)
        cluster.pod("b", node="pool-2")
        second = cluster.run()
        await until(lambda: "ToBeDeletedByClusterAutoscaler" not in cluster.taints("pool-2"), 60)
        assert not cluster.server.get("nodes", "pool-2")["spec"].get("unschedulable")
        assert cluster.cloud.calls == []
        await second.end()

    autoscaled(case)


def test_debugging_snapshot_returns_the_loop_inputs() -> None:
    async def case(cluster: Cluster) -> None:
        cluster.cloud.start()
        cluster.pod("a", node="pool-1", cpu="100m")
        cluster.pod("b", cpu="100m")  # there is a place for it
        cluster.pod("c", cpu="9")
        running = cluster.run()
        await until(lambda: bool(cluster.status()), 30)
        inputs = json.loads(await running.desk.request())
        (node,) = inputs["NodeList"]
        assert node["Node"]["metadata"]["name"] == "pool-1"
        assert [each["metadata"]["name"] for each in node["Pods"]] == ["a"]
        assert [each["metadata"]["name"] for each in inputs["UnscheduledPodsCanBeScheduled"]] == ["b"]
        assert inputs["TemplateNodes"]["pool"]["Node"]["metadata"]["name"] == "template"
        assert inputs["StartTimestamp"] <= inputs["EndTimestamp"]
        assert not running.desk.is_requested
        await running.end()

    autoscaled(case)


def test_counters_start_at_zero() -> None:
    async def case(cluster: Cluster) -> None:
        cluster.cloud.start()
        running = cluster.run()
        await until(lambda: bool(cluster.status()), 30)
        metrics = running.around[0].metrics
        failed = "cluster_autoscaler_failed_scale_ups_total"
        assert metrics.value(failed, **{**dict.fromkeys(METRICS[failed].labels, ""), "reason": "timeout"}) == 0
        assert metrics.value("cluster_autoscaler_errors_total", type="transientError") == 0
        assert metrics.value("cluster_autoscaler_evicted_pods_total", eviction_result="failed") == 0
        up = {"direction": "up", "reason": "CpuResourceLimit"}
        assert metrics.value("cluster_autoscaler_skipped_scale_events_count", **up) == 0
        for name in (each.name for each in METRICS.values() if not each.labels):
            assert metrics.value(name) is not None, name
        assert metrics.value("cluster_autoscaler_overflowing_controllers_count") == 0
        exposition, _ = metrics.exposition()
        assert b'function_duration_quantile_seconds_count{function="main"} ' in exposition
        await running.end()

    autoscaled(case)


def test_custom_scheduler_profile_is_applied() -> None:
    """Without the filter for taints a pod takes a node that nobody may take by default."""

    async def case(cluster: Cluster) -> None:
        cluster.cloud.start()
        node = cluster.server.get("nodes", "pool-1")
        taint = {"key": "own", "value": "", "effect": "NoSchedule"}
        cluster.server.put("nodes", {**node, "spec": {**node["spec"], "taints": [taint]}})
        cluster.pod("a", cpu="100m")
        running = cluster.run(profile=SchedulerProfile(disabled_filters=frozenset({"TaintToleration"})))
        await asyncio.sleep(60)
        assert cluster.cloud.calls == []
        await running.end()

    autoscaled(case)


@pytest.mark.parametrize("hours", [1, -1])
def test_the_clock_is_set(hours: int) -> None:
    """A node that has been unneeded for half of its minute has the other half left, and loops go on."""

    async def case(cluster: Cluster) -> None:
        clock = cluster.clock = SetClock(cluster.api.clock)
        cluster.cloud.start(2)
        cluster.pod("a", node="pool-1")
        running = cluster.run()
        await until(lambda: "DeletionCandidateOfClusterAutoscaler" in cluster.taints("pool-2"), 60)
        await asyncio.sleep(25)
        clock.ahead = hours * 3600 * SECOND
        status = cluster.status()
        await asyncio.sleep(25)
        assert cluster.status() != status
        assert (cluster.cloud.calls, cluster.taints("pool-2")) == ([], ["DeletionCandidateOfClusterAutoscaler"])
        await until(lambda: cluster.cloud.calls == [("DeleteNodes", "pool-2")], 60)
        assert to_text(clock.now())[:13] in cluster.status()  # others' time
        await running.end()

    autoscaled(case)


QUOTAS = ServedResource("autoscaling.x-k8s.io", "v1beta1", "CapacityQuota", "capacityquotas", False)


def test_quota_applies_after_its_first_reconciliation() -> None:
    async def case(cluster: Cluster) -> None:
        cluster.cloud.start()
        quota = {"metadata": {"name": "q"}, "spec": {"limits": {"resources": {"nodes": "1"}}}}
        cluster.server.put(QUOTAS.group_resource, quota)
        running = cluster.run(replace(OPTIONS, capacity_quotas_enabled=True))

        def status() -> Any:
            return cluster.server.get(QUOTAS.group_resource, "q").get("status") or {}

        await until(lambda: "used" in status(), 30)
        assert status()["used"] == {"resources": {"nodes": "1"}}
        assert {each["type"]: each["status"] for each in status()["conditions"]} == {
            "cluster-autoscaler.kubernetes.io/valid": "True",
            "Reconciled": "True",
        }
        writes = len(cluster.server.requested_paths("PATCH"))
        cluster.pod("a", cpu="1500m", node="pool-1")
        cluster.pod("b")
        await asyncio.sleep(30)
        assert cluster.cloud.calls == []
        quotas = [call for call in cluster.server.requested_paths("PATCH")[writes:] if "capacityquotas" in call]
        assert quotas == []
        await running.end()

    autoscaled(case, resources=[QUOTAS])


SHORT = replace(
    OPTIONS, max_node_provision_time=timedelta(minutes=1), initial_node_group_backoff_duration=timedelta(minutes=2)
)


def test_a_machine_that_never_becomes_a_node_is_deleted() -> None:
    async def case(cluster: Cluster) -> None:
        cluster.cloud.start()
        cluster.pod("a", node="pool-1")
        running = cluster.run(SHORT)
        await asyncio.sleep(10)
        cluster.pod("b")
        await until(lambda: len(cluster.cloud.calls) > 1, 90)
        assert cluster.cloud.calls[:2] == [("IncreaseSize", 1), ("DeleteNodes", "pool-2")]
        await asyncio.sleep(1)
        assert ("DeleteUnregistered", "cluster-autoscaler-status") in cluster.events()
        await running.end()

    autoscaled(case, boot=None)


def test_never_created_machine_is_removed() -> None:
    """The request times out, the target is lowered, and the group is left alone for a while. (Upstream asks for that
    twice: a group without the instances of its target has the wrong size, too. The cloud refuses the second.)"""

    async def case(cluster: Cluster) -> None:
        cluster.cloud.start()
        cluster.pod("a", node="pool-1")
        running = cluster.run(SHORT)
        await asyncio.sleep(10)
        cluster.pod("b")
        await until(lambda: len(cluster.cloud.calls) > 1, 90)
        assert cluster.cloud.calls == [("IncreaseSize", 1), ("DecreaseTargetSize", -1), ("DecreaseTargetSize", -1)]
        assert cluster.cloud.running == ["pool-1"]
        await asyncio.sleep(60)
        assert ("ScaleUpTimedOut", "cluster-autoscaler-status") in cluster.events()
        assert "Backoff" in cluster.status()
        assert len(cluster.cloud.calls) == 3
        await until(lambda: len(cluster.cloud.calls) > 3, 80)
        assert cluster.cloud.calls[3] == ("IncreaseSize", 1)
        await running.end()

    autoscaled(case, boot=None, tells=False)


def test_a_cloud_that_refuses() -> None:
    async def case(cluster: Cluster) -> None:
        cloud = cluster.cloud
        cloud.start()
        cluster.pod("a", node="pool-1")
        running = cluster.run(SHORT)
        await asyncio.sleep(30)
        cloud.refuses = lambda call: "out of quota"
        cluster.pod("b")
        await until(lambda: bool(cloud.calls), 12)
        await asyncio.sleep(60)
        assert cloud.calls == [("IncreaseSize", 1)]
        assert ("FailedToScaleUpGroup", "cluster-autoscaler-status") in cluster.events()
        cloud.refuses = lambda call: ""
        await until(lambda: len(cloud.calls) > 1, 5 * 60)
        await until(lambda: "pool-2" in cluster.nodes(), 60)
        assert running.driver.health.check(running.around[0].steady.now()) == ""
        await running.end()

    autoscaled(case)


def test_without_a_status_config_map_no_event_is_about_it() -> None:
    """Upstream's ``LogEventRecorder`` is inactive without ``--write-status-configmap``; pods have their events."""

    async def case(cluster: Cluster) -> None:
        cluster.cloud.start()
        cluster.pod("a", node="pool-1")
        # Such a loop takes no time: it would follow upon itself.
        running = cluster.run(replace(OPTIONS, write_status_configmap=False), frequent_loops=False)
        cluster.pod("b")
        await until(lambda: cluster.nodes() == ["pool-1", "pool-2"], 90)
        await running.end()
        assert ("TriggeredScaleUp", "b") in cluster.events()
        assert {each["involvedObject"]["kind"] for each in cluster.server.all("events")} == {"Pod", "Lease"}

    autoscaled(case)


def test_each_event_names_its_object_by_uid() -> None:
    """``kubectl describe`` selects the events of an object by its UID."""

    async def case(cluster: Cluster) -> None:
        cluster.cloud.start()
        cluster.pod("a", node="pool-1")
        priorities = {"priorities": "10:\n- none-of-them\n"}
        metadata = {"name": "cluster-autoscaler-priority-expander", "namespace": "kube-system"}
        cluster.server.put("configmaps", {"metadata": metadata, "data": priorities})
        running = cluster.run(replace(OPTIONS, expander="priority"))
        await until(lambda: "autoscalerStatus: Running" in cluster.status(), 30)
        cluster.pod("b")
        cluster.pod("large", cpu="64")
        await until(lambda: cluster.nodes() == ["pool-1", "pool-2"], 90)
        await running.end()
        plurals = {"Pod": "pods", "ConfigMap": "configmaps", "Lease": "leases.coordination.k8s.io", "Node": "nodes"}
        kinds = {}
        for each in cluster.server.all("events"):
            about = each["involvedObject"]
            kinds[each["reason"]] = about["kind"]
            assert about.get("uid"), each
            if about["name"] != "cluster-autoscaler-status":  # deleted at the end
                obj = cluster.server.get(plurals[about["kind"]], about["name"], about.get("namespace", ""))
                assert about["uid"] == obj["metadata"]["uid"], each
        assert (
            kinds.items()
            >= {
                "TriggeredScaleUp": "Pod",
                "NotTriggerScaleUp": "Pod",
                "ScaledUpGroup": "ConfigMap",
                "PriorityConfigMapNotMatchedGroup": "ConfigMap",
                "LeaderElection": "Lease",
            }.items()
        )

    autoscaled(case)


class Tagged(Machines):
    """Machines whose group promises a resource that its nodes do not report, as by a tag of an Auto Scaling group."""

    def node(self, name: str) -> dict[str, Any]:
        created = super().node(name)
        if name == "template":
            for amounts in (created["status"]["capacity"], created["status"]["allocatable"]):
                amounts["example.com/tagged"] = "1"
        return created


@pytest.mark.parametrize("on_aws", [True, False])
def test_on_aws_resources_of_tags_count_beside_those_of_nodes(on_aws: bool) -> None:
    async def case(cluster: Cluster) -> None:
        cluster.cloud = cloud = Tagged(cluster.api)
        cloud.start()
        cluster.pod("a", node="pool-1")
        running = cluster.run(on_aws=on_aws)
        await asyncio.sleep(90)  # the node is a good example from now on
        cluster.pod("b")
        pod = cluster.server.get("pods", "b", "default")
        pod["spec"]["containers"][0]["resources"]["requests"]["example.com/tagged"] = "1"
        cluster.server.put("pods", pod)
        await asyncio.sleep(60)
        assert (("IncreaseSize", 1) in cloud.calls) is on_aws
        await running.end()

    autoscaled(case)
