"""Selectors written as text: ``a=b,c in (d,e),!f,g>5`` (upstream: ``labels.Parse``)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from kscale._native import _api_text
from kscale.objects.names import go_quote, qualified_name_errors
from kscale.objects.selectors import Requirement, Selector, SelectorError, requirement

__all__ = ["parse_selector"]

_SPECIAL: Final = "=!(),><"
_BLANK: Final = " \t\r\n"
_SYMBOLS: Final = (")", ",", "!", "==", "=", ">", "<", "!=", "(")
_OPERATORS: Final = {"=": "=", "==": "==", "!=": "!=", ">": "gt", "<": "lt", "in": "in", "notin": "notin"}
_END: Final = "end"
_WORD: Final = "word"
_ERROR: Final = "error"

_Token = tuple[str, str]  # (kind, text); a symbol's or keyword's kind is its text


def _symbol(text: str, start: int) -> tuple[_Token, int]:
    """The longest symbol at ``start``, as upstream's scanner finds it: character by character."""
    found, end, position = "", start, start
    while position < len(text) and text[position] in _SPECIAL:
        candidate = text[start : position + 1]
        position += 1
        if candidate in _SYMBOLS:
            found, end = candidate, position
        elif found:
            break
    if not found:
        return (_ERROR, f"error expected: keyword found '{text[start:position]}'"), position
    return (found, found), end


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while position < len(text):
        char = text[position]
        if char in _BLANK:
            position += 1
        elif char in _SPECIAL:
            token, position = _symbol(text, position)
            tokens.append(token)
        else:
            end = position
            while end < len(text) and text[end] not in _SPECIAL and text[end] not in _BLANK:
                end += 1
            word = text[position:end]
            tokens.append((word if word in ("in", "notin") else _WORD, word))
            position = end
    return [*tokens, (_END, "")]


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.position = 0

    def peek(self) -> _Token:
        """The next token where a value may stand: keywords are words there."""
        kind, text = self.tokens[min(self.position, len(self.tokens) - 1)]
        return (_WORD if kind in ("in", "notin") else kind, text)

    def take(self) -> _Token:
        token = self.peek()
        self.position += 1
        return token

    def selector(self) -> list[Requirement]:
        requirements: list[Requirement] = []
        while True:
            kind, text = self.peek()
            if kind == _END:
                return requirements
            if kind not in (_WORD, "!"):
                raise SelectorError(f"found '{text}', expected: !, identifier, or 'end of string'")
            try:
                requirements.append(self.requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            kind, text = self.take()
            if kind == _END:
                return requirements
            if kind != ",":
                raise SelectorError(f"found '{text}', expected: ',' or 'end of string'")
            kind, text = self.peek()
            if kind not in (_WORD, "!"):
                raise SelectorError(f"found '{text}', expected: identifier after ','")

    def requirement(self) -> Requirement:
        kind, key = self.take()
        absent = kind == "!"
        if absent:
            kind, key = self.take()
        if kind != _WORD:
            raise SelectorError(f"found '{key}', expected: identifier")
        if wrong := qualified_name_errors(key):
            raise SelectorError(f"<nil>: Invalid value: {go_quote(key)}: {'; '.join(wrong)}")  # upstream names no field
        if absent:
            return requirement(key, "!")
        if self.peek()[0] in (_END, ","):
            return requirement(key, "exists")
        sign, text = self.tokens[min(self.position, len(self.tokens) - 1)]
        self.position += 1
        if sign not in _OPERATORS:
            raise SelectorError(f"found '{text}', expected: in, notin, =, ==, !=, gt, lt")
        values = self.values() if sign in ("in", "notin") else self.value()
        return requirement(key, _OPERATORS[sign], sorted(values))

    def value(self) -> set[str]:
        if self.peek()[0] in (_END, ","):
            return {""}
        kind, text = self.take()
        if kind != _WORD:
            raise SelectorError(f"found '{text}', expected: identifier")
        return {text}

    def values(self) -> set[str]:
        kind, text = self.take()
        if kind != "(":
            raise SelectorError(f"found '{text}' expected: '('")
        kind, first = self.peek()
        if kind == ")":
            self.take()
            return {""}
        if kind not in (_WORD, ","):
            raise SelectorError(f"found '{first}', expected: ',', ')' or identifier")
        values = self.value_list()
        if self.take()[0] != ")":
            raise SelectorError(f"found '{first}', expected: ')'")
        return values

    def value_list(self) -> set[str]:
        values: set[str] = set()
        while True:
            kind, text = self.take()
            following, following_text = self.peek()
            if kind == _WORD:
                values.add(text)
                if following == ")":
                    return values
                if following != ",":
                    raise SelectorError(f"found '{following_text}', expected: ',' or ')'")
            elif kind == ",":  # nothing between two commas, or a comma and a parenthesis, is the empty value
                if not values:
                    values.add("")
                if following == ")":
                    return values | {""}
                if following == ",":
                    values.add("")
            else:
                raise SelectorError(f"found '{text}', expected: ',', or identifier")


@lru_cache(maxsize=1 << 15)
def parse_selector(text: str) -> Selector:
    """A selector from its text form; raises :class:`SelectorError` with upstream's text."""
    plain = _api_text.plain_label(text)
    if plain is not None:
        return Selector((Requirement(plain[0], "=", (plain[1],)),))
    requirements = _Parser(text).selector()
    requirements.sort(key=lambda item: item.key)
    return Selector(tuple(requirements))
