"""Series from the JSON that Prometheus answers to a range query (``/api/v1/query_range``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from kscale.errors import InputError, Problem
from kscale.series.columns import KEY_COLUMNS, Series, SeriesKey

__all__ = ["read_prometheus"]


class _Result(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: list[Any]


class _Answer(msgspec.Struct):
    status: str = "success"
    data: _Data | None = None
    error: str = ""


def read_prometheus(data: bytes, *, columns: Mapping[str, str] | None = None, source: str = "<bytes>") -> Series:
    """The matrix of a range query; ``columns`` says which labels are ``namespace``, ``pod`` and ``container``.

    All labels are kept with each series. A value that is NaN or infinite is an error: leave it out in the query.
    """
    try:
        answer = msgspec.json.decode(data, type=_Answer)
        if answer.status != "success" or answer.data is None:
            raise InputError(Problem(f"Prometheus answered {answer.status}: {answer.error}", source))
        if answer.data.result_type != "matrix":
            raise InputError(
                Problem(
                    f"a {answer.data.result_type}, not the matrix of a range query", source, field="data.resultType"
                )
            )
        results = msgspec.convert(answer.data.result, list[_Result])
    except msgspec.DecodeError as error:
        raise InputError(Problem(f"not a Prometheus answer: {error}", source)) from None
    names = [(columns or {}).get(name, name) for name in KEY_COLUMNS]
    keys, labels, times, values, numbers = [], [], [], [], []
    for number, result in enumerate(results):
        keys.append(SeriesKey(*(result.metric.get(name, "") for name in names)))
        labels.append(result.metric)
        for time, text in result.values:
            try:
                values.append(float(text))
            except ValueError:
                place = f"data.result[{number}].values"
                raise InputError(Problem(f'"{text}" is not a number', source, field=place)) from None
            times.append(round(time * 1000) * 1_000_000)  # Prometheus keeps milliseconds
        numbers.append(np.full(len(result.values), number, np.int32))
    joined = np.concatenate(numbers) if numbers else np.empty(0, np.int32)
    return Series.of(
        keys, joined, np.array(times, np.int64), np.array(values, np.float64), labels=labels, source=source
    )
