"""The pods of a snapshot compiled for removals, once: every simulator begins with a copy."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from kscale._native import _removals
from kscale.ca.by_identity import kept_with
from kscale.ca.pod_lists.tpu import TPU_PREFIX, clear_tpu_requests
from kscale.ca.scale_down.moving_pods import MovingPods
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.session import Session
from kscale.snapshot.interner import PodClass
from kscale.snapshot.snapshot import Snapshot

__all__ = ["CompiledRemoval", "compiled_removal"]


class CompiledRemoval:
    """Pods on their nodes, ready to be moved: what a simulator changes. ``moves_as``: int32[pods], the class that each
    pod is placed with elsewhere, by its number in the session."""

    __slots__ = ("moves_as", "pods", "removals", "session")

    def __init__(self, snapshot: Snapshot, pods: MovingPods, profile: SchedulerProfile | None) -> None:
        classes = pods.classes()
        stripped = _stripped(snapshot, pods, classes)
        self.pods = pods
        self.session = Session(snapshot, dict.fromkeys([*classes, *stripped.values()]), profile=profile, moving=True)
        number = self.session.numbers(len(snapshot.interner.classes))
        runs_as = number[pods.class_of]
        for of, without in stripped.items():
            number[of] = self.session.classes_of([without])[0]
        self.moves_as: NDArray[np.int32] = number[pods.class_of] if stripped else runs_as
        self.removals = _removals.Removals(
            self.session.engine, runs_as, self.moves_as, np.ascontiguousarray(pods.priority), pods.node
        )

    def copy(self) -> CompiledRemoval:
        """The same, which changes apart from this one."""
        made = copy(self)
        made.session = self.session.copy()
        made.removals = self.removals.copy(made.session.engine)
        return made


class _Untouched:
    """What was compiled for a snapshot last, as no simulator has changed it; kept with the snapshot. ``asked``: it was
    asked for once, which is all for most snapshots: who asks first gets what was compiled itself."""

    def __init__(self) -> None:
        self.asked = False
        self.last: tuple[SchedulerProfile | None, CompiledRemoval] | None = None


def compiled_removal(
    snapshot: Snapshot, profile: SchedulerProfile | None, pods: MovingPods, *, more: bool = False
) -> CompiledRemoval:
    """The placed ``pods`` of a snapshot, compiled for one simulator that begins with them alone, and once for all
    others; ``more``: there are more pods than these."""
    if more:
        return CompiledRemoval(snapshot, pods, profile)
    kept = snapshot.memo.of(_Untouched, _Untouched)
    if kept.last is not None and kept.last[0] == profile:
        return kept.last[1].copy()
    made = CompiledRemoval(snapshot, pods, profile)
    asked, kept.asked = kept.asked, True
    if made.session.has_ledger or not asked:
        return made
    kept.last = profile, made
    return made.copy()


def _stripped(snapshot: Snapshot, pods: MovingPods, classes: Sequence[PodClass]) -> dict[int, PodClass]:
    """Class number -> the class without requests for TPUs, of the classes that have any."""
    found = {}
    asks = kept_with(snapshot, ("TPU",), classes, _asks_for_tpu)
    for of in [each for each, does in zip(classes, asks, strict=True) if does]:
        first = int(np.flatnonzero(pods.class_of == of.index)[0])
        [plain] = clear_tpu_requests([pods.pod(first)])
        found[of.index] = snapshot.interner.classify(plain, placed=True, moves=True)
    return found


def _asks_for_tpu(of: PodClass) -> bool:
    return any(name.startswith(TPU_PREFIX) for name in of.occupancy)
