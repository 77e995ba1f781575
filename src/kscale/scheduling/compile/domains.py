"""Topology domains: the values of a label as numbers, those of new nodes behind those of existing ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kscale._native import _engine
from kscale.scheduling.facts import HOSTNAME, NodeFacts
from kscale.snapshot.snapshot import Snapshot

__all__ = ["Domains"]

_OWN, _NONE = -2, -1


class Domains:
    """The topology keys of an engine, in the order of ``keys``."""

    def __init__(self, engine: _engine.Engine, snapshot: Snapshot, keys: Iterable[str], extra: Sequence[NodeFacts]):
        self._snapshot = snapshot
        self._new: dict[tuple[str, str], int] = {}
        self.keys: dict[str, int] = {}
        for key in keys:
            label = snapshot.columns.label(key)
            domains = len(label.values)
            if key != HOSTNAME:
                values = {facts.labels[key] for facts in extra if key in facts.labels}
                for value in sorted(values - label.index.keys()):
                    self._new[key, value] = domains
                    domains += 1
            self.keys[key] = engine.add_key(label.ids, domains)

    def of_copy(self, facts: NodeFacts) -> list[int]:
        """Domain of a new node under each key: -1 = no label, -2 = its own."""
        return [self._of(key, facts) for key in self.keys]

    def _of(self, key: str, facts: NodeFacts) -> int:
        if key == HOSTNAME:
            return _OWN
        value = facts.labels.get(key)
        if value is None:
            return _NONE
        known = self._snapshot.columns.label(key).index.get(value)
        return self._new[key, value] if known is None else known
