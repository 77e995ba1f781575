"""Rounds of the recommender: batch equals one by one, saved and forked states go on as if nothing had happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale.errors import StateError
from kscale.objects.apps import Deployment
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.vpa import VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint
from kscale.vpa import ClusterState, Controllers, RecommenderOptions, RecommenderResult, Round, Usage, run_once
from kscale.vpa.model import CPU_SAMPLE
from kscale.vpa.model.aggregates import Store
from unit.vpa.builders import container, pod

START = 1767571200 * 10**9
HOUR = 3600 * 10**9
LABELS = ("x", "y", "z")


def deployment(name: str) -> Deployment:
    selector = {"matchLabels": {"app": name}}
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": selector},
    }
    return from_dict(body, Deployment)


CONTROLLERS = Controllers(deployment(name) for name in LABELS)


def vpas(policies: dict[str, Any]) -> list[VerticalPodAutoscaler]:
    def one(name: str) -> VerticalPodAutoscaler:
        body = {
            "metadata": {"name": f"vpa-{name}", "namespace": "default"},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                **policies.get(name, {}),
            },
        }
        return from_dict(body, VerticalPodAutoscaler)

    return [one(name) for name in LABELS]


policies = st.dictionaries(
    st.sampled_from(LABELS),
    st.sampled_from([
        {"resourcePolicy": {"containerPolicies": [{"containerName": "*", "mode": "Off"}]}},
        {"resourcePolicy": {"containerPolicies": [{"containerName": "a", "controlledResources": ["cpu"]}]}},
        {"resourcePolicy": {"containerPolicies": [{"containerName": "b", "maxAllowed": {"cpu": "50m"}}]}},
    ]),
)  # fmt: skip
pods = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(LABELS)), max_size=5, unique_by=lambda item: item[0])
events = st.lists(
    st.tuples(
        st.tuples(st.just("default"), st.integers(0, 5).map("p{}".format), st.sampled_from(["a", "b", "c"])),
        st.integers(0, 60).map(lambda h: START + h * HOUR),
        st.integers(0, 40).map(lambda n: n * 30_000_000),
        st.sampled_from([0, 0, 1, 1, 2]),
    ).map(lambda e: (e[0], e[1], e[2] // 100_000 if e[3] == 0 else e[2], e[3])),
    max_size=40,
)
rounds = st.lists(st.tuples(pods, events, policies, st.integers(1, 30)), min_size=1, max_size=4)


def play(
    state: ClusterState, given_rounds: list[Any], start: int = 0, *, split: bool = False
) -> list[RecommenderResult]:
    results = []
    now = START
    for number, (names, happened, rules, hours) in enumerate(given_rounds):
        now += hours * HOUR
        if number < start:
            continue
        live = [pod(container("a"), container("b"), name=f"p{i}", labels={"app": label}) for i, label in names]
        usage = [Usage.from_events([event]) for event in happened] if split else [Usage.from_events(happened)]
        given_round = Round(vpas=vpas(rules), pods=live, controllers=CONTROLLERS, usage=usage)
        results.append(run_once(state, given_round, now=now))
    return results


@given(rounds, st.sampled_from([1, 3]))
def test_batch_is_one_by_one(given_rounds: list[Any], threads: int) -> None:
    batch, single = ClusterState(threads=threads), ClusterState()
    assert play(batch, given_rounds) == play(single, given_rounds, split=True)
    assert batch.save() == single.save()


@given(rounds, st.integers(0, 3))
def test_saved_and_forked_states_go_on(given_rounds: list[Any], after: int) -> None:
    whole = ClusterState(RecommenderOptions(pod_recommendation_min_cpu_millicores=1.0))
    expected = play(whole, given_rounds)
    after = min(after, len(given_rounds))
    part = ClusterState(whole.options)
    play(part, given_rounds[:after])
    before = part.save()
    for other in (ClusterState.load(before), part.fork()):
        assert other.save() == before
        assert play(other, given_rounds, after) == expected[after:]
    assert part.save() == before


def amounts(result: RecommenderResult) -> dict[tuple[str, ...], int]:
    """What is recommended: (VPA, container, field, resource) -> millicores or bytes."""
    found = {}
    for item in result.vpas:
        for one in item.recommendation.container_recommendations if item.recommendation is not None else ():
            for name in ("target", "lower_bound", "upper_bound", "uncapped_target"):
                for resource, quantity in (getattr(one, name) or {}).items():
                    found[item.name, one.container_name, name, resource] = quantity.milli_value()
    return found


def shifted(state: ClusterState, by: float) -> ClusterState:
    """The same state under options whose percentiles are a little lower or higher."""
    moved = state.fork()
    names = [name for name in RecommenderOptions.__struct_fields__ if name.endswith("_percentile")]
    assert len(names) == 6
    moved.options = msgspec.structs.replace(
        state.options, **{name: getattr(state.options, name) + by for name in names}
    )
    return moved


@given(rounds)
def test_checkpoints_load_into_an_equal_recommendation_within_their_loss(given_rounds: list[Any]) -> None:
    """A checkpoint rounds weights to 1/10000 of the heaviest bucket: percentiles move by less than half a percent."""
    given_rounds = [(names, happened, {}, hours) for names, happened, _, hours in given_rounds]
    first = ClusterState()
    play(first, given_rounds)
    now = START + 99 * HOUR  # all memory windows are over: nothing is held back
    low, high = (amounts(run_once(shifted(first, by), plain_round(), now=now)) for by in (-0.005, 0.005))
    result = run_once(first, plain_round(), now=now)
    saved = [
        from_dict(
            {
                "metadata": {"namespace": item.namespace, "name": f"{item.vpa}-{item.container}"},
                "spec": {"vpaObjectName": item.vpa, "containerName": item.container},
                "status": to_dict(item.status),
            },
            VerticalPodAutoscalerCheckpoint,
        )
        for one in result.vpas
        for item in one.checkpoints
    ]
    again = run_once(ClusterState(), plain_round(saved), now=now)
    assert not again.diagnostics
    loaded = amounts(again)
    assert loaded.keys() == amounts(result).keys()
    for key, amount in loaded.items():
        assert low[key] <= amount <= high[key], key
    counts = {(c.vpa, c.container): c.status.total_samples_count for r in result.vpas for c in r.checkpoints}
    assert {(c.vpa, c.container): c.status.total_samples_count for r in again.vpas for c in r.checkpoints} == counts


def plain_round(saved: Sequence[VerticalPodAutoscalerCheckpoint] = ()) -> Round:
    return Round(vpas=vpas({}), controllers=CONTROLLERS, checkpoints=saved)


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 nothing", None])
def test_damaged_states(damage: bytes | None) -> None:
    data = ClusterState().save()[:-30] if damage is None else damage
    with pytest.raises(StateError):
        ClusterState.load(data)


@pytest.mark.parametrize(
    "change", ["", "shared aggregate", "hole", "negative", "huge", "late", "other time", "twice", "too few"]
)
def test_samples_at_shared_times_are_samples(change: str) -> None:
    """Taken in as a grid where that makes no difference, one after the other where it would."""
    rng = np.random.default_rng(len(change))
    pods, length = 5, 20 if change == "too few" else 50
    events = [
        [
            [("default", f"p{i}", "app"), START + t * 60 * 10**9, int(rng.integers(0, 9000)), CPU_SAMPLE]
            for t in range(length)
        ]
        for i in range(pods)
    ]
    if change == "hole":
        del events[2][7]
    elif change in ("negative", "huge"):
        events[1][3][2] = -1 if change == "negative" else 2**40
    elif change == "other time":
        events[3][9][1] += 1
    elif change == "twice":
        events[4] = [[events[0][0][0], *event[1:]] for event in events[4]]

    def fresh() -> ClusterState:
        state = ClusterState(threads=2)
        for i in range(pods):
            labels = {"pod": "same" if change == "shared aggregate" else str(i)}
            state.add_container(state.add_pod("default", f"p{i}", labels, "Running", START), "app", (0, 0), START)
        if change == "late":
            state.add_usage(Usage.from_events([(("default", "p2", "app"), START, 5, CPU_SAMPLE)]), START)
        return state

    rows = [tuple(event) for one in events for event in one]
    usage = Usage.from_events(rows)
    usage = Usage(usage.containers, usage.container, usage.time, usage.value, CPU_SAMPLE)
    batch, single = fresh(), fresh()
    refused = batch.add_usage(usage, START)
    expected = [error for row in rows for error in single.add_usage(Usage.from_events([row]), START)]
    assert refused == expected
    assert len(refused) == {"negative": 1, "late": 1, "twice": length}.get(change, 0)
    for name in ("weights", "total", "min_bucket", "max_bucket", "reference"):
        assert np.array_equal(getattr(batch.store.cpu, name), getattr(single.store.cpu, name))
    for name in ("first", "last", "samples", "last_cpu"):
        assert np.array_equal(getattr(batch.store, name), getattr(single.store, name))


def test_the_largest_fleet_fits_into_its_budget() -> None:
    """Ten thousand containers, both resources: 28 MiB of histograms."""
    store = Store(RecommenderOptions())
    store.reserve(10_000, 10_000)
    assert store.cpu.nbytes + store.memory.nbytes <= 28 * 2**20
