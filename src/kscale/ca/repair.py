"""Putting right what the cloud did not do: instances that never registered or could not be made, and wrong sizes.

Upstream: ``core/static_autoscaler.go`` (removeOldUnregisteredNodes, deleteCreatedNodesWithErrors, fixNodeGroupSize).
Step machines: they yield actions and are sent None or the provider's error text. What is deleted here starts no
cooldown.
"""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime
from typing import TypeVar

import msgspec

from kscale.ca.cluster_state import ClusterState, DecreaseTargetSize, is_cluster_healthy
from kscale.ca.errors import CLOUD_PROVIDER_ERROR, AutoscalerError, ErrorRecord
from kscale.ca.events import Event
from kscale.ca.options import AutoscalingOptions
from kscale.objects.nodegroup import NodeGroup, ProviderError, is_not_implemented
from kscale.objects.nodegroups import Groups

__all__ = [
    "DeleteInstances",
    "Repair",
    "delete_created_with_errors_steps",
    "fix_node_group_size_steps",
    "remove_old_unregistered_steps",
    "repair_steps",
]


class DeleteInstances(msgspec.Struct, kw_only=True, frozen=True):
    """An action: have the cloud delete instances of a group, by provider id; ``force``: whatever its minimum says.

    A provider that cannot force answers ``Not implemented`` and is asked again without.
    """

    group: str
    instances: list[str]
    force: bool = False


class Repair(msgspec.Struct, kw_only=True):
    """What was put right: ``removed`` (instances that had not registered), ``deleted`` (that could not be made), by
    group; ``fixed`` groups have another target size now.

    - ``warnings``: what upstream only logs.
    - ``healthy``: False ends the loop, and no node is unneeded any more (:func:`kscale.ca.cleared`).
    - ``error`` ends the loop as well, and so does ``fixed``. After ``deleted`` sizes are to be worked out anew
      (:func:`kscale.ca.cluster_state.recalculate`).
    """

    removed: dict[str, list[str]] = {}
    deleted: dict[str, list[str]] = {}
    fixed: list[str] = []
    events: list[Event] = []
    warnings: list[str] = []
    healthy: bool = True
    error: ErrorRecord | None = None

    @property
    def ends_loop(self) -> bool:
        return not self.healthy or self.error is not None or bool(self.fixed)


_T = TypeVar("_T")
_Steps = Generator[DeleteInstances | DecreaseTargetSize, str | None, _T]


def repair_steps(
    state: ClusterState, groups: Groups, *, now: datetime, options: AutoscalingOptions | None = None
) -> _Steps[Repair]:
    """All repairs of one loop, in upstream's order, up to what ends the loop.

    ``state`` is that after :func:`kscale.ca.cluster_state.update_nodes`.
    """
    options = options or AutoscalingOptions()
    found = Repair()
    yield from remove_old_unregistered_steps(state, groups, found, now=now, options=options)
    if not is_cluster_healthy(state, options):
        found.healthy = False
        _say(found, options, "Warning", "ClusterUnhealthy", "Cluster is unhealthy")
        return found
    yield from delete_created_with_errors_steps(groups, found, options=options)
    yield from fix_node_group_size_steps(state, groups, found, now=now, options=options)
    return found


def remove_old_unregistered_steps(
    state: ClusterState, groups: Groups, found: Repair, *, now: datetime, options: AutoscalingOptions
) -> _Steps[None]:
    """Deletes instances that have not registered within their group's provision time, the oldest first.

    Without ``--force-delete-unregistered-nodes`` no group falls below its minimum. The first refusal ends it.
    """
    try:
        late = _late(state, groups, now, options)
    except AutoscalerError as error:
        found.warnings.append(f"Failed to remove unregistered nodes: {error.message}")
        return
    force = options.force_delete_unregistered_nodes
    for group_id, names in late.items():
        group = groups[group_id]
        if not force:
            possible = 0 if group.target_size_error is not None else group.size - group.min_size
            if possible <= 0:
                continue
            names = names[:possible]
        names = _whole(group, names, options, found)
        if not names:
            continue
        refusal = yield from _delete(group, names, force)
        if refusal is not None:
            for name in names:
                text = f"Failed to remove node {name}: {refusal}"
                _say(found, options, "Warning", "DeleteUnregisteredFailed", text)
            found.warnings.append(f"Failed to remove unregistered nodes: {refusal}")
            return
        for name in names:
            _say(found, options, "Normal", "DeleteUnregistered", f"Removed unregistered node {name}")
        found.removed[group_id] = names


def delete_created_with_errors_steps(groups: Groups, found: Repair, *, options: AutoscalingOptions) -> _Steps[None]:
    """Deletes instances that the cloud failed to make. Minimum sizes do not matter."""
    for group in groups:
        failed = [
            name
            for name in group.instance_ids
            if (status := group.instance_status.get(name)) is not None
            and status.state == "creating"
            and status.error is not None
        ]
        names = _whole(group, failed, options, found) if failed else []
        if names:
            refusal = yield from _delete(group, names, options.force_delete_failed_nodes)
            if refusal is None:
                found.deleted[group.id] = names
            else:
                found.warnings.append(f"Error while trying to delete nodes from {group.id}: {refusal}")


def fix_node_group_size_steps(
    state: ClusterState, groups: Groups, found: Repair, *, now: datetime, options: AutoscalingOptions
) -> _Steps[None]:
    """Lowers the target of groups that have had fewer nodes than that for longer than they take to come."""
    for group in groups:
        wrong = state.incorrect_sizes.get(group.id)
        if wrong is None:
            continue
        try:
            provision = group.options_or(options.node_group_defaults).max_node_provision_time
        except ProviderError as error:
            text = f"failed to retrieve maxNodeProvisionTime for nodeGroup {group.id}"
            found.warnings.append(f"{text}: {error.message}")
            found.error = ErrorRecord(type=CLOUD_PROVIDER_ERROR, message=text)
            return
        delta = wrong.current - wrong.expected
        if delta < 0 and wrong.first_observed + provision < now:
            refusal = yield DecreaseTargetSize(group=group.id, delta=delta)
            if refusal is not None:
                text = f"failed to decrease {group.id}: {refusal}"
                found.error = ErrorRecord(type=CLOUD_PROVIDER_ERROR, message=text)
                return
            found.fixed.append(group.id)


def _late(state: ClusterState, groups: Groups, now: datetime, options: AutoscalingOptions) -> dict[str, list[str]]:
    """Instances that should have registered, by group. Upstream has no order among them; here the oldest goes first."""
    late: dict[str, list[str]] = {}
    for name, item in sorted(state.unregistered.items(), key=lambda entry: (entry[1].since, entry[0])):
        group = groups.get(item.group)
        if group is None:
            continue
        try:
            provision = group.options_or(options.node_group_defaults).max_node_provision_time
        except ProviderError:
            text = f"failed to retrieve maxNodeProvisionTime for node {name} in nodeGroup {group.id}"
            raise AutoscalerError("", text) from None
        if item.since + provision < now:
            late.setdefault(group.id, []).append(name)
    return {group.id: late[group.id] for group in groups if group.id in late}


def _whole(group: NodeGroup, names: list[str], options: AutoscalingOptions, found: Repair) -> list[str]:
    """Of a group that goes whole or not at all: all instances or none."""
    try:
        own = group.options_or(options.node_group_defaults)
    except ProviderError as error:
        found.warnings.append(f"Failed to get node group options for {group.id}: {error.message}")
        return []
    if not own.zero_or_max_node_scaling:
        return names
    if len(group.instance_ids) == len(names) or not own.allow_non_atomic_scale_up_to_max:
        return list(group.instance_ids)
    return []


def _delete(group: NodeGroup, names: list[str], force: bool) -> _Steps[str | None]:
    if force:
        refusal = yield DeleteInstances(group=group.id, instances=names, force=True)
        if not is_not_implemented(refusal):
            return refusal
    return (yield DeleteInstances(group=group.id, instances=names))


def _say(found: Repair, options: AutoscalingOptions, kind: str, reason: str, message: str) -> None:
    where = f"ConfigMap/{options.namespace}/{options.status_config_map_name}"
    found.events.append(Event(object=where, type=kind, reason=reason, message=message))
