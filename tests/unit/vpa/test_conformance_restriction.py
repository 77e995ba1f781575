"""Upstream's own tables on what may be evicted or resized."""

from __future__ import annotations

from typing import Any

import pytest

from kscale.objects.decode import from_dict
from kscale.vpa import UpdaterOptions
from kscale.vpa.updater import PodsRestriction
from kscale.vpa.updater.in_place import build_in_place_patches, get_resize_status
from unit.vpa.builders import Pair, container, pod, recommendation, recommended, vpa
from unit.vpa.updater_builders import BOOSTED, IN_PROGRESS, INFEASIBLE, controllers, members, resizing, target_vpa

NOW = 1769299200 * 10**9  # 2026-01-25T00:00:00Z
MINUTE = 60 * 10**9
HOUR = 60 * MINUTE


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
    restriction = PodsRestriction(
        target_vpa(more.get("mode", "Recreate"), **policy), pods, controllers(kind, replicas), options, {}
    )
    assert "".join("T" if restriction.can_evict(item, NOW) else "F" for item in pods) == can
    done = 0
    for item in pods:
        if restriction.can_evict(item, NOW):
            restriction.register_eviction(item)
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
)
def test_in_place_decisions(mode: str, replicas: int, tolerance: float, states: str, more: Any, decisions: str) -> None:
    options = UpdaterOptions(
        eviction_tolerance=tolerance,
        in_place_skip_disruption_budget=more.get("skip", False),
        feature_gates={"InPlace": more.get("gate", True)},
    )
    policy = {"minReplicas": more["min_replicas"]} if "min_replicas" in more else {}
    pods = members(states)
    restriction = PodsRestriction(target_vpa(mode, **policy), pods, controllers(replicas=replicas), options, {})
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
    restriction = PodsRestriction(target_vpa(mode), pods, controllers(replicas=3), options, attempts)
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
    vpa_ = vpa(*([recommended("c", now_)] if now_ is not None else []), updatePolicy={"updateMode": mode})
    restriction = PodsRestriction(
        vpa_, pods, controllers(replicas=3), UpdaterOptions(feature_gates={"InPlace": True}), {}
    )
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
    restriction = PodsRestriction(target_vpa("InPlaceOrRecreate"), pods, controllers(), options, {})
    done = 0
    for item in pods:
        if restriction.can_update_in_place(item, NOW, {}) == "InPlaceApproved":
            restriction.register_resize(item)
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
    assert get_resize_status(pod(status={"conditions": conditions})) == status


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
    pod_ = pod(*(container(n, ("50m", None)) for n in names), annotations=annotations, status={"conditions": [ready]})
    items = [recommended(name, (rec, None)) for name in names] if rec else []
    policies = [policy(*pair) for pair in zip(names, durations, strict=True)]
    owner = vpa(*items, policies=policies, updatePolicy={"updateMode": mode})
    if not values:
        with pytest.raises(ValueError, match="no resource patches were calculated to apply"):
            build_in_place_patches(pod_, owner, None, NOW)
        return
    resize, _ = build_in_place_patches(pod_, owner, None, NOW)
    assert {p.path: p.value for p in resize} == {
        f"/spec/containers/{i}/resources/requests/cpu": v for i, v in values.items()
    }


def test_below_the_minimum_with_the_flag_pods_are_resized_but_not_evicted() -> None:
    pods = members("r")
    options = UpdaterOptions(in_place_skip_disruption_budget=True)
    restriction = PodsRestriction(target_vpa("InPlaceOrRecreate"), pods, controllers(replicas=5), options, {})
    assert restriction.can_update_in_place(pods[0], NOW, {}) == "InPlaceApproved"
    assert not restriction.can_evict(pods[0], NOW)


@pytest.mark.parametrize(
    ("condition", "mode", "decision"),
    [
        (resizing("InProgress", "Error"), "InPlace", "InPlaceDeferred"),
        (IN_PROGRESS, None, "InPlaceEvict"),
    ],
)
def test_old_resizes(condition: dict[str, Any], mode: str | None, decision: str) -> None:
    pods = members("rrr")
    status = {"phase": "Running", "conditions": [condition]}
    pods[0] = pod(container("c", ("1", "100M")), name="web-0", owner=("ReplicationController", "web"), status=status)
    target = {"apiVersion": "v1", "kind": "ReplicationController", "name": "web"}
    item = recommended("c", ("2", "200M"))
    vpa_ = target_vpa(mode) if mode is not None else vpa(item, targetRef=target)
    options = UpdaterOptions(feature_gates={"InPlace": True})
    attempts = {"default/web-0": NOW - HOUR - 1}
    assert (
        PodsRestriction(vpa_, pods, controllers(replicas=3), options, attempts).can_update_in_place(pods[0], NOW, {})
        == decision
    )
