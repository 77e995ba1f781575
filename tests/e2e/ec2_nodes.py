"""Instances of the emulated AWS account as nodes of a real API server: kubelets, and the node controller of AWS."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from e2e.control_plane import ControlPlane, Refused
from emulated_aws import REGION, EmulatedAws

__all__ = ["Ec2Nodes"]

_LABEL_TAG = "k8s.io/cluster-autoscaler/node-template/label/"
_SIZES = {
    "m5.large": {"cpu": "2", "memory": "8Gi"},
    "m5.xlarge": {"cpu": "4", "memory": "16Gi"},
    "c5.large": {"cpu": "2", "memory": "4Gi"},
}


class Ec2Nodes:
    """Registers a node for each instance of a group, and removes it with the instance.

    ``registers``: whether the instance of a group (its name, the instance's ID) registers at all.
    """

    def __init__(
        self,
        plane: ControlPlane,
        aws: EmulatedAws,
        registers: Callable[[str, str], bool] = lambda group, instance: True,
    ) -> None:
        self._plane, self._aws, self._registers = plane, aws, registers
        self._nodes: set[str] = set()

    async def run(self) -> None:
        """Follow the account until it is cancelled."""
        while True:
            await asyncio.to_thread(self.follow)
            await asyncio.sleep(0.5)

    def follow(self) -> None:
        """Make the nodes of the API server those of the account's instances."""
        instances = {
            instance["InstanceId"]: (group, instance)
            for group in self._aws.groups().values()
            for instance in group["Instances"]
            if self._registers(group["AutoScalingGroupName"], instance["InstanceId"])
        }
        for name in self._nodes - instances.keys():
            with contextlib.suppress(Refused):
                self._plane.ask("DELETE", f"/api/v1/nodes/{name}")
        for name in instances.keys() - self._nodes:
            with contextlib.suppress(Refused):
                self._plane.ask("POST", "/api/v1/nodes", _node(*instances[name]))
        self._nodes = {*instances}


def _node(group: dict[str, Any], instance: dict[str, Any]) -> dict[str, Any]:
    name, zone, kind = instance["InstanceId"], instance["AvailabilityZone"], instance["InstanceType"]
    labels = {
        tag["Key"].removeprefix(_LABEL_TAG): tag["Value"] for tag in group["Tags"] if tag["Key"].startswith(_LABEL_TAG)
    }
    offered = {**_SIZES[kind], "pods": "110"}
    return {
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": kind,
                "topology.kubernetes.io/region": REGION,
                "topology.kubernetes.io/zone": zone,
                "topology.ebs.csi.aws.com/zone": zone,
                **labels,
            },
        },
        "spec": {"providerID": f"aws:///{zone}/{name}"},
        "status": {
            "capacity": offered,
            "allocatable": offered,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }
