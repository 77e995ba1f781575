"""The controllers of CapacityQuotas and CapacityBuffers, in a whole ``kscale run cluster-autoscaler`` whose account may
do what the manifests say and no more, against the real API server."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cloud import FakeCloud, Machines
from e2e.control_plane import ControlPlane
from e2e.e2e_cluster_autoscaler import Autoscaler, holds
from e2e.rights import installed
from kscale.ca.quota import VALID_CONDITION
from kscale.world.nodegroups.external_server import ExternalServer
from unit.world.writer_cases import deployment

GROUP = "autoscaling.x-k8s.io"
QUOTAS = f"/apis/{GROUP}/v1beta1/capacityquotas"
BUFFERS = f"/apis/{GROUP}/v1beta1/namespaces/default/capacitybuffers"
STATUS = "cluster-autoscaler-status"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"


def definition(kind: str, scope: str, **spec: Any) -> dict[str, Any]:
    """``spec``: what the schema says of fields of it."""
    plural = f"{kind.lower()}s"
    odd = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {**odd, "properties": {"spec": {**odd, "properties": spec}}}},
        "subresources": {"status": {}},
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "metadata": {
            "name": f"{plural}.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {"group": GROUP, "scope": scope, "names": names, "versions": [version]},
    }


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("capacity")) as plane:
        strategy = {"type": "string", "default": "buffer.x-k8s.io/active-capacity"}
        buffers = definition("CapacityBuffer", "Namespaced", provisioningStrategy=strategy)
        plane.define(definition("CapacityQuota", "Cluster"), buffers)
        yield plane


@pytest.fixture
def cloud(plane: ControlPlane) -> Iterator[FakeCloud]:
    cloud = FakeCloud(plane, Machines("small", cpu="2", least=1, most=4, registers=False))
    cloud.start("small", 1)
    yield cloud
    cloud.close()
    for node in plane.ask("GET", "/api/v1/nodes")["items"]:
        plane.ask("DELETE", f"/api/v1/nodes/{node['metadata']['name']}")


async def run(
    plane: ControlPlane, cloud: FakeCloud, name: str, directory: Path, done: Callable[[], bool], *enabled: str
) -> None:
    """An autoscaler with these options on, as an account of its own with their rules, until it is done and has looped:
    at its end it deletes the status that a loop wrote."""

    def looped() -> bool:
        return any(each["metadata"]["name"] == STATUS for each in plane.ask("GET", CONFIG_MAPS)["items"])

    flags = [f"--{name.replace('_', '-')}=true" for name in enabled]
    access = await asyncio.to_thread(installed, plane, "cluster-autoscaler", *flags, name=name)
    path = directory / "kubeconfig"
    path.write_text(json.dumps(plane.config(user={"token": access.token.reveal()})))
    with ExternalServer(cloud, "127.0.0.1:0") as server:
        autoscaler = Autoscaler(str(path), server.url, directory, *flags)
        try:
            await holds(lambda: done() and looped(), autoscaler)
            assert await asyncio.to_thread(autoscaler.end) == 0
        finally:
            if autoscaler.process.poll() is None:
                autoscaler.end(signal.SIGKILL)
    output = autoscaler.output()
    assert " forbidden" not in output.lower(), output[-3000:]
    assert '"level": "error"' not in output, output[-3000:]


def conditions(obj: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in obj.get("status", {}).get("conditions", ())}


def test_quota_status_reports_usage(plane: ControlPlane, cloud: FakeCloud, tmp_path: Path) -> None:
    spec = {"limits": {"resources": {"cpu": "3", "nodes": "2"}}}
    created = {"apiVersion": f"{GROUP}/v1beta1", "kind": "CapacityQuota", "metadata": {"name": "all"}, "spec": spec}
    plane.ask("POST", QUOTAS, created)

    def is_reported() -> bool:
        return conditions(plane.ask("GET", f"{QUOTAS}/all")).get(VALID_CONDITION) == "True"

    asyncio.run(run(plane, cloud, "quotas", tmp_path, is_reported, "capacity_quotas_enabled"))
    status = plane.ask("GET", f"{QUOTAS}/all")["status"]
    assert status["used"]["resources"] == {"cpu": "2", "nodes": "1"}
    assert status["observedGeneration"] == 1
    assert cloud.calls == []


def test_a_buffer_is_pods_like_those_of_a_workload(plane: ControlPlane, cloud: FakeCloud, tmp_path: Path) -> None:
    web = deployment("web", 4)
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1500m"}}
    plane.ask("POST", "/apis/apps/v1/namespaces/default/deployments", web)
    spec = {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}, "percentage": 50}
    created = {"apiVersion": f"{GROUP}/v1beta1", "kind": "CapacityBuffer", "metadata": {"name": "spare"}, "spec": spec}
    plane.ask("POST", BUFFERS, created)

    def grown() -> bool:
        return bool(cloud.calls)

    enabled = ("capacity_buffer_controller_enabled", "capacity_buffer_pod_injection_enabled")
    asyncio.run(run(plane, cloud, "buffers", tmp_path, grown, *enabled))
    buffer = plane.ask("GET", f"{BUFFERS}/spare")
    status = buffer["status"]
    assert conditions(buffer)["ReadyForProvisioning"] == "True"
    assert status["replicas"] == 2
    template = status["podTemplateRef"]["name"]
    result = plane.ask("GET", f"/api/v1/namespaces/default/podtemplates/{template}")
    assert result["template"]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1500m"}}
    assert result["metadata"]["ownerReferences"][0]["name"] == "spare"
    # One of the two fits on the node that is there.
    assert cloud.calls[0] == ("IncreaseSize", "small", 1)
    assert plane.ask("GET", "/api/v1/namespaces/default/pods")["items"] == []
