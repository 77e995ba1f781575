"""``kscale estimate``: how many nodes the pending pods need."""

from __future__ import annotations

import shlex

import typer
from msgspec.structs import replace

from kscale.capacity.records import EstimateReport, GroupEstimate
from kscale.cli.estimate_options import BoundSource, CSIOption
from kscale.cli.groups import GroupSource
from kscale.cli.inputs import DUMP_HELP, daemon_sets_alone, manifests, read, workloads_without_pods
from kscale.cli.karpenter import karpenter_notes, karpenter_table
from kscale.cli.live_inputs import AskedClusters
from kscale.cli.output import Answer, Cell, Column, Row, Show, Table, View, make_columns, share_cell
from kscale.cli.pictures import estimate_blocks
from kscale.cli.terminal import expendable_room, pods, program, rejections

__all__ = ["EPILOG", "command", "estimate_view"]

EPILOG = DUMP_HELP
MATTER = ("DaemonSet", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "Namespace")


def command(
    *,
    source: AskedClusters,
    group_source: GroupSource,
    csi: CSIOption,
    ignore_existing: bool = False,
    bounds: BoundSource,
    pod: list[str] | None = None,
    show: Show,
) -> Answer:
    """How many nodes of each group the pending pods need, and why not fewer.

    Pods that fit on existing nodes are placed there first. The estimate of each group assumes that this group alone
    takes all other pods. NODES is the result of the Cluster Autoscaler's estimator, without its limit per scale-up.
    BOUND is a proven lower bound of the number of nodes for the same pods. Features that neither number takes into
    account are named below the table.

    Parameters
    ----------
    ignore_existing
        Ignore existing nodes: place all pods on new nodes.
    pod : FILE|DIR
        Use the pods of these manifests (Pods, Deployments, Jobs, ...) instead of the pending pods. Repeatable.

    Raises
    ------
    typer.BadParameter
        If options contradict each other.

    Returns
    -------
    Answer
        The exit status is 1 if a pod fits nowhere.
    """
    from kscale.capacity.estimate import estimate_groups

    if pod and source.selector:
        raise typer.BadParameter("-l and --pod exclude each other", param_hint="-l")
    workloads = manifests(pod, source, show.terminal, source.namespace) if pod else None
    cluster, snapshot = read(source, show.terminal, matter=MATTER, manifests=workloads)
    pod_names: list[str] | None
    unmodelled: list[str] = []
    if workloads is not None:
        from kscale.snapshot.manifests import completing_classes, with_manifests

        unmodelled = [*workloads.list_unmodelled(cluster), *workloads.unknown_classes(completing_classes(cluster))]
        cluster, pod_names = with_manifests(cluster, workloads.workloads)
        snapshot = cluster.snapshot(dra=snapshot.dra)
    else:
        pod_names = source.select_pods(cluster, snapshot, show.terminal)
    snapshot = csi.apply(snapshot)
    groups = group_source.groups(cluster, snapshot, show.terminal)
    with show.terminal.step("estimating"):
        report = estimate_groups(
            snapshot,
            groups,
            pods=pod_names,
            ignore_existing=ignore_existing,
            placements=show.needs_full_record,
            bound_effort=bounds.effort(len(groups)),
            threads=bounds.threads,
        )
    choice = group_source.karpenter_choice(
        snapshot, list(snapshot.pending if pod_names is None else pod_names), groups, show.terminal
    )
    report = replace(
        report,
        karpenter=None if choice is None else choice[0],
        unmodelled=[*report.unmodelled, *unmodelled],
        assumptions=list(group_source.assumptions),
    )
    hint = ""
    if not report.pending_count:
        hint = (
            workloads_without_pods(cluster, "--pod FILE")
            if workloads is None
            else daemon_sets_alone(workloads.workloads)
        )
    again = " ".join([program(), "explain", *source.words(), *group_source.words(), *csi.words()])
    of = "of the manifests" if workloads else "pending"
    explain = "" if workloads else again  # a pod that is in no dump cannot be explained
    return Answer(
        report,
        lambda: estimate_view(report, explain, of, hint),
        exit_code=1 if report.unschedulable_count else 0,
        blocks=lambda: estimate_blocks(report, groups, snapshot),
    )


def estimate_view(report: EstimateReport, explain: str, of: str = "pending", hint: str = "") -> View:
    """Build the view of an estimate.

    Parameters
    ----------
    report : EstimateReport
    explain : str
        Command line that explains a pod, without the pod's name. Empty: not shown.
    of : str
        Describes the pods in the headline.
    hint : str
        Last line of the footer.
    """
    footer = [
        f"{group.group}: {group.nodes:,} more nodes are {group.over_maximum:,} over its maximum of "
        f"{group.maximum:,} ({group.current or 0:,} now)."
        for group in report.groups
        if group.over_maximum
    ]
    if report.unschedulable_count:
        fit = "fits" if report.unschedulable_count == 1 else "fit"
        first = shlex.quote(report.unschedulable[0])
        footer.append(f"{pods(report.unschedulable_count)} {fit} nowhere: {f'{explain} {first}' if explain else first}")
    if report.daemon_set:
        footer.append(
            f"{pods(report.daemon_set)} of DaemonSets find no room on their nodes; no new node would help them."
        )
    if report.gated:
        footer.append(f"{pods(report.gated)} not counted: waiting for scheduling gates.")
    if report.expendable:
        low = f"a priority below {report.expendable_cutoff}"
        footer.append(f"{pods(report.expendable)} not counted: {low}, so no node is added for them.")
    if report.expendable_running and report.on_existing:
        footer.append(expendable_room(report.expendable_running, report.expendable_cutoff))
    if report.terminating:
        footer.append(f"{pods(report.terminating)} not counted: being deleted, without a node.")
    if report.unmodelled:
        footer.append(f"Not judged: {', '.join(report.unmodelled)}. More nodes may be needed than NODES and BOUND say.")
    footer += karpenter_notes(report.karpenter)
    if report.assumptions:
        footer.append(f"Assumed: {'; '.join(report.assumptions)}.")
    if hint:
        footer.append(hint)
    return View(
        headline=_estimate_headline(report, of),
        tables=[
            *karpenter_table(report.karpenter),
            Table(_ESTIMATE_COLUMNS, [_estimate_row(group) for group in report.groups]),
        ],
        footer=footer,
        names=[f"nodegroup/{group.group}" for group in report.groups if group.pods],
    )


_ESTIMATE_COLUMNS = (
    Column("NODE GROUP"),
    *make_columns("NODES", "BOUND", align="right"),
    *make_columns("METHOD", "ARCH", wide=True),
    Column("GEN", "right", wide=True),
    *make_columns("PODS", "CPU", "MEMORY", align="right"),
    Column("LIMITED BY"),
    *make_columns("NOW", "MAX", align="right", wide=True),
    Column("$/H", "right", wide=True, fields=("price/h",)),
    Column("WHY NOT MORE"),
)


def _estimate_headline(report: EstimateReport, of: str) -> str:
    """Return a sentence with how many pods fit on existing nodes, need new nodes, or fit nowhere.

    ``of``: text that describes the pods, such as ``pending``.
    """
    if not report.pending_count:
        return f"No pods are {of}."
    parts = [] if report.ignored_existing else [f"{report.on_existing:,} fit on nodes that exist"]
    if report.groups:
        parts += [f"{report.need_new:,} need new nodes", f"{report.unschedulable_count:,} fit nowhere"]
    else:
        parts += [f"{report.unschedulable_count:,} do not, and no node group is known"]
    if report.daemon_set:
        parts += [f"{report.daemon_set:,} of DaemonSets"]
    return f"{pods(report.pending_count)} {of}: {', '.join(parts)}."


def _estimate_row(group: GroupEstimate) -> Row:
    """Return the table row of a node group."""
    return [
        group.group,
        group.nodes,
        group.bound if group.pods else None,
        group.bound_method or None,
        group.arch or None,
        group.generation,
        group.pods,
        share_cell(group.utilization.get("cpu")),
        share_cell(group.utilization.get("memory")),
        group.limited_by or "",
        group.current,
        group.maximum,
        None if group.price is None else Cell(f"{group.price:,.2f}", value=group.price),
        rejections(group.rejections),
    ]
