"""``kscale consolidate``: a path from the running cluster to a cheaper one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from kscale.cli.groups import GroupSource, Untyped
from kscale.cli.inputs import DUMP_HELP, parse_duration_option, read
from kscale.cli.live_inputs import Clusters
from kscale.cli.output import Answer, Cell, Column, Row, Show, Table, View, make_columns
from kscale.cli.pictures import consolidation_blocks
from kscale.cli.scale_down_options import EvictionFlags, Moment
from kscale.cli.terminal import plural, pods

if TYPE_CHECKING:
    from kscale.capacity.consolidation import ConsolidationPlan, ConsolidationStep, DisruptionBudget

__all__ = ["EPILOG", "command", "consolidation_view"]

EPILOG = DUMP_HELP
MATTER = (
    "PodDisruptionBudget",
    "DaemonSet",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "CSINode",
    "Namespace",
)
SHOWN = 40


def command(
    *,
    source: Clusters,
    group_source: GroupSource,
    moment: Moment,
    flags: EvictionFlags,
    disruption_budget: list[str] | None = None,
    max_evictions: Annotated[int | None, typer.Option(min=0)] = None,
    max_waves: Annotated[int, typer.Option(min=1)] = 10,
    max_steps: Annotated[int, typer.Option(min=0)] = 200,
    step_time: str = "10m",
    min_saving: Annotated[float, typer.Option(min=0)] = 0.0,
    eviction_cost: Annotated[float, typer.Option(min=0)] = 0.0,
    payback: str = "24h",
    no_replace: bool = False,
    no_bound: bool = False,
    show: Show,
) -> Answer:
    """How to get from the running cluster to a cheaper one, in steps that the cluster survives.

    Empty nodes go first, then nodes whose pods fit on others, then nodes that a cheaper node replaces. Each step was
    simulated with kube-scheduler's filters and scores, so that no pod stays without a node. Prices are those of the
    groups (-g) or of the --catalogue, of which each --instance-type may be added. Nodes of no group stay. Status 1 if
    the path has no step.

    Parameters
    ----------
    disruption_budget : NODES[,schedule=CRON,duration=TIME,reasons=A|B]
        How many nodes a step may remove, as in a NodePool of Karpenter: 10% (the default), 5, or 0,schedule=0 9 * *
        mon-fri,duration=8h (UTC). Repeatable: the strictest one counts. With NodePools (-g) the default is no further
        limit than those of each pool's spec.disruption.
    max_evictions : N
        Maximum number of pods that a step evicts.
    max_waves : N
        Maximum number of waves that PodDisruptionBudgets may require for a node.
    max_steps : N
        Maximum number of steps.
    step_time : TIME
        Time from one step to the next.
    min_saving : AMOUNT
        Stop at a step that saves less than this per hour, in the currency of the prices.
    eviction_cost : AMOUNT
        Cost of an eviction, in the currency of the prices. A node is removed only if it repays its evictions within
        --payback.
    payback : TIME
        Time in which a removed node must repay its evictions.
    no_replace
        Only remove nodes; create no new ones.
    no_bound
        Do not compute the lower bound of the cost.

    Raises
    ------
    typer.BadParameter
        If a duration or a disruption budget is malformed.
    InputError
        If the input, the node groups or the catalogue cannot be read.
    """
    from kscale.capacity.consolidation import ConsolidationOptions, consolidate

    options = ConsolidationOptions(
        budgets=None if disruption_budget is None else [_parse_budget(text) for text in disruption_budget],
        max_evictions=max_evictions,
        max_waves=max_waves,
        max_steps=max_steps,
        step_time=_timedelta(step_time, "--step-time"),
        min_saving=min_saving,
        eviction_cost=eviction_cost,
        payback=_timedelta(payback, "--payback"),
        replace=not no_replace,
        bound_effort=0 if no_bound else ConsolidationOptions().bound_effort,
    )
    now, rules = moment.moment(), flags.options()
    cluster, snapshot = read(source, show.terminal, matter=MATTER)
    catalogue = group_source.read_catalogue(show.terminal)
    groups = group_source.groups(cluster, snapshot, show.terminal, untyped=Untyped.PRICES)
    if group_source.instance_type:  # types are only offered: the nodes belong to the groups that their labels show
        existing = replace(group_source, instance_type=None, arch=None, region=None, zone=None, spot=False)
        groups += existing.groups(cluster, snapshot, show.terminal, untyped=Untyped.PRICES)
    if group_source.node_pools is not None:
        from kscale.capacity.karpenter import with_existing_nodes

        groups = with_existing_nodes(groups, group_source.node_pools, snapshot.columns.objects)
        options = msgspec.structs.replace(
            options, node_pools=[pool.disruption() for pool in group_source.node_pools.pools]
        )
    with show.terminal.step("planning"):
        plan = consolidate(cluster, groups, catalogue, now=now, options=options, rules=rules)
    return Answer(
        plan,
        lambda: consolidation_view(plan),
        exit_code=0 if plan.steps else 1,
        blocks=lambda: consolidation_blocks(plan, snapshot),
    )


def _timedelta(text: str, option: str) -> timedelta:
    """Parse a Go duration. Raises typer.BadParameter if it is malformed or negative."""
    return timedelta(microseconds=parse_duration_option(text, option) / 1000)


def _parse_budget(text: str) -> DisruptionBudget:
    """Parse ``NODES[,schedule=CRON][,duration=TIME][,reasons=A|B]``. Raises typer.BadParameter if it is malformed."""
    from kscale.capacity.consolidation import DisruptionBudget

    nodes, *rest = text.split(",")
    values: dict[str, str] = {}
    name = ""
    for part in rest:
        key, equals, value = part.partition("=")
        if equals and key in ("schedule", "duration", "reasons"):
            name, values[key] = key, value
        elif name == "schedule":  # a comma within the schedule
            values[name] += f",{part}"
        else:
            raise typer.BadParameter(f"{part!r} is not schedule=, duration= or reasons=", param_hint=_BUDGET)
    reasons = values.get("reasons")
    budget = DisruptionBudget(
        nodes=nodes,
        schedule=values.get("schedule"),
        duration=values.get("duration"),
        reasons=None if reasons is None else reasons.split("|"),
    )
    problems = budget.problems(_BUDGET)
    if problems:
        raise typer.BadParameter("; ".join(problem.message for problem in problems), param_hint=_BUDGET)
    return budget


_BUDGET = "--disruption-budget"
_STATES = (Column("STATE"), *make_columns("NODES", "$/H", "SAVES", align="right"))
_STEPS = (
    Column("STEP", "right"),
    *make_columns("AT", wide=True),
    Column("KIND"),
    *make_columns("EVICT", "WAVES", "SAVES", "NODES", "$/H", align="right"),
    Column("PEAK", "right", wide=True),
    *make_columns("ADD", "REMOVE"),
)
_WORDS = {"today": "today", "path": "end of the path", "optimum": "optimum (at least)"}
_STOPS = {
    "nothing-saves": "No further step saves anything.",
    "min-saving": "The next step saves less than --min-saving.",
    "budgets": "The disruption budgets allow no disruption within a week.",
    "max-steps": "The path ends at --max-steps.",
}


def consolidation_view(plan: ConsolidationPlan) -> View:
    """Build the view of a path: the steps, then the costs and nodes of its states."""
    states: list[Row] = [
        [
            _WORDS[each.state],
            each.nodes,
            Cell(f"{each.cost:,.3f}", value=each.cost),
            Cell(f"{each.saves / plan.table[0].cost if plan.table[0].cost else 0:.1%}", value=each.saves),
        ]
        for each in plan.table
    ]
    footer = [_STOPS[plan.stopped]]
    if plan.no_bound:
        footer.append(f"No optimum: {plan.no_bound}.")
    if plan.held:
        reasons = Counter(node.reason for node in plan.held)
        shown = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
        footer.append(f"Nodes that cannot be removed: {shown} (kscale nodes).")
    if plan.pending_count:
        footer.append(f"{pods(plan.pending_count)} pending today, left out.")
    if plan.unmodelled:
        footer.append(f"Not judged yet: {', '.join(plan.unmodelled)}.")
    return View(
        headline=_headline(plan),
        tables=[Table(_STEPS, [_row(step) for step in plan.steps], limit=SHOWN), Table(_STATES, states, title="Cost")],
        footer=footer,
        names=[f"node/{name}" for step in plan.steps for name in step.remove],
    )


def _headline(plan: ConsolidationPlan) -> str:
    """Return a sentence with the number of steps, the costs and nodes before and after, and the evictions."""
    today, end = plan.table[:2]
    if not plan.steps:
        nodes = f"{today.nodes:,} {plural('node', today.nodes or 0)}"
        return f"No step makes the cluster cheaper: ${today.cost:,.3f}/h for {nodes}."
    count = len(plan.steps)
    return (
        f"{count:,} {plural('step', count)} from ${today.cost:,.3f}/h to ${end.cost:,.3f}/h, "
        f"from {today.nodes:,} to {end.nodes:,} nodes, with {plan.evictions:,} {plural('eviction', plan.evictions)}."
    )


def _row(step: ConsolidationStep) -> Row:
    """Return the table row of a step."""
    added = Counter(node.group for node in step.add)
    return [
        step.number,
        step.at,
        step.kind,
        len(step.evict),
        step.waves,
        Cell(f"{step.saves:,.3f}", value=step.saves),
        step.nodes,
        Cell(f"{step.cost:,.3f}", value=step.cost),
        Cell(f"{step.peak:,.3f}", value=step.peak),
        ", ".join(f"{count:,} x {group}" for group, count in added.items()),
        ", ".join(step.remove[:3]) + (f" and {len(step.remove) - 3:,} more" if len(step.remove) > 3 else ""),
    ]
