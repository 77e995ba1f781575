"""Worker processes that end when their parent does."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from typing import Any

__all__ = ["worker_processes"]


def worker_processes(count: int, *, ignore_interrupts: bool = False) -> ProcessPoolExecutor:
    """Return an executor of new worker processes, which end when this process ends.

    Processes are spawned and not forked, because a fork would take over locks of native threads.

    Parameters
    ----------
    count : int
        Number of processes.
    ignore_interrupts : bool, default False
        Whether the workers ignore SIGINT, which a terminal sends to the workers and to their parent. Set it if the
        parent ends its workers itself.
    """
    return ProcessPoolExecutor(
        count, mp_context=get_context("spawn"), initializer=_start_worker, initargs=(ignore_interrupts,)
    )


def _start_worker(ignore_interrupts: bool) -> None:
    """Initialise a worker process, which ends when its parent ends.

    ``ignore_interrupts``: whether it ignores SIGINT.
    """
    if ignore_interrupts:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:  # otherwise a worker whose parent was killed would wait for tasks forever
        threading.Thread(target=_end_after, args=(parent,), name="kscale-parent", daemon=True).start()


def _end_after(parent: Any) -> None:
    """Wait for the end of the parent process, then end this one at once, with exit code 1."""
    parent.join()
    os._exit(1)
