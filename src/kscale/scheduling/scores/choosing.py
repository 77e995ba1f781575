"""Chooses nodes as kube-scheduler does: filters, then scores, then the choice.

Upstream: ``pkg/scheduler/schedule_one.go`` (prioritizeNodes, selectHost). Implemented in C++:
``_native/src/engine/select.cpp`` (the choice), ``scorer.cpp`` and ``scores.hpp`` (the scores).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _engine
from kscale.objects.argument_types import typed
from kscale.scheduling.coercion import PodLike, SnapshotLike, pods_of, snapshot_of
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.scores.inputs import CompiledScores
from kscale.scheduling.scores.options import ScoreOptions
from kscale.scheduling.session import Session
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["NodeScores", "choose", "node_scores"]


class NodeScores(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of the nodes that a pod fits. ``nodes``: their names in list order; ``by_plugin``: plug-in -> a score from
    0 to 100 for each node, before weights; ``total``: weighted sums; ``chosen``: the first node with the highest total,
    None if the pod fits no node. A pod with an invalid preference has no scores, and a chosen node only if it fits
    exactly one.
    """

    pod: str
    nodes: list[str]
    by_plugin: dict[str, list[int]]
    total: list[int]
    chosen: str | None


@typed
def node_scores(
    snapshot: SnapshotLike,
    pod: PodLike,
    *,
    scores: ScoreOptions | None = None,
    profile: SchedulerProfile | None = None,
) -> NodeScores:
    """Return the scores of kube-scheduler's Score plug-ins for every node that one pod fits.

    Parameters
    ----------
    snapshot : Snapshot or Cluster
        Cluster state. A Cluster is snapshotted first.
    pod : str, Pod, dict or client object
        Name of a pod, or a pod that is not in the snapshot.
    scores : ScoreOptions, optional
        Weights and strategies. ``percentage_of_nodes_to_score`` is ignored: all nodes are scored. Default: those of
        upstream's default profile.
    profile : SchedulerProfile, optional
        Scheduler profile of the filters. Default: upstream's default profile.

    Returns
    -------
    NodeScores
        Scores by plug-in, totals, and the chosen node (None if no node fits). If the pod has an invalid preference,
        there are no scores, and a node is chosen only if it is the only one that fits.

    Raises
    ------
    InputError
        If the pod cannot be read, or is not in the snapshot.
    """
    snapshot = snapshot_of(snapshot)
    records = pods_of(snapshot, [pod])
    unique, which = snapshot.distinct_classes(records)
    session = Session(snapshot, unique, profile=profile)
    options = scores or ScoreOptions()
    compiled = CompiledScores(snapshot, records, unique, which, options, profile)
    verdicts = session.engine.verdicts(np.zeros(1, dtype=np.int32))[0]
    nodes = np.flatnonzero(verdicts == 0).astype(np.int32)
    names = [snapshot.nodes[i] for i in nodes.tolist()]
    class_number = int(compiled.class_of[0])
    if compiled.broken[class_number]:
        alone = names[0] if len(names) == 1 else None
        return NodeScores(pod=records[0].key, nodes=names, by_plugin={}, total=[], chosen=alone)
    total, parts = compiled.scorer.score(class_number, nodes)
    scoring_plugins = {name for name in options.weights if options.weights[name]} | {p.name for p, _ in options.scorers}
    return NodeScores(
        pod=records[0].key,
        nodes=names,
        by_plugin={name: parts[i].tolist() for i, name in enumerate(compiled.names) if name in scoring_plugins},
        total=total.tolist(),
        chosen=names[int(np.argmax(total))] if names else None,
    )


def choose(
    snapshot: Snapshot,
    session: Session,
    records: Sequence[PodRecord],
    unique: Sequence[PodClass],
    which: NDArray[np.int32],
    scores: ScoreOptions,
    profile: SchedulerProfile | None,
    *,
    acceptable: NDArray[np.uint8] | None,
    start: int,
) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
    """Choose nodes for pods one after the other; they stay placed in the session's engine.

    ``records`` have the classes ``unique[which]`` (``which`` int32[pods]); ``scores``: options of the Score plug-ins;
    ``acceptable`` uint8[nodes]: 0 for nodes that must not be used (None: all may); ``start``: the node at which the
    search begins.

    Returns (node of each pod or -1, positions of the pods in the order they were placed, node at which the next search
    begins).
    """
    compiled = CompiledScores(snapshot, records, unique, which, scores, profile)
    index = snapshot.columns.index
    sets: dict[frozenset[str], int] = {}
    members: list[int] = []
    begins = [0]
    set_of = np.full(len(unique), -1, dtype=np.int32)
    for i in range(len(unique)):
        names = session.node_set(i)
        if names is None:
            continue
        if names not in sets:
            sets[names] = len(sets)
            members += sorted(index[name] for name in names if name in index)
            begins.append(len(members))
        set_of[i] = sets[names]
    return _engine.select(
        session.engine,
        compiled.scorer,
        which,
        compiled.class_of,
        set_of[which],
        np.array(begins, dtype=np.int32),
        np.array(members, dtype=np.int32),
        acceptable=acceptable,
        percentage=scores.percentage_of_nodes_to_score,
        start=start,
    )
