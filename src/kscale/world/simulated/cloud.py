"""Simulated cloud: node groups whose machines boot, fail, run out of stock and are lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from kscale.effects import SECOND, Moment, VirtualTime
from kscale.errors import InputError, Problem
from kscale.objects.api.core import Node, NodeSpec, Taint
from kscale.objects.api.meta import Condition, KubeObject, ObjectMeta
from kscale.objects.conditions import with_condition
from kscale.objects.node_selectors import HOSTNAME
from kscale.objects.nodegroup import InstanceError, InstanceStatus, NodeGroup, ProviderError
from kscale.world.nodegroups.provider import CLOUD_ERROR, Provider
from kscale.world.simulated.api_server import ApiObjects, one_by_one
from kscale.world.simulated.controllers import HAPPENINGS
from kscale.world.simulated.load import DurationDistribution, RandomDraws
from kscale.world.simulated.stores import ClusterView

_MOST_MACHINES: Final = 1_000_000
"""Machines that a group may have at the beginning: more would take minutes to create."""
__all__ = ["GroupTimes", "Machine", "Pool", "SimulatedCloud"]


class GroupTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Behaviour of a group's machines. Durations are in nanoseconds.

    - ``boot``: from the request to the node's registration. ``apart``: additional delay of each further machine of the
      same increase. ``ready``: from registration to readiness. ``deletion``: from the deletion request to removal.
    - ``lifetime``: time after which a machine is lost (None: never). ``replaced``: whether the group replaces it.
    - ``failures``: share of machines, in millionths, that never register.
    - ``stock``: maximum number of machines (None: unlimited). ``out_of_stock``: (begin, end) intervals without stock.
    - ``creation``: time until a group that is created asynchronously exists.
    - ``startup_taints``: taints that a node has until ``startup`` after it is ready.
    """

    boot: DurationDistribution = DurationDistribution.fixed(60 * SECOND)
    apart: int = 0
    ready: DurationDistribution = DurationDistribution.fixed(0)
    deletion: DurationDistribution = DurationDistribution.fixed(30 * SECOND)
    lifetime: DurationDistribution | None = None
    failures: int = 0
    stock: int | None = None
    out_of_stock: tuple[tuple[Moment, Moment], ...] = ()
    creation: int = 0
    startup_taints: tuple[Taint, ...] = ()
    startup: DurationDistribution = DurationDistribution.fixed(0)
    replaced: bool = True

    def in_stock(self, running: int, now: Moment) -> bool:
        """Return whether the cloud can create another machine at ``now``, beside ``running`` ones of the group."""
        if self.stock is not None and running >= self.stock:
            return False
        return not any(begin <= now < end for begin, end in self.out_of_stock)


class Machine(msgspec.Struct, kw_only=True):
    """Machine of a group. ``id``: its provider ID. ``node``: whether it has registered as a node.

    ``state``: ``creating``, ``running`` or ``deleting``. ``since``: time of its request.
    """

    name: str
    id: str
    since: Moment
    state: str = "creating"
    node: bool = False
    error: InstanceError | None = None


class Pool(msgspec.Struct, kw_only=True):
    """Node group and its machines by name.

    ``paid``: cost in machine nanoseconds up to ``counted``. ``created``: number of machines ever created. ``exists``
    False: the group has not been created yet. ``added``, ``removed``, ``lost``: machines requested (including
    replacements of lost ones), deleted, and lost since the group exists. ``failed``: machines with a creation error.
    ``description``: the current group, None after a change.
    """

    group: NodeGroup
    times: GroupTimes
    counted: Moment
    target: int = 0
    machines: dict[str, Machine] = {}
    exists: bool = True
    upcoming: bool = False
    created: int = 0
    paid: int = 0
    added: int = 0
    removed: int = 0
    lost: int = 0
    failed: int = 0
    description: NodeGroup | None = None

    @property
    def billed_count(self) -> int:
        """Return the number of machines that cost money: machines without a creation error."""
        return len(self.machines) - self.failed

    def count(self, now: Moment) -> None:
        """Add the cost up to now to ``paid``. Call it before the number of machines changes."""
        self.paid += self.billed_count * (now - self.counted)
        self.counted = now


_NOT_READY: Final = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")


class SimulatedCloud(Provider):
    """Simulated cloud (:class:`kscale.world.protocols.NodeGroups`).

    Its groups have resolved templates. Machines that are nodes from the beginning are listed in their group's
    ``nodes``.
    """

    name = "simulated"

    def __init__(self, api: ApiObjects, view: ClusterView, time: VirtualTime, draws: RandomDraws) -> None:
        self._api, self._view, self._time, self._draws = api, view, time, draws
        self.pools: dict[str, Pool] = {}
        self._refreshed: list[NodeGroup] | None = None
        self._have: tuple[Sequence[str], dict[str, bool]] | None = None
        self.changes = 0
        """Number of changes of groups and machines."""
        api.listen("Node", one_by_one(self._node))

    def add(self, group: NodeGroup, times: GroupTimes) -> None:
        """Add a group, with machines for its nodes and, up to its target size, further machines that exist at once.

        Nodes without a provider ID get one. Raises :class:`~kscale.InputError` if the group has no template or names a
        node that does not exist. Also if the target size of an existing group is above one million, or above both its
        maximum and the number of its nodes.
        """
        if group.template is None:
            raise InputError(f"node group {group.id}: the simulated cloud needs a template")
        largest = min(max(group.max_size, len(group.nodes)), _MOST_MACHINES)
        if group.exists and group.size > largest:
            text = f"{group.size} is more than the group may have: {largest}"
            raise InputError(Problem(text, object=f"node group {group.id}", field="target"))
        pool = Pool(
            group=replace(group, nodes=[], instances=None, target_size=None),
            times=times,
            counted=self._time.now,
            exists=group.exists,
        )
        self.pools[group.id] = pool
        for name in group.nodes:
            node = self._api.find("Node", name)
            if node is None:
                raise InputError(f"node group {group.id}: there is no node {name}")
            id_ = node.spec.provider_id or _id(name)
            if not node.spec.provider_id:
                self._api.put(replace(node, spec=replace(node.spec, provider_id=id_)))
            machine = Machine(name=name, id=id_, since=self._time.now, state="running", node=True)
            pool.machines[name] = machine
            self._age(pool, machine)
        pool.target = len(pool.machines)
        missing = (group.target_size or 0) - pool.target
        if pool.exists and missing > 0:
            pool.target += missing
            for _ in range(missing):
                self._start_machine(pool, boots=False)
        self._invalidate(pool)

    # -- NodeGroups --------------------------------------------------------------------------------------------------

    def refresh(self) -> Sequence[NodeGroup]:
        """Return the current groups; the identical list while nothing has changed."""
        if self._refreshed is None:
            for pool in self.pools.values():
                if pool.description is None:
                    pool.description = self._describe_group(pool)
            self._refreshed = [pool.description for pool in self.pools.values() if pool.description is not None]
        return self._refreshed

    def has_instance(self, node: Node) -> bool:
        """Check whether the machine of a node still exists."""
        return any(node.name in pool.machines for pool in self.pools.values())

    def have_instances(self, names: Sequence[str]) -> Mapping[str, bool]:
        """Return the result of :meth:`has_instance` for each node, by name.

        The result is the identical mapping for the identical ``names`` while nothing has changed.
        """
        if self._have is None or self._have[0] is not names:
            pools = [pool.machines for pool in self.pools.values()]
            self._have = names, {name: any(name in machines for machines in pools) for name in names}
        return self._have[1]

    def increase_size(self, group: str, delta: int, *, atomic: bool = False) -> None:
        """Request ``delta`` machines. A machine that is out of stock becomes an instance with an error.

        Raises ProviderError if the group does not exist, ``delta`` is not positive, the maximum size is exceeded, or
        ``atomic`` is set and the machines are not all in stock.
        """
        pool = self._pool(group)
        if delta <= 0:
            raise ProviderError("size increase must be positive", CLOUD_ERROR)
        if pool.target + delta > pool.group.max_size:
            text = f"size increase too large, desired: {pool.target + delta} max: {pool.group.max_size}"
            raise ProviderError(text, CLOUD_ERROR)
        if atomic and not pool.times.in_stock(pool.billed_count + delta - 1, self._time.now):
            raise ProviderError(f"{delta} machines cannot be created at once", CLOUD_ERROR)
        pool.target += delta
        for number in range(delta):
            self._start_machine(pool, after=number * pool.times.apart)

    def decrease_target_size(self, group: str, delta: int) -> None:
        """Reduce the target size by ``delta`` (negative).

        Raises ProviderError if the group does not exist, ``delta`` is not negative or existing machines would be
        deleted.
        """
        pool = self._pool(group)
        if delta >= 0:
            raise ProviderError("size decrease must be negative", CLOUD_ERROR)
        existing = sum(machine.state != "deleting" for machine in pool.machines.values())
        if pool.target + delta < existing:
            raise ProviderError("attempt to delete existing nodes", CLOUD_ERROR)
        pool.target += delta
        self._invalidate(pool)

    def delete_nodes(self, group: str, nodes: Sequence[Node], *, force: bool = False) -> None:
        """Delete machines by the names of their nodes or by their IDs. They are removed after the deletion time.

        Machines that are being deleted already are skipped. Raises ProviderError if the group does not exist, for a
        machine of another group, and below the minimum size unless ``force`` is set.
        """
        pool = self._pool(group)
        machines = [self._machine(pool, node) for node in nodes]
        deletable = [item for item in machines if item.state != "deleting"]
        if not force and pool.target - len(deletable) < pool.group.min_size:
            raise ProviderError("min size reached, nodes will not be deleted", CLOUD_ERROR)
        pool.count(self._time.now)
        for machine in deletable:
            pool.target -= 1
            pool.removed += machine.error is None
            machine.state = "deleting"
            takes = self._draws.duration(pool.times.deletion, "deletion", machine.name)
            self._schedule(takes, machine, pool, self._remove_machine)
        self._invalidate(pool)

    def create_group(self, group: str, *, asynchronous: bool = False) -> Sequence[NodeGroup]:
        """Create a candidate group, and return it in a list.

        With ``asynchronous``, it becomes available after the creation time of the group. Raises ProviderError if there
        is no candidate with this name, or if it exists.
        """
        pool = self.pools.get(group)
        if pool is None or pool.exists:
            raise ProviderError(f"node group {group} cannot be made", CLOUD_ERROR)
        pool.exists = True
        pool.upcoming = asynchronous and pool.times.creation > 0
        self._invalidate(pool)
        if pool.upcoming:
            self._time.at(self._time.now + pool.times.creation, lambda: self._finish_group(pool), rank=HAPPENINGS)
        return [self._describe_group(pool)]

    def delete_group(self, group: str) -> None:
        """Delete a group, which becomes a candidate again.

        Raises ProviderError if the group does not exist or has machines.
        """
        pool = self._pool(group)
        if pool.machines:
            raise ProviderError(f"node group {group} has machines", CLOUD_ERROR)
        pool.exists, pool.target = False, 0
        self._invalidate(pool)

    # -- life cycle of machines ---------------------------------------------------------------------------------------

    def lose(self, node: str) -> None:
        """Remove the machine ``node`` as lost, and create a replacement if the group replaces lost machines.

        A machine that is being deleted is removed, but neither counted as lost nor replaced. Raises StopIteration if no
        group has a machine of this name.
        """
        pool = next(pool for pool in self.pools.values() if node in pool.machines)
        machine = pool.machines[node]
        was_wanted = machine.state != "deleting"
        pool.lost += was_wanted
        pool.target -= was_wanted and not pool.times.replaced
        self._remove_machine(pool, machine)
        if was_wanted and pool.times.replaced:
            self._start_machine(pool)

    def _start_machine(self, pool: Pool, *, boots: bool = True, after: int = 0) -> None:
        """Request a machine.

        ``after``: nanoseconds that it boots later than usual. ``boots`` False: the machine exists immediately. A
        machine that is out of stock has an error and never boots. Of the other machines, a random share (``failures``
        of the group's times) never boots either.
        """
        now = self._time.now
        pool.count(now)
        name = f"{pool.group.id}-{pool.created}"
        while self._api.find("Node", name) is not None:
            pool.created += 1
            name = f"{pool.group.id}-{pool.created}"
        pool.created += 1
        machine = Machine(name=name, id=_id(name), since=now)
        if not pool.times.in_stock(pool.billed_count, now):
            text = f"out of stock: {pool.group.id}"
            machine.error = InstanceError(class_="OutOfResource", code="OUT_OF_STOCK", message=text)
            pool.failed += 1
        pool.machines[machine.name] = machine
        self._invalidate(pool)
        if machine.error is not None:
            return
        if not boots:
            self._finish_boot(pool, machine)
            return
        pool.added += 1
        if not self._draws.happens(pool.times.failures, "failure", machine.name):
            takes = after + self._draws.duration(pool.times.boot, "boot", machine.name)
            self._schedule(takes, machine, pool, self._finish_boot)

    def _finish_boot(self, pool: Pool, machine: Machine) -> None:
        """Register a booted machine as a node, and schedule its readiness, the end of its startup, and its loss.

        Does nothing if the machine is being deleted.
        """
        if machine.state != "creating":
            return
        machine.state, machine.node = "running", True
        ready = self._draws.duration(pool.times.ready, "ready", machine.name)
        startup = self._draws.duration(pool.times.startup, "startup", machine.name) if pool.times.startup_taints else 0
        taints = pool.times.startup_taints if ready + startup else ()
        self._api.create(_node(pool.group, machine, taints, ready=not ready, at=self._api.now_text))
        if ready:
            self._schedule(ready, machine, pool, self._mark_ready)
        if taints:
            self._schedule(ready + startup, machine, pool, self._finish_startup)
        self._age(pool, machine)
        self._invalidate(pool)

    def _age(self, pool: Pool, machine: Machine) -> None:
        """Schedule the loss of a machine at the end of its lifetime, if machines of the group have one."""
        if pool.times.lifetime is not None:
            takes = self._draws.duration(pool.times.lifetime, "lifetime", machine.name)
            self._schedule(takes, machine, pool, lambda _, lost: self.lose(lost.name))

    def _mark_ready(self, pool: Pool, machine: Machine) -> None:
        """Set the Ready condition of a machine's node to True, and remove the taint ``node.kubernetes.io/not-ready``.

        Startup taints stay until :meth:`_finish_startup`. Does nothing if the node no longer exists. ``pool`` is not
        used.
        """
        del pool
        node = self._api.find("Node", machine.name)
        if node is None:
            return
        taints = [taint for taint in node.spec.taints if taint.key != _NOT_READY.key]
        conditions = with_condition(node.status.conditions, _ready_condition("True", self._api.now_text))
        self._api.put(
            replace(node, spec=replace(node.spec, taints=taints), status=replace(node.status, conditions=conditions))
        )

    def _finish_startup(self, pool: Pool, machine: Machine) -> None:
        """Remove the startup taints of the machine's node, as agents on real nodes do. No effect if it has no node."""
        node = self._api.find("Node", machine.name)
        if node is None:
            return
        startup = {(taint.key, taint.effect) for taint in pool.times.startup_taints}
        taints = [taint for taint in node.spec.taints if (taint.key, taint.effect) not in startup]
        self._api.put(replace(node, spec=replace(node.spec, taints=taints)))

    def _remove_machine(self, pool: Pool, machine: Machine) -> None:
        """Remove a machine and its node."""
        pool.count(self._time.now)
        del pool.machines[machine.name]
        pool.failed -= machine.error is not None
        self._invalidate(pool)
        node = self._api.find("Node", machine.name)
        if node is not None:
            self._api.remove(node)

    def _node(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """Schedule the removal of a deleted node's pods, for the end of the current moment of virtual time.

        The pods stay if a new node has the same name by then. No effect if the node was added or changed.
        """
        if old is not None and new is None:
            name = old.name

            def collect() -> None:
                if self._api.find("Node", name) is None:
                    for pod in self._view.all_on(name):
                        current = self._api.get_current(pod)
                        if current is not None:
                            self._api.remove(current)

            self._time.at(self._time.now, collect, rank=HAPPENINGS)

    def _finish_group(self, pool: Pool) -> None:
        """Mark a created group as existing."""
        pool.upcoming = False
        self._invalidate(pool)

    def _schedule(self, by: int, machine: Machine, pool: Pool, call: Callable[[Pool, Machine], None]) -> None:
        """Schedule a call in ``by`` nanoseconds. The call is skipped if the machine no longer exists by then."""

        def act() -> None:
            if pool.machines.get(machine.name) is machine:
                call(pool, machine)

        self._time.at(self._time.now + by, act, rank=HAPPENINGS)

    def _invalidate(self, pool: Pool) -> None:
        """Count a change of the pool, and drop everything that was cached about its machines."""
        pool.description = None
        self._refreshed = self._have = None
        self.changes += 1

    # -- lookup ------------------------------------------------------------------------------------------------------

    def _pool(self, group: str) -> Pool:
        """Return an existing group. Raises ProviderError if there is none."""
        pool = self.pools.get(group)
        if pool is None or not pool.exists:
            raise ProviderError(f"there is no node group {group}", CLOUD_ERROR)
        return pool

    def _machine(self, pool: Pool, node: Node) -> Machine:
        """Return the machine of a node, or the machine whose provider ID is the node's name.

        Raises ProviderError if the group has no such machine.
        """
        machine = pool.machines.get(node.name)
        if machine is None:  # a machine that never registered is named by its provider ID
            machine = next((other for other in pool.machines.values() if other.id == node.name), None)
        if machine is None:
            raise ProviderError(f"{node.name} is no machine of {pool.group.id}", CLOUD_ERROR)
        return machine

    def _describe_group(self, pool: Pool) -> NodeGroup:
        """Build the current NodeGroup."""
        machines = pool.machines.values()
        status = {
            machine.id: InstanceStatus(state=machine.state, error=machine.error)
            for machine in machines
            if machine.state != "running"
        }
        return replace(
            pool.group,
            target_size=pool.target,
            nodes=[machine.name for machine in machines if machine.node],
            instances=[machine.id for machine in machines],
            instance_status=status,
            exists=pool.exists,
            upcoming=pool.upcoming,
        )

    def paid(self, now: Moment) -> dict[str, int]:
        """Return the cost of each group in machine nanoseconds, from the request of a machine to its removal.

        Machines with a creation error cost nothing. The cost of each pool is brought up to ``now``.
        """
        for pool in self.pools.values():
            pool.count(now)
        return {name: pool.paid for name, pool in self.pools.items()}


def _id(name: str) -> str:
    """Return the provider id of a simulated machine."""
    return f"sim:///{name}"


def _ready_condition(status: str, at: str) -> Condition:
    """Build the condition Ready. ``at``: time of the condition in API format."""
    return Condition(type="Ready", status=status, last_transition_time=at, last_heartbeat_time=at)


def _node(group: NodeGroup, machine: Machine, startup: Sequence[Taint], *, ready: bool, at: str) -> Node:
    """Build the node object of a machine. A node that is not ``ready`` has the taint ``node.kubernetes.io/not-ready``.

    ``startup``: additional taints. ``at``: time of its conditions in API format.
    """
    pattern = group.node_template.node
    taints = [*pattern.spec.taints, *group.taints, *startup]
    conditions = with_condition(
        [condition for condition in pattern.status.conditions if condition.type != "Ready"],
        _ready_condition("True" if ready else "False", at),
    )
    labels = {**(pattern.metadata.labels or {}), **(group.labels or {}), HOSTNAME: machine.name}
    return Node(
        api_version="v1",
        kind="Node",
        metadata=ObjectMeta(name=machine.name, labels=labels, annotations=pattern.metadata.annotations),
        spec=NodeSpec(provider_id=machine.id, taints=taints if ready else [*taints, _NOT_READY]),
        status=msgspec.structs.replace(pattern.status, conditions=conditions, images=[]),  # no images yet
    )
