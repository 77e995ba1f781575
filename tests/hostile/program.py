"""``kscale`` with short pauses after failed lists; an hour ahead while the file exists that HOSTILE_CLOCK names.

Each thread pool starts all its threads with its first task. A later increase is therefore a leak. Threads show their
names in ``/proc/PID/task/TID/comm``.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from kscale.cli import main
from kscale.effects import SECOND
from kscale.world.kubernetes import reflector

HOUR = 3600 * SECOND


def fill_pools() -> None:
    """Let each pool start all its threads with its first task."""
    start_one: Callable[[ThreadPoolExecutor], None] = ThreadPoolExecutor._adjust_thread_count

    def start_all(pool: ThreadPoolExecutor) -> None:
        while len(pool._threads) < pool._max_workers:
            start_one(pool)

    ThreadPoolExecutor._adjust_thread_count = start_all


def name_threads() -> None:
    """Show the names of threads in ``/proc``."""
    run = threading.Thread.run

    def run_named(thread: threading.Thread) -> None:
        with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
            comm.write(thread.name[:15])
        run(thread)

    threading.Thread.run = run_named


if __name__ == "__main__":
    reflector._LONGEST_PAUSE = SECOND  # a reflector waits up to half a minute otherwise
    path = os.environ["HOSTILE_CLOCK"]
    real = time.time_ns
    time.time_ns = lambda: real() + HOUR * os.path.exists(path)
    fill_pools()
    name_threads()
    sys.exit(main())
