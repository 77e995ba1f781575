"""The cyclic garbage collector of a process of the command's own: it does not walk what stays until the process ends.

Where ``kscale.cli.app.app`` is called in the process of another program, its collector is left as it is.
"""

from __future__ import annotations

import gc
from typing import Final

__all__ = ["keep", "start", "started"]

_MADE: Final = 50_000
"""Objects that are made before the collector looks at them: decisions make very many, and few in circles."""

_ours = False
"""Whether the process is the command's own."""


def start() -> None:
    """While the process imports there is nothing to collect."""
    global _ours  # noqa: PLW0603 - there is one collector a process
    _ours = True
    gc.disable()


def started() -> None:
    """The command begins: what was imported stays."""
    if _ours:
        gc.freeze()
        gc.set_threshold(_MADE)
        gc.enable()


def keep() -> None:
    """Everything that is there now stays, too."""
    if _ours:
        gc.freeze()
