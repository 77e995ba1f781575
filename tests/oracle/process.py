"""A Go program that answers JSON lines, as a child process."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

__all__ = ["Oracle", "OracleError", "Reply"]

_ENCODER = msgspec.json.Encoder()
_PATIENCE = 180.0
_DECODER = msgspec.json.Decoder()


class OracleError(RuntimeError):
    """The program ended, or answered something else than what was asked."""


class Reply(msgspec.Struct, frozen=True):
    """The answer to one case: an output, or why the case cannot be asked."""

    output: Any = None
    error: str = ""


class Oracle:
    """A running oracle program. Used as a context manager; leaving ends the process.

    Batches are pipelined: :meth:`send` returns at once, so that the caller can work while the program does.
    """

    def __init__(self, program: Path) -> None:
        self._program = program

    def __enter__(self) -> Self:
        self._process = subprocess.Popen([self._program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._writers: list[threading.Thread] = []
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        for writer in self._writers:
            writer.join()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait()

    def send(self, cases: Iterable[tuple[str, Any]]) -> int:
        """Send (kind, input) pairs; returns how many. Every batch sent must be received, in order."""
        lines = [
            _ENCODER.encode({"id": i, "kind": kind, "input": case_input}) for i, (kind, case_input) in enumerate(cases)
        ]
        previous = self._writers[-1] if self._writers else None

        def write() -> None:
            if previous is not None:
                previous.join()
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(b"\n".join([*lines, b""]))
                self._process.stdin.flush()
            except BrokenPipeError:
                pass  # whoever receives finds out

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        self._writers = [*(each for each in self._writers if each.is_alive()), writer]
        return len(lines)

    def receive(self, count: int) -> Iterator[Reply]:
        """Yield the answers to the oldest batch that was not received, each as soon as it is there.

        Raises :class:`OracleError` if the program ends; it is killed if a batch takes minutes.
        """
        watchdog = threading.Timer(_PATIENCE, self._process.kill)
        watchdog.start()
        try:
            yield from self._replies(count)
        finally:
            watchdog.cancel()

    def _replies(self, count: int) -> Iterator[Reply]:
        assert self._process.stdout is not None
        for i in range(count):
            line = self._process.stdout.readline()
            if not line.endswith(b"\n"):  # the end, or an answer that was cut off when the program was killed
                raise OracleError(
                    f"{self._program.name} ended with status {self._process.wait()} before answer {i} of {count}"
                )
            answer = _DECODER.decode(line)
            if answer.get("id") != i:
                raise OracleError(f"{self._program.name} answered out of order: {line[:500]!r}")
            yield Reply(answer.get("output"), answer.get("error", ""))

    def ask(self, cases: Sequence[tuple[str, Any]]) -> list[Reply]:
        """Send a batch and return its answers."""
        return list(self.receive(self.send(cases)))
