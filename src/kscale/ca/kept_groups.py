"""Node groups as a caller describes them, settled once for the same description and the same nodes."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from msgspec.structs import replace

from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.nodegroups import Groups, GroupsLike, read_alike
from kscale.snapshot.snapshot import Snapshot

__all__ = ["settled_groups"]


class _Last:
    """What was settled last; kept with the interner that the snapshots of a cluster share."""

    def __init__(self) -> None:
        self.last: tuple[Sequence[Node], list[NodeGroup], Groups] | None = None


def settled_groups(snapshot: Snapshot, groups: GroupsLike) -> Groups:
    """:meth:`Groups.of` these over the nodes of a snapshot: the very same as the last time, if they are described as
    they were then, and nothing that they read of nodes is other. Raises InputError as that does."""
    if isinstance(groups, Groups):
        return groups
    nodes, every = snapshot.columns.objects, [*groups]
    kept = snapshot.interner.memo.of(_Last, _Last)
    if kept.last is not None:
        before, described, known = kept.last
        if described == every and (before is nodes or read_alike(described, before, nodes)):
            kept.last = nodes, described, known
            return known
    found = Groups.of(every, nodes)
    structs = [group for group in every if isinstance(group, NodeGroup)]
    if len(structs) == len(every):
        kept.last = nodes, [_as_it_is(group) for group in structs], found
    return found


def _as_it_is(group: NodeGroup) -> NodeGroup:
    """A copy with lists and mappings of its own: the caller may change his."""
    own = {name: getattr(group, name) for name in group.__struct_fields__}
    return replace(group, **{name: copy(value) for name, value in own.items() if isinstance(value, list | dict)})
