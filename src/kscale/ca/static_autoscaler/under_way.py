"""What a loop under way has at hand."""

from __future__ import annotations

from dataclasses import replace as replace_input

from kscale.ca.cluster_state import Updating
from kscale.ca.expander.types import ExpanderInput
from kscale.ca.legacy.run_once import LegacyLooping
from kscale.ca.options import AutoscalingOptions
from kscale.ca.repair import Repairing
from kscale.ca.scale_down.actuation.actuator import Actuator
from kscale.ca.scale_down.actuation.deletion_tracker import ActuationStatus, Deletions
from kscale.ca.scale_down.actuation.marking import Marking
from kscale.ca.scale_up.inputs import OrchestratorInputs
from kscale.ca.scale_up.loop import ScaleUpLoop
from kscale.ca.scale_up.orchestrator import Orchestrating
from kscale.ca.scale_up.scene import Scene
from kscale.ca.similarity import Comparator
from kscale.ca.state import LoopState
from kscale.ca.static_autoscaler.inputs import LoopInputs
from kscale.ca.static_autoscaler.report import LoopReport
from kscale.ca.status_config_map import WritingStatus, status_text, write_status
from kscale.effects import (
    Delete,
    DeleteGroup,
    HasInstances,
    InBackground,
    Moment,
    Observe,
    Progress,
    Refresh,
    StepsOf,
    WriteStatus,
)
from kscale.objects.nodegroups import GroupsLike
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["LoopUnderWay", "Looping", "actuator_of"]

Looping = (
    Orchestrating
    | Updating
    | Repairing
    | Marking
    | WritingStatus
    | Refresh
    | HasInstances
    | DeleteGroup
    | InBackground
    | Observe
    | WriteStatus
    | Delete
    | LegacyLooping
)
"""What a whole loop asks for. Deletions that it starts go on in the background."""


def actuator_of(state: LoopState, snapshot: Snapshot, options: AutoscalingOptions, inputs: LoopInputs) -> Actuator:
    """One for this loop alone: the deletions of the state are under way as long as their nodes are there."""
    there, known = snapshot.columns.index, state.deletions
    still = Deletions(
        empty={node: group for node, group in known.empty.items() if node in there},
        drained={node: group for node, group in known.drained.items() if node in there},
    )
    return Actuator(options, gpu_label=inputs.gpu_label, gpu_types=inputs.gpu_types, known=still)


class LoopUnderWay:
    """One loop under way: the scene, the scale-up part, the actuator, and the report as far as it has come.
    ``under_way``: the deletions that the loop found going on, once it has looked."""

    under_way: ActuationStatus

    def __init__(
        self,
        cluster: Cluster | Snapshot,
        groups: GroupsLike,
        now: Moment,
        options: AutoscalingOptions,
        before: LoopState,
        inputs: LoopInputs,
    ) -> None:
        self.p = p = Progress(now)
        self.now, self.options, self.inputs = now, options, inputs
        self.scene = scene = Scene(
            cluster, groups, now, options, inputs.profile, inputs.gpu_label, inputs.templates, before.templates
        )
        self.actuator = inputs.actuator or actuator_of(before, scene.found, options, inputs)
        self.up = ScaleUpLoop(
            p,
            scene,
            before,
            OrchestratorInputs(
                expander_input=replace_input(inputs.expander_input or ExpanderInput(), gpu_label=inputs.gpu_label),
                quotas=inputs.quotas,
                comparator=inputs.comparator or Comparator.from_options(options),
                profile=inputs.profile,
                rng=inputs.rng,
            ),
        )
        self.report = LoopReport(state=before, groups=scene.groups, snapshot_after=scene.found, warnings=scene.warnings)

    @property
    def state(self) -> LoopState:
        return self.up.state

    @state.setter
    def state(self, state: LoopState) -> None:
        self.up.state = state

    def show(self) -> StepsOf[WritingStatus, None]:
        assert self.report.status is not None
        text = status_text(self.report.status, self.now)
        problem = yield from write_status(self.p, text, self.options, self.now)
        if problem is not None:
            self.scene.warnings.append(problem)
