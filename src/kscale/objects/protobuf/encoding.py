"""From the JSON form of an object to its protobuf form, byte for byte what the Go types of the API give.

Fields stand in the order of their numbers, maps in the order of their keys; what is a value in Go is written even if it
is zero. ``managedFields`` are not sent: the autoscaler's informers take them off everything they hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from kscale.errors import InputError, Problem
from kscale.objects.base import dec_hook
from kscale.objects.plain_json import NumberText
from kscale.objects.protobuf.tables import Field, Message, message
from kscale.objects.protobuf.wire import LENGTH, VARINT, bytes_field, key, varint
from kscale.objects.quantity import Quantity
from kscale.objects.times import nanoseconds

__all__ = ["Encoded", "encode"]

_BITS: Final = {"int32": 32, "int64": 64}
_SECOND: Final = 10**9
_ZERO_TIME: Final = -62_135_596_800  # 0001-01-01T00:00:00Z: a time that Go takes for none


class Encoded(NamedTuple):
    """The bytes, and how often members occurred that the API's messages do not have (``spec.containers.foo``)."""

    data: bytes
    unknown: Counter[str]


def encode(name: str, data: Mapping[str, Any]) -> Encoded:
    """An object of the API by the name of its message: ``Pod`` or ``Node``, or a part of one.

    ``data``: the JSON form as plain data (:func:`kscale.objects.plain_json.plain`, or
    :func:`kscale.objects.decode.to_dict`). Raises InputError with the field that cannot be encoded.
    """
    of = message(name)
    if of is None:
        raise ValueError(f"there is no message {name}")
    trace = _Trace()
    try:
        return Encoded(_message(of, data, trace), trace.unknown)
    except _BadValueError as error:
        field = ".".join(trace.path).replace(".[", "[")
        raise InputError(Problem(str(error), field=field)) from None


class _BadValueError(ValueError):
    pass


class _Trace:
    """Where the encoding stands, and what it met on the way."""

    __slots__ = ("path", "unknown")

    def __init__(self) -> None:
        self.path: list[str] = []
        self.unknown: Counter[str] = Counter()


_Writer = Callable[[Mapping[str, Any], bytearray, _Trace], None]
_Value = Callable[[Any, _Trace], bytes]


def _message(of: Message, data: Any, trace: _Trace) -> bytes:
    """``data`` None: the message without any member."""
    data = {} if data is None else _object(data)
    for member in data.keys() - of.members:
        trace.unknown[".".join((*trace.path, str(member))).replace(".[", "[")] += 1
    return _fields(of, data, trace)


def _fields(of: Message, data: Mapping[str, Any], trace: _Trace) -> bytes:
    out = bytearray()
    for write in _writers(of):
        write(data, out, trace)
    return bytes(out)


# -- one field -------------------------------------------------------------------------------------------------


@cache
def _writers(of: Message) -> tuple[_Writer, ...]:
    return tuple(map(_writer, of.fields))


def _writer(field: Field) -> _Writer:
    if field.member == ".":
        return _embedded(field)
    value, has_length = _value_of(field.type)
    before = key(field.number, LENGTH if has_length else VARINT)

    def one(given: Any, out: bytearray, trace: _Trace) -> None:
        written = value(given, trace)
        out += before
        if has_length:
            out += varint(len(written))
        out += written

    absent = bytearray()
    if not field.form:
        one(None, absent, _Trace())

    def single(data: Mapping[str, Any], out: bytearray, trace: _Trace) -> None:
        given = data.get(field.member)
        if given is None:
            out += absent
            return
        trace.path.append(field.member)
        one(given, out, trace)
        trace.path.pop()

    def repeated(data: Mapping[str, Any], out: bytearray, trace: _Trace) -> None:
        given = data.get(field.member)
        if given is None:
            return
        trace.path.append(field.member)
        if not isinstance(given, (list, tuple)):
            raise _BadValueError(f"a list is expected, not {_shown(given)}")
        depth = len(trace.path)
        try:
            for i, each in enumerate(given):  # noqa: B007  # says where it failed
                one(each, out, trace)
        except _BadValueError:
            trace.path.insert(depth, f"[{i}]")
            raise
        trace.path.pop()

    if field.form == "{}":
        return _mapped(field, value)
    return repeated if field.form == "*" else single


def _embedded(field: Field) -> _Writer:
    of = message(field.type)
    assert of is not None

    def write(data: Mapping[str, Any], out: bytearray, trace: _Trace) -> None:
        out += bytes_field(field.number, _fields(of, data, trace))

    return write


def _mapped(field: Field, value: _Value) -> _Writer:
    def write(data: Mapping[str, Any], out: bytearray, trace: _Trace) -> None:
        given = data.get(field.member)
        if given is None:
            return
        trace.path.append(field.member)
        for name, each in sorted(_object(given).items(), key=_name):
            trace.path.append(f"[{name}]")
            out += bytes_field(field.number, bytes_field(1, _text(name)) + bytes_field(2, value(each, trace)))
            trace.path.pop()
        trace.path.pop()

    return write


def _name(entry: tuple[str, Any]) -> str:
    return entry[0]


def _value_of(type_: str) -> tuple[_Value, bool]:
    """What turns a member's value into bytes, and whether their length stands before them."""
    of = message(type_)
    if of is not None:
        return lambda given, trace: _message(of, given, trace), True
    if type_ in _BITS:
        bits = _BITS[type_]
        return lambda given, _: _integer(given, bits), False
    scalar = _SCALARS[type_]
    return lambda given, _: scalar(given), type_ != "bool"


# -- values ----------------------------------------------------------------------------------------------------


def _object(given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise _BadValueError(f"an object is expected, not {_shown(given)}")
    return given


def _text(given: Any) -> bytes:
    if given is None:
        return b""
    if type(given) is not str:
        raise _BadValueError(f"a text is expected, not {_shown(given)}")
    try:
        return given.encode()
    except UnicodeEncodeError:
        raise _BadValueError("not UTF-8") from None


def _bool(given: Any) -> bytes:
    if given is not None and not isinstance(given, bool):
        raise _BadValueError(f"true or false is expected, not {_shown(given)}")
    return b"\1" if given else b"\0"


def _integer(given: Any, bits: int) -> bytes:
    if given is None:
        return b"\0"
    most = 1 << (bits - 1)
    if not isinstance(given, int) or isinstance(given, bool) or not -most <= given < most:
        raise _BadValueError(f"a whole number of {bits} bits is expected, not {_shown(given)}")
    return varint(given)


def _quantity(given: Any) -> bytes:
    try:
        amount: Quantity = Quantity(given) if isinstance(given, NumberText) else dec_hook(Quantity, given)
    except ValueError as error:
        raise _BadValueError(str(error)) from None
    return bytes_field(1, str(amount).encode())


def _time(given: Any) -> bytes:
    """Whole seconds; the nanoseconds are written, and zero."""
    if given is None:
        return b""
    if type(given) is not str:
        raise _BadValueError(f"a time is expected, not {_shown(given)}")
    try:
        seconds = nanoseconds(given) // _SECOND
    except ValueError as error:
        raise _BadValueError(str(error)) from None
    return b"" if seconds == _ZERO_TIME else key(1, VARINT) + varint(seconds) + key(2, VARINT) + b"\0"


def _int_or_text(given: Any) -> bytes:
    is_text = type(given) is str
    number = _integer(None if is_text else given, 32)
    text = _text(given if is_text else None)
    return key(1, VARINT) + (b"\1" if is_text else b"\0") + key(2, VARINT) + number + bytes_field(3, text)


_SCALARS: Final = {"text": _text, "bool": _bool, "Quantity": _quantity, "Time": _time, "IntOrString": _int_or_text}


def _shown(given: Any) -> str:
    """The kind of a value; not the value, which may be a secret."""
    if given is None or isinstance(given, bool):
        return "true or false" if isinstance(given, bool) else "null"
    if isinstance(given, (int, float, NumberText)):
        return "a number"
    kinds = ((str, "a text"), (Mapping, "an object"), (list, "a list"))
    return next((name for kind, name in kinds if isinstance(given, kind)), type(given).__name__)
