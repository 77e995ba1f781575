"""Parse CEL expressions by recursive descent into trees of tuples: a kind, then its parts.

Syntax that the reference does not know is a NotImplementedError.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

Tree = tuple[Any, ...]

TOKEN = re.compile(
    r"""\s*(?:(?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")|(?P<double>\d+\.\d+(?:[eE][+-]?\d+)?)(?![\w.])"""
    r"""|(?P<int>\d+)(?![\w.])|(?P<name>[A-Za-z_]\w*)|(?P<mark>&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]{}]))"""
)
ESCAPES = re.compile(r"""(?:[^\\]|\\[\\'"nrt])*""")
LEVELS = [["||"], ["&&"], ["==", "!=", "<", "<=", ">", ">=", "in"], ["+", "-"], ["*", "/", "%"]]
CONSTANTS = {"true": True, "false": False, "null": None}
VARIABLE_COUNTS = {"all": (1, 2), "exists": (1, 2), "exists_one": (1, 2), "map": (1,), "filter": (1,)}
UNKNOWN_MACROS = ("existsOne", "transformList", "transformMap", "transformMapEntry", "optFlatMap", "or")
"""Receiver macros, and ``or``, that the reference does not know. As functions they would be evaluated wrongly."""


class Parser:
    def __init__(self, text: str) -> None:
        self.tokens = list(tokenize(text))

    def peek(self) -> str:
        return self.tokens[0][1] if self.tokens and self.tokens[0][0] in ("mark", "name") else ""

    def take(self, *marks: str) -> str:
        """Remove and return the next token if it is one of ``marks``; return "" if not."""
        return self.tokens.pop(0)[1] if self.peek() in marks else ""

    def expect(self, mark: str) -> None:
        if not self.take(mark):
            raise NotImplementedError(f"{mark} expected before {self.tokens}")

    def take_name(self) -> str:
        kind, text = self.tokens.pop(0)
        if kind != "name":
            raise NotImplementedError(f"{text} is no name")
        return text

    def expression(self) -> Tree:
        condition = self.binary(0)
        if not self.take("?"):
            return condition
        yes = self.binary(0)
        self.expect(":")
        return "choice", condition, yes, self.expression()

    def binary(self, level: int) -> Tree:
        if level == len(LEVELS):
            return self.unary()
        operand = self.binary(level + 1)
        while mark := self.take(*LEVELS[level]):
            operand = "operator", f"_{mark}_", operand, self.binary(level + 1)
        return operand

    def unary(self) -> Tree:
        mark = self.take("-", "!")
        return ("operator", f"{mark}_", self.unary()) if mark else self.member()

    def member(self) -> Tree:
        tree = self.primary()
        while mark := self.take(".", "["):
            optional = self.take("?")
            if mark == "[":
                tree = f"{optional}index", tree, self.expression()
                self.expect("]")
                continue
            name = self.take_name()
            if not optional and self.take("("):
                tree = receiver_call(name, tree, self.items(")"))
            else:
                tree = f"{optional}field", tree, ("literal", name)
        return tree

    def primary(self) -> Tree:
        if self.take("("):
            tree = self.expression()
            self.expect(")")
            return tree
        if self.take("["):
            return "list", *self.items("]", optional=True)
        if self.take("{"):
            return "map", *self.items("}", pairs=True)
        if not self.tokens:
            raise NotImplementedError("an expression is expected at the end")
        kind, text = self.tokens.pop(0)
        match kind:
            case "name" if text in CONSTANTS:
                return "literal", CONSTANTS[text]
            case "name" if self.take("("):
                return global_call(text, self.items(")"))
            case "name":
                return "name", text
            case "string" if ESCAPES.fullmatch(text):
                return "literal", ast.literal_eval(text)
            case "int" if int(text) < 2**63:
                return "literal", int(text)
            case "double":
                return "literal", float(text)
        raise NotImplementedError(f"{text} begins no expression")

    def items(self, end: str, *, pairs: bool = False, optional: bool = False) -> list[Tree]:
        """Parse the items of a list, map or call up to ``end``. Only lists and maps may end with a comma."""
        items: list[Tree] = []
        while not self.take(end):
            item: Tree = ("optional", self.expression()) if optional and self.take("?") else self.expression()
            if pairs:
                self.expect(":")
                item = item, self.expression()
            items.append(item)
            if self.peek() != end:
                self.expect(",")
                if end == ")" and self.peek() == end:
                    raise NotImplementedError("a call ends with a comma")
        return items


def receiver_call(name: str, receiver: Tree, arguments: list[Tree]) -> Tree:
    if name in UNKNOWN_MACROS:
        raise NotImplementedError(name)
    if (name, receiver) == ("bind", ("name", "cel")):
        variable, value, body = arguments
        return "bind", variable_name(variable), value, body
    if name == "map" and len(arguments) == 3:
        variable, condition, body = arguments
        return "macro", "filtered_map", receiver, [variable_name(variable)], condition, body
    if name in VARIABLE_COUNTS:
        *variables, body = arguments
        if len(variables) not in VARIABLE_COUNTS[name]:
            raise NotImplementedError(f"{name} of {len(variables)} variables")
        return "macro", name, receiver, [variable_name(each) for each in variables], body
    if name == "optMap":
        variable, body = arguments
        return "opt_map", receiver, variable_name(variable), body
    if name == "orValue":
        (default,) = arguments
        return "or_value", receiver, default
    return "call", name, receiver, *arguments


def global_call(name: str, arguments: list[Tree]) -> Tree:
    if name != "has":
        return "call", name, *arguments
    ((kind, of, key),) = arguments
    if kind != "field":
        raise NotImplementedError(f"has of {kind}")
    return "has", of, key


def variable_name(tree: Tree) -> str:
    kind, name = tree
    if kind != "name":
        raise NotImplementedError(f"{tree} is no variable")
    return str(name)


def tokenize(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while text[position:].strip():
        match = TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise NotImplementedError(text[position:])
        yield match.lastgroup, match[match.lastgroup]
        position = match.end()


@cache
def parse(text: str) -> Tree:
    parser = Parser(text)
    tree = parser.expression()
    if parser.tokens:
        raise NotImplementedError(f"{parser.tokens} follows the expression")
    return tree
