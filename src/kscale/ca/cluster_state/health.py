"""Whether the cluster, or one of its groups, is in a state to be scaled up."""

from __future__ import annotations

from datetime import datetime

from kscale.ca.backoff import Backoff, backed_off
from kscale.ca.cluster_state.state import ClusterStateRegistry
from kscale.ca.options import AutoscalingOptions
from kscale.effects import Moment, moment

__all__ = ["backoff_status", "is_cluster_healthy", "is_group_healthy", "is_safe_to_scale_up"]


def backoff_status(
    state: ClusterStateRegistry, group: str, now: datetime | Moment, *, has_template: bool = True
) -> Backoff | None:
    """The back-off in force for a group; a group without template is never in back-off."""
    now = moment(now)
    return backed_off(state.backoffs, group, now) if has_template else None


def is_cluster_healthy(state: ClusterStateRegistry, options: AutoscalingOptions) -> bool:
    """Healthy unless more nodes than ``ok_total_unready_count`` and than the percentage of all are unready.

    Release 1.3 counts machines that should long have registered as well.
    """
    unready = len(state.total.unready)
    if options.legacy:
        unready += len(state.total.long_unregistered)
    share = options.max_total_unready_percentage / 100.0 * state.node_count
    return not (unready > options.ok_total_unready_count and unready > share)


def is_group_healthy(state: ClusterStateRegistry, group: str, options: AutoscalingOptions) -> bool:
    """Healthy unless too many nodes are missing. A group of unknown size is not."""
    expected = state.ranges.get(group)
    if expected is None:
        return False
    known = state.readiness.get(group)
    if known is None:
        return expected.current_target == 0 or (expected.min_nodes == 0 and expected.current_target > 0)
    missing = max(0, expected.min_nodes - len(known.ready) - len(known.suspended))
    present = len(known.ready) + len(known.unready) + len(known.not_started) + len(known.suspended)
    share = options.max_total_unready_percentage / 100.0 * present
    return not (missing > options.ok_total_unready_count and missing > share)


def is_safe_to_scale_up(
    state: ClusterStateRegistry,
    group: str,
    now: datetime | Moment,
    options: AutoscalingOptions,
    *,
    has_template: bool = True,
) -> bool:
    """Healthy and not in back-off."""
    now = moment(now)
    if not is_group_healthy(state, group, options):
        return False
    return backoff_status(state, group, now, has_template=has_template) is None
