"""What the updater asks the world to do, and what the world answers."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import msgspec

from kscale.vpa.patches import Patch

__all__ = ["Action", "Annotate", "ApiError", "Event", "Evict", "Outcome", "Resize", "Wait", "run_dry"]

Result = TypeVar("Result")


class Evict(msgspec.Struct, frozen=True, tag=True):
    """Evict a pod (policy/v1)."""

    namespace: str
    pod: str


class Resize(msgspec.Struct, frozen=True, tag=True):
    """Patch the ``resize`` sub-resource of a pod."""

    namespace: str
    pod: str
    patches: list[Patch]


class Annotate(msgspec.Struct, frozen=True, tag=True):
    """Patch a pod."""

    namespace: str
    pod: str
    patches: list[Patch]


class Wait(msgspec.Struct, frozen=True, tag=True):
    """Let time pass (nanoseconds) before the next action: the rate limiter says so."""

    duration: int


Action = Evict | Resize | Annotate | Wait


class ApiError(msgspec.Struct, frozen=True):
    """An answer of the API server that is a refusal; ``causes`` are the types of its causes."""

    message: str
    code: int = 0
    reason: str = ""
    causes: tuple[str, ...] = ()

    @property
    def is_infeasible(self) -> bool:
        """The node is too small for the resize, for good."""
        return self.reason == "Forbidden" and "NodeCapacity" in self.causes


class Outcome(msgspec.Struct, frozen=True):
    """How an action went; ``now`` (nanoseconds since 1970) where time has passed meanwhile."""

    error: ApiError | None = None
    now: int | None = None


class Event(msgspec.Struct, frozen=True):
    """An event to be recorded on a pod or a VPA."""

    kind: str
    namespace: str
    name: str
    reason: str
    message: str
    type: str = "Normal"


def run_dry(steps: Generator[Action, Outcome, Result]) -> Result:
    """The result when everything succeeds at once."""
    try:
        next(steps)
        while True:
            steps.send(Outcome())
    except StopIteration as stop:
        result: Result = stop.value
        return result
