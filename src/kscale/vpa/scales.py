"""What the ``/scale`` endpoints of controllers answer, known beforehand or asked for and remembered.

Upstream: ``target/controller_fetcher/controller_cache_storage.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, Protocol, TypeVar

from kscale.effects import (
    SECOND,
    ZERO_TIME,
    ApiError,
    GetScale,
    Moment,
    Observation,
    Observe,
    Outcome,
    Progress,
    StepsOf,
    moment,
)
from kscale.effects.outcomes import NOT_FOUND
from kscale.errors import KscaleError
from kscale.objects.autoscaling import Scale

__all__ = [
    "NO_SCALES",
    "KnownScales",
    "ScaleCache",
    "ScaleKey",
    "ScaleNeededError",
    "ScaleRefusedError",
    "Scales",
    "with_scales",
    "without_asking",
]

_T = TypeVar("_T")

REFRESH_INTERVAL: Final = 7 * SECOND
"""How often upstream looks for scales to be asked for anew."""


class ScaleKey(NamedTuple):
    """``resource`` is a group-resource: ``rollouts.argoproj.io``."""

    namespace: str
    resource: str
    name: str


class ScaleRefusedError(LookupError):
    """The API server refused to give a scale; the text is its message."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


class ScaleNeededError(KscaleError):
    """A scale that nobody has asked for yet. Machines ask and go on; a plain call needs :class:`KnownScales`."""

    def __init__(self, key: ScaleKey) -> None:
        super().__init__(f"the scale of {key.resource} {key.namespace}/{key.name} is not known yet")
        self.key = key


class Scales(Protocol):
    """Where scales come from."""

    def get(self, key: ScaleKey) -> Scale:
        """A scale. Raises :class:`ScaleRefusedError` or :class:`ScaleNeededError`."""
        ...


class KnownScales:
    """All scales that there are: one that is not among them was not found."""

    __slots__ = ("_answers",)

    def __init__(self, answers: Mapping[ScaleKey, Scale | ApiError] | None = None) -> None:
        self._answers = dict(answers or {})

    def __repr__(self) -> str:
        return f"<KnownScales: {len(self._answers)}>"

    def get(self, key: ScaleKey) -> Scale:
        """A scale; raises :class:`ScaleRefusedError`."""
        found = self._answers.get(key)
        if isinstance(found, Scale):
            return found
        raise ScaleRefusedError(found or ApiError(f'{key.resource} "{key.name}" not found', 404, NOT_FOUND))


NO_SCALES: Final = KnownScales()


@dataclass(slots=True)
class _Entry:
    answer: Scale | ApiError
    refresh_after: Moment
    delete_after: Moment


class ScaleCache:
    """Scales that were asked for, refusals as well, as long as somebody reads them.

    ``freshness``, ``lifetime``: nanoseconds after which an answer is asked for anew (up to twice as long, as
    ``jitter``, a number from 0 to 1, says), and after which one that nobody read is dropped; both only where somebody
    refreshes. ``most``: where it holds more, what was not read for longest is dropped (upstream's grows without an
    end: pods of jobs of one's own each have another owner). Single owner.
    """

    __slots__ = ("_entries", "_freshness", "_jitter", "_lifetime", "_most", "now")

    def __init__(
        self,
        *,
        freshness: int = 600 * SECOND,
        lifetime: int = 3600 * SECOND,
        jitter: Callable[[], float] = lambda: 0.0,
        most: int = 1 << 18,  # more than a cluster has pods
    ) -> None:
        self._entries: dict[ScaleKey, _Entry] = {}
        self._most = most
        self._freshness = freshness
        self._lifetime = lifetime
        self._jitter = jitter
        self.now: Moment = ZERO_TIME
        """When it is asked; whoever asks sets it."""

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<ScaleCache: {len(self)}>"

    def clock_set(self, by: int) -> None:
        """The clock has been set by so many nanoseconds: everything is as old as it was."""
        for entry in self._entries.values():
            entry.refresh_after += by
            entry.delete_after += by
        self.now += by

    def get(self, key: ScaleKey) -> Scale:
        """A scale, which lives longer now. Raises :class:`ScaleRefusedError` and :class:`ScaleNeededError`."""
        entry = self._entries.get(key)
        if entry is None:
            raise ScaleNeededError(key)
        entry.delete_after = self.now + self._lifetime
        if isinstance(entry.answer, ApiError):
            raise ScaleRefusedError(entry.answer)
        return entry.answer

    def insert(self, key: ScaleKey, answer: Scale | ApiError, now: datetime | Moment) -> None:
        """An answer to a question; one that is known already stays."""
        time = moment(now)
        if key in self._entries:
            return
        if len(self._entries) >= self._most:  # a part of them at once, so that few look at all
            oldest = sorted(self._entries, key=lambda each: self._entries[each].delete_after)
            for each in oldest[: self._most // 8 + 1]:
                del self._entries[each]
        self._entries[key] = _Entry(answer, self._next(time), time + self._lifetime)

    def refresh_steps(self, now: datetime | Moment) -> StepsOf[GetScale, None]:
        """Asks anew for what has become old, and drops what nobody reads (to be done every 7 s)."""
        progress = Progress(moment(now))
        for key in [key for key, entry in self._entries.items() if progress.now > entry.refresh_after]:
            answer = yield from _ask(progress, key)
            entry = self._entries.get(key)
            if entry is not None:
                entry.answer, entry.refresh_after = answer, self._next(progress.now)
        for key in [key for key, entry in self._entries.items() if progress.now > entry.delete_after]:
            del self._entries[key]

    def _next(self, now: Moment) -> Moment:
        return now + self._freshness + int(self._jitter() * float(self._freshness))


class _AskedNow:
    """Answers of one question only."""

    __slots__ = ("answers",)

    def __init__(self) -> None:
        self.answers: dict[ScaleKey, Scale | ApiError] = {}

    def get(self, key: ScaleKey) -> Scale:
        found = self.answers.get(key)
        if found is None:
            raise ScaleNeededError(key)
        if isinstance(found, ApiError):
            raise ScaleRefusedError(found)
        return found


def with_scales(
    progress: Progress, scales: Scales, question: Callable[[Scales], _T], *, remember: bool = True
) -> StepsOf[GetScale, _T]:
    """The answer to a question about controllers, with all scales asked for that it turns out to need.

    With ``remember`` a :class:`ScaleCache` is read and filled; without, each is asked for, as upstream does for
    selectors. All other ``scales`` are what is known.
    """
    if not isinstance(scales, ScaleCache):
        return question(scales)
    asked = _AskedNow()
    while True:
        scales.now = progress.now
        try:
            return question(scales if remember else asked)
        except ScaleNeededError as needed:
            key = needed.key
        answer = yield from _ask(progress, key)
        if remember:
            scales.insert(key, answer, progress.now)
        else:
            asked.answers[key] = answer


def _ask(progress: Progress, key: ScaleKey) -> StepsOf[GetScale, Scale | ApiError]:
    outcome = yield from progress.act(GetScale(namespace=key.namespace, resource=key.resource, name=key.name))
    answer: Scale | ApiError = outcome.error if outcome.error is not None else outcome.value
    return answer


def without_asking(steps: StepsOf[GetScale | Observe, _T]) -> tuple[_T, list[Observation]]:
    """What a machine returns that needs no scale but those that are known, and what it observed.

    Raises :class:`ScaleNeededError` for one that does.
    """
    said: list[Observation] = []
    try:
        action = next(steps)
        while True:
            if isinstance(action, GetScale):
                raise ScaleNeededError(ScaleKey(action.namespace, action.resource, action.name))
            said += action.observations
            action = steps.send(Outcome(at=ZERO_TIME))
    except StopIteration as stop:
        value: _T = stop.value
        return value, said
