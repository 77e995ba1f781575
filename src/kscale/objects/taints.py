"""Which toleration puts up with which taint (upstream: ``k8s.io/api/core/v1/toleration.go``)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from kscale.objects.core import Taint, Toleration

__all__ = ["first_untolerated", "tolerates", "tolerates_all"]

_CANONICAL = re.compile(r"0|-?[1-9][0-9]{0,18}")
_FILTERING: Final = ("NoSchedule", "NoExecute")


def _integer(text: str) -> int | None:
    if _CANONICAL.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def tolerates(toleration: Toleration, taint: Taint, *, comparison_operators: bool = False) -> bool:
    """Whether the toleration covers the taint.

    ``comparison_operators``: the feature gate for the operators Lt and Gt (off by default); without it such a
    toleration covers nothing. An empty key matches every key, also with Equal (the API forbids it, upstream's code
    does not).
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    operator = toleration.operator or "Equal"
    if operator == "Equal":
        return toleration.value == taint.value
    if operator == "Exists":
        return True
    if operator in ("Lt", "Gt") and comparison_operators:
        bound, value = _integer(toleration.value), _integer(taint.value)
        if bound is None or value is None:
            return False
        return value < bound if operator == "Lt" else value > bound
    return False


def first_untolerated(
    tolerations: Iterable[Toleration],
    taints: Iterable[Taint],
    *,
    effects: Iterable[str] = _FILTERING,
    comparison_operators: bool = False,
) -> Taint | None:
    """The first taint, in list order, with one of the effects that no toleration covers."""
    tolerations, effects = list(tolerations), tuple(effects)
    for taint in taints:
        if taint.effect in effects and not any(
            tolerates(item, taint, comparison_operators=comparison_operators) for item in tolerations
        ):
            return taint
    return None


def tolerates_all(
    tolerations: Iterable[Toleration],
    taints: Iterable[Taint],
    *,
    effects: Iterable[str] = _FILTERING,
    comparison_operators: bool = False,
) -> bool:
    """Whether every taint with one of the effects is covered."""
    return first_untolerated(tolerations, taints, effects=effects, comparison_operators=comparison_operators) is None
