"""One-shot commands that read a live cluster, while something goes wrong."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from hostile.http_server import HostileServer
from hostile.programs import write_kubeconfig

__all__ = ["COMMANDS", "Command"]

_ROOM: Final = 512 << 20


class Words(NamedTuple):
    """A command line that is tried."""

    name: str
    words: tuple[str, ...]


COMMANDS: Final = (Words("estimate", ("estimate", "-q")), Words("hpa", ("hpa", "-q")))


class Command:
    """One command under way: it must answer, or say by name why it cannot. It is started early, and waits for its
    first answer until the server admits it."""

    def __init__(self, words: Words, server: HostileServer, directory: Path, number: int) -> None:
        self.name, self.agent = words.name, f"{words.name}-{number}"
        server.hold(self.agent)
        kubeconfig = write_kubeconfig(server.url, directory, self.agent)
        self._task = asyncio.create_task(self._run([*words.words, "--kubeconfig", str(kubeconfig)]))
        self._pid = 0

    async def _run(self, words: list[str]) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kscale", *words,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self._pid = process.pid
        try:
            _, output = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        return process.returncode or 0, output.decode(errors="replace")

    @property
    def done(self) -> bool:
        return self._task.done()

    async def outcome(self, seconds: float) -> str:
        """ok, refused (it said why), bug, stuck, or unbounded."""
        end = time.monotonic() + seconds
        highest = 0
        while not self._task.done() and time.monotonic() < end:
            highest = max(highest, self._memory())
            await asyncio.sleep(0.05)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
            return "stuck"
        status, output = self._task.result()
        if highest > _ROOM:
            return f"unbounded ({highest >> 20} MiB)"
        if "bug in kscale" in output or "Traceback" in output or status not in (0, 1, 2):
            print(f"---- {self.name}: {status}\n{output[-2000:]}\n----", flush=True)
            return f"ended ({status})"
        return "refused" if status == 2 else "ok"

    def _memory(self) -> int:
        try:
            text = Path(f"/proc/{self._pid}/status").read_text()
        except OSError:
            return 0
        return int(next((line.split()[1] for line in text.splitlines() if line.startswith("VmHWM:")), "0")) << 10
