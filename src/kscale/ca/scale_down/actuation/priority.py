"""Which pods of a node are evicted together, and how long each lot may take (``actuation/priority.go``)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from kscale.ca.options import AutoscalingOptions, DrainPriority, parse_drain_priority_config
from kscale.objects.core import Pod

__all__ = ["PodEvictionGroup", "drain_config", "group_by_priority"]

_MAX_INT32: Final = 2**31 - 1


class PodEvictionGroup(msgspec.Struct, kw_only=True):
    """Pods that go at the same time. A node is drained of the ``full`` ones; ``best_effort`` ones may stay."""

    seconds: int
    full: list[Pod] = []
    best_effort: list[Pod] = []


def drain_config(options: AutoscalingOptions) -> tuple[list[DrainPriority], bool]:
    """Priorities with their seconds, lowest first, and whether DaemonSet pods have to be gone, too.

    Without ``--drain-priority-config`` all pods go at once.
    """
    given = parse_drain_priority_config(options.drain_priority_config) if options.drain_priority_config else []
    if given:
        return sorted(given, key=lambda item: item.priority), True
    return [DrainPriority(_MAX_INT32, options.max_graceful_termination_sec)], False


def group_by_priority(
    config: Sequence[DrainPriority], full: Iterable[Pod], best_effort: Iterable[Pod]
) -> list[PodEvictionGroup]:
    """The pods in the groups of the configuration, lowest priority first; groups may be empty.

    A pod belongs to the last group whose priority is not above its own; one below the lowest belongs there.
    """
    groups = [PodEvictionGroup(seconds=item.shutdown_grace_period_seconds, full=[], best_effort=[]) for item in config]
    priorities = [item.priority for item in config]
    for pod in full:
        groups[_index(pod, priorities)].full.append(pod)
    for pod in best_effort:
        groups[_index(pod, priorities)].best_effort.append(pod)
    return groups


def _index(pod: Pod, priorities: Sequence[int]) -> int:
    own = pod.spec.priority or 0
    index = bisect_left(priorities, own)
    if index == len(priorities):
        return index - 1
    return index - 1 if index and priorities[index] > own else index
