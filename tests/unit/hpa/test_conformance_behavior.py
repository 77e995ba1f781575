"""Facts of upstream's ``horizontal_test.go`` on stabilisation, rate limits and scale events, and the native kernel
against the obvious one.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale.effects import SECOND
from kscale.hpa.api.validation import apply_defaults
from kscale.hpa.controller.behavior import normalize, store_scale_event
from kscale.hpa.controller.state import HPAState, Recommendation, ScaleEvent
from kscale.hpa.controller.status import SCALING_LIMITED_CONDITIONS
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import (
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerBehavior,
    HorizontalPodAutoscalerSpec,
    HPAScalingPolicy,
    HPAScalingRules,
)
from reference import hpa_behavior as reference

NOW = 1_772_366_400 * SECOND
OPTIONS = HPAOptions()


def scaling(pods: int, pods_period: int, percent: int, percent_period: int, window: int) -> HPAScalingRules:
    """A Max policy with a Pods policy if pods, then a Percent policy if percent."""
    policies = []
    if pods:
        policies.append(HPAScalingPolicy(type="Pods", value=pods, period_seconds=pods_period))
    if percent:
        policies.append(HPAScalingPolicy(type="Percent", value=percent, period_seconds=percent_period))
    return HPAScalingRules(stabilization_window_seconds=window, select_policy="Max", policies=policies)


def behavior(up: HPAScalingRules | None, down: HPAScalingRules | None) -> HorizontalPodAutoscalerBehavior:
    rules = HorizontalPodAutoscalerBehavior(scale_up=up, scale_down=down)
    spec = HorizontalPodAutoscalerSpec(max_replicas=1, behavior=rules)
    filled = apply_defaults(HorizontalPodAutoscaler(spec=spec)).spec.behavior
    assert filled is not None
    return filled


def rules_of(text: str) -> HPAScalingRules | None:
    return None if text == "-" else scaling(*(int(number) for number in text.split(",")))


def log(text: str) -> tuple[Recommendation, ...]:
    """``4@2 5@1``: values and their age in minutes."""
    pairs = [entry.split("@") for entry in text.split()]
    return tuple(Recommendation(int(value), NOW - int(age) * 60 * SECOND) for value, age in pairs)


def spread(text: str) -> tuple[ScaleEvent, ...]:
    """``1+5+9/120``: each in the middle of its equal slice of the last seconds, a moment older than that."""
    if text == "-":
        return ()
    changes, period = text.split("/")
    values = [int(change) for change in changes.split("+")]
    slice_ = int(period) / len(values)
    return tuple(
        ScaleEvent(value, NOW - round((int(period) - (i + 0.5) * slice_) * SECOND) - 1)
        for i, value in enumerate(values)
    )


@pytest.mark.parametrize(
    ("current", "proposal", "minimum", "maximum", "result", "reason"),
    [
        (5, 7, 3, 8, 7, "DesiredWithinRange"),
        (3, 1, 2, 8, 2, "TooFewReplicas"),
        (1, 0, 0, 10, 0, "DesiredWithinRange"),
        (20, 1000, 1, 10, 10, "TooManyReplicas"),
        (3, 1000, 1, 2000, 6, "ScaleUpLimit"),
    ],
)
def test_legacy_limits(current: int, proposal: int, minimum: int, maximum: int, result: int, reason: str) -> None:
    state = HPAState(recommendations=())
    out = normalize(current, proposal, minimum, maximum, None, state, options=OPTIONS, now=NOW)
    assert (out.desired, SCALING_LIMITED_CONDITIONS[out.limit][0], out.limited) == (result, reason, result != proposal)


@pytest.mark.parametrize(
    ("entries", "proposal", "result", "length"),
    [
        ("", 5, 5, 1),
        ("4@2 5@1", 3, 5, 3),
        ("1@2 2@1", 3, 3, 3),
        ("10@10 9@9", 3, 3, 2),
        ("10@10 4@1 5@2 9@9", 3, 5, 4),
    ],
)
def test_legacy_stabilization(entries: str, proposal: int, result: int, length: int) -> None:
    state = HPAState(recommendations=log(entries))
    out = normalize(5, proposal, 1, 1000, None, state, options=OPTIONS, now=NOW)
    assert (out.stabilized, len(out.recommendations)) == (result, length)


@pytest.mark.parametrize(
    ("current", "proposal", "entries", "up", "down", "result", "after"),
    [
        (100, 5, "", 0, 0, 5, "5"),
        (100, 3, "4@2 5@1", 0, 180, 5, "4 5 3"),
        (1, 7, "4@2 5@1", 300, 0, 4, "4 5 7"),
        (100, 3, "1@2 2@1", 300, 0, 3, "1 2 3"),
        (1, 3, "4@2 5@1", 0, 300, 3, "4 5 3"),
        (100, 3, "10@10 9@9", 0, 0, 3, "10 3"),
        (1, 100, "10@10 9@9", 0, 0, 100, "10 100"),
        (100, 3, "10@10 4@1 5@2 9@9", 0, 180, 5, "10 4 5 3"),
        (1, 100, "10@100 6@1 5@2 9@3", 300, 0, 5, "100 6 5 9"),
        (2, 1, "2@100 3@3", 300, 300, 2, ""),
        (2, 3, "2@100 1@3", 300, 300, 2, ""),
    ],
)
def test_stabilization(current: int, proposal: int, entries: str, up: int, down: int, result: int, after: str) -> None:
    rules = behavior(scaling(0, 0, 100, 15, up), scaling(0, 0, 100, 15, down))
    state = HPAState(recommendations=log(entries))
    out = normalize(current, proposal, 1, 1000, rules, state, options=OPTIONS, now=NOW)
    assert out.stabilized == result
    if after:
        assert [each.replicas for each in out.recommendations] == [int(value) for value in after.split()]


@pytest.mark.parametrize(("age", "result"), [(SECOND // 2, 9), (0, 9), (-SECOND // 2, 3)])
def test_without_rules_up_the_window_up_is_empty(age: int, result: int) -> None:
    """Only a recommendation of a moment to come (the clock was set back) still counts."""
    state = HPAState(recommendations=(Recommendation(3, NOW - age),))
    rules = HorizontalPodAutoscalerBehavior(scale_down=scaling(0, 0, 100, 15, 0))
    assert normalize(2, 9, 1, 1000, rules, state, options=OPTIONS, now=NOW).stabilized == result


@pytest.mark.parametrize(("current", "proposal", "result"), [(1, 100, 2), (5, 0, 3)], ids=["up", "down"])
def test_min_policies(current: int, proposal: int, result: int) -> None:
    min_rules = scaling(2, 60, 50, 60, 0)
    min_rules.select_policy = "Min"
    rules, state = behavior(min_rules, min_rules), HPAState(recommendations=())
    assert normalize(current, proposal, 1, 1000, rules, state, options=OPTIONS, now=NOW).desired == result


# Derived from the formulas: what a double makes of them; exact would be 55, 110, 28, and 1, 1, 33.
@pytest.mark.parametrize(
    ("up", "start", "percent", "result"),
    [(True, 50, 10, 56), (True, 100, 10, 111), (True, 25, 12, 29),
     (False, 5, 80, 0), (False, 10, 90, 0), (False, 50, 34, 32)],
)  # fmt: skip
def test_percent_policies_are_products_of_doubles(up: bool, start: int, percent: int, result: int) -> None:
    rules = scaling(0, 0, percent, 60, 0)
    state = HPAState(recommendations=())
    out = normalize(start, 1000 if up else 0, -1, 1000, behavior(rules, rules), state, options=OPTIONS, now=NOW)
    assert out.desired == result


# case | current | proposal | min | max | up | down | up events | down events | result | reason
LIMITED = """
within range | 5 | 7 | 3 | 8 | - | - | - | - | 7 | DesiredWithinRange
desired < min | 3 | 1 | 2 | 8 | - | - | - | - | 2 | TooFewReplicas
zero allowed when min 0 | 1 | 0 | 0 | 10 | - | - | - | - | 0 | DesiredWithinRange
max is the limit | 20 | 1000 | 1 | 10 | - | - | - | - | 10 | TooManyReplicas
desired > max | 100 | 1000 | 100 | 150 | - | - | - | - | 150 | TooManyReplicas
user policy limits | 3 | 1000 | 1 | 2000 | 0,0,1,60,0 | - | - | - | 4 | ScaleUpLimit
up, default behaviour | 10 | 50 | 1 | 1000 | - | - | - | - | 20 | ScaleUpLimit
up, pods > percent | 10 | 500 | 1 | 1000 | 100,60,100,60,0 | - | - | - | 110 | ScaleUpLimit
up, percent > pods | 10 | 500 | 1 | 1000 | 2,60,100,60,0 | - | - | - | 20 | ScaleUpLimit
up, large pod policy | 10 | 50 | 1 | 1000 | 100,60,0,0,0 | - | - | - | 50 | DesiredWithinRange
up, very large pod policy | 10 | 50 | 1 | 1000 | 10000,60,0,0,0 | - | - | - | 50 | DesiredWithinRange
up, pod policy | 10 | 50 | 1 | 1000 | 30,60,0,0,0 | - | - | - | 40 | ScaleUpLimit
up, percent policy | 10 | 50 | 1 | 1000 | 0,0,200,60,0 | - | - | - | 30 | ScaleUpLimit
down, percent vs larger pod policy | 100 | 2 | 1 | 1000 | - | 20,60,1,60,300 | - | - | 80 | ScaleDownLimit
down, pod 2 vs percent 1 | 100 | 2 | 1 | 1000 | - | 2,60,1,60,300 | - | - | 98 | ScaleDownLimit
down, min, large pod policy | 10 | 0 | 1 | 1000 | - | 100,60,0,0,300 | - | - | 1 | TooFewReplicas
down, min 5, all | 10 | 2 | 5 | 1000 | - | 0,0,100,60,300 | - | - | 5 | TooFewReplicas
down, pod policy | 10 | 2 | 1 | 1000 | - | 5,60,0,0,300 | - | - | 5 | ScaleDownLimit
down, percent policy | 10 | 5 | 1 | 1000 | - | 0,0,50,60,300 | - | - | 5 | DesiredWithinRange
up, max, pods, events | 100 | 500 | 1 | 200 | 300,60,0,0,0 | - | 1+5+9/120 | - | 200 | TooManyReplicas
up, max, percent, events | 100 | 500 | 1 | 200 | 0,0,10000,60,0 | - | 1+5+9/120 | - | 200 | TooManyReplicas
up, limit below current | 100 | 500 | 1 | 1000 | 5,120,0,0,0 | - | 1+5+9/120 | - | 100 | ScaleUpLimit
up, pods, events | 100 | 500 | 1 | 1000 | 150,120,0,0,0 | - | 1+5+9/120 | - | 235 | ScaleUpLimit
up, percent, events | 100 | 500 | 1 | 1000 | 0,0,200,120,0 | - | 1+5+9/120 | - | 255 | ScaleUpLimit
up, both events | 6 | 24 | 1 | 1000 | 0,0,300,300,0 | - | 4/120 | 2/120 | 16 | ScaleUpLimit
down, default, events | 10 | 5 | 1 | 1000 | - | - | - | 1+5+9/120 | 5 | DesiredWithinRange
down, min 1, pods, events | 100 | 0 | 1 | 1000 | - | 115,120,0,0,300 | - | 1+5+9/120 | 1 | TooFewReplicas
down, min 5, pods, events | 100 | 0 | 5 | 1000 | - | 130,120,0,0,300 | - | 1+5+9/120 | 5 | TooFewReplicas
down, min 5, all, events | 100 | 2 | 5 | 1000 | - | 0,0,100,120,300 | - | 1+5+9/120 | 5 | TooFewReplicas
down, pods 5, events | 100 | 2 | 1 | 1000 | - | 5,120,0,0,300 | - | 1+5+9/120 | 100 | ScaleDownLimit
down, half, events | 100 | 0 | 1 | 1000 | - | 0,0,50,120,300 | - | 2+4+6/120 | 56 | ScaleDownLimit
down, both events | 10 | 1 | 1 | 1000 | - | 0,0,50,180,0 | 2/120 | 4/120 | 6 | ScaleDownLimit
down, blocked by events | 100 | 0 | 1 | 1000 | - | 0,0,10,120,300 | - | 10+10+10/120 | 100 | ScaleDownLimit
down, tenfold, events | 10 | 5 | 1 | 1000 | - | 0,0,1000,120,300 | - | 10+10+10/120 | 5 | DesiredWithinRange
outdated, one up policy | 100 | 200 | 1 | 1000 | 1000,60,0,0,0 | - | 8+12+9+11/120 | - | 200 | DesiredWithinRange
not outdated, two up | 100 | 200 | 1 | 1000 | 1000,120,100,60,0 | - | 8+12+9+11/120 | - | 200 | DesiredWithinRange
outdated, two up | 100 | 200 | 1 | 1000 | 1000,30,100,60,0 | - | 8+12+9+11/120 | - | 200 | DesiredWithinRange
outdated, one down policy | 100 | 5 | 1 | 1000 | - | 1000,60,0,0,300 | - | 8+12+9+11/120 | 5 | DesiredWithinRange
not outdated, two down | 100 | 5 | 1 | 1000 | - | 1000,120,100,60,300 | - | 8+12+9+11/120 | 5 | DesiredWithinRange
outdated, two down | 100 | 5 | 1 | 1000 | - | 1000,30,100,60,300 | - | 8+12+9+11/120 | 5 | DesiredWithinRange
""".strip().splitlines()


@pytest.mark.parametrize("line", LIMITED, ids=[line.split(" | ")[0] for line in LIMITED])
def test_rate_limits(line: str) -> None:
    _, current, proposal, minimum, maximum, up, down, added, removed, result, reason = line.split(" | ")
    rules = behavior(rules_of(up), rules_of(down))
    state = HPAState(recommendations=(), scale_up_events=spread(added), scale_down_events=spread(removed))
    out = normalize(int(current), int(proposal), int(minimum), int(maximum), rules, state, options=OPTIONS, now=NOW)
    assert (out.stabilized, out.desired, SCALING_LIMITED_CONDITIONS[out.limit][0]) == (
        int(proposal),
        int(result),
        reason,
    )


@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
@pytest.mark.parametrize(
    ("rules", "before", "changed", "after"),
    [
        pytest.param("-", "", 0, "", id="no behaviour"),
        pytest.param("10,60,100,60,0", "", 0, "5", id="empty"),
        pytest.param("-", "7@61", 0, "7", id="no behaviour, old entry"),
        pytest.param("10,60,100,60,0", "7@61", 0, "5", id="old entry replaced"),
        pytest.param("10,60,100,60,0", "7@58", 7, "7 5", id="recent entry kept"),
        pytest.param("10,60,0,0,0", "7@61 6@59", 6, "5 6", id="one of two replaced"),
        pytest.param("10,60,100,30,0", "8@29 6@59 7@61 9@61", 14, "8 6 7* 5", id="last outdated replaced"),
        pytest.param("10,120,100,30,0", "7@58 6@59", 13, "7 6 5", id="longest period counts"),
    ],
)
def test_event_storage(up: bool, rules: str, before: str, changed: int, after: str) -> None:
    pairs = [entry.split("@") for entry in before.split()]
    events = tuple(ScaleEvent(int(change), NOW - int(age) * SECOND) for change, age in pairs)
    scaling_rules = rules_of(rules)
    state = HPAState(scale_up_events=events) if up else HPAState(scale_down_events=events)
    # What counts of the last 60 s: a policy of 100 pods per 60 s lets the size change by what is left of them.
    budget = scaling(100, 60, 0, 0, 0)
    limited = normalize(
        10,
        900 if up else -900,
        -1000,
        1000,
        behavior(budget, budget),
        msgspec.structs.replace(state, recommendations=()),
        options=OPTIONS,
        now=NOW,
    )
    assert abs(limited.desired - 10) == 100 - changed
    result = store_scale_event(
        state,
        None if scaling_rules is None else behavior(scaling_rules, scaling_rules),
        10,
        15 if up else 5,
        options=OPTIONS,
        now=NOW,
    )
    stored, other = result if up else reversed(result)
    assert [f"{each.change}{'*' if each.outdated else ''}" for each in stored] == after.split()
    assert other == ()


sizes = st.integers(-3, 40)
windows = st.sampled_from([0, 15, 60, 300])
ages = st.sampled_from([0, 14, 15, 16, 59, 60, 61, 299, 300, 301, 900])
policies = st.lists(
    st.tuples(st.sampled_from(["Pods", "Percent"]), st.integers(-50, 300), st.sampled_from([15, 60, 300])), max_size=3
)
rules_drawn = st.tuples(st.sampled_from(["Max", "Min", "Disabled"]), windows, policies)
pasts = st.lists(st.tuples(sizes, ages.map(lambda age: NOW - age * SECOND)), max_size=6)
event_lists = st.lists(
    st.tuples(st.integers(0, 9), ages.map(lambda age: NOW - age * SECOND), st.booleans()), max_size=5
)


def api_rules(rules: reference.Rules) -> HPAScalingRules:
    select, window, listed = rules
    return HPAScalingRules(
        stabilization_window_seconds=window,
        select_policy=select,
        policies=[HPAScalingPolicy(type=type_, value=value, period_seconds=period) for type_, value, period in listed],
    )


@given(
    current=st.one_of(sizes, st.integers(-(2**31), 2**31 - 1)),
    proposal=sizes,
    minimum=st.integers(0, 5),
    maximum=st.one_of(st.integers(1, 50), st.just(2**31 - 1)),
    up=rules_drawn,
    down=rules_drawn,
    past=pasts,
    added=event_lists,
    removed=event_lists,
    legacy=st.booleans(),
)
def test_the_kernel_normalises_as_the_reference_does(
    current: int,
    proposal: int,
    minimum: int,
    maximum: int,
    up: reference.Rules,
    down: reference.Rules,
    past: list[reference.Recommendation],
    added: list[tuple[int, int, bool]],
    removed: list[tuple[int, int, bool]],
    legacy: bool,
) -> None:
    state = HPAState(
        recommendations=tuple(Recommendation(*each) for each in past),
        scale_up_events=tuple(ScaleEvent(*each) for each in added),
        scale_down_events=tuple(ScaleEvent(*each) for each in removed),
    )
    rules = None if legacy else HorizontalPodAutoscalerBehavior(scale_up=api_rules(up), scale_down=api_rules(down))
    result = normalize(current, proposal, minimum, maximum, rules, state, options=OPTIONS, now=NOW)
    log_ = list(past)
    if legacy:
        stabilized = reference.stabilize_plain(proposal, log_, OPTIONS.downscale_stabilization_ns, NOW)
        desired, reason = reference.limit_plain(current, stabilized, minimum, maximum)
    else:
        stabilized = reference.stabilize(current, proposal, log_, up[1], down[1], NOW)
        lists = [[*map(list, added)], [*map(list, removed)]]
        desired, reason = reference.limit(current, stabilized, minimum, maximum, up, down, *lists, NOW)
    assert (result.stabilized, result.desired, SCALING_LIMITED_CONDITIONS[result.limit][0]) == (
        stabilized,
        desired,
        reason,
    )
    assert [(each.replicas, each.time) for each in result.recommendations] == log_


@given(events=event_lists, rules=rules_drawn, change=st.integers(1, 9), up=st.booleans())
def test_the_kernel_stores_events_as_the_reference_does(
    events: list[tuple[int, int, bool]], rules: reference.Rules, change: int, up: bool
) -> None:
    stored = tuple(ScaleEvent(*each) for each in events)
    state = HPAState(scale_up_events=stored) if up else HPAState(scale_down_events=stored)
    both = HorizontalPodAutoscalerBehavior(scale_up=api_rules(rules), scale_down=api_rules(rules))
    result = store_scale_event(state, both, 10, 10 + change if up else 10 - change, options=OPTIONS, now=NOW)
    expected = [[each[0], each[1], int(each[2])] for each in events]
    reference.store_event(expected, rules[2], change, NOW)
    assert [[each.change, each.time, int(each.outdated)] for each in result[0 if up else 1]] == expected
