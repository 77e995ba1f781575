"""Track which nodes relied on which others as destinations of their pods (release 1.3, ``simulator/tracker.go``)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from kscale.effects import Moment

__all__ = ["MAX_USAGE_RECORDED", "UsageRecord", "UsageTracker"]

MAX_USAGE_RECORDED: Final = 50


class UsageRecord(msgspec.Struct, rename="camel", omit_defaults=True):
    """Relations of one node: the nodes that its pods would move to, and the nodes whose pods would move here, with the
    last time of each.

    At most :data:`MAX_USAGE_RECORDED` of either are stored; beyond that only the fact that there are too many.
    """

    using: dict[str, Moment] = {}
    used_by: dict[str, Moment] = {}
    using_too_many: bool = False
    used_by_too_many: bool = False


class UsageTracker(msgspec.Struct, rename="camel", omit_defaults=True):
    """Usage relations between nodes, by node name."""

    records: dict[str, UsageRecord] = {}

    def copy(self) -> UsageTracker:
        """Return an independent copy."""
        replace = msgspec.structs.replace
        return UsageTracker(
            {
                node: replace(record, using=dict(record.using), used_by=dict(record.used_by))
                for node, record in self.records.items()
            }
        )

    def register(self, node: str, destination: str, time: Moment) -> None:
        """Register that a pod of ``node`` would move to ``destination``."""
        record = self.records.setdefault(node, UsageRecord())
        if len(record.using) >= MAX_USAGE_RECORDED:
            record.using_too_many = True
        else:
            record.using[destination] = time
        record = self.records.setdefault(destination, UsageRecord())
        if len(record.used_by) >= MAX_USAGE_RECORDED:
            record.used_by_too_many = True
        else:
            record.used_by[node] = time

    def clean_up(self, cutoff: Moment) -> None:
        """Remove relations older than ``cutoff``, except those of nodes that had too many relations to record."""
        for node, record in list(self.records.items()):
            if not record.using_too_many:
                record.using = {name: time for name, time in record.using.items() if time >= cutoff}
            if not record.used_by_too_many:
                record.used_by = {name: time for name, time in record.used_by.items() if time >= cutoff}
            if not (record.using or record.used_by or record.using_too_many or record.used_by_too_many):
                del self.records[node]

    def remove(self, node: str, unneeded: Collection[str]) -> set[str]:
        """Forget the relations of a removed node, and return the unneeded nodes that lose their unneeded time.

        These are the node itself, and every node that relied on one of its destinations, where there is less room now.
        If a record has too many relations to be complete, all unneeded nodes lose their time.
        """
        names = {node}
        record = self.records.pop(node, UsageRecord())
        destination_records = [self.records.get(name, UsageRecord()) for name in record.using]
        if record.using_too_many or any(each.used_by_too_many for each in destination_records):
            names.update(unneeded)
        else:
            names.update(name for each in destination_records for name in each.used_by)
        for each in self.records.values():
            each.using.pop(node, None)
            each.used_by.pop(node, None)
        return names & set(unneeded)
