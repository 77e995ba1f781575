"""Reconciles of a batch that are under way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kscale.effects import (
    Emit,
    Event,
    GetMetric,
    GetScale,
    List,
    Moment,
    Observation,
    Observe,
    Outcome,
    PutScale,
    StepsOf,
    Wait,
    WriteStatus,
)
from kscale.errors import InputError
from kscale.hpa.records import Reconciliation

__all__ = ["Asking", "Running"]

Asking = GetScale | List | GetMetric | PutScale | WriteStatus | Wait | Emit | Observe
"""What a reconcile may do."""


@dataclass(slots=True)
class Running:
    """One HPA's reconcile under way, and what it has said so far. ``works_it_out``: no columns say what comes of it."""

    row: int
    steps: StepsOf[Asking, Reconciliation]
    at: Moment
    events: list[Event] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    action: Asking | None = None
    record: Reconciliation | None = None
    problem: Exception | None = None
    begun: bool = False
    by_columns: bool = False
    works_it_out: bool = False

    def go_on(self, outcome: Outcome | None, answer: Callable[[Running, Asking], Outcome | None]) -> None:
        """Until it ends, or does what ``answer`` has no outcome for."""
        try:
            if outcome is None:
                self.begun = True
                action = next(self.steps)
            else:
                self.at = outcome.at
                action = self.steps.send(outcome)
            while True:
                if type(action) is Observe:
                    self.observations += action.observations
                elif type(action) is Emit:
                    self.events += action.events
                found = answer(self, action)
                if found is None:
                    self.action = action
                    return
                action = self.steps.send(found)
        except StopIteration as stop:
            self.record = stop.value
        except InputError as error:
            self.problem = error
        self.action = None
