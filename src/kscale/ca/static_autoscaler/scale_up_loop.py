"""Scale-up of one loop: cluster state, pod lists, orchestrator, and salvos of scale-ups.

Each scale-up of a salvo (``--salvo-scale-up``) sees the nodes that the previous ones requested.
:mod:`kscale.ca.pod_lists.should_scale_up` decides whether the loop tries to scale up at all;
``scale_up/orchestrator.py`` has the order of one scale-up.

Upstream: ``core/static_autoscaler.go`` (``RunOnce``, ``runScaleUpSalvo``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace as replace_dataclass
from dataclasses import replace as replace_input
from datetime import datetime
from itertools import count

import msgspec
import numpy as np
from msgspec.structs import replace

from kscale.ca.capacity_buffers import inject_buffer_pods_steps
from kscale.ca.capacity_buffers.injection import InjectedFakePods
from kscale.ca.cluster_state import ClusterUpdateAction, update_nodes_steps
from kscale.ca.errors import AutoscalerError
from kscale.ca.expander.price import build_group_prices
from kscale.ca.expander.types import ExpanderInput
from kscale.ca.loop_context import LoopContext, mark_upcoming
from kscale.ca.node_group_set import ScaleUpInfo
from kscale.ca.pod_lists.lists import PendingPodList, clear_tpu_requests, filter_out_expendable_pods, split_pods
from kscale.ca.pod_lists.processors import (
    add_drained_pods,
    build_missing_pods,
    enforce_injection_limit,
    filter_out_daemon_set_pods,
    filter_out_young_pods,
)
from kscale.ca.pod_lists.should_scale_up import (
    ScaleUpEnforcer,
    get_max_looks,
    has_provisioning_request_consumer,
    should_scale_up,
    update_degradation_counter,
)
from kscale.ca.provisioning_requests import ProvisioningRequestProcessor, WrapperOrchestrator
from kscale.ca.quota import Quota, build_cluster_maximum_quota, read_capacity_quotas
from kscale.ca.scale_up.inputs import OrchestratorInputs, ScaleUpContext
from kscale.ca.scale_up.min_size import MinSizeScaleUpResult, scale_up_to_min_size_substeps
from kscale.ca.scale_up.orchestrator import OrchestratorAction, OrchestratorResult, orchestrate_substeps
from kscale.ca.scale_up.plan import PodFilterResult, ScaleUpPlan, build_untried_events
from kscale.ca.scale_up.records import PodCounts
from kscale.ca.scale_up_status import SCALE_UP_ERROR, SCALE_UP_NOT_TRIED, SCALE_UP_SUCCESSFUL, build_scale_up_events
from kscale.ca.state.loop_state import LoopState, RememberedTemplate, ScaleUpState, register_group_change
from kscale.ca.templates import copy_template
from kscale.effects import Deferred, Delete, Emit, Moment, Progress, StepsOf, WriteStatus, duration, moment
from kscale.objects.api.core import Pod
from kscale.objects.argument_types import typed
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.nodegroups import Groups
from kscale.scheduling.devices.ledger import reserve
from kscale.scheduling.fork import fork
from kscale.scheduling.place import PlaceState, place
from kscale.snapshot.pods.record import PodRecord, pod_record
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "OrchestrateFunction",
    "SalvoResult",
    "SalvoRound",
    "ScaleUpLoop",
    "scale_up_salvo_steps",
    "scale_up_salvo_substeps",
]


OrchestrateFunction = Callable[
    [Progress, Snapshot, Sequence[PodRecord], ScaleUpContext],
    StepsOf[OrchestratorAction | WriteStatus, OrchestratorResult],
]
"""As :func:`~kscale.ca.scale_up.orchestrator.orchestrate_substeps`."""


class SalvoRound(msgspec.Struct, kw_only=True):
    """One scale-up of the salvo, and how many nodes it was given."""

    done: OrchestratorResult
    node_count: int


class SalvoResult(msgspec.Struct, kw_only=True):
    """All ``rounds`` of a salvo; ``snapshot_after`` is the simulated cluster after them (the last one added nothing).

    ``warning``: why it ended early, if it did.
    """

    rounds: list[SalvoRound]
    snapshot_after: Snapshot
    warning: str = ""


@typed
def scale_up_salvo_steps(
    snapshot: Snapshot, pods: Iterable[Pod | PodRecord], ground: ScaleUpContext, *, now: datetime | Moment
) -> StepsOf[OrchestratorAction | WriteStatus, SalvoResult]:
    """Run :func:`kscale.ca.orchestrate_steps` repeatedly with the pods that remain.

    The salvo ends after an error, after a scale-up that did nothing, when no pod is left, or when
    ``--salvo-scale-up-budget`` is used up after a round. Between rounds the new nodes are added to the simulated
    cluster, with the pods that triggered them and allocated claims.
    """
    return scale_up_salvo_substeps(Progress(moment(now)), snapshot, pods, ground)


def scale_up_salvo_substeps(
    p: Progress,
    snapshot: Snapshot,
    pods: Iterable[Pod | PodRecord],
    ground: ScaleUpContext,
    orchestrate: OrchestrateFunction = orchestrate_substeps,
) -> StepsOf[OrchestratorAction | WriteStatus, SalvoResult]:
    """Run a salvo within a step machine that is in progress.

    ``orchestrate`` replaces the orchestrator.
    """
    until = (yield from p.clock()) + duration(ground.options.salvo_scale_up_budget)
    result, uid_of = SalvoResult(rounds=[], snapshot_after=snapshot), snapshot.pod_uid
    pending = [pod_record(pod) for pod in pods]
    for number in count():
        snapshot = result.snapshot_after
        done = yield from orchestrate(p, snapshot, pending, ground)
        result.rounds.append(SalvoRound(done=done, node_count=len(ground.nodes)))
        yield from p.emit(*ground.inputs.made_up.events(done.status, uid_of))
        triggered = set(done.status.pods_triggered)
        fitted = {pod.key: pod for pod in pending if pod.key in triggered}
        pending = [pod for pod in pending if pod.key not in triggered]
        if done.status.result != SCALE_UP_SUCCESSFUL or done.failure is not None or not triggered or not pending:
            return result
        if (yield from p.clock()) >= until:
            return result
        inputs = replace(ground.inputs, initializers=done.initializers)
        if done.compared:
            expander_input = inputs.expander_input or ExpanderInput()
            inputs = replace(inputs, expander_input=replace_dataclass(expander_input, compared=done.compared))
        suffix = f"salvo-{number}"
        fresh = [
            mark_upcoming(copy_template(done.templates[info.group], f"{copy}-{suffix}"))
            for info in done.status.scale_ups
            for copy in range(info.new - info.current)
        ]
        order = [fitted[key] for key in done.status.pods_triggered]
        placement_result = _place_on_new_nodes(snapshot.with_nodes(fresh), order, suffix, done.cursor)
        result.snapshot_after, cursor, result.warning = placement_result
        if result.warning:
            return result
        ground = replace_dataclass(
            ground,
            groups=done.groups,
            nodes=[*ground.nodes, *(each.node for each in fresh)],
            templates=done.templates,
            state=done.state,
            inputs=inputs,
            cursor=cursor,
        )
    raise AssertionError("unreachable")


def _place_on_new_nodes(
    snapshot: Snapshot, records: Sequence[PodRecord], suffix: str, cursor: int
) -> tuple[Snapshot, int, str]:
    """Place the pods on the new nodes of this round.

    Return the snapshot afterwards, the cursor, and a warning if a pod did not fit.
    """
    view = fork(snapshot, [record.pod for record in records], cursor=cursor)
    acceptable = np.fromiter((name.endswith(suffix) for name in snapshot.nodes), np.uint8, len(snapshot.nodes))
    node_indices: list[int] = []
    warning = ""
    for record in records:
        node = view.schedule_anywhere(record.key, acceptable)
        if node is None:
            warning = f"pod {record.key} found no place on the nodes that it triggered"
            break
        node_indices.append(node)
    placed = records[: len(node_indices)]
    after = snapshot.with_placed(placed, node_indices, reserve(snapshot, placed, node_indices))
    return after, int(view.engine.cursor), warning


class ScaleUpLoop:
    """Scale-up of one loop in progress. Call its methods in the order of their definition.

    ``state`` is the current state for the next loop, ``snapshot_after`` the simulated cluster with the placed pods, and
    ``groups`` the groups with their current targets.
    """

    def __init__(self, p: Progress, scene: LoopContext, before: LoopState, inputs: OrchestratorInputs) -> None:
        self.p, self.scene, self.state, self.inputs = p, scene, before, inputs
        self.options, self.now = scene.options, scene.now
        self.result = SCALE_UP_NOT_TRIED
        self.before = PodFilterResult(scene.snapshot, warnings=scene.warnings)
        self.made: dict[str, NodeTemplate] = {}
        self.rounds: list[OrchestratorResult] = []
        self.minimum: MinSizeScaleUpResult | None = None
        self.provisioning: ProvisioningRequestProcessor | None = None
        if self.options.enable_provisioning_requests:
            self.provisioning = ProvisioningRequestProcessor(
                scene.found.informers, self.options, before.provisioning, scene.profile, scene.warnings
            )
        self._examples: Callable[[], dict[str, RememberedTemplate]] | None = None

    @property
    def snapshot_after(self) -> Snapshot:
        return self.before.snapshot_after

    @property
    def groups(self) -> Groups:
        return self.scene.groups

    def plan(self) -> ScaleUpPlan:
        """Return the plan of the loop."""
        state = self.state
        if self.provisioning is not None:
            state = replace(state, provisioning=self.provisioning.memory)
        return ScaleUpPlan(
            result=self.result,
            before=self.before,
            rounds=self.rounds,
            minimum=self.minimum,
            state=state,
            groups=self.scene.all_groups,
            examples=self._examples,
            comparator=self.inputs.comparator if self.options.balance_similar_node_groups else None,
            requests={} if self.provisioning is None else self.provisioning.outcomes(),
        )

    # -- provisioning requests ---------------------------------------------------------------------------------------

    def end_old_requests(self) -> StepsOf[WriteStatus | Delete, None]:
        """Update expired provisioning requests at the start of a loop."""
        if self.provisioning is not None:
            yield from self.provisioning.upkeep(self.p.now)

    # -- the cluster -------------------------------------------------------------------------------------------------

    def find_templates(self, given: Mapping[str, NodeTemplate]) -> None:
        """Compute the template of each group's new nodes.

        Raises :class:`kscale.ca.AutoscalerError` for invalid nodes.
        """
        self.made, self._examples = self.scene.templates(given, self.state.templates)

    def update(self, has_instance: Mapping[str, bool] | None = None) -> StepsOf[ClusterUpdateAction, None]:
        """Update the cluster state from the nodes.

        Raises :class:`kscale.ca.AutoscalerError` for a group whose size cannot be read.
        """
        scene = self.scene
        update = yield from update_nodes_steps(
            self.state.cluster, scene.lists.registered, scene.groups, now=self.now, options=self.options,
            templates=set(self.made), has_instance=has_instance
        )  # fmt: skip
        scene.groups = update.groups
        self.state = replace(self.state, cluster=update.state)

    # -- the pods ----------------------------------------------------------------------------------------------------

    def look_at_pods(
        self,
        asked: Collection[str] | None = None,
        draining: Sequence[str] = (),
        enforcer: ScaleUpEnforcer | None = None,
        max_looks: int | None = None,
    ) -> StepsOf[Emit | WriteStatus, None]:
        """Add upcoming nodes to the simulated cluster, place pods on existing nodes, and decide whether to scale up.

        ``result`` is set if a rule prevents a scale-up.
        """
        options, before = self.options, self.before
        before.upcoming = self.scene.prepare(self.made, self.state)
        moving = self.scene.records_by_node(draining)
        yield from self._lists(asked, draining, moving, get_max_looks(options, max_looks))
        assert before.asked is not None
        gate = should_scale_up(
            before.asked.in_play,
            ready_nodes=len(self.scene.lists.ready),
            now=self.now,
            options=options,
            degraded_loops=self.state.scale_up.degraded_loops,
            enforced=self._is_enforced(enforcer),
        )
        yield from self.p.emit(*gate.events)
        before.scale_down_disabled = gate.scale_down_disabled
        self.result = gate.result

    def _is_enforced(self, enforcer: ScaleUpEnforcer | None) -> bool:
        """Check whether an enforcer (the caller's, or that of provisioning requests) wants the scale-up."""
        if enforcer is None and self.provisioning is not None:
            enforcer = has_provisioning_request_consumer
        assert self.before.asked is not None
        return enforcer is not None and enforcer([record.pod for record in self.before.asked.records])

    def _lists(
        self,
        asked: Collection[str] | None,
        draining: Sequence[str],
        moving: Mapping[str, Sequence[PodRecord]],
        max_looks: int | None,
    ) -> StepsOf[Emit | WriteStatus, None]:
        """Run the pod list processors, and record in ``before`` which pods each took out."""
        scene, options, before, state = self.scene, self.options, self.before, self.state
        waiting, ignored = self._waiting(asked)
        if options.enable_proactive_scaleup:
            waiting = self._with_missing(waiting)
        if options.capacity_buffer_pod_injection_enabled:
            waiting = yield from self._with_buffers(waiting)
        retained = waiting.filter_by(
            lambda pods: filter_out_expendable_pods(pods, options.expendable_pods_priority_cutoff)
        )
        expendable_count = len(waiting) - len(retained)
        plain = retained.in_play
        needed = retained
        if draining or any(new is not old for new, old in zip(clear_tpu_requests(plain), plain, strict=True)):
            records = [*retained.records, *(record for node_records in moving.values() for record in node_records)]
            by_key = {record.key: record for record in records}
            drained = add_drained_pods(
                clear_tpu_requests([record.pod for record in records[: len(retained)]]),
                draining,
                lambda name: [record.pod for record in moving[name]] if name in moving else None,
            )
            scene.warnings += drained.warnings
            changed = [by_key[pod.key].with_pod(pod) for pod in drained.pods]
            needed = PendingPodList.of(changed)
        memory = state.scale_up
        placed = place(
            scene.snapshot,
            needed.records,
            state=PlaceState(cursor=state.cursor, hints=memory.hints, old_hints=memory.old_hints),
            profile=scene.profile,
            max_looks=max_looks,
        )
        degraded = memory.degraded_loops
        if options.enable_graceful_degradation:
            degraded, events = update_degradation_counter(degraded, len(placed.not_tried), options)
            yield from self.p.emit(*events)
        left = needed.take(placed.unschedulable_positions)
        wanted = left.filter_by(filter_out_daemon_set_pods)
        before.placed, cursor = placed, placed.state.cursor
        daemon_set_count, consuming = len(left) - len(wanted), 0
        if self.provisioning is not None:
            passed = yield from self.provisioning.process(self.p, wanted, before.snapshot_after, cursor)
            wanted, consuming = passed.waiting, passed.consuming
            before.snapshot_after, cursor = passed.snapshot_after, passed.cursor
        if before.made_up.missing:
            wanted = wanted.take(
                enforce_injection_limit(wanted.keys, before.made_up.missing, options.pod_injection_limit)
            )
        aged = filter_out_young_pods(wanted.in_play, self.now, duration(options.new_pod_scale_up_delay))
        scene.warnings += aged.warnings
        old = wanted.among(aged.pods)
        before.asked, before.young = wanted.take(np.flatnonzero(old)), wanted.take(np.flatnonzero(~old))
        before.lists = PodCounts(
            waiting=len(waiting),
            ignored=ignored + scene.snapshot.counts["gated"],
            expendable=expendable_count,
            drained=len(needed) - len(retained),
            on_existing=placed.placed_count,
            out_of_time=len(placed.not_tried),
            daemon_set=daemon_set_count,
            consuming=consuming,
            young=len(before.young),
            asked=len(before.asked),
        )
        memory = ScaleUpState(hints=placed.state.hints, old_hints=placed.state.old_hints, degraded_loops=degraded)
        self.state = replace(state, cursor=cursor, scale_up=memory)

    def _with_missing(self, waiting: PendingPodList) -> PendingPodList:
        """Return the pending pods, followed by the pods that controllers have not created yet."""
        snapshot = self.scene.snapshot
        records = [*snapshot.placed, *waiting.records, *snapshot.gated_records]
        missing = build_missing_pods(self.scene.found.informers.workloads, (record.pod for record in records))
        self.before.made_up = InjectedFakePods(missing=frozenset(pod.key for pod in missing))
        return waiting.followed_by(missing)

    def _with_buffers(self, waiting: PendingPodList) -> StepsOf[WriteStatus, PendingPodList]:
        """Return the pending pods, followed by the fake pods of capacity buffers."""
        informers = self.scene.found.informers
        injection = yield from inject_buffer_pods_steps(
            informers.capacity_buffers, informers.pod_templates, now=self.p.now
        )
        self.scene.warnings += injection.warnings
        buffers = {pod.key: injection.buffers[pod.metadata.uid] for pod in injection.pods}
        self.before.made_up = replace(self.before.made_up, buffers=buffers)
        return waiting.followed_by(injection.pods)

    def _waiting(self, asked: Collection[str] | None) -> tuple[PendingPodList, int]:
        """Return the pending pods that need nodes, and the number of pending pods that are ignored."""
        options, records = self.options, self.scene.snapshot.pending_records
        if asked is not None:
            names = frozenset(asked)
            positions = [i for i, key in enumerate(self.scene.snapshot.pending) if key in names]
            records = records.take(np.array(positions, dtype=np.int64))
        pending = PendingPodList.of(records)
        lists = split_pods(
            pending.in_play, bypassed=options.bypassed_scheduler_names, allowed=options.allowed_scheduler_names
        )
        positions_of = [np.flatnonzero(pending.among(pods)) for pods in (lists.unschedulable, lists.unprocessed)]
        self.before.unschedulable, self.before.unprocessed = map(len, positions_of)
        waiting = pending.take(np.concatenate(positions_of))
        return waiting, len(pending) - len(waiting)

    # -- the groups --------------------------------------------------------------------------------------------------

    def scale(self) -> StepsOf[OrchestratorAction | WriteStatus, None]:
        """Run one scale-up, or a salvo of them, if there are pods that need nodes."""
        if self.result:
            return
        scene, options, state, before = self.scene, self.options, self.state, self.before
        assert before.placed is not None
        assert before.asked is not None
        expander = self.inputs.expander_input or ExpanderInput()
        if not expander.cluster_node_count:
            expander = replace_input(expander, cluster_node_count=len(scene.lists.all))
        if "price" in options.expander_names and expander.prices is None and not expander.ask_prices:
            prices = build_group_prices([*scene.groups, *scene.candidates], self.made, expander)
            expander = replace_input(expander, prices=prices)
        inputs = replace(
            self.inputs,
            expander_input=replace_input(expander, now=expander.now or self.now),
            quotas=self._quotas(),
            candidates=scene.candidates,
            daemonsets=scene.daemonsets,
            known_templates={group.id for group in scene.groups if group.id in self.made},
            initializers=state.initializers,
            made_up=before.made_up,
        )
        simulated, nodes = before.snapshot_after, scene.snapshot.columns.objects
        orchestrate: OrchestrateFunction = orchestrate_substeps
        if self.provisioning is not None:
            orchestrate = WrapperOrchestrator(self.provisioning).orchestrate_in
        ground = ScaleUpContext(
            groups=scene.groups,
            nodes=nodes,
            templates=self.made,
            state=state.cluster,
            options=options,
            inputs=inputs,
            cursor=state.cursor,
        )
        if options.salvo_scale_up:
            salvo = yield from scale_up_salvo_substeps(self.p, simulated, before.asked.records, ground, orchestrate)
            self.rounds, before.snapshot_after = [each.done for each in salvo.rounds], salvo.snapshot_after
            if salvo.warning:
                scene.warnings.append(salvo.warning)
        else:
            done = yield from orchestrate(self.p, simulated, before.asked.records, ground)
            self.rounds = [done]
            status = done.status
            # There may be an event for every pod, so the events are built only when they are read.
            yield from self.p.act(Emit(Deferred(lambda: before.made_up.events(status, scene.snapshot.pod_uid))))
        for done in self.rounds:
            done.status = before.made_up.without(done.status)
        last = self.rounds[-1]
        self.result = last.status.result
        self.state = replace(state, cluster=last.state, cursor=last.cursor, initializers=dict(last.initializers))
        scene.groups = last.groups
        for done in self.rounds:
            self._remember(done.status.result if done.failure is None else SCALE_UP_ERROR, done.resized)

    def raise_to_minimum(self) -> StepsOf[OrchestratorAction, None]:
        """Scale up groups below their minimum size, after all other scale-ups. Limits count the same nodes as there."""
        known = self.rounds[-1].templates if self.rounds else self.made
        self.minimum = yield from scale_up_to_min_size_substeps(
            self.p,
            self.scene.snapshot.columns.objects,
            self.scene.groups,
            {name: item.node for name, item in known.items()},
            self.state.cluster,
            self.options,
            self._quotas(),
            {group.id for group in self.scene.groups if group.id in self.made},
            (self.inputs.expander_input or ExpanderInput()).gpu_label,
        )
        self.state = replace(self.state, cluster=self.minimum.state)
        self.scene.groups = self.minimum.groups
        self._remember(self.minimum.status.result, self.minimum.resized)
        yield from self.p.emit(*build_scale_up_events(self.minimum.status))

    def emit_untried_events(self) -> StepsOf[Emit, None]:
        """Emit the events of pods for which no scale-up was tried."""
        if not self.rounds:
            uid_of = self.scene.snapshot.pod_uid
            yield from self.p.act(Emit(Deferred(lambda: build_untried_events(self.before, self.result, uid_of))))

    def _quotas(self) -> Sequence[Quota] | AutoscalerError:
        """Return the given quotas, else the limits of the options and the cluster's quota objects."""
        if self.inputs.quotas is not None:
            return self.inputs.quotas
        quotas = [build_cluster_maximum_quota(self.options.resource_limiter)]
        if self.options.capacity_quotas_enabled:
            limits, left_out = read_capacity_quotas(self.scene.found.informers.quotas)
            quotas += limits
            for name, reason in left_out.items():
                text = f"CapacityQuota {name} does not count: {reason}"
                if text not in self.scene.warnings:
                    self.scene.warnings.append(text)
        return quotas

    def _remember(self, result: str, resized: Iterable[tuple[ScaleUpInfo, Moment]]) -> None:
        """Scale-down waits after a scale-up: everywhere, or in the groups that grew."""
        for info, at in resized:
            self.state = register_group_change(self.state, "scale_up", info.group, at)
        if result == SCALE_UP_SUCCESSFUL:
            memory = replace(self.state.scale_down, last_scale_up=self.now)
            self.state = replace(self.state, scale_down=memory)
