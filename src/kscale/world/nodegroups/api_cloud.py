"""A cloud that is itself in an API server: blocking questions from the threads in which clouds are asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kscale.effects import Action, ApiError, Outcome
from kscale.objects.nodegroup import ProviderError
from kscale.world.nodegroups.provider import CLOUD_ERROR
from kscale.world.protocols import PerformLive

__all__ = ["Ask", "blocking", "value_of"]

Ask = Callable[[Action], Outcome]
"""Carries an action out, and waits for it."""


def blocking(perform: PerformLive, loop: asyncio.AbstractEventLoop) -> Ask:
    """What other threads may call to have actions carried out on a loop."""

    async def performed(action: Action) -> Outcome:
        return await perform(action)

    def ask(action: Action) -> Outcome:
        return asyncio.run_coroutine_threadsafe(performed(action), loop).result()

    return ask


def value_of(outcome: Outcome, words: str = "") -> Any:
    """What was answered. Raises :class:`~kscale.objects.nodegroup.ProviderError`; ``words`` come first in it."""
    error: ApiError | None = outcome.error
    if error is not None:
        raise ProviderError(f"{words}: {error.message}" if words else error.message, CLOUD_ERROR)
    return outcome.value
