"""The files of a kubeconfig as plain data: entries by name, with every value of the type that it should have."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kscale.errors import Problem
from kscale.files import read_file
from kscale.objects.names import go_quote
from kscale.snapshot.yaml_documents import documents
from kscale.world.kubernetes.access import Pem

__all__ = ["ANY", "BASE64", "FLAG", "TEXT", "TEXTS", "TEXT_LISTS", "Entry", "checked", "named_entries", "read_document"]

TEXT, FLAG, BASE64, TEXTS, TEXT_LISTS, ANY = "a text", "true or false", "base64", "a list of texts", "lists", ""
_TOP: Final = {
    "kind": TEXT, "apiVersion": TEXT, "current-context": TEXT, "clusters": ANY, "users": ANY, "contexts": ANY,
    "preferences": ANY, "extensions": ANY,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One named entry, and the file that it is from: paths in it are relative to that."""

    data: Mapping[str, Any]
    source: str
    where: str

    def problem(self, message: str, key: str = "") -> Problem:
        return Problem(message, self.source, self.where, key)

    def path(self, key: str) -> str:
        text: str = self.data.get(key) or ""
        return str((Path(self.source).parent / text).absolute()) if text else ""

    def pem(self, key: str) -> Pem:
        data: bytes = self.data.get(f"{key}-data") or b""
        return Pem(data) if data else Pem(path=self.path(key))


def read_document(path: str, problems: list[Problem]) -> Mapping[str, Any]:
    """One file as plain data."""
    try:
        text = read_file(path)
    except OSError as error:
        problems.append(Problem(error.strerror or str(error), path))
        return {}
    found = list(documents(text, path))
    problems += [each for each in found if isinstance(each, Problem)]
    if any(isinstance(each, Problem) for each in found) or not found:
        return {}
    top = found[0]
    if len(found) > 1 or not isinstance(top, Mapping):
        problems.append(Problem("it is not one kubeconfig", path))
        return {}
    data = checked(Entry(top, path, ""), _TOP, problems).data
    for key, value in (("kind", "Config"), ("apiVersion", "v1")):
        if (data.get(key) or value) != value:
            problems.append(Problem(f"{value} is expected, not {data[key]}", path, field=key))
    return data


def named_entries(
    top: Mapping[str, Any], plural: str, path: str, problems: list[Problem]
) -> Iterator[tuple[str, Entry]]:
    """The entries of one list by their names, as they stand there."""
    listed = top.get(plural)
    if listed is None:
        return
    if not isinstance(listed, list):
        problems.append(Problem("a list is expected", path, field=plural))
        return
    singular, seen = plural[:-1], set()
    for i, item in enumerate(listed):
        name = item.get("name") if isinstance(item, Mapping) else None
        data = item.get(singular) if isinstance(item, Mapping) else None
        if not isinstance(name, str) or not isinstance(data, Mapping | None):
            problems.append(Problem(f"an entry with name and {singular} is expected", path, field=f"{plural}[{i}]"))
            continue
        if name in seen:
            problems.append(Problem(f"the name {go_quote(name)} comes twice", path, field=f"{plural}[{i}].name"))
            continue
        seen.add(name)
        unknown = [key for key in item if key not in ("name", singular)]
        yield name, Entry({**(data or {}), **dict.fromkeys(unknown)}, path, f"{singular} {go_quote(name)}")


def checked(entry: Entry, keys: Mapping[str, str], problems: list[Problem]) -> Entry:
    """The entry, with its values as they are meant; what is not understood or of another type is a problem."""
    found: dict[str, Any] = {}
    for key, value in entry.data.items():
        expected = keys.get(key)
        if expected is None:
            hint = " (use an exec plug-in)" if key == "auth-provider" else ""
            problems.append(entry.problem(f"this key is not understood{hint}", key))
        elif value is not None:
            try:
                found[key] = _value(value, expected)
            except (TypeError, ValueError):
                problems.append(entry.problem(f"{expected} is expected", key))
    return Entry(found, entry.source, entry.where)


def _value(value: Any, expected: str) -> Any:
    """Never tells the value: it may be a secret."""
    if expected in (TEXT, BASE64) and not isinstance(value, str):
        raise TypeError
    if expected == FLAG and not isinstance(value, bool):
        raise TypeError
    if expected == BASE64:
        try:
            return base64.b64decode("".join(value.split()), validate=True)
        except binascii.Error:
            raise ValueError from None
    if expected == TEXTS:
        return _texts(value)
    if expected == TEXT_LISTS:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise TypeError
        return {key: _texts(each) for key, each in value.items()}
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise TypeError
    return tuple(value)
