"""Cluster API as a cloud, against the fake API server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from kscale.errors import InputError
from kscale.objects.api.core import Node
from kscale.objects.decode import from_dict
from kscale.objects.kinds import ServedResource, find_kind
from kscale.objects.nodegroup import InstanceError, InstanceStatus, ProviderError
from kscale.world.kubernetes.transport import Answer
from kscale.world.nodegroups.cluster_api import Discovery, MachineGroupsCloud, read_discovery
from unit.world.api_on_a_thread import ThreadedApi
from unit.world.fake_api_server import status

G = "cluster.x-k8s.io"
SIZES = {f"{G}/cluster-api-autoscaler-node-group-min-size": "1", f"{G}/cluster-api-autoscaler-node-group-max-size": "4"}
T0 = 1_790_000_000 * 10**9


def served(kind: str) -> ServedResource:
    return ServedResource(G, "v1beta1", kind, f"{kind.lower()}s", True, "autoscaling/v1" if kind != "Machine" else "")


def owner_of(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": f"{G}/v1beta1", "kind": kind, "name": name, "uid": name, "controller": True}


class Management(ThreadedApi):
    """A management cluster, and the nodes of the workload cluster."""

    def __init__(self, *kinds: str, more: Iterable[ServedResource] = ()) -> None:
        ours = map(served, kinds or ("Machine", "MachineDeployment", "MachineSet", "MachinePool"))
        super().__init__([*ours, *more])
        self.nodes: list[Node] = []

    def cloud(self, *discovery: Discovery) -> MachineGroupsCloud:
        return MachineGroupsCloud(
            self.ask, lambda: self.nodes, api_version=f"{G}/v1beta1", now=lambda: T0, discovery=discovery
        )

    def put(self, kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> None:
        status = metadata.pop("status", {})
        obj = {
            "metadata": {"name": name, "namespace": "fleet", "uid": name, **metadata},
            "spec": spec,
            "status": status,
        }
        self.server.put(f"{kind.lower()}s.{G}", {"apiVersion": f"{G}/v1beta1", "kind": kind, **obj})

    def deployment(self, name: str = "md", replicas: int = 2, **metadata: Any) -> None:
        metadata = {"annotations": SIZES, **metadata}
        self.put("MachineDeployment", name, {"replicas": replicas, "clusterName": "c"}, **metadata)
        self.put(
            "MachineSet", f"{name}-1", {"replicas": replicas}, ownerReferences=[owner_of("MachineDeployment", name)]
        )

    def machine(self, name: str, *, id_: str = "", of: str = "md-1", **more: Any) -> None:
        spec = {"providerID": id_} if id_ else {}
        self.put("Machine", name, spec, ownerReferences=[owner_of("MachineSet", of)], **more)

    def node(self, name: str, id_: str = "") -> Node:
        created = from_dict({"metadata": {"name": name}, "spec": {"providerID": id_}}, Node)
        self.nodes.append(created)
        return created

    def replicas(self, name: str = "md") -> int:
        return int(self.server.get(f"machinedeployments.{G}", name, "fleet")["spec"]["replicas"])

    def marks(self, name: str) -> dict[str, str]:
        return dict(self.server.get(f"machines.{G}", name, "fleet")["metadata"].get("annotations") or {})


@pytest.fixture
def api() -> Iterator[Management]:
    result = Management()
    yield result
    result.end()


def test_machines_are_instances_and_their_nodes_members(api: Management) -> None:
    api.deployment(replicas=3)
    api.machine("m1", id_="x://1")
    api.machine("m2", status={"nodeRef": {"name": "n2"}})
    api.machine("m3")
    api.machine("m4", deletionTimestamp="2026-11-01T00:00:00Z", finalizers=["x"])
    api.machine("m5", status={"failureMessage": "no"})
    api.machine("m6", status={"failureMessage": "no"}, deletionTimestamp="2026-11-01T00:00:00Z", finalizers=["x"])
    api.node("n1", "x://1")
    api.node("n2", "x://2")
    api.node("stranger", "y://1")
    (group,) = api.cloud().refresh()
    assert (group.id, group.min_size, group.max_size, group.target_size) == ("MachineDeployment/fleet/md", 1, 4, 3)
    assert group.nodes == ["n1", "n2"]
    assert group.instances == [
        "x://1", "x://2", "pending-machine-fleet_m3", "deleting-machine-fleet_m4", "failed-machine-fleet_m5",
        "failed-machine-fleet_m6",
    ]  # fmt: skip
    failed = InstanceError(class_="Other", code="ProvisioningFailed", message="Machine provisioning failed")
    stuck = InstanceError(class_="Other", code="DeletingFailed", message="Machine deletion failed")
    assert group.instance_status == {
        "pending-machine-fleet_m3": InstanceStatus(state="creating"),
        "deleting-machine-fleet_m4": InstanceStatus(state="deleting"),
        "failed-machine-fleet_m5": InstanceStatus(state="creating", error=failed),
        "failed-machine-fleet_m6": InstanceStatus(state="deleting", error=stuck),
    }


def test_a_group_grows_and_shrinks_by_its_scale(api: Management) -> None:
    api.deployment()
    api.machine("m1", id_="x://1")
    api.machine("m2", id_="x://2")
    cloud = api.cloud()
    (group,) = cloud.refresh()
    cloud.increase_size(group.id, 2)
    assert api.replicas() == 4
    with pytest.raises(ProviderError, match="size increase too large - desired:5 max:4"):
        cloud.increase_size(group.id, 1)
    with pytest.raises(ProviderError, match="size increase must be positive"):
        cloud.increase_size(group.id, 0)
    cloud.decrease_target_size(group.id, -2)
    with pytest.raises(ProviderError, match="existing nodes targetSize:2 delta:-1 existingNodes: 2"):
        cloud.decrease_target_size(group.id, -1)
    api.node("n2", "x://2")
    cloud.delete_nodes(group.id, [api.node("n1", "x://1")])
    assert api.replicas() == 1
    assert api.marks("m1") == {f"{G}/delete-machine": "2026-09-21T14:13:20Z"}
    assert api.marks("m2") == {}
    with pytest.raises(ProviderError, match="min size reached, nodes will not be deleted"):
        cloud.delete_nodes(group.id, [api.nodes[0]])


def test_undeletable_nodes_are_refused(api: Management) -> None:
    api.deployment()
    api.machine("m1", id_="x://1")
    cloud = api.cloud()
    (group,) = cloud.refresh()
    n1, other = api.node("n1", "x://1"), api.node("other", "y://1")
    with pytest.raises(ProviderError, match='node "y://1" doesn\'t belong to node group "MachineDeployment/fleet/md"'):
        cloud.delete_nodes(group.id, [other])
    with pytest.raises(ProviderError, match=r"unable to delete 2 machines in .*, machine replicas are 2, minSize is 1"):
        cloud.delete_nodes(group.id, [n1, n1])
    assert cloud.has_instance(n1)
    with pytest.raises(ProviderError, match="machine not found for node other"):
        cloud.has_instance(other)


def test_machine_is_not_marked_if_the_scale_write_fails(api: Management) -> None:
    api.deployment()
    api.machine("m1", id_="x://1")
    cloud = api.cloud()
    (group,) = cloud.refresh()
    refusal = Answer(409, {}, json.dumps(status(409, "Conflict", "it has been modified")).encode())
    api.server.fault = lambda call: refusal if call.method == "PUT" else None
    with pytest.raises(ProviderError, match="it has been modified"):
        cloud.delete_nodes(group.id, [api.node("n1", "x://1")])
    assert (api.marks("m1"), api.replicas()) == ({}, 2)


def test_machine_pools_are_node_groups(api: Management) -> None:
    api.put("MachinePool", "mp", {"replicas": 2, "providerIDList": ["x://1", "x://2"]}, annotations=SIZES)
    cloud = api.cloud()
    node = api.node("n1", "x://1")
    (group,) = cloud.refresh()
    assert (group.id, group.instances, group.nodes) == ("MachinePool/fleet/mp", ["x://1", "x://2"], ["n1"])
    cloud.delete_nodes(group.id, [node])
    assert api.server.get(f"machinepools.{G}", "mp", "fleet")["spec"]["replicas"] == 1


def test_server_without_machine_pools_is_supported() -> None:
    api = Management("Machine", "MachineDeployment", "MachineSet")
    try:
        api.deployment()
        assert [group.id for group in api.cloud().refresh()] == ["MachineDeployment/fleet/md"]
    finally:
        api.end()


def test_groups_are_discovered_by_the_configured_filters(api: Management) -> None:
    api.deployment("a", labels={"pool": "one"})
    api.deployment("b", labels={"pool": "two"})

    def names(text: str) -> list[str]:
        return [group.id.rpartition("/")[2] for group in api.cloud(read_discovery(text)).refresh()]

    assert names("clusterapi:namespace=fleet,clusterName=c") == ["a", "b"]
    assert names("clusterapi:pool=two") == ["b"]
    assert names("clusterapi:clusterName=other") == []
    assert names("clusterapi:namespace=elsewhere") == []
    for wrong in ("asg:tag=x", "clusterapi", "clusterapi:namespace", "clusterapi:=x"):
        with pytest.raises(InputError):
            read_discovery(wrong)


def test_a_deployment_in_the_middle_of_a_rollout(api: Management) -> None:
    """Its sets count whatever the discovery asks for."""

    def set_of(name: str, revision: str, replicas: int) -> None:
        notes = {"machinedeployment.clusters.x-k8s.io/revision": revision}
        labels = {f"{G}/deployment-name": "md"}
        above = [owner_of("MachineDeployment", "md")]
        api.put(
            "MachineSet", name, {"replicas": replicas}, annotations=notes, labels=labels, ownerReferences=above,
            status={"replicas": replicas},
        )  # fmt: skip

    api.deployment(labels={"pool": "one"})
    cloud = api.cloud(read_discovery("clusterapi:pool=one"))
    set_of("md-1", "1", 1)
    set_of("md-2", "2", 1)
    assert [group.rolling_out for group in cloud.refresh()] == [True]
    set_of("md-1", "1", 0)
    assert [group.rolling_out for group in cloud.refresh()] == [False]
    set_of("md-2", "two", 1)
    (group,) = cloud.refresh()
    assert group.rolling_out_error == "failed to parse current revision on MachineSet fleet/md-2: 'two' is no int64"


def test_custom_api_group_is_the_prefix_of_labels_and_annotations() -> None:
    """``TestAPIGroup`` of upstream's, as far as the environment's variable goes: paused deployments and the labels of
    their sets keep the usual group."""
    group = "cluster.example.com"
    kinds = {"MachineDeployment": True, "MachineSet": True, "MachinePool": True, "Machine": False}
    served = [
        ServedResource(group, "v1", kind, f"{kind.lower()}s", True, "autoscaling/v1" if scale else "")
        for kind, scale in kinds.items()
    ]
    api = ThreadedApi(served)

    def put(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> None:
        created = {"name": name, "namespace": "fleet", "uid": name, **metadata}
        api.server.put(f"{kind.lower()}s.{group}", {"metadata": created, "spec": spec})

    def sizes(group: str) -> dict[str, str]:
        return {f"{group}/cluster-api-autoscaler-node-group-{which}-size": "4" for which in ("min", "max")}

    labels = {f"{group}/cluster-name": "c"}
    option = {f"{group}/autoscaling-options-scaledownunneededtime": "5m"}
    least = {f"{group}/cluster-api-autoscaler-node-group-min-size": "0"}
    put("MachineDeployment", "md", {"replicas": 2}, annotations={**sizes(group), **least, **option}, labels=labels)
    put("MachineDeployment", "usual", {"replicas": 2}, annotations=sizes(G), labels=labels)
    put("MachineDeployment", "paused", {"replicas": 2}, annotations={**sizes(group), f"{G}/paused": ""}, labels=labels)
    put("MachineDeployment", "far", {"replicas": 2}, annotations=sizes(group), labels={f"{G}/cluster-name": "c"})
    above = {"kind": "MachineDeployment", "name": "md", "uid": "md", "controller": True}
    put("MachineSet", "md-1", {"replicas": 2}, ownerReferences=[above])
    above = {"kind": "MachineSet", "name": "md-1", "uid": "md-1", "controller": True}
    put("Machine", "m1", {"providerID": "x://1"}, ownerReferences=[above])
    annotations = {
        f"{group}/owner-kind": "MachineSet",
        f"{group}/owner-name": "md-1",
        f"{group}/cluster-namespace": "fleet",
    }
    nodes = [
        from_dict({"metadata": {"name": "n1"}, "spec": {"providerID": "x://1"}}, Node),
        from_dict({"metadata": {"name": "n2", "annotations": annotations}}, Node),
    ]
    try:
        cloud = MachineGroupsCloud(
            api.ask,
            lambda: nodes,
            api_version=f"{group}/v1",
            now=lambda: T0,
            discovery=[read_discovery("clusterapi:clusterName=c")],
        )
        (result,) = cloud.refresh()
        assert (result.id, result.min_size, result.max_size) == ("MachineDeployment/fleet/md", 0, 4)
        assert result.nodes == ["n1", "n2"]
        assert result.options is not None
        assert result.options.scale_down_unneeded_time == 300
        cloud.delete_nodes(result.id, nodes[:1])
        assert api.server.get(f"machinedeployments.{group}", "md", "fleet")["spec"]["replicas"] == 1
        marks = api.server.get(f"machines.{group}", "m1", "fleet")["metadata"]["annotations"]
        assert marks == {f"{group}/delete-machine": "2026-09-21T14:13:20Z"}
        assert find_kind(f"{group}/v1", "Machine") is None  # other readers of this process know nothing of the group
    finally:
        api.end()


TEMPLATE = ServedResource("infrastructure.cluster.x-k8s.io", "v1beta2", "MetalMachineTemplate", "metalmachinetemplates")


@pytest.mark.parametrize("by", [{"apiGroup": TEMPLATE.group}, {"apiVersion": TEMPLATE.api_version}])
def test_infrastructure_template_fills_in_missing_annotations(by: dict[str, str]) -> None:
    api = Management("Machine", "MachineDeployment", "MachineSet", "MachinePool", more=[TEMPLATE])
    try:
        template: dict[str, Any] = {
            "apiVersion": TEMPLATE.api_version,
            "kind": TEMPLATE.kind,
            "metadata": {"name": "big", "namespace": "fleet"},
            "status": {
                "capacity": {"cpu": "8", "memory": "32Gi", "pods": "250", "example.com/odd": "many"},
                "nodeInfo": {"architecture": "arm64", "operatingSystem": "linux"},
            },
        }
        api.server.put(TEMPLATE.group_resource, template)
        cpu = {"capacity.cluster-autoscaler.kubernetes.io/cpu": "6"}
        spec = {
            "replicas": 0,
            "template": {"spec": {"infrastructureRef": {**by, "kind": TEMPLATE.kind, "name": "big"}}},
        }
        api.put("MachineDeployment", "md", spec, annotations={**SIZES, **cpu})
        (group,) = api.cloud().refresh()
        node = group.node_template.node
        amounts = {name: str(amount) for name, amount in (node.status.allocatable or {}).items()}
        assert amounts == {"cpu": "6", "memory": "32Gi", "pods": "110"}
        assert node.metadata.labels == {"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"}
        template["status"]["nodeInfo"] = {
            "architecture": "arm64",
            "cores": 8,
        }  # no map of texts: upstream reads none of it
        api.server.put(TEMPLATE.group_resource, template)
        (group,) = api.cloud().refresh()
        assert group.node_template.node.metadata.labels == {"kubernetes.io/os": "", "kubernetes.io/arch": ""}
        api.server.drop(TEMPLATE.group_resource, "big", "fleet")
        assert api.cloud().refresh() == []
    finally:
        api.end()
