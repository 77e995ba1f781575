"""From what the orchestrator found to the parts of the record."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from kscale.ca.estimator.limiter import limit_in_words
from kscale.ca.estimator.result import NO_PERMISSION
from kscale.ca.expander.chain import ExpanderStep
from kscale.ca.go_math import format_fixed
from kscale.ca.scale_up.orchestration import Orchestration
from kscale.ca.scale_up.pod_groups import PodGroup
from kscale.ca.scale_up.records import ExpanderScore, GroupRejection, PendingPods, ScaleUpChoice
from kscale.ca.scale_up.status import RemainingPod, not_triggered_parts

__all__ = ["beyond_limits", "choices", "expander_score", "pending_pods"]


def expander_score(step: ExpanderStep, group: str, *, kept: bool) -> ExpanderScore:
    """What an expander of the chain made of a group."""
    filtered = step.filtered
    score = filtered.scores.get(group)
    finite = score is None or isfinite(score)
    return ExpanderScore(
        expander=step.expander,
        kept=kept,
        score=score if finite else None,
        not_finite="" if finite or score is None else format_fixed(score),
        parts={name: number for name, number in filtered.parts.get(group, {}).items() if isfinite(number)},
        note=filtered.notes.get(group) or filtered.skipped.get(group, ""),
    )


def choices(done: Orchestration, chosen: Sequence[str], *, bound_effort: int = 0) -> list[ScaleUpChoice]:
    """Every group, in the provider's order, then those that could be made or were. ``bound_effort``: of one bound."""
    options = {option.group: option for option in done.options}
    steps = done.expansion.steps if done.expansion is not None else []
    kept = [{left.group for left in step.filtered.survivors} for step in steps]
    names = dict.fromkeys([*done.asked_groups, *(group.id for group in done.groups)])
    found = []
    for name in names:
        option = options.get(name)
        if option is None:
            found.append(ScaleUpChoice(group=name, skipped=list(done.skipped.get(name, []))))
            continue
        bound = option.estimate.bound(effort=bound_effort)
        scores = [
            expander_score(step, name, kept=name in survivors) for step, survivors in zip(steps, kept, strict=True)
        ]
        found.append(
            ScaleUpChoice(
                group=name,
                nodes=option.node_count,
                pods=option.pod_count,
                chosen=name in chosen,
                scores=scores,
                similar=list(option.similar),
                bound=bound.value,
                bound_method=bound.method,
            )
        )
    return found


def beyond_limits(done: Orchestration) -> list[str]:
    """Pods of the chosen option that its estimate puts on nodes that quotas or the limit on nodes did not permit.

    Upstream says of them, too, that they triggered the scale-up.
    """
    best = done.best
    permitted = sum(info.new - info.current for info in done.status.scale_ups)
    if best is None or permitted >= best.node_count:
        return []
    estimate = best.estimate
    nodes = estimate.placement_numbers[estimate.order_numbers].tolist()
    new = [node for node in dict.fromkeys(nodes) if node >= len(estimate.snapshot.nodes)]
    refused = set(new[permitted:])
    return [name for name, node in zip(estimate.scheduled, nodes, strict=True) if node in refused]


def pending_pods(done: Orchestration, left: Sequence[str], result: str) -> list[PendingPods]:
    """Pods that stay after the last scale-up of a loop: those of which everything said is the same together."""
    groups, best = done.pod_groups, done.best
    number_of = {name: number for number in range(len(groups)) for name in groups.keys_of(number)}
    unscheduled = best.estimate.unscheduled if best is not None else {}
    limit = limit_in_words(best.limits) if best is not None else ""
    limited = f" ({limit})" if limit else ""
    known: dict[int, tuple[PodGroup, str]] = {}
    found: dict[tuple[int, str], list[str]] = {}
    for name in left:
        number = number_of.get(name)
        exemplar = -1 if number is None else int(groups.exemplar_of[number])
        if number is not None and exemplar not in known:
            known[exemplar] = groups[number], _why(groups[number], done)
        group, why = known.get(exemplar, (None, ""))
        if group is not None and group.schedulable and best is not None and best.group not in group.verdicts:
            text = unscheduled.get(name, result)
            why = f"{best.group} was chosen: {text}{limited if text == NO_PERMISSION else ''}"
        found.setdefault((exemplar, why or result), []).append(name)
    return [
        PendingPods(
            pods=names,
            why=why,
            rejected=_rejections(known[exemplar][0]) if exemplar >= 0 else {},
            taken_by=list(known[exemplar][0].schedulable_groups) if exemplar >= 0 else [],
        )
        for (exemplar, why), names in found.items()
    ]


def _why(group: PodGroup, done: Orchestration) -> str:
    """Why pods of an equivalence group stay; empty where it is the same for all pods of the scale-up."""
    best = done.best
    if not group.schedulable:
        item = RemainingPod(pod="", rejected_groups=group.errors, skipped_groups=done.skipped)
        return ", ".join(not_triggered_parts(item, {*group.errors, *done.skipped})) or "no node group"
    if best is not None and best.group in group.verdicts:
        return f"{best.group} was chosen, which does not take it: {', '.join(group.verdicts[best.group].why)}"
    return ""


def _rejections(group: PodGroup) -> dict[str, GroupRejection]:
    return {
        name: GroupRejection(plugin=verdict.plugin, reasons=list(verdict.why), numbers=list(verdict.numbers))
        for name, verdict in group.verdicts.items()
    }
