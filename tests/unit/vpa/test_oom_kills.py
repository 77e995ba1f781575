"""OOM kills that strategies read."""

from __future__ import annotations

from typing import Any

from kscale.effects import SECOND
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import ObjectMeta
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.decode import from_dict
from kscale.objects.selectors import Requirement, Selector
from kscale.vpa.model.saved_state import RecommenderState, Vpa
from kscale.vpa.model.usage import OutOfMemory
from kscale.vpa.recommender.strategy_advice import OOMKillHistory
from unit.drivers.vpa_world import running_pod

LABELS = {"app": "web"}


def world() -> tuple[RecommenderState, Vpa]:
    state = RecommenderState()
    item = VerticalPodAutoscaler(metadata=ObjectMeta(name="web", namespace="shop"))
    vpa = state.add_vpa(item, Selector((Requirement("app", "in", ("web",)),)))
    state.add_pod("shop", "web-0", LABELS, "Running", 0)
    return state, vpa


def killed(time: int, memory: int, pod: str = "web-0") -> OutOfMemory:
    return OutOfMemory(("shop", pod, "c"), time * SECOND, memory)


def test_oom_kill_of_a_deleted_pod_counts() -> None:
    state, vpa = world()
    kills = OOMKillHistory()
    assert kills.notice(state, [], [killed(5, 100)]) == []
    state.delete_pod(("shop", "web-0"))
    kills.forget(state, 0)
    assert (kills.get_max_bytes(vpa, "c"), kills.get_max_bytes(vpa, "d")) == (100, 0)


def test_a_greater_kill_hides_a_newer_one_only_while_it_counts() -> None:
    state, vpa = world()
    kills = OOMKillHistory()
    kills.notice(state, [], [killed(5, 300), killed(6, 100), killed(7, 200)])
    assert (kills.get_max_bytes(vpa, "c"), len(kills)) == (300, 2)  # the second is outdone by the third
    kills.forget(state, 6 * SECOND)
    assert kills.get_max_bytes(vpa, "c") == 200
    kills.forget(state, 8 * SECOND)
    assert (kills.get_max_bytes(vpa, "c"), len(kills)) == (0, 0)


def test_kills_that_come_late_have_their_place() -> None:
    state, vpa = world()
    state.add_pod("shop", "web-1", LABELS, "Running", 0)
    kills = OOMKillHistory()
    kills.notice(state, [], [killed(9, 200)])
    kills.notice(state, [], [killed(5, 300, "web-1")])
    kills.notice(state, [], [killed(6, 100, "web-1")])
    assert (kills.get_max_bytes(vpa, "c"), len(kills)) == (300, 2)
    kills.forget(state, 6 * SECOND)
    assert kills.get_max_bytes(vpa, "c") == 200


def test_oom_kill_with_invalid_time_is_dropped() -> None:
    def container_status(name: str, at: str) -> dict[str, Any]:
        ended = {"reason": "OOMKilled", "finishedAt": at, "exitCode": 137}
        return {"name": name, "restartCount": 1, "state": {"running": {}}, "lastState": {"terminated": ended}}

    state, vpa = world()
    item = running_pod(
        "web-0",
        "web",
        status={"containerStatuses": [container_status("a", "soon"), container_status("c", "2027-01-15T07:00:00Z")]},
    )
    kills = OOMKillHistory()
    (problem,) = kills.notice(state, [from_dict(item, Pod)], [])
    assert "Pod shop/web-0" in problem
    assert "finishedAt" in problem
    assert kills.get_max_bytes(vpa, "c") == 100 * 2**20


def test_repeated_oom_kill_keeps_its_first_request() -> None:
    """A pod that is resized in place tells of it on, with its new requests."""
    state, vpa = world()
    kills = OOMKillHistory()
    kills.notice(state, [], [killed(5, 100)])
    kills.notice(state, [], [killed(5, 125)])
    assert kills.get_max_bytes(vpa, "c") == 100


def test_oom_kills_without_a_vpa_are_dropped() -> None:
    state, vpa = world()
    state.add_pod("shop", "alone", {"app": "x"}, "Running", 0)
    kills = OOMKillHistory()
    kills.notice(state, [], [killed(5, 100), killed(5, 100, "alone"), killed(5, 100, "unknown")])
    state.delete_pod(("shop", "alone"))
    kills.forget(state, 0)
    assert len(kills) == 1
    state.delete_pod(("shop", "web-0"))
    state.delete_vpa(vpa.key)
    kills.forget(state, 0)
    assert (len(kills), kills._seen) == (0, {})
