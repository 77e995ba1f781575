"""Convert NodePools to node groups: one for each instance type, zone and capacity type that a pool allows.

The labels are those of Karpenter's providers for AWS (``karpenter.k8s.aws``), Azure (``karpenter.azure.com``) and
Google Cloud (``karpenter.k8s.gcp``), as far as a catalogue says their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from kscale.capacity.catalogue import InstanceType
from kscale.capacity.catalogue.types import gpu_resource
from kscale.capacity.karpenter.node_pools import CAPACITY_TYPE, NODE_POOL, NodePool, NodePools
from kscale.capacity.karpenter.requirements import WELL_KNOWN, Operator, Requirement, Requirements, requirement
from kscale.capacity.machine_types import Cloud, parse_type_name
from kscale.capacity.mix.offers import ON_DEMAND, SPOT, SharedLimit
from kscale.capacity.records import UNLIMITED
from kscale.errors import InputError
from kscale.objects.api.core import Node
from kscale.objects.argument_types import typed
from kscale.objects.node_selectors import ARCH, INSTANCE_TYPE, OS, REGION, ZONE
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.pod_resources import to_integers

__all__ = ["PoolGroups", "PoolOffering", "groups_of_pools", "labels_of_type", "with_existing_nodes"]

_PROVIDERS = ("karpenter.k8s.aws/", "karpenter.azure.com/", "karpenter.k8s.gcp/")
_PREFIX = dict(zip(Cloud, _PROVIDERS, strict=True))
_CLOUD_OF_CLASS = {"EC2NodeClass": Cloud.AWS, "AKSNodeClass": Cloud.AZURE, "GCENodeClass": Cloud.GOOGLE}


@dataclass(frozen=True, slots=True)
class PoolOffering:
    """An instance type that a NodePool may launch in a zone, as on-demand, spot or reserved."""

    pool: str
    kind: InstanceType
    zone: str
    capacity_type: str
    price: float | None
    group: str
    """The node group that stands for it."""


@dataclass(frozen=True, slots=True)
class PoolGroups:
    """NodePools as node groups.

    Attributes
    ----------
    groups : list of NodeGroup
        One for each offering.
    offerings : list of PoolOffering
        In the order of the groups.
    limits : list of SharedLimit
        The pools' limits, less what their nodes and node claims have.
    assumptions : list of str
        Requirements that cannot be judged.
    types : mapping
        What is true of nodes of each instance type of the cloud, by pool and type.
    left : mapping
        What the limits leave, by pool and resource. Negative if the pool's nodes have more than the limit.
    """

    groups: list[NodeGroup]
    offerings: list[PoolOffering]
    limits: list[SharedLimit]
    assumptions: list[str]
    types: Mapping[str, Mapping[str, Requirements]] = field(default_factory=dict)
    left: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def left_by_limits(self, pool: str) -> Mapping[str, int]:
        """Return what the limits of the NodePool ``pool`` leave, by resource; empty without limits.

        An amount is negative if the pool's nodes exceed the limit; but if ``left`` does not contain the pool, such an
        amount is 0, as in :meth:`remaining`.
        """
        return self.left.get(pool) or self.remaining(pool)

    def remaining(self, pool: str) -> dict[str, int]:
        """Return what the limits of a NodePool leave for new nodes, by resource; 0 if nothing is left.

        Empty without limits.

        Parameters
        ----------
        pool : str
            Name of the NodePool.
        """
        return {each.resource: each.most for each in self.limits if each.name == f"NodePool {pool}"}


def labels_of_type(kind: InstanceType) -> dict[str, str]:
    """Return the labels that Karpenter's provider derives from an instance type: family, size, cpu, memory, GPUs, ...

    Empty if the type's name has none of the known clouds' forms.
    """
    name = parse_type_name(kind.name)
    if name.cloud is None:
        return {}
    cpu, memory = kind.capacity["cpu"].value(), kind.capacity["memory"].value() // 2**20
    gpus = kind.capacity.get(gpu_resource(kind.gpu_name))
    gpu = {} if gpus is None else {"gpu-count": str(gpus.value())}
    if gpu and kind.gpu_name:
        gpu["gpu-name"] = kind.gpu_name.lower() if name.cloud is Cloud.AWS else kind.gpu_name
    generation = {} if name.generation is None else {"generation": str(name.generation)}
    if name.cloud is Cloud.AZURE:
        fields = {"name": kind.name, "family": name.category, "version": generation.get("generation", "1")}
        fields |= {"cpu": str(cpu), "memory": str(memory), **gpu}
        return {f"{_PREFIX[name.cloud]}sku-{key}": value for key, value in fields.items()}
    family = name.family.partition("-")[0] if name.cloud is Cloud.GOOGLE else name.family
    fields = {"category": name.category, "family": family, **generation, "size": name.size, "cpu": str(cpu)}
    fields |= {"memory": str(memory), **gpu}
    return {f"{_PREFIX[name.cloud]}instance-{key}": value for key, value in fields.items() if value}


def requirements_of_type(
    kind: InstanceType, zones: Iterable[str], region: str, capacity_types: Iterable[str] = ()
) -> Requirements:
    """Return which label values nodes of an instance type have, as requirements.

    Labels that the catalogue does not know are left out. A type without GPUs must lack the labels of GPUs. ``zones``,
    ``region``, ``capacity_types``: where and as what the type is offered; empty: unknown.
    """
    labels = {INSTANCE_TYPE: [kind.name], ARCH: [kind.arch], OS: ["linux"], REGION: [region] if region else []}
    labels |= {ZONE: [zone for zone in zones if zone], CAPACITY_TYPE: list(capacity_types)}
    labels |= {key: [value] for key, value in labels_of_type(kind).items()}
    result = [requirement(key, Operator.IN, values) for key, values in labels.items() if values]
    # A type without GPUs lacks the label rather than having it with the value 0.
    prefix = _PREFIX.get(parse_type_name(kind.name).cloud or Cloud.AWS, "")
    middle = "sku" if prefix == _PREFIX[Cloud.AZURE] else "instance"
    known = {each.key for each in result}
    result += [
        requirement(key, Operator.DOES_NOT_EXIST)
        for key in (f"{prefix}{middle}-gpu-count", f"{prefix}{middle}-gpu-name")
        if key not in known and not any(name.endswith("/gpu") for name in kind.capacity)
    ]
    return Requirements(result)


def offering_requirements(zone: str, capacity_type: str) -> Requirements:
    """Return the requirements of an offering: its zone (if it has one) and capacity type."""
    labels = {CAPACITY_TYPE: capacity_type, **({ZONE: zone} if zone else {})}
    return Requirements(requirement(key, Operator.IN, [value]) for key, value in labels.items())


@typed
def groups_of_pools(
    pools: NodePools,
    kinds: Sequence[InstanceType],
    *,
    zones: Sequence[str] = (),
    region: str = "",
    nodes: Iterable[Node] = (),
) -> PoolGroups:
    """Convert NodePools to node groups.

    Parameters
    ----------
    pools : NodePools
        The NodePools.
    kinds : sequence of InstanceType
        The instance types of the cloud.
    zones : sequence of str
        The zones of new nodes. Default: those that each pool names, otherwise nodes have no zone.
    region : str
        The region whose prices count. Empty: the first region of each type.
    nodes : iterable of Node
        Existing nodes, which count towards the limits of the pool in their label ``karpenter.sh/nodepool``.

    Returns
    -------
    PoolGroups
        Pools in the order in which Karpenter tries them, types in the order of the catalogue. A type is offered as spot
        only if its spot price is known, as on-demand also without a price.

    Raises
    ------
    InputError
        If a pool allows none of the types.

    Notes
    -----
    Not in upstream, where a node claim keeps several types.
    """
    groups: list[NodeGroup] = []
    offerings: list[PoolOffering] = []
    limits: list[SharedLimit] = []
    assumptions: dict[str, None] = {}
    used = _used(pools, nodes)
    types: dict[str, dict[str, Requirements]] = {}
    left: dict[str, dict[str, int]] = {}
    for pool in pools.pools:
        required = pool.requirements()
        named_zones = list(zones) or _named_zones(required.requirement_for(ZONE))
        own = []
        for kind in _of_cloud(pool, kinds):
            capacity_types = (ON_DEMAND,) if kind.price(region, spot=True) is None else (ON_DEMAND, SPOT)
            of_type = requirements_of_type(kind, named_zones, region, capacity_types)
            types.setdefault(pool.name, {})[kind.name] = of_type
            if of_type.find_conflict(required) is not None:
                continue
            for zone in named_zones:
                for capacity_type, price in ((ON_DEMAND, kind.price(region)), (SPOT, kind.price(region, spot=True))):
                    if capacity_type == SPOT and price is None:
                        continue
                    if not required.is_compatible(offering_requirements(zone, capacity_type), undefined=WELL_KNOWN):
                        continue
                    name = "/".join(filter(None, (pool.name, kind.name, zone, "" if price is None else capacity_type)))
                    own.append(PoolOffering(pool.name, kind, zone, capacity_type, price, name))
        if not own:
            raise InputError(f"NodePool {pool.name}: its requirements allow none of the catalogue's types")
        _assume(pool, required, own, assumptions)
        left[pool.name] = _left(pool, used.get(pool.name, {}))
        remaining = {name: max(0, amount) for name, amount in left[pool.name].items()}
        new = [_group(pool, required, offering, region, remaining) for offering in own]
        groups += new
        offerings += own
        limits += [
            SharedLimit(
                name=f"NodePool {pool.name}", offers=frozenset(group.id for group in new), resource=name, most=most
            )
            for name, most in remaining.items()
        ]
    return PoolGroups(groups, offerings, limits, list(assumptions), types, left)


def _of_cloud(pool: NodePool, kinds: Sequence[InstanceType]) -> list[InstanceType]:
    """Return the types of the cloud that the pool's node class belongs to, and types whose cloud is not known.

    All types if the cloud of the node class is not known.
    """
    cloud = _CLOUD_OF_CLASS.get(pool.spec.template.spec.node_class_ref.kind)
    return [kind for kind in kinds if cloud is None or parse_type_name(kind.name).cloud in (None, cloud)]


def _named_zones(zone: Requirement) -> list[str]:
    """Return the zones that a requirement names, sorted; ``[""]``, which means any zone, if it names none."""
    return sorted(zone.values) if zone.operator is Operator.IN else [""]


def _assume(
    pool: NodePool, required: Requirements, offerings: Sequence[PoolOffering], assumptions: dict[str, None]
) -> None:
    """Add to ``assumptions`` a text for each requirement on a provider's label that the catalogue does not know."""
    known = {key for offering in offerings for key in labels_of_type(offering.kind)}
    gpus = {key for key in required if key.endswith(("-gpu-count", "-gpu-name"))}
    for key in required:
        if key.startswith(_PROVIDERS) and "/" in key and key not in known | gpus and not _is_class(pool, key):
            assumptions[f"NodePool {pool.name}: every type meets its requirement on {key}, which no catalogue says"] = (
                None
            )


def _is_class(pool: NodePool, key: str) -> bool:
    """Check whether ``key`` is the label by which nodes of the pool name their node class."""
    reference = pool.spec.template.spec.node_class_ref
    return key == f"{reference.group}/{reference.kind.lower()}"


def _used(pools: NodePools, nodes: Iterable[Node]) -> dict[str, dict[str, int]]:
    """Return the capacity of the nodes, and of node claims whose node is not among them, by NodePool and resource.

    Amounts are milli-cores, bytes and units; the resource ``nodes`` is the number of nodes and of such claims. Nodes
    and claims without a pool's label are left out.
    """
    result: dict[str, dict[str, int]] = {}
    named = set()

    def add(pool: str, amounts: Mapping[str, int]) -> None:
        """Count a node with these amounts for a pool."""
        entry = result.setdefault(pool, {"nodes": 0})
        for name, amount in {**amounts, "nodes": 1}.items():
            entry[name] = entry.get(name, 0) + amount

    for node in nodes:
        named.add(node.metadata.name)
        pool = (node.metadata.labels or {}).get(NODE_POOL)
        if pool is not None:
            add(pool, to_integers(node.status.capacity or {}))
    for claim in pools.claims:
        pool = (claim.metadata.labels or {}).get(NODE_POOL)
        if pool is not None and claim.status.node_name not in named:
            add(pool, to_integers(claim.status.capacity or {}))
    return result


def remaining_of_pools(pools: NodePools, nodes: Iterable[Node]) -> dict[str, dict[str, int]]:
    """Return, by NodePool and resource, what its limits allow in addition to ``nodes`` and node claims without a node.

    An amount is negative if the pool's nodes have more than the limit.
    """
    used = _used(pools, nodes)
    return {pool.name: _left(pool, used.get(pool.name, {})) for pool in pools.pools}


def _left(pool: NodePool, used: Mapping[str, int]) -> dict[str, int]:
    """Return how much of each limited resource new nodes of the pool may have; negative if the limit is exceeded.

    ``used``: capacity of its nodes by resource.
    """
    limits = dict(pool.spec.limits or {})
    amounts = {"nodes": limits.pop("nodes").value()} if "nodes" in limits else {}
    amounts |= to_integers(limits)
    return {name: amount - used.get(name, 0) for name, amount in amounts.items()}


def _group(
    pool: NodePool, required: Requirements, offering: PoolOffering, region: str, remaining: Mapping[str, int]
) -> NodeGroup:
    """Build the node group of an offering; its maximum size is what the pool's limits leave for this type alone.

    ``required``: the pool's requirements; of several allowed values of a custom label, nodes have the alphabetically
    first. ``remaining``: what its limits leave, by resource.
    """
    labels = {CAPACITY_TYPE: offering.capacity_type, **labels_of_type(offering.kind)}
    for key, each in required.items():
        is_custom = key not in WELL_KNOWN and not key.startswith(_PROVIDERS)
        if is_custom and each.operator is Operator.IN:
            labels[key] = min(each.values)
    labels[NODE_POOL] = pool.name
    reference = pool.spec.template.spec.node_class_ref
    if reference.kind:
        labels[f"{reference.group}/{reference.kind.lower()}"] = reference.name
    template = offering.kind.template(zone=offering.zone, region=region, labels=labels)
    taints = list(pool.spec.template.spec.taints)
    node = replace(template.node, spec=replace(template.node.spec, taints=taints))
    capacity = {"nodes": 1, **to_integers(node.status.capacity or {})}
    sizes = [most // capacity[name] for name, most in remaining.items() if capacity.get(name)]
    return NodeGroup(
        id=offering.group,
        template=replace(template, node=node),
        price=offering.price,
        target_size=0,
        max_size=min([UNLIMITED, *sizes]),
    )


@typed
def with_existing_nodes(groups: Iterable[NodeGroup], pools: NodePools, nodes: Iterable[Node]) -> list[NodeGroup]:
    """Return the groups of NodePools with the nodes that exist, as groups whose nodes may be removed.

    Parameters
    ----------
    groups : iterable of NodeGroup
        The groups of :func:`groups_of_pools`.
    pools : NodePools
        The NodePools.
    nodes : iterable of Node
        The existing nodes.

    Returns
    -------
    list of NodeGroup
        Each group has the nodes of its pool, type, zone and capacity type, and may have as many more as before. Other
        nodes of a pool form groups of their own by type, zone and capacity type, which get no new node.

    Notes
    -----
    Not in upstream: Karpenter has no node groups.
    """
    members: dict[tuple[str, ...], list[str]] = {}
    for node in nodes:
        labels = node.metadata.labels or {}
        if labels.get(NODE_POOL) in {pool.name for pool in pools.pools}:
            members.setdefault(tuple(labels.get(key, "") for key in _IDENTITY), []).append(node.metadata.name)
    result = []
    for group in groups:
        labels = group.node_template.node.metadata.labels or {}
        names = members.pop(tuple(labels.get(key, "") for key in _IDENTITY), [])
        maximum = group.max_size if group.max_size >= UNLIMITED else group.max_size + len(names)
        result.append(replace(group, nodes=names, target_size=len(names), max_size=maximum))
    for (pool, *more), names in members.items():
        name = "/".join([pool, *filter(None, more), "existing"])
        result.append(NodeGroup(id=name, nodes=names, target_size=len(names), max_size=len(names)))
    return result


_IDENTITY = (NODE_POOL, INSTANCE_TYPE, ZONE, CAPACITY_TYPE)
"""Labels by which a node belongs to the group of an offering."""
