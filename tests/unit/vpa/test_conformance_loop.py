"""Upstream's own tables on the loop of the updater and its rate limiter."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kscale.effects import Action, ApiError, Evict, Get, Outcome, Patch, Resize, Wait
from kscale.objects.api.coordination import Lease, LeaseSpec
from kscale.objects.api.meta import Condition
from kscale.objects.decode import from_dict
from kscale.vpa import UpdaterOptions
from kscale.vpa.metrics import LEGACY_METRICS, METRICS
from kscale.vpa.updater import (
    RateLimiter,
    RateLimitError,
    ScalingDirectionAdmission,
    UpdaterResult,
    UpdaterRound,
    UpdaterState,
    legacy_updater_steps,
    run_legacy_updater,
    run_updater,
    updater_steps,
)
from kscale.vpa.updater.in_place import is_infeasible
from unit.vpa.builders import recommended, vpa
from unit.vpa.updater_builders import BOOSTED, controllers, members, target_vpa
from unit.vpa.worlds import World, counted, refusing

NOW = 1769299200 * 10**9  # 2026-01-25T00:00:00Z
MINUTE = 60 * 10**9
HOUR = 60 * MINUTE


# -- the loop --------------------------------------------------------------------------------------------------


def round_of(mode: str, pods: list[Any], **spec: Any) -> UpdaterRound:
    round_vpa = target_vpa(mode)
    if spec:
        body = {"targetRef": {"apiVersion": "v1", "kind": "ReplicationController", "name": "web"}, **spec}
        item = recommended("c", ("2", "200M"), ("2", "200M"), ("2", "200M"))
        round_vpa = vpa(item, updatePolicy={"updateMode": mode}, **body)
    return UpdaterRound(vpas=[round_vpa], pods=pods, controllers=controllers())


GATES = {"InPlace": True, "CPUStartupBoost": True}
EVERYTHING = UpdaterOptions(eviction_tolerance=1.0, use_admission_controller_status=False, feature_gates=GATES)


def kinds(actions: list[Action]) -> dict[str, int]:
    counts = {"evict": 0, "resize": 0, "annotate": 0}
    for action in actions:
        counts[{Evict: "evict", Resize: "resize", Patch: "annotate"}[type(action)]] += 1
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
    result = run_updater(UpdaterState(), round_of(mode, members(states)), now=NOW, options=EVERYTHING)
    counts = kinds(result.actions)
    assert (counts["evict"], counts["resize"], counts["annotate"]) == (evictions, resizes, resizes)


def test_failed_resizes_are_evicted() -> None:
    world = World(refusing(Resize))
    round_inputs = round_of("InPlaceOrRecreate", members("rrrrr"))
    world.run(updater_steps(UpdaterState(), round_inputs, now=NOW, options=EVERYTHING), NOW)
    assert kinds(world.actions) == {"evict": 5, "resize": 5, "annotate": 0}


def test_expired_boosts_go_first() -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-24T00:00:00Z"}
    pods = members("rrrrr", annotations=BOOSTED)
    for item in pods:
        item.status.conditions = [from_dict(ready, Condition)]
    round_inputs = round_of("Recreate", pods, startupBoost={"cpu": {"type": "Factor", "factor": 2}})
    result = run_updater(UpdaterState(), round_inputs, now=NOW, options=EVERYTHING)
    assert kinds(result.actions) == {"evict": 0, "resize": 5, "annotate": 5}
    assert counted(result.observations, "vpa_updater_vpas") == {}  # the queue of boosts counts no VPAs
    assert sum(counted(result.observations, "vpa_updater_in_place_updated_pods").values()) == 5
    plain = round_of("Recreate", members("rrrrr"), startupBoost={"cpu": {"type": "Factor", "factor": 2}})
    assert kinds(run_updater(UpdaterState(), plain, now=NOW, options=EVERYTHING).actions)["evict"] == 5


def test_loop_stops_immediately_without_selectable_vpas() -> None:
    class Watched(ScalingDirectionAdmission):
        cleaned = False

        def clean_up(self) -> None:
            self.cleaned = True

    round_inputs = round_of("Recreate", members("rrrrr"))
    ignored = UpdaterOptions(ignored_vpa_object_namespaces=["default"])
    assert kinds(run_updater(UpdaterState(), round_inputs, now=NOW, options=ignored).actions[1:])["evict"] == 0
    elsewhere = UpdaterOptions(vpa_object_namespace="elsewhere")
    assert kinds(run_updater(UpdaterState(), round_inputs, now=NOW, options=elsewhere).actions[1:])["evict"] == 0
    watched = Watched()
    run_updater(UpdaterState(), UpdaterRound(vpas=[], pods=round_inputs.pods), now=NOW, admission=watched)
    assert watched.cleaned


READ = Get(kind="Lease", api_version="coordination.k8s.io/v1", name="vpa-admission-controller", namespace="kube-system")
FRESH = Lease(spec=LeaseSpec(renew_time="2026-01-24T23:59:01.000000Z"))
STALE = Lease(spec=LeaseSpec(renew_time="2026-01-24T23:59:00.000000Z"))


@pytest.mark.parametrize("mode", ["Off", "Recreate", "InPlace"])
def test_ends_of_boosts_are_no_part_of_the_loop(mode: str) -> None:
    """A queue of its own ends them: neither the budget of a loop nor a dead admission controller stops it."""
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-24T00:00:00Z"}
    pods = members("rrrrr", annotations=BOOSTED)
    for item in pods:
        item.status.conditions = [from_dict(ready, Condition)]
    options = msgspec.structs.replace(EVERYTHING, eviction_tolerance=0.0, use_admission_controller_status=True)
    world = World(answer=lambda _: STALE)
    result = world.run(updater_steps(UpdaterState(), round_of(mode, pods), now=NOW, options=options), NOW)
    assert kinds([action for action in world.actions if not isinstance(action, Get)]) == {
        "evict": 0,
        "resize": 5,
        "annotate": 5,
    }
    assert result.diagnostics == ["Admission Controller status is not valid. Skipping update loop"]


@pytest.mark.parametrize(
    ("answer", "acts", "message"),
    [
        (FRESH, True, ""),
        (STALE, False, "Admission Controller status is not valid. Skipping update loop"),
        (
            ApiError("leases is forbidden", 403, "Forbidden"),
            False,
            "Error getting Admission Controller status. Skipping update loop: leases is forbidden",
        ),
    ],
)
def test_nothing_is_done_while_the_admission_controller_is_away(answer: Any, acts: bool, message: str) -> None:
    world = World(
        refuse=lambda action: answer if isinstance(action, Get) and isinstance(answer, ApiError) else None,
        answer=lambda _: answer,
    )
    round_inputs = round_of("Recreate", members("rrrrr"))
    result = world.run(updater_steps(UpdaterState(), round_inputs, now=NOW), NOW)
    assert world.actions[0] == READ
    assert (len(world.actions) > 1) == acts
    assert result.diagnostics == ([message] if message else [])
    steps = {one.labels["step"] for one in world.observations if "execution_latency" in one.name}
    assert steps == (
        {"ListVPAs", "ListPods", "FilterPods", "AdmissionInit", "EvictPods", "total"} if acts else {"total"}
    )


def test_the_lease_has_a_name_and_a_place_of_its_own() -> None:
    options = UpdaterOptions(
        admission_controller_status_lease_name="other", admission_controller_status_lease_namespace="vpa"
    )
    actions = run_updater(UpdaterState(), round_of("Off", []), now=NOW, options=options).actions
    assert actions == [msgspec.structs.replace(READ, name="other", namespace="vpa")]


def test_events_and_asking_twice() -> None:
    round_inputs = round_of("Recreate", members("ppr"))
    result = run_updater(UpdaterState(), round_inputs, now=NOW)
    assert len(result.events) == 2 * kinds(result.actions[1:])["evict"] > 0
    assert [(event.reason, event.about, event.regarding.uid) for event in result.events[:2]] == [
        ("EvictedByVPA", "Pod/default/web-0", "uid-web-0"),
        ("EvictedPod", "VerticalPodAutoscaler/default/name", ""),
    ]


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
    assert is_infeasible(error) == infeasible


def test_legacy_profile() -> None:
    round_inputs = round_of("Recreate", members("rrrrr"))
    result = run_legacy_updater(UpdaterState(), round_inputs, now=NOW, options=EVERYTHING)
    assert kinds(result.actions)["evict"] == 5
    assert {event.regarding.kind for event in result.events} == {"Pod"}
    assert counted(result.observations) == {"vpa_updater_evicted_pods_total": 5}
    assert {one.name for one in result.observations} <= set(LEGACY_METRICS)
    assert [one.labels["step"] for one in result.observations if one.labels] == [
        "ListVPAs", "ListPods", "FilterPods", "AdmissionInit", "EvictPods", "total",
    ]  # fmt: skip
    for mode in ("InPlaceOrRecreate", "Off", "Initial"):
        idle = run_legacy_updater(UpdaterState(), round_of(mode, members("rrrrr")), now=NOW)
        assert idle.actions == []
        assert [one.labels["step"] for one in idle.observations] == ["ListVPAs", "total"]


def test_a_legacy_loop_that_cannot_wait_has_no_total() -> None:
    options = UpdaterOptions(eviction_tolerance=1.0, eviction_rate_limit=0.05, eviction_rate_burst=1)
    world = World()
    round_inputs = round_of("Recreate", members("rrrrr"))
    result = world.run(legacy_updater_steps(UpdaterState(), round_inputs, now=NOW, options=options), NOW)
    assert result.stopped_early
    assert world.kinds() == {"Evict": 4}
    assert "total" not in [one.labels.get("step") for one in world.observations]


def test_a_legacy_vpa_is_found_by_its_selector() -> None:
    """Whoever owns the pods; of two VPAs the older one."""
    first, second = target_vpa(), target_vpa()
    first.metadata.name, first.metadata.creation_timestamp = "young", "2026-01-02T00:00:00Z"
    second.metadata.name, second.metadata.creation_timestamp = "old", "2026-01-01T00:00:00Z"
    pods = members("rrrrr", kind="ReplicaSet")
    elsewhere = members("r")
    elsewhere[0].metadata.namespace = "elsewhere"
    round_inputs = UpdaterRound(vpas=[first, second], pods=[*pods, *elsewhere], controllers=controllers())
    controlled_pods: list[Any] = []

    class Watched(ScalingDirectionAdmission):
        def loop_init(self, pods: Any, controlled: Any) -> None:
            controlled_pods.extend((vpa.name, [pod.name for pod in members_]) for vpa, members_ in controlled)

    run_legacy_updater(UpdaterState(), round_inputs, now=NOW, admission=Watched())
    assert controlled_pods == [("old", [pod.name for pod in pods])]


# -- rate limits -----------------------------------------------------------------------------------------------


def test_limits_off() -> None:
    for limit in (0.0, -1.0):
        created = RateLimiter.from_flags(limit, 3)
        assert (created.limit, created.burst, created.wait(NOW)) == (float("inf"), 0, 0)
    created = RateLimiter.from_flags(10.0, 3)
    assert (created.limit, created.burst) == (10.0, 3)


@pytest.mark.parametrize("limit", [-1.0, 10.0])
def test_a_deadline_that_is_past_comes_first(limit: float) -> None:
    limiter = RateLimiter.from_flags(limit, 3)
    before = msgspec.structs.astuple(limiter)
    for now in (NOW, NOW + 1):
        with pytest.raises(RateLimitError, match=r"^context deadline exceeded$"):
            limiter.wait(now, NOW)
    assert msgspec.structs.astuple(limiter) == before
    assert limiter.wait(NOW, NOW + 1) == 0


def test_burst_then_delay_then_deadline() -> None:
    limiter = RateLimiter.from_flags(0.5, 2)
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


LIMITED = UpdaterOptions(
    eviction_tolerance=1.0, eviction_rate_limit=0.05, eviction_rate_burst=1, use_admission_controller_status=False
)


def test_a_limiter_that_cannot_wait_ends_the_loop() -> None:
    world = World()
    round_inputs = round_of("Recreate", members("rrrrr"))
    result: UpdaterResult = world.run(updater_steps(UpdaterState(), round_inputs, now=NOW, options=LIMITED), NOW)
    assert world.kinds() == {"Evict": 4}
    assert world.now - NOW == 60 * 10**9
    assert result.stopped_early
    assert any("context deadline exceeded" in text for text in result.diagnostics)
    counts = counted(world.observations)
    reason = "update_mode=Recreate,reason=EvictionRateLimiterWaitFailed,vpa_name=name,vpa_namespace=default"
    assert counts[f"vpa_updater_failed_eviction_attempts_total{{vpa_size_log2=2,{reason}}}"] == 1
    assert counts["vpa_updater_controlled_pods_total{vpa_size_log2=2,update_mode=Recreate}"] == 5
    assert "vpa_updater_vpas_with_evicted_pods_total{vpa_size_log2=2,update_mode=Recreate}" not in counts


def test_a_wait_that_is_cut_short_gives_its_token_back() -> None:
    state = UpdaterState()
    steps = updater_steps(state, round_of("Recreate", members("rrrrr")), now=NOW, options=LIMITED)
    action = next(steps)
    try:
        while True:
            cut = isinstance(action, Wait) and action.duration > 0
            error = ApiError("context canceled") if cut else None
            action = steps.send(Outcome(at=NOW, error=error))
    except StopIteration as stop:
        result: UpdaterResult = stop.value
    assert result.stopped_early
    assert "context canceled" in result.diagnostics
    assert state.eviction_limiter is not None
    assert state.eviction_limiter.tokens == 0.0


@pytest.mark.parametrize("mode", ["Recreate", "InPlaceOrRecreate", "InPlace", "Auto"])
def test_a_boost_that_cannot_be_taken_back_is_no_reason_to_evict(mode: str) -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-24T00:00:00Z"}
    pods = members("rrrrr", annotations=BOOSTED)
    for item in pods:
        item.status.conditions = [from_dict(ready, Condition)]
    round_inputs = round_of(mode, pods, startupBoost={"cpu": {"type": "Factor", "factor": 2}})
    world = World(refusing(Resize, Evict, Patch))
    world.run(updater_steps(UpdaterState(), round_inputs, now=NOW, options=EVERYTHING), NOW)
    assert [type(action) for action in world.actions] == [Resize] * 5


def test_other_namespaces_may_be_ignored() -> None:
    options = UpdaterOptions(eviction_tolerance=1.0, ignored_vpa_object_namespaces=["other"])
    result = run_updater(UpdaterState(), round_of("Recreate", members("rrrrr")), now=NOW, options=options)
    assert kinds(result.actions[1:])["evict"] == 5


def test_loop_metrics_are_counted() -> None:
    name = "vpa_name=name,vpa_namespace=default"
    result = run_updater(UpdaterState(), round_of("Recreate", members("rrrrr")), now=NOW, options=EVERYTHING)
    assert counted(result.observations) == {
        "vpa_updater_controlled_pods_total{vpa_size_log2=2,update_mode=Recreate}": 5,
        "vpa_updater_evictable_pods_total{vpa_size_log2=2,update_mode=Recreate}": 5,
        f"vpa_updater_evicted_pods_total{{vpa_size_log2=2,update_mode=Recreate,{name}}}": 5,
        "vpa_updater_vpas_with_evictable_pods_total{vpa_size_log2=2,update_mode=Recreate}": 1,
        "vpa_updater_vpas_with_evicted_pods_total{vpa_size_log2=2,update_mode=Recreate}": 1,
    }
    result = run_updater(UpdaterState(), round_of("InPlace", members("rr")), now=NOW, options=EVERYTHING)
    assert counted(result.observations) == {
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
def test_failure_metrics_are_counted(mode: str, failed: type, reason: str) -> None:
    world = World(refusing(failed))
    round_inputs = round_of(mode, members("rrrrr"))
    world.run(updater_steps(UpdaterState(), round_inputs, now=NOW, options=EVERYTHING), NOW)
    assert counted(world.observations)[f"vpa_updater_{reason},vpa_name=name,vpa_namespace=default}}"] == 5


def test_gauges_of_the_last_loop_are_forgotten_and_counters_are_there_from_the_start() -> None:
    result = run_updater(UpdaterState(), round_of("Off", members("rr"), startupBoost={}), now=NOW, options=EVERYTHING)
    gauges = [name for name, metric in METRICS.items() if metric.kind == "gauge" and name.startswith("vpa_updater")]
    assert [one.name for one in result.observations if one.reset] == gauges
    names = ("vpa_updater_evicted_pods_total", "vpa_updater_in_place_updated_pods_total")
    assert [(one.name, one.value) for one in result.observations if one.name in names] == [(n, 0) for n in names]
    by_size = [one for one in result.observations if one.name == "vpa_updater_in_place_updatable_pods_total"]
    assert [(one.labels.get("vpa_size_log2"), one.value) for one in by_size[1:]] == [(str(i), 0) for i in range(20)]


def test_a_loop_says_why_pods_are_due() -> None:
    (one, *others) = run_updater(UpdaterState(), round_of("Recreate", members("rrrrr")), now=NOW).chosen
    assert (one.namespace, one.pod, one.scale_up, one.resource_diff) == ("default", "web-0", True, 2.0)
    assert (one.outside_recommended_range, one.quick_oom) == (True, False)
    assert one.targets == "c: target: 200000k 2000m; "
    assert [other.pod for other in others] == ["web-1", "web-2", "web-3", "web-4"]
