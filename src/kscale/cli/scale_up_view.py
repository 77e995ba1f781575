"""View of ``kscale scale-up``: the options, the pods that stay pending, and the reasons."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kscale.cli.output import Cell, Column, Row, Table, View, make_columns
from kscale.cli.terminal import plural, pods

if TYPE_CHECKING:
    from kscale.ca.scale_up.plan import ScaleUpPlan
    from kscale.ca.scale_up_status import ExpanderScore, ScaleUpChoice, UnschedulablePods
    from kscale.capacity.group_templates import StartingNodes

__all__ = ["scale_up_view", "starting_hints"]

SHOWN = 20
_COLUMNS = (
    Column("OPTION"),
    Column("NODES", "right"),
    Column("BOUND", "right", wide=True),
    Column("METHOD", wide=True),
    Column("PODS", "right"),
    *make_columns("SCORE", "CHOSEN", "SKIPPED BECAUSE"),
)
_LEFT = (Column("PODS", "right"), Column("STILL PENDING"), Column("WHY"))


def scale_up_view(
    plan: ScaleUpPlan, explain: str, *, all_groups: bool, unlimited: Iterable[str] = (), hints: Sequence[str] = ()
) -> View:
    """Build the view of a scale-up plan.

    Parameters
    ----------
    plan : ScaleUpPlan
    explain : str
        Command line that explains a pod, without the pod's name.
    all_groups : bool
        Show all groups, and a table of rejections per pod and group.
    unlimited : iterable of str
        Groups with unknown maximum sizes.
    hints : sequence of str
        Further lines of the footer.
    """
    shown = [choice for choice in plan.options if all_groups or choice.nodes or choice.skipped]
    tables = [
        Table(_COLUMNS, [_option_row(choice) for choice in shown], limit=0 if all_groups else SHOWN),
        Table(_LEFT, [_build_pending_row(pending) for pending in plan.remain_unschedulable], limit=SHOWN),
    ]
    if all_groups and plan.remain_unschedulable:
        tables.append(_matrix(plan))
    return View(
        headline=_headline(plan),
        tables=tables,
        footer=[*_footer(plan, explain, unlimited), *hints],
        names=[
            f"nodegroup/{name}" for name in dict.fromkeys(info.group for info in (*plan.scale_ups, *plan.min_sizes))
        ],
    )


def starting_hints(starting: Mapping[str, StartingNodes]) -> list[str]:
    """Return hints about nodes that may still be starting in the groups that this scale-up grows.

    ``starting``: these nodes by group. A running autoscaler waits for nodes that it has requested. Without a saved
    state kscale does not know these requests, so the hints tell the user how to pass the state.
    """
    hints = []
    for name, nodes in starting.items():
        more = ", ..." if len(nodes.young) > 3 else ""
        parts = [f"{', '.join(nodes.young[:3])}{more} just came"] if nodes.young else []
        parts += [f"{nodes.missing:,} not registered yet"] if nodes.missing else []
        hints.append(
            f"Nodes of {name} may still be starting ({'; '.join(parts)}). An autoscaler that asked for them waits for "
            "them; here --state FILE tells what was asked for, and --save-state keeps it for the next run."
        )
        hints += [
            f"If the taint {key} goes away once a node has started: --flag startup-taint={key}" for key in nodes.taints
        ]
    return hints


def _headline(plan: ScaleUpPlan) -> str:
    """Return a sentence that sums up the plan: the new nodes of each group, or why there are none."""
    if plan.error is not None:
        return f"The scale-up fails: {plan.error.message}"
    requested = plan.lists.asked - plan.fake_pods.asked
    total = _total(plan, pods(requested) if requested else "", plan.fake_pods.asked)
    if plan.scale_ups:
        parts = [f"{info.group} {info.current:,} -> {info.new:,}" for info in plan.scale_ups]
        balanced = ", balanced" if len(parts) > 1 else ""
        nodes = f"{plan.new_node_count:,} {plural('node', plan.new_node_count)}{balanced}"
        helped = len(plan.triggered) - len(plan.beyond_limits)
        helped_pods = _total(
            plan, f"{helped:,} of {pods(requested)}" if requested else "", plan.fake_pods.asked, plan.fake_pods.helped
        )
        return f"Scale up {' and '.join(parts)} ({nodes}) for {helped_pods}."
    if plan.min_sizes and plan.result == "ScaleUpNotNeeded":
        return f"No pod needs a scale-up. Raised to their minimum size: {_format_min_sizes(plan)}."
    if plan.remain_unschedulable and all(pending.pods[0] in plan.requests for pending in plan.remain_unschedulable):
        requests = ", ".join(dict.fromkeys(plan.requests[pending.pods[0]] for pending in plan.remain_unschedulable))
        return f"No capacity for ProvisioningRequest {requests} ({total})."
    return {
        "ScaleUpNotNeeded": "No scale-up is needed.",
        "ScaleUpNotTried": f"No scale-up is tried. {_explain_untried(plan)}",
        "ScaleUpInCooldown": f"No scale-up yet: {total} so new that more may be on their way."
        if plan.scale_down_disabled
        else f"No scale-up for {total}: there was no time for others, and this loop is for scale-down.",
        "ScaleUpLimitedByMaxNodesTotal": f"No scale-up for {total}: the cluster has all the nodes it may have.",
    }.get(plan.result, f"No node group can grow for {total}.")


def _total(plan: ScaleUpPlan, real: str, fake: int, helped: int | None = None) -> str:
    """Describe the number of pods: real pods (``real``, a text) and fake pods (``fake``, a number).

    ``helped``: number of the fake pods that the scale-up helps; None: do not mention it.
    """
    if not fake:
        return real or pods(0)
    kinds = plan.fake_pods
    description = "that nobody has made" if kinds.missing else "of capacity buffers"
    if kinds.missing and not kinds.buffers:
        description = "that controllers have yet to make"
    count = pods(fake) if helped is None else f"{helped:,} of {pods(fake)}"
    return f"{real} and {count} {description}" if real else f"{count} {description}"


def _format_min_sizes(plan: ScaleUpPlan) -> str:
    """Format the groups that are raised to their minimum size: ``GROUP 1 -> 3``."""
    return ", ".join(f"{info.group} {info.current:,} -> {info.new:,}" for info in plan.min_sizes)


def _explain_untried(plan: ScaleUpPlan) -> str:
    """Return why the loop ended before it looked at pods."""
    messages = [event.message.rstrip(".") for event in plan.events if event.reason == "ClusterUnhealthy"]
    return f"{next(iter(messages), 'Cluster is not ready')}."


def _option_row(choice: ScaleUpChoice) -> Row:
    """Return the table row of a node group: new nodes, bound, pods, scores, whether it is chosen, or why not."""
    scores = [_score(score) for score in choice.scores]
    why = ", ".join(choice.skipped) or ("" if choice.nodes else "no pod fits its nodes")
    return [
        choice.group,
        choice.nodes or None,
        choice.bound,
        choice.bound_method or None,
        choice.pods or None,
        "; ".join(scores),
        Cell("yes", "good") if choice.chosen else "",
        why,
    ]


def _score(score: ExpanderScore) -> str:
    """Format an expander's score, with the parts of a price; the reason if there is no score.

    Prices have three decimals. A priority is shown as upstream's whole number, the negated score.
    """
    if score.score is None:
        return f"{score.expander} {score.not_finite or score.note}".rstrip()
    if score.expander == "priority":  # upstream's priorities, the highest of which wins; the score is negated
        return f"priority {-score.score:.0f}"
    text = f"{score.expander} {score.score:.3f}"
    parts = score.parts
    if {"all_nodes_price", "pods_price", "suppressed"} <= parts.keys():
        nodes, pods_price, unfit = parts["all_nodes_price"], parts["pods_price"], parts["suppressed"]
        text += f" (nodes {nodes:.3f}, pods {pods_price:.3f}, unfitness {unfit:.3f})"
    return text


def _build_pending_row(pending: UnschedulablePods) -> Row:
    """Return the table row of equal pods that stay pending: their number, the first name, and why."""
    return [len(pending.pods), Cell(pending.pods[0], "bad"), pending.why]


def _matrix(plan: ScaleUpPlan) -> Table:
    """Build the table of why each considered node group rejects the pods that stay pending; or ``fits``."""
    groups = [choice for choice in plan.options if not choice.skipped]
    rows: list[Row] = []
    for pending in plan.remain_unschedulable:
        row: Row = [pending.pods[0]]
        for choice in groups:
            rejection = pending.rejected.get(choice.group)
            row.append(", ".join(rejection.reasons) or rejection.plugin if rejection is not None else "fits")
        rows.append(row)
    return Table((Column("POD"), *(Column(choice.group) for choice in groups)), rows)


def _footer(plan: ScaleUpPlan, explain: str, unlimited: Iterable[str]) -> list[str]:
    """Return the lines below the tables. ``explain``: command that explains a pod, without its name."""
    lists, footer = plan.lists, []
    if lists.on_existing:
        real = lists.on_existing - plan.fake_pods.existing
        needs = "needs no new node: it fits" if lists.on_existing == 1 else "need no new node: they fit"
        helped_pods = _total(plan, pods(real) if real else "", plan.fake_pods.existing)
        footer.append(f"{helped_pods} {needs} on nodes that exist or are coming.")
    if plan.upcoming:
        coming = ", ".join(f"{name} {count:,}" for name, count in plan.upcoming.items())
        footer.append(f"Nodes that are coming already: {coming}.")
    for name, details in plan.not_similar.items():
        footer.append(f"{name} is not similar to {plan.chosen} and shares no new nodes: {'; '.join(details)}.")
    if plan.created_groups:
        created = ", ".join(name for each in plan.created_groups for name in (each.main, *each.extra))
        footer.append(f"Groups that would be made: {created}.")
    if plan.min_sizes and (plan.scale_ups or plan.result != "ScaleUpNotNeeded"):
        footer.append(f"Raised to their minimum size: {_format_min_sizes(plan)}.")
    if plan.beyond_limits:
        requested = sum(round_.best.node_count for round_ in plan.rounds if round_.best is not None)
        footer.append(
            f"No place for {pods(len(plan.beyond_limits))} of the option chosen: limits on the cluster permit "
            f"{plan.new_node_count:,} of the {requested:,} nodes asked for. "
            "Upstream says that they triggered the scale-up, too."
        )
    if plan.remain_unschedulable:
        named = next(
            (pending.pods[0] for pending in plan.remain_unschedulable if pending.pods[0] not in plan.requests), None
        )
        how = "" if named is None else f": {explain} {shlex.quote(named)}"
        footer.append(
            f"Still pending: {pods(sum(len(pending.pods) for pending in plan.remain_unschedulable))}{how or '.'}"
        )
    for count, why in (
        (lists.ignored, "gated, or the scheduler has not called them unschedulable (--bypassed-scheduler-name)"),
        (lists.expendable, "so low a priority that no node is added for them"),
        (lists.out_of_time, "there was no time to look at them (--pending-pods-batching-timeout): they wait"),
        (lists.daemon_set, "of a DaemonSet: no node is added for them"),
        (lists.consuming, "they consume a ProvisioningRequest, which asks for their nodes"),
        (lists.young, "too young (--new-pod-scale-up-delay)"),
    ):
        if count:
            footer.append(f"{pods(count)} not counted: {why}.")
    grown = [info.group for info in plan.scale_ups if info.group in set(unlimited)]
    if grown:
        footer.append(f"How large {' and '.join(grown)} may become is not known: no limit was applied.")
    if plan.unmodelled:
        footer.append(f"Not judged: {', '.join(plan.unmodelled)}.")
    return footer
