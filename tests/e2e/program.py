"""``kscale`` where somebody sets the clock: while the file is there that ``E2E_CLOCK`` names, it is an hour later."""

from __future__ import annotations

import os
import sys
import time

from kscale.cli import main

HOUR = 3600 * 10**9

if __name__ == "__main__":
    if path := os.environ.get("E2E_CLOCK"):
        real = time.time_ns
        time.time_ns = lambda: real() + HOUR * os.path.exists(path)
    sys.exit(main())
