"""One scale-up from pods that need nodes to resized groups: a step machine (``core/scaleup/orchestrator``)."""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Mapping, Sequence
from dataclasses import replace as replace_input
from datetime import datetime, timedelta
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from kscale.ca.cluster_state import ClusterState, recalculate, upcoming_nodes
from kscale.ca.deferred import Deferred
from kscale.ca.errors import CLOUD_PROVIDER_ERROR, INTERNAL_ERROR, AutoscalerError
from kscale.ca.events import Event
from kscale.ca.expander.chain import Expansion, as_if_done, expand_steps
from kscale.ca.expander.registry import GRPC
from kscale.ca.expander.types import ExpanderInput, Filter, Option, Rank, Ranking, RankOptions, Rng
from kscale.ca.options import AutoscalingOptions
from kscale.ca.quota import Quota, QuotaTracker, cap_by_max_nodes_total, cluster_maximum
from kscale.ca.scale_up.compared import compared_pods
from kscale.ca.scale_up.creation import AsyncInitializer, CreatedNodeGroups, CreateGroup
from kscale.ca.scale_up.executor import Execution, IncreaseSize, execute_steps
from kscale.ca.scale_up.expansion import ExpansionFinder, ExpansionOption
from kscale.ca.scale_up.plan import balance_scale_ups
from kscale.ca.scale_up.pod_groups import PodGroups
from kscale.ca.scale_up.status import (
    ALL_OR_NOTHING,
    ERROR,
    EXECUTION_FAILED,
    EXPANDER_FILTERED,
    NO_OPTIONS_AVAILABLE,
    SUCCESSFUL,
    ConsideredGroup,
    CreatedGroups,
    RemainingPod,
    ScaleUpStatus,
)
from kscale.ca.similarity import Comparator
from kscale.ca.templates import TaintConfig, template_from_group
from kscale.objects.apps import DaemonSet
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.nodegroups import Groups
from kscale.scheduling.pods import PodsLike
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.session import Session
from kscale.scheduling.unmodelled import unmodelled_of
from kscale.snapshot.snapshot import Snapshot

__all__ = ["ExpansionOption", "Orchestration", "orchestrate", "orchestrate_steps"]


Action = IncreaseSize | RankOptions | CreateGroup
Outcome = AutoscalerError | Ranking | CreatedNodeGroups | None


class Orchestration(msgspec.Struct, kw_only=True):
    """What was decided and done: the status, every option, the choice, events on the way, the cluster state after.

    ``cursor`` is where the scan over nodes stands; ``pod_groups`` what was found out about like pods;
    ``asked_groups`` are all groups that were looked at, ``groups`` and ``templates`` what there is afterwards, with new
    target sizes and with groups that were made. ``unmodelled``: what pods use that no rule here looks at.
    ``compared``: pods that an outside ranker was shown without environment, and will be.
    """

    status: ScaleUpStatus
    state: ClusterState
    options: list[ExpansionOption]
    expansion: Expansion | None
    skipped: dict[str, list[str]]
    events: list[Event]
    cursor: int
    pod_groups: PodGroups
    asked_groups: list[str]
    groups: Groups
    templates: Mapping[str, NodeTemplate]
    unmodelled: list[str] = []
    compared: frozenset[str] = frozenset()

    @property
    def best(self) -> ExpansionOption | None:
        """The option that was chosen, if one was."""
        best = self.expansion.best if self.expansion is not None else None
        return next((option for option in self.options if best is not None and option.group == best.group), None)


def orchestrate_steps(
    snapshot: Snapshot,
    pods: PodsLike,
    groups: Groups,
    *,
    nodes: Sequence[Node],
    templates: Mapping[str, NodeTemplate],
    state: ClusterState,
    now: datetime,
    options: AutoscalingOptions | None = None,
    expanders: Sequence[str] | None = None,
    filters: Mapping[str, Filter] | None = None,
    expander_input: ExpanderInput | None = None,
    quotas: Sequence[Quota] | AutoscalerError | None = None,
    comparator: Comparator | None = None,
    profile: SchedulerProfile | None = None,
    candidates: Sequence[NodeGroup] | AutoscalerError = (),
    daemonsets: Sequence[DaemonSet] = (),
    known_templates: Container[str] | None = None,
    all_or_nothing: bool = False,
    stop_after_options: int = 0,
    elapsed: Callable[[], timedelta] = timedelta,
    cursor: int = 0,
    rng: Rng | None = None,
) -> Generator[Action, Outcome, Orchestration]:
    """The bare orchestrator: the pods as given, no filtering before.

    - ``nodes``: all nodes that count for limits, upcoming ones included; ``templates``: what a new node of a group is.
    - ``expanders`` default to those of the options, ``filters`` are further ones by name; ``expander_input`` needs no
      nodes.
    - ``quotas`` default to the cluster-wide maxima of the options (an error: they could not be read), ``comparator`` to
      upstream's default.
    - ``candidates``: groups that could be made (``exists`` False); theirs are among ``templates`` too. An error: they
      could not be listed. ``daemonsets`` run on templates of groups that were made.
    - ``known_templates`` as in :func:`kscale.ca.scale_up.group_filter.filter_groups`; ``stop_after_options``: no
      further estimates once there are so many options (0 = all); ``elapsed``: the time since some moment, asked after
      every group: no further estimates either once ``--max-binpacking-time`` is over.

    Yields :class:`IncreaseSize` (answered with None or an :class:`AutoscalerError`), :class:`CreateGroup` for a
    candidate (see there) and, for the grpc expander, :class:`RankOptions` (answered with a :class:`Ranking` or None).
    """
    run = _Orchestrator(
        snapshot, pods, groups, nodes, templates, state, now, options or AutoscalingOptions(), comparator, profile,
        cursor,
    )  # fmt: skip
    run.all_or_nothing = all_or_nothing
    run.daemonsets = daemonsets
    run.known = known_templates if known_templates is not None else {group.id for group in groups}
    given = replace_input(
        expander_input or ExpanderInput(), nodes={name: item.node for name, item in templates.items()}
    )
    for name in upcoming_nodes(state, groups, now, templates=run.known):
        if name not in templates:
            text = f"could not get upcoming nodes: failed to find template node for node group {name}"
            return run.fail_early(AutoscalerError(INTERNAL_ERROR, text))
    if isinstance(candidates, AutoscalerError):
        return run.fail_early(AutoscalerError(candidates.type or INTERNAL_ERROR, candidates.message))
    run.every = Groups([*groups, *candidates], groups.node_errors)
    started = elapsed()
    limits = [cluster_maximum(run.options.resource_limiter)] if quotas is None else quotas
    try:
        if isinstance(limits, AutoscalerError):
            raise limits
        tracker = QuotaTracker.maximum(limits, nodes, groups, gpu_label=given.gpu_label)
    except AutoscalerError as error:
        text = f"could not create quotas tracker: {error.message}"
        return run.fail_early(AutoscalerError(error.type or INTERNAL_ERROR, text))
    run.filter(tracker)
    run.find_options(stop_after_options, lambda: elapsed() - started > run.options.max_binpacking_time)
    if not run.found:
        return run.finish(NO_OPTIONS_AVAILABLE)
    names = run.options.expander_names if expanders is None else expanders
    if GRPC in names:
        given = replace_input(given, compared=given.compared | compared_pods(run.grouped, run.every_record))
        run.compared = given.compared
    question = expand_steps(run.expander_options(names), names, given, rng=rng, filters=filters)
    run.expansion = yield from _chosen(question)
    run.events += run.expansion.events
    best = run.expansion.best
    if best is None or best.node_count <= 0:
        run.egs.give_up(EXPANDER_FILTERED)
        return run.finish(NO_OPTIONS_AVAILABLE)
    return (yield from run.carry_out(best, tracker))


def _chosen(
    steps: Generator[RankOptions, Ranking | None, Expansion],
) -> Generator[Action, Outcome, Expansion]:
    try:
        question = next(steps)
        while True:
            answer = yield question
            question = steps.send(answer if isinstance(answer, Ranking) else None)
    except StopIteration as stop:
        expansion: Expansion = stop.value
        return expansion


class _Orchestrator(ExpansionFinder):
    """The same scale-up while a choice is carried out and reported."""

    daemonsets: Sequence[DaemonSet] = ()
    expansion: Expansion | None = None
    compared: frozenset[str] = frozenset()

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.created: list[CreatedNodeGroups] = []
        self.considered_more: list[NodeGroup] = []
        self.grown = self.groups
        self.events: list[Event] = []

    # -- carrying out ------------------------------------------------------------------------------------------

    def carry_out(self, best: Option, tracker: QuotaTracker) -> Generator[Action, Outcome, Orchestration]:
        group = self.every[best.group]
        chosen = next(item for item in self.found if item.group == best.group)
        capped = cap_by_max_nodes_total(
            best.node_count,
            len(self.nodes),
            self.options.max_nodes_total,
            status_config_map=f"{self.options.namespace}/{self.options.status_config_map_name}",
        )
        self.events += capped.events
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
            later = None
            if self.options.async_node_groups:
                later = AsyncInitializer(pods=list(chosen.pods), atomic=self.all_or_nothing)
            made = yield CreateGroup(group=group.id, asynchronous=later is not None, initializer=later)
            if isinstance(made, AutoscalerError):
                status = ScaleUpStatus(
                    result=ERROR,
                    error=made.record,
                    pods_triggered=Deferred(lambda: chosen.pods),
                    failed_creation_groups=[group.id],
                )
                return self.result(status)
            if not isinstance(made, CreatedNodeGroups):
                made = CreatedNodeGroups(
                    main=replace(group, exists=later is None, upcoming=later is not None, target_size=0)
                )
            self.adopt(group.id, made)
            group = made.main
        try:
            plan = balance_scale_ups(
                group,
                [self.groups[name] for name in self.similar_to(group)],
                new_nodes,
                templates={name: item.node for name, item in self.templates.items()},
                tracker=tracker,
            )
        except AutoscalerError as error:
            return self.fail(error, chosen)
        if self.all_or_nothing and sum(info.new - info.current for info in plan) < new_nodes:
            return self.abort()
        done = yield from _executed(
            execute_steps(
                plan,
                self.groups,
                self.state,
                now=self.now,
                options=self.options,
                atomic=self.all_or_nothing,
                known_templates=self.known,
            )
        )
        self.events += done.events
        self.state = done.state
        if done.error is not None:
            failed = set(done.failed_groups)
            if not self.options.parallel_scale_up:
                names = [info.group for info in plan]
                failed.update(names[names.index(done.failed_groups[0]) :])
            self.egs.fail(failed, EXECUTION_FAILED)
            self.grown = self.groups.with_targets({info.group: info.new for info in plan if info.group not in failed})
            status = ScaleUpStatus(
                result=ERROR,
                error=done.error.record,
                pods_triggered=Deferred(lambda: chosen.pods),
                failed_resize_groups=done.failed_groups,
                pods_remain_unschedulable=Deferred(self.remaining),
                created_groups=self.created_groups(),
            )
            return self.result(status)
        self.grown = self.groups.with_targets({info.group: info.new for info in plan})
        self.state = recalculate(self.state, self.grown)
        status = ScaleUpStatus(
            result=SUCCESSFUL,
            scale_ups=plan,
            pods_triggered=Deferred(lambda: chosen.pods),
            pods_remain_unschedulable=Deferred(self.remaining),
            pods_await_evaluation=Deferred(lambda: self.egs.awaiting(group.id)),
            considered_groups=self.considered(),
            created_groups=self.created_groups(),
        )
        return self.result(status)

    def adopt(self, old: str, made: CreatedNodeGroups) -> None:
        """Takes groups that were made into account, in place of the candidate."""
        fresh = {}
        for item in (made.main, *made.extra):
            if item.template is not None and item.template_error is None:
                fresh[item.id] = template_from_group(
                    item.template,
                    self.daemonsets,
                    item.id,
                    suffix="0",
                    taints=TaintConfig.from_options(self.options),
                )
        late = Session(self.snapshot, self.grouped.unique, list(fresh.values()), self.profile)
        self.compiled.update({name: (late, i) for i, name in enumerate(fresh)})
        main = made.main.id
        self.schedulable[main] = self.schedulable[old]
        self.templates[main] = fresh.get(main, self.templates[old])
        if made.extra and main in fresh:
            self.egs.erase(old)
            self.schedulable[main] = self.judge(main, self.egs)
        else:
            self.egs.rename(old, main)
        if main != old:
            del self.templates[old], self.schedulable[old]
        for item in made.extra:
            if item.id in fresh:
                self.templates[item.id] = fresh[item.id]
                self.schedulable[item.id] = self.judge(item.id, self.egs)
        self.grown = self.groups = Groups([*self.groups, made.main, *made.extra], self.groups.node_errors)
        self.created.append(made)
        self.considered_more = [item for item in (made.main, *made.extra) if item.id != old]
        self._similar = None
        self.state = recalculate(self.state, self.groups)

    # -- reporting ---------------------------------------------------------------------------------------------

    def considered(self) -> list[ConsideredGroup]:
        every = [*self.every, *self.considered_more]
        return [ConsideredGroup(id=group.id, exists=group.exists) for group in every]

    def created_groups(self) -> list[CreatedGroups]:
        return [CreatedGroups(main=made.main.id, extra=[item.id for item in made.extra]) for made in self.created]

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
        return list(dict.fromkeys(text for session in sessions.values() for text in unmodelled_of(session)))

    def finish(self, result: str) -> Orchestration:
        return self.result(
            ScaleUpStatus(
                result=result, pods_remain_unschedulable=Deferred(self.remaining), considered_groups=self.considered()
            )
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
                pods_remain_unschedulable=Deferred(self.remaining),
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
            events=self.events,
            cursor=self.session.engine.cursor,
            pod_groups=self.egs,
            asked_groups=[group.id for group in self.every],
            groups=self.grown,
            templates=self.templates,
            unmodelled=self.unmodelled(),
            compared=self.compared,
        )


def _executed(
    steps: Generator[IncreaseSize, AutoscalerError | None, Execution],
) -> Generator[Action, Outcome, Execution]:
    try:
        action = next(steps)
        while True:
            answer = yield action
            action = steps.send(answer if isinstance(answer, AutoscalerError) else None)
    except StopIteration as stop:
        done: Execution = stop.value
        return done


def orchestrate(
    snapshot: Snapshot,
    pods: PodsLike,
    groups: Groups,
    *,
    nodes: Sequence[Node],
    templates: Mapping[str, NodeTemplate],
    state: ClusterState,
    now: datetime,
    options: AutoscalingOptions | None = None,
    expander_input: ExpanderInput | None = None,
    quotas: Sequence[Quota] | AutoscalerError | None = None,
    rng: Rng | None = None,
    rank: Rank | None = None,
) -> Orchestration:
    """:func:`orchestrate_steps` as if everything succeeded: a dry run. ``rank`` answers for the grpc expander; without
    it that keeps every option."""
    steps = orchestrate_steps(
        snapshot,
        pods,
        groups,
        nodes=nodes,
        templates=templates,
        state=state,
        now=now,
        options=options,
        expander_input=expander_input,
        quotas=quotas,
        rng=rng,
    )
    found: Orchestration = as_if_done(steps, rank)
    return found
