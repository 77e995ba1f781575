"""Starting deletions (``actuation/actuator.go``): what happens before the loop goes on, and what goes on behind it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from kscale.ca.errors import AutoscalerError
from kscale.ca.event_subjects import status_event
from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.metrics import observation
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.actuation.bucket import Bucket, delete_bucket
from kscale.ca.scale_down.actuation.clean_up import Ending
from kscale.ca.scale_down.actuation.deletion_tracker import Deletions, NodeDeletionTracker
from kscale.ca.scale_down.actuation.drain import Evictor
from kscale.ca.scale_down.actuation.group_deletion_scheduler import GroupDeletionScheduler
from kscale.ca.scale_down.actuation.marking import Marking, mark_nodes
from kscale.ca.scale_down.actuation.node_deletion_batcher import NodeDeletionBatcher
from kscale.ca.scale_down.actuation.report import describe, scale_down_node
from kscale.ca.scale_down.actuation.results import ScaleDownNode, StartedDeletion
from kscale.ca.scale_down.actuation.update_latency import PastLatencies
from kscale.ca.scale_down.budgets import GroupNodes, budget_groups, crop, in_groups
from kscale.effects import Emit, InBackground, Machine, Observe, Progress, StepsOf
from kscale.errors import InputError
from kscale.objects.core import Node
from kscale.objects.nodegroups import Groups
from kscale.snapshot.snapshot import Snapshot

__all__ = ["Actuator"]


class Actuator:
    """Deletes nodes. Single owner: it keeps what is under way from one start to the next.

    ``tracker`` says what that is. Nothing happens before a machine is run.
    """

    __slots__ = ("_gpu_label", "_options", "_past_latencies", "_scheduler", "tracker")

    def __init__(
        self,
        options: AutoscalingOptions | None = None,
        *,
        evictor: Evictor | None = None,
        gpu_label: str = DEFAULT_GPU_LABEL,
        gpu_types: Collection[str] = (),
        known: Deletions | None = None,
    ) -> None:
        """``known``: deletions under way that somebody else carries on."""
        self._options = options = options or AutoscalingOptions()
        self._gpu_label = gpu_label
        self.tracker = NodeDeletionTracker(known=known)
        self._past_latencies = PastLatencies()
        ending = Ending(options, self.tracker, gpu_label, gpu_types)
        evictor = evictor or Evictor(options, self.tracker.register_eviction)
        self._scheduler = GroupDeletionScheduler(options, evictor, NodeDeletionBatcher(options, ending), ending)

    def start_deletion(
        self, empty: Sequence[str], drain: Sequence[str], snapshot: Snapshot, groups: Groups, *, force: bool = False
    ) -> Machine:
        """A machine that starts to delete the nodes that a plan chose, as many as the budgets allow at its time.

        ``empty``, ``drain``: names, before the budgets (``plan.chosen``); ``snapshot``, ``groups``: of the same loop.
        It gives a :class:`StartedDeletion` as soon as all nodes are tainted; the rest goes on in the background.
        ``force``: pods that cannot be evicted, and nodes that cannot be prepared, are deleted all the same.
        Nodes of no group are passed over, as upstream has it. Raises InputError for a name that is no node.
        """
        for name in (*empty, *drain):
            if name not in snapshot.columns.index:
                raise InputError(f"there is no node {name}")
        return lambda now: self.start_deletion_in(Progress(now), empty, drain, snapshot, groups, force=force)

    def start_deletion_in(
        self,
        p: Progress,
        empty: Sequence[str],
        drain: Sequence[str],
        snapshot: Snapshot,
        groups: Groups,
        *,
        force: bool = False,
    ) -> StepsOf[Marking | InBackground | Observe, StartedDeletion]:
        """The same within a machine that is under way, whose progress is ``p``: ``empty``, ``drain`` and ``force`` as
        :meth:`start_deletion` has them."""
        waiting = self._scheduler.reset()
        yield from p.observe(observation("pending_node_deletions", waiting))
        nodes = snapshot.columns.objects
        cropped = crop(
            in_groups(empty, groups),
            in_groups(drain, groups),
            budget_groups(groups, self._options, nodes),
            in_progress=self.tracker.in_progress(),
            max_scale_down_parallelism=self._options.max_scale_down_parallelism,
            max_drain_parallelism=self._options.max_drain_parallelism,
        )
        if not cropped.empty and not cropped.drain:
            return StartedDeletion(result="ScaleDownNoNodeDeleted")
        by_name = {node.metadata.name: node for node in nodes}
        reported: list[ScaleDownNode] = []
        # Nodes to drain are tainted when empty ones are on their way: a failure among them does not stop those.
        for drained, chosen in ((False, cropped.empty), (True, cropped.drain)):
            buckets = [_bucket(item, by_name, groups, drained) for item in chosen]
            if not buckets:
                continue
            marked = yield from mark_nodes(
                p, [node for bucket in buckets for node in bucket.nodes], self._options, self._past_latencies
            )
            for warning in marked.warnings:
                self.tracker.warn(warning)
            if marked.error is not None:
                return StartedDeletion(result="ScaleDownError", nodes=reported, error=marked.error.record)
            for bucket in buckets:
                for node in bucket.nodes:
                    yield from self._announce(p, node, bucket, snapshot, groups, reported)
                    self.tracker.start_deletion(bucket.group.id, node.metadata.name, drain=drained)
            for bucket in buckets:
                deletion = partial(
                    delete_bucket, bucket, self._scheduler, groups, self._options, marked.delay, force=force
                )
                yield from p.act(InBackground(deletion))
        return StartedDeletion(result="ScaleDownNodeDeleteStarted", nodes=reported)

    def _announce(
        self,
        p: Progress,
        node: Node,
        bucket: Bucket,
        snapshot: Snapshot,
        groups: Groups,
        reported: list[ScaleDownNode],
    ) -> StepsOf[Emit, None]:
        """Tells of a node whose deletion begins. One whose utilisation cannot be told goes all the same."""
        name = node.metadata.name
        if not bucket.drain:
            text = f'Scale-down: removing empty node "{name}"'
            yield from p.emit(status_event(self._options, "Normal", "ScaleDownEmpty", text))
        try:
            found = scale_down_node(
                snapshot, name, groups, self._options, p.now, drain=bucket.drain, gpu_label=self._gpu_label
            )
        except AutoscalerError:
            return
        if bucket.drain:
            yield from p.emit(status_event(self._options, "Normal", "ScaleDown", describe(found)))
        reported.append(found)


def _bucket(item: GroupNodes, nodes: dict[str, Node], groups: Groups, drain: bool) -> Bucket:
    return Bucket(
        group=groups[item.group],
        nodes=[nodes[name] for name in item.nodes],
        batch_size=item.batch_size,
        drain=drain,
    )
