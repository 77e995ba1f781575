"""What the AWS provider costs beside the calls to AWS: 300 Auto Scaling groups with 5,000 instances, all registered.

``again``: groups of the last minute; ``read``: after a minute, with the responses as boto3 returns them. ``loop``: a
loop of the autoscaler over these groups and a pod on each node, in which nothing changes, with ``again`` in it.
``KSCALE_BENCH_SCALE`` (default 1) multiplies the groups.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest

import kscale
from kscale import ca
from kscale.objects.api.core import Node
from kscale.world.aws.api import AutoScalingGroup, InstanceTypeInfo, LaunchTemplateData, LaunchTemplateSpecification
from kscale.world.aws.auto_scaling_groups import AutoScalingGroups
from kscale.world.aws.provider import AwsGroups
from kscale.world.server_data import read_data

SCALE = float(os.environ.get("KSCALE_BENCH_SCALE", "1"))
GROUPS = max(3, round(300 * SCALE))
INSTANCES = [17 if number % 3 else 16 for number in range(GROUPS)]
NOW = datetime(2026, 11, 1, tzinfo=UTC)


class Aws:
    """Responses without a network."""

    def __init__(self) -> None:
        self.groups = [
            {
                "AutoScalingGroupName": f"g{number}",
                "MinSize": 0,
                "MaxSize": 50,
                "DesiredCapacity": count,
                "AvailabilityZones": ["us-east-1a"],
                "LaunchTemplate": {"LaunchTemplateName": f"launch-{number}", "Version": "1"},
                "Tags": [
                    {"Key": "k8s.io/cluster-autoscaler/enabled", "Value": "true"},
                    {"Key": "k8s.io/cluster-autoscaler/node-template/label/group", "Value": f"g{number}"},
                ],
                "Instances": [
                    {
                        "InstanceId": f"i-{number}-{each}",
                        "AvailabilityZone": "us-east-1a",
                        "LifecycleState": "InService",
                        "HealthStatus": "Healthy",
                    }
                    for each in range(count)
                ],
            }
            for number, count in enumerate(INSTANCES)
        ]

    def groups_tagged(self, tags: Mapping[str, str]) -> list[AutoScalingGroup]:
        del tags
        return read_data(self.groups, list[AutoScalingGroup])

    def launch_template_data(self, template: LaunchTemplateSpecification) -> LaunchTemplateData:
        del template
        return LaunchTemplateData(instance_type="m5.large")

    def instance_types(self, names: Sequence[str]) -> list[InstanceTypeInfo]:
        sizes = {"VCpuInfo": {"DefaultVCpus": 2}, "MemoryInfo": {"SizeInMiB": 8192}}
        return [read_data({"InstanceType": name, **sizes}, InstanceTypeInfo) for name in names]


@cache
def cluster() -> kscale.Cluster:
    size = {"cpu": "2", "memory": "8Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-10-01T00:00:00Z"}]
    objects: list[dict[str, Any]] = []
    for number, count in enumerate(INSTANCES):
        for each in range(count):
            name = f"n-{number}-{each}"
            objects.append(
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "group": f"g{number}"}},
                    "spec": {"providerID": f"aws:///us-east-1a/i-{number}-{each}"},
                    "status": {"capacity": size, "allocatable": size, "conditions": ready},
                }
            )
            requests = {"requests": {"cpu": "1500m"}}
            objects.append(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"p-{name}", "namespace": "default"},
                    "spec": {"nodeName": name, "containers": [{"name": "c", "resources": requests}]},
                    "status": {"phase": "Running"},
                }
            )
    return kscale.Cluster(objects)


class World:
    """The provider over these responses, with a clock of its own."""

    def __init__(self) -> None:
        self.time = 1_790_000_000 * 10**9
        self.nodes: list[Node] = list(cluster().nodes())
        groups = AutoScalingGroups(
            Aws(), tags={"k8s.io/cluster-autoscaler/enabled": ""}, now=lambda: self.time, monotonic=lambda: self.time
        )
        self.provider = AwsGroups(groups, lambda: self.nodes)
        self.provider.refresh()

    def again(self) -> int:
        groups = self.provider.refresh()
        return sum(map(self.provider.has_instance, self.nodes)) + len(groups)

    def read(self) -> int:
        self.time += 60 * 10**9
        return self.again()


@cache
def world() -> World:
    return World()


@pytest.mark.parametrize("act", ["again", "read"])
def test_provider(benchmark, act: str) -> None:
    assert benchmark.pedantic(getattr(world(), act), rounds=5, warmup_rounds=1) == sum(INSTANCES) + GROUPS


def test_loop(benchmark) -> None:
    """A loop keeps under 200 ms of CPU time."""
    state: list[Any] = [None]
    spent: list[float] = []

    def loop() -> Any:
        before = time.process_time()
        groups = world().provider.refresh()
        machines = {node.name: world().provider.has_instance(node) for node in world().nodes}
        inputs = ca.LoopInputs(
            comparator=ca.Comparator(kind="aws"), add_provider_resources=True, gpu_label=world().provider.gpu_label
        )
        report = ca.run_once(
            cluster().snapshot(), groups, now=NOW, state=state[0], inputs=inputs, has_instance=machines
        )
        state[0] = report.state
        spent.append(time.process_time() - before)
        return report

    report = benchmark.pedantic(loop, rounds=5, warmup_rounds=3)
    assert report.error is None
    benchmark.extra_info["cpu_ms"] = round(min(spent[3:] or spent) * 1_000)
