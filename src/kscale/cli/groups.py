"""Where node groups come from: a groups file, a catalogue, one node of the dump, or labels in the dump."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from kscale.capacity.records import UNLIMITED
from kscale.cli.options import OptionGroup
from kscale.cli.terminal import Terminal
from kscale.errors import InputError
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from datetime import datetime

    from kscale.ca.options import AutoscalingOptions
    from kscale.capacity.catalogue import Catalogue

__all__ = ["GroupSource"]

_SPOT = {"karpenter.sh/capacity-type": "spot"}


@dataclass(eq=False, repr=False)
class GroupSource(OptionGroup):
    """The options that say which node groups may grow; without any, those recognised by the labels of the nodes."""

    groups_file: Annotated[
        str | None,
        typer.Option("-g", "--groups", metavar="FILE", help="Node groups, as YAML or JSON."),
    ] = None
    node: Annotated[
        str | None, typer.Option("--node", metavar="NAME", help="One group of nodes like this node of the dump.")
    ] = None
    catalogue: Annotated[
        str | None,
        typer.Option(
            "--catalogue",
            metavar="NAME|FILE",
            help="Instance types: an imported catalogue, or a file that could be (kscale catalogue import --help).",
        ),
    ] = None
    instance_type: Annotated[
        list[str] | None,
        typer.Option(
            "--instance-type",
            metavar="NAME|GLOB",
            help="A type of the catalogue, as a group; 'm5*' is all that begin so. Repeatable.",
        ),
    ] = None
    region: Annotated[
        str | None, typer.Option("--region", help="Region of the catalogue's types, whose prices count.")
    ] = None
    zone: Annotated[
        list[str] | None,
        typer.Option("--zone", help="Zone of the catalogue's types: one group for each type and zone. Repeatable."),
    ] = None
    spot: Annotated[
        bool, typer.Option("--spot", help="Also add a spot group for each of the catalogue's types with a spot price.")
    ] = False

    def groups(
        self,
        cluster: Cluster,
        snapshot: Snapshot,
        terminal: Terminal,
        *,
        options: AutoscalingOptions | None = None,
        now: datetime | None = None,
    ) -> list[NodeGroup]:
        """The groups, with their templates: as an autoscaler with these options makes them at that moment."""
        self._check()
        from kscale.capacity.templates import with_templates

        return with_templates(cluster, snapshot, self._named(cluster, snapshot, terminal), options=options, now=now)

    def described(self, cluster: Cluster, snapshot: Snapshot, terminal: Terminal) -> list[NodeGroup]:
        """The groups as they are described: a template only where the description has one."""
        self._check()
        groups = self._named(cluster, snapshot, terminal)
        if self.groups_file is not None or self.node is not None or self.catalogue is not None:
            return groups
        # Of a recognised group the nodes are known; which is the example, a loop finds out.
        return [msgspec.structs.replace(group, from_node=None) if group.nodes else group for group in groups]

    def _check(self) -> None:
        if self.node is not None and (self.groups_file is not None or self.catalogue is not None):
            raise typer.BadParameter("--node excludes -g and --catalogue", param_hint="--node")
        if self.instance_type and self.groups_file is not None:
            raise typer.BadParameter("-g and --instance-type exclude each other", param_hint="--instance-type")
        if self.instance_type and self.catalogue is None:
            raise typer.BadParameter("--instance-type needs --catalogue", param_hint="--instance-type")
        for option, value in (("--region", self.region), ("--zone", self.zone)):
            if value and not self.instance_type:
                raise typer.BadParameter(f"{option} needs --instance-type", param_hint=option)
        if self.spot and not self.instance_type:
            raise typer.BadParameter("--spot needs --instance-type", param_hint="--spot")
        if self.catalogue is not None and self.groups_file is None and not self.instance_type:
            raise typer.BadParameter("--catalogue needs --instance-type, or -g", param_hint="--catalogue")

    def _named(self, cluster: Cluster, snapshot: Snapshot, terminal: Terminal) -> list[NodeGroup]:
        from kscale.capacity.groups import read_groups

        if self.groups_file is not None:
            known = None
            if self.catalogue is not None:
                from kscale.capacity.catalogue import read_catalogue

                known = read_catalogue(self.catalogue)  # also where no entry needs it: it may be misspelt
            return read_groups(self.groups_file, node_names=snapshot.columns.index, catalogue=known)
        if self.node is not None:
            return [NodeGroup(id=f"like-{self.node}", from_node=self.node, target_size=0, max_size=UNLIMITED)]
        if self.catalogue is not None:
            from kscale.capacity.catalogue import read_catalogue

            return self._of_types(read_catalogue(self.catalogue))
        return self._recognised(cluster, snapshot.columns.objects, terminal)

    def _of_types(self, catalogue: Catalogue) -> list[NodeGroup]:
        """A group for each chosen type and zone, and with ``--spot`` another one where there is a spot price."""
        region = self.region or ""
        catalogue.check_region(region)
        kinds = catalogue.select(self.instance_type or [])
        offered = [(kind, "", kind.price(region)) for kind in kinds]
        if self.spot:
            spot = [(kind, "-spot", price) for kind in kinds if (price := kind.price(region, spot=True)) is not None]
            if not spot:
                raise InputError(f"{catalogue.source}: none of the types has a spot price")
            offered += spot
        return [
            NodeGroup(
                id=f"{kind.name}-{zone}{suffix}" if zone else f"{kind.name}{suffix}",
                template=kind.template(zone=zone, region=region, labels=_SPOT if suffix else None),
                price=price,
                target_size=0,
                max_size=UNLIMITED,
            )
            for kind, suffix, price in offered
            for zone in dict.fromkeys(self.zone or [""])
        ]

    def _recognised(self, cluster: Cluster, nodes: Sequence[Node], terminal: Terminal) -> list[NodeGroup]:
        """What the dump itself says: the groups of Cluster API, then those in the labels of other nodes."""
        from kscale.capacity.groups import MACHINE_KINDS, machine_groups, recognise_groups

        machines = machine_groups([each for kind in MACHINE_KINDS for each in cluster.all(kind)], nodes)
        for text in machines.warnings:
            terminal.warn(text)
        if machines.groups:
            terminal.note(f"node groups of Cluster API in the input: {len(machines.groups):,}")
        taken = {name for group in machines.groups for name in group.nodes}
        found = recognise_groups(node for node in nodes if node.metadata.name not in taken)
        if found.groups:
            who = ", ".join(dict.fromkeys(each.provider for each in found.groups))
            terminal.note(f"node groups recognised in the labels ({who}): {len(found.groups):,}; sizes have no limit")
        if found.others:
            terminal.note(f"nodes in no recognised group: {len(found.others):,}")
        # The labels do not say a target size: it is the number of nodes, unless an earlier loop asked for more.
        unlimited = [msgspec.structs.replace(each.group, max_size=UNLIMITED, target_size=None) for each in found.groups]
        return [*machines.groups, *unlimited]

    def words(self) -> list[str]:
        """The options that name the groups, as they would be typed again."""
        pairs = [("-g", self.groups_file), ("--node", self.node), ("--catalogue", self.catalogue)]
        pairs += [("--instance-type", name) for name in self.instance_type or []]
        pairs += [("--region", self.region), *(("--zone", name) for name in self.zone or [])]
        words = [word for option, value in pairs if value is not None for word in (option, shlex.quote(value))]
        return [*words, *(["--spot"] if self.spot else [])]
