"""What autoscalers asked for, one line each, in the order in which it was done."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from kscale.drivers.virtual import changes_something
from kscale.effects import Action, DeleteNodes, Moment, Outcome, Perform, PutScale, to_text
from kscale.objects.base import enc_hook

__all__ = ["Decision", "DecisionLog"]


class Decision(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``by`` asked for ``action`` at a moment (RFC 3339), with ``arguments``; ``error`` where it was refused."""

    at: str
    by: str
    action: str
    arguments: dict[str, Any]
    error: str | None = None


class DecisionLog:
    """Keeps what changes the cluster or the cloud; questions, reports, statuses and leases are left out.

    ``done`` and ``refused`` count by the names of actions.
    """

    def __init__(self) -> None:
        self.entries: list[Decision] = []
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def listening(self, by: str, perform: Perform) -> Perform:
        """What carries actions out for one autoscaler, and writes them down: ``perform`` and a note."""

        def performing(action: Action, now: Moment) -> Outcome:
            outcome = perform(action, now)
            if changes_something(action):
                self._note(by, action, now, outcome)
            return outcome

        return performing

    def _note(self, by: str, action: Action, now: Moment, outcome: Outcome) -> None:
        name = type(action).__name__
        (self.done if outcome.error is None else self.refused)[name] += 1
        if isinstance(action, DeleteNodes):  # their names are enough
            action = msgspec.structs.replace(action, objects=())
        arguments: dict[str, Any] = msgspec.to_builtins(action, enc_hook=enc_hook)
        if isinstance(action, PutScale):  # of the scale, whose it is
            arguments |= {"scale": None, "name": action.scale.metadata.name}
        self.entries.append(
            Decision(
                at=to_text(now, fraction=True) or "",
                by=by,
                action=name,
                arguments={key: value for key, value in arguments.items() if value not in (None, "", [], {})},
                error=None if outcome.error is None else outcome.error.message,
            )
        )

    def to_bytes(self) -> bytes:
        """A line of JSON each."""
        return b"".join(msgspec.json.encode(entry) + b"\n" for entry in self.entries)
