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
from typing import Final, NamedTuple

from kscale.objects.protobuf import containers, metadata, nodes, pods, volumes

__all__ = ["LIST", "MAP", "OPTIONAL", "OWN_MEMBERS", "VALUE", "Field", "Message", "message", "names", "parse"]

VALUE: Final = ""
OPTIONAL: Final = "?"
LIST: Final = "*"
MAP: Final = "{}"
OWN_MEMBERS: Final = "."


class Field(NamedTuple):
    """One field. ``form``: :data:`VALUE`, :data:`OPTIONAL`, :data:`LIST` or :data:`MAP`."""

    number: int
    member: str
    type: str
    form: str


class Message(NamedTuple):
    """Fields in the order of their numbers, and every member of the JSON form, those of embedded messages included."""

    name: str
    fields: tuple[Field, ...]
    members: frozenset[str]


def parse(table: str) -> dict[str, Message]:
    """The messages of a table by name, in its order."""
    lines: dict[str, str] = {}
    for line in filter(None, table.replace("\n    ", " ").splitlines()):
        name, _, fields = line.partition(":")
        lines[name] = fields
    found: dict[str, Message] = {}
    for name in lines:
        _parse(name, lines, found)
    return {name: found[name] for name in lines}


def _parse(name: str, lines: dict[str, str], found: dict[str, Message]) -> Message:
    if name in found:
        return found[name]
    fields = [_field(part) for part in lines[name].split(",")]
    members = {field.member for field in fields}
    for field in fields:
        if field.member == OWN_MEMBERS:
            members |= _parse(field.type, lines, found).members
    sent = sorted(field for field in fields if field.number)
    found[name] = Message(name, tuple(sent), frozenset(members - {OWN_MEMBERS}))
    return found[name]


def _field(part: str) -> Field:
    number, member, type_ = part.split()
    form = next((form for form in (OPTIONAL, LIST, MAP) if type_.endswith(form)), VALUE)
    return Field(int(number), member, type_.removesuffix(form), form)


@cache
def _known() -> dict[str, Message]:
    return parse(metadata.MESSAGES + pods.MESSAGES + containers.MESSAGES + volumes.MESSAGES + nodes.MESSAGES)


def names() -> list[str]:
    """Every message."""
    return list(_known())


def message(name: str) -> Message | None:
    """A message by name; None: a type that is no message."""
    return _known().get(name)
