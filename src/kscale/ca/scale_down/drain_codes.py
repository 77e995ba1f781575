"""Drainability of many pods as numbers, each kind of pod judged once (``simulator/drain.go``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kscale.ca.scale_down.drainability.context import DrainContext
from kscale.ca.scale_down.drainability.engine import default_rules, drain_status
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
_UNKNOWN = 255


class DrainCodes:
    """What the default rules but the last say of each pod; disruption budgets change and are asked anew.

    ``codes``: uint8[pods]. Rules read the same of all pods of a kind, but for the time of creation, which the rule on
    kube-system pods looks at. Verdicts are those of :func:`drain_status`.
    """

    __slots__ = ("_context", "_pods", "_rules", "codes")

    def __init__(self, pods: MovingPods, context: DrainContext) -> None:
        self._pods = pods
        self._context = context
        self._rules = default_rules(context.options)
        names = [rule.name for rule in self._rules]
        before = self._rules[: names.index("System")] if "System" in names else self._rules[:-1]
        of_kind = np.empty(len(pods.exemplars), dtype=np.uint8)
        one_by_one = []
        kept = pods.memo.of(_Timeless, _Timeless).of(context, len(pods.exemplars))
        for kind, pod in enumerate(pods.exemplars):
            if kept[kind] != _UNKNOWN:
                of_kind[kind] = kept[kind]
                continue
            aged = pod.metadata.namespace == _SYSTEM and len(before) < len(self._rules) - 1
            of_kind[kind] = self._code(pod, before if aged else self._rules[:-1])
            if aged and of_kind[kind] == MOVES_UNLESS_PDB:
                one_by_one.append(kind)
            if pod.metadata.namespace != _SYSTEM and pod.metadata.deletion_timestamp is None:
                kept[kind] = of_kind[kind]
        self.codes: NDArray[np.uint8] = of_kind[pods.kind_of]
        for i in np.flatnonzero(np.isin(pods.kind_of, one_by_one)).tolist() if one_by_one else ():
            self.codes[i] = self._code(pods.pod(i), self._rules[:-1])

    def _code(self, pod: Pod, rules: Sequence[object]) -> int:
        outcome = drain_status(pod, self._context, rules).outcome  # type: ignore[arg-type]  # a slice of rules
        if outcome == BLOCK_DRAIN:
            return BLOCKS
        if outcome == SKIP_DRAIN:
            return SKIPPED
        if outcome == WAIT_FOR_COMPLETION:
            return WAITS
        if outcome == UNDEFINED:
            return MOVES_UNLESS_PDB
        return DAEMON if is_daemonset_pod(pod) else MOVES

    def status(self, i: int) -> DrainStatus:
        """The whole verdict on one pod, budgets as they are now included."""
        pods = self._pods
        pod = pods.exemplars[pods.kind_of[i]]
        if pod.metadata.namespace == _SYSTEM:
            pod = pods.pod(i)
        else:  # all that the text needs besides is the name
            pod = replace(pod, metadata=replace(pod.metadata, name=pods.names[i].rpartition("/")[2]))
        return drain_status(pod, self._context, self._rules)


class _Timeless:
    """Codes of kinds of pods whose verdicts do not depend on the time: those that are not told to stop, and that the
    rule on kube-system pods passes over, which asks for budgets, too. For the options and listers that were in use
    last, with listers and without."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bool, tuple[DrainContext, NDArray[np.uint8]]] = {}

    def of(self, context: DrainContext, kinds: int) -> NDArray[np.uint8]:
        """uint8[kinds], to be filled in."""
        known = self._known.get(context.listers is None)
        if known is None or known[0].listers is not context.listers or known[0].options != context.options:
            known = context, np.full(kinds, _UNKNOWN, dtype=np.uint8)
            self._known[context.listers is None] = known
        return known[1]


class BudgetSets:
    """Which budgets cover each pod: those of pod i are ``ids[start[s]:start[s + 1]]`` with ``s = of_pod[i]``.

    ``of_pod``, ``start``, ``ids``: int32; ``ids`` are positions in the tracker's list.
    """

    __slots__ = ("ids", "of_pod", "start")

    def __init__(self, pods: MovingPods, tracker: RemainingPdbTracker) -> None:
        position = {id(pdb): i for i, pdb in enumerate(tracker.pdbs)}
        sets: dict[tuple[int, ...], int] = {(): 0}
        of_kind = np.zeros(len(pods.exemplars), dtype=np.int32)
        if position:
            for kind, pod in enumerate(pods.exemplars):
                covering = tuple(position[id(pdb)] for pdb in tracker.matching(pod))
                of_kind[kind] = sets.setdefault(covering, len(sets))
        self.of_pod: NDArray[np.int32] = of_kind[pods.kind_of]
        self.start: NDArray[np.int32] = np.cumsum([0, *map(len, sets)]).astype(np.int32)
        self.ids: NDArray[np.int32] = np.array([i for covering in sets for i in covering], dtype=np.int32)
