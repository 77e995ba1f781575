"""The columns of the table of pods: a few numbers of each."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kscale.objects.times import ZERO_TIME

__all__ = ["COLUMN", "DEFAULTS", "NO_NUMBER", "POD_COLUMNS"]

POD_COLUMNS: Final[dict[str, Any]] = {
    "class_of": np.int32,  # pod class
    "at": np.int32,  # number of the node's name, -1 = none
    "state": np.int8,
    "priority": np.int64,
    "controller": np.int32,  # into the interner's controllers, -1 = stands alone
    "source": np.int32,  # into the buffers of texts, or -2 - exemplar, or -1: ``records`` has it
    "offset": np.int64,
    "size": np.int32,  # of the text, 0 = it is not kept
    "uid_offset": np.int32,  # from ``offset`` on
    "uid_size": np.int32,
    "shape": np.int32,  # shape of pods (:mod:`kscale.snapshot.pod_shapes`), 0 = not known yet
    "stamp": np.int64,  # another number whenever a row gets another pod
    "created": np.int64,  # ``metadata.creationTimestamp``: nanoseconds since 1970, as the next three
    "started": np.int64,  # ``status.startTime``
    "deleted": np.int64,  # ``metadata.deletionTimestamp``
    "since": np.int64,  # when the condition Ready last changed
    "ready": np.int8,  # into kscale.snapshot.record.READY
    "phase": np.int8,  # into kscale.snapshot.pod_moments.PHASES
    "seen": np.int8,  # whether a list that is being read has the pod
    "version": np.int64,  # ``metadata.resourceVersion``, -1 = none, -2 = ``versions`` has it
    "bound": np.int8,  # whether it is bound to its node, not only nominated
    "queueing": np.int32,  # how it waits, if it does (:mod:`kscale.snapshot.queueing`)
    "combined": np.int32,  # number of the combination of texts that it was read as, from 1; 0 = none
}
COLUMN: Final = {name: number for number, name in enumerate(POD_COLUMNS)}
"""Where each column is among them."""

NO_NUMBER: Final = -2
"""A resource version that is no number."""

DEFAULTS: Final = {
    "shape": 0, "created": ZERO_TIME, "started": ZERO_TIME, "deleted": ZERO_TIME, "since": ZERO_TIME, "version": -1,
}  # fmt: skip
"""Entries of columns that are not given; others are 0."""
