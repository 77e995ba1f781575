"""The cyclic garbage collector of a process of the command's own: it does not walk what stays until the process ends.

Where ``kscale.cli.app.app`` is called in the process of another program, its collector is left as it is.
"""

from __future__ import annotations

import gc

__all__ = ["keep", "start", "started"]


def start() -> None:
    """While the process imports there is nothing to collect."""
    gc.disable()


def started() -> None:
    """The command begins: what was imported stays."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def keep() -> None:
    """Everything that is there now stays, too."""
    if gc.get_freeze_count():
        gc.freeze()
