"""Compiles pod classes: PreFilter verdicts, static filter verdicts and the counters that each class reads.

The results are cached with the cluster from snapshot to snapshot. They are recomputed only for classes whose plug-ins
depend on objects that changed (:meth:`kscale.scheduling.plugins.base.Plugin.get_dependencies`).
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
from kscale.snapshot.caches import TypedCache
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.columns import FIXED_RESOURCES
from kscale.snapshot.snapshot import Snapshot

__all__ = ["CompiledPod", "CompiledPodCache", "JudgeKey", "Judges", "PodClasses", "PodCompiler", "StaticRows"]


JudgeKey = tuple[int, Hashable]
"""(ordinal of the plug-in, key of the judge)."""

Judges = tuple[tuple[JudgeKey, Judge], ...]

_MOST_PROFILES: Final = 4
_FIXED: Final = frozenset(FIXED_RESOURCES)
_GROUNDED: Final = tuple(plugin for plugin in PROFILE if type(plugin).get_dependencies is not Plugin.get_dependencies)
_LOOKING: Final = tuple(plugin for plugin in PROFILE if type(plugin).get_counters is not Plugin.get_counters)


class CompiledPod(msgspec.Struct, eq=False):
    """What verdicts on a class depend on; classes may share one. ``looks``: (name of a plug-in, the counters that it
    reads); ``columns``: node columns that judges and PreFilters read; ``grounds``: the objects that all of this depends
    on; ``seen``: the backdrop for which that was last checked."""

    outcome: PreFilterOutcome
    judges: Judges
    looks: tuple[tuple[str, Any], ...]
    columns: frozenset[str]
    grounds: tuple[Any, ...]
    seen: int


class CompiledPodCache:
    """Compiled pods by class. ``backdrop``: the objects that plug-ins reported for the last context; ``number`` counts
    its changes."""

    def __init__(self) -> None:
        self._class: dict[int, PodClass] = {}
        self._question: dict[int, CompiledPod] = {}
        self._backdrop: tuple[Any, ...] = ()
        self._number = 0

    def get(self, pod: PodClass) -> CompiledPod | None:
        """Return the cached question of a class; None if there is none."""
        index = pod.index
        return self._question[index] if self._class.get(index) is pod else None  # numbers of classes are reused

    def insert(self, pod: PodClass, question: CompiledPod) -> None:
        """Cache the question of a class."""
        self._question[pod.index] = question
        self._class[pod.index] = pod

    def before(self, backdrop: tuple[Any, ...]) -> int:
        """Return the number of a backdrop, which increases when the backdrop changes."""
        if not _is_identical(self._backdrop, backdrop):
            self._backdrop = backdrop
            self._number += 1
        return self._number


class _CompiledPodCaches:
    """Cached questions for each profile and mode used recently; cached with an interner."""

    def __init__(self) -> None:
        self._found: list[tuple[SchedulerProfile, bool, bool, CompiledPodCache]] = []

    def of(self, profile: SchedulerProfile, *, csi: bool, dra: bool) -> CompiledPodCache:
        """Return the cached questions of a profile and a mode; create an empty cache if there is none."""
        for entry in self._found:
            if entry[1:3] == (csi, dra) and entry[0] == profile:
                return entry[3]
        questions = CompiledPodCache()
        self._found = [(profile, csi, dra, questions), *self._found[: _MOST_PROFILES - 1]]
        return questions


class PodCompiler:
    """Questions of the classes of a context. ``kept``: the cache of earlier ones."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.kept = ctx.snapshot.interner.memo.get(_CompiledPodCaches, _CompiledPodCaches).of(
            ctx.profile, csi=ctx.csi, dra=ctx.dra
        )
        self._pairs: dict[JudgeKey, tuple[JudgeKey, Judge]] = {}
        self._together: dict[Judges, tuple[Judges, frozenset[str]]] = {}
        self._plain: dict[tuple[int, int, str, frozenset[str]], CompiledPod] = {}
        self._may_be_plain = not ctx.profile.default_constraints
        self._devices = ctx.dra  # not whether a device class provides a resource, as one may be added later
        self._seen = self.kept.before(
            tuple(each for plugin in _GROUNDED for each in plugin.get_shared_dependencies(ctx))
        )

    def get(self, pod: PodClass) -> CompiledPod:
        """Return the question of a class in the current state, from the cache if nothing changed."""
        cached = self.kept.get(pod)
        if cached is not None and (not cached.grounds or cached.seen == self._seen):
            return cached
        if self.is_plain(pod):
            question = self._plainly(pod)
            self.kept.insert(pod, question)
            return question
        grounds = self._grounds(pod)
        if grounds is None:
            return self._question(pod, ())
        if cached is not None and _is_identical(cached.grounds, grounds):
            cached.seen = self._seen
            return cached
        question = self._question(pod, grounds)
        self.kept.insert(pod, question)
        return question

    def is_plain(self, pod: PodClass) -> bool:
        """Check whether the class's question depends only on its tolerations, selection, node name and features.

        That is so if the pod has nothing else that a plug-in reads.
        """
        if pod.volumes or pod.ports or pod.claims or pod.spread or not self._may_be_plain:
            return False
        if pod.affinity or pod.anti_affinity or pod.preferred_affinity or pod.preferred_anti_affinity:
            return False
        return not self._devices or _FIXED.issuperset(pod.demand)

    def _plainly(self, pod: PodClass) -> CompiledPod:
        key = pod.tolerations_id, pod.selection_id, pod.node_name, pod.features
        question = self._plain.get(key)
        if question is None:
            question = self._plain[key] = self._question(pod, ())
        return question

    def _grounds(self, pod: PodClass) -> tuple[Any, ...] | None:
        objects: list[Any] = []
        for plugin in _GROUNDED:
            grounds = plugin.get_dependencies(pod, self._ctx)
            if grounds is None:
                return None
            objects += grounds
        return tuple(objects)

    def _question(self, pod: PodClass, grounds: tuple[Any, ...]) -> CompiledPod:
        ctx, disabled = self._ctx, self._ctx.profile.disabled_filters
        outcome = run_prefilters(pod, ctx)
        judge_pairs: list[tuple[JudgeKey, Judge]] = []
        for plugin in STATIC if outcome.failure is None else ():
            judge = plugin.judge(pod, ctx) if plugin.name not in disabled else None
            if judge is not None:
                key = plugin.ordinal, judge.key
                judge_pairs.append(self._pairs.setdefault(key, (key, judge)))
        looks = []
        for plugin in _LOOKING:
            seen = plugin.get_counters(pod, ctx)
            if seen is not None:
                looks.append((plugin.name, seen))
        judges, columns = self._share_judges(tuple(judge_pairs))
        return CompiledPod(
            outcome=outcome,
            judges=judges,
            looks=tuple(looks),
            columns=columns if outcome.nodes is None else columns | {NAME},
            grounds=grounds,
            seen=self._seen,
        )

    def _share_judges(self, judges: Judges) -> tuple[Judges, frozenset[str]]:
        """Return the judges and the columns that they read, as one object shared by all classes with the same judges.

        Sharing reduces the cost of garbage collection if there are many different pods.
        """
        cached = self._together.get(judges)
        if cached is None:
            cached = self._together[judges] = judges, frozenset().union(*(judge.columns for _, judge in judges))
        return cached


def _is_identical(one: tuple[Any, ...], other: tuple[Any, ...] | None) -> bool:
    return other is not None and len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


_Row = tuple[frozenset[str] | None, tuple[JudgeKey, ...]]
"""(names of nodes that PreFilters allow, or None; judges)."""


class StaticRows:
    """Rows of static verdicts; classes with the same PreFilter node set and judges share one."""

    def __init__(self) -> None:
        self._judges: dict[JudgeKey, Judge] = {}
        self._rows: dict[_Row, int] = {}
        self.row(None, ())

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, nodes: frozenset[str] | None, judges: Judges) -> int:
        """Return the number of a row, which is added if it is new. Row 0 passes everything."""
        keys = tuple([key for key, _ in judges])
        number = self._rows.get((nodes, keys))
        if number is None:
            number = self._rows[nodes, keys] = len(self._rows)
            for key, judge in judges:
                self._judges.setdefault(key, judge)
        return number

    def table(self, classes: NodeClasses) -> NDArray[np.uint16]:
        """Return the rows' verdicts: uint16[rows, node classes].

        Bit i: plug-in i fails. Bit 0: a PreFilter excludes the node.
        """
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
    """Pod classes of a session, compiled.

    ``pods``: classes by number: first the ``asked`` many that may be checked, then those that are only placed or
    removed, then placed ones that count in some counter. ``number``: number by index. ``outcomes``: PreFilter outcomes
    of the classes that may be checked.

    ``rows``, ``parts``, ``statics``: what the classes add to the engine. Nothing changes after ``settle``; then the
    object is cached, and reused by any session with the same inputs.
    """

    def __init__(self, asked: Iterable[PodClass], questions: Sequence[CompiledPod], others: Iterable[PodClass]) -> None:
        self.pods = [*asked, *others]
        self.number = {pod.index: i for i, pod in enumerate(self.pods)}
        self.asked = len(questions)
        self.given = len(self.pods)
        """Number of classes without the placed ones that count in some counter."""
        self.outcomes: list[PreFilterOutcome] = [question.outcome for question in questions]
        self.rows = Rows()
        self._part_of = {plugin.name: part for plugin in PROFILE if (part := plugin.part(self.rows)) is not None}
        self.parts = list(self._part_of.values())
        self.statics = StaticRows()
        self.devices = False
        """Whether any pod may request devices."""
        self._questions = questions
        self.memo = TypedCache()
        """Cached results that depend only on these classes and the profile."""
        self._settled = False
        self._keep: Callable[[], None] = _not_at_all

    @classmethod
    def of(
        cls, ctx: Context, asked: Iterable[PodClass], others: Iterable[PodClass], templates: Sequence[NodeTemplate]
    ) -> PodClasses:
        """Return the classes of a session, which the caller has to ``settle``.

        They come from the cache if the inputs are the same.
        """
        wanted = {pod.index: pod for pod in asked}
        all_questions = PodCompiler(ctx)
        questions = [all_questions.get(pod) for pod in wanted.values()]
        more = {pod.index: pod for pod in others if pod.index not in wanted}
        classes = cls(wanted.values(), questions, more.values())
        classes.devices = Claims.of(ctx).any_request_devices(classes.pods)
        if classes.devices:  # devices are counted together with those of other classes, so nothing can be cached
            classes._register_classes(ctx)
            return classes
        cache = ctx.snapshot.interner.memo.get(_CachedPodClasses, _CachedPodClasses)
        signature = classes._signature(ctx, all_questions.kept, templates)
        cached = cache.find(signature)
        if cached is not None:
            return cached
        classes._register_classes(ctx)
        classes._keep = lambda: cache.add(signature, classes)
        return classes

    def _signature(self, ctx: Context, profile: CompiledPodCache, templates: Sequence[NodeTemplate]) -> _Signature:
        placed = ctx.snapshot.placed_classes
        storage = [pod for pod in (*self.pods[self.asked :], *placed) if pod.volumes]
        around = [each for plugin in PROFILE for each in plugin.get_part_dependencies(storage, ctx)]
        copies = [template.csi_node for template in templates]
        return [profile], list(self._questions), list(self.pods), placed, around, copies

    def _register_classes(self, ctx: Context) -> None:
        for part in self.parts:
            part.present(ctx.snapshot.placed_classes)
            part.present(self.pods)
        for pod, question in zip(self.pods, self._questions, strict=False):  # the first of them may be checked
            for name, looks in question.looks:
                self._part_of[name].add_class(pod, looks)

    def columns(self) -> frozenset[str]:
        """Return the node columns that verdicts and counters depend on."""
        return self.rows.columns().union(*{question.columns for question in self._questions})

    def compile(self, ctx: Context, copies: list[NodeFacts], elsewhere: Callable[[int], bool]) -> None:
        """Compile the classes once all inputs are known.

        ``copies``: new nodes that may be added. ``elsewhere``: whether the ledger, not a judge, decides on a class's
        devices.
        """
        if self._settled:
            return
        for part in self.parts:
            part.finish_classes(self.pods[: self.asked], ctx, copies)
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
        awake = [part for part in self.parts if part.is_used()]
        for pod in ctx.snapshot.placed_classes if awake or self.rows.rows else ():
            if pod.index in self.number:
                continue
            if any(part.may_count(pod) for part in awake) or any(self.rows.get_counting_rows(pod)):
                entry = self._entry(pod, ctx, asked=False)
                if entry is not None:
                    self.number[pod.index] = len(self.pods)
                    self.pods.append(pod)
                    entries.append(entry)
        self._arrays(static_rows)
        self.extras = _pod_classes.Extras(entries)
        self._counting = [i for i, entry in enumerate(entries) if entry is not None]
        self._settled = True
        keep, self._keep = self._keep, _not_at_all  # it refers to this object: avoid a reference cycle
        keep()

    def _entry(self, pod: PodClass, ctx: Context, *, asked: bool) -> dict[str, Any] | None:
        spread, rows = self.rows.get_counting_rows(pod)
        entry: dict[str, Any] = {"spread_touch": spread} if spread else {}
        if rows:
            entry["touch"] = rows
        for part in self.parts:
            if part.may_count(pod):
                for name, value in part.entry(pod, ctx, asked=asked).items():
                    entry[name] = entry[name] + value if name in entry else value
        return entry or None

    def _arrays(self, static_rows: list[int]) -> None:
        """Set the arrays by class number.

        ``static_row`` int32: row of static verdicts; ``failed`` uint8: whether the PreFilter fails; ``hosts`` uint8:
        whether the class spreads over hosts.
        """
        self.static_row = np.zeros(len(self.pods), dtype=np.int32)
        self.static_row[: self.asked] = static_rows
        self.failed, self.hosts = np.zeros((2, len(self.pods)), dtype=np.uint8)
        self.failed[: self.asked] = [outcome.failure is not None for outcome in self.outcomes]
        self.hosts[:] = [spreads_over_hosts(pod) for pod in self.pods]

    def get_placed_pods(self, snapshot: Snapshot) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return class number and node of each placed pod that counts in some counter: int32[n] each."""
        if not self._counting:  # avoids a useless scan of all placed pods
            return np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
        numbers = np.full(len(snapshot.interner.classes), -1, dtype=np.int32)
        for i in self._counting:
            numbers[self.pods[i].index] = i
        pods = numbers[snapshot.placed_class]
        count = pods >= 0
        return pods[count], snapshot.placed_node[count]

    def part(self, kind: type[P]) -> P:
        """Return the part of a plug-in by its type."""
        return next(part for part in self.parts if isinstance(part, kind))


def _not_at_all() -> None:
    """Do nothing. Used if the classes depend on more than the signature, and cannot be cached."""


_Signature = tuple[list[Any], ...]
"""Lists of objects. Two signatures are equal if their objects are identical."""

_MOST: Final = 8


class _CachedPodClasses:
    """The most recently compiled classes by their inputs; cached with an interner."""

    def __init__(self) -> None:
        self._found: list[tuple[_Signature, PodClasses]] = []

    def find(self, signature: _Signature) -> PodClasses | None:
        """Return the classes compiled from identical inputs; None if there are none."""
        for compiled_from, classes in self._found:
            if all(len(a) == len(b) and all(map(is_, a, b)) for a, b in zip(compiled_from, signature, strict=True)):
                return classes
        return None

    def add(self, signature: _Signature, classes: PodClasses) -> None:
        """Cache compiled classes under their signature; the oldest entry is dropped."""
        self._found = [(signature, classes), *self._found[: _MOST - 1]]
