"""How many nodes may be unneeded at a time, and how many are looked at (``core/scaledown/planner``)."""

from __future__ import annotations

from datetime import timedelta

from kscale.ca.options import AutoscalingOptions
from kscale.ca.state import ScaleDownState
from kscale.effects import Moment, duration, to_text
from kscale.errors import InputError

__all__ = ["shortest_interval", "simulations_in_time", "unneeded_limit"]


def shortest_interval(memory: ScaleDownState, options: AutoscalingOptions, now: Moment) -> int:
    """The shortest time between two loops so far, in nanoseconds; before the second, the unneeded time.

    Raises InputError for a ``now`` before the last loop's.
    """
    shortest = memory.update_interval
    if shortest is None:
        shortest = duration(options.scale_down_unneeded_time) or 1
    if memory.last_update is None:
        return shortest
    passed = now - memory.last_update
    if passed < 0:
        raise InputError(f"now ({to_text(now)}) is before the last loop ({to_text(memory.last_update)})")
    return min(shortest, passed)


def unneeded_limit(before: int, interval: int, options: AutoscalingOptions) -> int:
    """``unneededNodesLimit``, with ``before`` nodes unneeded until now, and so many nanoseconds between two loops.

    Two loops at one moment would divide by zero in upstream; here that moment counts as a nanosecond.
    """
    most = options.max_scale_down_parallelism
    interval = max(interval, 1)
    unneeded_time = duration(options.scale_down_unneeded_time)
    return min(before + 2 * most, most * (max(unneeded_time, interval) // interval) + most)


def simulations_in_time(options: AutoscalingOptions, max_simulations: int | None) -> int | None:
    """How many candidates there is time for (None: for all); none if the time-out is over before it begins.

    ``max_simulations`` is what the caller says there is time for in ``--scale-down-simulation-timeout``.
    """
    return 0 if options.scale_down_simulation_timeout <= timedelta() else max_simulations
