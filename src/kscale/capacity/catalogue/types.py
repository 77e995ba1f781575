"""Instance types: what a cloud's machines have, leave for pods, and cost; and node templates of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from kscale.errors import InputError, Problem
from kscale.objects.core import Node, NodeSpec, NodeStatus
from kscale.objects.meta import Condition, ObjectMeta
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.quantity import Quantity

__all__ = ["DEFAULT_PODS", "Catalogue", "InstanceType", "UnknownTypeError"]

DEFAULT_PODS = 110  # the kubelet's --max-pods, where the catalogue names no other number


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One machine size. ``capacity`` and ``allocatable`` as a node's status has them; ``prices`` and ``spot_prices``
    per hour by region (spelled with ``_``); ``gpu_name`` as the provider has it."""

    name: str
    arch: str
    """As ``kubernetes.io/arch`` has it."""
    capacity: Mapping[str, Quantity]
    allocatable: Mapping[str, Quantity]
    prices: Mapping[str, float] = field(default_factory=dict)
    spot_prices: Mapping[str, float] = field(default_factory=dict)
    gpu_name: str = ""

    def price(self, region: str = "", *, spot: bool = False) -> float | None:
        """The price in a region (spelled with ``-`` or ``_``), or in the catalogue's first; None = not known. ``spot``:
        of one that may be taken away."""
        prices = self.spot_prices if spot else self.prices
        if not region:
            return next(iter(prices.values()), None)
        return prices.get(region.replace("-", "_"))

    def node(
        self,
        *,
        name: str = "",
        zone: str = "",
        region: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> Node:
        """A ready node of this type, with the labels that every cloud sets (``zone`` and ``region`` if there
        are); ``labels`` on top."""
        own = name or self.name
        well_known = {
            "kubernetes.io/hostname": own,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": self.arch,
            "node.kubernetes.io/instance-type": self.name,
            "beta.kubernetes.io/os": "linux",
            "beta.kubernetes.io/arch": self.arch,
            "beta.kubernetes.io/instance-type": self.name,
        }
        for place, value in (("region", region), ("zone", zone)):
            if value:
                well_known[f"topology.kubernetes.io/{place}"] = value
                well_known[f"failure-domain.beta.kubernetes.io/{place}"] = value
        return Node(
            metadata=ObjectMeta(name=own, labels={**well_known, **(labels or {})}),
            spec=NodeSpec(),
            status=NodeStatus(
                capacity=dict(self.capacity),
                allocatable=dict(self.allocatable),
                conditions=[Condition(type="Ready", status="True")],
            ),
        )

    def template(self, *, zone: str = "", region: str = "", labels: Mapping[str, str] | None = None) -> NodeTemplate:
        """The node of :meth:`kscale.capacity.catalogue.InstanceType.node` as a template without pods."""
        return NodeTemplate(node=self.node(zone=zone, region=region, labels=labels))


class Catalogue(Mapping[str, InstanceType]):
    """Instance types by name. An unknown name is an InputError that proposes a near one."""

    def __init__(self, types: Mapping[str, InstanceType], source: str = "", left_out: Mapping[str, int] = {}) -> None:
        """``left_out``: rows of the source that are no types, by the reason."""
        self._types = dict(types)
        self.source = source
        self.left_out = dict(left_out)

    def __getitem__(self, name: str) -> InstanceType:
        try:
            return self._types[name]
        except KeyError:
            pass
        from difflib import get_close_matches

        near = get_close_matches(name, self._types, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UnknownTypeError(Problem(f'no instance type "{name}" in the catalogue{hint}', source=self.source))

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    @property
    def regions(self) -> list[str]:
        """The regions that some type has a price in, spelled with ``-``."""
        return list(
            dict.fromkeys(
                region.replace("_", "-")
                for kind in self._types.values()
                for region in (*kind.prices, *kind.spot_prices)
            )
        )

    def check_region(self, region: str) -> None:
        """Raises InputError for a region without any price; empty = the first that a type has."""
        if region and region.replace("_", "-") not in self.regions:
            text = f'no prices of region "{region}": there are {", ".join(self.regions) or "none"}'
            raise InputError(Problem(text, source=self.source))

    def select(self, patterns: Iterable[str]) -> list[InstanceType]:
        """The types with these names, each once, in the order of patterns, then of the catalogue. A name with ``*``,
        ``?`` or ``[`` is a pattern; one that no type has raises InputError."""
        found: dict[str, InstanceType] = {}
        for pattern in patterns:
            if not any(sign in pattern for sign in "*?["):
                found.setdefault(pattern, self[pattern])
                continue
            names = [name for name in self._types if fnmatchcase(name, pattern)]
            if not names:
                raise UnknownTypeError(
                    Problem(f'no instance type like "{pattern}" in the catalogue', source=self.source)
                )
            for name in names:
                found.setdefault(name, self._types[name])
        return list(found.values())

    def __len__(self) -> int:
        return len(self._types)


class UnknownTypeError(InputError, KeyError):
    """An instance type that the catalogue does not hold."""

    __str__ = InputError.__str__
