"""Drainability of many pods as numbers, each shape of pod judged once (``simulator/drain.go``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as replace_context
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kscale.ca.scale_down.drainability.context import DrainContext, Rule
from kscale.ca.scale_down.drainability.engine import default_rules, drain_status
from kscale.ca.scale_down.drainability.rules.system import is_old
from kscale.ca.scale_down.drainability.status import (
    BLOCK_DRAIN,
    SKIP_DRAIN,
    UNDEFINED,
    WAIT_FOR_COMPLETION,
    DrainStatus,
)
from kscale.ca.scale_down.moving_pods import MovingPods
from kscale.ca.scale_down.pdb import RemainingPdbTracker
from kscale.objects.core import Pod
from kscale.objects.owners import is_daemonset_pod

__all__ = ["BLOCKS", "DAEMON", "MOVES", "MOVES_UNLESS_PDB", "SKIPPED", "WAITS", "BudgetSets", "DrainCodes"]

MOVES_UNLESS_PDB, MOVES, DAEMON, WAITS, SKIPPED, BLOCKS = range(6)
_SYSTEM = "kube-system"
_TIMELY, _AGING = 255, 254
_CONTEXTS = 4
"""A loop asks with and without controllers and budgets."""


class DrainCodes:
    """What the default rules but the last say of each pod; disruption budgets change and are asked anew.

    ``codes``: uint8[pods]. Rules read the same of all pods of a kind, but for the time of creation, which the rule on
    kube-system pods looks at. Verdicts are those of :func:`drain_status`.
    """

    __slots__ = ("_before_system", "_context", "_pods", "_rules", "codes")

    def __init__(self, pods: MovingPods, context: DrainContext) -> None:
        self._pods = pods
        self._context = context
        self._rules = default_rules(context.options)
        names = [rule.name for rule in self._rules]
        self._before_system = self._rules[: names.index("System")] if "System" in names else None
        listers, options = context.listers, context.options
        standing = None if listers is None else listers.standing(options.min_replica_count)
        of_kind = np.array(pods.of_kinds(("drain codes", standing, options), self._timeless), dtype=np.uint8)
        for kind in np.flatnonzero(of_kind == _TIMELY).tolist():
            of_kind[kind] = self._of_kind(pods.exemplars[kind], context)
        self.codes: NDArray[np.uint8] = of_kind.take(pods.kind_of)
        aging = np.flatnonzero(self.codes == _AGING)
        self.codes[aging] = pods.memo.of(_Aging, _Aging).codes_of(pods, aging, context, self._rules[:-1])

    def _timeless(self, pod: Pod) -> int:
        """The code of a kind, or ``_TIMELY`` if it depends on the time: of pods that are told to stop."""
        if pod.metadata.deletion_timestamp is not None:
            return _TIMELY
        return self._of_kind(pod, replace_context(self._context, pdbs=RemainingPdbTracker()))

    def _of_kind(self, pod: Pod, context: DrainContext) -> int:
        """The code of a kind, or ``_AGING`` where the rule on kube-system pods decides: it looks at times and budgets,
        and each pod has its own."""
        if pod.metadata.namespace != _SYSTEM or self._before_system is None:
            return _code(pod, context, self._rules[:-1])
        code = _code(pod, context, self._before_system)
        return _AGING if code == MOVES_UNLESS_PDB else code

    def status(self, i: int) -> DrainStatus:
        """The whole verdict on one pod, budgets as they are now included."""
        pods = self._pods
        pod = pods.exemplars[pods.kind_of[i]]
        if pod.metadata.namespace == _SYSTEM:
            pod = pods.pod(i)
        else:  # all that the text needs besides is the name
            pod = replace(pod, metadata=replace(pod.metadata, name=pods.names[i].rpartition("/")[2]))
        return drain_status(pod, self._context, self._rules)


def _code(pod: Pod, context: DrainContext, rules: Sequence[Rule]) -> int:
    outcome = drain_status(pod, context, rules).outcome
    if outcome == BLOCK_DRAIN:
        return BLOCKS
    if outcome == SKIP_DRAIN:
        return SKIPPED
    if outcome == WAIT_FOR_COMPLETION:
        return WAITS
    if outcome == UNDEFINED:
        return MOVES_UNLESS_PDB
    return DAEMON if is_daemonset_pod(pod) else MOVES


class _Aging:
    """Pods that are judged one by one, as time goes by; kept with them all. Of time their rules ask only whether a pod
    of the system is old enough (:func:`~.rules.system.is_old`): so each is judged once young and once old."""

    def __init__(self) -> None:
        self._pods: dict[int, Pod] = {}
        self._last: list[tuple[tuple[Any, ...], dict[tuple[int, bool], int]]] = []

    def codes_of(
        self, pods: MovingPods, which: NDArray[np.int64], context: DrainContext, rules: Sequence[Rule]
    ) -> list[int]:
        """The codes of some of the pods."""
        found = []
        known = self._known(context)
        for i in which.tolist():
            pod = self._pods.get(i)
            if pod is None:
                pod = self._pods[i] = pods.pod(i)
            asked = i, is_old(pod, context)
            code = known.get(asked)
            if code is None:
                code = known[asked] = _code(pod, context, rules)
            found.append(code)
        return found

    def _known(self, context: DrainContext) -> dict[tuple[int, bool], int]:
        """What was found out in contexts that differ from this one in time at most."""
        budgets = context.pdbs.family if context.pdbs.pdbs else None
        what = context.listers, context.options, budgets
        for asked, known in self._last:
            if asked == what:
                return known
        made: dict[tuple[int, bool], int] = {}
        self._last = [(what, made), *self._last[: _CONTEXTS - 1]]
        return made


class BudgetSets:
    """Which budgets cover each pod: those of pod i are ``ids[start[s]:start[s + 1]]`` with ``s = of_pod[i]``.

    ``of_pod``, ``start``, ``ids``: int32; ``ids`` are positions in the tracker's list.
    """

    __slots__ = ("ids", "of_pod", "start")

    def __init__(self, pods: MovingPods, tracker: RemainingPdbTracker) -> None:
        sets: dict[tuple[int, ...], int] = {(): 0}
        of_kind = np.zeros(len(pods.exemplars), dtype=np.int32)
        if tracker.pdbs:
            covering = pods.of_kinds(("budgets", tracker.family), tracker.covering)
            of_kind[:] = [sets.setdefault(found, len(sets)) for found in covering]
        self.of_pod: NDArray[np.int32] = of_kind.take(pods.kind_of)
        self.start: NDArray[np.int32] = np.cumsum([0, *map(len, sets)]).astype(np.int32)
        self.ids: NDArray[np.int32] = np.array([i for covering in sets for i in covering], dtype=np.int32)

    @classmethod
    def of(cls, pods: MovingPods, tracker: RemainingPdbTracker) -> BudgetSets:
        """Those of a tracker, worked out once for all that have its budgets."""
        kept = pods.memo.of(_LastSets, _LastSets)
        if kept.last is None or kept.last[0] is not tracker.family:
            kept.last = tracker.family, cls(pods, tracker)
        return kept.last[1]


class _LastSets:
    """Of the budgets that were asked about last; kept with pods."""

    def __init__(self) -> None:
        self.last: tuple[object, BudgetSets] | None = None
