"""Node groups that a live Cluster Autoscaler creates and deletes, and what its metrics say of GPUs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kscale.ca.options import AutoscalingOptions
from kscale.objects.api.core import Node
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.world.nodegroups.static import StaticGroups
from unit.drivers.autoscaled import Cluster, Machines, autoscaled
from unit.world.informer_cases import until

LEGACY = AutoscalingOptions.for_profile(
    "legacy",
    node_autoprovisioning_enabled=True,
    scale_down_unneeded_time=timedelta(minutes=1),
    scale_down_delay_after_add=timedelta(seconds=30),
)
TODAY = AutoscalingOptions(
    scale_down_unneeded_time=timedelta(minutes=1), scale_down_delay_after_add=timedelta(seconds=30)
)
GPU = "example.com/gpu-type"


class WrittenSizes(Machines):
    """A cloud of one group that is there (``pool``) and one that could be made (``big``), whose sizes stand in a file;
    :meth:`apply` is the program that creates and deletes machines by it."""

    def __init__(self, api: Any, file: Path) -> None:
        super().__init__(api)
        self.file = file
        self.groups = StaticGroups(self.described(), self.nodes, sizes=file)

    def described(self) -> Sequence[NodeGroup]:
        def template(name: str, cpu: str) -> NodeTemplate:
            created = self.node(name)
            created["metadata"]["labels"]["pool"] = name
            for amounts in (created["status"]["capacity"], created["status"]["allocatable"]):
                amounts["cpu"] = cpu
            return NodeTemplate(node=from_dict(created, Node))

        selected = [NodeGroup(id=name, max_size=3, node_selector={"pool": name}) for name in ("pool", "big")]
        return [
            replace(selected[0], template=template("pool", "2")),
            replace(selected[1], template=template("big", "8"), exists=False, autoprovisioned=True),
        ]

    def nodes(self) -> Sequence[Node]:
        return [from_dict(each, Node) for each in self.api.server.all("nodes")]

    def apply(self) -> None:
        for name, size in (json.loads(self.file.read_text()) if self.file.exists() else {}).items():
            for node in size.get("delete", ()):
                self.api.server.drop("nodes", node)
            there = [node.name for node in self.nodes() if (node.metadata.labels or {}).get("pool") == name]
            for i in range(len(there), size["target"]):
                created = self.node(f"{name}-{i}")
                created["metadata"]["labels"]["pool"] = name
                for amounts in (created["status"]["capacity"], created["status"]["allocatable"]):
                    amounts["cpu"] = "8" if name == "big" else "2"
                self.api.server.put("nodes", created)

    def __getattribute__(self, name: str) -> Any:
        if name in ("refresh", "increase_size", "decrease_target_size", "delete_nodes", "create_group", "delete_group"):
            return getattr(super().__getattribute__("groups"), name)
        return super().__getattribute__(name)


@pytest.mark.parametrize("options", [LEGACY, TODAY], ids=["legacy", "current"])
def test_a_group_is_created_for_a_pod_and_deleted_when_nothing_needs_it(
    options: AutoscalingOptions, tmp_path: Path
) -> None:
    async def case(cluster: Cluster) -> None:
        cloud = WrittenSizes(cluster.api, tmp_path / "sizes.json")
        cluster.cloud = cloud
        first = cloud.node("pool-0")
        first["metadata"]["labels"]["pool"] = "pool"
        cluster.server.put("nodes", first)
        cluster.pod("a", node="pool-0")
        running = cluster.run(options)
        cluster.pod("b", cpu="7")

        async def machines() -> None:
            while True:
                await asyncio.sleep(5)
                cloud.apply()

        making = asyncio.create_task(machines())
        await until(lambda: "big-0" in cluster.nodes(), 60)
        cluster.bind("b", "big-0")
        await asyncio.sleep(30)
        metrics = running.around[0].metrics
        labels = {} if options.legacy else {"group_type": ""}
        assert metrics.value("cluster_autoscaler_created_node_groups_total", **labels) == 1
        cluster.server.drop("pods", "b", "default")
        await until(lambda: cluster.nodes() == ["pool-0"], 180)
        await until(lambda: json.loads(cloud.file.read_text())["big"].get("exists") is False, 60)
        assert metrics.value("cluster_autoscaler_deleted_node_groups_total", **labels) == 1
        if options.legacy:
            assert ("CreatedNodeGroup", "cluster-autoscaler-status") in cluster.events()
            assert ("DeletedNodeGroup", "cluster-autoscaler-status") in cluster.events()
        making.cancel()
        await running.end()

    autoscaled(case)


class Accelerated(Machines):
    """Machines with a GPU."""

    def node(self, name: str) -> dict[str, Any]:
        created = super().node(name)
        created["metadata"]["labels"][GPU] = "nvidia-l4"
        for amounts in (created["status"]["capacity"], created["status"]["allocatable"]):
            amounts["nvidia.com/gpu"] = "1"
        return created


@pytest.mark.parametrize(("listed", "name"), [((), "not-listed"), (("nvidia-l4", "nvidia-t4"), "nvidia-l4")])
def test_metrics_name_the_types_of_gpu_that_the_cloud_lists(listed: Sequence[str], name: str) -> None:
    async def case(cluster: Cluster) -> None:
        cluster.cloud = Accelerated(cluster.api)
        cluster.cloud.start()
        cluster.pod("a", node="pool-1")
        running = cluster.run(TODAY, gpu_label=GPU, gpu_types=listed)
        cluster.pod("b")
        await until(lambda: len(cluster.nodes()) == 2, 120)
        metrics = running.around[0].metrics
        labels = {"gpu_resource_name": "nvidia.com/gpu", "gpu_name": name}
        assert metrics.value("cluster_autoscaler_scaled_up_gpu_nodes_total", **labels) == 1
        cluster.server.drop("pods", "b", "default")
        await until(lambda: len(cluster.nodes()) == 1, 180)
        assert metrics.value("cluster_autoscaler_scaled_down_gpu_nodes_total", reason="empty", **labels) == 1
        await running.end()

    autoscaled(case)
