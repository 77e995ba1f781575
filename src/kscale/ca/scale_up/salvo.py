"""Several scale-ups in one loop (``--salvo-scale-up``): each sees the nodes that the ones before asked for.

Upstream: ``core/static_autoscaler.go`` (runScaleUpSalvo).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace as replace_dataclass
from datetime import datetime
from itertools import count

import msgspec
import numpy as np
from msgspec.structs import replace

from kscale.ca.expander.types import ExpanderInput
from kscale.ca.scale_up.ground import ScaleUpGround
from kscale.ca.scale_up.orchestration import Orchestration
from kscale.ca.scale_up.orchestrator import Orchestrating, orchestrate_in
from kscale.ca.scale_up.scene import as_coming
from kscale.ca.scale_up.status import SUCCESSFUL
from kscale.ca.templates import fresh_copy
from kscale.effects import Moment, Progress, StepsOf, WriteStatus, duration, moment
from kscale.objects.core import Pod
from kscale.scheduling.devices.reserve import reserve
from kscale.scheduling.fork import fork
from kscale.snapshot.record import PodRecord, pod_record
from kscale.snapshot.snapshot import Snapshot

__all__ = ["Orchestrate", "Salvo", "SalvoRound", "salvo_in", "salvo_steps"]


Orchestrate = Callable[
    [Progress, Snapshot, Sequence[PodRecord], ScaleUpGround], StepsOf[Orchestrating | WriteStatus, Orchestration]
]
"""As :func:`~kscale.ca.scale_up.orchestrator.orchestrate_in`."""


class SalvoRound(msgspec.Struct, kw_only=True):
    """One scale-up of the salvo, and how many nodes it was given."""

    done: Orchestration
    node_count: int


class Salvo(msgspec.Struct, kw_only=True):
    """All ``rounds``; ``snapshot_after`` is the simulated cluster after them: the last one put nothing into it.
    ``warning`` says why it ended early, if it did."""

    rounds: list[SalvoRound]
    snapshot_after: Snapshot
    warning: str = ""


def salvo_steps(
    snapshot: Snapshot,
    pods: Iterable[Pod | PodRecord],
    ground: ScaleUpGround,
    *,
    now: datetime | Moment,
) -> StepsOf[Orchestrating | WriteStatus, Salvo]:
    """:func:`kscale.ca.orchestrate_steps` again and again with the pods that remain.

    Ends with an error, a scale-up that did nothing, when no pod is left, or when ``--salvo-scale-up-budget`` is over
    after a round. Between rounds the new nodes are put into the simulated cluster with the pods that triggered them,
    their claims allocated.
    """
    return salvo_in(Progress(moment(now)), snapshot, pods, ground)


def salvo_in(
    p: Progress,
    snapshot: Snapshot,
    pods: Iterable[Pod | PodRecord],
    ground: ScaleUpGround,
    orchestrate: Orchestrate = orchestrate_in,
) -> StepsOf[Orchestrating | WriteStatus, Salvo]:
    """The same within a machine that is under way; ``orchestrate``: what takes the place of the orchestrator."""
    until = (yield from p.clock()) + duration(ground.options.salvo_scale_up_budget)
    result, uid_of = Salvo(rounds=[], snapshot_after=snapshot), snapshot.pod_uid
    pending = [pod_record(pod) for pod in pods]
    for number in count():
        snapshot = result.snapshot_after
        done = yield from orchestrate(p, snapshot, pending, ground)
        result.rounds.append(SalvoRound(done=done, node_count=len(ground.nodes)))
        yield from p.emit(*ground.inputs.made_up.events(done.status, uid_of))
        triggered = set(done.status.pods_triggered)
        fitted = {pod.key: pod for pod in pending if pod.key in triggered}
        pending = [pod for pod in pending if pod.key not in triggered]
        if done.status.result != SUCCESSFUL or done.failure is not None or not triggered or not pending:
            return result
        if (yield from p.clock()) >= until:
            return result
        inputs = replace(ground.inputs, initializers=done.initializers)
        if done.compared:
            known = inputs.expander_input or ExpanderInput()
            inputs = replace(inputs, expander_input=replace_dataclass(known, compared=done.compared))
        suffix = f"salvo-{number}"
        fresh = [
            as_coming(fresh_copy(done.templates[info.group], f"{copy}-{suffix}"))
            for info in done.status.scale_ups
            for copy in range(info.new - info.current)
        ]
        order = [fitted[key] for key in done.status.pods_triggered]
        found = _place(snapshot.with_nodes(fresh), order, suffix, done.cursor)
        result.snapshot_after, cursor, result.warning = found
        if result.warning:
            return result
        ground = replace_dataclass(
            ground,
            groups=done.groups,
            nodes=[*ground.nodes, *(each.node for each in fresh)],
            templates=done.templates,
            state=done.state,
            inputs=inputs,
            cursor=cursor,
        )
    raise AssertionError("unreachable")


def _place(snapshot: Snapshot, records: Sequence[PodRecord], suffix: str, cursor: int) -> tuple[Snapshot, int, str]:
    """Puts the pods on this round's nodes: what there is then, the cursor, and which pod found no place if one did."""
    view = fork(snapshot, [record.pod for record in records], cursor=cursor)
    acceptable = np.fromiter((name.endswith(suffix) for name in snapshot.nodes), np.uint8, len(snapshot.nodes))
    found: list[int] = []
    warning = ""
    for record in records:
        node = view.schedule_anywhere(record.key, acceptable)
        if node is None:
            warning = f"pod {record.key} found no place on the nodes that it triggered"
            break
        found.append(node)
    placed = records[: len(found)]
    after = snapshot.with_placed(placed, found, reserve(snapshot, placed, found))
    return after, int(view.engine.cursor), warning
