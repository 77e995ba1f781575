"""Runs of one scenario with different programs: their decisions, in pairs, and what the programs reported meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from kscale.ca.static_autoscaler.report import LoopReport
from kscale.drivers.cluster_autoscaler import ClusterAutoscaler
from kscale.drivers.vpa_updater import VpaUpdater
from kscale.effects import SECOND, Moment, from_text
from kscale.objects.autoscaling import HorizontalPodAutoscaler
from kscale.objects.durations import format_duration, parse_duration
from kscale.simulation.building import Setup, build
from kscale.simulation.decisions import Decision
from kscale.simulation.profile_flags import FlagChange, with_profiles
from kscale.simulation.running import Simulation, simulate
from kscale.simulation.scenario import Scenario
from kscale.vpa.updater import UpdaterResult

__all__ = ["SAME_TIME", "Key", "LoopFact", "Pair", "Ran", "ScalerStatus", "asked_for", "pair_decisions", "run_scenario"]

SAME_TIME = SECOND
"""Decisions less than this apart are of the same time: loops do not all begin at the same part of a second."""

Key = tuple[str, str, str]
"""The program, the action, and the object of a decision."""


class LoopFact(NamedTuple):
    """Report of one loop of a Cluster Autoscaler.

    ``trigger``: what started the loop; ``text``: how it ended; ``rule``: the rule of its release by which it ended or
    by which it deleted nothing (empty: none). ``unneeded``: the nodes that were unneeded when a loop looked last;
    ``reasons``: why other nodes were to stay.
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


class Ran(NamedTuple):
    """A run, and what its programs reported. ``statuses``: of HPAs, by the ``namespace/name`` of their targets."""

    run: Simulation
    loops: list[LoopFact]
    statuses: dict[str, list[ScalerStatus]]
    said: list[str]
    left_out: list[str]
    begin: Moment

    def loop_at(self, at: Moment) -> LoopFact | None:
        """Return the last loop of the Cluster Autoscaler up to a moment."""
        return next((loop for loop in reversed(self.loops) if loop.at <= at), None)

    def statuses_of(self, about: str) -> list[ScalerStatus]:
        """Return the statuses of the HPA whose target is ``RESOURCE NAMESPACE/NAME``, in order."""
        resource, _, target = about.partition(" ")
        return [each for each in self.statuses.get(target, ()) if resource.startswith(each.kind.lower()[:-1])]


def run_scenario(
    scenario: Scenario,
    profiles: Mapping[str, str],
    *,
    changes: Sequence[FlagChange] = (),
    until: Moment | None = None,
    source: str = "",
    folder: Path = Path(),
    stop: Callable[[], bool] = lambda: False,
) -> Ran:
    """Run a scenario with the profile of each program, at most ``until`` a moment.

    Raises InputError if the scenario cannot be built.
    """
    adapted, left_out = with_profiles(scenario, profiles, changes)
    if until is not None and until - from_text(scenario.begin) < parse_duration(scenario.horizon):
        adapted = replace(adapted, horizon=format_duration(until - from_text(scenario.begin)))
    setup = build(adapted, source=source, folder=folder)
    ran = _listen(setup)
    return Ran(simulate(setup, stop=stop), *ran, left_out, from_text(scenario.begin))


def _listen(setup: Setup) -> tuple[list[LoopFact], dict[str, list[ScalerStatus]], list[str]]:
    loops: list[LoopFact] = []
    statuses: dict[str, list[ScalerStatus]] = {}
    said: list[str] = []
    for driver in setup.drivers:
        if isinstance(driver, ClusterAutoscaler):
            started = setup.world.time.now

            def loop(now: Moment, trigger: str, report: LoopReport, begun: Moment = started) -> None:
                loops.append(_fact(now, trigger, report, begun, loops[-1] if loops else None))

            driver.heard = loop
        elif isinstance(driver, VpaUpdater):

            def told(result: UpdaterResult) -> None:
                said.extend(text for text in result.diagnostics if text not in said)

            driver.heard = told

    def scaled(changes: Sequence[tuple[str, Any, Any]]) -> None:
        for _, _, hpa in changes:
            if isinstance(hpa, HorizontalPodAutoscaler):
                _note_status(hpa, setup.world.time.now, statuses)

    setup.world.api.listen("HorizontalPodAutoscaler", scaled)
    return loops, statuses, said


def _note_status(hpa: HorizontalPodAutoscaler, now: Moment, statuses: dict[str, list[ScalerStatus]]) -> None:
    active = next((each for each in hpa.status.conditions or () if each.type == "ScalingActive"), None)
    if active is not None:
        target = f"{hpa.metadata.namespace}/{hpa.spec.scale_target_ref.name}"
        kind = hpa.spec.scale_target_ref.kind
        status = ScalerStatus(now, kind, active.status == "True", active.reason, active.message)
        statuses.setdefault(target, []).append(status)


def _fact(now: Moment, trigger: str, report: LoopReport, started: Moment, before: LoopFact | None) -> LoopFact:
    """Return what one loop reported; what a loop does not look at is as the loop before left it."""
    unneeded = frozenset[str]() if before is None else before.unneeded
    reasons: Mapping[str, str] = {} if before is None else before.reasons
    plan = report.scale_down
    if plan is not None:
        names = frozenset(item.name for item in plan.unneeded)
        unneeded = unneeded if names == unneeded else names
        current = {name: each.reason for name, each in plan.unremovable.items()}
        reasons = reasons if current == reasons else current
    text, rule = _ending(now, report, started)
    return LoopFact(now, trigger, text, rule, unneeded, reasons)


_ENDINGS = {
    "Some unregistered nodes were removed, skipping iteration": "unregistered-ends-loop",
    "Cluster is unhealthy": "health-formula",
    "Cluster has no nodes.": "empty-cluster",
    "Cluster has no ready nodes.": "empty-cluster",
    "No scale down in this iteration": "scale-up-ends-loop",
}
"""Why loops of release 1.3 end early, with the rule."""


def _ending(now: Moment, report: LoopReport, started: Moment) -> tuple[str, str]:
    """Return how a loop ended, and the rule of its release that ended it or kept it from deleting nodes."""
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
    """The same decision in two runs: the ``number``-th of its key. ``one``: of the first run, ``other``: of the second.

    ``first``: the moment at which either run decided it.
    """

    first: Moment
    key: Key
    number: int
    one: Decision | None
    other: Decision | None

    @property
    def name(self) -> tuple[Key, int]:
        """The key and the number, by which the pair is the same in every comparison."""
        return self.key, self.number

    @property
    def apart(self) -> int | None:
        """Nanoseconds between the decisions; None if one of the runs has no such decision."""
        if self.one is None or self.other is None:
            return None
        return abs(from_text(self.one.at) - from_text(self.other.at))

    @property
    def differs(self) -> bool:
        """Whether the runs differ in the decision: one has none, or another time, or another amount."""
        apart = self.apart
        return apart is None or apart >= SAME_TIME or asked_for(self.one) != asked_for(self.other)


def pair_decisions(old: Ran, new: Ran) -> list[Pair]:
    """Pair the decisions of two runs, in the order of the time at which either run decided them."""
    before, after = _by_key(old), _by_key(new)
    pairs = [
        Pair(min(from_text(each.at) for each in (one, other) if each is not None), key, number, one, other)
        for key in dict.fromkeys((*before, *after))
        for number, (one, other) in enumerate(zip_longest(before.get(key, ()), after.get(key, ())))
    ]
    return sorted(pairs, key=lambda pair: pair[:3])


def _by_key(ran: Ran) -> dict[Key, list[Decision]]:
    decisions: dict[Key, list[Decision]] = {}
    for entry in ran.run.decisions.entries:
        if entry.error is None:
            for each in _one_by_one(entry):
                if (key := _key(each)) is not None:
                    decisions.setdefault(key, []).append(each)
    for same in decisions.values():
        same.sort(key=lambda each: (from_text(each.at), asked_for(each)))
    return decisions


def _one_by_one(decision: Decision) -> Iterator[Decision]:
    """Yield the deletion of each machine on its own: one program asks for several in one call, the other one by one."""
    if decision.action != "DeleteNodes":
        yield decision
        return
    for node in decision.arguments.get("nodes", ()):
        yield replace(decision, arguments={**decision.arguments, "nodes": [node]})


def _key(decision: Decision) -> Key | None:
    """Return what a decision is about.

    None for a decision that is part of another one: the taints, cordons and evictions of a deletion.
    """
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
                return None
            about = str(of.get("namespace", ""))
        case _:
            return None
    return decision.by, decision.action, about


def asked_for(decision: Decision | None) -> str:
    """Return what a decision asked for: a change of size, a number of replicas, a pod."""
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
