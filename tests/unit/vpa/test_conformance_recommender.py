"""Upstream's own tables on container states, aggregates, cluster state, estimators and post-processors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kscale._native import _histogram
from kscale.objects.apps import Deployment
from kscale.objects.decode import from_dict
from kscale.objects.quantity import Quantity
from kscale.objects.selector_text import parse_selector
from kscale.objects.vpa import (
    VerticalPodAutoscaler,
    VerticalPodAutoscalerCheckpoint,
    container_policy,
)
from kscale.vpa import ClusterState, Controllers, RecommenderOptions, Round, Usage, run_once
from kscale.vpa.checkpoint import load_all, store_all
from kscale.vpa.histogram import MEMORY_OPTIONS, UNSET
from kscale.vpa.logic import estimate, minimums
from kscale.vpa.logic.recommender import recommended_amounts
from kscale.vpa.model import CPU_SAMPLE, MEMORY_SAMPLE, OOM
from kscale.vpa.model.aggregates import Aggregate, AggregateKey, Store, apply_policy
from kscale.vpa.model.vpa import Vpa
from kscale.vpa.postprocess import apply_policy as cap_to_policy
from kscale.vpa.postprocess import integer_cpu, integer_cpu_containers
from kscale.vpa.postprocess.integer_cpu import container_name
from kscale.vpa.recommender import in_charge
from kscale.vpa.resources import scale_amount
from unit.vpa.builders import container, pod, recommendation, recommended, vpa

HOUR = 3600 * 10**9
DAY = 24 * HOUR
T0 = 1492536905 * 10**9  # 2017-04-18T17:35:05Z
MIB = 2**20
NAME = ("default", "pod", "app")


# -- container state -------------------------------------------------------------------------------------------


class Recorder:
    """One container; what it adds to its histograms is read back from the weights."""

    def __init__(self, interval: float = 86400.0, **options: Any) -> None:
        self.state = ClusterState(RecommenderOptions(memory_aggregation_interval=interval, **options))
        one = self.state.add_pod("default", "pod", {"app": "x"}, "Running", T0)
        self.state.add_container(one, "app", (0, 0), T0)

    def add(self, *events: tuple[int, int, int]) -> list[bool]:
        """(time, value, kind): whether each was taken."""
        taken = []
        for time, value, kind in events:
            refused = self.state.add_usage(Usage.from_events([(NAME, time, value, kind)]), T0)
            taken.append(not refused)
        return taken

    def memory(self) -> dict[int, float]:
        """Bucket -> weight of memory peaks."""
        weights = self.state.store.memory.weights[0]
        return {int(b): float(weights[b]) for b in np.flatnonzero(weights)}

    @property
    def window_end(self) -> int:
        return int(self.state.store.window_end[0])


def bucket(size: int) -> int:
    return MEMORY_OPTIONS.find_bucket(float(size))


def test_cpu_samples_weigh_a_tenth() -> None:
    recorder = Recorder()
    assert (
        recorder.add((T0, 3140, CPU_SAMPLE), (T0 + 12 * HOUR, 6280, CPU_SAMPLE), (T0 + DAY, 1570, CPU_SAMPLE))
        == [True] * 3
    )
    assert int(recorder.state.store.samples[0]) == 3
    assert recorder.add((T0 + DAY, 1, CPU_SAMPLE), (T0 + 2 * DAY, -1000, CPU_SAMPLE)) == [False, False]


MEMORY_STEPS: list[tuple[list[tuple[int, int, int]], list[int], int]] = [
    # (events, sizes that remain, end of the last window)
    (
        [(T0, 500 * MIB, 1), (T0 + 12 * HOUR, 900 * MIB, 1), (T0 + DAY, 200 * MIB, 1)],
        [900 * MIB, 200 * MIB],
        T0 + 2 * DAY,
    ),
    ([(T0, 1000 * MIB, 2)], [1200 * MIB], T0 + DAY),
    ([(T0, 1000 * MIB, 2), (T0, 999 * MIB, 2), (T0, 999 * MIB, 2), (T0, 2000 * MIB, 2)], [2400 * MIB], T0 + DAY),
    ([(T0, 1 * MIB, 2)], [101 * MIB], T0 + DAY),
    ([(T0, 3000 * MIB, 1), (T0, 1000 * MIB, 2)], [3600 * MIB], T0 + DAY),
    ([(T0, 2000 * MIB, 1), (T0 + 2 * DAY, 1000 * MIB, 2)], [2000 * MIB, 2400 * MIB], T0 + 3 * DAY),
    (
        [(T0, 100 * MIB, 1), (T0 + DAY, 2000 * MIB, 1), (T0 + DAY - 10**9, 1000 * MIB, 2)],
        [100 * MIB, 2400 * MIB],
        T0 + 2 * DAY,
    ),
]


@pytest.mark.parametrize(("events", "left", "end"), MEMORY_STEPS)
def test_memory_windows(events: list[tuple[int, int, int]], left: list[int], end: int) -> None:
    recorder = Recorder()
    assert all(recorder.add(*events))
    assert set(recorder.memory()) == {bucket(size) for size in left}
    assert recorder.window_end == end


@pytest.mark.parametrize(
    ("steps", "end"),
    [([(0.0, 5), (2.0, 10)], 3.0), ([(0.0, 5), (0.5, 10)], 1.0)],
)
def test_memory_windows_of_an_hour(steps: list[tuple[float, int]], end: float) -> None:
    recorder = Recorder(3600.0)
    recorder.add(*((T0 + int(hours * HOUR), size * 10**8, 1) for hours, size in steps))
    assert recorder.window_end == T0 + int(end * HOUR)


@pytest.mark.parametrize(
    ("interval", "late", "count"), [(86400.0, 30 * HOUR, 8), (3600.0, 2 * HOUR, 8), (86400.0, 72 * HOUR, 2)]
)
def test_old_ooms_are_refused(interval: float, late: int, count: int) -> None:
    recorder = Recorder(interval, memory_aggregation_interval_count=count)
    assert recorder.add((T0, 1000 * MIB, 1), (T0 - late, 1000 * MIB, 2)) == [True, False]


def test_negative_memory_is_refused() -> None:
    assert Recorder().add((T0, -1000, MEMORY_SAMPLE)) == [False]


# -- aggregates and cluster state ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "hours", "expired"), [(8, 7 * 24, False), (8, 8 * 24, True), (4, 95, False), (4, 96, True)]
)
@pytest.mark.parametrize("empty", [True, False])
def test_expiry(count: int, hours: int, expired: bool, empty: bool) -> None:
    store = Store(RecommenderOptions(memory_aggregation_interval_count=count))
    aggregate = Aggregate(AggregateKey("n", "c", ""), store.take_row(), T0)
    if not empty:
        store.samples[aggregate.row], store.last[aggregate.row] = 1, T0
    assert store.is_expired(aggregate, T0 + hours * HOUR) == expired


@pytest.mark.parametrize(
    ("policy", "mode", "resources"),
    [
        (None, "Auto", ("cpu", "memory")),
        ({"mode": "Auto"}, "Auto", ("cpu", "memory")),
        ({"mode": "Off"}, "Off", ("cpu", "memory")),
        ({"controlledResources": ["cpu", "memory"]}, "Auto", ("cpu", "memory")),
        ({"controlledResources": []}, "Auto", ()),
        ({"controlledResources": ["memory"]}, "Auto", ("memory",)),
    ],
)
def test_policy(policy: dict[str, Any] | None, mode: str, resources: tuple[str, ...]) -> None:
    given = vpa(policies=[{"containerName": "*", **policy}] if policy is not None else None)
    assert apply_policy(container_policy("app", given.spec.resource_policy)) == (mode, resources)


@pytest.mark.parametrize("gate", [True, False])
def test_per_vpa_settings_need_their_gate(gate: bool) -> None:
    store = Store(RecommenderOptions(feature_gates={"PerVPAConfig": gate}))
    aggregate = Aggregate(AggregateKey("n", "c", ""), store.take_row(), T0)
    policies = [
        {
            "containerName": "c",
            "memoryAggregationIntervalSeconds": 3600,
            "memoryAggregationIntervalCount": 4,
            "oomBumpUpRatio": "1500m",
        }
    ]
    store.apply_policy(aggregate, container_policy("c", vpa(policies=policies).spec.resource_policy))
    assert (store.interval[0], store.interval_count[0], store.oom_ratio[0]) == (
        (HOUR, 4, 1.5) if gate else (DAY, 8, 1.2)
    )


def test_policies_by_name() -> None:
    both = [
        {"containerName": "*", "mode": "Off"},
        {"containerName": "a", "mode": "Auto"},
        {"containerName": "*", "mode": "Auto"},
    ]
    policy = vpa(policies=both).spec.resource_policy
    first, default = container_policy("a", policy), container_policy("b", policy)
    assert first is not None
    assert default is not None
    assert (first.mode, default.mode) == ("Auto", "Auto")


def cluster(*names: tuple[str, str, dict[str, str]]) -> ClusterState:
    state = ClusterState()
    for namespace, name, labels in names:
        one = state.add_pod(namespace, name, labels, "Running", T0)
        state.add_container(one, "app", (0, 0), T0)
    return state


def test_who_shares_an_aggregate() -> None:
    labels = {"app": "x"}
    assert len(cluster(("n", "a", labels), ("n", "b", labels)).aggregates) == 1
    assert len(cluster(("n", "a", labels), ("m", "b", labels)).aggregates) == 2
    assert len(cluster(("n", "a", labels), ("n", "b", {"app": "y"})).aggregates) == 2


@pytest.mark.parametrize(
    ("selector", "counts"), [("app=x", 2), ("app=y", 1), ("", 3), ("app=z", 0), ("app in (x,y)", 3)]
)
@pytest.mark.parametrize("first", ["pods", "vpa"])
def test_pod_count(selector: str, counts: int, first: str) -> None:
    pods = [
        ("default", "a", {"app": "x"}),
        ("default", "b", {"app": "x"}),
        ("default", "c", {"app": "y"}),
        ("o", "d", {"app": "x"}),
    ]
    state = cluster(*pods) if first == "pods" else ClusterState()
    found = state.add_vpa(vpa(), parse_selector(selector))
    if first == "vpa":
        for namespace, name, labels in pods:
            state.add_pod(namespace, name, labels, "Running", T0)
    assert found.pod_count == counts


def test_labels_and_selectors_that_change() -> None:
    state = cluster(("default", "a", {"app": "x"}))
    found = state.add_vpa(vpa(), parse_selector("app=x"))
    assert {key.labels for key in found.aggregates} == {"app=x"}
    state.add_pod("default", "a", {"app": "y"}, "Running", T0)
    assert (found.pod_count, {key.labels for key in found.aggregates}) == (0, {"app=x"})
    found = state.add_vpa(vpa(), parse_selector("app=y"))
    assert (found.pod_count, {key.labels for key in found.aggregates}) == (1, {"app=y"})
    found = state.add_vpa(vpa(), parse_selector("app=none"))
    assert (found.pod_count, found.aggregates) == (0, {})
    assert not any(aggregate.is_under_vpa for aggregate in state.aggregates.values())


@pytest.mark.parametrize(
    ("phase", "age", "sample", "controller", "removed"),
    [
        ("Running", 9 * DAY, True, False, True),
        ("Running", 60 * 10**9, False, False, False),
        ("Running", 9 * DAY, False, False, True),
        ("Succeeded", 60 * 10**9, False, False, True),
        ("Succeeded", 60 * 10**9, False, True, False),
        ("Running", 7 * DAY, True, False, False),
    ],
)
def test_garbage(phase: str, age: int, sample: bool, controller: bool, removed: bool) -> None:
    state = ClusterState()
    one = state.add_pod("default", "pod", {"app": "x"}, phase, T0)
    state.add_container(one, "app", (0, 0), T0)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    found = state.add_vpa(vpa(targetRef=target), parse_selector("app=x"))
    if sample:
        state.add_usage(Usage.from_events([(NAME, T0, 100, CPU_SAMPLE)]), T0)
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"}}
    controllers = Controllers([from_dict(body, Deployment)] if controller else [])
    assert bool(state.collect_garbage(T0 + age, controllers)) == removed
    assert bool(found.aggregates) != removed
    if removed:
        state.add_usage(Usage.from_events([(NAME, T0 + 10 * DAY, 100, CPU_SAMPLE)]), T0 + 10 * DAY)
        assert len(found.aggregates) == 1


def test_garbage_at_most_hourly() -> None:
    state = cluster(("default", "pod", {"app": "x"}))
    later = T0 + 9 * DAY
    state.last_gc = later - 60 * 10**9
    assert state.collect_garbage(later, Controllers()) == []
    state.last_gc = later - HOUR
    assert len(state.collect_garbage(later, Controllers())) == 1


def test_unknown_pods_and_containers() -> None:
    state = cluster(("namespace-1", "known", {}))
    events = [
        (("namespace-1", "pod-1", "app"), T0, 1, CPU_SAMPLE),
        (("namespace-1", "pod-1", "app"), T0, 1, OOM),
        (("namespace-1", "known", "other"), T0, 1, CPU_SAMPLE),
        (("namespace-1", "known", "other"), T0, 1, OOM),
    ]
    assert [error.error for error in state.add_usage(Usage.from_events(events), T0)] == [
        "KeyError: {namespace-1 pod-1}",
        "KeyError: {namespace-1 pod-1}",
        "KeyError: {{namespace-1 known} other}",
        "KeyError: other",
    ]


@pytest.mark.parametrize(
    ("has", "last", "remembered", "text"),
    [
        (True, -10, False, ""),
        (False, -10, True, ""),
        (False, -40, True, "VPA default/name is missing recommendation for more than 30m0s"),
        (False, None, True, ""),
    ],
)
def test_missing_recommendations(has: bool, last: int | None, remembered: bool, text: str) -> None:
    state = ClusterState()
    found = state.add_vpa(vpa(), parse_selector("app=x"))
    found.recommendation = recommendation(recommended("app", ("1", None))) if has else None
    if last is not None:
        state.without_recommendation[found.key] = T0 + last * 60 * 10**9
    assert state.record_recommendation(found, T0) == text
    assert (found.key in state.without_recommendation) == remembered


@pytest.mark.parametrize(
    ("pods", "has", "expected"),
    [
        (1, True, [("RecommendationProvided", "True", "", "")]),
        (0, True, [("NoPodsMatched", "True"), ("RecommendationProvided", "True", "", "")]),
        (1, False, [("RecommendationProvided", "False", "", "")]),
        (0, False, [("NoPodsMatched", "True"),
                    ("RecommendationProvided", "False", "NoPodsMatched", "No pods match this VPA object")]),
    ],
)  # fmt: skip
def test_conditions(pods: int, has: bool, expected: list[tuple[str, ...]]) -> None:
    found = Vpa("default", "name", parse_selector("app=x"), pod_count=pods)
    found.recommendation = recommendation(recommended("app", ("1", None))) if has else None
    found.update_conditions(T0)
    shown = [(c.type, c.status, c.reason, c.message) for c in found.status().conditions]
    assert [line[: len(want)] for line, want in zip(shown, expected, strict=True)] == expected
    first = {c.type: c.last_transition_time for c in found.status().conditions}
    found.update_conditions(T0 + HOUR)
    assert {c.type: c.last_transition_time for c in found.status().conditions} == first


@pytest.mark.parametrize(
    ("recommender", "named", "taken"),
    [
        ("default", [], True),
        ("default", ["default"], True),
        ("default", ["other"], False),
        ("other", [], False),
        ("other", ["other"], True),
    ],
)
def test_which_recommender(recommender: str, named: list[str], taken: bool) -> None:
    given = vpa(recommenders=[{"name": name} for name in named])
    assert in_charge(given, RecommenderOptions(recommender_name=recommender)) == taken


def test_namespaces() -> None:
    assert not in_charge(vpa(), RecommenderOptions(ignored_vpa_object_namespaces=["default"]))
    assert not in_charge(vpa(), RecommenderOptions(vpa_object_namespace="other"))


@pytest.mark.parametrize(
    ("selector", "tracked"),
    [
        ("name=vpa-pod", 1),
        ("name=vpa-pod,type=stateful", 1),
        ("name=other", 0),
        ("environment in (staging, qa),name=vpa-pod", 1),
    ],
)
@pytest.mark.parametrize("saver", [True, False])
def test_memory_saver(selector: str, tracked: int, saver: bool) -> None:
    state = ClusterState(RecommenderOptions(memory_saver=saver))
    state.add_vpa(vpa(), parse_selector(selector))
    labels = {"name": "vpa-pod", "type": "stateful", "environment": "qa"}
    run_once(state, Round(pods=[pod(container("app"), labels=labels)]), now=T0)
    assert len(state.pods) == (tracked if saver else 1)


def test_counts_by_container_name() -> None:
    """Two pods of other labels, containers A and B in one, A and C in the other, one sample each."""
    state = ClusterState()
    found = state.add_vpa(vpa(), parse_selector("app in (x, y)"))
    events = []
    for pod_name, labels, containers in (("one", {"app": "x"}, "AB"), ("two", {"app": "y"}, "AC")):
        one = state.add_pod("default", pod_name, labels, "Running", T0)
        for name in containers:
            state.add_container(one, name, (0, 0), T0)
            events += [(("default", pod_name, name), T0, 1000, CPU_SAMPLE)]
            events += [(("default", pod_name, name), T0, 2 * 10**9, MEMORY_SAMPLE)]
    assert state.add_usage(Usage.from_events(events), T0) == []
    merged = state.containers_of([found])
    counts = {name: int(merged.store.samples[row]) for row, (_, name) in enumerate(merged.names)}
    assert counts == {"A": 2, "B": 1, "C": 1}


@pytest.mark.parametrize("phase", ["Running", "Pending", "Succeeded", "Failed"])
def test_pods_count_whatever_their_labels_and_phase(phase: str) -> None:
    state = ClusterState()
    state.add_pod("default", "labelled", {"app": "x"}, phase, T0)
    state.add_pod("default", "bare", {}, phase, T0)
    assert state.add_vpa(vpa(), parse_selector("")).pod_count == 2


@pytest.mark.parametrize(
    ("policies", "mode"),
    [
        (None, "Auto"),
        ([{"containerName": "*", "mode": "Off"}], "Off"),
        ([{"containerName": "app", "mode": "Auto"}, {"containerName": "*", "mode": "Off"}], "Auto"),
        ([{"containerName": "other", "mode": "Off"}], "Auto"),
    ],
)
def test_policies_that_change(policies: list[dict[str, Any]] | None, mode: str) -> None:
    state = cluster(("default", "pod", {"app": "x"}))
    state.add_vpa(vpa(), parse_selector("app=x"))
    (aggregate,) = state.aggregates.values()
    assert aggregate.scaling_mode == "Auto"
    state.add_vpa(vpa(policies=policies, updatePolicy={"updateMode": "Off"}), parse_selector("app=x"))
    assert (aggregate.scaling_mode, aggregate.update_mode) == (mode, "Off")


@pytest.mark.parametrize(
    ("api_version", "kept"),
    [
        ("autoscaling.k8s.io/v1", "v1"),
        ("autoscaling.k8s.io/v1beta2", "v1beta2"),
        ("autoscaling.k8s.io/v1beta1", "v1beta1"),
        ("", "v1"),
    ],
)
def test_version_of_the_object(api_version: str, kept: str) -> None:
    given = vpa()
    given.api_version = api_version
    assert ClusterState().add_vpa(given, parse_selector("app=x")).api_version == kept


def test_containers_that_a_recommendation_leaves_out_keep_theirs() -> None:
    state = cluster(("default", "pod", {"app": "x"}))
    state.add_container(state.pods["default", "pod"], "other", (0, 0), T0)
    found = state.add_vpa(vpa(), parse_selector("app=x"))
    for names, cpu in ((("app", "other"), "1"), (("app",), "2")):
        items = [{**recommended(n, (cpu, None)), "uncappedTarget": {"cpu": cpu}} for n in names]
        found.update_recommendation(recommendation(*items))
    last = {key.container: aggregate.last_recommendation for key, aggregate in found.aggregates.items()}
    assert last == {"app": {"cpu": Quantity("2")}, "other": {"cpu": Quantity("1")}}


# -- estimators ------------------------------------------------------------------------------------------------


def estimated(store: Store, containers: int = 1, **options: Any) -> list[list[int]]:
    made: list[list[int]] = estimate(store, np.full(1, containers, np.int64), RecommenderOptions(**options))[0].tolist()
    return made


def store_with(first: int = UNSET, last: int = UNSET, samples: int = 0) -> Store:
    store = Store(RecommenderOptions())
    store.take_row()
    store.first[0], store.last[0], store.samples[0] = first, last, samples
    return store


@pytest.mark.parametrize(
    ("days", "lower", "upper"),
    [
        (5 / 1440, 0.6027931021179738, 289.0),
        (1 / 24, 0.95367431640625, 25.0),
        (0.5, 0.9960119680798085, 3.0),
        (1, 0.9980029960049943, 2.0),
        (7, 0.9997143469271157, 1.1428571428571428),
        (8, 0.9997500468671889, 1.125),
        (0, 0.0, float("inf")),
    ],
)
def test_confidence_multipliers(days: float, lower: float, upper: float) -> None:
    assert _histogram.confidence_multiplier(days, 0.001, -2.0) == lower
    assert _histogram.confidence_multiplier(days, 1.0, 1.0) == upper


def test_confidence_is_the_lesser_of_time_and_samples() -> None:
    minute = 60 * 10**9
    assert _histogram.confidence(T0, T0 + 16 * minute, 9, DAY) == 0.00625
    assert _histogram.confidence(T0, T0 + 16 * minute, 9, 18 * minute) == 0.5
    assert _histogram.confidence(UNSET, UNSET, 0, DAY) == 0.0


@pytest.mark.parametrize(("confidence", "cpu", "memory"), [(0.00625, 907460, 907460000000), (0.5, 4521, 4521600000)])
def test_confidence_multiplies_what_was_used(confidence: float, cpu: int, memory: int) -> None:
    factor = _histogram.confidence_multiplier(confidence, 0.1, 2.0)
    assert (scale_amount(3140, factor), scale_amount(3140000000, factor)) == (cpu, memory)


@pytest.mark.parametrize(("exponent", "expected"), [(1.0, 10**14), (-1.0, 0)])
def test_confidence_of_nothing(exponent: float, expected: int) -> None:
    assert scale_amount(3140, _histogram.confidence_multiplier(0.0, 1.0, exponent)) == expected


def test_safety_margin() -> None:
    assert [base + scale_amount(base, 0.1) for base in (3140, 3140000000)] == [3454, 3454000000]


@pytest.mark.parametrize(("p", "cpu", "memory"), [(0.2, 1.0, 1e9), (0.5, 2.0, 2e9)])
def test_percentiles_of_a_few_samples(p: float, cpu: float, memory: float) -> None:
    store = store_with()
    for i in (1, 2, 3):
        store.cpu.row(0).add_sample(float(i), 1.0, T0)
        store.memory.row(0).add_sample(i * 1e9, 1.0, T0)
    assert store.cpu.row(0).percentile(p) == pytest.approx(cpu, rel=0.05)
    assert store.memory.row(0).percentile(p) == pytest.approx(memory, rel=0.05)


def test_more_than_the_minimum_is_left_alone() -> None:
    store = store_with()
    store.cpu.row(0).add_sample(3.14, 1.0, T0)
    store.memory.row(0).add_sample(4e8, 1.0, T0)
    low = estimated(store, pod_recommendation_min_cpu_millicores=200.0, pod_recommendation_min_memory_mb=19.0)
    none = estimated(store, pod_recommendation_min_cpu_millicores=0.0, pod_recommendation_min_memory_mb=0.0)
    assert [low[0][0], low[1][0]] == [none[0][0], none[1][0]]


@pytest.mark.parametrize("resources", [["memory"], ["cpu", "memory"], []])
def test_controlled_resources(resources: list[str]) -> None:
    """Of several containers, which come out by name."""
    state = ClusterState()
    one = state.add_pod("default", "pod", {"app": "x"}, "Running", T0)
    for name in ("b", "a"):
        state.add_container(one, name, (0, 0), T0)
    given = vpa(policies=[{"containerName": "*", "controlledResources": resources}])
    (made,) = recommended_amounts(state, [state.add_vpa(given, parse_selector("app=x"))])
    assert [item.container_name for item in made.container_recommendations] == ["a", "b"]
    for item in made.container_recommendations:
        for amounts in (item.target, item.lower_bound, item.upper_bound):
            assert list(amounts or {}) == resources


def test_nothing_is_known() -> None:
    assert estimated(store_with()) == [[25, 25, 25], [262144000] * 3]


@pytest.mark.parametrize(("containers", "cpu", "memory"), [(1, 25, 262144000), (2, 12, 131072000), (3, 8, 87381333)])
def test_minimums(containers: int, cpu: int, memory: int) -> None:
    assert minimums(np.array([containers]), RecommenderOptions()).tolist() == [[cpu, memory]]


def test_no_history_gives_the_widest_bounds() -> None:
    store = store_with()
    store.cpu.row(0).add_sample(3.14, 1.0, T0)
    (target, lower, upper), _ = estimated(store)
    assert (lower, upper) == (25, 10**14)
    assert target > 3140


def test_end_to_end_cpu() -> None:
    recorder = Recorder()
    start = 1767582000 * 10**9
    recorder.add(*((start + 1800 * 10**9 * i, 100 + 10 * (i % 12), CPU_SAMPLE) for i in range(48)))
    store = recorder.state.store
    h = store.cpu.row(0)
    assert (h.reference_time, h.total_weight) == (1767571200 * 10**9, 7.497302312729814)
    assert (h.min_bucket, h.max_bucket, h.weights[8]) == (8, 14, 1.161096539906809)
    assert [h.percentile(p) for p in (0.5, 0.9, 0.95)] == [0.17712982846464703, 0.2157856358822734, 0.2157856358822734]
    for time, size in ((1767668400, 300), (1767754800, 350)):  # peaks of two windows
        store.memory.row(0).add_sample(float(size * MIB), 1.0, time * 10**9)
    made = estimated(store)
    assert made == [[247, 191, 7657], [442809964, 417390860, 13727108884]]


def test_end_to_end_a_week() -> None:
    recorder = Recorder()
    start = 1767571200 * 10**9
    events = [(NAME, start + 60 * 10**9 * i, 50 + i % 100, CPU_SAMPLE) for i in range(11520)]
    recorder.state.add_usage(Usage.from_events(events), start)
    h = recorder.state.store.cpu.row(0)
    assert (h.total_weight, h.min_bucket, h.max_bucket) == (52963.01292431593, 4, 11)
    assert estimated(recorder.state.store)[0] == [163, 125, 204]
    assert h.save().bucket_weights == {4: 3562, 5: 7752, 6: 7461, 7: 8057, 8: 8693, 9: 8756, 10: 10000, 11: 4141}


def test_end_to_end_oom() -> None:
    recorder = Recorder()
    recorder.add((T0, 300 * MIB, MEMORY_SAMPLE), (T0, 300 * MIB, OOM))
    assert set(recorder.memory()) == {23}
    assert recorder.state.store.memory.row(0).percentile(0.9) == pytest.approx(445019988, abs=1)
    assert estimated(recorder.state.store)[1][0] == 511772986


# -- post-processors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "prefix", "suffix", "name"),
    [
        ("abc", "a", "c", "b"),
        ("abc", "z", "x", ""),
        (
            "vpa-post-processor.kubernetes.io/kafka_integerCPU",
            "vpa-post-processor.kubernetes.io/",
            "_integerCPU",
            "kafka",
        ),
    ],
)
def test_annotation_names(key: str, prefix: str, suffix: str, name: str) -> None:
    assert container_name(key, prefix, suffix) == name


@pytest.mark.parametrize(("cpu", "rounded"), [("8.6", "9"), ("5.2", "6"), ("8", "8"), ("8.1", "9"), ("8.9", "9")])
def test_integer_cpu(cpu: str, rounded: str) -> None:
    annotations = {"vpa-post-processor.kubernetes.io/container1_integerCPU": "true"}
    given = recommendation(recommended("container1", (cpu, "200Mi")), recommended("container2", ("8.2", "1")))
    one, other = integer_cpu(given, annotations).container_recommendations
    assert one.target == {"cpu": Quantity(rounded), "memory": Quantity("200Mi")}
    assert other.target == {"cpu": Quantity("8.2"), "memory": Quantity("1")}
    assert integer_cpu(given, {"vpa-post-processor.kubernetes.io/container1_integerCPU": "yes"}) is given
    assert integer_cpu_containers({"vpa-post-processor.kubernetes.io/_integerCPU": "true"}) == set()


@pytest.mark.parametrize(
    ("policy", "most", "expected"),
    [
        ({}, {}, (42, 31, 53)),
        ({"minAllowed": 50}, {}, (50, 50, 53)),
        ({"maxAllowed": 40}, {}, (40, 31, 40)),
        ({}, {"both": 40}, (40, 31, 40)),
        ({"minAllowed": 35}, {"both": 50}, (42, 35, 50)),
    ],
)
def test_policy_bounds(policy: dict[str, int], most: dict[str, int], expected: tuple[int, int, int]) -> None:
    def both(number: int) -> tuple[str, str]:
        return f"{number}m", f"{number}Mi"

    item = recommended("foo", both(42), both(31), both(53))
    item["uncappedTarget"] = item["target"]
    bounds = {key: dict(zip(("cpu", "memory"), both(number), strict=True)) for key, number in policy.items()}
    given = vpa(policies=[{"containerName": "foo", **bounds}] if policy else None)
    limit = {k: Quantity(v) for k, v in zip(("cpu", "memory"), both(most["both"]), strict=True)} if most else None
    capped = cap_to_policy(recommendation(item), given.spec.resource_policy, limit)
    assert capped is not None
    (made,) = capped.container_recommendations
    for found, number in zip(
        (made.target, made.lower_bound, made.upper_bound, made.uncapped_target), (*expected, 42), strict=True
    ):
        assert found == {k: Quantity(v) for k, v in zip(("cpu", "memory"), both(number), strict=True)}
    assert cap_to_policy(None, None) is None


@pytest.mark.parametrize(
    ("most", "cpu", "memory"),
    [
        ({"memory": "40Mi"}, ("40m", "31m", "40m"), ("40Mi", "31Mi", "40Mi")),
        ({"cpu": "30m", "memory": "30Mi"}, ("40m", "31m", "40m"), ("30Mi", "30Mi", "30Mi")),
    ],
)
def test_policy_and_global_bounds_are_merged_by_resource(
    most: dict[str, str], cpu: tuple[str, ...], memory: tuple[str, ...]
) -> None:
    item = recommended("foo", ("42m", "42Mi"), ("31m", "31Mi"), ("53m", "53Mi"))
    policy = vpa(policies=[{"containerName": "foo", "maxAllowed": {"cpu": "40m"}}]).spec.resource_policy
    capped = cap_to_policy(recommendation(item), policy, {name: Quantity(text) for name, text in most.items()})
    assert capped is not None
    (made,) = capped.container_recommendations
    for found, amounts in zip(
        (made.target, made.lower_bound, made.upper_bound), zip(cpu, memory, strict=True), strict=True
    ):
        assert found == {"cpu": Quantity(amounts[0]), "memory": Quantity(amounts[1])}
    assert policy is not None
    assert policy.container_policies[0].max_allowed == {"cpu": Quantity("40m")}


# -- checkpoints -----------------------------------------------------------------------------------------------


def test_the_open_window_stays_out_of_a_checkpoint() -> None:
    recorder = Recorder()
    found = recorder.state.add_vpa(vpa(), parse_selector("app=x"))
    recorder.add((T0, 2**30, MEMORY_SAMPLE))
    (early,) = store_all(recorder.state, [found], T0)
    assert early.status.memory_histogram.bucket_weights == {}
    (late,) = store_all(recorder.state, [found], T0 + DAY)
    assert late.status.memory_histogram.bucket_weights
    assert late.status.version == "v3"


@pytest.mark.parametrize(("status", "written"), [(None, True), ("False", True), ("True", False)])
def test_no_checkpoint_while_history_is_fetched(status: str | None, written: bool) -> None:
    state = cluster(("default", "pod", {"app": "x"}))
    found = state.add_vpa(vpa(), parse_selector("app=x"))
    if status is not None:
        found.set_condition("FetchingHistory", status == "True", "", "", T0)
    assert bool(store_all(state, [found], T0)) == written


def test_oldest_checkpoints_are_written_first() -> None:
    state = cluster(("default", "pod", {"app": "x"}))
    found = []
    for name, written in (("b", 20000), ("c", 10000), ("a", -(2**63))):
        given = from_dict({"metadata": {"name": name, "namespace": "default"}}, VerticalPodAutoscaler)
        found.append(state.add_vpa(given, parse_selector("app=x")))
        found[-1].checkpoint_written = written
    assert [item.vpa for item in store_all(state, found, T0)] == ["a", "c", "b"]
    assert {vpa.checkpoint_written for vpa in found} == {T0}


@pytest.mark.parametrize(
    ("vpa_name", "status", "text"),
    [
        ("gone", {}, "cannot load checkpoint to missing VPA object default/gone"),
        (
            "name",
            {"version": "foo"},
            "cannot load checkpoint for VPA default/name. Reason: unsupported checkpoint version foo",
        ),
        (
            "name",
            {"version": "v3", "memoryHistogram": {"bucketWeights": {"176": 1}, "totalWeight": 1.0}},
            (
                "cannot load checkpoint for VPA default/name. "
                "Reason: checkpoint has bucket 176 that is exceeding histogram buckets 176"
            ),
        ),
    ],
)
def test_bad_checkpoints(vpa_name: str, status: dict[str, Any], text: str) -> None:
    state = ClusterState()
    state.add_vpa(vpa(), parse_selector("app=x"))
    body = {
        "metadata": {"namespace": "default"},
        "spec": {"vpaObjectName": vpa_name, "containerName": "c"},
        "status": status,
    }
    assert load_all(state, [from_dict(body, VerticalPodAutoscalerCheckpoint)], T0) == [text]
