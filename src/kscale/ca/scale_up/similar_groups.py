"""Which groups may share a scale-up of a group (``core/scaleup/orchestrator``: ComputeSimilarNodeGroups).

Whether two groups are alike is :mod:`kscale.ca.similarity`'s; what else must hold of a similar group is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_up.group_filter import is_zero_or_max
from kscale.ca.similarity import SimilarGroups
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.nodegroups import Groups

__all__ = ["compute_similar_node_groups"]


def compute_similar_node_groups(
    group: NodeGroup,
    groups: Groups,
    schedulable: Mapping[str, NDArray[np.bool_]],
    alike: Callable[[], SimilarGroups],
    is_safe: Callable[[NodeGroup], bool],
    options: AutoscalingOptions,
) -> list[str]:
    """Groups that are like ``group``, safe to scale up, and take at least the same pods; none where the option is off
    or the group is one of zero or all its nodes.

    ``schedulable``: which groups of like pods each node group takes, bool[P] by id; one without an entry was filtered
    out and shares nothing. ``alike`` is asked only if it matters. In the order of the provider's list.
    """
    mine = schedulable.get(group.id)
    if mine is None or not mine.any():
        return []
    if not options.balance_similar_node_groups or is_zero_or_max(group, options):
        return []

    def takes_the_same(name: str) -> bool:
        taken = schedulable.get(name)
        return taken is not None and not (mine & ~taken).any()

    return [name for name in alike().of(group.id) if name in groups and takes_the_same(name) and is_safe(groups[name])]
