"""Marking nodes, and taking marks from them (``utils/taints``)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from kscale.ca.nodes import DELETION_CANDIDATE_TAINT, TO_BE_DELETED_TAINT, has_taint
from kscale.effects import SECOND, ApiError, Get, Moment, Patch, Progress, StepsOf, Wait
from kscale.effects.moments import OtherDuration
from kscale.objects.core import Node, Taint
from kscale.objects.decode import to_dict

__all__ = [
    "Writing",
    "clean_deletion_candidate",
    "clean_to_be_deleted",
    "mark_deletion_candidate",
    "mark_to_be_deleted",
    "release_warning",
]

RETRY_DEADLINE: Final[OtherDuration] = 5 * SECOND
CONFLICT_RETRY_INTERVAL: Final[OtherDuration] = 3 * SECOND // 4

Writing = Get | Patch | Wait
"""What changing a node's taints asks for."""

_Change = Callable[[Node], list[Taint] | None]
"""The taints that a node is to have; None: those that it has."""


def mark_to_be_deleted(p: Progress, node: Node, *, cordon: bool) -> StepsOf[Writing, ApiError | None]:
    """Adds the taint that keeps pods away; a node that has it already stays as it is, and is not cordoned."""
    taint = Taint(key=TO_BE_DELETED_TAINT, value=_seconds(p.now), effect="NoSchedule")
    error, _ = yield from _change(p, node, _adding(taint), True if cordon else None)
    return error


def clean_to_be_deleted(p: Progress, node: Node, *, uncordon: bool) -> StepsOf[Writing, tuple[ApiError | None, bool]]:
    """Takes it away, and with it any cordon, whoever set it. Tells of an error and whether anything changed."""
    return (yield from _change(p, node, _without((TO_BE_DELETED_TAINT,)), False if uncordon else None))


def release_warning(node: Node, error: ApiError) -> str:
    """Return what upstream logs of a node whose taint could not be taken away (``CleanTaints``)."""
    name = node.metadata.name
    unread = _unread(name)
    if error.message.startswith(unread):
        return f"Error while removing {TO_BE_DELETED_TAINT} taints from node {name}: {error.message[len(unread) :]}"
    return f"Error while releasing {TO_BE_DELETED_TAINT} taints on node {name}: {error.message}"


def _unread(name: str) -> str:
    return f"failed to get node {name}: "


def mark_deletion_candidate(p: Progress, node: Node) -> StepsOf[Writing, ApiError | None]:
    """Adds the soft taint of an unneeded node."""
    taint = Taint(key=DELETION_CANDIDATE_TAINT, value=_seconds(p.now), effect="PreferNoSchedule")
    error, _ = yield from _change(p, node, _adding(taint), None)
    return error


def clean_deletion_candidate(p: Progress, node: Node) -> StepsOf[Writing, tuple[ApiError | None, bool]]:
    """Takes it away. Tells of an error and whether anything changed."""
    return (yield from _change(p, node, _without((DELETION_CANDIDATE_TAINT,)), None))


def _seconds(now: Moment) -> str:
    return str(now // SECOND)


def _adding(taint: Taint) -> _Change:
    return lambda node: None if has_taint(node, taint.key) else [*node.spec.taints, taint]


def _without(keys: Collection[str]) -> _Change:
    def change(node: Node) -> list[Taint] | None:
        kept = [taint for taint in node.spec.taints if taint.key not in keys]
        return kept if len(kept) < len(node.spec.taints) else None

    return change


def _change(
    p: Progress, node: Node, change: _Change, unschedulable: bool | None
) -> StepsOf[Writing, tuple[ApiError | None, bool]]:
    """Writes what ``change`` makes of the node: of the given object first, of a fresh one after a conflict.

    That nothing is to change is believed of a fresh object only.
    """
    until = p.now + RETRY_DEADLINE
    known, fresh = node, False
    while True:
        taints = change(known)
        if taints is None and fresh:
            return None, False
        if taints is not None:
            outcome = yield from p.act(
                Patch(
                    kind="Node",
                    name=node.metadata.name,
                    patch=_spec(taints, unschedulable),
                    resource_version=known.metadata.resource_version,
                )
            )
            if outcome.error is None or not outcome.error.is_conflict or p.now >= until:
                return outcome.error, outcome.error is None
            yield from p.wait(CONFLICT_RETRY_INTERVAL)
        fresh = True
        outcome = yield from p.act(Get(kind="Node", name=node.metadata.name))
        if outcome.error is not None:
            text = f"{_unread(node.metadata.name)}{outcome.error.message}"
            return ApiError(text, reason=outcome.error.reason), False
        known = outcome.value


def _spec(taints: list[Taint], unschedulable: bool | None) -> dict[str, Any]:
    """As a merge patch: the taints as a whole, and the cordon if it is to change."""
    spec: dict[str, Any] = {"taints": to_dict(taints)}
    if unschedulable is not None:
        spec["unschedulable"] = unschedulable
    return {"spec": spec}
