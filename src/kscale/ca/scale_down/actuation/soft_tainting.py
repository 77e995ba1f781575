"""Changing soft taints, as many as fit into a loop (``actuation/softtaint.go``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.actuation.tainting import Writing, clean_deletion_candidate, mark_deletion_candidate
from kscale.ca.scale_down.soft_taints import SoftTaints
from kscale.effects import ApiError, Moment, Progress, StepsOf, duration
from kscale.objects.core import Node

__all__ = ["SoftTainted", "update_soft_taints"]


class SoftTainted(msgspec.Struct, kw_only=True):
    """How many nodes were tried, how many were left for a later loop, and what failed."""

    tried: int = 0
    skipped: int = 0
    errors: list[ApiError] = []


def update_soft_taints(
    wanted: SoftTaints, nodes: Mapping[str, Node], options: AutoscalingOptions, now: Moment
) -> StepsOf[Writing, SoftTainted]:
    """Takes the taint from nodes and then gives it to others, until ``--max-bulk-soft-taint-count`` attempts
    were made or ``--max-bulk-soft-taint-time`` is over.

    An error costs an attempt and stops nothing.
    """
    p = Progress(now)
    until = now + duration(options.max_bulk_soft_taint_time)
    done = SoftTainted(errors=[])

    def each(names: Iterable[str], add: bool) -> StepsOf[Writing, None]:
        for name in names:
            if done.tried >= options.max_bulk_soft_taint_count or p.now >= until:
                done.skipped += 1
                continue
            done.tried += 1
            if add:
                error = yield from mark_deletion_candidate(p, nodes[name])
            else:
                error, _ = yield from clean_deletion_candidate(p, nodes[name])
            if error is not None:
                done.errors.append(error)

    yield from each(wanted.remove, add=False)
    yield from each(wanted.add, add=True)
    return done
