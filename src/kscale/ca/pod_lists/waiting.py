"""Pods that wait, with one example of each kind: what a rule says of the example holds for all of its kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.ca.pod_lists.young import DELAY_ANNOTATION
from kscale.objects.core import Pod
from kscale.objects.owners import DAEMONSET_POD_ANNOTATION, is_daemonset_pod
from kscale.snapshot.pod_rows import PodRows
from kscale.snapshot.record import PodRecord

__all__ = ["WaitingPods"]

_KINDS = "kinds of waiting pods"


class WaitingPods:
    """Pods in order. ``kind``: int32[n], into ``examples``; pods of one kind are alike in all that the rules for lists
    of pods read, their requests and the time they were made included."""

    __slots__ = ("examples", "kind", "records")

    def __init__(self, records: Sequence[PodRecord], kind: NDArray[np.int32], examples: Sequence[Pod]) -> None:
        self.records = records
        self.kind = kind
        self.examples = examples

    def __len__(self) -> int:
        return len(self.records)

    @classmethod
    def of(cls, records: Sequence[PodRecord]) -> WaitingPods:
        """Pending pods of a snapshot are looked at once, others each as a kind of its own."""
        if not isinstance(records, PodRows) or not records.pending:
            return cls(records, np.arange(len(records), dtype=np.int32), [record.pod for record in records])
        memo = records.table.memo
        with memo.lock:
            stamps, known = records.stamps, memo.of(_KINDS)
            kinds = memo.values(_KINDS)
            missing = np.flatnonzero(known[stamps] == 0)
            numbers: list[int] = []
            unknown = records.take(missing)
            for identity in zip(unknown.classes.tolist(), _identities(unknown), strict=True):
                found = kinds.get(identity)
                if found is None:
                    found = kinds[identity] = len(kinds) + 1, unknown[len(numbers)].pod
                numbers.append(found[0])
            known[stamps[missing]] = numbers
            return cls(records, known[stamps] - 1, [pod for _, pod in kinds.values()])

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


def _identities(pods: PodRows) -> Iterator[tuple[object, ...]]:
    for at, source in enumerate(pods.sources()):
        if isinstance(source, PodRecord):
            yield _identity(source.pod)
        else:
            yield _identity_of_text(source, pods, at) or _identity(pods[at].pod)


def _identity(pod: Pod) -> tuple[object, ...]:
    """What rules read besides the class of the pod. Written out: tens of thousands of pods may wait."""
    scheduled = None
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled":
            scheduled = condition.status, condition.reason
            break
    metadata, spec = pod.metadata, pod.spec
    notes = metadata.annotations
    delay = notes.get(DELAY_ANNOTATION) if notes else None
    return (
        spec.scheduler_name,
        scheduled,
        spec.priority,
        metadata.creation_timestamp,
        is_daemonset_pod(pod) if notes or metadata.owner_references else False,
        None if delay is None else (delay, pod.key),  # what is said of an annotation names the pod
    )


class _Owner(msgspec.Struct):
    controller: bool | None = None
    kind: str = ""


class _Annotations(msgspec.Struct):
    delay: str | None = msgspec.field(default=None, name=DELAY_ANNOTATION)
    daemonset: str | None = msgspec.field(default=None, name=DAEMONSET_POD_ANNOTATION)


class _Metadata(msgspec.Struct, rename="camel"):
    creation_timestamp: str | None = None
    annotations: _Annotations | None = None
    owner_references: list[_Owner] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    scheduler_name: str = ""
    priority: int | None = None


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    reason: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Facts(msgspec.Struct):
    """What :func:`_identity` reads of a pod, and nothing else of its text."""

    metadata: _Metadata
    spec: _Spec
    status: _Status


_FACTS = msgspec.json.Decoder(_Facts)


def _identity_of_text(text: memoryview, records: PodRows, at: int) -> tuple[object, ...] | None:
    """The same from the text of the pod at a position, without decoding all of it, nor making a record: tens of
    thousands of pods may be new. None where that does not do."""
    try:
        facts = _FACTS.decode(text)
    except (msgspec.MsgspecError, RecursionError):  # decoding all of it says what is wrong
        return None
    metadata, notes = facts.metadata, facts.metadata.annotations
    condition = next((c for c in facts.status.conditions or () if c.type == "PodScheduled"), None)
    owner = next((each for each in metadata.owner_references or () if each.controller), None)
    delay = None if notes is None else notes.delay
    return (
        facts.spec.scheduler_name,
        None if condition is None else (condition.status, condition.reason),
        facts.spec.priority,
        metadata.creation_timestamp,
        (owner is not None and owner.kind == "DaemonSet") or (notes is not None and notes.daemonset == "true"),
        None if delay is None else (delay, records[at].key),
    )
