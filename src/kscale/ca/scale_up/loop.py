"""One loop of scale-up, from pending pods to a plan: the pod lists, then the orchestrator (``RunOnce``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import replace as replace_input
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from msgspec.structs import replace

from kscale.ca.actionable import not_actionable
from kscale.ca.cluster_state import is_cluster_healthy, update_nodes
from kscale.ca.errors import INTERNAL_ERROR, AutoscalerError
from kscale.ca.events import Event
from kscale.ca.expander.chain import as_if_done
from kscale.ca.expander.group_prices import group_prices
from kscale.ca.expander.registry import build_chain
from kscale.ca.expander.types import ExpanderInput, Rank, Rng
from kscale.ca.options import AutoscalingOptions
from kscale.ca.orchestrator import Orchestration, orchestrate_steps
from kscale.ca.pod_lists.daemonsets import without_daemonset_pods
from kscale.ca.pod_lists.degradation import count_degradation, looks_in_time
from kscale.ca.pod_lists.drained import with_drained_pods
from kscale.ca.pod_lists.enforcer import ScaleUpEnforcer
from kscale.ca.pod_lists.expendable import without_expendable
from kscale.ca.pod_lists.gate import should_scale_up
from kscale.ca.pod_lists.split import split
from kscale.ca.pod_lists.tpu import clear_tpu_requests
from kscale.ca.pod_lists.waiting import WaitingPods
from kscale.ca.pod_lists.young import without_young
from kscale.ca.quota import Quota, capacity_quota_limits, cluster_maximum
from kscale.ca.scale_up.decision import Preparation, ScaleUpPlan
from kscale.ca.scale_up.legacy.flow import LEGACY_EXPANDERS
from kscale.ca.scale_up.legacy.loop import legacy_loop_steps
from kscale.ca.scale_up.min_size import MinSizeScaleUp, scale_up_to_min_size_steps
from kscale.ca.scale_up.report import PodCounts
from kscale.ca.scale_up.salvo import Salvo, salvo_steps
from kscale.ca.scale_up.scene import Scene
from kscale.ca.scale_up.status import NOT_TRIED
from kscale.ca.similarity import Comparator
from kscale.ca.state import LoopState, ScaleUpState, cleared
from kscale.errors import InputError, Problem
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.nodegroups import Groups
from kscale.scheduling.place import PlaceResult, PlaceState, place
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["scale_up", "scale_up_steps"]


def scale_up(
    cluster: Cluster | Snapshot, groups: Groups | Iterable[NodeGroup], *, rank: Rank | None = None, **given: Any
) -> ScaleUpPlan:
    """Decide one loop of scale-up as if everything succeeded: a dry run of :func:`kscale.ca.scale_up_steps`, whose
    arguments it takes. Nothing is changed.

    ``rank`` answers for the grpc expander (:class:`kscale.drivers.GrpcExpander` asks its server); without it that
    expander keeps every option.
    """
    plan: ScaleUpPlan = as_if_done(scale_up_steps(cluster, groups, **given), rank)
    return plan


def scale_up_steps(
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
    all_or_nothing: bool = False,
    enforcer: ScaleUpEnforcer | None = None,
    max_looks: int | None = None,
    elapsed: Callable[[], timedelta] = timedelta,
    process_age: timedelta | None = None,
    profile: SchedulerProfile | None = None,
    gpu_label: str | None = None,
) -> Generator[Any, Any, ScaleUpPlan]:
    """One loop of scale-up as a step machine: yields what :func:`kscale.ca.orchestrate_steps` yields.

    - ``cluster`` may be a snapshot where nothing has to be put into it (coming nodes, rounds of a salvo) and no quota
      objects are asked for: else InputError.
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
    - ``all_or_nothing``: all pods at once or none (what provisioning requests ask for). ``elapsed``: the time since the
      loop started, asked between the rounds of a salvo and after every estimate; ``process_age``: how long the
      autoscaler has been running (None: long enough). ``rng`` breaks ties, else the first option wins. The other
      arguments are those of :func:`kscale.ca.orchestrate_steps`.

    Raises InputError for options that upstream refuses at start-up, and :class:`kscale.ca.AutoscalerError` for a chain
    of expanders that cannot be built or a group whose size cannot be read.
    """
    options = options or AutoscalingOptions()
    _check(options)
    given_input = expander_input or ExpanderInput()
    if gpu_label is not None:
        given_input = replace_input(given_input, gpu_label=gpu_label)
    known = state.templates if state is not None else {}
    scene = Scene(cluster, groups, now, options, profile, given_input.gpu_label, templates, known)
    if options.legacy:
        if not given_input.cluster_node_count:
            given_input = replace_input(given_input, cluster_node_count=len(scene.lists.all))
        return (
            yield from legacy_loop_steps(
                scene,
                state or LoopState(),
                templates=templates or {},
                expander_input=replace_input(given_input, now=given_input.now or now),
                pods=pods,
                rng=rng,
            )
        )
    idle = not_actionable(len(scene.lists.all), len(scene.lists.ready), options, process_age)
    if idle is not None:
        events = [_said(options, "ClusterUnhealthy", idle.message)] if idle.tell else []
        before = Preparation(events=events, warnings=[idle.message])
        return ScaleUpPlan(result=NOT_TRIED, before=before, state=cleared(state or LoopState()))
    if quotas is None:
        quotas = _quotas(scene)
    loop = _Loop(scene, state or LoopState(), quotas)
    given = {
        "expander_input": given_input,
        "comparator": comparator or Comparator.from_options(options),
        "all_or_nothing": all_or_nothing,
        "rng": rng,
    }
    return (yield from loop.run(templates or {}, draining, pods, given, elapsed, enforcer, max_looks))


def _check(options: AutoscalingOptions) -> None:
    problems = options.problems()
    if options.estimator not in (("binpacking", "basic") if options.legacy else ("binpacking",)):
        problems.append(Problem(f"Unknown estimator: {options.estimator}", field="estimator"))
    if problems:
        raise InputError(problems)
    names = [options.expander] if options.legacy else options.expander_names
    build_chain(names)
    if options.legacy and names[0] not in LEGACY_EXPANDERS:
        raise AutoscalerError(INTERNAL_ERROR, f"Expander {names[0]} not supported")


def _quotas(scene: Scene) -> list[Quota]:
    """The limits of the options, then those of the cluster's quota objects."""
    found = [cluster_maximum(scene.options.resource_limiter)]
    if scene.options.capacity_quotas_enabled:
        limits, left_out = capacity_quota_limits(scene.whole_cluster().all("CapacityQuota"))
        found += limits
        scene.warnings += [f"CapacityQuota {name} does not count: {reason}" for name, reason in left_out.items()]
    return found


class _Loop:
    """One loop under way."""

    def __init__(self, scene: Scene, before: LoopState, quotas: Sequence[Quota] | AutoscalerError) -> None:
        self.scene, self.before, self.quotas = scene, before, quotas
        self.options, self.now = scene.options, scene.now

    def run(
        self,
        given_templates: Mapping[str, NodeTemplate],
        draining: Sequence[str],
        asked: Collection[str] | None,
        given: dict[str, Any],
        elapsed: Callable[[], timedelta],
        enforcer: ScaleUpEnforcer | None,
        max_looks: int | None,
    ) -> Generator[Any, Any, ScaleUpPlan]:
        scene, options, now = self.scene, self.options, self.now
        made, examples = scene.templates(given_templates, self.before.templates)
        update = update_nodes(
            self.before.cluster, scene.lists.all, scene.groups,
            now=now, options=options, templates=set(made), lives=scene.lists.lives,
        )  # fmt: skip
        state = replace(self.before, cluster=update.state)
        before = Preparation(events=list(update.events), warnings=scene.warnings)
        if not is_cluster_healthy(update.state, options):
            before.events.append(_said(options, "ClusterUnhealthy", "Cluster is unhealthy"))
            return ScaleUpPlan(result=NOT_TRIED, before=before, state=cleared(state), examples=examples)
        moving = scene.records_by_node(draining)
        before.upcoming = scene.prepare(made, state)
        placed, state = self.lists(before, state, asked, draining, moving, looks_in_time(options, max_looks))
        assert before.asked is not None
        gate = should_scale_up(
            before.asked.in_play,
            ready_nodes=len(scene.lists.ready),
            now=now,
            options=options,
            degraded_loops=state.scale_up.degraded_loops,
            enforced=enforcer is not None and enforcer([record.pod for record in before.asked.records]),
        )
        before.events += gate.events
        before.scale_down_disabled = gate.scale_down_disabled
        rounds: list[Orchestration] = []
        result = gate.result
        if not result:
            rounds = yield from self.scale(placed, before.asked, made, state, given, elapsed)
            result = rounds[-1].status.result
            state = replace(state, cluster=rounds[-1].state, cursor=rounds[-1].cursor)
        minimum: MinSizeScaleUp | None = None
        if options.enforce_node_group_min_size:
            minimum = yield from self.raise_to_minimum(rounds, made, state, given["expander_input"].gpu_label)
            state = replace(state, cluster=minimum.state)
        return ScaleUpPlan(result=result, before=before, rounds=rounds, minimum=minimum, state=state, examples=examples)

    def lists(
        self,
        before: Preparation,
        state: LoopState,
        asked: Collection[str] | None,
        draining: Sequence[str],
        moving: Mapping[str, Sequence[PodRecord]],
        max_looks: int | None,
    ) -> tuple[PlaceResult, LoopState]:
        """The chain of list processors; what each took out goes to ``before``."""
        scene, options = self.scene, self.options
        waiting, ignored = self.waiting(asked)
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
        aged = without_young(wanted.in_play, self.now, options.new_pod_scale_up_delay)
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
        if options.enable_graceful_degradation:
            where = f"{options.namespace}/{options.status_config_map_name}"
            degraded, events = count_degradation(degraded, len(placed.not_tried), where)
            before.events += events
        memory = ScaleUpState(hints=placed.state.hints, old_hints=placed.state.old_hints, degraded_loops=degraded)
        return placed, replace(state, cursor=placed.state.cursor, scale_up=memory)

    def waiting(self, asked: Collection[str] | None) -> tuple[WaitingPods, int]:
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
        waiting = pending.take(np.concatenate(positions_of))
        return waiting, len(pending) - len(waiting)

    def scale(
        self,
        placed: PlaceResult,
        asked: WaitingPods,
        templates: Mapping[str, NodeTemplate],
        state: LoopState,
        given: dict[str, Any],
        elapsed: Callable[[], timedelta],
    ) -> Generator[Any, Any, list[Orchestration]]:
        """The scale-up, or several of them."""
        scene, options = self.scene, self.options
        expander = given["expander_input"]
        if not expander.cluster_node_count:
            expander = replace_input(expander, cluster_node_count=len(scene.lists.all))
        if "price" in options.expander_names and expander.prices is None:
            prices = group_prices([*scene.groups, *scene.candidates], templates, expander)
            expander = replace_input(expander, prices=prices)
        common = {
            **given,
            "expander_input": replace_input(expander, now=expander.now or self.now),
            "nodes": scene.snapshot.columns.objects,
            "templates": templates,
            "state": state.cluster,
            "now": self.now,
            "options": options,
            "quotas": self.quotas,
            "profile": scene.profile,
            "known_templates": {group.id for group in scene.groups if group.id in templates},
            "candidates": scene.candidates,
            "daemonsets": scene.daemonsets,
            "cursor": state.cursor,
        }
        if not options.salvo_scale_up:
            common["elapsed"] = elapsed
            return [(yield from orchestrate_steps(placed.snapshot_after, asked.records, scene.groups, **common))]
        simulated = scene.with_placed(placed)
        salvo: Salvo = yield from salvo_steps(
            simulated, asked.records, scene.groups, budget=options.salvo_scale_up_budget, elapsed=elapsed,
            csi=scene.snapshot.csi, dra=scene.snapshot.dra, **common,
        )  # fmt: skip
        if salvo.warning:
            scene.warnings.append(salvo.warning)
        return [each.done for each in salvo.rounds]

    def raise_to_minimum(
        self, rounds: Sequence[Orchestration], templates: Mapping[str, NodeTemplate], state: LoopState, gpu_label: str
    ) -> Generator[Any, Any, MinSizeScaleUp]:
        """Groups below their minimum size, after everything else. Limits count the nodes that scale-ups count."""
        last = rounds[-1] if rounds else None
        known = last.templates if last is not None else templates
        return (
            yield from scale_up_to_min_size_steps(
                self.scene.snapshot.columns.objects,
                last.groups if last is not None else self.scene.groups,
                templates={name: item.node for name, item in known.items()},
                state=state.cluster,
                now=self.now,
                options=self.options,
                quotas=self.quotas,
                known_templates={group.id for group in self.scene.groups if group.id in templates},
                gpu_label=gpu_label,
            )
        )


def _said(options: AutoscalingOptions, reason: str, message: str) -> Event:
    where = f"ConfigMap/{options.namespace}/{options.status_config_map_name}"
    return Event(object=where, type="Warning", reason=reason, message=message)
