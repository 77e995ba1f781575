"""Overview of a cluster: its nodes, its pending pods, and what the Cluster Autoscaler would do next.

Not in upstream.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar, Final, NamedTuple

from kscale.ca.entry_points import scale_up
from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.loop_context import LoopInputs
from kscale.ca.loop_state import LoopState
from kscale.ca.options import AutoscalingOptions, default_options
from kscale.ca.scale_up.plan import ScaleUpPlan
from kscale.capacity.group_templates import loop_groups, with_members
from kscale.capacity.records import Part
from kscale.capacity.scale_down import ScaleDownReport, report_scale_down
from kscale.effects import Moment, moment, to_text
from kscale.objects.api.core import Pod
from kscale.objects.conditions import find, is_true
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.pod_resources import CPU, MEMORY
from kscale.records import Record
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["ClusterOverview", "GroupGrowth", "Outlook", "OverviewNode", "PendingSummary", "report_overview"]

_NOT_COUNTED: Final = "the scheduler has not said yet that it is unschedulable"


class OverviewNode(Part, frozen=True):
    """A node, and the decision of scale-down on it.

    Attributes
    ----------
    name : str
        Name of the node.
    group : str or None
        Id of its node group. None: none.
    ready : bool
        Whether its condition ``Ready`` is true.
    unschedulable : bool
        Whether it is cordoned (``spec.unschedulable``).
    pods : int
        Number of pods on it.
    cpu : int
        CPU requests of its pods, in milli-cores.
    allocatable_cpu : int
        Allocatable CPU, in milli-cores.
    memory : int
        Memory requests of its pods, in bytes.
    allocatable_memory : int
        Allocatable memory, in bytes.
    decision : str
        Decision of scale-down: ``delete empty``, ``drain``, ``unneeded`` (may be removed later) or ``stays``.
    why : str
        Explanation of the decision. Empty for ``delete empty`` and ``drain``.
    """

    name: str
    group: str | None
    ready: bool
    unschedulable: bool
    pods: int
    cpu: int
    allocatable_cpu: int
    memory: int
    allocatable_memory: int
    decision: str
    why: str = ""


class PendingSummary(Part, frozen=True):
    """Pending pods with the same prospect for the same reason.

    Attributes
    ----------
    pod : str
        One of the pods, as ``namespace/name``.
    pods : int
        Number of these pods.
    prospect : str
        ``fits`` (on a node that exists or is coming), ``new node``, ``stays pending`` or ``not counted`` (the scheduler
        has not reported the pod as unschedulable).
    why : str
        Explanation of the prospect.
    since : str or None
        Creation time of the oldest of these pods (RFC 3339). None: unknown.
    """

    pod: str
    pods: int
    prospect: str
    why: str
    since: str | None = None


class GroupGrowth(Part, frozen=True):
    """Growth of a node group.

    Attributes
    ----------
    group : str
        Id of the node group.
    current : int
        Number of nodes now.
    new : int
        Number of nodes after the scale-up.
    """

    group: str
    current: int
    new: int


class ClusterOverview(Record, frozen=True):
    """The nodes and pending pods of a cluster, and what one loop of the Cluster Autoscaler would do.

    Attributes
    ----------
    time : str
        Time of the loop (RFC 3339).
    unready : int
        Number of nodes that are not ready.
    scale_up : str
        Upstream's result of the scale-up, such as ``ScaleUpSuccessful``.
    growth : list of GroupGrowth
        Node groups that would grow.
    scale_down : str
        Upstream's result of the scale-down, such as ``ScaleDownNodeDeleteStarted``.
    pending_summaries : list of PendingSummary
        Pending pods by prospect and reason, with pods that stay pending first.
    nodes : list of OverviewNode
        All nodes.
    """

    KIND: ClassVar[str] = "ClusterOverview"
    ROWS: ClassVar[str] = "nodes"

    time: str
    unready: int
    scale_up: str
    growth: list[GroupGrowth]
    scale_down: str
    pending_summaries: list[PendingSummary]
    nodes: list[OverviewNode]


class Outlook(NamedTuple):
    """An overview with the plans that it summarizes, and the state of scale-down for the next overview."""

    overview: ClusterOverview
    scale_up: ScaleUpPlan
    scale_down: ScaleDownReport
    state: LoopState


def report_overview(
    cluster: Cluster,
    snapshot: Snapshot,
    groups: Iterable[NodeGroup],
    *,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    state: LoopState | None = None,
    gpu_label: str = DEFAULT_GPU_LABEL,
) -> Outlook:
    """Summarize a cluster and one loop of the Cluster Autoscaler on it; nothing is changed.

    Parameters
    ----------
    cluster : Cluster
        Objects of the cluster.
    snapshot : Snapshot
        Snapshot of the cluster.
    groups : iterable of NodeGroup
        Node groups as described, without templates.
    now : datetime or Moment
        Time of the loop.
    options : AutoscalingOptions, optional
        Flags of the Cluster Autoscaler.
    state : LoopState, optional
        State of the previous overview: since when nodes are unneeded.
    gpu_label : str, optional
        Node label that names the GPU type.

    Returns
    -------
    Outlook
        The overview, the plans, and the state for the next overview. Each overview assumes that no scale-up was
        requested before.

    Raises
    ------
    InputError
        If a group has no node to model new ones on, or if ``now`` is not a time.
    """
    options = options or default_options()
    time = moment(now)
    sized, templates = loop_groups(cluster, snapshot, groups, options=options, now=time)
    members = with_members(sized, snapshot.columns.objects)
    up = scale_up(
        snapshot,
        members,
        now=time,
        options=options,
        inputs=LoopInputs(templates=templates, gpu_label=gpu_label),
    )
    down, after = report_scale_down(snapshot, members, now=time, options=options, state=state, gpu_label=gpu_label)
    nodes = _summarize_nodes(snapshot, down)
    overview = ClusterOverview(
        time=to_text(time) or "",
        unready=sum(not node.ready for node in nodes),
        scale_up=up.result,
        growth=[GroupGrowth(group=info.group, current=info.current, new=info.new) for info in up.scale_ups],
        scale_down=down.result,
        pending_summaries=_summarize_pending(snapshot, up),
        nodes=nodes,
    )
    return Outlook(overview, up, down, after)


def _summarize_nodes(snapshot: Snapshot, report: ScaleDownReport) -> list[OverviewNode]:
    """Build the row of each node, in the order of the snapshot."""
    pods = snapshot.pod_count.tolist()
    used, allocatable = (
        {resource: table[resource].tolist() for resource in (CPU, MEMORY)}
        for table in (snapshot.used, snapshot.columns.allocatable)
    )
    decisions = {item.node: item for item in report.nodes}
    result = []
    for i, node in enumerate(snapshot.columns.objects):
        item = decisions[node.name]
        result.append(
            OverviewNode(
                name=node.name,
                group=item.group,
                ready=is_true(node.status.conditions or (), "Ready"),
                unschedulable=node.spec.unschedulable,
                pods=pods[i],
                cpu=used[CPU][i],
                allocatable_cpu=allocatable[CPU][i],
                memory=used[MEMORY][i],
                allocatable_memory=allocatable[MEMORY][i],
                decision=item.decision,
                why=item.why,
            )
        )
    return result


def _summarize_pending(snapshot: Snapshot, plan: ScaleUpPlan) -> list[PendingSummary]:
    """Group the pending pods by prospect and reason: one row per group, with pods that stay pending first."""
    prospects: dict[str, tuple[str, str]] = {}
    for pending in plan.remain_unschedulable:
        prospects |= dict.fromkeys(pending.pods, ("stays pending", pending.why))
    growing = " or ".join(dict.fromkeys(info.group for info in plan.scale_ups))
    beyond = set(plan.beyond_limits)
    for name in plan.triggered:
        prospects[name] = (
            ("stays pending", "limits permit too few new nodes") if name in beyond else ("new node", f"of {growing}")
        )
    prospects |= dict.fromkeys(plan.schedulable, ("fits", "on a node that exists or is coming"))
    members: dict[tuple[str, str], list[str]] = {}
    for name in snapshot.pending:
        prospect = prospects.get(name) or ("not counted", _scheduler_message(snapshot.pod(name)) or _NOT_COUNTED)
        members.setdefault(prospect, []).append(name)
    order = ("stays pending", "not counted", "new node", "fits")
    return [
        PendingSummary(pod=names[0], pods=len(names), prospect=prospect, why=why, since=_oldest(snapshot, names))
        for (prospect, why), names in sorted(members.items(), key=lambda item: order.index(item[0][0]))
    ]


def _scheduler_message(pod: Pod) -> str:
    """Return kube-scheduler's message about why the pod is not scheduled; empty if there is none."""
    condition = find(pod.status.conditions or (), "PodScheduled")
    return condition.message or "" if condition is not None and condition.status == "False" else ""


def _oldest(snapshot: Snapshot, names: Iterable[str]) -> str | None:
    """Return the oldest creation time of the named pods; None if no pod has one."""
    created = [pod.metadata.creation_timestamp for pod in map(snapshot.pod, names) if pod.metadata.creation_timestamp]
    return min(created, default=None)
