"""CapacityBuffers and ProvisioningRequests with the Cluster Autoscaler as a whole process, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from kscale.drivers.cluster_autoscaler_controllers import BufferController
from kscale.effects import to_text
from kscale.objects.kinds import ServedResource
from unit.drivers.autoscaled import OPTIONS, Cluster, autoscaled
from unit.world.informer_cases import until

BUFFERS = ServedResource("autoscaling.x-k8s.io", "v1beta1", "CapacityBuffer", "capacitybuffers")
REQUESTS = ServedResource("autoscaling.x-k8s.io", "v1", "ProvisioningRequest", "provisioningrequests")
TEMPLATES = ServedResource("", "v1", "PodTemplate", "podtemplates")
RESOURCE_QUOTAS = ServedResource("", "v1", "ResourceQuota", "resourcequotas")


def put_template(cluster: Cluster) -> None:
    """Of a pod that takes most of a machine."""
    container = {"name": "c", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}
    about = {"name": "web", "namespace": "shop", "generation": 1}
    cluster.server.put("podtemplates", {"metadata": about, "template": {"spec": {"containers": [container]}}})


def conditions(cluster: Cluster, resource: ServedResource, name: str) -> dict[str, tuple[str, str]]:
    obj: dict[str, Any] = cluster.server.get(resource.group_resource, name, "shop")
    return {each["type"]: (each["status"], each["reason"]) for each in obj.get("status", {}).get("conditions", ())}


def test_buffer_keeps_a_node_until_it_is_deleted() -> None:
    async def case(cluster: Cluster) -> None:
        cluster.cloud.start()
        cluster.pod("a", node="pool-1")
        put_template(cluster)
        buffer = {
            "metadata": {"name": "spare", "namespace": "shop", "uid": "spare"},
            "status": {
                "podTemplateRef": {"name": "web"},
                "podTemplateGeneration": 1,
                "replicas": 1,
                "provisioningStrategy": "buffer.x-k8s.io/active-capacity",
                "conditions": [{"type": "ReadyForProvisioning", "status": "True", "reason": "r", "message": ""}],
            },
        }
        cluster.server.put(BUFFERS.group_resource, buffer)
        running = cluster.run(replace(OPTIONS, capacity_buffer_pod_injection_enabled=True))
        await until(lambda: cluster.nodes() == ["pool-1", "pool-2"], 120)
        assert conditions(cluster, BUFFERS, "spare")["Provisioning"] == ("True", "FakePodsInjected")
        assert ("TriggeredScaleUp", "spare") in cluster.events()
        await asyncio.sleep(100)
        assert cluster.cloud.calls == [("IncreaseSize", 1)]
        cluster.server.drop(BUFFERS.group_resource, "spare", "shop")
        await until(lambda: cluster.nodes() == ["pool-1"], 240)
        await running.end()

    autoscaled(case, resources=[BUFFERS, TEMPLATES])


def test_controller_writes_the_buffer_status() -> None:
    async def case(cluster: Cluster) -> None:
        cluster.cloud.start()
        cluster.pod("a", node="pool-1")
        put_template(cluster)
        about = {"name": "spare", "namespace": "shop", "uid": "spare", "generation": 1}
        spec = {"podTemplateRef": {"name": "web"}, "replicas": 3, "provisioningStrategy": ""}
        cluster.server.put(BUFFERS.group_resource, {"metadata": about, "spec": spec})
        quota = {"metadata": {"name": "q", "namespace": "shop", "uid": "q"}, "status": {"hard": {"requests.cpu": "2"}}}
        cluster.server.put("resourcequotas", quota)
        cluster.others = [BufferController()]
        running = cluster.run(replace(OPTIONS, capacity_buffer_pod_injection_enabled=True))

        def status() -> Any:
            return cluster.server.get(BUFFERS.group_resource, "spare", "shop").get("status", {})

        await until(lambda: status().get("replicas") == 1, 30)
        assert status()["podTemplateRef"] == {"name": "capacitybuffer-spare-pod-template"}
        assert conditions(cluster, BUFFERS, "spare")["LimitedByQuotas"] == ("True", "ResourceQuotasAllocated")
        await until(lambda: cluster.cloud.calls == [("IncreaseSize", 1)], 30)
        created = len([call for call in cluster.server.requested_paths("POST") if "podtemplates" in call])
        cluster.server.drop("resourcequotas", "q", "shop")
        await until(lambda: status()["replicas"] == 3, 30)
        assert len([call for call in cluster.server.requested_paths("POST") if "podtemplates" in call]) == created == 1
        await running.end()

    autoscaled(case, resources=[BUFFERS, TEMPLATES, RESOURCE_QUOTAS])


def test_a_request_gets_all_its_nodes_and_keeps_them() -> None:
    async def case(cluster: Cluster) -> None:
        cluster.cloud.start()
        cluster.pod("a", node="pool-1")
        put_template(cluster)
        running = cluster.run(replace(OPTIONS, enable_provisioning_requests=True))
        await until(lambda: "autoscalerStatus: Running" in cluster.status(), 30)
        request = {
            "metadata": {
                "name": "two",
                "namespace": "shop",
                "uid": "two",
                "creationTimestamp": to_text(cluster.clock.now()),
            },
            "spec": {
                "provisioningClassName": "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
                "podSets": [{"podTemplateRef": {"name": "web"}, "count": 2}],
            },
        }
        cluster.server.put(REQUESTS.group_resource, request)
        await until(lambda: "Provisioned" in conditions(cluster, REQUESTS, "two"), 60)
        assert conditions(cluster, REQUESTS, "two") == {
            "Accepted": ("True", "Accepted"),
            "Provisioned": ("True", "CapacityIsProvisioned"),
        }
        await until(lambda: cluster.nodes() == ["pool-1", "pool-2", "pool-3"], 60)
        await asyncio.sleep(100)
        assert cluster.cloud.calls == [("IncreaseSize", 2)]
        cluster.server.drop(REQUESTS.group_resource, "two", "shop")
        await until(lambda: cluster.nodes() == ["pool-1"], 240)
        await running.end()

    autoscaled(case, resources=[REQUESTS, TEMPLATES])
