"""Nodes that go to the cloud in one call (``actuation/delete_in_batch.go``)."""

from __future__ import annotations

from collections.abc import Sequence

from kscale.ca.errors import CLOUD_PROVIDER_ERROR, INTERNAL_ERROR, AutoscalerError
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.actuation.clean_up import Ending, EndingActions
from kscale.ca.scale_down.actuation.results import NODE_DELETE_ERROR_FAILED_TO_DELETE, NodeDeleteResult
from kscale.effects import DeleteNodes, Progress, StepsOf, Wait, duration
from kscale.objects.core import Node
from kscale.objects.nodegroup import ProviderError
from kscale.objects.nodegroups import Groups

__all__ = ["Batching", "NodeDeletionBatcher"]

Batching = EndingActions | DeleteNodes | Wait
"""What deleting nodes together asks for."""


class NodeDeletionBatcher:
    """Collects nodes of a group for a while (``--node-deletion-batcher-interval``), then deletes them together."""

    __slots__ = ("_buckets", "_ending", "_interval")

    def __init__(self, options: AutoscalingOptions, ending: Ending) -> None:
        self._interval = duration(options.node_deletion_batcher_interval)
        self._ending = ending
        self._buckets: dict[str, list[tuple[Node, bool]]] = {}

    def add(
        self, p: Progress, nodes: Sequence[Node], group: str, drain: bool, groups: Groups
    ) -> StepsOf[Batching, None]:
        """Deletes nodes, at once or with what comes in the meantime: who finds no other there waits and deletes."""
        if not self._interval:
            yield from self._delete(p, [(node, drain) for node in nodes], group, groups)
        elif self.collect(nodes, group, drain):
            yield from p.wait(self._interval)
            yield from self.remove(p, group, groups)

    def collect(self, nodes: Sequence[Node], group: str, drain: bool) -> bool:
        """Puts nodes with those of their group. Whether they are the first there."""
        bucket = self._buckets.setdefault(group, [])
        first = not bucket
        bucket.extend((node, drain) for node in nodes)
        return first

    def remove(self, p: Progress, group: str, groups: Groups) -> StepsOf[Batching, None]:
        """Deletes what was collected. Raises :class:`AutoscalerError` if that is nothing."""
        if group not in self._buckets:
            raise AutoscalerError("", f"Node Group {group} is not present in the batch deleter")
        yield from self._delete(p, self._buckets.pop(group), group, groups)

    def _delete(
        self, p: Progress, nodes: Sequence[tuple[Node, bool]], group: str, groups: Groups
    ) -> StepsOf[Batching, None]:
        error = yield from self._ask_cloud(p, tuple(node for node, _ in nodes), groups)
        known = groups.get(group)
        template = None if known is None or known.template_error is not None else known.template
        slices = [] if template is None else template.resource_slices
        for node, drain in nodes:
            if error is None:
                yield from self._ending.succeeded(p, node, group, drain, slices)
            else:
                result = NodeDeleteResult(result=NODE_DELETE_ERROR_FAILED_TO_DELETE, error=error.record)
                yield from self._ending.failed(p, node, group, drain, result)

    def _ask_cloud(
        self, p: Progress, nodes: tuple[Node, ...], groups: Groups
    ) -> StepsOf[DeleteNodes, AutoscalerError | None]:
        names = tuple(node.metadata.name for node in nodes)
        try:
            group = groups.of_node(names[0])
        except ProviderError as error:
            text = f"failed to find node group for {names[0]}: {error.message}"
            return AutoscalerError(CLOUD_PROVIDER_ERROR, text)
        if group is None:
            return AutoscalerError(INTERNAL_ERROR, f"picked node that doesn't belong to a node group: {names[0]}")
        refusal = (yield from p.act(DeleteNodes(group=group.id, nodes=names, objects=nodes))).error
        if refusal is None:
            return None
        self._ending.tracker.register_failed_scale_down(group.id, p.now)
        text = f"failed to delete nodes from group {group.id}: {refusal.message}"
        return AutoscalerError(CLOUD_PROVIDER_ERROR, text)
