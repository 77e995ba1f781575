"""``kscale explain``: why a pod fits nowhere, with the arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from kscale.capacity.records import Explanation, GroupAnswer, NodeVerdict, PluginVerdict, Shortage
from kscale.cli.estimate_options import CSIOption
from kscale.cli.groups import GroupSource
from kscale.cli.inputs import DUMP_HELP, check_namespace, kind_of, namespaces_of, read
from kscale.cli.live_inputs import NamingClusters
from kscale.cli.output import Answer, Row, Show, Table, View, make_columns
from kscale.cli.registry import complete_explain
from kscale.cli.terminal import plural
from kscale.errors import InputError
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import KubeObject
from kscale.snapshot.cluster import Cluster

__all__ = ["EPILOG", "command", "explanation_view"]

EPILOG = DUMP_HELP
MATTER = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "Namespace")
ROWS = 10  # nodes shown without -o wide


def command(
    pod: Annotated[str, typer.Argument(autocompletion=complete_explain)],
    *,
    source: NamingClusters,
    group_source: GroupSource,
    csi: CSIOption,
    show: Show,
) -> Answer:
    """Why a pod does not fit: for each node the first plug-in that rejects it, with numbers, and what would take it.

    The second line is the text of kube-scheduler's FailedScheduling event.

    Parameters
    ----------
    pod : [NAMESPACE/]POD
        The pod, or pod/NAME; without a namespace, -n or default. deploy/NAME, job/NAME and so on stand for a pod of
        that workload: one that is pending, else one that runs, else one that the workload would create.

    Returns
    -------
    Answer
        The exit status is 0 if the pod fits now, or if a new node of a group would take it, and no gate holds it; else
        1.

    Raises
    ------
    InputError
        If the input cannot be read, or has no such pod or workload.
    """
    from kscale.capacity.explain import explain, pod_of_workload

    cluster, snapshot = read(source, show.terminal, matter=MATTER)
    if source.namespace is not None:
        check_namespace(source.namespace, namespaces_of(cluster, snapshot), show.terminal)
    workload = _workload(pod, source.namespace, cluster)
    if workload is None:
        name = _full_name(pod, source.namespace, cluster)
    else:
        name, cluster = pod_of_workload(cluster, workload)
        show.terminal.note(f"{workload.kind} {workload.key}: explaining {name}")
        snapshot = cluster.snapshot(dra=snapshot.dra)
    groups = group_source.groups(cluster, snapshot, show.terminal)
    snapshot = csi.apply(snapshot)
    with show.terminal.step("explaining"):
        report = explain(snapshot, _waiting(cluster, name) or name, groups)
    now = report.fits and not report.taken_by
    takes = not report.gates and (now or any(group.takes for group in report.groups))
    return Answer(report, lambda: explanation_view(report), exit_code=0 if takes else 1)


def _full_name(pod: str, namespace: str | None, cluster: Cluster) -> str:
    """Return ``namespace/name`` for a typed name. ``pod/NAME`` is accepted unless a namespace has that name."""
    kind, _, name = pod.rpartition("/")
    if kind in ("pod", "pods", "po"):
        try:
            cluster.pod(pod)
        except KeyError:
            kind = ""
    return f"{kind or namespace or 'default'}/{name}"


def _workload(text: str, namespace: str | None, cluster: Cluster) -> KubeObject | None:
    """Return the workload that KIND/NAME names; None if ``text`` names a pod.

    A pod takes precedence if its namespace has the name of the kind; an unknown kind is always a namespace. Raises
    InputError if the input has no such workload.
    """
    from kscale.objects.workloads import WORKLOADS

    typed, _, name = text.rpartition("/")
    kind = kind_of(typed)
    if kind == "Pod" or kind not in WORKLOADS:
        return None
    if f"{typed}/{name}" in cluster.keys("Pod"):
        return None
    key = f"{namespace or 'default'}/{name}"
    workload: KubeObject | None = next((item for item in cluster.all(kind) if item.key == key), None)
    if workload is None:
        raise InputError(f'there is no {kind} "{key}" in the input')
    return workload


def _waiting(cluster: Cluster, name: str) -> Pod | None:
    """Return the pod if scheduling gates hold it, so that no snapshot has it; None otherwise."""
    try:
        pod = cluster.pod(name)
    except KeyError:
        return None
    return pod if pod.spec.scheduling_gates else None


def explanation_view(report: Explanation) -> View:
    """Build the view of an explanation, with kube-scheduler's text of the event for comparison."""
    footer = []
    if report.nearest is not None:
        footer.append(f"Nearest: {_nearest(report)}")
    footer += _group_lines(report)
    if report.unmodelled:
        footer.append(f"Not judged: {', '.join(report.unmodelled)}.")
    if report.expendable:
        low = f"Its priority is below {report.expendable_cutoff}"
        footer.append(f"{low}: the pod is expendable, and the Cluster Autoscaler adds no node for it.")
    from kscale.capacity.explain import distance

    rows = [_verdict_row(verdict) for verdict in sorted(report.verdicts, key=distance)]
    return View(
        headline="\n".join(part for part in (_explanation_headline(report), report.event) if part),
        tables=[Table(_EXPLANATION_COLUMNS, rows, limit=ROWS)],
        footer=footer,
        names=[f"node/{name}" for name in report.fits_on],
    )


_EXPLANATION_COLUMNS = make_columns("NODE", "FIRST NO", "ASKED", "FREE", "ALSO")


def _explanation_headline(report: Explanation) -> str:
    """Return the sentence of :func:`_whether`, after one about scheduling gates if there are any."""
    nodes = f"{report.node_count:,} {plural('node', report.node_count)}"
    if report.gates:
        gates = " ".join(report.gates)
        return f"{report.pod} waits for scheduling gates: [{gates}]. Without them:\n{_whether(report, nodes)}"
    return _whether(report, nodes)


def _whether(report: Explanation, nodes: str) -> str:
    """Return a sentence that says whether the pod runs, is nominated to a node, fits, or fits nowhere and why."""
    if report.nominated:
        return (
            f"{report.pod} waits for {report.nominated}: kube-scheduler has nominated that node for it and evicts pods "
            "of a lower priority there. The Cluster Autoscaler counts it as running there and adds no node for it."
        )
    if report.node:
        return f"{report.pod} runs on {report.node}."
    fitting = [*report.fits_on, *report.fits_after_eviction]
    if fitting:
        on = f"{len(fitting):,} of {nodes}: {', '.join(fitting[:5])}"
        more = ", ..." if len(fitting) > 5 else ""
        if report.taken_by:
            reason = f"pods that are placed before it take that room: {', '.join(report.taken_by)}"
            return f"{report.pod} alone would fit on {on}{more}. But {reason}.{_eviction(report)}"
        return f"{report.pod} fits on {on}{more}.{_eviction(report)}"
    return (
        f"{report.pod} does not fit on any of {nodes}."
        if report.node_count
        else f"{report.pod} does not fit: no nodes."
    )


def _eviction(report: Explanation) -> str:
    """Return a sentence about nodes that the pod fits only after expendable pods are evicted; empty for no nodes."""
    if not report.fits_after_eviction:
        return ""
    some = f"{len(report.fits_after_eviction):,} of these" if report.fits_on else "All of these"
    which = f"pods of a priority below {report.expendable_cutoff}, whose room the Cluster Autoscaler counts as free"
    now = "" if report.fits_on else " As the nodes are now:"
    return f"\n{some} only after evicting expendable pods ({which}).{now}"


def _verdict_row(verdict: NodeVerdict) -> Row:
    """Return the table row of a node: the first plug-in that rejects the pod, amounts, and the other plug-ins."""
    first = verdict.first
    if first.shortages:
        requested = ", ".join(f"{short.resource} {short.asked}" for short in first.shortages)
        free = ", ".join(short.free for short in first.shortages)
    else:
        requested, free = first.detail or ", ".join(first.reasons), ""
    return [verdict.node, first.plugin or "PreFilter", requested, free, ", ".join(map(_also, verdict.also)) or None]


def _also(verdict: PluginVerdict) -> str:
    """Format a further plug-in that rejects the pod, with its amounts or detail in brackets."""
    detail = (
        ", ".join(f"{short.resource} {short.asked} > {short.free}" for short in verdict.shortages) or verdict.detail
    )
    return f"{verdict.plugin} ({detail})" if detail else verdict.plugin


def _short(shortages: Sequence[Shortage]) -> str:
    """Format the amounts by which resources are short, such as ``500m of cpu``."""
    return " and ".join(f"{short.short} of {short.resource}" for short in shortages)


def _nearest(report: Explanation) -> str:
    """Return a sentence about what the node that comes nearest to taking the pod lacks; empty if there is none."""
    nearest = report.nearest
    if nearest is None:
        return ""
    parts = [f"is {_short(nearest.shortages)} short"] if nearest.shortages else []
    others = [other.detail or ", ".join(other.reasons) or other.plugin for other in nearest.others]
    if others:
        parts.append(f"says no for another reason{'s' if len(others) > 1 else ''}: {'; '.join(others)}")
    return f"{nearest.node} {' and '.join(parts)}."


def _group_lines(report: Explanation) -> list[str]:
    """Return lines that name the groups whose new nodes would take the pod, or why no group's would.

    Empty without groups.
    """
    if not report.groups:
        return []
    takes = [group for group in report.groups if group.takes]
    if takes:
        names = ", ".join(f"{group.group} ({group.allocatable.get('cpu', '?')} cpu)" for group in takes[:3])
        more = f" (or of {len(takes) - 3:,} more {plural('group', len(takes) - 3)})" if len(takes) > 3 else ""
        which = f"any of {names}" if len(takes) > 1 else names
        return [f"A new node of {which}{more} would take it."]
    lines = [f"No new node of {len(report.groups):,} {plural('group', len(report.groups))} would take it:"]
    lines += [f"  {group.group}: {_no_of(group)}" for group in report.groups]
    return lines


def _no_of(group: GroupAnswer) -> str:
    """Return why a new node of the group would not take the pod."""
    reasons = ", ".join(group.reasons) or group.plugin
    if group.detail:
        reasons = f"{reasons} ({group.detail})"
    if group.csi_aware is None:
        return reasons
    if group.csi_aware:
        return f"{reasons} (with --enable-csi-node-aware-scheduling it would)"
    return (
        f"{reasons}, once the new node has its CSINode (without enable-csi-node-aware-scheduling the Cluster "
        "Autoscaler does not see that, and adds a node in vain)"
    )
