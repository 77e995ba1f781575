"""What a query was over time, as a Prometheus remembers it: one :class:`~kscale.series.Series` out of its parts."""

from __future__ import annotations

import numpy as np

from kscale.effects import QueryPrometheus
from kscale.series import Series
from kscale.series.columns import SeriesKey
from kscale.series.prometheus_reader import read_prometheus
from kscale.world.metrics.range_queries import RangeQueries

__all__ = ["series_of"]


async def series_of(queries: RangeQueries, question: QueryPrometheus) -> Series:
    """The answer to a range query; series with the same labels in several parts are one. Raises InputError for what the
    server refuses, and for values that are no numbers: the query leaves these out."""
    numbers: dict[frozenset[tuple[str, str]], int] = {}
    keys: list[SeriesKey] = []
    labels: list[dict[str, str]] = []
    rows: list[np.ndarray] = [np.zeros(0, np.int32)]
    times: list[np.ndarray] = [np.zeros(0, np.int64)]
    values: list[np.ndarray] = [np.zeros(0)]
    async for _, answer in queries.answers([question]):
        part = read_prometheus(answer, source=question.query)
        of_all = np.zeros(len(part.keys), dtype=np.int32)
        for i, (key, mine) in enumerate(zip(part.keys, part.labels, strict=True)):
            of_all[i] = numbers.setdefault(frozenset(mine.items()), len(numbers))
            if of_all[i] == len(keys):
                keys.append(key)
                labels.append(dict(mine))
        rows.append(of_all[part.series])
        times.append(part.time)
        values.append(part.value)
    return Series.of(
        keys, np.concatenate(rows), np.concatenate(times), np.concatenate(values), labels=labels, source=question.query
    )
