"""What plug-ins look things up in: the profile, the informers' objects, and facts about the whole snapshot."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kscale.objects.core import Node, Taint
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.resource import ResourceSlice
from kscale.objects.storage import CSINode, PersistentVolume
from kscale.scheduling.devices.allocator import Allocator
from kscale.scheduling.devices.claims import Wanted, device_class_of
from kscale.scheduling.devices.inventory import Inventory
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.volumes import SELECTED_NODE, claim_names, class_name
from kscale.snapshot.informers import Informers
from kscale.snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from kscale.snapshot.interner import PodClass

__all__ = ["HOSTNAME", "Context", "NodeFacts"]

HOSTNAME = "kubernetes.io/hostname"


@dataclass(slots=True)
class NodeFacts:
    """One node as plug-ins see it."""

    name: str
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    features: frozenset[str]
    csi_node: CSINode | None
    offered: frozenset[str]
    """Resources of which something is allocatable."""

    @classmethod
    def of(cls, node: Node, csi_node: CSINode | None) -> NodeFacts:
        """The facts of a node object."""
        return cls(
            name=node.metadata.name,
            labels=node.metadata.labels or {},
            taints=tuple(node.spec.taints),
            unschedulable=node.spec.unschedulable,
            features=frozenset(node.status.declared_features),
            csi_node=csi_node,
            offered=frozenset(name for name, q in (node.status.allocatable or {}).items() if q.sign > 0),
        )


class CarriedTerms(dict[Any, list[int]]):
    """Anti-affinity terms of placed pods -> positions in ``placed_classes``; kept with a snapshot."""


class Context:
    """A profile applied to a snapshot."""

    def __init__(self, snapshot: Snapshot, profile: SchedulerProfile) -> None:
        self.snapshot = snapshot
        self.profile = profile
        self.informers: Informers = snapshot.informers
        self.dra = snapshot.dra
        self.csi = snapshot.csi
        self.local_slices: list[ResourceSlice] = []
        """Those of nodes that the snapshot does not have; complete before ``devices`` is first read."""
        self.wanted: dict[int, Wanted] = {}
        self._delegable: dict[str, bool] = {}

    def csi_node(self, name: str) -> CSINode | None:
        """The CSINode of an existing node."""
        return self.informers.csi_nodes.get(name)

    def node(self, n: int) -> NodeFacts:
        """The facts of an existing node by number."""
        node = self.snapshot.columns.objects[n]
        return NodeFacts.of(node, self.csi_node(node.metadata.name))

    def copy_facts(self, template: NodeTemplate, name: str) -> NodeFacts:
        """The facts of a copy of a template under this name."""
        facts = NodeFacts.of(template.node, template.csi_node if self.csi else None)
        facts.name = name
        facts.labels = {**facts.labels, HOSTNAME: name}
        return facts

    def volumes_of_class(self, name: str) -> list[PersistentVolume]:
        """Volumes of a storage class, in the informer's order."""
        return self._volumes_by_class.get(name, [])

    @cached_property
    def _volumes_by_class(self) -> dict[str, list[PersistentVolume]]:
        found: dict[str, list[PersistentVolume]] = {}
        for volume in self.informers.volumes.values():
            found.setdefault(class_name(volume), []).append(volume)
        return found

    @cached_property
    def capacity_columns(self) -> frozenset[str]:
        """Node labels that storage capacities select by."""
        columns: set[str] = set()
        for entry in self.informers.capacities:
            if entry.node_topology is not None:
                columns |= set(entry.node_topology.match_labels or ())
                columns |= {expression.key for expression in entry.node_topology.match_expressions}
        return frozenset(columns)

    @cached_property
    def spelled_by_volumes(self) -> frozenset[str]:
        """Label values and node names that volumes, claims, classes and capacities spell out."""
        informers = self.informers
        found: set[str] = set()
        for volume in informers.volumes.values():
            required = volume.spec.node_affinity.required if volume.spec.node_affinity else None
            for term in required.node_selector_terms if required else ():
                for requirement in (*term.match_expressions, *term.match_fields):
                    found.update(requirement.values)
        for claim in informers.claims.values():
            found.add((claim.metadata.annotations or {}).get(SELECTED_NODE, ""))
        for storage_class in informers.storage_classes.values():
            for topology in storage_class.allowed_topologies:
                for wanted in topology.match_label_expressions:
                    found.update(wanted.values)
        for entry in informers.capacities:
            if entry.node_topology is not None:
                found.update((entry.node_topology.match_labels or {}).values())
                for expression in entry.node_topology.match_expressions:
                    found.update(expression.values)
        return frozenset(found)

    @cached_property
    def claim_users(self) -> dict[tuple[str, str], int]:
        """How many placed pods name each claim; generic ephemeral volumes do not count (``updatePVCRefCounts``)."""
        users: dict[tuple[str, str], int] = {}
        for which, pod in enumerate(self.snapshot.placed_classes):
            if pod.has_claims:
                pods = len(self.snapshot.nodes_of_class(which))
                for name in dict.fromkeys(name for name, ephemeral in claim_names(pod) if not ephemeral):
                    users[pod.namespace, name] = users.get((pod.namespace, name), 0) + pods
        return users

    def claim_in_use(self, namespace: str, name: str) -> bool:
        """Whether any placed pod uses the claim."""
        return self.claim_users.get((namespace, name), 0) > 0

    def delegable(self, resource: str) -> bool:
        """Whether a device class stands for the resource on nodes that have none of it themselves."""
        found = self._delegable.get(resource)
        if found is None:
            found = self.dra and device_class_of(resource, self.informers.device_classes) is not None
            self._delegable[resource] = found
        return found

    @cached_property
    def devices(self) -> Inventory:
        """The devices of all nodes, those of templates included."""
        informers = self.informers
        kept = self.snapshot.memo.of(
            Inventory, lambda: Inventory(informers.resource_slices, informers.resource_claims.values())
        )
        return kept.with_slices(self.local_slices) if self.local_slices else kept

    @cached_property
    def allocator(self) -> Allocator:
        """Allocates these devices."""
        return Allocator(self.devices, self.informers.device_classes)

    def device_content(self, node: NodeFacts) -> Hashable:
        """Equal for nodes that DynamicResources cannot tell apart."""
        offered = frozenset(name for name in node.offered if self.delegable(name))
        return self.devices.content(self.devices.offers(node)), offered

    @cached_property
    def carried(self) -> CarriedTerms:
        """Anti-affinity terms of placed pods -> the positions in ``placed_classes`` of those that carry it."""
        from kscale.scheduling.plugins.inter_pod_affinity import carried_terms

        def make() -> CarriedTerms:
            found = CarriedTerms()
            for which, pod in enumerate(self.snapshot.placed_classes):
                if pod.anti_affinity:
                    for term in dict.fromkeys(carried_terms(pod)):
                        found.setdefault(term, []).append(which)
            return found

        return self.snapshot.memo.of(CarriedTerms, make)

    def namespace_labels(self, namespace: str) -> dict[str, str]:
        """Labels of a namespace; one without object has none."""
        return self.informers.namespaces.get(namespace) or {}

    def blocked_by_placed(self, pod: PodClass) -> bool:
        """Whether some placed pod, on a node that has the term's key, holds anti-affinity against the pod."""
        labels = self.namespace_labels(pod.namespace)
        for term, carriers in self.carried.items():
            if term.means(pod, labels):
                ids = self.snapshot.columns.label(term.key).ids
                if any((ids[self.snapshot.nodes_of_class(which)] >= 0).any() for which in carriers):
                    return True
        return False

    @cached_property
    def broken_attachment(self) -> dict[str, str]:
        """Nodes whose placed pods have a generic ephemeral claim that is somebody else's -> upstream's text."""
        from kscale.scheduling.plugins.base import Status
        from kscale.scheduling.plugins.node_volume_limits import resolve

        found: dict[str, str] = {}
        for which, pod in enumerate(self.snapshot.placed_classes):
            if any(volume.ephemeral is not None for volume in pod.volumes):
                status = resolve(pod, self, incoming=False)
                if isinstance(status, Status):
                    for n in self.snapshot.nodes_of_class(which):
                        found.setdefault(self.snapshot.nodes[n], status.reasons[0])
        return found
