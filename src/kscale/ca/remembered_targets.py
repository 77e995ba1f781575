"""Target sizes that an earlier loop left, for callers who describe their groups the same way each time.

A cloud tells the target size that a scale-up set. A description of groups in a file does not: it still says what it
said before, or leaves the size to the number of nodes. Until the nodes have come, the remembered size counts instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from kscale.ca.state import LoopState, RememberedTarget
from kscale.effects import Moment
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.nodegroups import Groups, GroupsLike
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["described_targets", "recall_targets", "remember_targets"]


def described_targets(groups: Iterable[object]) -> dict[str, int | None]:
    """Return the target size that each group's description has, by id; None where it has none."""
    described: dict[str, int | None] = {}
    for group in groups:
        if isinstance(group, NodeGroup):
            described[group.id] = group.target_size
        elif isinstance(group, Mapping):
            described[group.get("id", "")] = group.get("targetSize")
    return described


def recall_targets(groups: GroupsLike, cluster: Cluster | Snapshot, state: LoopState | None, now: Moment) -> GroupsLike:
    """Return the groups with the remembered target sizes of those whose scale-up is under way.

    A scale-up is under way until its nodes have come or should have come. A description with another target size than
    that which the earlier loop read says something new, and counts.
    :class:`Groups` are what a cloud tells, and stay as they are.
    """
    if isinstance(groups, Groups) or state is None or not state.targets:
        return groups
    groups = [*groups]
    described = described_targets(groups)
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


def remember_targets(state: LoopState, described: Mapping[str, int | None], groups: Groups) -> LoopState:
    """Return the state with the target sizes of the groups whose scale-up is under way."""
    targets = {
        name: RememberedTarget(described=size, target=groups[name].size)
        for name, size in described.items()
        if name in groups and name in state.cluster.scale_up_requests
    }
    return state if targets == state.targets else replace(state, targets=targets)
