"""Machines that should be there and have no node (``getNotRegisteredNodes``, ``updateUnregisteredNodes``)."""

from __future__ import annotations

from collections.abc import Mapping

from kscale.ca.cluster_state.state import ClusterStateRegistry, GroupReadiness, UnregisteredNode
from kscale.ca.node_readings import NodeReadings
from kscale.effects import Moment, duration
from kscale.objects.nodegroup import InstanceStatus, NodeGroupAutoscalingOptions, ProviderError
from kscale.objects.nodegroups import Groups

__all__ = ["find_unregistered", "sort_unregistered"]


def find_unregistered(
    before: Mapping[str, UnregisteredNode], registered: NodeReadings, groups: Groups, now: Moment
) -> dict[str, UnregisteredNode]:
    """Instances that should be there and have no node object, and since when that is so."""
    known = registered.instance_ids
    found: dict[str, UnregisteredNode] = {}
    for group in groups:
        if group.upcoming:
            continue
        if known.issuperset(group.instance_ids):
            continue
        for instance in [each for each in group.instance_ids if each not in known]:
            status = group.instance_status.get(instance, InstanceStatus())
            if status.state == "deleting" or status.error is not None:
                continue
            old = before.get(instance)
            found[instance] = UnregisteredNode(group=group.id, since=now if old is None else old.since)
    return found


def sort_unregistered(
    state: ClusterStateRegistry, groups: Groups, now: Moment, defaults: NodeGroupAutoscalingOptions
) -> None:
    """Puts the state's unregistered instances into its lists: for long, or not yet. One whose group the cloud cannot
    tell is in neither, nor is one that is of no group any more."""
    for name, item in state.unregistered.items():
        if name in groups.node_errors:
            continue
        owner = groups[item.group]
        if name in owner.gone_instances:
            continue
        try:
            provision = duration(owner.options_or(defaults).max_node_provision_time)
        except ProviderError:
            continue
        kind = "long_unregistered" if item.since + provision < now else "unregistered"
        for record in (state.total, state.readiness.setdefault(owner.id, GroupReadiness())):
            getattr(record, kind).append(name)
