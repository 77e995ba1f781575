"""Disruption rules of Karpenter's NodePools: which nodes a step of a path may remove, and how many of each pool.

Upstream: Karpenter's ``pkg/controllers/disruption/helpers.go`` (``BuildDisruptionBudgetMapping``), ``consolidation.go``
and ``emptiness.go`` (``ShouldDisrupt``), and ``pkg/controllers/nodeclaim/disruption/consolidation.go``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

import msgspec

from kscale.capacity.consolidation.budgets import EMPTY, DisruptionBudget, allowed_nodes
from kscale.effects import Moment, duration
from kscale.errors import Problem
from kscale.objects.api.core import Node
from kscale.objects.conditions import is_true

__all__ = ["PoolDisruption", "PoolRules"]

POOL_LABEL = "karpenter.sh/nodepool"
_REGISTERED, _INITIALIZED = "karpenter.sh/registered", "karpenter.sh/initialized"


class PoolDisruption(msgspec.Struct, frozen=True, kw_only=True):
    """Disruption rules of the NodePool ``name``.

    ``budgets``: how many of its nodes a step may remove, by time and reason; the smallest that holds counts.
    ``only_empty``: the policy ``WhenEmpty``, by which only empty nodes are removed. ``consolidate_after``: time without
    a new or removed pod after which a node may be removed (None: never).
    """

    name: str
    budgets: list[DisruptionBudget]
    only_empty: bool = False
    consolidate_after: timedelta | None = timedelta(0)

    def problems(self, field: str) -> list[Problem]:
        """Return the mistakes of the rules. ``field`` names the pool in problems."""
        result = [each for i, item in enumerate(self.budgets) for each in item.problems(f"{field}.budgets[{i}]")]
        if self.consolidate_after is not None and self.consolidate_after < timedelta(0):
            result.append(Problem(f"{self.consolidate_after} is negative", field=f"{field}.consolidate_after"))
        return result


class PoolRules:
    """The rules of all pools, and the nodes of the path that belong to them.

    ``pool_of``: the pool of each node, by its number in the path; empty for a node of no pool with rules.
    """

    def __init__(self, pools: Iterable[PoolDisruption], nodes: Sequence[Node], last_events: Sequence[Moment]) -> None:
        """``last_events``: when a pod was last placed on each node, or the node was created."""
        self._pools = {pool.name: pool for pool in pools}
        self.pool_of = [self.get_pool(node.metadata.labels or {}) for node in nodes]
        self._last_events = list(last_events)
        self._counts = [_is_initialized(node) for node in nodes]
        self._disrupted = [
            not is_true(node.status.conditions or (), "Ready") or node.metadata.deletion_timestamp is not None
            for node in nodes
        ]

    def get_pool(self, labels: Mapping[str, str]) -> str:
        """Return the name of the pool with rules that a node with these labels belongs to, or an empty string."""
        name = labels.get(POOL_LABEL, "")
        return name if name in self._pools else ""

    def add_node(self, pool: str, now: Moment) -> None:
        """Add a new, initialized and ready node of a pool. ``now`` counts as its last pod event."""
        self.pool_of.append(pool)
        self._last_events.append(now)
        self._counts.append(True)
        self._disrupted.append(False)

    def record_pod_event(self, node: int, now: Moment) -> None:
        """Record that a pod was placed on a node."""
        self._last_events[node] = now

    def allowed(self, now: Moment, alive: Sequence[bool], reason: str) -> dict[str, int]:
        """Return how many nodes of each pool a step may remove for a reason.

        Nodes that are not ready or are being deleted count as disrupted. Nodes that are not initialized do not count.
        """
        totals: Counter[str] = Counter()
        disrupted: Counter[str] = Counter()
        for node, pool in enumerate(self.pool_of):
            if pool and alive[node] and self._counts[node]:
                totals[pool] += 1
                disrupted[pool] += self._disrupted[node]
        result = {}
        for name, rules in self._pools.items():
            limit = allowed_nodes(rules.budgets, now, totals[name], reason)
            limit = totals[name] if limit is None else limit
            is_off = rules.consolidate_after is None or (rules.only_empty and reason != EMPTY)
            result[name] = 0 if is_off else max(0, limit - disrupted[name])
        return result

    def list_waiting(self, now: Moment, alive: Sequence[bool]) -> frozenset[int]:
        """Return the numbers of the nodes whose last pod event is less than ``consolidateAfter`` ago."""
        return frozenset(
            node
            for node, pool in enumerate(self.pool_of)
            if pool
            and alive[node]
            and (after := self._pools[pool].consolidate_after)
            and now - self._last_events[node] < duration(after)
        )

    def may_be_allowed_later(self, reason: str, allowed: Mapping[str, int]) -> bool:
        """Check whether a pool that allows no disruption for a reason now may allow one at another time.

        ``allowed``: how many nodes of each pool may be disrupted now.
        """
        return any(
            not allowed[name] and pool.consolidate_after is not None and (reason == EMPTY or not pool.only_empty)
            for name, pool in self._pools.items()
            if name in self.pool_of
        )


def _is_initialized(node: Node) -> bool:
    """Check whether a node counts: Karpenter labels its nodes as registered first, then as initialized."""
    labels = node.metadata.labels or {}
    return labels.get(_INITIALIZED) == "true" or _REGISTERED not in labels
