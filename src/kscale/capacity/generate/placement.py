"""Where generated pods run: legal by requests, taints, selectors, spread and anti-affinity.

It fills nodes; it does not imitate the choice of the scheduler among them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.generate.fleet import ZONES, Node, Pool
from kscale.capacity.generate.rng import SplitMix64
from kscale.capacity.generate.workloads import RESOURCES, Workload
from kscale.scheduling.fit_error import fit_error

__all__ = ["VOLUMES_PER_NODE", "Placement"]

VOLUMES_PER_NODE = 25
_Nodes = NDArray[np.int64]  # positions of nodes
_NONE: _Nodes = np.zeros(0, dtype=np.int64)


class Placement:
    """The free room of every node, int64[nodes, RESOURCES]."""

    def __init__(self, nodes: list[Node], max_pods: int) -> None:
        self.pools: list[Pool] = []
        pool_of, zone_of, free = [], [], []
        for node in nodes:
            if not self.pools or self.pools[-1] is not node.pool:
                self.pools.append(node.pool)
            kind = node.pool.instance
            pool_of.append(len(self.pools) - 1)
            zone_of.append(ZONES.index(node.zone))
            free.append((kind.alloc_cpu, kind.alloc_memory_mib, max_pods, kind.gpu, VOLUMES_PER_NODE))
        self._pool = np.array(pool_of, dtype=np.int64)
        self._zone = np.array(zone_of, dtype=np.int64)
        self.free = np.array(free, dtype=np.int64).reshape(-1, len(RESOURCES))
        self.total = self.free.copy()
        self._cache: dict[tuple[object, ...], _Nodes] = {}
        untainted = np.isin(self._pool, [i for i, pool in enumerate(self.pools) if pool.taint is None])
        self._ordinary = untainted if untainted.any() else ~untainted
        self.ordinary_free = self.free[self._ordinary].sum(axis=0)  # of the nodes that any pod may use
        self.largest: tuple[int, int] = (int(self.free[:, 0].max()), int(self.free[:, 1].max()))

    def eligible(self, workload: Workload, zone: str = "", *, taints: bool = True) -> _Nodes:
        """Nodes that selectors, zone and (unless told otherwise) taints allow."""
        zones = (zone,) if zone else workload.zones
        key = (workload.classes, zones, workload.tolerates if taints else None)
        found = self._cache.get(key)
        if found is None:
            pools = [
                i
                for i, pool in enumerate(self.pools)
                if workload.selects(pool) and (not taints or workload.tolerates_taint(pool))
            ]
            mask = np.isin(self._pool, pools)
            if zones:
                mask &= np.isin(self._zone, [ZONES.index(z) for z in zones if z in ZONES])
            found = self._cache[key] = np.flatnonzero(mask)
        return found

    def room(self, workload: Workload, nodes: _Nodes) -> _Nodes:
        """How many pods each of the nodes can still take."""
        demand = workload.demand
        used = np.flatnonzero(demand)
        return np.asarray((self.free[np.ix_(nodes, used)] // demand[used]).min(axis=1))

    def place_everywhere(self, workload: Workload) -> _Nodes:
        """One pod on every eligible node, as a DaemonSet does."""
        nodes = self.eligible(workload)
        nodes = nodes[self.room(workload, nodes) > 0]
        self._take(nodes, np.ones(len(nodes), dtype=np.int64), workload)
        return nodes

    def place(self, workload: Workload, replicas: int, rng: SplitMix64) -> _Nodes:
        """Place up to ``replicas`` pods; the node of each one that has a place, all rules kept."""
        if workload.spread != "DoNotSchedule":
            return self._fill(workload, self.eligible(workload), replicas, rng)
        # Every zone that the selectors allow counts, tainted or full: none may lag more than one pod behind another.
        zones = [z for z in ZONES if self.eligible(workload, z, taints=False).size]
        turn = rng.below(len(zones)) if zones else 0
        zones = zones[turn:] + zones[:turn]
        chosen = [
            self._fill(workload, self.eligible(workload, z), (replicas + len(zones) - 1 - i) // len(zones), rng)
            for i, z in enumerate(zones)
        ]
        most = min((len(nodes) for nodes in chosen), default=0) + 1
        for nodes in chosen:
            again, pods = np.unique(nodes[most:], return_counts=True)
            self._take(again, -pods, workload)
        kept = [nodes[:most] for nodes in chosen]
        return np.concatenate(kept) if kept else _NONE

    def _fill(self, workload: Workload, nodes: _Nodes, replicas: int, rng: SplitMix64) -> _Nodes:
        if not nodes.size or not replicas:
            return _NONE
        start, window = rng.below(len(nodes)), 4 * replicas + 64
        while True:  # look at a few nodes first: at all of them only if those have no room
            window = min(window, len(nodes))
            some = np.concatenate([nodes[start : start + window], nodes[: max(0, start + window - len(nodes))]])
            room = self.room(workload, some)
            if workload.per_node:
                room = np.minimum(room, workload.per_node)
            if window == len(nodes) or int(room.sum()) >= replicas:
                break
            window *= 8
        cap = 1  # a few on each node, not one node full of them
        while cap < replicas and int(np.minimum(room, cap).sum()) < replicas:
            cap *= 2
        room = np.minimum(room, cap)
        before = np.cumsum(room) - room
        take = np.clip(replicas - before, 0, room)
        self._take(some, take, workload)
        return np.repeat(some, take)

    def _take(self, nodes: _Nodes, pods: _Nodes, workload: Workload) -> None:
        """Take the room of so many pods from each of the nodes, which differ."""
        self.free[nodes] -= pods[:, None] * workload.demand
        self.ordinary_free -= int(pods[self._ordinary[nodes]].sum()) * workload.demand

    def why_not(self, workload: Workload) -> str:
        """What kube-scheduler writes about a pod that fits nowhere; empty if it fits."""
        n = len(self.free)
        selected = self.eligible(workload, taints=False)
        untainted = np.isin(self._pool, [i for i, pool in enumerate(self.pools) if workload.tolerates_taint(pool)])
        tainted = int((~untainted).sum())
        nodes = selected[untainted[selected]]
        reasons = {
            "node(s) had untolerated taint(s)": tainted,
            "node(s) didn't match Pod's node affinity/selector": n - tainted - len(nodes),
        }
        lacking = self.free[nodes] < workload.demand
        if not lacking.any(axis=1).all():
            return ""
        for r, text in (
            (0, "Insufficient cpu"),
            (1, "Insufficient memory"),
            (2, "Too many pods"),
            (3, "Insufficient nvidia.com/gpu"),
        ):
            reasons[text] = int((lacking[:, r] & (workload.demand[r] > 0)).sum())
        return fit_error({text: count for text, count in reasons.items() if count}, n)
