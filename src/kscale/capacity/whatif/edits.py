"""What each edit of a scenario does to a world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kscale.capacity.whatif.grammar import Edit, GroupsEdit, Question
from kscale.capacity.whatif.group_edits import change_flags, change_groups, change_prices, change_scheduler
from kscale.capacity.whatif.pod_edits import change_pods, change_requests, lose_nodes
from kscale.capacity.whatif.question_flags import options_in
from kscale.capacity.whatif.texts import text_of
from kscale.capacity.whatif.world import World

__all__ = ["edited", "ground_of"]


def edited(world: World, edit: Edit, folder: Path, question: Question) -> World:
    """The world with one more edit; files are looked for from ``folder`` on, and ``question`` is what will be asked.
    Raises InputError for an edit of what is not there, and for one that changes nothing."""
    if edit.flags is not None:
        made = change_flags(world, edit.flags, question)
    else:
        change: Callable[[World, Any, Path], World] = _EDITS[edit.kind]
        made = change(world, getattr(edit, edit.kind), folder)
    ground = ground_of(edit, question)
    return replace(made, digest=(*world.digest, ground)) if ground else made


def ground_of(edit: Edit, question: Question) -> str:
    """The edit as the digest of a world has it: its text, or empty where decisions depend on it in prices and in the
    choice among options only. Raises InputError for flags that cannot be read or that ``question`` does not read."""
    if edit.prices is not None or (edit.groups is not None and _only_prices(edit.groups)):
        return ""
    if edit.flags is None:
        return text_of(edit.kind, getattr(edit, edit.kind))
    values = options_in(edit.flags, question)
    others = {name: str(value) for name, value in values.items() if name != "expander"}
    return text_of("flags", others) if others else ""


def _only_prices(edit: GroupsEdit) -> bool:
    return not edit.remove and not edit.add and all(change.given == {"price"} for change in edit.set.values())


_EDITS: dict[str, Callable[[World, Any, Path], World]] = {
    "groups": change_groups,
    "pods": change_pods,
    "lose": lose_nodes,
    "requests": change_requests,
    "prices": change_prices,
    "scheduler": change_scheduler,
}
