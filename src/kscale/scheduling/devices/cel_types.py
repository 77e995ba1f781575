"""Of which type a CEL expression is, as far as that can be told before it runs (upstream: cel-go's checker)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

__all__ = ["result_type", "unlike"]

_LITERALS: Final = {
    "BOOL_LIT": "bool", "INT_LIT": "int", "UINT_LIT": "uint", "FLOAT_LIT": "double", "STRING_LIT": "string",
    "MLSTRING_LIT": "string", "BYTES_LIT": "bytes", "NULL_LIT": "null_type",
}  # fmt: skip
_QUANTITY, _SEMVER = "kubernetes.Quantity", "kubernetes.Semver"
_FUNCTIONS: Final = {"quantity": _QUANTITY, "add": _QUANTITY, "sub": _QUANTITY, "semver": _SEMVER} | {
    name: type_
    for type_, names in {
        "int": "size int compareTo indexOf lastIndexOf sign asInteger major minor patch family prefixLength",
        "double": "double asApproximateFloat",
        "string": "string lowerAscii upperAscii trim replace substring charAt join find",
    }.items()
    for name in names.split()
}
"""Functions that give one type whatever they are given."""
_NUMBERS: Final = frozenset({"int", "uint", "double"})
_ORDERED: Final = _NUMBERS | {"string", "bytes", "bool"}
_EQUALITIES: Final = {"relation_eq": "==", "relation_ne": "!="}
_RELATIONS: Final = _EQUALITIES | {
    "relation_lt": "<", "relation_le": "<=", "relation_gt": ">", "relation_ge": ">=", "relation_in": "in",
}  # fmt: skip
_JUDGING: Final = frozenset({"conditionalor", "conditionaland", "relation"})
_ARITHMETIC: Final = frozenset({"addition", "multiplication"})


def result_type(tree: Any) -> str | None:
    """By upstream's name; None: it is not told before, or by attributes of the device.

    ``tree``: of cel-python's parser.
    """
    kind, children = tree.data, tree.children
    if kind == "literal":
        return _LITERALS.get(children[0].type)
    if kind == "ident_arg":
        return _FUNCTIONS.get(str(children[0]))
    if kind == "member_dot_arg":
        return _FUNCTIONS.get(str(children[1]))
    if kind == "member_dot":
        return "string" if str(children[1]) == "driver" and _is_device(children[0]) else None
    if kind == "list_lit":
        types = {result_type(element) for element in children[0].children} if children else {None}
        element = types.pop()
        return f"list({element})" if not types and element is not None else None
    if kind in ("member", "primary", "paren_expr") or len(children) == 1:
        return result_type(children[0]) if len(children) == 1 and hasattr(children[0], "data") else None
    if kind in _JUDGING:
        return "bool"
    if kind == "expr":  # a choice
        return _one(children[1], children[2])
    if kind == "unary":
        return "bool" if children[0].data == "unary_not" else result_type(children[1])
    return _one(children[0].children[0], children[1]) if kind in _ARITHMETIC else None


def unlike(tree: Any) -> Iterator[tuple[str, int, int]]:
    """(text, line, column) of every comparison of types that are known and do not go together, from line 1, column 0.

    ``tree``: of cel-python's parser.
    """
    for node in tree.iter_subtrees_topdown():
        if node.data != "relation" or len(node.children) != 2:
            continue
        relation, right = node.children
        types = result_type(relation.children[0]), result_type(right)
        if None not in types and not _comparable(str(relation.data), *map(str, types)):
            sign = _RELATIONS[relation.data]
            shown = ", ".join("null" if type_ == "null_type" else str(type_) for type_ in types)
            text = f"found no matching overload for '{'@in' if sign == 'in' else f'_{sign}_'}' applied to '({shown})'"
            yield text, relation.meta.end_line, relation.meta.end_column - len(sign) - 1


def _comparable(relation: str, left: str, right: str) -> bool:
    if relation == "relation_in":
        return right == f"list({left})"
    if relation in _EQUALITIES:
        return left == right
    return (left == right and left in _ORDERED) or {left, right} <= _NUMBERS or left == right == "null_type"


def _one(left: Any, right: Any) -> str | None:
    """The type of two of which both have the same."""
    found = result_type(left)
    return found if found == result_type(right) else None


def _is_device(tree: Any) -> bool:
    while len(tree.children) == 1 and hasattr(tree.children[0], "data"):
        tree = tree.children[0]
    return tree.data == "ident" and str(tree.children[0]) == "device"
