"""Several scale-ups in one loop (``--salvo-scale-up``): each sees the nodes that the ones before asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace as replace_input
from datetime import datetime
from itertools import count

import msgspec
import numpy as np
from msgspec.structs import replace

from kscale.ca.cluster_state import ClusterStateRegistry
from kscale.ca.expander.types import ExpanderInput
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_up.inputs import OrchestratorInputs
from kscale.ca.scale_up.orchestrator import Orchestrating, Orchestration, orchestrate_in
from kscale.ca.scale_up.scene import bind, hold_claims, put
from kscale.ca.scale_up.status import SUCCESSFUL, status_events
from kscale.ca.templates import fresh_copy
from kscale.effects import Moment, Progress, StepsOf, duration, moment
from kscale.objects.core import Node, Pod
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.nodegroups import Groups
from kscale.scheduling.devices.reserve import reserve
from kscale.scheduling.fork import fork
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.record import PodRecord, pod_record
from kscale.snapshot.snapshot import Snapshot

__all__ = ["Salvo", "SalvoRound", "salvo_in", "salvo_steps"]


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
    state: ClusterStateRegistry,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    inputs: OrchestratorInputs | None = None,
    cursor: int = 0,
    csi: bool = False,
    dra: bool = False,
) -> StepsOf[Orchestrating, Salvo]:
    """:func:`kscale.ca.orchestrate_steps` again and again with the pods that remain.

    Ends with an error, a scale-up that did nothing, when no pod is left, or when ``--salvo-scale-up-budget`` is over
    after a round. Between rounds the new nodes are put into the simulated cluster with the pods that triggered them,
    their claims allocated. ``cluster`` itself does not change; ``csi`` and ``dra`` as in
    :meth:`kscale.Cluster.snapshot`.
    """
    return salvo_in(
        Progress(moment(now)), cluster, pods, groups, nodes, templates, state, options or AutoscalingOptions(),
        inputs or OrchestratorInputs(), cursor, csi=csi, dra=dra,
    )  # fmt: skip


def salvo_in(
    p: Progress,
    cluster: Cluster,
    pods: Iterable[Pod | PodRecord],
    groups: Groups,
    nodes: Sequence[Node],
    templates: Mapping[str, NodeTemplate],
    state: ClusterStateRegistry,
    options: AutoscalingOptions,
    inputs: OrchestratorInputs,
    cursor: int,
    *,
    csi: bool,
    dra: bool,
) -> StepsOf[Orchestrating, Salvo]:
    """The same within a machine that is under way."""
    until = (yield from p.clock()) + duration(options.salvo_scale_up_budget)
    simulated = cluster.copy()
    result = Salvo(rounds=[], cluster=simulated)
    pending = [pod_record(pod) for pod in pods]
    nodes = list(nodes)
    for number in count():
        snapshot = simulated.snapshot(csi=csi, dra=dra)
        done = yield from orchestrate_in(p, snapshot, pending, groups, nodes, templates, state, options, inputs, cursor)
        result.rounds.append(SalvoRound(done=done, node_count=len(nodes)))
        yield from p.emit(*status_events(done.status))
        triggered = set(done.status.pods_triggered)
        fitted = {pod.key: pod for pod in pending if pod.key in triggered}
        pending = [pod for pod in pending if pod.key not in triggered]
        if done.status.result != SUCCESSFUL or not triggered or not pending or (yield from p.clock()) >= until:
            return result
        state, cursor, groups, templates = done.state, done.cursor, done.groups, done.templates
        inputs = replace(inputs, initializers=done.initializers)
        if done.compared:
            known = inputs.expander_input or ExpanderInput()
            inputs = replace(inputs, expander_input=replace_input(known, compared=done.compared))
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
