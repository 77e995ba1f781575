"""A world in which everything succeeds but what is refused, and what was asked and said in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from kscale.effects import (
    LEGAL_OUTCOMES,
    Action,
    ApiError,
    Emit,
    Event,
    Moment,
    Observation,
    Observe,
    Outcome,
    Steps,
    VirtualTime,
)

Refuse = Callable[[Action], ApiError | None]
Answer = Callable[[Action], Any]


def nothing(action: Action) -> None:
    """Refuses nothing."""


class World:
    """``refuse`` says which actions fail, ``answer`` answers questions, each action takes ``took`` nanoseconds."""

    def __init__(self, refuse: Refuse = nothing, answer: Answer = nothing, took: int = 0) -> None:
        self.refuse, self.answer, self.took = refuse, answer, took
        self.actions: list[Any] = []
        self.events: list[Event] = []
        self.observations: list[Observation] = []
        self.now: Moment = 0

    def __call__(self, action: Action, now: Moment) -> Outcome:
        if isinstance(action, Emit):
            self.events += action.events
            return Outcome(at=now)
        if isinstance(action, Observe):
            self.observations += action.observations
            return Outcome(at=now)
        self.actions.append(action)
        error = self.refuse(action)
        if error is not None:
            return Outcome(at=now + self.took, error=error)
        answer = LEGAL_OUTCOMES[type(action)]
        return Outcome(at=now + self.took, value=self.answer(action) if answer.reads else None)

    def run(self, steps: Steps[Any], now: Moment) -> Any:
        """What a machine returns here; ``self.now`` is when everything was over."""
        time = VirtualTime(self, now=now)
        running = time.start(lambda _: steps)
        time.run()
        self.now = time.now
        return running.value

    def kinds(self) -> Counter[str]:
        """How many actions of each type."""
        return Counter(type(action).__name__ for action in self.actions)


def refusing(*types: type, error: ApiError | None = None) -> Refuse:
    """Refuses all actions of some types."""
    return lambda action: (error or ApiError("no")) if isinstance(action, types) else None


def counted(observations: Iterable[Observation], prefix: str = "") -> dict[str, float]:
    """``metric{label=value,...}`` -> what was added or set, or how many values were observed; without times of steps
    and what is 0."""
    result: Counter[str] = Counter()
    for one in observations:
        if one.reset or "execution_latency" in one.name or not one.name.startswith(prefix):
            continue
        labels = ",".join(f"{label}={value}" for label, value in one.labels.items())
        result[f"{one.name}{{{labels}}}" if labels else one.name] += (
            one.value if one.buckets is None else sum(one.buckets)
        )
    return {key: value for key, value in result.items() if value}
