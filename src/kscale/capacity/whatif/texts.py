"""Factors, names and texts that edits share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any

import msgspec

from kscale.errors import InputError
from kscale.objects.nodegroup import NodeGroup

__all__ = ["factor_in", "group_names", "text_of"]

_FACTOR = re.compile(r"x(\d+(?:\.\d+)?)")


def text_of(kind: str, edit: Any) -> str:
    """An edit as text: equal for equal ones."""
    return f"{kind} {msgspec.json.encode(edit).decode()}"


def factor_in(text: str, what: str) -> Fraction:
    """``x0.8`` as a number. Raises InputError that says ``what`` it was meant for."""
    found = _FACTOR.fullmatch(text)
    if found is None:
        raise InputError(f'{what}: "{text}" is no factor like x0.8')
    return Fraction(found[1])


def group_names(groups: Iterable[NodeGroup], pattern: str, retired: Iterable[NodeGroup] = ()) -> list[str]:
    """The groups of a name, or of a pattern. Raises InputError where there is none; ``retired``: groups that were
    removed or lost, of which the error says so."""
    names = _matching(groups, pattern)
    if not names:
        gone = " any more: it was removed, or lost without rebuy: true" if _matching(retired, pattern) else ""
        raise InputError(f'there is no node group "{pattern}"{gone}')
    return names


def _matching(groups: Iterable[NodeGroup], pattern: str) -> list[str]:
    return [group.id for group in groups if fnmatchcase(group.id, pattern) or group.id == pattern]
