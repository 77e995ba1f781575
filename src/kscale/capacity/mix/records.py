"""Result records of ``kscale mix``, and their conversion to groups files and Karpenter NodePools.

Not in upstream.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec

from kscale.capacity.machine_types import arch_of
from kscale.capacity.mix.offers import Offer, offers_of
from kscale.capacity.records import KarpenterChoice
from kscale.errors import InputError
from kscale.objects.argument_types import typed, typed_methods
from kscale.objects.decode import enc_hook
from kscale.objects.node_selectors import ARCH, HOSTNAME, INSTANCE_TYPE, ZONE
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.pod_resources import CPU, MEMORY
from kscale.objects.quantity import Quantity
from kscale.records import Record

__all__ = ["Bound", "MixLine", "MixPlan", "Repairs", "TypesPoint", "groups_entries", "node_class_of", "node_pool"]


class Part(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """Base of the parts of a plan's record."""


class MixLine(Part, frozen=True):
    """New nodes of one instance type and capacity type.

    Attributes
    ----------
    type : str
        Instance type.
    capacity_type : str
        Capacity type, such as ``on-demand`` or ``spot``.
    nodes : int
        Number of nodes.
    pods : int
        Number of pods on them.
    utilization : dict of str to float
        Requests divided by allocatable, by resource.
    price : float
        Price of one node per hour.
    cost : float
        Price of all these nodes per hour.
    share : float
        ``cost`` divided by the cost of all new nodes, from 0 to 1.
    zones : dict of str to int
        Number of nodes by zone.
    groups : dict of str to int
        Number of nodes by node group.
    arch : str
        CPU architecture (``kubernetes.io/arch``). Empty: the offer does not say.
    generation : int or None
        Generation of the machine, according to the name of its type. None: the name does not say.
    """

    type: str
    capacity_type: str
    nodes: int
    pods: int
    utilization: dict[str, float]
    price: float
    cost: float
    share: float
    zones: dict[str, int] = {}
    groups: dict[str, int] = {}
    arch: str = ""
    generation: int | None = None


class Bound(Part, frozen=True):
    """Lower bound of the cost of new nodes, proven in integers.

    Attributes
    ----------
    cost : float or None
        No nodes for these pods cost less per hour. None: limits of groups leave pods unscheduled.
    method : str
        How the bound was proven: ``column_generation`` (linear programming over everything that a node can hold) or
        ``volume`` (prices of resources).
    gap : float or None
        By what part the plan's cost exceeds the bound (0.1: by 10 %). 0 if the bound is 0. None: as for ``cost``.
    relaxed : list of str
        Constraints of pods that the bound ignores.
    """

    cost: float | None
    method: str
    gap: float | None
    relaxed: list[str] = []


class Repairs(Part, frozen=True):
    """Changes of the plan by the check with the scheduler's exact predicates.

    Attributes
    ----------
    moved : int
        Number of pods that are on another node than planned.
    added : int
        Number of nodes that were not planned.
    cost : float
        Price of these nodes per hour.
    """

    moved: int
    added: int
    cost: float


class TypesPoint(Part, frozen=True):
    """The cheapest plan found with a limited number of instance types, after the exact check.

    Attributes
    ----------
    types : int or None
        Maximum number of instance types. None: no limit.
    cost : float
        Price of the new nodes per hour.
    chosen : list of str
        Names of the instance types.
    unschedulable_count : int
        Number of pods that fit no node of these types.
    """

    types: int | None
    cost: float
    chosen: list[str]
    unschedulable_count: int = 0


class PlannedNode(Part, frozen=True):
    """A new node and the pods on it.

    Attributes
    ----------
    name : str
        Name of the node in the plan.
    offer : str
        Id of the node group that offers it.
    type : str
        Instance type.
    zone : str
        Zone. Empty: unknown.
    price : float
        Price of the node per hour.
    pods : list of str
        Its pods, as ``namespace/name``.
    """

    name: str
    offer: str
    type: str
    zone: str
    price: float
    pods: list[str]


@typed_methods()
class MixPlan(Record, frozen=True, dict=True):
    """The cheapest mix of nodes found for some pods, and a lower bound of the cost. Costs are those of the new nodes,
    per hour; ``pods`` = ``on_existing`` + ``on_new`` + ``unschedulable_count``.

    Attributes
    ----------
    pods : int
        Number of pods.
    on_existing : int
        Number of pods on existing nodes.
    on_new : int
        Number of pods on new nodes.
    unschedulable_count : int
        Number of pods without a place.
    node_count : int
        Number of new nodes.
    types : int
        Number of different instance types.
    cost : float
        Cost of the plan, after the exact check.
    planned : float
        Cost of the plan before the exact check.
    bound : Bound
        Lower bound of the cost of any plan.
    lines : list of MixLine
        New nodes by instance type.
    repairs : Repairs
        Changes by the exact check.
    curve : list of TypesPoint
        Cost by the allowed number of instance types.
    unschedulable : list of str
        Pods that no offer and no existing node holds, or for which limits leave no node, as ``namespace/name``.
    limits_reached : list of str
        Node groups that reach their maximum size.
    unmodelled : list of str
        Properties of pods that no plan takes into account.
    effort : list of int
        Effort spent on the bound, then on the plan. The same values as options repeat the same search.
    stopped : list of str
        What ended the search for the bound, then for the plan: empty (nothing more to find), ``effort`` or ``time``.
    offers : dict of str to int
        Number of new nodes by offer.
    nodes : list of PlannedNode or None
        The new nodes with their pods. None: not requested.
    placed : dict of str to str or None
        Node of each pod that has a place. None: not requested.
    assumptions : list of str
        Assumptions of the choice of offers, as texts.
    karpenter : KarpenterChoice or None
        Nodes that Karpenter would launch. None: the node groups are not NodePools.
    """

    KIND: ClassVar[str] = "MixPlan"
    ROWS: ClassVar[str] = "lines"

    pods: int
    on_existing: int
    on_new: int
    unschedulable_count: int
    node_count: int
    types: int
    cost: float
    planned: float
    bound: Bound
    lines: list[MixLine]
    repairs: Repairs
    curve: list[TypesPoint]
    unschedulable: list[str]
    limits_reached: list[str]
    unmodelled: list[str]
    effort: list[int]
    stopped: list[str]
    offers: dict[str, int]
    nodes: list[PlannedNode] | None = None
    placed: dict[str, str] | None = None
    assumptions: list[str] = msgspec.field(default_factory=list)
    karpenter: KarpenterChoice | None = None

    def summary(self) -> str:
        """Return a line: the new nodes of each offer, their cost per hour with its bound, and unschedulable pods."""
        offers = ", ".join(f"{count:,} x {name}" for name, count in self.offers.items())
        bound = "" if self.bound.cost is None else f", at least {self.bound.cost:,.4g}"
        left = f", {self.unschedulable_count:,} pods unschedulable" if self.unschedulable_count else ""
        return f"{self.node_count:,} new nodes ({offers or 'none'}), {self.cost:,.4g} per hour{bound}{left}"

    def explain(self, pod: str) -> str:
        """Return where a pod of the plan is placed, or why it has no place, in one line.

        ``pod``: ``namespace/name``. Raises InputError if the pod has a place and the plan was computed without
        ``placements``, or if it is not part of the plan.
        """
        if pod in self.unschedulable:
            limits = f"; limits reached: {', '.join(self.limits_reached)}" if self.limits_reached else ""
            return f"no offer and no existing node takes it{limits}"
        if self.placed is None:
            raise InputError("placements: the plan was computed without placements=True")
        if pod not in self.placed:
            raise InputError(f"pod {pod!r} is not part of this plan")
        return f"placed on {self.placed[pod]}"

    @property
    def groups(self) -> list[NodeGroup]:
        """Return one node group for each offer that the plan uses, for the next call.

        Pass them to :func:`kscale.scale_up`, or one of them to :func:`kscale.estimate`. A group has no node yet and may
        grow to the plan's number of nodes. Raises InputError for a plan that was read from JSON: it has no templates.
        """
        offers: dict[str, Offer] | None = self.__dict__.get("_offers")
        if offers is None:
            raise InputError("groups: a plan that was read from JSON has no templates; see groups_entries")
        return [
            NodeGroup(
                id=name,
                min_size=0,
                max_size=count,
                target_size=0,
                price=offers[name].price,
                template=offers[name].template,
            )
            for name, count in self.offers.items()
        ]

    def with_offers(self, offers: Iterable[Offer]) -> MixPlan:
        """Store those of ``offers`` that the plan uses, for :attr:`groups`, and return the plan itself."""
        self.__dict__["_offers"] = {offer.name: offer for offer in offers if offer.name in self.offers}
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        offers = self.__dict__.get("_offers")
        return _restore_plan, (msgspec.structs.asdict(self), None if offers is None else list(offers.values()))


def _restore_plan(fields: dict[str, Any], offers: list[Offer] | None) -> MixPlan:
    """Build a plan from its fields, with the offers that it uses (None: unknown); for pickle."""
    plan = MixPlan(**fields)
    return plan if offers is None else plan.with_offers(offers)


@dataclass(frozen=True, slots=True)
class _Cloud:
    """A cloud with a Karpenter provider: rules to recognise its nodes and types, and its node class."""

    node_class: tuple[str, str, str]
    provider_id: str
    labels: tuple[str, ...]
    """Prefixes of label keys that only its nodes have."""
    type_name: re.Pattern[str]


_CLOUDS: Final = {
    "AWS": _Cloud(
        ("karpenter.k8s.aws", "EC2NodeClass", "default"),
        "aws:",
        ("eks.amazonaws.com/", "karpenter.k8s.aws/", "topology.ebs.csi.aws.com/", "alpha.eksctl.io/"),
        re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+"),
    ),
    "Azure": _Cloud(
        ("karpenter.azure.com", "AKSNodeClass", "default"),
        "azure:",
        ("kubernetes.azure.com/", "karpenter.azure.com/", "topology.disk.csi.azure.com/"),
        re.compile(r"(?:Standard|Basic)_\w+(?:-\w+)*"),
    ),
    "Google Cloud": _Cloud(
        ("karpenter.k8s.gcp", "GCENodeClass", "default"),
        "gce:",
        ("cloud.google.com/", "karpenter.k8s.gcp/", "topology.gke.io/"),
        re.compile(
            r"[a-z]\d+[a-z]*-(?:standard|micro|small|medium|custom|high|ultra|mega|hyper|max|edge)[a-z0-9]*(?:-\w+)*"
        ),
    ),
}
"""Types are recognised by name only where neither the provider ID nor the labels of the node say the cloud."""


@typed
def groups_entries(plan: MixPlan, offers: Iterable[Offer | NodeGroup]) -> list[dict[str, Any]]:
    """Convert a plan to the entries of a groups file.

    Parameters
    ----------
    plan : MixPlan
        The plan.
    offers : iterable of Offer or NodeGroup
        The offers that the plan was computed from.

    Returns
    -------
    list of dict
        For every used offer a group with target 0 that may grow to the plan's number of nodes. Its template has labels
        (without the host name), taints and resources; DaemonSet pods are omitted, as an autoscaler finds them itself.

    Raises
    ------
    InputError
        If the offers are not those of the plan.
    """
    chosen = {offer.name: offer for offer in offers_of(offers)}
    entries = []
    for name, count in _count_nodes(plan, chosen).items():
        offer = chosen[name]
        node: dict[str, Any] = msgspec.to_builtins(offer.template.node, enc_hook=enc_hook)
        metadata, spec, status = node.get("metadata", {}), node.get("spec", {}), node.get("status", {})
        template: dict[str, Any] = {
            "metadata": {
                "labels": {key: value for key, value in (metadata.get("labels") or {}).items() if key != HOSTNAME}
            },
            "status": {key: status[key] for key in ("capacity", "allocatable") if status.get(key)},
        }
        if spec.get("taints"):
            template["spec"] = {"taints": spec["taints"]}
        entries.append({"id": name, "min": 0, "max": count, "target": 0, "price": offer.price, "template": template})
    return entries


@typed
def node_pool(
    plan: MixPlan,
    offers: Iterable[Offer | NodeGroup],
    *,
    name: str = "mix",
    node_class: tuple[str, str, str] | None = None,
) -> dict[str, Any]:
    """Build a Karpenter NodePool (``karpenter.sh/v1``) for a plan.

    It allows the plan's types, architectures, zones and capacity types, and no more cpu and memory than the plan has.
    Other labels and the taints of the templates are left out.

    Parameters
    ----------
    plan : MixPlan
        A plan with new nodes.
    offers : iterable of Offer or NodeGroup
        The offers that the plan was computed from.
    name : str
        The name of the NodePool.
    node_class : (str, str, str), optional
        API group, kind and name of the node class. Default: that of the cloud whose nodes the offers are
        (:func:`node_class_of`).

    Returns
    -------
    dict
        The manifest.

    Raises
    ------
    InputError
        For a plan without new nodes, for offers that are not those of the plan, and if no node class is given and the
        cloud is not known.
    """
    chosen = {offer.name: offer for offer in offers_of(offers)}
    counts = _count_nodes(plan, chosen)
    if not counts:
        raise InputError("the plan has no new nodes: there is nothing that a NodePool could allow")
    used = [chosen[offer] for offer in counts]
    requirements = [
        (INSTANCE_TYPE, {offer.type for offer in used}),
        (ARCH, {arch for offer in used if (arch := arch_of(offer.template.node))}),
        ("karpenter.sh/capacity-type", {offer.capacity_type for offer in used}),
        (ZONE, {offer.zone for offer in used if offer.zone}),
    ]
    total: dict[str, Quantity] = {}
    for offer, count in zip(used, counts.values(), strict=True):
        amounts = offer.template.node.status.capacity or {}
        for resource in (CPU, MEMORY):
            for _ in range(count if resource in amounts else 0):
                total[resource] = total[resource] + amounts[resource] if resource in total else amounts[resource]
    group, kind, called = node_class or node_class_of(used)
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "spec": {
                    "nodeClassRef": {"group": group, "kind": kind, "name": called},
                    "requirements": [
                        {"key": key, "operator": "In", "values": sorted(values)}
                        for key, values in requirements
                        if values
                    ],
                }
            },
            "limits": {resource: str(amount) for resource, amount in total.items()},
        },
    }


@typed
def node_class_of(offers: Iterable[Offer]) -> tuple[str, str, str]:
    """Return API group, kind and name of the node class for the cloud of the offers.

    The cloud follows from provider IDs and labels of the nodes, else from the names of the types. Raises InputError
    without offers, if an offer is of no known cloud, and for offers of several clouds.
    """
    clouds = {offer.name: _cloud_of(offer) for offer in offers}
    unknown = [name for name, cloud in clouds.items() if cloud is None]
    if unknown:
        hint = "AWS, Azure and Google Cloud are known"
        raise InputError(f"the cloud of {unknown[0]} is unknown: name the node class ({hint})")
    if not clouds:
        raise InputError("there are no offers that say of which cloud the nodes are: name the node class")
    several = sorted({cloud for cloud in clouds.values() if cloud is not None})
    if len(several) > 1:
        raise InputError(f"the nodes are of {' and '.join(several)}: a NodePool has one node class")
    return _CLOUDS[several[0]].node_class


def _cloud_of(offer: Offer) -> str | None:
    """Return the name of an offer's cloud, by its node's provider ID and labels, otherwise by its type.

    None if neither is of a known cloud.
    """
    node = offer.template.node
    keys = tuple(node.metadata.labels or ())
    for name, cloud in _CLOUDS.items():
        if node.spec.provider_id.startswith(cloud.provider_id) or any(key.startswith(cloud.labels) for key in keys):
            return name
    return next((name for name, cloud in _CLOUDS.items() if cloud.type_name.fullmatch(offer.type)), None)


def _count_nodes(plan: MixPlan, offers: dict[str, Offer]) -> Counter[str]:
    """Count the new nodes of each offer. Raises InputError if the offers are not those of the plan."""
    unknown = [name for name in plan.offers if name not in offers]
    if unknown:
        raise InputError(f"the plan has nodes of {unknown[0]}, which is not among the offers")
    return Counter(plan.offers)
