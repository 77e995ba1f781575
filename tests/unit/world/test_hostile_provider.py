"""A provider of node groups behind gRPC that answers with anything: loops go on with what can be used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

import kscale
from kscale.effects import SECOND
from kscale.objects.api.core import Node
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.nodegroup import ProviderError
from kscale.world.nodegroups.external import ExternalGroups, message_of

grpc = pytest.importorskip("grpc", reason="the extra [grpc] is not installed")


class HostileProvider(grpc.GenericRpcHandler):
    """Answers calls with bytes or functions: ``odd`` by method, else as a provider with one group and one node."""

    def __init__(self, odd: dict[str, Any]) -> None:
        self.odd = {**ORDINARY, **odd}

    def service(self, call: Any) -> Any:
        answer = self.odd.get(call.method.rpartition("/")[2], b"")
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: answer(request, context) if callable(answer) else answer
        )


def sent(message: str, **fields: Any) -> bytes:
    data: bytes = message_of(f"{message}Response")(**fields).SerializeToString()
    return data


def groups_sent(*groups: dict[str, Any]) -> bytes:
    return sent("NodeGroups", nodeGroups=groups)


GROUP = {"id": "g", "minSize": 0, "maxSize": 5}
ORDINARY: dict[str, Any] = {
    "NodeGroups": groups_sent(GROUP),
    "NodeGroupTargetSize": sent("NodeGroupTargetSize", targetSize=1),
    "NodeGroupForNode": sent("NodeGroupForNode", nodeGroup={"id": "g"}),
    "NodeGroupNodes": sent("NodeGroupNodes", instances=[{"id": "i1", "status": {"instanceState": 1}}]),
}
BAD_TEXT = b"\x0a\x04\x0a\x02\xff\xfe"
"""A message in field 1 whose field 1 is no UTF-8."""
LONG_TIMES = {
    "scaleDownUnneededDuration": {"seconds": 2**63 - 1, "nanos": 2**31 - 1},
    "MaxNodeProvisionDuration": {"seconds": -(2**63), "nanos": -(2**31)}, "scaleDownUtilizationThreshold": float("nan"),
}  # fmt: skip
UNREADABLE = "Exception deserializing response!"
HOSTILE: dict[str, tuple[dict[str, Any], list[str], str]] = {
    "an ordinary one": ({}, ["g"], ""),
    "noise for groups": ({"NodeGroups": bytes(range(256))}, [], UNREADABLE),
    "groups cut off": ({"NodeGroups": b"\x0a\xff\x01a"}, [], UNREADABLE),
    "an id that is no UTF-8": ({"NodeGroups": BAD_TEXT}, [], UNREADABLE),
    "a wrong wire type": ({"NodeGroups": b"\x0d\x01\x02\x03\x04"}, [], ""),
    "negative sizes": (
        {"NodeGroups": groups_sent({"id": "a", "minSize": -3, "maxSize": -1}, GROUP)}, ["g"], "-3 to -1",
    ),
    "a minimum above the maximum": (
        {"NodeGroups": groups_sent({"id": "a", "minSize": 9, "maxSize": 1}, GROUP)}, ["g"], "9 to 1 exclude",
    ),
    "one id twice": ({"NodeGroups": groups_sent(GROUP, GROUP)}, ["g"], "two node groups have the id g"),
    "an empty id": ({"NodeGroups": groups_sent({"id": "", "maxSize": 5}, GROUP)}, ["", "g"], ""),
    "a huge id": (
        {"NodeGroups": groups_sent({"id": "a" * (3 << 20)}, {"id": "b" * 4096}, GROUP)}, ["b" * 4096, "g"],
        "left out: its id has more than 4,096 characters",
    ),
    "groups without end": (
        {"NodeGroups": groups_sent(*({"id": f"g{i}"} for i in range(10_001)))}, [], "more than 10,000 node groups",
    ),
    "a message that is too large": (
        {"NodeGroups": groups_sent({"id": "a" * (4 << 20), "minSize": 2}, GROUP)}, [], "larger than max",
    ),
    "a negative target": ({"NodeGroupTargetSize": sent("NodeGroupTargetSize", targetSize=-5)}, ["g"], ""),
    "the largest target": ({"NodeGroupTargetSize": sent("NodeGroupTargetSize", targetSize=2**31 - 1)}, ["g"], ""),
    "noise for a target": ({"NodeGroupTargetSize": b"\xff"}, ["g"], ""),
    "an instance twice": ({"NodeGroupNodes": sent("NodeGroupNodes", instances=[{"id": "i1"}] * 3)}, ["g"], ""),
    "odd instances": (
        {"NodeGroupNodes": sent("NodeGroupNodes", instances=[{}, {"id": "b", "status": {"instanceState": 77}}])},
        ["g"], "",
    ),
    "long errors": (
        {"NodeGroupNodes": sent("NodeGroupNodes", instances=[{"id": "b", "status": {"instanceState": 2, "errorInfo": {
            "errorCode": "x" * 10**5, "errorMessage": "y" * 10**6, "instanceErrorClass": -7}}}])},
        ["g"], "",
    ),
    "a template of noise": (
        {"NodeGroupTemplateNodeInfo": sent("NodeGroupTemplateNodeInfo", nodeBytes=b"k8s\0" + b"\xff" * 100)},
        ["g"], "",
    ),
    "a template that is no UTF-8": (
        {"NodeGroupTemplateNodeInfo": sent("NodeGroupTemplateNodeInfo", nodeBytes=BAD_TEXT)}, ["g"], "",
    ),
    "times without end": (
        {"NodeGroupGetOptions": sent("NodeGroupGetOptions", nodeGroupAutoscalingOptions=LONG_TIMES)}, ["g"], "",
    ),
    "noise for homes": ({"NodeGroupForNode": b"\xff\xff"}, ["g"], UNREADABLE),
    "homes that are no UTF-8": ({"NodeGroupForNode": BAD_TEXT}, ["g"], UNREADABLE),
    "a home with a huge id": (
        {"NodeGroupForNode": sent("NodeGroupForNode", nodeGroup={"id": "x" * 4097})}, ["g"],
        "Failed to find node group for n1: the id of its node group has more than 4,096 characters",
    ),
    "a home that is no group": ({"NodeGroupForNode": sent("NodeGroupForNode", nodeGroup={"id": "x"})}, ["g"], ""),
}  # fmt: skip


@pytest.mark.parametrize(("odd", "ids", "message"), HOSTILE.values(), ids=HOSTILE)
def test_invalid_provider_answers_are_reported(
    odd: dict[str, Any], ids: list[str], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A loop goes on with the groups that can be used."""
    node = from_dict({"metadata": {"name": "n1"}, "spec": {"providerID": "i1"}}, Node)
    with hostile_client(odd, lambda: [node]) as client:
        groups = client.refresh()
    assert [each.id for each in groups] == ids
    assert message in caplog.text
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "1", "pods": "9"}}
    cluster = kscale.load([{"kind": "Node", "apiVersion": "v1", **to_dict(node), "status": ready}])
    kscale.ca.run_once(cluster, groups, now=1_800_000_000 * SECOND)


@pytest.mark.parametrize("method", ["Refresh", "NodeGroupNodes"])
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"\xff", UNREADABLE),
        (lambda _request, context: context.abort(grpc.StatusCode.UNIMPLEMENTED, "x"), "Not implemented"),
        (lambda _request, context: context.abort(grpc.StatusCode.INTERNAL, "x" * 1000), "code = Internal"),
        (lambda _request, context: over.wait(60) and b"", "DeadlineExceeded"),
    ],
)
def test_failing_provider_methods_fail_the_loop(method: str, answer: Any, message: str) -> None:
    """Such a loop ends with the error of the cloud, and the next one looks again."""
    over.clear()
    with hostile_client({method: answer}, list) as client:
        with pytest.raises(ProviderError, match=message):
            client.refresh()
        over.set()


def test_texts_of_a_provider_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Each ID would be copied into nodes, requests and messages."""
    error = {"errorCode": "x" * 10**5, "errorMessage": "y" * 10**6, "instanceErrorClass": 1}
    instances = [{"id": "i1"}, {"id": "i2", "status": {"instanceState": 2, "errorInfo": error}}]
    odd: dict[str, Any] = {"NodeGroupNodes": sent("NodeGroupNodes", instances=instances)}
    with hostile_client(odd, list) as client:
        (group,) = client.refresh()
    status = group.instance_status["i2"].error
    assert (len(status.code), len(status.message)) == (4096 + len("... (100,000 characters)"), 4096 + 26)
    odd = {
        "NodeGroupNodes": sent("NodeGroupNodes", instances=[{"id": "a" * 10**6}]),
        "GPULabel": sent("GPULabel", label="b" * 10**6),
        "GetAvailableGPUTypes": sent("GetAvailableGPUTypes", gpuTypes=[{"key": "c" * 10**6, "value": {}}]),
    }
    with hostile_client(odd, list) as client:
        with pytest.raises(ProviderError, match=r"^the id of an instance has more than 4,096 characters: a{80}\.\.\. "):
            client.refresh()
        assert (client.gpu_label, [*client.gpu_types]) == ("", [])
    assert [record.getMessage().partition(" has ")[0] for record in caplog.records] == [
        "the label of GPUs: the label", "the types of GPUs: a type",
    ]  # fmt: skip


def test_endless_instances_fail_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group has few, but there are many groups."""
    monkeypatch.setattr("kscale.world.nodegroups.external.MOST_NODES", 10)
    instances = sent("NodeGroupNodes", instances=[{"id": f"i{i}"} for i in range(6)])
    groups = groups_sent(GROUP, {**GROUP, "id": "h"})
    with hostile_client({"NodeGroups": groups, "NodeGroupNodes": instances}, list) as client:
        for _ in range(2):  # they are counted anew in each loop
            with pytest.raises(ProviderError, match="the provider has more than 10 instances"):
                client.refresh()
        monkeypatch.setattr("kscale.world.nodegroups.external.MOST_NODES", 12)
        assert len(client.refresh()) == 2


@pytest.mark.parametrize("method", ["NodeGroupNodes", "NodeGroupTemplateNodeInfo", "NodeGroupForNode"])
def test_responses_that_are_too_large_together_fail_a_loop(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No response alone exceeds the limit of a message."""
    monkeypatch.setattr("kscale.world.nodegroups.external.LOOP_BYTES", 10_000)
    groups = groups_sent(*({**GROUP, "id": f"g{i}"} for i in range(5)))
    nodes = [from_dict({"metadata": {"name": f"n{i}"}, "spec": {"providerID": f"i{i}"}}, Node) for i in range(5)]
    padding = b"\xfa\x7f\xb8\x17" + b"a" * 3000  # field 2047, which is not known
    with hostile_client({"NodeGroups": groups, method: ORDINARY.get(method, b"") + padding}, lambda: nodes) as client:
        for _ in range(2):
            with pytest.raises(ProviderError, match="more than 10,000 bytes in a loop"):
                client.refresh()
        monkeypatch.setattr("kscale.world.nodegroups.external.LOOP_BYTES", 20_000)
        assert len(client.refresh()) == 5


def test_late_responses_do_not_count_in_the_next_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that fails cancels its remaining requests."""
    nodes = [from_dict({"metadata": {"name": f"n{i}"}, "spec": {"providerID": f"i{i}"}}, Node) for i in range(5)]
    home: bytes = ORDINARY["NodeGroupForNode"] + b"\xfa\x7f\xb8\x17" + b"a" * 3000  # field 2047, which is not known
    arrived, over, late = threading.Barrier(len(nodes)), threading.Event(), threading.Semaphore(0)

    def find_home(request: bytes, context: Any) -> bytes:
        if not over.is_set():
            context.add_callback(late.release)
            arrived.wait(60)
            if b"n0" not in request:
                over.wait(60)
        return home

    def refresh_cloud(_request: bytes, _context: Any) -> bytes:
        if next(refreshes):
            over.set()
            for _ in nodes:
                assert late.acquire(timeout=60)
        return b""

    refreshes = count()
    with hostile_client({"NodeGroupForNode": find_home, "Refresh": refresh_cloud}, lambda: nodes) as client:
        client._timeout = 60.0
        monkeypatch.setattr("kscale.world.nodegroups.external.LOOP_BYTES", 2_000)
        with pytest.raises(ProviderError) as error:
            client.refresh()
        monkeypatch.setattr("kscale.world.nodegroups.external.LOOP_BYTES", 16_000)
        assert len(client.refresh()) == 1
        assert "more than 2,000 bytes in a loop" in error.value.message  # whose traceback holds the remaining requests


over = threading.Event()


@contextmanager
def hostile_client(odd: dict[str, Any], nodes: Callable[[], list[Node]]) -> Iterator[ExternalGroups]:
    server = grpc.server(
        ThreadPoolExecutor(8),
        handlers=[HostileProvider(odd)],
        options=[(f"grpc.max_{way}_message_length", -1) for way in ("send", "receive")],
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    hangs = any(answer is not None and callable(answer) for answer in odd.values())
    config = {"address": f"127.0.0.1:{port}", "cert": "", "grpc_timeout": "500ms" if hangs else "60s"}
    client = ExternalGroups(config, nodes)
    try:
        yield client
    finally:
        client.disconnect()
        server.stop(None).wait()
