"""What a mix answers with: the record behind ``kscale mix``."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from kscale.records import Record

__all__ = ["Bound", "MixLine", "MixPlan", "Repairs", "TypesPoint"]


class Part(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """Base of what the record consists of."""


class MixLine(Part, frozen=True):
    """New nodes of one type and capacity type. ``price`` of one node and ``cost`` of all for an hour, ``share`` of the
    cost of all new nodes; ``utilization``: requests over allocatable by resource; ``zones``, ``groups``: nodes in
    each; ``arch``: as ``kubernetes.io/arch`` of the nodes has it, empty where the offer does not say."""

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


class Bound(Part, frozen=True):
    """``cost``: no nodes for these pods cost less an hour. ``method``: ``column_generation`` (linear programming over
    everything a node can hold) or ``volume`` (prices of resources); proven in integers either way. ``gap``: the
    plan's cost over it. Both null where limits leave pods without a place. ``relaxed``: what pods ask for that the
    bound does not see."""

    cost: float | None
    method: str
    gap: float | None
    relaxed: list[str] = []


class Repairs(Part, frozen=True):
    """What the exact predicates changed: ``moved`` pods are elsewhere than planned, ``added`` nodes were not planned
    and cost ``cost`` an hour."""

    moved: int
    added: int
    cost: float


class TypesPoint(Part, frozen=True):
    """The cheapest plan found with at most ``types`` types (null: as many as are wanted), after the exact check;
    ``nowhere`` pods find no place on these types."""

    types: int | None
    cost: float
    chosen: list[str]
    nowhere: int = 0


class PlannedNode(Part, frozen=True):
    """A new node and the pods that are planned on it."""

    name: str
    offer: str
    type: str
    zone: str
    price: float
    pods: list[str]


class MixPlan(Record, frozen=True):
    """The cheapest mix of nodes found for some pods, and how cheap it can be.

    Three numbers: ``bound.cost`` <= what any plan costs; ``planned`` is the plan before, ``cost`` after the exact
    predicates had placed every pod (``repairs`` tells the difference). Each ``cost`` is that of new nodes, per hour.
    ``pods`` = ``onExisting`` + ``onNew`` + ``nowhere``; ``nowherePods`` names those that no offer and no node that
    exists holds, or for which limits leave no node. ``offers``: new nodes of each offer. ``effort`` (for the bound,
    for the plan) repeats the same search, ``stopped`` says what ended it: empty (nothing more to find), ``effort`` or
    ``time``. ``placement`` (when asked for): the new nodes, and ``existing``: node -> pods. ``types``: how many there
    are of them; ``lines``: what is bought, an offer each; ``curve``: the cost by how many types are allowed.
    ``limits_reached``: groups that are at their maximum; ``unmodelled``: what the pods ask that no plan goes by. In
    Python names have underscores: ``on_existing``, ``on_new`` and ``nowhere_pods`` as well.
    """

    KIND: ClassVar[str] = "MixPlan"

    pods: int
    on_existing: int
    on_new: int
    nowhere: int
    nodes: int
    types: int
    cost: float
    planned: float
    bound: Bound
    lines: list[MixLine]
    repairs: Repairs
    curve: list[TypesPoint]
    nowhere_pods: list[str]
    limits_reached: list[str]
    unmodelled: list[str]
    effort: list[int]
    stopped: list[str]
    offers: dict[str, int]
    placement: list[PlannedNode] | None = None
    existing: dict[str, list[str]] | None = None
