"""The check that every bound passes before anybody sees it."""

from __future__ import annotations

from typing import TypeVar

from kscale.errors import BoundError

__all__ = ["checked_bound"]

_Number = TypeVar("_Number", int, float)
_NOISE = 1e-9  # of a sum of prices, relative and absolute


def checked_bound(bound: _Number, cost: float, subject: str) -> _Number:
    """Return a lower bound after a check that it is not above the cost of a known solution.

    Parameters
    ----------
    bound : int or float
        The proven least cost, or number of nodes.
    cost : int or float
        What a solution of the same problem costs.
    subject : str
        What the bound is about, for the message.

    Raises
    ------
    BoundError
        If the bound is above the cost: one of the two is wrong.
    """
    if bound > cost + _NOISE * max(1.0, abs(cost)):
        raise BoundError(f"{subject}: the proven least of {bound:g} is more than the {cost:g} of a known solution")
    return bound
