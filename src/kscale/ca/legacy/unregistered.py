"""Machines that should long have registered, as release 1.3 removes them (``removeOldUnregisteredNodes`` of then)."""

from __future__ import annotations

from kscale.ca.cluster_state import ClusterStateRegistry
from kscale.ca.errors import CLOUD_PROVIDER_ERROR, AutoscalerError
from kscale.ca.event_subjects import status_event
from kscale.ca.options import AutoscalingOptions
from kscale.ca.repair import Repair
from kscale.effects import DeleteNodes, Emit, Moment, Progress, StepsOf, duration, later
from kscale.objects.nodegroups import Groups

__all__ = ["remove_unregistered_1_3"]


def remove_unregistered_1_3(
    p: Progress,
    state: ClusterStateRegistry,
    groups: Groups,
    repair: Repair,
    *,
    now: Moment,
    options: AutoscalingOptions,
) -> StepsOf[DeleteNodes | Emit, AutoscalerError | None]:
    """One after the other, the oldest first, no group below its minimum. A refusal ends it, and is what it gives."""
    provision = duration(options.max_node_provision_time)
    oldest_first = sorted(state.unregistered.items(), key=lambda item: (item[1].since, item[0]))
    for name, machine in oldest_first:
        if later(machine.since, provision) >= now or machine.group not in groups:
            continue
        group = groups[machine.group]
        if name in group.gone_instances:
            continue
        removed = repair.removed.get(group.id, [])
        if group.target_size_error is not None:
            repair.warnings.append(f"Failed to get node group size, err: {group.target_size_error}")
            continue
        if group.min_size >= group.size - len(removed):
            repair.warnings.append(
                f"Failed to remove node {name}: node group min size reached, skipping unregistered node removal"
            )
            continue
        text = f"Removing unregistered node {name}"
        yield from p.emit(status_event(options, "Normal", "DeleteUnregistered", text))
        refusal = (yield from p.act(DeleteNodes(group=group.id, nodes=(name,)))).error
        if refusal is not None:
            return AutoscalerError(CLOUD_PROVIDER_ERROR, refusal.message)
        repair.removed[group.id] = [*removed, name]
    return None
