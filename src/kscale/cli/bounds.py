"""The option that says how hard a bound is looked for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from kscale.cli.options import OptionGroup

__all__ = ["BoundSource"]


class Method(StrEnum):
    """How."""

    FAST = "fast"
    LP = "lp"


@dataclass(eq=False, repr=False)
class BoundSource(OptionGroup):
    """How a proven least number of nodes, or cost, is found."""

    bound: Annotated[
        Method | None,
        typer.Option(
            "--bound",
            help="How a proven bound is found: by sums and sorting, or by linear programming as well (extra [solver]; "
            "some 50 ms). The default is lp where the extra is installed.",
        ),
    ] = None

    def effort(self, count: int) -> int:
        """Work for the bound of each of ``count`` groups; at most as much as for ten altogether."""
        from kscale.capacity.estimate import BOUND_EFFORT
        from kscale.errors import MissingExtraError
        from kscale.scheduling.bounds.master import have_solver

        solver = have_solver()
        if self.bound is Method.LP and not solver:
            raise MissingExtraError("--bound lp", "solver")
        if self.bound is Method.FAST or not solver:
            return 0
        return min(BOUND_EFFORT, 10 * BOUND_EFFORT // max(count, 1))

    @property
    def threads(self) -> int:
        """Threads for it; the bound never depends on how many."""
        return min(os.cpu_count() or 1, 8)
