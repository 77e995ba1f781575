"""The command line: ``kscale`` and ``kubectl kscale``. :mod:`kscale.cli.app` describes how to add a command."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from importlib.util import find_spec

__all__ = ["main", "run_as_program"]

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


def run_as_program() -> None:
    """Run :func:`main` as the program of this process, and end the process without releasing its objects one by one.

    Importing and releasing objects take most of the time of a small command. Callbacks of :mod:`atexit` run as usual.
    If some were registered before this call, the process ends as usual, too.
    """
    gc.disable()  # what is imported is not garbage; the command starts the collector
    statuses: list[object] = []
    if not atexit._ncallbacks():  # noqa: SLF001  # earlier callbacks would be skipped by _end_process
        atexit.register(_end_process, statuses)
    try:
        main()
    except SystemExit as end:
        statuses.append(end.code)
        raise


def _end_process(statuses: list[object]) -> None:
    """End the process at once with the exit status in ``statuses``.

    Does nothing if the list is empty, if the status is no integer, or if the output cannot be written.
    """
    if not statuses or not isinstance(statuses[0], int):
        return
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return  # the interpreter tries again and reports it
    os._exit(statuses[0])
