"""A number, or a percentage of one (upstream: ``k8s.io/apimachinery/pkg/util/intstr``)."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["is_share", "share_of"]

_PERCENT: Final = re.compile(r"[0-9]+%")


def is_share(value: int | str) -> bool:
    """Whether it is a number that is not negative, or a percentage."""
    return value >= 0 if isinstance(value, int) else _PERCENT.fullmatch(value) is not None


def share_of(value: int | str, of: int, *, up: bool) -> int:
    """A number as it is, a percentage of ``of`` rounded up or down (``GetScaledValueFromIntOrPercent``)."""
    if isinstance(value, int):
        return value
    whole = int(value.removesuffix("%")) * of
    return -(-whole // 100) if up else whole // 100
