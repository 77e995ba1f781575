"""Compares the autoscalers of 2018 to 2020 with today's in one scenario, decision by decision, with the rule behind
each difference.

Three kinds of evidence are searched, in this order:

1. What a program reported about the loop in which it did not decide as the other program did.
2. A check of the facts of both runs, such as the times of the taints before a deletion.
3. A run in which one program gets a flag with which it decides like the other (:class:`FlagChange`). If the first
   difference disappears in the run with all relevant flags, flags are removed one by one, until only the necessary
   ones are left. The search then continues in that run, with the first difference that remains.

The comparison is not in upstream; the rules name their sources in upstream's code. If several programs have a profile,
each is also run as today's version beside the old versions of the others: only differences in that run get their own
rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kscale.effects import SECOND, Moment, from_text
from kscale.objects.argument_types import typed
from kscale.records import Record
from kscale.simulation.compared_runs import (
    CURRENT,
    LEGACY,
    PROGRAMS,
    SAME_TIME,
    FinishedRun,
    FlagChange,
    Key,
    Pair,
    ScalerStatus,
    flag_changes,
    format_request,
    legacy_profiles,
    pair_decisions,
    run_scenario,
)
from kscale.simulation.records import Decision
from kscale.simulation.scenario import Scenario

__all__ = [
    "FOLLOWS",
    "NOT_EXPLAINED",
    "RULES",
    "Cause",
    "ComparedDecision",
    "ComparedRun",
    "ProfileComparison",
    "ReleaseRule",
    "compare_profiles",
    "explain",
    "format_messages_of_both",
]


class ReleaseRule(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A rule that changed between the releases.

    Attributes
    ----------
    id : str
        Name of the rule.
    legacy : str
        What a program did in the old release.
    current : str
        What it does today.
    legacy_source : str
        Upstream's file and function with the rule in the old release.
    current_source : str
        Upstream's file and function with the rule today.
    """

    id: str
    legacy: str
    current: str
    legacy_source: str
    current_source: str


_OLD_LOOP: Final = "cluster-autoscaler 1.3: core/static_autoscaler.go RunOnce"
_NEW_LOOP: Final = "core/static_autoscaler.go RunOnce"


def _rule(name: str, legacy: str, current: str, legacy_source: str, current_source: str) -> ReleaseRule:
    """Build the rule ``name``: its text in the old release and in today's, and the source file of each."""
    return ReleaseRule(
        id=name, legacy=legacy, current=current, legacy_source=legacy_source, current_source=current_source
    )


RULES: Final = {
    rule.id: rule
    for rule in (
        _rule(
            "loop-start",
            "a loop starts one scan interval after the end of the last",
            "a loop starts as well when a pod becomes unschedulable, and at once after a loop that did something",
            "cluster-autoscaler 1.3: main.go run (time.After)",
            "loop/trigger.go LoopTrigger.Wait",
        ),
        _rule(
            "start-cooldown",
            "the cooldowns of scale-down begin when the process starts",
            "a process starts as if everything had happened an hour ago",
            "cluster-autoscaler 1.3: core/static_autoscaler.go NewStaticAutoscaler",
            "core/static_autoscaler.go NewStaticAutoscaler (initialScaleTime)",
        ),
        _rule(
            "scale-up-ends-loop",
            "a scale-up ends the loop: unneeded nodes are not looked at",
            "the loop goes on to its scale-down, in which the cooldown holds nodes back",
            _OLD_LOOP,
            _NEW_LOOP,
        ),
        _rule(
            "schedulable-pods",
            "a pending pod that fits a node forbids scale-down in this loop",
            "such pods are placed in the simulation, and scale-down goes on without the room they take",
            f"{_OLD_LOOP} (scaleDownForbidden)",
            "core/podlistprocessor/filter_out_schedulable.go",
        ),
        _rule(
            "delete-after-delete",
            "after empty nodes were deleted, scale-down waits for ten seconds (--scale-down-delay-after-delete)",
            "it does not wait",
            "cluster-autoscaler 1.3: main.go scaleDownDelayAfterDelete",
            "config/flags/flags.go scale-down-delay-after-delete",
        ),
        _rule(
            "one-drain",
            "one node is drained at a time, and no other node is deleted meanwhile",
            "empty nodes and nodes with pods are deleted side by side, within budgets",
            "cluster-autoscaler 1.3: core/scale_down.go TryToScaleDown",
            "core/scaledown/actuation/actuator.go StartDeletion",
        ),
        _rule(
            "delete-delay",
            "a node is deleted right after it was tainted",
            "a node is deleted five seconds after it was tainted (--node-delete-delay-after-taint)",
            "cluster-autoscaler 1.3: core/scale_down.go scheduleDeleteEmptyNodes",
            "core/scaledown/actuation/actuator.go deleteAsyncEmpty",
        ),
        _rule(
            "candidate-taints",
            "unneeded nodes carry no mark",
            "unneeded nodes carry a soft taint, DeletionCandidateOfClusterAutoscaler",
            _OLD_LOOP,
            "core/scaledown/actuation/softtaint.go UpdateSoftDeletionTaints",
        ),
        _rule(
            "unregistered-ends-loop",
            "machines that did not register are removed one by one, and their removal ends the loop",
            "they are removed group by group, and the loop goes on",
            "cluster-autoscaler 1.3: core/utils.go removeOldUnregisteredNodes",
            "core/static_autoscaler.go removeOldUnregisteredNodes",
        ),
        _rule(
            "health-formula",
            "machines that should long have registered count as unready",
            "only nodes that are unready count",
            "cluster-autoscaler 1.3: clusterstate/clusterstate.go IsClusterHealthy",
            "clusterstate/clusterstate.go IsClusterHealthy",
        ),
        _rule(
            "expander",
            "a random option by default (--expander=random)",
            "the option that wastes least by default (--expander=least-waste)",
            "cluster-autoscaler 1.3: main.go expanderFlag",
            "config/flags/flags.go expander",
        ),
        _rule(
            "estimator",
            "--estimator=basic sums requests; binpacking packs each pod first fit, nodes that are coming counted first",
            "binpacking alone: like pods are packed together, within limits of nodes and time",
            "cluster-autoscaler 1.3: estimator/basic_estimator.go, estimator/binpacking_estimator.go",
            "estimator/binpacking_estimator.go",
        ),
        _rule(
            "first-period",
            "a new HPA waits for one sync period",
            "a new HPA is reconciled at once",
            "kubernetes 1.20: pkg/controller/podautoscaler/horizontal.go enqueueHPA (AddRateLimited)",
            "pkg/controller/podautoscaler/horizontal.go enqueueHPA",
        ),
        _rule(
            "replica-calculator",
            "one tolerance by its distance from 1; missing pods at 100 % of their request; averages take any count",
            "a tolerance by direction; missing pods at their target where it is more; counts are checked",
            "kubernetes 1.20: pkg/controller/podautoscaler/replica_calculator.go",
            "pkg/controller/podautoscaler/replica_calculator.go",
        ),
        _rule(
            "admission-status",
            "pods are evicted whether the admission controller lives or not",
            "nothing is evicted unless the lease of the admission controller is fresh",
            "vertical-pod-autoscaler of 2020: pkg/updater/logic/updater.go RunOnce",
            "pkg/updater/logic/updater.go RunOnce (statusValidator)",
        ),
        _rule(
            "in-place",
            "pods are evicted in the modes Recreate and Auto; other modes are left alone",
            "pods are resized in place in the modes InPlaceOrRecreate and InPlace",
            "vertical-pod-autoscaler of 2020: pkg/updater/logic/updater.go RunOnce",
            "pkg/updater/logic/updater.go RunOnce",
        ),
        _rule(
            "empty-cluster",
            "a cluster without nodes, or without ready nodes, ends the loop: no group grows",
            "groups grow from such a cluster, too (--scale-up-from-zero=true)",
            "cluster-autoscaler 1.3: core/static_autoscaler.go RunOnce (actOnEmptyCluster)",
            "processors/actionablecluster/actionable_cluster_processor.go ShouldAbort",
        ),
        _rule(
            "expendable-cutoff",
            "pods of a priority below 0 get no nodes and keep none (--expendable-pods-priority-cutoff=0)",
            "only pods of a priority below -10 do not count (--expendable-pods-priority-cutoff=-10)",
            "cluster-autoscaler 1.3: main.go expendablePodsPriorityCutoff",
            "config/flags/flags.go expendable-pods-priority-cutoff",
        ),
        _rule(
            "utilization-threshold",
            "a node is underutilized below --scale-down-utilization-threshold",
            "a node is underutilized at the threshold, too",
            "cluster-autoscaler 1.3: core/scale_down.go UpdateUnneededNodes",
            "core/scaledown/eligibility/eligibility.go",
        ),
        _rule(
            "daemonset-eviction",
            "pods of DaemonSets are not evicted from a node that is drained",
            "they are evicted last (--daemonset-eviction-for-occupied-nodes=true)",
            "cluster-autoscaler 1.3: utils/drain/drain.go GetPodsForDeletionOnNodeDrain",
            "core/scaledown/actuation/drain.go DrainNode",
        ),
        _rule(
            "ambiguous-selector",
            "HPAs whose targets select the same pods all scale, each by all of the pods",
            "none of them scales (AmbiguousSelector)",
            "kubernetes 1.20: pkg/controller/podautoscaler/horizontal.go computeReplicasForMetrics",
            "pkg/controller/podautoscaler/horizontal.go validateAndParseSelector",
        ),
        _rule(
            "follows",
            "the cluster is another by then",
            "the cluster is another by then",
            "an earlier difference in this list",
            "an earlier difference in this list",
        ),
        _rule(
            "not-explained",
            "no report, no check and no run with a changed flag shows why",
            "no report, no check and no run with a changed flag shows why",
            "what both programs said is beside the row",
            "what both programs said is beside the row",
        ),
    )
}
"""The rules by their ids."""


FOLLOWS: Final = "follows"
NOT_EXPLAINED: Final = "not-explained"
_DELETE_DELAY: Final = (4 * SECOND, 6 * SECOND)
"""Between the taint and the deletion of an empty node today (``--node-delete-delay-after-taint``), with the latency."""
_BEFORE_SCALE_UP: Final = frozenset({"unregistered-ends-loop", "health-formula", "empty-cluster"})
"""Rules that end a loop of release 1.3 before its scale-up."""


class Cause(NamedTuple):
    """Why a decision differs between two runs: the id of a rule in :data:`RULES`, and the evidence as a text.

    ``also``: ids of further rules that must be disabled too, so that the difference disappears. ``after``: the earlier
    decision whose difference causes this one; None if there is none.
    """

    rule: str
    evidence: str
    also: tuple[str, ...] = ()
    after: tuple[Key, int] | None = None


Causes = dict[tuple[Key, int], Cause]
Rerun = Callable[[Sequence[FlagChange], Moment | None], tuple[FinishedRun, FinishedRun]]
"""Runs both programs again, with changed flags; at least up to a moment (None: to the end)."""


def explain(program: str, old: FinishedRun, new: FinishedRun, changes: Sequence[FlagChange], rerun: Rerun) -> Causes:
    """Return the proven causes of the differences between two runs, by (key, number) of the decision.

    Parameters
    ----------
    program : str
        The only program that differs between the runs, by the name under which it decides.
    old, new : FinishedRun
        The run of the old program and the run of today's.
    changes : sequence of FlagChange
        Flags by which one program can be made to decide like the other.
    rerun : callable
        Called with flags and a moment (None: the end); runs both programs with these flags, at least up to the moment.
        Each call is one or two simulations, most of them only up to the difference in question.

    Returns
    -------
    dict
        By (key, number) of the decision. The cause may be that the decision follows from an earlier difference.
        Differences without a proven cause are absent, with one exception: if the first difference of the two runs is a
        decision of ``program``, its entry then has the messages of both programs.
    """
    causes: Causes = {}
    accepted: list[FlagChange] = []
    runs = old, new
    original = {pair.name for pair in pair_decisions(old, new) if pair.differs}
    while differing := [pair for pair in pair_decisions(*runs) if pair.differs]:
        for pair in differing:
            if pair.key[0] == program and pair.name in original and pair.name not in causes:
                earlier = any(other_pair.first + SAME_TIME <= pair.first for other_pair in differing)
                cause = _explain_by_reports(pair, *runs, earlier=earlier)
                if cause is not None:
                    causes[pair.name] = _qualify_cause(cause, accepted)
        first = differing[0]
        if first.name in causes:
            break
        needed = _needed_changes(first, changes, accepted, rerun)
        if not needed:
            if not accepted and first.key[0] == program:
                causes[first.name] = Cause(NOT_EXPLAINED, format_messages_of_both(first, old, new))
            break
        accepted += needed
        cause = _explain_by_flags(first, needed, runs[1])
        runs = rerun(accepted, None)
        remaining = {pair.name for pair in pair_decisions(*runs) if pair.differs}
        for pair in differing:
            if pair.name in original and pair.name not in causes and pair.name not in remaining:
                together = pair.key[0] == program and pair.first - first.first < SAME_TIME
                text = "the same change of flags takes this difference away as well"
                causes[pair.name] = cause if together else Cause(FOLLOWS, text, after=first.name)
    return causes


def _qualify_cause(cause: Cause, accepted: Sequence[FlagChange]) -> Cause:
    """Add the ``accepted`` flag changes, despite which the difference remains, to the evidence of its cause."""
    if not accepted:
        return cause
    return cause._replace(evidence=f"{cause.evidence} (beside {' and '.join(change.text for change in accepted)})")


# -- flags -----------------------------------------------------------------------------------------------------------


def _needed_changes(
    first: Pair, changes: Sequence[FlagChange], accepted: Sequence[FlagChange], rerun: Rerun
) -> list[FlagChange]:
    """Return a minimal set of flag changes with which the difference ``first`` disappears, most important first.

    Empty if the difference remains with all ``changes``, or if none of those that are not yet ``accepted`` (as they
    remove earlier differences) can affect this kind of decision. ``rerun``: as for :func:`explain`.
    """
    action = first.key[1]
    candidates = [item for item in changes if item not in accepted and (not item.actions or action in item.actions)]
    until = max(from_text(item.at) for item in (first.old, first.new) if item is not None) + 2 * SAME_TIME
    if not candidates or not _check_agreement(first, rerun([*accepted, *candidates], until))[0]:
        return []
    needed, remains = candidates, {}
    for change in candidates:
        others = [item for item in needed if item is not change]
        disappeared, distance = (
            _check_agreement(first, rerun([*accepted, *others], until)) if others else (False, first.delay)
        )
        if disappeared:
            needed = others
        else:
            remains[change.rule] = float("inf") if distance is None else float(distance)
    return sorted(needed, key=lambda change: -remains[change.rule])


def _check_agreement(first: Pair, runs: tuple[FinishedRun, FinishedRun]) -> tuple[bool, int | None]:
    """Check whether two runs agree in the decision ``first`` and in all earlier decisions.

    Returns (whether they agree, nanoseconds between the two times of the decision; None if only one run has it, 0 if
    none has).
    """
    pairs = pair_decisions(*runs)
    same = next((pair for pair in pairs if pair.name == first.name), None)
    earlier = any(pair.differs and pair.first < first.first for pair in pairs)
    if same is None:
        return not earlier, 0
    return not same.differs and not earlier, same.delay


def _explain_by_flags(pair: Pair, needed: Sequence[FlagChange], new: FinishedRun) -> Cause:
    """Return the cause of a difference that disappears with the changes ``needed``. ``new``: the run of today's."""
    rule, *also = (change.rule for change in needed)
    texts = [change.text for change in needed]
    if len(needed) > 1:
        evidence = f"both decide this alike: {'; '.join(texts)}"
    elif rule == "loop-start" and pair.new is not None and (trigger := _find_trigger(pair.new, new)):
        evidence = trigger
    else:
        evidence = f"{texts[0]} decides this as {'then' if needed[0].profile == CURRENT else 'today'}"
    return Cause(rule, evidence, tuple(also))


def _find_trigger(decision: Decision, ran: FinishedRun) -> str:
    """Return what triggered the last loop, up to the decision, that was not started by a timer; empty if none was."""
    moment = from_text(decision.at)
    started = (loop.trigger for loop in reversed(ran.loops) if loop.at <= moment)
    return next((trigger for trigger in started if trigger and not trigger.endswith("timer")), "")


# -- reports and checks ----------------------------------------------------------------------------------------------


def _explain_by_reports(pair: Pair, old: FinishedRun, new: FinishedRun, *, earlier: bool) -> Cause | None:
    """Return the cause that statuses, logs and loop reports of the two programs prove; None if they prove none.

    ``earlier``: whether the runs also differ before this decision.
    """
    by, action, _ = pair.key
    if by == "vpa-updater":
        return _explain_update(pair, new)
    if by == "horizontal-pod-autoscaler":
        return _explain_rescale(pair, old, new, earlier=earlier)
    if action == "DeleteNodes":
        return _explain_deletion(pair, old, new)
    if action == "IncreaseSize" and pair.new is not None and _is_sooner(pair.new, pair.old):
        loop = old.loop_at(from_text(pair.new.at))
        if loop is not None and loop.rule in _BEFORE_SCALE_UP:
            return Cause(loop.rule, loop.text)
    return None


def _is_sooner(decision: Decision, other: Decision | None) -> bool:
    """Check whether a decision is earlier than ``other``; True if ``other`` is None."""
    return other is None or from_text(decision.at) < from_text(other.at)


def _explain_update(pair: Pair, new: FinishedRun) -> Cause | None:
    """Return why only one of the two VPA updaters evicts or resizes a pod; None if nothing proves a cause.

    Causes: only today's updater resizes pods in place, or today's updater logged that the admission controller is down.
    """
    if pair.key[1] == "Resize" and pair.old is None:
        return Cause("in-place", "the updater of 2020 resizes no pod")
    silent = next((text for text in new.said if text.startswith(("Error getting Adm", "Admission"))), "")
    return Cause("admission-status", silent) if pair.new is None and silent else None


def _explain_rescale(pair: Pair, old: FinishedRun, new: FinishedRun, *, earlier: bool) -> Cause | None:
    """Return why the two HPA controllers set different replicas, or set them at different times.

    The evidence is the HPA's statuses (conditions) in both runs. ``earlier``: whether the runs also differ before.

    - ``ambiguous-selector``: only the old controller scales, and today's reports AmbiguousSelector.
    - ``first-period``: both set the same replicas in their first round, and the old controller's first round is later.
    - ``replica-calculator``: nothing differs earlier, so that pods and metrics are the same, and both controllers
      reported ScalingActive. Only the calculation can then differ.

    None if none of these is proven.
    """
    before, after = old.statuses_of(pair.key[2]), new.statuses_of(pair.key[2])
    end = pair.first + SAME_TIME - 1
    then, today = _find_last_status(before, end), _find_last_status(after, end)
    if today is not None and today.reason == "AmbiguousSelector" and pair.old is not None:
        return Cause("ambiguous-selector", today.message)
    if pair.old is not None and pair.new is not None and format_request(pair.old) == format_request(pair.new):
        moment, later = from_text(pair.new.at), from_text(pair.old.at)
        if later - moment >= SAME_TIME and after and before and after[0].at >= moment and before[0].at >= later:
            return Cause("first-period", "in both runs this is decided in the first round of the HPA")
    if earlier or then is None or today is None or not (then.active and today.active):
        return None
    sizes = (_format_size_at(decision, end) for decision in (pair.old, pair.new))
    return Cause("replica-calculator", "of the same pods and metrics: then {}, today {}".format(*sizes))


def _find_last_status(statuses: Sequence[ScalerStatus], at: Moment) -> ScalerStatus | None:
    """Return the last status up to a moment; None if there is none."""
    return next((status for status in reversed(statuses) if status.at <= at), None)


def _format_size_at(decision: Decision | None, end: Moment) -> str:
    """Return the replicas that a decision requested; ``no other size`` if there is no decision up to ``end``."""
    return "no other size" if decision is None or from_text(decision.at) > end else format_request(decision)


def _explain_deletion(pair: Pair, old: FinishedRun, new: FinishedRun) -> Cause | None:
    """Return why the two Cluster Autoscalers delete a node at different times; None if nothing proves a cause.

    - Release 1.3 is later, or does not delete the node: the rule that ended its loop at the time of today's deletion.
      This counts only if the node was unneeded in that loop.
    - Today's program is later: both tainted the node at the same time, and today's waits some seconds after the taint.
    """
    then, today = pair.old, pair.new
    if today is not None and _is_sooner(today, then):
        loop = old.loop_at(from_text(today.at))
        if loop is not None and loop.rule and _get_deleted_node(today) in loop.unneeded:
            return Cause(loop.rule, loop.text)
    elif then is not None and today is not None:
        tainted, tainted_today = _find_taint_time(then, old), _find_taint_time(today, new)
        if tainted is None or tainted_today is None or abs(tainted - tainted_today) >= SAME_TIME:
            return None
        if from_text(then.at) - tainted < SAME_TIME and _is_delayed(from_text(today.at) - tainted_today):
            seconds = (from_text(today.at) - tainted_today) / SECOND
            return Cause(
                "delete-delay", f"both taint the node at the same time; today deletes it {seconds:.0f} s later"
            )
    return None


def _is_delayed(nanoseconds: int) -> bool:
    """Check whether a duration (nanoseconds) is 4 to 6 s, which is about today's delay between taint and deletion."""
    minimum, maximum = _DELETE_DELAY
    return minimum <= nanoseconds <= maximum


def _get_deleted_node(decision: Decision) -> str:
    """Return the name of the node that a decision deletes."""
    return str(decision.arguments["nodes"][0])


def _find_taint_time(decision: Decision, ran: FinishedRun) -> Moment | None:
    """Return when the node that a decision deletes was tainted for deletion; None if it was not tainted."""
    moment, node = from_text(decision.at), _get_deleted_node(decision)
    for entry in reversed(ran.run.decisions.entries):
        args = entry.arguments
        if entry.action != "Patch" or args.get("kind") != "Node" or args.get("name") != node or entry.error is not None:
            continue
        if "ToBeDeletedByClusterAutoscaler" in str(args.get("patch", "")) and from_text(entry.at) <= moment:
            return from_text(entry.at)
    return None


def format_messages_of_both(pair: Pair, old: FinishedRun, new: FinishedRun) -> str:
    """Return ``then: ...; today: ...``: what each program reported at the earlier decision of the pair.

    Of the VPA updater: all that it reported in the run.
    """
    by, _, about = pair.key
    if by == "horizontal-pod-autoscaler":
        statuses = (_find_last_status(ran.statuses_of(about), pair.first + SAME_TIME - 1) for ran in (old, new))
        then, today = ("nothing" if item is None else f"{item.reason}: {item.message}" for item in statuses)
    elif by == "cluster-autoscaler":
        node = next(
            (_get_deleted_node(item) for item in (pair.old, pair.new) if item and item.action == "DeleteNodes"), ""
        )
        then, today = (_format_loop_messages(ran, pair.first, node) for ran in (old, new))
    else:
        then, today = ("; ".join(ran.said) or "nothing" for ran in (old, new))
    return f"then: {then}; today: {today}"


def _format_loop_messages(ran: FinishedRun, at: Moment, node: str) -> str:
    """Return how the last loop up to ``at`` ended, and whether the node was unneeded or why it had to stay.

    ``node`` may be empty. ``no loop yet`` if there was none.
    """
    loop = ran.loop_at(at)
    if loop is None:
        return "no loop yet"
    reason = "unneeded" if node in loop.unneeded else loop.reasons.get(node, "")
    return f"{loop.text}, {node} is {reason}" if node and reason else loop.text


class ComparedRun(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Results of a run with one profile.

    Attributes
    ----------
    profile : str
        Name of the profile.
    node_hours : float
        Hours of the nodes of all groups together.
    cost : float or None
        Price of these hours. None: a group that had machines has no price.
    most_nodes : int
        Maximum number of nodes at the same time.
    pending_p95 : float
        95 % of the pods waited for a node for at most this many seconds.
    pending_max : float
        Longest time that a pod waited for a node, in seconds.
    actions : dict of str to int
        Number of requests by autoscalers, by kind of request.
    left_out : list of str
        Flags of the scenario that the programs of the profile do not have (``clusterAutoscaler.NAME``), and values that
        they refuse (``clusterAutoscaler.NAME=VALUE``).
    profiles : dict of str to str
        Profile of each program, by the name of the program.
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
    """A decision in both runs: the same action of the same autoscaler about the same subject, with the same count.

    Attributes
    ----------
    by : str
        Name of the autoscaler.
    action : str
        Kind of the request.
    about : str
        The subject: the node group (for a deletion with its node), the workload, or the namespace of the pods.
    legacy_at : float or None
        Time in the run with the old release, in seconds since the beginning. None: that run has no such decision.
    current_at : float or None
        Time in the run with today's release, in seconds since the beginning. None: that run has no such decision.
    legacy : str
        What was requested in the run with the old release.
    current : str
        What was requested in the run with today's release.
    rule : str
        Name of the rule that explains the difference; also ``follows`` or ``not-explained``. Empty: the decisions are
        the same, less than a second apart.
    evidence : str
        Evidence for the rule: what a program reported, or what another run shows. For ``not-explained``: what both
        programs reported.
    also : list of str
        Other rules that must be disabled, too, for the difference to disappear.
    follows : int
        Number (from 1) of an earlier decision from which this difference follows. 0: none.
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
    """Comparison of a scenario with the autoscalers of an old release (profile ``legacy``) and with today's.

    Attributes
    ----------
    name : str
        Name of the scenario.
    begin : str
        Start of the simulated time (RFC 3339).
    legacy : ComparedRun
        Results of the run with the old release.
    current : ComparedRun
        Results of the run with today's release.
    decisions : list of ComparedDecision
        Decisions of both runs, ordered by the earlier of the two times.
    rules : list of ReleaseRule
        The rules that the decisions name.
    """

    KIND = "ProfileComparison"
    ROWS = "decisions"

    name: str
    begin: str
    legacy: ComparedRun
    current: ComparedRun
    decisions: list[ComparedDecision]
    rules: list[ReleaseRule]


@typed
def compare_profiles(
    scenario: Scenario,
    *,
    source: str = "",
    folder: Path | str = ".",
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[str], None] = lambda _: None,
) -> ProfileComparison:
    """Run a scenario with the programs of 2018 to 2020 and with today's, and compare their decisions.

    The profile is set for the Cluster Autoscaler, the HPA controller and the VPA's updater, as far as the scenario has
    them; the recommender and the admission controller are today's in both runs. A scenario that names another old
    profile of the HPA controller (``legacy-1.18``) gets it in the legacy run.

    Further runs search for the causes: if several programs differ, one with each of them as today's version beside the
    old versions of the others, and runs with single flags changed (:mod:`kscale.simulation.comparing`).

    Parameters
    ----------
    scenario : Scenario
        Flags and values that only one of the profiles has are left out of the other's run, and named in the result.
    source, folder : str, optional
        The name of the file in errors, and the folder at which its relative names start.
    stop : callable, optional
        Polled; the comparison ends early if it returns True.
    progress : callable, optional
        Called with the name of each run that begins.

    Returns
    -------
    ProfileComparison
        The decisions of both runs and the rules behind their differences.

    Raises
    ------
    InputError
        If the scenario cannot be built, names a profile that a program does not have, or if its time does not advance.
    """
    legacy = legacy_profiles(scenario, source)
    current = dict.fromkeys(legacy, CURRENT)

    def run(
        label: str, profiles: Mapping[str, str], changes: Sequence[FlagChange] = (), until: Moment | None = None
    ) -> FinishedRun:
        """Run the scenario with these profiles and changed flags, at most until a moment."""
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
    decisions = _compare_decisions(pairs, old, new, causes, several=len(legacy) > 1)
    named = dict.fromkeys(rule for decision in decisions if decision.rule for rule in (decision.rule, *decision.also))
    return ProfileComparison(
        name=scenario.name,
        begin=scenario.begin,
        legacy=_summarize_run(LEGACY, old, legacy),
        current=_summarize_run(CURRENT, new, current),
        decisions=decisions,
        rules=[RULES[name] for name in named],
    )


class _Reruns:
    """Runs the two programs of a comparison again with changed flags of one controller; each run once.

    A run up to some moment is not repeated if a longer one exists.
    """

    def __init__(
        self,
        run: Callable[[str, Mapping[str, str], Sequence[FlagChange], Moment | None], FinishedRun],
        legacy: Mapping[str, str],
        alone: Mapping[str, str],
        name: str,
        old: FinishedRun,
        mixed: FinishedRun,
    ) -> None:
        self._run, self._name = run, name
        self._profiles = {LEGACY: legacy, CURRENT: alone}
        self._done: dict[tuple[str, frozenset[str], Moment | None], FinishedRun] = {
            (LEGACY, frozenset(), None): old,
            (CURRENT, frozenset(), None): mixed,
        }

    def __call__(self, changes: Sequence[FlagChange], until: Moment | None) -> tuple[FinishedRun, FinishedRun]:
        """Return the runs of the old and of today's program with changed flags, at least up to ``until``."""
        return self._run_with(LEGACY, changes, until), self._run_with(CURRENT, changes, until)

    def _run_with(self, profile: str, changes: Sequence[FlagChange], until: Moment | None) -> FinishedRun:
        """Return a run with a profile and those ``changes`` that are for this profile, at least up to ``until``.

        A cached run is returned if there is one; otherwise the scenario is run.
        """
        own_changes = [change for change in changes if change.profile == profile]
        flags = frozenset(change.flag for change in own_changes)
        for end in (None, until):
            if (ran := self._done.get((profile, flags, end))) is not None:
                return ran
        label = f"{profile}, with {', '.join(f'--{change.flag}={change.value}' for change in own_changes)}"
        ran = self._done[profile, flags, until] = self._run(label, self._profiles[profile], own_changes, until)
        return ran


def _summarize_run(profile: str, ran: FinishedRun, profiles: Mapping[str, str]) -> ComparedRun:
    """Build the record of a run from its report. ``profiles``: the profile of each program, by its field."""
    report = ran.run.report
    return ComparedRun(
        profile=profile,
        node_hours=report.node_hours,
        cost=report.cost,
        most_nodes=report.most_nodes,
        pending_p95=report.pending_pods.p95,
        pending_max=report.pending_pods.max,
        actions=report.actions,
        left_out=ran.left_out,
        profiles={PROGRAMS[name]: each for name, each in profiles.items()},
    )


def _compare_decisions(
    pairs: Sequence[Pair], old: FinishedRun, new: FinishedRun, causes: Mapping[tuple[Key, int], Cause], *, several: bool
) -> list[ComparedDecision]:
    """Put the decisions side by side, each difference with its cause.

    A difference without a cause follows the first one before it; if there is none, it is not explained. ``several``:
    whether the scenario has several programs with profiles; each that differs was also run alone as today's version.
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
                cause = Cause(NOT_EXPLAINED, format_messages_of_both(pair, old, new))
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
                legacy_at=_get_seconds_since(pair.old, old.begin),
                current_at=_get_seconds_since(pair.new, new.begin),
                legacy=format_request(pair.old),
                current=format_request(pair.new),
                rule=cause.rule,
                evidence=cause.evidence,
                also=list(cause.also),
                follows=follows,
            )
        )
    return decisions


_UNPROVEN: Final = Cause(FOLLOWS, "")


def _get_seconds_since(decision: Decision | None, begin: Moment) -> float | None:
    """Return the seconds from ``begin`` to a decision; None if there is no decision."""
    return None if decision is None else (from_text(decision.at) - begin) / SECOND
