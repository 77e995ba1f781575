"""Equivalence groups of pods, and what each scale-up step found out about them (upstream:
``core/scaleup/equivalence``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.ca.estimator.result import GroupedPods
from kscale.ca.scale_up_status import NoScaleUpInfo
from kscale.scheduling.equivalent_pods import MAX_SHAPES
from kscale.scheduling.status import Verdict
from kscale.snapshot.pods.record import PodRecord

__all__ = ["GroupSchedulability", "PodGroup", "PodGroups", "find_compared_pods"]


def find_compared_pods(grouped: GroupedPods, records: Sequence[PodRecord]) -> frozenset[str]:
    """Return the keys of pods that upstream compared with another pod of the same controller and labels.

    A pod is compared with the first pod of each shape of its controller that has the same labels, at most ten shapes,
    until one shape matches. Upstream strips the specs of both in place: ``env`` and mounts of projected volumes.
    ``records`` are those of ``grouped``.
    """
    group_of = np.empty(len(records), dtype=np.int64)
    group_of[grouped.members] = np.repeat(np.arange(len(grouped.starts) - 1), np.diff(grouped.starts))
    recorded: dict[str, list[tuple[int, PodRecord]]] = {}
    compared: set[str] = set()
    for record, group in zip(records, group_of.tolist(), strict=True):
        if record.controller is None:
            continue
        shapes = recorded.setdefault(record.controller, [])
        labels = record.pod.metadata.labels
        for number, first in shapes:
            if first.pod.metadata.labels == labels:
                compared.update((record.key, first.key))
                if number == group:
                    break
        else:
            if len(shapes) < MAX_SHAPES:
                shapes.append((group, record))
    return frozenset(compared)


class PodGroup(msgspec.Struct, kw_only=True):
    """One equivalence group: its pods by key, the node groups that would take it, and why others would not."""

    pods: Sequence[str]
    schedulable: bool = False
    schedulable_groups: list[str] = []
    errors: dict[str, list[str]] = {}
    verdicts: dict[str, Verdict] = {}
    """By node group: what exactly stood against it, on an empty new node."""


class GroupSchedulability:
    """Verdicts of one node group on every equivalence group.

    ``fits``: bool[groups]. ``ask`` returns the verdicts on the exemplars that do not fit (numbered as in
    ``exemplar_of``: int32[groups]); it is called at most once, on request.
    """

    __slots__ = ("_ask", "_known", "exemplar_of", "fits")

    def __init__(
        self, fits: NDArray[np.bool_], exemplar_of: NDArray[np.int32], ask: Callable[[list[int]], dict[int, Verdict]]
    ) -> None:
        self.fits = fits
        self.exemplar_of = exemplar_of
        self._ask = ask
        self._known: dict[int, Verdict] | None = None

    def _verdicts(self) -> dict[int, Verdict]:
        if self._known is None:
            self._known = self._ask(np.unique(self.exemplar_of[~self.fits]).tolist())
        return self._known

    def verdict(self, number: int) -> Verdict:
        """Return why equivalence group ``number`` does not fit."""
        return self._verdicts()[int(self.exemplar_of[number])]

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """Return the state for pickling, with computed verdicts instead of the function that computes them."""
        return None, {"fits": self.fits, "exemplar_of": self.exemplar_of, "_known": self._verdicts()}


class _GroupVerdict:
    """Verdict of a node group, and later verdicts that replace it for some of the equivalence groups."""

    __slots__ = ("judgement", "rejected", "takes", "why")

    def __init__(self, judgement: GroupSchedulability) -> None:
        self.judgement = judgement
        self.takes = judgement.fits
        self.rejected = ~judgement.fits
        self.why: dict[str, NDArray[np.bool_]] = {}

    def reject(self, which: NDArray[np.bool_], reason: str) -> None:
        """Mark the pods of a mask as rejected for a reason."""
        self.rejected = self.rejected | which
        self.why[reason] = self.why.get(reason, False) | which

    def reasons(self, number: int) -> list[str]:
        for reason in reversed(self.why):
            if self.why[reason][number]:
                return [reason]
        return list(self.judgement.verdict(number).why)


class PodGroups(Sequence[PodGroup]):
    """All equivalence groups of a scale-up, as a lazy sequence.

    ``keys_of`` returns the pods of a group. ``exemplar_of``: int32[groups], the pod that verdicts are about: groups of
    one exemplar have the same verdicts. ``schedulable``: bool[groups].
    """

    def __init__(self, exemplar_of: NDArray[np.int32], keys_of: Callable[[int], list[str]]) -> None:
        self.size = size = len(exemplar_of)
        self.exemplar_of = exemplar_of
        self.keys_of = keys_of
        self.schedulable = np.zeros(size, dtype=np.bool_)
        self._said: dict[str, _GroupVerdict] = {}

    def blank(self) -> PodGroups:
        """Return the same groups without any verdicts."""
        return PodGroups(self.exemplar_of, self.keys_of)

    def judge(self, group: str, judgement: GroupSchedulability) -> None:
        """Record the verdicts of a node group."""
        self._said.pop(group, None)
        self._said[group] = _GroupVerdict(judgement)
        self.schedulable |= judgement.fits

    def rename(self, old: str, new: str) -> None:
        """Rename a group that was created under another name."""
        self._said = {new if name == old else name: verdicts for name, verdicts in self._said.items()}

    def erase(self, group: str) -> None:
        """Forget the verdicts of a group."""
        self._said.pop(group, None)

    def give_up(self, reason: str) -> None:
        """Reject all pods that would fit somewhere."""
        for verdicts in self._said.values():
            verdicts.reject(self.schedulable & verdicts.takes, reason)
        self.schedulable = np.zeros(self.size, dtype=np.bool_)

    def fail(self, failed: Collection[str], reason: str) -> None:
        """Set the failure reason for failed node groups.

        Pods that no other node group takes become unschedulable.
        """
        lost = np.zeros(self.size, dtype=np.bool_)
        left = np.zeros(self.size, dtype=np.bool_)
        for name, verdicts in self._said.items():
            if name in failed:
                verdicts.reject(verdicts.takes, reason)
                lost |= verdicts.takes
            else:
                left |= verdicts.takes
        self.schedulable = self.schedulable & (left | ~lost)

    # -- queries -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[PodGroup]:
        return map(self.__getitem__, range(self.size))

    def __getitem__(self, number: int) -> PodGroup:  # type: ignore[override]  # by number only
        if not -self.size <= number < self.size:
            raise IndexError(number)
        number %= self.size
        verdicts = self._said
        return PodGroup(
            pods=self.keys_of(number),
            schedulable=bool(self.schedulable[number]),
            schedulable_groups=[name for name, item in verdicts.items() if item.takes[number]],
            errors=self.errors(number),
            verdicts={
                name: item.judgement.verdict(number)
                for name, item in verdicts.items()
                if not item.judgement.fits[number]
            },
        )

    def errors(self, number: int) -> dict[str, list[str]]:
        """Return why node groups reject an equivalence group."""
        return {name: item.reasons(number) for name, item in self._said.items() if item.rejected[number]}

    def remaining(self, skipped: dict[str, list[str]]) -> list[NoScaleUpInfo]:
        """Return the pods that fit no node group."""
        infos = []
        for number in np.flatnonzero(~self.schedulable).tolist():
            errors = self.errors(number)
            infos += [
                NoScaleUpInfo(pod=pod, rejected_groups=errors, skipped_groups=skipped) for pod in self.keys_of(number)
            ]
        return infos

    def awaiting(self, best: str) -> list[str]:
        """Return the pods that fit some node group, but not the chosen one."""
        verdicts = self._said.get(best)
        if verdicts is None:
            return []
        return [pod for i in np.flatnonzero(self.schedulable & verdicts.rejected).tolist() for pod in self.keys_of(i)]
