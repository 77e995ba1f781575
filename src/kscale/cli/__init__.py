"""The command line: ``kscale`` and ``kubectl kscale``. How to add a command is told in ``kscale.cli.app``."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

__all__ = ["main"]

# Told apart from a bug: without these the command line cannot start at all.
_NEEDED = ("typer", "rich", "yaml")


def main() -> None:
    """Run the command line with ``sys.argv``; always ends in ``SystemExit`` with the documented status."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"error: the command line needs the extra [cli] (missing: {', '.join(missing)}): "
            "pip install 'kscale-core[cli]'\n"
        )
        raise SystemExit(2)
    from kscale.cli.inputs import start

    start()
    # NumPy's OpenBLAS starts a thread a processor when it is loaded, and they spin. The kernels' threads are their own,
    # and the few products of matrices are small.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from kscale.cli.app import run

    run()
