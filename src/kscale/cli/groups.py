"""Options for node groups: from a groups file, a catalogue, a node of the dump, or node labels."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from kscale.capacity.records import UNLIMITED
from kscale.cli.aws import GROUPS_PREFIX, read_live_groups
from kscale.cli.options import OptionGroup
from kscale.cli.terminal import Terminal, plural
from kscale.errors import InputError, Problem
from kscale.files import read_file
from kscale.imports import lazy_pattern
from kscale.objects.api.core import Node
from kscale.objects.nodegroup import NodeGroup
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot
from kscale.snapshot.text.files import decompress

if TYPE_CHECKING:
    from datetime import datetime

    from kscale.ca.options import AutoscalingOptions
    from kscale.capacity.catalogue import Catalogue, InstanceType
    from kscale.capacity.karpenter import KarpenterChoice
    from kscale.capacity.mix import StartPlan

__all__ = ["Arch", "GroupSource", "Untyped", "catalogue_of", "has_node_pools", "warn_of_left_out"]


def catalogue_of(name: str, terminal: Terminal) -> Catalogue:
    """Return the catalogue of a name or file, after a warning about each kind of entry left out.

    Raises InputError if it cannot be read.
    """
    from kscale.capacity.catalogue import read_catalogue

    catalogue = read_catalogue(name)
    warn_of_left_out(catalogue, terminal)
    return catalogue


def warn_of_left_out(catalogue: Catalogue, terminal: Terminal) -> None:
    """Log a warning for each reason why entries of the catalogue's source were left out, with their number."""
    for reason, count in catalogue.left_out.items():
        terminal.warn(f"{count:,} left out: {reason}")


_KARPENTER = lazy_pattern(rb"""apiVersion["']?\s*:\s*["']?karpenter\.""")


def has_node_pools(path: str | os.PathLike[str]) -> bool:
    """Check whether a file holds objects of Karpenter, not a groups file; False if it cannot be read."""
    try:
        raw = decompress(read_file(path), str(path))
    except OSError:
        return False
    return not isinstance(raw, Problem) and _KARPENTER.search(raw) is not None


_SPOT = {"karpenter.sh/capacity-type": "spot"}
_RESERVED = {"karpenter.sh/capacity-type": "reserved"}


class Arch(StrEnum):
    """Processor architectures of a catalogue."""

    AMD64 = "amd64"
    ARM64 = "arm64"


class Untyped(Enum):
    """Meaning of ``--catalogue`` without ``--instance-type`` and ``-g`` for a command."""

    REFUSED = auto()
    ALL = auto()
    """All types of the catalogue."""
    PRICES = auto()
    """Prices for the groups recognised in the labels."""


@dataclass(eq=False, repr=False, init=False)
class GroupSource(OptionGroup):
    """Options for the node groups that may grow. By default, groups are recognised by node labels.

    Attributes
    ----------
    groups_file : FILE
        Node groups, as YAML or JSON; or NodePools of Karpenter (with --catalogue); or Auto Scaling groups of AWS: aws:
        (all of the region), aws:tag=KEY=VALUE,... or aws:NAME,...
    node : NAME
        Use one node group, whose new nodes are copies of this node.
    catalogue : NAME|FILE
        Instance types: the name of an imported catalogue, or a file that can be imported (kscale catalogue import
        --help).
    instance_type : NAME|GLOB
        Instance type of the catalogue that becomes a node group; 'm5*': all types that begin with m5, '*': all types.
        Repeatable.
    arch
        Architectures of the catalogue's types. The default is what the cluster's nodes and the pods' constraints on
        kubernetes.io/arch allow. Repeatable.
    family : NAME|GLOB
        Only instance types of this family, such as m5, Dsv5, n2-standard or 'c*'. Repeatable.
    exclude : NAME|GLOB
        Leave out instance types with this name or pattern. Repeatable.
    discount : PERCENT
        Percent off the catalogue's on-demand prices.
    price_list : FILE
        Discounts, own prices and reserved machines by type or family, as YAML or JSON (kscale schema prices).
    region
        Region of the catalogue's types and of their prices. Default: the first region of each type.
    zone
        Zone of the catalogue's types: one group for each type and zone. Repeatable.
    spot
        Also add a spot group for each of the catalogue's types with a spot price.
    """

    title = "Node groups"
    common = ("groups_file", "catalogue")

    groups_file: Annotated[str | None, typer.Option("-g", "--groups")] = None
    node: str | None = None
    catalogue: str | None = None
    instance_type: list[str] | None = None
    arch: list[Arch] | None = None
    family: list[str] | None = None
    exclude: list[str] | None = None
    discount: Annotated[float | None, typer.Option(min=0, max=100)] = None
    price_list: Path | None = None
    region: str | None = None
    zone: list[str] | None = None
    spot: bool = False
    assumptions: list[str] = field(default_factory=list, init=False)
    node_pools: Any = field(default=None, init=False)  # NodePools
    pool_groups: Any = field(default=None, init=False)  # PoolGroups
    _catalogue: Any = field(default=None, init=False)
    _list_prices: Any = field(default=None, init=False)
    _price_rules: Any = field(default=None, init=False)

    @property
    def inputs(self) -> list[str]:
        """Return the names of the files and clusters that are read, for the header of a page."""
        return [str(name) for name in (self.groups_file, self.catalogue, self.price_list) if name is not None]

    def groups(
        self,
        cluster: Cluster,
        snapshot: Snapshot,
        terminal: Terminal,
        *,
        options: AutoscalingOptions | None = None,
        now: datetime | None = None,
        untyped: Untyped = Untyped.REFUSED,
    ) -> list[NodeGroup]:
        """Return the node groups with their templates, built as an autoscaler with these options does at time ``now``.

        Raises InputError or typer.BadParameter if the groups cannot be read.
        """
        self._check(untyped)
        from kscale.capacity.group_templates import with_templates

        named = self._read_named_groups(cluster, snapshot, terminal, untyped)
        return with_templates(cluster, snapshot, named, options=options, now=now)

    def read_groups(
        self, cluster: Cluster, snapshot: Snapshot, terminal: Terminal, *, untyped: Untyped = Untyped.REFUSED
    ) -> list[NodeGroup]:
        """Return the node groups as described, with a template only if the description has one.

        ``untyped``: what a catalogue alone means. Raises InputError or typer.BadParameter if the groups cannot be read.
        """
        self._check(untyped)
        groups = self._read_named_groups(cluster, snapshot, terminal, untyped)
        if self.groups_file is not None or self.node is not None or self._offers_types(untyped):
            return groups
        # A recognised group has its nodes: the loop itself chooses the node to copy.
        return [msgspec.structs.replace(group, from_node=None) if group.nodes else group for group in groups]

    def read_catalogue(self, terminal: Terminal) -> Catalogue | None:
        """Return the catalogue with the customer's prices, read once; None if there is none.

        Raises InputError if the catalogue or the price list cannot be read.
        """
        if self._catalogue is None and self.catalogue is not None:
            from kscale.capacity.price_list import apply_prices, read_price_list

            self._catalogue = catalogue_of(self.catalogue, terminal)
            self._price_rules = read_price_list(self.price_list) if self.price_list is not None else []
            if self._price_rules or self.discount:
                self._list_prices = self._catalogue
                self._catalogue = apply_prices(self._catalogue, self._price_rules, self.discount or 0.0)
        catalogue: Catalogue | None = self._catalogue
        return catalogue

    def _has_node_pools(self) -> bool:
        """Return whether ``-g`` names a file of Karpenter's objects."""
        if self.groups_file is None or self.groups_file.startswith(GROUPS_PREFIX):
            return False
        return has_node_pools(self.groups_file)

    def _offers_types(self, untyped: Untyped) -> bool:
        """Return whether the groups are made of instance types of the catalogue. ``untyped``: see :class:`Untyped`."""
        if self.catalogue is None or self.groups_file is not None:
            return False
        return bool(self.instance_type or self.family) or untyped is Untyped.ALL

    def _check(self, untyped: Untyped) -> None:
        """Raise typer.BadParameter for options that exclude each other, or that have no effect."""
        if self.node is not None and (self.groups_file is not None or self.catalogue is not None):
            raise typer.BadParameter("--node excludes -g and --catalogue", param_hint="--node")
        if self._has_node_pools():
            if self.catalogue is None:
                raise typer.BadParameter("NodePools need --catalogue", param_hint="-g")
            if self.spot:
                raise typer.BadParameter("the NodePools say whether nodes may be spot", param_hint="--spot")
            return
        for option, names in (("--instance-type", self.instance_type), ("--family", self.family)):
            if names and self.groups_file is not None:
                raise typer.BadParameter(f"-g and {option} exclude each other", param_hint=option)
            if names and self.catalogue is None:
                raise typer.BadParameter(f"{option} needs --catalogue", param_hint=option)
        priced = (("--discount", self.discount is not None), ("--price-list", self.price_list is not None))
        for option, is_set in priced:
            if is_set and self.catalogue is None:
                raise typer.BadParameter(f"{option} needs --catalogue", param_hint=option)
        options: list[tuple[str, Any]] = [("--region", self.region), ("--zone", self.zone), ("--spot", self.spot)]
        options += [("--arch", self.arch), ("--exclude", self.exclude)]
        for option, value in options:
            if value and not self._offers_types(untyped):
                needs = "--instance-type" + (", or --catalogue without -g" if untyped is Untyped.ALL else "")
                raise typer.BadParameter(f"{option} needs {needs}", param_hint=option)
        no_types = self.catalogue is not None and self.groups_file is None and not self._offers_types(untyped)
        if no_types and untyped is Untyped.REFUSED:
            text = "--catalogue needs --instance-type, or -g (--instance-type '*' is every type)"
            raise typer.BadParameter(text, param_hint="--catalogue")

    def _read_named_groups(
        self, cluster: Cluster, snapshot: Snapshot, terminal: Terminal, untyped: Untyped
    ) -> list[NodeGroup]:
        """Read the groups from what the options name; by default recognise them by node labels.

        Raises InputError if a file, the catalogue or the cloud account cannot be read.
        """
        from kscale.capacity.groups import read_groups

        if self._has_node_pools():
            return self._build_pool_groups(snapshot, terminal)
        if self.groups_file is not None:
            known = None
            if self.catalogue is not None:
                known = self.read_catalogue(terminal)  # also if no entry needs it, as its name may be misspelt
            if self.groups_file.startswith(GROUPS_PREFIX):
                return read_live_groups(self.groups_file, snapshot.columns.objects, known, terminal)
            return read_groups(self.groups_file, node_names=snapshot.columns.index, catalogue=known)
        if self.node is not None:
            return [NodeGroup(id=f"like-{self.node}", from_node=self.node, target_size=0, max_size=UNLIMITED)]
        catalogue = self.read_catalogue(terminal)
        if catalogue is not None and self._offers_types(untyped):
            return self._build_type_groups(catalogue, cluster, terminal)
        return self._recognise_groups(cluster, snapshot.columns.objects, terminal)

    def _build_pool_groups(self, snapshot: Snapshot, terminal: Terminal) -> list[NodeGroup]:
        """Build one group for each type, zone and capacity type that a NodePool allows.

        Sets ``node_pools`` and ``pool_groups``, and adds to ``assumptions``. Raises InputError if a file cannot be
        read, or if a pool allows none of the types.
        """
        from kscale.capacity.karpenter import groups_of_pools, read_node_pools

        assert self.groups_file is not None
        catalogue = self.read_catalogue(terminal)
        assert catalogue is not None
        catalogue.check_region(self.region or "")
        kinds = catalogue.select(self.instance_type or ["*"], families=self.family or (), exclude=self.exclude or ())
        if self.arch:
            kinds = [kind for kind in kinds if kind.arch in {arch.value for arch in self.arch}]
        self.node_pools = read_node_pools(self.groups_file)
        nodes = snapshot.columns.objects
        zones = self.zone or ()
        converted = groups_of_pools(self.node_pools, kinds, zones=zones, region=self.region or "", nodes=nodes)
        self.pool_groups = converted
        self.assumptions += converted.assumptions
        count = len(self.node_pools.pools)
        terminal.note(f"{count:,} NodePools allow {len({each.kind.name for each in converted.offerings}):,} types")
        return converted.groups

    def _build_type_groups(self, catalogue: Catalogue, cluster: Cluster, terminal: Terminal) -> list[NodeGroup]:
        """Build one group per selected instance type and zone, and those of reserved machines.

        With ``--spot``, types with a spot price get a second group. Raises InputError if no type has one.
        """
        region = self.region or ""
        catalogue.check_region(region)
        selected = catalogue.select(self.instance_type or ["*"], families=self.family or (), exclude=self.exclude or ())
        kinds = self._runnable(selected, catalogue, cluster, terminal)
        zones = list(dict.fromkeys(self.zone or [""]))
        groups = [self._type_group(kind, zone, kind.price(region)) for kind in kinds for zone in zones]
        if self.spot:
            spot = [(kind, price) for kind in kinds if (price := kind.price(region, spot=True)) is not None]
            if not spot:
                raise InputError(f"{catalogue.source}: none of the types has a spot price")
            groups += [self._type_group(kind, zone, price, "-spot", _SPOT) for kind, price in spot for zone in zones]
        return [*groups, *self._reserved_groups(kinds, zones, terminal)]

    def _type_group(
        self,
        kind: InstanceType,
        zone: str,
        price: float | None,
        suffix: str = "",
        labels: dict[str, str] | None = None,
        most: int = UNLIMITED,
    ) -> NodeGroup:
        """Build the empty group of an instance type in a zone (empty: any), with at most ``most`` nodes.

        ``price``: $ per hour, None if unknown; ``suffix``: of the group's name; ``labels``: further labels of its
        nodes.
        """
        return NodeGroup(
            id=f"{kind.name}-{zone}{suffix}" if zone else f"{kind.name}{suffix}",
            template=kind.template(zone=zone, region=self.region or "", labels=labels),
            price=price,
            target_size=0,
            max_size=most,
        )

    def _reserved_groups(self, kinds: list[InstanceType], zones: list[str], terminal: Terminal) -> list[NodeGroup]:
        """Build the groups of reserved machines in the price list, which have a maximum number of nodes.

        Raises InputError if it is unclear in which of several zones a reservation is.
        """
        from kscale.capacity.price_list import reservations_of

        region = self.region or ""
        groups: list[NodeGroup] = []
        numbers: Counter[tuple[str, str]] = Counter()
        for rule, kind, zone in reservations_of(self._price_rules or [], kinds, zones, region):
            price = rule.apply(self._list_prices[kind.name].price(region))
            numbers[kind.name, zone] += 1
            suffix = "-reserved" if numbers[kind.name, zone] == 1 else f"-reserved-{numbers[kind.name, zone]}"
            groups.append(self._type_group(kind, zone, price, suffix, _RESERVED, rule.reserved or 0))
        if groups:
            terminal.note(f"reserved machines in the price list: {sum(group.max_size for group in groups):,}")
        return groups

    def _runnable(
        self, kinds: list[InstanceType], catalogue: Catalogue, cluster: Cluster, terminal: Terminal
    ) -> list[InstanceType]:
        """Return the types with an architecture of ``--arch``, by default of :func:`architectures_of`.

        Without ``--arch``, types that are named without a pattern are always included, and all types if no architecture
        is known. Notes on stderr count the types that are left out; a warning names architectures that no node has.
        What is assumed is added to ``assumptions``. Raises InputError if no type is left.
        """
        from kscale.capacity.machine_types import architectures_of

        cluster_architectures = architectures_of(cluster)
        node_architectures = ", ".join(sorted(cluster_architectures.nodes))
        allowed = cluster_architectures.allowed if not self.arch else {arch.value for arch in self.arch}
        if not allowed:
            if len({kind.arch for kind in kinds}) > 1:
                terminal.warn(
                    "the architecture of the nodes is unknown: types of all architectures are offered (--arch chooses)"
                )
                offered = " and ".join(sorted({kind.arch for kind in kinds}))
                self.assumptions.append(f"the pods' images exist for {offered}, as no node or pod names one")
            return kinds
        named = set(self.instance_type or []) if not self.arch else set()
        runnable = [kind for kind in kinds if kind.arch in allowed or kind.name in named]
        left = Counter(kind.arch for kind in kinds) - Counter(kind.arch for kind in runnable)
        why = (
            "--arch"
            if self.arch
            else f"the nodes of the cluster are {node_architectures or 'none'}; --arch offers them"
        )
        if left and not self.arch:
            offered = " and ".join(sorted({kind.arch for kind in runnable}))
            reason = "the cluster's nodes are" if cluster_architectures.nodes else "the pods ask for"
            self.assumptions.append(f"new nodes are {offered}, as {reason} (--arch chooses)")
        for arch, count in left.items():
            terminal.note(f"{count:,} {arch} {plural('type', count)} of the catalogue left out ({why})")
        if not runnable:
            chosen = " or ".join(sorted(allowed))
            raise InputError(f"{catalogue.source}: none of the types is {chosen}, which the nodes of the cluster are"
                             if not self.arch else f"{catalogue.source}: none of the types is {chosen}")  # fmt: skip
        if (
            others := sorted({kind.arch for kind in runnable} - cluster_architectures.nodes)
            if cluster_architectures.nodes
            else []
        ):
            terminal.warn(
                f"{' and '.join(others)} types are offered, the nodes of the cluster are {node_architectures}: "
                "pods that name no architecture may be planned on them"
            )
        return runnable

    def _recognise_groups(self, cluster: Cluster, nodes: Sequence[Node], terminal: Terminal) -> list[NodeGroup]:
        """Return the groups in the dump: those of Cluster API, then those recognised by labels of the other nodes.

        The latter have neither a maximum nor a target size.
        """
        from kscale.capacity.groups import MACHINE_KINDS, machine_groups, recognise_groups

        machines = machine_groups([each for kind in MACHINE_KINDS for each in cluster.all(kind)], nodes)
        for text in machines.warnings:
            terminal.warn(text)
        if machines.groups:
            terminal.note(f"node groups of Cluster API in the input: {len(machines.groups):,}")
        machine_nodes = {name for group in machines.groups for name in group.nodes}
        recognised = recognise_groups(node for node in nodes if node.metadata.name not in machine_nodes)
        if recognised.groups:
            providers = ", ".join(dict.fromkeys(each.provider for each in recognised.groups))
            terminal.note(
                f"node groups recognised in the labels ({providers}): {len(recognised.groups):,}; sizes have no limit"
            )
        if recognised.others:
            terminal.note(f"nodes in no recognised group: {len(recognised.others):,}")
        # Labels have no target size. It is the number of nodes, unless an earlier loop requested more.
        unlimited = [
            msgspec.structs.replace(each.group, max_size=UNLIMITED, target_size=None) for each in recognised.groups
        ]
        return [*machines.groups, *unlimited]

    def karpenter_choice(
        self, snapshot: Snapshot, pods: Sequence[str], groups: Sequence[NodeGroup], terminal: Terminal
    ) -> tuple[KarpenterChoice, StartPlan] | None:
        """Return (nodes that Karpenter would launch for the pods, plan of their start).

        None if the groups are no NodePools.
        """
        if self.node_pools is None or self.pool_groups is None:
            return None
        from kscale.capacity.karpenter.plan import plan_nodes

        with terminal.step("computing what Karpenter would launch"):
            return plan_nodes(snapshot, pods, self.node_pools, self.pool_groups, groups)

    def words(self) -> list[str]:
        """Return the options that name the groups as command-line words; empty if none is set."""
        pairs = [("-g", self.groups_file), ("--node", self.node), ("--catalogue", self.catalogue)]
        pairs += [("--instance-type", name) for name in self.instance_type or []]
        pairs += [("--arch", arch.value) for arch in self.arch or []]
        pairs += [("--family", name) for name in self.family or []]
        pairs += [("--exclude", name) for name in self.exclude or []]
        pairs += [("--discount", None if self.discount is None else f"{self.discount:g}")]
        pairs += [("--price-list", None if self.price_list is None else str(self.price_list))]
        pairs += [("--region", self.region), *(("--zone", name) for name in self.zone or [])]
        words = [word for option, value in pairs if value is not None for word in (option, shlex.quote(value))]
        return [*words, *(["--spot"] if self.spot else [])]
