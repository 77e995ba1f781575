"""Nodes of a group that wait for each other, or fail together (``actuation/group_deletion_scheduler.go``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kscale.ca.errors import INTERNAL_ERROR, TRANSIENT_ERROR, ErrorRecord
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.actuation.clean_up import Ending, EndingActions
from kscale.ca.scale_down.actuation.delay_deletion import wait_for_delay_deletion
from kscale.ca.scale_down.actuation.drain import Draining, Evictor
from kscale.ca.scale_down.actuation.node_deletion_batcher import Batching, NodeDeletionBatcher
from kscale.ca.scale_down.actuation.results import (
    NODE_DELETE_ERROR_FAILED_TO_DELETE,
    NODE_DELETE_ERROR_FAILED_TO_EVICT_PODS,
    NODE_DELETE_ERROR_INTERNAL,
    NodeDeleteResult,
)
from kscale.effects import DeleteNodes, Moment, Progress, StepsOf, duration
from kscale.objects.core import Node, Pod
from kscale.objects.nodegroup import NodeGroup, ProviderError
from kscale.objects.nodegroups import Groups

__all__ = ["Deleting", "GroupDeletionScheduler"]

Deleting = Draining | Batching
"""What deleting a node asks for."""

_OTHERS_FAILED: Final = NodeDeleteResult(
    result=NODE_DELETE_ERROR_FAILED_TO_DELETE,
    error=ErrorRecord(type=TRANSIENT_ERROR, message="couldn't scale down other nodes in this node group"),
)


class GroupDeletionScheduler:
    """Nodes that are ready to go, by group: atomic groups wait until all are. Kept from loop to loop."""

    __slots__ = ("_batcher", "_ending", "_evictor", "_failed", "_options", "_queue")

    def __init__(
        self, options: AutoscalingOptions, evictor: Evictor, batcher: NodeDeletionBatcher, ending: Ending
    ) -> None:
        self._options = options
        self._evictor = evictor
        self._batcher = batcher
        self._ending = ending
        self._queue: dict[str, list[Node]] = {}
        self._failed: set[str] = set()

    def reset(self) -> int:
        """Before each start: groups that failed may try again; nodes that wait go on waiting. Tells how many do."""
        self._failed.clear()
        return sum(map(len, self._queue.values()))

    def schedule_deletion(
        self,
        node: Node,
        pods: Sequence[Pod],
        group: NodeGroup,
        batch_size: int,
        now: Moment,
        *,
        drain: bool,
        groups: Groups,
        force: bool = False,
    ) -> StepsOf[Deleting, None]:
        """Prepares a node - drains it, waits for others - and passes it on. One that cannot be prepared stays."""
        p = Progress(now)
        try:
            atomic = group.options_or(self._options.node_group_defaults).zero_or_max_node_scaling
        except ProviderError as error:
            text = f"GetOptions returned error {error.message}"
            result = NodeDeleteResult(
                result=NODE_DELETE_ERROR_INTERNAL, error=ErrorRecord(type=INTERNAL_ERROR, message=text)
            )
            yield from self.abort(p, node, group.id, drain, result)
            return
        failure = yield from self._prepare(p, node, pods, drain, force)
        if failure is not None and force:
            asked = DeleteNodes(group=group.id, nodes=(node.metadata.name,), objects=(node,), force=True)
            refusal = (yield from p.act(asked)).error
            if refusal is None:
                failure = None  # and the node is passed on like any other, as upstream has it
            else:
                told = ErrorRecord(type="", message=refusal.message)
                failure = NodeDeleteResult(result=NODE_DELETE_ERROR_FAILED_TO_DELETE, error=told)
        if failure is not None:
            yield from self.abort(p, node, group.id, drain, failure)
        else:
            yield from self.add_to_batcher(p, node, group.id, batch_size, drain, atomic, groups)

    def _prepare(
        self, p: Progress, node: Node, pods: Sequence[Pod], drain: bool, force: bool
    ) -> StepsOf[Draining, NodeDeleteResult | None]:
        name = node.metadata.name
        if drain:
            drained = yield from self._evictor.drain(p, name, pods, force=force)
            if drained.error is not None:
                return NodeDeleteResult(
                    result=NODE_DELETE_ERROR_FAILED_TO_EVICT_PODS,
                    error=drained.error.record,
                    evictions=drained.results,
                )
        else:
            yield from self._evictor.evict_daemon_sets(p, name, pods)
        error = yield from wait_for_delay_deletion(p, node, duration(self._options.node_deletion_delay_timeout))
        if error is not None:
            return NodeDeleteResult(result=NODE_DELETE_ERROR_FAILED_TO_DELETE, error=error.record)
        return None

    def add_to_batcher(
        self, p: Progress, node: Node, group: str, batch_size: int, drain: bool, atomic: bool, groups: Groups
    ) -> StepsOf[Batching, None]:
        """Passes on a node that is ready, with all of its group that waited for it.

        Where they differ, the last one says for all whether they were drained.
        """
        queue = self._queue.setdefault(group, [])
        queue.append(node)
        if atomic:
            if group in self._failed:
                queue.clear()
                yield from self._ending.failed(p, node, group, drain, _OTHERS_FAILED)
                return
            if len(queue) < batch_size:
                return
        del self._queue[group]
        yield from self._batcher.add(p, queue, group, drain, groups)

    def abort(
        self, p: Progress, node: Node, group: str, drain: bool, result: NodeDeleteResult
    ) -> StepsOf[EndingActions, None]:
        """A node stays, and with it the nodes of its group that waited."""
        self._failed.add(group)
        waiting = self._queue.pop(group, [])
        yield from self._ending.failed(p, node, group, drain, result)
        for other in waiting:
            if other is not node:
                yield from self._ending.failed(p, other, group, drain, _OTHERS_FAILED)
