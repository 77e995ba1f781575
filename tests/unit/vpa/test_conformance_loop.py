"""Upstream's own tables on the loop of the updater and its rate limiter."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kscale.objects.decode import from_dict
from kscale.objects.meta import Condition
from kscale.vpa import UpdaterOptions
from kscale.vpa.updater import (
    Annotate,
    ApiError,
    Evict,
    Outcome,
    RateLimiter,
    RateLimitError,
    Resize,
    ScalingDirection,
    UpdaterResult,
    UpdaterRound,
    UpdaterState,
    Wait,
    run_legacy_updater,
    run_updater,
    updater_steps,
)
from unit.vpa.builders import recommended, vpa
from unit.vpa.updater_builders import BOOSTED, controllers, members, target_vpa

NOW = 1769299200 * 10**9  # 2026-01-25T00:00:00Z
MINUTE = 60 * 10**9
HOUR = 60 * MINUTE


# -- the loop --------------------------------------------------------------------------------------------------


def round_of(mode: str, pods: list[Any], **spec: Any) -> UpdaterRound:
    given = target_vpa(mode)
    if spec:
        body = {"targetRef": {"apiVersion": "v1", "kind": "ReplicationController", "name": "web"}, **spec}
        item = recommended("c", ("2", "200M"), ("2", "200M"), ("2", "200M"))
        given = vpa(item, updatePolicy={"updateMode": mode}, **body)
    return UpdaterRound(vpas=[given], pods=pods, controllers=controllers())


EVERYTHING = UpdaterOptions(eviction_tolerance=1.0, feature_gates={"InPlace": True, "CPUStartupBoost": True})


def kinds(result: UpdaterResult) -> dict[str, int]:
    counts = {"evict": 0, "resize": 0, "annotate": 0}
    for action, _ in result.actions:
        counts[{Evict: "evict", Resize: "resize", Annotate: "annotate"}[type(action)]] += 1
    return counts


@pytest.mark.parametrize(
    ("mode", "states", "evictions", "resizes"),
    [
        ("Auto", "rrrrr", 5, 0), ("Recreate", "rrrrr", 5, 0), ("Initial", "rrrrr", 0, 0), ("Off", "rrrrr", 0, 0),
        ("InPlaceOrRecreate", "rrrrr", 0, 5), ("InPlaceOrRecreate", "iiiii", 5, 0),
        ("InPlaceOrRecreate", "ggggg", 0, 0),
        ("InPlace", "rrrrr", 0, 5), ("InPlace", "ggggg", 0, 5),
    ],
)  # fmt: skip
def test_loop(mode: str, states: str, evictions: int, resizes: int) -> None:
    counts = kinds(run_updater(UpdaterState(), round_of(mode, members(states)), now=NOW, options=EVERYTHING))
    assert (counts["evict"], counts["resize"], counts["annotate"]) == (evictions, resizes, resizes)


def test_failed_resizes_are_evicted() -> None:
    steps = updater_steps(UpdaterState(), round_of("InPlaceOrRecreate", members("rrrrr")), now=NOW, options=EVERYTHING)
    action = next(steps)
    try:
        while True:
            refusal = ApiError("no") if isinstance(action, Resize) else None
            action = steps.send(Outcome(refusal))
    except StopIteration as stop:
        counts = kinds(stop.value)
    assert counts == {"evict": 5, "resize": 5, "annotate": 0}


def test_expired_boosts_go_first() -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-24T00:00:00Z"}
    pods = members("rrrrr", annotations=BOOSTED)
    for item in pods:
        item.status.conditions = [from_dict(ready, Condition)]
    given = round_of("Recreate", pods, startupBoost={"cpu": {"type": "Factor", "factor": 2}})
    assert kinds(run_updater(UpdaterState(), given, now=NOW, options=EVERYTHING)) == {
        "evict": 0,
        "resize": 5,
        "annotate": 5,
    }
    plain = round_of("Recreate", members("rrrrr"), startupBoost={"cpu": {"type": "Factor", "factor": 2}})
    assert kinds(run_updater(UpdaterState(), plain, now=NOW, options=EVERYTHING))["evict"] == 5


def test_what_stops_a_loop_at_once() -> None:
    class Watched(ScalingDirection):
        cleaned = False

        def clean_up(self) -> None:
            self.cleaned = True

    given = round_of("Recreate", members("rrrrr"))
    assert not run_updater(
        UpdaterState(), UpdaterRound(vpas=given.vpas, pods=given.pods, admission_controller_ready=False), now=NOW
    ).actions
    ignored = UpdaterOptions(ignored_vpa_object_namespaces=["default"])
    assert not run_updater(UpdaterState(), given, now=NOW, options=ignored).actions
    watched = Watched()
    run_updater(UpdaterState(), UpdaterRound(vpas=[], pods=given.pods), now=NOW, admission=watched)
    assert watched.cleaned


def test_events_and_asking_twice() -> None:
    given = round_of("Recreate", members("ppr"))
    result = run_updater(UpdaterState(), given, now=NOW)
    assert len(result.events) == 2 * len(result.actions)
    assert [event.reason for event in result.events[:2]] == ["EvictedByVPA", "EvictedPod"]


@pytest.mark.parametrize(
    ("error", "infeasible"),
    [
        (ApiError("x", 403, "Forbidden", ("NodeCapacity",)), True),
        (ApiError("x", 403, "Forbidden", ("FieldValueInvalid",)), False),
        (ApiError("x", 422, "Invalid", ("NodeCapacity",)), False),
        (ApiError("x"), False),
    ],
)
def test_infeasible_errors(error: ApiError, infeasible: bool) -> None:
    assert error.is_infeasible == infeasible


def test_legacy_profile() -> None:
    given = round_of("Recreate", members("rrrrr"))
    result = run_legacy_updater(UpdaterState(), given, now=NOW, options=EVERYTHING)
    assert kinds(result)["evict"] == 5
    assert {event.kind for event in result.events} == {"Pod"}
    assert result.observations == {"vpa_updater_evicted_pods_total": 5}
    for mode in ("InPlaceOrRecreate", "Off", "Initial"):
        assert not run_legacy_updater(UpdaterState(), round_of(mode, members("rrrrr")), now=NOW).actions


# -- rate limits -----------------------------------------------------------------------------------------------


def test_limits_off() -> None:
    for limit in (0.0, -1.0):
        made = RateLimiter.of(limit, 3)
        assert (made.limit, made.burst, made.wait(NOW)) == (float("inf"), 0, 0)
    made = RateLimiter.of(10.0, 3)
    assert (made.limit, made.burst) == (10.0, 3)


@pytest.mark.parametrize("limit", [-1.0, 10.0])
def test_a_deadline_that_is_past_comes_first(limit: float) -> None:
    limiter = RateLimiter.of(limit, 3)
    before = msgspec.structs.astuple(limiter)
    for now in (NOW, NOW + 1):
        with pytest.raises(RateLimitError, match=r"^context deadline exceeded$"):
            limiter.wait(now, NOW)
    assert msgspec.structs.astuple(limiter) == before
    assert limiter.wait(NOW, NOW + 1) == 0


def test_burst_then_delay_then_deadline() -> None:
    limiter = RateLimiter.of(0.5, 2)
    deadline = NOW + MINUTE
    assert [limiter.wait(NOW, deadline) for _ in range(4)] == [0, 0, 2 * 10**9, 4 * 10**9]
    before = (limiter.tokens, limiter.last)
    with pytest.raises(RateLimitError, match=r"rate: Wait\(n=1\) would exceed context deadline"):
        limiter.wait(NOW, NOW + 10**9)
    assert (limiter.tokens, limiter.last) == before
    with pytest.raises(RateLimitError, match=r"rate: Wait\(n=3\) exceeds limiter's burst 2"):
        limiter.wait(NOW, deadline, n=3)
    limiter.cancel(NOW + 4 * 10**9, NOW)
    assert limiter.tokens == -1.0


def test_a_limiter_that_cannot_wait_ends_the_loop() -> None:
    options = UpdaterOptions(eviction_tolerance=1.0, eviction_rate_limit=0.05, eviction_rate_burst=1)
    steps = updater_steps(UpdaterState(), round_of("Recreate", members("rrrrr")), now=NOW, options=options)
    seen = [next(steps)]
    try:
        while True:
            seen.append(steps.send(Outcome()))
    except StopIteration as stop:
        result: UpdaterResult = stop.value
    assert [type(action) for action in seen] == [Evict, Wait, Evict, Wait, Evict, Wait, Evict]
    assert result.stopped_early
    assert any("context deadline exceeded" in text for text in result.diagnostics)


@pytest.mark.parametrize("mode", ["Recreate", "InPlaceOrRecreate", "InPlace", "Auto"])
def test_a_boost_that_cannot_be_taken_back_is_no_reason_to_evict(mode: str) -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-24T00:00:00Z"}
    pods = members("rrrrr", annotations=BOOSTED)
    for item in pods:
        item.status.conditions = [from_dict(ready, Condition)]
    given = round_of(mode, pods, startupBoost={"cpu": {"type": "Factor", "factor": 2}})
    steps = updater_steps(UpdaterState(), given, now=NOW, options=EVERYTHING)
    seen = [next(steps)]
    try:
        while True:
            seen.append(steps.send(Outcome(ApiError("no"))))
    except StopIteration:
        pass
    assert [type(action) for action in seen] == [Resize] * 5


def test_other_namespaces_may_be_ignored() -> None:
    options = UpdaterOptions(eviction_tolerance=1.0, ignored_vpa_object_namespaces=["other"])
    result = run_updater(UpdaterState(), round_of("Recreate", members("rrrrr")), now=NOW, options=options)
    assert kinds(result)["evict"] == 5


def test_what_a_loop_counts() -> None:
    name = "vpa_name=name,vpa_namespace=default"
    result = run_updater(UpdaterState(), round_of("Recreate", members("rrrrr")), now=NOW, options=EVERYTHING)
    assert result.observations == {
        "vpa_updater_controlled_pods_total{vpa_size_log2=2,update_mode=Recreate}": 5,
        "vpa_updater_evictable_pods_total{vpa_size_log2=2,update_mode=Recreate}": 5,
        f"vpa_updater_evicted_pods_total{{vpa_size_log2=2,update_mode=Recreate,{name}}}": 5,
        "vpa_updater_vpas_with_evictable_pods_total{vpa_size_log2=2,update_mode=Recreate}": 1,
        "vpa_updater_vpas_with_evicted_pods_total{vpa_size_log2=2,update_mode=Recreate}": 1,
    }
    result = run_updater(UpdaterState(), round_of("InPlace", members("rr")), now=NOW, options=EVERYTHING)
    assert result.observations == {
        "vpa_updater_controlled_pods_total{vpa_size_log2=1,update_mode=InPlace}": 2,
        "vpa_updater_in_place_updatable_pods_total{vpa_size_log2=1}": 2,
        f"vpa_updater_in_place_updated_pods_total{{vpa_size_log2=1,{name}}}": 2,
        "vpa_updater_vpas_with_in_place_updatable_pods_total{vpa_size_log2=1}": 1,
        "vpa_updater_vpas_with_in_place_updated_pods_total{vpa_size_log2=1}": 1,
    }


@pytest.mark.parametrize(
    ("mode", "failed", "reason"),
    [
        ("Recreate", Evict, "failed_eviction_attempts_total{vpa_size_log2=2,update_mode=Recreate,reason=EvictionError"),
        ("InPlace", Resize, "failed_in_place_update_attempts_total{vpa_size_log2=2,reason=InPlaceUpdateError"),
    ],
)
def test_what_a_loop_counts_of_failures(mode: str, failed: type, reason: str) -> None:
    steps = updater_steps(UpdaterState(), round_of(mode, members("rrrrr")), now=NOW, options=EVERYTHING)
    action = next(steps)
    try:
        while True:
            action = steps.send(Outcome(ApiError("no") if isinstance(action, failed) else None))
    except StopIteration as stop:
        counts = stop.value.observations
    assert counts[f"vpa_updater_{reason},vpa_name=name,vpa_namespace=default}}"] == 5


def test_a_loop_says_why_pods_are_due() -> None:
    (one, *others) = run_updater(UpdaterState(), round_of("Recreate", members("rrrrr")), now=NOW).chosen
    assert (one.namespace, one.pod, one.scale_up, one.resource_diff) == ("default", "web-0", True, 2.0)
    assert (one.outside_recommended_range, one.quick_oom) == (True, False)
    assert one.targets == "c: target: 200000k 2000m; "
    assert [other.pod for other in others] == ["web-1", "web-2", "web-3", "web-4"]
