"""The metrics APIs: what is asked, and what becomes of the answers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from kscale.effects import ApiError, GetMetric, Observation
from kscale.objects.api.metrics import ExternalMetricValueList, MetricValueList, PodMetricsList
from kscale.objects.kinds import ServedResource
from kscale.objects.pod_metrics import PodUsage
from kscale.world.clock import VirtualClock, run_in_virtual_time
from kscale.world.kubernetes.client import REQUEST_METRICS, Client, RequestFailedError
from kscale.world.kubernetes.resources import Resources
from kscale.world.kubernetes.transport import Answer, Call
from kscale.world.metrics_apis import RESTMetrics
from unit.world.fake_api_server import FakeApiServer, status
from unit.world.test_informer import T0

ITEM = {
    "metadata": {"name": "web-0", "namespace": "shop", "labels": {"app": "web"}},
    "timestamp": "2026-03-01T11:59:50Z",
    "window": "15.1s",
    "containers": [{"name": "c", "usage": {"cpu": "250m"}}],
}
VALUE = {
    "describedObject": {"kind": "Pod", "namespace": "shop", "name": "web-0"},
    "timestamp": "2026-03-01T11:59:50Z",
    "value": "500m",
}
WIDGET = ServedResource("example.com", "v1", "Widget", "widgets")


class Server(FakeApiServer):
    """Serves metrics besides. ``versions`` of the custom metrics API, the preferred one first."""

    versions: tuple[str, ...] = ("v1beta2", "v1beta1")
    refusing = False

    async def call(self, call: Call) -> Answer:
        if self.refusing:
            return Answer(503, {}, json.dumps(status(503, "ServiceUnavailable", "try later")).encode())
        if ".metrics.k8s.io/" in call.path or call.path.startswith("/apis/metrics.k8s.io"):
            self.calls.append(call)
            kind = "PodMetricsList" if "/apis/metrics" in call.path else "MetricValueList"
            item = ITEM if kind == "PodMetricsList" else VALUE
            return Answer(200, {}, json.dumps({"kind": kind, "items": [item]}).encode())
        answer = await super().call(call)
        if call.path == "/apis" and self.versions:
            listed = json.loads(answer.body)
            versions = [{"version": each} for each in sorted(self.versions)]
            preferred = {"version": self.versions[0]}
            group = {"name": "custom.metrics.k8s.io", "versions": versions, "preferredVersion": preferred}
            listed["groups"].append(group)
            return Answer(200, {}, json.dumps(listed).encode())
        return answer


def against(case: Callable[[RESTMetrics, Server, VirtualClock], Awaitable[None]], **options: Any) -> None:
    async def main(clock: VirtualClock) -> None:
        server = Server(clock, resources=[WIDGET])
        client = Client(server, clock, qps=-1)
        await case(RESTMetrics(client, Resources(client), clock, **options), server, clock)

    run_in_virtual_time(main, now=T0)


def metric_requests(server: Server) -> list[str]:
    return [path for path in server.requested_paths("GET") if ".k8s.io" in path]


CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
CASES = [
    (
        GetMetric(api="resource", namespace="shop", kind="Pod", selector="app=web"),
        "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods labelSelector=app=web",
        PodMetricsList,
    ),
    (GetMetric(api="resource", namespace="", columns=True), "/apis/metrics.k8s.io/v1beta1/pods", PodUsage),
    (
        GetMetric(
            api="custom", namespace="shop", kind="Pod", metric="q", selector="app=web", metric_selector="verb=GET"
        ),
        f"{CUSTOM}/namespaces/shop/pods/*/q labelSelector=app=web metricLabelSelector=verb=GET",
        MetricValueList,
    ),
    (
        GetMetric(api="custom", namespace="shop", kind="Deployment.apps", name="web", metric="q", selector="a=b"),
        f"{CUSTOM}/namespaces/shop/deployments.apps/web/q",
        MetricValueList,
    ),
    (
        GetMetric(api="custom", namespace="shop", kind="Widget.example.com", name="w", metric="q"),
        f"{CUSTOM}/namespaces/shop/widgets.example.com/w/q",
        MetricValueList,
    ),
    (
        GetMetric(api="custom", namespace="", kind="Namespace", name="shop", metric="q"),
        f"{CUSTOM}/namespaces/shop/metrics/q",
        MetricValueList,
    ),
    (
        GetMetric(api="custom", namespace="", kind="Node", name="n", metric="q"),
        f"{CUSTOM}/nodes/n/q",
        MetricValueList,
    ),
    (
        GetMetric(api="external", namespace="shop", metric="a/b", metric_selector="q=1"),
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/a%2Fb labelSelector=q=1",
        ExternalMetricValueList,
    ),
]


@pytest.mark.parametrize(("question", "path", "type_"), CASES)
def test_request_paths_match_upstream(question: GetMetric, path: str, type_: type) -> None:
    async def case(metrics: RESTMetrics, server: Server, clock: VirtualClock) -> None:
        answer = await metrics.get(question)
        assert isinstance(answer, type_)
        assert len(answer.keys if isinstance(answer, PodUsage) else answer.items) == 1
        assert metric_requests(server)[-1] == path

    against(case)


ONE = GetMetric(api="custom", namespace="shop", kind="Pod", metric="q")


@pytest.mark.parametrize(
    ("versions", "spoken"),
    [
        (("v1beta1", "v1beta2"), "v1beta1"),
        (("v1", "v1beta2"), "v1beta2"),
        (("v1", "v2"), "no known available metric versions found"),
        ((), "no custom metrics API (custom.metrics.k8s.io) registered"),
    ],
)
def test_the_version_of_custom_metrics(versions: tuple[str, ...], spoken: str) -> None:
    async def case(metrics: RESTMetrics, server: Server, clock: VirtualClock) -> None:
        server.versions = versions
        answer = await metrics.get(ONE)
        if isinstance(answer, ApiError):
            assert answer.message == spoken
        else:
            assert metric_requests(server)[-1].split("/")[3] == spoken

    against(case)


def test_api_version_is_discovered_once_per_period() -> None:
    async def case(metrics: RESTMetrics, server: Server, clock: VirtualClock) -> None:
        import asyncio

        for _ in range(3):
            await metrics.get(ONE)
        assert server.requested_paths("GET").count("/apis") == 1
        server.versions = ("v1beta1",)
        await metrics.get(ONE)
        assert "v1beta2" in metric_requests(server)[-1]
        await asyncio.sleep(15)
        await metrics.get(ONE)
        assert "v1beta1" in metric_requests(server)[-1]

    against(case, renewal=timedelta(seconds=15))


@pytest.mark.parametrize("question", [question for question, _, _ in CASES])
def test_response_with_invalid_timestamp_is_an_error(question: GetMetric, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adapters are of many kinds, and each says how one question went."""

    async def case(metrics: RESTMetrics, server: Server, clock: VirtualClock) -> None:
        for item in (ITEM, VALUE):
            monkeypatch.setitem(item, "timestamp", "soon")
        result = await metrics.get(question)
        assert isinstance(result, ApiError)
        assert "soon" in result.message

    against(case)


def test_refusals_and_unreadable_responses_are_errors() -> None:
    async def case(metrics: RESTMetrics, server: Server, clock: VirtualClock) -> None:
        unknown = await metrics.get(GetMetric(api="custom", namespace="shop", kind="Odd.x.y", name="o", metric="q"))
        assert isinstance(unknown, ApiError)
        text = 'unable to map kind Odd.x.y to resource: no matches for kind "Odd" in group "x.y"'
        assert unknown.message == text
        for field, text in (("timestamp", "soon"), ("window", "a while")):  # of one item, as client-go has it
            before, ITEM[field] = ITEM[field], text
            try:
                unreadable = [
                    await metrics.get(GetMetric(api="resource", namespace="shop", columns=columns))
                    for columns in (True, False)
                ]
            finally:
                ITEM[field] = before
            for each in unreadable:
                assert isinstance(each, ApiError)
                assert f"items[0].{field}" in each.message.replace(": ", ".")
        server.refusing = True
        refused = await metrics.get(GetMetric(api="external", namespace="shop", metric="q"))
        assert isinstance(refused, ApiError)
        assert (refused.code, refused.message) == (503, "try later")

    against(case)


@pytest.mark.parametrize("api", ["resource", "custom", "external"])
def test_metrics_that_cannot_be_read_count_as_failed_requests(api: str) -> None:
    """A server that answers noise with status 200 is seen in the program's metrics."""

    class NoiseServer(Server):
        async def call(self, call: Call) -> Answer:
            answer = await super().call(call)
            return Answer(200, {}, bytes(range(256))) if "metrics.k8s.io/" in call.path else answer

    async def main(clock: VirtualClock) -> None:
        client = Client(NoiseServer(clock, resources=[WIDGET]), clock, qps=-1)
        observations: list[Observation] = []
        client.observe = observations.append
        metrics = RESTMetrics(client, Resources(client), clock)
        answer = await metrics.get(GetMetric(api=api, namespace="shop", metric="m", kind="Pod", selector="app=web"))
        assert isinstance(answer, ApiError)
        assert [(each.name, each.labels) for each in observations] == [
            (REQUEST_METRICS[0].name, {"reason": "unreadable"})
        ]

    run_in_virtual_time(main, now=T0)


def test_responses_that_cannot_be_decoded_count_as_failed_requests() -> None:
    async def main(clock: VirtualClock) -> None:
        client = Client(Server(clock), clock, qps=-1)
        observations: list[Observation] = []
        client.observe = observations.append
        answer, call = Answer(200, {}, b"<html>"), Call(method="GET", path="/api")
        with pytest.raises(RequestFailedError, match="cannot be read"):
            client.decode(answer, dict, call)
        with pytest.raises(RequestFailedError, match="cannot be read"):
            client.decode_list(answer, call)
        assert [each.labels for each in observations] == [{"reason": "unreadable"}] * 2

    run_in_virtual_time(main, now=T0)
