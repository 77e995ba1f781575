"""When loops begin."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kscale.drivers.cluster_autoscaler import LoopTrigger, is_recent_unschedulable
from kscale.effects import SECOND, to_text
from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict

T0 = 1_800_000_000 * SECOND
TEN = timedelta(seconds=10)


def pod(ago: int = 0, *, phase: str = "Pending", node: str = "", **condition: Any) -> Pod:
    scheduled = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "lastTransitionTime": to_text(T0 - ago * SECOND),
        **condition,
    }
    return from_dict({"spec": {"nodeName": node}, "status": {"phase": phase, "conditions": [scheduled]}}, Pod)


@pytest.mark.parametrize(
    ("waiting_pod", "begins"),
    [
        (pod(), True),
        (pod(10), True),
        (pod(11), False),
        (pod(phase="Succeeded"), False),
        (pod(phase="Failed"), False),
        (pod(node="n"), False),
        (pod(type="Ready"), False),
        (pod(status="True"), False),
        (pod(reason="SchedulingGated"), False),
        (pod(lastTransitionTime=None), False),
        (Pod(), False),
    ],
)
def test_pods_that_begin_a_loop(waiting_pod: Pod, begins: bool) -> None:
    assert is_recent_unschedulable(waiting_pod, T0) is begins


def test_the_first_loop_waits() -> None:
    trigger = LoopTrigger(TEN, now=T0)
    assert trigger.next_due() == T0 + 10 * SECOND
    trigger.pod_waits()
    assert trigger.next_due() <= T0
    assert trigger.register_start(T0 + SECOND) == SECOND
    assert trigger.reason == "Autoscaler loop triggered by unschedulable pod appearing"


def test_waiting_begins_with_the_end_of_the_last_loop() -> None:
    trigger = LoopTrigger(TEN, now=T0)
    trigger.register_start(T0 + 10 * SECOND)
    assert trigger.reason == "Autoscaler loop triggered by a 10s timer"
    trigger.register_end(T0 + 17 * SECOND)
    assert trigger.next_due() == T0 + 27 * SECOND


def test_a_pod_that_came_during_a_loop_is_remembered_once() -> None:
    trigger = LoopTrigger(TEN, now=T0)
    trigger.register_start(T0)
    trigger.pod_waits()
    trigger.pod_waits()
    trigger.register_end(T0 + SECOND)
    assert trigger.next_due() <= T0 + SECOND
    trigger.register_start(T0 + SECOND)
    trigger.register_end(T0 + 2 * SECOND)
    assert trigger.next_due() == T0 + 12 * SECOND


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("last_scale_up", "scale up"),
        ("last_scale_down_delete", "scale down"),
        ("last_provisioning_request", "provisioning request was processed"),
    ],
)
def test_productive_loop_is_followed_immediately(kind: str, name: str) -> None:
    """Two moments are kept, so that two kinds of work may take turns without a pause."""
    trigger = LoopTrigger(TEN, now=T0)
    happened = {kind: T0 + 11 * SECOND}
    due = []
    for start in (T0 + 10 * SECOND, T0 + 12 * SECOND, T0 + 14 * SECOND):
        trigger.register_start(start)
        trigger.register_end(start + SECOND, **happened)
        due.append(trigger.next_due() - start - SECOND)
    assert due == [0, 0, 10 * SECOND]
    trigger = LoopTrigger(TEN, now=T0)
    trigger.register_start(T0 + SECOND)
    trigger.register_end(T0 + 2 * SECOND, **{kind: T0 + SECOND})
    trigger.register_start(T0 + 2 * SECOND)
    assert trigger.reason == f"Autoscaler loop triggered immediately after a {name}"


@pytest.mark.parametrize("kind", ["last_scale_up", "last_scale_down_delete", "last_provisioning_request"])
@pytest.mark.parametrize(("earlier", "at_once"), [(0, True), (1, False)])
def test_event_at_the_previous_loop_start_counts(kind: str, earlier: int, at_once: bool) -> None:
    """The usual case: a scale-up bears the moment at which its loop began."""
    trigger = LoopTrigger(TEN, now=T0)
    trigger.register_start(T0 + 10 * SECOND)
    trigger.register_end(T0 + 11 * SECOND)
    trigger.register_start(T0 + 21 * SECOND)
    trigger.register_end(T0 + 22 * SECOND, **{kind: T0 + 10 * SECOND - earlier})
    assert trigger.next_due() == T0 + (22 if at_once else 32) * SECOND


def test_without_frequent_loops() -> None:
    trigger = LoopTrigger(TEN, frequent=False, now=T0)
    trigger.pod_waits()
    assert trigger.next_due() == T0 + 10 * SECOND
    assert trigger.register_start(T0 + 10 * SECOND) is None
    trigger.pod_waits()
    trigger.register_end(T0 + 13 * SECOND, last_scale_up=T0 + 12 * SECOND)
    assert trigger.next_due() == T0 + 23 * SECOND
