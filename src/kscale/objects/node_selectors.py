"""Well-known labels of nodes, and node selectors.

Labels: https://kubernetes.io/docs/reference/labels-annotations-taints/. Upstream:
``component-helpers/scheduling/corev1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from kscale.objects.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
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
        """Return whether a node with these labels and this name matches. Without a name, fields are not checked."""
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
            tuple(_compile_field_requirement(*item) for item in fields),
        )
    except SelectorError as error:  # one wrong requirement spoils the whole term
        return CompiledTerm(error=str(error))


def _label_requirement(key: str, operator: str, values: tuple[str, ...]) -> Requirement:
    """Compile a condition on a label. Raises SelectorError if it is invalid."""
    if operator not in _OPERATORS:
        raise SelectorError(f'"{operator}" is not a valid node selector operator')
    return requirement(key, _OPERATORS[operator], values)


def _compile_field_requirement(key: str, operator: str, values: tuple[str, ...]) -> FieldRequirement:
    """Compile a condition on a field of the node. Raises SelectorError if it is invalid."""
    if operator not in ("In", "NotIn"):
        raise SelectorError(f'"{operator}" is not a valid node field selector operator')
    if len(values) != 1:
        raise SelectorError(f"unexpected number of value ({len(values)}) for node field selector operator {operator}")
    return FieldRequirement(key, operator == "NotIn", values[0])


def _to_items(requirements: list[NodeSelectorRequirement]) -> tuple[_Item, ...]:
    """Return the requirements as hashable (key, operator, values)."""
    return tuple((item.key, item.operator, tuple(item.values)) for item in requirements)


def compile_term(term: NodeSelectorTerm) -> CompiledTerm:
    """Compile a term; cached for equal terms."""
    return _compile(_to_items(term.match_expressions), _to_items(term.match_fields))


def compile_node_selector(selector: NodeSelector) -> CompiledNodeSelector:
    """Compile all terms of a node selector."""
    return CompiledNodeSelector(tuple(compile_term(term) for term in selector.node_selector_terms))
