"""One scale-up of release 1.3 (``core/scale_up.go``), step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace as replace_input

import msgspec
from msgspec.structs import replace

from kscale.ca.balancing import GroupSize, ScaleUpInfo, balance
from kscale.ca.cluster_state import ClusterStateRegistry, is_safe_to_scale_up, upcoming_count
from kscale.ca.errors import CLOUD_PROVIDER_ERROR, INTERNAL_ERROR, TRANSIENT_ERROR, AutoscalerError
from kscale.ca.event_subjects import status_event
from kscale.ca.expander.chain import ExpanderStep
from kscale.ca.expander.random_choice import choose
from kscale.ca.expander.registry import FILTERS, RANDOM
from kscale.ca.expander.types import ExpanderInput, Option, PodRun, Rng
from kscale.ca.legacy.estimators import basic_estimate, old_binpacking_estimate
from kscale.ca.legacy.limits import apply_limits, exceeded, left_limits, resources_delta
from kscale.ca.metrics import observation
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_up.executor import Executing, execute_steps
from kscale.ca.similarity import Comparator, DifferenceRatios, find_similar
from kscale.effects import CreateGroup, Emit, Moment, Observe, Progress, StepsOf
from kscale.errors import InputError, Problem
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup, NodeTemplate, ProviderError
from kscale.objects.nodegroups import Groups
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.session import Session
from kscale.scheduling.similar_pods import shapes_of
from kscale.scheduling.verdict import Verdict
from kscale.snapshot.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["LEGACY_EXPANDERS", "LegacyOption", "LegacyScaleUp", "ScalingUp1_3", "legacy_upcoming", "scale_up_1_3"]

ScalingUp1_3 = Executing | CreateGroup | Observe
"""What a scale-up asks for."""

_COMPARATOR = Comparator(kind="legacy", ratios=DifferenceRatios(memory_difference_ratio=0.0))
LEGACY_EXPANDERS = (RANDOM, "most-pods", "least-waste", "price")


class LegacyOption(msgspec.Struct, kw_only=True, frozen=True):
    """A group as a way to scale up: the pods that fit its nodes (by position), and how many nodes they need."""

    group: str
    node_count: int
    pods: list[int]
    debug: str = ""


class LegacyScaleUp(msgspec.Struct, kw_only=True):
    """What came of it. ``left_out``: groups that were not asked or need no node, with the text that was logged;
    ``verdicts``: by group, what stood against each pod that does not fit; ``sharing``: the groups among which the new
    nodes were divided, the best option's first; ``resized``: the sizes that the cloud accepted, and when."""

    scaled_up: bool = False
    error: AutoscalerError | None = None
    options: list[LegacyOption] = []
    left_out: dict[str, str] = {}
    verdicts: dict[str, dict[int, Verdict]] = {}
    steps: list[ExpanderStep] = []
    best: LegacyOption | None = None
    plan: list[ScaleUpInfo] = []
    created: list[str] = []
    resized: list[tuple[ScaleUpInfo, Moment]] = []
    sharing: list[str] = []
    remaining: list[int] = []
    awaiting: list[int] = []
    unmodelled: list[str] = []
    state: ClusterStateRegistry
    groups: Groups


def legacy_upcoming(state: ClusterStateRegistry, groups: Groups) -> dict[str, int]:
    """Nodes that were asked for and are not there, by group: whatever they were asked for by."""
    counts = {group.id: upcoming_count(state, group.id) for group in groups}
    return {name: count for name, count in counts.items() if count > 0}


class _Run:
    """One scale-up under way."""

    def __init__(
        self,
        p: Progress,
        snapshot: Snapshot,
        pods: Sequence[PodRecord],
        groups: Groups,
        templates: Mapping[str, NodeTemplate],
        options: AutoscalingOptions,
        given: ExpanderInput,
        profile: SchedulerProfile | None,
        found: LegacyScaleUp,
    ) -> None:
        self.p = p
        self.snapshot, self.pods, self.groups, self.templates = snapshot, pods, groups, dict(templates)
        self.options, self.given, self.profile, self.found = options, given, profile, found
        self.unique, self.class_of = snapshot.distinct_classes(pods)
        _, shape = shapes_of(pods)
        # Upstream asks the predicates once for pods of one controller that look the same: the first one's answer.
        first: dict[int, int] = {}
        self.leader = [i if s < 0 else first.setdefault(s, i) for i, s in enumerate(shape.tolist())]
        self.session = Session(snapshot, self.unique, list(self.templates.values()), profile)
        self.which = {name: i for i, name in enumerate(self.templates)}
        found.unmodelled = self.session.unmodelled
        self.passing: dict[str, list[int]] = {}

    # -- limits and nodes on their way ---------------------------------------------------------------------------

    def left(self, nodes: Sequence[Node]) -> dict[str, int]:
        """What may still be added of each limited resource."""
        try:
            alone = [node for node in nodes if self.groups.of_node(node.name) is None]
        except ProviderError as error:
            text = "failed to filter out nodes which are from not autoscaled groups: "
            raise AutoscalerError("", text + error.message) from None
        plain = {name: item.node for name, item in self.templates.items()}
        try:
            return left_limits(self.options.resource_limiter, self.groups, plain, alone, self.given.gpu_label)
        except AutoscalerError as error:
            raise error.with_prefix("Could not compute total resources: ") from None

    def coming(self) -> list[NodeTemplate]:
        """All nodes on their way, of whatever group."""
        found: list[NodeTemplate] = []
        for name, count in legacy_upcoming(self.found.state, self.groups).items():
            if name not in self.templates:
                raise AutoscalerError(INTERNAL_ERROR, f"failed to find template node for node group {name}")
            found += [self.templates[name]] * count
        return found

    # -- options -------------------------------------------------------------------------------------------------

    def ask(self, group: NodeGroup, coming: Sequence[NodeTemplate]) -> None:
        """What one group could do for which pods."""
        found = self.found
        self.passing[group.id] = fitting = self._fitting(group.id)
        if not fitting:
            found.left_out[group.id] = f"No pod can fit to {group.id}"
            return
        found.remaining = sorted(set(found.remaining) - set(fitting))
        count, debug = self._estimate(group.id, fitting, coming)
        if count > 0:
            found.options.append(LegacyOption(group=group.id, node_count=count, pods=fitting, debug=debug))
        else:
            found.left_out[group.id] = f"No need for any nodes in {group.id}"

    def _fitting(self, group: str) -> list[int]:
        """The pods that fit an empty node of the group."""
        numbers = sorted({int(self.class_of[i]) for i in self.leader})
        verdicts = self.session.verdicts_on_copy(self.which[group], 0, numbers)
        of_pod = [verdicts[int(self.class_of[i])] for i in self.leader]
        self.found.verdicts[group] = {i: verdict for i, verdict in enumerate(of_pod) if not verdict.ok}
        return [i for i, verdict in enumerate(of_pod) if verdict.ok]

    def _estimate(self, group: str, pods: Sequence[int], coming: Sequence[NodeTemplate]) -> tuple[int, str]:
        template, records = self.templates[group], [self.pods[i] for i in pods]
        if self.options.estimator == "basic":
            try:
                basic = basic_estimate([r.pod for r in records], template, [item.node for item in coming])
            except InputError as error:
                of_group = [Problem(each.message, object=f"node group {group}") for each in error.problems]
                raise InputError(of_group) from None
            return basic.node_count, basic.report
        packed = old_binpacking_estimate(self.snapshot, records, template=template, coming=coming, profile=self.profile)
        return packed.node_count, ""

    def expand(self, rng: Rng | None) -> LegacyOption | None:
        """One strategy; ties go to chance, those of ``price`` to the first."""
        found, name = self.found, self.options.expander
        choices = [
            Option(
                group=option.group, node_count=option.node_count, pods=[PodRun(self.pods[i].pod) for i in option.pods]
            )
            for option in found.options
        ]
        if name != RANDOM and choices:
            nodes = {group: item.node for group, item in self.templates.items()}
            filtered = FILTERS[name](choices, replace_input(self.given, nodes=nodes))
            found.steps = [ExpanderStep(expander=name, filtered=filtered)]
            choices = filtered.survivors
        best = choices[0] if name == "price" and choices else choose(choices, rng)
        return None if best is None else next(option for option in found.options if option.group == best.group)

    # -- carrying out --------------------------------------------------------------------------------------------

    def create(self, group: NodeGroup) -> StepsOf[CreateGroup | Emit | Observe, NodeGroup]:
        """Makes a group that does not exist, before limits are looked at."""
        outcome = yield from self.p.act(CreateGroup(group=group.id))
        error = outcome.error
        if error is not None:
            text = f"NodeAutoprovisioning: attempt to create node group {group.id} failed: {error.message}"
            yield from self.say("Warning", "FailedToCreateNodeGroup", text)
            raise AutoscalerError(error.reason or CLOUD_PROVIDER_ERROR, error.message)
        made = outcome.value
        main: NodeGroup = replace(group, exists=True, target_size=0) if made is None else made.main
        self.passing[main.id], self.templates[main.id] = self.passing[group.id], self.templates[group.id]
        self.found.created.append(main.id)
        yield from self.say("Normal", "CreatedNodeGroup", f"NodeAutoprovisioning: created new node group {main.id}")
        yield from self.p.observe(observation("created_node_groups_total", group_type=""))
        self.found.groups = self.groups = Groups([*self.groups, main], self.groups.node_errors)
        return main

    def say(self, kind: str, reason: str, message: str) -> StepsOf[Emit, None]:
        return self.p.emit(status_event(self.options, kind, reason, message))

    def similar_to(self, chosen: NodeGroup, best: LegacyOption, now: Moment) -> list[NodeGroup]:
        """The group, and those that may share its new nodes: each takes every pod of the option."""
        targets = [chosen]
        if self.options.balance_similar_node_groups:
            for name in find_similar(chosen.id, [group.id for group in self.groups], self.templates, _COMPARATOR):
                other = self.groups[name]
                takes = set(best.pods) <= set(self.passing.get(name, ()))
                if takes and (not other.exists or is_safe_to_scale_up(self.found.state, name, now, self.options)):
                    targets.append(other)
        return targets


def scale_up_1_3(
    p: Progress,
    snapshot: Snapshot,
    pods: Sequence[PodRecord],
    groups: Groups,
    *,
    candidates: Sequence[NodeGroup] = (),
    nodes: Sequence[Node],
    templates: Mapping[str, NodeTemplate],
    state: ClusterStateRegistry,
    now: Moment,
    options: AutoscalingOptions,
    expander_input: ExpanderInput,
    rng: Rng | None = None,
    profile: SchedulerProfile | None = None,
) -> StepsOf[ScalingUp1_3, LegacyScaleUp]:
    """ScaleUp of release 1.3; ``nodes`` are the *ready* ones, ``candidates`` groups that may be made."""
    found = LegacyScaleUp(state=state, groups=groups, remaining=list(range(len(pods))))
    if not pods:
        return found
    run = _Run(p, snapshot, pods, groups, templates, options, expander_input, profile, found)
    try:
        yield from _scale_up(run, candidates, nodes, now, rng)
    except AutoscalerError as error:
        found.error = error
    return found


def _scale_up(
    run: _Run, candidates: Sequence[NodeGroup], nodes: Sequence[Node], now: Moment, rng: Rng | None
) -> StepsOf[ScalingUp1_3, None]:
    found, options, gpu_label = run.found, run.options, run.given.gpu_label
    left = run.left(nodes)
    coming = run.coming()
    every = [*run.groups, *candidates]
    for group in every:
        why = _why_not(group, run.templates, found.state, now, options, left, gpu_label)
        if why is not None:
            found.left_out[group.id] = why
        else:
            run.ask(group, coming)
    best = run.expand(rng)
    if best is None or best.node_count <= 0:
        return
    found.best = best
    new_nodes = best.node_count
    if 0 < options.max_nodes_total < len(nodes) + new_nodes:
        new_nodes = options.max_nodes_total - len(nodes)
        if new_nodes < 1:
            raise AutoscalerError(TRANSIENT_ERROR, "max node total count already reached")
    chosen = next(group for group in every if group.id == best.group)
    if not chosen.exists:
        chosen = yield from run.create(chosen)
    delta = resources_delta(options.resource_limiter, chosen, run.templates[chosen.id].node, gpu_label)
    new_nodes = apply_limits(new_nodes, left, delta)
    targets = run.similar_to(chosen, best, now)
    found.sharing = [group.id for group in targets]
    found.plan = _balance(targets, new_nodes)
    done = yield from execute_steps(run.p, found.plan, run.groups, found.state, options=options, release_1_3=True)
    found.state = done.state
    found.resized = done.resized
    if done.error is not None:
        raise done.error
    found.groups = run.groups.with_targets({info.group: info.new for info in found.plan})
    found.scaled_up = True
    found.awaiting = sorted(set(range(len(run.pods))) - set(found.remaining) - set(best.pods))


def _why_not(
    group: NodeGroup,
    templates: Mapping[str, NodeTemplate],
    state: ClusterStateRegistry,
    now: Moment,
    options: AutoscalingOptions,
    left: Mapping[str, int],
    gpu_label: str,
) -> str | None:
    """Why a group is not asked, in the words of its log; None if it is."""
    if group.exists and not is_safe_to_scale_up(state, group.id, now, options):
        return f"Node group {group.id} is not ready for scaleup"
    if group.target_size_error is not None:
        return f"Failed to get node group size: {group.target_size_error}"
    if group.size >= group.max_size:
        return f"Skipping node group {group.id} - max size reached"
    template = templates.get(group.id)
    if template is None:
        return f"No node info for: {group.id}"
    try:
        delta = resources_delta(options.resource_limiter, group, template.node, gpu_label)
    except AutoscalerError as error:
        return f"Skipping node group {group.id}; error getting node group resources: {error.message}"
    over = exceeded(left, delta)
    if over:
        return f"Skipping node group {group.id}; maximal limit exceeded for [{' '.join(over)}]"
    return None


def _balance(groups: Sequence[NodeGroup], new_nodes: int) -> list[ScaleUpInfo]:
    """As today, but a group above its maximum takes room away from the others."""
    room = sum(group.max_size - group.size for group in groups)
    sizes = [GroupSize(id=group.id, target=group.size, max=group.max_size) for group in groups]
    return balance(sizes, min(new_nodes, room)) if room > 0 else []
