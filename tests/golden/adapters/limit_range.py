"""Kind ``limit-range``: everything in ``want`` is compared, quantities by value; absent and empty lists are one."""

from __future__ import annotations

from typing import Any

from kscale.objects.api.core import LimitRange, LimitRangeItem, Pod
from kscale.objects.api.vpa import PodResourcePolicy, RecommendedPodResources, VerticalPodAutoscaler
from kscale.objects.decode import from_dict
from kscale.objects.quantity import Quantity
from kscale.vpa.capping import (
    CONTAINER_LIMIT,
    POD_LIMIT,
    CappingError,
    LimitRanges,
    cap_recommendation,
    get_boundary_request,
    get_proportional_limits,
    scale_quantity,
)
from kscale.vpa.container_resources import (
    ContainerResources,
    ProviderError,
    build_container_resources,
    recommend_container_resources,
)
from kscale.vpa.recommender.update_vpas import apply_vpa_policy

BOUNDS = ("lower_bound", "target", "uncapped_target", "upper_bound")


def quantities(amounts: dict[str, str] | None) -> dict[str, Quantity] | None:
    return None if amounts is None else {name: Quantity(text) for name, text in amounts.items()}


def limit_ranges_of(inputs: dict[str, Any]) -> LimitRanges:
    return LimitRanges(from_dict(item, LimitRange) for item in inputs.get("limit_ranges") or ())


def same_recommendation(ours: RecommendedPodResources | None, theirs: dict[str, Any] | None) -> None:
    assert (ours is None) == (theirs is None)
    if ours is None:
        return
    want = from_dict(theirs, RecommendedPodResources)

    def plain(recommendation: RecommendedPodResources) -> list[Any]:
        return [
            (item.container_name, *(getattr(item, name) or {} for name in BOUNDS))
            for item in recommendation.container_recommendations
        ]

    assert plain(ours) == plain(want)


def same_notes(ours: dict[str, list[str]], theirs: dict[str, list[str]] | None) -> None:
    assert {k: v for k, v in ours.items() if v} == {k: v for k, v in (theirs or {}).items() if v}


def same_item(ours: LimitRangeItem | None, theirs: dict[str, Any] | None) -> None:
    assert (ours is None) == (theirs is None)
    if ours is not None:
        want = from_dict(theirs, LimitRangeItem)
        for name in ("type", "max", "min", "default"):
            assert (getattr(ours, name) or {}) == (getattr(want, name) or {}), name


def same_containers(ours: list[ContainerResources], theirs: list[dict[str, Any]]) -> None:
    assert [(c.requests or {}, c.limits or {}) for c in ours] == [
        (quantities(c.get("requests")) or {}, quantities(c.get("limits")) or {}) for c in theirs
    ]


def check_scale(inputs: dict[str, Any], want: dict[str, Any]) -> None:
    numbers = (Quantity(inputs[name]) for name in ("quantity", "base", "result"))
    assert scale_quantity(inputs["resource"], *numbers, inputs["mode"]) == (Quantity(want["value"]), want["type"])


def check_containers(inputs: dict[str, Any], want: dict[str, Any]) -> None:
    pod, lookup = from_dict(inputs["pod"], Pod), limit_ranges_of(inputs)
    if inputs.get("add_all"):
        policy = from_dict(inputs["resource_policy"], PodResourcePolicy) if inputs.get("resource_policy") else None
        recommendation = from_dict(inputs.get("recommendation") or {}, RecommendedPodResources)
        notes: dict[str, list[str]] = {}
        item = lookup.effective(pod.namespace, CONTAINER_LIMIT)
        containers = build_container_resources(pod, policy, recommendation, item, notes, add_all=True)
    else:
        try:
            containers, notes, _ = recommend_container_resources(
                pod, from_dict(inputs["vpa"], VerticalPodAutoscaler), lookup
            )
        except (CappingError, ProviderError) as error:
            containers, notes = [], {"error": [str(error)]}
    assert notes.pop("error", [None]) == [want.get("error")]
    same_containers(containers, want["containers"])
    same_notes(notes, want["notes"])


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    match inputs["function"]:
        case "effective":
            lookup = limit_ranges_of(inputs)
            same_item(lookup.effective(inputs["namespace"], CONTAINER_LIMIT), want["container"])
            same_item(lookup.effective(inputs["namespace"], POD_LIMIT), want["pod"])
        case "scale":
            check_scale(inputs, want)
        case "proportional_limits":
            names = ("limits", "requests", "recommended", "default_limits")
            limits, notes = get_proportional_limits(*(quantities(inputs.get(name)) for name in names))
            assert limits == quantities(want["limits"])
            assert notes == (want["notes"] or [])
        case "boundary_request":
            names = ("original_request", "original_limit", "boundary", "default_limit")
            numbers = (Quantity(inputs[name]) if inputs.get(name) else Quantity.zero() for name in names)
            assert get_boundary_request(inputs["resource"], *numbers) == Quantity(want["value"])
        case "apply_policy":
            policy = from_dict(inputs["resource_policy"], PodResourcePolicy) if inputs.get("resource_policy") else None
            recommendation = inputs.get("recommendation")
            ours = apply_vpa_policy(
                from_dict(recommendation, RecommendedPodResources) if recommendation is not None else None,
                policy,
                quantities(inputs.get("global_max_allowed")),
            )
            assert want["error"] is None
            same_recommendation(ours, want["recommendation"])
        case "capping":
            pod = from_dict(inputs["pod"], Pod) if inputs.get("pod") else None
            vpa = from_dict(inputs["vpa"], VerticalPodAutoscaler) if inputs.get("vpa") else None
            try:
                ours, notes, _ = cap_recommendation(vpa, pod, limit_ranges_of(inputs))
            except CappingError as error:
                ours, notes = None, {"error": [str(error)]}
            assert notes.pop("error", [None]) == [want["error"]]
            same_recommendation(ours, want["recommendation"])
            same_notes(notes, want["notes"])
        case "containers_resources":
            check_containers(inputs, want)
        case other:
            raise AssertionError(other)
