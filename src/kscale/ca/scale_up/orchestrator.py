"""One scale-up from pending pods to resized groups, and the scale-up of groups below their minimum size (upstream:
``core/scaleup/orchestrator``: ScaleUp, ScaleUpToNodeGroupMinSize).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace as replace_input
from datetime import datetime
from functools import partial

import msgspec
import numpy as np
from msgspec.structs import replace

from kscale.ca.cluster_state import ClusterStateRegistry, get_upcoming_nodes, recalculate_ranges
from kscale.ca.errors import CLOUD_PROVIDER_ERROR, INTERNAL_ERROR, AutoscalerError, ErrorRecord
from kscale.ca.expander.chain import GRPC_EXPANDER, Expansion, build_dry_run_responder, expand_steps
from kscale.ca.expander.types import ExpanderInput, Option, RankResponder
from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.loop_state import AsyncInitializer, update_initializers
from kscale.ca.metrics import build_duration_observation, build_observation
from kscale.ca.node_group_set import (
    ScaleUpInfo,
    balance_scale_ups,
    find_not_ready_reason,
    find_sharing_groups,
    is_within_quotas,
)
from kscale.ca.options import AutoscalingOptions
from kscale.ca.quota import CountedNodes, Quota, QuotaTracker, build_cluster_maximum_quota, cap_by_max_nodes_total
from kscale.ca.scale_up.executor import ExecutorAction, execute_scale_ups_steps
from kscale.ca.scale_up.expansion import ExpansionFinder, ExpansionOption, PodGroups, ScaleUpContext, find_compared_pods
from kscale.ca.scale_up_status import (
    ALL_OR_NOTHING_REASON,
    EXECUTION_FAILED_REASON,
    EXPANDER_FILTERED_REASON,
    SCALE_UP_ERROR,
    SCALE_UP_NO_OPTIONS_AVAILABLE,
    SCALE_UP_NOT_NEEDED,
    SCALE_UP_SUCCESSFUL,
    ConsideredGroup,
    CreatedGroupIds,
    NoScaleUpInfo,
    ScaleUpStatus,
)
from kscale.ca.templates import TaintConfig, build_template_from_group
from kscale.effects import (
    CreatedGroups,
    CreateGroup,
    Deferred,
    Emit,
    Event,
    GetPrices,
    Moment,
    Observation,
    Progress,
    RankOptions,
    StepsOf,
    Wait,
    duration,
    moment,
    run_dry,
)
from kscale.objects.api.core import Node
from kscale.objects.argument_types import typed
from kscale.objects.nodegroup import Groups, NodeGroup, NodeTemplate
from kscale.scheduling.coercion import PodsLike
from kscale.scheduling.session import Session
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "MinSizeScaleUpResult",
    "OrchestratorAction",
    "OrchestratorResult",
    "ScaleUpOrchestrator",
    "orchestrate",
    "orchestrate_steps",
    "orchestrate_substeps",
    "scale_up_to_min_size_steps",
    "scale_up_to_min_size_substeps",
]


class OrchestratorResult(msgspec.Struct, kw_only=True):
    """Decision and effects of one scale-up: the status, every option, the choice, the cluster state afterwards.

    - ``expansion``: what the expander chose, and by which steps; None if it was not called, because there was no option
      or something failed earlier.
    - ``skipped``: upstream's reasons, by id, of the groups that were skipped before any estimate.
    - ``cursor``: where the scan over nodes stands.
    - ``pod_groups``: verdicts on the groups of equivalent pods.
    - ``asked_groups``: all groups that were considered.
    - ``groups``, ``templates``: the groups and templates afterwards, with new target sizes and created groups.
    - ``unmodelled``: features that pods use and that kscale does not model.
    - ``compared``: pods that an external ranker sees without environment, now and later.
    - ``initializers``: what groups that are still being created will get.
    - ``resized``: the groups that were resized, and when.
    - ``exceeded``: resources whose quotas held groups back.
    - ``expander_options``, ``expander_input``: the options and inputs of the expander (None if it was not called).
    - ``observations``: metrics of estimates and created groups.
    - ``sharing``: the groups among which the new nodes were divided, the best option's group first.
    - ``failure``: an error that upstream returns beside a successful status; the scale-up does not count then.
    - ``existing``: pod -> node, for pods of a provisioning request that fit already.
    - ``waiting_turn``: pods (``namespace/name``) that this scale-up ignored, because requests and other pods take
      turns.
    - ``events``: what upstream would have sent, after a dry run.
    """

    status: ScaleUpStatus
    state: ClusterStateRegistry
    options: list[ExpansionOption]
    expansion: Expansion | None
    skipped: dict[str, list[str]]
    cursor: int
    pod_groups: PodGroups
    asked_groups: list[str]
    groups: Groups
    templates: Mapping[str, NodeTemplate]
    unmodelled: list[str] = []
    compared: frozenset[str] = frozenset()
    initializers: Mapping[str, AsyncInitializer] = {}
    resized: Sequence[tuple[ScaleUpInfo, Moment]] = ()
    exceeded: Mapping[str, list[str]] = {}
    expander_options: Sequence[Option] = ()
    expander_input: ExpanderInput | None = None
    observations: Sequence[Observation] = ()
    sharing: Sequence[str] = ()
    failure: ErrorRecord | None = None
    existing: Mapping[str, str] = {}
    waiting_turn: Sequence[str] = ()
    events: Sequence[Event] = ()

    @classmethod
    def without_options(
        cls,
        status: ScaleUpStatus,
        state: ClusterStateRegistry,
        groups: Groups,
        templates: Mapping[str, NodeTemplate],
        initializers: Mapping[str, AsyncInitializer],
    ) -> OrchestratorResult:
        """Build the result of a scale-up that considered no group; state and groups are those passed."""
        return cls(
            status=status,
            state=state,
            options=[],
            expansion=None,
            skipped={},
            cursor=0,
            pod_groups=PodGroups(np.zeros(0, np.int32), lambda _: []),
            asked_groups=[],
            groups=groups,
            templates=templates,
            initializers=initializers,
        )

    @property
    def best(self) -> ExpansionOption | None:
        """Return the chosen option, None if none was chosen."""
        best = self.expansion.best if self.expansion is not None else None
        return next((option for option in self.options if best is not None and option.group == best.group), None)


OrchestratorAction = ExecutorAction | CreateGroup | RankOptions | GetPrices | Wait
"""Actions of a scale-up. A ``Wait`` of zero duration returns the current time, because estimates take time."""


class ScaleUpOrchestrator(ExpansionFinder):
    """One scale-up: it finds the options, executes the chosen one, and builds the result.

    - ``created``: the groups that were created.
    - ``groups_after``: the groups with their current targets.
    - ``explains_remaining_pods``: whether the status explains the remaining pods.
    """

    expansion: Expansion | None = None
    ranked_options: Sequence[Option] = ()
    ranking_input: ExpanderInput | None = None
    compared: frozenset[str] = frozenset()
    explains_remaining_pods = False

    def __init__(
        self, p: Progress, snapshot: Snapshot, pods: PodsLike, context: ScaleUpContext, session: Session | None = None
    ) -> None:
        super().__init__(p, snapshot, pods, context, session)
        self.created: list[CreatedGroups] = []
        self.considered_more: list[NodeGroup] = []
        self.groups_after = self.groups
        self.initializers: dict[str, AsyncInitializer] = dict(self.context.initializers)
        self.resized: Sequence[tuple[ScaleUpInfo, Moment]] = ()

    def list_considered_groups(self) -> list[ConsideredGroup]:
        """List all groups that were considered, including those that were created."""
        groups = [*self.all_groups, *self.considered_more]
        return [ConsideredGroup(id=group.id, exists=group.exists) for group in groups]

    def list_created_groups(self) -> list[CreatedGroupIds]:
        """List the groups that were created."""
        return [
            CreatedGroupIds(main=created.main.id, extra=[item.id for item in created.extra]) for created in self.created
        ]

    def list_remaining_pods(self) -> Sequence[NoScaleUpInfo]:
        """Return the pods that stay unschedulable, each with reasons that are computed on first access.

        Also sets ``explains_remaining_pods``.
        """
        self.explains_remaining_pods = True
        return Deferred(self.explain_remaining_pods)

    def explain_remaining_pods(self) -> list[NoScaleUpInfo]:
        """Return the pods that stay unschedulable, with the reasons of every group."""
        skipped = self.filtered.skipped
        if not self.options.scaleup_simulation_for_skipped_node_groups_enabled:
            return self.pod_groups.remaining(skipped)
        # Simulate the skipped groups; if such a group rejects the pod, the rejection replaces the skip reason.
        judged = self.pod_groups.copy_without_results()
        for group in self.all_groups:
            if group.id in skipped and group.id in self.templates:
                self.judge(group.id, judged)
        infos = []
        for number in np.flatnonzero(~self.pod_groups.schedulable).tolist():
            simulated = judged.errors(number)
            rejected = {**self.pod_groups.errors(number), **simulated}
            left = {name: reasons for name, reasons in skipped.items() if name not in simulated}
            infos += [
                NoScaleUpInfo(pod=pod, rejected_groups=rejected, skipped_groups=left)
                for pod in self.pod_groups.keys_of(number)
            ]
        return infos

    def list_unmodelled(self) -> list[str]:
        """List the features that pods use and that kscale does not model."""
        pods = self.grouped.own_classes
        sessions = {id(session): session for session in (self.session, *(late for late, _ in self.compiled.values()))}
        return list(dict.fromkeys(text for session in sessions.values() for text in session.list_unmodelled(pods)))

    def finish(self, result: str) -> OrchestratorResult:
        """Return the result of a scale-up that executed nothing. ``result``: upstream's name of the outcome."""
        remaining, considered = self.list_remaining_pods(), self.list_considered_groups()
        return self.result(
            ScaleUpStatus(result=result, pods_remain_unschedulable=remaining, considered_groups=considered)
        )

    def abort(self) -> OrchestratorResult:
        """Return the result of a scale-up that requires all pods to fit, if some do not: no option is available."""
        self.pod_groups.give_up(ALL_OR_NOTHING_REASON)
        return self.finish(SCALE_UP_NO_OPTIONS_AVAILABLE)

    def fail_early(self, error: AutoscalerError) -> OrchestratorResult:
        """Return the result of a scale-up that failed with ``error`` before any group was evaluated."""
        groups = self.pod_groups
        left = Deferred(
            lambda: [NoScaleUpInfo(pod=pod) for number in range(len(groups)) for pod in groups.keys_of(number)]
        )
        return self.result(ScaleUpStatus(result=SCALE_UP_ERROR, error=error.record, pods_remain_unschedulable=left))

    def fail(self, error: AutoscalerError, chosen: ExpansionOption) -> OrchestratorResult:
        """Return the result of a scale-up that failed with ``error`` before any resize; ``chosen``: its option.

        All pods become unschedulable.
        """
        self.pod_groups.give_up(EXECUTION_FAILED_REASON)
        return self.fail_execution(error, chosen, [])

    def fail_execution(
        self, error: AutoscalerError, chosen: ExpansionOption, failed_groups: list[str]
    ) -> OrchestratorResult:
        """Return the result of a scale-up with groups that could not be resized. ``chosen``: its option."""
        status = ScaleUpStatus(
            result=SCALE_UP_ERROR,
            error=error.record,
            pods_triggered=Deferred(lambda: chosen.pods),
            failed_resize_groups=failed_groups,
            pods_remain_unschedulable=self.list_remaining_pods(),
            created_groups=self.list_created_groups(),
        )
        return self.result(status)

    def result(self, status: ScaleUpStatus) -> OrchestratorResult:
        """Build the result of this scale-up with a status."""
        return OrchestratorResult(
            status=status,
            state=self.state,
            options=self.expansion_options,
            expansion=self.expansion,
            skipped=self.filtered.skipped,
            cursor=self.session.engine.cursor,
            pod_groups=self.pod_groups,
            asked_groups=[group.id for group in self.all_groups],
            groups=self.groups_after,
            templates=self.templates,
            unmodelled=self.list_unmodelled(),
            compared=self.compared,
            initializers=self.initializers,
            resized=self.resized,
            exceeded=self.filtered.exceeded,
            observations=Deferred(partial(_build_observations, tuple(self.observations))),
            sharing=tuple(self.sharing),
            expander_options=self.ranked_options,
            expander_input=self.ranking_input,
        )

    def with_simulation(self, done: OrchestratorResult) -> StepsOf[Wait, OrchestratorResult]:
        """Return ``done`` with an observation of how long the simulation of skipped node groups took.

        With ``--scaleup-simulation-for-skipped-node-groups-enabled`` the skipped groups are simulated before the
        scale-up ends; otherwise the result is returned unchanged.
        """
        if not (self.explains_remaining_pods and self.options.scaleup_simulation_for_skipped_node_groups_enabled):
            return done
        begun = self.p.now
        list(done.status.pods_remain_unschedulable)
        ended = yield from self.p.clock()
        simulated = build_duration_observation("scaleUp:skippedNodeGroupsSimulation", ended - begun)
        return replace(done, observations=(*done.observations, simulated))

    def run(self) -> StepsOf[OrchestratorAction, OrchestratorResult]:
        """Run the scale-up and return its result.

        The duration of simulating skipped groups is observed (:meth:`with_simulation`). Raises AutoscalerError for an
        invalid chain of expanders, and InputError for ``price`` without prices.
        """
        done = yield from self._scale_up()
        return (yield from self.with_simulation(done))

    def _scale_up(self) -> StepsOf[OrchestratorAction, OrchestratorResult]:
        """Find the options, let the expanders choose one, and execute it. Returns the result, also after an error.

        Raises AutoscalerError for an invalid chain of expanders, and InputError for ``price`` without prices.
        """
        p, groups, context, options, templates = self.p, self.groups, self.context, self.options, self.templates
        expander_input = context.expander_input or ExpanderInput()
        ranking_input = replace_input(expander_input, nodes={name: item.node for name, item in templates.items()})
        for name in get_upcoming_nodes(self.state, groups, p.now, templates=self.known_templates):
            if name not in templates:
                text = f"could not get upcoming nodes: failed to find template node for node group {name}"
                return self.fail_early(AutoscalerError(INTERNAL_ERROR, text))
        candidates = context.candidates
        if isinstance(candidates, AutoscalerError):
            return self.fail_early(AutoscalerError(candidates.type or INTERNAL_ERROR, candidates.message))
        self.all_groups = Groups([*groups, *candidates], groups.node_errors) if candidates else groups
        begun = p.now
        started = yield from p.clock()
        self.observations.append(build_duration_observation("scaleUp:buildPodEquivalenceGroups", started - begun))
        limits = [build_cluster_maximum_quota(options.resource_limiter)] if context.quotas is None else context.quotas
        try:
            if isinstance(limits, AutoscalerError):
                raise limits
            is_snapshots = self.nodes is self.snapshot.columns.objects
            nodes = CountedNodes.of(self.snapshot) if is_snapshots else CountedNodes.among(self.nodes)
            tracker = QuotaTracker.maximum(limits, nodes, groups, gpu_label=ranking_input.gpu_label)
        except AutoscalerError as error:
            text = f"could not create quotas tracker: {error.message}"
            return self.fail_early(AutoscalerError(error.type or INTERNAL_ERROR, text))
        self.filter(tracker)
        yield from self.find_options(context.stop_after_options, started + duration(options.max_binpacking_time))
        if not self.expansion_options:
            return self.finish(SCALE_UP_NO_OPTIONS_AVAILABLE)
        names = options.expander_names if context.expanders is None else context.expanders
        if GRPC_EXPANDER in names:
            ranking_input = replace_input(
                ranking_input, compared=ranking_input.compared | find_compared_pods(self.grouped, self.records)
            )
            self.compared = ranking_input.compared
        self.ranked_options, self.ranking_input = self.expander_options(names), ranking_input
        self.expansion = yield from expand_steps(
            self.ranked_options, names, ranking_input, now=p, rng=context.rng, filters=context.filters
        )
        yield from p.emit(*self.expansion.events)
        best = self.expansion.best
        if best is None or best.node_count <= 0:
            self.pod_groups.give_up(EXPANDER_FILTERED_REASON)
            return self.finish(SCALE_UP_NO_OPTIONS_AVAILABLE)
        return (yield from self.execute(best, tracker))

    def execute(self, best: Option, tracker: QuotaTracker) -> StepsOf[OrchestratorAction, OrchestratorResult]:
        """Execute the option ``best``: create its group if needed, and resize all groups that share the nodes.

        ``tracker`` has the quotas that are left, and is charged. Returns the result of the scale-up, also after an
        error.
        """
        group = self.all_groups[best.group]
        chosen = next(item for item in self.expansion_options if item.group == best.group)
        capped = cap_by_max_nodes_total(best.node_count, len(self.nodes), self.options)
        yield from self.p.emit(*capped.events)
        if capped.error is not None:
            return self.fail(capped.error, chosen)
        template = self.templates.get(group.id)
        if template is None:
            error = AutoscalerError(CLOUD_PROVIDER_ERROR, "No node info for best expansion option!")
            return self.fail(error, chosen)
        try:
            new_nodes = tracker.check(group, template.node, capped.new_nodes).allowed
        except AutoscalerError as error:
            text = f"failed to check resource quotas: {error.message}"
            return self.fail(AutoscalerError(error.type or INTERNAL_ERROR, text), chosen)
        if new_nodes < best.node_count and self.all_or_nothing:
            return self.abort()
        if not group.exists and not group.upcoming:
            if self.all_or_nothing and group.max_size < new_nodes:
                return self.abort()
            asynchronous = self.options.async_node_groups
            outcome = yield from self.p.act(CreateGroup(group=group.id, asynchronous=asynchronous))
            if outcome.error is not None:
                status = ScaleUpStatus(
                    result=SCALE_UP_ERROR,
                    error=ErrorRecord(type=outcome.error.reason, message=outcome.error.message),
                    pods_triggered=Deferred(lambda: chosen.pods),
                    failed_creation_groups=[group.id],
                )
                return self.result(status)
            self.observations.append(build_observation("created_node_groups_total", group_type=""))
            created = outcome.value
            if created is None:
                created = CreatedGroups(
                    main=replace(group, exists=not asynchronous, upcoming=asynchronous, target_size=0)
                )
            if asynchronous:
                coming = [item.id for item in (created.main, *created.extra) if item.upcoming]
                later = AsyncInitializer(groups=coming, pods=list(chosen.pods), atomic=self.all_or_nothing)
                self.initializers[created.main.id] = later
            self.adopt_created_groups(group.id, created)
            group = created.main
        try:
            nodes = {name: item.node for name, item in self.templates.items()}
            similar = [self.groups[name] for name in self.list_similar_groups(group)]
            sharing = find_sharing_groups(group, similar, templates=nodes, tracker=tracker)
            self.sharing = [item.id for item in sharing]
            plan = balance_scale_ups(group, sharing[1:], new_nodes, templates=nodes, tracker=tracker)
        except AutoscalerError as error:
            return self.fail(error, chosen)
        if self.all_or_nothing and sum(info.new - info.current for info in plan) < new_nodes:
            return self.abort()
        done = yield from execute_scale_ups_steps(
            self.p,
            plan,
            self.groups,
            self.state,
            options=self.options,
            atomic=self.all_or_nothing,
            known_templates=self.known_templates,
        )
        self.state, self.resized = done.state, done.resized
        self.initializers = update_initializers(self.initializers, [info for info, _ in done.resized])
        if done.error is not None:
            failed = set(done.failed_groups)
            if not self.options.parallel_scale_up:
                names = [info.group for info in plan]
                failed.update(names[names.index(done.failed_groups[0]) :])
            self.pod_groups.fail(failed, EXECUTION_FAILED_REASON)
            self.groups_after = self.groups.with_targets(
                {info.group: info.new for info in plan if info.group not in failed}
            )
            return self.fail_execution(done.error, chosen, done.failed_groups)
        self.groups_after = self.groups.with_targets({info.group: info.new for info in plan})
        self.state = recalculate_ranges(self.state, self.groups_after)
        status = ScaleUpStatus(
            result=SCALE_UP_SUCCESSFUL,
            scale_ups=plan,
            pods_triggered=Deferred(lambda: chosen.pods),
            pods_remain_unschedulable=self.list_remaining_pods(),
            pods_await_evaluation=Deferred(lambda: self.pod_groups.awaiting(group.id)),
            considered_groups=self.list_considered_groups(),
            created_groups=self.list_created_groups(),
        )
        return self.result(status)

    def adopt_created_groups(self, old: str, created: CreatedGroups) -> None:
        """Replace the candidate with the id ``old`` by the groups that were created from it."""
        fresh = {}
        for item in (created.main, *created.extra):
            if item.template is not None and item.template_error is None:
                fresh[item.id] = build_template_from_group(
                    item.template,
                    self.context.daemonsets,
                    item.id,
                    suffix="0",
                    taints=TaintConfig.from_options(self.options),
                )
        late = Session(self.snapshot, self.grouped.unique, list(fresh.values()), self.context.profile)
        self.compiled.update({name: (late, i) for i, name in enumerate(fresh)})
        main = created.main.id
        self.schedulable[main] = self.schedulable[old]
        self.templates[main] = fresh.get(main, self.templates[old])
        if created.extra and main in fresh:
            self.pod_groups.erase(old)
            self.schedulable[main] = self.judge(main, self.pod_groups)
        else:
            self.pod_groups.rename(old, main)
        if main != old:
            del self.templates[old], self.schedulable[old]
        for item in created.extra:
            if item.id in fresh:
                self.templates[item.id] = fresh[item.id]
                self.schedulable[item.id] = self.judge(item.id, self.pod_groups)
        self.groups_after = self.groups = Groups([*self.groups, created.main, *created.extra], self.groups.node_errors)
        self.created.append(created)
        self.considered_more = [item for item in (created.main, *created.extra) if item.id != old]
        self._similar = None
        self.state = recalculate_ranges(self.state, self.groups)


def _build_observations(observations: Iterable[Observation | Callable[[], Observation]]) -> list[Observation]:
    """Return the observations; entries that are functions are called for theirs."""
    return [each if isinstance(each, Observation) else each() for each in observations]


@typed
def orchestrate_steps(
    snapshot: Snapshot, pods: PodsLike, context: ScaleUpContext, *, now: datetime | Moment
) -> StepsOf[OrchestratorAction, OrchestratorResult]:
    """Run one scale-up as a step machine, without filtering the pods first.

    No further group is considered once ``--max-binpacking-time`` has passed. See :func:`orchestrate` for the parameters
    and errors.
    """
    return orchestrate_substeps(Progress(moment(now)), snapshot, pods, context)


def orchestrate_substeps(
    p: Progress, snapshot: Snapshot, pods: PodsLike, context: ScaleUpContext, session: Session | None = None
) -> StepsOf[OrchestratorAction, OrchestratorResult]:
    """Run one scale-up within a step machine that is in progress. ``session``: as in :class:`ExpansionFinder`."""
    return ScaleUpOrchestrator(p, snapshot, pods, context, session).run()


@typed
def orchestrate(
    snapshot: Snapshot,
    pods: PodsLike,
    context: ScaleUpContext,
    *,
    now: datetime | Moment,
    rank: RankResponder | None = None,
) -> OrchestratorResult:
    """Run :func:`orchestrate_steps` as if everything succeeded: a dry run.

    Parameters
    ----------
    snapshot : Snapshot
        The cluster with upcoming nodes.
    pods : sequence of str, Pod or PodRecord
        Pods that need nodes.
    context : ScaleUpContext
        Groups, templates, state, options and further inputs.
    now : datetime or Moment
        Start of the scale-up.
    rank : callable, optional
        Responder for the ``grpc`` expander. Without it that expander keeps every option.

    Returns
    -------
    OrchestratorResult
        The chosen option and its execution.

    Raises
    ------
    AutoscalerError
        For an invalid chain of expanders (:class:`kscale.ca.AutoscalerError`).
    InputError
        For ``price`` without prices, and if prices of a cloud provider are requested.
    """
    respond = build_dry_run_responder(context.expander_input, rank)
    done = run_dry(orchestrate_steps(snapshot, pods, context, now=now), now=moment(now), respond=respond)
    return replace(done.value, events=done.events)


class MinSizeScaleUpResult(msgspec.Struct, kw_only=True):
    """Result of a scale-up to minimum sizes: ``status``, the cluster ``state`` afterwards, the ``groups`` with their
    targets, and the ``resized`` groups with the time.
    """

    status: ScaleUpStatus
    state: ClusterStateRegistry
    groups: Groups
    resized: Sequence[tuple[ScaleUpInfo, Moment]] = ()


@typed
def scale_up_to_min_size_steps(
    nodes: Sequence[Node],
    groups: Groups,
    *,
    templates: Mapping[str, Node],
    state: ClusterStateRegistry,
    now: datetime | Moment,
    options: AutoscalingOptions,
    quotas: Sequence[Quota] | AutoscalerError | None = None,
    known_templates: Container[str] | None = None,
    gpu_label: str = DEFAULT_GPU_LABEL,
) -> StepsOf[ExecutorAction, MinSizeScaleUpResult]:
    """Scale up every existing, healthy group to its minimum size as far as limits allow, with one action for each.

    Parameters
    ----------
    nodes : sequence of Node
        All nodes, for the quotas.
    groups : Groups
        The node groups.
    templates : mapping of str to Node
        Template nodes by group id.
    state : ClusterStateRegistry
        State of the node groups.
    now : datetime or Moment
        Start of the scale-up.
    options : AutoscalingOptions
        Options of the autoscaler.
    quotas : sequence of Quota or AutoscalerError, optional
        Default: the limits in the options. An error: the quotas could not be read.
    known_templates : container of str, optional
        Groups that had a template when the state was updated (None: all had).
    gpu_label : str
        Node label that names the type of GPU.

    Returns
    -------
    Steps of MinSizeScaleUpResult
        The step machine.
    """
    p = Progress(moment(now))
    return scale_up_to_min_size_substeps(
        p, nodes, groups, templates, state, options, quotas, known_templates, gpu_label
    )


def scale_up_to_min_size_substeps(
    p: Progress,
    nodes: Sequence[Node],
    groups: Groups,
    templates: Mapping[str, Node],
    state: ClusterStateRegistry,
    options: AutoscalingOptions,
    quotas: Sequence[Quota] | AutoscalerError | None,
    known_templates: Container[str] | None,
    gpu_label: str,
) -> StepsOf[ExecutorAction, MinSizeScaleUpResult]:
    """Scale up groups below their minimum size, as part of another step machine.

    The parameters and errors are those of :func:`scale_up_to_min_size_steps`.
    """
    limits = [build_cluster_maximum_quota(options.resource_limiter)] if quotas is None else quotas
    try:
        if isinstance(limits, AutoscalerError):
            raise limits
        tracker = QuotaTracker.maximum(limits, nodes, groups, gpu_label=gpu_label)
    except AutoscalerError as error:
        failure = AutoscalerError(error.type or INTERNAL_ERROR, f"could not create quotas tracker: {error.message}")
        return MinSizeScaleUpResult(
            status=ScaleUpStatus(result=SCALE_UP_ERROR, error=failure.record), state=state, groups=groups
        )
    plan = []
    for group in groups:
        known = known_templates is None or group.id in known_templates
        if group.exists and find_not_ready_reason(group, state, p.now, options, has_template=known) is not None:
            continue
        info = yield from _plan_min_size(p, group, templates.get(group.id), tracker, options)
        if info is not None:
            plan.append(info)
    if not plan:
        return MinSizeScaleUpResult(status=ScaleUpStatus(result=SCALE_UP_NOT_NEEDED), state=state, groups=groups)
    done = yield from execute_scale_ups_steps(p, plan, groups, state, options=options, known_templates=known_templates)
    if done.error is not None:
        status = ScaleUpStatus(result=SCALE_UP_ERROR, error=done.error.record, failed_resize_groups=done.failed_groups)
        grown = groups.with_targets({info.group: info.new for info, _ in done.resized})
        return MinSizeScaleUpResult(status=status, state=done.state, groups=grown, resized=done.resized)
    status = ScaleUpStatus(
        result=SCALE_UP_SUCCESSFUL,
        scale_ups=plan,
        considered_groups=[ConsideredGroup(id=group.id, exists=group.exists) for group in groups],
    )
    grown = groups.with_targets({info.group: info.new for info in plan})
    return MinSizeScaleUpResult(
        status=status, state=recalculate_ranges(done.state, grown), groups=grown, resized=done.resized
    )


def _plan_min_size(
    p: Progress, group: NodeGroup, node: Node | None, tracker: QuotaTracker, options: AutoscalingOptions
) -> StepsOf[Emit, ScaleUpInfo | None]:
    """Return the resize of a group towards its minimum size; None if none is needed or allowed.

    ``node``: template node of the group. Emits the event if the maximum number of nodes is reached. As upstream, only
    the group's own nodes are compared with that maximum.
    """
    if not group.exists or group.target_size_error is not None or group.size >= group.min_size:
        return None
    if node is None or not is_within_quotas(tracker, group, node, 1):
        return None
    try:
        requested = tracker.check(group, node, group.min_size - group.size).allowed
    except AutoscalerError:
        return None
    capped = cap_by_max_nodes_total(requested, group.size, options)
    yield from p.emit(*capped.events)
    if capped.error is not None:
        return None
    return ScaleUpInfo(group=group.id, current=group.size, new=group.size + capped.new_nodes, max=group.max_size)
