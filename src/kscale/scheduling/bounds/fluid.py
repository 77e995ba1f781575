"""The program in which items flow: each may be cut into pieces, which go into bins of several kinds.

Its prices are those of resources, kind by kind: an item that only dear kinds take is dear. Where items are small
against bins they prove nearly all that there is to prove, after one small linear program; and with whole bins it tells
how many of each kind may be enough.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.libraries import library
from kscale.scheduling.bounds.effort import Effort
from kscale.scheduling.bounds.kinds import UNLIMITED, BinKinds
from kscale.scheduling.bounds.master import silent_solver
from kscale.scheduling.bounds.pricing import Values, surrogate
from kscale.scheduling.bounds.proof import Proof, least_cost
from kscale.snapshot.columns import median

__all__ = ["Flow", "Fluid"]

_FLOWS = 40_000  # pairs of a class and a kind up to which the program is one of a moment
_NODES = 50  # of the search for whole bins
_CLOSE = 5e-4  # to the cheapest whole bins is near enough
_DEAR = 1000.0  # an item without a bin costs so many times the dearest bin


class Flow(msgspec.Struct, frozen=True):
    """``share`` float64[T, K]: how many items of a class are in bins of a kind; ``bins`` int64[T]."""

    share: NDArray[np.float64]
    bins: NDArray[np.int64]


class Fluid:
    """The program of an instance (extra ``[solver]``): every item flows into bins that have room for all that they
    take, and for no more items of one class than they hold by themselves."""

    def __init__(self, kinds: BinKinds) -> None:
        make = silent_solver()
        highspy = library("highspy", "linear programming")

        self.kinds = kinds
        self._infinity = infinity = highspy.kHighsInf
        self._integer = highspy.HighsVarType.kInteger
        self._optimal = (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kModelEmpty)
        positive = kinds.cost[kinds.cost > 0]
        self._scale = 1.0 / median(positive.astype(np.float64)) if len(positive) else 1.0
        self._unit = np.maximum(kinds.capacity.max(axis=0, initial=1), 1).astype(np.float64)
        self._kind, self._class = np.nonzero((kinds.most > 0) & (kinds.count > 0))
        self._highs = highs = make()
        highs.setOptionValue("mip_max_nodes", _NODES)
        highs.setOptionValue("mip_rel_gap", _CLOSE)

        # Rows: items of a class, room of a kind, items of a class in one bin of a kind, rows of the instance.
        flows, size, resources = len(self._kind), kinds.size, kinds.demand.shape[1]
        held = _held(kinds)[self._kind, self._class]
        limited = np.flatnonzero(kinds.most[self._kind, self._class] < held)
        room = kinds.classes
        limit = room + size * resources
        extra = limit + len(limited)
        low = np.full(extra + len(kinds.rows), -infinity)
        high = np.full(len(low), infinity)
        low[:room] = kinds.count
        high[room:extra] = 0.0
        # The solver's tolerances are absolute: rows of bytes would be lost in them.
        self._row_scale = 1.0 / np.abs(kinds.rows).max(axis=1, initial=1).astype(np.float64)
        low[extra:] = np.maximum(kinds.low * self._row_scale, -infinity)
        high[extra:] = np.minimum(kinds.high * self._row_scale, infinity)
        none = np.zeros(0, dtype=np.int32)
        highs.addRows(len(low), low, high, 0, np.zeros(len(low), dtype=np.int32), none, np.zeros(0))

        # Columns: bins of each kind, items without a bin, flows.
        first = size + kinds.classes
        kind, resource = np.indices((size, resources)).reshape(2, -1)
        flow, of_flow = np.nonzero(kinds.demand[self._class])
        row, bins = np.nonzero(kinds.rows)
        parts = [
            (kind, room + kind * resources + resource, -(kinds.capacity / self._unit).ravel()),
            (self._kind[limited], limit + np.arange(len(limited)), -kinds.most[self._kind, self._class][limited]),
            (bins, extra + row, kinds.rows[row, bins] * self._row_scale[row]),
            (size + np.arange(kinds.classes), np.arange(kinds.classes), np.ones(kinds.classes)),
            (first + np.arange(flows), self._class, np.ones(flows)),
            (
                first + flow,
                room + self._kind[flow] * resources + of_flow,
                (kinds.demand / self._unit)[self._class[flow], of_flow],
            ),
            (first + limited, limit + np.arange(len(limited)), np.ones(len(limited))),
        ]
        column, at, value = (np.concatenate([part[i] for part in parts]) for i in range(3))
        column, at, value = column[value != 0], at[value != 0], value[value != 0].astype(np.float64)
        order = np.lexsort((at, column))
        columns = first + flows
        starts = np.searchsorted(column[order], np.arange(columns)).astype(np.int32)
        cost, least, most = np.zeros(columns), np.zeros(columns), np.full(columns, infinity)
        cost[:size] = kinds.cost * self._scale
        cost[size:first] = _DEAR * max(1.0, float(cost[:size].max(initial=0.0)))
        least[:size] = kinds.least
        most[:size] = np.where(kinds.available == UNLIMITED, infinity, kinds.available)
        highs.addCols(columns, cost, least, most, len(order), starts, at[order].astype(np.int32), value[order])

    @staticmethod
    def small(kinds: BinKinds) -> bool:
        """Whether the program is small enough to be looked at beside others."""
        return kinds.size * kinds.classes <= _FLOWS

    def bound(self) -> Proof | None:
        """What its prices prove, in integers; None where the solver gives none."""
        kinds = self.kinds
        self._highs.run()
        if self._highs.getModelStatus() not in self._optimal:
            return None
        duals = np.asarray(self._highs.getSolution().row_dual, dtype=np.float64) / self._scale
        shape = kinds.size, kinds.demand.shape[1]
        prices = np.maximum(duals[: kinds.classes], 0.0)
        of_room = duals[kinds.classes : kinds.classes + shape[0] * shape[1]].reshape(shape)
        weight = np.maximum(-of_room, 0.0) / self._unit
        values = Values.of(prices, kinds)
        of_rows = duals[len(duals) - len(kinds.rows) :] * self._row_scale
        return least_cost(kinds, values, surrogate(kinds, values, weight), of_rows)

    def whole(self, effort: Effort, count: NDArray[np.int64]) -> Flow | None:
        """The cheapest whole bins into which ``count`` int64[K] items flow, no fewer than there are; None where a short
        search finds none. The program is one of whole bins afterwards."""
        kinds, highs = self.kinds, self._highs
        for k, n in enumerate(count.tolist()):
            highs.changeRowBounds(k, float(n), self._infinity)
        bins = np.arange(kinds.size, dtype=np.int32)
        highs.changeColsIntegrality(kinds.size, bins, np.full(kinds.size, self._integer))
        highs.run()
        effort.spend(500 + 10 * len(self._kind))
        solution = highs.getSolution()
        if not solution.value_valid:
            return None
        values = np.asarray(solution.col_value, dtype=np.float64)
        share = np.zeros((kinds.size, kinds.classes))
        share[self._kind, self._class] = values[kinds.size + kinds.classes :]
        return Flow(share, np.rint(values[: kinds.size]).astype(np.int64))


def _held(kinds: BinKinds) -> NDArray[np.int64]:
    """int64[T, K]: how many items of a class the room of a bin is enough for."""
    found = np.repeat(kinds.count[None], kinds.size, axis=0)
    for r in range(kinds.demand.shape[1]):
        used = kinds.demand[:, r] > 0
        found[:, used] = np.minimum(found[:, used], kinds.capacity[:, r, None] // kinds.demand[used, r])
    return found
