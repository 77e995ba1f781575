"""Which nodes scale-down looks at, and in which order (``processors/scaledowncandidates``, ``processors/nodes``;
``ScaleDownNodeUpgradeProcessor`` of ``cloudprovider/clusterapi``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.drain_codes import BLOCKS, MOVES, MOVES_UNLESS_PDB, WAITS
from kscale.ca.scale_down.drainability.engine import PodsToMove
from kscale.ca.scale_down.moving_pods import MovingPods
from kscale.effects import Moment, duration
from kscale.objects.nodegroup import NodeGroup, ProviderError
from kscale.objects.nodegroups import Groups

__all__ = [
    "EMPTY",
    "EMPTY_BUT_WAITING",
    "NOT_EMPTY",
    "GroupChanges",
    "filter_delayed",
    "filter_rolling_out",
    "prefilter",
    "register_change",
    "sort_by_scores",
    "sort_by_tier",
    "sort_candidates",
    "tiers_of",
]

EMPTY, EMPTY_BUT_WAITING, NOT_EMPTY = range(3)


class GroupChanges(msgspec.Struct, kw_only=True, rename="camel"):
    """When each group last grew, lost a node, and failed to lose one. Kept from loop to loop."""

    scale_up: dict[str, Moment] = {}
    scale_down: dict[str, Moment] = {}
    scale_down_failure: dict[str, Moment] = {}


def register_change(changes: GroupChanges, kind: str, group: str, time: Moment) -> GroupChanges:
    """After a change; ``kind`` is the name of a field of :class:`GroupChanges`."""
    return msgspec.structs.replace(changes, **{kind: {**getattr(changes, kind), group: time}})


def _group(name: str, groups: Groups) -> NodeGroup | None:
    try:
        return groups.of_node(name)
    except ProviderError:
        return None


def prefilter(names: Sequence[str], groups: Groups) -> list[str]:
    """The nodes whose group is known and larger than its minimum, in order."""
    large = {group.id for group in groups if group.target_size_error is None and group.size > group.min_size}
    ids = groups.ids_of_nodes(names)
    if large.issuperset(ids):
        return [*names]
    return [name for name, group in zip(names, ids, strict=True) if group in large]


def tiers_of(pods: MovingPods, codes: NDArray[np.uint8], nodes: int) -> NDArray[np.int64]:
    """How empty each of so many nodes is by what is said of its pods (:class:`~.drain_codes.DrainCodes`): int64[nodes];
    worked out once while the same is said of all."""
    kept = pods.memo.of(_LastTiers, _LastTiers)
    if kept.last is not None and np.array_equal(kept.last[0], codes):
        return kept.last[1]
    tiers = np.full(nodes, EMPTY)
    for tier, of_pods in ((EMPTY_BUT_WAITING, (WAITS,)), (NOT_EMPTY, (BLOCKS, MOVES, MOVES_UNLESS_PDB))):
        holds = np.zeros(256, dtype=np.bool_)
        holds[[*of_pods]] = True
        of_tier = pods.node[holds.take(codes)]
        tiers[of_tier[of_tier >= 0]] = tier
    kept.last = codes, tiers
    return tiers


class _LastTiers:
    """Of what was said last; kept with pods."""

    def __init__(self) -> None:
        self.last: tuple[NDArray[np.uint8], NDArray[np.int64]] | None = None


def sort_candidates(
    names: Iterable[str], pods_to_move: Callable[[str], PodsToMove | None], previous: Collection[str]
) -> list[str]:
    """Empty nodes first, of those the ones without pods to wait for; in each tier those that were unneeded before.

    ``pods_to_move`` judges a node with neither listers nor disruption budgets (None: it is not in the snapshot).
    Equal nodes keep their order (upstream's sort is unstable beyond twelve nodes; this is the stable choice).
    """

    def tier(name: str) -> int:
        found = pods_to_move(name)
        if found is None or found.blocking is not None or found.pods:
            return NOT_EMPTY
        return EMPTY_BUT_WAITING if found.on_completion_pods else EMPTY

    names = list(names)
    return sort_by_tier(names, [tier(name) for name in names], previous)


def sort_by_tier(names: Sequence[str], tiers: ArrayLike, previous: Collection[str]) -> list[str]:
    """The same with how empty each of the nodes is: int[names]."""
    before = np.fromiter(map({*previous}.__contains__, names), dtype=np.int64, count=len(names))
    return sort_by_scores(names, [before - 2 * np.asarray(tiers, dtype=np.int64)])


def sort_by_scores(names: Sequence[str], scores: Sequence[ArrayLike]) -> list[str]:
    """The higher score first; where the first score is equal the next decides. Equal nodes keep their order.

    ``scores``: int64[names] each."""
    last = np.arange(len(names))
    order = np.lexsort([last, *(-np.asarray(score, dtype=np.int64) for score in reversed(scores))])
    return [names[i] for i in order.tolist()]


def filter_delayed(
    names: Sequence[str], groups: Groups, changes: GroupChanges, *, options: AutoscalingOptions, now: Moment
) -> list[str]:
    """Without the nodes whose group changed too short a time ago (``--scale-down-delay-type-local``)."""
    delays = (
        (changes.scale_up, duration(options.scale_down_delay_after_add)),
        (changes.scale_down, duration(options.scale_down_delay_after_delete)),
        (changes.scale_down_failure, duration(options.scale_down_delay_after_failure)),
    )
    found = []
    for name in names:
        group = _group(name, groups)
        if group is None:
            continue
        if not any(group.id in times and now - times[group.id] < delay for times, delay in delays):
            found.append(name)
    return found


def filter_rolling_out(names: Sequence[str], groups: Groups) -> tuple[list[str], list[str]]:
    """Without the nodes whose machines the cloud is replacing, and without those of which it cannot tell; the former
    (:attr:`~kscale.objects.nodegroup.NodeGroup.rolling_out`) second."""
    rolling = {group.id for group in groups if group.rolling_out}
    unknown = {group.id for group in groups if group.rolling_out_error is not None}
    if not rolling and not unknown:
        return [*names], []
    homes = [*zip(names, groups.ids_of_nodes(names), strict=True)]
    left = [name for name, group in homes if group not in rolling and group not in unknown]
    return left, [name for name, group in homes if group in rolling and group not in unknown]
