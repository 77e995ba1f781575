"""Runs one scenario with different programs, flags or provisioners (the Cluster Autoscaler, and Karpenter).

Decisions of two runs are paired by their moment and object. Not in upstream.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kscale.ca.entry_points import check_scale_up_options
from kscale.ca.errors import AutoscalerError
from kscale.ca.flag_parsing import parse_flags
from kscale.ca.legacy.scale_up import LEGACY_EXPANDERS
from kscale.ca.options import LEGACY_DEFAULTS, LEGACY_FLAGS, LEGACY_ONLY_OPTIONS, AutoscalingOptions
from kscale.ca.static_autoscaler.report import LoopReport
from kscale.drivers.cluster_autoscaler import ClusterAutoscaler
from kscale.drivers.vpa_updater import VpaUpdater
from kscale.effects import SECOND, Moment, duration, from_text
from kscale.errors import InputError, Problem
from kscale.hpa.options import PROFILES, HPAOptions
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler
from kscale.objects.argument_types import typed
from kscale.objects.times import format_duration, parse_duration
from kscale.records import Record
from kscale.simulation.building import Setup, build
from kscale.simulation.records import Decision, GroupUse, SimulationReport
from kscale.simulation.running import Simulation, simulate
from kscale.simulation.scenario import CLUSTER_AUTOSCALER, KARPENTER, ControllerFlags, Scenario
from kscale.vpa.options import BEFORE_1_8_1, LEGACY_UPDATER_FLAGS
from kscale.vpa.updater import UpdaterResult

__all__ = [
    "CURRENT",
    "LEGACY",
    "PROGRAMS",
    "SAME_TIME",
    "FinishedRun",
    "FlagChange",
    "Key",
    "LoopFact",
    "Pair",
    "ProvisionerComparison",
    "ProvisionerRun",
    "ScalerStatus",
    "compare_provisioners",
    "flag_changes",
    "format_request",
    "legacy_profiles",
    "pair_decisions",
    "run_scenario",
    "with_profiles",
]


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
    """One changed flag in the run with ``profile``, with which the program decides one thing like the other program.

    ``controller``: the program's field in a scenario; ``rule``: the id of the rule that the change disables;
    ``actions``:
    the decisions that the rule can affect without an earlier difference (empty: all); ``text``: the change in words.
    """

    controller: str
    rule: str
    profile: str
    flag: str
    value: _Value
    actions: frozenset[str]
    text: str


def legacy_profiles(scenario: Scenario, source: str) -> dict[str, str]:
    """Return the profile of each program of the scenario in the legacy run, by its field.

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
            field = f"controllers.{_format_field(name)}.flags.profile"
            problems.append(Problem(f"unknown profile {profile!r}; there are {', '.join(known)}", source, field=field))
        profiles[name] = profile if profile.startswith(LEGACY) else LEGACY
    if problems:
        raise InputError(problems)
    return profiles


def with_profiles(
    scenario: Scenario, profiles: Mapping[str, str], changes: Sequence[FlagChange] = ()
) -> tuple[Scenario, list[str]]:
    """Return the scenario with the profile of each program, and the flags and values that were left out.

    Programs that ``profiles`` does not name stay as they are.

    A flag is left out if the program of the profile has no such flag. A value is left out (``NAME=VALUE``) if the
    program of the profile refuses it and the program of the other profile accepts it; a value that both refuse stays,
    and fails when the scenario is built. ``changes``: further flags of the Cluster Autoscaler or the updater, each for
    the program with its profile.
    """
    controllers, left_out = scenario.controllers, []
    for name, profile in profiles.items():
        controller: ControllerFlags = getattr(controllers, name)
        other = LEGACY if profile == CURRENT else CURRENT
        flags: dict[str, _Value] = {}
        for flag, value in controller.flags.items():
            if flag == "profile":
                continue
            if not _has_flag(name, profile, flag):
                left_out.append(f"{_format_field(name)}.{flag}")
                continue
            parts = _split_flag_value(flag, value)
            refused = [part for part in parts if not _accepts_value(name, profile, flag, part)]
            refused = [part for part in refused if _accepts_value(name, other, flag, part)]
            left_out += [f"{_format_field(name)}.{flag}={part}" for part in refused]
            remaining = [part for part in parts if part not in refused]
            if remaining:
                flags[flag] = ",".join(map(str, remaining)) if refused else value
        for change in changes:
            if change.controller == name and change.profile == profile:
                flags[change.flag] = change.value
        controllers = replace(controllers, **{name: ControllerFlags(flags={**flags, "profile": profile})})
    return replace(scenario, controllers=controllers), left_out


def _format_field(name: str) -> str:
    """Return a field's name in camel case, as in scenario files."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _has_flag(controller: str, profile: str, flag: str) -> bool:
    """Check whether the program with this profile has a flag."""
    field = flag.replace("-", "_")
    if controller == "cluster_autoscaler":
        return field in LEGACY_FLAGS if profile == LEGACY else field not in LEGACY_ONLY_OPTIONS
    if profile == CURRENT:
        return True
    return field in LEGACY_UPDATER_FLAGS if controller == "vpa_updater" else flag not in _UNREAD_BY_HPA


def _split_flag_value(flag: str, value: _Value) -> list[Any]:
    """Return the entries of a flag that is read entry by entry; for any other flag, the value itself in a list."""
    if flag != _GATES:
        return [value]
    return [part for text in (value if isinstance(value, list) else [str(value)]) for part in text.split(",")]


def _accepts_value(controller: str, profile: str, flag: str, value: _Value) -> bool:
    """Check whether the program with this profile accepts the value of a flag that it has.

    Checks the flags of the Cluster Autoscaler and the feature gates of the HPA controller; True for all others.
    """
    try:
        if controller == "cluster_autoscaler" and flag != _FREQUENT:
            check_scale_up_options(_build_autoscaling_options(profile, {flag: value}))
        elif controller == "horizontal" and flag == _GATES:
            HPAOptions(profile=profile, feature_gates={str(value).partition("=")[0].strip(): True})
    except (InputError, AutoscalerError):
        return False
    return True


def _build_autoscaling_options(profile: str, flags: Mapping[str, _Value]) -> AutoscalingOptions:
    """Build the Cluster Autoscaler's options from the flags of a scenario, without those that are no options of its.

    Raises InputError for an unknown or unsupported flag and for a value that cannot be read. Values that upstream
    refuses at its start are not checked.
    """
    texts = [
        f"{name}={str(entry).lower() if isinstance(entry, bool) else entry}"
        for name, value in flags.items()
        if name not in ("profile", _FREQUENT)
        for entry in (value if isinstance(value, list) else [value])
    ]
    return AutoscalingOptions.for_profile(profile, **parse_flags(texts).values)


def flag_changes(scenario: Scenario, name: str) -> list[FlagChange]:
    """Return changes of flags with which one version of a program (old or today's) may decide like the other version.

    ``name``: the program's field in the scenario's controllers, which must be set. Each change names the rule behind
    it. Flags with equal effective values in both versions are left out, except for the utilization threshold, which the
    versions compare differently. Empty for a program without such flags. Raises InputError if the Cluster Autoscaler
    refuses the scenario's flags.
    """
    if name == "vpa_updater":
        flag = "use-admission-controller-status"
        updater = scenario.controllers.vpa_updater
        if updater is not None and str(updater.flags.get(flag, True)).lower() == "false":
            return []
        return [_build_current_change("admission-status", flag, False, frozenset({"Evict"}))]
    if name != "cluster_autoscaler":
        return []
    legacy_flags, current_flags = (
        with_profiles(scenario, {name: profile})[0].controllers.cluster_autoscaler for profile in (LEGACY, CURRENT)
    )
    assert legacy_flags is not None
    assert current_flags is not None
    then, today = (
        _build_autoscaling_options(LEGACY, legacy_flags.flags),
        _build_autoscaling_options(CURRENT, current_flags.flags),
    )
    changes = _changed_defaults(then, today)
    grown, deleted = frozenset({"IncreaseSize"}), frozenset({"DeleteNodes"})
    if today.scale_up_from_zero:
        changes.append(_build_current_change("empty-cluster", "scale-up-from-zero", False, grown))
    below = math.nextafter(today.scale_down_utilization_threshold, 0)
    text = f"today's cluster-autoscaler that leaves nodes at exactly --{_THRESHOLD} alone"
    changes.append(FlagChange(name, "utilization-threshold", CURRENT, _THRESHOLD, repr(below), deleted, text))
    if today.node_delete_delay_after_taint > timedelta():
        changes.append(_build_current_change("delete-delay", "node-delete-delay-after-taint", "0s", deleted))
    if today.daemonset_eviction_for_occupied_nodes:
        changes.append(
            _build_current_change("daemonset-eviction", "daemonset-eviction-for-occupied-nodes", False, deleted)
        )
    if today.max_bulk_soft_taint_count > 0:
        changes.append(_build_current_change("candidate-taints", "max-bulk-soft-taint-count", 0, frozenset()))
    if current_flags.flags.get(_FREQUENT, True) is True:
        changes.append(_build_current_change("loop-start", _FREQUENT, False, frozenset()))
    return changes


def _build_current_change(rule: str, flag: str, value: _Value, actions: frozenset[str]) -> FlagChange:
    """Build the change of a flag of today's program. ``actions``: the decisions that it can affect (empty: all)."""
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
    """Return a change for each option whose values differ in release 1.3 (``then``) and today.

    The change gives today's value to release 1.3. If that has no expander of this name, today's program gets the old
    expander instead.
    """
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


SAME_TIME = SECOND
"""Decisions less than this apart are of the same time: loops do not all begin at the same part of a second."""

Key = tuple[str, str, str]
"""The program, the action, and the object of a decision."""


class LoopFact(NamedTuple):
    """Report of one loop of a Cluster Autoscaler.

    ``trigger``: what started the loop; ``text``: how it ended; ``rule``: the rule of its release by which it ended or
    deleted nothing (empty: none). ``unneeded``: the unneeded nodes of the last loop that determined them; ``reasons``:
    why other nodes had to stay.
    """

    at: Moment
    trigger: str
    text: str
    rule: str
    unneeded: frozenset[str]
    reasons: Mapping[str, str]


class ScalerStatus(NamedTuple):
    """The condition ScalingActive of an HPA, as its controller wrote it. ``kind``: of the target."""

    at: Moment
    kind: str
    active: bool
    reason: str
    message: str


class FinishedRun(NamedTuple):
    """A run, and what its programs reported. ``statuses``: of HPAs, by the ``namespace/name`` of their targets."""

    run: Simulation
    loops: list[LoopFact]
    statuses: dict[str, list[ScalerStatus]]
    said: list[str]
    left_out: list[str]
    begin: Moment

    def loop_at(self, at: Moment) -> LoopFact | None:
        """Return the last loop of the Cluster Autoscaler up to a moment; None if there is none."""
        return next((loop for loop in reversed(self.loops) if loop.at <= at), None)

    def statuses_of(self, about: str) -> list[ScalerStatus]:
        """Return the statuses of HPAs with the target ``RESOURCE NAMESPACE/NAME``, oldest first; empty if none."""
        resource, _, target = about.partition(" ")
        return [status for status in self.statuses.get(target, ()) if resource.startswith(status.kind.lower()[:-1])]


def run_scenario(
    scenario: Scenario,
    profiles: Mapping[str, str],
    *,
    changes: Sequence[FlagChange] = (),
    until: Moment | None = None,
    source: str = "",
    folder: Path = Path(),
    stop: Callable[[], bool] = lambda: False,
) -> FinishedRun:
    """Run a scenario with the profile of each program (``profiles``).

    The run ends at the horizon of the scenario, or at ``until`` if that is earlier. ``changes``: further flags;
    ``source``, ``folder``: the file's name in errors and where its relative names start. ``stop`` is polled, and ends
    the run if it returns True. Raises InputError if the scenario cannot be built, or if its time does not advance.
    """
    adapted, left_out = with_profiles(scenario, profiles, changes)
    if until is not None and until - from_text(scenario.begin) < parse_duration(scenario.horizon):
        adapted = replace(adapted, horizon=format_duration(until - from_text(scenario.begin)))
    setup = build(adapted, source=source, folder=folder)
    ran = _listen_to_programs(setup)
    return FinishedRun(simulate(setup, stop=stop), *ran, left_out, from_text(scenario.begin))


def _listen_to_programs(setup: Setup) -> tuple[list[LoopFact], dict[str, list[ScalerStatus]], list[str]]:
    """Record what the programs of a setup report while it runs.

    Returns three collections that are filled during the run: loops of the Cluster Autoscaler, statuses of HPAs by
    target, and diagnostics of the updater.
    """
    loops: list[LoopFact] = []
    statuses: dict[str, list[ScalerStatus]] = {}
    diagnostics: list[str] = []
    for driver in setup.drivers:
        if isinstance(driver, ClusterAutoscaler):
            started = setup.world.time.now

            def loop(now: Moment, trigger: str, report: LoopReport, begun: Moment = started) -> None:
                """Record a loop of the Cluster Autoscaler."""
                loops.append(_build_loop_fact(now, trigger, report, begun, loops[-1] if loops else None))

            driver.on_result = loop
        elif isinstance(driver, VpaUpdater):

            def note_diagnostics(result: UpdaterResult) -> None:
                """Record the updater's diagnostics, each text once."""
                diagnostics.extend(text for text in result.diagnostics if text not in diagnostics)

            driver.on_result = note_diagnostics

    def note_statuses(changes: Sequence[tuple[str, Any, Any]]) -> None:
        """Store the status and the time of each HPA among the changed objects."""
        for _, _, hpa in changes:
            if isinstance(hpa, HorizontalPodAutoscaler):
                _note_status(hpa, setup.world.time.now, statuses)

    setup.world.api.listen("HorizontalPodAutoscaler", note_statuses)
    return loops, statuses, diagnostics


def _note_status(hpa: HorizontalPodAutoscaler, now: Moment, statuses: dict[str, list[ScalerStatus]]) -> None:
    """Append the condition ScalingActive of an HPA, if it has one, to ``statuses`` (by target).

    A condition that is unchanged is appended again.
    """
    active = next((condition for condition in hpa.status.conditions or () if condition.type == "ScalingActive"), None)
    if active is not None:
        target = f"{hpa.metadata.namespace}/{hpa.spec.scale_target_ref.name}"
        kind = hpa.spec.scale_target_ref.kind
        status = ScalerStatus(now, kind, active.status == "True", active.reason, active.message)
        statuses.setdefault(target, []).append(status)


def _build_loop_fact(
    now: Moment, trigger: str, report: LoopReport, started: Moment, before: LoopFact | None
) -> LoopFact:
    """Return the facts of one loop's report. ``started``: when the program started; ``trigger``: what began the loop.

    Facts that the loop did not determine are those of the loop ``before``.
    """
    unneeded = frozenset[str]() if before is None else before.unneeded
    reasons: Mapping[str, str] = {} if before is None else before.reasons
    plan = report.scale_down
    if plan is not None:
        names = frozenset(item.name for item in plan.unneeded)
        unneeded = unneeded if names == unneeded else names
        current = {name: unremovable.reason for name, unremovable in plan.unremovable.items()}
        reasons = reasons if current == reasons else current
    text, rule = _describe_loop_end(now, report, started)
    return LoopFact(now, trigger, text, rule, unneeded, reasons)


_ENDINGS = {
    "Some unregistered nodes were removed, skipping iteration": "unregistered-ends-loop",
    "Cluster is unhealthy": "health-formula",
    "Cluster has no nodes.": "empty-cluster",
    "Cluster has no ready nodes.": "empty-cluster",
    "No scale down in this iteration": "scale-up-ends-loop",
}
"""Why loops of release 1.3 end early, with the rule."""


def _describe_loop_end(now: Moment, report: LoopReport, started: Moment) -> tuple[str, str]:
    """Return (how a loop ended, name of the rule by which it ended early or deleted no node).

    The rule is one in which the two releases differ; its name is empty if no such rule applied. ``started``: when the
    program started.
    """
    if report.error is not None:
        return report.error.message, ""
    if report.ended:
        return report.ended, _ENDINGS.get(report.ended, "")
    up, memory, result = report.scale_up, report.state.scale_down, report.scale_down_result
    if result == "ScaleDownInProgress":
        return result, "one-drain"
    if result != "ScaleDownInCooldown":
        return result, ""
    if up is not None and up.scale_down_disabled and up.lists.on_existing:
        return f"{result}: schedulable pods are present", "schedulable-pods"
    if memory.last_scale_up is not None and memory.last_scale_up <= started:
        return f"{result}: since the process started", "start-cooldown"
    if memory.last_scale_down is not None and now - memory.last_scale_down <= 10 * SECOND:
        return f"{result}: after a deletion", "delete-after-delete"
    return result, ""


# -- decisions in pairs -----------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """Two decisions that correspond: the ``number``-th one with this key in each of two runs.

    ``old``, ``new``: the decision in the old run and in the new one; None if that run has no such decision. ``first``:
    the earlier time of the two decisions.
    """

    first: Moment
    key: Key
    number: int
    old: Decision | None
    new: Decision | None

    @property
    def name(self) -> tuple[Key, int]:
        """Return (key, number), which identifies the pair in every comparison."""
        return self.key, self.number

    @property
    def delay(self) -> int | None:
        """Return the nanoseconds between the two decisions; None if one of the runs has no such decision."""
        if self.old is None or self.new is None:
            return None
        return abs(from_text(self.old.at) - from_text(self.new.at))

    @property
    def differs(self) -> bool:
        """Check whether one run has no such decision, or the decisions differ in time or amount."""
        delay = self.delay
        return delay is None or delay >= SAME_TIME or format_request(self.old) != format_request(self.new)


def pair_decisions(old: FinishedRun, new: FinishedRun) -> list[Pair]:
    """Pair the decisions of two runs, ordered by the earlier time of each pair.

    Refused decisions are left out, as are those that are part of another one or do not change a size or a pod. The
    deletion of each machine is a decision of its own.
    """
    before, after = _group_by_key(old), _group_by_key(new)
    pairs = [
        Pair(min(from_text(item.at) for item in (first, second) if item is not None), key, number, first, second)
        for key in dict.fromkeys((*before, *after))
        for number, (first, second) in enumerate(zip_longest(before.get(key, ()), after.get(key, ())))
    ]
    return sorted(pairs, key=lambda pair: pair[:3])


def _group_by_key(ran: FinishedRun) -> dict[Key, list[Decision]]:
    """Return the accepted decisions of a run by their subject (:func:`_get_decision_key`), in order of time."""
    decisions: dict[Key, list[Decision]] = {}
    for entry in ran.run.decisions.entries:
        if entry.error is None:
            for each in _split_deletions(entry):
                if (key := _get_decision_key(each)) is not None:
                    decisions.setdefault(key, []).append(each)
    for same in decisions.values():
        same.sort(key=lambda each: (from_text(each.at), format_request(each)))
    return decisions


def _split_deletions(decision: Decision) -> Iterator[Decision]:
    """Yield the deletion of each machine separately: one program requests several in one call, the other one by one."""
    if decision.action != "DeleteNodes":
        yield decision
        return
    for node in decision.arguments.get("nodes", ()):
        yield replace(decision, arguments={**decision.arguments, "nodes": [node]})


def _get_decision_key(decision: Decision) -> Key | None:
    """Return (autoscaler, action, subject) of a decision, by which runs are compared; None if it is not compared.

    Compared are changes of a group's size, creations and deletions of groups, deletions of nodes, scales of workloads,
    and evictions and resizes by the VPA. Evictions by the Cluster Autoscaler are part of a deletion of nodes.
    """
    arguments: Mapping[str, Any] = decision.arguments
    match decision.action:
        case "IncreaseSize" | "DecreaseTargetSize" | "CreateGroup" | "DeleteGroup":
            about = str(arguments.get("group", ""))
        case "DeleteNodes":
            about = f"{arguments.get('group', '')}/{','.join(arguments.get('nodes', ()))}"
        case "PutScale":
            about = f"{arguments.get('resource', '')} {arguments.get('namespace', '')}/{arguments.get('name', '')}"
        case "Evict" | "Resize":
            if decision.by == "cluster-autoscaler":
                return None
            about = str(arguments.get("namespace", ""))
        case _:
            return None
    return decision.by, decision.action, about


def format_request(decision: Decision | None) -> str:
    """Return what a decision requested: a change of size (``+2``), a number of replicas, or the name of a pod.

    Empty for None, and for any other action.
    """
    if decision is None:
        return ""
    arguments = decision.arguments
    match decision.action:
        case "IncreaseSize" | "DecreaseTargetSize":
            return f"{int(arguments.get('delta', 0)):+d}"
        case "DeleteNodes":
            return f"-{len(arguments.get('nodes', ()))}"
        case "PutScale":
            return str(arguments.get("replicas", ""))
        case "Evict" | "Resize":
            return str(arguments.get("name", ""))
    return ""


class ProvisionerRun(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Results of the run with one provisioner.

    Attributes
    ----------
    provisioner : str
        ``cluster-autoscaler`` or ``karpenter``.
    node_hours : float
        Hours of all machines together.
    cost : float or None
        Price of these hours, in the currency of the prices. None: a group that had machines has no price.
    most_nodes : int
        Maximum number of nodes at the same time.
    pending_p50 : float
        50 % of the pods waited for a node for at most this many seconds.
    pending_p95 : float
        95 % of the pods waited for a node for at most this many seconds.
    pending_max : float
        Longest time that a pod waited for a node, in seconds.
    pending_at_end : int
        Number of pods that still waited at the end.
    evictions : int
        Number of pods that were evicted.
    over_provisioned : float
        Core-hours of nodes that no pod requested.
    added : int
        Number of machines that were requested.
    removed : int
        Number of machines that the provisioner deleted.
    groups : list of GroupUse
        Usage and cost of each group with machines.
    warnings : list of str
        Parts of the scenario that were not simulated, and why.
    """

    provisioner: str
    node_hours: float
    cost: float | None
    most_nodes: int
    pending_p50: float
    pending_p95: float
    pending_max: float
    pending_at_end: int
    evictions: int
    over_provisioned: float
    added: int
    removed: int
    groups: list[GroupUse]
    warnings: list[str] = []


class ProvisionerComparison(Record, frozen=True):
    """Results of one scenario with the Cluster Autoscaler and with Karpenter.

    Attributes
    ----------
    name : str
        Name of the scenario.
    begin : str
        Start of the simulated time (RFC 3339).
    seconds : float
        Length of the simulated time, in seconds.
    interrupted : bool
        Whether a run ended early.
    runs : list of ProvisionerRun
        Results with the Cluster Autoscaler, then with Karpenter.
    """

    KIND = "ProvisionerComparison"
    ROWS = "runs"

    name: str
    begin: str
    seconds: float
    interrupted: bool
    runs: list[ProvisionerRun]

    def summary(self) -> str:
        """Return one line with the node-hours of each run, and its cost if known."""
        return ", ".join(
            f"{run.provisioner}: {run.node_hours:,.1f} node-hours" + ("" if run.cost is None else f", ${run.cost:,.2f}")
            for run in self.runs
        )


@typed
def compare_provisioners(
    scenario: Scenario,
    *,
    source: str = "",
    folder: Path | str = ".",
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[ProvisionerComparison, list[Simulation]]:
    """Run a scenario once with the Cluster Autoscaler and once with Karpenter.

    Parameters
    ----------
    scenario : Scenario
        A scenario with ``controllers.karpenter``. Without ``groups``, the Cluster Autoscaler has one group for each
        offering of the NodePools.
    source, folder : str, optional
        The name of the file in errors, and the folder at which its relative names start.
    stop : callable, optional
        Polled; the runs end early if it returns True.
    progress : callable, optional
        Called with the name of each provisioner before its run.

    Returns
    -------
    ProvisionerComparison
        Totals of both runs.
    list of Simulation
        The runs, in the same order.

    Raises
    ------
    InputError
        If the scenario has no NodePools or cannot be built, or if the time of a run does not advance.
    """
    runs = []
    for name in (CLUSTER_AUTOSCALER, KARPENTER):
        progress(name)
        setup = build(replace(scenario, provisioner=name), source=source, folder=folder)
        runs.append(simulate(setup, stop=stop))
    reports = [run.report for run in runs]
    comparison = ProvisionerComparison(
        name=scenario.name,
        begin=reports[0].begin,
        seconds=min(report.seconds for report in reports),
        interrupted=any(report.interrupted for report in reports),
        runs=_summarize((CLUSTER_AUTOSCALER, KARPENTER), reports),
    )
    return comparison, runs


def _summarize(names: Sequence[str], reports: Sequence[SimulationReport]) -> list[ProvisionerRun]:
    """Build one record per run. ``names``: the provisioner of each run, in the order of ``reports``."""
    return [
        ProvisionerRun(
            provisioner=name,
            node_hours=report.node_hours,
            cost=report.cost,
            most_nodes=report.most_nodes,
            pending_p50=report.pending_pods.p50,
            pending_p95=report.pending_pods.p95,
            pending_max=report.pending_pods.max,
            pending_at_end=report.pending_pods.at_end,
            evictions=report.evictions,
            over_provisioned=report.cores.over_provisioned,
            added=sum(group.added for group in report.groups),
            removed=sum(group.removed for group in report.groups),
            groups=report.groups,
            warnings=report.warnings,
        )
        for name, report in zip(names, reports, strict=True)
    ]
