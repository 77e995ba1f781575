"""What one loop of scale-down decided."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec

from kscale.ca.scale_down.budgets import CroppedNodes
from kscale.ca.scale_down.eligibility import Eligibility
from kscale.ca.scale_down.nodes_to_delete import NodesToDelete
from kscale.ca.scale_down.pdb import RemainingPdbTracker
from kscale.ca.scale_down.removal_answers import RemovableNode, UnremovableCandidate
from kscale.ca.scale_down.soft_taints import SoftTaints
from kscale.ca.scale_down.unneeded import UnneededNode
from kscale.ca.scale_down.unremovable import UnremovableNode
from kscale.ca.state import LoopState
from kscale.effects import Moment

__all__ = ["Alone", "ScaleDownPlan", "not_tried"]

Alone = dict[str, RemovableNode | UnremovableCandidate]


class ScaleDownPlan(msgspec.Struct, kw_only=True, dict=True):
    """What one loop of scale-down found and would delete.

    - ``result``: ``ScaleDownInCooldown``, ``ScaleDownNoCandidates``, ``ScaleDownNoNodeDeleted`` or
      ``ScaleDownNodeDeleteStarted``, as upstream reports it once the plan is carried out; ``ScaleDownNotTried`` where
      the loop may not scale down (:func:`kscale.ca.may_scale_down`): then nothing was judged.
    - ``candidates``: nodes that were looked at, in order; ``skipped``: those that the limit on unneeded nodes left out;
      ``under_rollout``: those that were not looked at because their machines are being replaced.
    - ``unneeded``, ``removable``: the unneeded nodes in the order found, with times, and with pods and destinations.
    - ``eligibility``: by candidate, with utilisation; ``unremovable``: why nodes stay; ``unremovable_after_update``:
      the same before it was asked which may be deleted now; ``failures``: what simulation found in the way.
    - ``chosen``: before the budgets (None: not asked); ``delete``: what to delete now, per group.
    - ``soft_taints``: all marks to change (one loop changes some of them); ``pdbs``: what is left of the
      budgets.
    - ``remember``: works out ``state``, then holds nothing else; ``judge_alone``: only of ``exhaustive``: works out
      ``alone``.

    The legacy profile knows ``ScaleDownNoUnneeded``, ``ScaleDownNodeDeleted`` (empty nodes, waited for) and
    ``ScaleDownInProgress``, too.
    """

    result: str
    candidates: list[str]
    skipped: list[str]
    unneeded: list[UnneededNode]
    removable: dict[str, RemovableNode]
    eligibility: dict[str, Eligibility]
    unremovable_after_update: dict[str, UnremovableNode]
    unremovable: dict[str, UnremovableNode]
    failures: dict[str, UnremovableCandidate]
    chosen: NodesToDelete | None
    delete: CroppedNodes
    soft_taints: SoftTaints
    pdbs: RemainingPdbTracker
    remember: Callable[[], LoopState]
    judge_alone: Callable[[], Alone] | None = None
    under_rollout: list[str] = []

    def __repr__(self) -> str:
        said = [f"{len(self.unneeded)} of {len(self.candidates)} candidates unneeded"]
        said += [f"deletes {name}" for name in self.delete_empty]
        said += [f"drains {name}" for bucket in self.delete.drain for name in bucket.nodes]
        return f"ScaleDownPlan({self.result}: {', '.join(said)})"

    def _repr_html_(self) -> str:
        """For a notebook."""
        from kscale.html import notebook

        rows = [
            *((name, "deleted", "") for name in self.delete_empty),
            *((name, "drained", f"{len(pods):,} pods move") for name, pods in self.drain.items()),
            *((name, "stays", _why(node)) for name, node in self.unremovable.items()),
        ]
        return notebook.listing(repr(self), ("node", "what becomes of it", "why"), rows)

    @cached_property
    def state(self) -> LoopState:
        """For the next loop. Written down when first read: it says of every pod of a removed node where it went."""
        state = self.remember()
        self.remember = lambda: state  # the cluster that it was worked out from is let go
        return state

    @cached_property
    def alone(self) -> Alone:
        """Only of ``exhaustive``: what would become of each eligible node if no other went. Worked out when first read,
        from the cluster as the loop found it."""
        return {} if self.judge_alone is None else self.judge_alone()

    @property
    def delete_empty(self) -> list[str]:
        """Empty nodes to delete now."""
        return [name for bucket in self.delete.empty for name in bucket.nodes]

    @property
    def drain(self) -> dict[str, dict[str, str]]:
        """Nodes to drain now -> the pods to move and where they would land."""
        return {name: self.removable[name].placement for bucket in self.delete.drain for name in bucket.nodes}

    @cached_property
    def unneeded_by_name(self) -> dict[str, UnneededNode]:
        """The unneeded nodes by name."""
        return {item.name: item for item in self.unneeded}

    @cached_property
    def skipped_names(self) -> frozenset[str]:
        """The nodes that were left out."""
        return frozenset(self.skipped)

    @property
    def unneeded_since(self) -> dict[str, Moment]:
        """Since when each unneeded node is so."""
        return {item.name: item.since for item in self.unneeded}

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name != "remember"}
        return _restored, (fields, self.state)


def _restored(fields: dict[str, Any], state: LoopState) -> ScaleDownPlan:
    return ScaleDownPlan(**fields, remember=lambda: state)


def _why(node: UnremovableNode) -> str:
    blocking = node.blocking_pod
    return node.reason if blocking is None else f"{node.reason}: {blocking.pod} ({blocking.reason})"


def not_tried(state: LoopState) -> ScaleDownPlan:
    """The plan of a loop that may not scale down: the state stays as it was."""
    return ScaleDownPlan(
        result="ScaleDownNotTried",
        candidates=[],
        skipped=[],
        unneeded=[],
        removable={},
        eligibility={},
        unremovable_after_update={},
        unremovable={},
        failures={},
        chosen=None,
        delete=CroppedNodes(empty=[], drain=[]),
        soft_taints=SoftTaints(),
        pdbs=RemainingPdbTracker(),
        remember=lambda: state,
    )
