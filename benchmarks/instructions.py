"""How many instructions a benchmark executes: a measure that no other load of the machine changes.

A plug-in of pytest in the place of pytest-benchmark's, under ``valgrind --tool=callgrind --instr-atstart=no``
(``count_instructions.py`` starts both): what a benchmark would time is counted, once. Requests to valgrind switch the
counting on and off; they are a C library that is compiled with valgrind's own header.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Callgrind", "InstructionCount", "benchmark", "callgrind", "pytest_addoption"]

_REQUESTS = """
#include <valgrind/callgrind.h>
int under_valgrind(void) { return RUNNING_ON_VALGRIND; }
void start(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void stop(void) { CALLGRIND_DUMP_STATS; CALLGRIND_STOP_INSTRUMENTATION; }
"""
_TOTAL = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)


class Callgrind:
    """The valgrind that this process runs under; it writes into ``folder`` (its ``--callgrind-out-file``)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        library = folder / "requests.so"
        command = ["cc", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input=_REQUESTS, text=True, check=True)
        self._requests = ctypes.CDLL(str(library))
        if not self._requests.under_valgrind():
            raise pytest.UsageError("instructions are counted under valgrind: nox -s instructions")

    def count(self, function: Callable[[], Any]) -> tuple[Any, int]:
        """What ``function`` returns, and the instructions of all threads until then; no garbage is collected."""
        before = set(self.folder.glob("counts.*"))
        gc.collect()
        gc.disable()
        try:
            self._requests.start()
            result = function()
            self._requests.stop()
        finally:
            gc.enable()
        written = set(self.folder.glob("counts.*")) - before
        return result, sum(int(total) for path in written for total in _TOTAL.findall(path.read_text())[-1:])


class InstructionCount:
    """What a benchmark sees as ``benchmark``: one round is counted, after one that is not, if it has more than one."""

    stats = None

    def __init__(self, callgrind: Callgrind) -> None:
        self._callgrind = callgrind
        self.extra_info: dict[str, Any] = {}
        self.counted = 0

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.pedantic(function, args, kwargs, rounds=2)

    def pedantic(
        self,
        target: Callable[..., Any],
        args: Any = (),
        kwargs: Any = None,
        setup: Callable[[], Any] | None = None,
        rounds: int = 1,
        warmup_rounds: int = 0,
    ) -> Any:
        def make_arguments() -> tuple[Any, Any]:
            return (setup() if setup else None) or (args, kwargs or {})

        if rounds > 1:
            positional, named = make_arguments()
            target(*positional, **named)
        call = functools.partial(_called, target, *make_arguments())
        result, self.counted = self._callgrind.count(call)
        return result


def _called(target: Callable[..., Any], positional: Any, named: Any) -> Any:
    return target(*positional, **named)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--instructions", metavar="DIR", type=Path, help="where valgrind writes, and instructions.json")


@pytest.fixture(scope="session")
def callgrind(request: pytest.FixtureRequest) -> Iterator[tuple[Callgrind, dict[str, int]]]:
    """The counter, and what was counted: written when the session ends."""
    folder: Path = request.config.getoption("--instructions")
    counts: dict[str, int] = {}
    yield Callgrind(folder), counts
    (folder / "instructions.json").write_text(json.dumps(counts, indent=2, sort_keys=True) + "\n")


@pytest.fixture
def benchmark(
    request: pytest.FixtureRequest, callgrind: tuple[Callgrind, dict[str, int]]
) -> Iterator[InstructionCount]:
    """In the place of pytest-benchmark's fixture."""
    counter, counts = callgrind
    counting = InstructionCount(counter)
    yield counting
    counts[request.node.nodeid] = counting.counted
