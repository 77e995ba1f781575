"""Scheduler profile: arguments of its plug-ins, and the profile applied to a snapshot and its nodes (upstream:
``KubeSchedulerConfiguration``).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Protocol

import msgspec

from kscale._native import _engine
from kscale.errors import InputError
from kscale.objects.api.core import Node, NodeSelector, Taint, TopologySpreadConstraint
from kscale.objects.api.storage import CSINode
from kscale.objects.node_selectors import HOSTNAME, ZONE
from kscale.objects.nodegroup import NodeTemplate
from kscale.snapshot.caches import TypedCache
from kscale.snapshot.object_store import Informers
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "CORDON",
    "CSI",
    "DEVICES",
    "FEATURES",
    "HOSTNAME",
    "NAME",
    "TAINTS",
    "ZONE",
    "Context",
    "NodeFacts",
    "Predicate",
    "SchedulerProfile",
    "selector_columns",
]


class Predicate(Protocol):
    """A compiled predicate (:class:`kscale.plugin.PredicatePlugin`)."""

    @property
    def name(self) -> str:
        """Return the name of the plug-in."""
        ...

    @property
    def reason(self) -> str:
        """Return the reason reported for a rejected pod."""
        ...

    @property
    def resources(self) -> tuple[str, ...]:
        """Return the resources that the function reads in ``request`` and ``free``, besides the fixed first columns."""
        ...

    @property
    def address(self) -> int:
        """Return the address of the compiled function."""
        ...


class SchedulerProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The default profile of Kubernetes 1.37 with its plug-ins' arguments.

    ``added_affinity``: NodeAffinity's ``addedAffinity`` (its required part). ``default_constraints``: those of
    PodTopologySpread with ``defaultingType: List``; None = the default setting, which never filters.
    ``ignored_resources``, ``ignored_resource_groups``: NodeResourcesFit's arguments. ``device_binding_timeout``:
    DynamicResources' ``bindingTimeout``, how long devices may wait for their conditions. ``disabled_filters``: plug-ins
    disabled at the Filter extension point; their PreFilter still runs unless they are in ``disabled_prefilters`` too.
    ``predicates``: the user's compiled predicates (:func:`kscale.plugin.predicate`), called after all others.

    :func:`kscale.scheduler_profile` reads one from a KubeSchedulerConfiguration. Raises InputError for unknown
    plug-ins, and if a PreFilter is disabled but its Filter, which needs it, is not.
    """

    added_affinity: NodeSelector | None = None
    default_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    ignored_resources: frozenset[str] = frozenset()
    ignored_resource_groups: frozenset[str] = frozenset()
    device_binding_timeout: timedelta = timedelta(seconds=600)
    disabled_filters: frozenset[str] = frozenset()
    disabled_prefilters: frozenset[str] = frozenset()
    predicates: tuple[Predicate, ...] = ()

    def __post_init__(self) -> None:
        for field in ("disabled_filters", "disabled_prefilters"):
            unknown = sorted(getattr(self, field) - _engine.ORDINALS.keys())
            if unknown:
                raise InputError(f"{field}: no plug-in {unknown[0]!r}; known: {', '.join(_engine.ORDINALS)}")
        alone = sorted(self.disabled_prefilters - self.disabled_filters)
        if alone:
            raise InputError(f"disabled_prefilters: the Filter of {alone[0]} needs its PreFilter: disable both")


# Node columns that are not labels.
NAME: Final = "\0name"
TAINTS: Final = "\0taints"
CORDON: Final = "\0unschedulable"
FEATURES: Final = "\0features"
CSI: Final = "\0csi"
DEVICES: Final = "\0devices"


def selector_columns(selector: NodeSelector | None) -> frozenset[str]:
    """Return the node columns that a node selector reads."""
    if selector is None:
        return frozenset()
    columns: set[str] = set()
    for term in selector.node_selector_terms:
        columns.update(expression.key for expression in term.match_expressions)
        if term.match_fields:
            columns.add(NAME)
    return frozenset(columns)


class NodeFacts(msgspec.Struct):
    """The parts of a node that predicates read.

    ``offered``: resources with a positive allocatable amount; empty without dynamic resource allocation, which alone
    reads it.
    """

    name: str
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    features: frozenset[str]
    csi_node: CSINode | None
    offered: frozenset[str]

    @classmethod
    def of(cls, node: Node, csi_node: CSINode | None, *, dra: bool) -> NodeFacts:
        """Read the facts of a node object. ``dra``: dynamic resource allocation is on."""
        allocatable = node.status.allocatable if dra else None
        return cls(
            name=node.metadata.name,
            labels=node.metadata.labels or {},
            taints=tuple(node.spec.taints),
            unschedulable=node.spec.unschedulable,
            features=frozenset(node.status.declared_features),
            csi_node=csi_node,
            offered=frozenset(name for name, amount in (allocatable or {}).items() if amount.sign > 0),
        )


class Context:
    """A profile applied to a snapshot. ``memo``: results that plug-ins cached for this context; ``snapshot.memo`` has
    those that depend on nothing but the snapshot.
    """

    def __init__(self, snapshot: Snapshot, profile: SchedulerProfile) -> None:
        self.snapshot = snapshot
        self.profile = profile
        self.informers: Informers = snapshot.informers
        self.dra = snapshot.dra
        self.csi = snapshot.csi
        self.now = snapshot.now
        self.memo = TypedCache()

    def csi_node(self, name: str) -> CSINode | None:
        """Return the CSINode of an existing node; None if there is none."""
        return self.informers.csi_nodes.get(name)

    def node(self, n: int) -> NodeFacts:
        """Return the facts of an existing node by number."""
        node = self.snapshot.columns.objects[n]
        return NodeFacts.of(node, self.csi_node(node.metadata.name), dra=self.dra)

    def copy_facts(self, template: NodeTemplate, name: str) -> NodeFacts:
        """Return the facts of a copy of a template with this name, also as its hostname label."""
        facts = NodeFacts.of(template.node, template.csi_node if self.csi else None, dra=self.dra)
        facts.name = name
        facts.labels = {**facts.labels, HOSTNAME: name}
        return facts

    def namespace_labels(self, namespace: str) -> dict[str, str]:
        """Return the labels of a namespace; an empty dict if the namespace has no object."""
        return self.informers.namespaces.get(namespace) or {}
