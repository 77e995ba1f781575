"""Cluster API provider: groups are MachineDeployments, MachineSets and MachinePools.

Upstream: ``cloudprovider/clusterapi``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from kscale.effects import Discover, GetScale, GetUnstructured, List, Moment, Patch, PutScale, to_text
from kscale.errors import InputError, Problem
from kscale.objects.api.autoscaling import Scale
from kscale.objects.api.core import Node
from kscale.objects.api.meta import KubeObject
from kscale.objects.kinds import RESTMapper, RESTMappingError, group_of
from kscale.objects.machine_groups import (
    CLUSTER_API,
    DEFAULT_ARCHITECTURE,
    MACHINE_KINDS,
    Infrastructure,
    Machine,
    MachineOwner,
    MachinePool,
    id_of_owner,
    machine_groups,
    owner_ids,
    read_infrastructure,
)
from kscale.objects.nodegroup import NOT_IMPLEMENTED, InstanceError, InstanceStatus, NodeGroup, ProviderError
from kscale.objects.pod_owners import controller_of
from kscale.world.nodegroups.provider import CLOUD_ERROR, Ask, Nodes, Provider, value_of

__all__ = ["Discovery", "MachineGroupsCloud", "read_discovery"]

_log = logging.getLogger(__name__)
_DELETE: Final = "delete-machine"
_CLUSTER: Final = "cluster-name"
_FAILED = InstanceError(class_="Other", code="ProvisioningFailed", message="Machine provisioning failed")
_STUCK = InstanceError(class_="Other", code="DeletingFailed", message="Machine deletion failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """Filter for groups by namespace, cluster and labels; empty fields match everything."""

    namespace: str = ""
    cluster: str = ""
    labels: dict[str, str] = field(default_factory=dict)

    def matches(self, owner: MachineOwner, api_group: str = CLUSTER_API) -> bool:
        """Return whether a group matches. ``api_group`` is the prefix of the label with the cluster's name."""
        labels = owner.metadata.labels or {}
        cluster = owner.spec.cluster_name or labels.get(f"{api_group}/{_CLUSTER}", "")
        return (
            self.namespace in ("", owner.namespace)
            and self.cluster in ("", cluster)
            and self.labels.items() <= labels.items()
        )


def read_discovery(text: str) -> Discovery:
    """Parse ``--node-group-auto-discovery``, such as ``clusterapi:namespace=x,clusterName=y,label=value``.

    Raises InputError if the text is invalid.
    """
    flag = "--node-group-auto-discovery"
    kind, colon, rest = text.partition(":")
    if not colon or kind != "clusterapi":
        raise InputError(Problem(f"unsupported discoverer specified: {kind}", field=flag))
    options: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        key, equal, value = part.partition("=")
        if not equal or not key or not value:
            raise InputError(Problem(f"invalid key=value pair {part!r}", field=flag))
        options[key] = value
    return Discovery(namespace=options.pop("namespace", ""), cluster=options.pop("clusterName", ""), labels=options)


@dataclass(slots=True)
class _CachedGroup:
    """A group as of the last refresh."""

    owner: MachineOwner
    minimum: int
    maximum: int
    machines: list[Machine]


class MachineGroupsCloud(Provider):
    """Cluster API provider.

    - ``ask``: performs actions on the management cluster. ``nodes``: returns the nodes of the workload cluster.
    - ``api_version``: version of Cluster API in the management cluster; its group prefixes labels and annotations.
    - ``discovery``: filters for groups (empty: all groups).
    - ``now``: clock for the time at which a machine is marked for deletion.
    - ``architecture``: architecture of new nodes whose infrastructure object cannot be read.
    """

    name = "clusterapi"
    gpu_label = "cluster-api/accelerator"

    def __init__(
        self,
        ask: Ask,
        nodes: Nodes,
        *,
        api_version: str,
        now: Callable[[], Moment],
        discovery: Sequence[Discovery] = (),
        architecture: str = DEFAULT_ARCHITECTURE,
    ) -> None:
        self._ask = ask
        self._nodes = nodes
        self._api_version = api_version
        self._api_group = group_of(api_version)
        self._now = now
        self._discovery = discovery
        self._architecture = architecture
        self._known: dict[str, _CachedGroup] = {}
        self._running: set[str] = set()

    def refresh(self) -> Sequence[NodeGroup]:
        """Read owners and machines again, and return the groups with their nodes and instances.

        Owners that no discovery filter selects, without size annotations or with a maximum of 0 are no groups. Other
        groups that cannot be scaled are left out and logged. Raises ProviderError if owners or machines cannot be
        listed.
        """
        owners = [item for kind in MACHINE_KINDS for item in self._list(kind) if isinstance(item, MachineOwner)]
        machines = [item for item in self._list("Machine") if isinstance(item, Machine)]
        home = owner_ids(owners)
        machines_by_group: dict[str, list[Machine]] = {}
        for machine in machines:
            above = controller_of(machine.metadata)
            if above is not None:
                owner = f"{above.kind}/{machine.namespace}/{above.name}"
                machines_by_group.setdefault(home.get(owner, owner), []).append(machine)
        nodes = self._nodes()
        result = machine_groups(
            owners,
            nodes,
            self._infrastructure,
            self._architecture,
            include=self._is_discovered,
            api_group=self._api_group,
        )
        for warning in result.warnings:
            _log.warning("%s", warning)
        by_id = {id_of_owner(item): item for item in owners}
        self._known = {
            group.id: _CachedGroup(by_id[group.id], group.min_size, group.max_size, machines_by_group.get(group.id, []))
            for group in result.groups
        }
        self._running = {machine.spec.provider_id for machine in machines if machine.spec.provider_id}
        return [self._complete_group(group, nodes) for group in result.groups]

    def _is_discovered(self, owner: MachineOwner) -> bool:
        """Check whether a filter selects a group; without filters every group is selected."""
        return not self._discovery or any(discovery.matches(owner, self._api_group) for discovery in self._discovery)

    def _complete_group(self, group: NodeGroup, nodes: Sequence[Node]) -> NodeGroup:
        """Return the group with its nodes, and with its machines as instances.

        Machines without an ID are left out. The instances of a MachinePool without machines are its provider IDs.
        """
        known = self._known[group.id]
        ids = {node.name: node.spec.provider_id or "" for node in nodes}
        instances: dict[str, InstanceStatus | None] = {}
        members = set(group.nodes)
        for machine in known.machines:
            id_, status = _instance(machine, ids)
            if id_:
                instances[id_] = status
            if machine.status.node_ref is not None and machine.status.node_ref.name in ids:
                members.add(machine.status.node_ref.name)
        if isinstance(known.owner, MachinePool) and not known.machines:
            instances = dict.fromkeys(known.owner.spec.provider_id_list or ())
        members |= {name for name, id_ in ids.items() if id_ and id_ in instances}
        return replace(
            group,
            nodes=[node.name for node in nodes if node.name in members],
            instances=list(instances),
            instance_status={id_: status for id_, status in instances.items() if status is not None},
        )

    def _infrastructure(self, owner: MachineOwner) -> Infrastructure | None:
        """Return the capacity that the infrastructure provider declares for a group's machines, or None.

        A read error is logged, as annotations may describe the machines.
        """
        reference = owner.spec.template.spec.infrastructure_ref
        if reference is None:
            return None
        try:
            version = reference.api_version
            if reference.api_group:
                mapper: RESTMapper = value_of(self._ask(Discover()))
                (resource, *_) = mapper.resources(reference.api_group, reference.kind)
                version = mapper.find_preferred(resource).api_version
            action = GetUnstructured(
                kind=reference.kind, api_version=version, namespace=owner.namespace, name=reference.name
            )
            return read_infrastructure(value_of(self._ask(action)))
        except (ProviderError, RESTMappingError) as error:
            _log.warning("%s: unable to read infrastructure reference: %s", id_of_owner(owner), error)
            return None

    def has_instance(self, node: Node) -> bool:
        """Return True if a node has a machine. Raises ProviderError if no machine is known, as that is inconclusive."""
        if node.spec.provider_id in self._running:
            return True
        raise ProviderError(f"machine not found for node {node.name}", CLOUD_ERROR)

    def increase_size(self, group: str, delta: int, *, atomic: bool = False) -> None:
        """Increase the number of replicas by ``delta``.

        Raises ProviderError if the group is unknown, ``delta`` is not positive, the maximum size would be exceeded, the
        scale cannot be read or written, or ``atomic`` is set.
        """
        if atomic:
            raise ProviderError(NOT_IMPLEMENTED)
        current = self._get_cached(group)
        if delta <= 0:
            raise ProviderError("size increase must be positive", CLOUD_ERROR)
        scale = self._scale(current)
        self._set_size(current, scale, scale.spec.replicas + delta)

    def decrease_target_size(self, group: str, delta: int) -> None:
        """Reduce the number of replicas by ``delta`` (negative).

        Raises ProviderError if the group is unknown, ``delta`` is not negative, existing machines would be deleted, the
        size would be below the minimum, or the scale cannot be read or written.
        """
        current = self._get_cached(group)
        if delta >= 0:
            raise ProviderError("size decrease must be negative", CLOUD_ERROR)
        scale = self._scale(current)
        size = scale.spec.replicas
        existing = sum(bool(machine.spec.provider_id) for machine in current.machines)
        if size + delta < existing:
            text = f"attempt to delete existing nodes targetSize:{size} delta:{delta} existingNodes: {existing}"
            raise ProviderError(text, CLOUD_ERROR)
        self._set_size(current, scale, size + delta)

    def delete_nodes(self, group: str, nodes: Sequence[Node], *, force: bool = False) -> None:
        """Mark the machines of nodes for deletion, and reduce the number of replicas by one for each.

        Machines that are being deleted already are left alone. For a node of a pool without machines only the number is
        reduced. If it cannot be reduced, this machine's mark is removed; machines before it stay marked.

        Raises ProviderError if the size is at the minimum or would be below it, for a node of another group, if a read
        or write fails, or if ``force`` is set.
        """
        if force:
            raise ProviderError(NOT_IMPLEMENTED)
        current = self._get_cached(group)
        replicas = self._scale(current).spec.replicas
        if replicas <= current.minimum:
            raise ProviderError("min size reached, nodes will not be deleted", CLOUD_ERROR)
        machines = [self._machine(current, group, node) for node in nodes]
        if replicas - len(nodes) < current.minimum:
            text = f'unable to delete {len(nodes)} machines in "{group}", machine replicas are {replicas}'
            raise ProviderError(f"{text}, minSize is {current.minimum}", CLOUD_ERROR)
        for machine in machines:
            if machine is None:
                self._shrink(current)
            elif not machine.metadata.deletion_timestamp:
                self._mark(machine, to_text(self._now()))
                try:
                    self._shrink(current)
                except ProviderError:
                    self._mark(machine, None)
                    raise

    def _shrink(self, known: _CachedGroup) -> None:
        """Reduce the number of replicas by one. Raises ProviderError."""
        scale = self._scale(known)
        self._set_size(known, scale, scale.spec.replicas - 1)

    def _machine(self, known: _CachedGroup, group: str, node: Node) -> Machine | None:
        """Return the machine of a node, or None for a node of a pool without machines.

        Raises ProviderError if the node does not belong to the group.
        """
        for machine in known.machines:
            named = machine.status.node_ref is not None and machine.status.node_ref.name == node.name
            id_ = node.spec.provider_id
            if named or (id_ and id_ in (machine.spec.provider_id, _instance(machine, {})[0])):
                return machine
        if isinstance(known.owner, MachinePool) and node.spec.provider_id in (known.owner.spec.provider_id_list or ()):
            return None
        text = f'node "{node.spec.provider_id}" doesn\'t belong to node group "{group}"'
        raise ProviderError(text, CLOUD_ERROR)

    def _mark(self, machine: Machine, value: str | None) -> None:
        """Set the annotation that marks a machine for deletion, or (None) remove it. Raises ProviderError."""
        patch = Patch(
            kind="Machine",
            api_version=self._api_version,
            namespace=machine.namespace,
            name=machine.name,
            patch={"metadata": {"annotations": {f"{self._api_group}/{_DELETE}": value}}},
        )
        value_of(self._ask(patch), f"machine {machine.namespace}/{machine.name}")

    def _scale(self, known: _CachedGroup) -> Scale:
        """Read the scale of a group. Raises ProviderError."""
        action = GetScale(namespace=known.owner.namespace, resource=self._resource(known.owner), name=known.owner.name)
        scale: Scale = value_of(self._ask(action))
        return scale

    def _set_size(self, known: _CachedGroup, scale: Scale, size: int) -> None:
        """Write the number of replicas. Raises ProviderError outside of the group's limits or if the write fails."""
        if size > known.maximum:
            raise ProviderError(f"size increase too large - desired:{size} max:{known.maximum}", CLOUD_ERROR)
        if size < known.minimum:
            raise ProviderError(f"size decrease too large - desired:{size} min:{known.minimum}", CLOUD_ERROR)
        action = PutScale(
            namespace=known.owner.namespace, resource=self._resource(known.owner), scale=scale, replicas=size
        )
        value_of(self._ask(action))

    def _get_cached(self, group: str) -> _CachedGroup:
        """Return a group of the last refresh. Raises ProviderError if there is none."""
        if group not in self._known:
            raise ProviderError(f"there is no node group {group}", CLOUD_ERROR)
        return self._known[group]

    def _resource(self, owner: MachineOwner) -> str:
        """Return the group-resource of an owner (``machinesets.cluster.x-k8s.io``)."""
        return f"{type(owner).__name__.lower()}s.{self._api_group}"

    def _list(self, kind: str) -> list[KubeObject]:
        """List objects of a kind. Raises ProviderError; a kind MachinePool that is not served has no objects."""
        outcome = self._ask(List(kind=kind, api_version=self._api_version, watched=False, read_as=CLUSTER_API))
        if kind == "MachinePool" and outcome.error is not None and outcome.error.is_not_found:
            return []  # not every management cluster serves MachinePools
        objects: list[KubeObject] = value_of(outcome, f"couldn't list {kind}")
        return objects


def _instance(machine: Machine, ids: dict[str, str]) -> tuple[str, InstanceStatus | None]:
    """Return (instance ID, status) of a machine.

    The status is None if it is running, or has failed with a node.

    A machine without a provider ID has the provider ID of its node (empty if that has none). If it has failed or has no
    node, it has an ID that describes its state. ``ids``: provider IDs by node name.
    """
    if machine.spec.provider_id:
        return machine.spec.provider_id, None
    name = f"{machine.namespace}_{machine.name}"
    is_deleting = bool(machine.metadata.deletion_timestamp)
    node = machine.status.node_ref
    if machine.status.failure_message:
        if is_deleting:
            return f"failed-machine-{name}", InstanceStatus(state="deleting", error=_STUCK)
        return f"failed-machine-{name}", None if node else InstanceStatus(state="creating", error=_FAILED)
    if node is not None:
        return ids.get(node.name, ""), None
    if is_deleting:
        return f"deleting-machine-{name}", InstanceStatus(state="deleting")
    return f"pending-machine-{name}", InstanceStatus(state="creating")
