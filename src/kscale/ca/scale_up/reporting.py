"""From what the orchestrator found to the parts of the record."""

from __future__ import annotations

from collections.abc import Sequence

from kscale.ca.groups import Groups
from kscale.ca.orchestrator import Orchestration
from kscale.ca.scale_up.expansion import ExpansionOption
from kscale.ca.scale_up.pod_groups import PodGroup
from kscale.ca.scale_up.report import ExpanderScore, GroupRejection, PendingPods, ScaleUpChoice
from kscale.ca.scale_up.status import RemainingPod, not_triggered_parts

__all__ = ["choices", "pending_pods"]


def choices(groups: Groups, done: Orchestration, chosen: str | None) -> list[ScaleUpChoice]:
    """Every group, in the provider's order."""
    options = {option.group: option for option in done.options}
    steps = done.expansion.steps if done.expansion is not None else []
    found = []
    for group in groups:
        option = options.get(group.id)
        if option is None:
            found.append(ScaleUpChoice(group=group.id, skipped=list(done.skipped.get(group.id, []))))
            continue
        bound = option.estimate.lower_bound
        scores = [
            ExpanderScore(
                expander=step.expander,
                kept=any(left.group == group.id for left in step.filtered.survivors),
                score=step.filtered.scores.get(group.id),
                note=step.filtered.notes.get(group.id) or step.filtered.skipped.get(group.id, ""),
            )
            for step in steps
        ]
        found.append(
            ScaleUpChoice(
                group=group.id,
                nodes=option.node_count,
                pods=len(option.estimate.order_numbers),
                chosen=group.id == chosen,
                scores=scores,
                similar=list(option.similar),
                bound=bound.value,
                bound_method=bound.method,
            )
        )
    return found


def pending_pods(
    groups: Sequence[PodGroup], left: Sequence[RemainingPod], result: str, best: ExpansionOption | None
) -> list[PendingPods]:
    """Pods that stay, like ones together. ``best`` is the option that was chosen, if one was."""
    group_of = {name: number for number, group in enumerate(groups) for name in group.pods}
    unscheduled = best.estimate.unscheduled if best is not None else {}
    found: dict[tuple[int, str], list[str]] = {}
    for item in left:
        number = group_of.get(item.pod, -1)
        group = groups[number] if number >= 0 else None
        if group is not None and not group.schedulable:
            parts = not_triggered_parts(item, {*item.rejected_groups, *item.skipped_groups})
            why = ", ".join(parts) or "no node group"
        elif group is None or best is None:
            why = result
        elif best.group in group.verdicts:
            why = f"{best.group} was chosen, which does not take it: {', '.join(group.verdicts[best.group].reasons)}"
        else:
            why = f"{best.group} was chosen: {unscheduled.get(item.pod, result)}"
        found.setdefault((number, why), []).append(item.pod)
    return [
        PendingPods(
            pods=names,
            why=why,
            rejected=_rejections(groups[number]) if number >= 0 else {},
            taken_by=list(groups[number].schedulable_groups) if number >= 0 else [],
        )
        for (number, why), names in found.items()
    ]


def _rejections(group: PodGroup) -> dict[str, GroupRejection]:
    return {
        name: GroupRejection(plugin=verdict.plugin, reasons=list(verdict.reasons), numbers=list(verdict.numbers))
        for name, verdict in group.verdicts.items()
    }
