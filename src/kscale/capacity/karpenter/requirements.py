"""Requirements on labels, as Karpenter combines those of NodePools, pods and instance types.

Upstream: ``sigs.k8s.io/karpenter/pkg/scheduling/requirement.go`` and ``requirements.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from kscale.objects.go_numbers import parse_int64
from kscale.objects.node_selectors import ARCH, INSTANCE_TYPE, REGION, ZONE

__all__ = ["WELL_KNOWN", "Operator", "Requirement", "Requirements", "requirement"]

MAX_INT = 2**63 - 1
_NORMALIZED = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "beta.kubernetes.io/arch": ARCH,
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
}
WELL_KNOWN = frozenset(
    {
        "karpenter.sh/nodepool",
        ZONE,
        REGION,
        INSTANCE_TYPE,
        ARCH,
        "kubernetes.io/os",
        "karpenter.sh/capacity-type",
        "node.kubernetes.io/windows-build",
    }
)
"""Labels that a pod may require although no NodePool mentions them; providers add their own."""


class Operator(StrEnum):
    """Operators of a requirement. Gte and Lte are Karpenter's own."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"
    GTE = "Gte"
    LTE = "Lte"


@dataclass(frozen=True, slots=True)
class Requirement:
    """The values that a label may have.

    Attributes
    ----------
    key : str
        The label.
    values : frozenset of str
        The allowed values; with ``complement`` the forbidden ones.
    complement : bool
        Whether all other values are allowed.
    least, most : int or None
        Inclusive bounds; values that are no integers are then forbidden.
    min_values : int or None
        How many different values the instance types of a node claim must have at least.
    """

    key: str
    values: frozenset[str] = frozenset()
    complement: bool = False
    least: int | None = None
    most: int | None = None
    min_values: int | None = None

    @property
    def operator(self) -> Operator:
        """Return the operator that describes the requirement: In, NotIn, Exists or DoesNotExist.

        Bounds alone count as Exists.
        """
        if self.complement:
            return Operator.NOT_IN if self.values else Operator.EXISTS
        return Operator.IN if self.values else Operator.DOES_NOT_EXIST

    def allows(self, value: str) -> bool:
        """Check whether the label may have this value."""
        return (value in self.values) != self.complement and _is_within(value, self.least, self.most)

    def intersection(self, other: Requirement) -> Requirement:
        """Return the requirement that allows the values which both allow, with the greater ``min_values``."""
        least = _pick(max, self.least, other.least)
        most = _pick(min, self.most, other.most)
        min_values = _pick(max, self.min_values, other.min_values)
        if least is not None and most is not None and least > most:
            return Requirement(self.key, min_values=min_values)
        complement = self.complement and other.complement
        if complement:
            values = self.values | other.values
        elif self.complement:
            values = other.values - self.values
        elif other.complement:
            values = self.values - other.values
        else:
            values = self.values & other.values
        values = frozenset(value for value in values if _is_within(value, least, most))
        if not complement:
            least = most = None
        return Requirement(self.key, values, complement, least, most, min_values)

    def intersects(self, other: Requirement) -> bool:
        """Check whether some value is allowed by both.

        Two requirements that both allow all values but some intersect, unless their bounds contradict each other.
        """
        least = _pick(max, self.least, other.least)
        most = _pick(min, self.most, other.most)
        if least is not None and most is not None and least > most:
            return False
        if self.complement and other.complement:
            return True
        concrete = other if self.complement else self
        second = self if self.complement else other
        return any(
            (value in second.values) != second.complement and _is_within(value, least, most)
            for value in concrete.values
        )


def requirement(
    key: str, operator: Operator | str, values: Iterable[str] = (), min_values: int | None = None
) -> Requirement:
    """Build a requirement from the fields of a NodePool's or pod's expression.

    Keys in beta spelling are normalized. Gt of the largest integer allows no value and drops ``min_values``. Gt, Lt,
    Gte and Lte take one integer, which the caller must have checked. Raises ValueError for an unknown operator.
    """
    key = _NORMALIZED.get(key, key)
    names = list(values)
    match Operator(operator):
        case Operator.IN:
            return Requirement(key, frozenset(names), min_values=min_values)
        case Operator.NOT_IN:
            return Requirement(key, frozenset(names), complement=True, min_values=min_values)
        case Operator.EXISTS:
            return Requirement(key, complement=True, min_values=min_values)
        case Operator.DOES_NOT_EXIST:
            return Requirement(key, min_values=min_values)
        case Operator.GT:
            if int(names[0]) >= MAX_INT:
                return Requirement(key)  # no integer is greater, so that nothing matches; minValues is dropped
            return Requirement(key, complement=True, least=int(names[0]) + 1, min_values=min_values)
        case Operator.LT:
            return Requirement(key, complement=True, most=int(names[0]) - 1, min_values=min_values)
        case Operator.GTE:
            return Requirement(key, complement=True, least=int(names[0]), min_values=min_values)
        case Operator.LTE:
            return Requirement(key, complement=True, most=int(names[0]), min_values=min_values)


class Requirements(Mapping[str, Requirement]):
    """Requirements by label. They cannot change; :meth:`with_` returns new ones."""

    __slots__ = ("_by_key",)

    def __init__(self, requirements: Iterable[Requirement] = ()) -> None:
        """Combine requirements: those on the same label are intersected."""
        self._by_key: dict[str, Requirement] = {}
        self._add(requirements)

    def _add(self, requirements: Iterable[Requirement]) -> None:
        """Intersect these requirements with others, in place."""
        for each in requirements:
            existing = self._by_key.get(each.key)
            self._by_key[each.key] = each if existing is None else each.intersection(existing)

    def __getitem__(self, key: str) -> Requirement:
        return self._by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    def requirement_for(self, key: str) -> Requirement:
        """Return the requirement on the label ``key``; one that accepts any value if there is none."""
        return self._by_key.get(key) or Requirement(key, complement=True)

    def with_(self, requirements: Iterable[Requirement]) -> Requirements:
        """Return a copy with more requirements; those on the same label are intersected."""
        result = Requirements()
        result._by_key = dict(self._by_key)
        result._add(requirements)
        return result

    def find_conflict(self, others: Requirements) -> str | None:
        """Return a label on which the requirements contradict each other; None if there is none.

        Labels that only one side mentions do not conflict, nor do two requirements that both allow the label's absence.
        """
        may_be_absent = (Operator.NOT_IN, Operator.DOES_NOT_EXIST)
        for key, other in others.items():
            own = self._by_key.get(key)
            if own is None or own.intersects(other):
                continue
            if other.operator in may_be_absent and own.operator in may_be_absent:
                continue
            return key
        return None

    def is_compatible(self, others: Requirements, *, undefined: frozenset[str] = frozenset()) -> bool:
        """Check whether a node with these requirements can meet the requirements ``others``.

        A label in ``others`` must also be mentioned here, unless it is in ``undefined`` or ``others`` accepts its
        absence.
        """
        for key, other in others.items():
            if key in undefined or key in self._by_key:
                continue
            if other.operator not in (Operator.NOT_IN, Operator.DOES_NOT_EXIST):
                return False
        return self.find_conflict(others) is None


def _pick(choose: Callable[[int, int], int], first: int | None, second: int | None) -> int | None:
    """Return the bound that ``choose`` (min or max) picks; if one of them is None (no bound), return the other."""
    if first is None or second is None:
        return second if first is None else first
    return choose(first, second)


def _is_within(value: str, least: int | None, most: int | None) -> bool:
    """Check whether a value is an integer of 64 bits from ``least`` to ``most``; None: no bound.

    If both are None, any value is.
    """
    if least is None and most is None:
        return True
    number = parse_int64(value)
    if number is None:
        return False
    return (least is None or number >= least) and (most is None or number <= most)
