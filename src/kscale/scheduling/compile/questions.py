"""What pod classes ask of nodes: the verdicts of PreFilters, judges, and what is looked at of what is counted.

All of it is kept with the cluster from snapshot to snapshot, and found anew only for classes whose plug-ins stand on
other objects by now (:meth:`kscale.scheduling.plugins.base.Plugin.grounds`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import msgspec

from kscale.scheduling.context import Context
from kscale.scheduling.facts import NAME
from kscale.scheduling.plugins import PROFILE, STATIC
from kscale.scheduling.plugins.base import Judge, Plugin
from kscale.scheduling.prefilter import PreFilterOutcome, run_prefilters
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.columns import FIXED_RESOURCES
from kscale.snapshot.interner import PodClass

__all__ = ["JudgeKey", "Judges", "KeptQuestions", "Question", "Questions"]

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
