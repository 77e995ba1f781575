"""A loop of scale-up under way: the cluster, the pod lists, then the orchestrator (``RunOnce``).

Whether it tries at all: :mod:`kscale.ca.pod_lists.gate`. The order of one scale-up: ``scale_up/orchestrator.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace as replace_input

import numpy as np
from msgspec.structs import replace

from kscale.ca.balancing import ScaleUpInfo
from kscale.ca.capacity_buffers import buffer_pods_steps
from kscale.ca.cluster_state import Updating, update_nodes_steps
from kscale.ca.errors import AutoscalerError
from kscale.ca.expander.group_prices import group_prices
from kscale.ca.expander.types import ExpanderInput
from kscale.ca.pod_lists.daemonsets import without_daemonset_pods
from kscale.ca.pod_lists.degradation import count_degradation, looks_in_time
from kscale.ca.pod_lists.drained import with_drained_pods
from kscale.ca.pod_lists.enforcer import ScaleUpEnforcer, any_consumes_provisioning_request
from kscale.ca.pod_lists.expendable import without_expendable
from kscale.ca.pod_lists.gate import should_scale_up
from kscale.ca.pod_lists.made_up import MadeUpPods
from kscale.ca.pod_lists.proactive import missing_pods, within_limit
from kscale.ca.pod_lists.split import split
from kscale.ca.pod_lists.tpu import clear_tpu_requests
from kscale.ca.pod_lists.waiting import WaitingPods
from kscale.ca.pod_lists.young import without_young
from kscale.ca.provisioning_requests import Provisioning, WrapperOrchestrator
from kscale.ca.quota import Quota, capacity_quota_limits, cluster_maximum
from kscale.ca.scale_up.ground import ScaleUpGround
from kscale.ca.scale_up.inputs import OrchestratorInputs
from kscale.ca.scale_up.min_size import MinSizeScaleUp, min_size_in
from kscale.ca.scale_up.orchestration import Orchestration
from kscale.ca.scale_up.orchestrator import Orchestrating, orchestrate_in
from kscale.ca.scale_up.plan import Preparation, ScaleUpPlan, events_of_untried
from kscale.ca.scale_up.records import PodCounts
from kscale.ca.scale_up.salvo import Orchestrate, salvo_in
from kscale.ca.scale_up.scene import Scene
from kscale.ca.scale_up.status import ERROR, NOT_TRIED, SUCCESSFUL, status_events
from kscale.ca.state import LoopState, RememberedTemplate, ScaleUpState, register_group_change
from kscale.effects import (
    Deferred,
    Delete,
    Emit,
    Moment,
    Progress,
    StepsOf,
    WriteStatus,
    duration,
)
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.nodegroups import Groups
from kscale.scheduling.place import PlaceState, place
from kscale.snapshot.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["ScaleUpLoop"]


class ScaleUpLoop:
    """The scale-up of one loop under way, step by step: its parts are called in the order in which they stand here.

    ``state`` is what the next loop will be handed, as far as it has come; ``snapshot_after`` the simulated cluster with
    what found a place, ``groups`` what there is with the targets of now.
    """

    def __init__(self, p: Progress, scene: Scene, before: LoopState, inputs: OrchestratorInputs) -> None:
        self.p, self.scene, self.state, self.inputs = p, scene, before, inputs
        self.options, self.now = scene.options, scene.now
        self.result = NOT_TRIED
        self.before = Preparation(scene.snapshot, warnings=scene.warnings)
        self.made: dict[str, NodeTemplate] = {}
        self.rounds: list[Orchestration] = []
        self.minimum: MinSizeScaleUp | None = None
        self.provisioning: Provisioning | None = None
        if self.options.enable_provisioning_requests:
            self.provisioning = Provisioning(
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
        """What came of it."""
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
        """At the start of a loop: provisioning requests whose time is over."""
        if self.provisioning is not None:
            yield from self.provisioning.upkeep(self.p.now)

    # -- the cluster -------------------------------------------------------------------------------------------------

    def find_templates(self, given: Mapping[str, NodeTemplate]) -> None:
        """What a new node of each group is. Raises :class:`kscale.ca.AutoscalerError` for nodes that cannot be."""
        self.made, self._examples = self.scene.templates(given, self.state.templates)

    def update(self, has_instance: Mapping[str, bool] | None = None) -> StepsOf[Updating, None]:
        """A look at the nodes. Raises :class:`kscale.ca.AutoscalerError` for a group whose size cannot be read."""
        scene = self.scene
        update = yield from update_nodes_steps(
            self.state.cluster, scene.lists.registered, scene.groups, now=self.now, options=self.options,
            templates=set(self.made), has_instance=has_instance,
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
        """Puts what is coming into the simulated cluster and what fits on its nodes; says whether to scale up."""
        options, before = self.options, self.before
        before.upcoming = self.scene.prepare(self.made, self.state)
        moving = self.scene.records_by_node(draining)
        yield from self._lists(asked, draining, moving, looks_in_time(options, max_looks))
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
        """Whether an enforcer, that which is given or that of provisioning requests, wants the scale-up."""
        if enforcer is None and self.provisioning is not None:
            enforcer = any_consumes_provisioning_request
        assert self.before.asked is not None
        return enforcer is not None and enforcer([record.pod for record in self.before.asked.records])

    def _lists(
        self,
        asked: Collection[str] | None,
        draining: Sequence[str],
        moving: Mapping[str, Sequence[PodRecord]],
        max_looks: int | None,
    ) -> StepsOf[Emit | WriteStatus, None]:
        """The chain of list processors; what each took out goes to ``before``."""
        scene, options, before, state = self.scene, self.options, self.before, self.state
        waiting, ignored = self._waiting(asked)
        if options.enable_proactive_scaleup:
            waiting = self._with_missing(waiting)
        if options.capacity_buffer_pod_injection_enabled:
            waiting = yield from self._with_buffers(waiting)
        kept = waiting.kept_by(lambda pods: without_expendable(pods, options.expendable_pods_priority_cutoff))
        gone = len(waiting) - len(kept)
        plain = kept.in_play
        needed = kept
        if draining or any(new is not old for new, old in zip(clear_tpu_requests(plain), plain, strict=True)):
            records = [*kept.records, *(record for found in moving.values() for record in found)]
            by_key = {record.key: record for record in records}
            drained = with_drained_pods(
                clear_tpu_requests([record.pod for record in records[: len(kept)]]),
                draining,
                lambda name: [record.pod for record in moving[name]] if name in moving else None,
            )
            scene.warnings += drained.warnings
            changed = [by_key[pod.key].changed(pod) for pod in drained.pods]
            needed = WaitingPods.of(changed)
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
            degraded, events = count_degradation(degraded, len(placed.not_tried), options)
            yield from self.p.emit(*events)
        left = needed.take(placed.unschedulable_positions)
        wanted = left.kept_by(without_daemonset_pods)
        before.placed, cursor = placed, placed.state.cursor
        of_daemon_sets, consuming = len(left) - len(wanted), 0
        if self.provisioning is not None:
            passed = yield from self.provisioning.process(self.p, wanted, before.snapshot_after, cursor)
            wanted, consuming = passed.waiting, passed.consuming
            before.snapshot_after, cursor = passed.snapshot_after, passed.cursor
        if before.made_up.missing:
            wanted = wanted.take(within_limit(wanted.keys, before.made_up.missing, options.pod_injection_limit))
        aged = without_young(wanted.in_play, self.now, duration(options.new_pod_scale_up_delay))
        scene.warnings += aged.warnings
        old = wanted.among(aged.pods)
        before.asked, before.young = wanted.take(np.flatnonzero(old)), wanted.take(np.flatnonzero(~old))
        before.lists = PodCounts(
            waiting=len(waiting),
            ignored=ignored + scene.snapshot.counts["gated"],
            expendable=gone,
            drained=len(needed) - len(kept),
            on_existing=placed.placed_count,
            out_of_time=len(placed.not_tried),
            daemon_set=of_daemon_sets,
            consuming=consuming,
            young=len(before.young),
            asked=len(before.asked),
        )
        memory = ScaleUpState(hints=placed.state.hints, old_hints=placed.state.old_hints, degraded_loops=degraded)
        self.state = replace(state, cursor=cursor, scale_up=memory)

    def _with_missing(self, waiting: WaitingPods) -> WaitingPods:
        """The pods, then those that controllers have not made yet."""
        snapshot = self.scene.snapshot
        records = [*snapshot.placed, *waiting.records, *snapshot.gated_records]
        missing = missing_pods(self.scene.found.informers.workloads, (record.pod for record in records))
        self.before.made_up = MadeUpPods(missing=frozenset(pod.key for pod in missing))
        return waiting.followed_by(missing)

    def _with_buffers(self, waiting: WaitingPods) -> StepsOf[WriteStatus, WaitingPods]:
        """The pods, then those of capacity buffers."""
        informers = self.scene.found.informers
        found = yield from buffer_pods_steps(informers.capacity_buffers, informers.pod_templates, now=self.p.now)
        self.scene.warnings += found.warnings
        buffers = {pod.key: found.buffers[pod.metadata.uid] for pod in found.pods}
        self.before.made_up = replace(self.before.made_up, buffers=buffers)
        return waiting.followed_by(found.pods)

    def _waiting(self, asked: Collection[str] | None) -> tuple[WaitingPods, int]:
        """The pods that need a place, and how many pending ones nobody looks at."""
        options, records = self.options, self.scene.snapshot.pending_records
        if asked is not None:
            names = frozenset(asked)
            positions = [i for i, key in enumerate(self.scene.snapshot.pending) if key in names]
            records = records.take(np.array(positions, dtype=np.int64))
        pending = WaitingPods.of(records)
        lists = split(
            pending.in_play, bypassed=options.bypassed_scheduler_names, allowed=options.allowed_scheduler_names
        )
        positions_of = [np.flatnonzero(pending.among(found)) for found in (lists.unschedulable, lists.unprocessed)]
        self.before.unschedulable, self.before.unprocessed = map(len, positions_of)
        waiting = pending.take(np.concatenate(positions_of))
        return waiting, len(pending) - len(waiting)

    # -- the groups --------------------------------------------------------------------------------------------------

    def scale(self) -> StepsOf[Orchestrating | WriteStatus, None]:
        """The scale-up, or several of them, if the pods ask for one."""
        if self.result:
            return
        scene, options, state, before = self.scene, self.options, self.state, self.before
        assert before.placed is not None
        assert before.asked is not None
        expander = self.inputs.expander_input or ExpanderInput()
        if not expander.cluster_node_count:
            expander = replace_input(expander, cluster_node_count=len(scene.lists.all))
        if "price" in options.expander_names and expander.prices is None and not expander.ask_prices:
            prices = group_prices([*scene.groups, *scene.candidates], self.made, expander)
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
        orchestrate: Orchestrate = orchestrate_in
        if self.provisioning is not None:
            orchestrate = WrapperOrchestrator(self.provisioning).orchestrate_in
        ground = ScaleUpGround(
            groups=scene.groups,
            nodes=nodes,
            templates=self.made,
            state=state.cluster,
            options=options,
            inputs=inputs,
            cursor=state.cursor,
        )
        if options.salvo_scale_up:
            salvo = yield from salvo_in(self.p, simulated, before.asked.records, ground, orchestrate)
            self.rounds, before.snapshot_after = [each.done for each in salvo.rounds], salvo.snapshot_after
            if salvo.warning:
                scene.warnings.append(salvo.warning)
        else:
            done = yield from orchestrate(self.p, simulated, before.asked.records, ground)
            self.rounds = [done]
            status = done.status
            # There may be an event for every pod: they are made when somebody looks at them.
            yield from self.p.act(Emit(Deferred(lambda: before.made_up.events(status, scene.snapshot.pod_uid))))
        for done in self.rounds:
            done.status = before.made_up.without(done.status)
        last = self.rounds[-1]
        self.result = last.status.result
        self.state = replace(state, cluster=last.state, cursor=last.cursor, initializers=dict(last.initializers))
        scene.groups = last.groups
        for done in self.rounds:
            self._remember(done.status.result if done.failure is None else ERROR, done.resized)

    def raise_to_minimum(self) -> StepsOf[Orchestrating, None]:
        """Groups below their minimum size, after everything else. Limits count the nodes that scale-ups count."""
        known = self.rounds[-1].templates if self.rounds else self.made
        self.minimum = yield from min_size_in(
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
        yield from self.p.emit(*status_events(self.minimum.status))

    def tell_untried(self) -> StepsOf[Emit, None]:
        """What is said of pods for which no scale-up was tried."""
        if not self.rounds:
            uid_of = self.scene.snapshot.pod_uid
            yield from self.p.act(Emit(Deferred(lambda: events_of_untried(self.before, self.result, uid_of))))

    def _quotas(self) -> Sequence[Quota] | AutoscalerError:
        """Those that are given, or the limits of the options and then those of the cluster's quota objects."""
        if self.inputs.quotas is not None:
            return self.inputs.quotas
        found = [cluster_maximum(self.options.resource_limiter)]
        if self.options.capacity_quotas_enabled:
            limits, left_out = capacity_quota_limits(self.scene.found.informers.quotas)
            found += limits
            for name, reason in left_out.items():
                text = f"CapacityQuota {name} does not count: {reason}"
                if text not in self.scene.warnings:
                    self.scene.warnings.append(text)
        return found

    def _remember(self, result: str, resized: Iterable[tuple[ScaleUpInfo, Moment]]) -> None:
        """Scale-down waits after a scale-up: everywhere, or in the groups that grew."""
        for info, at in resized:
            self.state = register_group_change(self.state, "scale_up", info.group, at)
        if result == SUCCESSFUL:
            memory = replace(self.state.scale_down, last_scale_up=self.now)
            self.state = replace(self.state, scale_down=memory)
