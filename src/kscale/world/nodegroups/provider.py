"""Base of cloud providers, the cache of their instances, and clouds that live in an API server.

Upstream: ``clusterstate/utils/node_instances_cache.go``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from kscale.effects import SECOND, Action, ApiError, GetPrices, Outcome, Prices
from kscale.objects.api.core import Node
from kscale.objects.nodegroup import NOT_IMPLEMENTED, InstanceStatus, NodeGroup, ProviderError
from kscale.objects.nodegroups import Groups
from kscale.world.protocols import PerformLive

__all__ = ["CLOUD_ERROR", "Nodes", "Provider"]


CLOUD_ERROR = "cloudProviderError"
"""The type of an error of a cloud."""

Nodes = Callable[[], Sequence[Node]]
"""The nodes of the cluster as they were when the loop began: what a provider sorts into its groups."""


class Provider:
    """A base for a cloud in Python: a subclass has ``name`` and the methods of
    :class:`kscale.world.protocols.NodeGroups` that it can answer; the others refuse, as upstream's do.

    ``group`` is the id of a group, ``delta`` a number of nodes (negative where the target falls). A method that cannot
    do what it is asked raises :class:`kscale.objects.nodegroup.ProviderError`; the loop backs off as upstream's does.
    """

    name = ""
    gpu_label = ""
    gpu_types: Collection[str] = ()
    """The types of GPU that the cloud has (upstream's ``GetAvailableGPUTypes``); metrics name no others."""

    def refresh(self) -> Groups | Sequence[NodeGroup]:
        """Looks at the cloud anew, and tells its groups as they are now."""
        raise NotImplementedError(f"{type(self).__name__} does not tell its groups")

    def has_instance(self, node: Node) -> bool:
        """Whether the machine of a node still runs."""
        raise ProviderError(NOT_IMPLEMENTED)

    def prices(self, question: GetPrices) -> Prices:
        """What nodes and pods cost in the time of a ``question``."""
        raise ProviderError(NOT_IMPLEMENTED)

    def increase_size(self, group: str, delta: int, *, atomic: bool = False) -> None:
        """Raises the target size of ``group`` by ``delta``; ``atomic``: all of it or nothing."""
        raise ProviderError(NOT_IMPLEMENTED)

    def decrease_target_size(self, group: str, delta: int) -> None:
        """Lowers the target size of ``group`` by ``delta`` (negative) without deleting nodes."""
        raise ProviderError(NOT_IMPLEMENTED)

    def delete_nodes(self, group: str, nodes: Sequence[Node], *, force: bool = False) -> None:
        """Deletes nodes of ``group`` and lowers the target size with them; ``force``: also below its minimum size and
        the like."""
        raise ProviderError(NOT_IMPLEMENTED)

    def create_group(self, group: str, *, asynchronous: bool = False) -> Sequence[NodeGroup]:
        """Makes a group; ``asynchronous``: it may come later. What was made: that group first."""
        raise ProviderError(NOT_IMPLEMENTED)

    def delete_group(self, group: str) -> None:
        """Removes a group (``group``)."""
        raise ProviderError(NOT_IMPLEMENTED)

    def close(self) -> None:
        """Lets go of connections."""


_log = logging.getLogger(__name__)
_REFRESH_INTERVAL: Final = 120 * SECOND

Instances = Sequence[tuple[str, InstanceStatus | None]]
"""Provider ids, and how they are where the cloud says it."""


class NodeInstancesCache:
    """The instances of each group. ``monotonic``: nanoseconds that are never set back; ``scaling_up``: the groups that
    grow at the moment, which are asked each time.

    Upstream refreshes beside its loops; here the first look after two minutes does.
    """

    def __init__(self, monotonic: Callable[[], int], scaling_up: Callable[[], Collection[str]] = tuple) -> None:
        self._monotonic = monotonic
        self._scaling_up = scaling_up
        self._entries: dict[str, Instances] = {}
        self._refreshed: int | None = None

    def instances(self, groups: Sequence[str], fetch: Callable[[str], Instances]) -> dict[str, Instances]:
        """The instances by group; ``fetch`` asks the cloud for those that are not known.

        Raises :class:`~kscale.objects.nodegroup.ProviderError` of a group that grows or is new; one that cannot be
        asked when all are refreshed has no instances until the next refresh.
        """
        now = self._monotonic()
        refresh = self._refreshed is None or now - self._refreshed >= _REFRESH_INTERVAL
        if refresh:
            self._entries = {}
            self._refreshed = now
        growing = {*self._scaling_up()}
        for group in growing:
            self.invalidate(group)
        for group in groups:
            if group in self._entries:
                continue
            try:
                self._entries[group] = fetch(group)
            except ProviderError as error:
                if not refresh or group in growing:
                    raise
                _log.error("Failed to get cloud provider node instance for node group %s: %s", group, error.message)
                self._entries[group] = ()
        return {group: self._entries[group] for group in groups}

    def invalidate(self, group: str) -> None:
        """The next look asks for the group's instances."""
        self._entries.pop(group, None)


Ask = Callable[[Action], Outcome]
"""Carries an action out, and waits for it."""


def blocking(perform: PerformLive, loop: asyncio.AbstractEventLoop) -> Ask:
    """What other threads may call to have actions carried out on a loop."""

    async def performed(action: Action) -> Outcome:
        return await perform(action)

    def ask(action: Action) -> Outcome:
        return asyncio.run_coroutine_threadsafe(performed(action), loop).result()

    return ask


def value_of(outcome: Outcome, words: str = "") -> Any:
    """What was answered. Raises :class:`~kscale.objects.nodegroup.ProviderError`; ``words`` come first in it."""
    error: ApiError | None = outcome.error
    if error is not None:
        raise ProviderError(f"{words}: {error.message}" if words else error.message, CLOUD_ERROR)
    return outcome.value
