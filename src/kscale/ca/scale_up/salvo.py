"""Several scale-ups in one loop (``--salvo-scale-up``): each sees the nodes that the ones before asked for."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace as replace_input
from datetime import timedelta
from itertools import count
from typing import Any

import msgspec
import numpy as np

from kscale.ca.cluster_state import ClusterState
from kscale.ca.expander.types import ExpanderInput
from kscale.ca.orchestrator import Orchestration, orchestrate_steps
from kscale.ca.scale_up.scene import bind, hold_claims, put
from kscale.ca.scale_up.status import SUCCESSFUL
from kscale.ca.templates import fresh_copy
from kscale.objects.core import Node, Pod
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.nodegroups import Groups
from kscale.scheduling.devices.reserve import reserve
from kscale.scheduling.fork import fork
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.record import PodRecord, pod_record
from kscale.snapshot.snapshot import Snapshot

__all__ = ["Salvo", "SalvoRound", "salvo_steps"]


class SalvoRound(msgspec.Struct, kw_only=True):
    """One scale-up of the salvo, and how many nodes it was given."""

    done: Orchestration
    node_count: int


class Salvo(msgspec.Struct, kw_only=True):
    """All rounds; ``cluster`` is the simulated cluster after them. ``warning`` says why it ended early, if it did."""

    rounds: list[SalvoRound]
    cluster: Cluster
    warning: str = ""


def salvo_steps(
    cluster: Cluster,
    pods: Iterable[Pod | PodRecord],
    groups: Groups,
    *,
    nodes: Sequence[Node],
    templates: Mapping[str, NodeTemplate],
    state: ClusterState,
    budget: timedelta = timedelta(minutes=1),
    elapsed: Callable[[], timedelta] = timedelta,
    cursor: int = 0,
    csi: bool = False,
    dra: bool = False,
    **given: Any,
) -> Generator[Any, Any, Salvo]:
    """:func:`kscale.ca.orchestrate_steps` again and again with the pods that remain.

    Ends with an error, a scale-up that did nothing, when no pod is left, or when ``elapsed`` (since the start; asked
    after a round) has reached ``budget``. Between rounds the new nodes are put into the simulated cluster with the
    pods that triggered them, their claims allocated. ``cluster`` itself does not change; ``csi`` and ``dra`` as in
    :meth:`kscale.Cluster.snapshot`; ``given``: what ``orchestrate_steps`` takes besides.
    """
    simulated = cluster.copy()
    result = Salvo(rounds=[], cluster=simulated)
    pending = [pod_record(pod) for pod in pods]
    nodes = list(nodes)
    for number in count():
        done: Orchestration = yield from orchestrate_steps(
            simulated.snapshot(csi=csi, dra=dra),
            pending,
            groups,
            nodes=nodes,
            templates=templates,
            state=state,
            cursor=cursor,
            elapsed=elapsed,
            **given,
        )
        result.rounds.append(SalvoRound(done=done, node_count=len(nodes)))
        triggered = set(done.status.pods_triggered)
        fitted = {pod.key: pod for pod in pending if pod.key in triggered}
        pending = [pod for pod in pending if pod.key not in triggered]
        if done.status.result != SUCCESSFUL or not triggered or not pending or elapsed() >= budget:
            return result
        state, cursor, groups, templates = done.state, done.cursor, done.groups, done.templates
        if done.compared:
            known = given.get("expander_input") or ExpanderInput()
            given["expander_input"] = replace_input(known, compared=done.compared)
        suffix = f"salvo-{number}"
        for info in done.status.scale_ups:
            for copy in range(info.new - info.current):
                fresh = fresh_copy(templates[info.group], f"{copy}-{suffix}")
                nodes.append(put(simulated, fresh))
        order = [fitted[key].pod for key in done.status.pods_triggered]
        placed = _place(simulated, simulated.snapshot(csi=csi, dra=dra), order, suffix, cursor)
        if isinstance(placed, str):
            result.warning = placed
            return result
        cursor = placed
    raise AssertionError("unreachable")


def _place(cluster: Cluster, snapshot: Snapshot, pods: Sequence[Pod], suffix: str, cursor: int) -> int | str:
    """Puts the pods on this round's nodes; the cursor, or the pod that found no place."""
    view = fork(snapshot, pods, cursor=cursor)
    acceptable = np.fromiter((name.endswith(suffix) for name in snapshot.nodes), np.uint8, len(snapshot.nodes))
    found: list[int] = []
    for pod in pods:
        node = view.schedule_anywhere(pod.key, acceptable)
        if node is None:
            return f"pod {pod.key} found no place on the nodes that it triggered"
        bind(cluster, pod, view.node_name(node))
        found.append(node)
    hold_claims(cluster, snapshot.informers, reserve(snapshot, [pod_record(pod) for pod in pods], found))
    return int(view.engine.cursor)
