"""``kscale.load``: read a cluster from files and data, or from a live API server.

Not in upstream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from kscale.errors import Problem
from kscale.objects.argument_types import typed
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.cluster import load as load_sources
from kscale.snapshot.loading import LoadReport
from kscale.snapshot.pods.store import Texts
from kscale.version import __version__

if TYPE_CHECKING:
    from kscale.world.kubernetes.client import Client
    from kscale.world.kubernetes.transport import ServerLimits

__all__ = ["load", "run_with_client"]

T = TypeVar("T")
_QPS, _BURST = 50.0, 300  # as kubectl's client-side rate limit


@typed
def load(
    *sources: Any,
    context: str | None = None,
    kubeconfig: str | None = None,
    strict: bool = True,
    report: LoadReport | None = None,
    threads: int | None = None,
    texts: Texts = "all",
) -> Cluster:
    """Read a cluster from files and data, or a live one from its API server.

    Reads JSON and YAML, several documents, lists of any kind, .gz and .zst. Several sources are merged.

    Parameters
    ----------
    *sources : path, str, file, bytes, dict, struct or client object
        Paths may be directories; ``-`` is standard input. Their objects are added to those of a live cluster.
    context : str, optional
        Read the live cluster of this context of the kubeconfig (extra ``[kube]``). Empty: the current context.
    kubeconfig : str, optional
        Path of the kubeconfig; without ``context`` its current context is used. Default: as kubectl finds it.
    strict : bool
        Whether an object that cannot be read is an error. Otherwise such objects are left out. A source that cannot be
        read at all is always an error.
    report : LoadReport, optional
        Filled with counts and messages about what was read and skipped. Also available as ``cluster.report``, where
        ``problems`` also names kinds that the API server did not permit to list.
    threads : int, optional
        Number of threads that read long JSON lists. Default: the number of CPUs. The result does not depend on it.
    texts : str
        Pods whose full text is stored: ``all`` or ``pending``, as for :class:`~kscale.snapshot.cluster.Cluster`. Texts
        of uncompressed files are not copied to memory.

    Returns
    -------
    Cluster
        The objects as they are now; it does not follow later changes.

    Raises
    ------
    InputError
        If sources or objects cannot be read (one error lists all problems), or the kubeconfig cannot be used.
    MissingExtraError
        If a live cluster is to be read and aiohttp is not installed.
    RequestFailedError
        If the API server cannot be read.
    """
    if context is None and kubeconfig is None:
        return load_sources(*sources, strict=strict, report=report, threads=threads, texts=texts)
    from kscale.world.kubernetes.listing import list_cluster

    listing = run_with_client(list_cluster, context=context or "", kubeconfig=kubeconfig or "")
    cluster = load_sources(*listing.pages, *sources, strict=strict, report=report, threads=threads, texts=texts)
    cluster.report.problems += [Problem(f"not read: {why}", object=kind) for kind, why in listing.refused.items()]
    return cluster


def run_with_client(
    request: Callable[[Client], Awaitable[T]],
    *,
    context: str = "",
    kubeconfig: str = "",
    limits: ServerLimits | None = None,
    user_agent: str = "",
) -> T:
    """Run ``request`` with a client of an API server and return its result.

    Within a running event loop, as in a notebook, ``request`` runs on a separate thread. ``context``, ``kubeconfig``:
    as for :func:`load`; ``limits``: limits of the server's responses; ``user_agent``: the User-Agent header (default:
    kscale with its version). Raises what ``request`` raises, InputError if the kubeconfig cannot be used, and
    MissingExtraError without aiohttp.
    """
    import asyncio  # imported here because dumps are read without it, in less time than its import takes
    from concurrent.futures import ThreadPoolExecutor

    from kscale.world.clock import SystemClock
    from kscale.world.kubernetes.aiohttp_transport import connect
    from kscale.world.kubernetes.kubeconfig import load_access
    from kscale.world.kubernetes.transport import ServerLimits

    access = load_access(kubeconfig, context=context)

    async def run() -> T:
        client = connect(
            access,
            SystemClock(),
            user_agent=user_agent or f"kscale/{__version__}",
            qps=_QPS,
            burst=_BURST,
            limits=limits or ServerLimits(),
        )
        try:
            return await request(client)
        finally:
            await client.close()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(run())).result()
