"""Commands as processes of their own, without the time to start Python: forks of one process that has imported kscale.

A command has its own descriptors, folder, environment, signals and exit status, and Python's own end of a process.
Use a new interpreter where its start is tested, for example the encoding of a locale or closed streams.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Command:
    """A command that runs."""

    pid: int
    _connection: socket.socket

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Return the exit status, or the negative number of the signal that ended the command."""
        return int(self._connection.recv(64))


class CommandServer:
    """The process that forks. One command runs at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def start(self, *words: object, stdout: int, stderr: int, cwd: Path | None = None, **limits: int) -> Command:
        """Start a command; ``file_size`` limits how many bytes it can write to a file."""
        request = {"words": [*map(str, words)], "cwd": str(cwd or Path.cwd()), "environment": {**os.environ}, **limits}
        socket.send_fds(self._connection, [json.dumps(request).encode()], [stdout, stderr])
        return Command(int(self._connection.recv(64)), self._connection)

    def run(
        self, *words: object, stdout: int | None = None, cwd: Path | None = None, **limits: int
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. Without ``stdout`` the result has what it wrote there."""
        pipes = [os.pipe(), os.pipe()]
        inputs = [writing for _, writing in pipes]
        command = self.start(*words, stdout=stdout or inputs[0], stderr=inputs[1], cwd=cwd, **limits)
        for writing in inputs:
            os.close(writing)
        with ThreadPoolExecutor(len(pipes)) as pool:
            texts = pool.map(read_to_end, (reading for reading, _ in pipes))
        return subprocess.CompletedProcess([*map(str, words)], command.wait(), *texts)


def read_to_end(descriptor: int) -> str:
    with open(descriptor, encoding="utf-8") as file:
        return file.read()


@contextlib.contextmanager
def command_server() -> Iterator[CommandServer]:
    """Start the process that forks, and end it afterwards."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            server = subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()])
        yield CommandServer(ours)
    server.wait()


def await_command(connection: socket.socket) -> None:
    """Return in the process of a command, with everything set for it to begin."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 2)
        if not message:
            sys.exit()
        child = os.fork()
        if not child:
            connection.close()
            become(json.loads(message), descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(b"%d" % child)
        _, status = os.waitpid(child, 0)
        connection.send(b"%d" % os.waitstatus_to_exitcode(status))


def become(request: dict[str, Any], descriptors: list[int]) -> None:
    for number, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # open until the process ends
    sys.stderr = sys.__stderr__ = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115  # as above
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["kscale", *request["words"]]
    if "file_size" in request:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_size"],) * 2)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it for what they run in the background
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as kscale.cli.main sets it: a fork has one thread
    sys.path.pop(0)  # the folder of this file
    import kscale.__main__

    for module in pkgutil.walk_packages(kscale.__path__, "kscale."):
        with contextlib.suppress(ImportError):  # of an optional library
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()  # the end of a command then does not look through what was imported
    await_command(socket.socket(fileno=int(sys.argv[1])))
    kscale.__main__.run_as_program()
