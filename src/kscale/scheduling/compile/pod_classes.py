"""Compile pod classes: PreFilter verdicts, static filter verdicts and the counters each class reads.

All of it is kept with the cluster from snapshot to snapshot, and found anew only for classes whose plug-ins stand on
other objects by now (:meth:`kscale.scheduling.plugins.base.Plugin.grounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from operator import is_
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _pod_classes
from kscale.objects.nodegroup import NodeTemplate
from kscale.scheduling.compile.node_classes import NodeClasses
from kscale.scheduling.devices.claims import Claims
from kscale.scheduling.plugins import PROFILE, STATIC
from kscale.scheduling.plugins.base import Judge, Part, Plugin
from kscale.scheduling.plugins.dynamic_resources import DynamicResources
from kscale.scheduling.plugins.pod_topology_spread import spreads_over_hosts
from kscale.scheduling.prefilter import PreFilterOutcome, run_prefilters
from kscale.scheduling.profile import NAME, Context, NodeFacts, SchedulerProfile
from kscale.scheduling.topology_counters import Rows
from kscale.snapshot.caches import Memo
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.columns import FIXED_RESOURCES
from kscale.snapshot.snapshot import Snapshot

__all__ = ["JudgeKey", "Judges", "KeptQuestions", "PodClasses", "Question", "Questions", "StaticRows"]


JudgeKey = tuple[int, Hashable]
"""(ordinal of the plug-in, key of the judge)."""

Judges = tuple[tuple[JudgeKey, Judge], ...]

_MOST_PROFILES: Final = 4
_FIXED: Final = frozenset(FIXED_RESOURCES)
_GROUNDED: Final = tuple(plugin for plugin in PROFILE if type(plugin).grounds is not Plugin.grounds)
_LOOKING: Final = tuple(plugin for plugin in PROFILE if type(plugin).looks is not Plugin.looks)


class Question(msgspec.Struct, eq=False):
    """What a class asks; many may share one. ``looks``: (name of a plug-in, what it looks at); ``columns``: of nodes,
    that judges and PreFilters read; ``grounds``: what all of this stands on, ``seen``: the backdrop it was last found
    to stand on."""

    outcome: PreFilterOutcome
    judges: Judges
    looks: tuple[tuple[str, Any], ...]
    columns: frozenset[str]
    grounds: tuple[Any, ...]
    seen: int


class KeptQuestions:
    """Questions of classes. ``backdrop``: what plug-ins told of the last context, ``number`` counts how often that
    changed."""

    def __init__(self) -> None:
        self._class: dict[int, PodClass] = {}
        self._question: dict[int, Question] = {}
        self._backdrop: tuple[Any, ...] = ()
        self._number = 0

    def get(self, pod: PodClass) -> Question | None:
        """That of a class, as it was last found."""
        index = pod.index
        return self._question[index] if self._class.get(index) is pod else None  # numbers of classes are given again

    def put(self, pod: PodClass, question: Question) -> None:
        """Keep that of a class."""
        self._question[pod.index] = question
        self._class[pod.index] = pod

    def before(self, backdrop: tuple[Any, ...]) -> int:
        """The number of a backdrop."""
        if not _same(self._backdrop, backdrop):
            self._backdrop = backdrop
            self._number += 1
        return self._number


class _Kept:
    """Questions for each profile and mode that was last in use; kept with an interner."""

    def __init__(self) -> None:
        self._found: list[tuple[SchedulerProfile, bool, bool, KeptQuestions]] = []

    def of(self, profile: SchedulerProfile, *, csi: bool, dra: bool) -> KeptQuestions:
        """Those of a profile and a mode."""
        for entry in self._found:
            if entry[1:3] == (csi, dra) and entry[0] == profile:
                return entry[3]
        made = KeptQuestions()
        self._found = [(profile, csi, dra, made), *self._found[: _MOST_PROFILES - 1]]
        return made


class Questions:
    """What the classes of a context ask. ``kept``: what is known of earlier ones."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.kept = ctx.snapshot.interner.memo.of(_Kept, _Kept).of(ctx.profile, csi=ctx.csi, dra=ctx.dra)
        self._pairs: dict[JudgeKey, tuple[JudgeKey, Judge]] = {}
        self._together: dict[Judges, tuple[Judges, frozenset[str]]] = {}
        self._plain: dict[tuple[int, int, str, frozenset[str]], Question] = {}
        self._may_be_plain = not ctx.profile.default_constraints
        self._devices = ctx.dra  # and not whether a class stands for a resource: there may be one later
        self._seen = self.kept.before(tuple(each for plugin in _GROUNDED for each in plugin.backdrop(ctx)))

    def of(self, pod: PodClass) -> Question:
        """What a class asks, as things stand."""
        known = self.kept.get(pod)
        if known is not None and (not known.grounds or known.seen == self._seen):
            return known
        if self.is_plain(pod):
            made = self._plainly(pod)
            self.kept.put(pod, made)
            return made
        grounds = self._grounds(pod)
        if grounds is None:
            return self._question(pod, ())
        if known is not None and _same(known.grounds, grounds):
            known.seen = self._seen
            return known
        made = self._question(pod, grounds)
        self.kept.put(pod, made)
        return made

    def is_plain(self, pod: PodClass) -> bool:
        """Whether what the class asks follows from its tolerations, selection, node and features: it has nothing else
        that a plug-in reads."""
        if pod.volumes or pod.ports or pod.claims or pod.spread or not self._may_be_plain:
            return False
        if pod.affinity or pod.anti_affinity or pod.preferred_affinity or pod.preferred_anti_affinity:
            return False
        return not self._devices or _FIXED.issuperset(pod.demand)

    def _plainly(self, pod: PodClass) -> Question:
        key = pod.tolerations_id, pod.selection_id, pod.node_name, pod.features
        found = self._plain.get(key)
        if found is None:
            found = self._plain[key] = self._question(pod, ())
        return found

    def _grounds(self, pod: PodClass) -> tuple[Any, ...] | None:
        found: list[Any] = []
        for plugin in _GROUNDED:
            grounds = plugin.grounds(pod, self._ctx)
            if grounds is None:
                return None
            found += grounds
        return tuple(found)

    def _question(self, pod: PodClass, grounds: tuple[Any, ...]) -> Question:
        ctx, disabled = self._ctx, self._ctx.profile.disabled_filters
        outcome = run_prefilters(pod, ctx)
        found: list[tuple[JudgeKey, Judge]] = []
        for plugin in STATIC if outcome.failure is None else ():
            judge = plugin.judge(pod, ctx) if plugin.name not in disabled else None
            if judge is not None:
                key = plugin.ordinal, judge.key
                found.append(self._pairs.setdefault(key, (key, judge)))
        looks = []
        for plugin in _LOOKING:
            seen = plugin.looks(pod, ctx)
            if seen is not None:
                looks.append((plugin.name, seen))
        judges, columns = self._shared(tuple(found))
        return Question(
            outcome=outcome,
            judges=judges,
            looks=tuple(looks),
            columns=columns if outcome.nodes is None else columns | {NAME},
            grounds=grounds,
            seen=self._seen,
        )

    def _shared(self, judges: Judges) -> tuple[Judges, frozenset[str]]:
        """The same judges, and what they read: one object for all classes that have them, which is what many pods, no
        two alike, cost the garbage collector."""
        known = self._together.get(judges)
        if known is None:
            known = self._together[judges] = judges, frozenset().union(*(judge.columns for _, judge in judges))
        return known


def _same(one: tuple[Any, ...], other: tuple[Any, ...] | None) -> bool:
    return other is not None and len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


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
        kept = ctx.snapshot.interner.memo.of(_KeptOfPodClasses, _KeptOfPodClasses)
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


class _KeptOfPodClasses:
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
