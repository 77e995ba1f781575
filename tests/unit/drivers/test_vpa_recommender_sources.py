"""The recommender as a whole process where usage does not come from metrics-server, and where it remembers less."""

from __future__ import annotations

import asyncio
import json

import pytest

from kscale.drivers.vpa_recommender import VpaRecommender
from kscale.effects import to_text
from kscale.world.kubernetes.transport import Answer, Call
from unit.drivers.test_vpa_recommender import MINUTE, VPAS, against, building, minutes, recommended
from unit.drivers.vpa_world import NAMESPACE, Run, autoscaler, cluster, running
from unit.world.test_informer import FakeApi

EXTERNAL = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/"
AMOUNTS = {"pod_cpu": "200m", "pod_memory": "300Mi"}


def known_pods(run: Run) -> set[str]:
    assert isinstance(run.driver, VpaRecommender)
    return {name for _, name in run.driver.state.pods}


def test_external_metrics_are_requested_per_pod() -> None:
    """And metrics-server is not. What comes of it is what the same usage gives from metrics-server."""
    requests: list[tuple[str, str]] = []
    usage: list[bool] = []

    async def case(api: FakeApi) -> None:
        def answer(call: Call) -> Answer | None:
            usage.append(call.path == "/apis/metrics.k8s.io/v1beta1/pods")
            if not call.path.startswith(EXTERNAL):
                return None
            metric = call.path.removeprefix(EXTERNAL)
            requests.append((metric, dict(call.query)["labelSelector"]))
            item = {"metricName": metric, "metricLabels": {"name": "c"}, "value": AMOUNTS[metric]}
            items = [item | {"timestamp": to_text(api.clock.now())}]
            return Answer(200, {}, json.dumps({"kind": "ExternalMetricValueList", "items": items}).encode())

        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        api.server.fault = answer
        external = building(
            use_external_metrics=True,
            external_metrics_cpu_metric="pod_cpu",
            external_metrics_memory_metric="pod_memory",
        )
        async with running(api, external) as run:
            await asyncio.sleep(1 + 3 * MINUTE)
            assert recommended(api) == {"c": {"cpu": "247m", "memory": "380258472"}}
            responses = {"is_error": "false", "client_name": "default-metrics-client"}
            assert run.metric("vpa_recommender_metric_server_responses", **responses) == 3

    against(case)
    assert requests[:4] == [(metric, f"app=web,pod=web-{i}") for i in range(2) for metric in AMOUNTS]
    assert (len(requests), any(usage)) == (3 * 4, False)


def test_adapter_with_invalid_times_costs_one_round(caplog: pytest.LogCaptureFixture) -> None:
    times = ["lately"]

    async def case(api: FakeApi) -> None:
        def answer(call: Call) -> Answer | None:
            if not call.path.startswith(EXTERNAL):
                return None
            item = {"metricName": "pod_cpu", "metricLabels": {"name": "c"}, "value": "200m", "timestamp": times[0]}
            return Answer(200, {}, json.dumps({"kind": "ExternalMetricValueList", "items": [item]}).encode())

        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        api.server.fault = answer
        external = building(use_external_metrics=True, external_metrics_cpu_metric="pod_cpu")
        async with running(api, external) as run:
            await asyncio.sleep(1 + 2 * MINUTE)
            errors = {"is_error": "true", "client_name": "default-metrics-client"}
            assert run.metric("vpa_recommender_metric_server_responses", **errors) == 2
            times[0] = to_text(api.clock.now())
            await asyncio.sleep(MINUTE)
            assert run.metric("vpa_recommender_metric_server_responses", **errors) == 2
            assert recommended(api)["c"]["cpu"] == "247m"

    against(case)
    message = 'Cannot get ContainerMetricsSnapshot from MetricsClient: items[0].timestamp: "lately" is not'
    assert any(each.getMessage().startswith(message) for each in caplog.records)


def test_memory_saver_tracks_only_selected_pods() -> None:
    """Those of a VPA that is new are listed."""

    async def case(api: FakeApi) -> None:
        cluster(api)
        cluster(api, "db", pods=1)
        api.server.put(VPAS, autoscaler("web"))
        async with running(api, building(memory_saver=True)) as run:
            await asyncio.sleep(1)
            await minutes(api, 2)
            assert known_pods(run) == {"web-0", "web-1"}
            assert recommended(api)["c"]["cpu"] == "247m"
            api.server.put(VPAS, autoscaler("db"))
            await minutes(api, 2)
            assert known_pods(run) == {"web-0", "web-1", "db-0"}
        async with running(api, building()) as run:
            await asyncio.sleep(1)
            api.server.drop(VPAS, "db", NAMESPACE)
            await minutes(api, 1)
            assert known_pods(run) == {"web-0", "web-1", "db-0"}  # without it: all there are

    against(case)
