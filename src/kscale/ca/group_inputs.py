"""Node groups as callers describe them: resolved once per description, with the target sizes that earlier loops set.

A cloud reports the target size that a scale-up set; a description of groups in a file does not. Until the new nodes
have registered, the saved target size is used instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from operator import attrgetter
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from kscale.ca.loop_state import LoopState, RememberedTarget
from kscale.effects import Moment
from kscale.objects.api.core import Node
from kscale.objects.argument_types import check_fields
from kscale.objects.nodegroup import Groups, GroupsLike, NodeGroup, have_equal_group_inputs, instance_id_of
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import BeforeLosses, Snapshot

__all__ = ["get_described_targets", "resolve_groups", "restore_targets", "save_targets"]


class _LastGroups(msgspec.Struct, eq=False):
    """The last resolved groups, cached with the interner that the snapshots of a cluster share."""

    last: tuple[Sequence[Node], list[NodeGroup], Groups] | None = None


class _ResolvedGroups(msgspec.Struct, eq=False):
    """The last groups resolved over a snapshot, with their descriptions; cached with the snapshot."""

    last: tuple[list[NodeGroup], Groups] | None = None


def resolve_groups(snapshot: Snapshot, groups: GroupsLike) -> Groups:
    """Resolve a description of groups over the nodes of a snapshot (:meth:`Groups.of`).

    Returns ``groups`` itself if it is a :class:`Groups`. A result is cached if the description consists of NodeGroups
    only. It is reused while the description, and all that it reads of the nodes, are unchanged. Raises InputError as
    :meth:`Groups.of` does.
    """
    if isinstance(groups, Groups):
        return groups
    nodes, every = snapshot.columns.objects, [*groups]
    cache = snapshot.interner.memo.get(_LastGroups, _LastGroups)
    if cache.last is not None:
        before, described, known = cache.last
        if described == every and (before is nodes or have_equal_group_inputs(described, before, nodes)):
            cache.last = nodes, described, known
            return known
    selected = _select_resolved_groups(snapshot, every)
    if selected is not None:
        return selected
    copies = [_copy_group(group) if isinstance(group, NodeGroup) else group for group in every]
    described = [] if cache.last is None else cache.last[1]
    checked = {i for i, (group, last) in enumerate(zip(every, described, strict=False)) if group == last}
    resolved = Groups.of(copies, nodes, checked=checked)
    structs = [group for group in copies if isinstance(group, NodeGroup)]
    if len(structs) == len(every):
        cache.last = nodes, structs, resolved
        snapshot.memo.get(_ResolvedGroups, _ResolvedGroups).last = structs, resolved
    return resolved


def _select_resolved_groups(snapshot: Snapshot, groups: Sequence[object]) -> Groups | None:
    """Derive the groups of a snapshot that lost nodes from the groups that were resolved before the loss.

    The lost nodes are removed from the resolved groups. Returns None if the groups have to be resolved anew: if no
    resolved groups are cached, if a group names a node to copy as its template, or if its description differs from the
    earlier one in more than the target size and the lost nodes.
    """
    losses = BeforeLosses.find(snapshot)
    before = None if losses is None else losses.snapshot.memo.find(_ResolvedGroups)
    if losses is None or before is None or before.last is None or len(before.last[0]) != len(groups):
        return None
    described, resolved = before.last
    lost_rows = np.delete(np.arange(len(losses.snapshot.nodes)), losses.nodes).tolist()
    lost = {losses.snapshot.nodes[i] for i in lost_rows}
    changed: list[NodeGroup] = []
    for group, old, known in zip(groups, described, resolved, strict=True):
        if not isinstance(group, NodeGroup) or old.from_node is not None:
            return None
        is_changed = group != old
        if is_changed:
            listed = copy(group)
            listed.nodes, listed.target_size = old.nodes, old.target_size
            if listed != old or group.nodes != [name for name in old.nodes if name not in lost]:
                return None
        if bool(group.nodes) != bool(old.nodes) or not lost.isdisjoint(group.nodes):
            return None
        if not is_changed and lost.isdisjoint(known.nodes):
            changed.append(known)
            continue
        result = copy(known)
        result.nodes = [name for name in known.nodes if name not in lost]
        result.target_size = len(result.nodes) if group.target_size is None else group.target_size
        if group.instances is None:
            columns = snapshot.columns
            members = [columns.objects[columns.index[name]] for name in result.nodes if name in columns.index]
            result.instances = [*map(instance_id_of, members), *group.unregistered_instances]
        check_fields(result)
        changed.append(result)
    return resolved.without_nodes(lost, changed)


def _copy_group(group: NodeGroup) -> NodeGroup:
    """Copy the group with its lists and mappings, as the caller may modify the original."""
    own = copy(group)
    for name, value in zip(_CONTAINERS, _get_containers(group), strict=True):
        if isinstance(value, list | dict):
            setattr(own, name, value.copy())
    return own


_CONTAINERS: Final = [
    name for name, kind in NodeGroup.__annotations__.items() if kind.startswith(("list", "dict", "ResourceList"))
]
_get_containers: Final = attrgetter(*_CONTAINERS)


def get_described_targets(groups: GroupsLike) -> tuple[GroupsLike, dict[str, int | None]]:
    """Return the groups as a list or :class:`Groups`, and the target size in each group's description, by id.

    The size is None if the description has none. For :class:`Groups`, which come from a cloud, the mapping is empty.
    An iterator is consumed; use the returned groups instead.
    """
    if isinstance(groups, Groups):
        return groups, {}
    groups = [*groups]
    return groups, _read_described_targets(groups)


def _read_described_targets(groups: Iterable[object]) -> dict[str, int | None]:
    """Return the target size in each description by group id; None if the description has no target size."""
    described: dict[str, int | None] = {}
    for group in groups:
        if isinstance(group, NodeGroup):
            described[group.id] = group.target_size
        elif isinstance(group, Mapping):
            described[group.get("id", "")] = group.get("targetSize")
    return described


def restore_targets(
    groups: GroupsLike, cluster: Cluster | Snapshot, state: LoopState | None, now: Moment
) -> GroupsLike:
    """Return the groups with larger target sizes where ``state`` remembers them for a scale-up that is under way.

    A scale-up is under way until its nodes have registered or their provision time is over. A remembered size is
    dropped if the description now has another target size than the earlier loop read. :class:`Groups`, which come from
    a cloud, are returned unchanged.
    """
    if isinstance(groups, Groups) or state is None or not state.targets:
        return groups
    groups, described = get_described_targets(groups)
    requests = state.cluster.scale_up_requests
    coming = {
        name: remembered.target
        for name, remembered in state.targets.items()
        if name in requests
        and requests[name].expected_add_time >= now
        and name in described
        and described[name] in (None, remembered.described)
    }
    if not coming:
        return groups
    nodes = cluster.columns.objects if isinstance(cluster, Snapshot) else list(cluster.nodes())
    settled = Groups.of(groups, nodes)
    return settled.with_targets({name: max(target, settled[name].size) for name, target in coming.items()})


def save_targets(state: LoopState, described: Mapping[str, int | None], groups: Groups) -> LoopState:
    """Return the state that remembers the current target sizes of the groups whose scale-up is under way.

    ``described``: target sizes of the descriptions by group id (:func:`get_described_targets`); other groups are left
    out.
    """
    targets = {
        name: RememberedTarget(described=size, target=groups[name].size)
        for name, size in described.items()
        if name in groups and name in state.cluster.scale_up_requests
    }
    return state if targets == state.targets else replace(state, targets=targets)
