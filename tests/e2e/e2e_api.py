"""Informers and writes against the real API server: the cases that the fake one passes, too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from e2e.control_plane import ControlPlane
from e2e.real_api import connected
from unit.world import informer_cases, stores_cases, writer_cases


def run(plane: ControlPlane, case: Callable[[Any], Awaitable[None]]) -> None:
    async def main() -> None:
        async with connected(plane) as api:
            await case(api)

    asyncio.run(main())


@pytest.mark.smoke
@pytest.mark.parametrize("case", informer_cases.CASES, ids=[case.__name__ for case in informer_cases.CASES])
def test_informers(plane: ControlPlane, case: Callable[[Any], Awaitable[None]]) -> None:
    run(plane, case)


@pytest.mark.smoke
@pytest.mark.parametrize("case", writer_cases.CASES, ids=[case.__name__ for case in writer_cases.CASES])
def test_writes(plane: ControlPlane, case: Callable[[Any], Awaitable[None]]) -> None:
    run(plane, case)


@pytest.mark.smoke
@pytest.mark.parametrize("case", stores_cases.CASES, ids=[case.__name__ for case in stores_cases.CASES])
def test_stores(plane: ControlPlane, case: Callable[[Any], Awaitable[None]]) -> None:
    run(plane, case)
