"""Outages of zones: all nodes of a zone are lost at once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from kscale.effects import SECOND, Moment, to_text
from kscale.objects.api.core import Node
from kscale.objects.node_selectors import ZONE
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.pod_owners import is_daemonset_pod, is_mirror_pod
from kscale.simulation.records import OutageUse
from kscale.world.simulated.cloud import GroupTimes, Pool
from kscale.world.simulated.controllers import HAPPENINGS
from kscale.world.simulated.pods import is_finished
from kscale.world.simulated.world import SimulatedWorld

__all__ = ["ZoneOutage", "schedule_outages", "with_outages", "zone_of_group", "zone_of_node"]


class ZoneOutage(msgspec.Struct, frozen=True, kw_only=True):
    """An outage of a zone from ``begin`` until ``end``."""

    zone: str
    begin: Moment
    end: Moment


def zone_of_node(node: Node) -> str:
    """Return the zone in a node's labels; empty if there is none."""
    return (node.metadata.labels or {}).get(ZONE, "")


def zone_of_group(group: NodeGroup) -> str:
    """Return the zone of a group's template; empty if there is none."""
    return "" if group.template is None else zone_of_node(group.template.node)


def with_outages(times: GroupTimes, zone: str, outages: list[ZoneOutage]) -> GroupTimes:
    """Return the times of a group's machines with the outages of its ``zone`` added to the out-of-stock periods.

    Returns ``times`` itself if no outage concerns the zone.
    """
    periods = tuple((each.begin, each.end) for each in outages if each.zone == zone)
    return msgspec.structs.replace(times, out_of_stock=(*times.out_of_stock, *periods)) if periods else times


def schedule_outages(world: SimulatedWorld, outages: list[ZoneOutage]) -> list[OutageUse]:
    """Schedule outages in a world.

    Returns a list, empty now, that gets the record of each outage when the outage begins.
    """
    uses: list[OutageUse] = []

    def begin(outage: ZoneOutage) -> None:
        """Begin an outage, and record its effect."""
        uses.append(_lose_zone(world, outage))

    for outage in outages:
        world.time.at(outage.begin, partial(begin, outage), rank=HAPPENINGS)
    return uses


def _lose_zone(world: SimulatedWorld, outage: ZoneOutage) -> OutageUse:
    """Delete all machines and nodes in a zone; return the record of the outage.

    Its ``pods`` are those on these nodes, except finished and terminating pods, mirror pods and pods of DaemonSets.
    """
    nodes = {name: node for name, node in world.api.get_all("Node").items() if zone_of_node(node) == outage.zone}
    pods = sum(
        pod.spec.node_name in nodes
        and pod.metadata.deletion_timestamp is None
        and not (is_finished(pod) or is_daemonset_pod(pod) or is_mirror_pod(pod))
        for pod in world.api.get_all("Pod").values()
    )
    machines = [name for pool in world.cloud.pools.values() for name in _machines_in(pool, outage.zone, world)]
    for name in machines:
        world.cloud.lose(name)
    ungrouped = [node for name, node in nodes.items() if name not in set(machines)]
    for node in ungrouped:
        world.api.remove(node)
    return OutageUse(
        zone=outage.zone,
        at=to_text(outage.begin) or "",
        seconds=(outage.end - outage.begin) / SECOND,
        machines=len(machines) + len(ungrouped),
        pods=pods,
    )


def _machines_in(pool: Pool, zone: str, world: SimulatedWorld) -> Iterator[str]:
    """Yield the names of a pool's machines in a zone: by their node, or by the group's template if they have none.

    Machines with an error are left out.
    """
    for name, machine in pool.machines.items():
        node = world.api.find("Node", name)
        in_zone = zone_of_group(pool.group) if node is None else zone_of_node(node)
        if machine.error is None and in_zone == zone:
            yield name
