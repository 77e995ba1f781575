"""What changes in a pod's life while its shape stays: moments, readiness, phase, and the version of the object."""

from __future__ import annotations

from typing import Final, NamedTuple

from kscale.objects.conditions import changed_at, find
from kscale.objects.core import Pod
from kscale.objects.times import ZERO_TIME, moment_in
from kscale.snapshot.record import READY

__all__ = ["COLUMNS", "PHASES", "PodMoments", "version_number"]

PHASES: Final = ("", "Pending", "Running", "Failed", "Succeeded", "Unknown")
"""Phases by number; 0 stands for any other text, too."""

_PHASE: Final = {phase: number for number, phase in enumerate(PHASES)}
_READY: Final = {status: number for number, status in enumerate(READY) if number}
_OTHER: Final = READY.index("Unknown")
_MOST_DIGITS: Final = 18


class PodMoments(NamedTuple):
    """Columns of one pod: see :mod:`kscale.snapshot.pod_table`; ``version_text``: the resource version as it is."""

    created: int
    started: int
    deleted: int
    since: int
    ready: int
    phase: int
    version: int
    version_text: str

    @classmethod
    def of(cls, pod: Pod) -> PodMoments:
        """Those of a pod. Raises InputError for what is no time."""
        metadata, status = pod.metadata, pod.status
        ready = find(status.conditions, "Ready")
        return cls(
            moment_in(pod, metadata.creation_timestamp, "metadata.creationTimestamp"),
            moment_in(pod, status.start_time, "status.startTime"),
            moment_in(pod, metadata.deletion_timestamp, "metadata.deletionTimestamp"),
            ZERO_TIME if ready is None else changed_at(pod, ready),
            0 if ready is None else _READY.get(ready.status, _OTHER),
            _PHASE.get(status.phase, 0),
            version_number(metadata.resource_version),
            metadata.resource_version,
        )


COLUMNS: Final = PodMoments._fields[:-1]
"""The columns, without the text."""


def version_number(text: str) -> int:
    """A resource version as a number, if it is one as API servers print them; -1 = none, -2 = another text."""
    if not text:
        return -1
    printed = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and (text[0] != "0" or len(text) == 1)
    return int(text) if printed else -2
