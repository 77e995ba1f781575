"""``kscale`` with short pauses after failed lists; an hour ahead while the file exists that HOSTILE_CLOCK names."""

from __future__ import annotations

import os
import sys
import time

from kscale.cli import main
from kscale.effects import SECOND
from kscale.world.kubernetes import reflector

HOUR = 3600 * SECOND

if __name__ == "__main__":
    reflector._LONGEST_PAUSE = SECOND  # a reflector waits up to half a minute otherwise
    path = os.environ["HOSTILE_CLOCK"]
    real = time.time_ns
    time.time_ns = lambda: real() + HOUR * os.path.exists(path)
    sys.exit(main())
