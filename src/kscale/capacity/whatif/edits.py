"""What each edit of a scenario does to a world."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kscale.capacity.whatif.grammar import Edit, Question
from kscale.capacity.whatif.group_edits import change_flags, change_groups, change_prices, change_scheduler
from kscale.capacity.whatif.pod_edits import change_pods, change_requests, lose_nodes
from kscale.capacity.whatif.world import World

__all__ = ["edited"]


def edited(world: World, edit: Edit, folder: Path, question: Question) -> World:
    """The world with one more edit; files are looked for from ``folder`` on, and ``question`` is what will be asked.
    Raises InputError for an edit of what is not there, and for one that changes nothing."""
    if edit.flags is not None:
        return change_flags(world, edit.flags, question)
    change: Callable[[World, Any, Path], World] = _EDITS[edit.kind]
    return change(world, getattr(edit, edit.kind), folder)


_EDITS: dict[str, Callable[[World, Any, Path], World]] = {
    "groups": change_groups,
    "pods": change_pods,
    "lose": lose_nodes,
    "requests": change_requests,
    "prices": change_prices,
    "scheduler": change_scheduler,
}
