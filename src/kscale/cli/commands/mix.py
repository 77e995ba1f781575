"""``kscale mix``: the cheapest mix of node types, with a proven lower bound of the cost."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from kscale.cli.groups import GroupSource, Untyped
from kscale.cli.inputs import DUMP_HELP, daemon_sets_alone, manifests, read, workloads_without_pods
from kscale.cli.karpenter import karpenter_notes, karpenter_table
from kscale.cli.live_inputs import PlannedClusters
from kscale.cli.output import Answer, Cell, Column, Row, Show, Table, View, make_columns, share_cell
from kscale.cli.pictures import mix_blocks
from kscale.cli.terminal import pods as pods_text
from kscale.errors import InputError
from kscale.files import replace_file

if TYPE_CHECKING:
    from kscale.capacity.mix import MixPlan
    from kscale.capacity.mix.records import MixLine
    from kscale.cli.terminal import Terminal
    from kscale.objects.nodegroup import NodeGroup

__all__ = ["EPILOG", "check_budget", "command", "deadlines_within", "mix_view"]

EPILOG = DUMP_HELP
MATTER = ("DaemonSet", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "Namespace")
# Shares of the time after which the bound and the plan (and those of few types) end. The rest is for the exact check.
_ENDS = (0.55, 0.85)
_ENDS_WITH_FEW_TYPES = (0.4, 0.55, 0.85)
_LATE = 1.1  # a mix is late if it takes more than this multiple of its budget
_CHECK = 15e-6  # seconds for the exact check and the output of one pod


class Which(StrEnum):
    """Pods for which nodes are planned."""

    PENDING = "pending"
    ALL = "all"


def command(
    *,
    source: PlannedClusters,
    group_source: GroupSource,
    pods: Which = Which.PENDING,
    ignore_existing: bool = False,
    max_types: Annotated[int | None, typer.Option(min=1)] = None,
    curve: bool = False,
    spot_share: Annotated[float | None, typer.Option(min=0, max=1)] = None,
    limit: list[str] | None = None,
    budget: Annotated[float, typer.Option(min=0)] = 10.0,
    to_groups: Path | None = None,
    to_nodepool: Path | None = None,
    node_class: str | None = None,
    show: Show,
) -> Answer:
    """Which node types, how many of each, at what cost, so that all pods have a place; and how cheap it can be at best.

    The node types are those of the groups (-g, within their limits) or of a catalogue. The bound is proven: no nodes
    for these pods cost less per hour. Every pod of the plan was placed by the exact predicates.

    Parameters
    ----------
    pods
        Pods to plan for. pending: the pending pods; all: all pods, on new nodes only, as if the cluster were built
        anew.
    ignore_existing
        Ignore existing nodes: place all pods on new nodes.
    max_types : K
        Maximum number of different instance types.
    curve
        Also show what 1, 2, 3 and 5 types would cost.
    spot_share
        Maximum share of the CPU of new nodes that is on spot nodes.
    limit : RESOURCE=N
        Maximum of a resource on all nodes together, existing nodes included: cpu=400, memory=1Ti, nodes=50. Repeatable.
    budget : SECONDS
        Time limit in seconds for bound, plan and exact check, counted from when the files are read.
    to_groups : FILE
        Write the plan as a groups file (JSON).
    to_nodepool : FILE
        Write the plan as a NodePool of Karpenter.
    node_class : GROUP/KIND/NAME
        The node class of the NodePool. The default is that of the nodes' cloud:
        karpenter.k8s.aws/EC2NodeClass/default, karpenter.azure.com/AKSNodeClass/default or
        karpenter.k8s.gcp/GCENodeClass/default.

    Raises
    ------
    InputError
        If no node group is known, or the input cannot be read.
    typer.BadParameter
        If options contradict each other.

    Returns
    -------
    Answer
        The exit status is 1 if a pod fits on no node of the plan.
    """
    from kscale.capacity.machine_types import architectures_of
    from kscale.capacity.mix import ALL, MixOptions, mix

    check_budget(budget)
    source.check_alone(("--to-groups", to_groups), ("--to-nodepool", to_nodepool))
    chosen_class = _node_class(node_class, to_nodepool)
    if pods is Which.ALL and (source.namespace is not None or source.selector):
        raise typer.BadParameter("--pods all is about all pods: leave out -n and -l", param_hint="--pods")
    if pods is Which.ALL and source.pod:
        raise typer.BadParameter("--pods all and --pod exclude each other", param_hint="--pod")
    workloads = manifests(source.pod, source, show.terminal, source.namespace) if source.pod else None
    matter = MATTER if source.has_input else ()
    cluster, snapshot = read(source, show.terminal, matter=matter, manifests=workloads)
    unmodelled: list[str] = []
    pod_names: Sequence[str] | str | None
    if workloads is None:
        pod_names = source.select_pods(cluster, snapshot, show.terminal)
    else:
        from kscale.snapshot.manifests import completing_classes, with_manifests

        unmodelled = [*workloads.list_unmodelled(cluster), *workloads.unknown_classes(completing_classes(cluster))]
        cluster, pod_names = with_manifests(cluster, workloads.workloads)
        snapshot = cluster.snapshot(dra=snapshot.dra)
    named = group_source.groups(cluster, snapshot, show.terminal, untyped=Untyped.ALL)
    groups = _drop_unpriced(group_source, named, show.terminal)
    if not groups:
        raise InputError("no node group is known: name some with -g, or types with --catalogue and --instance-type")
    if to_nodepool is not None and chosen_class is None:
        _check_cloud(groups)
    shared = group_source.pool_groups.limits if group_source.pool_groups is not None else []
    options = MixOptions(
        shared_limits=shared,
        max_types=max_types,
        curve=curve,
        spot_share=spot_share,
        limits=_limits(limit or []),
        existing=not ignore_existing,
        bound_effort=None,
        plan_effort=None,
        threads=source.threads or min(os.cpu_count() or 1, 8),
    )
    world = cluster if pods is Which.ALL else snapshot
    count = len(snapshot.pods) + len(snapshot.pending) if pods is Which.ALL else len(pod_names or snapshot.pending)
    began = time.monotonic()
    stop = deadlines_within(budget, few_types=curve or max_types is not None, pods=count)
    choice = None
    if pods is Which.PENDING:
        names = list(snapshot.pending if pod_names is None else pod_names)
        choice = group_source.karpenter_choice(snapshot, names, groups, show.terminal)
    with show.terminal.step("looking for the cheapest mix"):
        plan = mix(
            world,
            groups,
            pods=ALL if pods is Which.ALL else pod_names,
            options=options,
            stop=stop,
            placements=show.needs_full_record,
            start=[] if choice is None else [choice[1]],
        )
    _report_delay(time.monotonic() - began, budget, show.terminal)
    plan = msgspec.structs.replace(
        plan,
        unmodelled=[*plan.unmodelled, *unmodelled],
        assumptions=list(group_source.assumptions),
        karpenter=None if choice is None else choice[0],
    )
    _write(plan, groups, to_groups, to_nodepool, chosen_class, show.terminal)
    architectures = architectures_of(cluster).nodes
    hint = ""
    if not plan.pods:
        hint = workloads_without_pods(cluster) if workloads is None else daemon_sets_alone(workloads.workloads)
    of = "of the manifests" if workloads is not None else str(pods)
    return Answer(
        plan,
        lambda: mix_view(plan, of, architectures, hint),
        exit_code=1 if plan.unschedulable_count else 0,
        blocks=lambda: mix_blocks(plan, groups, snapshot),
    )


def check_budget(budget: float) -> None:
    """Refuse a budget that is not a number of seconds. Raises typer.BadParameter; typer's range check accepts nan."""
    if math.isnan(budget):
        raise typer.BadParameter("nan is not a number of seconds", param_hint="--budget")


def deadlines_within(
    budget: float, *, few_types: bool = False, pods: int = 0, clock: Callable[[], float] = time.monotonic
) -> tuple[Callable[[], bool], ...]:
    """Return functions that tell the bound and the plan whether their time is over.

    There is one for each, and with ``few_types`` a third one between them. All are over within ``budget`` seconds from
    now. ``few_types`` leaves time for plans with few instance types, ``pods`` (a number) for the exact check of their
    places. ``clock`` returns seconds.
    """
    began = clock()
    latest = max(0.0, budget - _CHECK * pods)

    def after(share: float) -> Callable[[], bool]:
        end = began + min(budget * share, latest * share / ends[-1])
        return lambda: clock() >= end

    ends = _ENDS_WITH_FEW_TYPES if few_types else _ENDS
    return tuple(after(share) for share in ends)


def _report_delay(seconds: float, budget: float, terminal: Terminal) -> None:
    """Warn if a mix took longer than its budget. A budget of 0 requests the minimum of work, however long it takes."""
    if budget and seconds > _LATE * budget:
        terminal.warn(
            f"the mix took {seconds:.1f} s, longer than --budget {budget:g}: a plan and its exact check need a minimum "
            f"of work, which grows with the pods and types, and other programs may have used the processors"
        )


def _drop_unpriced(source: GroupSource, groups: list[NodeGroup], terminal: Terminal) -> list[NodeGroup]:
    """Return the groups, without types of the catalogue that have no price. Groups of a file are not filtered."""
    if source.groups_file is not None or source.catalogue is None:
        return groups
    priced = [group for group in groups if group.price is not None]
    if len(priced) < len(groups):
        terminal.warn(f"types without a price in the catalogue, left out: {len(groups) - len(priced):,}")
    return priced


_MOST_AMOUNT = 2**63 - 1  # larger amounts wrap, as in upstream


def _limits(texts: Sequence[str]) -> dict[str, int]:
    """Parse ``--limit`` as amount by resource: milli-units of CPU, bytes and counts.

    Raises typer.BadParameter for malformed texts, and for amounts that are too large.
    """
    from kscale.objects.pod_resources import CPU, to_integers
    from kscale.objects.quantity import Quantity, QuantityError

    limits = {}
    for text in texts:
        name, equals, amount = text.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{text!r} is not RESOURCE=N", param_hint="--limit")
        try:
            quantity = Quantity(amount)
        except QuantityError:
            raise typer.BadParameter(f"{amount!r} is not a quantity", param_hint="--limit") from None
        if name == "nodes" and not (amount.isascii() and amount.isdecimal()):
            raise typer.BadParameter(f"{amount!r} is not a whole number of nodes", param_hint="--limit")
        amounts = {name: quantity.value()} if name == "nodes" else to_integers({name: quantity})
        maximum = Quantity(f"{_MOST_AMOUNT}m" if name == CPU else str(_MOST_AMOUNT))
        if quantity > maximum:
            raise typer.BadParameter(f"{amount!r} is more than {maximum}", param_hint="--limit")
        if name not in amounts:
            raise typer.BadParameter(f"{name!r} is no resource of nodes", param_hint="--limit")
        limits[name] = amounts[name]
    return limits


def _node_class(text: str | None, to_nodepool: Path | None) -> tuple[str, str, str] | None:
    """Split ``--node-class`` into (group, kind, name); None if it is not set.

    Raises typer.BadParameter if it is malformed, or without ``to_nodepool``.
    """
    if text is None:
        return None
    if to_nodepool is None:
        raise typer.BadParameter("--node-class needs --to-nodepool", param_hint="--node-class")
    parts = text.split("/")
    if len(parts) != 3 or not all(parts):
        raise typer.BadParameter(f"{text!r} is not GROUP/KIND/NAME", param_hint="--node-class")
    return parts[0], parts[1], parts[2]


def _check_cloud(groups: Sequence[NodeGroup]) -> None:
    """Raise InputError before the search if no plan of these groups could be written as a NodePool."""
    from kscale.capacity.mix import node_class_of, offers_of

    errors = []
    for offer in offers_of(groups):
        try:
            node_class_of([offer])
        except InputError as error:
            errors.append(error)
        else:
            return
    raise InputError(f"--to-nodepool: {errors[0]} (--node-class GROUP/KIND/NAME)")


def _write(
    plan: MixPlan,
    groups: Sequence[NodeGroup],
    to_groups: Path | None,
    to_nodepool: Path | None,
    node_class: tuple[str, str, str] | None,
    terminal: Terminal,
) -> None:
    """Write the plan as groups file and as NodePool, where a file is named. Raises InputError if that fails."""
    from kscale.capacity.mix import groups_entries, node_pool

    files: list[tuple[Path, Any]] = []
    if to_groups is not None:
        files.append((to_groups, groups_entries(plan, groups)))
    if to_nodepool is not None:
        files.append((to_nodepool, node_pool(plan, groups, node_class=node_class)))
    for path, content in files:
        try:
            replace_file(path, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None
        terminal.note(f"wrote {path}")


def mix_view(plan: MixPlan, of: str = "pending", architectures: Collection[str] = (), hint: str = "") -> View:
    """Build the view of a mix plan.

    Parameters
    ----------
    plan : MixPlan
    of : str
        Describes the pods in the headline.
    architectures : collection of str
        Architectures of the cluster's nodes.
    hint : str
        Last line of the footer.
    """
    usual = set(architectures) or {"amd64"}
    others = sorted({line.arch for line in plan.lines if line.arch} - usual)
    reserved = any(line.capacity_type == "reserved" for line in plan.lines)
    columns = (
        Column("TYPE"),
        Column("ARCH", wide=not any(line.arch for line in plan.lines)),
        Column("GEN", "right", wide=all(line.generation is None for line in plan.lines)),
        Column("CAPACITY", wide=not reserved),
        *_COLUMNS,
    )
    footer = []
    placed = plan.pods - plan.unschedulable_count
    if placed:
        footer.append(f"Checked by the exact predicates: {placed:,} of {pods_text(plan.pods)} have a place.")
    if plan.repairs.moved or plan.repairs.added:
        footer.append(
            f"The check moved {pods_text(plan.repairs.moved)} and added {plan.repairs.added:,} nodes "
            f"(${plan.repairs.cost:,.4g}/h)."
        )
    if plan.bound.relaxed and plan.bound.cost is not None:
        footer.append(f"Not in the bound: {'; '.join(plan.bound.relaxed)}.")
    if plan.bound.cost is None and placed:
        footer.append("There is no bound of the cost, because limits leave pods without a place.")
    if plan.limits_reached:
        footer.append(f"At their limit: {', '.join(plan.limits_reached)}.")
    if plan.unschedulable_count:
        footer.append(f"{pods_text(plan.unschedulable_count)} without a place, {plan.unschedulable[0]} for one.")
    if plan.bound.method == "volume" and plan.bound.cost is not None and placed:
        footer.append("The bound is by prices of resources; the extra [solver] and more time (--budget) prove more.")
    if others:
        existing_text = (
            f"the cluster's are {', '.join(sorted(architectures))}"
            if architectures
            else "the architecture of the cluster's nodes is unknown"
        )
        footer.append(
            f"Some new nodes are {' and '.join(others)}; {existing_text}. The pods' images have to exist for them."
        )
    footer += karpenter_notes(plan.karpenter)
    if plan.assumptions:
        footer.append(f"Assumed: {'; '.join(plan.assumptions)}.")
    if plan.unmodelled:
        footer.append(f"Not judged yet: {', '.join(plan.unmodelled)}.")
    if hint:
        footer.append(hint)
    curve = [
        [
            "any" if point.types is None else point.types,
            Cell(_money(point.cost), value=point.cost),
            point.unschedulable_count,
            ", ".join(point.chosen),
        ]
        for point in plan.curve
    ]
    return View(
        headline=_headline(plan, of),
        tables=[
            Table(columns, [_row(line) for line in plan.lines]),
            *karpenter_table(plan.karpenter),
            Table(_CURVE, curve, title="What fewer types would cost"),
        ],
        footer=footer,
        names=[f"instancetype/{line.type}" for line in plan.lines],
    )


_COLUMNS = (
    *make_columns("NODES", "PODS", "CPU", "MEMORY", "$/NODE", "$/H", "SHARE", align="right"),
    *make_columns("ZONES", "GROUPS", wide=True),
)
_CURVE = (*make_columns("TYPES ALLOWED", "$/H", "WITHOUT", align="right"), Column("TYPES"))


def _headline(plan: MixPlan, of: str) -> str:
    """Return a sentence with the number of new nodes and types, their cost and how far from the bound it is."""
    about = f"{pods_text(plan.pods)} {'in all' if of == 'all' else of}"
    if not plan.pods:
        return "There are no pods." if of == "all" else f"No pods are {of}."
    parts = [f"{about}: "]
    if plan.on_existing:
        parts.append(f"{plan.on_existing:,} fit on nodes that exist, ")
    types = "1 type" if plan.types == 1 else f"{plan.types:,} types"
    nodes = "1 new node" if plan.node_count == 1 else f"{plan.node_count:,} new nodes"
    parts.append(f"{nodes} of {types}, ${_money(plan.cost)}/h")
    if plan.bound.gap is not None and plan.bound.cost is not None and plan.node_count:
        bound = _money(plan.bound.cost)
        parts.append(f", proven within {plan.bound.gap:.2%} of the cheapest (at least ${bound})")
    if plan.unschedulable_count:
        parts.append(f"; {plan.unschedulable_count:,} stay without")
    return "".join(parts) + "."


def _money(amount: float) -> str:
    """Format an amount with three decimals, from 100 on with two, and with commas between thousands."""
    return f"{amount:,.2f}" if amount >= 100 else f"{amount:,.3f}"


def _row(line: MixLine) -> Row:
    """Return the table row of an instance type."""
    return [
        line.type,
        line.arch or None,
        line.generation,
        line.capacity_type,
        line.nodes,
        line.pods,
        share_cell(line.utilization.get("cpu")),
        share_cell(line.utilization.get("memory")),
        Cell(f"{line.price:,.4g}", value=line.price),
        Cell(_money(line.cost), value=line.cost),
        share_cell(line.share),
        _counts(line.zones),
        _counts(line.groups),
    ]


def _counts(counts: dict[str, int]) -> str:
    """Format counts by name: ``a 2, b 1``."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
