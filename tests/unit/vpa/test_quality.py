"""What a round says about how good its recommendations were."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale.effects import Observation
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import parse_selector
from kscale.snapshot.caches import collector_paused
from kscale.vpa import RecommenderRound, RecommenderState, Usage, run_once
from kscale.vpa.metrics import METRICS, QualityObserver
from kscale.vpa.model.saved_state import CPU_SAMPLE, MEMORY_SAMPLE, OOM, add_usage
from unit.vpa.builders import recommendation, recommended, vpa
from unit.vpa.worlds import counted

SECOND = 10**9
T0 = 1767571200 * SECOND
GIB = 2**30
NAME = ("default", "pod", "app")


def cluster(last: dict[str, str] | None, **more: Any) -> RecommenderState:
    """One container under a VPA in mode Initial whose last recommendation is given."""
    state = RecommenderState()
    state.add_vpa(vpa(updatePolicy={"updateMode": "Initial"}, **more), parse_selector("app=x"))
    state.add_container(state.add_pod("default", "pod", {"app": "x"}, "Running", T0), "app", T0)
    (aggregate,) = state.aggregates.values()
    aggregate.last_recommendation = None if last is None else {k: Quantity(v) for k, v in last.items()}
    return state


def watched(state: RecommenderState, *events: tuple[int, int, int]) -> QualityObserver:
    quality = QualityObserver()
    add_usage(state, Usage.from_events((NAME, *event) for event in events), T0, quality)
    return quality


def spread(observations: list[Observation]) -> dict[str, Observation]:
    """Of histograms, by metric and labels."""
    return {key: one for one in observations if one.buckets is not None for key in counted([one])}


def only(observation: Observation) -> tuple[float, float]:
    """(the bound of the one observation, the observation)."""
    assert observation.buckets is not None
    assert sum(observation.buckets) == 1
    return [*METRICS[observation.name].bounds, float("inf")][observation.buckets.index(1)], observation.value


@pytest.mark.parametrize(
    ("usage", "metric", "bound", "difference", "relative"),
    [
        (500, "cpu_recommendation_over_usage_diffs_cores", 0.64, 0.5, (-0.5, -0.5)),
        (1000, "cpu_recommendation_lower_equal_usage_diffs_cores", 0.01, 0.0, (0.0, 0.0)),
        (3000, "cpu_recommendation_lower_equal_usage_diffs_cores", 2.56, 2.0, (2.5, 2.0)),
    ],
)
def test_cpu(usage: int, metric: str, bound: float, difference: float, relative: tuple[float, float]) -> None:
    found_ = watched(cluster({"cpu": "1"}), (T0, usage, CPU_SAMPLE))
    result = spread(found_.into.observations())
    assert only(result[f"vpa_quality_{metric}{{update_mode=Initial,recommendation_missing=false}}"]) == (
        bound,
        difference,
    )
    labels = "update_mode=Initial,resource=cpu,is_oom=false"
    assert only(result[f"vpa_quality_usage_recommendation_relative_diffs{{{labels}}}"]) == relative
    assert only(result["vpa_quality_cpu_recommendations_cores{update_mode=Initial}"]) == (1.28, 1.0)
    assert len(result) == 3


@pytest.mark.parametrize("last", [None, {}, {"cpu": "0"}, {"memory": "1Gi"}])
def test_missing_recommendation(last: dict[str, str] | None) -> None:
    quality = watched(cluster(last), (T0, 20, CPU_SAMPLE))
    labels = "update_mode=Initial,resource=cpu,is_oom=false"
    counts = counted([one for one in quality.into.observations() if one.buckets is None])
    assert counts == {f"vpa_quality_usage_sample_missing_recommendation_count{{{labels}}}": 1}
    name = "vpa_quality_cpu_recommendation_lower_equal_usage_diffs_cores"
    assert {key: only(one) for key, one in spread(quality.into.observations()).items()} == {
        f"{name}{{update_mode=Initial,recommendation_missing=true}}": (0.02, 0.02)
    }


def test_oom_kill_counts_with_its_bumped_memory() -> None:
    """1 GiB was asked for, 2 GiB used: 1.2 times that is counted."""
    state = cluster({"memory": "1Gi"})
    result = spread(watched(state, (T0, 2 * GIB, MEMORY_SAMPLE), (T0 + SECOND, GIB, OOM)).into.observations())
    labels = "update_mode=Initial,resource=memory,is_oom="
    assert result[f"vpa_quality_usage_recommendation_relative_diffs{{{labels}false}}"].value == 1.0
    bumped = int(2 * GIB * 1.2)
    assert result[f"vpa_quality_usage_recommendation_relative_diffs{{{labels}true}}"].value == (bumped - GIB) / GIB
    assert only(result["vpa_quality_mem_recommendations_bytes{update_mode=Initial,is_oom=true}"])[1] == GIB


@pytest.mark.parametrize(
    "more",
    [{"policies": [{"containerName": "*", "mode": "Off"}]}, {"targetRef": None}],
)
def test_containers_without_recommendation_have_no_observation(more: dict[str, Any]) -> None:
    state = cluster({"cpu": "1"}, **more)
    if "targetRef" in more:
        state.delete_vpa(("default", "name"))
    refused = watched(cluster({"cpu": "1"}), (T0, -5, CPU_SAMPLE))
    for quality in (watched(state, (T0, 500, CPU_SAMPLE)), refused):
        assert quality.into.observations() == []


def test_changes_of_recommendations() -> None:
    state = cluster(None)
    quality = QualityObserver()
    for cpu in ("100m", "200m"):
        amounts = {"cpu": cpu, "memory": "1Gi"}
        item = {**recommended("app", (cpu, "1Gi")), "uncappedTarget": amounts}
        state.vpas["default", "name"].update_recommendation(recommendation(item), quality)
    name, labels = "vpa_quality_relative_recommendation_changes", "update_mode=Initial,resource={},vpa_size_log2=0"
    assert {key: only(one) for key, one in spread(quality.into.observations()).items()} == {
        f"{name}{{{labels.format('cpu')}}}": (1.0, 1.0),
        f"{name}{{{labels.format('memory')}}}": (0.0, 0.0),
    }


def test_late_observations_use_the_recommendation_of_their_time() -> None:
    events = [(T0, 500, CPU_SAMPLE), (T0, GIB, MEMORY_SAMPLE)]
    soon, state = watched(cluster({"cpu": "1", "memory": "2Gi"}), *events), cluster({"cpu": "1", "memory": "2Gi"})
    observations, late = soon.into.observations(), watched(state, *events)
    for aggregate in state.aggregates.values():
        aggregate.last_recommendation = {"cpu": Quantity("3"), "memory": Quantity("1")}
    assert late.into.observations() == observations != []


def test_unread_values_are_freed_with_the_tally() -> None:
    state = cluster({"cpu": "1"})
    values = np.array([500], np.int64)
    values_ref = weakref.ref(values)
    with collector_paused():
        usage = Usage([NAME], np.zeros(1, np.int32), np.array([T0]), values, CPU_SAMPLE)
        quality = QualityObserver()
        add_usage(state, usage, T0, quality)
        del usage, values, quality
        assert values_ref() is None


def test_a_round_carries_its_observations() -> None:
    state = cluster({"cpu": "1"})
    usage = Usage.from_events([(NAME, T0, 500, CPU_SAMPLE)])
    result = run_once(state, RecommenderRound(usage=[usage]), now=T0)
    counts = counted(result.observations)
    assert counts["vpa_recommender_aggregate_container_states_count"] == 1
    assert counts["vpa_quality_cpu_recommendations_cores{update_mode=Initial}"] == 1


samples = st.tuples(
    st.integers(0, 400).map(lambda s: T0 + s * SECOND),
    st.integers(-2, 40).map(lambda n: n * 50_000_000),
    st.sampled_from([CPU_SAMPLE, MEMORY_SAMPLE, OOM]),
)


@given(st.lists(samples, max_size=30), st.sampled_from([None, {"cpu": "2"}, {"cpu": "1", "memory": "500M"}]))
def test_a_batch_is_its_samples(events: list[tuple[int, int, int]], last: dict[str, str] | None) -> None:
    # All CPU samples of a batch come before the others.
    ordered = [e for e in events if e[2] == CPU_SAMPLE] + [e for e in events if e[2] != CPU_SAMPLE]
    batch = watched(cluster(last), *ordered)
    state, single = cluster(last), QualityObserver()
    for event in ordered:
        add_usage(state, Usage.from_events([(NAME, *event)]), T0, single)
    ours, theirs = batch.into.observations(), single.into.observations()
    assert counted(ours) == counted(theirs)
    for key, one in spread(ours).items():
        assert one.buckets == spread(theirs)[key].buckets
        assert one.value == pytest.approx(spread(theirs)[key].value)
