"""Proposes nodes to remove and to add, on a packing engine that follows the path.

Proposals pack pods first-fit. Each is checked afterwards with the choices of kube-scheduler
(:mod:`kscale.capacity.consolidation.path`), so that a proposal may be optimistic but a step is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kscale._native import _engine
from kscale.capacity.evictions import Evictions
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.pod_resources import CPU, MEMORY
from kscale.scheduling.session import Session
from kscale.snapshot.snapshot import Snapshot

__all__ = ["Limits", "Moves", "Offered", "Replacement"]

_OFFERS: Final = 3
"""Number of types that are tried as a node's replacement, besides the cheapest one that could hold it alone."""
_REFUSED: Final = 8
"""Number of nodes in a row whose pods do not fit after which a new node counts as full."""
_MAX_FAILED_SEARCHES: Final = 20
"""Number of a group's nodes in a row without a cheaper replacement after which its other nodes are not tried."""


@dataclass(frozen=True, slots=True)
class Offered:
    """A node that may be added: the group, its template and price, and the NodePool whose rules it obeys."""

    group: str
    template: NodeTemplate
    price: float
    pool: str = ""


@dataclass(slots=True)
class Limits:
    """Limits of a step: ``nodes`` to remove, pods to evict (None: no limit), waves of evictions.

    ``few_waves``: the first node of the step decides how many waves the step has at most.
    ``spare``: how many nodes each group may lose; ``room``: how many it may gain. ``pools``: how many nodes each
    NodePool may lose (nodes of no pool: the empty name); ``waiting``: nodes that stay for now. ``worthwhile`` says
    whether removing a node at a price repays a number of evictions.
    """

    nodes: int
    evictions: int | None
    waves: int
    spare: dict[str, int]
    room: dict[str, int]
    pools: dict[str, int]
    waiting: Collection[int]
    worthwhile: Callable[[float, int], bool]
    few_waves: bool = True

    def copy(self) -> Limits:
        """Return a copy with independent ``spare``, ``room`` and ``pools``."""
        return replace(self, spare=dict(self.spare), room=dict(self.room), pools=dict(self.pools))


@dataclass(slots=True)
class Replacement:
    """Nodes (by number) that are removed together, and the offer (by number) of the node that replaces them."""

    nodes: list[int]
    offer: int | None = None
    saves: float = 0.0


@dataclass(slots=True)
class _Charge:
    """Evictions of a step so far: their number, the waves they need, and how many each budget covers.

    ``allowed``: the disruptions that each PodDisruptionBudget allows in a wave.
    """

    allowed: Sequence[int]
    pods: int = 0
    waves: int = 0
    used: dict[int, int] = field(default_factory=dict)

    def copy(self) -> _Charge:
        """Return an independent copy (``allowed`` never changes and is shared)."""
        return _Charge(self.allowed, self.pods, self.waves, dict(self.used))

    def waves_with(self, pods: int, covered: Mapping[int, int]) -> int:
        """Return how many waves of evictions the step needs if ``pods`` more pods are evicted.

        ``covered``: how many of these pods each budget covers, by the budget's number.
        """
        waves = max(self.waves, 1 if pods else 0)
        for budget, count in covered.items():
            waves = max(waves, -(-(self.used.get(budget, 0) + count) // self.allowed[budget]))
        return waves

    def add(self, pods: int, covered: Mapping[int, int]) -> None:
        """Count ``pods`` more evictions.

        ``covered``: how many of these pods each budget covers, by the budget's number.
        """
        self.waves = self.waves_with(pods, covered)
        self.pods += pods
        for budget, count in covered.items():
            self.used[budget] = self.used.get(budget, 0) + count


class Moves:
    """Nodes and pods of the cluster as the path has changed them.

    Pods have their positions in the first snapshot, nodes their numbers in the engine. ``pods_on``: the pods of each
    node; ``prices``, ``group_of``: of each node, None = unknown; ``pool_of``: its NodePool with rules, else empty;
    ``alive``: nodes that exist.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        evictions: Evictions,
        offers: Sequence[Offered],
        prices: Sequence[float | None],
        groups: Sequence[str | None],
        pools: Sequence[str],
    ) -> None:
        """Place the pods of ``snapshot`` on a new packing engine.

        ``evictions``: which of its pods may be evicted. ``offers``: nodes that may be added. ``prices``: $/h of each
        node; None: unknown, or the node must stay. ``groups``: group of each node, None without one. ``pools``:
        NodePool of each node, else empty.
        """
        pods = evictions.pods
        self.evictions, self.offers = evictions, offers
        classes = pods.classes()
        self.session = Session(snapshot, classes, [offer.template for offer in offers], moving=True)
        self.engine = self.session.engine
        number = self.session.numbers(len(snapshot.interner.classes))
        self.class_of: list[int] = number[pods.class_of].tolist()
        self.names = list(snapshot.nodes)
        self.prices, self.group_of, self.pool_of = list(prices), list(groups), list(pools)
        self.alive = [True] * len(self.names)
        self.is_new = [False] * len(self.names)
        self.pods_on: list[list[int]] = [[] for _ in self.names]
        for pod, node in enumerate(pods.node.tolist()):
            self.pods_on[node].append(pod)
        self.movable: list[bool] = evictions.moves.tolist()
        self.held: list[bool] = evictions.holding().tolist()
        self._allowed = [max(1, count) for count in evictions.allowed.tolist()]
        self._movers: dict[int, list[int]] = {}
        self._covered_on: dict[int, Counter[int]] = {}
        self._shares_of: dict[int, list[float]] = {}
        self._rank: list[int] = (-pods.priority).tolist()
        interner_classes = snapshot.interner.classes
        amounts = np.array([[c.demand.get(CPU, 0), c.demand.get(MEMORY, 0)] for c in interner_classes], np.float64)
        self._amounts: NDArray[np.float64] = amounts.reshape(-1, 2)[pods.class_of]
        self._free = [self._free_of(i) for i in range(len(offers))]

    def _free_of(self, offer: int) -> NDArray[np.float64]:
        """Return the free cpu (milli-cores) and memory (bytes) of an empty node of an offer: float64[2]."""
        amounts = dict(zip(self.session.resources, self.session.template_room(offer)[1], strict=True))
        return np.array([amounts.get(CPU, 0), amounts.get(MEMORY, 0)], dtype=np.float64)

    # -- nodes -------------------------------------------------------------------------------------------------------

    def movers(self, node: int) -> list[int]:
        """Return the pods that must be evicted from a node, highest priority first. Do not modify the list."""
        movers = self._movers.get(node)
        if movers is None:
            movers = sorted((pod for pod in self.pods_on[node] if self.movable[pod]), key=self._rank.__getitem__)
            self._movers[node] = movers
        return movers

    def _covered(self, node: int) -> Counter[int]:
        """Return how many of a node's pods to move each PodDisruptionBudget covers, by the budget's number.

        Do not modify the result.
        """
        covered = self._covered_on.get(node)
        if covered is None:
            covered = Counter(budget for pod in self.movers(node) for budget in self.evictions.covering(pod))
            self._covered_on[node] = covered
        return covered

    def _forget(self, node: int) -> None:
        """Drop the cached values that depend on the pods of a node."""
        self._movers.pop(node, None)
        self._covered_on.pop(node, None)
        self._shares_of.pop(node, None)

    def is_candidate(self, node: int, limits: Limits) -> bool:
        """Check whether a node may be removed now as far as its price, its group, its NodePool and its pods allow.

        New nodes, nodes without a known price above 0 and nodes of no group are never candidates.
        """
        group = self.group_of[node]
        if not self.alive[node] or self.is_new[node] or not self.prices[node] or group is None:
            return False
        if node in limits.waiting or limits.pools.get(self.pool_of[node], 0) < 1:
            return False
        return limits.spare.get(group, 0) > 0 and not any(self.held[pod] for pod in self.pods_on[node])

    def apply(self, removed: Sequence[int], added: Sequence[tuple[int, str]], targets: Mapping[int, str]) -> None:
        """Carry out a step: add nodes, remove nodes, and move the pods of removed nodes.

        ``added``: (offer, name) of each new node. ``targets``: name of each pod's new node; pods of removed nodes that
        have none end.
        """
        engine = self.engine
        for offer, name in added:
            engine.add(self.session.templates[offer], len(self.names))
            self.names.append(name)
            self.prices.append(self.offers[offer].price)
            self.group_of.append(self.offers[offer].group)
            self.pool_of.append(self.offers[offer].pool)
            self.alive.append(True)
            self.is_new.append(True)
            self.pods_on.append([])
        number = {name: n for n, name in enumerate(self.names) if self.alive[n]}
        for node in removed:
            for pod in self.pods_on[node]:
                engine.unplace(self.class_of[pod], node)
            engine.remove_node(node)
            self.alive[node] = False
            self.pods_on[node] = []
            self._forget(node)
        for pod, name in targets.items():
            engine.place(self.class_of[pod], number[name])
            self.pods_on[number[name]].append(pod)
            self._forget(number[name])

    # -- proposals ---------------------------------------------------------------------------------------------------

    def propose_empty(self, limits: Limits) -> list[int]:
        """Return the nodes without pods to move that the limits allow to remove, the most expensive first."""
        limits = limits.copy()
        nodes = [n for n in range(len(self.names)) if self.is_candidate(n, limits) and not self.movers(n)]
        chosen: list[int] = []
        for node in sorted(nodes, key=lambda n: -(self.prices[n] or 0.0)):
            if len(chosen) < limits.nodes and self.is_candidate(node, limits):
                limits.spare[self.group_of[node] or ""] -= 1
                limits.pools[self.pool_of[node]] -= 1
                chosen.append(node)
        return chosen

    def propose_removals(self, limits: Limits, failed: Collection[int]) -> list[int]:
        """Return nodes that the limits allow to remove together, and whose pods fit on the nodes that stay.

        Those with the highest price per pod come first. Nodes in ``failed`` are left out. The engine is not changed.
        """
        limits = limits.copy()
        order = sorted(
            (n for n in range(len(self.names)) if n not in failed and self.is_candidate(n, limits)),
            key=lambda n: (-(self.prices[n] or 0.0) / (1 + len(self.pods_on[n])), n),
        )
        preferred = np.ones(self.engine.nodes, dtype=np.uint8)
        preferred[order[: 3 * limits.nodes]] = 0  # pods go to nodes that stay, if they can
        chosen: list[int] = []
        charge = _Charge(self._allowed)
        receivers: set[int] = set()
        self.engine.fork()
        try:
            for node in order:
                if len(chosen) >= limits.nodes:
                    break
                movers = self._admit(node, limits, charge, receivers, first=not chosen)
                if movers is None:
                    continue
                targets = self._move(node, movers, preferred)
                if targets is None:
                    continue
                receivers.update(targets)
                chosen.append(node)
                self._take(node, movers, limits, charge)
        finally:
            self.engine.revert()
        return chosen

    def propose_replacements(self, limits: Limits, failed: Collection[int]) -> list[Replacement]:
        """Return replacements that the limits allow together; each replaces one or several nodes by one new node.

        The nodes with the highest estimated saving are tried first, except those in ``failed``. A group is given up
        after 20 of its nodes in a row without a replacement. The engine is not changed.
        """
        limits = limits.copy()
        gains = {
            n: gain
            for n in range(len(self.names))
            if n not in failed and self.is_candidate(n, limits) and (gain := self._estimate_gain(n)) > 0
        }
        order = sorted(gains, key=lambda n: (-gains[n], n))
        charge = _Charge(self._allowed)
        receivers: set[int] = set()
        chosen: list[Replacement] = []
        taken: set[int] = set()
        removed = 0
        failed_searches: Counter[str | None] = Counter()
        self.engine.fork()
        try:
            for seed in order:
                if removed >= limits.nodes:
                    break
                group = self.group_of[seed]
                if seed in taken or seed in receivers or failed_searches[group] >= _MAX_FAILED_SEARCHES:
                    continue
                others = [n for n in order if n != seed and n not in taken and n not in receivers]
                others.sort(key=lambda n: self.group_of[n] != group)
                best = self._find_replacement(seed, others, limits, charge, receivers, limits.nodes - removed)
                if best is None:
                    failed_searches[group] += 1
                    continue
                failed_searches[group] = 0
                receivers.update(self._place_replacement(best))
                for node in best.nodes:
                    self._take(node, self.movers(node), limits, charge)
                limits.room[self.offers[best.offer or 0].group] -= 1
                taken.update(best.nodes)
                removed += len(best.nodes)
                chosen.append(best)
        finally:
            self.engine.revert()
        return chosen

    def _find_replacement(
        self,
        seed: int,
        others: Sequence[int],
        limits: Limits,
        charge: _Charge,
        receivers: Collection[int],
        most: int,
    ) -> Replacement | None:
        """Return the replacement of ``seed``, alone or with some of ``others``, that saves most; None if none saves.

        The best-ranked four offers that can replace it are compared. ``charge``: evictions of the step so far.
        ``receivers``: nodes that have received pods in this step; ``most``: maximum number of replaced nodes.
        """
        best: Replacement | None = None
        tried = 0
        for offer in self._rank_offers(seed):
            if limits.room.get(self.offers[offer].group, 0) < 1:
                continue
            attempt = self._try_offer(offer, [seed, *others], limits, charge, receivers, most)
            if attempt is None:
                continue
            if attempt.saves > 0 and (best is None or attempt.saves > best.saves):
                best = attempt
            tried += 1
            if tried > _OFFERS:
                break
        return best

    def _try_offer(
        self,
        offer: int,
        order: Sequence[int],
        limits: Limits,
        charge: _Charge,
        receivers: Collection[int],
        most: int,
    ) -> Replacement | None:
        """Return the replacement of nodes, tried in ``order``, whose pods fit with one new node of an offer.

        None if the first node cannot be replaced, or if it does not save more than its evictions cost. The engine is
        not changed. Parameters as for :meth:`_find_replacement`.
        """
        limits = limits.copy()
        trial = charge.copy()
        receiving = set(receivers)
        replacement = Replacement([], offer, -self.offers[offer].price)
        refused = 0
        self.engine.fork()
        try:
            new = self.engine.add(self.session.templates[offer], len(self.names))
            for node in order:
                if len(replacement.nodes) >= most or refused >= _REFUSED:
                    break
                movers = self._admit(node, limits, trial, receiving, first=not replacement.nodes and not trial.pods)
                if movers is None:
                    if not replacement.nodes:
                        return None
                    continue
                targets = self._move(node, movers, None, new)
                if targets is None:
                    if not replacement.nodes:
                        return None
                    refused += 1
                    continue
                refused = 0
                receiving.update(targets)
                replacement.nodes.append(node)
                replacement.saves += self.prices[node] or 0.0
                self._take(node, movers, limits, trial)
        finally:
            self.engine.revert()
        moved = sum(len(self.movers(node)) for node in replacement.nodes)
        return replacement if limits.worthwhile(replacement.saves, moved) else None

    def _place_replacement(self, replacement: Replacement) -> set[int]:
        """Carry out a replacement on the engine only; return the numbers of the nodes that received pods."""
        new = self.engine.add(self.session.templates[replacement.offer or 0], len(self.names))
        receivers = {new}
        for node in replacement.nodes:
            receivers.update(self._move(node, self.movers(node), None, new) or ())
        return receivers

    def _admit(
        self, node: int, limits: Limits, charge: _Charge, receivers: Collection[int], *, first: bool
    ) -> list[int] | None:
        """Return the pods to move off a node if the limits of the step allow its removal, otherwise None.

        ``charge``: evictions of the step so far. ``receivers``: nodes that have received pods, which stay. For the
        ``first`` node of a step, ``limits.waves`` may be lowered to the waves that this node needs.
        """
        if node in receivers or not self.is_candidate(node, limits):
            return None
        movers = self.movers(node)
        if limits.evictions is not None and charge.pods + len(movers) > limits.evictions:
            return None
        if not limits.worthwhile(self.prices[node] or 0.0, len(movers)):
            return None
        waves = charge.waves_with(len(movers), self._covered(node))
        if waves > limits.waves:
            return None
        if first and limits.few_waves:
            limits.waves = max(1, waves)
        return movers

    def _take(self, node: int, movers: Sequence[int], limits: Limits, charge: _Charge) -> None:
        """Count a node as removed: lower ``limits``, and add the evictions of its ``movers`` to ``charge``."""
        limits.spare[self.group_of[node] or ""] -= 1
        limits.pools[self.pool_of[node]] -= 1
        charge.add(len(movers), self._covered(node))

    def _move(
        self, node: int, movers: Sequence[int], preferred: NDArray[np.uint8] | None, first: int | None = None
    ) -> list[int] | None:
        """Remove a node and place its ``movers`` elsewhere; return the node of each, or None if a pod fits none.

        If None is returned, nothing has changed. ``preferred``: uint8[nodes], 1 = nodes to try before all others;
        ``first``: the node to try first.
        """
        engine = self.engine
        targets = []
        engine.fork()
        for pod in self.pods_on[node]:
            engine.unplace(self.class_of[pod], node)
        engine.remove_node(node)
        for pod in movers:
            pod_class = self.class_of[pod]
            target = -1
            if first is not None and engine.check(pod_class, first) == _engine.FITS:
                target = first
            if target < 0 and preferred is not None:
                target = engine.any_node(pod_class, preferred)
            if target < 0:
                target = engine.any_node(pod_class)
            if target < 0:
                engine.revert()
                return None
            engine.place(pod_class, target)
            targets.append(target)
        engine.commit()
        return targets

    # -- estimates ---------------------------------------------------------------------------------------------------

    def _shares(self, node: int) -> list[float]:
        """Return, by offer, the share of a new node that the pods which must leave ``node`` would fill.

        This is the larger of their shares of cpu and of memory; infinite if the offer has no cpu or no memory.
        """
        shares = self._shares_of.get(node)
        if shares is not None:
            return shares
        movers = self.movers(node)
        need = self._amounts[movers].sum(axis=0) if movers else np.zeros(2)
        shares = [float((need / free).max()) if (free > 0).all() else np.inf for free in self._free]
        self._shares_of[node] = shares
        return shares

    def _estimate_gain(self, node: int) -> float:
        """Estimate the saving ($/h) if the pods of a node cost only the share of the cheapest offer that they need.

        The result is minus infinity without an offer that has cpu and memory.
        """
        costs = [share * offer.price for share, offer in zip(self._shares(node), self.offers, strict=True)]
        return (self.prices[node] or 0.0) - min(costs, default=np.inf)

    def _rank_offers(self, node: int) -> list[int]:
        """Return the numbers of the offers whose share (:meth:`_shares`) costs less than the node, the cheapest first.

        Before them comes the cheapest offer that holds all pods to move and costs less than the node, if there is one.
        """
        shares = self._shares(node)
        price = self.prices[node] or 0.0
        alone = [i for i, offer in enumerate(self.offers) if shares[i] <= 1 and offer.price < price]
        first = sorted(alone, key=lambda i: (self.offers[i].price, i))[:1]
        ranked = sorted(
            (i for i, offer in enumerate(self.offers) if shares[i] * offer.price < price),
            key=lambda i: (shares[i] * self.offers[i].price, i),
        )
        return list(dict.fromkeys([*first, *ranked]))
