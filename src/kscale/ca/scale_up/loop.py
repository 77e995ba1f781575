"""One loop of scale-up, from pending pods to a plan: the pod lists, then the orchestrator (``RunOnce``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace as replace_input
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from msgspec.structs import replace

from kscale.ca.actionable import not_actionable
from kscale.ca.balancing import ScaleUpInfo
from kscale.ca.cluster_state import Updating, forget_failures, is_cluster_healthy, update_nodes_steps
from kscale.ca.errors import INTERNAL_ERROR, AutoscalerError
from kscale.ca.event_subjects import status_event
from kscale.ca.expander.chain import respond_with
from kscale.ca.expander.group_prices import group_prices
from kscale.ca.expander.registry import build_chain
from kscale.ca.expander.types import ExpanderInput, Rank, Rng
from kscale.ca.legacy.scale_up import LEGACY_EXPANDERS
from kscale.ca.legacy.scale_up_loop import legacy_loop_steps
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists.daemonsets import without_daemonset_pods
from kscale.ca.pod_lists.degradation import count_degradation, looks_in_time
from kscale.ca.pod_lists.drained import with_drained_pods
from kscale.ca.pod_lists.enforcer import ScaleUpEnforcer
from kscale.ca.pod_lists.expendable import without_expendable
from kscale.ca.pod_lists.gate import should_scale_up
from kscale.ca.pod_lists.proactive import missing_pods, within_limit, without_made_up
from kscale.ca.pod_lists.split import split
from kscale.ca.pod_lists.tpu import clear_tpu_requests
from kscale.ca.pod_lists.waiting import WaitingPods
from kscale.ca.pod_lists.young import without_young
from kscale.ca.quota import Quota, capacity_quota_limits, cluster_maximum
from kscale.ca.scale_up.inputs import OrchestratorInputs
from kscale.ca.scale_up.min_size import MinSizeScaleUp, min_size_in
from kscale.ca.scale_up.orchestrator import Orchestrating, Orchestration, orchestrate_in
from kscale.ca.scale_up.plan import Preparation, ScaleUpPlan, events_of_untried
from kscale.ca.scale_up.records import PodCounts
from kscale.ca.scale_up.salvo import salvo_in
from kscale.ca.scale_up.scene import Scene
from kscale.ca.scale_up.status import NOT_TRIED, SUCCESSFUL, status_events
from kscale.ca.similarity import Comparator
from kscale.ca.state import LoopState, RememberedTemplate, ScaleUpState, cleared, register_group_change
from kscale.effects import (
    DecreaseTargetSize,
    Deferred,
    Emit,
    Event,
    Moment,
    Progress,
    StepsOf,
    as_if_done,
    duration,
    moment,
)
from kscale.errors import InputError, Problem
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.nodegroups import Groups
from kscale.scheduling.place import PlaceState, place
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["ScaleUpLoop", "ScalingUp", "check_options", "scale_up", "scale_up_steps"]

ScalingUp = Orchestrating | DecreaseTargetSize
"""What a loop of scale-up asks for: targets of requests that timed out are lowered first."""


def scale_up(
    cluster: Cluster | Snapshot,
    groups: Groups | Iterable[NodeGroup],
    *,
    now: datetime | Moment,
    rank: Rank | None = None,
    **given: Any,
) -> ScaleUpPlan:
    """Decide one loop of scale-up as if everything succeeded: a dry run of :func:`kscale.ca.scale_up_steps`, whose
    arguments it takes. Nothing is changed.

    ``rank`` answers for the grpc expander (:class:`kscale.drivers.GrpcExpander` asks its server); without it that
    expander keeps every option.
    """
    steps = scale_up_steps(cluster, groups, now=now, **given)
    done = as_if_done(steps, now=moment(now), respond=respond_with(rank))
    return done.value.with_events(done.events)


def scale_up_steps(
    cluster: Cluster | Snapshot,
    groups: Groups | Iterable[NodeGroup],
    *,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    state: LoopState | None = None,
    rng: Rng | None = None,
    templates: Mapping[str, NodeTemplate] | None = None,
    expander_input: ExpanderInput | None = None,
    quotas: Sequence[Quota] | AutoscalerError | None = None,
    comparator: Comparator | None = None,
    draining: Sequence[str] = (),
    pods: Collection[str] | None = None,
    all_or_nothing: bool = False,
    enforcer: ScaleUpEnforcer | None = None,
    max_looks: int | None = None,
    process_age: timedelta | None = None,
    profile: SchedulerProfile | None = None,
    gpu_label: str | None = None,
) -> StepsOf[ScalingUp, ScaleUpPlan]:
    """One loop of scale-up as a step machine.

    - ``groups``: those that exist, and those that could be made (``exists`` False).
    - ``templates`` replace what would be found out for a group; the others are modelled on real nodes, on what the
      state remembers of them, then on the group's own description.
    - ``gpu_label``: the node label that names the type of GPU (a cloud provider's; None: that of ``expander_input``).
      Nodes that have it and show no device are not ready yet, and limits by type (``gpu_total``) go by it.
    - Without ``prices`` the ``price`` expander goes by the prices of the groups
      (:func:`~kscale.ca.expander.group_prices.group_prices`).
    - ``quotas`` default to the limits in the options and, with ``capacity_quotas_enabled``, the cluster's CapacityQuota
      objects. ``draining``: nodes whose pods are being moved. ``pods``: names; no other pending pod is looked at.
    - With ``profile="legacy"`` the loop is that of release 1.3; of what that release did not know (``quotas``,
      ``comparator``, ``draining``, ``all_or_nothing``, salvo, minimum sizes) nothing counts.
    - ``enforcer`` may want the scale-up although the gate is shut. ``max_looks`` stands for upstream's time-out on
      pending pods (``--pending-pods-batching-timeout``), which a pure function cannot have: with
      ``enable_graceful_degradation`` so many looks at pods are in time (see :func:`kscale.place`), and the others wait
      for another loop.
    - ``all_or_nothing``: all pods at once or none (what provisioning requests ask for). ``process_age``: how long the
      autoscaler has been running (None: long enough). ``rng`` breaks ties, else the first option wins. The other
      arguments are those of :class:`~kscale.ca.scale_up.inputs.OrchestratorInputs`.

    Raises InputError for options that upstream refuses at start-up, and :class:`kscale.ca.AutoscalerError` for a chain
    of expanders that cannot be built or a group whose size cannot be read.
    """
    options = options or AutoscalingOptions()
    check_options(options)
    now = moment(now)
    p = Progress(now)
    given_input = expander_input or ExpanderInput()
    if gpu_label is not None:
        given_input = replace_input(given_input, gpu_label=gpu_label)
    before = state or LoopState()
    scene = Scene(cluster, groups, now, options, profile, given_input.gpu_label, templates, before.templates)
    if options.legacy:
        if not given_input.cluster_node_count:
            given_input = replace_input(given_input, cluster_node_count=len(scene.lists.all))
        return (
            yield from legacy_loop_steps(
                p,
                scene,
                before,
                templates=templates or {},
                expander_input=replace_input(given_input, now=given_input.now or now),
                pods=pods,
                rng=rng,
            )
        )
    idle = not_actionable(len(scene.lists.all), len(scene.lists.ready), options, process_age)
    if idle is not None:
        if idle.tell:
            yield from p.emit(status_event(options, "Warning", "ClusterUnhealthy", idle.message))
        return ScaleUpPlan(
            result=NOT_TRIED, before=Preparation(scene.snapshot, warnings=[idle.message]), state=cleared(before)
        )
    inputs = OrchestratorInputs(
        expander_input=given_input,
        quotas=quotas,
        comparator=comparator or Comparator.from_options(options),
        profile=scene.profile,
        all_or_nothing=all_or_nothing,
        rng=rng,
    )
    loop = ScaleUpLoop(p, scene, replace(before, cluster=forget_failures(before.cluster)), inputs)
    loop.find_templates(templates or {})
    yield from loop.update()
    if not is_cluster_healthy(loop.state.cluster, options):
        yield from p.emit(status_event(options, "Warning", "ClusterUnhealthy", "Cluster is unhealthy"))
        loop.state = cleared(loop.state)
        return loop.plan()
    yield from loop.look_at_pods(pods, draining, enforcer, max_looks)
    yield from loop.scale()
    # A loop that raises groups to their minimum tells of that instead.
    if options.enforce_node_group_min_size:
        yield from loop.raise_to_minimum()
    else:
        yield from loop.tell_untried()
    return loop.plan()


def check_options(options: AutoscalingOptions) -> None:
    """Raises what :func:`scale_up_steps` says of options."""
    problems = options.problems()
    if options.estimator not in (("binpacking", "basic") if options.legacy else ("binpacking",)):
        problems.append(Problem(f"Unknown estimator: {options.estimator}", field="estimator"))
    if problems:
        raise InputError(problems)
    names = [options.expander] if options.legacy else options.expander_names
    build_chain(names)
    if options.legacy and names[0] not in LEGACY_EXPANDERS:
        raise AutoscalerError(INTERNAL_ERROR, f"Expander {names[0]} not supported")


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
        self._examples: Callable[[], dict[str, RememberedTemplate]] | None = None

    @property
    def snapshot_after(self) -> Snapshot:
        return self.before.snapshot_after

    @property
    def groups(self) -> Groups:
        return self.scene.groups

    def plan(self) -> ScaleUpPlan:
        """What came of it."""
        return ScaleUpPlan(
            result=self.result,
            before=self.before,
            rounds=self.rounds,
            minimum=self.minimum,
            state=self.state,
            examples=self._examples,
        )

    # -- the cluster -------------------------------------------------------------------------------------------------

    def find_templates(self, given: Mapping[str, NodeTemplate]) -> None:
        """What a new node of each group is. Raises :class:`kscale.ca.AutoscalerError` for nodes that cannot be."""
        self.made, self._examples = self.scene.templates(given, self.state.templates)

    def update(self, has_instance: Mapping[str, bool] | None = None) -> StepsOf[Updating, None]:
        """A look at the nodes. Raises :class:`kscale.ca.AutoscalerError` for a group whose size cannot be read."""
        scene = self.scene
        update = yield from update_nodes_steps(
            self.state.cluster, scene.lists.all, scene.groups, now=self.now, options=self.options,
            templates=set(self.made), lives=scene.lists.lives, has_instance=has_instance,
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
    ) -> StepsOf[Emit, None]:
        """Puts what is coming into the simulated cluster and what fits on its nodes; says whether to scale up."""
        options, before = self.options, self.before
        moving = self.scene.records_by_node(draining)
        before.upcoming = self.scene.prepare(self.made, self.state)
        events = self._lists(asked, draining, moving, looks_in_time(options, max_looks))
        yield from self.p.emit(*events)
        assert before.asked is not None
        gate = should_scale_up(
            before.asked.in_play,
            ready_nodes=len(self.scene.lists.ready),
            now=self.now,
            options=options,
            degraded_loops=self.state.scale_up.degraded_loops,
            enforced=enforcer is not None and enforcer([record.pod for record in before.asked.records]),
        )
        yield from self.p.emit(*gate.events)
        before.scale_down_disabled = gate.scale_down_disabled
        self.result = gate.result

    def _lists(
        self,
        asked: Collection[str] | None,
        draining: Sequence[str],
        moving: Mapping[str, Sequence[PodRecord]],
        max_looks: int | None,
    ) -> list[Event]:
        """The chain of list processors; what each took out goes to ``before``."""
        scene, options, before, state = self.scene, self.options, self.before, self.state
        waiting, ignored = self._waiting(asked)
        if options.enable_proactive_scaleup:
            waiting = self._with_missing(waiting)
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
        left = needed.take(placed.unschedulable_positions)
        wanted = left.kept_by(without_daemonset_pods)
        if before.made_up:
            wanted = wanted.take(within_limit(wanted.keys, before.made_up, options.pod_injection_limit))
        aged = without_young(wanted.in_play, self.now, duration(options.new_pod_scale_up_delay))
        scene.warnings += aged.warnings
        old = wanted.among(aged.pods)
        before.placed = placed
        before.asked, before.young = wanted.take(np.flatnonzero(old)), wanted.take(np.flatnonzero(~old))
        before.lists = PodCounts(
            waiting=len(waiting),
            ignored=ignored + scene.snapshot.counts["gated"],
            expendable=gone,
            drained=len(needed) - len(kept),
            on_existing=placed.placed_count,
            out_of_time=len(placed.not_tried),
            daemon_set=len(left) - len(wanted),
            young=len(before.young),
            asked=len(before.asked),
        )
        degraded = memory.degraded_loops
        events: list[Event] = []
        if options.enable_graceful_degradation:
            degraded, events = count_degradation(degraded, len(placed.not_tried), options)
        memory = ScaleUpState(hints=placed.state.hints, old_hints=placed.state.old_hints, degraded_loops=degraded)
        self.state = replace(state, cursor=placed.state.cursor, scale_up=memory)
        return events

    def _with_missing(self, waiting: WaitingPods) -> WaitingPods:
        """The pods, then those that controllers have not made yet."""
        snapshot = self.scene.snapshot
        records = [*snapshot.placed_records, *waiting.records, *snapshot.gated_records]
        missing = missing_pods(self.scene.found.informers.workloads, (record.pod for record in records))
        self.before.made_up = frozenset(pod.key for pod in missing)
        return WaitingPods.of([*waiting.records, *map(PodRecord, missing)]) if missing else waiting

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

    def scale(self) -> StepsOf[Orchestrating, None]:
        """The scale-up, or several of them, if the pods ask for one."""
        if self.result:
            return
        scene, options, state, before = self.scene, self.options, self.state, self.before
        assert before.placed is not None
        assert before.asked is not None
        expander = self.inputs.expander_input or ExpanderInput()
        if not expander.cluster_node_count:
            expander = replace_input(expander, cluster_node_count=len(scene.lists.all))
        if "price" in options.expander_names and expander.prices is None:
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
        simulated, nodes = before.placed.snapshot_after, scene.snapshot.columns.objects
        if options.salvo_scale_up:
            salvo = yield from salvo_in(
                self.p, simulated, before.asked.records, scene.groups, nodes, self.made, state.cluster, options,
                inputs, state.cursor,
            )  # fmt: skip
            self.rounds, before.snapshot_after = [each.done for each in salvo.rounds], salvo.snapshot_after
            if salvo.warning:
                scene.warnings.append(salvo.warning)
        else:
            done = yield from orchestrate_in(
                self.p, simulated, before.asked.records, scene.groups, nodes, self.made, state.cluster, options,
                inputs, state.cursor,
            )  # fmt: skip
            self.rounds = [done]
            told = without_made_up(done.status, before.made_up)
            # There may be an event for every pod: they are made when somebody looks at them.
            yield from self.p.act(Emit(Deferred(lambda: status_events(told))))
        for done in self.rounds:
            done.status = without_made_up(done.status, before.made_up)
        last = self.rounds[-1]
        self.result = last.status.result
        self.state = replace(state, cluster=last.state, cursor=last.cursor, initializers=dict(last.initializers))
        scene.groups = last.groups
        for done in self.rounds:
            self._remember(done.status.result, done.resized)

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
            yield from self.p.act(Emit(Deferred(lambda: events_of_untried(self.before, self.result))))

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
