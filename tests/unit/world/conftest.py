"""Fixtures of several test files; asserts in shared cases are explained, too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop

pytest.register_assert_rewrite("unit.world.informer_cases", "unit.world.stores_cases", "unit.world.writer_cases")


@pytest.fixture(params=[uvloop.new_event_loop, asyncio.SelectorEventLoop], ids=["uvloop", "asyncio"])
def loop_type(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test on the programs' event loop, and on asyncio's."""

    def run(main: Any) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(main)

    monkeypatch.setattr(asyncio, "run", run)
