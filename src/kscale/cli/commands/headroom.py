"""``kscale headroom``: how many more of a pod fit, and what losing a node or a zone would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from msgspec.structs import replace

from kscale.cli.groups import GroupSource, Untyped
from kscale.cli.inputs import DUMP_HELP, manifests, read, workloads_without_pods
from kscale.cli.live_inputs import Clusters
from kscale.cli.output import Answer, Column, Row, Show, Table, View, failing_cell, make_columns
from kscale.cli.pictures import headroom_blocks
from kscale.cli.terminal import object_name, on_nodes, plural, pods
from kscale.errors import InputError

if TYPE_CHECKING:
    from kscale.capacity.headroom import HeadroomReport
    from kscale.capacity.losses import Loss, Repair

__all__ = ["EPILOG", "command", "headroom_view"]

EPILOG = DUMP_HELP
MATTER = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "Namespace")


def command(
    *,
    source: Clusters,
    group_source: GroupSource,
    pod: list[str] | None = None,
    zone_label: str = "topology.kubernetes.io/zone",
    lose: list[str] | None = None,
    repair: bool = False,
    show: Show,
) -> Answer:
    """How many more of a pod fit, and does everything still fit without any one node, or any one zone?

    Pods of lost nodes are placed on the other nodes, highest priority first; no pod is evicted for them. Status 1 if
    some loss would leave a pod without a place.

    Parameters
    ----------
    pod : FILE|DIR
        Manifests (Pods, Deployments, ...): compute how many more pods of each fit, each by itself. Repeatable.
    zone_label : KEY
        The node label that names the zone.
    lose : LOSS
        Simulate only this loss: node=A, node=A,B (together), zone=A, pool=GROUP; pairs: every pair of nodes.
        Repeatable.
    repair
        With --lose: also find the cheapest new nodes of the groups for the pods without a node. Lost zones offer no
        nodes.

    Raises
    ------
    InputError
        If the input or a loss cannot be read, or --repair has no node groups.
    typer.BadParameter
        If options contradict each other or have no effect.
    """
    from kscale.capacity.headroom import headroom, report_losses
    from kscale.objects.pod_admission import BUILT_IN_CLASSES

    read_manifests = manifests(pod, source, show.terminal) if pod else None
    if repair and not lose:
        raise typer.BadParameter("--repair needs --lose", param_hint="--repair")
    if lose and pod:
        raise typer.BadParameter("it has no effect with --lose", param_hint="--pod")
    needed = repair or any(text.startswith("pool=") for text in lose or ())
    if group_source.words() and not needed:
        raise typer.BadParameter("node groups are of use with --lose pool=GROUP, or --repair", param_hint="-g")
    cluster, snapshot = read(source, show.terminal, matter=MATTER, manifests=read_manifests)
    if not lose:
        workloads, classes = None, BUILT_IN_CLASSES
        if read_manifests is not None:
            from kscale.snapshot.manifests import completing_classes

            workloads, classes = read_manifests.workloads, completing_classes(cluster)
        with show.terminal.step("placing"):
            report = headroom(snapshot, workloads, zone_label=zone_label, classes=classes)
        if read_manifests is not None:
            report = replace(report, unmodelled=[*report.unmodelled, *read_manifests.list_unmodelled(cluster)])
    else:
        groups = group_source.groups(cluster, snapshot, show.terminal, untyped=Untyped.PRICES) if needed else []
        if repair:
            from kscale.capacity.cost import set_prices

            groups = set_prices(groups, group_source.read_catalogue(show.terminal))
            if not groups:
                text = "--repair needs node groups: name some (-g), or types (--catalogue and --instance-type)"
                raise InputError(text)
        with show.terminal.step("placing"):
            report = report_losses(cluster, lose, groups, repair=repair, zone_label=zone_label)
    hint = "" if read_manifests is not None else workloads_without_pods(cluster, "--pod FILE")
    homeless = any(loss.homeless for loss in (*report.nodes, *report.zones, *report.lost))
    homeless |= report.pairs is not None and (report.pairs.homeless > 0 or bool(report.pairs.alone))
    return Answer(
        report,
        lambda: headroom_view(report, hint),
        exit_code=1 if homeless else 0,
        blocks=lambda: headroom_blocks(report, snapshot),
    )


def headroom_view(report: HeadroomReport, hint: str = "") -> View:
    """Build the view of a headroom report, with the worst losses first.

    Losses of any one node or zone are listed only if they leave pods without a node, requested losses always. ``hint``
    is the last line of the footer.
    """
    if report.lost or report.pairs is not None:
        return _build_loss_view(report)
    bad_nodes = [loss for loss in report.nodes if loss.homeless]
    parts = [] if report.more is None else [f"{report.more:,} more fit."]
    if len(report.pods) > 1:
        full = sum(not item.more for item in report.pods)
        room = (
            f"{full:,} of them {'has' if full == 1 else 'have'} no room for one more pod"
            if full
            else "each has room for one more pod"
        )
        parts.append(f"{len(report.pods):,} workloads: {room}.")
    lost = f"Losing any one node: {_sentence(bad_nodes, report.nodes)}."
    parts.append(lost if report.nodes else "The input has no nodes.")
    if report.zones:
        parts.append(f"Losing any one zone: {_sentence([z for z in report.zones if z.homeless], report.zones)}.")
    tables = [
        Table(
            _COLUMNS[:5],
            [[kind, item.name, item.pods, failing_cell(item.homeless), ", ".join(item.first)] for item in bad],
            limit=20,
        )
        for kind, losses in (("zone", report.zones), ("node", report.nodes))
        if (bad := sorted((loss for loss in losses if loss.homeless), key=lambda loss: -loss.homeless))
    ]
    if len(report.pods) > 1:
        columns = (Column("WORKLOAD"), Column("MORE", "right"), *make_columns("LAND ON", "WHY NOT MORE"))
        more: list[Row] = [
            [
                f"{item.kind}/{item.pod.partition('/')[0]}/{item.name}",
                item.more,
                on_nodes(item.placement) if item.placement else "",
                item.next_event,
            ]
            for item in report.pods
        ]
        tables.insert(0, Table(columns, more))
    footer = [hint] if hint else []
    if report.placement:
        footer.append(f"They land on {on_nodes(report.placement)}.")
    if report.next_event:
        footer.append(f"The next one does not fit: {report.next_event}")
    if report.unmodelled:
        footer.append(f"Not judged yet: {', '.join(report.unmodelled)}.")
    return View(
        headline=" ".join(parts),
        tables=tables,
        footer=footer,
        names=[object_name("node", None, loss.name) for loss in bad_nodes],
    )


_COLUMNS = (
    *make_columns("LOSS OF", "NAME"),
    *make_columns("PODS", "HOMELESS", align="right"),
    *make_columns("AMONG THEM", "REPAIRED BY"),
)


def _build_loss_view(report: HeadroomReport) -> View:
    """Build the view of the requested losses and the worst pairs of nodes."""
    rows: list[Row] = []
    parts = []
    if report.lost:
        bad = [loss for loss in report.lost if loss.homeless]
        parts.append(
            f"{len(bad):,} of {len(report.lost):,} {plural('loss', len(report.lost))} would leave pods homeless."
        )
        rows += [[*_loss(loss), _repair(loss.repair)] for loss in report.lost]
    if report.pairs is not None:
        pairs = report.pairs
        parts.append(
            f"Of {pairs.pairs:,} pairs of nodes that may each be lost, {pairs.homeless:,} would leave pods homeless; "
            f"{len(pairs.alone):,} nodes may not be lost alone."
        )
        rows += [[*_loss(loss, "pair"), _repair(loss.repair)] for loss in pairs.worst]
    return View(headline=" ".join(parts), tables=[Table(_COLUMNS, rows)])


def _loss(loss: Loss, kind: str = "") -> Row:
    """Build the row of a loss. ``kind``: text of the first column; default: taken from the loss's ``KIND=NAME``."""
    if not kind:
        kind, _, name = loss.name.partition("=")
        return [kind, name, loss.pods, failing_cell(loss.homeless), ", ".join(loss.first)]
    return [kind, loss.name, loss.pods, failing_cell(loss.homeless), ", ".join(loss.first)]


def _repair(repair: Repair | None) -> str:
    """Describe the new nodes that repair a loss, and what stays without a node; empty for None."""
    if repair is None:
        return ""
    limits = f" (at their limit: {', '.join(repair.limits_reached)})" if repair.limits_reached else ""
    left = repair.unschedulable_count
    fit = f"{pods(left)} {'fits' if left == 1 else 'fit'} on no new node{limits}"
    if not repair.offers:
        return (
            fit
            if repair.unschedulable_count
            else "no new nodes: in another order the pods fit on the nodes that are left"
        )
    nodes = " and ".join(f"{count:,} x {name}" for name, count in repair.offers.items())
    return f"{nodes}, ${repair.cost:,.3f}/h" + (f"; {fit}" if repair.unschedulable_count else "")


def _sentence(bad: list[Loss], every: list[Loss]) -> str:
    """Describe which losses leave pods without a node: those in ``bad``, out of all losses in ``every``."""
    if not bad:
        return "all fit again"
    if len(bad) == 1:
        return f"all fit again except with {bad[0].name} ({pods(bad[0].homeless)} homeless)"
    return f"{len(bad):,} of {len(every):,} leave pods homeless"
