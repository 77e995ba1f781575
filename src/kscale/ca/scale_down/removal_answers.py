"""What comes of looking at nodes that may go: they can, with all their pods, or they have to stay, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.ca.scale_down.drain_codes import DAEMON, MOVES, MOVES_UNLESS_PDB, WAITS
from kscale.ca.scale_down.drainability.status import BlockingPod
from kscale.ca.scale_down.pdb import RemainingPdbTracker
from kscale.scheduling.place import PlaceState

__all__ = ["Moves", "RemovableNode", "RemovalResult", "UnremovableCandidate"]


class Moves(msgspec.Struct, frozen=True, eq=False):
    """Pods of removable nodes, one behind the other: int32[n] pods, their drain codes and the nodes they went to."""

    pods: NDArray[np.int32]
    codes: NDArray[np.uint8]
    to: NDArray[np.int32]
    keys: Sequence[str]
    nodes: Sequence[str]


class RemovableNode:
    """A node that can go. ``risky``: budgets do not let its pods go all at once; ``drain``: it has pods to move;
    ``waits``: it has pods that are to finish first. Names of pods are made when asked for."""

    __slots__ = ("_first", "_last", "_moves", "drain", "node", "risky", "waits")

    def __init__(
        self, node: str, moves: Moves, first: int, last: int, *, risky: bool, drain: bool, waits: bool
    ) -> None:
        self.node = node
        self.risky = risky
        self.drain = drain
        self.waits = waits
        self._moves = moves
        self._first = first
        self._last = last

    @classmethod
    def of(cls, node: str, placement: dict[str, str]) -> RemovableNode:
        """A node whose pods all find a place (``placement``: pod -> node)."""
        numbers = np.arange(len(placement), dtype=np.int32)
        codes = np.full(len(placement), MOVES, dtype=np.uint8)
        moves = Moves(numbers, codes, numbers, list(placement), list(placement.values()))
        return cls(node, moves, 0, len(placement), risky=False, drain=bool(placement), waits=False)

    def __repr__(self) -> str:
        return f"RemovableNode({self.node!r}, placement={self.placement!r}, risky={self.risky})"

    def _pods(self, low: int, high: int) -> NDArray[np.int64]:
        codes = self._moves.codes[self._first : self._last]
        return self._first + np.flatnonzero((codes >= low) & (codes <= high))

    def _names(self, low: int, high: int) -> list[str]:
        keys = self._moves.keys
        return [keys[i] for i in self._moves.pods[self._pods(low, high)].tolist()]

    @property
    def pods_to_reschedule(self) -> list[str]:
        """Pods that find another place, ``namespace/name``, in node order."""
        return self._names(MOVES_UNLESS_PDB, MOVES)

    @property
    def daemon_set_pods(self) -> list[str]:
        """DaemonSet pods: they go with the node."""
        return self._names(DAEMON, DAEMON)

    @property
    def on_completion_pods(self) -> list[str]:
        """Pods that are to finish before the node goes."""
        return self._names(WAITS, WAITS)

    @property
    def placement(self) -> dict[str, str]:
        """Where each pod to reschedule went at that moment (a later removal may have moved it again)."""
        moves, which = self._moves, self._pods(MOVES_UNLESS_PDB, MOVES)
        to = moves.to[which].tolist()
        return {moves.keys[i]: moves.nodes[n] for i, n in zip(moves.pods[which].tolist(), to, strict=True)}


class UnremovableCandidate(msgspec.Struct, kw_only=True, rename="camel"):
    """A node that has to stay. ``homeless``: the pod that no node took, for the reason ``NoPlaceToMovePods``;
    ``blocking_pod``: the pod that may not be moved, and ``error``: upstream's text of it, for the reason
    ``BlockedByPod``. None for every other reason."""

    node: str
    reason: str
    blocking_pod: BlockingPod | None = None
    homeless: str | None = None
    error: str | None = None


class RemovalResult:
    """Candidates in the order in which they were decided, and what the simulator remembers afterwards.

    ``removable``, ``unremovable``; ``pdbs``: what is left of the budgets; ``state``: cursor and hints as they stood,
    written down when they are first read.
    """

    def __init__(
        self,
        removable: list[RemovableNode],
        unremovable: list[UnremovableCandidate],
        pdbs: RemainingPdbTracker,
        remembered: Callable[[], PlaceState],
    ) -> None:
        self.removable = removable
        self.unremovable = unremovable
        self.pdbs = pdbs
        self._remembered = remembered

    @cached_property
    def state(self) -> PlaceState:
        return self._remembered()
