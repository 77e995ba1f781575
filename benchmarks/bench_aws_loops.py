"""Loops of the Cluster Autoscaler over 300 Auto Scaling groups with 5,000 instances and 150,000 pods of many kinds, in
which nothing changes.

Two kinds: ``cached`` loops request nothing of AWS; ``refreshed`` loops come when the minute of the cache is over. The
responses of AWS are in memory: what is timed is the loop beside its requests. The snapshot is part of it.
``KSCALE_BENCH_SCALE`` (default 1) multiplies the cluster.
"""

from __future__ import annotations

import os
import time
from functools import cache
from io import BytesIO
from typing import Any

import pytest
from msgspec.structs import replace

import kscale
from kscale import ca
from kscale.ca.node_group_set import Comparator
from kscale.capacity.generate import generate
from kscale.effects import SECOND
from kscale.world.aws.api import (
    AutoScalingGroup,
    GroupInstance,
    InstanceTypeInfo,
    LaunchTemplateData,
    LaunchTemplateSpecification,
    MemoryInfo,
    Tag,
    VCpuInfo,
)
from kscale.world.aws.auto_scaling_groups import AutoScalingGroups
from kscale.world.aws.provider import AwsGroups

SCALE = float(os.environ.get("KSCALE_BENCH_SCALE", "1"))
NODES, GROUPS = max(30, round(5_000 * SCALE)), max(3, round(300 * SCALE))
START = 1_800_000_000 * SECOND
LIMIT = 0.2
"""CPU seconds of a loop without changes, beside requests."""


class Api:
    """Calls to AWS that are answered from memory. ``calls``: how many there were."""

    def __init__(self, groups: list[AutoScalingGroup]) -> None:
        self.groups, self.calls = groups, 0

    def groups_tagged(self, tags: Any) -> list[AutoScalingGroup]:
        self.calls += 1
        return self.groups

    def launch_template_data(self, template: Any) -> LaunchTemplateData:
        self.calls += 1
        return LaunchTemplateData(instance_type="m5.large")

    def instance_types(self, names: Any) -> list[InstanceTypeInfo]:
        self.calls += 1
        size = {"v_cpu_info": VCpuInfo(default_vcpus=2), "memory_info": MemoryInfo(size_in_mib=8192)}
        return [InstanceTypeInfo(instance_type=name, **size) for name in names]


@cache
def cluster() -> kscale.Cluster:
    """Nodes of many kinds with 30 pods each, and with provider IDs of AWS."""
    with BytesIO() as file:
        generate(NODES, 30 * NODES, pending=0, seed=3, lean=True).write(file)
        created = kscale.load(file.getvalue())
    for i, node in enumerate([*created.nodes()]):
        created.apply(replace(node, spec=replace(node.spec, provider_id=f"aws:///us-east-1{'abc'[i % 3]}/i-{i:08x}")))
    return created


def account(cluster: kscale.Cluster) -> Api:
    """Every group has nodes of one zone."""
    ids = [(node.spec.provider_id or "").split("/")[3:] for node in cluster.nodes()]
    groups = [
        AutoScalingGroup(
            auto_scaling_group_name=f"group-{i}",
            max_size=1_000,
            desired_capacity=len(ids[i::GROUPS]),
            availability_zones=[ids[i][0]],
            launch_template=LaunchTemplateSpecification(launch_template_name=f"template-{i}"),
            tags=[Tag(key="k8s.io/cluster-autoscaler/enabled", value="true")],
            instances=[
                GroupInstance(
                    instance_id=id_, availability_zone=zone, lifecycle_state="InService", health_status="Healthy"
                )
                for zone, id_ in ids[i::GROUPS]
            ],
        )
        for i in range(GROUPS)
    ]
    return Api(groups)


class Loops:
    """One loop after the other; ``seconds`` apart."""

    def __init__(self) -> None:
        self.cluster = cluster()
        self.api: Any = account(self.cluster)
        self.now, self.seconds = START, 1
        tags = {"k8s.io/cluster-autoscaler/enabled": ""}
        groups = AutoScalingGroups(self.api, tags=tags, now=lambda: self.now, monotonic=lambda: self.now)
        nodes = [*self.cluster.nodes()]
        self.provider = AwsGroups(groups, lambda: nodes)
        self.inputs = ca.LoopInputs(add_provider_resources=True, comparator=Comparator(kind="aws"))
        self.state: ca.LoopState | None = None
        self.cpu: list[float] = []

    def __call__(self) -> Any:
        self.now += self.seconds * SECOND
        begin = time.process_time()
        groups = self.provider.refresh()
        report = ca.run_once(self.cluster, groups, now=self.now, state=self.state, inputs=self.inputs)
        self.cpu.append(time.process_time() - begin)
        self.state = report.state
        return report

    def at_rest(self) -> None:
        """Run loops until one finds what the one before it found."""
        before = self().scale_down
        for _ in range(NODES):
            result = self().scale_down
            if (result.candidates, result.unneeded_since) == (before.candidates, before.unneeded_since):
                return
            before = result
        raise AssertionError("the loops find something new each time")


@pytest.mark.parametrize("kind", ["cached", "refreshed"])
def test_idle_loop(benchmark: Any, kind: str) -> None:
    loops = Loops()
    loops.at_rest()
    loops.seconds = 1 if kind == "cached" else 61
    loops()
    loops.cpu.clear()
    loops.api.calls = 0
    report = benchmark.pedantic(loops, rounds=5)
    assert report.error is None
    assert report.scale_up.result == "ScaleUpNotNeeded"
    assert loops.api.calls == (0 if kind == "cached" else 5)
    benchmark.extra_info["cpu_seconds"] = round(min(loops.cpu), 3)
    print(f"{GROUPS} groups, {NODES} instances, {kind}: {min(loops.cpu) * 1e3:.0f} ms of CPU")
    if kind == "cached":
        assert min(loops.cpu) <= LIMIT
