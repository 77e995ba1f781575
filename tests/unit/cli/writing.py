"""The command line in a process of its own that something stops in the middle of a write."""

from __future__ import annotations

import io
import os
import resource
import signal
import sys
import traceback
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import kscale
from kscale import files

__all__ = ["FULL", "Ended", "Fault", "run"]

_PRELOADED = (
    "kscale.cli.app", "kscale.cli.output", "kscale.cli.inputs", "kscale.cli.commands.mix", "kscale.capacity.mix",
    "kscale.cli.commands.scale_up", "kscale.cli.commands.scale_down", "kscale.cli.commands.simulate",
    "kscale.simulation", "kscale.cli.commands.manifests", "kscale.cli.commands.recommend", "kscale.schemas",
)  # fmt: skip
_context = get_context("forkserver")
_context.set_forkserver_preload(list(_PRELOADED))
_ROOT = Path(kscale.__file__).parents[1]
"""The folder that kscale is imported from: the tree or what is installed."""
FULL = 0
"""In place of a signal: the disk is full."""


@dataclass(frozen=True)
class Fault:
    """``signal`` (or FULL) comes in the ``nth`` file, when ``half`` of it is written or just before it is renamed."""

    signal: int
    nth: int = 0
    half: bool = True


@dataclass(frozen=True)
class Ended:
    """How a process ended: its status (negative: the signal), what it said, and which function wrote each file."""

    status: int
    stderr: str
    writers: tuple[str, ...]


def run(words: tuple[str, ...], folder: Path, fault: Fault | None = None) -> Ended:
    """Run a command in a folder; the signal is sent when the process says that it is where the fault wants it."""
    ours, theirs = _context.Pipe()
    process = _context.Process(target=_main, args=(words, str(folder), fault, theirs))
    process.start()
    theirs.close()
    writers: list[str] = []
    stderr: list[str] = []
    try:
        while True:
            report = ours.recv()
            if report is None:
                assert fault is not None
                assert process.pid is not None
                os.kill(process.pid, fault.signal)
            else:
                name, text = report
                (writers if name == "writer" else stderr).append(text)
    except (EOFError, ConnectionError):
        pass
    process.join()
    assert process.exitcode is not None
    return Ended(process.exitcode, "".join(stderr), tuple(writers))


class _Stderr(io.TextIOBase):
    """A full disk, which is a limit of the process, does not meet it."""

    def __init__(self, connection: Connection) -> None:
        self._told = connection

    def write(self, text: str) -> int:
        self._told.send(("stderr", text))
        return len(text)


def _main(words: tuple[str, ...], folder: str, fault: Fault | None, connection: Connection) -> None:
    # Shells ignore SIGINT for what they run in the background, and nohup ignores SIGHUP.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.chdir(folder)
    os.environ["XDG_DATA_HOME"] = folder
    os.environ.pop("KSCALE_DEBUG", None)
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # stays open until the process ends
    sys.stderr = _Stderr(connection)
    _watch(fault, connection)
    sys.argv = ["kscale", *words]
    from kscale.cli import main

    main()


def _watch(fault: Fault | None, connection: Connection) -> None:
    """Tell who writes each file, and let the fault come."""
    count = -1
    struck = False

    class Stopped(io.BufferedWriter):
        def write(self, data: Any) -> int:
            nonlocal struck
            if fault is None or fault.nth != count or not fault.half or struck:
                return super().write(data)
            struck = True
            data = bytes(data)
            super().write(data[: len(data) // 2])
            self.flush()
            _strike(fault, connection, self.tell())
            super().write(data[len(data) // 2 :])
            return len(data)

    def opened(file: Any, mode: str = "r", **more: Any) -> Any:
        nonlocal count
        if mode != "wb":
            return open(file, mode, **more)
        count += 1
        paths = [(Path(each.filename), each.name) for each in traceback.extract_stack()]
        callers = [(path.relative_to(_ROOT), name) for path, name in paths if path.is_relative_to(_ROOT)]
        place, name = next((path, name) for path, name in reversed(callers) if path.as_posix() != "kscale/files.py")
        connection.send(("writer", f"{place.as_posix()}:{name}"))
        return Stopped(io.FileIO(file, mode, **more))

    def replace(source: Any, target: Any) -> None:
        if fault is not None and fault.nth == count and not fault.half:
            _strike(fault, connection, 0)
        os.rename(source, target)

    class Os:
        def __getattr__(self, name: str) -> Any:
            return replace if name == "replace" else getattr(os, name)

    files.open = opened
    files.os = Os()


def _strike(fault: Fault, connection: Connection, size: int) -> None:
    if fault.signal == FULL:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        return
    connection.send(None)
    while not connection.poll(0.1):  # until the signal, which may come before this call waits and is handled after it
        pass
