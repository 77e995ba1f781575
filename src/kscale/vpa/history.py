"""A recorded history on its way into a feed, in whatever order its rows come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from kscale.series.usage_reader import UsageBatch
from kscale.vpa.feed import Feed

__all__ = ["take_in"]

_MOST_SORTED: Final = 10_000_000
"""Rows of a history that are held in memory together to be sorted, with their copies: 0.9 GB."""


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
    for batch in _by_time(history):
        feed.add(batch)
    feed.settle()
    return feed


def _by_time(history: Iterable[UsageBatch]) -> Iterator[UsageBatch]:
    """All rows by time, those of CPU and then those of memory; equal times in the order of the history."""
    batches = list(history)
    for memory in (False, True):
        numbers: dict[tuple[object, ...], int] = {}
        first: list[tuple[UsageBatch, int]] = []
        series: list[npt.NDArray[np.int32]] = []
        times: list[npt.NDArray[np.int64]] = []
        values: list[npt.NDArray[np.float64]] = []
        for batch in batches:
            found = batch.memory if memory else batch.cpu
            if found is None:
                continue
            own = np.empty(len(batch.keys), np.int32)
            for i, key in enumerate(batch.keys):
                labels = tuple(sorted(batch.labels[i].items())) if batch.labels else ()
                number = own[i] = numbers.setdefault((key, batch.workloads[i], labels), len(numbers))
                if number == len(first):
                    first.append((batch, i))
            series.append(own[batch.series])
            times.append(batch.time)
            values.append(found)
        if not values:
            continue
        time = np.concatenate(times)
        order = np.argsort(time, kind="stable")
        amounts = np.concatenate(values)[order]
        yield UsageBatch(
            [batch.keys[i] for batch, i in first],
            [batch.workloads[i] for batch, i in first],
            np.concatenate(series)[order],
            time[order],
            None if memory else amounts,
            amounts if memory else None,
            [batch.labels[i] if batch.labels else {} for batch, i in first],
        )
