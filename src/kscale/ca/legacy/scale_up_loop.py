"""The scale-up half of a loop of release 1.3 (upstream: ``core/static_autoscaler.go``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace as replace_input
from typing import Any

import numpy as np
from msgspec.structs import replace

from kscale.ca.cluster_state import update_nodes_steps
from kscale.ca.events import PodUidLookup, build_pod_events
from kscale.ca.expander.price import build_group_prices
from kscale.ca.legacy.scale_up import (
    LegacyOrchestratorAction,
    LegacyScaleUpResult,
    build_legacy_candidates,
    build_legacy_templates,
    count_legacy_upcoming_nodes,
    legacy_scale_up_steps,
)
from kscale.ca.loop_context import LoopContext
from kscale.ca.loop_state import LoopState
from kscale.ca.node_group_set import ScaleUpInfo
from kscale.ca.node_infos import CachedTemplate, decode_cached_template, encode_cached_template
from kscale.ca.pod_lists import (
    clear_tpu_requests,
    drop_uncounted_pods,
    filter_out_expendable_pods,
    should_scale_up,
    split_pods,
)
from kscale.ca.scale_up.plan import PodFilterResult, ScaleUpPlan, build_expander_score
from kscale.ca.scale_up_status import (
    SCALE_UP_ERROR,
    SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL,
    SCALE_UP_NO_OPTIONS_AVAILABLE,
    SCALE_UP_NOT_TRIED,
    SCALE_UP_SUCCESSFUL,
    CreatedGroupIds,
    GroupRejection,
    PodCounts,
    ScaleUpChoice,
    UnschedulablePods,
)
from kscale.effects import DecreaseTargetSize, Deferred, Emit, Event, StepsOf
from kscale.objects.nodegroup import Groups, NodeTemplate
from kscale.scheduling.fit import fit
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "LegacyScaleUpAction",
    "LegacyScaleUpLoop",
    "LegacyScaleUpPlan",
    "find_schedulable_pods",
    "legacy_scale_up_loop_steps",
]

_WOULD_NOT_FIT_TEXT = "pod didn't trigger scale-up (it wouldn't fit if a new node is added)"


def find_schedulable_pods(
    snapshot: Snapshot, pods: Sequence[PodRecord], ready: Collection[str], profile: SchedulerProfile | None = None
) -> dict[int, str]:
    """Return each pod (by position) that fits a ready node *alone*, with the first such node.

    This is FilterOutSchedulable of 1.3: pods do not take room from each other.
    """
    if not pods or not ready:
        return {}
    names = [name for name in snapshot.nodes if name in ready]
    ok = fit(snapshot, list(pods), names, profile=profile).ok
    return {int(i): names[int(ok[i].argmax())] for i in np.flatnonzero(ok.any(axis=1))}


class LegacyScaleUpPlan(ScaleUpPlan):
    """The plan of a loop of 1.3; ``done`` is what the scale-up of that release found out."""

    def __init__(
        self,
        *,
        result: str,
        before: PodFilterResult,
        state: LoopState,
        groups: Groups,
        asked: Sequence[PodRecord] = (),
        placed: Mapping[str, str] | None = None,
        done: LegacyScaleUpResult | None = None,
    ) -> None:
        super().__init__(result=result, before=before, state=state, groups=groups)
        self.done = done
        keys = [record.key for record in asked]
        plan: list[ScaleUpInfo] = done.plan if done is not None and done.scaled_up else []
        self.scale_ups = plan
        if done is not None and done.error is not None:
            self.error = done.error.record
        best = done.best if done is not None and done.scaled_up else None
        helped = list(best.pods) if best is not None else []
        # Set the base class's lazy attributes at once, as they are small here.
        attributes = self.__dict__
        attributes["placed"] = dict(placed or {})
        attributes["triggered"] = [keys[i] for i in helped]
        attributes["options"] = _build_choices(done, best.group if best is not None else None)
        attributes["remain_unschedulable"] = _build_unschedulable_pods(done, keys, set(helped), result)
        attributes["unmodelled"] = list(done.unmodelled) if done is not None else []

    @property
    def triggered_count(self) -> int:
        """Count the pods that triggered the scale-up."""
        return len(self.triggered)

    @property
    def chosen(self) -> str | None:
        """Return the id of the chosen group; None if no group was chosen."""
        return next((choice.group for choice in self.options if choice.chosen), None)

    @property
    def created_groups(self) -> list[CreatedGroupIds]:
        """List the groups that the scale-up created."""
        return [CreatedGroupIds(main=name) for name in self.done.created] if self.done is not None else []


def _build_choices(done: LegacyScaleUpResult | None, chosen: str | None) -> list[ScaleUpChoice]:
    """Build a record for each group as a way to scale up; none if no scale-up was run.

    ``done``: result of the scale-up; ``chosen``: id of the chosen group.
    """
    if done is None:
        return []
    options = {option.group: option for option in done.options}
    names = dict.fromkeys([*(group.id for group in done.groups), *done.left_out, *options])
    choices = []
    for name in names:
        option = options.get(name)
        if option is None:
            reason = done.left_out.get(name)
            choices.append(ScaleUpChoice(group=name, skipped=[reason] if reason is not None else []))
            continue
        scores = [
            build_expander_score(step, name, survived=any(left.group == name for left in step.filtered.survivors))
            for step in done.steps
        ]
        choices.append(
            ScaleUpChoice(
                group=name, nodes=option.node_count, pods=len(option.pods), chosen=name == chosen, scores=scores
            )
        )
    return choices


def _build_unschedulable_pods(
    done: LegacyScaleUpResult | None, keys: Sequence[str], helped: set[int], result: str
) -> list[UnschedulablePods]:
    """Build a record for each pod that stays pending, with the reason.

    ``keys``: the pods that needed nodes; ``helped``: positions in ``keys`` of the pods that get new nodes; ``result``:
    the reason of pods for which there is no other.
    """
    pending = []
    for i, key in enumerate(keys):
        if i in helped:
            continue
        verdicts = (
            {name: pod_verdicts[i] for name, pod_verdicts in done.verdicts.items() if i in pod_verdicts}
            if done is not None
            else {}
        )
        taken_by = (
            [name for name, pod_verdicts in done.verdicts.items() if i not in pod_verdicts] if done is not None else []
        )
        reason = result
        if done is not None and i in done.remaining:
            reason = "it wouldn't fit if a new node is added"
        elif done is not None and done.best is not None and i in done.awaiting:
            reason = f"{done.best.group} was chosen, which does not take it"
        elif done is not None and done.best is None and taken_by:
            reason = "the nodes that are coming are enough, or no group may grow"
        pending.append(
            UnschedulablePods(
                pods=[key],
                why=reason,
                rejected={
                    name: GroupRejection(plugin=no.plugin, reasons=list(no.why), numbers=list(no.numbers))
                    for name, no in verdicts.items()
                },
                taken_by=taken_by,
            )
        )
    return pending


def _build_events(done: LegacyScaleUpResult, keys: Sequence[str], uid_of: PodUidLookup) -> list[Event]:
    """Build the events about pods that no group fits and, after a success, about the pods that triggered the scale-up.

    ``keys``: the pods of the scale-up (``namespace/name``); ``uid_of`` returns a pod's UID.
    """
    left = [keys[i] for i in done.remaining]
    events = build_pod_events(left, "Normal", "NotTriggerScaleUp", _WOULD_NOT_FIT_TEXT, uid_of=uid_of)
    if done.scaled_up and done.plan and done.best is not None:
        text = f"pod triggered scale-up: [{' '.join(map(str, done.plan))}]"
        chosen = [keys[i] for i in done.best.pods]
        events += build_pod_events(chosen, "Normal", "TriggeredScaleUp", text, uid_of=uid_of)
    return events


LegacyScaleUpAction = LegacyOrchestratorAction | DecreaseTargetSize
"""Actions of a scale-up loop of release 1.3, which lowers no target. The update of the state is today's."""


def legacy_scale_up_loop_steps(context: LoopContext) -> StepsOf[LegacyScaleUpAction, ScaleUpPlan]:
    """Run the scale-up of a loop in the order of 1.3, and return its plan.

    The order is: templates, cluster state, pods that fit somewhere alone, the check whether to scale up, ScaleUp.
    """
    loop = LegacyScaleUpLoop(context)
    loop.build_templates()
    yield from loop.update()
    if (yield from context.is_cluster_healthy()) and loop.filter_pods():
        yield from loop.scale_up()
    return loop.plan


class LegacyScaleUpLoop:
    """Scale-up of one loop of 1.3 in progress. Call its methods in the order of their definition."""

    def __init__(self, context: LoopContext) -> None:
        self.context = context
        self.before = PodFilterResult(context.snapshot, warnings=context.warnings)
        self.templates: dict[str, NodeTemplate] = {}
        self._ended: dict[str, Any] = {"result": SCALE_UP_NOT_TRIED}

    @property
    def plan(self) -> LegacyScaleUpPlan:
        """Return the plan of the loop."""
        context = self.context
        return LegacyScaleUpPlan(before=self.before, state=context.state, groups=context.all_groups, **self._ended)

    def build_templates(self) -> None:
        """Set ``templates``, the templates of the groups by id, and store the examples in the state.

        Release 1.3 builds them before it refreshes the cloud provider's data. Raises InputError if an example in the
        state is unreadable.
        """
        context, state = self.context, self.context.state

        def example(node: Any) -> NodeTemplate:
            records = context.records_by_node([node.name])[node.name]
            return NodeTemplate(node=node, pods=[record.pod for record in records])

        cached = {
            name: decode_cached_template(item, name).template
            for name, item in state.templates.items()
            if name in context.groups
        }
        self.templates, examples = build_legacy_templates(
            context.lists.all, example, context.daemonsets, context.groups, cached
        )
        cache = {
            name: state.templates[name]
            if item is cached.get(name)
            else encode_cached_template(CachedTemplate(template=item, added=context.now))
            for name, item in examples.items()
        }
        context.update_state(templates=cache)

    def update(self) -> StepsOf[LegacyScaleUpAction, None]:
        """Update the cluster state in the context by the nodes.

        Templates of the inputs replace those that :meth:`build_templates` made. Raises
        :class:`kscale.ca.AutoscalerError` for a group whose size cannot be read.
        """
        context = self.context
        machine_types = {group.id: group.template for group in context.candidates if group.template is not None}
        self.templates |= machine_types | dict(context.inputs.templates)
        update = yield from update_nodes_steps(
            context.state.cluster, context.lists.registered, context.groups, now=context.now, options=context.options
        )  # without ``templates``: groups without template enter back-off, too
        context.update_state(cluster=update.state)

    def filter_pods(self) -> bool:
        """Find the pods that need new nodes, and return whether a scale-up is tried for them.

        Stores the counts, the warnings and whether scale-down is disabled in ``before``. Pods that do not count are
        removed from the context's snapshot.
        """
        context, options, now, before = self.context, self.context.options, self.context.now, self.before
        before.upcoming = count_legacy_upcoming_nodes(context.state.cluster, context.groups)
        snapshot = before.snapshot_after = context.snapshot = drop_uncounted_pods(context.snapshot, options)
        pods = context.inputs.pods
        records = {record.key: record for record in snapshot.pending_records if pods is None or record.key in pods}
        lists = split_pods([record.pod for record in records.values()])
        before.unschedulable = len(lists.unschedulable)
        cleared = clear_tpu_requests(lists.unschedulable)
        retained = filter_out_expendable_pods(cleared, options.expendable_pods_priority_cutoff)
        waiting = [records[pod.key].with_pod(pod) for pod in retained]
        existing = find_schedulable_pods(
            snapshot, waiting, {node.name for node in context.lists.ready}, context.profile
        )
        asked = [record for i, record in enumerate(waiting) if i not in existing]
        before.lists = PodCounts(
            waiting=len(lists.unschedulable),
            ignored=len(records) - len(lists.unschedulable) + snapshot.counts["gated"],
            expendable=len(lists.unschedulable) - len(retained),
            on_existing=len(existing),
            asked=len(asked),
        )
        before.scale_down_disabled = bool(existing)
        self._ended = {
            "result": SCALE_UP_NOT_TRIED,
            "asked": asked,
            "placed": {waiting[i].key: node for i, node in existing.items()},
        }
        gate = should_scale_up([r.pod for r in asked], ready_nodes=len(context.lists.ready), now=now, options=options)
        before.scale_down_disabled |= gate.scale_down_disabled
        if gate.result == SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL:  # release 1.3 has no such result and only logs it
            before.warnings.append("Max total nodes in cluster reached")
            self._ended["result"] = SCALE_UP_NO_OPTIONS_AVAILABLE
        elif gate.result:
            self._ended["result"] = gate.result
        return not gate.result

    def scale_up(self) -> StepsOf[LegacyScaleUpAction, None]:
        """Scale up for the pods that :meth:`filter_pods` found.

        Emits events unless it fails. Stores the result for ``plan``, and the new state and groups in the context.
        Raises InputError for missing prices and as :func:`legacy_scale_up_steps` does.
        """
        context, options = self.context, self.context.options
        asked: list[PodRecord] = self._ended["asked"]
        expander_input, templates = context.expander_input, self.templates
        candidates = build_legacy_candidates(
            context.candidates,
            templates,
            context.groups,
            [record.pod for record in asked],
            options,
            expander_input.gpu_label,
        )
        self.before.warnings += candidates.warnings
        templates = {name: item for name, item in templates.items() if name in context.groups} | candidates.templates
        if "price" in options.expander_names and expander_input.prices is None:
            every_group = [*context.groups, *candidates.groups]
            expander_input = replace_input(
                expander_input, prices=build_group_prices(every_group, templates, expander_input)
            )
        done = yield from legacy_scale_up_steps(
            context.p,
            self.before.snapshot_after,
            asked,
            context.groups,
            candidates=candidates.groups,
            nodes=context.lists.ready,
            templates=templates,
            state=context.state.cluster,
            now=context.now,
            options=options,
            expander_input=expander_input,
            rng=context.inputs.rng,
            profile=context.profile,
        )
        result = SCALE_UP_ERROR
        if done.error is None:
            result = SCALE_UP_SUCCESSFUL if done.scaled_up else SCALE_UP_NO_OPTIONS_AVAILABLE
            keys, uid_of = [record.key for record in asked], self.before.snapshot_after.pod_uid
            yield from context.p.act(Emit(Deferred(lambda: _build_events(done, keys, uid_of))))
        self._ended |= {"result": result, "done": done}
        context.update_state(cluster=done.state)
        context.groups = done.groups
        if result == SCALE_UP_SUCCESSFUL:
            context.update_state(scale_down=replace(context.state.scale_down, last_scale_up=context.now))
