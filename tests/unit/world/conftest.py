"""Fixtures of several test files."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop


@pytest.fixture(params=[uvloop.new_event_loop, asyncio.SelectorEventLoop], ids=["uvloop", "asyncio"])
def loop_type(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test on the programs' event loop, and on asyncio's."""

    def run(main: Any) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(main)

    monkeypatch.setattr(asyncio, "run", run)
