"""Base class of cloud providers, a cache of their instances, and helpers for clouds behind an API server.

Upstream: ``clusterstate/utils/node_instances_cache.go``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import msgspec

from kscale.effects import SECOND, Action, ApiError, GetPrices, Outcome, Prices
from kscale.objects.api.core import Node, Pod
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import NOT_IMPLEMENTED, Groups, InstanceStatus, NodeGroup, ProviderError
from kscale.world.protocols import MOST_NODES, PerformLive

__all__ = ["CLOUD_ERROR", "Nodes", "Provider", "kube_proxy"]


CLOUD_ERROR = "cloudProviderError"
"""Type of errors of a cloud."""

Nodes = Callable[[], Sequence[Node]]
"""Returns the cluster's nodes at the beginning of the loop, which a provider assigns to its groups."""


class Provider:
    """Base class for a cloud provider in Python.

    A subclass has a ``name`` and implements the methods of :class:`kscale.world.protocols.NodeGroups` that it supports.
    The others raise ProviderError ("Not implemented"), as upstream's do.

    ``group`` is the ID of a group, ``delta`` a number of nodes (negative to reduce the target size). A method that
    fails raises :class:`kscale.objects.nodegroup.ProviderError`, and the autoscaler backs off as upstream's does.
    """

    name = ""
    gpu_label = ""
    gpu_types: Collection[str] = ()
    """GPU types of the cloud (upstream's ``GetAvailableGPUTypes``), used as metric labels."""

    def refresh(self) -> Groups | Sequence[NodeGroup]:
        """Refresh the state of the cloud and return the current groups. Every subclass must implement this method.

        Raises ProviderError if the cloud cannot be read, NotImplementedError if the subclass lacks the method.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement refresh()")

    def has_instance(self, node: Node) -> bool:
        """Check whether the instance of a node still exists. Raises ProviderError unless a subclass implements it."""
        raise ProviderError(NOT_IMPLEMENTED)

    def prices(self, question: GetPrices) -> Prices:
        """Return the prices of nodes and pods for the time range of ``question``.

        Raises ProviderError unless a subclass implements it.
        """
        raise ProviderError(NOT_IMPLEMENTED)

    def increase_size(self, group: str, delta: int, *, atomic: bool = False) -> None:
        """Increase the target size of ``group`` by ``delta``. With ``atomic``, all nodes or none are created.

        Raises ProviderError unless a subclass implements it.
        """
        raise ProviderError(NOT_IMPLEMENTED)

    def decrease_target_size(self, group: str, delta: int) -> None:
        """Reduce the target size of ``group`` by ``delta`` (negative) without deleting nodes.

        Raises ProviderError unless a subclass implements it.
        """
        raise ProviderError(NOT_IMPLEMENTED)

    def delete_nodes(self, group: str, nodes: Sequence[Node], *, force: bool = False) -> None:
        """Delete nodes of ``group`` and reduce its target size accordingly.

        With ``force``, limits such as the minimum size are ignored. Raises ProviderError unless a subclass implements
        it.
        """
        raise ProviderError(NOT_IMPLEMENTED)

    def create_group(self, group: str, *, asynchronous: bool = False) -> Sequence[NodeGroup]:
        """Create a group and return the created groups, with the requested group first.

        With ``asynchronous``, the group may become available later. Raises ProviderError unless a subclass implements
        it.
        """
        raise ProviderError(NOT_IMPLEMENTED)

    def delete_group(self, group: str) -> None:
        """Delete a group that node auto-provisioning created. Raises ProviderError unless a subclass implements it."""
        raise ProviderError(NOT_IMPLEMENTED)

    def close(self) -> None:
        """Do nothing. Subclasses close connections here."""


_log = logging.getLogger(__name__)
_REFRESH_INTERVAL: Final = 120 * SECOND

Instances = Sequence[tuple[str, InstanceStatus | None]]
"""Provider IDs of instances, with their status if the cloud reports it."""


class NodeInstancesCache(msgspec.Struct, eq=False):
    """Cache of the instances of each group.

    ``monotonic`` returns monotonic nanoseconds. ``scaling_up`` returns the groups that are growing, which are fetched
    every time. Upstream refreshes the cache in the background; here the first read after two minutes refreshes it.
    """

    _monotonic: Callable[[], int]
    _scaling_up: Callable[[], Collection[str]] = tuple
    _entries: dict[str, Instances] = {}
    _refreshed: int | None = None

    def instances(self, groups: Sequence[str], fetch: Callable[[str], Instances]) -> dict[str, Instances]:
        """Return the instances by group. ``fetch`` is called for groups that are not cached.

        If a group cannot be fetched during a full refresh, it has no instances until the next refresh. Raises
        :class:`~kscale.objects.nodegroup.ProviderError` if fetching a growing or new group fails, or if there are too
        many instances. The instances of all groups requested since the last refresh count.
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
        if sum(map(len, self._entries.values())) > MOST_NODES:
            self._entries = {}
            raise ProviderError(f"the provider has more than {MOST_NODES:,} instances", CLOUD_ERROR)
        return {group: self._entries[group] for group in groups}

    def invalidate(self, group: str) -> None:
        """Remove a group from the cache, so that its instances are fetched on the next read."""
        self._entries.pop(group, None)


Ask = Callable[[Action], Outcome]
"""Performs an action and waits for its outcome."""


def blocking(perform: PerformLive, loop: asyncio.AbstractEventLoop) -> Ask:
    """Return a function with which other threads perform actions on an event loop and wait for the outcome.

    ``perform`` performs the actions on ``loop``. The function must not be called in the thread of ``loop``.
    """

    async def performed(action: Action) -> Outcome:
        return await perform(action)

    def ask(action: Action) -> Outcome:
        return asyncio.run_coroutine_threadsafe(performed(action), loop).result()

    return ask


def value_of(outcome: Outcome, words: str = "") -> Any:
    """Return the value of an outcome.

    Raises :class:`~kscale.objects.nodegroup.ProviderError` for an error. ``words``: text before its message.
    """
    error: ApiError | None = outcome.error
    if error is not None:
        raise ProviderError(f"{words}: {error.message}" if words else error.message, CLOUD_ERROR)
    return outcome.value


def kube_proxy(group: str) -> Pod:
    """Return the kube-proxy pod that upstream puts on every template node of ``group``.

    Upstream: ``cloudprovider.BuildKubeProxy``.
    """
    pod = {
        "metadata": {
            "name": f"kube-proxy-{group}",
            "namespace": "kube-system",
            "labels": {"component": "kube-proxy", "tier": "node"},
            "annotations": {
                "kubernetes.io/config.source": "file",
                "scheduler.alpha.kubernetes.io/critical-pod": "true",
                "kubernetes.io/config.mirror": "1234567890abcdef",
            },
        },
        "spec": {"containers": [{"name": "", "image": "kubeproxy", "resources": {"requests": {"cpu": "100m"}}}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    return from_dict(pod, Pod)
