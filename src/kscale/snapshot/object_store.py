"""Objects of a cluster besides pods: nodes in list order, and every other kind by key (upstream: informers)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from kscale.objects.api.cluster_autoscaler import CapacityBuffer, CapacityQuota, ProvisioningRequest
from kscale.objects.api.core import Node, PodTemplate, Service
from kscale.objects.api.meta import CustomWorkload, KubeObject, object_key
from kscale.objects.api.policy import PodDisruptionBudget
from kscale.objects.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from kscale.objects.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from kscale.objects.kinds import custom_kind_key, group_of, kind_of, with_namespace
from kscale.objects.nodegroup import NodeTemplate
from kscale.snapshot.columns import NodeColumns

__all__ = ["INFORMED_KINDS", "Informers", "ObjectStore", "kind_name"]


INFORMED_KINDS = frozenset(
    {
        "Namespace", "Service", "ReplicationController", "ReplicaSet", "StatefulSet", "PersistentVolume",
        "PersistentVolumeClaim", "StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity", "VolumeAttachment",
        "ResourceClaim", "ResourceSlice", "DeviceClass", "DaemonSet", "Job", "PodDisruptionBudget", "CapacityQuota",
        "CapacityBuffer", "ProvisioningRequest", "PodTemplate",
    }
)  # fmt: skip

_EXTENDED_RESOURCES = "resource.kubernetes.io/extended-resource-claim"
_WORKLOADS = ("ReplicationController", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")


class Informers(msgspec.Struct, frozen=True, eq=False):
    """Indexed read-only views, built once per snapshot from the cluster's objects, in their order.

    ``leftovers``: claims that a scheduler created for the extended resources of a pod, by the pod's UID. ``binding``:
    whether some claim has an allocation time and devices with binding conditions. ``pod_templates``: by
    ``namespace/name``.
    """

    namespaces: dict[str, dict[str, str] | None]
    services: dict[str, list[Service]]
    controllers: dict[tuple[str, str, str], Any]
    volumes: dict[str, PersistentVolume]
    claims: dict[tuple[str, str], PersistentVolumeClaim]
    storage_classes: dict[str, StorageClass]
    csi_nodes: dict[str, CSINode]
    csi_drivers: dict[str, CSIDriver]
    capacities: list[CSIStorageCapacity]
    attachments: list[VolumeAttachment]
    resource_claims: dict[tuple[str, str], ResourceClaim]
    leftovers: dict[str, ResourceClaim]
    binding: bool
    resource_slices: list[ResourceSlice]
    device_classes: dict[str, DeviceClass]
    workloads: list[KubeObject]
    budgets: list[PodDisruptionBudget]
    quotas: list[CapacityQuota]
    capacity_buffers: list[CapacityBuffer]
    provisioning_requests: list[ProvisioningRequest]
    pod_templates: dict[str, PodTemplate]

    @classmethod
    def of(cls, objects: dict[str, dict[str, Any]]) -> Informers:
        """Build the views from ``kind -> key -> object``."""
        return cls(**{field: make(objects) for field, (_, make) in _FIELDS.items()})

    def with_changes(self, objects: dict[str, dict[str, Any]], kinds: Collection[str]) -> Informers:
        """Return views in which those of the changed ``kinds`` are rebuilt."""
        fresh = {field: make(objects) for field, (of, make) in _FIELDS.items() if not of.isdisjoint(kinds)}
        return msgspec.structs.replace(self, **fresh)

    def with_devices(self, nodes: Sequence[NodeTemplate]) -> Informers:
        """Return views that include the CSINodes and ResourceSlices of additional nodes."""
        csi_nodes = {each.csi_node.name: each.csi_node for each in nodes if each.csi_node is not None}
        slices = [resource_slice for each in nodes for resource_slice in each.resource_slices]
        if not csi_nodes and not slices:
            return self
        return msgspec.structs.replace(
            self,
            csi_nodes={**self.csi_nodes, **csi_nodes},
            resource_slices=[*self.resource_slices, *slices],
        )


_Objects = dict[str, dict[str, Any]]


def _objects_of(objects: _Objects, kind: str) -> Iterable[Any]:
    """Return the objects of a kind, in order of first appearance."""
    return objects.get(kind, {}).values()


def _services(objects: _Objects) -> dict[str, list[Service]]:
    """Return the services by namespace."""
    services: dict[str, list[Service]] = {}
    for service in _objects_of(objects, "Service"):
        services.setdefault(service.namespace, []).append(service)
    return services


def _controllers(objects: _Objects) -> dict[tuple[str, str, str], Any]:
    """Return the controllers that may have a selector, by kind, namespace and name."""
    kinds = ("ReplicationController", "ReplicaSet", "StatefulSet")
    return {(kind, each.namespace, each.name): each for kind in kinds for each in _objects_of(objects, kind)}


def _extended_resource_claims(objects: _Objects) -> dict[str, ResourceClaim]:
    """Return the claims for extended resources by UID of their pod."""
    claims: dict[str, ResourceClaim] = {}
    for claim in _objects_of(objects, "ResourceClaim"):
        if (claim.metadata.annotations or {}).get(_EXTENDED_RESOURCES) == "true":
            for owner in claim.metadata.owner_references:
                if owner.controller:
                    claims.setdefault(owner.uid, claim)
    return claims


def _has_binding_conditions(claim: ResourceClaim) -> bool:
    """Check whether some allocated device must become ready first."""
    allocation = claim.status.allocation
    return allocation is not None and bool(
        allocation.allocation_timestamp and any(result.binding_conditions for result in allocation.devices.results)
    )


def _index_by_name(kind: str) -> tuple[frozenset[str], Callable[[_Objects], Any]]:
    """Return the kinds that a view depends on, and the function that builds the view (object by name)."""
    return frozenset({kind}), lambda objects: {each.name: each for each in _objects_of(objects, kind)}


def _index_by_key(kind: str) -> tuple[frozenset[str], Callable[[_Objects], Any]]:
    """Return the kinds that a view depends on, and the function that builds the view (object by (namespace, name))."""
    return frozenset({kind}), lambda objects: {(each.namespace, each.name): each for each in _objects_of(objects, kind)}


def _list_objects(kind: str) -> tuple[frozenset[str], Callable[[_Objects], Any]]:
    """Return the kinds that a view depends on, and the function that builds the view (list of objects)."""
    return frozenset({kind}), lambda objects: list(_objects_of(objects, kind))


_FIELDS: dict[str, tuple[frozenset[str], Callable[[_Objects], Any]]] = {
    "namespaces": (
        frozenset({"Namespace"}),
        lambda objects: {each.name: each.metadata.labels for each in _objects_of(objects, "Namespace")},
    ),
    "services": (frozenset({"Service"}), _services),
    "controllers": (frozenset({"ReplicationController", "ReplicaSet", "StatefulSet"}), _controllers),
    "volumes": _index_by_name("PersistentVolume"),
    "claims": _index_by_key("PersistentVolumeClaim"),
    "storage_classes": _index_by_name("StorageClass"),
    "csi_nodes": _index_by_name("CSINode"),
    "csi_drivers": _index_by_name("CSIDriver"),
    "capacities": _list_objects("CSIStorageCapacity"),
    "attachments": _list_objects("VolumeAttachment"),
    "resource_claims": _index_by_key("ResourceClaim"),
    "leftovers": (frozenset({"ResourceClaim"}), _extended_resource_claims),
    "binding": (
        frozenset({"ResourceClaim"}),
        lambda objects: any(map(_has_binding_conditions, _objects_of(objects, "ResourceClaim"))),
    ),
    "resource_slices": _list_objects("ResourceSlice"),
    "device_classes": _index_by_name("DeviceClass"),
    "workloads": (
        frozenset(_WORKLOADS),
        lambda objects: [each for kind in _WORKLOADS for each in _objects_of(objects, kind)],
    ),
    "budgets": _list_objects("PodDisruptionBudget"),
    "quotas": _list_objects("CapacityQuota"),
    "capacity_buffers": _list_objects("CapacityBuffer"),
    "provisioning_requests": _list_objects("ProvisioningRequest"),
    "pod_templates": (
        frozenset({"PodTemplate"}),
        lambda objects: {each.key: each for each in _objects_of(objects, "PodTemplate")},
    ),
}
"""Field -> (the kinds it is built from, function that builds it)."""


class ObjectStore:
    """Objects except pods: nodes in list order, others as ``objects[kind][key]``. Not safe for concurrent use."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, KubeObject]] = {}
        self._nodes: dict[str, KubeObject] = {}
        self._node_changes = _NodeChanges()
        self._node_columns = NodeColumns()
        self._informers = Informers.of({})
        self._changed_kinds: set[str] = set()
        self._seen: dict[str, set[str]] = {}  # of kinds that are being listed

    def copy(self) -> ObjectStore:
        """Return an independent copy with the same objects."""
        result = ObjectStore()
        result.objects = {kind: dict(by_key) for kind, by_key in self.objects.items()}
        result._nodes, result._node_changes = dict(self._nodes), self._node_changes.copy()
        result._node_columns, result._informers = self._node_columns, self._informers
        result._changed_kinds = set(self._changed_kinds)
        return result

    def get_kind(self, kind: str) -> dict[str, KubeObject]:
        """Return the objects of a kind by key, in order of first appearance. Do not modify the result."""
        return self._nodes if kind == "Node" else self.objects.get(kind, {})

    def put(self, item: KubeObject) -> bool:
        """Add an object, or replace the one under its key in place; return whether there was one."""
        kind, item = kind_name(item), with_namespace(item)
        if kind == "Node":
            by_key = self._nodes
            self._node_changes.apply(item.metadata.name, self._node_columns)
        else:
            by_key = self.objects.setdefault(kind, {})
            if kind in INFORMED_KINDS:
                self._changed_kinds.add(kind)
        key = item.metadata.name if kind == "Node" else item.key
        exists = key in by_key
        by_key[key] = item
        self.see(kind, key)
        return exists

    def put_all(self, items: Collection[tuple[tuple[str, str, str], KubeObject]]) -> None:
        """Put objects, given as ((kind, namespace, name), object). None of their kinds may be being listed."""
        for (kind, namespace, name), item in items:
            if kind == "Node":
                self._node_changes.apply(name, self._node_columns)
                self._nodes[name] = item
            else:
                self.objects.setdefault(kind, {})[object_key(namespace, name)] = item
        self._changed_kinds |= INFORMED_KINDS.intersection(kind for (kind, _, _), _ in items)

    def see(self, kind: str, key: str) -> None:
        """Mark an object as seen, if its kind is being listed (:meth:`begin`)."""
        if kind in self._seen:
            self._seen[kind].add(key)

    def begin(self, kind: str) -> None:
        """Start recording which objects of a kind are seen. Raises RuntimeError if a listing is in progress."""
        if kind in self._seen:
            raise RuntimeError(f"{kind} is being listed already")
        self._seen[kind] = set()

    def end(self, kind: str) -> list[str]:
        """Stop recording which objects are seen, and return the keys of those that were not."""
        seen = self._seen.pop(kind)
        return [key for key in self.get_kind(kind) if key not in seen]

    def has_version(self, kind: str, key: str, version: str) -> bool:
        """Check whether the object of a key exists and has this resource version."""
        current = self.get_kind(kind).get(key)
        return current is not None and bool(version) and current.metadata.resource_version == version

    def remove(self, kind: str, key: str, uid: str = "") -> bool:
        """Remove an object; return False if its key does not exist or both UIDs are set and differ."""
        current = self.get_kind(kind).get(key)
        if current is None or not (current.metadata.uid == uid or not (current.metadata.uid and uid)):
            return False
        if kind == "Node":
            del self._nodes[key]
            self._node_changes.remove(key)
            return True
        if kind in INFORMED_KINDS:
            self._changed_kinds.add(kind)
        del self.objects[kind][key]
        return True

    def nodes(self) -> Iterator[Any]:
        """Yield all nodes in list order."""
        return iter(self._nodes.values())

    def __iter__(self) -> Iterator[KubeObject]:
        """Yield all objects except pods and nodes."""
        for by_key in self.objects.values():
            yield from by_key.values()

    def columns(self) -> NodeColumns:
        """Return the nodes as columns; only changed nodes are converted again."""
        if self._node_changes:
            self._node_columns = self._node_changes.apply_to(self._node_columns, self._nodes)
            self._node_changes = _NodeChanges()
        return self._node_columns

    def informers(self) -> Informers:
        """Return the informers' views; only changed kinds are indexed again."""
        if self._changed_kinds:
            self._informers = self._informers.with_changes(self.objects, self._changed_kinds)
            self._changed_kinds = set()
        return self._informers


def kind_name(item: KubeObject) -> str:
    """Return the kind of an object, even if its kind field is empty. Raises TypeError for unknown types."""
    if type(item) is CustomWorkload:  # of any kind, which another group may have, too
        return custom_kind_key(group_of(item.api_version), item.kind)
    if item.kind:
        return item.kind
    api_kind = kind_of(type(item))
    if api_kind is None:
        raise TypeError(f"{type(item).__name__} is not a Kubernetes object that kscale knows")
    return api_kind[1]


class _NodeChanges:
    """Changes of nodes since their columns were built."""

    def __init__(self) -> None:
        self.removed: set[str] = set()
        self.replaced: dict[str, None] = {}
        self.appended: dict[str, None] = {}

    def copy(self) -> _NodeChanges:
        """Return an independent copy."""
        result = _NodeChanges()
        result.removed, result.replaced, result.appended = set(self.removed), dict(self.replaced), dict(self.appended)
        return result

    def __bool__(self) -> bool:
        return bool(self.removed or self.replaced or self.appended)

    def apply(self, name: str, base: NodeColumns) -> None:
        """Record a node that was added, or replaced in place if the columns ``base`` have it."""
        in_place = name in base.index and name not in self.removed
        (self.replaced if in_place else self.appended)[name] = None

    def remove(self, name: str) -> None:
        """Record the removal of an existing node."""
        if name in self.appended:
            del self.appended[name]
        else:
            self.replaced.pop(name, None)
            self.removed.add(name)

    def apply_to(self, base: NodeColumns, nodes: dict[str, Any]) -> NodeColumns:
        """Return the node columns ``base`` with the changes applied; ``nodes``: current nodes by name."""
        if not len(base):
            return NodeColumns(nodes.values())
        replaced: list[Node] = [nodes[name] for name in self.replaced]
        return base.with_changes(self.removed, replaced, [nodes[name] for name in self.appended])
