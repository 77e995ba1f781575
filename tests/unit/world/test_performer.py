"""How actions are carried out: against the fake API server in virtual time, with a cloud that refuses."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from kscale.drivers.driver import format_action
from kscale.effects import (
    SECOND,
    Action,
    ApiError,
    Create,
    CreatedGroups,
    CreateGroup,
    DecreaseTargetSize,
    Delete,
    DeleteGroup,
    DeleteNodes,
    Emit,
    Event,
    Evict,
    Get,
    GetMetric,
    GetPrices,
    GetScale,
    HasInstances,
    IncreaseSize,
    List,
    Observation,
    Observe,
    Outcome,
    Patch,
    PatchOperation,
    Prices,
    PutScale,
    Ranking,
    RankOptions,
    Refresh,
    Resize,
    WriteStatus,
    check_outcome,
)
from kscale.objects.api.autoscaling import HorizontalPodAutoscalerV1
from kscale.objects.api.core import ConfigMap, Node, ObjectReference, Pod
from kscale.objects.api.meta import KubeObject, ObjectMeta
from kscale.objects.api.metrics import PodMetricsList
from kscale.objects.api.vpa import VerticalPodAutoscalerCheckpointStatus
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.kinds import KINDS, ServedResource, find_kind
from kscale.objects.nodegroup import NodeGroup, ProviderError
from kscale.snapshot.snapshot import Snapshot
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.client import Client
from kscale.world.kubernetes.performer import Performer, call_of
from kscale.world.kubernetes.resources import EVERYWHERE
from kscale.world.protocols import NodeGroups
from unit.world.fake_api_server import BROKEN, REFUSED, Late, RefusalError
from unit.world.informer_cases import pod
from unit.world.test_informer import FakeApi, against_fake
from unit.world.writer_cases import CASES, Acting, deployment

STRUCTS: set[Any] = {find_kind(group if "/" in group else f"{group}/v1", kind) for group, kind in KINDS} - {None}
WITH_STATUS = sorted(
    (each for each in STRUCTS if isinstance(getattr(each(), "status", None), msgspec.Struct)),
    key=lambda each: each.__name__,
)


@pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])
def test_cases(case: Callable[[Any], Awaitable[None]]) -> None:
    against_fake(case)


def test_a_server_that_cannot_resize() -> None:
    async def case(api: FakeApi) -> None:
        await api.create("pods", pod("a"))
        resize = Resize(namespace="default", name="a", patch=(PatchOperation("remove", "/spec/x"),))
        await Acting(api).refused(resize, 404, "NotFound")

    against_fake(case, minor=32)


def test_patch_of_a_struct_equals_the_patch_of_its_json() -> None:
    data = {"version": "v3", "cpuHistogram": {"bucketWeights": {"8": 10000}, "totalWeight": 0.1}}
    status = from_dict(data, VerticalPodAutoscalerCheckpointStatus)
    kind = "VerticalPodAutoscalerCheckpoint"
    resource = next(each for each in EVERYWHERE if each.kind == kind)
    mine, theirs = (
        call_of(Patch(kind=kind, name="a", type="json", patch=(PatchOperation("replace", "/status", value),)), resource)
        for value in (status, to_dict(status))
    )
    assert mine == theirs


def test_prepared_patches() -> None:
    async def case(api: FakeApi) -> None:
        await api.create("pods", pod("a"))
        send = Performer(api.client, api.clock).prepare_patch(Get(kind="Pod", namespace="default", name="a"))
        versions = [await send(json.dumps({"metadata": {"labels": {"n": str(n)}}}).encode()) for n in range(2)]
        server_version = str(api.server.version)
        assert versions[1] == server_version != versions[0]
        refused = await send(b'{"metadata":{"resourceVersion":"1"}}')
        assert isinstance(refused, ApiError)
        assert refused.is_conflict
        api.server.fault = lambda call: REFUSED
        refused = await send(b"{}")
        assert isinstance(refused, ApiError)

    against_fake(case)


def test_a_budget_that_refuses() -> None:
    """As client-go, it is asked again while the server says when; then the machine hears of it."""

    async def case(api: FakeApi) -> None:
        await api.create("pods", pod("a"))
        act = Acting(api)
        api.server.may_evict = lambda _: RefusalError(
            429, "TooManyRequests", "Cannot evict pod", causes=[{"reason": "DisruptionBudget"}]
        )
        before = api.clock.now()
        error = await act.refused(Evict(namespace="default", name="a"), 429, "TooManyRequests")
        assert (error.causes, error.retry_after, api.clock.now() - before) == (("DisruptionBudget",), None, 0)
        allowed = [3]

        def may_evict(_: Any) -> RefusalError | None:
            allowed[0] -= 1
            text = "The disruption budget p is still being processed by the server."
            return RefusalError(429, "TooManyRequests", text, retry_after=10) if allowed[0] else None

        api.server.may_evict = may_evict
        await act.done(Evict(namespace="default", name="a"))
        assert api.clock.now() - before == 20 * SECOND

    against_fake(case)


@pytest.mark.parametrize("fault", [REFUSED, BROKEN, Late()])
def test_connections_that_break(fault: Any) -> None:
    """A write is not sent again: nobody knows whether it has happened."""

    async def case(api: FakeApi) -> None:
        act = Acting(api)
        faults = [fault]
        api.server.fault = lambda call: faults.pop() if faults else None
        created = ConfigMap(metadata=ObjectMeta(name="a", namespace="default"))
        error = await act.refused(Create(created), 0, "")
        assert error.message in ("connection reset by peer", "connect: connection refused")
        assert len(api.server.calls) == 1
        if isinstance(fault, Late):
            await act.refused(Create(created), 409, "AlreadyExists")
        else:
            await act.done(Create(created))

    against_fake(case)


def test_unreadable_responses_are_errors() -> None:
    from kscale.world.kubernetes.transport import Answer

    async def case(api: FakeApi) -> None:
        api.server.fault = lambda call: Answer(200, {}, b"<html>")
        error = (await Acting(api).outcome(Get(kind="Node", name="n"))).error
        assert error is not None
        assert error.reason == "InternalError"

    against_fake(case)


WIDGETS = ServedResource("example.com", "v1alpha1", "Widget", "widgets", True, "autoscaling/v1")


def test_kinds_are_found_by_discovery() -> None:
    async def case(api: FakeApi) -> None:
        act = Acting(api)
        body: dict[str, Any] = {"metadata": {"name": "w", "namespace": "default"}, "spec": {"replicas": 2}}
        await api.create("widgets.example.com", body)
        result = await act.done(Get(kind="Widget", name="w", namespace="default", api_version="example.com/v1alpha1"))
        assert (type(result), result.kind, result.name) == (KubeObject, "Widget", "w")
        scale = await act.done(GetScale(namespace="default", resource="widgets.example.com", name="w"))
        await act.done(PutScale(namespace="default", resource="widgets.example.com", scale=scale, replicas=5))
        assert api.server.get("widgets.example.com", "w", "default")["spec"]["replicas"] == 5
        paths = [call.path for call in api.server.calls]
        assert paths.count("/apis/example.com/v1alpha1") == 1
        mapper = await act.performer._resources.mapper()
        assert mapper.resources("example.com", "Widget") == ("widgets.example.com",)
        assert mapper.find_preferred("widgets.example.com").scale == "autoscaling/v1"

    against_fake(case, resources=[WIDGETS])


def test_scales_of_older_servers() -> None:
    async def case(api: FakeApi) -> None:
        api.server.scale_version = "apps/v1beta2"
        await api.create("oldies.example.com", deployment("web", 1))
        act = Acting(api)
        scale_ref = {"namespace": "default", "resource": "oldies.example.com"}
        scale = await act.done(GetScale(name="web", **scale_ref))
        assert scale.status.selector == "app=web"
        await act.done(PutScale(scale=scale, replicas=2, **scale_ref))

    old = ServedResource("example.com", "v1", "Oldie", "oldies", True, "apps/v1beta2")
    against_fake(case, resources=[old])


def test_requests_of_writes_are_exact() -> None:
    """The very requests."""

    async def case(api: FakeApi) -> None:
        act = Acting(api)
        await api.create("pods", pod("a"))
        await api.create("nodes", {"metadata": {"name": "n", "labels": {"l": "1"}}})
        await act.outcome(Patch(kind="Node", name="n", patch={"spec": {"x": 1}}, resource_version="101"))
        await act.outcome(
            Patch(
                kind="Pod", name="a", namespace="default", type="strategic", patch={"status": {}}, subresource="status"
            )
        )
        await act.outcome(Evict(namespace="default", name="a", grace_period_seconds=30))
        await act.outcome(Delete(kind="Node", name="n", uid="u", grace_period_seconds=5))
        written = [
            (call.method, call.path, call.content_type, json.loads(call.body or b"null")) for call in api.server.calls
        ]
        eviction = {
            "kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "a", "namespace": "default"},
            "deleteOptions": {"gracePeriodSeconds": 30},
        }  # fmt: skip
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 5, "preconditions": {"uid": "u"}}
        merged = {"spec": {"x": 1}, "metadata": {"resourceVersion": "101"}}
        pod_path = "/api/v1/namespaces/default/pods/a"
        assert written == [
            ("PATCH", "/api/v1/nodes/n", "application/merge-patch+json", merged),
            ("PATCH", f"{pod_path}/status", "application/strategic-merge-patch+json", {"status": {}}),
            ("POST", f"{pod_path}/eviction", "application/json", eviction),
            ("DELETE", "/api/v1/nodes/n", "application/json", options),
        ]

    against_fake(case)


class FakeStores:
    synced = settled = True

    def __init__(self, *objects: KubeObject) -> None:
        self.stored = objects

    async def caught_up(self) -> None:
        pass

    def snapshot(self) -> Snapshot:
        raise AssertionError

    def objects(self, kind: str) -> Sequence[KubeObject]:
        return [each for each in self.stored if type(each).__name__ == kind]

    def get(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        result = (each for each in self.objects(kind) if (each.namespace, each.name) == (namespace, name))
        return next(result, None)

    def pods_of(self, nodes: Sequence[str]) -> Sequence[Pod]:
        return [each for each in self.stored if isinstance(each, Pod) and each.spec.node_name in nodes]

    def resource_version(self, kind: str) -> str:
        return ""


class FakeCloud:
    """Remembers what it was asked, and in which thread; refuses what it is told to."""

    name = "fake"
    gpu_label = ""
    gpu_types = ()

    def __init__(self, refuse: str = "") -> None:
        self.refuse = refuse
        self.calls: list[tuple[Any, ...]] = []
        self.threads: set[threading.Thread] = set()

    def _note(self, *what: Any) -> None:
        self.calls.append(what)
        self.threads.add(threading.current_thread())
        if what[0] == self.refuse:
            raise ProviderError("quota exceeded", "cloudProviderError")

    def refresh(self) -> Sequence[NodeGroup]:
        self._note("refresh")
        return (NodeGroup(id="a"),)

    def has_instance(self, node: Node) -> bool:
        if node.name == "n3":
            raise ProviderError("Not implemented")
        return node.name == "n1"

    def prices(self, question: GetPrices) -> Prices:
        self._note("prices", len(question.nodes), len(question.pods))
        return Prices(nodes=(1.0,) * len(question.nodes), pods=(0.5,) * len(question.pods))

    def increase_size(self, group: str, delta: int, *, atomic: bool = False) -> None:
        self._note("increase", group, delta, atomic)

    def decrease_target_size(self, group: str, delta: int) -> None:
        self._note("decrease", group, delta)

    def delete_nodes(self, group: str, nodes: Sequence[Node], *, force: bool = False) -> None:
        self._note("delete", group, [(node.name, node.spec.provider_id) for node in nodes], force)

    def create_group(self, group: str, *, asynchronous: bool = False) -> Sequence[NodeGroup]:
        self._note("create", group, asynchronous)
        return (NodeGroup(id=f"{group}-1"), NodeGroup(id=f"{group}-2"))

    def delete_group(self, group: str) -> None:
        self._note("drop", group)

    def close(self) -> None:
        self._note("close")


def performed(*actions: Action, **parts: Any) -> list[Outcome]:
    async def main() -> list[Outcome]:
        performer = Performer(Client(None, SystemClock()), SystemClock(), **parts)
        return [check_outcome(action, await performer(action)) for action in actions]

    return asyncio.run(main())


def test_provider_calls_use_the_latest_watched_nodes() -> None:
    """A node whose event lies there unread is deleted by the id that it has, and not by its name."""
    node = Node(metadata=ObjectMeta(name="n1"))
    node.spec.provider_id = "fake:///n1"

    class Behind(FakeStores):
        async def caught_up(self) -> None:
            self.stored = (node,)

    cloud = FakeCloud()
    actions = (HasInstances(("n1",)), DeleteNodes(group="a", nodes=("n1",)))
    has, deleted = performed(*actions, groups=cloud, stores=Behind())
    assert (has.value, deleted.error) == ({"n1": True}, None)
    assert cloud.calls == [("delete", "a", [("n1", "fake:///n1")], False)]


def test_node_deletion_uses_the_node_at_its_start() -> None:
    """Whatever has become of it: its object is gone, or another machine has its name."""
    current, other = (Node(metadata=ObjectMeta(name="n1")) for _ in range(2))
    current.spec.provider_id, other.spec.provider_id = "fake:///old", "fake:///new"
    cloud = FakeCloud()
    action = DeleteNodes(group="a", nodes=("n1",), objects=(current,))
    for stores in (FakeStores(), FakeStores(other)):
        performed(action, groups=cloud, stores=stores)
    assert cloud.calls == [("delete", "a", [("n1", "fake:///old")], False)] * 2
    assert format_action(action) == 'DeleteNodes {"group":"a","nodes":["n1"]}'


def test_the_cloud() -> None:
    cloud = FakeCloud()
    assert isinstance(cloud, NodeGroups)
    node = Node(metadata=ObjectMeta(name="n1"))
    node.spec.provider_id = "fake:///n1"
    result = performed(
        Refresh(),
        HasInstances(("n1", "n2", "n3")),
        IncreaseSize(group="a", delta=2, atomic=True),
        DecreaseTargetSize(group="a", delta=-1),
        DeleteNodes(group="a", nodes=("n1", "fake:///gone"), force=True),
        CreateGroup(group="b", asynchronous=True),
        DeleteGroup(group="b"),
        GetPrices(nodes=(node,), pods=({}, {}), start=0, end=1),
        groups=cloud,
        stores=FakeStores(node),
    )
    assert [each.value for each in result] == [
        [NodeGroup(id="a")], {"n1": True, "n2": False}, None, None, None,
        CreatedGroups(main=NodeGroup(id="b-1"), extra=(NodeGroup(id="b-2"),)), None,
        Prices(nodes=(1.0,), pods=(0.5, 0.5)),
    ]  # fmt: skip
    assert cloud.calls == [
        ("refresh",), ("increase", "a", 2, True), ("decrease", "a", -1),
        ("delete", "a", [("n1", "fake:///n1"), ("fake:///gone", "fake:///gone")], True), ("create", "b", True),
        ("drop", "b"), ("prices", 1, 2),
    ]  # fmt: skip
    assert threading.main_thread() not in cloud.threads


def test_a_cloud_that_refuses() -> None:
    (outcome,) = performed(IncreaseSize(group="a", delta=1), groups=FakeCloud(refuse="increase"))
    assert outcome.error == ApiError("quota exceeded", reason="cloudProviderError")


def test_watched_objects_are_read_from_the_stores() -> None:
    a = Pod(metadata=ObjectMeta(name="a", namespace="x", labels={"app": "1"}))
    b = Pod(metadata=ObjectMeta(name="b", namespace="y", labels={"app": "2"}))
    b.spec.node_name = "n1"
    result = performed(
        Get(kind="Pod", name="a", namespace="x", watched=True),
        Get(kind="Pod", name="a", namespace="y", watched=True),
        List(kind="Pod"),
        List(kind="Pod", namespace="y"),
        List(kind="Pod", selector="app in (1,3)"),
        List(kind="Pod", nodes=("n1",)),
        stores=FakeStores(a, b),
    )
    assert result[1].error is not None
    assert result[1].error.is_not_found
    values = [each.value for each in (result[0], *result[2:])]
    assert values == [a, [a, b], [b], [a], [b]]


def test_reports_and_questions() -> None:
    reports: list[Any] = []
    event = Event(regarding=ObjectReference(), type="Normal", reason="r", message="m")
    observation = Observation(name="x")

    class Metrics:
        async def get(self, question: GetMetric) -> PodMetricsList | ApiError:
            return PodMetricsList() if question.namespace == "x" else ApiError("no metrics", code=503)

    result = performed(
        Emit([event]),
        Observe([observation]),
        GetMetric(api="resource", namespace="x"),
        GetMetric(api="resource", namespace="y"),
        RankOptions(options=(), nodes={}),
        emit=reports.extend,
        observe=reports.extend,
        metrics=Metrics(),
        ranker=lambda question: Ranking(groups=("a",)),
    )
    assert reports == [event, observation]
    assert [each.value for each in result] == [None, None, PodMetricsList(), None, Ranking(groups=("a",))]
    assert result[3].error == ApiError("no metrics", code=503)


def test_unsupported_actions_raise_a_type_error() -> None:
    for action in (
        Refresh(),
        GetMetric(api="resource", namespace="x"),
        RankOptions(options=(), nodes={}),
        List(kind="Pod"),
    ):
        with pytest.raises(TypeError, match="this world cannot carry out"):
            performed(action)


def test_v1_hpa_status_is_written_with_annotations() -> None:
    prefix = "autoscaling.alpha.kubernetes.io"
    notes = {f"{prefix}/conditions": "[]", f"{prefix}/behavior": "{}", "mine": "1"}
    data = {
        "metadata": {"name": "h", "namespace": "default", "resourceVersion": "7", "annotations": notes},
        "status": {"currentReplicas": 2},
    }
    resource = ServedResource("autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", True)
    call = call_of(WriteStatus(from_dict(data, HorizontalPodAutoscalerV1)), resource)
    assert call.path == "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/h/status"
    body = json.loads(call.body or b"")
    assert body["metadata"] == {
        "resourceVersion": "7", "annotations": {f"{prefix}/conditions": "[]", f"{prefix}/current-metrics": None}
    }  # fmt: skip
    assert {key: value for key, value in body["status"].items() if value} == {"currentReplicas": 2}
    assert "lastScaleTime" in body["status"], "what is absent becomes absent"


@pytest.mark.parametrize("type_", WITH_STATUS, ids=lambda type_: type_.__name__)
def test_status_write_sends_null_for_absent_fields(type_: Any) -> None:
    """A null for each field that it leaves out, of any kind and however it is absent."""
    resource = ServedResource("example.com", "v1", "Thing", "things")
    obj = type_(metadata=ObjectMeta(name="a", namespace="n", resource_version="7"))
    created = msgspec.structs.fields(obj.status)
    empty = {each.name: each.default_factory() for each in created if each.default_factory is not msgspec.NODEFAULT}
    for changes in ({}, empty, {each.name: 3 for each in created}):
        status = obj.status
        for name, value in changes.items():
            setattr(status, name, value)
        body = json.loads(call_of(WriteStatus(obj), resource).body or b"")
        known = dict.fromkeys(status.__struct_encode_fields__)
        assert list(body["status"].items()) == list({**known, **to_dict(status)}.items())
