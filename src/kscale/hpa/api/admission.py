"""Admit a HorizontalPodAutoscaler as the API server does: decode, default, convert, validate.

Also coerces structs, plain data and client objects to HPAs, scales and pods. Upstream:
``pkg/registry/autoscaling/horizontalpodautoscaler/strategy.go``; the parts name their own files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from kscale.errors import InputError
from kscale.hpa.api.v1_conversion import from_v1, strip_v1_annotations
from kscale.hpa.api.validation import apply_defaults, validate, validate_status
from kscale.hpa.options import DEFAULT_OPTIONS, HPAOptions
from kscale.imports import lazy_pattern
from kscale.objects.api.autoscaling import (
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerStatus,
    HorizontalPodAutoscalerV1,
    Scale,
)
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import KubeObject
from kscale.objects.argument_types import typed, unchecked
from kscale.objects.decode import decoder, from_dict, to_dict
from kscale.objects.kinds import DEFAULT_NAMESPACE, check_kind, kind_of
from kscale.objects.names import FieldError
from kscale.objects.quantity import Quantity, QuantityError
from kscale.objects.scale import ScaleError, read_scale
from kscale.snapshot.text.sources import is_client_object, to_plain

__all__ = [
    "Admission",
    "DecodeError",
    "admit",
    "admit_decoded",
    "coerce_hpa",
    "coerce_pod",
    "coerce_scale",
    "decode_hpa",
    "decode_hpas_fast",
    "to_plain_data",
    "validate_stored",
]


_apply_defaults = unchecked(apply_defaults)
_validate = unchecked(validate)

K = TypeVar("K", bound=KubeObject)


def to_plain_data(value: object, what: str = "object") -> Mapping[str, Any]:
    """Convert a struct, a mapping or a client library's object to plain data; a mapping is returned as it is.

    Raises :class:`~kscale.errors.InputError` for a value of another type; ``what`` names the object in the message.
    """
    if isinstance(value, Mapping):
        return value
    if isinstance(value, KubeObject):
        _, kind = kind_of(type(value)) or ("", "")
        return {"apiVersion": value.api_version, "kind": value.kind or kind, **to_dict(value)}
    if is_client_object(value):
        return to_plain(value)
    raise InputError(f"a {what} is a struct, a mapping or a client's object, not {type(value).__name__}")


def coerce_hpa(value: object) -> HorizontalPodAutoscaler:
    """Convert an object of autoscaling/v1 or v2 to a v2 HPA with the API server's defaults.

    A v2 struct is returned as it is: it is expected to have the defaults. Other objects are not validated.
    Raises :class:`~kscale.errors.InputError` for an object that cannot be read.
    """
    if isinstance(value, HorizontalPodAutoscaler):
        return value
    if isinstance(value, HorizontalPodAutoscalerV1):
        return apply_defaults(from_v1(value))
    data = to_plain_data(value, "HorizontalPodAutoscaler")
    version = str(data.get("apiVersion") or "autoscaling/v2")
    if version == "autoscaling/v1":
        return apply_defaults(from_v1(_decode_named(data, HorizontalPodAutoscalerV1)))
    if version != "autoscaling/v2":
        raise InputError(f"autoscaling/v1 and v2 are read, not {version}")
    return apply_defaults(_decode_named(data, HorizontalPodAutoscaler))


def coerce_scale(value: object) -> Scale:
    """Convert an object to a :class:`Scale`; plain data without ``apiVersion`` counts as autoscaling/v1.

    Raises :class:`~kscale.errors.InputError` for an object that is not a scale.
    """
    if isinstance(value, Scale):
        return value
    data = {"apiVersion": "autoscaling/v1", "kind": "Scale", **to_plain_data(value, "Scale")}
    try:
        return read_scale(data)
    except ScaleError as error:
        raise InputError(f"no Scale: {error}") from None


def coerce_pod(value: object) -> Pod:
    """Convert plain data or a client library's object to a pod; a :class:`Pod` is returned as it is.

    Raises :class:`~kscale.errors.InputError` for an object that cannot be read as a pod.
    """
    return value if isinstance(value, Pod) else _decode_named(to_plain_data(value, "Pod"), Pod)


def _decode_named(data: Mapping[str, Any], type_: type[K]) -> K:
    """Decode plain data as an object of ``type_``. Raises InputError, which names the object if it has a name."""
    try:
        check_kind(data, type_)
        return from_dict(data, type_)
    except InputError as error:
        metadata = data.get("metadata")
        if not isinstance(metadata, Mapping) or not metadata.get("name"):
            raise
        kind = data.get("kind") or type_.__name__
        where = f"{kind} {metadata.get('namespace') or DEFAULT_NAMESPACE}/{metadata['name']}"
        raise InputError([replace(each, object=where) for each in error.problems]) from None


_INT64_FIELDS: Final = frozenset({"generation", "observedGeneration", "deletionGracePeriodSeconds"})
"""Integer fields of 64 bits; all others have 32."""

_NUMBER_SHAPES: Final = bytes.maketrans(b"123456789[,Ee", b"000000000::..")
_UNUSUAL_NUMBER: Final = lazy_pattern(rb":0(?:0{9}|0*\.)")
"""Numbers that the fast decoder does not accept: long ones, and those that are no integers.

The pattern is searched in a text without blanks and signs, translated by ``_NUMBER_SHAPES``: each digit is 0, an
exponent is a point, and what comes before a number is a colon. It begins with fixed bytes, so that the search is fast.
"""


class DecodeError(ValueError):
    """An object that the API server cannot decode, with its text.

    ``field``: path of the wrong value if the text does not contain it, without indexes of lists; otherwise empty.
    """

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.field = field


class Admission(msgspec.Struct, frozen=True):
    """The API server's response to a write.

    - ``hpa``: the v2 object that the server stores; None if it rejects the write.
    - ``decode_error``, ``errors``: why it rejects the write; errors in the server's order.
    - ``defaulted``: the v2 object as it was sent, with defaults; None if the server rejects the write. ``hpa`` differs
      in what a writer cannot set: the status of a new object, the spec in a write to the status, the generation.
    """

    hpa: HorizontalPodAutoscaler | None = None
    decode_error: str | None = None
    errors: tuple[FieldError, ...] = ()
    defaulted: HorizontalPodAutoscaler | None = None


@typed
def admit(
    data: object,
    old: object = None,
    *,
    subresource: str = "",
    options: HPAOptions | None = None,
) -> Admission:
    """Admit an object (v1 or v2) about to be created, or updated from ``old``, as the API server does.

    Parameters
    ----------
    data, old : object
        Plain data, structs or objects of a client library. ``old`` is None for a creation.
    subresource : str
        ``status`` for a write to the status, else empty.
    options : HPAOptions, optional
        Feature gates of the server.

    Returns
    -------
    Admission
        The admitted object, or the errors with which a server would reject it.

    Raises
    ------
    InputError
        If ``data`` or ``old`` is not an object at all.
    """
    try:
        hpa = decode_hpa(to_plain_data(data, "HorizontalPodAutoscaler"))
        before = None if old is None else decode_hpa(to_plain_data(old, "HorizontalPodAutoscaler"))
    except DecodeError as error:
        return Admission(decode_error=str(error))
    return admit_decoded(hpa, before, subresource=subresource, options=options)


def admit_decoded(
    hpa: HorizontalPodAutoscaler,
    before: HorizontalPodAutoscaler | None = None,
    *,
    subresource: str = "",
    options: HPAOptions | None = None,
) -> Admission:
    """Admit objects from :func:`decode_hpa` as :func:`admit` does. ``before``: the object before an update."""
    options = options or DEFAULT_OPTIONS
    hpa = apply_defaults(hpa)
    if before is None and subresource != "status":
        stored = _prepare_for_create(hpa, options)
        errors = validate(stored, options=options)
    else:
        old = hpa if before is None else apply_defaults(before)
        stored = _prepare_for_update(hpa, old, subresource, options)
        errors = validate_status(stored, old) if subresource == "status" else validate(stored, old, options=options)
    return Admission(errors=tuple(errors)) if errors else Admission(hpa=stored, defaulted=hpa)


def validate_stored(hpa: HorizontalPodAutoscaler, *, is_stored: bool) -> Admission:
    """Return the admission of an object from :func:`decode_hpa`: the object, unchanged, or its validation errors.

    ``is_stored``: a server has stored it, so that it may break rules that only a new object must keep.
    """
    errors = _validate(hpa, hpa if is_stored else None)
    return Admission(errors=tuple(errors)) if errors else Admission(hpa=hpa, defaulted=hpa)


def _prepare_for_create(hpa: HorizontalPodAutoscaler, options: HPAOptions) -> HorizontalPodAutoscaler:
    """Reset the status of a new object, and set its generation to 1 (``PrepareForCreate``).

    The feature gates decide whether there is a generation, and whether tolerances are removed.
    """
    metadata = hpa.metadata
    if options.gates["HPAGeneration"]:
        metadata = msgspec.structs.replace(metadata, generation=1)
    hpa = msgspec.structs.replace(hpa, metadata=metadata, status=HorizontalPodAutoscalerStatus())
    return hpa if options.gates["HPAConfigurableTolerance"] else _remove_tolerance(hpa)


def _prepare_for_update(
    hpa: HorizontalPodAutoscaler, old: HorizontalPodAutoscaler, subresource: str, options: HPAOptions
) -> HorizontalPodAutoscaler:
    """Restore the fields of ``old`` that a writer cannot change (``BeforeUpdate``, ``PrepareForUpdate``).

    A changed spec raises the generation. The feature gates decide whether there is a generation, and whether new
    tolerances are removed.
    """
    replace = msgspec.structs.replace
    generation = old.metadata.generation
    if subresource == "status":
        hpa = replace(hpa, spec=old.spec)
    else:
        hpa = replace(hpa, status=old.status)
        if not (options.gates["HPAConfigurableTolerance"] or _has_tolerance(old)):
            hpa = _remove_tolerance(hpa)
        if options.gates["HPAGeneration"] and not _is_equal(hpa.spec, old.spec):
            generation = (generation or 0) + 1
    metadata = replace(
        hpa.metadata,
        generation=generation,
        uid=hpa.metadata.uid or old.metadata.uid,
        creation_timestamp=old.metadata.creation_timestamp or hpa.metadata.creation_timestamp,
        deletion_timestamp=old.metadata.deletion_timestamp or hpa.metadata.deletion_timestamp,
    )
    return replace(hpa, metadata=metadata)


def _is_equal(a: Any, b: Any) -> bool:
    """Check whether values are equal as ``apiequality.Semantic.DeepEqual`` compares them.

    An absent list or map equals an empty one, and quantities compare by value.
    """
    if not a and not b and all(each is None or isinstance(each, (list, dict)) for each in (a, b)):
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, msgspec.Struct):
        return all(_is_equal(getattr(a, name), getattr(b, name)) for name in a.__struct_fields__)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_is_equal, a, b))
    return bool(a == b)


def _has_tolerance(hpa: HorizontalPodAutoscaler | None) -> bool:
    """Check whether the behavior of an HPA sets a tolerance in either direction; False for None."""
    behavior = None if hpa is None else hpa.spec.behavior
    rules = () if behavior is None else (behavior.scale_up, behavior.scale_down)
    return any(each is not None and each.tolerance is not None for each in rules)


def _remove_tolerance(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Return the object without tolerances in its behavior."""
    if not _has_tolerance(hpa) or hpa.spec.behavior is None:
        return hpa
    up, down = (
        None if each is None else msgspec.structs.replace(each, tolerance=None)
        for each in (hpa.spec.behavior.scale_up, hpa.spec.behavior.scale_down)
    )
    behavior = msgspec.structs.replace(hpa.spec.behavior, scale_up=up, scale_down=down)
    return msgspec.structs.replace(hpa, spec=msgspec.structs.replace(hpa.spec, behavior=behavior))


def decode_hpa(data: Mapping[str, Any]) -> HorizontalPodAutoscaler:
    """Decode plain data to a v2 object with the defaults of its own version.

    Raises :class:`DecodeError` with the API server's text if the data cannot be decoded.
    """
    version, kind = str(data.get("apiVersion", "")), str(data.get("kind", ""))
    types = {"autoscaling/v1": HorizontalPodAutoscalerV1, "autoscaling/v2": HorizontalPodAutoscaler}
    if version not in types or kind != "HorizontalPodAutoscaler":
        raise DecodeError(f'no kind "{kind}" is registered for version "{version}"')
    type_ = types[version]
    shape = _inspect_type(type_)
    _check_value(data, shape, "", (), version.rpartition("/")[2])
    data = _replace_nulls(data, shape)
    if type_ is HorizontalPodAutoscalerV1:
        return _apply_defaults(from_v1(from_dict(data, HorizontalPodAutoscalerV1)))
    return _complete_decoded(from_dict(data, HorizontalPodAutoscaler))


def decode_hpas_fast(texts: Sequence[bytes]) -> list[HorizontalPodAutoscaler | None]:
    """Decode JSON texts of v2 objects as :func:`decode_hpa` does; None for each text that it must decode itself.

    These are texts of other objects, invalid texts, and texts with half surrogates, nulls or numbers that Go may not
    accept as integers. All texts are decoded together, or one by one if any of them is unusual.
    """
    hpas = _decode_usual(b"".join((b"[", b",".join(texts), b"]")))
    if hpas is None or len(hpas) != len(texts):
        return [None] if len(texts) == 1 else [each for text in texts for each in decode_hpas_fast([text])]
    return [
        _complete_decoded(hpa)
        if hpa.api_version == "autoscaling/v2" and hpa.kind == "HorizontalPodAutoscaler"
        else None
        for hpa in hpas
    ]


def _decode_usual(text: bytes) -> list[HorizontalPodAutoscaler] | None:
    """Decode a JSON list of objects; None if its text has something unusual or cannot be decoded."""
    if b"null" in text or (b"\\" in text and (b"\\ud" in text or b"\\uD" in text)):
        return None
    if _UNUSUAL_NUMBER.search(text.translate(_NUMBER_SHAPES, b" \t\r\n-")):
        return None
    try:
        if not text.isascii():
            text.decode()  # fields that the struct lacks are skipped, whatever they contain
        hpas: list[HorizontalPodAutoscaler] = decoder(list[HorizontalPodAutoscaler]).decode(text)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return None
    return hpas


def _complete_decoded(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Return the HPA with defaults and without the annotations that only v1 objects have. ``hpa`` is not changed."""
    hpa = _apply_defaults(hpa)
    if hpa.metadata.annotations is None:
        return hpa
    return msgspec.structs.replace(hpa, metadata=strip_v1_annotations(hpa.metadata))


@cache
def _inspect_type(type_: type[KubeObject]) -> msgspec.inspect.Type:
    """Return the type's description, cached as it takes milliseconds to build."""
    return msgspec.inspect.type_info(type_)


def _non_null_type(type_: msgspec.inspect.Type) -> msgspec.inspect.Type:
    """Return the first type of a union that is not None; other types as they are."""
    if not isinstance(type_, msgspec.inspect.UnionType):
        return type_
    return next(each for each in type_.types if not isinstance(each, msgspec.inspect.NoneType))


@cache
def _json_field_types(struct: type) -> dict[str, msgspec.inspect.Type]:
    """Return the types of a struct's fields by their JSON names."""
    shape = msgspec.inspect.type_info(struct)
    assert isinstance(shape, msgspec.inspect.StructType)
    return {field.encode_name: _non_null_type(field.type) for field in shape.fields}


def _check_value(value: Any, type_: msgspec.inspect.Type, struct: str, path: tuple[str, ...], package: str) -> None:
    """Raise ``DecodeError`` for the first value, in document order, that Go's decoder would reject.

    ``struct``, ``path``: the struct and the field of the value, for the text; ``package``: Go's package of named types.
    """
    if value is None:
        return
    type_ = _non_null_type(type_)
    if isinstance(type_, msgspec.inspect.CustomType):
        _check_quantity(value, ".".join(path))
        return
    bits = 64 if path and path[-1] in _INT64_FIELDS else 32
    if not _is_value_of(type_, value, bits):
        wanted = _go_type_name(type_, package, bits)
        place = f"Go struct field {struct}.{'.'.join(path)}" if path else "Go value"
        raise DecodeError(f"json: cannot unmarshal {_format_go_value(value)} into {place} of type {wanted}")
    if isinstance(type_, msgspec.inspect.StructType):
        fields = _json_field_types(type_.cls)
        for key, each in value.items():
            if key in fields:
                _check_value(each, fields[key], _go_struct_name(type_), (*path, key), package)
    elif isinstance(type_, msgspec.inspect.ListType):
        for each in value:
            _check_value(each, type_.item_type, struct, path, package)
    elif isinstance(type_, msgspec.inspect.DictType):
        for each in value.values():
            _check_value(each, type_.value_type, struct, path, package)


def _replace_nulls(value: Any, type_: msgspec.inspect.Type) -> Any:
    """Return the value with nulls in lists and maps replaced by the zero value of their type, as Go does."""
    if value is None or isinstance(value, str):
        return value
    type_ = _non_null_type(type_)
    if isinstance(type_, msgspec.inspect.ListType):
        return [
            _replace_nulls(_zero_value(type_.item_type) if each is None else each, type_.item_type) for each in value
        ]
    if isinstance(type_, msgspec.inspect.DictType):
        return {key: _zero_value(type_.value_type) if each is None else each for key, each in value.items()}
    if isinstance(type_, msgspec.inspect.StructType):
        fields = _json_field_types(type_.cls)
        return {key: _replace_nulls(each, fields[key]) if key in fields else each for key, each in value.items()}
    return value


def _zero_value(type_: msgspec.inspect.Type) -> Any:
    """Return the JSON value that Go's zero value of a type has."""
    if isinstance(type_, msgspec.inspect.StructType):
        return {}
    return "" if isinstance(type_, msgspec.inspect.StrType) else 0


def _check_quantity(value: Any, field: str) -> None:
    """Raise DecodeError if the value of a field is no quantity."""
    try:
        Quantity.from_json(msgspec.json.encode(value))
    except QuantityError as error:
        raise DecodeError(str(error), field) from None


def _go_struct_name(type_: msgspec.inspect.StructType) -> str:
    """Return the name of a struct in Go."""
    return type_.cls.__name__.removesuffix("V1")


def _is_value_of(type_: msgspec.inspect.Type, value: Any, bits: int) -> bool:
    """Check whether a value has the JSON type of ``type_``. ``bits``: size of an integer."""
    if isinstance(type_, msgspec.inspect.StrType):
        return isinstance(value, str)
    if isinstance(type_, msgspec.inspect.StructType):
        return isinstance(value, Mapping)
    if isinstance(type_, msgspec.inspect.IntType):
        limit = 1 << bits - 1
        return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
    if isinstance(type_, msgspec.inspect.ListType):
        return isinstance(value, list)
    if isinstance(type_, msgspec.inspect.DictType):
        return isinstance(value, dict)
    return not isinstance(type_, msgspec.inspect.BoolType) or isinstance(value, bool)


def _go_type_name(type_: msgspec.inspect.Type, package: str, bits: int = 32) -> str:
    """Return the type's name in Go. ``package``: Go's package of structs. ``bits``: size of an integer."""
    if isinstance(type_, msgspec.inspect.IntType):
        return f"int{bits}"
    if isinstance(type_, msgspec.inspect.StrType):
        return "string"
    if isinstance(type_, msgspec.inspect.BoolType):
        return "bool"
    if isinstance(type_, msgspec.inspect.ListType):
        return f"[]{_go_type_name(type_.item_type, package)}"
    if isinstance(type_, msgspec.inspect.DictType):
        return f"map[string]{_go_type_name(type_.value_type, package)}"
    if isinstance(type_, msgspec.inspect.StructType):
        return f"{package}.{_go_struct_name(type_)}"
    return ""


def _format_go_value(value: Any) -> str:
    """Return how Go's decoder names a JSON value in errors, such as ``string`` or ``number 1.5``."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return f"number {msgspec.json.encode(value).decode()}"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
