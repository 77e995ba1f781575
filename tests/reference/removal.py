"""Taking nodes away one after the other, written out plainly: lists and loops, nothing remembered, copies for forks.

Nodes have room of one resource and places for pods; pods ask for an amount. The order of everything is that of
upstream's removal simulator: pods by priority, of one priority first those with a usable hint, then a circular first
fit from behind the cursor over the nodes that are still there.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

__all__ = ["Node", "Pod", "World", "lose", "remove"]

MOVES = (0, 1)
UNLESS_BUDGET, BLOCKS = 0, 5


@dataclass
class Node:
    free: int
    slots: int
    cordoned: bool = False
    there: bool = True
    pods: list[int] = field(default_factory=list)


@dataclass
class Pod:
    amount: int
    priority: int = 0
    node: int = -1
    code: int = 1
    budgets: tuple[int, ...] = ()
    hint: int = -1


@dataclass
class World:
    nodes: list[Node]
    pods: list[Pod]
    allowed: list[int]
    cursor: int = 0

    def __post_init__(self) -> None:
        for i, pod in enumerate(self.pods):
            if pod.node >= 0:
                self.nodes[pod.node].pods.append(i)

    def fits(self, pod: int, node: int) -> bool:
        return self.nodes[node].free >= self.pods[pod].amount and self.nodes[node].slots >= 1

    def move(self, pod: int, node: int) -> None:
        self.nodes[node].free -= self.pods[pod].amount
        self.nodes[node].slots -= 1

    def search(self, pod: int, accepts: list[bool]) -> int:
        there = [n for n, node in enumerate(self.nodes) if node.there]
        for step in range(len(there)):
            position = (self.cursor + 1 + step) % len(there)
            n = there[position]
            if accepts[n] and not self.nodes[n].cordoned and self.fits(pod, n):
                self.cursor = position
                return n
        return -1

    def place_all(self, pods: list[int], accepts: list[bool], *, stop: bool) -> tuple[dict[int, int], list[int]]:
        """(where pods went, those that found no place): with ``stop`` a priority is left at its first failure."""
        went: dict[int, int] = {}
        homeless: list[int] = []
        for priority in sorted({self.pods[p].priority for p in pods}, reverse=True):
            rest = []
            for p in (p for p in pods if self.pods[p].priority == priority):
                hint = self.pods[p].hint
                if hint >= 0 and self.nodes[hint].there and accepts[hint] and self.fits(p, hint):
                    self.move(p, hint)
                    went[p] = hint
                else:
                    rest.append(p)
            for p in rest:
                n = self.search(p, accepts)
                if n < 0:
                    homeless.append(p)
                    if stop:
                        break
                    continue
                self.move(p, n)
                went[p] = n
        return went, homeless


def remove(
    world: World,
    candidates: list[int],
    accepts: list[bool],
    *,
    limit: int | None = None,
    atomic: list[bool] | None = None,
    persist: bool = True,
    charge: bool = True,
) -> list[tuple[str, int, bool, dict[int, int]]]:
    """(fate, the pod in the way, risky, where pods went) of each candidate until ``limit`` is reached."""
    answers: list[tuple[str, int, bool, dict[int, int]]] = []
    counted = 0
    for c, n in enumerate(candidates):
        if limit is not None and counted >= limit:
            break
        node = world.nodes[n]
        if not node.there:
            answers.append(("not there", -1, False, {}))
            continue
        blocking = next((p for p in node.pods if _blocks(world, p)), None)
        if blocking is not None:
            answers.append(("blocked", blocking, False, {}))
            continue
        moving = [p for p in node.pods if world.pods[p].code in MOVES]
        before = deepcopy(world.nodes)
        went, homeless = world.place_all(moving, [ok and i != n for i, ok in enumerate(accepts)], stop=True)
        for p, to in went.items():
            world.pods[p].hint = to
        if homeless:
            world.nodes = before
            answers.append(("no place", homeless[0], False, {}))
            continue
        risky = False
        if charge:
            for p in moving:
                for budget in world.pods[p].budgets:
                    world.allowed[budget] -= 1
                    risky = risky or world.allowed[budget] < 0
        counted += not (atomic and atomic[c])
        answers.append(("removable", -1, risky, went))
        if not persist:
            world.nodes = before
            continue
        for p, to in went.items():
            world.nodes[to].pods.append(p)
        node.there = False
        accepts[n] = False
    return answers


def _blocks(world: World, p: int) -> bool:
    pod = world.pods[p]
    return pod.code == BLOCKS or (
        pod.code == UNLESS_BUDGET and any(world.allowed[budget] < 1 for budget in pod.budgets)
    )


def lose(world: World, nodes: list[int], stays: list[bool]) -> tuple[int, list[int]]:
    """(pods that look for a place, those that find none) when these nodes are gone."""
    world = deepcopy(world)
    moving = sorted(p for n in nodes for p in world.nodes[n].pods if not stays[p])
    for n in nodes:
        world.nodes[n].there = False
    for p in moving:
        world.pods[p].hint = -1
    _, homeless = world.place_all(moving, [True] * len(world.nodes), stop=False)
    return len(moving), homeless
