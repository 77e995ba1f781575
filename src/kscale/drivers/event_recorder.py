"""Events on their way to the API server, while everything else goes on (upstream: the broadcaster of
``client-go/tools/record``)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from kscale.drivers.correlator import CorrelatorOptions, EventCorrelator, make_event
from kscale.drivers.live import Live
from kscale.effects import Event, Moment
from kscale.objects.core import Event as EventObject
from kscale.world.protocols import Clock

__all__ = ["EventRecorder"]

_log = logging.getLogger(__name__)
_MOST_QUEUED: Final = 1000


class EventRecorder:
    """Takes events at once, and sends them one after the other.

    ``component``: who reports them. ``dropped`` counts events that came when a thousand were waiting already.
    """

    __slots__ = ("_clock", "_component", "_correlator", "_last", "_live", "_queue", "dropped")

    def __init__(self, live: Live, clock: Clock, *, component: str, options: CorrelatorOptions | None = None) -> None:
        self._live = live
        self._clock = clock
        self._component = component
        self._correlator = EventCorrelator(options)
        self._last: Moment = 0
        self._queue: asyncio.Queue[EventObject] = asyncio.Queue(_MOST_QUEUED)
        self.dropped = 0

    def emit(self, events: Sequence[Event]) -> None:
        """Takes events, in their order."""
        now = self._clock.now()
        for event in events:
            if event.type not in ("Normal", "Warning"):
                _log.error("Unsupported event type: %r", event.type)
                continue
            _log.info("Event(%s): type: %r reason: %r %s", event.about, event.type, event.reason, event.message)
            try:
                self._last = max(now, self._last + 1)  # two events of one moment differ in their names
                self._queue.put_nowait(make_event(event, component=self._component, now=self._last))
            except asyncio.QueueFull:
                self.dropped += 1
                _log.error("Unable to record event: too many queued events, dropped event of %s", event.about)

    async def run(self) -> None:
        """Sends what there is, for ever."""
        while True:
            event = await self._queue.get()
            if not await self._live.run(partial(self._correlator.record_steps, event)):
                _log.debug("Event(%s/%s) was not written", event.namespace, event.name)
            self._queue.task_done()

    async def drained(self) -> None:
        """Waits until all that was taken is sent, or given up."""
        await self._queue.join()
