"""Running a step machine against a function that may refuse: what ``run_dry`` never does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kscale.effects import Action, ApiError, DryRun, Emit, Moment, Observe, Outcome, Steps, VirtualTime

__all__ = ["performed"]


def performed(steps: Steps[Any], answer: Callable[[Action], Any], *, now: Moment) -> DryRun[Any]:
    """What came of it: every action but reports and waits is answered with a value or an :class:`ApiError`."""
    dry_run: DryRun[Any] = DryRun(None)

    def perform(action: Action, at: Moment) -> Outcome:
        if isinstance(action, Emit):
            dry_run.events.extend(action.events)
        elif isinstance(action, Observe):
            dry_run.observations.extend(action.observations)
        else:
            dry_run.actions.append(action)
            result = answer(action)
            return Outcome(at=at, error=result) if isinstance(result, ApiError) else Outcome(at=at, value=result)
        return Outcome(at=at)

    time = VirtualTime(perform, now=now)
    running = time.start(lambda _: steps)
    time.run()
    return DryRun(running.value, dry_run.actions, dry_run.events, dry_run.observations)
