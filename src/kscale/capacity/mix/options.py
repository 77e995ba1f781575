"""What a mix may be."""

from __future__ import annotations

from typing import Final

import msgspec

from kscale.errors import InputError, Problem
from kscale.objects.argument_types import check_fields
from kscale.objects.quantity import Quantity
from kscale.objects.requests import to_integers

__all__ = ["MixOptions"]

_ANY: Final = Quantity("1")


class MixOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``max_types``: at most so many different types of new nodes; ``curve``: what fewer or more would cost, too.

    ``spot_share``: at most this share of the new nodes' cpu is spot (None = as much as is cheap). ``limits``: of a
    resource (milli-units of cpu, else units; ``nodes`` for their number) there is at most so much on all nodes
    together, those that exist included. ``existing``: pods go on nodes that exist where that saves something.

    ``bound_effort``, ``plan_effort``: work for each, in units of about a microsecond; ``tolerance``: a bound so close
    to the linear program is good enough. ``threads`` change the time only.
    """

    max_types: int | None = None
    curve: bool = False
    spot_share: float | None = None
    limits: dict[str, int] = {}
    existing: bool = True
    bound_effort: int | None = 1_500_000
    plan_effort: int | None = 1_500_000
    tolerance: float = 2e-4
    threads: int = 1

    def __post_init__(self) -> None:
        check_fields(self)

    def check(self) -> None:
        """Raises InputError for what cannot be meant, by the name of the option."""
        problems = []
        if self.max_types is not None and self.max_types < 1:
            problems.append(Problem(f"{self.max_types} is not a number of types", field="max_types"))
        if self.spot_share is not None and not 0 <= self.spot_share <= 1:
            problems.append(Problem(f"{self.spot_share} is not a share between 0 and 1", field="spot_share"))
        for name, most in self.limits.items():
            if most < 0:
                problems.append(Problem(f"{most} is negative", field=f"limits[{name}]"))
            if name != "nodes" and name not in to_integers({name: _ANY}):
                problems.append(Problem("no resource of nodes", field=f"limits[{name}]"))
        for name in ("bound_effort", "plan_effort"):
            effort = getattr(self, name)
            if effort is not None and effort < 0:
                problems.append(Problem(f"{effort} is negative", field=name))
        if not 0 <= self.tolerance < 1:
            problems.append(Problem(f"{self.tolerance} is not a share between 0 and 1", field="tolerance"))
        if self.threads < 1:
            problems.append(Problem(f"{self.threads} is less than one thread", field="threads"))
        if problems:
            raise InputError(problems)
