"""The recommender as a whole process, in virtual time, against the fake API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from kscale.capacity.vpa_round_plan import PlannedVPA, VPARoundPlan
from kscale.drivers.vpa_recommender import VpaRecommender, recommender_program
from kscale.effects import SECOND, ApiError, QueryPrometheus
from kscale.vpa import RecommenderOptions
from kscale.world.kubernetes.transport import Answer
from unit.drivers.vpa_world import (
    NAMESPACE,
    SERVED,
    Run,
    autoscaler,
    cluster,
    meta,
    node,
    running,
    running_pod,
    used,
    workload,
)
from unit.world.fake_api_server import status
from unit.world.test_informer import FakeApi, against_fake

VPAS = "verticalpodautoscalers.autoscaling.k8s.io"
CHECKPOINTS = "verticalpodautoscalercheckpoints.autoscaling.k8s.io"
MINUTE = 60
NO_USAGE = "Cannot get cluster history: cannot get usage history"
Case = Callable[[FakeApi], Awaitable[None]]


def against(case: Case, *, seed: int | None = None, **more: Any) -> FakeApi:
    return against_fake(case, resources=SERVED, seed=seed, **more)


def building(**options: Any) -> Any:
    return partial(recommender_program, options=RecommenderOptions(**options))


def recommended(api: FakeApi, name: str = "web") -> dict[str, Any]:
    """Target by container."""
    result = api.server.get(VPAS, name, NAMESPACE).get("status", {}).get("recommendation", {})
    return {each["containerName"]: each["target"] for each in result.get("containerRecommendations", [])}


def conditions(api: FakeApi, name: str = "web") -> dict[str, tuple[str, str]]:
    result = api.server.get(VPAS, name, NAMESPACE).get("status", {}).get("conditions", [])
    return {each["type"]: (each["status"], each.get("message", "")) for each in result}


async def minutes(api: FakeApi, count: int, cpu: str = "200m", memory: str = "300Mi", pods: int = 2) -> None:
    """Time passes, and pods use what they use; what is used is measured half a minute before a round."""
    for _ in range(count):
        for i in range(pods):
            used(api, f"web-{i}", cpu, memory)
        await asyncio.sleep(MINUTE)


@asynccontextmanager
async def begun(api: FakeApi, count: int) -> AsyncIterator[None]:
    """It runs, and so many rounds have passed."""
    async with running(api, building()):
        await asyncio.sleep(1)
        await minutes(api, count)
        yield


def writes(api: FakeApi) -> list[str]:
    return [path for method in ("POST", "PATCH", "PUT", "DELETE") for path in api.server.requested_paths(method)]


def test_recommender_reports_the_effect_on_nodes() -> None:
    """Before it writes anything, and on the nodes as they are: beside another's pod there is place for one."""
    plans: list[VPARoundPlan] = []
    written: list[list[str]] = []

    async def case(api: FakeApi) -> None:
        def tell(plan: VPARoundPlan) -> None:
            plans.append(plan)
            written.append(writes(api))

        cluster(api, cpu="900m")
        api.server.put("pods", running_pod("other", "other", cpu="600m"))
        api.server.put("nodes", node(cpu="1"))
        api.server.put(VPAS, autoscaler("web", updatePolicy={"updateMode": "Off"}))
        build = partial(recommender_program, options=RecommenderOptions(), explain=tell)
        async with running(api, build):
            await asyncio.sleep(30)
            await minutes(api, 3)
            plan_events = [each for each in api.server.all("events") if each["reason"] == "NodesPlanned"]
            assert [(each["involvedObject"]["name"], each["count"]) for each in plan_events] == [
                ("n", 1)
            ]  # nothing new since
            assert "pods of 1 VPAs" in plan_events[0]["message"]

    against(case)
    assert len(plans) == 3
    assert written[0] == []
    assert any(path.endswith("/status") for path in written[1])
    for plan in plans:
        assert (plan.anew.placed, len(plan.anew.waiting)) == (1, 1)
        assert plan.vpas == [PlannedVPA(namespace=NAMESPACE, name="web", pods=2)]
        assert (plan.effect.nodes_before, plan.effect.nodes_after) == (3, 2)


def test_recommender_runs_each_minute_and_writes_checkpoints() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        async with running(api, building()) as run:
            await asyncio.sleep(30)
            assert writes(api) == []  # the first round comes one interval after the beginning
            await minutes(api, 3)
            assert recommended(api) == {"c": {"cpu": "247m", "memory": "380258472"}}
            assert conditions(api) == {"RecommendationProvided": ("True", "")}
            (checkpoint,) = api.server.all(CHECKPOINTS)
            assert checkpoint["metadata"]["name"] == "web-c"
            assert checkpoint["spec"] == {"containerName": "c", "vpaObjectName": "web"}
            assert checkpoint["status"]["totalSamplesCount"] == 6
            assert run.metric("vpa_recommender_aggregate_container_states_count") == 1
            responses = {"is_error": "false", "client_name": "default-metrics-client"}
            assert run.metric("vpa_recommender_metric_server_responses", **responses) == 3
            before = len([path for path in writes(api) if path.endswith("/status")])
            used(api, "web-0", "200m", "300Mi")
            await asyncio.sleep(3 * MINUTE)  # the same usage again is refused, and nothing has changed
            assert len([path for path in writes(api) if path.endswith("/status")]) <= before + 1

    against(case)


def test_a_restart_goes_on_from_checkpoints() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        async with running(api, building()):
            await asyncio.sleep(1)
            await minutes(api, 5, cpu="700m")
            known = recommended(api)
        saved = api.server.get(CHECKPOINTS, "web-c", NAMESPACE)["status"]
        async with running(api, building()) as run:
            await asyncio.sleep(1)
            driver = run.driver
            assert isinstance(driver, VpaRecommender)
            ((_, vpa),) = driver.state.vpas.items()
            assert list(vpa.initial_states) == ["c"]
            await asyncio.sleep(MINUTE)
            assert recommended(api)["c"]["cpu"] == known["c"]["cpu"]
            again = api.server.get(CHECKPOINTS, "web-c", NAMESPACE)["status"]
            # What is in a checkpoint, and what the last measurement says once more.
            assert again["totalSamplesCount"] == saved["totalSamplesCount"] + 2

    against(case)


@pytest.mark.parametrize(
    ("weights", "why"),
    [
        ({"abc": 1}, "bucketWeights: 'abc' is no bucket"),
        ({"3": "x"}, "bucketWeights[3]: 'x' is no uint32"),
        ({"3": 1.5}, "bucketWeights[3]: 1.5 is no uint32"),
        ({"3": True}, "bucketWeights[3]: True is no uint32"),
        ({"3": 2**40}, f"bucketWeights[3]: {2**40} is no uint32"),
        ({"3": [0] * 1000}, f"bucketWeights[3]: [{'0, ' * 13}... (3,000 characters) is no uint32"),
    ],
)
def test_damaged_checkpoint_affects_no_other(
    weights: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The API server holds whatever is written as weights."""

    async def case(api: FakeApi) -> None:
        cluster(api)
        cluster(api, "db")
        for name in ("web", "db"):
            api.server.put(VPAS, autoscaler(name))
            used(api, f"{name}-0", "700m", "300Mi")
        async with running(api, building()):
            await asyncio.sleep(MINUTE + 1)
        checkpoint = api.server.get(CHECKPOINTS, "web-c", NAMESPACE)
        checkpoint["status"]["cpuHistogram"]["bucketWeights"] = weights
        api.server.put(CHECKPOINTS, checkpoint)
        async with running(api, building()) as run:
            await asyncio.sleep(1)
            driver = run.driver
            assert isinstance(driver, VpaRecommender)
            result = {key[1]: list(vpa.initial_states) for key, vpa in driver.state.vpas.items()}
            assert result == {"web": [], "db": ["c"]}
            await minutes(api, 2)
            assert recommended(api).keys() == {"c"}
            written = api.server.get(CHECKPOINTS, "web-c", NAMESPACE)["status"]["cpuHistogram"]["bucketWeights"]
            assert written == {"14": 10000}  # of what was seen since

    against(case)
    message = f"cannot load checkpoint for VPA {NAMESPACE}/web. Reason: status.cpuHistogram.{why}"
    assert message in [each.getMessage() for each in caplog.records]


def test_checkpoints_of_more_samples_than_an_int32_has_are_read_and_counted_on() -> None:
    """A thousand pods have so many in four years; upstream counts on."""
    many = 3_000_000_000

    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        async with begun(api, 2):
            pass
        checkpoint = api.server.get(CHECKPOINTS, "web-c", NAMESPACE)
        checkpoint["status"]["totalSamplesCount"] = many
        api.server.put(CHECKPOINTS, checkpoint)
        async with begun(api, 2):
            pass
        assert api.server.get(CHECKPOINTS, "web-c", NAMESPACE)["status"]["totalSamplesCount"] == many + 4

    against(case)


def test_recommender_does_not_start_without_checkpoints() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        refusal = json.dumps(status(500, "InternalError", "etcd is away")).encode()
        api.server.fault = lambda call: Answer(500, {}, refusal) if "checkpoints" in call.path else None
        async with running(api, building()) as run:
            await minutes(api, 5)
            assert writes(api) == []
            assert run.metric("vpa_recommender_aggregate_container_states_count") is None
            api.server.fault = lambda call: None
            await minutes(api, 3)
            assert "c" in recommended(api)

    against(case)


def test_oom_kill_raises_the_recommendation() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api, memory="1Gi")
        api.server.put(VPAS, autoscaler("web"))
        async with running(api, building()):
            await asyncio.sleep(1)
            at = [{"name": "c", "restartCount": 0, "state": {"running": {}}}]
            for i in range(2):
                api.server.put("pods", running_pod(f"web-{i}", "web", memory="1Gi", status={"containerStatuses": at}))
            await minutes(api, 2)
            before = recommended(api)["c"]["memory"]
            killed = {"terminated": {"reason": "OOMKilled", "finishedAt": "2027-01-15T08:01:30Z", "exitCode": 137}}
            now = [{"name": "c", "restartCount": 1, "state": {"running": {}}, "lastState": killed}]
            api.server.put("pods", running_pod("web-0", "web", memory="1Gi", status={"containerStatuses": now}))
            await minutes(api, 1)
            assert int(before) < 2**30
            assert int(recommended(api)["c"]["memory"]) > 1.2 * 2**30

    against(case)


FAR = [None, "0001-01-01T00:00:00Z", "1700-01-01T00:00:00Z", "2200-01-01T00:00:00Z", "9999-12-31T00:00:00Z"]


@pytest.mark.parametrize("time", FAR)
def test_usage_with_invalid_time_drops_only_its_sample(time: str | None, caplog: pytest.LogCaptureFixture) -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        async with begun(api, 2):
            for cpu in ("900m", "901m"):
                for name in ("web-0", "web-1"):
                    used(api, name, cpu, "300Mi")
                odd = api.server.get("pods.metrics.k8s.io", "web-0", NAMESPACE)
                api.server.put("pods.metrics.k8s.io", {**odd, "timestamp": time})
                await asyncio.sleep(MINUTE)
            status = api.server.get(CHECKPOINTS, "web-c", NAMESPACE)["status"]
            assert status["totalSamplesCount"] == 2 * 2 + 2  # of the other pod they count
            assert recommended(api)["c"]["cpu"] == "1038m"

    against(case)
    message = f"Error adding metric sample: {NAMESPACE}/web-0/c: sample discarded (invalid or out of order)"
    assert [each.getMessage() for each in caplog.records].count(message) >= 4  # of two rounds, CPU and memory


@pytest.mark.parametrize("time", FAR)
def test_oom_kill_with_invalid_time_is_not_counted(time: str | None, caplog: pytest.LogCaptureFixture) -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        async with begun(api, 2):
            before = recommended(api)
            ended = {"terminated": {"reason": "OOMKilled", "finishedAt": time}}
            for restarts, state in ((0, {"running": {}}), (1, ended)):
                states = [{"name": "c", "restartCount": restarts, "state": state}]
                api.server.put("pods", running_pod("web-0", "web", memory="4Gi", status={"containerStatuses": states}))
                await minutes(api, 2)
            assert recommended(api) == before

    against(case)
    messages = [each.getMessage() for each in caplog.records]
    assert any(text.startswith(f"Failed to record OOM: {NAMESPACE}/web-0/c: ") for text in messages)


def test_an_eviction_for_memory_counts() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        async with begun(api, 1):
            annotations = {
                "offending_containers": "c",
                "offending_containers_usage": "2Gi",
                "starved_resource": "memory",
            }
            event = {
                "kind": "Event",
                "apiVersion": "v1",
                "metadata": meta("e", annotations=annotations, creationTimestamp="2027-01-15T08:01:10Z"),
                "reason": "Evicted",
                "involvedObject": {"kind": "Pod", "namespace": NAMESPACE, "name": "web-0"},
            }
            api.server.put("events", event)
            await minutes(api, 1)
            assert int(recommended(api)["c"]["memory"]) > 2 * 2**30

    against(case)


def test_a_target_that_only_has_a_scale() -> None:
    async def case(api: FakeApi) -> None:
        api.server.put("namespaces", {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": NAMESPACE}})
        rollout = ("Rollout", "argoproj.io/v1alpha1")
        api.server.put("rollouts.argoproj.io", workload("web", kind=rollout[0], api=rollout[1]))
        for i in range(2):
            api.server.put("pods", running_pod(f"web-{i}", "web", owner=rollout))
        api.server.put(VPAS, autoscaler("web", kind=rollout[0], api=rollout[1]))
        api.server.put(VPAS, autoscaler("lost", kind="Nobody", api="example.com/v1"))
        async with begun(api, 2):
            assert recommended(api)["c"]["cpu"] == "247m"
            (message,) = [text for kind, (_, text) in conditions(api, "lost").items() if kind == "ConfigUnsupported"]
            assert message.startswith(
                "Cannot read targetRef. Reason: unhandled targetRef example.com/v1 / Nobody / lost"
            )
            requests = [path for path in api.server.requested_paths("GET") if path.endswith("/rollouts/web/scale")]
            assert requests
            # Its scale is remembered for ten minutes, but who is selected is asked for in every round.
            await minutes(api, 12)
            assert len(recommended(api)) == 1

    against(case)


def test_discovery_is_repeated_every_five_minutes_and_keeps_known_kinds() -> None:
    async def case(api: FakeApi) -> None:
        rollouts = api.server.served.pop("rollouts.argoproj.io")
        rollout = ("Rollout", "argoproj.io/v1alpha1")
        api.server.put(VPAS, autoscaler("r", kind=rollout[0], api=rollout[1]))

        def supported() -> bool:
            return "ConfigUnsupported" not in conditions(api, "r")

        def count_discoveries() -> int:
            return api.server.requested_paths("GET").count("/apis")

        async with running(api, building()):
            await asyncio.sleep(MINUTE + 1)
            assert not supported()
            api.server.served["rollouts.argoproj.io"] = rollouts
            cluster(api, "r", pods=0)
            api.server.put("rollouts.argoproj.io", workload("r", kind=rollout[0], api=rollout[1]))
            await asyncio.sleep(3 * MINUTE)
            assert not supported()
            assert count_discoveries() == 1
            await asyncio.sleep(2 * MINUTE)
            assert supported()
            assert count_discoveries() == 2
            refusal = Answer(503, {}, json.dumps(status(503, "ServiceUnavailable", "no")).encode())
            api.server.fault = lambda call: refusal if call.path == "/apis" else None
            await asyncio.sleep(10 * MINUTE)
            assert supported()
            assert count_discoveries() > 5  # again and again, until there is an answer

    against(case)


def test_orphaned_checkpoints_are_deleted() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        other = {"vpaObjectName": "gone", "containerName": "c"}
        api.server.put(CHECKPOINTS, {"metadata": meta("gone-c"), "spec": other, "status": {"version": "v3"}})
        async with begun(api, 12):
            assert [each["metadata"]["name"] for each in api.server.all(CHECKPOINTS)] == ["web-c"]

    against(case)


def test_a_vpa_that_cannot_be_read_keeps_its_history() -> None:
    """The definition takes 1e5.5 for a quantity, which is none."""

    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        async with begun(api, 2):
            pass
        policy = {"containerPolicies": [{"containerName": "c", "minAllowed": {"cpu": "1e5.5"}}]}
        api.server.put(VPAS, autoscaler("web", resourcePolicy=policy))
        async with running(api, building()) as run:
            await asyncio.sleep(25 * MINUTE)
            assert isinstance(run.driver, VpaRecommender)
            assert not run.driver.state.vpas
            assert [each["metadata"]["name"] for each in api.server.all(CHECKPOINTS)] == ["web-c"]
            api.server.drop(VPAS, "web", NAMESPACE)
            await asyncio.sleep(15 * MINUTE)
            assert api.server.all(CHECKPOINTS) == []

    against(case)


def test_only_its_own_vpas() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        api.server.put(VPAS, autoscaler("mine", "web", recommenders=[{"name": "kscale"}]))
        async with running(api, building(recommender_name="kscale")):
            await asyncio.sleep(1)
            await minutes(api, 2)
            assert (recommended(api), list(recommended(api, "mine"))) == ({}, ["c"])

    against(case)


def test_unavailable_metrics_server_costs_one_round() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        async with running(api, building()) as run:
            await asyncio.sleep(1)
            refusal = json.dumps(status(503, "ServiceUnavailable", "no metrics")).encode()
            api.server.fault = lambda call: Answer(503, {}, refusal) if "metrics.k8s.io" in call.path else None
            await minutes(api, 2)
            assert recommended(api)["c"]["cpu"] == "25m"  # what it gives who has used nothing
            errors = {"is_error": "true", "client_name": "default-metrics-client"}
            assert run.metric("vpa_recommender_metric_server_responses", **errors) == 2
            api.server.fault = lambda call: None
            await minutes(api, 1)
            assert recommended(api)["c"]["cpu"] == "247m"

    against(case)


class OldPrometheus:
    """Answers by what is asked for; None: nobody answers."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = answers
        self.queries: list[QueryPrometheus] = []

    async def query(self, question: QueryPrometheus) -> bytes | ApiError:
        self.queries.append(question)
        result = next(value for name, value in self.answers.items() if name in question.query)
        if result is None:
            await asyncio.sleep(3600)
        return result if isinstance(result, ApiError) else matrix(*result)


def matrix(*series: tuple[dict[str, str], list[tuple[float, str]]]) -> bytes:
    result = [{"metric": metric, "values": values} for metric, values in series]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def history_of(api: FakeApi, *pods: str) -> dict[str, Any]:
    """Two days, each hour: 400m, 1Gi; and the labels that pods had."""
    now = api.clock.now() // SECOND
    times = [now - 3600 * i for i in range(47, -1, -1)]

    def of(pod: str) -> dict[str, str]:
        return {"namespace": NAMESPACE, "pod_name": pod, "name": "c"}

    known = [{"kubernetes_namespace": NAMESPACE, "kubernetes_pod_name": pod, "pod_label_app": "web"} for pod in pods]
    return {
        "cpu_usage": [(of(pod), [(at, "0.4") for at in times]) for pod in pods],
        "memory_working_set": [(of(pod), [(at, str(2**30)) for at in times]) for pod in pods],
        "up{": [(labels, [(now, "1")]) for labels in known],
    }


def test_a_history_of_prometheus() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        source = OldPrometheus(**history_of(api, "web-0", "web-gone"))
        build = partial(recommender_program, options=RecommenderOptions(storage="prometheus"), prometheus=source)
        async with running(api, build) as run:
            await asyncio.sleep(1)
            driver = run.driver
            assert isinstance(driver, VpaRecommender)
            assert sorted(driver.state.pods) == [(NAMESPACE, "web-0"), (NAMESPACE, "web-gone")]
            cpu, memory, labels = source.queries
            assert cpu.query.startswith("rate(container_cpu_usage_seconds_total{")
            assert (cpu.step, cpu.start) == (3600 * SECOND, cpu.end - 8 * 24 * 3600 * SECOND)
            assert memory.query.startswith("container_memory_working_set_bytes{")
            assert (labels.query, labels.start) == ('up{job="kubernetes-pods"}', None)
            requests = "vpa_recommender_prometheus_client_api_requests_count"
            assert run.metric(requests, code="200", method="post") == 3
            await asyncio.sleep(MINUTE)
            # What both pods used counts, also that of the one that is gone.
            assert sorted(driver.state.pods) == [(NAMESPACE, "web-0"), (NAMESPACE, "web-1")]
            assert recommended(api)["c"]["cpu"] == "476m"
            ((_, aggregate),) = driver.state.aggregates.items()
            assert int(driver.state.store.samples[aggregate.row]) == 96
            assert api.server.all(CHECKPOINTS) == []

    against(case)


def test_partial_history_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """Thanos and Mimir give what they have, and warn."""

    class Partial(OldPrometheus):
        async def query(self, question: QueryPrometheus) -> bytes | ApiError:
            result = await super().query(question)
            assert isinstance(result, bytes)
            return json.dumps({**json.loads(result), "warnings": ["store s-1 is away"]}).encode()

    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        source = Partial(**history_of(api, "web-0"))
        build = partial(recommender_program, options=RecommenderOptions(storage="prometheus"), prometheus=source)
        async with running(api, build):
            await asyncio.sleep(1)
            await minutes(api, 2)
            assert recommended(api)["c"]["cpu"] == "476m"

    with caplog.at_level("ERROR", "kscale"):
        against(case)
    messages = [each.getMessage() for each in caplog.records]
    assert messages.count("Prometheus warns of the cluster history: store s-1 is away") == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            {"memory_working_set": ApiError("bad_data: no", 400)},
            f"{NO_USAGE}: bad_data: no",
        ),
        ({"up{": None}, "Cannot get cluster history: cannot read last labels: context deadline exceeded"),
        (
            {"cpu_usage": [({"namespace": "x"}, [(1, "1")])]},
            f"{NO_USAGE}: cannot get container ID from labels: no pod_name label",
        ),
    ],
)
def test_a_prometheus_that_does_not_answer(
    answer: dict[str, Any], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes on without: there are no checkpoints to write over."""

    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        source = OldPrometheus(**{**history_of(api, "web-0"), **answer})
        build = partial(recommender_program, options=RecommenderOptions(storage="prometheus"), prometheus=source)
        async with running(api, build) as run:
            await asyncio.sleep(6 * MINUTE)
            driver = run.driver
            assert isinstance(driver, VpaRecommender)
            await minutes(api, 2)
            assert recommended(api)["c"]["cpu"] == "247m"

    with caplog.at_level("ERROR", "kscale"):
        against(case)
    assert message in [each.getMessage() for each in caplog.records]


def test_pods_that_come_and_go() -> None:
    """What is known is what there is: a pod that is gone is forgotten, and one of its name is another."""

    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        async with running(api, building()) as run:
            await asyncio.sleep(1)
            await minutes(api, 2)
            driver = run.driver
            assert isinstance(driver, VpaRecommender)
            assert sorted(driver.state.pods) == [(NAMESPACE, "web-0"), (NAMESPACE, "web-1")]
            api.server.drop("pods", "web-1", NAMESPACE)
            api.server.put("pods", running_pod("web-2", "web", phase="Pending"))
            await minutes(api, 1)
            assert sorted(driver.state.pods) == [(NAMESPACE, "web-0")]
            api.server.put("pods", running_pod("web-2", "web"))
            async with api.away():
                api.server.drop("pods", "web-0", NAMESPACE)
                await api.forget()
            await minutes(api, 2)
            assert sorted(driver.state.pods) == [(NAMESPACE, "web-2")]

    against(case)


def test_a_dry_run_writes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        async with running(api, building(), dry_run=True):
            await asyncio.sleep(1)
            await minutes(api, 2)
            assert writes(api) == []

    with caplog.at_level("INFO", "kscale"):
        against(case)
    messages = [each.getMessage() for each in caplog.records]
    assert any(line.startswith("dry run: Patch ") and '"VerticalPodAutoscaler"' in line for line in messages)


def test_health_depends_on_recent_rounds() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))

        def health(run: Run) -> str:
            check = run.programs[0].health
            assert check is not None
            return check.check(run.around[0].steady.now())

        async with running(api, building()) as run:
            await asyncio.sleep(20 * MINUTE)
            assert health(run) == ""
            async with api.away():
                await asyncio.sleep(4 * MINUTE)
                assert health(run) == ""  # it goes on with what it knows
            api.server.delay = 600  # nothing is answered in time
            await asyncio.sleep(10 * MINUTE)
            assert health(run).startswith("Error: last activity more than ")

    against(case)


@pytest.mark.parametrize("seed", range(3))
def test_recommendations_survive_broken_connections_and_delays(seed: int) -> None:
    """Connections break, answers are slow: what is recommended in the end is the same."""

    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        async with running(api, building()):
            await asyncio.sleep(1)
            for _ in range(4):
                await minutes(api, 1)
                await api.cut()
            await asyncio.sleep(MINUTE)
            assert recommended(api) == {"c": {"cpu": "247m", "memory": "380258472"}}

    against(case, seed=seed, cut=seed, delay=0.01)


def test_rounds_start_at_clock_ticks() -> None:
    """A round that takes long is followed by the next at once, and by that of the clock then."""
    from kscale.drivers.vpa_watches import Ticker

    ticker = Ticker(10 * SECOND, 5 * SECOND)
    assert ticker.due == 15 * SECOND
    ticker.advance(16 * SECOND)
    assert ticker.due == 25 * SECOND
    ticker.advance(48 * SECOND)
    assert ticker.due == 55 * SECOND
    ticker.advance(55 * SECOND)
    assert ticker.due == 65 * SECOND
