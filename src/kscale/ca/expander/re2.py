"""RE2 patterns (the syntax of Go's ``regexp``) for Python's ``re``: checked as RE2 checks them, then rewritten.

RE2 knows no look-around and no back-references, counts ``\\d``, ``\\w``, ``\\s`` and ``\\b`` in ASCII, and lets a flag
group such as ``(?i)`` stand anywhere. The rewritten pattern says exactly that in Python's terms.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache

__all__ = ["RE2Error", "compile_re2"]

_MAX_REPEAT = 1000
_REPEAT = re.compile(r"\{([0-9]+)(,([0-9]*))?\}")
_NAME = re.compile(r"[A-Za-z0-9_]+\Z")
_MAX_CHAR = sys.maxunicode

_Ranges = list[tuple[int, int]]

_DIGIT: _Ranges = [(48, 57)]
_SPACE: _Ranges = [(9, 10), (12, 13), (32, 32)]
_WORD: _Ranges = [(48, 57), (65, 90), (95, 95), (97, 122)]
_PERL = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_POSIX: dict[str, _Ranges] = {
    "alnum": [(48, 57), (65, 90), (97, 122)],
    "alpha": [(65, 90), (97, 122)],
    "ascii": [(0, 127)],
    "blank": [(9, 9), (32, 32)],
    "cntrl": [(0, 31), (127, 127)],
    "digit": _DIGIT,
    "graph": [(33, 126)],
    "lower": [(97, 122)],
    "print": [(32, 126)],
    "punct": [(33, 47), (58, 64), (91, 96), (123, 126)],
    "space": [(9, 13), (32, 32)],
    "upper": [(65, 90)],
    "word": _WORD,
    "xdigit": [(48, 57), (65, 70), (97, 102)],
}
_CONTROL = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}


class RE2Error(ValueError):
    """A text that is not an RE2 pattern; the message is that of Go's ``regexp``."""

    def __init__(self, problem: str, where: str = "") -> None:
        super().__init__(f"error parsing regexp: {problem}" + (f": `{where}`" if where else ""))


def _negate(ranges: _Ranges) -> _Ranges:
    out = []
    following = 0
    for low, high in sorted(ranges):
        if low > following:
            out.append((following, low - 1))
        following = max(following, high + 1)
    if following <= _MAX_CHAR:
        out.append((following, _MAX_CHAR))
    return out


@cache
def _category(name: str) -> tuple[tuple[int, int], ...]:
    """The code points of a Unicode general category (``L``, ``Lu``, ...)."""
    if name != "Any" and not any(unicodedata.category(chr(c)).startswith(name) for c in range(0x3000)):
        raise RE2Error("invalid character class range", f"\\p{{{name}}}")
    out: _Ranges = []
    for code in range(_MAX_CHAR + 1):
        if name == "Any" or unicodedata.category(chr(code)).startswith(name):
            if out and out[-1][1] == code - 1:
                out[-1] = (out[-1][0], code)
            else:
                out.append((code, code))
    return tuple(out)


def _char(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _class(ranges: _Ranges) -> str:
    if not ranges:
        return r"(?:[^\x00-\U0010ffff])"
    return "[" + "".join(_char(a) if a == b else f"{_char(a)}-{_char(b)}" for a, b in ranges) + "]"


class _Group:
    """An open parenthesis: the flags to return to, and whether a flag scope is open inside the current branch."""

    def __init__(self, start: int, flags: frozenset[str]) -> None:
        self.start = start
        self.outer = flags
        self.scoped = False


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.out: list[str] = []
        self.flags: frozenset[str] = frozenset()
        self.groups = [_Group(0, self.flags)]
        self.names: set[str] = set()
        self.may_repeat = False
        self.last_repeat = -1

    def parse(self) -> str:
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
                self.leave_scope()
                self.out.append("|")
                self.may_repeat = False
                self.enter_scope()
                self.at += 1
            elif char == "[":
                self.atom(_class(self.bracket()))
            elif char == "\\":
                self.escape()
            else:
                self.at += 1
                self.atom(self.plain(char))
        if len(self.groups) > 1:
            raise RE2Error("missing closing )", self.pattern)
        self.leave_scope()
        return "".join(self.out)

    def plain(self, char: str) -> str:
        if char == ".":
            return "(?s:.)" if "s" in self.flags else "."
        if char == "^":
            return "(?m:^)" if "m" in self.flags else r"(?:\A)"
        if char == "$":
            return "(?m:$)" if "m" in self.flags else r"(?:\Z)"
        return re.escape(char)

    def atom(self, text: str) -> None:
        self.out.append(text)
        self.may_repeat = True

    # -- repetition --------------------------------------------------------------------------------------------

    def repeat(self) -> None:
        start = self.at
        char = self.pattern[start]
        if char == "{":
            match = _REPEAT.match(self.pattern, start)
            assert match is not None  # the caller looked
            low, high = int(match[1]), int(match[3]) if match[3] else None
            self.at = match.end()
            if low > _MAX_REPEAT or (high is not None and (high > _MAX_REPEAT or high < low)):
                raise RE2Error("invalid repeat count", match[0])
            text = match[0]
        else:
            self.at += 1
            text = char
        lazy = self.pattern.startswith("?", self.at)
        self.at += lazy
        if not self.may_repeat:
            raise RE2Error("missing argument to repetition operator", self.pattern[start : self.at])
        if self.last_repeat >= 0:
            raise RE2Error("invalid nested repetition operator", self.pattern[self.last_repeat : self.at])
        if lazy != ("U" in self.flags):
            text += "?"
        self.out.append(text)
        self.last_repeat = start

    # -- groups and flags --------------------------------------------------------------------------------------

    def open(self) -> None:
        start = self.at
        rest = self.pattern[start:]
        if not rest.startswith("(?"):
            self.push(start, self.flags)
            self.at += 1
            return
        for opening in ("(?P<", "(?<"):
            if rest.startswith(opening) and not rest.startswith(("(?<=", "(?<!")):
                self.name(rest, len(opening))
                self.push(start, self.flags)
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
                    self.push(start, frozenset(flags))
                else:
                    self.leave_scope()
                    self.flags = frozenset(flags)
                    self.enter_scope()
                    self.may_repeat = False
                return
            else:
                break
        raise RE2Error("invalid or unsupported Perl syntax", self.pattern[start:position])

    def push(self, start: int, flags: frozenset[str]) -> None:
        self.out.append("(?:")
        self.groups.append(_Group(start, self.flags))
        self.flags = flags
        self.may_repeat = False
        self.enter_scope()

    def close(self) -> None:
        if len(self.groups) == 1:
            raise RE2Error("unexpected )", self.pattern)
        self.leave_scope()
        self.flags = self.groups.pop().outer
        self.at += 1
        self.atom(")")

    def enter_scope(self) -> None:
        """Inside a branch, case-insensitivity is a group of Python's own."""
        if "i" in self.flags:
            self.out.append("(?i:")
        else:
            self.out.append("(?-i:")
        self.groups[-1].scoped = True

    def leave_scope(self) -> None:
        if self.groups[-1].scoped:
            self.out.append(")")
            self.groups[-1].scoped = False

    # -- characters and classes --------------------------------------------------------------------------------

    def escape(self) -> None:
        if self.at + 1 >= len(self.pattern):
            raise RE2Error("trailing backslash at end of expression")
        char = self.pattern[self.at + 1]
        simple = {"A": r"(?:\A)", "z": r"(?:\Z)", "b": r"(?a:\b)", "B": r"(?a:\B)", "C": "(?s:.)"}
        if char in simple:
            self.at += 2
            self.atom(simple[char])
        elif char == "Q":
            end = self.pattern.find(r"\E", self.at)
            literal = self.pattern[self.at + 2 : end if end >= 0 else None]
            self.at = end + 2 if end >= 0 else len(self.pattern)
            for item in literal:
                self.atom(re.escape(item))
        else:
            ranges = self.named_class()
            self.atom(_class(ranges) if ranges is not None else _char(self.character()))

    def named_class(self) -> _Ranges | None:
        """A Perl or Unicode class at the backslash, if there is one."""
        char = self.pattern[self.at + 1 : self.at + 2]
        if char.lower() in _PERL:
            self.at += 2
            ranges = _PERL[char.lower()]
            return ranges if char.islower() else _negate(ranges)
        if char not in ("p", "P"):
            return None
        match = re.compile(r"\\[pP](?:\{(\^?)([^}]*)\}|(.))").match(self.pattern, self.at)
        if match is None:
            raise RE2Error("invalid character class range", self.pattern[self.at :])
        self.at = match.end()
        ranges = list(_category(match[2] or match[3]))
        return _negate(ranges) if (char == "P") != bool(match[1]) else ranges

    def character(self) -> int:
        """One escaped character; ``at`` stands on the backslash."""
        start = self.at
        if start + 1 >= len(self.pattern):
            raise RE2Error("trailing backslash at end of expression")
        char = self.pattern[start + 1]
        if char in _CONTROL:
            self.at += 2
            return _CONTROL[char]
        octal = re.compile(r"\\(0[0-7]{0,2}|[1-7][0-7]{1,2})").match(self.pattern, start)
        if octal:
            self.at = octal.end()
            return int(octal[1], 8)
        hexadecimal = re.compile(r"\\x(?:\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2}))").match(self.pattern, start)
        if hexadecimal and int(hexadecimal[1] or hexadecimal[2], 16) <= _MAX_CHAR:
            self.at = hexadecimal.end()
            return int(hexadecimal[1] or hexadecimal[2], 16)
        if char.isascii() and not char.isalnum():
            self.at += 2
            return ord(char)
        raise RE2Error("invalid escape sequence", self.pattern[start : start + 2])

    def bracket(self) -> _Ranges:
        start = self.at
        self.at += 1
        negative = self.pattern.startswith("^", self.at)
        self.at += negative
        ranges: _Ranges = []
        first = True
        while first or not self.pattern.startswith("]", self.at):
            if self.at >= len(self.pattern):
                raise RE2Error("missing closing ]", self.pattern[start:])
            first = False
            ranges += self.bracket_item()
        self.at += 1
        return _negate(ranges) if negative else ranges

    def bracket_item(self) -> _Ranges:
        posix = re.compile(r"\[:(\^?)([^:\]]*):\]").match(self.pattern, self.at)
        if posix:
            if posix[2] not in _POSIX:
                raise RE2Error("invalid character class range", posix[0])
            self.at = posix.end()
            return _negate(_POSIX[posix[2]]) if posix[1] else _POSIX[posix[2]]
        if self.pattern.startswith("\\", self.at):
            ranges = self.named_class()
            if ranges is not None:
                return ranges
        start = self.at
        low = self.bracket_character()
        high = low
        if self.pattern.startswith("-", self.at) and self.pattern[self.at + 1 : self.at + 2] not in ("", "]"):
            self.at += 1
            high = self.bracket_character()
            if high < low:
                raise RE2Error("invalid character class range", self.pattern[start : self.at])
        return [(low, high)]

    def bracket_character(self) -> int:
        if self.at >= len(self.pattern):
            raise RE2Error("missing closing ]", self.pattern)
        if self.pattern[self.at] == "\\":
            return self.character()
        self.at += 1
        return ord(self.pattern[self.at - 1])


@cache
def compile_re2(pattern: str) -> re.Pattern[str]:
    """Compiles an RE2 pattern; raises :class:`RE2Error`. Use ``search`` for Go's ``MatchString``."""
    return re.compile(_Parser(pattern).parse())
