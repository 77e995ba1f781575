"""Upstream's own tables on the priority of updates and eviction requirements."""

from __future__ import annotations

from typing import Any

import pytest

from kscale.objects.times import nanoseconds
from kscale.vpa import UpdaterOptions
from kscale.vpa.updater import PodPriority, ScalingDirectionAdmission, assess_pod, order_updates
from kscale.vpa.updater.priority import compute_priority, describe_targets
from unit.vpa.builders import Pair, container, pod, recommendation, recommended, vpa

NOW = 1769299200 * 10**9  # 2026-01-25T00:00:00Z
MINUTE = 60 * 10**9
HOUR = 60 * MINUTE


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
    pod_ = pod(*(container(f"c{i}", pair) for i, pair in enumerate(requests)))
    rec = recommendation(*(recommended(f"c{i}", *lists) for i, lists in enumerate(targets)))
    outside, up, difference = compute_priority(pod_, rec)
    assert (outside, up, pytest.approx(difference)) == expected


def test_priority_reads_the_status_first() -> None:
    statuses = [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]
    pod_ = pod(container("c", ("10000", None)), status={"containerStatuses": statuses})
    assert compute_priority(pod_, recommendation(recommended("c", ("10", None)))) == (False, True, 4.0)


@pytest.mark.parametrize(("text", "difference"), [(None, 9.0), ("c", 9.0), ("", 0.0), ("abcd;';", 9.0)])
def test_observed_containers(text: str | None, difference: float) -> None:
    annotations = {"vpaObservedContainers": text} if text is not None else None
    pod_ = pod(container("c", ("1", None)), annotations=annotations)
    assert compute_priority(pod_, recommendation(recommended("c", ("10", None))))[2] == difference


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
    ("items", "order"),
    [
        ([(True, 4.0), (True, 1.5), (True, 9.0), (True, 2.33)], [3, 1, 4, 2]),
        ([(True, 0.25), (False, 0.25), (False, 0.5)], [1, 3, 2]),
    ],
)
def test_order(items: list[tuple[bool, float]], order: list[int]) -> None:
    created = order_updates(rank(*item, name=f"POD{i}") for i, item in enumerate(items, 1))
    assert [item.pod.name for item in created] == [f"POD{i}" for i in order]


def aged(name: str, request: Pair, hours: float, **status: Any) -> Any:
    start = {13: "2026-01-24T11:00:00Z", 11: "2026-01-24T13:00:00Z"}[int(hours)]
    return pod(container("c", request), name=name, status={"startTime": start, **status})


@pytest.mark.parametrize(("hours", "chosen"), [(13, ["POD2", "POD3"]), (11, ["POD3"])])
def test_thresholds(hours: int, chosen: list[str]) -> None:
    options = UpdaterOptions(pod_update_threshold=0.5)
    candidates = [
        (aged("POD1", ("4", None), hours), recommended("c", ("5", None))),
        (aged("POD2", ("1", None), hours), recommended("c", ("5", None))),
        (aged("POD3", ("4", None), hours), recommended("c", ("5", None), ("5", None), ("6", None))),
    ]
    assessed = [assess_pod(pod_, vpa(item), now=NOW, options=options) for pod_, item in candidates]
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
    pod_ = pod(container("c", ("4", None)), annotations=annotations, status=status)
    options = UpdaterOptions(pod_update_threshold=0.5)
    assert (
        assess_pod(pod_, vpa(recommended("c", (target, None)), policies=policies), now=NOW, options=options).accepted
        == accepted
    )


@pytest.mark.parametrize(
    ("profile", "now", "accepted"),
    [
        ("current", "2026-01-25T00:06:59Z", True),
        ("current", "2026-01-25T00:07:00Z", False),
        ("1.8.0", "2026-01-25T00:07:00Z", True),
    ],
)
def test_a_quick_oom_counts_for_ten_minutes(profile: str, now: str, accepted: bool) -> None:
    status = {"startTime": "2026-01-24T13:00:00Z", "containerStatuses": [killed("2026-01-24T23:55:00Z")]}
    pod_ = pod(container("c", ("4", None)), status=status)
    options = UpdaterOptions(pod_update_threshold=0.5, profile=profile)
    assessed = assess_pod(pod_, vpa(recommended("c", ("5", None))), now=nanoseconds(now), options=options)
    assert assessed.accepted == accepted


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
    pod_ = pod(container("c", ("10m", "10Mi")), status={"startTime": "2026-01-20T00:00:00Z"})
    attempts = {"uid-pod": recommendation(recommended("c", ("200m", "512Mi")))}
    created = assess_pod(
        pod_, vpa(recommended("c", target), updatePolicy={"updateMode": mode}), now=NOW, infeasible_attempts=attempts
    )
    assert created.accepted == (accepted or mode != "InPlace")


def test_log_texts() -> None:
    def item(target: Pair, uncapped: bool = True) -> Any:
        created = recommended("container1", target)
        return {**created, "uncappedTarget": created["target"]} if uncapped else created

    pod_ = pod(container("container1"))
    assert (
        describe_targets(recommendation(item(("4", "10M"))), pod_)
        == "container1: target: 10000k 4000m; uncappedTarget: 10000k 4000m;"
    )
    assert (
        describe_targets(recommendation(item(("8", None))), pod_) == "container1: target: 8000m; uncappedTarget: 8000m;"
    )
    assert (
        describe_targets(recommendation(item((None, "10M"))), pod_)
        == "container1: target: 10000k uncappedTarget: 10000k "
    )
    assert describe_targets(recommendation(item((None, "10m"), False)), pod_) == "container1: target: 1k "


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
    pod_ = pod(container("c", ("500m", "10Gi")))
    rules = [{"changeRequirement": change, "resources": names} for change, names in requirements]
    admission = ScalingDirectionAdmission()
    policy = {"updateMode": "Recreate", "evictionRequirements": rules}
    admission.loop_init([pod_], [(vpa(updatePolicy=policy), [pod_])])
    rec = recommendation(recommended("c", target)) if target is not None else None
    assert admission.admit(pod_, rec) == admitted
    assert admission.admit(pod(container("c", ("1", None)), name="unknown"), rec)
    without = pod(container("c"))
    assert admission.admit(without, rec) == (rec is not None)
    admission.loop_init([pod_], [(vpa(), [pod_])])
    assert admission.requirements == {}


def test_unknown_pods_are_admitted() -> None:
    assert ScalingDirectionAdmission().admit(pod(container("c", ("500m", "10Gi"))), None)


def requirements(change: str, *names: str) -> dict[str, Any]:
    return {"updateMode": "Recreate", "evictionRequirements": [{"changeRequirement": change, "resources": list(names)}]}


def test_requirements_look_at_the_status() -> None:
    statuses = [{"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}}]
    pod_ = pod(container("c", ("500m", "10Gi")), status={"containerStatuses": statuses})
    admission = ScalingDirectionAdmission()
    admission.loop_init([pod_], [(vpa(updatePolicy=requirements(HIGHER, "cpu", "memory")), [pod_])])
    assert admission.admit(pod_, recommendation(recommended("c", ("400m", "4Gi"))))


@pytest.mark.parametrize(
    ("targets", "admitted"),
    [
        ({"c1": "600m", "c2": "600m"}, True),
        ({"c1": "600m", "c2": "400m"}, True),
        ({"c1": "400m", "c2": "400m"}, False),
        ({"c2": "400m"}, False),
    ],
)
def test_one_container_must_meet_the_requirements(targets: dict[str, str], admitted: bool) -> None:
    pod_ = pod(*(container(name, ("500m", "10Gi")) for name in ("c1", "c2")))
    admission = ScalingDirectionAdmission()
    admission.loop_init([pod_], [(vpa(updatePolicy=requirements(HIGHER, "cpu")), [pod_])])
    rec = recommendation(*(recommended(name, (cpu, "10Gi")) for name, cpu in targets.items()))
    assert admission.admit(pod_, rec) == admitted


def test_requirements_change_with_each_loop() -> None:
    one, two = pod(container("c"), name="one"), pod(container("c"), name="two")
    admission = ScalingDirectionAdmission()
    admission.loop_init([one, two], [(vpa(updatePolicy=requirements(HIGHER, "cpu")), [one, two])])
    assert {name for _, name in admission.requirements} == {"one", "two"}
    admission.loop_init([two], [(vpa(updatePolicy=requirements(LOWER, "memory")), [two])])
    ((name, rules),) = admission.requirements.items()
    assert name == ("default", "two")
    assert [(rule.change_requirement, rule.resources) for rule in rules] == [(LOWER, ["memory"])]


@pytest.mark.parametrize(("threshold", "is_reported"), [(0.0, True), (0.1, False)])
def test_pods_for_which_nothing_is_recommended(threshold: float, is_reported: bool) -> None:
    """Upstream crashes over them when the thresholds let them in."""
    pod_ = pod(container("c", ("1", None)), status={"startTime": "2026-01-20T00:00:00Z"})
    created = assess_pod(pod_, vpa(), now=NOW, options=UpdaterOptions(pod_update_threshold=threshold))
    assert not created.accepted
    assert created.diagnostics == (
        ["pod default/pod: nothing is recommended, so it is not updated"] if is_reported else []
    )
