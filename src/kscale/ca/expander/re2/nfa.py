"""Runs a pattern on a text with all its possibilities at once, one character after the other.

What is possible after a character is a set of instructions. A set and a character always lead to the same next set, so
that steps once made are kept (and forgotten when they become many); no text takes longer than its length times the
pattern's, however the pattern repeats.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from kscale.ca.expander.re2.classes import PERL, Ranges, contains
from kscale.ca.expander.re2.syntax import parse
from kscale.ca.expander.re2.tree import Node

__all__ = ["Pattern", "compile_re2"]

_MAX_STEPS = 10_000
"""Steps a pattern keeps before it forgets them."""
_START, _NEWLINE, _WORD, _OTHER = range(4)
"""What stands before a place (its start also: what stands after one, its end)."""


class _Instruction(NamedTuple):
    """``op`` is ``chars``, ``split`` (go on at each of ``to``), ``match`` or an assertion's letter."""

    op: str
    to: tuple[int, ...] = ()
    ranges: Ranges = ()


class _State:
    """What is possible after some characters: where to go on, what the last of them was, and the steps from here."""

    __slots__ = ("at", "before", "steps")

    def __init__(self, at: frozenset[int], before: int) -> None:
        self.at = at
        self.before = before
        self.steps: dict[str, _State | None] = {}


def _kind(char: str) -> int:
    if char == "":
        return _START
    if char == "\n":
        return _NEWLINE
    return _WORD if contains(PERL["w"], ord(char)) else _OTHER


def _holds(assertion: str, before: int, after: int) -> bool:
    if assertion in "bB":
        return ((before == _WORD) != (after == _WORD)) == (assertion == "b")
    side = before if assertion in "A^" else after
    return side == _START or (assertion in "^$" and side == _NEWLINE)


def _program(tree: Node) -> list[_Instruction]:
    """The instructions of a pattern: starts at 0, matches at 1."""
    out = [_Instruction("split"), _Instruction("match")]

    def new() -> int:
        out.append(_Instruction("split"))
        return len(out) - 1

    work = [(tree, 0, 1)]
    while work:
        node, entry, leave = work.pop()
        if node.op == "sequence":
            for part in node.parts[:-1]:
                following = new()
                work.append((part, entry, following))
                entry = following
            if node.parts:
                work.append((node.parts[-1], entry, leave))
            else:
                out[entry] = _Instruction("split", (leave,))
        elif node.op == "choice":
            entries = tuple(new() for _ in node.parts)
            out[entry] = _Instruction("split", entries)
            work += [(part, at, leave) for part, at in zip(node.parts, entries, strict=True)]
        elif node.op == "repeat":
            part = node.parts[0]
            for _ in range(node.low):
                following = new()
                work.append((part, entry, following))
                entry = following
            for _ in range(node.low, node.high or 0):
                body, following = new(), new()
                out[entry] = _Instruction("split", (body, leave))
                work.append((part, body, following))
                entry = following
            if node.high is None:
                body = new()
                out[entry] = _Instruction("split", (body, leave))
                work.append((part, body, entry))
            else:
                out[entry] = _Instruction("split", (leave,))
        else:
            out[entry] = _Instruction(node.op, (leave,), node.ranges)
    return out


class Pattern:
    """A compiled pattern; ``pattern`` is its text."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._program = _program(parse(pattern))
        self._forget()

    def _forget(self) -> None:
        self._start = _State(frozenset((0,)), _START)
        self._states = {(self._start.at, _START): self._start}
        self._kept = 0

    def search(self, text: str) -> bool:
        """Whether the pattern matches anywhere in the text (Go's ``MatchString``)."""
        state: _State | None = self._start
        for char in text:
            assert state is not None  # only the end of the text leads nowhere without a match
            following = state.steps.get(char, state)
            if following is state and char not in state.steps:
                following = self._step(state, char)
            if following is None:
                return True
            state = following
        assert state is not None
        return self._matches(state)

    def _matches(self, state: _State) -> bool:
        """Whether a text may end here."""
        if "" not in state.steps:
            state.steps[""] = None if self._reach(state, "") is None else state
        return state.steps[""] is None

    def _reach(self, state: _State, char: str) -> frozenset[int] | None:
        """The instructions before which the next character finds us; ``None`` if the pattern has matched."""
        after = _kind(char)
        seen = set(state.at)
        work = list(state.at)
        while work:
            instruction = self._program[work.pop()]
            if instruction.op == "match":
                return None
            if instruction.op == "split" or (instruction.op != "chars" and _holds(instruction.op, state.before, after)):
                work += [at for at in instruction.to if at not in seen]
                seen.update(instruction.to)
        return frozenset(seen)

    def _step(self, state: _State, char: str) -> _State | None:
        if self._kept >= _MAX_STEPS:
            self._forget()
        self._kept += 1
        reached = self._reach(state, char)
        if reached is None:
            state.steps[char] = None
            return None
        code, at = ord(char), {0}
        for pc in reached:
            instruction = self._program[pc]
            if instruction.op == "chars" and contains(instruction.ranges, code):
                at.add(instruction.to[0])
        key = frozenset(at), _kind(char)
        following = self._states.get(key)
        if following is None:
            following = self._states[key] = _State(*key)
        state.steps[char] = following
        return following


@cache
def compile_re2(pattern: str) -> Pattern:
    """Compiles an RE2 pattern; raises :class:`RE2Error`."""
    return Pattern(pattern)
