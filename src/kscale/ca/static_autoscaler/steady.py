"""Loops that could only find again what the one before them found.

A loop is a function of the cluster, the groups, the state that it was handed, and now. Of equal clusters and groups it
finds the same again, if it was handed the same, and if now makes no difference. The first is so if the last loop handed
on what it was handed itself, but for the moments of loops (:func:`repeated`). The second is so until one of the moments
that a loop can compare now with is so long ago as one of the durations that it can compare with
(:func:`next_difference`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace

from kscale.ca.cluster_state import ClusterAutoscalerStatus
from kscale.ca.options import AutoscalingOptions
from kscale.ca.state import LoopState
from kscale.effects import LAST_TIME, SECOND, ZERO_TIME, Moment, duration, from_text
from kscale.objects.core import Node
from kscale.objects.nodegroups import Groups
from kscale.snapshot.pod_states import GONE
from kscale.snapshot.snapshot import Snapshot

__all__ = ["is_repetition", "is_settled", "moments_of_nodes", "next_difference", "repeated"]

_A_MOMENT: Final = 10**17
"""Numbers of a state from here on are moments (from 1973 on): no duration is three years."""
_FIXED: Final = tuple(seconds * SECOND for seconds in (0, 2, 10, 30, 60, 300, 600, 3600))
"""Durations that no option names: pods that have just come, grace, nodes that have just become ready, deletions that
take too long, a process that has just begun."""


def repeated(state: LoopState, now: Moment) -> LoopState | None:
    """What a loop at ``now`` hands on that finds what the loop before it found, which handed on ``state``. None: no
    loop is like another yet, or this one comes sooner than any before."""
    cluster, down = state.cluster, state.scale_down
    last = cluster.last_update
    if last is None or down.last_update != last or down.update_interval is None or now - last < down.update_interval:
        return None
    updated = now if cluster.last_scale_down_update == last else cluster.last_scale_down_update
    return replace(
        state,
        cluster=replace(cluster, last_update=now, last_scale_down_update=updated),
        scale_down=replace(down, last_update=now),
        templates={
            name: replace(item, added=now) if item.added == last else item for name, item in state.templates.items()
        },
    )


def is_repetition(before: LoopState, after: LoopState) -> bool:
    """Whether a loop that was handed ``before`` and handed on ``after`` found the same as the loop before it."""
    now = after.cluster.last_update
    expected = None if now is None else repeated(before, now)
    if expected is None or _told(before.cluster.last_status) != _told(after.cluster.last_status):
        return False
    return _without_status(expected) == _without_status(after)


def is_settled(snapshot: Snapshot) -> bool:
    """Whether no pod waits for a node, and none is about to end: the ages of the others make no difference."""
    table = snapshot.table
    ending = table.column("deleted")[table.column("state") != GONE] != ZERO_TIME
    return not snapshot.counts["pending"] and not ending.any()


def _without_status(state: LoopState) -> LoopState:
    return replace(state, cluster=replace(state.cluster, last_status=None))


def _told(status: ClusterAutoscalerStatus | None) -> Any:
    """A status without the moments at which loops looked."""

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without(each) for key, each in value.items() if key not in ("lastProbeTime", "time")}
        return [without(each) for each in value] if isinstance(value, list) else value

    return without(msgspec.to_builtins(status))


def moments_of_nodes(nodes: Iterable[Node]) -> set[Moment]:
    """The moments of nodes that a loop may compare now with."""
    texts: set[str | None] = set()
    found: set[Moment] = set()
    for node in nodes:
        texts.add(node.metadata.creation_timestamp)
        texts.update([each.last_transition_time for each in node.status.conditions])
        for taint in node.spec.taints:
            texts.add(taint.time_added)
            if taint.value.isdecimal() and int(taint.value) <= LAST_TIME // SECOND:  # not all numbers are seconds
                found.add(int(taint.value) * SECOND)
    found.update(from_text(text) for text in texts if text)
    return found


def next_difference(
    state: LoopState,
    nodes: Iterable[Moment],
    groups: Groups,
    options: AutoscalingOptions,
    *,
    begun: Moment,
    now: Moment,
) -> Moment:
    """The first moment after ``now`` at which a loop with the same cluster and groups, handed this state, may find
    something else. ``nodes``: :func:`moments_of_nodes`; ``begun``: when the process began."""
    last = state.cluster.last_update
    moments = {each for each in _moments(state) if each != last}.union(nodes, (begun,))
    durations = {*_FIXED, *_durations(options)}
    for group in groups:
        if group.options is not None:
            durations |= {round(each * SECOND) for each in _seconds(group.options)}
    of = np.array(sorted(moments - {ZERO_TIME}), np.int64)
    sums = (of[:, None] + np.array(sorted(durations), np.int64)[None, :]).ravel()
    ahead = sums[sums > now]
    return int(ahead.min()) if len(ahead) else int(np.iinfo(np.int64).max)


def _moments(state: LoopState) -> set[Moment]:
    found: set[Moment] = set()
    left: list[Any] = [state]
    while left:
        value = left.pop()
        of = type(value)
        if of is int:  # what is there most comes first
            if value >= _A_MOMENT:
                found.add(value)
        elif of is str:
            continue
        elif value is None or isinstance(value, str | ClusterAutoscalerStatus):
            continue  # a status only shows what stands elsewhere
        elif isinstance(value, msgspec.Struct):
            left += [getattr(value, field) for field in value.__struct_fields__]
        elif isinstance(value, dict | list | tuple | set | frozenset):
            each = value.values() if isinstance(value, dict) else value
            kinds = set(map(type, each))
            if kinds == {int}:  # of what there is most all are moments, or names
                found.update(filter(_A_MOMENT.__le__, each))
            elif kinds != {str}:
                left += each
    return found


def _durations(options: AutoscalingOptions) -> Iterator[int]:
    for field in options.__struct_fields__:
        value = getattr(options, field)
        if isinstance(value, timedelta):
            yield duration(value)


def _seconds(options: msgspec.Struct) -> Iterator[float]:
    for field in options.__struct_fields__:
        value = getattr(options, field)
        if field.endswith("_time") and value is not None:
            yield value
