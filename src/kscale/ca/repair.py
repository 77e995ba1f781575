"""Repairs before a scale-up: remove unregistered and failed instances, and fix wrong target sizes.

An instance may take its group's ``max_node_provision_time`` to register (default: 15 minutes, in ``ca/options.py``).
Deletions of a repair start no cooldown.

Upstream: ``core/static_autoscaler.go`` (removeOldUnregisteredNodes, deleteCreatedNodesWithErrors, fixNodeGroupSize).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from kscale.ca.cluster_state import ClusterStateRegistry, is_cluster_healthy
from kscale.ca.errors import CLOUD_PROVIDER_ERROR, AutoscalerError, ErrorRecord
from kscale.ca.events import build_status_events
from kscale.ca.options import AutoscalingOptions, default_options
from kscale.effects import (
    ApiError,
    DecreaseTargetSize,
    DeleteNodes,
    Emit,
    Moment,
    Progress,
    StepsOf,
    duration,
    moment,
)
from kscale.objects.argument_types import typed
from kscale.objects.nodegroup import Groups, NodeGroup, ProviderError, is_not_implemented

__all__ = [
    "Repair",
    "RepairAction",
    "delete_created_with_errors_steps",
    "fix_node_group_size_steps",
    "remove_old_unregistered_steps",
    "repair_steps",
]

RepairAction = DeleteNodes | DecreaseTargetSize | Emit
"""Actions of repairs. Instances that never registered are deleted by their provider IDs."""


class Repair(msgspec.Struct, kw_only=True, rename="camel"):
    """Result of the repairs.

    - ``removed``, ``deleted``: deleted instances by group, that had not registered or could not be created.
    - ``fixed``: groups with a corrected target size.
    - ``warnings``: what upstream only logs.
    - ``healthy``: False ends the loop, and no node is unneeded anymore (:func:`kscale.ca.clear_unneeded_nodes`).
    - ``error`` ends the loop as well, and so does ``fixed``. After ``deleted`` the sizes must be recomputed
      (:func:`kscale.ca.cluster_state.recalculate_ranges`).
    """

    removed: dict[str, list[str]] = {}
    deleted: dict[str, list[str]] = {}
    fixed: list[str] = []
    warnings: list[str] = []
    healthy: bool = True
    error: ErrorRecord | None = None

    def targets(self, groups: Groups) -> dict[str, int]:
        """Return the new target sizes, by group id, of the groups that lost instances."""
        removed_counts: dict[str, int] = {}
        for lost in (self.removed, self.deleted):
            for name, instances in lost.items():
                removed_counts[name] = removed_counts.get(name, 0) + len(instances)
        return {name: max(0, groups[name].size - count) for name, count in removed_counts.items()}


@typed
def repair_steps(
    state: ClusterStateRegistry, groups: Groups, *, now: datetime | Moment, options: AutoscalingOptions | None = None
) -> StepsOf[RepairAction, Repair]:
    """Run the repairs of one loop in upstream's order and return what they did.

    1. Delete instances that have not registered in time.
    2. If the cluster is unhealthy, emit an event and stop.
    3. Delete instances that could not be created.
    4. Correct the target sizes of groups that lack nodes for too long.

    ``state`` is the result of :func:`kscale.ca.cluster_state.update_nodes`. Raises InputError if ``now`` is not a time.
    """
    options = options or default_options()
    now = moment(now)
    p, repair = Progress(now), Repair()
    yield from remove_old_unregistered_steps(p, state, groups, repair, now=now, options=options)
    if not is_cluster_healthy(state, options):
        repair.healthy = False
        yield from p.emit(*build_status_events(options, "Warning", "ClusterUnhealthy", "Cluster is unhealthy"))
        return repair
    yield from delete_created_with_errors_steps(p, groups, repair, options=options)
    yield from fix_node_group_size_steps(p, state, groups, repair, now=now, options=options)
    return repair


def remove_old_unregistered_steps(
    p: Progress,
    state: ClusterStateRegistry,
    groups: Groups,
    repair: Repair,
    *,
    now: Moment,
    options: AutoscalingOptions,
) -> StepsOf[DeleteNodes | Emit, None]:
    """Delete instances that have not registered within their group's provision time, oldest first.

    A group that may only have no nodes or its maximum loses all or none of its instances
    (:func:`_expand_atomic_deletion`). No other group falls below its minimum, unless
    ``force_delete_unregistered_nodes`` is set. Without this option, groups at their minimum are skipped.

    ``repair`` collects the deleted instances and the warnings. The first refusal of the provider ends these deletions.
    Each deletion and each refusal emits events.
    """
    now = moment(now)
    try:
        late = _find_old_unregistered(state, groups, now, options)
    except AutoscalerError as error:
        repair.warnings.append(f"Failed to remove unregistered nodes: {error.message}")
        return
    force = options.force_delete_unregistered_nodes
    for group_id, names in late.items():
        group = groups[group_id]
        if not force:
            possible = 0 if group.target_size_error is not None else group.size - group.min_size
            if possible <= 0:
                continue
            names = names[:possible]
        names = _expand_atomic_deletion(group, names, options, repair)
        if not names:
            continue
        refusal = yield from _delete_instances(p, group, names, force)
        if refusal is not None:
            texts = [f"Failed to remove node {name}: {refusal.message}" for name in names]
            yield from p.emit(*build_status_events(options, "Warning", "DeleteUnregisteredFailed", *texts))
            repair.warnings.append(f"Failed to remove unregistered nodes: {refusal.message}")
            return
        texts = [f"Removed unregistered node {name}" for name in names]
        yield from p.emit(*build_status_events(options, "Normal", "DeleteUnregistered", *texts))
        repair.removed[group_id] = names


def delete_created_with_errors_steps(
    p: Progress, groups: Groups, repair: Repair, *, options: AutoscalingOptions
) -> StepsOf[DeleteNodes, None]:
    """Delete instances that the cloud failed to create, below the minimum size too.

    Of a group that may only have no nodes or its maximum, all or none of the instances are deleted.

    ``repair`` collects the deleted instances, and a warning for each group whose deletion failed.
    """
    for group in groups:
        failed = [
            name
            for name in (group.instance_ids if group.instance_status else ())
            if (status := group.instance_status.get(name)) is not None
            and status.state == "creating"
            and status.error is not None
        ]
        names = _expand_atomic_deletion(group, failed, options, repair) if failed else []
        if names:
            refusal = yield from _delete_instances(p, group, names, options.force_delete_failed_nodes)
            if refusal is None:
                repair.deleted[group.id] = names
            else:
                repair.warnings.append(f"Error while trying to delete nodes from {group.id}: {refusal.message}")


def fix_node_group_size_steps(
    p: Progress,
    state: ClusterStateRegistry,
    groups: Groups,
    repair: Repair,
    *,
    now: Moment,
    options: AutoscalingOptions,
) -> StepsOf[DecreaseTargetSize, None]:
    """Reduce the target size of groups that lacked nodes for longer than their provision time.

    ``repair`` collects the fixed groups and warnings. The first error is stored as ``repair.error`` and ends the
    repair.
    """
    now = moment(now)
    for group in groups:
        wrong = state.incorrect_sizes.get(group.id)
        if wrong is None:
            continue
        try:
            provision = duration(group.options_or(options.node_group_defaults).max_node_provision_time)
        except ProviderError as error:
            text = f"failed to retrieve maxNodeProvisionTime for nodeGroup {group.id}"
            repair.warnings.append(f"{text}: {error.message}")
            repair.error = ErrorRecord(type=CLOUD_PROVIDER_ERROR, message=text)
            return
        delta = wrong.current - wrong.expected
        if delta < 0 and wrong.first_observed + provision < now:
            refusal = (yield from p.act(DecreaseTargetSize(group=group.id, delta=delta))).error
            if refusal is not None:
                text = f"failed to decrease {group.id}: {refusal.message}"
                repair.error = ErrorRecord(type=CLOUD_PROVIDER_ERROR, message=text)
                return
            repair.fixed.append(group.id)


def _find_old_unregistered(
    state: ClusterStateRegistry, groups: Groups, now: Moment, options: AutoscalingOptions
) -> dict[str, list[str]]:
    """Return the instances that should have registered, by group id, the oldest first (upstream has no order).

    Left out are instances that no longer exist, and those whose group is unknown or cannot be determined.
    Raises AutoscalerError if the options of an instance's group cannot be read.
    """
    late: dict[str, list[str]] = {}
    for name, item in sorted(state.unregistered.items(), key=lambda entry: (entry[1].since, entry[0])):
        group = groups.get(item.group)
        if group is None or name in groups.node_errors or name in group.gone_instances:
            continue
        try:
            provision = duration(group.options_or(options.node_group_defaults).max_node_provision_time)
        except ProviderError:
            text = f"failed to retrieve maxNodeProvisionTime for node {name} in nodeGroup {group.id}"
            raise AutoscalerError("", text) from None
        if item.since + provision < now:
            late.setdefault(group.id, []).append(name)
    return {group.id: late[group.id] for group in groups if group.id in late}


def _expand_atomic_deletion(
    group: NodeGroup, names: list[str], options: AutoscalingOptions, repair: Repair
) -> list[str]:
    """Return the instances to delete: ``names``, or all or none of a group that may only have no nodes or its maximum.

    Of such a group all instances are deleted, but none if it allows partial scale-ups
    (``allow_non_atomic_scale_up_to_max``) and has other instances. A group whose options or instances cannot be read
    gets a warning in ``repair``, and none of its instances is deleted.
    """
    try:
        own = group.options_or(options.node_group_defaults)
    except ProviderError as error:
        repair.warnings.append(f"Failed to get node group options for {group.id}: {error.message}")
        return []
    if not own.zero_or_max_node_scaling:
        return names
    if group.instances_error is not None:
        text = f"Failed to fill in nodes to delete from group {group.id} based on ZeroOrMaxNodeScaling option"
        repair.warnings.append(f"{text}: {group.instances_error}")
        return []
    if len(group.instance_ids) == len(names) or not own.allow_non_atomic_scale_up_to_max:
        return list(group.instance_ids)
    return []


def _delete_instances(
    p: Progress, group: NodeGroup, names: Sequence[str], force: bool
) -> StepsOf[DeleteNodes, ApiError | None]:
    """Delete instances; a provider that cannot force is called again without force. Returns the error, or None."""
    action = DeleteNodes(group=group.id, nodes=tuple(names), force=force)
    refusal = (yield from p.act(action)).error
    if force and refusal is not None and is_not_implemented(refusal.message):
        refusal = (yield from p.act(msgspec.structs.replace(action, force=False))).error
    return refusal
