"""Clouds behind one protocol: a groups file, external gRPC (both ends, over loopback), kwok."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.candidates import count_registered_nodes, filter_atomic_groups
from kscale.effects import LEGAL_OUTCOMES, ApiError, Delete, Outcome, Refresh
from kscale.errors import InputError
from kscale.objects.api.core import Node, NodeSpec
from kscale.objects.api.meta import ObjectMeta
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import (
    Groups,
    InstanceError,
    InstanceStatus,
    NodeGroup,
    NodeGroupAutoscalingOptions,
    NodeGroupOptions,
    NodeTemplate,
    ProviderError,
)
from kscale.world.nodegroups.external import ExternalGroups, message_of, read_config
from kscale.world.nodegroups.external_server import ExternalServer
from kscale.world.nodegroups.kwok import KwokGroups, groups_of, read_kwok_config, read_nodes
from kscale.world.nodegroups.provider import CLOUD_ERROR, NodeInstancesCache, Provider
from kscale.world.nodegroups.static import StaticGroups
from kscale.world.protocols import NodeGroups, ask_cloud
from unit.test_files import files_of_at_most
from unit.world.api_on_a_thread import ThreadedApi

pytest.importorskip("grpc", reason="the extra [grpc] is not installed")


def node(name: str, *, provider_id: str = "", **labels: str) -> Node:
    data = {
        "metadata": {"name": name, "labels": labels, "annotations": {"a": "b"}},
        "spec": {"providerID": provider_id},
        "status": {"capacity": {"cpu": "2", "memory": "4Gi"}, "allocatable": {"cpu": "1900m", "memory": "4Gi"}},
    }
    return from_dict(data, Node)


NODES = [node("n1", provider_id="x://n1", pool="a"), node("n2", provider_id="x://n2", pool="b"), node("other")]
DEFAULTS = NodeGroupAutoscalingOptions(
    scale_down_utilization_threshold=0.5,
    scale_down_unneeded_time=timedelta(minutes=10),
    max_node_startup_time=timedelta(minutes=15),
)


class Cloud(Provider):
    """What a user's Python program may be."""

    name = "mine"
    gpu_label = "gpu"
    gpu_types = ("nvidia-tesla-t4", "nvidia-l4")

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.refreshed = 0
        self.fails = ""
        self.node_errors: dict[str, str] = {}
        self.instances = ["x://n1", "x://n3", "x://n4"]

    def refresh(self) -> Groups | Sequence[NodeGroup]:
        self.refreshed += 1
        if self.fails:
            raise ProviderError(self.fails)
        groups = self.groups()
        return Groups(groups, self.node_errors) if self.node_errors else groups

    def groups(self) -> list[NodeGroup]:
        return [
            NodeGroup(
                id="a",
                max_size=5,
                min_size=1,
                target_size=3 + len(self.calls),
                nodes=["n1"],
                instances=self.instances,
                instance_status={
                    "x://n3": InstanceStatus(state="creating", error=InstanceError(class_="OutOfResource", code="Q")),
                    "x://n4": InstanceStatus(
                        state="deleting", error=InstanceError(class_="Other", code="X", message="why")
                    ),
                },
                template=NodeTemplate(node=node("template", pool="a")),
                options=NodeGroupOptions(scale_down_utilization_threshold=0.25, scale_down_unneeded_time=1.5),
            ),
            NodeGroup(id="b", node_selector={"pool": "b"}, target_size_error="it is late", template_error="none here"),
        ]

    def increase_size(self, group: str, delta: int, *, atomic: bool = False) -> None:
        if delta > 3:
            raise ProviderError("size increase too large, desired: 9 max: 5")
        self.calls.append(("increase", group, delta))

    def delete_nodes(self, group: str, nodes: Sequence[Node], *, force: bool = False) -> None:
        self.calls.append(("delete", group, [(each.name, each.spec.provider_id) for each in nodes]))


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
def client(cloud: Cloud) -> Iterator[ExternalGroups]:
    with ExternalServer(cloud, "127.0.0.1:0") as server:
        result = ExternalGroups({"address": server.url}, lambda: NODES, defaults=DEFAULTS)
        yield result
        result.close()


def test_clients_implement_the_node_groups_protocol(client: ExternalGroups, cloud: Cloud) -> None:
    assert isinstance(client, NodeGroups)
    assert isinstance(cloud, NodeGroups)
    assert isinstance(StaticGroups([], list), NodeGroups)


def test_groups_survive_the_round_trip_over_grpc(client: ExternalGroups) -> None:
    a, b = client.refresh()
    assert (a.id, a.min_size, a.max_size, a.target_size, a.nodes) == ("a", 1, 5, 3, ["n1"])
    assert a.instances == ["x://n1", "x://n3", "x://n4"]
    assert a.instance_status == {
        "x://n3": InstanceStatus(state="creating", error=InstanceError(class_="OutOfResource", code="Q")),
        "x://n4": InstanceStatus(state="deleting", error=InstanceError(class_="Other", code="X", message="why")),
    }
    assert a.node_template.node.status.allocatable == node("x").status.allocatable
    assert a.node_template.node.metadata.labels == {"pool": "a"}
    assert (b.id, b.nodes, b.target_size_error) == ("b", ["n2"], "rpc error: code = Unknown desc = it is late")
    assert b.template_error == "rpc error: code = Unknown desc = none here"
    assert (b.options, b.options_error) == (None, None)
    assert client.gpu_label == "gpu"
    assert sorted(client.gpu_types) == ["nvidia-l4", "nvidia-tesla-t4"]


def test_group_options_of_the_provider_replace_all_defaults(client: ExternalGroups) -> None:
    """What the wire does not carry becomes zero, whatever the autoscaler's own options are."""
    a, _ = client.refresh()
    assert a.options_or(DEFAULTS) == NodeGroupAutoscalingOptions(
        scale_down_utilization_threshold=0.25, scale_down_unneeded_time=timedelta(seconds=1.5)
    )


def test_changes_and_refusals(client: ExternalGroups, cloud: Cloud) -> None:
    client.increase_size("a", 2)
    client.delete_nodes("a", [NODES[0]])
    assert cloud.calls == [("increase", "a", 2), ("delete", "a", [("n1", "x://n1")])]
    assert next(iter(client.refresh())).target_size == 5
    for refused in (
        lambda: client.decrease_target_size("a", -1),  # of the cloud: its class does not have it
        lambda: client.increase_size("a", 1, atomic=True),
        lambda: client.delete_nodes("a", [NODES[0]], force=True),
        lambda: client.create_group("c"),
        lambda: client.delete_group("a"),
        lambda: client.has_instance(NODES[0]),
    ):
        with pytest.raises(ProviderError, match=r"^Not implemented$"):
            refused()
    with pytest.raises(ProviderError) as result:
        client.increase_size("a", 4)
    assert result.value.message == "rpc error: code = Unknown desc = size increase too large, desired: 9 max: 5"
    assert result.value.type == "cloudProviderError"


def test_failing_refresh_is_a_provider_error(client: ExternalGroups, cloud: Cloud) -> None:
    cloud.fails = "it is down"
    with pytest.raises(ProviderError, match="it is down"):
        client.refresh()


def test_node_with_unknown_group_is_reported_and_others_keep_their_groups(client: ExternalGroups, cloud: Cloud) -> None:
    """The answer is that of a look at the cloud; a loop goes on with it, and takes nothing down of that node."""
    cloud.node_errors = {"n1": "no such machine"}
    result = ask_cloud(client, Refresh())
    assert isinstance(result, Groups)
    assert LEGAL_OUTCOMES[Refresh].fits(Refresh(), result)
    assert result.node_errors == {"n1": "rpc error: code = Unknown desc = no such machine"}
    assert result.ids_of_nodes(["n1", "n2", "other"]) == [None, "b", None]
    cloud.node_errors = {}
    client.refresh()
    again = ask_cloud(client, Refresh())
    assert isinstance(again, list)
    assert [group.nodes for group in again] == [["n1"], ["n2"]]


def test_instances_are_refreshed_after_deleting_an_unregistered_one(cloud: Cloud) -> None:
    with ExternalServer(cloud, "127.0.0.1:0") as server:
        client = ExternalGroups({"address": server.url}, lambda: NODES, cache=NodeInstancesCache(lambda: 0))
        assert [group.instances for group in client.refresh()] == [["x://n1", "x://n3", "x://n4"], []]
        cloud.instances = ["x://n1"]
        client.delete_nodes("a", [NODES[0]])
        assert next(iter(client.refresh())).instances == ["x://n1", "x://n3", "x://n4"]
        client.delete_nodes("a", [Node(metadata=ObjectMeta(name="x://n3"), spec=NodeSpec(provider_id="x://n3"))])
        assert next(iter(client.refresh())).instances == ["x://n1"]
        client.close()


def test_concurrent_requests_are_limited(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server drops what waits in too long a queue: no more than a hundred are under way."""
    nodes = [node(f"n{i}", pool="b") for i in range(250)]
    with ExternalServer(cloud, "127.0.0.1:0") as server:
        client = ExternalGroups({"address": server.url}, lambda: nodes)
        under_way, most = 0, 0
        begin, ended = client._start_call, client._finish_call

        def begun(method: str, **arguments: Any) -> Any:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            return begin(method, **arguments)

        def end(answer: Any) -> Any:
            nonlocal under_way
            under_way -= 1
            return ended(answer)

        monkeypatch.setattr(client, "_start_call", begun)
        monkeypatch.setattr(client, "_finish_call", end)
        _, b = client.refresh()
        assert b.nodes == [each.name for each in nodes if each.name != "n1"]
        assert (most, under_way) == (100, 0)
        client.close()


def test_unregistered_instances_are_requested_despite_the_cache(cloud: Cloud) -> None:
    with ExternalServer(cloud, "127.0.0.1:0") as server:
        client = ExternalGroups({"address": server.url}, lambda: NODES, cache=NodeInstancesCache(lambda: 0))
        cloud.instances = ["x://n1", "x://n3", "x://n4", "x://n5"]

        remembered = cloud.instances

        def list_warnings() -> list[str]:
            group = next(iter(client.refresh()))
            assert group.instances == remembered
            return group.gone_instances

        assert list_warnings() == []
        cloud.instances = []
        assert list_warnings() == ["x://n5"]  # the others are of nodes, or need not register
        cloud.node_errors = {"x://n5": "it is late"}
        result = client.refresh()
        assert isinstance(result, Groups)
        assert next(iter(result)).gone_instances == []
        assert result.node_errors == {"x://n5": "rpc error: code = Unknown desc = it is late"}
        client.close()


def test_instances_of_atomic_groups_are_never_cached() -> None:
    """What was remembered would make a part of the group look like all of it."""

    class Whole(Provider):
        name = "whole"
        error: str | None = None
        running = ("n1",)

        def refresh(self) -> list[NodeGroup]:
            instances = [f"x://{each}" for each in self.running]
            own = {"whole": NodeGroupOptions(zero_or_max_node_scaling=True), "other": NodeGroupOptions()}
            common: dict[str, Any] = {"target_size": 3, "nodes": [*self.running], "instances_error": self.error}
            return [NodeGroup(id=id_, instances=instances, options=of, **common) for id_, of in own.items()]

    cloud = Whole()
    with ExternalServer(cloud, "127.0.0.1:0") as server:
        client = ExternalGroups({"address": server.url}, lambda: NODES, cache=NodeInstancesCache(lambda: 0))

        def list_groups() -> Groups:
            result = client.refresh()
            return Groups.of(result, NODES)

        def judged(groups: Groups) -> tuple[list[str], int]:
            return (
                filter_atomic_groups(
                    ["n1"], groups=groups, options=AutoscalingOptions(), snapshot_nodes=NODES
                ).remaining,
                count_registered_nodes(NODES, groups["whole"]),
            )

        assert judged(list_groups()) == (["n1"], 1)
        cloud.running = ("n1", "n2")
        groups = list_groups()
        assert groups["whole"].instances == ["x://n1", "x://n2"]
        assert groups["other"].instances == ["x://n1"]
        assert judged(groups) == ([], 2)
        cloud.running, cloud.error = ("n1",), "it is late"
        groups = list_groups()
        late = "rpc error: code = Unknown desc = it is late"
        assert {group.id: group.instances_error for group in groups} == {"whole": late, "other": None}
        assert [group.instances for group in groups] == [["x://n1"], ["x://n1"]]
        assert judged(groups) == ([], 0)
        client.close()


def test_messages_are_those_of_the_protocol() -> None:
    """Bytes put together by hand from the numbers in externalgrpc.proto."""
    encoded = message_of("NodeGroupIncreaseSizeRequest")(delta=3, id="small").SerializeToString()
    assert encoded == b"\x08\x03\x12\x05small"
    entry = [{"key": "pool", "value": "a"}]
    sent = message_of("NodeGroupForNodeRequest")(node={"providerID": "p", "name": "n", "labels": entry})
    assert sent.SerializeToString() == b"\n\x11\n\x01p\x12\x01n\x1a\t\n\x04pool\x12\x01a"
    options = message_of("NodeGroupAutoscalingOptions").FromString(
        b"\x09\x00\x00\x00\x00\x00\x00\xe0?B\x03\x08\xd8\x04"
    )
    assert (options.scaleDownUtilizationThreshold, options.scaleDownUnneededDuration.seconds) == (0.5, 600)


def test_mutual_tls(cloud: Cloud, tmp_path: Path) -> None:
    issuer, other = trustme.CA(), trustme.CA()
    issuer.cert_pem.write_to_path(tmp_path / "ca")

    def files(of: trustme.CA, name: str) -> dict[str, str]:
        own = of.issue_cert("localhost")
        own.private_key_pem.write_to_path(tmp_path / f"{name}.key")
        own.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.cert")
        return {
            "cert": str(tmp_path / f"{name}.cert"), "key": str(tmp_path / f"{name}.key"), "cacert": str(tmp_path / "ca")
        }  # fmt: skip

    with ExternalServer(cloud, "localhost:0", **files(issuer, "server")) as server:
        trusted = ExternalGroups({"address": server.url, **files(issuer, "client")}, lambda: NODES)
        assert [group.id for group in trusted.refresh()] == ["a", "b"]
        trusted.close()
        for config in ({}, files(other, "stranger")):
            stranger = ExternalGroups({"address": server.url, "grpc_timeout": "1s", **config}, lambda: NODES)
            with pytest.raises(ProviderError, match="Unavailable"):
                stranger.refresh()
            stranger.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "a map of settings"),
        ("{}", "the address of the provider is missing"),
        ("{address: 'x:1', cert: y}", "cert, key and cacert go together"),
        ("{address: 'x:1', grpc_timeout: soon}", "grpc_timeout"),
        ("{address: 'x:1', adress: y}", "unknown setting"),
        ("{", "malformed YAML"),
        ("[" * 5_000, "c: nested too deeply to be read"),
    ],
)
def test_a_config_that_cannot_be_used(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "c").write_text(text)
    with pytest.raises(InputError, match=message):
        read_config(str(tmp_path / "c"))


def test_a_config(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("{address: '127.0.0.1:8086', grpc_timeout: 2s}")
    assert read_config(str(tmp_path / "c"))["address"] == "127.0.0.1:8086"
    with pytest.raises(InputError, match="c2"):
        read_config(str(tmp_path / "c2"))


def test_a_groups_file_is_sorted_out_over_the_nodes_and_not_changed() -> None:
    cloud = StaticGroups(
        [NodeGroup(id="a", node_selector={"pool": "a"}), NodeGroup(id="b", target_size=4)], lambda: NODES
    )
    a, b = cloud.refresh()
    assert (a.nodes, a.target_size, a.instances, b.target_size) == (["n1"], 1, ["x://n1"], 4)
    with pytest.raises(ProviderError, match="Not implemented"):
        cloud.increase_size("a", 1)


# -- kwok ----------------------------------------------------------------------------------------------------

CONFIG = "readNodesFrom: configmap\nconfigmap: {name: templates}\nnodegroups: {fromNodeLabelKey: pool}\n"
TEMPLATES = """
items:
- metadata:
    name: small
    uid: x
    labels: {pool: a}
    annotations: {cluster-autoscaler.kwok.nodegroup/max-count: "3"}
  status: {allocatable: {cpu: "2", memory: 4Gi, pods: "110"}}
- metadata: {name: small-2, labels: {pool: a}}
- metadata: {name: big, labels: {pool: b}, annotations: {cluster-autoscaler.kwok.nodegroup/name: large}}
"""


class Api(ThreadedApi):
    def configure(self, config: str = CONFIG, templates: str = TEMPLATES) -> None:
        for name, data in (("kwok-provider-config", {"config": config}), ("templates", {"templates": templates})):
            self.server.put("configmaps", {"metadata": {"name": name, "namespace": "ns"}, "data": data})


@pytest.fixture
def api() -> Iterator[Api]:
    result = Api()
    yield result
    result.end()


def test_kwok_groups_grow_and_shrink(api: Api) -> None:
    api.configure()
    cloud = KwokGroups(api.ask, namespace="ns", rng=random.Random(1))
    a, large = cloud.refresh()
    assert (a.id, a.min_size, a.max_size, a.target_size, a.nodes) == ("a", 0, 3, 0, [])
    assert (large.id, large.max_size) == ("large", 200)
    template = a.node_template
    assert template.node.name == "kwok-fake-small"
    assert not template.node.metadata.uid
    assert [(taint.key, taint.effect) for taint in template.node.spec.taints or ()] == [("kwok-provider", "NoSchedule")]
    assert [pod.metadata.labels for pod in template.pods] == [{"component": "kube-proxy", "tier": "node"}]
    assert [pod.key for pod in template.pods] == ["kube-system/kube-proxy-a"]

    cloud.increase_size("a", 2)
    first, second = api.names()
    assert first.startswith("a-")
    assert len(first) == 7
    stored = api.server.get("nodes", first)
    assert stored["spec"]["providerID"] == f"kwok:{first}"
    assert stored["metadata"]["annotations"]["kwok.x-k8s.io/node"] == "fake"
    assert stored["status"]["allocatable"]["cpu"] == "2"
    a, _ = cloud.refresh()
    assert (a.target_size, sorted(a.nodes)) == (2, sorted((first, second)))
    assert sorted(a.instance_ids) == sorted(f"kwok:{name}" for name in (first, second))

    with pytest.raises(ProviderError, match="size increase too large, desired: 4 max: 3"):
        cloud.increase_size("a", 2)
    with pytest.raises(ProviderError, match="existing nodes, targetSize: 2 delta: -1 existingNodes: 2"):
        cloud.decrease_target_size("a", -1)
    deleted_node = from_dict(api.server.get("nodes", first), Node)
    cloud.delete_nodes("a", [deleted_node])
    assert api.names() == [second]
    with pytest.raises(ProviderError, match="because it is not managed by kwok"):
        cloud.delete_nodes("a", [node("n1")])
    cloud.close()
    assert api.names() == []
    with pytest.raises(ProviderError, match="min size reached, nodes will not be deleted"):
        KwokGroups(api.ask, namespace="ns").delete_nodes("large", [deleted_node])


def grown(api: Api, by: int) -> KwokGroups:
    api.configure()
    cloud = KwokGroups(api.ask, namespace="ns", rng=random.Random(1))
    cloud.refresh()
    cloud.increase_size("a", by)
    return cloud


def target(cloud: KwokGroups) -> int:
    return cloud._groups["a"].target


def stored_nodes(api: Api) -> list[Node]:
    return [from_dict(api.server.get("nodes", name), Node) for name in api.names()]


@pytest.mark.parametrize(
    ("delta", "message"), [(1, ""), (-1, "size increase must be positive"), (4, "size increase too large")]
)
def test_kwok_increase_respects_the_maximum(api: Api, delta: int, message: str) -> None:
    """Upstream's table: a target of two, three at most."""
    cloud = grown(api, 2)
    if message:
        with pytest.raises(ProviderError, match=message):
            cloud.increase_size("a", delta)
    else:
        cloud.increase_size("a", delta)
    assert target(cloud) == len(api.names()) == (2 if message else 3)
    for node in stored_nodes(api):
        assert "kwok" in (node.spec.provider_id or "")
        assert "a" in node.name
        path = (node.metadata.annotations or {})["metrics.k8s.io/resource-metrics-path"]
        assert path.endswith(f"{node.name}/metrics/resource")


@pytest.mark.parametrize(
    ("size", "count", "strange", "message"),
    [
        (1, 1, False, ""),
        (0, 1, False, "min size reached, nodes will not be deleted"),
        (1, 2, False, "size would go below min size"),
        (1, 1, True, "is not managed by kwok"),
    ],
)
def test_kwok_delete_nodes_validates_its_nodes(api: Api, size: int, count: int, strange: bool, message: str) -> None:
    """Upstream's table: none at least."""
    cloud = grown(api, size) if size else grown(api, 1)
    (one,) = stored_nodes(api)
    if not size:
        cloud.delete_nodes("a", [one])
    if strange:
        one.metadata.annotations = {}
    if message:
        with pytest.raises(ProviderError, match=message):
            cloud.delete_nodes("a", [one] * count)
    else:
        cloud.delete_nodes("a", [one] * count)
    assert target(cloud) == len(api.names()) == (size if message else 0)


@pytest.mark.parametrize(
    ("delta", "down", "message", "remaining"),
    [
        (-1, False, "", 2),
        (1, False, "size decrease must be negative", 3),
        (-2, False, "attempt to delete existing nodes", 3),
        (-1, True, "couldn't list nodes", 3),
    ],
)
def test_kwok_decrease_respects_existing_nodes(api: Api, delta: int, down: bool, message: str, remaining: int) -> None:
    """Upstream's table: a target of three, two nodes."""
    cloud = grown(api, 3)
    api.ask(Delete(kind="Node", api_version="v1", name=api.names()[0]))
    if down:
        cloud._ask = lambda action: Outcome(at=0, error=ApiError("the lister is down"))
    if message:
        with pytest.raises(ProviderError, match=message) as refused:
            cloud.decrease_target_size("a", delta)
        assert not down or "the lister is down" in str(refused.value)
    else:
        cloud.decrease_target_size("a", delta)
    assert target(cloud) == remaining


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("[" * 5_000, "the kwok provider's config: nested too deeply to be read"),
        ("readNodesFrom: x", r"\(expected: 'label' or 'annotation'\): x"),
        ("readNodesFrom: configmap", "please specify a value for 'configmap' in kwok config"),
        ("{readNodesFrom: configmap, configmap: {key: x}}", "please specify 'configmap.name' in kwok config"),
        ("readNodesFrom: cluster", "please specify a value for 'nodegroups'"),
        ("{readNodesFrom: cluster, nodegroups: {x: y}}", "currently empty or undefined"),
        (
            "{readNodesFrom: cluster, nodegroups: {fromNodeLabelKey: y, fromNodeAnnotationKey: z}}",
            r"\(you can't use both\)",
        ),
        (
            "{readNodesFrom: cluster, nodegroups: {fromNodeLabelKey: y}, nodes: {gpuConfig: {gpuLabelKey: z}}}",
            "nodes.gpuConfig.gpuLabelKey or file.nodes.gpuConfig.availableGPUTypes is empty",
        ),
    ],
)
def test_a_kwok_config_that_cannot_be_used(config: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_kwok_config(config)


def test_gpu_types_of_kwok_are_a_map() -> None:
    gpu = "{gpuConfig: {gpuLabelKey: z, availableGPUTypes: 5}}"
    with pytest.raises(InputError, match="a map of settings is expected in 'availableGPUTypes' of kwok config"):
        read_kwok_config(f"{{readNodesFrom: cluster, nodegroups: {{fromNodeLabelKey: y}}, nodes: {gpu}}}")


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"min-count": "one"}, "'one' is not an integer"),
        ({"min-count": "3", "max-count": "2", "desired-count": "2"}, "max-count 2 is less than min-count 3"),
        ({"min-count": "1"}, "desired-count 0 is not between 1 and 200"),
    ],
)
def test_templates_that_cannot_be_used(annotations: dict[str, str], message: str) -> None:
    hints = {f"cluster-autoscaler.kwok.nodegroup/{key}": value for key, value in annotations.items()}
    template = from_dict({"metadata": {"name": "t", "labels": {"pool": "a"}, "annotations": hints}}, Node)
    with pytest.raises(InputError, match=message):
        groups_of([template], read_kwok_config(CONFIG))


def test_templates_of_no_group_and_no_templates(api: Api) -> None:
    with pytest.raises(InputError, match="no list of nodes"):
        read_nodes("x: y")
    with pytest.raises(InputError, match="the templates of the kwok provider: line 2, column 1: malformed YAML"):
        read_nodes("{")
    (result,) = read_nodes("items: [{metadata: {name: a, creationTimestamp: 2026-02-30T00:00:00Z}}]")
    assert result.metadata.creation_timestamp == "2026-02-30T00:00:00Z"
    with pytest.raises(InputError, match="belongs to no group"):
        groups_of([node("n")], read_kwok_config(CONFIG))
    with pytest.raises(InputError, match="ConfigMap ns/kwok-provider-config"):
        KwokGroups(api.ask, namespace="ns")
    api.configure(config="")
    with pytest.raises(InputError, match="has no key config"):
        KwokGroups(api.ask, namespace="ns")


def test_client_cleanup_closes_the_provider_behind_the_server() -> None:
    cloud = Rack()
    with ExternalServer(cloud, "127.0.0.1:0") as server:
        client = ExternalGroups({"address": server.url}, nodes=list)
        assert cloud.closed == 0
        client.close()
    assert cloud.closed == 1


def test_client_may_connect_again_after_cleanup(cloud: Cloud) -> None:
    with ExternalServer(cloud, "127.0.0.1:0") as far:
        behind = ExternalGroups({"address": far.url}, lambda: NODES)
        with ExternalServer(behind, "127.0.0.1:0") as server:
            for _ in range(2):
                client = ExternalGroups({"address": server.url}, lambda: NODES)
                assert [group.id for group in client.refresh()] == ["a", "b"]
                client.close()
        behind.close()


def test_disconnected_client_sends_no_requests(cloud: Cloud) -> None:
    """Also a refresh that was under way in another thread, which would open a connection that nobody ends."""
    with ExternalServer(cloud, "127.0.0.1:0") as server:
        client = ExternalGroups({"address": server.url}, lambda: NODES)
        assert [group.id for group in client.refresh()] == ["a", "b"]
        client.disconnect()
        with pytest.raises(ProviderError, match="has been ended"):
            client.refresh()


class Rack(Provider):
    """Nothing but an end."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_the_gpu_types_of_kwok_are_those_of_its_config() -> None:
    settings = "{readNodesFrom: cluster, nodegroups: {fromNodeLabelKey: y}, nodes: {gpuConfig: {gpuLabelKey: z, "
    config = read_kwok_config(settings + "availableGPUTypes: {nvidia-tesla-k80: {}, nvidia-tesla-p100: {}}}}}")
    assert (config.gpu_label, config.gpu_types) == ("z", ("nvidia-tesla-k80", "nvidia-tesla-p100"))


# -- groups of a file whose sizes are written to another --------------------------------------------------------------


def static(tmp_path: Path, nodes: list[Node]) -> StaticGroups:
    groups = [
        NodeGroup(id="a", min_size=1, max_size=4, node_selector={"pool": "a"}, template=NodeTemplate(node=node("t"))),
        NodeGroup(id="new", max_size=3, exists=False, template=NodeTemplate(node=node("t"))),
    ]
    return StaticGroups(groups, lambda: nodes, sizes=tmp_path / "sizes.json")


def sizes(tmp_path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((tmp_path / "sizes.json").read_text())
    return read


def test_sizes_of_static_groups_are_written_and_read_back(tmp_path: Path) -> None:
    nodes = [node("n1", pool="a"), node("n2", pool="a")]
    cloud = static(tmp_path, nodes)
    assert [group.size for group in cloud.refresh()] == [2, 0]
    cloud.increase_size("a", 2)
    assert sizes(tmp_path) == {"a": {"target": 4}}
    assert [group.size for group in static(tmp_path, nodes).refresh()] == [4, 0]
    cloud.decrease_target_size("a", -1)
    cloud.delete_nodes("a", [nodes[1], node("lost", provider_id="lost")])
    assert sizes(tmp_path) == {"a": {"target": 1, "delete": ["n2", "lost"]}}
    nodes.pop()
    cloud.refresh()
    assert sizes(tmp_path) == {"a": {"target": 1}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda cloud: cloud.increase_size("a", 3), "size increase too large, desired: 5 max: 4"),
        (lambda cloud: cloud.increase_size("b", 1), "there is no node group b"),
        (lambda cloud: cloud.decrease_target_size("a", -1), "attempt to delete existing nodes targetSize: 2 delta: -1"),
        (lambda cloud: cloud.delete_nodes("a", NODES[:2]), "min size reached, nodes will not be deleted from a"),
    ],
)
def test_refused_changes_of_static_groups_write_nothing(tmp_path: Path, change: Any, message: str) -> None:
    cloud = static(tmp_path, [node("n1", pool="a"), node("n2", pool="a")])
    with pytest.raises(ProviderError, match=message):
        change(cloud)
    assert not (tmp_path / "sizes.json").exists()


def test_static_groups_are_created_and_deleted(tmp_path: Path) -> None:
    cloud = static(tmp_path, [])
    (created,) = cloud.create_group("new")
    assert (created.exists, created.autoprovisioned, created.size) == (True, True, 0)
    cloud.delete_group("new")
    assert sizes(tmp_path) == {"new": {"target": 0, "exists": False}}
    assert [group.exists for group in cloud.refresh()] == [True, False]


@pytest.mark.parametrize("text", ["{", '{"a": {"target": "3"}}', '{"a": {"size": 3}}', "[]"])
def test_a_file_of_sizes_that_cannot_be_read_is_the_clouds_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "sizes.json").write_text(text)
    with pytest.raises(ProviderError, match=r"sizes\.json: "):
        static(tmp_path, []).refresh()


@pytest.mark.parametrize(
    "change",
    [
        lambda cloud: cloud.increase_size("a", 1),
        lambda cloud: cloud.decrease_target_size("a", -1),
        lambda cloud: cloud.delete_nodes("a", [node("n1")]),
        lambda cloud: cloud.create_group("new"),
        lambda cloud: cloud.delete_group("new"),
        lambda cloud: cloud.refresh(),  # takes out the node that has gone
    ],
)
def test_sizes_of_static_groups_on_a_full_disk(tmp_path: Path, change: Callable[[StaticGroups], object]) -> None:
    """The change is the cloud's error, the old sizes stay, and the same change works once there is room."""
    nodes = [node("n1", pool="a"), node("n2", pool="a")]
    path = tmp_path / "sizes.json"
    old = '{"a": {"target": 3, "delete": ["gone"]}}'
    path.write_text(old)
    with files_of_at_most(10), pytest.raises(ProviderError) as caught:
        change(static(tmp_path, nodes))
    assert (str(caught.value), caught.value.type) == (f"{path}: File too large", CLOUD_ERROR)
    assert (path.read_text(), os.listdir(tmp_path)) == (old, ["sizes.json"])
    change(static(tmp_path, nodes))
    assert sizes(tmp_path) != json.loads(old)
    assert os.listdir(tmp_path) == ["sizes.json"]


def test_static_groups_without_a_file_of_sizes_cannot_be_changed() -> None:
    with pytest.raises(ProviderError, match="Not implemented"):
        StaticGroups([NodeGroup(id="a", node_selector={"x": "y"})], list).increase_size("a", 1)


@pytest.mark.parametrize(
    ("targets", "remaining"),
    [
        ([1, 2**31 - 1, 2], [0, 2]),
        ([60_000, 50_000, 40_000], [1, 2]),
        ([100_000], [0]),
        ([100_001], []),
        ([-(2**31), None, 99_999], [0, 1, 2]),
    ],
)
@pytest.mark.parametrize("shape", [list, Groups])
def test_groups_whose_target_sizes_are_impossible_are_left_out(
    targets: list[int | None], remaining: list[int], shape: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A loop would simulate two billion nodes that the cloud promises."""

    class Cloud(Provider):
        def refresh(self) -> Any:
            return shape([NodeGroup(id=f"g{i}", target_size=target) for i, target in enumerate(targets)])

    refreshed = ask_cloud(Cloud(), Refresh())
    assert [group.id for group in refreshed] == [f"g{i}" for i in remaining]
    for i in {*range(len(targets))} - {*remaining}:
        assert f"node group g{i} is left out: its target size is {targets[i]}" in caplog.text


def test_kwok_counts_the_watched_nodes_once_they_show_its_own_changes(api: Api) -> None:
    """As upstream's provider, which has a lister of nodes. What the watch does not show yet is requested."""
    api.configure()
    watched: list[Node] = []
    cloud = KwokGroups(api.ask, namespace="ns", rng=random.Random(1), watched=lambda: watched)

    def local() -> int | None:
        groups = cloud.refresh_locally()
        return None if groups is None else groups[0].target_size

    assert local() is None  # nothing is watched yet
    cloud.increase_size("a", 2)
    assert local() is None
    assert cloud.refresh()[0].target_size == 2
    first, second = stored_nodes(api)
    watched[:] = [first]
    assert local() is None
    watched[:] = [first, second]
    assert local() == 2
    watched[:] = [first]  # somebody else has deleted the other one
    assert local() == 1
    watched[:] = [first, second]
    cloud.delete_nodes("a", [first])
    assert local() is None
    watched[:] = [second]
    assert local() == 1


def test_kwok_does_not_wait_for_nodes_that_were_refused(api: Api) -> None:
    cloud = grown(api, 1)
    (own,) = stored_nodes(api)
    cloud._watched = lambda: [own]
    cloud._changed["refused"] = True
    assert cloud.refresh_locally() is None
    cloud.refresh()
    assert cloud.refresh_locally() is not None
