"""The scale-up half of a loop of release 1.3 (upstream: ``core/static_autoscaler.go``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace as replace_input
from typing import Any

import numpy as np
from msgspec.structs import replace

from kscale.ca.cluster_state import is_cluster_healthy, update_nodes_steps
from kscale.ca.events import PodUidLookup, build_pod_events, build_status_events
from kscale.ca.expander.price import build_group_prices
from kscale.ca.expander.types import ExpanderInput, Rng
from kscale.ca.legacy.scale_up import (
    LegacyOrchestratorAction,
    LegacyScaleUpResult,
    build_legacy_candidates,
    build_legacy_templates,
    count_legacy_upcoming_nodes,
    legacy_scale_up_steps,
)
from kscale.ca.loop_context import LoopContext
from kscale.ca.node_group_set import ScaleUpInfo
from kscale.ca.node_infos import CachedTemplate, decode_cached_template, encode_cached_template
from kscale.ca.pod_lists.lists import clear_tpu_requests, filter_out_expendable_pods, split_pods
from kscale.ca.pod_lists.should_scale_up import should_scale_up
from kscale.ca.scale_up.plan import PodFilterResult, ScaleUpPlan, build_expander_score
from kscale.ca.scale_up.records import GroupRejection, PendingPods, PodCounts, ScaleUpChoice
from kscale.ca.scale_up_status import (
    SCALE_UP_ERROR,
    SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL,
    SCALE_UP_NO_OPTIONS_AVAILABLE,
    SCALE_UP_NOT_TRIED,
    SCALE_UP_SUCCESSFUL,
    MadeGroups,
)
from kscale.ca.state.loop_state import LoopState
from kscale.effects import DecreaseTargetSize, Deferred, Emit, Event, Progress, StepsOf
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.nodegroups import Groups
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
        existing: Mapping[str, str] | None = None,
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
        attributes["existing"] = dict(existing or {})
        attributes["triggered"] = [keys[i] for i in helped]
        attributes["options"] = _build_choices(done, best.group if best is not None else None)
        attributes["pending"] = _build_pending_pods(done, keys, set(helped), result)
        attributes["unmodelled"] = list(done.unmodelled) if done is not None else []

    @property
    def triggered_count(self) -> int:
        return len(self.triggered)

    @property
    def chosen(self) -> str | None:
        return next((choice.group for choice in self.options if choice.chosen), None)

    @property
    def created_groups(self) -> list[MadeGroups]:
        return [MadeGroups(main=name) for name in self.done.created] if self.done is not None else []


def _build_choices(done: LegacyScaleUpResult | None, chosen: str | None) -> list[ScaleUpChoice]:
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


def _build_pending_pods(
    done: LegacyScaleUpResult | None, keys: Sequence[str], helped: set[int], result: str
) -> list[PendingPods]:
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
            PendingPods(
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
    left = [keys[i] for i in done.remaining]
    events = build_pod_events(left, "Normal", "NotTriggerScaleUp", _WOULD_NOT_FIT_TEXT, uid_of=uid_of)
    if done.scaled_up and done.plan and done.best is not None:
        text = f"pod triggered scale-up: [{' '.join(map(str, done.plan))}]"
        chosen = [keys[i] for i in done.best.pods]
        events += build_pod_events(chosen, "Normal", "TriggeredScaleUp", text, uid_of=uid_of)
    return events


LegacyScaleUpAction = LegacyOrchestratorAction | DecreaseTargetSize
"""Actions of a scale-up loop of release 1.3, which lowers no target. The update of the state is today's."""


def legacy_scale_up_loop_steps(
    p: Progress,
    scene: LoopContext,
    state: LoopState,
    *,
    templates: Mapping[str, NodeTemplate],
    expander_input: ExpanderInput,
    pods: Collection[str] | None = None,
    rng: Rng | None = None,
) -> StepsOf[LegacyScaleUpAction, ScaleUpPlan]:
    """Run the loop in the order of 1.3.

    The order is: templates, cluster state, pods that fit somewhere alone, the check whether to scale up, ScaleUp.
    """
    loop = LegacyScaleUpLoop(p, scene, state, expander_input, rng)
    loop.find_templates()
    yield from loop.update(templates)
    if not (yield from loop.is_healthy()):
        return loop.plan
    yield from loop.scale(pods)
    return loop.plan


class LegacyScaleUpLoop:
    """Scale-up of one loop of 1.3 in progress. Call its methods in the order of their definition.

    ``state`` is the current state for the next loop.
    """

    def __init__(
        self, p: Progress, scene: LoopContext, state: LoopState, expander_input: ExpanderInput, rng: Rng | None
    ) -> None:
        self.p, self.scene, self.state, self.rng = p, scene, state, rng
        self.expander_input = expander_input
        self.before = PodFilterResult(scene.snapshot, warnings=scene.warnings)
        self.made: dict[str, NodeTemplate] = {}
        self._ended: dict[str, Any] = {"result": SCALE_UP_NOT_TRIED}

    @property
    def plan(self) -> LegacyScaleUpPlan:
        """Return the plan of the loop."""
        return LegacyScaleUpPlan(before=self.before, state=self.state, groups=self.scene.all_groups, **self._ended)

    def find_templates(self) -> None:
        """Build the templates of the groups.

        Release 1.3 builds them before it refreshes the cloud provider's data.
        """
        scene, now, state = self.scene, self.scene.now, self.state
        nodes = scene.lists.all

        def example(node: Any) -> NodeTemplate:
            records = scene.records_by_node([node.name])[node.name]
            return NodeTemplate(node=node, pods=[record.pod for record in records])

        cached = {
            name: decode_cached_template(item, name).template
            for name, item in state.templates.items()
            if name in scene.groups
        }
        templates, examples = build_legacy_templates(nodes, example, scene.daemonsets, scene.groups, cached)
        self.made = templates
        cache = {
            name: state.templates[name]
            if item is cached.get(name)
            else encode_cached_template(CachedTemplate(template=item, added=now))
            for name, item in examples.items()
        }
        self.state = replace(state, templates=cache)

    def update(self, templates: Mapping[str, NodeTemplate]) -> StepsOf[LegacyScaleUpAction, None]:
        """Update the cluster state by the nodes. Raises :class:`kscale.ca.AutoscalerError` as today's update does.

        ``templates`` replace those that :meth:`find_templates` made.
        """
        scene, state = self.scene, self.state
        machine_types = {group.id: group.template for group in scene.candidates if group.template is not None}
        self.made |= machine_types | dict(templates)
        update = yield from update_nodes_steps(
            state.cluster, scene.lists.registered, scene.groups, now=scene.now, options=scene.options
        )  # without ``templates``: groups without template enter back-off, too
        self.state = replace(state, cluster=update.state)

    def forget_unneeded(self) -> None:
        """Clear the unneeded nodes."""
        memory = replace(self.state.scale_down, unneeded_since={})
        self.state = replace(self.state, scale_down=memory)

    def is_healthy(self) -> StepsOf[Emit, bool]:
        """Check whether the loop continues. In an unhealthy cluster no node is unneeded."""
        if is_cluster_healthy(self.state.cluster, self.scene.options):
            return True
        self.forget_unneeded()
        yield from self.p.emit(
            *build_status_events(self.scene.options, "Warning", "ClusterUnhealthy", "Cluster is unhealthy")
        )
        return False

    def scale(self, pods: Collection[str] | None = None) -> StepsOf[LegacyScaleUpAction, None]:
        """Filter the pods, and scale up for those that remain."""
        if self.filter_pods(pods):
            yield from self.scale_up()

    def filter_pods(self, pods: Collection[str] | None = None) -> bool:
        """Find the pods that need new nodes, and return whether a scale-up is tried for them.

        ``pods`` restricts the search to these pods (None: all pending pods).
        """
        scene, options, now, before = self.scene, self.scene.options, self.scene.now, self.before
        before.upcoming = count_legacy_upcoming_nodes(self.state.cluster, scene.groups)
        scene.drop_uncounted_pods()
        snapshot = before.snapshot_after = scene.snapshot
        records = {record.key: record for record in snapshot.pending_records if pods is None or record.key in pods}
        lists = split_pods([record.pod for record in records.values()])
        before.unschedulable = len(lists.unschedulable)
        cleared = clear_tpu_requests(lists.unschedulable)
        retained = filter_out_expendable_pods(cleared, options.expendable_pods_priority_cutoff)
        waiting = [records[pod.key].with_pod(pod) for pod in retained]
        existing = find_schedulable_pods(snapshot, waiting, {node.name for node in scene.lists.ready}, scene.profile)
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
            "existing": {waiting[i].key: node for i, node in existing.items()},
        }
        gate = should_scale_up([r.pod for r in asked], ready_nodes=len(scene.lists.ready), now=now, options=options)
        before.scale_down_disabled |= gate.scale_down_disabled
        if gate.result == SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL:  # release 1.3 has no such result and only logs it
            before.warnings.append("Max total nodes in cluster reached")
            self._ended["result"] = SCALE_UP_NO_OPTIONS_AVAILABLE
            return False
        if gate.result:
            self._ended["result"] = gate.result
            return False
        return True

    def scale_up(self) -> StepsOf[LegacyScaleUpAction, None]:
        """Scale up for the pods that :meth:`filter_pods` found."""
        p, scene, options, now, before = self.p, self.scene, self.scene.options, self.scene.now, self.before
        snapshot, cluster = before.snapshot_after, self.state.cluster
        asked: list[PodRecord] = self._ended["asked"]
        expander_input = self.expander_input
        candidates = build_legacy_candidates(
            scene.candidates,
            self.made,
            scene.groups,
            [record.pod for record in asked],
            options,
            expander_input.gpu_label,
        )
        before.warnings += candidates.warnings
        templates = {name: item for name, item in self.made.items() if name in scene.groups} | candidates.templates
        if "price" in options.expander_names and expander_input.prices is None:
            expander_input = replace_input(
                expander_input,
                prices=build_group_prices([*scene.groups, *candidates.groups], templates, expander_input),
            )
        done = yield from legacy_scale_up_steps(
            p,
            snapshot,
            asked,
            scene.groups,
            candidates=candidates.groups,
            nodes=scene.lists.ready,
            templates=templates,
            state=cluster,
            now=now,
            options=options,
            expander_input=expander_input,
            rng=self.rng,
            profile=scene.profile,
        )
        keys = [record.key for record in asked]
        if done.error is None:
            yield from p.act(Emit(Deferred(lambda: _build_events(done, keys, snapshot.pod_uid))))
        result = (
            SCALE_UP_ERROR
            if done.error is not None
            else SCALE_UP_SUCCESSFUL
            if done.scaled_up
            else SCALE_UP_NO_OPTIONS_AVAILABLE
        )
        self._ended |= {"result": result, "done": done}
        self.state = replace(self.state, cluster=done.state)
        scene.groups = done.groups
        if result == SCALE_UP_SUCCESSFUL:
            memory = replace(self.state.scale_down, last_scale_up=now)
            self.state = replace(self.state, scale_down=memory)
