"""Drainability of many pods as numbers, each pod judged once (``simulator/drain.go``)."""

from __future__ import annotations

from collections.abc import Sequence

from kscale.ca.scale_down.drainability.context import DrainContext
from kscale.ca.scale_down.drainability.engine import default_rules, drain_status
from kscale.ca.scale_down.drainability.status import (
    BLOCK_DRAIN,
    SKIP_DRAIN,
    UNDEFINED,
    WAIT_FOR_COMPLETION,
    DrainStatus,
)
from kscale.ca.scale_down.pdb import RemainingPdb
from kscale.objects.core import Pod
from kscale.objects.owners import is_daemonset_pod
from kscale.snapshot.interner import PodClass

__all__ = ["BLOCKS", "DAEMON", "MOVES", "MOVES_UNLESS_PDB", "SKIPPED", "WAITS", "DrainCodes"]

MOVES_UNLESS_PDB, MOVES, DAEMON, WAITS, SKIPPED, BLOCKS = range(6)
_UNKNOWN = -1


class DrainCodes:
    """What the default rules but the last say of each pod; disruption budgets change and are asked anew.

    ``classes[i]`` is the class of ``pods[i]``: what rules read beyond it is annotations, volumes, phase and restart
    policy. Verdicts are those of :func:`drain_status`.
    """

    __slots__ = ("_classes", "_codes", "_context", "_of_kind", "_pdbs", "_pods", "_rules")

    def __init__(self, pods: Sequence[Pod], classes: Sequence[PodClass], context: DrainContext) -> None:
        self._pods = pods
        self._classes = classes
        self._context = context
        self._rules = default_rules(context.options)
        self._codes = [_UNKNOWN] * len(pods)
        self._of_kind: dict[tuple[int, str, str], int] = {}
        self._pdbs: dict[int, list[RemainingPdb]] = {}

    def code(self, i: int) -> int:
        """The verdict on a pod, budgets left aside."""
        code = self._codes[i]
        if code == _UNKNOWN:
            code = self._codes[i] = self._judge(i)
        return code

    def _judge(self, i: int) -> int:
        pod, of = self._pods[i], self._classes[i]
        timed = of.terminating or of.namespace == "kube-system"
        if timed or pod.metadata.annotations or pod.spec.volumes:
            return self._code(pod)
        kind = of.index, pod.status.phase, pod.spec.restart_policy
        code = self._of_kind.get(kind)
        if code is None:
            code = self._of_kind[kind] = self._code(pod)
        return code

    def _code(self, pod: Pod) -> int:
        outcome = drain_status(pod, self._context, self._rules[:-1]).outcome
        if outcome == BLOCK_DRAIN:
            return BLOCKS
        if outcome == SKIP_DRAIN:
            return SKIPPED
        if outcome == WAIT_FOR_COMPLETION:
            return WAITS
        if outcome == UNDEFINED:
            return MOVES_UNLESS_PDB
        return DAEMON if is_daemonset_pod(pod) else MOVES

    def budgets(self, i: int) -> list[RemainingPdb]:
        """The budgets that cover a pod."""
        of = self._classes[i]
        found = self._pdbs.get(of.index)
        if found is None:
            found = self._pdbs[of.index] = self._context.pdbs.matching(self._pods[i])
        return found

    def first_blocking(self, pods: Sequence[int]) -> int | None:
        """The first pod that may not be moved."""
        asked = bool(self._context.pdbs.pdbs)
        known = self._codes
        for i in pods:
            code = known[i]
            if code == _UNKNOWN:
                code = self.code(i)
            if code == BLOCKS:
                return i
            if asked and code == MOVES_UNLESS_PDB and any(pdb.disruptions_allowed < 1 for pdb in self.budgets(i)):
                return i
        return None

    def status(self, i: int) -> DrainStatus:
        """The whole verdict on one pod, budgets included."""
        return drain_status(self._pods[i], self._context, self._rules)
