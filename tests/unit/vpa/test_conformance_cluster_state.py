"""Upstream's own tables on aggregates and cluster state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kscale.effects import ZERO_TIME, Progress
from kscale.objects.api.apps import Deployment
from kscale.objects.api.vpa import container_policy
from kscale.objects.decode import from_dict
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import parse_selector
from kscale.vpa import (
    Controllers,
    RecommenderOptions,
    RecommenderRound,
    RecommenderState,
    Usage,
    run_once,
)
from kscale.vpa.controllers import run_without_requests
from kscale.vpa.model.aggregates import Aggregate, get_scaling_policy, update_from_policy
from kscale.vpa.model.cluster_state import collect_garbage_steps, merge_containers
from kscale.vpa.model.saved_state import (
    CPU_SAMPLE,
    MEMORY_SAMPLE,
    OOM,
    AggregateKey,
    AggregateStore,
    add_usage,
    save_state,
)
from kscale.vpa.model.vpa import Vpa
from kscale.vpa.recommender.cluster_feeder import is_managed_vpa
from unit.vpa.builders import changed_pods, container, pod, recommendation, recommended, vpa
from unit.vpa.recorder import DAY, HOUR, NAME, T0, cluster


@pytest.mark.parametrize(
    ("count", "hours", "expired"), [(8, 7 * 24, False), (8, 8 * 24, True), (4, 95, False), (4, 96, True)]
)
@pytest.mark.parametrize("empty", [True, False])
def test_expiry(count: int, hours: int, expired: bool, empty: bool) -> None:
    store = AggregateStore(RecommenderOptions(memory_aggregation_interval_count=count))
    aggregate = Aggregate(AggregateKey("n", "c", ""), store.take_row(), T0)
    if not empty:
        store.samples[aggregate.row], store.last[aggregate.row] = 1, T0
    assert aggregate.is_expired(store, T0 + hours * HOUR) == expired


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
    vpa_ = vpa(policies=[{"containerName": "*", **policy}] if policy is not None else None)
    assert get_scaling_policy(container_policy("app", vpa_.spec.resource_policy)) == (mode, resources)


@pytest.mark.parametrize("gate", [True, False])
def test_per_vpa_settings_need_their_gate(gate: bool) -> None:
    store = AggregateStore(RecommenderOptions(feature_gates={"PerVPAConfig": gate}))
    aggregate = Aggregate(AggregateKey("n", "c", ""), store.take_row(), T0)
    policies = [
        {
            "containerName": "c",
            "memoryAggregationIntervalSeconds": 3600,
            "memoryAggregationIntervalCount": 4,
            "oomBumpUpRatio": "1500m",
        }
    ]
    update_from_policy(store, aggregate, container_policy("c", vpa(policies=policies).spec.resource_policy))
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


def test_pods_with_equal_labels_share_an_aggregate() -> None:
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
    state = cluster(*pods) if first == "pods" else RecommenderState()
    result = state.add_vpa(vpa(), parse_selector(selector))
    if first == "vpa":
        for namespace, name, labels in pods:
            state.add_pod(namespace, name, labels, "Running", T0)
    assert result.pod_count == counts


def test_labels_and_selectors_that_change() -> None:
    state = cluster(("default", "a", {"app": "x"}))
    result = state.add_vpa(vpa(), parse_selector("app=x"))
    assert {key.labels for key in result.aggregates} == {"app=x"}
    state.add_pod("default", "a", {"app": "y"}, "Running", T0)
    assert (result.pod_count, {key.labels for key in result.aggregates}) == (0, {"app=x"})
    result = state.add_vpa(vpa(), parse_selector("app=y"))
    assert (result.pod_count, {key.labels for key in result.aggregates}) == (1, {"app=y"})
    result = state.add_vpa(vpa(), parse_selector("app=none"))
    assert (result.pod_count, result.aggregates) == (0, {})
    assert not any(aggregate.is_under_vpa for aggregate in state.aggregates.values())


def collected(state: RecommenderState, controllers: Controllers, now: int) -> list[AggregateKey]:
    return run_without_requests(collect_garbage_steps(state, controllers, Progress(now)))[0]


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
    state = RecommenderState()
    one = state.add_pod("default", "pod", {"app": "x"}, phase, T0)
    state.add_container(one, "app", T0)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    result = state.add_vpa(vpa(targetRef=target), parse_selector("app=x"))
    if sample:
        add_usage(state, Usage.from_events([(NAME, T0, 100, CPU_SAMPLE)]), T0)
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"}}
    controllers = Controllers([from_dict(body, Deployment)] if controller else [])
    assert bool(collected(state, controllers, T0 + age)) == removed
    assert bool(result.aggregates) != removed
    if removed:
        add_usage(state, Usage.from_events([(NAME, T0 + 10 * DAY, 100, CPU_SAMPLE)]), T0 + 10 * DAY)
        assert len(result.aggregates) == 1


def test_garbage_at_most_hourly() -> None:
    state = cluster(("default", "pod", {"app": "x"}))
    later = T0 + 9 * DAY
    state.last_gc = later - 60 * 10**9
    assert collected(state, Controllers(), later) == []
    state.last_gc = later - HOUR
    assert len(collected(state, Controllers(), later)) == 1


def test_unknown_pods_and_containers() -> None:
    state = cluster(("namespace-1", "known", {}))
    events = [
        (("namespace-1", "pod-1", "app"), T0, 1, CPU_SAMPLE),
        (("namespace-1", "pod-1", "app"), T0, 1, OOM),
        (("namespace-1", "known", "other"), T0, 1, CPU_SAMPLE),
        (("namespace-1", "known", "other"), T0, 1, OOM),
    ]
    assert [error.error for error in add_usage(state, Usage.from_events(events), T0)] == [
        "KeyError: {namespace-1 pod-1}",
        "KeyError: {namespace-1 pod-1}",
        "KeyError: {{namespace-1 known} other}",
        "KeyError: other",
    ]


@pytest.mark.parametrize("far", [ZERO_TIME, -(2**62) - 1, 2**62 + 1, 2**63 - 1])
def test_times_that_are_too_far_are_refused_in_order_and_the_rest_is_taken_in(far: int) -> None:
    def feed(*events: tuple[tuple[str, str, str], int, int, int]) -> tuple[list[str], RecommenderState]:
        state = cluster(("default", "pod", {"app": "x"}))
        return [error.error for error in add_usage(state, Usage.from_events(events), T0)], state

    discarded, unknown = "sample discarded (invalid or out of order)", ("default", "other", "app")
    good = [(NAME, T0 + i, 100 + i, i % 2) for i in range(4)]
    errors, state = feed(
        good[0], (NAME, far, 1, CPU_SAMPLE), good[1], (unknown, far, 1, CPU_SAMPLE), good[2],
        (NAME, far, 1, MEMORY_SAMPLE), (NAME, far, 1, OOM), good[3],
    )  # fmt: skip
    assert errors[:3] == [discarded, "KeyError: {default other}", discarded]
    reason = "OOM event will be discarded - it is too old" if far < 0 else "adding OOM sample failed"
    assert f"Reason: {reason}" in errors[3]
    assert len(errors) == 4
    _, alone = feed(*good)
    assert save_state(state) == save_state(alone)
    whose = [(NAME, each[1], each[2], CPU_SAMPLE) for each in good]  # of one kind, as a history has them
    few = Usage.from_events([*whose, (NAME, far, 1, CPU_SAMPLE)])
    state = cluster(("default", "pod", {"app": "x"}))
    assert [error.error for error in add_usage(state, replace(few, kind=CPU_SAMPLE), T0)] == [discarded]


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
    state = RecommenderState()
    result = state.add_vpa(vpa(), parse_selector("app=x"))
    result.recommendation = recommendation(recommended("app", ("1", None))) if has else None
    if last is not None:
        state.without_recommendation[result.key] = T0 + last * 60 * 10**9
    assert state.record_recommendation(result, T0) == text
    assert (result.key in state.without_recommendation) == remembered


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
    result = Vpa("default", "name", parse_selector("app=x"), pod_count=pods)
    result.recommendation = recommendation(recommended("app", ("1", None))) if has else None
    result.update_conditions(T0)
    conditions = [(c.type, c.status, c.reason, c.message) for c in result.status().conditions]
    assert [line[: len(want)] for line, want in zip(conditions, expected, strict=True)] == expected
    first = {c.type: c.last_transition_time for c in result.status().conditions}
    result.update_conditions(T0 + HOUR)
    assert {c.type: c.last_transition_time for c in result.status().conditions} == first


@pytest.mark.parametrize(
    ("recommender", "named", "is_managed"),
    [
        ("default", [], True),
        ("default", ["default"], True),
        ("default", ["other"], False),
        ("other", [], False),
        ("other", ["other"], True),
    ],
)
def test_which_recommender(recommender: str, named: list[str], is_managed: bool) -> None:
    vpa_ = vpa(recommenders=[{"name": name} for name in named])
    assert is_managed_vpa(vpa_, RecommenderOptions(recommender_name=recommender)) == is_managed


def test_namespaces() -> None:
    assert not is_managed_vpa(vpa(), RecommenderOptions(ignored_vpa_object_namespaces=["default"]))
    assert not is_managed_vpa(vpa(), RecommenderOptions(vpa_object_namespace="other"))


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
    state = RecommenderState(RecommenderOptions(memory_saver=saver))
    state.add_vpa(vpa(), parse_selector(selector))
    labels = {"name": "vpa-pod", "type": "stateful", "environment": "qa"}
    run_once(state, RecommenderRound(pods=changed_pods(pod(container("app"), labels=labels))), now=T0)
    assert len(state.pods) == (tracked if saver else 1)


def test_counts_by_container_name() -> None:
    """Two pods of other labels, containers A and B in one, A and C in the other, one sample each."""
    state = RecommenderState()
    result = state.add_vpa(vpa(), parse_selector("app in (x, y)"))
    events = []
    for pod_name, labels, containers in (("one", {"app": "x"}, "AB"), ("two", {"app": "y"}, "AC")):
        one = state.add_pod("default", pod_name, labels, "Running", T0)
        for name in containers:
            state.add_container(one, name, T0)
            events += [(("default", pod_name, name), T0, 1000, CPU_SAMPLE)]
            events += [(("default", pod_name, name), T0, 2 * 10**9, MEMORY_SAMPLE)]
    assert add_usage(state, Usage.from_events(events), T0) == []
    merged = merge_containers(state, [result])
    counts = {name: int(merged.store.samples[row]) for row, (_, name) in enumerate(merged.names)}
    assert counts == {"A": 2, "B": 1, "C": 1}


@pytest.mark.parametrize("phase", ["Running", "Pending", "Succeeded", "Failed"])
def test_pods_count_whatever_their_labels_and_phase(phase: str) -> None:
    state = RecommenderState()
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
    ("api_version", "stored_version"),
    [
        ("autoscaling.k8s.io/v1", "v1"),
        ("autoscaling.k8s.io/v1beta2", "v1beta2"),
        ("autoscaling.k8s.io/v1beta1", "v1beta1"),
        ("", "v1"),
    ],
)
def test_version_of_the_object(api_version: str, stored_version: str) -> None:
    vpa_ = vpa()
    vpa_.api_version = api_version
    assert RecommenderState().add_vpa(vpa_, parse_selector("app=x")).api_version == stored_version


def test_containers_that_a_recommendation_leaves_out_keep_theirs() -> None:
    state = cluster(("default", "pod", {"app": "x"}))
    state.add_container(state.pods["default", "pod"], "other", T0)
    result = state.add_vpa(vpa(), parse_selector("app=x"))
    for names, cpu in ((("app", "other"), "1"), (("app",), "2")):
        items = [{**recommended(n, (cpu, None)), "uncappedTarget": {"cpu": cpu}} for n in names]
        result.update_recommendation(recommendation(*items))
    last = {key.container: aggregate.last_recommendation for key, aggregate in result.aggregates.items()}
    assert last == {"app": {"cpu": Quantity("2")}, "other": {"cpu": Quantity("1")}}
