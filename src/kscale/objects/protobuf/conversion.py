"""Convert objects between their JSON form and their protobuf form, byte for byte as Go's API types do.

The protobuf runtime (extra ``[grpc]``) writes the bytes. :mod:`~kscale.objects.protobuf.messages` maps members to
fields and has the fields that Go writes even if they are absent. Map entries are in the order of their keys.
``managedFields`` are not sent, as the autoscaler's informers remove them from all objects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, NamedTuple

from kscale.errors import InputError, Problem
from kscale.imports import library
from kscale.objects.decode import NumberText, dec_hook
from kscale.objects.protobuf.messages import (
    ENTRY_KEY,
    ENTRY_VALUE,
    INLINE,
    LIST,
    MAP,
    OWN_MEMBERS,
    VALUE,
    Field,
    Message,
    kubernetes_message,
    message,
)
from kscale.objects.quantity import Quantity
from kscale.objects.times import nanoseconds

__all__ = ["Decoded", "Encoded", "decode", "encode"]


_FORM: Final = "the protobuf form of objects"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ZERO_TIME: Final = "0001-01-01T00:00:00Z"
"""Go's zero time: means that no time is set, except in a field that is a pointer."""
_TEXT: Final = 1
"""Value of ``IntOrString.type`` for a text; 0 means an integer."""


class Decoded(NamedTuple):
    """The object as plain data, and the number of unknown fields by path (``spec.containers field 99``).

    Unknown fields may belong to a later release.
    """

    data: dict[str, Any]
    unknown: Counter[str]


def decode(name: str, data: bytes) -> Decoded:
    """Decode an API object from protobuf.

    Zeros that Go always writes are left out, as in JSON, so :func:`encode` returns the same bytes again.

    Parameters
    ----------
    name : str
        Name of the message, ``Pod`` or ``Node`` or a part of one.
    data : bytes

    Returns
    -------
    Decoded
        The JSON form as plain data, and the number of unknown fields by path.

    Raises
    ------
    ValueError
        If there is no such message.
    InputError
        If the bytes are not such a message; names the field if a field is wrong.
    MissingExtraError
        If the protobuf runtime is not installed.
    """
    message_type = message(name)
    if message_type is None:
        raise ValueError(f"there is no message {name}")
    decode_error = library("google.protobuf.message", _FORM).DecodeError
    try:
        parsed = kubernetes_message(name).FromString(data)
    except decode_error:
        raise InputError(f"{len(data):,} bytes that are no {name}") from None
    trace = _Trace()
    try:
        return Decoded(_decode_message(message_type, parsed, trace), trace.unknown)
    except ValueError as error:
        raise InputError(Problem(str(error), field=".".join(trace.path))) from None


class _Trace:
    """Progress of decoding a message: ``path`` of the current field, for errors, and the ``unknown`` fields so far."""

    __slots__ = ("path", "unknown", "unknown_fields")

    def __init__(self) -> None:
        self.path: list[str] = []
        self.unknown: Counter[str] = Counter()
        self.unknown_fields = library("google.protobuf.unknown_fields", _FORM).UnknownFieldSet


_Value = Callable[[Any, _Trace], Any]


def _decode_message(message_type: Message, parsed: Any, trace: _Trace) -> dict[str, Any]:
    """Convert a parsed message to its JSON form, as plain data. Counts unknown fields in ``trace``.

    Raises ValueError if a value cannot be converted; ``trace.path`` is then the path of its field.
    """
    for field in trace.unknown_fields(parsed):
        trace.unknown[f"{'.'.join(trace.path)} field {field.field_number}".lstrip()] += 1
    data: dict[str, Any] = {}
    for field, value in _build_readers(message_type):
        if field.member == OWN_MEMBERS:
            data |= value(getattr(parsed, INLINE), trace)
            continue
        trace.path.append(field.member)
        read = _get_field(field, value, parsed, trace)
        trace.path.pop()
        if read is not None:
            data[field.member] = read
    return data


def _get_field(field: Field, decode_value: _Value, parsed: Any, trace: _Trace) -> Any:
    """Return a field of the message ``parsed`` in JSON form; None if the JSON form omits it.

    ``decode_value``: converts a single value of the field.
    """
    raw = getattr(parsed, field.member)
    if field.form == LIST:
        return [decode_value(each, trace) for each in raw] or None
    if field.form == MAP:
        return {
            _decode_text(getattr(each, ENTRY_KEY)): decode_value(getattr(each, ENTRY_VALUE), trace) for each in raw
        } or None
    if not parsed.HasField(field.member):
        return None
    read = decode_value(raw, trace)
    none = {"IntOrString": None, "Time": read == _ZERO_TIME}.get(field.type, not read)
    return None if none and field.form == VALUE else read


@cache
def _build_readers(message_type: Message) -> tuple[tuple[Field, _Value], ...]:
    """Return each field of a message type, with the function that converts its values to their JSON form."""
    return tuple((field, _get_decoder(field.type)) for field in message_type.fields)


def _get_decoder(type_: str) -> _Value:
    """Return the function that converts a parsed value of a type to its JSON form."""
    message_type = message(type_)
    if message_type is not None:
        return lambda parsed, trace: _decode_message(message_type, parsed, trace)
    special = _SPECIAL.get(type_)
    return (lambda parsed, _: parsed) if special is None else (lambda parsed, _: special(parsed))


def _decode_text(value: Any) -> str:
    """Return a parsed text. Raises ValueError if its bytes were not valid UTF-8."""
    if not isinstance(value, str):  # the runtime returns bytes that are not UTF-8
        raise ValueError("not UTF-8")
    return value


def _decode_quantity(parsed: Any) -> str:
    """Return the canonical text of a parsed quantity. Raises ValueError if it is not a quantity."""
    return str(Quantity(_decode_text(parsed.string)))


def _decode_time(parsed: Any) -> str:
    """Return a parsed time in RFC 3339, in whole seconds. Raises ValueError if it is out of range."""
    if not parsed.HasField("seconds"):
        return _ZERO_TIME
    try:
        moment = _EPOCH + timedelta(seconds=parsed.seconds)
    except OverflowError:
        raise ValueError(f"{parsed.seconds} seconds since 1970 are no time") from None
    return moment.isoformat().removesuffix("+00:00") + "Z"


def _decode_int_or_text(parsed: Any) -> int | str:
    """Return the text or the integer of a parsed IntOrString. Raises ValueError for a text that is not UTF-8."""
    chosen: int | str = _decode_text(parsed.strVal) if parsed.type == _TEXT else parsed.intVal
    return chosen


_SPECIAL: Final[dict[str, Callable[[Any], Any]]] = {
    "text": _decode_text,
    "Quantity": _decode_quantity,
    "Time": _decode_time,
    "IntOrString": _decode_int_or_text,
}


_BITS: Final = {"int32": 32, "int64": 64}
_SECOND: Final = 10**9
_GO_ZERO_SECONDS: Final = -62_135_596_800  # 0001-01-01T00:00:00Z: a time that Go takes for none


class Encoded(NamedTuple):
    """The protobuf form of an object, and the number of unknown members by path (``spec.containers.foo``)."""

    data: bytes
    unknown: Counter[str]


def encode(name: str, data: Mapping[str, Any]) -> Encoded:
    """Encode an API object as protobuf.

    Parameters
    ----------
    name : str
        Name of the message, ``Pod`` or ``Node`` or a part of one.
    data : mapping
        The JSON form as plain data (:func:`kscale.objects.decode.decode_plain` or
        :func:`kscale.objects.decode.to_dict`).

    Returns
    -------
    Encoded
        The bytes, and the number of unknown members by path.

    Raises
    ------
    ValueError
        If there is no such message.
    InputError
        If a field cannot be encoded; names the field.
    MissingExtraError
        If the protobuf runtime is not installed.
    """
    message_type = message(name)
    if message_type is None:
        raise ValueError(f"there is no message {name}")
    trace = _EncodingTrace()
    try:
        values = _encode_message(message_type, data, trace)
    except _BadValueError as error:
        field = ".".join(trace.path).replace(".[", "[")
        raise InputError(Problem(str(error), field=field)) from None
    return Encoded(kubernetes_message(name)(**values).SerializeToString(), trace.unknown)


class _BadValueError(ValueError):
    pass


class _EncodingTrace:
    """Progress of encoding an object: ``path`` of the current member, for errors, and ``unknown`` members so far."""

    __slots__ = ("path", "unknown")

    def __init__(self) -> None:
        self.path: list[str] = []
        self.unknown: Counter[str] = Counter()


_Values = dict[str, Any]
"""Keyword arguments from which the protobuf runtime builds a message: values by field. Nested messages are dicts."""
_Encoder = Callable[[Any, _EncodingTrace], Any]


def _encode_message(message_type: Message, data: Any, trace: _EncodingTrace) -> _Values:
    """Return the arguments with which the protobuf runtime builds a message from its JSON form ``data``.

    ``data`` None: a message without members. Counts members that the message type does not have in ``trace``. Raises
    _BadValueError if a value cannot be encoded; ``trace.path`` is then its path.
    """
    data = {} if data is None else _check_object(data)
    for member in data.keys() - message_type.members:
        trace.unknown[".".join((*trace.path, str(member))).replace(".[", "[")] += 1
    return _encode_fields(message_type, data, trace)


def _encode_fields(message_type: Message, data: Mapping[str, Any], trace: _EncodingTrace) -> _Values:
    """Return the arguments for all fields of ``message_type`` (:func:`_encode_message`).

    Other members of ``data`` are ignored: for an embedded message, ``data`` is the object that embeds it. Raises
    _BadValueError, with the path in ``trace.path``, if a value cannot be encoded.
    """
    values: _Values = {}
    for field, encode_value, absent in _build_encoders(message_type):
        member, embedded = field.member, message(field.type) if field.member == OWN_MEMBERS else None
        if embedded is not None:
            values[INLINE] = _encode_fields(embedded, data, trace)
            continue
        item = data.get(member)
        if item is None:
            if absent is not None:
                values[member] = absent
            continue
        trace.path.append(member)
        if field.form == LIST:
            values[member] = _encode_list(item, encode_value, trace)
        elif field.form == MAP:
            values[member] = _encode_map(item, encode_value, trace)
        else:
            values[member] = encode_value(item, trace)
        trace.path.pop()
    return values


@cache
def _build_encoders(message_type: Message) -> tuple[tuple[Field, _Encoder, Any], ...]:
    """Return the result of :func:`_build_encoder` for each field of a message type."""
    return tuple(map(_build_encoder, message_type.fields))


def _build_encoder(field: Field) -> tuple[Field, _Encoder, Any]:
    """Return (field, function that encodes its values, value to write if the member is absent; None: write nothing)."""
    encode_value = _encode_value(field.type)
    is_always_written = field.form == VALUE and field.member != OWN_MEMBERS
    return field, encode_value, encode_value(None, _EncodingTrace()) if is_always_written else None


def _encode_list(items: Any, encode_value: _Encoder, trace: _EncodingTrace) -> list[Any]:
    """Encode a list. Raises _BadValueError if an item cannot be encoded, with its position in ``trace.path``."""
    if not isinstance(items, (list, tuple)):
        raise _BadValueError(f"a list is expected, not {_describe_kind(items)}")
    depth = len(trace.path)
    written: list[Any] = []
    try:
        for each in items:
            written.append(encode_value(each, trace))  # noqa: PERF401  # the length is the index of the item that failed
    except _BadValueError:
        trace.path.insert(depth, f"[{len(written)}]")
        raise
    return written


def _encode_map(mapping: Any, encode_value: _Encoder, trace: _EncodingTrace) -> list[_Values]:
    """Encode a map as its entries, sorted by name. Raises _BadValueError, with the path in ``trace.path``."""
    entries = []
    for name, each in sorted(_check_object(mapping).items(), key=lambda entry: _encode_text(entry[0])):
        trace.path.append(f"[{name}]")
        entries.append({ENTRY_KEY: _encode_text(name), ENTRY_VALUE: encode_value(each, trace)})
        trace.path.pop()
    return entries


def _encode_value(type_: str) -> _Encoder:
    """Return the function that encodes values of this type for the protobuf runtime."""
    message_type = message(type_)
    if message_type is not None:
        return lambda value, trace: _encode_message(message_type, value, trace)
    if type_ in _BITS:
        bits = _BITS[type_]
        return lambda value, _: _encode_integer(value, bits)
    scalar = _SCALARS[type_]
    return lambda value, _: scalar(value)


# -- values: None stands for an absent member, which Go writes as the zero value ------------------------------


def _check_object(value: Any) -> Mapping[str, Any]:
    """Return the value if it is an object. Raises _BadValueError otherwise."""
    if not isinstance(value, Mapping):
        raise _BadValueError(f"an object is expected, not {_describe_kind(value)}")
    return value


def _encode_text(value: Any) -> str:
    """Return a text; empty for None.

    Raises _BadValueError if ``value`` is not a str, or cannot be encoded as UTF-8 because it has a lone surrogate.
    """
    if value is None:
        return ""
    if type(value) is not str:
        raise _BadValueError(f"a text is expected, not {_describe_kind(value)}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _BadValueError("not UTF-8") from None
    return value


def _encode_bool(value: Any) -> bool:
    """Return a boolean; False for None. Raises _BadValueError if ``value`` is not a bool."""
    if value is not None and not isinstance(value, bool):
        raise _BadValueError(f"true or false is expected, not {_describe_kind(value)}")
    return bool(value)


def _encode_integer(value: Any, bits: int) -> int:
    """Return an integer; 0 for None. Raises _BadValueError if ``value`` is not an int of ``bits`` bits (signed)."""
    if value is None:
        return 0
    limit = 1 << (bits - 1)
    if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
        raise _BadValueError(f"a whole number of {bits} bits is expected, not {_describe_kind(value)}")
    return value


def _encode_quantity(value: Any) -> _Values:
    """Encode a quantity by its canonical text. Raises _BadValueError if ``value`` is not a quantity."""
    try:
        amount: Quantity = Quantity(value) if isinstance(value, NumberText) else dec_hook(Quantity, value)
    except ValueError as error:
        raise _BadValueError(str(error)) from None
    return {"string": str(amount)}


def _encode_time(value: Any) -> _Values:
    """Encode a time in whole seconds, with nanoseconds zero; empty for None and Go's zero time.

    Raises _BadValueError if ``value`` is not an RFC 3339 time.
    """
    if value is None:
        return {}
    if type(value) is not str:
        raise _BadValueError(f"a time is expected, not {_describe_kind(value)}")
    try:
        seconds = nanoseconds(value) // _SECOND
    except ValueError as error:
        raise _BadValueError(str(error)) from None
    return {} if seconds == _GO_ZERO_SECONDS else {"seconds": seconds, "nanos": 0}


def _encode_int_or_text(value: Any) -> _Values:
    """Encode a 32-bit integer or a string (IntOrString). None is 0. Raises _BadValueError for any other value."""
    is_text = type(value) is str
    number = _encode_integer(None if is_text else value, 32)
    return {"type": int(is_text), "intVal": number, "strVal": _encode_text(value if is_text else None)}


_SCALARS: Final[dict[str, Callable[[Any], Any]]] = {
    "text": _encode_text,
    "bool": _encode_bool,
    "Quantity": _encode_quantity,
    "Time": _encode_time,
    "IntOrString": _encode_int_or_text,
}


def _describe_kind(value: Any) -> str:
    """Return the JSON type of a value for error messages, without the value itself, which may be a secret."""
    if value is None or isinstance(value, bool):
        return "true or false" if isinstance(value, bool) else "null"
    if isinstance(value, (int, float, NumberText)):
        return "a number"
    kinds = ((str, "a text"), (Mapping, "an object"), (list, "a list"))
    return next((name for kind, name in kinds if isinstance(value, kind)), type(value).__name__)
