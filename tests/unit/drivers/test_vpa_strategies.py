"""The recommender with a strategy of samples, in virtual time: Prometheus has them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kscale.drivers.vpa_recommender import recommender_program
from kscale.effects import SECOND, ApiError
from kscale.objects.quantity import Quantity
from kscale.series.prometheus import PrometheusHistory
from kscale.vpa import RecommenderOptions
from kscale.vpa.recommender.strategy_advice import StrategyAdvisor
from kscale.vpa.strategies import ContainerUsage, Strategy, find_strategy
from unit.drivers.set_clock import SetClock
from unit.drivers.test_vpa_recommender import (
    MINUTE,
    VPAS,
    OldPrometheus,
    against,
    minutes,
    recommended,
)
from unit.drivers.vpa_world import NAMESPACE, autoscaler, cluster, meta, running, running_pod, used, workload
from unit.world.test_informer import FakeApi

HOUR = 3600
GIB = 2**30
CPU = {"web-0": 0.4, "web-gone": 0.8}
MEMORY = {"web-0": GIB, "web-gone": 2 * GIB}


def usage() -> ContainerUsage:
    """What Prometheus says of each pod: less and less, over two days."""
    shape = np.linspace(1.0, 0.5, 48)
    return ContainerUsage(
        cpu={pod: cores * shape for pod, cores in CPU.items()},
        memory={pod: size * shape for pod, size in MEMORY.items()},
    )


def prometheus(api: FakeApi, whose: Callable[[str], str] = lambda pod: pod) -> OldPrometheus:
    now = api.clock.now() // SECOND
    used = usage()

    def series(samples: dict[str, Any]) -> list[tuple[dict[str, str], list[tuple[float, str]]]]:
        return [
            (
                {"namespace": NAMESPACE, "pod_name": whose(pod), "name": "c"},
                [(now - HOUR * (47 - i), repr(float(value))) for i, value in enumerate(values)],
            )
            for pod, values in samples.items()
        ]

    labels = [{"kubernetes_namespace": NAMESPACE, "kubernetes_pod_name": pod, "pod_label_app": "web"} for pod in CPU]
    return OldPrometheus(
        cpu_usage=series(used.cpu),
        memory_working_set=series(used.memory),
        **{"up{": [(each, [(now, "1")]) for each in labels]},
    )


def building(source: OldPrometheus, strategy: Strategy | None = None, interval: int = 10 * MINUTE) -> Any:
    history = PrometheusHistory()
    advisor = StrategyAdvisor(
        strategy or find_strategy("percentile"), history, interval=interval * SECOND, timeout=MINUTE * SECOND
    )
    options = RecommenderOptions(storage="prometheus")
    return partial(recommender_program, options=options, history=history, prometheus=source, advisor=advisor)


def recommendation(api: FakeApi, name: str = "web") -> list[dict[str, Any]]:
    status = api.server.get(VPAS, name, NAMESPACE).get("status", {})
    result: list[dict[str, Any]] = status.get("recommendation", {}).get("containerRecommendations", [])
    return result


def provided(api: FakeApi, name: str = "web") -> tuple[str, str]:
    (result,) = api.server.get(VPAS, name, NAMESPACE)["status"]["conditions"]
    assert result["type"] == "RecommendationProvided"
    return result["status"], result.get("reason", "")


def count_usage_queries(source: OldPrometheus) -> int:
    """How often the samples of one namespace were asked for."""
    return sum(f'namespace="{NAMESPACE}"' in each.query and "memory" in each.query for each in source.queries)


@asynccontextmanager
async def recommending(
    api: FakeApi, source: OldPrometheus | None = None, *, clock: SetClock | None = None, **how: Any
) -> AsyncIterator[OldPrometheus]:
    """A workload with its VPA, and a recommender of which the first round is over; what Prometheus it asks."""
    cluster(api)
    api.server.put(VPAS, autoscaler("web"))
    source = source or prometheus(api)
    async with running(api, building(source, **how), **({} if clock is None else {"clock": clock})):
        await asyncio.sleep(1)
        await minutes(api, 1)
        yield source


def test_strategy_targets_are_capped_by_bounds() -> None:
    async def case(api: FakeApi) -> None:
        async with recommending(api) as source:
            expected = find_strategy("percentile").advise(usage())
            (one,) = recommendation(api)
            assert (expected.cpu_request, expected.memory_request) == (780, 2356 * 2**20)  # of the pod that is gone
            assert one["target"] == one["uncappedTarget"] == {"cpu": "780m", "memory": "2356Mi"}
            for resource in ("cpu", "memory"):
                lower, target, upper = (
                    Quantity(one[name][resource]) for name in ("lowerBound", "target", "upperBound")
                )
                assert lower <= target <= upper
            assert provided(api) == ("True", "")
            await minutes(api, 8)
            assert count_usage_queries(source) == 1
            await minutes(api, 3)  # the interval is over
            assert count_usage_queries(source) == 2
            assert recommendation(api) == [
                one | {key: recommendation(api)[0][key] for key in ("lowerBound", "upperBound")}
            ]

    against(case)


@pytest.mark.parametrize("hours", [1, -1])
def test_the_interval_is_that_of_before_when_the_clock_is_set(hours: int) -> None:
    async def case(api: FakeApi) -> None:
        clock = SetClock(api.clock)
        async with recommending(api, clock=clock) as source:
            clock.ahead = hours * HOUR * SECOND
            await minutes(api, 7)
            assert count_usage_queries(source) == 1
            await minutes(api, 4)
            assert count_usage_queries(source) == 2

    against(case)


def test_a_vpa_that_is_new_does_not_wait() -> None:
    async def case(api: FakeApi) -> None:
        async with recommending(api) as source:
            await minutes(api, 1)
            api.server.put(VPAS, autoscaler("other", "web", updatePolicy={"updateMode": "Off"}))
            await minutes(api, 1)
            assert count_usage_queries(source) == 2
            assert recommended(api, "other") == recommended(api)

    against(case)


def test_missing_samples_keep_the_recommendation_and_set_a_condition(caplog: pytest.LogCaptureFixture) -> None:
    """After a restart too: nothing is recommended from what metrics-server says alone."""

    async def case(api: FakeApi) -> None:
        cluster(api)
        before = {"recommendation": {"containerRecommendations": [{"containerName": "c", "target": {"cpu": "5"}}]}}
        condition = {"type": "RecommendationProvided", "status": "True", "lastTransitionTime": "2027-01-01T00:00:00Z"}
        api.server.put(VPAS, {**autoscaler("web"), "status": {**before, "conditions": [condition]}})
        cluster(api, "new", pods=1)
        api.server.put(VPAS, autoscaler("new"))
        source = prometheus(api)
        answers, source.answers = source.answers, dict.fromkeys(source.answers, ApiError("bad_gateway: no", 502))
        async with running(api, building(source)):
            await asyncio.sleep(1)
            await minutes(api, 2)
            assert recommended(api) == {"c": {"cpu": "5"}}
            assert provided(api) == ("True", "NoSamples")
            assert (recommended(api, "new"), provided(api, "new")) == ({}, ("False", "NoSamples"))
            source.answers = answers
            await minutes(api, 1)
            assert recommended(api)["c"]["cpu"] == "780m"
            assert provided(api) == ("True", "")
            assert recommended(api, "new") == {}  # of its pods Prometheus knows nothing
            source.answers = dict.fromkeys(source.answers, ApiError("bad_gateway: no", 502))
            await minutes(api, 12)
            assert recommended(api)["c"]["cpu"] == "780m"

    against(case)
    message = "Cannot get samples for the strategy percentile: bad_gateway: no"
    assert message in {each.getMessage() for each in caplog.records}


def test_a_kill_for_memory_counts_for_the_strategy() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        killed = {"terminated": {"reason": "OOMKilled", "finishedAt": "2027-01-15T07:00:00Z", "exitCode": 137}}
        at = [{"name": "c", "restartCount": 1, "state": {"running": {}}, "lastState": killed}]
        api.server.put("pods", running_pod("web-0", "web", memory="4Gi", status={"containerStatuses": at}))
        api.server.put(VPAS, autoscaler("web"))
        async with running(api, building(prometheus(api))):
            await asyncio.sleep(1)
            await minutes(api, 1)
            assert recommended(api)["c"]["memory"] == "5Gi"  # a quarter on top
            api.server.drop("pods", "web-0", NAMESPACE)  # as when it is evicted
            await minutes(api, 12)
            assert recommended(api)["c"]["memory"] == "5Gi"

    against(case)


def test_failing_strategy_affects_only_its_recommendation(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mine.py").write_text(
        "from kscale.vpa.strategies import StrategyAdvice, Strategy\n\n\n"
        "class Mine(Strategy):\n"
        "    name = 'mine'\n\n"
        "    def advise(self, usage):\n"
        "        if not usage.cpu:\n"
        "            raise ValueError('nothing of it')\n"
        "        return StrategyAdvice(cpu_request=usage.recommendation.target['cpu'].milli_value() + 1)\n"
    )

    upstreams = 0

    async def plain(api: FakeApi) -> None:
        nonlocal upstreams
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        async with running(api, partial(building(prometheus(api)), advisor=None)):
            await asyncio.sleep(1)
            await minutes(api, 1)
            upstreams = Quantity(recommended(api)["c"]["cpu"]).milli_value()

    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        api.server.put("replicasets.apps", workload("lone", 1))
        api.server.put("pods", running_pod("lone-0", "lone"))
        api.server.put(VPAS, autoscaler("lone"))
        source = prometheus(api)
        async with running(api, building(source, find_strategy(f"{tmp_path}/mine.py:Mine"))):
            await asyncio.sleep(1)
            await minutes(api, 1)
            assert recommended(api) == {"c": {"cpu": f"{upstreams + 1}m"}}
            assert provided(api, "lone") == ("False", "StrategyFailed")
            await minutes(api, 8)
            assert (count_usage_queries(source), len(failures())) == (1, 1)
            await minutes(api, 3)  # the interval is over
            assert (count_usage_queries(source), len(failures())) == (2, 2)

    def failures() -> list[str]:
        messages = (each.getMessage() for each in caplog.records)
        return [
            each for each in messages if f"container c of {NAMESPACE}/lone: failed: ValueError: nothing of it" in each
        ]

    against(plain)
    against(case)


def test_recreated_vpa_is_new() -> None:
    """Also the last one of its namespace."""

    async def case(api: FakeApi) -> None:
        async with recommending(api) as source:
            api.server.drop(VPAS, "web", NAMESPACE)
            await minutes(api, 2)
            assert count_usage_queries(source) == 1
            api.server.put(VPAS, autoscaler("web"))
            await minutes(api, 1)
            assert count_usage_queries(source) == 2
            assert recommended(api)["c"]["cpu"] == "780m"

    against(case)


def test_pods_that_no_vpa_selects_do_not_count() -> None:
    async def case(api: FakeApi) -> None:
        api.server.put("pods", {**running_pod("stranger", "x"), "metadata": meta("stranger", labels={"app": "x"})})
        names = {"web-0": "web-0", "web-gone": "stranger"}
        async with recommending(api, prometheus(api, names.__getitem__)):
            assert recommended(api)["c"]["cpu"] == "390m"

    against(case)


def test_retargeted_vpa_uses_no_old_samples() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        cluster(api, "db", pods=1)
        api.server.put(VPAS, autoscaler("web"))
        source = prometheus(api)
        async with running(api, building(source, interval=60 * MINUTE)):
            await asyncio.sleep(1)
            await minutes(api, 2)
            assert recommended(api)["c"]["cpu"] == "780m"
            api.server.put(
                VPAS, {**autoscaler("web", "db"), "status": api.server.get(VPAS, "web", NAMESPACE)["status"]}
            )
            await minutes(api, 2)
            assert count_usage_queries(source) == 2
            assert recommended(api) == {}

    against(case)


def test_a_container_that_is_new_does_not_wait() -> None:
    """It is asked of once, when it has been measured."""

    async def case(api: FakeApi) -> None:
        async with recommending(api, interval=60 * MINUTE) as source:
            await minutes(api, 1)
            assert count_usage_queries(source) == 1
            pod = running_pod("web-2", "web")
            pod["spec"]["containers"][0]["name"] = "d"
            api.server.put("pods", pod)
            await minutes(api, 5)
            assert count_usage_queries(source) == 1
            for answer in ("cpu_usage", "memory_working_set"):
                ((labels, values), *_) = source.answers[answer]
                source.answers[answer].append(({**labels, "pod_name": "web-2", "name": "d"}, values))
            used(api, "web-2", "200m", "300Mi")
            measured = api.server.get("pods.metrics.k8s.io", "web-2", NAMESPACE)
            measured["containers"][0]["name"] = "d"
            api.server.put("pods.metrics.k8s.io", measured)
            await minutes(api, 5)
            assert count_usage_queries(source) == 2
            assert recommended(api)["d"]["cpu"] == "390m"

    against(case)
