"""Objects of a cluster besides pods: nodes in list order, and every other kind by key (upstream: informers)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kscale.objects.api.meta import CustomWorkload, KubeObject, object_key
from kscale.objects.kinds import custom_kind_key, group_of, kind_of, with_namespace
from kscale.snapshot.caches import collector_paused
from kscale.snapshot.columns import NodeColumns
from kscale.snapshot.text.files import UndecodedObject

if TYPE_CHECKING:
    from kscale.objects.api.cluster_autoscaler import CapacityBuffer, CapacityQuota, ProvisioningRequest
    from kscale.objects.api.core import Node, PodTemplate, Service
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
    from kscale.objects.nodegroup import NodeTemplate

__all__ = ["INFORMED_KINDS", "Informers", "ObjectStore", "kind_name"]

K = TypeVar("K")


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


def decode_all(objects: dict[str, Any]) -> dict[str, Any]:
    """Replace the undecoded objects in a dict by decoded ones, and return the dict."""
    with collector_paused():
        for key, value in objects.items():
            if type(value) is UndecodedObject:
                objects[key] = value.get()
    return objects


class Informers:
    """Indexed read-only views of the cluster's objects, in their order. Each is built when it is read first.

    ``leftovers``: claims that a scheduler created for the extended resources of a pod, by the pod's UID. ``binding``:
    whether some claim has an allocation time and devices with binding conditions. ``pod_templates``: by
    ``namespace/name``.
    """

    namespaces: dict[str, dict[str, str] | None]
    services: dict[str, list[Service]]
    controllers: Mapping[tuple[str, str, str], Any]
    volumes: Mapping[str, PersistentVolume]
    claims: Mapping[tuple[str, str], PersistentVolumeClaim]
    storage_classes: Mapping[str, StorageClass]
    csi_nodes: Mapping[str, CSINode]
    csi_drivers: Mapping[str, CSIDriver]
    capacities: list[CSIStorageCapacity]
    attachments: list[VolumeAttachment]
    resource_claims: Mapping[tuple[str, str], ResourceClaim]
    leftovers: dict[str, ResourceClaim]
    binding: bool
    resource_slices: list[ResourceSlice]
    device_classes: Mapping[str, DeviceClass]
    workloads: list[KubeObject]
    budgets: list[PodDisruptionBudget]
    quotas: list[CapacityQuota]
    capacity_buffers: list[CapacityBuffer]
    provisioning_requests: list[ProvisioningRequest]
    pod_templates: dict[str, PodTemplate]

    def __init__(self, objects: dict[str, dict[str, Any]]) -> None:
        """Make views of ``kind -> key -> object``, which nobody changes any more."""
        self._objects = objects

    def __getattr__(self, field: str) -> Any:
        """Build a view. Not called for views that exist."""
        if field not in _FIELDS:
            raise AttributeError(field)
        return vars(self).setdefault(field, _FIELDS[field][1](self._objects))  # the same if two threads build it

    def __getstate__(self) -> dict[str, Any]:
        """Return all views."""
        return {"_objects": {}} | {field: getattr(self, field) for field in _FIELDS}

    def with_changes(self, objects: dict[str, dict[str, Any]], kinds: Collection[str]) -> Informers:
        """Return views with the changed ``kinds`` taken from ``objects``; views of other kinds are shared."""
        for field, (of, _) in _FIELDS.items():
            if field not in vars(self) and not of.isdisjoint(self._objects) and of.isdisjoint(kinds):
                getattr(self, field)  # so that both share the view
        result = Informers(self._objects | {kind: dict(objects.get(kind, {})) for kind in kinds})
        vars(result).update({field: view for field, view in self._built() if _FIELDS[field][0].isdisjoint(kinds)})
        return result

    def replace(self, **views: Any) -> Informers:
        """Return a copy with some views, given by name, replaced."""
        result = Informers(self._objects)
        vars(result).update(dict(self._built()) | views)
        return result

    def _built(self) -> Iterator[tuple[str, Any]]:
        """Yield (name, view) for each view that was built so far."""
        return ((field, view) for field, view in vars(self).items() if field in _FIELDS)

    def with_devices(self, nodes: Sequence[NodeTemplate]) -> Informers:
        """Return views that also have the CSINodes and ResourceSlices of ``nodes``; ``self`` if ``nodes`` have none."""
        csi_nodes = {each.csi_node.name: each.csi_node for each in nodes if each.csi_node is not None}
        slices = [resource_slice for each in nodes for resource_slice in each.resource_slices]
        if not csi_nodes and not slices:
            return self
        return self.replace(csi_nodes={**self.csi_nodes, **csi_nodes}, resource_slices=[*self.resource_slices, *slices])


_Objects = dict[str, dict[str, Any]]


def _objects_of(objects: _Objects, kind: str) -> Iterable[Any]:
    """Return the objects of a kind, in order of first appearance."""
    return decode_all(objects.get(kind, {})).values()


def _services(objects: _Objects) -> dict[str, list[Service]]:
    """Return the services by namespace."""
    services: dict[str, list[Service]] = {}
    for service in _objects_of(objects, "Service"):
        services.setdefault(service.namespace, []).append(service)
    return services


def _controllers(objects: _Objects) -> Mapping[tuple[str, str, str], Any]:
    """Return the controllers that may have a selector, by kind, namespace and name."""
    kinds = ("ReplicationController", "ReplicaSet", "StatefulSet")
    return _index({(kind, *name): each for kind in kinds for name, each in _named(objects, kind)})


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


def _named(objects: _Objects, kind: str) -> Iterator[tuple[tuple[str, str], Any]]:
    """Yield ((namespace, name), object) of each object of a kind, decoded or not."""
    for key, value in objects.get(kind, {}).items():
        if type(value) is UndecodedObject:
            namespace, _, name = key.rpartition("/")
            yield (namespace, name), value
        else:
            yield (value.namespace, value.name), value


class _DecodedOnDemand(Mapping[K, Any]):
    """A mapping to objects that are decoded when they are looked up."""

    def __init__(self, objects: dict[K, Any]) -> None:
        self._objects = objects

    def __getitem__(self, key: K) -> Any:
        value = self._objects[key]
        return value.get() if type(value) is UndecodedObject else value

    def __iter__(self) -> Iterator[K]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)


def _index(objects: dict[K, Any]) -> Mapping[K, Any]:
    """Return a mapping of the objects that decodes each on access."""
    return _DecodedOnDemand(objects) if any(type(each) is UndecodedObject for each in objects.values()) else objects


def _index_by_name(kind: str) -> tuple[frozenset[str], Callable[[_Objects], Any]]:
    """Return the kinds that a view depends on, and the function that builds the view (object by name)."""
    return frozenset({kind}), lambda objects: _index({name: each for (_, name), each in _named(objects, kind)})


def _index_by_key(kind: str) -> tuple[frozenset[str], Callable[[_Objects], Any]]:
    """Return the kinds that a view depends on, and the function that builds the view (object by (namespace, name))."""
    return frozenset({kind}), lambda objects: _index(dict(_named(objects, kind)))


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
        self._objects: dict[str, dict[str, Any]] = {}
        self._nodes: dict[str, Any] = {}
        self._undecoded: set[str] = set()  # kinds with objects that are not decoded
        self._node_changes = _NodeChanges()
        self._node_columns = NodeColumns()
        self._informers = Informers({})
        self._changed_kinds: set[str] = set()
        self._seen: dict[str, set[str]] = {}  # of kinds that are being listed

    def copy(self) -> ObjectStore:
        """Return an independent copy with the same objects."""
        result = ObjectStore()
        result._objects = {kind: dict(by_key) for kind, by_key in self._objects.items()}
        result._undecoded = set(self._undecoded)
        result._nodes, result._node_changes = dict(self._nodes), self._node_changes.copy()
        result._node_columns, result._informers = self._node_columns, self._informers
        result._changed_kinds = set(self._changed_kinds)
        return result

    def get_kind(self, kind: str) -> dict[str, KubeObject]:
        """Return the objects of a kind by key, in order of first appearance. Do not modify the result."""
        by_key = self._by_key(kind)
        if kind in self._undecoded:
            decode_all(by_key)
            self._undecoded.discard(kind)
        return by_key

    def keys(self, kind: str) -> list[str]:
        """Return the keys of a kind, in order of first appearance; none of its objects is decoded."""
        return [*self._by_key(kind)]

    def _by_key(self, kind: str) -> dict[str, Any]:
        """Return the objects of a kind by key, decoded or not."""
        return self._nodes if kind == "Node" else self._objects.get(kind, {})

    @property
    def objects(self) -> dict[str, dict[str, KubeObject]]:
        """Return all objects except pods and nodes, by kind and key. Do not modify the result."""
        for kind in self._undecoded.intersection(self._objects):
            self.get_kind(kind)
        return self._objects

    def counts(self) -> dict[str, int]:
        """Return the number of objects by kind, nodes first; none is decoded."""
        return {"Node": len(self._nodes)} | {kind: len(by_key) for kind, by_key in self._objects.items()}

    def put(self, item: KubeObject) -> bool:
        """Add an object, or replace the one under its key in place; return whether there was one."""
        kind, item = kind_name(item), with_namespace(item)
        if kind == "Node":
            by_key = self._nodes
            self._node_changes.apply(item.metadata.name, self._node_columns)
        else:
            by_key = self._objects.setdefault(kind, {})
            if kind in INFORMED_KINDS:
                self._changed_kinds.add(kind)
        key = item.metadata.name if kind == "Node" else item.key
        exists = key in by_key
        by_key[key] = item
        self.see(kind, key)
        return exists

    def put_all(self, items: Collection[tuple[tuple[str, str, str], KubeObject | UndecodedObject]]) -> None:
        """Add or replace objects, given as ((kind, namespace, name), object).

        Does not mark them as seen: not allowed between :meth:`begin` and :meth:`end` of one of their kinds.
        """
        for (kind, namespace, name), item in items:
            if kind == "Node":
                self._node_changes.apply(name, self._node_columns)
                self._nodes[name] = item
            else:
                self._objects.setdefault(kind, {})[object_key(namespace, name)] = item
        kinds = {kind for (kind, _, _), _ in items}
        self._changed_kinds |= INFORMED_KINDS & kinds
        self._undecoded |= kinds

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
        return [key for key in self._by_key(kind) if key not in seen]

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
        del self._objects[kind][key]
        return True

    def nodes(self) -> Iterator[Any]:
        """Yield all nodes in list order."""
        return iter(self.get_kind("Node").values())

    def __iter__(self) -> Iterator[KubeObject]:
        """Yield all objects except pods and nodes."""
        for by_key in self.objects.values():
            yield from by_key.values()

    def columns(self) -> NodeColumns:
        """Return the nodes as columns; only changed nodes are converted again."""
        if self._node_changes:
            self._node_columns = self._node_changes.apply_to(self._node_columns, self.get_kind("Node"))
            self._node_changes = _NodeChanges()
        return self._node_columns

    def informers(self) -> Informers:
        """Return the informers' views; only changed kinds are indexed again."""
        if self._changed_kinds:
            self._informers = self._informers.with_changes(self._objects, self._changed_kinds)
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
