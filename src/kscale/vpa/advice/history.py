"""A recorded history on its way into a feed, in whatever order its rows come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from kscale.series.columns import SeriesKey
from kscale.series.usage_reader import UsageBatch
from kscale.vpa.advice.feed import Feed

__all__ = ["take_in"]

_MOST_SORTED: Final = 10_000_000
"""Rows of a history that are held in memory together to be sorted: 0.4 GB."""
_TOGETHER: Final = 1 << 20
"""Sorted rows that are fed together."""


def take_in(
    history: Iterable[UsageBatch], prepare: Callable[[], Feed], progress: Callable[[int], None] | None = None
) -> Feed:
    """Feed a history batch by batch, as it comes, to what ``prepare`` makes.

    A container takes no sample that is older than its last one, as upstream. Where batches go back in time a history
    that can be read again, and is not too long, is therefore fed once more, sorted. ``progress`` is told the number of
    rows read so far.
    """
    feed, rows = prepare(), 0
    for batch in history:
        feed.add(batch)
        rows += len(batch)
        if progress is not None:
            progress(rows)
    feed.settle()
    if not feed.behind or rows > _MOST_SORTED or iter(history) is history:
        return feed
    feed = prepare()
    for batch in _by_time(history, rows):
        feed.add(batch)
    feed.settle()
    return feed


def _by_time(history: Iterable[UsageBatch], rows: int) -> Iterator[UsageBatch]:
    """All ``rows`` by time, those of CPU and then those of memory; equal times in the order of the history.

    The history is read once for each of the two, so that only one is held.
    """
    for memory in (False, True):
        yield from _of_one(history, rows, memory)


def _of_one(history: Iterable[UsageBatch], rows: int, memory: bool) -> Iterator[UsageBatch]:
    """The rows of CPU or of memory by time."""
    numbers: dict[tuple[object, ...], int] = {}
    keys: list[SeriesKey] = []
    workloads: list[str] = []
    labels: list[Mapping[str, str]] = []
    series, time, values = np.empty(rows, np.int32), np.empty(rows, np.int64), np.empty(rows)
    count = 0
    for batch in history:
        found = batch.memory if memory else batch.cpu
        if found is None:
            continue
        own = np.empty(len(batch.keys), np.int32)
        for i, key in enumerate(batch.keys):
            told = batch.labels[i] if batch.labels else {}
            number = own[i] = numbers.setdefault((key, batch.workloads[i], tuple(sorted(told.items()))), len(numbers))
            if number == len(keys):
                keys.append(key)
                workloads.append(batch.workloads[i])
                labels.append(told)
        here = slice(count, count + len(batch))
        series[here], time[here], values[here] = own[batch.series], batch.time, found
        count += len(batch)
    order = np.argsort(time[:count], kind="stable")
    shown = labels if any(labels) else ()
    for at in range(0, count, _TOGETHER):
        part = order[at : at + _TOGETHER]
        amounts = values[part]
        yield UsageBatch(
            keys,
            workloads,
            series[part],
            time[part],
            None if memory else amounts,
            amounts if memory else None,
            shown,
        )
