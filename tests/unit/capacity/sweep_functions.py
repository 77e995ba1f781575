"""What the workers of the tests of sweeps run: found by its name in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["added", "dies", "dies_once"]


def added(shared: Any, part: list[int]) -> Iterator[int]:
    for number in part:
        if number == 13:
            raise ValueError("13")
        yield number + int(shared.sum())


def dies_once(shared: Path, part: list[int]) -> list[int]:
    """The first worker that gets 5 ends without a word."""
    if 5 in part and not shared.exists():
        shared.touch()
        os._exit(1)
    return part


def dies(shared: Any, part: list[int]) -> list[int]:
    os._exit(1)
