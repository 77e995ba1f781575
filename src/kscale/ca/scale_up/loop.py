"""One loop of scale-up, from pending pods to a plan: the pod lists, then the orchestrator, as if all succeeds."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from msgspec.structs import replace

from kscale.ca.cluster_state import is_cluster_healthy, upcoming_nodes, update_nodes
from kscale.ca.errors import AutoscalerError
from kscale.ca.events import Event
from kscale.ca.expander.registry import build_chain
from kscale.ca.expander.types import ExpanderInput, Rng
from kscale.ca.groups import Groups, groups_of
from kscale.ca.node_infos import mixed_templates
from kscale.ca.node_lists import node_lists
from kscale.ca.options import AutoscalingOptions
from kscale.ca.orchestrator import Orchestration, orchestrate_steps
from kscale.ca.pod_lists.daemonsets import without_daemonset_pods
from kscale.ca.pod_lists.drained import with_drained_pods
from kscale.ca.pod_lists.expendable import is_expendable, without_expendable
from kscale.ca.pod_lists.gate import should_scale_up
from kscale.ca.pod_lists.schedulable import without_schedulable
from kscale.ca.pod_lists.split import split
from kscale.ca.pod_lists.tpu import clear_tpu_requests
from kscale.ca.pod_lists.young import without_young
from kscale.ca.quota import Quota
from kscale.ca.scale_down.atomic import UPCOMING_NODE_ANNOTATION
from kscale.ca.scale_up.report import PodCounts, ScaleUpPlan
from kscale.ca.scale_up.reporting import choices, pending_pods
from kscale.ca.scale_up.status import LIMITED_BY_MAX_NODES_TOTAL, NOT_TRIED, RemainingPod, ScaleUpStatus, status_events
from kscale.ca.similarity import Comparator
from kscale.ca.state import LoopState, ScaleUpState
from kscale.ca.templates import TaintConfig, fresh_copy
from kscale.errors import InputError, Problem
from kscale.objects.core import Node, Pod
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.scheduling.place import PlaceState
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["scale_up"]


def scale_up(
    cluster: Cluster | Snapshot,
    groups: Groups | Iterable[NodeGroup],
    *,
    now: datetime,
    options: AutoscalingOptions | None = None,
    state: LoopState | None = None,
    rng: Rng | None = None,
    templates: Mapping[str, NodeTemplate] | None = None,
    expander_input: ExpanderInput | None = None,
    quotas: Sequence[Quota] | AutoscalerError | None = None,
    comparator: Comparator | None = None,
    draining: Sequence[str] = (),
    pods: Collection[str] | None = None,
    profile: SchedulerProfile | None = None,
) -> ScaleUpPlan:
    """Decide one loop of scale-up. Nothing is changed: the plan says what would be asked of the cloud.

    ``cluster`` may be a snapshot where nothing has to be put into it or taken out (coming nodes, expendable pods): else
    InputError. ``templates`` replace what would be found out for a group; the others are modelled on real nodes, then
    on the group's own description. ``draining``: nodes whose pods are being moved. ``pods``: names; no
    other pending pod is looked at. The other arguments are those of
    :func:`kscale.ca.orchestrate_steps`; ties go to ``rng``, without one to the first option.

    Raises InputError for options that upstream refuses at start-up, and :class:`kscale.ca.AutoscalerError` for a chain
    of expanders that cannot be built or a group whose size cannot be read.
    """
    options = options or AutoscalingOptions()
    _check(options)
    return _Loop(cluster, groups, now, options, state or LoopState(), profile).run(
        rng, templates, expander_input, quotas, comparator, draining, pods
    )


def _check(options: AutoscalingOptions) -> None:
    problems = options.problems()
    if options.estimator != "binpacking":
        problems.append(Problem(f"Unknown estimator: {options.estimator}", field="estimator"))
    if options.legacy:
        problems.append(Problem("the legacy profile does not decide scale-up yet", field="profile"))
    if options.salvo_scale_up:
        problems.append(Problem("a salvo has several plans: ca.salvo_steps decides it", field="salvo_scale_up"))
    if problems:
        raise InputError(problems)
    build_chain(options.expander_names)


class _Loop:
    """One loop under way."""

    def __init__(
        self,
        given: Cluster | Snapshot,
        groups: Groups | Iterable[NodeGroup],
        now: datetime,
        options: AutoscalingOptions,
        before: LoopState,
        profile: SchedulerProfile | None,
    ) -> None:
        self.cluster = given if isinstance(given, Cluster) else None
        self.snapshot = given.snapshot() if isinstance(given, Cluster) else given
        self.now, self.options, self.before, self.profile = now, options, before, profile
        nodes: list[Node] = self.snapshot.columns.objects
        self.lists = node_lists(nodes, taints=TaintConfig.from_options(options))
        self.groups = groups if isinstance(groups, Groups) else groups_of(groups, nodes, options.node_group_defaults)
        self.daemonsets = list(self.cluster.all("DaemonSet")) if self.cluster is not None else []
        self.events: list[Event] = []
        self.warnings: list[str] = []

    def run(
        self,
        rng: Rng | None,
        templates: Mapping[str, NodeTemplate] | None,
        expander_input: ExpanderInput | None,
        quotas: Sequence[Quota] | AutoscalerError | None,
        comparator: Comparator | None,
        draining: Sequence[str],
        asked: Collection[str] | None,
    ) -> ScaleUpPlan:
        options, now = self.options, self.now
        made = self.templates(templates or {})
        update = update_nodes(
            self.before.cluster, self.lists.all, self.groups, now=now, options=options, templates=set(made)
        )
        self.events += update.events
        state = replace(self.before, cluster=update.state)
        if not is_cluster_healthy(update.state, options):
            self.say("ClusterUnhealthy", "Cluster is unhealthy")
            return ScaleUpPlan(result=NOT_TRIED, events=self.events, warnings=self.warnings, state=state)
        pods_on = self.pods_by_node(draining)
        waiting, counts = self.waiting(asked)
        upcoming = self.prepare(made, state)
        drained = with_drained_pods(clear_tpu_requests(waiting), draining, pods_on.get)
        self.warnings += drained.warnings
        memory = state.scale_up
        unplaced = without_schedulable(
            self.snapshot,
            drained.pods,
            state=PlaceState(cursor=state.cursor, hints=memory.hints, old_hints=memory.old_hints),
            profile=self.profile,
        )
        placed = unplaced.placed
        state = replace(
            state,
            cursor=placed.state.cursor,
            scale_up=ScaleUpState(hints=placed.state.hints, old_hints=placed.state.old_hints),
        )
        wanted = without_daemonset_pods(unplaced.pods)
        aged = without_young(wanted, now, options.new_pod_scale_up_delay)
        self.warnings += aged.warnings
        plan = ScaleUpPlan(
            result="",
            existing=placed.placement,
            young=[pod.key for pod in aged.young],
            lists=replace(
                counts,
                drained=len(drained.pods) - len(waiting),
                on_existing=len(placed.placement),
                daemon_set=len(unplaced.pods) - len(wanted),
                young=len(aged.young),
                asked=len(aged.pods),
            ),
            upcoming=upcoming,
            events=self.events,
            warnings=self.warnings,
            unmodelled=list(placed.unmodelled),
            state=state,
        )
        gate = should_scale_up(aged.pods, ready_nodes=len(self.lists.ready), now=now, options=options)
        if gate.result:
            left = [RemainingPod(pod=pod.key) for pod in aged.pods]
            status = ScaleUpStatus(result=gate.result)
            if gate.result == LIMITED_BY_MAX_NODES_TOTAL:
                status.pods_remain_unschedulable = left
            return replace(
                plan,
                result=gate.result,
                pending=pending_pods([], left, gate.result, None),
                events=[*self.events, *gate.events, *status_events(status)],
            )
        given = expander_input or ExpanderInput()
        if not given.cluster_node_count:
            given = ExpanderInput(
                priorities=given.priorities,
                prices=given.prices,
                cluster_node_count=len(self.lists.all),
                gpu_label=given.gpu_label,
                namespace=given.namespace,
                now=given.now or now,
            )
        done = _as_if_all_succeeds(
            orchestrate_steps(
                placed.snapshot_after,
                aged.pods,
                self.groups,
                nodes=self.snapshot.columns.objects,
                templates=made,
                state=update.state,
                now=now,
                options=options,
                expander_input=given,
                quotas=quotas,
                comparator=comparator or Comparator.from_options(options),
                profile=self.profile,
                daemonsets=self.daemonsets,
                cursor=state.cursor,
                rng=rng,
            )
        )
        return self.planned(plan, done, [pod.key for pod in aged.pods])

    def planned(self, plan: ScaleUpPlan, done: Orchestration, asked: list[str]) -> ScaleUpPlan:
        """The plan with what the orchestrator decided."""
        status = done.status
        chosen = done.expansion.best.group if done.expansion is not None and done.expansion.best is not None else None
        helped = set(status.pods_triggered) if status.scale_ups else set()
        left = {item.pod: item for item in status.pods_remain_unschedulable}
        rest = [left.get(name, RemainingPod(pod=name)) for name in asked if name not in helped]
        best = next((option for option in done.options if option.group == chosen), None)
        return replace(
            plan,
            result=status.result,
            error=status.error,
            chosen=chosen if status.scale_ups else None,
            scale_ups=status.scale_ups,
            options=choices(self.groups, done, chosen if status.scale_ups else None),
            triggered=status.pods_triggered if status.scale_ups else [],
            pending=pending_pods(done.pod_groups, rest, status.result, best),
            events=[*self.events, *done.events, *status_events(status)],
            unmodelled=list(
                dict.fromkeys([*plan.unmodelled, *(name for item in done.options for name in item.estimate.unmodelled)])
            ),
            state=replace(plan.state, cluster=done.state, cursor=done.cursor),
        )

    def say(self, reason: str, message: str) -> None:
        where = f"ConfigMap/{self.options.namespace}/{self.options.status_config_map_name}"
        self.events.append(Event(object=where, type="Warning", reason=reason, message=message))

    # -- what is there -----------------------------------------------------------------------------------------

    def pods_by_node(self, names: Iterable[str]) -> dict[str, list[Pod]]:
        """The pods of the nodes, as far as the nodes exist."""
        index = self.snapshot.columns.index
        return {
            name: [
                self.snapshot.pod(self.snapshot.pods[row])
                for row in np.flatnonzero(self.snapshot.placed_node == index[name]).tolist()
            ]
            for name in names
            if name in index
        }

    def templates(self, given: Mapping[str, NodeTemplate]) -> dict[str, NodeTemplate]:
        """What a new node of each group is."""
        others = Groups((group for group in self.groups if group.id not in given), self.groups.node_errors)

        def example(node: Node) -> NodeTemplate | None:
            name = node.metadata.name
            found = self.pods_by_node([name]).get(name)
            if found is None:
                return None
            informers = self.snapshot.informers
            return NodeTemplate(
                node=node,
                pods=found,
                csi_node=informers.csi_nodes.get(name),
                resource_slices=[each for each in informers.resource_slices if each.spec.node_name == name],
            )

        found = mixed_templates(self.lists.all, example, self.daemonsets, others, now=self.now, options=self.options)
        self.warnings += found.warnings
        made = {**found.templates, **given}
        for group in self.groups:
            if group.id not in made:
                self.warnings.append(f"node group {group.id} has no template: it cannot grow")
        return {group.id: made[group.id] for group in self.groups if group.id in made}

    def waiting(self, asked: Collection[str] | None) -> tuple[list[Pod], PodCounts]:
        """The pods that need a place, and how many were left out."""
        options = self.options
        names = None if asked is None else frozenset(asked)
        pending = [record.pod for record in self.snapshot.pending_records if names is None or record.key in names]
        lists = split(pending, bypassed=options.bypassed_scheduler_names, allowed=options.allowed_scheduler_names)
        waiting = [*lists.unschedulable, *lists.unprocessed]
        kept = without_expendable(waiting, options.expendable_pods_priority_cutoff)
        return kept, PodCounts(
            waiting=len(waiting),
            ignored=len(lists.ignored) + len(lists.excluded) + self.snapshot.counts["gated"],
            expendable=len(waiting) - len(kept),
        )

    def prepare(self, templates: Mapping[str, NodeTemplate], state: LoopState) -> dict[str, int]:
        """Takes pods that do not count out of the cluster and puts coming nodes in; how many of each group come."""
        cutoff = self.options.expendable_pods_priority_cutoff
        gone = [
            record.pod
            for record in self.snapshot.placed_records
            if record.priority < cutoff and is_expendable(record.pod, cutoff)
        ]
        if self.options.allowed_scheduler_names:
            running = (record.pod for record in self.snapshot.placed_records)
            gone += split(running, allowed=self.options.allowed_scheduler_names).excluded
        coming = upcoming_nodes(state.cluster, self.groups, self.now)
        if not gone and not any(item.count or item.registered for item in coming.values()):
            return {}
        if self.cluster is None:
            raise InputError("nodes are coming, or pods do not count: that takes the cluster, not a snapshot of it")
        changed = Cluster(self.cluster)
        for pod in gone:
            changed.remove(pod)
        for name, item in coming.items():
            if name in templates:
                for number in range(item.count):
                    _add(changed, fresh_copy(templates[name], f"upcoming-{number}"))
            for registered in item.registered:
                changed.remove(Node(metadata=replace(Node().metadata, name=registered)))
        self.snapshot = changed.snapshot()
        return {name: item.count for name, item in coming.items() if item.count and name in templates}


def _add(cluster: Cluster, fresh: NodeTemplate) -> None:
    metadata = fresh.node.metadata
    annotations = {**(metadata.annotations or {}), UPCOMING_NODE_ANNOTATION: "true"}
    node = replace(fresh.node, metadata=replace(metadata, annotations=annotations), api_version="v1", kind="Node")
    cluster.apply(node)
    for pod in fresh.pods:
        cluster.apply(replace(pod, api_version="v1", kind="Pod"))


def _as_if_all_succeeds(steps: Generator[Any, Any, Orchestration]) -> Orchestration:
    try:
        next(steps)
        while True:
            steps.send(None)
    except StopIteration as stop:
        done: Orchestration = stop.value
        return done
