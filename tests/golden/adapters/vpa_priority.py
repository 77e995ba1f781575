"""Kind ``vpa-priority``: all but ``processed_targets``; where the sort is unstable, equal pods as groups."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from kscale.objects.core import LimitRange, Pod
from kscale.objects.decode import from_dict
from kscale.objects.times import nanoseconds
from kscale.objects.vpa import RecommendedPodResources, VerticalPodAutoscaler
from kscale.vpa.limit_range import LimitRanges
from kscale.vpa.options import UpdaterOptions
from kscale.vpa.updater import PodPriority, ScalingDirection, assess, update_order

BOUNDS = ("lower_bound", "target", "uncapped_target", "upper_bound")


def options_of(given: dict[str, Any]) -> UpdaterOptions:
    fields = {name.removesuffix("_s"): value for name, value in given.items()}
    unknown = set(fields) - set(UpdaterOptions.__struct_fields__)
    assert not unknown, unknown
    return from_dict(fields, UpdaterOptions)


def by_value(recommendation: RecommendedPodResources | None) -> Any:
    if recommendation is None:
        return None
    return [
        (item.container_name, *(getattr(item, name) or {} for name in BOUNDS))
        for item in recommendation.container_recommendations
    ]


def same_order(ours: list[PodPriority], names: list[str], unstable: bool) -> None:
    mine = [item.pod.name for item in ours]
    if not unstable:
        assert mine == names
        return
    rank = {item.pod.name: (item.scale_up, item.resource_diff) for item in ours}
    assert set(mine) == set(names)
    for _, group in groupby(range(len(mine)), key=lambda i: rank[mine[i]]):
        places = list(group)
        assert {mine[i] for i in places} == {names[i] for i in places}


def check(case: dict[str, Any]) -> None:
    given, want = case["input"], case["want"]
    vpa = from_dict(given["vpa"], VerticalPodAutoscaler)
    pods = [from_dict(item, Pod) for item in given["pods"]]
    attempts = given.get("infeasible_attempts") or {}
    assessed = [
        assess(
            pod,
            vpa,
            now=nanoseconds(given["now"]),
            limit_ranges=LimitRanges.of(from_dict(item, LimitRange) for item in given.get("limit_ranges") or ()),
            options=options_of(given.get("options") or {}),
            infeasible_attempts={uid: from_dict(item, RecommendedPodResources) for uid, item in attempts.items()},
        )
        for pod in pods
    ]
    for ours, theirs in zip(assessed, want["pods"], strict=True):
        assert ours.pod.name == theirs["name"]
        assert (ours.error or None) == theirs.get("error")
        assert ours.accepted == theirs["accepted"]
        assert ours.outside_recommended_range == theirs["outside_recommended_range"]
        assert ours.scale_up == theirs["scale_up"]
        assert ours.resource_diff == float.fromhex(theirs["resource_diff_hex"])
        processed = theirs["processed_recommendation"]
        expected = None if processed is None else from_dict(processed, RecommendedPodResources)
        assert by_value(ours.recommendation) == by_value(expected)
    unstable = "unstable-sort" in case["tags"]
    same_order(update_order(assessed), want["priority_order"] or [], unstable)
    admission = ScalingDirection()
    admission.loop_init(pods, [(vpa, pods)])
    updated = update_order(assessed, admission)
    same_order(updated, want["update_order"] or [], unstable)
    chosen = {item.pod.name for item in updated}
    decisions = {
        item.pod.name: "update"
        if item.pod.name in chosen
        else "refused_by_eviction_requirements"
        if item.accepted
        else "not_selected"
        for item in assessed
    }
    assert decisions == want["decisions"]
