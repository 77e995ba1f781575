"""List every object that a plan may depend on once, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kscale.effects import ApiError
from kscale.snapshot.text.sources import NamedText
from kscale.world.kubernetes.client import Client, RequestFailedError, listed
from kscale.world.kubernetes.performer import list_call
from kscale.world.kubernetes.reflector import PAGE_SIZE
from kscale.world.kubernetes.resources import Resources

__all__ = ["NEEDED", "NEEDED_FOR_HPAS", "READ", "READ_FOR_HPAS", "Listing", "Tell", "list_cluster"]

NEEDED: Final = ("Node", "Pod")
"""Without these there is no answer."""
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
"""Those of :data:`READ` that decisions of HPAs depend on; scales of what else they scale are asked for one by one."""

_GONE, _FORBIDDEN, _NOT_FOUND = 410, 403, 404
_AT_A_TIME = 4

Tell = Callable[[int, int], None]
"""Told of progress: how many objects have come, and how many are known to come in all."""


@dataclass(frozen=True, slots=True)
class Listing:
    """``pages``: lists as the server wrote them, those that are not empty, each named by its resource and its number
    (``deployments.apps, page 2``); ``refused``: kinds that may not be listed, and why."""

    pages: list[NamedText]
    refused: dict[str, str]


async def list_cluster(
    client: Client,
    kinds: Sequence[str] = READ,
    *,
    needed: Collection[str] = NEEDED,
    tell: Tell = lambda *_: None,
) -> Listing:
    """The objects of all kinds in all namespaces. A kind that the server does not have has no objects.

    Raises :class:`~kscale.world.kubernetes.client.RequestFailedError` where ``needed`` kinds may not be listed (with
    what the server says of each kind that may not, the needed ones first), and where a list fails for anything but a
    lack of rights.
    """
    lists = _Lists(client, tell)
    turns = asyncio.Semaphore(_AT_A_TIME)

    async def of(kind: str) -> list[NamedText] | ApiError:
        async with turns:
            try:
                return await lists.pages(kind)
            except RequestFailedError as error:
                if error.error.code == _NOT_FOUND and kind not in needed:
                    return []
                if error.error.code == _FORBIDDEN:
                    return error.error
                raise

    found = dict(zip(kinds, await asyncio.gather(*map(of, kinds)), strict=True))
    refused = {kind: each for kind, each in found.items() if isinstance(each, ApiError)}
    if missing := [error for kind, error in refused.items() if kind in needed]:
        others = [error for kind, error in refused.items() if kind not in needed]
        text = "; ".join(error.message for error in (*missing, *others))
        raise RequestFailedError(msgspec.structs.replace(missing[0], message=text))
    pages = [page for each in found.values() if isinstance(each, list) for page in each]
    return Listing(pages, {kind: error.message for kind, error in refused.items()})


class _Lists:
    """``come``: objects so far; ``rest``: how many are still to come of each kind that is being listed."""

    def __init__(self, client: Client, tell: Tell) -> None:
        self._client = client
        self._resources = Resources(client)
        self._tell = tell
        self._come = 0
        self._rest: dict[str, int] = {}

    async def pages(self, kind: str) -> list[NamedText]:
        """The pages of a list; all in one where the server has lost what a page would go on with (upstream:
        ``client-go/tools/pager``)."""
        resource = await self._resources.of_kind(kind)
        pages: list[NamedText] = []
        limit, more, come, number = PAGE_SIZE, "", 0, 0
        while True:
            call = list_call(resource, "", limit=limit, more=more)
            try:
                answer = await self._client.call(call)
            except RequestFailedError as error:
                if not more or not limit or error.error.code != _GONE:
                    raise
                self._come -= come
                pages, limit, more, come, number = [], 0, "", 0, 0
                continue
            page = listed(answer, call, more)
            count, more = len(page.items), page.continue_
            number += 1
            if count:
                name = f"{resource.group_resource}, page {number}" if number > 1 or more else resource.group_resource
                pages.append(NamedText(name, answer.body))
            come += count
            self._come += count
            self._rest[kind] = page.remaining
            self._tell(self._come, self._come + sum(self._rest.values()))
            if not more:
                return pages
