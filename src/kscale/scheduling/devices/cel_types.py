"""Of which type a CEL expression is, as far as that can be told before it runs (upstream: cel-go's checker)."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["result_type"]

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
    if kind in ("member", "primary", "paren_expr") or len(children) == 1:
        return result_type(children[0]) if len(children) == 1 and hasattr(children[0], "data") else None
    if kind in _JUDGING:
        return "bool"
    if kind == "expr":  # a choice
        return _one(children[1], children[2])
    if kind == "unary":
        return "bool" if children[0].data == "unary_not" else result_type(children[1])
    return _one(children[0].children[0], children[1]) if kind in _ARITHMETIC else None


def _one(left: Any, right: Any) -> str | None:
    """The type of two of which both have the same."""
    found = result_type(left)
    return found if found == result_type(right) else None


def _is_device(tree: Any) -> bool:
    while len(tree.children) == 1 and hasattr(tree.children[0], "data"):
        tree = tree.children[0]
    return tree.data == "ident" and str(tree.children[0]) == "device"
