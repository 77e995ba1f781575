"""Taints of nodes and tolerations of pods: which taint keeps a pod off a node (upstream: ``component-helpers``
``scheduling/corev1``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kscale.imports import lazy_pattern
from kscale.objects.api.core import Taint, Toleration

__all__ = ["first_untolerated", "taint_key", "tolerates", "tolerates_all"]

_CANONICAL = lazy_pattern(r"0|-?[1-9][0-9]{0,18}")
_FEW: Final = 8
"""Up to as many tolerations or taints are compared one by one, which is faster than an index of them."""
_FILTERING: Final = ("NoSchedule", "NoExecute")


def _read_int(text: str) -> int | None:
    """Parse an int64 in canonical form; None for any other text."""
    if _CANONICAL.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def taint_key(taints: Iterable[Taint]) -> tuple[tuple[str, str, str], ...]:
    """Return (key, value, effect) of each taint: equal for lists of taints that differ at most in ``timeAdded``."""
    return tuple((taint.key, taint.value, taint.effect) for taint in taints)


def tolerates(toleration: Toleration, taint: Taint, *, comparison_operators: bool = False) -> bool:
    """Return whether the toleration covers the taint.

    Parameters
    ----------
    toleration : Toleration
        An empty key matches every key, also with Equal. The API forbids that combination, but upstream's code accepts
        it.
    taint : Taint
    comparison_operators : bool
        The feature gate for the operators Lt and Gt. Without it a toleration with such an operator covers nothing.
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
        bound, value = _read_int(toleration.value), _read_int(taint.value)
        if bound is None or value is None:
            return False
        return value < bound if operator == "Lt" else value > bound
    return False


class _Tolerations:
    """Index of many tolerations by key and effect, so that looking up a taint does not depend on their number.

    Its results are those of :func:`tolerates` for each toleration.
    """

    __slots__ = ("_above", "_all", "_below", "_equal")

    def __init__(self, tolerations: Iterable[Toleration], *, comparison_operators: bool) -> None:
        self._all: set[tuple[str, str]] = set()
        self._equal: set[tuple[str, str, str]] = set()
        self._below: dict[tuple[str, str], int] = {}
        self._above: dict[tuple[str, str], int] = {}
        for item in tolerations:
            place, operator = (item.key, item.effect), item.operator or "Equal"
            if operator == "Exists":
                self._all.add(place)
            elif operator == "Equal":
                self._equal.add((*place, item.value))
            elif operator in ("Lt", "Gt") and comparison_operators and (bound := _read_int(item.value)) is not None:
                if operator == "Lt":
                    self._below[place] = max(bound, self._below.get(place, bound))
                else:
                    self._above[place] = min(bound, self._above.get(place, bound))

    def cover(self, taint: Taint) -> bool:
        """Return whether some toleration covers a taint."""
        places = [(key, effect) for key in {taint.key, ""} for effect in {taint.effect, ""}]
        if any(place in self._all or (*place, taint.value) in self._equal for place in places):
            return True
        if not self._below and not self._above:
            return False
        value = _read_int(taint.value)
        return value is not None and any(
            (place in self._below and value < self._below[place])
            or (place in self._above and value > self._above[place])
            for place in places
        )


def first_untolerated(
    tolerations: Iterable[Toleration],
    taints: Iterable[Taint],
    *,
    effects: Iterable[str] = _FILTERING,
    comparison_operators: bool = False,
) -> Taint | None:
    """Return the first taint that has one of the effects and that no toleration covers; None if there is none.

    Default effects: NoSchedule and NoExecute. ``comparison_operators``: the feature gate for the operators Lt and Gt.
    """
    tolerations, taints, effects = list(tolerations), list(taints), tuple(effects)
    if len(tolerations) > _FEW and len(taints) > _FEW:
        index = _Tolerations(tolerations, comparison_operators=comparison_operators)
        return next((taint for taint in taints if taint.effect in effects and not index.cover(taint)), None)
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
    """Return whether the tolerations cover every taint that has one of the effects.

    Parameters
    ----------
    tolerations : iterable of Toleration
    taints : iterable of Taint
    effects : iterable of str
        Default: the effects that the scheduler filters on, NoSchedule and NoExecute.
    comparison_operators : bool
        The feature gate for the operators Lt and Gt.
    """
    return first_untolerated(tolerations, taints, effects=effects, comparison_operators=comparison_operators) is None
