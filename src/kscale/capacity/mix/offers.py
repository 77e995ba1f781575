"""What may be bought: node templates at a price, with limits. kscale's own."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from kscale.capacity.records import UNLIMITED
from kscale.errors import InputError, Problem
from kscale.objects.argument_types import check_fields, typed
from kscale.objects.nodegroup import NodeGroup, NodeTemplate

__all__ = ["ON_DEMAND", "SPOT", "Offer", "offers_of"]

ON_DEMAND, SPOT = "on-demand", "spot"
_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_DEAREST = 1_000_000  # an hour: costs of whole plans are counted in billionths
_ZONE = "topology.kubernetes.io/zone"
# How clouds and Karpenter say on a node that it may be taken away.
_SPOT_LABELS = {
    "karpenter.sh/capacity-type": "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
    "cloud.google.com/gke-spot": "true",
    "kubernetes.azure.com/scalesetpriority": "spot",
    "node.kubernetes.io/lifecycle": "spot",
}


class Offer(msgspec.Struct, kw_only=True, frozen=True):
    """A node that may be had: what it is (``template``), and what an hour of it costs (``price``).

    ``type`` is what ``max_types`` counts; ``capacity_type`` is ``on-demand`` or ``spot``. There are at least ``least``
    and at most ``most`` new nodes of it (None = as many as are wanted). ``group``: the node group that it belongs to;
    ``zone``: where it is.
    """

    name: str
    template: NodeTemplate
    price: float
    type: str = ""
    zone: str = ""
    capacity_type: str = ON_DEMAND
    least: int = 0
    most: int | None = None
    group: str = ""

    def __post_init__(self) -> None:
        check_fields(self)


@typed
def offers_of(groups: Iterable[NodeGroup | Offer], *, anew: bool = False) -> list[Offer]:
    """Groups as offers: up to what is missing to their maximum size, at least what is missing to their minimum;
    ``anew``: their nodes do not count, as if there were none.

    Raises InputError that names every group without a template or a price, every name that comes twice, and limits that
    contradict each other.
    """
    found: list[Offer] = []
    problems: list[Problem] = []
    names: set[str] = set()
    for group in groups:
        offer = group if isinstance(group, Offer) else _offer(group, problems, anew=anew)
        if offer is None:
            continue
        place = f"offer {offer.name}" if isinstance(group, Offer) else f"node group {offer.name}"
        if offer.name in names:
            problems.append(Problem("the name comes twice", object=place))
        names.add(offer.name)
        if not (math.isfinite(offer.price) and offer.price >= 0):
            problems.append(Problem(f"{offer.price} is not a price", object=place, field="price"))
        elif offer.price > _DEAREST:
            text = f"{offer.price:g} is more than {_DEAREST:,}: name prices in a larger unit of money"
            problems.append(Problem(text, object=place, field="price"))
        if offer.least < 0 or (offer.most is not None and offer.least > offer.most):
            problems.append(Problem(f"at least {offer.least} and at most {offer.most} nodes", object=place))
        if offer.capacity_type not in (ON_DEMAND, SPOT):
            problems.append(Problem(f'"{offer.capacity_type}" is not one of {ON_DEMAND}, {SPOT}', object=place))
        found.append(offer)
    if problems:
        raise InputError(problems)
    return found


def _offer(group: NodeGroup, problems: list[Problem], *, anew: bool) -> Offer | None:
    place = f"node group {group.id}"
    if group.template is None:
        problems.append(Problem("has no template node", object=place))
        return None
    if group.price is None:
        problems.append(Problem("has no price: give it one, or a catalogue that knows it", object=place, field="price"))
        return None
    labels = group.template.node.metadata.labels or {}
    size = 0 if anew else group.target_size if group.target_size is not None else len(group.nodes)
    if group.min_size > group.max_size:
        text = f"min {group.min_size} is more than max {group.max_size}"
        problems.append(Problem(text, object=place, field="min"))
        return None
    spot = any(labels.get(key) == value for key, value in _SPOT_LABELS.items())
    return Offer(
        name=group.id,
        template=group.template,
        price=group.price,
        type=next((labels[key] for key in _TYPES if labels.get(key)), group.id),
        zone=labels.get(_ZONE, ""),
        capacity_type=SPOT if spot else ON_DEMAND,
        least=max(0, group.min_size - size),
        most=None if group.max_size >= UNLIMITED else max(0, group.max_size - size),
        group=group.id,
    )
