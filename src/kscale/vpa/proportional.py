"""Keeping the ratio of limit to request (upstream: ``pkg/utils/vpa/limit_and_request_scaling.go``)."""

from __future__ import annotations

from typing import Final

from kscale.objects.base import ResourceList
from kscale.objects.quantity import Quantity
from kscale.vpa.resources import CPU, MEMORY

__all__ = ["CAPPED", "DIVISION_BY_ZERO", "SUCCESS", "boundary_request", "limit_for", "proportional_limits", "scale"]

SUCCESS: Final = "success"
CAPPED: Final = "capped"
DIVISION_BY_ZERO: Final = "division by zero"
_MAX: Final = 2**63 - 1
_ZERO: Final = Quantity.zero()


def scale(
    resource: str, quantity: Quantity, base: Quantity, result: Quantity, mode: str = "none"
) -> tuple[Quantity, str]:
    """``quantity * result / base``, and :data:`SUCCESS`, :data:`CAPPED` or :data:`DIVISION_BY_ZERO`.

    CPU is computed in millicores, everything else in whole units. ``mode``: ``none`` and ``down`` round down, ``up``
    rounds CPU up. ``down`` turns a memory result of 0 into -1, as upstream does.
    """
    if resource == CPU:
        return _scale_cpu(quantity, base, result, mode)
    return _scale_memory(quantity, base, result, mode)


def _divide(numerator: int, denominator: int) -> tuple[int, int]:
    """Quotient and rest, cut towards zero."""
    quotient = abs(numerator) // abs(denominator)
    if (numerator < 0) != (denominator < 0):
        quotient = -quotient
    return quotient, numerator - quotient * denominator


def _scale_cpu(quantity: Quantity, base: Quantity, result: Quantity, mode: str) -> tuple[Quantity, str]:
    if base.milli_value() == 0:
        return quantity, DIVISION_BY_ZERO
    scaled, rest = _divide(quantity.milli_value() * result.milli_value(), base.milli_value())
    if not -_MAX - 1 <= scaled <= _MAX:
        return Quantity.from_int(_MAX, quantity.format, -3), CAPPED
    if mode == "up" and rest != 0:
        scaled += 1
    return Quantity.from_int(scaled, quantity.format, -3), SUCCESS


def _scale_memory(quantity: Quantity, base: Quantity, result: Quantity, mode: str) -> tuple[Quantity, str]:
    if base.value() == 0:
        return quantity, DIVISION_BY_ZERO
    scaled, _ = _divide(quantity.value() * result.value(), base.value())
    if not -_MAX - 1 <= scaled <= _MAX:
        return Quantity.from_int(_MAX, quantity.format), CAPPED
    if mode == "down" and scaled <= 0:
        scaled -= 1  # upstream takes 0.999 off and rounds away from zero
    return Quantity.from_int(scaled, quantity.format), SUCCESS


def limit_for(
    resource: str, limit: Quantity, request: Quantity, recommended: Quantity, default: Quantity
) -> tuple[Quantity | None, str]:
    """The limit that goes with a recommended request, or None; and a note when there is something to say."""
    if limit.is_zero and not default.is_zero:
        limit = default
    if limit.is_zero:
        return None, f"{resource}: limit NOT set since originalLimit is nil or 0"
    if recommended.is_zero:
        return None, f"{resource}: limit NOT set since recommendedRequest is nil or 0"
    if request.is_zero or request.milli_value() == limit.milli_value():
        return recommended, ""
    scaled, outcome = scale(resource, limit, request, recommended)
    if outcome == CAPPED:
        return scaled, f"{resource}: failed to keep limit to request ratio; capping limit to int64"
    return scaled, ""


def proportional_limits(
    limits: ResourceList | None,
    requests: ResourceList | None,
    recommended: ResourceList | None,
    defaults: ResourceList | None,
) -> tuple[ResourceList | None, list[str]]:
    """Limits for cpu and memory that keep the ratio, and notes. Where neither gets one: None, and no notes."""
    found: ResourceList = {}
    notes = []
    for name in (CPU, MEMORY):
        given = [(values or {}).get(name, _ZERO) for values in (limits, requests, recommended, defaults)]
        limit, note = limit_for(name, *given)
        if limit is not None:
            found[name] = limit
        if note:
            notes.append(note)
    return (found, notes) if found else (None, [])


def boundary_request(
    resource: str, request: Quantity, limit: Quantity, boundary: Quantity, default: Quantity
) -> Quantity:
    """The request at which the proportional limit reaches ``boundary``; zero when there is no limit."""
    if limit.is_zero:
        limit = default
    if limit.is_zero:
        return _ZERO
    if request.is_zero:
        return boundary
    return scale(resource, request, limit, boundary)[0]
