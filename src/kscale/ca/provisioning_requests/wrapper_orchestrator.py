"""Scale-ups for requests and for other pods, which take turns (``provisioningrequest/orchestrator``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace as replace_dataclass

from msgspec.structs import replace

from kscale.ca.provisioning_requests.best_effort_atomic import ScaleUp, best_effort_atomic_steps
from kscale.ca.provisioning_requests.check_capacity import check_capacity_steps
from kscale.ca.provisioning_requests.classes import BEST_EFFORT_ATOMIC, checks_capacity
from kscale.ca.provisioning_requests.consumers import request_of
from kscale.ca.provisioning_requests.hinting_simulator import HintingSimulator
from kscale.ca.provisioning_requests.in_loop import Provisioning
from kscale.ca.scale_up.ground import ScaleUpGround
from kscale.ca.scale_up.orchestration import Orchestration
from kscale.ca.scale_up.orchestrator import Orchestrating, orchestrate_in
from kscale.ca.scale_up.status import NOT_TRIED, ScaleUpStatus
from kscale.effects import Progress, StepsOf, WriteStatus, duration
from kscale.objects.core import Pod
from kscale.objects.provisioning_requests import ProvisioningRequest
from kscale.scheduling.place import PlaceResult
from kscale.snapshot.record import PodRecord, pod_record
from kscale.snapshot.snapshot import Snapshot

__all__ = ["WrapperOrchestrator"]

ScalingUp = Orchestrating | WriteStatus


class WrapperOrchestrator:
    """In the place of :func:`~kscale.ca.scale_up.orchestrator.orchestrate_in`. The simulated cluster is as before after
    a scale-up for a request."""

    def __init__(self, provisioning: Provisioning) -> None:
        self.provisioning = provisioning

    def orchestrate_in(
        self,
        p: Progress,
        snapshot: Snapshot,
        pods: Iterable[Pod | PodRecord],
        ground: ScaleUpGround,
    ) -> StepsOf[ScalingUp, Orchestration]:
        """One scale-up: for the request, or for the other pods."""
        provisioning, records = self.provisioning, [pod_record(pod) for pod in pods]
        of_request = [record for record in records if record.key in provisioning.injected]
        others = [record for record in records if record.key not in provisioning.injected]
        memory = provisioning.memory
        turn = bool(of_request) and (memory.requests_next or not others)
        provisioning.memory = replace(memory, requests_next=not turn)
        if not turn:
            done = yield from orchestrate_in(p, snapshot, others, ground)
            return replace(done, waiting_turn=[record.key for record in of_request])

        def scale_up(placed: PlaceResult, left: Sequence[PodRecord]) -> StepsOf[Orchestrating, Orchestration]:
            atomic = replace(ground.inputs, all_or_nothing=True)
            rest = replace_dataclass(ground, inputs=atomic, cursor=placed.state.cursor)
            return orchestrate_in(p, placed.snapshot_after, left, rest)

        simulator = HintingSimulator(provisioning.memory.hints, cursor=ground.cursor, profile=provisioning.profile)
        nothing = Orchestration.without_options(
            ScaleUpStatus(result=NOT_TRIED), ground.state, ground.groups, ground.templates, ground.inputs.initializers
        )
        pods_of_request = [record.pod for record in of_request]
        done = yield from self._provide(p, snapshot, pods_of_request, simulator, scale_up, nothing)
        provisioning.memory = replace(provisioning.memory, hints=simulator.hints)
        return replace(done, cursor=simulator.cursor, waiting_turn=[record.key for record in others])

    def _provide(
        self,
        p: Progress,
        snapshot: Snapshot,
        pods: Sequence[Pod],
        simulator: HintingSimulator,
        scale_up: ScaleUp[Orchestrating],
        nothing: Orchestration,
    ) -> StepsOf[ScalingUp, Orchestration]:
        """What the class of the request makes of it; ``nothing``: no class takes it."""
        provisioning, requests, options = self.provisioning, self.provisioning.requests, self.provisioning.options
        request = requests.get(f"{pods[0].namespace}/{request_of(pods[0])}")
        batch = options.check_capacity_batch_processing
        many = batch and options.check_capacity_provisioning_request_max_batch_size > 1
        asked: list[tuple[ProvisioningRequest, list[Pod]]] = []
        if many:
            asked = yield from provisioning.batch(p.now)
        elif request is not None and checks_capacity(request, options.check_capacity_processor_instance):
            asked = [(request, list(pods))]
        if asked:
            if batch:
                provisioning.memory = replace(provisioning.memory, last_processed=p.now)
            timebox = duration(options.check_capacity_provisioning_request_batch_timebox) if many else None
            checks = yield from check_capacity_steps(snapshot, asked, requests, simulator, now=p.now, timebox=timebox)
            provisioning.warnings += checks.warnings
            here = {pod.key for pod in pods}
            existing = {name: node for name, node in checks.placement.items() if name in here}
            status = ScaleUpStatus(result=checks.result, error=checks.error)
            return replace(nothing, status=status, existing=existing)
        if request is None or request.spec.provisioning_class_name != BEST_EFFORT_ATOMIC:
            return nothing
        found = yield from best_effort_atomic_steps(snapshot, request, pods, requests, simulator, scale_up, now=p.now)
        done = found.done or nothing
        return replace(done, status=found.status, existing=found.existing, failure=found.failure)
