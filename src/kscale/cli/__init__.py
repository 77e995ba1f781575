"""The command line: ``kscale`` and ``kubectl kscale``. :mod:`kscale.cli.app` describes how to add a command."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

__all__ = ["main"]

# Missing dependencies of the command line get a message of their own, not a traceback.
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
    # NumPy's OpenBLAS starts one spinning thread per processor when it is loaded. The kernels have threads of their
    # own, and the few matrix products are small.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from kscale.cli.app import run

    run()
