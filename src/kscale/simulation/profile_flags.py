"""The flags of a scenario under a profile, and flags by which one program can be made to decide as the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from kscale.ca.errors import AutoscalerError
from kscale.ca.flag_parsing import parse_flags
from kscale.ca.legacy.scale_up import LEGACY_EXPANDERS
from kscale.ca.options import LEGACY_DEFAULTS, LEGACY_FLAGS, LEGACY_ONLY, AutoscalingOptions
from kscale.ca.scale_up.one_loop import check_options
from kscale.effects import duration
from kscale.errors import InputError, Problem
from kscale.hpa.options import PROFILES, HPAOptions
from kscale.objects.durations import format_duration
from kscale.simulation.scenario import ControllerFlags, Scenario
from kscale.vpa.options import BEFORE_1_8_1, LEGACY_UPDATER_FLAGS

__all__ = ["CURRENT", "LEGACY", "PROGRAMS", "FlagChange", "flag_changes", "legacy_profiles", "with_profiles"]

LEGACY: Final = "legacy"
CURRENT: Final = "current"
PROGRAMS: Final = {
    "cluster_autoscaler": "cluster-autoscaler",
    "horizontal": "horizontal-pod-autoscaler",
    "vpa_updater": "vpa-updater",
}
"""The programs that have a profile, by their fields in a scenario, each with the name under which it decides."""
_PROFILES: Final = {
    "cluster_autoscaler": (CURRENT, LEGACY),
    "horizontal": PROFILES,
    "vpa_updater": (CURRENT, BEFORE_1_8_1, LEGACY),
}
_UNREAD_BY_HPA: Final = frozenset({"concurrent-horizontal-pod-autoscaler-syncs"})
_GATES: Final = "feature-gates"
_FREQUENT: Final = "frequent-loops-enabled"
_THRESHOLD: Final = "scale-down-utilization-threshold"

_Value = str | int | float | bool | list[str]


class FlagChange(NamedTuple):
    """One flag, changed in the run with ``profile``, so that the program decides one thing as the other program does.

    ``controller``: the program's field in a scenario; ``rule``: the id of the rule that the change takes away;
    ``actions``: the decisions that the rule can reach without an earlier difference (empty: all); ``text``: the change
    in words.
    """

    controller: str
    rule: str
    profile: str
    flag: str
    value: _Value
    actions: frozenset[str]
    text: str


def legacy_profiles(scenario: Scenario, source: str) -> dict[str, str]:
    """Return the profile of each program in the legacy run, by its field.

    It is ``legacy`` unless the scenario names another old profile of the HPA controller. Raises InputError for a
    profile that the program does not have.
    """
    profiles: dict[str, str] = {}
    problems = []
    for name in PROGRAMS:
        controller: ControllerFlags | None = getattr(scenario.controllers, name)
        if controller is None:
            continue
        profile = str(controller.flags.get("profile", LEGACY))
        known = _PROFILES[name]
        if profile not in known:
            field = f"controllers.{_field(name)}.flags.profile"
            problems.append(Problem(f"unknown profile {profile!r}; there are {', '.join(known)}", source, field=field))
        profiles[name] = profile if profile.startswith(LEGACY) else LEGACY
    if problems:
        raise InputError(problems)
    return profiles


def with_profiles(
    scenario: Scenario, profiles: Mapping[str, str], changes: Sequence[FlagChange] = ()
) -> tuple[Scenario, list[str]]:
    """Return the scenario with the profile of each program, and the flags and values that were left out.

    A flag is left out if the program of the profile has no such flag. A value is left out (``NAME=VALUE``) if the
    program of the profile refuses it and the program of the other profile takes it; a value that both refuse stays,
    and fails where the scenario is built. ``changes``: flags of the Cluster Autoscaler or the updater to set on top,
    each in the program that has its profile.
    """
    controllers, left_out = scenario.controllers, []
    for name, profile in profiles.items():
        controller: ControllerFlags = getattr(controllers, name)
        other = LEGACY if profile == CURRENT else CURRENT
        flags: dict[str, _Value] = {}
        for flag, value in controller.flags.items():
            if flag == "profile":
                continue
            if not _has(name, profile, flag):
                left_out.append(f"{_field(name)}.{flag}")
                continue
            parts = _parts(flag, value)
            refused = [part for part in parts if not _takes(name, profile, flag, part)]
            refused = [part for part in refused if _takes(name, other, flag, part)]
            left_out += [f"{_field(name)}.{flag}={part}" for part in refused]
            remaining = [part for part in parts if part not in refused]
            if remaining:
                flags[flag] = ",".join(map(str, remaining)) if refused else value
        for change in changes:
            if change.controller == name and change.profile == profile:
                flags[change.flag] = change.value
        controllers = replace(controllers, **{name: ControllerFlags(flags={**flags, "profile": profile})})
    return replace(scenario, controllers=controllers), left_out


def _field(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _has(controller: str, profile: str, flag: str) -> bool:
    field = flag.replace("-", "_")
    if controller == "cluster_autoscaler":
        return field in LEGACY_FLAGS if profile == LEGACY else field not in LEGACY_ONLY
    if profile == CURRENT:
        return True
    return field in LEGACY_UPDATER_FLAGS if controller == "vpa_updater" else flag not in _UNREAD_BY_HPA


def _parts(flag: str, value: _Value) -> list[Any]:
    """Return the entries of a flag that is read entry by entry, else the value as it is."""
    if flag != _GATES:
        return [value]
    return [part for each in (value if isinstance(value, list) else [str(value)]) for part in each.split(",")]


def _takes(controller: str, profile: str, flag: str, value: _Value) -> bool:
    """Return whether a program accepts the value of a flag that it has."""
    try:
        if controller == "cluster_autoscaler" and flag != _FREQUENT:
            check_options(_autoscaling(profile, {flag: value}))
        elif controller == "horizontal" and flag == _GATES:
            HPAOptions(profile=profile, feature_gates={str(value).partition("=")[0].strip(): True})
    except (InputError, AutoscalerError):
        return False
    return True


def _autoscaling(profile: str, flags: Mapping[str, _Value]) -> AutoscalingOptions:
    texts = [
        f"{name}={str(each).lower() if isinstance(each, bool) else each}"
        for name, value in flags.items()
        if name not in ("profile", _FREQUENT)
        for each in (value if isinstance(value, list) else [value])
    ]
    return AutoscalingOptions.for_profile(profile, **parse_flags(texts).values)


def flag_changes(scenario: Scenario, name: str) -> list[FlagChange]:
    """Return the flags by which one of the two programs can be made to decide as the other, each with its rule.

    Flags whose values in effect are the same in both programs are left out.
    """
    if name == "vpa_updater":
        flag = "use-admission-controller-status"
        updater = scenario.controllers.vpa_updater
        if updater is not None and str(updater.flags.get(flag, True)).lower() == "false":
            return []
        return [_today("admission-status", flag, False, frozenset({"Evict"}))]
    if name != "cluster_autoscaler":
        return []
    legacy_flags, current_flags = (
        with_profiles(scenario, {name: profile})[0].controllers.cluster_autoscaler for profile in (LEGACY, CURRENT)
    )
    assert legacy_flags is not None
    assert current_flags is not None
    then, today = _autoscaling(LEGACY, legacy_flags.flags), _autoscaling(CURRENT, current_flags.flags)
    changes = _changed_defaults(then, today)
    grown, deleted = frozenset({"IncreaseSize"}), frozenset({"DeleteNodes"})
    if today.scale_up_from_zero:
        changes.append(_today("empty-cluster", "scale-up-from-zero", False, grown))
    below = math.nextafter(today.scale_down_utilization_threshold, 0)
    text = f"today's cluster-autoscaler that leaves nodes at exactly --{_THRESHOLD} alone"
    changes.append(FlagChange(name, "utilization-threshold", CURRENT, _THRESHOLD, repr(below), deleted, text))
    if today.node_delete_delay_after_taint > timedelta():
        changes.append(_today("delete-delay", "node-delete-delay-after-taint", "0s", deleted))
    if today.daemonset_eviction_for_occupied_nodes:
        changes.append(_today("daemonset-eviction", "daemonset-eviction-for-occupied-nodes", False, deleted))
    if today.max_bulk_soft_taint_count > 0:
        changes.append(_today("candidate-taints", "max-bulk-soft-taint-count", 0, frozenset()))
    if current_flags.flags.get(_FREQUENT, True) is True:
        changes.append(_today("loop-start", _FREQUENT, False, frozenset()))
    return changes


def _today(rule: str, flag: str, value: _Value, actions: frozenset[str]) -> FlagChange:
    name = "vpa_updater" if rule == "admission-status" else "cluster_autoscaler"
    shown = str(value).lower() if isinstance(value, bool) else value
    return FlagChange(name, rule, CURRENT, flag, value, actions, f"today's {PROGRAMS[name]} with --{flag}={shown}")


_DEFAULTS: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "expendable_pods_priority_cutoff": ("expendable-cutoff", frozenset()),
    "expander": ("expander", frozenset({"IncreaseSize"})),
    "estimator": ("estimator", frozenset({"IncreaseSize"})),
    "scale_down_delay_after_delete": ("delete-after-delete", frozenset({"DeleteNodes"})),
}
"""Flags that both programs have and whose values may differ: the rule, and the decisions that it reaches."""


def _changed_defaults(then: AutoscalingOptions, today: AutoscalingOptions) -> list[FlagChange]:
    """Return the changes that give release 1.3 the value of today, as far as the release takes it, else the reverse."""
    assert {*LEGACY_DEFAULTS} <= {*_DEFAULTS}
    changes = []
    for field, (rule, actions) in _DEFAULTS.items():
        old, new = getattr(then, field), getattr(today, field)
        if old == new:
            continue
        reverse = field == "expander" and new not in LEGACY_EXPANDERS
        flag, value = field.replace("_", "-"), old if reverse else new
        if isinstance(value, timedelta):
            value = format_duration(duration(value))
        program = "today's cluster-autoscaler" if reverse else "release 1.3"
        profile = CURRENT if reverse else LEGACY
        text = f"{program} with --{flag}={value}"
        changes.append(FlagChange("cluster_autoscaler", rule, profile, flag, value, actions, text))
    return changes
