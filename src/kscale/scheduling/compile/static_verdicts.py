"""Static verdicts: what judges say of nodes, a bit for each plug-in, row and node class."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from kscale.scheduling.compile.node_classes import NodeClasses
from kscale.scheduling.compile.questions import JudgeKey, Judges
from kscale.scheduling.facts import NAME, NodeFacts
from kscale.scheduling.plugins.base import Judge

__all__ = ["StaticRows"]

_Row = tuple[frozenset[str] | None, tuple[JudgeKey, ...]]
"""(names that PreFilters left, or None; judges)."""


class StaticRows:
    """Rows of classes that agree in all they ask of a node alone."""

    def __init__(self) -> None:
        self._judges: dict[JudgeKey, Judge] = {}
        self._rows: dict[_Row, int] = {}
        self.row(None, ())

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, nodes: frozenset[str] | None, judges: Judges) -> int:
        """The number of a row; the first, 0, passes everything."""
        keys = tuple([key for key, _ in judges])
        found = self._rows.get((nodes, keys))
        if found is None:
            found = self._rows[nodes, keys] = len(self._rows)
            for key, judge in judges:
                self._judges.setdefault(key, judge)
        return found

    def table(self, classes: NodeClasses) -> NDArray[np.uint16]:
        """uint16[rows, node classes]: bit i = plug-in i says no; bit 0 = a PreFilter leaves the node out."""
        parts: dict[JudgeKey, NDArray[np.uint16]] = {}
        for key, judge in self._judges.items():
            fails = classes.evaluate(judge.columns, partial(_fails, judge))
            parts[key] = fails.astype(np.uint16) << np.uint16(key[0])
        table = np.zeros((len(self._rows), len(classes)), dtype=np.uint16)
        for (nodes, keys), row in zip(self._rows, table, strict=True):
            if nodes is not None:
                row |= classes.evaluate(frozenset({NAME}), partial(_outside, nodes)).astype(np.uint16)
            for key in keys:
                row |= parts[key]
        return table


def _fails(judge: Judge, node: NodeFacts) -> bool:
    return judge.check(node) is not None


def _outside(names: frozenset[str], node: NodeFacts) -> bool:
    return node.name not in names
