"""For how long the node that was left out longest has not been looked at (``core/scaledown/nodeevaltracker``)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kscale.effects import Moment

__all__ = ["MaxNodeSkipEvalTime"]


class MaxNodeSkipEvalTime(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """``last``: the pass before; ``since``: skipped node -> when it was last looked at."""

    last: Moment
    since: dict[str, Moment] = {}

    def update(self, skipped: Iterable[str], now: Moment) -> tuple[MaxNodeSkipEvalTime, int]:
        """After a pass that skipped these nodes: what to remember, and the longest time in nanoseconds."""
        since = {name: self.since.get(name, self.last) for name in skipped}
        return MaxNodeSkipEvalTime(last=now, since=since), now - min([now, *since.values()])
