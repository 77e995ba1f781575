"""What is left to do when the deletion of a node has ended (``actuation/delete_in_batch.go``)."""

from __future__ import annotations

from kscale.ca.nodes import is_ready
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.actuation.actions import Observe, Progress, RegisterScaleDown, Steps
from kscale.ca.scale_down.actuation.deletion_tracker import NodeDeletionTracker
from kscale.ca.scale_down.actuation.results import NODE_DELETE_OK, NodeDeleteResult
from kscale.ca.scale_down.actuation.tainting import clean_to_be_deleted
from kscale.objects.core import Node

__all__ = ["Ending"]


class Ending:
    """The last steps of deletions, and the tracker that is told."""

    __slots__ = ("_options", "tracker")

    def __init__(self, options: AutoscalingOptions, tracker: NodeDeletionTracker) -> None:
        self._options = options
        self.tracker = tracker

    def failed(self, p: Progress, node: Node, group: str, drain: bool, result: NodeDeleteResult) -> Steps[None]:
        """A node stays: it is free again."""
        message = "" if result.error is None else result.error.message
        text = "failed to drain and delete node" if drain else "failed to delete empty node"
        yield from p.emit("Warning", f"Node/{node.metadata.name}", "ScaleDownFailed", f"{text}: {message}")
        yield from clean_to_be_deleted(p, node, uncordon=self._options.cordon_node_before_terminating)
        self.tracker.end_deletion(group, node.metadata.name, result, p.now)

    def succeeded(self, p: Progress, node: Node, group: str, drain: bool) -> Steps[None]:
        """The cloud deletes a node. Its taint stays."""
        name = node.metadata.name
        yield from p.emit("Normal", f"Node/{name}", "ScaleDown", "nodes removed by cluster autoscaler")
        yield from p.act(RegisterScaleDown(group=group, node=name, time=p.now))
        reason = ("underutilized" if drain else "empty") if is_ready(node) else "unready"
        yield from p.act(Observe(metric="scaled_down_nodes_total", labels={"reason": reason}))
        where = f"ConfigMap/{self._options.namespace}/{self._options.status_config_map_name}"
        if drain:
            yield from p.emit("Normal", where, "ScaleDown", f"Scale-down: node {name} removed with drain")
        else:
            yield from p.emit("Normal", where, "ScaleDownEmpty", f"Scale-down: empty node {name} removed")
        self.tracker.end_deletion(group, name, NodeDeleteResult(result=NODE_DELETE_OK), p.now)
