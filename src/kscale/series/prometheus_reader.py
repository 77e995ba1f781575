"""Series from the JSON that Prometheus answers to a range query (``/api/v1/query_range``)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError, Problem
from kscale.series.columns import KEY_COLUMNS, Series, SeriesKey

__all__ = ["read_prometheus"]


class _Result(msgspec.Struct):
    metric: dict[str, str]
    values: msgspec.Raw


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
        points = _points(bytes(result.values), f"data.result[{number}].values", source)
        times.append(np.rint(points[:, 0] * 1000).astype(np.int64) * 1_000_000)  # Prometheus keeps milliseconds
        values.append(np.ascontiguousarray(points[:, 1]))
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


def _points(raw: bytes, place: str, source: str) -> NDArray[np.float64]:
    """``[[time,"value"],...]`` as float64[n, 2]."""
    count = raw.count(b"],[") + 1
    # If these numbers are right, each list is one number and then one text, and nothing else is in between.
    marks = (raw.count(b"["), raw.count(b'"'), raw.count(b',"'), raw.count(b'"]'), raw.count(b" "))
    if marks == (count + 1, 2 * count, count, count, 0):
        found = _numbers(raw.translate(None, b'[]"'))
        if len(found) == 2 * count:
            return found.reshape(-1, 2)
    try:
        pairs = msgspec.json.decode(raw, type=list[tuple[float, str]])
        return np.array([(time, float(text)) for time, text in pairs], np.float64).reshape(-1, 2)
    except (msgspec.DecodeError, ValueError) as error:
        raise InputError(Problem(str(error), source, field=place)) from None


def _numbers(text: bytes) -> NDArray[np.float64]:
    """Numbers between commas, up to the first text that is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # NumPy < 2.3 says so where later ones raise
            return np.fromstring(text, np.float64, sep=",")
    except ValueError:
        return np.empty(0)
