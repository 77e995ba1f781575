"""Deletion of unneeded groups that node auto-provisioning created (upstream: ``RemoveUnneededNodeGroups``)."""

from __future__ import annotations

from kscale.ca.events import build_status_event
from kscale.ca.loop_context import LoopContext
from kscale.ca.metrics import build_observation
from kscale.ca.options import AutoscalingOptions
from kscale.ca.static_autoscaler.report import LoopReport
from kscale.effects import DeleteGroup, Emit, Observe, Progress, StepsOf
from kscale.objects.nodegroups import Groups

__all__ = ["remove_unneeded_groups"]


def remove_unneeded_groups(
    p: Progress, scene: LoopContext, report: LoopReport, told_by: AutoscalingOptions | None = None
) -> StepsOf[DeleteGroup | Emit | Observe, None]:
    """Remove groups that have no machine and shall have none. The first refusal ends it, and is only logged.

    ``told_by``: options of the loop whose events say so, as release 1.3 did (None: no events).
    """
    for group in list(scene.groups):
        if not group.autoprovisioned or not group.exists or group.upcoming:
            continue
        refusal = group.target_size_error
        if refusal is None:
            if group.size or group.instance_ids:
                continue
            outcome = yield from p.act(DeleteGroup(group=group.id))
            refusal = None if outcome.error is None else outcome.error.message
            if told_by is not None and refusal is not None:
                text = f"NodeAutoprovisioning: attempt to delete node group {group.id} failed: {refusal}"
                yield from p.emit(build_status_event(told_by, "Warning", "FailedToDeleteNodeGroup", text))
            elif told_by is not None:
                text = f"NodeAutoprovisioning: removed node group {group.id}"
                yield from p.emit(build_status_event(told_by, "Normal", "DeletedNodeGroup", text))
        if refusal is not None:
            scene.warnings.append(f"Error while removing unneeded node groups: {refusal}")
            return
        scene.groups = Groups((each for each in scene.groups if each.id != group.id), scene.groups.node_errors)
        report.removed_groups.append(group.id)
        yield from p.observe(build_observation("deleted_node_groups_total", group_type=""))
