"""Scale-up of one loop: cluster state, pod lists, orchestrator, and salvos of scale-ups.

Each scale-up of a salvo (``--salvo-scale-up``) sees the nodes that the previous ones requested.
:mod:`kscale.ca.pod_lists` decides whether the loop tries to scale up at all;
``scale_up/orchestrator.py`` has the order of one scale-up.

Upstream: ``core/static_autoscaler.go`` (``RunOnce``, ``runScaleUpSalvo``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace as replace_input
from datetime import datetime
from functools import partial
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
from kscale.ca.loop_state import RememberedTemplate, ScaleUpState, register_group_change
from kscale.ca.node_group_set import ScaleUpInfo
from kscale.ca.pod_lists import (
    PendingPodList,
    add_drained_pods,
    build_missing_pods,
    clear_tpu_requests,
    enforce_injection_limit,
    find_daemon_set_pods,
    find_expendable_pods,
    find_old_pods,
    find_unscheduled_pods,
    get_max_looks,
    has_provisioning_request_consumer,
    has_tpu_requests,
    should_scale_up,
    update_degradation_counter,
)
from kscale.ca.provisioning_requests import ProvisioningRequestProcessor, WrapperOrchestrator
from kscale.ca.quota import Quota, build_cluster_maximum_quota, read_capacity_quotas
from kscale.ca.scale_up.expansion import ScaleUpContext
from kscale.ca.scale_up.orchestrator import (
    MinSizeScaleUpResult,
    OrchestratorAction,
    OrchestratorResult,
    orchestrate_substeps,
    scale_up_to_min_size_substeps,
)
from kscale.ca.scale_up.plan import PodFilterResult, ScaleUpPlan, build_untried_events
from kscale.ca.scale_up_status import (
    SCALE_UP_ERROR,
    SCALE_UP_NOT_TRIED,
    SCALE_UP_SUCCESSFUL,
    PodCounts,
    build_scale_up_events,
)
from kscale.ca.templates import copy_template
from kscale.effects import Deferred, Delete, Emit, Moment, Progress, StepsOf, WriteStatus, duration, moment
from kscale.objects.api.core import Pod
from kscale.objects.argument_types import typed
from kscale.objects.nodegroup import NodeTemplate
from kscale.scheduling.devices.ledger import reserve
from kscale.scheduling.fork import fork
from kscale.scheduling.place import PlaceState, place, place_in_session
from kscale.scheduling.session import Session
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
    """One scale-up of the salvo, and its number of nodes."""

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
    snapshot: Snapshot, pods: Iterable[Pod | PodRecord], context: ScaleUpContext, *, now: datetime | Moment
) -> StepsOf[OrchestratorAction | WriteStatus, SalvoResult]:
    """Run :func:`kscale.ca.orchestrate_steps` repeatedly with the pods that remain.

    The salvo ends after an error, after a scale-up that did nothing, when no pod is left, when
    ``--salvo-scale-up-budget`` is used up after a round, or with a warning if a pod finds no place on the new nodes
    that it triggered. Between rounds the new nodes are added to the simulated cluster, with the pods that triggered
    them and allocated claims.
    """
    return scale_up_salvo_substeps(Progress(moment(now)), snapshot, pods, context)


def scale_up_salvo_substeps(
    p: Progress,
    snapshot: Snapshot,
    pods: Iterable[Pod | PodRecord],
    context: ScaleUpContext,
    orchestrate: OrchestrateFunction = orchestrate_substeps,
) -> StepsOf[OrchestratorAction | WriteStatus, SalvoResult]:
    """Run a salvo (:func:`scale_up_salvo_steps`) within a step machine that is in progress.

    ``orchestrate`` is called for each scale-up, with the arguments of :func:`orchestrate_substeps`.
    """
    until = (yield from p.clock()) + duration(context.options.salvo_scale_up_budget)
    result, uid_of = SalvoResult(rounds=[], snapshot_after=snapshot), snapshot.pod_uid
    pending = [pod_record(pod) for pod in pods]
    for number in count():
        snapshot = result.snapshot_after
        done = yield from orchestrate(p, snapshot, pending, context)
        result.rounds.append(SalvoRound(done=done, node_count=len(context.nodes)))
        yield from p.emit(*context.fake_pods.events(done.status, uid_of))
        triggered = set(done.status.pods_triggered)
        fitted = {pod.key: pod for pod in pending if pod.key in triggered}
        pending = [pod for pod in pending if pod.key not in triggered]
        if done.status.result != SCALE_UP_SUCCESSFUL or done.failure is not None or not triggered or not pending:
            return result
        if (yield from p.clock()) >= until:
            return result
        expander_input = context.expander_input
        if done.compared:
            expander_input = replace_input(expander_input or ExpanderInput(), compared=done.compared)
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
        context = replace(
            context,
            groups=done.groups,
            nodes=[*context.nodes, *(each.node for each in fresh)],
            templates=done.templates,
            state=done.state,
            cursor=cursor,
            initializers=done.initializers,
            expander_input=expander_input,
        )
    raise AssertionError("unreachable")


def _place_on_new_nodes(
    snapshot: Snapshot, records: Sequence[PodRecord], suffix: str, cursor: int
) -> tuple[Snapshot, int, str]:
    """Place the pods, in order, on the new nodes of this round, whose names end with ``suffix``.

    Ends at the first pod that does not fit. Returns (the snapshot afterwards, the cursor, a warning if a pod did not
    fit, otherwise empty).
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

    ``snapshot_after`` is the simulated cluster with the placed pods.
    """

    def __init__(self, context: LoopContext) -> None:
        self.context, self.p = context, context.p
        self.options, self.now = context.options, context.now
        self.result = SCALE_UP_NOT_TRIED
        self.before = PodFilterResult(context.snapshot, warnings=context.warnings)
        self.templates: dict[str, NodeTemplate] = {}
        self.rounds: list[OrchestratorResult] = []
        self.minimum: MinSizeScaleUpResult | None = None
        self.provisioning: ProvisioningRequestProcessor | None = None
        if self.options.enable_provisioning_requests:
            self.provisioning = ProvisioningRequestProcessor(
                context.observed.informers, self.options, context.state.provisioning, context.profile, context.warnings
            )
        self._examples: Callable[[], dict[str, RememberedTemplate]] | None = None
        self._session: Session | None = None
        """Holds the placed pods and the templates until the scale-up."""

    @property
    def snapshot_after(self) -> Snapshot:
        """Return the snapshot after the filters placed pods."""
        return self.before.snapshot_after

    def plan(self) -> ScaleUpPlan:
        """Return the plan of the loop."""
        context, state = self.context, self.context.state
        if self.provisioning is not None:
            state = replace(state, provisioning=self.provisioning.memory)
        return ScaleUpPlan(
            result=self.result,
            before=self.before,
            rounds=self.rounds,
            minimum=self.minimum,
            state=state,
            groups=context.all_groups,
            examples=self._examples,
            comparator=context.comparator if self.options.balance_similar_node_groups else None,
            requests={} if self.provisioning is None else self.provisioning.outcomes(),
        )

    # -- provisioning requests ---------------------------------------------------------------------------------------

    def end_old_requests(self) -> StepsOf[WriteStatus | Delete, None]:
        """Refresh the provisioning requests at the start of a loop, if they are enabled.

        See :meth:`ProvisioningRequestProcessor.maintain`.
        """
        if self.provisioning is not None:
            yield from self.provisioning.maintain(self.p.now)

    # -- the cluster -------------------------------------------------------------------------------------------------

    def build_templates(self) -> None:
        """Set ``templates``, the template of each group's new nodes (:meth:`LoopContext.build_templates`)."""
        self.templates, self._examples = self.context.build_templates()

    def update(self, has_instance: Mapping[str, bool] | None = None) -> StepsOf[ClusterUpdateAction, None]:
        """Update the cluster state and the groups in the context from the nodes.

        ``has_instance``: the provider's answers by node name. Raises :class:`kscale.ca.AutoscalerError` for a group
        whose size cannot be read.
        """
        context = self.context
        update = yield from update_nodes_steps(
            context.state.cluster, context.lists.registered, context.groups, now=self.now, options=self.options,
            templates=set(self.templates), has_instance=has_instance,
        )  # fmt: skip
        context.groups = update.groups
        context.update_state(cluster=update.state)

    # -- the pods ----------------------------------------------------------------------------------------------------

    def filter_pods(self, draining: Sequence[str] = ()) -> StepsOf[Emit | WriteStatus, None]:
        """Add upcoming nodes to the simulated cluster, place pods on existing nodes, and decide whether to scale up.

        ``draining`` are nodes that the loop itself drains. ``result`` is set if a rule prevents a scale-up.
        """
        context, options, before = self.context, self.options, self.before
        before.upcoming = context.add_upcoming_nodes(self.templates)
        yield from self._run_processors([*context.inputs.draining, *draining])
        assert before.asked is not None
        gate = should_scale_up(
            before.asked.present_examples,
            ready_nodes=len(context.lists.ready),
            now=self.now,
            options=options,
            degraded_loops=context.state.scale_up.degraded_loops,
            enforced=self._is_enforced(),
        )
        yield from self.p.emit(*gate.events)
        before.scale_down_disabled = gate.scale_down_disabled
        self.result = gate.result

    def _is_enforced(self) -> bool:
        """Check whether an enforcer (the caller's, or that of provisioning requests) requires the scale-up."""
        enforcer = self.context.inputs.enforcer
        if enforcer is None and self.provisioning is not None:
            enforcer = has_provisioning_request_consumer
        assert self.before.asked is not None
        return enforcer is not None and enforcer([record.pod for record in self.before.asked.records])

    def _run_processors(self, draining: Sequence[str]) -> StepsOf[Emit | WriteStatus, None]:
        """Run the pod list processors. Stores in ``before`` the pods that need nodes, and which pods were taken out.

        ``draining``: nodes being drained, whose pods are added. Updates the cursor, the hints and the number of
        degraded loops in the state.
        """
        context, options, before, state = self.context, self.options, self.before, self.context.state
        moving = context.records_by_node(draining)
        waiting, ignored = self._list_unschedulable_pods()
        if options.enable_proactive_scaleup:
            waiting = self._add_missing_pods(waiting)
        if options.capacity_buffer_pod_injection_enabled:
            waiting = yield from self._add_buffer_pods(waiting)
        retained = waiting.without(find_expendable_pods(waiting, options.expendable_pods_priority_cutoff))
        expendable_count = len(waiting) - len(retained)
        needed = retained
        if draining or has_tpu_requests(retained):
            records = [*retained.records, *(record for node_records in moving.values() for record in node_records)]
            by_key = {record.key: record for record in records}
            drained = add_drained_pods(
                clear_tpu_requests([record.pod for record in records[: len(retained)]]),
                draining,
                lambda name: [record.pod for record in moving[name]] if name in moving else None,
            )
            context.warnings += drained.warnings
            changed = [by_key[pod.key].with_pod(pod) for pod in drained.pods]
            needed = PendingPodList.of(changed)
        memory = state.scale_up
        place_state = PlaceState(cursor=state.cursor, hints=memory.hints, old_hints=memory.old_hints)
        max_looks = get_max_looks(options, context.inputs.max_looks)
        self._session = self._open_session(needed)
        if self._session is None:
            placed = place(
                context.snapshot, needed.records, state=place_state, profile=context.profile, max_looks=max_looks
            )
        else:
            placed = place_in_session(self._session, needed.records, state=place_state, max_looks=max_looks)
        degraded = memory.degraded_loops
        if options.enable_graceful_degradation:
            degraded, events = update_degradation_counter(degraded, len(placed.not_tried), options)
            yield from self.p.emit(*events)
        left = needed.take(placed.unschedulable_positions)
        wanted = left.without(find_daemon_set_pods(left))
        before.placed, cursor = placed, placed.state.cursor
        daemon_set_count, consuming = len(left) - len(wanted), 0
        if self.provisioning is not None:
            passed = yield from self.provisioning.process(self.p, wanted, before.snapshot_after, cursor)
            wanted, consuming = passed.waiting, passed.consuming
            before.snapshot_after, cursor = passed.snapshot_after, passed.cursor
        if before.fake_pods.missing:
            wanted = wanted.take(
                enforce_injection_limit(wanted.keys, before.fake_pods.missing, options.pod_injection_limit)
            )
        old, warnings = find_old_pods(wanted, self.now, duration(options.new_pod_scale_up_delay))
        context.warnings += warnings
        before.asked, before.young = wanted.without(~old), wanted.take(np.flatnonzero(~old))
        before.lists = PodCounts(
            waiting=len(waiting),
            ignored=ignored + context.snapshot.counts["gated"],
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
        context.update_state(cursor=cursor, scale_up=memory)

    def _open_session(self, pods: PendingPodList) -> Session | None:
        """Open a session in which pods are placed on existing nodes, and the others on new nodes afterwards.

        None if there are no pods, if more than one scale-up may follow, or if pods may request devices: a session with
        templates allocates devices in another way.
        """
        context = self.context
        if not len(pods) or self.provisioning is not None or self.options.salvo_scale_up:
            return None
        if context.snapshot.dra and context.snapshot.informers.device_classes:  # most likely: compile nothing in vain
            return None
        unique, _ = context.snapshot.distinct_classes(pods.records)
        templates, shared = list(self.templates.values()), context.inputs.pod_classes
        session = Session(context.snapshot, unique, templates, context.profile, shared=shared)
        return None if session.has_devices else session

    def _add_missing_pods(self, waiting: PendingPodList) -> PendingPodList:
        """Return the pending pods, followed by the pods that controllers have not created yet.

        The latter are stored as fake pods in ``before``.
        """
        snapshot = self.context.snapshot
        records = [*snapshot.placed, *waiting.records, *snapshot.gated_records]
        missing = build_missing_pods(self.context.observed.informers.workloads, (record.pod for record in records))
        self.before.fake_pods = InjectedFakePods(missing=frozenset(pod.key for pod in missing))
        return waiting.followed_by(missing)

    def _add_buffer_pods(self, waiting: PendingPodList) -> StepsOf[WriteStatus, PendingPodList]:
        """Return the pending pods, followed by the fake pods of capacity buffers.

        The latter are stored in ``before``. The statuses of the buffers are written; failures become warnings.
        """
        informers = self.context.observed.informers
        injection = yield from inject_buffer_pods_steps(
            informers.capacity_buffers, informers.pod_templates, now=self.p.now
        )
        self.context.warnings += injection.warnings
        buffers = {pod.key: injection.buffers[pod.metadata.uid] for pod in injection.pods}
        self.before.fake_pods = replace(self.before.fake_pods, buffers=buffers)
        return waiting.followed_by(injection.pods)

    def _list_unschedulable_pods(self) -> tuple[PendingPodList, int]:
        """Return the pending pods that need nodes, and the number of pending pods that are ignored.

        Only pods of the input ``pods`` count, if it is set. Sets the numbers of unschedulable and unprocessed pods in
        ``before``.
        """
        options, snapshot, pods = self.options, self.context.snapshot, self.context.inputs.pods
        records = snapshot.pending_records
        if pods is not None:
            names = frozenset(pods)
            positions = [i for i, key in enumerate(snapshot.pending) if key in names]
            records = records.take(np.array(positions, dtype=np.int64))
        pending = PendingPodList.of(records)
        positions_of = find_unscheduled_pods(
            pending, bypassed=options.bypassed_scheduler_names, allowed=options.allowed_scheduler_names
        )
        self.before.unschedulable, self.before.unprocessed = map(len, positions_of)
        waiting = pending.take(np.concatenate(positions_of))
        return waiting, len(pending) - len(waiting)

    # -- the groups --------------------------------------------------------------------------------------------------

    def scale(self) -> StepsOf[OrchestratorAction | WriteStatus, None]:
        """Run one scale-up, or a salvo of them, unless ``result`` is set already. Stores ``rounds`` and ``result``.

        Emits the events, and updates the state and the groups of the context. Raises as :func:`orchestrate` does, and
        InputError if ``price`` is an expander and a group has no price.
        """
        if self.result:
            return
        context, options, state, before = self.context, self.options, self.context.state, self.before
        assert before.placed is not None
        assert before.asked is not None
        expander = context.expander_input
        if "price" in options.expander_names and expander.prices is None and not expander.ask_prices:
            prices = build_group_prices([*context.groups, *context.candidates], self.templates, expander)
            expander = replace_input(expander, prices=prices)
        scale_up_context = ScaleUpContext(
            groups=context.groups,
            nodes=context.snapshot.columns.objects,
            templates=self.templates,
            state=state.cluster,
            options=options,
            cursor=state.cursor,
            expander_input=expander,
            quotas=self._get_quotas(),
            comparator=context.comparator,
            profile=context.profile,
            candidates=context.candidates,
            daemonsets=context.daemonsets,
            initializers=state.initializers,
            known_templates=self._list_known_templates(),
            all_or_nothing=context.inputs.all_or_nothing,
            fake_pods=before.fake_pods,
            rng=context.inputs.rng,
        )
        session, self._session = self._session, None
        orchestrate: OrchestrateFunction = partial(orchestrate_substeps, session=session)
        if self.provisioning is not None:
            orchestrate = WrapperOrchestrator(self.provisioning).orchestrate_in
        simulated, pods = before.snapshot_after, before.asked.records
        if options.salvo_scale_up:
            steps = scale_up_salvo_substeps(self.p, simulated, pods, scale_up_context, orchestrate)
            salvo = yield from steps
            self.rounds, before.snapshot_after = [each.done for each in salvo.rounds], salvo.snapshot_after
            if salvo.warning:
                context.warnings.append(salvo.warning)
        else:
            done = yield from orchestrate(self.p, simulated, pods, scale_up_context)
            self.rounds = [done]
            status = done.status
            # There may be an event for every pod, so the events are built only when they are read.
            yield from self.p.act(Emit(Deferred(lambda: before.fake_pods.events(status, context.snapshot.pod_uid))))
        for done in self.rounds:
            done.status = before.fake_pods.without(done.status)
        last = self.rounds[-1]
        self.result = last.status.result
        context.update_state(cluster=last.state, cursor=last.cursor, initializers=dict(last.initializers))
        context.groups = last.groups
        for done in self.rounds:
            self._record_scale_up(done.status.result if done.failure is None else SCALE_UP_ERROR, done.resized)

    def raise_to_minimum(self) -> StepsOf[OrchestratorAction, None]:
        """Scale up groups below their minimum size, after all other scale-ups, and store the result in ``minimum``.

        The limits count the same nodes as for the other scale-ups.
        """
        known = self.rounds[-1].templates if self.rounds else self.templates
        self.minimum = yield from scale_up_to_min_size_substeps(
            self.p,
            self.context.snapshot.columns.objects,
            self.context.groups,
            {name: item.node for name, item in known.items()},
            self.context.state.cluster,
            self.options,
            self._get_quotas(),
            self._list_known_templates(),
            self.context.gpu_label,
        )
        self.context.update_state(cluster=self.minimum.state)
        self.context.groups = self.minimum.groups
        self._record_scale_up(self.minimum.status.result, self.minimum.resized)
        yield from self.p.emit(*build_scale_up_events(self.minimum.status))

    def emit_untried_events(self) -> StepsOf[Emit, None]:
        """Emit the events of pods for which no scale-up was tried (:func:`build_untried_events`), unless one was."""
        if not self.rounds:
            uid_of = self.context.snapshot.pod_uid
            yield from self.p.act(Emit(Deferred(lambda: build_untried_events(self.before, self.result, uid_of))))

    def _list_known_templates(self) -> set[str]:
        """Return the ids of the groups that have a template."""
        return {group.id for group in self.context.groups if group.id in self.templates}

    def _get_quotas(self) -> Sequence[Quota] | AutoscalerError:
        """Return the quotas that the caller passed, or the caller's error.

        If there are none: the limits of the options and the cluster's quota objects, with a warning for each invalid
        object.
        """
        if self.context.inputs.quotas is not None:
            return self.context.inputs.quotas
        quotas = [build_cluster_maximum_quota(self.options.resource_limiter)]
        if self.options.capacity_quotas_enabled:
            limits, left_out = read_capacity_quotas(self.context.observed.informers.quotas)
            quotas += limits
            for name, reason in left_out.items():
                text = f"CapacityQuota {name} does not count: {reason}"
                if text not in self.context.warnings:
                    self.context.warnings.append(text)
        return quotas

    def _record_scale_up(self, result: str, resized: Iterable[tuple[ScaleUpInfo, Moment]]) -> None:
        """Record the times from which scale-down waits: of each resized group, and of the cluster after a success.

        ``result``: upstream's name of the result; ``resized``: resizes with their times.
        """
        for info, at in resized:
            self.context.state = register_group_change(self.context.state, "scale_up", info.group, at)
        if result == SCALE_UP_SUCCESSFUL:
            memory = replace(self.context.state.scale_down, last_scale_up=self.now)
            self.context.update_state(scale_down=memory)
