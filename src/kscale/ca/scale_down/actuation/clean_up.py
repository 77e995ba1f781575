"""What is left to do when the deletion of a node has ended (``actuation/delete_in_batch.go``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kscale.ca.device_labels import dra_drivers_label, gpu_labels
from kscale.ca.event_subjects import node_event, status_event
from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.metrics import observation
from kscale.ca.nodes import is_ready
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.actuation.deletion_tracker import NodeDeletionTracker
from kscale.ca.scale_down.actuation.results import NODE_DELETE_OK, NodeDeleteResult
from kscale.ca.scale_down.actuation.tainting import Writing, clean_to_be_deleted, release_warning
from kscale.effects import Emit, Observe, Progress, StepsOf
from kscale.objects.core import Node
from kscale.objects.resource import ResourceSlice

__all__ = ["Ending", "EndingActions"]

EndingActions = Writing | Emit | Observe
"""What the end of a deletion asks for."""


class Ending:
    """The last steps of deletions, and the tracker that is told."""

    __slots__ = ("_gpu_label", "_gpu_types", "_options", "tracker")

    def __init__(
        self,
        options: AutoscalingOptions,
        tracker: NodeDeletionTracker,
        gpu_label: str = DEFAULT_GPU_LABEL,
        gpu_types: Collection[str] = (),
    ) -> None:
        self._options = options
        self._gpu_label = gpu_label
        self._gpu_types = gpu_types
        self.tracker = tracker

    def failed(
        self, p: Progress, node: Node, group: str, drain: bool, result: NodeDeleteResult
    ) -> StepsOf[EndingActions, None]:
        """A node stays: it is free again."""
        message = "" if result.error is None else result.error.message
        text = "failed to drain and delete node" if drain else "failed to delete empty node"
        yield from p.emit(node_event(node, "Warning", "ScaleDownFailed", f"{text}: {message}"))
        kept, _ = yield from clean_to_be_deleted(p, node, uncordon=self._options.cordon_node_before_terminating)
        if kept is not None:
            self.tracker.warn(release_warning(node, kept))
        self.tracker.end_deletion(group, node.metadata.name, result, p.now)

    def succeeded(
        self, p: Progress, node: Node, group: str, drain: bool, slices: Iterable[ResourceSlice] = ()
    ) -> StepsOf[EndingActions, None]:
        """The cloud deletes a node. Its taint stays. ``slices``: of the template of its group."""
        name = node.metadata.name
        yield from p.emit(node_event(node, "Normal", "ScaleDown", "nodes removed by cluster autoscaler"))
        self.tracker.register_scale_down(group, name, p.now)
        reason = ("underutilized" if drain else "empty") if is_ready(node) else "unready"
        gpu, drivers = gpu_labels(self._gpu_label, node, self._gpu_types), dra_drivers_label(slices)
        yield from p.observe(observation("scaled_down_nodes_total", 1.0, reason=reason, **gpu, dra_drivers=drivers))
        if gpu["gpu_name"]:
            yield from p.observe(observation("scaled_down_gpu_nodes_total", 1.0, reason=reason, **gpu))
        if drain:
            said = status_event(self._options, "Normal", "ScaleDown", f"Scale-down: node {name} removed with drain")
        else:
            said = status_event(self._options, "Normal", "ScaleDownEmpty", f"Scale-down: empty node {name} removed")
        yield from p.emit(said)
        self.tracker.end_deletion(group, name, NodeDeleteResult(result=NODE_DELETE_OK), p.now)
