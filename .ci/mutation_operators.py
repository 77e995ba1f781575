"""Mutation operators that cosmic-ray does not have, and the names of those of cosmic-ray that are used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cosmic_ray.operators.operator import Example, Operator
from parso.python.tree import Newline
from parso.tree import NodeOrLeaf

Position = tuple[tuple[int, int], tuple[int, int]]

COMPARISONS = ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is")
ARITHMETIC = (
    *("Add_Sub", "Sub_Add", "Mul_FloorDiv", "Div_Mul", "FloorDiv_Mul", "Mod_FloorDiv", "Pow_Mul"),
    *("BitAnd_BitOr", "BitOr_BitAnd", "BitXor_BitOr", "LShift_RShift", "RShift_LShift"),
)
NAMES = (
    *(f"core/ReplaceComparisonOperator_{name}" for name in COMPARISONS),
    *(f"core/ReplaceBinaryOperator_{name}" for name in ARITHMETIC),
    *("core/ReplaceUnaryOperator_Delete_Not", "core/ReplaceUnaryOperator_Delete_USub"),
    *("core/ReplaceTrueWithFalse", "core/ReplaceFalseWithTrue", "core/ReplaceAndWithOr", "core/ReplaceOrWithAnd"),
    *("core/AddNot", "core/NumberReplacer", "core/ExceptionReplacer", "core/ZeroIterationForLoop"),
    *("core/ReplaceBreakWithContinue", "core/ReplaceContinueWithBreak"),
)
"""Operators of cosmic-ray. Each operator or comparison has one mutant, the nearest that answers differently."""

COMMUTATIVE = frozenset({"min", "max", "gcd", "lcm", "maximum", "minimum", "isclose"})


class RemoveStatement(Operator):
    """Replace a call that is a statement, or an augmented assignment, by ``pass``."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[Position]:
        if getattr(node.parent, "type", "") != "simple_stmt":
            return
        is_call = node.type in ("atom_expr", "power") and node.children[-1].type == "trailer"
        is_await = node.type in ("atom_expr", "power") and node.children[0].type == "keyword"
        is_augmented = node.type == "expr_stmt" and _is_augmented(node.children[1])
        if is_call or is_await or is_augmented:
            yield node.start_pos, node.end_pos

    def mutate(self, node: NodeOrLeaf, index: int) -> NodeOrLeaf:  # noqa: ARG002  # cosmic-ray passes it
        return _text("pass", node)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("f(1)\n", "pass\n"), Example("a += 1\n", "pass\n"))


class NegateMembership(Operator):
    """Replace ``in`` by ``not in`` in a comparison, and the other way round."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[Position]:
        if node.type == "comparison" and len(node.children) == 3 and _is_membership(node.children[1]):
            yield node.children[1].start_pos, node.children[1].end_pos

    def mutate(self, node: NodeOrLeaf, index: int) -> NodeOrLeaf:  # noqa: ARG002  # cosmic-ray passes it
        negated = node.children[1].get_code().strip() == "in"
        node.children[1] = _text("not in" if negated else "in", node.children[1])
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("a in b\n", "a not in b\n"), Example("a not in b\n", "a in b\n"))


class ReturnNone(Operator):
    """Replace the value of a ``return`` by None."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[Position]:
        if node.type == "return_stmt" and len(node.children) > 1 and node.children[1].get_code().strip() != "None":
            yield node.children[1].start_pos, node.children[1].end_pos

    def mutate(self, node: NodeOrLeaf, index: int) -> NodeOrLeaf:  # noqa: ARG002  # cosmic-ray passes it
        node.children[1] = _text("None", node.children[1])
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("def f():\n    return 1\n", "def f():\n    return None\n"),)


class SwapArguments(Operator):
    """Swap the first two positional arguments of a call."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[Position]:
        if node.type != "arglist" or node.parent.type != "trailer":
            return
        first, second = node.children[0], node.children[2] if len(node.children) > 2 else None
        callee = node.parent.get_previous_leaf()
        if (
            second is None
            or any(each.type == "argument" for each in (first, second))
            or getattr(callee, "value", "") in COMMUTATIVE
            or first.get_code().strip() == second.get_code().strip()
        ):
            return
        yield first.start_pos, second.end_pos

    def mutate(self, node: NodeOrLeaf, index: int) -> NodeOrLeaf:  # noqa: ARG002  # cosmic-ray passes it
        first, second = node.children[0], node.children[2]
        texts = first.get_code(include_prefix=False), second.get_code(include_prefix=False)
        node.children[0], node.children[2] = _text(texts[1], first), _text(texts[0], second)
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("f(a, b)\n", "f(b, a)\n"),)


OWN: tuple[type[Operator], ...] = (NegateMembership, RemoveStatement, ReturnNone, SwapArguments)


def _is_augmented(leaf: Any) -> bool:
    return leaf.type == "operator" and leaf.value.endswith("=") and leaf.value != "="


def _is_membership(node: NodeOrLeaf) -> bool:
    return node.get_code().split() in (["in"], ["not", "in"])


def _text(code: str, instead_of: NodeOrLeaf) -> Newline:
    """Return a leaf with this code and the prefix of the node that it replaces."""
    return Newline(code, instead_of.start_pos, instead_of.get_first_leaf().prefix)
