"""Load, usage and metrics of the simulated world."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from kscale.effects import LAST_TIME, SECOND, ApiError, GetMetric, Outcome, VirtualTime
from kscale.objects.api.apps import StatefulSet
from kscale.objects.decode import from_dict
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.quantity import Quantity
from kscale.world.simulated.api_server import ApiObjects
from kscale.world.simulated.controllers import Key, OwnedPods, WorkloadCounts
from kscale.world.simulated.kubelet import PodTimes
from kscale.world.simulated.load import DurationDistribution, Load, Queue, Signal, Usage
from kscale.world.simulated.metrics import ExternalMetric, Pipeline
from kscale.world.simulated.world import WorldOptions
from unit.world.simulated_cases import T0, deployment, pod_template, pods, run, scale, workload, world_of


def test_signals() -> None:
    signal = Signal([0, 10 * SECOND, 20 * SECOND], [100, 200, 0], repeat=40 * SECOND)
    assert [signal.get_value(second * SECOND) for second in (-5, 0, 9, 10, 25, 40, 55)] == [
        100,
        100,
        100,
        200,
        0,
        100,
        200,
    ]
    assert signal.mean(5 * SECOND, 15 * SECOND) == 150
    assert signal.mean(0, 40 * SECOND) == signal.mean(400 * SECOND, 480 * SECOND) == 75
    assert [signal.flat_until(second * SECOND) for second in (0, 10, 20, 45)] == [
        10 * SECOND, 20 * SECOND, 40 * SECOND, 50 * SECOND
    ]  # fmt: skip
    assert Signal.constant(3).flat_until(0) == LAST_TIME
    with pytest.raises(ValueError, match="rising times"):
        Signal([1, 1], [0, 0])


@given(
    steps=st.lists(st.tuples(st.integers(1, 40), st.integers(-1, 5)), min_size=1, max_size=6),
    again=st.one_of(st.just(0), st.integers(1, 9)),
    windows=st.lists(st.tuples(st.integers(-60, 400), st.integers(0, 60)), min_size=1, max_size=12),
)
def test_signal_means_do_not_depend_on_earlier_queries(
    steps: list[tuple[int, int]], again: int, windows: list[tuple[int, int]]
) -> None:
    times = np.cumsum([0, *(gap for gap, _ in steps)])[:-1]
    period = int(times[-1]) + again if again else 0
    values = [value for _, value in steps]
    half = SECOND // 2_000  # half a millisecond
    signal = Signal(times * 2 * half, values, repeat=period * 2 * half)

    def value(place: int) -> int:
        """From millisecond to millisecond."""
        within = place % period if period and place >= 0 else place
        return values[max(int(np.searchsorted(times, within, side="right")) - 1, 0)]

    for begin, width in windows:  # in halves of milliseconds
        low, high = begin // 2, (begin + width) // 2
        total = sum(value(place) for place in range(low, high))
        expected = total // (high - low) if high > low else value(high)
        assert signal.mean(begin * half, (begin + width) * half) == expected


@pytest.mark.parametrize("count", [0, 3, 1 << 19])  # from 2^19 signals on, their number exceeded 64 bits
def test_usage_of_any_number_of_workloads(count: int) -> None:
    time = VirtualTime(lambda _, now: Outcome(at=now), now=T0)
    load = Load(time, OwnedPods(ApiObjects(time)), window=0)
    usage = Usage(signal=Signal([T0, T0 + 60 * SECOND], [2000, 4000], repeat=90 * SECOND), per_pod=True)
    load.usage = {("Deployment", "shop", str(i)): {"cpu": usage} for i in range(count + 1)}
    wanted = [(75, 4000), (-1, 2000), (0, 2000), (30, 2000), (90, 2000), (10**8, 2000), (10**8 + 65, 4000)]
    for second, value in wanted if count < 100 else wanted[:1]:
        at = T0 + second * SECOND
        used = load.used_by_all(at, at + SECOND)
        assert used == {key: {"cpu": value} for key in load.usage}
        assert load.steady_until(at) == usage.signal.flat_until(at)


def test_usage_of_workloads_in_another_order() -> None:
    """Here ``b`` has two pods, and ``a`` four."""
    world = world_of(deployment("a", replicas=4), deployment("b", replicas=2), size=4)
    run(world, 60)
    usage = {"cpu": Usage(signal=Signal.constant(8000), per_pod=False)}
    a, b = ("Deployment", "shop", "a"), ("Deployment", "shop", "b")
    for keys in ((a, b), (b, a)):
        world.load.usage = dict.fromkeys(keys, usage)
        used = world.load.used_by_all(world.time.now, world.time.now + SECOND)
        assert [*used.items()] == [(key, {"cpu": 2000 if key == a else 4000}) for key in keys]


def test_zero_length_scrape_at_a_step_sees_the_new_value() -> None:
    pipeline = Pipeline(scrape=15 * SECOND, window=0, lag=0)
    world = world_of(deployment(replicas=1), options=WorldOptions(pipeline=pipeline))
    world.metrics.external["shop", "jobs"] = [ExternalMetric(signal=Signal([T0, T0 + 30 * SECOND], [250, 900]))]
    values = []
    for _ in range(4):
        run(world, 15)
        value = world.metrics.get(GetMetric(api="external", namespace="shop", metric="jobs"))
        values.append(value.items[0].value.milli_value())
    assert values == [250, 900, 900, 900]


@pytest.mark.parametrize("window", [0, 1, 15, 20])
def test_window_that_ends_at_a_step_excludes_it(window: int) -> None:
    pipeline = Pipeline(scrape=15 * SECOND, window=window * SECOND, lag=0)
    world = world_of(deployment(replicas=1), options=WorldOptions(pipeline=pipeline))
    signal = Signal([T0, T0 + 30 * SECOND], [200, 900])
    world.load.usage["Deployment", "shop", "web"] = {"cpu": Usage(signal=signal, per_pod=True)}
    values = []
    for second in (15, 30, 45, 60):
        run(world, 15)
        result = world.metrics.get(GetMetric(api="resource", namespace="shop", columns=True))
        amounts = result.samples("cpu", result.rows(result.keys))[1].tolist()
        assert amounts == [signal.mean(T0 + (second - window) * SECOND, T0 + second * SECOND)]
        values += amounts
    assert values == [200, 200 if window else 900, 900 if window < 20 else (5 * 200 + 15 * 900) // 20, 900]


def test_unchanged_scrape_is_reused() -> None:
    world = world_of(deployment(replicas=2), options=WorldOptions(pipeline=Pipeline(scrape=15 * SECOND)))
    usage = Usage(signal=Signal([T0, T0 + 60 * SECOND], [2000, 4000]), per_pod=True)
    world.load.usage["Deployment", "shop", "web"] = {"cpu": usage}
    world.metrics.external["shop", "jobs"] = [ExternalMetric(signal=Signal([T0, T0 + 100 * SECOND], [1, 7]))]
    result = []
    for _ in range(9):
        run(world, 15)
        changes = world.metrics.changes
        request = GetMetric(api="resource", namespace="shop", columns=True)
        columns = world.metrics.get(request)
        value = world.metrics.get(GetMetric(api="external", namespace="shop", metric="jobs"))
        amounts = columns.samples("cpu", columns.rows(columns.keys))[1].tolist()
        result.append((changes, amounts, value.items[0].value.milli_value()))
    assert [each[1] for each in result] == [[2000, 2000]] * 4 + [[4000, 4000]] * 5
    assert [each[2] for each in result] == [1] * 6 + [3] + [7] * 2
    assert [each[0] - result[0][0] for each in result] == [0, 0, 0, 0, 1, 1, 2, 3, 3]


def test_usage_is_divided_by_ready_pods_with_scrape_lag() -> None:
    item = deployment(replicas=4)
    world = world_of(
        item, options=WorldOptions(pipeline=Pipeline(scrape=15 * SECOND, window=15 * SECOND, lag=20 * SECOND))
    )
    world.load.usage["Deployment", "shop", "web"] = {
        "cpu": Usage(signal=Signal([0, T0 + 45 * SECOND], [2000, 4000])),
        "memory": Usage(signal=Signal.constant(100 * 2**20 * 1000), per_pod=True),
    }
    request = GetMetric(api="resource", namespace="shop", selector="app=web")
    run(world, 10)
    assert world.metrics.get(request).items == []
    run(world, 54)
    result = world.metrics.get(request).items
    assert [each.containers[0].usage["cpu"].milli_value() for each in result] == [500] * 4
    assert (result[0].timestamp, result[0].window) == ("2027-01-15T08:00:30Z", "15s")
    assert result[0].containers[0].usage["memory"] == Quantity("100Mi")
    run(world, 16)
    assert world.metrics.get(request).items[0].containers[0].usage["cpu"].milli_value() == 1000
    run(world, 15)
    columns = world.metrics.get(GetMetric(api="resource", namespace="shop", columns=True))
    assert sorted(columns.keys) == sorted(f"shop/{pod.name}" for pod in world.api.get_all("Pod").values())


@pytest.mark.parametrize("columns", [False, True])
def test_pods_that_are_not_ready_have_no_share(columns: bool) -> None:
    times = PodTimes(readiness=DurationDistribution.fixed(40 * SECOND))
    world = world_of(deployment(replicas=2), options=WorldOptions(pods=times))
    world.load.usage["Deployment", "shop", "web"] = {"memory": Usage(signal=Signal.constant(10 * 2**30 * 1000))}
    run(world, 90)
    scale(world, 4)
    run(world, 30)
    assert len([pod for pod in world.api.get_all("Pod").values() if pod.status.phase == "Running"]) == 4
    result: Any = world.metrics.get(GetMetric(api="resource", namespace="shop", columns=columns))
    if columns:
        memory_values = sorted(result.samples("memory", np.arange(len(result.keys)))[1].tolist())
    else:
        memory_values = sorted(each.containers[0].usage["memory"].milli_value() for each in result.items)
    assert memory_values == [0, 0, 5 * 2**30 * 1000, 5 * 2**30 * 1000]


def test_pod_with_affinity_waits_for_its_partner() -> None:
    template = pod_template("first", cpu="500m")
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "second"}}}
    template["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    first = deployment("first", spec={"template": template})
    second = deployment("second", spec={"template": pod_template("second", cpu="500m")})
    world = world_of(first, second)
    run(world, 10)
    assert [phase for _, _, phase in pods(world)] == ["Running", "Running"]


def test_total_usage_equals_per_pod_usage() -> None:
    """Of what is used, of a queue, of both, and of none that are ready."""
    world = world_of(
        deployment(replicas=3, cpu="100m"),
        *(deployment(name, replicas=2, cpu="100m") for name in ("both", "queue", "none")),
    )
    keys = {name: ("Deployment", "shop", name) for name in ("web", "both", "queue", "none")}
    total, each = Usage(signal=Signal.constant(1001)), Usage(signal=Signal.constant(700), per_pod=True)
    world.load.usage = {keys["web"]: {"memory": each, "cpu": total}, keys["both"]: {"cpu": total}, keys["none"]: {}}
    arrivals = Signal([0, T0 + 20 * SECOND], [500, 900])
    for name in ("both", "queue"):
        used = {"cpu": 800, "memory": 1 << 20}
        world.load.queues[keys[name]] = Queue(arrivals=arrivals, capacity=1000, used=used)
    world.load.begin()
    observed = set()
    for _ in range(5):
        run(world, 9)
        load, begin, now = world.load, world.time.now - 15 * SECOND, world.time.now
        result = load.used_by_all(begin, now)
        want = {key: {name: load.get_usage(key, name, begin, now) for name in load.names(key)} for key in keys.values()}
        assert {key: list(names.items()) for key, names in result.items()} == {
            key: [(name, value or 0) for name, value in names.items()] for key, names in want.items()
        }
        observed |= {(name, value) for names in result.values() for name, value in names.items()}
    assert {("cpu", 1001 // 3), ("cpu", 1001 // 2), ("memory", 700)} < observed


class Ready(OwnedPods):
    """Of each workload so many."""

    many = 0

    def count_ready(self, key: Key) -> int:
        del key
        return self.many

    def find_workloads(self, keys: Iterable[Key]) -> WorkloadCounts:
        return ReadyCounts(self, tuple(keys))


class ReadyCounts(WorkloadCounts):
    """Of each workload so many as its owner says."""

    def list_ready(self) -> list[int]:
        return [self._owned.count_ready(key) for key in self.keys]


moments = st.integers(0, 12).map(lambda step: T0 + step * SECOND // 4) | st.integers(T0 - 2, T0 + 2)
widths = st.integers(0, 12).map(lambda step: step * SECOND // 4) | st.integers(0, 2_000_000)
looks = st.tuples(moments, widths, st.integers(0, 2), st.booleans())


@given(st.lists(st.integers(1, 4), min_size=3, max_size=3), st.lists(looks, max_size=12))
@example([1, 2, 3], [(T0, SECOND // 2, 1, False), (T0 + SECOND, 0, 1, False), (T0, SECOND, 1, False)])
def test_steady_usage_equals_computed_usage(values: list[int], looked: list[tuple[int, int, int, bool]]) -> None:
    """However long, from whenever on, with however many ready, and if it is another signal: it is worked out once as
    long as the signals stay."""
    key, also = ("Deployment", "shop", "web"), ("Deployment", "shop", "also")
    first = Signal([T0, T0 + SECOND, T0 + 2 * SECOND], [each * 1000 for each in values], repeat=3 * SECOND)
    other = Signal([T0, T0 + SECOND // 2], [7, 5])
    time = VirtualTime(lambda _, now: Outcome(at=now), now=T0)
    owned = Ready(ApiObjects(time))
    load = Load(time, owned, window=SECOND)
    load.usage[key] = {"cpu": Usage(signal=first), "memory": Usage(signal=Signal.constant(9), per_pod=True)}
    late = Signal([T0 + SECOND // 3, T0 + 2 * SECOND], [values[0] * 10, 3], repeat=2 * SECOND)
    load.usage[also] = {"cpu": Usage(signal=late)}
    for begin, width, many, another in looked:
        owned.count += many != owned.many  # as something has happened to pods
        owned.many = many
        load.usage[key]["cpu"] = Usage(signal=other if another else first)
        end = begin + width
        expected = {
            each: {name: load.get_usage(each, name, begin, end) for name in load.names(each)} for each in (key, also)
        }
        assert load.used_by_all(begin, end) == expected
        assert load.used_by_all(begin, end) == expected
        signals = [entry.signal for own in load.usage.values() for entry in own.values()]
        assert load.steady_until(begin) == min(signal.flat_until(begin) for signal in signals)


def test_columns_equal_objects() -> None:
    template = pod_template("db", cpu="100m")
    template["spec"]["containers"].append({"name": "side", "image": "x"})
    items = [
        deployment(replicas=3, cpu="500m"),
        from_dict(workload("StatefulSet", "db", 2, spec={"template": template}), StatefulSet),
    ]
    times = PodTimes(start=DurationDistribution(((0, SECOND), (1_000_000, 50 * SECOND))))
    world = world_of(*items, options=WorldOptions(pods=times))
    for kind, name in (("Deployment", "web"), ("StatefulSet", "db")):
        world.load.usage[kind, "shop", name] = {
            "cpu": Usage(signal=Signal([0, T0 + 40 * SECOND], [1001, 1702])),
            "memory": Usage(signal=Signal.constant(123_456), per_pod=True),
        }
    for _ in range(12):
        run(world, 7)
        for selector in ("", "app=web", "app=none"):
            request = GetMetric(api="resource", namespace="shop", selector=selector)
            from_objects = PodUsage.of(world.metrics.get(request).items)
            columns = world.metrics.get(replace(request, columns=True))
            assert rows(columns) == rows(from_objects)


def test_pods_without_containers_have_no_usage() -> None:
    bare = {"metadata": {"labels": {"app": "bare"}}, "spec": {"containers": []}}
    world = world_of(deployment(replicas=2), deployment("bare", replicas=2, spec={"template": bare}))
    for name in ("web", "bare"):
        world.load.usage["Deployment", "shop", name] = {"cpu": Usage(signal=Signal.constant(1000))}
    run(world, 30)
    for selector, sample_count in (("", 2), ("app=bare", 0)):
        request = GetMetric(api="resource", namespace="shop", selector=selector)
        assert len(world.metrics.get(request).items) == sample_count
        assert len(world.metrics.get(replace(request, columns=True)).keys) == sample_count


def test_requests_for_the_same_pods_share_their_columns() -> None:
    world = world_of(deployment(replicas=2), deployment("api", replicas=1))
    for name in ("web", "api"):
        world.load.usage["Deployment", "shop", name] = {"cpu": Usage(signal=Signal.constant(1000))}
    requests = [GetMetric(api="resource", namespace=namespace, columns=True) for namespace in ("shop", "")]
    before: list[str] = []
    for replicas in (2, 3):
        scale(world, replicas)
        run(world, 60)
        one, other = (world.metrics.get(each) for each in requests)
        assert one.keys is other.keys
        assert one.keys is not before
        assert rows(one) == rows(other)
        assert len(rows(one)) == replicas + 1
        before = one.keys


def rows(usage: Any) -> list[Any]:
    """Key, labels, time, window and containers of each pod."""
    result = []
    begin = 0
    amounts = {name: list(values) for name, values, _ in usage.columns()}
    for i, key in enumerate(usage.keys):
        labels = usage.label_sets[usage.labels[i]] if usage.labels[i] >= 0 else None
        containers = [
            (usage.containers[usage.container[k]], {name: int(values[k]) for name, values in sorted(amounts.items())})
            for k in range(begin, usage.ends[i])
        ]
        begin = usage.ends[i]
        result.append((key, labels, int(usage.time[i]), int(usage.window[i]), containers))
    return sorted(result, key=lambda each: each[0])


def test_change_counter_advances_when_answers_change() -> None:
    """Pods that come and go between two scrapes come into answers, and go from them, at once."""
    world = world_of(deployment(replicas=2), options=WorldOptions(pipeline=Pipeline(scrape=60 * SECOND)))
    world.load.usage["Deployment", "shop", "web"] = {"cpu": Usage(signal=Signal.constant(200), per_pod=True)}
    request = GetMetric(api="resource", namespace="shop")
    answers: dict[int, list[str]] = {}
    for second in range(200):
        if second in (70, 130):
            scale(world, 4 if second == 70 else 1)
        run(world, 1)
        result: Any = world.metrics.get(request)
        answer = [f"{each.name} {each.containers[0].usage['cpu']}" for each in result.items]
        assert answers.setdefault(world.metrics.changes, answer) == answer, second
    assert {len(answer) for answer in answers.values()} == {0, 1, 2, 4}


def test_queue_fills_under_overload_and_reports_late_items() -> None:
    world = world_of(deployment(replicas=1))
    key = "Deployment", "shop", "web"
    queue = Queue(arrivals=Signal.constant(3000), capacity=1000, used={"cpu": 500}, patience=5 * SECOND)
    world.load.queues[key] = queue
    world.load.begin()
    world.metrics.external["shop", "rate"] = [ExternalMetric(queue=key)]
    world.metrics.external["shop", "waiting"] = [ExternalMetric(queue=key, tells="waiting")]
    run(world, 61)
    assert queue.arrived == 3000 * 61
    assert queue.done == 1000 * 60
    assert queue.waiting == queue.arrived - queue.done
    rate, waiting = (
        world.metrics.get(GetMetric(api="external", namespace="shop", metric=name)) for name in ("rate", "waiting")
    )
    assert rate.items[0].value == Quantity("3")
    assert waiting.items[0].value.milli_value() > 100_000
    assert 0 < queue.late < queue.arrived
    missing = world.metrics.get(GetMetric(api="external", namespace="shop", metric="none"))
    assert isinstance(missing, ApiError)
    assert missing.is_not_found


def test_usage_of_a_queue_is_that_of_the_whole_window() -> None:
    world = world_of(deployment(replicas=1), options=WorldOptions(pipeline=Pipeline(window=10 * SECOND)))
    steps = Signal([T0 + second * SECOND for second in (0, 20, 25)], [0, 1000, 0])
    world.load.queues["Deployment", "shop", "web"] = Queue(arrivals=steps, capacity=1000, used={"cpu": 600})
    world.load.begin()
    run(world, 31)  # scraped at 30 s: idle from 25 s on, and busy for the five seconds before
    result: Any = world.metrics.get(GetMetric(api="resource", namespace="shop"))
    assert [each.containers[0].usage["cpu"].milli_value() for each in result.items] == [300]
    assert len(world.load.queues["Deployment", "shop", "web"].past) <= 12


def test_metric_selectors_filter_series() -> None:
    world = world_of(deployment(replicas=1))
    world.load.usage["Deployment", "shop", "web"] = {"qps": Usage(signal=Signal.constant(1000))}
    world.metrics.external["shop", "depth"] = [
        ExternalMetric(signal=Signal.constant(value * 1000), labels={"queue": name})
        for name, value in (("mail", 3), ("jobs", 5))
    ]
    run(world, 31)

    def select_values(selector: str) -> list[int]:
        question = GetMetric(api="external", namespace="shop", metric="depth", metric_selector=selector)
        result: Any = world.metrics.get(question)
        return [each.value.value() for each in result.items]

    assert [select_values(text) for text in ("", "queue=jobs", "queue in (mail)", "queue=none")] == [
        [3, 5],
        [5],
        [3],
        [],
    ]
    of_pods = GetMetric(api="custom", namespace="shop", kind="Pod", metric="qps", selector="app=web")
    for selector, count in (("", 1), ("verb=get", 0)):
        result: Any = world.metrics.get(replace(of_pods, metric_selector=selector))
        assert len(result.items) == count
