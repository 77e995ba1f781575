"""CEL selectors over a device (upstream: ``k8s.io/dynamic-resource-allocation/cel``), run by cel-python."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from kscale.objects.resource import Device, DeviceAttribute

if TYPE_CHECKING:
    from kscale.scheduling.devices.cel_library import CelLibrary

__all__ = ["TOO_DEEP", "SelectorError", "attribute_value", "selects"]

_NO_KEY = re.compile(r"no such member in mapping: '(.*)'")
_HINT = (
    "consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional "
    "fields"
)
_OVERFLOW = "return error for overflow"
"""What cel-python says of any ValueError."""
TOO_DEEP = "compilation failed: the expression is nested too deep"


class SelectorError(ValueError):
    """An expression that does not compile, fails on a device or gives no truth value. The text is upstream's;
    ``compiles``: it is the device that it fails on."""

    def __init__(self, text: str, *, compiles: bool = False) -> None:
        super().__init__(text)
        self.compiles = compiles


def attribute_value(attribute: DeviceAttribute) -> tuple[str, int | bool | str] | None:
    """(type, value) of an attribute; None if it has none."""
    if attribute.bool_ is not None:
        return "bool", attribute.bool_
    if attribute.int_ is not None:
        return "int", attribute.int_
    if attribute.string is not None:
        return "string", attribute.string
    return None if attribute.version is None else ("version", attribute.version)


def selects(expression: str, driver: str, device: Device) -> bool:
    """Whether the expression is true of a device of the driver.

    Raises SelectorError, and MissingExtraError without the library.
    """
    library = _library()
    program = library.program(expression)
    try:
        verdict = program.evaluate({"device": library.view(driver, device)})
    except RecursionError:
        raise SelectorError(TOO_DEEP) from None
    except IndexError:  # cel-python cannot write what it found where a truth value was needed
        raise SelectorError("no such overload", compiles=True) from None
    except (library.error, ValueError) as problem:
        text = str(problem.args[0]) if problem.args else str(problem)
        if text == _OVERFLOW and problem.__cause__ is not None:
            text = str(problem.__cause__)
        missing = _NO_KEY.fullmatch(text)
        text = f"no such key: {missing[1]}. {_HINT}" if missing else text.split(" (in activation", 1)[0]
        raise SelectorError(text, compiles=True) from None
    if not isinstance(verdict, library.bool_type):
        raise SelectorError("type conversion error: the expression is not a truth value", compiles=True)
    return bool(verdict)


@cache
def _library() -> CelLibrary:
    from kscale.scheduling.devices.cel_library import CelLibrary  # few clusters have devices

    return CelLibrary()
