"""Pods that wait, with one example of each kind: what a rule says of the example holds for all of its kind."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kscale.objects.core import Pod
from kscale.snapshot.pod_rows import PodRows
from kscale.snapshot.record import PodRecord

__all__ = ["WaitingPods"]

_KINDS: Final = "kinds of waiting pods"
_FEW: Final = 256  # kinds that nobody has


class WaitingPods:
    """Pods in order. ``kind``: int32[n], into ``examples``; pods of one kind are alike in all that the rules for lists
    of pods read, their requests and the time they were made included. An example may be of an earlier loop."""

    __slots__ = ("examples", "kind", "records")

    def __init__(self, records: Sequence[PodRecord], kind: NDArray[np.int32], examples: Sequence[Pod]) -> None:
        self.records = records
        self.kind = kind
        self.examples = examples

    def __len__(self) -> int:
        return len(self.records)

    @classmethod
    def of(cls, records: Sequence[PodRecord]) -> WaitingPods:
        """Pending pods of a snapshot are compared once, others are each of a kind of their own."""
        if not isinstance(records, PodRows) or not records.pending:
            return cls(records, np.arange(len(records), dtype=np.int32), [record.pod for record in records])
        memo = records.table.memo
        with memo.lock:
            stamps, numbers, known = records.stamps, memo.of(_KINDS), memo.values(_KINDS)
            missing = np.flatnonzero(numbers[stamps] == 0)
            if len(missing):
                numbers[stamps[missing]] = _numbered(records.take(missing), known)
            present, kind = _as_met(numbers[stamps])
            entries = list(known.items())
            found = [entries[number - 1] for number in present.tolist()]
            if len(missing) and len(known) > 2 * len(found) + _FEW:
                known.clear()
                known.update((key, (number, pod)) for number, (key, (_, pod)) in enumerate(found, 1))
                numbers[:] = 0
                numbers[stamps] = kind + 1
        return cls(records, kind, [pod for _, (_, pod) in found])

    def take(self, positions: NDArray[np.int64]) -> WaitingPods:
        """The pods at some positions."""
        return WaitingPods(taken(self.records, positions), self.kind[positions], self.examples)

    @property
    def in_play(self) -> list[Pod]:
        """One pod of each kind that occurs, in the order the kinds were met first."""
        return [self.examples[number] for number in self._present.tolist()]

    @property
    def _present(self) -> NDArray[np.int64]:
        """The kinds that occur, ascending."""
        return np.flatnonzero(np.bincount(self.kind, minlength=len(self.examples)))

    def among(self, chosen: Iterable[Pod]) -> NDArray[np.bool_]:
        """Whose example is among these (by identity): bool[n]."""
        wanted = {id(pod) for pod in chosen}
        found = np.zeros(len(self.examples), dtype=np.bool_)
        for number in self._present.tolist():
            found[number] = id(self.examples[number]) in wanted
        return found[self.kind]

    def followed_by(self, pods: Sequence[Pod]) -> WaitingPods:
        """These, then others that are in no snapshot."""
        return WaitingPods.of([*self.records, *map(PodRecord, pods)]) if pods else self

    def kept_by(self, rule: Callable[[list[Pod]], Iterable[Pod]]) -> WaitingPods:
        """What a rule that only leaves pods out keeps."""
        return self.take(np.flatnonzero(self.among(rule(self.in_play))))

    @property
    def keys(self) -> list[str]:
        """``namespace/name``, in order."""
        return keys_of(self.records)


def _numbered(unknown: PodRows, known: dict[Hashable, tuple[int, Pod]]) -> NDArray[np.int64]:
    """The kinds of pods by number: int64[n]. ``known``: what the pods of a kind agree in -> its number and an example,
    in the order of numbers from 1 on; kinds that are not there yet are added."""
    firsts, which = unknown.kinds
    found = []
    for at, key in zip(firsts.tolist(), unknown.kind_keys(firsts), strict=True):
        if key not in known:
            known[key] = len(known) + 1, unknown[at].pod
        found.append(known[key][0])
    return np.array(found, dtype=np.int64)[which]


def _as_met(numbers: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """(the numbers that occur, in the order they are met first; int32[n]: which of them)."""
    first = np.full(int(numbers.max(initial=0)) + 1, len(numbers))
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]  # of a number that comes twice the last entry counts
    present = np.argsort(first, kind="stable")[: np.count_nonzero(first < len(numbers))]
    rank = np.empty(len(first), dtype=np.int32)
    rank[present] = np.arange(len(present))
    return present, rank[numbers]


def taken(records: Sequence[PodRecord], positions: NDArray[np.int64]) -> Sequence[PodRecord]:
    """The pods at some positions."""
    if isinstance(records, PodRows):
        return records.take(positions)
    return [records[i] for i in positions.tolist()]


def keys_of(records: Sequence[PodRecord]) -> list[str]:
    """``namespace/name`` of pods, in order."""
    if isinstance(records, PodRows):
        return records.keys_at(np.arange(len(records)))
    return [record.key for record in records]
