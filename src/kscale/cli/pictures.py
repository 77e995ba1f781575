"""Blocks of HTML pages beside an answer's tables: nodes with their pods, foldable failure reasons, charts over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from kscale.cli.terminal import pods
from kscale.objects.times import nanoseconds
from kscale.views import Bars, Block, Chart, Folded, Packing, Tone

if TYPE_CHECKING:
    from kscale.ca.scale_up.plan import ScaleUpPlan
    from kscale.capacity.consolidation import ConsolidationPlan
    from kscale.capacity.cost import CostReport
    from kscale.capacity.drain import DrainReport
    from kscale.capacity.headroom import HeadroomReport
    from kscale.capacity.mix import MixPlan
    from kscale.capacity.node_usage import NodeUsageReport
    from kscale.capacity.preemption import PreemptionReport
    from kscale.capacity.records import EstimateReport, Rejection
    from kscale.capacity.scale_down import ScaleDownReport
    from kscale.hpa.dump.report import HPAReport
    from kscale.objects.nodegroup import NodeGroup, NodeTemplate
    from kscale.simulation import Simulation
    from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "compared_simulation_blocks",
    "consolidation_blocks",
    "cost_blocks",
    "drain_blocks",
    "estimate_blocks",
    "headroom_blocks",
    "hpa_blocks",
    "mix_blocks",
    "node_usage_blocks",
    "preemption_blocks",
    "scale_down_blocks",
    "scale_up_blocks",
    "simulation_blocks",
]

_GROUPS = 12
"""Groups of an estimate whose nodes are drawn: those that take most pods."""
_NAMES = 200
_BARS = 40
"""Rows of a bar chart: those that cost most."""
_CHARTS = {
    "Nodes": ("machines", "nodes"),
    "Pods": ("pods",),
    "Waiting pods": ("pending",),
    "Cores": ("allocatable_cores", "requested_cores", "pending_cores"),
}
"""Columns of a simulation's timeline, by the title of their chart."""
_FRACTIONAL = frozenset({"Cores"})
"""Titles of charts whose values are not counts."""
_COMPARED = {"Machines": "machines", "Cores": "allocatable_cores", "Waiting pods": "pending"}
"""The column of each chart that compares simulations, by its title."""


def estimate_blocks(report: EstimateReport, groups: Iterable[NodeGroup], snapshot: Snapshot) -> list[Block]:
    """Return the blocks of an estimate: the new nodes of each group, and why a group does not take more pods.

    ``report`` must have its placements. The groups that take most pods are drawn, the others only named.
    """
    template = {group.id: group.template for group in groups}
    taking = sorted((line for line in report.groups if line.placed), key=lambda line: -line.pods)
    drawn: list[Block] = [
        _draw_new_nodes(line.group, line.nodes, snapshot, template[line.group], _group_by_node(line.placed or {}))
        for line in taking[:_GROUPS]
    ]
    refusals = [
        (
            f"{line.group}: {pods(sum(each.pods for each in line.rejections))} stay without",
            _format_rejections(line.rejections),
        )
        for line in report.groups
        if line.rejections
    ]
    rest = [f"{line.group}: {line.nodes:,} new nodes" for line in taking[_GROUPS:]]
    if rest:
        drawn.append(Folded("Not drawn", [(f"{len(rest):,} more groups, which take no more pods than these", rest)]))
    return [
        *drawn,
        *_fold_items("Why not more", refusals),
        *_fold_items("Fit nowhere", _format_names(report.unschedulable)),
    ]


def _group_by_node(placement: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the pods of each node; ``placement``: pod -> node."""
    on: dict[str, list[str]] = {}
    for pod, node in placement.items():
        on.setdefault(node, []).append(pod)
    return on


def _draw_new_nodes(
    group: str, count: int, snapshot: Snapshot, template: NodeTemplate | None, on: Mapping[str, Sequence[str]]
) -> Packing:
    """Draw the new nodes of a group. ``on``: the pods by node, for those of the ``count`` nodes that have some."""
    from kscale.capacity.scale_down import NewNode, draw_new_nodes

    assert template is not None, "groups of a report have their templates"
    nodes = [NewNode(name, "", template, names) for name, names in on.items()]
    return draw_new_nodes(f"{group}: {count:,} new nodes", snapshot, nodes)


def _format_rejections(rejections: Iterable[Rejection]) -> list[str]:
    """Format each rejection as a line: number of pods, an example, and the reasons."""
    return [
        f"{pods(each.pods)}, {each.example} for one: {', '.join(each.reasons) or each.plugin}" for each in rejections
    ]


def _format_names(names: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
    """Return a folded item (number of pods, their first names) in a list; an empty list without names."""
    if not names:
        return []
    return [(pods(len(names)), _first(names[:_NAMES], len(names)))]


def _first(names: Sequence[str], count: int) -> list[str]:
    """Return the names, and a last line with how many of ``count`` names are left out, if any."""
    return [*names, *([f"... and {count - len(names):,} more"] if count > len(names) else [])]


def _fold_items(title: str, items: Sequence[tuple[str, Sequence[str]]]) -> list[Block]:
    """Return a list with one folded block of the items (heading, lines); an empty list if there are no items."""
    return [Folded(title, items)] if items else []


def scale_up_blocks(plan: ScaleUpPlan, snapshot: Snapshot) -> list[Block]:
    """Return the blocks of a scale-up plan: the new nodes of each group, and the rejections of pods that stay pending.

    Nodes are packed as the estimator does for the chosen option, and divided among the groups that grow together.
    """
    from kscale.capacity.estimate import estimate_groups
    from kscale.objects.nodegroup import NodeGroup

    drawn: list[Block] = []
    still_pending = set(snapshot.pending)
    for round_ in plan.rounds:
        names = [name for name in round_.status.pods_triggered if name in still_pending]
        if round_.best is None or round_.best.group not in round_.templates or not names:
            continue
        group = NodeGroup(id=round_.best.group, template=round_.templates[round_.best.group])
        (line,) = estimate_groups(snapshot, [group], pods=names, ignore_existing=True, placements=True).groups
        packed = iter(_group_by_node(line.placed or {}).values())
        for info in round_.status.scale_ups:
            count = info.new - info.current
            on = {f"{info.group}-new-{i}": names for i, names in enumerate(islice(packed, count))}
            template = round_.templates.get(info.group, group.template)
            drawn.append(_draw_new_nodes(info.group, count, snapshot, template, on))
    items = [
        (
            f"{pods(len(pending_pods.pods))} like {pending_pods.pods[0]}: {pending_pods.why}",
            [
                f"{group}: {', '.join(rejection.reasons) or rejection.plugin}"
                for group, rejection in pending_pods.rejected.items()
            ],
        )
        for pending_pods in plan.remain_unschedulable
    ]
    return [*drawn, *_fold_items("Still pending", items)]


def scale_down_blocks(report: ScaleDownReport, snapshot: Snapshot) -> list[Block]:
    """Return the blocks of a scale-down report.

    These are the current nodes (nodes to be deleted come first), the target nodes of moved pods, and why nodes stay.
    """
    from kscale.capacity.scale_down import Mark, draw_nodes

    tones: dict[str, Tone] = {"delete empty": "good", "drain": "good", "unneeded": "warn", "stays": ""}
    order = list(tones)
    nodes = sorted(report.nodes, key=lambda each: order.index(each.decision))
    marks = {each.node: Mark(each.decision, tones[each.decision]) for each in nodes}
    moves = [
        (f"{each.node}: {pods(len(each.pods))}", [f"{pod} -> {target}" for pod, target in each.pods.items()])
        for each in nodes
        if each.pods
    ]
    stays_by_reason: dict[str, list[str]] = {}
    for each in nodes:
        if each.decision == "stays":
            stays_by_reason.setdefault(each.why or each.reason or "", []).append(each.node)
    why = [(f"{len(names):,}: {text}", names[:_NAMES]) for text, names in stays_by_reason.items()]
    return [
        draw_nodes("Nodes now", snapshot, marks),
        *_fold_items("Where pods land", moves),
        *_fold_items("What stays", why),
    ]


def mix_blocks(plan: MixPlan, groups: Iterable[NodeGroup], snapshot: Snapshot) -> list[Block]:
    """Return the blocks of a mix plan: new nodes, pods without a node, and what the bound ignores.

    Nodes are drawn if ``plan`` has its placements.
    """
    from kscale.capacity.scale_down import NewNode, draw_new_nodes

    template = {group.id: group.template for group in groups}
    nodes = []
    for node in plan.nodes or ():
        node_template = template[node.offer]
        assert node_template is not None, "offers have templates"
        description = ", ".join(filter(None, (node.type, node.zone, f"${node.price:,.4g}/h")))
        nodes.append(NewNode(node.name, description, node_template, node.pods))
    relaxed = [("What it does not see", plan.bound.relaxed)] if plan.bound.relaxed else []
    return [
        *([draw_new_nodes("New nodes", snapshot, nodes)] if nodes else []),
        *_fold_items("Without a place", _format_names(plan.unschedulable)),
        *_fold_items("Not in the bound", relaxed),
    ]


def cost_blocks(report: CostReport) -> list[Block]:
    """Return the bar charts of a cost report.

    With an allocation (``report.allocation``), the bars are by its dimension, such as team, for its period. Otherwise
    they are the hourly cost by namespace.
    """
    divided = report.allocation
    if divided is None:
        rows: list[tuple[str, Sequence[float]]] = [(line.name, [line.cost]) for line in report.namespaces]
        if report.idle > 0:
            rows.append(("(idle)", [report.idle]))
        return [_draw_bars("Cost of an hour by namespace", ["requested"], rows)]
    rows = [(line.name, [line.requested, line.idle, line.storage]) for line in divided.lines]
    title = f"Cost of {divided.hours:,.6g} h by {divided.by}"
    blocks = [_draw_bars(title, ["requested", "idle", "storage"], rows)]
    measured = [(line.name, [line.by_usage]) for line in divided.lines if line.by_usage is not None]
    if measured:
        blocks.append(_draw_bars(f"{title} and usage", ["by usage"], measured))
    return blocks


def _draw_bars(title: str, parts: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]]) -> Block:
    """Draw at most 40 rows (name, amount of each part in $) as bars; the chart states how many rows are left out."""
    return Bars(title, parts, rows[:_BARS], "$", max(0, len(rows) - _BARS))


def headroom_blocks(report: HeadroomReport, snapshot: Snapshot) -> list[Block]:
    """Return the blocks of a headroom report: all nodes, and the pods that the loss of nodes or zones leaves unplaced.

    Nodes whose loss leaves pods without a node come first.
    """
    from kscale.capacity.scale_down import Mark, draw_nodes

    pairs = report.pairs
    alone = report.nodes if pairs is None else pairs.alone
    losses = [*report.zones, *alone, *report.lost, *([] if pairs is None else pairs.worst)]
    bad = sorted((loss for loss in losses if loss.homeless), key=lambda loss: -loss.homeless)
    homeless = {loss.name: loss.homeless for loss in alone if loss.homeless}
    first = sorted(snapshot.nodes, key=lambda name: -homeless.get(name, 0))
    marks = {
        name: Mark(f"{pods(homeless[name])} homeless if lost", "bad") if name in homeless else Mark() for name in first
    }
    items = [
        (
            f"Without {loss.name}: {loss.homeless:,} of {pods(loss.pods)} find no place",
            _first(loss.first, loss.homeless),
        )
        for loss in bad[:_NAMES]
    ]
    return [draw_nodes("Nodes now", snapshot, marks), *_fold_items("Who would be homeless", items)]


def node_usage_blocks(report: NodeUsageReport, snapshot: Snapshot) -> list[Block]:
    """Return the blocks of a node usage report: nodes in the report's order, and the pods that block their removal."""
    from kscale.capacity.scale_down import Mark, draw_nodes

    marks = {
        row.node: Mark("removable", "good") if row.removable else Mark(row.reason or "", "") for row in report.nodes
    }
    holds = [(f"{row.node}: {pods(len(row.held_by))}", [hold.why for hold in row.held_by]) for row in report.nodes]
    return [
        draw_nodes("Nodes now", snapshot, marks),
        *_fold_items("What keeps nodes", [(title, lines) for title, lines in holds if lines]),
    ]


def consolidation_blocks(plan: ConsolidationPlan, snapshot: Snapshot) -> list[Block]:
    """Return the blocks of a consolidation plan.

    These are cost and number of nodes after each step, the nodes that are removed or stay, and each step's actions.
    """
    from kscale.capacity.scale_down import Mark, draw_nodes

    today = plan.table[0]
    times = [nanoseconds(step.at) for step in plan.steps]
    # The cluster of today is the first point; a step counts from a second after its start.
    seconds = [0.0, *((time - times[0]) / 1e9 + 1.0 for time in times)]
    blocks: list[Block] = []
    if plan.steps:
        blocks += [
            Chart("Cost per hour after each step", seconds, {"$/h": [today.cost, *(s.cost for s in plan.steps)]}),
            Chart(
                "Nodes after each step",
                seconds,
                {"nodes": [float(today.nodes or 0), *(float(s.nodes) for s in plan.steps)]},
                integral=True,
            ),
        ]
    marks = {}
    for step in plan.steps:
        marks.update({name: Mark(f"step {step.number}", "good") for name in step.remove if name in snapshot.nodes})
    reasons = {node.node: node.why for node in plan.held}
    marks.update({name: Mark("held", "warn") for name in reasons})
    marks.update({name: Mark() for name in snapshot.nodes if name not in marks})
    steps = [
        (
            f"Step {step.number} ({step.kind}): {len(step.remove):,} removed, {pods(len(step.evict))} evicted",
            [
                *(f"add {node.name} ({node.group}, ${node.price:,.4g}/h)" for node in step.add),
                *(f"wave {each.wave}: {each.pod}: {each.from_node} -> {each.to}" for each in step.evict),
                *(f"remove {name}" for name in step.remove),
            ],
        )
        for step in plan.steps
    ]
    return [
        *blocks,
        draw_nodes("Nodes today", snapshot, marks),
        *_fold_items("Steps", steps),
        *_fold_items("What stays", [(f"{name}: {why}", []) for name, why in reasons.items()]),
    ]


def drain_blocks(report: DrainReport, snapshot: Snapshot) -> list[Block]:
    """Return the blocks of a drain report: the drained nodes as they are now, and the pods grouped by their fate."""
    from kscale.capacity.scale_down import Mark, draw_nodes

    by_fate: dict[str, list[str]] = {}
    for pod in report.pods:
        text = f"{pod.pod} -> {pod.to}" if pod.to else f"{pod.pod}: {pod.why}" if pod.why else pod.pod
        by_fate.setdefault(pod.fate, []).append(text)
    blocked = {pod.node for pod in report.pods if pod.fate == "blocked"}
    marks = {name: Mark("blocked", "bad") if name in blocked else Mark("drained", "good") for name in report.nodes}
    items = [(f"{fate}: {pods(len(lines))}", lines) for fate, lines in by_fate.items()]
    return [draw_nodes("Nodes before the drain", snapshot, marks), *_fold_items("What happens to the pods", items)]


def preemption_blocks(report: PreemptionReport, snapshot: Snapshot) -> list[Block]:
    """Return the blocks of a preemption: the candidates as they are now, and the victims of each."""
    from kscale.capacity.scale_down import Mark, draw_nodes

    candidates = [row for row in report.nodes if row.outcome in ("chosen", "candidate")]
    tones: dict[str, Tone] = {"chosen": "good", "candidate": "warn"}
    marks = {row.node: Mark(row.outcome, tones[row.outcome]) for row in candidates}
    items = [(f"{row.node}: {pods(len(row.victims))}", [victim.pod for victim in row.victims]) for row in candidates]
    drawn: list[Block] = [draw_nodes("Candidates now", snapshot, marks)] if marks else []
    return [*drawn, *_fold_items("Victims by node", items)]


def hpa_blocks(report: HPAReport) -> list[Block]:
    """Return one folded block with the metrics, conditions and events of each HPA; an empty list without HPAs."""
    items = []
    for each in report.hpas:
        lines = [
            f"{metric.name}: {metric.error or f'{metric.current} of {metric.target}, {metric.proposal} replicas'}"
            for metric in each.metrics
        ]
        lines += [f"{c.type}={c.status} {c.reason}: {c.message}" for c in each.conditions]
        lines += [f"{event.type} {event.reason}: {event.message}" for event in each.events]
        items.append((f"{each.namespace}/{each.name}", lines))
    return _fold_items("Why", items)


def simulation_blocks(run: Simulation) -> list[Block]:
    """Return charts of the simulated cluster over time; empty without samples."""
    columns = run.timeline.columns()
    times = columns.pop("time")
    if not len(times):
        return []
    x = [(int(time) - int(times[0])) / 1e9 for time in times]
    return [
        Chart(
            title,
            x,
            {name.replace("_", " "): [float(value) for value in columns[name]] for name in names},
            unit=title.lower(),
            integral=title not in _FRACTIONAL,
        )
        for title, names in _CHARTS.items()
    ]


def compared_simulation_blocks(runs: Mapping[str, Simulation]) -> list[Block]:
    """Return charts that show the same column of several runs, by the name of the run; empty without samples.

    Runs that were interrupted are shown up to the end of the shortest one.
    """
    columns = {name: run.timeline.columns() for name, run in runs.items()}
    count = min(len(each["time"]) for each in columns.values())
    if not count:
        return []
    times = next(iter(columns.values()))["time"]
    x = [(int(times[i]) - int(times[0])) / 1e9 for i in range(count)]
    return [
        Chart(
            title,
            x,
            {name: [float(value) for value in each[column][:count]] for name, each in columns.items()},
            unit=title.lower(),
            integral=title not in _FRACTIONAL,
        )
        for title, column in _COMPARED.items()
    ]
