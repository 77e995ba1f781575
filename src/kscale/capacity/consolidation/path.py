"""``kscale.consolidate``: the path from the running cluster to a cheaper one, step by step.

Not in upstream. Karpenter's consolidation (``pkg/controllers/disruption``) takes one such step at a time: empty nodes,
then several nodes for one, then one for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kscale._native import _engine
from kscale.ca import unremovable_reasons
from kscale.ca.options import AutoscalingOptions, default_options
from kscale.capacity.catalogue import InstanceType
from kscale.capacity.consolidation.budgets import EMPTY, UNDERUTILIZED, DisruptionBudget, PoolRules, allowed_nodes
from kscale.capacity.consolidation.moves import Limits, Moves, Offered, Replacement
from kscale.capacity.consolidation.records import (
    ConsolidationOptions,
    ConsolidationPlan,
    ConsolidationStep,
    Eviction,
    HeldNode,
    NewNode,
    Outlook,
)
from kscale.capacity.cost import prices_of, set_prices
from kscale.capacity.evictions import Evictions, node_hold, relocate
from kscale.capacity.group_templates import with_templates
from kscale.capacity.losses import make_pending
from kscale.capacity.machine_types import instance_type_of
from kscale.capacity.mix import MixOptions, Offer, bound_cost_of_nodes
from kscale.capacity.records import round_money
from kscale.effects import Moment, duration, moment, to_text
from kscale.objects.api.core import Node, Pod
from kscale.objects.argument_types import typed
from kscale.objects.node_selectors import HOSTNAME, REGION, ZONE
from kscale.objects.nodegroup import Groups, NodeGroup, NodeTemplate
from kscale.objects.pod_owners import DO_NOT_DISRUPT, is_daemonset_pod, is_lost_with_node, pod_annotation
from kscale.objects.times import created_at, moment_in
from kscale.scheduling.bounds.effort import checked_bound
from kscale.scheduling.place import place
from kscale.scheduling.scores.options import ScoreOptions
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["consolidate"]

_PATIENCE: Final = timedelta(days=7)
"""Time without an allowed disruption after which the path ends."""
_REFUSALS: Final = 12
"""Number of proposals in a row that the scheduler's choices refuse after which the kind of step is given up."""


@typed
def consolidate(
    cluster: Cluster,
    groups: Iterable[NodeGroup],
    catalogue: Mapping[str, InstanceType] | None = None,
    *,
    now: datetime | Moment,
    options: ConsolidationOptions | None = None,
    rules: AutoscalingOptions | None = None,
    scores: ScoreOptions | None = None,
) -> ConsolidationPlan:
    """Plan how to get from the running cluster to a cheaper one, in steps that the cluster survives.

    Parameters
    ----------
    cluster : Cluster
        The running cluster.
    groups : iterable of NodeGroup
        Node groups. Only their nodes are removed, down to the minimum sizes. A group with a price may get new nodes, up
        to its maximum size. A group without template is modelled on its nodes.
    catalogue : mapping of str to InstanceType, optional
        Prices by instance type, for groups and nodes without a price.
    now : datetime or Moment
        When the path begins.
    options : ConsolidationOptions, optional
        Limits of a step, and where the path stops.
    rules : AutoscalingOptions, optional
        Options of the drain rules (``skip_nodes_with_local_storage`` and others). Default: upstream's.
    scores : ScoreOptions, optional
        Options of the scheduler. Default: those of its default profile.

    Returns
    -------
    ConsolidationPlan
        The steps, and a table of the cost today, at the end, and of the proven optimum.

    Raises
    ------
    InputError
        If no node has a known price, for a group without template that has no node, for invalid options, for a
        disruption budget with an invalid selector, and with NodePools for a node without a creation time or a pod
        without a start time.

    Notes
    -----
    Every step is checked by simulation: with the old nodes cordoned, kube-scheduler's filters and scores choose a node
    for each evicted pod, wave by wave. A step after which a pod was pending is not part of a path. Of nodes with equal
    scores the first in list order is taken, where kube-scheduler takes a random one. Pods that are pending today are
    placed first, where they fit; the others stay pending. Nodes that the path adds are not removed again.
    """
    options = options or ConsolidationOptions()
    options.check()
    path = _Path(cluster, list(groups), catalogue, moment(now), options, rules or default_options(), scores)
    stopped = path.run()
    return path.build_plan(cluster, stopped)


@dataclass(slots=True)
class _Checked:
    """A step that the scheduler's choices allow: the cluster after it, the positions of its pods, and what to do."""

    snapshot: Snapshot
    origin: NDArray[np.int64]
    removed: list[int]
    added: list[tuple[int, str]]
    waves: list[list[int]]
    targets: dict[int, str]


class _Path:
    """The cluster along the path. Pods have their positions in the first snapshot; -1: pods of new nodes."""

    def __init__(
        self,
        cluster: Cluster,
        groups: list[NodeGroup],
        catalogue: Mapping[str, InstanceType] | None,
        now: Moment,
        options: ConsolidationOptions,
        rules: AutoscalingOptions,
        scores: ScoreOptions | None,
    ) -> None:
        """Prepare the path: find prices, templates and limits, place pending pods, and list nodes that must stay.

        Raises InputError as :func:`consolidate` does.
        """
        self._options, self._scores = options, scores or ScoreOptions()
        self._time, self._step_time = now, duration(options.step_time)
        snapshot = cluster.snapshot(dra=True, now=now)
        nodes = snapshot.columns.objects
        incomplete = [group for group in groups if group.template is None]
        completed = {group.id: group for group in with_templates(cluster, snapshot, incomplete, now=now)}
        groups = set_prices([completed.get(group.id, group) for group in groups], catalogue, nodes)
        self._groups = Groups.of(groups, nodes)
        prices = prices_of(nodes, groups, catalogue)
        self._unpriced = sum(price is None for price in prices)
        placed = place(snapshot, scores=self._scores) if snapshot.pending else None
        self._snapshot = self._first = snapshot if placed is None else placed.snapshot_after
        self._unmodelled = [] if placed is None else placed.unmodelled
        self._origin = np.arange(len(self._first.pods), dtype=np.int64)
        self._evictions = Evictions(self._first, now, rules)
        self._pools = rules_of_pools = PoolRules(
            options.node_pools, nodes, self._list_last_events(nodes) if options.node_pools else [now] * len(nodes)
        )
        default = [] if options.node_pools else [DisruptionBudget()]
        self._budgets = default if options.budgets is None else options.budgets
        self._offers = [
            Offered(
                group.id,
                group.template,
                group.price,
                rules_of_pools.get_pool(group.template.node.metadata.labels or {}),
            )
            for group in self._groups
            if options.replace and group.template is not None and group.price is not None and group.max_size
        ]
        fixed = [node_hold(node) for node in nodes]
        self._moves = Moves(
            self._first,
            self._evictions,
            self._offers,
            [price if hold is None else None for price, hold in zip(prices, fixed, strict=True)],
            self._groups.ids_of_nodes(list(snapshot.nodes)),
            self._pools.pool_of,
        )
        self._spare = {group.id: group.size - group.min_size for group in self._groups}
        self._room = {group.id: group.max_size - group.size for group in self._groups}
        self._held = self._list_held(fixed)
        self._prices = {name: price for name, price in zip(snapshot.nodes, prices, strict=True) if price is not None}
        self._young = self._find_young(rules)
        self._failed: set[int] = set()
        self._records: dict[int, PodRecord] = {}
        self._waiting_classes: dict[int, PodClass] = {}
        self._waiting_exemplars: dict[int, Pod] = {}
        self._misplaced = _list_misplaced_pods(self._moves) if options.bound_effort else set()
        self.cost = self._before = sum(self._prices.values())
        self.steps: list[ConsolidationStep] = []

    def _list_last_events(self, nodes: Sequence[Node]) -> list[Moment]:
        """Return when the last pod started on each node; if none has, when the node was created.

        Pods of DaemonSets do not count. Raises InputError for a time that is missing or cannot be read.
        """
        events = [created_at(node) for node in nodes]
        for record, node in zip(self._first.placed, self._first.placed_node.tolist(), strict=True):
            if not is_daemonset_pod(record.pod):
                started = moment_in(record.pod, record.pod.status.start_time, "status.startTime")
                events[node] = max(events[node], started)
        return events

    def _list_held(self, fixed: Sequence[tuple[str, str] | None]) -> list[HeldNode]:
        """Return the nodes that cannot be removed whatever happens to other nodes, each with the first reason.

        Nodes of price 0 are never removed either, but are left out here. ``fixed``: for each node, (reason,
        explanation) if an annotation or taint forbids its removal, else None.
        """
        blocks = [hold or self._find_block(n) for n, hold in enumerate(fixed)]
        names = self._moves.names
        return [HeldNode(node=names[n], reason=each[0], why=each[1]) for n, each in enumerate(blocks) if each]

    def _find_block(self, node: int) -> tuple[str, str] | None:
        """Return (reason, explanation) if the price, the group or a pod of a node forbids its removal, else None."""
        moves = self._moves
        if moves.prices[node] is None:
            return "NoPrice", "its price is not known"
        if moves.group_of[node] is None:
            return unremovable_reasons.NOT_AUTOSCALED, "belongs to no node group"
        holds = (self._evictions.holds(pod) for pod in moves.pods_on[node] if moves.held[pod])
        return next(((unremovable_reasons.BLOCKED_BY_POD, hold.why) for hold in holds if hold is not None), None)

    def _find_young(self, rules: AutoscalingOptions) -> NDArray[np.bool_]:
        """Return which pods must not be evicted a second time: bool[pods].

        These are pods that rules protect while they are young, as a pod is after it was evicted and created again: by
        the annotation ``karpenter.sh/do-not-disrupt``, and in kube-system if ``rules`` skip nodes with system pods.
        """

        def is_young(pod: Pod) -> bool:
            """Check whether a pod that was just created again would keep its node."""
            value = pod_annotation(pod, DO_NOT_DISRUPT)
            system = pod.metadata.namespace == "kube-system"
            return (value is not None and value != "false") or (system and rules.skip_nodes_with_system_pods)

        pods = self._evictions.pods
        young: NDArray[np.bool_] = np.array(list(map(is_young, pods.exemplars)), dtype=bool)[pods.kind_of]
        return young

    # -- steps -------------------------------------------------------------------------------------------------------

    def run(self) -> str:
        """Take steps until nothing is left to do, and return why the path ends (``ConsolidationPlan.stopped``)."""
        options = self._options
        last, tried = self._time, None
        while len(self.steps) < options.max_steps:
            # While nothing else is allowed than when no step was found, no step will be found.
            permissions = (self._allowed(EMPTY), self._allowed(UNDERUTILIZED), self._list_waiting())
            if permissions != tried:
                tried = permissions
                kind, checked = self._next_step()
                if checked is not None:
                    if self._saving(checked) < options.min_saving:
                        return "min-saving"
                    self._take(kind, checked)
                    last, tried = self._time, None
                    continue
                if kind != "wait":
                    return "nothing-saves"
            self._time += self._step_time
            if self._time > last + duration(_PATIENCE):
                return "budgets"
        return "max-steps"

    def _allowed(self, reason: str) -> tuple[int, dict[str, int]]:
        """Return how many nodes a step may remove now for a reason: (in total, by NodePool).

        Nodes of no NodePool have an empty name.
        """
        alive = self._moves.alive
        total = sum(alive)
        allowed = allowed_nodes(self._budgets, self._time, total, reason)
        pools = {**self._pools.allowed(self._time, alive, reason), "": total}
        return total if allowed is None else allowed, pools

    def _list_waiting(self) -> frozenset[int]:
        """Return the numbers of the nodes that ``consolidateAfter`` of their NodePool protects at the current time."""
        return self._pools.list_waiting(self._time, self._moves.alive)

    def _limits(self, reason: str) -> Limits:
        """Return the limits of the next step, which removes nodes for ``reason``."""
        options = self._options
        hours = options.payback / timedelta(hours=1)

        def is_worthwhile(price: float, evictions: int) -> bool:
            """Check whether a saving of ``price`` ($/h) repays the evictions within the payback time."""
            return price * hours > evictions * options.eviction_cost

        nodes, pools = self._allowed(reason)
        return Limits(
            min(nodes, sum(pools.values())),
            options.max_evictions,
            options.max_waves,
            dict(self._spare),
            dict(self._room),
            pools,
            self._list_waiting(),
            is_worthwhile,
        )

    def _next_step(self) -> tuple[str, _Checked | None]:
        """Return (kind of the next step, the step): ``empty``, ``remove`` or ``replace``.

        ("wait", None) if more may be allowed at another time, ("", None) if nothing is left to do.
        """
        moves = self._moves
        empty = moves.propose_empty(self._limits(EMPTY))
        if empty and (checked := self._check([Replacement(empty)])) is not None:
            return "empty", checked
        limits = self._limits(UNDERUTILIZED)
        if not limits.nodes:
            return "wait", None
        for few_waves in (True, False):
            limits.few_waves = few_waves
            checked = self._try_removals(limits)
            if checked is not None:
                return "remove", checked
        for few_waves in (True, False) if self._offers else ():
            limits.few_waves = few_waves
            checked = self._try_replacements(limits)
            if checked is not None:
                return "replace", checked
        later = self._pools.may_be_allowed_later(UNDERUTILIZED, limits.pools, self._moves.alive)
        return "wait" if later or limits.waiting else "", None

    def _try_removals(self, limits: Limits) -> _Checked | None:
        """Return a step that only removes nodes; None if none of up to 12 proposals leaves all pods with a node.

        The first node of a proposal that fails is added to ``_failed``, and is not proposed again.
        """
        for _ in range(_REFUSALS):
            nodes = self._moves.propose_removals(limits, self._failed)
            if not nodes:
                return None
            checked = self._check_smaller([Replacement([node]) for node in nodes])
            if checked is not None:
                return checked
            self._failed.add(nodes[0])
        return None

    def _try_replacements(self, limits: Limits) -> _Checked | None:
        """Return a step that replaces nodes; None if none of up to 12 proposals leaves all pods with a node.

        The first node of a proposal that fails is added to ``_failed``, and is not proposed again.
        """
        for _ in range(_REFUSALS):
            replacements = self._moves.propose_replacements(limits, self._failed)
            if not replacements:
                return None
            checked = self._check_smaller(replacements) or self._check_fewer_nodes(replacements[0])
            if checked is not None:
                return checked
            self._failed.add(replacements[0].nodes[0])
        return None

    def _check_smaller(self, parts: Sequence[Replacement]) -> _Checked | None:
        """Check a step of all ``parts``; if a pod would be pending, of the first half of them, and so on.

        Returns the first step without pending pods; None if even the first part alone leaves a pod pending.
        """
        count = len(parts)
        while count:
            checked = self._check(parts[:count])
            if checked is not None:
                return checked
            count //= 2
        return None

    def _check_fewer_nodes(self, replacement: Replacement) -> _Checked | None:
        """Check a replacement of half its old nodes, of a quarter, and so on, and return the first possible step.

        None if there is none, or as soon as one does not save or repay its evictions.
        """
        offer = self._offers[replacement.offer or 0]
        worthwhile = self._limits(UNDERUTILIZED).worthwhile
        count = len(replacement.nodes) // 2
        while count:
            nodes = replacement.nodes[:count]
            saves = sum(self._moves.prices[node] or 0.0 for node in nodes) - offer.price
            if saves <= 0 or not worthwhile(saves, sum(len(self._moves.movers(node)) for node in nodes)):
                return None
            checked = self._check([Replacement(nodes, replacement.offer, saves)])
            if checked is not None:
                return checked
            count //= 2
        return None

    def _check(self, parts: Sequence[Replacement]) -> _Checked | None:
        """Simulate a step with the scheduler's choices, and return its effect; None if a pod would be pending.

        ``parts``: the nodes to remove, with their replacements.
        """
        moves = self._moves
        removed = [node for part in parts for node in part.nodes]
        names = [moves.names[node] for node in removed]
        added: list[tuple[int, str]] = []
        templates = []
        for part in parts:
            if part.offer is not None:
                offer = self._offers[part.offer]
                name = self._new_name(offer.group, [name for _, name in added])
                added.append((part.offer, name))
                templates.append(_name_template(offer.template, name))
        snapshot, origin = self._snapshot, self._origin
        if templates:
            snapshot = snapshot.with_nodes(templates)
            origin = np.append(origin, np.full(len(snapshot.pods) - len(origin), -1))
        movers = [pod for node in removed for pod in moves.movers(node)]
        waves = self._evictions.split_into_waves(movers)
        position = np.full(len(self._first.pods) + 1, -1, dtype=np.int64)
        position[origin] = np.arange(len(origin))
        moved = relocate(
            snapshot,
            names,
            [position[wave].tolist() for wave in waves],
            self._scores,
            lambda at: self._record(int(origin[at])),
            explain=False,
        )
        if moved.pending:
            return None
        after_moves = origin[moved.origin]
        index = moved.snapshot.columns.index
        stays = ~np.isin(moved.snapshot.placed_node, [index[name] for name in names])
        after = moved.snapshot.with_nodes(without=names)
        targets = {int(origin[at]): node for at, node in moved.targets.items()}
        return _Checked(after, after_moves[stays], removed, added, waves, targets)

    def _record(self, pod: int) -> PodRecord:
        """Return the record of the pod at position ``pod`` as a pending pod, cached for all steps."""
        record = self._records.get(pod)
        if record is None:
            record = self._records[pod] = PodRecord(self._waiting_pod(pod))
            kind = int(self._evictions.pods.kind_of[pod])
            record.pod_class = self._waiting_classes.get(kind)
            if record.pod_class is None:
                [record.pod_class] = self._first.classify([record])
                if not record.pod_class.pod_name:  # the class is that of all pods of the kind
                    self._waiting_classes[kind] = record.pod_class
        return record

    def _waiting_pod(self, pod: int) -> Pod:
        """Return a copy of the pod at position ``pod`` that is pending and has no node.

        Copies of pods of one kind share everything but namespace, name and UID.
        """
        pods = self._evictions.pods
        kind = int(pods.kind_of[pod])
        exemplar = self._waiting_exemplars.get(kind)
        if exemplar is None:
            exemplar = self._waiting_exemplars[kind] = make_pending(pods.exemplars[kind])
        replace = msgspec.structs.replace
        namespace, _, name = pods.names[pod].rpartition("/")
        uid = self._first.placed[pod].uid
        return replace(exemplar, metadata=replace(exemplar.metadata, namespace=namespace, name=name, uid=uid))

    def _new_name(self, group: str, taken: Sequence[str]) -> str:
        """Return an unused name for a new node of a group. ``taken``: names of other new nodes of the step."""
        known = {*taken, *self._moves.names}
        number = 1
        while (name := f"{group}-new-{number}") in known:
            number += 1
        return name

    def _saving(self, checked: _Checked) -> float:
        """Return what a step saves ($/h)."""
        removed = sum(self._prices[self._moves.names[node]] for node in checked.removed)
        return removed - sum(self._offers[offer].price for offer, _ in checked.added)

    def _take(self, kind: str, checked: _Checked) -> None:
        """Make a step part of the path: record it, and change the cluster, the limits and the time."""
        moves = self._moves
        home = {pod: moves.names[node] for node in checked.removed for pod in moves.pods_on[node]}
        new_price = sum(self._offers[offer].price for offer, _ in checked.added)
        saving = self._saving(checked)
        peak = self.cost + new_price
        self.cost -= saving
        for node in checked.removed:
            self._spare[moves.group_of[node] or ""] -= 1
            self._room[moves.group_of[node] or ""] += 1
        for offer, name in checked.added:
            group = self._offers[offer].group
            self._spare[group] += 1
            self._room[group] -= 1
            self._prices[name] = self._offers[offer].price
        removed = [moves.names[node] for node in checked.removed]
        moves.apply(checked.removed, checked.added, checked.targets)
        for offer, _ in checked.added:
            self._pools.add_node(self._offers[offer].pool, self._time)
        receivers = set(checked.targets.values())
        for node, name in enumerate(moves.names):
            if name in receivers and moves.alive[node]:
                self._pools.record_pod_event(node, self._time)
        for pod in checked.targets:
            if self._young[pod]:
                moves.held[pod] = True
        self._snapshot, self._origin = checked.snapshot, checked.origin
        self.steps.append(
            ConsolidationStep(
                number=len(self.steps) + 1,
                kind=kind,
                at=to_text(self._time) or "",
                add=[
                    NewNode(
                        name=name,
                        group=self._offers[offer].group,
                        type=instance_type_of(self._offers[offer].template.node),
                        price=self._offers[offer].price,
                    )
                    for offer, name in checked.added
                ],
                evict=[
                    Eviction(pod=self._first.pods[pod], from_node=home[pod], to=checked.targets[pod], wave=number)
                    for number, wave in enumerate(checked.waves, 1)
                    for pod in wave
                ],
                remove=removed,
                waves=len(checked.waves),
                saves=round_money(saving),
                nodes=sum(moves.alive),
                cost=round_money(self.cost),
                peak=round_money(peak),
            )
        )
        self._time += self._step_time

    def _list_bounded_pods(self) -> list[int]:
        """Return the positions of the pods for which the lower bound of the cost is computed.

        They are not being deleted, would be created again if evicted, and fit the node that they are on.
        """
        pods = self._evictions.pods
        lost = np.array(
            [is_lost_with_node(each) or each.metadata.deletion_timestamp is not None for each in pods.exemplars],
            dtype=bool,
        )
        counted = ~lost[pods.kind_of]
        counted[sorted(self._misplaced)] = False
        bounded: list[int] = np.flatnonzero(counted).tolist()
        return bounded

    # -- result ------------------------------------------------------------------------------------------------------

    def build_plan(self, cluster: Cluster, stopped: str) -> ConsolidationPlan:
        """Build the plan, with a lower bound of the cost for ``cluster``. ``stopped``: why the path ended."""
        nodes = self._first.columns.objects
        bound, why = _bound_cost(
            cluster,
            self._first,
            self._offers,
            [self._prices.get(node.metadata.name) for node in nodes],
            [self._waiting_pod(pod) for pod in self._list_bounded_pods()] if self._options.bound_effort else [],
            effort=self._options.bound_effort,
        )
        table = [
            Outlook(state="today", nodes=len(nodes), cost=round_money(self._before), saves=0.0),
            Outlook(
                state="path",
                nodes=sum(self._moves.alive),
                cost=round_money(self.cost),
                saves=round_money(self._before - self.cost),
            ),
        ]
        if bound is not None:
            checked_bound(bound, self.cost, "consolidate")
            table.append(
                Outlook(state="optimum", nodes=None, cost=round_money(bound), saves=round_money(self._before - bound))
            )
        return ConsolidationPlan(
            table=table,
            steps=self.steps,
            evictions=sum(len(step.evict) for step in self.steps),
            stopped=stopped,
            held=self._held,
            unpriced=self._unpriced,
            pending_count=len(self._first.pending),
            no_bound=why,
            unmodelled=self._unmodelled,
        )


def _name_template(template: NodeTemplate, name: str) -> NodeTemplate:
    """Return a copy of a template whose node is called ``name``, with the template's pods on it."""
    replace = msgspec.structs.replace
    labels = {**(template.node.metadata.labels or {}), HOSTNAME: name}
    node = replace(template.node, metadata=replace(template.node.metadata, name=name, uid=name, labels=labels))
    pods = [
        replace(
            pod,
            metadata=replace(pod.metadata, name=f"{pod.metadata.name}-{name}", uid=f"{pod.metadata.name}-{name}"),
            spec=replace(pod.spec, node_name=name),
        )
        for pod in template.pods
    ]
    return replace(template, node=node, pods=pods)


# -- the lower bound of the cost ---------------------------------------------------------------------------------------

_MOST_KINDS = 300
"""The bound is left out for more kinds of existing nodes."""


def _list_misplaced_pods(moves: Moves) -> set[int]:
    """Return the positions of the pods that could not be scheduled to the node that they run on today.

    A node may have changed since, or be overcommitted. A lower bound of the cost must leave these pods out.
    """
    engine, misplaced = moves.engine, set()
    for node, pods in enumerate(moves.pods_on):
        for pod in pods:
            engine.unplace(moves.class_of[pod], node)
            if engine.check(moves.class_of[pod], node) != _engine.FITS:
                misplaced.add(pod)
            engine.place(moves.class_of[pod], node)
    return misplaced


def _bound_cost(
    cluster: Cluster,
    snapshot: Snapshot,
    offers: Sequence[Offered],
    prices: Sequence[float | None],
    pods: Sequence[Pod],
    *,
    effort: int,
) -> tuple[float | None, str]:
    """Return (lower bound of the $/h of all nodes on which ``pods`` can run, ""), or (None, why there is none).

    The nodes may be new ones of the offers, and existing ones: as many of each kind as there are. Every path ends at
    such nodes. Constraints that keep pods and nodes where they are (budgets, drain rules, group sizes) only make a
    cluster more expensive, so the bound ignores them.

    ``prices``: $/h of each node of ``snapshot``, None = unknown. ``pods``: running pods of ``snapshot``, changed to
    pending ones. ``effort``: effort of the search; 0: no bound.
    """
    if not effort:
        return None, "not computed"
    if any(price is None for price in prices):
        return None, "some nodes have no known price"
    existing = _build_existing_offers(snapshot, [price or 0.0 for price in prices])
    if len(existing) > _MOST_KINDS:
        return None, f"there are {len(existing):,} kinds of nodes"
    new = [
        Offer(name=f"new {offer.group}", template=offer.template, price=offer.price, group=offer.group)
        for offer in offers
    ]
    anew = Cluster(item for item in cluster if not isinstance(item, (Node, Pod)))
    anew.apply_pods(pods)
    empty = anew.snapshot(dra=True)
    options = MixOptions(bound_effort=effort, existing=False)
    return bound_cost_of_nodes(empty, [*new, *existing], list(empty.pending), options), ""


def _build_existing_offers(snapshot: Snapshot, prices: Sequence[float]) -> list[Offer]:
    """Build one offer for each group of interchangeable nodes, with their number as the maximum.

    Nodes are interchangeable if these are equal: price, allocatable, taints, labels that pods use, and the classes of
    the pods that end with the node. The template is the first node of the group, not cordoned. ``prices``: $/h of each
    node of the snapshot.
    """
    keys = _list_label_keys(snapshot)
    own: dict[int, list[Pod]] = {}
    for position, node in enumerate(snapshot.placed_node.tolist()):
        pod = snapshot.placed[position].pod
        if is_lost_with_node(pod):
            own.setdefault(node, []).append(pod)
    kinds: dict[tuple[object, ...], list[int]] = {}
    for n, node in enumerate(snapshot.columns.objects):
        labels = node.metadata.labels or {}
        kind = (
            prices[n],
            tuple(sorted((name, str(amount)) for name, amount in (node.status.allocatable or {}).items())),
            tuple(sorted((key, value) for key, value in labels.items() if key in keys)),
            tuple(sorted((taint.key, taint.value, taint.effect) for taint in node.spec.taints)),
            tuple(sorted(snapshot.interner.classify(pod, placed=True).index for pod in own.get(n, ()))),
        )
        kinds.setdefault(kind, []).append(n)
    offers = []
    for number, nodes in enumerate(kinds.values()):
        node = snapshot.columns.objects[nodes[0]]
        name = f"existing-{number}"
        labels = {**(node.metadata.labels or {}), HOSTNAME: name}
        template = replace(
            node,
            metadata=replace(node.metadata, name=name, uid=name, labels=labels),
            spec=replace(node.spec, unschedulable=False),
        )
        pods = [
            replace(pod, metadata=replace(pod.metadata, name=f"{name}-{i}", uid=f"{name}-{i}"))
            for i, pod in enumerate(own.get(nodes[0], ()))
        ]
        offers.append(
            Offer(
                name=name,
                template=NodeTemplate(node=template, pods=pods),
                price=prices[nodes[0]],
                most=len(nodes),
            )
        )
    return offers


def _list_label_keys(snapshot: Snapshot) -> set[str]:
    """Return the node label keys that constraints of placed pods name, zone and region, without the host name."""
    keys: set[str] = set()
    for pod in snapshot.placed_classes:
        keys.update(pod.node_selector or ())
        if pod.node_affinity is not None:
            for term in pod.node_affinity.node_selector_terms:
                keys.update(requirement.key for requirement in term.match_expressions)
        keys.update(term.topology_key for term in (*pod.affinity, *pod.anti_affinity))
        keys.update(constraint.topology_key for constraint in pod.spread or ())
    keys.update((ZONE, REGION))
    return keys - {HOSTNAME}
