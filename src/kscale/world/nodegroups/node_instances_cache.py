"""What the cloud runs for its groups, as it was told within the last two minutes (upstream:
``clusterstate/utils/node_instances_cache.go``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from kscale.effects import SECOND
from kscale.objects.nodegroup import InstanceStatus, ProviderError

__all__ = ["Instances", "NodeInstancesCache"]

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
