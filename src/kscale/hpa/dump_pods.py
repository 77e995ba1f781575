"""The pods of a dump, kept in a cluster: those of JSON lists are read as columns, the others one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from kscale.hpa.dump_json import time_of
from kscale.objects.core import Pod
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.pod_batch import PodBatch
from kscale.snapshot.pod_reader import ScannedList
from kscale.snapshot.sources import RawObject

__all__ = ["DumpPods", "records_of", "times_of"]

_TIMES: Final = re.compile(
    rb'Time(?:stamp)?(?:(?<="creationTimestamp)|(?<="startTime)|(?<="lastTransitionTime))"\s*:\s*"([^"]*)"'
)
"""Begins with what the names share: a pattern is looked for much faster by its first letters."""


class DumpPods:
    """Pods by ``namespace/name``, in order of first appearance; of those that come twice the last counts."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self._keys: set[str] = set()

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def namespaces(self) -> set[str]:
        """Where they are."""
        return {key.partition("/")[0] for key in self._keys}

    def scan(self, view: memoryview, source: str, place: str) -> ScannedList | None:
        """A list whose pods are read as columns; None: it has no items, or is read item by item."""
        found = self.cluster.reader.scan(view, source, place)
        return found if found is not None and len(found) else None

    def add(self, pod: Pod) -> bool:
        """Takes in a pod that says its namespace; whether it was there already.

        Raises :class:`~kscale.errors.InputError`.
        """
        self.cluster.apply_decoded(pod, None)
        return self._again(pod.key)

    def add_batch(self, batch: PodBatch) -> list[str]:
        """Takes pods in; those that were there already."""
        self.cluster.apply_batch(batch)
        new = set(batch.keys)
        if len(new) == len(batch.keys) and new.isdisjoint(self._keys):
            self._keys |= new
            return []
        return [key for key in batch.keys if self._again(key)]

    def _again(self, key: str) -> bool:
        if key in self._keys:
            return True
        self._keys.add(key)
        return False


def times_of(batch: PodBatch) -> Sequence[int] | None:
    """When anything became of the pods of a batch; None: a text of one of them is no time, and each has to be looked at
    alone."""
    begin, size = batch.column("begin").tolist(), batch.column("size").tolist()
    text = batch.view[begin[0] : begin[-1] + size[-1]]
    try:
        return [time_of(each.decode()) for each in set(_TIMES.findall(text))]
    except ValueError:
        return None


def records_of(batch: PodBatch) -> Iterator[RawObject]:
    """The pods of a batch one by one."""
    columns = (batch.column(name).tolist() for name in ("where", "begin", "size"))
    for where, begin, size in zip(*columns, strict=True):
        text = msgspec.Raw(batch.view[begin : begin + size])
        yield RawObject("v1", "Pod", text, batch.source, f"{batch.place}[{where}]")
