"""What is left of a JSON object by a rule, told from a tree of its text; rows by name and number; copies of texts."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

__all__ = ["Reduced", "Value", "copied", "events", "grouped", "is_of_kind", "parsed", "reduced", "rows_of", "selected"]

_SPACE = re.compile(r"[ \n\r\t]*")
_STRING = re.compile(r'"((?:[^"\\\x00-\x1f]|\\.)*)"')
_WORD = re.compile(r"[^\s,\]}]+")


class Value(NamedTuple):
    """A value and its text; members and elements with what is in them."""

    text: str
    begin: int
    members: list[tuple[str, int, Value]] | None = None  # key as written, where its quote is, value
    elements: list[Value] | None = None

    @property
    def string(self) -> str | None:
        """What is between the quotes of a string, as written."""
        return self.text[1:-1] if self.text.startswith('"') else None


def parsed(text: str, at: int = 0) -> Value:
    """The value that begins at a place of a valid text."""

    def space(at: int) -> int:
        result = _SPACE.match(text, at)
        assert result is not None
        return result.end()

    def value(at: int) -> tuple[Value, int]:
        begin = at = space(at)
        if text[at] == "{":
            members: list[tuple[str, int, Value]] = []
            at = space(at + 1)
            while text[at] != "}":
                key = _STRING.match(text, at)
                assert key is not None
                inner, end = value(space(key.end()) + 1)
                members.append((key[1], at, inner))
                at = space(end)
                at = space(at + 1) if text[at] == "," else at
            return Value(text[begin : at + 1], begin, members), at + 1
        if text[at] == "[":
            elements = []
            at = space(at + 1)
            while text[at] != "]":
                inner, end = value(at)
                elements.append(inner)
                at = space(end)
                at = space(at + 1) if text[at] == "," else at
            return Value(text[begin : at + 1], begin, None, elements), at + 1
        result = (_STRING if text[at] == '"' else _WORD).match(text, at)
        assert result is not None
        return Value(result[0], begin), result.end()

    return value(at)[0]


class Reduced:
    """What a rule leaves. ``odd``: it has to be read otherwise; ``absent``: it does not count; ``rest``: plain data.
    ``whole``: keys that come twice in what is not kept make it odd, too."""

    def __init__(self, *, complete: bool = True) -> None:
        self.odd = False
        self.complete = complete
        self.absent = False
        self.rest: Any = None
        self.facets: dict[int, Any] = {}
        self.slots: dict[int, str] = {}


_ABSENT = object()


def reduced(rule: Any, item: Value, *, complete: bool = True) -> Reduced:
    """The slow way."""
    out = Reduced(complete=complete)
    out.rest = _value(rule, item, out, 0)
    out.absent = out.rest is _ABSENT
    return out


def _value(rule: Any, value: Value, out: Reduced, key_at: int) -> Any:
    kind = rule if isinstance(rule, str) else rule[0]
    if kind == "equals":
        return json.loads(value.text) if value.text == rule[1] else _ABSENT
    if kind == "blank":
        compact = re.sub(r'("(?:[^"\\]|\\.)*")|\s+', r"\1", value.text)
        named = re.fullmatch(f"{re.escape(rule[1])}[A-Za-z0-9.-]+{re.escape(rule[2])}", compact)
        return json.loads(rule[3] if named else value.text)
    if kind in ("capture", "mark", "note"):
        if value.string is None:
            out.odd = out.odd or value.text != "null"
            return _ABSENT
        out.odd = out.odd or "\\" in value.string or not value.string.isascii() or rule[1] in out.slots
        out.slots[rule[1]] = value.string
        rest = {"capture": None, "mark": rule[-1], "note": value.text}[kind]
        return _ABSENT if rest is None else json.loads(rest)
    if kind == "span":
        out.slots[rule[1]] = value.text  # with its key, which the test adds
        _skip(value, out)
        return _ABSENT
    if kind == "alike":
        return _value(rule[1], value, out, key_at)
    if kind == "facet":
        result = _value(rule[2], value, out, key_at)
        if result is not _ABSENT:
            out.facets[rule[1]] = result
        return _ABSENT
    if kind == "switch":
        return _switch(rule, value, out)
    if kind == "object" and value.members is not None:
        return _object(rule, value, out)
    if kind == "array" and value.elements is not None:
        result = [_value(rule[1], each, out, 0) for each in value.elements]
        return [each for each in result if each is not _ABSENT]
    return json.loads(value.text)


def _object(rule: Any, value: Value, out: Reduced) -> Any:
    result: dict[str, Any] = {}
    read_keys: set[str] = set()
    assert value.members is not None
    for key, at, inner in value.members:
        out.odd = out.odd or "\\" in key
        if key in rule[1] or out.complete:
            out.odd = out.odd or key in read_keys
        read_keys.add(key)
        if key not in rule[1]:
            _skip(inner, out)
            continue
        part = _value(rule[1][key], inner, out, at)
        if part is not _ABSENT:
            result[key] = part
    return _ABSENT if rule[2] and not set(rule[2]) & result.keys() else result


def _switch(rule: Any, value: Value, out: Reduced) -> Any:
    members = value.members or []
    if any("\\" in key for key, _, _ in members) or sum(key == rule[1] for key, _, _ in members) != 1:
        out.odd = True
        return _ABSENT
    own = rule[2].get(next(inner.text for key, _, inner in members if key == rule[1]))
    if own is None:
        _skip(value, out)
        return _ABSENT
    result = _object(own, value, out)
    for key in own[2]:
        needed = own[1][key]
        if needed[0] == "capture" and needed[1] not in out.slots:
            out.odd = True
    return result


def _skip(value: Value, out: Reduced) -> None:
    out.odd = out.odd or (out.complete and _repeats(value))


def _repeats(value: Value) -> bool:
    keys = [key for key, _, _ in value.members or []]
    inside = [*(inner for _, _, inner in value.members or []), *(value.elements or [])]
    return len(set(keys)) < len(keys) or any(map(_repeats, inside))


def is_of_kind(item: Value, api_version: str, kind: str) -> bool | None:
    """Whether the first two members of an object say that it is of a kind, or of another; None: they do not say it."""
    read_keys = set()
    for key, _, inner in (item.members or [])[:2]:
        if inner.string is None:
            break
        expected = {"kind": kind, "apiVersion": api_version}.get(key, inner.string)
        if inner.string != expected:
            return False
        read_keys.add(key)
    return True if {"kind", "apiVersion"} <= read_keys else None


def events(data: bytes) -> tuple[int, list[tuple[str | None, bytes]]]:
    """(bytes used, the events of the lines: type and text of the object; None and the line for what is no event)."""
    used = data.rfind(b"\n") + 1
    lines = [each for each in data[:used].split(b"\n") if each.strip(b" \t\r")]
    result = [_event(each) for each in lines]
    last = data[used:]
    if not last.strip(b" \t\r"):
        return len(data), result
    event = _event(last)
    return (used, result) if event[0] is None else (len(data), [*result, event])


def _event(line: bytes) -> tuple[str | None, bytes]:
    try:
        pairs = json.loads(line.decode(), object_pairs_hook=list, strict=True, parse_constant=_refuse)
        top = parsed(line.decode())
    except (ValueError, RecursionError):
        return None, line
    if not isinstance(pairs, list) or top.members is None:
        return None, line
    of = {key: inner for key, _, inner in top.members}
    keys = [key for key, _, _ in top.members]
    if any("\\" in key for key in keys) or any(keys.count(name) != 1 for name in ("type", "object")):
        return None, line
    if of["type"].string is None or of["object"].members is None:
        return None, line
    return of["type"].string, of["object"].text.encode()


def _refuse(text: str) -> Any:
    raise ValueError(text)


def copied(text: bytes, cut: tuple[int, int] | None) -> bytes:
    """A text without a member of an object in it: its comma goes too, the one behind it or else the one before."""
    if cut is None:
        return text
    head, tail = text[: cut[0]], text[cut[0] + cut[1] :]
    if tail.lstrip(b" \n\r\t").startswith(b","):
        return head + tail.lstrip(b" \n\r\t")[1:]
    return head.rstrip(b" \n\r\t")[:-1] + tail if head.rstrip(b" \n\r\t").endswith(b",") else head + tail


def rows_of(table: list[str], names: list[str]) -> list[int]:
    """The last row of each name, -1 where there is none."""
    return [max((row for row, each in enumerate(table) if each == name), default=-1) for name in names]


def grouped(numbers: list[int], count: int) -> list[list[int]]:
    """The rows of each number."""
    return [[row for row, number in enumerate(numbers) if number == group] for group in range(count)]


def selected(groups: list[list[int]], chosen: list[int]) -> list[int]:
    """The rows of some groups together."""
    return sorted(row for number in chosen for row in groups[number])
