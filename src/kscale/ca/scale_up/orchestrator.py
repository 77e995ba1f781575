"""One scale-up from pods that need nodes to resized groups: a step machine (``core/scaleup/orchestrator``)."""

from __future__ import annotations

from dataclasses import replace as replace_input
from datetime import datetime

from msgspec.structs import replace

from kscale.ca.cluster_state import recalculate, upcoming_nodes
from kscale.ca.errors import CLOUD_PROVIDER_ERROR, INTERNAL_ERROR, AutoscalerError, ErrorRecord
from kscale.ca.expander.chain import expand_steps, respond_with
from kscale.ca.expander.registry import GRPC
from kscale.ca.expander.types import ExpanderInput, Option, Rank
from kscale.ca.metrics import observation, took
from kscale.ca.quota import QuotaTracker, cap_by_max_nodes_total, cluster_maximum
from kscale.ca.scale_up.balance_scale_ups import balance_scale_ups, sharing_groups
from kscale.ca.scale_up.compared_pods import compared_pods
from kscale.ca.scale_up.creation import AsyncInitializer, with_grown
from kscale.ca.scale_up.executor import Executing, execute_steps
from kscale.ca.scale_up.ground import ScaleUpGround
from kscale.ca.scale_up.orchestration import Orchestration
from kscale.ca.scale_up.reporting import ScaleUpReporting
from kscale.ca.scale_up.status import (
    ERROR,
    EXECUTION_FAILED,
    EXPANDER_FILTERED,
    NO_OPTIONS_AVAILABLE,
    SUCCESSFUL,
    ScaleUpStatus,
)
from kscale.ca.templates import TaintConfig, template_from_group
from kscale.effects import (
    CreatedGroups,
    CreateGroup,
    Deferred,
    GetPrices,
    Moment,
    Progress,
    RankOptions,
    StepsOf,
    Wait,
    as_if_done,
    duration,
    moment,
)
from kscale.objects.argument_types import typed
from kscale.objects.nodegroups import Groups
from kscale.scheduling.pods import PodsLike
from kscale.scheduling.session import Session
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "Orchestrating",
    "orchestrate",
    "orchestrate_in",
    "orchestrate_steps",
]

Orchestrating = Executing | CreateGroup | RankOptions | GetPrices | Wait
"""What a scale-up asks for. A wait of no time asks how late it is: estimates take theirs."""


@typed
def orchestrate_steps(
    snapshot: Snapshot,
    pods: PodsLike,
    ground: ScaleUpGround,
    *,
    now: datetime | Moment,
) -> StepsOf[Orchestrating, Orchestration]:
    """The bare orchestrator: the pods as given, no filtering before. No further group is asked once
    ``--max-binpacking-time`` is over."""
    return orchestrate_in(Progress(moment(now)), snapshot, pods, ground)


def orchestrate_in(
    p: Progress, snapshot: Snapshot, pods: PodsLike, ground: ScaleUpGround
) -> StepsOf[Orchestrating, Orchestration]:
    """The same within a machine that is under way."""
    run = _Orchestrator(p, snapshot, pods, ground)
    done = yield from _scale_up(run)
    return (yield from run.with_simulation(done))


def _scale_up(run: _Orchestrator) -> StepsOf[Orchestrating, Orchestration]:
    p, groups, inputs, options, templates = run.p, run.groups, run.inputs, run.options, run.templates
    expander_input = inputs.expander_input or ExpanderInput()
    given = replace_input(expander_input, nodes={name: item.node for name, item in templates.items()})
    for name in upcoming_nodes(run.state, groups, p.now, templates=run.known):
        if name not in templates:
            text = f"could not get upcoming nodes: failed to find template node for node group {name}"
            return run.fail_early(AutoscalerError(INTERNAL_ERROR, text))
    candidates = inputs.candidates
    if isinstance(candidates, AutoscalerError):
        return run.fail_early(AutoscalerError(candidates.type or INTERNAL_ERROR, candidates.message))
    run.every = Groups([*groups, *candidates], groups.node_errors)
    begun = p.now
    started = yield from p.clock()
    run.observations.append(took("scaleUp:buildPodEquivalenceGroups", started - begun))
    limits = [cluster_maximum(options.resource_limiter)] if inputs.quotas is None else inputs.quotas
    try:
        if isinstance(limits, AutoscalerError):
            raise limits
        tracker = QuotaTracker.maximum(limits, run.nodes, groups, gpu_label=given.gpu_label)
    except AutoscalerError as error:
        text = f"could not create quotas tracker: {error.message}"
        return run.fail_early(AutoscalerError(error.type or INTERNAL_ERROR, text))
    run.filter(tracker)
    yield from run.find_options(inputs.stop_after_options, started + duration(options.max_binpacking_time))
    if not run.found:
        return run.finish(NO_OPTIONS_AVAILABLE)
    names = options.expander_names if inputs.expanders is None else inputs.expanders
    if GRPC in names:
        given = replace_input(given, compared=given.compared | compared_pods(run.grouped, run.records))
        run.compared = given.compared
    run.asked, run.given = run.expander_options(names), given
    run.expansion = yield from expand_steps(run.asked, names, given, now=p, rng=inputs.rng, filters=inputs.filters)
    yield from p.emit(*run.expansion.events)
    best = run.expansion.best
    if best is None or best.node_count <= 0:
        run.egs.give_up(EXPANDER_FILTERED)
        return run.finish(NO_OPTIONS_AVAILABLE)
    return (yield from run.carry_out(best, tracker))


class _Orchestrator(ScaleUpReporting):
    """The same scale-up while a choice is carried out."""

    def carry_out(self, best: Option, tracker: QuotaTracker) -> StepsOf[Orchestrating, Orchestration]:
        group = self.every[best.group]
        chosen = next(item for item in self.found if item.group == best.group)
        capped = cap_by_max_nodes_total(
            best.node_count,
            len(self.nodes),
            self.options,
        )
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
                    result=ERROR,
                    error=ErrorRecord(type=outcome.error.reason, message=outcome.error.message),
                    pods_triggered=Deferred(lambda: chosen.pods),
                    failed_creation_groups=[group.id],
                )
                return self.result(status)
            self.observations.append(observation("created_node_groups_total", group_type=""))
            made = outcome.value
            if made is None:
                made = CreatedGroups(main=replace(group, exists=not asynchronous, upcoming=asynchronous, target_size=0))
            if asynchronous:
                coming = [item.id for item in (made.main, *made.extra) if item.upcoming]
                later = AsyncInitializer(groups=coming, pods=list(chosen.pods), atomic=self.all_or_nothing)
                self.initializers[made.main.id] = later
            self.adopt(group.id, made)
            group = made.main
        try:
            nodes = {name: item.node for name, item in self.templates.items()}
            similar = [self.groups[name] for name in self.similar_to(group)]
            sharing = sharing_groups(group, similar, templates=nodes, tracker=tracker)
            self.sharing = [item.id for item in sharing]
            plan = balance_scale_ups(group, sharing[1:], new_nodes, templates=nodes, tracker=tracker)
        except AutoscalerError as error:
            return self.fail(error, chosen)
        if self.all_or_nothing and sum(info.new - info.current for info in plan) < new_nodes:
            return self.abort()
        done = yield from execute_steps(
            self.p,
            plan,
            self.groups,
            self.state,
            options=self.options,
            atomic=self.all_or_nothing,
            known_templates=self.known,
        )
        self.state, self.resized = done.state, done.resized
        self.initializers = with_grown(self.initializers, [info for info, _ in done.resized])
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
                pods_remain_unschedulable=self.left(),
                created_groups=self.created_groups(),
            )
            return self.result(status)
        self.grown = self.groups.with_targets({info.group: info.new for info in plan})
        self.state = recalculate(self.state, self.grown)
        status = ScaleUpStatus(
            result=SUCCESSFUL,
            scale_ups=plan,
            pods_triggered=Deferred(lambda: chosen.pods),
            pods_remain_unschedulable=self.left(),
            pods_await_evaluation=Deferred(lambda: self.egs.awaiting(group.id)),
            considered_groups=self.considered(),
            created_groups=self.created_groups(),
        )
        return self.result(status)

    def adopt(self, old: str, made: CreatedGroups) -> None:
        """Takes groups that were made into account, in place of the candidate."""
        fresh = {}
        for item in (made.main, *made.extra):
            if item.template is not None and item.template_error is None:
                fresh[item.id] = template_from_group(
                    item.template,
                    self.inputs.daemonsets,
                    item.id,
                    suffix="0",
                    taints=TaintConfig.from_options(self.options),
                )
        late = Session(self.snapshot, self.grouped.unique, list(fresh.values()), self.inputs.profile)
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


@typed
def orchestrate(
    snapshot: Snapshot,
    pods: PodsLike,
    ground: ScaleUpGround,
    *,
    now: datetime | Moment,
    rank: Rank | None = None,
) -> Orchestration:
    """:func:`orchestrate_steps` as if everything succeeded: a dry run. ``rank`` answers for the grpc expander; without
    it that keeps every option."""
    respond = respond_with(ground.inputs.expander_input, rank)
    done = as_if_done(orchestrate_steps(snapshot, pods, ground, now=now), now=moment(now), respond=respond)
    return replace(done.value, events=done.events)
