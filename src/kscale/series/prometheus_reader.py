"""Series from the JSON that Prometheus answers to a range query (``/api/v1/query_range``)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError, Problem
from kscale.series.columns import KEY_COLUMNS, Series, SeriesKey

__all__ = ["read_prometheus"]


class _Result(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Answer(msgspec.Struct):
    status: str = "success"
    data: _Data | None = None
    error: str = ""


def read_prometheus(
    data: bytes, *, columns: Mapping[str, str] | None = None, source: str = "<bytes>", finite: bool = True
) -> Series:
    """The matrix of a range query; ``columns`` says which labels are ``namespace``, ``pod`` and ``container``.

    All labels are kept with each series. Unless ``finite`` is False a value that is NaN or infinite is an error: leave
    it out in the query.
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
        results = msgspec.json.decode(answer.data.result, type=list[_Result])
    except msgspec.DecodeError as error:
        raise InputError(Problem(f"not a Prometheus answer: {error}", source)) from None
    names = [(columns or {}).get(name, name) for name in KEY_COLUMNS]
    keys, labels = [], []
    times: list[NDArray[np.int64]] = []
    values: list[NDArray[np.float64]] = []
    for number, result in enumerate(results):
        keys.append(SeriesKey(*(result.metric.get(name, "") for name in names)))
        labels.append(result.metric)
        count = len(result.values)
        moments = np.fromiter((time for time, _ in result.values), np.float64, count)
        times.append(np.rint(moments * 1000).astype(np.int64) * 1_000_000)  # Prometheus keeps milliseconds
        try:
            values.append(np.fromiter((float(text) for _, text in result.values), np.float64, count))
        except ValueError as error:
            raise InputError(Problem(str(error), source, field=f"data.result[{number}].values")) from None
    counts = [len(each) for each in values]
    return Series.of(
        keys,
        np.repeat(np.arange(len(keys), dtype=np.int32), counts),
        np.concatenate(times) if times else np.empty(0, np.int64),
        np.concatenate(values) if values else np.empty(0, np.float64),
        labels=labels,
        source=source,
        finite=finite,
    )
