"""Pod classes by number: what they ask of nodes, and what they count in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kscale.scheduling.compile.statics import StaticRows
from kscale.scheduling.context import Context
from kscale.scheduling.facts import NAME, NodeFacts
from kscale.scheduling.plugins import PROFILE, STATIC
from kscale.scheduling.plugins.base import Judge, Part, Plugin
from kscale.scheduling.plugins.dynamic_resources import DynamicResources
from kscale.scheduling.plugins.pod_topology_spread import spreads_over_hosts
from kscale.scheduling.prefilter import PreFilterOutcome, run_prefilters
from kscale.scheduling.rows import Rows
from kscale.snapshot.interner import PodClass

__all__ = ["PodClasses"]

P = TypeVar("P", bound=Part)
_Judges = tuple[tuple[Plugin, Judge], ...]


class PodClasses:
    """``pods``: by number: first those that are asked about, ``asked`` many, then those that are only placed or taken
    off, then placed ones that count in something. ``number``: by index. ``outcomes``: of those asked about.

    ``rows``, ``parts``, ``statics``: what they bring into the engine.
    """

    def __init__(self, ctx: Context, asked: Iterable[PodClass], others: Iterable[PodClass]) -> None:
        self._ctx = ctx
        self.number: dict[int, int] = {}
        self.pods: list[PodClass] = []
        self._add(asked)
        self.asked = len(self.pods)
        self._add(others)
        self.rows = Rows()
        self.parts = [part for plugin in PROFILE if (part := plugin.part(self.rows)) is not None]
        self.statics = StaticRows()
        for part in self.parts:
            part.present(ctx.snapshot.placed_classes)
            part.present(self.pods)
        self.outcomes: list[PreFilterOutcome] = []
        self.extras: list[dict[str, Any] | None] = []
        self._judges: list[_Judges] = []
        self._columns: set[str] = set()
        for pod in self.pods[: self.asked]:
            self._ask(pod)

    def _add(self, pods: Iterable[PodClass]) -> None:
        number, known = self.number, self.pods
        for pod in pods:
            if pod.index not in number:
                number[pod.index] = len(known)
                known.append(pod)

    def _ask(self, pod: PodClass) -> None:
        outcome = run_prefilters(pod, self._ctx)
        judges = self._judges_of(pod) if outcome.failure is None else ()
        self.outcomes.append(outcome)
        self._judges.append(judges)
        if outcome.nodes is not None:
            self._columns.add(NAME)
        for _, judge in judges:
            self._columns |= judge.columns
        for part in self.parts:
            part.ask(pod, self._ctx)

    def _judges_of(self, pod: PodClass) -> _Judges:
        ctx, disabled = self._ctx, self._ctx.profile.disabled_filters
        judges = ((plugin, plugin.judge(pod, ctx)) for plugin in STATIC if plugin.name not in disabled)
        return tuple((plugin, judge) for plugin, judge in judges if judge is not None)

    def columns(self) -> frozenset[str]:
        """Node columns that verdicts and counters depend on."""
        return self.rows.columns() | self._columns

    def settle(self, copies: list[NodeFacts], elsewhere: Callable[[int], bool]) -> None:
        """All is known that classes may meet: ``copies``, new nodes that may come. ``elsewhere``: whether it is not a
        judge that decides on the devices of a class."""
        for part in self.parts:
            part.asked(self._ctx, copies)
        self._static_rows = []
        for i, judges in enumerate(self._judges):
            chosen = judges
            if elsewhere(i):
                chosen = tuple(each for each in judges if each[0].name != DynamicResources.name)
            self._static_rows.append(self.statics.row(self.outcomes[i].nodes, chosen))
        self.extras = [self._entry(pod, asked=i < self.asked) for i, pod in enumerate(self.pods)]
        for i in range(len(self.pods)):
            if elsewhere(i):
                self.extras[i] = {**(self.extras[i] or {}), "devices": True}
        awake = [part for part in self.parts if part.awake()]
        if not awake and not self.rows.rows:
            return
        for pod in self._ctx.snapshot.placed_classes:
            if pod.index in self.number:
                continue
            if any(part.concerns(pod) for part in awake) or any(self.rows.counted(pod)):
                entry = self._entry(pod, asked=False)
                if entry is not None:
                    self._add([pod])
                    self.extras.append(entry)

    def _entry(self, pod: PodClass, *, asked: bool) -> dict[str, Any] | None:
        spread, rows = self.rows.counted(pod) if self.rows.rows else ((), ())
        found: dict[str, Any] = {"spread_touch": list(spread)} if spread else {}
        if rows:
            found["touch"] = list(rows)
        for part in self.parts:
            for name, value in part.entry(pod, self._ctx, asked=asked).items():
                found[name] = found[name] + value if name in found else value
        return found or None

    def arrays(self) -> tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.uint8]]:
        """(row of static verdicts int32, whether the PreFilter fails uint8, whether hosts are spread over uint8) by
        number."""
        static_row = np.zeros(len(self.pods), dtype=np.int32)
        failed, hosts = np.zeros((2, len(self.pods)), dtype=np.uint8)
        static_row[: self.asked] = self._static_rows
        failed[: self.asked] = [outcome.failure is not None for outcome in self.outcomes]
        hosts[:] = [spreads_over_hosts(pod) for pod in self.pods]
        return static_row, failed, hosts

    def placed(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """(class by number, node) of the placed pods that count in something: int32[n] each."""
        snapshot = self._ctx.snapshot
        numbers = np.full(len(snapshot.interner.classes), -1, dtype=np.int32)
        for i, extra in enumerate(self.extras):
            if extra is not None:
                numbers[self.pods[i].index] = i
        pods = numbers[snapshot.placed_class]
        count = pods >= 0
        return pods[count], snapshot.placed_node[count]

    def part(self, kind: type[P]) -> P:
        """The part of a plug-in."""
        return next(part for part in self.parts if isinstance(part, kind))
