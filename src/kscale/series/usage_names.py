"""The columns of recorded usage by their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kscale.errors import InputError, Problem
from kscale.series.columns import KEY_COLUMNS

__all__ = ["CPU", "MEMORY", "check_columns", "column_names"]

CPU: Final = "cpu_cores"
MEMORY: Final = "memory_bytes"


def column_names(renamed: Mapping[str, str] | None) -> dict[str, str]:
    """The column of each thing that is known of usage."""
    return {key: (renamed or {}).get(key, key) for key in ("time", *KEY_COLUMNS, CPU, MEMORY, "workload")}


def check_columns(found: Iterable[str], names: Mapping[str, str], source: str) -> list[str]:
    """Those of a file's columns that are read; raises ``InputError`` for what is missing."""
    have = list(found)
    missing = [names[key] for key in ("time", *KEY_COLUMNS) if names[key] not in have]
    if missing:
        shown = ", ".join(have)
        raise InputError(Problem(f"no column {', '.join(map(repr, missing))} (columns: {shown})", source))
    if names[CPU] not in have and names[MEMORY] not in have:
        raise InputError(Problem(f"neither a column {names['cpu_cores']!r} nor {names['memory_bytes']!r}", source))
    twice = sorted({name for name in names.values() if have.count(name) > 1})
    if twice:
        raise InputError(Problem(f"the column {twice[0]!r} comes twice", source))
    return [name for name in names.values() if name in have]
