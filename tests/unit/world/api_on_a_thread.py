"""The fake API server on a loop of its own, asked from the thread of a test, as clouds ask it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import Any

from kscale.effects import Action
from kscale.objects.kinds import ServedResource
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.client import Client
from kscale.world.kubernetes.performer import Performer
from kscale.world.nodegroups.provider import blocking
from unit.world.fake_api_server import FakeApiServer


class ThreadedApi:
    """``ask`` carries an action out."""

    def __init__(self, resources: Iterable[ServedResource] = ()) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        clock = SystemClock()
        self.server = FakeApiServer(clock, resources=resources)
        self.ask: Callable[[Action], Any] = blocking(Performer(Client(self.server, clock, qps=-1), clock), self.loop)

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def names(self, plural: str = "nodes") -> list[str]:
        return [each["metadata"]["name"] for each in self.server.all(plural)]
