"""NodePools of a scenario: which provisioner runs, and the node groups that stand for the NodePools' offerings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec.structs import replace as with_fields

from kscale.capacity.catalogue import read_catalogue
from kscale.capacity.karpenter import NodePools, PoolGroups, groups_of_pools, node_pools_from, read_node_pools
from kscale.capacity.karpenter.node_claim import OfferedPools
from kscale.capacity.karpenter.node_pools import CAPACITY_TYPE, NODE_POOL
from kscale.capacity.records import UNLIMITED
from kscale.errors import InputError
from kscale.objects.api.core import Node, Taint
from kscale.objects.nodegroup import NodeGroup
from kscale.simulation.karpenter import KarpenterOptions, KarpenterState
from kscale.simulation.scenario import CLUSTER_AUTOSCALER, KARPENTER, KarpenterEntry, Scenario, Values, options_of

__all__ = ["SimulatedPools", "provisioner_of", "read_pools"]

_FIELD: Final = "controllers.karpenter"
_TYPE, _ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
_NAMED: Final = 3


def provisioner_of(scenario: Scenario, values: Values) -> str:
    """Return the program that adds and removes nodes; empty if none does. Mistakes are added to ``values``."""
    controllers = scenario.controllers
    configured = [
        name
        for name, entry in ((CLUSTER_AUTOSCALER, controllers.cluster_autoscaler), (KARPENTER, controllers.karpenter))
        if entry is not None
    ]
    chosen = scenario.provisioner
    if chosen == KARPENTER and controllers.karpenter is None:
        values.wrong("provisioner", f"{KARPENTER} needs {_FIELD}, with NodePools and a catalogue")
        return ""
    if chosen:
        return chosen
    if len(configured) > 1:
        values.wrong("controllers", f"provisioner says which of {' and '.join(configured)} runs")
    return configured[0] if configured else ""


@dataclass(frozen=True)
class SimulatedPools:
    """NodePools as groups of the simulated cloud. ``warnings``: what of them is not simulated, and why."""

    pools: NodePools
    converted: PoolGroups
    options: KarpenterOptions
    warnings: Sequence[str]

    def state(self, groups: Iterable[NodeGroup]) -> KarpenterState:
        """Return the state of Karpenter's controllers at the beginning. ``groups`` have their templates."""
        by_name = {group.id: group for group in groups}
        own = [by_name[offering.group] for offering in self.converted.offerings]
        return KarpenterState(self.pools, OfferedPools(self.pools, self.converted, own), by_name, self.options)

    def startup_taints(self, name: str) -> tuple[Taint, ...]:
        """Return the taints that new nodes of a NodePool have until they are initialized."""
        specs = (pool.spec.template.spec for pool in self.pools.pools if pool.name == name)
        return tuple(taint for spec in specs for taint in spec.startup_taints)


def read_pools(entry: KarpenterEntry, values: Values, nodes: Sequence[Node], *, unlimited: bool) -> SimulatedPools:
    """Read the NodePools and the catalogue of a scenario.

    Existing nodes belong to the group with their NodePool, instance type, zone and capacity type. ``unlimited``:
    whether groups have no maximum, as Karpenter applies the limits of NodePools itself. Mistakes are added to
    ``values``; the result then has no groups.
    """
    options = options_of(KarpenterOptions, entry.flags, {}, values, _FIELD)
    try:
        if isinstance(entry.node_pools, str):
            pools = read_node_pools(values.folder / entry.node_pools)
        else:
            pools = node_pools_from(entry.node_pools, source=values.source)
        catalogue = read_catalogue(values.folder / entry.catalogue)
        catalogue.check_region(entry.region)
        kinds = list(catalogue.values())
        converted = groups_of_pools(pools, kinds, zones=entry.zones, region=entry.region, nodes=nodes)
    except InputError as error:
        values.problems += [
            each if each.source else replace(each, source=values.source, field=_FIELD) for each in error.problems
        ]
        return SimulatedPools(NodePools([]), PoolGroups([], [], [], []), options, [])
    members, unmatched = _members(converted, nodes)
    groups = [
        with_fields(
            group,
            nodes=members[group.id],
            max_size=UNLIMITED if unlimited else min(UNLIMITED, group.max_size + len(members[group.id])),
        )
        for group in converted.groups
    ]
    warnings = [f"{text} (assumed)" for text in converted.assumptions]
    if unmatched:
        more = ", ..." if len(unmatched) > _NAMED else ""
        warnings.append(f"node {', '.join(unmatched[:_NAMED])}{more}: its NodePool has no such offering, so it stays")
    warnings += [
        f"NodePool {pool.name}: policy Balanced consolidates as WhenEmptyOrUnderutilized here"
        for pool in pools.pools
        if pool.spec.disruption.consolidation_policy == "Balanced"
    ]
    return SimulatedPools(pools, replace(converted, groups=groups), options, warnings)


def _members(converted: PoolGroups, nodes: Iterable[Node]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the nodes of each group, and the nodes of NodePools that belong to no group."""
    groups = {
        (each.pool, each.kind.name, each.zone, each.capacity_type): each.group for each in reversed(converted.offerings)
    }
    members: dict[str, list[str]] = defaultdict(list)
    unmatched = []
    for node in nodes:
        labels = node.metadata.labels or {}
        if NODE_POOL not in labels:
            continue
        key = labels[NODE_POOL], labels.get(_TYPE, ""), labels.get(CAPACITY_TYPE, "")
        zones = (labels.get(_ZONE, ""), "")
        group = next((name for zone in zones if (name := groups.get((*key[:2], zone, key[2])))), "")
        if group:
            members[group].append(node.name)
        else:
            unmatched.append(node.name)
    return members, unmatched
