"""The same scenario with the programs of 2018 to 2020 and with today's: what each decides, when, and by which rule.

The comparison is kscale's own; the rules name their sources in upstream's code. Where several programs have a profile,
each is also run as today's beside the others of then: only what differs in that run is a rule of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kscale.ca.options import LEGACY_FLAGS, LEGACY_ONLY
from kscale.ca.static_autoscaler.report import LoopReport
from kscale.drivers.cluster_autoscaler import ClusterAutoscaler
from kscale.drivers.vpa_updater import VpaUpdater
from kscale.effects import SECOND, Moment, from_text
from kscale.records import Record
from kscale.simulation.building import Setup, build
from kscale.simulation.decisions import Decision
from kscale.simulation.release_rules import RULES, ReleaseRule
from kscale.simulation.running import Simulation, simulate
from kscale.simulation.scenario import ControllerFlags, Scenario
from kscale.vpa.options import LEGACY_UPDATER_FLAGS
from kscale.vpa.updater import UpdaterResult

__all__ = ["ComparedDecision", "ComparedRun", "ProfileComparison", "compare_profiles"]

_LEGACY: Final = "legacy"
_CURRENT: Final = "current"
_PROFILED: Final = {
    "cluster_autoscaler": "cluster-autoscaler",
    "horizontal": "horizontal-pod-autoscaler",
    "vpa_updater": "vpa-updater",
}
"""The programs that have a profile, each with the name under which it decides."""
_SAME_TIME: Final = SECOND
"""Less than that apart, decisions are of the same time: loops do not all begin at the same part of a second."""
_UNREAD_BY_HPA: Final = frozenset({"concurrent-horizontal-pod-autoscaler-syncs"})


class ComparedRun(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """What a run with one profile came to.

    ``left_out``: flags of the scenario that the programs of the profile do not have (``clusterAutoscaler.NAME``).
    ``node_hours``: of all nodes; ``most_nodes``: at a time; ``actions``: how often what was asked for, by action.
    ``cost``: absent where a group has no price; ``pending_p95``, ``pending_max``: how long pods looked for a node, in
    seconds.
    """

    profile: str
    node_hours: float
    cost: float | None
    most_nodes: int
    pending_p95: float
    pending_max: float
    actions: dict[str, int]
    left_out: list[str] = []


class ComparedDecision(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """One decision in both runs: the same action of the same autoscaler about the same thing, as often before.

    ``about``: the group (of a deletion with its nodes), the workload, or the namespace of the pods. ``legacy_at``,
    ``current_at``: seconds since the beginning, absent where that run has no such decision; ``legacy``, ``current``:
    what was asked for. ``rule``: why they differ (:class:`ReleaseRule`), empty where they are the same, less than a
    second apart; ``evidence``: what a program said that shows it, or what another run shows.
    """

    by: str
    action: str
    about: str
    legacy_at: float | None = None
    current_at: float | None = None
    legacy: str = ""
    current: str = ""
    rule: str = ""
    evidence: str = ""


class ProfileComparison(Record, frozen=True):
    """The same scenario (``name``, from ``begin`` on) under the profile ``legacy`` and under today's.

    ``legacy``, ``current``: what each run came to. ``decisions``: what was decided, in the order of the time at which
    either run decided it; ``rules``: those that the decisions name.
    """

    KIND = "ProfileComparison"

    name: str
    begin: str
    legacy: ComparedRun
    current: ComparedRun
    decisions: list[ComparedDecision]
    rules: list[ReleaseRule]


class _Fact(NamedTuple):
    """What a program said of one loop."""

    at: Moment
    trigger: str
    text: str
    rule: str


class _Ran(NamedTuple):
    run: Simulation
    facts: list[_Fact]
    said: list[str]
    left_out: list[str]
    begin: Moment


def compare_profiles(
    scenario: Scenario,
    *,
    source: str = "",
    folder: Path | str = ".",
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[str], None] = lambda _: None,
) -> ProfileComparison:
    """Run a scenario with the programs of 2018 to 2020, and with today's, and compare what they decide.

    The profile is set for the Cluster Autoscaler, the HPA controller and the VPA's updater, as far as the scenario has
    them; the recommender and the admission controller are today's in both runs.

    Parameters
    ----------
    scenario : Scenario
        Flags that only one of the profiles has are left out of the other's run, and named in the result.
    source, folder : str, optional
        The name of the file in errors, and the folder that its names are relative to.
    stop : callable, optional
        Asked now and then whether to end early.
    progress : callable, optional
        Told which run begins.

    Returns
    -------
    ProfileComparison

    Raises
    ------
    InputError
        If the scenario cannot be built.
    """
    programs = [name for name in _PROFILED if getattr(scenario.controllers, name) is not None]

    def run(label: str, current: Sequence[str]) -> _Ran:
        progress(label)
        profiles = {name: _CURRENT if name in current else _LEGACY for name in programs}
        return _ran(scenario, profiles, source, Path(folder), stop)

    old, new = run(_LEGACY, []), run(_CURRENT, programs)
    pairs = _pairs(old, new)
    causes: dict[tuple[_Key, int], tuple[str, str]] | None = None
    if len(programs) > 1:
        causes = {}
        for name in programs:
            if any(pair.differs and pair.key[0] == _PROFILED[name] for pair in pairs):
                mixed = run(f"{_LEGACY}, with today's {_PROFILED[name]}", [name])
                causes.update(_causes(_PROFILED[name], old, mixed))
    decisions = _compared(pairs, old, new, causes)
    named = dict.fromkeys(each.rule for each in decisions if each.rule)
    return ProfileComparison(
        name=scenario.name,
        begin=scenario.begin,
        legacy=_summary(_LEGACY, old),
        current=_summary(_CURRENT, new),
        decisions=decisions,
        rules=[RULES[name] for name in named],
    )


def _ran(scenario: Scenario, profiles: Mapping[str, str], source: str, folder: Path, stop: Callable[[], bool]) -> _Ran:
    adapted, left_out = _with_profiles(scenario, profiles)
    setup = build(adapted, source=source, folder=folder)
    facts: list[_Fact] = []
    said: list[str] = []
    _listen(setup, facts, said)
    return _Ran(simulate(setup, stop=stop), facts, said, left_out, from_text(scenario.begin))


def _with_profiles(scenario: Scenario, profiles: Mapping[str, str]) -> tuple[Scenario, list[str]]:
    """Return the scenario with the profile of each program, and the flags that were left out."""
    controllers, left_out = scenario.controllers, []
    for name, profile in profiles.items():
        given: ControllerFlags = getattr(controllers, name)
        flags = {flag: value for flag, value in given.flags.items() if flag != "profile"}
        first, *others = name.split("_")
        shown = first + "".join(map(str.capitalize, others))
        for flag in [flag for flag in flags if not _has(name, profile, flag)]:
            del flags[flag]
            left_out.append(f"{shown}.{flag}")
        controllers = replace(controllers, **{name: ControllerFlags(flags={**flags, "profile": profile})})
    return replace(scenario, controllers=controllers), left_out


def _has(controller: str, profile: str, flag: str) -> bool:
    field = flag.replace("-", "_")
    if controller == "cluster_autoscaler":
        return field in LEGACY_FLAGS if profile == _LEGACY else field not in LEGACY_ONLY
    if profile == _CURRENT:
        return True
    return field in LEGACY_UPDATER_FLAGS if controller == "vpa_updater" else flag not in _UNREAD_BY_HPA


def _listen(setup: Setup, facts: list[_Fact], said: list[str]) -> None:
    for driver in setup.drivers:
        if isinstance(driver, ClusterAutoscaler):
            started = setup.world.time.now

            def loop(now: Moment, trigger: str, report: LoopReport, begun: Moment = started) -> None:
                facts.append(_fact(now, trigger, report, begun))

            driver.heard = loop
        elif isinstance(driver, VpaUpdater):

            def told(result: UpdaterResult) -> None:
                said.extend(text for text in result.diagnostics if text not in said)

            driver.heard = told


def _fact(now: Moment, trigger: str, report: LoopReport, started: Moment) -> _Fact:
    """What one loop said, and the rule of its release that kept it from deleting nodes."""
    up, memory = report.scale_up, report.state.scale_down
    if report.ended.startswith("Some unregistered nodes"):
        return _Fact(now, trigger, report.ended, "unregistered-ends-loop")
    if report.ended == "Cluster is unhealthy":
        return _Fact(now, trigger, report.ended, "health-formula")
    if report.ended:
        return _Fact(now, trigger, report.ended, "scale-up-ends-loop")
    result = report.scale_down_result
    if result == "ScaleDownInProgress":
        return _Fact(now, trigger, result, "one-drain")
    if result != "ScaleDownInCooldown":
        return _Fact(now, trigger, result, "")
    if up is not None and up.scale_down_disabled and up.lists.on_existing:
        return _Fact(now, trigger, f"{result}: schedulable pods are present", "schedulable-pods")
    if memory.last_scale_up is not None and memory.last_scale_up <= started:
        return _Fact(now, trigger, f"{result}: since the process started", "start-cooldown")
    if memory.last_scale_down is not None and now - memory.last_scale_down <= 10 * SECOND:
        return _Fact(now, trigger, f"{result}: after a deletion", "delete-after-delete")
    return _Fact(now, trigger, result, "")


def _summary(profile: str, ran: _Ran) -> ComparedRun:
    report = ran.run.report
    return ComparedRun(
        profile=profile,
        node_hours=report.node_hours,
        cost=report.cost,
        most_nodes=report.most_nodes,
        pending_p95=report.pending.p95,
        pending_max=report.pending.max,
        actions=report.actions,
        left_out=ran.left_out,
    )


# -- decisions side by side -------------------------------------------------------------------------------------------

_Key = tuple[str, str, str]


class _Pair(NamedTuple):
    """The same decision in two runs: the ``number``-th of its key."""

    first: Moment
    key: _Key
    number: int
    one: Decision | None
    other: Decision | None

    @property
    def differs(self) -> bool:
        if self.one is None or self.other is None:
            return True
        apart = abs(from_text(self.one.at) - from_text(self.other.at))
        return apart >= _SAME_TIME or _what(self.one) != _what(self.other)


_Causes = Mapping[tuple[_Key, int], tuple[str, str]]
"""By key and number: the rule by which a program decides otherwise beside the same other programs, and its evidence."""


def _by_key(ran: _Ran) -> dict[_Key, list[Decision]]:
    found: dict[_Key, list[Decision]] = {}
    for each in ran.run.decisions.entries:
        if each.error is None and (key := _key(each)) is not None:
            found.setdefault(key, []).append(each)
    for decisions in found.values():
        decisions.sort(key=lambda each: (from_text(each.at), _what(each)))
    return found


def _key(decision: Decision) -> _Key | None:
    """Return what a decision is about; None for a write that only prepares or marks one (but for the first mark)."""
    of: Mapping[str, Any] = decision.arguments
    match decision.action:
        case "IncreaseSize" | "DecreaseTargetSize" | "CreateGroup" | "DeleteGroup":
            about = str(of.get("group", ""))
        case "DeleteNodes":
            about = f"{of.get('group', '')}/{','.join(of.get('nodes', ()))}"
        case "PutScale":
            about = f"{of.get('resource', '')} {of.get('namespace', '')}/{of.get('name', '')}"
        case "Evict" | "Resize":
            if decision.by == "cluster-autoscaler":
                return None  # part of a deletion
            about = str(of.get("namespace", ""))
        case _:
            return None
    return decision.by, decision.action, about


def _what(decision: Decision | None) -> str:
    if decision is None:
        return ""
    of = decision.arguments
    match decision.action:
        case "IncreaseSize" | "DecreaseTargetSize":
            return f"{int(of.get('delta', 0)):+d}"
        case "DeleteNodes":
            return f"-{len(of.get('nodes', ()))}"
        case "PutScale":
            return str(of.get("replicas", ""))
        case "Evict" | "Resize":
            return str(of.get("name", ""))
    return ""


def _pairs(old: _Ran, new: _Ran) -> list[_Pair]:
    """Pair the decisions of two runs, in the order of the time at which either run decided them."""
    before, after = _by_key(old), _by_key(new)
    pairs = [
        _Pair(min(from_text(each.at) for each in (one, other) if each is not None), key, number, one, other)
        for key in dict.fromkeys((*before, *after))
        for number, (one, other) in enumerate(zip_longest(before.get(key, ()), after.get(key, ())))
    ]
    return sorted(pairs, key=lambda pair: pair[:3])


def _causes(by: str, old: _Ran, mixed: _Ran) -> _Causes:
    """Return why one program decides otherwise as today's, beside the others of then.

    What does not differ in that run differs only because of what the other programs do.
    """
    pairs = _pairs(old, mixed)
    return {
        (pair.key, pair.number): (each.rule, each.evidence)
        for pair, each in zip(pairs, _compared(pairs, old, mixed), strict=True)
        if each.rule and each.by == by
    }


def _compared(pairs: Sequence[_Pair], old: _Ran, new: _Ran, causes: _Causes | None = None) -> list[ComparedDecision]:
    """Explain each pair. ``causes``: of programs that also ran alone as today's; None where only one differs."""
    decisions: list[ComparedDecision] = []
    for pair in pairs:
        rule = evidence = ""
        if pair.differs and causes is None:
            rule, evidence = _why(pair.key, pair.one, pair.other, old, new, decisions)
        elif pair.differs and causes is not None:
            alone = f"beside the other programs of then, today's {pair.key[0]} decides this as then"
            rule, evidence = causes.get((pair.key, pair.number), ("follows", alone))
        decisions.append(
            ComparedDecision(
                by=pair.key[0],
                action=pair.key[1],
                about=pair.key[2],
                legacy_at=_seconds(pair.one, old.begin),
                current_at=_seconds(pair.other, new.begin),
                legacy=_what(pair.one),
                current=_what(pair.other),
                rule=rule,
                evidence=evidence,
            )
        )
    return decisions


def _seconds(decision: Decision | None, begin: Moment) -> float | None:
    return None if decision is None else (from_text(decision.at) - begin) / SECOND


def _why(
    key: _Key,
    one: Decision | None,
    other: Decision | None,
    old: _Ran,
    new: _Ran,
    before: Sequence[ComparedDecision],
) -> tuple[str, str]:
    """Return the rule by which a decision differs, and what shows it."""
    by, action, _ = key
    if by == "vpa-updater":
        if action == "Resize":
            return "in-place", ""
        silent = next((text for text in new.said if text.startswith(("Error getting Adm", "Admission"))), "")
        return ("admission-status", silent) if other is None and silent else _follows(before)
    if by != "cluster-autoscaler":
        return _why_rescaled(one, other, before)
    if action == "DeleteNodes":
        return _why_deleted(one, other, old, before)
    if _differs(before):
        return _follows(before)
    if one is None or other is None:
        return ("expander", "") if action == "IncreaseSize" else ("loop-start", "")
    if _what(one) != _what(other):
        return "estimator", ""
    return "loop-start", _trigger(other, new)


def _why_rescaled(one: Decision | None, other: Decision | None, before: Sequence[ComparedDecision]) -> tuple[str, str]:
    if one is not None and other is not None:
        if one.at == other.at:
            return "replica-calculator", ""  # of the same round
        if _what(one) == _what(other) and not _differs(before):
            return "first-period", ""
    return _follows(before) if _differs(before) else ("replica-calculator", "")


def _why_deleted(
    one: Decision | None, other: Decision | None, old: _Ran, before: Sequence[ComparedDecision]
) -> tuple[str, str]:
    if other is not None and (one is None or from_text(other.at) < from_text(one.at)):
        # What the old program said while today's deleted: why it did not.
        at = from_text(other.at)
        last = next((fact for fact in reversed(old.facts) if fact.at <= at), None)
        if last is not None and last.rule:
            return last.rule, last.text
    elif one is not None and other is not None and from_text(other.at) - from_text(one.at) <= 6 * SECOND:
        return "delete-delay", ""
    return _follows(before)


def _trigger(decision: Decision, ran: _Ran) -> str:
    """Return why the last loop up to a decision started that no timer started; empty if there was none."""
    at = from_text(decision.at)
    started = (fact.trigger for fact in reversed(ran.facts) if fact.at <= at)
    return next((trigger for trigger in started if trigger and not trigger.endswith("timer")), "")


def _differs(before: Sequence[ComparedDecision]) -> bool:
    return any(each.rule for each in before)


def _follows(before: Sequence[ComparedDecision]) -> tuple[str, str]:
    first = next((each for each in before if each.rule), None)
    return "follows", "" if first is None else f"the first difference: {first.rule}"
