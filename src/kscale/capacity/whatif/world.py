"""A base with edits: what a decision of a scenario goes by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from kscale.ca.options import AutoscalingOptions
from kscale.capacity.catalogue import Catalogue
from kscale.capacity.groups import members_of
from kscale.capacity.prices import price_of
from kscale.effects import Moment
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["ZONE", "Nodes", "Place", "World", "zones_of"]

ZONE = "topology.kubernetes.io/zone"


class Place:
    """A cluster, and what follows from it alone: shared by all scenarios with the same nodes and pods."""

    def __init__(self, cluster: Cluster, lost: frozenset[str] = frozenset()) -> None:
        """``lost``: pods by name that ran on nodes that are gone."""
        self.cluster = cluster
        self.lost = lost

    @cached_property
    def snapshot(self) -> Snapshot:
        """As the autoscaler of 1.37 takes it."""
        return self.cluster.snapshot(dra=True)


@dataclass(frozen=True)
class World:
    """What a decision depends on.

    ``digest``: everything that a decision depends on but prices and the choice among options; ``templates``: what is
    settled about new nodes of groups, by id. ``groups`` are as described; ``retired``: those that were removed (their
    nodes are still there) or lost (``lost_groups``). ``lost_zones``: no new node may come there. ``standing``: $/h of
    each node that a group has already, by id, where a new one costs something else. ``notes``: what an edit does not
    change, for whoever reads the answer.
    """

    place: Place
    groups: tuple[NodeGroup, ...]
    options: AutoscalingOptions
    templates: Mapping[str, NodeTemplate]
    now: datetime | Moment
    digest: tuple[str, ...] = ()
    profile: SchedulerProfile | None = None
    catalogue: Catalogue | None = None
    retired: tuple[NodeGroup, ...] = ()
    standing: Mapping[str, float | None] = field(default_factory=dict)
    lost_zones: frozenset[str] = frozenset()
    lost_groups: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    @property
    def prices(self) -> dict[str, float | None]:
        """$/h of one new node by group."""
        return {group.id: group.price for group in (*self.retired, *self.groups)}


def zones_of(group: NodeGroup, world: World, members: Iterable[Node]) -> frozenset[str]:
    """Return the zones in which new nodes of a group come, as far as they are known.

    The zone is that of the template, of the labels that the description adds or selects by, else those of ``members``.
    """
    template = world.templates.get(group.id) or group.template
    described = (None if template is None else template.node.metadata.labels, group.labels, group.node_selector)
    zone = next((labels[ZONE] for labels in described if labels and labels.get(ZONE)), "")
    if zone:
        return frozenset({zone})
    return frozenset(filter(None, ((node.metadata.labels or {}).get(ZONE) for node in members)))


@dataclass(frozen=True)
class Nodes:
    """The nodes of a place: ``members`` counts those of each group, ``group_of`` says whose a node is; ``others``:
    those of none, and what the catalogue asks for each."""

    members: Mapping[str, int]
    group_of: Mapping[str, str]
    others: Mapping[str, float | None]

    @classmethod
    def of(cls, world: World) -> Nodes:
        """The first group that a node belongs to has it."""
        group_of: dict[str, str] = {}
        nodes = world.place.snapshot.columns.objects
        members: dict[str, int] = {}
        for group in (*world.groups, *world.retired):
            mine = [each.metadata.name for each in members_of(group, nodes) if each.metadata.name not in group_of]
            group_of.update(dict.fromkeys(mine, group.id))
            members[group.id] = members.get(group.id, 0) + len(mine)
        rest = (each for each in nodes if each.metadata.name not in group_of)
        return cls(members, group_of, {each.metadata.name: price_of(each, (), world.catalogue) for each in rest})

    def beside(self, world: World) -> float | None:
        """$/h of the nodes of no group that may grow; None = not known."""
        retired = {group.id for group in world.retired} - {group.id for group in world.groups}
        prices = [
            *(price for name in retired for price in [world.standing.get(name)] * self.members[name]),
            *self.others.values(),
        ]
        return None if None in prices else sum(price for price in prices if price is not None)

    def cost(self, world: World, change: Mapping[str, int], gone: Iterable[str] = ()) -> float | None:
        """$/h with so many nodes more (or less) of each group, without those of none that are ``gone``; None = not
        known."""
        total, prices = 0.0, world.prices
        for name in {**self.members, **change}:
            more = change.get(name, 0)
            old = self.members.get(name, 0) + min(0, more)
            for number, price in ((old, world.standing.get(name, prices[name])), (max(0, more), prices[name])):
                if number and price is None:
                    return None
                total += number * (price or 0.0)
        missing = set(gone)
        for name, price in self.others.items():
            if name not in missing:
                if price is None:
                    return None
                total += price
        return round(total, 9)
