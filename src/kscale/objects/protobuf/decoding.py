"""From the protobuf form of an object to its JSON form, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, NamedTuple

from kscale.errors import InputError, Problem
from kscale.libraries import library
from kscale.objects.protobuf.messages import ENTRY_KEY, ENTRY_VALUE, INLINE, kubernetes_message
from kscale.objects.protobuf.tables import LIST, MAP, OWN_MEMBERS, VALUE, Field, Message, message
from kscale.objects.quantity import Quantity

__all__ = ["Decoded", "decode"]

_FORM: Final = "the protobuf form of objects"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ZERO_TIME: Final = "0001-01-01T00:00:00Z"
"""The time that Go takes for none; behind a pointer it is one."""
_TEXT: Final = 1
"""``IntOrString``: which of the two it is."""


class Decoded(NamedTuple):
    """The object as plain data, and how often fields occurred that the API's messages do not have
    (``spec.containers field 99``): of a later release, perhaps."""

    data: dict[str, Any]
    unknown: Counter[str]


def decode(name: str, data: bytes) -> Decoded:
    """An object of the API by the name of its message: ``Pod`` or ``Node``, or a part of one.

    What Go writes although it is zero is left out, as it leaves it out of JSON; so :func:`encode` gives the same bytes
    again. Raises InputError for bytes that are no such message, with the field if one is to blame, and
    MissingExtraError without the runtime.
    """
    of = message(name)
    if of is None:
        raise ValueError(f"there is no message {name}")
    broken = library("google.protobuf.message", _FORM).DecodeError
    try:
        found = kubernetes_message(name).FromString(data)
    except broken:
        raise InputError(f"{len(data):,} bytes that are no {name}") from None
    trace = _Trace()
    try:
        return Decoded(_message(of, found, trace), trace.unknown)
    except ValueError as error:
        raise InputError(Problem(str(error), field=".".join(trace.path))) from None


class _Trace:
    """Where the decoding stands, and what it met on the way."""

    __slots__ = ("path", "unknown", "unknown_fields")

    def __init__(self) -> None:
        self.path: list[str] = []
        self.unknown: Counter[str] = Counter()
        self.unknown_fields = library("google.protobuf.unknown_fields", _FORM).UnknownFieldSet


_Value = Callable[[Any, _Trace], Any]


def _message(of: Message, found: Any, trace: _Trace) -> dict[str, Any]:
    for field in trace.unknown_fields(found):
        trace.unknown[f"{'.'.join(trace.path)} field {field.field_number}".lstrip()] += 1
    data: dict[str, Any] = {}
    for field, value in _readers(of):
        if field.member == OWN_MEMBERS:
            data |= value(getattr(found, INLINE), trace)
            continue
        trace.path.append(field.member)
        read = _field(field, value, found, trace)
        trace.path.pop()
        if read is not None:
            data[field.member] = read
    return data


def _field(field: Field, value: _Value, found: Any, trace: _Trace) -> Any:
    """The member, None where it is not in the JSON form."""
    given = getattr(found, field.member)
    if field.form == LIST:
        return [value(each, trace) for each in given] or None
    if field.form == MAP:
        return {_text(getattr(each, ENTRY_KEY)): value(getattr(each, ENTRY_VALUE), trace) for each in given} or None
    if not found.HasField(field.member):
        return None
    read = value(given, trace)
    none = {"IntOrString": None, "Time": read == _ZERO_TIME}.get(field.type, not read)
    return None if none and field.form == VALUE else read


@cache
def _readers(of: Message) -> tuple[tuple[Field, _Value], ...]:
    return tuple((field, _value_of(field.type)) for field in of.fields)


def _value_of(type_: str) -> _Value:
    of = message(type_)
    if of is not None:
        return lambda found, trace: _message(of, found, trace)
    special = _SPECIAL.get(type_)
    return (lambda found, _: found) if special is None else (lambda found, _: special(found))


def _text(found: Any) -> str:
    if not isinstance(found, str):  # the runtime gives the bytes
        raise ValueError("not UTF-8")
    return found


def _quantity(found: Any) -> str:
    return str(Quantity(_text(found.string)))


def _time(found: Any) -> str:
    """Whole seconds, as the API prints them."""
    if not found.HasField("seconds"):
        return _ZERO_TIME
    try:
        moment = _EPOCH + timedelta(seconds=found.seconds)
    except OverflowError:
        raise ValueError(f"{found.seconds} seconds since 1970 are no time") from None
    return moment.isoformat().removesuffix("+00:00") + "Z"


def _int_or_text(found: Any) -> int | str:
    chosen: int | str = _text(found.strVal) if found.type == _TEXT else found.intVal
    return chosen


_SPECIAL: Final[dict[str, Callable[[Any], Any]]] = {
    "text": _text,
    "Quantity": _quantity,
    "Time": _time,
    "IntOrString": _int_or_text,
}
