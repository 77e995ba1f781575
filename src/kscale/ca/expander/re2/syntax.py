"""Patterns as Go's ``regexp/syntax`` reads them (its Perl mode), with its words for what is wrong with one.

RE2 knows no look-around and no back-references, counts ``\\d``, ``\\w``, ``\\s`` and ``\\b`` in ASCII, and lets a flag
group such as ``(?i)`` stand anywhere.
"""

from __future__ import annotations

import re

from kscale.ca.expander.re2 import tree
from kscale.ca.expander.re2.classes import MAX_CHAR, PERL, POSIX, Ranges, category, clean, fold, negate
from kscale.ca.expander.re2.errors import RE2Error
from kscale.ca.expander.re2.tree import Node

__all__ = ["parse"]

_INT = r"(0|[1-9][0-9]*)"
_REPEAT = re.compile(rf"\{{{_INT}(,{_INT}?)?\}}")
_NAME = re.compile(r"[A-Za-z0-9_]+\Z")
_UNICODE = re.compile(r"\\[pP](?:\{(\^?)([^}]*)\}|([^{]))", re.DOTALL)
_OCTAL = re.compile(r"\\(0[0-7]{0,2}|[1-7][0-7]{1,2})")
_HEX = frozenset("0123456789abcdefABCDEF")
_POSIX_CLASS = re.compile(r"\[:(\^?)(.*?):\]", re.DOTALL)
_CONTROL = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_COUNTS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_ANY: Ranges = ((0, MAX_CHAR),)
_NOT_NEWLINE = negate(((10, 10),))


class _Group:
    """An open parenthesis: the flags to return to, the branches closed so far and what the open one holds."""

    def __init__(self, flags: frozenset[str], capture: bool) -> None:
        self.outer = flags
        self.capture = capture
        self.branches: list[Node] = []
        self.items: list[Node] = []


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.flags: frozenset[str] = frozenset()
        self.groups = [_Group(self.flags, capture=False)]
        self.names: set[str] = set()
        self.last_repeat = -1

    def parse(self) -> Node:
        while self.at < len(self.pattern):
            char = self.pattern[self.at]
            if char in "*+?" or (char == "{" and _REPEAT.match(self.pattern, self.at)):
                self.repeat()
                continue
            self.last_repeat = -1
            if char == "(":
                self.open()
            elif char == ")":
                self.close()
            elif char == "|":
                self.end_branch()
                self.at += 1
            elif char == "[":
                self.push(tree.chars(self.bracket()))
            elif char == "\\":
                self.escape()
            else:
                self.at += 1
                self.plain(char)
        self.end_branch()
        if len(self.groups) > 1:
            raise RE2Error("missing closing )", self.pattern)
        return self.limited(tree.choice(self.groups[0].branches))

    def plain(self, char: str) -> None:
        if char == ".":
            self.push(tree.chars(_ANY if "s" in self.flags else _NOT_NEWLINE))
        elif char == "^":
            self.push(tree.assertion("^" if "m" in self.flags else "A"))
        elif char == "$":
            self.push(tree.assertion("$" if "m" in self.flags else "z"))
        else:
            self.literal(ord(char))

    def literal(self, code: int) -> None:
        self.push(tree.chars(self.folded(((code, code),))))

    def folded(self, ranges: Ranges) -> Ranges:
        return fold(ranges) if "i" in self.flags else ranges

    def push(self, node: Node) -> None:
        self.groups[-1].items.append(node)

    def limited(self, node: Node) -> Node:
        if node.size > tree.MAX_SIZE:
            raise RE2Error("expression too large", self.pattern)
        if node.height > tree.MAX_HEIGHT:
            raise RE2Error("expression nests too deeply", self.pattern)
        return node

    def end_branch(self) -> None:
        group = self.groups[-1]
        group.branches.append(self.limited(tree.sequence(group.items)))
        group.items = []

    # -- repetition --------------------------------------------------------------------------------------------

    def repeat(self) -> None:
        start = self.at
        char = self.pattern[start]
        counted = char == "{"
        if counted:
            match = _REPEAT.match(self.pattern, start)
            assert match is not None  # the caller looked
            low = int(match[1])
            high = low if match[2] is None else int(match[3]) if match[3] else None
            self.at = match.end()
            if low > tree.MAX_REPEAT or (high is not None and (high > tree.MAX_REPEAT or high < low)):
                raise RE2Error("invalid repeat count", match[0])
        else:
            self.at += 1
            low, high = _COUNTS[char]
        self.at += self.pattern.startswith("?", self.at)  # lazy or not, it matches the same texts
        if self.last_repeat >= 0:
            raise RE2Error("invalid nested repetition operator", self.pattern[self.last_repeat : self.at])
        items = self.groups[-1].items
        if not items:
            raise RE2Error("missing argument to repetition operator", self.pattern[start : self.at])
        items[-1] = self.limited(tree.repeat(items[-1], low, high, counted))
        if counted and max(low, high or 0) >= 2 and items[-1].copies > tree.MAX_REPEAT:
            raise RE2Error("invalid repeat count", self.pattern[start : self.at])
        self.last_repeat = start

    # -- groups and flags --------------------------------------------------------------------------------------

    def open(self) -> None:
        start = self.at
        rest = self.pattern[start:]
        if not rest.startswith("(?"):
            self.begin(self.flags)
            self.at += 1
            return
        for opening in ("(?P<", "(?<"):
            if rest.startswith(opening):
                self.name(rest, len(opening))
                self.begin(self.flags)
                return
        self.flag_group(start)

    def name(self, rest: str, start: int) -> None:
        end = rest.find(">")
        if end < 0 or not _NAME.match(rest[start:end]):
            raise RE2Error("invalid named capture", rest[: end + 1] if end >= 0 else rest)
        if rest[start:end] in self.names:
            raise RE2Error("duplicate capture group name", rest[start:end])
        self.names.add(rest[start:end])
        self.at += end + 1

    def flag_group(self, start: int) -> None:
        flags = set(self.flags)
        negative = seen = False
        position = start + 2
        while position < len(self.pattern):
            char = self.pattern[position]
            position += 1
            if char in "imsU":
                (flags.discard if negative else flags.add)(char)
                seen = True
            elif char == "-" and not negative:
                negative, seen = True, False
            elif char in ":)" and (seen or not negative):
                self.at = position
                if char == ":":
                    self.begin(frozenset(flags), capture=False)
                else:
                    self.flags = frozenset(flags)
                return
            else:
                break
        raise RE2Error("invalid or unsupported Perl syntax", self.pattern[start:position])

    def begin(self, flags: frozenset[str], capture: bool = True) -> None:
        self.groups.append(_Group(self.flags, capture))
        self.flags = flags

    def close(self) -> None:
        self.end_branch()
        if len(self.groups) == 1:
            raise RE2Error("unexpected )", self.pattern)
        group = self.groups.pop()
        self.flags = group.outer
        self.at += 1
        node = tree.choice(group.branches)
        self.push(self.limited(tree.group(node) if group.capture else node))

    # -- characters and classes --------------------------------------------------------------------------------

    def escape(self) -> None:
        if self.at + 1 >= len(self.pattern):
            raise RE2Error("trailing backslash at end of expression")
        char = self.pattern[self.at + 1]
        if char in "AzbB":
            self.at += 2
            self.push(tree.assertion(char))
        elif char == "Q":
            end = self.pattern.find(r"\E", self.at)
            literal = self.pattern[self.at + 2 : end if end >= 0 else None]
            self.at = end + 2 if end >= 0 else len(self.pattern)
            for item in literal:
                self.literal(ord(item))
        else:
            ranges = self.named_class()
            if ranges is not None:
                self.push(tree.chars(ranges))
            else:
                self.literal(self.character())

    def named_class(self) -> Ranges | None:
        """A Perl or Unicode class at the backslash, if there is one."""
        char = self.pattern[self.at + 1 : self.at + 2]
        if char.lower() in PERL:
            self.at += 2
            ranges = self.folded(PERL[char.lower()])
            return ranges if char.islower() else negate(ranges)
        if char not in ("p", "P"):
            return None
        match = _UNICODE.match(self.pattern, self.at)
        if match is None:
            raise RE2Error("invalid character class range", self.pattern[self.at :])
        self.at = match.end()
        ranges = self.folded(category(match[2] if match[3] is None else match[3], match[0]))
        return negate(ranges) if (char == "P") != bool(match[1]) else ranges

    def character(self) -> int:
        """One escaped character; ``at`` stands on the backslash."""
        start = self.at
        if start + 1 >= len(self.pattern):
            raise RE2Error("trailing backslash at end of expression")
        char = self.pattern[start + 1]
        if char in _CONTROL:
            self.at += 2
            return _CONTROL[char]
        octal = _OCTAL.match(self.pattern, start)
        if octal:
            self.at = octal.end()
            return int(octal[1], 8)
        if char == "x":
            return self.hexadecimal(start)
        if char.isascii() and not char.isalnum():
            self.at += 2
            return ord(char)
        raise RE2Error("invalid escape sequence", self.pattern[start : start + 2])

    def hexadecimal(self, start: int) -> int:
        """``\\x41`` or ``\\x{1F600}``; what is wrong is told up to the character that is."""
        self.at = start + 2
        braces = self.pattern.startswith("{", self.at)
        self.at += braces
        digits = ""
        while self.at < len(self.pattern) and (braces or self.at < start + 4):
            char = self.pattern[self.at]
            self.at += 1
            if braces and char == "}":
                if not digits:
                    break
                return int(digits, 16)
            digits += char
            if braces and (char not in _HEX or int(digits, 16) > MAX_CHAR):
                break
        if not braces and len(digits) == 2 and set(digits) <= _HEX:
            return int(digits, 16)
        raise RE2Error("invalid escape sequence", self.pattern[start : self.at])

    def bracket(self) -> Ranges:
        start = self.at
        self.at += 1
        negative = self.pattern.startswith("^", self.at)
        self.at += negative
        ranges: list[tuple[int, int]] = []
        first = True
        while first or not self.pattern.startswith("]", self.at):
            if self.at >= len(self.pattern):
                raise RE2Error("missing closing ]", self.pattern[start:])
            first = False
            ranges += self.bracket_item()
        self.at += 1
        return negate(ranges) if negative else clean(ranges)

    def bracket_item(self) -> Ranges:
        posix = _POSIX_CLASS.match(self.pattern, self.at)
        if posix:
            if posix[2] not in POSIX:
                raise RE2Error("invalid character class range", posix[0])
            self.at = posix.end()
            ranges = self.folded(POSIX[posix[2]])
            return negate(ranges) if posix[1] else ranges
        if self.pattern.startswith("\\", self.at):
            named = self.named_class()
            if named is not None:
                return named
        start = self.at
        low = self.bracket_character()
        high = low
        if self.pattern.startswith("-", self.at) and self.pattern[self.at + 1 : self.at + 2] not in ("", "]"):
            self.at += 1
            high = self.bracket_character()
            if high < low:
                raise RE2Error("invalid character class range", self.pattern[start : self.at])
        return self.folded(((low, high),))

    def bracket_character(self) -> int:
        if self.at >= len(self.pattern):
            raise RE2Error("missing closing ]", self.pattern)
        if self.pattern[self.at] == "\\":
            return self.character()
        self.at += 1
        return ord(self.pattern[self.at - 1])


def parse(pattern: str) -> Node:
    """What a pattern says; raises :class:`RE2Error`."""
    return _Parser(pattern).parse()
