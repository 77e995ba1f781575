"""Kind ``vpa-priority``: all but ``processed_targets``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kscale.objects.api.core import LimitRange, Pod
from kscale.objects.api.vpa import RecommendedPodResources, VerticalPodAutoscaler
from kscale.objects.decode import from_dict
from kscale.objects.times import nanoseconds
from kscale.vpa.capping import LimitRanges
from kscale.vpa.options import BEFORE_1_8_1, UpdaterOptions
from kscale.vpa.updater import PodPriority, ScalingDirectionAdmission, assess_pod, order_updates

BOUNDS = ("lower_bound", "target", "uncapped_target", "upper_bound")

RECORDED_BEFORE_1_8_1 = "55c37cd5"
"""The commit of upstream that answered the recorded cases."""


def options_of(flags: dict[str, Any], case: dict[str, Any]) -> UpdaterOptions:
    fields = {
        name.removesuffix("_s"): timedelta(seconds=value) if name.endswith("_s") else value
        for name, value in flags.items()
    }
    if RECORDED_BEFORE_1_8_1 in case.get("upstream", ""):
        fields["profile"] = BEFORE_1_8_1
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


def names_of(priorities: list[PodPriority]) -> list[str]:
    return [item.pod.name for item in priorities]


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    vpa = from_dict(inputs["vpa"], VerticalPodAutoscaler)
    pods = [from_dict(item, Pod) for item in inputs["pods"]]
    attempts = inputs.get("infeasible_attempts") or {}
    assessed = [
        assess_pod(
            pod,
            vpa,
            now=nanoseconds(inputs["now"]),
            limit_ranges=LimitRanges(from_dict(item, LimitRange) for item in inputs.get("limit_ranges") or ()),
            options=options_of(inputs.get("options") or {}, case),
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
    assert names_of(order_updates(assessed)) == (want["priority_order"] or [])
    admission = ScalingDirectionAdmission()
    admission.loop_init(pods, [(vpa, pods)])
    updated = order_updates(assessed, admission)
    assert names_of(updated) == (want["update_order"] or [])
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
