"""A dry run of a live driver: it reads, decides and says what it would do; nothing is written."""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec

from kscale.effects import ANSWERS, Action, DeleteNodes, Outcome, Refresh
from kscale.world.protocols import Clock, PerformLive

__all__ = ["described", "pretending"]

_log = logging.getLogger(__name__)
_LONGEST: Final = 500


def pretending(perform: PerformLive, clock: Clock) -> PerformLive:
    """Carries out what only asks (and what the cloud is asked to look at), and reports; anything else is logged, and
    answered as if it were done."""

    async def pretend(action: Action) -> Outcome:
        answer = ANSWERS[type(action)]
        if answer.question or not answer.refusable or isinstance(action, Refresh):
            return await perform(action)
        _log.info("dry run: %s", described(action))
        return Outcome(at=clock.now())

    return pretend


def described(action: Any) -> str:
    """An action on one line: its name, and what it is given, as JSON; of nodes the names are enough."""
    given = {name: getattr(action, name) for name in action.__struct_fields__}
    if isinstance(action, DeleteNodes):
        del given["objects"]
    text = msgspec.json.encode({name: value for name, value in given.items() if value}, enc_hook=repr).decode()
    return f"{type(action).__name__} {text if len(text) <= _LONGEST else text[:_LONGEST] + '...'}"
