"""Pods that count as one, and what each scale-up step finds out about them (``core/scaleup/equivalence``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from kscale.ca.scale_up.status import RemainingPod
from kscale.scheduling.verdict import Verdict

__all__ = ["PodGroup", "PodGroups"]


class PodGroup(msgspec.Struct, kw_only=True):
    """One equivalence group: its pods by key, the node groups that would take it, and why others would not."""

    pods: Sequence[str]
    schedulable: bool = False
    schedulable_groups: list[str] = []
    errors: dict[str, list[str]] = {}
    verdicts: dict[str, Verdict] = {}
    """By node group: what exactly stood against it, on an empty new node."""


class PodGroups:
    """All equivalence groups of a scale-up."""

    def __init__(self, groups: Iterable[Sequence[str]]) -> None:
        self.groups = [PodGroup(pods=pods) for pods in groups]

    def accept(self, number: int, group: str) -> None:
        """The node group takes the pods."""
        found = self.groups[number]
        found.schedulable = True
        found.schedulable_groups.append(group)

    def reject(self, number: int, group: str, verdict: Verdict) -> None:
        """The node group does not take them."""
        self.groups[number].errors[group] = list(verdict.reasons)
        self.groups[number].verdicts[group] = verdict

    def rename(self, old: str, new: str) -> None:
        """A group that did not exist was made, under another name."""
        for found in self.groups:
            found.schedulable_groups = [new if group == old else group for group in found.schedulable_groups]
            if old in found.errors:
                found.errors[new] = found.errors.pop(old)

    def erase(self, group: str) -> None:
        """Nothing is known of the group any more."""
        for found in self.groups:
            found.schedulable_groups = [name for name in found.schedulable_groups if name != group]
            found.errors.pop(group, None)

    def give_up(self, reason: str) -> None:
        """Everything that would have fitted somewhere stays."""
        for found in self.groups:
            if found.schedulable:
                found.schedulable = False
                found.errors.update({group: [reason] for group in found.schedulable_groups})

    def fail(self, failed: Collection[str], reason: str) -> None:
        """Node groups failed: pods that had no other one stay."""
        for found in self.groups:
            hit = [group for group in found.schedulable_groups if group in failed]
            found.errors.update({group: [reason] for group in hit})
            if found.schedulable and len(hit) == len(found.schedulable_groups):
                found.schedulable = False

    def remaining(self, skipped: Mapping[str, list[str]]) -> list[RemainingPod]:
        """The pods that no node group takes."""
        return [
            RemainingPod(pod=pod, rejected_groups=dict(found.errors), skipped_groups=dict(skipped))
            for found in self.groups
            if not found.schedulable
            for pod in found.pods
        ]

    def awaiting(self, best: str) -> list[str]:
        """The pods that some node group takes, but not the one that was chosen."""
        return [pod for found in self.groups if found.schedulable and best in found.errors for pod in found.pods]
