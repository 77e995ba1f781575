"""Karpenter as the provisioner of a simulated cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kscale import InputError
from kscale.effects import SECOND, from_text
from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict
from kscale.simulation import Scenario, Simulation, build, simulate
from kscale.simulation.karpenter import Provisioner
from kscale.world.protocols import Change
from unit.world.simulated_cases import pod_template, workload

CATALOGUE = """instance_type,arch,vcpu,memory_mib,gpu,gpu_name,ondemand_usd_per_hour_here,spot_usd_per_hour_here
m5.large,amd64,2,8192,0,,0.10,
m5.xlarge,amd64,4,16384,0,,0.19,
m5.2xlarge,amd64,8,32768,0,,0.36,0.12
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("karpenter")
    (path / "types.csv").write_text(CATALOGUE)
    return path


def pool(*, name: str = "general", capacity: str = "on-demand", **spec: Any) -> dict[str, Any]:
    template: dict[str, Any] = {
        "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": capacity.split(",")}],
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
    }
    for key in ("taints", "startupTaints"):
        if key in spec:
            template[key] = spec.pop(key)
    template["requirements"] += spec.pop("requirements", [])
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
            "spec": {"template": {"spec": template}, **spec}}  # fmt: skip


def scenario(*pools: dict[str, Any], **more: Any) -> dict[str, Any]:
    controllers = {"karpenter": {"nodePools": list(pools), "catalogue": "types.csv"}, **more.pop("controllers", {})}
    return {
        "apiVersion": "kscale.dev/v1alpha1",
        "kind": "Simulation",
        "horizon": "5m",
        "machines": [{"boot": "60s"}],
        "controllers": controllers,
        **more,
    }


def run(folder: Path, *pools: dict[str, Any], **more: Any) -> Simulation:
    return simulate(build(msgspec.convert(scenario(*pools, **more), Scenario), folder=folder))


def events(result: Simulation, action: str) -> list[tuple[int, str]]:
    """(whole seconds since the beginning, group) of an action."""
    begin = from_text(result.report.begin)
    entries = [entry for entry in result.decisions.entries if entry.action == action]
    return [((from_text(entry.at) - begin) // SECOND, entry.arguments.get("group", "")) for entry in entries]


def pods(name: str, count: int, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    return workload("Deployment", name, count, cpu=cpu, **spec)


def never(**more: Any) -> dict[str, Any]:
    """A pool that never consolidates."""
    return pool(disruption={"consolidateAfter": "Never"}, **more)


def test_a_batch_becomes_one_node_of_the_cheapest_type(folder: Path) -> None:
    result = run(folder, never(), objects=[pods("web", 3)])
    assert events(result, "IncreaseSize") == [(1, "general/m5.xlarge/on-demand")], "batch-idle-duration after the pods"
    assert 61 < result.report.pending_pods.max < 63, (
        "pods that stay pending are retried, and fit on the machine that boots"
    )
    (group,) = result.report.groups
    assert (group.group, group.added, group.removed) == ("general/m5.xlarge/on-demand", 1, 0)
    assert result.report.cost == pytest.approx(0.19 * group.node_hours)


def test_a_batch_ends_after_a_second_without_pods_and_after_ten_at_the_latest(folder: Path) -> None:
    setup = build(msgspec.convert(scenario(never()), Scenario), folder=folder)
    (provisioner,) = [driver for driver in setup.drivers if isinstance(driver, Provisioner)]
    watch = next(watch for watch in provisioner.watches if watch.kind == "Pod")
    refused = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    }

    def arrive(name: str, tenths: int) -> int | None:
        data = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": name}, "status": refused}
        provisioner.notice(Change(watch=watch, new=from_dict(data, Pod)), tenths * SECOND // 10)
        due = provisioner.next_due()
        return None if due is None else due * 10 // SECOND

    assert provisioner.next_due() is None
    assert [arrive("a", 0), arrive("b", 9), arrive("b", 15), arrive("c", 18)] == [10, 19, 19, 28]
    assert arrive("d", 95) == 100


def test_limits_weights_and_stock_decide_what_is_launched(folder: Path) -> None:
    limited = never(name="first", weight=10, limits={"cpu": "4"})
    result = run(folder, limited, never(name="second"), objects=[pods("web", 3, cpu="3")])
    assert sorted(group for _, group in events(result, "IncreaseSize")) == [
        "first/m5.xlarge/on-demand", "second/m5.2xlarge/on-demand"
    ]  # fmt: skip
    empty = [{"boot": "60s"}, {"group": "general/m5.xlarge/on-demand", "boot": "60s", "stock": 0}]
    result = run(folder, never(), objects=[pods("web", 3)], machines=empty)
    assert events(result, "IncreaseSize")[-1] == (1, "general/m5.2xlarge/on-demand"), "the next type of the same claim"
    assert (result.report.refusals, result.report.pending_pods.at_end) == ({"IncreaseSize": 1}, 0)
    nothing = [{"group": "general", "stock": 0}]
    result = run(folder, never(), objects=[pods("web", 3)], machines=nothing, horizon="1m")
    assert (result.report.refusals, result.report.pending_pods.at_end) == ({"IncreaseSize": 3}, 3), (
        "each type once in 3 minutes"
    )


def test_pods_wait_for_startup_taints_but_no_second_node_is_launched(folder: Path) -> None:
    taint = {"key": "agent", "effect": "NoSchedule"}
    machines = [{"boot": "60s", "ready": "20s", "startup": "30s"}]
    result = run(folder, never(startupTaints=[taint]), objects=[pods("web", 3)], machines=machines)
    assert len(events(result, "IncreaseSize")) == 1
    assert 111 < result.report.pending_pods.max < 113


def job(count: int, cpu: str = "1") -> dict[str, Any]:
    spec = {"parallelism": count, "completions": count}
    template = pod_template("batch", cpu, restartPolicy="Never")
    return workload("Job", "batch", None, spec={**spec, "template": template})


def test_an_empty_node_is_deleted_after_consolidate_after(folder: Path) -> None:
    worked = {"objects": [job(3)], "pods": [{"workload": "Job/shop/batch", "work": "30s"}], "horizon": "10m"}
    result = run(folder, pool(disruption={"consolidateAfter": "2m", "consolidationPolicy": "WhenEmpty"}), **worked)
    (deleted,) = events(result, "DeleteNodes")
    end_of_work = 62 + 30
    assert end_of_work + 120 + 15 + 5 <= deleted[0] <= end_of_work + 120 + 10 + 15 + 10, "polling, validation and drain"
    assert result.report.groups[0].removed == 1
    for disruption in ({"consolidateAfter": "Never"}, {"consolidateAfter": "2m", "budgets": [{"nodes": "0"}]}):
        assert events(run(folder, pool(disruption=disruption), **worked), "DeleteNodes") == []
    other = [{"nodes": "0", "reasons": ["Underutilized"]}]
    assert events(run(folder, pool(disruption={"consolidateAfter": "2m", "budgets": other}), **worked), "DeleteNodes")


def consolidating(folder: Path, *more: dict[str, Any], spec: dict[str, Any] | None = None, **fields: Any) -> Simulation:
    """A large node on which one small pod is left after its jobs have ended."""
    objects = [workload("Deployment", "web", 1, cpu="500m", **(spec or {})), job(6), *more]
    work = [{"workload": "Job/shop/batch", "work": "30s"}]
    pools = fields.pop("pools", [pool(disruption={"consolidateAfter": "1m"}, **fields)])
    return run(folder, *pools, objects=objects, pods=work, horizon="12m")


def test_a_node_is_replaced_by_a_cheaper_one_before_it_is_drained(folder: Path) -> None:
    result = consolidating(folder)
    launched, deleted = events(result, "IncreaseSize"), events(result, "DeleteNodes")
    assert [group for _, group in launched] == ["general/m5.2xlarge/on-demand", "general/m5.large/on-demand"]
    assert [group for _, group in deleted] == ["general/m5.2xlarge/on-demand"]
    (evicted,) = events(result, "Evict")
    assert launched[1][0] + 60 <= evicted[0] <= deleted[0][0], "the replacement is ready before"
    assert result.report.pending_pods.at_end == 0
    taints = [entry for entry in result.decisions.entries if entry.action == "Patch"]
    assert [entry.arguments["patch"]["spec"]["taints"][0]["key"] for entry in taints] == ["karpenter.sh/disrupted"]


def test_annotations_and_budgets_prevent_replacement(folder: Path) -> None:
    protected = {"spec": {"template": pod_template("web", "500m")}}
    protected["spec"]["template"]["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
              "metadata": {"name": "web", "namespace": "shop"},
              "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}  # fmt: skip
    for result in (
        consolidating(folder, spec=protected),
        consolidating(folder, budget),
        consolidating(folder, pools=[pool(disruption={"consolidateAfter": "1m", "consolidationPolicy": "WhenEmpty"})]),
        consolidating(folder, capacity="spot"),
        consolidating(folder, pools=[pool(disruption={"consolidateAfter": "1m"}, limits={"nodes": "0"})]),
    ):
        assert events(result, "DeleteNodes") == []


def test_two_nodes_are_removed_together_if_their_pods_fit_on_one(folder: Path) -> None:
    small = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large", "m5.xlarge"]}]
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "batch"}}}]}}  # fmt: skip
    batch = job(3, "1500m")
    batch["spec"]["template"]["spec"]["affinity"] = apart
    objects = [pods("web", 3, cpu="300m"), batch]
    result = run(
        folder, pool(requirements=small, disruption={"consolidateAfter": "1m", "budgets": [{"nodes": "100%"}]}),
        objects=objects, pods=[{"workload": "Job/shop/batch", "work": "30s"}], horizon="12m",
        world={"scheduler": "scores"},
    )  # fmt: skip
    assert len(events(result, "IncreaseSize")) == 3
    assert len({at for at, _ in events(result, "DeleteNodes")}) == 1, "at one moment"
    assert (result.report.pending_pods.at_end, sum(group.removed for group in result.report.groups)) == (0, 2)


def test_a_lost_machine_is_replaced_by_what_its_pods_need_now(folder: Path) -> None:
    result = run(folder, never(), objects=[pods("web", 3)], machines=[{"boot": "60s", "lifetime": "2m"}])
    assert result.report.interruptions == 1
    assert [at for at, _ in events(result, "IncreaseSize")] == [1, 182]
    assert result.report.groups[0].added == 2, "the cloud itself replaces nothing"


def test_a_machine_that_does_not_register_is_deleted_after_15_minutes(folder: Path) -> None:
    result = run(folder, never(), objects=[pods("web", 3)], machines=[{"failures": 1.0}], horizon="20m")
    ((at, _),) = events(result, "DeleteNodes")
    assert 900 <= at <= 965
    assert [at < when < at + 15 for when, _ in events(result, "IncreaseSize")] == [False, True]


def test_existing_nodes_of_a_node_pool_are_managed_and_count_towards_its_limits(folder: Path) -> None:
    labels = {"karpenter.sh/nodepool": "general", "node.kubernetes.io/instance-type": "m5.xlarge",
              "karpenter.sh/capacity-type": "on-demand", "kubernetes.io/hostname": "old"}  # fmt: skip
    room = {"cpu": "4", "memory": "16Gi", "pods": "50"}
    status = {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
    old = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "old", "labels": labels}, "status": status}
    result = run(folder, pool(disruption={"consolidateAfter": "0s"}), objects=[old])
    assert [group for _, group in events(result, "DeleteNodes")] == ["general/m5.xlarge/on-demand"]
    limited = never(limits={"cpu": "5"})
    assert run(folder, limited, objects=[old, pods("web", 2, cpu="3")]).report.pending_pods.at_end == 1
    other = {**old, "metadata": {"name": "old", "labels": {**labels, "node.kubernetes.io/instance-type": "r5.large"}}}
    report = run(folder, pool(disruption={"consolidateAfter": "0s"}), objects=[other]).report
    assert report.warnings == ["node old: its NodePool has no such offering, so it stays"]
    assert report.ungrouped_node_hours > 0


def test_the_provisioner_is_chosen_and_its_configuration_checked(folder: Path) -> None:
    def problems(**fields: Any) -> list[tuple[str, str]]:
        with pytest.raises(InputError) as caught:
            build(msgspec.convert({**scenario(never()), **fields}, Scenario), folder=folder)
        return [(each.field, each.message) for each in caught.value.problems]

    entry = scenario(never())["controllers"]["karpenter"]
    both = {"karpenter": entry, "clusterAutoscaler": {}}
    ((field, message),) = problems(controllers=both)
    assert (field, message) == ("controllers", "provisioner says which of cluster-autoscaler and karpenter runs")
    assert problems(controllers={}, provisioner="karpenter")[0][0] == "provisioner"
    assert problems(controllers={"karpenter": {**entry, "flags": {"batch-size": 1}}})[0][0] == (
        "controllers.karpenter.flags.batch-size"
    )
    assert "no such file" in problems(controllers={"karpenter": {**entry, "catalogue": "x.csv"}})[0][1].lower()
    for name, by in (("karpenter", "karpenter"), ("cluster-autoscaler", "cluster-autoscaler")):
        result = run(folder, never(), objects=[pods("web", 3)], controllers=both, provisioner=name)
        assert {entry.by for entry in result.decisions.entries if entry.action == "IncreaseSize"} == {by}
        assert result.report.pending_pods.at_end == 0
