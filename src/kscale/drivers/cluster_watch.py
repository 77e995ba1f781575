"""Watch the objects of a live cluster that a plan may depend on; nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from kscale.snapshot.cluster import Cluster
from kscale.world.kubernetes.client import Client, RequestFailedError
from kscale.world.kubernetes.listing import NEEDED, READ
from kscale.world.kubernetes.stores import KubernetesStores
from kscale.world.protocols import Clock, Watch

__all__ = ["WATCHED", "ClusterWatch", "watch_cluster"]

WATCHED: Final = tuple(kind for kind in READ if not kind.endswith(("Autoscaler", "AutoscalerCheckpoint")))
"""Kinds that are watched."""
_POLL: Final = 0.05
"""Seconds between two looks at the informers."""


class ClusterWatch:
    """A cluster that is kept current by watches."""

    def __init__(self, stores: KubernetesStores, task: asyncio.Task[None]) -> None:
        self._stores, self._task = stores, task

    async def read(self) -> Cluster:
        """Wait until the cluster is a consistent state, and return it.

        The returned object changes again at the caller's next ``await``.

        Raises
        ------
        RequestFailedError
            If nodes or pods cannot be listed. Other kinds that cannot be listed have no objects.
        """
        while True:
            if self._task.done():
                self._task.result()
            for informer in self._stores.informers:
                error = informer.last_error
                if informer.watch.kind in NEEDED and not informer.synced and error is not None:
                    raise RequestFailedError(error)
            if all(informer.settled or informer.last_error is not None for informer in self._stores.informers):
                await self._stores.caught_up()
                return self._stores.cluster
            await asyncio.sleep(_POLL)

    @property
    def errors(self) -> dict[str, str]:
        """Return the current error of each kind whose list or watch fails."""
        informers = ((each.watch.kind, each.last_error) for each in self._stores.informers)
        return {kind: error.message for kind, error in informers if error is not None}


@asynccontextmanager
async def watch_cluster(client: Client, clock: Clock, kinds: Sequence[str] = WATCHED) -> AsyncIterator[ClusterWatch]:
    """Watch all objects of ``kinds`` while the context is open."""
    watches = [Watch(kind=kind, api_version="") for kind in kinds]
    stores = KubernetesStores(client, watches, clock)
    task = asyncio.create_task(stores.run(), name="watch the cluster")
    try:
        yield ClusterWatch(stores, task)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
