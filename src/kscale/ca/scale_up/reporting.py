"""What came of a scale-up, as a status tells it (``core/scaleup/orchestrator``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from kscale.ca.balancing import ScaleUpInfo
from kscale.ca.errors import AutoscalerError
from kscale.ca.expander.chain import Expansion
from kscale.ca.expander.types import ExpanderInput, Option
from kscale.ca.metrics import took
from kscale.ca.scale_up.creation import AsyncInitializer
from kscale.ca.scale_up.expansion import ExpansionFinder, ExpansionOption
from kscale.ca.scale_up.ground import ScaleUpGround
from kscale.ca.scale_up.orchestration import Orchestration
from kscale.ca.scale_up.status import (
    ALL_OR_NOTHING,
    ERROR,
    EXECUTION_FAILED,
    NO_OPTIONS_AVAILABLE,
    ConsideredGroup,
    MadeGroups,
    RemainingPod,
    ScaleUpStatus,
)
from kscale.effects import CreatedGroups, Deferred, Moment, Progress, StepsOf, Wait
from kscale.objects.nodegroup import NodeGroup
from kscale.scheduling.pods import PodsLike
from kscale.snapshot.snapshot import Snapshot

__all__ = ["ScaleUpReporting"]


class ScaleUpReporting(ExpansionFinder):
    """A scale-up whose options were found, and what there is to tell of it. ``created``: groups that were made;
    ``grown``: the groups with the targets of now; ``tells_left``: whether the status says why pods are left."""

    expansion: Expansion | None = None
    asked: Sequence[Option] = ()
    given: ExpanderInput | None = None
    compared: frozenset[str] = frozenset()
    tells_left = False

    def __init__(self, p: Progress, snapshot: Snapshot, pods: PodsLike, ground: ScaleUpGround) -> None:
        super().__init__(p, snapshot, pods, ground)
        self.created: list[CreatedGroups] = []
        self.considered_more: list[NodeGroup] = []
        self.grown = self.groups
        self.initializers: dict[str, AsyncInitializer] = dict(self.inputs.initializers)
        self.resized: Sequence[tuple[ScaleUpInfo, Moment]] = ()

    def considered(self) -> list[ConsideredGroup]:
        every = [*self.every, *self.considered_more]
        return [ConsideredGroup(id=group.id, exists=group.exists) for group in every]

    def created_groups(self) -> list[MadeGroups]:
        return [MadeGroups(main=made.main.id, extra=[item.id for item in made.extra]) for made in self.created]

    def left(self) -> Sequence[RemainingPod]:
        """The pods that are left, once somebody looks at them."""
        self.tells_left = True
        return Deferred(self.remaining)

    def remaining(self) -> list[RemainingPod]:
        skipped = self.filtered.skipped
        if not self.options.scaleup_simulation_for_skipped_node_groups_enabled:
            return self.egs.remaining(skipped)
        # What the skipped groups would have said; where they would not have taken the pod, that counts.
        judged = self.egs.blank()
        for group in self.every:
            if group.id in skipped and group.id in self.templates:
                self.judge(group.id, judged)
        found = []
        for number in np.flatnonzero(~self.egs.schedulable).tolist():
            simulated = judged.errors(number)
            rejected = {**self.egs.errors(number), **simulated}
            left = {name: reasons for name, reasons in skipped.items() if name not in simulated}
            found += [
                RemainingPod(pod=pod, rejected_groups=rejected, skipped_groups=left) for pod in self.egs.keys_of(number)
            ]
        return found

    def unmodelled(self) -> list[str]:
        sessions = {id(session): session for session in (self.session, *(late for late, _ in self.compiled.values()))}
        return list(dict.fromkeys(text for session in sessions.values() for text in session.unmodelled))

    def finish(self, result: str) -> Orchestration:
        return self.result(
            ScaleUpStatus(result=result, pods_remain_unschedulable=self.left(), considered_groups=self.considered())
        )

    def abort(self) -> Orchestration:
        self.egs.give_up(ALL_OR_NOTHING)
        return self.finish(NO_OPTIONS_AVAILABLE)

    def fail_early(self, error: AutoscalerError) -> Orchestration:
        def everybody() -> list[RemainingPod]:
            return [RemainingPod(pod=pod) for number in range(len(self.egs)) for pod in self.egs.keys_of(number)]

        left = Deferred(everybody)
        return self.result(ScaleUpStatus(result=ERROR, error=error.record, pods_remain_unschedulable=left))

    def fail(self, error: AutoscalerError, chosen: ExpansionOption) -> Orchestration:
        self.egs.give_up(EXECUTION_FAILED)
        return self.result(
            ScaleUpStatus(
                result=ERROR,
                error=error.record,
                pods_triggered=Deferred(lambda: chosen.pods),
                pods_remain_unschedulable=self.left(),
                created_groups=self.created_groups(),
            )
        )

    def result(self, status: ScaleUpStatus) -> Orchestration:
        return Orchestration(
            status=status,
            state=self.state,
            options=self.found,
            expansion=self.expansion,
            skipped=self.filtered.skipped,
            cursor=self.session.engine.cursor,
            pod_groups=self.egs,
            asked_groups=[group.id for group in self.every],
            groups=self.grown,
            templates=self.templates,
            unmodelled=self.unmodelled(),
            compared=self.compared,
            initializers=self.initializers,
            resized=self.resized,
            exceeded=self.filtered.exceeded,
            observations=tuple(self.observations),
            sharing=tuple(self.sharing),
            expander_options=self.asked,
            expander_input=self.given,
        )

    def with_simulation(self, done: Orchestration) -> StepsOf[Wait, Orchestration]:
        """With ``--scaleup-simulation-for-skipped-node-groups-enabled`` the groups that were skipped are simulated
        before the scale-up ends, and it is counted how long that takes."""
        if not (self.tells_left and self.options.scaleup_simulation_for_skipped_node_groups_enabled):
            return done
        begun = self.p.now
        list(done.status.pods_remain_unschedulable)
        ended = yield from self.p.clock()
        simulated = took("scaleUp:skippedNodeGroupsSimulation", ended - begun)
        return replace(done, observations=(*done.observations, simulated))
