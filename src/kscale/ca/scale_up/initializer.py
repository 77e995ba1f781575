"""The first scale-up of groups that are made in the background (``core/scaleup/orchestrator/async_initializer.go``).

While a group is being made (``--async-node-groups``) scale-ups only note the size that it shall get. When the provider
is done, :func:`initialize_steps` gives the groups that came of it those sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec.structs import replace

from kscale.ca.balancing import ScaleUpInfo
from kscale.ca.cluster_state import ClusterStateRegistry
from kscale.ca.errors import INTERNAL_ERROR, ErrorRecord
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_up.creation import AsyncInitializer
from kscale.ca.scale_up.executor import Executing, execute_steps
from kscale.ca.scale_up.status import ERROR, SUCCESSFUL, MadeGroups, ScaleUpStatus, status_events
from kscale.effects import ApiError, CreatedGroups, Moment, Progress, StepsOf, moment
from kscale.objects.argument_types import typed
from kscale.objects.nodegroups import Groups

__all__ = ["Initialization", "initialize_in", "initialize_steps"]


class Initialization(msgspec.Struct, kw_only=True):
    """What came of it: the ``initializer`` and the cluster ``state`` to go on with. ``status`` is None where nothing
    was left to do; ``warnings`` are what upstream would log."""

    initializer: AsyncInitializer
    state: ClusterStateRegistry
    status: ScaleUpStatus | None = None
    warnings: list[str] = []


@typed
def initialize_steps(
    initializer: AsyncInitializer,
    made: CreatedGroups | ApiError,
    *,
    upcoming_of: Mapping[str, str],
    state: ClusterStateRegistry,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
) -> StepsOf[Executing, Initialization]:
    """Raises the size of each group that is behind what the ``initializer`` was asked for meanwhile.

    ``made``: the groups that exist now, or why they do not; ``upcoming_of``: by what id each was known while it was
    being made. A group that is not in there stays as it is. What is asked for counts as done, whatever comes of it.
    """
    options = options or AutoscalingOptions()
    return initialize_in(Progress(moment(now)), initializer, made, upcoming_of, state, options)


def initialize_in(
    p: Progress,
    initializer: AsyncInitializer,
    made: CreatedGroups | ApiError,
    upcoming_of: Mapping[str, str],
    state: ClusterStateRegistry,
    options: AutoscalingOptions,
) -> StepsOf[Executing, Initialization]:
    """The same within a machine that is under way."""
    if isinstance(made, ApiError):
        error = ErrorRecord(type=made.reason or INTERNAL_ERROR, message=made.message)
        status = ScaleUpStatus(result=ERROR, error=error)
        return Initialization(initializer=initializer, state=state, status=status)
    plan: list[ScaleUpInfo] = []
    warnings: list[str] = []
    processed = dict(initializer.processed_sizes)
    for group in (made.main, *made.extra):
        upcoming = upcoming_of.get(group.id)
        if upcoming is None:
            warnings.append(f"nothing is known of new node group {group.id}: it stays as it is")
            continue
        target, done = initializer.target_size(upcoming), processed.get(upcoming, 0)
        if target > done:
            plan.append(ScaleUpInfo(group=group.id, current=done, new=target, max=group.max_size))
            processed[upcoming] = target
    initializer = replace(initializer, processed_sizes=processed)
    if not plan:
        return Initialization(initializer=initializer, state=state, warnings=warnings)
    execution = yield from execute_steps(
        p, plan, Groups([made.main, *made.extra]), state, options=options, atomic=initializer.atomic
    )
    created = [MadeGroups(main=made.main.id, extra=[group.id for group in made.extra])]
    if execution.error is not None:
        status = ScaleUpStatus(
            result=ERROR,
            error=execution.error.record,
            pods_triggered=initializer.pods,
            failed_resize_groups=execution.failed_groups,
            created_groups=created,
        )
    else:
        status = ScaleUpStatus(
            result=SUCCESSFUL, scale_ups=plan, pods_triggered=initializer.pods, created_groups=created
        )
    yield from p.emit(*status_events(status))
    return Initialization(initializer=initializer, state=execution.state, status=status, warnings=warnings)
