"""A whole ``kscale run cluster-autoscaler`` whose nodes are objects of the API server: those that kwok keeps, and those
of Cluster API; and one that answers a ProvisioningRequest. Each with the account that the manifests give it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cloud import FakeCloud, Machines
from e2e.control_plane import ControlPlane, Refused
from e2e.e2e_capacity_controllers import conditions, definition
from e2e.e2e_cluster_autoscaler import Autoscaler, holds, nodes
from e2e.real_api import MERGE
from e2e.rights import installed
from kscale.world.nodegroups.external_server import ExternalServer

MACHINES = "cluster.x-k8s.io"
FLEET = f"/apis/{MACHINES}/v1beta1/namespaces/default"
PODS = "/api/v1/namespaces/default/pods"
REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests"
OFFERED = {"cpu": "2", "memory": "4Gi", "pods": "110"}
READY = {"capacity": OFFERED, "allocatable": OFFERED, "conditions": [{"type": "Ready", "status": "True"}]}


def machines(kind: str) -> dict[str, Any]:
    """The definition of a kind of Cluster API, as far as anybody looks at it here."""
    crd = definition(kind, "Namespaced")
    (version,) = crd["spec"]["versions"]
    version["name"] = "v1beta1"
    if kind != "Machine":
        paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
        version["subresources"]["scale"] = paths
    crd["metadata"]["name"] = f"{crd['spec']['names']['plural']}.{MACHINES}"
    crd["spec"]["group"] = MACHINES
    return crd


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("clouds"), scheduler=True) as plane:
        request = definition("ProvisioningRequest", "Namespaced")
        request["spec"]["versions"][0]["name"] = "v1"
        plane.define(request, *map(machines, ("MachineDeployment", "MachineSet", "Machine")))
        yield plane


def pod(plane: ControlPlane) -> None:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1500m"}}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    plane.ask("POST", PODS, {"metadata": {"name": "web"}, "spec": spec})


def bound(plane: ControlPlane) -> str:
    result: str = plane.ask("GET", f"{PODS}/web")["spec"].get("nodeName", "")
    return result


def played(
    plane: ControlPlane,
    directory: Path,
    name: str,
    script: Callable[[Autoscaler], Awaitable[None]],
    *flags: str,
    words: tuple[str, ...] = (),
    url: str = "",
) -> str:
    """An autoscaler until the script has ended; gives what it said."""
    access = installed(plane, "cluster-autoscaler", *flags, name=name, words=words)
    path = directory / "kubeconfig"
    path.write_text(json.dumps(plane.config(user={"token": access.token.reveal()})))
    own = () if url else ("--cloud-config=",)
    autoscaler = Autoscaler(str(path), url, directory, *words, *own, *flags)

    async def main() -> None:
        await script(autoscaler)
        assert await asyncio.to_thread(autoscaler.end) == 0

    try:
        asyncio.run(main())
    finally:
        if autoscaler.process.poll() is None:
            autoscaler.end(signal.SIGKILL)
    output = autoscaler.output()
    assert " forbidden" not in output.lower(), output[-3000:]
    assert '"level": "error"' not in output, output[-3000:]
    return output


async def comes_and_goes(plane: ControlPlane, autoscaler: Autoscaler) -> str:
    """A pod gets a node; without the pod the node goes. Gives its name."""
    await asyncio.to_thread(pod, plane)
    await holds(lambda: bound(plane), autoscaler)
    name = await asyncio.to_thread(bound, plane)
    await asyncio.to_thread(plane.ask, "DELETE", f"{PODS}/web")
    await holds(lambda: not nodes(plane), autoscaler)
    return name


def test_nodes_of_kwok(plane: ControlPlane, tmp_path: Path) -> None:
    config = {
        "readNodesFrom": "configmap",
        "configmap": {"name": "kwok-provider-templates"},
        "nodegroups": {"fromNodeLabelKey": "pool"},
        "nodes": {"skipTaint": True},
    }
    template = {"metadata": {"name": "t", "labels": {"pool": "fake"}}, "status": READY}
    items = {"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Node", **template}]}
    for name, data in (("config", {"config": config}), ("templates", {"templates": items})):
        texts = {key: json.dumps(value) for key, value in data.items()}
        created = {"metadata": {"name": f"kwok-provider-{name}"}, "data": texts}
        plane.ask("POST", "/api/v1/namespaces/kube-system/configmaps", created)

    async def script(autoscaler: Autoscaler) -> None:
        assert (await comes_and_goes(plane, autoscaler)).startswith("fake-")

    played(plane, tmp_path, "kwok", script, words=("--cloud-provider=kwok",))


class Fleet:
    """What the controllers of Cluster API do: as many machines and nodes as a deployment wants."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane, self.created, self.marked = plane, 0, 0

    def begin(self) -> None:
        sizes = {f"{MACHINES}/cluster-api-autoscaler-node-group-{which}-size": size for which, size in
                 (("min", "0"), ("max", "3"))}  # fmt: skip
        capacity = {f"capacity.cluster-autoscaler.kubernetes.io/{what}": OFFERED[what] for what in ("cpu", "memory")}
        kind = {"apiVersion": f"{MACHINES}/v1beta1"}
        spec = {"clusterName": "c", "replicas": 0, "template": {"spec": {}}}
        metadata: dict[str, Any] = {"name": "md", "annotations": {**sizes, **capacity}}
        deployment = {**kind, "kind": "MachineDeployment", "metadata": metadata, "spec": spec}
        uid = self.plane.ask("POST", f"{FLEET}/machinedeployments", deployment)["metadata"]["uid"]
        owner = {**kind, "kind": "MachineDeployment", "name": "md", "uid": uid, "controller": True}
        metadata = {"name": "md-1", "ownerReferences": [owner]}
        machine_set = {**kind, "kind": "MachineSet", "metadata": metadata, "spec": spec}
        created = self.plane.ask("POST", f"{FLEET}/machinesets", machine_set)
        self.owner = {**owner, "kind": "MachineSet", "name": "md-1", "uid": created["metadata"]["uid"]}

    async def run(self) -> None:
        """For ever."""
        while True:
            with contextlib.suppress(Refused):
                await asyncio.to_thread(self._follow)
            await asyncio.sleep(0.2)

    def _follow(self) -> None:
        ask = self.plane.ask
        replicas = ask("GET", f"{FLEET}/machinedeployments/md")["spec"]["replicas"]
        machines_ = ask("GET", f"{FLEET}/machines")["items"]
        for _ in range(replicas - len(machines_)):
            name, self.created = f"m{self.created}", self.created + 1
            spec = {"providerID": f"x://{name}"}
            ask("POST", "/api/v1/nodes", {"metadata": {"name": name}, "spec": spec, "status": READY})
            kind = {"apiVersion": f"{MACHINES}/v1beta1", "kind": "Machine"}
            ask(
                "POST",
                f"{FLEET}/machines",
                {**kind, "metadata": {"name": name, "ownerReferences": [self.owner]}, "spec": spec},
            )
            ask("PATCH", f"{FLEET}/machines/{name}/status", {"status": {"nodeRef": {"name": name}}}, content_type=MERGE)
        marked = [each for each in machines_ if f"{MACHINES}/delete-machine" in each["metadata"].get("annotations", {})]
        for each in marked[: len(machines_) - replicas]:
            name = each["metadata"]["name"]
            self.marked += 1
            ask("DELETE", f"{FLEET}/machines/{name}")
            ask("DELETE", f"/api/v1/nodes/{name}")


def test_nodes_of_cluster_api(plane: ControlPlane, tmp_path: Path) -> None:
    fleet = Fleet(plane)
    fleet.begin()

    async def script(autoscaler: Autoscaler) -> None:
        operator = asyncio.create_task(fleet.run())
        try:
            assert await comes_and_goes(plane, autoscaler) == "m0"
        finally:
            operator.cancel()
            await asyncio.wait([operator])

    played(plane, tmp_path, "machines", script, words=("--cloud-provider=clusterapi",))
    assert (fleet.created, fleet.marked) == (1, 1)
    assert plane.ask("GET", f"{FLEET}/machinedeployments/md")["spec"]["replicas"] == 0


def test_a_provisioning_request_is_answered(plane: ControlPlane, tmp_path: Path) -> None:
    cloud = FakeCloud(plane, Machines("small", cpu="2", least=1, most=4))
    cloud.start("small", 1)
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1500m"}}}
    template = {"metadata": {"name": "t"}, "template": {"spec": {"containers": [container]}}}
    plane.ask("POST", "/api/v1/namespaces/default/podtemplates", template)
    for name, count in (("fits", 1), ("large", 3)):
        spec = {
            "provisioningClassName": "check-capacity.autoscaling.x-k8s.io",
            "podSets": [{"count": count, "podTemplateRef": {"name": "t"}}],
        }
        kind = {"apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest"}
        plane.ask("POST", REQUESTS, {**kind, "metadata": {"name": name}, "spec": spec})

    def condition(name: str) -> str:
        return conditions(plane.ask("GET", f"{REQUESTS}/{name}")).get("Provisioned", "")

    async def script(autoscaler: Autoscaler) -> None:
        await holds(lambda: condition("fits") == "True" and condition("large") == "False", autoscaler)

    with ExternalServer(cloud, "127.0.0.1:0") as server:
        played(plane, tmp_path, "requests", script, "--enable-provisioning-requests=true", url=server.url)
    assert cloud.calls == []
    cloud.close()
