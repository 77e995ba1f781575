"""The same scenario with the programs of 2018 to 2020 and with today's: what each decides, when, and by which rule.

The comparison is kscale's own; the rules name their sources in upstream's code. Where several programs have a profile,
each is also run as today's beside the others of then: only what differs in that run is a rule of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kscale.effects import SECOND, Moment, from_text
from kscale.records import Record
from kscale.simulation.compared_runs import Key, Pair, Ran, asked_for, pair_decisions, run_scenario
from kscale.simulation.decisions import Decision
from kscale.simulation.explaining import FOLLOWS, NOT_EXPLAINED, Cause, explain, words_of_both
from kscale.simulation.profile_flags import (
    CURRENT,
    LEGACY,
    PROGRAMS,
    FlagChange,
    flag_changes,
    legacy_profiles,
)
from kscale.simulation.release_rules import RULES, ReleaseRule
from kscale.simulation.scenario import Scenario

__all__ = ["ComparedDecision", "ComparedRun", "ProfileComparison", "compare_profiles"]


class ComparedRun(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """What a run with one profile came to.

    ``left_out``: flags of the scenario that the programs of the profile do not have (``clusterAutoscaler.NAME``), and
    values that they refuse (``clusterAutoscaler.NAME=VALUE``). ``profiles``: the profile of each program.
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
    profiles: dict[str, str] = {}


class ComparedDecision(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """One decision in both runs: the same action of the same autoscaler about the same thing, as often before.

    ``about``: the group (of a deletion with its node), the workload, or the namespace of the pods. ``legacy_at``,
    ``current_at``: seconds since the beginning, absent where that run has no such decision; ``legacy``, ``current``:
    what was asked for.

    ``rule``: why they differ (:class:`ReleaseRule`), empty where they are the same, less than a second apart;
    ``evidence``: what a program said that shows it, or what another run shows; ``also``: other rules without which the
    difference would not be gone. ``follows``: the number of an earlier decision that differs, counted from 1 (0: none).
    Of a decision that is ``not-explained`` the evidence is what both programs said.
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
    also: list[str] = []
    follows: int = 0


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
    them; the recommender and the admission controller are today's in both runs. A scenario that names another old
    profile of the HPA controller (``legacy-1.18``) gets it in the legacy run.

    Further runs look for the causes: where several programs differ, one with each of them as today's beside the others
    of then, and runs with single flags changed (:mod:`kscale.simulation.explaining`).

    Parameters
    ----------
    scenario : Scenario
        Flags and values that only one of the profiles has are left out of the other's run, and named in the result.
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
        If the scenario cannot be built, or names a profile that a program does not have.
    """
    legacy = legacy_profiles(scenario, source)
    current = dict.fromkeys(legacy, CURRENT)

    def run(
        label: str, profiles: Mapping[str, str], changes: Sequence[FlagChange] = (), until: Moment | None = None
    ) -> Ran:
        progress(label)
        return run_scenario(
            scenario, profiles, changes=changes, until=until, source=source, folder=Path(folder), stop=stop
        )

    old, new = run(LEGACY, legacy), run(CURRENT, current)
    pairs = pair_decisions(old, new)
    causes: dict[tuple[Key, int], Cause] = {}
    for name, program in PROGRAMS.items():
        if name not in legacy or not any(pair.differs and pair.key[0] == program for pair in pairs):
            continue
        alone = {**legacy, name: CURRENT}
        mixed = new if alone == current else run(f"{LEGACY}, with today's {program}", alone)
        explaining = _Reruns(run, legacy, alone, name, old, mixed)
        proven = explain(program, old, mixed, flag_changes(scenario, name), explaining)
        others = {key: cause for key, cause in proven.items() if key[0][0] != program and key not in causes}
        causes.update({key: cause for key, cause in proven.items() if key[0][0] == program} | others)
    decisions = _compared(pairs, old, new, causes, several=len(legacy) > 1)
    named = dict.fromkeys(rule for each in decisions if each.rule for rule in (each.rule, *each.also))
    return ProfileComparison(
        name=scenario.name,
        begin=scenario.begin,
        legacy=_summary(LEGACY, old, legacy),
        current=_summary(CURRENT, new, current),
        decisions=decisions,
        rules=[RULES[name] for name in named],
    )


class _Reruns:
    """Runs the two programs of a comparison again, with flags of one controller changed; each run once.

    A run up to some moment is not repeated if there is one that goes on for longer.
    """

    def __init__(
        self,
        run: Callable[[str, Mapping[str, str], Sequence[FlagChange], Moment | None], Ran],
        legacy: Mapping[str, str],
        alone: Mapping[str, str],
        name: str,
        old: Ran,
        mixed: Ran,
    ) -> None:
        self._run, self._name = run, name
        self._profiles = {LEGACY: legacy, CURRENT: alone}
        self._done: dict[tuple[str, frozenset[str], Moment | None], Ran] = {
            (LEGACY, frozenset(), None): old,
            (CURRENT, frozenset(), None): mixed,
        }

    def __call__(self, changes: Sequence[FlagChange], until: Moment | None) -> tuple[Ran, Ran]:
        return self._with(LEGACY, changes, until), self._with(CURRENT, changes, until)

    def _with(self, profile: str, changes: Sequence[FlagChange], until: Moment | None) -> Ran:
        own = [change for change in changes if change.profile == profile]
        flags = frozenset(change.flag for change in own)
        for end in (None, until):
            if (ran := self._done.get((profile, flags, end))) is not None:
                return ran
        label = f"{profile}, with {', '.join(f'--{change.flag}={change.value}' for change in own)}"
        ran = self._done[profile, flags, until] = self._run(label, self._profiles[profile], own, until)
        return ran


def _summary(profile: str, ran: Ran, profiles: Mapping[str, str]) -> ComparedRun:
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
        profiles={PROGRAMS[name]: each for name, each in profiles.items()},
    )


def _compared(
    pairs: Sequence[Pair], old: Ran, new: Ran, causes: Mapping[tuple[Key, int], Cause], *, several: bool
) -> list[ComparedDecision]:
    """Put the decisions side by side, each difference with its cause.

    A difference without a cause follows the first one before it; if there is none, it is not explained. ``several``:
    whether several programs differ, each of which also ran alone as today's.
    """
    decisions: list[ComparedDecision] = []
    rows = {pair.name: number for number, pair in enumerate(pairs, 1) if pair.differs}
    first = next((pair for pair in pairs if pair.differs), None)
    for pair in pairs:
        cause, follows = Cause("", ""), 0
        if pair.differs:
            assert first is not None
            has_earlier = first.first < pair.first
            cause = causes.get(pair.name, _UNPROVEN)
            if cause.rule == NOT_EXPLAINED and has_earlier:
                cause = cause._replace(rule=FOLLOWS)
            if cause.rule == FOLLOWS and not has_earlier:
                cause = Cause(NOT_EXPLAINED, words_of_both(pair, old, new))
            if cause.rule == FOLLOWS:
                follows = rows.get(cause.after, 0) if cause.after is not None else 0
                if not 0 < follows < rows[pair.name]:
                    follows = rows[first.name]
                if several and pair.name not in causes:
                    alone = f"beside the other programs of then, today's {pair.key[0]} decides this as then"
                    cause = cause._replace(evidence=alone)
        decisions.append(
            ComparedDecision(
                by=pair.key[0],
                action=pair.key[1],
                about=pair.key[2],
                legacy_at=_seconds(pair.one, old.begin),
                current_at=_seconds(pair.other, new.begin),
                legacy=asked_for(pair.one),
                current=asked_for(pair.other),
                rule=cause.rule,
                evidence=cause.evidence,
                also=list(cause.also),
                follows=follows,
            )
        )
    return decisions


_UNPROVEN: Final = Cause(FOLLOWS, "")


def _seconds(decision: Decision | None, begin: Moment) -> float | None:
    return None if decision is None else (from_text(decision.at) - begin) / SECOND
