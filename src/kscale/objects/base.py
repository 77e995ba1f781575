"""The base of the API structs, and what decoding and encoding do with quantities."""

from __future__ import annotations

import math
from typing import Annotated, Any

import msgspec

from kscale.objects.quantity import Quantity, QuantityError, parse

__all__ = ["ApiStruct", "Int32", "Int64", "ResourceList", "dec_hook", "enc_hook", "shortened"]


class ApiStruct(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """A Kubernetes API type: snake_case attributes for camelCase JSON; unknown JSON fields are ignored.

    Optional values are ``None`` when absent or null. Lists default to empty; maps whose absence means something else
    than emptiness are ``None`` when absent.
    """


Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
"""An int32 of the API; a number beyond it is refused when it is decoded, as Go does."""

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""The same of an int64."""

ResourceList = dict[str, Quantity]
"""Resource name -> quantity."""


def dec_hook(type_: type, value: Any) -> Any:
    """msgspec's hook for the one type it does not know. A bare number is read by its shortest decimal text."""
    if type_ is not Quantity:
        raise NotImplementedError(f"{type_} cannot be decoded")
    if isinstance(value, str):
        try:
            return parse(value)
        except QuantityError:
            return _parse_between_spaces(value)
    if isinstance(value, Quantity):
        return value
    if value is None:
        return Quantity.zero()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return Quantity(repr(value))
        except QuantityError:
            pass
    # JSON has no text for these: it would show a null that the caller did not write.
    odd = isinstance(value, float) and not math.isfinite(value)
    raise ValueError(f"{value if odd else msgspec.json.encode(value).decode()} is not a quantity")


def _parse_between_spaces(text: str) -> Quantity:
    try:
        return parse(text.strip(" \t\n\v\f\r"))
    except QuantityError:
        raise ValueError(f'"{shortened(text)}" is not a quantity') from None


def shortened(text: str, most: int = 80) -> str:
    """A text for a message: the beginning of a long one, and how long it is."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


def enc_hook(value: Any) -> Any:
    """A quantity as its canonical text."""
    if isinstance(value, Quantity):
        return str(value)
    raise NotImplementedError(f"{type(value)} cannot be encoded")
