"""The restricted linear program of a mix, and its fractional relaxation (extra ``[solver]``)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.errors import NativeError
from kscale.imports import library
from kscale.scheduling.bounds.instance import UNLIMITED, BinKinds
from kscale.snapshot.columns import median

__all__ = ["Master", "Solved", "have_solver", "silent_solver"]

_UNPLACED_COST_FACTOR = 1000.0  # cost of an item without a bin, in multiples of the most expensive bin
_FREE = 1e-9  # a smaller cost is zero, as costs are integers; avoids a division by zero


def have_solver() -> bool:
    """Check whether the extra ``[solver]`` is installed."""
    return find_spec("highspy") is not None  # its import is slow, and it is not always needed


@cache
def silent_solver() -> Any:
    """Return a subclass of ``highspy.Highs`` that writes nothing to stdout.

    Raises :class:`~kscale.errors.MissingExtraError` without the extra ``[solver]``.
    """
    base: Any = library("highspy", "linear programming").Highs

    class Silent(base):  # type: ignore[misc]  # the base class is imported at run time
        """HiGHS without output. The flag is set before the callback, because HiGHS prints a banner there from 1.16
        on.
        """

        def __init__(self) -> None:
            super().__init__()
            self.setOptionValue("output_flag", False)  # before any other call

        def enableCallbacks(self) -> None:  # noqa: N802  # highspy's name
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()

    return Silent


class Solved(msgspec.Struct, frozen=True):
    """Solution of the master problem. ``objective``: cost; ``prices`` float64[K]: dual prices of the items; ``ask``
    float64[T]: cost of a bin including its share of all other rows; ``duals`` float64[Q] of ``rows``; ``values``
    float64[columns]; ``missing``: items without a bin, float64[K]; ``iterations`` of the simplex.
    """

    objective: float
    prices: NDArray[np.float64]
    ask: NDArray[np.float64]
    duals: NDArray[np.float64]
    values: NDArray[np.float64]
    missing: NDArray[np.float64]
    iterations: int


class Master:
    """Minimises the cost over columns (a kind of bin and what it holds), with every item in some bin.

    ``kind`` and ``pattern`` of each column, in the order they were added. Costs are those of the kinds times ``scale``.
    """

    def __init__(self, kinds: BinKinds) -> None:
        """Create the program with a row for each class of items, each limited kind of bins and each constraint.

        Its only columns are empty bins of kinds that are required or balance a constraint. Raises MissingExtraError
        without the extra ``[solver]``.
        """
        self._highs = highs = silent_solver()()
        highspy = library("highspy", "linear programming")

        self.kinds = kinds
        positive = kinds.cost[kinds.cost > 0]
        self.scale = 1.0 / median(positive.astype(np.float64)) if len(positive) else 1.0
        self._cost = kinds.cost * self.scale
        # Simplex: a vertex has integral values more often, and the next solve starts from it. The number of threads is
        # left alone: HiGHS has one pool for the process and refuses another number.
        highs.setOptionValue("solver", "simplex")
        highs.setOptionValue("presolve", "off")  # each program is the previous one with additional columns
        highs.setOptionValue("simplex_strategy", 0)  # the solver chooses: the primal simplex after new columns
        self._solved = (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kModelEmpty)
        self._infinity = highspy.kHighsInf
        none = np.zeros(0, dtype=np.int32)
        highs.addRows(kinds.classes, kinds.count.astype(np.float64), np.full(kinds.classes, self._infinity), 0,
                      np.zeros(kinds.classes, dtype=np.int32), none, np.zeros(0))  # fmt: skip
        self._bounded = np.flatnonzero((kinds.available != UNLIMITED) | (kinds.least > 0))
        self._row_of = np.full(kinds.size, -1)
        self._row_of[self._bounded] = np.arange(len(self._bounded))
        for t in self._bounded.tolist():
            maximum = float(kinds.available[t]) if kinds.available[t] != UNLIMITED else self._infinity
            highs.addRow(float(kinds.least[t]), maximum, 0, [], [])
        # The solver's tolerances are absolute, so rows in bytes have to be scaled.
        self._row_scale = 1.0 / np.abs(kinds.rows).max(axis=1, initial=1).astype(np.float64)
        self._rows = kinds.rows * self._row_scale[:, None]
        for low, high in zip(*self._row_bounds(kinds.low, kinds.high), strict=True):
            highs.addRow(low, high, 0, [], [])
        unplaced_cost = _UNPLACED_COST_FACTOR * float(self._cost.max(initial=1.0))
        # An item may have no bin and a row may be violated, at a cost, so that there is always a solution.
        number = np.arange(kinds.classes, dtype=np.int32)
        highs.addCols(kinds.classes, np.full(kinds.classes, unplaced_cost), np.zeros(kinds.classes),
                      np.full(kinds.classes, self._infinity), kinds.classes, number, number,
                      np.ones(kinds.classes))  # fmt: skip
        first = kinds.classes + len(self._bounded)
        for q in range(len(kinds.rows)):
            for sign in (1.0, -1.0):
                highs.addCol(
                    unplaced_cost, 0.0, self._infinity, 1, np.array([first + q], dtype=np.int32), np.array([sign])
                )
        self._slacks = kinds.classes + 2 * len(kinds.rows)
        # Bins that are required, or that balance others in a row, even if they stay empty.
        self.kind: list[int] = np.flatnonzero((kinds.least > 0) | (kinds.rows < 0).any(axis=0)).tolist()
        self.pattern: list[NDArray[np.int64]] = [np.zeros(kinds.classes, dtype=np.int64) for _ in self.kind]
        self._known: set[tuple[int, bytes]] = set()
        if self.kind:
            self._add_columns(np.array(self.kind), np.array(self.pattern))

    def add(self, kinds: NDArray[np.integer[Any]], patterns: NDArray[np.integer[Any]]) -> int:
        """Add fillings (a kind of bin and its contents) as columns, and return how many of them are new and not empty.

        ``kinds`` int[N]: their kinds; ``patterns`` int[N, K]: their contents, the number of items of each class.
        """
        dense = np.ascontiguousarray(patterns, dtype=np.int64)
        existing, fresh = self._known, []
        text, size = dense.tobytes(), dense.shape[1] * dense.itemsize
        numbers = kinds.tolist()
        for i in np.flatnonzero(dense.any(axis=1)).tolist():
            key = numbers[i], text[i * size : (i + 1) * size]
            if key not in existing:
                existing.add(key)
                fresh.append(i)
        if fresh:
            self.kind += [numbers[i] for i in fresh]
            self.pattern += list(dense[fresh])
            self._add_columns(kinds[fresh], dense[fresh])
        return len(fresh)

    def _add_columns(self, kinds: NDArray[np.integer[Any]], patterns: NDArray[np.int64]) -> None:
        """Add columns to the solver. ``kinds`` int[N]: their kinds; ``patterns`` int64[N, K]: their contents."""
        last = len(kinds)
        parts = [patterns.astype(np.float64)]
        if len(self._bounded):
            own = np.zeros((last, len(self._bounded)))
            bounded = np.flatnonzero(self._row_of[kinds] >= 0)
            own[bounded, self._row_of[kinds[bounded]]] = 1.0
            parts.append(own)
        if len(self.kinds.rows):
            parts.append(self._rows[:, kinds].T)
        matrix = np.hstack(parts) if len(parts) > 1 else parts[0]
        column, row = np.nonzero(matrix)
        starts = np.searchsorted(column, np.arange(last)).astype(np.int32)
        cost, zero = self._cost[kinds], np.zeros(last)
        maximum = np.full(last, self._infinity)
        self._highs.addCols(last, cost, zero, maximum, len(row), starts, row.astype(np.int32), matrix[column, row])

    def solve(self) -> Solved:
        """Solve the program with the current columns and return the cheapest cover of all items, with fractional bins.

        Items may stay without a bin, and rows may be violated, at a high cost. Raises NativeError if the solver fails.
        """
        highs, kinds = self._highs, self.kinds
        highs.run()
        if highs.getModelStatus() not in self._solved:
            raise NativeError(f"HiGHS gave up: {highs.modelStatusToString(highs.getModelStatus())}")
        info, solution = highs.getInfo(), highs.getSolution()
        duals = np.asarray(solution.row_dual, dtype=np.float64) / self.scale
        values = np.asarray(solution.col_value, dtype=np.float64)
        of_kinds = duals[kinds.classes : kinds.classes + len(self._bounded)]
        of_rows = duals[kinds.classes + len(self._bounded) :] * self._row_scale
        bin_cost = kinds.cost - of_rows @ kinds.rows
        bin_cost[self._bounded] -= of_kinds
        return Solved(
            objective=float(info.objective_function_value) / self.scale,
            prices=np.maximum(duals[: kinds.classes], 0.0),
            ask=np.maximum(bin_cost, 0.0),
            duals=of_rows,
            values=values[self._slacks :],
            missing=values[: kinds.classes],
            iterations=int(info.simplex_iteration_count),
        )

    def rank_columns(self, solved: Solved) -> NDArray[np.intp]:
        """Return the positions of all columns: those that the solution uses, then the others by relative reduced cost.

        ``solved`` may be an earlier solution: columns that were added later count as not used.
        """
        kind = np.array(self.kind, dtype=np.intp)
        bin_cost = solved.ask[kind]
        surplus = bin_cost - np.array(self.pattern).reshape(len(kind), self.kinds.classes) @ solved.prices
        surplus /= np.maximum(bin_cost, _FREE)
        idle = np.ones(len(kind), dtype=bool)
        idle[: len(solved.values)] = solved.values <= 0
        return np.lexsort((np.arange(len(kind)), surplus, idle))

    def reduce_columns(self, most: int) -> Master:
        """Solve the program, and return another one with only the first ``most`` columns of :meth:`rank_columns`."""
        best = self.rank_columns(self.solve())[:most]
        result = Master(self.kinds)
        result.add(np.array(self.kind, dtype=np.intp)[best], np.array(self.pattern)[best])
        return result

    def integral(
        self, most_nodes: int, stop: Callable[[], bool] = lambda: False
    ) -> tuple[NDArray[np.int64] | None, int]:
        """Return (cheapest integral solution that branch and bound finds, number of search nodes that it visited).

        The solution is int64[columns], the number of bins of each column; None if none is found within ``most_nodes``,
        or if ``stop`` (polled) returns True. An item may be in more bins than it has copies. The program cannot be used
        afterwards.
        """
        integer = library("highspy", "linear programming").HighsVarType.kInteger
        highs = self._highs
        highs.setOptionValue("mip_max_nodes", most_nodes)
        columns = np.arange(self._slacks, self._slacks + len(self.kind), dtype=np.int32)
        highs.changeColsIntegrality(len(columns), columns, np.full(len(columns), integer))
        stopped = False

        def look(event: Any) -> None:
            nonlocal stopped
            stopped = stopped or stop()
            event.interrupt(stopped)

        highs.cbMipInterrupt.subscribe(look)
        highs.run()
        highs.disableCallbacks()
        solution, nodes = highs.getSolution(), int(highs.getInfo().mip_node_count)
        if stopped or not solution.value_valid:
            return None, nodes
        return np.rint(np.asarray(solution.col_value)[self._slacks :]).astype(np.int64), nodes

    def restrict(
        self,
        count: NDArray[np.int64],
        available: NDArray[np.int64],
        least: NDArray[np.int64],
        low: NDArray[np.float64],
        high: NDArray[np.float64],
    ) -> None:
        """Restrict the program, in place, to what remains after some bins are fixed.

        ``count``: remaining items; ``available``, ``least``: maximum and minimum number of further bins of each kind;
        ``low``, ``high``: bounds of the rows for further bins.
        """
        highs, first = self._highs, self.kinds.classes
        for k, n in enumerate(count.tolist()):
            highs.changeRowBounds(k, float(n), self._infinity)
        for i, t in enumerate(self._bounded.tolist()):
            maximum = float(available[t]) if available[t] != UNLIMITED else self._infinity
            highs.changeRowBounds(first + i, float(least[t]), maximum)
        first += len(self._bounded)
        for q, (least_of, most_of) in enumerate(zip(*self._row_bounds(low, high), strict=True)):
            highs.changeRowBounds(first + q, least_of, most_of)

    def _row_bounds(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[list[float], list[float]]:
        """Convert the bounds of the constraints to the solver's units: (lower, upper)."""
        least = np.maximum(low * self._row_scale, -self._infinity)
        upper = np.minimum(high * self._row_scale, self._infinity)
        return least.tolist(), upper.tolist()
