"""Evicting pods (``drain_test.go``, ``priority_test.go``, ``delay_test.go``)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from builders import N0, node, owner, pod
from ca_world import World, never
from kscale import ca
from kscale.ca.options import DrainPriority
from kscale.ca.scale_down.actuation.batch_deletion import wait_for_delay_deletion
from kscale.ca.scale_down.actuation.deletion_tracker import PodEvictionResult
from kscale.ca.scale_down.actuation.drain import (
    DrainResult,
    Evictor,
    get_drain_config,
    get_pods_to_evict,
    group_by_priority,
)
from kscale.effects import (
    SECOND,
    Action,
    ApiError,
    Get,
    Machine,
    Moment,
    Outcome,
    Progress,
    Steps,
    VirtualTime,
    timedelta_of,
)
from kscale.objects.api.core import Pod

MINUTE = 60 * SECOND


def on_n1(name: str, *, ds: bool = False, **spec: Any) -> Pod:
    controller = owner("DaemonSet", "ds", "apps/v1") if ds else owner("ReplicaSet", "rs", "apps/v1")
    return pod(name, 100, spec={"node_name": "n1", **spec}, owner_references=controller)


class Scene:
    """A node that is drained of its pods."""

    def __init__(self, pods: list[Pod], **options: Any) -> None:
        self.world = World([node("n1", 1000, 1000)], pods)
        defaults = {
            name: timedelta_of(value) if name == "max_pod_eviction_time" else value for name, value in options.items()
        }
        self.options = ca.AutoscalingOptions(**defaults)
        self.evicted: list[str] = []
        self.took = 0

    def drain(self, *, force: bool = False, **evictor: Any) -> DrainResult:
        result: list[DrainResult] = []
        created = Evictor(self.options, lambda pod, now: self.evicted.append(pod.metadata.name), **evictor)

        def machine(now: Moment) -> Steps[DrainResult]:
            p = Progress(now)
            return (yield from created.drain(p, "n1", list(self.world.pods.values()), force=force))

        def done(value: DrainResult, at: Moment) -> None:
            result.append(value)
            self.took = at - N0

        simulation = VirtualTime(self.world.perform, now=N0)
        simulation.start(machine, done)
        simulation.run()
        return result[0]


def ended(drained: DrainResult) -> dict[str, str]:
    """By pod: ``ok``, or what is wrong."""
    outcomes = {}
    for name, item in drained.results.items():
        words = ["timed out"] if item.timed_out else []
        outcomes[name] = " ".join([*words, *(["error"] if item.error is not None else [])]) or "ok"
    return outcomes


# -- one lot ---------------------------------------------------------------------------------------------------------


def test_pods_of_both_kinds_are_evicted() -> None:
    scene = Scene([on_n1("p1"), on_n1("p2"), on_n1("d1", ds=True)])
    result = scene.drain()
    assert result.error is None
    assert sorted(scene.world.evicted) == ["d1", "p1", "p2"]
    assert ended(result) == {"p1": "ok", "p2": "ok"}
    assert scene.evicted == scene.world.evicted
    assert scene.took == 0


def test_evictions_are_tried_until_the_budget_is_free() -> None:
    """A budget of one ticket, which every refusal gives back."""
    scene = Scene([on_n1("p1"), on_n1("p2"), on_n1("p3"), on_n1("d1", ds=True)], max_pod_eviction_time=5 * MINUTE)
    tickets = [0]

    def refuse(now: Moment) -> str | None:
        tickets[0], had = 1 - tickets[0], tickets[0]
        return None if had else "too many concurrent evictions"

    scene.world.no_eviction = dict.fromkeys(("p1", "p2", "p3", "d1"), refuse)
    result = scene.drain()
    assert result.error is None
    assert sorted(scene.world.evicted) == ["d1", "p1", "p2", "p3"]
    assert max(map(len, scene.world.tries.values())) > 1


@pytest.mark.parametrize(("within", "tries"), [(0, 1), (10, 1), (11, 2), (120, 12)])
def test_evictions_are_tried_for_a_while(within: int, tries: int) -> None:
    """The first attempt is always made; every refusal costs ten seconds."""
    scene = Scene([on_n1("p1")], max_pod_eviction_time=within * SECOND)
    scene.world.no_eviction = {"p1": never}
    result = scene.drain()
    assert scene.world.tries["p1"] == [N0 + 10 * i * SECOND for i in range(tries)]
    assert scene.took == 10 * tries * SECOND
    assert ended(result) == {"p1": "timed out error"}


@pytest.mark.parametrize(
    ("grace", "cap", "want"), [(None, 60, 30), (45, 60, 45), (60, 60, 60), (75, 60, 60), (None, 10, 10), (75, 0, 75)]
)
def test_the_time_to_shut_down_is_capped(grace: int | None, cap: int, want: int) -> None:
    scene = Scene([on_n1("p1", termination_grace_period_seconds=grace)], max_graceful_termination_sec=cap)
    scene.drain()
    assert scene.world.graces == {"p1": want}


def test_deleted_pod_counts_as_evicted() -> None:
    scene = Scene([on_n1("p1")])
    scene.world.no_eviction = {"p1": lambda now: ApiError("gone", reason="NotFound")}
    scene.world.gone_at["default/p1"] = N0
    assert ended(scene.drain()) == {"p1": "ok"}
    assert scene.evicted == ["p1"]


def test_a_pod_of_the_same_name_elsewhere_is_a_new_one() -> None:
    scene = Scene([on_n1("p1"), on_n1("p2")])
    elsewhere = on_n1("p2")
    elsewhere.spec.node_name = "n2"
    simply = scene.world.perform

    def perform(action: Action, now: Moment) -> Outcome:
        if isinstance(action, Get) and action.name == "p2":
            return Outcome(at=now, value=elsewhere)
        return simply(action, now)

    scene.world.perform = perform
    assert ended(scene.drain()) == {"p1": "ok", "p2": "ok"}


def test_some_pods_cannot_be_evicted() -> None:
    scene = Scene([on_n1(f"p{i}") for i in (1, 2, 3, 4)], max_pod_eviction_time=0)
    scene.world.no_eviction = {"p2": never, "p4": never}
    result = scene.drain()
    assert ended(result) == {"p1": "ok", "p2": "timed out error", "p3": "ok", "p4": "timed out error"}
    assert result.error is not None
    assert result.error.type == "apiCallError"
    failed = [(event.about, event.message) for event in scene.world.events if event.reason == "ScaleDownFailed"]
    text = "failed to delete pod for ScaleDown"
    assert failed == [("Pod/default/p2", text), ("Pod/default/p4", text)]


def test_some_pods_are_deleted_by_force() -> None:
    scene = Scene([on_n1(f"p{i}") for i in (1, 2, 3, 4)], max_pod_eviction_time=0)
    scene.world.no_eviction = {"p2": never, "p4": never}
    scene.world.no_delete = {"p4"}
    drained = scene.drain(force=True)
    assert ended(drained) == {"p1": "ok", "p2": "ok", "p3": "ok", "p4": "error"}
    assert scene.world.force_deleted == ["p2"]
    assert drained.results["p4"].error == (
        "failed to forcefully delete unevicted pod default/p4 (last error: no delete)"
    )
    assert drained.error is not None
    assert drained.error.message.endswith(f"[{drained.results['p4'].error}]")
    assert sorted(scene.evicted) == ["p1", "p2", "p3"]


def test_daemon_set_pods_that_stay_do_not_matter() -> None:
    """But for the time that trying takes."""
    pods = [on_n1("p1"), on_n1("p2"), on_n1("d1", ds=True), on_n1("d2", ds=True)]
    scene = Scene(pods, max_pod_eviction_time=MINUTE)
    scene.world.no_eviction = {"d1": never, "d2": never}
    result = scene.drain(force=True)
    assert result.error is None
    assert ended(result) == {"p1": "ok", "p2": "ok"}
    assert scene.took == MINUTE
    assert scene.world.force_deleted == []


# -- until they are gone ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lingers", "took", "error", "result"),
    [
        (0, 0, False, "ok"),
        (1, 5, False, "ok"),
        (5, 5, False, "ok"),
        (45, 45, False, "ok"),
        (46, 50, True, "ok"),
        (51, 50, True, "timed out"),
    ],
)
def test_pods_are_waited_for(lingers: int, took: int, error: bool, result: str) -> None:
    """Looked at every five seconds, for the grace period and half a minute; a look at the end comes too late."""
    scene = Scene([on_n1("p1"), on_n1("d1", ds=True)], max_graceful_termination_sec=20)
    scene.world.lingers = {"p1": lingers * SECOND, "d1": 10 * MINUTE}
    drained = scene.drain()
    assert (drained.error is not None) is error
    assert scene.took == took * SECOND
    assert ended(drained) == {"p1": result}
    if drained.error is not None:
        assert (drained.error.type, drained.error.message) == (
            "transientError",
            "Failed to drain node /n1: pods remaining after timeout",
        )


def test_pods_that_do_not_disappear() -> None:
    """Without any time to wait: one that is gone, one that cannot be looked up, one that is still there."""
    scene = Scene([on_n1(f"p{i}") for i in (1, 2, 3)], max_graceful_termination_sec=0)
    scene.world.no_get = {"p2"}
    scene.world.lingers = {"p3": MINUTE}
    result = scene.drain(headroom=0)
    assert result.results == {
        "p1": PodEvictionResult(pod="default/p1"),
        "p2": PodEvictionResult(pod="default/p2", timed_out=True, error="no get"),
        "p3": PodEvictionResult(pod="default/p3", timed_out=True),
    }
    assert result.error is not None


# -- priorities ------------------------------------------------------------------------------------------------------


def test_lots_go_one_after_the_other() -> None:
    pods = [on_n1("high", priority=2_000_000_005), on_n1("low", priority=100), on_n1("middle", priority=2000)]
    scene = Scene(pods, drain_priority_config="2000000000:10,0:3,1000:5")
    scene.world.lingers = dict.fromkeys(("low", "middle", "high"), 5 * SECOND)
    assert ended(scene.drain()) == {"low": "ok", "middle": "ok", "high": "ok"}
    assert scene.world.evicted == ["low", "middle", "high"]
    assert scene.world.graces == {"low": 3, "middle": 5, "high": 10}
    assert scene.took == 15 * SECOND


def test_a_lot_that_fails_ends_it() -> None:
    pods = [on_n1("p1", priority=1), on_n1("p2", priority=2000), on_n1("p3", priority=3000)]
    scene = Scene(pods, drain_priority_config="0:3,2000:5,3000:5", max_pod_eviction_time=0)
    scene.world.no_eviction = {"p2": never}
    result = scene.drain()
    assert scene.world.evicted == ["p1"]
    assert ended(result) == {"p1": "ok", "p2": "timed out error", "p3": "error"}
    assert result.results["p3"].error == (
        "Eviction did not attempted for the pod p3 because some of the previous evictions failed"
    )


def test_with_priorities_daemon_set_pods_have_to_go() -> None:
    scene = Scene([on_n1("d1", ds=True)], drain_priority_config="0:3", max_pod_eviction_time=0)
    scene.world.no_eviction = {"d1": never}
    assert ended(scene.drain()) == {"d1": "timed out error"}


@pytest.mark.parametrize(
    ("priority", "group"),
    [(2_000_000_005, 3), (2_000_000_000, 3), (2000, 2), (1999, 1), (1000, 1), (500, 0), (100, 0), (10, 0), (0, 0),
     (-5, 0), (None, 0)],
)  # fmt: skip
def test_the_lot_of_a_pod(priority: int | None, group: int) -> None:
    config = [DrainPriority(limit, seconds) for limit, seconds in ((10, 3), (1000, 2), (2000, 1), (2_000_000_000, 4))]
    created = on_n1("p", priority=priority)
    for full in (True, False):
        groups = group_by_priority(config, [created] if full else [], [] if full else [created])
        assert [item.seconds for item in groups] == [3, 2, 1, 4]
        assert [bool(item.full) for item in groups] == [full and i == group for i in range(4)]
        assert [bool(item.best_effort) for item in groups] == [not full and i == group for i in range(4)]


def test_priorities_come_from_the_options() -> None:
    assert get_drain_config(ca.AutoscalingOptions(max_graceful_termination_sec=7)) == (
        [DrainPriority(2**31 - 1, 7)],
        False,
    )
    options = ca.AutoscalingOptions(drain_priority_config="100:5,0:6")
    assert get_drain_config(options) == ([DrainPriority(0, 6), DrainPriority(100, 5)], True)


# -- which pods ------------------------------------------------------------------------------------------------------

EVICT = "cluster-autoscaler.kubernetes.io/enable-ds-eviction"


@pytest.mark.parametrize(
    ("annotations", "ds", "default", "want"),
    [
        (None, False, False, "other"),
        ({"kubernetes.io/config.mirror": "x"}, False, True, ""),
        ({"podtype": "fakepod"}, False, True, ""),
        ({"podType": "capacityBufferFakePod"}, False, True, ""),
        ({"podtype": "pod"}, False, True, "other"),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "on-completion"}, False, True, "other"),
        (None, True, True, "daemon set"),
        (None, True, False, ""),
        ({EVICT: "true"}, True, False, "daemon set"),
        ({EVICT: "false"}, True, True, ""),
        ({EVICT: "True"}, True, True, ""),
        ({EVICT: "true"}, False, False, "other"),
        ({"kubernetes.io/config.mirror": "x", EVICT: "true"}, True, True, ""),
    ],
)
def test_which_pods_are_evicted(annotations: dict[str, str] | None, ds: bool, default: bool, want: str) -> None:
    created = on_n1("p", ds=ds)
    created.metadata.annotations = annotations
    daemon_set, others = get_pods_to_evict([created], evict_daemon_sets=default)
    assert ("daemon set" if daemon_set else "other" if others else "") == want
    assert len(daemon_set) + len(others) <= 1


def test_pods_on_their_way_out_are_evicted_too() -> None:
    leaving = on_n1("p")
    leaving.metadata.deletion_timestamp = "2020-01-01T00:00:00Z"
    assert get_pods_to_evict([leaving], evict_daemon_sets=False) == ([], [leaving])


@pytest.mark.parametrize(
    ("default", "annotated", "refused", "want"),
    [
        (True, {}, "", ["d1", "d2"]),
        (True, {}, "d1 d2", []),
        (False, {"d1": "true"}, "", ["d1"]),
        (True, {"d1": "false"}, "", ["d2"]),
    ],
    ids=["all", "refused", "one-is", "one-is-not"],
)
def test_empty_nodes(default: bool, annotated: dict[str, str], refused: str, want: list[str]) -> None:
    """DaemonSet pods are evicted as far as it goes, and nobody waits for them to disappear."""
    pods = [on_n1("d1", ds=True), on_n1("d2", ds=True)]
    for item in pods:
        if item.metadata.name in annotated:
            item.metadata.annotations = {EVICT: annotated[item.metadata.name]}
    world = World([node("n1", 1000, 1000)], pods)
    world.no_eviction = dict.fromkeys(refused.split(), never)
    world.lingers = {"d1": 10 * MINUTE, "d2": 10 * MINUTE}
    options = ca.AutoscalingOptions(daemonset_eviction_for_empty_nodes=default, max_pod_eviction_time=timedelta())
    evictor = Evictor(options, lambda pod, now: None)
    ends: list[Moment] = []
    simulation = VirtualTime(world.perform, now=N0)
    simulation.start(
        lambda now: evictor.evict_daemon_sets(Progress(now), "n1", pods), lambda value, at: ends.append(at)
    )
    simulation.run()
    assert world.evicted == want
    assert ends == [N0 + 10 * SECOND if refused else N0]


# -- annotations that ask to wait ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotated", "removed", "timeout", "took"),
    [
        (False, None, 6, 0),
        (True, 0, 6, 5),
        (True, 12, 60, 15),
        (True, None, 6, 6),
        (True, None, 0, 0),
        (True, 10, 10, 10),
        (True, None, 10, 10),
    ],
)
def test_nodes_that_ask_to_wait(annotated: bool, removed: int | None, timeout: int, took: int) -> None:
    annotations = {"delay-deletion.cluster-autoscaler.kubernetes.io/backup": ""} if annotated else {}
    busy, free = node("n1", 1, 1, annotations=annotations), node("n1", 1, 1)

    def perform(action: Action, now: Moment) -> Outcome:
        assert isinstance(action, Get)
        late = removed is not None and now >= N0 + removed * SECOND
        return Outcome(at=now, value=free if late else busy)

    assert delayed(partial(_waiting, busy, timeout), perform) == (None, took * SECOND)


def test_a_node_that_cannot_be_read_is_not_deleted() -> None:
    busy = node("n1", 1, 1, annotations={"delay-deletion.cluster-autoscaler.kubernetes.io/x": "1"})
    world = World([busy])
    world.no_lister = {"n1"}
    error, took = delayed(partial(_waiting, busy, 60), world.perform)
    assert error == ("apiCallError", "failed to get node n1: no lister")
    assert took == 5 * SECOND


def test_the_last_look_comes_when_the_time_is_up() -> None:
    busy = node("n1", 1, 1, annotations={"delay-deletion.cluster-autoscaler.kubernetes.io/x": "1"})

    def perform(action: Action, now: Moment) -> Outcome:
        is_deleted = now >= N0 + 7 * SECOND
        return Outcome(
            at=now,
            value=None if is_deleted else busy,
            error=ApiError("gone", reason="NotFound") if is_deleted else None,
        )

    error, took = delayed(partial(_waiting, busy, 7), perform)
    assert error == ("apiCallError", "failed to get node n1: gone")
    assert took == 7 * SECOND


def _waiting(item: Any, timeout: int, now: Moment) -> Steps[Any]:
    p = Progress(now)
    result = yield from wait_for_delay_deletion(p, item, timeout * SECOND)
    return None if result is None else (result.type, result.message)


def delayed(machine: Machine, perform: Callable[[Action, Moment], Outcome]) -> tuple[Any, int]:
    ends: list[tuple[Any, int]] = []
    simulation = VirtualTime(perform, now=N0)
    simulation.start(machine, lambda value, at: ends.append((value, at - N0)))
    simulation.run()
    return ends[0]
