"""Reports: what a machine has to say. They change nothing, and are answered at once with nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from kscale.objects.core import ObjectReference

__all__ = ["Emit", "Event", "Metric", "Observation", "Observe"]


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):  # nothing in it can lead back to it
    """What upstream would tell the API server about an object.

    ``regarding`` has kind, namespace, name and uid as far as they are known; ``type`` is ``Normal`` or ``Warning``,
    ``reason`` one word in camel case, ``message`` a sentence. Who
    reports it, when, and how often is for whoever sends it.
    """

    regarding: ObjectReference
    type: str
    reason: str
    message: str

    @property
    def about(self) -> str:
        """The object in words: ``Kind/namespace/name``, of an object at the root ``Kind/name``."""
        of = self.regarding
        return "/".join(part for part in (of.kind, of.namespace, of.name) if part)


class Metric(NamedTuple):
    """A metric of upstream's: its kind (``counter``, ``gauge``, ``histogram``, ``summary``), its labels in order, and
    the upper bounds of a histogram. ``of``: a summary of what another metric, a histogram, observes. ``help``: the text
    of its HELP line, upstream's where upstream has the metric."""

    name: str
    kind: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    of: str = ""
    help: str = ""


class Observation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What upstream would count: ``value`` is added to a counter, set on a gauge, observed in a histogram.

    ``buckets``: of many values observed at once, how many fell in each bucket (one more than the metric has bounds);
    ``value`` is then their sum. ``reset``: all that the metric holds, whatever its labels, is forgotten, and nothing
    else is said (``GaugeVec.Reset``).
    """

    name: str
    value: float = 1.0
    labels: dict[str, str] = {}
    buckets: tuple[int, ...] | None = None
    reset: bool = False


class Emit(msgspec.Struct, frozen=True):
    """Record events, in this order. They may be made when somebody looks (:class:`~kscale.effects.Deferred`)."""

    events: Sequence[Event]


class Observe(msgspec.Struct, frozen=True, gc=False):
    """Count observations, in this order; they may be made when somebody looks, too. What only a cloud knows (models of
    GPUs) is for the world to add."""

    observations: Sequence[Observation]
