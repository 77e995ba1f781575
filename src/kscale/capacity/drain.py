"""``kscale drain``: which pods leave drained nodes, what blocks the others, and where the evicted pods go.

Not in upstream: ``kubectl drain`` only tries.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar

import msgspec
import numpy as np

from kscale.ca.options import AutoscalingOptions, default_options
from kscale.ca.scale_down.moving_pods import CODE_DAEMON_SET
from kscale.capacity.evictions import Evictions, relocate
from kscale.capacity.records import Part
from kscale.effects import Moment, moment
from kscale.errors import InputError, Problem
from kscale.objects.argument_types import typed
from kscale.records import Record
from kscale.scheduling.coercion import SnapshotLike, snapshot_of
from kscale.scheduling.place import place
from kscale.scheduling.scores.options import ScoreOptions

__all__ = ["BLOCKED", "DAEMON_SET", "ENDS", "EVICTED", "PENDING", "DrainReport", "DrainedPod", "drain"]

EVICTED, PENDING, BLOCKED, DAEMON_SET, ENDS = "evicted", "pending", "blocked", "daemonset", "ends"


class DrainedPod(Part, frozen=True):
    """A pod of a drained node.

    Attributes
    ----------
    pod : str
        The pod as ``namespace/name``.
    node : str
        The drained node.
    fate : str
        ``evicted`` (gets another node), ``pending`` (evicted, and no node takes it), ``blocked`` (must stay on its
        node), ``daemonset`` (of a DaemonSet; ends with the node) or ``ends`` (a mirror pod, or a pod that is
        terminating for too long; ends with the node).
    wave : int or None
        Number of the wave in which the pod is evicted, from 1. None: it is not evicted.
    to : str or None
        With ``evicted``: the node that kube-scheduler chooses. None otherwise.
    rule : str
        With ``blocked``: the drain rule that keeps the pod on its node.
    reason : str
        With ``blocked``: the reason as upstream names it.
    why : str
        With ``blocked``: explanation of the reason. With ``pending``: kube-scheduler's message.
    budget : str
        With ``blocked``: the PodDisruptionBudget that allows no eviction, as ``namespace/name``. Empty: none.
    """

    pod: str
    node: str
    fate: str
    wave: int | None = None
    to: str | None = None
    rule: str = ""
    reason: str = ""
    why: str = ""
    budget: str = ""


class DrainReport(Record, frozen=True):
    """Effect of draining nodes together.

    Attributes
    ----------
    nodes : list of str
        Names of the drained nodes.
    complete : bool
        Whether every pod leaves, and every evicted pod gets a node.
    waves : int
        Number of waves of evictions. The disruption budgets allow all evictions of a wave at once; the next wave begins
        when the evicted pods are ready elsewhere.
    evicted : int
        Number of pods that get another node.
    pending_count : int
        Number of evicted pods that no node takes.
    blocked : int
        Number of pods that must stay on their node.
    ending : int
        Number of pods that end with their node.
    pods : list of DrainedPod
        All pods of the nodes; blocked and pending ones first.
    """

    KIND: ClassVar[str] = "DrainReport"
    ROWS: ClassVar[str] = "pods"

    nodes: list[str]
    complete: bool
    waves: int
    evicted: int
    pending_count: int
    blocked: int
    ending: int
    pods: list[DrainedPod]


@typed
def drain(
    snapshot: SnapshotLike,
    nodes: Sequence[str],
    *,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    scores: ScoreOptions | None = None,
) -> DrainReport:
    """Simulate draining nodes together: cordon them all, then evict their pods.

    Parameters
    ----------
    snapshot : Snapshot or Cluster
        Cluster state. A Cluster is snapshotted first.
    nodes : sequence of str
        Names of the nodes.
    now : datetime or Moment
        Time of the drain: the age of kube-system pods matters.
    options : AutoscalingOptions, optional
        Options of the drain rules (``skip_nodes_with_local_storage`` and others). Default: upstream's.
    scores : ScoreOptions, optional
        Options of the scheduler. Default: those of its default profile.

    Returns
    -------
    DrainReport
        The fate of each pod of these nodes.

    Raises
    ------
    InputError
        For nodes that do not exist, for no node, for a disruption budget with an invalid selector, and for a ``now``
        that is not a time.

    Notes
    -----
    Pods that are pending now are placed first, where they fit. Nothing is preempted for an evicted pod.
    """
    at = moment(now)
    snapshot = snapshot_of(snapshot)
    names = list(dict.fromkeys(nodes))
    unknown = [name for name in names if name not in snapshot.columns.index]
    if unknown:
        raise InputError([Problem(f'there is no node "{name}"', field="nodes") for name in unknown])
    if not names:
        raise InputError("no node is named")
    scores = scores or ScoreOptions()
    before = place(snapshot, scores=scores, unacceptable_nodes=names).snapshot_after
    evictions = Evictions(snapshot, at, options or default_options())
    indices = np.array([snapshot.columns.index[name] for name in names], dtype=np.int64)
    leaving = np.flatnonzero(np.isin(snapshot.placed_node, indices)).tolist()
    holds = {i: hold for i in leaving if (hold := evictions.holds(i)) is not None}
    moving = [i for i in leaving if evictions.moves[i] and i not in holds]
    waves = evictions.split_into_waves(moving)
    relocation = relocate(before, names, waves, scores)
    wave_of = {pod: number for number, wave in enumerate(waves, 1) for pod in wave}
    pods = []
    for i in leaving:
        fate: dict[str, Any]
        if i in holds:
            fate = {"fate": BLOCKED, **msgspec.structs.asdict(holds[i])}
        elif i in relocation.targets:
            fate = {"fate": EVICTED, "wave": wave_of[i], "to": relocation.targets[i]}
        elif i in relocation.pending:
            fate = {"fate": PENDING, "wave": wave_of[i], "why": relocation.pending[i]}
        else:
            fate = {"fate": DAEMON_SET if evictions.codes[i] == CODE_DAEMON_SET else ENDS}
        node = snapshot.nodes[snapshot.placed_node[i]]
        pods.append(DrainedPod(**{"pod": snapshot.pods[i], "node": node, **fate}))
    order = [BLOCKED, PENDING, EVICTED, DAEMON_SET, ENDS]
    pods.sort(key=lambda pod: (order.index(pod.fate), pod.wave or 0))
    return DrainReport(
        nodes=names,
        complete=not holds and not relocation.pending,
        waves=len(waves),
        evicted=len(relocation.targets),
        pending_count=len(relocation.pending),
        blocked=len(holds),
        ending=sum(pod.fate in (DAEMON_SET, ENDS) for pod in pods),
        pods=pods,
    )
