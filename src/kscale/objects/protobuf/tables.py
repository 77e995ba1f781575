"""The messages by name: which member of the JSON form is which field.

A line is ``Message: number member type, ...``. The type is ``text``, ``bool``, ``int32``, ``int64``, ``Quantity``,
``Time``, ``IntOrString`` or another message, and after it

- nothing: a field that is always written, absent members as zero (a value in the Go types, not a pointer),
- ``?``: written if the member is there and not null; ``*``: a list; ``{}``: a map of texts to this type.

A member ``.`` is a message whose members stand among their parent's in JSON. Number 0: a member of the JSON form that
is not sent. Numbers and types are those of the API's published messages (``generated.proto`` and ``types.go``).
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from kscale.objects.protobuf import containers, metadata, nodes, pods, volumes

__all__ = ["Field", "Message", "message", "names"]

_OPTIONAL, _LIST, _MAP = "?", "*", "{}"


class Field(NamedTuple):
    """One field. ``form``: ``""``, ``"?"``, ``"*"`` or ``"{}"``."""

    number: int
    member: str
    type: str
    form: str


class Message(NamedTuple):
    """Fields in the order of their numbers, and every member of the JSON form, those of embedded messages included."""

    name: str
    fields: tuple[Field, ...]
    members: frozenset[str]


@cache
def _lines() -> dict[str, str]:
    found: dict[str, str] = {}
    for module in (metadata, pods, containers, volumes, nodes):
        for line in module.MESSAGES.replace("\n    ", " ").strip().splitlines():
            name, _, fields = line.partition(":")
            found[name] = fields
    return found


def names() -> list[str]:
    """Every message."""
    return list(_lines())


@cache
def message(name: str) -> Message | None:
    """A message by name; None: a type that is no message."""
    line = _lines().get(name)
    if line is None:
        return None
    fields = [_field(part) for part in line.split(",")]
    members = {field.member for field in fields}
    for field in fields:
        embedded = message(field.type) if field.member == "." else None
        members |= embedded.members if embedded is not None else set()
    sent = sorted(field for field in fields if field.number)
    return Message(name, tuple(sent), frozenset(members - {"."}))


def _field(part: str) -> Field:
    number, member, type_ = part.split()
    form = next((form for form in (_OPTIONAL, _LIST, _MAP) if type_.endswith(form)), "")
    return Field(int(number), member, type_.removesuffix(form), form)
