"""The kernel of a batch of reconciles against its reference, row by row."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kscale._native import _hpa
from kscale.effects import SECOND
from kscale.hpa.batch.columns import CONDITION_REASONS, CONDITION_TYPES, TargetColumns
from kscale.hpa.batch.decisions import DECISION_BRANCHES, RESCALE_REASONS
from kscale.hpa.controller.behavior import HistoryColumns, ScalingRuleColumns
from kscale.hpa.controller.state import Recommendation, ScaleEvent
from kscale.hpa.controller.status import STABILIZED_CONDITIONS
from reference import hpa_decide as reference
from unit.hpa.test_conformance_behavior import NOW, api_rules, event_lists, pasts, rules_drawn, sizes

ERRORS = ("none", "internal", "spec")
SELECTOR_ERRORS = ("none", "required", "invalid", "deleted", "unlisted", "ambiguous")
EVENTS = {
    1: "FailedGetScale",
    2: "selector",
    4: "metric",
    8: "FailedComputeMetricsReplicas",
    16: "SuccessfulRescale",
    32: "FailedRescale",
}
WINDOW = 300 * SECOND

mostly_none = st.sampled_from(("none",) * 6 + ERRORS)
targets = st.builds(
    reference.Target,
    scale_error=mostly_none,
    current=st.one_of(st.integers(0, 12), st.just(2**31 - 1)),
    minimum=st.integers(0, 5),
    maximum=st.one_of(st.integers(1, 15), st.just(2**31 - 1)),
    object_metric=st.booleans(),
    rules=st.one_of(st.none(), st.tuples(rules_drawn, rules_drawn)),
    selector_error=st.sampled_from(("none",) * 6 + SELECTOR_ERRORS),
    refused=st.sampled_from((False, False, True)),
    metrics=st.lists(st.tuples(st.one_of(sizes, st.integers(-1, 1)), mostly_none), max_size=3),
)
known = st.tuples(st.booleans(), st.sampled_from([each for each in CONDITION_REASONS if each]), st.just(NOW - SECOND))
memories = st.builds(
    reference.Memory,
    past=st.one_of(st.none(), pasts),
    added=event_lists.map(lambda events: [list(each) for each in events]),
    removed=event_lists.map(lambda events: [list(each) for each in events]),
    conditions=st.dictionaries(st.sampled_from(CONDITION_TYPES), known),
)


@given(st.lists(st.tuples(targets, memories), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_the_kernel_decides_as_the_reference_does(
    rows: list[tuple[reference.Target, reference.Memory]], to_zero: bool, legacy: bool
) -> None:
    target_rows = [target for target, _ in rows]
    ends = np.cumsum([len(each.metrics) for each in target_rows])
    flat = [metric for each in target_rows for metric in each.metrics]
    columns = TargetColumns(
        scale_error=np.array([ERRORS.index(each.scale_error) for each in target_rows], np.uint8),
        current=np.array([each.current for each in target_rows], np.int32),
        minimum=np.array([each.minimum for each in target_rows], np.int32),
        maximum=np.array([each.maximum for each in target_rows], np.int32),
        object_metric=np.array([each.object_metric for each in target_rows], np.uint8),
        behavior=np.array([each.rules is not None for each in target_rows], np.uint8),
        selector_error=np.array([SELECTOR_ERRORS.index(each.selector_error) for each in target_rows], np.uint8),
        refused=np.array([each.refused for each in target_rows], np.uint8),
        fresh=np.array([memory.past is None for _, memory in rows], np.uint8),
        metrics_begin=(ends - [len(each.metrics) for each in target_rows]).astype(np.int64),
        metrics_end=ends.astype(np.int64),
    )
    past = HistoryColumns.recommendations([[Recommendation(*each) for each in memory.past or ()] for _, memory in rows])
    added, removed = (
        HistoryColumns.events([[ScaleEvent(*each) for each in events] for events in lists])
        for lists in ([memory.added for _, memory in rows], [memory.removed for _, memory in rows])
    )
    status, reason = np.zeros((len(rows), 4), np.uint8), np.zeros((len(rows), 4), np.uint8)
    time = np.zeros((len(rows), 4), np.int64)
    for i, (_, memory) in enumerate(rows):
        for type_, (is_true, why, since) in memory.conditions.items():
            at = i, CONDITION_TYPES.index(type_)
            status[at], reason[at], time[at] = 1 if is_true else 2, CONDITION_REASONS.index(why), since
    result = _hpa.decide(
        columns,
        np.array([replicas for replicas, _ in flat], np.int32),
        np.array([ERRORS.index(error) for _, error in flat], np.uint8),
        ScalingRuleColumns.from_rules(
            [None if each.rules is None else api_rules(each.rules[0]) for each in target_rows], 0
        ),
        ScalingRuleColumns.from_rules(
            [None if each.rules is None else api_rules(each.rules[1]) for each in target_rows], 300
        ),
        past,
        added,
        removed,
        status,
        reason,
        time,
        NOW,
        WINDOW,
        to_zero,
        legacy,
    )
    for i, (target, memory) in enumerate(rows):
        after = copy.deepcopy(memory)
        want = reference.decide(target, after, NOW, WINDOW, to_zero=to_zero, legacy=legacy)
        branch, desired, proposal, stabilized, best, invalid, first, rescaled, why, events, error, limit = (
            int(column[i]) for column in result
        )
        assert (DECISION_BRANCHES[branch], ERRORS[error], bool(rescaled)) == (want.branch, want.error, want.rescaled)
        assert (best, invalid, first) == (want.best, want.invalid, want.first_invalid)
        assert {name for bit, name in EVENTS.items() if events & bit} == want.events
        if want.branch not in ("no_scale", "failed"):
            assert (desired, RESCALE_REASONS[why]) == (want.desired, want.reason)
        if want.proposal is not None:
            assert (proposal, stabilized, STABILIZED_CONDITIONS[limit][0]) == (
                want.proposal,
                want.stabilized,
                want.limited_by,
            )
        conditions: dict[str, Any] = {
            type_: (status[i, j] == 1, CONDITION_REASONS[reason[i, j]], int(time[i, j]))
            for j, type_ in enumerate(CONDITION_TYPES)
            if status[i, j]
        }
        assert conditions == after.conditions
        assert [(value, when) for value, when, _ in past.entries(i)] == (after.past or [])
        assert [list(each) for each in added.entries(i)] == after.added
        assert [list(each) for each in removed.entries(i)] == after.removed
