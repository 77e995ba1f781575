"""Well-known labels of nodes, node selectors, taints and tolerations.

Labels: https://kubernetes.io/docs/reference/labels-annotations-taints/. Upstream:
``component-helpers/scheduling/corev1`` and ``toleration.go``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from kscale.objects.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration
from kscale.objects.selectors import Requirement, SelectorError, requirement

__all__ = [
    "ARCH",
    "HOSTNAME",
    "INSTANCE_TYPE",
    "INSTANCE_TYPES",
    "OS",
    "REGION",
    "REGIONS",
    "ZONE",
    "ZONES",
    "CompiledNodeSelector",
    "CompiledTerm",
    "FieldRequirement",
    "compile_node_selector",
    "compile_term",
    "first_untolerated",
    "tolerates",
    "tolerates_all",
]

HOSTNAME: Final = "kubernetes.io/hostname"
ARCH: Final = "kubernetes.io/arch"
OS: Final = "kubernetes.io/os"
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
REGION: Final = "topology.kubernetes.io/region"
ZONE: Final = "topology.kubernetes.io/zone"

INSTANCE_TYPES: Final = (INSTANCE_TYPE, "beta.kubernetes.io/instance-type")
"""The label, then its deprecated name."""
REGIONS: Final = (REGION, "failure-domain.beta.kubernetes.io/region")
"""The label, then its deprecated name."""
ZONES: Final = (ZONE, "failure-domain.beta.kubernetes.io/zone")
"""The label, then its deprecated name."""


_OPERATORS: Final = {
    "In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!", "Gt": "gt", "Lt": "lt"
}  # fmt: skip


class FieldRequirement(msgspec.Struct, frozen=True):
    """A condition on a field of the node. The only field with a value is ``metadata.name``."""

    key: str
    negative: bool
    value: str

    def matches(self, node_name: str) -> bool:
        """Return whether a node of this name matches. An unknown field has an empty value."""
        return ((node_name if self.key == "metadata.name" else "") == self.value) is not self.negative


class CompiledTerm(msgspec.Struct, frozen=True):
    """A node selector term, all of whose conditions must hold.

    An empty term, or one that cannot be parsed (``error``), matches nothing.
    """

    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldRequirement, ...] = ()
    error: str = ""

    def matches(self, labels: Mapping[str, str] | None, node_name: str) -> bool:
        """Return whether a node with these labels and this name matches. An empty name skips the field part."""
        if self.error or not (self.labels or self.fields):
            return False
        if not all(item.matches(labels) for item in self.labels):
            return False
        return not node_name or all(item.matches(node_name) for item in self.fields)


class CompiledNodeSelector(msgspec.Struct, frozen=True):
    """A node selector, one of whose terms must match. Without terms it matches nothing."""

    terms: tuple[CompiledTerm, ...] = ()

    def matches(self, labels: Mapping[str, str] | None, node_name: str) -> bool:
        """Return whether a node with these labels and this name matches."""
        return any(term.matches(labels, node_name) for term in self.terms)


_Item = tuple[str, str, tuple[str, ...]]


@lru_cache(maxsize=1 << 14)
def _compile(expressions: tuple[_Item, ...], fields: tuple[_Item, ...]) -> CompiledTerm:
    """Compile a term; one invalid condition makes the whole term match nothing (``error``)."""
    try:
        return CompiledTerm(
            tuple(_label_requirement(*item) for item in expressions),
            tuple(_field_requirement(*item) for item in fields),
        )
    except SelectorError as error:  # one wrong requirement spoils the whole term
        return CompiledTerm(error=str(error))


def _label_requirement(key: str, operator: str, values: tuple[str, ...]) -> Requirement:
    """Compile a condition on a label. Raises SelectorError if it is invalid."""
    if operator not in _OPERATORS:
        raise SelectorError(f'"{operator}" is not a valid node selector operator')
    return requirement(key, _OPERATORS[operator], values)


def _field_requirement(key: str, operator: str, values: tuple[str, ...]) -> FieldRequirement:
    """Compile a condition on a field of the node. Raises SelectorError if it is invalid."""
    if operator not in ("In", "NotIn"):
        raise SelectorError(f'"{operator}" is not a valid node field selector operator')
    if len(values) != 1:
        raise SelectorError(f"unexpected number of value ({len(values)}) for node field selector operator {operator}")
    return FieldRequirement(key, operator == "NotIn", values[0])


def _items(requirements: list[NodeSelectorRequirement]) -> tuple[_Item, ...]:
    """Return the requirements as hashable (key, operator, values)."""
    return tuple((item.key, item.operator, tuple(item.values)) for item in requirements)


def compile_term(term: NodeSelectorTerm) -> CompiledTerm:
    """Compile a term; cached for equal terms."""
    return _compile(_items(term.match_expressions), _items(term.match_fields))


def compile_node_selector(selector: NodeSelector) -> CompiledNodeSelector:
    """Compile all terms of a node selector."""
    return CompiledNodeSelector(tuple(compile_term(term) for term in selector.node_selector_terms))


_CANONICAL = re.compile(r"0|-?[1-9][0-9]{0,18}")
_FEW: Final = 8
"""Up to as many tolerations or taints are compared one by one, which is faster than an index of them."""
_FILTERING: Final = ("NoSchedule", "NoExecute")


def _integer(text: str) -> int | None:
    """Parse an int64 in canonical form; None for any other text."""
    if _CANONICAL.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def tolerates(toleration: Toleration, taint: Taint, *, comparison_operators: bool = False) -> bool:
    """Return whether the toleration covers the taint.

    Parameters
    ----------
    toleration : Toleration
        An empty key matches every key, also with Equal. The API forbids that combination, but upstream's code accepts
        it.
    taint : Taint
    comparison_operators : bool
        The feature gate for the operators Lt and Gt. Without it a toleration with such an operator covers nothing.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    operator = toleration.operator or "Equal"
    if operator == "Equal":
        return toleration.value == taint.value
    if operator == "Exists":
        return True
    if operator in ("Lt", "Gt") and comparison_operators:
        bound, value = _integer(toleration.value), _integer(taint.value)
        if bound is None or value is None:
            return False
        return value < bound if operator == "Lt" else value > bound
    return False


class _Tolerations:
    """Index of many tolerations by key and effect, so that looking up a taint does not depend on their number.

    Its results are those of :func:`tolerates` for each toleration.
    """

    __slots__ = ("_above", "_all", "_below", "_equal")

    def __init__(self, tolerations: Iterable[Toleration], *, comparison_operators: bool) -> None:
        self._all: set[tuple[str, str]] = set()
        self._equal: set[tuple[str, str, str]] = set()
        self._below: dict[tuple[str, str], int] = {}
        self._above: dict[tuple[str, str], int] = {}
        for item in tolerations:
            place, operator = (item.key, item.effect), item.operator or "Equal"
            if operator == "Exists":
                self._all.add(place)
            elif operator == "Equal":
                self._equal.add((*place, item.value))
            elif operator in ("Lt", "Gt") and comparison_operators and (bound := _integer(item.value)) is not None:
                if operator == "Lt":
                    self._below[place] = max(bound, self._below.get(place, bound))
                else:
                    self._above[place] = min(bound, self._above.get(place, bound))

    def cover(self, taint: Taint) -> bool:
        """Return whether some toleration covers a taint."""
        places = [(key, effect) for key in {taint.key, ""} for effect in {taint.effect, ""}]
        if any(place in self._all or (*place, taint.value) in self._equal for place in places):
            return True
        if not self._below and not self._above:
            return False
        value = _integer(taint.value)
        return value is not None and any(
            (place in self._below and value < self._below[place])
            or (place in self._above and value > self._above[place])
            for place in places
        )


def first_untolerated(
    tolerations: Iterable[Toleration],
    taints: Iterable[Taint],
    *,
    effects: Iterable[str] = _FILTERING,
    comparison_operators: bool = False,
) -> Taint | None:
    """Return the first taint, in list order, with one of the effects that no toleration covers; None without one."""
    tolerations, taints, effects = list(tolerations), list(taints), tuple(effects)
    if len(tolerations) > _FEW and len(taints) > _FEW:
        index = _Tolerations(tolerations, comparison_operators=comparison_operators)
        return next((taint for taint in taints if taint.effect in effects and not index.cover(taint)), None)
    for taint in taints:
        if taint.effect in effects and not any(
            tolerates(item, taint, comparison_operators=comparison_operators) for item in tolerations
        ):
            return taint
    return None


def tolerates_all(
    tolerations: Iterable[Toleration],
    taints: Iterable[Taint],
    *,
    effects: Iterable[str] = _FILTERING,
    comparison_operators: bool = False,
) -> bool:
    """Return whether the tolerations cover every taint that has one of the effects.

    Parameters
    ----------
    tolerations : iterable of Toleration
    taints : iterable of Taint
    effects : iterable of str
        Default: the effects that the scheduler filters on, NoSchedule and NoExecute.
    comparison_operators : bool
        The feature gate for the operators Lt and Gt.
    """
    return first_untolerated(tolerations, taints, effects=effects, comparison_operators=comparison_operators) is None
