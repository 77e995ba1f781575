"""Other controllers of the same HPAs, by what they write."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from kscale.effects import ZERO_TIME, Moment, from_text
from kscale.objects.autoscaling import HorizontalPodAutoscaler

__all__ = ["Rivals"]

_FRESH: Final = 4
"""Sync periods after which another that has written nothing is taken for gone."""
_FRESH_AGAIN: Final = 40
"""The same, once another has come back after it was taken for gone. Not much longer: nobody scales meanwhile if it is
gone by then."""
_log = logging.getLogger(__name__)


class _Rival(NamedTuple):
    """Of one HPA: when another wrote its status last (``written``, the API server's clock; the zero time: never) and
    when that was ``noticed`` (our clock); whether the HPA is ``left`` alone, and whether another ``returned``."""

    written: Moment
    noticed: Moment
    left: bool = False
    returned: bool = False


class Rivals:
    """Who else writes the status of HPAs. Single owner.

    ``manager``: our own name in ``managedFields``; ``period``: of syncs, in nanoseconds.

    Another is there for four periods after its last write. A controller writes a status only when something in it
    changes: one that was silent for longer may be there all the same. If it writes again while we work on its HPA, that
    is shown, and from then on it is there for 40 periods after its last write.

    How old a write is that was there when we first looked, is told by its time, unless that is yet to come; later ones
    count from when they are noticed, so that our clock need not agree with the API server's.
    """

    def __init__(self, manager: str, period: int) -> None:
        self._manager, self._period = manager, period
        self._known: dict[str, _Rival] = {}
        self._left: set[str] = set()

    @property
    def left_alone(self) -> int:
        """How many HPAs are another's."""
        return len(self._left)

    def clock_set(self, by: int) -> None:
        """The clock has been set by so many nanoseconds: what was noticed is as old as it was."""
        self._known = {
            key: rival._replace(noticed=rival.noticed + by) if rival.noticed != ZERO_TIME else rival
            for key, rival in self._known.items()
        }

    def forget(self, key: str) -> None:
        """An HPA is gone."""
        self._known.pop(key, None)
        self._left.discard(key)

    def has(self, hpa: HorizontalPodAutoscaler, key: str, now: Moment) -> bool:
        """Whether an HPA is another's now; ``key``: of the HPA."""
        known = self._known.get(key)
        if known is None and not hpa.metadata.managed_fields:
            return False
        name, written = "", ZERO_TIME
        for each in hpa.metadata.managed_fields:
            if (
                each.subresource == "status"
                and each.manager != self._manager
                and (at := from_text(each.time)) > written
            ):
                name, written = each.manager, at
        if known is None:
            rival = _Rival(written, min(written, now))
        elif written > known.written:
            rival = _Rival(written, now, returned=known.returned or not known.left)
        else:
            rival = known
        periods = _FRESH_AGAIN if rival.returned else _FRESH
        left = rival.noticed != ZERO_TIME and now < rival.noticed + periods * self._period
        if left and not (known and known.left):
            text = "HorizontalPodAutoscaler %s is left alone: %s writes its status%s"
            _log.warning(text, key, name, ", which had been silent" if rival.returned else "")
        if rival.left != left:
            rival = rival._replace(left=left)
            (self._left.add if left else self._left.discard)(key)
        if rival is not known:
            self._known[key] = rival
        return left
