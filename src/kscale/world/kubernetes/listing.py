"""Everything of a cluster that a plan may depend on, listed once, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kscale.world.kubernetes.calls import list_call
from kscale.world.kubernetes.client import Client, RequestFailedError
from kscale.world.kubernetes.reflector import PAGE_SIZE
from kscale.world.kubernetes.resources import Resources

__all__ = ["NEEDED", "READ", "Listing", "list_cluster"]

NEEDED: Final = ("Node", "Pod")
"""Without these there is no answer."""
READ: Final = (
    *NEEDED, "Namespace", "Service", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController",
    "Job", "CronJob", "PodDisruptionBudget", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode",
    "CSIDriver", "CSIStorageCapacity", "VolumeAttachment", "LimitRange", "PriorityClass", "RuntimeClass",
    "HorizontalPodAutoscaler", "VerticalPodAutoscaler", "VerticalPodAutoscalerCheckpoint", "ResourceClaim",
    "ResourceSlice", "DeviceClass",
)  # fmt: skip
"""Kinds in the order in which they are listed. Secrets and ConfigMaps are not read."""

_GONE, _FORBIDDEN, _NOT_FOUND = 410, 403, 404
_AT_A_TIME = 4


@dataclass(frozen=True, slots=True)
class Listing:
    """``pages``: lists as the server wrote them; ``refused``: kinds that may not be listed, and why."""

    pages: list[bytes]
    refused: dict[str, str]


class _Metadata(msgspec.Struct):
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


async def list_cluster(client: Client, kinds: Sequence[str] = READ) -> Listing:
    """The objects of all kinds in all namespaces. A kind that the server does not have has no objects.

    Raises :class:`~kscale.world.kubernetes.client.RequestFailedError` where one of :data:`NEEDED` cannot be listed, and
    where another list fails for anything but a lack of rights.
    """
    resources = Resources(client)
    turns = asyncio.Semaphore(_AT_A_TIME)

    async def of(kind: str) -> list[bytes] | str:
        async with turns:
            try:
                return await _list(client, resources, kind)
            except RequestFailedError as error:
                if kind not in NEEDED and error.error.code == _NOT_FOUND:
                    return []
                if kind not in NEEDED and error.error.code == _FORBIDDEN:
                    return error.error.message
                raise

    found = await asyncio.gather(*(of(kind) for kind in kinds))
    pages = [page for each in found if isinstance(each, list) for page in each]
    refused = {kind: each for kind, each in zip(kinds, found, strict=True) if isinstance(each, str)}
    return Listing(pages, refused)


async def _list(client: Client, resources: Resources, kind: str) -> list[bytes]:
    """The pages of a list; all in one where the server has lost what a page would go on with (upstream:
    ``client-go/tools/pager``)."""
    resource = await resources.of_kind(kind)
    pages: list[bytes] = []
    limit, more = PAGE_SIZE, ""
    while True:
        try:
            answer = await client.call(list_call(resource, "", limit=limit, more=more))
        except RequestFailedError as error:
            if not more or error.error.code != _GONE:
                raise
            pages, limit, more = [], 0, ""
            continue
        pages.append(answer.body)
        more = msgspec.json.decode(answer.body, type=_Page).metadata.continue_
        if not more:
            return pages
