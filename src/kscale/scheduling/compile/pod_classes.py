"""Pod classes by number: what they ask of nodes, and what they count in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import is_
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from kscale._native import _pod_classes
from kscale.objects.nodegroup import NodeTemplate
from kscale.scheduling.compile.questions import KeptQuestions, Question, Questions
from kscale.scheduling.compile.static_verdicts import StaticRows
from kscale.scheduling.context import Context
from kscale.scheduling.devices.claims import Claims
from kscale.scheduling.facts import NodeFacts
from kscale.scheduling.plugins import PROFILE
from kscale.scheduling.plugins.base import Part
from kscale.scheduling.plugins.dynamic_resources import DynamicResources
from kscale.scheduling.plugins.pod_topology_spread import spreads_over_hosts
from kscale.scheduling.prefilter import PreFilterOutcome
from kscale.scheduling.rows import Rows
from kscale.snapshot.interner import PodClass
from kscale.snapshot.memo import Memo
from kscale.snapshot.snapshot import Snapshot

__all__ = ["PodClasses"]

P = TypeVar("P", bound=Part)


class PodClasses:
    """``pods``: by number: first those that are asked about, ``asked`` many, then those that are only placed or taken
    off, then placed ones that count in something. ``number``: by index. ``outcomes``: of those asked about.

    ``rows``, ``parts``, ``statics``: what they bring into the engine. Nothing changes once it is settled: then it is
    kept, and serves any session that asks the same.
    """

    def __init__(self, asked: Iterable[PodClass], questions: Sequence[Question], others: Iterable[PodClass]) -> None:
        self.pods = [*asked, *others]
        self.number = {pod.index: i for i, pod in enumerate(self.pods)}
        self.asked = len(questions)
        self.given = len(self.pods)
        """How many there are besides placed ones that count in something."""
        self.outcomes: list[PreFilterOutcome] = [question.outcome for question in questions]
        self.rows = Rows()
        self._part_of = {plugin.name: part for plugin in PROFILE if (part := plugin.part(self.rows)) is not None}
        self.parts = list(self._part_of.values())
        self.statics = StaticRows()
        self.devices = False
        """Whether any pod may want devices."""
        self._questions = questions
        self.memo = Memo()
        """What is worked out of these classes and the profile, and of nothing else."""
        self._settled = False
        self._keep: Callable[[], None] = _not_at_all

    @classmethod
    def of(
        cls, ctx: Context, asked: Iterable[PodClass], others: Iterable[PodClass], templates: Sequence[NodeTemplate]
    ) -> PodClasses:
        """Those of a session, which are to be settled; kept ones if they were made for the very same."""
        wanted = {pod.index: pod for pod in asked}
        known = Questions(ctx)
        questions = [known.of(pod) for pod in wanted.values()]
        more = {pod.index: pod for pod in others if pod.index not in wanted}
        made = cls(wanted.values(), questions, more.values())
        made.devices = Claims.of(ctx).concern(made.pods)
        if made.devices:  # they are counted together with what else there is
            made._ask(ctx)
            return made
        kept = ctx.snapshot.interner.memo.of(_Kept, _Kept)
        signature = made._signature(ctx, known.kept, templates)
        found = kept.find(signature)
        if found is not None:
            return found
        made._ask(ctx)
        made._keep = lambda: kept.add(signature, made)
        return made

    def _signature(self, ctx: Context, profile: KeptQuestions, templates: Sequence[NodeTemplate]) -> _Signature:
        placed = ctx.snapshot.placed_classes
        storage = [pod for pod in (*self.pods[self.asked :], *placed) if pod.volumes]
        around = [each for plugin in PROFILE for each in plugin.surroundings(storage, ctx)]
        copies = [template.csi_node for template in templates]
        return [profile], list(self._questions), list(self.pods), placed, around, copies

    def _ask(self, ctx: Context) -> None:
        for part in self.parts:
            part.present(ctx.snapshot.placed_classes)
            part.present(self.pods)
        for pod, question in zip(self.pods, self._questions, strict=False):  # the first of them are asked about
            for name, looks in question.looks:
                self._part_of[name].ask(pod, looks)

    def columns(self) -> frozenset[str]:
        """Node columns that verdicts and counters depend on."""
        return self.rows.columns().union(*{question.columns for question in self._questions})

    def settle(self, ctx: Context, copies: list[NodeFacts], elsewhere: Callable[[int], bool]) -> None:
        """All is known that classes may meet: ``copies``, new nodes that may come. ``elsewhere``: whether it is not a
        judge that decides on the devices of a class."""
        if self._settled:
            return
        for part in self.parts:
            part.asked(self.pods[: self.asked], ctx, copies)
        static_rows = []
        for i, question in enumerate(self._questions):
            chosen = question.judges
            if elsewhere(i):
                chosen = tuple(each for each in chosen if each[0][0] != DynamicResources.ordinal)
            static_rows.append(self.statics.row(question.outcome.nodes, chosen))
        entries = [self._entry(pod, ctx, asked=i < self.asked) for i, pod in enumerate(self.pods)]
        for i in range(len(self.pods)):
            if elsewhere(i):
                entries[i] = {**(entries[i] or {}), "devices": True}
        awake = [part for part in self.parts if part.awake()]
        for pod in ctx.snapshot.placed_classes if awake or self.rows.rows else ():
            if pod.index in self.number:
                continue
            if any(part.concerns(pod) for part in awake) or any(self.rows.counted(pod)):
                entry = self._entry(pod, ctx, asked=False)
                if entry is not None:
                    self.number[pod.index] = len(self.pods)
                    self.pods.append(pod)
                    entries.append(entry)
        self._arrays(static_rows)
        self.extras = _pod_classes.Extras(entries)
        self._counting = [i for i, entry in enumerate(entries) if entry is not None]
        self._settled = True
        keep, self._keep = self._keep, _not_at_all  # it knows these classes: they would be a cycle
        keep()

    def _entry(self, pod: PodClass, ctx: Context, *, asked: bool) -> dict[str, Any] | None:
        spread, rows = self.rows.counted(pod)
        found: dict[str, Any] = {"spread_touch": spread} if spread else {}
        if rows:
            found["touch"] = rows
        for part in self.parts:
            if part.concerns(pod):
                for name, value in part.entry(pod, ctx, asked=asked).items():
                    found[name] = found[name] + value if name in found else value
        return found or None

    def _arrays(self, static_rows: list[int]) -> None:
        """``static_row``: row of static verdicts, int32; ``failed``: whether the PreFilter fails, uint8; ``hosts``:
        whether hosts are spread over, uint8; by number."""
        self.static_row = np.zeros(len(self.pods), dtype=np.int32)
        self.static_row[: self.asked] = static_rows
        self.failed, self.hosts = np.zeros((2, len(self.pods)), dtype=np.uint8)
        self.failed[: self.asked] = [outcome.failure is not None for outcome in self.outcomes]
        self.hosts[:] = [spreads_over_hosts(pod) for pod in self.pods]

    def placed(self, snapshot: Snapshot) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """(class by number, node) of the placed pods that count in something: int32[n] each."""
        if not self._counting:  # all placed pods would be looked through for nothing
            return np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
        numbers = np.full(len(snapshot.interner.classes), -1, dtype=np.int32)
        for i in self._counting:
            numbers[self.pods[i].index] = i
        pods = numbers[snapshot.placed_class]
        count = pods >= 0
        return pods[count], snapshot.placed_node[count]

    def part(self, kind: type[P]) -> P:
        """The part of a plug-in."""
        return next(part for part in self.parts if isinstance(part, kind))


def _not_at_all() -> None:
    """What depends on more than a signature says is not kept."""


_Signature = tuple[list[Any], ...]
"""Lists of objects: two are the same if these are the same objects."""

_MOST: Final = 8


class _Kept:
    """What was compiled last, by what it was compiled from; kept with an interner."""

    def __init__(self) -> None:
        self._found: list[tuple[_Signature, PodClasses]] = []

    def find(self, signature: _Signature) -> PodClasses | None:
        """What was compiled from the very same."""
        for known, classes in self._found:
            if all(len(a) == len(b) and all(map(is_, a, b)) for a, b in zip(known, signature, strict=True)):
                return classes
        return None

    def add(self, signature: _Signature, classes: PodClasses) -> None:
        """Keep something instead of the oldest."""
        self._found = [(signature, classes), *self._found[: _MOST - 1]]
