"""One-time listing of all objects that a plan may depend on, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kscale.effects import ApiError
from kscale.snapshot.text.sources import NamedText
from kscale.world.kubernetes.client import Client, RequestFailedError
from kscale.world.kubernetes.performer import list_call
from kscale.world.kubernetes.reflector import PAGE_SIZE
from kscale.world.kubernetes.resources import Resources

__all__ = ["NEEDED", "NEEDED_FOR_HPAS", "READ", "READ_FOR_HPAS", "Listing", "Tell", "list_cluster"]

NEEDED: Final = ("Node", "Pod")
"""Kinds without which no result is possible."""
READ: Final = (
    *NEEDED, "Namespace", "Service", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController",
    "Job", "CronJob", "PodDisruptionBudget", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode",
    "CSIDriver", "CSIStorageCapacity", "VolumeAttachment", "LimitRange", "ResourceQuota", "PriorityClass",
    "RuntimeClass", "HorizontalPodAutoscaler", "VerticalPodAutoscaler", "VerticalPodAutoscalerCheckpoint",
    "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass",
)  # fmt: skip
"""Kinds in the order in which they are listed. Secrets and ConfigMaps are not read."""
NEEDED_FOR_HPAS: Final = ("HorizontalPodAutoscaler", "Pod")
READ_FOR_HPAS: Final = (*NEEDED_FOR_HPAS, "Deployment", "StatefulSet")
"""Kinds of :data:`READ` that HPA decisions depend on; scales of other targets are read one by one."""

_GONE, _FORBIDDEN, _NOT_FOUND = 410, 403, 404
_AT_A_TIME = 4

Tell = Callable[[int, int], None]
"""Called with the progress: objects received, and objects expected in total."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Result of :func:`list_cluster`.

    ``pages``: the non-empty pages as the server wrote them, named by resource and number (``deployments.apps, page
    2``). ``refused``: kinds that may not be listed, with the server's message.
    """

    pages: list[NamedText]
    refused: dict[str, str]


async def list_cluster(
    client: Client, kinds: Sequence[str] = READ, *, needed: Collection[str] = NEEDED, tell: Tell = lambda *_: None
) -> Listing:
    """List the objects of all kinds in all namespaces.

    A kind that the server does not have has no objects, unless it is ``needed``.

    Parameters
    ----------
    client : Client
        Client of the API server.
    kinds : sequence of str
        Kinds to list.
    needed : collection of str
        Kinds that must be served, and whose listing must not be forbidden.
    tell : callable
        Called after each page with (objects so far, objects expected in total).

    Returns
    -------
    Listing
        The pages, and the kinds that may not be listed.

    Raises
    ------
    RequestFailedError
        If a ``needed`` kind is not served or may not be listed (with the server's message for each forbidden kind,
        needed kinds first), or if a list fails for another reason than missing permission.
    """
    lists = _Lists(client, tell)
    turns = asyncio.Semaphore(_AT_A_TIME)

    async def list_kind(kind: str) -> list[NamedText] | ApiError:
        """Return the pages of a kind, or the error if it may not be listed.

        A kind that the server does not have has no pages, unless it is needed. Raises RequestFailedError otherwise.
        """
        async with turns:
            try:
                return await lists.pages(kind)
            except RequestFailedError as error:
                if error.error.code == _NOT_FOUND and kind not in needed:
                    return []
                if error.error.code == _FORBIDDEN:
                    return error.error
                raise

    results = dict(zip(kinds, await asyncio.gather(*map(list_kind, kinds)), strict=True))
    refused = {kind: result for kind, result in results.items() if isinstance(result, ApiError)}
    if missing := [error for kind, error in refused.items() if kind in needed]:
        others = [error for kind, error in refused.items() if kind not in needed]
        text = "; ".join(error.message for error in (*missing, *others))
        raise RequestFailedError(msgspec.structs.replace(missing[0], message=text))
    pages = [page for result in results.values() if isinstance(result, list) for page in result]
    return Listing(pages, {kind: error.message for kind, error in refused.items()})


class _Lists:
    """Lists in progress. ``_received``: number of objects so far; ``_remaining``: number still expected by kind."""

    def __init__(self, client: Client, tell: Tell) -> None:
        self._client = client
        self._resources = Resources(client)
        self._tell = tell
        self._received = 0
        self._remaining: dict[str, int] = {}

    async def pages(self, kind: str) -> list[NamedText]:
        """Return the non-empty pages of a kind's list, and report the progress after each page.

        If the continue token has expired, all objects are listed again in one piece (upstream:
        ``client-go/tools/pager``). Raises RequestFailedError if a request fails.
        """
        resource = await self._resources.find_kind(kind)
        pages: list[NamedText] = []
        limit, next_page, received, number = PAGE_SIZE, "", 0, 0
        while True:
            call = list_call(resource, "", limit=limit, continue_token=next_page)
            try:
                answer = await self._client.call(call)
            except RequestFailedError as error:
                if not next_page or not limit or error.error.code != _GONE:
                    raise
                self._received -= received
                pages, limit, next_page, received, number = [], 0, "", 0, 0
                continue
            number += 1
            page = self._client.decode_list(answer, call, next_page, number=number)
            count, next_page = len(page.items), page.continue_
            if count:
                name = (
                    f"{resource.group_resource}, page {number}" if number > 1 or next_page else resource.group_resource
                )
                pages.append(NamedText(name, answer.body))
            received += count
            self._received += count
            self._remaining[kind] = page.remaining
            self._tell(self._received, self._received + sum(self._remaining.values()))
            if not next_page:
                return pages
