"""What a recommender with a strategy asks of Prometheus, and for how long, in virtual time."""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from functools import partial
from typing import Any

import pytest

from kscale.effects import SECOND, ApiError, InBackground, Outcome, Progress, QueryPrometheus, Together, Within
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.decode import from_dict
from kscale.objects.selectors import Selector
from kscale.series.prometheus import PrometheusHistory
from kscale.vpa.model.saved_state import RecommenderState
from kscale.vpa.recommender.strategy_advice import StrategyAdvisor
from kscale.vpa.strategies import find_strategy
from unit.drivers.set_clock import SetClock
from unit.drivers.test_vpa_recommender import MINUTE, VPAS, OldPrometheus, against, minutes, recommended
from unit.drivers.test_vpa_strategies import HOUR, building, count_usage_queries, prometheus, provided, recommending
from unit.drivers.vpa_world import NAMESPACE, autoscaler, cluster, meta, running, running_pod, workload
from unit.world.test_informer import FakeApi


def beside(api: FakeApi, name: str, namespace: str) -> None:
    """A workload of one pod with its VPA, in a namespace of its own."""
    api.server.put("namespaces", {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": namespace}})
    for plural, item in (
        ("replicasets.apps", workload(name, 1)),
        ("pods", running_pod(f"{name}-0", name)),
        (VPAS, autoscaler(name)),
    ):
        api.server.put(plural, {**item, "metadata": {**item["metadata"], "namespace": namespace}})


class Apart(OldPrometheus):
    """Of a namespace it says something else; None: nothing, ever."""

    def __init__(self, source: OldPrometheus, namespace: str, says: ApiError | None) -> None:
        super().__init__(**source.answers)
        self.namespace, self.says = namespace, says

    async def query(self, question: QueryPrometheus) -> bytes | ApiError:
        if f'namespace="{self.namespace}"' in question.query:
            if self.says is None:
                await asyncio.sleep(HOUR)
            return self.says or ApiError("too late", 504)
        return await super().query(question)


@pytest.mark.parametrize("says", [ApiError("bad_data: too many samples", 422), None])
def test_unanswered_namespace_delays_no_other(says: ApiError | None) -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        beside(api, "big", "aaa")
        source = Apart(prometheus(api), "aaa", says)
        async with running(api, building(source)) as run:
            await asyncio.sleep(1)
            await minutes(api, 3)
            assert recommended(api)["c"]["cpu"] == "780m"
            assert count_usage_queries(source) == 1
            for _ in range(12):
                await minutes(api, 1)
                assert run.programs[0].health.check(run.around[0].steady.now()) == ""
            assert count_usage_queries(source) == 2

    against(case)


def test_while_prometheus_hangs_rounds_go_on() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        source = prometheus(api)
        advisor = StrategyAdvisor(
            find_strategy("percentile"), PrometheusHistory(), interval=HOUR * SECOND, timeout=HOUR * SECOND
        )
        async with running(api, partial(building(source), advisor=advisor)) as run:
            await asyncio.sleep(1)
            source.answers = dict.fromkeys(source.answers)
            for _ in range(12):
                await minutes(api, 1)
                assert run.programs[0].health.check(run.around[0].steady.now()) == ""
            assert provided(api) == ("False", "NoSamples")

    against(case)


class Slow(OldPrometheus):
    """It thinks about memory for a minute and a half."""

    async def query(self, question: QueryPrometheus) -> bytes | ApiError:
        answer = await super().query(question)
        if "memory" in question.query and f'namespace="{NAMESPACE}"' in question.query:
            await asyncio.sleep(1.5 * MINUTE)
        return answer


def patient(source: OldPrometheus) -> Any:
    advisor = StrategyAdvisor(
        find_strategy("percentile"), PrometheusHistory(), interval=10 * MINUTE * SECOND, timeout=5 * MINUTE * SECOND
    )
    return partial(building(source), advisor=advisor)


def test_an_answer_that_takes_longer_than_a_round_comes_in_a_later_one() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        source = Slow(**prometheus(api).answers)
        async with running(api, patient(source)) as run:
            await asyncio.sleep(1)
            await minutes(api, 2)
            assert provided(api) == ("False", "NoSamples")  # a round has gone on meanwhile
            await minutes(api, 2)
            assert recommended(api)["c"]["cpu"] == "780m"
            assert count_usage_queries(source) == 1
            name, labels = "vpa_recommender_metric_server_responses", {"client_name": "default-metrics-client"}
            assert run.metric(name, is_error="false", **labels) == 4  # a round each minute

    against(case)


def test_interval_starts_at_the_request_even_if_the_clock_is_set() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        source = Slow(**prometheus(api).answers)
        clock = SetClock(api.clock)
        async with running(api, patient(source), clock=clock):
            await asyncio.sleep(1)
            await minutes(api, 1)
            clock.ahead = HOUR * SECOND
            await minutes(api, 8)
            assert count_usage_queries(source) == 1
            await minutes(api, 3)
            assert count_usage_queries(source) == 2

    against(case)


def test_deleted_vpa_ignores_a_late_answer() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        cluster(api, "db", pods=1)
        api.server.put(VPAS, autoscaler("web"))
        source = Slow(**prometheus(api).answers)
        async with running(api, patient(source)):
            await asyncio.sleep(1)
            await minutes(api, 1)
            api.server.put(VPAS, autoscaler("web", "db"))  # from now on it is another
            await minutes(api, 4)
            assert recommended(api) == {}
            assert count_usage_queries(source) == 2  # it was not there when the first was asked

    against(case)


def test_workload_added_during_a_request_is_requested_next_round() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        source = Slow(**prometheus(api).answers)
        late = {"namespace": NAMESPACE, "pod_name": "late-0", "name": "c"}
        async with running(api, patient(source)):
            await asyncio.sleep(1)
            await minutes(api, 1)
            cluster(api, "late", pods=1)
            api.server.put(VPAS, autoscaler("late"))
            now = api.clock.now() // SECOND
            for metric, value in (("cpu_usage", "2"), ("memory_working_set", str(2**30))):
                source.answers[metric] = [*source.answers[metric], (late, [(now, value)])]
            await minutes(api, 1)
            assert recommended(api, "late") == {}
            await minutes(api, 3)
            assert recommended(api, "late")["c"]["cpu"] == "2"
            assert count_usage_queries(source) == 2  # the interval, ten minutes, is not over

    against(case)


class Hangs(OldPrometheus):
    """Of some namespaces it never says anything. ``most``: of how many it was asked at the same time."""

    def __init__(self, source: OldPrometheus, *namespaces: str) -> None:
        super().__init__(**source.answers)
        self.namespaces, self.now, self.most = namespaces, 0, 0
        self.times: Counter[str] = Counter()

    async def query(self, question: QueryPrometheus) -> bytes | ApiError:
        for namespace in self.namespaces:
            if f'namespace="{namespace}"' not in question.query:
                continue
            self.times[namespace] += 1
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                await asyncio.sleep(HOUR)
            finally:
                self.now -= 1
        return await super().query(question)


def hanging(api: FakeApi, *namespaces: str) -> Hangs:
    """A VPA, and another one in each of these, of which there is never an answer."""
    cluster(api)
    api.server.put(VPAS, autoscaler("web"))
    for namespace in namespaces:
        beside(api, "big", namespace)
    return Hangs(prometheus(api), *namespaces)


def test_three_hanging_namespaces_do_not_delay_new_ones() -> None:
    async def case(api: FakeApi) -> None:
        source = hanging(api, "aaa", "aab", "aac")
        async with running(api, patient(source)):
            await asyncio.sleep(1)
            await minutes(api, 2)
            assert recommended(api)["c"]["cpu"] == "780m"
            api.server.put(VPAS, autoscaler("other", "web", updatePolicy={"updateMode": "Off"}))
            await minutes(api, 2)
            assert recommended(api, "other")["c"]["cpu"] == "780m"

    against(case)


def test_at_most_four_namespaces_are_requested_at_once() -> None:
    async def case(api: FakeApi) -> None:
        many = [f"a{i}" for i in range(6)]
        source = hanging(api, *many)
        async with running(api, building(source)) as run:
            await asyncio.sleep(1)
            await minutes(api, 4)
            assert recommended(api)["c"]["cpu"] == "780m"
            await minutes(api, 8)
            assert source.most == 4
            assert run.programs[0].health.check(run.around[0].steady.now()) == ""

    against(case)


def test_hanging_namespaces_leave_a_slot_for_new_ones() -> None:
    """Once each has had the time of a question."""

    async def case(api: FakeApi) -> None:
        many = [f"a{i}" for i in range(9)]
        source = hanging(api, *many)
        async with running(api, patient(source)):
            await asyncio.sleep(1)
            await minutes(api, 20)
            assert source.times.keys() == set(many)
            before = dict(source.times)
            for i in range(3):
                api.server.put(VPAS, autoscaler(f"other{i}", "web", updatePolicy={"updateMode": "Off"}))
                await minutes(api, 2)
                assert recommended(api, f"other{i}")["c"]["cpu"] == "780m"
                assert source.now == 3
            await minutes(api, 20)
            assert all(source.times[name] > before[name] for name in many)  # in turns
            source.namespaces = ()
            await minutes(api, 20)
            assert source.now == 0

    against(case)


def test_rounds_do_not_wait_for_unrequested_namespaces() -> None:
    """Nor do they ask for labels that nobody needs: where three hang, a fourth that had no answer waits."""

    async def case(api: FakeApi) -> None:
        many = [f"a{i}" for i in range(9)]
        source = hanging(api, *many)

        def of_labels() -> int:
            return sum("namespace=" not in each.query for each in source.queries)

        async with running(api, patient(source)):
            await asyncio.sleep(1)
            await minutes(api, 22)
            before, begun = of_labels(), sum(source.times.values())
            await minutes(api, 20)
            assert sum(source.times.values()) == begun + 4 * 3  # each for five minutes
            assert of_labels() == before + 4

    against(case)


def test_samples_are_released_before_the_next_namespace() -> None:
    live_counts = []

    class Looks(Hangs):
        async def query(self, question: QueryPrometheus) -> bytes | ApiError:
            if 'namespace="zed"' in question.query and "cpu" in question.query:
                live_counts.append(sum(type(each).__name__ == "_Samples" for each in gc.get_objects()))
            return await super().query(question)

    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        for namespace in ("aaa", "aab", "aac", "zed"):
            beside(api, "big", namespace)
        source = Looks(prometheus(api), "aaa", "aab", "aac")
        async with running(api, building(source)):
            await asyncio.sleep(1)
            await minutes(api, 1)

    against(case)
    assert live_counts == [0]


def test_namespaces_are_requested_again_after_an_error() -> None:
    begin = 1_800_000_000 * SECOND
    state = RecommenderState()
    state.observed = [state.add_vpa(from_dict(autoscaler("web"), VerticalPodAutoscaler), Selector()).key]
    advisor = StrategyAdvisor(
        find_strategy("percentile"), PrometheusHistory(), interval=HOUR * SECOND, timeout=MINUTE * SECOND
    )

    def begun() -> Any:
        action = next(advisor.refresh_steps(state, Progress(begin)))
        assert isinstance(action, InBackground)
        return action.machine(begin)

    labels = begun()
    next(labels)
    with pytest.raises(ZeroDivisionError):
        labels.throw(ZeroDivisionError())

    labels, action = begun(), None
    answer = Outcome(at=begin, value=b'{"status": "success", "data": {"resultType": "matrix", "result": []}}')
    while not isinstance(action, Together):
        value = answer if isinstance(action, Within) else None
        action = labels.send(None if action is None else Outcome(at=begin, value=value))
    samples = action.machines[0](begin)
    next(samples)
    with pytest.raises(ZeroDivisionError):
        samples.throw(ZeroDivisionError())
    begun()


def test_answers_have_a_limit() -> None:
    async def case(api: FakeApi) -> None:
        source = prometheus(api)
        async with recommending(api, source):
            limits = {each.most_bytes for each in source.queries}
            assert limits == {None, 512 * 2**20}  # the history at the start is upstream's, and has none

    against(case)


def test_samples_are_counted() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        async with running(api, building(prometheus(api))) as run:
            await asyncio.sleep(1)
            await minutes(api, 1)
            counts = [run.metric("kscale_strategy_samples_total", resource=name) for name in ("cpu", "memory")]
            assert counts == [2 * 48, 2 * 48]

    against(case)


def test_samples_that_no_strategy_is_given_are_not_counted() -> None:
    class NoMemory(OldPrometheus):
        async def query(self, question: QueryPrometheus) -> bytes | ApiError:
            if f'namespace="{NAMESPACE}"' in question.query and "memory" in question.query:
                return ApiError("bad_data: too many samples", 422)
            return await super().query(question)

    async def case(api: FakeApi) -> None:
        cluster(api)
        api.server.put(VPAS, autoscaler("web"))
        async with running(api, building(NoMemory(**prometheus(api).answers))) as run:
            await asyncio.sleep(1)
            await minutes(api, 3)
            assert provided(api) == ("False", "NoSamples")
            assert not run.metric("kscale_strategy_samples_total", resource="cpu")

    against(case)


def test_oom_kill_of_an_unknown_pod_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody knows its labels. Upstream's ``RecordOOM`` refuses it as well."""

    async def case(api: FakeApi) -> None:
        async with recommending(api):
            before = recommended(api)
            about = {"kind": "Pod", "namespace": NAMESPACE, "name": "web-9"}
            annotations = {
                "offending_containers": "c",
                "offending_containers_usage": "8Gi",
                "starved_resource": "memory",
            }
            metadata = meta("web-9.1", annotations=annotations, creationTimestamp="2027-01-15T08:01:00Z")
            event = {"kind": "Event", "apiVersion": "v1", "metadata": metadata, "reason": "Evicted"}
            api.server.put("events", {**event, "type": "Warning", "involvedObject": about})
            await minutes(api, 12)
            assert recommended(api) == before

    against(case)
    messages = {each.getMessage() for each in caplog.records}
    assert any(each.startswith(f"Failed to record OOM: {NAMESPACE}/web-9/c: KeyError: ") for each in messages)


def test_prometheus_warnings_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Warns(OldPrometheus):
        async def query(self, question: QueryPrometheus) -> bytes | ApiError:
            answer = await super().query(question)
            assert isinstance(answer, bytes)
            return json.dumps({**json.loads(answer), "warnings": ["partial response"]}).encode()

    async def case(api: FakeApi) -> None:
        async with recommending(api, Warns(**prometheus(api).answers)):
            pass

    against(case)
    message = "Prometheus warns of the samples for the strategy percentile: partial response"
    assert [each.getMessage() for each in caplog.records].count(message) == 1
