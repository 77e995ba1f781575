"""The controller of CapacityQuotas: says which of them are valid, so that they count, and what is used of them
(upstream: ``resourcequotas/capacityquota``, behind ``--capacity-quotas-enabled``)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from kscale.ca.quota_status import quota_status, status_patch
from kscale.effects import SECOND, Moment, Progress, Steps
from kscale.objects.core import Node
from kscale.objects.quota import CapacityQuota
from kscale.world.protocols import Change, Stores, Watch

__all__ = ["QuotaController"]

_log = logging.getLogger(__name__)
_EACH: Final = 5 * SECOND


class QuotaController:
    """Every five seconds, whatever has changed of quotas and nodes. It looks at what the autoscaler watches
    (:class:`kscale.drivers.driver.Driver`)."""

    name = "capacity-quotas"
    watches: Sequence[Watch] = ()

    def __init__(self) -> None:
        self._due: Moment = 0

    def notice(self, change: Change, now: Moment) -> None:
        """It goes by the time alone."""

    def next_due(self) -> Moment | None:
        """In five seconds."""
        return self._due

    def observe(self, stores: Stores, now: Moment) -> tuple[Sequence[CapacityQuota], Sequence[Node]]:
        """Quotas and nodes."""
        self._due = now + _EACH
        quotas = [each for each in stores.objects("CapacityQuota") if isinstance(each, CapacityQuota)]
        return quotas, stores.snapshot().columns.objects if quotas else ()

    def steps(self, sight: tuple[Sequence[CapacityQuota], Sequence[Node]], now: Moment) -> Steps[None]:
        """Writes each status that is not as it should be; one that cannot be written is tried again."""
        p = Progress(now)
        quotas, nodes = sight
        for quota in quotas:
            status = quota_status(quota, nodes, p.now)
            if status is quota.status:
                continue
            done = yield from p.act(status_patch(quota, status))
            if done.error is not None:
                _log.warning("the status of CapacityQuota %s: %s", quota.name, done.error.message)
