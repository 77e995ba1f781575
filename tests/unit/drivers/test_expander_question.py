"""What a whole loop of scale-up asks an expander server: objects as they were read, as upstream has them by then."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

import kscale
from kscale import ca
from kscale.capacity.groups import groups_from
from kscale.drivers.grpc_expander import Request, without_environment
from kscale.effects import Ranking, RankOptions
from kscale.objects.api.core import Node
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.protobuf.conversion import encode
from unit.drivers.expander_server import MESSAGES

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
_TOKEN = {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}


def _pod(name: str, owner: str = "", labels: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {
        "name": "c",
        "image": "web:1",
        "imagePullPolicy": "Always",
        "env": [{"name": "SECRET", "value": "s"}],
        "resources": {"requests": {"cpu": "2000m"}},
        "volumeMounts": [{"name": "token", "mountPath": "/t"}, {"name": "tmp", "mountPath": "/tmp"}],
    }
    metadata: dict[str, Any] = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "labels": labels or {"a": "b"}}
    metadata["managedFields"] = [{"manager": "kubectl"}]
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
        ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "containers": [container],
            "initContainers": [{**container, "name": "init", "resources": {}}],
            "volumes": [_TOKEN, {"name": "tmp", "emptyDir": {}}],
            "dnsPolicy": "ClusterFirst",
            "securityContext": {"fsGroup": 7},
            **spec,
        },
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        },
    }


def _node(name: str, **status: Any) -> dict[str, Any]:
    amounts = {"cpu": "1", "memory": "8Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-05-01T00:00:00Z"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name},
        "spec": {"providerID": f"p:///{name}", "podCIDRs": ["10.0.0.0/24"]},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready], **status},
    }


_AMOUNTS = {"cpu": "4", "memory": "8Gi", "pods": "110"}
GROUPS = groups_from([
    {"id": name, "max": 10, "template": {"status": {"capacity": _AMOUNTS, "allocatable": _AMOUNTS}}} for name in "ab"
])  # fmt: skip


def _sent_requests(cluster: kscale.Cluster, groups: Any = GROUPS, **more: Any) -> list[Any]:
    """The requests of one loop, as a server reads them."""
    requests: list[Any] = []

    def rank(question: RankOptions) -> Ranking:
        request = Request(question)
        assert request.warnings == ()
        requests.append(MESSAGES["BestOptionsRequest"].FromString(request.data))
        return Ranking(groups=("b",))

    options = ca.AutoscalingOptions(expander="grpc", **more.pop("options", {}))
    inputs = ca.LoopInputs(**more)
    plan = kscale.scale_up(cluster, groups, now=NOW, options=options, rank=rank, inputs=inputs)
    assert {plan.chosen} <= {"b", None}
    return requests


def _sent(*pods: Mapping[str, Any]) -> set[bytes]:
    return {encode("Pod", pod).data for pod in pods}


@pytest.mark.parametrize("form", ["dicts", "file", "bytes"])
def test_pods_are_sent_with_all_that_they_were_read_with(form: str, tmp_path: Any) -> None:
    pods = [_pod("lone"), _pod("other")]
    text = json.dumps({"kind": "List", "apiVersion": "v1", "items": pods}).encode()
    (tmp_path / "dump.json").write_bytes(text)
    cluster = {
        "dicts": lambda: kscale.Cluster(pods),
        "file": lambda: kscale.load(tmp_path / "dump.json"),
        "bytes": lambda: kscale.load(text),
    }[form]()
    (request,) = _sent_requests(cluster)
    assert [option.nodeGroupId for option in request.options] == ["a", "b"]
    for option in request.options:
        assert set(option.podBytes) == _sent(*pods)  # no controller: nothing was compared, nothing is stripped


def test_pods_that_upstream_compares_are_sent_without_environment() -> None:
    """Replicas lose theirs; a controller's only pod, one of other labels, and pods without controller keep it."""
    replicas = [_pod(f"web-{i}", "rs-web") for i in range(3)]
    shaped = [_pod("mix-0", "rs-mix"), _pod("mix-1", "rs-mix", dnsPolicy="Default")]
    unchanged = [_pod("one", "rs-one"), _pod("lone"), _pod("mix-2", "rs-mix", {"a": "c"})]
    (request,) = _sent_requests(kscale.Cluster([*replicas, *shaped, *unchanged]))
    stripped = [without_environment(pod) for pod in (*replicas, *shaped)]
    assert set(request.options[0].podBytes) == _sent(*stripped, *unchanged)
    for pod in stripped:
        for container in (*pod["spec"]["containers"], *pod["spec"]["initContainers"]):
            assert "env" not in container
            assert [mount["name"] for mount in container["volumeMounts"]] == ["tmp"]
        assert len(pod["spec"]["volumes"]) == 2


def test_the_eleventh_shape_of_a_controller_is_compared_too() -> None:
    pods = [_pod(f"p-{i}", "rs", hostname=f"h{i}", subdomain=f"s{i}") for i in range(12)]
    (request,) = _sent_requests(kscale.Cluster(pods))
    assert set(request.options[0].podBytes) == _sent(*map(without_environment, pods))


def test_pods_are_sent_as_the_list_processors_made_them() -> None:
    """TPU requests are cleared, pods of drained nodes have no node; the rest of their data stays."""
    tpu = _pod("tpu")
    tpu["spec"]["containers"][0]["resources"]["requests"]["cloud-tpus.google.com/v2"] = 8
    moving = _pod("moving", "rs", nodeName="n")
    (request,) = _sent_requests(kscale.Cluster([_node("n"), tpu, moving, _pod("lone")]), draining=["n"])
    del tpu["spec"]["containers"][0]["resources"]["requests"]["cloud-tpus.google.com/v2"]
    del moving["spec"]["nodeName"]
    assert set(request.options[0].podBytes) == _sent(tpu, moving, _pod("lone"))


def _small_and_large() -> list[Any]:
    """A group that takes the small pod, and one that takes both."""
    amounts = {"b": _AMOUNTS, "c": {"cpu": "8", "memory": "8Gi", "pods": "110"}}
    return groups_from(
        [
            {"id": name, "max": 10, "template": {"status": {"capacity": each, "allocatable": each}}}
            for name, each in amounts.items()
        ]
    )


def test_every_salvo_round_sends_complete_pods() -> None:
    pods = [_pod("small"), _pod("large")]
    pods[1]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "6"
    groups = _small_and_large()
    first, second = _sent_requests(kscale.Cluster(pods), groups, options={"salvo_scale_up": True})
    assert [set(option.podBytes) for option in first.options] == [_sent(pods[0]), _sent(*pods)]
    assert [set(option.podBytes) for option in second.options] == [_sent(pods[1])]


def test_stripped_pods_stay_stripped_in_later_rounds() -> None:
    pods = [_pod("small", "rs"), _pod("large", "rs")]
    pods[1]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "6"
    groups = _small_and_large()
    _, second = _sent_requests(kscale.Cluster(pods), groups, options={"salvo_scale_up": True})
    assert set(second.options[0].podBytes) == _sent(without_environment(pods[1]))


def test_template_nodes_are_those_of_every_group() -> None:
    status = {
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "features": {"supplementalGroupsPolicy": True},
        "runtimeHandlers": [{"name": "", "features": {"userNamespaces": True}}],
        "volumesInUse": ["v"],
        "volumesAttached": [{"name": "v", "devicePath": "/dev/x"}],
    }
    real = _node("n", **status)
    groups = groups_from([
        {"id": "a", "max": 10, "nodes": ["n"]},
        {"id": "b", "max": 10, "template": {"status": {"capacity": _AMOUNTS, "allocatable": _AMOUNTS}}},
        {"id": "full", "max": 0, "template": {"status": {"capacity": _AMOUNTS, "allocatable": _AMOUNTS}}},
    ])  # fmt: skip
    (request,) = _sent_requests(kscale.Cluster([real, _pod("lone")]), groups)
    assert sorted(request.nodeBytesMap) == ["a", "b", "full"]
    name = "template-node-for-a-0"
    labels = {"kubernetes.io/hostname": name, "cluster-autoscaler.kubernetes.io/template-node": "true"}
    want = {**real, "metadata": {"name": name, "uid": name, "labels": labels}}
    assert request.nodeBytesMap["a"] == encode("Node", want).data


def test_encoding_a_node_is_lossless() -> None:
    real = _node("n", images=[{"names": ["web:1"], "sizeBytes": 5}])
    node = from_dict(real, Node)
    assert encode("Node", to_dict(node)).data == encode("Node", real).data


def test_missing_server_keeps_every_option() -> None:
    plan = kscale.scale_up(kscale.Cluster([_pod("p")]), GROUPS, now=NOW, options=ca.AutoscalingOptions(expander="grpc"))
    assert plan.chosen == "a"
    assert plan.warnings == ["Incorrect gRPC client config, filtering no options"]


def test_members_that_the_api_does_not_have_are_named() -> None:
    pods = [_pod("p", vendor={"x": 1}), _pod("q", vendor={"x": 2})]

    def rank(question: RankOptions) -> Ranking:
        return Ranking(groups=("b",), warnings=Request(question).warnings)

    options = ca.AutoscalingOptions(expander="grpc")
    result = kscale.scale_up(kscale.Cluster(pods), GROUPS, now=NOW, options=options, rank=rank).warnings
    assert result == ["spec.vendor of 2 Pods is not in the API and not sent to the expander server"]
