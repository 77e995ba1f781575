"""Rounds of the recommender: batch equals one by one, saved and forked states go on as if nothing had happened."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import is_nightly
from kscale.errors import StateError
from kscale.objects.api.apps import Deployment
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.decode import from_dict
from kscale.vpa import (
    Controllers,
    RecommenderOptions,
    RecommenderResult,
    RecommenderRound,
    RecommenderState,
    Usage,
    diff_pods,
    fork_state,
    init_from_checkpoints,
    load_state,
    run_once,
    save_state,
)
from kscale.vpa.model.saved_state import CPU_SAMPLE, AggregateStore, add_usage
from unit.vpa.builders import container, pod
from unit.vpa.written import checkpoints

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
    state: RecommenderState, given_rounds: list[Any], start: int = 0, *, split: bool = False
) -> list[RecommenderResult]:
    results = []
    now = START
    for number, (names, happened, rules, hours) in enumerate(given_rounds):
        now += hours * HOUR
        if number < start:
            continue
        live = [pod(container("a"), container("b"), name=f"p{i}", labels={"app": label}) for i, label in names]
        usage = [Usage.from_events([event]) for event in happened] if split else [Usage.from_events(happened)]
        given_round = RecommenderRound(
            vpas=vpas(rules), pods=diff_pods(state, live), controllers=CONTROLLERS, usage=usage
        )
        results.append(run_once(state, given_round, now=now))
    return results


@given(rounds, st.sampled_from([1, 3]))
def test_batch_is_one_by_one(given_rounds: list[Any], threads: int) -> None:
    batch, single = RecommenderState(threads=threads), RecommenderState()
    assert play(batch, given_rounds) == play(single, given_rounds, split=True)
    assert save_state(batch) == save_state(single)


@given(rounds, st.integers(0, 3), st.booleans())
def test_saved_and_forked_states_go_on(given_rounds: list[Any], after: int, saver: bool) -> None:
    original = RecommenderState(RecommenderOptions(pod_recommendation_min_cpu_millicores=1.0, memory_saver=saver))
    expected = play(original, given_rounds)
    after = min(after, len(given_rounds))
    part = RecommenderState(original.options)
    play(part, given_rounds[:after])
    before = save_state(part)
    for other in (load_state(before), fork_state(part)):
        assert save_state(other) == before
        assert play(other, given_rounds, after) == expected[after:]
    assert save_state(part) == before


def amounts(result: RecommenderResult) -> dict[tuple[str, ...], int]:
    """What is recommended: (VPA, container, field, resource) -> millicores or bytes."""
    amounts_ = {}
    for item in result.vpas:
        for one in item.recommendation.container_recommendations if item.recommendation is not None else ():
            for name in ("target", "lower_bound", "upper_bound", "uncapped_target"):
                for resource, quantity in (getattr(one, name) or {}).items():
                    amounts_[item.name, one.container_name, name, resource] = quantity.milli_value()
    return amounts_


def shifted(state: RecommenderState, by: float) -> RecommenderState:
    """The same state under options whose percentiles are a little lower or higher."""
    moved = fork_state(state)
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
    first = RecommenderState()
    play(first, given_rounds)
    now = START + 99 * HOUR  # all memory windows are over: nothing is held back
    low, high = (amounts(run_once(shifted(first, by), plain_round(), now=now)) for by in (-0.005, 0.005))
    result = run_once(first, plain_round(), now=now)
    second, saved = RecommenderState(), checkpoints(result.actions)
    assert init_from_checkpoints(second, vpas({}), saved, controllers=CONTROLLERS, now=now) == []
    again = run_once(second, plain_round(), now=now)
    assert again.diagnostics == []
    loaded = amounts(again)
    assert loaded.keys() == amounts(result).keys()
    for key, amount in loaded.items():
        assert low[key] <= amount <= high[key], key
    assert sample_counts(again) == sample_counts(result)


def test_checkpoints_that_come_after_rounds_are_merged_in_the_next() -> None:
    """What is merged of whom is remembered from round to round."""
    (result,) = play(RecommenderState(), [([(0, "x")], [(("default", "p0", "a"), START, 3_000, CPU_SAMPLE)], {}, 1)])
    state = RecommenderState()
    one = pod(container("a"), name="p0", labels={"app": "x"})
    round_inputs = RecommenderRound(vpas=vpas({}), pods=diff_pods(state, [one]), controllers=CONTROLLERS, usage=[])
    run_once(state, round_inputs, now=START + HOUR)
    assert sample_counts(run_once(state, plain_round(), now=START + 2 * HOUR)) == {("vpa-x", "a"): 0}
    saved, now = checkpoints(result.actions), START + 3 * HOUR
    assert init_from_checkpoints(state, vpas({}), saved, controllers=CONTROLLERS, now=now) == []
    assert sample_counts(run_once(state, plain_round(), now=now))["vpa-x", "a"] == 1


def sample_counts(result: RecommenderResult) -> dict[tuple[str, str], int]:
    """(VPA, container) -> what its checkpoint says."""
    return {
        (item.spec.vpa_object_name, item.spec.container_name): item.status.total_samples_count
        for item in checkpoints(result.actions)
    }


def plain_round() -> RecommenderRound:
    return RecommenderRound(vpas=vpas({}), controllers=CONTROLLERS, usage=[])


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 nothing", None])
def test_damaged_states(damage: bytes | None) -> None:
    data = save_state(RecommenderState())[:-30] if damage is None else damage
    with pytest.raises(StateError):
        load_state(data)


def test_a_byte_that_is_another_anywhere_is_a_state_error() -> None:
    """Or nothing that matters: streams that cannot be unpacked, and unknown compressions, had no name."""
    data = save_state(RecommenderState())
    refused, places = 0, range(0, len(data), 5 if is_nightly() else 25)
    for at in places:
        changed = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        try:
            load_state(changed)
        except StateError:
            refused += 1
    assert refused > len(places) // 4


@pytest.mark.parametrize("version", ["kscale.dev/v1beta1 vpa-state", None])
def test_a_state_of_another_version_is_named(version: str | None) -> None:
    out = io.BytesIO()
    np.savez_compressed(out, json=np.frombuffer(msgspec.json.encode({"format": version}), np.uint8))
    with pytest.raises(StateError, match="not a state of the recommender: "):
        load_state(out.getvalue())


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

    def fresh() -> RecommenderState:
        state = RecommenderState(threads=2)
        for i in range(pods):
            labels = {"pod": "same" if change == "shared aggregate" else str(i)}
            state.add_container(state.add_pod("default", f"p{i}", labels, "Running", START), "app", START)
        if change == "late":
            add_usage(state, Usage.from_events([(("default", "p2", "app"), START, 5, CPU_SAMPLE)]), START)
        return state

    rows = [tuple(event) for one in events for event in one]
    usage = Usage.from_events(rows)
    usage = Usage(usage.containers, usage.container, usage.time, usage.value, CPU_SAMPLE)
    batch, single = fresh(), fresh()
    refused = add_usage(batch, usage, START)
    expected = [error for row in rows for error in add_usage(single, Usage.from_events([row]), START)]
    assert refused == expected
    assert len(refused) == {"negative": 1, "late": 1, "twice": length}.get(change, 0)
    for name in ("weights", "total", "min_bucket", "max_bucket", "reference"):
        assert np.array_equal(getattr(batch.store.cpu, name), getattr(single.store.cpu, name))
    for name in ("first", "last", "samples", "last_cpu"):
        assert np.array_equal(getattr(batch.store, name), getattr(single.store, name))


def test_repeated_container_list_is_checked_against_changes() -> None:
    state = RecommenderState()
    keys = [("default", f"p{i}") for i in range(3)]
    for namespace, name in keys:
        state.add_container(state.add_pod(namespace, name, {"app": "a"}, "Running", START), "app", START)
    containers = [(*key, "app") for key in keys]

    def refused(at: int) -> list[str]:
        columns = np.arange(3, dtype=np.int32), np.full(3, START + at * 10**9), np.full(3, 100)
        return [error.pod for error in add_usage(state, Usage(containers, *columns, CPU_SAMPLE), START)]

    row = state.store.aggregate.copy()
    assert refused(1) == refused(2) == []
    first = state.resolved_containers
    assert first is not None
    assert refused(3) == []
    assert state.resolved_containers is first
    state.delete_pod(keys[1])
    assert refused(4) == ["p1"]
    state.add_container(state.add_pod(*keys[1], {"app": "b"}, "Running", START), "app", START)
    assert refused(5) == []
    state.add_pod(*keys[0], {"app": "b"}, "Running", START)  # feeds another aggregate from now on
    state.set_init_containers(state.pods[keys[2]], frozenset({"app"}))
    assert refused(6) == []  # samples of init containers are dropped silently
    rows = {name: state.store.aggregate[state.pods["default", name].containers["app"].slot] for name in ("p0", "p1")}
    assert rows["p0"] == rows["p1"] != row[0]
    state.remove_aggregate(state.pods[keys[1]].label_set.aggregates["app"])
    assert refused(7) == []
    assert "app" in state.pods[keys[1]].label_set.aggregates  # made again for the sample


def test_the_largest_fleet_fits_into_its_budget() -> None:
    """Ten thousand containers, both resources: 28 MiB of histograms."""
    store = AggregateStore(RecommenderOptions())
    store.reserve(10_000, 10_000)
    assert store.cpu.nbytes + store.memory.nbytes <= 28 * 2**20
