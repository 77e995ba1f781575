"""The entry points of one whole loop of the Cluster Autoscaler (``core/static_autoscaler.go``: RunOnce).

The order of its parts is in ``loop.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace

from kscale.ca.expander.chain import respond_with
from kscale.ca.expander.types import Rank, TellPrices
from kscale.ca.legacy.metrics import in_terms_of_1_3
from kscale.ca.options import AutoscalingOptions
from kscale.ca.remembered_targets import described_targets, recall_targets, remember_targets
from kscale.ca.scale_down.actuation.remember import caught_up
from kscale.ca.scale_up.one_loop import check_options
from kscale.ca.simulated import snapshot_of
from kscale.ca.state import LoopState
from kscale.ca.static_autoscaler.answering import answering
from kscale.ca.static_autoscaler.inputs import LoopInputs
from kscale.ca.static_autoscaler.loop import RunOnce
from kscale.ca.static_autoscaler.report import LoopReport
from kscale.ca.static_autoscaler.under_way import Looping, actuator_of
from kscale.effects import (
    Moment,
    StepsOf,
    as_if_done,
    moment,
)
from kscale.objects.argument_types import typed
from kscale.objects.nodegroups import Groups, GroupsLike
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["run_once", "run_once_steps"]


@typed
def run_once(
    cluster: Cluster | Snapshot,
    groups: GroupsLike,
    *,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    state: LoopState | None = None,
    inputs: LoopInputs | None = None,
    has_instance: Mapping[str, bool] | None = None,
    rank: Rank | None = None,
    prices: TellPrices | None = None,
) -> LoopReport:
    """One whole loop as if everything succeeded: a dry run of :func:`run_once_steps`. Nothing is changed.

    ``groups``: as the cloud or a file describes them, or as the loop before left them (``report.groups``). Target sizes
    that the loop of ``state`` asked for count until the nodes have come, unless a group is described with another size
    than before.

    ``has_instance``: what the cloud says of machines, by node name (a node left out: it does not say); ``rank`` answers
    for the grpc expander, ``prices`` for a cloud that tells them. Deletions are carried on to their end, with the pods
    of the nodes gone as soon as they are evicted: the state of the report is that after.
    """
    now = moment(now)
    given, options = inputs or LoopInputs(), options or AutoscalingOptions()
    snapshot = snapshot_of(cluster, options, now)
    if not isinstance(groups, Groups):
        groups = [*groups]
    described = {} if isinstance(groups, Groups) else described_targets(groups)
    groups = recall_targets(groups, snapshot, state, now)
    actuator = given.actuator or actuator_of(state or LoopState(), snapshot, options, given)
    given = replace(given, actuator=actuator)
    steps = run_once_steps(snapshot, groups, now=now, options=options, state=state, inputs=given)
    respond = answering(snapshot, has_instance or {}, respond_with(given.expander_input, rank, prices))
    done = as_if_done(steps, now=now, respond=respond)
    report = done.value
    report.state = remember_targets(caught_up(report.state, actuator.tracker), described, report.groups)
    report.actions, report.events, report.observations = done.actions, done.events, done.observations
    return report


@typed
def run_once_steps(
    cluster: Cluster | Snapshot,
    groups: GroupsLike,
    *,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    state: LoopState | None = None,
    inputs: LoopInputs | None = None,
) -> StepsOf[Looping, LoopReport]:
    """One whole loop as a step machine.

    ``cluster``: as it was observed; ``groups``: as the loop before left them (``report.groups``), or as the cloud tells
    them: it is asked again in the course of the loop (:class:`~kscale.effects.Refresh`), and may answer that they are
    as they were. ``state``: what the loop before handed on; a process that goes on with what another one saved begins
    with :func:`kscale.ca.restarted`.

    Raises InputError for options that upstream refuses at start-up and for what no cloud has, and
    :class:`kscale.ca.AutoscalerError` for a chain of expanders that cannot be built. What goes wrong in the loop itself
    is in the report; so is a pod that is found to be none when a loop needs it whole (``image: 5``).
    """
    options = options or AutoscalingOptions()
    check_options(options)
    loop = RunOnce(cluster, groups, moment(now), options, state or LoopState(), inputs or LoopInputs())
    if options.legacy:
        report: LoopReport = yield from in_terms_of_1_3(loop.legacy().run())
        return report
    return (yield from loop.run())
