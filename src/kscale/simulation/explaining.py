"""Why two programs decide otherwise: only what a report, a computed check or another run proves.

Three kinds of evidence are looked for, in this order:

1. What a program reported of the loop in which it did not do what the other program did.
2. A check on the facts of both runs, such as the times of the taints before a deletion.
3. A run in which one program gets a flag that makes it decide as the other (:class:`FlagChange`). If the first
   difference is gone in the run with all flags that can matter, flags are taken back one by one, until only those are
   left without which it is there. The search then goes on in that run, with the first difference that remains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kscale.effects import SECOND, Moment, from_text
from kscale.simulation.compared_runs import SAME_TIME, Key, Pair, Ran, ScalerStatus, asked_for, pair_decisions
from kscale.simulation.decisions import Decision
from kscale.simulation.profile_flags import CURRENT, FlagChange

__all__ = ["FOLLOWS", "NOT_EXPLAINED", "Cause", "explain", "words_of_both"]

FOLLOWS: Final = "follows"
NOT_EXPLAINED: Final = "not-explained"
_DELETE_DELAY: Final = (4 * SECOND, 6 * SECOND)
"""Between the taint and the deletion of an empty node today (``--node-delete-delay-after-taint``), with the latency."""
_BEFORE_SCALE_UP: Final = frozenset({"unregistered-ends-loop", "health-formula", "empty-cluster"})
"""Rules that end a loop of release 1.3 before its scale-up."""


class Cause(NamedTuple):
    """The rule by which a decision differs, and what shows it.

    ``also``: other rules without which the difference would not be gone; ``after``: the decision that it follows.
    """

    rule: str
    evidence: str
    also: tuple[str, ...] = ()
    after: tuple[Key, int] | None = None


Causes = dict[tuple[Key, int], Cause]
Rerun = Callable[[Sequence[FlagChange], Moment | None], tuple[Ran, Ran]]
"""Runs both programs again, with changed flags; at least up to a moment (None: to the end)."""


def explain(program: str, old: Ran, new: Ran, changes: Sequence[FlagChange], rerun: Rerun) -> Causes:
    """Return what is proven of the decisions in which two runs differ, by key and number.

    Parameters
    ----------
    program : str
        The only program that differs between the runs, by the name under which it decides.
    old, new : Ran
        The run of the old program and the run of today's.
    changes : sequence of FlagChange
        Flags by which one program can be made to decide as the other.
    rerun : callable
        Runs both programs with some of these flags. Each call is a simulation or two, most of them only up to the
        difference that is looked at.

    Returns
    -------
    dict
        Differences that nothing proves are absent, but for the first of all: of it the words of both programs are told.
    """
    causes: Causes = {}
    accepted: list[FlagChange] = []
    runs = old, new
    original = {pair.name for pair in pair_decisions(old, new) if pair.differs}
    while differing := [pair for pair in pair_decisions(*runs) if pair.differs]:
        for pair in differing:
            if pair.key[0] == program and pair.name in original and pair.name not in causes:
                earlier = any(each.first + SAME_TIME <= pair.first for each in differing)
                cause = _reported(pair, *runs, earlier=earlier)
                if cause is not None:
                    causes[pair.name] = _beside(cause, accepted)
        first = differing[0]
        if first.name in causes:
            break
        needed = _needed_changes(first, changes, accepted, rerun)
        if not needed:
            if not accepted and first.key[0] == program:
                causes[first.name] = Cause(NOT_EXPLAINED, words_of_both(first, old, new))
            break
        accepted += needed
        cause = _by_flags(first, needed, runs[1])
        runs = rerun(accepted, None)
        remaining = {pair.name for pair in pair_decisions(*runs) if pair.differs}
        for pair in differing:
            if pair.name in original and pair.name not in causes and pair.name not in remaining:
                together = pair.key[0] == program and pair.first - first.first < SAME_TIME
                text = "the same change of flags takes this difference away as well"
                causes[pair.name] = cause if together else Cause(FOLLOWS, text, after=first.name)
    return causes


def _beside(cause: Cause, accepted: Sequence[FlagChange]) -> Cause:
    """Return a cause that shows once differences that come earlier are taken away."""
    if not accepted:
        return cause
    return cause._replace(evidence=f"{cause.evidence} (beside {' and '.join(each.text for each in accepted)})")


# -- flags -----------------------------------------------------------------------------------------------------------


def _needed_changes(
    first: Pair, changes: Sequence[FlagChange], accepted: Sequence[FlagChange], rerun: Rerun
) -> list[FlagChange]:
    """Return the fewest changed flags with which a difference is gone, the most important first; none if none help."""
    action = first.key[1]
    candidates = [each for each in changes if each not in accepted and (not each.actions or action in each.actions)]
    until = max(from_text(each.at) for each in (first.one, first.other) if each is not None) + 2 * SAME_TIME
    if not candidates or not _gone(first, rerun([*accepted, *candidates], until))[0]:
        return []
    needed, remains = candidates, {}
    for change in candidates:
        others = [each for each in needed if each is not change]
        gone, apart = _gone(first, rerun([*accepted, *others], until)) if others else (False, first.apart)
        if gone:
            needed = others
        else:
            remains[change.rule] = float("inf") if apart is None else float(apart)
    return sorted(needed, key=lambda change: -remains[change.rule])


def _gone(first: Pair, runs: tuple[Ran, Ran]) -> tuple[bool, int | None]:
    """Return whether two runs decide something alike, and all before it; and how far apart they decide it."""
    pairs = pair_decisions(*runs)
    same = next((pair for pair in pairs if pair.name == first.name), None)
    earlier = any(pair.differs and pair.first < first.first for pair in pairs)
    if same is None:
        return not earlier, 0
    return not same.differs and not earlier, same.apart


def _by_flags(pair: Pair, needed: Sequence[FlagChange], new: Ran) -> Cause:
    rule, *also = (change.rule for change in needed)
    texts = [change.text for change in needed]
    if len(needed) > 1:
        evidence = f"both decide this alike: {'; '.join(texts)}"
    elif rule == "loop-start" and pair.other is not None and (trigger := _trigger(pair.other, new)):
        evidence = trigger
    else:
        evidence = f"{texts[0]} decides this as {'then' if needed[0].profile == CURRENT else 'today'}"
    return Cause(rule, evidence, tuple(also))


def _trigger(decision: Decision, ran: Ran) -> str:
    """Return why the last loop up to a decision started that no timer started; empty if there was none."""
    at = from_text(decision.at)
    started = (loop.trigger for loop in reversed(ran.loops) if loop.at <= at)
    return next((trigger for trigger in started if trigger and not trigger.endswith("timer")), "")


# -- reports and checks ----------------------------------------------------------------------------------------------


def _reported(pair: Pair, old: Ran, new: Ran, *, earlier: bool) -> Cause | None:
    """Return what the programs' reports prove; ``earlier``: whether the runs differ before the decision."""
    by, action, _ = pair.key
    if by == "vpa-updater":
        return _why_updated(pair, new)
    if by == "horizontal-pod-autoscaler":
        return _why_rescaled(pair, old, new, earlier=earlier)
    if action == "DeleteNodes":
        return _why_deleted(pair, old, new)
    if action == "IncreaseSize" and pair.other is not None and _is_sooner(pair.other, pair.one):
        loop = old.loop_at(from_text(pair.other.at))
        if loop is not None and loop.rule in _BEFORE_SCALE_UP:
            return Cause(loop.rule, loop.text)
    return None


def _is_sooner(decision: Decision, other: Decision | None) -> bool:
    return other is None or from_text(decision.at) < from_text(other.at)


def _why_updated(pair: Pair, new: Ran) -> Cause | None:
    """Return why one updater evicts or resizes a pod and the other does not, if today's said it or only it resizes."""
    if pair.key[1] == "Resize" and pair.one is None:
        return Cause("in-place", "the updater of 2020 resizes no pod")
    silent = next((text for text in new.said if text.startswith(("Error getting Adm", "Admission"))), "")
    return Cause("admission-status", silent) if pair.other is None and silent else None


def _why_rescaled(pair: Pair, old: Ran, new: Ran, *, earlier: bool) -> Cause | None:
    """Return why an HPA has another size or another time, by the conditions that both controllers wrote.

    Without an earlier difference both controllers look at the same pods and metrics. If both found their metrics
    valid in that round, only the calculation is left.
    """
    before, after = old.statuses_of(pair.key[2]), new.statuses_of(pair.key[2])
    end = pair.first + SAME_TIME - 1
    then, today = _last(before, end), _last(after, end)
    if today is not None and today.reason == "AmbiguousSelector" and pair.one is not None:
        return Cause("ambiguous-selector", today.message)
    if pair.one is not None and pair.other is not None and asked_for(pair.one) == asked_for(pair.other):
        at, later = from_text(pair.other.at), from_text(pair.one.at)
        if later - at >= SAME_TIME and after and before and after[0].at >= at and before[0].at >= later:
            return Cause("first-period", "in both runs this is decided in the first round of the HPA")
    if earlier or then is None or today is None or not (then.active and today.active):
        return None
    sizes = (_size_at(decision, end) for decision in (pair.one, pair.other))
    return Cause("replica-calculator", "of the same pods and metrics: then {}, today {}".format(*sizes))


def _last(statuses: Sequence[ScalerStatus], at: Moment) -> ScalerStatus | None:
    return next((each for each in reversed(statuses) if each.at <= at), None)


def _size_at(decision: Decision | None, end: Moment) -> str:
    return "no other size" if decision is None or from_text(decision.at) > end else asked_for(decision)


def _why_deleted(pair: Pair, old: Ran, new: Ran) -> Cause | None:
    """Return why a node is deleted later or not at all by release 1.3, or seconds later today.

    What release 1.3 said of its loop while today's program deleted the node counts only if the node was unneeded then.
    """
    one, other = pair.one, pair.other
    if other is not None and _is_sooner(other, one):
        loop = old.loop_at(from_text(other.at))
        if loop is not None and loop.rule and _node(other) in loop.unneeded:
            return Cause(loop.rule, loop.text)
    elif one is not None and other is not None:
        tainted, tainted_today = _tainted(one, old), _tainted(other, new)
        if tainted is None or tainted_today is None or abs(tainted - tainted_today) >= SAME_TIME:
            return None
        if from_text(one.at) - tainted < SAME_TIME and _is_delayed(from_text(other.at) - tainted_today):
            seconds = (from_text(other.at) - tainted_today) / SECOND
            return Cause(
                "delete-delay", f"both taint the node at the same time; today deletes it {seconds:.0f} s later"
            )
    return None


def _is_delayed(nanoseconds: int) -> bool:
    least, most = _DELETE_DELAY
    return least <= nanoseconds <= most


def _node(decision: Decision) -> str:
    return str(decision.arguments["nodes"][0])


def _tainted(decision: Decision, ran: Ran) -> Moment | None:
    """Return when a node got the taint of its deletion; None if it got none."""
    at, node = from_text(decision.at), _node(decision)
    for entry in reversed(ran.run.decisions.entries):
        of = entry.arguments
        if entry.action != "Patch" or of.get("kind") != "Node" or of.get("name") != node or entry.error is not None:
            continue
        if "ToBeDeletedByClusterAutoscaler" in str(of.get("patch", "")) and from_text(entry.at) <= at:
            return from_text(entry.at)
    return None


def words_of_both(pair: Pair, old: Ran, new: Ran) -> str:
    """Return what both programs said when one of them decided something."""
    by, _, about = pair.key
    if by == "horizontal-pod-autoscaler":
        statuses = (_last(ran.statuses_of(about), pair.first + SAME_TIME - 1) for ran in (old, new))
        then, today = ("nothing" if each is None else f"{each.reason}: {each.message}" for each in statuses)
    elif by == "cluster-autoscaler":
        node = next((_node(each) for each in (pair.one, pair.other) if each and each.action == "DeleteNodes"), "")
        then, today = (_loop_words(ran, pair.first, node) for ran in (old, new))
    else:
        then, today = ("; ".join(ran.said) or "nothing" for ran in (old, new))
    return f"then: {then}; today: {today}"


def _loop_words(ran: Ran, at: Moment, node: str) -> str:
    loop = ran.loop_at(at)
    if loop is None:
        return "no loop yet"
    reason = "unneeded" if node in loop.unneeded else loop.reasons.get(node, "")
    return f"{loop.text}, {node} is {reason}" if node and reason else loop.text
