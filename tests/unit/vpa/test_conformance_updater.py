"""Upstream's own tables on priority, eviction requirements, restrictions, in-place updates, loops and rate limits."""

from __future__ import annotations

from typing import Any

import pytest

from kscale.objects.decode import from_dict
from kscale.objects.kinds import find_kind
from kscale.objects.meta import Condition
from kscale.objects.vpa import VerticalPodAutoscaler
from kscale.vpa import Controllers, UpdaterOptions
from kscale.vpa.updater import (
    Annotate,
    ApiError,
    Evict,
    Outcome,
    PodPriority,
    RateLimiter,
    RateLimitError,
    Resize,
    Restriction,
    ScalingDirection,
    UpdaterResult,
    UpdaterRound,
    UpdaterState,
    Wait,
    assess,
    run_legacy_updater,
    run_updater,
    update_order,
    updater_steps,
)
from kscale.vpa.updater.inplace import patches_for, resize_status
from kscale.vpa.updater.priority import describe_targets, priority_of
from unit.vpa.builders import Pair, container, pod, recommendation, recommended, vpa

NOW = 1769299200 * 10**9  # 2026-01-25T00:00:00Z
MINUTE = 60 * 10**9
HOUR = 60 * MINUTE

# -- priority --------------------------------------------------------------------------------------------------

PRIORITIES: list[tuple[list[Pair], list[tuple[Any, ...]], tuple[bool, bool, float]]] = [
    ([("2", None)], [(("10", None),)], (False, True, 4.0)),
    ([("4", None)], [(("2", None),)], (False, False, 0.5)),
    ([("2", None)], [(("2", None),)], (False, False, 0.0)),
    ([("10m", None)], [(("900m", None),)], (False, True, 89.0)),
    ([("4", None)], [(("10", None), ("6", None), ("14", None))], (True, True, 1.5)),
    ([("8", None)], [(("2", None), ("1", None), ("3", None))], (True, False, 0.75)),
    ([("3", "10M")], [(("6", "20M"),)], (False, True, 2.0)),
    ([("4", "10M")], [(("2", "20M"),)], (False, True, 1.5)),
    ([("4", "20M")], [(("2", "10M"),)], (False, False, 1.0)),
    ([("4", "20M")], [(("2", "10M"), ("1", "5M"), ("3", "30M"))], (True, False, 1.0)),
    ([("1", None), ("2", None)], [(("4", None),), (("8", None),)], (False, True, 3.0)),
    ([("3", None), ("7", None)], [(("1", None),), (("2", None),)], (False, False, 0.7)),
    ([("1", None), ("2", None)], [(("4", None),), (("8", None), ("3", None), ("10", None))], (True, True, 3.0)),
    ([("6", "10M"), ("4", "30M")], [(("8", "20M"),), (("7", "30M"),)], (False, True, 0.75)),
]


@pytest.mark.parametrize(("requests", "targets", "expected"), PRIORITIES)
def test_priority(requests: list[Pair], targets: list[tuple[Any, ...]], expected: tuple[bool, bool, float]) -> None:
    given = pod(*(container(f"c{i}", pair) for i, pair in enumerate(requests)))
    rec = recommendation(*(recommended(f"c{i}", *lists) for i, lists in enumerate(targets)))
    outside, up, difference = priority_of(given, rec)
    assert (outside, up, pytest.approx(difference)) == expected


def test_priority_reads_the_status_first() -> None:
    statuses = [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]
    given = pod(container("c", ("10000", None)), status={"containerStatuses": statuses})
    assert priority_of(given, recommendation(recommended("c", ("10", None)))) == (False, True, 4.0)


@pytest.mark.parametrize(("text", "difference"), [(None, 9.0), ("c", 9.0), ("", 0.0), ("abcd;';", 9.0)])
def test_observed_containers(text: str | None, difference: float) -> None:
    annotations = {"vpaObservedContainers": text} if text is not None else None
    given = pod(container("c", ("1", None)), annotations=annotations)
    assert priority_of(given, recommendation(recommended("c", ("10", None))))[2] == difference


def rank(up: bool, difference: float, name: str = "pod") -> PodPriority:
    return PodPriority(pod=pod(name=name), scale_up=up, resource_diff=difference, accepted=True)


@pytest.mark.parametrize(
    ("a", "b", "less"),
    [
        ((False, 0.1), (False, 0.0), False),
        ((True, 0.1), (False, 0.0), False),
        ((True, 0.1), (True, 1.0), True),
        ((False, 0.9), (False, 0.1), False),
    ],
)
def test_less(a: tuple[bool, float], b: tuple[bool, float], less: bool) -> None:
    assert rank(*a).less(rank(*b)) == less


@pytest.mark.parametrize(
    ("given", "order"),
    [
        ([(True, 4.0), (True, 1.5), (True, 9.0), (True, 2.33)], [3, 1, 4, 2]),
        ([(True, 0.25), (False, 0.25), (False, 0.5)], [1, 3, 2]),
    ],
)
def test_order(given: list[tuple[bool, float]], order: list[int]) -> None:
    made = update_order(rank(*item, name=f"POD{i}") for i, item in enumerate(given, 1))
    assert [item.pod.name for item in made] == [f"POD{i}" for i in order]


def aged(name: str, request: Pair, hours: float, **status: Any) -> Any:
    start = {13: "2026-01-24T11:00:00Z", 11: "2026-01-24T13:00:00Z"}[int(hours)]
    return pod(container("c", request), name=name, status={"startTime": start, **status})


@pytest.mark.parametrize(("hours", "chosen"), [(13, ["POD2", "POD3"]), (11, ["POD3"])])
def test_thresholds(hours: int, chosen: list[str]) -> None:
    options = UpdaterOptions(pod_update_threshold=0.5)
    wanted = [
        (aged("POD1", ("4", None), hours), recommended("c", ("5", None))),
        (aged("POD2", ("1", None), hours), recommended("c", ("5", None))),
        (aged("POD3", ("4", None), hours), recommended("c", ("5", None), ("5", None), ("6", None))),
    ]
    assessed = [assess(given, vpa(item), now=NOW, options=options) for given, item in wanted]
    assert [item.pod.name for item in assessed if item.accepted] == chosen


def killed(started: str, name: str = "c") -> dict[str, Any]:
    ended = {"reason": "OOMKilled", "startedAt": started, "finishedAt": "2026-01-24T23:57:00Z"}
    return {"name": name, "lastState": {"terminated": ended}}


@pytest.mark.parametrize(
    ("target", "started", "observed", "policies", "accepted"),
    [
        ("5", "2026-01-24T23:55:00Z", None, None, True),
        ("4", "2026-01-24T23:55:00Z", None, None, False),
        ("5", "2026-01-24T23:00:00Z", None, None, False),
        ("5", "2026-01-24T23:55:00Z", "c", None, True),
        ("5", "2026-01-24T23:55:00Z", "", None, False),
        ("5", "2026-01-24T23:55:00Z", None, [{"containerName": "c", "mode": "Auto"}], True),
        ("5", "2026-01-24T23:55:00Z", None, [{"containerName": "c", "mode": "Off"}], False),
        ("5", "2026-01-24T23:55:00Z", None, [{"containerName": "*", "mode": "Auto"}], True),
        ("5", "2026-01-24T23:55:00Z", None, [{"containerName": "*", "mode": "Off"}], False),
    ],
)
def test_quick_oom(target: str, started: str, observed: str | None, policies: Any, accepted: bool) -> None:
    annotations = {"vpaObservedContainers": observed} if observed is not None else None
    status = {"startTime": "2026-01-24T13:00:00Z", "containerStatuses": [killed(started)]}
    given = pod(container("c", ("4", None)), annotations=annotations, status=status)
    options = UpdaterOptions(pod_update_threshold=0.5)
    assert (
        assess(given, vpa(recommended("c", (target, None)), policies=policies), now=NOW, options=options).accepted
        == accepted
    )


@pytest.mark.parametrize(
    ("target", "accepted"),
    [
        (("200m", "512Mi"), False),
        (("300m", "600Mi"), False),
        (("100m", "512Mi"), True),
        (("200m", "256Mi"), True),
        (("100m", "600Mi"), True),
    ],
)
@pytest.mark.parametrize("mode", ["InPlace", "Recreate", "Auto"])
def test_infeasible_attempts(target: Pair, accepted: bool, mode: str) -> None:
    given = pod(container("c", ("10m", "10Mi")), status={"startTime": "2026-01-20T00:00:00Z"})
    attempts = {"uid-pod": recommendation(recommended("c", ("200m", "512Mi")))}
    made = assess(
        given, vpa(recommended("c", target), updatePolicy={"updateMode": mode}), now=NOW, infeasible_attempts=attempts
    )
    assert made.accepted == (accepted or mode != "InPlace")


def test_log_texts() -> None:
    def item(target: Pair, uncapped: bool = True) -> Any:
        made = recommended("container1", target)
        return {**made, "uncappedTarget": made["target"]} if uncapped else made

    given = pod(container("container1"))
    assert (
        describe_targets(recommendation(item(("4", "10M"))), given)
        == "container1: target: 10000k 4000m; uncappedTarget: 10000k 4000m;"
    )
    assert (
        describe_targets(recommendation(item(("8", None))), given)
        == "container1: target: 8000m; uncappedTarget: 8000m;"
    )
    assert (
        describe_targets(recommendation(item((None, "10M"))), given)
        == "container1: target: 10000k uncappedTarget: 10000k "
    )
    assert describe_targets(recommendation(item((None, "10m"), False)), given) == "container1: target: 1k "


HIGHER, LOWER = "TargetHigherThanRequests", "TargetLowerThanRequests"


@pytest.mark.parametrize(
    ("target", "requirements", "admitted"),
    [
        (None, [(HIGHER, ["cpu"])], False),
        (("500m", "10Gi"), [], True),
        (("600m", "10Gi"), [(HIGHER, ["cpu"])], True),
        (("400m", "10Gi"), [(LOWER, ["cpu"])], True),
        (("500m", "10Gi"), [(HIGHER, ["cpu", "memory"])], False),
        (("500m", "11Gi"), [(HIGHER, ["cpu", "memory"])], True),
        (("500m", "11Gi"), [(HIGHER, ["memory"])], True),
        (("500m", "9Gi"), [(LOWER, ["memory"])], True),
        (("500m", "9Gi"), [(HIGHER, ["cpu", "memory"])], False),
        (("600m", "9Gi"), [(HIGHER, ["cpu"]), (LOWER, ["memory"])], True),
        (("1000m", "9Gi"), [(LOWER, ["cpu"])], False),
        (("600m", "9Gi"), [(HIGHER, ["cpu"]), (HIGHER, ["memory"])], False),
    ],
)
def test_eviction_requirements(target: Pair | None, requirements: list[tuple[str, list[str]]], admitted: bool) -> None:
    given = pod(container("c", ("500m", "10Gi")))
    rules = [{"changeRequirement": change, "resources": names} for change, names in requirements]
    admission = ScalingDirection()
    policy = {"updateMode": "Recreate", "evictionRequirements": rules}
    admission.loop_init([given], [(vpa(updatePolicy=policy), [given])])
    rec = recommendation(recommended("c", target)) if target is not None else None
    assert admission.admit(given, rec) == admitted
    assert admission.admit(pod(container("c", ("1", None)), name="unknown"), rec)
    without = pod(container("c"))
    assert admission.admit(without, rec) == (rec is not None)
    admission.loop_init([given], [(vpa(), [given])])
    assert admission.requirements == {}


# -- restriction -----------------------------------------------------------------------------------------------


def controllers(kind: str = "ReplicationController", replicas: int = 5, labels: str = "x") -> Controllers:
    version = {"ReplicationController": "v1", "Job": "batch/v1"}.get(kind, "apps/v1")
    selector: Any = {"app": labels} if kind == "ReplicationController" else {"matchLabels": {"app": labels}}
    body = {
        "apiVersion": version, "kind": kind, "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": selector}, "status": {"numberReady": replicas},
    }  # fmt: skip
    type_ = find_kind(version, kind)
    assert type_ is not None
    return Controllers([from_dict(body, type_)])


def resizing(kind: str, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"type": f"PodResize{kind}", "status": "True", "reason": reason, "message": message}


INFEASIBLE, IN_PROGRESS = resizing("Pending", "Infeasible"), resizing("InProgress")


def members(states: str, kind: str = "ReplicationController", annotations: Any = None, **more: Any) -> list[Any]:
    """One pod a letter: r running, p pending, i resizing but infeasible, g resizing."""
    conditions = {"i": [INFEASIBLE], "g": [IN_PROGRESS]}
    return [
        pod(
            container("c", ("1", "100M")), name=f"web-{i}", owner=(kind, "web"), annotations=annotations,
            status={"phase": "Pending" if s == "p" else "Running", "conditions": conditions.get(s, []),
                    "startTime": "2026-01-20T00:00:00Z"},
        )
        for i, s in enumerate(states)
    ]  # fmt: skip


def target_vpa(mode: str = "Recreate", **policy: Any) -> VerticalPodAutoscaler:
    item = recommended("c", ("2", "200M"), ("2", "200M"), ("2", "200M"))
    target = {"apiVersion": "v1", "kind": "ReplicationController", "name": "web"}
    return vpa(item, targetRef=target, updatePolicy={"updateMode": mode, **policy})


BOOSTED = {"vpaCpuStartupBoost/c": '{"requests":{"cpu":"100m"},"limits":{}}'}


@pytest.mark.parametrize(
    ("replicas", "tolerance", "states", "more", "can", "succeed"),
    [
        (3, 0.5, "rrr", {}, "TTT", 1),
        (4, 0.5, "rrrr", {}, "TTTT", 2),
        (4, 0.5, "rrr", {}, "TTT", 1),
        (3, 0.1, "rrr", {}, "TTT", 1),
        (3, 0.1, "rr", {}, "FF", 0),
        (3, 0.5, "rpr", {}, "FTF", 1),
        (4, 0.5, "rppp", {}, "FTTT", 3),
        (1, 0.5, "r", {}, "F", 0),
        (1, 0.5, "r", {"min_replicas": 1}, "T", 1),
        (1, 0.5, "r", {"annotations": BOOSTED}, "T", 1),
        (3, 0.5, "rii", {}, "TTT", 1),
        (4, 0.1, "rri", {}, "FFF", 0),
        (3, 1.0, "rri", {}, "TTT", 3),
        (5, 0.5, "rrrrr", {"min_replicas": 10}, "FFFFF", 0),
        (5, 0.5, "rrrrr", {"min_replicas": 10, "skip": True, "mode": "InPlaceOrRecreate"}, "FFFFF", 0),
        (5, 0.8, "rrrrr", {}, "TTTTT", 4),
        (5, 0.1, "rrrrr", {}, "TTTTT", 1),
        (5, 0.5, "rrrrr", {"kind": "ReplicaSet"}, "TTTTT", 2),
        (5, 0.5, "rrrrr", {"kind": "StatefulSet"}, "TTTTT", 2),
        (5, 0.5, "rrrrr", {"kind": "DaemonSet"}, "TTTTT", 2),
        (5, 0.5, "rrrrr", {"kind": "Job"}, "TTTTT", 2),
    ],
)
def test_evictions(replicas: int, tolerance: float, states: str, more: dict[str, Any], can: str, succeed: int) -> None:
    kind = more.get("kind", "ReplicationController")
    pods = members(states, kind, more.get("annotations"))
    options = UpdaterOptions(eviction_tolerance=tolerance, in_place_skip_disruption_budget=more.get("skip", False))
    policy = {"minReplicas": more["min_replicas"]} if "min_replicas" in more else {}
    restriction = Restriction(
        target_vpa(more.get("mode", "Recreate"), **policy), pods, controllers(kind, replicas), options, {}
    )
    assert "".join("T" if restriction.can_evict(item, NOW) else "F" for item in pods) == can
    done = 0
    for item in pods:
        if restriction.can_evict(item, NOW):
            restriction.evicted(item)
            done += 1
    assert done == succeed


@pytest.mark.parametrize(
    ("mode", "replicas", "tolerance", "states", "more", "decisions"),
    [
        ("InPlaceOrRecreate", 3, 0.5, "rrr", {}, "AAA"),
        ("InPlaceOrRecreate", 3, 0.1, "igr", {}, "EDA"),
        ("InPlaceOrRecreate", 1, 0.5, "r", {}, "D"),
        ("InPlaceOrRecreate", 1, 0.5, "r", {"min_replicas": 1}, "A"),
        ("InPlaceOrRecreate", 1, 0.5, "r", {"skip": True}, "A"),
        ("InPlace", 1, 0.5, "r", {"skip": True}, "A"),
        ("InPlace", 1, 0.5, "r", {}, "D"),
        ("InPlaceOrRecreate", 3, 0.5, "rr", {}, "DD"),
        ("InPlace", 3, 0.5, "gir", {}, "DIA"),
        ("InPlace", 3, 0.5, "rrr", {"gate": False}, "DDD"),
        ("InPlaceOrRecreate", 3, 0.5, "prr", {}, "DDD"),
    ],
)  # fmt: skip
def test_in_place_decisions(mode: str, replicas: int, tolerance: float, states: str, more: Any, decisions: str) -> None:
    options = UpdaterOptions(
        eviction_tolerance=tolerance,
        in_place_skip_disruption_budget=more.get("skip", False),
        feature_gates={"InPlace": more.get("gate", True)},
    )
    policy = {"minReplicas": more["min_replicas"]} if "min_replicas" in more else {}
    pods = members(states)
    restriction = Restriction(target_vpa(mode, **policy), pods, controllers(replicas=replicas), options, {})
    names = {"InPlaceApproved": "A", "InPlaceDeferred": "D", "InPlaceEvict": "E", "InPlaceInfeasible": "I"}
    assert "".join(names[restriction.can_update_in_place(item, NOW, {})] for item in pods) == decisions


@pytest.mark.parametrize(
    ("condition", "ago", "decision"),
    [
        (resizing("Pending", "Deferred"), 10**6, "InPlaceDeferred"),
        (resizing("Pending", "Deferred"), 10 * MINUTE, "InPlaceEvict"),
        (IN_PROGRESS, 10**6, "InPlaceDeferred"),
        (IN_PROGRESS, HOUR + 1, "InPlaceEvict"),
        (INFEASIBLE, 10**6, "InPlaceEvict"),
    ],
)
@pytest.mark.parametrize("mode", ["InPlaceOrRecreate", "InPlace"])
def test_stuck_resizes(condition: dict[str, Any], ago: int, decision: str, mode: str) -> None:
    pods = members("rrr")
    pods[0] = pod(
        container("c", ("1", "100M")),
        name="web-0",
        owner=("ReplicationController", "web"),
        status={"phase": "Running", "conditions": [condition]},
    )
    options = UpdaterOptions(feature_gates={"InPlace": True})
    attempts = {"default/web-0": NOW - ago}
    restriction = Restriction(target_vpa(mode), pods, controllers(replicas=3), options, attempts)
    if mode == "InPlace":
        decision = "InPlaceInfeasible" if condition is INFEASIBLE else "InPlaceDeferred"
    assert restriction.can_update_in_place(pods[0], NOW, {}) == decision
    assert attempts == {"default/web-0": NOW - ago}


@pytest.mark.parametrize(
    ("attempt", "now_", "mode", "decision"),
    [
        (("1000m", "2Gi"), ("1000m", "2Gi"), "InPlace", "InPlaceInfeasibleCached"),
        (("2000m", "2Gi"), ("1000m", "2Gi"), "InPlace", "InPlaceApproved"),
        (("1000m", "1Gi"), ("2000m", "2Gi"), "InPlace", "InPlaceInfeasibleCached"),
        (None, ("1000m", "2Gi"), "InPlace", "InPlaceApproved"),
        (("1000m", "2Gi"), ("1000m", "2Gi"), "InPlaceOrRecreate", "InPlaceApproved"),
        (("1000m", "2Gi"), None, "InPlace", "InPlaceDeferred"),
    ],
)
def test_cached_attempts(attempt: Pair | None, now_: Pair | None, mode: str, decision: str) -> None:
    pods = members("rrr")
    attempts = {"uid-web-0": recommendation(recommended("c", attempt))} if attempt is not None else {}
    given = vpa(*([recommended("c", now_)] if now_ is not None else []), updatePolicy={"updateMode": mode})
    restriction = Restriction(given, pods, controllers(replicas=3), UpdaterOptions(feature_gates={"InPlace": True}), {})
    assert restriction.can_update_in_place(pods[0], NOW, attempts) == decision


@pytest.mark.parametrize(
    ("policy", "skip", "tolerance", "approved"),
    [
        (None, False, 0.8, 4), (None, True, 0.8, 5), ("NotRequired", True, 0.1, 5), ("RestartContainer", True, 0.1, 1),
        (None, True, 0.1, 5), (None, False, 0.1, 1),
    ],
)  # fmt: skip
def test_in_place_budget(policy: str | None, skip: bool, tolerance: float, approved: int) -> None:
    pods = members("rrrrr")
    if policy is not None:
        for item in pods:
            body = {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": policy}]}
            item.spec.containers[0] = from_dict(
                {**container("c", ("1", "100M")), **body}, type(item.spec.containers[0])
            )
    options = UpdaterOptions(eviction_tolerance=tolerance, in_place_skip_disruption_budget=skip)
    restriction = Restriction(target_vpa("InPlaceOrRecreate"), pods, controllers(), options, {})
    done = 0
    for item in pods:
        if restriction.can_update_in_place(item, NOW, {}) == "InPlaceApproved":
            restriction.resized(item)
            done += 1
    assert done == approved


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        ([], "ResizeNone"),
        ([resizing("Pending", "Deferred")], "ResizeDeferred"),
        ([INFEASIBLE], "ResizeInfeasible"),
        ([resizing("Pending", "Other")], "ResizeUnknown"),
        ([resizing("Pending")], "ResizeUnknown"),
        ([IN_PROGRESS], "ResizeInProgress"),
        ([resizing("InProgress", "Error")], "ResizeError"),
        ([resizing("InProgress", "Other")], "ResizeUnknown"),
        ([resizing("InProgress", "", "text")], "ResizeUnknown"),
        ([{"type": "Ready", "status": "True"}], "ResizeNone"),
        ([resizing("InProgress"), INFEASIBLE], "ResizeInfeasible"),
    ],
)
def test_resize_status(conditions: list[dict[str, Any]], status: str) -> None:
    assert resize_status(pod(status={"conditions": conditions})) == status


@pytest.mark.parametrize(
    ("mode", "durations", "rec", "boosted", "values"),
    [
        ("Off", (10, 1000), None, True, {0: "100m"}),
        ("InPlaceOrRecreate", (10, 1000), "200m", True, {0: "200m"}),
        ("InPlaceOrRecreate", (1000, 1000), "200m", True, {}),
        ("InPlaceOrRecreate", (10, 10), "300m", False, {0: "300m", 1: "300m"}),
        ("Off", (10, 10), "300m", False, {}),
    ],
)
def test_in_place_resources(mode: str, durations: Any, rec: str | None, boosted: bool, values: dict[int, str]) -> None:
    def policy(name: str, seconds: int) -> dict[str, Any]:
        return {
            "containerName": name,
            "startupBoost": {"cpu": {"type": "Factor", "factor": 2, "durationSeconds": seconds}},
        }

    names = ("c0", "c1")
    annotations = {f"vpaCpuStartupBoost/{name}": '{"requests":{"cpu":"100m"}}' for name in names} if boosted else {}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-24T23:55:00Z"}
    given = pod(*(container(n, ("50m", None)) for n in names), annotations=annotations, status={"conditions": [ready]})
    items = [recommended(name, (rec, None)) for name in names] if rec else []
    policies = [policy(*pair) for pair in zip(names, durations, strict=True)]
    owner = vpa(*items, policies=policies, updatePolicy={"updateMode": mode})
    if not values:
        with pytest.raises(ValueError, match="no resource patches were calculated to apply"):
            patches_for(given, owner, None, NOW)
        return
    resize, _ = patches_for(given, owner, None, NOW)
    assert {p.path: p.value for p in resize} == {
        f"/spec/containers/{i}/resources/requests/cpu": v for i, v in values.items()
    }


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
    assert any("would exceed context deadline" in text for text in result.diagnostics)
