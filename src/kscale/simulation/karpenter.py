"""Karpenter's controllers as drivers of a simulated cluster: provisioning, disruption and termination of nodes.

They hold no rules: :mod:`kscale.capacity.karpenter` decides where pods go and which nodes are disrupted. The three run
side by side, as upstream's controllers do, and share one :class:`KarpenterState`.

Upstream: ``pkg/controllers/provisioning`` (``batcher.go``, ``provisioner.go``), ``pkg/controllers/disruption``
(``controller.go``, ``queue.go``), ``pkg/controllers/node/termination`` and ``pkg/controllers/nodeclaim``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, NamedTuple

import msgspec

from kscale.capacity.karpenter.cluster_view import (
    DISRUPTED,
    ClusterView,
    ManagedNodes,
    is_drained,
    is_evictable,
    is_initialized,
    is_provisionable,
)
from kscale.capacity.karpenter.disruption import METHODS, Command, count_allowed, find_command, revalidate
from kscale.capacity.karpenter.node_claim import OfferedPools, PlannedClaim
from kscale.capacity.karpenter.node_pools import NODE_POOL, NodePools
from kscale.effects import (
    SECOND,
    DeleteNodes,
    Evict,
    IncreaseSize,
    Moment,
    Patch,
    Progress,
    ReadStores,
    Refresh,
    Steps,
    StepsOf,
    duration,
)
from kscale.objects.api.core import Node, Pod, Taint
from kscale.objects.api.policy import PodDisruptionBudget
from kscale.objects.decode import to_dict
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.pod_owners import is_daemonset_pod
from kscale.objects.times import parse_duration
from kscale.snapshot.snapshot import Snapshot
from kscale.world.protocols import Change, Stores, Watch

__all__ = ["Disrupter", "KarpenterOptions", "KarpenterState", "Provisioner", "Terminator", "karpenter_drivers"]

_RETRY: Final = 10 * SECOND
"""After this time a pending pod begins a batch again."""
_POLLING: Final = 10 * SECOND
"""Between two looks for nodes to disrupt."""
_VALIDATION: Final = 15 * SECOND
"""Time between the decision to disrupt nodes and the disruption, for validation."""
_RECHECK: Final = 300 * SECOND
"""Interval after which nodes are checked again although nothing has changed."""
_POD_EVENTS: Final = 10 * SECOND
"""Pod events on a node within this time after the last recorded event are ignored."""
_QUEUE_INTERVAL: Final = SECOND
_MIN_DRAIN: Final = 5 * SECOND
_COMMAND_TIMEOUT: Final = 600 * SECOND
_LIVENESS_INTERVAL: Final = 60 * SECOND
_REGISTRATION: Final = 900 * SECOND
"""After this time a machine without a node is deleted."""
_UNAVAILABLE: Final = 180 * SECOND
"""For this time an offering that was out of stock is not tried again (the AWS provider's)."""


class KarpenterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Flags of Karpenter: a batch ends after ``batch_idle_duration`` without a new pod, or ``batch_max_duration``."""

    batch_idle_duration: timedelta = timedelta(seconds=1)
    batch_max_duration: timedelta = timedelta(seconds=10)

    @property
    def nomination(self) -> int:
        """Return how long a node on which a pending pod was placed is not disrupted, in nanoseconds."""
        return max(2 * duration(self.batch_max_duration), 10 * SECOND)


class Observed(NamedTuple):
    """The objects that a round reads."""

    snapshot: Snapshot
    budgets: Sequence[PodDisruptionBudget]


def _observe(stores: Stores) -> Observed:
    """Return a snapshot and the disruption budgets of the stores."""
    budgets = [each for each in stores.objects("PodDisruptionBudget") if isinstance(each, PodDisruptionBudget)]
    return Observed(stores.snapshot(), budgets)


@dataclass(slots=True)
class RunningCommand:
    """A disruption in progress. Its nodes are removed as soon as the replacement is initialized."""

    nodes: list[str]
    replacement: str
    """Provider ID of the machine that replaces the nodes; empty if no machine does."""
    begun: Moment
    is_started: bool = False
    """Whether the replacement was launched. The nodes are marked for deletion only after that."""


class Machines(NamedTuple):
    """Machines of the cloud: the group of each node, and of each instance that is not being deleted (``wanted``)."""

    groups: Sequence[NodeGroup]
    group_of: dict[str, str]
    wanted: dict[str, str]

    @classmethod
    def of(cls, groups: Sequence[NodeGroup]) -> Machines:
        """Build from the groups: the group of each node and of each machine that is not being deleted."""
        group_of = {name: group.id for group in groups for name in group.nodes}
        wanted = {
            machine: group.id
            for group in groups
            for machine in group.instance_ids
            if (status := group.instance_status.get(machine)) is None or status.state != "deleting"
        }
        return cls(groups, group_of, wanted)


@dataclass
class KarpenterState:
    """State that Karpenter's controllers share. Times are nanoseconds since 1970.

    Attributes
    ----------
    initialized : dict
        When each node was initialized, by node name.
    events : dict
        Time of the last pod event on each node, by node name.
    nominated : dict
        Until when each node must not be disrupted because a pending pod was placed on it, by node name.
    unavailable : dict
        Until when an offering is not tried again because it was out of stock, by group.
    commands : list of RunningCommand
        Disruptions whose replacement is not initialized yet.
    draining : dict
        When the drain of each node began, by node name.
    deleted : set of str
        Nodes whose machines are being deleted.
    requested : dict
        When each machine without a node was first seen, by provider ID.
    machines : Machines or None
        The machines that the cloud reported last; None before the first request.
    """

    pools: NodePools
    offered: OfferedPools
    groups: Mapping[str, NodeGroup]
    options: KarpenterOptions
    initialized: dict[str, Moment] = field(default_factory=dict)
    events: dict[str, Moment] = field(default_factory=dict)
    nominated: dict[str, Moment] = field(default_factory=dict)
    unavailable: dict[str, Moment] = field(default_factory=dict)
    commands: list[RunningCommand] = field(default_factory=list)
    draining: dict[str, Moment] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    requested: dict[str, Moment] = field(default_factory=dict)
    machines: Machines | None = None

    @property
    def deleting(self) -> set[str]:
        """Return the names of the nodes that are marked for deletion."""
        started = {name for command in self.commands if command.is_started for name in command.nodes}
        return started | self.draining.keys() | self.deleted

    def note_node(self, change: Change, now: Moment) -> None:
        """Record when a node of a NodePool is initialized, and remove all records of a deleted node."""
        new, old = change.new, change.old
        if isinstance(new, Node):
            pools = {pool.name: pool for pool in self.pools.pools}
            pool = pools.get((new.metadata.labels or {}).get(NODE_POOL, ""))
            if pool is not None and new.name not in self.initialized and is_initialized(new, pool):
                self.initialized[new.name] = now
        elif old is not None:
            for times in (self.initialized, self.events, self.nominated, self.draining):
                times.pop(old.name, None)
            self.deleted.discard(old.name)

    def note_pod(self, change: Change, now: Moment) -> None:
        """Store the time at which a pod was bound to a node, ended, or began to terminate there.

        Pods of DaemonSets do not count, nor does an event less than 10 s after the last that was stored for the node.
        """
        old, new = change.old, change.new
        if not isinstance(old, Pod) or not isinstance(new, Pod) or not new.spec.node_name or is_daemonset_pod(new):
            return
        ended = ("Succeeded", "Failed")
        is_event = (
            not old.spec.node_name
            or (old.status.phase not in ended and new.status.phase in ended)
            or (old.metadata.deletion_timestamp is None and new.metadata.deletion_timestamp is not None)
        )
        last = self.events.get(new.spec.node_name)
        if is_event and (last is None or now - last >= _POD_EVENTS):
            self.events[new.spec.node_name] = now

    def consolidatable(self, nodes: Iterable[Node], now: Moment) -> set[str]:
        """Return the names of initialized nodes without pod events for the ``consolidateAfter`` of their NodePool.

        Nodes of a NodePool with ``Never`` are left out, as are nodes of no NodePool.
        """
        waits = {
            pool.name: parse_duration(pool.spec.disruption.consolidate_after)
            for pool in self.pools.pools
            if pool.spec.disruption.consolidate_after != "Never"
        }
        result = set()
        for node in nodes:
            wait = waits.get((node.metadata.labels or {}).get(NODE_POOL, ""))
            since = self.events.get(node.name, self.initialized.get(node.name))
            if wait is not None and since is not None and node.name in self.initialized and now - since >= wait:
                result.add(node.name)
        return result

    def _machine_steps(self, progress: Progress) -> StepsOf[Refresh, Machines]:
        """Return the current machines of the cloud.

        If the cloud returns the same groups object as in the last call, nothing has changed, and the cached machines
        are returned.
        """
        groups = (yield from progress.act(Refresh())).value
        if self.machines is None or self.machines.groups is not groups:
            self.machines = Machines.of(groups)
        return self.machines

    def view_steps(self, progress: Progress, observed: Observed) -> StepsOf[Refresh, ClusterView]:
        """Request the machines of the cloud, and return the cluster as Karpenter sees it now.

        Also updates :attr:`requested`, the machines without a node.
        """
        machines = yield from self._machine_steps(progress)
        now, snapshot = progress.now, observed.snapshot
        group_of = dict(machines.group_of)
        registered = {node.spec.provider_id for node in snapshot.columns.objects}
        requested = [machine for machine in machines.wanted if machine not in registered]
        group_of.update({machine: machines.wanted[machine] for machine in requested})
        self.requested = {machine: self.requested.get(machine, now) for machine in requested}
        managed = ManagedNodes(
            group_of=group_of,
            requested=requested,
            initialized=self.initialized.keys(),
            deleting=self.deleting,
            nominated={name for name, until in self.nominated.items() if until > now},
            consolidatable=self.consolidatable(snapshot.columns.objects, now),
            unavailable={group for group, until in self.unavailable.items() if until > now},
        )
        return ClusterView(snapshot, self.pools, self.offered, self.groups, managed, observed.budgets, now)

    def launch_steps(self, progress: Progress, claim: PlannedClaim) -> StepsOf[IncreaseSize | Refresh, str]:
        """Launch a node claim: try its offerings, the cheapest first, until one is in stock.

        An offering that the cloud refuses, for whatever reason, is not tried again for 180 s. Returns the provider ID
        of the machine; empty if nothing could be launched, or if the cloud lists no new machine of the group.
        """
        before = (yield from self._machine_steps(progress)).wanted
        for offering in claim.offerings:
            if self.unavailable.get(offering.group, progress.now) > progress.now:
                continue  # another claim of this round found that out
            outcome = yield from progress.act(IncreaseSize(group=offering.group, delta=1, atomic=True))
            if outcome.error is not None:
                self.unavailable[offering.group] = progress.now + _UNAVAILABLE
                continue
            after = (yield from self._machine_steps(progress)).wanted
            return next((each for each in after if after[each] == offering.group and each not in before), "")
        return ""

    def nominate(self, nodes: Collection[str], now: Moment) -> None:
        """Protect nodes on which pending pods were placed from disruption (Karpenter: nomination).

        ``nodes``: names. The protection ends at ``now`` plus :attr:`KarpenterOptions.nomination`.
        """
        self.nominated.update(dict.fromkeys(nodes, now + self.options.nomination))


_WATCHES: Final = (
    Watch(kind="Node", api_version="v1", typed=True),
    Watch(kind="Pod", api_version="v1", typed=True),
    Watch(kind="PodDisruptionBudget", api_version="policy/v1"),
)


class Provisioner:
    """Driver that collects pending pods in batches, places each batch, and launches nodes for it."""

    name = "karpenter"

    def __init__(self, state: KarpenterState) -> None:
        self._state = state
        self._idle = duration(state.options.batch_idle_duration)
        self._longest = duration(state.options.batch_max_duration)
        self._pending: set[str] = set()
        self._batch: set[str] = set()
        self._first: Moment | None = None
        self._last: Moment = 0
        self._retry: Moment = 0
        self._tried: set[str] = set()

    @property
    def watches(self) -> Sequence[Watch]:
        """Return the watches of nodes, pods and their budgets."""
        return _WATCHES

    def notice(self, change: Change, now: Moment) -> None:
        """Add a pod that the scheduler could not place, or a node that is newly tainted for disruption, to the batch.

        A pod that is not pending any more is removed from the pods to be tried again, but stays in the batch. Changes
        of other nodes are ignored.
        """
        item = change.new or change.old
        if isinstance(item, Pod):
            if isinstance(change.new, Pod) and is_provisionable(change.new):
                self._pending.add(item.key)
                self._trigger(item.metadata.uid or item.key, now)
            else:
                self._pending.discard(item.key)
                self._tried.discard(item.key)
        elif isinstance(change.new, Node) and _is_tainted(change.new):
            old = change.old
            if not isinstance(old, Node) or not _is_tainted(old):
                self._trigger(change.new.metadata.uid or change.new.name, now)

    def _trigger(self, key: str, now: Moment) -> None:
        """Add a pod or node (``key``: its UID) to the batch: begin the batch, or extend its time.

        Does nothing if it is in the batch.
        """
        if key in self._batch:
            return
        self._batch.add(key)
        self._first = now if self._first is None else self._first
        self._last = now

    def next_due(self) -> Moment | None:
        """Return when the current batch ends or pods that stayed pending are tried again, whichever is first.

        None if there is neither a batch nor a pod that stayed pending.
        """
        due = [] if self._first is None else [min(self._last + self._idle, self._first + self._longest)]
        if self._tried and not self._tried.isdisjoint(self._pending | self._state.deleting):
            due.append(self._retry + self._idle)
        return min(due, default=None)

    def observe(self, stores: Stores, now: Moment) -> Observed:
        """End the batch, and return what its placement reads: a snapshot and the disruption budgets."""
        del now
        self._batch.clear()
        self._first = None
        self._tried.clear()
        return _observe(stores)

    def steps(self, sight: Observed, now: Moment) -> Steps[None]:
        """Place the pending pods, and the pods of nodes that are being deleted, and launch the nodes that they need.

        Existing nodes that get pods are protected from disruption for a while (:meth:`KarpenterState.nominate`). Pods
        that are still pending 10 s after this attempt are tried again.
        """
        progress = Progress(now)
        view = yield from self._state.view_steps(progress, sight)
        placement = view.place()
        self._state.nominate(set(placement.existing.values()), now)
        for claim in placement.claims:
            yield from self._state.launch_steps(progress, claim)
        self._retry = progress.now + _RETRY
        self._tried = self._pending | self._state.deleting


def _is_tainted(node: Node) -> bool:
    """Check whether a node has the taint of disrupted nodes."""
    return any(taint.key == DISRUPTED.key and taint.effect == DISRUPTED.effect for taint in node.spec.taints)


class Disrupter:
    """Driver that looks for nodes to remove or replace every ten seconds, and begins one disruption at a time."""

    name = "karpenter-disruption"

    def __init__(self, state: KarpenterState) -> None:
        self._state = state
        self._due: Moment = 0
        self._unchanged: tuple[Any, ...] | None = None
        self._checked: Moment = 0

    @property
    def watches(self) -> Sequence[Watch]:
        """Return the watches of nodes, pods and their budgets."""
        return _WATCHES

    def notice(self, change: Change, now: Moment) -> None:
        """Note which nodes are initialized, and when their pods change."""
        if change.watch.kind == "Node":
            self._state.note_node(change, now)
        else:
            self._state.note_pod(change, now)

    def next_due(self) -> Moment | None:
        """Return when the search for nodes to disrupt runs next; never None."""
        return self._due

    def observe(self, stores: Stores, now: Moment) -> Observed:
        """Return what the search reads: a snapshot and the disruption budgets."""
        del now
        return _observe(stores)

    def steps(self, sight: Observed, now: Moment) -> Steps[None]:
        """Try the methods in order until one finds nodes to disrupt, and disrupt these nodes.

        A command that a method finds is validated again after 15 seconds, against the cluster at that time. If it is no
        longer valid, or its replacement cannot be launched, the next method is tried. If a search found nothing, no
        search is done for 5 minutes while its inputs are unchanged.
        """
        state, progress = self._state, Progress(now)
        view = yield from state.view_steps(progress, sight)
        inputs = _inputs(view)
        if _is_same(inputs, self._unchanged) and now < self._checked + _RECHECK:
            self._due = now + _POLLING
            return
        has_waited = False
        for method in METHODS:
            command = find_command(view, method)
            if command is None:
                continue
            yield from progress.wait(_VALIDATION)
            has_waited = True
            observed = (yield from progress.act(ReadStores(_observe))).value
            view = yield from state.view_steps(progress, observed)
            command = revalidate(view, command)
            if command is not None and (yield from self._start_steps(progress, view, command)):
                self._due = progress.now
                return
        self._unchanged, self._checked = (None if has_waited else inputs), now
        self._due = progress.now + _POLLING

    def _start_steps(self, progress: Progress, view: ClusterView, command: Command) -> StepsOf[Any, bool]:
        """Taint the nodes of a command, launch their replacement, if any, and pass the command to the terminator.

        Existing nodes that get the pods are protected from disruption for a while. If the replacement cannot be
        launched, remove the taints and return False; otherwise return True.
        """
        names = [candidate.name for candidate in command.candidates]
        running = RunningCommand(names, "", progress.now)
        self._state.commands.append(running)  # before the first change of a node, by which the terminator wakes up
        for name in names:
            yield from _taint_steps(progress, view, name, add=True)
        if command.replacement is not None:
            running.replacement = yield from self._state.launch_steps(progress, command.replacement)
            if not running.replacement:
                self._state.commands.remove(running)
                for name in names:
                    yield from _taint_steps(progress, view, name, add=False)
                return False
        running.is_started = True
        self._state.nominate(command.targets, progress.now)
        return True


def _inputs(view: ClusterView) -> tuple[Any, ...]:
    """Return the inputs of a search for nodes to disrupt. Equal inputs lead to the same result."""
    managed = view.managed
    allowed = [count_allowed(view, reason) for reason in dict.fromkeys(method.reason for method in METHODS)]
    sets = (managed.deleting, managed.nominated, managed.consolidatable, managed.unavailable, managed.requested)
    return view.snapshot, allowed, *map(frozenset, sets)


def _is_same(inputs: tuple[Any, ...], last: tuple[Any, ...] | None) -> bool:
    """Check whether the inputs equal those of the last search (None: no search). Snapshots must be identical."""
    return last is not None and inputs[0] is last[0] and inputs[1:] == last[1:]


def _taint_steps(progress: Progress, view: ClusterView, name: str, *, add: bool) -> StepsOf[Patch, None]:
    """Add the taint of disrupted nodes to a node, or remove the taint.

    A node that ``view`` does not have is ignored. The other taints stay as in ``view``.
    """
    index = view.snapshot.columns.index
    if name not in index:
        return
    node = view.snapshot.columns.objects[index[name]]
    taints: list[Taint] = [taint for taint in node.spec.taints if taint.key != DISRUPTED.key]
    if add:
        taints.append(DISRUPTED)
    patch = {"spec": {"taints": [to_dict(taint) for taint in taints]}}
    yield from progress.act(Patch(kind="Node", name=name, patch=patch))


class Terminator:
    """Driver that drains disrupted nodes, deletes their machines, and deletes machines that do not register."""

    name = "karpenter-termination"

    def __init__(self, state: KarpenterState) -> None:
        self._state = state
        self._last: Moment = 0

    @property
    def watches(self) -> Sequence[Watch]:
        """Return the watches of nodes, pods and their budgets."""
        return _WATCHES

    def notice(self, change: Change, now: Moment) -> None:
        """Ignore changes: the rounds read the current objects."""

    def next_due(self) -> Moment | None:
        """Return the time of the next round, which is never None.

        There is one every second while disruptions are in progress or nodes are drained, otherwise every minute.
        """
        state = self._state
        return self._last + (_QUEUE_INTERVAL if state.commands or state.draining else _LIVENESS_INTERVAL)

    def observe(self, stores: Stores, now: Moment) -> Observed:
        """Begin a round at ``now``: return what it reads, a snapshot and the disruption budgets."""
        self._last = now
        return _observe(stores)

    def steps(self, sight: Observed, now: Moment) -> Steps[None]:
        """Start and continue to drain nodes, and delete drained machines.

        Machines that have not registered a node within 15 minutes are deleted, too.
        """
        progress, state = Progress(now), self._state
        view = yield from state.view_steps(progress, sight)
        yield from self._advance_commands(progress, view)
        for name in list(state.draining):
            yield from self._drain_steps(progress, view, name)
        for machine, since in list(state.requested.items()):
            if now - since >= _REGISTRATION:
                group = view.managed.group_of[machine]
                yield from progress.act(DeleteNodes(group=group, nodes=(machine,)))
                del state.requested[machine]

    def _advance_commands(self, progress: Progress, view: ClusterView) -> StepsOf[Patch, None]:
        """Begin to drain the nodes of commands whose replacement is initialized, or that need no replacement.

        A command is dropped, and the taint of its nodes removed, if its replacement was deleted or is not initialized
        after 10 minutes. A command whose replacement is not launched yet waits.
        """
        state, now = self._state, progress.now
        nodes = {node.spec.provider_id: node.name for node in view.snapshot.columns.objects}
        waiting = []
        for command in state.commands:
            if not command.is_started:
                waiting.append(command)
                continue
            replacement = nodes.get(command.replacement, "")
            if not command.replacement or replacement in state.initialized:
                state.draining.update({name: now for name in command.nodes if name in view.snapshot.columns.index})
            elif now - command.begun > _COMMAND_TIMEOUT or not (replacement or command.replacement in state.requested):
                for name in command.nodes:
                    yield from _taint_steps(progress, view, name, add=False)
            else:
                waiting.append(command)
        state.commands = waiting

    def _drain_steps(self, progress: Progress, view: ClusterView, name: str) -> StepsOf[Any, None]:
        """Evict the pods of a node. Once no pod is left to wait for, delete the node's machine.

        The machine is deleted at the earliest ``_MIN_DRAIN`` after the beginning of the drain; a refused deletion is
        requested again in the next round. A node of no group is no longer drained.
        """
        state = self._state
        group = view.managed.group_of.get(name)
        if group is None:
            del state.draining[name]
            return
        pods = [pod for pod in view.pods_by_node.get(name, ()) if is_drained(pod)]
        for pod in pods:
            if is_evictable(pod, progress.now):
                yield from progress.act(Evict(namespace=pod.metadata.namespace, name=pod.metadata.name))
        if pods or progress.now - state.draining[name] < _MIN_DRAIN:
            return
        outcome = yield from progress.act(DeleteNodes(group=group, nodes=(name,)))
        if outcome.error is None:
            del state.draining[name]
            state.deleted.add(name)


def karpenter_drivers(state: KarpenterState) -> list[Provisioner | Disrupter | Terminator]:
    """Return Karpenter's controllers, which share ``state``, in the order of their ranks."""
    return [Disrupter(state), Provisioner(state), Terminator(state)]
