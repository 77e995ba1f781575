"""Karpenter in commands: the option ``--provisioner``, and the part of an answer that says what Karpenter would do."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

from kscale.cli.output import Cell, Row, Table, View, make_columns
from kscale.cli.terminal import plural, pods

if TYPE_CHECKING:
    from kscale.capacity.karpenter.plan import KarpenterPlan, PoolOffers
    from kscale.capacity.records import KarpenterChoice
    from kscale.cli.groups import GroupSource

__all__ = [
    "Provisioner",
    "chosen_offers",
    "karpenter_notes",
    "karpenter_plan_view",
    "karpenter_table",
    "refuse_autoscaler_options",
]

_HINT = "--provisioner"


class Provisioner(StrEnum):
    """Programs that add and remove nodes."""

    CLUSTER_AUTOSCALER = "cluster-autoscaler"
    KARPENTER = "karpenter"


def chosen_offers(groups: GroupSource, provisioner: Provisioner | None) -> PoolOffers | None:
    """Return the NodePools' offers if Karpenter's rule decides: the groups are NodePools, and no other rule was chosen.

    None otherwise. Call it after the groups were read. Raises BadParameter if Karpenter was chosen without NodePools.
    """
    if groups.node_pools is None or groups.pool_groups is None:
        if provisioner is Provisioner.KARPENTER:
            raise typer.BadParameter("karpenter needs NodePools: -g FILE --catalogue NAME", param_hint=_HINT)
        return None
    if provisioner is Provisioner.CLUSTER_AUTOSCALER:
        return None
    from kscale.capacity.karpenter.plan import PoolOffers

    return PoolOffers(groups.node_pools, groups.pool_groups)


def refuse_autoscaler_options(options: Sequence[tuple[str, Any]]) -> None:
    """Raise BadParameter if an option of the Cluster Autoscaler is set although Karpenter's rule decides."""
    for option, value in options:
        if value:
            text = "is an option of the Cluster Autoscaler, and Karpenter's rule decides for NodePools"
            raise typer.BadParameter(f"{text} (--provisioner cluster-autoscaler)", param_hint=option)


_SHOWN = 20
_LEFT = (*make_columns("PODS", align="right"), *make_columns("STILL PENDING", "WHY"))

_COLUMNS = (
    *make_columns("NODEPOOL", "TYPE", "CAPACITY", "ZONE"),
    *make_columns("NODES", "PODS", "$/NODE", "$/H", align="right"),
)


def karpenter_table(choice: KarpenterChoice | None) -> Sequence[Table]:
    """Return the table of nodes that Karpenter would launch; nothing without a choice."""
    if choice is None:
        return []
    cost = "" if choice.cost is None else f", ${choice.cost:,.3f}/h"
    title = f"What Karpenter would launch: {choice.nodes:,} nodes{cost}, for {pods(choice.on_new)}"
    rows = [
        [
            line.node_pool,
            line.type,
            line.capacity_type,
            line.zone or None,
            line.nodes,
            line.pods,
            None if line.price is None else Cell(f"{line.price:,.4g}", value=line.price),
            None if line.cost is None else Cell(f"{line.cost:,.3f}", value=line.cost),
        ]
        for line in choice.lines
    ]
    return [Table(_COLUMNS, rows, title=title)]


def karpenter_plan_view(plan: KarpenterPlan) -> View:
    """Build the view of a scale-up by Karpenter's rule: new nodes by type, and the pods that stay pending."""
    choice = plan.choice
    parts = [f"{pods(choice.pods)} by Karpenter's rule"]
    if choice.on_existing:
        parts.append(f"{pods(choice.on_existing)} fit on nodes that exist")
    cost = "" if choice.cost is None else f", ${choice.cost:,.3f}/h"
    parts.append(f"{choice.nodes:,} new {plural('node', choice.nodes)} for {pods(choice.on_new)}{cost}")
    left = len(choice.unschedulable)
    by_reason: dict[str, list[str]] = {}
    for name, reason in zip(choice.unschedulable, plan.reasons, strict=True):
        by_reason.setdefault(reason, []).append(name)
    pending: list[Row] = [
        [len(names), names[0] + (", ..." if len(names) > 1 else ""), reason] for reason, names in by_reason.items()
    ]
    notes = [f"Rule: {plan.rule} (--provisioner cluster-autoscaler decides otherwise)."]
    if choice.unmodelled:
        notes.append(f"Karpenter's choice ignores {'; '.join(choice.unmodelled)}.")
    if plan.untried:
        first = f"{plan.untried[0]} for one"
        notes.append(f"{pods(len(plan.untried))} not counted, as the scheduler has not refused them yet, {first}.")
    if plan.assumptions:
        notes.append(f"Assumed: {'; '.join(plan.assumptions)}.")
    return View(
        headline="; ".join([*parts, *([f"{pods(left)} left pending"] if left else [])]) + ".",
        tables=[*karpenter_table(choice), Table(_LEFT, pending, limit=_SHOWN)],
        footer=notes,
        names=[f"nodegroup/{name}" for name in dict.fromkeys(claim.group for claim in plan.claims)],
    )


def karpenter_notes(choice: KarpenterChoice | None) -> list[str]:
    """Return closing lines about pods that no NodePool takes, and about what the choice ignores."""
    if choice is None:
        return []
    notes = []
    if choice.unschedulable:
        notes.append(f"No NodePool takes {pods(len(choice.unschedulable))}, {choice.unschedulable[0]} for one.")
    if choice.unmodelled:
        notes.append(f"Karpenter's choice ignores {'; '.join(choice.unmodelled)}.")
    return notes
