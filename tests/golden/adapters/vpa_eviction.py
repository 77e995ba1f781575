"""Kind ``vpa-eviction``: everything is compared but texts of refusals that are our own words, not the API's.

``disruptable`` of groups and ``get_resize_status`` of pods are compared where they were recorded.
"""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import msgspec

from kscale.effects import (
    Action,
    ApiError,
    Emit,
    Event,
    Evict,
    Moment,
    Observe,
    Outcome,
    Patch,
    Progress,
    Resize,
    run_dry,
    run_virtually,
    to_text,
)
from kscale.objects.api.core import LimitRange, Pod
from kscale.objects.api.vpa import RecommendedPodResources, VerticalPodAutoscaler
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.kinds import find_kind
from kscale.objects.times import nanoseconds
from kscale.vpa import Controllers, UpdaterOptions
from kscale.vpa.capping import LimitRanges
from kscale.vpa.updater import (
    PodsRestriction,
    UpdaterResult,
    UpdaterRound,
    UpdaterState,
    filter_live_pods,
    find_controlled_pods_steps,
    resolve_vpa_selectors_steps,
    updater_steps,
)
from kscale.vpa.updater.in_place import get_resize_status

NAMES: dict[type, str] = {Evict: "evict", Resize: "resize", Patch: "annotate"}
BOUNDS = ("lower_bound", "target", "uncapped_target", "upper_bound")


def options_of(flags: dict[str, Any]) -> UpdaterOptions:
    fields = {
        name.removesuffix("_s"): timedelta(seconds=value) if name.endswith("_s") else value
        for name, value in flags.items()
    }
    unknown = set(fields) - set(UpdaterOptions.__struct_fields__)
    assert not unknown, unknown
    return from_dict({**fields, "use_admission_controller_status": False}, UpdaterOptions)


def controllers_of(objects: list[dict[str, Any]]) -> Controllers:
    kinds = [(item, find_kind(item["apiVersion"], item["kind"])) for item in objects]
    return Controllers(from_dict(item, kind) for item, kind in kinds if kind is not None)


class World:
    """Answers as recorded, and remembers what it was asked and told."""

    def __init__(self, errors: dict[str, Any]) -> None:
        self.errors = errors
        self.sequence: list[dict[str, Any]] = []
        self.events: list[Event] = []

    def __call__(self, action: Action, now: Moment) -> Outcome:
        match action:
            case Emit(events=events):
                self.events += events
            case Observe():
                pass
            case Evict() | Resize() | Patch():
                name = NAMES[type(action)]
                refused = (self.errors.get(name) or {}).get(f"{action.namespace}/{action.name}")
                entry = {"action": name, "namespace": action.namespace, "pod": action.name}
                if not isinstance(action, Evict):
                    entry["patch"] = to_dict(list(action.patch))
                self.sequence.append({**entry, "error": None if refused is None else refused.get("message", "")})
                if refused is not None:
                    causes = tuple(cause["type"] for cause in refused.get("causes") or ())
                    error = ApiError(
                        refused.get("message", ""), refused.get("code", 0), refused.get("reason", ""), causes
                    )
                    return Outcome(at=now, error=error)
            case _:
                raise AssertionError(action)
        return Outcome(at=now)


def by_value(recommendation: RecommendedPodResources) -> Any:
    return [
        (item.container_name, *(getattr(item, name) or {} for name in BOUNDS))
        for item in recommendation.container_recommendations
    ]


def _recorded(ours: Any, theirs: Any) -> Any:
    """Return ``ours`` without the optional fields that the recorded answer does not have."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        left_out = {name for name in ("disruptable", "resize_status") if name not in theirs}
        return {key: _recorded(value, theirs.get(key)) for key, value in ours.items() if key not in left_out}
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple) and len(ours) == len(theirs):
        return type(ours)(_recorded(a, b) for a, b in zip(ours, theirs, strict=True))
    return ours


def check_before(round_inputs: UpdaterRound, state: UpdaterState, now: int, options: UpdaterOptions, want: Any) -> None:
    """What is answered when nothing has happened yet."""
    considered = [vpa for vpa in round_inputs.vpas if not options.ignores(vpa.namespace)]
    vpas = run_dry(resolve_vpa_selectors_steps(considered, round_inputs.controllers, Progress(now)), now=now).value
    pods = filter_live_pods(round_inputs.pods)
    controlled = run_dry(find_controlled_pods_steps(pods, vpas, round_inputs.controllers, Progress(now)), now=now).value
    owner = {pod.key: vpa.name for vpa, pods in controlled for pod in pods}
    names = {key: value for key, value in want["controlling_vpa"].items() if value is not None}
    assert owner == names
    groups, answers = [], {}
    for vpa, pods in controlled:
        restriction = PodsRestriction(vpa, pods, round_inputs.controllers, options, dict(state.last_in_place_attempts))
        groups.append((vpa.namespace, vpa.name, [
            {
                "kind": key.kind, "name": key.name, "namespace": key.namespace,
                "configured": g.stats.configured, "pending": g.stats.pending, "running": g.stats.running,
                "eviction_tolerance": g.stats.tolerance, "in_place_update_ongoing": g.stats.in_place_ongoing,
                "below_min_replicas": g.stats.below_min_replicas, "disruptable": g.stats.disruptable,
            }
            for key, g in sorted(restriction.groups.items(), key=lambda item: item[0][1:])
        ]))  # fmt: skip
        for pod in pods:
            answers[pod.key] = {
                "can_evict": restriction.can_evict(pod, now),
                "in_place_decision": restriction.can_update_in_place(pod, now, state.infeasible_attempts),
                "can_unboost": restriction.can_unboost(pod, now),
                "resize_status": get_resize_status(pod),
            }
    theirs = sorted(((g["namespace"], g["vpa"], g["groups"] or []) for g in want["groups"] or ()), key=lambda g: g[:2])
    groups.sort(key=lambda g: g[:2])
    assert _recorded(groups, theirs) == theirs
    expected_pods = {key: value for key, value in want["pods"].items() if value is not None}
    assert _recorded(answers, expected_pods) == expected_pods


def check_after(result: UpdaterResult, world: World, want: Any) -> None:
    assert world.sequence == (want["sequence"] or [])
    events = [
        {
            **{name: getattr(event.regarding, name) for name in ("kind", "namespace", "name")},
            **{name: getattr(event, name) for name in ("type", "reason", "message")},
        }
        for event in world.events
    ]
    assert events == [{"type": "Normal", **event} for event in want["events"] or []]
    ours = {uid: by_value(item) for uid, item in result.state.infeasible_attempts.items()}
    theirs = want["infeasible_attempts"] or {}
    assert ours == {uid: by_value(from_dict(item, RecommendedPodResources)) for uid, item in theirs.items()}
    attempts = {key: to_text(time) for key, time in result.state.last_in_place_attempts.items()}
    assert attempts == (want["last_in_place_attempts"] or {})


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    options = options_of(inputs.get("options") or {})
    attempts = inputs.get("infeasible_attempts") or {}
    state = UpdaterState(
        infeasible_attempts={uid: from_dict(item, RecommendedPodResources) for uid, item in attempts.items()},
        last_in_place_attempts={k: nanoseconds(v) for k, v in (inputs.get("last_in_place_attempts") or {}).items()},
    )
    round_inputs = UpdaterRound(
        vpas=[from_dict(item, VerticalPodAutoscaler) for item in inputs.get("vpas") or ()],
        pods=[from_dict(item, Pod) for item in inputs.get("pods") or ()],
        controllers=controllers_of(inputs.get("controllers") or []),
        limit_ranges=LimitRanges(from_dict(item, LimitRange) for item in inputs.get("limit_ranges") or ()),
    )
    cycles = inputs.get("cycles") or [{"now": inputs["now"]}]
    for cycle, expected in zip(cycles, want.get("cycles") or [want], strict=True):
        if cycle.get("pods") is not None:
            round_inputs = msgspec.structs.replace(round_inputs, pods=[from_dict(item, Pod) for item in cycle["pods"]])
        if cycle.get("vpas") is not None:
            vpas = [from_dict(item, VerticalPodAutoscaler) for item in cycle["vpas"]]
            round_inputs = msgspec.structs.replace(round_inputs, vpas=vpas)
        now = nanoseconds(cycle["now"])
        check_before(round_inputs, copy.deepcopy(state), now, options, expected)
        world = World(inputs.get("api_errors") or {})
        steps = updater_steps(state, round_inputs, now=now, options=options)
        check_after(run_virtually(lambda _, steps=steps: steps, world, now=now), world, expected)
