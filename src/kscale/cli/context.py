"""The cluster of a context of the kubeconfig, as it is now."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import kscale

if TYPE_CHECKING:
    from kscale.objects.meta import KubeObject

__all__ = ["read_context"]


def read_context(name: str, kubeconfig: str = "") -> list[KubeObject]:
    """All that a simulation goes on from. Raises :class:`~kscale.InputError` for a kubeconfig that cannot be used,
    and :class:`~kscale.errors.KscaleError` for a cluster that cannot be read."""
    from kscale.world.clock import SystemClock
    from kscale.world.kubernetes.aiohttp_transport import connect
    from kscale.world.kubernetes.cluster_reading import read_cluster
    from kscale.world.kubernetes.kubeconfig import load_access

    access = load_access(kubeconfig, context=name)

    async def read() -> list[KubeObject]:
        clock = SystemClock()
        client = connect(access, clock, user_agent=f"kscale/{kscale.__version__}", qps=50.0, burst=100)
        try:
            return await read_cluster(client, clock)
        finally:
            await client.close()

    return asyncio.run(read())
